"""Records from CSV files and other tables."""

from __future__ import annotations

import csv
import math
import re
import shlex
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from sysid import store
from sysid.arrays import check_whole, listed
from sysid.data.holes import bridge_holes, describe_holes
from sysid.data.source import (
    RECORD_ROLES,
    DataError,
    DataSource,
    Recordings,
    list_paths,
    make_record,
)
from sysid.errors import UserError, UserTypeError
from sysid.narx.record import ON_MISSING_ATTRIBUTE, SKIPS_MISSING, TIME_TOLERANCE, Array

#: names of a column that is taken as the times if none is named
TIME_NAMES = (
    "time",
    "t",
    "stamp",
    "timestamp",
    "datetime",
    "date",
)

#: units of a column of times, in seconds
SECONDS_PER_UNIT = {
    "s": 1.0,
    "sec": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}

#: largest deviation of a step from the sampling time, as a fraction of the sampling time [-]
MAX_JITTER = 0.1

#: A longer step is a gap, in sampling times [-].
MIN_GAP_STEPS = 1.5

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
    """One CSV file per record, with a first line that names the columns.

    Every role takes one path or a list of paths; several files are several records. A column named
    ``T_out [degC]`` or ``T_out (degC)`` is the signal ``T_out`` with that unit; it can also be
    named by its whole name.

    With `dt` alone, row k has the time k dt. Otherwise a column has times or time stamps: the one
    named by `time`, or one called time, t, stamp, timestamp, datetime or date. A unit in its name
    is that of the times. Its median step is the sampling time unless `dt` states it. Steps may
    differ from the sampling time by 10 %; a note of the record states by how much they do.

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
    #: column with times [s] or time stamps; None: dt, or a column called time, t, date, ...
    time: str | None = None
    #: format of time stamps, "%d/%m/%Y %H:%M"; None: ISO, dd.mm.yyyy or mm/dd/yyyy
    time_format: str | None = None
    units: Mapping[str, str] | None = None  # units of signals, {u: V}; they replace those in names
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

    def load(self) -> Recordings:
        """Read all files; see `DataSource.load`."""
        self._check()
        paths = {
            role: list_paths(getattr(self, role), f"CsvFiles: {role}") for role in RECORD_ROLES
        }
        records: dict[str, tuple[xr.Dataset, ...]] = {}
        names = []
        for role in RECORD_ROLES:
            records_of_role: list[xr.Dataset] = []
            for path in paths[role]:
                records_of_role += self._records(Path(path))
                names.append(Path(path).name)
            records[role] = tuple(records_of_role)
        title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        return Recordings(title, tuple(self.inputs), tuple(self.outputs), **records)

    def _check(self) -> None:
        """Raise UserError if files, outputs or units are missing or do not fit together."""
        if not any(list_paths(getattr(self, role), f"CsvFiles: {role}") for role in RECORD_ROLES):
            raise UserError(
                "CsvFiles needs a file: set data.estimation=<file>, "
                "and data.test=<file> for the test"
            )
        if not self.outputs:
            raise UserError(
                "CsvFiles needs the names of its columns: set data.outputs=[y], and data.inputs=[u]"
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
        table = read_table(path, delimiter=self.delimiter, encoding=self.encoding)
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
            inputs=self.inputs,
            bridge_inputs=self.bridge_inputs,
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
    path: Path, *, delimiter: str | None = None, encoding: str = "utf-8"
) -> pd.DataFrame:
    """Read the cells of a CSV file as texts, missing ones as nan; its first line names the columns.

    A line ``sep=;`` before the first line may state the delimiter; otherwise it is recognised from
    the first line. UTF-8 may begin with a byte-order mark. Cells may be quoted. Empty lines at the
    end are left out.

    Raises
    ------
    sysid.DataError
        The file does not exist or cannot be read.
    ValueError
        The file has another encoding, no header, no row, or a line with more cells than the header.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"cannot read {path}: it is no plain file; name a CSV file")
    if path.exists() and path.stat().st_size > store.max_content_bytes():
        raise DataError(
            f"{path} has more than {store.max_content_bytes()} bytes: cut it, or set the "
            f"environment variable {store.MAX_CONTENT_VARIABLE} to a larger number"
        )
    if not isinstance(encoding, str):
        raise UserError(
            f"encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}"
        )
    try:
        codec = "utf-8-sig" if encoding == "utf-8" else encoding
        lines = path.read_bytes().decode(codec).splitlines()
        stated = re.fullmatch(r"sep=(.)", lines[0].strip()) if lines else None
        header_line = 0 if stated is None else 1
        header = lines[header_line] if len(lines) > header_line else ""
        separator = delimiter or (stated[1] if stated else _recognise_delimiter(header))
        cells = next(csv.reader([header], delimiter=separator, strict=True), [])
        names = [cell.strip() for cell in cells]
        table = pd.read_csv(
            path,
            sep=separator,
            skiprows=header_line,
            dtype=str,
            skip_blank_lines=False,
            skipinitialspace=True,
            encoding=codec,
            compression=None,  # by default, pandas unpacks a file whose name ends as an archive
        )
    except FileNotFoundError:
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check the path") from None
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}): name a CSV file that you may read"
        ) from error
    except UnicodeError as error:
        raise UserError(
            f"{path}: its text is not in {encoding.upper()} ({error}): export it as CSV in UTF-8, "
            "or set data.encoding=cp1252 (older Windows programs) or utf-16; "
            "an Excel workbook is not read"
        ) from None
    except LookupError:
        raise UserError(
            f"encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}"
        ) from None
    except (csv.Error, ValueError) as error:
        advice = "close its quotes, give every line as many cells as the header, or export it again"
        if separator == "," and "Expected" in str(error):
            advice = "where numbers are written with a decimal comma, separate cells by ';'"
        raise UserError(f"{path}: not a CSV file ({str(error).strip()}): {advice}") from None
    if not isinstance(table.index, pd.RangeIndex) or len(names) != table.shape[1]:
        raise UserError(
            f"{path}, line {header_line + 2}: more cells than the {len(names)} of the header; "
            "where numbers are written with a decimal comma, separate cells by ';', "
            "otherwise complete the header"
        )
    filled_rows = np.flatnonzero(table.notna().any(axis=1))
    last_row = int(np.max(filled_rows, initial=-1))
    table = table[: last_row + 1]
    if not len(table):
        raise UserError(
            f"{path}: expected rows of numbers after the header, the file ends there; "
            "export it again"
        )
    table.columns = pd.Index(names)
    table.attrs = {"file": str(path), "line": header_line + 2}
    return table


