"""A model stepped on its own predictions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sysid.arrays import Array, Indices
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import covariances
from sysid.gp.kernels import Kernel
from sysid.gp.mean import ConstantMean, LinearMean, MeanFunction, ZeroMean
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Narx, Target

AFFINE = (
    ZeroMean,
    ConstantMean,
    LinearMean,
)  # mean functions that the compiled loop knows
# how far outside the outputs it was identified from a prediction may go, in their range [-]
REACH = 1e3
FARTHEST = 1e50  # bound where no range is known; its square is still finite


#: mean function, map of the features, kernel, points (N, c) and weights (N,)
Function: TypeAlias = tuple[MeanFunction, AffineMap, Kernel, Array, Array]


class MeanMap(NamedTuple):
    """Means of m outputs over p shared features, of which q are lagged outputs.

    Points are padded to the largest numbers c of coordinates and N of points among the outputs;
    `n_coordinates` and `n_points` say how many count.
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
    row: np.ndarray  # (q,) row of each among the last L samples
    column: np.ndarray  # (q,) output of each
    is_change: bool  # whether the target is y[k] - y[k-1]
    lowest: np.ndarray  # (m,) smallest value that an output can take
    highest: np.ndarray  # (m,) largest

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
        """Arrays of functions, one per output, whose mean functions are affine; limits (2, m)."""
        means, scalings, kernels, points, weights = zip(*functions, strict=True)
        origin = np.zeros((1, narx.n_features))
        return cls(
            kernels=np.array([kernel.address for kernel in kernels]),
            parameters=_pad_and_stack([kernel.parameters() for kernel in kernels]),
            points=_pad_and_stack([one.T for one in points]),
            weights=_pad_and_stack(weights),
            n_coordinates=np.array([scaling.n_coordinates for scaling in scalings]),
            n_points=np.array([len(one) for one in weights]),
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
    """Mean of one target at the regressor x (p,); z (c,) and k (N,) are scratch."""
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
def run(  # type: ignore[no-untyped-def]
    mean_map,
    low: np.ndarray,
    high: np.ndarray,
    exogenous: np.ndarray,
    path: np.ndarray,
    done: np.ndarray,
) -> None:
    """Fill paths sample by sample until one leaves its bounds.

    Parameters
    ----------
    mean_map : MeanMap
    low, high : (m,)
        Bounds of the outputs; a path stops at the first value that is not between them, or is nan.
    exogenous : (b, T, p)
        Regressors of every step; only the features that are no lagged outputs are read.
    path : (b, L + T, m)
        The first L samples are given, the others are written; after a path has stopped they are
        left as they are.
    done : (b,)
        Steps of each path within the bounds, written: T, or the step whose value left them.
    """
    n_steps, n_features = exogenous.shape[1:]
    n_lags = path.shape[1] - n_steps
    x = np.empty(n_features)
    z = np.empty(mean_map.matrix.shape[2])
    k = np.empty(mean_map.weights.shape[1])
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


class Moments(NamedTuple):
    """Mean and latent variance of m outputs, or of their targets; a measurement adds the noise
    variance.
    """

    mean: Array  # (..., m) output units
    variance: Array  # (..., m) output units squared


class Bounds(NamedTuple):
    """Values between which the outputs must stay.

    A prediction outside of them has diverged, and so has a standard deviation as large as their
    distance.
    """

    low: Array  # (m,)
    high: Array  # (m,)

    def contain(self, values: Array) -> NDArray[np.bool_]:
        """Whether values (..., m) are between the bounds; nan is not."""
        return np.asarray((values > self.low) & (values < self.high))


class Dynamics:
    """Models of all outputs as one map, ``y[k] = F(last L outputs, inputs)``.

    The last outputs are an array (L, m), newest last. The regressor is ``x = C z + d``: its lagged
    outputs are gathered from them, its other features (`exogenous`) are known beforehand.

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
        Features that are lagged outputs, and where their values stand among the last outputs.
    state_index : (q,)
        Where they stand among the flattened last outputs (L m,).
    feeds_back : bool
        Whether a prediction needs outputs. Without, every sample is one step.
    """

    def __init__(self, model: Model | JointModel) -> None:
        self.joint = JointModel.of(model)
        self.models = self.joint.models
        self.narx = narx = self.models[0].narx
        self.n_outputs = len(narx.output_names)
        self.n_features = narx.n_features
        self.is_change = narx.predict is Target.change
        self.noise_variance = self.joint.noise_variance
        self.limits = np.array(
            [model.limits for model in self.models]
        ).T.copy()  # rows in one piece: one compilation
        self.n_lags = max(max(narx.lags[name], default=1) for name in narx.output_names)
        lagged = [
            (j, name, lag)
            for j, (name, lag) in enumerate(narx.features)
            if name in narx.output_names
        ]
        self.feedback = np.array([j for j, _, _ in lagged], dtype=np.int64)
        self.row = np.array([self.n_lags - lag for _, _, lag in lagged], dtype=np.int64)
        self.column = np.array(
            [narx.output_names.index(name) for _, name, _ in lagged], dtype=np.int64
        )
        self.state_index = self.row * self.n_outputs + self.column
        self.feeds_back = self.is_change or bool(self.feedback.size)

    def regressors(self, last: Array, exogenous: Array) -> Array:
        """Regressors (n, p) of last outputs (n, L, m) and exogenous features (n, p)."""
        x = exogenous.copy()
        x[:, self.feedback] = last[:, self.row, self.column]
        return x

    def targets(self, regressors: Array) -> Moments:
        """Mean and latent variance of all targets at regressors (n, p)."""
        with np.errstate(over="ignore", invalid="ignore"):
            predicted = [model.predict(regressors) for model in self.models]
        return Moments(*(np.stack(part, axis=1) for part in zip(*predicted, strict=True)))

    def calibrated(self, variance: Array, *, n_steps: int) -> Array:
        """Variances (b, T, m) as of `Model.calibrated`, of the first n_steps; the others as they
        are.
        """
        steps = np.arange(1, n_steps + 1)
        known = variance[:, :n_steps]
        found = [model.calibrated(known[:, :, i], steps) for i, model in enumerate(self.models)]
        return np.concatenate([np.stack(found, axis=2), variance[:, n_steps:]], axis=1)

    def to_value(self, targets: Array, previous: Array) -> Array:
        """Return outputs y[k] (..., m) of targets, given y[k-1], within limits of the models."""
        return np.clip(self.narx.predict.to_value(targets, previous), *self.limits)

    def count_held(self, outputs: Array) -> int:
        """How many samples of outputs (n, m) a limit holds that the data of the model never
        reached.

        Such a limit keeps a simulation from running away; what it holds is no prediction.
        """
        ranges = [
            _output_range(model, self.feedback[self.column == i])
            for i, model in enumerate(self.models)
        ]
        lowest, highest = np.array(ranges).T
        low = np.where(self.limits[0] < lowest, self.limits[0], -np.inf)
        high = np.where(self.limits[1] > highest, self.limits[1], np.inf)
        return int(((outputs <= low) | (outputs >= high)).any(axis=1).sum())

    def gradient(self, regressors: Array) -> Array:
        """``d mean / dx`` (n, m, p) of all targets at regressors (n, p), in their own units."""
        gradients = []
        for model, weights in zip(self.models, self.weights, strict=True):
            z = model.scaling.transform(regressors)
            slopes = np.einsum(
                "njd,j->nd", model.gp.kernel.input_gradient(z, model.gp.inputs), weights
            )
            gradients.append(model.mean.gradient(regressors) + slopes @ model.scaling.linear_part())
        return np.stack(gradients, axis=1)

    def bounds(self, past: Array) -> Bounds:
        """Bounds of the outputs: `REACH` times the range that the models were identified from,
        beyond it.

        The range of an output is that of its model's origin; without it, that of the lagged outputs
        among its points; if there are none, that of the last outputs (b, L, m) that a prediction
        starts from.
        """
        low = np.empty(self.n_outputs)
        high = np.empty(self.n_outputs)
        for i, model in enumerate(self.models):
            lowest, highest = _output_range(model, self.feedback[self.column == i])
            if not 0 < highest - lowest < np.inf:
                lowest = past[:, :, i].min(initial=np.inf)
                highest = past[:, :, i].max(initial=-np.inf)
            reach = REACH * (highest - lowest)
            is_known = 0 < reach < np.inf
            low[i], high[i] = (
                (lowest - reach, highest + reach) if is_known else (-FARTHEST, FARTHEST)
            )
        return Bounds(low, high)

    @cached_property
    def weights(self) -> tuple[Array, ...]:
        """Weights ``Ky^-1 y`` (N,) of every model, in the order of its ``gp.inputs``."""
        states = [model.gp.state() for model in self.models]
        return tuple(state["weights"][np.argsort(state["order"])] for state in states)

    @cached_property
    def mean_map(self) -> MeanMap | None:
        """Arrays for the compiled loop; None if a mean function is not affine in the regressors."""
        if not all(type(model.mean) in AFFINE for model in self.models):
            return None
        functions = [
            (model.mean, model.scaling, model.gp.kernel, model.gp.inputs, weights)
            for model, weights in zip(self.models, self.weights, strict=True)
        ]
        return MeanMap.of(functions, self.narx, self.feedback, self.row, self.column, self.limits)


def exogenous_rows(narx: Narx, inputs: Array, samples: Indices) -> Array:
    """Regressors (n, p) of samples (n,) whose input features are known, and whose output features
    are zero.

    Where a lag reaches before the inputs (N, n_u), their first row stands for what was before.
    """
    rows = np.zeros((len(samples), narx.n_features))
    for j, (name, lag) in enumerate(narx.features):
        if name in narx.input_names:
            rows[:, j] = inputs[np.maximum(samples - lag, 0), narx.input_names.index(name)]
    return rows


def _output_range(model: Model, lagged: Indices) -> tuple[float, float]:
    """Smallest and largest output that a model knows of; (inf, -inf) if it knows none."""
    if model.origin.output_range is not None:
        return model.origin.output_range
    if not lagged.size or not model.gp.n_points or model.scaling.matrix is not None:
        return np.inf, -np.inf
    values = model.scaling.inverse(model.gp.inputs)[:, lagged]
    return float(values.min()), float(values.max())


def _pad_and_stack(arrays: Sequence[Array]) -> Array:
    """Stack arrays C-contiguously, each filled up with zeros at the ends of its axes."""
    shape = np.maximum(1, np.max([array.shape for array in arrays], axis=0))
    padded = np.zeros((len(arrays), *shape))
    for to, array in zip(padded, arrays, strict=True):
        to[tuple(slice(size) for size in array.shape)] = array
    return padded
