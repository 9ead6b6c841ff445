"""The figure of linear views: Bode plots and step responses at operating points of the records."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing.style import (
    BLUE,
    COVERED_LINE_GROWTH,
    GREEN,
    GREY,
    ORANGE,
    count_covers,
    tidy,
)
from experiments.drawing.tables import shown_unit
from experiments.validate.linear_view import LinearViews, ViewOfInput

#: colours of the operating points, from the lowest to the highest quantile of the input
POINT_COLORS = (BLUE, GREEN, ORANGE)
MAX_INPUT_COLUMNS = 4  # inputs that have a column
EMPIRICAL_STDS = 1.96  # half length of the bars of the empirical response, in its deviations
#: magnitudes below the largest by more than this are not shown [dB]
SHOWN_DECIBELS = 80.0
LINE_WIDTH = 1.4  # of the views [points]
#: relative difference of two views up to which one line covers the other
COVERING_TOLERANCE = 1e-2
#: margin of the axes beyond the views and, where the input excites the plant, the truth [dB, deg]
MARGIN_DECIBELS = 5.0
MARGIN_DEGREES = 20.0


def draw_linear_views(views: LinearViews, output: str) -> Figure:
    """Draw magnitude, phase and step response of one output; each input has a column.

    Coloured lines and bands are the model at three operating points, dashed lines of the same
    colour the true linearisation of a simulated plant. The grey dashed line is the best linear
    model of the records, the dots are their empirical frequency response with 95 % bars.
    """
    inputs = views.inputs[:MAX_INPUT_COLUMNS]
    width = max(6.5, 4.8 * len(inputs))
    figure = Figure(figsize=(width, 10.0), layout="constrained")
    axes = figure.subplots(3, len(inputs), squeeze=False, height_ratios=[2.4, 2.0, 2.2])
    tidy(axes)
    for column, input in enumerate(inputs):
        magnitude, phase, step = axes[:, column]
        shown = views.of(output, input)
        if not shown:
            magnitude.set_title(f"{input}: no operating point", loc="left", fontsize="medium")
            continue
        _draw_empirical(magnitude, phase, views, output, input, shown[0])
        _draw_linear_model(magnitude, phase, step, views, output, input, shown[0])
        covers = count_covers(
            [one.response["magnitude"].values[:, np.newaxis] for one in shown], COVERING_TOLERANCE
        )
        for one, n_covers in zip(shown, covers, strict=True):
            line_width = LINE_WIDTH + COVERED_LINE_GROWTH * n_covers
            _draw_view(magnitude, phase, step, one, line_width)
        _finish(magnitude, phase, step, views, output, input)
    figure.suptitle(
        f"{output}: the model as a linear system at operating points of the records",
        x=0.01,
        ha="left",
        fontsize="medium",
    )
    return figure


def _color(one: ViewOfInput) -> str:
    """Return the colour of an operating point by the quantile of its input."""
    if one.quantile == 0.5:
        return POINT_COLORS[1]
    return POINT_COLORS[0] if one.quantile < 0.5 else POINT_COLORS[2]


def _draw_view(
    magnitude: Axes, phase: Axes, step: Axes, one: ViewOfInput, line_width: float
) -> None:
    """Draw the linear view at one operating point with its bands, and the truth."""
    color = _color(one)
    response = one.response
    f = response["frequency"].values
    value = one.view.point.get(one.input)
    label = one.view.where
    if value is not None:
        unit = one.view.units.get(one.input, "")
        label = f"{one.input} = {value:.4g} {shown_unit(unit) if unit else ''}".rstrip()
    for ax, name, scale in ((magnitude, "magnitude", _decibel), (phase, "phase", _same)):
        low = scale(response[f"{name}_low"].values)
        high = scale(response[f"{name}_high"].values)
        ax.fill_between(f, low, high, color=color, alpha=0.22, linewidth=0)
        ax.plot(f, scale(response[name].values), color=color, linewidth=line_width, label=label)
    if one.truth is not None:
        truth_phase = np.degrees(np.unwrap(np.angle(one.truth)))
        middle = len(f) // 2
        turns = np.round((response["phase"].values[middle] - truth_phase[middle]) / 360)
        truth_phase += 360 * turns
        style: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": (0, (2, 2))}
        title = "truth" if one.quantile == 0.5 else None
        magnitude.plot(f, _decibel(np.abs(one.truth)), label=title, **style)
        phase.plot(f, truth_phase, **style)
    time = one.step["time"].values
    step.fill_between(
        time, one.step["low"], one.step["high"], color=color, alpha=0.22, linewidth=0, step="post"
    )
    step.plot(
        time,
        one.step["response"],
        color=color,
        linewidth=line_width,
        drawstyle="steps-post",
        label=label,
    )


def _draw_empirical(
    magnitude: Axes,
    phase: Axes,
    views: LinearViews,
    output: str,
    input: str,
    one: ViewOfInput,
) -> None:
    """Draw the empirical frequency response of the records where the input excites it."""
    if output not in views.empirical:
        return
    found = views.empirical[output]
    j = views.inputs.index(input)
    f = one.response["frequency"].values
    kept = found.excited[:, j] & (found.frequency >= f[0]) & (found.frequency <= f[-1])
    if not kept.any():
        return
    G = found.response[kept, j]
    frequency = found.frequency[kept]
    spread = EMPIRICAL_STDS * found.std[kept, j] / np.abs(G)
    degrees = np.degrees(np.angle(G))
    near = np.interp(np.log(frequency), np.log(f), one.response["phase"].values)
    degrees += 360 * np.round((near - degrees) / 360)
    bars: dict[str, Any] = {
        "fmt": ".",
        "color": GREY,
        "markersize": 4,
        "elinewidth": 0.6,
        "zorder": 1,
    }
    decibels = 20 * np.log10(np.exp(1)) * spread
    magnitude.errorbar(
        frequency, _decibel(np.abs(G)), decibels, label="record, without a model", **bars
    )
    phase.errorbar(frequency, degrees, np.minimum(np.degrees(spread), 180.0), **bars)


def _draw_linear_model(
    magnitude: Axes,
    phase: Axes,
    step: Axes,
    views: LinearViews,
    output: str,
    input: str,
    one: ViewOfInput,
) -> None:
    """Draw the best linear model of the records."""
    if output not in views.linear or input not in views.linear[output].inputs:
        return
    linear = views.linear[output]
    f = one.response["frequency"].values
    selection = {"output": output, "input": input}
    response = linear.frequency_response(f).sel(selection)
    style: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": "--"}
    degrees = response["phase"].values
    middle = len(f) // 2
    degrees += 360 * np.round((one.response["phase"].values[middle] - degrees[middle]) / 360)
    magnitude.plot(f, _decibel(response["magnitude"].values), label="best linear model", **style)
    phase.plot(f, degrees, **style)
    steps = linear.step_response(one.step.sizes["time"]).sel(selection)
    step.plot(steps["time"], steps["response"], drawstyle="steps-post", **style)


def _finish(
    magnitude: Axes, phase: Axes, step: Axes, views: LinearViews, output: str, input: str
) -> None:
    """Set scales, limits, labels and legends of the panels of one input."""
    shown = views.of(output, input)
    view = shown[0].view
    unit = "Hz" if view.time_unit == "s" else "cycles per sample"
    band = views.band(output, input)
    levels = np.concatenate(
        [_decibel(one.response["magnitude"].values) for one in shown]
        + [
            _decibel(np.abs(one.truth))[_is_excited(one, band)]
            for one in shown
            if one.truth is not None
        ]
    )
    phases = np.concatenate([one.response["phase"].values for one in shown])
    top = float(levels.max())
    magnitude.set_ylim(
        max(float(levels.min()), top - SHOWN_DECIBELS) - MARGIN_DECIBELS, top + MARGIN_DECIBELS
    )
    phase.set_ylim(float(phases.min()) - MARGIN_DEGREES, float(phases.max()) + MARGIN_DEGREES)
    for ax in (magnitude, phase):
        ax.set_xscale("log")
        if band is not None:
            ax.axvspan(*band, color="#eef3f7", zorder=0)
    gain_unit = view.gain_unit(output, input)
    magnitude.set(ylabel=f"magnitude [dB{' re ' + gain_unit if gain_unit else ''}]")
    magnitude.set_title(f"from {input}", loc="left", fontsize="medium")
    phase.set(ylabel="phase [deg]", xlabel=f"frequency [{unit}]")
    step.set(
        xlabel=f"time [{view.time_unit}]",
        ylabel=f"step response [{gain_unit or '1'}]",
    )
    heights = np.concatenate([one.step["response"].values for one in shown])
    low = min(0.0, float(heights.min()))
    high = max(0.0, float(heights.max()))
    margin = 0.15 * max(high - low, 1e-12)
    step.set_ylim(low - margin, high + margin)
    handles, labels = magnitude.get_legend_handles_labels()
    beside = ("truth", "best linear model", "record, without a model")
    order = sorted(range(len(labels)), key=lambda i: (labels[i] in beside, i))
    magnitude.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        frameon=False,
        fontsize="x-small",
        loc="lower left",
    )


def _is_excited(one: ViewOfInput, band: tuple[float, float] | None) -> np.ndarray:
    """Mark the frequencies (n,) of a view that the records excite; all if this is not known."""
    f = one.response["frequency"].values
    if band is None:
        return np.full(len(f), True)
    low, high = band
    return (f >= low) & (f <= high)


def _decibel(magnitude: np.ndarray) -> np.ndarray:
    """Return magnitudes in decibels."""
    return np.asarray(20 * np.log10(np.maximum(magnitude, 1e-300)))


def _same(values: np.ndarray) -> np.ndarray:
    return values
