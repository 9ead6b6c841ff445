"""Claims about where the points lie, and about criteria that choose the same ones."""

import numpy as np
import xarray as xr

from experiments.studies.claims import LOWEST_OF_THREE, PaperClaim
from experiments.studies.figure_claims import ENTROPY, LIKELIHOOD, RELEVANCE, FigureEvidence
from experiments.studies.label import LABELS
from experiments.studies.point_pattern import share_of_area
from experiments.studies.tasks.catalogue import TASKS
from experiments.studies.verdict import Comparison, at_most, within

POINT = 0.01  # of share: added to both sides, as a share may be 0
NO_FOCUS = 1.25  # share at the boundary over that of uniform points which is no focus yet
ROUNDING = 1.0 + 1e-6  # ratio of two SMSE from the same points


def _log(store: xr.Dataset, quantity: str, criterion: str) -> np.ndarray:
    """Logarithm of a statistic without acceptance (seed,)."""
    return np.log(store[quantity].sel(criterion=criterion, variant="none").values)


def _edge(store: xr.Dataset, criterion: str) -> np.ndarray:
    """Log ratio of the share of points at the boundary and that of uniform points (seed,)."""
    share = store["boundary_share"].sel(criterion=criterion, variant="none").values
    return np.log(share + POINT) - np.log(share_of_area(2) + POINT)


def _clusters(store: xr.Dataset, criterion: str) -> Comparison:
    return Comparison("distance to the neighbour / uniform", _log(store, "nearest_distance_ratio", criterion))


def _uses_boundary(store: xr.Dataset, criterion: str) -> Comparison:
    return Comparison("uniform / share at the boundary", -_edge(store, criterion))


def most_even(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """Distance to the nearest neighbour: of the others over prior entropy, of uniform points over prior entropy."""
    own = _log(store, "nearest_distance_ratio", ENTROPY)
    rivals = [
        Comparison(f"{LABELS[other]} / prior entropy", _log(store, "nearest_distance_ratio", other) - own)
        for other in (RELEVANCE, LIKELIHOOD)
    ]
    return {"Rastrigin": [*rivals, Comparison("uniform / prior entropy", -own)]}


def entropy_points(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """Even, and at the boundary."""
    even = Comparison("uniform / distance to the neighbour", -_log(store, "nearest_distance_ratio", ENTROPY))
    return {"Even": [even], "At the boundary": [_uses_boundary(store, ENTROPY)]}


def relevance_points(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """A lower error, clusters, no focus on the boundary."""
    error = _log(store, "mean_abs_error", RELEVANCE) - _log(store, "mean_abs_error", ENTROPY)
    edge = Comparison("share at the boundary / uniform", _edge(store, RELEVANCE), at_most(NO_FOCUS))
    return {
        "Lower error": [Comparison("error / that of prior entropy", error)],
        "Clusters": [_clusters(store, RELEVANCE)],
        "No focus on the boundary": [edge],
    }


def likelihood_points(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """Clusters, and at the boundary."""
    return {"Clusters": [_clusters(store, LIKELIHOOD)], "At the boundary": [_uses_boundary(store, LIKELIHOOD)]}


def same_points(store: xr.Dataset, one: str, other: str) -> dict[str, list[Comparison]]:
    """SMSE of two reduction criteria without acceptance, per task."""
    found = {}
    for task in TASKS.values():
        values = np.empty(0)
        if task.title in store["dataset"].values:
            smse = store["smse"].sel(dataset=task.title, acceptance="none")
            values = np.log(smse.sel(reduction=one).values) - np.log(smse.sel(reduction=other).values)
        label = f"{LABELS[one]} / {LABELS[other].lower()}"
        found[task.title] = [Comparison(label, values, within(ROUNDING), task.is_random)]
    return found


POINTS_CLAIMS = (
    PaperClaim(
        "entropy_covers_evenly",
        4,
        7,
        "Prior or predictive entropy where the input space shall be covered evenly, and only there.",
        "Rastrigin, all new points offered: won if the mean distance of a point to its nearest neighbour is above that "
        "with each of the other criteria, and above that of uniform points.",
        FigureEvidence("figure_rastrigin", most_even),
        LOWEST_OF_THREE,
    ),
    PaperClaim(
        "points_of_prior_entropy",
        0,
        5,
        "Rastrigin: prior entropy spreads the points evenly, with weight on the boundary.",
        "Even: the distance to the nearest neighbour is above that of uniform points. At the boundary: the share of "
        "points there (plus one percentage point) is above that of uniform points.",
        FigureEvidence("figure_rastrigin", entropy_points),
    ),
    PaperClaim(
        "points_of_mean_relevance",
        0,
        5,
        "Rastrigin: mean relevance lowers the error, clusters the points and has no focus on the boundary.",
        "Lower error: the mean absolute error on the grid is below that of prior entropy. Clusters: the distance to "
        "the nearest neighbour is below that of uniform points. No focus: the share at the boundary is at most a "
        "quarter above that of uniform points.",
        FigureEvidence("figure_rastrigin", relevance_points),
    ),
    PaperClaim(
        "points_of_marginal_log_likelihood",
        0,
        5,
        "Rastrigin: marginal log likelihood clusters the points and uses the boundary.",
        "Clusters and the boundary as for the other two criteria.",
        FigureEvidence("figure_rastrigin", likelihood_points),
    ),
)

SAME = "A task is won if the SMSE of both in table 2 without acceptance agrees within one part in a million."
EQUIVALENCE_CLAIMS = (
    PaperClaim(
        "entropies_agree",
        0,
        3,
        "Prior entropy and predictive entropy choose the same points.",
        SAME,
        FigureEvidence("grid", lambda store: same_points(store, "prior_entropy", "predictive_entropy")),
    ),
    PaperClaim(
        "likelihoods_agree",
        0,
        3,
        "Marginal log likelihood and log predictive density choose the same points.",
        SAME,
        FigureEvidence("grid", lambda store: same_points(store, "marginal_log_likelihood", "log_predictive_density")),
    ),
)
