"""Benchmarks of the online GP: time per sample, memory, rounding errors, scores of its points.

Times are given in matrix-vector products ``A @ b`` of the size of the dictionary.
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
NEVER = sysid.ErrorThreshold(error_threshold=1e12)  # no sample becomes a candidate
MATVEC_NAME = "matvec"  # name of the product, and the unit of times relative to it
PRODUCTS_PER_SAMPLE = 3  # products that are timed per sample of a run
N_SEARCHED_RUNS = 100  # samples of this many runs are tried to find accepted samples for one run
# Noise variances over the signal variance, for which the accuracy is measured.
NOISE_VARIANCES = (1e-2, 1e-4, 1e-6, 1e-8)
N_TEST_POINTS = 500  # points at which the accuracy is measured
LOG_2PI = math.log(2.0 * math.pi)
#: The two ways to score: one point by factorising the set without it; all N points as `OnlineGP`.
PUBLISHED_WAY = "published_one"
COMPILED_WAY = "compiled_all"
WAYS = (PUBLISHED_WAY, COMPILED_WAY)
SCORED_NOISE_VARIANCE = 1e-2  # noise variance over the signal variance
SCORINGS_PER_RUN = 20  # scorings by the compiled way, up to 100 points; fewer with more points
N_TEXTBOOK_REPLACEMENTS = 2  # replacements in one run of the textbook way
N_COMPILED_REPLACEMENTS = 500  # replacements in one run of the compiled way
N_SOAK_PARTS = 5  # parts of the long stream that are reported
SOAK_BLOCK_SIZE = 1000  # samples of the long stream over which the plant is constant
SOAK_MEMORY = 1000  # samples that a model of the drifting plant remembers


class Samples(NamedTuple):
    """Regressors and targets of a stream."""

    inputs: np.ndarray  # (n, N_FEATURES), standardised
    targets: np.ndarray  # (n,), variance 1 without the noise

    def part(self, start: int, stop: int | None = None) -> "Samples":
        """Return the samples from start to stop."""
        return Samples(self.inputs[start:stop], self.targets[start:stop])


def narx_samples(n: int, *, noise_variance: float = 1e-2, seed: int) -> Samples:
    """Return a stream of a nonlinear system of order two, with three lags of each signal.

    The system is
    ``y[k] = 0.6 tanh(y[k-1]) + 0.25 y[k-2] + 0.5 u1[k-1] + 0.2 u2[k-1] tanh(y[k-2])``.
    Its inputs are moving averages of white noise over 5 and 20 samples: neighbouring lags are
    nearly equal, which makes covariance matrices as ill-conditioned as they are in practice.
    """
    rng = np.random.default_rng(seed)
    length = n + 200

    def moving_average(width: int) -> np.ndarray:
        """Return a moving average of white noise over a number of samples."""
        return np.convolve(rng.normal(size=length), np.ones(width) / np.sqrt(width), "same")

    u1 = moving_average(5)
    u2 = moving_average(20)
    y = [0.0, 0.0]
    for u1_k, u2_k in zip(u1[1:-1].tolist(), u2[1:-1].tolist(), strict=True):
        slow = 0.2 * u2_k * math.tanh(y[-2])
        y.append(0.6 * math.tanh(y[-1]) + 0.25 * y[-2] + 0.5 * u1_k + slow)
    lagged = [np.roll(signal, lag) for signal in (y, u1, u2) for lag in (1, 2, 3)]
    inputs = np.stack(lagged, axis=1)[-n:]
    outputs = (np.array(y[-n:]) - np.mean(y)) / np.std(y)
    targets = outputs + np.sqrt(noise_variance) * rng.normal(size=n)
    standardised = (inputs - inputs.mean(0)) / inputs.std(0)
    return Samples(np.ascontiguousarray(standardised), targets)


def online_gp(
    budget: int,
    *,
    noise_variance: float = 1e-2,
    length_scale: float = 3.0,
    **rules: Any,
) -> sysid.OnlineGP:
    """Return a GP of signal variance 1 for the stream of `narx_samples`."""
    kernel = sysid.SquaredExponential(1.0, [length_scale] * N_FEATURES)
    return sysid.OnlineGP(kernel, noise_variance=noise_variance, budget=budget, **rules)


def rewinder(gp: sysid.OnlineGP) -> Callable[[], None]:
    """Return a function that takes a GP back to its present state."""
    state = gp.state()
    counts = state["counts"].tolist()
    return lambda: gp.restore(state, counts)


@dataclass(frozen=True)
class OldestLeaves(sysid.Criterion):
    """A criterion that scores all points alike: the oldest leaves, which costs most.

    The oldest point loses a tie, and its row is the most expensive to delete.
    """

    published_reference: ClassVar[sysid.Reference] = sysid.Reference.leave_one_out

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        return 0.0

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        return 0.0


def replacement(plan: Plan) -> Iterator[Row]:
    """Time one accepted replacement in a full dictionary against one product ``A @ b``.

    The same samples are learned repeatedly from the same dictionary by `update_many`. Each of them
    replaces a point (``accepted`` in the details is the fraction that did). Their number is a
    multiple of the interval of the drift probe, whose time is thereby included. With an acceptance
    rule, the refused samples of the stream are left out, because they do not change the dictionary.
    """
    rules: dict[str, tuple[sysid.Criterion, sysid.Acceptance]] = {}
    for name in COMPARED_CRITERIA:
        criterion = CRITERIA[name]()
        matched = sysid.ExceedsMinimum(criterion)
        rules[name] = (criterion, sysid.AcceptAll())
        rules[f"{name}, matched acceptance"] = (criterion, matched)
    rules["oldest leaves (worst case)"] = (OldestLeaves(), sysid.AcceptAll())
    for size in plan.sizes:
        n_run = _samples_per_run(size)
        samples = narx_samples(size + N_SEARCHED_RUNS * n_run, seed=plan.seed)
        first = samples.part(0, size)
        for name, (reduction, acceptance) in rules.items():
            gp = online_gp(size, reduction=reduction, acceptance=acceptance).fit(*first)
            rewind = rewinder(gp)
            chosen = _choose_accepted(gp, samples.part(size), n_run)
            n_chosen = len(chosen.targets)
            ours = Job(partial(gp.update_many, *chosen), n_chosen, rewind)
            seconds = _against_product(ours, size, plan)
            rewind()
            fraction = float((gp.update_many(*chosen)["removed"] >= 0).mean())
            yield ratio(
                f"N={size} {name}",
                seconds,
                ("ours", MATVEC_NAME),
                MATVEC_NAME,
                target="<= 6" if size < 500 else "<= 4.5",
                samples=n_chosen,
                accepted=fraction,
            )


def not_inserted(plan: Plan) -> Iterator[Row]:
    """Time one sample that is predicted and not inserted against one product ``A @ b``.

    The prediction is mean and variance. ``learned``: the sample is learned without being stored.
    ``predicted together``: one of 512 samples for which `predict` is called.
    """
    for size in plan.sizes:
        n_run = _samples_per_run(size)
        samples = narx_samples(size + max(n_run, online.MIN_ABSORPTION_BLOCK_ROWS), seed=plan.seed)
        first = samples.part(0, size)
        new = samples.part(size, size + n_run)
        block = samples.part(size, size + online.MIN_ABSORPTION_BLOCK_ROWS)
        for learning, name, target in (
            ("stored", f"N={size}", "<= 2"),
            ("every_sample", f"N={size} learned", "<= 8"),
        ):
            gp = online_gp(size, insertion=NEVER, learning=learning, scale=False).fit(*first)
            ours = Job(partial(gp.update_many, *new), len(new.targets))
            seconds = _against_product(ours, size, plan)
            yield ratio(name, seconds, ("ours", MATVEC_NAME), MATVEC_NAME, target=target)
        ours = Job(partial(gp.predict, block.inputs), online.MIN_ABSORPTION_BLOCK_ROWS)
        seconds = _against_product(ours, size, plan)
        yield ratio(
            f"N={size} predicted together, every sample learned",
            seconds,
            ("ours", MATVEC_NAME),
            MATVEC_NAME,
            target="<= 2",
        )


def _against_product(ours: Job, size: int, plan: Plan) -> dict[str, np.ndarray]:
    """Return the seconds per sample of our job, and per product of a square matrix and a vector.

    `numpy.dot` multiplies into an array that exists already.
    """
    products = PRODUCTS_PER_SAMPLE * _samples_per_run(size)
    rng = np.random.default_rng(size)
    matrix = rng.normal(size=(size, size))
    vector = rng.normal(size=size)
    out = np.empty(size)

    def multiply() -> None:
        for _ in range(products):
            np.dot(matrix, vector, out=out)

    return interleave({MATVEC_NAME: Job(multiply, products), "ours": ours}, plan.rounds(size))


def _samples_per_run(size: int) -> int:
    """Return the number of samples of one run.

    A run takes a few milliseconds where possible. The number is a multiple of the drift probe's
    interval.
    """
    return PROBE_INTERVAL * max(1, round(2e4 / size**2))


def _choose_accepted(gp: sysid.OnlineGP, samples: Samples, wanted: int) -> Samples:
    """Return the first samples that replace a point, at most the wanted number.

    Their number is a multiple of the drift probe's interval.
    """
    found: list[int] = []
    for start in range(0, len(samples.targets), wanted):
        reports = gp.update_many(*samples.part(start, start + wanted))
        found += (start + np.flatnonzero(reports["removed"] >= 0)).tolist()
        if len(found) >= wanted:
            break
    n_intervals = max(len(found[:wanted]) // PROBE_INTERVAL, 1)
    kept = found[: n_intervals * PROBE_INTERVAL]
    return Samples(samples.inputs[kept], samples.targets[kept])


def update(plan: Plan) -> Iterator[Row]:
    """Time one call of `update` from Python that replaces a point, or only predicts."""
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
    """Measure the bytes that a full `OnlineGP` holds, in matrices of N^2 numbers of 8 bytes.

    `tracemalloc` traces the allocations.
    """
    samples = narx_samples(max(plan.sizes), seed=plan.seed)
    smallest = min(plan.sizes)
    online_gp(smallest).fit(*samples.part(0, smallest))  # compiles and fills caches
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
    """Posterior of n points at themselves and at m test points, in some precision."""

    precision: np.ndarray  # (n,) diag(Ky^-1)
    mean: np.ndarray  # (m,)
    variance: np.ndarray  # (m,) latent


def accuracy(plan: Plan) -> Iterator[Row]:
    """Compare rounding errors after many replacements with those of a Cholesky factorisation.

    The reference is a Cholesky factorisation of the same covariance in extended precision; the
    details have the errors of one in double precision. Each error is the largest one over the
    points, or over test points of the stream: of ``diag(Ky^-1)`` relative to itself, of the mean
    relative to the largest mean, of the variance relative to the noisy variance. Length scales of
    ten standard deviations make the covariance as ill-conditioned as the noise allows.
    """
    likelihood = "marginal_log_likelihood"
    rules: dict[str, sysid.Criterion] = {
        likelihood: CRITERIA[likelihood](),
        "oldest leaves": OldestLeaves(),
    }
    for noise_variance in NOISE_VARIANCES:
        samples = narx_samples(
            plan.budget + plan.replacements,
            noise_variance=noise_variance,
            seed=plan.seed,
        )
        tests = np.random.default_rng(plan.seed).choice(samples.inputs, N_TEST_POINTS)
        for name, reduction in rules.items():
            gp = online_gp(
                plan.budget,
                noise_variance=noise_variance,
                reduction=reduction,
                length_scale=10.0,
            )
            n_replaced = int((gp.update_many(*samples)["removed"] >= 0).sum())
            ours, cholesky = _rounding_errors(gp, tests, noise_variance)
            for quantity, error in ours.items():
                yield row(
                    f"noise {noise_variance:g}, {name}: {quantity}",
                    error,
                    "relative error",
                    Cholesky=cholesky[quantity],
                    replacements=n_replaced,
                    refactorisations=gp.n_refactorisations,
                )


def _rounding_errors(
    gp: sysid.OnlineGP, tests: np.ndarray, noise_variance: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the errors of a GP, and those of a Cholesky factorisation, by quantity."""
    inputs = gp.inputs[gp.age_order]
    targets = gp.targets[gp.age_order]
    covariance = gp.kernel(inputs, inputs) + noise_variance * np.eye(len(targets))
    cross = gp.kernel(tests, inputs)
    prior = gp.kernel.diagonal(tests)
    exact = extended_posterior(covariance, targets, cross, prior)
    ours = Posterior(gp.state()["precision"], *gp.predict(tests))
    cholesky = double_posterior(covariance, targets, cross, prior)
    return _errors(ours, exact, noise_variance), _errors(cholesky, exact, noise_variance)


