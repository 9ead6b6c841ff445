"""The frame of every page, and series in a browser: offline, light and dark, wide and narrow."""

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.cli.plain_yaml import MAX_CONFIGURATION_CHARACTERS, read_plain
from experiments.drawing.style import PALETTE, find_gaps
from experiments.drawing.tables import shown_unit, significant
from sysid import store
from sysid.errors import UserError
from sysid.foreign import digest_inner, open_inner

PAGE_FILE = "report.html"  # file name
MAX_SAMPLES_DRAWN = 40_000  # samples of all series of a page; with more the page would be slow
# ends of pieces of a thinned series are kept if they are at most this fraction of its samples
MAX_BORDER_SHARE = 0.25
MAX_PICTURE_BYTES = 1_400_000  # size of all pictures of a page, which keeps it below 5 MB
#: endings of the names of files that are still written to after the page
CHANGING_FILES = (".log", PAGE_FILE)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"  # first bytes of a picture
FIGURE_TOOLS = "pan,box_zoom,wheel_zoom,reset,save"  # tools of Bokeh's figures
#: layout of figures that are as wide as the page
WIDE_LAYOUT: dict[str, Any] = {"sizing_mode": "stretch_width", "min_width": 200}
# colours that are readable on white and on black
BLUE_OF_PAGES = "#2f8fca"
ORANGE_OF_PAGES = "#e07f1f"
GREEN_OF_PAGES = "#3f9f58"
GREY_OF_PAGES = "#808890"
BAND_ALPHA = 0.35
BAND_LABEL = "95 % band"
POINTS_LABEL = "stored points"
MEASURED_LABEL = "measured"
Array = np.ndarray


class Curve(NamedTuple):
    """A prediction (n,) of a measured series."""

    mean: Array
    half: Array | None = None  # half width of its 95 % band


def write(path: Path, template: Path, figures: Mapping[str, Any], **content: Any) -> Path:
    """Fill a template with content and figures, write the page, and return its path.

    Parameters
    ----------
    path, template
        The page, and the file of its template, which fills the frame of all pages.
    figures
        Models of Bokeh; the template refers to them by name.
    content
        Other variables of the template. Every text is escaped.

    Raises
    ------
    sysid.StoreError
        If the file cannot be written.
    """
    from bokeh.embed import components
    from bokeh.resources import Resources
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    scripts = []
    script = ""
    divisions = {}
    if figures:
        script, divisions = components(dict(figures))
        parts = ["bokeh"]
        if template.name == "sweep.html":
            parts += ["bokeh-widgets", "bokeh-tables"]
        resources = Resources(mode="inline", components=parts, log_level="warn")
        scripts = [Markup(text) for text in resources.js_raw]
    folders = [template.parent, Path(__file__).parent]
    frame = Environment(loader=FileSystemLoader(folders), autoescape=True, trim_blocks=True)
    frame.filters |= {
        "number": write_number,
        "unit": shown_unit,
        "percent": lambda value: f"{100 * value:.1f} %",
        "pretty": partial(json.dumps, indent=2),
    }
    text = frame.get_template(template.name).render(
        scripts=scripts,
        script=Markup(script),
        figures={name: Markup(division) for name, division in divisions.items()},
        **content,
    )
    # Names of files may have bytes that are no text.
    store.write_bytes(text.encode(errors="backslashreplace"), path)
    return path


def write_number(value: Any, unit: str = "") -> str:
    """Return a number as text with four significant digits and its unit.

    Integers keep all digits, texts and flags are returned as they are, and None is a dash. The
    numbers of a list are separated by commas.
    """
    if value is None:
        return "-"
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(write_number(number, unit) for number in value)
    text = str(value) if isinstance(value, int) else significant(float(value), 4)
    words = "" if unit in ("", "1") else shown_unit(unit)
    return f"{text} {words}".rstrip()


# --- the origin of a folder -----------------------------------------------------------------------


