"""Random-phase multisine."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.errors import UserError
from simulators.excitation.role import (
    Band,
    Excitation,
    check_below_nyquist,
    check_sampling,
    read_band,
)
from simulators.settings import (
    MAX_SIGNAL_SAMPLES,
    Array,
    check_positive,
    check_whole,
    refuse,
)


class Grid(Enum):
    """Harmonic grid of a multisine.

    - `full`: every harmonic.
    - `odd`: the odd harmonics. The response of even nonlinearities lies at even harmonics, where it
      can be seen.
    - `random_odd`: the odd harmonics, except one at random of every group of consecutive odd
      harmonics. The response of odd nonlinearities can be seen at these detection lines. An
      incomplete last group keeps all its harmonics.

    Notes
    -----
    R. Pintelon and J. Schoukens, System Identification: A Frequency Domain Approach (Wiley, 2012),
    chapter 4; J. Schoukens and L. Ljung, Nonlinear System Identification: A User-Oriented Road Map,
    IEEE Control Systems Magazine 39(6), 2019. Groups have three or four harmonics there.
    """

    full = "full"
    odd = "odd"
    random_odd = "random_odd"

    def harmonics(
        self, lowest: int, highest: int, group: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the excited harmonics from `lowest` to `highest`, both included.

        Parameters
        ----------
        lowest, highest : int
            Range of harmonics, from 1.
        group : int
            Size of the groups of consecutive odd harmonics.
        generator : np.random.Generator
            Source of randomness for the harmonics left out; advances for `random_odd` only.

        Returns
        -------
        (m,) array of int
            Excited harmonics, ascending; empty if there is none.
        """
        if self is Grid.full:
            return np.arange(lowest, highest + 1)
        odd = np.arange(lowest + (lowest + 1) % 2, highest + 1, 2)
        if self is Grid.odd:
            return odd
        first_of_group = np.arange(0, len(odd) - group + 1, group)
        left_out = first_of_group + generator.integers(group, size=len(first_of_group))
        return np.delete(odd, left_out)


# A period is clipped at this fraction of its peak [-].
CLIPPING_SHARE = 0.85
# Largest number of iterations that lower the crest factor; each takes two Fourier transforms.
MAX_CLIPPINGS = 1_000_000
# A band includes a harmonic that it misses by this fraction of a line, because of rounding [-].
LINE_TOLERANCE = 1e-9


class MultisineReport(NamedTuple):
    """Harmonics that were drawn for one period of a multisine, and properties of the period."""

    harmonics: NDArray[np.int64]  # (m,) excited harmonics of the period, ascending
    frequencies: Array  # (m,) their frequencies, Hz
    resolution: float  # frequency between two harmonics, 1 / (period dt), Hz
    rms: float  # about the offset, over a period, unit of the input
    crest_factor: float  # of the samples of a period


