"""Cost of one sample in matrix-vector products, memory, and rounding errors after very many replacements."""

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import lapack

import sysid
from experiments.benchmarks.harness import Job, Plan, Row, interleave, ratio, row, timed
from sysid.gp.dictionary import PROBE_INTERVAL

N_FEATURES = 9
NEVER = sysid.ErrorThreshold(error_threshold=1e12)  # no sample asks for a place
CRITERIA = {
    "prior_entropy": sysid.PriorEntropy(),
    "mean_relevance": sysid.MeanRelevance(),
    "marginal_log_likelihood": sysid.MarginalLogLikelihood(),
}
UNIT = "matvec"
SEARCH = 100  # blocks of samples among which accepted ones are looked for
NOISE_VARIANCES = (1e-2, 1e-4, 1e-6, 1e-8)  # signal variance
TEST_POINTS = 500
SAMPLES = 10  # learned while the peak of the memory is measured


class Samples(NamedTuple):
    """Regressors and targets of a stream."""

    inputs: np.ndarray  # (n, N_FEATURES), standardised
    targets: np.ndarray  # (n,), variance 1 without the noise

    def part(self, start: int, stop: int | None = None) -> "Samples":
        """Samples from start to stop."""
        return Samples(self.inputs[start:stop], self.targets[start:stop])


def narx_samples(n: int, *, noise_variance: float = 1e-2, seed: int) -> Samples:
    """Stream of a nonlinear system of order two under two slow inputs, three lags of each signal.

    ``y[k] = 0.6 tanh(y[k-1]) + 0.25 y[k-2] + 0.5 u1[k-1] + 0.2 u2[k-1] tanh(y[k-2])``, the
    inputs moving averages of white noise over 5 and 20 samples: neighbouring lags are nearly
    the same, which makes covariance matrices as ill-conditioned as they are in practice.
    """
    rng = np.random.default_rng(seed)
    length = n + 200
    u1, u2 = (np.convolve(rng.normal(size=length), np.ones(width) / np.sqrt(width), "same") for width in (5, 20))
    y = [0.0, 0.0]
    for one, two in zip(u1[1:-1].tolist(), u2[1:-1].tolist(), strict=True):
        slow = 0.2 * two * math.tanh(y[-2])
        y.append(0.6 * math.tanh(y[-1]) + 0.25 * y[-2] + 0.5 * one + slow)
    signals = [np.roll(signal, lag) for signal in (y, u1, u2) for lag in (1, 2, 3)]
    inputs = np.stack(signals, axis=1)[-n:]
    targets = (np.array(y[-n:]) - np.mean(y)) / np.std(y) + np.sqrt(noise_variance) * rng.normal(size=n)
    return Samples(np.ascontiguousarray((inputs - inputs.mean(0)) / inputs.std(0)), targets)


