"""Rounding errors after very many replacements, against a posterior in extended precision (80 bits on x86)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from experiments.benchmarks.harness import Plan, Row, row
from experiments.benchmarks.replacement import OldestLeaves, narx_samples, online_gp
from sysid import MarginalLogLikelihood, OnlineGP

NOISE_VARIANCES = (1e-2, 1e-4, 1e-6, 1e-8)  # signal variance
CRITERIA = {"marginal_log_likelihood": MarginalLogLikelihood(), "oldest leaves": OldestLeaves()}
TEST_POINTS = 500


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
    for noise_variance in NOISE_VARIANCES:
        samples = narx_samples(plan.budget + plan.replacements, noise_variance=noise_variance, seed=plan.seed)
        tests = np.random.default_rng(plan.seed).choice(samples.inputs, TEST_POINTS)
        for name, reduction in CRITERIA.items():
            gp = online_gp(plan.budget, noise_variance=noise_variance, reduction=reduction, length_scale=10.0)
            replaced = int((gp.update_many(*samples)["removed"] >= 0).sum())
            inputs, targets = gp.inputs[gp.age_order], gp.targets[gp.age_order]
            fresh = OnlineGP(gp.kernel, noise_variance=noise_variance, budget=gp.budget).fit(inputs, targets)
            covariance = gp.kernel(inputs, inputs) + noise_variance * np.eye(len(targets))
            problem = (covariance, targets, gp.kernel(tests, inputs), gp.kernel.diagonal(tests))

            exact = extended_posterior(*problem)
            ours = _errors(Posterior(gp.state()["precision"], *gp.predict(tests)), exact, noise_variance)
            cholesky = _errors(double_posterior(*problem), exact, noise_variance)
            refit = _errors(Posterior(fresh.state()["precision"], *fresh.predict(tests)), exact, noise_variance)
            counts = {"replacements": replaced, "refactorisations": gp.n_refactorisations}
            for quantity, error in ours.items():
                beside = {"Cholesky": cholesky[quantity], "fresh fit": refit[quantity]}
                details = beside | counts | {"condition": np.linalg.cond(covariance)}
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
