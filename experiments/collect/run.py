"""One run of `sysid-collect`: read every job of a sweep, then write data set, tables and figures, and report."""

import json
import logging
from functools import partial
from pathlib import Path

import pandas as pd
import xarray as xr
from omegaconf import DictConfig

from experiments.cli.options import flag, meant
from experiments.collect.read import AGAIN, SEED, Results, build_dataset, read_results
from experiments.drawing.tables import pool, significant, to_csv, to_markdown
from experiments.files.outputs import has_page, write_every
from sysid import store
from sysid.errors import UserError
from sysid.store import package_versions

log = logging.getLogger(__name__)
LISTED = 5  # failed jobs that are reported one by one
HEADLINE = ("smse", "free_run_fit_percent", "coverage_95", "n_revised", "times_loop")  # metrics of the Markdown table


def run(config: DictConfig, folder: Path) -> None:
    """Collect the sweep in ``config.folder`` into ``config.output``.

    Raises
    ------
    ValueError
        A setting that does not exist, before anything is written.
    sysid.StoreError
        No sweep, none of its jobs is done, or a file that cannot be written (the others are).
    """
    flag("figures", config.figures)
    has_page(config)

    if config.folder is None:
        raise UserError("folder: expected the folder of a sweep, sysid-collect multirun/identify/...")
    if config.output is not None and (not isinstance(config.output, str) or not config.output):
        raise UserError(f"output must be the name of a folder, or null for that of the sweep, got {config.output!r}")
    source = Path(str(config.folder))
    output = source if config.output is None else Path(config.output)
    log.info("Collect the jobs of %s: one data set, tables, figures; takes seconds", source)
    found = read_results(source)
    jobs, reasons = found.jobs, found.jobs["error"][found.jobs["status"] != "missing"]
    if not (jobs["status"] == "done").any():
        why = f" ({reasons.iloc[0]})" if len(reasons) else ""
        raise store.StoreError(f"none of the {len(jobs)} jobs in {source} is done{why}: {AGAIN}")
    if config.metrics is not None:
        metrics = [config.metrics] if isinstance(config.metrics, str) else [str(name) for name in config.metrics]
        if not metrics:
            raise UserError("metrics: expected at least one name, or null for all")
        if unknown := [name for name in metrics if name not in found.metrics]:
            advice = meant(unknown[0], found.metrics) or "; collect without metrics: the header of sweep.csv names all"
            raise UserError(f"metrics: no job has {unknown[0]!r}{advice}")
        found = found._replace(metrics={name: found.metrics[name] for name in metrics}, asked=tuple(metrics))
    dataset = build_dataset(found)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store.StoreError(f"cannot make the folder {output} ({error.strerror}): set output to another") from error
    texts = {"sweep.csv": write_csv(found), "sweep.md": write_markdown(found, dataset)}
    files = [partial(store.write_bytes, text.encode(), output / name) for name, text in texts.items()]
    write_every([*files, partial(store.write, dataset, output / "sweep.nc", kind="sweep")])
    if config.figures:
        from experiments.collect.figures import plan_figures
        from experiments.drawing.style import render

        for name, draw in plan_figures(found, dataset).items():
            store.write_bytes(render(draw, "png")["png"], output / f"{name}.png")
    if has_page(config):
        from experiments.collect.page import write_sweep  # imports matplotlib

        write_sweep(found, dataset, count_jobs(found, dataset), output)
    log.info("%s", count_jobs(found, dataset))
    for number, reason in reasons[reasons != ""][:LISTED].items():
        log.warning("Job %s: %s", number, reason)
    if not (jobs["status"] == "done").all():
        log.warning("Jobs without result stand in sweep.md. To fill the gaps, %s", AGAIN)
    figures = " and figures" if config.figures else ""
    log.info("Results: %s, sweep.csv, sweep.md%s; next: read sweep.md", output / "sweep.nc", figures)


# --- tables ---------------------------------------------------------------------------------------


def write_csv(found: Results) -> str:
    """One row for each job and output: number, folder, status, error, parameters, metrics to the last digit."""
    numbers = pd.concat(found.numbers, names=["output", None]).dropna(how="all").reset_index("output")
    table = found.jobs.join(numbers)  # a job without numbers has one row
    table = table.assign(number=table.index, folder=table.index, timed=table["timed"].astype(int))
    outputs, timed = ["output"] if found.outputs else [], ["timed"] if found.measured else []
    names = ["number", "folder", "status", "error", *outputs, *found.parameters, *found.metrics, *timed]
    return to_csv(table[names])


def write_markdown(found: Results, dataset: xr.Dataset) -> str:
    """Medians and quartiles over the seeds, counts, the jobs that have failed, and how the sweep was made."""
    title, sweep = f"# Sweep of sysid-{found.sweep.command}", found.sweep
    collected = ", ".join(f"{name} {version}" for name, version in json.loads(package_versions()).items())
    made = f"Jobs of sysid {sweep.version}, code {sweep.code[:12]}; sweep.json has their overrides."
    origin = f"## Origin\n\n{made}\n\nCollected by `sysid-collect` with {collected}."
    sections = [title, count_jobs(found, dataset), _medians(found, dataset), _problems(found), origin]
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
    shown = [*found.asked] or [name for name in HEADLINE if name in found.metrics] or [*found.metrics][: len(HEADLINE)]
    others = [name for name, key in found.parameters.items() if key != SEED]
    times = [name for name in shown if name in found.measured]
    rows = pd.concat([found.select_rows(dataset, output, times).assign(output=output) for output in found.numbers])
    by = [*others, "output"]
    pooled = pool(rows, by, shown)
    done = (rows["status"] == "done").groupby([rows[name] for name in by], observed=True, dropna=False)
    table = pd.DataFrame(index=pooled.index)
    for name in shown:
        quartiles = zip(*(pooled[level][name] for level in (0.25, 0.5, 0.75)), strict=True)
        table[name] = [_spread_text(*levels) for levels in quartiles]
    table["done"] = [f"{n}/{size}" for n, size in zip(done.sum(), done.size(), strict=True)]
    table = table.reset_index()[[*others, *(["output"] if found.outputs else []), *shown, "done"]].astype(object)
    what = "seeds" if len(others) < len(found.parameters) else "jobs"
    units = {name: dataset[name].attrs.get("units", "1") for name in shown}
    note = "; ".join([f"over the {what}", *(f"{name} [{unit}]" for name, unit in units.items() if unit != "1")])
    left_out = f" {found.timing}." if found.timing and times else ""
    return f"Median [quartiles] {note}.{left_out}\n\n{to_markdown(table.where(table.notna(), ''))}"


def _spread_text(low: float, median: float, high: float) -> str:
    """Median, and the quartiles where they differ; empty for nan."""
    text = significant(median)
    return text if low == high or not text else f"{text} [{significant(low)}, {significant(high)}]"


def _problems(found: Results) -> str:
    """Jobs that have failed or are damaged, with the reason."""
    jobs = found.jobs[~found.jobs["status"].isin(["done", "missing"])]
    values = [", ".join(f"{name}={row[name]}" for name in found.parameters) for _, row in jobs.iterrows()]
    columns = {"folder": jobs.index, "status": jobs["status"], "parameters": values, "reason": jobs["error"]}
    return f"## Jobs without result\n\n{to_markdown(pd.DataFrame(columns))}" if len(jobs) else ""
