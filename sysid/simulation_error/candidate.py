"""Candidates for the model: sums of kernels that can be simulated, their points, and the role of an
estimator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numba import njit
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import brentq

from sysid.arrays import Array, Indices
from sysid.beside import n_cores, n_processes
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import covariances
from sysid.gp.kernels import Kernel, Stationary
from sysid.gp.mean import LinearMean
from sysid.gp.online import LEAST_NOISE
from sysid.gp.training import Hyperparameters, Points
from sysid.narx.lags import Narx, Target
from sysid.simulation.dynamics import MAX_OUTPUT_MAGNITUDE, MeanMap, simulate_paths
from sysid.simulation.segments import Limits, Segment, feedback_of

MARGIN = 10.0  # of the smallest noise that double precision can hold beside the variance [-]
BLOCK = 4096  # rows of covariances that are held at a time
SMALLEST_FACTOR = 1e-15  # of the largest factor of a kernel's variance [-]

# of its range in the samples: so far outside of it an output may go in a simulation [-]
LEEWAY = 0.5
DISTURBED = 0.1  # of inputs and first outputs, by which they are changed
SAME = 1e-9  # relative sum of terms that cancel but for rounding
MOST_THREADS = 4  # more only wait for the interpreter
LONGEST = 5000  # samples of a simulation with disturbed signals

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Pivots:
    """Points chosen one by one, each the one of largest variance given those before."""

    chosen: Indices  # (N,) rows
    columns: Array  # (N, n) G with K = G'G at the chosen points and K >= G'G everywhere
    residual: Array  # (n,) variance that they do not explain

    def to_weights(self, v: Array) -> Array:
        """Weights w of the chosen points with ``k(x, Z) w = g(x)'v``: ``C'w = v``, C lower, ``k(Z,
        Z) = C C'``.
        """
        return np.asarray(dtrtrs(self.factor, v, lower=1, trans=1)[0])

    def features(self, cross: Array) -> Array:
        """Features g (m, N) of rows with the covariances ``cross = k(X, Z)`` (m, N): ``C^-1
        cross'``.
        """
        return np.asarray(solve_triangular(self.factor, cross.T, lower=True).T)

    @cached_property
    def factor(self) -> Array:
        """C (N, N), lower."""
        return np.asfortranarray(self.columns[:, self.chosen].T)


def pivots(kernel: Kernel, inputs: Array, most: int, tolerance: float) -> Pivots:
    """At most so many rows of inputs (n, q); fewer if all others have less than `tolerance` of the
    variance left.

    ``k(X, X)`` is never built: memory O(n N), time O(n N^2).
    """
    n = len(inputs)
    most = min(most, len(inputs))
    columns = np.empty((most, n))
    residual = kernel.diagonal(inputs)
    chosen = np.empty(most, dtype=np.int64)
    points = np.ascontiguousarray(inputs.T)
    least = tolerance * float(residual.max())
    found = _choose(kernel.address, kernel.parameters(), points, least, columns, residual, chosen)
    return Pivots(chosen[:found], columns[:found], residual)


@njit(cache=True, nogil=True)
def _choose(kernel, parameters, points, least, columns, residual, chosen):  # type: ignore[no-untyped-def]
    """Fill columns (most, n), residual (n,) and chosen (most,) with points (q, n); returns how many
    were chosen.
    """
    p, n = points.shape
    x = np.empty(p)
    for m in range(len(chosen)):
        i = np.argmax(residual)
        if residual[i] <= least:
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
            column[chosen[q]] = 0.0  # rounding leaves more than that
        residual[i] = 0.0
    return len(chosen)


class CompleteStart(NamedTuple):
    """What a model of a candidate starts from: the first fields of `sysid.Start`, of which none is
    left open.
    """

    scaling: AffineMap
    mean: LinearMean
    hyperparameters: Hyperparameters
    points: Points
    limits: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Function ``f(x) = m(x) + sum_j w_j k(z(x), z_j)`` of a target, which can be simulated.

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
        Between which the output saturates, its unit; infinite for none.
    bounds : (2,)
        Outside of which a free run has diverged, output unit.
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
        """Return what another process receives: no address of compiled code."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

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

    def with_function(self, mean: LinearMean, weights: Array) -> Self:
        """Return the same points with another mean and other weights.

        This is cheap, since a search asks for many.
        """
        other = replace(self, mean=mean, weights=weights)
        slopes = np.array([mean.coefficients])
        intercept = np.array([mean.intercept])
        other.__dict__["mean_map"] = self.mean_map._replace(
            weights=np.array(weights)[None], slopes=slopes, intercept=intercept
        )
        return other

    @cached_property
    def integrates(self) -> bool:
        """Whether a shift of all outputs changes no rate: the candidate does not know where it
        is.
        """
        columns, _ = feedback_of(self.narx)
        of_outputs = self.scaling.linear_part()[:, columns]
        slopes = np.asarray(self.mean.coefficients)[columns]
        total = float(slopes.sum()) - (self.narx.predict is Target.value)
        return abs(total) < SAME * np.abs(slopes).sum() and bool(
            (np.abs(of_outputs.sum(axis=1)) <= SAME * np.abs(of_outputs).sum(axis=1)).all()
        )

    def simulate(self, segment: Segment, start: int = 0) -> Array:
        """Output (n - start,) from the sample `start` on, from the outputs measured before it; nan
        once diverged.
        """
        part = segment.part(start, len(segment.values))
        longest = len(part.past)
        path = np.zeros((1, longest + len(part.values), 1))
        path[0, :longest, 0] = np.nan_to_num(part.past)  # where no feature needs it
        done, (low, high) = np.zeros(1, dtype=np.int64), self.bounds
        exogenous = np.ascontiguousarray(part.regressors)[None]
        simulate_paths(self.mean_map, np.array([low]), np.array([high]), exogenous, path, done)
        output = path[0, longest:, 0]
        output[int(done[0]) :] = np.nan
        return output

    def predict(self, regressors: Array) -> Array:
        """Mean (n,) of the target at regressors (n, p)."""
        z = self.scaling.transform(regressors)
        blocks = [
            self.kernel(z[i : i + BLOCK], self.points) @ self.weights
            for i in range(0, len(z), BLOCK)
        ]
        return np.asarray(self.mean(regressors) + np.concatenate([np.zeros(0), *blocks]))

    def initial_model(
        self, noise_variance: float, latent_variance: float, regressors: Array
    ) -> CompleteStart:
        """Return the initial model of an online GP with the mean function of this candidate.

        The points get the targets ``t = (c K + noise_variance I) w / c``: whatever the noise and
        the factor c of the kernel's variance, their posterior mean is the function of this
        candidate. The factor is the one with which the mean latent variance over regressors (n, p)
        is `latent_variance`, as far as double precision allows.

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
        """Factor of the kernel's variance with which the mean latent variance over regressors (n,
        p) is this one.

        As far as double precision allows with this noise.
        """
        variance = self.mean_variance(regressors)
        most = noise_variance / (MARGIN * LEAST_NOISE * self.kernel.variance)
        return solve_increasing(
            lambda c: variance(noise_variance, c),
            latent_variance,
            SMALLEST_FACTOR * most,
            most,
        )

    def mean_variance(self, regressors: Array) -> Callable[[float, float], float]:
        """Mean latent variance over regressors (n, p) as a function of noise variance and factor c.

        ``c k(x, x) - c^2 k(x, Z) (c K + s I)^-1 k(Z, x)`` by the eigenvalues of K = Q diag(l) Q'.
        """
        values, vectors = np.linalg.eigh(self.kernel(self.points, self.points))
        inputs = self.scaling.transform(regressors)
        seen = np.zeros(len(values))
        for i in range(0, len(inputs), BLOCK):
            seen += np.sum((self.kernel(inputs[i : i + BLOCK], self.points) @ vectors) ** 2, axis=0)
        values = np.maximum(values, 0.0)
        seen = seen / len(inputs)

        def average(noise_variance: float, factor: float) -> float:
            explained = float(np.sum(factor**2 * seen / (factor * values + noise_variance)))
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
    """Positive number from low to high at which an increasing function is `aim`; the nearer end
    where it is not.

    Parameters
    ----------
    tolerance : float
        Of the logarithm of the number.

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
    root = brentq(
        lambda x: function(float(np.exp(x))) - aim,
        np.log(low),
        np.log(high),
        xtol=tolerance,
    )
    return float(np.exp(root))


