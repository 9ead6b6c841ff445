"""Figures of a benchmark: its signals over time, their spectra, and the region that they cover."""

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.signal import welch

from experiments.generation.benchmark import Benchmark, SimulatedRecord
from experiments.plots.clock import with_clock
from experiments.plots.style import BLUE, GREEN, GREY, ORANGE, png, screen, show_from_to
from sysid import Narx
from sysid.data.source import ROLES

COLORS = {"estimation": BLUE, "validation": GREEN, "test": ORANGE}
MOST_COLUMNS = 4  # pairs of lags in a row of the coverage
MOST_PAIRS = 12
SHOWN_POINTS = 3000  # of one record in a scatter
SPECTRAL_LINES = 2**11  # longest segment of a spectrum is twice that


def draw(benchmark: Benchmark) -> dict[str, bytes]:
    """Figures as PNG by name, of the first record of each role."""
    first = {role: benchmark.select(role)[0] for role in ROLES}
    figures = {
        "time_series": draw_time_series(first),
        "spectra": draw_spectra(first),
        "coverage": draw_coverage(first, next(iter(benchmark.lags.values()))),
    }
    return {name: png(figure) for name, figure in figures.items()}


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
        ax.set_ylabel(_label(measured["test"], name, width=22))
    return figure


def draw_spectra(records: Mapping[str, SimulatedRecord]) -> Figure:
    """Power spectral density of every input and output, and of the measurement noise beside the outputs."""
    system = records["test"].trajectory.system
    signals = [*system.inputs, *system.outputs]
    figure, axes = screen(len(signals), 0.6 + 2.4 * len(signals), sharex=True)
    for ax, signal in zip(axes, signals, strict=True):
        for role, record in records.items():
            u = record.measured[signal.name].values
            segment = min(2 * SPECTRAL_LINES, max(len(u) // 4, min(len(u), 64)))
            frequency, density = welch(u, fs=1 / system.dt, nperseg=segment, window="hann")
            density = np.maximum(density[1:], 1e-300)
            ax.semilogy(frequency[1:], density, color=COLORS[role], linewidth=0.9, label=role)
        if signal in system.outputs:
            noise = records["test"].truth[f"{signal.name}_noise"].values
            if np.any(noise):
                level = 2 * system.dt * float(np.mean(noise**2))
                ax.axhline(level, color="black", linestyle="--", linewidth=0.9, label="measurement noise, test")
        squared = f"{signal.unit}²" if signal.unit.isalpha() else f"({signal.unit})²"
        ax.set_ylabel(fill(f"PSD of {signal.name} [{squared}/Hz]", 26))
        ax.set_xlim(0, 0.5 / system.dt)
        ax.legend(frameon=False, ncols=4, loc="upper right", fontsize="small")
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, high * 1e-12), high * 30)  # room for the legend; at most twelve decades
    axes[-1].set_xlabel("frequency [Hz]")
    return figure


def draw_coverage(records: Mapping[str, SimulatedRecord], narx: Narx) -> Figure:
    """Pairs of lagged signals: the estimation record, with the test record over it."""
    measured = {role: records[role].measured for role in ("estimation", "test")}
    pairs = _pairs(narx)
    columns = min(len(pairs), MOST_COLUMNS)
    rows = -(-len(pairs) // columns)
    figure, axes = screen(rows, 0.4 + 2.9 * rows, ncols=columns, squeeze=False)
    figure.set_figwidth(max(2.9 * columns, 4.5))
    for ax in axes.flat[len(pairs) :]:
        ax.set_visible(False)
    for ax, ((across, lag_across), (up, lag_up)) in zip(axes.flat, pairs, strict=False):
        for role, record in measured.items():
            end, last = record.sizes["time"], max(lag_across, lag_up)
            chosen = np.arange(last, end)[:: max((end - last) // SHOWN_POINTS, 1)]
            x, y = record[across].values[chosen - lag_across], record[up].values[chosen - lag_up]
            ax.plot(x, y, ".", color=COLORS[role], markersize=3, alpha=0.5, markeredgewidth=0, label=role)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(_label(measured["test"], across, lag_across))
        ax.set_ylabel(_label(measured["test"], up, lag_up))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, markerscale=4)
    return figure


def _pairs(narx: Narx) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """First two lags of every output against each other, and first lags of all signals pairwise."""
    pairs = [((name, lags[1]), (name, lags[0])) for name in narx.output_names if len(lags := narx.lags[name]) > 1]
    firsts = [(name, lags[0]) for name, lags in narx.lags.items()]
    pairs += [(across, up) for i, up in enumerate(firsts) for across in firsts[i + 1 :]]
    return pairs[:MOST_PAIRS] or [(firsts[0], (firsts[0][0], 0))]


def _label(record: xr.Dataset, name: str, lag: int = 0, width: int = 30) -> str:
    """Name, lag and unit, in lines that fit."""
    unit = record[name].attrs.get("units", "1")
    return fill(f"{name}{f'[k-{lag}]' if lag else ''} [{unit}]", width, break_long_words=False)
