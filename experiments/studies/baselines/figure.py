"""Figure of the baselines: what an error costs in memory and in time, on the Building."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.studies.baselines.catalogue import METHODS
from experiments.studies.style import BASELINE, COLORS, PUBLISHED, page

BATCH, ONLINE = BASELINE, COLORS["mean_relevance"]
AXES = {
    "peak_bytes": (1e-6, "peak memory of training / MB"),
    "train_seconds": (1.0, "training time / s"),
    "predict_us": (1.0, "prediction time / us per point"),
}


def cost_figure(store: xr.Dataset) -> Figure:
    """SMSE with its quartiles over seeds against memory, training and prediction time."""
    figure, axes = page(1, len(AXES), 2.6, sharey=True)
    for ax, (quantity, (factor, label)) in zip(axes[0], AXES.items(), strict=True):
        for name in store["model"].values:
            _mark(ax, store.sel(model=name), quantity, factor)
        floor = float(store["floor_whole_past"].median())
        ax.axhline(floor, color=PUBLISHED, linestyle=":", linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel=label)
        ax.margins(x=0.35)
    axes[0, 0].set_ylabel("SMSE")
    axes[0, 0].annotate("floor", (0.98, floor), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    return figure


def _mark(ax: Axes, here: xr.Dataset, quantity: str, factor: float) -> None:
    """One method: a point, its quartiles, its name."""
    known = np.isfinite(here["smse"].values)
    if not known.any():
        return
    low, middle, high = np.quantile(here["smse"].values[known], [0.25, 0.5, 0.75])
    x = factor * float(np.nanmedian(here[quantity].values[known]))
    method = METHODS[str(here["model"].values)]
    color = ONLINE if method.name.startswith("online") else BATCH
    ax.errorbar(x, middle, [[middle - low], [high - middle]], fmt="o", color=color, markersize=3, linewidth=0.8)
    ax.annotate(method.title, (x, middle), xytext=(3, 3), textcoords="offset points", color=color, fontsize=7)
