"""The setting that gives a NARX model a linear part with a long memory, and when it has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import Any

from sysid.arrays import is_number, member
from sysid.errors import UserError, UserTypeError
from sysid.gp.linear_part import (
    CoefficientDecay,
    Diagonal,
    SecondOrderSpline,
    StableSpline,
    TunedCorrelated,
)
from sysid.narx.lags import MAX_LAG, Narx, Target

#: Smallest number of lags of each signal that is chosen automatically.
MIN_AUTOMATIC_LAGS = 14

#: The automatic number of lags is at least this many times the largest lag of the Gaussian process.
AUTOMATIC_LAGS_PER_LAG = 2

#: Largest number of lags of each signal that is chosen automatically.
MAX_AUTOMATIC_LAGS = 20

#: Kernels of the coefficients by the names that settings use.
DECAYS: dict[str, type[CoefficientDecay]] = {
    "tuned_correlated": TunedCorrelated,
    "second_order": SecondOrderSpline,
    "diagonal": Diagonal,
}


class LinearPartKind(Enum):
    """Whether a model has a linear part."""

    auto = "auto"  # where nothing speaks against it
    stable_spline = "stable_spline"
    none = "none"


@dataclass(frozen=True)
class LinearPart:
    """Linear part of a NARX model, beside the Gaussian process of few lags.

    ``y[k] = phi[k]'theta + f(x[k]) + e[k]`` with the lags x of the `Narx`, and phi the lags of the
    linear part. The prior of theta and its learning are those of `sysid.StableSpline`.

    Parameters
    ----------
    kind : "auto", "stable_spline" or "none"
        "auto" is "stable_spline", except with ``learning="stored"``, for a static function, beside
        a given mean function that is linear (such as that of a physical model), and with a training
        that does not estimate it.
    lags : "auto", int or mapping
        Number of lags of each signal, from the first lag that the `Narx` names: one number for all
        signals, or a number by name of the signal; signals that are left out have no linear part.
        "auto": twice the largest lag that the `Narx` names, at least 14 and at most 20.
    decay : CoefficientDecay or str
        Kernel of the coefficients: "tuned_correlated", "second_order" or "diagonal".

    Raises
    ------
    ValueError, TypeError
        If a setting has no meaning.
    """

    kind: LinearPartKind | str = LinearPartKind.auto
    lags: int | str | Mapping[str, int] = "auto"
    decay: CoefficientDecay | str = "tuned_correlated"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", member(LinearPartKind, self.kind, "LinearPart: kind"))
        lags: Any = self.lags
        if isinstance(lags, Mapping):
            lags = tuple(lags.items())
            object.__setattr__(self, "lags", lags)
        numbers = [number for _, number in lags] if isinstance(lags, tuple) else [lags]
        for number in numbers:
            is_whole = is_number(number, Integral)
            if number != "auto" and not (is_whole and 1 <= number <= MAX_LAG):
                raise UserError(
                    "LinearPart: lags must be auto, or a whole number of at least 1 and at most "
                    f"{MAX_LAG} for all signals or for each, got {number!r}"
                )
        decay = self.decay
        if isinstance(decay, str):
            if decay not in DECAYS:
                raise UserError(
                    f"LinearPart: decay must be one of {', '.join(DECAYS)}, got {decay!r}"
                )
            object.__setattr__(self, "decay", DECAYS[decay]())
        elif not isinstance(decay, CoefficientDecay):
            raise UserTypeError(
                f"LinearPart: decay must be a CoefficientDecay or its name, got {decay!r}"
            )

    def added_to(self, narx: Narx, obstacle: str | None) -> Narx:
        """Return the lags with those of the linear part, or without one if `kind` is "none".

        Parameters
        ----------
        narx : Narx
            Lags of a linear part that it has already stay.
        obstacle : str or None
            What speaks against a linear part in these settings; None: nothing does.

        Raises
        ------
        ValueError
            There is an obstacle, but a linear part is demanded; or `lags` names a signal that the
            `Narx` does not have.
        """
        if self.kind is LinearPartKind.none:
            return narx.without_linear()
        if narx.linear:
            return narx
        if obstacle is None and narx.max_lag == 0:
            obstacle = "all lags are 0, so that the function is static"
        if obstacle is not None:
            if self.kind is LinearPartKind.stable_spline:
                raise UserError(
                    f"linear_part=stable_spline: {obstacle}; take linear_part=auto or none"
                )
            return narx
        return narx.with_linear(self._lags_of(narx))

    def _lags_of(self, narx: Narx) -> dict[str, range]:
        """Return the lags of every signal in the linear part."""
        of_signals: dict[str, range] = {}
        given: Any = dict(self.lags) if isinstance(self.lags, tuple) else self.lags
        if isinstance(given, dict):
            unknown = sorted(set(given) - set(narx.signals))
            if unknown:
                raise UserError(
                    f"LinearPart: lags of {unknown}, expected signals among {list(narx.signals)}"
                )
        for name, lags in narx.lags.items():
            number = given.get(name) if isinstance(given, dict) else given
            if not lags or number is None:
                continue
            if number == "auto":
                number = AUTOMATIC_LAGS_PER_LAG * max(lags)
                number = min(max(number, MIN_AUTOMATIC_LAGS), MAX_AUTOMATIC_LAGS)
            first = min(lags)
            of_signals[name] = range(first, first + number)
        return of_signals

    def prototype(self, narx: Narx) -> StableSpline:
        """Return the kernel of the linear part of these lags, whose hyper-parameters are open."""
        assert isinstance(self.decay, CoefficientDecay)  # names were replaced
        n_lags = {name: len(lags) for name, lags in narx.linear_lags.items()}
        predicts_change = narx.predict is Target.change and n_lags.get(narx.target, 0) > 1
        differenced = [list(n_lags).index(narx.target)] if predicts_change else []
        return StableSpline(list(n_lags.values()), differenced=differenced, decay=self.decay)
