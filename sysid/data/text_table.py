"""Tables from text files: encoding, header, separators, rows of units."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sysid import store
from sysid.data.cell_numbers import to_grouped_number, to_number
from sysid.data.columns import is_unit, split_name
from sysid.data.source import DataError
from sysid.data.text_lines import exact_numbers
from sysid.errors import UserError

#: separators that are recognised, in this order
SEPARATORS = ("\t", ";", "|", ",")

#: separator of columns that blanks align
BLANKS = r"\s+"

#: number of rows below the header from which separator, units and decimal sign are recognised
N_SAMPLE_ROWS = 50

#: number of characters that these rows may have
MAX_SAMPLE_CHARACTERS = 200_000

#: most rows between the names of the columns and the numbers: units, and kinds of averages
MAX_UNIT_ROWS = 2

#: longest text in a row of units [characters]
MAX_UNIT_LENGTH = 20

#: first bytes of files that are no text, and what they are
CONTENT_OF_FIRST_BYTES = {
    b"\x1f\x8b": "a gzip archive: unpack it",
    b"\xfd7zXZ": "an xz archive: unpack it",
    b"7z\xbc\xaf": "a 7z archive: unpack it",
    b"PK\x03\x04": "a workbook or a zip archive: name it .xlsx, or unpack it",
    b"\xd0\xcf\x11\xe0": "a workbook of an old version: name it .xls",
    b"PAR1\x15": "a Parquet file: name it .parquet",
    b"\x89HDF": "an HDF5 file: name it .mat if MATLAB wrote it, else export a table as CSV",
    b"MATLAB 5.0 MAT-file": "a MATLAB file: name it .mat",
    b"%PDF": "a PDF file: export the table as CSV",
}

#: decimal sign with which numbers that have another one are read as texts
NO_DECIMAL_SIGN = "\x01"

#: pandas reads larger files by several threads, if it opens them itself [bytes]
MIN_BYTES_FOR_THREADS = 5 * 2**20


def check_size(path: Path, kind: str) -> None:
    """Raise DataError if a path is no plain file, or the file has more bytes than are allowed."""
    if path.exists() and not path.is_file():
        raise DataError(f"cannot read {path}: it is no plain file; name a {kind}")
    if path.exists() and path.stat().st_size > store.max_content_bytes():
        raise DataError(
            f"{path} has more than {store.max_content_bytes()} bytes: cut it, or set the "
            f"environment variable {store.MAX_CONTENT_VARIABLE} to a larger number"
        )


def read_text_table(
    path: Path,
    signals: Sequence[str] = (),
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    decimal: str | None = None,
) -> pd.DataFrame:
    """Read a text file with a header as a table of numbers and, where a cell is none, of texts.

    A line ``sep=;`` before the header may state the delimiter; otherwise it is the one by which the
    header and the rows below it have equally many cells. Columns may also be aligned by blanks.
    UTF-8 may begin with a byte-order mark. Cells may be quoted. Empty lines at the end are left
    out. Lines above the one that has the names of all `signals` are left out, too, and noted.

    Returns
    -------
    pandas.DataFrame
        Its attributes are ``file``, ``line`` (number of the line of its first row), ``delimiter``,
        ``decimal`` (sign of the numbers that were read), ``units`` (by number of the column, of the
        row below the header), ``notes`` and ``as_text``, which reads columns as they are written.

    Raises
    ------
    sysid.DataError
        The file does not exist or cannot be read.
    ValueError
        The file has another encoding, no header, no row, or a line with more cells than the header.
    """
    check_size(path, "CSV file")
    if not isinstance(encoding, str):
        raise UserError(
            f"encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}"
        )
    separator = delimiter or ","
    n_above = 0  # lines before the text that is parsed
    try:
        whole_text = _read_text(path, encoding)
        text, n_above, notes = _remove_preamble(whole_text, signals, delimiter)
        is_whole = text is whole_text and _find_codec(encoding) == "utf-8-sig"
        separator = delimiter or _find_separator(text)
        is_large = len(text) > MIN_BYTES_FOR_THREADS and separator.isascii()
        head = _read_head(text, separator)
        head.attributes["notes"] += notes
        attributes = head.attributes | {"delimiter": separator}
        if decimal:
            attributes["decimal"] = decimal
        names = head.names
        n_lines = n_above + head.n_lines
        parse = partial(
            _parse,
            text=text,
            separator=separator,
            n_skipped=head.n_rows,
            n_columns=len(names),
        )
        source = path if is_whole and is_large else None
        table = parse(decimal=attributes["decimal"], path=source) if names else pd.DataFrame()
    except FileNotFoundError:
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check the path") from None
    except UserError:
        raise
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}): name a CSV file that you may read"
        ) from error
    except UnicodeError as error:
        raise UserError(
            f"{path}: its text is not in {encoding.upper()} ({error}): export it as CSV in UTF-8, "
            "or set data.encoding=cp1252 (older Windows programs) or utf-16"
        ) from None
    except LookupError:
        raise UserError(
            f"encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}"
        ) from None
    except (csv.Error, ValueError) as error:
        ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if ragged is not None:
            n_expected, line, n_cells = map(int, ragged.groups())
            advice = "correct the line"
            if separator == ",":
                advice += "; where numbers are written with a decimal comma, separate cells by ';'"
            raise UserError(
                f"{path}, line {n_above + line}: {n_cells} cells, expected {n_expected} as in "
                f"the header: {advice}"
            ) from None
        advice = "close its quotes, or export it again"
        raise UserError(f"{path}: not a CSV file ({str(error).strip()}): {advice}") from None
    n_cells = _count_cells(table, text, separator, head.n_rows)
    if n_cells > len(names) or len(names) != table.shape[1]:
        raise UserError(
            f"{path}, line {n_lines + 1}: more cells than the {len(names)} of the header; "
            "where numbers are written with a decimal comma, separate cells by ';', "
            "otherwise complete the header"
        )
    is_filled = np.zeros(len(table), dtype=bool)
    for _, column in table.items():
        if not len(table) or is_filled[-1]:
            break
        is_filled |= column.notna().to_numpy()
    last_row = int(np.max(np.flatnonzero(is_filled), initial=-1))
    table = table[: last_row + 1]
    if not len(table):
        raise UserError(
            f"{path}: expected rows of numbers after the header, the file ends there; "
            "export it again"
        )
    table.columns = pd.Index(names)
    attributes |= {"file": str(path), "line": n_lines + 1}
    attributes["as_text"] = _AsText(text, parse, len(table))
    table.attrs = attributes
    return table


class _AsText:
    """Reads columns of a file as they are written."""

    def __init__(self, text: str, parse: Any, n_rows: int) -> None:
        self.text = text
        self.parse = parse
        self.n_rows = n_rows

    def __call__(self, columns: list[int], n_first: int | None = None) -> pd.DataFrame:
        """Return the cells of these columns, by number, as texts, missing ones as nan.

        `n_first` is the number of rows that are read; None: all.
        """
        table = self.parse(text_columns=columns, nrows=n_first)
        return table.iloc[: self.n_rows, columns]

    def find_sign(self, columns: list[int], sign: str) -> dict[int, pd.Series]:
        """Return the cells of the columns of numbers that are written with a sign, by number.

        A column of numbers without it stays one where the sign has no meaning, and is left out.
        """
        if sign not in self.text:
            return {}
        table = self.parse(decimal=NO_DECIMAL_SIGN).iloc[: self.n_rows]
        read = {column: table[column] for column in columns}
        return {
            column: cells
            for column, cells in read.items()
            if not pd.api.types.is_numeric_dtype(cells)
        }

    def __deepcopy__(self, memo: Any) -> _AsText:
        """Return this object: the text of a file need not be copied with every table."""
        return self


def _read_text(path: Path, encoding: str) -> str:
    """Return the text of a file, without a byte-order mark.

    Raises
    ------
    ValueError
        The file has another encoding, or begins with the mark of another.
    """
    codec = _find_codec(encoding)
    content = path.read_bytes()
    for first_bytes, description in CONTENT_OF_FIRST_BYTES.items():
        if content.startswith(first_bytes):
            raise UserError(f"{path}: expected text, it is {description}")
    if content.startswith(codecs.BOM_UTF8) and codec != "utf-8-sig":
        raise UserError(
            f"{path}: it begins with the mark of UTF-8, got encoding {encoding!r}: "
            "leave data.encoding out"
        )
    return content.decode(codec).removeprefix("\ufeff")


def _match_preamble(text: str) -> re.Match[str] | None:
    """Return the match of a line above the header: ``sep=;``, or that of Campbell's loggers.

    Its first group is the separator that it states, if any.
    """
    ending = r"[ \t]*(?:\r\n|\n|\r)"
    return re.match(rf"[ \t]*sep=(.){ending}", text) or re.match(rf'"?TOA5"?,.*?(){ending}', text)


def _remove_preamble(
    text: str, signals: Sequence[str], delimiter: str | None
) -> tuple[str, int, list[str]]:
    """Return a text without the lines above its names, their number, and notes about them."""
    text, n_lines = _strip_comments(text)
    n_above = _count_lines_above_names(text, signals, delimiter)
    if not n_above:
        return text, n_lines, []
    n_lines += n_above
    note = f"the names of the columns stand in line {n_lines + 1}; the lines above it are left out"
    return _without_first_lines(text, n_above), n_lines, [note]


def _strip_comments(text: str) -> tuple[str, int]:
    """Return a text without the comments before its names, and the number of lines that it lost.

    NumPy writes the names of columns as a comment, ``# t u y``. They stand in the last line of
    several that begin so, unless the line below it has names, and another number of cells.
    """
    n_lines = 0
    while re.match(r"[ \t]*[#%][^\n]*\n[ \t]*[#%][ \t]", text):
        text = _without_first_lines(text, 1)
        n_lines += 1
    if re.match(r"[ \t]*[#%]", text):
        below = _without_first_lines(text, 1)
        separator = _recognise_delimiter(_sample(below, 0))
        names = next(_split(_sample(below, 0), separator), (0, [""]))[1]
        comment = re.sub(r"\A[ \t]*[#%]+[ \t]*", "", text)
        n_cells = len(next(_split(_sample(comment, 0), separator))[1])
        if len(names) not in (1, n_cells) and not any(_is_value(cell) for cell in names):
            return below, n_lines + 1
    sign = re.match(r"[ \t]*[#%][ \t]+", text)
    return (text if sign is None else text[sign.end() :]), n_lines


def _without_first_lines(text: str, n_lines: int) -> str:
    """Return a text without its first lines."""
    for _ in range(n_lines):
        text = text.partition("\n")[2]
    return text


def _count_lines_above_names(text: str, signals: Sequence[str], delimiter: str | None) -> int:
    """Return how many lines stand above the first one that has the names of all signals.

    The line below it must have as many cells: words of a sentence are no names. 0: the first line
    may be the header, or no line has all names.
    """
    if not signals or _match_preamble(text) is not None:
        return 0
    separators = (delimiter,) if delimiter else (*SEPARATORS, BLANKS)
    n_quotes = 0
    lines = _sample(text, 0).split("\n")[:N_SAMPLE_ROWS]
    for number, (line, next_line) in enumerate(pairwise(lines)):
        is_inside_a_cell = n_quotes % 2 == 1
        n_quotes += line.count('"')
        for separator in () if is_inside_a_cell else separators:
            try:
                _, cells = next(_split(line, separator), (0, []))
                _, cells_below = next(_split(next_line, separator), (0, []))
            except csv.Error:
                continue
            if len(cells) != len(cells_below):
                continue
            names = {" ".join(cell.split()) for cell in cells}
            names |= {split_name(name)[0] for name in names}
            if names.issuperset(signals):
                return number
    return 0


def _find_separator(text: str) -> str:
    """Return the separator that the first line states, or that the lines below it show."""
    stated = _match_preamble(text)
    if stated is not None and stated[1]:
        return stated[1]
    return _recognise_delimiter(_sample(text, 0 if stated is None else stated.end()))


@dataclass
class _Head:
    """What stands above the numbers of a file."""

    names: list[str]  # of the columns
    n_rows: int  # rows above the numbers
    n_lines: int  # their lines, which are more if a cell has a line break
    attributes: dict[str, Any]  # of the table


def _read_head(text: str, separator: str) -> _Head:
    """Read the header and the rows of units below it; guess the decimal sign below these."""
    stated = _match_preamble(text)
    n_stated = 0 if stated is None else 1
    sample = _sample(text, 0 if stated is None else stated.end())
    split = list(_split(sample, separator))
    rows = [row for _, row in split]
    names = [" ".join(cell.split()) for cell in rows[0]] if rows else []
    attributes: dict[str, Any] = {"notes": []}
    n_above = 0
    if names and _is_headless(rows, separator):
        names = [str(number + 1) for number in range(len(names))]
        attributes["header"] = "none"
        attributes["notes"].append(
            f"the file has no header: its columns are numbered from 1 to {len(names)}"
        )
    elif names:
        n_units = count_unit_rows(rows[1:])
        n_above = 1 + n_units
        if n_units:
            attributes["units"] = read_units(rows[1], names, attributes["notes"])
    attributes["decimal"] = _guess_decimal(rows[n_above:])
    n_lines = split[n_above - 1][0] if n_above else 0
    return _Head(names, n_stated + n_above, n_stated + n_lines, attributes)


def _find_codec(encoding: str) -> str:
    """Return the codec of an encoding, however it is spelt; that of UTF-8 takes a mark."""
    name = codecs.lookup(encoding).name
    return "utf-8-sig" if name == "utf-8" else name


def _sample(text: str, start: int) -> str:
    """Return the first lines of a text, whole ones."""
    sample = text[start : start + MAX_SAMPLE_CHARACTERS]
    if len(text) > start + len(sample):
        sample = sample[: sample.rfind("\n") + 1] or sample
    return sample


def _split(sample: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Return the first rows of a text, each with the number of its last line."""
    lines = io.StringIO(sample, newline=None)
    if separator == BLANKS:
        for number, line in enumerate(lines, start=1):
            if number > N_SAMPLE_ROWS:
                return
            yield number, line.split()
        return
    reader = csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=True)
    for row in reader:
        yield reader.line_num, [cell.strip() for cell in row]
        if reader.line_num > N_SAMPLE_ROWS:
            return


