"""The paper's guidelines and claims (`claims.yaml`), tested on paired log ratios from the stores of
other studies.

Every comparison is a log ratio per seed, and a claim says in which region it lies: below 0 (lower
than a rival), below ``log 1.05`` (at most 5 % more), within a band. A place (a task, say) may need
several comparisons at once: the claim is won there if all of them are, lost if one of them is.
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
from experiments.reproduce.stream import QUANTITIES, VARIANTS, Setting
from experiments.reproduce.study import Plan, Study, spread_out
from experiments.reproduce.sweeps import average_sizes
from experiments.reproduce.tasks import PAPER_TASKS
from sysid.gp.rules import COMPARED_CRITERIA

LEVEL = 0.05  # of tests; intervals hold 95 %
INDIFFERENT = float(np.log(1.01))  # a ratio this close to 1 is a tie
#: outcomes of a comparison or a place; equal: both sides shown to be within 1 %, which counts as a tie
WON = "won"
LOST = "lost"
EQUAL = "equal"
TIED = "tied"
MISSING = "missing"
VERDICTS = HOLDS, IN_PART, FAILS, UNDECIDED = (
    "holds",
    "holds in part",
    "does not hold",
    "undecided",
)
NAN = float("nan")
PRINTED = "printed"  # the paper's own tables, beside the settings
COLUMNS = (*(setting.value for setting in Setting), PRINTED)
DEFAULTS: dict[str, Any] = {
    "ratios": (),
    "where": (),
    "own": True,
    "chance": 0.5,
}  # of a claim
TITLES = [task.title for task in PAPER_TASKS.values()]
COUNTS = ("n_won", "n_lost", "n_equal", "n_tied", "n_missing")
NUMBERS = (*COUNTS, "n_tested", "p_sign", "p_least", "ratio")
#: columns of the CSV file, by the variables of the store
PLACE_COLUMNS = {
    **{
        "place": "place",
        "outcome": "outcome",
        "comparison": "comparison",
        "median": "place_ratio",
    },
    **{
        "low": "place_ratio_low",
        "high": "place_ratio_high",
        "p_value": "place_p",
        "n": "n_seeds",
    },
}
# of the band; one percentage point
COVERAGE = 0.95
POINT = 0.01
#: scales on which a difference is a log ratio, where that is not the logarithm
SCALES: dict[str, Any] = {
    "n_revised": np.log1p,  # plus one point: none is possible
    "n_inserted": np.log1p,
    "nlpd": np.array,  # nats: the ratio is that of the predictive densities
    "coverage_95": lambda share: np.log(
        np.abs(share - COVERAGE) + POINT
    ),  # distance, plus one point
    "boundary_share": lambda share: np.log(share + POINT),
    "gap": np.array,  # a log ratio already
}


def read_claims() -> tuple[dict[int, str], list[dict[str, Any]]]:
    """Guidelines by number, and all claims, those of the guidelines first; the head of the file
    describes the keys.
    """
    content = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text(encoding="utf-8"))
    found = []
    for group in content["groups"]:
        each = group.get("each", {})
        for values in product(*each.values()):
            text = json.dumps(group["claims"])
            for name, value in zip(each, values, strict=True):
                text = text.replace(f"{{{name}}}", value).replace(
                    f"{{{name} in words}}", value.replace("_", " ")
                )
            found += [DEFAULTS | claim for claim in json.loads(text)]
    return content["guidelines"], sorted(
        found, key=lambda claim: (claim["guideline"] or np.inf, claim["section"])
    )


GUIDELINES, CLAIMS = read_claims()


# --- what paired results say -----------------------------------------------------------------------


class Comparison(NamedTuple):
    """Log ratios over seeds, nan where there is none, and the region where the claim wants them."""

    label: str
    values: np.ndarray  # (seed,)
    low: float = -np.inf
    high: float = 0.0
    is_random: bool = True  # False: one number without a spread, counted but not tested


class Judged(NamedTuple):
    """What a comparison says; of a place the comparison that speaks least for the claim, with the
    place's p-value.
    """

    comparison: str
    outcome: str
    median: float  # log ratio
    low: float  # 95 % interval of the median; nan without a spread
    high: float
    n: int  # seeds
    # of the outcome, before the correction for the number of places; nan without a test
    p_value: float
    region_low: float
    region_high: float


class Judgement(NamedTuple):
    """A claim in one setting."""

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
    places: Mapping[str, Judged]
    needs: str = ""  # what is missing


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """Order statistics that hold the median of any distribution with at least 95 %; infinite below
    six values.
    """
    n = len(values)
    rank = int(
        binom.ppf(LEVEL / 2, n, 0.5)
    )  # the largest k with P(fewer than k of n coins show heads) < 2.5 %
    if rank < 1:
        return -np.inf, np.inf
    ordered = np.sort(values)
    return float(ordered[rank - 1]), float(ordered[n - rank])


def signed_rank(values: np.ndarray) -> float:
    """Two-sided p-value of Wilcoxon's exact signed-rank test of a median of 0; zeros are left
    out.
    """
    nonzero = values[values != 0.0]
    return float(wilcoxon(nonzero, method="exact").pvalue) if len(nonzero) else 1.0


def sign_test(n_won: int, n_lost: int, chance: float = 0.5) -> float:
    """Two-sided p-value of as many wins if each came by chance; ties are left out."""
    return float(binomtest(n_won, n_won + n_lost, chance).pvalue) if n_won + n_lost else 1.0


def holm(p_values: Sequence[float]) -> np.ndarray:
    """p-values corrected for their number, in ascending order (Holm 1979)."""
    ordered = np.sort(np.asarray(p_values, dtype=float))
    steps = ordered * np.arange(len(ordered), 0, -1)
    return np.minimum(np.maximum.accumulate(steps), 1.0)


def judge(comparison: Comparison) -> Judged:
    """Median, interval, outcome and its p-value; a region that ends at 0 does not count what is
    within 1 % of it.
    """
    label, values, *region, is_random = comparison
    values = values[np.isfinite(values)]
    if not len(values):
        return Judged(label, MISSING, NAN, NAN, NAN, 0, NAN, *region)
    median = float(np.median(values))
    low, high = median_interval(values) if is_random else (median, median)
    if 0.0 in region and low >= -INDIFFERENT and high <= INDIFFERENT:
        outcome = EQUAL if is_random else TIED
    elif 0.0 in region and abs(median) <= INDIFFERENT:
        outcome = TIED
    elif low > region[1] or high < region[0]:
        outcome = LOST
    else:
        outcome = WON if low > region[0] and high < region[1] else TIED
    if not is_random:
        return Judged(label, outcome, median, NAN, NAN, len(values), NAN, *region)
    bounds = {  # beyond which the median is shown to lie
        WON: [bound for bound in region if np.isfinite(bound)],
        LOST: [region[1] if median > region[1] else region[0]],
        EQUAL: [INDIFFERENT, -INDIFFERENT],
        TIED: [],
    }
    p_value = max((signed_rank(values - bound) for bound in bounds[outcome]), default=1.0)
    return Judged(label, outcome, median, low, high, len(values), p_value, *region)


def judge_place(comparisons: Sequence[Comparison]) -> Judged:
    """Won if all comparisons are won (p: the largest), lost if one is lost (p: the smallest, times
    their number).
    """
    judged = [judge(comparison) for comparison in comparisons]
    outcome = next(
        each
        for each in (MISSING, LOST, EQUAL, TIED, WON)
        if each in {one.outcome for one in judged}
    )
    own = [one for one in judged if one.outcome == outcome]
    p_values = np.array([one.p_value for one in own])
    is_one_enough = outcome in (LOST, EQUAL)
    p_value = np.minimum(p_values.min() * len(judged), 1.0) if is_one_enough else p_values.max()
    decisive = max(
        own,
        key=lambda one: max(one.median - one.region_high, one.region_low - one.median),
    )
    return decisive._replace(p_value=float(p_value))


def judge_claim(places: Mapping[str, Sequence[Comparison]], chance: float = 0.5) -> Judgement:
    """Verdict on a claim from the comparisons at every place.

    `chance` is the probability of a win, of wins and losses, if nothing were in the claim: a third
    for the lowest of three.

    Something is shown if one place's result is (p <= 5 % after Holm's correction over the places)
    or the sign test of wins against losses is; otherwise the claim is undecided. What is shown
    `holds` if more than half of the places are won, and of those with a test too, and none is lost
    or the sign test is for it. It `does not hold` if no place with a test is won and the sign test
    is not for it, or if at least half are lost or equal and the sign test (equal places as losses)
    is against it. Otherwise it holds in part: single numbers alone never make it. With missing
    places the verdict stands if it would be the same were all of them won, and all of them lost.
    """
    found = {name: judge_place(comparisons) for name, comparisons in places.items()}
    n = Counter(place.outcome for place in found.values())
    tested = holm([place.p_value for place in found.values() if np.isfinite(place.p_value)])
    p_least = float(tested.min()) if len(tested) else NAN
    medians = [place.median for place in found.values() if place.outcome != MISSING]
    verdicts = {_decide(found.values(), each, chance, p_least <= LEVEL) for each in (WON, LOST)}
    verdict = verdicts.pop() if len(verdicts) == 1 and medians else UNDECIDED
    ratio = float(np.exp(np.mean(medians))) if medians else NAN
    p_sign = sign_test(n[WON], n[LOST], chance)
    counts = (n[WON], n[LOST], n[EQUAL], n[TIED], n[MISSING])
    return Judgement(verdict, *counts, len(tested), p_sign, p_least, ratio, found)


def _decide(places: Collection[Judged], of_missing: str, chance: float, is_shown: bool) -> str:
    """Verdict if all missing places, which may have a test, had this outcome."""
    outcomes = [of_missing if place.outcome == MISSING else place.outcome for place in places]
    is_tested = [place.outcome == MISSING or np.isfinite(place.p_value) for place in places]
    tested = [outcome for outcome, is_one in zip(outcomes, is_tested, strict=True) if is_one]
    won = outcomes.count(WON)
    lost = outcomes.count(LOST)
    against = outcomes.count(LOST) + outcomes.count(EQUAL)
    is_for = sign_test(won, lost, chance) <= LEVEL and won > chance * (won + lost)
    is_against = sign_test(won, against, chance) <= LEVEL and won < chance * (won + against)
    if not (is_shown or is_for or is_against):
        return UNDECIDED
    is_mostly_won = 2 * won > len(outcomes) and (2 * tested.count(WON) > len(tested) or not tested)
    if is_mostly_won and (is_for or not lost):
        return HOLDS
    if not (WON in tested or is_for) or (2 * against >= len(outcomes) and is_against):
        return FAILS
    return IN_PART


def sum_up(parts: Sequence[str]) -> str:
    """Verdict on a guideline from those on its parts; those that nobody computes ("") do not count.

    It holds, or does not, if all decided parts say so and at least half of the parts are decided.
    It holds in part if the decided parts say different things. Otherwise it is undecided.
    """
    known = [part for part in parts if part]
    decided = [part for part in known if part != UNDECIDED]
    if len(set(decided)) > 1:
        return IN_PART
    return (
        (decided[0] if decided and 2 * len(decided) >= len(known) else UNDECIDED) if known else ""
    )


# --- the study --------------------------------------------------------------------------------------


class Guidelines(Study):
    """Verdicts with the numbers behind them; it computes no stream of its own."""

    name, title, tasks = (
        "guidelines",
        "Where the paper's guidelines and claims hold",
        (),
    )  # it reads the stores of other studies
    needs = tuple(dict.fromkeys(claim["study"] for claim in CLAIMS))

    def combine(self, plan: Plan) -> xr.Dataset:
        """Verdicts and numbers (claim, setting), and what every place says (claim, setting, place).

        A store that is not there, or of another version or other settings, leaves the claims about
        it undecided.

        Raises
        ------
        sysid.StoreError
            A store that cannot be read.
        """
        return judge_claims(plan.read_stores(self.needs))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """One row per claim, setting and place; one without a place where there is no result."""
        names = [
            "claim",
            "source",
            "setting",
            "verdict",
            "needs",
            *COUNTS,
            *NUMBERS[-3:],
            *PLACE_COLUMNS,
        ]
        keys = ["claim", "setting", "place"]
        rows = store[[name for name in names if name not in keys]].to_dataframe(keys).reset_index()
        rows = rows[rows["verdict"] != ""]
        is_known = rows["outcome"] != ""
        is_without = ~is_known.groupby([rows[key] for key in keys[:2]]).transform(
            "any"
        ) & ~rows.duplicated(keys[:2])
        rows.loc[~is_known, "place"] = ""
        rows = rows[is_known | is_without].astype(dict.fromkeys(COUNTS, int))
        rows[["median", "low", "high"]] = np.exp(rows[["median", "low", "high"]])
        return rows[names].rename(columns=PLACE_COLUMNS)

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Verdicts on guidelines and claims in every setting, numbers of the setting `trained`, how
        each was tested.
        """
        verdicts = store["guideline_verdict"].to_pandas()[list(COLUMNS)]
        verdicts.insert(
            0, "guideline", [f"{number}. {text}" for number, text in GUIDELINES.items()]
        )
        one = store.drop_dims(("place", "guideline")).sel(setting="trained").to_dataframe()
        claims = store["verdict"].to_pandas()[list(COLUMNS)].join(one[[*COUNTS]].astype(int))
        claims = claims.join(one[["ratio", "p_sign", "p_least"]].map(significant))
        claims.insert(0, "from", one["source"])
        return {
            "guidelines": to_markdown(verdicts.replace("", "-")),
            "claims": to_markdown(claims.assign(needs=one["needs"]).reset_index().replace("", "-")),
            "tests": to_markdown(one[["statement", "test"]].reset_index()),
        }


