"""The figure of predictive control: plans beside what happened."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import style
from experiments.drawing.style import GREY, show_from_to
from experiments.identify.decision_figure import (
    LEGEND_ABOVE,
    decision_screen,
    draw_applied_inputs,
    draw_decisions,
    draw_plans_and_measurements,
)

MAX_CONTROL_PLANS_DRAWN = 5  # plans that the figure shows, spread over its time
N_HORIZONS_SHOWN = 4  # horizons of time that the upper panels show


def draw_control(trajectory: xr.Dataset, plan: xr.Dataset) -> Figure:
    """Draw some of the last plans beside what happened, the inputs, and all decisions.

    Top: each planned output, plans with their 95 % bands, and the limits that the plans keep.
    Middle: the inputs as they were applied. Bottom: the quadratic programs of each decision, with
    crosses where the fallback decided.
    """
    trajectory = style.with_clock(trajectory, "time")
    n_steps = plan.sizes["step"]
    n_samples = trajectory.sizes["time"]
    first_samples = plan["first_sample"].values
    is_planned = plan["reason"].values == ""
    figure, (*outputs, inputs, decisions) = decision_screen(plan, bottom_height=1.4)
    if is_planned.any():
        end = min(int(first_samples[is_planned][-1]) + 1, n_samples)
        begin = max(0, end - N_HORIZONS_SHOWN * n_steps)
        is_shown = is_planned & (first_samples >= begin) & (first_samples + n_steps < end)
        candidates = np.flatnonzero(is_shown if is_shown.any() else is_planned)
        chosen = candidates[
            np.unique(
                np.linspace(0, len(candidates) - 1, MAX_CONTROL_PLANS_DRAWN).round().astype(int)
            )
        ]
        shown = trajectory.isel(time=slice(begin, end))
        for number, ax in enumerate(outputs):
            ax.sharex(inputs)
            _draw_output(ax, trajectory, shown, plan, chosen, number)
        draw_applied_inputs(inputs, shown, plan["driven"].values.tolist(), "planned")
        show_from_to(inputs, shown["shown"].values)
    else:
        outputs[0].set_title("No plan was applied: the fallback made all decisions")
    draw_decisions(
        decisions,
        trajectory,
        plan,
        "n_iterations",
        dots=("plan", is_planned),
        crosses=("fallback", ~is_planned),
        markersize=3,
    )
    decisions.set_ylabel("quadratic programs")
    return figure


def _draw_output(
    ax: Axes,
    trajectory: xr.Dataset,
    shown: xr.Dataset,
    plan: xr.Dataset,
    chosen: np.ndarray,
    output: int,
) -> None:
    """Draw a planned output: measurements, the chosen plans, and its limits."""
    draw_plans_and_measurements(ax, trajectory, shown, plan, chosen, output=output, delay=1)
    _draw_limits(ax, trajectory["shown"].values, shown, plan, output)
    ax.legend(**LEGEND_ABOVE)


def _draw_limits(
    ax: Axes, clock: np.ndarray, shown: xr.Dataset, plan: xr.Dataset, output: int
) -> None:
    """Draw the limits of an output, as the decisions knew them for their next samples."""
    one = plan.isel(output=output)
    first_samples = plan["first_sample"].values
    n_applied = int(plan.attrs["n_applied"])
    for number, kind in enumerate(("lower", "upper")):
        limit = np.full(len(clock), np.nan)
        for i in np.flatnonzero(plan["reason"].values == ""):
            begin = int(first_samples[i]) + 1
            end = min(begin + n_applied, len(clock))
            limit[begin:end] = one[f"planned_{kind}"].values[i, : end - begin]
        limit[~np.isfinite(limit)] = np.nan
        begin = int(np.searchsorted(clock, shown["shown"].values[0]))
        ax.plot(
            shown["shown"].values,
            limit[begin : begin + shown.sizes["time"]],
            color=GREY,
            linestyle="--",
            linewidth=0.9,
            label="limits" if number == 0 else None,
        )
