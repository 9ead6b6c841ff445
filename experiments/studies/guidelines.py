"""The paper's guidelines and claims, tested on the results of the other studies."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.plots.frames import significant, to_markdown
from experiments.plots.style import PAGE, page
from experiments.studies.claims import (
    CHANCES,
    GUIDELINES,
    PRINTED,
    Claim,
    NeedsError,
    Results,
    find_places,
    list_settings,
    make_printed,
    read_claims,
)
from experiments.studies.stream import Setting
from experiments.studies.study import Plan, Study, Unit, spread_out
from experiments.studies.verdict import Judgement, Outcome, Verdict, judgement

COLUMNS = (*(setting.value for setting in Setting), PRINTED)
COUNTS = ("n_won", "n_lost", "n_equal", "n_tied", "n_missing", "n_tested")
NUMBERS = (*COUNTS, "p_sign", "p_least", "ratio")
PLACE_NUMBERS = ("median", "low", "high", "n", "p_value", "region_low", "region_high")
PLACE_COLUMNS = ("place_ratio", "place_ratio_low", "place_ratio_high", "n_seeds", "place_p")
#: of the verdicts (Okabe and Ito)
COLORS = {
    Verdict.holds.value: "#009e73",
    Verdict.in_part.value: "#e69f00",
    Verdict.fails.value: "#d55e00",
    Verdict.undecided.value: "#7a7a7a",
}
MARKERS = {"won": "o", "lost": "X", "equal": "s", "tied": "."}
EDGE, MARGIN = float(np.log(10.0)), 1.06  # log ratio beyond which places are drawn at the edge; of the axis
ROW, FONT = 0.22, 7  # inch per claim: all of them on one page; points
NAMES = {"smse": "SMSE", "nlpd": "NLPD", "van": "Van", "pol": "Pol"}
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Examined(NamedTuple):
    """A claim in one setting: what was found, or why nothing could be."""

    judgement: Judgement | None  # None: without results
    needs: str  # what is missing, "" if nothing

    @property
    def verdict(self) -> str:
        """Verdict; undecided without results, "" in a setting in which nobody computes them."""
        if self.judgement is None:
            return Verdict.undecided.value if self.needs else ""
        return self.judgement.verdict.value


class Guidelines(Study):
    """Verdicts with the numbers behind them; it computes no stream of its own."""

    name, title = "guidelines", "Where the paper's guidelines and claims hold"
    needs = tuple(dict.fromkeys(claim.study for claim in read_claims()))

    def units(self, plan: Plan) -> list[Unit]:
        """None: it reads the stores of other studies."""
        return []

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Nothing.

        Raises
        ------
        ValueError
            Always: there are no units.
        """
        raise ValueError(f"{self.name} has no units, got {unit}: it reads the stores of {', '.join(self.needs)}")

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
        over, names = ["claim", "setting"], ["source", "verdict", "needs", *COUNTS[:5], "p_sign", "p_least", "ratio"]
        about = store[names].to_dataframe(over).astype(dict.fromkeys(COUNTS[:5], int))
        places = store[["outcome", "comparison", *PLACE_NUMBERS[:5]]].to_dataframe([*over, "place"])
        places = places[places["outcome"] != ""].reset_index("place")
        places[["median", "low", "high"]] = np.exp(places[["median", "low", "high"]])
        places.columns = ["place", "outcome", "comparison", *PLACE_COLUMNS]
        rows = about[about["verdict"] != ""].join(places[[*places.columns[:6], "place_p", "n_seeds"]]).reset_index()
        rows[["place", "outcome", "comparison"]] = rows[["place", "outcome", "comparison"]].fillna("")
        return rows[["claim", "source", "setting", *rows.columns[3:]]]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Guidelines, claims, and what every place says in the setting `trained`."""
        trained = store.sel(setting="trained")
        texts = trained["verdict"].to_series()
        guidelines, claims, places = [], [], []
        for number, text in GUIDELINES.items():
            parts = texts[trained["guideline_of"].values == number]
            told = "; ".join(f"{name.replace('_', ' ')}: {verdict}" for name, verdict in parts.items())
            verdicts = {s: store["guideline_verdict"].sel(guideline=number, setting=s).item() or "-" for s in COLUMNS}
            guidelines.append({"guideline": f"{number}. {text}", **verdicts, "parts (trained)": told})
        for claim in read_claims():
            part = store.sel(claim=claim.name)
            one = part.sel(setting="trained")
            label, verdicts = claim.name.replace("_", " "), {s: part["verdict"].sel(setting=s).item() for s in COLUMNS}
            counts = f"{int(one['n_won'])} / {int(one['n_lost'])} / {int(one['n_equal'] + one['n_tied'])}"
            numbers = {name: significant(one[name].item()) for name in ("ratio", "p_sign", "p_least")}
            row = {"claim": label, "from": claim.source, **verdicts, "needs": one["needs"].item()}
            claims.append({**row, "won / lost / tied": counts, **numbers})
            known = one[["outcome", *PLACE_NUMBERS[:3]]].isel(place=np.flatnonzero(one["outcome"] != "")).to_dataframe()
            rows = [f"{name} {_describe(place)}" for name, place in known.iterrows()]
            text = f"**{label}** ({claim.source}). {claim.statement} {claim.test}"
            places.append(f"{text} {'; '.join(rows)}" + ("." if rows else ""))
        return {
            "guidelines": to_markdown(pd.DataFrame(guidelines)),
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


def judge_claims(stores: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All claims in all settings, and on the printed numbers; nan and "" where nothing was computed."""
    claims, about, places = read_claims(), [], []
    results = [make_printed() if name == PRINTED else Results(name, stores) for name in COLUMNS]
    nothing = judgement({})._replace(p_sign=np.nan)
    for claim, each in product(claims, results):
        examined = examine(claim, each)
        found = examined.judgement or nothing
        key = {"claim": claim.name, "setting": each.setting}
        numbers = {name: float(getattr(found, name)) for name in NUMBERS}
        texts = {"verdict": examined.verdict, "needs": examined.needs}
        about.append({**key, "guideline": claim.guideline, **texts, **numbers})
        for name, place in found.places.items():
            one = place.decisive
            values = (one.median, one.low, one.high, one.n, place.p_value, *one.region)
            told = {"place": name, "outcome": place.outcome.value, "comparison": one.label}
            places.append({**key, **told, **dict(zip(PLACE_NUMBERS, values, strict=True))})
    frame, places_frame = pd.DataFrame(about), pd.DataFrame(places)
    over = {"claim": [claim.name for claim in claims], "setting": list(COLUMNS)}
    everywhere = {**over, "place": list(places_frame["place"].unique())}
    guidelines = frame.groupby(["guideline", "setting"])["verdict"].agg(lambda parts: sum_up(list(parts)))
    guidelines = guidelines.rename("guideline_verdict").reset_index()
    store = xr.merge(
        [
            spread_out(frame, over, ("verdict", "needs", *NUMBERS)),
            spread_out(places_frame, everywhere, ("outcome", "comparison", *PLACE_NUMBERS)),
            spread_out(
                guidelines[guidelines["guideline"] > 0],
                {"guideline": list(GUIDELINES), "setting": list(COLUMNS)},
                ("guideline_verdict",),
            ),
        ]
    )
    names = {"source": "source", "statement": "statement", "test": "test", "guideline_of": "guideline"}
    return store.assign({k: ("claim", [getattr(claim, name) for claim in claims]) for k, name in names.items()})


