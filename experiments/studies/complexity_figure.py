"""Figure of table 1: time over the number of points, both ways."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.benchmarks.scores import COMPILED, CRITERIA, NUMPY, PUBLISHED
from experiments.studies.style import COLORS, LABELS, MARKERS, SETTINGS, page

WAYS: dict[str, Any] = {
    PUBLISHED: ("-", "factorisations, as published"),
    NUMPY: (":", "cached factor, NumPy"),
    COMPILED: ("--", "cached factor, compiled"),
}
HOLLOW: dict[str, Any] = {"markersize": 4.5, "markerfacecolor": "none", "markeredgewidth": 0.8}
ROOM = 30.0  # factor above the curves, for the legend


@rc_context(SETTINGS)
def cost_figure(store: xr.Dataset) -> Figure:
    """Left: all N scores of every criterion, both ways; right: one evaluation beside the published times."""
    figure, axes = page(1, 2, 3.1)
    _all_scores(axes[0, 0], store)
    _one_score(axes[0, 1], store)
    criteria = [name for name in LABELS if name in CRITERIA]
    handles = [
        Line2D([], [], color=COLORS[name], marker=MARKERS[name], markersize=4, label=LABELS[name]) for name in criteria
    ]
    handles.append(Line2D([], [], color="0.3", linestyle="none", marker="o", label="published (hollow)", **HOLLOW))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _all_scores(ax: Axes, store: xr.Dataset) -> None:
    """Medians with quartiles, and the exponents of growth."""
    sizes = store["points"].values
    for name in CRITERIA:
        for way, (line, _) in WAYS.items():
            factor = sizes if way == PUBLISHED else 1.0
            low, middle, high = factor * store["seconds"].sel(way=way, criterion=name).values * 1e3
            ax.loglog(sizes, middle, line, color=COLORS[name])
            ax.fill_between(sizes, low, high, color=COLORS[name], alpha=0.15, linewidth=0)
    for way, shift, place in ((PUBLISHED, 1.0, (-14, 0)), (COMPILED, 0.0, (0, -12))):
        slope = float(store["exponent"].sel(way=way).median())
        middle = store["seconds"].sel(way=way, criterion="mean_relevance", quartile=0.5).values * 1e3
        y = middle[-1] * (sizes[-1] if way == PUBLISHED else 1.0)
        text = f"$N^{{{slope + shift:.1f}}}$"
        ax.annotate(text, (sizes[-1], y), xytext=place, textcoords="offset points", ha="right", va="center")
    ax.set(xlabel="Points N [1]", ylabel="Time of all N scores [ms]", title="All scores")
    ways = [Line2D([], [], color="0.3", linestyle=line, label=label) for line, label in WAYS.values()]
    ax.set_ylim(top=ax.get_ylim()[1] * ROOM)
    ax.legend(handles=ways, loc="upper left")


def _one_score(ax: Axes, store: xr.Dataset) -> None:
    """Medians with a marker per criterion; published times hollow."""
    for name in CRITERIA:
        here = store["seconds"].sel(way=PUBLISHED, criterion=name, quartile=0.5)
        style: dict[str, Any] = {"color": COLORS[name], "marker": MARKERS[name]}
        ax.loglog(store["points"], 1e3 * here, markersize=3, markeredgewidth=0, **style)
        there = store["seconds_published"].sel(criterion=name)
        known = np.isfinite(there)
        ax.plot(store["points"][known], 1e3 * there[known], linestyle="none", **style, **HOLLOW)
    ax.set(xlabel="Points N [1]", ylabel="Time of one score [ms]", title="One score by a factorisation")
