"""The online GP: cost of a sample in matrix-vector products, memory, rounding errors, and scores of
its points.
"""

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice, product
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import lapack

import simulators
import sysid
from experiments.benchmark.harness import (
    Job,
    Plan,
    Row,
    interleave,
    ratio,
    resident_memory,
    row,
    timed,
)
from sysid.gp import online
from sysid.gp.dictionary import PROBE_INTERVAL, RECORD_DTYPE
from sysid.gp.rules import COMPARED_CRITERIA, CRITERIA

N_FEATURES = 9
NEVER = sysid.ErrorThreshold(error_threshold=1e12)  # no sample asks for a place
UNIT = "matvec"
SEARCH = 100  # blocks of samples among which accepted ones are looked for
NOISE_VARIANCES = (1e-2, 1e-4, 1e-6, 1e-8)  # signal variance
TEST_POINTS = 500
LOG_2PI = math.log(2.0 * math.pi)
#: one point by a factorisation of the set without it; all N points as `OnlineGP` does it
PUBLISHED, COMPILED = WAYS = ("published_one", "compiled_all")
NOISE_VARIANCE = 1e-2  # signal variance
ITERATIONS = 20  # of the fast ways in one run, up to 100 points
CANDIDATES = 2  # replacements of one run of the textbook way
OURS = 500  # and of ours
# parts of a long stream that are reported, and samples of a block of it
PARTS = 5
BLOCK = 1000
MEMORY = 1000  # samples, of what learns a plant that drifts


class Samples(NamedTuple):
    """Regressors and targets of a stream."""

    inputs: np.ndarray  # (n, N_FEATURES), standardised
    targets: np.ndarray  # (n,), variance 1 without the noise

    def part(self, start: int, stop: int | None = None) -> "Samples":
        """Return the samples from start to stop."""
        return Samples(self.inputs[start:stop], self.targets[start:stop])


def narx_samples(n: int, *, noise_variance: float = 1e-2, seed: int) -> Samples:
    """Stream of a nonlinear system of order two under two slow inputs, three lags of each signal.

    ``y[k] = 0.6 tanh(y[k-1]) + 0.25 y[k-2] + 0.5 u1[k-1] + 0.2 u2[k-1] tanh(y[k-2])``, the
    inputs moving averages of white noise over 5 and 20 samples: neighbouring lags are nearly
    the same, which makes covariance matrices as ill-conditioned as they are in practice.
    """
    rng = np.random.default_rng(seed)
    length = n + 200
    u1, u2 = (
        np.convolve(rng.normal(size=length), np.ones(width) / np.sqrt(width), "same")
        for width in (5, 20)
    )
    y = [0.0, 0.0]
    for one, two in zip(u1[1:-1].tolist(), u2[1:-1].tolist(), strict=True):
        slow = 0.2 * two * math.tanh(y[-2])
        y.append(0.6 * math.tanh(y[-1]) + 0.25 * y[-2] + 0.5 * one + slow)
    inputs = np.stack(
        [np.roll(signal, lag) for signal in (y, u1, u2) for lag in (1, 2, 3)], axis=1
    )[-n:]
    targets = (np.array(y[-n:]) - np.mean(y)) / np.std(y) + np.sqrt(noise_variance) * rng.normal(
        size=n
    )
    return Samples(np.ascontiguousarray((inputs - inputs.mean(0)) / inputs.std(0)), targets)


def online_gp(
    budget: int,
    *,
    noise_variance: float = 1e-2,
    length_scale: float = 3.0,
    **rules: Any,
) -> sysid.OnlineGP:
    """GP of signal variance 1 for that stream."""
    kernel = sysid.SquaredExponential(1.0, [length_scale] * N_FEATURES)
    return sysid.OnlineGP(kernel, noise_variance=noise_variance, budget=budget, **rules)


def rewinder(gp: sysid.OnlineGP) -> Callable[[], None]:
    """Call that takes a GP back to its present state."""
    state = gp.state()
    counts = state["counts"].tolist()
    return lambda: gp.restore(state, counts)


@dataclass(frozen=True)
class OldestLeaves(sysid.Criterion):
    """All points are worth the same, and the oldest loses a tie: the dearest row to delete."""

    published_reference: ClassVar[sysid.Reference] = sysid.Reference.leave_one_out

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        return 0.0

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        return 0.0


