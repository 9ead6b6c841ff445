"""Figures of an identification: signals, predictions, errors, and the life of the dictionary."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.drawing import style
from experiments.drawing.style import (
    BLUE,
    FAINT_GREEN,
    GREEN,
    GREY,
    ORANGE,
    SHADES,
    VIOLET,
    draw_line,
    error_unit_of,
    fill_band,
    find_gaps,
    label_of,
    screen,
    show_from_to,
)
from experiments.drawing.tables import error_unit, shown_unit
from experiments.identify.compared_errors import errors_of_model, errors_to_compare
from sysid.dead_time import N_WINDOW
from sysid.held_out import N_FOLDS
from sysid.lag_choice import ESTIMATOR_WORDS, LARGER, LINEAR, LINEAR_PART, LONG_LINEAR, MODEL
from sysid.model.model import Model
from sysid.model.result import INITIAL, ONLINE, VALIDATION
from sysid.simulation.validation import Z_95

COUNTED_UNITS = ("day", "sample")  # units of time that have a plural in English
MAX_SIGNALS_DRAWN = 6
MAX_LINEAR_PANELS_PER_ROW = 3  # panels beside each other in the figure of the linear part
PREDICTION_DETAIL_DAYS = 2.0  # days at the end that the figure of predictions shows
SIGNAL_DETAIL_DAYS = 3.0  # days at the end that the figure of signals shows in detail
MAX_DRAWN_STANDARDISED_ERROR = 5  # larger ones are drawn in the outermost bin of the histogram
LEGEND_ROOM = 0.14  # room above the curves for a legend in one line, as a fraction of their range
MAX_RECORDS_NAMED = 2  # records whose names stand in a title


def drawings(
    trajectory: xr.Dataset,
    result: xr.Dataset,
    noise_variance: float,
    limit: str = "",
    predict_before: Callable[[], np.ndarray] | None = None,
) -> dict[str, Callable[[], Figure]]:
    """Return the functions that draw the figures, by the name of the figure.

    `limit` compares the SMSE of the predictions in words with its limit; it may be empty.
    `predict_before` returns the predictions (sample,) of the model before the stream.
    """
    trajectory = style.with_clock(trajectory, "time")
    result = style.on_clock_of(trajectory, result).assign_attrs(
        static=trajectory.attrs.get("static", 0),
        record_names=trajectory.attrs.get("record_names", "[]"),
    )
    makers: dict[str, Callable[[], Figure]] = {
        "signals": partial(signals, trajectory),
        "prediction": partial(prediction, result, noise_variance, limit),
    }
    if (result["phase"] == ONLINE).any():
        makers["dictionary"] = partial(dictionary, result)
    makers["error"] = partial(error, result, noise_variance, predict_before)
    return makers


# --- predictions ----------------------------------------------------------------------------------


def prediction(result: xr.Dataset, noise_variance: float, limit: str = "") -> Figure:
    """Draw the predicted target with its 95 % band and the measurements in detail, and all errors.

    If the target is a change, the value that it leads to is drawn above it. The samples are those
    of the validation part, or of the stream if there is none. The title of the errors ends with
    `limit`, the words that compare their SMSE with its limit.
    """
    is_validated = (result["phase"] == VALIDATION).any()
    phase = VALIDATION if is_validated else ONLINE
    chosen = result.isel(sample=np.flatnonzero(result["phase"] == phase))
    is_change = _is_change(result)
    if is_change and chosen.sizes["sample"]:
        figure, (values, series, histogram) = screen(3, 10.0, height_ratios=[3, 3, 2])
        values.sharex(series)
    else:
        figure, (series, histogram) = screen(2, 7.2, height_ratios=[3, 2])
        values = series
    if not chosen.sizes["sample"]:
        series.set_title("No sample was predicted")
        return figure
    chosen = style.on_own_clock(chosen, "sample")
    close_up = chosen.isel(sample=style.detail(chosen["shown"], PREDICTION_DETAIL_DAYS))
    x = close_up["shown"].values
    mean = close_up["mean"].values
    measured = close_up["target"].values
    half_width = Z_95 * np.sqrt(close_up["variance"].values + noise_variance)
    is_unordered = bool(result.attrs["static"]) or len(x) == 1
    if is_unordered:
        title = "By the final model on new data" if is_validated else "While learning"
    else:
        title = (
            "One step ahead, by the final model on new data"
            if is_validated
            else "One step ahead, while learning"
        )
    title += name_records(result, np.unique(close_up["record"]))
    _draw_predictions(series, x, mean, half_width, measured, is_unordered=is_unordered)
    series.set(xlabel=close_up["shown"].attrs["label"], ylabel=label_of(chosen["target"]))
    if is_change:
        previous = close_up["previous"]
        _draw_predictions(
            values,
            x,
            previous.values + mean,
            half_width,
            previous.values + measured,
            is_unordered=is_unordered,
        )
        values.set_ylabel(_label_of_value(previous))
        values.tick_params(labelbottom=False)
    values.set_title(title, loc="left")
    handles, names = series.get_legend_handles_labels()
    series.legend(
        handles,
        names,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=3,
        frameon=False,
    )
    _draw_standardised_errors(histogram, chosen, noise_variance)
    if limit:
        histogram.set_title(f"{histogram.get_title()}; SMSE: {limit}")
    return figure


def _is_change(result: xr.Dataset) -> bool:
    """Whether the target is the change of an output: 0 if nothing changes, whatever the output."""
    if "previous" not in result:
        return False
    unchanged = result["unchanged"].values
    return bool(np.all(unchanged[np.isfinite(unchanged)] == 0)) and not result.attrs["static"]


def _label_of_value(previous: xr.DataArray) -> str:
    """Return the label of the output whose change is the target."""
    name = str(previous.attrs.get("long_name", "output")).removesuffix(" one sample earlier")
    unit = previous.attrs.get("units", "")
    return label_of(xr.DataArray(attrs={"long_name": name, "units": unit}))


def _draw_predictions(
    ax: Axes,
    x: np.ndarray,
    mean: np.ndarray,
    half_width: np.ndarray,
    measured: np.ndarray,
    *,
    is_unordered: bool,
) -> None:
    """Draw predictions with their 95 % band, and the measurements as dots.

    Unordered rows have no line from one row to the next.
    """
    if is_unordered:
        _draw_intervals(ax, x, mean, half_width)
    else:
        fill_band(ax, x, mean - half_width, mean + half_width, "95 % band")
        draw_line(ax, x, mean, color=BLUE, linewidth=1.2, label="predicted")
        show_from_to(ax, x)
    ax.plot(x, measured, ".", color=ORANGE, markersize=4, label="measured")


def _leave_room_for_legend(ax: Axes) -> None:
    """Extend the y axis upwards, so that a legend in one line covers no curve."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + LEGEND_ROOM * (high - low))


