"""Records at equal steps from samples at unequal ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sysid.errors import UserError
from sysid.narx.record import Array

#: Between two samples that are further apart than this many usual steps, or new steps if these are
#: longer, there is nothing to interpolate [-].
MAX_BRIDGED_STEPS = 5

#: From this ratio of the new step to the usual one, the signal is averaged over each new step [-].
MIN_AVERAGED_RATIO = 2.0


def check_resample(step: float | None) -> None:
    """Raise UserError unless a step is a number of seconds, or None."""
    is_number = isinstance(step, int | float | np.number) and not isinstance(step, bool)
    if step is not None and not (is_number and 0 < float(step) < math.inf):
        raise UserError(f"resample={step!r} must be a finite number of seconds > 0")


def resample_rows(
    times: Array, values: Mapping[str, Array], step: float
) -> tuple[Array, dict[str, Array], str]:
    """Interpolate signals at equal steps.

    The signal between two samples is a line. Where the new step is at least twice the usual one,
    its mean over the new step around each new sample is taken, so that nothing faster folds back.

    Parameters
    ----------
    times
        Increasing times (n,) [s].
    values
        Signals (n,) by name; nan where a value is missing, which no line crosses.
    step
        New step [s].

    Returns
    -------
    tuple
        New times (m,), the signals (m,), nan where there is nothing to interpolate, and how it was
        done, in words.

    Raises
    ------
    ValueError
        There would be more samples than ten times those that are there and a thousand more.
    """
    usual = float(np.median(np.diff(times)))
    n_new = math.floor((times[-1] - times[0]) / step * (1 + 1e-12)) + 1
    if n_new > 10 * len(times) + 1000:
        raise UserError(
            f"resample={step:.9g} s would make {n_new} samples of {len(times)}: expected a step of "
            f"the order of the usual one, {usual:.4g} s"
        )
    new_times = times[0] + step * np.arange(n_new)
    is_averaged = step >= MIN_AVERAGED_RATIO * usual
    longest = MAX_BRIDGED_STEPS * max(usual, step)
    resampled = {}
    for name, signal in values.items():
        is_known = np.isfinite(signal)
        known_times = times[is_known]
        known = signal[is_known]
        if len(known) < 2:
            resampled[name] = np.full(n_new, np.nan)
            continue
        if is_averaged:
            new = _mean_around(known_times, known, new_times, step)
        else:
            new = np.interp(new_times, known_times, known)
        after = np.searchsorted(known_times, new_times - 1e-9 * step)
        after = np.clip(after, 1, len(known_times) - 1)
        distance = known_times[after] - known_times[after - 1]
        is_hit = np.isclose(known_times[after], new_times, rtol=0, atol=1e-9 * step)
        is_outside = (new_times < known_times[0] - step) | (new_times > known_times[-1] + step)
        new[((distance > longest) & ~is_hit) | is_outside] = np.nan
        resampled[name] = new
    how = "means over each step of lines between the samples" if is_averaged else "lines"
    note = (
        f"resampled from {len(times)} samples, whose usual step is {usual:.4g} s, to {n_new} "
        f"samples every {step:.9g} s ({how}; nothing across {longest:.4g} s or more)"
    )
    return new_times, resampled, note


def _mean_around(times: Array, signal: Array, centres: Array, width: float) -> Array:
    """Return the means of a line through samples over windows around centres."""
    areas = 0.5 * (signal[1:] + signal[:-1]) * np.diff(times)
    integral = np.concatenate([[0.0], np.cumsum(areas)])

    def integrate(until: Array) -> Array:
        i = np.clip(np.searchsorted(times, until, side="right") - 1, 0, len(times) - 2)
        part = until - times[i]
        slope = (signal[i + 1] - signal[i]) / (times[i + 1] - times[i])
        return np.asarray(integral[i] + signal[i] * part + 0.5 * slope * part**2)

    low = np.clip(centres - width / 2, times[0], times[-1])
    high = np.clip(centres + width / 2, times[0], times[-1])
    is_empty = high <= low
    length = np.where(is_empty, 1.0, high - low)
    means = (integrate(high) - integrate(low)) / length
    return np.where(is_empty, np.nan, means)
