"""The data card: the page `card.md` filled with the facts of a benchmark, for those who do not have
this toolbox.
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
from experiments.generate.baselines import TASKS, label_baselines
from experiments.generate.benchmark import Benchmark, noises_of
from simulators import Interpolation, System, noise_free, signal_to_noise, substep_error
from simulators.system import describe_fields

TEMPLATE = Path(__file__).with_name("card.md")
REACHED = (
    "record",
    "input",
    "mean",
    "rms about the mean",
    "min",
    "max",
    "crest factor",
)  # by the excitation


def fill_card(
    benchmark: Benchmark,
    origin: Mapping[str, str],
    checksums: Mapping[str, str],
    *,
    figures: bool,
) -> str:
    """Fill the template of the card.

    A paragraph of the template that begins with ``[fact]`` stands in the card only where that fact
    is not empty, one with ``[!fact]`` only where it is; a paragraph that turns out empty never.

    Parameters
    ----------
    origin
        How the folder was made.
    checksums
        SHA-256 of every file of data, by name.
    figures
        Whether there are any.
    """
    sums = [(f"`{name}`", f"`{digest}`") for name, digest in checksums.items()]
    facts = collect_facts(benchmark) | {
        **origin,
        "figures": figures,
        "checksums": table(("data", "SHA-256"), sums),
    }
    paragraphs = []
    for paragraph in TEMPLATE.read_text(encoding="utf-8").strip().split("\n\n"):
        absent, fact, text = re.findall(r"\A(?:\[(!?)(\w+)\] )?(.*)\Z", paragraph, re.DOTALL)[0]
        if not fact or bool(facts[fact]) != bool(absent):
            paragraphs.append(Template(text).substitute(facts).rstrip())
    return "\n\n".join(text for text in paragraphs if text) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Markdown table; empty without rows."""
    return to_markdown(pd.DataFrame([list(map(str, row)) for row in rows], columns=list(header)))


def collect_facts(benchmark: Benchmark) -> dict[str, Any]:
    """Collect settings and facts of a benchmark by their names in the template.

    An empty one is a fact that is not so.
    """
    plant = benchmark.plant
    system = benchmark.plant.system
    given = benchmark.settings
    test = benchmark.select("test")
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
    signals = [
        (f"`{s.name}`", role, s.unit, s.description, place)
        for group, role, place in groups
        for s in group
    ]
    texts = describe_fields(type(system))
    fields = [one.name for one in dataclasses.fields(system)]
    parameters = [(f"`{name}`", getattr(system, name), texts.get(name, "")) for name in fields]
    stds = system.noise_std().tolist()
    process = [
        (f"`{s.name}`", std, s.unit, s.description)
        for s, std in zip(system.noises, stds, strict=True)
    ]

    sources = dict.fromkeys(plant.inputs, "nothing: it is 0")
    sources |= {
        name: f"excitation `{type(source).__name__}`" for name, source in plant.excitations.items()
    }
    sources |= {
        name: f"weather `{type(source).__name__}`" for name, source in plant.weather.items()
    }
    sources |= dict.fromkeys(
        plant.controller.inputs_driven,
        f"controller `{type(plant.controller).__name__}`",
    )
    acting = {name: given[name] for name in ("controller", "weather") if given.get(name)}
    if plant.excitations:
        own = given.get("excitations") or {}
        acting["excitations"] = {
            name: own.get(name, given["excitation"]) for name in plant.excitations
        }

    # what came out, by record
    inputs = []
    noises = []
    for record in benchmark.records:
        for name, unit, _ in system.inputs:
            u = record.measured[name].values
            mean = u.mean()
            rms = u.std()
            numbers = (mean if abs(mean) > 1e-12 * rms else 0.0, rms, u.min(), u.max())
            crest = f"{np.abs(u - mean).max() / rms:.4g}" if rms > 0 else "constant"
            inputs.append(
                (
                    record.name,
                    f"`{name}` [{unit}]",
                    *(f"{x:.4g}" for x in numbers),
                    crest,
                )
            )
        y0, y = (
            of[record.transient :]
            for of in (record.trajectory.noise_free_output, record.trajectory.output)
        )
        for name, ratio, error in zip(
            plant.outputs, signal_to_noise(y0, y), (y - y0).T, strict=True
        ):
            decibels = "no noise" if np.isinf(ratio) else f"{ratio:.2f}"
            noises.append(
                (
                    record.name,
                    f"`{name}`",
                    f"{np.sqrt(np.mean(error**2)):.4g}",
                    decibels,
                )
            )

    units = {signal.name: signal.unit for signal in system.states}
    drawn = [
        f"`{name}` from {low:g} to {high:g} {units[name]}"
        for name, (low, high) in benchmark.ranges.items()
    ]
    others = ", the other states as in the parameters" if len(drawn) < len(units) else ""
    starts = f"a random initial state of its own (uniform, {', '.join(drawn)}{others}; `truth.nc` holds the states)"
    splits = [(r.name, r.role, r.n_samples, r.transient, r.window) for r in benchmark.records]

    labels = label_baselines(benchmark.baselines)
    scores = []
    for name, unit, _ in system.outputs:
        rows = []
        best = (benchmark.scores["free_run"]["noise_floor"].get(name) or {}).get("rmse")
        for key, label in labels.items():
            found = [benchmark.scores[task][key].get(name) for task in TASKS]
            reached = (found[-1] or {}).get("rmse")
            rows.append(
                (
                    label,
                    *map(_show, found),
                    f"{reached / best:.3g}" if reached is not None and best else "-",
                )
            )
        scores.append(
            table(
                (
                    f"RMSE of `{name}` [{unit}]",
                    "one step ahead",
                    "free run",
                    "over the floor",
                ),
                rows,
            )
        )
    lags = [
        f"Lags of the models of `{narx.target}`{'' if number else ' and of `narx.nc`'}: "
        f"{', '.join(f'`{name}`' for name in narx.feature_names)}."
        for number, narx in enumerate(benchmark.lags.values())
    ]
    return given | {
        "name": benchmark.name,
        "system": type(system).__name__,
        "dt": f"{system.dt:.10g}",
        "substeps": system.substeps,
        "step_error": f"{max(substep_error(record.trajectory) for record in benchmark.records):.1g}",
        "equations": read_equations(system),
        "source": read_notes(system),
        "code": read_code(system),
        "parameters": table(("name", "value", "symbol, meaning, unit"), parameters),
        "signals": table(("name", "role", "unit", "meaning", "in"), signals),
        "inputs": plant.inputs,
        **{member.name: plant.inputs and plant.interpolation is member for member in Interpolation},
        "sources": table(
            ("input", "driven by"),
            [(f"`{name}`", source) for name, source in sources.items()],
        ),
        "excitation_settings": to_yaml(acting) if plant.inputs and acting else "",
        "excitation_reached": table(REACHED, inputs),
        "noise_reached": table(("record", "output", "rms", "signal-to-noise ratio [dB]"), noises),
        "noise_settings": to_yaml({"noise": given["noise"]}),
        "process_noise": table(("channel", "standard deviation", "unit", "meaning"), process),
        "noisy": any(stds),
        "counts": benchmark.count(),
        "starts": f"from {starts}" if drawn else "from the initial state of the parameters",
        "splits": table(
            ("record", "split", "samples", "discarded before", "initialisation window"),
            splits,
        ),
        "window": test[0].window,
        "prediction_files": "predictions_0.csv predictions_1.csv ..."
        if len(test) > 1
        else "predictions.csv",
        "scores": "\n\n".join(scores),
        "notes": "\n".join(f"- {note}." for note in benchmark.notes),
        "baselines": "\n".join(
            f"- *{labels[key]}*: {read_summary(one)}" for key, one in benchmark.baselines.items()
        ),
        "closed_loop": not plant.is_open_loop,
        "lags": "\n".join(lags),
    }


