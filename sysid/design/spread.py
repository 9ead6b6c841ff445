"""The uncertainty of planned outputs about the path of their mean, to first order."""

from __future__ import annotations

import numpy as np
from numba import njit

from sysid.arrays import Array, Indices
from sysid.design.criteria import project
from sysid.simulation.dynamics import Dynamics


def variance_along(dynamics: Dynamics, path: Array, exogenous: Array) -> Array:
    """Return the latent variances (b, T, m) of planned outputs about the paths of their mean.

    The function of the plant is uncertain, and each path meets the same function all the way. Its
    errors e_i of output i at the T regressors of a path have the posterior covariance C_i. To first
    order they move the outputs by ``S_i e_i``, with the sensitivities of `sensitivities_along`::

        variance of y_t = sum_i (S_i C_i S_i')_tt

    These are the moments of `sysid.Pathwise` for small errors, without draws.

    Parameters
    ----------
    dynamics : Dynamics
    path : (b, L + T, m)
        Known outputs, then the mean; finite.
    exogenous : (b, T, p)
        Regressors of all steps, zero at the features that are lagged outputs.
    """
    n_paths, n_steps, n_features = exogenous.shape
    n_outputs = dynamics.n_outputs
    visited = dynamics.regressors_along(path, exogenous)
    flat = visited.reshape(-1, n_features)
    slopes = dynamics.gradient(flat)[:, :, dynamics.feedback]
    sensitivities = sensitivities_along(
        slopes.reshape(n_paths, n_steps, n_outputs, -1),
        dynamics.row - dynamics.n_lags,
        dynamics.column,
        dynamics.is_change,
    )
    variance = np.zeros((n_paths, n_steps, n_outputs))
    for i, model in enumerate(dynamics.models):
        projected = project(model, flat)
        for b in range(n_paths):
            of_path = projected.part(slice(b * n_steps, (b + 1) * n_steps))
            covariance = model.gp.covariance(of_path, of_path)
            of_output = sensitivities[b, :, :, :, i].reshape(-1, n_steps)
            moved = np.sum((of_output @ covariance) * of_output, axis=1)
            variance[b] += moved.reshape(n_steps, n_outputs)
    return np.maximum(variance, 0.0)


@njit(cache=True)
def sensitivities_along(  # type: ignore[no-untyped-def]
    slopes: Array, lag: Indices, column: Indices, is_change: bool
):
    """Return the derivatives (b, T, m, T, m) of all outputs by the errors of all targets.

    An error enters its own target, and from there every later output::

        dy_t = e_t + sum_j slope_tj dy[t + lag_j, column_j]  (+ dy_{t-1}, if changes are predicted)

    Outputs before the first step are known, and do not move.

    Parameters
    ----------
    slopes : (b, T, m, q)
        Derivatives of the targets by the lagged outputs.
    lag, column : (q,)
        Steps back of the lagged outputs, negative, and their numbers.
    is_change : bool
        Whether the targets are changes of the outputs.
    """
    n_paths, n_steps, n_outputs, n_lagged = slopes.shape
    moved = np.zeros((n_paths, n_steps, n_outputs, n_steps, n_outputs))
    for b in range(n_paths):
        for t in range(n_steps):
            for i in range(n_outputs):
                own = moved[b, t, i]
                own[t, i] = 1.0
                if is_change and t > 0:
                    own += moved[b, t - 1, i]
                for j in range(n_lagged):
                    earlier = t + lag[j]
                    if earlier >= 0:
                        own += slopes[b, t, i, j] * moved[b, earlier, column[j]]
    return moved