def online_gp(budget: int, *, noise_variance: float = 1e-2, length_scale: float = 3.0, **rules: Any) -> sysid.OnlineGP:
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

    The same samples are learned again and again from the same dictionary by `update_many`, every one of
    them replaces a point (``accepted`` in the details is the fraction that did), and their number is a
    multiple of the interval of the drift probe, which is thereby included. With an acceptance rule, the
    refused samples of the stream are left out: they leave no trace in the dictionary.
    """
    rules: dict[str, tuple[sysid.Criterion, sysid.Acceptance]] = {}
    for name, criterion in CRITERIA.items():
        rules[name] = criterion, sysid.AcceptAll()
        rules[f"{name}, matched acceptance"] = criterion, sysid.ExceedsMinimum(criterion)
    rules["oldest leaves (worst case)"] = OldestLeaves(), sysid.AcceptAll()
    for size in plan.sizes:
        samples = narx_samples(size + SEARCH * _block(size), seed=plan.seed)
        for name, (reduction, acceptance) in rules.items():
            gp = online_gp(size, reduction=reduction, acceptance=acceptance).fit(*samples.part(0, size))
            rewind = rewinder(gp)
            chosen = _accepted(gp, samples.part(size), _block(size))
            seconds = _against_product(gp, rewind, chosen, plan)
            rewind()
            fraction = float((gp.update_many(*chosen)["removed"] >= 0).mean())
            details = {"samples": len(chosen.targets), "accepted": fraction}
            yield ratio(f"N={size} {name}", seconds, ("ours", UNIT), UNIT, target="<= 8", **details)


def not_inserted(plan: Plan) -> Iterator[Row]:
    """One sample predicted (mean and variance) and not inserted, against one product ``A @ b``; the same, learned."""
    for size in plan.sizes:
        samples = narx_samples(size + _block(size), seed=plan.seed)
        for learning, name, most in (("stored", f"N={size}", 2), ("every_sample", f"N={size} learned", 8)):
            gp = online_gp(size, insertion=NEVER, learning=learning, scale=False).fit(*samples.part(0, size))
            seconds = _against_product(gp, lambda: None, samples.part(size), plan)
            yield ratio(name, seconds, ("ours", UNIT), UNIT, target=f"<= {most}")


def _against_product(
    gp: sysid.OnlineGP, rewind: Callable[[], None], samples: Samples, plan: Plan
) -> dict[str, np.ndarray]:
    """Seconds per sample of `update_many`, and per product of a square matrix by `numpy.dot` without allocation."""
    size, products = gp.budget, 3 * _block(gp.budget)
    rng = np.random.default_rng(size)
    matrix, vector, out = rng.normal(size=(size, size)), rng.normal(size=size), np.empty(size)

    def multiply() -> None:
        for _ in range(products):
            np.dot(matrix, vector, out=out)

    ours = Job(lambda: gp.update_many(*samples), len(samples.targets), rewind)
    return interleave({UNIT: Job(multiply, products), "ours": ours}, plan.rounds(size))


def _block(size: int) -> int:
    """Samples of one run: few milliseconds where possible, a multiple of the interval of the drift probe."""
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

    jobs = {"replaced": job(online_gp(plan.budget)), "not inserted": job(online_gp(plan.budget, insertion=NEVER))}
    for name, seconds in interleave(jobs, plan.rounds(plan.budget)).items():
        yield timed(f"N={plan.budget} {name}", 1e6 * seconds, "us", target="<= 20")


def memory(plan: Plan) -> Iterator[Row]:
    """Bytes that a full `OnlineGP` holds, traced allocations, in matrices of N^2 numbers of 8 bytes.

    ``peak of learning`` in the details: bytes that `update_many` needs on top for some samples.
    """
    samples = narx_samples(max(plan.sizes) + SAMPLES, seed=plan.seed)
    _held_bytes(min(plan.sizes), samples)  # compiles and fills caches
    held = {size: _held_bytes(size, samples) for size in plan.sizes}
    for size, (bytes_held, on_top) in held.items():
        details: dict[str, Any] = {"MB": bytes_held / 1e6, "peak of learning kB": on_top / 1e3}
        yield row(f"N={size}", bytes_held / (8 * size**2), "N^2 x 8 bytes", **details)
    slope = np.polyfit(np.log(list(held)), np.log([entry[0] for entry in held.values()]), 1)[0]
    yield row("growth with N", slope, "exponent")


def _held_bytes(size: int, samples: Samples) -> tuple[int, int]:
    """Bytes of a full GP, and the peak on top of them while it learns."""
    gc.collect()
    tracemalloc.start()
    try:
        gp = online_gp(size).fit(*samples.part(0, size))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        gp.update_many(*samples.part(size, size + SAMPLES))
        return held, tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()


# --- rounding errors ------------------------------------------------------------------------------


class Posterior(NamedTuple):
    """What n points say about themselves and about m test points, in some precision."""

    precision: np.ndarray  # (n,) diag(Ky^-1)
    mean: np.ndarray  # (m,)
    variance: np.ndarray  # (m,) latent


def accuracy(plan: Plan) -> Iterator[Row]:
    """Errors of a dictionary after many replacements, beside those of a double precision Cholesky.

    Reference: a Cholesky factorisation of the same covariance in extended precision. Largest error over the
    points, or over test points of the stream: of ``diag(Ky^-1)`` relative to itself, of the mean
    relative to the largest mean, of the variance relative to the noisy variance. Length scales of ten
    standard deviations make the covariance as ill-conditioned as the noise allows. ``fresh fit`` in the
    details: an `OnlineGP` fitted to the same points at once, which has no history.
    """
    name = "marginal_log_likelihood"
    rules: dict[str, sysid.Criterion] = {name: CRITERIA[name], "oldest leaves": OldestLeaves()}
    for noise_variance in NOISE_VARIANCES:
        samples = narx_samples(plan.budget + plan.replacements, noise_variance=noise_variance, seed=plan.seed)
        tests = np.random.default_rng(plan.seed).choice(samples.inputs, TEST_POINTS)
        for name, reduction in rules.items():
            gp = online_gp(plan.budget, noise_variance=noise_variance, reduction=reduction, length_scale=10.0)
            replaced = int((gp.update_many(*samples)["removed"] >= 0).sum())
            inputs, targets = gp.inputs[gp.age_order], gp.targets[gp.age_order]
            fresh = sysid.OnlineGP(gp.kernel, noise_variance=noise_variance, budget=gp.budget).fit(inputs, targets)
            covariance = gp.kernel(inputs, inputs) + noise_variance * np.eye(len(targets))
            problem = (covariance, targets, gp.kernel(tests, inputs), gp.kernel.diagonal(tests))

            exact = extended_posterior(*problem)
            ours = _errors(Posterior(gp.state()["precision"], *gp.predict(tests)), exact, noise_variance)
            cholesky = _errors(double_posterior(*problem), exact, noise_variance)
            refit = _errors(Posterior(fresh.state()["precision"], *fresh.predict(tests)), exact, noise_variance)
            counts = {"replacements": replaced, "refactorisations": gp.n_refactorisations}
            counts["condition"] = np.linalg.cond(covariance)
            for quantity, error in ours.items():
                details: dict[str, Any] = {"Cholesky": cholesky[quantity], "fresh fit": refit[quantity]} | counts
                yield row(f"noise {noise_variance:g}, {name}: {quantity}", error, "relative error", **details)


def _errors(found: Posterior, exact: Posterior, noise_variance: float) -> dict[str, float]:
    error = [np.abs(a - b) for a, b in zip(found, exact, strict=True)]
    return {
        "diagonal of inverse": float((error[0] / exact.precision).max()),
        "mean": float(error[1].max() / np.abs(exact.mean).max()),
        "variance": float((error[2] / (exact.variance + noise_variance)).max()),
    }


def extended_posterior(covariance: np.ndarray, targets: np.ndarray, cross: np.ndarray, prior: np.ndarray) -> Posterior:
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
    factor, inverse = np.zeros_like(matrix), np.eye(len(matrix), dtype=matrix.dtype)
    for j in range(len(matrix)):  # column j of L, then row j of L^-1
        factor[j, j] = np.sqrt(matrix[j, j] - factor[j, :j] @ factor[j, :j])
        factor[j + 1 :, j] = (matrix[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j]) / factor[j, j]
        inverse[j] = (inverse[j] - factor[j, :j] @ inverse[:j]) / factor[j, j]
    projected = cross.astype(np.longdouble) @ inverse.T
    mean = projected @ (inverse @ targets.astype(np.longdouble))
    return Posterior((inverse**2).sum(axis=0), mean, prior - (projected**2).sum(axis=1))


def double_posterior(covariance: np.ndarray, targets: np.ndarray, cross: np.ndarray, prior: np.ndarray) -> Posterior:
    """Posterior from a Cholesky factor in double precision, from scratch by LAPACK; see `extended_posterior`."""
    factor, _ = lapack.dpotrf(covariance, lower=1, clean=1)
    projected, _ = lapack.dtrtrs(factor, cross.T, lower=1)
    whitened, _ = lapack.dtrtrs(factor, targets, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1)
    return Posterior(np.diag(inverse), projected.T @ whitened, prior - (projected**2).sum(axis=0))
