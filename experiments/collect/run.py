"""One run of `sysid-collect`: read every job of a sweep, then write data set, tables and figures,
and report.
"""

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import xarray as xr
from omegaconf import DictConfig

from experiments.cli.options import flag, meant
from experiments.collect.read import AGAIN, Results, build_dataset, read_results
from experiments.collect.tables import count_jobs, write_csv, write_markdown
from experiments.files.outputs import has_page, write_every
from sysid import store
from sysid.arrays import listed
from sysid.errors import UserError

log = logging.getLogger(__name__)
LISTED = 5  # failed jobs that are reported one by one


@dataclass(frozen=True)
class CollectSettings:
    """Which sweep is collected, and what is written of it."""

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
        A setting that does not exist, before anything is written.
    sysid.StoreError
        No sweep, none of its jobs is done, or a file that cannot be written (the others are).
    """
    settings = read_settings(config)
    log.info(
        "Collect the jobs of %s: one data set, tables, figures; takes seconds",
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
    tell(found, dataset, settings)


def read_settings(config: DictConfig) -> CollectSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    has_figures = flag("figures", config.figures)
    page = has_page(config.report)
    if config.folder is None:
        raise UserError(
            "folder: expected the folder of a sweep, sysid-collect multirun/identify/..."
        )
    if config.output is not None and (not isinstance(config.output, str) or not config.output):
        raise UserError(
            f"output must be the name of a folder, or null for that of the sweep, got {config.output!r}"
        )
    source = Path(str(config.folder))
    output = source if config.output is None else Path(config.output)
    return CollectSettings(source, output, read_metrics(config), has_figures, page)


def read_metrics(config: DictConfig) -> tuple[str, ...] | None:
    """Read the names of the metrics; None stands for all.

    Raises
    ------
    ValueError
        If there are none.
    """
    if config.metrics is None:
        return None
    metrics = (
        [config.metrics]
        if isinstance(config.metrics, str)
        else [str(name) for name in listed(config.metrics, "metrics", "names")]
    )
    if not metrics:
        raise UserError("metrics: expected at least one name, or null for all")
    return tuple(metrics)


def check_done(found: Results, source: Path) -> None:
    """Refuse a sweep of which nothing is done.

    Raises
    ------
    sysid.StoreError
        With the reason of the first job that has one.
    """
    jobs = found.jobs
    reasons = reasons_of(found)
    if not (jobs["status"] == "done").any():
        why = f" ({reasons.iloc[0]})" if len(reasons) else ""
        raise store.StoreError(f"none of the {len(jobs)} jobs in {source} is done{why}: {AGAIN}")


def reasons_of(found: Results) -> pd.Series:
    """Errors of the jobs that are there, by number; empty texts where there is none."""
    return found.jobs["error"][found.jobs["status"] != "missing"]


def choose_metrics(found: Results, metrics: tuple[str, ...]) -> Results:
    """Return the results with these metrics alone.

    Raises
    ------
    ValueError
        A metric that no job has.
    """
    if unknown := [name for name in metrics if name not in found.metrics]:
        advice = (
            meant(unknown[0], found.metrics)
            or "; collect without metrics: the header of sweep.csv names all"
        )
        raise UserError(f"metrics: no job has {unknown[0]!r}{advice}")
    return found._replace(metrics={name: found.metrics[name] for name in metrics}, asked=metrics)


def make_folder(output: Path) -> None:
    """Make the folder of the files.

    Raises
    ------
    sysid.StoreError
        If it cannot be made.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store.StoreError(
            f"cannot make the folder {output} ({error.strerror}): set output to another"
        ) from error


def write_files(found: Results, dataset: xr.Dataset, output: Path) -> None:
    """Write the tables and the data set.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; the others are there.
    """
    texts = {"sweep.csv": write_csv(found), "sweep.md": write_markdown(found, dataset)}
    files = [
        partial(store.write_bytes, text.encode(), output / name) for name, text in texts.items()
    ]
    write_every([*files, partial(store.write, dataset, output / "sweep.nc", kind="sweep")])


def draw_figures(found: Results, dataset: xr.Dataset, output: Path) -> None:
    """Draw every figure that the results have something for."""
    from experiments.collect.figures import plan_figures  # imports matplotlib
    from experiments.drawing.style import render

    for name, draw in plan_figures(found, dataset).items():
        store.write_bytes(render(draw, "png")["png"], output / f"{name}.png")


def tell(found: Results, dataset: xr.Dataset, settings: CollectSettings) -> None:
    """Log how many jobs ended how, why the first ones failed, and where the files are."""
    reasons = reasons_of(found)
    log.info("%s", count_jobs(found, dataset))
    for number, reason in reasons[reasons != ""][:LISTED].items():
        log.warning("Job %s: %s", number, reason)
    if not (found.jobs["status"] == "done").all():
        log.warning("Jobs without result stand in sweep.md. To fill the gaps, %s", AGAIN)
    figures = " and figures" if settings.has_figures else ""
    log.info(
        "Results: %s, sweep.csv, sweep.md%s; next: read sweep.md",
        settings.output / "sweep.nc",
        figures,
    )
