"""Tables of numbers in a user's CSV file, with errors that name the line and the column."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sysid.data.source import DataError
from sysid.record import Array

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
GAP = "fill the gap, or split the record there into two files (on_missing=skip does not apply to files)"


@dataclass(frozen=True)
class CsvFormat:
    """How cells and numbers are written."""

    delimiter: str = ","  # one character between two cells; a tab may be written as a backslash and a t
    decimal: str = "."  # "." or ","

    def __post_init__(self) -> None:
        if self.delimiter == r"\t":  # as it comes from a command line
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) != 1 or self.decimal not in (".", ",") or self.delimiter == self.decimal:
            raise ValueError(
                f"expected a delimiter of one character and a decimal '.' or ',' other than it, got delimiter "
                f"{self.delimiter!r} and decimal {self.decimal!r}: change one of them"
            )

    def number(self, cell: str) -> float:
        """Value of a cell; raise ValueError, with what is wrong, unless it is one finite number."""
        text = cell.strip()
        if not text:
            raise ValueError(f"is empty: {GAP}")
        try:
            value = float(
                text.replace(self.decimal, ".") if self.decimal in text else _without_point(text, self.decimal)
            )
        except ValueError:
            raise ValueError(f"holds {text!r}, expected a number{self._hint(text)}") from None
        if "_" in text:
            raise ValueError(f"holds {text!r}, expected a number: remove the underscores")
        if not math.isfinite(value):
            raise ValueError(f"holds {text!r}, not a finite number: {GAP}")
        return value

    def _hint(self, text: str) -> str:
        other = "," if self.decimal == "." else "."
        try:
            float(text.replace(other, "."))
        except ValueError:
            return ": correct the cell, or split the record there into two files"
        return f": if {other!r} is the decimal sign of this file, set {_option('decimal', other)}"


def read_table(path: Path, columns: Sequence[str], form: CsvFormat) -> dict[str, Array]:
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
    rows = _rows(path, form)
    header = [name.strip() for name in rows[0]] if rows else []
    places = _places(path, header, columns, form)
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if len(rows) < 2:
        raise ValueError(f"{path}: expected rows of numbers after the header, the file ends there; export it again")
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}, line {line}: {_uneven(row, header, form)}")
    return {
        name: _column(path, name, [row[place] for row in rows[1:]], form)
        for name, place in zip(columns, places, strict=True)
    }


def _without_point(text: str, decimal: str) -> str:
    """Text as it is; with a decimal comma a point can only separate thousands, which is no number here."""
    return text if decimal == "." else text.replace(".", "?")


def _option(name: str, sign: str) -> str:
    """Setting as a shell takes it: in quotes of both kinds, a tab in two characters."""
    written = sign.replace("\t", r"\t")
    return f"""'data.{name}="{written}"'"""


def _rows(path: Path, form: CsvFormat) -> list[list[str]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check the path") from None
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): name a CSV file that you may read") from error
    try:
        text = content.decode("utf-8-sig")
        return list(csv.reader(text.splitlines(), delimiter=form.delimiter, strict=True))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected text in UTF-8, got byte {content[error.start]:#04x} at {error.start}: export it as CSV "
            "in UTF-8 (an Excel workbook or UTF-16 is not read)"
        ) from None
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV file ({error}): close its quotes, or export it again") from None


def _places(path: Path, header: list[str], columns: Sequence[str], form: CsvFormat) -> list[int]:
    """Where the columns stand in the header."""
    if repeated := sorted({name for name in columns if header.count(name) > 1}):
        raise ValueError(f"{path}: columns {repeated} are there more than once: rename them")
    if absent := [name for name in columns if name not in header]:
        raise ValueError(
            f"{path}: no columns {absent}, its first line names {[name for name in header if name]}"
            f"{_header_hint(header, form)}"
        )
    return [header.index(name) for name in columns]


def _header_hint(header: list[str], form: CsvFormat) -> str:
    for sign, word in DELIMITERS.items():
        if sign != form.delimiter and any(sign in name for name in header):
            return f"; its cells seem to be separated by {word}: set {_option('delimiter', sign)}"
    try:
        [form.number(name) for name in header if name]
    except ValueError:
        return "; name columns of the file"
    return "; it seems to have no header: write the names of the columns into a first line"


def _uneven(row: list[str], header: list[str], form: CsvFormat) -> str:
    if not any(cell.strip() for cell in row):
        return f"the line is empty in the middle of the record: {GAP}"
    advice = "complete the line"
    if form.delimiter == "," and len(row) > len(header):
        options = f"{_option('delimiter', ';')} {_option('decimal', ',')}"
        advice = f"where numbers are written with a decimal comma, separate cells by ';' and set {options}"
    return f"expected {len(header)} cells as in the header, got {len(row)}; {advice}"


def _column(path: Path, name: str, cells: list[str], form: CsvFormat) -> Array:
    if form.decimal == "." and (fast := _plain_numbers(cells)) is not None:
        return fast
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            values[i] = form.number(cell)
        except ValueError as error:
            raise ValueError(f"{path}, line {i + 2} (row {i + 1} of the data), column {name!r}: it {error}") from None
    return values


def _plain_numbers(cells: list[str]) -> Array | None:
    """All cells at once; None if one of them needs a closer look."""
    try:
        values = np.array([float(cell) for cell in cells])
    except ValueError:
        return None
    return values if np.isfinite(values).all() and not any("_" in cell for cell in cells) else None
