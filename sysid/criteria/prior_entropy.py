"""Prior entropy, section 3.2.1."""

from dataclasses import dataclass
from math import log

from sysid.criteria.criterion import Criterion
from sysid.criteria.predictive_entropy import latent_variance
from sysid.reference import Reference


@dataclass(frozen=True)
class PriorEntropy(Criterion):
    """Keep the set whose noisy observations have the largest joint entropy.

    ::

        f_red = -H(y without i) = -(n/2) (1 + log 2 pi) - 0.5 log|Ky without i|
        log|Ky without i| = log|Ky| - log v_i

    so up to what all points share the score is ``0.5 log v_i``. Selects the same point as
    `PredictiveEntropy`. Acceptance: the latent predictive variance (section 3.3.1).
    """

    published_reference = Reference.in_sample

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``0.5 log v``."""
        return 0.5 * log(variance)

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """``v - noise_variance``."""
        return latent_variance(variance, noise_variance)
