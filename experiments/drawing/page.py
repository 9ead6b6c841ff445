"""The frame of every page, and how series look in a browser: offline, light and dark, wide and
narrow.
"""

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from experiments.drawing.style import BLUE, GREEN, GREY, ORANGE, PALETTE
from experiments.drawing.tables import significant
from sysid import store

PAGE_FILE = "report.html"
MOST_DRAWN = 40_000  # samples of all series of a page: more would make it heavy and slow
MOST_BYTES = 1_400_000  # of the pictures of a page, which stays below 5 MB with them
CHANGING = (
    ".log",
    PAGE_FILE,
)  # ends of the names of files that are written to after the page
TOOLS = "pan,box_zoom,wheel_zoom,reset,save"
Array = np.ndarray


class Curve(NamedTuple):
    """A prediction (n,) of a measured series."""

    mean: Array
    half: Array | None = None  # of its 95 % band


def write(path: Path, template: Path, figures: Mapping[str, Any], **content: Any) -> Path:
    """Fill a template with content and figures, and write the page; returns its path.

    Parameters
    ----------
    path, template
        The page, and the file of its template, which fills the frame of all pages.
    figures
        Models of Bokeh; the template places them by name.
    content
        What else the template uses. Every text is escaped.

    Raises
    ------
    sysid.StoreError
        The file cannot be written.
    """
    from bokeh.embed import components
    from bokeh.resources import Resources
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    scripts = []
    script = ""
    places = {}
    if figures:
        script, places = components(dict(figures))
        parts = [
            "bokeh",
            *(["bokeh-widgets", "bokeh-tables"] if template.name == "sweep.html" else []),
        ]
        scripts = [
            Markup(text)
            for text in Resources(mode="inline", components=parts, log_level="warn").js_raw
        ]
    folders = [template.parent, Path(__file__).parent]
    frame = Environment(loader=FileSystemLoader(folders), autoescape=True, trim_blocks=True)
    pretty = partial(json.dumps, indent=2)
    frame.filters |= {
        "number": write_number,
        "percent": lambda value: f"{100 * value:.1f} %",
        "pretty": pretty,
    }
    places = {name: Markup(place) for name, place in places.items()}
    text = frame.get_template(template.name).render(
        scripts=scripts, script=Markup(script), figures=places, **content
    )
    store.write_bytes(text.encode(), path)
    return path


def write_number(value: Any, unit: str = "") -> str:
    """Write a number with four significant digits and its unit; whole numbers as they are, a dash
    for None.
    """
    if value is None or isinstance(value, str | bool):
        return "-" if value is None else str(value)
    text = str(value) if isinstance(value, int) else significant(float(value), 4)
    return f"{text} {'' if unit == '1' else unit}".rstrip()


# --- what is the same for all folders ---------------------------------------------------------------


