"""Figures of tables 2 to 4: our SMSE over seeds beside the published one, dataset by dataset."""

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.studies.style import COLORS, LABELS, MARKERS, PUBLISHED, SETTINGS, page
from experiments.studies.table_summary import HEADLINE, Summary, select

PANELS = {"none": "Without acceptance", HEADLINE: "With acceptance, leave-one-out"}
HEIGHT = 0.4  # inch per dataset
HOLLOW: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": PUBLISHED, "markeredgewidth": 0.7}
STEP = 0.24  # between two criteria of a dataset, in rows


@rc_context(SETTINGS)
def dot_plot(cells: list[Summary]) -> Figure:
    """Cells of one setting: median with the 95 % range over seeds, published values hollow, by dataset.

    A cross marks the median at an own threshold, where there is one.
    """
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    criteria = [criterion for criterion in LABELS if select(cells, criterion=criterion)]
    figure, axes = page(1, len(PANELS), 1.1 + HEIGHT * len(datasets), sharex=True, sharey=True)
    for ax, (variant, title) in zip(axes[0], PANELS.items(), strict=True):
        for cell in select(cells, variant=variant):
            offset = STEP * (criteria.index(cell.criterion) - 0.5 * (len(criteria) - 1))
            draw_cell(ax, cell, datasets.index(cell.dataset) + offset)
        ax.set(title=title, xscale="log", xlabel="SMSE [1]")
        _stripes(ax, len(datasets))
    axes[0, 0].set_yticks(range(len(datasets)), datasets)
    axes[0, 0].set_ylim(len(datasets) - 0.5, -0.5)
    has_own = bool(select(cells, choice="own"))
    figure.legend(handles=legend(criteria, has_own=has_own), loc="outside lower center", ncols=len(criteria) + 2)
    return figure


def draw_cell(ax: Axes, cell: Summary, y: float) -> None:
    """Markers of one cell; without data only the published one."""
    color = COLORS[cell.criterion]
    if cell.choice == "own":
        ax.plot(cell.smse, y, "x", color=color, markersize=5, markeredgewidth=1.0, zorder=4)
        return
    ax.plot(cell.published.smse, y, MARKERS[cell.criterion], markersize=5.5, zorder=2, **HOLLOW)
    if cell.n_seeds:
        low, high = np.quantile(cell.values["smse"], [0.025, 0.975])
        ax.plot([low, high], [y, y], "-", color=color, linewidth=1.4, solid_capstyle="butt")
        ax.plot(cell.smse, y, MARKERS[cell.criterion], color=color, markersize=4, zorder=3, markeredgewidth=0)


def legend(criteria: list[str], *, has_own: bool) -> list[Line2D]:
    """Criteria by colour and marker, then what hollow markers and crosses are."""
    handles = [
        Line2D([], [], color=COLORS[criterion], marker=MARKERS[criterion], markersize=4, label=LABELS[criterion])
        for criterion in criteria
    ]
    handles.append(Line2D([], [], linestyle="none", marker="o", markersize=5.5, label="published", **HOLLOW))
    if has_own:
        handles.append(Line2D([], [], linestyle="none", marker="x", color="0.3", markersize=5, label="own threshold"))
    return handles


def _stripes(ax: Axes, n: int) -> None:
    """Every other dataset on grey; grid lines along the values only."""
    for i in range(0, n, 2):
        ax.axhspan(i - 0.5, i + 0.5, color="0.955", linewidth=0, zorder=0)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
