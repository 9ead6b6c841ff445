"""Times of an excitation in whole samples."""

import math
from numbers import Real
from typing import Any

WHOLE = 1e-6  # samples by which a time may miss a whole number, for rounding


def check_sampling(n_samples: int, dt: float) -> None:
    """Raise ValueError unless a number of samples is a positive integer and `dt` [s] is positive."""
    if not isinstance(n_samples, int) or isinstance(n_samples, bool) or n_samples < 1:
        raise ValueError(f"n_samples={n_samples!r}: expected an integer >= 1; change n_samples")
    if not isinstance(dt, Real) or isinstance(dt, bool) or not (math.isfinite(dt) and dt > 0):
        raise ValueError(f"dt={dt!r}: expected a sampling interval > 0 s; change dt")


def given_interval(owner: Any, dt: float | None) -> float:
    """Return the sampling interval [s]; raise ValueError if it was left out where it is needed."""
    if dt is None:
        raise ValueError(f"{type(owner).__name__}: expected dt, the period is set in seconds; give period_samples a dt")
    return dt


def whole_samples(owner: Any, name: str, dt: float) -> int:
    """Return a time of an excitation in samples.

    Parameters
    ----------
    owner : object
        Settings object that holds the time.
    name : str
        Name of the field with the time [s].
    dt : float
        Sampling interval [s].

    Returns
    -------
    int
        Number of samples, at least 1.

    Raises
    ------
    ValueError
        If the time is shorter than a sample or no whole multiple of it; the error names the multiples near it.
    """
    time = getattr(owner, name)
    ratio = time / dt
    count = round(ratio)
    if count >= 1 and abs(ratio - count) <= WHOLE * max(1.0, 0.01 * count):
        return count
    near = sorted({max(math.floor(ratio), 1), max(math.ceil(ratio), 1)})
    advice = " or ".join(f"{multiple * dt:.9g}" for multiple in near)
    raise ValueError(
        f"{type(owner).__name__}({name}={time!r}): expected a whole multiple of the sampling interval dt={dt:.9g} s, "
        f"at least one, got {ratio:.6g} samples; set {name} to {advice} s"
    )


def first_sample(time: float, dt: float) -> int:
    """Return the first sample at or after a time [s]."""
    return math.ceil(time / dt - WHOLE)
