"""Time of the reduction scores: one point as the paper does it, and all points at once from the cached factor."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from experiments.benchmarks.left_out import PUBLISHED_SCORES, LeftOut, left_out
from experiments.benchmarks.material import N_FEATURES, Samples, online_gp
from experiments.benchmarks.timing import Job, interleave
from sysid import (
    Criterion,
    LogPredictiveDensity,
    MarginalLogLikelihood,
    MeanRelevance,
    OnlineGP,
    PredictiveEntropy,
    PriorEntropy,
)
from sysid.gp.dictionary import scores

#: the five criteria of section 3.2
CRITERIA: dict[str, Criterion] = {
    "prior_entropy": PriorEntropy(),
    "predictive_entropy": PredictiveEntropy(),
    "mean_relevance": MeanRelevance(),
    "marginal_log_likelihood": MarginalLogLikelihood(),
    "log_predictive_density": LogPredictiveDensity(),
}
#: one point by a factorisation of the set without it; all N points in NumPy; all N points as `OnlineGP` does it
PUBLISHED, NUMPY, COMPILED = WAYS = ("published_one", "numpy_all", "compiled_all")
NOISE_VARIANCE = 1e-2  # signal variance
ITERATIONS = 20  # of the fast ways in one run, up to 100 points


class Scored(NamedTuple):
    """A full dictionary and a candidate for it, with the arrays that the ways work on."""

    gp: OnlineGP
    points: Samples  # the N stored ones, oldest first
    candidate: Samples  # one

    def published(self, i: int) -> LeftOut:
        """Stored point i and the set without it, with the candidate."""
        x = np.vstack([self.points.inputs, self.candidate.inputs])
        y = np.concatenate([self.points.targets, self.candidate.targets])
        covariance = self.gp.kernel(x, x) + self.gp.noise_variance * np.eye(len(y))
        return left_out(np.asfortranarray(covariance), y, self.gp.noise_variance, i)

    def numpy_scores(self, criterion: Criterion) -> Callable[[], np.ndarray]:
        """Call that scores all points with NumPy and LAPACK, from U, a and q; the formula itself is compiled.

        With ``v = Ky^-1 k``, ``s = k(x, x) + noise_variance - k'v`` and the candidate's error e::

            q + v^2/s,   a - v e/s
        """
        arrays, n = self.gp.state(), self.gp.n_points
        lower = np.asfortranarray(arrays["cholesky"][:n, :n].T)
        a, q = arrays["weights"][:n], arrays["precision"][:n]
        x, target, noise = self.candidate.inputs, float(self.candidate.targets[0]), self.gp.noise_variance
        points, targets = self.points
        address, out = criterion.reduction_address, np.empty(n)

        def run() -> np.ndarray:
            k = self.gp.kernel(x, points)[0]
            v = cho_solve((lower, True), k, check_finite=False)
            s = self.gp.kernel(x, x)[0, 0] + noise - k @ v
            variance = 1.0 / (q + v * v / s)
            residual = (a - v * ((target - a @ k) / s)) * variance
            scores(address, len(targets), residual, variance, noise, out)
            return out

        return run

    def compiled_scores(self, criterion: Criterion, times: int) -> Callable[[], np.ndarray]:
        """Call that scores all points so many times, compiled (times, N)."""
        x, y = np.repeat(self.candidate.inputs, times, axis=0), np.repeat(self.candidate.targets, times)
        return lambda: self.gp.candidate_scores(x, y, criterion)


def scored(size: int, seed: int) -> Scored:
    """Random data, as in table 1: `size` stored points and a candidate."""
    rng = np.random.default_rng([seed, size])
    samples = Samples(rng.normal(size=(size + 1, N_FEATURES)), rng.normal(size=size + 1))
    points, candidate = samples.part(0, size), samples.part(size, size + 1)
    gp = online_gp(size, noise_variance=NOISE_VARIANCE).fit(*points)
    return Scored(gp, points, candidate)


def score_seconds(size: int, rounds: int, seed: int) -> dict[tuple[str, str], np.ndarray]:
    """Seconds (rounds,) by way and criterion, measured in turns; the published way for ONE point.

    The published way is given the covariance without the point, the sums that it shares with other points, and
    calls LAPACK directly; only the factorisation and the criterion are timed. Ours includes the covariances of the
    candidate.
    """
    jobs = _jobs(scored(size, seed), max(1, ITERATIONS * 100 // max(size, 100)))
    seconds = interleave({" ".join(key): job for key, job in jobs.items()}, rounds)
    return {key: seconds[" ".join(key)] for key in jobs}


def _jobs(case: Scored, times: int) -> dict[tuple[str, str], Job]:
    """One job for each way and criterion; the fast ways so many times in one run."""
    point = case.published(0)
    jobs: dict[tuple[str, str], Job] = {}
    for name, criterion in CRITERIA.items():
        jobs[PUBLISHED, name] = Job(_again(partial(PUBLISHED_SCORES[name], point), 1))
        jobs[NUMPY, name] = Job(_again(case.numpy_scores(criterion), times), times)
        jobs[COMPILED, name] = Job(case.compiled_scores(criterion, times), times)
    return jobs


def _again(run: Callable[[], object], times: int) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(times):
            run()

    return repeat


def rounds_for(size: int, repetitions: int) -> int:
    """Rounds for a size: all up to 100 points, then fewer as a factorisation takes longer, at least 5."""
    return min(repetitions, max(5, round(repetitions * min(1.0, (100 / size) ** 2))))


def exponent(sizes: np.ndarray, seconds: np.ndarray) -> float:
    """Slope of log time over log N, from 200 points on (below, the calls count); from all if these are too few."""
    large = sizes >= 200
    chosen = large if large.sum() >= 2 else np.ones(len(sizes), dtype=bool)
    return float(np.polyfit(np.log(sizes[chosen]), np.log(seconds[chosen]), 1)[0])