def _show(score: Mapping[str, Any] | None) -> str:
    """RMSE of a model, or why there is none."""
    if score is None:
        return "-"
    return "diverges" if score["rmse"] is None else f"{score['rmse']:.4g}"


# --- what the source text of a class says ---------------------------------------------------------


def read_equations(system: System) -> str:
    """Docstring of the class up to its first section, in Markdown: blocks after ``::`` become code.

    A class without a docstring of its own has no equations here; `read_code` shows what is
    computed.
    """
    text = re.split(r"^.+\n-{3,}\s*$", _docstring(system), maxsplit=1, flags=re.MULTILINE)[0]
    paragraphs = []
    for block in re.split(r"\n\s*\n", text):
        if block.strip() not in ("", "::"):
            is_code = all(line.startswith("    ") for line in block.splitlines())
            paragraphs.append(f"```text\n{dedent(block)}\n```" if is_code else _as_markdown(block))
    return "\n\n".join(paragraphs)


def read_notes(system: System) -> str:
    """Section Notes of the docstring: where the system comes from."""
    text = _docstring(system)
    match = re.search(r"^Notes\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", text, re.DOTALL | re.MULTILINE)
    return _as_markdown(match[1]) if match else ""


def read_summary(thing: object) -> str:
    """First paragraph of the docstring of an object's class, on one line."""
    return " ".join(_as_markdown(_docstring(thing).split("\n\n")[0]).split())


def read_code(system: System) -> str:
    """Python text of drift and output, which is what is computed; empty where it cannot be
    found.
    """
    texts = [_source(getattr(type(system), name)) for name in ("drift", "output", "parameters")]
    return "\n".join(dedent(text) for text in texts if text).rstrip()


def _docstring(thing: object) -> str:
    text = type(thing).__dict__.get("__doc__") or ""
    generated = text.startswith(f"{type(thing).__name__}(")  # by dataclass, for a class without one
    return "" if generated else inspect.cleandoc(text)


def _as_markdown(text: str) -> str:
    """Text without the mark of a literal block at its end, with single backticks."""
    return re.sub(r"::$", ":", text.strip()).replace("``", "`")


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""
