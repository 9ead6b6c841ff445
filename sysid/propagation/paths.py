"""Trajectories that are fed back side by side, and their moments."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sysid.dynamics import Dynamics
from sysid.propagation.propagation import Moments

Array: TypeAlias = NDArray[np.float64]


class Paths:
    """P trajectories from each of b starts.

    Parameters
    ----------
    dynamics, past, exogenous
        As for `Propagation.propagate`.
    n_paths : int
        P.
    """

    def __init__(self, dynamics: Dynamics, past: Array, exogenous: Array, n_paths: int) -> None:
        n_starts, self.n_steps, _ = exogenous.shape
        self.dynamics, self.exogenous = dynamics, exogenous
        self.shape = (n_starts, n_paths, dynamics.n_outputs)
        self.values = np.empty((n_starts, n_paths, dynamics.n_lags + self.n_steps, dynamics.n_outputs))
        self.values[:, :, : dynamics.n_lags] = past[:, None]
        self.bounds = dynamics.bounds(past)
        self._has_left = np.zeros(n_starts, dtype=bool)
        self._moments = Moments(*np.full((2, n_starts, self.n_steps, dynamics.n_outputs), np.nan))

    def regressors(self, t: int) -> Array:
        """Regressors (b P, p) of step t."""
        dynamics = self.dynamics
        last = self.values[:, :, t : t + dynamics.n_lags].reshape(-1, dynamics.n_lags, dynamics.n_outputs)
        return dynamics.regressors(last, np.repeat(self.exogenous[:, t], self.shape[1], axis=0))

    def to_value(self, t: int, targets: Array) -> Array:
        """Outputs (b, P, m) of targets (b P, m) of step t."""
        previous = self.values[:, :, self.dynamics.n_lags + t - 1]
        return self.dynamics.to_value(targets.reshape(self.shape), previous)

    def push(self, t: int, values: Array) -> None:
        """Feed the outputs (b, P, m) of step t back; a start of which a path has left the bounds is over."""
        inside = np.all(self.bounds.contain(values), axis=2)
        leaves = ~np.all(inside, axis=1) & ~self._has_left
        for b in np.flatnonzero(leaves):
            self._moments.mean[b, t] = values[b, np.argmin(inside[b])]
        self._has_left |= leaves
        held = self.values[:, :, self.dynamics.n_lags + t - 1]
        self.values[:, :, self.dynamics.n_lags + t] = np.where(inside[:, :, None], values, held)

    def note(self, t: int, mean: Array, variance: Array) -> None:
        """Keep the moments (b, m) of step t of all starts that are not over; call it after `push`."""
        goes_on = ~self._has_left
        self._moments.mean[goes_on, t], self._moments.variance[goes_on, t] = mean[goes_on], variance[goes_on]

    def moments(self) -> Moments:
        """Moments of all steps."""
        return self._moments


def of_draws(values: Array) -> tuple[Array, Array]:
    """Mean and unbiased variance (b, m) over draws (b, P, m); the variance of a single draw is 0."""
    n = values.shape[1]
    return values.mean(axis=1), values.var(axis=1, ddof=1) if n > 1 else np.zeros(values[:, 0].shape)


def of_conditionals(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance (b, m) of a mixture of distributions with these moments (b, P, m)."""
    centre, spread = of_draws(mean)
    return centre, variance.mean(axis=1) + spread


def checked_count(owner: str, name: str, value: int, least: int) -> None:
    """Refuse a count that is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{owner}: {name} must be an integer of at least {least}, got {value!r}")
