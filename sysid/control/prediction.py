"""Predicted outputs of a plan of inputs, and their derivatives by these inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, vector
from sysid.errors import UserError, UserTypeError
from sysid.identification import Identification
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Narx
from sysid.simulation.dynamics import Dynamics, exogenous_rows
from sysid.simulation.forecast import past_outputs
from sysid.simulation.propagation.propagation import follow_mean
from sysid.simulation.spread import (
    error_sensitivities,
    is_within_limits,
    variance_of_errors,
)


class Situation(NamedTuple):
    """What is known of a plant at sample k, when its next input is to be decided.

    The measurement at sample k is known. The input from sample k on is what is decided.
    """

    time: float  # of sample k [s]
    outputs: Mapping[str, Array]  # (n,) measured values by output, y[k] last
    inputs: Mapping[str, Array]  # (n - 1,) values by input that were held until sample k
    state: Any = None  # true state of a simulated plant at sample k; None: not known


class PlanPrediction(NamedTuple):
    """Predicted outputs of a plan over T samples, and how they depend on the driven inputs."""

    mean: Array  # (T, m) outputs at the samples k + 1 ... k + T [unit of the output]
    #: (T, m, T, q) ``d mean[i, o] / d driven[j, c]``; zero where j > i
    sensitivity: Array


class Predictor(Protocol):
    """A model as a plan uses it, at the present state of the plant."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the m predicted outputs."""

    @property
    def driven(self) -> tuple[str, ...]:
        """Names of the q inputs that are planned."""

    def linearise(self, driven: Array) -> PlanPrediction:
        """Return the outputs of a plan and their derivatives.

        Row j of `driven` (T, q) is held from sample k + j to k + j + 1. The mean is nan from the
        step on at which the prediction diverges.
        """

    def standard_deviation(self, driven: Array) -> Array:
        """Return the standard deviations (T, m) of measurements along a plan (T, q)."""


class _Path(NamedTuple):
    """The mean path of a plan."""

    driven: Array  # (T, q)
    mean: Array  # (T, m)
    regressors: Array  # (T, p)
    is_free: NDArray[np.bool_]  # (T, m) whether the output is not at a limit of the model


class _LinearPath(NamedTuple):
    """The mean path of a plan, linearised."""

    path: _Path
    gradient: Array  # (T, m, p) of the targets by their features
    to_outputs: Array  # (T, m, T, m) derivatives of the outputs by errors of the targets

    @property
    def mean(self) -> Array:
        """Outputs (T, m)."""
        return self.path.mean

    @property
    def regressors(self) -> Array:
        """Regressors (T, p)."""
        return self.path.regressors


class _Lags(NamedTuple):
    """Lagged signals among the features; several features may be the same one."""

    pairs: list[tuple[int, int]]  # number of the signal, and lag
    sums: Array  # (p, number of pairs) 1 where a feature is that signal with that lag

    @classmethod
    def of(cls, narx: Narx, names: Sequence[str]) -> _Lags:
        """Return the lags of some signals."""
        pairs = sorted({(names.index(n), lag) for n, lag in narx.features if n in names})
        sums = np.zeros((narx.n_features, len(pairs)))
        for j, (name, lag) in enumerate(narx.features):
            if name in names:
                sums[j, pairs.index((names.index(name), lag))] = 1.0
        return cls(pairs, sums)


