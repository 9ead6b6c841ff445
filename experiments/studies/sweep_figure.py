"""SMSE, variance and revised points against the error threshold."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.studies.style import BASELINE, PUBLISHED, SETTINGS, band, page

TITLES = {
    "none": "Without acceptance",
    "leave_one_out": "Acceptance, leave-one-out",
    "in_sample": "Acceptance, in-sample",
}


@rc_context(SETTINGS)
def draw(store: xr.Dataset, setting: str, baseline: str, smse_scale: str) -> Figure:
    """Median over seeds and 95 % band, one column per variant with data; the SMSE ``log`` or ``linear``."""
    part = store.sel(setting=setting).dropna("threshold", how="all", subset=["smse"])
    part = part.sel(variant=list(TITLES)).dropna("variant", how="all", subset=["smse"])
    unit = part["threshold"].attrs["units"]
    variants = part["variant"].values.tolist()
    figure, axes = page(3, len(variants), 5.6, sharex=True, sharey="row")
    for column, variant in zip(axes.T, variants, strict=True):
        column[0].set_title(TITLES[variant])
        _panels(column, part.sel(variant=variant))
        _baselines(column[0], store, baseline)
        column[-1].set_xlabel(f"Error threshold [{unit}]")
    quantities = ("SMSE [1]", f"Mean variance [{unit}$^2$]", "Revised points [1]")
    for ax, quantity in zip(axes[:, 0], quantities, strict=True):
        ax.set_ylabel(quantity)
    axes[0, 0].set_yscale(smse_scale)
    _scales(axes, part)
    figure.align_ylabels(axes[:, 0])
    curves, labels = axes[0, 0].get_legend_handles_labels()
    n = part.sizes["criterion"]
    figure.legend(curves[:n], labels[:n], loc="outside upper center", ncols=n)
    figure.legend(curves[n:], labels[n:], loc="outside lower center", ncols=2)
    return figure


def _panels(column: Sequence[Axes], part: xr.Dataset) -> None:
    """Curves of all criteria in the panels of one variant."""
    part = part.transpose("criterion", "threshold", "seed")
    for ax, name in zip(column, ("smse", "mean_variance", "n_revised"), strict=True):
        for criterion, values in zip(part["criterion"].values.tolist(), part[name].values, strict=True):
            band(ax, part["threshold"].values, values, criterion)


def _baselines(ax: Axes, store: xr.Dataset, name: str) -> None:
    """Horizontal lines: the published SMSE, and ours if it is there."""
    ax.axhline(float(store["baseline_smse_published"]), color=PUBLISHED, linestyle=":", label=f"{name} (published)")
    own = float(store["baseline_smse"])
    if np.isfinite(own):
        ax.axhline(own, color=BASELINE, linestyle="--", label=f"{name} (ours)")


def _scales(axes: np.ndarray, part: xr.Dataset) -> None:
    """Logarithmic variance and revised points; where there may be none these are linear below one."""
    thresholds = part["threshold"].values
    axes[1, 0].set_yscale("log")
    axes[1, 0].yaxis.set_minor_formatter(NullFormatter())
    if float(part["n_revised"].min()) < 1.0:
        axes[2, 0].set_yscale("symlog", linthresh=1.0, linscale=0.4)
        axes[2, 0].set_ylim(bottom=0.0)
    else:
        axes[2, 0].set_yscale("log")
    axes[0, 0].set_xlim(thresholds[0], thresholds[-1])