def _recognise_delimiter(sample: str) -> str:
    """Return the separator by which the first rows have equally many cells, at least two.

    If there is none, it is the first one that stands in the header.
    """
    header = sample.partition("\n")[0]
    for separator in (*SEPARATORS, BLANKS):
        try:
            rows = [row for _, row in _split(sample, separator) if any(row)]
        except csv.Error:
            continue
        n_cells = {len(row) for row in rows}
        if len(rows) > 1 and len(n_cells) == 1 and n_cells != {1} and _has_values(rows[1:]):
            return separator
    return next((separator for separator in SEPARATORS if separator in header), ",")


def _has_values(rows: list[list[str]]) -> bool:
    """Return whether a cell of these rows is a number, a stamp or empty, and no two numbers."""
    cells = [cell for row in rows for cell in row]
    return all(not re.fullmatch(r"[-+.,\d]+\s+[-+.,\d]+", cell) for cell in cells)


def _is_value(cell: str) -> bool:
    """Return whether a cell is a number with either decimal sign, or looks like a time stamp."""
    if to_number(cell, ".") is not None or to_number(cell, ",") is not None:
        return True
    if to_grouped_number(cell, ".") is not None or to_grouped_number(cell, ",") is not None:
        return True
    return re.search(r"\d[-/.:]\d", cell) is not None


