"""The data card: the template `card.md`, filled with the facts of a benchmark.

It is written for readers who do not have this toolbox.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from textwrap import dedent
from typing import Any

import numpy as np
import pandas as pd

from experiments.cli.config import to_yaml
from experiments.drawing.tables import to_markdown
from experiments.generate.baselines import label_baselines
from experiments.generate.benchmark import Benchmark, noises_of
from experiments.plant.plant import Plant
from simulators import Interpolation, System, noise_free, signal_to_noise, substep_error
from simulators.system import describe_fields

CARD_TEMPLATE = Path(__file__).with_name("card.md")
#: columns of the table of the excitation
EXCITATION_COLUMNS = (
    "record",
    "input",
    "mean",
    "rms about the mean",
    "min",
    "max",
    "crest factor",
)
NEGLIGIBLE_MEAN = 1e-12  # a smaller mean, as a fraction of the rms, is written as 0


def fill_card(
    benchmark: Benchmark,
    origin: Mapping[str, str],
    checksums: Mapping[str, str],
    *,
    figures: bool,
) -> str:
    """Return the text of the card.

    A paragraph of the template that begins with ``[fact]`` is written only if this fact is not
    empty, and a paragraph that begins with ``[!fact]`` only if it is empty. Paragraphs without text
    are left out.

    Parameters
    ----------
    origin
        Facts on how the folder was made.
    checksums
        SHA-256 of every data file, by name.
    figures
        Whether the folder has figures.
    """
    checksum_rows = [(f"`{name}`", f"`{digest}`") for name, digest in checksums.items()]
    facts = collect_facts(benchmark) | {
        **origin,
        "figures": figures,
        "checksums": table(("data", "SHA-256"), checksum_rows),
    }
    paragraphs = []
    for paragraph in CARD_TEMPLATE.read_text(encoding="utf-8").strip().split("\n\n"):
        (match,) = re.findall(r"\A(?:\[(!?)(\w+)\] )?(.*)\Z", paragraph, re.DOTALL)
        negation, fact, text = match
        is_wanted = not fact or bool(facts[fact]) != bool(negation)
        if is_wanted:
            paragraphs.append(Template(text).substitute(facts).rstrip())
    return "\n\n".join(text for text in paragraphs if text) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; empty if there are no rows."""
    cells = [[str(cell) for cell in row] for row in rows]
    return to_markdown(pd.DataFrame(cells, columns=list(header)))


def collect_facts(benchmark: Benchmark) -> dict[str, Any]:
    """Return the settings and facts of a benchmark by their names in the template.

    A fact is empty if it does not apply to the benchmark.
    """
    plant = benchmark.plant
    system = plant.system
    noise = {"noise": benchmark.settings["noise"]}
    substep_errors = [substep_error(record.trajectory) for record in benchmark.records]
    test = benchmark.select("test")
    prediction_files = "predictions.csv"
    if len(test) > 1:
        prediction_files = "predictions_0.csv predictions_1.csv ..."
    return {
        **benchmark.settings,
        "name": benchmark.name,
        "system": type(system).__name__,
        "dt": f"{system.dt:.10g}",
        "substeps": system.substeps,
        "step_error": f"{max(substep_errors):.1g}",
        "equations": read_equations(system),
        "source": read_notes(system),
        "code": read_code(system),
        "parameters": _tabulate_parameters(system),
        "signals": _tabulate_signals(system),
        "inputs": plant.inputs,
        **_collect_interpolation(plant),
        "sources": _tabulate_sources(plant),
        "excitation_settings": _write_excitation_settings(benchmark),
        "excitation_reached": _tabulate_excitation(benchmark),
        "noise_reached": _tabulate_noise(benchmark),
        "noise_settings": to_yaml(noise),
        "missing": getattr(plant.measurement, "missing", 0),
        "process_noise": _tabulate_process_noise(system),
        "noisy": any(system.noise_std().tolist()),
        "counts": benchmark.count(),
        "starts": _describe_initial_states(benchmark),
        "splits": _tabulate_splits(benchmark),
        "window": test[0].window,
        "prediction_files": prediction_files,
        "scores": "\n\n".join(_tabulate_scores(benchmark)),
        "notes": "\n".join(f"- {note}." for note in benchmark.notes),
        "baselines": "\n".join(_describe_baselines(benchmark)),
        "closed_loop": bool(plant.controller.inputs_driven),
        "designed": bool(plant.design),
        "lags": "\n".join(_describe_lags(benchmark)),
    }


def _tabulate_parameters(system: System) -> str:
    """Return the table of the system's parameters."""
    descriptions = describe_fields(type(system))
    rows = []
    for field in dataclasses.fields(system):
        value = getattr(system, field.name)
        rows.append((f"`{field.name}`", value, descriptions.get(field.name, "")))
    return table(("name", "value", "symbol, meaning, unit"), rows)


