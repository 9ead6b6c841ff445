"""Synthetic weather: annual and daily cycle plus slow random weather."""

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.noise import random_streams
from simulators.settings import check_finite, check_not_negative, check_positive
from simulators.weather.weather import Weather, checked_times

HOUR = 3600.0  # s
DAY = 86400.0  # s
YEAR = 365 * DAY  # s


@dataclass(frozen=True)
class SyntheticWeather(Weather):
    """Ambient temperature of a Central European climate.

    ::

        Ta(t) = mean - A_year cos(2 pi (t - t_cold) / year) + A_day cos(2 pi (t - t_warm) / day) + z(t)
        z_{i+1} = a z_i + sqrt(1 - a^2) std xi_i,   a = exp(-1 h / tau),   xi_i ~ N(0, 1),   z_0 ~ N(0, std^2)

    z is a stationary Ornstein-Uhlenbeck process, discretised exactly at full hours and linear between:
    the weather of a seed depends neither on the sampling nor on the duration of a simulation.

    Raises
    ------
    ValueError
        If an amplitude or the standard deviation is negative, the correlation time is not positive or
        another field is not finite.

    Notes
    -----
    The defaults follow measured years of Potsdam: mean 8.3 to 9.5 degC, annual amplitude 9 to 12 K, daily
    amplitude 3 K, the rest with standard deviation 4.2 K and correlation 0.38 to 0.5 after two days.
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

    def temperature(self, time: ArrayLike, *, seed: int = 0) -> NDArray[np.float64]:
        """Return the ambient temperature [degC] at times [s]; see `Weather.temperature`."""
        t = checked_times(time)
        annual = self.annual_amplitude * np.cos(2 * np.pi * (t - DAY * self.coldest_day) / YEAR)
        daily = self.daily_amplitude * np.cos(2 * np.pi * (t - HOUR * self.warmest_hour) / DAY)
        z = self._hourly_weather(math.ceil(np.max(t, initial=0.0) / HOUR) + 1, seed)
        return self.mean - annual + daily + np.interp(t, HOUR * np.arange(len(z)), z)

    def _hourly_weather(self, n_hours: int, seed: int) -> NDArray[np.float64]:
        """Return z at the first full hours [K]; longer paths begin with the shorter ones."""
        a = math.exp(-1.0 / self.correlation_hours)
        xi = self.weather_std * random_streams(seed).weather.standard_normal(n_hours)
        xi[1:] *= math.sqrt(1.0 - a * a)
        return np.array(list(accumulate(xi, lambda z, shock: a * z + shock)))
