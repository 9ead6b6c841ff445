"""What a search has found: `search.csv`, `search.json`, and the best on the terminal."""

import csv
import io
import json
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from experiments.code_version import code_digest
from experiments.sweep.manifest import PROJECT
from experiments.sweep.search.settings import Settings
from experiments.sweep.search.space import Space
from experiments.sweep.search.trial import Trial
from sysid import store

TABLE, NAME = "search.csv", "search.json"
VERSION = 1
MOST_SHOWN = 10  # trials of a Pareto set on the terminal


class Result(NamedTuple):
    """Everything that a search has found so far."""

    settings: Settings
    space: Space
    command: str  # as typed, "sysid-identify"
    sampler: str  # class
    optuna: str  # version
    trials: Sequence[Trial]
    best: Sequence[Trial]  # one, or the Pareto set

    @property
    def failed(self) -> list[Trial]:
        """Trials without objectives."""
        return [trial for trial in self.trials if not trial.done]


def write(result: Result, folder: Path) -> None:
    """Write both files, each complete or not at all.

    Raises
    ------
    sysid.StoreError
        Full disk, read-only folder.
    """
    store.write_bytes(table(result).encode(), folder / TABLE)
    store.write_bytes(json.dumps(content(result), indent=1).encode(), folder / NAME)


def table(result: Result) -> str:
    """All trials as CSV: state, parameters, objectives, numbers of the jobs, error."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    keys = [parameter.key for parameter in result.space.parameters]
    writer.writerow(["trial", "state", *keys, *result.settings.objectives, "jobs", "error"])
    for trial in result.trials:
        numbers = [repr(value) for value in trial.objectives] or [""] * len(result.settings.objectives)
        state, jobs = "done" if trial.done else "failed", " ".join(map(str, trial.jobs))
        values = [trial.values[key] for key in keys]
        writer.writerow([trial.number, state, *values, *numbers, jobs, " ".join(trial.error.split())])
    return text.getvalue()


def content(result: Result) -> dict[str, Any]:
    """The best trials and what was asked for, as plain data."""
    settings, space = result.settings, result.space
    return {
        "schema": "search",
        "schema_version": VERSION,
        "project": PROJECT,
        "version": version(PROJECT),
        "code": code_digest(),
        "optuna": result.optuna,
        "sampler": result.sampler,
        "settings": {
            "n_trials": settings.n_trials,
            "n_jobs": settings.n_jobs,
            "seed": settings.seed,
            "objectives": list(settings.objectives),
            "direction": [direction.value for direction in settings.directions],
            "sampler": None if settings.sampler is None else dict(settings.sampler),
            "average_over": {key: list(values) for key, values in space.averaged.items()},
        },
        "repeatable": settings.repeatable,
        "fixed": list(space.fixed),
        "parameters": [parameter.key for parameter in space.parameters],
        "n_trials": {"done": len(result.trials) - len(result.failed), "failed": len(result.failed)},
        "best": [
            {
                "trial": trial.number,
                "parameters": trial.values,
                "objectives": dict(zip(settings.objectives, trial.objectives, strict=True)),
                "jobs": list(trial.jobs),
                "command": command_of(trial, result),
            }
            for trial in result.best
        ],
    }


def command_of(trial: Trial, result: Result) -> str:
    """Command line that runs a trial again, on its own."""
    averaged = [f"{key}={','.join(values)}" for key, values in result.space.averaged.items()]
    several = ["-m"] if result.space.n_jobs > 1 else []
    return shlex.join([result.command, *several, *result.space.overrides(trial.values), *averaged])


def text(result: Result) -> str:
    """The best trials in words, each with the command that repeats it."""
    n, names = len(result.trials), result.settings.objectives
    lines = []
    if result.failed:
        example = result.failed[0]
        lines.append(
            f"{len(result.failed)} of {n} trials failed, trial {example.number} for one: {_line(example.error)}"
        )
    if n == result.space.n_combinations:
        lines.append(f"All {n} combinations were tried")
    elif n < result.settings.n_trials:
        lines.append(f"Ended after {n} of {result.settings.n_trials} trials")
    if not result.best:
        return "\n".join([*lines, "No trial has a result"])
    median = "".join(f", medians over {key}={','.join(values)}" for key, values in result.space.averaged.items())
    if len(names) == 1:
        lines.append(f"Best of {n} trials{median}: {_told(result.best[0], names)}")
    else:
        lines.append(
            f"Best of {n} trials{median}: {len(result.best)}, none of which is beaten by another in everything"
        )
    for trial in result.best[:MOST_SHOWN]:
        lines += [f"  {_told(trial, names)}"] if len(names) > 1 else []
        lines.append(f"  {command_of(trial, result)}")
    if len(result.best) > MOST_SHOWN:
        lines.append(f"  and {len(result.best) - MOST_SHOWN} more, see {NAME}")
    return "\n".join(lines)


def _told(trial: Trial, names: Sequence[str]) -> str:
    numbers = (f"{name} {value:.4g}" for name, value in zip(names, trial.objectives, strict=True))
    jobs = f"job{'s' if len(trial.jobs) > 1 else ''} {' '.join(map(str, trial.jobs))}"
    return f"{', '.join(numbers)} (trial {trial.number}, {jobs})"


def _line(error: str, width: int = 160) -> str:
    line = " ".join(error.split())
    return line if len(line) <= width else f"{line[:width]}..."
