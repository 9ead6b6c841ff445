"""One page of figures about one output of a validation."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from experiments.canvas import BLUE, GREEN, GREY, ORANGE, SHADES, show_from_to
from experiments.plots.clock import with_clock
from experiments.validation.assessment import Assessment
from experiments.validation.residual_figure import COLOURS, NAMES, correlations
from experiments.validation.residuals import Residuals
from sysid import calibration
from sysid.model.result import INITIAL
from sysid.simulation.validation import Z_95

TESTS = ("autocorrelation", "input", "squared_autocorrelation", "squared_input")
DENSE = 1500  # samples from which on the measurement is a thin line


def page(assessment: Assessment, residuals: Residuals, output: str) -> Figure:
    """Free run with its band, its error, error over the horizon, calibration, residual tests."""
    figure = Figure(figsize=(10.0, 12.5), layout="constrained")
    grid = GridSpec(5, 2, figure=figure, height_ratios=[3.2, 1.7, 2.6, 2.3, 2.3])
    run = figure.add_subplot(grid[0, :])
    error = figure.add_subplot(grid[1, :], sharex=run)
    panels = [figure.add_subplot(grid[i, j]) for i in (2, 3, 4) for j in (0, 1)]
    for ax in (run, error, *panels):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.5)
    _free_run(run, error, assessment, output)
    _error_over_horizon(panels[0], assessment, output)
    _calibration(panels[1], assessment, output)
    for ax, name in zip(panels[2:], TESTS, strict=True):
        correlations(ax, residuals, output, name)
    return figure


def _free_run(run: Axes, error: Axes, assessment: Assessment, output: str) -> None:
    """Longest record: measurement, free run, 95 % band; below its residual with the band about zero."""
    found, i = assessment.forecasts[assessment.free_run], assessment.outputs.index(output)
    one = max(found.records, key=lambda record: len(record.sample))
    record = with_clock(assessment.material.records[one.record], "time")
    x, unit = record["shown"].values, assessment.unit(output) or "1"
    measured, after = record[output].values, x[one.sample]
    mean = one.mean[:, i]
    half = Z_95 * np.sqrt(one.variance[:, i] + found.noise_variance[i])
    run.fill_between(after, mean - half, mean + half, color=BLUE, alpha=0.2, linewidth=0, label="95 % band")
    run.plot(x, measured, color=ORANGE, linewidth=0.8 if len(x) > DENSE else 1.1, label="measured")
    run.plot(after, mean, color=BLUE, linewidth=1.1, label="free run")
    error.fill_between(after, -half, half, color=BLUE, alpha=0.2, linewidth=0)
    error.plot(after, measured[one.sample] - mean, color=BLUE, linewidth=0.8)
    error.axhline(0.0, color="black", linewidth=0.6)
    for ax in (run, error):
        ax.axvspan(x[0], after[0], color=SHADES[INITIAL], zorder=0, label=f"window, {assessment.window} samples")
        show_from_to(ax, x)
    keep_in_sight(run, measured, mean)
    keep_in_sight(error, measured[one.sample] - mean)
    score, unit_of_error = assessment.scores[assessment.free_run][output], assessment.error_unit(output)
    where = f"; the longest of {len(found.records)} records" if len(found.records) > 1 else ""
    error_size = f"{score.rmse:.4g} {unit_of_error}".removesuffix(" 1")
    said = f"RMSE {error_size}, fit {score.fit_percent:.1f} %" if np.isfinite(score.rmse) else "it diverges"
    covered = f"the 95 % band covers {100 * score.coverage_95:.1f} %"
    run.set_title(f"{output}, free run: {said}, {covered}{where}", loc="left", fontsize="medium")
    run.set_ylabel(f"{output} [{unit}]")
    error.set_ylabel(f"residual [{unit_of_error}]")
    error.set_xlabel(record["shown"].attrs["label"])
    run.tick_params(labelbottom=False)
    run.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False, fontsize="small")


def keep_in_sight(ax: Axes, *curves: np.ndarray) -> None:
    """Cut off a band that would hide the curves: at most half their range of room above and below."""
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves])
    if len(values) and values.max() > values.min():
        low, high = ax.get_ylim()
        room = 0.5 * (values.max() - values.min())
        ax.set_ylim(max(low, values.min() - room), min(high, values.max() + room))


def _error_over_horizon(ax: Axes, assessment: Assessment, output: str) -> None:
    """RMSE over the horizon for every window, the free run as a line."""
    unit = assessment.error_unit(output)
    styles = ("-", "--", ":", "-.")
    windows = dict.fromkeys(case.window for case in assessment.forecasts)
    for style, window in zip(styles * len(windows), windows, strict=False):
        rmse = {c.horizon: assessment.scores[c][output].rmse for c in assessment.forecasts if c.window == window}
        free = rmse.pop(None)
        ahead = [horizon for horizon in rmse if horizon is not None]
        ax.plot(
            ahead,
            [rmse[horizon] for horizon in ahead],
            "o" + style,
            color=GREEN,
            markersize=4,
            label=f"window {window}",
        )
        if np.isfinite(free):
            ax.axhline(free, color=BLUE, linestyle=style, linewidth=1.1, label=f"free run, window {window}")
    spread = float(np.std(assessment.series(assessment.free_run, output).measured))
    ax.axhline(spread, color=GREY, linewidth=1.0, linestyle=(0, (1, 1)), label="std of the measurement")
    ax.set(xscale="log", yscale="log", xlabel="horizon [samples]", ylabel=f"RMSE [{unit}]")
    ax.set_title("Error over the horizon", loc="left", fontsize="medium")
    horizons = sorted({case.horizon for case in assessment.forecasts if case.horizon is not None})
    ax.set_xticks(horizons, [str(h) for h in horizons])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize="x-small", loc="best")


def _calibration(ax: Axes, assessment: Assessment, output: str) -> None:
    """Observed against nominal coverage of central bands."""
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for kind, case in (("one_step", assessment.one_step), ("free_run", assessment.free_run)):
        s = assessment.series(case, output)
        curve = calibration(s.measured, s.mean, s.variance, s.noise_variance)
        ax.plot(curve.nominal, curve.observed, "o-", markersize=3, color=COLOURS[kind], label=NAMES[kind])
    ax.set(xlabel="probability of the band [-]", ylabel="covered [-]", xlim=(0, 1), ylim=(0, 1.02))
    ax.set_title("Calibration: below the line the bands are too narrow", loc="left", fontsize="medium")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
