"""Exact Gaussian process: marginal likelihood of samples, its gradient, and its maximisation."""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import OptimizeResult, minimize

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
    noise_factors: np.ndarray | None = None,
) -> Likelihood:
    """Return the log marginal likelihood of samples and its gradient.

    With ``Ky = K + noise_variance D``, D the diagonal matrix of the noise factors or I::

        log p(y) = -0.5 y' Ky^-1 y - 0.5 log|Ky| - (n/2) log 2 pi

    Gradient with ``W = a a' - Ky^-1``, ``a = Ky^-1 y`` (Rasmussen and Williams, equation 5.9)::

        d log p / d log theta = 0.5 sum_ij W_ij dK_ij / d log theta
        d log p / d log noise_variance = 0.5 noise_variance tr(W D)

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        Target unit squared.
    inputs : (n, p)
    targets : (n,)
    n_given : int
        Number of first samples that are only conditioned on: the result is then ``log p(y_others |
        y_given) = log p(y) - log p(y_given)``. The leading block of the Cholesky factor of Ky is
        the factor of the given samples.
    noise_factors : (n,), optional
        Noise variance of each sample, as a multiple of `noise_variance`; None: all are 1.

    Raises
    ------
    sysid.arrays.NotPositiveDefiniteError
        If Ky is not positive definite in double precision.
    """
    k = kernel(inputs, inputs)
    factor = _factor_with_noise(k, noise_variance, noise_factors)
    value, w = _value_and_weights(factor, targets)
    if n_given:
        factor_given = np.asfortranarray(factor[:n_given, :n_given])
        value_given, w_given = _value_and_weights(factor_given, targets[:n_given])
        value -= value_given
        w[:n_given, :n_given] -= w_given
    by_kernel = 0.5 * kernel.contract_gradient(w, inputs, k)
    if noise_factors is None:
        by_noise = 0.5 * noise_variance * np.trace(w)
    else:
        by_noise = 0.5 * noise_variance * float(np.diagonal(w) @ noise_factors)
    return Likelihood(float(value), np.append(by_kernel, by_noise))


def _factor_with_noise(
    k: np.ndarray, noise_variance: float, noise_factors: np.ndarray | None = None
) -> np.ndarray:
    """Return the lower Cholesky factor of Ky (n, n), with zeros above the diagonal.

    K (n, n) and the noise are those of `log_marginal_likelihood`; K is not changed.
    """
    n = len(k)
    ky = k.copy()
    noise = noise_variance if noise_factors is None else noise_variance * noise_factors
    ky[np.arange(n), np.arange(n)] += noise
    factor, status = lapack.dpotrf(ky, lower=1, clean=1)
    if status != 0:
        raise NotPositiveDefiniteError(
            f"log_marginal_likelihood: covariance of {n} points is not positive definite"
        )
    return factor