def examine(claim: Claim, results: Results) -> Examined:
    """A claim on the results of one setting."""
    is_printed, known = results.setting == PRINTED, results.stores.get(claim.study)
    if (known is None and is_printed) or (known is not None and results.setting not in list_settings(known)):
        return Examined(None, "")
    try:
        found = judgement(find_places(claim, results), CHANCES.get(claim.chance, claim.chance))
    except NeedsError as error:
        return Examined(None, "" if is_printed else str(error))
    gaps = [name for name, place in found.places.items() if place.outcome is Outcome.missing]
    missing = f"{claim.study} for {', '.join(gaps)}" if gaps else f"a case of {claim.study} that it speaks of"
    if len(gaps) == len(found.places):
        return Examined(None, "" if is_printed else missing)
    few = [name for name, place in found.places.items() if np.isinf(place.decisive.low)]
    if few and not gaps and found.verdict is Verdict.undecided:
        return Examined(found, f"six seeds of {', '.join(few)}")  # fewer have no 95 % interval
    return Examined(found, missing if gaps else "")


def sum_up(parts: Sequence[str]) -> str:
    """Verdict on a guideline from those on its parts; those that nobody computes ("") do not count.

    It holds, or does not, if all decided parts say so and at least half of the parts are decided. It holds in part if
    the decided parts say different things. Otherwise it is undecided.
    """
    known = [part for part in parts if part]
    decided = {part for part in known if part != Verdict.undecided}
    if not known:
        return ""
    if len(decided) > 1:
        return Verdict.in_part.value
    n_decided = sum(part != Verdict.undecided for part in known)
    return decided.pop() if decided and 2 * n_decided >= len(known) else Verdict.undecided.value


