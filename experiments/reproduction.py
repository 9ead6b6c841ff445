"""One run of `sysid-reproduce`: compute what is missing, combine, write, tell."""

import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from multiprocessing import active_children, get_context
from pathlib import Path

import numba
from omegaconf import DictConfig, ListConfig, OmegaConf
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from experiments.launch import Stopped
from experiments.options import flag, whole
from experiments.studies.report import STUDIES, compute_job, write_report, write_study
from experiments.studies.study import STREAM_STUDIES, Plan, Unit
from experiments.studies.tasks import TASKS
from sysid import DataError

log = logging.getLogger(__name__)

Job = tuple[Unit, ...]  # units that one process computes, because they share streams of the same task and seed


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen studies into ``config.output``.

    Raises
    ------
    ValueError
        An unknown study or task, numbers that leave nothing to compute.
    sysid.StoreError
        A damaged result in the folder; a file that cannot be written.
    Stopped
        After Ctrl-C or the death of a worker; what was computed so far is kept, and the same command goes on.
    """
    begin = time.perf_counter()
    plan, names = make_plan(config), set(choose("study", config.study, list(STUDIES)))
    names |= {needed for name in names for needed in STUDIES[name].needs}
    workers = len(os.sched_getaffinity(0)) if config.workers is None else whole("workers", config.workers, 1)
    plan.folder.mkdir(parents=True, exist_ok=True)
    plan, gaps = read_records(plan)
    if any((plan.folder / "parts").glob("*")) and not plan.parts.is_dir():
        log.info("Results of another version, or of other settings, are in %s: all is computed again", plan.folder)
    studies = [study for name, study in STUDIES.items() if name in names]
    units = [unit for study in studies for unit in study.units(plan) if unit.task not in gaps]
    tasks = [name for name in plan.tasks if any(unit.task == name for unit in units)]
    waves: list[list[Job]] = [
        [(Unit("preparation", task, seed),) for task in tasks for seed in TASKS[task].seeds(plan.seeds)],
        [(Unit("calibration", task),) for task in tasks],
        group_units(units),
    ]
    jobs = [job for wave in waves for job in wave]
    try:
        form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
        with tqdm(total=sum(map(weigh, jobs)), disable=None, desc="studies", bar_format=form) as bar:
            for wave in waves:
                missing = [job for job in wave if not all(map(plan.is_kept, job))]
                bar.update(sum(weigh(job) for job in wave if job not in missing))
                for job in execute(sorted(missing, key=weigh, reverse=True), plan, workers):
                    bar.update(weigh(job))
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        of_jobs = [unit for job in jobs for unit in job]
        kept = f"{sum(map(plan.is_kept, of_jobs))} of {len(of_jobs)} units are kept in {plan.parts}"
        is_interrupt = isinstance(error, KeyboardInterrupt)
        cause = "Run interrupted." if is_interrupt else "A worker process died (killed, or out of memory?)."
        raise Stopped(f"{cause} {kept}; the same command goes on from there", 130 if is_interrupt else 1) from None
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True)}
    for study in studies:
        whole_plan = add_kept_tasks(study.name, plan)
        if study.units(whole_plan) or study.needs:
            write_study(study, whole_plan, gaps, attributes, figures=config.figures)
            log.info("%s: %s", study.title, plan.folder / f"{study.name}.md")
    write_report(plan)
    for task, reason in gaps.items():
        log.warning("No data for %s, marked as a gap in the tables: %s", TASKS[task].title, reason)
    if gaps:
        log.warning("To have them, name the folder of the data by the environment variable SYSID_DATA and run again.")
    if plan.quick:
        log.info("quick=true: sizes too small for the numbers to mean anything")
    log.info("Took %.0f s with %d workers. Report: %s", time.perf_counter() - begin, workers, plan.folder / "report.md")


def make_plan(config: DictConfig) -> Plan:
    """Check the settings.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    flag("figures", config.figures)
    if not isinstance(config.output, str) or not config.output:
        raise ValueError(f"output must be the name of a folder, got {config.output!r}")
    tasks = choose("tasks", config.tasks, list(TASKS))
    plan = Plan(Path(config.output), tuple(tasks), whole("seeds", config.seeds, 1))
    return plan.shorten() if flag("quick", config.quick) else plan


def choose(key: str, value: object, known: Sequence[str]) -> list[str]:
    """Names that a configuration lists, in the order of those known; ``all`` stands for all.

    Raises
    ------
    ValueError
        A name that does not exist, with the nearest that does, or none at all.
    """
    names = [str(name) for name in value] if isinstance(value, ListConfig) else [str(value)]
    if names == ["all"]:
        return list(known)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        near = get_close_matches(unknown[0], known, n=1) if unknown else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        expected = f"{key} must be all, or some of {', '.join(known)}"
        raise ValueError(f"{expected}, got {', '.join(unknown) or 'none'}{hint}")
    return [name for name in known if name in names]


def read_records(plan: Plan) -> tuple[Plan, dict[str, str]]:
    """The plan with the digests of the measured records, and the tasks that have none, with the reason."""
    digests, gaps = {}, {}
    for name in plan.tasks:
        try:
            digests[name] = TASKS[name].digest()
        except DataError as error:
            gaps[name] = str(error).partition(" The download: ")[0]
    return replace(plan, records=tuple((name, text) for name, text in digests.items() if text)), gaps


def group_units(units: Sequence[Unit]) -> list[Job]:
    """Units of a task and seed that share streams in one job; every other unit is a job of its own."""
    jobs: dict[object, Job] = {}
    for unit in units:
        key = unit._replace(study="streams") if unit.study in STREAM_STUDIES else unit
        jobs[key] = (*jobs.get(key, ()), unit)
    return list(jobs.values())


def weigh(job: Job) -> float:
    """About how long a job takes [s]: for the progress bar, and to begin with what takes longest."""
    return sum(
        (STUDIES[unit.study].weight if unit.study in STUDIES else 0.3) * (TASKS[unit.task].weight if unit.task else 1.0)
        for unit in job
    )


def execute(jobs: Sequence[Job], plan: Plan, workers: int) -> Iterator[Job]:
    """Compute what is not kept yet, each job in one process of one thread; yield each job when it is done.

    Left early, by Ctrl-C say, the processes are ended: the unit that each was at is computed again next time.

    Raises
    ------
    concurrent.futures.process.BrokenProcessPool
        A process died.
    sysid.StoreError
        A result that cannot be written.
    """
    if not jobs:
        return
    pool = ProcessPoolExecutor(min(workers, len(jobs)), get_context("spawn"), initializer=_start_worker)
    try:
        futures = {pool.submit(compute_job, job, plan): job for job in jobs}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """One thread; Ctrl-C reaches every process of the terminal, and the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    numba.set_num_threads(1)


def add_kept_tasks(study: str, plan: Plan) -> Plan:
    """The plan with the tasks that earlier runs in the same folder computed: they stay in the tables of the study."""
    records = dict.fromkeys(plan.tasks, "") | dict(plan.records)
    for task in (name for name in STUDIES[study].tasks if name not in plan.tasks):
        with suppress(DataError):  # its records are not there any more
            digest = TASKS[task].digest() if any((plan.parts / study).glob(f"{task}-*")) else ""
            alone = replace(plan, tasks=(task,), records=((task, digest),) if digest else ())
            units = STUDIES[study].units(alone)
            if units and all(map(alone.is_kept, units)):
                records[task] = digest
    tasks = tuple(name for name in TASKS if name in records)
    return replace(plan, tasks=tasks, records=tuple((task, text) for task, text in records.items() if text))
