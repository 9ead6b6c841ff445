"""The page of a sweep: what became of its jobs, and all their numbers to filter, to brush and to
sort.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from experiments.collect.figures import COUNT, COVERAGE, ERRORS, FIT, LOOP
from experiments.collect.read import AGAIN, Results
from experiments.drawing import page
from experiments.drawing.style import BLUE
from sysid.store import package_versions

# different values up to which a parameter has a list; numbers with more have a slider
MOST_OPTIONS = 12
MOST_NUMBERS = 150_000  # of all jobs on a page
SHOWN = 6  # metrics in the table
ALL = "all"
#: widgets and tables in the colours of the page; rows that all lists and sliders let pass
COLORS = Path(__file__).with_name("sweep.css").read_text(encoding="utf-8")
FILTER = Path(__file__).with_name("sweep.js").read_text(encoding="utf-8")


def write_sweep(found: Results, dataset: xr.Dataset, counted: str, folder: Path) -> Path:
    """Write the page of a sweep.

    Parameters
    ----------
    found, dataset
        Of `experiments.collect.read`.
    counted
        How many jobs ended how.
    folder
        Of the page.

    Raises
    ------
    sysid.StoreError
        The page cannot be written.
    """
    rows = pd.concat(
        [found.jobs.join(one).assign(output=name) for name, one in found.numbers.items()]
    )
    rows = rows.assign(job=rows.index).reset_index(drop=True)
    problems = found.jobs[found.jobs["status"] != "done"]
    known = [name for name in found.metrics if rows[name].nunique() > 1]
    order = dict.fromkeys([*found.asked, *ERRORS, FIT, COVERAGE, COUNT, LOOP, *known])
    metrics = [name for name in order if name in known][: max(2, MOST_NUMBERS // max(len(rows), 1))]
    swept = [*found.parameters, *(["output"] if found.outputs else [])]
    done = rows[rows["status"] == "done"]
    error = next(
        (name for name in [*found.asked, *ERRORS] if name in known and done[name].notna().any()),
        None,
    )
    best = None if error is None else done.loc[done[error].idxmin()]
    return page.write(
        folder / page.PAGE_FILE,
        Path(__file__).with_name("sweep.html"),
        draw_jobs(done.reset_index(drop=True), swept, metrics) if metrics else {},
        title=f"Sweep of sysid-{found.sweep.command}",
        counted=counted,
        problems=[
            (number, job["status"], _settings(job, [*found.parameters]), job["error"])
            for number, job in problems.iterrows()
        ],
        again=AGAIN,
        error=error,
        best=None
        if best is None
        else {
            "job": best["job"],
            "value": float(best[error]),
            "of": _settings(best, swept),
        },
        unit="" if error is None else dataset[error].attrs.get("units", ""),
        left_out=[name for name in known if name not in metrics],
        timing=found.timing,
        origin=page.read_origin(
            found.sweep.folder, {"package_versions": package_versions()}, "sweep.*"
        )
        | {
            "facts": {
                "sysid": found.sweep.version,
                "code": found.sweep.code,
                "swept": ", ".join(found.sweep.swept),
            }
        },
    )


def _settings(job: pd.Series, names: list[str]) -> str:
    return ", ".join(f"{name}={_text(job[name])}" for name in names)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def draw_jobs(rows: pd.DataFrame, swept: list[str], metrics: list[str]) -> dict[str, Any]:
    """Draw two metrics of every job against each other, and list the jobs: filtered and selected
    together.

    There is a list of values, or a slider, for every swept option, and a list of metrics for each
    axis.
    """
    from bokeh import models
    from bokeh.plotting import figure

    numeric = [name for name in swept if pd.api.types.is_numeric_dtype(rows[name])]
    columns = {name: rows[name].to_numpy(float) for name in [*numeric, *metrics]} | {
        "job": rows["job"].to_numpy()
    }
    columns |= {
        name: [_text(value) for value in rows[name]] for name in swept if name not in numeric
    }
    sheets = [models.InlineStyleSheet(css=COLORS)]
    widgets = dict[str, Any]()
    for name in swept:
        values = rows[name].dropna().drop_duplicates().sort_values()
        if name in numeric and len(values) > MOST_OPTIONS:
            ends = float(values.iloc[0]), float(values.iloc[-1])
            step = (ends[1] - ends[0]) / 100
            widgets[name] = models.RangeSlider(
                title=name,
                start=ends[0],
                end=ends[1],
                value=ends,
                step=step,
                format="0.0[0000]",
            )
        else:
            columns[f"text {name}"] = [_text(value) for value in rows[name]]
            widgets[name] = models.Select(title=name, value=ALL, options=[ALL, *map(_text, values)])
        widgets[name].update(width=170, stylesheets=sheets)
    source = models.ColumnDataSource(columns)
    is_kept = models.BooleanFilter(booleans=[True] * len(rows))
    view = models.CDSView(filter=is_kept)
    apply = models.CustomJS(
        args={"source": source, "filter": is_kept, "widgets": widgets}, code=FILTER
    )
    for widget in widgets.values():
        widget.js_on_change("value", apply)
    choices = [*metrics, *numeric]
    x = next((name for name in (COUNT, *choices[1:]) if name in choices), choices[0])
    y = choices[0]
    tools: Any = {
        "tools": f"box_select,lasso_select,tap,{page.TOOLS}",
        "active_drag": "box_select",
    }
    style: Any = {
        "sizing_mode": "stretch_width",
        "min_width": 200,
        "toolbar_location": "above",
    }
    shown = figure(height=400, x_axis_label=x, y_axis_label=y, **tools, **style)
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
    shown.add_tools(
        models.HoverTool(
            tooltips=[(name, f"@{{{name}}}") for name in ("job", *swept, *metrics[:SHOWN])]
        )
    )
    axes = {}
    for side, axis, value in (("x", shown.xaxis[0], x), ("y", shown.yaxis[0], y)):
        code = "marks.glyph[side] = {field: cb_obj.value}; axis.axis_label = cb_obj.value"
        args = {"marks": marks, "axis": axis, "side": side}
        axes[side] = models.Select(
            title=f"{side} axis",
            value=value,
            options=choices,
            width=170,
            stylesheets=sheets,
        )
        axes[side].js_on_change("value", models.CustomJS(args=args, code=code))
    digits = models.ScientificFormatter(precision=4, power_limit_high=6, power_limit_low=-4)
    cells = [models.TableColumn(field="job", title="job", width=50)]
    cells += [models.TableColumn(field=name, title=name, width=130) for name in swept]
    cells += [
        models.TableColumn(field=name, title=name, formatter=digits, width=120)
        for name in metrics[:SHOWN]
    ]
    look: Any = {
        "height": 420,
        "sizing_mode": "stretch_width",
        "min_width": 200,
        "stylesheets": sheets,
    }
    look |= {
        "index_position": None,
        "autosize_mode": "none",
        "scroll_to_selection": True,
        "reorderable": False,
    }
    table = models.DataTable(source=source, view=view, columns=cells, **look)
    chosen = {f"filter {name}": widget for name, widget in widgets.items()}
    return {
        **chosen,
        **{f"axis {side}": one for side, one in axes.items()},
        "jobs": shown,
        "table": table,
    }
