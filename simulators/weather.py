"""Sources of the ambient temperature.

They are a synthetic climate, measured hourly records, and EnergyPlus weather files.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulators.errors import UserError
from simulators.noise import random_stream
from simulators.settings import (
    MAX_SIGNAL_SAMPLES,
    Array,
    check_finite,
    check_not_negative,
    check_positive,
    find_file,
    parse_number,
    read_csv,
    read_lines,
    refuse,
)
from simulators.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_YEAR


class Weather(ABC):
    """Ambient temperature over time; time zero is midnight before the first day of the year."""

    @abstractmethod
    def temperature(self, time: ArrayLike, *, seed: int = 0) -> Array:
        """Return the ambient temperature.

        Parameters
        ----------
        time : (n,) array_like
            Times since the start [s], not negative.
        seed : int, optional
            Seed of the run; a synthetic weather draws from its weather stream, a record ignores it.

        Returns
        -------
        (n,) array
            Ambient temperature [degC].
        """


def check_times(time: ArrayLike) -> Array:
    """Return times [s] as an array; raise ValueError unless they are finite and not negative."""
    t = np.asarray(time, dtype=np.float64)
    if not np.all(np.isfinite(t)) or np.any(t < 0):
        raise UserError(
            f"weather: expected finite times >= 0 s, got {t}; measure time from the start"
        )
    return t


@dataclass(frozen=True)
class SyntheticWeather(Weather):
    """Ambient temperature of a Central European climate.

    ::

        Ta(t)   = mean - A_year cos(2 pi (t - t_cold) / year)
                  + A_day cos(2 pi (t - t_warm) / day) + z(t)
        z_{i+1} = a z_i + sqrt(1 - a^2) std xi_i,   a = exp(-1 h / tau),   xi_i ~ N(0, 1)
        z_0     ~ N(0, std^2)

    z is a stationary Ornstein-Uhlenbeck process. It is discretised exactly at full hours, and
    linear between them: the weather of a seed depends neither on the sampling nor on the duration
    of a simulation.

    Raises
    ------
    ValueError
        If an amplitude or the standard deviation is negative, the correlation time is not positive
        or another field is not finite.

    Notes
    -----
    The defaults follow measured years of Potsdam: mean 8.3 to 9.5 degC, annual amplitude 9 to 12 K,
    daily amplitude 3 K, the rest with standard deviation 4.2 K and correlation 0.38 to 0.5 after
    two days.
    """

    mean: float = 9.0  # degC
    annual_amplitude: float = 10.0  # K
    coldest_day: float = 15.0  # days after the start of the year
    daily_amplitude: float = 3.0  # K
    warmest_hour: float = 14.0  # h after midnight
    weather_std: float = 4.0  # stationary standard deviation of z, K
    correlation_hours: float = 60.0  # tau, h

    def __post_init__(self) -> None:
        check_not_negative(self, "annual_amplitude", "daily_amplitude", "weather_std")
        check_finite(self, "mean", "coldest_day", "warmest_hour")
        check_positive(self, "correlation_hours")

    def temperature(self, time: ArrayLike, *, seed: int = 0) -> Array:
        """Return the ambient temperature [degC] at times [s]; equation in the class.

        Raises
        ------
        ValueError
            If there are more hours than fit into memory.
        """
        t = check_times(time)
        coldest = SECONDS_PER_DAY * self.coldest_day
        warmest = SECONDS_PER_HOUR * self.warmest_hour
        annual = self.annual_amplitude * np.cos(2 * np.pi * (t - coldest) / SECONDS_PER_YEAR)
        daily = self.daily_amplitude * np.cos(2 * np.pi * (t - warmest) / SECONDS_PER_DAY)
        n_hours = math.ceil(np.max(t, initial=0.0) / SECONDS_PER_HOUR) + 1
        if n_hours > MAX_SIGNAL_SAMPLES:
            raise UserError(
                f"weather: expected times of at most {MAX_SIGNAL_SAMPLES} hours, got "
                f"{n_hours:.3g} hours; simulate fewer samples, or a smaller dt"
            )
        hourly = self._draw_hours(n_hours, seed)
        z = np.interp(t, SECONDS_PER_HOUR * np.arange(n_hours), hourly)
        return self.mean - annual + daily + z

    def _draw_hours(self, n_hours: int, seed: int) -> Array:
        """Return z at the first full hours [K]; longer paths begin with the shorter ones."""
        a = math.exp(-1.0 / self.correlation_hours)
        shocks = self.weather_std * random_stream(seed, "weather").standard_normal(n_hours)
        shocks[1:] *= math.sqrt(1.0 - a * a)
        return np.array(list(accumulate(shocks, lambda z, shock: a * z + shock)))


# Year in which the dates of a record with a leap day are counted. Those of other records are
# counted in the year after it, which is an ordinary one.
LEAP_YEAR = 2000

# Range of temperatures that is wider than any weather on earth, degC.
MIN_TEMPERATURE = -90.0
MAX_TEMPERATURE = 60.0

# Rows of an hourly record, at most: 57 years.
MAX_HOURS = 500_000

# Whole numbers in a record are at most this large.
MAX_WHOLE_NUMBER = 1e6


class Row(NamedTuple):
    """Row of an hourly record."""

    location: str  # file and line, for errors
    cells: list[str]


@dataclass(frozen=True)
class HourlyWeather(Weather):
    """Ambient temperature of a file with one row per hour, linear between the rows.

    Row i is at i hours. The last row holds for one more hour.
    """

    path: str | None = None  # file with the record

    @abstractmethod
    def read_rows(self, path: Path) -> tuple[list[Row], Sequence[float], int]:
        """Return the rows of the file, their hours, and the column with the temperature [degC].

        The hours may count from any start.
        """

    def temperature(self, time: ArrayLike, *, seed: int = 0) -> Array:
        """Interpolate the record; raise ValueError if it ends before the last time."""
        rows, hours, column = self.read_rows(find_file(self))
        check_hourly(rows, hours)
        temperature = [parse_temperature(row, column) for row in rows]
        t = check_times(time)
        end = np.max(t, initial=0.0)
        if end > SECONDS_PER_HOUR * len(rows):
            covered = f"covers {len(rows) / 24:.6g} days"
            needed = f"{end / SECONDS_PER_DAY:.6g} days or a shorter simulation"
            raise refuse(self, "path", f"a record of {needed}, it {covered}")
        return np.interp(t, SECONDS_PER_HOUR * np.arange(len(rows)), temperature)


def parse_temperature(row: Row, column: int) -> float:
    """Return the temperature [degC] in a cell.

    Raises
    ------
    ValueError
        If there is none; the message names file and line.
    """
    cell = row.cells[column]
    value = parse_number(cell)
    if not math.isfinite(value):
        raise UserError(
            f"{row.location}: the temperature is missing, got {cell!r:.60}; "
            "repair it or change column"
        )
    if not MIN_TEMPERATURE <= value <= MAX_TEMPERATURE:
        raise UserError(
            f"{row.location}: expected a temperature from {MIN_TEMPERATURE:g} "
            f"to {MAX_TEMPERATURE:g} degC, got {cell:.60}; convert the record to degC"
        )
    return value


def parse_whole(row: Row, column: int) -> int:
    """Return the whole number in a cell.

    Raises
    ------
    ValueError
        If there is none; the message names file and line.
    """
    cell = row.cells[column]
    number = parse_number(cell)
    if not (number.is_integer() and abs(number) <= MAX_WHOLE_NUMBER):
        raise UserError(
            f"{row.location}: expected a whole number, got {cell!r:.60}; repair the row"
        )
    return int(number)


def count_hours(rows: Sequence[Row], columns: Sequence[int]) -> list[int]:
    """Return the hours of rows with month, day and hour.

    The calendar has a leap day only if the record has one.

    Parameters
    ----------
    rows : sequence of Row
        Rows of the record; their hours run from 0 to 23 or from 1 to 24.
    columns : sequence of int
        Columns of month, day and hour.

    Returns
    -------
    list of int
        Hours since the start of the first year. The year of a row is chosen such that the row is
        as close as possible to one hour after the row before.

    Raises
    ------
    ValueError
        If a cell is no whole number or a date does not exist.
    """
    dates = [[parse_whole(row, column) for column in columns] for row in rows]
    has_leap_day = any((month, day) == (2, 29) for month, day, _ in dates)
    year = LEAP_YEAR if has_leap_day else LEAP_YEAR + 1
    hours_per_year = 24 * (366 if has_leap_day else 365)
    hours: list[int] = []
    for row, (month, day, hour) in zip(rows, dates, strict=True):
        try:
            day_of_year = date(year, month, day).timetuple().tm_yday
        except ValueError:
            raise UserError(
                f"{row.location}: month {month}, day {day} is no date; repair the row"
            ) from None
        if not 0 <= hour <= 24:
            raise UserError(
                f"{row.location}: expected an hour from 0 to 24, got {hour}; repair the row"
            )
        hour_of_year = 24 * (day_of_year - 1) + hour
        n_years = 0
        if hours:
            n_years = round((hours[-1] + 1 - hour_of_year) / hours_per_year)
        hours.append(hour_of_year + n_years * hours_per_year)
    return hours


def check_hourly(rows: Sequence[Row], hours: Sequence[float]) -> None:
    """Raise ValueError, naming file and line, unless each row is one hour after the one before."""
    for row, (before, after) in zip(rows[1:], pairwise(hours), strict=True):
        if after - before != 1:
            raise UserError(
                f"{row.location}: expected one hour after the row before, "
                f"got {after - before:g} hours: a gap, a repeated hour or another sampling; "
                "repair the record"
            )


# Names of columns with the temperature, in small letters.
TEMPERATURE_COLUMNS = (
    "temp_air",
    "temp_air_c",
    "air_temperature",
    "ambient_temperature",
    "outdoor_temperature",
    "dry_bulb",
    "dry_bulb_temperature",
    "drybulb",
    "tdb",
    "temperature",
    "temperature_c",
    "temp",
    "temp_c",
    "t2m",
)

# Names of columns with ISO times, in small letters.
TIME_COLUMNS = ("time", "datetime", "date_time", "timestamp")


@dataclass(frozen=True)
class MeasuredWeather(HourlyWeather):
    """Ambient temperature of an hourly CSV file with one header line, linear between the rows.

    Row i is at i hours. The last row holds for one more hour. Columns of time are only used to find
    gaps: ISO times (``time``, ``datetime``, ``date_time``, ``timestamp``), else ``month``, ``day``
    and ``hour`` (or ``hour_...``; a year is not used), else a running ``hour``.

    Raises
    ------
    ValueError
        On use: if the path is not given, the column is missing or ambiguous, a cell is empty, text
        or not physical, hours are missing or repeated, or the record is too short.
    FileNotFoundError
        On use: if there is no such file.
    """

    #: column with the temperature in degC; None: the one with a known name
    column: str | None = None

    def read_rows(self, path: Path) -> tuple[list[Row], Sequence[float], int]:
        """Read a CSV file."""
        header, lines = read_csv(path, MAX_HOURS)
        rows = [Row(f"{path}, line {i}", cells) for i, cells in enumerate(lines, start=2)]
        for location, cells in rows:
            if len(cells) != len(header):
                raise UserError(
                    f"{location}: expected {len(header)} cells, got {len(cells)}; repair the row"
                )
        column = self._find_column(header)
        return rows, _read_hours(header, rows), column

    def _find_column(self, header: list[str]) -> int:
        """Return the position of the column with the temperature."""
        if self.column is not None:
            columns = [i for i, name in enumerate(header) if name == self.column]
        else:
            columns = [i for i, name in enumerate(header) if name.lower() in TEMPERATURE_COLUMNS]
        if len(columns) == 1:
            return columns[0]
        raise refuse(
            self,
            "column",
            f"one column, found it {len(columns)} times; set column to one of {header!s:.500}",
        )


def _read_hours(header: list[str], rows: list[Row]) -> Sequence[float]:
    """Return the hours of the rows by their columns of time; without any, count the rows."""
    names = ["hour" if name.lower().startswith("hour_") else name.lower() for name in header]
    time_columns = [i for i, name in enumerate(names) if name in TIME_COLUMNS]
    if time_columns:
        return _read_instants(rows, time_columns[0])
    if {"month", "day", "hour"} <= set(names):
        return count_hours(rows, [names.index(name) for name in ("month", "day", "hour")])
    if "hour" in names:
        return [parse_whole(row, names.index("hour")) for row in rows]
    return range(len(rows))


def _read_instants(rows: list[Row], column: int) -> list[float]:
    """Return ISO times as hours since the first one."""
    instants = []
    for location, cells in rows:
        try:
            instants.append(datetime.fromisoformat(cells[column].strip()))
        except ValueError:
            raise UserError(
                f"{location}: expected an ISO time such as 2010-01-01T00:00, "
                f"got {cells[column]!r:.60}; repair or drop the column"
            ) from None
    try:
        return [(instant - instants[0]).total_seconds() / SECONDS_PER_HOUR for instant in instants]
    except TypeError:
        raise UserError(
            f"{rows[0].location}: expected all times with or all without a time zone; unify them"
        ) from None


N_EPW_HEADER_LINES = 8

# Columns of a row of an EPW file.
MONTH_COLUMN = 1
DAY_COLUMN = 2
HOUR_COLUMN = 3
DRY_BULB_COLUMN = 6

# Marks of a missing dry-bulb temperature in an EPW file.
MISSING_TEMPERATURE_MARKS = ("99.9", "99.90")


@dataclass(frozen=True)
class EpwWeather(HourlyWeather):
    """Dry-bulb temperature of an EPW file, linear between the rows.

    The file has eight header lines, then one row per hour.

    Raises
    ------
    ValueError
        On use: if the path is not given, the file is no hourly EPW file, a value is missing or not
        physical, hours are missing or repeated, or the record is too short.
    FileNotFoundError
        On use: if there is no such file.

    Notes
    -----
    Format: EnergyPlus, Auxiliary Programs, section "EnergyPlus Weather File (EPW) Data Dictionary".
    """

    def read_rows(self, path: Path) -> tuple[list[Row], Sequence[float], int]:
        """Read an EPW file."""
        header, lines = read_lines(path, "latin-1", N_EPW_HEADER_LINES, MAX_HOURS)
        rows = []
        for number, cells in enumerate(lines, start=N_EPW_HEADER_LINES + 1):
            if cells:
                rows.append(Row(f"{path}, line {number}", cells))
        if not rows or not header[0].upper().startswith("LOCATION"):
            raise UserError(
                f"{path}: expected an EPW file: LOCATION, {N_EPW_HEADER_LINES - 1} more header "
                "lines, then hourly rows; for other files use MeasuredWeather"
            )
        for location, cells in rows:
            if len(cells) <= DRY_BULB_COLUMN:
                raise UserError(
                    f"{location}: expected more than {DRY_BULB_COLUMN} cells, "
                    f"got {len(cells)}; repair the row"
                )
            if cells[DRY_BULB_COLUMN].strip() in MISSING_TEMPERATURE_MARKS:
                raise UserError(
                    f"{location}: the dry-bulb temperature is missing "
                    f"({MISSING_TEMPERATURE_MARKS[0]}); fill the gap"
                )
        hours = count_hours(rows, (MONTH_COLUMN, DAY_COLUMN, HOUR_COLUMN))
        return rows, hours, DRY_BULB_COLUMN
