"""Criteria that say which point of a dictionary is worth least."""

from sysid.criteria.criterion import Criterion
from sysid.criteria.log_predictive_density import LogPredictiveDensity
from sysid.criteria.marginal_log_likelihood import MarginalLogLikelihood
from sysid.criteria.mean_relevance import MeanRelevance
from sysid.criteria.predictive_entropy import PredictiveEntropy
from sysid.criteria.prior_entropy import PriorEntropy

__all__ = [
    "Criterion",
    "LogPredictiveDensity",
    "MarginalLogLikelihood",
    "MeanRelevance",
    "PredictiveEntropy",
    "PriorEntropy",
]
