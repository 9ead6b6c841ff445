"""Figure of the baselines: what an error costs in memory and in time, on the Building."""

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.studies.baselines.catalogue import METHODS
from experiments.studies.style import BASELINE, COLORS, PUBLISHED, SETTINGS, log_labels, page

BATCH, ONLINE = BASELINE, COLORS["mean_relevance"]
AXES = {
    "peak_bytes": (1e-6, "Peak memory of training [MB]"),
    "train_seconds": (1.0, "Training time [s]"),
    "predict_us": (1.0, "Prediction time [\u00b5s per row]"),
}
MARKERS = dict(zip(METHODS, "osv^DPp*Xh", strict=True))


@rc_context(SETTINGS)
def cost_figure(store: xr.Dataset) -> Figure:
    """SMSE with its quartiles over seeds against memory, training and prediction time."""
    figure, axes = page(1, len(AXES), 2.6, sharey=True)
    names = [name for name in store["model"].values.tolist() if np.isfinite(store["smse"].sel(model=name)).any()]
    floor = float(store["floor_whole_past"].median())
    for ax, (quantity, (factor, label)) in zip(axes[0], AXES.items(), strict=True):
        for name in names:
            _mark(ax, store.sel(model=name), quantity, factor)
        ax.axhline(floor, color=PUBLISHED, linestyle=":", linewidth=0.8)
        ax.set(xscale="log", xlabel=label)
        ax.margins(x=0.15)
        log_labels(ax.xaxis)
    axes[0, 0].set_ylabel("SMSE [1]")
    handles = [
        Line2D([], [], color=_color(name), marker=MARKERS[name], markersize=4, linewidth=0.8, label=METHODS[name].title)
        for name in names
    ]
    handles.append(
        Line2D([], [], color=PUBLISHED, linestyle=":", linewidth=0.8, label="Floor: filter of the true plant")
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _color(name: str) -> str:
    return ONLINE if name.startswith("online") else BATCH


def _mark(ax: Axes, here: xr.Dataset, quantity: str, factor: float) -> None:
    """One method: a point and its quartiles."""
    known = np.isfinite(here["smse"].values)
    low, middle, high = np.quantile(here["smse"].values[known], [0.25, 0.5, 0.75])
    x = factor * float(np.nanmedian(here[quantity].values[known]))
    name = str(here["model"].values)
    spread = [[middle - low], [high - middle]]
    ax.errorbar(x, middle, spread, fmt=MARKERS[name], color=_color(name), markersize=4, linewidth=0.8)
