"""Names of the criteria for people, in the order of the paper."""

LABELS = {
    "prior_entropy": "Prior entropy",
    "predictive_entropy": "Predictive entropy",
    "mean_relevance": "Mean relevance",
    "marginal_log_likelihood": "Marginal log likelihood",
    "log_predictive_density": "Log predictive density",
}
