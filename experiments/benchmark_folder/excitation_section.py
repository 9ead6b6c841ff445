"""The section of the data card on inputs: what drives each of them, and what came out."""

from typing import Any

import numpy as np

from experiments.benchmark_folder.benchmark import Benchmark
from experiments.benchmark_folder.markdown import number, table, yaml_block
from simulators import Interpolation

BETWEEN = {
    Interpolation.held: "The inputs are **held**: constant from each sample to the next.",
    Interpolation.linear: "The inputs are **linear** between samples; those that a controller drives are held.",
    Interpolation.band_limited: "The inputs are **band-limited** between samples: the trigonometric polynomial "
    "through all samples of the simulation, discarded ones included; those that a controller drives are held.",
}


def excitation_section(benchmark: Benchmark) -> str:
    """Sources of the inputs, with their settings, and a table of every record."""
    if not benchmark.system.inputs:
        return "## Excitation\n\nThe system has no input; the process noise and the initial state move it."
    parts = (
        f"## Excitation\n\n{BETWEEN[benchmark.plant.interpolation]}",
        table(("input", "driven by"), _sources(benchmark)),
        yaml_block(_settings(benchmark)),
        table(("record", "input", "mean", "rms about the mean", "min", "max", "crest factor"), _reached(benchmark)),
    )
    return "\n\n".join(part for part in parts if part)


def _sources(benchmark: Benchmark) -> list[tuple[str, str]]:
    plant, rows = benchmark.plant, []
    for name in plant.inputs:
        if name in plant.controller.inputs_driven:
            source = f"controller `{type(plant.controller).__name__}`"
        elif name in plant.weather:
            source = f"weather `{type(plant.weather[name]).__name__}`"
        elif name in plant.excitations:
            source = f"excitation `{type(plant.excitations[name]).__name__}`"
        else:
            source = "nothing: it is 0"
        rows.append((f"`{name}`", source))
    return rows


def _settings(benchmark: Benchmark) -> dict[str, Any]:
    """Configuration of the sources in use, the excitations by input."""
    given = benchmark.settings
    shown = {name: given[name] for name in ("controller", "weather") if given.get(name)}
    own = given.get("excitations") or {}
    excitations = {name: own.get(name, given["excitation"]) for name in benchmark.plant.excitations}
    return shown | ({"excitations": excitations} if excitations else {})


def _reached(benchmark: Benchmark) -> list[tuple[str, ...]]:
    rows = []
    for record in benchmark.records:
        for signal in benchmark.system.inputs:
            u = record.measured[signal.name].values
            rms, peak = float(np.std(u)), float(np.max(np.abs(u - np.mean(u))))
            crest = number(peak / rms, 4) if rms > 0 else "constant"
            mean = float(np.mean(u)) if abs(np.mean(u)) > 1e-12 * rms else 0.0
            values = (number(float(value), 4) for value in (mean, rms, np.min(u), np.max(u)))
            rows.append((record.name, f"`{signal.name}` [{signal.unit}]", *values, crest))
    return rows
