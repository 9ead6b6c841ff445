"""The paper's guidelines and claims (`claims.yaml`), tested on results of other studies.

Every comparison is a log ratio per seed, paired over seeds. A claim states the region in which it
lies: below 0 (lower than a rival), below ``log 1.05`` (at most 5 % more), or within a band. A place
of a claim, mostly a task, may need several comparisons: the claim is won there if all of them are
won, and lost if one of them is lost.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
import yaml
from scipy.stats import binom, binomtest, wilcoxon

from experiments.drawing.style import LABELS
from experiments.drawing.tables import significant, to_markdown
from experiments.reproduce import paper
from experiments.reproduce.stream import STREAM_QUANTITIES, VARIANTS, Setting
from experiments.reproduce.study import Plan, Study, spread_out
from experiments.reproduce.sweeps import average_sizes
from experiments.reproduce.tasks import PAPER_TASKS
from sysid.gp.rules import COMPARED_CRITERIA

SIGNIFICANCE_LEVEL = 0.05  # level of the tests; intervals contain 95 %
MAX_TIE_LOG_RATIO = float(np.log(1.01))  # a ratio this close to 1 is a tie
# Outcomes of a comparison or a place.
OUTCOME_WON = "won"
OUTCOME_LOST = "lost"
OUTCOME_EQUAL = "equal"  # both sides are shown to be within 1 %, which counts as a tie
OUTCOME_TIED = "tied"
OUTCOME_MISSING = "missing"
# Verdicts on a claim or a guideline.
HOLDS = "holds"
IN_PART = "holds in part"
FAILS = "does not hold"
UNDECIDED = "undecided"
VERDICTS = (HOLDS, IN_PART, FAILS, UNDECIDED)
NAN = float("nan")
PRINTED_SETTING = "printed"  # the paper's own tables, which stand beside the settings
CLAIM_SETTINGS = (*(setting.value for setting in Setting), PRINTED_SETTING)
# Values of the keys of a claim that `claims.yaml` may leave out.
CLAIM_DEFAULTS: dict[str, Any] = {
    "ratios": (),
    "where": (),
    "own": True,
    "chance": 0.5,
}
TASK_TITLES = [task.title for task in PAPER_TASKS.values()]
OUTCOME_COUNTS = ("n_won", "n_lost", "n_equal", "n_tied", "n_missing")
CLAIM_NUMBERS = (*OUTCOME_COUNTS, "n_tested", "p_sign", "p_least", "ratio")
#: Columns of the CSV file by the variables of the store.
PLACE_COLUMNS = {
    "place": "place",
    "outcome": "outcome",
    "comparison": "comparison",
    "median": "place_ratio",
    "low": "place_ratio_low",
    "high": "place_ratio_high",
    "p_value": "place_p",
    "n": "n_seeds",
}
BAND_COVERAGE = 0.95  # nominal coverage of the 95 % band
PERCENTAGE_POINT = 0.01


def _scale_coverage(fraction: np.ndarray) -> np.ndarray:
    """Return the logarithm of the distance of a fraction from 95 %, plus one percentage point."""
    return np.log(np.abs(fraction - BAND_COVERAGE) + PERCENTAGE_POINT)


def _scale_fraction(fraction: np.ndarray) -> np.ndarray:
    """Return the logarithm of a fraction plus one percentage point."""
    return np.log(fraction + PERCENTAGE_POINT)


#: Scales on which a difference is a log ratio; the logarithm for quantities that are not listed.
LOG_RATIO_SCALES: dict[str, Any] = {
    "n_revised": np.log1p,  # one point is added, as there may be none
    "n_inserted": np.log1p,
    "nlpd": np.array,  # nats: the ratio is that of the predictive densities
    "coverage_95": _scale_coverage,
    "boundary_share": _scale_fraction,
    "gap": np.array,  # a log ratio already
}


def read_claims() -> tuple[dict[int, str], list[dict[str, Any]]]:
    """Return the guidelines by number, and all claims, those of the guidelines first.

    The head of `claims.yaml` describes the keys of a claim.
    """
    content = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text(encoding="utf-8"))
    claims = []
    for group in content["groups"]:
        names = [*group.get("each", {})]
        for values in product(*group.get("each", {}).values()):
            text = json.dumps(group["claims"])
            for name, value in zip(names, values, strict=True):
                text = text.replace(f"{{{name}}}", value)
                text = text.replace(f"{{{name} in words}}", value.replace("_", " "))
            claims += [CLAIM_DEFAULTS | claim for claim in json.loads(text)]
    claims.sort(key=lambda claim: (claim["guideline"] or np.inf, claim["section"]))
    return content["guidelines"], claims


GUIDELINES, CLAIMS = read_claims()


# --- assessment of paired results -----------------------------------------------------------------


class Comparison(NamedTuple):
    """Log ratios over seeds, nan where there is none, and the region that the claim states."""

    label: str
    values: np.ndarray  # (seed,)
    low: float = -np.inf
    high: float = 0.0
    is_random: bool = True  # False: one number without a spread, counted but not tested


class Assessment(NamedTuple):
    """Result of a comparison; or of a place, as its decisive comparison with the place's p-value.

    The decisive comparison is the one that is least favourable to the claim.
    """

    comparison: str
    outcome: str
    median: float  # log ratio
    low: float  # 95 % interval of the median; nan without a spread
    high: float
    n: int  # seeds
    # Of the outcome, before the correction for the number of places; nan without a test.
    p_value: float
    region_low: float
    region_high: float


class ClaimAssessment(NamedTuple):
    """Result of a claim in one setting."""

    verdict: str
    n_won: int
    n_lost: int
    n_equal: int
    n_tied: int  # without the equal ones
    n_missing: int
    n_tested: int  # places with a test
    p_sign: float  # of the wins against the losses
    p_least: float  # the smallest of all places, corrected for their number; nan without a test
    ratio: float  # geometric mean over places of the decisive median ratio; nan without any
    places: Mapping[str, Assessment]
    needs: str = ""  # what is missing


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """Return two values between which the median of any distribution lies with at least 95 %.

    They are order statistics; infinite with fewer than six values.
    """
    n = len(values)
    # The largest k with P(fewer than k of n coins show heads) < 2.5 %.
    rank = int(binom.ppf(SIGNIFICANCE_LEVEL / 2, n, 0.5))
    if rank < 1:
        return -np.inf, np.inf
    ordered = np.sort(values)
    return float(ordered[rank - 1]), float(ordered[n - rank])


def signed_rank(values: np.ndarray) -> float:
    """Return the two-sided p-value of Wilcoxon's exact signed-rank test of a median of 0.

    Zeros are left out.
    """
    nonzero = values[values != 0.0]
    return float(wilcoxon(nonzero, method="exact").pvalue) if len(nonzero) else 1.0


def sign_test(n_won: int, n_lost: int, chance: float = 0.5) -> float:
    """Return the two-sided p-value of the number of wins.

    Under the null hypothesis each comparison is won with the probability `chance`. Ties are left
    out.
    """
    n_decided = n_won + n_lost
    return float(binomtest(n_won, n_decided, chance).pvalue) if n_decided else 1.0


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values in ascending order, corrected for their number (Holm 1979)."""
    ordered = np.sort(np.asarray(p_values, dtype=float))
    steps = ordered * np.arange(len(ordered), 0, -1)
    return np.minimum(np.maximum.accumulate(steps), 1.0)