def read_origin(
    folder: Path, attributes: Mapping[str, Any], pattern: str = "**/*"
) -> dict[str, Any]:
    """Return the origin of a folder: versions, seed, date, command, and its files with digests.

    Parameters
    ----------
    folder
        Folder of a run.
    attributes
        Attributes of one of the NetCDF files of the run.
    pattern
        Pattern of the names of its files.

    Raises
    ------
    sysid.StoreError
        The attributes are not those that the toolbox writes.
    """
    files = sorted(
        path
        for path in folder.glob(pattern)
        if not path.is_symlink() and path.is_file() and not path.name.endswith(CHANGING_FILES)
    )
    facts = {
        name.replace("_", " "): str(attributes[name])
        for name in ("creation_time", "source_commit", "seed", "digest")
        if name in attributes
    }
    versions = store.parse_json(attributes.get("package_versions", "{}"), folder)
    if not isinstance(versions, dict):
        raise store.StoreError(f"{folder}: a file states no versions of packages: it is damaged")
    return {
        "facts": facts | {name: str(version) for name, version in versions.items()},
        "configuration": attributes.get("configuration", ""),
        "command": _read_command(folder),
        "files": list(_list_files(folder, files)),
    }


def _list_files(folder: Path, files: Sequence[Path]) -> Iterator[tuple[str, int, str]]:
    """Yield name, size and digest of files in a folder, without those of Hydra.

    As many bytes are read as one file may have; then the digests of larger files are left out.
    """
    n_bytes_left = store.max_content_bytes()
    for path in files:
        inner_path = path.relative_to(folder)
        if ".hydra" in inner_path.parts:
            continue
        name = inner_path.as_posix()
        size = path.stat().st_size
        digest = "not computed: too large"
        if size <= n_bytes_left:
            n_bytes_left -= size
            digest = digest_inner(folder, name)
        yield name, size, digest


