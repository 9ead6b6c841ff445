"""Records from CSV files."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from sysid.data.source import ROLES, DataError, DataSource, Recordings, list_paths, make_record
from sysid.narx.record import Array, find_jump

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
GAP = "fill the gap, or split the record there into two files (on_missing=skip does not apply to files)"


@dataclass(frozen=True)
class CsvFiles(DataSource):
    """One CSV file per record, with a first line that names the columns.

    Every role takes one path or a list of paths; several files stay several records. Times come from `dt`, row
    k standing for k dt, or from a column of uniform times in seconds, named by `time`. Every cell of the columns
    must hold a number: ``on_missing=skip`` does not apply to files, a record with a gap is to be split there.

    Raises
    ------
    ValueError
        An impossible delimiter, decimal sign or initialisation window; on `load` also: no file or no outputs
        named, both or neither of `dt` and `time`, units of an unknown signal, and what is wrong in a file.
    """

    estimation: str | Sequence[str] = ()  # path or paths
    validation: str | Sequence[str] = ()  # path or paths
    test: str | Sequence[str] = ()  # path or paths
    inputs: Sequence[str] = ()  # columns
    outputs: Sequence[str] = ()  # columns
    dt: float | None = None  # sampling time, s
    time: str | None = None  # column with the time, s; instead of dt
    units: Mapping[str, str] | None = None  # unit of a signal, say {u: V}
    delimiter: str = ","  # between two cells; a tab may be written as a backslash and a t
    decimal: str = "."  # sign in a number, "." or ","
    initialisation_window: int = 0  # samples at the start of every record that are not judged

    def __post_init__(self) -> None:
        if self.delimiter == r"\t":  # as it comes from a command line
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) != 1 or self.decimal not in (".", ",") or self.delimiter == self.decimal:
            raise ValueError(
                f"expected a delimiter of one character and a decimal '.' or ',' other than it, got delimiter "
                f"{self.delimiter!r} and decimal {self.decimal!r}: change one of them"
            )
        for name in ("inputs", "outputs"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"CsvFiles({name}={getattr(self, name)!r}) must be a list: write data.{name}=[...]")

    def load(self) -> Recordings:
        """Read all files; see `DataSource.load`."""
        self._check()
        roles = {role: tuple(self._record(path) for path in list_paths(getattr(self, role))) for role in ROLES}
        return Recordings("csv", tuple(self.inputs), tuple(self.outputs), **roles)

    def _check(self) -> None:
        if not any(list_paths(getattr(self, role)) for role in ROLES):
            raise ValueError("CsvFiles needs a file: set data.estimation=<file>, and data.test=<file> to judge with")
        if not self.outputs:
            raise ValueError("CsvFiles needs the names of its columns: set data.outputs=[y], and data.inputs=[u]")
        if (self.dt is None) == (self.time is None):
            raise ValueError(
                f"CsvFiles(dt={self.dt!r}, time={self.time!r}) needs one of both: set data.dt to the sampling time "
                "[s], or data.time to the column with the times [s]"
            )
        if self.dt is not None and not 0 < self.dt < np.inf:
            raise ValueError(f"CsvFiles(dt={self.dt!r}) must be a finite number of seconds > 0")
        if self.units is not None and not isinstance(self.units, Mapping):
            raise ValueError(f"CsvFiles(units={self.units!r}) must be a mapping: write 'data.units={{u: V}}'")
        if unknown := sorted(set(self.units or {}) - {*self.inputs, *self.outputs}):
            raise ValueError(f"CsvFiles(units of {unknown}): expected units of {[*self.inputs, *self.outputs]} only")

    def _record(self, path: str) -> xr.Dataset:
        signals = [*self.inputs, *self.outputs]
        wanted = list(dict.fromkeys([*signals, *([] if self.time is None else [self.time])]))
        columns = _read_table(Path(path), wanted, self)
        record = make_record(
            {name: columns[name] for name in signals},
            name=Path(path).stem,
            sampling_time=self.dt or 1.0,
            initialisation_window=self.initialisation_window,
            units=self.units,
            long_names={name: f"column {name} of {Path(path).name}" for name in signals},
            attributes={"file": str(path)},
        )
        return record if self.time is None else _set_time(record, columns[self.time], f"{path}, column {self.time!r}")


def _read_table(path: Path, columns: Sequence[str], form: CsvFiles) -> dict[str, Array]:
    """Columns of these names, each (n,), from a CSV file whose first line names its columns.

    UTF-8 with or without byte-order mark; cells may be quoted; empty lines may stand at the end only.

    Raises
    ------
    DataError
        No such file, or one that cannot be read.
    ValueError
        Another encoding; no header; a column that is missing (those present are listed) or there twice; no
        row; a line with another number of cells; a cell that is empty, text or not finite, with line and column.
    """
    header, *rows = _read_rows(path, form) or [[]]
    header = [name.strip() for name in header]
    _check_header(path, header, columns, form)
    while rows and not "".join(rows[-1]).strip():
        rows.pop()
    if not rows:
        raise ValueError(f"{path}: expected rows of numbers after the header, the file ends there; export it again")
    for line, row in enumerate(rows, start=2):
        if not "".join(row).strip():
            raise ValueError(f"{path}, line {line}: the line is empty in the middle of the record: {GAP}")
        if len(row) != len(header):
            raise ValueError(_describe_uneven(path, line, len(row), len(header), form))
    places = {name: header.index(name) for name in columns}
    return {name: _read_numbers(path, name, [row[i] for row in rows], form.decimal) for name, i in places.items()}


def _read_rows(path: Path, form: CsvFiles) -> list[list[str]]:
    if path.exists() and not path.is_file():
        raise DataError(f"cannot read {path}: it is no plain file; name a CSV file")
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
        return list(csv.reader(lines, delimiter=form.delimiter, strict=True))
    except FileNotFoundError:
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check the path") from None
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): name a CSV file that you may read") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected text in UTF-8, got byte {error.object[error.start]:#04x} at {error.start}: export it as "
            "CSV in UTF-8 (an Excel workbook or UTF-16 is not read)"
        ) from None
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV file ({error}): close its quotes, or export it again") from None


def _check_header(path: Path, header: list[str], columns: Sequence[str], form: CsvFiles) -> None:
    if repeated := sorted({name for name in columns if header.count(name) > 1}):
        raise ValueError(f"{path}: columns {repeated} are there more than once: rename them")
    if absent := [name for name in columns if name not in header]:
        raise ValueError(
            f"{path}: no columns {absent}, its first line names {[name for name in header if name]}"
            f"{_find_hint(header, form)}"
        )


def _find_hint(header: list[str], form: CsvFiles) -> str:
    for sign, word in DELIMITERS.items():
        if sign != form.delimiter and any(sign in name for name in header):
            return f"; its cells seem to be separated by {word}: set {_write_option('delimiter', sign)}"
    try:
        [_read_number(name, form.decimal) for name in header if name]
    except ValueError:
        return "; name columns of the file"
    return "; it seems to have no header: write the names of the columns into a first line"


def _describe_uneven(path: Path, line: int, n_found: int, n_expected: int, form: CsvFiles) -> str:
    advice = "complete the line"
    if form.delimiter == "," and n_found > n_expected:
        options = f"{_write_option('delimiter', ';')} {_write_option('decimal', ',')}"
        advice = f"where numbers are written with a decimal comma, separate cells by ';' and set {options}"
    return f"{path}, line {line}: expected {n_expected} cells as in the header, got {n_found}; {advice}"


def _write_option(name: str, sign: str) -> str:
    """Setting as a shell takes it: in quotes of both kinds, a tab in two characters."""
    written = sign.replace("\t", r"\t")
    return f"""'data.{name}="{written}"'"""


def _read_numbers(path: Path, name: str, cells: Iterable[str], decimal: str) -> Array:
    values = []
    for i, cell in enumerate(cells):
        try:
            values.append(_read_number(cell, decimal))
        except ValueError as error:
            raise ValueError(f"{path}, line {i + 2} (row {i + 1} of the data), column {name!r}: it {error}") from None
    return np.array(values)


def _read_number(cell: str, decimal: str) -> float:
    """Value of a cell; raise ValueError, with what is wrong, unless it is one finite number."""
    text = cell.strip()
    if not text:
        raise ValueError(f"is empty: {GAP}")
    try:  # with a decimal comma a point can only separate thousands, which is no number here
        value = float(text if decimal == "." else text.replace(".", "?").replace(",", "."))
    except ValueError:
        raise ValueError(f"holds {text!r}, expected a number{_find_cell_hint(text, decimal)}") from None
    if "_" in text:
        raise ValueError(f"holds {text!r}, expected a number: remove the underscores")
    if not math.isfinite(value):
        raise ValueError(f"holds {text!r}, not a finite number: {GAP}")
    return value


def _find_cell_hint(text: str, decimal: str) -> str:
    other = "," if decimal == "." else "."
    try:
        float(text.replace(other, "."))
    except ValueError:
        return ": correct the cell, or split the record there into two files"
    return f": if {other!r} is the decimal sign of this file, set {_write_option('decimal', other)}"


def _set_time(record: xr.Dataset, time: Array, place: str) -> xr.Dataset:
    """Record at these times; whether they are uniform is checked with all other records."""
    steps = np.diff(time)
    if not len(steps) or (steps <= 0).any():
        line = int(np.argmax(steps <= 0)) + 3 if len(steps) else 2
        raise ValueError(
            f"{place}, line {line}: expected at least two times [s] that increase; sort the rows, or use dt"
        )
    if (worst := find_jump(time)) is not None:
        raise ValueError(
            f"{place}, line {worst + 3}: the step of time is {steps[worst]:.9g} s where the mean is "
            f"{steps.mean():.9g} s; resample the record, split it at the jump, or, where times are merely rounded, "
            "give dt instead of time"
        )
    own = {"sampling_time": float(time[-1] - time[0]) / len(steps)}
    return record.assign_coords(time=("time", time, record["time"].attrs)).assign_attrs(own)
