"""Claims about tables 2 to 4, each with the sentence that says how it is tested."""

from collections.abc import Sequence

import numpy as np

from experiments.studies.claims import LOWEST_OF_THREE, PaperClaim
from experiments.studies.evidence import Condition, Ratio, TableEvidence
from experiments.studies.label import LABELS
from experiments.studies.stream import CRITERIA, VARIANTS
from experiments.studies.verdict import LOWER, Region, at_most, within

TABLES = {"table_2": "table 2", "table_3": "table 3", "table_4": "table 4"}
NAMES = {"smse": "SMSE", "n_revised": "revised points"}
NO_WORSE = 1.05  # SMSE ratio with and without acceptance that counts as equal
HALF, BAND = 50.0, 1.5  # percent; factor
ROOM = 0.9  # share of the stream that may pass a threshold at most: where all do, more cannot
RELEVANCE, LIKELIHOOD = "mean_relevance", "marginal_log_likelihood"


def lowest(criterion: str, quantity: str = "smse", variant: str = "none") -> tuple[Ratio, ...]:
    """A quantity of one criterion over that of each of the others; the variant is the same on both sides."""
    return tuple(
        Ratio(f"{LABELS[criterion]} / {LABELS[rival].lower()}", quantity, ((criterion, variant),), ((rival, variant),))
        for rival in CRITERIA
        if rival != criterion
    )


def accepting(criteria: Sequence[str], variant: str, quantity: str, region: Region) -> Ratio:
    """A quantity with the matched acceptance over that without; geometric mean over criteria."""
    above, below = (tuple((criterion, each) for criterion in criteria) for each in (variant, "none"))
    return Ratio(f"{NAMES[quantity]} with / without acceptance", quantity, above, below, region)


def smse_claims() -> list[PaperClaim]:
    """Which criterion has the lowest SMSE."""
    statements = {
        "table_2": "Marginal log likelihood is the criterion for offline selection: its SMSE is mostly the lowest.",
        "table_3": "Online, where only the prediction error matters, mean relevance is the criterion (table 3).",
        "table_4": "Online, where only the prediction error matters, mean relevance is the criterion (table 4).",
    }
    return [
        PaperClaim(
            f"lowest_smse_{table}",
            1 if table == "table_2" else 2,
            5 if table == "table_2" else 7,
            statement,
            "A task is won if its SMSE is below that of each of the other two criteria, without acceptance.",
            TableEvidence(table, lowest(LIKELIHOOD if table == "table_2" else RELEVANCE)),
            LOWEST_OF_THREE,
        )
        for table, statement in statements.items()
    ]


def uncertainty_claims() -> list[PaperClaim]:
    """Which criterion describes its own errors best."""
    tests = {
        "lowest_nlpd": (
            "nlpd",
            "A task is won if the negative log predictive density on the test rows with marginal log likelihood is "
            "below that of each of the other two criteria, without acceptance; the ratio is one of densities.",
        ),
        "nearest_coverage": (
            "coverage_95",
            "A task is won if with marginal log likelihood the share of test targets inside of the 95 % band is "
            "nearer to 95 % (distance plus one percentage point) than with each of the other two criteria.",
        ),
    }
    return [
        PaperClaim(
            f"{name}_{table}",
            3,
            7,
            f"Where the uncertainty matters too, a likelihood is the criterion ({TABLES[table]}).",
            test,
            TableEvidence(table, lowest(LIKELIHOOD, quantity)),
            LOWEST_OF_THREE,
        )
        for table in ("table_3", "table_4")
        for name, (quantity, test) in tests.items()
    ]


def filter_claims() -> list[PaperClaim]:
    """What the acceptance of the likelihood leaves out."""
    claims = []
    for variant in VARIANTS[1:3]:
        harmless = accepting([LIKELIHOOD], variant, "smse", at_most(NO_WORSE))
        filters = lowest(LIKELIHOOD, "accepted_percent", variant)
        claims.append(
            PaperClaim(
                f"filters_most_{variant}",
                5,
                7,
                "The acceptance criterion of marginal log likelihood filters points without new information well.",
                f"A task of table 2 is won if it accepts a smaller percentage than the acceptance of each of the other "
                f"two criteria (reference {variant}), and its SMSE is at most 5 % above that without acceptance.",
                TableEvidence("table_2", (*filters, harmless)),
                LOWEST_OF_THREE,
            )
        )
    half = Ratio("accepted / 50 %", "accepted_percent", ((LIKELIHOOD, "published"),), HALF, within(BAND))
    claims.append(
        PaperClaim(
            "filters_half",
            0,
            5,
            "The acceptance criterion of marginal log likelihood filters about half of the points.",
            "A task of table 2 is won if it accepts between a third and three quarters (50 % times or divided by 1.5).",
            TableEvidence("table_2", (half,)),
        )
    )
    return claims


def saving_claims() -> list[PaperClaim]:
    """What acceptance saves, and what it costs."""
    some_inserted = Condition(("prior_entropy", "none"), "n_inserted", 0.0, np.inf)
    tests = {
        "saves": ("n_revised", LOWER, "fewer points are revised"),
        "harmless": ("smse", at_most(NO_WORSE), "the SMSE is at most 5 % higher"),
    }
    return [
        PaperClaim(
            f"{name}_{table}_{variant}",
            6,
            7,
            f"An acceptance criterion is recommended in general, to save computation ({TABLES[table]}).",
            f"A task is won if with the matched acceptance (reference {variant}) {text} than without, in the geometric "
            "mean over the three criteria; same threshold, tasks where at least one point passes it.",
            TableEvidence(table, (accepting([*CRITERIA], variant, quantity, region),), False, (some_inserted,)),
        )
        for table in TABLES
        for variant in VARIANTS[1:3]
        for name, (quantity, region, text) in tests.items()
    ]


def saturation_claims() -> list[PaperClaim]:
    """What acceptance does to the insertion rule, where it could let more points pass."""
    conditions = (
        Condition((LIKELIHOOD, "published"), "accepted_percent", -1.0, HALF),
        Condition((LIKELIHOOD, "none"), "n_inserted", -1.0, ROOM, "n_offered"),
    )
    return [
        PaperClaim(
            f"threshold_not_met_{table}",
            0,
            7,
            "If acceptance filters a large part, the insertion threshold cannot be met with the budget "
            f"({TABLES[table]}).",
            "Of the seeds where the acceptance of marginal log likelihood (published reference) turns down more than "
            "half of the points that pass the threshold, and where less than 90 % of all pass it without acceptance, a "
            "task is won if more points pass it than without.",
            TableEvidence(
                table,
                (
                    Ratio(
                        "inserted without / with acceptance",
                        "n_inserted",
                        ((LIKELIHOOD, "none"),),
                        ((LIKELIHOOD, "published"),),
                    ),
                ),
                own=False,
                conditions=conditions,
            ),
        )
        for table in ("table_3", "table_4")
    ]


TABLE_CLAIMS = (*smse_claims(), *uncertainty_claims(), *filter_claims(), *saving_claims(), *saturation_claims())
