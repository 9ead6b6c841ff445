"""The tables of a sweep: a row for each job, and medians over the seeds with what became of the
jobs.
"""

import json

import pandas as pd
import xarray as xr

from experiments.collect.read import SEED, Results
from experiments.drawing.tables import pool, significant, to_csv, to_markdown
from sysid.store import package_versions

HEADLINE = (
    "smse",
    "free_run_fit_percent",
    "coverage_95",
    "n_revised",
    "times_loop",
)  # metrics of the Markdown table


def write_csv(found: Results) -> str:
    """One row for each job and output: number, folder, status, error, parameters, metrics to the
    last digit.
    """
    numbers = (
        pd.concat(found.numbers, names=["output", None]).dropna(how="all").reset_index("output")
    )
    table = found.jobs.join(numbers)  # a job without numbers has one row
    table = table.assign(number=table.index, folder=table.index, timed=table["timed"].astype(int))
    outputs = ["output"] if found.outputs else []
    timed = ["timed"] if found.measured else []
    names = [
        "number",
        "folder",
        "status",
        "error",
        *outputs,
        *found.parameters,
        *found.metrics,
        *timed,
    ]
    return to_csv(table[names])


def write_markdown(found: Results, dataset: xr.Dataset) -> str:
    """Medians and quartiles over the seeds, counts, the jobs that have failed, and how the sweep
    was made.
    """
    title = f"# Sweep of sysid-{found.sweep.command}"
    sweep = found.sweep
    collected = ", ".join(
        f"{name} {version}" for name, version in json.loads(package_versions()).items()
    )
    made = f"Jobs of sysid {sweep.version}, code {sweep.code[:12]}; sweep.json has their overrides."
    origin = f"## Origin\n\n{made}\n\nCollected by `sysid-collect` with {collected}."
    sections = [
        title,
        count_jobs(found, dataset),
        _medians(found, dataset),
        _problems(found),
        origin,
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def count_jobs(found: Results, dataset: xr.Dataset) -> str:
    """How many jobs ended how, and over what they are laid out."""
    counts = found.jobs["status"].value_counts()
    order = ("done", "failed", "damaged", "partial", "missing")
    text = f"{len(found.jobs)} jobs: {', '.join(f'{counts[name]} {name}' for name in order if name in counts)}."
    sizes = {name: size for name, size in dataset.sizes.items() if name != "output"}
    if "job" in sizes:
        return f"{text} Their parameters do not form a grid: one dimension, job."
    text += f" Grid: {' x '.join(f'{size} {name}' for name, size in sizes.items())}."
    if unplanned := dataset.attrs["n_unplanned"]:
        text += f" {unplanned} of its {dataset.attrs['n_cells']} cells are those of no job."
    if behind := dataset.attrs["n_superseded"]:
        text += f" {behind} jobs have the parameters of others: the last one that is done counts."
    return text


def _medians(found: Results, dataset: xr.Dataset) -> str:
    shown = (
        [*found.asked]
        or [name for name in HEADLINE if name in found.metrics]
        or [*found.metrics][: len(HEADLINE)]
    )
    others = [name for name, key in found.parameters.items() if key != SEED]
    times = [name for name in shown if name in found.measured]
    rows = pd.concat(
        [
            found.select_rows(dataset, output, times).assign(output=output)
            for output in found.numbers
        ]
    )
    by = [*others, "output"]
    pooled = pool(rows, by, shown)
    done = (rows["status"] == "done").groupby(
        [rows[name] for name in by], observed=True, dropna=False
    )
    table = pd.DataFrame(index=pooled.index)
    for name in shown:
        quartiles = zip(*(pooled[level][name] for level in (0.25, 0.5, 0.75)), strict=True)
        table[name] = [_spread_text(*levels) for levels in quartiles]
    table["done"] = [f"{n}/{size}" for n, size in zip(done.sum(), done.size(), strict=True)]
    table = table.reset_index()[
        [*others, *(["output"] if found.outputs else []), *shown, "done"]
    ].astype(object)
    what = "seeds" if len(others) < len(found.parameters) else "jobs"
    units = {name: dataset[name].attrs.get("units", "1") for name in shown}
    note = "; ".join(
        [
            f"over the {what}",
            *(f"{name} [{unit}]" for name, unit in units.items() if unit != "1"),
        ]
    )
    left_out = f" {found.timing}." if found.timing and times else ""
    return f"Median [quartiles] {note}.{left_out}\n\n{to_markdown(table.where(table.notna(), ''))}"


def _spread_text(low: float, median: float, high: float) -> str:
    """Median, and the quartiles where they differ; empty for nan."""
    text = significant(median)
    return text if low == high or not text else f"{text} [{significant(low)}, {significant(high)}]"


def _problems(found: Results) -> str:
    """Jobs that have failed or are damaged, with the reason."""
    jobs = found.jobs[~found.jobs["status"].isin(["done", "missing"])]
    values = [
        ", ".join(f"{name}={row[name]}" for name in found.parameters) for _, row in jobs.iterrows()
    ]
    columns = {
        "folder": jobs.index,
        "status": jobs["status"],
        "parameters": values,
        "reason": jobs["error"],
    }
    return f"## Jobs without result\n\n{to_markdown(pd.DataFrame(columns))}" if len(jobs) else ""
