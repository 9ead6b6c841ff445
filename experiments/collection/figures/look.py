"""Look of the figures of a sweep: colours and markers of series, scales of axes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from experiments.collection.figures.sweep import MOST_SERIES, NUMERIC, spread_out
from experiments.collection.figures.wording import value_text
from experiments.studies.style import COLORS, MARKERS, log_labels

#: readable in grey and by the colour-blind (Okabe and Ito, Color universal design)
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7a7a7a")
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "h")
LOGARITHMIC = 3.0  # ratio of the largest value of a metric to the smallest from which on an axis is logarithmic
MARGIN = 0.06  # of an axis beyond the values
LEGEND = 115  # characters beside each other in a legend, with about 8 for each marker and gap
TITLE = 78  # characters of the titles of panels beside each other
POINT: dict[str, Any] = {"markeredgewidth": 0, "linestyle": "none"}


class Look(NamedTuple):
    """Of one series."""

    color: str
    marker: str
    label: str


def looks(parameter: xr.DataArray | None) -> list[Look]:
    """Look of the value of a parameter: criteria have their own, numbers a scale of colours; one look for none."""
    if parameter is None:
        return [Look(PALETTE[0], SHAPES[0], "")]
    values, n = [str(value) for value in parameter.values], parameter.size
    labels = [value_text(parameter[i]) for i in range(n)]
    shapes = [SHAPES[i % len(SHAPES)] for i in range(n)]
    if set(values) <= set(COLORS):
        return [Look(COLORS[value], MARKERS[value], label) for value, label in zip(values, labels, strict=True)]
    if parameter.dtype.kind in NUMERIC:
        colors = [to_hex(color) for color in colormaps["cividis"](np.linspace(0.0, 0.85, n))]
    else:
        colors = [PALETTE[i % len(PALETTE)] for i in range(n)]
    return [Look(*parts) for parts in zip(colors, shapes, labels, strict=True)]


def drawn_series(cells: xr.Dataset, series: str | None) -> list[tuple[dict[str, int], Look]]:
    """Place and look of the values of a parameter, of many a few evenly apart; an empty place for no parameter."""
    if series is None:
        return [({}, looks(None)[0])]
    chosen = spread_out(cells.sizes[series], MOST_SERIES)
    return [({series: k}, look) for k, look in zip(chosen, looks(cells[series][chosen]), strict=True)]


def scale_axis(axis: Axis, values: np.ndarray, ratio: float = LOGARITHMIC, margin: float = MARGIN) -> None:
    """Scale and limits for the finite ones of the values.

    Logarithmic if all are positive and span at least ``ratio``; linear below the smallest positive one if there are
    zeros besides; otherwise linear.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return
    low, high = float(finite.min()), float(finite.max())
    positive = finite[finite > 0]
    if positive.size and low >= 0 and high / positive.min() >= ratio:
        if low > 0:
            _set(axis, "log", low / (high / low) ** margin, high * (high / low) ** margin)
            return label_logarithmic(axis)
        threshold = float(positive.min())
        _set(axis, "symlog", -0.3 * threshold, high * (high / threshold) ** margin, linthresh=threshold, linscale=0.5)
        axis.set_major_formatter("{x:g}")
        return
    beyond = margin * (high - low) or 0.05 * abs(high) or 0.5
    _set(axis, "linear", low - beyond, high + beyond)
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))


def label_logarithmic(axis: Axis) -> None:
    """Ticks of a logarithmic axis whose limits are final, two labelled ones at least."""
    log_labels(axis)
    low, high = axis.get_view_interval()
    if np.sum((axis.get_majorticklocs() >= low) & (axis.get_majorticklocs() <= high)) < 2:
        axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)))


def _set(axis: Axis, scale: str, low: float, high: float, **options: float) -> None:
    ax = axis.axes
    if axis is ax.xaxis:
        ax.set_xscale(scale, **options)
        ax.set_xlim(low, high)
    else:
        ax.set_yscale(scale, **options)
        ax.set_ylim(low, high)


def add_legend(figure: Figure, handles: Sequence[Artist], title: str = "") -> None:
    """Legend below everything, in as few and as even rows as fit the page; none for no entries."""
    if not handles:
        return
    longest = max(len(str(handle.get_label())) for handle in handles)
    n_rows = math.ceil(len(handles) / max(1, LEGEND // (longest + 8)))
    n_columns = math.ceil(len(handles) / n_rows)
    figure.legend(handles=handles, loc="outside lower center", ncols=n_columns, title=title or None)


def mark_infinite(ax: Axes, x: np.ndarray, values: np.ndarray, look: Look) -> None:
    """Triangles at the upper edge where a value is infinite."""
    at = np.asarray(x)[np.isposinf(values)]
    if len(at):
        where = ax.get_xaxis_transform()
        ax.plot(at, np.full(len(at), 0.97), "^", color=look.color, markersize=4, transform=where, fillstyle="none")
