"""The mean of an identified model fed back over many samples, compiled.

``y[k] = (y[k-1] +) intercept + slopes' x + a' k(X, A (x - offset))`` with the lagged y in the regressor x
replaced by what was predicted. Only for means that are affine in the regressors; everything is a plain array, so
that a training can call it thousands of times. One loop, in one file: numba's disk cache knows only the content of
this file and of none that it calls; of `sysid.dictionary` it calls `covariances` alone, which is nothing but the
convention by which a kernel is called.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from sysid.dictionary import covariances


class MeanMap(NamedTuple):
    """Means of m outputs over p shared features, of which q are lagged outputs.

    Points are padded to the largest numbers c of coordinates and N of points among the outputs; `n_coordinates` and
    `n_points` say how many count.
    """

    kernels: np.ndarray  # (m,) addresses
    parameters: np.ndarray  # (m, number of kernel parameters)
    points: np.ndarray  # (m, c, N) coordinates
    weights: np.ndarray  # (m, N) Ky^-1 y
    n_coordinates: np.ndarray  # (m,)
    n_points: np.ndarray  # (m,)
    intercept: np.ndarray  # (m,) target unit
    slopes: np.ndarray  # (m, p) target unit per unit of the feature
    offset: np.ndarray  # (m, p) unit of the feature
    matrix: np.ndarray  # (m, c, p) A, per unit of the feature
    feedback: np.ndarray  # (q,) features that are lagged outputs
    row: np.ndarray  # (q,) row of each among the last L samples
    column: np.ndarray  # (q,) output of each
    is_change: bool  # whether the target is y[k] - y[k-1]
    lowest: np.ndarray  # (m,) smallest value that an output can take
    highest: np.ndarray  # (m,) largest


@njit(cache=True)
def _target(mean_map: Any, output: int, x: np.ndarray, z: np.ndarray, k: np.ndarray) -> float:
    """Mean of one target at the regressor x (p,); z (c,) and k (N,) are scratch."""
    total, offset, matrix = mean_map.intercept[output], mean_map.offset[output], mean_map.matrix[output]
    for d in range(x.size):
        total += mean_map.slopes[output, d] * x[d]
    n, n_coordinates = mean_map.n_points[output], mean_map.n_coordinates[output]
    for c in range(n_coordinates):
        z[c] = 0.0
        for d in range(x.size):
            z[c] += matrix[c, d] * (x[d] - offset[d])
    points = mean_map.points[output, :n_coordinates]
    covariances(mean_map.kernels[output], mean_map.parameters[output], points, n, z, k)
    for j in range(n):
        total += mean_map.weights[output, j] * k[j]
    return total


@njit(cache=True)
def run(  # type: ignore[no-untyped-def]
    mean_map, low: np.ndarray, high: np.ndarray, exogenous: np.ndarray, path: np.ndarray, done: np.ndarray
) -> None:
    """Fill paths sample by sample until one leaves its bounds.

    Parameters
    ----------
    mean_map : MeanMap
    low, high : (m,)
        Bounds of the outputs; a path stops at the first value that is not between them (nor a number).
    exogenous : (b, T, p)
        Regressors of every step; only the features that are no lagged outputs are read.
    path : (b, L + T, m)
        The first L samples are given, the others are written; after a path has stopped they are left as they are.
    done : (b,)
        Steps of each path within the bounds, written: T, or the step whose value left them.
    """
    n_steps, n_features = exogenous.shape[1:]
    n_lags = path.shape[1] - n_steps
    x, z, k = np.empty(n_features), np.empty(mean_map.matrix.shape[1]), np.empty(mean_map.weights.shape[1])
    for b in range(len(path)):
        done[b] = n_steps
        for t in range(n_steps):
            x[:] = exogenous[b, t]
            for j in range(mean_map.feedback.size):
                x[mean_map.feedback[j]] = path[b, t + mean_map.row[j], mean_map.column[j]]
            inside = True
            for i in range(path.shape[2]):
                value = _target(mean_map, i, x, z, k)
                if mean_map.is_change:
                    value += path[b, n_lags + t - 1, i]
                value = min(max(value, mean_map.lowest[i]), mean_map.highest[i])
                path[b, n_lags + t, i] = value
                inside &= low[i] < value < high[i]
            if not inside:
                done[b] = t
                break
