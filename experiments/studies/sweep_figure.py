"""SMSE, variance and revised points against the error threshold."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.canvas import show_from_to
from experiments.studies.style import BASELINE, PUBLISHED, SETTINGS, band, log_labels, page

TITLES = {
    "none": "Without acceptance",
    "leave_one_out": "Acceptance, leave-one-out",
    "in_sample": "Acceptance, in-sample",
}


ROOM = 1.25  # of a linear axis above the highest median


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
    _scales(axes, part, smse_scale)
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


def _scales(axes: np.ndarray, part: xr.Dataset, smse_scale: str) -> None:
    """Logarithmic variance and revised points; where there may be none these are linear below one.

    On a linear axis of the SMSE the medians decide the upper end: bands of a few bad seeds leave the panel.
    """
    thresholds = part["threshold"].values
    axes[0, 0].set_yscale(smse_scale)
    if smse_scale == "linear":
        axes[0, 0].set_ylim(top=min(axes[0, 0].get_ylim()[1], ROOM * float(part["smse"].median("seed").max())))
    else:
        log_labels(axes[0, 0].yaxis)
    axes[1, 0].set_yscale("log")
    log_labels(axes[1, 0].yaxis)
    if float(part["n_revised"].min()) < 1.0:
        axes[2, 0].set_yscale("symlog", linthresh=1.0, linscale=0.4)
        axes[2, 0].set_ylim(bottom=0.0)
    else:
        axes[2, 0].set_yscale("log")
    show_from_to(axes[0, 0], thresholds)
