"""`identify`: from signals to a model in one call, and what can be done with that model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from inspect import signature
from math import inf, isnan
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

from sysid.arrays import as_number, is_number, real_numbers
from sysid.beside import one_blas_thread
from sysid.budget_choice import BudgetChoice, choose_budget
from sysid.choices import choices_of
from sysid.data.clock import NO_TIME, elapsed_seconds, equalise, find_equal_step
from sysid.data.columns import names_of_columns, split_name, texts_of_names
from sysid.data.csv import (
    KEEP_MISSING,
    ON_MISSING,
    check_bridge,
    read_table,
    share_sampling_time,
    split_table,
)
from sysid.data.holes import has_holes, mark_holes, may_have_holes
from sysid.data.source import Recordings
from sysid.dead_time import DeadTimes
from sysid.errors import UserError, UserTypeError, warn_user
from sysid.gp.adaptation import Adaptive
from sysid.gp.kernels import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from sysid.gp.mean import AutomaticMean, ConstantMean, LinearMean, ZeroMean
from sysid.gp.rules import (
    CRITERIA,
    AcceptAll,
    Always,
    Criterion,
    Either,
    ErrorThreshold,
    ExceedsMinimum,
    Novelty,
    VarianceThreshold,
)
from sysid.gp.selection import Backward, Forward
from sysid.gp.training import Fixed, MaximumAPosteriori, MaximumLikelihood
from sysid.gross_errors import Screened, are_rows_untouched, screen_records
from sysid.identification import Identification, Settings, too_few_rows
from sysid.identified_views import Predicted, draw_output, small_chart
from sysid.lag_choice import (
    LagChoice,
    best_arx,
    best_arx_of_equal_lags,
    choose_lags,
    choose_linear_part,
)
from sysid.live import LiveLoop, LiveReport
from sysid.markup import folded, labelled, notes, table
from sysid.missing_outputs import with_line_estimates, with_model_estimates
from sysid.model.linear_view import LinearView
from sysid.model.model import Model, Origin
from sysid.model.operating_point import linearize, ranges_of_records
from sysid.narx.lags import Narx, OnMissing, Target
from sysid.narx.record import TIME_TOLERANCE, read_records
from sysid.progress_display import doing, shows_progress
from sysid.simulation.baselines import LinearArx
from sysid.simulation.forecast import forecast, warn_of_held
from sysid.simulation.look_ahead import ComingInputs
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly
from sysid.simulation.residual_advice import advise
from sysid.simulation.residuals import ResidualReport, most_lags, residual_tests
from sysid.simulation.validation import Z_95, validate
from sysid.simulation_error.training import FreeRun
from sysid.time_limit import TimeLimit

#: a record: a data set over time, a table, arrays by name, the path of a CSV file, or a pair (u, y)
#: of inputs and outputs
Signals: TypeAlias = (
    "xr.Dataset | pd.DataFrame | Mapping[str, Any] | str | os.PathLike[str] | tuple[Any, Any]"
)


def _make_acceptance(criterion: type[Criterion]) -> ExceedsMinimum:
    """Return the acceptance with the default object of a criterion."""
    return ExceedsMinimum(criterion())


#: classes by the word that `identify` accepts for their default object, as the command line does
CLASSES_BY_WORD: dict[str, dict[str, Any]] = {
    "training": {
        "maximum_a_posteriori": MaximumAPosteriori,
        "maximum_likelihood": MaximumLikelihood,
        "adaptive": Adaptive,
        "free_run": FreeRun,
        "fixed": Fixed,
    },
    "mean": {
        "automatic": AutomaticMean,
        "constant": ConstantMean,
        "linear": LinearMean,
        "zero": ZeroMean,
    },
    "selection": {
        "backward": Backward,
        "forward": Forward,
    },
    "insertion": {
        "always": Always,
        "either": Either,
        "novelty": Novelty,
        "error": ErrorThreshold,
        "variance": VarianceThreshold,
    },
    "reduction": CRITERIA,
    "acceptance": {"none": AcceptAll}
    | {name: partial(_make_acceptance, criterion) for name, criterion in CRITERIA.items()},
}
#: word for the acceptance by the criterion of the reduction
MATCHED = "matched"
#: prototypes of kernels by the word that `identify` accepts for them
KERNELS_BY_WORD: dict[str, Kernel] = {
    "squared_exponential": SquaredExponential(),
    "matern_32": Matern32(),
    "matern_52": Matern52(),
    "linear": Linear(),
    "linear_plus_squared_exponential": Sum([Linear(), SquaredExponential()]),
    "linear_plus_matern_52": Sum([Linear(), Matern52()]),
    "linear_times_squared_exponential": Product([Linear(), SquaredExponential()]),
}
PURPOSES = ("prediction", "simulation")
#: horizons of `IdentifiedModel.validate` by their title [samples]; None: free run
HORIZONS: dict[str, int | None] = {"1 step": 1, "free run": None}
#: columns of `IdentifiedModel.compare`; the first two only where records have gross errors
COMPARED = ("rmse_without_gross_errors", "fit_without_gross_errors", "rmse", "fit_percent")
#: shorter test records take no part in the tests of the errors [samples]
MIN_RECORD_SAMPLES_TO_TEST = 100
#: with fewer rows no estimators are compared, because no typical distance of two rows is known
MIN_ROWS_TO_COMPARE = 2


@shows_progress("identify")
@one_blas_thread
def identify(
    data: Signals | Sequence[Signals],
    narx: Narx | str = "auto",
    settings: Settings | None = None,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    dt: float | None = None,
    time: str | None = None,
    on_missing: str = "error",
    bridge_inputs: int = 0,
    experiment: str | None = None,
    resample: float | None = None,
    test: Signals | Sequence[Signals] | None = None,
    identified: float = 0.7,
    purpose: str = "prediction",
    **changes: Any,
) -> IdentifiedModel:
    """Identify a model from records, with the algorithm and the defaults of `sysid-identify`.

    Parameters
    ----------
    data
        A record or a list of records. A record is an `xarray.Dataset` over ``time`` [s], a
        `pandas.DataFrame`, arrays by name, the path of a file (`CsvFiles`: text, .mat, .xlsx,
        .parquet), or a pair (u, y) of arrays (n,) or (n, number of signals). The signals of a pair
        are named u, y or u1, u2, ... unless
        `inputs` and `outputs` name them.
    narx : Narx or "auto"
        Regressors. "auto": the lags with the smallest held-out error, chosen for each output.
    settings : Settings, optional
        Settings of the identification; see `changes`.
    inputs, outputs
        Names of the signals; by default those of `narx`.
    dt : float, optional
        Sampling time [s], with which the times of the data must agree; None: the step of the times.
    time : str, optional
        Column of a table with times [s] or time stamps, whose steps may jitter by 10 %. Not needed
        for an index of time stamps, nor for a column called time, timestamp, datetime, stamp, t or
        date. "none": no column has the times.
    on_missing : "error" or "skip"
        Treatment of a missing value, or a gap in the times of a table. "skip" leaves it out of
        training and scores. Among the lags, missing outputs are replaced by the model's own
        estimates (`sysid.missing_outputs`), and a free run goes on through them. A warning counts
        what is missing.
    bridge_inputs : int
        With ``on_missing="skip"``: holes of an input of at most so many samples are interpolated.
        At longer ones a free run ends, and begins again after them.
    experiment : str, optional
        Column of a table that names the experiment of a row; each is a record. Without it, a clock
        that starts again at the time of the first row begins the next record.
    resample : float, optional
        Equal steps [s] at which the samples of tables are interpolated, for times that jitter by
        more; a warning states how.
    test
        Test records, as `data`. None: the last part of every record is the test.
    identified : float
        Fraction of every record that is learned if `test` is None; 1: all of it, without a test.
    purpose : "prediction" or "simulation"
        Use of the model: prediction one step ahead, or free run (simulation), for which it is then
        trained (`FreeRun`).
    **changes
        Changes of the settings, for example ``budget=50``. A word stands for an object with its
        default settings, as on the command line: ``training="adaptive"``, ``mean="linear"``,
        ``kernel="linear_plus_squared_exponential"``, ``insertion="novelty"``,
        ``reduction="prior_entropy"``.

    Returns
    -------
    IdentifiedModel

    Raises
    ------
    ValueError, TypeError
        Data or settings are missing or do not fit; the message states what was expected.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=600)
    >>> y = np.zeros(600)
    >>> for k in range(1, 600):
    ...     y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1]) + 0.01 * rng.normal()
    >>> found = identify((u, y), dt=0.1, budget=40)
    >>> found.model.narx.lags
    {'y': (1,), 'u': (1,)}
    >>> bool(found.validate().loc[("y", "1 step"), "fit_percent"] > 98)
    True
    """
    if purpose not in PURPOSES:
        raise UserError(f"identify: purpose must be one of {', '.join(PURPOSES)}, got {purpose!r}")
    if isinstance(narx, Narx):
        inputs = inputs or narx.input_names
        outputs = outputs or narx.output_names
    elif isinstance(narx, np.ndarray | pd.Series | pd.DataFrame | list):
        raise UserTypeError(
            f'identify: narx must be "auto" or a Narx, got {type(narx).__name__}: inputs and '
            "outputs are one argument, a pair: identify((u, y), dt=...)"
        )
    elif narx != "auto":
        raise UserError(f'identify: narx must be "auto" or a Narx, got {narx!r}')
    if on_missing not in ON_MISSING:
        raise UserError(
            f"identify: on_missing must be one of {', '.join(ON_MISSING)}, got {on_missing!r}"
        )
    check_bridge(bridge_inputs, on_missing)
    reader = _Reader(inputs, outputs, dt, time, on_missing, bridge_inputs, experiment, resample)
    recordings = _read_recordings(reader, data, test, identified)
    chosen = _choose_settings(settings, purpose, changes)
    measured = recordings
    if chosen.gate is not None and not recordings.is_static:
        screened = screen_records(recordings.estimation, recordings.outputs, recordings.inputs)
        if screened.n_found:
            recordings = replace(recordings, estimation=screened.records)
            warn_user(f"identify: {screened.describe()}")
    recordings = with_line_estimates(recordings)
    treatment = OnMissing.error
    if has_holes(recordings.records, [*recordings.inputs, *recordings.outputs]):
        treatment = OnMissing.skip
    identifications = {}
    lag_choices = {}
    budget_choices = {}
    targets = [narx.target] if isinstance(narx, Narx) else recordings.outputs
    for target in targets:
        settings_of_target = chosen
        time_limit = TimeLimit.of(chosen.training)
        with time_limit.running():
            if isinstance(narx, Narx):
                if treatment is OnMissing.skip:
                    narx = replace(narx, on_missing=treatment)
                rows = narx.dataset(recordings.estimation)
                if rows.sizes["sample"] < MIN_ROWS_TO_COMPARE:
                    raise too_few_rows(chosen, rows)
                with doing(f"choosing the linear part and the budget for {target}"):
                    lags = choose_linear_part(recordings.estimation, narx, chosen)
                    budget_choice = choose_budget(recordings.estimation, lags, chosen)
                if budget_choice is not None:
                    budget_choices[target] = budget_choice
                    settings_of_target = budget_choice.settings
            else:
                with doing(f"choosing the lags of {target}"):
                    lag_choices[target] = choose_lags(
                        recordings.estimation,
                        target,
                        recordings.inputs,
                        settings=chosen,
                        on_missing=treatment,
                    )
                lags = lag_choices[target].narx
                settings_of_target = lag_choices[target].settings
            recordings = with_model_estimates(recordings, lags, settings_of_target)
        with doing(f"training and learning {target}"):
            identification = Identification.of_records(
                recordings.estimation, lags, settings_of_target, time_limit=time_limit
            )
        origin = Origin.of(identification.narx.dataset(recordings.estimation))
        model = replace(identification.require_model(), origin=origin)
        identification.model = model
        if model.gp.unreached_memory:
            warn_user(f"{target}: {model.gp.unreached_memory}")
        identifications[target] = identification
    return IdentifiedModel(
        identifications,
        recordings,
        purpose,
        lag_choices,
        budget_choices,
        measured,
        time,
        experiment,
    )


def _read_recordings(
    reader: _Reader,
    data: Signals | Sequence[Signals],
    test: Signals | Sequence[Signals] | None,
    identified: float,
) -> Recordings:
    """Return the records to learn and to test, whose clocks have one sampling time.

    Without test records, the last part of every record is the test.
    """
    estimation_records = reader.read(data)
    test_records = reader.read(test) if test is not None else ()
    shared, note = share_sampling_time([*estimation_records, *test_records])
    if note:
        warn_user(note)
    recordings = Recordings(
        "data",
        reader.inputs,
        reader.outputs,
        estimation=tuple(shared[: len(estimation_records)]),
        test=tuple(shared[len(estimation_records) :]),
    )
    if test_records or identified == 1:
        return recordings
    if not (is_number(identified) and 0 < float(identified) < 1):
        raise UserError(f"identify: identified must be above 0 and at most 1, got {identified!r}")
    split = recordings.hold_out(1.0 - identified)
    return replace(split, validation=(), test=split.validation)


def _choose_settings(settings: Settings | None, purpose: str, changes: dict[str, Any]) -> Settings:
    """Return the settings with these changes, some of which may be words."""
    _check_names(changes)
    kernel = changes.pop("kernel", None)
    if purpose == "simulation":
        _check_free_run(settings, changes)
        if settings is None:
            changes["training"] = FreeRun()
    is_matched = changes.get("acceptance") == MATCHED
    if is_matched:
        del changes["acceptance"]
    for name, value in changes.items():
        if isinstance(value, str) and name in CLASSES_BY_WORD:
            changes[name] = _setting_of_word(name, value)
    chosen = replace(Settings() if settings is None else settings, **changes)
    is_only_reduction_changed = "reduction" in changes and "acceptance" not in changes
    if is_matched:
        chosen = replace(chosen, acceptance=ExceedsMinimum(chosen.reduction))
    elif is_only_reduction_changed and isinstance(chosen.acceptance, ExceedsMinimum):
        acceptance = replace(chosen.acceptance, criterion=chosen.reduction)
        chosen = replace(chosen, acceptance=acceptance)
    if kernel is None:
        return chosen
    if not isinstance(chosen.training, MaximumLikelihood | Fixed):
        raise UserError(
            f"identify: {type(chosen.training).__name__} chooses its kernel; leave kernel out"
        )
    if isinstance(kernel, str):
        if kernel not in KERNELS_BY_WORD:
            raise UserError(
                f"identify: kernel must be one of {', '.join(KERNELS_BY_WORD)}, or a prototype, "
                f"got {kernel!r}"
            )
        kernel = KERNELS_BY_WORD[kernel]
    return replace(chosen, training=replace(chosen.training, kernel=kernel))


def _check_names(changes: Mapping[str, Any]) -> None:
    """Raise UserTypeError if a change is no setting."""
    names = [setting.name for setting in fields(Settings)]
    unknown = [name for name in changes if name not in (*names, "kernel")]
    if not unknown:
        return
    settings_of_training = [setting.name for setting in fields(Adaptive)]
    hints = [
        f"{name} is a setting of the training: write training=sysid.Adaptive({name}=...)"
        for name in unknown
        if name in settings_of_training
    ]
    raise UserTypeError(
        f"identify: expected settings among {', '.join(sorted([*names, 'kernel']))}, "
        f"got {', '.join(unknown)}{'; '.join(['', *hints])}"
    )


def _check_free_run(settings: Settings | None, changes: dict[str, Any]) -> None:
    """Raise UserError if a training is given that is not the one for the purpose simulation."""
    is_other_training = settings is not None and not isinstance(settings.training, FreeRun)
    if is_other_training or "training" in changes:
        raise UserError(
            'identify: purpose="simulation" means training=FreeRun(); '
            "leave out the purpose or the training"
        )


def _setting_of_word(name: str, word: str) -> Any:
    """Return the object that a word stands for, as the setting of this name."""
    classes = CLASSES_BY_WORD[name]
    words = [*classes, MATCHED] if name == "acceptance" else [*classes]
    if word not in classes:
        raise UserError(
            f"identify: {name} must be one of {', '.join(words)}, or an object, got {word!r}"
        )
    kind = classes[word]
    parameters = signature(kind).parameters.values()
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    if required:
        arguments = ", ".join(f"{parameter}=..." for parameter in required)
        raise UserError(
            f"identify: {name}={word!r} needs a number that has no default; "
            f"write {name}={kind.__name__}({arguments})"
        )
    return kind()


class _Reader:
    """Turns the data that a user passes in into records with the same signals."""

    def __init__(
        self,
        inputs: Sequence[str] | None,
        outputs: Sequence[str] | None,
        dt: float | None,
        time: str | None,
        on_missing: str,
        bridge_inputs: int = 0,
        experiment: str | None = None,
        resample: float | None = None,
        *,
        is_named_once: bool = False,
    ) -> None:
        for kind, names in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(names, str):
                raise UserTypeError(
                    f"identify: {kind} must be a list of names, got {names!r}: write [{names!r}]"
                )
        if dt is not None and not is_number(dt):
            raise UserTypeError(f"identify: dt must be a number of seconds > 0, got {dt!r}")
        self.inputs = texts_of_names(inputs or ())
        self.outputs = texts_of_names(outputs or ())
        self.dt = dt
        self.time = time
        self.on_missing = on_missing
        self.bridge_inputs = bridge_inputs
        self.experiment = experiment
        self.resample = resample
        # columns were named for other data: these may do without them
        self.is_named_once = is_named_once

    def read(self, data: Any) -> tuple[xr.Dataset, ...]:
        """Return the records of one source or of a list of sources, split at gaps."""
        sources = data if isinstance(data, list) else [data]
        records: list[xr.Dataset] = []
        for number, source in enumerate(sources):
            records += self._records(source, number)
        return tuple(records)

    def _records(self, data: Any, number: int) -> list[xr.Dataset]:
        """Return the records of one source; `number` names a source that has no name."""
        if isinstance(data, tuple) and len(data) == 2:
            data = self._name(*data)
        if not isinstance(data, xr.Dataset | pd.DataFrame | Mapping | str | os.PathLike):
            advice = ""
            if isinstance(data, np.ndarray):
                advice = ": an array alone has no names, write the pair (u, y) in parentheses"
            raise UserTypeError(
                "identify: expected an xarray.Dataset, a pandas.DataFrame, arrays by name, a path, "
                f"or a pair (u, y), or a list of these, got {type(data).__name__}{advice}"
            )
        if not self.outputs:
            raise UserError("identify: name the signals, inputs=['u'] and outputs=['y']")
        if isinstance(data, xr.Dataset):
            return [self._record_of_dataset(data, number)]
        if isinstance(data, str | os.PathLike):
            name = Path(data).name
            table = read_table(Path(data), [*self.inputs, *self.outputs])
        else:
            name = f"record {number}"
            table = data if isinstance(data, pd.DataFrame) else _tabulate(data)
        time = self.time
        experiment = self.experiment
        if self.is_named_once:
            names = [split_name(whole)[0] for whole in names_of_columns(table)]
            names += [*names_of_columns(table), NO_TIME]
            time = time if time in names else None
            experiment = experiment if experiment in names else None
        records = split_table(
            table,
            [*self.inputs, *self.outputs],
            name=name,
            dt=self.dt,
            time=time,
            on_missing=self.on_missing,
            bridged=dict.fromkeys(self.inputs, self.bridge_inputs),
            experiment=experiment,
            resample=self.resample,
        )
        if "note" in records[0].attrs:
            warn_user(records[0].attrs["note"])
        return records

    def _record_of_dataset(self, data: xr.Dataset, number: int) -> xr.Dataset:
        """Return a data set with the attributes that every record needs."""
        is_for_tables = self.experiment is not None or self.resample is not None
        if is_for_tables and not self.is_named_once:
            raise UserError(
                "identify: experiment and resample are for tables; pass a data set for each "
                "experiment, at equal steps"
            )
        data = _with_plain_time(data, number)
        data, note = equalise(data, f"record {number}", self.dt)
        if note:
            warn_user(f"record {number}: {note}")
        (read,) = read_records(data, (*self.inputs, *self.outputs))
        if self.time not in (None, "time", NO_TIME) and not self.is_named_once:
            raise UserError(
                f"identify: the times of a data set are its coordinate 'time', got "
                f"time={self.time!r}: leave time out, or rename the coordinate"
            )
        if self.dt is not None and not _is_close(self.dt, read.sampling_time):
            unit = " samples" if read.time_unit == "1" else " s"
            raise UserError(
                f"identify: dt={self.dt!r} does not fit record {number}, whose time has steps of "
                f"{read.sampling_time:.9g}{unit}: leave dt out, or correct the coordinate time"
            )
        defaults = {
            "name": f"record {number}",
            "initialisation_window": 0,
            "static": 0,
        }
        attributes = defaults | data.attrs | {"sampling_time": read.sampling_time}
        record = data.assign_attrs(attributes)
        if self.on_missing != "skip":
            return record
        record, notes = mark_holes(
            record, [*self.inputs, *self.outputs], self.inputs, self.bridge_inputs
        )
        if notes:
            warn_user(f"record {number}: {'; '.join(notes)}")
        return record

    def _name(self, u: Any, y: Any) -> pd.DataFrame:
        """Return the columns of a pair of arrays as a table, and remember the names."""
        index = _shared_index(u, y)
        inputs = _name_columns("inputs", self.inputs, "u", u)
        outputs = _name_columns("outputs", self.outputs, "y", y)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        columns = inputs | outputs
        lengths = {name: len(values) for name, values in columns.items()}
        if len({*lengths.values()}) > 1:
            raise UserError(f"identify: signals of a record need one length, got {lengths}")
        return pd.DataFrame(columns, index=index)


def _with_plain_time(data: xr.Dataset, number: int) -> xr.Dataset:
    """Return a data set whose time is in seconds, in double precision.

    Time stamps and durations become seconds since the first. Times in single precision become equal
    steps if they are equal to their own precision.
    """
    if "time" not in data.coords or data["time"].dims != ("time",):
        return data
    time = data["time"]
    if time.dtype.kind in "mM":
        units = {"units": "s"}
        return data.assign_coords(time=("time", elapsed_seconds(time.values), time.attrs | units))
    if time.dtype == np.float32 and time.size > 1:
        seconds = time.values.astype(np.float64)
        step = find_equal_step(seconds, 4 * float(np.spacing(np.abs(time.values).max())))
        if step is not None:
            equal = seconds[0] + step * np.arange(len(seconds))
            return data.assign_coords(time=("time", equal, time.attrs))
    return data


def _is_close(dt: float, sampling_time: float) -> bool:
    """Whether a stated sampling time is that of a record, which may have a single sample."""
    if not 0 < dt < inf:
        raise UserError(f"dt={dt!r} must be a finite number of seconds > 0")
    return isnan(sampling_time) or abs(dt - sampling_time) <= TIME_TOLERANCE * sampling_time


def _tabulate(signals: Mapping[str, Any]) -> pd.DataFrame:
    """Return arrays by name as a table, in which arrays that have an index are aligned by it."""
    columns = {name: _as_column(name, values) for name, values in signals.items()}
    try:
        return pd.DataFrame(columns)
    except ValueError as error:
        lengths = {name: len(values) for name, values in columns.items() if np.ndim(values)}
        if len({*lengths.values()}) < 2:
            raise UserError(f"identify: the signals {[*columns]} make no table: {error}") from None
        raise UserError(f"identify: signals of a record need one length, got {lengths}") from None


def _as_column(name: Any, values: Any) -> Any:
    """Return a signal that is a row or a column of a matrix as a vector; others as they are."""
    labelled = _with_index(values)
    if not isinstance(labelled, np.ndarray) or labelled.ndim < 2:
        return labelled
    if labelled.ndim > 2 or min(labelled.shape) != 1:
        raise UserError(
            f"identify: signal {name!r} has shape {labelled.shape}, expected (n,), one row or one "
            "column"
        )
    return labelled.ravel()


def _shared_index(*signals: Any) -> pd.Index | None:
    """Return the index that these signals have in common; None if none of them has one.

    Raises
    ------
    ValueError
        Two signals have different indices: their samples do not belong together by position.
    """
    labelled = [_with_index(values) for values in signals]
    indices = [values.index for values in labelled if isinstance(values, pd.Series | pd.DataFrame)]
    if len(indices) > 1 and not indices[0].equals(indices[1]):
        shown = " and ".join(f"{[*index[:2]]} ... {[*index[-1:]]}" for index in indices)
        raise UserError(
            f"identify: u and y of a pair must have the same index, got {shown}: align them in one "
            "table, pd.concat([u, y], axis=1), or pass u.to_numpy() and y.to_numpy()"
        )
    return indices[0] if indices else None


def _with_index(values: Any) -> Any:
    """Return an `xarray.DataArray` that has coordinates as a table, and anything else as it is."""
    if isinstance(values, xr.DataArray) and values.ndim in (1, 2) and values.indexes:
        return values.to_pandas()
    return values


def _name_columns(
    kind: str, names: tuple[str, ...], letter: str, values: Any
) -> dict[str, np.ndarray]:
    """Return the columns of an array by name; masked values are nan.

    Without given names a single column is named by the letter, several columns by the letter and
    their number.
    """
    columns = np.empty((0, 0))
    if values is not None:
        array = real_numbers(values, f"identify: {kind}", missing=True)
        if array.ndim == 2 and array.shape[0] == 1 and len(names) in (0, 1):
            array = array.T  # a row vector, as MATLAB has it
        if array.ndim > 2 or (array.ndim == 2 and array.shape[1] > array.shape[0]):
            raise UserError(
                f"identify: the {kind} have shape {array.shape}, which would be {array.shape[-1]} "
                f"signals of {array.shape[0]} samples: expected shape (n, number of signals), one "
                "row for each sample; transpose them"
            )
        columns = np.atleast_2d(array.T)
    n = len(columns)
    if not names and n == 1:
        names = (letter,)
    elif not names:
        names = tuple(f"{letter}{i + 1}" for i in range(n))
    if len(names) != n:
        raise UserError(
            f"identify: {n} columns for the {kind} {list(names)}; give every signal a column"
        )
    return dict(zip(names, columns, strict=True))


@dataclass(frozen=True, eq=False)
class IdentifiedModel:
    """Models of the outputs of a plant, one for each, and the records they were identified from."""

    #: identification of each output, which `observe` continues
    identifications: Mapping[str, Identification]
    recordings: Recordings  # learned records (estimation) and test records (test)
    purpose: str  # "prediction" or "simulation"
    #: choice of the lags of each output; empty if the lags were given
    lag_choices: Mapping[str, LagChoice]
    #: choice of the number of points of each output, if the lags were given and it was open
    budget_choices: Mapping[str, BudgetChoice] = field(default_factory=dict)
    #: records as they were measured; in those that were learned gross errors are missing values
    measured: Recordings | None = None
    #: columns of tables with the times and the experiments, as they were named for `identify`
    time: str | None = None
    experiment: str | None = None

    @property
    def lock(self) -> Any:
        """Lock that `step` and `save` hold, so that several threads may use this object."""
        return next(iter(self.identifications.values())).lock

    @property
    def is_unfinished(self) -> bool:
        """Whether the limit `seconds` of the training has ended the search for any output.

        The model is then the best so far, and another call may find another one.
        """
        return any(
            identification.time_limit.was_reached
            for identification in self.identifications.values()
        )

    @property
    def models(self) -> dict[str, Model]:
        """Current model of every output."""
        models = {}
        for name, identification in self.identifications.items():
            if identification.model is not None:
                models[name] = identification.model
        return models

    @property
    def model(self) -> Model:
        """The model of the only output.

        Raises
        ------
        ValueError
            There are several outputs: use `models`.
        """
        if len(self.identifications) > 1:
            raise UserError(f"there are models of {list(self.identifications)}: take models[name]")
        return next(iter(self.models.values()))

    @shows_progress("predict")
    def predict(
        self, data: Signals | Sequence[Signals] | None = None, *, horizon: int = 1
    ) -> pd.DataFrame:
        """Predict every sample `horizon` samples ahead, from the samples measured before.

        Parameters
        ----------
        data
            As for `identify`; None: the test records.
        horizon : int
            Number of samples ahead.

        Returns
        -------
        pandas.DataFrame
            Over record and time [s]: for each output NAME the columns ``NAME`` (measured),
            ``NAME_mean`` and the 95 % band of a measurement, ``NAME_low`` to ``NAME_high``.
        """
        return self._forecast(data, horizon)

    @shows_progress("simulate")
    def simulate(
        self,
        data: Signals | Sequence[Signals] | None = None,
        *,
        window: int | None = None,
    ) -> pd.DataFrame:
        """Simulate all outputs from the inputs and the first `window` outputs (free run).

        Outputs after the window are not used and may be missing (nan). By default the window is the
        largest lag. The columns are those of `predict`.
        """
        return self._forecast(data, None, window)

    def _forecast(self, data: Any, horizon: int | None, window: int | None = None) -> pd.DataFrame:
        """Predict all outputs; horizon None: simulate them."""
        return self._forecast_records(self._records(data), horizon, window)

    def _forecast_records(
        self, records: Sequence[xr.Dataset], horizon: int | None, window: int | None = None
    ) -> pd.DataFrame:
        """Predict all outputs of records; horizon None: simulate them."""
        frames = [
            self._forecast_output(name, model, records, horizon, window)
            for name, model in self.models.items()
        ]
        return pd.concat(frames, axis=1)

    def _forecast_output(
        self,
        name: str,
        model: Model,
        records: Sequence[xr.Dataset],
        horizon: int | None,
        window: int | None,
    ) -> pd.DataFrame:
        """Predict one output with its model; horizon None: simulate it."""
        if window is None:
            window = max(model.narx.max_lag, 1)
        measured = [record[name].values for record in records]
        if horizon is None:
            records = [_fill_after_window(record, name, window) for record in records]
        propagation = MeanOnly() if horizon == 1 else Pathwise()
        predicted = forecast(
            model,
            records,
            horizon=horizon,
            window=window,
            propagation=AboutPath(propagation),
        )
        warn_of_held(predicted.n_held)
        frames = []
        for values, record in zip(measured, predicted.records, strict=True):
            mean = record.mean[:, 0]
            variance = record.variance[:, 0] + predicted.noise_variance[0]
            half_width = Z_95 * np.sqrt(variance)
            columns = {
                name: values[record.sample],
                f"{name}_mean": mean,
                f"{name}_low": mean - half_width,
                f"{name}_high": mean + half_width,
            }
            index = pd.MultiIndex.from_product(
                [[record.record], record.time], names=["record", "time"]
            )
            frames.append(pd.DataFrame(columns, index=index))
        return pd.concat(frames)

    def _records(self, data: Any) -> Sequence[xr.Dataset]:
        """Return the records of the data; None: the test records."""
        if data is not None:
            known = self.recordings
            skips = any(map(may_have_holes, known.estimation))
            reader = _Reader(
                known.inputs,
                known.outputs,
                known.sampling_time,
                self.time,
                "skip" if skips else KEEP_MISSING,
                experiment=self.experiment,
                is_named_once=True,
            )
            return reader.read(data)
        if not self.recordings.test:
            raise UserError("there is no test record (identified=1): give data")
        return self.recordings.test

    @shows_progress("validate")
    @one_blas_thread
    def validate(self, data: Signals | Sequence[Signals] | None = None) -> pd.DataFrame:
        """Compute the measures of `sysid.Validation` one step ahead and in free run.

        The table has a row for each output and horizon. `data` is as for `identify`; None: the test
        records. If these have gross errors (`sysid.screen_records`), three columns more state the
        number of those in the signals that the model of the output uses, ``n_gross_errors``, and
        the RMSE and fit without the samples that have one in the output or among the lags,
        ``rmse_without_gross_errors`` and ``fit_without_gross_errors``. Without a gate
        (``gate=None``) they are not looked for.
        """
        records = self._records(data)
        return self._measures(self._forecasts(records), records)

    def _forecasts(
        self, records: Sequence[xr.Dataset], titles: Sequence[str] = tuple(HORIZONS)
    ) -> dict[str, pd.DataFrame]:
        """Predict all outputs one step ahead and in free run, or those of these titles."""
        frames = {}
        for title in titles:
            with doing(title):
                frames[title] = self._forecast_records(records, HORIZONS[title])
        return frames

    def _measures(
        self, frames: Mapping[str, pd.DataFrame], records: Sequence[xr.Dataset]
    ) -> pd.DataFrame:
        """Return what `validate` does, from the predictions of the records."""
        rows = {}
        screened = self._screen(records)
        for title, frame in frames.items():
            for name, model in self.models.items():
                origin: Any = model.origin.output_mean, model.origin.output_variance
                is_predicted = frame[name].notna()  # another output may have a shorter window
                predicted = frame[is_predicted]
                mean = predicted[f"{name}_mean"]
                std = (predicted[f"{name}_high"] - mean) / Z_95
                measures = validate(predicted[name], mean, std**2, trivial=origin)
                rows[name, title] = measures._asdict()
                if screened is None:
                    continue
                numbers, times = (predicted.index.get_level_values(i).tolist() for i in range(2))
                is_untouched = are_rows_untouched(screened, model.narx, numbers, times)
                without = validate(predicted[name][is_untouched], mean[is_untouched])
                own = {name, *(signal for signal, _ in model.narx.features)}
                rows[name, title]["n_gross_errors"] = screened.n_values_of(own)
                rows[name, title]["rmse_without_gross_errors"] = without.rmse
                rows[name, title]["fit_without_gross_errors"] = without.fit_percent
        table = pd.DataFrame(rows).T.sort_index().drop(columns="window")
        return table.rename_axis(["output", "horizon"])

    def _screen(self, records: Sequence[xr.Dataset]) -> Screened | None:
        """Return the records without their gross errors; None if there are none.

        Without a gate they are not looked for.
        """
        recordings = self.recordings
        has_gate = any(found.settings.gate is not None for found in self.identifications.values())
        if not has_gate or recordings.is_static:
            return None
        screened = screen_records(records, recordings.outputs, recordings.inputs)
        return screened if screened.n_found else None

    @shows_progress("residual tests")
    @one_blas_thread
    def residual_tests(
        self, data: Signals | Sequence[Signals] | None = None, *, n_lags: int = 25
    ) -> dict[str, ResidualReport]:
        """Test what the errors one step ahead of each output still contain.

        Inputs are those of the records, also if a model does not use them. `notes` says what to do
        about strong correlations. Samples that have a gross error in the output or among the lags
        (`sysid.screen_records`) are left out: a single one would hide what the others contain.

        Parameters
        ----------
        data
            As for `identify`; None: the test records.
        n_lags : int
            Largest lag; fewer if a record is short (`sysid.simulation.residuals.most_lags`).

        Returns
        -------
        dict
            By output, the report of `sysid.residual_tests`; without outputs for which no record has
            samples enough.
        """
        records = self._records(data)
        inputs = list(self.recordings.inputs)
        screened = self._screen(records)
        reports = {}
        for name, model in self.models.items():
            frame = self._forecast_output(name, model, records, 1, None)
            errors = []
            of_inputs = []
            for number, record in enumerate(records):
                predicted = frame.loc[number]
                error = (predicted[name] - predicted[f"{name}_mean"]).to_numpy()
                used = record.sel(time=predicted.index.to_numpy())
                values = np.empty((len(error), len(inputs)))
                for column, input in enumerate(inputs):
                    values[:, column] = used[input].values
                is_known = np.isfinite(error) & np.isfinite(values).all(axis=1)
                if not may_have_holes(record) and not is_known.all():
                    continue
                times = predicted.index.to_numpy()
                if screened is not None:
                    numbers = [number] * len(times)
                    is_known &= are_rows_untouched(screened, model.narx, numbers, times.tolist())
                for part in _complete_parts(is_known, times):
                    if len(part) >= MIN_RECORD_SAMPLES_TO_TEST:
                        errors.append(error[part])
                        of_inputs.append(values[part])
            if errors:
                reports[name] = residual_tests(
                    errors,
                    of_inputs if inputs else None,
                    n_lags=min(n_lags, most_lags([len(error) for error in errors])),
                    output_names=[name],
                    input_names=inputs if inputs else None,
                )
        return reports

    @cached_property
    def notes(self) -> list[str]:
        """What a user should know about the models, with what to do: a sentence each.

        The first ones state which test records were learned, what makes dead times doubtful
        (feedback), that a limit of the time has ended the search, and what a training for the free
        run found: why it took no other estimator than a linear model, which one ran away.
        The others state what the errors on the test records still contain; without test records
        and for static data there are none.
        """
        notes = list(self.recordings.notes_on_learned_tests)
        for name, identification in self.identifications.items():
            dead_times = self._dead_times(name)
            of_identification = [] if dead_times is None else list(dead_times.warnings)
            of_identification += identification.time_limit.describe("seconds")
            trained = identification.hyperparameters
            if identification.report is not None and trained is not None:
                of_identification += [f"training: {warning}" for warning in trained.warnings]
            for note in of_identification:
                notes.append(f"{name}: {note}" if len(self.identifications) > 1 else note)
        if not self.recordings.test or self.recordings.is_static:
            return notes
        reports: dict[str, ResidualReport] = {}
        with suppress(UserError):  # the test records do not suit the model
            reports = self.residual_tests()
        for name, report in reports.items():
            identification = self.identifications[name]
            choices = choices_of(
                identification,
                self.lag_choices.get(name),
                self.budget_choices.get(name),
                n_rows=identification.narx.dataset(self.recordings.estimation).sizes["sample"],
            )
            notes += advise(report, identification.narx, choices, automatic='narx="auto"')
        return notes

    def _dead_times(self, name: str) -> DeadTimes | None:
        """Return the dead times that the automatic lags of an output begin with, if any."""
        choice = self.lag_choices.get(name)
        return None if choice is None else choice.dead_times

    @shows_progress("compare")
    def compare(
        self,
        others: Mapping[str, IdentifiedModel] | None = None,
        data: Signals | Sequence[Signals] | None = None,
    ) -> pd.DataFrame:
        """Compare RMSE and fit with linear ARX models, and with other models, on the same records.

        The ARX models are fitted to the records that this model learned. One has the same lags, but
        none of a linear part. One has the numbers na, nb, nk with the smallest held-out error
        (`sysid.rank_lags`). One has 1 to 12 lags, equally many of every signal, again with the
        smallest held-out error. A model that has more lags than the records allow is left out.

        If the records have gross errors (`sysid.screen_records`), the first columns leave out the
        samples that have one in the output or among the lags of the model:
        ``rmse_without_gross_errors``, ``fit_without_gross_errors``. A free run still uses inputs as
        they were measured.

        Parameters
        ----------
        others
            Other models by the name that they get in the table.
        data
            As for `identify`; None: the test records.
        """
        rows = {}
        compared = {"model": self, **(others or {})}
        for title, identified in compared.items():
            table = identified.validate(list(self.recordings.test) if data is None else data)
            for (name, horizon), row in table.iterrows():
                rows[name, title, horizon] = {key: row[key] for key in COMPARED if key in row}
        records = self._records(data)
        for name in self.models:
            with doing(f"linear models of {name}"):
                rows |= self._scores_of_lines(name, records)
        return pd.DataFrame(rows).T.rename_axis(["output", "model", "horizon"])

    def _scores_of_lines(
        self, name: str, records: Sequence[xr.Dataset]
    ) -> dict[tuple[str, str, str], dict[str, float]]:
        """Return RMSE and fit of linear ARX models by output, title of the model and horizon."""
        rows = {}
        screened = self._screen(records)
        for title, arx in self._linear_models(name, records).items():
            predictions = {
                "1 step": _predict_one_step(arx, records),
                "free run": _simulate_linear(arx, name, records),
            }
            for horizon, predicted in predictions.items():
                measures = validate(predicted.measured, predicted.mean)
                scores = {"rmse": measures.rmse, "fit_percent": measures.fit_percent}
                if screened is not None:
                    is_untouched = predicted.are_untouched(screened, arx.narx)
                    without = validate(
                        predicted.measured[is_untouched], predicted.mean[is_untouched]
                    )
                    scores["rmse_without_gross_errors"] = without.rmse
                    scores["fit_without_gross_errors"] = without.fit_percent
                rows[name, title, horizon] = {key: scores[key] for key in COMPARED if key in scores}
        return rows

    def _linear_models(self, name: str, records: Sequence[xr.Dataset]) -> dict[str, LinearArx]:
        """Return linear ARX models of an output for these records, by the title of their line.

        A model is left out if the records, or those that it would be fitted to, are too short.
        """
        narx = self.models[name].narx.without_linear()
        learned = self.recordings.estimation
        inputs = self.recordings.inputs
        on_missing = narx.on_missing
        fits: dict[str, Callable[[], LinearArx]] = {
            "ARX, same lags": lambda: LinearArx.fit(narx, learned),
        }
        if not self.recordings.is_static:
            fits["ARX, best"] = lambda: best_arx(learned, name, inputs, on_missing=on_missing)
            fits["ARX, 1 to 12 lags"] = lambda: best_arx_of_equal_lags(learned, narx, inputs)
        n_samples = min(record.sizes["time"] for record in records)
        models = {}
        for title, fit in fits.items():
            with suppress(UserError):
                model = fit()
                if model.narx.max_lag < n_samples:
                    models[title] = model
        return models

    @shows_progress("plot")
    def plot(self, data: Signals | Sequence[Signals] | None = None) -> list[Any]:
        """Draw predictions of the first record, their errors, and what the errors still contain.

        Each output has a figure. From top to bottom: measurement, prediction and 95 % band, one
        step ahead and in free run, with that first which the model is for; the errors of the first
        one; and the correlations of the errors one step ahead in all records, with the verdict of
        `residual_tests`. Lines break at gaps.

        Parameters
        ----------
        data
            As for `identify`; None: the test records.

        Returns
        -------
        list of matplotlib axes
            The first axes of each figure, one for each output; ``axes.figure`` is the figure.
        """
        records = self._records(data)
        frames = self._forecasts(list(records[:1]), self._drawn_horizons)
        reports: dict[str, ResidualReport] = {}
        if not self.recordings.is_static:
            with suppress(UserError):  # the records do not suit the model
                reports = self.residual_tests(list(records))
        of_several = f" (record 1 of {len(records)})" if len(records) > 1 else ""
        return [
            draw_output(
                name,
                self._unit(name),
                self._drawn(name, frames),
                reports.get(name),
                self._time_unit,
                f"{name}: model for {self.purpose}{of_several}",
            )
            for name in self.models
        ]

    @property
    def _drawn_horizons(self) -> list[str]:
        """Titles of the predictions that figures show; that of the purpose comes first."""
        if self.recordings.is_static:
            return ["1 step"]
        titles = list(HORIZONS)
        return titles if self.purpose == "prediction" else titles[::-1]

    def _drawn(self, name: str, frames: Mapping[str, pd.DataFrame]) -> list[Predicted]:
        """Return the predictions of an output of the first record that has any."""
        columns = [name, *(f"{name}_{part}" for part in ("mean", "low", "high"))]
        drawn = []
        for title in self._drawn_horizons:
            frame = frames[title]
            of_record = frame.loc[frame.index[0][0]]
            # another output may have a longer window
            of_output = of_record[columns].dropna(subset=[f"{name}_mean"])
            drawn.append(Predicted(title, of_output))
        return drawn

    def _unit(self, name: str) -> str:
        """Return the unit of a signal; empty if it is not known."""
        return str(self.recordings.estimation[0][name].attrs.get("units", ""))

    @property
    def _time_unit(self) -> str:
        """Unit of the times of the records; "1" if they count samples."""
        return str(self.recordings.estimation[0]["time"].attrs.get("units", "s"))

    @shows_progress("linearize")
    def linearize(
        self, at: Any = None, *, data: Signals | Sequence[Signals] | None = None
    ) -> LinearView | list[LinearView]:
        """Return the linear view of the models at an operating point: gains, poles, Bode plot.

        Parameters
        ----------
        at
            As for `Model.linearize`, for all outputs together. A time [s] is that of a sample of
            the first record of `data`.
        data
            As for `identify`; None: the test records, or the learned ones if there are none. The
            first record is simulated for the bands, as in `Model.linearize`; without `data` it is
            the longest learned one.

        Returns
        -------
        LinearView or list of LinearView

        Raises
        ------
        ValueError, TypeError
            As `Model.linearize`.

        Warns
        -----
        UserWarning
            The point lies outside of the learned records, the models know little there, or errors
            of one step and of the simulation show different responses.
        """
        learned = self.recordings.estimation
        record = None
        if data is not None:
            record = self._records(data)[0]
        elif not isnan(as_number(at)):
            record = (self.recordings.test or learned)[0]
        simulated = max(learned, key=lambda each: each.sizes["time"]) if data is None else record
        models = list(self.models.values())
        return linearize(
            models, at, record=record, ranges=ranges_of_records(learned), simulated=simulated
        )

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Store the models, and return their paths; `sysid.Model.load` reads them.

        The files of several models have the name of the output after the stem of the path.
        """
        path = Path(path)
        paths = []
        with self.lock:
            models = self.models
            for name, model in models.items():
                model_path = path
                if len(models) > 1:
                    model_path = path.with_name(f"{path.stem}_{name}{path.suffix}")
                paths.append(model_path)
                model.save(model_path)
        return paths

    def step(self, y: Any = None, u: Any = None, **signals: Any) -> dict[str, LiveReport]:
        """Predict one sample of a running plant from the samples before, then learn it.

        A control loop of your own calls this once per sample, by the names of the signals or by
        their order: ``step(temperature=62.0, heat=50.0, flow=3.0)`` or ``step(62.0, [50.0, 3.0])``.

        Parameters
        ----------
        y, u
            Outputs measured now and inputs applied from now on: numbers in the order of
            `recordings`, or a mapping by name. nan is a missing value. Among the lags a missing
            output is replaced by its prediction, and the bands contain the variance of that. A
            sample is learned if such lags add at most the noise variance to its prediction. Where
            an input is missing, nothing is predicted as long as it is among the lags of the
            Gaussian process. Where only lags of the linear part are missing, as at the beginning of
            a run, the nearest known values take their place, and the bands contain the variance.
        **signals
            Values of single signals by name, instead of `y` and `u`.

        Returns
        -------
        dict of LiveReport
            Predictions and decisions by output; empty until there are enough samples for the lags.
            The next call decides about a sample that may be an outlier, see
            `Identification.correction`.

        Raises
        ------
        ValueError, TypeError
            A signal is not named, a value is no finite number and not nan, or a model cannot learn
            the sample. No model has seen the sample then.
        """
        with self.lock:
            return self._loop.step(y, u, signals)

    def reset(self) -> None:
        """Begin a new run of the plant: the next `step` does not follow the last one.

        The models stay as they are. The lags fill again, and a sample that was held back as a
        possible outlier is decided about before, so that it does not touch the new run.
        """
        with self.lock:
            self._loop.reset()

    def ahead(self, inputs: ComingInputs) -> pd.DataFrame:
        """Predict the coming samples of a running plant from its last samples (`step`).

        Parameters
        ----------
        inputs : (n, n_u) or (n,), mapping, or int
            Inputs of the coming n samples in the order of `recordings`, or by name (a mapping or a
            table); of a plant without inputs the number n.

        Returns
        -------
        pandas.DataFrame
            Over the time [s] from the last sample on: for each output NAME the columns
            ``NAME_mean`` and the 95 % band of a measurement, ``NAME_low`` to ``NAME_high``, as
            `simulate` computes them from the same samples. Where outputs among the last samples are
            missing, or taken for wrong, predictions take their place, and the band contains their
            variance to first order.

        Raises
        ------
        ValueError
            The run has fewer samples than lags so far, or the inputs have another shape.
        """
        with self.lock:
            return self._loop.ahead(inputs, self.recordings.sampling_time)

    def last_samples(self, narx: Narx) -> tuple[np.ndarray, np.ndarray]:
        """Return the last outputs (L, m) and inputs (L, n_u) that `step` has seen.

        They are as many as the longest lag, in the order of the names of `narx`.

        Raises
        ------
        ValueError
            The run has fewer samples than lags so far, or too many of them are missing.
        """
        with self.lock:
            return self._loop.last_samples(narx)

    @cached_property
    def _loop(self) -> LiveLoop:
        """The run of the plant, for `step`, `reset` and `ahead`."""
        recordings = self.recordings
        return LiveLoop(self.identifications, recordings.outputs, recordings.inputs)

    def __repr__(self) -> str:
        n_learned = sum(record.sizes["time"] for record in self.recordings.estimation)
        n_test = sum(record.sizes["time"] for record in self.recordings.test)
        lines = [
            f"IdentifiedModel for {self.purpose}, "
            f"{n_learned} samples learned, {n_test} samples for the test"
        ]
        for name, model in self.models.items():
            line = f"{name}: {model.features_in_words}"
            dead_times = self._dead_times(name)
            if dead_times is not None and dead_times.has_any:
                line += f"; {', '.join(dead_times._replace(warnings=[]).describe())}"
            lines.append(line)
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)

    @shows_progress("scores for the notebook")
    def _repr_html_(self) -> str:
        first, *details = repr(self).split("\nNote: ")[0].splitlines()
        parts = [f"<b>{first}</b>", notes(self.notes)]
        if self.recordings.test:
            try:
                parts += self._html_of_scores()
            except UserError as error:  # the test records do not suit the model
                parts.append(notes([f"no scores: {error}"]))
        parts += [
            folded(line, model._repr_html_())
            for line, model in zip(details, self.models.values(), strict=True)
        ]
        return f"<div>{''.join(parts)}</div>"

    def _html_of_scores(self) -> list[str]:
        """Return scores on the test records beside those of linear models, and pictures."""
        records = self._records(None)
        frames = self._forecasts(records)
        measures = self._measures(frames, records)
        html = []
        for name in self.models:
            unit = Target.change.unit_of(self._unit(name))  # of an error
            lines = self._scores_of_lines(name, self.recordings.test)
            titles = list(dict.fromkeys(title for _, title, _ in lines))
            head = [
                name,
                labelled("RMSE", unit),
                *(labelled(f"RMSE, {title}", unit) for title in titles),
                "fit [%]",
                "95 % band covers [%]",
                "samples",
            ]
            rows = []
            for horizon, row in measures.loc[name].iterrows():
                rows.append(
                    [
                        str(horizon),
                        f"{row['rmse']:.4g}",
                        *(f"{lines[name, title, horizon]['rmse']:.4g}" for title in titles),
                        f"{row['fit_percent']:.1f}",
                        f"{100 * row['coverage_95']:.1f}",
                        f"{row['n']:.0f}",
                    ]
                )
            html.append(table(head, rows))
            for predicted in self._drawn(name, frames):
                chart = small_chart(name, self._unit(name), predicted, self._time_unit)
                html.append(f"<div>{chart}</div>")
        return html


