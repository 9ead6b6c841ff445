"""Weather from an EnergyPlus weather file."""

import csv
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.weather.hourly import (
    at_times,
    calendar_hours,
    check_hourly,
    existing_file,
    parse_temperature,
)
from simulators.weather.weather import Weather

HEADER_LINES = 8
MONTH, DAY, HOUR, DRY_BULB = 1, 2, 3, 6  # columns of a data row
MISSING = ("99.9", "99.90")  # the format's mark of a missing dry-bulb temperature


@dataclass(frozen=True)
class EpwWeather(Weather):
    """Dry-bulb temperature of an EPW file: eight header lines, then one row per hour, linear between.

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

    path: str | None = None  # EPW file

    def temperature(self, time: ArrayLike, *, seed: int = 0) -> NDArray[np.float64]:
        """Return the ambient temperature [degC] at times [s]; see `Weather.temperature`."""
        return at_times(self._record(), time, f"EpwWeather(path={self.path!r})")

    def _record(self) -> NDArray[np.float64]:
        """Read the checked hourly temperatures [degC]."""
        path = existing_file(self.path, type(self).__name__)
        lines = path.read_text(encoding="latin-1").splitlines()
        rows = [row for row in csv.reader(lines[HEADER_LINES:]) if row]
        places = [f"{path}, line {HEADER_LINES + 1 + i}" for i in range(len(rows))]
        if not lines or not lines[0].upper().startswith("LOCATION") or not rows:
            raise ValueError(
                f"{path}: expected an EPW file: {HEADER_LINES} header lines, the first starting with "
                "LOCATION, then hourly rows; for other files use MeasuredWeather"
            )
        return self._checked(rows, places)

    def _checked(self, rows: list[list[str]], places: list[str]) -> NDArray[np.float64]:
        """Return the dry-bulb temperatures of consecutive hourly rows [degC]."""
        for row, place in zip(rows, places, strict=True):
            if len(row) <= DRY_BULB:
                raise ValueError(f"{place}: expected more than {DRY_BULB} cells, got {len(row)}; repair the row")
            if row[DRY_BULB].strip() in MISSING:
                raise ValueError(f"{place}: the dry-bulb temperature is missing ({MISSING[0]}); fill the gap")
        check_hourly(calendar_hours([(row[MONTH], row[DAY], row[HOUR]) for row in rows], places), places)
        return np.array([parse_temperature(row[DRY_BULB], place) for row, place in zip(rows, places, strict=True)])
