"""Figures of a sweep, one function per kind; each draws a table: a row per job, a column per
parameter and metric.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.collect.read import SEED, Results
from experiments.drawing import style
from experiments.drawing.tables import pool, significant

ERRORS = (
    "smse",
    "smse_stream",
    "rmse",
)  # the first that is known is the error of a figure
COUNT = "n_revised"
COVERAGE = "coverage_95"
FIT = "free_run_fit_percent"
LOOP = "times_loop"
TRIAL = "trial"
NAMES = {
    "smse": "SMSE",
    "rmse": "RMSE",
    COUNT: "Revised points",
    COVERAGE: "95 % coverage",
    FIT: "Free-run fit",
    LOOP: "Loop time",
}
NOMINAL = 0.95  # of a 95 % band
MOST_PANELS = 4
MOST_LINES = 8
MOST_LISTED = 8
# columns of heat maps beside each other up to which values are written in the cells
MOST_WRITTEN = 14
DECADE = 10.0  # ratio of the values of a parameter from which on its axis is logarithmic
POINT: dict[str, Any] = {"linestyle": "none", "markersize": 4, "markeredgewidth": 0}


Names = list[str]
Labels = Mapping[str, str]  # of an axis, by column


def plan_figures(found: Results, dataset: xr.Dataset) -> dict[str, Callable[[], Figure]]:
    """Name the figures of a sweep, each with what draws it; a figure that would show nothing is not
    among them.

    Every output has figures of its own.
    """
    labels = {name: _label(dataset[name]) for name in [*found.parameters, *found.metrics]} | {
        TRIAL: "Trial"
    }
    plan: dict[str, Callable[[], Figure]] = {}
    for output in found.numbers:
        rows = found.select_rows(dataset, output, found.measured)
        known = [name for name in found.metrics if np.isfinite(rows[name]).any()]
        error = next((name for name in [*found.asked, *ERRORS] if name in known), "")
        if not error or len(rows) < 2:
            continue
        n_gaps = int((~np.isfinite(rows[error])).sum())
        gaps = f"{n_gaps} of {len(rows)} jobs have no finite {labels[error]}" if n_gaps else ""
        note = ". ".join(filter(None, [output, gaps, found.timing if found.measured else ""]))
        rows = rows.assign(trial=rows.index)
        varied = [
            name
            for name in found.parameters
            if name in rows and rows[name].nunique(dropna=False) > 1
        ]
        settings = [name for name in varied if name != SEED]
        costs = [name for name in (COUNT, LOOP) if name in known]
        metrics = [name for name in found.asked or (error, FIT, COUNT, COVERAGE) if name in known]
        own: dict[str, Any] = {}
        if "job" in dataset.sizes:
            own["trials"] = partial(draw_points, rows, [TRIAL], [error])
            own |= (
                {f"slices_{error}": partial(draw_points, rows, varied, [error])} if varied else {}
            )
        elif settings:
            texts = [name for name in settings if _is_text(rows[name])]
            x, *others = sorted(settings, key=texts.__contains__)  # numbers first
            own["settings" if x in texts else f"against_{x}"] = partial(
                draw_lines, rows, x, others, metrics
            )
            if others:
                own["heat_map"] = partial(draw_heat_map, rows, x, others[0], others[1:], error)
        else:
            own["over_seeds"] = partial(
                draw_points, rows, [SEED], list(dict.fromkeys([*metrics, *costs]))
            )
        if settings and costs:
            own["pareto_front"] = partial(draw_front, rows, settings, error, costs)
        suffix = f"_{output}" if output else ""
        plan |= {
            name + suffix: partial(draw, labels=labels, note=note) for name, draw in own.items()
        }
    return plan


def draw_lines(
    rows: DataFrame, x: str, others: Names, metrics: Names, labels: Labels, note: str
) -> Figure:
    """Draw medians over the seeds between their quartiles against ``x``, a line per value of
    another parameter.

    Each metric has a row of panels, each combination of the remaining parameters a column. Texts
    have no order: their medians are not joined.
    """
    series = next((name for name in others if _is_text(rows[name])), others[0] if others else "")
    others = [name for name in others if name != series]
    parts = _split(rows, others, labels)
    levels = _levels(rows[x])
    looks = _choose_looks(rows, series)
    height = 1.2 + 1.45 * len(metrics)
    figure, axes = style.page(len(metrics), len(parts), height, sharex=True, sharey="row")
    for (title, part), panels in zip(parts.items(), axes.T, strict=True):
        panels[0].set_title(title)
        panels[-1].set_xlabel(labels[x])
        for ax, metric in zip(panels, metrics, strict=True):
            ax.set_ylabel(labels[metric])
            ax.label_outer()
            at = _place(ax.xaxis, levels)
            values = rows[metric].to_numpy()
            for j, (value, look) in enumerate(looks.items()):
                line = pool(part[part[series] == value] if series else part, [x], [metric]).reindex(
                    levels
                )
                low, median, high = (line[level][metric].to_numpy() for level in (0.25, 0.5, 0.75))
                if _is_text(levels):
                    at = at + 0.1 * min(j, 1)  # beside the one before
                    ax.vlines(at, low, high, color=look["color"], alpha=0.4)
                else:
                    ax.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0)
                ax.plot(
                    at,
                    median,
                    **POINT | look | ({} if _is_text(levels) else {"linestyle": "-"}),
                )
            if metric == COVERAGE:
                ax.axhline(
                    NOMINAL,
                    color=style.BASELINE_COLOR,
                    linestyle="--",
                    linewidth=0.8,
                    zorder=0,
                )
                values = np.append(values, NOMINAL)
            style.scale_axis(ax.yaxis, values)
    n_settings = len(rows[[*others, series]].drop_duplicates()) if series else 1
    n_shown = len(parts) * len(looks)
    hidden = f"{n_shown} of {n_settings} lines have room" if n_shown < n_settings else ""
    return _finish(
        figure,
        labels.get(series, ""),
        note,
        "Medians over the seeds between their quartiles",
        hidden,
    )


def draw_points(rows: DataFrame, xs: Names, metrics: Names, labels: Labels, note: str) -> Figure:
    """Draw metrics of every job over each of ``xs``; over the number of the job with the least so
    far.
    """
    n_columns = min(len(xs), MOST_PANELS)
    n_rows = math.ceil(len(xs) / n_columns) * len(metrics)
    figure, axes = style.page(n_rows, n_columns, 1.0 + 1.9 * n_rows)
    for ax in axes.flat[len(xs) * len(metrics) :]:
        ax.remove()
    for ax, (metric, x) in zip(axes.flat, product(metrics, xs), strict=False):
        ax.plot(
            _place(ax.xaxis, rows[x]),
            rows[metric],
            color=style.BLUE,
            marker="o",
            **POINT,
        )
        style.scale_axis(ax.yaxis, rows[metric].to_numpy())
        if x == TRIAL:
            values = rows[metric].where(np.isfinite(rows[metric]))
            ax.plot(
                rows[x],
                values.cummin().ffill(),
                color=style.ORANGE,
                drawstyle="steps-post",
            )
        ax.set(xlabel=labels[x], ylabel=labels[metric])
    return _finish(figure, "", note, "Line: the least so far" if TRIAL in xs else "")


def draw_heat_map(
    rows: DataFrame,
    x: str,
    y: str,
    others: Names,
    metric: str,
    labels: Labels,
    note: str,
) -> Figure:
    """Draw the median of a metric over two parameters, a map per combination of the others; gaps
    are grey.
    """
    parts = _split(rows, others, labels)
    across = _levels(rows[x])
    up = _levels(rows[y])
    figure, axes = style.page(
        1, len(parts), 1.6 + min(0.7 + 0.24 * len(up), 3.2), sharex=True, sharey=True
    )
    known = pool(rows, [x, y, *others], [metric])[0.5][metric]
    low = known[np.isfinite(known)].min()
    high = known[np.isfinite(known)].max()
    norm = (
        LogNorm(low, high)
        if low > 0 and high / low >= style.MIN_LOGARITHMIC_RATIO
        else Normalize(low, high)
    )
    for ax, (title, part) in zip(axes[0], parts.items(), strict=True):
        medians = (
            pool(part, [y, x], [metric])[0.5][metric].unstack(x).reindex(index=up, columns=across)
        )
        image = ax.imshow(medians, norm=norm, cmap="YlOrBr", aspect="auto", origin="lower")
        ax.set(title=title, xlabel=labels[x], facecolor="0.85")
        ax.set_xticks(
            range(len(across)),
            map(_text, across),
            rotation=90 if len(across) > 6 else 0,
        )
        ax.set_yticks(range(len(up)), map(_text, up))
        ax.grid(visible=False)
        for (i, k), value in np.ndenumerate(
            medians if len(across) * len(parts) <= MOST_WRITTEN else np.empty((0, 0))
        ):
            color = "white" if norm(value) > 0.6 else "black"
            ax.text(
                k,
                i,
                significant(value),
                ha="center",
                va="center",
                fontsize=6,
                color=color,
            )
    axes[0, 0].set_ylabel(labels[y])
    figure.colorbar(image, ax=axes, label=labels[metric], aspect=25, pad=0.01)
    return _finish(figure, "", note, "Medians over the seeds")


def draw_front(
    rows: DataFrame, by: Names, error: str, costs: Names, labels: Labels, note: str
) -> Figure:
    """Draw the median error of each setting against each median cost, and list those that no other
    one beats.
    """
    medians = pool(rows, by, [error, *costs])[0.5].reset_index()
    series = next((name for name in by if _is_text(rows[name])), by[0])
    looks = _choose_looks(rows, series)
    own = [name for name in by if name != series]
    beside = f", beside each: {', '.join(labels[name] for name in own)}" if own else ""
    figure, axes = style.page(1, len(costs), 3.6)
    for ax, cost in zip(axes[0], costs, strict=True):
        ax.plot(
            medians[cost], medians[error], "o", color=style.GREY, markersize=3
        )  # also those without a colour
        for value, look in looks.items():
            ax.plot(cost, error, data=medians[medians[series] == value], **POINT | look)
        front = find_front(medians, error, cost)
        ax.plot(
            front[cost],
            front[error],
            color="black",
            linewidth=0.8,
            drawstyle="steps-post",
            zorder=1,
        )
        for _, row in front.iloc[_spread_out(len(front), MOST_LISTED)].iterrows():
            text = ", ".join(_text(row[name]) for name in own)
            ax.annotate(
                text,
                (row[cost], row[error]),
                (3, 3),
                textcoords="offset points",
                fontsize=5,
            )
        for axis, name in ((ax.xaxis, cost), (ax.yaxis, error)):
            style.scale_axis(axis, medians[name].to_numpy(), margin=0.12)
        ax.set(xlabel=labels[cost], ylabel=labels[error])
    axes[0, -1].legend(title=labels[series])
    return _finish(figure, "", note, f"Line: settings that no other one beats in both{beside}")


def find_front(settings: DataFrame, error: str, cost: str) -> DataFrame:
    """Find the settings that no other one beats in error and cost, by rising cost.

    One beats another if it is at least as good in both and better in one, so that equal settings
    are all on the front or all off it. Settings with a value that is not finite are off it and beat
    none.
    """
    known = settings[np.isfinite(settings[[error, cost]]).all(axis=1)]
    known = known.sort_values([cost, error], kind="stable")
    is_better = known[error] < known[error].cummin().shift(
        fill_value=np.inf
    )  # than all that cost less or as much
    return known[is_better.groupby([known[cost], known[error]]).transform("any")]


def _is_text(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def _levels(column: pd.Series) -> pd.Series:
    """Different values of a parameter: numbers ascending, texts in the order of the command."""
    return column.dropna().drop_duplicates().sort_values()


def _spread_out(n: int, most: int) -> np.ndarray:
    """At most ``most`` of n places, ends included, evenly apart."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def _text(value: Any) -> str:
    return style.LABELS.get(value, value) if isinstance(value, str) else f"{value:.6g}"