@rc_context(PAGE)
def draw_forest(store: xr.Dataset, setting: str) -> Figure:
    """Claims with results, one row each: the ratio that speaks least for the claim at every place.

    The region that the claim wants is shaded.
    """
    part = store.sel(setting=setting)
    names = [name for name in part["claim"].values if np.isfinite(part["median"].sel(claim=name)).any()]
    figure, axes = page(1, 1, 0.9 + ROW * len(names))
    ax = axes[0, 0]
    for row, name in enumerate(reversed(names)):
        _draw_claim(ax, row, part.sel(claim=name))
    ax.axvline(0.0, color="black", linewidth=0.6, zorder=1)
    ax.set(xlim=(-MARGIN * EDGE, MARGIN * EDGE), ylim=(-0.6, len(names) - 0.4), xticks=np.log(TICKS))
    ax.set_xlabel("Median ratio and its 95 % interval [1]; shaded: what the claim wants", fontsize=FONT)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{np.exp(x):g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(names)), [_label(part.sel(claim=name)) for name in reversed(names)], fontsize=FONT)
    ax.grid(visible=False, axis="y")
    handles = [Line2D([], [], color=color, linewidth=4, label=verdict) for verdict, color in COLORS.items()]
    black: dict[str, Any] = {"color": "black", "linestyle": "", "markersize": 4}
    handles += [Line2D([], [], marker=marker, label=outcome, **black) for outcome, marker in MARKERS.items()]
    handles.append(Line2D([], [], marker="o", markerfacecolor="white", label="one number", **black))
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False, fontsize=FONT)
    return figure


def _draw_claim(ax: Axes, y: float, part: xr.Dataset) -> None:
    """Places of a claim around its height, in their order from top to bottom; the verdict in the right margin."""
    ax.text(1.01, y, part["verdict"].item(), transform=ax.get_yaxis_transform(), va="center", fontsize=FONT)
    color = COLORS[part["verdict"].item()]
    known = part[["outcome", *PLACE_NUMBERS]].isel(place=np.flatnonzero(np.isfinite(part["median"]))).to_dataframe()
    heights = y + 0.32 * np.linspace(1, -1, len(known) + 2)[1:-1]
    region = np.clip([known["region_low"].max(), known["region_high"].min()], -MARGIN * EDGE, MARGIN * EDGE)
    ax.fill_betweenx([y - 0.45, y + 0.45], *region, color=color, alpha=0.12, linewidth=0)
    for height, place in zip(heights, known.to_dict("records"), strict=True):
        interval = np.array([place["low"], place["high"]])
        if np.isfinite(interval).all():
            ends = np.clip(interval, -MARGIN * EDGE, MARGIN * EDGE)
            ax.plot(ends, [height, height], color=color, linewidth=0.6, zorder=2)
        style: dict[str, Any] = {
            "markerfacecolor": color if np.isfinite(place["p_value"]) else "white",
            "markeredgewidth": 0.6,
        }
        middle, marker = np.clip(place["median"], -EDGE, EDGE), MARKERS[place["outcome"]]
        ax.plot(middle, height, marker, color=color, markersize=3.2, zorder=3, **style)


def _label(part: xr.Dataset) -> str:
    name = " ".join(NAMES.get(word, word) for word in str(part["claim"].item()).split("_"))
    counts = f"{int(part['n_won'])}/{int(part['n_lost'])}/{int(part['n_equal'] + part['n_tied'])}"
    return f"{name[0].upper()}{name[1:]} ({part['source'].item()})  {counts}"
