"""One run of `sysid-collect`: read every job of a sweep, then write data set, tables and figures, and tell."""

import logging
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr
from omegaconf import DictConfig, OmegaConf

from experiments.collection.cells import dataset_of, layout_of
from experiments.collection.gathering import Gathered, gather
from experiments.collection.job_result import DONE, MISSING, results
from experiments.collection.records import check_records, sources_of, write_with_records
from experiments.collection.sweep_folder import AGAIN, read_sweep
from experiments.collection.table import counts_text, csv_text, markdown_text
from experiments.written import write_every
from sysid import store

log = logging.getLogger(__name__)
KIND = "sweep"
NAME = "sweep"  # of the files
TOLD = 5  # failed jobs that are told one by one


def run(config: DictConfig, folder: Path) -> None:
    """Collect the sweep in ``config.folder`` into ``config.output``.

    Raises
    ------
    ValueError
        A setting that does not exist, before anything is written.
    sysid.StoreError
        No sweep, none of its jobs is done, or a file that cannot be written (the others are).
    """
    source, output = folders_of(config)
    sweep = read_sweep(source)
    found = gather(sweep, results(sweep))
    _refuse_empty(found)
    write = writer_of(found, config.records)
    found = chosen(found, config.metrics)
    layout, dataset = layout_of(found), dataset_of(found)
    _make(output)
    jobs: list[Callable[[], object]] = [
        partial(write, dataset, output / f"{NAME}.nc", kind=KIND),
        lambda: store.write_bytes(csv_text(found).encode(), output / f"{NAME}.csv"),
        lambda: store.write_bytes(markdown_text(found, layout).encode(), output / f"{NAME}.md"),
    ]
    write_every(jobs)
    write_every(figures_of(dataset, output) if config.figures else [])
    log.info("%s", counts_text(found, layout))
    _tell_problems(found)
    log.info("Results: %s, %s.csv and %s.md", output / f"{NAME}.nc", NAME, NAME)


def folders_of(config: DictConfig) -> tuple[Path, Path]:
    """Folder of the sweep, and that of the files.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    if not isinstance(config.figures, bool):
        raise ValueError(f"figures must be true or false, got {config.figures!r}")
    if config.folder is None:
        raise ValueError("folder: expected the folder of a sweep, sysid-collect multirun/identify/...")
    if config.output is not None and (not isinstance(config.output, str) or not config.output):
        raise ValueError(f"output must be the name of a folder, or null for that of the sweep, got {config.output!r}")
    source = Path(str(config.folder))
    return source, source if config.output is None else Path(config.output)


def writer_of(found: Gathered, records: object) -> Callable[..., Path]:
    """What writes the data set of a sweep: with the records that a configuration names, or without.

    Raises
    ------
    ValueError
        Records that do not exist, or do not fit together.
    """
    names = names_of(records)
    if names is None:
        return store.write
    sources = sources_of(found, layout_of(found))
    return partial(write_with_records, sources=sources, names=names, length=check_records(sources, names))


def names_of(value: object) -> list[str] | None:
    """Names that a configuration lists, or the one that it names; None for none."""
    given = OmegaConf.to_object(value) if OmegaConf.is_list(value) else value
    if given is None:
        return None
    return [str(name) for name in given] if isinstance(given, list) else [str(given)]


def chosen(found: Gathered, metrics: object) -> Gathered:
    """The metrics that a configuration names, in its order; all for None.

    Raises
    ------
    ValueError
        A metric that the sweep does not have, with the nearest that it has.
    """
    names = names_of(metrics)
    if names is None:
        return found
    for name in names:
        if name not in found.columns:
            near = get_close_matches(name, found.columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"metrics: no job has {name!r}, expected some of {', '.join(found.columns)}{hint}")
    if not names:
        raise ValueError("metrics: expected at least one name, or null for all")
    return found._replace(columns={name: found.columns[name] for name in names})


def figures_of(dataset: xr.Dataset, folder: Path) -> list[Callable[[], object]]:
    """Writing of each figure."""
    from experiments.collection.figures import drawings
    from experiments.plots.style import png

    def write(name: str, draw: Callable) -> None:
        store.write_bytes(png(draw()), folder / f"{name}.png")

    return [partial(write, name, draw) for name, draw in drawings(dataset).items()]


def _refuse_empty(found: Gathered) -> None:
    """Refuse a sweep of which nothing is done."""
    if np.any(found.status == DONE):
        return
    first = next((error for status, error in zip(found.status, found.errors, strict=True) if status != MISSING), "")
    why = f" ({first})" if first else ""
    raise store.StoreError(f"none of the {len(found.sweep.jobs)} jobs in {found.sweep.folder} is done{why}: {AGAIN}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store.StoreError(f"cannot make the folder {folder} ({error.strerror}): set output to another") from error


def _tell_problems(found: Gathered) -> None:
    """Log jobs that have no result."""
    jobs = list(zip(found.sweep.jobs, found.status, found.errors, strict=True))
    told = [(job.number, error) for job, status, error in jobs if status not in (DONE, MISSING)]
    for number, error in told[:TOLD]:
        log.warning("Job %s: %s", number, error)
    if len(told) > TOLD:
        log.warning("and %s more, see %s.md", len(told) - TOLD, NAME)
    n_missing = int(np.count_nonzero(found.status == MISSING))
    if n_missing:
        log.warning("Missing jobs: %s, not started or still running; collect again when the sweep has ended", n_missing)
    if n_missing or told:
        log.warning("To fill the gaps, %s", AGAIN)