def _recognise_delimiter(header: str) -> str:
    """Return the delimiter of a header: tab, semicolon or bar if it has one, otherwise a comma."""
    for delimiter in "\t;|":
        if delimiter in header:
            return delimiter
    return ","


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
    inputs: Sequence[str] = (),
    bridge_inputs: int = 0,
) -> list[xr.Dataset]:
    """Split a table into records of the named columns; the parameters are those of `CsvFiles`.

    If no column of times is named, an index of time stamps or periods has the times. With
    ``on_missing="skip"`` missing values and samples are nan in the record, whose attribute ``note``
    counts them. A gap of time ends the record if it is no whole number of sampling times, or longer
    than `MAX_GAP_SAMPLES`. With ``on_missing="keep"`` missing values stay as nan.

    Raises
    ------
    ValueError
        A column is missing or occurs twice, a cell is no number, a value is missing, or the times,
        or the numbers in the index, do not increase in equal steps. The message names the file and
        the line.
    """
    if dt is not None and not 0 < dt < math.inf:
        raise UserError(f"dt={dt!r} must be a finite number of seconds > 0")
    if time is None:
        table = _check_index(table)
    columns = _find_columns(table, signals)
    if len(set(columns.values())) < len(columns):
        raise UserError(f"{_location(table)}: {[*columns]} name the same column twice")
    if time is None and dt is None:
        time = _find_time(table, signals)
    time_columns = {} if time is None else _find_columns(table, [time], "time")
    if not decimal:
        used = [*columns.values(), *time_columns.values()]
        has_comma = any(_shows_comma(table.iloc[:, column]) for column in used)
        decimal = "," if has_comma else "."
    values = {signal: _read_numbers(table, column, decimal) for signal, column in columns.items()}
    times, start = _read_times(table, dt, time, time_format, decimal)
    rows = _find_rows(table, values, times, time, on_missing)
    step, notes = _find_step(table, times, rows, dt, on_missing)
    segments = [_Segment(rows, np.arange(len(rows)))]
    min_samples = max(shortest, initialisation_window + 1)
    if on_missing in ("skip", KEEP_MISSING):
        segments = _place_rows(times, rows, step)
    kept = _keep_long(table, segments, min_samples)
    n_short = len(segments) - len(kept)
    if len(segments) > 1:
        note = f"{len(segments) - 1} gaps of time end a record, records: {len(kept)}"
        if n_short:
            n_left_out = sum(len(segment.rows) for segment in segments) - sum(
                len(segment.rows) for segment in kept
            )
            note += f"; {n_short} shorter than {min_samples} left out ({n_left_out} samples)"
        notes.append(note)
    long_names, stated_units = _read_labels(table, columns)
    placed = [
        {signal: segment.place(column) for signal, column in values.items()} for segment in kept
    ]
    if on_missing == "skip":
        notes += bridge_holes(placed, inputs, bridge_inputs)
        notes += describe_holes(placed, inputs)
    has_missing = not all(np.isfinite([*part.values()]).all() for part in placed)
    attributes = {}
    if notes:
        attributes["note"] = f"{_location(table)}: {'; '.join(notes)}"
    if on_missing == "skip" and has_missing:
        attributes[ON_MISSING_ATTRIBUTE] = SKIPS_MISSING
    if "file" in table.attrs:
        attributes["file"] = table.attrs["file"]
    if start:
        attributes["start"] = start
    records = []
    for number, (segment, of_segment) in enumerate(zip(kept, placed, strict=True), start=1):
        record = make_record(
            of_segment,
            name=name if len(kept) == 1 else f"{name}, segment {number}",
            sampling_time=step,
            initialisation_window=initialisation_window,
            units=stated_units | dict(units or {}),
            long_names=long_names,
            attributes=attributes,
        )
        segment_times = times[segment.rows[0]] + record["time"].values
        records.append(record.assign_coords(time=("time", segment_times, record["time"].attrs)))
    return records


