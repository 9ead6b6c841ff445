"""Noise and variance of a free run by what held-out samples say of its band; where an output
saturates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from sysid.arrays import Array
from sysid.simulation.propagation.propagation import summarise_draws
from sysid.simulation.segments import (
    Fold,
    Limits,
    Segment,
    n_samples,
    stack_regressors,
    truncate,
)
from sysid.simulation.validation import Z_95
from sysid.simulation_error.candidate import (
    Candidate,
    FitResult,
    pivots,
    solve_increasing,
)

LONGEST_RUN = 3  # samples in a row that equal the extreme value exactly
LEAST_SAMPLES = 5  # of them in all
# separate ones that neither begin nor end a segment: a system at rest is not saturated
LEAST_RUNS = 2

DRAWS = 16  # functions
COVERED = 0.95  # of the held-out samples shall be within the 95 % band
COVERAGE = 0.8  # part of them whose spread counts: those that run away set no band
SIMULATED = 2000  # most samples, of all folds
POINTS = 200  # most points that a drawn function has beside those of the candidate
ROWS = 1000  # about as many regressors of the fit, at least half, that they are chosen from
TOLERANCE = 1e-4  # of the kernel's variance: points that have less left add nothing
SHARES = (1e-9, 1e3)  # smallest and largest share of the variance of the estimator [-]
DIFFERENCES = 3  # highest order of the differences that tell the noise
LEAST_SHARE = 1e-12  # of the variance of the output, that the noise has at least [-]


def find_saturation(segments: Sequence[Segment]) -> tuple[Limits, tuple[int, int]]:
    """Limits of an output whose extreme value is repeated exactly, infinite for none, and the
    samples at each.

    An extreme counts as a limit if at least `LEAST_RUNS` runs inside the segments, the longest of
    at least `LONGEST_RUN` samples, equal it exactly, `LEAST_SAMPLES` samples in all. A noisy signal
    does not repeat itself; one that is clipped by its sensor or its actuator does.
    """
    values = np.concatenate([segment.values for segment in segments])
    low = float(values.min())
    high = float(values.max())
    n_low, n_high = (_count_saturated(segments, extreme) for extreme in (low, high))
    return (low if n_low else -np.inf, high if n_high else np.inf), (n_low, n_high)


def _count_saturated(segments: Sequence[Segment], extreme: float) -> int:
    """Count the samples at a value if it is a limit, else return 0."""
    total = 0
    lengths = []
    for segment in segments:
        at = np.concatenate([[False], segment.values == extreme, [False]])
        edges = np.flatnonzero(np.diff(at.astype(np.int8)))
        total += int(at.sum())
        inside = [
            (first, last)
            for first, last in edges.reshape(-1, 2)
            if first > 0 and last < len(segment.values)
        ]
        lengths += [last - first for first, last in inside]
    is_limit = len(lengths) >= LEAST_RUNS and max(lengths) >= LONGEST_RUN and total >= LEAST_SAMPLES
    return total if is_limit else 0


def calibrate(
    fit: FitResult,
    segments: Sequence[Segment],
    held_out: Sequence[FitResult],
    folds: Sequence[Fold],
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Variances with which the 95 % band of a simulation covers 95 % of the held-out samples.

    The noise is what changes from one residual of the free run to the next: an error of the
    function is slower. In a free run such an error is fed back, so that the spread of the simulated
    output is many times that of one step. For every fold functions are drawn from the posterior of
    the model without it, and simulated there. The variance of the function is multiplied by one
    number such that the band covers. The places where the function is known better, and where
    worse, stay the same.

    Parameters
    ----------
    fit : FitResult
        To all segments.
    segments : sequence of Segment
    held_out : sequence of FitResult
        Without each fold.
    folds : sequence of Fold
    generator : numpy.random.Generator

    Returns
    -------
    float
        Noise variance of an output in simulation, unit squared.
    float
        Latent variance of the function one step ahead, mean over the samples, unit squared.
    """
    noise = estimate_noise(fit.candidate, segments)
    bands = [
        _Band(*pair, noise, SIMULATED // len(folds), generator)
        for pair in zip(held_out, folds, strict=True)
    ]

    def cover(share: float) -> float:
        return float(
            np.average(
                [band.cover(share) for band in bands],
                weights=[band.n for band in bands],
            )
        )

    return noise, solve_increasing(cover, COVERED, *SHARES, tolerance=0.05) * fit.latent_variance


def estimate_noise(candidate: Candidate, segments: Sequence[Segment]) -> float:
    """Noise variance of the output by differences of successive residuals of the free run, output
    unit squared.

    ``min_d mean((D^d e)^2) / binom(2d, d)``, of differences of order d = 0 to `DIFFERENCES`, each
    the variance if e is white noise. An error that is slow adds little to the first ones (von
    Neumann), one that oscillates little to the third. At least `LEAST_SHARE` of the variance of the
    output.
    """
    residuals = [segment.values - candidate.simulate(segment) for segment in segments]
    values = np.concatenate([segment.values for segment in segments])
    found = []
    for order in range(DIFFERENCES + 1):
        steps = np.concatenate([np.diff(one, order) for one in residuals])
        steps = steps[np.isfinite(steps)]
        found += [np.mean(steps**2) / comb(2 * order, order)] if len(steps) else []
    return float(max(min(found, default=np.var(values)), LEAST_SHARE * np.var(values)))


class _Band:
    """Simulations of a fold by functions drawn from the posterior of a model without it."""

    def __init__(
        self,
        fit: FitResult,
        fold: Fold,
        noise: float,
        most: int,
        generator: np.random.Generator,
    ) -> None:
        self.fit, self.candidate, self.noise, self.parts = (
            fit,
            fit.candidate,
            noise,
            truncate(fold.parts, most),
        )
        self.n = n_samples(self.parts)
        rest = stack_regressors(fold.rest)
        self.rest = rest[:: -(-len(rest) // ROWS)]
        self.regressors = np.vstack([self.rest, stack_regressors(self.parts)])
        self.seed = int(generator.integers(2**32))

    def cover(self, share: float) -> float:
        """Part of the held-out samples within the 95 % band about the simulated mean, with this
        share of the variance.

        Where more than a few of the drawn functions run away, the band is infinite.
        """
        candidate = self.candidate
        factor = candidate.factor_for(self.noise, share * self.fit.latent_variance, self.rest)
        drawn = _draw_deviations(
            candidate,
            factor,
            self.noise,
            self.regressors,
            np.random.default_rng(self.seed),
        )
        points = np.vstack([candidate.points, drawn[0]])
        functions = [
            replace(candidate, points=points, weights=np.append(candidate.weights, w))
            for w in drawn[1]
        ]
        inside = []
        for part in self.parts:
            runs = np.array([function.simulate(part) for function in functions])
            variance = summarise_draws(runs.T[:, :, None], COVERAGE)[1][:, 0] + self.noise
            error = candidate.simulate(part) - part.values
            inside.append(np.abs(error) <= Z_95 * np.sqrt(variance))
        return float(np.mean(np.concatenate(inside)))


def _draw_deviations(
    candidate: Candidate,
    factor: float,
    noise_variance: float,
    regressors: Array,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Points (M, q), and weights (DRAWS, M) of functions drawn from the posterior, without its
    mean.

    The M points are spread over the regressors; they are more than the candidate has, as the
    function is also uncertain away from its own points. With the factor c of the kernel's variance,
    ``k(A, A) = C C'`` of these points A, the points Z of the candidate and ``g = C^-1 k(A, .)``::

        f(x) = g(x)' (c S)^1/2 e,   S = I - g(Z) (k(Z, Z) + noise / c I)^-1 g(Z)',   e ~ N(0, I)
    """
    kernel = candidate.kernel
    own = candidate.points
    inputs = candidate.scaling.transform(regressors)
    chosen = pivots(kernel, inputs, POINTS, TOLERANCE)
    points = inputs[chosen.chosen]
    features = chosen.features(kernel(own, points))
    known = cho_factor(kernel(own, own) + noise_variance / factor * np.eye(len(own)), lower=True)
    values, vectors = np.linalg.eigh(np.eye(len(points)) - features.T @ cho_solve(known, features))
    normal = generator.standard_normal((DRAWS, len(points)))
    deviations = (normal * np.sqrt(factor * np.maximum(values, 0.0))) @ vectors.T
    return points, chosen.to_weights(deviations.T).T
