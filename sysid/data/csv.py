"""Records from CSV files and other tables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from sysid.arrays import check_whole, listed
from sysid.data import clock
from sysid.data.binary_tables import PACKAGES_OF_WORKBOOKS, read_parquet, read_workbook
from sysid.data.cell_numbers import FoundNumbers, find_decimal, read_numbers
from sysid.data.columns import (
    find_columns,
    location,
    names_of_columns,
    setting_text,
    split_name,
    texts_of_names,
    units_of_columns,
    write_names,
)
from sysid.data.holes import bridge_holes, describe_holes
from sysid.data.matlab import read_matlab
from sysid.data.resampling import check_resample, resample_rows
from sysid.data.source import (
    RECORD_ROLES,
    DataError,
    DataSource,
    Recordings,
    list_paths,
    make_record,
    time_coordinate,
)
from sysid.data.text_table import (
    MAX_UNIT_ROWS,
    count_unit_rows,
    read_text_table,
    read_units,
)
from sysid.errors import UserError, UserTypeError
from sysid.narx.record import (
    MAX_RATE_DIFFERENCE,
    ON_MISSING_ATTRIBUTE,
    SKIPS_MISSING,
    TIME_TOLERANCE,
    Array,
    check_name_in_record,
)
from sysid.units import is_same_unit

#: treatments of missing values that a user may choose
ON_MISSING = ("error", "skip")

#: choice for data that are predicted only: missing values stay as nan
KEEP_MISSING = "keep"

#: smallest number of samples between two gaps of time that become a record
MIN_SEGMENT_SAMPLES = 50

#: A gap of time ends a record if more samples than these are missing in it.
MAX_GAP_SAMPLES = 1000

#: Samples after a gap of time belong to the record before it if the gap is a whole number of
#: sampling times, up to this fraction of the sampling time [-].
MAX_GAP_DEVIATION = 0.2


@dataclass(frozen=True)
class CsvFiles(DataSource):
    """One file with a table per record: text whose first line names the columns, or another format.

    Every role takes one path or a list of paths; several files are several records. Files that end
    as .mat, .xlsx, .xlsm, .xls and .parquet are read as such, all others as text. A column named
    ``T_out [degC]`` or ``T_out (degC)`` is the signal ``T_out`` with that unit; it can also be
    named by its whole name. Units may stand in a row below the names.

    A column has times or time stamps: the one named by `time`, or the first called time, timestamp,
    datetime, stamp, t or date. Without one, row k has the time k dt. A unit in its name is that of
    the times. Equal steps are the sampling time, otherwise their mean is; `dt` must agree with it.
    Steps may differ from the sampling time by 10 %, or by the rounding of the times; a note of the
    record states by how much they do, and so does its attribute ``jitter``. If the times of several
    files jitter and their sampling times differ by less than 1 %, they get one.

    The delimiter and the decimal sign are recognised from the file unless they are stated.

    Raises
    ------
    ValueError
        A setting is impossible. On `load` also: no file or no output is named, the sampling time is
        not known, there are units of an unknown signal, or a file has an error.
    """

    estimation: str | Sequence[str] = ()  # path or paths
    validation: str | Sequence[str] = ()  # path or paths
    test: str | Sequence[str] = ()  # path or paths
    inputs: Sequence[str] = ()  # columns
    outputs: Sequence[str] = ()  # columns
    dt: float | None = None  # sampling time [s]; None: from the column of times
    #: column with times [s] or time stamps; None: a column called time, t, ...; "none": dt alone
    time: str | None = None
    #: format of time stamps, "%d/%m/%Y %H:%M", or the unit of times that are numbers; None: ISO,
    #: dd.mm.yyyy or mm/dd/yyyy, seconds
    time_format: str | None = None
    units: Mapping[str, str] | None = (
        None  # units of signals, {u: V}, which those of the file match
    )
    delimiter: str | None = None  # character between two cells; None: recognised from the header
    decimal: str | None = None  # decimal sign, "." or ","; None: recognised from the numbers
    encoding: str = "utf-8"  # encoding of the text; older Windows programs use cp1252
    #: treatment of a missing value or time: error, or skip (missing values are nan in the record)
    on_missing: str = "error"
    #: smallest number of samples between two gaps of time that end a record; shorter ones are left
    #: out, with a note
    shortest: int = MIN_SEGMENT_SAMPLES
    #: longest hole of an input that is interpolated, with ``on_missing="skip"`` [samples]
    bridge_inputs: int = 0
    initialisation_window: int = 0  # samples at the start of every record that are not scored
    #: column that names the experiment of a row, each of which is a record; None: a clock that
    #: starts again begins the next one
    experiment: str | None = None
    #: equal steps that samples at unequal ones are interpolated at [s]; None: as they are
    resample: float | None = None

    def __post_init__(self) -> None:
        if self.delimiter == r"\t":  # as it comes from a command line
            object.__setattr__(self, "delimiter", "\t")
        is_single_character = len(self.delimiter or ",") == 1
        is_decimal_sign = self.decimal in (None, ".", ",")
        are_equal = self.decimal is not None and self.delimiter == self.decimal
        if not is_single_character or not is_decimal_sign or are_equal:
            raise UserError(
                "expected a delimiter of one character and a different decimal sign, '.' or ',', "
                f"got delimiter {self.delimiter!r} and decimal {self.decimal!r}: "
                "change one of them, or leave both out"
            )
        if self.on_missing not in ON_MISSING:
            raise UserError(
                f"on_missing must be one of {', '.join(ON_MISSING)}, got {self.on_missing!r}"
            )
        check_bridge(self.bridge_inputs, self.on_missing)
        for kind in ("inputs", "outputs"):
            given = getattr(self, kind)
            if isinstance(given, str):
                raise UserError(
                    f"CsvFiles({kind}={given!r}) must be a list: "
                    f"write {write_names(f'data.{kind}', [given])}"
                )
            names = listed(given, f"CsvFiles: {kind}", "names of columns")
            if not all(isinstance(name, Hashable) for name in names):
                raise UserTypeError(
                    f"CsvFiles: {kind} must be a list of names of columns, got {list(names)}"
                )
            object.__setattr__(self, kind, texts_of_names(names))
        check_resample(self.resample)

    def load(self) -> Recordings:
        """Read all files; see `DataSource.load`."""
        self._check()
        paths = {
            role: list_paths(getattr(self, role), f"CsvFiles: {role}") for role in RECORD_ROLES
        }
        read: list[xr.Dataset] = []
        roles: list[str] = []
        names = []
        for role in RECORD_ROLES:
            for path in paths[role]:
                of_file = self._records(Path(path))
                read += of_file
                roles += [role] * len(of_file)
                names.append(Path(path).name)
        records: dict[str, list[xr.Dataset]] = {role: [] for role in RECORD_ROLES}
        shared, _ = share_sampling_time(read)
        for role, record in zip(roles, shared, strict=True):
            records[role].append(record)
        title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        return Recordings(
            title,
            tuple(self.inputs),
            tuple(self.outputs),
            **{role: tuple(of_role) for role, of_role in records.items()},
        )

    def _check(self) -> None:
        """Raise UserError if files, outputs or units are missing or do not fit together."""
        if not any(list_paths(getattr(self, role), f"CsvFiles: {role}") for role in RECORD_ROLES):
            raise UserError(
                "data=csv needs a file: set data.estimation=<file>, "
                "and data.test=<file> for the test"
            )
        if not self.outputs:
            raise UserError(
                "data=csv needs the names of its columns: set data.outputs=[y], and data.inputs=[u]"
            )
        if self.units is not None and not isinstance(self.units, Mapping):
            raise UserError(
                f"CsvFiles(units={self.units!r}) must be a mapping: write 'data.units={{u: V}}'"
            )
        signals = [*self.inputs, *self.outputs]
        unknown = sorted(set(self.units or {}) - set(signals))
        if unknown:
            raise UserError(f"CsvFiles(units of {unknown}): expected units of {signals} only")

    def _records(self, path: Path) -> list[xr.Dataset]:
        """Return the records of one file."""
        table = read_table(
            path,
            [*self.inputs, *self.outputs],
            delimiter=self.delimiter,
            encoding=self.encoding,
            decimal=self.decimal,
        )
        return split_table(
            table,
            [*self.inputs, *self.outputs],
            name=path.name,
            dt=self.dt,
            time=self.time,
            time_format=self.time_format,
            units=self.units,
            decimal=self.decimal,
            on_missing=self.on_missing,
            shortest=self.shortest,
            initialisation_window=self.initialisation_window,
            experiment=self.experiment,
            resample=self.resample,
            bridged=dict.fromkeys(self.inputs, self.bridge_inputs),
        )


def check_bridge(bridge_inputs: Any, on_missing: str) -> None:
    """Raise an error unless the longest hole of an input that is bridged is possible.

    Raises
    ------
    ValueError, TypeError
        It is no whole number of at least 0, or missing values are an error.
    """
    check_whole(bridge_inputs, 0, "bridge_inputs, the longest hole of an input that is bridged,")
    if bridge_inputs and on_missing != "skip":
        raise UserError(
            f"bridge_inputs={bridge_inputs} needs on_missing=skip, got {on_missing}: set it, or "
            "leave bridge_inputs out"
        )


def read_table(
    path: Path,
    signals: Sequence[str] = (),
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    decimal: str | None = None,
) -> pd.DataFrame:
    """Read the table of a file, whose attributes say where a row stands in it.

    Endings tell MATLAB files (.mat), workbooks (.xlsx, .xlsm, .xls) and Parquet files (.parquet);
    all others are text. `signals` are the columns that will be used: a MATLAB file has arrays of
    several lengths, and a text may have other lines above those names.

    Raises
    ------
    sysid.DataError
        The file does not exist or cannot be read.
    ValueError
        Its content is no table.
    """
    ending = path.suffix.lower()
    is_binary = ending in (".mat", ".parquet", *PACKAGES_OF_WORKBOOKS)
    if not is_binary:
        return read_text_table(
            path, signals, delimiter=delimiter, encoding=encoding, decimal=decimal
        )
    if not path.exists():
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check the path")
    if delimiter:
        raise UserError(f"{path}: it is no text, got the delimiter {delimiter!r}: leave it out")
    try:
        if ending == ".mat":
            return read_matlab(path, list(signals))
        return read_parquet(path) if ending == ".parquet" else read_workbook(path)
    except PermissionError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}): name a file that you may read"
        ) from error


def split_table(
    table: pd.DataFrame,
    signals: Sequence[str],
    *,
    name: str,
    dt: float | None = None,
    time: str | None = None,
    time_format: str | None = None,
    units: Mapping[str, str] | None = None,
    decimal: str | None = None,
    on_missing: str = "error",
    shortest: int = MIN_SEGMENT_SAMPLES,
    initialisation_window: int = 0,
    experiment: str | None = None,
    resample: float | None = None,
    bridged: Mapping[str, int] | None = None,
) -> list[xr.Dataset]:
    """Split a table into records of the named columns; the parameters are those of `CsvFiles`.

    `bridged` has the longest hole of each input that is interpolated [samples].

    If no column of times is named, an index of time stamps or periods has the times. With
    ``on_missing="skip"`` missing values and samples are nan in the record, whose attribute ``note``
    counts them. A gap of time ends the record if it is no whole number of sampling times, or longer
    than `MAX_GAP_SAMPLES`. With ``on_missing="keep"`` missing values stay as nan. The attribute
    ``jitter`` is the largest deviation of a step from the sampling time, where there is any [-].

    Raises
    ------
    ValueError
        A column is missing or occurs twice, a cell is no number, a value is missing, or the times,
        or the numbers in the index, do not increase in equal steps. The message names the file and
        the line.
    """
    if dt is not None and not 0 < dt < math.inf:
        raise UserError(f"dt={dt!r} must be a finite number of seconds > 0")
    check_resample(resample)
    table = _take_unit_rows(table)
    if time is None:
        table = _check_index(table)
    notes = list(table.attrs.get("notes", ()))
    columns = _find_signals(table, signals)
    dt = clock.find_stated(table, dt, notes)
    table, time = _find_clock(table, signals, dt, time, notes)
    decimal, values = _read_values(table, columns, time, decimal, notes)
    times = clock.read_times(table, dt, time, time_format, decimal)
    notes += times.notes
    experiment = experiment or table.attrs.get("experiment")
    experiments = _find_experiments(table, experiment, times, notes)
    if bridged is not None and not bridged:
        notes += _note_unused(table, columns, {time, experiment})
    if resample is None:
        rows = _find_rows(table, values, times.seconds, time, on_missing)
    min_samples = max(shortest, initialisation_window + 1)
    parts = []
    for label, first, end in experiments:
        if resample is None:
            part_rows = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)]
            part = _split_rows(table, times, values, part_rows, dt, on_missing)
        else:
            part = _split_resampled(table, times, values, (first, end), resample, on_missing)
        part.keep_long(table, min_samples)
        part.name = name
        if len(experiments) > 1:
            part.name = f"{name}, experiment {label}"
            part.notes = [f"experiment {label}: {note}" for note in part.notes]
        notes += part.notes
        parts.append(part)
    placed = [signals for part in parts for _, signals in part.segments]
    if on_missing == "skip":
        inputs = [*(bridged or {})]
        notes += bridge_holes(placed, inputs, max((bridged or {}).values(), default=0))
        option = "data.bridge_inputs" if "file" in table.attrs else "bridge_inputs"
        notes += describe_holes(placed, inputs, option)
    columns_of_parts = [column for signals in placed for column in signals.values()]
    has_missing = not all(np.isfinite(column).all() for column in columns_of_parts)
    long_names, stated_units = _read_labels(table, columns, units or {})
    attributes: dict[str, Any] = {}
    if notes:
        attributes["note"] = f"{location(table)}: {'; '.join(notes)}"
    if on_missing == "skip" and has_missing:
        attributes[ON_MISSING_ATTRIBUTE] = SKIPS_MISSING
    if "file" in table.attrs:
        attributes["file"] = table.attrs["file"]
    if times.start:
        attributes["start"] = times.start
    records = []
    for part in parts:
        jitter = {"jitter": part.jitter} if part.jitter else {}
        for number, (start, segment) in enumerate(part.segments, start=1):
            record = make_record(
                segment,
                name=part.name if len(part.segments) == 1 else f"{part.name}, segment {number}",
                sampling_time=part.sampling_time,
                initialisation_window=initialisation_window,
                units=stated_units,
                long_names=long_names,
                attributes=attributes | jitter,
            )
            segment_times = start + record["time"].values
            records.append(record.assign_coords(time=time_coordinate(segment_times)))
    return records


def _find_signals(table: pd.DataFrame, signals: Sequence[str]) -> dict[str, int]:
    """Return the number of the column of each signal."""
    columns = find_columns(table, signals)
    if len(set(columns.values())) < len(columns):
        raise UserError(f"{location(table)}: {[*columns]} name the same column twice")
    for signal in columns:
        try:
            check_name_in_record(signal)
        except UserError as error:
            separator = table.attrs.get("delimiter")
            where = f"{location(table)}, with the delimiter {separator!r}" if separator else ""
            raise UserError(f"{where or location(table)}: {error}") from None
    return columns


def _read_values(
    table: pd.DataFrame,
    columns: dict[str, int],
    time: str | None,
    decimal: str | None,
    notes: list[str],
) -> tuple[str, dict[str, Array]]:
    """Return the decimal sign, found in the signals and times if it is not stated, and values."""
    found: FoundNumbers = {}
    is_stated = bool(decimal)
    if not decimal:
        of_time = [] if time is None else [*find_columns(table, [time], "time").values()]
        of_time = [column for column in of_time if clock.has_counts(table, column)]
        decimal, note = find_decimal(table, [*columns.values(), *of_time], found)
        notes += [note] if note else []
    values = {
        signal: read_numbers(table, column, decimal, notes, is_stated=is_stated, found=found)
        for signal, column in columns.items()
    }
    return decimal, values


def _find_clock(
    table: pd.DataFrame,
    signals: Sequence[str],
    dt: float | None,
    time: str | None,
    notes: list[str],
) -> tuple[pd.DataFrame, str | None]:
    """Return the table, without its index if `time` is "none", and the column of times."""
    if time is None:
        return table, clock.find_time(table, [*signals], dt, notes)
    if time != clock.NO_TIME or clock.NO_TIME in names_of_columns(table):
        find_columns(table, [time], "time")
        return table, time
    if dt is None:
        raise UserError(f"{location(table)}: time={time!r} needs the sampling time: set dt")
    return table.reset_index(drop=True), None


@dataclass
class _Part:
    """The segments of one experiment: the time of the first sample [s], and signals by name."""

    segments: list[tuple[float, dict[str, Array]]]
    sampling_time: float  # s
    notes: list[str]
    jitter: float = 0.0  # largest deviation of a step, in sampling times [-]
    name: str = ""

    def keep_long(self, table: pd.DataFrame, min_samples: int) -> None:
        """Leave segments of fewer than `min_samples` out, with a note; a single one stays."""
        if len(self.segments) == 1:
            return
        lengths = [len(next(iter(signals.values()))) for _, signals in self.segments]
        short = [length for length in lengths if length < min_samples]
        if len(short) == len(lengths):
            raise UserError(
                f"{location(table)}: gaps of time split it into {len(lengths)} parts of at most "
                f"{max(lengths)} samples, expected one of at least {min_samples}: "
                "fill gaps, or set a smaller shortest"
            )
        n_gaps = len(lengths) - 1
        pairs = zip(self.segments, lengths, strict=True)
        self.segments = [segment for segment, length in pairs if length >= min_samples]
        note = f"{n_gaps} gaps of time end a record, records: {len(self.segments)}"
        if short:
            note += f"; {len(short)} shorter than {min_samples} left out ({sum(short)} samples)"
        self.notes.append(note)


class _Segment(NamedTuple):
    """Rows of a table that belong to one record, and the samples that they are."""

    rows: np.ndarray  # (n,)
    samples: np.ndarray  # (n,) increasing, from 0

    def place(self, column: Array) -> Array:
        """Return the values of a column at the samples of the record, nan where there is no row."""
        n_samples = int(self.samples[-1]) + 1
        first_row = int(self.rows[0])
        if n_samples == len(self.rows) == int(self.rows[-1]) + 1 - first_row:  # nothing is missing
            return column[first_row : first_row + n_samples].copy()
        values = np.full(n_samples, np.nan)
        values[self.samples] = column[self.rows]
        return values


def _split_rows(
    table: pd.DataFrame,
    times: clock.Times,
    values: dict[str, Array],
    rows: np.ndarray,
    dt: float | None,
    on_missing: str,
) -> _Part:
    """Return the segments of these complete rows, between the gaps that end a record."""
    steps = clock.find_steps(table, times, rows, dt, on_missing)
    segments = [_Segment(rows, np.arange(len(rows)))]
    if on_missing in ("skip", KEEP_MISSING):
        seconds = steps.without_rounding(times.seconds)
        segments = _place_rows(seconds, rows, steps.sampling_time)
    found = [
        (
            float(times.seconds[segment.rows[0]]),
            {name: segment.place(column) for name, column in values.items()},
        )
        for segment in segments
    ]
    return _Part(found, steps.sampling_time, steps.notes, steps.jitter)


def _place_rows(times: Array, complete: np.ndarray, step: float) -> list[_Segment]:
    """Return the records that rows belong to, and the samples that the rows are.

    A row without a time is taken to lie evenly between its neighbours. The record ends where the
    time to the next row is no whole number of sampling times, or too long. It begins and ends with
    complete rows.
    """
    number = np.arange(len(times))
    has_time = np.isfinite(times)
    known_times = np.interp(number, number[has_time], times[has_time])
    rows = number[complete[0] : complete[-1] + 1]
    steps = np.diff(known_times[rows]) / step
    n_steps = np.rint(steps).astype(np.int64)
    is_in_record = (np.abs(steps - n_steps) <= MAX_GAP_DEVIATION) & (n_steps >= 1)
    is_in_record &= n_steps <= MAX_GAP_SAMPLES + 1
    is_complete = np.zeros(len(times), dtype=bool)
    is_complete[complete] = True
    segments = []
    for part in np.split(np.arange(len(rows)), np.flatnonzero(~is_in_record) + 1):
        known = np.flatnonzero(is_complete[rows[part]])
        if not len(known):
            continue
        part = part[known[0] : known[-1] + 1]
        samples = np.concatenate([[0], np.cumsum(n_steps[part[:-1]])])
        segments.append(_Segment(rows[part], samples))
    return segments


def _split_resampled(
    table: pd.DataFrame,
    times: clock.Times,
    values: dict[str, Array],
    part: tuple[int, int],
    step: float,
    on_missing: str,
) -> _Part:
    """Return the segments between gaps of the rows of a part, resampled at equal steps."""
    if not times.is_measured:
        raise UserError(
            f"{location(table)}: resample={step:.9g} needs the times of the samples: name their "
            f"column, {setting_text(table, 'time', ['time'])}"
        )
    first, end = part
    rows = first + np.flatnonzero(np.isfinite(times.seconds[first:end]))
    clock.check_increasing(table, times, rows)
    if len(rows) < 2:
        raise UserError(f"{location(table, first)}: expected at least two times to resample")
    part_values = {name: column[rows] for name, column in values.items()}
    new_times, new_values, note = resample_rows(times.seconds[rows], part_values, step)
    is_complete = np.asarray(np.isfinite([*new_values.values()]).all(axis=0))
    if on_missing == KEEP_MISSING:
        is_complete[:] = True
    elif on_missing != "skip" and not is_complete.all():
        first_missing = new_times[~is_complete][0]
        raise UserError(
            f"{location(table)}: there is nothing to interpolate at {first_missing:.9g} s, the "
            f"first of {int((~is_complete).sum())} such samples: set on_missing=skip, which "
            "leaves them out"
        )
    if not is_complete.any():
        raise UserError(f"{location(table)}: no row has all of {[*values]}")
    kept = np.flatnonzero(is_complete)
    whole = slice(kept[0], kept[-1] + 1)
    segment = {name: column[whole] for name, column in new_values.items()}
    return _Part([(float(new_times[kept[0]]), segment)], step, [note])


def _note_unused(
    table: pd.DataFrame, columns: Mapping[str, int], others: Set[str | None]
) -> list[str]:
    """Return a note on columns that might be inputs, where no input is named.

    `columns` are those of the signals; `others` have the times and the experiments.
    """
    unused = []
    for column, whole in enumerate(names_of_columns(table)):
        name, _ = split_name(whole)
        if column not in columns.values() and not others & {name, whole}:
            unused.append(name)
    if not unused:
        return []
    return [
        "no input is named, although other columns are there; name those that act on the output: "
        f"{setting_text(table, 'inputs', unused)}"
    ]


def _find_experiments(
    table: pd.DataFrame, experiment: str | None, times: clock.Times, notes: list[str]
) -> list[tuple[str, int, int]]:
    """Return the experiments of a table: a label, the first row, and the row after the last.

    Each value of the column `experiment` is one. Without such a column, a clock that starts again
    at the time of the first row begins the next one.

    Raises
    ------
    ValueError
        A row has no experiment, or the rows of an experiment do not follow each other.
    """
    if experiment is None:
        starts = [0, *clock.find_restarts(times), len(table)]
        labels = [str(number) for number in range(1, len(starts))]
        if len(labels) > 1:
            notes.append(
                f"the clock starts again: {len(labels)} experiments are records of their own"
            )
        return list(zip(labels, starts[:-1], starts[1:], strict=True))
    column = find_columns(table, [experiment], "experiment")[experiment]
    cells = table.iloc[:, column].reset_index(drop=True)
    if cells.isna().any():
        row = int(np.argmax(cells.isna()))
        raise UserError(
            f"{location(table, row)}, column {experiment!r}: it does not say which experiment the "
            "row belongs to: fill the cell"
        )
    is_first = (cells != cells.shift()).to_numpy()
    starts = [*np.flatnonzero(is_first).tolist(), len(table)]
    labels = [str(cells.iloc[start]).strip() for start in starts[:-1]]
    for number, label in enumerate(labels):
        if label in labels[:number]:
            raise UserError(
                f"{location(table, starts[number])}: experiment {label!r} of column "
                f"{experiment!r} was there before: sort the rows by experiment"
            )
    notes.append(f"column {experiment!r} has {len(labels)} experiments, each a record of its own")
    return list(zip(labels, starts[:-1], starts[1:], strict=True))


def _take_unit_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the rows of units below the names of its columns.

    The units are those of the columns, and a note says so. A file has been read without these rows.
    """
    if "file" in table.attrs or table.select_dtypes(["object", "string"]).empty:
        return table
    head = table.iloc[: MAX_UNIT_ROWS + 1]
    cells = [
        ["" if pd.isna(cell) else str(cell).strip() for cell in row] for row in head.to_numpy()
    ]
    n_rows = count_unit_rows(cells)
    if not n_rows:
        return table
    notes: list[str] = []
    units = read_units(cells[0], names_of_columns(table), notes)
    rest = table.iloc[n_rows:]
    rest.attrs = {"units": units, "notes": notes, "line": n_rows}
    return rest


