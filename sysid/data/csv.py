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
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from sysid.arrays import listed
from sysid.data.source import (
    ROLES,
    DataError,
    DataSource,
    Recordings,
    list_paths,
    make_record,
)
from sysid.errors import UserError, UserTypeError
from sysid.narx.record import TIME_TOLERANCE, Array

TIME_NAMES = (
    "time",
    "t",
    "stamp",
    "timestamp",
    "datetime",
    "date",
)  # of a column of times that nobody named
TIME_UNITS = {
    "s": 1.0,
    "sec": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}  # s
LARGEST_JITTER = 0.1  # of the sampling time: steps that differ more are no equal steps [-]
GAP = 1.5  # sampling times: a longer step is a gap [-]
ON_MISSING = ("error", "skip", "keep")
SHORTEST = 50  # samples between two gaps


@dataclass(frozen=True)
class CsvFiles(DataSource):
    """One CSV file per record, with a first line that names the columns.

    Every role takes one path or a list of paths; several files stay several records. A column named
    ``T_out [degC]`` or ``T_out (degC)`` is the signal ``T_out`` with that unit; its whole name
    finds it, too.

    Times come from `dt`, row k standing for k dt, or from a column of times or time stamps, named
    by `time`, else called time, t, stamp, timestamp, datetime or date. Its median step is the
    sampling time unless `dt` states it. Steps may differ from that by 10 %, which a note of the
    record tells. A unit in its name is that of the times.

    Cells are separated, and decimal signs written, as the file shows, unless stated.

    Raises
    ------
    ValueError
        An impossible setting; on `load` also: no file or no outputs named, no sampling time, units
        of an unknown signal, and what is wrong in a file.
    """

    estimation: str | Sequence[str] = ()  # path or paths
    validation: str | Sequence[str] = ()  # path or paths
    test: str | Sequence[str] = ()  # path or paths
    inputs: Sequence[str] = ()  # columns
    outputs: Sequence[str] = ()  # columns
    dt: float | None = None  # sampling time, s; None: the times say
    time: str | None = (
        None  # column with the times, s or time stamps; None: dt, or one called time, t, date, ...
    )
    time_format: str | None = (
        None  # of time stamps, "%d/%m/%Y %H:%M"; None: ISO, dd.mm.yyyy or mm/dd/yyyy
    )
    units: Mapping[str, str] | None = None  # unit of a signal, say {u: V}; before that in its name
    delimiter: str | None = None  # between two cells; None: as the header shows
    decimal: str | None = None  # sign in a number, "." or ","; None: as the numbers show
    encoding: str = "utf-8"  # of the text; cp1252 is that of older Windows programs
    # at a missing value or time: error, or skip (the record is split there)
    on_missing: str = "error"
    shortest: int = SHORTEST  # samples between two gaps; fewer are left out, and told
    initialisation_window: int = 0  # samples at the start of every record that are not judged

    def __post_init__(self) -> None:
        if self.delimiter == r"\t":  # as it comes from a command line
            object.__setattr__(self, "delimiter", "\t")
        if (
            len(self.delimiter or ",") != 1
            or self.decimal not in (None, ".", ",")
            or (self.decimal is not None and self.delimiter == self.decimal)
        ):
            raise UserError(
                f"expected a delimiter of one character and a decimal '.' or ',' other than it, got delimiter "
                f"{self.delimiter!r} and decimal {self.decimal!r}: change one of them, or leave both out"
            )
        if self.on_missing not in ON_MISSING[:2]:
            raise UserError(
                f"on_missing must be one of {', '.join(ON_MISSING[:2])}, got {self.on_missing!r}"
            )
        for name in ("inputs", "outputs"):
            if isinstance(getattr(self, name), str):
                raise UserError(
                    f"CsvFiles({name}={getattr(self, name)!r}) must be a list: write "
                    f"{write_names(f'data.{name}', [getattr(self, name)])}"
                )
            names = listed(getattr(self, name), f"CsvFiles: {name}", "names of columns")
            if not all(isinstance(one, Hashable) for one in names):
                raise UserTypeError(
                    f"CsvFiles: {name} must be a list of names of columns, got {list(names)}"
                )

    def load(self) -> Recordings:
        """Read all files; see `DataSource.load`."""
        self._check()
        paths = {role: list_paths(getattr(self, role), f"CsvFiles: {role}") for role in ROLES}
        roles = {
            role: [record for path in paths[role] for record in self._records(Path(path))]
            for role in ROLES
        }
        files = [Path(path).name for role in ROLES for path in paths[role]]
        title = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        return Recordings(
            title,
            tuple(self.inputs),
            tuple(self.outputs),
            **{k: tuple(v) for k, v in roles.items()},
        )

    def _check(self) -> None:
        if not any(list_paths(getattr(self, role), f"CsvFiles: {role}") for role in ROLES):
            raise UserError(
                "CsvFiles needs a file: set data.estimation=<file>, and data.test=<file> to judge with"
            )
        if not self.outputs:
            raise UserError(
                "CsvFiles needs the names of its columns: set data.outputs=[y], and data.inputs=[u]"
            )
        if self.units is not None and not isinstance(self.units, Mapping):
            raise UserError(
                f"CsvFiles(units={self.units!r}) must be a mapping: write 'data.units={{u: V}}'"
            )
        if unknown := sorted(set(self.units or {}) - {*self.inputs, *self.outputs}):
            raise UserError(
                f"CsvFiles(units of {unknown}): expected units of {[*self.inputs, *self.outputs]} only"
            )

    def _records(self, path: Path) -> list[xr.Dataset]:
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
        )


