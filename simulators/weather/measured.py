"""Weather from a measured hourly record in a CSV file."""

import csv
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.weather.hourly import (
    at_times,
    calendar_hours,
    check_hourly,
    existing_file,
    parse_temperature,
    parse_whole,
)
from simulators.weather.weather import Weather

TEMPERATURE_COLUMNS = (
    "temp_air",
    "temp_air_c",
    "air_temperature",
    "ambient_temperature",
    "outdoor_temperature",
    "dry_bulb",
    "dry_bulb_temperature",
    "drybulb",
    "temperature",
    "temperature_c",
    "temp",
    "temp_c",
    "t2m",
    "tdb",
)
TIME_COLUMNS = ("time", "datetime", "date_time", "timestamp")


@dataclass(frozen=True)
class MeasuredWeather(Weather):
    """Ambient temperature of an hourly CSV file with one header line, linear between the rows.

    Row i is at i hours, the last row holds for one more hour. Columns of time are not used to place the
    rows but to find gaps: ISO times (``time``, ``datetime``, ``date_time``, ``timestamp``), else
    ``month``, ``day`` and ``hour`` (or ``hour_...``; a year is not used), else a running ``hour``.

    Raises
    ------
    ValueError
        On use: if the path is not given, the column is missing or ambiguous, a cell is empty, text or
        not physical, hours are missing or repeated, or the record is too short.
    FileNotFoundError
        On use: if there is no such file.
    """

    path: str | None = None  # CSV file
    column: str | None = None  # column with the temperature in degC; None: the one with a known name

    def temperature(self, time: ArrayLike, *, seed: int = 0) -> NDArray[np.float64]:
        """Return the ambient temperature [degC] at times [s]; see `Weather.temperature`."""
        return at_times(self._record(), time, f"MeasuredWeather(path={self.path!r})")

    def _record(self) -> NDArray[np.float64]:
        """Read the checked hourly temperatures [degC]."""
        path = existing_file(self.path, type(self).__name__)
        header, rows, places = _read_table(path)
        index = self._find_column(header)
        check_hourly(_hours(header, rows, places), places)
        return np.array([parse_temperature(row[index], place) for row, place in zip(rows, places, strict=True)])

    def _find_column(self, header: list[str]) -> int:
        """Return the position of the column with the temperature."""
        if self.column is not None:
            found = [i for i, name in enumerate(header) if name == self.column]
        else:
            found = [i for i, name in enumerate(header) if name.lower() in TEMPERATURE_COLUMNS]
        if len(found) == 1:
            return found[0]
        wanted = "a column with a known name of a temperature" if self.column is None else "that column"
        raise ValueError(
            f"MeasuredWeather(path={self.path!r}, column={self.column!r}): expected {wanted} once, found it "
            f"{len(found)} times; set column to one of {header}"
        )


def _read_table(path: Path) -> tuple[list[str], list[list[str]], list[str]]:
    """Read a CSV file: header, rows, and where each row is; raise ValueError if they do not fit."""
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: expected a CSV file in UTF-8, got {error}; export it as CSV") from error
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) < 2:
        raise ValueError(f"{path}: expected a header line and hourly rows, got {len(lines)} lines; check path")
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    places = [f"{path}, line {i + 2}" for i in range(len(rows))]
    for row, place in zip(rows, places, strict=True):
        if len(row) != len(header):
            raise ValueError(f"{place}: expected {len(header)} cells, got {len(row)}; repair the row")
    return header, rows, places


def _hours(header: list[str], rows: list[list[str]], places: list[str]) -> list[float]:
    """Count the hours of the rows with the columns of time that there are."""
    names = ["hour" if name.lower().startswith("hour_") else name.lower() for name in header]
    instants = [i for i, name in enumerate(names) if name in TIME_COLUMNS]
    if instants:
        return _instant_hours([row[instants[0]] for row in rows], places)
    if {"month", "day", "hour"} <= set(names):
        month, day, hour = (names.index(name) for name in ("month", "day", "hour"))
        cells = [(row[month], row[day], row[hour]) for row in rows]
        return [float(count) for count in calendar_hours(cells, places)]
    if "hour" in names:
        column = names.index("hour")
        return [float(parse_whole(row[column], place)) for row, place in zip(rows, places, strict=True)]
    return [float(i) for i in range(len(rows))]


def _instant_hours(cells: list[str], places: list[str]) -> list[float]:
    """Return ISO times as hours since the first one."""
    instants = []
    for cell, place in zip(cells, places, strict=True):
        try:
            instants.append(datetime.fromisoformat(cell.strip()))
        except ValueError:
            raise ValueError(
                f"{place}: expected an ISO time such as 2010-01-01T00:00, got {cell!r}; repair or drop the column"
            ) from None
    try:
        return [(instant - instants[0]).total_seconds() / 3600.0 for instant in instants]
    except TypeError:
        raise ValueError(f"{places[0]}: expected all times with or all without a time zone; unify them") from None
