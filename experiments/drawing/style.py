"""The style of all figures: sizes of a screen and of a printed page, colours and labels, axes,
files.
"""

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

from sysid.gp.rules import CRITERIA
from sysid.model.result import INITIAL, VALIDATION

BLUE = "#0b6fa4"
ORANGE = "#d9741a"
GREEN = "#3a8a4d"
GREY = "#7a7a7a"
SHADES = {INITIAL: "#e8d9b8", VALIDATION: "#eef3f7"}  # behind the parts of a run

#: the criteria in the order of the paper, and their names for people
LABELS = {name: name.replace("_", " ").capitalize() for name in CRITERIA}
#: of the criteria, and three to spare for others, before they begin again;
#: readable in grey and by the colour-blind (Okabe and Ito, Color universal design)
CRITERION_COLORS = (
    "#0072b2",
    "#56b4e9",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#000000",
    "#7a7a7a",
)
CRITERION_MARKERS = ("o", "v", "s", "^", "D", "P", "X", "h")
COLORS = dict(zip(LABELS, cycle(CRITERION_COLORS), strict=False))
MARKERS = dict(zip(LABELS, cycle(CRITERION_MARKERS), strict=False))
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
PUBLISHED = "#000000"
BASELINE = "#7a7a7a"
WIDTH = 6.69  # inch, the 17 cm of both columns of a page
PAGE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}
#: labelled multiples of the powers of ten on an axis of less than so many decades
SUBDIVISIONS = (
    (0.7, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (1.0, (1.0, 2.0, 5.0)),
    (2.0, (1.0, 3.0)),
)
N_MARKERS = 8  # about so many on a curve
LOGARITHMIC = 3.0  # ratio of the largest to the smallest value from which on an axis is logarithmic


def screen(rows: int, height: float, **options: object) -> tuple[Figure, np.ndarray]:
    """Make a figure for the screen and its axes (rows,) below each other."""
    figure = Figure(figsize=(9.0, height), layout="constrained")
    return figure, tidy(np.atleast_1d(figure.subplots(rows, **options)))  # type: ignore[call-overload]


def page(rows: int, columns: int, height: float, **options: object) -> tuple[Figure, np.ndarray]:
    """Make a figure of a page's width and its axes (rows, columns), to be drawn by `render`."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, tidy(figure.subplots(rows, columns, squeeze=False, **options))  # type: ignore[call-overload]


def tidy(axes: np.ndarray) -> np.ndarray:
    """Axes with a faint grid and two spines."""
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.5)
    return axes


def png(figure: Figure) -> bytes:
    """Write a figure of a screen as PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    return buffer.getvalue()


def render(draw: Callable[[], Figure], *forms: str) -> dict[str, bytes]:
    """Draw a figure of a page and write it as ``png`` or ``pdf``, by form; the same figure gives
    the same bytes.
    """
    found = {}
    with rc_context(PAGE):
        figure = draw()
        for form in forms:
            buffer = BytesIO()
            metadata = {"CreationDate": None} if form == "pdf" else {}
            figure.savefig(buffer, format=form, dpi=200, metadata=metadata)
            found[form] = buffer.getvalue()
    return found


def label_of(variable: xr.DataArray, width: int = 34) -> str:
    """Label of an axis, with the unit if it is known, in lines that fit."""
    unit = f" [{variable.attrs['units']}]" if variable.attrs.get("units") else ""
    return fill(f"{variable.attrs.get('long_name', variable.name)}{unit}", width)


def unit_of(variable: xr.DataArray) -> str:
    """Return the unit for a label; 1 where there is none."""
    return str(variable.attrs.get("units") or "1")


def show_from_to(ax: Axes, x: np.ndarray) -> None:
    """Let an axis begin and end with the data; a single value keeps the axis as it is."""
    if x[-1] > x[0]:
        ax.set_xlim(x[0], x[-1])


def draw_band(
    ax: Axes,
    x: Sequence[float] | np.ndarray,
    values: np.ndarray,
    criterion: str,
    place: float,
) -> None:
    """Median over seeds (x, seed) with the band between their 2.5 and 97.5 percentiles.

    Markers stand at every eighth of the points; `place` in [0, 1) shifts them, so that those of two
    curves differ.
    """
    low, middle, high = np.nanquantile(values, [0.025, 0.5, 0.975], axis=1)
    color = COLORS[criterion]
    step = max(1, len(x) // N_MARKERS)
    ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    marks: dict[str, Any] = {
        "marker": MARKERS[criterion],
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
    axis: Axis, values: np.ndarray, ratio: float = LOGARITHMIC, margin: float = 0.06
) -> None:
    """Choose scale and limits for the finite ones of the values.

    Logarithmic if all are positive and span at least ``ratio``; linear below the smallest positive
    one if there are zeros besides; otherwise linear.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return
    low = float(finite.min())
    high = float(finite.max())
    least = float(finite[finite > 0].min(initial=np.inf))
    is_wide = low >= 0 and high >= ratio * least
    options = {}
    scale = ("log" if low > 0 else "symlog") if is_wide else "linear"
    if is_wide:
        decades = np.log10(high / least)
        room = (high / least) ** margin
        options = {} if low > 0 else {"linthresh": least, "linscale": 0.5}
        low = low / room if low > 0 else -0.3 * least
        high = high * room
    else:
        beyond = margin * (high - low) or 0.05 * abs(high) or 0.5
        low = low - beyond
        high = high + beyond
    name = "x" if axis is axis.axes.xaxis else "y"
    getattr(axis.axes, f"set_{name}scale")(scale, **options)
    getattr(axis.axes, f"set_{name}lim")(low, high)
    if scale == "linear":
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        return
    axis.set_major_formatter("{x:g}")
    if scale == "log":
        axis.set_major_locator(
            LogLocator(subs=next((subs for most, subs in SUBDIVISIONS if decades < most), (1.0,)))
        )
        axis.set_minor_formatter(NullFormatter())


# --- time as a figure shows it: in the unit that fits, or as the number of the sample ---------------

UNITS = {"day": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}  # s
LEAST = 3.0  # units that a record must span to be shown in them
DETAIL = 100  # samples per day of detail, where the unit is not the day
FEWEST = 10  # samples that a detail of days must have


def with_clock(dataset: xr.Dataset, dim: str) -> xr.Dataset:
    """Add the coordinate ``shown`` (dim,): time in the largest unit it spans, with its label.

    Several records one after the other have no common time: they, and static data, show the number
    of the row.
    """
    time = dataset["time"].values
    if (
        len(time) < 2
        or np.any(np.diff(time) <= 0)
        or dataset["time"].attrs.get("units", "s") != "s"
    ):
        rows = np.arange(len(time), dtype=float)
        return dataset.assign_coords(shown=(dim, rows, {"label": "sample", "unit": "sample"}))
    unit = next(
        (unit for unit, length in UNITS.items() if time[-1] - time[0] >= LEAST * length),
        "ms",
    )
    label = unit if unit == "day" else f"time [{unit}]"
    return dataset.assign_coords(shown=(dim, time / UNITS[unit], {"label": label, "unit": unit}))


def on_clock_of(trajectory: xr.Dataset, result: xr.Dataset) -> xr.Dataset:
    """Add ``shown`` (sample,) to a result: what a trajectory with `with_clock` shows at the same
    samples.
    """
    of_both = (
        pd.MultiIndex.from_arrays([one["record"].values, one["time"].values])
        for one in (trajectory, result)
    )
    clock, (known, asked) = trajectory["shown"], of_both
    return result.assign_coords(
        shown=("sample", clock.values[known.get_indexer(asked)], clock.attrs)
    )


def detail(shown: xr.DataArray, days: float) -> slice:
    """Rows at the end to show closely: so many days; 100 rows for each where the unit is not the
    day, or it has few.
    """
    x = shown.values
    n = int(np.sum(x > x[-1] - days)) if shown.attrs["unit"] == "day" else 0
    return slice(max(len(x) - (n if n >= FEWEST else int(DETAIL * days)), 0), len(x))
