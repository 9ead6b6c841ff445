"""The page of a sweep: how its jobs ended, and all their numbers to filter, select and sort."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import xarray as xr

from experiments.collect.figures import (
    COVERAGE_METRIC,
    ERROR_METRICS,
    FIT_METRIC,
    LOOP_METRIC,
    REVISED_METRIC,
    choose_marks,
    choose_series,
    label_columns,
    yes_or_no,
)
from experiments.collect.read import HOW_TO_RESUME, SEED, Results
from experiments.drawing import page
from experiments.drawing.tables import pool, shown_unit
from sysid.store import package_versions

# A parameter with at most this number of different values has a list; others have a slider.
MAX_LISTED_VALUES = 12
MAX_PAGE_NUMBERS = 150_000  # numbers of all jobs together on a page
MAX_TABLE_METRICS = 6  # metrics in the table of the jobs
#: Entry of a list that lets all values pass; `sweep.js` compares with it.
ANY_VALUE = "all"
#: Style sheet that gives widgets and tables the colours of the page.
WIDGET_CSS = Path(__file__).with_name("sweep.css").read_text(encoding="utf-8")
#: Script that shows the jobs that all lists and sliders let pass, over the chosen axes.
FILTER_SCRIPT = Path(__file__).with_name("sweep.js").read_text(encoding="utf-8")
WIDGET_WIDTH = 170  # pixels
#: Shapes of Bokeh, by those of matplotlib.
BOKEH_MARKERS = {
    "o": "circle",
    "s": "square",
    "^": "triangle",
    "D": "diamond",
    "v": "inverted_triangle",
    "P": "plus",
    "X": "x",
    "h": "hex",
}
# the columns that all marks of the figure show; the lists of the axes fill them
SHOWN_X = "shown x"
SHOWN_Y = "shown y"


def write_sweep(found: Results, dataset: xr.Dataset, counted: str, folder: Path) -> Path:
    """Write the page of a sweep, and return its path.

    Parameters
    ----------
    found, dataset
        Results and data set of `experiments.collect.read`.
    counted
        Sentence about how many jobs ended how.
    folder
        Folder of the page.

    Raises
    ------
    sysid.StoreError
        The page cannot be written.
    """
    rows = page_rows(found, folder)
    labels = label_columns(found, dataset) | {"output": "Output"}
    labels |= {name: _name_of(dataset[name]) for name in found.parameters}
    known = [name for name in found.metrics if rows[name].nunique() > 1]
    metrics = _choose_metrics(found, known, len(rows))
    swept = [*found.parameters]
    if found.outputs:
        swept.append("output")
    done = rows[rows["status"] == "done"]
    figures = {}
    caption = ""
    if metrics:
        shown = done.reset_index(drop=True)
        figures = draw_jobs(shown, swept, metrics, labels)
        caption = _describe_marks(shown, swept, labels)
    pictures, pictures_left_out = page.read_pictures(folder)
    error = _choose_error(found, known, done)
    best = None
    unit = ""
    title = ""
    if error is not None:
        best = _describe_best(done, error, swept)
        title = labels[error].partition(" [")[0]
        unit = dataset[error].attrs.get("units", "")
    versions = {"package_versions": package_versions()}
    origin = page.read_origin(found.sweep.folder, versions, "sweep.*")
    origin["facts"] = {
        "sysid": found.sweep.version,
        "code": found.sweep.code,
        "swept": ", ".join(found.sweep.swept),
    }
    return page.write(
        folder / page.PAGE_FILE,
        Path(__file__).with_name("sweep.html"),
        figures,
        title=f"Sweep of sysid-{found.sweep.command}",
        counted=counted,
        problems=_list_problems(found),
        again=HOW_TO_RESUME,
        error=title,
        best=best,
        caption=caption,
        pictures=pictures,
        pictures_left_out=pictures_left_out,
        unfinished_times=bool({*metrics[:MAX_TABLE_METRICS]} & {*found.measured})
        and not bool(done["timed"].all()),
        unit=unit,
        left_out=[labels[name] for name in known if name not in metrics],
        timing=found.timing if {*metrics} & {*found.measured} else "",
        origin=origin,
    )


def page_rows(found: Results, folder: Path) -> pd.DataFrame:
    """Return a row for each job and output: status, parameters, metrics, and its link.

    Times that cannot be compared are nan.
    """
    rows = pd.concat(
        [found.jobs.join(numbers).assign(output=name) for name, numbers in found.numbers.items()]
    )
    rows = rows.assign(job=rows.index).reset_index(drop=True)
    rows.loc[~rows["timed"].astype(bool), found.measured] = np.nan
    rows["link"] = [_link_to(job, found.sweep.folder, folder) for job in rows["job"]]
    return rows


def _choose_metrics(found: Results, known: list[str], n_rows: int) -> list[str]:
    """Return the metrics of the page: the main ones first, as many as its size allows."""
    main = [*ERROR_METRICS, FIT_METRIC, COVERAGE_METRIC, REVISED_METRIC, LOOP_METRIC]
    order = dict.fromkeys([*found.chosen_metrics, *main, *known])
    n_metrics = max(2, MAX_PAGE_NUMBERS // max(n_rows, 1))
    return [name for name in order if name in known][:n_metrics]


def _choose_error(found: Results, known: list[str], done: pd.DataFrame) -> str | None:
    """Return the metric by which jobs are compared; None if no job that is done has one."""
    for name in [*found.chosen_metrics, *ERROR_METRICS]:
        if name in known and done[name].notna().any():
            return name
    return None


def _describe_best(done: pd.DataFrame, error: str, swept: list[str]) -> dict[str, Any]:
    """Return number, error and settings of the job with the smallest error."""
    best = done.loc[done[error].idxmin()]
    return {
        "job": best["job"],
        "link": best["link"],
        "value": float(best[error]),
        "of": _settings_text(best, swept),
    }


def _list_problems(found: Results) -> list[tuple[Any, str, str, str]]:
    """Return number, status, settings and reason of every job that is not done."""
    problems = found.jobs[found.jobs["status"] != "done"]
    return [
        (number, job["status"], _settings_text(job, [*found.parameters]), job["error"])
        for number, job in problems.iterrows()
    ]


def _settings_text(job: pd.Series, names: list[str]) -> str:
    return ", ".join(f"{name}={_value_text(job[name])}" for name in names)


def _value_text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return yes_or_no(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _name_of(parameter: xr.DataArray) -> str:
    """Return the name of a parameter as a setting has it, with its unit if it has one."""
    unit = parameter.attrs.get("units", "")
    return f"{parameter.name} [{shown_unit(unit)}]" if unit else str(parameter.name)


def _is_numeric(column: pd.Series) -> bool:
    """Whether an option has an axis: numbers, but not yes or no."""
    is_boolean = pd.api.types.is_bool_dtype(column)
    return pd.api.types.is_numeric_dtype(column) and not is_boolean


def _link_to(job: Any, sweep: Path, folder: Path) -> str:
    """Return the address of a job, seen from a page in a folder: its page, or else its folder."""
    job_folder = sweep / str(job)
    target = job_folder / page.PAGE_FILE
    relative = os.path.relpath(target if target.is_file() else job_folder, folder)
    return quote(relative.replace(os.sep, "/"))


def list_options(rows: pd.DataFrame, swept: list[str]) -> list[str]:
    """Return the swept options, without the seed, that differ between the jobs."""
    return [name for name in swept if name != SEED and rows[name].nunique(dropna=False) > 1]


def _color_option(rows: pd.DataFrame, swept: list[str]) -> str:
    """Return the option whose values have colours: not the one of the x axis, if there are two."""
    options = list_options(rows, swept)
    numeric = [name for name in options if _is_numeric(rows[name])]
    others = [name for name in options if name not in numeric[:1]]
    return choose_series(rows, others or options) if options else ""


def _describe_marks(rows: pd.DataFrame, swept: list[str], labels: Mapping[str, str]) -> str:
    """Return the caption of the figure of the jobs."""
    sentences = ["Every point is a job."]
    option = _color_option(rows, swept)
    if option:
        sentences.append(f"Colours and shapes: {labels[option]}.")
    if any(_is_numeric(rows[name]) for name in list_options(rows, swept)):
        over = "medians over the seeds" if _has_seeds(rows, swept) else "the jobs"
        sentences.append(f"Over a swept option, a line joins {over} that differ in nothing else.")
    return " ".join(sentences)


def _has_seeds(rows: pd.DataFrame, swept: list[str]) -> bool:
    return SEED in swept and rows[SEED].nunique() > 1


def draw_jobs(
    rows: pd.DataFrame, swept: list[str], metrics: list[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Draw two metrics of every job against each other, and list the jobs in a table.

    Every swept option has a list of values or a slider; each axis has a list of metrics and of
    options. Figure and table show the same jobs: they are filtered and selected together. The
    points have the colours of a swept option, and over a swept option lines join them.

    Returns
    -------
    dict
        Models of Bokeh: ``jobs`` (the figure), ``table``, ``filter <option>`` and ``axis <side>``.
    """
    from bokeh import models

    numeric = [name for name in swept if _is_numeric(rows[name])]
    columns: dict[str, Any] = {name: rows[name].to_numpy(float) for name in [*numeric, *metrics]}
    columns["job"] = rows["job"].to_numpy()
    columns["link"] = rows["link"].to_numpy()
    for name in swept:
        if name not in numeric:
            columns[name] = [_value_text(value) for value in rows[name]]
    columns |= _mark_columns(rows, _color_option(rows, swept))
    sheets = [models.InlineStyleSheet(css=WIDGET_CSS)]
    widgets = dict[str, Any]()
    for name in swept:
        values = rows[name].dropna().drop_duplicates().sort_values()
        if name in numeric and len(values) > MAX_LISTED_VALUES:
            widgets[name] = _make_slider(labels[name], values)
        else:
            columns[f"text {name}"] = [_value_text(value) for value in rows[name]]
            choices = [ANY_VALUE, *map(_value_text, values)]
            widgets[name] = models.Select(title=labels[name], value=ANY_VALUE, options=choices)
        widgets[name].update(width=WIDGET_WIDTH, stylesheets=sheets)
    options = [name for name in list_options(rows, swept) if name in numeric]
    axes = _make_axis_lists([*metrics, *numeric], options, labels, sheets)
    x = axes["x"].value
    columns[SHOWN_X] = columns[x]
    columns[SHOWN_Y] = columns[axes["y"].value]
    source = models.ColumnDataSource(columns)
    is_kept = models.BooleanFilter(booleans=[True] * len(rows))
    view = models.CDSView(filter=is_kept)
    lines = models.ColumnDataSource({"xs": [], "ys": [], "color": []})
    if x in options:
        colored = rows.assign(color=columns["color"])
        lines.data = join_medians(colored, swept, x, axes["y"].value)
    figure = _draw_plane(source, view, lines, swept, metrics, labels)
    figure.xaxis[0].axis_label = labels[x]
    figure.yaxis[0].axis_label = labels[axes["y"].value]
    script_names = {
        "source": source,
        "filter": is_kept,
        "widgets": widgets,
        "axes": axes,
        "lines": lines,
        "lines_of_axes": {"x": figure.xaxis[0], "y": figure.yaxis[0]},
        "labels": {name: labels[name] for name in [*metrics, *numeric]},
        "options": options,
        "texts": [name for name in swept if name not in numeric],
    }
    apply = models.CustomJS(args=script_names, code=FILTER_SCRIPT)
    for widget in [*widgets.values(), *axes.values()]:
        widget.js_on_change("value", apply)
    drawn = {f"filter {name}": widget for name, widget in widgets.items()}
    drawn |= {f"axis {side}": widget for side, widget in axes.items()}
    drawn["jobs"] = figure
    drawn["table"] = _make_table(source, view, swept, metrics, labels, sheets)
    return drawn