def squared_error(candidate: Candidate, segments: Sequence[Segment]) -> float:
    """Mean squared error of the free run over the scored samples, output unit squared; infinite if
    it diverges.
    """
    parts = [
        (candidate.simulate(segment) - segment.values)[segment.transient :] for segment in segments
    ]
    errors = np.concatenate(parts)
    return float(np.mean(errors**2)) if np.isfinite(errors).all() else np.inf


def range_of(segments: Sequence[Segment]) -> tuple[float, float]:
    """Range of the target output in the samples, and its `LEEWAY` beyond: no simulation may leave
    it.
    """
    values = np.concatenate([segment.values for segment in segments])
    reach = LEEWAY * float(np.ptp(values))
    return float(values.min()) - reach, float(values.max()) + reach


def limits_of(candidate: Candidate, segments: Sequence[Segment]) -> tuple[float, float]:
    """Range that a free run may not leave: that of the samples, once more on both sides if the
    candidate integrates.

    Of an integrator that starts elsewhere the whole path is elsewhere.
    """
    low, high = range_of(segments)
    reach = (high - low) / (1.0 + 2.0 * LEEWAY) if candidate.integrates else 0.0
    return low - reach, high + reach


def find_runaway(candidate: Candidate, segments: Sequence[Segment]) -> str:
    """Name a simulation that leaves the range of the samples and its leeway; empty if none does.

    Every segment is simulated as it is. The longest, cut to `LONGEST` samples, is also simulated
    twice in a row, with larger inputs, with a part of the inputs of another time added, and from
    other outputs before it: disturbed ones, and those where the output was lowest and highest.
    """
    guarded = replace(candidate, bounds=limits_of(candidate, segments))
    generator = np.random.default_rng(0)
    whole = max(segments, key=lambda segment: len(segment.values))
    first = whole.part(0, min(len(whole.values), LONGEST))
    n = len(first.values)
    values = np.concatenate([segment.values for segment in segments])
    exogenous = first.regressors
    mean = exogenous.mean(axis=0)
    larger = exogenous + DISTURBED * (exogenous - mean)
    disturbed = exogenous + DISTURBED * (np.roll(exogenous, n // 2, axis=0) - mean)
    past = first.past
    spread = DISTURBED * float(np.std(values))
    low = int(np.argmin(whole.values))
    high = int(np.argmax(whole.values))
    runs = {"the samples themselves": segments[0]} | {
        f"segment {i}": one for i, one in enumerate(segments) if i
    }
    runs |= {
        "the samples twice in a row": Segment(
            np.tile(exogenous, (2, 1)), np.tile(first.values, 2), past
        ),
        "larger inputs": first._replace(regressors=larger),
        "disturbed inputs": first._replace(regressors=disturbed),
        "disturbed first outputs": first._replace(
            past=past + spread * generator.standard_normal(len(past))
        ),
        "the lowest first outputs": first._replace(past=whole.part(low + 1, low + 1).past),
        "the highest first outputs": first._replace(past=whole.part(high + 1, high + 1).past),
    }
    return next(
        (name for name, run in runs.items() if not np.isfinite(guarded.simulate(run)).all()),
        "",
    )


class FitResult(NamedTuple):
    """Candidate that an estimator found."""

    candidate: Candidate
    latent_variance: float  # of the function, mean over the samples, target unit^2
    report: dict[str, Any]  # steps of the fit, as plain numbers, texts, lists and dicts


def in_threads(function: Callable[[Segment], T], segments: Sequence[Segment]) -> Iterable[T]:
    """Results for all segments, in their order, of a function that needs no interpreter for most of
    its time.
    """
    return _threads().map(function, segments) if n_processes() > 1 else map(function, segments)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(n_cores(), MOST_THREADS), thread_name_prefix="free_run")


class Refusal(UserError):
    """An estimator states that it does not serve these samples, and why; another one may."""


class Estimator(ABC):
    """Method that chooses the kernel, its points and weights, and the mean for the free run."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return type(self).__name__

    def quick(self) -> Self:
        """Return a cheaper version that ranks lags as this one does, as far as it can be told."""
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
        """Find a candidate of at most `budget` points from these segments only.

        Parameters
        ----------
        segments : sequence of Segment
        narx : Narx
        budget : int
            Largest number of points.
        seed : int
            Of all random numbers.
        limits : (2,)
            Between which the target output saturates, its unit; infinite for none.

        Raises
        ------
        Refusal
            The samples do not suit this estimator: too few of them, for example. Any other error is
            a mistake, and ends the training.
        """
