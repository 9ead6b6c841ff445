"""Lags as a user of an estimator gives them: numbers na, nb, nk, or lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import BaseEstimator

from sysid.lag_list import Lags
from sysid.narx import Narx
from sysid.orders import Orders

DEFAULT = {"na": 2, "nb": 2, "nk": 1}


def chosen_narx(estimator: BaseEstimator, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
    """Lags of the first output by the parameters na, nb, nk, output_lags, input_lags and target of an estimator.

    Raises
    ------
    ValueError, TypeError
        Both orders and lags of a signal, lags of another signal, or what `Orders` and `Narx` refuse.
    """
    given = estimator.get_params(deep=False)
    _refuse_both(given, "output_lags", ("na",))
    _refuse_both(given, "input_lags", ("nb", "nk"))
    na, nb, nk = (default if given[name] is None else given[name] for name, default in DEFAULT.items())
    orders = Orders(na, nb, nk)
    past = _by_name("output_lags", given["output_lags"], outputs) or orders.output_lags(outputs)
    applied = _by_name("input_lags", given["input_lags"], inputs) or orders.input_lags(inputs)
    target = given["target"] or ("change" if any(past.values()) else "value")
    return Narx(past, {name: lags for name, lags in applied.items() if lags}, outputs[0], predict=target)  # type: ignore[arg-type]


def _by_name(option: str, lags: Lags | Mapping[str, Lags] | None, signals: Sequence[str]) -> dict[str, Lags]:
    """Lags of every signal; none if the option is left out."""
    if lags is None:
        return {}
    found = dict(lags) if isinstance(lags, Mapping) else dict.fromkeys(signals, lags)
    if unknown := [name for name in found if name not in signals]:
        raise ValueError(f"{option}: expected lags of {list(signals)}, got some of {unknown}")
    return found


def _refuse_both(given: Mapping[str, Any], lags: str, orders: Sequence[str]) -> None:
    both = [name for name in orders if given[name] is not None]
    if given[lags] is not None and both:
        raise ValueError(f"{lags}={given[lags]!r} and {both[0]}={given[both[0]]!r} say the same twice: leave one out")
