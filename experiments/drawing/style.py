"""The style of all figures: sizes for screen and printed page, colours, labels, axes, files."""

import math
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import cycle
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from experiments.drawing.tables import error_unit, shown_unit
from sysid.gp.rules import CRITERIA
from sysid.identified_views import MAX_STEP_RATIO
from sysid.model.result import INITIAL, VALIDATION

BLUE = "#0b6fa4"
ORANGE = "#d9741a"
GREEN = "#3a8a4d"
FAINT_GREEN = "#bcd8c2"  # for lines beneath others
VIOLET = "#8b5fbf"
GREY = "#7a7a7a"
SHADES = {INITIAL: "#e8d9b8", VALIDATION: "#eef3f7"}  # backgrounds of the parts of a run

#: labels of the criteria, in the order of the paper
LABELS = {name: name.replace("_", " ").capitalize() for name in CRITERIA}
#: colours of the criteria, and three more before they are repeated; distinguishable in grey and by
#: the colour-blind (Okabe and Ito, Color universal design)
COLOR_CYCLE = (
    "#0072b2",
    "#56b4e9",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#000000",
    "#7a7a7a",
)
MARKER_CYCLE = ("o", "v", "s", "^", "D", "P", "X", "h")  # markers of the criteria
CRITERION_COLORS = dict(zip(LABELS, cycle(COLOR_CYCLE), strict=False))
CRITERION_MARKERS = dict(zip(LABELS, cycle(MARKER_CYCLE), strict=False))
#: colours and markers of anything else that is compared
PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#000000",
    "#7a7a7a",
)
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "h")
# What a mark and a line grow by for each later one that covers them, so that they show beneath it.
COVERED_MARK_GROWTH = 4.0  # [points]
COVERED_LINE_GROWTH = 2.5  # [points]
N_PANEL_COLUMNS = 4  # panels side by side in a figure of many small ones
PUBLISHED_COLOR = "#000000"  # colour of published results
BASELINE_COLOR = "#7a7a7a"  # colour of baselines
PAGE_WIDTH = 6.69  # width of both columns of a page [inch], 17 cm
#: parameters of matplotlib for a printed page
PAGE_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}
#: labelled multiples of the powers of ten, on an axis of less than this number of decades
SUBDIVISIONS = (
    (0.7, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (1.0, (1.0, 2.0, 5.0)),
    (2.0, (1.0, 3.0)),
)
N_MARKERS_ON_CURVE = 8  # approximate number of markers on a curve
# an axis is logarithmic if the ratio of the largest to the smallest value is at least this
MIN_LOGARITHMIC_RATIO = 3.0


def screen(rows: int, height: float, **options: object) -> tuple[Figure, np.ndarray]:
    """Return a new figure for the screen, and its axes (rows,) below each other."""
    figure = Figure(figsize=(9.0, height), layout="constrained")
    axes = figure.subplots(rows, **options)  # type: ignore[call-overload]
    return figure, tidy(np.atleast_1d(axes))


def page(rows: int, columns: int, height: float, **options: object) -> tuple[Figure, np.ndarray]:
    """Return a new figure of a page's width, for `render`, and its axes (rows, columns)."""
    figure = Figure(figsize=(PAGE_WIDTH, height), layout="constrained")
    axes = figure.subplots(  # type: ignore[call-overload]
        rows, columns, squeeze=False, **options
    )
    return figure, tidy(axes)


def panels_by_title(
    titles: Sequence[str], height: float, x: str, y: str
) -> tuple[Figure, dict[str, Axes]]:
    """Return a new figure of a page's width, and its panels by their titles.

    Parameters
    ----------
    titles : sequence of str
        Of the panels, row by row.
    height : float
        Of a row of panels [inch].
    x, y : str
        Labels of all axes.
    """
    n_rows = max(1, math.ceil(len(titles) / N_PANEL_COLUMNS))
    figure, axes = page(n_rows, N_PANEL_COLUMNS, 0.9 + height * n_rows)
    for ax in axes.flat[len(titles) :]:
        ax.set_visible(False)
    panels = dict(zip(titles, axes.flat, strict=False))
    for title, ax in panels.items():
        ax.set_title(title, fontsize=7)
    figure.supxlabel(x, fontsize=8)
    figure.supylabel(y, fontsize=8)
    return figure, panels


def tidy(axes: np.ndarray) -> np.ndarray:
    """Give axes a faint grid and two spines; return them."""
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.5)
    return axes