def assess(comparison: Comparison) -> Assessment:
    """Return median, interval and outcome of a comparison, and the p-value of the outcome.

    If the region ends at 0, a median within 1 % of 0 is a tie.
    """
    label = comparison.label
    region = (comparison.low, comparison.high)
    is_random = comparison.is_random
    values = comparison.values[np.isfinite(comparison.values)]
    if not len(values):
        return Assessment(label, OUTCOME_MISSING, NAN, NAN, NAN, 0, NAN, *region)
    median = float(np.median(values))
    low, high = median_interval(values) if is_random else (median, median)
    has_ties = 0.0 in region
    if has_ties and low >= -MAX_TIE_LOG_RATIO and high <= MAX_TIE_LOG_RATIO:
        outcome = OUTCOME_EQUAL if is_random else OUTCOME_TIED
    elif has_ties and abs(median) <= MAX_TIE_LOG_RATIO:
        outcome = OUTCOME_TIED
    elif low > region[1] or high < region[0]:
        outcome = OUTCOME_LOST
    elif low > region[0] and high < region[1]:
        outcome = OUTCOME_WON
    else:
        outcome = OUTCOME_TIED
    if not is_random:
        return Assessment(label, outcome, median, NAN, NAN, len(values), NAN, *region)
    # The median is shown to lie beyond these bounds.
    bounds = {
        OUTCOME_WON: [bound for bound in region if np.isfinite(bound)],
        OUTCOME_LOST: [region[1] if median > region[1] else region[0]],
        OUTCOME_EQUAL: [MAX_TIE_LOG_RATIO, -MAX_TIE_LOG_RATIO],
        OUTCOME_TIED: [],
    }
    p_value = max((signed_rank(values - bound) for bound in bounds[outcome]), default=1.0)
    return Assessment(label, outcome, median, low, high, len(values), p_value, *region)


