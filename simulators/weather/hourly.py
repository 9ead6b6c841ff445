"""Hourly records of the ambient temperature: checks of their rows and interpolation."""

import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.weather.weather import checked_times

HOUR = 3600.0  # s
LEAP_YEAR = 2000  # any leap year followed by an ordinary one
LOWEST, HIGHEST = -90.0, 60.0  # degC, wider than any weather on earth


def existing_file(path: str | None, owner: str) -> Path:
    """Return the path of a record.

    Raises
    ------
    ValueError
        If no path was given.
    FileNotFoundError
        If there is no such file.
    """
    if path is None:
        raise ValueError(f"{owner}(path=None): expected a file; set path, for example weather.path=year.csv")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{owner}(path={path!r}): no such file from {Path.cwd()}; change path")
    return Path(path)


def parse_temperature(cell: str, place: str) -> float:
    """Return the temperature [degC] in a cell; raise ValueError, naming the place, if there is none."""
    try:
        value = float(cell)
    except ValueError:
        raise ValueError(
            f"{place}: expected a temperature in degC, got {cell!r}; repair the row or choose another column"
        ) from None
    if not math.isfinite(value):
        raise ValueError(f"{place}: the temperature is missing ({cell!r}); fill the gap in the record")
    if not LOWEST <= value <= HIGHEST:
        raise ValueError(
            f"{place}: expected a temperature from {LOWEST:g} to {HIGHEST:g} degC, got {cell}; convert the "
            "record to degC or mark the gap"
        )
    return value


def parse_whole(cell: str, place: str) -> int:
    """Return the whole number in a cell; raise ValueError, naming the place, if there is none."""
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"{place}: expected a whole number, got {cell!r}; repair the row")
    return int(number)


def calendar_hours(cells: Sequence[tuple[str, str, str]], places: Sequence[str]) -> list[int]:
    """Count the hours of (month, day, hour) on a calendar with a leap day only if the record has one.

    Parameters
    ----------
    cells : sequence of (str, str, str)
        Month, day, hour per row; hours run from 0 to 23 or from 1 to 24.
    places : sequence of str
        Where each row is, for the error.

    Returns
    -------
    list of int
        Hours since the start of the first year. The turn of the year is found by taking each step as
        the one nearest to one hour.

    Raises
    ------
    ValueError
        If a cell is no whole number or a date does not exist.
    """
    dates = [
        (parse_whole(month, place), parse_whole(day, place), parse_whole(hour, place))
        for (month, day, hour), place in zip(cells, places, strict=True)
    ]
    year = LEAP_YEAR if (2, 29) in {row[:2] for row in dates} else LEAP_YEAR + 1
    period = 24 * (366 if year == LEAP_YEAR else 365)
    hours: list[int] = []
    for row, place in zip(dates, places, strict=True):
        count = _hour_of_year(year, *row, place)
        turns = round((hours[-1] + 1 - count) / period) if hours else 0
        hours.append(count + turns * period)
    return hours


def _hour_of_year(year: int, month: int, day: int, hour: int, place: str) -> int:
    """Count the hours since the start of the year; raise ValueError, naming the place, if impossible."""
    try:
        day_of_year = date(year, month, day).timetuple().tm_yday
    except ValueError:
        raise ValueError(f"{place}: month {month}, day {day} is no date; repair the row") from None
    if not 0 <= hour <= 24:
        raise ValueError(f"{place}: expected an hour from 0 to 24, got {hour}; repair the row")
    return 24 * (day_of_year - 1) + hour


def check_hourly(hours: Sequence[float], places: Sequence[str]) -> None:
    """Raise ValueError, naming the place, unless each row is one hour after the one before."""
    for before, after, place in zip(hours[:-1], hours[1:], places[1:], strict=True):
        if after - before != 1:
            raise ValueError(
                f"{place}: expected one hour after the row before, got {after - before:g} hours: the record "
                "has a gap, a repeated hour or another sampling; bring it to one row per hour"
            )


def at_times(temperature: NDArray[np.float64], time: ArrayLike, source: str) -> NDArray[np.float64]:
    """Interpolate an hourly record linearly; row i is at i hours, the last one holds for an hour.

    Parameters
    ----------
    temperature : (n,) array
        Hourly temperatures [degC].
    time : (m,) array_like
        Times since the first row [s].
    source : str
        What the record is, for the error.

    Returns
    -------
    (m,) array
        Temperatures [degC].

    Raises
    ------
    ValueError
        If the record ends before the last time.
    """
    t = checked_times(time)
    end = np.max(t, initial=0.0)
    if end > HOUR * len(temperature):
        raise ValueError(
            f"{source}: the record covers {len(temperature) / 24:.6g} days, {end / 86400:.6g} days are "
            "needed; simulate a shorter time or give a longer record"
        )
    return np.interp(t, HOUR * np.arange(len(temperature)), temperature)
