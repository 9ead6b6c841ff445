"""Figure of table 1: time over the number of points, both ways."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.benchmarks.score_cost import COMPILED, CRITERIA, NUMPY, PUBLISHED
from experiments.studies.style import COLORS, LABELS, page
from experiments.studies.style import PUBLISHED as PUBLISHED_COLOR

WAYS = {PUBLISHED: ("-", "N evaluations as published"), NUMPY: (":", "NumPy"), COMPILED: ("--", "compiled")}


def cost_figure(store: xr.Dataset) -> Figure:
    """Left: all N scores of every criterion, both ways; right: one evaluation beside the published times."""
    figure, axes = page(1, 2, 2.9)
    _all_scores(axes[0, 0], store)
    _one_score(axes[0, 1], store)
    return figure


def _all_scores(ax: Axes, store: xr.Dataset) -> None:
    sizes = store["points"].values
    for name in CRITERIA:
        for way, (line, label) in WAYS.items():
            factor = sizes if way == PUBLISHED else 1.0
            low, middle, high = factor * store["seconds"].sel(way=way, criterion=name).values * 1e3
            ax.loglog(sizes, middle, line, color=COLORS[name], label=label if name == "mean_relevance" else None)
            ax.fill_between(sizes, low, high, color=COLORS[name], alpha=0.15, linewidth=0)
    for way, shift in ((PUBLISHED, 1.0), (COMPILED, 0.0)):
        slope = float(store["exponent"].sel(way=way).median())
        middle = store["seconds"].sel(way=way, criterion="mean_relevance", quartile=0.5).values * 1e3
        y = middle[-1] * (sizes[-1] if way == PUBLISHED else 1.0)
        ax.annotate(
            f"$N^{{{slope + shift:.1f}}}$", (sizes[-1], y), xytext=(-4, 4), textcoords="offset points", ha="right"
        )
    ax.set(xlabel="points N", ylabel="time of all N scores / ms", title="All scores")
    ax.legend()


def _one_score(ax: Axes, store: xr.Dataset) -> None:
    for name in CRITERIA:
        here = store["seconds"].sel(way=PUBLISHED, criterion=name, quartile=0.5)
        ax.loglog(store["points"], 1e3 * here, color=COLORS[name], label=LABELS[name])
        there = store["seconds_published"].sel(criterion=name)
        known = np.isfinite(there)
        ax.plot(store["points"][known], 1e3 * there[known], "x", color=COLORS[name], markersize=4)
    ax.plot([], [], "x", color=PUBLISHED_COLOR, markersize=4, label="published")
    ax.set(xlabel="points N", ylabel="time of one score / ms", title="One score by a factorisation")
    ax.legend()
