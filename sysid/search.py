"""Minimisation within bounds that costs no more than it may."""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

Cost = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Optimum(NamedTuple):
    """What a search found."""

    x: np.ndarray
    cost: float
    cost_at_start: float
    converged: bool
    n_evaluations: int  # of the cost and its gradient


class EvaluationsUsedUp(Exception):
    """The cost has been evaluated as often as it may be."""


class _Counted:
    """A cost that keeps its values and the best point, and refuses more than so many evaluations."""

    def __init__(self, cost: Cost, most: float) -> None:
        self.cost = cost
        self.most = most
        self.values: list[float] = []
        self.best = np.zeros(0)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        if len(self.values) >= self.most:
            raise EvaluationsUsedUp
        value, gradient = self.cost(x)
        if not self.values or value < min(self.values):
            self.best = x.copy()
        self.values.append(value)
        return value, gradient


def minimise(
    cost: Cost,
    start: np.ndarray,
    bounds: np.ndarray,
    *,
    max_iterations: int,
    max_evaluations: float = inf,
    tolerance: float = 2.2e-9,
) -> Optimum:
    """Minimise a cost with its gradient by L-BFGS-B.

    Parameters
    ----------
    cost : callable
        Value and gradient (n,) at x (n,).
    start : (n,)
        Within the bounds.
    bounds : (n, 2)
    max_iterations : int
        Line searches; the cost may be evaluated several times in each.
    max_evaluations : float
        Never exceeded: the search ends with the best point of those.
    tolerance : float
        Decrease of the cost in one iteration, relative to its magnitude (at least 1), below which the search ends.
    """
    counted = _Counted(cost, max_evaluations)
    x, value, converged = start, inf, False
    with suppress(EvaluationsUsedUp):
        options = {"maxiter": max_iterations, "ftol": tolerance}
        result = minimize(counted, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        x, value, converged = result.x, float(result.fun), bool(result.success)
    if value == inf:
        x, value = counted.best, min(counted.values)
    return Optimum(x, value, counted.values[0], converged, len(counted.values))
