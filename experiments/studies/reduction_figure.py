"""SMSE while a dictionary is reduced, one panel per function."""

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.studies.style import SETTINGS, band, page


@rc_context(SETTINGS)
def draw(store: xr.Dataset, setting: str) -> Figure:
    """Median over seeds and 95 % band against the number of points."""
    figure, axes = page(2, 2, 4.6, sharex=True)
    for ax, dataset in zip(axes.flat, store["dataset"].values.tolist(), strict=True):
        ax.set_title(dataset)
        smse = store["smse"].sel(setting=setting, dataset=dataset).transpose("criterion", "n_points", "seed")
        if bool(smse.notnull().any()):
            _curves(ax, smse)
        else:
            ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center")
    for ax in axes[-1]:
        ax.set_xlabel("Points left")
    for ax in axes[:, 0]:
        ax.set_ylabel("SMSE [1]")
    drawn = next(ax for ax in axes.flat if ax.lines)
    figure.legend(*drawn.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _curves(ax: Axes, smse: xr.DataArray) -> None:
    """One curve per criterion, from many points to one."""
    sizes = smse["n_points"].values
    for criterion, values in zip(smse["criterion"].values.tolist(), smse.values, strict=True):
        band(ax, sizes, values, criterion)
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high < 20.0 * low:  # show at least one decade from power to power
        ax.set_ylim(bottom=10.0 ** np.floor(np.log10(low)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(sizes.max(), sizes.min())