def assess_place(comparisons: Sequence[Comparison]) -> Assessment:
    """Return the decisive comparison of a place, with the place's p-value.

    The place is won if all comparisons are won (its p-value is their largest one), and lost if one
    is lost (its p-value is the smallest one times the number of comparisons).
    """
    assessments = [assess(comparison) for comparison in comparisons]
    outcomes = {assessment.outcome for assessment in assessments}
    worst_first = (
        OUTCOME_MISSING,
        OUTCOME_LOST,
        OUTCOME_EQUAL,
        OUTCOME_TIED,
        OUTCOME_WON,
    )
    outcome = next(each for each in worst_first if each in outcomes)
    candidates = [assessment for assessment in assessments if assessment.outcome == outcome]
    p_values = np.array([assessment.p_value for assessment in candidates])
    p_value = p_values.max()
    is_one_enough = outcome in (OUTCOME_LOST, OUTCOME_EQUAL)
    if is_one_enough:
        p_value = np.minimum(p_values.min() * len(assessments), 1.0)
    decisive = max(candidates, key=_distance_outside)
    return decisive._replace(p_value=float(p_value))


def _distance_outside(assessment: Assessment) -> float:
    """Return how far the median lies outside its region; negative inside."""
    above = assessment.median - assessment.region_high
    below = assessment.region_low - assessment.median
    return max(above, below)


def assess_claim(
    places: Mapping[str, Sequence[Comparison]], chance: float = 0.5
) -> ClaimAssessment:
    """Return the verdict on a claim from the comparisons at every place.

    `chance` is the probability of a win, among wins and losses, if the claim were empty: a third
    for the lowest of three.

    An effect is shown if one place's result is significant (p <= 5 % after Holm's correction over
    the places), or the sign test of wins against losses is; otherwise the claim is `undecided`.
    If an effect is shown, the claim

    - `holds` if more than half of the places are won, and of those with a test too, and either none
      is lost or the sign test supports the claim;
    - `does not hold` if no place with a test is won and the sign test does not support the claim;
      or if at least half are lost or equal and the sign test (equal places as losses) contradicts
      it;
    - otherwise `holds in part`: single numbers alone never decide that it holds.

    With missing places there is a verdict only if it would be the same were all of them won, and
    were all of them lost.
    """
    found = {name: assess_place(comparisons) for name, comparisons in places.items()}
    counts = Counter(place.outcome for place in found.values())
    corrected = holm([place.p_value for place in found.values() if np.isfinite(place.p_value)])
    p_least = float(corrected.min()) if len(corrected) else NAN
    medians = [place.median for place in found.values() if place.outcome != OUTCOME_MISSING]
    is_shown = p_least <= SIGNIFICANCE_LEVEL
    verdicts = {
        _decide(found.values(), of_missing, chance, is_shown)
        for of_missing in (OUTCOME_WON, OUTCOME_LOST)
    }
    verdict = verdicts.pop() if len(verdicts) == 1 and medians else UNDECIDED
    return ClaimAssessment(
        verdict=verdict,
        n_won=counts[OUTCOME_WON],
        n_lost=counts[OUTCOME_LOST],
        n_equal=counts[OUTCOME_EQUAL],
        n_tied=counts[OUTCOME_TIED],
        n_missing=counts[OUTCOME_MISSING],
        n_tested=len(corrected),
        p_sign=sign_test(counts[OUTCOME_WON], counts[OUTCOME_LOST], chance),
        p_least=p_least,
        ratio=float(np.exp(np.mean(medians))) if medians else NAN,
        places=found,
    )