def _tabulate_signals(system: System) -> str:
    """Return the table of all signals, with the files that hold them."""
    data = "`benchmark.nc`, `csv/`"
    answer = "`truth.nc`"
    groups = (
        (system.inputs, "input", data),
        (system.outputs, "output, measured", data),
        (noise_free(system.outputs), "output, noise-free", answer),
        (noises_of(system), "measurement noise", answer),
        (system.states, "state", answer),
        (system.noises, "process noise", answer),
    )
    rows = [
        (f"`{signal.name}`", role, signal.unit, signal.description, files)
        for signals, role, files in groups
        for signal in signals
    ]
    return table(("name", "role", "unit", "meaning", "in"), rows)


def _collect_interpolation(plant: Plant) -> dict[str, bool]:
    """Return, for every kind of interpolation, whether the inputs have it."""
    has_inputs = bool(plant.inputs)
    return {kind.name: has_inputs and plant.interpolation is kind for kind in Interpolation}


def _tabulate_sources(plant: Plant) -> str:
    """Return the table of what drives each input."""
    sources = dict.fromkeys(plant.inputs, "nothing: it is 0")
    for name, excitation in plant.excitations.items():
        sources[name] = f"excitation `{type(excitation).__name__}`"
    for name in plant.design:
        sources[name] = "a model, in the estimation records"
    for name, weather in plant.weather.items():
        sources[name] = f"weather `{type(weather).__name__}`"
    for name in plant.controller.inputs_driven:
        sources[name] = f"controller `{type(plant.controller).__name__}`"
    rows = [(f"`{name}`", source) for name, source in sources.items()]
    return table(("input", "driven by"), rows)


def _write_excitation_settings(benchmark: Benchmark) -> str:
    """Return the settings of everything that drives an input as YAML; empty if there is nothing."""
    plant = benchmark.plant
    settings = benchmark.settings
    acting = {name: settings[name] for name in ("controller", "weather") if settings.get(name)}
    excited = [*plant.excitations, *plant.design]
    if excited:
        excitations = settings.get("excitations") or {}
        acting["excitations"] = {
            name: excitations.get(name, settings["excitation"]) for name in excited
        }
    return to_yaml(acting) if plant.inputs and acting else ""


def _tabulate_excitation(benchmark: Benchmark) -> str:
    """Return the table of the values that the inputs reach in every record."""
    rows = []
    for record in benchmark.records:
        for name, unit, _ in benchmark.plant.system.inputs:
            u = record.measured[name].values
            mean = u.mean()
            rms = u.std()
            shown_mean = mean if abs(mean) > NEGLIGIBLE_MEAN * rms else 0.0
            numbers = (shown_mean, rms, u.min(), u.max())
            crest_factor = "constant"
            if rms > 0:
                crest_factor = f"{np.abs(u - mean).max() / rms:.4g}"
            texts = [f"{number:.4g}" for number in numbers]
            rows.append((record.name, f"`{name}` [{unit}]", *texts, crest_factor))
    return table(EXCITATION_COLUMNS, rows)


def _tabulate_noise(benchmark: Benchmark) -> str:
    """Return the table of the measurement noise of every record."""
    rows = []
    for record in benchmark.records:
        noise_free_output = record.trajectory.noise_free_output[record.transient :]
        output = record.trajectory.output[record.transient :]
        is_there = ~np.isnan(output).any(axis=1)
        noise_free_output = noise_free_output[is_there]
        output = output[is_there]
        ratios = signal_to_noise(noise_free_output, output)
        noises = (output - noise_free_output).T
        for name, ratio, noise in zip(benchmark.plant.outputs, ratios, noises, strict=True):
            rms = f"{np.sqrt(np.mean(noise**2)):.4g}"
            decibels = "no noise" if np.isinf(ratio) else f"{ratio:.2f}"
            rows.append((record.name, f"`{name}`", rms, decibels))
    return table(("record", "output", "rms", "signal-to-noise ratio [dB]"), rows)


def _tabulate_process_noise(system: System) -> str:
    """Return the table of the process noise; empty if the system has none."""
    stds = system.noise_std().tolist()
    rows = [
        (f"`{signal.name}`", std, signal.unit, signal.description)
        for signal, std in zip(system.noises, stds, strict=True)
    ]
    return table(("channel", "standard deviation", "unit", "meaning"), rows)


def _describe_initial_states(benchmark: Benchmark) -> str:
    """Return in words from which initial states the records start."""
    if not benchmark.ranges:
        return "from the initial state of the parameters"
    units = {signal.name: signal.unit for signal in benchmark.plant.system.states}
    ranges = [
        f"`{name}` from {low:g} to {high:g} {units[name]}"
        for name, (low, high) in benchmark.ranges.items()
    ]
    others = ""
    if len(ranges) < len(units):
        others = ", the other states as in the parameters"
    return (
        "from a random initial state of its own "
        f"(uniform, {', '.join(ranges)}{others}; `truth.nc` holds the states)"
    )


