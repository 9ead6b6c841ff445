"""How an identified model is shown: figures of its predictions and errors, pieces of a page."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sysid.markup import chart, in_time_unit, labelled
from sysid.narx.lags import Target
from sysid.simulation.residuals import ALARM_MEANINGS, ResidualReport

MEASURED_COLOR = "#9a9a9a"  # visible on white and on black
PREDICTED_COLOR = "#d55e00"
INPUT_COLORS = ("#0b6fa4", "#3a8a4d", "#7b4ea3")
PANEL_SIZE = (9.0, 2.4)  # width and height of one panel [inch]
N_CHARTED_SAMPLES = 300  # samples in a small picture: with more its lines would cover each other
#: lines break where a step is longer than this multiple of the median step
MAX_STEP_RATIO = 1.5
SHOWN_TITLE_WIDTH = 110  # characters of one line of a title


class Predicted(NamedTuple):
    """Predictions of one output of one record, one step ahead or in free run."""

    title: str  # "1 step" or "free run"
    #: over time: NAME (measured), NAME_mean, NAME_low, NAME_high, as `IdentifiedModel.predict`
    frame: pd.DataFrame


def broken_at_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table over time with a row of nan in each gap, at which lines break."""
    times = frame.index.to_numpy(dtype=np.float64)
    steps = np.diff(times)
    if not len(steps):
        return frame
    before = np.flatnonzero(steps > MAX_STEP_RATIO * np.median(steps))
    middle = (times[before] + times[before + 1]) / 2
    breaks = pd.DataFrame(np.nan, index=middle, columns=frame.columns)
    return pd.concat([frame, breaks]).sort_index() if len(breaks) else frame


def small_chart(name: str, unit: str, predicted: Predicted, time_unit: str) -> str:
    """Return a small picture of the first samples of a record for a notebook."""
    shown = broken_at_gaps(predicted.frame.iloc[:N_CHARTED_SAMPLES])
    times, x_label = in_time_unit(shown.index.to_numpy(dtype=np.float64), time_unit)
    if len(predicted.frame) > N_CHARTED_SAMPLES:
        x_label += f", first {N_CHARTED_SAMPLES} of {len(predicted.frame)} test samples"
    return chart(
        times,
        {"measured": shown[name].to_numpy(), predicted.title: shown[f"{name}_mean"].to_numpy()},
        band=(shown[f"{name}_low"].to_numpy(), shown[f"{name}_high"].to_numpy()),
        x_label=x_label,
        y_label=labelled(name, unit),
    )


def draw_output(
    name: str,
    unit: str,
    predictions: Sequence[Predicted],
    report: ResidualReport | None,
    time_unit: str,
    title: str,
) -> Any:
    """Draw predictions, errors of the first of them, and correlations of the errors of one output.

    Parameters
    ----------
    name, unit
        Output.
    predictions
        Those that the model is for come first.
    report
        Residual tests of the errors one step ahead; None: there are none.
    time_unit
        Unit of the times of the record.
    title
        Which record is drawn.

    Returns
    -------
    matplotlib axes
        Those of the first panel; the others are those of its figure.
    """
    n_panels = len(predictions) + 1 + (report is not None)
    first = _start_figure(n_panels)
    figure = first.figure
    axes = [first]
    for number in range(1, n_panels):
        panel = figure.add_subplot(n_panels, 1, number + 1)
        if number <= len(predictions):  # the axis of time is the same
            panel.sharex(first)
        axes.append(panel)
    for ax, predicted in zip(axes, predictions, strict=False):
        _draw_prediction(ax, name, unit, predicted, time_unit)
    _draw_errors(axes[len(predictions)], name, unit, predictions[0], time_unit)
    if report is not None:
        _draw_correlations(axes[-1], report)
    first.set_title(title, loc="left", fontsize="medium")
    return first


