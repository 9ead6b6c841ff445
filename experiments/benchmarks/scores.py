"""Reduction scores: one point the published way, all points our way, and a GP that replaces points by the textbook."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, lapack

import sysid
from experiments.benchmarks.harness import Job, Plan, Row, interleave, ratio, row
from experiments.benchmarks.replacement import N_FEATURES, Samples, narx_samples, online_gp, rewinder
from sysid.gp.dictionary import scores

LOG_2PI = math.log(2.0 * math.pi)
#: one point by a factorisation of the set without it; all N points in NumPy; all N points as `OnlineGP` does it
PUBLISHED, NUMPY, COMPILED = WAYS = ("published_one", "numpy_all", "compiled_all")
NOISE_VARIANCE = 1e-2  # signal variance
ITERATIONS = 20  # of the fast ways in one run, up to 100 points
SMALL = 20  # points, the smaller size of table 1 of the paper
CANDIDATES = 2  # replacements of one run of the textbook way
OURS = 500  # and of ours


class LeftOut(NamedTuple):
    """A point and the set without it, as covariances; everything the formulas need but the factor."""

    covariance: np.ndarray  # (n, n) Ky of the others, Fortran order
    targets: np.ndarray  # (n,) of the others
    cross: np.ndarray  # (n,) covariances of the point with the others
    prior: float  # k(x_i, x_i)
    target: float  # y_i
    mean: float  # mu_i by the whole set
    noise_variance: float


def left_out(covariance: np.ndarray, targets: np.ndarray, noise_variance: float, i: int) -> LeftOut:
    """Point i of a set with ``Ky`` (n + 1, n + 1) and targets (n + 1,); factorises the whole set for ``mu_i``."""
    others = np.delete(np.arange(len(targets)), i)
    mean = targets[i] - noise_variance * solve(covariance, targets)[i]
    without = np.asfortranarray(covariance[np.ix_(others, others)])
    prior = covariance[i, i] - noise_variance
    return LeftOut(without, targets[others], covariance[others, i], prior, targets[i], mean, noise_variance)


# The published way to score a point: the set without it is factorised anew (section 3.2 of the paper).


def prior_entropy(point: LeftOut) -> float:
    """``-H(y_/i) = -(n/2) (1 + log 2 pi) - 0.5 log|Ky_/i|``."""
    return -0.5 * len(point.targets) * (1.0 + LOG_2PI) - _half_log_determinant(_factor(point.covariance))


def predictive_entropy(point: LeftOut) -> float:
    """``0.5 (1 + log 2 pi) + 0.5 log(latent variance)``."""
    return 0.5 * (1.0 + LOG_2PI) + 0.5 * math.log(_latent_variance(_factor(point.covariance), point))


def mean_relevance(point: LeftOut) -> float:
    """``(mu_i - mu_/i)^2``."""
    change: float = point.mean - point.cross @ solve(point.covariance, point.targets)
    return change * change


def log_predictive_density(point: LeftOut) -> float:
    """``-log p(y_i | y_/i)`` with the noisy variance."""
    factor = _factor(point.covariance)
    variance = _latent_variance(factor, point) + point.noise_variance
    error: float = point.target - point.cross @ lapack.dpotrs(factor, point.targets, lower=1)[0]
    return 0.5 * (LOG_2PI + math.log(variance)) + 0.5 * error * error / variance


def marginal_log_likelihood(point: LeftOut) -> float:
    """``log p(y_/i)``."""
    factor, n = _factor(point.covariance), len(point.targets)
    whitened, _ = lapack.dtrtrs(factor, point.targets, lower=1)
    return float(-0.5 * whitened @ whitened) - _half_log_determinant(factor) - 0.5 * n * LOG_2PI


def solve(covariance: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """``Ky^-1 y`` by Cholesky."""
    return lapack.dpotrs(_factor(covariance), targets, lower=1)[0]


def _factor(covariance: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor; what is above its diagonal means nothing."""
    return lapack.dpotrf(covariance, lower=1, clean=0)[0]


def _half_log_determinant(factor: np.ndarray) -> float:
    return float(np.log(factor.diagonal()).sum())


def _latent_variance(factor: np.ndarray, point: LeftOut) -> float:
    whitened, _ = lapack.dtrtrs(factor, point.cross, lower=1)
    return float(point.prior - whitened @ whitened)


