"""Figures of a benchmark: its signals over time, and their spectra."""

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.signal import welch

from experiments.generation.benchmark import Benchmark, SimulatedRecord
from experiments.plots.clock import with_clock
from experiments.plots.style import BLUE, GREEN, GREY, ORANGE, png, screen, show_from_to, unit_of
from sysid.data.source import ROLES

COLORS = {"estimation": BLUE, "validation": GREEN, "test": ORANGE}
SPECTRAL_LINES = 2**11  # longest segment of a spectrum is twice that


def draw(benchmark: Benchmark) -> dict[str, bytes]:
    """Figures as PNG by name, of the first record of each role."""
    first = {role: benchmark.select(role)[0] for role in ROLES}
    figures = {"time_series": draw_time_series(first), "spectra": draw_spectra(first)}
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
        ax.set_ylabel(_label(measured["test"][name], name, 22))
    return figure


def draw_spectra(records: Mapping[str, SimulatedRecord]) -> Figure:
    """Power spectral density of every input and output, and of the measurement noise beside the outputs."""
    system = records["test"].trajectory.system
    signals, measured = [*system.inputs, *system.outputs], {role: record.measured for role, record in records.items()}
    noises = records["test"].truth
    figure, axes = screen(len(signals), 0.6 + 2.4 * len(signals), sharex=True)
    for ax, signal in zip(axes, signals, strict=True):
        for role, record in measured.items():
            u = record[signal.name].values
            segment = min(2 * SPECTRAL_LINES, max(len(u) // 4, min(len(u), 64)))
            frequency, density = welch(u, fs=1 / system.dt, nperseg=segment, window="hann")
            density = np.maximum(density[1:], 1e-300)
            ax.semilogy(frequency[1:], density, color=COLORS[role], linewidth=0.9, label=role)
        if signal in system.outputs and noises[f"{signal.name}_noise"].any():
            level = 2 * system.dt * float((noises[f"{signal.name}_noise"] ** 2).mean())
            ax.axhline(level, color="black", linestyle="--", linewidth=0.9, label="measurement noise, test")
        squared = f"{signal.unit}²" if signal.unit.isalpha() else f"({signal.unit})²"
        ax.set_ylabel(fill(f"PSD of {signal.name} [{squared}/Hz]", 26))
        ax.set_xlim(0, 0.5 / system.dt)
        ax.legend(frameon=False, ncols=4, loc="upper right", fontsize="small")
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, high * 1e-12), high * 30)  # room for the legend; at most twelve decades
    axes[-1].set_xlabel("frequency [Hz]")
    return figure


def _label(signal: xr.DataArray, name: str, width: int) -> str:
    """Name and unit, in lines that fit."""
    return fill(f"{name} [{unit_of(signal)}]", width, break_long_words=False)