def _errors(found: Posterior, exact: Posterior, noise_variance: float) -> dict[str, float]:
    precision, mean, variance = (np.abs(a - b) for a, b in zip(found, exact, strict=True))
    return {
        "diagonal of inverse": float((precision / exact.precision).max()),
        "mean": float(mean.max() / np.abs(exact.mean).max()),
        "variance": float((variance / (exact.variance + noise_variance)).max()),
    }


def extended_posterior(
    covariance: np.ndarray, targets: np.ndarray, cross: np.ndarray, prior: np.ndarray
) -> Posterior:
    """Return the posterior by a Cholesky factor in `numpy.longdouble`.

    Parameters
    ----------
    covariance : (n, n)
        Ky of the points.
    targets : (n,)
        Targets of the points.
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
        below = matrix[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j]
        factor[j + 1 :, j] = below / factor[j, j]
        inverse[j] = (inverse[j] - factor[j, :j] @ inverse[:j]) / factor[j, j]
    projected = cross.astype(np.longdouble) @ inverse.T
    mean = projected @ (inverse @ targets.astype(np.longdouble))
    return Posterior((inverse**2).sum(axis=0), mean, prior - (projected**2).sum(axis=1))


def double_posterior(
    covariance: np.ndarray, targets: np.ndarray, cross: np.ndarray, prior: np.ndarray
) -> Posterior:
    """Return the posterior by a Cholesky factor of LAPACK, in double precision.

    The parameters are those of `extended_posterior`.
    """
    factor, _ = lapack.dpotrf(covariance, lower=1, clean=1)
    projected, _ = lapack.dtrtrs(factor, cross.T, lower=1)
    whitened, _ = lapack.dtrtrs(factor, targets, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1)
    return Posterior(np.diag(inverse), projected.T @ whitened, prior - (projected**2).sum(axis=0))


def soak(plan: Plan) -> Iterator[Row]:
    """Send a long stream of a plant that drifts through the loop, and check all that may decay.

    The plant is a Van der Pol oscillator whose damping is a sine from 1 to 3 1/s with a period of
    630 000 samples. Both ways to learn forget; `every_sample` adapts its hyper-parameters, `stored`
    keeps them; all other settings are defaults. The rows are:

    - errors of each fifth of the stream: mean squares over those of the linear model that least
      squares fit to the thousand samples before;
    - memory: resident memory of the process after the last fifth, less that after the second;
    - counters: samples that were sent, and points that were stored, but are not counted;
    - rounding: how far means and variances are, at the ends of the fifths, from those of the same
      state with its factors computed from scratch, in standard deviations or variances of the
      noise.
    """
    trainings: dict[str, sysid.Training] = {
        "every_sample": sysid.Adaptive(),
        "stored": sysid.MaximumAPosteriori(),
    }
    for learning, training in trainings.items():
        yield from _soak(plan, learning, training)


def _soak(plan: Plan, learning: str, training: sysid.Training) -> Iterator[Row]:
    """Send the long stream through a loop that learns in one way, and yield its rows."""
    narx = sysid.Narx({"displacement": 2})
    rules = sysid.Settings(
        training,
        learning=learning,
        forgetting=SOAK_MEMORY,
        budget=plan.budget,
        seed=plan.seed,
    )
    identification = sysid.Identification(narx, rules)
    window = sysid.LagWindow(narx)
    blocks = sysid.learn_from(
        _drifting(plan), identification, window, outputs=["displacement"], inputs=[]
    )
    n_blocks = max(1, plan.soak_samples // (N_SOAK_PARTS * SOAK_BLOCK_SIZE))
    weights: np.ndarray = np.zeros(3)  # of the linear model
    record = np.zeros(0, RECORD_DTYPE)
    n_stored = 0
    resident = []
    rounding = []
    for part in range(N_SOAK_PARTS):
        squares = np.zeros(3)  # of the errors, of those of least squares, of the targets
        for block in islice(blocks, n_blocks):
            if block.correction is not None:  # the last sample was decided one block later
                record[-1] = block.correction
            n_stored += int((record["slot"] >= 0).sum())
            x, y, _ = block.rows
            record = block.record
            lags = np.column_stack([x, np.ones(len(x))])
            predictions = [record["mean"], lags @ weights, 0.0 * y]
            squares += np.nansum((y - predictions) ** 2, axis=1)
            weights, *_ = np.linalg.lstsq(lags, y)
        model = identification.require_model()
        rounding.append(_rounding_of(model.gp, model.scaling.transform(x)))
        resident.append(resident_memory())
        n_sent = (part + 1) * n_blocks * SOAK_BLOCK_SIZE
        yield row(
            f"{learning}: errors of fifth {part + 1}",
            squares[0] / squares[1],
            "of least squares",
            target="<= 0.1",
            samples=n_sent,
            SMSE=squares[0] / squares[2],
            MiB=resident[-1],
            rounding=rounding[-1],
        )
    yield row(f"{learning}: memory", resident[-1] - resident[1], "MiB more", target="<= 1")
    gp = model.gp
    counts = gp.counts()
    n_stored += int((record["slot"] >= 0).sum())
    missed_samples = abs(n_sent - narx.max_lag - counts["seen"])
    missed_points = abs(n_stored - counts["entries"])
    yield row(
        f"{learning}: counters",
        missed_samples + missed_points,
        "not counted",
        target="<= 0",
        samples=n_sent,
        places=n_stored,
    )
    yield row(
        f"{learning}: rounding",
        max(rounding),
        "of the noise",
        target="<= 0.01",
        **gp.repairs,
    )


def _rounding_of(gp: sysid.OnlineGP, tests: np.ndarray) -> float:
    """Return how far predictions are from those with factors from scratch, over the noise."""
    fresh = gp.copy()
    fresh.reduce_to(gp.n_points)
    mean, variance = np.abs(np.subtract(gp.predict(tests), fresh.predict(tests)))
    noise = gp.noise_variance
    return max(mean.max() / math.sqrt(noise), variance.max() / noise)


def _drifting(plan: Plan) -> Iterator[SimpleNamespace]:
    """Yield blocks of samples without end; the damping changes from block to block."""
    state = None
    for k in count():
        plant = simulators.VanDerPol(damping=2.0 + np.sin(0.01 * k))
        made = simulators.simulate(
            plant, n_samples=SOAK_BLOCK_SIZE + 1, initial_state=state, seed=plan.seed + k
        )
        state = made.state[-1]
        yield SimpleNamespace(output=made.output[:-1], input=made.input[:-1])


# --- scores of the points: the published way and the compiled way ---------------------------------


class LeftOut(NamedTuple):
    """A point, and the set without it: all that a formula needs except the Cholesky factor."""

    covariance: np.ndarray  # (n, n) Ky of the others, Fortran order
    targets: np.ndarray  # (n,) of the others
    cross: np.ndarray  # (n,) covariances of the point with the others
    prior: float  # k(x_i, x_i)
    target: float  # y_i
    mean: float  # mu_i, predicted by the whole set
    noise_variance: float


def leave_out(
    covariance: np.ndarray,
    targets: np.ndarray,
    mean: np.ndarray,
    i: int,
    noise_variance: float,
) -> LeftOut:
    """Leave point i out of a set.

    The set has the symmetric Ky (n, n), targets (n,) and the means (n,) that it predicts for them.
    """
    without_row = np.delete(covariance, i, 0)
    without = np.delete(without_row, i, 1).T  # in the order of Fortran
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


# The published way to score a point factorises the set without it (section 3.2 of the paper).


def prior_entropy(point: LeftOut) -> float:
    """Return ``-H(y_/i) = -(n/2) (1 + log 2 pi) - 0.5 log|Ky_/i|``."""
    half_log_determinant = _half_log_determinant(_factor(point.covariance))
    return -0.5 * len(point.targets) * (1.0 + LOG_2PI) - half_log_determinant


def predictive_entropy(point: LeftOut) -> float:
    """Return ``0.5 (1 + log 2 pi) + 0.5 log(latent variance)``."""
    variance = _latent_variance(_factor(point.covariance), point)
    return 0.5 * (1.0 + LOG_2PI) + 0.5 * math.log(variance)


def mean_relevance(point: LeftOut) -> float:
    """Return ``(mu_i - mu_/i)^2``."""
    change: float = point.mean - point.cross @ solve(point.covariance, point.targets)
    return change * change


def log_predictive_density(point: LeftOut) -> float:
    """Return ``-log p(y_i | y_/i)`` with the noisy variance."""
    factor = _factor(point.covariance)
    variance = _latent_variance(factor, point) + point.noise_variance
    error: float = point.target - point.cross @ lapack.dpotrs(factor, point.targets, lower=1)[0]
    return 0.5 * (LOG_2PI + math.log(variance)) + 0.5 * error * error / variance


def marginal_log_likelihood(point: LeftOut) -> float:
    """Return ``log p(y_/i)``."""
    factor = _factor(point.covariance)
    n = len(point.targets)
    whitened, _ = lapack.dtrtrs(factor, point.targets, lower=1)
    return float(-0.5 * whitened @ whitened) - _half_log_determinant(factor) - 0.5 * n * LOG_2PI


def solve(covariance: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return ``Ky^-1 y`` by a Cholesky factorisation."""
    return lapack.dpotrs(_factor(covariance), targets, lower=1)[0]


