"""Candidate models that can be simulated, the choice of their points, and the role of an estimator.

A candidate is a sum of kernels and a linear mean (`Candidate`). Its points are chosen by pivoted
Cholesky (`pivots`). An `Estimator` fits a candidate to segments of the records. `find_runaway`
checks that the free run (the simulation) of a candidate stays in the range of the samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import brentq

from sysid.arrays import Array, Indices
from sysid.beside import n_cores, n_processes
from sysid.compiled import cached_njit
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import covariances
from sysid.gp.kernels import Kernel, Stationary
from sysid.gp.mean import LinearMean
from sysid.gp.online import MIN_NOISE_RATIO
from sysid.gp.training import Hyperparameters, Points
from sysid.model.mean_map import MeanMap, simulate_paths
from sysid.narx.lags import Narx, Target
from sysid.simulation.dynamics import MAX_OUTPUT_MAGNITUDE
from sysid.simulation.segments import Limits, Segment, feedback_of, stack_regressors

# The noise variance stays this factor above the smallest that double precision can hold beside the
# variance of the kernel [-].
NOISE_MARGIN = 10.0
# Smallest factor of a kernel's variance that is tried, relative to the largest [-].
MIN_VARIANCE_FACTOR = 1e-15
# Rows of covariances that are held in memory at a time.
COVARIANCE_BLOCK_ROWS = 4096

# A simulated output may leave its range in the samples by this fraction of the range, on each
# side [-].
RANGE_LEEWAY = 0.5
# `find_runaway` changes inputs and first outputs by this fraction of their deviations [-].
DISTURBANCE_FRACTION = 0.1
# `find_runaway` simulates at most this many samples with changed signals.
MAX_DISTURBED_SAMPLES = 5000
# Terms cancel, except for rounding, if their sum is at most this fraction of their magnitudes [-].
CANCELLATION_TOLERANCE = 1e-9
# Threads that simulate segments; more would only wait for the interpreter.
MAX_SIMULATION_THREADS = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Pivots:
    """Points chosen one by one: each has the largest variance given the points chosen before it."""

    chosen: Indices  # (N,) rows of the inputs that are the points
    columns: Array  # (N, n) G with K = G'G at the chosen points and K >= G'G everywhere
    residual: Array  # (n,) variance that the points do not explain

    def to_weights(self, v: Array) -> Array:
        """Return the weights w of the chosen points Z with ``k(x, Z) w = g(x)'v``.

        They solve ``C'w = v``, with the lower triangular factor C of ``k(Z, Z) = C C'``.
        """
        return np.asarray(dtrtrs(self.factor, v, lower=1, trans=1)[0])

    def features(self, cross: Array) -> Array:
        """Return the features g (m, N) of m inputs X, as rows.

        They are ``C^-1 cross'``, with the covariances ``cross = k(X, Z)`` (m, N).
        """
        return np.asarray(solve_triangular(self.factor, cross.T, lower=True).T)

    @cached_property
    def factor(self) -> Array:
        """Lower triangular factor C (N, N) of the covariances of the points, ``k(Z, Z) = C C'``."""
        return np.asfortranarray(self.columns[:, self.chosen].T)


def pivots(kernel: Kernel, inputs: Array, max_points: int, tolerance: float) -> Pivots:
    """Choose at most `max_points` rows of the inputs (n, q) as points, by pivoted Cholesky.

    The choice ends early once every other row has less than `tolerance` times the largest variance
    left. ``k(X, X)`` is never built: memory O(n N), time O(n N^2).
    """
    n = len(inputs)
    max_points = min(max_points, n)
    columns = np.empty((max_points, n))
    residual = kernel.diagonal(inputs)
    chosen = np.empty(max_points, dtype=np.int64)
    points = np.ascontiguousarray(inputs.T)
    min_variance = tolerance * float(residual.max())
    n_chosen = _choose(
        kernel.address, kernel.parameters(), points, min_variance, columns, residual, chosen
    )
    return Pivots(chosen[:n_chosen], columns[:n_chosen], residual)


@cached_njit(nogil=True)
def _choose(  # type: ignore[no-untyped-def]
    kernel, parameters, points, min_variance, columns, residual, chosen
):
    """Choose among points (q, n); fill columns (N, n), residual (n,) and chosen (N,).

    Return the number of chosen points, at most N.
    """
    p, n = points.shape
    x = np.empty(p)
    for m in range(len(chosen)):
        i = np.argmax(residual)
        if residual[i] <= min_variance:
            return m
        chosen[m] = i
        for d in range(p):
            x[d] = points[d, i]
        column = columns[m]
        covariances(kernel, parameters, points, n, x, column)
        for q in range(m):
            factor = columns[q, i]
            other = columns[q]
            for j in range(n):
                column[j] -= factor * other[j]
        scale = 1.0 / np.sqrt(residual[i])
        for j in range(n):
            column[j] *= scale
            residual[j] = max(residual[j] - column[j] * column[j], 0.0)
        for q in range(m):
            column[chosen[q]] = 0.0  # exactly, where rounding leaves a small number
        residual[i] = 0.0
    return len(chosen)


