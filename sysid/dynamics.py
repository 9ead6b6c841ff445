"""Identified models as a map from the last outputs and the inputs to the next outputs."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sysid.joint import JointModel
from sysid.mean import ConstantMean, LinearMean, ZeroMean
from sysid.mean_path import MeanMap
from sysid.model import Model
from sysid.narx import Narx, Target
from sysid.scaling import Scaling

Array: TypeAlias = NDArray[np.float64]

AFFINE = (ZeroMean, ConstantMean, LinearMean)
REACH = 1e3  # how far outside the outputs it was identified from a prediction may go, in their range [-]
FARTHEST = 1e50  # bound where no range is known; squares of it are still numbers


class Targets(NamedTuple):
    """Distribution of the targets of all outputs at some regressors."""

    mean: Array  # (n, m) target units
    variance: Array  # (n, m) latent, target units squared


class Bounds(NamedTuple):
    """Values between which the outputs must stay; a prediction outside them has diverged."""

    low: Array  # (m,)
    high: Array  # (m,)

    @property
    def width(self) -> Array:
        """Distance of the bounds (m,); a standard deviation as large as that has diverged."""
        return self.high - self.low

    def contain(self, values: Array) -> NDArray[np.bool_]:
        """Whether values (..., m) are between the bounds; those that are no numbers are not."""
        return np.asarray((values > self.low) & (values < self.high))


class Dynamics:
    """Models of all outputs as one map, ``y[k] = F(last L outputs, inputs)``.

    The last outputs are an array (L, m), newest last. The regressor is ``x = C z + d``: its lagged outputs are
    gathered from them, its other features (`exogenous`) are known beforehand.

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
    feedback, row, column : (q,)
        Features that are lagged outputs, and where their values stand among the last outputs.
    """

    def __init__(self, model: Model | JointModel) -> None:
        self.joint = JointModel.of(model)
        self.models = self.joint.models
        self.narx = narx = self.models[0].narx
        self.n_outputs, self.n_features = len(narx.output_names), narx.n_features
        self.is_change = narx.predict is Target.change
        self.limits = np.array([model.limits for model in self.models]).T
        self.n_lags = max((max(lags, default=1) for name, lags in narx.lags.items() if name in narx.output_names))
        lagged = [(j, name, lag) for j, (name, lag) in enumerate(narx.features) if name in narx.output_names]
        self.feedback = np.array([j for j, _, _ in lagged], dtype=np.int64)
        self.row = np.array([self.n_lags - lag for _, _, lag in lagged], dtype=np.int64)
        self.column = np.array([narx.output_names.index(name) for _, name, _ in lagged], dtype=np.int64)

    @property
    def noise_variance(self) -> Array:
        """Noise variances (m,), units of the outputs squared."""
        return self.joint.noise_variance

    @property
    def state_index(self) -> NDArray[np.int64]:
        """Position (q,) of every lagged output of the regressor in the flattened last outputs (L m,)."""
        return self.row * self.n_outputs + self.column

    def regressors(self, last: Array, exogenous: Array) -> Array:
        """Regressors (n, p) of last outputs (n, L, m) and exogenous features (n, p)."""
        x = exogenous.copy()
        x[:, self.feedback] = last[:, self.row, self.column]
        return x

    def targets(self, regressors: Array) -> Targets:
        """Mean and latent variance of all targets at regressors (n, p)."""
        with np.errstate(over="ignore", invalid="ignore"):
            predicted = [model.predict(regressors) for model in self.models]
        return Targets(*(np.stack(part, axis=1) for part in zip(*predicted, strict=True)))

    def to_value(self, targets: Array, previous: Array) -> Array:
        """Outputs y[k] (..., m) of targets, given y[k-1], within the limits of the models."""
        return np.clip(self.narx.predict.to_value(targets, previous), *self.limits)

    def gradient(self, regressors: Array) -> Array:
        """``d mean / dx`` (n, m, p) of all targets at regressors (n, p), in their own units."""
        pairs = zip(self.models, self.weights, strict=True)
        return np.stack([_gradient(model, weights, regressors) for model, weights in pairs], axis=1)

    def bounds(self, past: Array) -> Bounds:
        """Bounds of the outputs: `REACH` times the range that the models were identified from, beyond it.

        The range of an output is that of its model's origin; without it, that of the lagged outputs among its points;
        if there are none, that of the last outputs (b, L, m) that a prediction starts from.
        """
        low, high = np.empty(self.n_outputs), np.empty(self.n_outputs)
        for i, model in enumerate(self.models):
            lowest, highest = _output_range(model, self.feedback[self.column == i])
            if not 0 < highest - lowest < np.inf:
                lowest, highest = past[:, :, i].min(initial=np.inf), past[:, :, i].max(initial=-np.inf)
            reach = REACH * (highest - lowest)
            is_known = 0 < reach < np.inf
            low[i], high[i] = (lowest - reach, highest + reach) if is_known else (-FARTHEST, FARTHEST)
        return Bounds(low, high)

    @cached_property
    def weights(self) -> tuple[Array, ...]:
        """Weights ``Ky^-1 y`` (N,) of every model, in the order of its ``gp.inputs``."""
        return tuple(_slot_weights(model) for model in self.models)

    @cached_property
    def mean_map(self) -> MeanMap | None:
        """Arrays for the compiled loop; None if a mean function is not affine in the regressors."""
        if not all(isinstance(model.mean, AFFINE) for model in self.models):
            return None
        origin = np.zeros((1, self.n_features))
        return MeanMap(
            kernels=np.array([model.gp.kernel.address for model in self.models]),
            parameters=_padded([model.gp.kernel.parameters() for model in self.models]),
            points=_padded([model.gp.inputs.T for model in self.models]),
            weights=_padded(list(self.weights)),
            n_coordinates=np.array([model.scaling.n_coordinates for model in self.models]),
            n_points=np.array([model.gp.n_points for model in self.models]),
            intercept=np.array([model.mean(origin)[0] for model in self.models]),
            slopes=np.array([model.mean.gradient(origin)[0] for model in self.models]),
            offset=np.array([model.scaling.offset for model in self.models]),
            matrix=_padded([model.scaling.linear_part() for model in self.models]),
            feedback=self.feedback,
            row=self.row,
            column=self.column,
            is_change=self.is_change,
            lowest=self.limits[0],
            highest=self.limits[1],
        )


def _slot_weights(model: Model) -> Array:
    state = model.gp.state()
    weights = np.empty(len(state["order"]))
    weights[state["order"]] = state["weights"]
    return weights


def exogenous_rows(narx: Narx, inputs: Array, samples: NDArray[np.int64]) -> Array:
    """Regressors (n, p) of samples (n,) with the features of the inputs filled in, those of the outputs zero.

    Lags that reach before the first of the inputs (N, n_u) hold it.
    """
    rows = np.zeros((len(samples), narx.n_features))
    for j, (name, lag) in enumerate(narx.features):
        if name in narx.input_names:
            rows[:, j] = inputs[np.maximum(samples - lag, 0), narx.input_names.index(name)]
    return rows


def _output_range(model: Model, lagged: NDArray[np.int64]) -> tuple[float, float]:
    """Smallest and largest output that a model knows of; infinite the other way round if it knows none."""
    if model.origin.output_range is not None:
        return model.origin.output_range
    if not lagged.size or not model.gp.n_points or not isinstance(model.scaling, Scaling):
        return np.inf, -np.inf
    values = model.scaling.inverse(model.gp.inputs)[:, lagged]
    return float(values.min()), float(values.max())


def _gradient(model: Model, weights: Array, regressors: Array) -> Array:
    z = model.scaling.transform(regressors)
    slopes = np.einsum("njd,j->nd", model.gp.kernel.input_gradient(z, model.gp.inputs), weights)
    return np.asarray(model.mean.gradient(regressors) + slopes @ model.scaling.linear_part())


def _padded(arrays: list[Array]) -> Array:
    """Arrays stacked, C-contiguous, each filled up with zeros at the ends of its axes."""
    shape = np.maximum(1, np.max([array.shape for array in arrays], axis=0))
    padded = np.zeros((len(arrays), *shape))
    for to, array in zip(padded, arrays, strict=True):
        to[tuple(slice(size) for size in array.shape)] = array
    return padded