class ModelPredictor:
    """Predicts the outputs of a plan by an identified model, as its free run does.

    The mean is fed back. With the derivatives G of the targets by their features, the deviation of
    the outputs from the mean path is, to first order::

        dy = F dy + B du + df

    F (T m, T m) contains the derivatives by earlier outputs, one more on y[k-1] where the model
    predicts the change, B (T m, T q) those by the driven inputs, and df is the error of the
    function at the regressors of the path. The sensitivity is therefore ``(I - F)^-1 B``. Where an
    output is at a limit at which it saturates, its row is zero.

    Parameters
    ----------
    model : Identification or Model or JointModel
        An identification must have been trained.
    situation : Situation
        At least as many outputs as the longest lag.
    forecast : mapping of str to (T + 1,) array_like
        Values at the samples k ... k + T of the inputs that are not driven. The last one matters
        only to a model with a present input among its regressors. Signals that the model does not
        have are ignored. Inputs without a forecast keep their last value.
    driven : sequence of str
        Inputs that are planned.
    feeds_noise_back : bool, optional
        Whether the noise of every sample is fed back with the output, so that its effect
        accumulates. None: if the bands of the model are not calibrated over the horizon
        (`sysid.Model.bands`).

    Raises
    ------
    ValueError, TypeError
        If the model is not trained or has the present value of a driven input among its
        regressors, a signal is missing, or a forecast ends before the plan.

    Examples
    --------
    >>> from sysid import Identification, Narx, Settings
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=200)
    >>> y = np.zeros(200)
    >>> for k in range(199):
    ...     y[k + 1] = 0.5 * y[k] + u[k]
    >>> narx = Narx({"y": 1}, {"u": 1}, predict="value")
    >>> rows = narx.regressors({"y": y, "u": u})
    >>> identification = Identification(narx, Settings(budget=20))
    >>> _ = identification.observe_many(rows.regressor, rows.target)
    >>> situation = Situation(0.0, {"y": y[-5:]}, {"u": u[-5:-1]})
    >>> predictor = ModelPredictor(identification, situation, {}, driven=["u"])
    >>> prediction = predictor.linearise(np.zeros((3, 1)))
    >>> prediction.sensitivity[:, 0, 0, 0].round(1)
    array([1. , 0.5, 0.2])
    """

    def __init__(
        self,
        model: Identification | Model | JointModel,
        situation: Situation,
        forecast: Mapping[str, ArrayLike],
        driven: Sequence[str],
        *,
        feeds_noise_back: bool | None = None,
    ) -> None:
        found = model.model if isinstance(model, Identification) else model
        if not isinstance(found, Model | JointModel):
            raise UserTypeError(
                "ModelPredictor: expected a trained Identification, a Model or a JointModel, got "
                f"{'one without a model yet' if found is None else type(found).__name__}"
            )
        self.driven = tuple(driven)
        self._dynamics = Dynamics(found)
        self._narx = self._dynamics.narx
        self.output_names = tuple(self._narx.output_names)
        check_driven(self._narx, self.driven)
        if feeds_noise_back is None:
            feeds_noise_back = not any(one.bands for one in self._dynamics.models)
        self._feeds_noise_back = feeds_noise_back
        self._outputs = _past(situation.outputs, self.output_names, "outputs")
        n_known = len(self._outputs)
        n_needed = max(self._narx.max_lag, 1)
        if n_known < n_needed:
            raise UserError(
                f"ModelPredictor: expected at least {n_needed} outputs, as many as the longest "
                f"lag, got {n_known}"
            )
        inputs = _past(situation.inputs, self._narx.input_names, "inputs")
        if len(inputs) != n_known - 1:
            raise UserError(
                "ModelPredictor: expected one input less than outputs, as that of the last output "
                f"is to be decided, got {len(inputs)} inputs and {n_known} outputs"
            )
        self._inputs = inputs
        self._forecast = forecast
        self._columns = [self._narx.input_names.index(name) for name in self.driven]
        self._driven_lags = _Lags.of(self._narx, self.driven)
        self._start = past_outputs(self._outputs, n_known - 1, self._dynamics)
        self._path: _Path | None = None
        self._linear_path: _LinearPath | None = None

    def mean(self, driven: Array) -> Array:
        """Return the outputs (T, m) of a plan (T, q); nan after they have diverged."""
        return self._follow(driven).mean

    def linearise(self, driven: Array) -> PlanPrediction:
        """Return the outputs of a plan (T, q) and their derivatives; see `Predictor`."""
        path = self._linearised(driven)
        n_steps, n_driven = driven.shape
        n_outputs = len(self.output_names)
        B = np.zeros((n_steps, n_outputs, n_steps, n_driven))
        self._add(B, path.gradient, self._driven_lags)
        size = n_steps * n_outputs
        solved = path.to_outputs.reshape(size, size) @ B.reshape(size, n_steps * n_driven)
        return PlanPrediction(path.mean, solved.reshape(B.shape))

    def standard_deviation(self, driven: Array) -> Array:
        """Return the standard deviations (T, m) of measurements along a plan (T, q).

        With the covariance C of the function at the regressors of the path, and the noise
        variance s, the covariance of the outputs is, to first order in both::

            (I - F)^-1 (C + s I) (I - F)^-T

        The error of the function is thus the same wherever the path visits the same regressor
        (`sysid.Pathwise` follows drawn functions instead). If noise is not fed back, s is added
        after the product, and the variance is calibrated by the bands of the model
        (`sysid.Model.calibrated`).
        """
        path = self._linearised(driven)
        n_steps = len(driven)
        n_outputs = len(self.output_names)
        if not np.isfinite(path.mean).all():
            return np.full((n_steps, n_outputs), np.inf)
        latent = variance_of_errors(
            self._dynamics,
            path.regressors[None],
            path.to_outputs[None],
            feeds_noise_back=self._feeds_noise_back,
        )
        latent = self._dynamics.calibrated(latent, n_steps=n_steps)[0]
        return np.asarray(np.sqrt(latent + self._dynamics.noise_variance))

    def _follow(self, driven: Array) -> _Path:
        """Return the mean path of a plan (T, q); the last one is kept."""
        if self._path is not None and np.array_equal(self._path.driven, driven):
            return self._path
        dynamics = self._dynamics
        n_steps = len(driven)
        inputs = np.concatenate([self._inputs, self._coming(n_steps)])
        n_known = len(self._outputs)
        inputs[n_known - 1 : -1, self._columns] = driven
        coming = n_known + np.arange(n_steps)
        exogenous = exogenous_rows(self._narx, inputs[None], coming)
        whole, _ = follow_mean(dynamics, self._start, exogenous)
        mean = whole[0, dynamics.n_lags :]
        regressors = dynamics.regressors_along(whole, exogenous)[0]
        is_free = is_within_limits(dynamics, mean)
        self._path = _Path(driven.copy(), mean, regressors, is_free)
        return self._path

    def _linearised(self, driven: Array) -> _LinearPath:
        """Return the mean path of a plan (T, q) with its derivatives; the last one is kept."""
        path = self._follow(driven)
        if self._linear_path is not None and self._linear_path.path is path:
            return self._linear_path
        dynamics = self._dynamics
        n_steps = len(driven)
        is_known = np.isfinite(path.regressors).all(axis=1)
        gradient = np.zeros((n_steps, dynamics.n_outputs, dynamics.n_features))
        gradient[is_known] = dynamics.gradient(path.regressors[is_known])
        to_outputs = error_sensitivities(dynamics, gradient[None], path.is_free[None])[0]
        self._linear_path = _LinearPath(path, gradient, to_outputs)
        return self._linear_path

    @staticmethod
    def _add(matrix: Array, gradient: Array, lags: _Lags) -> None:
        """Add the derivatives by lagged inputs to a matrix (T, m, T, number of inputs).

        The derivative at step t by an input with the lag l belongs to column ``t - l + 1``.
        """
        n_steps = len(matrix)
        by_pair = gradient @ lags.sums  # (T, m, number of pairs)
        for i, (column, lag) in enumerate(lags.pairs):
            first = lag - 1
            t = np.arange(first, n_steps)
            matrix[t, :, t - lag + 1, column] = by_pair[first:, :, i]

    def _coming(self, n_steps: int) -> Array:
        """Return the inputs (T + 1, n_u) of the samples k ... k + T; driven ones do not matter."""
        coming = np.zeros((n_steps + 1, len(self._narx.input_names)))
        for i, name in enumerate(self._narx.input_names):
            if name in self._forecast:
                coming[:, i] = read_forecast(self._forecast, name, n_steps)
            elif len(self._inputs):
                coming[:, i] = self._inputs[-1, i]
        return coming


