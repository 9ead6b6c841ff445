"""Pareto fronts: the error against what it costs, every setting a point, those on the front joined and listed."""

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D

from experiments.collection.figures.dominance import non_dominated
from experiments.collection.figures.look import POINT, Look, add_legend, looks, scale_axis
from experiments.collection.figures.settings import Settings
from experiments.collection.figures.sweep import MOST_SERIES, spread_out
from experiments.collection.figures.wording import about, axis_label, headline, name_of, number_text, value_text, within
from experiments.collection.figures.wording import listed as words
from experiments.studies.style import SETTINGS, WIDTH

MOST_LISTED = 8  # settings of a front that are numbered and listed
LONGEST = 44, 110  # characters of a setting in a list of half the page's width, and of all of it
DIGITS = 4  # of the parameters in a list
ROW = 0.135  # inch, of a list
FRONT: dict[str, Any] = {"color": "#000000", "linewidth": 0.8, "zorder": 1}
WHISKER: dict[str, Any] = {"color": "0.45", "linewidth": 0.7, "zorder": 2}
ROOM = 0.12  # of an axis beyond the values, for the numbers
APART = np.array([0.035, 0.04])  # between two numbers, of the axes
#: from a point to its number, of the axes, the nearest first
STEPS = [k * np.array(step) for k in range(1, 7) for step in ((-0.025, -0.035), (0.0, -0.045), (-0.04, 0.0))]


def front_of(settings: Settings, error: str, cost: str) -> np.ndarray:
    """Settings whose median cost and error no other setting beats, by rising cost; only those with both finite."""
    x, y = (settings.quartiles(name).median for name in (cost, error))
    known = np.isfinite(x) & np.isfinite(y)
    x_less, y_less = settings.sign(cost) * x, settings.sign(error) * y
    front = np.flatnonzero(non_dominated(np.where(known, x_less, np.nan), np.where(known, y_less, np.nan)))
    return front[np.lexsort((front, y[front], x[front]))]


@rc_context(SETTINGS)
def draw(
    settings: Settings, variables: xr.Dataset, error: str, costs: Sequence[str], output: str, *sentences: str
) -> Figure:
    """Median error against each median cost, each as the search goes; below each panel the settings of its front."""
    fronts = [front_of(settings, error, cost) for cost in costs]
    listed = [front[spread_out(len(front), MOST_LISTED)] for front in fronts]
    longest = max(len(setting_text(settings, i)) for chosen in listed for i in chosen)
    head = len(_parameters_text(settings)) + len(name_of(variables[error]))
    beside = max(longest, head - 6) <= LONGEST[0] or len(costs) == 1
    width = LONGEST[0 if beside and len(costs) > 1 else 1]
    n_rows = [2 + len(chosen) for chosen in listed]
    if beside:
        n_rows = [max(n_rows)] * len(n_rows)
    figure, panels, lists = _page(n_rows, beside=beside)
    series, hollow = _distinguished(settings)
    for i, (ax, below, cost) in enumerate(zip(panels, lists, costs, strict=True)):
        _points(ax, settings, error, cost, series, hollow)
        _front(ax, settings, error, cost, fronts[i], listed[i])
        _list(below, settings, variables, (error, cost), listed[i], len(fronts[i]), n_rows[i], width)
        ax.set_xlabel(axis_label(variables[cost]))
        ax.set_ylabel(axis_label(variables[error]) if i == 0 else "")
    add_legend(figure, _legend(settings, series, hollow))
    headline(figure, *_sentences(settings, variables, error, costs, output), *sentences)
    return figure


def _sentences(
    settings: Settings, variables: xr.Dataset, error: str, costs: Sequence[str], output: str
) -> tuple[str, str]:
    """What is shown, and what the line is."""
    n_seeds = settings.metrics[error].shape[1]
    pooled = f", medians over {n_seeds} seeds" if n_seeds > 1 else ""
    against = words([within(name_of(variables[cost])) for cost in costs])
    whiskers = ", whiskers between their quartiles" if n_seeds > 1 else ""
    maximised = [within(name_of(variables[name])) for name in (error, *costs) if settings.sign(name) < 0]
    more = f" (more {words(maximised)} is better)" if maximised else ""
    return (
        f"{about(output)}{name_of(variables[error])} against {against} of {settings.size} settings{pooled}",
        f"Line: the settings that no other one beats in both{more}{whiskers}",
    )


def setting_text(settings: Settings, i: int) -> str:
    """Values of the varied parameters of a setting."""
    parts = (
        within(value_text(values[settings.place[name][i]], DIGITS)) for name, values in settings.parameters.items()
    )
    return ", ".join(part or "\u2013" for part in parts)


def _parameters_text(settings: Settings) -> str:
    """Names of the varied parameters."""
    names = ", ".join(within(name_of(values)) for values in settings.parameters.values())
    return names[:1].upper() + names[1:]


def _page(n_rows: list[int], *, beside: bool) -> tuple[Figure, list[Axes], list[Axes]]:
    """Panels beside each other, their lists beside each other too or below each other."""
    n, heights = len(n_rows), [ROW * count for count in n_rows[: 1 if beside else None]]
    figure = Figure(figsize=(WIDTH, 3.9 + sum(heights)), layout="constrained")
    grid = GridSpec(1 + len(heights), n, figure=figure, height_ratios=[2.9, *heights])
    panels = [figure.add_subplot(grid[0, i]) for i in range(n)]
    lists = [figure.add_subplot(grid[1, i] if beside else grid[1 + i, :]) for i in range(n)]
    for ax in panels:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3, linewidth=0.4)
    for ax in lists:
        ax.set_axis_off()
    return figure, panels, lists