def _tabulate_splits(benchmark: Benchmark) -> str:
    """Return the table of the records."""
    rows = [
        (record.name, record.role, record.n_samples, record.transient, record.window)
        for record in benchmark.records
    ]
    return table(("record", "split", "samples", "discarded before", "initialisation window"), rows)


def _tabulate_scores(benchmark: Benchmark) -> list[str]:
    """Return one table of scores for each output."""
    labels = label_baselines(benchmark.baselines)
    tables = []
    for output, unit, _ in benchmark.plant.system.outputs:
        rows = []
        floor = _rmse(benchmark.scores["free_run"]["noise_floor"].get(output))
        for key, label in labels.items():
            one_step = benchmark.scores["one_step"][key].get(output)
            free_run = benchmark.scores["free_run"][key].get(output)
            error = _rmse(free_run)
            ratio = "-"
            if error is not None and floor:
                ratio = f"{error / floor:.3g}"
            rows.append((label, _describe_rmse(one_step), _describe_rmse(free_run), ratio))
        header = (f"RMSE of `{output}` [{unit}]", "one step ahead", "free run", "over the floor")
        tables.append(table(header, rows))
    return tables


def _rmse(score: Mapping[str, Any] | None) -> float | None:
    """Return the RMSE of a score, None if there is none."""
    return None if score is None else score.get("rmse")


def _describe_rmse(score: Mapping[str, Any] | None) -> str:
    """Return the RMSE of a model as text, or why there is none."""
    if score is None:
        return "-"
    return "diverges" if score["rmse"] is None else f"{score['rmse']:.4g}"


def _describe_baselines(benchmark: Benchmark) -> list[str]:
    """Return a line about each baseline."""
    labels = label_baselines(benchmark.baselines)
    return [
        f"- *{labels[key]}*: {read_summary(baseline)}"
        for key, baseline in benchmark.baselines.items()
    ]


def _describe_lags(benchmark: Benchmark) -> list[str]:
    """Return a line about the lags of the models of each output."""
    lines = []
    for number, narx in enumerate(benchmark.lags.values()):
        also_of_file = " and of `narx.nc`" if number == 0 else ""
        features = ", ".join(f"`{name}`" for name in narx.feature_names)
        lines.append(f"Lags of the models of `{narx.target}`{also_of_file}: {features}.")
    return lines


# --- text from the source of a class --------------------------------------------------------------


def read_equations(system: System) -> str:
    """Return the docstring of the class up to its first section, in Markdown.

    Blocks after ``::`` become code. A class without its own docstring has no equations here;
    `read_code` shows what it computes.
    """
    text = re.split(r"^.+\n-{3,}\s*$", _docstring(system), maxsplit=1, flags=re.MULTILINE)[0]
    paragraphs = []
    for block in re.split(r"\n\s*\n", text):
        if block.strip() not in ("", "::"):
            is_code = all(line.startswith("    ") for line in block.splitlines())
            paragraphs.append(f"```text\n{dedent(block)}\n```" if is_code else _as_markdown(block))
    return "\n\n".join(paragraphs)


def read_notes(system: System) -> str:
    """Return the section Notes of the docstring, which states the source of the system."""
    text = _docstring(system)
    match = re.search(r"^Notes\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", text, re.DOTALL | re.MULTILINE)
    return _as_markdown(match[1]) if match else ""


def read_summary(thing: object) -> str:
    """Return the first paragraph of the docstring of an object's class, on one line."""
    first_paragraph = _docstring(thing).split("\n\n")[0]
    return " ".join(_as_markdown(first_paragraph).split())


def read_code(system: System) -> str:
    """Return the Python source of the functions that are computed; empty if it cannot be found."""
    texts = [_source(getattr(type(system), name)) for name in ("drift", "output", "parameters")]
    return "\n".join(dedent(text) for text in texts if text).rstrip()


def _docstring(thing: object) -> str:
    """Return the docstring that an object's class has in its source; empty without one."""
    text = type(thing).__dict__.get("__doc__") or ""
    # A dataclass without a docstring gets a generated one that starts with its signature.
    is_generated = text.startswith(f"{type(thing).__name__}(")
    return "" if is_generated else inspect.cleandoc(text)


def _as_markdown(text: str) -> str:
    """Return reStructuredText as Markdown: a final ``::`` as a colon, and single backticks."""
    return re.sub(r"::$", ":", text.strip()).replace("``", "`")


def _source(thing: Any) -> str:
    """Return the Python source of an object; empty if it cannot be found."""
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""