@dataclass(frozen=True)
class Multisine(Excitation):
    """Sum of harmonics with equal amplitudes and random phases.

    ::

        v_k = rms sqrt(2 / m) sum_h cos(2 pi h k / P + phi_h),   phi_h ~ U(0, 2 pi)

    over the m harmonics h of the grid with f_low <= h / (P dt) <= f_high and 0 < h < P / 2, where P
    is the period in samples. The spectrum of a period is flat on these harmonics and zero
    elsewhere, its rms is exact, and periods are equal to the last bit. A record that is no multiple
    of the period ends within one.

    With a given period a longer signal begins with the shorter one; with ``period=None`` it does
    not.

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
        Iterations that lower the crest factor. Each clips a period at 85 % of its peak, keeps the
        phases of the result and restores the amplitudes; the best iterate is taken. The spectrum
        and the rms do not change. Without iterations (0) the phases are independent, and the signal
        is nearly Gaussian for many harmonics, as theories of random-phase multisines assume.

    Raises
    ------
    ValueError
        On construction: if `rms`, `period`, `group` or `clippings` is too small, the band is not
        ascending or the grid is unknown. On use: if the band reaches the Nyquist frequency, there
        is no harmonic in it (or no complete group of ``random_odd``), or the period of an odd grid
        is odd, so that aliasing would mix odd and even.

    Notes
    -----
    R. Pintelon and J. Schoukens, System Identification: A Frequency Domain Approach (Wiley, 2012),
    chapters 4 and 5; clipping: E. Van der Ouderaa, J. Schoukens and J. Renneboog, Peak factor
    minimization using a time-frequency domain swapping algorithm, IEEE Trans. Instrumentation and
    Measurement 37(1), 1988. The estimation input of the Bouc-Wen benchmark of Noel and Schoukens
    (2016) is ``Multisine(rms=50.0, band=(5.0, 150.0), period=8192)`` at 750 Hz; its published
    records also excite the harmonics just outside, up to 1639, of 150.05 Hz.

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
        object.__setattr__(self, "band", read_band(self))
        names = [grid.value for grid in Grid]
        if not isinstance(self.grid, Grid) and self.grid not in names:
            raise refuse(self, "grid", f"one of {names}")
        object.__setattr__(self, "grid", Grid(self.grid))
        check_whole(self, "group", 2)
        check_whole(self, "clippings", 0, MAX_CLIPPINGS)
        if self.period is not None:
            check_whole(self, "period", 3, MAX_SIGNAL_SAMPLES)

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return v (n,) [unit of the input]; equation in the class."""
        _, v = self._draw(n_samples, dt, generator)
        return np.resize(v, n_samples)

    def period_samples(self, n_samples: int, dt: float | None = None) -> int:
        """Return the period P in samples; see `Excitation.period_samples`."""
        return n_samples if self.period is None else self.period

    def report(self, n_samples: int, dt: float, generator: np.random.Generator) -> MultisineReport:
        """Describe the period that `signal` draws from a generator in the same state.

        The arguments are those of `signal`.
        """
        check_sampling(n_samples, dt)
        harmonics, v = self._draw(n_samples, dt, generator)
        resolution = 1.0 / (len(v) * dt)
        rms = float(np.sqrt(np.mean(v**2)))
        frequencies = np.multiply(harmonics, resolution, dtype=np.float64)
        return MultisineReport(harmonics, frequencies, resolution, rms, crest_factor(v))

    def _draw(
        self, n_samples: int, dt: float, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], Array]:
        """Return the excited harmonics (m,) and one period of v (P,)."""
        P = self.period_samples(n_samples)
        harmonics = self._choose_harmonics(P, dt, generator)
        phases = generator.uniform(0.0, 2 * np.pi, len(harmonics))
        v = self._compose(P, harmonics, phases)
        best = v
        for _ in range(self.clippings):
            limit = CLIPPING_SHARE * np.max(np.abs(v))
            spectrum = np.fft.rfft(np.clip(v, -limit, limit))
            v = self._compose(P, harmonics, np.angle(spectrum[harmonics]))
            best = min(best, v, key=crest_factor)
        return harmonics, best

    def _compose(self, P: int, harmonics: NDArray[np.int64], phases: Array) -> Array:
        """Return one period of v (P,) with given phases (m,) [rad]."""
        spectrum = np.zeros(P // 2 + 1, dtype=np.complex128)
        spectrum[harmonics] = self.rms * P / math.sqrt(2 * len(harmonics)) * np.exp(1j * phases)
        return np.fft.irfft(spectrum, P)

    def _choose_harmonics(
        self, P: int, dt: float, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the excited harmonics, at least one.

        Raises
        ------
        ValueError
            If the settings leave none, or the period of an odd grid is odd.
        """
        assert isinstance(self.grid, Grid)
        # Aliasing folds harmonic h to P - h; on an odd grid this must not change its parity.
        if self.grid is not Grid.full and P % 2 == 1:
            expected = f"an even number on the grid {self.grid.value}, such as {P - 1} or {P + 1}"
            raise refuse(self, "period", expected)
        lowest = 1
        highest = (P - 1) // 2
        if self.band is not None:
            check_below_nyquist(self, "band", self.band[1], dt)
            lowest = max(math.ceil(self.band[0] * P * dt - LINE_TOLERANCE), lowest)
            highest = min(math.floor(self.band[1] * P * dt + LINE_TOLERANCE), highest)
        harmonics = self.grid.harmonics(lowest, highest, self.group, generator)
        n = len(harmonics)
        fewest = 1
        if self.grid is Grid.random_odd:
            # There must be a complete group, counted before one of its harmonics is left out.
            n = len(range(lowest + (lowest + 1) % 2, highest + 1, 2))
            fewest = self.group
        if n < fewest:
            raise refuse(
                self,
                "band",
                f"harmonics of 1/(period dt) = {1 / (P * dt):.6g} Hz on the grid "
                f"{self.grid.value} in the band, at least {fewest}, "
                f"or a period longer than {P} samples",
            )
        return harmonics


def crest_factor(signal: ArrayLike) -> float:
    """Return the crest factor of a signal: its peak over its rms, both about the mean.

    ::

        max_k |u_k - mean(u)| / sqrt(mean((u - mean(u))^2))

    1 for a square wave, sqrt(2) for a sine, 3 to 5 for a random-phase multisine. The peak between
    two samples may be higher.

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
        raise UserError(
            f"crest_factor: expected a signal (n,) of finite numbers, got shape {u.shape}; check it"
        )
    v = u - u.mean()
    rms = math.sqrt(np.mean(v**2))
    if not rms > 1e-14 * np.max(np.abs(u), initial=0.0):
        raise UserError(
            "crest_factor: expected a signal that varies, got a constant one; excite it"
        )
    return float(np.max(np.abs(v)) / rms)
