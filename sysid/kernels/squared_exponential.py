"""The squared exponential kernel."""

from dataclasses import dataclass

import numpy as np

from sysid.kernels import row
from sysid.kernels.stationary import Stationary, StationaryForm


@dataclass(frozen=True)
class SquaredExponential(Stationary):
    """Squared exponential with automatic relevance determination (ARD), section 2 of the paper.

    ``k(x, x') = variance exp(-0.5 sum_d ((x_d - x'_d) / length_scale_d)^2)``

    Parameters
    ----------
    variance : float
        Signal variance sf2 > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature.
    """

    row = staticmethod(row.squared_exponential)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """The covariance itself."""
        return covariance


@dataclass(frozen=True)
class SquaredExponentialForm(StationaryForm):
    """Form of `SquaredExponential`."""

    def kernel(self, variance: float, length_scales: np.ndarray) -> SquaredExponential:
        """Kernel of this variance and these length scales."""
        return SquaredExponential(variance, length_scales)
