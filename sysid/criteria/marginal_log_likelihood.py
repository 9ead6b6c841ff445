"""Marginal log likelihood, section 3.2.3."""

from dataclasses import dataclass

from sysid.criteria.criterion import Criterion
from sysid.criteria.log_predictive_density import negative_log_density
from sysid.reference import Reference


@dataclass(frozen=True)
class MarginalLogLikelihood(Criterion):
    """Remove the point without which the remaining data are least likely (Petelin).

    ``f_red = log p(y without i) = log p(y) - log p(y_i | y without i)`` by the chain rule; ``log p(y)`` is shared by all
    points and dropped, which leaves the score of `LogPredictiveDensity`. Acceptance: the negative log
    predictive density (section 3.3.3).
    """

    reduction = staticmethod(negative_log_density)
    acceptance = staticmethod(negative_log_density)
    published_reference = Reference.leave_one_out
