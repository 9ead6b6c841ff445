"""Minimisation without a gradient, from several starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

SMALLEST = 1e-3  # difference of the cost within the simplex at which a search ends [-]


class Minimum(NamedTuple):
    """What a search found."""

    x: Array  # (d,)
    value: float
    n_evaluations: int
    starts: tuple[float, ...]  # best value after each start


class _UsedUp(Exception):
    """The cost has been evaluated as often as it may be."""


class _Counted:
    """A cost that remembers the best point, and refuses more than so many evaluations."""

    def __init__(self, cost: Callable[[Array], float]) -> None:
        self.cost = cost
        self.n, self.most = 0, 0
        self.best, self.x = np.inf, np.zeros(0)

    def __call__(self, x: Array) -> float:
        if self.n >= self.most:
            raise _UsedUp
        self.n += 1
        value = float(self.cost(x))
        if value < self.best or self.n == 1:
            self.best, self.x = value, x.copy()
        return value


def search(
    cost: Callable[[Array], float], starts: Sequence[Array], *, size: float, bound: float, evaluations: int
) -> Minimum:
    """Minimise a cost of x (d,) by Nelder and Mead's simplex from several starts, then again from the best.

    A cost with ripples and kinks, whose gradient would lead nowhere. Every start gets the same share of the
    evaluations, and so does the search from the best point, with a new simplex, that ends them.

    Parameters
    ----------
    starts : sequence of (d,)
    size : float
        Edges of the first simplex, along the axes.
    bound : float
        Largest magnitude of every variable.
    evaluations : int
        Never exceeded.
    """
    counted, values = _Counted(cost), []
    for number, start in enumerate(starts, start=1):
        counted.most = number * evaluations // (len(starts) + 1)
        _descend(counted, start, size, bound)
        values.append(counted.best)
    counted.most = evaluations
    while counted.n < evaluations:
        before = counted.n, counted.best
        _descend(counted, counted.x if counted.n else starts[0], 0.5 * size, bound)
        if before[1] - counted.best < SMALLEST:
            break
    return Minimum(counted.x, counted.best, counted.n, tuple(values))


def _descend(counted: _Counted, start: Array, size: float, bound: float) -> None:
    inward = np.where(start > 0, -size, size)  # so that the simplex is inside the bounds
    simplex = np.vstack([start, start + np.diag(inward)])
    options = {"maxfev": 10**6, "maxiter": 10**6, "initial_simplex": simplex, "fatol": SMALLEST, "xatol": 1e-2}
    with suppress(_UsedUp):
        minimize(counted, start, method="Nelder-Mead", bounds=[(-bound, bound)] * len(start), options=options)
