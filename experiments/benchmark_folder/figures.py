"""Figures of a benchmark: its signals over time, their spectra, and the region that they cover."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from textwrap import fill

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.benchmark_folder.benchmark import Benchmark
from experiments.benchmark_folder.record import SimulatedRecord
from sysid import Narx
from sysid.data.source import ROLES

BLUE, ORANGE, GREY, GREEN = "#0b6fa4", "#d9741a", "#7a7a7a", "#3a8a4d"
COLORS = {"estimation": BLUE, "validation": GREEN, "test": ORANGE}
TIME_UNITS = ((86400.0, "d", 4.0), (3600.0, "h", 4.0), (1.0, "s", 0.0))  # length [s], name, at least so many
MOST_COLUMNS = 4  # pairs of lags in a row of the coverage
MOST_PAIRS = 12
SHOWN_POINTS = 3000  # of one record in a scatter
SPECTRAL_LINES = 2**11  # longest segment of a spectrum is twice that


def drawings(benchmark: Benchmark) -> dict[str, Callable[[], Figure]]:
    """Figure name to the function that draws it, from the first record of each role."""
    first = {role: benchmark.of_role(role)[0] for role in ROLES}
    return {
        "time_series": partial(time_series, first),
        "spectra": partial(spectra, first),
        "coverage": partial(coverage, {role: record.measured for role, record in first.items()}, benchmark.lags.first),
    }


def png(figure: Figure) -> bytes:
    """Figure as PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def time_series(records: dict[str, SimulatedRecord]) -> Figure:
    """Every input and output of the first record of each role, the initialisation window shaded."""
    measured = {role: record.measured for role, record in records.items()}
    names = [str(name) for name in next(iter(measured.values())).data_vars]
    powers = _powers(measured, names)
    figure, axes = _grid(len(names), len(measured), 2.1)
    for column, (role, record) in enumerate(measured.items()):
        length, unit = _time_unit(record["time"].values[-1])
        time = record["time"].values / length
        for row, name in enumerate(names):
            ax = axes[row, column]
            ax.plot(time, record[name].values / 10.0 ** powers[name], color=COLORS[role], linewidth=0.7)
            if window := records[role].window:
                ax.axvspan(time[0], time[window - 1], color=GREY, alpha=0.25, linewidth=0)
            ax.set_xlim(time[0], time[-1])
        axes[0, column].set_title(f"{records[role].name}: {len(time)} samples")
        axes[-1, column].set_xlabel(f"time [{unit}]")
    for row, name in enumerate(names):
        axes[row, 0].set_ylabel(_label(measured["test"], name, 0, powers, width=22))
        _same_range(axes[row])
    return figure


def spectra(records: dict[str, SimulatedRecord]) -> Figure:
    """Power spectral density of every input and output, and of the measurement noise beside the outputs."""
    system = next(iter(records.values())).trajectory.system
    signals, power = [*system.inputs, *system.outputs], _power(0.5 / system.dt)
    figure, axes = _grid(len(signals), 1, 2.4)
    for ax, signal in zip(axes[:, 0], signals, strict=True):
        for role, record in records.items():
            frequency, density = _density(record.measured[signal.name])
            ax.semilogy(frequency / 10.0**power, density, color=COLORS[role], linewidth=0.9, label=role)
        if signal in system.outputs:
            noise = records["test"].truth[f"{signal.name}_noise"]
            if np.any(noise.values):
                level = 2 * record.trajectory.system.dt * float(np.mean(noise.values**2))
                ax.axhline(level, color="black", linestyle="--", linewidth=0.9, label="measurement noise, test")
        ax.set_ylabel(fill(f"PSD of {signal.name} [{_squared(signal.unit)}/Hz]", 26))
        ax.set_xlim(0, 0.5 / system.dt / 10.0**power)
        ax.legend(frameon=False, ncols=4, loc="upper right", fontsize="small")
        _lift(ax)
    axes[-1, 0].set_xlabel(f"frequency [{_in_powers('Hz', power)}]")
    return figure