def read_table(
    path: Path, *, delimiter: str | None = None, encoding: str = "utf-8"
) -> pd.DataFrame:
    """Cells of a CSV file as texts, missing ones as nan; its first line names its columns.

    A line ``sep=;`` before it says the delimiter; else the header shows it. UTF-8 may begin with a
    byte-order mark; cells may be quoted; empty lines at the end are left out.

    Raises
    ------
    sysid.DataError
        No such file, or one that cannot be read.
    ValueError
        Another encoding; no header; no row; a line with more cells than the header.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"cannot read {path}: it is no plain file; name a CSV file")
    if not isinstance(encoding, str):
        raise UserError(
            f"encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}"
        )
    try:
        text = path.read_bytes().decode("utf-8-sig" if encoding == "utf-8" else encoding)
        lines = text.splitlines()
        stated = re.fullmatch(r"sep=(.)", lines[0].strip()) if lines else None
        first = int(stated is not None)
        header = lines[first] if len(lines) > first else ""
        sign = delimiter or (
            stated[1] if stated else next((sign for sign in "\t;|" if sign in header), ",")
        )
        names = [
            name.strip() for name in next(csv.reader([header], delimiter=sign, strict=True), [])
        ]
        table = pd.read_csv(
            path,
            sep=sign,
            skiprows=first,
            dtype=str,
            skip_blank_lines=False,
            skipinitialspace=True,
            encoding="utf-8-sig" if encoding == "utf-8" else encoding,
        )
    except FileNotFoundError:
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check the path") from None
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}): name a CSV file that you may read"
        ) from error
    except UnicodeError as error:
        raise UserError(
            f"{path}: its text is not in {encoding.upper()} ({error}): export it as CSV in UTF-8, or set "
            "data.encoding=cp1252 (older Windows programs) or utf-16; an Excel workbook is not read"
        ) from None
    except LookupError:
        raise UserError(
            f"encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}"
        ) from None
    except (csv.Error, ValueError) as error:
        advice = "close its quotes, give every line as many cells as the header, or export it again"
        if sign == "," and "Expected" in str(error):
            advice = "where numbers are written with a decimal comma, separate cells by ';'"
        raise UserError(f"{path}: not a CSV file ({str(error).strip()}): {advice}") from None
    if not isinstance(table.index, pd.RangeIndex) or len(names) != table.shape[1]:
        raise UserError(
            f"{path}, line {first + 2}: more cells than the {len(names)} of the header; where numbers are written with "
            "a decimal comma, separate cells by ';', else complete the header"
        )
    table = table[: int(np.max(np.flatnonzero(table.notna().any(axis=1)), initial=-1)) + 1]
    if not len(table):
        raise UserError(
            f"{path}: expected rows of numbers after the header, the file ends there; export it again"
        )
    table.columns = pd.Index(names)
    table.attrs = {"file": str(path), "line": first + 2}
    return table


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
    shortest: int = SHORTEST,
    initialisation_window: int = 0,
) -> list[xr.Dataset]:
    """Split a table into records of the named columns; the parameters are those of `CsvFiles`.

    An index of time stamps is the time if no column is named. With ``on_missing="skip"`` the parts
    between two gaps are records of their own; what was left out stands in their attribute ``note``.

    Raises
    ------
    ValueError
        A column that is missing or there twice, a cell that is no number, a gap, times that do not
        increase in equal steps; each with its place.
    """
    if dt is not None and not 0 < dt < math.inf:
        raise UserError(f"dt={dt!r} must be a finite number of seconds > 0")
    found = _find_columns(table, signals)
    if len(set(found.values())) < len(found):
        raise UserError(f"{_place(table)}: {[*found]} name the same column twice")
    time = _find_time(table, signals) if time is None and dt is None else time
    shown = [
        *found.values(),
        *_find_columns(table, [] if time is None else [time], "time").values(),
    ]
    sign = decimal or ("," if any(_shows_comma(table.iloc[:, place]) for place in shown) else ".")
    values = {signal: _read_numbers(table, place, sign) for signal, place in found.items()}
    clock, start = _read_clock(table, dt, time, time_format, sign)
    is_there = np.isfinite(clock) & np.isfinite([*values.values()]).all(axis=0)
    if on_missing == "keep":
        is_there = np.isfinite(clock)
    if on_missing != "skip" and not is_there.all():
        row = int(np.argmin(is_there))
        missing = next(
            (s for s, column in values.items() if not np.isfinite(column[row])),
            time or "the time",
        )
        raise UserError(
            f"{_place(table, row)}, column {missing!r}: the value is missing, the first of {int((~is_there).sum())} "
            "such rows: fill the gap, or set on_missing=skip, which splits the record there"
        )
    rows = np.flatnonzero(is_there)
    if not len(rows):
        raise UserError(f"{_place(table)}: no row has all of {[*found]}")
    step, jumps, notes = _find_step(table, clock, rows, dt, on_missing)
    ends = np.flatnonzero((np.diff(rows) > 1) | jumps) + 1
    pieces = np.split(rows, ends)
    kept = [
        piece
        for piece in pieces
        if len(pieces) == 1 or len(piece) >= max(shortest, initialisation_window + 1)
    ]
    if not kept:
        raise UserError(
            f"{_place(table)}: gaps split it into {len(pieces)} parts of at most {max(map(len, pieces))} samples, "
            f"expected one of at least {max(shortest, initialisation_window + 1)}: fill gaps, or set a smaller shortest"
        )
    if len(pieces) > 1:
        short = [
            len(piece) for piece in pieces if len(piece) < max(shortest, initialisation_window + 1)
        ]
        left = (
            f"; {len(short)} shorter than {shortest} left out ({sum(short)} samples)"
            if short
            else ""
        )
        skipped = f"{len(table) - len(rows)} rows without a value and {int(jumps.sum())} gaps of time skipped"
        notes.append(f"{skipped}, segments: {len(kept)}{left}")
    own = {"note": f"{_place(table)}: {'; '.join(notes)}"} if notes else {}
    own |= {"file": table.attrs["file"]} if "file" in table.attrs else {}
    own |= {"start": start} if start else {}
    labels = {signal: _split_name(str(table.columns[place])) for signal, place in found.items()}
    stated = {signal: unit for signal, (_, unit) in labels.items() if unit} | dict(units or {})
    records = []
    for number, piece in enumerate(kept, start=1):
        record = make_record(
            {signal: column[piece] for signal, column in values.items()},
            name=name if len(kept) == 1 else f"{name}, segment {number}",
            sampling_time=step,
            initialisation_window=initialisation_window,
            units=stated,
            long_names={signal: label for signal, (label, _) in labels.items() if label != signal},
            attributes=own,
        )
        shifted = clock[piece[0]] + record["time"].values
        records.append(record.assign_coords(time=("time", shifted, record["time"].attrs)))
    return records


def _split_name(column: str) -> tuple[str, str]:
    """Name and unit of a column; a whole number in brackets is an index.

    >>> _split_name("T_out [degC]"), _split_name("u (%)"), _split_name("tank[2]")
    (('T_out', 'degC'), ('u', '%'), ('tank[2]', ''))
    """
    found = re.fullmatch(r"(.*\S)(?:\s*\[([^\[\]]+)\]|\s+\(([^()]+)\))", column.strip())
    unit = (found[2] or found[3]).strip() if found else ""
    return (found[1], unit) if found and unit and not unit.isdigit() else (column.strip(), "")


def _find_columns(
    table: pd.DataFrame, names: Sequence[str], option: str = "inputs"
) -> dict[str, int]:
    """Places of columns by their whole names, or by their names without the unit."""
    columns = [str(column).strip() for column in table.columns]
    found = {}
    bare = [_split_name(column)[0] for column in columns]
    for name in names:
        places = [i for i, column in enumerate(columns) if column == name]
        places = places or [i for i, column in enumerate(bare) if column == name]
        if len(places) > 1:
            raise UserError(
                f"{_place(table)}: columns {[columns[i] for i in places]} are there more than once as {name!r}: rename "
                f"them, or name one with its unit, {_type(table, option, [columns[places[0]]])}"
            )
        if places:
            found[name] = places[0]
    if absent := [name for name in names if name not in found]:
        advice = f"name columns of the file, as in {_type(table, option, [name for name in bare if name][-1:])}"
        if all(_to_number(column, ".") is not None for column in bare if column):
            advice = "it seems to have no header: write the names of the columns into a first line"
        raise UserError(
            f"{_place(table)}: no columns {absent}, its first line names {columns}; {advice}"
        )
    return found


def _type(table: pd.DataFrame, option: str, names: Sequence[str]) -> str:
    """Names as they are typed: on a shell and in the grammar of the commands for a file, else in
    Python.
    """
    if "file" not in table.attrs:
        return f"{option}={names[0]!r}" if option == "time" else f"{option}={[*names]!r}"
    return write_names(f"data.{option}", names, is_list=option != "time")


def write_names(key: str, names: Sequence[str], *, is_list: bool = True) -> str:
    """Write a setting of names as a shell and the commands take it.

    >>> print(write_names("data.inputs", ["u 1 [%]", "v"]))
    'data.inputs=["u 1 [%]",v]'
    """
    quoted = [
        name if re.fullmatch(r"[A-Za-z_][\w.-]*", name) else '"' + name.replace('"', r"\"") + '"'
        for name in names
    ]
    return shlex.quote(f"{key}=[{','.join(quoted)}]" if is_list else f"{key}={quoted[0]}")


def _place(table: pd.DataFrame, row: int | None = None) -> str:
    """Words for a row of a table, or for the table."""
    if "file" not in table.attrs:
        return "the table" if row is None else f"row {row} of the table"
    return str(table.attrs["file"]) + ("" if row is None else f", line {row + table.attrs['line']}")


def _to_number(text: str, decimal: str) -> float | None:
    """Value of a cell; None if it is no number. With a decimal comma a point can only separate
    thousands.
    """
    try:
        return (
            None
            if "_" in text
            else float(text if decimal == "." else text.replace(".", "?").replace(",", "."))
        )
    except ValueError:
        return None


def _read_numbers(table: pd.DataFrame, place: int, decimal: str) -> Array:
    """Numbers (n,) of a column, nan where a cell is empty."""
    cells = table.iloc[:, place]
    if pd.api.types.is_numeric_dtype(cells):
        return np.asarray(cells.to_numpy(dtype=np.float64, na_value=np.nan))
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and cell.strip():
            value = _to_number(cell.strip(), decimal)
            if value is None:
                other = "," if decimal == "." else "."
                advice = f"""if {other!r} is the decimal sign of this file, set 'data.decimal="{other}"'"""
                if _to_number(cell.strip(), other) is None:
                    advice = "correct the cell; leave it empty if the value is missing"
                where = f"{_place(table, row)}, column {str(table.columns[place])!r}"
                raise UserError(f"{where}: it holds {cell.strip()!r}, expected a number: {advice}")
            values[row] = value
        elif not pd.isna(cell):
            values[row] = float(cell)
    return values


def _shows_comma(cells: pd.Series) -> bool:
    """Whether a decimal comma stands in any cell."""
    texts = cells[[isinstance(cell, str) for cell in cells]].astype(str)
    return bool(texts.str.fullmatch(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*").any())


def _find_time(table: pd.DataFrame, signals: Sequence[str]) -> str | None:
    """Name of the column of times; None: the index has them."""
    if isinstance(table.index, pd.DatetimeIndex | pd.TimedeltaIndex):
        return None
    names = [_split_name(str(column))[0] for column in table.columns]
    for name in sorted({*names} - {*signals}):
        if name.lower() in TIME_NAMES:
            return name
    raise UserError(
        f"{_place(table)}: the sampling time is not known: set dt to seconds, or time to the column with the times, "
        f"there are {[str(column) for column in table.columns]}"
    )


def _read_clock(
    table: pd.DataFrame,
    dt: float | None,
    time: str | None,
    form: str | None,
    decimal: str,
) -> tuple[Any, str]:
    """Read times (n,) [s], nan where missing, and the time stamp that they start from, if any."""
    dated = isinstance(table.index, pd.DatetimeIndex | pd.TimedeltaIndex)
    if time is None and not dated:
        return float(dt or 1.0) * np.arange(len(table)), ""
    if time is None:
        stamps: Any = pd.Series(table.index)
    else:
        place = _find_columns(table, [time], "time")[time]
        stamps = table.iloc[:, place].reset_index(drop=True)
        unit = _split_name(str(table.columns[place]))[1]
        if unit and unit not in TIME_UNITS:
            raise UserError(
                f"{_place(table)}: times in {unit!r}, expected one of {', '.join(TIME_UNITS)}, or stamps"
            )
        texts = [cell.strip() for cell in stamps if isinstance(cell, str) and cell.strip()]
        if pd.api.types.is_numeric_dtype(stamps) or (
            texts and _to_number(texts[0], decimal) is not None
        ):
            scale = TIME_UNITS[unit or "s"]
            return np.multiply(_read_numbers(table, place, decimal), scale), ""
        if texts:
            stamps = _read_stamps(table, stamps, texts[0], form)
    passed = stamps - stamps.iloc[0]
    start = "" if pd.api.types.is_timedelta64_dtype(stamps) else str(stamps.iloc[0])
    return passed.dt.total_seconds().to_numpy(dtype=np.float64), start


def _read_stamps(table: pd.DataFrame, cells: pd.Series, first: str, form: str | None) -> pd.Series:
    """Time stamps of texts: ISO, or day first where points separate the date, or as pandas
    guesses.
    """
    options: dict[str, Any] = (
        {"format": form} if form else {"dayfirst": re.match(r"\d{1,2}\.\d", first) is not None}
    )
    if form is None and re.match(r"\d{4}-\d\d-\d\d", first):
        options = {"format": "ISO8601"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a form that it cannot guess is slower to read
        found = pd.to_datetime(cells.str.strip(), errors="coerce", utc=True, **options)
    if (wrong := found.isna() & cells.notna()).any():
        row = int(np.argmax(wrong))
        raise UserError(
            f"{_place(table, row)}: {cells.iloc[row]!r} is neither a number nor a time stamp like {first!r}: correct "
            "it, or set the form of the stamps, such as 'data.time_format=\"%d/%m/%Y %H:%M:%S\"'"
        )
    return found


def _find_step(
    table: pd.DataFrame,
    clock: Array,
    rows: np.ndarray,
    dt: float | None,
    on_missing: str,
) -> tuple[float, np.ndarray, list[str]]:
    """Find the sampling time [s], which steps (n - 1,) are gaps, and what to tell of the steps."""
    times = clock[rows]
    steps = np.diff(times)
    known = np.diff(rows) == 1
    resolution = 4 * float(np.spacing(np.abs(times).max()))
    if not len(steps[known]):
        if dt is None:
            raise UserError(
                f"{_place(table, 0)}: expected at least two times that follow each other; or set dt"
            )
        return dt, np.zeros(len(steps), dtype=bool), []
    if (steps <= 0).any():
        row = int(rows[np.argmax(steps <= 0) + 1])
        raise UserError(
            f"{_place(table, row)}: the time is not later than that of the row before: sort the rows, or, where stamps "
            "are too coarse to differ, set dt and leave the time out"
        )
    step = _shorten(float(np.median(steps[known])), resolution) if dt is None else dt
    jumps = known & (steps > GAP * step) & (on_missing == "skip")
    deviation = np.where(known & ~jumps, np.abs(steps - step), 0.0)
    worst = int(np.argmax(deviation))
    if deviation[worst] > LARGEST_JITTER * step + resolution:
        worst = int(np.argmax(deviation > LARGEST_JITTER * step + resolution))  # the first
        stated = "the median of all steps is" if dt is None else "dt is"
        raise UserError(
            f"{_place(table, int(rows[worst + 1]))}: the step of time is {steps[worst]:.9g} s where {stated} "
            f"{step:.9g} s; steps may differ by {LARGEST_JITTER:.0%}: resample the record, set on_missing=skip, which "
            "splits it at gaps, or set dt and leave the time out"
        )
    if deviation[worst] <= TIME_TOLERANCE * step + resolution:
        return step, jumps, []
    told = f"times jitter by up to {100 * deviation[worst] / step:.2g} % of {step:.9g} s and are taken as equal steps"
    return step, jumps, [told]


def _shorten(step: float, resolution: float) -> float:
    """Round a step [s] to the fewest digits that the resolution of the times allows.

    >>> _shorten(0.09999999999999432, 1e-13)
    0.1
    """
    tolerance = max(resolution, 1e-12 * step)
    return next(
        short
        for digits in range(1, 18)
        if abs((short := float(f"{step:.{digits}g}")) - step) <= tolerance
    )