def _decide(places: Collection[Assessment], of_missing: str, chance: float, is_shown: bool) -> str:
    """Return the verdict if all missing places had the outcome `of_missing`.

    A missing place may have a test. `is_shown` states whether the result of one place is
    significant.
    """
    outcomes = []
    tested = []  # outcomes of places that have, or may have, a test
    for place in places:
        is_missing = place.outcome == OUTCOME_MISSING
        outcome = of_missing if is_missing else place.outcome
        outcomes.append(outcome)
        if is_missing or np.isfinite(place.p_value):
            tested.append(outcome)
    won = outcomes.count(OUTCOME_WON)
    lost = outcomes.count(OUTCOME_LOST)
    against = lost + outcomes.count(OUTCOME_EQUAL)
    has_more_wins = won > chance * (won + lost)
    has_fewer_wins = won < chance * (won + against)
    is_for = has_more_wins and sign_test(won, lost, chance) <= SIGNIFICANCE_LEVEL
    is_against = has_fewer_wins and sign_test(won, against, chance) <= SIGNIFICANCE_LEVEL
    if not (is_shown or is_for or is_against):
        return UNDECIDED
    wins_half_of_tested = not tested or 2 * tested.count(OUTCOME_WON) > len(tested)
    is_mostly_won = 2 * won > len(outcomes) and wins_half_of_tested
    if is_mostly_won and (is_for or not lost):
        return HOLDS
    has_no_win = OUTCOME_WON not in tested and not is_for
    if has_no_win or (2 * against >= len(outcomes) and is_against):
        return FAILS
    return IN_PART


def sum_up(parts: Sequence[str]) -> str:
    """Return the verdict on a guideline from those on its parts.

    A part that is not computed ("") does not count; without any part the verdict is empty. The
    guideline holds, or does not, if all decided parts agree and at least half of the parts are
    decided. It holds in part if the decided parts disagree. Otherwise it is undecided.
    """
    known = [part for part in parts if part]
    if not known:
        return ""
    decided = [part for part in known if part != UNDECIDED]
    if len(set(decided)) > 1:
        return IN_PART
    if decided and 2 * len(decided) >= len(known):
        return decided[0]
    return UNDECIDED


# --- the study ------------------------------------------------------------------------------------


class Guidelines(Study):
    """Verdicts with their numbers; the study reads the stores of others and computes no stream."""

    name = "guidelines"
    title = "Where the paper's guidelines and claims hold"
    tasks = ()
    needs = tuple(dict.fromkeys(claim["study"] for claim in CLAIMS))

    def combine(self, plan: Plan) -> xr.Dataset:
        """Return verdicts and numbers (claim, setting), and results (claim, setting, place).

        If the store of a study is missing, or of another version or other settings, the claims
        about it are undecided.

        Raises
        ------
        sysid.StoreError
            A store cannot be read.
        """
        return assess_claims(plan.read_stores(self.needs))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return a row per claim, setting and place; one without a place if there is no result."""
        names = [
            "claim",
            "source",
            "setting",
            "verdict",
            "needs",
            *OUTCOME_COUNTS,
            "p_sign",
            "p_least",
            "ratio",
            *PLACE_COLUMNS,
        ]
        keys = ["claim", "setting", "place"]
        rows = store[[name for name in names if name not in keys]].to_dataframe(keys).reset_index()
        rows = rows[rows["verdict"] != ""]
        is_known = rows["outcome"] != ""
        has_results = is_known.groupby([rows["claim"], rows["setting"]]).transform("any")
        is_first = ~rows.duplicated(["claim", "setting"])
        rows.loc[~is_known, "place"] = ""
        rows = rows[is_known | (~has_results & is_first)]
        rows = rows.astype(dict.fromkeys(OUTCOME_COUNTS, int))
        rows[["median", "low", "high"]] = np.exp(rows[["median", "low", "high"]])
        return rows[names].rename(columns=PLACE_COLUMNS)

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return verdicts on guidelines and claims, and how each claim was tested.

        Verdicts are those of every setting, numbers those of the setting `trained`.
        """
        settings = list(CLAIM_SETTINGS)
        guidelines = [f"{number}. {text}" for number, text in GUIDELINES.items()]
        verdicts = store["guideline_verdict"].to_pandas()[settings]
        verdicts.insert(0, "guideline", guidelines)
        trained = store.drop_dims(("place", "guideline")).sel(setting="trained").to_dataframe()
        claims = store["verdict"].to_pandas()[settings]
        claims = claims.join(trained[[*OUTCOME_COUNTS]].astype(int))
        claims = claims.join(trained[["ratio", "p_sign", "p_least"]].map(significant))
        claims.insert(0, "from", trained["source"])
        claims = claims.assign(needs=trained["needs"]).reset_index()
        return {
            "guidelines": to_markdown(verdicts.replace("", "-")),
            "claims": to_markdown(claims.replace("", "-")),
            "tests": to_markdown(trained[["statement", "test"]].reset_index()),
        }


