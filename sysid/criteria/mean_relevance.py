"""Mean relevance, section 3.2.2."""

from dataclasses import dataclass

from sysid.criteria.criterion import Criterion
from sysid.reference import Reference


@dataclass(frozen=True)
class MeanRelevance(Criterion):
    """Remove the point that changes the posterior mean at its own place least (Bergmann).

    ``f_red = (mu_i - mu_/i)^2 = (r_i (v_i - noise_variance) / v_i)^2``: the leave-one-out residual times the
    gain of the point, both means with the candidate in the set. Acceptance: the squared prediction
    error (section 3.3.2).
    """

    published_reference = Reference.in_sample

    @staticmethod
    def reduction(residual: float, variance: float, noise_variance: float) -> float:
        """``(r (v - noise_variance) / v)^2``."""
        change = residual * (variance - noise_variance) / variance
        return change * change

    @staticmethod
    def acceptance(residual: float, variance: float, noise_variance: float) -> float:
        """``r^2``."""
        return residual * residual
