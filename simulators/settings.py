"""Checks of settings, arguments and files.

The errors say what was expected, what was given and what to do.
"""

import csv
import math
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.errors import UserError, UserTypeError

Array: TypeAlias = NDArray[np.float64]

MAX_CSV_BYTES = 2**30  # size of a CSV or EPW file; a sparse one of any size takes nothing to send


def refuse(owner: Any, name: str, expected: str) -> UserError:
    """Build the error for one field of a settings object.

    Parameters
    ----------
    owner : object
        Settings object that holds the field.
    name : str
        Name of the field.
    expected : str
        What the field must be, with its unit.

    Returns
    -------
    ValueError
        For example ``Building(dt=-1): expected a number > 0; change dt``.
    """
    value = getattr(owner, name)
    return UserError(
        f"{type(owner).__name__}({name}={value!r}): expected {expected}; change {name}"
    )


#: largest whole number of a setting: compiled functions take 64 bits
MAX_WHOLE = 2**63 - 1


#: samples of the longest signal that is computed at once: more do not fit into memory
MAX_SIGNAL_SAMPLES = 20_000_000


def is_finite(value: object) -> bool:
    """Whether a value is a finite real number; flags and durations of NumPy do not count.

    Integers of more than 64 bits do not count either: NumPy cannot compute with them.
    """
    if not isinstance(value, Real) or isinstance(value, bool | np.timedelta64):
        return False
    if isinstance(value, int):
        return abs(value) <= MAX_WHOLE
    try:
        return math.isfinite(value)
    except OverflowError:  # a fraction of more than 308 digits
        return False


def is_whole(value: object, lowest: int, highest: float = math.inf) -> bool:
    """Whether a value is an integer from `lowest` to `highest`, both included.

    Integers of NumPy count, flags and durations do not.
    """
    is_flag_or_duration = isinstance(value, bool | np.timedelta64)
    if is_flag_or_duration or not isinstance(value, int | np.integer):
        return False
    return bool(lowest <= value <= highest)


def list_given(owner: Any, *names: str) -> list[str]:
    """Return those of the named fields that are not None."""
    return [name for name in names if getattr(owner, name) is not None]


def check_finite(owner: Any, *names: str) -> None:
    """Raise ValueError unless every named field is a finite real number."""
    for name in names:
        if not is_finite(getattr(owner, name)):
            raise refuse(owner, name, "a finite number")


def check_positive(owner: Any, *names: str) -> None:
    """Raise ValueError unless every named field is a finite number above zero."""
    for name in names:
        value = getattr(owner, name)
        if not (is_finite(value) and value > 0):
            raise refuse(owner, name, "a finite number > 0")


def check_not_negative(owner: Any, *names: str) -> None:
    """Raise ValueError unless every named field is a finite number, zero or above."""
    for name in names:
        value = getattr(owner, name)
        if not (is_finite(value) and value >= 0):
            raise refuse(owner, name, "a finite number >= 0")


def check_whole(owner: Any, name: str, lowest: int, highest: int = MAX_WHOLE) -> None:
    """Raise ValueError unless a field is an integer from `lowest` to `highest`, both included.

    Integers of numpy are refused.
    """
    value = getattr(owner, name)
    if not isinstance(value, int) or not is_whole(value, lowest, highest):
        raise refuse(owner, name, f"an integer from {lowest} to {highest}")


def check_flag(owner: Any, name: str) -> None:
    """Raise ValueError unless a field is True or False."""
    if not isinstance(getattr(owner, name), bool):
        raise refuse(owner, name, "true or false")


def check_ascending(owner: Any, lower: str, upper: str) -> None:
    """Raise ValueError unless field `lower` is strictly below field `upper`."""
    check_finite(owner, lower, upper)
    if not getattr(owner, lower) < getattr(owner, upper):
        raise refuse(owner, lower, f"a number below {upper}={getattr(owner, upper)!r}")


def check_count(name: str, value: Any, lowest: int = 1) -> None:
    """Raise ValueError unless an argument is an integer of at least `lowest`."""
    if not is_whole(value, lowest):
        raise UserError(f"{name}={value!r}: expected an integer >= {lowest}; change {name}")


def read_real(values: ArrayLike, title: str) -> NDArray[Any]:
    """Return values as an array of real numbers, not copied.

    Parameters
    ----------
    values : array_like
        Numbers or truth values; neither complex nor text.
    title : str
        First words of the error message.

    Raises
    ------
    TypeError
        If they are something else.
    ValueError
        If they are nested lists of different lengths, or some are masked.
    """
    is_list = isinstance(values, list | tuple)
    if any(map(np.ma.is_masked, values if is_list else [values])):  # type: ignore[arg-type]
        raise UserError(f"{title}: some values are masked; fill them, or leave their samples out")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UserError(
            f"{title}: expected rows of one length, got {error}; cut or fill the rows"
        ) from error
    if array.dtype.kind not in "biuf":
        raise UserTypeError(
            f"{title}: expected real numbers, got {type(values).__name__} of type {array.dtype}; "
            "convert it to an array of floats first"
        )
    return array


def parse_number(cell: str) -> float:
    """Return the number in a cell of a table, NaN if there is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def find_file(owner: Any) -> Path:
    """Return the file that the field `path` of a settings object names.

    Raises
    ------
    ValueError
        If the path is None.
    FileNotFoundError
        If there is no such file.
    """
    title = f"{type(owner).__name__}(path={owner.path!r})"
    if owner.path is None:
        raise UserError(f"{title}: expected a file; set path, for example weather.path=year.csv")
    if not Path(owner.path).is_file():
        raise FileNotFoundError(f"{title}: no such file from {Path.cwd()}; change path")
    return Path(owner.path)


def read_lines(
    path: Path, encoding: str = "utf-8-sig", n_raw: int = 0, max_lines: int | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return the first `n_raw` lines of a CSV file as they are, and the cells of the other lines.

    Empty lines at the end are left out.

    Raises
    ------
    ValueError
        If it is no CSV file in this encoding, has more than `max_lines` lines after the first ones,
        or more than `MAX_CSV_BYTES` bytes.
    """
    if path.stat().st_size > MAX_CSV_BYTES:
        raise UserError(f"{path}: expected at most {MAX_CSV_BYTES} bytes, got more; cut the record")
    n_read = None if max_lines is None else max_lines + 1
    try:
        with path.open(encoding=encoding, newline="") as file:
            raw = list(islice(file, n_raw))
            lines = list(islice(csv.reader(file), n_read))
    except (UnicodeDecodeError, csv.Error) as error:
        name = encoding.upper().removesuffix("-SIG")
        raise UserError(
            f"{path}: expected lines of CSV in {name}, got {error}; export it as CSV"
        ) from error
    if max_lines is not None and len(lines) > max_lines:
        raise UserError(f"{path}: expected at most {max_lines} lines, got more; cut the record")
    while lines and not lines[-1]:
        lines.pop()
    return raw, lines


def read_csv(path: Path, max_lines: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of cells of a CSV file in UTF-8, see `read_lines`.

    Raises
    ------
    ValueError
        As `read_lines`, or if it has no row below its header.
    """
    _, lines = read_lines(path, max_lines=max_lines)
    if len(lines) < 2:
        raise UserError(
            f"{path}: expected a header line and rows, got {len(lines)} lines; check path"
        )
    return [name.strip() for name in lines[0]], lines[1:]
