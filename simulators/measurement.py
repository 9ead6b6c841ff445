"""Noise of the sensors, added to the outputs and kept apart from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from simulators.settings import refuse


@dataclass(frozen=True)
class MeasurementNoise:
    """White Gaussian noise on every output, by standard deviation or by signal-to-noise ratio.

    ::

        y[k, i] = y0[k, i] + e[k, i],   e[k, i] ~ N(0, s_i^2)
        s_i = std_i,   or   s_i = sqrt(mean_k (y0[k, i] - mean_k y0[k, i])^2) 10^(-snr_db_i / 20)

    The ratio refers to the power of the noise-free output about its mean. Without `std` and `snr_db` there is
    no noise.

    Parameters
    ----------
    std : float or sequence of float, optional
        Standard deviation, in the unit of the outputs: one for all, or one for each.
    snr_db : float or sequence of float, optional
        Signal-to-noise ratio [dB]: one for all outputs, or one for each.

    Raises
    ------
    ValueError
        If both are given, `std` is negative or `snr_db` is not finite; on use: if there are not as many as outputs.

    Examples
    --------
    >>> MeasurementNoise(snr_db=20.0).std_of(np.array([[1.0], [-1.0]]))
    array([0.1])
    """

    std: float | Sequence[float] | None = None  # unit of the outputs; one for all, or one for each
    snr_db: float | Sequence[float] | None = None  # dB; one for all outputs, or one for each

    def __post_init__(self) -> None:
        for name in ("std", "snr_db"):
            if isinstance(getattr(self, name), list | tuple | np.ndarray):
                object.__setattr__(self, name, tuple(np.asarray(getattr(self, name)).tolist()))
        if self.std is not None and self.snr_db is not None:
            raise refuse(self, "std", f"only one of std and snr_db={self.snr_db!r}")
        for name, lowest, expected in (("std", 0.0, "number >= 0"), ("snr_db", -math.inf, "finite number")):
            value = getattr(self, name)
            values = value if isinstance(value, tuple) else (value,)
            if value is not None and not (values and all(_is_number(one) and one >= lowest for one in values)):
                raise refuse(self, name, f"a {expected}, or a list with one for each output")

    def check(self, outputs: Sequence[str]) -> None:
        """Refuse a list that has not one number for each of these outputs.

        Raises
        ------
        ValueError
            With the names of the outputs.
        """
        for name, value in (("std", self.std), ("snr_db", self.snr_db)):
            if isinstance(value, tuple) and len(value) != len(outputs):
                raise refuse(self, name, f"one number for all outputs, or one for each of {list(outputs)}")

    def std_of(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviations (n_y,) for noise-free outputs (n, n_y).

        Raises
        ------
        ValueError
            For a ratio to an output that is constant, and so has no power; for a list of another length than n_y.
        """
        n_y = output.shape[-1]
        self.check([f"output {i}" for i in range(n_y)])
        if self.snr_db is None:
            return np.full(n_y, 0.0 if self.std is None else self.std, dtype=np.float64)
        power = output.reshape(-1, n_y).var(axis=0)
        if not np.all(power > 0):
            raise ValueError(
                f"MeasurementNoise(snr_db={self.snr_db!r}): expected outputs that vary, output "
                f"{int(np.argmin(power))} is constant and has no power to refer to; excite the system, or give std"
            )
        return np.sqrt(power) * 10 ** (-np.asarray(self.snr_db) / 20)

    @property
    def needs_output(self) -> bool:
        """Whether the standard deviation depends on the noise-free output."""
        return self.snr_db is not None


def _is_number(value: object) -> bool:
    """Whether a value is a finite real number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


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
