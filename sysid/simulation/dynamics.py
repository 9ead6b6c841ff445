"""A model that is fed its own predictions, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sysid.arrays import Array, Indices
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import covariances
from sysid.gp.kernels import Kernel
from sysid.gp.mean import ConstantMean, LinearMean, MeanFunction, ZeroMean
from sysid.model.gradient import gradient_of, weights_of
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Narx, Target

# Mean functions that the compiled loop knows: they are affine in the regressors.
AFFINE_MEANS = (ZeroMean, ConstantMean, LinearMean)

# Largest distance of a prediction from the outputs that the model was identified from, in multiples
# of their range [-]. Beyond it the prediction has diverged.
MAX_EXCURSION_IN_RANGES = 1e3

# Bound of the outputs where no range is known. Its square is still finite.
MAX_OUTPUT_MAGNITUDE = 1e50

# Largest number of rows whose lagged inputs are gathered at once. Of more rows, one feature after
# the other is faster.
MAX_ROWS_GATHERED = 300


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
            parameters=_pad_and_stack([kernel.parameters() for kernel in kernels]),
            points=_pad_and_stack([points_of_output.T for points_of_output in points]),
            weights=_pad_and_stack(weights),
            n_coordinates=np.array([scaling.n_coordinates for scaling in scalings]),
            n_points=np.array([len(weights_of_output) for weights_of_output in weights]),
            intercept=np.array([mean(origin)[0] for mean in means]),
            slopes=np.array([mean.gradient(origin)[0] for mean in means]),
            offset=np.array([scaling.offset for scaling in scalings]),
            matrix=_pad_and_stack([scaling.linear_part().T for scaling in scalings]),
            feedback=feedback,
            row=row,
            column=column,
            is_change=narx.predict is Target.change,
            lowest=limits[0],
            highest=limits[1],
        )


@njit(cache=True)
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


@njit(cache=True, nogil=True)
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


class Moments(NamedTuple):
    """Mean and latent variance of m outputs, or of their targets.

    The variance of a measurement is the latent variance plus the noise variance.
    """

    mean: Array  # (..., m) output units
    variance: Array  # (..., m) output units squared


class Bounds(NamedTuple):
    """Values between which the outputs must stay.

    A prediction outside of the bounds has diverged. So has a prediction whose standard deviation is
    as large as the distance of the bounds.
    """

    low: Array  # (m,)
    high: Array  # (m,)

    def contain(self, values: Array) -> NDArray[np.bool_]:
        """Return which of the values (..., m) are between the bounds; nan is not."""
        return np.asarray((values > self.low) & (values < self.high))


class Dynamics:
    """Models of all outputs as one map, ``y[k] = F(last L outputs, inputs)``.

    The last outputs are an array (L, m), newest last. The lagged outputs of a regressor are taken
    from them. The other features of the regressor (`exogenous`) are known beforehand.

    Parameters
    ----------
    model : Model or JointModel
        One model per output; a single one if there is a single output.

    Attributes
    ----------
    n_lags : int
        L, the largest lag of an output, at least 1.
    limits : (2, m)
        Smallest and largest values that the outputs can take.
    noise_variance : (m,)
        Units of the outputs squared.
    feedback, row, column : (q,)
        Features that are lagged outputs, and the rows and columns of their values in the last
        outputs.
    state_index : (q,)
        Positions of these values in the flattened last outputs (L m,).
    feeds_back : bool
        Whether a prediction needs past outputs. If not, every sample is predicted in one step.
    """

    def __init__(self, model: Model | JointModel) -> None:
        self.joint = JointModel.of(model)
        self.models = self.joint.models
        narx = self.models[0].narx
        self.narx = narx
        self.n_outputs = len(narx.output_names)
        self.n_features = narx.n_features
        self.is_change = narx.predict is Target.change
        self.noise_variance = self.joint.noise_variance
        # C-contiguous like all other limits, so that the loop is compiled only once
        self.limits = np.array([model.limits for model in self.models]).T.copy()
        lags_of_outputs = [lag for name, lag in narx.features if name in narx.output_names]
        self.n_lags = max([1, *lags_of_outputs])
        feedback = []
        rows = []
        columns = []
        for j, (name, lag) in enumerate(narx.features):
            if name in narx.output_names:
                feedback.append(j)
                rows.append(self.n_lags - lag)
                columns.append(narx.output_names.index(name))
        self.feedback = np.array(feedback, dtype=np.int64)
        self.row = np.array(rows, dtype=np.int64)
        self.column = np.array(columns, dtype=np.int64)
        self.state_index = self.row * self.n_outputs + self.column
        self.feeds_back = self.is_change or bool(self.feedback.size)

    def regressors(self, last: Array, exogenous: Array) -> Array:
        """Return the regressors (n, p) of last outputs (n, L, m) and exogenous features (n, p)."""
        x = exogenous.copy()
        x[:, self.feedback] = last[:, self.row, self.column]
        return x

    def regressors_along(self, path: Array, exogenous: Array) -> Array:
        """Return the regressors (b, T, p) of the last T samples of paths (b, L + T, m).

        Each contains the L outputs before its sample.
        """
        n_steps = exogenous.shape[1]
        regressors = exogenous.copy()
        for j, row, column in zip(self.feedback, self.row, self.column, strict=True):
            regressors[:, :, j] = path[:, row : row + n_steps, column]
        return regressors

    def targets(self, regressors: Array) -> Moments:
        """Return mean and latent variance of all targets at regressors (n, p)."""
        with np.errstate(over="ignore", invalid="ignore"):
            predicted = [model.predict(regressors) for model in self.models]
        mean = np.stack([prediction.mean for prediction in predicted], axis=1)
        variance = np.stack([prediction.variance for prediction in predicted], axis=1)
        return Moments(mean, variance)

    def calibrated(self, variance: Array, *, n_steps: int) -> Array:
        """Return variances (b, T, m) whose first `n_steps` are calibrated by `Model.calibrated`.

        Those of later steps stay as they are.
        """
        steps = np.arange(1, n_steps + 1)
        calibrated = []
        for i, model in enumerate(self.models):
            calibrated.append(model.calibrated(variance[:, :n_steps, i], steps))
        return np.concatenate([np.stack(calibrated, axis=2), variance[:, n_steps:]], axis=1)

    def to_value(self, targets: Array, previous: Array) -> Array:
        """Return the outputs y[k] (..., m) of targets, given y[k-1].

        They are clipped to the limits of the models.
        """
        return np.clip(self.narx.predict.to_value(targets, previous), *self.limits)

    def count_held(self, outputs: Array) -> int:
        """Count the samples of outputs (n, m) that are held at a limit outside the data.

        Only limits that the data of the model never reached count. Such a limit keeps a simulation
        from running away, so that a sample held there is no prediction.
        """
        ranges = [_output_range(model) for model in self.models]
        lowest, highest = np.array(ranges).T
        low = np.where(self.limits[0] < lowest, self.limits[0], -np.inf)
        high = np.where(self.limits[1] > highest, self.limits[1], np.inf)
        is_held = (outputs <= low) | (outputs >= high)
        return int(is_held.any(axis=1).sum())

    def gradient(self, regressors: Array) -> Array:
        """Return ``d mean / dx`` (n, m, p) of all targets at regressors (n, p).

        Its unit is that of the target per unit of the feature.
        """
        gradients = [
            gradient_of(model, weights, regressors)
            for model, weights in zip(self.models, self.weights, strict=True)
        ]
        return np.stack(gradients, axis=1)

    def bounds(self, past: Array) -> Bounds:
        """Return the bounds of the outputs.

        They lie `MAX_EXCURSION_IN_RANGES` times the range of an output beyond this range. It is
        the range that the model was identified from (`Origin.output_range`). If that is not known,
        it is the range of the lagged outputs among the points of the model. If there are none, it
        is the range of the last outputs (b, L, m) that a prediction starts from.
        """
        low = np.empty(self.n_outputs)
        high = np.empty(self.n_outputs)
        for i, model in enumerate(self.models):
            lowest, highest = _output_range(model)
            if not 0 < highest - lowest < np.inf:
                lowest = past[:, :, i].min(initial=np.inf)
                highest = past[:, :, i].max(initial=-np.inf)
            excursion = MAX_EXCURSION_IN_RANGES * (highest - lowest)
            if 0 < excursion < np.inf:
                low[i] = lowest - excursion
                high[i] = highest + excursion
            else:
                low[i] = -MAX_OUTPUT_MAGNITUDE
                high[i] = MAX_OUTPUT_MAGNITUDE
        return Bounds(low, high)

    @cached_property
    def weights(self) -> tuple[Array, ...]:
        """Weights ``Ky^-1 y`` (N,) of the points of every model, in the order of ``gp.inputs``."""
        return tuple(weights_of(model) for model in self.models)

    @cached_property
    def mean_map(self) -> MeanMap | None:
        """Arrays for the compiled loop; None if a mean function is not affine in the regressors."""
        if not all(type(model.mean) in AFFINE_MEANS for model in self.models):
            return None
        functions: list[Function] = []
        for model, weights in zip(self.models, self.weights, strict=True):
            gp = model.gp
            mean = mean_with_linear_part(model)
            scaling = map_to_points(model)
            functions.append((mean, scaling, gp.point_kernel, gp.point_inputs, weights))
        return MeanMap.of(functions, self.narx, self.feedback, self.row, self.column, self.limits)


def mean_with_linear_part(model: Model) -> MeanFunction:
    """Return the mean function plus the posterior mean of the linear part, if there is one.

    The mean function must then be one of `AFFINE_MEANS`. The sum is affine in the regressors, too.
    """
    gp = model.gp
    if not gp.n_linear:
        return model.mean
    origin = np.zeros((1, model.narx.n_features))
    of_linear_part = gp.coefficients @ model.scaling.linear_part()[-gp.n_linear :]
    slopes = model.mean.gradient(origin)[0] + of_linear_part
    intercept = model.mean(origin)[0] - of_linear_part @ model.scaling.offset
    return LinearMean(slopes.tolist(), float(intercept))


def map_to_points(model: Model) -> AffineMap:
    """Return the map of the features to the coordinates of the stored points.

    It is the map of the model without the coordinates of a linear part.
    """
    gp = model.gp
    if not gp.n_linear:
        return model.scaling
    of_points = model.scaling.linear_part()[: gp.point_kernel.n_features]
    return AffineMap.of_matrix(model.scaling.offset, of_points)


def exogenous_rows(narx: Narx, inputs: Array, samples: Indices) -> Array:
    """Return regressors (..., n, p) of samples (n,) with all input features.

    Their output features are zero. Where a lag reaches before the inputs (..., N, n_u), the first
    row of the inputs is used.
    """
    rows = np.zeros((*inputs.shape[:-2], len(samples), narx.n_features))
    features, lags, columns = _input_features(narx)
    if len(samples) <= MAX_ROWS_GATHERED:
        rows[..., features] = inputs[..., np.maximum(samples[:, None] - lags, 0), columns]
        return rows
    for feature, lag, column in zip(features, lags, columns, strict=True):
        rows[..., feature] = inputs[..., np.maximum(samples - lag, 0), column]
    return rows


@lru_cache
def _input_features(narx: Narx) -> tuple[Indices, Indices, Indices]:
    """Return the numbers, lags and columns of the features that are lagged inputs."""
    found = []
    for j, (name, lag) in enumerate(narx.features):
        if name in narx.input_names:
            found.append((j, lag, narx.input_names.index(name)))
    features, lags, columns = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return features, lags, columns


def _output_range(model: Model) -> tuple[float, float]:
    """Return the smallest and largest output in the data of a model.

    If `Origin.output_range` is not known, it is the `Model.range_of_points`.
    """
    return model.origin.output_range or model.range_of_points


def _pad_and_stack(arrays: Sequence[Array]) -> Array:
    """Stack arrays C-contiguously, with zeros appended to each along every axis."""
    largest_shape = np.maximum(1, np.max([array.shape for array in arrays], axis=0))
    padded = np.zeros((len(arrays), *largest_shape))
    for slot, array in zip(padded, arrays, strict=True):
        filled = tuple(slice(size) for size in array.shape)
        slot[filled] = array
    return padded