def _distinguished(settings: Settings) -> tuple[str | None, str | None]:
    """Parameter that colours tell, and one with two values that fillings tell."""
    sizes = {name: values.size for name, values in settings.parameters.items() if 1 < values.size <= MOST_SERIES}
    texts = [name for name in sizes if settings.parameters[name].dtype.kind not in "iuf"]
    series = next(iter([*texts, *sizes]), None)
    return series, next((name for name, size in sizes.items() if size == 2 and name != series), None)


def _points(ax: Axes, settings: Settings, error: str, cost: str, series: str | None, hollow: str | None) -> None:
    """Median of every setting, those on the second value of ``hollow`` hollow."""
    x, y = (settings.quartiles(name).median for name in (cost, error))
    code = np.zeros(settings.size, dtype=int) if series is None else settings.place[series]
    is_hollow = np.zeros(settings.size, dtype=bool) if hollow is None else settings.place[hollow] == 1
    for k, look in enumerate(looks(None if series is None else settings.parameters[series])):
        for which, style in ((~is_hollow, filled(look)), (is_hollow, outlined(look))):
            chosen = (code == k) & which
            ax.plot(x[chosen], y[chosen], zorder=3, **style)


def filled(look: Look) -> dict[str, Any]:
    """Marker of a setting."""
    return {**POINT, "marker": look.marker, "color": look.color, "markersize": 4.0}


def outlined(look: Look) -> dict[str, Any]:
    """The same, hollow."""
    return {**filled(look), "markerfacecolor": "none", "markeredgewidth": 0.8}


def _front(ax: Axes, settings: Settings, error: str, cost: str, front: np.ndarray, listed: np.ndarray) -> None:
    """Step line through the front, quartiles and numbers at its settings."""
    x, y = settings.quartiles(cost), settings.quartiles(error)
    side = "steps-post" if settings.sign(cost) > 0 else "steps-pre"  # between two settings: what the worse cost buys
    ax.plot(x.median[front], y.median[front], drawstyle=side, **FRONT)
    ax.hlines(y.median[front], x.low[front], x.high[front], **WHISKER)
    ax.vlines(x.median[front], y.low[front], y.high[front], **WHISKER)
    for axis, found in ((ax.xaxis, x), (ax.yaxis, y)):
        known = np.isfinite(x.median) & np.isfinite(y.median)
        scale_axis(axis, np.concatenate([found.median[known], found.low[front], found.high[front]]), margin=ROOM)
    numbers: dict[tuple[float, float], list[str]] = {}  # ties share a place
    for number, i in enumerate(listed, start=1):
        numbers.setdefault((x.median[i], y.median[i]), []).append(str(number))
    _write(ax, {at: ",".join(texts) for at, texts in numbers.items()})


def _write(ax: Axes, texts: Mapping[tuple[float, float], str]) -> None:
    """Numbers beside their points, on the side where no setting is; where it is crowded further out, with a line."""
    taken: list[np.ndarray] = []
    for point, text in texts.items():
        place = ax.transLimits.transform(ax.transScale.transform(point))
        clear = (place + step for step in STEPS if all(np.any(abs(place + step - other) > APART) for other in taken))
        at = next(clear, place + STEPS[0])
        taken.append(at)
        is_far = np.any(at != place + STEPS[0])
        arrow = {"arrowstyle": "-", "linewidth": 0.4, "color": "0.5", "shrinkA": 1.0, "shrinkB": 1.0}
        ax.annotate(
            text,
            point,
            tuple(at),
            textcoords="axes fraction",
            arrowprops=arrow if is_far else None,
            ha="center",
            va="center",
            fontsize=6.5,
        )


def _list(
    ax: Axes,
    settings: Settings,
    variables: xr.Dataset,
    quantities: tuple[str, str],
    listed: np.ndarray,
    n_front: int,
    n_rows: int,
    width: int,
) -> None:
    """Numbered settings with their medians."""
    rows = [("", _parameters_text(settings), *(name_of(variables[name]) for name in quantities))]
    for number, i in enumerate(listed, start=1):
        medians = (number_text(float(settings.quartiles(name).median[i]), name) for name in quantities)
        rows.append((str(number), setting_text(settings, i), *medians))
    if len(listed) < n_front:
        rows.append(("", f"and {n_front - len(listed)} more between them", "", ""))
    for i, cells in enumerate(rows):
        texts = (cells[0], shorten(cells[1], width, placeholder=" \u2026"), *cells[2:])
        for x, text, side in zip((0.02, 0.04, 0.765, 1.0), texts, ("right", "left", "right", "right"), strict=True):
            where: dict[str, Any] = {"transform": ax.transAxes, "ha": side, "va": "top", "fontsize": 6}
            ax.text(x, 1.0 - i / n_rows, text, color="0.35" if i == 0 else "black", **where)


def _legend(settings: Settings, series: str | None, hollow: str | None) -> list[Line2D]:
    """Colours, then fillings."""
    if series is None:
        return []
    found = looks(settings.parameters[series])
    handles = [Line2D([], [], label=look.label, **filled(look)) for look in found]
    if hollow is not None:
        name, values = within(name_of(settings.parameters[hollow])), settings.parameters[hollow]
        grey = Look("0.3", "o", "")
        for style, value in zip((filled(grey), outlined(grey)), values, strict=True):
            handles.append(Line2D([], [], label=f"{name}: {value_text(value)}", **style))
    return handles
