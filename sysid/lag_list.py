"""Lags per signal: what may be written in settings, and its one normal form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

Lags: TypeAlias = int | Sequence[int]
SignalLags: TypeAlias = Mapping[str, Lags] | tuple[tuple[str, tuple[int, ...]], ...]


def normalised(option: str, signals: SignalLags | None, lowest: int, fewest: int) -> dict[str, tuple[int, ...]]:
    """Lags per signal as increasing tuples of at least `fewest` lags; None stands for no signals."""
    signals = {} if signals is None else signals
    if not isinstance(signals, Mapping | tuple):
        raise TypeError(f"Narx({option}={signals!r}) must map names to lags, e.g. {{'y': 3}}")
    for name in dict(signals):
        if not isinstance(name, str) or not name:
            raise TypeError(f"Narx({option}) has the name {name!r}: expected text such as 'mass_flow'")
    return {
        name: _lags(f"Narx({option}={{{name!r}: {lags!r}}})", lags, lowest, fewest)
        for name, lags in dict(signals).items()
    }


def check_without_lags(lags: Mapping[str, tuple[int, ...]], target: str, *, is_change: bool) -> None:
    """Refuse an output without lags unless it is the target, its value is predicted, and there is a feature.

    Parameters
    ----------
    lags
        Lags of every signal, in the normal form.
    target
        Name of the output that is predicted.
    is_change
        Whether its change is predicted, which needs y[k-1].
    """
    for name in (name for name, given in lags.items() if not given):
        where = f"Narx(outputs={{{name!r}: []}}): no lags"
        if name != target:
            raise ValueError(f"{where}, and it is not the target {target!r}: give it lags, or leave it out")
        if is_change:
            raise ValueError(
                f"{where}, but the change y[k] - y[k-1] needs an earlier output: give a number >= 1 or a list of "
                "lags >= 1, or choose predict='value'"
            )
    if not any(lags.values()):
        raise ValueError(f"Narx(outputs={{{target!r}: []}}) has no features: give this output or an input lags")


def _lags(where: str, lags: Any, lowest: int, fewest: int) -> tuple[int, ...]:
    """Lags 1 to n of a number n, or the given ones, increasing."""
    try:
        given = [_integer(lag) for lag in lags] if isinstance(lags, Sequence) else range(1, _integer(lags) + 1)
    except TypeError:
        raise TypeError(f"{where}: expected an integer or a list of integers") from None
    if not given and isinstance(lags, list | tuple) and fewest == 0:
        return ()
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