def _mark_columns(rows: pd.DataFrame, option: str) -> dict[str, list[str]]:
    """Return the columns with colour, shape and legend of every job.

    Values that have no colour of their own, and all jobs if no option varies, have the same one.
    """
    colors = [page.BLUE_OF_PAGES] * len(rows)
    markers = ["circle"] * len(rows)
    legends = [""] * len(rows)
    if option:
        marks = choose_marks(rows, option)
        legends = ["other"] * len(rows)
        for number, value in enumerate(rows[option]):
            if value in marks:
                color = marks[value]["color"]
                colors[number] = page.GREY_OF_PAGES if color == "#000000" else color
                markers[number] = BOKEH_MARKERS[marks[value]["marker"]]
                legends[number] = marks[value]["label"]
            else:
                colors[number] = page.GREY_OF_PAGES
    return {"color": colors, "marker": markers, "legend": legends}


def join_medians(rows: pd.DataFrame, swept: list[str], x: str, y: str) -> dict[str, list[Any]]:
    """Return the lines over an option: medians over the seeds of jobs that differ in it alone.

    `rows` have a column ``color``. `sweep.js` does the same when something is chosen.
    """
    others = [name for name in list_options(rows, swept) if name != x]
    finite = rows[np.isfinite(rows[x].to_numpy(float)) & np.isfinite(rows[y].to_numpy(float))]
    lines: dict[str, list[Any]] = {"xs": [], "ys": [], "color": []}
    groups = [((), finite)] if not others else finite.groupby(others, observed=True, dropna=False)
    for _, group in groups:
        medians = pool(group, [x], [y])[0.5][y]
        if len(medians):
            lines["xs"].append([float(value) for value in medians.index])
            lines["ys"].append([float(value) for value in medians])
            lines["color"].append(group["color"].iloc[0])
    return lines


