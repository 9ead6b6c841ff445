"""The page of a sweep: how its jobs ended, and all their numbers to filter, select and sort."""

from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from experiments.collect.figures import (
    COVERAGE_METRIC,
    ERROR_METRICS,
    FIT_METRIC,
    LOOP_METRIC,
    REVISED_METRIC,
)
from experiments.collect.read import HOW_TO_RESUME, Results
from experiments.drawing import page
from experiments.drawing.style import BLUE
from sysid.store import package_versions

# A parameter with at most this number of different values has a list; others have a slider.
MAX_LISTED_VALUES = 12
MAX_PAGE_NUMBERS = 150_000  # numbers of all jobs together on a page
MAX_TABLE_METRICS = 6  # metrics in the table of the jobs
#: Entry of a list that lets all values pass; `sweep.js` compares with it.
ANY_VALUE = "all"
#: Style sheet that gives widgets and tables the colours of the page.
WIDGET_CSS = Path(__file__).with_name("sweep.css").read_text(encoding="utf-8")
#: Script that finds the rows that all lists and sliders let pass.
FILTER_SCRIPT = Path(__file__).with_name("sweep.js").read_text(encoding="utf-8")
WIDGET_WIDTH = 170  # pixels


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
    rows = pd.concat(
        [found.jobs.join(numbers).assign(output=name) for name, numbers in found.numbers.items()]
    )
    rows = rows.assign(job=rows.index).reset_index(drop=True)
    known = [name for name in found.metrics if rows[name].nunique() > 1]
    metrics = _choose_metrics(found, known, len(rows))
    swept = [*found.parameters]
    if found.outputs:
        swept.append("output")
    done = rows[rows["status"] == "done"]
    figures = {}
    if metrics:
        figures = draw_jobs(done.reset_index(drop=True), swept, metrics)
    error = _choose_error(found, known, done)
    best = None
    unit = ""
    if error is not None:
        best = _describe_best(done, error, swept)
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
        error=error,
        best=best,
        unit=unit,
        left_out=[name for name in known if name not in metrics],
        timing=found.timing,
        origin=origin,
    )


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
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def draw_jobs(rows: pd.DataFrame, swept: list[str], metrics: list[str]) -> dict[str, Any]:
    """Draw two metrics of every job against each other, and list the jobs in a table.

    Every swept option has a list of values or a slider; each axis has a list of metrics. Figure and
    table show the same jobs: they are filtered and selected together.

    Returns
    -------
    dict
        Models of Bokeh: ``jobs`` (the figure), ``table``, ``filter <option>`` and ``axis <side>``.
    """
    from bokeh import models

    numeric = [name for name in swept if pd.api.types.is_numeric_dtype(rows[name])]
    columns: dict[str, Any] = {name: rows[name].to_numpy(float) for name in [*numeric, *metrics]}
    columns["job"] = rows["job"].to_numpy()
    for name in swept:
        if name not in numeric:
            columns[name] = [_value_text(value) for value in rows[name]]
    sheets = [models.InlineStyleSheet(css=WIDGET_CSS)]
    widgets = dict[str, Any]()
    for name in swept:
        values = rows[name].dropna().drop_duplicates().sort_values()
        if name in numeric and len(values) > MAX_LISTED_VALUES:
            widgets[name] = _make_slider(name, values)
        else:
            columns[f"text {name}"] = [_value_text(value) for value in rows[name]]
            options = [ANY_VALUE, *map(_value_text, values)]
            widgets[name] = models.Select(title=name, value=ANY_VALUE, options=options)
        widgets[name].update(width=WIDGET_WIDTH, stylesheets=sheets)
    source = models.ColumnDataSource(columns)
    is_kept = models.BooleanFilter(booleans=[True] * len(rows))
    view = models.CDSView(filter=is_kept)
    script_names = {"source": source, "filter": is_kept, "widgets": widgets}
    apply = models.CustomJS(args=script_names, code=FILTER_SCRIPT)
    for widget in widgets.values():
        widget.js_on_change("value", apply)
    figure, axes = _draw_plane(source, view, swept, numeric, metrics, sheets)
    drawn = {f"filter {name}": widget for name, widget in widgets.items()}
    drawn |= {f"axis {side}": widget for side, widget in axes.items()}
    drawn["jobs"] = figure
    drawn["table"] = _make_table(source, view, swept, metrics, sheets)
    return drawn


def _make_slider(name: str, values: pd.Series) -> Any:
    """Return a slider over the range of ascending values."""
    from bokeh import models

    low = float(values.iloc[0])
    high = float(values.iloc[-1])
    return models.RangeSlider(
        title=name,
        start=low,
        end=high,
        value=(low, high),
        step=(high - low) / 100,
        format="0.0[0000]",
    )


def _draw_plane(
    source: Any, view: Any, swept: list[str], numeric: list[str], metrics: list[str], sheets: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the figure with a mark per job, and the list of metrics of each axis."""
    from bokeh import models
    from bokeh.plotting import figure

    choices = [*metrics, *numeric]
    x = REVISED_METRIC
    if x not in choices:
        x = choices[1] if len(choices) > 1 else choices[0]
    y = choices[0]
    shown = figure(
        height=400,
        x_axis_label=x,
        y_axis_label=y,
        tools=f"box_select,lasso_select,tap,{page.FIGURE_TOOLS}",
        active_drag="box_select",
        sizing_mode="stretch_width",
        min_width=200,
        toolbar_location="above",
    )
    marks = shown.scatter(
        x,
        y,
        source=source,
        view=view,
        size=8,
        color=BLUE,
        alpha=0.8,
        nonselection_alpha=0.12,
    )
    hovered = ["job", *swept, *metrics[:MAX_TABLE_METRICS]]
    shown.add_tools(models.HoverTool(tooltips=[(name, f"@{{{name}}}") for name in hovered]))
    axes = {}
    for side, axis, value in (("x", shown.xaxis[0], x), ("y", shown.yaxis[0], y)):
        axes[side] = models.Select(
            title=f"{side} axis",
            value=value,
            options=choices,
            width=WIDGET_WIDTH,
            stylesheets=sheets,
        )
        code = "marks.glyph[side] = {field: cb_obj.value}; axis.axis_label = cb_obj.value"
        args = {"marks": marks, "axis": axis, "side": side}
        axes[side].js_on_change("value", models.CustomJS(args=args, code=code))
    return shown, axes


def _make_table(source: Any, view: Any, swept: list[str], metrics: list[str], sheets: Any) -> Any:
    """Return the table with a row per job."""
    from bokeh import models

    digits = models.ScientificFormatter(precision=4, power_limit_high=6, power_limit_low=-4)
    columns = [models.TableColumn(field="job", title="job", width=50)]
    for name in swept:
        columns.append(models.TableColumn(field=name, title=name, width=130))
    for name in metrics[:MAX_TABLE_METRICS]:
        columns.append(models.TableColumn(field=name, title=name, formatter=digits, width=120))
    return models.DataTable(
        source=source,
        view=view,
        columns=columns,
        height=420,
        sizing_mode="stretch_width",
        min_width=200,
        stylesheets=sheets,
        index_position=None,
        autosize_mode="none",
        scroll_to_selection=True,
        reorderable=False,
    )