#: the five criteria of section 3.2 by their names in the options: ours, and the published formulas
CRITERIA: dict[str, sysid.Criterion] = {
    "prior_entropy": sysid.PriorEntropy(),
    "predictive_entropy": sysid.PredictiveEntropy(),
    "mean_relevance": sysid.MeanRelevance(),
    "marginal_log_likelihood": sysid.MarginalLogLikelihood(),
    "log_predictive_density": sysid.LogPredictiveDensity(),
}
FORMULAS = (prior_entropy, predictive_entropy, mean_relevance, marginal_log_likelihood, log_predictive_density)
PUBLISHED_SCORES = dict(zip(CRITERIA, FORMULAS, strict=True))


class Scored(NamedTuple):
    """A full dictionary and a candidate for it, with the arrays that the ways work on."""

    gp: sysid.OnlineGP
    points: Samples  # the N stored ones, oldest first
    candidate: Samples  # one

    def published(self, i: int) -> LeftOut:
        """Stored point i and the set without it, with the candidate."""
        x = np.vstack([self.points.inputs, self.candidate.inputs])
        y = np.concatenate([self.points.targets, self.candidate.targets])
        covariance = self.gp.kernel(x, x) + self.gp.noise_variance * np.eye(len(y))
        return left_out(np.asfortranarray(covariance), y, self.gp.noise_variance, i)

    def numpy_scores(self, criterion: sysid.Criterion) -> Callable[[], np.ndarray]:
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

    def compiled_scores(self, criterion: sysid.Criterion, times: int) -> Callable[[], np.ndarray]:
        """Call that scores all points so many times, compiled (times, N)."""
        x, y = np.repeat(self.candidate.inputs, times, axis=0), np.repeat(self.candidate.targets, times)
        return lambda: self.gp.candidate_scores(x, y, criterion)


def scored(size: int, seed: int) -> Scored:
    """Random data, as in table 1: `size` stored points and a candidate."""
    rng = np.random.default_rng([seed, size])
    samples = Samples(rng.normal(size=(size + 1, N_FEATURES)), rng.normal(size=size + 1))
    gp = online_gp(size, noise_variance=NOISE_VARIANCE).fit(*samples.part(0, size))
    return Scored(gp, samples.part(0, size), samples.part(size))


