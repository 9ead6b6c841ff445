"""One run of `sysid-collect`: read every job of a sweep, write its data set, tables and figures.

The last step logs how the jobs ended and where the files are.
"""

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import xarray as xr
from omegaconf import DictConfig, OmegaConf

from experiments.cli.options import flag, meant
from experiments.collect.read import HOW_TO_RESUME, Results, build_dataset, read_results
from experiments.collect.tables import count_jobs, write_csv, write_markdown
from experiments.files.outputs import has_page, write_every
from sysid import store
from sysid.arrays import listed
from sysid.errors import UserError

log = logging.getLogger(__name__)
MAX_LOGGED_FAILURES = 5  # failed jobs whose reasons are logged one by one


@dataclass(frozen=True)
class CollectSettings:
    """Which sweep is collected, and what is written about it."""

    folder: Path  # of the sweep
    output: Path  # folder of the files
    metrics: tuple[str, ...] | None  # that are written and shown; None: all
    has_figures: bool
    has_page: bool  # whether report.html is written


def run(config: DictConfig, folder: Path) -> None:
    """Collect the sweep in ``config.folder`` into ``config.output``.

    Raises
    ------
    ValueError
        A setting is wrong; nothing has been written yet.
    sysid.StoreError
        The folder has no sweep, none of its jobs is done, or a file cannot be written (the others
        are written).
    """
    settings = read_settings(config)
    log.info(
        "Collect the jobs of %s: one data set, tables and figures; this takes seconds",
        settings.folder,
    )
    found = read_results(settings.folder)
    check_done(found, settings.folder)
    if settings.metrics is not None:
        found = choose_metrics(found, settings.metrics)
    dataset = build_dataset(found)
    make_folder(settings.output)
    write_files(found, dataset, settings.output)
    if settings.has_figures:
        draw_figures(found, dataset, settings.output)
    if settings.has_page:
        from experiments.collect.page import write_sweep  # imports matplotlib

        write_sweep(found, dataset, count_jobs(found, dataset), settings.output)
    report(found, dataset, settings)


def read_settings(config: DictConfig) -> CollectSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        A value is wrong; the message names its key.
    """
    has_figures = flag("figures", config.figures)
    page = has_page(config.report)
    if config.folder is None or OmegaConf.is_list(config.folder):
        raise UserError(
            "folder: expected the folder of one sweep, sysid-collect multirun/identify/..., "
            f"got {config.folder}"
        )
    if config.output is not None and (not isinstance(config.output, str) or not config.output):
        raise UserError(
            "output must be the name of a folder, or null for that of the sweep, "
            f"got {config.output!r}"
        )
    source = Path(str(config.folder))
    output = source if config.output is None else Path(config.output)
    return CollectSettings(source, output, read_metrics(config), has_figures, page)


def read_metrics(config: DictConfig) -> tuple[str, ...] | None:
    """Read the names of the metrics; None stands for all.

    Raises
    ------
    ValueError
        The list is empty.
    """
    if config.metrics is None:
        return None
    if isinstance(config.metrics, str):
        return (config.metrics,)
    metrics = tuple(str(name) for name in listed(config.metrics, "metrics", "names"))
    if not metrics:
        raise UserError("metrics: expected at least one name, or null for all")
    return metrics


def check_done(found: Results, source: Path) -> None:
    """Raise unless at least one job of the sweep is done.

    Raises
    ------
    sysid.StoreError
        No job is done. The message states the error of the first job that has one.
    """
    jobs = found.jobs
    reasons = reasons_of(found)
    if not (jobs["status"] == "done").any():
        why = f" ({reasons.iloc[0]})" if len(reasons) else ""
        raise store.StoreError(
            f"none of the {len(jobs)} jobs in {source} is done{why}: {HOW_TO_RESUME}"
        )


def reasons_of(found: Results) -> pd.Series:
    """Return the error text of every job that is not missing, empty if it has none, by number."""
    return found.jobs["error"][found.jobs["status"] != "missing"]


def choose_metrics(found: Results, metrics: tuple[str, ...]) -> Results:
    """Return the results with only these metrics.

    Raises
    ------
    ValueError
        No job has one of them.
    """
    unknown = [name for name in metrics if name not in found.metrics]
    if unknown:
        advice = meant(unknown[0], found.metrics)
        if not advice:
            advice = "; collect without metrics: the header of sweep.csv names all"
        raise UserError(f"metrics: no job has {unknown[0]!r}{advice}")
    chosen = {name: found.metrics[name] for name in metrics}
    return found._replace(metrics=chosen, chosen_metrics=metrics)


def make_folder(output: Path) -> None:
    """Make the folder of the files.

    Raises
    ------
    sysid.StoreError
        The folder cannot be made.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store.StoreError(
            f"cannot make the folder {output} ({error.strerror}): set output to another folder"
        ) from error


def write_files(found: Results, dataset: xr.Dataset, output: Path) -> None:
    """Write the tables and the data set.

    Raises
    ------
    sysid.StoreError
        A file could not be written; the others are written.
    """
    csv = write_csv(found).encode()
    markdown = write_markdown(found, dataset).encode()
    write_every(
        [
            partial(store.write_bytes, csv, output / "sweep.csv"),
            partial(store.write_bytes, markdown, output / "sweep.md"),
            partial(store.write, dataset, output / "sweep.nc", kind="sweep"),
        ]
    )


def draw_figures(found: Results, dataset: xr.Dataset, output: Path) -> None:
    """Draw every figure for which the results have data."""
    from experiments.collect.figures import plan_figures  # imports matplotlib
    from experiments.drawing.style import render

    for name, draw in plan_figures(found, dataset).items():
        store.write_bytes(render(draw, "png")["png"], output / f"{name}.png")


def report(found: Results, dataset: xr.Dataset, settings: CollectSettings) -> None:
    """Log how the jobs ended, why the first ones failed, and where the files are."""
    reasons = reasons_of(found)
    log.info("%s", count_jobs(found, dataset))
    for number, reason in reasons[reasons != ""][:MAX_LOGGED_FAILURES].items():
        log.warning("Job %s: %s", number, reason)
    if not (found.jobs["status"] == "done").all():
        log.warning(
            "The jobs without a result are listed in sweep.md. To fill the gaps, %s",
            HOW_TO_RESUME,
        )
    figures = " and figures" if settings.has_figures else ""
    log.info(
        "Results: %s, sweep.csv, sweep.md%s; next: read sweep.md",
        settings.output / "sweep.nc",
        figures,
    )
