"""Trajectories that are fed back side by side, and their moments."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

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
    coverage : float or None
        Part of the paths whose spread counts (`of_draws`). A start is over when more than the others have left the
        bounds; without it, when one has.
    """

    def __init__(self, dynamics: Dynamics, past: Array, exogenous: Array, n_paths: int, coverage: float | None) -> None:
        n_starts, self.n_steps, _ = exogenous.shape
        self.dynamics, self.exogenous = dynamics, exogenous
        self.shape = (n_starts, n_paths, dynamics.n_outputs)
        self.values = np.empty((n_starts, n_paths, dynamics.n_lags + self.n_steps, dynamics.n_outputs))
        self.values[:, :, : dynamics.n_lags] = past[:, None]
        self.bounds = dynamics.bounds(past)
        self.coverage = coverage
        self._lost = np.zeros((n_starts, n_paths), dtype=bool)
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
        """Feed the outputs (b, P, m) of step t back; a start of which too many paths have left the bounds is over."""
        inside = np.all(self.bounds.contain(values), axis=2)
        self._lost |= ~inside
        allowed = 0.0 if self.coverage is None else 1.0 - self.coverage
        leaves = (self._lost.mean(axis=1) > allowed + 1e-12) & ~self._has_left
        for b in np.flatnonzero(leaves):
            self._moments.mean[b, t] = values[b, np.argmin(inside[b])]
        self._has_left |= leaves
        held = self.values[:, :, self.dynamics.n_lags + t - 1]
        self.values[:, :, self.dynamics.n_lags + t] = np.where(inside[:, :, None], values, held)

    def of_draws(self, values: Array) -> tuple[Array, Array]:
        """Centre and variance (b, m) of outputs (b, P, m); paths that have left count as infinitely far away."""
        return of_draws(np.where(self._lost[:, :, None], np.nan, values), self.coverage)

    def of_conditionals(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Centre and variance (b, m) of a mixture of distributions with these moments (b, P, m)."""
        centre, spread = self.of_draws(mean)
        return centre, (variance.mean(axis=1) if self.coverage is None else np.median(variance, axis=1)) + spread

    def note(self, t: int, mean: Array, variance: Array) -> None:
        """Keep the moments (b, m) of step t of all starts that are not over; call it after `push`."""
        goes_on = ~self._has_left
        self._moments.mean[goes_on, t], self._moments.variance[goes_on, t] = mean[goes_on], variance[goes_on]

    def moments(self) -> Moments:
        """Moments of all steps."""
        return self._moments


def of_draws(values: Array, coverage: float | None) -> tuple[Array, Array]:
    """Centre and variance (b, m) over draws (b, P, m), nan where a draw is lost.

    With a coverage c: the median, and the variance of the normal distribution about it whose central band of
    probability c holds the part c of the draws; a few draws that go far away, or are lost, do not set it. None: mean
    and unbiased variance (that of a single draw is 0).
    """
    n = values.shape[1]
    if coverage is None:
        return values.mean(axis=1), values.var(axis=1, ddof=1) if n > 1 else np.zeros(values[:, 0].shape)
    known = np.where(np.isnan(values), np.inf, values)
    centre = np.quantile(known, 0.5, axis=1, method="lower")
    distance = np.where(np.isnan(values), np.inf, np.abs(known - np.where(np.isfinite(centre), centre, 0.0)[:, None]))
    half = np.quantile(distance, coverage, axis=1, method="higher")
    return centre, np.asarray((half / ndtri(0.5 + 0.5 * coverage)) ** 2)


def checked_coverage(owner: str, value: float | None) -> None:
    """Refuse a coverage that is not between 0 and 1."""
    if value is not None and not 0 < value < 1:
        raise ValueError(f"{owner}: coverage must be None or a number above 0 and below 1, got {value!r}")


def checked_count(owner: str, name: str, value: int, least: int) -> None:
    """Refuse a count that is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{owner}: {name} must be an integer of at least {least}, got {value!r}")
