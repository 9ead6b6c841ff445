"""Claims about the figures: reduction of a set, sweeps over the error threshold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr

from experiments.studies.claims import LOWEST_OF_THREE, PaperClaim
from experiments.studies.evidence import Evidence, NeedsError, Results
from experiments.studies.label import LABELS
from experiments.studies.stream import CRITERIA
from experiments.studies.tasks.catalogue import TASKS
from experiments.studies.verdict import LOWER, Comparison, Region, at_most

FUNCTIONS = ("rastrigin", "rosenbrock", "himmelblau", "six_hump_camel")
ENTROPY, RELEVANCE, LIKELIHOOD = "prior_entropy", "mean_relevance", "marginal_log_likelihood"
VAN_DER_POL_KNEE = 0.005  # error threshold below which mean relevance is said to be the lowest
BUILDING_KNEE, BUILDING_FLAT = 0.15, 0.125  # K
REFERENCE = "leave_one_out"  # of the acceptance
SAME, STRONGLY = 1.05, 1.1  # SMSE ratios: no gain; a strong rise


@dataclass(frozen=True)
class FigureEvidence(Evidence):
    """Comparisons that a function reads from the store of one study."""

    study: str
    compare: Callable[[xr.Dataset], dict[str, list[Comparison]]]

    @property
    def needs(self) -> tuple[str, ...]:
        """The study."""
        return (self.study,)

    def places(self, results: Results) -> dict[str, list[Comparison]]:
        """What the function finds in the store."""
        store = results.store(self.study)
        try:
            return self.compare(store)
        except KeyError as error:
            reason = str(error.args[0]).split(". ")[0]
            raise NeedsError(f"{self.study}.nc ({reason})") from error


def mean_smse(store: xr.Dataset, task: str, criterion: str) -> np.ndarray:
    """Logarithm of the geometric mean over all sizes but the full one, where all criteria agree (seed,)."""
    title = TASKS[task].title
    if title not in store["dataset"].values:
        return np.empty(0)
    smse = store["smse"].sel(dataset=title, criterion=criterion)
    smaller = smse.sel(n_points=smse["n_points"] < smse["n_points"].max())
    return np.log(smaller.transpose("n_points", "seed").values).mean(axis=0)


def _reduction_ratio(store: xr.Dataset, task: str, above: str, below: str) -> Comparison:
    label = f"{LABELS[above]} / {LABELS[below].lower()}"
    return Comparison(label, mean_smse(store, task, above) - mean_smse(store, task, below))


def likelihood_lowest(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """Marginal log likelihood over the two others, per function."""
    return {
        TASKS[task].title: [_reduction_ratio(store, task, LIKELIHOOD, rival) for rival in (ENTROPY, RELEVANCE)]
        for task in FUNCTIONS
    }


def below_entropy(store: xr.Dataset, criterion: str) -> dict[str, list[Comparison]]:
    """A criterion over prior entropy, per function."""
    return {TASKS[task].title: [_reduction_ratio(store, task, criterion, ENTROPY)] for task in FUNCTIONS}


def camel_gap(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """Gap of the six-hump camel over that of each other function."""

    def gap(task: str) -> np.ndarray:
        entropy = mean_smse(store, task, ENTROPY)
        return np.abs(entropy - 0.5 * (mean_smse(store, task, RELEVANCE) + mean_smse(store, task, LIKELIHOOD)))

    camel = gap("six_hump_camel")
    return {
        TASKS[task].title: [Comparison("gap of six-hump camel / this gap", _difference(camel, gap(task)))]
        for task in FUNCTIONS[:3]
    }


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Difference over seeds; nothing if one has none."""
    return a - b if len(a) == len(b) else np.empty(0)


def _log(store: xr.Dataset, criterion: str, quantity: str = "smse", variant: str = "none") -> xr.DataArray:
    """Logarithm of a quantity (of a number of points: plus one) over seeds and the thresholds that have one."""
    values = store[quantity].sel(criterion=criterion, variant=variant).dropna("threshold", how="all")
    values = values.sortby("threshold").transpose("threshold", "seed")
    return values.copy(data=(np.log1p if quantity == "n_revised" else np.log)(values.values))


def below(values: xr.DataArray, threshold: float) -> np.ndarray:
    """Mean over the thresholds below one (seed,); nan if there is none."""
    chosen = values.sel(threshold=values["threshold"] < threshold)
    return chosen.mean("threshold", skipna=False).values if chosen.size else _nothing(values)


def _nothing(values: xr.DataArray) -> np.ndarray:
    return np.full(values.sizes["seed"], np.nan)


def from_lowest(values: xr.DataArray, threshold: float) -> np.ndarray:
    """At one of the thresholds minus at the lowest of them (seed,); nan if there is none above it."""
    if not (values.size and threshold > values["threshold"].values.min()):
        return _nothing(values)
    return np.asarray(values.sel(threshold=threshold).values - values.values[0])


def next_above(values: xr.DataArray, threshold: float) -> float:
    """Lowest threshold with results that is not below one; nan if there is none."""
    found = values["threshold"].values
    return float(found[found >= threshold].min()) if (found >= threshold).any() else np.nan


def next_below(values: xr.DataArray, threshold: float) -> float:
    """Highest threshold with results that is not above one; nan if there is none."""
    found = values["threshold"].values
    return float(found[found <= threshold].max()) if (found <= threshold).any() else np.nan


