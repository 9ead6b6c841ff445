"""Figures of a validation: a page about each output, and the loop around the model beside that
around the plant.
"""

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
    png,
    screen,
    show_from_to,
    tidy,
    with_clock,
)
from experiments.drawing.tables import with_unit
from experiments.validate.assessment import FREE_RUN, Assessment, Case
from experiments.validate.loop import SIGNALS
from sysid import ResidualReport, calibration
from sysid.model.result import INITIAL
from sysid.simulation.validation import Z_95

COLORS = {"one_step": ORANGE, FREE_RUN: BLUE}
NAMES = {"one_step": "one step", FREE_RUN: "free run"}
TESTS = {
    "autocorrelation": "Autocorrelation of the residuals",
    "input": "Residuals against {input}",
    "squared_autocorrelation": "Autocorrelation of the squared residuals",
    "squared_input": "Residuals against {input} squared",
}
STYLES = ("-", "--", ":", "-.")  # of the windows
DENSE = 1500  # samples from which on the measurement is a thin line


def draw_pages(
    assessment: Assessment, residuals: Mapping[str, ResidualReport | str]
) -> dict[str, bytes]:
    """PNG files by name."""
    pages = {
        f"validation_{name}": draw_page(assessment, residuals, name) for name in assessment.outputs
    }
    if len(pages) == 1:
        pages = {"validation": next(iter(pages.values()))}
    if assessment.loop is not None:
        pages["closed_loop"] = draw_loop(assessment, assessment.loop)
    return {name: png(figure) for name, figure in pages.items()}


def draw_page(
    assessment: Assessment, residuals: Mapping[str, ResidualReport | str], output: str
) -> Figure:
    """Free run with its band, its error, error over the horizon, calibration, residual tests."""
    figure = Figure(figsize=(10.0, 12.5), layout="constrained")
    rows: list[Any] = [
        ["run", "run"],
        ["error", "error"],
        ["horizon", "calibration"],
        [*TESTS][:2],
        [*TESTS][2:],
    ]
    axes = figure.subplot_mosaic(rows, height_ratios=[3.2, 1.7, 2.6, 2.3, 2.3])
    axes["run"].sharex(axes["error"])
    tidy(np.array([*axes.values()]))
    _draw_free_run(axes["run"], axes["error"], assessment, output)
    _draw_error_over_horizon(axes["horizon"], assessment, output)
    ax = axes["calibration"]  # observed against nominal coverage of central bands
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for kind, case in assessment.main.items():
        nominal, observed = calibration(*assessment.series(case, output))
        ax.plot(nominal, observed, "o-", markersize=3, color=COLORS[kind], label=NAMES[kind])
    ax.set(
        xlabel="probability of the band [-]",
        ylabel="covered [-]",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    ax.set_title(
        "Calibration: below the line the bands are too narrow",
        loc="left",
        fontsize="medium",
    )
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    for name in TESTS:
        _draw_correlations(axes[name], residuals, output, name)
    return figure


def _draw_free_run(run: Axes, error: Axes, assessment: Assessment, output: str) -> None:
    """Longest record: measurement, free run, 95 % band; below its residual with the band about
    zero.
    """
    case = assessment.main[FREE_RUN]
    found = assessment.forecasts[case]
    i = assessment.outputs.index(output)
    one = max(found.records, key=lambda record: len(record.sample))
    record = with_clock(assessment.material.records[one.record], "time")
    x = record["shown"].values
    measured = record[output].values
    mean = one.mean[:, i]
    after = x[one.sample]
    residual = measured[one.sample] - mean
    half = Z_95 * np.sqrt(one.variance[:, i] + found.noise_variance[i])
    run.fill_between(
        after,
        mean - half,
        mean + half,
        color=BLUE,
        alpha=0.2,
        linewidth=0,
        label="95 % band",
    )
    run.plot(
        x,
        measured,
        color=ORANGE,
        linewidth=0.8 if len(x) > DENSE else 1.1,
        label="measured",
    )
    run.plot(after, mean, color=BLUE, linewidth=1.1, label="free run")
    error.fill_between(after, -half, half, color=BLUE, alpha=0.2, linewidth=0)
    error.plot(after, residual, color=BLUE, linewidth=0.8)
    error.axhline(0.0, color="black", linewidth=0.6)
    for ax in (run, error):
        ax.axvspan(
            x[0],
            after[0],
            color=SHADES[INITIAL],
            zorder=0,
            label=f"window, {assessment.window} samples",
        )
        show_from_to(ax, x)
    _keep_in_sight(run, measured, mean)
    _keep_in_sight(error, residual)
    score = assessment.score(case, output, one.record)
    unit = assessment.error_unit(output)
    reached = "it diverges"
    if np.isfinite(score.rmse):
        reached = f"RMSE {with_unit(score.rmse, unit)}, fit {score.fit_percent:.1f} %"
    which = f", one of {len(found.records)} records" if len(found.records) > 1 else ""
    reached += f", 95 % band covers {100 * score.coverage_95:.1f} %"
    run.set_title(
        f"{output}, free run on {record.attrs['name']}{which}: {reached}",
        loc="left",
        fontsize="medium",
    )
    run.set_ylabel(f"{output} [{assessment.unit(output) or '1'}]")
    error.set(ylabel=f"residual [{unit}]", xlabel=record["shown"].attrs["label"])
    run.tick_params(labelbottom=False)
    run.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=4,
        frameon=False,
        fontsize="small",
    )