def replacement(plan: Plan) -> Iterator[Row]:
    """One accepted replacement in a full dictionary against one product ``A @ b`` of its size.

    The same samples are learned again and again from the same dictionary by `update_many`, every
    one of them replaces a point (``accepted`` in the details is the fraction that did), and their
    number is a multiple of the interval of the drift probe, which is thereby included. With an
    acceptance rule, the refused samples of the stream are left out: they leave no trace in the
    dictionary.
    """
    rules: dict[str, tuple[sysid.Criterion, sysid.Acceptance]] = {}
    for name in COMPARED_CRITERIA:
        criterion = CRITERIA[name]()
        rules[name] = criterion, sysid.AcceptAll()
        rules[f"{name}, matched acceptance"] = (
            criterion,
            sysid.ExceedsMinimum(criterion),
        )
    rules["oldest leaves (worst case)"] = OldestLeaves(), sysid.AcceptAll()
    for size in plan.sizes:
        samples = narx_samples(size + SEARCH * _block(size), seed=plan.seed)
        for name, (reduction, acceptance) in rules.items():
            gp = online_gp(size, reduction=reduction, acceptance=acceptance).fit(
                *samples.part(0, size)
            )
            rewind = rewinder(gp)
            chosen = _accepted(gp, samples.part(size), _block(size))
            seconds = _against_product(
                Job(partial(gp.update_many, *chosen), len(chosen.targets), rewind),
                size,
                plan,
            )
            rewind()
            fraction = float((gp.update_many(*chosen)["removed"] >= 0).mean())
            details = {"samples": len(chosen.targets), "accepted": fraction}
            target = f"<= {6 if size < 500 else 4.5}"
            yield ratio(
                f"N={size} {name}",
                seconds,
                ("ours", UNIT),
                UNIT,
                target=target,
                **details,
            )


def not_inserted(plan: Plan) -> Iterator[Row]:
    """One sample predicted (mean and variance) and not inserted, against one product ``A @ b``; the
    same, learned.

    Predicted together: one of 512 samples for which `predict` is called.
    """
    for size in plan.sizes:
        samples = narx_samples(
            size + max(_block(size), online.MIN_ABSORPTION_BLOCK_ROWS), seed=plan.seed
        )
        new = samples.part(size, size + _block(size))
        block = samples.part(size, size + online.MIN_ABSORPTION_BLOCK_ROWS)
        for learning, name, most in (
            ("stored", f"N={size}", 2),
            ("every_sample", f"N={size} learned", 8),
        ):
            gp = online_gp(size, insertion=NEVER, learning=learning, scale=False).fit(
                *samples.part(0, size)
            )
            seconds = _against_product(
                Job(partial(gp.update_many, *new), len(new.targets)), size, plan
            )
            yield ratio(name, seconds, ("ours", UNIT), UNIT, target=f"<= {most}")
        seconds = _against_product(
            Job(partial(gp.predict, block.inputs), online.MIN_ABSORPTION_BLOCK_ROWS), size, plan
        )
        yield ratio(
            f"N={size} predicted together, every sample learned",
            seconds,
            ("ours", UNIT),
            UNIT,
            target="<= 2",
        )


def _against_product(ours: Job, size: int, plan: Plan) -> dict[str, np.ndarray]:
    """Seconds per sample of ours, and per product of a square matrix by `numpy.dot` without
    allocation.
    """
    products = 3 * _block(size)
    rng = np.random.default_rng(size)
    matrix = rng.normal(size=(size, size))
    vector = rng.normal(size=size)
    out = np.empty(size)

    def multiply() -> None:
        for _ in range(products):
            np.dot(matrix, vector, out=out)

    return interleave({UNIT: Job(multiply, products), "ours": ours}, plan.rounds(size))


def _block(size: int) -> int:
    """Choose the number of samples of one run.

    It takes a few milliseconds where possible, and is a multiple of the drift probe's interval.
    """
    return PROBE_INTERVAL * max(1, round(2e4 / size**2))


