"""Heat maps: the error over two swept parameters, one map per combination of the others."""

import math
from typing import Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.collection.figures.look import LOGARITHMIC, TITLE, label_logarithmic
from experiments.collection.figures.quartiles import quartiles
from experiments.collection.figures.sweep import MOST_PANELS, Sweep, places
from experiments.collection.figures.wording import (
    about,
    axis_label,
    headline,
    held_text,
    missing_text,
    name_of,
    title_of,
    value_text,
    within,
)
from experiments.studies.significant import significant
from experiments.studies.style import SETTINGS, page

COLUMNS = 3  # maps beside each other
MOST_WRITTEN = 13, 25  # columns and rows of all maps beside each other up to which values are written in the cells
MOST_NAMED = 16  # values of a parameter that are named along an axis
LINE = 90  # characters along x beyond which names are written upwards
MAP = "YlOrBr"
DARK = 0.6  # of the colours, from which on the text is white


def pair_of(sweep: Sweep) -> tuple[str, str] | None:
    """Parameters along x and y: the only two, or the first two if they are numbers and the rest is few; or None."""
    if len(sweep.varied) < 2:
        return None
    x, y = sweep.varied[:2]
    n_maps = math.prod(sweep.cells.sizes[name] for name in sweep.varied[2:])
    both = sweep.is_numeric(x) and sweep.is_numeric(y)
    if len(sweep.varied) > 2 and not (both and n_maps <= MOST_PANELS):
        return None
    return (y, x) if sweep.is_numeric(y) and not sweep.is_numeric(x) else (x, y)


@rc_context(SETTINGS)
def draw(sweep: Sweep, metric: str, pair: tuple[str, str]) -> Figure:
    """Median of a metric over seeds; values in the cells, missing ones hatched, the lowest of each map framed."""
    x, y = pair
    combinations = list(places(sweep.cells, tuple(name for name in sweep.varied if name not in pair)))
    n_columns = 2 if len(combinations) == 4 else min(len(combinations), COLUMNS)
    n_rows = math.ceil(len(combinations) / n_columns)
    n_x, n_y = sweep.cells.sizes[x], sweep.cells.sizes[y]
    height = 1.6 + n_rows * min(0.7 + 0.24 * n_y, 3.2)
    figure, axes = page(n_rows, n_columns, height, sharex=True, sharey=True)
    is_written = n_x * n_columns <= MOST_WRITTEN[0] and n_y * n_rows <= MOST_WRITTEN[1]
    origin: Literal["lower", "upper"] = "lower" if sweep.is_numeric(y) else "upper"  # texts are read downwards
    norm = _norm(quartiles(sweep.values(metric)).median)
    for ax, place in zip(axes.flat, combinations, strict=False):
        median = quartiles(sweep.part(place).values(metric, y, x)).median
        image = ax.imshow(np.ma.masked_invalid(median), norm=norm, cmap=MAP, aspect="auto", origin=origin)
        _cells(ax, median, norm, is_written=is_written)
        ax.set_title(title_of(sweep.cells, place, TITLE // n_columns))
    for ax in axes.flat[len(combinations) :]:
        ax.set_visible(False)
    _label(axes, sweep, pair, len(combinations))
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.01)
    bar.set_label(axis_label(sweep.cells[metric]))
    if isinstance(norm, LogNorm):
        label_logarithmic(bar.ax.yaxis)
    bar.outline.set_visible(False)
    headline(figure, *_sentences(sweep, metric, pair))
    return figure


def _norm(medians: np.ndarray) -> Normalize:
    """Logarithmic for positive values that span much."""
    finite = medians[np.isfinite(medians)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low > 0 and high / low >= LOGARITHMIC:
        return LogNorm(low, high)
    return Normalize(low, high if high > low else low + (abs(low) or 1.0))


def _cells(ax: Axes, median: np.ndarray, norm: Normalize, *, is_written: bool) -> None:
    """Value of every cell; hatches where there is none, a frame around the lowest."""
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    for (i, k), value in np.ndenumerate(median):
        if np.isnan(value):
            ax.add_patch(_cell(i, k, facecolor="0.93", edgecolor="0.6", hatch="////", linewidth=0))
        elif is_written or np.isinf(value):
            color = "white" if np.isfinite(value) and norm(value) > DARK else "black"
            ax.text(k, i, significant(value), ha="center", va="center", fontsize=6, color=color)
    if np.isfinite(median).sum() > 1:
        i, k = np.unravel_index(np.nanargmin(median), median.shape)
        ax.add_patch(_cell(int(i), int(k), fill=False, edgecolor="black", linewidth=1.2, clip_on=False, zorder=3))


def _cell(i: int, k: int, **options: object) -> Rectangle:
    return Rectangle((k - 0.5, i - 0.5), 1.0, 1.0, **options)  # type: ignore[arg-type]


def _label(axes: np.ndarray, sweep: Sweep, pair: tuple[str, str], n: int) -> None:
    """Values along the axes, as many as there is room for; names along the edges of the page."""
    for name, axis, n_beside in ((pair[0], axes[0, 0].xaxis, axes.shape[1]), (pair[1], axes[0, 0].yaxis, 1)):
        values = sweep.cells[name].drop_attrs()
        at = range(0, values.size, math.ceil(values.size * n_beside / MOST_NAMED))
        names = [value_text(values[i]) for i in at]
        axis.set_ticks(list(at), names)
        if axis.axis_name == "x" and max(map(len, names)) * len(names) * n_beside > LINE:
            for ax in axes.flat:
                ax.tick_params(axis="x", labelrotation=90)
    for i, ax in enumerate(axes.flat[:n]):
        has_left, has_bottom = i % axes.shape[1] == 0, i + axes.shape[1] >= n
        ax.tick_params(labelleft=has_left, labelbottom=has_bottom)
        ax.set_ylabel(axis_label(sweep.cells[pair[1]]) if has_left else "")
        ax.set_xlabel(axis_label(sweep.cells[pair[0]]) if has_bottom else "")


def _sentences(sweep: Sweep, metric: str, pair: tuple[str, str]) -> list[str]:
    x, y = (within(name_of(sweep.cells[name])) for name in pair)
    name = name_of(sweep.cells[metric])
    values = sweep.values(metric)
    hatched = "hatched cells have none" if np.isnan(quartiles(values).median).any() else ""
    seeds = f", medians over {sweep.n_seeds} seeds" if sweep.n_seeds > 1 else ""
    lowest = "the lowest of each map" if len(sweep.varied) > 2 else "the lowest"
    missing = missing_text(values, name)
    return [
        f"{about(sweep.output)}{name} over {x} and {y}{seeds}; {lowest} is framed",
        held_text(sweep.held),
        f"{missing}; {hatched}" if missing and hatched else missing,
    ]