def _is_headless(rows: list[list[str]], separator: str) -> bool:
    """Return whether columns aligned by blanks begin with numbers instead of names.

    Numbers that count the columns, from 0 or from 1, are names.
    """
    first = rows[0]
    counts = [[str(number + start) for number in range(len(first))] for start in (0, 1)]
    return separator == BLANKS and all(_is_value(cell) for cell in first) and first not in counts


def count_unit_rows(rows: list[list[str]]) -> int:
    """Return how many rows of units, or of other texts, stand between header and numbers."""
    for number, row in enumerate(rows[: MAX_UNIT_ROWS + 1]):
        if any(_is_value(cell) for cell in row):
            return number
        if any(len(cell) > MAX_UNIT_LENGTH for cell in row) or not any(row):
            return 0
        if number == 0 and not any(is_unit(cell) for cell in row):
            return 0
    return 0


def read_units(row: list[str], names: list[str], notes: list[str]) -> dict[int, str]:
    """Return the units of a row by the number of their column, and note them."""
    units = {}
    for number, cell in enumerate(row):
        unit = cell.strip("[]() ")
        if unit and unit != "-":
            units[number] = unit
    shown = ", ".join(f"{names[number]} [{unit}]" for number, unit in units.items())
    notes.append(f"the row below the header has units: {shown}")
    return units


