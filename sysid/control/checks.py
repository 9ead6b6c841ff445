"""Checks of the settings of a predictive controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isnan
from typing import Any

from sysid.arrays import as_number
from sysid.errors import UserError


def check_map(kind: str, values: Any) -> None:
    """Raise UserError unless a setting maps names of signals to values, or is None."""
    if values is not None and not isinstance(values, Mapping):
        raise UserError(
            f"PredictiveControl: expected {kind} as a mapping from names of signals, got {values!r}"
        )


def check_number(kind: str, value: Any, *, above: float = -inf, least: float = -inf) -> None:
    """Raise UserError unless a value is a finite number above a bound, and at least another."""
    if not _is_number(value, above, least):
        expected = _words_of(above, least)
        raise UserError(f"PredictiveControl: expected {kind} {expected}, got {value!r}")


def check_signal(kind: str, value: Any, *, least: float = -inf) -> None:
    """Raise UserError unless a value is a finite number or the name of a signal."""
    if not isinstance(value, str) and not _is_number(value, -inf, least):
        raise UserError(
            f"PredictiveControl: expected {kind} {_words_of(-inf, least)}, or a signal of the "
            f"forecast, got {value!r}"
        )


def _is_number(value: Any, above: float, least: float) -> bool:
    """Return whether a value is a finite number above a bound, and at least another."""
    number = as_number(value)
    return isfinite(number) and number > above and number >= least


def _words_of(above: float, least: float) -> str:
    """Return which numbers are expected, in words."""
    if above > -inf:
        return f"above {above:g}"
    return f"of at least {least:g}" if least > -inf else "as a finite number"


def check_output_limits(limits: Mapping[str, Any]) -> None:
    """Raise UserError unless all limits are pairs, and pairs of numbers ascend."""
    for name, values in limits.items():
        low, high = _check_pair("output_limits", name, values)
        for value in (low, high):
            if value is not None and not isinstance(value, str) and isnan(as_number(value)):
                raise UserError(
                    f"output_limits of {name!r}: expected numbers, None, or signals of the "
                    f"forecast, got {value!r}"
                )
        are_numbers = not isinstance(low, str | None) and not isinstance(high, str | None)
        if are_numbers and not low < high:
            raise UserError(
                f"output_limits of {name!r}: expected low < high, got {low:g} and {high:g}"
            )


def check_tracking(tracking: Mapping[str, Any]) -> None:
    """Raise UserError unless each output has a reference, and a weight of at least 0."""
    for name, values in tracking.items():
        reference, weight = _check_pair("tracking", name, values)
        check_signal(f"reference of {name!r}", reference)
        check_number(f"weight of {name!r}", weight, least=0.0)


def _check_pair(kind: str, name: str, values: Any) -> Sequence[Any]:
    """Return a setting that must be a pair."""
    is_pair = isinstance(values, Sequence) and not isinstance(values, str) and len(values) == 2
    if not is_pair:
        raise UserError(f"PredictiveControl: {kind} of {name!r}: expected a pair, got {values!r}")
    return values
