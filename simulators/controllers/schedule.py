"""Set-points over the week."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.controllers.controller import Reference
from simulators.controllers.set_point import SetPoint, Time
from simulators.settings import check_ascending, check_not_negative, check_whole, refuse

HOUR = 3600.0  # s
DAY = 86400.0  # s


@dataclass(frozen=True)
class ComfortSchedule(SetPoint):
    """Comfort band of a building: narrow by day on working days, relaxed at night and at weekends.

    ::

        day(t)  = day_start <= hour of t < day_end, Monday to Friday
        r(t)    = lower(t) + offset

    Time zero is midnight before the first day.

    Raises
    ------
    ValueError
        If a lower bound is not below its upper bound, the hours are not ascending within 0 to 24, the
        offset is negative or the first weekday is not 0 to 6.

    Notes
    -----
    Bounds: Wietzke and Graichen, section 6; the hours and the offset are ours.

    Examples
    --------
    >>> schedule = ComfortSchedule()
    >>> schedule.set_point(6 * 3600.0), schedule.set_point(22 * 3600.0)
    (21.5, 17.5)
    >>> schedule.upper(3600.0 * np.array([5.0, 6.0, 22.0]))
    array([28., 24., 28.])
    """

    day_lower: float = 21.0  # degC
    day_upper: float = 24.0  # degC
    relaxed_lower: float = 17.0  # degC
    relaxed_upper: float = 28.0  # degC
    day_start: float = 6.0  # h
    day_end: float = 22.0  # h
    offset: float = 0.5  # set-point above the lower bound, K
    first_weekday: int = 0  # weekday of the first day, 0 = Monday

    def __post_init__(self) -> None:
        check_ascending(self, "day_lower", "day_upper")
        check_ascending(self, "relaxed_lower", "relaxed_upper")
        check_ascending(self, "day_start", "day_end")
        check_not_negative(self, "day_start", "offset")
        check_whole(self, "first_weekday", 0, 6)
        if self.day_end > 24:
            raise refuse(self, "day_end", "at most 24 h")

    def lower(self, time: Time) -> Time:
        """Return the lower comfort bound [degC] at `time` [s], a float or an array."""
        return self._choose(time, self.day_lower, self.relaxed_lower)

    def upper(self, time: Time) -> Time:
        """Return the upper comfort bound [degC] at `time` [s], a float or an array."""
        return self._choose(time, self.day_upper, self.relaxed_upper)

    def set_point(self, time: Time) -> Time:
        """Return the set-point r [degC] at `time` [s], a float or an array."""
        return self.lower(time) + self.offset

    def references(self, time: NDArray[np.float64]) -> dict[str, Reference]:
        """Return the comfort band and the set-point over times (n,) [s]."""
        bounds = {
            "comfort_lower": Reference(self.lower(time), "lower bound of the comfort band"),
            "comfort_upper": Reference(self.upper(time), "upper bound of the comfort band"),
        }
        return bounds | super().references(time)

    def _choose(self, time: Time, by_day: float, relaxed: float) -> Time:
        """Return one of two values, with arithmetic that serves floats and arrays alike."""
        hour = time % DAY / HOUR
        working = (time // DAY + self.first_weekday) % 7 < 5
        day = working & (hour >= self.day_start) & (hour < self.day_end)
        return by_day * day + relaxed * (1 - day)