def _guess_decimal(rows: list[list[str]]) -> str:
    """Return the decimal sign by which more cells of the first rows are numbers."""
    cells = [cell for row in rows for cell in row]
    with_comma = sum(1 for cell in cells if re.fullmatch(r"[-+]?\d*,\d+([eE][-+]?\d+)?", cell))
    with_point = sum(1 for cell in cells if re.fullmatch(r"[-+]?\d*\.\d+([eE][-+]?\d+)?", cell))
    return "," if with_comma > with_point else "."


class _TextStream(io.TextIOBase):
    """A text as a stream. `io.StringIO` would copy it, with four bytes for each character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def read(self, size: int | None = -1) -> str:
        """Return the next `size` characters; all that are left if it is negative or None."""
        start = self.position
        end = len(self.text) if size is None or size < 0 else start + size
        part = self.text[start:end]
        self.position += len(part)
        return part


def _parse(
    *,
    text: str,
    separator: str,
    n_skipped: int,
    n_columns: int,
    decimal: str = ".",
    path: Path | None = None,
    text_columns: Sequence[int] = (),
    nrows: int | None = None,
) -> pd.DataFrame:
    """Return the cells below the header: columns of numbers where all cells are numbers.

    Parameters
    ----------
    text, separator, n_skipped, n_columns, decimal
        Text of a file, its separator, number of rows above the numbers, columns and decimal sign.
    path
        File that has this text, if pandas may read it by several threads.
    text_columns
        Columns whose cells are texts, as they are written. If there are any, columns with flags or
        with texts and numbers stay as pandas reads them.
    nrows
        Rows that are read; None: all.
    """
    options: dict[str, Any] = {
        "sep": separator,
        "header": None,
        "names": range(n_columns),
        "skiprows": n_skipped,
        "dtype": dict.fromkeys(text_columns, str) or None,
        "decimal": decimal,
        "skip_blank_lines": False,
        "skipinitialspace": separator == BLANKS or _has_blanks_below(text, n_skipped),
        "nrows": nrows,
    } | exact_numbers()
    try:
        table = None if path is None else _read_by_threads(path, options)
        if table is None:
            table = pd.read_csv(_TextStream(text), low_memory=False, **options)
    except pd.errors.EmptyDataError:
        return pd.DataFrame(columns=range(n_columns), index=pd.RangeIndex(0))
    if not text_columns and isinstance(table.index, pd.RangeIndex):  # a flag is no number
        for number, column in enumerate(table.columns):
            kind: Any = table.dtypes.iloc[number]
            has_objects = isinstance(kind, np.dtype) and kind.kind == "O"
            has_flags = pd.api.types.is_bool_dtype(kind)
            if has_flags or (has_objects and pd.api.types.infer_dtype(table[column]) != "string"):
                texts = _parse(
                    text=text,
                    separator=separator,
                    n_skipped=n_skipped,
                    n_columns=n_columns,
                    text_columns=[column],
                )
                table[column] = texts[column]
    return table


def _has_blanks_below(text: str, n_lines: int) -> bool:
    """Return whether a blank stands below the first lines of a text.

    Pandas takes a fifth more time if it must skip blanks at the start of cells.
    """
    start = 0
    for _ in range(n_lines):
        start = text.find("\n", start) + 1
    return text.find(" ", start) >= 0


def _count_cells(table: pd.DataFrame, text: str, separator: str, n_skipped: int) -> int:
    """Return the number of cells of the first row of a text, whose table pandas has read.

    Where they are more than the names, pandas has taken the first ones as the index. It becomes a
    range, as a table without an index has it, if its numbers are equally spaced.
    """
    if not isinstance(table.index, pd.RangeIndex):
        return table.shape[1] + table.index.nlevels
    if not len(table):
        return table.shape[1]
    try:
        first_row = pd.read_csv(
            _TextStream(text),
            sep=separator,
            header=None,
            skiprows=n_skipped,
            nrows=1,
            skip_blank_lines=False,
            skipinitialspace=True,
            on_bad_lines="skip",  # rows below the first one, which the tokenizer sees, too
        )
    except pd.errors.EmptyDataError:  # the first row is an empty line
        return table.shape[1]
    return first_row.shape[1]


def _read_by_threads(path: Path, options: dict[str, Any]) -> pd.DataFrame | None:
    """Return the cells of a file in UTF-8, which pandas reads in parts.

    None: the parts of a column are of different kinds, so that the text must be read as one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.DtypeWarning)
        try:
            return pd.read_csv(path.absolute(), compression=None, low_memory=True, **options)
        except pd.errors.DtypeWarning:
            return None
