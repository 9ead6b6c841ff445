"""Lags as numbers na, nb, nk, as MATLAB's ``nlarx`` and ``arx`` take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

from sysid.narx import Narx

Order: TypeAlias = int | Sequence[int]


@dataclass(frozen=True)
class Orders:
    """Number of lags of the outputs and inputs, and the delay of the inputs.

    An output has the lags ``1, ..., na``, an input the lags ``nk, ..., nk + nb - 1``:
    ``y[k] = f(y[k-1], ..., y[k-na], u[k-nk], ..., u[k-nk-nb+1])``. A number serves all signals; a list has one for
    each output or input. A signal of order 0 has no lags. All models of several outputs share the regressors; where
    MATLAB's matrices tell one output from the other, each has a `Narx` of its own.

    Raises
    ------
    ValueError
        Orders that are not whole numbers of at least 0.

    Examples
    --------
    >>> Orders(na=2, nb=[2, 1], nk=[1, 0]).narx(["y"], ["u", "v"]).feature_names
    ('y[k-1]', 'y[k-2]', 'u[k-1]', 'u[k-2]', 'v[k]')
    """

    na: Order = 2  # lags of each output
    nb: Order = 2  # lags of each input
    nk: Order = 1  # first lag of each input, samples; 0: the input acts at once
    target: str = ""  # output to predict; empty: the first
    predict: str = "change"  # change y[k] - y[k-1], or value y[k]
    on_missing: str = "error"  # error, or skip

    def __post_init__(self) -> None:
        for name in ("na", "nb", "nk"):
            value = getattr(self, name)
            if isinstance(value, Sequence) and not isinstance(value, str):
                value = tuple(value)
                object.__setattr__(self, name, value)
            for order in value if isinstance(value, tuple) else (value,):
                if isinstance(order, bool) or not isinstance(order, Integral) or order < 0:
                    raise ValueError(
                        f"Orders: {name} must be a whole number of at least 0, or a list of them, got {value!r}"
                    )

    def narx(self, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
        """Lags of these outputs and inputs.

        Raises
        ------
        ValueError
            A list of another length, or what `Narx` refuses: no lags at all, for example.
        """
        target = self.target or outputs[0]
        past = {name: lags for name, lags in self.output_lags(outputs).items() if lags or name == target}
        return Narx(
            past,
            {name: lags for name, lags in self.input_lags(inputs).items() if lags},
            target,
            predict=self.predict,  # type: ignore[arg-type]
            on_missing=self.on_missing,  # type: ignore[arg-type]
        )

    def output_lags(self, outputs: Sequence[str]) -> dict[str, list[int]]:
        """Lags of every output, empty for order 0."""
        na = _of_each("na", self.na, outputs, "outputs")
        return {name: list(range(1, n + 1)) for name, n in zip(outputs, na, strict=True)}

    def input_lags(self, inputs: Sequence[str]) -> dict[str, list[int]]:
        """Lags of every input, empty for order 0."""
        nb, nk = (_of_each(name, getattr(self, name), inputs, "inputs") for name in ("nb", "nk"))
        return {name: list(range(k, k + n)) for name, n, k in zip(inputs, nb, nk, strict=True)}


def _of_each(name: str, order: Order, signals: Sequence[str], kind: str) -> tuple[int, ...]:
    """The order of every signal."""
    found = tuple(order) if isinstance(order, Sequence) else (int(order),) * len(signals)
    if len(found) != len(signals):
        raise ValueError(
            f"Orders: expected one number {name} for all {kind}, or one for each of {list(signals)}, got {list(found)}"
        )
    return found
