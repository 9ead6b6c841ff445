"""Figures of a sweep, one function per kind of figure.

Each function draws a table that has a row per job and a column per parameter and metric.
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
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.collect.read import SEED, Results
from experiments.drawing import style
from experiments.drawing.tables import pool, significant

# A figure shows the first of these errors that the jobs have.
ERROR_METRICS = (
    "smse",
    "smse_stream",
    "rmse",
)
REVISED_METRIC = "n_revised"
COVERAGE_METRIC = "coverage_95"
FIT_METRIC = "free_run_fit_percent"
LOOP_METRIC = "times_loop"
TRIAL = "trial"  # column with the number of the job
METRIC_TITLES = {
    "smse": "SMSE",
    "rmse": "RMSE",
    REVISED_METRIC: "Revised points",
    COVERAGE_METRIC: "95 % coverage",
    FIT_METRIC: "Free-run fit",
    LOOP_METRIC: "Loop time",
}
PARAMETER_TITLES = {"snr_db": "SNR [dB]"}
ACRONYMS = {"smse", "rmse", "nrmse", "nlpd", "msll"}  # first words of names that are no words
# Groups of parameters that state what is to be identified. Models of other plants or records do not
# compete with each other.
TASK_GROUPS = {
    "control_task",
    "controller",
    "data",
    "duration",
    "excitation",
    "function",
    "noise",
    "sampling",
    "system",
    "weather",
}
NOMINAL_COVERAGE = 0.95  # of a 95 % band
MAX_SWEEP_PANELS = 4  # panels side by side
MAX_PANEL_LINES = 8  # lines in a panel; the palette has this number of colours
MAX_FRONT_LABELS = 8  # settings on the Pareto front that have a label
# Heat maps with at most this number of columns, all maps together, have values in their cells.
MAX_WRITTEN_COLUMNS = 14
# A parameter whose largest and smallest values have at least this ratio has a logarithmic axis.
MIN_LOG_RATIO = 10.0
MARK_STYLE: dict[str, Any] = {"linestyle": "none", "markersize": 4, "markeredgewidth": 0}


Names = list[str]
Labels = Mapping[str, str]  # axis label of each column


def plan_figures(found: Results, dataset: xr.Dataset) -> dict[str, Callable[[], Figure]]:
    """Return the figures of a sweep by name, each as a function that draws it.

    Figures without data are left out. Every output has its own figures.
    """
    labels = label_columns(found, dataset)
    labels[TRIAL] = "Trial"
    plan: dict[str, Callable[[], Figure]] = {}
    for output in found.numbers:
        rows = found.select_rows(dataset, output, found.measured)
        known = [name for name in found.metrics if np.isfinite(rows[name]).any()]
        error = next(
            (name for name in [*found.chosen_metrics, *ERROR_METRICS] if name in known), ""
        )
        if not error or len(rows) < 2:
            continue
        note = _write_note(output, rows[error], labels[error])
        rows = rows.assign(trial=rows.index)
        figures = _plan_output(found, "job" in dataset.sizes, rows, known, error)
        suffix = f"_{output}" if output else ""
        for name, (draw, drawn) in figures.items():
            has_times = bool({*drawn} & {*found.measured})
            sentences = [note, found.timing if has_times else ""]
            text = ". ".join(filter(None, sentences))
            plan[name + suffix] = partial(draw, labels=labels, note=text)
    return plan


def _write_note(output: str, errors: pd.Series, label: str) -> str:
    """Return what all figures of an output state: its name, and gaps."""
    sentences = [output]
    n_gaps = int((~np.isfinite(errors)).sum())
    if n_gaps:
        sentences.append(f"{n_gaps} of {len(errors)} jobs have no finite {label}")
    return ". ".join(filter(None, sentences))


def _plan_output(
    found: Results, is_list: bool, rows: DataFrame, known: Names, error: str
) -> dict[str, Any]:
    """Return the figures of one output by name, without labels and note, and the metrics drawn.

    ``is_list`` states that the jobs do not form a grid of parameters.
    """
    varied = [
        name for name in found.parameters if name in rows and rows[name].nunique(dropna=False) > 1
    ]
    settings = [name for name in varied if name != SEED]
    costs = [name for name in (REVISED_METRIC, LOOP_METRIC) if name in known]
    headline = found.chosen_metrics or (error, FIT_METRIC, REVISED_METRIC, COVERAGE_METRIC)
    metrics = [name for name in headline if name in known]
    figures: dict[str, Any] = {}
    if is_list:
        figures["trials"] = (partial(draw_points, rows, [TRIAL], [error]), [error])
        if varied:
            figures[f"slices_{error}"] = partial(draw_points, rows, varied, [error]), [error]
    elif settings:
        texts = [name for name in settings if _is_text(rows[name])]
        numbers = [name for name in settings if name not in texts]
        x, *others = [*numbers, *texts]
        name = f"against_{x}" if numbers else "settings"
        figures[name] = partial(draw_lines, rows, x, others, metrics), metrics
        if others:
            heat_map = partial(draw_heat_map, rows, x, others[0], others[1:], error)
            figures["heat_map"] = heat_map, [error]
    else:
        shown = list(dict.fromkeys([*metrics, *costs]))
        figures["over_seeds"] = partial(draw_points, rows, [SEED], shown), shown
    if settings and costs:
        tasks = [name for name in settings if is_of_task(found.parameters[name])]
        front = partial(draw_front, rows, settings, tasks, error, costs)
        figures["pareto_front"] = front, [error, *costs]
    return figures


def draw_lines(
    rows: DataFrame, x: str, others: Names, metrics: Names, labels: Labels, note: str
) -> Figure:
    """Draw medians over the seeds between their quartiles against ``x``.

    Each metric has a row of panels. Another parameter, preferably one with texts, has a line for
    each of its values; each combination of the remaining parameters has a column of panels. Texts
    have no order: their medians are not joined.
    """
    series = choose_series(rows, others) if others else ""
    others = [name for name in others if name != series]
    parts = _split(rows, others, labels)
    levels = _levels(rows[x])
    marks_by_value = choose_marks(rows, series)
    height = 1.2 + 1.45 * len(metrics)
    figure, axes = style.page(len(metrics), len(parts), height, sharex=True, sharey="row")
    for (title, part), panels in zip(parts.items(), axes.T, strict=True):
        panels[0].set_title(title)
        panels[-1].set_xlabel(labels[x])
        for ax, metric in zip(panels, metrics, strict=True):
            ax.set_ylabel(labels[metric])
            ax.label_outer()
            _draw_medians(ax, part, x, levels, metric, series, marks_by_value)
            values = rows[metric].to_numpy()
            if metric == COVERAGE_METRIC:
                ax.axhline(
                    NOMINAL_COVERAGE,
                    color=style.BASELINE_COLOR,
                    linestyle="--",
                    linewidth=0.8,
                    zorder=0,
                )
                values = np.append(values, NOMINAL_COVERAGE)
            style.scale_axis(ax.yaxis, values)
    between = " between their quartiles" if _is_pooled(rows, [x, *others, series]) else ""
    n_settings = len(rows[[*others, series]].drop_duplicates()) if series else 1
    n_shown = len(parts) * len(marks_by_value)
    hidden = f"{n_shown} of {n_settings} lines are shown" if n_shown < n_settings else ""
    return _finish(
        figure,
        labels.get(series, ""),
        note,
        _describe_pooling(rows, [x, *others, series]) + between,
        hidden,
        f"Dashed: {100 * NOMINAL_COVERAGE:g} %" if COVERAGE_METRIC in metrics else "",
    )


def _draw_medians(
    ax: Axes,
    part: DataFrame,
    x: str,
    levels: pd.Series,
    metric: str,
    series: str,
    marks_by_value: dict[Any, dict[str, Any]],
) -> None:
    """Draw the medians and quartiles of a metric into a panel, a line per value of ``series``."""
    is_text = _is_text(levels)
    at = _positions_on(ax.xaxis, levels)
    quartiles = []
    for value in marks_by_value:
        chosen = part[part[series] == value] if series else part
        line = pool(chosen, [x], [metric]).reindex(levels)
        quartiles.append([line[level][metric].to_numpy() for level in (0.25, 0.5, 0.75)])
    covers = style.count_covers([median[:, np.newaxis] for _, median, _ in quartiles])
    for j, mark in enumerate(marks_by_value.values()):
        low, median, high = quartiles[j]
        if is_text:
            if j > 0:
                at = at + 0.1  # beside the marks of the value before
            ax.vlines(at, low, high, color=mark["color"], alpha=0.4)
        else:
            ax.fill_between(at, low, high, color=mark["color"], alpha=0.15, linewidth=0)
        marks = MARK_STYLE | mark
        if is_text:
            ax.plot(at, median, **marks)
            continue
        marks["linestyle"] = "-"
        (drawn,) = ax.plot(at, median, **marks)
        drawn.set_markersize(drawn.get_markersize() + style.COVERED_MARK_GROWTH * covers[j])
        drawn.set_linewidth(drawn.get_linewidth() + style.COVERED_LINE_GROWTH * covers[j])


def draw_points(rows: DataFrame, xs: Names, metrics: Names, labels: Labels, note: str) -> Figure:
    """Draw metrics of every job against each column of ``xs``.

    Against the number of the job, a line shows the smallest value so far.
    """
    n_columns = min(len(xs), MAX_SWEEP_PANELS)
    n_panels = len(xs) * len(metrics)
    n_rows = math.ceil(len(xs) / n_columns) * len(metrics)
    figure, axes = style.page(n_rows, n_columns, 1.0 + 1.9 * n_rows)
    for ax in axes.flat[n_panels:]:
        ax.remove()
    for ax, (metric, x) in zip(axes.flat[:n_panels], product(metrics, xs), strict=True):
        ax.plot(
            _positions_on(ax.xaxis, rows[x]),
            rows[metric],
            color=style.BLUE,
            marker="o",
            **MARK_STYLE,
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
    meaning_of_line = "Line: the smallest value so far" if TRIAL in xs else ""
    return _finish(figure, "", note, meaning_of_line)


def draw_heat_map(
    rows: DataFrame,
    x: str,
    y: str,
    others: Names,
    metric: str,
    labels: Labels,
    note: str,
) -> Figure:
    """Draw the median of a metric over two parameters, a map per combination of the others.

    Cells without a job are grey.
    """
    parts = _split(rows, others, labels)
    across = _levels(rows[x])
    up = _levels(rows[y])
    height = 1.6 + min(0.7 + 0.24 * len(up), 3.2)
    figure, axes = style.page(1, len(parts), height, sharex=True, sharey=True)
    medians = pool(rows, [x, y, *others], [metric])[0.5][metric]
    norm = _scale_colors(medians[np.isfinite(medians)])
    has_values = len(across) * len(parts) <= MAX_WRITTEN_COLUMNS
    for ax, (title, part) in zip(axes[0], parts.items(), strict=True):
        cells = pool(part, [y, x], [metric])[0.5][metric].unstack(x)
        cells = cells.reindex(index=up, columns=across)
        image = ax.imshow(cells, norm=norm, cmap="YlOrBr", aspect="auto", origin="lower")
        ax.set(title=title, xlabel=labels[x], facecolor="0.85")
        rotation = 90 if len(across) > 6 else 0
        ax.set_xticks(range(len(across)), map(_text, across), rotation=rotation)
        ax.set_yticks(range(len(up)), map(_text, up))
        ax.grid(visible=False)
        if has_values:
            _write_cells(ax, cells, norm)
    axes[0, 0].set_ylabel(labels[y])
    figure.colorbar(image, ax=axes, label=labels[metric], aspect=25, pad=0.01)
    return _finish(figure, "", note, _describe_pooling(rows, [x, y, *others]))


def _is_pooled(rows: DataFrame, by: Names) -> bool:
    """Whether several jobs agree in these parameters, so that their medians are drawn."""
    return bool(rows.duplicated([name for name in by if name]).any())


def _describe_pooling(rows: DataFrame, by: Names) -> str:
    """Return what is drawn for each combination of these parameters."""
    if not _is_pooled(rows, by):
        return "A value for each job"
    n_seeds = rows[SEED].nunique() if SEED in rows else 0
    return f"Medians over {n_seeds} seeds" if n_seeds > 1 else "Medians over the jobs"


def _scale_colors(values: pd.Series) -> Normalize:
    """Return the scale of colours: logarithmic for positive values with a large ratio."""
    low = values.min()
    high = values.max()
    if low > 0 and high / low >= style.MIN_LOGARITHMIC_RATIO:
        return LogNorm(low, high)
    return Normalize(low, high)


def _write_cells(ax: Axes, cells: DataFrame, norm: Normalize) -> None:
    """Write the value of every cell of a heat map into it, white where the cell is dark."""
    for (i, k), value in np.ndenumerate(cells):
        ax.text(
            k,
            i,
            significant(value),
            ha="center",
            va="center",
            fontsize=6,
            color="white" if norm(value) > 0.6 else "black",
        )


def is_of_task(key: str) -> bool:
    """Return whether a parameter with this configuration key states what is to be identified."""
    return key.partition(".")[0] in TASK_GROUPS


def draw_front(
    rows: DataFrame,
    by: Names,
    tasks: Names,
    error: str,
    costs: Names,
    labels: Labels,
    note: str,
) -> Figure:
    """Draw the median error of each setting against each of its median costs.

    The settings that no other one beats in error and cost are joined by a line and labelled. Those
    of different tasks do not compete: each combination of the parameters `tasks` has a line.
    """
    medians = pool(rows, by, [error, *costs])[0.5].reset_index()
    series = choose_series(rows, by)
    marks_by_value = choose_marks(rows, series)
    others = [name for name in by if name != series]
    beside = f", beside each: {', '.join(labels[name] for name in others)}" if others else ""
    figure, axes = style.page(1, len(costs), 3.6)
    for ax, cost in zip(axes[0], costs, strict=True):
        # All settings are grey marks; those that have a colour are drawn over them.
        ax.plot(medians[cost], medians[error], "o", color=style.GREY, markersize=3)
        drawn = [medians[medians[series] == value] for value in marks_by_value]
        covers = style.count_covers([rows_of[[cost, error]].to_numpy() for rows_of in drawn])
        for rows_of, mark, n_covers in zip(drawn, marks_by_value.values(), covers, strict=True):
            marks = MARK_STYLE | mark
            marks["markersize"] += style.COVERED_MARK_GROWTH * n_covers
            ax.plot(cost, error, data=rows_of, **marks)
        parts = (
            [part for _, part in medians.groupby(tasks, observed=True, dropna=False)]
            if tasks
            else [medians]
        )
        fronts = [find_front(part, error, cost) for part in parts]
        for front in fronts:
            ax.plot(
                front[cost],
                front[error],
                color="black",
                linewidth=0.8,
                drawstyle="steps-post",
                zorder=1,
            )
        front = pd.concat(fronts)
        for _, row in front.iloc[_spread_out(len(front), MAX_FRONT_LABELS)].iterrows():
            text = ", ".join(_text(row[name]) for name in others)
            ax.annotate(
                text,
                (row[cost], row[error]),
                (3, 3),
                textcoords="offset points",
                fontsize=5,
            )
        style.scale_axis(ax.xaxis, medians[cost].to_numpy(), margin=0.12)
        style.scale_axis(ax.yaxis, medians[error].to_numpy(), margin=0.12)
        ax.set(xlabel=labels[cost], ylabel=labels[error])
    axes[0, -1].legend(title=labels[series])
    pooling = _describe_pooling(rows, by)
    of_task = f" with the same {' and '.join(labels[name] for name in tasks)}" if tasks else ""
    meaning_of_line = f"Line: settings that no other one{of_task} beats in both{beside}"
    return _finish(figure, "", note, pooling, meaning_of_line)


def find_front(settings: DataFrame, error: str, cost: str) -> DataFrame:
    """Return the settings that no other one beats in error and cost, by rising cost.

    A setting beats another if it is at least as good in both and better in one, so that equal
    settings are all on the front or all off it. Settings with a value that is not finite are not on
    the front, and beat none.
    """
    known = settings[np.isfinite(settings[[error, cost]]).all(axis=1)]
    known = known.sort_values([cost, error], kind="stable")
    # The smallest error of all settings before, which cost less or the same.
    smallest_before = known[error].cummin().shift(fill_value=np.inf)
    is_better = known[error] < smallest_before
    return known[is_better.groupby([known[cost], known[error]]).transform("any")]


def _is_text(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def _levels(column: pd.Series) -> pd.Series:
    """Return the different values of a parameter: numbers ascending, texts in their own order."""
    return column.dropna().drop_duplicates().sort_values()


def _spread_out(n: int, max_indices: int) -> np.ndarray:
    """Return at most ``max_indices`` of the indices below n, evenly spaced, with both ends."""
    return np.unique(np.linspace(0, n - 1, min(n, max_indices)).round().astype(int))


def _text(value: Any) -> str:
    """Return a number, or the label of a text, as it is shown in figures."""
    if isinstance(value, bool | np.bool_):
        return yes_or_no(value)
    return style.LABELS.get(value, value) if isinstance(value, str) else f"{value:.6g}"


def yes_or_no(value: Any) -> str:
    """Return a boolean as a command line has it: true or false."""
    return "true" if value else "false"


def label_columns(found: Results, dataset: xr.Dataset) -> dict[str, str]:
    """Return the title of every parameter and metric, with its unit if it has one."""
    return {name: _label(dataset[name]) for name in [*found.parameters, *found.metrics]}


def _label(variable: xr.DataArray) -> str:
    """Return the title of a metric or parameter, with its unit."""
    name = str(variable.name)
    unit = variable.attrs.get("units", "")
    first, *others = name.split("_")
    first = first.upper() if first in ACRONYMS else first[:1].upper() + first[1:]
    if name in PARAMETER_TITLES:
        return PARAMETER_TITLES[name]
    title = METRIC_TITLES.get(name, " ".join([first, *others]))
    return f"{title} [{style.shown_unit(unit)}]" if unit else title


def _split(rows: DataFrame, columns: list[str], labels: Labels) -> dict[str, DataFrame]:
    """Split rows by the values of some columns; return the parts by title.

    Only the first parts are returned, one for each panel that has room.
    """
    if not columns:
        return {"": rows}
    parts = {}
    for values, part in rows.groupby(columns, observed=True):
        pairs = zip(columns, values, strict=True)
        title = ",\n".join(f"{labels[name]}: {_text(value)}" for name, value in pairs)
        parts[title] = part
    return dict(list(parts.items())[:MAX_SWEEP_PANELS])


def choose_series(rows: DataFrame, names: Names) -> str:
    """Return the parameter whose values have colours: the first one with texts, else the first."""
    return next((name for name in names if _is_text(rows[name])), names[0])


def choose_marks(rows: DataFrame, series: str) -> dict[Any, dict[str, Any]]:
    """Choose colour, marker and label of each value of a parameter; criteria have fixed ones."""
    if not series:
        return {"": {"color": style.BLUE, "marker": "o"}}
    levels = _levels(rows[series])
    values = levels.iloc[_spread_out(len(levels), MAX_PANEL_LINES)]
    marks_by_value = {}
    colors = style.PALETTE[: len(values)]
    shapes = style.SHAPES[: len(values)]
    for value, color, shape in zip(values, colors, shapes, strict=True):
        marks_by_value[value] = {
            "color": style.CRITERION_COLORS.get(value, color),
            "marker": style.CRITERION_MARKERS.get(value, shape),
            "label": _text(value),
        }
    return marks_by_value


def _positions_on(axis: Axis, column: pd.Series) -> np.ndarray:
    """Return the positions of values along an axis, and choose its scale.

    Numbers are their own position; texts are placed side by side.
    """
    if not _is_text(column):
        values = column.to_numpy(dtype=float)
        style.scale_axis(axis, values, MIN_LOG_RATIO)
        return values
    texts = [fill(_text(text), 13) for text in column.cat.categories]
    axis.set_ticks(range(len(texts)), texts, rotation=90 if len(texts) > 3 else 0)
    return column.cat.codes.to_numpy(dtype=float)


def _finish(figure: Figure, title: str, *sentences: str) -> Figure:
    """Add the legend of the series below the figure, and sentences above it."""
    if title:
        handles, _ = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles=handles, title=title, loc="outside lower center", ncols=4)
    text = " ".join(f"{sentence}." for sentence in sentences if sentence)
    figure.suptitle(fill(text, 112), x=0.01, ha="left", fontsize=7.5)
    return figure
