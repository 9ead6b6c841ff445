"""What the plant did: its signals as a whole and in detail."""

import json

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.clock import detail
from experiments.plots.style import BLUE, GREEN, GREY, ORANGE, SHADES, label_of, screen, show_from_to
from sysid.model.result import VALIDATION

DAY = 86400.0  # s
MOST_PANELS = 6
FEW_DAYS = 5  # so many are shown as ranges


def signals(trajectory: xr.Dataset) -> Figure:
    """Every output and input, the whole run on the left and a detail on the right, up to six signals."""
    outputs, inputs = (json.loads(str(trajectory.attrs[role])) for role in ("outputs", "inputs"))
    names = [*outputs, *inputs][:MOST_PANELS]
    figure, axes = screen(len(names), 1.2 + 1.9 * len(names), ncols=2, width_ratios=[3, 2], squeeze=False)
    panels = axes.reshape(-1, 2)
    near = trajectory.isel(time=detail(trajectory["shown"], 3.0))
    for (whole, close), name in zip(panels, names, strict=True):
        color, held = (BLUE, False) if name in outputs else (ORANGE, trajectory.attrs.get("interpolation") == "held")
        _line(whole, trajectory, name, color, held=held)
        _line(close, near, name, color, held=held)
        if name == outputs[0] and "set_point" in trajectory:
            _line(whole, trajectory, "set_point", GREEN, held=True)
            _line(close, near, "set_point", GREEN, held=True)
            close.legend(["output", "set-point"], frameon=False, ncols=2, loc="best")
        whole.set_ylabel(label_of(trajectory[name], 26), fontsize="small")
        _shade(whole, trajectory)
    what = "All rows" if trajectory.attrs.get("static", 0) else "The whole run"
    panels[0, 0].set_title(f"{what}, shaded: model frozen")
    left_out = f" ({len(names)} of {len(outputs) + len(inputs)} signals)" * (len(names) < len(outputs) + len(inputs))
    panels[0, 1].set_title(f"The end in detail{left_out}")
    for ax in panels[-1]:
        ax.set_xlabel(trajectory["shown"].attrs["label"])
    return figure


def _line(ax: Axes, dataset: xr.Dataset, name: str, color: str, *, held: bool) -> None:
    x, y = dataset["shown"].values, dataset[name].values
    if dataset.attrs.get("static", 0):  # rows have no order
        ax.plot(x, y, ".", color=color, markersize=3)
    else:
        ax.plot(x, y, color=color, linewidth=0.9, drawstyle="steps-post" if held else "default")
    show_from_to(ax, x)


def _shade(ax: Axes, dataset: xr.Dataset) -> None:
    after = dataset["shown"].values[dataset["part"].values == 1]
    if len(after):
        ax.axvspan(after[0], after[-1], color=SHADES[VALIDATION], zorder=0)


def temperatures(trajectory: xr.Dataset) -> Figure:
    """The whole run (daily range) above one week in detail: comfort band, zone, ambient, heating."""
    figure, (year, week, flow) = screen(3, 8.2, height_ratios=[2, 2, 1])
    for name, color in (("ambient", GREY), ("zone", BLUE)):
        _daily_range(year, trajectory["time"].values / DAY, trajectory[f"{name}_temperature"].values, color, name)
    year.set(xlabel="day", ylabel="temperature [°C]")
    show_from_to(year, trajectory["time"].values / DAY)
    year.set_title("The whole run", loc="left")
    year.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=2, frameon=False)
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
    week.set_ylabel("temperature [°C]")
    week.set_title("One week" if days[-1] - days[0] > 6.9 else "In detail", loc="left")
    ambient = week.twinx()
    ambient.plot(days, part["ambient_temperature"], color=GREY, linewidth=1, label="ambient (right axis)")
    ambient.set_ylabel("ambient [°C]", color=GREY)
    ambient.spines["top"].set_visible(False)
    handles = [*week.get_legend_handles_labels()[0], *ambient.get_legend_handles_labels()[0]]
    week.legend(handles=handles, loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, -0.06))
    flow.step(days, 1000 * part["mass_flow"], where="post", color=ORANGE, linewidth=1)
    flow.set(xlabel="day", ylabel="hot water [g/s]")
    for ax in (week, flow):
        show_from_to(ax, days)
    return figure


def _daily_range(ax: Axes, time: np.ndarray, values: np.ndarray, color: str, name: str) -> None:
    """Lowest and highest value of every day with enough samples; the values themselves of a few days."""
    days, starts, counts = np.unique(np.floor(time), return_index=True, return_counts=True)
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    full = counts >= 0.5 * np.median(counts)
    if full.sum() < FEW_DAYS:
        ax.plot(time, values, color=color, linewidth=1, label=name)
    else:
        ax.fill_between(
            days[full] + 0.5, low[full], high[full], color=color, alpha=0.6, linewidth=0, label=f"{name}, daily range"
        )
