"""Table 1: what one evaluation of a criterion costs as published, and all N scores our way."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.benchmarks.harness import describe, machine
from experiments.benchmarks.scores import (
    COMPILED,
    CRITERIA,
    NUMPY,
    PUBLISHED,
    WAYS,
    exponent,
    rounds_for,
    score_seconds,
)
from experiments.plots.frames import significant, to_markdown
from experiments.plots.style import COLORS, LABELS, MARKERS, PAGE, page
from experiments.studies import paper
from experiments.studies.study import Plan, Study, Unit

SHOWN = (20, 100)  # points, of the published table
HEADINGS = {PUBLISHED: "one point", NUMPY: "all points, NumPy", COMPILED: "all points, compiled"}
LINES: dict[str, Any] = {
    PUBLISHED: ("-", "factorisations, as published"),
    NUMPY: (":", "cached factor, NumPy"),
    COMPILED: ("--", "cached factor, compiled"),
}
HOLLOW: dict[str, Any] = {"markersize": 4.5, "markerfacecolor": "none", "markeredgewidth": 0.8}
ROOM = 30.0  # factor above the curves, for the legend


class ComplexityStudy(Study):
    """Time of the five criteria over the number of points, the published way and ours, in turns in one process."""

    name, title, tasks = "table_1", "Table 1: cost of the criteria", ()
    weight = 30.0

    def units(self, plan: Plan) -> list[Unit]:
        """One."""
        return [Unit(self.name, "")]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Quartiles of the seconds of one call (quartile, way, criterion, points), and the machine they are from."""
        before = machine()["load"]
        coords: dict[str, list[Any]] = {"quartile": [0.25, 0.5, 0.75], "way": list(WAYS), "criterion": list(CRITERIA)}
        coords["points"] = list(plan.table_sizes)
        seconds = xr.DataArray(np.empty([len(x) for x in coords.values()]), coords, [*coords], attrs={"units": "s"})
        for size in plan.table_sizes:
            for (way, name), values in score_seconds(size, rounds_for(size, plan.repetitions), unit.seed).items():
                seconds.loc[:, way, name, size] = np.quantile(values, seconds["quartile"])
        facts = machine()
        loads = {"load_before": before or np.nan, "load_after": facts["load"] or np.nan}
        return xr.Dataset({"seconds": seconds}, attrs={"machine": describe(facts), **loads})

    def combine(self, plan: Plan) -> xr.Dataset:
        """The one part, with the published seconds and the exponents of growth."""
        (store,) = self.kept(plan).values()
        published = store["seconds"].isel(quartile=0, way=0, drop=True) * np.nan
        for name, row in paper.read_table("table_1").iterrows():
            for size in set(SHOWN) & set(plan.table_sizes):
                published.loc[name, size] = 1e-3 * row[f"median_ms_n{size}"]
        middle = store["seconds"].sel(quartile=0.5, drop=True)
        slopes = middle.isel(points=0, drop=True).copy(
            data=np.apply_along_axis(partial(exponent, store["points"].values), -1, middle.values)
        )
        return store.assign(seconds_published=published.assign_attrs(units="s"), exponent=slopes)

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """One row per criterion and number of points, times in milliseconds."""
        middle = 1e3 * store["seconds"].sel(quartile=0.5, drop=True)
        columns = {"published_ms": 1e3 * store["seconds_published"]}
        columns |= {f"{way}_ms": middle.sel(way=way, drop=True) for way in WAYS}
        columns["gain"] = store["points"] * middle.sel(way=PUBLISHED, drop=True) / middle.sel(way=COMPILED, drop=True)
        return xr.Dataset(columns).to_dataframe(["criterion", "points"]).reset_index()

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Published sizes, exponents, the machine."""
        rows = self.rows(store)
        rows = rows[rows["points"].isin(SHOWN)]
        times = rows[["criterion"]].apply(lambda names: names.map(LABELS)).assign(N=rows["points"])
        headings = {"published_ms": "one point, published", **{f"{way}_ms": HEADINGS[way] for way in WAYS}}
        for name, heading in {**headings, "gain": "gain"}.items():
            times[heading] = rows[name].map(significant)
        slopes = store["exponent"].to_pandas().T.map("{:.2f}".format).rename(index=LABELS, columns=HEADINGS)
        load = f"{store.attrs['load_before']}, {store.attrs['load_after']}"
        growth = to_markdown(slopes.reset_index(names="criterion"))
        return {"times": to_markdown(times), "growth": growth, "machine": store.attrs["machine"], "load": load}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Time over number of points."""
        return {"table_1": partial(draw_costs, store)}


@rc_context(PAGE)
def draw_costs(store: xr.Dataset) -> Figure:
    """Left: all N scores of every criterion, both ways; right: one evaluation beside the published times."""
    figure, axes = page(1, 2, 3.1)
    _draw_all_scores(axes[0, 0], store)
    _draw_one_score(axes[0, 1], store)
    handles = [
        Line2D([], [], color=COLORS[name], marker=MARKERS[name], markersize=4, label=label)
        for name, label in LABELS.items()
    ]
    handles.append(Line2D([], [], color="0.3", linestyle="none", marker="o", label="published (hollow)", **HOLLOW))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _draw_all_scores(ax: Axes, store: xr.Dataset) -> None:
    """Medians with quartiles, and the exponents of growth."""
    sizes = store["points"].values
    for way, (line, _) in LINES.items():
        factor = sizes if way == PUBLISHED else 1.0
        for name in CRITERIA:
            low, middle, high = factor * store["seconds"].sel(way=way, criterion=name).values * 1e3
            ax.loglog(sizes, middle, line, color=COLORS[name])
            ax.fill_between(sizes, low, high, color=COLORS[name], alpha=0.15, linewidth=0)
    for way, shift, place in ((PUBLISHED, 1.0, (-14, 0)), (COMPILED, 0.0, (0, -12))):
        slope = float(store["exponent"].sel(way=way).median())
        last = 1e3 * float(store["seconds"].sel(way=way, criterion="mean_relevance", quartile=0.5)[-1])
        at = (sizes[-1], last * (sizes[-1] if way == PUBLISHED else 1.0))
        text = f"$N^{{{slope + shift:.1f}}}$"
        ax.annotate(text, at, xytext=place, textcoords="offset points", ha="right", va="center")
    ax.set(xlabel="Points N [1]", ylabel="Time of all N scores [ms]", title="All scores")
    ax.set_ylim(top=ax.get_ylim()[1] * ROOM)
    ways = [Line2D([], [], color="0.3", linestyle=line, label=label) for line, label in LINES.values()]
    ax.legend(handles=ways, loc="upper left")


def _draw_one_score(ax: Axes, store: xr.Dataset) -> None:
    """Medians with a marker per criterion; published times hollow."""
    for name in CRITERIA:
        here = store["seconds"].sel(way=PUBLISHED, criterion=name, quartile=0.5)
        style: dict[str, Any] = {"color": COLORS[name], "marker": MARKERS[name]}
        ax.loglog(store["points"], 1e3 * here, markersize=3, markeredgewidth=0, **style)
        there = store["seconds_published"].sel(criterion=name).dropna("points")
        ax.plot(there["points"], 1e3 * there, linestyle="none", **style, **HOLLOW)
    ax.set(xlabel="Points N [1]", ylabel="Time of one score [ms]", title="One score by a factorisation")
