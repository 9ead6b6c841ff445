"""The tables of a sweep: a row per job as CSV, medians over the seeds as Markdown."""

import json

import pandas as pd
import xarray as xr

from experiments.collect.read import SEED, Results
from experiments.drawing.tables import pool, significant, to_csv, to_markdown
from sysid.store import package_versions

# Metrics of the Markdown table, unless others are chosen.
HEADLINE = (
    "smse",
    "smse_limit",
    "smse_linear",
    "free_run_fit_percent",
    "coverage_95",
    "n_revised",
    "times_loop",
)


def write_csv(found: Results) -> str:
    """Return the CSV text: a row per job and output, with every number to the last digit.

    The columns are the number of the job, its folder, status, error, parameters and metrics. A job
    without numbers has one row.
    """
    numbers = pd.concat(found.numbers, names=["output", None])
    numbers = numbers.dropna(how="all").reset_index("output")
    table = found.jobs.join(numbers)
    table = table.assign(number=table.index, folder=table.index, timed=table["timed"].astype(int))
    names = ["number", "folder", "status", "error"]
    if found.outputs:
        names.append("output")
    names += [*found.parameters, *found.metrics]
    if found.measured:
        names.append("timed")
    return to_csv(table[names])


def write_markdown(found: Results, dataset: xr.Dataset) -> str:
    """Return the Markdown text of the sweep.

    Its sections are the counts of the jobs, medians and quartiles over the seeds, the jobs without
    a result, and the origin of the data.
    """
    sections = [
        f"# Sweep of sysid-{found.sweep.command}",
        count_jobs(found, dataset),
        _write_medians(found, dataset),
        _write_problems(found),
        _write_origin(found),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _write_origin(found: Results) -> str:
    """Return the section about the versions that made and collected the jobs."""
    sweep = found.sweep
    made = f"Jobs of sysid {sweep.version}, code {sweep.code[:12]}; sweep.json has their overrides."
    versions = json.loads(package_versions())
    collected = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"## Origin\n\n{made}\n\nCollected by `sysid-collect` with {collected}."


def count_jobs(found: Results, dataset: xr.Dataset) -> str:
    """Return sentences about how many jobs ended how, and about their grid of parameters."""
    counts = found.jobs["status"].value_counts()
    order = ("done", "failed", "damaged", "partial", "missing")
    counted = ", ".join(f"{counts[name]} {name}" for name in order if name in counts)
    text = f"{len(found.jobs)} jobs: {counted}."
    sizes = {name: size for name, size in dataset.sizes.items() if name != "output"}
    if "job" in sizes:
        return f"{text} Their parameters do not form a grid: one dimension, job."
    grid = " x ".join(f"{size} {name}" for name, size in sizes.items())
    text += f" Grid: {grid}."
    n_unplanned = dataset.attrs["n_unplanned"]
    if n_unplanned:
        text += f" {n_unplanned} of its {dataset.attrs['n_cells']} cells have no job."
    n_superseded = dataset.attrs["n_superseded"]
    if n_superseded:
        text += (
            f" {n_superseded} jobs have the parameters of others: "
            "of those, the last one that is done counts."
        )
    return text


def _write_medians(found: Results, dataset: xr.Dataset) -> str:
    """Return a sentence about the units, and the table of medians and quartiles."""
    shown = _choose_metrics(found)
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
    table = pd.DataFrame(index=pooled.index)
    for name in shown:
        lows = pooled[0.25][name]
        medians = pooled[0.5][name]
        highs = pooled[0.75][name]
        levels = zip(lows, medians, highs, strict=True)
        table[name] = [_spread_text(low, median, high) for low, median, high in levels]
    is_done = rows["status"] == "done"
    done = is_done.groupby([rows[name] for name in by], observed=True, dropna=False)
    table["done"] = [f"{n}/{size}" for n, size in zip(done.sum(), done.size(), strict=True)]
    columns = [*others]
    if found.outputs:
        columns.append("output")
    columns += [*shown, "done"]
    table = table.reset_index()[columns].astype(object)
    n_seeds = rows[SEED].nunique() if SEED in found.parameters.values() and SEED in rows else 0
    notes = ["over the seeds" if n_seeds > 1 else "over the jobs"]
    for name in shown:
        unit = dataset[name].attrs.get("units", "1")
        if unit != "1":
            notes.append(f"{name} [{unit}]")
    left_out = f" {found.timing}." if found.timing and times else ""
    cells = to_markdown(table.where(table.notna(), ""))
    return f"Median [quartiles] {'; '.join(notes)}.{left_out}\n\n{cells}"


def _choose_metrics(found: Results) -> list[str]:
    """Return the metrics of the table: the chosen ones, the headline, or the first ones."""
    if found.chosen_metrics:
        return [*found.chosen_metrics]
    headline = [name for name in HEADLINE if name in found.metrics]
    return headline or [*found.metrics][: len(HEADLINE)]


def _spread_text(low: float, median: float, high: float) -> str:
    """Return the median, followed by the quartiles where they differ; empty for nan."""
    text = significant(median)
    if low == high or not text:
        return text
    return f"{text} [{significant(low)}, {significant(high)}]"


def _write_problems(found: Results) -> str:
    """Return the table of the jobs that have failed or are damaged; empty if there are none."""
    jobs = found.jobs[~found.jobs["status"].isin(["done", "missing"])]
    if not len(jobs):
        return ""
    parameters = [
        ", ".join(f"{name}={row[name]}" for name in found.parameters) for _, row in jobs.iterrows()
    ]
    columns = {
        "folder": jobs.index,
        "status": jobs["status"],
        "parameters": parameters,
        "reason": jobs["error"],
    }
    return f"## Jobs without result\n\n{to_markdown(pd.DataFrame(columns))}"
