"""Predictive entropy, section 3.2.1."""

from dataclasses import dataclass
from math import log

from numba import njit

from sysid.criteria.criterion import Criterion
from sysid.reference import Reference


@njit
def latent_variance(variance: float, noise_variance: float) -> float:
    """Latent predictive variance ``v - noise_variance``, at least what rounding leaves of it (1e-16 v)."""
    return max(variance - noise_variance, 1e-16 * variance)


@dataclass(frozen=True)
class PredictiveEntropy(Criterion):
    """Remove the point whose function value the others know best.

    ``f_red = 0.5 (1 + log 2 pi) + 0.5 log(v_i - noise_variance)``, the entropy of the latent function at x_i
    given the set without i and with the candidate; the constant is dropped. Acceptance: the latent
    predictive variance (section 3.3.1).
    """

    published_reference = Reference.in_sample

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``0.5 log(v - noise_variance)``."""
        return 0.5 * log(latent_variance(variance, noise_variance))

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """``v - noise_variance``."""
        return latent_variance(variance, noise_variance)
