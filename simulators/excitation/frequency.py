"""Frequencies of an excitation: checked bands, and what a sampling interval can carry."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from simulators.settings import refuse

Band = tuple[float, float]


def checked_band(owner: Any, name: str = "band") -> Band | None:
    """Return a band (f_low, f_high) [Hz] as a tuple of floats, None if there is none.

    Raises
    ------
    ValueError
        Unless there are two finite frequencies with 0 <= f_low < f_high.
    """
    band = getattr(owner, name)
    if band is None:
        return None
    expected = refuse(owner, name, "two frequencies [f_low, f_high] in Hz with 0 <= f_low < f_high, or null")
    if not isinstance(band, Sequence) or isinstance(band, str) or len(band) != 2:
        raise expected
    for frequency in band:
        if not isinstance(frequency, Real) or isinstance(frequency, bool) or not math.isfinite(frequency):
            raise expected
    if not 0 <= band[0] < band[1]:
        raise expected
    return float(band[0]), float(band[1])


def check_below_nyquist(owner: Any, name: str, frequency: float, dt: float) -> None:
    """Raise ValueError unless a frequency [Hz] is below half the sampling frequency."""
    nyquist = 0.5 / dt
    if not frequency < nyquist * (1 - 1e-12):
        raise ValueError(
            f"{type(owner).__name__}({name}={getattr(owner, name)!r}): expected frequencies below the Nyquist "
            f"frequency 1/(2 dt) = {nyquist:.9g} Hz at dt={dt:.9g} s, got {frequency:.9g} Hz; lower {name} "
            "or sample faster"
        )
