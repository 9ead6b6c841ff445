"""Noise of the sensors, added to the outputs and kept apart from them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.settings import check_finite, check_not_negative, refuse


@dataclass(frozen=True)
class MeasurementNoise:
    """White Gaussian noise on every output, by standard deviation or by signal-to-noise ratio.

    ::

        y[k, i] = y0[k, i] + e[k, i],   e[k, i] ~ N(0, s_i^2)
        s_i = std,   or   s_i = sqrt(mean_k (y0[k, i] - mean_k y0[k, i])^2) 10^(-snr_db / 20)

    The ratio refers to the power of the noise-free output about its mean. Without `std` and `snr_db` there is
    no noise.

    Parameters
    ----------
    std : float, optional
        Standard deviation, in the unit of the outputs, the same for all.
    snr_db : float, optional
        Signal-to-noise ratio [dB] of every output.

    Raises
    ------
    ValueError
        If both are given, `std` is negative or `snr_db` is not finite.

    Examples
    --------
    >>> MeasurementNoise(snr_db=20.0).std_of(np.array([[1.0], [-1.0]]))
    array([0.1])
    """

    std: float | None = None  # unit of the outputs
    snr_db: float | None = None  # dB

    def __post_init__(self) -> None:
        if self.std is not None and self.snr_db is not None:
            raise refuse(self, "std", f"only one of std and snr_db={self.snr_db!r}")
        if self.std is not None:
            check_not_negative(self, "std")
        if self.snr_db is not None:
            check_finite(self, "snr_db")

    def std_of(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviations (n_y,) for noise-free outputs (n, n_y).

        Raises
        ------
        ValueError
            For a ratio to an output that is constant, and so has no power.
        """
        n_y = output.shape[-1]
        if self.snr_db is None:
            return np.full(n_y, self.std or 0.0)
        power = output.reshape(-1, n_y).var(axis=0)
        if not np.all(power > 0):
            raise ValueError(
                f"MeasurementNoise(snr_db={self.snr_db:g}): expected outputs that vary, output "
                f"{int(np.argmin(power))} is constant and has no power to refer to; excite the system, or give std"
            )
        return np.sqrt(power) * 10 ** (-self.snr_db / 20)

    @property
    def needs_output(self) -> bool:
        """Whether the standard deviation depends on the noise-free output."""
        return self.snr_db is not None


def signal_to_noise(output: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the signal-to-noise ratios [dB] (n_y,) reached by measured outputs (n, n_y).

    ::

        10 log10(var(y0) / mean((y - y0)^2)),   infinite without noise

    Examples
    --------
    >>> signal_to_noise(np.array([[1.0], [-1.0]]), np.array([[1.1], [-1.1]])).round(6)
    array([20.])
    """
    noise = np.mean((measured - output) ** 2, axis=0)
    powers = zip(output.var(axis=0), noise, strict=True)
    return np.array([10 * math.log10(signal / e) if e > 0 and signal > 0 else math.inf for signal, e in powers])