def coverage(records: dict[str, xr.Dataset], narx: Narx) -> Figure:
    """Pairs of lagged signals: the estimation record, with the test record over it."""
    pairs, powers = _pairs(narx), _powers(records, narx.signals)
    columns = min(len(pairs), MOST_COLUMNS)
    rows = -(-len(pairs) // columns)
    figure, axes = _grid(rows, columns, 2.9, width=2.9)
    for ax, ((across, lag_across), (up, lag_up)) in zip(axes.flat, pairs, strict=False):
        for role in ("estimation", "test"):
            record = records[role]
            end, last = record.sizes["time"], max(lag_across, lag_up)
            chosen = np.arange(last, end)[:: max((end - last) // SHOWN_POINTS, 1)]
            x = record[across].values[chosen - lag_across] / 10.0 ** powers[across]
            y = record[up].values[chosen - lag_up] / 10.0 ** powers[up]
            ax.plot(x, y, ".", color=COLORS[role], markersize=3, alpha=0.5, markeredgewidth=0, label=role)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(_label(records["test"], across, lag_across, powers))
        ax.set_ylabel(_label(records["test"], up, lag_up, powers))
    for ax in list(axes.flat)[len(pairs) :]:
        ax.set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, markerscale=4)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)
    return figure


def _pairs(narx: Narx) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """First two lags of every output against each other, and first lags of all signals pairwise."""
    found = []
    for name in narx.output_names:
        first, *rest = narx.lags[name]
        found += [((name, lag), (name, first)) for lag in rest[:1]]
    firsts = [(name, lags[0]) for name, lags in narx.lags.items()]
    found += [(across, up) for i, up in enumerate(firsts) for across in firsts[i + 1 :]]
    found = found or [((firsts[0][0], firsts[0][1]), (firsts[0][0], 0))]
    return found[:MOST_PAIRS]


def _density(signal: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """One-sided power spectral density by Welch's method, without the constant part."""
    from scipy.signal import welch

    values, dt = signal.values, float(signal["time"].values[1] - signal["time"].values[0])
    segment = min(2 * SPECTRAL_LINES, max(len(values) // 4, min(len(values), 64)))
    frequency, density = welch(values, fs=1 / dt, nperseg=segment, window="hann")
    return frequency[1:], np.maximum(density[1:], 1e-300)


def _grid(rows: int, columns: int, height: float, width: float | None = None) -> tuple[Figure, np.ndarray]:
    across = 9.0 if width is None else max(width * columns, 4.5)
    figure = Figure(figsize=(across, max(height * rows, 3.0) + 0.4), layout="constrained")
    axes = np.asarray(figure.subplots(rows, columns, squeeze=False))
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.5)
    return figure, axes


def _same_range(axes: np.ndarray) -> None:
    """One range for the axes of a row; only the first keeps its numbers."""
    low, high = zip(*(ax.get_ylim() for ax in axes), strict=True)
    for number, ax in enumerate(axes):
        ax.set_ylim(min(low), max(high))
        if number:
            ax.tick_params(labelleft=False)


def _squared(unit: str) -> str:
    return f"{unit}²" if unit.isalpha() else f"({unit})²"


def _lift(ax: Axes) -> None:
    """Room for the legend above the curves; at most twelve decades."""
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, high * 1e-12), high * 30)


def _time_unit(end: float) -> tuple[float, str]:
    return next((length, name) for length, name, least in TIME_UNITS if end >= least * length)


def _powers(records: Mapping[str, xr.Dataset], names: Sequence[str]) -> dict[str, int]:
    """Power of ten of every signal in which its values can be read, the same for all records."""
    return {name: _power(max(float(np.abs(record[name]).max()) for record in records.values())) for name in names}


def _power(largest: float) -> int:
    readable = largest == 0 or 0.1 <= largest < 1e5
    return 0 if readable else 3 * int(np.floor(np.log10(largest) / 3))


def _label(record: xr.Dataset, name: str, lag: int, powers: Mapping[str, int], *, width: int = 30) -> str:
    """Name, lag, power of ten and unit, in lines that fit."""
    unit = str(record[name].attrs.get("units", "1"))
    return fill(
        f"{name}{f'[k-{lag}]' if lag else ''} [{_in_powers(unit, powers[name])}]", width, break_long_words=False
    )


def _in_powers(unit: str, power: int) -> str:
    return f"$10^{{{power}}}$\u00a0{unit}" if power else unit
