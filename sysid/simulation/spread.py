"""The uncertainty of simulated outputs about the path of their mean, to first order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid.arrays import Array, Indices
from sysid.compiled import cached_njit
from sysid.gp.online import Projected
from sysid.model.model import Model
from sysid.simulation.dynamics import Dynamics


def variance_along(dynamics: Dynamics, path: Array, exogenous: Array) -> Array:
    """Return the latent variances (b, T, m) of simulated outputs about the paths of their mean.

    Parameters
    ----------
    dynamics : Dynamics
    path : (b, L + T, m)
        Known outputs, then the mean; finite.
    exogenous : (b, T, p)
        Regressors of all steps, zero at the features that are lagged outputs.

    See Also
    --------
    variance_of_errors : the equation.
    """
    regressors = dynamics.regressors_along(path, exogenous)
    gradient = dynamics.gradient(regressors.reshape(-1, regressors.shape[2]))
    gradient = gradient.reshape(*regressors.shape[:2], *gradient.shape[1:])
    is_free = is_within_limits(dynamics, path[:, dynamics.n_lags :])
    sensitivity = error_sensitivities(dynamics, gradient, is_free)
    return variance_of_errors(dynamics, regressors, sensitivity)


def project(model: Model, regressors: Array) -> Projected:
    """Return regressors (n, p) of a model in the form that its covariance needs."""
    return model.gp.project(model.scaling.transform(regressors))


def is_within_limits(dynamics: Dynamics, outputs: Array) -> NDArray[np.bool_]:
    """Return which outputs (..., m) are not at a limit at which they saturate."""
    lowest, highest = dynamics.limits
    return np.asarray((outputs > lowest) & (outputs < highest))


def error_sensitivities(dynamics: Dynamics, gradient: Array, is_free: NDArray[np.bool_]) -> Array:
    """Return the derivatives (b, T, m, T, m) of all outputs by the errors of all targets.

    With the errors e of the targets, the derivatives F of the outputs by earlier outputs and a
    diagonal matrix D of zeros where outputs saturate, else ones, the outputs deviate by::

        dy = D (F dy + e) = S e,   S = (I - D F)^-1 D

    Outputs before the first step are known, and do not move.

    Parameters
    ----------
    dynamics : Dynamics
    gradient : (b, T, m, p)
        Derivatives of the targets by their features.
    is_free : (b, T, m)
        Which outputs do not saturate (`is_within_limits`).
    """
    slopes = np.ascontiguousarray(gradient[..., dynamics.feedback])
    lags = dynamics.row - dynamics.n_lags
    return np.asarray(_follow_errors(slopes, lags, dynamics.column, dynamics.is_change, is_free))


def variance_of_errors(
    dynamics: Dynamics, regressors: Array, sensitivity: Array, *, feeds_noise_back: bool = False
) -> Array:
    """Return the latent variances (b, T, m) of outputs that uncertain functions lead to.

    Each path meets the same functions all the way. The errors e_i of the function of output i at
    the T regressors of a path have the posterior covariance C_i. To first order, with the
    sensitivities S_i of the outputs to them, ::

        variance of y_t = sum_i (S_i C_i S_i')_tt

    These are the moments of `sysid.Pathwise` for small errors, without draws. If the noise of each
    sample is fed back with its output, the noise variance s_i is added to the diagonal of C_i, but
    not that of the output's own sample: the variance remains that of the output without its noise.

    Parameters
    ----------
    dynamics : Dynamics
    regressors : (b, T, p)
        Of all steps; finite.
    sensitivity : (b, T, m, T, m)
        As `error_sensitivities` returns it.
    feeds_noise_back : bool
        Whether the outputs that are fed back have noise.
    """
    n_paths, n_steps, _ = regressors.shape
    n_outputs = dynamics.n_outputs
    variance = np.zeros((n_paths, n_steps, n_outputs))
    for i, model in enumerate(dynamics.models):
        projected = project(model, regressors.reshape(-1, regressors.shape[2]))
        for b in range(n_paths):
            of_path = projected.part(slice(b * n_steps, (b + 1) * n_steps))
            covariance = model.gp.covariance(of_path, of_path)
            of_output = sensitivity[b, :, :, :, i].reshape(-1, n_steps)
            moved = np.sum((of_output @ covariance) * of_output, axis=1)
            variance[b] += moved.reshape(n_steps, n_outputs)
            if feeds_noise_back:
                of_noise = np.square(of_output).sum(axis=1).reshape(n_steps, n_outputs)
                of_noise[:, i] -= np.square(np.diagonal(sensitivity[b, :, i, :, i]))
                variance[b] += of_noise * dynamics.noise_variance[i]
    return np.maximum(variance, 0.0)


@cached_njit()
def _follow_errors(  # type: ignore[no-untyped-def]
    slopes: Array, lag: Indices, column: Indices, is_change: bool, is_free: NDArray[np.bool_]
):
    """Return the sensitivities (b, T, m, T, m) of `error_sensitivities`, step by step.

    An error enters its own target, and from there every later output::

        dy_t = e_t + sum_j slope_tj dy[t + lag_j, column_j]  (+ dy_{t-1}, if changes are predicted)

    Parameters
    ----------
    slopes : (b, T, m, q)
        Derivatives of the targets by the lagged outputs.
    lag, column : (q,)
        Steps back of the lagged outputs, negative, and their numbers.
    is_change : bool
        Whether the targets are changes of the outputs.
    is_free : (b, T, m)
        Which outputs move; the others saturate.
    """
    n_paths, n_steps, n_outputs, n_lagged = slopes.shape
    moved = np.zeros((n_paths, n_steps, n_outputs, n_steps, n_outputs))
    for b in range(n_paths):
        for t in range(n_steps):
            for i in range(n_outputs):
                if not is_free[b, t, i]:
                    continue
                own = moved[b, t, i]
                own[t, i] = 1.0
                if is_change and t > 0:
                    own += moved[b, t - 1, i]
                for j in range(n_lagged):
                    earlier = t + lag[j]
                    if earlier >= 0:
                        own += slopes[b, t, i, j] * moved[b, earlier, column[j]]
    return moved
