"""Figures of a validation: one page for each output, and the loops around plant and model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SHADES,
    draw_line,
    fill_band,
    png,
    screen,
    show_from_to,
    tidy,
    with_clock,
)
from experiments.drawing.tables import shown_unit, with_unit
from experiments.validate.assessment import FREE_RUN_LABEL, Assessment, Case
from experiments.validate.linear_figure import draw_linear_views
from experiments.validate.loop import LOOP_VARIABLES
from sysid import ResidualReport, calibration
from sysid.model.result import INITIAL
from sysid.simulation.residuals import p_in_words
from sysid.simulation.validation import Z_95

KIND_COLORS = {"one_step": ORANGE, FREE_RUN_LABEL: BLUE}
KIND_LABELS = {"one_step": "one step", FREE_RUN_LABEL: "free run"}
#: titles of the residual tests, by the name of the test
TEST_TITLES = {
    "autocorrelation": "Autocorrelation of the residuals",
    "input": "Residuals against {input}",
    "squared_autocorrelation": "Autocorrelation of the squared residuals",
    "squared_input": "Residuals against {input} squared",
}
MAX_INPUTS_DRAWN = 4  # inputs whose correlations with the residuals are drawn
WINDOW_LINE_STYLES = ("-", "--", ":", "-.")
MAX_SAMPLES_OF_THICK_LINE = 1500  # longer measurements are drawn as a thin line
TEST_OFFSETS = (-0.17, 0.17)  # shift of the stems of one step and of the free run [lags]


def draw_pages(
    assessment: Assessment, residuals: Mapping[str, ResidualReport | str]
) -> dict[str, bytes]:
    """Return the figures as PNG files, by the name of the file without its suffix."""
    has_one_output = len(assessment.outputs) == 1
    pages = {}
    for output in assessment.outputs:
        name = "validation" if has_one_output else f"validation_{output}"
        pages[name] = draw_page(assessment, residuals, output)
    if assessment.loop is not None:
        pages["closed_loop"] = draw_loop(assessment, assessment.loop)
    if assessment.linear_views is not None:
        for output in assessment.outputs:
            name = "linear_view" if has_one_output else f"linear_view_{output}"
            pages[name] = draw_linear_views(assessment.linear_views, output)
    return {name: png(figure) for name, figure in pages.items()}


def draw_page(
    assessment: Assessment, residuals: Mapping[str, ResidualReport | str], output: str
) -> Figure:
    """Draw the free run and its error, the error over the horizon, calibration, residual tests.

    The residual tests have a row for the residuals themselves and one for each input.
    """
    tests = _list_tests(residuals, output)
    pairs = [tests[i : i + 2] for i in range(0, len(tests), 2)]
    figure = Figure(figsize=(10.0, 7.7 + 2.4 * len(pairs)), layout="constrained")
    rows: list[Any] = [
        ["run", "run"],
        ["error", "error"],
        ["horizon", "calibration"],
        *[["/".join(test) for test in pair] for pair in pairs],
    ]
    axes = figure.subplot_mosaic(rows, height_ratios=[3.2, 1.7, 2.6] + [2.3] * len(pairs))
    axes["run"].sharex(axes["error"])
    tidy(np.array([*axes.values()]))
    _draw_free_run(axes["run"], axes["error"], assessment, output)
    _draw_error_over_horizon(axes["horizon"], assessment, output)
    _draw_calibration(axes["calibration"], assessment, output)
    for test in tests:
        _draw_correlations(axes["/".join(test)], residuals, output, *test)
    return figure


def _list_tests(
    residuals: Mapping[str, ResidualReport | str], output: str
) -> list[tuple[str, str]]:
    """Return name and input of the tests that have a panel: those of up to four inputs.

    Of more inputs, those with the smallest p-values are taken. The input is empty for tests of the
    residuals alone.
    """
    p_values: dict[str, float] = {}
    for report in residuals.values():
        for test in () if isinstance(report, str) else report.tests:
            if test.output == output and test.input:
                p_values[test.input] = min(test.p_value, p_values.get(test.input, 1.0))
    names = list(p_values)
    if len(names) > MAX_INPUTS_DRAWN:
        chosen = sorted(names, key=lambda name: p_values[name])[:MAX_INPUTS_DRAWN]
        names = [name for name in names if name in chosen]
    tests = [("autocorrelation", ""), ("squared_autocorrelation", "")]
    for name in names:
        tests += [("input", name), ("squared_input", name)]
    return tests


def _draw_calibration(ax: Axes, assessment: Assessment, output: str) -> None:
    """Draw the observed against the nominal coverage of central bands."""
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for kind, case in assessment.main.items():
        nominal, observed = calibration(*assessment.series(case, output))
        ax.plot(
            nominal,
            observed,
            "o-",
            markersize=3,
            color=KIND_COLORS[kind],
            label=KIND_LABELS[kind],
        )
    ax.set(
        xlabel="probability of the band [1]",
        ylabel="covered [1]",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    ax.set_title(
        "Calibration: below the line the bands are too narrow",
        loc="left",
        fontsize="medium",
    )
    ax.legend(frameon=False, fontsize="small", loc="lower right")


def _draw_free_run(run: Axes, error: Axes, assessment: Assessment, output: str) -> None:
    """Draw the free run of the longest record, and its error.

    `run` shows the measurement, the free run and its 95 % band; `error` shows the residual, with
    the same band about zero.
    """
    case = assessment.main[FREE_RUN_LABEL]
    forecast = assessment.forecasts[case]
    i = assessment.outputs.index(output)
    predicted = max(forecast.records, key=lambda record: len(record.sample))
    record = with_clock(assessment.material.records[predicted.record], "time")
    x = record["shown"].values
    measured = record[output].values
    mean = predicted.mean[:, i]
    x_predicted = x[predicted.sample]
    residual = measured[predicted.sample] - mean
    half_width = Z_95 * np.sqrt(predicted.variance[:, i] + forecast.noise_variance[i])
    fill_band(run, x_predicted, mean - half_width, mean + half_width, "95 % band")
    draw_line(
        run,
        x,
        measured,
        color=ORANGE,
        linewidth=0.8 if len(x) > MAX_SAMPLES_OF_THICK_LINE else 1.1,
        label="measured",
    )
    draw_line(run, x_predicted, mean, color=BLUE, linewidth=1.1, label="free run")
    fill_band(error, x_predicted, -half_width, half_width)
    draw_line(error, x_predicted, residual, color=BLUE, linewidth=0.8)
    error.axhline(0.0, color="black", linewidth=0.6)
    for ax in (run, error):
        ax.axvspan(
            x[0],
            x_predicted[0],
            color=SHADES[INITIAL],
            zorder=0,
            label=f"window, {assessment.window} samples",
        )
        show_from_to(ax, x)
    is_clean = assessment.are_untouched(predicted.record)[:, i]
    _limit_to_curves(run, measured[is_clean], mean)
    _limit_to_curves(error, residual[is_clean[predicted.sample]])
    _mark_gross_errors(run, x[assessment.are_gross_errors(predicted.record, output)])
    score = assessment.score(case, output, predicted.record)
    unit = assessment.error_unit(output)
    title = f"{output}, free run on {record.attrs['name']}"
    if len(forecast.records) > 1:
        title += f", one of {len(forecast.records)} records"
    clean = assessment.scores_without_gross_errors.get("free_run", {}).get(output)
    if clean is not None and len(forecast.records) == 1 and np.isfinite(clean.rmse):
        title += f": RMSE {with_unit(clean.rmse, unit)}, fit {clean.fit_percent:.1f} %, "
        title += f"without gross errors (with them {with_unit(score.rmse, unit)})"
    elif np.isfinite(score.rmse):
        title += f": RMSE {with_unit(score.rmse, unit)}, fit {score.fit_percent:.1f} %"
    else:
        title += ": it diverges"
    title += f", 95 % band covers {100 * score.coverage_95:.1f} %"
    run.set_title(title, loc="left", fontsize="medium")
    run.set_ylabel(f"{output} [{shown_unit(assessment.unit(output))}]")
    error.set(ylabel=f"residual [{unit}]", xlabel=record["shown"].attrs["label"])
    run.tick_params(labelbottom=False)
    run.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=5,
        frameon=False,
        fontsize="small",
    )


def _mark_gross_errors(ax: Axes, x: np.ndarray) -> None:
    """Mark gross errors of the measurement at the upper edge of the axes; they do not limit it."""
    if len(x):
        ax.plot(
            x,
            np.ones(len(x)),
            "x",
            color=ORANGE,
            transform=ax.get_xaxis_transform(),
            clip_on=False,
            label="gross error",
        )


def _limit_to_curves(ax: Axes, *curves: np.ndarray) -> None:
    """Cut off wide bands, so that the curves fill at least half of the height of the axes.

    The limits are at most half of the range of the curves above and below them.
    """
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves])
    if len(values) and values.max() > values.min():
        low, high = ax.get_ylim()
        room = 0.5 * (values.max() - values.min())
        ax.set_ylim(max(low, values.min() - room), min(high, values.max() + room))


def _draw_error_over_horizon(ax: Axes, assessment: Assessment, output: str) -> None:
    """Draw the RMSE over the horizon for every window, and that of the free run as a line.

    Samples that a gross error touches do not count.
    """
    has_gross_errors = bool(assessment.screened.n_found)
    rmse = {case: scores[output].rmse for case, scores in assessment.scores.items()}
    if has_gross_errors:
        rmse = {case: assessment.score_without_gross_errors(case, output).rmse for case in rmse}
    horizons = sorted({case.horizon for case in rmse if case.horizon is not None})
    windows = dict.fromkeys(case.window for case in rmse)
    for number, window in enumerate(windows):
        line_style = WINDOW_LINE_STYLES[number % len(WINDOW_LINE_STYLES)]
        ax.plot(
            horizons,
            [rmse[Case(horizon, window)] for horizon in horizons],
            f"o{line_style}",
            color=GREEN,
            markersize=4,
            label=f"window {window}",
        )
        free_run_rmse = rmse[Case(None, window)]
        if np.isfinite(free_run_rmse):
            ax.axhline(
                free_run_rmse,
                color=BLUE,
                linestyle=line_style,
                linewidth=1.1,
                label=f"free run, window {window}",
            )
    ax.axhline(
        _std_of_measurement(assessment, output),
        color=GREY,
        linewidth=1.0,
        linestyle=(0, (1, 1)),
        label="std of the measurement",
    )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="horizon [samples]",
        ylabel=f"RMSE [{assessment.error_unit(output)}]",
    )
    title = "Error over the horizon"
    if has_gross_errors:
        title += ", without gross errors"
    ax.set_title(title, loc="left", fontsize="medium")
    ax.set_xticks(horizons, list(map(str, horizons)))
    ax.minorticks_off()
    # handles long enough to show the dashes of a line on both sides of its mark
    ax.legend(frameon=False, fontsize="x-small", loc="best", handlelength=4.5)


def _std_of_measurement(assessment: Assessment, output: str) -> float:
    """Return the standard deviation of an output where no gross error touches a sample."""
    i = assessment.outputs.index(output)
    values = []
    for part in assessment.forecasts[assessment.main[FREE_RUN_LABEL]].records:
        of_output = part.measured[:, i]
        is_clean = assessment.are_untouched(part.record)[part.sample, i]
        values.append(of_output[is_clean & np.isfinite(of_output)])
    return float(np.std(np.concatenate(values)))


def _draw_correlations(
    ax: Axes,
    residuals: Mapping[str, ResidualReport | str],
    output: str,
    name: str,
    input_name: str,
) -> None:
    """Draw one test of one step and of the free run, with its 95 % band for a correct model."""
    ax.axhline(0.0, color="black", linewidth=0.6)
    ax.set(xlabel="lag [samples]; grey: 95 % band", ylabel="correlation [1]")
    drawn = []
    for kind, report in residuals.items():
        if isinstance(report, str):
            continue
        for test in report.tests:
            is_meant = test.output == output and test.name == name
            if is_meant and (test.input or "") == input_name:
                drawn.append((kind, test))
    for (kind, test), offset in zip(drawn, TEST_OFFSETS, strict=False):  # one test of each kind
        label = f"{KIND_LABELS[kind]}, {p_in_words(test.p_value)}"
        if test.alarm:
            label += ", alarm"
        ax.vlines(
            test.lags + offset,
            0.0,
            test.values,
            color=KIND_COLORS[kind],
            linewidth=2.0,
            label=label,
        )
    if drawn:
        _, first_test = drawn[0]
        lags = first_test.lags
        band = first_test.band
        ax.fill_between(lags, -band, band, color=GREY, alpha=0.25, linewidth=0)
        ax.set_xlim(lags[0] - 0.7, lags[-1] + 0.7)
        values = np.concatenate([test.values for _, test in drawn])
        lowest = float(values.min())
        largest = float(np.abs(values).max())
        ax.set_ylim(min(-0.15, 1.1 * lowest), 1.45 * max(largest, 0.15))
        ax.legend(
            frameon=False,
            fontsize="x-small",
            ncols=2,
            loc="upper right",
            borderaxespad=0.1,
        )
    else:
        ax.text(
            0.5,
            0.5,
            "not tested",
            ha="center",
            va="center",
            transform=ax.transAxes,
            color=GREY,
        )
    ax.set_title(TEST_TITLES[name].format(input=input_name), loc="left", fontsize="medium")


def draw_loop(assessment: Assessment, loop: xr.Dataset) -> Figure:
    """Draw every output and every driven input of both loops.

    The 95 % band shows the spread over the functions that were drawn from the model.
    """
    signals = [
        (dim, i, str(name)) for dim in LOOP_VARIABLES for i, name in enumerate(loop[dim].values)
    ]
    figure, axes = screen(len(signals), 1.0 + 2.6 * len(signals), sharex=True)
    clock = with_clock(loop, "time")["shown"]
    x = clock.values
    for ax, (dim, i, name) in zip(axes, signals, strict=True):
        variables = LOOP_VARIABLES[dim]
        plant = loop[variables.plant].values[:, i]
        model = loop[variables.model].values[:, i]
        if variables.variance in loop:
            variance = loop[variables.variance].values[:, i]
            noise_variance = assessment.joint.noise_variance[i] if dim == "output" else 0.0
            half_width = Z_95 * np.sqrt(variance + noise_variance)
            fill_band(ax, x, model - half_width, model + half_width, "95 % band")
        draw_line(ax, x, plant, color=ORANGE, linewidth=0.9, label="around the plant")
        draw_line(ax, x, model, color=BLUE, linewidth=0.9, label="around the model")
        ax.set_ylabel(f"{name} [{shown_unit(assessment.unit(name))}]")
        show_from_to(ax, x)
        _limit_to_curves(ax, plant, model)
    _draw_set_point(axes[0], assessment, x, loop["time"].values)
    window = loop.attrs["window"]
    axes[0].set_title(
        f"The same controller around the plant and around the model, after {window} samples",
        loc="left",
    )
    axes[0].legend(
        frameon=False,
        ncols=4,
        fontsize="small",
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
    )
    axes[-1].set_xlabel(clock.attrs["label"])
    return figure


def _draw_set_point(ax: Axes, assessment: Assessment, x: np.ndarray, time: np.ndarray) -> None:
    """Draw the set-point of the controller, if it has one for the first output."""
    controller = assessment.material.controller
    if controller is None:
        return
    set_point = controller.references(time).get("set_point")
    if set_point is None or controller.outputs_read[:1] != assessment.outputs[:1]:
        return
    ax.plot(
        x,
        set_point.values,
        color=GREEN,
        linewidth=0.9,
        drawstyle="steps-post",
        label="set-point",
    )