def _read_labels(
    table: pd.DataFrame, columns: dict[str, int], stated: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the long names and the units of signals, as they are stated or the file has them."""
    long_names = {}
    units = {}
    of_columns = units_of_columns(table)
    for signal, column in columns.items():
        label, _ = split_name(names_of_columns(table)[column])
        if label != signal:
            long_names[signal] = label
        unit = of_columns.get(column, "")
        if unit and not is_same_unit(stated.get(signal, unit), unit):
            raise UserError(
                f"{location(table)}: the stated unit of {signal!r} is {stated[signal]!r}, that of "
                f"the file {unit!r}: correct one of them, or leave the stated one out; numbers are "
                "not converted"
            )
        if unit:
            units[signal] = unit
    return long_names, units | dict(stated)


def share_sampling_time(records: Sequence[xr.Dataset]) -> tuple[list[xr.Dataset], str]:
    """Return records of one nominal rate with one sampling time, if their times jitter, and a note.

    The sampling time is that of the records whose steps are equal, or the mean step of all. Records
    are returned as they are if nothing jitters, or if their sampling times differ by more than
    `MAX_RATE_DIFFERENCE`.
    """
    steps = np.array([float(record.attrs["sampling_time"]) for record in records])
    jitters = np.array(["jitter" in record.attrs for record in records], dtype=bool)
    if not len(steps) or not jitters.any() or np.ptp(steps) <= TIME_TOLERANCE * steps.min():
        return list(records), ""
    steady = steps[~jitters]
    is_one_rate = np.ptp(steps) <= MAX_RATE_DIFFERENCE * steps.min()
    if not is_one_rate or (len(steady) and np.ptp(steady) > TIME_TOLERANCE * steady.min()):
        return list(records), ""
    lengths = [record.sizes["time"] for record in records]
    common = float(np.average(steps, weights=lengths))
    step = float(steady[0]) if len(steady) else clock.round_rate(common, np.ptp(steps) / 2)
    note = (
        f"sampling times from {steps.min():.9g} to {steps.max():.9g} s are of one nominal rate and "
        f"are taken as {step:.9g} s"
    )
    shared = []
    for record, jitter in zip(records, jitters, strict=True):
        if jitter:
            k = np.arange(record.sizes["time"])
            seconds = float(record["time"].values[0]) + step * k
            record = record.assign_coords(time=("time", seconds, record["time"].attrs))
            record = record.assign_attrs(sampling_time=step, note=f"{record.attrs['note']}; {note}")
        shared.append(record)
    return shared, note


def _check_index(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose index shows no gap; one of periods becomes one of time stamps.

    An index of numbers that is named as a column of times becomes that column.

    Rows that were left out, sorted otherwise or taken from several runs do not follow each other in
    time. An index of numbers shows that by its steps, which must be equal.
    """
    index = table.index
    if isinstance(index, pd.PeriodIndex):
        return table.set_axis(index.to_timestamp())
    if isinstance(index, pd.MultiIndex):
        raise UserError(
            f"{location(table)}: expected one run, its index has the levels {list(index.names)}: "
            "pass a list with a table for each run, "
            "[run.droplevel(0) for _, run in table.groupby(level=0)], or name the column of times"
        )
    is_number = index.dtype.kind in "iuf"
    if is_number and clock.is_time_name(str(index.name)) and index.name not in table.columns:
        attributes = table.attrs
        table = table.reset_index()
        table.attrs = attributes
        return table
    is_forward_range = isinstance(index, pd.RangeIndex) and index.step > 0
    if is_forward_range or index.dtype.kind not in "iuf":
        return table
    steps = np.diff(index.to_numpy(dtype=np.float64))
    step = float(np.median(steps)) if len(steps) else 1.0
    is_jump = ~(np.abs(steps - step) <= clock.MAX_JITTER * step)
    if is_jump.any():
        row = int(np.argmax(is_jump))
        raise UserError(
            f"{location(table)}: its index goes from {index[row]} to {index[row + 1]} at row "
            f"{row + 1}, where the usual step is {step:g}: rows must follow each other in time; "
            "pass a list with a table for each run, keep the rows with missing values and set "
            'on_missing="skip", or drop the index, table.reset_index(drop=True)'
        )
    return table


def _find_rows(
    table: pd.DataFrame,
    values: dict[str, Array],
    times: Array,
    time: str | None,
    on_missing: str,
) -> np.ndarray:
    """Return the numbers of the rows that have a time and all values.

    With ``on_missing="keep"`` the time is enough. Unless it is "skip", all rows must be complete.
    """
    is_complete = np.isfinite(times)
    if on_missing != KEEP_MISSING:
        for column in values.values():
            is_complete &= np.isfinite(column)
    if on_missing != "skip" and not is_complete.all():
        row = int(np.argmin(is_complete))
        missing = time or "the time"
        for signal, column in values.items():
            if not np.isfinite(column[row]):
                missing = signal
                break
        n_incomplete = int((~is_complete).sum())
        raise UserError(
            f"{location(table, row)}, column {missing!r}: the value is missing, the first of "
            f"{n_incomplete} such rows: fill the gap, or set on_missing=skip, which counts such "
            "values as missing samples"
        )
    rows = np.flatnonzero(is_complete)
    if not len(rows):
        raise UserError(f"{location(table)}: no row has all of {[*values]}")
    return rows
