"""Figures of an identification: what the plant did, what the model said, how the dictionary lived."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.clock import detail, on_clock_of, with_clock
from experiments.plots.style import BLUE, GREEN, GREY, ORANGE, SHADES, label_of, screen, show_from_to, unit_of
from sysid.model.result import INITIAL, ONLINE, VALIDATION
from sysid.simulation.validation import Z_95

PLURALS = ("day", "sample")
DAY = 86400.0  # s
MOST_PANELS = 6
FEW_DAYS = 5  # so many are shown as ranges
HEATING = {"comfort_lower", "comfort_upper", "set_point", "ambient_temperature", "zone_temperature", "mass_flow"}


def drawings(trajectory: xr.Dataset, result: xr.Dataset, noise_variance: float) -> dict[str, Callable[[], Figure]]:
    """Figure name to the function that draws it; a building shows its temperatures, others all signals."""
    trajectory = with_clock(trajectory, "time")
    result = on_clock_of(trajectory, result).assign_attrs(static=trajectory.attrs.get("static", 0))
    plant = {"temperatures": partial(temperatures, trajectory)}
    if trajectory["shown"].attrs["unit"] == "sample" or not set(trajectory) >= HEATING:
        plant = {"signals": partial(signals, trajectory)}
    return {
        **plant,
        "prediction": partial(prediction, result, noise_variance),
        "dictionary": partial(dictionary, result),
        "error": partial(error, result, noise_variance),
    }


def prediction(result: xr.Dataset, noise_variance: float) -> Figure:
    """Predicted target with its 95 % band against the truth in detail, and all errors."""
    chosen = result.isel(sample=np.flatnonzero(result["phase"] != INITIAL))
    phase = VALIDATION if (chosen["phase"] == VALIDATION).any() else ONLINE
    chosen = chosen.isel(sample=np.flatnonzero(chosen["phase"] == phase))
    figure, (series, below) = screen(2, 7.2, height_ratios=[3, 2])
    if not chosen.sizes["sample"]:
        series.set_title("No sample was predicted")
        return figure
    part = chosen.isel(sample=detail(chosen["shown"], 2.0))
    x, mean = part["shown"].values, part["mean"].values
    half = Z_95 * np.sqrt(part["variance"].values + noise_variance)
    title = "By the final model on new data" if phase == VALIDATION else "While learning"
    if result.attrs["static"] or len(x) == 1:  # rows have no order: no line from one to the next
        series.errorbar(x, mean, half, fmt="o", color=BLUE, ecolor=f"{BLUE}60", markersize=3, label="predicted, 95 %")
    else:
        title = f"One step ahead, {title[0].lower()}{title[1:]}"
        series.fill_between(x, mean - half, mean + half, color=BLUE, alpha=0.2, linewidth=0, label="95 % band")
        series.plot(x, mean, color=BLUE, linewidth=1.2, label="predicted")
        show_from_to(series, x)
    series.plot(x, part["target"], ".", color=ORANGE, markersize=4, label="measured")
    series.set(xlabel=part["shown"].attrs["label"], ylabel=label_of(chosen["target"]))
    series.set_title(title, loc="left")
    series.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=3, frameon=False)
    _standardised_errors(below, chosen, noise_variance)
    return figure


def _standardised_errors(ax: Axes, chosen: xr.Dataset, noise_variance: float) -> None:
    z = (chosen["target"] - chosen["mean"]).values / np.sqrt(chosen["variance"].values + noise_variance)
    bins = np.linspace(-5, 5, 81)
    ax.hist(np.clip(z, -5, 5), bins=list(bins), density=True, color=BLUE, alpha=0.5, label="errors / predicted std")
    ax.plot(bins, np.exp(-0.5 * bins**2) / np.sqrt(2 * np.pi), color="black", linewidth=1, label="standard normal")
    inside = 100 * float(np.mean(np.abs(z) <= Z_95))
    ax.set_title(f"All {len(z)} samples: {inside:.1f} % within the 95 % band")
    ax.set(xlabel="standardised prediction error [-]", ylabel="density", xlim=(-5, 5))
    ax.legend(loc="upper left", frameon=False)


def dictionary(result: xr.Dataset) -> Figure:
    """Which points entered the dictionary and left it when, one line per life; and how many came."""
    figure, (lives, count) = screen(2, 7.2, sharex=True, height_ratios=[3, 1])
    steps = result.isel(sample=np.flatnonzero(result["phase"] != VALIDATION))
    x = steps["shown"].values
    if not len(x):
        return figure
    initial = steps["phase"].values == INITIAL
    n_initial = int(steps["n_points"].values[initial][-1]) if initial.any() else 0
    slots, births, deaths = _lives(steps["slot"].values, n_initial, x)
    age = deaths - births
    lines = lives.hlines(slots, births, deaths, linewidth=1.3, array=age, cmap="viridis")
    lives.plot(births, slots, ".", color=ORANGE, markersize=3)
    lives.set_title("Life of the dictionary: a line per point, a dot where it entered")
    lives.set_ylabel("place in the dictionary")
    unit = steps["shown"].attrs["unit"]
    age_label = f"{unit}s in the dictionary" if unit in PLURALS else f"time in the dictionary [{unit}]"
    figure.colorbar(lines, ax=lives, label=age_label, pad=0.01)
    for name, color, width in (("inserted", GREY, 3.5), ("accepted", BLUE, 1.2)):
        label = "asked for a place" if name == "inserted" else "entered"
        count.step(x, np.cumsum(steps[name].values), where="post", color=color, linewidth=width, label=label)
    count.set(xlabel=steps["shown"].attrs["label"], ylabel="samples")
    show_from_to(count, x)
    count.legend(loc="upper left", frameon=False)
    return figure


def _lives(slot: np.ndarray, n_initial: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slot, birth and death of every point; the initial points are born at the start."""
    entered = np.flatnonzero(slot >= 0)
    open_lives = dict.fromkeys(range(n_initial), x[0])
    finished = []
    for k in entered:
        place = int(slot[k])
        if place in open_lives:
            finished.append((place, open_lives[place], x[k]))
        open_lives[place] = x[k]
    finished += [(place, birth, x[-1]) for place, birth in open_lives.items()]
    slots, births, deaths = np.array(finished, dtype=float).reshape(-1, 3).T
    return slots, births, deaths


