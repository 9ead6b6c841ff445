"""Rounding errors after very many replacements."""

from collections.abc import Iterator

import numpy as np

from experiments.benchmarks.extended import Posterior, Problem, double_posterior, extended_posterior
from experiments.benchmarks.material import OldestLeaves, narx_samples, online_gp
from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row
from sysid import MarginalLogLikelihood, OnlineGP

NOISE_VARIANCES = (1e-2, 1e-4, 1e-6, 1e-8)  # signal variance
CRITERIA = {"marginal_log_likelihood": MarginalLogLikelihood(), "oldest leaves": OldestLeaves()}
TEST_POINTS = 500


def accuracy(plan: Plan) -> Iterator[Row]:
    """Errors of a dictionary after many replacements, beside those of a double precision Cholesky.

    Reference: a Cholesky factorisation of the same covariance in extended precision. Largest error over the
    points, or over test points of the stream: of ``diag(Ky^-1)`` relative to itself, of the mean
    relative to the largest mean, of the variance relative to the noisy variance. Length scales of ten
    standard deviations make the covariance as ill-conditioned as the noise allows. ``fresh fit`` in the
    details: an `OnlineGP` fitted to the same points at once, which has no history.
    """
    for noise_variance in NOISE_VARIANCES:
        for name, reduction in CRITERIA.items():
            samples = narx_samples(plan.budget + plan.replacements, noise_variance=noise_variance, seed=plan.seed)
            gp = online_gp(plan.budget, noise_variance=noise_variance, reduction=reduction, length_scale=10.0)
            replaced = int((gp.update_many(*samples)["removed"] >= 0).sum())
            points = np.random.default_rng(plan.seed).choice(samples.inputs, TEST_POINTS)
            details: dict[str, float] = {"replacements": replaced, "refactorisations": gp.n_refactorisations}
            yield from _rows(f"noise {noise_variance:g}, {name}", gp, points, details)


def _rows(case: str, gp: OnlineGP, points: np.ndarray, details: dict[str, float]) -> Iterator[Row]:
    problem = _problem(gp, points)
    reference = extended_posterior(problem)
    ours = _errors(_posterior(gp, points), reference, gp.noise_variance)
    fresh = OnlineGP(gp.kernel, noise_variance=gp.noise_variance, budget=gp.budget)
    fresh.fit(gp.inputs[gp.age_order], gp.targets[gp.age_order])
    refit = _errors(_posterior(fresh, points), reference, gp.noise_variance)
    cholesky = _errors(double_posterior(problem), reference, gp.noise_variance)
    condition = {"condition": float(np.linalg.cond(problem.covariance))}
    for quantity, error in ours.items():
        beside = {"Cholesky": cholesky[quantity], "fresh fit": refit[quantity]} | details | condition
        yield Row("accuracy", f"{case}: {quantity}", error, "relative error", details=beside)


def _posterior(gp: OnlineGP, points: np.ndarray) -> Posterior:
    return Posterior(gp.state()["precision"], *gp.predict(points))


def _problem(gp: OnlineGP, points: np.ndarray) -> Problem:
    order = gp.age_order
    inputs, targets = gp.inputs[order], gp.targets[order]
    covariance = gp.kernel(inputs, inputs) + gp.noise_variance * np.eye(len(order))
    prior = np.array([gp.kernel(x[None, :], x[None, :])[0, 0] for x in points])
    return Problem(covariance, targets, gp.kernel(points, inputs), prior)


def _errors(found: Posterior, exact: Posterior, noise_variance: float) -> dict[str, float]:
    error = [np.abs(a - b) for a, b in zip(found, exact, strict=True)]
    return {
        "diagonal of inverse": float((error[0] / exact.precision).max()),
        "mean": float(error[1].max() / np.abs(exact.mean).max()),
        "variance": float((error[2] / (exact.variance + noise_variance)).max()),
    }
