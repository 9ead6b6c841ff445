"""Pseudo-random binary signal of maximum length."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.duration import given_interval, whole_samples
from simulators.excitation.excitation import Excitation
from simulators.settings import check_positive, check_whole, refuse

FEWEST, MOST = 2, 32  # stages with known feedback


@dataclass(frozen=True)
class PRBS(Excitation):
    """Two levels that follow a shift register of n stages with linear feedback.

    ::

        v_k = amplitude (2 b_i - 1),   i = floor(k dt / clock),   b_i in {0, 1} with period 2^n - 1

    The feedback is a primitive polynomial: every non-zero content of the register occurs once per period, so
    that the autocorrelation over a period has two values, amplitude^2 at zero and -amplitude^2 / (2^n - 1) at
    other multiples of the clock. The register starts at random. The power is about flat up to 0.44 / clock.

    With given stages a longer signal begins with the shorter one; with ``stages=None`` it does while both need
    the same number.

    Parameters
    ----------
    amplitude : float
        Distance of the levels from the offset [unit of the input].
    clock : float, optional
        Shortest time between two switches [s], a whole number of samples; None: one sample.
    stages : int, optional
        Stages n of the register, 2 to 32; None: the fewest whose period covers the record.

    Raises
    ------
    ValueError
        On construction: if the amplitude or the clock is not positive or the stages are out of range. On use: if
        the clock is shorter than a sample or no whole multiple of it, or no register covers the record.

    Notes
    -----
    L. Ljung, System Identification: Theory for the User (Prentice Hall, 1999), section 13.3. Registers of equal
    stages on several inputs give one sequence with random shifts: use different stages where that matters.

    Examples
    --------
    >>> PRBS(stages=3).signal(7, 0.1, np.random.default_rng(1))
    array([-1., -1.,  1.,  1.,  1., -1.,  1.])
    """

    amplitude: float = 1.0  # levels offset - amplitude and offset + amplitude, unit of the input
    clock: float | None = None  # s; None: one sample
    stages: int | None = None  # None: the fewest that cover the record

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "amplitude")
        if self.clock is not None:
            check_positive(self, "clock")
        if self.stages is not None:
            check_whole(self, "stages", FEWEST, MOST)

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return v (n,) [unit of the input]; equation in the class."""
        from scipy.signal import max_len_seq  # takes most of a second to import

        n, held = self._stages(n_samples, dt), self._clock_samples(dt)
        state = int(generator.integers(1, 2**n)) >> np.arange(n) & 1
        bits, _ = max_len_seq(n, state=state, length=-(-n_samples // held))
        return np.repeat(self.amplitude * (2.0 * bits - 1.0), held)[:n_samples]

    def period_samples(self, n_samples: int, dt: float | None = None) -> int:
        """Return the period 2^n - 1 times the clock in samples; see `Excitation.period_samples`."""
        interval = dt if self.clock is None else given_interval(self, dt)
        return (2 ** self._stages(n_samples, interval) - 1) * self._clock_samples(interval)

    def _clock_samples(self, dt: float | None) -> int:
        """Return the clock in samples."""
        return 1 if self.clock is None or dt is None else whole_samples(self, "clock", dt)

    def _stages(self, n_samples: int, dt: float | None) -> int:
        """Return the stages, given or the fewest that cover the record."""
        if self.stages is not None:
            return self.stages
        fewest = max((-(-n_samples // self._clock_samples(dt))).bit_length(), FEWEST)
        if fewest > MOST:
            raise refuse(self, "stages", f"a record of fewer than 2^{MOST} clocks, got {n_samples} samples")
        return fewest