# --- verdicts -------------------------------------------------------------------------------------


def judge_claims(stores: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All claims in all settings, and on the printed numbers; nan and "" where nothing was
    computed.
    """
    printed = read_printed()
    about = []
    places = []
    for claim, setting in product(CLAIMS, COLUMNS):
        found = examine(claim, setting, printed if setting == PRINTED else stores)
        key = {"claim": claim["name"], "setting": setting}
        about.append({**key, "guideline": claim["guideline"], **found._asdict()})
        places += [
            {**key, "place": name, **place._asdict()} for name, place in found.places.items()
        ]
    frame = pd.DataFrame(about)
    place_frame = pd.DataFrame(places)
    verdicts = (
        frame.groupby(["guideline", "setting"])["verdict"]
        .agg(sum_up)
        .rename("guideline_verdict")
        .reset_index()
    )
    over: dict[str, Sequence[Any]] = {
        "claim": [claim["name"] for claim in CLAIMS],
        "setting": COLUMNS,
    }
    store = spread_out(frame, over, ("verdict", "needs", *NUMBERS))
    store = store.merge(
        spread_out(
            place_frame,
            {**over, "place": place_frame["place"].unique()},
            Judged._fields,
        )
    )
    over = {"guideline": list(GUIDELINES), "setting": COLUMNS}
    store = store.merge(
        spread_out(verdicts[verdicts["guideline"] > 0], over, ("guideline_verdict",))
    )
    sources = [
        f"guideline {c['guideline']}" if c["guideline"] else f"section {c['section']}"
        for c in CLAIMS
    ]
    store = store.assign(
        {name: ("claim", [claim[name] for claim in CLAIMS]) for name in ("statement", "test")}
    )
    return store.assign(
        source=("claim", sources),
        guideline_of=("claim", [claim["guideline"] for claim in CLAIMS]),
    )


def examine(claim: Mapping[str, Any], setting: str, stores: Mapping[str, xr.Dataset]) -> Judgement:
    """Judge a claim in one setting; undecided without results, "" in a setting in which nobody
    computes them.

    A store that does not tell settings apart is of the setting `trained`.
    """
    study = claim["study"]
    store = stores.get(claim["study"])
    is_printed = setting == PRINTED
    nothing = judge_claim({})._replace(p_sign=np.nan, verdict="")
    if store is None:
        return nothing if is_printed else nothing._replace(verdict=UNDECIDED, needs=f"{study}.nc")
    if setting not in (store["setting"].values if "setting" in store.dims else [Setting.trained]):
        return nothing
    found = judge_claim(find_places(claim, setting, store), claim["chance"])
    gaps = [name for name, place in found.places.items() if place.outcome == MISSING]
    missing = f"{study} for {', '.join(gaps)}" if gaps else f"a case of {study} that it speaks of"
    if len(gaps) == len(found.places):
        return nothing if is_printed else nothing._replace(verdict=UNDECIDED, needs=missing)
    few = [name for name, place in found.places.items() if np.isinf(place.low)]
    if few and not gaps and found.verdict == UNDECIDED:
        return found._replace(needs=f"six seeds of {', '.join(few)}")  # fewer have no 95 % interval
    return found._replace(needs=missing if gaps else "")


# --- the log ratios that the stores hold ----------------------------------------------------------


def find_places(
    claim: Mapping[str, Any], setting: str, store: xr.Dataset
) -> dict[str, list[Comparison]]:
    """Log ratios over seeds at every place of a claim, without values where there are no results.

    A task whose seeds all miss the conditions of the claim is no place of it. Of a reduction the
    SMSE is the geometric mean over sizes, and ``gap`` the absolute log ratio of that of prior
    entropy to the mean of the two others.
    """
    store = store.sel(setting=setting) if "setting" in store.dims else store
    text = json.dumps(claim)
    store = store[
        [name for name in store.data_vars if name == "smse" or f'"{name}"' in text]
    ]  # several times faster
    if claim["study"] == "figure_reduction":
        level = average_sizes(store)
        others = level.sel(criterion=["mean_relevance", "marginal_log_likelihood"]).mean(
            "criterion", skipna=False
        )
        gap = abs(level.sel(criterion="prior_entropy", drop=True) - others)
        store = xr.Dataset({"smse": np.exp(level), "gap": gap})
    if "dataset" in store.dims:
        store = store.reindex(dataset=TITLES)
    found = {}
    for name, place, ratios in _list_places(claim):
        task = next(
            (task for task in PAPER_TASKS.values() if task.title == place.get("dataset")),
            None,
        )
        is_tested = setting != PRINTED and (task is None or task.is_random)
        here: xr.Dataset | None = store
        if claim["study"].startswith("table"):
            here = _select_seeds(claim, store.sel(place), ratios)
            place = {}
        if here is not None:
            found[name] = [_compare(here, place, ratio, is_random=is_tested) for ratio in ratios]
    return found


def _list_places(
    claim: Mapping[str, Any],
) -> list[tuple[str, dict[str, str], Sequence[Mapping[str, Any]]]]:
    """Name of each place, what it selects from the store, and its ratios."""
    places = claim["places"]
    ratios = claim["ratios"]
    if isinstance(places, Mapping) and "criterion" in places:
        return [(LABELS[name], {"criterion": name}, ratios) for name in places["criterion"]]
    if isinstance(places, Mapping):
        return [(name, {}, own) for name, own in places.items()]
    titles = TITLES if places == "tasks" else [PAPER_TASKS[name].title for name in places]
    return [(title, {"dataset": title}, ratios) for title in titles]


def _select_seeds(
    claim: Mapping[str, Any], rows: xr.Dataset, ratios: Sequence[Mapping[str, Any]]
) -> xr.Dataset | None:
    """Seeds of a task that a claim about a table speaks of; None if all that have data miss its
    conditions.

    They are judged at the published thresholds, and where all compared cells have an own threshold
    at those.
    """
    published, own = (rows.sel(threshold_choice=name, drop=True) for name in ("published", "own"))
    applies = np.isfinite(published["smse"].sel(ratios[0]["above"][0]).values)
    if applies.any():
        for condition in claim["where"]:
            here = published.sel(condition["cell"])
            share_of = here[condition["share_of"]].values if "share_of" in condition else 1.0
            values = here[condition["quantity"]].values / share_of
            applies &= (condition["low"] < values) & (values < condition["high"])
        if not applies.any():
            return None
    cells = [
        cell
        for r in ratios
        for side in (r["above"], r["below"])
        if isinstance(side, list)
        for cell in side
    ]
    has_own = claim["own"] & np.all(
        [np.isfinite(own["smse"].sel(cell).values) for cell in cells], axis=0
    )
    return own.where(xr.DataArray(has_own, dims="seed"), published).isel(
        seed=np.flatnonzero(applies)
    )


def _compare(
    store: xr.Dataset,
    place: Mapping[str, str],
    ratio: Mapping[str, Any],
    *,
    is_random: bool,
) -> Comparison:
    """One ratio at one place."""
    quantity = ratio.get("quantity", "smse")
    label = ratio["label"]
    values = np.array(0.0)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # 0 % against 0 % says nothing: nan, which is left out
        for sign, side in ((1.0, ratio["above"]), (-1.0, ratio["below"])):
            if not isinstance(side, list):
                values = values + sign * SCALES.get(quantity, np.log)(np.array(side))
                continue
            levels = [_find_level(store, quantity, {**place, **cell}) for cell in side]
            share = 1.0 if ratio.get("total") else 1.0 / len(side)
            values = values + sign * share * sum(level for level, _ in levels)
            label = label.format(threshold=levels[0][1]) if "{" in label else label
    name, _, factor = ratio.get("region", "lower").partition(" ")
    bound = float(np.log(float(factor or 1.0)))
    return Comparison(label, values, -bound if name == "within" else -np.inf, bound, is_random)


def _find_level(
    store: xr.Dataset, quantity: str, cell: Mapping[str, str]
) -> tuple[np.ndarray, float]:
    """Read a quantity of a cell on its scale (seed,), and the threshold there; nan without one.

    `cell` names labels; its ``threshold`` is ``lowest``, ``below x`` (mean over these), ``from x``
    or ``up_to x``: the next one with results, which must lie above the lowest.
    """
    where, _, number = cell.get("threshold", "").partition(" ")
    chosen = store[quantity].sel(
        {name: label for name, label in cell.items() if name != "threshold"}
    )
    scale = SCALES.get(quantity, np.log)
    if not where:
        return scale(chosen.values), np.nan
    curve = chosen.dropna("threshold", how="all").sortby("threshold").transpose("threshold", "seed")
    known = curve["threshold"].values
    limit = float(number or "nan")
    if where in ("from", "up_to"):
        at = known[known >= limit][:1] if where == "from" else known[known <= limit][-1:]
        at = at[at > known[:1]]
    else:
        at = known[:1] if where == "lowest" else known[known < limit]
    level = (
        scale(curve.sel(threshold=at).values).mean(axis=0)
        if len(at)
        else np.full(curve.sizes["seed"], np.nan)
    )
    return level, float(at[0]) if len(at) else np.nan


def read_printed() -> dict[str, xr.Dataset]:
    """Tables 2 to 4 as printed, one number per task, so that the same tests can be put to them.

    The paper does not say which reference its acceptance has: its numbers stand under each. Without
    acceptance every point that is inserted is revised; with it only table 2 tells how many were
    inserted.
    """
    stores = {}
    over: dict[str, Sequence[Any]] = {
        "setting": [PRINTED],
        "dataset": TITLES,
        "criterion": list(COMPARED_CRITERIA),
    }
    over |= {
        "variant": list(VARIANTS),
        "threshold_choice": ["published", "own"],
        "seed": [0],
    }
    for table in ("table_2", "table_3", "table_4"):
        cells = paper.read_cells(table)
        cells = pd.concat(
            [cells[cells["is_accepting"] == (v != "none")].assign(variant=v) for v in VARIANTS]
        )
        cells["n_inserted"] = cells["n_revised"].where(~cells["is_accepting"])
        cells = cells.assign(threshold_choice="published", seed=0, setting=PRINTED)
        stores[table] = spread_out(cells, over, QUANTITIES)
    return stores
