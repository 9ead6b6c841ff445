"""Reference in extended precision (80 bits on x86): posterior of a GP by Cholesky."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack


class Posterior(NamedTuple):
    """What a set of points says, in some precision."""

    precision: np.ndarray  # (n,) diag(Ky^-1)
    mean: np.ndarray  # (m,)
    variance: np.ndarray  # (m,) latent


class Problem(NamedTuple):
    """Points, targets and test points as covariances."""

    covariance: np.ndarray  # (n, n) Ky
    targets: np.ndarray  # (n,)
    cross: np.ndarray  # (m, n) test points to points
    prior: np.ndarray  # (m,) prior variance of the test points


def extended_posterior(problem: Problem) -> Posterior:
    """Posterior from a Cholesky factor in `numpy.longdouble`."""
    inverse = _inverse_factor(_cholesky(problem.covariance.astype(np.longdouble)))
    projected = problem.cross.astype(np.longdouble) @ inverse.T
    mean = projected @ (inverse @ problem.targets.astype(np.longdouble))
    variance = problem.prior - (projected**2).sum(axis=1)
    return Posterior((inverse**2).sum(axis=0), mean, variance)


def double_posterior(problem: Problem) -> Posterior:
    """Posterior from a Cholesky factor in double precision, from scratch by LAPACK."""
    factor, _ = lapack.dpotrf(problem.covariance, lower=1, clean=1)
    projected, _ = lapack.dtrtrs(factor, problem.cross.T, lower=1)
    whitened, _ = lapack.dtrtrs(factor, problem.targets, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1)
    return Posterior(np.diag(inverse), projected.T @ whitened, problem.prior - (projected**2).sum(axis=0))


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    factor = np.zeros_like(matrix)
    for j in range(len(matrix)):
        factor[j, j] = np.sqrt(matrix[j, j] - factor[j, :j] @ factor[j, :j])
        factor[j + 1 :, j] = (matrix[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j]) / factor[j, j]
    return factor


def _inverse_factor(factor: np.ndarray) -> np.ndarray:
    inverse = np.eye(len(factor), dtype=factor.dtype)
    for i in range(len(factor)):
        inverse[i] = (inverse[i] - factor[i, :i] @ inverse[:i]) / factor[i, i]
    return inverse