def read_forecast(forecast: Mapping[str, ArrayLike], name: str, n_steps: int) -> Array:
    """Return the values (T + 1,) of a signal at the samples k ... k + T.

    Raises
    ------
    ValueError
        If there are none, they end too early, or one of them is not finite.
    """
    if name not in forecast:
        raise UserError(f"forecast: expected the coming values of {name!r}, got {list(forecast)}")
    values = vector(forecast[name], None, f"forecast of {name!r}")
    if len(values) < n_steps + 1:
        raise UserError(
            f"forecast of {name!r}: a plan of {n_steps} samples needs {n_steps + 1} values, from "
            f"the present one on, got {len(values)}"
        )
    return values[: n_steps + 1]


def check_driven(narx: Narx, driven: Sequence[str]) -> None:
    """Raise UserError unless a model with these lags can plan the driven inputs."""
    for name in driven:
        if name not in narx.input_names:
            raise UserError(
                f"predictive control: {name!r} is to be planned, but the model has the inputs "
                f"{list(narx.input_names)}"
            )
        if (name, 0) in narx.features:
            raise UserError(
                f"predictive control: the regressors contain the present {name}, which is decided "
                "after the output is measured; take lags from 1 on"
            )


def _past(signals: Mapping[str, ArrayLike], names: Sequence[str], what: str) -> Array:
    """Return the past values (n, number of names) of signals."""
    missing = [name for name in names if name not in signals]
    if missing:
        raise UserError(f"Situation: {what} lack {missing}, which the model needs")
    columns = [vector(signals[name], None, f"{what} {name!r}") for name in names]
    if len({len(column) for column in columns}) > 1:
        raise UserError(f"Situation: expected {what} of one length, got {list(map(len, columns))}")
    if not columns:
        return np.zeros((0, 0))
    return np.column_stack(columns)
