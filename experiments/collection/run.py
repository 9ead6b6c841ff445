"""One run of `sysid-collect`: read every job of a sweep, then write data set, tables and figures, and report."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.collection.dataset import KIND, build_dataset, check_names, write_with_records
from experiments.collection.read import AGAIN, Results, read_results, read_sweep
from experiments.collection.tables import count_jobs, write_csv, write_markdown
from experiments.files import write_every
from sysid import store

log = logging.getLogger(__name__)
LISTED = 5  # failed jobs that are reported one by one


def run(config: DictConfig, folder: Path) -> None:
    """Collect the sweep in ``config.folder`` into ``config.output``.

    Raises
    ------
    ValueError
        A setting that does not exist, before anything is written.
    sysid.StoreError
        No sweep, none of its jobs is done, or a file that cannot be written (the others are).
    """
    if not isinstance(config.figures, bool):
        raise ValueError(f"figures must be true or false, got {config.figures!r}")
    if config.folder is None:
        raise ValueError("folder: expected the folder of a sweep, sysid-collect multirun/identify/...")
    if config.output is not None and (not isinstance(config.output, str) or not config.output):
        raise ValueError(f"output must be the name of a folder, or null for that of the sweep, got {config.output!r}")
    source = Path(str(config.folder))
    output = source if config.output is None else Path(config.output)
    found = read_results(read_sweep(source))
    _refuse_empty(found)
    if (metrics := _names_of(config.metrics)) is not None:
        if not metrics:
            raise ValueError("metrics: expected at least one name, or null for all")
        check_names("metrics", metrics, list(found.metrics), "no job has")
        found = found._replace(metrics={name: found.metrics[name] for name in metrics})
    dataset = build_dataset(found)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store.StoreError(f"cannot make the folder {output} ({error.strerror}): set output to another") from error
    records = _names_of(config.records)
    if records is not None:
        write_with_records(found, dataset, output / "sweep.nc", records)
    texts = {"sweep.csv": write_csv(found), "sweep.md": write_markdown(found, dataset)}
    jobs = [partial(store.write_bytes, text.encode(), output / name) for name, text in texts.items()]
    write_every([*jobs, *([partial(store.write, dataset, output / "sweep.nc", kind=KIND)] if records is None else [])])
    if config.figures:
        from experiments.collection.figures import plan_figures
        from experiments.plots.style import to_bytes

        for name, draw in plan_figures(found, dataset).items():
            store.write_bytes(to_bytes(draw(), "png"), output / f"{name}.png")
    log.info("%s", count_jobs(found, dataset))
    _report_problems(found)
    log.info("Results: %s, sweep.csv and sweep.md", output / "sweep.nc")


def _names_of(value: Any) -> list[str] | None:
    """Names that a configuration lists, or the one that it names; None for none."""
    if value is None or OmegaConf.is_list(value):
        return None if value is None else [str(name) for name in value]
    return [str(value)]


def _refuse_empty(found: Results) -> None:
    """Refuse a sweep of which nothing is done."""
    jobs = found.jobs
    if (jobs["status"] == "done").any():
        return
    reasons = jobs["error"][jobs["status"] != "missing"]
    why = f" ({reasons.iloc[0]})" if len(reasons) else ""
    raise store.StoreError(f"none of the {len(jobs)} jobs in {found.sweep.folder} is done{why}: {AGAIN}")


def _report_problems(found: Results) -> None:
    """Log jobs that have no result."""
    missing = int((found.jobs["status"] == "missing").sum())
    failed = found.jobs["error"][~found.jobs["status"].isin(["done", "missing"])]
    for number, error in failed[:LISTED].items():
        log.warning("Job %s: %s", number, error)
    if len(failed) > LISTED:
        log.warning("and %s more, see sweep.md", len(failed) - LISTED)
    if missing:
        log.warning("Missing jobs: %s, not started or still running; collect again when the sweep has ended", missing)
    if missing or len(failed):
        log.warning("To fill the gaps, %s", AGAIN)
