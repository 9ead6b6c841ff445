"""The predictions of a model for the records that it is validated on, and their scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.cli.progress import doing
from experiments.drawing.tables import error_unit
from experiments.plant.physics import widen
from experiments.validate.material import Material
from sysid import (
    AboutPath,
    Divergence,
    Forecast,
    JointModel,
    Propagation,
    Screened,
    Validation,
    screen_records,
)
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.gross_errors import are_untouched
from sysid.simulation.forecast import check_records, forecast
from sysid.simulation.validation import validate

FREE_RUN_LABEL = "free_run"  # label of the horizon without end, in files
#: samples ahead that are predicted if no horizons are given
AUTOMATIC_HORIZONS = (1, 3, 10, 30)
# horizons that nobody chose are left out if samples times horizon exceed this number of predictions
MAX_AUTOMATIC_PREDICTIONS = 100_000
FORECAST_SERIES = ("measured", "mean", "variance")  # fields of the forecast of a record


class Case(NamedTuple):
    """One kind of prediction of the records: a horizon and an initialisation window."""

    horizon: int | None  # samples ahead; None: free run (simulation)
    window: int  # length of the initialisation window [samples]

    @property
    def label(self) -> int | str:
        """Label of the horizon in files."""
        return FREE_RUN_LABEL if self.horizon is None else self.horizon

    @property
    def name(self) -> str:
        """Name of the group of this case in a NetCDF file."""
        if self.horizon == 1:
            return f"one_step_window_{self.window}"
        horizon = self.words.replace(" ", "_")
        return f"{horizon}_window_{self.window}"

    @property
    def words(self) -> str:
        """The horizon in words, such as "1 step", "5 steps" or "free run"."""
        if self.horizon is None:
            return "free run"
        if self.horizon == 1:
            return "1 step"
        return f"{self.horizon} steps"


def plan_cases(horizons: Any, windows: Any, default_window: int) -> list[Case]:
    """Return a case for every window and horizon, the cases of the main window first.

    For each window one step ahead comes first and the free run last.

    Raises
    ------
    ValueError
        If horizons or windows are not different whole numbers of at least 1, or there is no window.
    """
    if windows is None:
        windows = [default_window]
    window_lengths = read_sample_counts("windows", windows)
    if not window_lengths:
        raise UserError(
            "windows must name at least one number of samples, such as [5, 50], or be null"
        )
    steps_ahead = sorted({1, *read_sample_counts("horizons", horizons)})
    all_horizons = (*steps_ahead, None)
    return [Case(horizon, window) for window in window_lengths for horizon in all_horizons]


def choose_horizons(records: Sequence[xr.Dataset]) -> list[int]:
    """Return the horizons that are predicted if none are given: 1, 3, 10 and 30 samples.

    Horizons whose samples times horizon exceed `MAX_AUTOMATIC_PREDICTIONS` are left out, and so are
    those that a record is too short for.
    """
    lengths = [record.sizes["time"] for record in records]
    chosen = [1]
    for horizon in AUTOMATIC_HORIZONS:
        is_affordable = sum(lengths) * horizon <= MAX_AUTOMATIC_PREDICTIONS
        if horizon > 1 and is_affordable and min(lengths) > 2 * horizon:
            chosen.append(horizon)
    return chosen


def read_sample_counts(name: str, values: Any) -> list[int]:
    """Return one number of samples, or a list of them, as a list.

    Raises
    ------
    ValueError
        If the values are not different whole numbers of at least 1.
    """
    counts = [values] if isinstance(values, int) else values
    is_list = isinstance(counts, Sequence) and not isinstance(counts, str)
    if not is_list or not _are_different_counts(counts):
        raise UserError(
            f"{name} must be whole numbers of samples of at least 1, each once, such as [1, 10], "
            f"got {values!r}"
        )
    return list(counts)


def _are_different_counts(values: Sequence[Any]) -> bool:
    """Return whether all values are whole numbers of at least 1 and no two are equal."""
    are_counts = all(type(value) is int and value >= 1 for value in values)
    return are_counts and len(set(values)) == len(values)


@dataclass(frozen=True, eq=False)
class Assessment:
    """Forecasts of every horizon and window, and their scores.

    The main window is the window of the first case. `main` holds its cases with one step ahead and
    with the free run.
    """

    joint: JointModel
    material: Material
    propagation: Propagation
    forecasts: dict[Case, Forecast]
    # samples from which on the propagation diverges although the mean does not, by case
    unbounded: dict[Case, tuple[Divergence, ...]]
    loop: xr.Dataset | None = None  # result of `compare_loops`, if a loop was closed
    linear_views: Any = None  # `LinearViews` of the model at operating points, if asked for
    is_trained_for_free_run: bool = False  # whether the models are known to be
    has_chosen_horizons: bool = False  # whether the user has named the horizons
    screens_records: bool = True  # whether gross errors of the records are looked for

    @property
    def window(self) -> int:
        """The main window [samples]."""
        first_case = next(iter(self.forecasts))
        return first_case.window

    @property
    def main(self) -> dict[str, Case]:
        """The cases one step ahead and free run with the main window."""
        return {"one_step": Case(1, self.window), FREE_RUN_LABEL: Case(None, self.window)}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.joint.output_names

    def unit(self, signal: str) -> str:
        """Return the unit of a signal from the records or the model; empty if neither states it."""
        attributes = self.material.records[0][signal].attrs
        return str(attributes.get("units") or self.joint.origin.unit(signal))

    def error_unit(self, signal: str) -> str:
        """Return the unit of an error of a signal, "1" if the signal has no unit.

        The error of a temperature in degC is in K.
        """
        return error_unit(self.unit(signal)) or "1"

    def series(
        self, case: Case, output: str, record: int | None = None
    ) -> tuple[Array, Array, Array, float]:
        """Return the series of one output in one record, or in all records one after the other.

        Samples whose output is missing are left out.

        Returns
        -------
        measured : (n,)
        mean : (n,)
            Predicted mean.
        variance : (n,)
            Latent predictive variance.
        noise_variance
            Noise variance of a measurement.
        """
        case_forecast = self.forecasts[case]
        i = self.outputs.index(output)
        chosen = [part for part in case_forecast.records if record in (None, part.record)]
        measured, mean, variance = (
            np.concatenate([getattr(part, name)[:, i] for part in chosen])
            for name in FORECAST_SERIES
        )
        noise_variance = float(case_forecast.noise_variance[i])
        is_measured = np.isfinite(measured)
        if is_measured.all():
            return measured, mean, variance, noise_variance
        return measured[is_measured], mean[is_measured], variance[is_measured], noise_variance

    def score(self, case: Case, output: str, record: int | None = None) -> Validation:
        """Return the scores of one output in one record, or in all records together."""
        return self._score(case, output, self.series(case, output, record))

    def _score(
        self, case: Case, output: str, series: tuple[Array, Array, Array, float]
    ) -> Validation:
        """Return the scores of a series of `series`."""
        origin = self.joint.models[self.outputs.index(output)].origin
        moments: Any = origin.output_mean, origin.output_variance
        trivial = None if None in moments else moments
        return validate(*series, trivial=trivial, window=case.window)

    @cached_property
    def screened(self) -> Screened:
        """The records screened for gross errors of their outputs and inputs, if this is wanted."""
        if not self.screens_records:
            return Screened(self.material.records, {}, ())
        source = self.material.source
        present = self.material.records[0]
        inputs = [name for name in source.inputs if name in present]
        return screen_records(self.material.records, source.outputs, inputs)

    def are_untouched(self, number: int) -> np.ndarray:
        """Return which samples of a record no gross error touches, for each output (n, n_outputs).

        Neither the output nor any lag of it or of an input is a gross error there.
        """
        n_samples = self.material.records[number].sizes["time"]
        if not self.screened.n_found:
            return np.ones((n_samples, len(self.outputs)), dtype=bool)
        marks = self.screened.marks[number]
        by_output = [are_untouched(marks, model.narx) for model in self.joint.models]
        return np.stack(by_output, axis=1)

    def are_gross_errors(self, number: int, output: str) -> np.ndarray:
        """Return which samples (n,) of an output of a record are gross errors."""
        if not self.screened.n_found:
            return np.zeros(self.material.records[number].sizes["time"], dtype=bool)
        return self.screened.marks[number][output]

    def score_without_gross_errors(self, case: Case, output: str) -> Validation:
        """Return the scores of one output without the samples that a gross error touches.

        Nor does one touch the first of several samples that are predicted ahead.
        """
        i = self.outputs.index(output)
        steps_since_start = 0 if case.horizon is None else case.horizon - 1
        kept = []
        for part in self.forecasts[case].records:
            is_untouched = self.are_untouched(part.record)[:, i]
            first_predicted = np.maximum(part.sample - steps_since_start, 0)
            is_kept = is_untouched[part.sample] & is_untouched[first_predicted]
            is_kept &= np.isfinite(part.measured[:, i])
            kept.append([getattr(part, name)[is_kept, i] for name in FORECAST_SERIES])
        measured, mean, variance = (np.concatenate(values) for values in zip(*kept, strict=True))
        noise_variance = float(self.forecasts[case].noise_variance[i])
        return self._score(case, output, (measured, mean, variance, noise_variance))

    @cached_property
    def scores_without_gross_errors(self) -> dict[str, dict[str, Validation]]:
        """Scores by kind and output of the main cases; empty if there are no gross errors."""
        if not self.screened.n_found:
            return {}
        return {
            kind: {name: self.score_without_gross_errors(case, name) for name in self.outputs}
            for kind, case in self.main.items()
        }

    @cached_property
    def scores(self) -> dict[Case, dict[str, Validation]]:
        """Scores by case and output, of all records together."""
        return {
            case: {name: self.score(case, name) for name in self.outputs} for case in self.forecasts
        }

    @cached_property
    def of_each_record(self) -> list[tuple[xr.Dataset, Case, str, Validation]]:
        """Scores of each record and output, one step ahead and in free run.

        The list is empty if there is only one record.
        """
        records = self.material.records
        scores: list[tuple[xr.Dataset, Case, str, Validation]] = []
        if len(records) <= 1:
            return scores
        for number, record in enumerate(records):
            for name in self.outputs:
                for case in self.main.values():
                    scores.append((record, case, name, self.score(case, name, number)))
        return scores

    def count(self, case: Case) -> dict[str, int]:
        """Return the number of samples that a case does not score, and of special predictions."""
        case_forecast = self.forecasts[case]
        n_scored = self.scores[case][self.outputs[0]].n
        special = {
            "n_filled": case_forecast.n_filled,
            "n_diverged": case_forecast.n_lost,
            "n_held": case_forecast.n_held,
        }
        return {"left_out": self.material.n_samples - n_scored, **special}


def assess(
    joint: JointModel,
    material: Material,
    cases: Sequence[Case],
    propagation: Propagation,
    *,
    seed: int,
) -> Assessment:
    """Predict the records in every case.

    Raises
    ------
    ValueError, TypeError
        If the records do not fit the model, or are not longer than a window or horizon.
    """
    check_records(joint, material.records)
    _check_lengths(material, cases)
    max_lag = joint.models[0].narx.max_lag
    forecasts: dict[Case, Forecast] = {}
    unbounded: dict[Case, tuple[Divergence, ...]] = {}
    by_window = sorted(cases, key=lambda case: case.window)
    for number, case in enumerate(by_window, 1):
        same_horizon = [before for before in forecasts if before.horizon == case.horizon]
        shorter = same_horizon[0] if same_horizon else None  # the case with the shortest window
        depends_on_window = case.horizon is None or material.physics is not None
        if depends_on_window or shorter is None or unbounded[shorter] or forecasts[shorter].n_lost:
            progress = f"{number} of {len(cases)}"
            with doing(f"predicting {case.words} after {case.window} samples, {progress}"):
                result = _predict(joint, material, case, propagation, seed)
                forecasts[case], unbounded[case] = result
        else:
            forecasts[case] = _shorten(forecasts[shorter], case.window, max_lag)
            unbounded[case] = ()
    forecasts = {case: forecasts[case] for case in cases}
    return Assessment(joint, material, propagation, forecasts, unbounded)


def _check_lengths(material: Material, cases: Sequence[Case]) -> None:
    """Raise ValueError unless every record is longer than every window and horizon."""
    for record, case in product(material.records, cases):
        n = record.sizes["time"]
        longest = max(case.window, case.horizon or 0)
        if n <= longest:
            limit = "window" if longest == case.window else "horizon"
            raise UserError(
                f"record {record.attrs['name']!r} of {material.source.name} has {n} samples, "
                f"expected more than the {limit} of {longest}: "
                f"take smaller {limit}s=[...], or longer records"
            )


def _shorten(longer: Forecast, window: int, max_lag: int) -> Forecast:
    """Return a forecast without the samples of a longer window.

    This is the forecast after the longer window: a few steps ahead, predictions do not depend on
    the window.
    """
    records = []
    for record in longer.records:
        is_kept = record.sample >= window
        kept = {
            name: getattr(record, name)[is_kept]
            for name in (*FORECAST_SERIES, "sample", "time", "regressors")
        }
        n_filled = int((kept["sample"] < max_lag).sum())
        records.append(replace(record, **kept, n_filled=n_filled))
    return replace(longer, window=window, records=tuple(records))


def _predict(
    joint: JointModel,
    material: Material,
    case: Case,
    propagation: Propagation,
    seed: int,
) -> tuple[Forecast, tuple[Divergence, ...]]:
    """Predict the mean path of the model, and calibrated bands about it (`AboutPath`).

    Returns
    -------
    Forecast
    tuple of Divergence
        The first sample of each record from which on the bands have no bounds although the mean
        path does not diverge.
    """
    records = material.records_after(case.window)
    case_forecast = forecast(
        joint,
        records,
        horizon=case.horizon,
        window=case.window,
        propagation=AboutPath(propagation),
        seed=seed,
    )
    case_forecast = widen(case_forecast, joint, records)
    unbounded = []
    for predicted in case_forecast.records:
        is_unbounded = np.isinf(predicted.variance).any(axis=1)
        if predicted.diverged is None and is_unbounded.any():
            row = int(is_unbounded.argmax())
            sample = int(predicted.sample[row])
            time = float(predicted.time[row])
            column = int(np.isinf(predicted.variance[row]).argmax())
            output = joint.output_names[column]
            unbounded.append(Divergence(predicted.record, sample, time, output, np.inf))
    return case_forecast, tuple(unbounded)
