"""Exact Gaussian process: the marginal likelihood of a data set, its gradient and its maximum."""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from sysid.arrays import NotPositiveDefiniteError
from sysid.gp.kernels import Kernel


class Likelihood(NamedTuple):
    """Log marginal likelihood and its gradient."""

    value: float
    gradient: np.ndarray  # with respect to (log kernel hyper-parameters, log noise variance)


def log_marginal_likelihood(
    kernel: Kernel,
    noise_variance: float,
    inputs: np.ndarray,
    targets: np.ndarray,
    n_given: int = 0,
) -> Likelihood:
    """``log p(y) = -0.5 y' Ky^-1 y - 0.5 log|Ky| - (n/2) log 2 pi`` with ``Ky = K + noise_variance
    I``.

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
    n_given : int
        So many of the first samples only condition: ``log p(y_others | y_given) = log p(y) - log
        p(y_given)``. The leading block of the factor of Ky is the factor of theirs.

    Raises
    ------
    sysid.arrays.NotPositiveDefiniteError
        If Ky is not positive definite in double precision.
    """
    n = len(targets)
    k = kernel(inputs, inputs)
    ky = k.copy()
    ky[np.arange(n), np.arange(n)] += noise_variance
    factor, status = lapack.dpotrf(ky, lower=1, clean=1)
    if status != 0:
        raise NotPositiveDefiniteError(
            f"log_marginal_likelihood: covariance of {n} points is not positive definite"
        )
    value, w = _value_and_weights(factor, targets)
    if n_given:
        given, w_given = _value_and_weights(
            np.asfortranarray(factor[:n_given, :n_given]), targets[:n_given]
        )
        value -= given
        w[:n_given, :n_given] -= w_given
    gradient = [
        *(0.5 * kernel.contract_gradient(w, inputs, k)),
        0.5 * noise_variance * np.trace(w),
    ]
    return Likelihood(float(value), np.array(gradient))


def _value_and_weights(factor: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    """``log p(y)`` and W (n, n) of `log_marginal_likelihood` by the factor (n, n) of Ky, lower with
    zeros above.
    """
    a, _ = lapack.dpotrs(factor, targets, lower=1)
    value = (
        -0.5 * targets @ a
        - np.log(np.diag(factor)).sum()
        - 0.5 * len(targets) * np.log(2.0 * np.pi)
    )
    inverse, _ = lapack.dpotri(factor, lower=1)  # its lower half; the zeros above stay
    weights = np.outer(a, a)
    weights -= inverse
    inverse[np.arange(len(a)), np.arange(len(a))] = 0.0
    weights -= inverse.T
    return value, weights


class Optimum(NamedTuple):
    """What a minimisation found."""

    x: np.ndarray
    cost: float
    cost_at_start: float
    converged: bool
    n_evaluations: int  # of the cost and its gradient


class EvaluationsUsedUp(Exception):
    """The cost has been evaluated as often as it may be."""


def minimise(
    cost: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    bounds: np.ndarray,
    *,
    max_iterations: int,
    max_evaluations: float = inf,
    tolerance: float = 2.2e-9,
) -> Optimum:
    """Minimise a cost with its gradient by L-BFGS-B.

    Parameters
    ----------
    cost : callable
        Value and gradient (n,) at x (n,).
    start : (n,)
        Within the bounds.
    bounds : (n, 2)
    max_iterations : int
        Line searches; each may evaluate the cost several times.
    max_evaluations : float
        Never exceeded: the search then ends with the best point so far.
    tolerance : float
        The search ends once an iteration lowers the cost by less than this, relative to its
        magnitude (at least 1).
    """
    seen: list[tuple[float, np.ndarray]] = []

    def count(x: np.ndarray) -> tuple[float, np.ndarray]:
        if len(seen) >= max_evaluations:
            raise EvaluationsUsedUp
        value, gradient = cost(x)
        seen.append((value, x.copy()))
        return value, gradient

    options = {"maxiter": max_iterations, "ftol": tolerance}
    try:
        result = minimize(count, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        x = result.x
        value = float(result.fun)
        converged = bool(result.success)
    except EvaluationsUsedUp:
        (value, x), converged = min(seen, key=lambda pair: pair[0]), False
    return Optimum(x, value, seen[0][0], converged, len(seen))
