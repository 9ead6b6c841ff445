"""How stored points are judged when a candidate asks to be accepted."""

from enum import Enum


class Reference(Enum):
    """Prediction against which the acceptance score of a stored point is taken.

    The paper leaves it open (section 3.3): its formulas for the entropies and for mean relevance read as
    ``in_sample``, the one for the predictive density as ``leave_one_out``.
    """

    leave_one_out = "leave_one_out"  # without the point itself, as the candidate is judged
    in_sample = "in_sample"  # by the model that contains the point
    published = "published"  # what the paper's text says for each criterion
