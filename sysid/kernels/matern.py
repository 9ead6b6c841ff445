"""Matern kernels, whose functions are once and twice differentiable.

Smoothness 1/2 is left out: its functions have no slope, which validation in free run needs.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from sysid.kernels import row
from sysid.kernels.stationary import Stationary, StationaryForm


@dataclass(frozen=True)
class Matern32(Stationary):
    """Matern kernel of smoothness 3/2 with automatic relevance determination: functions with one derivative.

    ``k(x, x') = variance (1 + sqrt(3) r) exp(-sqrt(3) r)``, ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2``
    (Rasmussen and Williams, equation 4.17). ``-f'(r) / r = 3 exp(-sqrt(3) r)``.

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature.
    """

    row = staticmethod(row.matern_32)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``3 variance exp(-sqrt(3) r)``."""
        return np.asarray(3.0 * self.variance * np.exp(-sqrt(3.0) * self.distances(first, second)))


@dataclass(frozen=True)
class Matern52(Stationary):
    """Matern kernel of smoothness 5/2 with automatic relevance determination: functions with two derivatives.

    ``k(x, x') = variance (1 + a + a^2 / 3) exp(-a)``, ``a = sqrt(5) r``,
    ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2`` (Rasmussen and Williams, equation 4.17).
    ``-f'(r) / r = 5 / 3 (1 + a) exp(-a)``.

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature.
    """

    row = staticmethod(row.matern_52)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``5 / 3 variance (1 + a) exp(-a)``, ``a = sqrt(5) r``."""
        a = sqrt(5.0) * self.distances(first, second)
        return np.asarray(5.0 / 3.0 * self.variance * (1.0 + a) * np.exp(-a))


@dataclass(frozen=True)
class Matern32Form(StationaryForm):
    """Form of `Matern32`."""

    def kernel(self, variance: float, length_scales: np.ndarray) -> Matern32:
        """Kernel of this variance and these length scales."""
        return Matern32(variance, length_scales)


@dataclass(frozen=True)
class Matern52Form(StationaryForm):
    """Form of `Matern52`."""

    def kernel(self, variance: float, length_scales: np.ndarray) -> Matern52:
        """Kernel of this variance and these length scales."""
        return Matern52(variance, length_scales)