def _make_axis_lists(
    choices: list[str], options: list[str], labels: Mapping[str, str], sheets: Any
) -> dict[str, Any]:
    """Return the list of each axis: the first swept option, or a cost, against the first metric."""
    from bokeh import models

    y = choices[0]
    x = choices[1] if len(choices) > 1 else choices[0]
    if options:
        x = options[0]
    elif REVISED_METRIC in choices:
        x = REVISED_METRIC
    return {
        side: models.Select(
            title=f"{side} axis",
            value=value,
            options=[(name, labels[name]) for name in choices],
            width=WIDGET_WIDTH,
            stylesheets=sheets,
        )
        for side, value in (("x", x), ("y", y))
    }


def _make_slider(title: str, values: pd.Series) -> Any:
    """Return a slider over the range of ascending values."""
    from bokeh import models

    low = float(values.iloc[0])
    high = float(values.iloc[-1])
    return models.RangeSlider(
        title=title,
        start=low,
        end=high,
        value=(low, high),
        step=(high - low) / 100,
        format="0.0[0000]",
    )


def _draw_plane(
    source: Any,
    view: Any,
    lines: Any,
    swept: list[str],
    metrics: list[str],
    labels: Mapping[str, str],
) -> Any:
    """Return the figure with a mark per job, and the lines."""
    from bokeh import models
    from bokeh.plotting import figure

    shown = figure(
        height=400,
        tools=f"box_select,lasso_select,tap,{page.FIGURE_TOOLS}",
        active_drag="box_select",
        sizing_mode="stretch_width",
        min_width=200,
        toolbar_location="above",
    )
    shown.multi_line("xs", "ys", color="color", source=lines, line_width=1.5, alpha=0.7)
    marks = shown.scatter(
        SHOWN_X,
        SHOWN_Y,
        source=source,
        view=view,
        size=9,
        color="color",
        marker="marker",
        alpha=0.85,
        nonselection_alpha=0.15,
        legend_group="legend",
    )
    hovered = ["job", *swept, *metrics[:MAX_TABLE_METRICS]]
    tooltips = [(labels.get(name, name), f"@{{{name}}}") for name in hovered]
    shown.add_tools(models.HoverTool(renderers=[marks], tooltips=tooltips))
    (legend,) = shown.legend
    legend.update(
        orientation="horizontal",
        background_fill_alpha=0.0,
        border_line_alpha=0.0,
        label_text_color=page.GREY_OF_PAGES,
        visible=any(source.data["legend"]),
    )
    shown.add_layout(legend, "above")
    return shown


def _make_table(
    source: Any,
    view: Any,
    swept: list[str],
    metrics: list[str],
    labels: Mapping[str, str],
    sheets: Any,
) -> Any:
    """Return the table with a row per job, whose number is a link."""
    from bokeh import models

    digits = models.ScientificFormatter(
        precision=4, power_limit_high=6, power_limit_low=-4, nan_format="-"
    )
    link = models.HTMLTemplateFormatter(template='<a href="<%= link %>"><%= value %></a>')
    columns = [models.TableColumn(field="job", title="Job", formatter=link, width=50)]
    for name in swept:
        columns.append(models.TableColumn(field=name, title=labels[name], width=130))
    for name in metrics[:MAX_TABLE_METRICS]:
        column = models.TableColumn(field=name, title=labels[name], formatter=digits, width=130)
        columns.append(column)
    return models.DataTable(
        source=source,
        view=view,
        columns=columns,
        height=min(420, 60 + 26 * len(source.data["job"])),
        sizing_mode="stretch_width",
        min_width=200,
        stylesheets=sheets,
        index_position=None,
        autosize_mode="none",
        scroll_to_selection=True,
        reorderable=False,
    )