def png(figure: Figure) -> bytes:
    """Return a figure for the screen as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    return buffer.getvalue()


def render(draw: Callable[[], Figure], *forms: str) -> dict[str, bytes]:
    """Draw a figure of a page; return the bytes of its files by form, ``png`` or ``pdf``.

    The same figure always gives the same bytes.
    """
    files = {}
    with rc_context(PAGE_STYLE):
        figure = draw()
        for form in forms:
            buffer = BytesIO()
            metadata = {"CreationDate": None} if form == "pdf" else {}
            figure.savefig(buffer, format=form, dpi=200, metadata=metadata)
            files[form] = buffer.getvalue()
    return files


def label_of(variable: xr.DataArray, width: int = 34) -> str:
    """Return the label of an axis in lines of this width, with the unit if it is known."""
    label = str(variable.attrs.get("long_name", variable.name))
    if variable.attrs.get("units"):
        label += f" [{shown_unit(variable.attrs['units'])}]"
    return fill(label, width)


def unit_of(variable: xr.DataArray) -> str:
    """Return the unit for a label; 1 if there is none."""
    return shown_unit(str(variable.attrs.get("units", "")))


def error_unit_of(variable: xr.DataArray) -> str:
    """Return the unit of an error of a variable for a label; 1 if there is none."""
    return shown_unit(error_unit(str(variable.attrs.get("units", ""))))


def count_covers(series: Sequence[np.ndarray], tolerance: float = 1e-9) -> list[int]:
    """Return how many later series coincide with each one, and so cover it in a figure.

    A series has points (n, number of coordinates), of which some may be nan. Two series coincide if
    they have the same points up to a relative tolerance.
    """
    counts = []
    for number, points in enumerate(series):
        later = [other for other in series[number + 1 :] if other.shape == points.shape]
        counts.append(
            sum(np.allclose(points, other, tolerance, 0.0, equal_nan=True) for other in later)
        )
    return counts


def show_from_to(ax: Axes, x: np.ndarray) -> None:
    """Let the x axis begin and end with the data; a single value leaves it unchanged."""
    if x[-1] > x[0]:
        ax.set_xlim(x[0], x[-1])


def draw_band(
    ax: Axes,
    x: Sequence[float] | np.ndarray,
    values: np.ndarray,
    criterion: str,
    place: float,
) -> None:
    """Draw the median of values (x, seed) over seeds, with the band of 2.5 to 97.5 percent.

    About eight points of the curve have markers. `place` in [0, 1) shifts these, so that the
    markers of two curves do not coincide.
    """
    low, middle, high = np.nanquantile(values, [0.025, 0.5, 0.975], axis=1)
    color = CRITERION_COLORS[criterion]
    step = max(1, len(x) // N_MARKERS_ON_CURVE)
    ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    marks: dict[str, Any] = {
        "marker": CRITERION_MARKERS[criterion],
        "markersize": 3.5,
        "markeredgewidth": 0,
    }
    ax.plot(
        x,
        middle,
        color=color,
        label=LABELS[criterion],
        markevery=(int(place * step), step),
        **marks,
    )


def scale_axis(
    axis: Axis,
    values: np.ndarray,
    ratio: float = MIN_LOGARITHMIC_RATIO,
    margin: float = 0.06,
) -> None:
    """Choose the scale and the limits of an axis for the finite values.

    The scale is logarithmic if all values are positive and their ratio is at least ``ratio``. If
    there are zeros too, it is linear below the smallest positive value. Otherwise it is linear.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return
    low = float(finite.min())
    high = float(finite.max())
    smallest_positive = float(finite[finite > 0].min(initial=np.inf))
    is_wide = low >= 0 and high >= ratio * smallest_positive
    if not is_wide:
        # the margin of equal values is a fraction of them, and that of zeros is 0.5
        beyond = margin * (high - low) or 0.05 * abs(high) or 0.5
        _set_scale(axis, "linear", low - beyond, high + beyond)
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        return
    room = (high / smallest_positive) ** margin
    if low > 0:
        _set_scale(axis, "log", low / room, high * room)
        axis.set_major_formatter("{x:g}")
        decades = np.log10(high / smallest_positive)
        axis.set_major_locator(LogLocator(subs=_labelled_multiples(decades)))
        axis.set_minor_formatter(NullFormatter())
    else:
        options = {"linthresh": smallest_positive, "linscale": 0.5}
        _set_scale(axis, "symlog", -0.3 * smallest_positive, high * room, **options)
        axis.set_major_formatter("{x:g}")


