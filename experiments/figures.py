"""Figures of an identification: what the plant did, what the model said, how the dictionary lived."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sysid.result import INITIAL, ONLINE, VALIDATION
from sysid.validation import Z_95

DAY = 86400.0  # s
BLUE, ORANGE, GREEN, GREY, RED = "#0b6fa4", "#d9741a", "#3a8a4d", "#7a7a7a", "#b3302c"
SHADES = {INITIAL: "#e8d9b8", VALIDATION: "#eef3f7"}


def drawings(trajectory: xr.Dataset, result: xr.Dataset, noise_variance: float) -> dict[str, Callable[[], Figure]]:
    """Figure name to the function that draws it."""
    return {
        "temperatures": partial(temperatures, trajectory),
        "prediction": partial(prediction, result, noise_variance),
        "dictionary": partial(dictionary, result),
        "error": partial(error, result, noise_variance),
    }


def png(figure: Figure) -> bytes:
    """Figure as PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    return buffer.getvalue()


def _figure(rows: int, height: float, **options: object) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(9.0, height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, 1, **options))  # type: ignore[call-overload]
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.5)
    return figure, axes


def _week(time: np.ndarray, days: float) -> slice:
    """The last whole days of the record that start with a full week of the run, at most `days`."""
    start = max(time[-1] - (days + 7) * DAY, time[0])
    start = np.ceil(start / (7 * DAY)) * 7 * DAY if time[-1] - time[0] > (days + 7) * DAY else start
    return slice(*np.searchsorted(time, [start, start + days * DAY]))


def temperatures(trajectory: xr.Dataset) -> Figure:
    """The whole run (daily range) above one week in detail: comfort band, zone, ambient, heating."""
    figure, (year, week, flow) = _figure(3, 8.2, height_ratios=[2, 2, 1])
    time = trajectory["time"].values
    day = np.floor(time / DAY)
    _daily_range(year, day, trajectory["ambient_temperature"].values, GREY, "ambient, daily range")
    _daily_range(year, day, trajectory["zone_temperature"].values, BLUE, "zone, daily range")
    year.set(xlabel="day", ylabel="temperature [°C]", title="The whole run", xlim=(0, time[-1] / DAY))
    year.legend(loc="upper left", ncols=2, frameon=False)
    part = trajectory.isel(time=_week(time, 7.0))
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


def prediction(result: xr.Dataset, noise_variance: float) -> Figure:
    """Predicted target with its 95 % band against the truth over two days, and all of them as a scatter."""
    chosen = result.isel(sample=np.flatnonzero(result["phase"] != INITIAL))
    phase = VALIDATION if (chosen["phase"] == VALIDATION).any() else ONLINE
    chosen = chosen.isel(sample=np.flatnonzero(chosen["phase"] == phase))
    figure, (series, below) = _figure(2, 7.2, height_ratios=[3, 2])
    if not chosen.sizes["sample"]:
        series.set_title("No sample was predicted")
        return figure
    part = chosen.isel(sample=_week(chosen["time"].values, 2.0))
    days, mean = part["time"].values / DAY, part["mean"].values
    half = Z_95 * np.sqrt(part["variance"].values + noise_variance)
    series.fill_between(days, mean - half, mean + half, color=BLUE, alpha=0.2, linewidth=0, label="95 % band")
    series.plot(days, mean, color=BLUE, linewidth=1.2, label="predicted")
    series.plot(days, part["target"], ".", color=ORANGE, markersize=4, label="measured")
    title = "One step ahead, " + ("by the final model on new data" if phase == VALIDATION else "while learning")
    series.set(xlabel="day", ylabel=_label(chosen["target"]), title=title, xlim=(days[0], days[-1]))
    series.legend(loc="upper left", ncols=3, frameon=False)
    _standardised_errors(below, chosen, noise_variance)
    return figure


def _standardised_errors(ax: Axes, chosen: xr.Dataset, noise_variance: float) -> None:
    z = (chosen["target"] - chosen["mean"]).values / np.sqrt(chosen["variance"].values + noise_variance)
    bins = np.linspace(-5, 5, 81)
    ax.hist(
        np.clip(z, -5, 5),
        bins=list(bins),
        density=True,
        color=BLUE,
        alpha=0.5,
        label="errors / predicted std",
    )
    ax.plot(bins, np.exp(-0.5 * bins**2) / np.sqrt(2 * np.pi), color="black", linewidth=1, label="standard normal")
    inside = 100 * float(np.mean(np.abs(z) <= Z_95))
    ax.set(
        xlabel="standardised prediction error [-]",
        ylabel="density",
        title=f"All {len(z)} samples: {inside:.1f} % within the 95 % band",
        xlim=(-5, 5),
    )
    ax.legend(loc="upper left", frameon=False)


