"""What became of one trial of a search."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.collection.read import numbers_of
from experiments.job_file import FILE, read_summary
from experiments.sweep.job import Outcome
from experiments.sweep.keys import meant


class Trial(NamedTuple):
    """One point of a search, and how good it is."""

    number: int
    values: dict[str, Any]  # of the parameters, by key
    jobs: tuple[int, ...]  # numbers of their folders
    objectives: tuple[float, ...] = ()  # empty if the trial has failed
    error: str = ""  # why it has failed

    @property
    def done(self) -> bool:
        """Whether it has objectives."""
        return not self.error


def judged(
    number: int, values: dict[str, Any], outcomes: Sequence[Outcome], folder: Path, names: Sequence[str]
) -> Trial:
    """A trial by the results of its jobs: the median of each objective; failed if one of them has none.

    Raises
    ------
    ValueError
        If there is no such objective, with the nearest that there is.
    sysid.StoreError
        If the result of a finished job cannot be read.
    """
    trial = Trial(number, values, tuple(outcome.number for outcome in outcomes))
    for outcome in outcomes:
        if not outcome.done:
            return trial._replace(error=f"job {outcome.number}: {outcome.error}")
    summaries = [read_summary(folder / str(job) / FILE) for job in trial.jobs]
    objectives = []
    for name in names:
        found = [objective(summary, name) for summary in summaries]
        numbers = [value for value in found if value is not None]
        if len(numbers) < len(found):
            job = trial.jobs[found.index(None)]
            return trial._replace(error=f"job {job} has no {name}: its summary holds no number there")
        objectives.append(statistics.median(numbers))
    return trial._replace(objectives=tuple(objectives))


def objective(summary: Mapping[str, Any], name: str) -> float | None:
    """Number of a summary by its name, "smse" or "times.loop"; None if a run like this one has none there.

    Raises
    ------
    ValueError
        If summaries know no such name.

    >>> objective({"smse": 0.5, "times": {"loop": 2.0}, "free_run": None}, "times.loop")
    2.0
    >>> objective({"free_run": None}, "free_run.rmse") is None
    True
    """
    numbers = {".".join(path): value for path, value in numbers_of(summary)}
    if name in numbers:
        return numbers[name] if math.isfinite(numbers[name]) else None
    if not _is_empty(summary, name):
        raise ValueError(f"hydra.sweeper.objectives: no number {name!r} in the summary of a job{meant(name, numbers)}")
    return None


def _is_empty(summary: Mapping[str, Any], name: str) -> bool:
    """Whether the keys of a name lead to nothing, as they do where a run has no such result."""
    found: Any = summary
    for key in name.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return False
        found = found[key]
        if found is None:
            return True
    return False
