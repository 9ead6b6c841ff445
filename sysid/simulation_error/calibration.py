"""What held-out samples say of the bands, for every horizon; where an output saturates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtri

from sysid.arrays import Array
from sysid.model.model import Model
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.forecast import FEWEST
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly, of_draws
from sysid.simulation.validation import Z_95
from sysid.simulation_error.candidate import Candidate, FitResult, pivots, solve_increasing
from sysid.simulation_error.segments import Fold, Limits, Segment, n_samples, stack_regressors, truncate

LONGEST_RUN = 3  # samples in a row that equal the extreme value exactly
LEAST_SAMPLES = 5  # of them in all
LEAST_RUNS = 2  # separate ones that neither begin nor end a segment: a system at rest is not saturated

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


HORIZONS = (3, 10, 30, 100, 300)  # samples, that bands are measured at, beside one step
REACH = 1.75  # times and part of a horizon: steps that count for it
SHORT, LONG = (10, 16), 400  # simulations of each part that is held out, and their steps; steps of longer ones
Bands: TypeAlias = tuple[tuple[int, float], ...]  # horizons and factors, as of `sysid.Model.bands`
LEVELS = (0.5, 0.95)  # of the bands that shall cover
MOST_INFLATED = 100.0  # largest standardised error that counts


def measure_bands(
    model: Model,
    held_out: Sequence[tuple[Model, Sequence[Segment]]],
    seed: int,
    added: ArrayLike = 0.0,
    *,
    horizons: Sequence[int] = HORIZONS,
    n_long: int = 2,
) -> Bands:
    """How much wider than a model says bands must be, by horizon, for samples that it has not learned.

    Parts are predicted one step ahead, and simulated from several places on, by models that have not learned them; the
    model itself says how sure it is there, in simulations by the spread of functions drawn from its posterior
    (`sysid.Pathwise`). Of the standardised errors z of a horizon and those about it, q_p their quantile of the distance
    from zero and n_p that of a standard normal::

        c = sqrt(q_50 / n_50  q_95 / n_95)

    so that neither the 50 % nor the 95 % band is far off where z is not normal (conformal prediction takes one of the
    quantiles, Lei et al. 2018). Models of several outputs, and without lags of any, are judged one step ahead.

    Parameters
    ----------
    model : Model
    held_out : sequence of (Model, sequence of Segment)
        Models, and the parts that each of them has not learned.
    seed : int
        Of the draws.
    added : (n,), optional
        Variances that one step has beside those of the model, at the samples of all parts, one behind the other.
    horizons : sequence of int
        Beside one step, in samples.
    n_long : int
        Simulations of `LONG` steps of each part.

    Returns
    -------
    tuple of (int, float)
        Horizons [samples] and factors c, as of `sysid.Model.bands`.
    """
    narx, noise, runs = model.narx, model.gp.noise_variance, []
    errors, variances = [], []
    generator, spread = np.random.default_rng([seed]), AboutPath(Pathwise(FEWEST))
    for judge, parts in held_out:
        for part in parts:
            mean, variance = judge.predict(part.regressors).mean, model.predict(part.regressors).variance
            predicted = np.clip(narx.predict.to_value(mean, part.previous), *judge.limits)
            errors.append(part.values - predicted)
            variances.append(variance)
            if not horizons or narx.output_names != (narx.target,) or not narx.lags[narx.target]:
                continue
            for most, longest in (SHORT, (n_long, LONG)):
                n_steps = min(len(part.values), longest)
                starts = np.unique(np.linspace(0, len(part.values) - n_steps, most).astype(int))
                pieces = [part.part(start, start + n_steps) for start in starts.tolist()]
                past = np.nan_to_num([piece.past for piece in pieces])[:, :, None]  # where no feature needs it
                exogenous = np.array([piece.regressors for piece in pieces])
                path = MeanOnly().propagate(Dynamics(judge), past, exogenous, generator).mean[:, :, 0]
                about = spread.propagate(Dynamics(model), past, exogenous, generator).variance[:, :, 0]
                runs.append((np.array([piece.values for piece in pieces]) - path) / np.sqrt(about + noise))
    bands = [(1, _widen(np.concatenate(errors) / np.sqrt(np.add(np.concatenate(variances), added) + noise)))]
    for horizon in horizons:
        steps = slice(round(horizon / REACH) - 1, int(horizon * REACH) if horizon < HORIZONS[-1] else None)
        z = np.concatenate([np.zeros(0), *(run[:, steps].ravel() for run in runs)])
        bands += [(horizon, _widen(z))] if len(z) else []
    return tuple(bands)


def between(held_out: Bands, learned: Bands) -> Bands:
    """Mean of the factors of held-out samples and of those that are known, by horizon.

    What is estimated without a part, a fit of a cross-validation or the parameters of physics, is estimated from fewer
    samples: its errors are larger than those of what knows all of them, which are larger than the errors that this
    makes where it knows the samples. (Efron, Estimating the error rate of a prediction rule, 1983, weighs the two for
    the same reason.)
    """
    return tuple((horizon, 0.5 * (c + d)) for (horizon, c), (_, d) in zip(held_out, learned, strict=True))


def typical(parts: Sequence[Bands]) -> Bands:
    """Median of the factors of several parts, by horizon, as far as all of them have it.

    One part where a fit to fewer samples failed, or where the record holds what is found nowhere else, does not set
    the bands of a model that knows all samples.
    """
    several = [dict(bands) for bands in parts]
    common = sorted(set.intersection(*map(set, several)))
    return tuple((horizon, float(np.median([one[horizon] for one in several]))) for horizon in common)


def _widen(z: Array) -> float:
    """Factor of the standard deviation with which errors are within bands as often as they shall be."""
    distance = np.minimum(np.nan_to_num(np.abs(z), nan=MOST_INFLATED), MOST_INFLATED)
    ratios = [np.quantile(distance, level) / ndtri(0.5 + 0.5 * level) for level in LEVELS]
    return float(np.sqrt(np.prod(np.maximum(ratios, 1.0 / MOST_INFLATED))))


def find_saturation(segments: Sequence[Segment]) -> tuple[Limits, tuple[int, int]]:
    """Limits of an output whose extreme value is repeated exactly, infinite for none, and the samples at each.

    An extreme counts as a limit if at least `LEAST_RUNS` runs inside the segments, the longest of at least
    `LONGEST_RUN` samples, equal it exactly, `LEAST_SAMPLES` samples in all. A noisy signal does not repeat itself; one
    that is clipped by its sensor or its actuator does.
    """
    values = np.concatenate([segment.values for segment in segments])
    low, high = float(values.min()), float(values.max())
    n_low, n_high = (_count_saturated(segments, extreme) for extreme in (low, high))
    return (low if n_low else -np.inf, high if n_high else np.inf), (n_low, n_high)


def _count_saturated(segments: Sequence[Segment], extreme: float) -> int:
    """Samples at a value if it is a limit, else 0."""
    total, lengths = 0, []
    for segment in segments:
        at = np.concatenate([[False], segment.values == extreme, [False]])
        edges = np.flatnonzero(np.diff(at.astype(np.int8)))
        total += int(at.sum())
        inside = [(first, last) for first, last in edges.reshape(-1, 2) if first > 0 and last < len(segment.values)]
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

    The noise is what changes from one residual of the free run to the next: an error of the function is slower. In a
    free run such an error is fed back, so that the spread of the simulated output is many times that of one step. For
    every fold functions are drawn from the posterior of the model without it, and simulated there. The variance of the
    function is multiplied by one number such that the band covers. The places where the function is known better, and
    where worse, stay the same.

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
    bands = [_Band(*pair, noise, SIMULATED // len(folds), generator) for pair in zip(held_out, folds, strict=True)]

    def cover(share: float) -> float:
        return float(np.average([band.cover(share) for band in bands], weights=[band.n for band in bands]))

    return noise, solve_increasing(cover, COVERED, *SHARES, tolerance=0.05) * fit.latent_variance


def estimate_noise(candidate: Candidate, segments: Sequence[Segment]) -> float:
    """Noise variance of the output by differences of successive residuals of the free run, output unit squared.

    ``min_d mean((D^d e)^2) / binom(2d, d)``, of differences of order d = 0 to `DIFFERENCES`, each the variance if e is
    white noise. An error that is slow adds little to the first ones (von Neumann), one that oscillates little to the
    third. At least `LEAST_SHARE` of the variance of the output.
    """
    residuals = [segment.values - candidate.simulate(segment) for segment in segments]
    values, found = np.concatenate([segment.values for segment in segments]), []
    for order in range(DIFFERENCES + 1):
        steps = np.concatenate([np.diff(one, order) for one in residuals])
        steps = steps[np.isfinite(steps)]
        found += [np.mean(steps**2) / comb(2 * order, order)] if len(steps) else []
    return float(max(min(found, default=np.var(values)), LEAST_SHARE * np.var(values)))


class _Band:
    """Simulations of a fold by functions drawn from the posterior of a model without it."""

    def __init__(self, fit: FitResult, fold: Fold, noise: float, most: int, generator: np.random.Generator) -> None:
        self.fit, self.candidate, self.noise, self.parts = fit, fit.candidate, noise, truncate(fold.parts, most)
        self.n = n_samples(self.parts)
        rest = stack_regressors(fold.rest)
        self.rest = rest[:: -(-len(rest) // ROWS)]
        self.regressors = np.vstack([self.rest, stack_regressors(self.parts)])
        self.seed = int(generator.integers(2**32))

    def cover(self, share: float) -> float:
        """Part of the held-out samples within the 95 % band about the simulated mean, with this share of the variance.

        Where more than a few of the drawn functions run away, the band is infinite.
        """
        candidate = self.candidate
        factor = candidate.factor_for(self.noise, share * self.fit.latent_variance, self.rest)
        drawn = _draw_deviations(candidate, factor, self.noise, self.regressors, np.random.default_rng(self.seed))
        points = np.vstack([candidate.points, drawn[0]])
        functions = [replace(candidate, points=points, weights=np.append(candidate.weights, w)) for w in drawn[1]]
        inside = []
        for part in self.parts:
            runs = np.array([function.simulate(part) for function in functions])
            variance = of_draws(runs.T[:, :, None], COVERAGE)[1][:, 0] + self.noise
            error = candidate.simulate(part) - part.values
            inside.append(np.abs(error) <= Z_95 * np.sqrt(variance))
        return float(np.mean(np.concatenate(inside)))


def _draw_deviations(
    candidate: Candidate, factor: float, noise_variance: float, regressors: Array, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Points (M, q), and weights (DRAWS, M) of functions drawn from the posterior, without its mean.

    The M points are spread over the regressors; they are more than the candidate has, as the function is also
    uncertain away from its own points. With the factor c of the kernel's variance, ``k(A, A) = C C'`` of these points
    A, the points Z of the candidate and ``g = C^-1 k(A, .)``::

        f(x) = g(x)' (c S)^1/2 e,   S = I - g(Z) (k(Z, Z) + noise / c I)^-1 g(Z)',   e ~ N(0, I)
    """
    kernel, own = candidate.kernel, candidate.points
    inputs = candidate.scaling.transform(regressors)
    chosen = pivots(kernel, inputs, POINTS, TOLERANCE)
    points = inputs[chosen.chosen]
    features = chosen.features(kernel(own, points))
    known = cho_factor(kernel(own, own) + noise_variance / factor * np.eye(len(own)), lower=True)
    values, vectors = np.linalg.eigh(np.eye(len(points)) - features.T @ cho_solve(known, features))
    normal = generator.standard_normal((DRAWS, len(points)))
    deviations = (normal * np.sqrt(factor * np.maximum(values, 0.0))) @ vectors.T
    return points, chosen.to_weights(deviations.T).T
