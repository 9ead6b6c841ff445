"""What the figures of decided inputs share: plans beside what happened, and the decisions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing.style import (
    BLUE,
    ORANGE,
    PALETTE,
    draw_line,
    fill_band,
    label_of,
    screen,
    show_from_to,
)

#: Keywords of a legend above its axes, in one row.
LEGEND_ABOVE: dict[str, Any] = {
    "frameon": False,
    "ncols": 5,
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
}


def decision_screen(plan: xr.Dataset, *, bottom_height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes for each planned output, for the inputs and for the decisions.

    Without an output there are axes that can say so. `bottom_height` is the height of the axes of
    the decisions, where those of an output have 3.
    """
    n_outputs = max(1, plan.sizes["output"])
    output_height = 8.4 * 3.0 / (5.0 + bottom_height)  # inches
    figure, axes = screen(
        n_outputs + 2,
        8.4 + (n_outputs - 1) * output_height,
        height_ratios=[*[3.0] * n_outputs, 2.0, bottom_height],
    )
    return figure, list(axes)


def draw_plans_and_measurements(
    ax: Axes,
    trajectory: xr.Dataset,
    shown: xr.Dataset,
    plan: xr.Dataset,
    chosen: np.ndarray,
    *,
    output: int,
    delay: int,
    n_drawn: np.ndarray | None = None,
) -> None:
    """Draw a planned output: the means and bands of the chosen plans, the measurements.

    Parameters
    ----------
    ax
    trajectory, shown
        All samples, and those that the axes show, with a clock (`style.with_clock`).
    plan
        All decisions.
    chosen
        Numbers of the decisions whose plans are drawn.
    output
        Number of the output.
    delay
        Samples from the first decided input to the first planned output.
    n_drawn
        Number of samples of each decision's plan that are drawn; None: all.
    """
    one = plan.isel(output=output)
    clock = trajectory["shown"].values
    for number, i in enumerate(chosen):
        low, mean, high = (one[f"planned_{kind}"].values[i] for kind in ("low", "mean", "high"))
        begin = int(plan["first_sample"].values[i]) + delay
        n_steps = min(int(np.isfinite(mean).sum()), len(clock) - begin)
        if n_drawn is not None:
            n_steps = min(n_steps, int(n_drawn[i]))
        x = clock[begin : begin + n_steps]
        is_first = number == 0
        fill_band(ax, x, low[:n_steps], high[:n_steps], "95 % band" if is_first else "")
        label = "planned" if is_first else None
        draw_line(ax, x, mean[:n_steps], color=ORANGE, linewidth=1.1, label=label)
    name = str(one["output"].values)
    measured = shown[name].values
    draw_line(ax, shown["shown"].values, measured, color=BLUE, linewidth=0.9, label="measured")
    ax.set_ylabel(label_of(trajectory[name], 26))


def draw_applied_inputs(ax: Axes, shown: xr.Dataset, names: Sequence[str], kind: str) -> None:
    """Draw inputs as they were applied; several are called `kind` inputs."""
    for number, name in enumerate(names):
        color = ORANGE if len(names) == 1 else PALETTE[number % len(PALETTE)]
        ax.plot(
            shown["shown"].values,
            shown[name].values,
            drawstyle="steps-post",
            color=color,
            linewidth=0.9,
            label=name.replace("_", " "),
        )
    ax.set_ylabel(label_of(shown[names[0]], 26) if len(names) == 1 else f"{kind} inputs")
    if len(names) > 1:
        ax.legend(**LEGEND_ABOVE)
    ax.set_xlabel(shown["shown"].attrs["label"])


def draw_decisions(
    ax: Axes,
    trajectory: xr.Dataset,
    plan: xr.Dataset,
    variable: str,
    *,
    dots: tuple[str, np.ndarray],
    crosses: tuple[str, np.ndarray],
    **settings: Any,
) -> None:
    """Draw a variable of the decisions over the time of the run, as dots and crosses.

    `dots` and `crosses` are labels, and which decisions they stand for. Other settings are those of
    ``Axes.plot``.
    """
    x = trajectory["shown"].values[plan["first_sample"].values]
    y = plan[variable].values
    for (label, is_drawn), marker, color in ((dots, ".", BLUE), (crosses, "x", ORANGE)):
        if is_drawn.any():
            ax.plot(x[is_drawn], y[is_drawn], marker, color=color, label=label, **settings)
    if ax.lines:
        ax.legend(**LEGEND_ABOVE)
    show_from_to(ax, trajectory["shown"].values)
    ax.set_xlabel(trajectory["shown"].attrs["label"])
