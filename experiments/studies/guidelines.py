"""The paper's guidelines and claims (`claims.yaml`), tested on paired log ratios from the stores of other studies."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import yaml
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.plots.frames import significant, to_markdown
from experiments.plots.style import LABELS, PAGE, page
from experiments.studies import paper
from experiments.studies.stream import VARIANTS, Setting
from experiments.studies.study import Plan, Study, Unit, spread_out
from experiments.studies.tasks import TASKS
from experiments.studies.verdict import MISSING, UNDECIDED, VERDICTS, Comparison, Judged, Judgement, judge_claim, sum_up

PRINTED = "printed"  # the paper's own tables, beside the settings
COLUMNS = (*(setting.value for setting in Setting), PRINTED)
CHANCES = {"third": 1.0 / 3.0}  # of one of three equal criteria
DEFAULTS: dict[str, Any] = {"ratios": (), "where": (), "own": True, "chance": 0.5}  # of a claim
TITLES = [task.title for task in TASKS.values()]
COUNTS = ("n_won", "n_lost", "n_equal", "n_tied", "n_missing")
NUMBERS = (*COUNTS, "n_tested", "p_sign", "p_least", "ratio")
#: columns of the CSV file, by the variables of the store
PLACE_COLUMNS = {
    **{"place": "place", "outcome": "outcome", "comparison": "comparison", "median": "place_ratio"},
    **{"low": "place_ratio_low", "high": "place_ratio_high", "p_value": "place_p", "n": "n_seeds"},
}
COVERAGE, POINT = 0.95, 0.01  # of the band; one percentage point
#: scales on which a difference is a log ratio, where that is not the logarithm
SCALES: dict[str, Any] = {
    "n_revised": np.log1p,  # plus one point: none is possible
    "n_inserted": np.log1p,
    "nlpd": np.array,  # nats: the ratio is that of the predictive densities
    "coverage_95": lambda share: np.log(np.abs(share - COVERAGE) + POINT),  # distance, plus one point
    "boundary_share": lambda share: np.log(share + POINT),
    "gap": np.array,  # a log ratio already
}
COLORS = dict(zip(VERDICTS, ("#009e73", "#e69f00", "#d55e00", "#7a7a7a"), strict=True))  # Okabe and Ito
MARKERS = {"won": "o", "lost": "X", "equal": "s", "tied": "."}
EDGE, MARGIN = float(np.log(10.0)), 1.06  # log ratio beyond which places are drawn at the edge; of the axis
ROW, FONT = 0.22, 7  # inch per claim: all of them on one page; points
NAMES = {"smse": "SMSE", "nlpd": "NLPD", "van": "Van", "pol": "Pol"}
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@cache
def read_file() -> dict[str, Any]:
    """Read the texts of the guidelines and the groups of claims."""
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text(encoding="utf-8"))
    return found


GUIDELINES: dict[int, str] = read_file()["guidelines"]


@cache
def read_claims() -> list[dict[str, Any]]:
    """All claims, those of the guidelines first; the head of the file describes their keys."""
    found = []
    for group in read_file()["groups"]:
        each = group.get("each", {})
        for values in product(*each.values()):
            text = json.dumps(group["claims"])
            for name, value in zip(each, values, strict=True):
                text = text.replace(f"{{{name}}}", value).replace(f"{{{name} in words}}", value.replace("_", " "))
            found += [DEFAULTS | claim for claim in json.loads(text)]
    return sorted(found, key=lambda claim: (claim["guideline"] or len(GUIDELINES) + 1, claim["section"]))


class Guidelines(Study):
    """Verdicts with the numbers behind them; it computes no stream of its own."""

    name, title, tasks = "guidelines", "Where the paper's guidelines and claims hold", ()
    needs = tuple(dict.fromkeys(claim["study"] for claim in read_claims()))

    def units(self, plan: Plan) -> list[Unit]:
        return []  # it reads the stores of other studies

    def combine(self, plan: Plan) -> xr.Dataset:
        """Verdicts and numbers (claim, setting), and what every place says (claim, setting, place).

        A store that is not there, or of another version or other settings, leaves the claims about it undecided.

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
            "p_sign",
            "p_least",
            "ratio",
            *PLACE_COLUMNS,
        ]
        variables = [name for name in names if name not in ("claim", "setting", "place")]
        rows = store[variables].to_dataframe(["claim", "setting", "place"]).reset_index()
        rows = rows[rows["verdict"] != ""]
        is_known, keys = rows["outcome"] != "", ["claim", "setting"]
        is_without = ~is_known.groupby([rows[key] for key in keys]).transform("any") & ~rows.duplicated(keys)
        rows = rows[is_known | is_without].astype(dict.fromkeys(COUNTS, int))
        rows["place"] = rows["place"].where(rows["outcome"] != "", "")
        rows[["median", "low", "high"]] = np.exp(rows[["median", "low", "high"]])
        return rows[names].rename(columns=PLACE_COLUMNS)

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Guidelines, claims, and what every place says in the setting `trained`."""
        one = store.sel(setting="trained")
        names, verdicts = store["claim"].values.tolist(), one["verdict"].values
        words = [name.replace("_", " ") for name in names]
        parts = [
            [f"{words[i]}: {verdicts[i]}" for i in np.flatnonzero(one["guideline_of"].values == number)]
            for number in GUIDELINES
        ]
        counts = zip(one["n_won"].values, one["n_lost"].values, (one["n_equal"] + one["n_tied"]).values, strict=True)
        guidelines = {
            "guideline": [f"{number}. {text}" for number, text in GUIDELINES.items()],
            **{setting: store["guideline_verdict"].sel(setting=setting).values for setting in COLUMNS},
            "parts (trained)": ["; ".join(texts) for texts in parts],
        }
        claims = {
            "claim": words,
            "from": one["source"].values,
            **{setting: store["verdict"].sel(setting=setting).values for setting in COLUMNS},
            "needs": one["needs"].values,
            "won / lost / tied": [" / ".join(f"{n:.0f}" for n in each) for each in counts],
            **{name: [significant(x) for x in one[name].values] for name in ("ratio", "p_sign", "p_least")},
        }
        places = []
        for name, label in zip(names, words, strict=True):
            claim = one.sel(claim=name)
            known = claim[["outcome", "median", "low", "high"]].to_dataframe().query("outcome != ''")
            text = "; ".join(f"{place} {_describe(row)}" for place, row in known.iterrows())
            head = f"**{label}** ({claim['source'].item()}). {claim['statement'].item()} {claim['test'].item()}"
            places.append(f"{head} {text}." if text else f"{head} ")
        return {
            "guidelines": to_markdown(pd.DataFrame(guidelines).replace("", "-")),
            "claims": to_markdown(pd.DataFrame(claims).replace("", "-")),
            "places": "\n\n".join(places),
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Ratios of every place with their intervals, coloured by the verdict, per setting with results."""
        chosen = [setting for setting in COLUMNS if np.isfinite(store["median"].sel(setting=setting)).any()]
        return {
            self.name if setting == Setting.trained else f"{self.name}_{setting}": partial(draw_forest, store, setting)
            for setting in chosen
        }


