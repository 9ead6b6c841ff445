"""Names of the criteria for people, in the order of the paper."""

LABELS = {
    "prior_entropy": "Prior entropy",
    "predictive_entropy": "Predictive entropy",
    "mean_relevance": "Mean relevance",
    "marginal_log_likelihood": "Marginal log likelihood",
    "log_predictive_density": "Log predictive density",
}

#: what the acceptance judges stored points by
REFERENCES = {"leave_one_out": "leave-one-out", "in_sample": "in-sample", "published": "as published"}


def acceptance_name(variant: str) -> str:
    """A variant in words: ``without acceptance``, ``acceptance, leave-one-out``."""
    return "without acceptance" if variant == "none" else f"acceptance, {REFERENCES[variant]}"
