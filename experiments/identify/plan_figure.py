"""The figure of inputs that were chosen to learn: plans beside what happened."""

import json

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import style
from experiments.drawing.style import (
    BLUE,
    GREY,
    ORANGE,
    SHADES,
    draw_line,
    fill_band,
    label_of,
    screen,
    show_from_to,
)

MAX_PLANS_DRAWN = 6  # last plans that the figure shows
LEGEND = {"frameon": False, "ncols": 4, "loc": "lower left", "bbox_to_anchor": (0, 1)}


def draw_plans(trajectory: xr.Dataset, plan: xr.Dataset) -> Figure:
    """Draw the last plans beside what happened, the inputs that were applied, and all gains.

    Top: the first planned output, its plans with their 95 % bands, and its limits. Middle: the
    designed inputs. Bottom: the gain of each decision.
    """
    trajectory = style.with_clock(trajectory, "time")
    is_planned = np.isfinite(plan["gain"].values)
    last_plans = np.flatnonzero(is_planned)[-MAX_PLANS_DRAWN:]
    figure, (output, inputs, gains) = screen(3, 8.4, height_ratios=[3, 2, 2])
    if len(last_plans):
        inputs.sharex(output)
        begin = int(plan["first_sample"].values[last_plans[0]])
        end = int(plan["first_sample"].values[last_plans[-1]]) + plan.sizes["step"]
        shown = trajectory.isel(time=slice(begin, end))
        _draw_output(output, trajectory, shown, plan, last_plans)
        _draw_inputs(inputs, shown, plan)
        show_from_to(output, shown["shown"].values)
    else:
        output.set_title("No input was planned: there was no model yet")
    _draw_gains(gains, trajectory, plan)
    return figure


def _draw_output(
    ax: Axes, trajectory: xr.Dataset, shown: xr.Dataset, plan: xr.Dataset, chosen: np.ndarray
) -> None:
    """Draw the first planned output: measurements, the chosen plans, and its limits."""
    name = str(plan["output"].values[0])
    clock = trajectory["shown"].values
    for number, i in enumerate(chosen):
        low, mean, high = (
            plan[f"planned_{kind}"].values[i, :, 0] for kind in ("low", "mean", "high")
        )
        begin = int(plan["first_sample"].values[i])
        n_steps = min(int(np.isfinite(mean).sum()), len(clock) - begin)
        x = clock[begin : begin + n_steps]
        is_first = number == 0
        fill_band(ax, x, low[:n_steps], high[:n_steps], "95 % band" if is_first else "")
        label = "planned" if is_first else None
        draw_line(ax, x, mean[:n_steps], color=ORANGE, linewidth=1.1, label=label)
    measured = shown[name].values
    draw_line(ax, shown["shown"].values, measured, color=BLUE, linewidth=0.9, label="measured")
    limits = json.loads(str(plan.attrs["output_limits"])).get(name, [])
    for number, limit in enumerate(limits):
        label = "limits" if number == 0 else None
        ax.axhline(limit, color=GREY, linestyle="--", linewidth=0.9, label=label)
    ax.set_ylabel(label_of(trajectory[name], 26))
    ax.legend(**LEGEND)


def _draw_inputs(ax: Axes, shown: xr.Dataset, plan: xr.Dataset) -> None:
    """Draw the designed inputs as they were applied."""
    names = plan["designed"].values.tolist()
    for number, name in enumerate(names):
        color = ORANGE if len(names) == 1 else SHADES[number % len(SHADES)]
        label = name.replace("_", " ")
        ax.plot(
            shown["shown"].values,
            shown[name].values,
            drawstyle="steps-post",
            color=color,
            linewidth=0.9,
            label=label,
        )
    ax.set_ylabel(label_of(shown[names[0]], 26) if len(names) == 1 else "designed inputs")
    if len(names) > 1:
        ax.legend(**LEGEND)
    ax.set_xlabel(shown["shown"].attrs["label"])


def _draw_gains(ax: Axes, trajectory: xr.Dataset, plan: xr.Dataset) -> None:
    """Draw the gain of each plan over time; plans that would leave the limits are crosses."""
    x = trajectory["shown"].values[plan["first_sample"].values]
    gain = plan["gain"].values
    is_fallback = plan["fallback"].values != ""
    for chosen, marker, color, label in (
        (~is_fallback, ".", BLUE, "best plan"),
        (is_fallback & np.isfinite(gain), "x", ORANGE, "outputs would leave their limits"),
    ):
        if chosen.any():
            ax.plot(x[chosen], gain[chosen], marker, color=color, label=label)
    if np.isfinite(gain).any():
        ax.legend(**LEGEND)
    ax.set(xlabel=trajectory["shown"].attrs["label"], ylabel=label_of(plan["gain"], 26))