def _describe(place: pd.Series) -> str:
    """``won 0.81 [0.7, 0.9]``."""
    middle, low, high = (significant(value) for value in np.exp(place[["median", "low", "high"]].to_numpy(float)))
    is_bounded = np.isfinite(place["low"]) and np.isfinite(place["high"])
    return f"{place['outcome']} {middle}" + (f" [{low}, {high}]" if is_bounded else "")


# --- verdicts -------------------------------------------------------------------------------------


def judge_claims(stores: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All claims in all settings, and on the printed numbers; nan and "" where nothing was computed."""
    claims, printed, about, places = read_claims(), read_printed(), [], []
    for claim, setting in product(claims, COLUMNS):
        found = examine(claim, setting, printed if setting == PRINTED else stores)
        key = {"claim": claim["name"], "setting": setting}
        about.append({**key, "guideline": claim["guideline"], **found._asdict()})
        places += [{**key, "place": name, **place._asdict()} for name, place in found.places.items()]
    frame, place_frame = pd.DataFrame(about), pd.DataFrame(places)
    verdicts = frame.groupby(["guideline", "setting"])["verdict"].agg(sum_up).rename("guideline_verdict").reset_index()
    over: dict[str, Sequence[Any]] = {"claim": [claim["name"] for claim in claims], "setting": COLUMNS}
    store = spread_out(frame, over, ("verdict", "needs", *NUMBERS))
    store = store.merge(spread_out(place_frame, {**over, "place": place_frame["place"].unique()}, Judged._fields))
    over = {"guideline": list(GUIDELINES), "setting": COLUMNS}
    store = store.merge(spread_out(verdicts[verdicts["guideline"] > 0], over, ("guideline_verdict",)))
    sources = [f"guideline {c['guideline']}" if c["guideline"] else f"section {c['section']}" for c in claims]
    own = {"source": sources} | {key: [claim[key] for claim in claims] for key in ("statement", "test", "guideline")}
    return store.assign({"guideline_of" if name == "guideline" else name: ("claim", x) for name, x in own.items()})


def examine(claim: Mapping[str, Any], setting: str, stores: Mapping[str, xr.Dataset]) -> Judgement:
    """Judge a claim in one setting; undecided without results, "" in a setting in which nobody computes them.

    A store that does not tell settings apart is of the setting `trained`.
    """
    study, store, is_printed = claim["study"], stores.get(claim["study"]), setting == PRINTED
    nothing = judge_claim({})._replace(p_sign=np.nan, verdict="")
    settings = [Setting.trained] if store is None or "setting" not in store.dims else store["setting"].values
    if (store is None and is_printed) or (store is not None and setting not in settings):
        return nothing
    try:
        found = judge_claim(find_places(claim, setting, stores), CHANCES.get(claim["chance"], claim["chance"]))
        gaps = [name for name, place in found.places.items() if place.outcome == MISSING]
        missing = f"{study} for {', '.join(gaps)}" if gaps else f"a case of {study} that it speaks of"
    except KeyError as error:
        reason = f" with all that it compares ({str(error.args[0]).split('. ')[0]})"
        found, gaps, missing = nothing, [], f"{study}.nc" + ("" if store is None else reason)
    if len(gaps) == len(found.places):
        return nothing if is_printed else nothing._replace(verdict=UNDECIDED, needs=missing)
    few = [name for name, place in found.places.items() if np.isinf(place.low)]
    if few and not gaps and found.verdict == UNDECIDED:
        return found._replace(needs=f"six seeds of {', '.join(few)}")  # fewer have no 95 % interval
    return found._replace(needs=missing if gaps else "")


# --- the log ratios that the stores hold ----------------------------------------------------------


def find_places(
    claim: Mapping[str, Any], setting: str, stores: Mapping[str, xr.Dataset]
) -> dict[str, list[Comparison]]:
    """Log ratios over seeds at every place of a claim, without values where there are no results.

    A task whose seeds all miss the conditions of the claim is no place of it.

    Raises
    ------
    KeyError
        A store that is missing, or that has no such variable or label.
    """
    store = stores[claim["study"]]
    store = store.sel(setting=setting) if "setting" in store.dims else store
    if claim["study"] == "figure_reduction":
        store = _average_sizes(store)
    if "dataset" in store.dims:
        store = store.reindex(dataset=TITLES)
    found = {}
    for name, place, ratios in _list_places(claim):
        task = next((task for task in TASKS.values() if task.title == place.get("dataset")), None)
        is_tested = setting != PRINTED and (task is None or task.is_random)
        here: xr.Dataset | None = store
        if claim["study"].startswith("table"):
            here, place = _select_seeds(claim, store.sel(place), ratios), {}
        if here is not None:
            found[name] = [_compare(here, place, ratio, is_random=is_tested) for ratio in ratios]
    return found


def _average_sizes(store: xr.Dataset) -> xr.Dataset:
    """Geometric mean of the SMSE over all sizes but the full one, where all criteria agree, and the ``gap``:
    absolute log ratio of the SMSE of prior entropy and the geometric mean of the two others."""
    smaller = store["smse"].sel(n_points=store["n_points"] < store["n_points"].max())
    level = smaller.copy(data=np.log(smaller.values)).mean("n_points", skipna=False)
    others = level.sel(criterion=["mean_relevance", "marginal_log_likelihood"]).mean("criterion", skipna=False)
    gap = np.abs(level.sel(criterion="prior_entropy", drop=True) - others)
    return xr.Dataset({"smse": np.exp(level), "gap": gap})


def _list_places(claim: Mapping[str, Any]) -> list[tuple[str, dict[str, str], Sequence[Mapping[str, Any]]]]:
    """Name of each place, what it selects from the store, and its ratios."""
    places, ratios = claim["places"], claim["ratios"]
    if isinstance(places, Mapping) and "criterion" in places:
        return [(LABELS[name], {"criterion": name}, ratios) for name in places["criterion"]]
    if isinstance(places, Mapping):
        return [(name, {}, own) for name, own in places.items()]
    titles = TITLES if places == "tasks" else [TASKS[name].title for name in places]
    return [(title, {"dataset": title}, ratios) for title in titles]


def _select_seeds(claim: Mapping[str, Any], rows: xr.Dataset, ratios: Sequence[Mapping[str, Any]]) -> xr.Dataset | None:
    """Seeds of a task that a claim about a table speaks of; None if all that have data miss its conditions.

    They are judged at the published thresholds, and where all compared cells have an own threshold at those.
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
    cells = [cell for r in ratios for side in (r["above"], r["below"]) if isinstance(side, list) for cell in side]
    has_own = claim["own"] & np.all([np.isfinite(own["smse"].sel(cell).values) for cell in cells], axis=0)
    return own.where(xr.DataArray(has_own, dims="seed"), published).isel(seed=np.flatnonzero(applies))


def _compare(store: xr.Dataset, place: Mapping[str, str], ratio: Mapping[str, Any], *, is_random: bool) -> Comparison:
    """One ratio at one place."""
    quantity, label, values = ratio.get("quantity", "smse"), ratio["label"], np.array(0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 % against 0 % says nothing: nan, which is left out
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


def _find_level(store: xr.Dataset, quantity: str, cell: Mapping[str, str]) -> tuple[np.ndarray, float]:
    """A quantity of a cell on its scale (seed,), and the threshold that it is read at; nan without one.

    `cell` names labels; its ``threshold`` is ``lowest``, ``below x`` (mean over these), ``from x`` or ``up_to x``: the
    next one with results, which must lie above the lowest.
    """
    where, _, number = cell.get("threshold", "").partition(" ")
    chosen = store[quantity].sel({name: label for name, label in cell.items() if name != "threshold"})
    scale = SCALES.get(quantity, np.log)
    if not where:
        return scale(chosen.values), np.nan
    curve = chosen.dropna("threshold", how="all").sortby("threshold").transpose("threshold", "seed")
    known, limit = curve["threshold"].values, float(number or "nan")
    at = {
        "lowest": known[:1],
        "below": known[known < limit],
        "from": known[known >= limit][:1],
        "up_to": known[known <= limit][-1:],
    }[where]
    is_one = where in ("from", "up_to") and len(at) > 0
    if not len(at) or (is_one and at[0] <= known[0]):
        level = np.full(curve.sizes["seed"], np.nan)
    else:
        level = scale(curve.sel(threshold=at).values).mean(axis=0)
    return level, float(at[0]) if is_one else np.nan


def read_printed() -> dict[str, xr.Dataset]:
    """Tables 2 to 4 as printed, one number per task, so that the same tests can be put to them.

    The paper does not say which reference its acceptance has: its numbers stand under each. Without acceptance every
    point that is inserted is revised; with it only table 2 tells how many were inserted.
    """
    stores = {}
    over: dict[str, Sequence[Any]] = {"setting": [PRINTED], "dataset": TITLES, "criterion": list(paper.CRITERIA)}
    over |= {"variant": list(VARIANTS), "threshold_choice": ["published", "own"], "seed": [0]}
    for table in ("table_2", "table_3", "table_4"):
        cells = paper.read_cells(table)
        cells = pd.concat([cells[cells["is_accepting"] == (v != "none")].assign(variant=v) for v in VARIANTS])
        cells["n_inserted"] = cells["n_revised"].where(~cells["is_accepting"])
        cells = cells.assign(threshold_choice="published", seed=0, setting=PRINTED)
        stores[table] = spread_out(cells, over, ("smse", "n_revised", "n_inserted", "accepted_percent"))
    return stores


# --- figure ---------------------------------------------------------------------------------------


@rc_context(PAGE)
def draw_forest(store: xr.Dataset, setting: str) -> Figure:
    """Claims with results, one row each: the ratio that speaks least for the claim at every place.

    The region that the claim wants is shaded.
    """
    part = store.sel(setting=setting)
    part = part.isel(claim=np.flatnonzero(part["median"].notnull().any("place"))[::-1])
    n = part.sizes["claim"]
    figure, axes = page(1, 1, 0.9 + ROW * n)
    ax = axes[0, 0]
    labels = [_draw_claim(ax, row, part.isel(claim=row)) for row in range(n)]
    ax.axvline(0.0, color="black", linewidth=0.6, zorder=1)
    ax.set(xlim=(-MARGIN * EDGE, MARGIN * EDGE), ylim=(-0.6, n - 0.4), xticks=np.log(TICKS))
    ax.set_xlabel("Median ratio and its 95 % interval [1]; shaded: what the claim wants", fontsize=FONT)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{np.exp(x):g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(n), labels, fontsize=FONT)
    ax.grid(visible=False, axis="y")
    handles = [Line2D([], [], color=color, linewidth=4, label=verdict) for verdict, color in COLORS.items()]
    black: dict[str, Any] = {"color": "black", "linestyle": "", "markersize": 4}
    handles += [Line2D([], [], marker=marker, label=outcome, **black) for outcome, marker in MARKERS.items()]
    handles.append(Line2D([], [], marker="o", markerfacecolor="white", label="one number", **black))
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False, fontsize=FONT)
    return figure


def _draw_claim(ax: Axes, y: float, part: xr.Dataset) -> str:
    """Places of a claim around its height, the verdict in the right margin; gives the label of the row."""
    verdict = part["verdict"].item()
    ax.text(1.01, y, verdict, transform=ax.get_yaxis_transform(), va="center", fontsize=FONT)
    color, end = COLORS[verdict], MARGIN * EDGE
    known = part[[*Judged._fields]].isel(place=np.flatnonzero(np.isfinite(part["median"]))).to_dataframe()
    region = np.clip([known["region_low"].max(), known["region_high"].min()], -end, end)
    ax.fill_betweenx([y - 0.45, y + 0.45], *region, color=color, alpha=0.12, linewidth=0)
    heights = y + 0.32 * np.linspace(1, -1, len(known) + 2)[1:-1]
    for height, place in zip(heights, known.to_dict("records"), strict=True):
        interval = np.array([place["low"], place["high"]])
        if np.isfinite(interval).all():
            ax.plot(np.clip(interval, -end, end), [height, height], color=color, linewidth=0.6, zorder=2)
        face = color if np.isfinite(place["p_value"]) else "white"
        style: dict[str, Any] = {"marker": MARKERS[place["outcome"]], "markersize": 3.2, "markerfacecolor": face}
        ax.plot(np.clip(place["median"], -EDGE, EDGE), height, color=color, markeredgewidth=0.6, zorder=3, **style)
    name = " ".join(NAMES.get(word, word) for word in str(part["claim"].item()).split("_"))
    counts = f"{int(part['n_won'])}/{int(part['n_lost'])}/{int(part['n_equal'] + part['n_tied'])}"
    return f"{name[0].upper()}{name[1:]} ({part['source'].item()})  {counts}"
