"""Metrics of settings that have no order, and of a single setting over its seeds."""

from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.collection.figures.look import POINT, Look, add_legend, drawn_series, looks, scale_axis
from experiments.collection.figures.quartiles import quartiles
from experiments.collection.figures.sweep import SEED, Sweep, places, spread_out
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
    value_text,
    within,
)
from experiments.studies.style import BASELINE, SETTINGS, page

NOMINAL = 0.95  # of a 95 % band
MOST_ROWS = 24
FEW = 5  # seeds that are drawn one by one
SPAN = 0.7  # of a row that its series fill
ROW = 0.13  # inch of one series in a row
SEED_PANEL = 1.9  # inch


@rc_context(SETTINGS)
def draw(sweep: Sweep, metrics: Sequence[str]) -> Figure:
    """Median of every setting with its quartiles: a colour per value of the first parameter, a row per combination."""
    series = sweep.varied[0] if len(sweep.varied) > 1 else None
    rest = tuple(name for name in sweep.varied if name != series)
    combinations = list(places(sweep.cells, rest))
    shown = combinations[:MOST_ROWS]
    lines = drawn_series(sweep.cells, series)
    height = 1.3 + len(shown) * max(ROW * (len(lines) + 1), 0.22)
    figure, axes = page(1, len(metrics), height, sharey=True)
    for ax, metric in zip(axes[0], metrics, strict=True):
        for row, place in enumerate(shown):
            for offset, (which, look) in zip(_offsets(len(lines)), lines, strict=True):
                _setting(ax, row + offset, sweep.part(place | which).values(metric), look, is_named=row == 0)
        _finish(ax, sweep, metric, len(shown))
    names = [place_text(sweep.cells, place).replace(", ", "\n") for place in shown]
    if len(rest) == 1:  # the name of the only parameter once
        names = [value_text(sweep.cells[rest[0]][place[rest[0]]]) for place in shown]
        axes[0, 0].set_ylabel(axis_label(sweep.cells[rest[0]]))
    axes[0, 0].set_yticks(range(len(shown)), names)
    if series is not None:
        add_legend(figure, axes[0, 0].get_legend_handles_labels()[0], name_of(sweep.cells[series]))
    left_out = [place_text(sweep.cells, place) for place in combinations[MOST_ROWS:]]
    n_lines = left_out_text(sweep.cells, series, len(lines))
    n_rows = f"Left out, {len(left_out)} of {len(combinations)} rows: {some(left_out)}" if left_out else ""
    headline(figure, *_sentences(sweep, metrics), n_lines, n_rows)
    return figure


def _offsets(n: int) -> np.ndarray:
    """Places of n series in a row, the first above."""
    return SPAN * (np.arange(n) - 0.5 * (n - 1)) / n


def _setting(ax: Axes, y: float, values: np.ndarray, look: Look, *, is_named: bool) -> None:
    """One setting: a marker, a bar between the quartiles, dots for few seeds."""
    low, median, high, _ = (float(value) for value in quartiles(values))
    ax.plot([low, high], [y, y], "-", color=look.color, linewidth=1.4, solid_capstyle="butt")
    if 1 < values.size <= FEW:
        ax.plot(values, np.full(values.size, y), marker="|", color=look.color, markersize=4, linestyle="none")
    label = look.label if is_named else None
    style = POINT | {"marker": look.marker, "color": look.color, "markersize": 4.5, "zorder": 3}
    ax.plot(median if np.isfinite(median) else np.nan, y, label=label, **style)
    if np.isposinf(median):
        ax.plot(0.97, y, ">", color=look.color, fillstyle="none", markersize=4, transform=ax.get_yaxis_transform())


def _finish(ax: Axes, sweep: Sweep, metric: str, n_rows: int) -> None:
    """Scale, name, stripes behind every other row."""
    values = sweep.values(metric)
    shown = values if sweep.n_seeds <= FEW else np.stack(quartiles(values)[:3])
    if metric == COVERAGE:
        ax.axvline(NOMINAL, color=BASELINE, linestyle="--", linewidth=0.8, zorder=0)
        shown = np.append(shown, NOMINAL)
    scale_axis(ax.xaxis, shown)
    ax.set_xlabel(axis_label(sweep.cells[metric]))
    for i in range(0, n_rows, 2):
        ax.axhspan(i - 0.5, i + 0.5, color="0.955", linewidth=0, zorder=-1)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(n_rows - 0.5, -0.5)


def _sentences(sweep: Sweep, metrics: Sequence[str]) -> list[str]:
    """What is shown, pooled, held and missing."""
    names = [name_of(sweep.cells[metric]) for metric in metrics]
    shown = listed([names[0], *map(within, names[1:])])
    return [
        f"{about(sweep.output)}{shown} of every setting",
        seeds_text(sweep.n_seeds, "bars") + (", ticks for single seeds" if 1 < sweep.n_seeds <= FEW else ""),
        "Dashed: the nominal coverage" if COVERAGE in metrics else "",
        held_text(sweep.held),
        missing_text(sweep.values(metrics[0]), names[0]),
    ]


@rc_context(SETTINGS)
def over_seeds(sweep: Sweep, metrics: Sequence[str], timing: str = "") -> Figure:
    """Metrics of one setting, seed by seed, with their median and quartiles."""
    figure, axes = page(1, len(metrics), 1.0 + SEED_PANEL, sharex=True)
    color = looks(None)[0].color
    at = np.arange(sweep.n_seeds)
    for ax, metric in zip(axes[0], metrics, strict=True):
        values = sweep.values(metric)
        low, median, high, _ = (float(value) for value in quartiles(values))
        ax.axhspan(low, high, color=color, alpha=0.15, linewidth=0)
        ax.axhline(median, color=color)
        ax.plot(at, values, marker="o", color="black", markersize=3.5, **POINT)
        scale_axis(ax.yaxis, values)
        ax.set_ylabel(axis_label(sweep.cells[metric]))
        ax.set_xlabel("Seed")
    names = [str(seed) for seed in sweep.cells[SEED].values]
    shown = spread_out(len(names), max(2, 12 // len(metrics)))
    axes[0, 0].set_xticks(shown, [names[i] for i in shown])
    axes[0, 0].set_xlim(-0.6, sweep.n_seeds - 0.4)
    text = [name_of(sweep.cells[metric]) for metric in metrics]
    headline(
        figure,
        f"{about(sweep.output)}{listed([text[0], *map(within, text[1:])])} over {sweep.n_seeds} seeds",
        "Line and band: median and quartiles",
        timing,
        held_text(sweep.held),
        missing_text(sweep.values(metrics[0]), text[0]),
    )
    return figure
