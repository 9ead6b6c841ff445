"""The figure of inputs that were chosen to learn: plans beside what happened."""

import json

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import style
from experiments.drawing.style import GREY, label_of, show_from_to
from experiments.identify.decision_figure import (
    LEGEND_ABOVE,
    decision_screen,
    draw_applied_inputs,
    draw_decisions,
    draw_plans_and_measurements,
)

N_LAST_PLANS_DRAWN = 6  # last plans that the figure shows


def draw_plans(trajectory: xr.Dataset, plan: xr.Dataset) -> Figure:
    """Draw the last plans beside what happened, the inputs that were applied, and all gains.

    Top: each planned output, its plans with their 95 % bands, and its limits. Middle: the
    designed inputs. Bottom: the gain of each decision, with crosses where the outputs would leave
    their limits.
    """
    trajectory = style.with_clock(trajectory, "time")
    is_planned = np.isfinite(plan["gain"].values)
    last_plans = np.flatnonzero(is_planned)[-N_LAST_PLANS_DRAWN:]
    figure, (*outputs, inputs, gains) = decision_screen(plan, bottom_height=2.0)
    if len(last_plans):
        begin = int(plan["first_sample"].values[last_plans[0]])
        end = int(plan["first_sample"].values[last_plans[-1]]) + plan.sizes["step"]
        shown = trajectory.isel(time=slice(begin, end))
        for number, ax in enumerate(outputs):
            ax.sharex(inputs)
            _draw_output(ax, trajectory, shown, plan, last_plans, number)
        draw_applied_inputs(inputs, shown, plan["designed"].values.tolist(), "designed")
        show_from_to(inputs, shown["shown"].values)
    else:
        outputs[0].set_title("No input was planned: there was no model yet")
    is_best = plan["fallback"].values == ""
    draw_decisions(
        gains,
        trajectory,
        plan,
        "gain",
        dots=("best plan", is_best),
        crosses=("outputs would leave their limits", ~is_best & is_planned),
    )
    gains.set_ylabel(label_of(plan["gain"], 26))
    return figure


def _draw_output(
    ax: Axes,
    trajectory: xr.Dataset,
    shown: xr.Dataset,
    plan: xr.Dataset,
    chosen: np.ndarray,
    output: int,
) -> None:
    """Draw a planned output: measurements, the chosen plans, and its limits.

    A plan is drawn as far as its inputs were applied, up to the output that the last one caused.
    """
    n_applied = np.isfinite(plan["input"].values[:, :, 0]).sum(axis=1)
    draw_plans_and_measurements(
        ax, trajectory, shown, plan, chosen, output=output, delay=0, n_drawn=n_applied + 1
    )
    name = str(plan["output"].values[output])
    limits = json.loads(str(plan.attrs["output_limits"])).get(name, [])
    for number, limit in enumerate(limits):
        label = "limits" if number == 0 else None
        ax.axhline(limit, color=GREY, linestyle="--", linewidth=0.9, label=label)
    ax.legend(**LEGEND_ABOVE)