def _factor(covariance: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor; the numbers above its diagonal have no meaning."""
    return lapack.dpotrf(covariance, lower=1, clean=0)[0]


def _half_log_determinant(factor: np.ndarray) -> float:
    return float(np.log(factor.diagonal()).sum())


def _latent_variance(factor: np.ndarray, point: LeftOut) -> float:
    whitened, _ = lapack.dtrtrs(factor, point.cross, lower=1)
    return float(point.prior - whitened @ whitened)


#: Published formulas by the names of their criteria.
PUBLISHED_SCORES = {
    formula.__name__: formula
    for formula in (
        prior_entropy,
        predictive_entropy,
        mean_relevance,
        marginal_log_likelihood,
        log_predictive_density,
    )
}


class Scored(NamedTuple):
    """A full dictionary and a candidate for it, with their data."""

    gp: sysid.OnlineGP
    points: Samples  # the N stored ones, oldest first
    candidate: Samples  # one

    def published(self, i: int) -> LeftOut:
        """Leave stored point i out of the set with the candidate."""
        x = np.vstack([self.points.inputs, self.candidate.inputs])
        y = np.concatenate([self.points.targets, self.candidate.targets])
        noise_variance = self.gp.noise_variance
        covariance = np.asfortranarray(self.gp.kernel(x, x) + noise_variance * np.eye(len(y)))
        mean = y - noise_variance * solve(covariance, y)
        return leave_out(covariance, y, mean, i, noise_variance)

    def compiled_scores(self, criterion: sysid.Criterion, times: int) -> Callable[[], np.ndarray]:
        """Return a compiled function that scores all points ``times`` times: (times, N)."""
        x = np.repeat(self.candidate.inputs, times, axis=0)
        y = np.repeat(self.candidate.targets, times)
        return lambda: self.gp.candidate_scores(x, y, criterion)


def scored(size: int, seed: int) -> Scored:
    """Return ``size`` stored points and a candidate; the data are random, as in table 1."""
    rng = np.random.default_rng([seed, size])
    samples = Samples(rng.normal(size=(size + 1, N_FEATURES)), rng.normal(size=size + 1))
    points = samples.part(0, size)
    gp = online_gp(size, noise_variance=SCORED_NOISE_VARIANCE).fit(*points)
    return Scored(gp, points, samples.part(size))


def score_seconds(size: int, rounds: int, seed: int) -> dict[tuple[str, str], np.ndarray]:
    """Return the seconds (rounds,) by way and criterion; the ways are measured in turns.

    The published way scores ONE point, the compiled way all N. The published way is given the
    covariance without the point and the sums that it shares with other points, and calls LAPACK
    directly: only the factorisation and the criterion are timed. The compiled way includes the
    covariances of the candidate.
    """
    case = scored(size, seed)
    times = max(1, SCORINGS_PER_RUN * 100 // max(size, 100))
    point = case.published(0)
    jobs: dict[tuple[str, str], Job] = {}
    for name, formula in PUBLISHED_SCORES.items():
        jobs[PUBLISHED_WAY, name] = Job(partial(formula, point))
        jobs[COMPILED_WAY, name] = Job(case.compiled_scores(CRITERIA[name](), times), times)
    return interleave(jobs, rounds)


def rounds_for(size: int, repetitions: int) -> int:
    """Return the number of rounds for a size: all up to 100 points, then fewer, at least 5.

    A factorisation takes longer with more points.
    """
    return min(repetitions, max(5, round(repetitions * min(1.0, (100 / size) ** 2))))


def replace_by_textbook(
    gp: sysid.OnlineGP, start: Samples, samples: Samples
) -> Iterator[np.ndarray]:
    """Yield the targets (N,) of the points after each replacement.

    Every point is scored by a Cholesky factorisation of its own. The criterion is mean relevance,
    ``(mu_i - mu_/i)^2``, with the candidate in the set. LAPACK is called directly, and the
    covariance is kept.
    """
    inputs = start.inputs
    targets = start.targets
    noise_variance = gp.noise_variance
    covariance = gp.kernel(inputs, inputs) + noise_variance * np.eye(len(targets))
    for x, y in zip(*samples, strict=True):
        inputs = np.vstack([inputs, x])
        targets = np.append(targets, y)
        covariance = np.asfortranarray(np.pad(covariance, (0, 1)))
        new = gp.kernel(x[None, :], inputs)[0]
        covariance[-1, :] = new
        covariance[:, -1] = new
        covariance[-1, -1] += noise_variance
        mean = targets - noise_variance * solve(covariance, targets)
        changes = [
            mean_relevance(leave_out(covariance, targets, mean, i, noise_variance))
            for i in range(len(targets) - 1)
        ]
        kept = np.arange(len(targets)) != np.argmin(changes)
        inputs = inputs[kept]
        targets = targets[kept]
        covariance = np.asfortranarray(covariance[kept][:, kept])
        solve(covariance, targets)  # the model that predicts the next sample
        yield targets


def textbook(plan: Plan) -> Iterator[Row]:
    """Time one replacement by N Cholesky factorisations against one by `OnlineGP`.

    Criterion and samples are the same. ``same points`` in the details is the fraction of the points
    that both dictionaries share afterwards.
    """
    samples = narx_samples(
        plan.budget + N_COMPILED_REPLACEMENTS,
        noise_variance=SCORED_NOISE_VARIANCE,
        seed=plan.seed,
    )
    start = samples.part(0, plan.budget)
    rest = samples.part(plan.budget)
    few = rest.part(0, N_TEXTBOOK_REPLACEMENTS)
    gp = online_gp(plan.budget, reduction=sysid.MeanRelevance(), acceptance=sysid.AcceptAll())
    gp.fit(*start)
    rewind = rewinder(gp)
    jobs = {
        "textbook": Job(lambda: list(replace_by_textbook(gp, start, few)), N_TEXTBOOK_REPLACEMENTS),
        "ours": Job(lambda: gp.update_many(*rest), N_COMPILED_REPLACEMENTS, rewind),
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
