"""The loop around the model beside the loop around the plant."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.canvas import BLUE, GREEN, ORANGE, canvas, show_from_to
from experiments.plots.clock import with_clock
from experiments.validation.assessment import Assessment
from experiments.validation.figure import keep_in_sight
from experiments.validation.loop_comparison import LoopComparison
from sysid.simulation.validation import Z_95


def loop_page(assessment: Assessment, loop: LoopComparison) -> Figure:
    """Every output and every driven input of both loops, with the 95 % band over the functions of the model."""
    n_outputs, n_rows = len(assessment.outputs), len(assessment.outputs) + len(loop.driven)
    figure, axes = canvas(n_rows, 1.0 + 2.6 * n_rows, sharex=True)
    record = with_clock(xr.Dataset(coords={"time": loop.time}), "time")
    x = record["shown"].values
    noise = assessment.joint.noise_variance
    for i, ax in enumerate(axes):
        is_output = i < n_outputs
        j = i if is_output else i - n_outputs
        name = assessment.outputs[j] if is_output else loop.driven[j]
        plant, model = (a[:, j] for a in ((loop.measured, loop.mean) if is_output else (loop.applied, loop.commanded)))
        variance = loop.variance if is_output else loop.commanded_variance
        if variance is not None:
            half = Z_95 * np.sqrt(variance[:, j] + (noise[j] if is_output else 0.0))
            ax.fill_between(x, model - half, model + half, color=BLUE, alpha=0.2, linewidth=0, label="95 % band")
        ax.plot(x, plant, color=ORANGE, linewidth=0.9, label="around the plant")
        ax.plot(x, model, color=BLUE, linewidth=0.9, label="around the model")
        ax.set_ylabel(f"{name} [{assessment.unit(name) or '1'}]")
        show_from_to(ax, x)
        keep_in_sight(ax, plant, model)
    _set_point(axes[0], assessment, loop, x)
    axes[0].set_title(f"The same controller around the plant and the model, after {loop.window} samples", loc="left")
    axes[0].legend(frameon=False, ncols=4, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 0.0))
    axes[-1].set_xlabel(record["shown"].attrs["label"])
    return figure


def _set_point(ax: Axes, assessment: Assessment, loop: LoopComparison, x: np.ndarray) -> None:
    """What the controller aims at, where it reads the first output."""
    plant = assessment.material.plant
    if plant is None or plant.controller.outputs_read[:1] != assessment.outputs[:1]:
        return
    aims = plant.controller.references(loop.time)
    if "set_point" in aims:
        ax.plot(x, aims["set_point"].values, color=GREEN, linewidth=0.9, drawstyle="steps-post", label="set-point")
