"""Tables of a sweep: CSV with a row for each job, Markdown with a row for each combination of parameters."""

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.benchmark_folder.markdown import number, table
from experiments.collection.axis import Axis
from experiments.collection.cells import Layout
from experiments.collection.gathering import Gathered
from experiments.collection.job_result import DAMAGED, DONE, FAILED, MISSING, PARTIAL, STATUSES
from experiments.collection.metric import attributes_of
from experiments.collection.planning import command_of, overrides_text
from experiments.collection.timing import is_measured
from experiments.studies.significant import significant
from sysid.store import package_versions

SEED = "seed"  # parameter that repetitions differ in
DIGEST = 12  # letters of a digest that are shown
HEADLINE = ("smse", "coverage_95", "n_revised", "times_loop")  # of the Markdown table


def csv_text(found: Gathered) -> str:
    """One row for each job and output: number, folder, status, error, parameters, metrics to the last digit."""
    several = found.outputs != [""]
    timed = any(is_measured(found.paths[name]) for name in found.columns)
    names = [*(["output"] if several else []), *(axis.name for axis in found.axes), *found.columns]
    names += ["timed"] if timed else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["number", "folder", "status", "error", *names])
    for place, job in enumerate(found.sweep.jobs):
        head = [job.number, job.number, STATUSES[found.status[place]], found.errors[place]]
        parameters = [_cell(axis.column[place].item()) for axis in found.axes]
        for output in _outputs_at(found, place):
            columns = (by_output.get(output) for by_output in found.columns.values())
            metrics = ["" if column is None else _cell(column[place].item()) for column in columns]
            metrics += [str(int(found.timing.counts[place]))] if timed else []
            writer.writerow([*head, *([output] if several else []), *parameters, *metrics])
    return text.getvalue()


def _outputs_at(found: Gathered, place: int) -> list[str]:
    """Outputs that a job has numbers of; a job without any has one row."""
    if len(found.outputs) == 1:
        return found.outputs
    columns = found.columns.values()
    return [o for o in found.outputs if any(o in c and not math.isnan(c[o][place]) for c in columns)] or [""]


def _cell(value: float | int | str) -> str:
    return "" if value != value else number(value)


def markdown_text(found: Gathered, layout: Layout) -> str:
    """Medians and quartiles over the seeds, counts, the jobs that have failed, and how it was made."""
    sections = [
        f"# Sweep of sysid-{found.sweep.command}",
        counts_text(found, layout),
        _medians(found, layout),
        _problems(found),
        _origin(found),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def counts_text(found: Gathered, layout: Layout) -> str:
    """How many jobs ended how, and over what they are laid out."""
    n, n_cells = len(found.sweep.jobs), math.prod(layout.shape)
    told = ", ".join(f"{count} {name}" for name, count in status_counts(found).items() if count)
    text = f"{n} jobs: {told}."
    if layout.dims == ("job",):
        why = "They are those of a search" if found.sweep.objectives else "Their parameters do not form a grid"
        return f"{text} {why}: one dimension, job."
    sizes = " x ".join(f"{size} {name}" for name, size in zip(layout.dims, layout.shape, strict=True))
    text += f" Grid: {sizes}."
    if unplanned := n_cells - len(layout.jobs):
        text += f" {unplanned} of its {n_cells} cells are those of no job."
    if behind := n - len(layout.jobs):
        text += f" {behind} jobs have the parameters of others: the last one that is done counts."
    return text


def status_counts(found: Gathered) -> dict[str, int]:
    """Number of jobs by what became of them."""
    order = (DONE, FAILED, DAMAGED, PARTIAL, MISSING)
    return {STATUSES[flag]: int(np.count_nonzero(found.status == flag)) for flag in order}


def _medians(found: Gathered, layout: Layout) -> str:
    kept = np.sort(layout.jobs)
    others = [axis for axis in found.axes if axis.key != SEED]
    shown = [name for name in HEADLINE if name in found.columns] or list(found.columns)[: len(HEADLINE)]
    measured = {name for name in shown if is_measured(found.paths[name])}
    several = found.outputs != [""]
    header = [*(axis.name for axis in others), *(["output"] if several else []), *shown, "done"]
    rows = []
    for members in _groups(kept, others):
        done = members[found.status[members] == DONE]
        timed = done[found.timing.counts[done]]
        values = [number(axis.column[members[0]].item()) for axis in others]
        for output in found.outputs:
            columns = ((found.columns[name].get(output), timed if name in measured else done) for name in shown)
            metrics = ["" if column is None else spread_text(column[which]) for column, which in columns]
            rows.append([*values, *([output] if several else []), *metrics, f"{len(done)}/{len(members)}"])
    what = "seeds" if len(others) < len(found.axes) else "jobs"
    units = (f"{name} [{unit}]" for name in shown if (unit := _unit(found, name)))
    note = "; ".join(units)
    times = f" {found.timing.told}." if measured and found.timing.told else ""
    return f"Median [quartiles] over the {what}{f'; {note}' if note else ''}.{times}\n\n{table(header, rows)}"


def _groups(kept: np.ndarray, axes: Sequence[Axis]) -> Iterator[np.ndarray]:
    """Jobs that agree in all these parameters, in the order of the parameters."""
    if not axes:
        yield kept
        return
    places = np.stack([axis.places[kept] for axis in axes], axis=1)
    distinct, group = np.unique(places, axis=0, return_inverse=True)
    order = np.argsort(group, kind="stable")
    yield from np.split(kept[order], np.cumsum(np.bincount(group, minlength=len(distinct)))[:-1])


def spread_text(values: np.ndarray) -> str:
    """Median, and the quartiles if there is more than one number; empty without any.

    >>> spread_text(np.array([0.3, 0.1, np.nan, 0.2])), spread_text(np.array([5.0])), spread_text(np.zeros(0))
    ('0.200 [0.150, 0.250]', '5.00', '')
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return ""
    low, middle, high = (significant(float(value)) for value in np.quantile(known, (0.25, 0.5, 0.75)))
    return middle if len(known) == 1 else f"{middle} [{low}, {high}]"


def _problems(found: Gathered) -> str:
    """Jobs that have failed or are damaged, with the reason; how to run them again."""
    rows = [
        [str(job.number), STATUSES[status], _parameters(found, place), error]
        for place, (job, status, error) in enumerate(zip(found.sweep.jobs, found.status, found.errors, strict=True))
        if status not in (DONE, MISSING)
    ]
    return f"## Jobs without result\n\n{table(['folder', 'status', 'parameters', 'reason'], rows)}" if rows else ""


def _parameters(found: Gathered, place: int) -> str:
    return ", ".join(f"{axis.name}={axis.column[place].item()}" for axis in found.axes)


def _origin(found: Gathered) -> str:
    versions = json.loads(package_versions())
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    who = f"Jobs of sysid {found.sweep.version}, code {found.sweep.code[:DIGEST]}"
    if command := command_of(found.sweep):
        asked = f"{who}:\n\n```\n{command}\n```"
    else:
        several = "a search" if found.sweep.objectives else "no single command"
        asked = f"{who}, of {several}. Their overrides:\n\n{overrides_text(found.sweep)}"
    return f"## Origin\n\n{asked}\n\nCollected by `sysid-collect` with {told}."


def _unit(found: Gathered, name: str) -> str:
    unit = str(attributes_of(name, found.paths[name], found.target_unit).get("units", ""))
    return unit if unit != "1" else ""