def _set_scale(axis: Axis, scale: str, low: float, high: float, **options: float) -> None:
    """Set the scale and the limits of an axis."""
    name = "x" if axis is axis.axes.xaxis else "y"
    getattr(axis.axes, f"set_{name}scale")(scale, **options)
    getattr(axis.axes, f"set_{name}lim")(low, high)


def _labelled_multiples(decades: float) -> tuple[float, ...]:
    """Return the multiples of the powers of ten that are labelled on an axis of these decades."""
    for max_decades, multiples in SUBDIVISIONS:
        if decades < max_decades:
            return multiples
    return (1.0,)


# --- time in a figure: in the unit that fits, or as the number of the sample ----------------------

CLOCK_UNITS = {"day": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}  # lengths [s]
MIN_UNITS_SPANNED = 3.0  # a record is shown in a unit if it spans at least this number of them
DETAIL_SAMPLES_PER_DAY = 100  # samples shown for a day of detail if the unit is not the day
MIN_DETAIL_SAMPLES = 10  # samples that a detail in days must have
# room between two records without a common clock, as a fraction of the time of all records
ROOM_BETWEEN_RECORDS = 0.02


def with_clock(dataset: xr.Dataset, dim: str) -> xr.Dataset:
    """Return a data set with the coordinate ``shown`` (dim,) and its label.

    It is the time in the largest unit that the record spans. Records (coordinate ``record``) whose
    times follow each other share a clock. Other records stand side by side, with room between them.
    Data without a time that increases in each record show the number of the row: static data do.
    """
    time = dataset["time"].values
    record = np.zeros(len(time))
    if "record" in dataset.coords:
        record = dataset["record"].values
    is_in_seconds = dataset["time"].attrs.get("units", "s") == "s"
    begins = np.append(0, np.flatnonzero(np.diff(record)) + 1)
    within = np.delete(np.diff(time), begins[1:] - 1)  # time steps within the records
    if not len(within) or np.any(within <= 0) or not is_in_seconds:
        rows = np.arange(len(time), dtype=float)
        return dataset.assign_coords(shown=(dim, rows, {"label": "sample", "unit": "sample"}))
    seconds, has_one_clock = _place_records(time, begins)
    unit = _unit_for(seconds[-1] - seconds[0])
    label = unit if unit == "day" else f"time [{unit}]"
    if not has_one_clock:
        label += ", records side by side"
    attributes = {"label": label, "unit": unit}
    return dataset.assign_coords(shown=(dim, seconds / CLOCK_UNITS[unit], attributes))


def _place_records(time: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, bool]:
    """Place records that begin at these rows along one axis.

    Returns
    -------
    seconds (n,)
        Place of every sample [s].
    has_one_clock
        Whether every record begins after the end of the record before it, so that the places are
        the times.
    """
    ends = np.append(begins[1:], len(time))
    room = ROOM_BETWEEN_RECORDS * float(np.sum(time[ends - 1] - time[begins]))
    steps = np.delete(np.diff(time), begins[1:] - 1)
    room = max(room, 2.0 * MAX_STEP_RATIO * float(np.median(steps)))
    seconds = time.astype(float)
    offset = 0.0
    for number, begin in enumerate(begins):
        if number and time[begin] <= time[begin - 1]:
            offset = seconds[begin - 1] + room - time[begin]
        seconds[begin : ends[number]] += offset
    return seconds, offset == 0.0


