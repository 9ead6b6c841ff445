"""Checks of the settings dataclasses: what was expected, what was given, what to do."""

import math
from numbers import Real
from typing import Any


def refuse(owner: Any, name: str, expected: str) -> ValueError:
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
    return ValueError(f"{type(owner).__name__}({name}={value!r}): expected {expected}; change {name}")


def check_finite(owner: Any, *names: str) -> None:
    """Raise ValueError unless every named field is a finite real number."""
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
            raise refuse(owner, name, "a finite number")


def check_positive(owner: Any, *names: str) -> None:
    """Raise ValueError unless every named field is a finite number above zero."""
    check_finite(owner, *names)
    for name in names:
        if getattr(owner, name) <= 0:
            raise refuse(owner, name, "a number > 0")


def check_not_negative(owner: Any, *names: str) -> None:
    """Raise ValueError unless every named field is a finite number, zero or above."""
    check_finite(owner, *names)
    for name in names:
        if getattr(owner, name) < 0:
            raise refuse(owner, name, "a number >= 0")


def check_whole(owner: Any, name: str, lowest: int, highest: float = math.inf) -> None:
    """Raise ValueError unless the field is an integer from `lowest` to `highest`, both included."""
    value = getattr(owner, name)
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise refuse(owner, name, f"an integer from {lowest} to {highest}")


def check_ascending(owner: Any, lower: str, upper: str) -> None:
    """Raise ValueError unless field `lower` is strictly below field `upper`."""
    check_finite(owner, lower, upper)
    if not getattr(owner, lower) < getattr(owner, upper):
        raise refuse(owner, lower, f"a number below {upper}={getattr(owner, upper)!r}")
