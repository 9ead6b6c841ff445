"""Maps on Rastrigin with the points of the dictionary."""

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from experiments.studies.label import LABELS
from experiments.studies.style import SETTINGS, page

MAPS = {  # variable to label and colours
    "absolute_error": ("Absolute error [1]", "magma"),
    "standard_deviation": ("Standard deviation [1]", "viridis"),
}
N_COLORS = 12  # steps of the colours: contours that a printed page keeps
BRIGHTEST = 0.99  # quantile of all maps of a row that gets the last colour


@rc_context(SETTINGS)
def draw(store: xr.Dataset, setting: str, variant: str) -> Figure:
    """Error (above) and standard deviation (below) of seed 0, one column per criterion."""
    part = store.sel(setting=setting, variant=variant).isel(seed=0)
    criteria = store["criterion"].values.tolist()
    figure, axes = page(2, len(criteria), 4.5, sharex=True, sharey=True)
    for row, (name, (label, colors)) in zip(axes, MAPS.items(), strict=True):
        top = float(np.nanquantile(part[name].values, BRIGHTEST))
        for ax, criterion in zip(row, criteria, strict=True):
            image = _map(ax, part.sel(criterion=criterion), name, colors, top)
        figure.colorbar(image, ax=row, label=label, extend="max", pad=0.02)
        row[0].set_ylabel("$x_2$ [1]")
    for ax, criterion in zip(axes[0], criteria, strict=True):
        ax.set_title(LABELS[criterion])
    for ax in axes[-1]:
        ax.set_xlabel("$x_1$ [1]")
    return figure


def _map(ax: Axes, part: xr.Dataset, name: str, colors: str, top: float) -> AxesImage:
    """One map, x1 to the right, x2 upwards; grid points are centres of the pixels."""
    x1, x2 = part["x1"].values, part["x2"].values
    half = 0.5 * (x1[1] - x1[0]), 0.5 * (x2[1] - x2[0])
    extent = (x1[0] - half[0], x1[-1] + half[0], x2[0] - half[1], x2[-1] + half[1])
    values = part[name].transpose("x2", "x1").values
    steps = mpl.colormaps[colors].resampled(N_COLORS)
    image = ax.imshow(values, origin="lower", extent=extent, vmin=0.0, vmax=top, cmap=steps, interpolation="bilinear")
    points = part["point"].transpose("slot", "input").values
    ax.plot(*points.T, "o", color="white", markeredgecolor="black", markeredgewidth=0.4, markersize=2.6)
    ax.grid(visible=False)
    ax.set_xticks([-1, 0, 1])
    ax.set_yticks([-1, 0, 1])
    return image
