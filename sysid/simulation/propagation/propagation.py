"""The role of a propagation of uncertainty, and its simplest rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from math import ceil, floor
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sysid.arrays import Array, check_counts
from sysid.compiled import cached_njit
from sysid.errors import UserError
from sysid.model.mean_map import simulate_paths
from sysid.simulation.dynamics import Dynamics, Moments

# Simulated steps of all drawn trajectories together, above which fewer trajectories are drawn.
MAX_DRAWN_STEPS = 1_000_000

# Distance from the range of an output in the data [ranges] beyond which a drawn trajectory runs
# away. A plant whose outputs kept to this range is not expected there.
RUNAWAY_EXCURSION_IN_RANGES = 0.75

# Largest fraction of the trajectories from a start that may run away and be left out [-]. If more
# do, the plant itself may leave the range.
MAX_RUNAWAY_FRACTION = 0.5

# Rounding error of the fraction of trajectories that have left the bounds [-].
FRACTION_ROUNDING = 1e-12


class Propagation(ABC):
    """Rule that feeds predictions back over many samples, together with their uncertainty.

    The setting `process_noise` of most rules decides where the noise of the model enters:

    - False: the noise is measurement noise, which the dynamics never see (output error). It is
      added once, at the end, when a measurement is forecast.
    - True: the noise enters the dynamics, ``y[k] = F(...) + e[k]`` with e[k] fed back (equation
      error), as the one-step model assumes. The variance of a sample then contains the noise of all
      earlier samples. Its own noise is still added at the end.
    """

    @property
    def is_calibrated(self) -> bool:
        """Whether `sysid.Model.bands` are measured with this rule beyond one step."""
        return False

    def measured(self) -> Propagation | None:
        """Return the rule without process noise, if the bands are measured with that one.

        It is None if they are measured with this rule, or with another kind of rule.
        """
        return None

    @abstractmethod
    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        """Return the mean and variance (b, T, m) of T samples from b starts.

        At the step where a path leaves the bounds of `Dynamics.bounds`, the mean is the value that
        lies outside and the variance is nan. At all later steps both are nan.

        Parameters
        ----------
        dynamics : Dynamics
        past : (b, L, m)
            Last outputs before the first predicted sample, newest last. They count as certain.
        exogenous : (b, T, p)
            Regressors of all steps, zero at the features that are lagged outputs.
        generator : numpy.random.Generator
            Random numbers for the draws of a rule that draws.
        """

    def without_feedback(self) -> Propagation:
        """Return the rule that replaces this one for models that feed no output back.

        Every sample is then predicted in one step, whose moments are known without draws.
        """
        return MeanOnly()

    @property
    def n_draws(self) -> int | None:
        """Number of trajectories per start; None if nothing is drawn."""
        return None

    def sparing(self, n_steps: int, fewest: int, times: int = 1) -> Propagation:
        """Return the same rule, with fewer draws if `n_steps` steps of every draw are too many.

        All draws together may take `times * MAX_DRAWN_STEPS` steps, but at least `fewest` draws
        remain. Rules that draw nothing are returned unchanged.
        """
        return self

    @abstractmethod
    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """Return how many numbers one start keeps in memory."""


def fed_back_noise_variance(dynamics: Dynamics, process_noise: bool) -> Array:
    """Return the noise variances (m,) that enter the dynamics: zeros without process noise."""
    if process_noise:
        return dynamics.noise_variance
    return np.zeros(dynamics.n_outputs)


def undefined_moments(n_starts: int, n_steps: int, n_outputs: int) -> Moments:
    """Return mean and variance (b, T, m) that are nan everywhere, to be filled step by step."""
    shape = (n_starts, n_steps, n_outputs)
    return Moments(np.full(shape, np.nan), np.full(shape, np.nan))


class Paths:
    """P trajectories from each of b starts.

    Parameters
    ----------
    dynamics, past, exogenous
        As for `Propagation.propagate`.
    n_paths : int
        P.
    coverage : float or None
        Fraction of the paths whose spread gives the variance (`summarise_draws`). A start has
        diverged when fewer paths than this fraction are still within the bounds. None: a start has
        diverged when the first of its paths has left the bounds.

    Attributes
    ----------
    moments : Moments
        Mean and variance (b, T, m) of all steps set so far (`set_moments`).
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
        n_lags = dynamics.n_lags
        n_outputs = dynamics.n_outputs
        self.dynamics = dynamics
        self.exogenous = exogenous
        self.shape = (n_starts, n_paths, n_outputs)
        self.values = np.empty((n_starts, n_paths, n_lags + self.n_steps, n_outputs))
        self.values[:, :, :n_lags] = past[:, None]
        self.bounds = dynamics.bounds(past)
        self.coverage = coverage
        self._path_has_left = np.zeros((n_starts, n_paths), dtype=bool)
        self._start_has_diverged = np.zeros(n_starts, dtype=bool)
        self.moments = undefined_moments(n_starts, self.n_steps, n_outputs)

    def regressors(self, t: int) -> Array:
        """Return the regressors (b P, p) of step t."""
        dynamics = self.dynamics
        n_starts, n_paths, _ = self.shape
        regressors = np.empty((n_starts * n_paths, dynamics.n_features))
        _gather_regressors(
            self.values,
            self.exogenous,
            t,
            dynamics.feedback,
            dynamics.row,
            dynamics.column,
            regressors,
        )
        return regressors

    def to_value(self, t: int, targets: Array) -> Array:
        """Turn the targets (b P, m) of step t into outputs (b, P, m)."""
        previous = self.values[:, :, self.dynamics.n_lags + t - 1]
        return self.dynamics.to_value(targets.reshape(self.shape), previous)

    def feed_back(self, t: int, values: Array) -> None:
        """Feed the outputs (b, P, m) of step t back.

        A path that leaves the bounds keeps its last output from then on. A start from which too
        many paths have left has diverged: the mean of this step becomes the output of the first
        path outside.
        """
        first_outside = np.full(self.shape[0], -1)
        now = self.dynamics.n_lags + t
        low, high = self.bounds
        _feed_back(self.values, values, now, low, high, self._path_has_left, first_outside)
        if np.all(first_outside < 0):
            return
        allowed = 0.0 if self.coverage is None else 1.0 - self.coverage
        too_many_have_left = self._path_has_left.mean(axis=1) > allowed + FRACTION_ROUNDING
        diverges_now = too_many_have_left & ~self._start_has_diverged
        for b in np.flatnonzero(diverges_now):
            self.moments.mean[b, t] = values[b, first_outside[b]]
        self._start_has_diverged |= diverges_now

    def take_steps(self, first: int, values: Array, noise: Array) -> None:
        """Feed outputs (K, b, P, m) of K steps back with their noise, and set their moments.

        The first of the steps is `first`. The moments are those of the outputs without noise.
        """
        fed_back = values + noise
        n_steps, n_starts, n_paths, n_outputs = values.shape
        if self._path_has_left.any() or not self.bounds.contain(fed_back).all():
            for step in range(n_steps):
                self.feed_back(first + step, fed_back[step])
                self.set_moments(first + step, *self.summarise_draws(values[step]))
            return
        now = self.dynamics.n_lags + first
        self.values[:, :, now : now + n_steps] = np.moveaxis(fed_back, 0, 2)
        moments = summarise_draws(values.reshape(-1, n_paths, n_outputs), self.coverage)
        of_steps = slice(first, first + n_steps)
        for stored, found in zip(self.moments, moments, strict=True):
            stored[:, of_steps] = found.reshape(n_steps, n_starts, n_outputs).swapaxes(0, 1)

    def summarise_draws(self, values: Array) -> tuple[Array, Array]:
        """Return centre and variance (b, m) of outputs (b, P, m).

        Paths that have left the bounds count as infinitely far away.
        """
        known = np.where(self._path_has_left[:, :, None], np.nan, values)
        return summarise_draws(known, self.coverage)

    def summarise_conditionals(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return centre and variance (b, m) of the mixture of P distributions per start.

        `mean` and `variance` (b, P, m) are the moments of these distributions.
        """
        centre, variance_of_means = self.summarise_draws(mean)
        if self.coverage is None:
            return centre, variance.mean(axis=1) + variance_of_means
        return centre, np.median(variance, axis=1) + variance_of_means

    def set_moments(self, t: int, mean: Array, variance: Array) -> None:
        """Set the moments (b, m) of step t for all starts that have not diverged.

        Call it after `feed_back`.
        """
        goes_on = ~self._start_has_diverged
        self.moments.mean[goes_on, t] = mean[goes_on]
        self.moments.variance[goes_on, t] = variance[goes_on]

    def replace_moments(self, t: int, mean: Array, variance: Array) -> None:
        """Replace the moments (b, m) of step t that have been set."""
        is_set = ~np.isnan(self.moments.variance[:, t])
        self.moments.mean[:, t] = np.where(is_set, mean, self.moments.mean[:, t])
        self.moments.variance[:, t] = np.where(is_set, variance, self.moments.variance[:, t])

    def leave_out_runaways(self, outputs: Array) -> None:
        """Set the moments of all steps again, without paths that run away while the others do not.

        A path runs away if an output is farther than `RUNAWAY_EXCURSION_IN_RANGES` beyond the range
        that the model has learned (`Dynamics.learned_range`), and as far from the median of all
        paths. The outputs of the plant kept to this range, so the function that this path follows
        contradicts the data as a whole, though none of their samples. If more than
        `MAX_RUNAWAY_FRACTION` of the paths from a start run away, or their median does, all of them
        count.

        Parameters
        ----------
        outputs : (T, b, P, m)
            Outputs of all steps without noise.
        """
        lowest, highest = self.dynamics.learned_range()
        far = RUNAWAY_EXCURSION_IN_RANGES * (highest - lowest)
        low = lowest - far
        high = highest + far
        are_inside = (outputs > low) & (outputs < high)
        if are_inside.all():
            return
        for b in np.flatnonzero(~are_inside.all(axis=(0, 2, 3))):
            of_start = outputs[:, b]
            median = np.median(of_start, axis=1, keepdims=True)
            if not np.all((median > low) & (median < high)):
                continue
            distance = np.abs(of_start - median)
            stays = (are_inside[:, b] | (distance < far)).all(axis=(0, 2))
            if not stays.all() and 1.0 - stays.mean() <= MAX_RUNAWAY_FRACTION:
                moments = summarise_draws(of_start[:, stays], self.coverage)
                for stored, found in zip(self.moments, moments, strict=True):
                    stored[b] = found


@cached_njit(nogil=True)
def _gather_regressors(  # type: ignore[no-untyped-def]
    values, exogenous, t, feedback, row, column, regressors
) -> None:
    """Write the regressors (b P, p) of step t, with the last outputs of values (b, P, L + T, m).

    The other arguments are `exogenous` (b, T, p) of `Paths` and those (q,) of `Dynamics`.
    """
    n_starts, n_paths = values.shape[:2]
    for b in range(n_starts):
        for s in range(n_paths):
            i = b * n_paths + s
            for d in range(regressors.shape[1]):
                regressors[i, d] = exogenous[b, t, d]
            for j in range(feedback.size):
                regressors[i, feedback[j]] = values[b, s, t + row[j], column[j]]


@cached_njit(nogil=True)
def _feed_back(  # type: ignore[no-untyped-def]
    values, outputs, now, low, high, path_has_left, first_outside
) -> None:
    """Write outputs (b, P, m) between the bounds (m,) to values (b, P, L + T, m) at `now`.

    A path with an output outside keeps its last values, and is marked in `path_has_left` (b, P).
    `first_outside` (b,) becomes the number of the first path outside.
    """
    n_starts, n_paths, n_outputs = outputs.shape
    for b in range(n_starts):
        for s in range(n_paths):
            is_inside = True
            for j in range(n_outputs):
                is_inside &= low[j] < outputs[b, s, j] < high[j]
            if not is_inside:
                path_has_left[b, s] = True
                if first_outside[b] < 0:
                    first_outside[b] = s
            for j in range(n_outputs):
                kept = values[b, s, now - 1, j]
                values[b, s, now, j] = outputs[b, s, j] if is_inside else kept


def summarise_draws(values: Array, coverage: float | None) -> tuple[Array, Array]:
    """Return centre and variance (b, m) over draws (b, P, m), which are nan where a path is lost.

    With a coverage c, the centre is the median. The variance is that of the normal distribution
    about it whose central band of probability c contains the fraction c of the draws: a few draws
    that are lost or far away do not determine it.

    Without a coverage, centre and variance are the mean and the unbiased variance of the draws (0
    for a single draw).
    """
    if coverage is None:
        mean = values.mean(axis=1)
        if values.shape[1] == 1:
            return mean, np.zeros(mean.shape)
        return mean, values.var(axis=1, ddof=1)
    last = values.shape[1] - 1
    is_lost = np.isnan(values)
    known = np.where(is_lost, np.inf, values)
    centre = _kth_smallest(known, floor(0.5 * last))
    finite_centre = np.where(np.isfinite(centre), centre, 0.0)
    distance = np.where(is_lost, np.inf, np.abs(known - finite_centre[:, None]))
    half_width = _kth_smallest(distance, ceil(coverage * last))
    half_width_in_stds = ndtri(0.5 + 0.5 * coverage)
    return centre, np.asarray((half_width / half_width_in_stds) ** 2)


def _kth_smallest(values: Array, k: int) -> Array:
    """Return the value of rank k (b, m), from 0 on, of values (b, P, m) over their second axis.

    It is the quantile ``k / (P - 1)``. This function is called at every step of a simulation, and
    `numpy.quantile` takes several times as long for so few values.
    """
    return np.partition(values, k, axis=1)[:, k]


@dataclass(frozen=True)
class Trajectories(Propagation):
    """Propagation by drawn trajectories."""

    n_samples: int = 200  # trajectories per start
    _: KW_ONLY
    process_noise: bool = False  # whether the noise of the model is fed back
    #: probability of the band that sets the variance; None: the variance of all draws
    coverage: float | None = 0.95

    @property
    def n_draws(self) -> int:
        return self.n_samples

    def sparing(self, n_steps: int, fewest: int, times: int = 1) -> Self:
        affordable = times * MAX_DRAWN_STEPS // n_steps
        return replace(self, n_samples=min(self.n_samples, max(fewest, affordable)))

    def __post_init__(self) -> None:
        check_counts(self, n_samples=2)
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise UserError(
                f"{type(self).__name__}: coverage must be None or a number above 0 and below 1, "
                f"got {self.coverage!r}"
            )


@dataclass(frozen=True)
class MeanOnly(Propagation):
    """Feed the mean back as if it had been measured: the cheapest rule.

    The variance of a sample is the variance of the model at the regressor of the mean path. This is
    what one step adds. What the earlier steps have added is missing, so that the variance is far
    too small for a free run.
    """

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        if dynamics.mean_map is None:
            return _follow_mean_interpreted(dynamics, past, exogenous)
        path, n_inside = follow_mean(dynamics, past, exogenous)
        n_starts, n_steps, _ = exogenous.shape
        regressors = dynamics.regressors_along(path, exogenous)
        inside = np.arange(n_steps) < n_inside[:, None]
        variance = np.full((n_starts, n_steps, dynamics.n_outputs), np.nan)
        variance[inside] = dynamics.targets(regressors[inside]).variance
        return Moments(path[:, dynamics.n_lags :], variance)

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        return (dynamics.n_lags + n_steps) * (dynamics.n_outputs + dynamics.n_features)


def follow_mean(
    dynamics: Dynamics, past: Array, exogenous: Array
) -> tuple[Array, NDArray[np.int64]]:
    """Feed the mean back from the last outputs (b, L, m) over T steps.

    Returns
    -------
    (b, L + T, m)
        The last outputs, and the mean of the steps, nan after a path has left the bounds.
    (b,)
        Steps before each path leaves the bounds.
    """
    n_starts, n_steps, _ = exogenous.shape
    n_lags = dynamics.n_lags
    path = np.full((n_starts, n_lags + n_steps, dynamics.n_outputs), np.nan)
    path[:, :n_lags] = past
    if dynamics.mean_map is None:
        mean = _follow_mean_interpreted(dynamics, past, exogenous)
        path[:, n_lags:] = mean.mean
        is_known = np.isfinite(mean.variance).all(axis=2)
        return path, is_known.sum(axis=1)
    n_inside = np.empty(n_starts, dtype=np.int64)
    low, high = dynamics.bounds(past)
    simulate_paths(dynamics.mean_map, low, high, exogenous, path, n_inside)
    return path, n_inside


def _follow_mean_interpreted(dynamics: Dynamics, past: Array, exogenous: Array) -> Moments:
    """Follow the mean path in Python, for mean functions that the compiled loop does not know."""
    paths = Paths(dynamics, past, exogenous, n_paths=1, coverage=None)
    for t in range(paths.n_steps):
        targets = dynamics.targets(paths.regressors(t))
        values = paths.to_value(t, targets.mean)
        paths.feed_back(t, values)
        paths.set_moments(t, values[:, 0], targets.variance)
    return paths.moments


@dataclass(frozen=True)
class AboutPath(Propagation):
    """Predict the fed-back mean, with the spread of another propagation about it.

    The predicted mean depends neither on the propagation nor on its draws. With the mean m and the
    variance v of the propagation, the variance about the path p of the fed-back mean is::

        v + (m - p)^2

    which is then calibrated (`sysid.Model.calibrated`) if the bands of the model were measured with
    this propagation. If they were measured with the same one without process noise, the larger of
    both variances is taken: process noise widens calibrated bands and never narrows them. The
    variance is infinite where the propagation diverges and the path does not. For a single step all
    propagations have the same variance, so that `spread` is not run.
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
        same_draws = deepcopy(generator)
        variance = path.variance
        if n_steps > 1 and not isinstance(self.spread, MeanOnly):
            mean, spread = self.spread.propagate(dynamics, past, exogenous, generator)
            about = variance_about(path.mean, mean, spread)
            variance = np.where(np.isnan(path.variance), np.nan, about)
        factors_apply = self.spread.is_calibrated or not dynamics.feeds_back
        n_calibrated = n_steps if factors_apply else 1
        variance = dynamics.calibrated(variance, n_steps=n_calibrated)
        measured = self.spread.measured()
        has_bands = any(model.bands for model in dynamics.models)
        if measured is not None and not factors_apply and has_bands and n_steps > 1:
            of_bands = AboutPath(measured).propagate(dynamics, past, exogenous, same_draws)
            variance = np.maximum(variance, of_bands.variance)
        return Moments(path.mean, variance)

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
    """Return ``E (y - p)^2 = v + (m - p)^2`` about a path p.

    It is infinite where the mean m or the variance v is nan and p is finite.
    """
    about = variance + (mean - path) ** 2
    return np.where(np.isnan(about) & np.isfinite(path), np.inf, about)