def _value_and_weights(factor: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    """Return ``log p(y)`` and W (n, n) of `log_marginal_likelihood`.

    `factor` (n, n) is the lower Cholesky factor of Ky, with zeros above the diagonal.
    """
    a, _ = lapack.dpotrs(factor, targets, lower=1)
    data_fit = -0.5 * targets @ a
    complexity = np.log(np.diag(factor)).sum()
    constant = 0.5 * len(targets) * np.log(2.0 * np.pi)
    value = data_fit - complexity - constant
    # LAPACK fills only the lower half of the inverse; the zeros above the diagonal stay.
    inverse, _ = lapack.dpotri(factor, lower=1)
    weights = np.outer(a, a)
    weights -= inverse
    inverse[np.arange(len(a)), np.arange(len(a))] = 0.0
    weights -= inverse.T
    return value, weights


class LeaveOneOut(NamedTuple):
    """Prediction of every stored point from all the others, in slot order."""

    residual: np.ndarray  # y_i - mu_/i
    variance: np.ndarray  # noisy: latent variance plus noise variance

    @property
    def log_density(self) -> float:
        """Sum of the log predictive densities of all points, less a constant.

        Each point is predicted from the others, so this is the log pseudo-likelihood.
        """
        return -0.5 * float(np.sum(self.residual**2 / self.variance + np.log(self.variance)))


def leave_one_out(
    kernel: Kernel,
    noise_variance: float,
    inputs: np.ndarray,
    targets: np.ndarray,
    noise_factors: np.ndarray | None = None,
) -> LeaveOneOut:
    """Predict every sample (n, p), (n,) from all others: residual ``a_i/q_i``, variance ``1/q_i``.

    With ``q = diag(Ky^-1)`` and the symbols of `log_marginal_likelihood` (Rasmussen and Williams,
    equation 5.12). The variance contains the noise of the sample, with its factor.

    Raises
    ------
    sysid.arrays.NotPositiveDefiniteError
        If Ky is not positive definite in double precision.
    """
    root = _factor_with_noise(kernel(inputs, inputs), noise_variance, noise_factors)
    inverse_root, _ = lapack.dtrtri(root, lower=1)
    variance = 1.0 / np.square(inverse_root).sum(axis=0)
    weights = inverse_root.T @ (inverse_root @ targets)
    return LeaveOneOut(weights * variance, variance)


class ExactGP:
    """Exact Gaussian process that predicts from samples (n, p), (n,).

    Raises
    ------
    sysid.arrays.NotPositiveDefiniteError
        If Ky is not positive definite in double precision.
    """

    def __init__(
        self, kernel: Kernel, noise_variance: float, inputs: np.ndarray, targets: np.ndarray
    ) -> None:
        self._kernel = kernel
        self._noise_variance = noise_variance
        self._inputs = inputs
        self._root = _factor_with_noise(kernel(inputs, inputs), noise_variance)
        self._weights, _ = lapack.dpotrs(self._root, targets, lower=1)

    def predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (m,) and the variance with noise (m,) at inputs (m, p).

        ``k' Ky^-1 y`` and ``k(x, x) - k' Ky^-1 k + noise_variance`` (Rasmussen and Williams,
        equations 2.25 and 2.26).
        """
        k = self._kernel(self._inputs, inputs)
        whitened, _ = lapack.dtrtrs(self._root, k, lower=1)
        latent = self._kernel.diagonal(inputs) - np.square(whitened).sum(axis=0)
        return k.T @ self._weights, np.maximum(latent, 0.0) + self._noise_variance


#: A search for hyper-parameters ends at this gain of an iteration [nats per sample], if nothing
#: else is said. The log density itself contains the logarithm of the target's unit for each sample:
#: a gain relative to it would end the search elsewhere in another unit.
TOLERANCE = 2.2e-9


class Optimum(NamedTuple):
    """Result of a minimisation."""

    x: np.ndarray
    cost: float
    cost_at_start: float
    converged: bool
    n_evaluations: int  # of the cost and its gradient


class EvaluationsUsedUp(Exception):
    """The cost has been evaluated as often as allowed."""


def minimise(
    cost: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    bounds: np.ndarray,
    *,
    max_iterations: int,
    max_evaluations: float = inf,
    min_gain: float,
    has_to_end: Callable[[], bool] = lambda: False,
) -> Optimum:
    """Minimise a cost with its gradient by L-BFGS-B.

    Parameters
    ----------
    cost : callable
        Returns the value and the gradient (n,) at x (n,).
    start : (n,)
        Within the bounds.
    bounds : (n, 2)
    max_iterations : int
        Largest number of line searches; each may evaluate the cost several times.
    max_evaluations : float
        Largest number of evaluations of the cost. The search then ends with the best point so far.
    min_gain : float
        The search has converged once an iteration lowers the cost by less than this, in the unit of
        the cost. Whether it has does not depend on a constant that is added to the cost.
    has_to_end : callable
        Returns whether the search has to end with the best point so far; it is asked after the
        first evaluation.
    """
    evaluations: list[tuple[float, np.ndarray]] = []

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        if len(evaluations) >= max_evaluations or (evaluations and has_to_end()):
            raise EvaluationsUsedUp
        value, gradient = cost(x)
        evaluations.append((value, x.copy()))
        return value, gradient

    costs: list[float] = []

    def gain_is_small() -> bool:
        before = costs[-2] if len(costs) > 1 else evaluations[0][0]
        return before - costs[-1] < min_gain

    def stop_if_gain_is_small(intermediate_result: OptimizeResult) -> None:
        costs.append(float(intermediate_result.fun))
        if gain_is_small():
            raise StopIteration

    try:
        result = minimize(
            evaluate,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iterations, "ftol": 0.0},
            callback=stop_if_gain_is_small,
        )
        x = result.x
        value = float(result.fun)
        converged = bool(result.success) or (bool(costs) and gain_is_small())
    except EvaluationsUsedUp:
        value, x = min(evaluations, key=lambda value_and_x: value_and_x[0])
        converged = False
    cost_at_start, _ = evaluations[0]
    return Optimum(x, value, cost_at_start, converged, len(evaluations))