def error(result: xr.Dataset, noise_variance: float) -> Figure:
    """Root mean squared error and predicted standard deviation over time, and the SMSE so far."""
    figure, (ax, so_far) = screen(2, 6.6, sharex=True, height_ratios=[3, 2])
    chosen = result.isel(sample=np.flatnonzero(result["phase"] != INITIAL))
    if not chosen.sizes["sample"]:
        ax.set_title("No sample was predicted")
        return figure
    x, clock = chosen["shown"].values, chosen["shown"].attrs["unit"]
    width = 1.0 if clock == "day" and x[-1] - x[0] > 10 else max((x[-1] - x[0]) / 40, 1e-9)
    target, squares = chosen["target"].values, (chosen["target"] - chosen["mean"]).values ** 2
    lines = [
        ((chosen["target"] - chosen["unchanged"]).values ** 2, GREY, "predicting no change"),
        (squares, BLUE, "online GP"),
        (chosen["variance"].values + noise_variance, GREEN, "predicted by the GP"),
        (chosen["variance"].values, ORANGE, "predicted, without the noise"),
    ]
    for values, color, label in lines[1:] if result.attrs["static"] else lines:
        ax.plot(*_binned_rms(x, values, width), color=color, linewidth=1.2, label=label)
    if (outliers := np.flatnonzero(chosen["outlier"].values)).size:
        ax.plot(
            x[outliers], np.sqrt(squares[outliers]), "x", color="black", markersize=4, label="outliers, passed over"
        )
    period = clock if width == 1.0 else f"{width:.2g} {clock}{'s' * (clock in PLURALS)}"
    title = "Error of predictions" if result.attrs["static"] else "Error of one-step predictions over time"
    ax.set(ylabel=f"rms per {period} [{unit_of(chosen['target'])}]", yscale="log", title=title)
    ax.legend(loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, -0.02))
    for phase, label in ((ONLINE, "while learning"), (VALIDATION, "model frozen")):
        part = np.flatnonzero(chosen["phase"].values == phase)
        if len(part) > 1:
            smse = np.cumsum(squares[part]) / np.maximum(_sum_of_squares(target[part]), 1e-300)
            shown = slice(min(len(part) // 20, 96), None)
            so_far.plot(x[part][shown], smse[shown], color=BLUE if phase == ONLINE else ORANGE, label=label)
    so_far.set(xlabel=chosen["shown"].attrs["label"], ylabel="SMSE so far [-]", ylim=(0, None))
    if so_far.lines:
        so_far.legend(loc="best", frameon=False)
    for axes in (ax, so_far):
        _shade(axes, chosen, chosen["phase"].values == VALIDATION)
        show_from_to(axes, x)
    return figure


def comparison(summary: dict[str, Any]) -> Figure:
    """Errors of the model beside those of linear models, one step and free run; held-out errors of the lags tried."""
    figure, axes = screen(1, 4.0, ncols=3)
    linear, unit = summary["linear"], summary["target_unit"] or "-"
    arx = {"same_lags": "same lags", "best": "best"}
    names = ["model", *(f"ARX\n{arx[name]}\nna={one['na']}, nb={one['nb']}" for name, one in linear.items())]
    free_run = [(summary["free_run"] or {}).get("rmse"), *(one["free_run_rmse"] for one in linear.values())]
    errors = {"One step ahead": [summary["rmse"], *(one["rmse"] for one in linear.values())], "Free run": free_run}
    for ax, (title, values) in zip(axes, errors.items(), strict=False):
        ax.bar(names, [np.nan if v is None else v for v in values], color=[BLUE, *[ORANGE] * len(linear)])
        ax.set(title=title, ylabel=f"RMSE on the test [{unit}]")
        for i, value in enumerate(values):
            ax.text(i, value or 0.0, "none" if value is None else f"{value:.4g}", ha="center", va="bottom")
    axes[2].set_title("Lags tried, held-out parts")
    for key, color in (("linear", ORANGE), ("model", BLUE)):
        rows = [row for row in (summary["lags"] or {"tried": []})["tried"] if row.get(key) is not None]
        axes[2].plot([row["na"] + row["nb"] for row in rows], [row[key] for row in rows], "o", color=color, label=key)
    axes[2].set(xlabel="na + nb", ylabel=f"RMSE [{unit}]")
    if summary["lags"] is None:
        axes[2].text(0.5, 0.5, "lags were given", ha="center", transform=axes[2].transAxes)
    else:
        axes[2].set_yscale("log")
        axes[2].legend(frameon=False)
    return figure


def _binned_rms(x: np.ndarray, squares: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Middle of each full bin and the root mean square in it."""
    index, starts, counts = np.unique(np.floor(x / width), return_index=True, return_counts=True)
    means = np.add.reduceat(squares, starts) / counts
    full = counts >= 0.5 * np.median(counts)
    return (index[full] + 0.5) * width, np.sqrt(means[full])


def _sum_of_squares(values: np.ndarray) -> np.ndarray:
    """Sum of squared deviations from their mean of the first 1, 2, ... values."""
    n = np.arange(1, len(values) + 1)
    return np.cumsum(values**2) - np.cumsum(values) ** 2 / n


def _shade(ax: Axes, chosen: xr.Dataset, is_after: np.ndarray) -> None:
    """Shade the part of a run after the identified one."""
    after = chosen["shown"].values[is_after]
    if len(after):
        ax.axvspan(after[0], after[-1], color=SHADES[VALIDATION], zorder=0)


# --- what the plant did ---------------------------------------------------------------------------


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
        _shade(whole, trajectory, trajectory["part"].values == 1)
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
    comfort = part["comfort_lower"], part["comfort_upper"]
    week.fill_between(days, *comfort, step="post", color=GREEN, alpha=0.15, label="comfort band")
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
        label, middle = f"{name}, daily range", days[full] + 0.5
        ax.fill_between(middle, low[full], high[full], color=color, alpha=0.6, linewidth=0, label=label)
