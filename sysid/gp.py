"""Exact Gaussian process: the marginal likelihood of a data set and its gradient."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, lapack

from sysid.kernels import Kernel


class Likelihood(NamedTuple):
    """Log marginal likelihood and its gradient."""

    value: float
    gradient: np.ndarray  # with respect to (log kernel hyper-parameters, log noise variance)


def log_marginal_likelihood(
    kernel: Kernel, noise_variance: float, inputs: np.ndarray, targets: np.ndarray
) -> Likelihood:
    """``log p(y) = -0.5 y' Ky^-1 y - 0.5 log|Ky| - (n/2) log 2 pi`` with ``Ky = K + noise_variance I``.

    Gradient with ``W = a a' - Ky^-1``, ``a = Ky^-1 y`` (Rasmussen and Williams, equation 5.9)::

        d log p / d log theta = 0.5 sum_ij W_ij dK_ij / d log theta
        d log p / d log noise_variance = 0.5 noise_variance tr W

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        Target unit squared.
    inputs : (n, p)
    targets : (n,)

    Raises
    ------
    numpy.linalg.LinAlgError
        If Ky is not positive definite in double precision.
    """
    n = len(targets)
    k = kernel(inputs, inputs)
    ky = k.copy()
    ky[np.arange(n), np.arange(n)] += noise_variance
    factor, status = lapack.dpotrf(ky, lower=1, clean=1)
    if status != 0:
        raise np.linalg.LinAlgError(f"log_marginal_likelihood: covariance of {n} points is not positive definite")
    a = cho_solve((factor, True), targets, check_finite=False)
    value = -0.5 * targets @ a - np.log(np.diag(factor)).sum() - 0.5 * n * np.log(2.0 * np.pi)
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    w = np.outer(a, a) - inverse
    gradient = [*(0.5 * kernel.contract_gradient(w, inputs, k)), 0.5 * noise_variance * np.trace(w)]
    return Likelihood(float(value), np.array(gradient))