def _start_figure(n_panels: int) -> Any:
    """Return the first axes of a new figure with this number of panels below each other."""
    # pandas makes the figure: it imports matplotlib only if somebody draws
    size = (PANEL_SIZE[0], PANEL_SIZE[1] * n_panels)
    first = pd.DataFrame([0.0]).plot(figsize=size)
    first.clear()
    first.figure.set_layout_engine("constrained")
    first.set_subplotspec(first.figure.add_gridspec(n_panels, 1)[0])
    return first


def _draw_prediction(ax: Any, name: str, unit: str, predicted: Predicted, time_unit: str) -> None:
    """Draw measurement, prediction and 95 % band over time."""
    frame = broken_at_gaps(predicted.frame)
    times, x_label = in_time_unit(frame.index.to_numpy(dtype=np.float64), time_unit)
    # the measured line is wide, so that it is visible beside a prediction that fits
    ax.plot(times, frame[name], color=MEASURED_COLOR, linewidth=3, label="measured")
    ax.plot(times, frame[f"{name}_mean"], color=PREDICTED_COLOR, linewidth=1, label=predicted.title)
    ax.fill_between(
        times,
        frame[f"{name}_low"],
        frame[f"{name}_high"],
        color=PREDICTED_COLOR,
        alpha=0.25,
        linewidth=0,
        label="95 % band",
    )
    ax.set(xlabel=x_label, ylabel=labelled(name, unit))
    _put_legend_outside(ax)


def _draw_errors(ax: Any, name: str, unit: str, predicted: Predicted, time_unit: str) -> None:
    """Draw the errors of a prediction over time, with the 95 % band about zero."""
    frame = broken_at_gaps(predicted.frame)
    times, x_label = in_time_unit(frame.index.to_numpy(dtype=np.float64), time_unit)
    mean = frame[f"{name}_mean"]
    ax.axhline(0.0, color=MEASURED_COLOR, linewidth=0.8)
    ax.plot(
        times,
        frame[name] - mean,
        color=PREDICTED_COLOR,
        linewidth=0.8,
        label=f"measured - {predicted.title}",
    )
    ax.fill_between(
        times,
        frame[f"{name}_low"] - mean,
        frame[f"{name}_high"] - mean,
        color=PREDICTED_COLOR,
        alpha=0.25,
        linewidth=0,
        label="95 % band",
    )
    ax.set(xlabel=x_label, ylabel=labelled("residual", Target.change.unit_of(unit)))
    _put_legend_outside(ax)


def _draw_correlations(ax: Any, report: ResidualReport) -> None:
    """Draw how the residuals correlate with their past and the inputs, with the verdict."""
    colors = iter(INPUT_COLORS)
    for test in report.tests:
        if test.name == "autocorrelation":
            ax.fill_between(test.lags, -test.band, test.band, color=MEASURED_COLOR, alpha=0.3)
            ax.vlines(test.lags, 0.0, test.values, color=PREDICTED_COLOR, label="with its past")
        elif test.name == "input":
            color = next(colors, None)
            if color is not None:  # further inputs would not be told apart; the verdict has them
                ax.plot(test.lags, test.values, ".-", color=color, label=f"with {test.input}")
    ax.axhline(0.0, color=MEASURED_COLOR, linewidth=0.8)
    ax.set(xlabel="lag [samples]", ylabel="correlation of\nthe residual, 1 step")
    ax.set_title(fill(_short_verdict(report), SHOWN_TITLE_WIDTH), loc="left", fontsize="medium")
    _put_legend_outside(ax)


def _short_verdict(report: ResidualReport) -> str:
    """Return the summary of the residual tests, and what their strongest alarm means."""
    summary = "; ".join(report.verdict()[:1])
    alarms = [test for test in report.tests if test.alarm]
    if not alarms:
        return summary
    strongest = min(alarms, key=lambda test: test.p_value)
    return f"{summary}. Strongest alarm: {strongest}: {ALARM_MEANINGS[strongest.name]}"


def _put_legend_outside(ax: Any) -> None:
    """Put the legend to the right of the axes, where it hides nothing."""
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
