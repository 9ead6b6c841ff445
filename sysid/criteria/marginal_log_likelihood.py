"""Marginal log likelihood, section 3.2.3."""

from dataclasses import dataclass

from sysid.criteria.log_predictive_density import LogPredictiveDensity


@dataclass(frozen=True)
class MarginalLogLikelihood(LogPredictiveDensity):
    """Remove the point without which the remaining data are least likely (Petelin).

    ::

        f_red = log p(y without i) = log p(y) - log p(y_i | y without i)

    by the chain rule, and the lowest leaves: the point that the others predict best. ``log p(y)`` is shared
    by all points and dropped, which leaves the very formula of `LogPredictiveDensity`, as the paper's
    section 3.2.3 proves. Acceptance: the negative log predictive density (section 3.3.3).
    """