class _Segment(NamedTuple):
    """Rows of a table that belong to one record, and the samples that they are."""

    rows: np.ndarray  # (n,)
    samples: np.ndarray  # (n,) increasing, from 0

    @property
    def n_samples(self) -> int:
        """Number of samples of the record, missing ones included."""
        return int(self.samples[-1]) + 1

    def place(self, column: Array) -> Array:
        """Return the values of a column at the samples of the record, nan where there is no row."""
        values = np.full(self.n_samples, np.nan)
        values[self.samples] = column[self.rows]
        return values


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


def _check_index(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose index shows no gap; one of periods becomes one of time stamps.

    Rows that were left out, sorted otherwise or taken from several runs do not follow each other in
    time. An index of numbers shows that by its steps, which must be equal.
    """
    index = table.index
    if isinstance(index, pd.PeriodIndex):
        return table.set_axis(index.to_timestamp())
    if isinstance(index, pd.MultiIndex):
        raise UserError(
            f"{_location(table)}: expected one run, its index has the levels {list(index.names)}: "
            "pass a list with a table for each run, "
            "[run.droplevel(0) for _, run in table.groupby(level=0)], or name the column of times"
        )
    is_forward_range = isinstance(index, pd.RangeIndex) and index.step > 0
    if is_forward_range or index.dtype.kind not in "iuf":
        return table
    steps = np.diff(index.to_numpy(dtype=np.float64))
    step = float(np.median(steps)) if len(steps) else 1.0
    is_jump = ~(np.abs(steps - step) <= MAX_JITTER * step)
    if is_jump.any():
        row = int(np.argmax(is_jump))
        raise UserError(
            f"{_location(table)}: its index goes from {index[row]} to {index[row + 1]} at row "
            f"{row + 1}, where the usual step is {step:g}: rows must follow each other in time; "
            "pass a list with a table for each run, keep the rows with missing values and set "
            'on_missing="skip", or drop the index, table.reset_index(drop=True)'
        )
    return table


def _keep_long(table: pd.DataFrame, segments: list[_Segment], min_samples: int) -> list[_Segment]:
    """Return the segments with at least `min_samples` samples; a single one may be shorter."""
    if len(segments) == 1:
        return segments
    kept = [segment for segment in segments if segment.n_samples >= min_samples]
    if not kept:
        longest = max(segment.n_samples for segment in segments)
        raise UserError(
            f"{_location(table)}: gaps of time split it into {len(segments)} parts of at most "
            f"{longest} samples, expected one of at least {min_samples}: "
            "fill gaps, or set a smaller shortest"
        )
    return kept


def _read_labels(
    table: pd.DataFrame, columns: dict[str, int]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the long names and the units of signals, as the names of their columns state them."""
    long_names = {}
    units = {}
    for signal, column in columns.items():
        label, unit = _split_name(str(table.columns[column]))
        if label != signal:
            long_names[signal] = label
        if unit:
            units[signal] = unit
    return long_names, units


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
    is_complete = np.isfinite(times) & np.isfinite([*values.values()]).all(axis=0)
    if on_missing == KEEP_MISSING:
        is_complete = np.isfinite(times)
    if on_missing != "skip" and not is_complete.all():
        row = int(np.argmin(is_complete))
        missing = time or "the time"
        for signal, column in values.items():
            if not np.isfinite(column[row]):
                missing = signal
                break
        n_incomplete = int((~is_complete).sum())
        raise UserError(
            f"{_location(table, row)}, column {missing!r}: the value is missing, the first of "
            f"{n_incomplete} such rows: fill the gap, or set on_missing=skip, which splits the "
            "record there"
        )
    rows = np.flatnonzero(is_complete)
    if not len(rows):
        raise UserError(f"{_location(table)}: no row has all of {[*values]}")
    return rows


def _split_name(column: str) -> tuple[str, str]:
    """Return name and unit of a column; a whole number in brackets is an index, no unit.

    >>> _split_name("T_out [degC]"), _split_name("u (%)"), _split_name("tank[2]")
    (('T_out', 'degC'), ('u', '%'), ('tank[2]', ''))
    """
    match = re.fullmatch(r"(.*\S)(?:\s*\[([^\[\]]+)\]|\s+\(([^()]+)\))", column.strip())
    if match is None:
        return column.strip(), ""
    unit = (match[2] or match[3]).strip()
    if not unit or unit.isdigit():
        return column.strip(), ""
    return match[1], unit


def _find_columns(
    table: pd.DataFrame, names: Sequence[str], option: str = "inputs"
) -> dict[str, int]:
    """Return the numbers of columns by name, either the whole name or the name without the unit.

    `option` is the setting that names the columns, for the message.
    """
    whole_names = [str(column).strip() for column in table.columns]
    bare_names = [_split_name(column)[0] for column in whole_names]
    columns = {}
    for name in names:
        matching = [i for i, column in enumerate(whole_names) if column == name]
        if not matching:
            matching = [i for i, column in enumerate(bare_names) if column == name]
        if len(matching) > 1:
            with_unit = _setting_text(table, option, [whole_names[matching[0]]])
            raise UserError(
                f"{_location(table)}: columns {[whole_names[i] for i in matching]} are there more "
                f"than once as {name!r}: rename them, or name one with its unit, {with_unit}"
            )
        if matching:
            columns[name] = matching[0]
    absent = [name for name in names if name not in columns]
    if absent:
        named = [name for name in bare_names if name]
        advice = f"name columns of the file, as in {_setting_text(table, option, named[-1:])}"
        if all(_to_number(name, ".") is not None for name in named):
            advice = "it seems to have no header: write the names of the columns into a first line"
        raise UserError(
            f"{_location(table)}: no columns {absent}, its first line names {whole_names}; {advice}"
        )
    return columns


def _setting_text(table: pd.DataFrame, option: str, names: Sequence[str]) -> str:
    """Return a setting of names as the user writes it.

    For a file it is written for a shell and the grammar of the commands, otherwise in Python.
    """
    if "file" in table.attrs:
        return write_names(f"data.{option}", names, is_list=option != "time")
    if option == "time":
        return f"{option}={names[0]!r}"
    return f"{option}={[*names]!r}"


def write_names(key: str, names: Sequence[str], *, is_list: bool = True) -> str:
    """Return a setting of names, quoted for a shell and for the grammar of the commands.

    >>> print(write_names("data.inputs", ["u 1 [%]", "v"]))
    'data.inputs=["u 1 [%]",v]'
    """
    quoted = []
    for name in names:
        is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", name) is not None
        escaped = name.replace('"', r"\"")
        quoted.append(name if is_plain else f'"{escaped}"')
    value = f"[{','.join(quoted)}]" if is_list else quoted[0]
    return shlex.quote(f"{key}={value}")


def _location(table: pd.DataFrame, row: int | None = None) -> str:
    """Return the words by which a message names a row of a table, or the table."""
    if "file" not in table.attrs:
        return "the table" if row is None else f"row {row} of the table"
    file = str(table.attrs["file"])
    return file if row is None else f"{file}, line {row + table.attrs['line']}"


def _to_number(text: str, decimal: str) -> float | None:
    """Return the value of a cell; None if it is no number.

    With a decimal comma, a point in a cell would separate thousands: such a cell is no number.
    """
    if "_" in text:  # Python would ignore the underscore
        return None
    if decimal != ".":
        text = text.replace(".", "?").replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None


def _read_numbers(table: pd.DataFrame, column: int, decimal: str) -> Array:
    """Return the numbers (n,) of a column, nan where a cell is empty."""
    cells = table.iloc[:, column]
    if pd.api.types.is_complex_dtype(cells):
        raise UserError(
            f"{_location(table)}, column {str(table.columns[column])!r}: expected real numbers, "
            "got complex ones: make a column of each part, .real and .imag"
        )
    if pd.api.types.is_numeric_dtype(cells):
        return np.asarray(cells.to_numpy(dtype=np.float64, na_value=np.nan))
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and cell.strip():
            value = _to_number(cell.strip(), decimal)
            if value is None:
                other_sign = "," if decimal == "." else "."
                if _to_number(cell.strip(), other_sign) is None:
                    advice = "correct the cell; leave it empty if the value is missing"
                else:
                    advice = (
                        f"if {other_sign!r} is the decimal sign of this file, "
                        f"set 'data.decimal=\"{other_sign}\"'"
                    )
                where = f"{_location(table, row)}, column {str(table.columns[column])!r}"
                raise UserError(f"{where}: it holds {cell.strip()!r}, expected a number: {advice}")
            values[row] = value
        elif cell is not np.ma.masked and not np.any(pd.isna(cell)):
            try:
                values[row] = float(cell)
            except (TypeError, ValueError):
                where = f"{_location(table, row)}, column {str(table.columns[column])!r}"
                raise UserError(f"{where}: expected a number, got {cell!r}") from None
    return values


def _shows_comma(cells: pd.Series) -> bool:
    """Whether any cell is a number with a decimal comma."""
    texts = cells[[isinstance(cell, str) for cell in cells]].astype(str)
    return bool(texts.str.fullmatch(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*").any())


def _find_time(table: pd.DataFrame, signals: Sequence[str]) -> str | None:
    """Return the name of the column of times; None if the index has the times."""
    if isinstance(table.index, pd.DatetimeIndex | pd.TimedeltaIndex):
        return None
    names = [_split_name(str(column))[0] for column in table.columns]
    for name in sorted({*names} - {*signals}):
        if name.lower() in TIME_NAMES:
            return name
    raise UserError(
        f"{_location(table)}: the sampling time is not known: set dt to seconds, or time to the "
        f"column with the times, there are {[str(column) for column in table.columns]}"
    )


def _read_times(
    table: pd.DataFrame,
    dt: float | None,
    time: str | None,
    time_format: str | None,
    decimal: str,
) -> tuple[Any, str]:
    """Return the times (n,) [s], nan where missing, and the time stamp of the first, if any."""
    has_time_index = isinstance(table.index, pd.DatetimeIndex | pd.TimedeltaIndex)
    if time is None and not has_time_index:
        return float(dt or 1.0) * np.arange(len(table)), ""
    if time is None:
        stamps: Any = pd.Series(table.index)
    else:
        column = _find_columns(table, [time], "time")[time]
        stamps = table.iloc[:, column].reset_index(drop=True)
        unit = _split_name(str(table.columns[column]))[1]
        if unit and unit not in SECONDS_PER_UNIT:
            raise UserError(
                f"{_location(table)}: times in {unit!r}, expected one of "
                f"{', '.join(SECONDS_PER_UNIT)}, or stamps"
            )
        texts = [cell.strip() for cell in stamps if isinstance(cell, str) and cell.strip()]
        are_numbers = pd.api.types.is_numeric_dtype(stamps)
        if not are_numbers and texts:
            are_numbers = _to_number(texts[0], decimal) is not None
        if are_numbers:
            seconds = SECONDS_PER_UNIT[unit or "s"]
            return np.multiply(_read_numbers(table, column, decimal), seconds), ""
        if texts:
            stamps = _read_stamps(table, stamps, texts[0], time_format)
    elapsed = stamps - stamps.iloc[0]
    start = "" if pd.api.types.is_timedelta64_dtype(stamps) else str(stamps.iloc[0])
    return elapsed.dt.total_seconds().to_numpy(dtype=np.float64), start


def _read_stamps(
    table: pd.DataFrame, cells: pd.Series, first: str, time_format: str | None
) -> pd.Series:
    """Convert texts into time stamps.

    Without a format, stamps like 2024-01-31 are ISO, and those with points, 31.1.2024, have the day
    first; pandas guesses the format of all others.
    """
    options: dict[str, Any]
    if time_format:
        options = {"format": time_format}
    elif time_format is None and re.match(r"\d{4}-\d\d-\d\d", first):
        options = {"format": "ISO8601"}
    else:
        options = {"dayfirst": re.match(r"\d{1,2}\.\d", first) is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a format that pandas cannot guess is slower to read
        stamps = pd.to_datetime(cells.str.strip(), errors="coerce", utc=True, **options)
    is_wrong = stamps.isna() & cells.notna()
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise UserError(
            f"{_location(table, row)}: {cells.iloc[row]!r} is neither a number nor a time stamp "
            f"like {first!r}: correct it, or set the form of the stamps, such as "
            "'data.time_format=\"%d/%m/%Y %H:%M:%S\"'"
        )
    return stamps


def _find_step(
    table: pd.DataFrame,
    all_times: Array,
    rows: np.ndarray,
    dt: float | None,
    on_missing: str,
) -> tuple[float, list[str]]:
    """Find the sampling time, and check that the steps of the times are equal.

    Returns
    -------
    float
        Sampling time [s].
    list of str
        Note on steps that are not quite equal.
    """
    times = all_times[rows]
    steps = np.diff(times)
    is_between_neighbours = np.diff(rows) == 1
    resolution = 4 * float(np.spacing(np.abs(times).max()))
    if not len(steps[is_between_neighbours]):
        if dt is None:
            raise UserError(
                f"{_location(table, 0)}: expected at least two times that follow each other; "
                "or set dt"
            )
        return dt, []
    if (steps <= 0).any():
        row = int(rows[np.argmax(steps <= 0) + 1])
        raise UserError(
            f"{_location(table, row)}: the time is not later than that of the row before: "
            "sort the rows, or, if stamps are too coarse to differ, set dt and leave the time out"
        )
    step = dt
    if step is None:
        step = _round_step(float(np.median(steps[is_between_neighbours])), resolution)
    is_gap = np.zeros(len(steps), dtype=bool)
    if on_missing == "skip":
        is_gap = is_between_neighbours & (steps > MIN_GAP_STEPS * step)
    deviation = np.where(is_between_neighbours & ~is_gap, np.abs(steps - step), 0.0)
    limit = MAX_JITTER * step + resolution
    if deviation.max() > limit:
        first = int(np.argmax(deviation > limit))
        stated = "the median of all steps is" if dt is None else "dt is"
        raise UserError(
            f"{_location(table, int(rows[first + 1]))}: the step of time is {steps[first]:.9g} s "
            f"where {stated} {step:.9g} s; steps may differ by {MAX_JITTER:.0%}: "
            "resample the record, set on_missing=skip, which leaves gaps out, or set dt and "
            "leave the time out"
        )
    if deviation.max() <= TIME_TOLERANCE * step + resolution:
        return step, []
    percent = 100 * deviation.max() / step
    note = f"times jitter by up to {percent:.2g} % of {step:.9g} s and are taken as equal steps"
    return step, [note]


def _round_step(step: float, resolution: float) -> float:
    """Round a step [s] to the fewest digits that the resolution of the times allows.

    >>> _round_step(0.09999999999999432, 1e-13)
    0.1
    """
    tolerance = max(resolution, 1e-12 * step)
    for n_digits in range(1, 17):
        rounded = float(f"{step:.{n_digits}g}")
        if abs(rounded - step) <= tolerance:
            return rounded
    return float(f"{step:.17g}")