def _label(variable: xr.DataArray) -> str:
    """Name of a metric or parameter for people, with its unit."""
    name = str(variable.name)
    unit = variable.attrs.get("units", "")
    words = NAMES.get(name, name[:1].upper() + name[1:].replace("_", " "))
    return f"{words} [{unit}]" if unit else words


def _split(rows: DataFrame, columns: list[str], labels: Labels) -> dict[str, DataFrame]:
    """Split rows by the values of some columns, and give each part a title; at most as many as
    there is room for.
    """
    if not columns:
        return {"": rows}
    parts = {}
    for values, part in rows.groupby(columns, observed=True):
        pairs = zip(columns, values, strict=True)
        parts[",\n".join(f"{labels[name]}: {_text(value)}" for name, value in pairs)] = part
    return dict(list(parts.items())[:MOST_PANELS])


def _choose_looks(rows: DataFrame, series: str) -> dict[Any, dict[str, Any]]:
    """Choose colour and marker of each value of a parameter: criteria have their own."""
    if not series:
        return {"": {"color": style.BLUE, "marker": "o"}}
    levels = _levels(rows[series])
    shown = zip(
        levels.iloc[_spread_out(len(levels), MOST_LINES)],
        style.PALETTE,
        style.SHAPES,
        strict=False,
    )
    looks = [
        (value, style.CRITERION_COLORS.get(value, color), style.CRITERION_MARKERS.get(value, shape))
        for value, color, shape in shown
    ]
    return {
        value: {"color": color, "marker": marker, "label": _text(value)}
        for value, color, marker in looks
    }


def _place(axis: Axis, column: pd.Series) -> np.ndarray:
    """Place values along an axis and choose its scale: numbers as they are, texts side by side."""
    if not _is_text(column):
        style.scale_axis(axis, column.to_numpy(dtype=float), DECADE)
        return column.to_numpy(dtype=float)
    texts = [fill(_text(text), 13) for text in column.cat.categories]
    axis.set_ticks(range(len(texts)), texts, rotation=90 if len(texts) > 3 else 0)
    return column.cat.codes.to_numpy(dtype=float)


def _finish(figure: Figure, title: str, *sentences: str) -> Figure:
    """Add the legend of the series, and sentences above the figure."""
    if title:
        handles, _ = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles=handles, title=title, loc="outside lower center", ncols=4)
    text = " ".join(f"{sentence}." for sentence in sentences if sentence)
    figure.suptitle(fill(text, 112), x=0.01, ha="left", fontsize=7.5)
    return figure
