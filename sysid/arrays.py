"""Checks at the boundary.

Arrays that come in are finite, float64, contiguous and of the right shape; counts are whole
numbers, names are members of their enumeration.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from numbers import Integral
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.errors import UserError, UserTypeError

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Choice = TypeVar("Choice", bound=Enum)


class NotPositiveDefiniteError(UserError, np.linalg.LinAlgError):
    """A covariance has no factor in double precision: the message says which, and what to raise."""


LARGEST = 1e100  # squares of larger numbers overflow in what follows; no measurement is as large


def _floats(values: ArrayLike, name: str) -> np.ndarray:
    if np.ma.is_masked(values):
        raise UserError(f"{name}: some entries are masked; fill them, or leave their samples out")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise UserTypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
    return np.require(
        array, np.float64, ["C", "W"]
    )  # for arrays that may not be written all would be compiled again


def _check_finite(array: np.ndarray, name: str) -> None:
    bad = ~(np.abs(array) < LARGEST)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UserError(
            f"{name}: {int(bad.sum())} of {array.size} values are not finite (or beyond {LARGEST:g}), "
            f"the first is {array[first]} at index {first[0] if len(first) == 1 else first}; "
            "remove these samples (a run can skip them: on_missing=skip)"
        )


def matrix(values: ArrayLike, n_columns: int, name: str) -> np.ndarray:
    """Finite float64 matrix (n, n_columns), C-contiguous.

    >>> matrix([[1, 2]], 2, "inputs")
    array([[1., 2.]])
    """
    array = _floats(values, name)
    if array.ndim != 2 or array.shape[1] != n_columns:
        hint = "; write x[None, :] for a single point" if array.shape == (n_columns,) else ""
        raise UserError(
            f"{name}: expected shape (n, {n_columns}), one row per sample, got {array.shape}{hint}"
        )
    _check_finite(array, name)
    return array


def vector(values: ArrayLike, size: int | None, name: str, *, finite: bool = True) -> np.ndarray:
    """Float64 vector (size,), C-contiguous; any length if size is None. It is finite unless that is
    not asked for.

    >>> vector([1, 2], 2, "targets")
    array([1., 2.])
    """
    array = _floats(values, name)
    if array.ndim != 1 or (size is not None and array.size != size):
        raise UserError(
            f"{name}: expected shape ({'n' if size is None else size},), got {array.shape}"
        )
    if finite:
        _check_finite(array, name)
    return array


def rows(
    inputs: ArrayLike, targets: ArrayLike, n_columns: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Float64 inputs (n, n_columns) and targets (n,), C-contiguous; that they are finite is checked
    by who learns.

    What fits already is passed on: a closed loop asks for one row at a time, where each call
    counts.
    """
    x = np.asanyarray(inputs)
    y = np.asanyarray(targets)
    is_plain = (
        type(x) is type(y) is np.ndarray
        and x.dtype == y.dtype == np.float64
        and x.flags.carray
        and y.flags.carray
    )
    if is_plain and x.ndim == 2 and x.shape == (*y.shape, n_columns):
        return x, y
    x = matrix(inputs, n_columns, name)
    return x, vector(targets, len(x), "targets")


def check_whole(value: Any, least: int, name: str, *, below: float = 2**63) -> None:
    """Raise ValueError, naming the setting, unless a value is an integer from `least` to less than
    `below`.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) < below
    ):
        raise UserError(f"{name} must be a whole number of at least {least}, got {value!r}")


def listed(values: Any, setting: str, kind: str) -> tuple[Any, ...]:
    """Items of a list of things of this kind; `UserTypeError`, naming the setting, for anything
    else, as for a text.

    >>> listed([1, 2], "FreeRun: blocks", "numbers")
    (1, 2)
    """
    is_single = isinstance(values, str | bytes | Mapping) or getattr(values, "shape", None) == ()
    if is_single or not isinstance(values, Iterable):
        raise UserTypeError(f"{setting} must be a list of {kind}, got {values!r}")
    return tuple(values)


def listed_numbers(values: Any, setting: str) -> tuple[float, ...]:
    """Real numbers of a list; `UserError`, naming the setting, if an item is anything else.

    >>> listed_numbers([1, 2], "OutputErrorRefinement: powers")
    (1.0, 2.0)
    """
    items = listed(values, setting, "numbers")
    try:
        return tuple(float(item) for item in items)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{setting} must be a list of numbers, got {values!r}") from None


def check_counts(settings: object, **least: int) -> None:
    """`check_whole` for settings of an object, which the error names with their class.

    >>> from types import SimpleNamespace
    >>> check_counts(SimpleNamespace(points=3), points=1)
    """
    for name, lowest in least.items():
        check_whole(getattr(settings, name), lowest, f"{type(settings).__name__}: {name}")


def member(kind: type[Choice], value: Choice | str, setting: str, *, quoted: bool = True) -> Choice:
    """Return the member of an enumeration with this value.

    Parameters
    ----------
    kind : type of Enum
        Enumeration.
    value : Enum or str
        Value of a member, or the member itself.
    setting : str
        Name of the setting, for the error.
    quoted : bool, optional
        Whether the error lists the values in brackets and quotes.

    Raises
    ------
    ValueError
        If there is no such member; the error names the setting and all values.

    Examples
    --------
    >>> member(Enum("Colour", {"red": "red", "blue": "blue"}), "blue", "colour").name
    'blue'
    """
    try:
        return kind(value)
    except ValueError:
        values = [one.value for one in kind]
        listed = values if quoted else ", ".join(values)
        raise UserError(f"{setting} must be one of {listed}, got {value!r}") from None
