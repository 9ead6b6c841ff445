"""Log predictive density, section 3.2.3."""

from dataclasses import dataclass
from math import log, pi

from numba import njit

from sysid.criteria.criterion import Criterion
from sysid.reference import Reference


@njit
def negative_log_density(residual: float, variance: float) -> float:
    """``-log N(residual; 0, v) = 0.5 log(2 pi v) + 0.5 residual^2 / v``."""
    return 0.5 * log(2.0 * pi * variance) + 0.5 * residual * residual / variance


@dataclass(frozen=True)
class LogPredictiveDensity(Criterion):
    """Remove the point that the others predict best.

    ``f_red = -log p(y_i | y without i)`` with the noisy predictive variance. Acceptance: the same formula
    (section 3.3.3).
    """

    published_reference = Reference.leave_one_out

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``-log p(y_i | y without i)``."""
        return negative_log_density(residual, variance)

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """``-log p(y_i | y without i)``."""
        return negative_log_density(residual, variance)
