"""A running plant: identified models predict each sample, then learn it, and look ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isinf, isnan, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, real_numbers
from sysid.errors import UserError
from sysid.gp.dictionary import UpdateReport
from sysid.identification import Identification
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Narx, OnMissing
from sysid.narx.window import Estimates, LagWindow
from sysid.simulation.dynamics import gradient_of, weights_of
from sysid.simulation.look_ahead import read_coming_inputs, simulate_ahead, table_of_bands
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly, Propagation
from sysid.simulation.validation import Z_95

# Directions of the errors of the last outputs whose variance is below this fraction of the largest
# one are left out of a look ahead [-].
MIN_ERROR_VARIANCE_RATIO = 1e-12


class LiveReport(NamedTuple):
    """Prediction of one output, made before it was measured, and what became of the sample."""

    mean: float  # predicted output [unit of the output]
    low: float  # lower end of the 95 % band of a measurement [unit of the output]
    high: float  # upper end of this band [unit of the output]
    #: Decisions of the model about the sample, with its prediction of the target. None: the sample
    #: was not learned, because its output is missing, or too many among its lags are.
    update: UpdateReport | None

    @property
    def outlier(self) -> bool:
        """Whether the sample is beyond the gate, so that it is not learned for the time being."""
        return self.update is not None and self.update.outlier


class _Prediction(NamedTuple):
    """Prediction of an output from its present lags, some of which may be estimates."""

    mean: float  # of the output
    latent_variance: float  # calibrated, output unit^2
    noise_variance: float  # output unit^2
    slopes: Array | None  # (L m,) by the last outputs; None if no lag is an estimate

    def added_variance(self, covariance: Array) -> float:
        """Return what the errors of the last outputs add, with their covariance (L m, L m)."""
        if self.slopes is None:
            return 0.0
        return float(self.slopes @ covariance @ self.slopes)

    def band(self, covariance: Array) -> tuple[float, float]:
        """Return the ends of the 95 % band of a measurement."""
        variance = self.latent_variance + self.noise_variance + self.added_variance(covariance)
        half_width = Z_95 * float(np.sqrt(variance))
        return self.mean - half_width, self.mean + half_width


class LiveLoop:
    """Identifications of the outputs of a plant, and the samples of its present run.

    A missing output (nan) is replaced among the lags by its prediction g(x). With the slopes G of
    the m outputs by their last L values e, and D the variances of the measured outputs at known
    lags, the covariance P of the errors of these values grows as in an extended Kalman filter::

        cov(e_k, e) = G P,    cov(e_k) = G P G' + D

    and is zero where an output is measured. The bands contain it. A sample is learned if such
    estimates among its lags add at most the noise variance to its prediction, as in records. What
    an identification takes for wrong (`Identification.replaced`) is replaced among the lags, too,
    and has the variance of an estimate as long as it is.

    Parameters
    ----------
    identifications
        Identification of each output that is predicted, by its name.
    outputs, inputs
        Names of all outputs and inputs of the plant.
    """

    def __init__(
        self,
        identifications: Mapping[str, Identification],
        outputs: Sequence[str],
        inputs: Sequence[str],
    ) -> None:
        self._identifications = dict(identifications)
        self._outputs = tuple(outputs)
        self._inputs = tuple(inputs)
        self._windows: dict[str, LagWindow] = {}
        for name, identification in identifications.items():
            narx = replace(identification.narx, on_missing=OnMissing.skip)
            self._windows[name] = LagWindow(narx)
        self._n_lags = max(1, *(window.narx.max_lag for window in self._windows.values()))
        self._begin()

    def reset(self) -> None:
        """Begin a new run of the plant: its first sample does not follow the last one.

        The models stay as they are. They decide at once about a sample that they still held back.
        """
        for name, identification in self._identifications.items():
            if identification.model is not None:
                identification.finish()
            self._windows[name].reset()
        self._begin()

    def _begin(self) -> None:
        """Forget the samples of the run."""
        n_states = self._n_lags * len(self._outputs)
        #: outputs whose models have learned a sample of this run
        self._has_learned: set[str] = set()
        self._past_outputs = np.full((0, len(self._outputs)), nan)  # measured or estimated
        self._past_inputs = np.full((0, len(self._inputs)), nan)
        self._covariance = np.zeros((n_states, n_states))  # of the errors of the last outputs
        #: (L, m) whether each of the last outputs was measured
        self._is_measured = np.ones((self._n_lags, len(self._outputs)), dtype=bool)

    def step(self, y: Any, u: Any, signals: Mapping[str, Any]) -> dict[str, LiveReport]:
        """Predict one sample from the samples before, then learn it.

        See `sysid.identified.IdentifiedModel.step`.
        """
        measured, applied = self._read(y, u, signals)
        predictions = self._predict(applied)
        estimated = np.array(
            [
                predictions[name].mean if isnan(value) and name in predictions else value
                for name, value in measured.items()
            ]
        )
        values = dict(zip(self._outputs, estimated, strict=True)) | applied
        self._check(measured, applied)
        reports = {}
        for name, identification in self._identifications.items():
            update = self._learn(name, identification, measured, values, predictions.get(name))
            if name in predictions:
                low, high = predictions[name].band(self._covariance)
                reports[name] = LiveReport(predictions[name].mean, low, high, update)
        self._follow(measured, predictions)
        self._past_outputs = _appended(self._past_outputs, estimated, self._n_lags)
        self._past_inputs = _appended(self._past_inputs, [*applied.values()], self._n_lags)
        return reports

    def ahead(
        self, inputs: ArrayLike | Mapping[str, ArrayLike] | int, sampling_time: float
    ) -> pd.DataFrame:
        """Predict the coming samples from the last ones and the inputs to come.

        See `sysid.identified.IdentifiedModel.ahead`.
        """
        coming = read_coming_inputs(inputs, self._inputs)
        self._check_past()
        moments = {}
        for name, identification in self._identifications.items():
            noise_variance = identification.require_model().gp.noise_variance
            outputs = self._mended(self._past_outputs, self._outputs, name)
            mean, variance = self._simulate(name, outputs, coming, AboutPath(Pathwise()))
            for root in self._roots_of_covariance():
                higher, _ = self._simulate(name, outputs + root, coming, MeanOnly())
                lower, _ = self._simulate(name, outputs - root, coming, MeanOnly())
                variance = variance + (0.5 * (higher - lower)) ** 2
            moments[name] = (mean, variance + noise_variance)
        return table_of_bands(moments, sampling_time)

    def last_samples(self, narx: Narx) -> tuple[Array, Array]:
        """Return the last L outputs (L, m) and inputs (L, n_u) of the run, in the order of `narx`.

        Missing outputs are estimates.

        Raises
        ------
        ValueError
            The run has fewer samples than lags so far, or too many of them are missing.
        """
        self._check_past()
        outputs = [self._outputs.index(signal) for signal in narx.output_names]
        inputs = [self._inputs.index(signal) for signal in narx.input_names]
        return self._past_outputs[:, outputs], self._past_inputs[:, inputs]

    def _simulate(
        self, name: str, outputs: Array, coming: Array, propagation: Propagation
    ) -> tuple[Array, Array]:
        """Return mean and latent variance (n,) of an output in free run.

        It begins after the last outputs (L, m), with the inputs to come (n, n_u).
        """
        model = self._identifications[name].require_model()
        narx = model.narx
        past_inputs = self._mended(self._past_inputs, self._inputs, name)
        columns = [self._inputs.index(signal) for signal in narx.input_names]
        mean, variance = simulate_ahead(
            self._simulated(model),
            outputs[:, [self._outputs.index(signal) for signal in narx.output_names]],
            past_inputs[:, columns],
            coming[:, columns],
            propagation,
        )
        column = narx.output_names.index(name)
        return mean[:, column], variance[:, column]

    def _roots_of_covariance(self) -> list[Array]:
        """Return arrays r (L, m) with ``sum r r' = P``, of the errors of the last outputs."""
        values, vectors = np.linalg.eigh(self._covariance)
        is_kept = values > MIN_ERROR_VARIANCE_RATIO * values[-1]
        roots = vectors[:, is_kept] * np.sqrt(values[is_kept])
        return [root.reshape(self._n_lags, -1) for root in roots.T]

    def _check_past(self) -> None:
        """Raise UserError unless the last samples are known, so that a look ahead can begin."""
        n_past = len(self._past_outputs)
        if n_past < self._n_lags:
            raise UserError(
                f"ahead: expected at least {self._n_lags} samples of this run, as many as the "
                f"longest lag, got {n_past}; call step first"
            )
        for kind, names, is_known in (
            ("output", self._outputs, np.isfinite(self._past_outputs)),
            ("input", self._inputs, np.isfinite(self._past_inputs)),
        ):
            (columns,) = np.nonzero(~is_known.all(axis=0))
            if len(columns):
                raise UserError(
                    f"ahead: expected the last {self._n_lags} samples without holes, but the "
                    f"{kind} {names[columns[0]]!r} is missing in some of them; wait until they "
                    "are measured"
                )

    def _replaced(self, name: str) -> dict[tuple[str, int], float]:
        """Return what the model of an output takes for wrong among the lags of the next sample.

        At the beginning of a run there is nothing: the values are those of the last run.
        """
        return self._identifications[name].replaced if name in self._has_learned else {}

    def _mended(self, past: Array, names: Sequence[str], target: str) -> Array:
        """Return the past samples (L, m) without what the model of an output takes for wrong."""
        mended = past.copy()
        for (name, n_ago), error in self._replaced(target).items():
            if name in names and n_ago <= len(mended):
                mended[-n_ago, names.index(name)] -= error
        return mended

    def _simulated(self, model: Model) -> Model | JointModel:
        """Return what is simulated for the output of a model: it, or all whose outputs it needs."""
        names = model.narx.output_names
        if len(names) == 1:
            return model
        identified = [name for name in names if name in self._identifications]
        return JointModel(tuple(self._identifications[name].require_model() for name in identified))

    def _read(
        self, y: Any, u: Any, signals: Mapping[str, Any]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the outputs and the inputs of a sample by name, in the order of the plant."""
        unknown = [name for name in signals if name not in (*self._outputs, *self._inputs)]
        if unknown:
            raise UserError(
                f"step: {_and(unknown)} is no signal of this plant; expected "
                f"{_and([*self._outputs, *self._inputs])}"
            )
        signals = dict(signals)
        if y is not None and "y" in (*self._outputs, *self._inputs) and signals:
            signals["y"] = y
            y = None
        if u is not None and "u" in (*self._outputs, *self._inputs) and signals:
            signals["u"] = u
            u = None
        read = []
        for kind, names, values in (("outputs", self._outputs, y), ("inputs", self._inputs, u)):
            named = {name: value for name, value in signals.items() if name in names}
            read.append(_by_name(kind, names, values, named))
        measured, applied = read
        return measured, applied

    def _predict(self, applied: Mapping[str, float]) -> dict[str, _Prediction]:
        """Predict the outputs whose lags are complete, measured or estimated.

        Lags of a linear part may be missing, or reach before the run: their values are filled in.
        """
        has_estimates = bool(self._covariance.any())
        predictions = {}
        for name, identification in self._identifications.items():
            model = identification.model
            window = self._windows[name]
            if model is None:
                continue
            inputs = _of(applied, window.narx.input_names)
            x = window.regressor(inputs)
            variance_of_fill = 0.0
            if x is None:
                x = window.partial_regressor(inputs)
                if x is None or not model.gp.n_linear:
                    continue
                is_missing = _fill_linear_part(model, x)
                if is_missing is None:
                    continue
                variance_of_fill = _variance_of_fill(model, x, is_missing)
            previous = window.previous_target_value
            for (signal, n_ago), error in self._replaced(name).items():
                for column, feature in enumerate(window.narx.features):
                    if feature == (signal, n_ago):
                        x[column] -= error
                if (signal, n_ago) == (name, 1):
                    previous -= error
            predicted = model.predict(x[None])
            predictions[name] = _Prediction(
                float(window.narx.predict.to_value(predicted.mean[0], previous)),
                float(model.calibrated(predicted.variance[0])) + variance_of_fill,
                model.gp.noise_variance,
                self._slopes(model, x) if has_estimates else None,
            )
        return predictions

    def _slopes(self, model: Model, x: Array) -> Array:
        """Return the derivatives (L m,) of an output by the last outputs, the newest last."""
        narx = model.narx
        by_feature = gradient_of(model, weights_of(model), x[None])[0]
        slopes = np.zeros((self._n_lags, len(self._outputs)))
        for slope, (name, lag) in zip(by_feature, narx.features, strict=True):
            if name in narx.output_names:
                slopes[self._n_lags - lag, self._outputs.index(name)] += slope
        if narx.needs_previous:
            slopes[-1, self._outputs.index(narx.target)] += 1.0
        return slopes.ravel()

    def _check(self, measured: Mapping[str, float], applied: Mapping[str, float]) -> None:
        """Raise the error of a model that would refuse the sample, before any of them learns it."""
        for name, identification in self._identifications.items():
            window = self._windows[name]
            narx = window.narx
            expected = window.preview(
                _of(measured, narx.output_names), _of(applied, narx.input_names)
            )
            if expected is not None:
                identification.check_samples(expected.regressor[None], [expected.target])

    def _learn(
        self,
        name: str,
        identification: Identification,
        measured: Mapping[str, float],
        values: Mapping[str, float],
        predicted: _Prediction | None,
    ) -> UpdateReport | None:
        """Store a sample in the window of an output, and learn it unless too much is estimated."""
        window = self._windows[name]
        narx: Narx = window.narx
        outputs = _of(measured, narx.output_names)
        estimates = None
        has_estimates = predicted is not None and predicted.slopes is not None
        if np.isnan(outputs).any() or has_estimates:
            estimated = np.where(np.isnan(outputs), _of(values, narx.output_names), nan)
            is_informative = predicted is not None and (
                predicted.added_variance(self._covariance) <= predicted.noise_variance
            )
            estimates = Estimates(estimated[None], np.full((1, len(outputs)), is_informative))
        rows = window.observe_many(outputs, _of(values, narx.input_names), estimates)
        has_learned = name in self._has_learned
        if not len(rows.target):
            if has_learned:
                identification.skip()
            return None
        self._has_learned.add(name)
        return identification.observe(rows.regressor[0], float(rows.target[0]), follows=has_learned)

    def _follow(
        self, measured: Mapping[str, float], predictions: Mapping[str, _Prediction]
    ) -> None:
        """Move the covariance of the errors of the last outputs on by one sample."""
        is_measured = np.array([not isnan(value) for value in measured.values()])
        self._is_measured = np.vstack([self._is_measured, is_measured])[1:]
        is_wrong = np.zeros_like(self._is_measured)
        for i, name in enumerate(self._outputs):
            for signal, n_ago in self._replaced(name):
                if signal == name and n_ago <= self._n_lags:
                    is_wrong[-n_ago, i] = True
        is_uncertain = ~self._is_measured | is_wrong
        if not is_uncertain.any():
            self._covariance[:] = 0.0
            return
        is_missing = is_uncertain[-1]
        m = len(self._outputs)
        before = self._covariance
        newest = np.zeros((m, m))
        slopes = np.zeros((m, len(before)))
        for i, name in enumerate(self._outputs):
            if not is_missing[i] or name not in predictions:
                continue
            predicted = predictions[name]
            if predicted.slopes is not None:
                slopes[i] = predicted.slopes
            newest[i, i] = predicted.latent_variance + predicted.noise_variance
        cross = slopes @ before
        newest += cross @ slopes.T
        after = np.zeros_like(before)
        after[:-m, :-m] = before[m:, m:]
        after[-m:, :-m] = cross[:, m:]
        after[:-m, -m:] = cross[:, m:].T
        after[-m:, -m:] = newest
        is_certain = ~is_uncertain.ravel()
        after[is_certain] = 0.0
        after[:, is_certain] = 0.0
        self._covariance = after


def _fill_linear_part(model: Model, x: Array) -> NDArray[np.bool_] | None:
    """Fill the missing lags of the linear part in a regressor x (p,), and return which they are.

    The value of the nearest known lag of the same signal takes their place, as before the first
    sample of a free run; without any it is the mean of the signal. None: other lags are missing.
    """
    is_missing = np.isnan(x)
    if is_missing[: len(x) - model.gp.n_linear].any():
        return None
    features = model.narx.features
    for column in np.flatnonzero(is_missing):
        name, lag = features[column]
        known = [
            (abs(other_lag - lag), other)
            for other, (other_name, other_lag) in enumerate(features)
            if other_name == name and not is_missing[other]
        ]
        x[column] = x[min(known)[1]] if known else model.scaling.offset[column]
    return is_missing


def _variance_of_fill(model: Model, x: Array, is_missing: NDArray[np.bool_]) -> float:
    """Return the variance of a prediction due to missing lags of the linear part.

    Each of them has the variance of its signal in the data that scale the features, and they count
    as independent: ``sum_j (d mean / d x_j)^2 std_j^2``.
    """
    slopes = gradient_of(model, weights_of(model), x[None])[0]
    inverse_stds = np.linalg.norm(model.scaling.linear_part(), axis=0)
    stds = np.divide(1.0, inverse_stds, out=np.zeros(len(x)), where=inverse_stds > 0)
    stds[list(model.scaling.constant)] = 0.0
    return float(np.sum(np.square(slopes * stds)[is_missing]))


def _of(values: Mapping[str, float], names: Sequence[str]) -> Array:
    """Return the values of the named signals (n,)."""
    return np.array([values[name] for name in names], dtype=np.float64)


def _appended(past: Array, newest: ArrayLike, n_kept: int) -> Array:
    """Return the last `n_kept` samples (n, m) with a new one (m,)."""
    row = np.asarray(newest, dtype=np.float64)[None]
    return np.vstack([past, row])[-n_kept:]


def _and(names: Sequence[str]) -> str:
    """Return names in words."""
    if not names:
        return "nothing"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _by_name(
    kind: str, names: Sequence[str], values: Any, named: Mapping[str, Any]
) -> dict[str, float]:
    """Return the values of one sample by the name of their signal.

    They are numbers in the order of the names, a mapping, or were named one by one.
    """
    if values is not None and named:
        raise UserError(f"step: expected the {kind} once, got them by position and by name")
    if isinstance(values, pd.Series):
        values = values.to_dict()
    if values is None:
        values = named
    elif isinstance(values, Mapping):
        unknown = [str(name) for name in values if name not in names]
        if unknown:
            raise UserError(f"step: expected the {kind} {_and(names)}, got {_and(unknown)}")
    else:
        given = np.atleast_1d(real_numbers(values, f"step: {kind}", missing=True))
        if given.shape != (len(names),):
            got = f"values of shape {given.shape}" if given.size else "none"
            raise UserError(f"step: expected the {kind} {_and(names)}, got {got}")
        values = dict(zip(names, given, strict=True))
    missing = [name for name in names if name not in values]
    if missing:
        known = [name for name in names if name in values]
        raise UserError(f"step: expected the {kind} {_and(names)}, got {_and(known)}")
    numbers = {}
    for name in names:
        number = real_numbers(values[name], f"step: {name}", missing=True)
        if number.size != 1:
            raise UserError(f"step: expected one number for {name}, got shape {number.shape}")
        value = float(number.item())
        if isinf(value):
            raise UserError(f"step: expected a finite number for {name}, or nan, got {value}")
        numbers[name] = value
    return numbers