def relevance_lowest(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """Mean relevance over the two others, mean over the thresholds below the knee."""
    own = below(_log(store, RELEVANCE), VAN_DER_POL_KNEE)
    return {
        TASKS["van_der_pol"].title: [
            Comparison(
                f"{LABELS[RELEVANCE]} / {LABELS[rival].lower()}", own - below(_log(store, rival), VAN_DER_POL_KNEE)
            )
            for rival in (ENTROPY, LIKELIHOOD)
        ]
    }


def rise(store: xr.Dataset, criteria: Sequence[str], knee: float, region: Region) -> dict[str, list[Comparison]]:
    """SMSE at a threshold, or the next that has results, over that at the lowest one, per criterion."""
    found = {}
    for criterion in criteria:
        curve = _log(store, criterion)
        threshold = next_above(curve, knee)
        label = f"SMSE at {threshold:g} / at the lowest threshold"
        found[LABELS[criterion]] = [Comparison(label, from_lowest(curve, threshold), region)]
    return found


def no_gain(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """SMSE at the knee, or the next threshold with results, over the geometric mean below the knee, per criterion."""
    found = {}
    for criterion in CRITERIA:
        curve = _log(store, criterion)
        threshold = next_above(curve, BUILDING_KNEE)
        own = curve.sel(threshold=threshold).values if np.isfinite(threshold) else _nothing(curve)
        label = f"SMSE at {threshold:g} K / mean below"
        found[LABELS[criterion]] = [Comparison(label, own - below(curve, BUILDING_KNEE), at_most(SAME))]
    return found


def flattens(store: xr.Dataset) -> dict[str, list[Comparison]]:
    """Growth of the number of revised points below a threshold, with over without acceptance, per criterion.

    From that threshold on, or from the next below it that has results.
    """
    found = {}
    for criterion in CRITERIA:
        accepting, plain = (_log(store, criterion, "n_revised", variant) for variant in (REFERENCE, "none"))
        threshold = next_below(plain, BUILDING_FLAT)
        label = f"growth from {threshold:g} K with / without acceptance"
        values = from_lowest(plain, threshold) - from_lowest(accepting, threshold)
        found[LABELS[criterion]] = [Comparison(label, values)]
    return found


REDUCTION_CLAIMS = (
    PaperClaim(
        "lowest_smse_reduction",
        1,
        7,
        "Marginal log likelihood is the criterion for offline selection (a set of 100 reduced to 1).",
        "A function is won if the geometric mean of its SMSE over the sizes 99 to 1 is below that of each of the "
        "other two criteria.",
        FigureEvidence("figure_reduction", likelihood_lowest),
        LOWEST_OF_THREE,
    ),
    *(
        PaperClaim(
            f"{name}_below_entropy_reduction",
            0,
            5,
            f"Reducing a set, {LABELS[criterion].lower()} stays below prior entropy.",
            "A function is won if the geometric mean of its SMSE over the sizes 99 to 1 is below that of the entropy.",
            FigureEvidence("figure_reduction", partial(below_entropy, criterion=criterion)),
        )
        for name, criterion in (("relevance", RELEVANCE), ("likelihood", LIKELIHOOD))
    ),
    PaperClaim(
        "small_gap_camel",
        0,
        5,
        "On the six-hump camel function the gap between the criteria is small.",
        "Another function is won if its gap (SMSE of prior entropy over the geometric mean of the two others, or its "
        "inverse) is larger.",
        FigureEvidence("figure_reduction", camel_gap),
    ),
)

SWEEP_CLAIMS = (
    PaperClaim(
        "van_der_pol_relevance_lowest",
        2,
        6,
        "Van der Pol: below an error threshold of 0.005 mean relevance has the lowest SMSE.",
        "Won if the geometric mean of its SMSE over the thresholds below 0.005 is below that of each of the others.",
        FigureEvidence("figure_van_der_pol", relevance_lowest),
        LOWEST_OF_THREE,
    ),
    PaperClaim(
        "van_der_pol_entropies_rise",
        0,
        6,
        "Van der Pol: below an error threshold of 0.005 the SMSE of the entropy-like criteria rises again.",
        "A criterion (prior entropy, marginal log likelihood) is won if its SMSE at the lowest threshold is above that "
        "at 0.005 (or the next threshold that was computed).",
        FigureEvidence("figure_van_der_pol", lambda store: rise(store, (ENTROPY, LIKELIHOOD), VAN_DER_POL_KNEE, LOWER)),
    ),
    PaperClaim(
        "building_no_gain",
        0,
        6,
        "Building: an error threshold below 0.15 K brings no further gain.",
        "A criterion is won if its SMSE at 0.15 K is at most 5 % above the geometric mean below it.",
        FigureEvidence("figure_building", no_gain),
    ),
    PaperClaim(
        "building_entropy_rises",
        0,
        6,
        "Building: the SMSE of prior entropy rises strongly for low thresholds.",
        "Won if its SMSE at the lowest threshold is more than 10 % above that at 0.15 K.",
        FigureEvidence("figure_building", lambda store: rise(store, (ENTROPY,), BUILDING_KNEE, at_most(1 / STRONGLY))),
    ),
    PaperClaim(
        "building_acceptance_flattens",
        0,
        6,
        "Building: below 0.125 K acceptance flattens the number of revised points: the threshold cannot be met.",
        "A criterion is won if with acceptance (leave-one-out reference) the number of revised points grows by a "
        "smaller factor from 0.125 K (or the next threshold below it that was computed) to the lowest than without.",
        FigureEvidence("figure_building", flattens),
    ),
)
