"""The role of a source of weather."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Weather(ABC):
    """Ambient temperature over time; time zero is midnight before the first day of the year."""

    @abstractmethod
    def temperature(self, time: ArrayLike, *, seed: int = 0) -> NDArray[np.float64]:
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


def checked_times(time: ArrayLike) -> NDArray[np.float64]:
    """Return times [s] as an array; raise ValueError unless they are finite and not negative."""
    t = np.asarray(time, dtype=np.float64)
    if not np.all(np.isfinite(t)) or np.any(t < 0):
        raise ValueError(f"weather: expected finite times >= 0 s, got {t}; measure time from the start")
    return t