def _fill_after_window(record: xr.Dataset, name: str, window: int) -> xr.Dataset:
    """Return a record whose missing values of an output after the window are zeros."""
    measured = record[name].values
    is_after_window = np.arange(len(measured)) >= window
    filled = np.where(np.isnan(measured) & is_after_window, 0.0, measured)
    return record.assign({name: ("time", filled, record[name].attrs)})


def _complete_parts(is_known: np.ndarray, times: np.ndarray) -> list[np.ndarray]:
    """Return the rows (n,) that are known in parts that follow each other without a gap of time."""
    rows = np.flatnonzero(is_known)
    if not len(rows):
        return []
    steps = np.diff(times[rows])
    step = np.min(np.diff(times), initial=np.inf)
    return np.split(rows, np.flatnonzero(steps > 1.5 * step) + 1)


class _Predicted(NamedTuple):
    """Samples (n,) of several records that a linear model predicts."""

    measured: np.ndarray
    mean: np.ndarray
    numbers: np.ndarray  # of their records
    times: np.ndarray

    @classmethod
    def join(cls, parts: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> _Predicted:
        """Join measured values, predictions and times of each record."""
        measured, mean, times = zip(*parts, strict=True)
        numbers = [np.full(len(values), number) for number, values in enumerate(measured)]
        joined = (np.concatenate(values) for values in (measured, mean, numbers, times))
        return cls(*joined)

    def are_untouched(self, screened: Screened, narx: Narx) -> np.ndarray:
        """Return which samples (n,) have no gross error in the output or among the lags."""
        return are_rows_untouched(screened, narx, self.numbers.tolist(), self.times.tolist())


def _predict_one_step(arx: LinearArx, records: Sequence[xr.Dataset]) -> _Predicted:
    """Predict the outputs of all rows one step ahead."""
    to_value = arx.narx.predict.to_value
    parts = []
    for record in records:
        rows = arx.narx.dataset(record)
        previous = rows["previous"].values
        measured = to_value(rows["target"].values, previous)
        parts.append((measured, to_value(arx.one_step(rows), previous), rows["time"].values))
    return _Predicted.join(parts)


def _simulate_linear(arx: LinearArx, name: str, records: Sequence[xr.Dataset]) -> _Predicted:
    """Simulate the outputs after the first lags of each record, in free run."""
    window = max(arx.narx.max_lag, 1)
    parts = []
    for record in records:
        mean, is_scored = arx.simulate_record(record, window)
        signals = (record[name].values, mean, record["time"].values)
        measured, mean, times = (signal[is_scored] for signal in signals)
        parts.append((measured, mean, times))
    return _Predicted.join(parts)