def _keep_in_sight(ax: Axes, *curves: np.ndarray) -> None:
    """Cut off a band that would hide the curves: at most half their range of room above and
    below.
    """
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves])
    if len(values) and values.max() > values.min():
        low, high = ax.get_ylim()
        room = 0.5 * (values.max() - values.min())
        ax.set_ylim(max(low, values.min() - room), min(high, values.max() + room))


def _draw_error_over_horizon(ax: Axes, assessment: Assessment, output: str) -> None:
    """RMSE over the horizon for every window, the free run as a line."""
    rmse = {case: scores[output].rmse for case, scores in assessment.scores.items()}
    horizons = sorted({case.horizon for case in rmse if case.horizon is not None})
    for number, window in enumerate(dict.fromkeys(case.window for case in rmse)):
        free = rmse[Case(None, window)]
        style = STYLES[number % len(STYLES)]
        ahead = [rmse[Case(horizon, window)] for horizon in horizons]
        ax.plot(
            horizons,
            ahead,
            f"o{style}",
            color=GREEN,
            markersize=4,
            label=f"window {window}",
        )
        if np.isfinite(free):
            ax.axhline(
                free,
                color=BLUE,
                linestyle=style,
                linewidth=1.1,
                label=f"free run, window {window}",
            )
    spread = float(np.std(assessment.series(assessment.main[FREE_RUN], output)[0]))
    ax.axhline(
        spread,
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
    ax.set_title("Error over the horizon", loc="left", fontsize="medium")
    ax.set_xticks(horizons, list(map(str, horizons)))
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize="x-small", loc="best")


def _draw_correlations(
    ax: Axes, residuals: Mapping[str, ResidualReport | str], output: str, name: str
) -> None:
    """One test of one step and of the free run, with the band that it keeps if the model is right.

    Of several inputs the one with the smallest p-value.
    """
    ax.axhline(0.0, color="black", linewidth=0.6)
    ax.set(xlabel="lag [samples]; grey: 95 % band", ylabel="correlation [-]")
    reports = {kind: report for kind, report in residuals.items() if not isinstance(report, str)}
    found = [
        (k, t)
        for k, report in reports.items()
        for t in report.tests
        if (t.output, t.name) == (output, name)
    ]
    driver = min(found, key=lambda pair: pair[1].p_value)[1].input if found else "the input"
    found = [(kind, test) for kind, test in found if test.input == driver]
    for (kind, test), shift in zip(found, (-0.17, 0.17), strict=False):
        label = f"{NAMES[kind]}, p = {test.p_value:.2g}{', alarm' if test.alarm else ''}"
        ax.vlines(
            test.lags + shift,
            0.0,
            test.values,
            color=COLORS[kind],
            linewidth=2.0,
            label=label,
        )
    if found:
        lags = found[0][1].lags
        band = found[0][1].band
        ax.fill_between(lags, -band, band, color=GREY, alpha=0.25, linewidth=0)
        ax.set_xlim(lags[0] - 0.7, lags[-1] + 0.7)
        values = np.concatenate([test.values for _, test in found])
        ax.set_ylim(
            min(-0.15, 1.1 * float(values.min())),
            1.45 * max(float(np.abs(values).max()), 0.15),
        )
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
    ax.set_title(TESTS[name].format(input=driver), loc="left", fontsize="medium")


def draw_loop(assessment: Assessment, loop: xr.Dataset) -> Figure:
    """Every output and every driven input of both loops, with the 95 % band over the functions of
    the model.
    """
    names = [(dim, i, str(name)) for dim in SIGNALS for i, name in enumerate(loop[dim].values)]
    figure, axes = screen(len(names), 1.0 + 2.6 * len(names), sharex=True)
    clock = with_clock(loop, "time")["shown"]
    time = loop["time"].values
    x = clock.values
    for ax, (dim, i, name) in zip(axes, names, strict=True):
        plant, model, *variance = (loop[one].values[:, i] for one in SIGNALS[dim] if one in loop)
        if variance:
            noise_variance = assessment.joint.noise_variance[i] if dim == "output" else 0.0
            half = Z_95 * np.sqrt(variance[0] + noise_variance)
            ax.fill_between(
                x,
                model - half,
                model + half,
                color=BLUE,
                alpha=0.2,
                linewidth=0,
                label="95 % band",
            )
        ax.plot(x, plant, color=ORANGE, linewidth=0.9, label="around the plant")
        ax.plot(x, model, color=BLUE, linewidth=0.9, label="around the model")
        ax.set_ylabel(f"{name} [{assessment.unit(name) or '1'}]")
        show_from_to(ax, x)
        _keep_in_sight(ax, plant, model)
    controller = assessment.material.controller
    window = loop.attrs["window"]
    aim = None if controller is None else controller.references(time).get("set_point")
    if (
        controller is not None
        and aim is not None
        and controller.outputs_read[:1] == assessment.outputs[:1]
    ):
        axes[0].plot(
            x,
            aim.values,
            color=GREEN,
            linewidth=0.9,
            drawstyle="steps-post",
            label="set-point",
        )
    axes[0].set_title(
        f"The same controller around the plant and the model, after {window} samples",
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
