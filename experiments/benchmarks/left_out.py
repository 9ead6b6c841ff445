"""The published way to score a point: the set without it is factorised anew (section 3.2 of the paper)."""

from collections.abc import Callable
from math import log, pi
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

LOG_2PI = log(2.0 * pi)


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


def prior_entropy(point: LeftOut) -> float:
    """``-H(y_/i) = -(n/2) (1 + log 2 pi) - 0.5 log|Ky_/i|``."""
    return -0.5 * len(point.targets) * (1.0 + LOG_2PI) - _half_log_determinant(_factor(point.covariance))


def predictive_entropy(point: LeftOut) -> float:
    """``0.5 (1 + log 2 pi) + 0.5 log(latent variance)``."""
    return 0.5 * (1.0 + LOG_2PI) + 0.5 * log(_latent_variance(_factor(point.covariance), point))


def mean_relevance(point: LeftOut) -> float:
    """``(mu_i - mu_/i)^2``."""
    change: float = point.mean - point.cross @ solve(point.covariance, point.targets)
    return change * change


def log_predictive_density(point: LeftOut) -> float:
    """``-log p(y_i | y_/i)`` with the noisy variance."""
    factor = _factor(point.covariance)
    variance = _latent_variance(factor, point) + point.noise_variance
    error: float = point.target - point.cross @ lapack.dpotrs(factor, point.targets, lower=1)[0]
    return 0.5 * (LOG_2PI + log(variance)) + 0.5 * error * error / variance


def marginal_log_likelihood(point: LeftOut) -> float:
    """``log p(y_/i)``."""
    factor, n = _factor(point.covariance), len(point.targets)
    whitened, _ = lapack.dtrtrs(factor, point.targets, lower=1)
    return float(-0.5 * whitened @ whitened) - _half_log_determinant(factor) - 0.5 * n * LOG_2PI


#: the five criteria by their names in the options
PUBLISHED_SCORES: dict[str, Callable[[LeftOut], float]] = {
    score.__name__: score
    for score in (
        prior_entropy,
        predictive_entropy,
        mean_relevance,
        log_predictive_density,
        marginal_log_likelihood,
    )
}


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