# --- verdicts -------------------------------------------------------------------------------------


def assess_claims(stores: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Return the results of all claims in all settings, and on the printed numbers.

    Numbers and texts that were not computed are nan and "".
    """
    printed = read_printed()
    claim_rows = []
    place_rows = []
    for claim, setting in product(CLAIMS, CLAIM_SETTINGS):
        found = examine(claim, setting, printed if setting == PRINTED_SETTING else stores)
        key = {"claim": claim["name"], "setting": setting}
        claim_rows.append({**key, "guideline": claim["guideline"], **found._asdict()})
        for name, place in found.places.items():
            place_rows.append({**key, "place": name, **place._asdict()})
    of_claims = pd.DataFrame(claim_rows)
    of_places = pd.DataFrame(place_rows)
    verdicts = of_claims.groupby(["guideline", "setting"])["verdict"].agg(sum_up)
    of_guidelines = verdicts.rename("guideline_verdict").reset_index()
    of_guidelines = of_guidelines[of_guidelines["guideline"] > 0]

    over: dict[str, Sequence[Any]] = {
        "claim": [claim["name"] for claim in CLAIMS],
        "setting": CLAIM_SETTINGS,
    }
    over_places = {**over, "place": of_places["place"].unique()}
    over_guidelines = {"guideline": list(GUIDELINES), "setting": CLAIM_SETTINGS}
    store = spread_out(of_claims, over, ("verdict", "needs", *CLAIM_NUMBERS))
    store = store.merge(spread_out(of_places, over_places, Assessment._fields))
    store = store.merge(spread_out(of_guidelines, over_guidelines, ("guideline_verdict",)))
    return store.assign(
        statement=("claim", [claim["statement"] for claim in CLAIMS]),
        test=("claim", [claim["test"] for claim in CLAIMS]),
        source=("claim", [_source_of(claim) for claim in CLAIMS]),
        guideline_of=("claim", [claim["guideline"] for claim in CLAIMS]),
    )


def _source_of(claim: Mapping[str, Any]) -> str:
    """Return where the paper makes a claim."""
    if claim["guideline"]:
        return f"guideline {claim['guideline']}"
    return f"section {claim['section']}"


def examine(
    claim: Mapping[str, Any], setting: str, stores: Mapping[str, xr.Dataset]
) -> ClaimAssessment:
    """Return the result of a claim in one setting.

    The verdict is `undecided` without results, and "" if the claim's study does not have the
    setting. A store without the dimension ``setting`` is of the setting `trained`.
    """
    study = claim["study"]
    store = stores.get(study)
    is_printed = setting == PRINTED_SETTING
    nothing = assess_claim({})._replace(p_sign=np.nan, verdict="")
    if store is None:
        return nothing if is_printed else nothing._replace(verdict=UNDECIDED, needs=f"{study}.nc")
    settings = store["setting"].values if "setting" in store.dims else [Setting.trained]
    if setting not in settings:
        return nothing
    found = assess_claim(find_places(claim, setting, store), claim["chance"])
    gaps = [name for name, place in found.places.items() if place.outcome == OUTCOME_MISSING]
    missing = f"{study} for {', '.join(gaps)}" if gaps else f"a case of {study} that it is about"
    if len(gaps) == len(found.places):
        return nothing if is_printed else nothing._replace(verdict=UNDECIDED, needs=missing)
    if gaps:
        return found._replace(needs=missing)
    # With fewer than six seeds there is no 95 % interval.
    few_seeds = [name for name, place in found.places.items() if np.isinf(place.low)]
    if few_seeds and found.verdict == UNDECIDED:
        return found._replace(needs=f"six seeds of {', '.join(few_seeds)}")
    return found


# --- log ratios from the stores -------------------------------------------------------------------


def find_places(
    claim: Mapping[str, Any], setting: str, store: xr.Dataset
) -> dict[str, list[Comparison]]:
    """Return the log ratios over seeds at every place of a claim, empty without results.

    A task whose seeds all miss the conditions of the claim is not a place of it. For a reduction,
    the SMSE is the geometric mean over sizes, and ``gap`` is the absolute log ratio of the SMSE of
    prior entropy to the mean of the two others.
    """
    if "setting" in store.dims:
        store = store.sel(setting=setting)
    # Leaving out the variables that the claim does not use is several times faster.
    text = json.dumps(claim)
    used = [name for name in store.data_vars if name == "smse" or f'"{name}"' in text]
    store = store[used]
    if claim["study"] == "figure_reduction":
        store = _average_reduction(store)
    if "dataset" in store.dims:
        store = store.reindex(dataset=TASK_TITLES)
    tasks = {task.title: task for task in PAPER_TASKS.values()}
    found = {}
    for name, place, ratios in _list_places(claim):
        task = tasks.get(place.get("dataset", ""))
        is_tested = setting != PRINTED_SETTING and (task is None or task.is_random)
        rows: xr.Dataset | None = store
        if claim["study"].startswith("table"):
            rows = _select_seeds(claim, store.sel(place), ratios)
            place = {}
        if rows is not None:
            found[name] = [_compare(rows, place, ratio, is_random=is_tested) for ratio in ratios]
    return found


def _average_reduction(store: xr.Dataset) -> xr.Dataset:
    """Return the mean SMSE of a reduction over its sizes, and the gap of prior entropy."""
    level = average_sizes(store)
    others = level.sel(criterion=["mean_relevance", "marginal_log_likelihood"])
    others = others.mean("criterion", skipna=False)
    gap = abs(level.sel(criterion="prior_entropy", drop=True) - others)
    return xr.Dataset({"smse": np.exp(level), "gap": gap})


def _list_places(
    claim: Mapping[str, Any],
) -> list[tuple[str, dict[str, str], Sequence[Mapping[str, Any]]]]:
    """Return the name of each place, its labels in the store, and its ratios."""
    places = claim["places"]
    ratios = claim["ratios"]
    if isinstance(places, Mapping) and "criterion" in places:
        return [(LABELS[name], {"criterion": name}, ratios) for name in places["criterion"]]
    if isinstance(places, Mapping):
        return [(name, {}, ratios_of_place) for name, ratios_of_place in places.items()]
    titles = TASK_TITLES if places == "tasks" else [PAPER_TASKS[name].title for name in places]
    return [(title, {"dataset": title}, ratios) for title in titles]


def _select_seeds(
    claim: Mapping[str, Any], rows: xr.Dataset, ratios: Sequence[Mapping[str, Any]]
) -> xr.Dataset | None:
    """Return the seeds of a task that meet the conditions of a claim about a table.

    Return None if no seed with data meets them. The conditions are tested at the published
    thresholds. A seed in which all compared cells have a threshold of their own is returned at
    these thresholds.
    """
    published = rows.sel(threshold_choice="published", drop=True)
    own = rows.sel(threshold_choice="own", drop=True)
    applies = np.isfinite(published["smse"].sel(ratios[0]["above"][0]).values)
    if applies.any():
        for condition in claim["where"]:
            cell = published.sel(condition["cell"])
            share_of = cell[condition["share_of"]].values if "share_of" in condition else 1.0
            values = cell[condition["quantity"]].values / share_of
            applies &= (condition["low"] < values) & (values < condition["high"])
        if not applies.any():
            return None
    cells = []
    for ratio in ratios:
        for side in (ratio["above"], ratio["below"]):
            if isinstance(side, list):
                cells += side
    is_finite = [np.isfinite(own["smse"].sel(cell).values) for cell in cells]
    has_own = claim["own"] & np.all(is_finite, axis=0)
    chosen = own.where(xr.DataArray(has_own, dims="seed"), published)
    return chosen.isel(seed=np.flatnonzero(applies))


def _compare(
    store: xr.Dataset,
    place: Mapping[str, str],
    ratio: Mapping[str, Any],
    *,
    is_random: bool,
) -> Comparison:
    """Return one ratio at one place."""
    quantity = ratio.get("quantity", "smse")
    label = ratio["label"]
    values = np.array(0.0)
    # The ratio of 0 % to 0 % is nan, and left out.
    with np.errstate(divide="ignore", invalid="ignore"):
        for sign, side in ((1.0, ratio["above"]), (-1.0, ratio["below"])):
            if not isinstance(side, list):
                scale = LOG_RATIO_SCALES.get(quantity, np.log)
                values = values + sign * scale(np.array(side))
                continue
            levels = [_find_level(store, quantity, {**place, **cell}) for cell in side]
            share = 1.0 if ratio.get("total") else 1.0 / len(side)
            values = values + sign * share * sum(level for level, _ in levels)
            if "{" in label:
                label = label.format(threshold=levels[0][1])
    name, _, factor = ratio.get("region", "lower").partition(" ")
    high = float(np.log(float(factor or 1.0)))
    low = -high if name == "within" else -np.inf
    return Comparison(label, values, low, high, is_random)


def _find_level(
    store: xr.Dataset, quantity: str, cell: Mapping[str, str]
) -> tuple[np.ndarray, float]:
    """Return a quantity of a cell on its scale (seed,), and its threshold; nan if it has none.

    `cell` has labels of the store. Its ``threshold`` is ``lowest``, ``below x`` (mean over all
    below), or ``from x`` or ``up_to x``: the next one with results, which must lie above the
    lowest.
    """
    where, _, number = cell.get("threshold", "").partition(" ")
    labels = {name: label for name, label in cell.items() if name != "threshold"}
    chosen = store[quantity].sel(labels)
    scale = LOG_RATIO_SCALES.get(quantity, np.log)
    if not where:
        return scale(chosen.values), np.nan
    curve = chosen.dropna("threshold", how="all").sortby("threshold").transpose("threshold", "seed")
    known = curve["threshold"].values
    limit = float(number or "nan")
    if where == "lowest":
        at = known[:1]
    elif where == "below":
        at = known[known < limit]
    else:
        nearest = known[known >= limit][:1] if where == "from" else known[known <= limit][-1:]
        at = nearest[nearest > known[:1]]
    if not len(at):
        return np.full(curve.sizes["seed"], np.nan), np.nan
    return scale(curve.sel(threshold=at).values).mean(axis=0), float(at[0])


def read_printed() -> dict[str, xr.Dataset]:
    """Return tables 2 to 4 as printed, with one number per task, so that they can be tested too.

    The paper does not state the reference of its acceptance, so its numbers are entered for each
    reference. Without acceptance every point that is inserted is revised; with it only table 2
    states how many were inserted.
    """
    over: dict[str, Sequence[Any]] = {
        "setting": [PRINTED_SETTING],
        "dataset": TASK_TITLES,
        "criterion": list(COMPARED_CRITERIA),
        "variant": list(VARIANTS),
        "threshold_choice": ["published", "own"],
        "seed": [0],
    }
    stores = {}
    for table in ("table_2", "table_3", "table_4"):
        cells = paper.read_cells(table)
        of_variants = []
        for variant in VARIANTS:
            is_chosen = cells["is_accepting"] == (variant != "none")
            of_variants.append(cells[is_chosen].assign(variant=variant))
        cells = pd.concat(of_variants)
        cells["n_inserted"] = cells["n_revised"].where(~cells["is_accepting"])
        cells = cells.assign(threshold_choice="published", seed=0, setting=PRINTED_SETTING)
        stores[table] = spread_out(cells, over, STREAM_QUANTITIES)
    return stores
