"""What all chirps share: a sine whose frequency runs from one value to another."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.duration import given_interval, whole_samples
from simulators.excitation.excitation import Excitation
from simulators.excitation.frequency import check_below_nyquist
from simulators.settings import check_not_negative, check_positive


@dataclass(frozen=True)
class Chirp(Excitation):
    """Swept sine; a subclass says how the phase grows.

    ::

        v_k = amplitude sin(phi(t)),   t = (k mod D) dt,   phi(0) = 0,   phi'(t) = 2 pi f(t)
        f(0) = f_start,   f(T) = f_end,   T = D dt

    Parameters
    ----------
    f_start, f_end : float, optional
        Frequency at the start and at the end of a sweep [Hz], ascending or not; None: 1/T, and half of the Nyquist
        frequency, 1/(4 dt).
    amplitude : float
        Amplitude about the offset [unit of the input].
    duration : float, optional
        Duration T of a sweep [s], a whole number of samples; sweeps then repeat, and a longer signal begins with
        the shorter one. None: one sweep over the record.

    Raises
    ------
    ValueError
        On construction: if a frequency is negative or the amplitude or the duration is not positive. On use: if a
        frequency reaches the Nyquist frequency or the duration is no whole number of samples.
    """

    f_start: float | None = None  # Hz; None: one cycle in a sweep
    f_end: float | None = None  # Hz; None: half of the Nyquist frequency
    amplitude: float = 1.0  # unit of the input
    duration: float | None = None  # s; None: the whole record

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, *(name for name in ("f_start", "f_end") if getattr(self, name) is not None))
        check_positive(self, "amplitude")
        if self.duration is not None:
            check_positive(self, "duration")

    @abstractmethod
    def phase(self, time: NDArray[np.float64], duration: float, f_start: float, f_end: float) -> NDArray[np.float64]:
        """Return phi [rad] at times (n,) [s] within a sweep of a duration T [s], for frequencies [Hz]."""

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return v (n,) [unit of the input]; equation in the class."""
        f_start, f_end = self.frequencies(n_samples, dt)
        D = self.period_samples(n_samples, dt)
        sweep = self.amplitude * np.sin(self.phase(dt * np.arange(D, dtype=np.float64), D * dt, f_start, f_end))
        return np.resize(sweep, n_samples)

    def frequencies(self, n_samples: int, dt: float) -> tuple[float, float]:
        """Return the frequencies [Hz] at the start and at the end of a sweep.

        Raises
        ------
        ValueError
            If one reaches the Nyquist frequency.
        """
        T = self.period_samples(n_samples, dt) * dt
        f_start = 1 / T if self.f_start is None else self.f_start
        f_end = 0.25 / dt if self.f_end is None else self.f_end
        check_below_nyquist(self, "f_start", f_start, dt)
        check_below_nyquist(self, "f_end", f_end, dt)
        return f_start, f_end

    def period_samples(self, n_samples: int, dt: float | None = None) -> int:
        """Return the samples D of a sweep; see `Excitation.period_samples`."""
        if self.duration is None:
            return n_samples
        return whole_samples(self, "duration", given_interval(self, dt))