def find_gaps(x: np.ndarray) -> np.ndarray:
    """Return the indices of the samples that follow a gap: a long step, or one back.

    >>> find_gaps(np.array([0.0, 1.0, 2.0, 5.0, 6.0, 0.0, 1.0]))
    array([3, 5])
    """
    steps = np.diff(x)
    forward = steps[steps > 0]
    longest = MAX_STEP_RATIO * np.median(forward) if len(forward) else np.inf
    return np.flatnonzero((steps > longest) | (steps < 0)) + 1


def break_at_gaps(x: np.ndarray, *columns: np.ndarray) -> list[np.ndarray]:
    """Return x and columns (n,) with nan in every gap of x, where lines and bands end.

    >>> x, y = break_at_gaps(np.array([0.0, 1.0, 2.0, 5.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    >>> x.tolist(), y.tolist()
    ([0.0, 1.0, 2.0, nan, 5.0], [1.0, 2.0, 3.0, nan, 4.0])
    """
    gaps = find_gaps(x)
    return [np.insert(np.asarray(column, dtype=float), gaps, np.nan) for column in (x, *columns)]


def draw_line(ax: Axes, x: np.ndarray, y: np.ndarray, **options: Any) -> None:
    """Draw a line that is broken at gaps; a sample between two gaps is a dot."""
    x_broken, y_broken = break_at_gaps(x, y)
    (line,) = ax.plot(x_broken, y_broken, **options)
    is_known = np.pad(np.isfinite(y_broken), 1)
    is_single = (is_known[1:-1] & ~is_known[:-2] & ~is_known[2:]).nonzero()[0]
    if len(is_single):
        dots: dict[str, Any] = {"color": line.get_color(), "markersize": 2}
        ax.plot(x_broken[is_single], y_broken[is_single], ".", **dots)


def fill_band(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, label: str = "") -> None:
    """Fill the 95 % band between two curves; it is broken at gaps."""
    style: dict[str, Any] = {"color": BLUE, "alpha": 0.2, "linewidth": 0}
    if label:
        style["label"] = label
    ax.fill_between(*break_at_gaps(x, low, high), **style)  # type: ignore[arg-type]


def _unit_for(span: float) -> str:
    """Return the largest unit for a time span [s]."""
    for unit, length in CLOCK_UNITS.items():
        if span >= MIN_UNITS_SPANNED * length:
            return unit
    return "ms"


def on_own_clock(dataset: xr.Dataset, dim: str) -> xr.Dataset:
    """Return rows with `with_clock` whose time is their own if all are of one record."""
    has_time = dataset["shown"].attrs["unit"] != "sample"
    if has_time and np.unique(dataset["record"]).size == 1 and dataset.sizes[dim] > 1:
        return with_clock(dataset, dim)
    return dataset


def on_clock_of(trajectory: xr.Dataset, result: xr.Dataset) -> xr.Dataset:
    """Return a result with ``shown`` (sample,), copied from a trajectory with `with_clock`."""
    clock = trajectory["shown"]
    known = pd.MultiIndex.from_arrays([trajectory["record"].values, trajectory["time"].values])
    wanted = pd.MultiIndex.from_arrays([result["record"].values, result["time"].values])
    values = clock.values[known.get_indexer(wanted)]
    return result.assign_coords(shown=("sample", values, clock.attrs))


def detail(shown: xr.DataArray, days: float) -> slice:
    """Return the rows at the end that a figure shows in detail: this many days.

    It is 100 rows for each day if the unit is not the day, or if the days have few rows.
    """
    x = shown.values
    n_rows = 0
    if shown.attrs["unit"] == "day":
        n_rows = int(np.sum(x > x[-1] - days))
    if n_rows < MIN_DETAIL_SAMPLES:
        n_rows = int(DETAIL_SAMPLES_PER_DAY * days)
    return slice(max(len(x) - n_rows, 0), len(x))
