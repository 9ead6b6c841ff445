"""The role of a propagation of uncertainty, and its simplest rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

import numpy as np
from scipy.special import ndtri

from sysid.arrays import Array, check_counts
from sysid.errors import UserError
from sysid.simulation.dynamics import Dynamics, Moments, run

MOST_STEPS = 1_000_000  # of all draws to a horizon; beyond, fewer are drawn


class Propagation(ABC):
    """Rule that feeds predictions back over many samples, together with their uncertainty.

    A setting `process_noise` says what the noise of the model is. False: noise of the measurement
    only, which the dynamics never see (output error); the forecast of a measurement adds it once,
    at the end. True: it enters the dynamics, ``y[k] = F(...) + e[k]`` with e[k] fed back (equation
    error), as the one-step model assumes; the variance of a sample then holds the noise of all
    earlier samples, and that of its own is still added at the end.
    """

    @property
    def is_calibrated(self) -> bool:
        """Whether the bands of a model (`sysid.Model.bands`) were measured with it, beyond the
        first step.
        """
        return False

    @abstractmethod
    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        """Mean and variance (b, T, m) of T samples from b starts.

        At the step where a path leaves the bounds of `Dynamics.bounds`, the mean is the value it
        left with and the variance is nan; afterwards both are nan.

        Parameters
        ----------
        dynamics : Dynamics
        past : (b, L, m)
            Last outputs before the first predicted sample, newest last; taken as certain.
        exogenous : (b, T, p)
            Regressors of all steps, zero at the features that are lagged outputs.
        generator : numpy.random.Generator
            Of the draws, if there are any.
        """

    def without_feedback(self) -> Propagation:
        """Return the same rule for models that feed no output back.

        Every sample is then one step, known without a draw.
        """
        return MeanOnly()

    @property
    def n_draws(self) -> int | None:
        """Trajectories per start; None if nothing is drawn."""
        return None

    def sparing(self, n_steps: int, fewest: int, times: int = 1) -> Propagation:
        """Return the same rule with fewer draws if all take over `times * MOST_STEPS` steps.

        At least `fewest` draws are left.
        """
        return self

    @abstractmethod
    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """How many numbers one start keeps in memory."""


class Paths:
    """P trajectories from each of b starts.

    Parameters
    ----------
    dynamics, past, exogenous
        As for `Propagation.propagate`.
    n_paths : int
        P.
    coverage : float or None
        Part of the paths whose spread counts (`of_draws`). A start is over when more than the
        others have left the bounds; without it, when one has.

    Attributes
    ----------
    moments : Moments
        Of all steps noted so far.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        n_paths: int,
        coverage: float | None,
    ) -> None:
        n_starts, self.n_steps, _ = exogenous.shape
        self.dynamics = dynamics
        self.exogenous = exogenous
        self.shape = (n_starts, n_paths, dynamics.n_outputs)
        self.values = np.empty(
            (n_starts, n_paths, dynamics.n_lags + self.n_steps, dynamics.n_outputs)
        )
        self.values[:, :, : dynamics.n_lags] = past[:, None]
        self.bounds = dynamics.bounds(past)
        self.coverage = coverage
        self._lost = np.zeros((n_starts, n_paths), dtype=bool)
        self._has_left = np.zeros(n_starts, dtype=bool)
        self.moments = Moments(*np.full((2, n_starts, self.n_steps, dynamics.n_outputs), np.nan))

    def regressors(self, t: int) -> Array:
        """Regressors (b P, p) of step t."""
        dynamics = self.dynamics
        last = self.values[:, :, t : t + dynamics.n_lags].reshape(
            -1, dynamics.n_lags, dynamics.n_outputs
        )
        return dynamics.regressors(last, np.repeat(self.exogenous[:, t], self.shape[1], axis=0))

    def to_value(self, t: int, targets: Array) -> Array:
        """Turn the targets (b P, m) of step t into outputs (b, P, m)."""
        previous = self.values[:, :, self.dynamics.n_lags + t - 1]
        return self.dynamics.to_value(targets.reshape(self.shape), previous)

    def push(self, t: int, values: Array) -> None:
        """Feed the outputs (b, P, m) of step t back; a start of which too many paths have left the
        bounds is over.
        """
        inside = np.all(self.bounds.contain(values), axis=2)
        self._lost |= ~inside
        allowed = 0.0 if self.coverage is None else 1.0 - self.coverage
        leaves = (self._lost.mean(axis=1) > allowed + 1e-12) & ~self._has_left
        for b in np.flatnonzero(leaves):
            self.moments.mean[b, t] = values[b, np.argmin(inside[b])]
        self._has_left |= leaves
        held = self.values[:, :, self.dynamics.n_lags + t - 1]
        self.values[:, :, self.dynamics.n_lags + t] = np.where(inside[:, :, None], values, held)

    def of_draws(self, values: Array) -> tuple[Array, Array]:
        """Centre and variance (b, m) of outputs (b, P, m); paths that have left count as infinitely
        far away.
        """
        return of_draws(np.where(self._lost[:, :, None], np.nan, values), self.coverage)

    def of_conditionals(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Centre and variance (b, m) of a mixture of distributions with these moments (b, P, m)."""
        centre, spread = self.of_draws(mean)
        return centre, (
            variance.mean(axis=1) if self.coverage is None else np.median(variance, axis=1)
        ) + spread

    def note(self, t: int, mean: Array, variance: Array) -> None:
        """Keep the moments (b, m) of step t of all starts that are not over; call it after
        `push`.
        """
        goes_on = ~self._has_left
        self.moments.mean[goes_on, t], self.moments.variance[goes_on, t] = (
            mean[goes_on],
            variance[goes_on],
        )


def of_draws(values: Array, coverage: float | None) -> tuple[Array, Array]:
    """Centre and variance (b, m) over draws (b, P, m), nan where a draw is lost.

    With a coverage c: the median, and the variance of the normal distribution about it whose
    central band of probability c holds the part c of the draws; a few draws that go far away, or
    are lost, do not set it. None: mean and unbiased variance (that of a single draw is 0).
    """
    n = values.shape[1]
    if coverage is None:
        return values.mean(axis=1), values.var(axis=1, ddof=1) if n > 1 else np.zeros(
            values[:, 0].shape
        )
    known = np.where(np.isnan(values), np.inf, values)
    centre = np.quantile(known, 0.5, axis=1, method="lower")
    distance = np.where(
        np.isnan(values),
        np.inf,
        np.abs(known - np.where(np.isfinite(centre), centre, 0.0)[:, None]),
    )
    half = np.quantile(distance, coverage, axis=1, method="higher")
    return centre, np.asarray((half / ndtri(0.5 + 0.5 * coverage)) ** 2)


@dataclass(frozen=True)
class Trajectories(Propagation):
    """Propagation by drawn trajectories."""

    n_samples: int = 200  # trajectories per start
    _: KW_ONLY
    process_noise: bool = False  # whether the noise of the model is fed back
    coverage: float | None = (
        0.95  # of the band that the variance stands for; None: the variance of all draws
    )

    @property
    def n_draws(self) -> int:
        return self.n_samples

    def sparing(self, n_steps: int, fewest: int, times: int = 1) -> Self:
        return replace(
            self,
            n_samples=min(self.n_samples, max(fewest, times * MOST_STEPS // n_steps)),
        )

    def __post_init__(self) -> None:
        check_counts(self, n_samples=2)
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise UserError(
                f"{type(self).__name__}: coverage must be None or a number above 0 and below 1, got {self.coverage!r}"
            )


@dataclass(frozen=True)
class MeanOnly(Propagation):
    """Feed the mean back as if it had been measured; the cheapest.

    The variance of a sample is that of the model at the regressor of the mean path: what one step
    adds, without what the earlier steps have added. It is far too small for a free run.
    """

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        if dynamics.mean_map is None:
            return _interpreted(dynamics, past, exogenous)
        n_starts, n_steps, _ = exogenous.shape
        n_lags = dynamics.n_lags
        n_outputs = dynamics.n_outputs
        path = np.full((n_starts, n_lags + n_steps, n_outputs), np.nan)
        path[:, :n_lags] = past
        done = np.empty(n_starts, dtype=np.int64)
        run(dynamics.mean_map, *dynamics.bounds(past), exogenous, path, done)
        x = exogenous.copy()
        for j, row, column in zip(dynamics.feedback, dynamics.row, dynamics.column, strict=True):
            x[:, :, j] = path[:, row : row + n_steps, column]
        inside = np.arange(n_steps) < done[:, None]
        variance = np.full((n_starts, n_steps, n_outputs), np.nan)
        variance[inside] = dynamics.targets(x[inside]).variance
        return Moments(path[:, n_lags:], variance)

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        return (dynamics.n_lags + n_steps) * (dynamics.n_outputs + dynamics.n_features)


def _interpreted(dynamics: Dynamics, past: Array, exogenous: Array) -> Moments:
    paths = Paths(dynamics, past, exogenous, 1, None)
    for t in range(paths.n_steps):
        targets = dynamics.targets(paths.regressors(t))
        values = paths.to_value(t, targets.mean)
        paths.push(t, values)
        paths.note(t, values[:, 0], targets.variance)
    return paths.moments


@dataclass(frozen=True)
class AboutPath(Propagation):
    """Predict the fed-back mean, with the spread of another propagation about it.

    The prediction depends neither on the propagation nor on its draws. With the mean m and the
    variance v of the propagation, the variance about the path p is ``v + (m - p)^2``, then
    calibrated (`sysid.Model.calibrated`); of a single step every propagation says the same. Where
    the propagation diverges and the path does not, it is infinite.
    """

    spread: Propagation

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        path = MeanOnly().propagate(dynamics, past, exogenous, generator)
        n_steps = exogenous.shape[1]
        variance = path.variance
        if n_steps > 1 and not isinstance(self.spread, MeanOnly):
            found = self.spread.propagate(dynamics, past, exogenous, generator)
            variance = np.where(np.isnan(path.variance), np.nan, variance_about(path.mean, *found))
        as_measured = self.spread.is_calibrated or not dynamics.feeds_back
        return Moments(
            path.mean,
            dynamics.calibrated(variance, n_steps=n_steps if as_measured else 1),
        )

    def without_feedback(self) -> Propagation:
        return AboutPath(MeanOnly())

    @property
    def n_draws(self) -> int | None:
        return self.spread.n_draws

    def sparing(self, n_steps: int, fewest: int, times: int = 1) -> Propagation:
        return AboutPath(self.spread.sparing(n_steps, fewest, times))

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        return self.spread.size(dynamics, n_steps)


def variance_about(path: Array, mean: Array, variance: Array) -> Array:
    """``E (y - p)^2 = v + (m - p)^2`` about a path p; infinite where the mean m or variance v is
    nan and p is not.
    """
    about = variance + (mean - path) ** 2
    return np.where(np.isnan(about) & np.isfinite(path), np.inf, about)
