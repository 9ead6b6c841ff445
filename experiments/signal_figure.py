"""What the plant did: its signals as a whole and in detail."""

import json

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.canvas import BLUE, GREEN, GREY, ORANGE, SHADES, canvas, label_of
from experiments.clock import detail
from sysid.result import VALIDATION

DAY = 86400.0  # s
MOST_PANELS = 6


def signals(trajectory: xr.Dataset) -> Figure:
    """Every output and input, the whole run on the left and a detail on the right, up to six signals."""
    outputs, inputs = (json.loads(str(trajectory.attrs[role])) for role in ("outputs", "inputs"))
    names = [*outputs, *inputs][:MOST_PANELS]
    figure, axes = canvas(len(names), 1.2 + 1.9 * len(names), ncols=2, width_ratios=[3, 2], squeeze=False)
    panels = axes.reshape(-1, 2)
    near = trajectory.isel(time=detail(trajectory["shown"], 3.0))
    for (whole, close), name in zip(panels, names, strict=True):
        color, held = (BLUE, False) if name in outputs else (ORANGE, trajectory.attrs.get("interpolation") == "held")
        _line(whole, trajectory, name, color, held=held)
        _line(close, near, name, color, held=held)
        if name == outputs[0] and "set_point" in trajectory:
            _line(whole, trajectory, "set_point", GREEN, held=True)
            _line(close, near, "set_point", GREEN, held=True)
            close.legend(["output", "set-point"], frameon=False, ncols=2, loc="upper right")
        whole.set_ylabel(label_of(trajectory[name], 26), fontsize="small")
        _shade(whole, trajectory)
    what = "All rows" if trajectory.attrs.get("static", 0) else "The whole run"
    panels[0, 0].set_title(f"{what}, shaded: model frozen")
    panels[0, 1].set_title("The end in detail")
    for ax in panels[-1]:
        ax.set_xlabel(trajectory["shown"].attrs["label"])
    return figure


def _line(ax: Axes, dataset: xr.Dataset, name: str, color: str, *, held: bool) -> None:
    x, y = dataset["shown"].values, dataset[name].values
    if dataset.attrs.get("static", 0):  # rows have no order
        ax.plot(x, y, ".", color=color, markersize=3)
    else:
        ax.plot(x, y, color=color, linewidth=0.9, drawstyle="steps-post" if held else "default")
    ax.set_xlim(x[0], x[-1])


def _shade(ax: Axes, dataset: xr.Dataset) -> None:
    after = dataset["shown"].values[dataset["part"].values == 1]
    if len(after):
        ax.axvspan(after[0], after[-1], color=SHADES[VALIDATION], zorder=0)


def temperatures(trajectory: xr.Dataset) -> Figure:
    """The whole run (daily range) above one week in detail: comfort band, zone, ambient, heating."""
    figure, (year, week, flow) = canvas(3, 8.2, height_ratios=[2, 2, 1])
    day = np.floor(trajectory["time"].values / DAY)
    _daily_range(year, day, trajectory["ambient_temperature"].values, GREY, "ambient, daily range")
    _daily_range(year, day, trajectory["zone_temperature"].values, BLUE, "zone, daily range")
    year.set(xlabel="day", ylabel="temperature [°C]", title="The whole run", xlim=(0, day[-1] + 1))
    year.legend(loc="upper left", ncols=2, frameon=False)
    part = trajectory.isel(time=detail(trajectory["shown"], 7.0))
    days = part["time"].values / DAY
    week.fill_between(
        days,
        part["comfort_lower"],
        part["comfort_upper"],
        step="post",
        color=GREEN,
        alpha=0.15,
        label="comfort band",
    )
    week.step(days, part["set_point"], where="post", color=GREEN, linewidth=1, label="set-point")
    week.plot(days, part["zone_temperature"], color=BLUE, linewidth=1.2, label="zone")
    week.set(ylabel="temperature [°C]", title="One week")
    ambient = week.twinx()
    ambient.plot(days, part["ambient_temperature"], color=GREY, linewidth=1, label="ambient (right axis)")
    ambient.set_ylabel("ambient [°C]", color=GREY)
    ambient.spines["top"].set_visible(False)
    handles = [*week.get_legend_handles_labels()[0], *ambient.get_legend_handles_labels()[0]]
    week.legend(handles=handles, loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, -0.06))
    flow.step(days, 1000 * part["mass_flow"], where="post", color=ORANGE, linewidth=1)
    flow.set(xlabel="day", ylabel="hot water [g/s]")
    for ax in (week, flow):
        ax.set_xlim(days[0], days[-1])
    return figure


def _daily_range(ax: Axes, day: np.ndarray, values: np.ndarray, color: str, label: str) -> None:
    days, starts = np.unique(day, return_index=True)
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    ax.fill_between(days, low, high, color=color, alpha=0.6, linewidth=0, label=label)
