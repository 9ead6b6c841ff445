"""Random-phase multisine."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.excitation.duration import check_sampling
from simulators.excitation.excitation import Excitation
from simulators.excitation.frequency import Band, check_below_nyquist, checked_band
from simulators.excitation.grid import Grid
from simulators.settings import check_positive, check_whole, refuse

CLIPPED = 0.85  # of the peak, at which a period is clipped
LINE = 1e-9  # lines by which a band may miss a harmonic, for rounding


class MultisineReport(NamedTuple):
    """What was drawn for one period of a multisine."""

    harmonics: NDArray[np.int64]  # (m,) excited harmonics of the period, ascending
    frequencies: NDArray[np.float64]  # (m,) their frequencies, Hz
    resolution: float  # frequency between two harmonics, 1 / (period dt), Hz
    rms: float  # about the offset, over a period, unit of the input
    crest_factor: float  # of the samples of a period


@dataclass(frozen=True)
class Multisine(Excitation):
    """Sum of harmonics with equal amplitudes and random phases.

    ::

        v_k = rms sqrt(2 / m) sum_h cos(2 pi h k / P + phi_h),   phi_h ~ U(0, 2 pi)

    over the m harmonics h of the grid with f_low <= h / (P dt) <= f_high and 0 < h < P / 2, where P is the
    period in samples. The spectrum of a period is flat on these harmonics and zero elsewhere, its rms is exact,
    and it repeats to the last bit; a record that is no multiple of the period ends within one.

    With a given period a longer signal begins with the shorter one; with ``period=None`` it does not.

    Parameters
    ----------
    rms : float
        Root mean square about the offset over a period [unit of the input].
    band : (float, float), optional
        Lowest and highest frequency [Hz], both included; None: all below the Nyquist frequency.
    grid : Grid or its name
        ``full`` (default), ``odd`` or ``random_odd``.
    group : int
        Consecutive odd harmonics of which ``random_odd`` leaves out one.
    period : int, optional
        Samples in a period P; None: the whole record.
    clippings : int
        Iterations that lower the crest factor: clip a period at 85 % of its peak, keep the phases of the result,
        restore the amplitudes; the best iterate is taken. The spectrum and the rms stay. 0: the phases are
        independent, and the signal is near Gaussian for many harmonics, as theories of random-phase multisines
        assume.

    Raises
    ------
    ValueError
        On construction: if `rms`, `period`, `group` or `clippings` is too small, the band is not ascending or the grid
        is unknown. On use: if the band reaches the Nyquist frequency, there is no harmonic in it (or no complete
        group of ``random_odd``), or the period of an odd grid is odd, so that aliasing would mix odd and even.

    Notes
    -----
    R. Pintelon and J. Schoukens, System Identification: A Frequency Domain Approach (Wiley, 2012), chapters 4
    and 5; clipping: E. Van der Ouderaa, J. Schoukens and J. Renneboog, Peak factor minimization using a
    time-frequency domain swapping algorithm, IEEE Trans. Instrumentation and Measurement 37(1), 1988. The
    estimation input of the Bouc-Wen benchmark of Noel and Schoukens (2016) is
    ``Multisine(rms=50.0, band=(5.0, 150.0), period=8192)`` at 750 Hz; its published records also excite the
    harmonics just outside, up to 1639, of 150.05 Hz.

    Examples
    --------
    >>> report = Multisine(band=(1.0, 2.0), period=100).report(100, 0.05, np.random.default_rng(0))
    >>> report.harmonics, report.resolution, round(report.rms, 9)
    (array([ 5,  6,  7,  8,  9, 10]), 0.2, 1.0)
    """

    rms: float = 1.0  # about the offset, unit of the input
    band: Band | None = None  # lowest and highest frequency, Hz; None: all
    grid: Grid | str = Grid.full
    group: int = 4  # consecutive odd harmonics of which random_odd leaves out one
    period: int | None = None  # samples; None: the whole record
    clippings: int = 0  # iterations that lower the crest factor

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "rms")
        object.__setattr__(self, "band", checked_band(self))
        names = [grid.value for grid in Grid]
        if not isinstance(self.grid, Grid) and self.grid not in names:
            raise refuse(self, "grid", f"one of {names}")
        object.__setattr__(self, "grid", Grid(self.grid))
        check_whole(self, "group", 2)
        check_whole(self, "clippings", 0)
        if self.period is not None:
            check_whole(self, "period", 3)

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return v (n,) [unit of the input]; equation in the class."""
        _, v = self._draw(n_samples, dt, generator)
        return np.resize(v, n_samples)

    def period_samples(self, n_samples: int, dt: float | None = None) -> int:
        """Return the period P in samples; see `Excitation.period_samples`."""
        return n_samples if self.period is None else self.period

    def report(self, n_samples: int, dt: float, generator: np.random.Generator) -> MultisineReport:
        """Describe the period that `signal` draws from a generator in the same state; arguments as there."""
        check_sampling(n_samples, dt)
        harmonics, v = self._draw(n_samples, dt, generator)
        resolution = 1.0 / (len(v) * dt)
        rms = float(np.sqrt(np.mean(v**2)))
        frequencies = np.multiply(harmonics, resolution, dtype=np.float64)
        return MultisineReport(harmonics, frequencies, resolution, rms, crest_factor(v))

    def _draw(
        self, n_samples: int, dt: float, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the excited harmonics (m,) and one period of v (P,)."""
        P = self.period_samples(n_samples)
        harmonics = self._harmonics(P, dt, generator)
        best = v = self._period(P, harmonics, generator.uniform(0.0, 2 * np.pi, len(harmonics)))
        for _ in range(self.clippings):
            limit = CLIPPED * np.max(np.abs(v))
            v = self._period(P, harmonics, np.angle(np.fft.rfft(np.clip(v, -limit, limit))[harmonics]))
            best = min(best, v, key=crest_factor)
        return harmonics, best

    def _period(self, P: int, harmonics: NDArray[np.int64], phases: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one period of v (P,) with given phases (m,) [rad]."""
        spectrum = np.zeros(P // 2 + 1, dtype=np.complex128)
        spectrum[harmonics] = self.rms * P / math.sqrt(2 * len(harmonics)) * np.exp(1j * phases)
        return np.fft.irfft(spectrum, P)

    def _harmonics(self, P: int, dt: float, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the excited harmonics, at least one; raise ValueError where the settings leave none."""
        assert isinstance(self.grid, Grid)
        if self.grid.needs_even_period and P % 2:
            raise ValueError(
                f"Multisine(grid={self.grid.value!r}): expected an even period, got {P} samples, which alias even "
                f"harmonics onto odd ones; set period to {P - 1} or {P + 1}"
            )
        lowest, highest = 1, (P - 1) // 2
        if self.band is not None:
            check_below_nyquist(self, "band", self.band[1], dt)
            lowest = max(math.ceil(self.band[0] * P * dt - LINE), lowest)
            highest = min(math.floor(self.band[1] * P * dt + LINE), highest)
        harmonics = self.grid.harmonics(lowest, highest, self.group, generator)
        candidates = len(range(lowest + (lowest + 1) % 2, highest + 1, 2))
        if len(harmonics) == 0 or (self.grid is Grid.random_odd and candidates < self.group):
            self._refuse_band(P, dt)
        return harmonics

    def _refuse_band(self, P: int, dt: float) -> None:
        """Raise the error for a band that holds too few harmonics."""
        few = f"{self.group} odd harmonics" if self.grid is Grid.random_odd else "a harmonic"
        band = f"band {list(self.band)} Hz" if self.band is not None else "range below the Nyquist frequency"
        raise ValueError(
            f"Multisine(band={self.band!r}, grid={Grid(self.grid).value!r}): expected at least {few} of "
            f"1/(period dt) = {1 / (P * dt):.6g} Hz in the {band}; widen the band or lengthen the period of {P} samples"
        )


def crest_factor(signal: ArrayLike) -> float:
    """Return the crest factor of a signal: its peak over its rms, both about the mean.

    ::

        max_k |u_k - mean(u)| / sqrt(mean((u - mean(u))^2))

    1 for a square wave, sqrt(2) for a sine, 3 to 5 for a random-phase multisine. The peak between two samples
    may be higher.

    Parameters
    ----------
    signal : (n,) array_like
        Samples, of whole periods if the signal is periodic.

    Raises
    ------
    ValueError
        If the signal is no vector of finite numbers or is constant.

    Examples
    --------
    >>> crest_factor([3.0, 5.0, 3.0, 5.0])
    1.0
    """
    u = np.asarray(signal, dtype=np.float64)
    if u.ndim != 1 or u.size == 0 or not np.all(np.isfinite(u)):
        raise ValueError(f"crest_factor: expected a signal (n,) of finite numbers, got shape {u.shape}; check it")
    v = u - u.mean()
    rms = math.sqrt(np.mean(v**2))
    if not rms > 1e-14 * np.max(np.abs(u), initial=0.0):
        raise ValueError("crest_factor: expected a signal that varies, got a constant one; excite it")
    return float(np.max(np.abs(v)) / rms)
