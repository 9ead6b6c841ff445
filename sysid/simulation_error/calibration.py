"""Saturation of an output, and calibration of noise and variance of a free run.

`find_saturation` finds limits at which an output saturates. `calibrate` chooses the variance of the
function such that the bands of a simulation cover held-out samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, comb

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

# An output saturates only if it equals its extreme value exactly in enough samples. The following
# three numbers are needed. (A system at rest is not saturated.)
# Smallest number of saturated samples in a row.
MIN_LONGEST_RUN = 3
# Smallest number of saturated samples in all.
MIN_SATURATED_SAMPLES = 5
# Smallest number of separate runs of them that neither begin nor end a segment.
MIN_SATURATED_RUNS = 2

# Functions that are drawn from each posterior.
N_DRAWN_FUNCTIONS = 16
# Fraction of the held-out samples that the 95 % band shall cover [-].
FREE_RUN_COVERAGE = 0.95
# Fraction of the drawn functions, the central ones, whose spread is used, so that the few that run
# away do not determine the band [-].
CENTRAL_FRACTION = 0.8
# Samples that are simulated, of all folds together, at most.
MAX_CALIBRATION_SAMPLES = 2000
# Points of a drawn function beside those of the candidate, at most.
MAX_DRAWN_POINTS = 200
# These points are chosen among about this many regressors of the fit (at least half as many).
N_FITTED_REGRESSORS = 1000
# No more points are chosen once the largest variance that is left is below this fraction of the
# kernel's variance [-].
MIN_DRAWN_POINT_VARIANCE = 1e-4
# Smallest and largest factor of the estimator's variance that is tried [-].
TRIED_VARIANCE_FACTORS = (1e-9, 1e3)
# Highest order of the differences that estimate the noise.
MAX_DIFFERENCE_ORDER = 3
# Smallest noise variance, as a fraction of the variance of the output [-].
MIN_NOISE_FRACTION = 1e-12


def find_saturation(segments: Sequence[Segment]) -> tuple[Limits, tuple[int, int]]:
    """Find the limits of an output that repeats an extreme value exactly.

    An extreme value is a limit if at least `MIN_SATURATED_SAMPLES` samples equal it exactly, in at
    least `MIN_SATURATED_RUNS` runs inside the segments, the longest of at least `MIN_LONGEST_RUN`
    samples. A noisy signal does not repeat itself; one that is clipped by its sensor or its
    actuator does.

    Returns
    -------
    tuple of (float, float)
        Lower and upper limit; infinite where the output does not saturate.
    tuple of (int, int)
        Number of samples at each limit.
    """
    values = np.concatenate([segment.values for segment in segments])
    low = float(values.min())
    high = float(values.max())
    n_low = _count_saturated(segments, low)
    n_high = _count_saturated(segments, high)
    lower_limit = low if n_low else -np.inf
    upper_limit = high if n_high else np.inf
    return (lower_limit, upper_limit), (n_low, n_high)


def _count_saturated(segments: Sequence[Segment], extreme: float) -> int:
    """Return the number of samples at an extreme value if it is a limit, else 0."""
    n_saturated = 0
    run_lengths = []
    for segment in segments:
        is_saturated = np.concatenate([[False], segment.values == extreme, [False]])
        n_saturated += int(is_saturated.sum())
        edges = np.flatnonzero(np.diff(is_saturated.astype(np.int8)))
        for first, last in edges.reshape(-1, 2):
            if first > 0 and last < len(segment.values):
                run_lengths.append(last - first)
    is_limit = (
        n_saturated >= MIN_SATURATED_SAMPLES
        and len(run_lengths) >= MIN_SATURATED_RUNS
        and max(run_lengths) >= MIN_LONGEST_RUN
    )
    return n_saturated if is_limit else 0


def calibrate(
    fit: FitResult,
    segments: Sequence[Segment],
    held_out: Sequence[FitResult],
    folds: Sequence[Fold],
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Return variances with which the 95 % band of a simulation covers 95 % of held-out samples.

    The noise is estimated by the changes from one residual of the free run to the next, since an
    error of the function is slower. In a free run an error of the function is fed back, so that the
    spread of the simulated output is many times that of one step. Therefore functions are drawn for
    every fold from the posterior of the model without it, and simulated on the fold. The variance
    of the function is multiplied by one number such that the band covers the fold. The ratio of the
    variances at different inputs does not change.

    Parameters
    ----------
    fit : FitResult
        Fit to all segments.
    segments : sequence of Segment
    held_out : sequence of FitResult
        Fits without each fold.
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
    max_samples = MAX_CALIBRATION_SAMPLES // len(folds)
    bands = []
    for fit_without_fold, fold in zip(held_out, folds, strict=True):
        bands.append(_Band(fit_without_fold, fold, noise, max_samples, generator))
    sizes = [band.n for band in bands]

    def mean_coverage(factor: float) -> float:
        """Return the coverage of the 95 % band with this factor of the variance."""
        coverages = [band.coverage(factor) for band in bands]
        return float(np.average(coverages, weights=sizes))

    lowest, highest = TRIED_VARIANCE_FACTORS
    factor = solve_increasing(mean_coverage, FREE_RUN_COVERAGE, lowest, highest, tolerance=0.05)
    return noise, factor * fit.latent_variance


def estimate_noise(candidate: Candidate, segments: Sequence[Segment]) -> float:
    """Return the noise variance of the output by differences of successive residuals e.

    The residuals are those of the free run. The variance is, in output unit squared::

        min_d mean((D^d e)^2) / binom(2d, d)

    over differences of order d = 0 to `MAX_DIFFERENCE_ORDER`. Each term is the variance if e is
    white noise. A slow error adds little to the first order (von Neumann), an oscillating one
    little to the third. The result is at least `MIN_NOISE_FRACTION` of the variance of the output.
    """
    residuals = []
    for segment in segments:
        residual = segment.values - candidate.simulate(segment)
        residual[~segment.measured] = np.nan
        residuals.append(residual)
    values = np.concatenate([segment.values for segment in segments])
    estimates = []
    for order in range(MAX_DIFFERENCE_ORDER + 1):
        differences = np.concatenate([np.diff(residual, order) for residual in residuals])
        differences = differences[np.isfinite(differences)]
        if len(differences):
            estimates.append(np.mean(differences**2) / comb(2 * order, order))
    smallest = min(estimates, default=np.var(values))
    return float(max(smallest, MIN_NOISE_FRACTION * np.var(values)))


class _Band:
    """Simulations of a fold by functions drawn from the posterior of a model without it."""

    def __init__(
        self,
        fit: FitResult,
        fold: Fold,
        noise: float,
        max_samples: int,
        generator: np.random.Generator,
    ) -> None:
        self.fit = fit
        self.candidate = fit.candidate
        self.noise = noise
        self.parts = truncate(fold.parts, max_samples)
        self.n = n_samples(self.parts)
        rest = stack_regressors(fold.rest)
        step = ceil(len(rest) / N_FITTED_REGRESSORS)
        self.rest = rest[::step]
        self.regressors = np.vstack([self.rest, stack_regressors(self.parts)])
        self.seed = int(generator.integers(2**32))

    def coverage(self, factor_of_fit: float) -> float:
        """Return the fraction of held-out samples within the 95 % band about the simulated mean.

        The function has `factor_of_fit` times the variance of the fit. Where more than a few of the
        drawn functions run away, the band is infinite.
        """
        candidate = self.candidate
        latent_variance = factor_of_fit * self.fit.latent_variance
        factor = candidate.factor_for(self.noise, latent_variance, self.rest)
        generator = np.random.default_rng(self.seed)
        drawn_points, drawn_weights = _draw_deviations(
            candidate, factor, self.noise, self.regressors, generator
        )
        points = np.vstack([candidate.points, drawn_points])
        functions = []
        for weights in drawn_weights:
            all_weights = np.append(candidate.weights, weights)
            functions.append(replace(candidate, points=points, weights=all_weights))
        is_inside = []
        for part in self.parts:
            runs = np.array([function.simulate(part) for function in functions])
            _, spread = summarise_draws(runs.T[:, :, None], CENTRAL_FRACTION)
            variance = spread[:, 0] + self.noise
            error = candidate.simulate(part) - part.values
            is_inside.append(part.scored(np.abs(error) <= Z_95 * np.sqrt(variance)))
        return float(np.mean(np.concatenate(is_inside)))


def _draw_deviations(
    candidate: Candidate,
    factor: float,
    noise_variance: float,
    regressors: Array,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Draw functions from the posterior without its mean; return their points and weights.

    The M points are spread over the regressors. They are more than the candidate has, as the
    function is also uncertain away from its own points. With the factor c of the kernel's variance,
    ``k(A, A) = C C'`` of these points A, the points Z of the candidate and ``g = C^-1 k(A, .)``::

        f(x) = g(x)' (c S)^1/2 e,   S = I - g(Z) (k(Z, Z) + noise / c I)^-1 g(Z)',   e ~ N(0, I)

    Returns
    -------
    (M, q)
        Points.
    (N_DRAWN_FUNCTIONS, M)
        Weights of each function.
    """
    kernel = candidate.kernel
    candidate_points = candidate.points
    inputs = candidate.scaling.transform(regressors)
    chosen = pivots(kernel, inputs, MAX_DRAWN_POINTS, MIN_DRAWN_POINT_VARIANCE)
    points = inputs[chosen.chosen]
    features = chosen.features(kernel(candidate_points, points))
    gram = kernel(candidate_points, candidate_points)
    noise = noise_variance / factor * np.eye(len(candidate_points))
    factorised = cho_factor(gram + noise, lower=True)
    explained = features.T @ cho_solve(factorised, features)
    eigenvalues, eigenvectors = np.linalg.eigh(np.eye(len(points)) - explained)
    stds = np.sqrt(factor * np.maximum(eigenvalues, 0.0))
    normal = generator.standard_normal((N_DRAWN_FUNCTIONS, len(points)))
    deviations = (normal * stds) @ eigenvectors.T
    return points, chosen.to_weights(deviations.T).T