def read_origin(
    folder: Path, attributes: Mapping[str, Any], pattern: str = "**/*"
) -> dict[str, Any]:
    """Where a folder comes from: versions, seed, date, the command that repeats it, its files with
    their digests.
    """
    files = sorted(
        path for path in folder.glob(pattern) if path.is_file() and not path.name.endswith(CHANGING)
    )
    kept = [path for path in files if ".hydra" not in path.parts]
    names = ("creation_time", "source_commit", "seed", "digest")
    versions = json.loads(str(attributes.get("package_versions", "{}")))
    return {
        "facts": {
            name.replace("_", " "): str(attributes[name]) for name in names if name in attributes
        }
        | versions,
        "configuration": attributes.get("configuration", ""),
        "command": _read_command(folder / ".hydra"),
        "files": [
            (
                path.relative_to(folder).as_posix(),
                path.stat().st_size,
                hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            for path in kept
        ],
    }


def _read_command(folder: Path) -> str:
    """Read the command of a run from what Hydra has written; empty without that.

    The files may be a stranger's: they are read as text, and nothing in them is resolved.
    """
    if not (folder / "overrides.yaml").is_file():
        return ""
    settings, overrides = (
        yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("hydra", "overrides")
    )
    words = [f"sysid-{settings['hydra']['job']['name']}", *map(str, overrides or [])]
    return " ".join(
        f'"{one}"' if "'" in one and not set('"$`\\!') & set(one) else shlex.quote(one)
        for one in words
    )


def read_pictures(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Figures of a folder as data, by name, and the names of those for which there is no room."""
    room = MOST_BYTES
    found = dict[str, str]()
    left_out = []
    for path in sorted(folder.glob("*.png")):
        if path.stat().st_size > room:
            left_out.append(path.name)
            continue
        room -= path.stat().st_size
        found[path.stem] = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return found, left_out


# --- series -----------------------------------------------------------------------------------------


def thin(measured: Array, error: Array, most: int) -> Array:
    """Choose at most so many of n samples, the first and the last among them; all if there are not
    more.

    Of consecutive samples those with the least and the largest measurement and the largest error
    stay.
    """
    n = len(measured)
    size = max(most // 3, 1)
    if n <= most:
        return np.arange(n)
    kept = {0, n - 1}
    for rows in np.array_split(np.arange(n), size):
        values = np.nan_to_num(measured[rows])
        worst = np.nan_to_num(np.abs(error[rows]))
        kept |= {
            int(rows[values.argmin()]),
            int(rows[values.argmax()]),
            int(rows[worst.argmax()]),
        }
    return np.array(sorted(kept))


def draw_series(
    x: Array,
    measured: Array,
    curves: Mapping[str, Curve],
    *,
    labels: tuple[str, str, str],
    most: int = MOST_DRAWN,
    since: float | None = None,
    points: Mapping[str, Sequence[Any]] | None = None,
) -> Any:
    """Draw a measured series with its predictions, their errors below, and a strip to choose what
    is seen.

    Parameters
    ----------
    x, measured : (n,)
    curves
        Predictions by name; their bands are drawn if there is one curve.
    labels
        Of the axes: time, value, error.
    most
        Samples that are drawn, see `thin`.
    since
        Place of a line that parts what the model learned from what it is judged by.
    points
        Columns ``x``, ``y`` of marked samples, and what they tell when one points at them, by
        label.
    """
    from bokeh.layouts import column
    from bokeh.models import ColumnDataSource, HoverTool, Range1d, RangeTool, Span
    from bokeh.plotting import figure

    worst = np.max([np.abs(measured - curve.mean) for curve in curves.values()], axis=0)
    rows = thin(measured, worst, most)
    columns = {"x": x[rows], "measured": measured[rows]}
    for number, curve in enumerate(curves.values()):
        mean = curve.mean[rows]
        half = None if curve.half is None else curve.half[rows]
        columns |= {f"mean{number}": mean, f"error{number}": columns["measured"] - mean}
        if half is not None and len(curves) == 1:
            columns |= {
                "low": mean - half,
                "high": mean + half,
                "minus": -half,
                "half": half,
            }
    source = ColumnDataSource(
        {name: np.asarray(values, np.float32) for name, values in columns.items()}
    )
    ends = float(x[0]), float(x[-1]) if x[-1] > x[0] else float(x[0]) + 1.0
    shown = Range1d(*ends)
    style: Any = {
        "sizing_mode": "stretch_width",
        "min_width": 200,
        "min_border_left": 75,
    }
    tools: Any = {"x_range": shown, "tools": TOOLS, "active_drag": "box_zoom"}
    above = figure(height=360, y_axis_label=labels[1], toolbar_location="above", **tools, **style)
    below = figure(
        height=180,
        y_axis_label=labels[2],
        toolbar_location=None,
        x_axis_label=labels[0],
        **tools,
        **style,
    )
    if "low" in columns:
        band: Any = {"source": source, "fill_color": BLUE, "fill_alpha": 0.25}
        above.varea("x", "low", "high", legend_label="95 % band", **band)
        below.varea("x", "minus", "half", **band)
    own, colors = (
        (ORANGE, (BLUE,)) if len(curves) == 1 else (GREY, PALETTE[:6])
    )  # that can be seen on black, too
    line = above.line(
        "x",
        "measured",
        source=source,
        color=own,
        line_width=1.3,
        legend_label="measured",
    )
    tips = [(labels[0], "@x"), ("measured", "@measured")]
    for number, name in enumerate(curves):
        color = colors[number % len(colors)]
        above.line(
            "x",
            f"mean{number}",
            source=source,
            color=color,
            line_width=1.3,
            legend_label=name,
        )
        below.line("x", f"error{number}", source=source, color=color)
        tips.append((name, f"@mean{number}"))
    above.add_tools(HoverTool(renderers=[line], mode="vline", tooltips=tips))
    if points is not None and len(points["x"]):
        names = [name for name in points if name not in ("x", "y")]
        told = {f"told{i}": points[name] for i, name in enumerate(names)}
        marked = ColumnDataSource({"x": points["x"], "y": points["y"], **told})
        marks = above.scatter(
            "x",
            "y",
            source=marked,
            size=7,
            color=GREEN,
            alpha=0.8,
            legend_label="points kept",
        )
        shown_at = [(name, f"@{key}") for name, key in zip(names, told, strict=True)]
        above.add_tools(HoverTool(renderers=[marks], tooltips=shown_at))
    for one in (above, below):
        if since is not None:
            one.add_layout(
                Span(
                    location=since,
                    dimension="height",
                    line_dash="dashed",
                    line_color="gray",
                )
            )
    above.legend[0].update(
        ncols=2,
        click_policy="hide",
        background_fill_alpha=0.0,
        border_line_alpha=0.0,
        padding=2,
    )
    above.legend[0].label_text_color = "#808890"  # on white and on black
    above.add_layout(above.legend[0], "above")
    strip = figure(
        height=70,
        x_range=ends,
        x_axis_type=None,
        y_axis_type=None,
        toolbar_location=None,
        **style,
    )
    strip.line("x", "measured", source=source, color=own)
    strip.add_tools(RangeTool(x_range=shown, start_gesture="pan"))
    return column(above, below, strip, sizing_mode="stretch_width")


def draw_pairs(measured: Array, curve: Curve, label: str, *, most: int = MOST_DRAWN) -> Any:
    """Draw predictions of independent rows over their measurements: a right one lies on the
    line.
    """
    from bokeh.models import Slope

    rows = thin(measured, measured - curve.mean, most)
    columns = {"row": rows, "measured": measured[rows], "predicted": curve.mean[rows]}
    labels = (f"measured {label}", f"predicted {label}")
    look = {"size": 5, "color": BLUE, "alpha": 0.6}
    shown = draw_marks(
        columns,
        "measured",
        "predicted",
        {name: name for name in columns},
        labels,
        420,
        **look,
    )
    shown.add_layout(Slope(gradient=1.0, y_intercept=0.0, line_color="gray", line_dash="dashed"))
    return shown


def draw_marks(
    columns: Mapping[str, Any],
    x: str,
    y: str,
    told: Mapping[str, str],
    labels: tuple[str, str],
    height: int,
    **look: Any,
) -> Any:
    """Draw a column over another; a mark says, by label, the columns that are `told` when one
    points at it.
    """
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.plotting import figure

    style: Any = {
        "sizing_mode": "stretch_width",
        "min_width": 200,
        "tools": TOOLS,
        "toolbar_location": "above",
    }
    shown = figure(height=height, x_axis_label=labels[0], y_axis_label=labels[1], **style)
    shown.scatter(x, y, source=ColumnDataSource(dict(columns)), **look)
    shown.add_tools(HoverTool(tooltips=[(label, f"@{name}") for label, name in told.items()]))
    return shown