def score_seconds(size: int, rounds: int, seed: int) -> dict[tuple[str, str], np.ndarray]:
    """Seconds (rounds,) by way and criterion, measured in turns; the published way for ONE point.

    The published way is given the covariance without the point, the sums that it shares with other points, and
    calls LAPACK directly; only the factorisation and the criterion are timed. Ours includes the covariances of the
    candidate.
    """
    case, times = scored(size, seed), max(1, ITERATIONS * 100 // max(size, 100))
    point = case.published(0)

    def repeat(run: Callable[[], object]) -> None:
        for _ in range(times):
            run()

    jobs: dict[tuple[str, str], Job] = {}
    for name, criterion in CRITERIA.items():
        jobs[PUBLISHED, name] = Job(partial(PUBLISHED_SCORES[name], point))
        jobs[NUMPY, name] = Job(partial(repeat, case.numpy_scores(criterion)), times)
        jobs[COMPILED, name] = Job(case.compiled_scores(criterion, times), times)
    return interleave(jobs, rounds)


def rounds_for(size: int, repetitions: int) -> int:
    """Rounds for a size: all up to 100 points, then fewer as a factorisation takes longer, at least 5."""
    return min(repetitions, max(5, round(repetitions * min(1.0, (100 / size) ** 2))))


def exponent(sizes: np.ndarray, seconds: np.ndarray) -> float:
    """Slope of log time over log N, from 200 points on (below, the calls count); from all if these are too few."""
    large = sizes >= 200
    chosen = large if large.sum() >= 2 else np.ones(len(sizes), dtype=bool)
    return float(np.polyfit(np.log(sizes[chosen]), np.log(seconds[chosen]), 1)[0])


def criterion(plan: Plan) -> Iterator[Row]:
    """All N reduction scores our way against that of ONE point the published way, the five criteria of table 1.

    Ours, candidate included: from the cached factor, compiled as `OnlineGP` does it, or in NumPy. Published: one
    Cholesky factorisation of the set without the point, then the criterion.
    """
    over = ("one published", "all ours")
    for size in sorted({SMALL, plan.budget}):
        seconds = score_seconds(size, plan.rounds(size), plan.seed)
        for name in CRITERIA:
            for way, target in ((COMPILED, ">= 1"), (NUMPY, "")):
                times = dict(zip(over, (seconds[PUBLISHED, name], seconds[way, name]), strict=True))
                yield ratio(f"N={size} {name}, {way.removesuffix('_all')}", times, over, "times faster", target=target)

    sizes = sorted(plan.sizes)
    measured = [score_seconds(size, plan.repetitions, plan.seed) for size in sizes]
    for way in (PUBLISHED, COMPILED):
        fastest = [seconds[way, "mean_relevance"].min() for seconds in measured]
        details = {f"N={size} us": 1e6 * value for size, value in zip(sizes, fastest, strict=True)}
        slope = exponent(np.array(sizes), np.array(fastest))
        yield row(f"growth with N, {way.replace('_', ', ')}", slope, "exponent", **details)


def replace_by_textbook(gp: sysid.OnlineGP, start: Samples, samples: Samples) -> Iterator[np.ndarray]:
    """Targets (N,) of the points after each replacement; every point is scored by a Cholesky factorisation of its own.

    Mean relevance, ``(mu_i - mu_/i)^2`` with the candidate in the set. Written with care: LAPACK is called
    directly, the covariance is kept, and from one set to the next only one row changes.
    """
    inputs, targets, noise_variance = start.inputs, start.targets, gp.noise_variance
    covariance = gp.kernel(inputs, inputs) + noise_variance * np.eye(len(targets))
    for x, y in zip(*samples, strict=True):
        inputs, targets = np.vstack([inputs, x]), np.append(targets, y)
        covariance = np.asfortranarray(np.pad(covariance, (0, 1)))
        covariance[-1, :] = covariance[:, -1] = gp.kernel(x[None, :], inputs)[0]
        covariance[-1, -1] += noise_variance
        kept = np.arange(len(targets)) != np.argmin(_mean_changes(covariance, targets, noise_variance))
        inputs, targets, covariance = inputs[kept], targets[kept], np.asfortranarray(covariance[kept][:, kept])
        solve(covariance, targets)  # the model that predicts the next sample
        yield targets


def _mean_changes(covariance: np.ndarray, targets: np.ndarray, noise_variance: float) -> np.ndarray:
    """``(mu_i - mu_/i)^2`` (n,) of every point but the candidate, which is the last one."""
    change = np.empty(len(targets) - 1)
    mean = targets - noise_variance * solve(covariance, targets)
    without, y = np.asfortranarray(covariance[1:, 1:]), targets[1:].copy()
    for i in range(len(change)):
        row, prior = np.delete(covariance[:, i], i), covariance[i, i] - noise_variance
        change[i] = mean_relevance(LeftOut(without, y, row, prior, targets[i], mean[i], noise_variance))
        without[:, i] = without[i, :] = np.delete(covariance[:, i], i + 1)
        y[i] = targets[i]
    return change


def textbook(plan: Plan) -> Iterator[Row]:
    """One replacement by N Cholesky factorisations against ours, same criterion and same samples.

    ``same points`` in the details: fraction of the points that both dictionaries share afterwards.
    """
    samples = narx_samples(plan.budget + OURS, noise_variance=NOISE_VARIANCE, seed=plan.seed)
    start, rest = samples.part(0, plan.budget), samples.part(plan.budget)
    few = rest.part(0, CANDIDATES)
    gp = online_gp(plan.budget, reduction=sysid.MeanRelevance(), acceptance=sysid.AcceptAll()).fit(*start)
    rewind = rewinder(gp)
    jobs = {
        "textbook": Job(lambda: list(replace_by_textbook(gp, start, few)), CANDIDATES),
        "ours": Job(lambda: gp.update_many(*rest), OURS, rewind),
    }
    seconds = interleave(jobs, plan.rounds(plan.budget))
    rewind()
    gp.update_many(*few)
    *_, targets = replace_by_textbook(gp, start, few)
    shared = {"same points": np.isin(targets, gp.targets).mean()}
    yield ratio(f"N={plan.budget}", seconds, ("textbook", "ours"), "times faster", target=">= 300", **shared)
