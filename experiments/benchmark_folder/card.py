"""The data card: a page of Markdown that says all that is needed to use a benchmark without this toolbox."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.benchmark_folder.benchmark import Benchmark
from experiments.benchmark_folder.description import equations, notes, parameters, source_of
from experiments.benchmark_folder.excitation_section import excitation_section
from experiments.benchmark_folder.markdown import number, table, yaml_block
from experiments.benchmark_folder.score_section import score_section
from simulators import Signal, System, noise_free, signal_to_noise

FIGURES = {
    "time_series": "Signals of the first record of each split; the grey samples are the initialisation window",
    "spectra": "Power spectral densities (Welch); the dashed line is the measurement noise of the test record",
    "coverage": "Coverage of the regressor space: estimation record, and the test record over it",
}
ANSWER = ("truth.nc", "truth_csv/", "configuration.yaml")


@dataclass(frozen=True, eq=False)
class Facts:
    """What the card tells."""

    benchmark: Benchmark
    origin: dict[str, str]  # how it was made
    checksums: dict[str, str]  # name of each file of data to its SHA-256
    figures: tuple[str, ...]  # their names


def card(facts: Facts) -> str:
    """The whole card."""
    sections = (
        _title(facts),
        _system(facts.benchmark.system),
        _signals(facts.benchmark.system),
        excitation_section(facts.benchmark),
        _noise(facts),
        _splits(facts),
        score_section(facts.benchmark),
        _figures(facts),
        _use(facts),
        _answer(),
        _origin(facts),
    )
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _title(facts: Facts) -> str:
    benchmark = facts.benchmark
    return (
        f"# {benchmark.name}\n\nA simulated benchmark of system identification: records of {benchmark.counts()} "
        f"samples, one every {benchmark.system.dt:.10g} s.\n\n**Licence:** {benchmark.licence}"
    )


def _system(system: System) -> str:
    rows = [(f"`{p.name}`", number(p.value), p.meaning) for p in parameters(system)]
    code = source_of(system)
    shown = f"What is computed (Python):\n\n```python\n{code}\n```" if code else ""
    origin = f"Source: {found}" if (found := notes(system)) else ""
    parts = (
        f"## System: {type(system).__name__}",
        equations(system),
        origin,
        "### Parameters",
        table(("name", "value", "symbol, meaning, unit"), rows),
        f"Integrated by the classical Runge-Kutta method with {system.substeps} steps per sample.",
        shown,
    )
    return "\n\n".join(part for part in parts if part)


def _signals(system: System) -> str:
    def rows(role: str, signals: Any, place: str) -> list[tuple[str, ...]]:
        return [(f"`{s.name}`", role, s.unit, s.description, place) for s in signals]

    data, answer = "`benchmark.nc`, `csv/`", "`truth.nc`"
    outputs = tuple(noise_free(system.outputs))
    noises = tuple(Signal(f"{s.name}_noise", s.unit, f"noise on the {s.description}") for s in system.outputs)
    found = [
        *rows("input", system.inputs, data),
        *rows("output, measured", system.outputs, data),
        *rows("output, noise-free", outputs, answer),
        *rows("measurement noise", noises, answer),
        *rows("state", system.states, answer),
        *rows("process noise", system.noises, answer),
    ]
    return f"## Signals\n\n`time` is in seconds.\n\n{table(('name', 'role', 'unit', 'meaning', 'in'), found)}"


def _settings(facts: Facts, *names: str) -> str:
    found = facts.benchmark.settings
    return yaml_block({name: found[name] for name in names if found.get(name)})


def _noise(facts: Facts) -> str:
    rows, system = [], facts.benchmark.system
    for record in facts.benchmark.records:
        shown = slice(record.transient, None)
        y0, y = record.trajectory.noise_free_output[shown], record.trajectory.output[shown]
        for signal, ratio, error in zip(system.outputs, signal_to_noise(y0, y), (y - y0).T, strict=True):
            reached = "no noise" if np.isinf(ratio) else f"{ratio:.2f}"
            rows.append((record.name, f"`{signal.name}`", number(float(np.sqrt(np.mean(error**2))), 4), reached))
    process = [
        (f"`{s.name}`", number(float(std)), s.unit, s.description)
        for s, std in zip(system.noises, system.noise_std(), strict=True)
    ]
    parts = (
        "## Noise",
        "Measurement noise is white and Gaussian and is added to the outputs. Reached, relative to the power of "
        "the noise-free output about its mean:",
        table(("record", "output", "rms", "signal-to-noise ratio [dB]"), rows),
        _settings(facts, "noise"),
        "Process noise is white and Gaussian and held over each sample:" if process else "There is no process noise.",
        table(("channel", "standard deviation", "unit", "meaning"), process),
    )
    return "\n\n".join(part for part in parts if part)


def _splits(facts: Facts) -> str:
    rows = [
        (record.name, record.role, str(record.measured.sizes["time"]), str(record.transient), str(record.window))
        for record in facts.benchmark.records
    ]
    header = ("record", "split", "samples", "discarded before", "initialisation window")
    window = facts.benchmark.records[-1].window
    return (
        f"## Splits\n\nEvery record is a simulation of its own, {_starts(facts)}, under noise "
        "and a random excitation of its own. Identify from estimation, choose settings with validation, and "
        f"judge with test, once.\n\n{table(header, rows)}\n\n"
        f"The first **{window} samples** of every test record only initialise a model: it may use their measured "
        "outputs, and errors there are not scored."
    )


def _starts(facts: Facts) -> str:
    """Where records start."""
    starts = facts.benchmark.starts
    units = {signal.name: signal.unit for signal in facts.benchmark.system.states}
    drawn = [f"`{name}` from {low:g} to {high:g} {units[name]}" for name, (low, high) in starts.ranges.items()]
    if not drawn:
        return "from the initial state of the parameters"
    others = ", the other states as in the parameters" if len(drawn) < len(units) else ""
    return f"from a random initial state of its own (uniform, {', '.join(drawn)}{others}; `truth.nc` holds the states)"


def _figures(facts: Facts) -> str:
    if not facts.figures:
        return ""
    shown = [f"![{name.replace('_', ' ')}](figures/{name}.png)\n\n{FIGURES[name]}." for name in facts.figures]
    return "## Figures\n\n" + "\n\n".join(shown)


def _use(facts: Facts) -> str:
    several = len([record for record in facts.benchmark.records if record.role == "test"]) > 1
    files = "predictions_0.csv predictions_1.csv ..." if several else "predictions.csv"
    rows = [
        ("`benchmark.nc`", "inputs and measured outputs, NetCDF 4, one group per record"),
        ("`csv/`", "the same as CSV: time, inputs, outputs; numbers give back the same bits"),
        ("`narx.nc`", "regressors and targets of the lags above, one group per split"),
        ("`score.py`, `benchmark.json`", "scores a prediction file; Python and NumPy only"),
        ("`scores.json`", "noise floor and baselines"),
        ("`checksums.sha256`", "SHA-256 of every file"),
    ]
    sums = [(f"`{name}`", f"`{digest}`") for name, digest in facts.checksums.items()]
    return (
        f"## Files and use\n\n{table(('file', 'content'), rows)}\n\n```bash\nsha256sum -c checksums.sha256\n"
        f"python score.py {files} --task free_run\n```\n\n"
        "A prediction file holds one value per sample and output of `csv/test*.csv`; `python score.py --help` says "
        "the rest. In Python: `xarray.open_dataset('benchmark.nc', group='estimation')`, or with several records "
        f"`group='estimation/record_0'`.\n\n{table(('data', 'SHA-256'), sums)}"
    )


def _answer() -> str:
    names = ", ".join(f"`{name}`" for name in ANSWER)
    return (
        f"## The answer\n\n{names} hold noise-free outputs, states, noise, seeds and the configuration that makes them "
        "again. To publish the benchmark without its answer, leave them out, and check the rest with "
        "`sha256sum --ignore-missing -c checksums.sha256`. The other files hold neither noise-free outputs nor "
        "states nor a seed. Two things stay open: equations and parameters above let anybody simulate the system up "
        "to its noise, and a seed that can be guessed (0, 1, 2, ...) gives the noise away."
    )


def _origin(facts: Facts) -> str:
    command, needs = facts.origin.get("command"), facts.origin.get("needs")
    rows = [(name, value) for name, value in facts.origin.items() if name not in ("command", "needs")]
    shown = f"```bash\n{command}  # and the seed of configuration.yaml\n```\n\n" if command else ""
    shown += f"{needs}.\n\n" if needs else ""
    return f"## How it was made\n\n{shown}{table(('', ''), rows)}"