class CompleteStart(NamedTuple):
    """Everything that a model of a candidate starts from: the first fields of `sysid.Start`.

    Unlike in `sysid.Start`, no field may be None.
    """

    scaling: AffineMap
    mean: LinearMean
    hyperparameters: Hyperparameters
    points: Points
    limits: tuple[float, float]


def free_run(mean_map: MeanMap, bounds: tuple[float, float], segment: Segment) -> Array:
    """Return the simulated output (n,) of a segment; if it diverges, nan from there on."""
    longest = len(segment.past)
    path = np.zeros((1, longest + len(segment.values), 1))
    # nan where no feature needs the output
    path[0, :longest, 0] = np.where(np.isnan(segment.past), 0.0, segment.past)
    low, high = bounds
    exogenous = np.ascontiguousarray(segment.regressors)[None]
    n_done = np.zeros(1, dtype=np.int64)
    simulate_paths(mean_map, np.array([low]), np.array([high]), exogenous, path, n_done)
    output = path[0, longest:, 0]
    output[int(n_done[0]) :] = np.nan
    return output


@dataclass(frozen=True, eq=False)
class Candidate:
    """Model of a target that can be simulated, ``f(x) = m(x) + sum_j w_j k(z(x), z_j)``.

    Parameters
    ----------
    narx : Narx
    scaling : AffineMap
        z(x), from features to coordinates.
    mean : LinearMean
        m, of features in their own units.
    kernel : Stationary
    points : (N, q)
        Coordinates z_j.
    weights : (N,)
        w_j, unit of the target over that of the kernel.
    limits : (2,)
        Values at which the output saturates, in its unit; infinite for none.
    bounds : (2,)
        Smallest and largest output; outside of them a free run has diverged, output unit.
    """

    narx: Narx
    scaling: AffineMap
    mean: LinearMean
    kernel: Stationary
    points: Array
    weights: Array
    limits: Limits = (-np.inf, np.inf)
    bounds: tuple[float, float] = (-MAX_OUTPUT_MAGNITUDE, MAX_OUTPUT_MAGNITUDE)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields only: cached addresses of compiled code hold in one process only."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def mean_map(self) -> MeanMap:
        """Arrays for the compiled free run of the one output that is fed back."""
        columns, lags = feedback_of(self.narx)
        function = (self.mean, self.scaling, self.kernel, self.points, self.weights)
        limits = np.array(self.limits)[:, None]
        return MeanMap.of(
            [function],
            self.narx,
            columns,
            lags.max() - lags,
            np.zeros_like(lags),
            limits,
        )

    @cached_property
    def integrates(self) -> bool:
        """Whether a common shift of all lagged outputs leaves the predicted change as it is.

        The model of such a plant does not depend on the level of the output.
        """
        columns, _ = feedback_of(self.narx)
        slopes = np.asarray(self.mean.coefficients)[columns]
        shift_of_mean = float(slopes.sum())
        if self.narx.predict is Target.value:
            shift_of_mean -= 1.0
        if not abs(shift_of_mean) < CANCELLATION_TOLERANCE * np.abs(slopes).sum():
            return False
        rows = self.scaling.linear_part()[:, columns]
        shifts = np.abs(rows.sum(axis=1))
        magnitudes = np.abs(rows).sum(axis=1)
        return bool((shifts <= CANCELLATION_TOLERANCE * magnitudes).all())

    def simulate(self, segment: Segment, start: int = 0) -> Array:
        """Return the simulated output (n - start,) from sample `start` on.

        The simulation begins with the outputs measured before that sample. If it diverges, the
        output is nan from there on.
        """
        part = segment if start == 0 else segment.part(start, len(segment.values))
        return free_run(self.mean_map, self.bounds, part)

    def predict(self, regressors: Array) -> Array:
        """Return the mean (n,) of the target at regressors (n, p)."""
        z = self.scaling.transform(regressors)
        sums = [np.zeros(0)]
        for first in range(0, len(z), COVARIANCE_BLOCK_ROWS):
            block = z[first : first + COVARIANCE_BLOCK_ROWS]
            sums.append(self.kernel(block, self.points) @ self.weights)
        return np.asarray(self.mean(regressors) + np.concatenate(sums))

    def initial_model(
        self, noise_variance: float, latent_variance: float, regressors: Array
    ) -> CompleteStart:
        """Return the initial model of an online GP with the mean function of this candidate.

        The points get the targets ``t = (c K + noise_variance I) w / c``. With these targets the
        posterior mean is the function of this candidate, for every noise variance and every factor
        c of the kernel's variance. The factor is chosen such that the mean latent variance over
        regressors (n, p) is `latent_variance`, as far as double precision allows.

        Parameters
        ----------
        noise_variance, latent_variance : float
            Target unit squared; > 0.
        """
        factor = self.factor_for(noise_variance, latent_variance, regressors)
        kernel = replace(self.kernel, variance=factor * self.kernel.variance)
        weights = self.weights / factor
        targets = kernel(self.points, self.points) @ weights + noise_variance * weights
        hyperparameters = Hyperparameters(kernel, noise_variance, float("nan"))
        points = Points(np.array(self.points), targets)
        return CompleteStart(self.scaling, self.mean, hyperparameters, points, self.limits)

    def factor_for(self, noise_variance: float, latent_variance: float, regressors: Array) -> float:
        """Return the factor of the kernel's variance that gives a mean latent variance.

        With the factor, the latent variance averaged over regressors (n, p) is `latent_variance`,
        as far as double precision allows with this noise variance.
        """
        variance = self.mean_variance(regressors)
        largest = noise_variance / (NOISE_MARGIN * MIN_NOISE_RATIO * self.kernel.variance)
        return solve_increasing(
            lambda factor: variance(noise_variance, factor),
            latent_variance,
            MIN_VARIANCE_FACTOR * largest,
            largest,
        )

    def mean_variance(self, regressors: Array) -> Callable[[float, float], float]:
        """Return a function of the noise variance s and the factor c: the mean latent variance.

        It averages ``c k(x, x) - c^2 k(x, Z) (c K + s I)^-1 k(Z, x)`` over regressors (n, p), by
        the eigenvalues of ``K = Q diag(l) Q'``.
        """
        eigenvalues, eigenvectors = np.linalg.eigh(self.kernel(self.points, self.points))
        inputs = self.scaling.transform(regressors)
        squares = np.zeros(len(eigenvalues))
        for first in range(0, len(inputs), COVARIANCE_BLOCK_ROWS):
            block = inputs[first : first + COVARIANCE_BLOCK_ROWS]
            projections = self.kernel(block, self.points) @ eigenvectors
            squares += np.sum(projections**2, axis=0)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        mean_squares = squares / len(inputs)

        def average(noise_variance: float, factor: float) -> float:
            regularised = factor * eigenvalues + noise_variance
            explained = float(np.sum(factor**2 * mean_squares / regularised))
            return factor * self.kernel.variance - explained

        return average


