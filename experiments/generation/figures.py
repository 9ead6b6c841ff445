"""The figure of a benchmark: its signals over time."""

from collections.abc import Mapping
from textwrap import fill

import xarray as xr
from matplotlib.figure import Figure

from experiments.generation.benchmark import Benchmark, SimulatedRecord
from experiments.plots.style import BLUE, GREEN, GREY, ORANGE, png, screen, show_from_to, unit_of, with_clock
from sysid.data.source import ROLES

COLORS = {"estimation": BLUE, "validation": GREEN, "test": ORANGE}


def draw(benchmark: Benchmark) -> dict[str, bytes]:
    """Figures as PNG by name, of the first record of each role."""
    first = {role: benchmark.select(role)[0] for role in ROLES}
    return {"time_series": png(draw_time_series(first))}


def draw_time_series(records: Mapping[str, SimulatedRecord]) -> Figure:
    """Every input and output of the first record of each role, the initialisation window shaded."""
    measured = {role: with_clock(record.measured, "time") for role, record in records.items()}
    names, panels = list(map(str, measured["test"].data_vars)), {"ncols": len(ROLES), "squeeze": False}
    figure, axes = screen(len(names), 0.8 + 2.0 * len(names), sharey="row", sharex="col", **panels)
    for column, (role, record) in enumerate(measured.items()):
        x, window = record["shown"].values, records[role].window
        for ax, name in zip(axes[:, column], names, strict=True):
            ax.plot(x, record[name].values, color=COLORS[role], linewidth=0.7)
            if window:
                ax.axvspan(x[0], x[window - 1], color=GREY, alpha=0.25, linewidth=0)
            show_from_to(ax, x)
        axes[0, column].set_title(f"{records[role].name}: {len(x)} samples")
        axes[-1, column].set_xlabel(record["shown"].attrs["label"])
    for ax, name in zip(axes[:, 0], names, strict=True):
        ax.set_ylabel(_label(measured["test"][name], name, 22))
    return figure


def _label(signal: xr.DataArray, name: str, width: int) -> str:
    """Name and unit, in lines that fit."""
    return fill(f"{name} [{unit_of(signal)}]", width, break_long_words=False)
