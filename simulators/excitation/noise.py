"""Gaussian noise in a frequency band."""

import math
from dataclasses import dataclass

import numpy as np

from simulators.excitation.role import Band, Excitation, check_below_nyquist, read_band
from simulators.settings import Array, check_positive, check_whole, refuse

# Smallest bandwidth and smallest lower cut-off, relative to the sampling frequency [-]. Below them
# the warm-up would take millions of samples.
MIN_RELATIVE_FREQUENCY = 1e-5
# The warm-up is that of a pole with at least this radius, so that it has at least ten samples [-].
MIN_POLE_RADIUS = 0.1
# Fraction of the slowest mode that is left after the warm-up [-].
WARM_UP_REMAINDER = 1e-10


@dataclass(frozen=True)
class FilteredNoise(Excitation):
    """White Gaussian noise through a Butterworth filter, stationary from the first sample.

    ::

        v_k = c sum_i h_i e_{k-i},   e_k ~ N(0, 1),   c = std / sqrt(sum_i h_i^2)

    with h the impulse response of the filter in second-order sections. The filter starts before the
    signal, early enough that its slowest mode has fallen to 1e-10. So every sample has the standard
    deviation of the settings (that of a single record scatters about it). A longer signal begins
    with the shorter one. For a spectrum that is exactly zero outside the band take a multisine.

    Parameters
    ----------
    std : float
        Standard deviation about the offset [unit of the input].
    band : (float, float), optional
        Cut-off frequencies [Hz], where the power has fallen by half; [0, f] is a low-pass. None:
        white noise.
    order : int
        Order of the low-pass; a band-pass has this order on both sides.

    Raises
    ------
    ValueError
        On construction: if `std` is not positive, the band is not ascending or the order is not 1
        to 8. On use: if the band reaches the Nyquist frequency, or its width or a lower cut-off
        other than 0 is below 1e-5 / dt.
    """

    std: float = 1.0  # about the offset, unit of the input
    band: Band | None = None  # cut-off frequencies, Hz; None: white
    order: int = 4  # of the Butterworth filter

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "std")
        object.__setattr__(self, "band", read_band(self))
        check_whole(self, "order", 1, 8)

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return v (n,) [unit of the input]; equation in the class."""
        if self.band is None:
            return self.std * generator.standard_normal(n_samples)
        # This import takes most of a second.
        from scipy.signal import butter, sosfilt, zpk2sos

        check_below_nyquist(self, "band", self.band[1], dt)
        low, high = self.band
        smallest = MIN_RELATIVE_FREQUENCY / dt
        if high - low < smallest or 0 < low < smallest:
            raise refuse(
                self,
                "band",
                "a width, and a lower cut-off other than 0, of at least "
                f"{smallest:.6g} Hz, {MIN_RELATIVE_FREQUENCY:g} of the sampling frequency",
            )
        cut_off, kind = (high, "lowpass") if low == 0 else (self.band, "bandpass")
        zeros, poles, gain = butter(self.order, cut_off, kind, fs=1 / dt, output="zpk")
        sections = zpk2sos(zeros, poles, gain)
        slowest = max(float(np.max(np.abs(poles))), MIN_POLE_RADIUS)
        n_before = math.ceil(math.log(WARM_UP_REMAINDER) / math.log(slowest))
        h = sosfilt(sections, np.concatenate([[1.0], np.zeros(n_before)]))
        filtered = sosfilt(sections, generator.standard_normal(n_before + n_samples))
        return self.std / np.linalg.norm(h) * filtered[n_before:]
