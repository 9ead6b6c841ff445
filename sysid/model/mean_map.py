"""The mean of a model as arrays and a compiled loop, which feeds it back sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sysid.arrays import Array, Indices
from sysid.compiled import cached_njit
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import covariances
from sysid.gp.kernels import Kernel
from sysid.gp.mean import ConstantMean, LinearMean, MeanFunction, ZeroMean
from sysid.model.gradient import Differentiable
from sysid.narx.lags import Narx, Target

# Mean functions that the compiled loop knows: they are affine in the regressors.
AFFINE_MEANS = (ZeroMean, ConstantMean, LinearMean)

#: Mean function, map of the features, kernel, points (N, c) and weights (N,) of one output.
Function: TypeAlias = tuple[MeanFunction, AffineMap, Kernel, Array, Array]


class MeanMap(NamedTuple):
    """Arrays for the means of m outputs over p shared features, of which q are lagged outputs.

    The arrays are padded to c coordinates and N points, the largest numbers among the outputs.
    `n_coordinates` and `n_points` are the numbers of each output.
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
    matrix: np.ndarray  # (m, p, c) A', per unit of the feature
    is_diagonal: np.ndarray  # (m,) whether A is a diagonal matrix, with a coordinate per feature
    feedback: np.ndarray  # (q,) features that are lagged outputs
    row: np.ndarray  # (q,) rows of these features among the last L samples
    column: np.ndarray  # (q,) outputs of these features
    is_change: bool  # whether the target is y[k] - y[k-1]
    lowest: np.ndarray  # (m,) smallest value that an output can take
    highest: np.ndarray  # (m,) largest value that an output can take

    @classmethod
    def of(
        cls,
        functions: Sequence[Function],
        narx: Narx,
        feedback: Indices,
        row: Indices,
        column: Indices,
        limits: Array,
    ) -> MeanMap:
        """Build the arrays from one function per output, with limits (2, m) of the outputs.

        The mean functions must be affine.
        """
        means, scalings, kernels, points, weights = zip(*functions, strict=True)
        origin = np.zeros((1, narx.n_features))
        return cls(
            kernels=np.array([kernel.address for kernel in kernels]),
            parameters=pad_and_stack([kernel.parameters() for kernel in kernels]),
            points=pad_and_stack([points_of_output.T for points_of_output in points]),
            weights=pad_and_stack(weights),
            n_coordinates=np.array([scaling.n_coordinates for scaling in scalings]),
            n_points=np.array([len(weights_of_output) for weights_of_output in weights]),
            intercept=np.array([mean(origin)[0] for mean in means]),
            slopes=np.array([mean.gradient(origin)[0] for mean in means]),
            offset=np.array([scaling.offset for scaling in scalings]),
            matrix=pad_and_stack([scaling.linear_part().T for scaling in scalings]),
            is_diagonal=np.array([_is_diagonal(scaling.linear_part()) for scaling in scalings]),
            feedback=feedback,
            row=row,
            column=column,
            is_change=narx.predict is Target.change,
            lowest=limits[0],
            highest=limits[1],
        )


@cached_njit(inline="always")
def _target(mean_map: Any, output: int, x: np.ndarray, z: np.ndarray, k: np.ndarray) -> float:
    """Return the mean of one target at the regressor x (p,).

    z (c,) and k (N,) are scratch arrays.
    """
    total = mean_map.intercept[output]
    offset = mean_map.offset[output]
    matrix = mean_map.matrix[output]
    for d in range(x.size):
        total += mean_map.slopes[output, d] * x[d]
    n = mean_map.n_points[output]
    n_coordinates = mean_map.n_coordinates[output]
    if mean_map.is_diagonal[output]:
        for d in range(x.size):
            z[d] = matrix[d, d] * (x[d] - offset[d])
    else:
        z[:n_coordinates] = 0.0
        for d in range(x.size):
            deviation = x[d] - offset[d]
            row = matrix[d]
            for c in range(n_coordinates):
                z[c] += row[c] * deviation
    points = mean_map.points[output, :n_coordinates]
    covariances(mean_map.kernels[output], mean_map.parameters[output], points, n, z, k)
    for j in range(n):
        total += mean_map.weights[output, j] * k[j]
    return total


@cached_njit(nogil=True)
def simulate_paths(  # type: ignore[no-untyped-def]
    mean_map,
    low: np.ndarray,
    high: np.ndarray,
    exogenous: np.ndarray,
    path: np.ndarray,
    n_inside: np.ndarray,
) -> None:
    """Fill each path sample by sample until it leaves the bounds.

    Parameters
    ----------
    mean_map : MeanMap
    low, high : (m,)
        Bounds of the outputs. A path stops at the first value that is not between them, or is nan.
    exogenous : (b, T, p)
        Regressors of every step. Only the features that are not lagged outputs are read.
    path : (b, L + T, m)
        The first L samples are given, the others are written. Samples after the one at which a path
        stops are left unchanged.
    n_inside : (b,)
        Written: the number of steps before each path leaves the bounds, T if it does not leave.
    """
    n_steps, n_features = exogenous.shape[1:]
    n_lags = path.shape[1] - n_steps
    x = np.empty(n_features)
    z = np.empty(mean_map.matrix.shape[2])
    k = np.empty(mean_map.weights.shape[1])
    for b in range(len(path)):
        n_inside[b] = n_steps
        for t in range(n_steps):
            for d in range(n_features):  # a slice would compile the message for a wrong shape
                x[d] = exogenous[b, t, d]
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
                n_inside[b] = t
                break


def mean_with_linear_part(model: Differentiable, coefficients: Array | None = None) -> MeanFunction:
    """Return the mean function plus the linear part, if there is one.

    The mean function must then be one of `AFFINE_MEANS`. The sum is affine in the regressors, too.
    Without coefficients (n_linear,) of the linear part their posterior mean is taken.
    """
    gp = model.gp
    if not gp.n_linear:
        return model.mean
    origin = np.zeros((1, model.narx.n_features))
    taken = gp.coefficients if coefficients is None else coefficients
    of_linear_part = taken @ model.scaling.linear_part()[-gp.n_linear :]
    slopes = model.mean.gradient(origin)[0] + of_linear_part
    intercept = model.mean(origin)[0] - of_linear_part @ model.scaling.offset
    return LinearMean(slopes.tolist(), float(intercept))


def map_to_points(model: Differentiable) -> AffineMap:
    """Return the map of the features to the coordinates of the stored points.

    It is the map of the model without the coordinates of a linear part.
    """
    gp = model.gp
    if not gp.n_linear:
        return model.scaling
    of_points = model.scaling.linear_part()[: gp.point_kernel.n_features]
    return AffineMap.of_matrix(model.scaling.offset, of_points)


def _is_diagonal(matrix: Array) -> bool:
    """Return whether a matrix is square, and zero beside its diagonal."""
    rows, columns = matrix.shape
    return rows == columns and bool(np.count_nonzero(matrix) == np.count_nonzero(np.diag(matrix)))


def pad_and_stack(arrays: Sequence[Array]) -> Array:
    """Stack arrays C-contiguously, with zeros appended to each along every axis."""
    largest_shape = np.maximum(1, np.max([array.shape for array in arrays], axis=0))
    padded = np.zeros((len(arrays), *largest_shape))
    for slot, array in zip(padded, arrays, strict=True):
        filled = tuple(slice(size) for size in array.shape)
        slot[filled] = array
    return padded