def dictionary(result: xr.Dataset) -> Figure:
    """Which points entered the dictionary and left it when, one line per life; and how many came."""
    figure, (lives, count) = _figure(2, 7.2, sharex=True, height_ratios=[3, 1])
    steps = result.isel(sample=np.flatnonzero(result["phase"] != VALIDATION))
    days = steps["time"].values / DAY
    if not len(days):
        return figure
    initial = steps["phase"].values == INITIAL
    n_initial = int(steps["n_points"].values[initial][-1]) if initial.any() else 0
    slots, births, deaths = _lives(steps["slot"].values, n_initial, days)
    age = deaths - births
    lines = lives.hlines(slots, births, deaths, linewidth=1.3, array=age, cmap="viridis")
    lives.plot(births, slots, ".", color=ORANGE, markersize=3)
    lives.set(
        ylabel="place in the dictionary",
        title="Life of the dictionary: a line per point, a dot where it entered",
    )
    figure.colorbar(lines, ax=lives, label="days in the dictionary", pad=0.01)
    for name, color, width in (("inserted", GREY, 3.5), ("accepted", BLUE, 1.2)):
        label = "asked for a place" if name == "inserted" else "entered"
        count.step(days, np.cumsum(steps[name].values), where="post", color=color, linewidth=width, label=label)
    count.set(xlabel="day", ylabel="samples", xlim=(0, days[-1]))
    count.legend(loc="upper left", frameon=False)
    return figure


def _lives(slot: np.ndarray, n_initial: int, days: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slot, day of birth and day of death of every point; the initial points are born at the start."""
    entered = np.flatnonzero(slot >= 0)
    open_lives = dict.fromkeys(range(n_initial), days[0])
    finished = []
    for k in entered:
        place = int(slot[k])
        if place in open_lives:
            finished.append((place, open_lives[place], days[k]))
        open_lives[place] = days[k]
    finished += [(place, birth, days[-1]) for place, birth in open_lives.items()]
    slots, births, deaths = np.array(finished, dtype=float).reshape(-1, 3).T
    return slots, births, deaths


def error(result: xr.Dataset, noise_variance: float) -> Figure:
    """Root mean squared error and predicted standard deviation per day, and the SMSE so far."""
    figure, (ax, so_far) = _figure(2, 6.6, sharex=True, height_ratios=[3, 2])
    chosen = result.isel(sample=np.flatnonzero(result["phase"] != INITIAL))
    if not chosen.sizes["sample"]:
        ax.set_title("No sample was predicted")
        return figure
    days = chosen["time"].values / DAY
    width = 1.0 if days[-1] - days[0] > 10 else max((days[-1] - days[0]) / 10, 1e-9)
    target, squares = chosen["target"].values, (chosen["target"] - chosen["mean"]).values ** 2
    for values, color, label in (
        ((chosen["target"] - chosen["unchanged"]).values ** 2, GREY, "predicting no change"),
        (squares, BLUE, "online GP"),
        (chosen["variance"].values + noise_variance, GREEN, "predicted by the GP"),
        (chosen["variance"].values, ORANGE, "predicted, without the noise"),
    ):
        ax.plot(*_binned_rms(days, values, width), color=color, linewidth=1.2, label=label)
    period = "day" if width == 1.0 else f"{24 * width:.2g} h"
    unit = chosen["target"].attrs.get("units", "1")
    ax.set(ylabel=f"rms per {period} [{unit}]", yscale="log", title="Error of one-step predictions over time")
    ax.legend(loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, -0.02))
    for phase, label in ((ONLINE, "while learning"), (VALIDATION, "model frozen")):
        part = np.flatnonzero(chosen["phase"].values == phase)
        if len(part) > 1:
            smse = np.cumsum(squares[part]) / np.maximum(_sum_of_squares(target[part]), 1e-300)
            shown = slice(min(len(part) // 20, 96), None)
            so_far.plot(days[part][shown], smse[shown], color=BLUE if phase == ONLINE else ORANGE, label=label)
    so_far.set(xlabel="day", ylabel="SMSE so far [-]", ylim=(0, None))
    so_far.legend(loc="lower right", frameon=False)
    for axes in (ax, so_far):
        _shade(axes, chosen)
        axes.set_xlim(days[0], days[-1])
    return figure


def _binned_rms(days: np.ndarray, squares: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Middle of each full bin and the root mean square in it."""
    index, starts, counts = np.unique(np.floor(days / width), return_index=True, return_counts=True)
    means = np.add.reduceat(squares, starts) / counts
    full = counts >= 0.5 * np.median(counts)
    return (index[full] + 0.5) * width, np.sqrt(means[full])


def _sum_of_squares(values: np.ndarray) -> np.ndarray:
    """Sum of squared deviations from their mean of the first 1, 2, ... values."""
    n = np.arange(1, len(values) + 1)
    return np.cumsum(values**2) - np.cumsum(values) ** 2 / n


def _label(variable: xr.DataArray) -> str:
    """Axis label with the unit, in lines that fit."""
    return fill(f"{variable.attrs.get('long_name', variable.name)} [{variable.attrs.get('units', '1')}]", 34)


def _shade(ax: Axes, chosen: xr.Dataset) -> None:
    after = chosen["time"].values[chosen["phase"].values == VALIDATION]
    if len(after):
        ax.axvspan(after[0] / DAY, after[-1] / DAY, color=SHADES[VALIDATION], zorder=0)