def solve_increasing(
    function: Callable[[float], float],
    aim: float,
    low: float,
    high: float,
    *,
    tolerance: float = 1e-3,
) -> float:
    """Return the positive number from low to high at which an increasing function equals `aim`.

    Where the function does not reach `aim` between low and high, the nearer end is returned.

    Parameters
    ----------
    tolerance : float
        Accuracy of the logarithm of the number [-].

    Examples
    --------
    >>> round(solve_increasing(lambda x: x**2, 4.0, 0.1, 10.0, tolerance=1e-9), 6)
    2.0
    >>> solve_increasing(lambda x: x, 20.0, 0.1, 10.0)
    10.0
    """
    if function(high) <= aim:
        return high
    if function(low) >= aim:
        return low

    def excess(logarithm: float) -> float:
        return function(float(np.exp(logarithm))) - aim

    root = brentq(excess, np.log(low), np.log(high), xtol=tolerance)
    return float(np.exp(root))


def squared_error(candidate: Candidate, segments: Sequence[Segment]) -> float:
    """Return the mean squared error of the free run over the scored samples, output unit squared.

    It is infinite if the free run of a segment diverges, and 0 if no sample is scored.
    """
    parts = []
    for segment in segments:
        error = candidate.simulate(segment) - segment.values
        parts.append(segment.scored(error))
    errors = np.concatenate(parts)
    if not np.isfinite(errors).all():
        return np.inf
    return float(np.mean(errors**2)) if len(errors) else 0.0


def range_of(segments: Sequence[Segment]) -> tuple[float, float]:
    """Return the range that no simulation may leave, in the unit of the output.

    It is the range of the target output in the samples, widened on each side by the fraction
    `RANGE_LEEWAY` of that range.
    """
    values = np.concatenate([segment.values for segment in segments])
    reach = RANGE_LEEWAY * float(np.ptp(values))
    return float(values.min()) - reach, float(values.max()) + reach


def limits_of(candidate: Candidate, segments: Sequence[Segment]) -> tuple[float, float]:
    """Return the range that the free run of a candidate may not leave.

    It is that of `range_of`. For a candidate that integrates it is wider by the range of the
    samples on each side: if an integrator starts from another level, its whole path is shifted.
    """
    low, high = range_of(segments)
    if not candidate.integrates:
        return low, high
    range_of_samples = (high - low) / (1.0 + 2.0 * RANGE_LEEWAY)
    return low - range_of_samples, high + range_of_samples


