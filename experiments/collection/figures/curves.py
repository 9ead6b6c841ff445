"""Metrics against a swept number: one line per value of another parameter, one column per combination of the rest."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.collection.figures.look import (
    POINT,
    TITLE,
    Look,
    add_legend,
    drawn_series,
    mark_infinite,
    scale_axis,
)
from experiments.collection.figures.quartiles import quartiles
from experiments.collection.figures.sweep import MOST_PANELS, Sweep, places
from experiments.collection.figures.wording import (
    COVERAGE,
    about,
    axis_label,
    headline,
    held_text,
    left_out_text,
    listed,
    missing_text,
    name_of,
    place_text,
    seeds_text,
    some,
    title_of,
    within,
)
from experiments.studies.style import BASELINE, SETTINGS, page

COLUMNS = 3  # of panels beside each other
HEIGHT = 1.45  # inch of a panel
NOMINAL = 0.95  # of a 95 % band
FEW = 5  # seeds that are drawn one by one
DECADE = 10.0  # ratio of the values of a parameter from which on its axis is logarithmic


@rc_context(SETTINGS)
def draw(sweep: Sweep, metrics: Sequence[str]) -> Figure:
    """Median over seeds with the band between the quartiles, points for few seeds; missing settings are gaps."""
    x, series, rest = sweep.roles
    assert x is not None
    combinations = list(places(sweep.cells, rest))
    figure, columns = _columns(min(len(combinations), MOST_PANELS), len(metrics))
    lines = drawn_series(sweep.cells, series)
    for panels, place in zip(columns, combinations, strict=False):
        panels[0].set_title(title_of(sweep.cells, place, TITLE // min(len(combinations), COLUMNS)))
        for ax, metric in zip(panels, metrics, strict=True):
            for which, look in lines:
                one = sweep.part(place | which)
                _line(ax, one.cells[x].values, one.values(metric), look)
            _scale(ax, sweep, x, metric)
    _label(columns, sweep, x, metrics)
    if series is not None:
        add_legend(figure, columns[0][0].get_legend_handles_labels()[0], name_of(sweep.cells[series]))
    left_out = [place_text(sweep.cells, place) for place in combinations[MOST_PANELS:]]
    n_lines = left_out_text(sweep.cells, series, len(lines))
    n_panels = f"Left out, {len(left_out)} of {len(combinations)} panels: {some(left_out)}" if left_out else ""
    headline(figure, *_sentences(sweep, x, metrics), n_lines, n_panels)
    return figure


def _columns(n_panels: int, n_metrics: int) -> tuple[Figure, list[np.ndarray]]:
    """Axes of each combination below each other, three combinations in a row."""
    n_columns = min(n_panels, COLUMNS)
    n_blocks = math.ceil(n_panels / n_columns)
    figure, axes = page(n_metrics * n_blocks, n_columns, 1.1 + HEIGHT * n_metrics * n_blocks)
    columns = [column for block in np.split(axes, n_blocks) for column in block.T]
    for ax in np.ravel(columns[n_panels:]):
        ax.remove()
    return figure, columns[:n_panels]


def _line(ax: Axes, x: np.ndarray, values: np.ndarray, look: Look) -> None:
    """Median of values (x, seed) with its band."""
    low, median, high, _ = quartiles(values)
    n_seeds = values.shape[1]
    if n_seeds > 1:
        largest = 10.0 * np.max(values, where=np.isfinite(values), initial=1.0)
        ax.fill_between(x, low, np.minimum(high, largest), color=look.color, alpha=0.15, linewidth=0)
    if 1 < n_seeds <= FEW:
        ax.plot(np.repeat(x, n_seeds), values.ravel(), ".", color=look.color, markersize=4, alpha=0.6, **POINT)
    finite = np.where(np.isinf(median), np.nan, median)
    ax.plot(x, finite, color=look.color, marker=look.marker, markersize=3.5, markeredgewidth=0, label=look.label)
    mark_infinite(ax, x, median, look)


def _scale(ax: Axes, sweep: Sweep, x: str, metric: str) -> None:
    """Axes for all settings of the sweep: panels of a metric are alike."""
    values = sweep.values(metric)
    shown = values if sweep.n_seeds <= FEW else np.stack(quartiles(values)[:3])
    if metric == COVERAGE:
        ax.axhline(NOMINAL, color=BASELINE, linestyle="--", linewidth=0.8, zorder=0)
        shown = np.append(shown, NOMINAL)
    scale_axis(ax.yaxis, shown)
    scale_axis(ax.xaxis, sweep.cells[x].values, DECADE)


def _label(columns: Sequence[np.ndarray], sweep: Sweep, x: str, metrics: Sequence[str]) -> None:
    """Names of the axes along the edges of the page only."""
    for i, panels in enumerate(columns):
        for ax, metric in zip(panels, metrics, strict=True):
            if i % COLUMNS == 0:
                ax.set_ylabel(axis_label(sweep.cells[metric]))
            ax.tick_params(labelleft=i % COLUMNS == 0, labelbottom=metric == metrics[-1])
        panels[-1].set_xlabel(axis_label(sweep.cells[x]))
    columns[0][0].figure.align_ylabels([ax for panels in columns[::COLUMNS] for ax in panels])


def _sentences(sweep: Sweep, x: str, metrics: Sequence[str]) -> list[str]:
    """What is shown, pooled, held and missing."""
    names = [name_of(sweep.cells[metric]) for metric in metrics]
    shown = listed([names[0], *map(within, names[1:])])
    points = ", points for single seeds" if 1 < sweep.n_seeds <= FEW else ""
    values = sweep.values(metrics[0])
    nominal = "Dashed: the nominal coverage" if COVERAGE in metrics else ""
    return [
        f"{about(sweep.output)}{shown} against {within(name_of(sweep.cells[x]))}",
        f"{seeds_text(sweep.n_seeds, 'bands')}{points}",
        nominal,
        held_text(sweep.held),
        missing_text(values, names[0]),
        "Triangles at the upper edge: infinite medians" if np.isinf(quartiles(values).median).any() else "",
    ]
