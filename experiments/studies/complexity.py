"""Table 1: what one evaluation of a criterion costs as published, and all N scores our way."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.benchmarks.dictionary import (
    COMPILED,
    CRITERIA,
    NUMPY,
    PUBLISHED,
    WAYS,
    exponent,
    rounds_for,
    score_seconds,
)
from experiments.benchmarks.harness import describe, machine
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
        return [Unit(self.name, "")]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Quartiles of the seconds of one call (quartile, way, criterion, points), and the machine they are from."""
        before, levels = machine()["load"], [0.25, 0.5, 0.75]
        over = {"points": plan.table_sizes, "way": WAYS, "criterion": [*CRITERIA], "quartile": levels}
        measured = [score_seconds(n, rounds_for(n, plan.repetitions), unit.seed) for n in plan.table_sizes]
        found = [[[np.quantile(each[way, name], levels) for name in CRITERIA] for way in WAYS] for each in measured]
        seconds = xr.DataArray(found, {name: list(x) for name, x in over.items()}, [*over], attrs={"units": "s"})
        facts = machine()
        loads = {"load_before": before or np.nan, "load_after": facts["load"] or np.nan}
        seconds = seconds.transpose("quartile", "way", "criterion", "points")
        return xr.Dataset({"seconds": seconds}, attrs={"machine": describe(facts), **loads})

    def combine(self, plan: Plan) -> xr.Dataset:
        """The one part, with the published seconds and the exponents of growth."""
        (store,) = self.kept(plan).values()
        middle = store["seconds"].sel(quartile=0.5, drop=True)
        published = middle.isel(way=0, drop=True) * np.nan
        for name, row in paper.read_table("table_1").iterrows():
            for size in set(SHOWN) & set(plan.table_sizes):
                published.loc[name, size] = 1e-3 * row[f"median_ms_n{size}"]
        slopes = np.apply_along_axis(partial(exponent, store["points"].values), -1, middle.values)
        return store.assign(
            seconds_published=published.assign_attrs(units="s"), exponent=(("way", "criterion"), slopes)
        )

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
    """Left: all N scores, medians with quartiles; right: one evaluation beside the published times (hollow)."""
    figure, axes = page(1, 2, 3.1)
    (left, right), sizes, seconds = axes[0], store["points"].values, 1e3 * store["seconds"]
    for way, name in product(LINES, CRITERIA):
        low, middle, high = seconds.sel(way=way, criterion=name).values * (sizes if way == PUBLISHED else 1.0)
        left.loglog(sizes, middle, LINES[way][0], color=COLORS[name])
        left.fill_between(sizes, low, high, color=COLORS[name], alpha=0.15, linewidth=0)
        if name == "mean_relevance" and way != NUMPY:
            slope = float(store["exponent"].sel(way=way).median()) + (way == PUBLISHED)
            style: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center"}
            place = (-14, 0) if way == PUBLISHED else (0, -12)
            left.annotate(f"$N^{{{slope:.1f}}}$", (sizes[-1], middle[-1]), xytext=place, **style)
    for name in CRITERIA:
        style = {"color": COLORS[name], "marker": MARKERS[name]}
        here = seconds.sel(way=PUBLISHED, criterion=name, quartile=0.5)
        right.loglog(sizes, here, markersize=3, markeredgewidth=0, **style)
        right.plot(sizes, 1e3 * store["seconds_published"].sel(criterion=name), linestyle="none", **style, **HOLLOW)
    left.set(xlabel="Points N [1]", ylabel="Time of all N scores [ms]", title="All scores")
    left.set_ylim(top=left.get_ylim()[1] * ROOM)
    ways = [Line2D([], [], color="0.3", linestyle=line, label=label) for line, label in LINES.values()]
    left.legend(handles=ways, loc="upper left")
    right.set(xlabel="Points N [1]", ylabel="Time of one score [ms]", title="One score by a factorisation")
    handles = [Line2D([], [], color=COLORS[n], marker=MARKERS[n], markersize=4, label=LABELS[n]) for n in LABELS]
    handles.append(Line2D([], [], color="0.3", linestyle="none", marker="o", label="published (hollow)", **HOLLOW))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
