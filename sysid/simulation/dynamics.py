"""A model that is fed its own predictions, step by step."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.arrays import Array, Indices
from sysid.model.gradient import gradient_of, weights_of
from sysid.model.mean_map import (
    AFFINE_MEANS,
    Function,
    MeanMap,
    map_to_points,
    mean_with_linear_part,
)
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Narx, Target

# Largest distance of a prediction from the outputs that the model was identified from, in multiples
# of their range [-]. Beyond it the prediction has diverged.
MAX_EXCURSION_IN_RANGES = 1e3

# Bound of the outputs where no range is known. Its square is still finite.
MAX_OUTPUT_MAGNITUDE = 1e50

# Largest number of rows whose lagged inputs are gathered at once. Of more rows, one feature after
# the other is faster.
MAX_ROWS_GATHERED = 300


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

    def learned_range(self) -> Bounds:
        """Return the range of the outputs that the models have learned.

        It is the `Model.known_range`, and infinite if `Origin.output_range` is not known: a few
        points show little of the range of a stream.
        """
        ranges = []
        for model in self.models:
            is_known = model.origin.output_range is not None
            ranges.append(model.known_range if is_known else (-np.inf, np.inf))
        low, high = np.array(ranges).T
        return Bounds(low, high)

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
