"""Correlations of residuals over lags, with the bands that they keep if the model is right."""

import numpy as np
from matplotlib.axes import Axes

from experiments.canvas import BLUE, GREY, ORANGE
from experiments.validation.residuals import Residuals
from sysid.simulation.residuals import CorrelationTest

COLOURS = {"one_step": ORANGE, "free_run": BLUE}
NAMES = {"one_step": "one step", "free_run": "free run"}
TITLES = {
    "autocorrelation": "Autocorrelation of the residuals",
    "input": "Residuals against {input}",
    "squared_autocorrelation": "Autocorrelation of the squared residuals",
    "squared_input": "Residuals against {input} squared",
}


def correlations(ax: Axes, residuals: Residuals, output: str, name: str) -> None:
    """One kind of test over its lags, of one step and of the free run; of several inputs the worst."""
    chosen = _chosen(residuals, output, name)
    title = TITLES[name]
    for (kind, test), shift in zip(chosen.items(), (-0.17, 0.17), strict=False):
        alarm = ", alarm" if test.alarm else ""
        ax.vlines(test.lags + shift, 0.0, test.values, color=COLOURS[kind], linewidth=2.0)
        ax.plot([], [], color=COLOURS[kind], linewidth=2.0, label=f"{NAMES[kind]}, p = {test.p_value:.2g}{alarm}")
    for test in list(chosen.values())[:1]:
        ax.fill_between(test.lags, -test.band, test.band, color=GREY, alpha=0.25, linewidth=0)
        title = title.format(input=test.input)
        ax.set_xlim(test.lags[0] - 0.7, test.lags[-1] + 0.7)
    ax.axhline(0.0, color="black", linewidth=0.6)
    ax.set_title(title.format(input="the input"), loc="left", fontsize="medium")
    ax.set(xlabel="lag [samples]; grey: 95 % band", ylabel="correlation [-]")
    if chosen:
        top = max(float(np.abs(test.values).max()) for test in chosen.values())
        low = min(float(test.values.min()) for test in chosen.values())
        ax.set_ylim(min(-0.15, 1.1 * low), 1.45 * max(top, 0.15))
        ax.legend(frameon=False, fontsize="x-small", ncols=2, loc="upper right", borderaxespad=0.1)
    else:
        ax.text(0.5, 0.5, "not tested", ha="center", va="center", transform=ax.transAxes, color=GREY)


def _chosen(residuals: Residuals, output: str, name: str) -> dict[str, CorrelationTest]:
    """The test of each kind; of several inputs the one with the smallest p-value, one step first."""
    found = {
        kind: [test for test in report.tests if test.output == output and test.name == name]
        for kind, report in residuals.reports.items()
    }
    there = [test for tests in found.values() for test in tests]
    if not there:
        return {}
    worst = min(there, key=lambda test: test.p_value).input
    return {kind: test for kind, tests in found.items() for test in tests if test.input == worst}
