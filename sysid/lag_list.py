"""Lags per signal: what may be written in settings, and its one normal form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

Lags: TypeAlias = int | Sequence[int]
SignalLags: TypeAlias = Mapping[str, Lags] | tuple[tuple[str, tuple[int, ...]], ...]


def normalised(option: str, signals: SignalLags, lowest: int) -> dict[str, tuple[int, ...]]:
    """Lags per signal as increasing tuples."""
    if not isinstance(signals, Mapping | tuple):
        raise TypeError(f"Narx({option}={signals!r}) must map names to lags, e.g. {{'y': 3}}")
    for name in dict(signals):
        if not isinstance(name, str) or not name:
            raise TypeError(f"Narx({option}) has the name {name!r}: expected text such as 'mass_flow'")
    return {name: _lags(f"Narx({option}={{{name!r}: {lags!r}}})", lags, lowest) for name, lags in dict(signals).items()}


def _lags(where: str, lags: Any, lowest: int) -> tuple[int, ...]:
    """Lags 1 to n of a number n, or the given ones, increasing."""
    try:
        given = [_integer(lag) for lag in lags] if isinstance(lags, Sequence) else range(1, _integer(lags) + 1)
    except TypeError:
        raise TypeError(f"{where}: expected an integer or a list of integers") from None
    if not given:
        raise ValueError(f"{where}: no lags; give a number >= 1, or a list with at least one lag >= {lowest}")
    if len(set(given)) < len(given):
        raise ValueError(f"{where}: duplicate lags; name each lag once")
    if min(given) < lowest:
        reason = "an output cannot explain itself" if min(given) == 0 else "the future is not known"
        raise ValueError(f"{where}: lags must be >= {lowest} ({reason})")
    return tuple(sorted(given))


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return index(value)
