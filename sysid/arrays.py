"""Checks of what a caller passes in.

Arrays must be finite and of the right shape, and become contiguous float64. Counts must be whole
numbers. Names must be members of their enumeration.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from math import nan
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.errors import UserError, UserTypeError

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Choice = TypeVar("Choice", bound=Enum)


class NotPositiveDefiniteError(UserError, np.linalg.LinAlgError):
    """A covariance matrix has no Cholesky factor in double precision.

    The message states which matrix, and which setting to raise.
    """


#: Values beyond this are refused: their fourth powers would overflow, and no measurement is as
#: large.
MAX_MAGNITUDE = 1e70


def has_masked_arrays(values: Any) -> bool:
    """Return whether the values are a masked array, or a list with masked arrays at any depth."""
    if isinstance(values, np.ma.MaskedArray):
        return True
    if not isinstance(values, list | tuple):
        return False
    return any(has_masked_arrays(value) for value in values if not isinstance(value, float))


def check_unmasked(values: Any, name: str) -> None:
    """Raise UserError if a value is masked: NumPy would take the number below the mask.

    >>> check_unmasked(np.ma.masked_values([1.0, 2.0], -999.0), "u")
    """
    if not has_masked_arrays(values):
        return
    if not isinstance(values, np.ma.MaskedArray):
        for number, value in enumerate(values):
            check_unmasked(value, f"{name}[{number}]")
    elif np.ma.is_masked(values):
        n_masked = int(np.count_nonzero(np.ma.getmaskarray(values)))
        raise UserError(
            f"{name}: {n_masked} of {values.size} values are masked, which means that they are "
            "missing: fill them, or leave their samples out"
        )


def real_numbers(values: Any, name: str, *, missing: bool = False) -> np.ndarray:
    """Return real numbers as a float64 array, which is a copy only if it has to be one.

    Masked values are refused. With `missing` they become nan instead, because the caller decides
    about missing values.

    >>> real_numbers(np.ma.masked_values([1.0, -999.0], -999.0), "u", missing=True)
    array([ 1., nan])

    Raises
    ------
    TypeError
        Something else than real numbers, such as complex numbers, texts or time stamps.
    ValueError
        Masked values, or nested lists of different lengths.
    """
    if not missing:
        check_unmasked(values, name)
    try:
        array: Any = np.ma.asarray(values) if has_masked_arrays(values) else np.asarray(values)
    except ValueError as error:
        raise UserError(f"{name}: expected rows of one length, got {error}") from error
    if array.dtype.kind not in "fiub":
        raise UserTypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
    if isinstance(array, np.ma.MaskedArray):
        array = np.ma.filled(array.astype(np.float64), np.nan)
    return np.asarray(array, dtype=np.float64)


def _floats(values: ArrayLike, name: str) -> np.ndarray:
    """Return the values as a contiguous, writeable float64 array.

    Compiled functions would be compiled once more for arrays that cannot be written to.
    """
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.carray:
        return values
    return np.require(real_numbers(values, name), np.float64, ["C", "W"])


def _check_finite(array: np.ndarray, name: str) -> None:
    """Raise UserError if a value is not finite or beyond `MAX_MAGNITUDE`."""
    is_good = np.abs(array) < MAX_MAGNITUDE
    if not is_good.all():
        is_bad = ~is_good
        first = tuple(int(i) for i in np.argwhere(is_bad)[0])
        index = first[0] if len(first) == 1 else first
        n_bad = int(is_bad.sum())
        raise UserError(
            f"{name}: {n_bad} of {array.size} values are not finite (or beyond {MAX_MAGNITUDE:g}), "
            f"the first is {array[first]} at index {index}; "
            "remove these samples (a run can skip them: on_missing=skip)"
        )


def matrix(values: ArrayLike, n_columns: int, name: str) -> np.ndarray:
    """Return the values as a finite, C-contiguous float64 matrix (n, n_columns).

    >>> matrix([[1, 2]], 2, "inputs")
    array([[1., 2.]])
    """
    array = _floats(values, name)
    if array.ndim != 2 or array.shape[1] != n_columns:
        is_single_point = array.shape == (n_columns,)
        hint = "; write x[None, :] for a single point" if is_single_point else ""
        raise UserError(
            f"{name}: expected shape (n, {n_columns}), one row per sample, got {array.shape}{hint}"
        )
    _check_finite(array, name)
    return array


def vector(values: ArrayLike, size: int | None, name: str, *, finite: bool = True) -> np.ndarray:
    """Return the values as a C-contiguous float64 vector (size,); size None: of any length.

    Unless `finite` is False, the values must be finite.

    >>> vector([1, 2], 2, "targets")
    array([1., 2.])
    """
    array = _floats(values, name)
    if array.ndim != 1 or (size is not None and array.size != size):
        expected = "n" if size is None else size
        raise UserError(f"{name}: expected shape ({expected},), got {array.shape}")
    if finite:
        _check_finite(array, name)
    return array


def rows(
    inputs: ArrayLike, targets: ArrayLike, n_columns: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, n_columns) and targets (n,) as C-contiguous float64 arrays.

    Arrays that fit already are returned without a check of their values, because a closed loop
    passes one row at a time, where each call counts. The caller checks that they are finite.
    """
    if not has_masked_arrays(inputs) and not has_masked_arrays(targets):
        x = np.asanyarray(inputs)
        y = np.asanyarray(targets)
        is_contiguous_float = (
            type(x) is type(y) is np.ndarray
            and x.dtype == y.dtype == np.float64
            and x.flags.carray
            and y.flags.carray
        )
        if is_contiguous_float and x.ndim == 2 and x.shape == (*y.shape, n_columns):
            return x, y
    x = matrix(inputs, n_columns, name)
    y = vector(targets, len(x), "targets")
    return x, y


