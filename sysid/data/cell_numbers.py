"""Numbers in the cells of tables: the decimal sign, and separated thousands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from sysid.data.columns import location
from sysid.data.text_lines import are_all, join_lines, read_lines
from sysid.errors import UserError
from sysid.narx.record import Array

#: signs that separate thousands and are no decimal sign: blank, apostrophe, two narrow blanks
GROUP_SIGNS = " '\u2019\u00a0\u202f"

#: signs of ASCII that take the place of the others where a column is read at once
STAND_INS = {"\u2019": "\x02", "\u00a0": "\x03", "\u202f": "\x04"}

#: what to do about signs with two meanings
HOW_TO_STATE = (
    "state the decimal sign of the file, 'data.decimal=\".\"' or 'data.decimal=\",\"'; in Python, "
    "pass the table that pandas.read_csv(..., decimal=..., thousands=...) returns"
)

#: Rows at the start of a column whose texts are looked at before those of all rows.
N_FIRST_ROWS = 1000


@dataclass(frozen=True)
class _Shapes:
    """Forms of numbers with one sign that may be the decimal sign."""

    decimal: re.Pattern[str]  # the sign separates decimals, or perhaps thousands
    ambiguous: re.Pattern[str]  # the sign may separate decimals or thousands: 1,234
    grouped: re.Pattern[str]  # the sign separates thousands: 1,234,567 or 1,234.5


@cache
def _shapes(sign: str) -> _Shapes:
    """Return the forms of numbers with this sign."""
    own = re.escape(sign)
    other = re.escape("," if sign == "." else ".")
    start = r"[-+]?[1-9]\d{0,2}"
    return _Shapes(
        decimal=re.compile(rf"[-+]?(?:\d+{own}\d*|{own}\d+)(?:[eE][-+]?\d+)?"),
        ambiguous=re.compile(rf"{start}{own}\d{{3}}"),
        grouped=re.compile(rf"{start}(?:{own}\d{{3}}){{2,}}|{start}(?:{own}\d{{3}})+{other}\d*"),
    )


@dataclass
class _Evidence:
    """What the cells of the columns show about the meaning of a sign."""

    shows_decimals: bool = False  # a cell as 0,5
    shows_thousands: bool = False  # a cell as 1,234.5
    ambiguous: str = ""  # a cell as 1,234
    where: str = ""  # where the ambiguous cell stands
    beside_whole: bool = False  # whole numbers below 1000 stand in the column of such a cell


@dataclass
class _Found:
    """The numbers in texts."""

    values: Array  # (n,), nan where a cell is empty
    n_texts: int  # cells that are texts and not empty
    n_grouped: int  # texts with separated thousands
    first_grouped: str


#: numbers in the texts of columns, by number of the column and decimal sign
FoundNumbers = dict[tuple[int, str], _Found]


def find_decimal(
    table: pd.DataFrame, columns: list[int], found: FoundNumbers | None = None
) -> tuple[str, str]:
    """Return the decimal sign that the cells of these columns show, and a note on a choice.

    Cells as ``0,5`` show a decimal sign, and so does ``1.234,5``. Cells as ``1,234`` do not: they
    may be 1.234 or 1234. Numbers that are read on the way are added to `found`, for `read_numbers`.

    Raises
    ------
    ValueError
        Only such cells are there.
    """
    evidence = _find_evidence(table, columns, {} if found is None else found)
    comma = evidence[","]
    point = evidence["."]
    if comma.shows_decimals and not (comma.shows_thousands or point.shows_decimals):
        return ",", ""
    if point.shows_decimals or comma.shows_thousands:
        is_mixed = comma.shows_decimals and not comma.shows_thousands
        return ("," if is_mixed else "."), ""
    if comma.shows_decimals or point.shows_thousands:
        return ",", ""
    if comma.ambiguous:
        if table.attrs.get("delimiter") == ";" and not comma.beside_whole:
            return ",", (
                f"numbers such as {comma.ambiguous} are read with a decimal comma, as files with "
                "';' between the cells have it (data.decimal states the sign)"
            )
        _refuse(comma)
    if point.ambiguous and point.beside_whole:
        _refuse(point)
    return ".", ""


def _refuse(evidence: _Evidence) -> None:
    """Raise UserError for cells whose sign may have two meanings."""
    digits = re.sub(r"[.,]", "", evidence.ambiguous)
    raise UserError(
        f"{evidence.where}: {evidence.ambiguous!r} may be {digits}, with separated thousands, or "
        f"{evidence.ambiguous.replace(',', '.')}, with decimals, and no other cell shows which: "
        f"{HOW_TO_STATE}"
    )


def _find_evidence(
    table: pd.DataFrame, columns: list[int], found: FoundNumbers
) -> dict[str, _Evidence]:
    """Return what the cells of the columns show about either sign.

    Texts are the last to be looked at, and only as far as they may change the decimal sign. A
    column whose texts are all numbers with the sign that is shown so far changes nothing.
    """
    evidence = {sign: _Evidence() for sign in ",."}
    of_parsed = evidence[table.attrs.get("decimal", ".")]
    as_text = table.attrs.get("as_text")
    unclear = []
    for column in columns:
        cells = table.iloc[:, column]
        if not pd.api.types.is_numeric_dtype(cells):
            unclear.append(column)
        elif as_text is not None and pd.api.types.is_float_dtype(cells):
            if _shows_decimals(cells.to_numpy(dtype=np.float64)):
                of_parsed.shows_decimals = True
            unclear.append(column)
    parsed = [column for column in unclear if pd.api.types.is_numeric_dtype(table.iloc[:, column])]
    sign_of_parsed = table.attrs.get("decimal", ".")
    read_first_texts = cache(lambda: as_text(parsed, N_FIRST_ROWS))
    read_texts = cache(lambda: as_text.find_sign(parsed, sign_of_parsed))
    for column in unclear:
        for are_first in (True, False):
            has_only_known = column in parsed and of_parsed.shows_decimals  # it shows nothing else
            if has_only_known or evidence[","].shows_thousands:
                break
            texts = table.iloc[: N_FIRST_ROWS if are_first else None, column]
            if column in parsed and are_first:
                texts = read_first_texts()[column]
            elif column in parsed:
                texts = read_texts().get(column)
            if texts is None:
                continue
            if not are_first:
                shown = _shown_sign(evidence)
                read = _read_at_once(texts, shown) if shown else None
                if read is not None:
                    found[column, shown] = read
                if read is not None or (not shown and _shows_no_more(texts, evidence["."])):
                    continue
            _look_at(table, column, texts, evidence)
    return evidence


def _shown_sign(evidence: dict[str, _Evidence]) -> str:
    """Return the decimal sign that numbers with decimals show so far; empty if there are none."""
    return next((sign for sign in ",." if evidence[sign].shows_decimals), "")


def _shows_no_more(cells: pd.Series, point: _Evidence) -> bool:
    """Return whether all texts are such as 1.234, of which one is known already."""
    if not point.ambiguous:
        return False
    lines = _join(cells if cells.notna().all() else cells.dropna())
    return lines is not None and are_all(lines, _shapes(".").ambiguous.pattern)


def _join(cells: pd.Series) -> str | None:
    """Return texts as lines, in ASCII as far as signs that separate thousands are concerned.

    None: they must be looked at one by one.
    """
    lines = join_lines(cells)
    if lines is None or lines.isascii():
        return lines
    for sign, stand_in in STAND_INS.items():
        if stand_in in lines:
            return None
        lines = lines.replace(sign, stand_in)
    return lines


def _look_at(
    table: pd.DataFrame, column: int, cells: pd.Series, evidence: dict[str, _Evidence]
) -> None:
    """Add what the first cells of a column, or all of them, show to the evidence."""
    distinct = cells.drop_duplicates() if pd.api.types.is_string_dtype(cells) else cells
    texts = [cell.strip() for cell in distinct.to_numpy(dtype=object) if isinstance(cell, str)]
    unique = list(dict.fromkeys(texts))
    for sign, found in evidence.items():
        shapes = _shapes(sign)
        has_ambiguous = False
        for text in unique:
            if sign not in text:
                continue
            if shapes.ambiguous.fullmatch(text):
                has_ambiguous = True
                if not found.ambiguous:
                    found.ambiguous = text
                    name = str(table.columns[column])
                    row = next(i for i, cell in enumerate(cells) if str(cell).strip() == text)
                    found.where = f"{location(table, row)}, column {name!r}"
            elif not found.shows_decimals and shapes.decimal.fullmatch(text):
                found.shows_decimals = True
            elif not found.shows_thousands and shapes.grouped.fullmatch(text):
                found.shows_thousands = True
                if sign == ",":  # the decimal sign is a point, whatever else is there
                    return
        if has_ambiguous:
            are_whole = [re.fullmatch(r"[-+]?[1-9]\d{0,2}", text) is not None for text in unique]
            found.beside_whole |= any(are_whole)


def _shows_decimals(values: Array) -> bool:
    """Return whether numbers that were read with a decimal sign cannot have been 1.234 for 1234.

    That is so if one of them is below 1, or has other than three decimals, or is 1000 or more.
    """
    if len(values) > N_FIRST_ROWS and _shows_decimals(values[:N_FIRST_ROWS]):
        return True
    known = np.abs(values[np.isfinite(values)])
    thousandths = 1000 * known
    has_other_decimals = np.abs(thousandths - np.rint(thousandths)) > 1e-6
    is_below_one = (known > 0) & (known < 1)
    return bool((has_other_decimals | is_below_one | (known >= 1000)).any())


def to_number(text: str, decimal: str) -> float | None:
    """Return the value of a cell; None if it is no number.

    With a decimal comma, a point in a cell would separate thousands: such a cell is no number here.
    """
    if "_" in text:  # Python would ignore the underscore
        return None
    if decimal != ".":
        text = text.replace(".", "?").replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None


def to_grouped_number(text: str, decimal: str) -> float | None:
    """Return the value of a cell with separated thousands; None if it is none.

    >>> to_grouped_number("-1,234.5", "."), to_grouped_number("1 234", "."), to_grouped_number(
    ...     "1,5", "."
    ... )
    (-1234.5, 1234.0, None)
    """
    for sign in _group_signs(decimal):
        if sign in text and _grouped_pattern(sign, decimal).fullmatch(text):
            return float(text.replace(sign, "").replace(decimal, "."))
    return None


def _group_signs(decimal: str) -> str:
    """Return the signs that may separate thousands beside this decimal sign."""
    return ("," if decimal == "." else ".") + GROUP_SIGNS


@cache
def _grouped_pattern(sign: str, decimal: str) -> re.Pattern[str]:
    """Return the form of numbers whose thousands this sign separates."""
    start = r"[-+]?[1-9]\d{0,2}"
    return re.compile(rf"{start}(?:{re.escape(sign)}\d{{3}})+(?:{re.escape(decimal)}\d*)?")


def _plain_pattern(decimal: str) -> str:
    """Return the form of numbers without an exponent and without separated thousands."""
    own = re.escape(decimal)
    return rf"[-+]?(?:\d+(?:{own}\d*)?|{own}\d+)"


def read_numbers(
    table: pd.DataFrame,
    column: int,
    decimal: str,
    notes: list[str],
    *,
    is_stated: bool = False,
    found: FoundNumbers | None = None,
) -> Array:
    """Return the numbers (n,) of a column, nan where a cell is empty.

    Numbers with separated thousands are counted in `notes`. Unless the user stated the decimal
    sign, there must be something else than cells as ``1,234`` in the column. `found` has the
    numbers that `find_decimal` read.

    Raises
    ------
    ValueError
        A cell is no number, or has another decimal sign; the message names it.
    """
    cells = table.iloc[:, column]
    name = str(table.columns[column])
    if pd.api.types.is_complex_dtype(cells):
        raise UserError(
            f"{location(table)}, column {name!r}: expected real numbers, "
            "got complex ones: make a column of each part, .real and .imag"
        )
    if pd.api.types.is_numeric_dtype(cells):
        parsed_with = table.attrs.get("decimal", ".")
        is_exact = parsed_with == decimal or not pd.api.types.is_float_dtype(cells)
        if is_exact or "as_text" not in table.attrs:
            return np.asarray(cells.to_numpy(dtype=np.float64, na_value=np.nan))
        cells = table.attrs["as_text"]([column])[column]
    numbers = (
        (found or {}).get((column, decimal))
        or _read_at_once(cells, decimal)
        or _read_one_by_one(table, column, cells, decimal)
    )
    if numbers.n_grouped:
        if not is_stated and numbers.n_grouped == numbers.n_texts:
            _check_grouped(table, column, cells, numbers.first_grouped)
        notes.append(
            f"column {name!r}: {numbers.n_grouped} numbers with separated thousands, such as "
            f"{numbers.first_grouped}"
        )
    return numbers.values


def _read_at_once(cells: pd.Series, decimal: str) -> _Found | None:
    """Return the numbers in texts that are separated by at most one sign, and have no exponents.

    None: the cells must be read one by one, since one of them is something else.
    """
    has_text = cells.notna()
    texts = cells if has_text.all() else cells[has_text]
    lines = _join(texts)
    if lines is None:
        return None
    forms = _plain_pattern(decimal)
    signs = [sign for sign in _group_signs(decimal) if STAND_INS.get(sign, sign) in lines]
    if len(signs) > 1:
        return None
    thousands = STAND_INS.get(signs[0], signs[0]) if signs else ""
    if thousands:
        forms += f"|{_grouped_pattern(thousands, decimal).pattern}"
    if not are_all(lines, forms):
        return None
    values = read_lines(lines.replace(thousands, "") if thousands else lines, decimal)
    if len(values) != len(texts):  # a cell has a line break
        return None
    if len(texts) < len(cells):
        known = values
        values = np.full(len(cells), np.nan)
        values[has_text.to_numpy()] = known
    if not signs:
        return _Found(values, len(texts), 0, "")
    are_grouped = texts.str.contains(signs[0], regex=False).to_numpy()
    first = texts.iloc[int(np.argmax(are_grouped))]
    return _Found(values, len(texts), int(are_grouped.sum()), first)


def _read_one_by_one(table: pd.DataFrame, column: int, cells: pd.Series, decimal: str) -> _Found:
    """Return the numbers in cells of any kind.

    Raises
    ------
    ValueError
        A cell is no number; the message names it.
    """
    name = str(table.columns[column])
    values = np.full(len(cells), np.nan)
    n_texts = 0
    grouped = []
    for row, cell in enumerate(cells.to_numpy(dtype=object)):
        if isinstance(cell, str) and cell.strip():
            n_texts += 1
            text = cell.strip()
            value = to_number(text, decimal)
            if value is None:
                value = to_grouped_number(text, decimal)
                grouped.append(text)
            if value is None:
                where = f"{location(table, row)}, column {name!r}"
                raise UserError(
                    f"{where}: it holds {text!r}, expected a number: {_advise(text, decimal)}"
                )
            values[row] = value
        elif cell is not np.ma.masked and not np.any(pd.isna(cell)):
            try:
                values[row] = float(cell)
            except (TypeError, ValueError):
                where = f"{location(table, row)}, column {name!r}"
                raise UserError(f"{where}: expected a number, got {cell!r}") from None
    return _Found(values, n_texts, len(grouped), grouped[0] if grouped else "")


def _check_grouped(table: pd.DataFrame, column: int, cells: pd.Series, first: str) -> None:
    """Raise UserError if all texts, whose thousands are separated, are such as 1,234.

    They could have decimals.
    """
    shapes = [_shapes(sign).ambiguous for sign in ",."]
    texts = (cell.strip() for cell in cells if isinstance(cell, str) and cell.strip())
    if all(any(shape.fullmatch(text) for shape in shapes) for text in texts):
        where = f"{location(table)}, column {str(table.columns[column])!r}"
        raise UserError(
            f"{where}: all numbers are written as {first!r}, with separated thousands or with "
            f"another decimal sign than the rest of the file: {HOW_TO_STATE}"
        )


def _advise(text: str, decimal: str) -> str:
    """Return what to do about a cell that is no number."""
    other_sign = "," if decimal == "." else "."
    if to_number(text, other_sign) is None:
        return "correct the cell; leave it empty if the value is missing"
    return (
        f"if {other_sign!r} is the decimal sign of this file, set 'data.decimal=\"{other_sign}\"'"
    )
