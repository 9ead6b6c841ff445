"""Figures of an identification: what the plant did, what the model said, how the dictionary
lived.
"""

import json
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import style
from experiments.drawing.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SHADES,
    label_of,
    screen,
    show_from_to,
    unit_of,
)
from sysid.model.result import INITIAL, ONLINE, VALIDATION
from sysid.simulation.validation import Z_95

PLURALS = ("day", "sample")
MOST_PANELS = 6


def drawings(
    trajectory: xr.Dataset, result: xr.Dataset, noise_variance: float
) -> dict[str, Callable[[], Figure]]:
    """Figure name to the function that draws it."""
    trajectory = style.with_clock(trajectory, "time")
    own = {"static": 0, "record_names": "[]"} | trajectory.attrs
    own = {name: own[name] for name in ("static", "record_names")}
    result = style.on_clock_of(trajectory, result).assign_attrs(own)
    learning = (
        {"dictionary": partial(dictionary, result)} if (result["phase"] == ONLINE).any() else {}
    )
    return {
        "signals": partial(signals, trajectory),
        "prediction": partial(prediction, result, noise_variance),
        **learning,
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
    part = chosen.isel(sample=style.detail(chosen["shown"], 2.0))
    x = part["shown"].values
    mean = part["mean"].values
    half = Z_95 * np.sqrt(part["variance"].values + noise_variance)
    title = "By the final model on new data" if phase == VALIDATION else "While learning"
    if result.attrs["static"] or len(x) == 1:  # rows have no order: no line from one to the next
        series.errorbar(
            x,
            mean,
            half,
            fmt="o",
            color=BLUE,
            ecolor=f"{BLUE}60",
            markersize=3,
            label="predicted, 95 %",
        )
    else:
        title = f"One step ahead, {title[0].lower()}{title[1:]}"
        series.fill_between(
            x,
            mean - half,
            mean + half,
            color=BLUE,
            alpha=0.2,
            linewidth=0,
            label="95 % band",
        )
        series.plot(x, mean, color=BLUE, linewidth=1.2, label="predicted")
        show_from_to(series, x)
    series.plot(x, part["target"], ".", color=ORANGE, markersize=4, label="measured")
    series.set(xlabel=part["shown"].attrs["label"], ylabel=label_of(chosen["target"]))
    series.set_title(title + name_records(result, np.unique(part["record"])), loc="left")
    series.legend(loc="upper right", ncols=3, framealpha=0.8)
    _standardised_errors(below, chosen, noise_variance)
    return figure


def name_records(dataset: xr.Dataset, numbers: np.ndarray) -> str:
    """Words for a title: which records are shown, if they have names."""
    names = json.loads(str(dataset.attrs.get("record_names", "[]")))
    shown = (
        [*dict.fromkeys(names[number].partition(", segment ")[0] for number in numbers)]
        if names
        else []
    )
    more = f" and {len(shown) - 2} more" if len(shown) > 2 else ""
    return f": {', '.join(shown[:2])}{more}" if shown else ""


def _standardised_errors(ax: Axes, chosen: xr.Dataset, noise_variance: float) -> None:
    z = (chosen["target"] - chosen["mean"]).values / np.sqrt(
        chosen["variance"].values + noise_variance
    )
    bins = np.linspace(-5, 5, 81)
    ax.hist(
        np.clip(z, -5, 5),
        bins=list(bins),
        density=True,
        color=BLUE,
        alpha=0.5,
        label="errors / predicted std",
    )
    ax.plot(
        bins,
        np.exp(-0.5 * bins**2) / np.sqrt(2 * np.pi),
        color="black",
        linewidth=1,
        label="standard normal",
    )
    inside = 100 * float(np.mean(np.abs(z) <= Z_95))
    ax.set_title(f"All {len(z)} samples: {inside:.1f} % within the 95 % band")
    ax.set(xlabel="standardised prediction error [-]", ylabel="density", xlim=(-5, 5))
    ax.legend(loc="upper left", frameon=False)


def dictionary(result: xr.Dataset) -> Figure:
    """Which points entered the dictionary and left it when, one line per life; and how many
    came.
    """
    figure, (lives, count) = screen(2, 7.2, sharex=True, height_ratios=[3, 1])
    steps = result.isel(sample=np.flatnonzero(result["phase"] != VALIDATION))
    x = steps["shown"].values
    if not len(x):
        return figure
    initial = steps["phase"].values == INITIAL
    n_initial = int(steps["n_points"].values[initial][-1]) if initial.any() else 0
    slots, births, deaths = _lives(steps["slot"].values, n_initial, x)
    lines = lives.hlines(
        slots, births, deaths, linewidth=1.3, array=deaths - births, cmap="viridis"
    )
    lives.plot(births, slots, ".", color=ORANGE, markersize=3)
    lives.set_title("Life of the dictionary: a line per point, a dot where it entered")
    lives.set_ylabel("place in the dictionary")
    unit = steps["shown"].attrs["unit"]
    age_label = (
        f"{unit}s in the dictionary" if unit in PLURALS else f"time in the dictionary [{unit}]"
    )
    figure.colorbar(lines, ax=lives, label=age_label, pad=0.01)
    for name, color, width in (("inserted", GREY, 3.5), ("accepted", BLUE, 1.2)):
        label = "asked for a place" if name == "inserted" else "entered"
        count.step(
            x,
            np.cumsum(steps[name].values),
            where="post",
            color=color,
            linewidth=width,
            label=label,
        )
    count.set(xlabel=steps["shown"].attrs["label"], ylabel="samples")
    show_from_to(count, x)
    count.legend(loc="upper left", frameon=False)
    return figure


def _lives(
    slot: np.ndarray, n_initial: int, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slot, birth and death of every point; the initial points are born at the start."""
    entered = slot >= 0
    slots = np.append(np.arange(n_initial), slot[entered])
    births = np.append(np.full(n_initial, x[0]), x[entered])
    deaths = (
        pd.Series(births).groupby(slots).shift(-1).fillna(x[-1]).to_numpy()
    )  # the next one takes the place
    return slots, births, deaths


def error(result: xr.Dataset, noise_variance: float) -> Figure:
    """Root mean squared error and predicted standard deviation over time."""
    figure, (ax,) = screen(1, 4.4)
    chosen = result.isel(sample=np.flatnonzero(result["phase"] != INITIAL))
    if not chosen.sizes["sample"]:
        ax.set_title("No sample was predicted")
        return figure
    x = chosen["shown"].values
    clock = chosen["shown"].attrs["unit"]
    width = 1.0 if clock == "day" and x[-1] - x[0] > 10 else max((x[-1] - x[0]) / 40, 1e-9)
    squares = (chosen["target"] - chosen["mean"]).values ** 2
    lines = [
        (
            (chosen["target"] - chosen["unchanged"]).values ** 2,
            GREY,
            "predicting no change",
        ),
        (squares, BLUE, "online GP"),
        (chosen["variance"].values + noise_variance, GREEN, "predicted by the GP"),
        (chosen["variance"].values, ORANGE, "predicted, without the noise"),
    ]
    for values, color, label in lines[1:] if result.attrs["static"] else lines:
        ax.plot(*_binned_rms(x, values, width), color=color, linewidth=1.2, label=label)
    if (outliers := np.flatnonzero(chosen["outlier"].values)).size:
        errors = np.sqrt(squares[outliers])
        ax.plot(
            x[outliers],
            errors,
            "x",
            color="black",
            markersize=4,
            label="outliers, passed over",
        )
    period = clock if width == 1.0 else f"{width:.2g} {clock}{'s' * (clock in PLURALS)}"
    title = (
        "Error of predictions"
        if result.attrs["static"]
        else "Error of one-step predictions over time"
    )
    title += name_records(result, np.unique(chosen["record"]))
    ax.set(
        ylabel=f"rms per {period} [{unit_of(chosen['target'])}]",
        yscale="log",
        title=title,
    )
    ax.set_xlabel(chosen["shown"].attrs["label"])
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    _shade(ax, chosen, chosen["phase"].values == VALIDATION)
    show_from_to(ax, x)
    return figure


def comparison(summary: dict[str, Any]) -> Figure:
    """Errors of the model and of linear ones, one step and in free run, and of the lags tried, as
    far as there are.
    """
    lags = summary["lags"]
    unit = summary["target_unit"] or "-"
    free = summary["free_run"] or {"rmse": None}
    own = {"rmse": summary["rmse"], "free_run_rmse": free["rmse"]}
    models = {
        "model": own
        | {"free_run_diverges": summary["free_run"] is not None and free["rmse"] is None}
    }
    for name, one in summary["linear"].items():
        orders = f"na={one['na']}\nnb={one['nb']}\nnk={one['nk']}"
        models[f"ARX\n{name.replace('_', ' ')}\n{orders}"] = one
    panels = {
        "rmse": "One step ahead"
        if any(one["na"] for one in summary["linear"].values())
        else "New rows"
    }
    if any(one["free_run_diverges"] or one["free_run_rmse"] is not None for one in models.values()):
        panels["free_run_rmse"] = "Free run"
    figure, axes = screen(1, 4.0, ncols=len(panels) + (lags is not None))
    for ax, (key, title) in zip(axes, panels.items(), strict=False):
        heights = [one[key] or 0.0 for one in models.values()]
        ax.bar([*models], heights, color=[BLUE, *[ORANGE] * (len(models) - 1)], width=0.6)
        ax.set(title=title, ylabel=f"RMSE on the test [{unit}]")
        for i, one in enumerate(models.values()):
            told = "diverges" if one["free_run_diverges"] else "none"
            ax.text(
                i,
                one[key] or 0.0,
                told if one[key] is None else f"{one[key]:.4g}",
                ha="center",
                va="bottom",
            )
        ax.margins(y=0.1)
    if lags is not None:
        _draw_lags(axes[-1], lags["tried"], unit)
    return figure


def _draw_lags(ax: Axes, tried: list[dict[str, Any]], unit: str) -> None:
    """Held-out errors over the number of lags; open where they are of fewer parts, or of a quick
    version.
    """
    colors = {"linear": ORANGE, "model": BLUE}
    most = max(row.get(f"{key}_parts", 0) for row in tried for key in colors)
    known = dict[str, list[Any]]()
    for row, (key, color) in product(tried, colors.items()):
        if row.get(key) is not None:
            x = row["na"] + row["nb"]
            y = row[key]
            is_part = row.get(f"{key}_parts", most) < most
            is_part |= row.get(f"{key}_quick", False)
            known.setdefault(
                f"{key}, quick or fewer parts" if is_part else key, [color, is_part]
            ).append((x, y))
            if row.get("chosen"):
                known.setdefault("chosen", ["black", True]).append((x, y))
    for label, (color, is_open, *points) in known.items():
        style: Any = {
            "markerfacecolor": "none" if is_open else color,
            "markersize": 12 if label == "chosen" else 6,
        }
        ax.plot(*zip(*points, strict=True), "o", color=color, label=label, **style)
    ax.set(
        title="Lags tried, held-out parts",
        xlabel="na + nb",
        ylabel=f"RMSE [{unit}]",
        yscale="log",
    )
    ax.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14))


def _binned_rms(x: np.ndarray, squares: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Middle of each full bin and the root mean square in it."""
    index, starts, counts = np.unique(np.floor(x / width), return_index=True, return_counts=True)
    means = np.add.reduceat(squares, starts) / counts
    full = counts >= 0.5 * np.median(counts)
    return (index[full] + 0.5) * width, np.sqrt(means[full])


def _shade(ax: Axes, chosen: xr.Dataset, is_after: np.ndarray) -> None:
    """Shade the part of a run after the identified one."""
    after = chosen["shown"].values[is_after]
    if len(after):
        ax.axvspan(after[0], after[-1], color=SHADES[VALIDATION], zorder=0)


# --- what the plant did ---------------------------------------------------------------------------


def signals(trajectory: xr.Dataset) -> Figure:
    """Every output and input, the whole run on the left and a detail on the right, up to six
    signals.
    """
    outputs, inputs = (json.loads(str(trajectory.attrs[role])) for role in ("outputs", "inputs"))
    names = [*outputs, *inputs][:MOST_PANELS]
    figure, axes = screen(
        len(names), 1.2 + 1.9 * len(names), ncols=2, width_ratios=[3, 2], squeeze=False
    )
    panels = axes.reshape(-1, 2)
    near = trajectory.isel(time=style.detail(trajectory["shown"], 3.0))
    for (whole, close), name in zip(panels, names, strict=True):
        color, held = (
            (BLUE, False)
            if name in outputs
            else (ORANGE, trajectory.attrs.get("interpolation") == "held")
        )
        _line(whole, trajectory, name, color, held=held)
        _line(close, near, name, color, held=held)
        if name == outputs[0] and "set_point" in trajectory:
            _line(whole, trajectory, "set_point", GREEN, held=True)
            _line(close, near, "set_point", GREEN, held=True)
            close.legend(["output", "set-point"], frameon=False, ncols=2, loc="best")
        whole.set_ylabel(label_of(trajectory[name], 26), fontsize="small")
        _shade(whole, trajectory, trajectory["part"].values == 1)
    what = "All rows" if trajectory.attrs.get("static", 0) else "The whole run"
    records = name_records(trajectory, np.unique(trajectory["record"]))
    panels[0, 0].set_title(f"{what}{records}, shaded: model frozen", loc="left", fontsize="medium")
    left_out = f" ({len(names)} of {len(outputs) + len(inputs)} signals)" * (
        len(names) < len(outputs) + len(inputs)
    )
    panels[0, 1].set_title(f"The end in detail{left_out}")
    for ax in panels[-1]:
        ax.set_xlabel(trajectory["shown"].attrs["label"])
    return figure


def _line(ax: Axes, dataset: xr.Dataset, name: str, color: str, *, held: bool) -> None:
    x = dataset["shown"].values
    y = dataset[name].values
    if dataset.attrs.get("static", 0):  # rows have no order
        ax.plot(x, y, ".", color=color, markersize=3)
    else:
        ax.plot(
            x,
            y,
            color=color,
            linewidth=0.9,
            drawstyle="steps-post" if held else "default",
        )
    show_from_to(ax, x)