def flags(values: ArrayLike | None, size: int, name: str) -> np.ndarray:
    """Return truth values (size,), which may be given as 0 and 1; None: all of them are true.

    >>> flags([1, 0], 2, "follows")
    array([ True, False])
    """
    if values is None:
        return np.ones(size, dtype=bool)
    check_unmasked(values, name)
    array = np.asarray(values)
    if array.shape != (size,):
        raise UserError(f"{name}: expected shape ({size},), got {array.shape}")
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise UserError(f"{name}: expected True or False for each sample, got {array.tolist()}")
    return array.astype(bool, copy=False)


def is_number(value: object, kind: type = Real) -> bool:
    """Return whether a value is a number of a kind: real, or whole (`numbers.Integral`).

    A flag is none, and neither is a duration of NumPy, although it counts as an integer there.

    >>> is_number(1.5), is_number(1.5, Integral), is_number(True), is_number(np.timedelta64(1, "s"))
    (True, False, False, False)
    """
    return isinstance(value, kind) and not isinstance(value, bool | np.timedelta64)


def check_whole(value: Any, least: int, name: str, *, below: float = 2**63) -> None:
    """Raise UserError unless a value is an integer with ``least <= value < below``.

    `name` is the name of the setting in the message.
    """
    is_integer = is_number(value, Integral)
    if not is_integer or not least <= int(value) < below:
        at_most = f" and at most {below - 1}" if is_integer and int(value) >= below else ""
        raise UserError(
            f"{name} must be a whole number of at least {least}{at_most}, got {value!r}"
        )


def as_number(value: Any) -> float:
    """Return a real number as a float; nan for anything else.

    A flag is no number, and neither is an integer of more than 308 digits, which no float can hold.

    >>> as_number(3), as_number(True), as_number("3"), as_number(10**400)
    (3.0, nan, nan, nan)
    """
    if not is_number(value):
        return nan
    try:
        return float(value)
    except OverflowError:
        return nan


def listed(values: Any, setting: str, kind: str) -> tuple[Any, ...]:
    """Return the items of a list; raise UserTypeError for anything else, such as a text.

    `setting` and `kind`, what the items are, stand in the message.

    >>> listed([1, 2], "FreeRun: blocks", "numbers")
    (1, 2)
    """
    is_single = isinstance(values, str | bytes | Mapping) or getattr(values, "shape", None) == ()
    if is_single or not isinstance(values, Iterable):
        raise UserTypeError(f"{setting} must be a list of {kind}, got {values!r}")
    return tuple(values)


def listed_numbers(values: Any, setting: str) -> tuple[float, ...]:
    """Return the numbers of a list as floats; raise UserError if an item is no number.

    >>> listed_numbers([1, 2], "OutputErrorRefinement: powers")
    (1.0, 2.0)
    """
    items = listed(values, setting, "numbers")
    try:
        return tuple(float(item) for item in items)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{setting} must be a list of numbers, got {values!r}") from None


def check_counts(settings: object, **least: int) -> None:
    """Raise UserError unless each named setting of an object is an integer of at least its minimum.

    >>> from types import SimpleNamespace
    >>> check_counts(SimpleNamespace(points=3), points=1)
    """
    class_name = type(settings).__name__
    for name, lowest in least.items():
        check_whole(getattr(settings, name), lowest, f"{class_name}: {name}")


def check_instances(owner: object, classes: Mapping[str, type]) -> None:
    """Check that attributes of an object are instances of these classes, by name.

    Raises
    ------
    TypeError
        An attribute has another class.
    """
    for name, expected in classes.items():
        value = getattr(owner, name)
        if not isinstance(value, expected):
            raise UserTypeError(
                f"{type(owner).__name__}: {name} must be a {expected.__name__} of the toolbox or "
                f"of your own, got {value!r}"
            )


def member(kind: type[Choice], value: Choice | str, setting: str, *, quoted: bool = True) -> Choice:
    """Return the member of an enumeration that has this value.

    Parameters
    ----------
    kind : type of Enum
        Enumeration.
    value : Enum or str
        Value of a member, or the member itself.
    setting : str
        Name of the setting in the message.
    quoted : bool, optional
        Whether the message lists the values in brackets and quotes.

    Raises
    ------
    ValueError
        There is no such member; the message lists all values.

    Examples
    --------
    >>> member(Enum("Colour", {"red": "red", "blue": "blue"}), "blue", "colour").name
    'blue'
    """
    try:
        return kind(value)
    except ValueError:
        values = [choice.value for choice in kind]
        expected = values if quoted else ", ".join(values)
        raise UserError(f"{setting} must be one of {expected}, got {value!r}") from None