def _accepted(gp: sysid.OnlineGP, samples: Samples, wanted: int) -> Samples:
    """First samples that replace a point, at most as many as wanted."""
    found: list[int] = []
    for start in range(0, len(samples.targets), wanted):
        reports = gp.update_many(*samples.part(start, start + wanted))
        found += (start + np.flatnonzero(reports["removed"] >= 0)).tolist()
        if len(found) >= wanted:
            break
    kept = found[: max(len(found[:wanted]) // PROBE_INTERVAL, 1) * PROBE_INTERVAL]
    return Samples(samples.inputs[kept], samples.targets[kept])


def update(plan: Plan) -> Iterator[Row]:
    """One call of `update` from Python: the sample replaces a point, or is only predicted."""
    samples = narx_samples(plan.budget + 4 * PROBE_INTERVAL, seed=plan.seed)
    rest = samples.part(plan.budget)
    pairs = list(zip(rest.inputs, rest.targets.tolist(), strict=True))

    def job(gp: sysid.OnlineGP) -> Job:
        gp.fit(*samples.part(0, plan.budget))
        return Job(lambda: [gp.update(x, y) for x, y in pairs], len(pairs), rewinder(gp))

    jobs = {
        "replaced": job(online_gp(plan.budget)),
        "not inserted": job(online_gp(plan.budget, insertion=NEVER)),
    }
    for name, seconds in interleave(jobs, plan.rounds(plan.budget)).items():
        yield timed(f"N={plan.budget} {name}", 1e6 * seconds, "us", target="<= 20")


def memory(plan: Plan) -> Iterator[Row]:
    """Bytes that a full `OnlineGP` holds, traced allocations, in matrices of N^2 numbers of 8
    bytes.
    """
    samples = narx_samples(max(plan.sizes), seed=plan.seed)
    online_gp(min(plan.sizes)).fit(*samples.part(0, min(plan.sizes)))  # compiles and fills caches
    for size, learning in product(plan.sizes, ("every_sample", "stored")):
        tracemalloc.start()
        gp = online_gp(size, learning=learning).fit(*samples.part(0, size))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        yield row(
            f"N={gp.budget} {learning}",
            held / (8 * size**2),
            "N^2 x 8 bytes",
            MB=held / 1e6,
        )


# --- rounding errors ------------------------------------------------------------------------------


class Posterior(NamedTuple):
    """What n points say about themselves and about m test points, in some precision."""

    precision: np.ndarray  # (n,) diag(Ky^-1)
    mean: np.ndarray  # (m,)
    variance: np.ndarray  # (m,) latent


def accuracy(plan: Plan) -> Iterator[Row]:
    """Errors of a dictionary after many replacements, beside those of a double precision Cholesky.

    Reference: a Cholesky factorisation of the same covariance in extended precision. Largest error
    over the points, or over test points of the stream: of ``diag(Ky^-1)`` relative to itself, of
    the mean relative to the largest mean, of the variance relative to the noisy variance. Length
    scales of ten standard deviations make the covariance as ill-conditioned as the noise allows.
    """
    name = "marginal_log_likelihood"
    rules: dict[str, sysid.Criterion] = {
        name: CRITERIA[name](),
        "oldest leaves": OldestLeaves(),
    }
    for noise_variance in NOISE_VARIANCES:
        samples = narx_samples(
            plan.budget + plan.replacements,
            noise_variance=noise_variance,
            seed=plan.seed,
        )
        tests = np.random.default_rng(plan.seed).choice(samples.inputs, TEST_POINTS)
        for name, reduction in rules.items():
            gp = online_gp(
                plan.budget,
                noise_variance=noise_variance,
                reduction=reduction,
                length_scale=10.0,
            )
            replaced = int((gp.update_many(*samples)["removed"] >= 0).sum())
            inputs = gp.inputs[gp.age_order]
            targets = gp.targets[gp.age_order]
            covariance = gp.kernel(inputs, inputs) + noise_variance * np.eye(len(targets))
            problem = (
                covariance,
                targets,
                gp.kernel(tests, inputs),
                gp.kernel.diagonal(tests),
            )

            exact = extended_posterior(*problem)
            ours = _errors(
                Posterior(gp.state()["precision"], *gp.predict(tests)),
                exact,
                noise_variance,
            )
            cholesky = _errors(double_posterior(*problem), exact, noise_variance)
            counts: dict[str, Any] = {
                "replacements": replaced,
                "refactorisations": gp.n_refactorisations,
            }
            for quantity, error in ours.items():
                case = f"noise {noise_variance:g}, {name}: {quantity}"
                yield row(case, error, "relative error", Cholesky=cholesky[quantity], **counts)


def _errors(found: Posterior, exact: Posterior, noise_variance: float) -> dict[str, float]:
    error = [np.abs(a - b) for a, b in zip(found, exact, strict=True)]
    return {
        "diagonal of inverse": float((error[0] / exact.precision).max()),
        "mean": float(error[1].max() / np.abs(exact.mean).max()),
        "variance": float((error[2] / (exact.variance + noise_variance)).max()),
    }


def extended_posterior(
    covariance: np.ndarray, targets: np.ndarray, cross: np.ndarray, prior: np.ndarray
) -> Posterior:
    """Posterior from a Cholesky factor in `numpy.longdouble`.

    Parameters
    ----------
    covariance : (n, n)
        Ky of the points.
    targets : (n,)
    cross : (m, n)
        Covariances of the test points with the points.
    prior : (m,)
        Prior variances of the test points.
    """
    matrix = covariance.astype(np.longdouble)
    factor = np.zeros_like(matrix)
    inverse = np.eye(len(matrix), dtype=matrix.dtype)
    for j in range(len(matrix)):  # column j of L, then row j of L^-1
        factor[j, j] = np.sqrt(matrix[j, j] - factor[j, :j] @ factor[j, :j])
        factor[j + 1 :, j] = (matrix[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j]) / factor[
            j, j
        ]
        inverse[j] = (inverse[j] - factor[j, :j] @ inverse[:j]) / factor[j, j]
    projected = cross.astype(np.longdouble) @ inverse.T
    mean = projected @ (inverse @ targets.astype(np.longdouble))
    return Posterior((inverse**2).sum(axis=0), mean, prior - (projected**2).sum(axis=1))


def double_posterior(
    covariance: np.ndarray, targets: np.ndarray, cross: np.ndarray, prior: np.ndarray
) -> Posterior:
    """Posterior from a Cholesky factor in double precision, from scratch by LAPACK; see
    `extended_posterior`.
    """
    factor, _ = lapack.dpotrf(covariance, lower=1, clean=1)
    projected, _ = lapack.dtrtrs(factor, cross.T, lower=1)
    whitened, _ = lapack.dtrtrs(factor, targets, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1)
    return Posterior(np.diag(inverse), projected.T @ whitened, prior - (projected**2).sum(axis=0))


def soak(plan: Plan) -> Iterator[Row]:
    """A long stream of a plant that drifts, through the loop: errors of each fifth, memory,
    counters, rounding errors.

    A Van der Pol oscillator, its damping a sine from 1 to 3 1/s with a period of 630 000 samples.
    Both ways to learn forget; `every_sample` adapts its hyper-parameters, `stored` keeps them; else
    by default. Errors: mean squares over those of the linear model that least squares fit to the
    thousand samples before. Memory: resident memory of the process after the last fifth, less that
    after the second. Counters: samples sent, and places given, that are not counted. Rounding: how
    far means and variances are, at the ends of the fifths, from those of the same state with its
    factors computed from scratch, in standard deviations or variances of the noise.
    """  # noqa: D401  # its first line stands in benchmark.md
    narx = sysid.Narx({"displacement": 2})
    n_blocks = max(1, plan.soak_samples // (PARTS * BLOCK))
    trainings: dict[str, sysid.Training] = {
        "every_sample": sysid.Adaptive(),
        "stored": sysid.MaximumAPosteriori(),
    }
    for learning, training in trainings.items():
        rules = sysid.Settings(
            training,
            learning=learning,
            forgetting=MEMORY,
            budget=plan.budget,
            seed=plan.seed,
        )
        identification = sysid.Identification(narx, rules)
        window = sysid.LagWindow(narx)
        blocks = sysid.learn_from(
            _drifting(plan), identification, window, outputs=["displacement"], inputs=[]
        )
        weights: np.ndarray = np.zeros(3)
        record = np.zeros(0, RECORD_DTYPE)
        entered = 0
        resident = []
        rounding = []
        for part in range(PARTS):
            squares = np.zeros(3)  # of the errors, of those of least squares, of the targets
            for block in islice(blocks, n_blocks):
                if block.correction is not None:  # the last sample got its place one block later
                    record[-1] = block.correction
                entered += int((record["slot"] >= 0).sum())
                (x, y, _), record = block.rows, block.record
                lags = np.column_stack([x, np.ones(len(x))])
                squares += np.nansum((y - [record["mean"], lags @ weights, 0.0 * y]) ** 2, axis=1)
                weights, *_ = np.linalg.lstsq(lags, y)
            model = identification.require_model()
            gp = model.gp
            tests = model.scaling.transform(x)
            fresh = gp.copy()
            fresh.reduce_to(gp.n_points)
            (mean, variance), noise = (
                np.abs(np.subtract(gp.predict(tests), fresh.predict(tests))),
                gp.noise_variance,
            )
            rounding.append(max(mean.max() / math.sqrt(noise), variance.max() / noise))
            resident.append(resident_memory())
            details = {
                "SMSE": squares[0] / squares[2],
                "MiB": resident[-1],
                "rounding": rounding[-1],
            }
            case = f"{learning}: errors of fifth {part + 1}"
            sent = (part + 1) * n_blocks * BLOCK
            yield row(
                case,
                squares[0] / squares[1],
                "of least squares",
                target="<= 0.1",
                samples=sent,
                **details,
            )
        yield row(f"{learning}: memory", resident[-1] - resident[1], "MiB more", target="<= 1")
        counts = gp.counts()
        entered = entered + int((record["slot"] >= 0).sum())
        missed = abs(sent - narx.max_lag - counts["seen"]) + abs(entered - counts["entries"])
        yield row(
            f"{learning}: counters",
            missed,
            "not counted",
            target="<= 0",
            samples=sent,
            places=entered,
        )
        yield row(
            f"{learning}: rounding",
            max(rounding),
            "of the noise",
            target="<= 0.01",
            **gp.repairs,
        )


def _drifting(plan: Plan) -> Iterator[SimpleNamespace]:
    """Blocks of samples without end; the damping changes from block to block."""
    state = None
    for k in count():
        plant = simulators.VanDerPol(damping=2.0 + np.sin(0.01 * k))
        made = simulators.simulate(
            plant, n_samples=BLOCK + 1, initial_state=state, seed=plan.seed + k
        )
        state = made.state[-1]
        yield SimpleNamespace(output=made.output[:-1], input=made.input[:-1])


# --- scores of the points, the published way and ours ---------------------------------------------


class LeftOut(NamedTuple):
    """A point and the set without it, as covariances; everything the formulas need but the
    factor.
    """

    covariance: np.ndarray  # (n, n) Ky of the others, Fortran order
    targets: np.ndarray  # (n,) of the others
    cross: np.ndarray  # (n,) covariances of the point with the others
    prior: float  # k(x_i, x_i)
    target: float  # y_i
    mean: float  # mu_i by the whole set
    noise_variance: float


def leave_out(
    covariance: np.ndarray,
    targets: np.ndarray,
    mean: np.ndarray,
    i: int,
    noise_variance: float,
) -> LeftOut:
    """Leave a point out of a set with the symmetric Ky (n, n), its targets (n,) and their means by
    the whole set.
    """
    without = np.delete(np.delete(covariance, i, 0), i, 1).T  # in the order of Fortran
    prior = covariance[i, i] - noise_variance
    return LeftOut(
        without,
        np.delete(targets, i),
        np.delete(covariance[i], i),
        prior,
        targets[i],
        mean[i],
        noise_variance,
    )


# The published way to score a point: the set without it is factorised anew (section 3.2 of the
# paper).


def prior_entropy(point: LeftOut) -> float:
    """``-H(y_/i) = -(n/2) (1 + log 2 pi) - 0.5 log|Ky_/i|``."""
    return -0.5 * len(point.targets) * (1.0 + LOG_2PI) - _half_log_determinant(
        _factor(point.covariance)
    )


def predictive_entropy(point: LeftOut) -> float:
    """``0.5 (1 + log 2 pi) + 0.5 log(latent variance)``."""
    return 0.5 * (1.0 + LOG_2PI) + 0.5 * math.log(
        _latent_variance(_factor(point.covariance), point)
    )


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
    factor = _factor(point.covariance)
    n = len(point.targets)
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


FORMULAS = (
    prior_entropy,
    predictive_entropy,
    mean_relevance,
    marginal_log_likelihood,
    log_predictive_density,
)
PUBLISHED_SCORES = {
    formula.__name__: formula for formula in FORMULAS
}  # by the name of their criterion


class Scored(NamedTuple):
    """A full dictionary and a candidate for it, with the arrays that the ways work on."""

    gp: sysid.OnlineGP
    points: Samples  # the N stored ones, oldest first
    candidate: Samples  # one

    def published(self, i: int) -> LeftOut:
        """Leave stored point i out of the set with the candidate."""
        x = np.vstack([self.points.inputs, self.candidate.inputs])
        y = np.concatenate([self.points.targets, self.candidate.targets])
        noise_variance = self.gp.noise_variance
        covariance = np.asfortranarray(self.gp.kernel(x, x) + noise_variance * np.eye(len(y)))
        return leave_out(
            covariance, y, y - noise_variance * solve(covariance, y), i, noise_variance
        )

    def compiled_scores(self, criterion: sysid.Criterion, times: int) -> Callable[[], np.ndarray]:
        """Call that scores all points so many times, compiled (times, N)."""
        x = np.repeat(self.candidate.inputs, times, axis=0)
        y = np.repeat(self.candidate.targets, times)
        return lambda: self.gp.candidate_scores(x, y, criterion)


def scored(size: int, seed: int) -> Scored:
    """Random data, as in table 1: `size` stored points and a candidate."""
    rng = np.random.default_rng([seed, size])
    samples = Samples(rng.normal(size=(size + 1, N_FEATURES)), rng.normal(size=size + 1))
    gp = online_gp(size, noise_variance=NOISE_VARIANCE).fit(*samples.part(0, size))
    return Scored(gp, samples.part(0, size), samples.part(size))


def score_seconds(size: int, rounds: int, seed: int) -> dict[tuple[str, str], np.ndarray]:
    """Seconds (rounds,) by way and criterion, measured in turns; the published way for ONE point.

    The published way is given the covariance without the point, the sums that it shares with other
    points, and calls LAPACK directly; only the factorisation and the criterion are timed. Ours
    includes the covariances of the candidate.
    """
    case = scored(size, seed)
    times = max(1, ITERATIONS * 100 // max(size, 100))
    point = case.published(0)

    jobs: dict[tuple[str, str], Job] = {}
    for name, formula in PUBLISHED_SCORES.items():
        jobs[PUBLISHED, name] = Job(partial(formula, point))
        jobs[COMPILED, name] = Job(case.compiled_scores(CRITERIA[name](), times), times)
    return interleave(jobs, rounds)


def rounds_for(size: int, repetitions: int) -> int:
    """Choose the rounds for a size, at least 5.

    All are run up to 100 points, then fewer as a factorisation takes longer.
    """
    return min(repetitions, max(5, round(repetitions * min(1.0, (100 / size) ** 2))))


def replace_by_textbook(
    gp: sysid.OnlineGP, start: Samples, samples: Samples
) -> Iterator[np.ndarray]:
    """Targets (N,) of the points after each replacement; every point is scored by a Cholesky
    factorisation of its own.

    Mean relevance, ``(mu_i - mu_/i)^2`` with the candidate in the set. LAPACK is called directly,
    and the covariance is kept.
    """
    inputs = start.inputs
    targets = start.targets
    noise_variance = gp.noise_variance
    covariance = gp.kernel(inputs, inputs) + noise_variance * np.eye(len(targets))
    for x, y in zip(*samples, strict=True):
        inputs = np.vstack([inputs, x])
        targets = np.append(targets, y)
        covariance = np.asfortranarray(np.pad(covariance, (0, 1)))
        covariance[-1, :] = covariance[:, -1] = gp.kernel(x[None, :], inputs)[0]
        covariance[-1, -1] += noise_variance
        mean = targets - noise_variance * solve(covariance, targets)
        points = (
            leave_out(covariance, targets, mean, i, noise_variance) for i in range(len(targets) - 1)
        )
        changes = [mean_relevance(point) for point in points]
        kept = np.arange(len(targets)) != np.argmin(changes)
        inputs = inputs[kept]
        targets = targets[kept]
        covariance = np.asfortranarray(covariance[kept][:, kept])
        solve(covariance, targets)  # the model that predicts the next sample
        yield targets


def textbook(plan: Plan) -> Iterator[Row]:
    """One replacement by N Cholesky factorisations against ours, same criterion and same samples.

    ``same points`` in the details: fraction of the points that both dictionaries share afterwards.
    """
    samples = narx_samples(plan.budget + OURS, noise_variance=NOISE_VARIANCE, seed=plan.seed)
    start = samples.part(0, plan.budget)
    rest = samples.part(plan.budget)
    few = rest.part(0, CANDIDATES)
    gp = online_gp(plan.budget, reduction=sysid.MeanRelevance(), acceptance=sysid.AcceptAll()).fit(
        *start
    )
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
    yield ratio(
        f"N={plan.budget}",
        seconds,
        ("textbook", "ours"),
        "times faster",
        target=">= 300",
        **shared,
    )
