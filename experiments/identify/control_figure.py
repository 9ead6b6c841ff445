"""The figure of predictive control: plans beside what happened."""

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

MAX_PLANS_DRAWN = 5  # plans that the figure shows
N_HORIZONS_SHOWN = 4  # horizons of time that the upper panels show
LEGEND = {"frameon": False, "ncols": 5, "loc": "lower left", "bbox_to_anchor": (0, 1)}


def draw_control(trajectory: xr.Dataset, plan: xr.Dataset) -> Figure:
    """Draw some of the last plans beside what happened, the inputs, and all decisions.

    Top: the first planned output, plans with their 95 % bands, and the limits that the plans keep.
    Middle: the inputs as they were applied. Bottom: the quadratic programs of each decision, with
    crosses where the fallback decided.
    """
    trajectory = style.with_clock(trajectory, "time")
    n_steps = plan.sizes["step"]
    n_samples = trajectory.sizes["time"]
    first_samples = plan["first_sample"].values
    is_planned = plan["reason"].values == ""
    figure, (output, inputs, decisions) = screen(3, 8.4, height_ratios=[3, 2, 1.4])
    if is_planned.any():
        end = min(int(first_samples[is_planned][-1]) + 1, n_samples)
        begin = max(0, end - N_HORIZONS_SHOWN * n_steps)
        is_shown = is_planned & (first_samples >= begin) & (first_samples + n_steps < end)
        candidates = np.flatnonzero(is_shown if is_shown.any() else is_planned)
        chosen = candidates[
            np.unique(np.linspace(0, len(candidates) - 1, MAX_PLANS_DRAWN).round().astype(int))
        ]
        inputs.sharex(output)
        shown = trajectory.isel(time=slice(begin, end))
        _draw_output(output, trajectory, shown, plan, chosen)
        _draw_inputs(inputs, shown, plan)
        show_from_to(output, shown["shown"].values)
    else:
        output.set_title("No plan was applied: the fallback made all decisions")
    _draw_decisions(decisions, trajectory, plan)
    return figure


def _draw_output(
    ax: Axes, trajectory: xr.Dataset, shown: xr.Dataset, plan: xr.Dataset, chosen: np.ndarray
) -> None:
    """Draw the first planned output: measurements, the chosen plans, and its limits."""
    name = str(plan["output"].values[0])
    clock = trajectory["shown"].values
    one = plan.isel(output=0)
    for number, i in enumerate(chosen):
        begin = int(plan["first_sample"].values[i]) + 1  # the first planned output comes next
        n_steps = min(plan.sizes["step"], len(clock) - begin)
        x = clock[begin : begin + n_steps]
        low, mean, high = (
            one[f"planned_{kind}"].values[i, :n_steps] for kind in ("low", "mean", "high")
        )
        is_first = number == 0
        fill_band(ax, x, low, high, "95 % band" if is_first else "")
        draw_line(ax, x, mean, color=ORANGE, linewidth=1.1, label="planned" if is_first else None)
    draw_line(
        ax, shown["shown"].values, shown[name].values, color=BLUE, linewidth=0.9, label="measured"
    )
    _draw_limits(ax, clock, shown, plan, one)
    ax.set_ylabel(label_of(trajectory[name], 26))
    ax.legend(**LEGEND)


def _draw_limits(
    ax: Axes, clock: np.ndarray, shown: xr.Dataset, plan: xr.Dataset, one: xr.Dataset
) -> None:
    """Draw the limits of the output, as the decisions knew them for their next samples."""
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


def _draw_inputs(ax: Axes, shown: xr.Dataset, plan: xr.Dataset) -> None:
    """Draw the planned inputs as they were applied."""
    names = plan["driven"].values.tolist()
    for number, name in enumerate(names):
        color = ORANGE if len(names) == 1 else SHADES[number % len(SHADES)]
        ax.plot(
            shown["shown"].values,
            shown[name].values,
            drawstyle="steps-post",
            color=color,
            linewidth=0.9,
            label=name.replace("_", " "),
        )
    ax.set_ylabel(label_of(shown[names[0]], 26) if len(names) == 1 else "planned inputs")
    if len(names) > 1:
        ax.legend(**LEGEND)
    ax.set_xlabel(shown["shown"].attrs["label"])


def _draw_decisions(ax: Axes, trajectory: xr.Dataset, plan: xr.Dataset) -> None:
    """Draw how many quadratic programs each decision has solved; fallbacks are crosses."""
    x = trajectory["shown"].values[plan["first_sample"].values]
    n_iterations = plan["n_iterations"].values
    is_planned = plan["reason"].values == ""
    for chosen, marker, color, label in (
        (is_planned, ".", BLUE, "plan"),
        (~is_planned, "x", ORANGE, "fallback"),
    ):
        if chosen.any():
            ax.plot(x[chosen], n_iterations[chosen], marker, color=color, markersize=3, label=label)
    ax.legend(**LEGEND)
    ax.set(xlabel=trajectory["shown"].attrs["label"], ylabel="quadratic programs")