def _draw_intervals(ax: Axes, x: np.ndarray, mean: np.ndarray, half_width: np.ndarray) -> None:
    """Draw each prediction as a point with the interval of its 95 % band."""
    ax.errorbar(
        x,
        mean,
        half_width,
        fmt="o",
        color=BLUE,
        ecolor=f"{BLUE}60",
        markersize=3,
        label="predicted, 95 %",
    )


def name_records(dataset: xr.Dataset, numbers: np.ndarray) -> str:
    """Return the end of a title that names the records with these numbers; empty without names."""
    segment_names = json.loads(str(dataset.attrs.get("record_names", "[]")))
    if not segment_names:
        return ""
    repeated = [segment_names[number].partition(", segment ")[0] for number in numbers]
    names = list(dict.fromkeys(repeated))
    if not names:
        return ""
    ending = f": {', '.join(names[:MAX_RECORDS_NAMED])}"
    if len(names) > MAX_RECORDS_NAMED:
        ending += f" and {len(names) - MAX_RECORDS_NAMED} more"
    return ending


def _draw_standardised_errors(ax: Axes, chosen: xr.Dataset, noise_variance: float) -> None:
    """Draw the histogram of the standardised errors, and the density of the standard normal."""
    predicted_std = np.sqrt(chosen["variance"].values + noise_variance)
    z = (chosen["target"] - chosen["mean"]).values / predicted_std
    limit = MAX_DRAWN_STANDARDISED_ERROR
    bins = np.linspace(-limit, limit, 81)
    ax.hist(
        np.clip(z, -limit, limit),
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
    ax.set(
        xlabel="standardised prediction error [1]",
        ylabel="density [1]",
        xlim=(-limit, limit),
    )
    ax.legend(loc="upper left", frameon=False)


# --- the dictionary -------------------------------------------------------------------------------


def dictionary(result: xr.Dataset) -> Figure:
    """Draw the life of each stored point, and the numbers of candidates and stored samples.

    A candidate is a sample that the insertion rule selects to be stored.
    """
    figure, (lives, counts) = screen(2, 7.2, sharex=True, height_ratios=[3, 1])
    steps = result.isel(sample=np.flatnonzero(result["phase"] != VALIDATION))
    x = steps["shown"].values
    if not len(x):
        return figure
    is_initial = steps["phase"].values == INITIAL
    n_initial = int(steps["n_points"].values[is_initial][-1]) if is_initial.any() else 0
    slots, births, deaths = _lives(steps["slot"].values, n_initial, x)
    lines = lives.hlines(
        slots, births, deaths, linewidth=1.3, array=deaths - births, cmap="viridis"
    )
    lives.plot(births, slots, ".", color=ORANGE, markersize=3)
    lives.set_title("Life of the stored points: a line for each of them, a dot where it entered")
    lives.set_ylabel("place of the stored point")
    unit = steps["shown"].attrs["unit"]
    age_label = f"time as a stored point [{unit}]"
    if unit in COUNTED_UNITS:
        age_label = f"{unit}s as a stored point"
    figure.colorbar(lines, ax=lives, label=age_label, pad=0.01)
    n_candidates = np.cumsum(steps["inserted"].values)
    n_entered = np.cumsum(steps["slot"].values >= 0)
    held: Any = {"drawstyle": "steps-post"}
    draw_line(counts, x, n_candidates, color=GREY, linewidth=3.5, label="candidates", **held)
    draw_line(counts, x, n_entered, color=BLUE, linewidth=1.2, label="stored", **held)
    counts.set(xlabel=steps["shown"].attrs["label"], ylabel="samples so far")
    show_from_to(counts, x)
    counts.legend(loc="upper left", frameon=False)
    return figure


def _lives(
    slot: np.ndarray, n_initial: int, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slot, birth and death of every point.

    The initial points enter at the start. The life of a point ends when the next one enters its
    slot.
    """
    entered = slot >= 0
    slots = np.append(np.arange(n_initial), slot[entered])
    births = np.append(np.full(n_initial, x[0]), x[entered])
    deaths = pd.Series(births).groupby(slots).shift(-1).fillna(x[-1]).to_numpy()
    return slots, births, deaths


# --- the linear part ------------------------------------------------------------------------------


def linear_part(model: Model, target_unit: str) -> Figure:
    """Draw the coefficients of the linear part over the lag, with their 95 % bands.

    There is a panel for each signal, for up to six of them. The coefficients of a signal are the
    impulse response of the linear part: what it adds to the predictions that follow if this signal
    is one unit higher for one sample.
    """
    coefficients, covariance = model.linear_coefficients
    half_width = Z_95 * np.sqrt(np.diag(covariance))
    names = list(model.linear_blocks)[:MAX_SIGNALS_DRAWN]
    n_columns = min(len(names), MAX_LINEAR_PANELS_PER_ROW)
    n_rows = -(-len(names) // n_columns)
    figure, axes = screen(n_rows, 0.9 + 3.2 * n_rows, ncols=n_columns, squeeze=False)
    for ax, name in zip(axes.flat, names, strict=False):
        block = model.linear_blocks[name]
        lags = np.array([lag for _, lag in model.linear_features[block]])
        ax.axhline(0.0, color=GREY, linewidth=0.8)
        _draw_coefficients(ax, lags, coefficients[block], half_width[block])
        ax.set(title=name, xlabel="lag [samples]")
        ax.set_ylabel(f"coefficient [{_unit_of_ratio(target_unit, model.origin.unit(name))}]")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False)
    title = f"Linear part of the {model.narx.predict.describe(model.narx.target)}"
    n_signals = len(model.linear_blocks)
    if len(names) < n_signals:
        title += f" ({len(names)} of {n_signals} signals)"
    figure.suptitle(title)
    return figure


def _draw_coefficients(
    ax: Axes, lags: np.ndarray, coefficients: np.ndarray, half_width: np.ndarray
) -> None:
    """Draw the coefficients of one signal over the lag, with their band."""
    ax.errorbar(
        lags,
        coefficients,
        half_width,
        fmt="o-",
        color=BLUE,
        ecolor=f"{BLUE}60",
        elinewidth=4,
        linewidth=0.8,
        markersize=4,
        label="coefficient, 95 %",
    )


def _unit_of_ratio(numerator: str, denominator: str) -> str:
    """Return the unit of a ratio for a label.

    The coefficient of a temperature is per kelvin.
    """
    if not denominator:
        return shown_unit(numerator)
    per = shown_unit(error_unit(denominator))
    if not per.isalpha():
        per = f"({per})"
    return f"{shown_unit(error_unit(numerator))} / {per}"


# --- errors ---------------------------------------------------------------------------------------


def error(
    result: xr.Dataset,
    noise_variance: float,
    predict_before: Callable[[], np.ndarray] | None = None,
) -> Figure:
    """Draw the root mean squared error and the predicted standard deviation over time.

    The error of the predictions ``limit`` (sample,) is drawn too, if the result has them, and that
    of `predict_before`, which returns those of the model before the stream.
    """
    figure, (ax,) = screen(1, 4.4)
    is_predicted = np.flatnonzero(result["phase"] != INITIAL)
    chosen = result.isel(sample=is_predicted)
    if not chosen.sizes["sample"]:
        ax.set_title("No sample was predicted")
        return figure
    is_static = result.attrs["static"]
    x = chosen["shown"].values
    clock = chosen["shown"].attrs["unit"]
    span = x[-1] - x[0]
    width = 1.0 if clock == "day" and span > 10 else max(span / 40, 1e-9)
    squared_error = (chosen["target"] - chosen["mean"]).values ** 2
    variance = chosen["variance"].values
    draw = partial(_draw_binned_rms, ax, x, width=width)
    if not is_static:
        squared_change = (chosen["target"] - chosen["unchanged"]).values ** 2
        draw(squared_change, color=GREY, label="predicting no change")
    if predict_before is not None:
        squared_before = (chosen["target"].values - predict_before()[is_predicted]) ** 2
        draw(squared_before, color=VIOLET, label="model before the stream")
    if "limit" in chosen:
        squared_error_of_limit = (chosen["target"] - chosen["limit"]).values ** 2
        draw(squared_error_of_limit, color="black", label="limit")
    draw(squared_error, color=BLUE, label="model")
    expected: Any = {"linestyle": "--"}
    draw(variance + noise_variance, color=BLUE, label="expected by the model", **expected)
    draw(variance, color=ORANGE, label="expected, without the noise", **expected)
    outliers = np.flatnonzero(chosen["outlier"].values)
    if outliers.size:
        ax.plot(
            x[outliers],
            np.sqrt(squared_error[outliers]),
            "x",
            color="black",
            markersize=4,
            label="outliers, not learned",
        )
    period = clock
    if width != 1.0:
        period = f"{width:.2g} {clock}"
        if clock in COUNTED_UNITS:
            period += "s"
    title = "Error of predictions" if is_static else "Error of one-step predictions over time"
    title += name_records(result, np.unique(chosen["record"]))
    is_after = chosen["phase"].values == VALIDATION
    if is_after.any() and not is_after.all():
        title += ", shaded: model frozen"
    ax.set(
        ylabel=f"rms per {period} [{error_unit_of(chosen['target'])}]",
        yscale="log",
        title=title,
    )
    ax.set_xlabel(chosen["shown"].attrs["label"])
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    _shade(ax, chosen, is_after)
    show_from_to(ax, x)
    return figure


def _draw_binned_rms(
    ax: Axes, x: np.ndarray, squares: np.ndarray, *, width: float, **options: Any
) -> None:
    """Draw the root mean square in bins of this width; bins with few samples are left out.

    The line is broken at gaps of at least half a bin, and where the value is zero, which a
    logarithmic axis cannot show.
    """
    gaps = find_gaps(x)
    gaps = gaps[np.abs(x[gaps] - x[gaps - 1]) >= 0.5 * width]
    piece = np.searchsorted(gaps, np.arange(len(x)), side="right")
    bins = np.floor(x / width)
    is_first = np.append(True, (np.diff(bins) != 0) | (np.diff(piece) != 0))
    starts = np.flatnonzero(is_first)
    counts = np.diff(np.append(starts, len(x)))
    rms = np.sqrt(np.add.reduceat(squares, starts) / counts)
    rms[rms == 0] = np.nan
    is_full = counts >= 0.5 * np.median(counts)
    middles = (bins[starts] + 0.5) * width
    of_piece = piece[starts][is_full]
    ends = np.flatnonzero(np.diff(of_piece)) + 1
    broken = [np.insert(values[is_full], ends, np.nan) for values in (middles, rms)]
    ax.plot(*broken, linewidth=1.2, **options)


def comparison(summary: dict[str, Any]) -> Figure:
    """Draw the errors of the model and of linear models, and the held-out errors of the lags tried.

    There is a panel for one step ahead, and one each for the free run and the lags if they are
    known. The free run comes first if the model was trained for it.
    """
    lags = summary["lags"]
    unit = shown_unit(error_unit(summary["target_unit"]))
    linear = summary["linear"]
    models = {"model": errors_of_model(summary)}
    for name, model in linear.items():
        orders = f"na={model['na']}\nnb={model['nb']}\nnk={model['nk']}"
        models[f"ARX\n{name.replace('_', ' ')}\n{orders}"] = model
    has_output_lags = any(model["na"] for model in linear.values())
    panels = {"rmse": "One step ahead" if has_output_lags else "New rows"}
    if any(_was_simulated(model) for model in models.values()):
        panels["free_run_rmse"] = "Free run"
    if summary.get("training") is not None:  # trained for the free run, which comes first
        panels = dict(reversed(panels.items()))
    n_panels = len(panels) + (1 if lags is not None else 0)
    figure, axes = screen(1, 4.0, ncols=n_panels)
    for ax, (key, title) in zip(axes[: len(panels)], panels.items(), strict=True):
        compared = errors_to_compare(models.values(), key)
        _draw_error_bars(ax, models, compared)
        where = "on the test" if compared == key else "without gross errors"
        ax.set(title=title, ylabel=f"RMSE {where} [{unit}]")
        ax.margins(y=0.1)
    if lags is not None:
        _draw_lags(axes[-1], lags["tried"], unit)
    return figure


def _was_simulated(model: dict[str, Any]) -> bool:
    """Whether a model was simulated, be it with an error or until it diverged."""
    return model["free_run_diverges"] or model["free_run_rmse"] is not None


def _draw_error_bars(ax: Axes, models: dict[str, dict[str, Any]], key: str) -> None:
    """Draw a bar with its value for the error of each model; the first has another colour."""
    heights = [model[key] or 0.0 for model in models.values()]
    colors = [BLUE] + [ORANGE] * (len(models) - 1)
    ax.bar(list(models), heights, color=colors, width=0.6)
    for i, model in enumerate(models.values()):
        text = "diverges" if model["free_run_diverges"] else "none"
        if model[key] is not None:
            text = f"{model[key]:.4g}"
        ax.text(i, heights[i], text, ha="center", va="bottom")


def _draw_lags(ax: Axes, tried: list[dict[str, Any]], unit: str) -> None:
    """Draw the held-out errors over the number of lags.

    A marker is open if its error is that of fewer folds, or of a quick version of the training. The
    variants of the best model are not drawn.
    """
    colors = {LINEAR: ORANGE, LONG_LINEAR: GREY, MODEL: BLUE, LINEAR_PART: GREEN}
    is_free_run = any(f"{kind}_quick" in row for row in tried for kind in colors)
    max_folds = N_FOLDS
    if is_free_run:
        max_folds = max(row.get(f"{kind}_parts", 0) for row in tried for kind in colors)
    points = dict[str, list[tuple[int, float]]]()  # by label
    styles = dict[str, tuple[str, bool]]()  # colour, and whether the marker is open, by label
    for row in tried:
        for kind, color in colors.items():
            if row.get(kind) is None:
                continue
            point = row["na"] + row["nb"], row[kind]
            has_fewer_folds = row.get(f"{kind}_parts", max_folds) < max_folds
            is_rough = has_fewer_folds or row.get(f"{kind}_quick", False)
            words = ESTIMATOR_WORDS[kind]
            label = f"{words}, quick or fewer folds" if is_rough else words
            styles.setdefault(label, (color, is_rough))
            points.setdefault(label, []).append(point)
    styles["chosen"] = ("black", True)
    points["chosen"] = []
    for row in tried:
        if row.get("chosen"):
            names = [row["estimator"]] if "estimator" in row else [*colors]
            if row.get("budget") in LARGER:
                names = [LARGER[row["budget"]]]
            n_lags_of_row = row["na"] + row["nb"]
            points["chosen"] += [(n_lags_of_row, row[name]) for name in names if row.get(name)]
    for label, (color, is_open) in styles.items():
        n_lags, errors = zip(*points[label], strict=True)
        ax.plot(
            n_lags,
            errors,
            "o",
            color=color,
            label=label,
            markerfacecolor="none" if is_open else color,
            markersize=12 if label == "chosen" else 6,
        )
    ax.set(
        title="Lags tried, held-out folds",
        xlabel="na + nb",
        ylabel=f"RMSE [{unit}]",
        yscale="log",
    )
    ax.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14))


def dead_times(by_input: dict[str, dict[str, Any]], unit: str) -> Figure:
    """Draw the held-out error of a line over the first lag of up to six inputs.

    A line marks the dead time of each input.

    Parameters
    ----------
    by_input
        Of each input, the numbers of `sysid.DeadTime.to_dict`.
    unit
        Unit of the output.
    """
    figure, (ax,) = screen(1, 4.4)
    for name, found in list(by_input.items())[:MAX_SIGNALS_DRAWN]:
        delay = found["samples"]
        words = "no dead time found"
        if delay is not None:
            words = "acts after 1 sample" if delay == 1 else f"acts after {delay} samples"
        (line,) = ax.plot(found["rmse_by_delay"], linewidth=1.2, label=f"{name} {words}")
        if delay is not None:
            ax.axvline(delay, color=line.get_color(), linewidth=0.8, linestyle="--")
    title = f"Dead time (dashed): linear models with {N_WINDOW} lags of the input"
    if len(by_input) > MAX_SIGNALS_DRAWN:
        title += f" ({MAX_SIGNALS_DRAWN} of {len(by_input)} inputs)"
    ax.set(
        title=title,
        xlabel="first lag of the input [samples]",
        ylabel=f"one-step RMSE, held-out folds [{shown_unit(error_unit(unit))}]",
        ylim=(0.0, None),
    )
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


# --- signals --------------------------------------------------------------------------------------


def signals(trajectory: xr.Dataset) -> Figure:
    """Draw up to six outputs and inputs: the whole run on the left, a detail on the right."""
    outputs = json.loads(str(trajectory.attrs["outputs"]))
    inputs = json.loads(str(trajectory.attrs["inputs"]))
    every_name = [*outputs, *inputs]
    names = every_name[:MAX_SIGNALS_DRAWN]
    figure, axes = screen(
        len(names), 1.2 + 1.9 * len(names), ncols=2, width_ratios=[3, 2], squeeze=False
    )
    panels = axes.reshape(-1, 2)
    close_up = trajectory.isel(time=style.detail(trajectory["shown"], SIGNAL_DETAIL_DAYS))
    inputs_are_held = trajectory.attrs.get("interpolation") == "held"
    for (whole_ax, detail_ax), name in zip(panels, names, strict=True):
        is_output = name in outputs
        color = BLUE if is_output else ORANGE
        is_held = inputs_are_held and not is_output
        if name == outputs[0] and "set_point" in trajectory:
            # beneath the output, which it must not cover
            _draw_signal(whole_ax, trajectory, "set_point", FAINT_GREEN, held=True)
            _draw_signal(detail_ax, close_up, "set_point", GREEN, held=True)
        _draw_signal(whole_ax, trajectory, name, color, held=is_held)
        _draw_signal(detail_ax, close_up, name, color, held=is_held)
        if name == outputs[0] and "set_point" in trajectory:
            _leave_room_for_legend(detail_ax)
            detail_ax.legend(frameon=False, ncols=2, loc="upper left")
        whole_ax.set_ylabel(label_of(trajectory[name], 26), fontsize="small")
        _shade(whole_ax, trajectory, trajectory["part"].values == 1)
    extent = "All rows" if trajectory.attrs.get("static", 0) else "The whole run"
    records = name_records(trajectory, np.unique(trajectory["record"]))
    shading = ", shaded: model frozen" if (trajectory["part"].values == 1).any() else ""
    panels[0, 0].set_title(f"{extent}{records}{shading}", loc="left", fontsize="medium")
    title = "The end in detail"
    if len(names) < len(every_name):
        title += f" ({len(names)} of {len(every_name)} signals)"
    panels[0, 1].set_title(title, fontsize="medium")
    for ax in panels[-1]:
        ax.set_xlabel(trajectory["shown"].attrs["label"])
    return figure


def _draw_signal(ax: Axes, dataset: xr.Dataset, name: str, color: str, *, held: bool) -> None:
    """Draw a signal over time, as steps if it is held; rows of static data as points."""
    x = dataset["shown"].values
    y = dataset[name].values
    label = name.replace("set_point", "set-point").replace("_", " ")
    if dataset.attrs.get("static", 0):
        ax.plot(x, y, ".", color=color, markersize=3, label=label)
    else:
        drawstyle: Any = "steps-post" if held else "default"
        draw_line(ax, x, y, color=color, linewidth=0.9, drawstyle=drawstyle, label=label)
    show_from_to(ax, x)


def _shade(ax: Axes, chosen: xr.Dataset, is_after: np.ndarray) -> None:
    """Shade the part of a run after the identified one."""
    after = chosen["shown"].values[is_after]
    if len(after):
        ax.axvspan(after[0], after[-1], color=SHADES[VALIDATION], zorder=0)
