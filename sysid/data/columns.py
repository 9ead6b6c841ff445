"""Columns of tables: how a user names them, the units in their names, and where a cell stands."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Hashable, Sequence

import pandas as pd

from sysid.errors import UserError
from sysid.units import SUBSTANCE

#: units of a column of times, in seconds
SECONDS_PER_UNIT = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}

#: symbols of units that take a prefix
SCALED_UNITS = {
    "m",
    "g",
    "s",
    "A",
    "K",
    "N",
    "J",
    "W",
    "V",
    "F",
    "Ω",
    "H",
    "T",
    "L",
    "l",
    "Hz",
    "Pa",
    "Wh",
    "VA",
    "eV",
    "ohm",
    "Ohm",
    "mol",
    "bar",
    "rad",
    "cd",
    "lm",
}

#: symbols of units without a prefix
PLAIN_UNITS = {
    "%",
    "°",
    "°C",
    "°F",
    "C",
    "degC",
    "degF",
    "deg",
    "min",
    "h",
    "d",
    "sec",
    "rpm",
    "psi",
    "ppm",
    "dB",
    "ft",
    "in",
    "lb",
    "gal",
    "kn",
    "cfm",
    "gpm",
    "Deg",
    "Volts",
    "Amps",
    "Kelvin",
    "Celsius",
}

#: prefixes of units
PREFIXES = (
    "",
    "p",
    "n",
    "u",
    "µ",
    "μ",
    "m",
    "c",
    "d",
    "h",
    "k",
    "M",
    "G",
)


def split_name(column: str) -> tuple[str, str]:
    """Return name and unit of a column; a whole number in brackets is an index, no unit.

    Without a blank before them, round brackets state a unit only if their content is one that is
    known: ``y(t)`` is the name of a function of time.

    >>> split_name("T_out [degC]"), split_name("u (%)"), split_name("tank[2]"), split_name("y(t)")
    (('T_out', 'degC'), ('u', '%'), ('tank[2]', ''), ('y(t)', ''))
    >>> split_name("Time(ms)"), split_name("flow(l/min)")
    (('Time', 'ms'), ('flow', 'l/min'))
    """
    whole = column.strip()
    match = re.fullmatch(r"(.*\S)(?:\s*\[([^\[\]]+)\]|(\s*)\(([^()]+)\))", whole)
    if match is None:
        return whole, ""
    unit = (match[2] or match[4]).strip()
    is_attached = match[3] == ""
    if not unit or unit.isdigit() or (is_attached and not is_unit(unit)):
        return whole, ""
    return match[1], unit


def is_unit(text: str) -> bool:
    """Return whether a text consists of known symbols of units.

    It does not if it may be the name of a substance, such as N2.

    >>> is_unit("m/s^2"), is_unit("mV"), is_unit("t"), is_unit("speed"), is_unit("N2")
    (True, True, False, False, False)
    """
    if SUBSTANCE.search(text):
        return False
    symbols = [symbol for symbol in re.split(r"[-*/·.^\s\d²³]+", text.strip("[]()")) if symbol]
    return bool(symbols) and all(_is_symbol(symbol) for symbol in symbols)


def _is_symbol(text: str) -> bool:
    """Return whether a text is the symbol of one unit, with or without a prefix."""
    if text in PLAIN_UNITS:
        return True
    return any(
        text.startswith(prefix) and text[len(prefix) :] in SCALED_UNITS for prefix in PREFIXES
    )


def texts_of_names(names: Sequence[Hashable]) -> tuple[str, ...]:
    """Return names of columns as texts: a column that is named by a number has its digits as name.

    >>> texts_of_names(["u", 0])
    ('u', '0')
    """
    return tuple(str(name).strip() for name in names)


def find_columns(
    table: pd.DataFrame, names: Sequence[str], option: str = "inputs"
) -> dict[str, int]:
    """Return the numbers of columns by name, either the whole name or the name without the unit.

    `option` is the setting that names the columns, for the message.

    Raises
    ------
    ValueError
        A column is missing, or several have the same name.
    """
    whole_names = names_of_columns(table)
    bare_names = [split_name(column)[0] for column in whole_names]
    columns = {}
    for name in names:
        matching = [i for i, column in enumerate(whole_names) if column == name]
        if not matching:
            matching = [i for i, column in enumerate(bare_names) if column == name]
        if len(matching) > 1:
            found = [whole_names[i] for i in matching]
            advice = "rename them"
            if len(set(found)) == len(found):
                advice += f", or name one with its unit, {setting_text(table, option, found[:1])}"
            raise UserError(
                f"{location(table)}: columns {found} are there more than once as {name!r}: {advice}"
            )
        if matching:
            columns[name] = matching[0]
    absent = [name for name in names if name not in columns]
    if absent:
        named = [name for name in bare_names if name]
        meant = _closest(absent[0], named) or named[-1:]
        advice = f"name columns that it has, as in {setting_text(table, option, meant)}"
        if "header" not in table.attrs and all(_is_number(name) for name in named):
            advice = "it seems to have no header: write the names of the columns into a first line"
        elif table.attrs.get("header") == "none":
            advice = (
                f"it has no header, so its columns are numbered: name them by their numbers, "
                f"{setting_text(table, option, named[-1:])}"
            )
        raise UserError(f"{location(table)}: no columns {absent}, it has {whole_names}; {advice}")
    return columns


def _closest(name: str, names: Sequence[str]) -> list[str]:
    """Return the name that is written most like `name`, in small letters or capitals, or none."""
    in_small_letters = {other.lower(): other for other in names}
    found = difflib.get_close_matches(name.lower(), in_small_letters, n=1)
    return [in_small_letters[other] for other in found]


def names_of_columns(table: pd.DataFrame) -> list[str]:
    """Return the whole names of all columns, without line breaks and blanks around them."""
    return [" ".join(str(column).split()) for column in table.columns]


def _is_number(text: str) -> bool:
    """Return whether a text is a number with a decimal point."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def units_of_columns(table: pd.DataFrame) -> dict[int, str]:
    """Return the units of columns by number: of their names, or of the rows below these.

    Raises
    ------
    ValueError
        Both state a unit of one column, and they differ.
    """
    below: dict[int, str] = table.attrs.get("units", {})
    units = {}
    for number, name in enumerate(names_of_columns(table)):
        in_name = split_name(name)[1]
        in_row = below.get(number, "")
        if in_name and in_row and in_name != in_row:
            raise UserError(
                f"{location(table)}: the name of column {name!r} states the unit {in_name!r}, the "
                f"row below it {in_row!r}: correct one of them"
            )
        if in_name or in_row:
            units[number] = in_name or in_row
    return units


def setting_text(table: pd.DataFrame, option: str, names: Sequence[str]) -> str:
    """Return a setting of names as the user writes it.

    For a file it is written for a shell and the grammar of the commands, otherwise in Python.
    """
    is_list = option in ("inputs", "outputs")
    if "file" in table.attrs:
        return write_names(f"data.{option}", names, is_list=is_list)
    if not is_list:
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


def location(table: pd.DataFrame, row: int | None = None) -> str:
    """Return the words by which a message names a row of a table, or the table."""
    first_row = table.attrs.get("line", 0)
    if "file" not in table.attrs:
        return "the table" if row is None else f"row {row + first_row} of the table"
    file = str(table.attrs["file"])
    word = table.attrs.get("row_word", "line")
    return file if row is None else f"{file}, {word} {row + first_row}"