def find_runaway(
    candidate: Candidate, segments: Sequence[Segment], *, within_inputs: bool = False
) -> str:
    """Return the name of the first simulation that leaves the range of `limits_of`, or ''.

    Every segment is simulated as it is, then the longest one under changed conditions
    (`_changed_conditions`). With `within_inputs` changed inputs keep within the limits of those of
    the samples.
    """
    guarded = replace(candidate, bounds=limits_of(candidate, segments))
    runs = {"the samples themselves": segments[0]}
    for number, segment in enumerate(segments[1:], start=1):
        runs[f"segment {number}"] = segment
    runs |= _changed_conditions(segments, within_inputs=within_inputs)
    for name, segment in runs.items():
        if not np.isfinite(guarded.simulate(segment)).all():
            return name
    return ""


def _changed_conditions(segments: Sequence[Segment], *, within_inputs: bool) -> dict[str, Segment]:
    """Return variants of the longest segment, cut to `MAX_DISTURBED_SAMPLES`, by name.

    - The segment is repeated.
    - The deviations of its inputs from their mean are larger.
    - A fraction of its own inputs at another time is added to its inputs.
    - It starts from other outputs: disturbed ones, and those measured at the lowest and at the
      highest output.
    """
    longest = max(segments, key=lambda segment: len(segment.values))
    beginning = longest.part(0, min(len(longest.values), MAX_DISTURBED_SAMPLES))
    past = beginning.past
    exogenous = beginning.regressors
    mean = exogenous.mean(axis=0)
    elsewhere = np.roll(exogenous, len(beginning.values) // 2, axis=0)
    larger = exogenous + DISTURBANCE_FRACTION * (exogenous - mean)
    disturbed = exogenous + DISTURBANCE_FRACTION * (elsewhere - mean)
    if within_inputs:
        regressors = stack_regressors(segments)
        low, high = regressors.min(axis=0), regressors.max(axis=0)
        larger = np.clip(larger, low, high)
        disturbed = np.clip(disturbed, low, high)

    values = np.concatenate([segment.values for segment in segments])
    spread = DISTURBANCE_FRACTION * float(np.std(values))
    noise = np.random.default_rng(0).standard_normal(len(past))
    after_lowest = int(np.argmin(longest.values)) + 1
    after_highest = int(np.argmax(longest.values)) + 1
    lowest_past = longest.part(after_lowest, after_lowest).past
    highest_past = longest.part(after_highest, after_highest).past
    twice = Segment(np.tile(exogenous, (2, 1)), np.tile(beginning.values, 2), past)
    return {
        "the samples twice in a row": twice,
        "larger inputs": beginning._replace(regressors=larger),
        "disturbed inputs": beginning._replace(regressors=disturbed),
        "disturbed first outputs": beginning._replace(past=past + spread * noise),
        "the lowest first outputs": beginning._replace(past=lowest_past),
        "the highest first outputs": beginning._replace(past=highest_past),
    }


class FitResult(NamedTuple):
    """Candidate that an estimator found."""

    candidate: Candidate
    latent_variance: float  # of the function, mean over the samples, target unit^2
    report: dict[str, Any]  # steps of the fit, as plain numbers, texts, lists and dicts


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]:
    """Return the results of a function for all items, in their order, computed by threads.

    Threads help only a function that spends most of its time in compiled code.
    """
    if n_processes() > 1:
        return _threads().map(function, items)
    return map(function, items)


@cache
def _threads() -> ThreadPoolExecutor:
    n_threads = min(n_cores(), MAX_SIMULATION_THREADS)
    return ThreadPoolExecutor(n_threads, thread_name_prefix="free_run")


class Refusal(UserError):
    """An estimator cannot fit these samples; the message says why. Another estimator may."""


class Estimator(ABC):
    """Method that chooses the kernel, its points and weights, and the mean for the free run."""

    @property
    def name(self) -> str:
        """Name in reports and log lines."""
        return type(self).__name__

    def quick(self) -> Self:
        """Return a cheaper version for the comparison of lags; by default the estimator itself.

        The cheaper version should rank lags like the full one.
        """
        return self

    @abstractmethod
    def fit(
        self,
        segments: Sequence[Segment],
        narx: Narx,
        budget: int,
        seed: int,
        limits: Limits,
    ) -> FitResult:
        """Fit a candidate of at most `budget` points to these segments only.

        Parameters
        ----------
        segments : sequence of Segment
        narx : Narx
        budget : int
            Largest number of points.
        seed : int
            Seed of all random numbers.
        limits : (2,)
            Values at which the target output saturates, in its unit; infinite for none.

        Raises
        ------
        Refusal
            The samples do not suit this estimator: there are too few of them, for example. Any
            other error is a bug and ends the training.
        """
