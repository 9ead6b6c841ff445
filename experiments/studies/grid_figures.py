"""Heat maps of the grid of acceptance and reduction criteria."""

import math

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.studies.grid_verdict import is_matched, relative
from experiments.studies.significant import significant
from experiments.studies.style import SETTINGS, page

SHORT = {
    "none": "none",
    "prior_entropy": "Prior ent.",
    "predictive_entropy": "Pred. ent.",
    "mean_relevance": "Mean rel.",
    "marginal_log_likelihood": "Marg. lik.",
    "log_predictive_density": "Log dens.",
}
COLUMNS = 5  # panels in a row
MOST = 4.0  # ratio at the end of the colours
TICKS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
DARK = 2.2  # ratio from which on the text is white


@rc_context(SETTINGS)
def heat_maps(medians: xr.DataArray) -> Figure:
    """Median SMSE (dataset, acceptance, reduction) over the best cell of each dataset; matched pairs are framed."""
    ratios = relative(medians)
    n_rows = math.ceil(ratios.sizes["dataset"] / COLUMNS)
    figure, axes = page(n_rows, COLUMNS, 0.9 + 1.65 * n_rows)
    norm = LogNorm(1.0, MOST)
    for ax in axes.flat[ratios.sizes["dataset"] :]:
        ax.set_visible(False)
    for i, (ax, ratio) in enumerate(zip(axes.flat, ratios, strict=False)):
        image = ax.imshow(np.clip(ratio.values, 1.0, MOST), norm=norm, cmap="YlOrBr", aspect="auto")
        _annotate(ax, ratio)
        has_left, has_bottom = i % COLUMNS == 0, i + COLUMNS >= ratios.sizes["dataset"]
        _name_axes(ax, ratio, has_left=has_left, has_bottom=has_bottom)
    bar = figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.5, aspect=45, extend="max")
    bar.set_ticks(TICKS, labels=[f"{tick:g}" for tick in TICKS], minor=False)
    bar.ax.minorticks_off()
    bar.set_label("Median SMSE over that of the best pair of the dataset [1]")
    return figure


def _annotate(ax: Axes, ratio: xr.DataArray) -> None:
    """Ratio in every cell, a frame around matched pairs; a dataset without data says so."""
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    if not np.isfinite(ratio.values).any():
        ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center", va="center")
    for (y, x), value in np.ndenumerate(ratio.values):
        if np.isfinite(value):
            color = "white" if value > DARK else "black"
            ax.text(x, y, significant(float(value)), ha="center", va="center", fontsize=5.5, color=color)
        if is_matched(str(ratio["acceptance"].values[y]), str(ratio["reduction"].values[x])):
            ax.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="0.15", linewidth=0.7))


def _name_axes(ax: Axes, ratio: xr.DataArray, *, has_left: bool, has_bottom: bool) -> None:
    """Title and names of the criteria, those along the edges of the page only."""
    ax.set_title(str(ratio["dataset"].item()))
    ax.tick_params(length=0)
    for axis, dimension, is_named in ((ax.yaxis, "acceptance", has_left), (ax.xaxis, "reduction", has_bottom)):
        names = [SHORT[str(name)] for name in ratio[dimension].values]
        axis.set_ticks(range(len(names)), names if is_named else [""] * len(names))
    ax.tick_params(axis="x", labelrotation=90)
    ax.set_ylabel("Acceptance" if has_left else "")
    ax.set_xlabel("Reduction" if has_bottom else "")
