"""The look of the figures."""

from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sysid.model.result import INITIAL, VALIDATION

BLUE, ORANGE, GREEN, GREY, RED = "#0b6fa4", "#d9741a", "#3a8a4d", "#7a7a7a", "#b3302c"
SHADES = {INITIAL: "#e8d9b8", VALIDATION: "#eef3f7"}


def canvas(rows: int, height: float, **options: object) -> tuple[Figure, np.ndarray]:
    """Figure and its axes below each other."""
    figure = Figure(figsize=(9.0, height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, **options))  # type: ignore[call-overload]
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.5)
    return figure, axes


def label_of(variable: xr.DataArray, width: int = 34) -> str:
    """Axis label with the unit, in lines that fit."""
    return fill(f"{variable.attrs.get('long_name', variable.name)} [{unit_of(variable)}]", width)


def unit_of(variable: xr.DataArray) -> str:
    """Unit for a label; 1 where there is none."""
    return str(variable.attrs.get("units") or "1")


def show_from_to(ax: Axes, x: np.ndarray) -> None:
    """Let an axis begin and end with the data; a single value keeps the axis as it is."""
    if x[-1] > x[0]:
        ax.set_xlim(x[0], x[-1])