def _read_command(folder: Path) -> str:
    """Return the command of the run in a folder, from the files that Hydra wrote; empty without.

    The files may come from an untrusted author: they are read as plain data, and nothing in them is
    resolved. There is no command if they are not as Hydra writes them for a command of the toolbox,
    or if a character could act on the terminal into which somebody pastes it.
    """
    try:
        settings = _read_yaml(folder, ".hydra/hydra.yaml")
        overrides = _read_yaml(folder, ".hydra/overrides.yaml")
        name = settings["hydra"]["job"]["name"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    words = [] if overrides is None else overrides
    if not isinstance(name, str) or not re.fullmatch("[a-z]+", name):
        return ""
    if not isinstance(words, list) or not all(map(_is_override, words)):
        return ""
    return " ".join(map(_quote_for_shell, [f"sysid-{name}", *words]))


def _read_yaml(folder: Path, name: str) -> Any:
    """Read a file of Hydra as plain data; raise an error of values if it has other content."""
    with open_inner(folder, name) as file:
        text = file.read(MAX_CONFIGURATION_CHARACTERS + 1).decode()
    content = read_plain(text)
    if content is None and text.strip() not in ("", "[]", "null"):
        raise UserError(f"{name} has other content than plain data")
    return content


def _is_override(word: object) -> bool:
    """Return whether a value is an override that can be typed: printable, and no option."""
    return isinstance(word, str) and word.isprintable() and not word.startswith("-")


def _quote_for_shell(word: str) -> str:
    """Quote a word for the shell; double quotes are taken where they make it easier to read."""
    needs_escapes = set('"$`\\!') & set(word)
    if "'" in word and not needs_escapes:
        return f'"{word}"'
    return shlex.quote(word)


def read_pictures(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the figures of a folder as data URLs by name, and the names of those left out.

    Figures are left out if there is no room for them on a page. So are links, and files that do
    not begin as pictures do.
    """
    n_bytes_left = MAX_PICTURE_BYTES
    pictures = dict[str, str]()
    left_out = []
    for path in sorted(folder.glob("*.png")):
        if path.is_symlink() or not path.is_file():
            left_out.append(path.name)
            continue
        with open_inner(folder, path.name) as file:
            content = file.read(n_bytes_left + 1)
        if len(content) > n_bytes_left or not content.startswith(PNG_SIGNATURE):
            left_out.append(path.name)
            continue
        n_bytes_left -= len(content)
        encoded = base64.b64encode(content).decode()
        pictures[path.stem] = f"data:image/png;base64,{encoded}"
    return pictures, left_out


# --- series ---------------------------------------------------------------------------------------


def thin(measured: Array, error: Array, max_samples: int) -> Array:
    """Return the indices of at most `max_samples` samples that look like all n samples when drawn.

    If n is at most `max_samples`, all samples are chosen. Otherwise the samples are cut into
    pieces. The first and the last sample are chosen, and in each piece the samples with the
    smallest and the largest measurement, and the one with the largest error.
    """
    n = len(measured)
    if n <= max_samples:
        return np.arange(n)
    n_pieces = max(max_samples // 3, 1)
    kept = {0, n - 1}
    for rows in np.array_split(np.arange(n), n_pieces):
        values = np.nan_to_num(measured[rows])
        errors = np.nan_to_num(np.abs(error[rows]))
        kept.add(int(rows[values.argmin()]))
        kept.add(int(rows[values.argmax()]))
        kept.add(int(rows[errors.argmax()]))
    return np.array(sorted(kept))


def draw_series(
    x: Array,
    measured: Array,
    curves: Mapping[str, Curve],
    *,
    labels: tuple[str, str, str],
    max_samples: int = MAX_SAMPLES_DRAWN,
    since: float | None = None,
    points: Mapping[str, Sequence[Any]] | None = None,
) -> Any:
    """Return a figure of a measured series and its predictions, their errors, and a range slider.

    Lines and bands are broken at gaps of the time, and where values are not finite.

    Parameters
    ----------
    x, measured : (n,)
        Time, and the measurements.
    curves
        Predictions by name. Their bands are drawn if there is one curve.
    labels
        Labels of the axes: time, value, error.
    max_samples
        Largest number of samples that are drawn, see `thin`.
    since
        Position of a line between the data that the model learned and those that validate it.
    points
        Marked samples: columns ``x`` and ``y``, and by label those that a tooltip shows.
    """
    from bokeh.layouts import column
    from bokeh.models import HoverTool, Range1d, RangeTool, Span
    from bokeh.plotting import figure

    source, band_source = _series_sources(x, measured, curves, max_samples)
    end = float(x[-1]) if x[-1] > x[0] else float(x[0]) + 1.0
    ends = float(x[0]), end
    shown_range = Range1d(*ends)
    layout: Any = {**WIDE_LAYOUT, "min_border_left": 75}
    tools: Any = {"x_range": shown_range, "tools": FIGURE_TOOLS, "active_drag": "box_zoom"}
    values = figure(height=360, y_axis_label=labels[1], toolbar_location="above", **tools, **layout)
    errors = figure(
        height=180,
        y_axis_label=labels[2],
        toolbar_location=None,
        x_axis_label=labels[0],
        **tools,
        **layout,
    )
    if band_source is not None:
        band: Any = {"source": band_source, "fill_color": BLUE_OF_PAGES, "fill_alpha": BAND_ALPHA}
        values.varea("x", "low", "high", legend_label=BAND_LABEL, **band)
        errors.varea("x", "minus", "half", **band)
    measured_color = ORANGE_OF_PAGES
    colors: Sequence[str] = (BLUE_OF_PAGES,)
    if len(curves) > 1:
        measured_color = GREY_OF_PAGES
        colors = PALETTE[:6]  # the colours that are visible on black, too
    line_style: Any = {"source": source, "line_width": 1.3}
    line = values.line(
        "x", "measured", color=measured_color, legend_label=MEASURED_LABEL, **line_style
    )
    tooltips = [(labels[0], "@x"), ("measured", "@measured")]
    for number, name in enumerate(curves):
        color = colors[number % len(colors)]
        values.line("x", f"mean{number}", color=color, legend_label=name, **line_style)
        errors.line("x", f"error{number}", source=source, color=color)
        tooltips.append((name, f"@mean{number}"))
    values.add_tools(HoverTool(renderers=[line], mode="vline", tooltips=tooltips))
    if points is not None and len(points["x"]):
        _mark_points(values, points)
    if since is not None:
        for panel in (values, errors):
            border_style: Any = {"line_dash": "dashed", "line_color": "gray"}
            panel.add_layout(Span(location=since, dimension="height", **border_style))
    _move_legend_above(values)
    slider = figure(
        height=70,
        x_range=ends,
        x_axis_type=None,
        y_axis_type=None,
        toolbar_location=None,
        **layout,
    )
    slider.line("x", "measured", source=source, color=measured_color)
    strip = RangeTool(x_range=shown_range, start_gesture="pan")
    strip.overlay.update(fill_color=GREY_OF_PAGES, fill_alpha=0.18, line_color=GREY_OF_PAGES)
    slider.add_tools(strip)
    return column(values, errors, slider, sizing_mode="stretch_width")


def describe_series(drawn: Any, *, predictions: str, border: str = "the end of learning") -> str:
    """Return the caption of a figure of `draw_series`, which names the marks that it has.

    Parameters
    ----------
    drawn
        The figure.
    predictions
        What the figure shows beside the measurements, in words.
    border
        What a dashed line means, if there is one.
    """
    from bokeh.models import Span

    values, errors, _ = drawn.children
    labels = [item.label.value for item in values.legend[0].items]
    sentences = [f"Above: {predictions} and the measurements."]
    if BAND_LABEL in labels:
        sentences.append("Below: their difference, and the 95 % band.")
    else:
        sentences.append("Below: their difference.")
    if POINTS_LABEL in labels:
        sentences.append("Green: samples that the model keeps as stored points.")
    if values.select({"type": Span}):
        sentences.append(f"Dashed line: {border}.")
    sentences += _describe_ends(errors.renderers[-1].data_source.data)
    return " ".join(sentences)


def _describe_ends(columns: Mapping[str, Array]) -> Iterator[str]:
    """Yield why the lines of a figure of `draw_series` end: gaps, missing or diverged values."""
    means = np.array([values for name, values in columns.items() if name.startswith("mean")])
    is_measured = np.isfinite(columns["measured"])
    is_break = np.isnan(columns["measured"]) & np.isnan(means).all(axis=0)
    # the row of nan of a gap has the time of the row before it
    is_gap = is_break & (np.diff(columns["x"], prepend=np.nan) == 0.0)
    if is_gap.any():
        yield "The lines are interrupted at gaps of the time and between records."
    if (~is_measured & ~is_gap).any():
        yield "The line of the measurements ends where samples are missing."
    if (is_measured & ~np.isfinite(means).all(axis=0)).any():
        yield "The line of a prediction ends where there is none, as after a divergence."


def _series_sources(
    x: Array, measured: Array, curves: Mapping[str, Curve], max_samples: int
) -> tuple[Any, Any]:
    """Return the columns of a series and of its band in single precision, about `max_samples` rows.

    Curve number i has the columns ``mean{i}`` and ``error{i}``; a row of nan breaks the lines at
    each gap of x. The band of a single curve has the columns ``low`` and ``high``, and around its
    errors ``minus`` and ``half``; without a band there is no source for it.
    """
    from bokeh.models import ColumnDataSource

    largest_error = np.max([np.abs(measured - curve.mean) for curve in curves.values()], axis=0)
    gaps = find_gaps(x)
    # the ends of what is drawn are kept, unless there are too many of them
    ends = np.flatnonzero(np.diff(np.isfinite(largest_error).astype(int)))
    borders = np.unique(np.concatenate([gaps - 1, gaps, ends, ends + 1]))
    rows = thin(measured, largest_error, max_samples)
    if len(borders) <= MAX_BORDER_SHARE * max_samples:
        rows = np.union1d(rows, borders)
    # a gap that begins after row i of the chosen ones
    before_gap = np.unique(np.searchsorted(rows, gaps, side="left"))
    columns = {"measured": measured[rows]}
    for number, curve in enumerate(curves.values()):
        columns[f"mean{number}"] = curve.mean[rows]
        columns[f"error{number}"] = columns["measured"] - curve.mean[rows]
    broken = {name: np.insert(values, before_gap, np.nan) for name, values in columns.items()}
    broken["x"] = np.insert(x[rows], before_gap, x[rows][before_gap - 1])
    source = ColumnDataSource(_in_single_precision(broken))
    (first_curve, *others) = curves.values()
    if first_curve.half is None or others:
        return source, None
    band = _close_band_at_gaps(x[rows], first_curve.mean[rows], first_curve.half[rows], before_gap)
    return source, ColumnDataSource(_in_single_precision(band))


def _close_band_at_gaps(x: Array, mean: Array, half: Array, gaps: Array) -> dict[str, Array]:
    """Return the columns of a band whose width is zero over each gap, and over missing values.

    Bokeh draws one area through all rows. So the band is closed after the last row before a gap,
    and opened at the first row after it.
    """
    is_known = np.isfinite(mean) & np.isfinite(half)
    kept = np.flatnonzero(is_known)
    # a gap in the kept rows: one of x, or missing values between two of them
    piece = np.searchsorted(gaps, kept, side="right")
    breaks = np.flatnonzero((np.diff(kept) > 1) | (np.diff(piece) > 0)) + 1
    closed = np.repeat(breaks, 2)  # a row at the end of the piece, and one at the next begin
    neighbours = np.ravel(np.column_stack([breaks - 1, breaks])).astype(int)
    x_kept = x[kept]
    mean_kept = mean[kept]
    half_kept = np.insert(half[kept], closed, 0.0)
    x_band = np.insert(x_kept, closed, x_kept[neighbours])
    mean_band = np.insert(mean_kept, closed, mean_kept[neighbours])
    return {
        "x": x_band,
        "low": mean_band - half_kept,
        "high": mean_band + half_kept,
        "minus": -half_kept,
        "half": half_kept,
    }


def _in_single_precision(columns: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(values, np.float32) for name, values in columns.items()}


def _mark_points(panel: Any, points: Mapping[str, Sequence[Any]]) -> None:
    """Mark the stored points in a figure, with a tooltip for each."""
    from bokeh.models import ColumnDataSource, HoverTool

    labels = [name for name in points if name not in ("x", "y")]
    columns = {f"tooltip{i}": points[label] for i, label in enumerate(labels)}
    marks = panel.scatter(
        "x",
        "y",
        source=ColumnDataSource({"x": points["x"], "y": points["y"], **columns}),
        size=7,
        color=GREEN_OF_PAGES,
        alpha=0.8,
        legend_label=POINTS_LABEL,
    )
    tooltips = [(label, f"@{key}") for label, key in zip(labels, columns, strict=True)]
    panel.add_tools(HoverTool(renderers=[marks], tooltips=tooltips))


def _move_legend_above(panel: Any) -> None:
    """Place the legend of a figure above it; a click on an entry hides its curve."""
    legend = panel.legend[0]
    legend.update(
        ncols=2,
        click_policy="hide",
        background_fill_alpha=0.0,
        border_line_alpha=0.0,
        padding=2,
    )
    legend.label_text_color = GREY_OF_PAGES
    panel.add_layout(legend, "above")


def draw_pairs(
    measured: Array, curve: Curve, label: str, *, max_samples: int = MAX_SAMPLES_DRAWN
) -> Any:
    """Return a figure of predictions of independent rows over their measurements.

    Exact predictions lie on the dashed line.
    """
    from bokeh.models import Slope

    rows = thin(measured, measured - curve.mean, max_samples)
    columns = {"row": rows, "measured": measured[rows], "predicted": curve.mean[rows]}
    shown = draw_marks(
        columns,
        "measured",
        "predicted",
        {name: name for name in columns},
        (f"measured {label}", f"predicted {label}"),
        420,
        size=5,
        color=BLUE_OF_PAGES,
        alpha=0.6,
    )
    shown.add_layout(Slope(gradient=1.0, y_intercept=0.0, line_color="gray", line_dash="dashed"))
    return shown


def draw_marks(
    columns: Mapping[str, Any],
    x: str,
    y: str,
    tooltip_columns: Mapping[str, str],
    labels: tuple[str, str],
    height: int,
    **mark_style: Any,
) -> Any:
    """Return a figure of one column over another, as marks with tooltips.

    A tooltip shows the columns that `tooltip_columns` names, by label.
    """
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.plotting import figure

    shown = figure(
        height=height,
        x_axis_label=labels[0],
        y_axis_label=labels[1],
        tools=FIGURE_TOOLS,
        toolbar_location="above",
        **WIDE_LAYOUT,
    )
    shown.scatter(x, y, source=ColumnDataSource(dict(columns)), **mark_style)
    shown.add_tools(
        HoverTool(tooltips=[(label, f"@{name}") for label, name in tooltip_columns.items()])
    )
    return shown
