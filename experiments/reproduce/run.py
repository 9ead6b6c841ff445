"""One run of `sysid-reproduce`: compute the chosen studies, write their files and the report.

Results that are kept from an earlier run are not computed again.
"""

import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numba
from omegaconf import DictConfig, OmegaConf
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from experiments.cli.ends import Stopped, end_with
from experiments.cli.options import choose, flag, whole
from experiments.cli.progress import doing
from experiments.reproduce.report import write_report, write_study
from experiments.reproduce.stream import PREPARATIONS
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import Plan, Study, Unit, write_part
from experiments.reproduce.tasks import STUDY_TASKS
from sysid import DataError
from sysid.beside import n_cores
from sysid.errors import UserError
from sysid.foreign import check_folder
from sysid.gp.online import MAX_BUDGET

log = logging.getLogger(__name__)

#: Largest number of seeds of every task; a list of all computations is kept.
MAX_SEEDS = 10_000
#: Largest number of processes.
MAX_WORKERS = 10_000


@dataclass(frozen=True)
class ReproduceSettings:
    """What is computed, how, and which files are written."""

    plan: Plan  # sizes and numbers of all studies, and the folder of the results
    studies: tuple[Study, ...]  # the chosen ones and those that they read, in the report's order
    workers: int  # processes
    has_figures: bool
    configuration: str  # YAML, for the stores


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen studies into ``config.output``.

    Raises
    ------
    ValueError
        A study or task is unknown, or the numbers leave nothing to compute.
    sysid.StoreError
        A result in the folder is damaged or leads out of it, or a file cannot be written.
    Stopped
        The user pressed Ctrl-C, or a worker died. What was computed so far is kept, and the same
        command continues.
    """
    begin = time.perf_counter()
    settings = read_settings(config)
    check_folder(settings.plan.folder, "parts")
    settings.plan.folder.mkdir(parents=True, exist_ok=True)
    plan, gaps = read_records(settings.plan)
    has_other_results = any((plan.folder / "parts").glob("*")) and not plan.parts.is_dir()
    if has_other_results:
        log.info(
            "The results in %s are those of another version or of other settings: "
            "everything is computed again",
            plan.folder,
        )
    names = ", ".join(sorted(study.name for study in settings.studies))
    if plan.quick:
        log.info("Reproduce %s into %s; this takes a minute or two", names, plan.folder)
    else:
        log.info(
            "Reproduce %s into %s; this takes minutes to hours, and can be stopped and continued",
            names,
            plan.folder,
        )
    compute(plan_waves(settings.studies, plan, gaps), plan, settings.workers)
    for study in settings.studies:
        if study.units(plan) or study.needs:
            write_study(
                study,
                plan,
                gaps,
                configuration=settings.configuration,
                figures=settings.has_figures,
            )
            log.info("%s: %s", study.title, plan.folder / f"{study.name}.md")
    write_report(plan)
    report_end(plan, gaps, settings.workers, time.perf_counter() - begin)


def read_settings(config: DictConfig) -> ReproduceSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        A value is wrong; the message names its key.
    """
    has_figures = flag("figures", config.figures)
    plan = make_plan(config)
    names = set(_choose_studies(config))
    names |= {needed for name in names for needed in STUDIES[name].needs}
    studies = tuple(study for name, study in STUDIES.items() if name in names)
    return ReproduceSettings(
        plan=_leave_out_tasks(plan, studies),
        studies=studies,
        workers=_read_workers(config.workers),
        has_figures=has_figures,
        configuration=OmegaConf.to_yaml(config, resolve=True),
    )


def _choose_studies(config: DictConfig) -> list[str]:
    """Return the names of the chosen studies; ``all`` are those of the report.

    Others may be named beside it.
    """
    of_report = [name for name in STUDIES if STUDIES[name].is_among_all]
    given = config.study
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    listed = list(given) if is_list else [given]
    named = [name for name in listed if name != "all"]
    if "all" not in listed:
        return choose("study", given, list(STUDIES))
    others = choose("study", named, list(STUDIES)) if named else []
    return [name for name in STUDIES if name in of_report or name in others]


def _leave_out_tasks(plan: Plan, studies: Sequence[Study]) -> Plan:
    """Return the plan without tasks that no study computes: their data are not needed.

    Raises
    ------
    ValueError
        The studies compute none of the tasks.
    """
    known = {task for study in studies for task in study.tasks}
    tasks = tuple(name for name in plan.tasks if name in known)
    shorter = replace(plan, tasks=tasks)
    if not any(study.units(shorter) or study.needs for study in studies):
        names = ", ".join(study.name for study in studies)
        raise UserError(
            f"tasks: study={names} computes none of {', '.join(plan.tasks)}; expected some of "
            f"{', '.join(name for name in STUDY_TASKS if name in known)}"
        )
    return shorter


def _read_workers(given: Any) -> int:
    """Return the number of processes; None: one for each core."""
    return n_cores() if given is None else whole("workers", given, 1, MAX_WORKERS)


def make_plan(config: DictConfig) -> Plan:
    """Read the sizes and numbers of all studies.

    Raises
    ------
    ValueError
        A value is wrong; the message names its key.
    """
    if not isinstance(config.output, str) or not config.output:
        raise UserError(f"output must be the name of a folder, got {config.output!r}")
    tasks = choose("tasks", config.tasks, list(STUDY_TASKS))
    has_default_seeds = config.seeds is None
    plan = Plan(
        Path(config.output),
        tuple(tasks),
        Plan.seeds if has_default_seeds else whole("seeds", config.seeds, 1, MAX_SEEDS),
        has_default_seeds,
        whole("budget", config.budget, 2, MAX_BUDGET),
    )
    if plan.budget != Plan.budget and _choose_studies(config) != ["online"]:
        raise UserError(
            f"budget must be {Plan.budget}, the paper's, but for study=online alone; "
            f"got {plan.budget}"
        )
    return plan.shorten() if flag("quick", config.quick) else plan


def read_records(plan: Plan) -> tuple[Plan, dict[str, str]]:
    """Return the plan with the digests of the measured records, and why some tasks have none."""
    digests = {}
    gaps = {}
    for name in plan.tasks:
        try:
            digests[name] = STUDY_TASKS[name].digest()
        except DataError as error:
            gaps[name] = str(error).partition(" The download: ")[0]
    records = tuple((name, digest) for name, digest in digests.items() if digest)
    return replace(plan, records=records), gaps


def plan_waves(studies: Sequence[Study], plan: Plan, gaps: Mapping[str, str]) -> list[list[Unit]]:
    """Return what is computed, in waves: preparations, calibrations and the studies.

    Each wave needs the results of those before it.
    """
    units = [unit for study in studies for unit in study.units(plan) if unit.task not in gaps]
    prepared = {unit.task for unit in units if STUDIES[unit.study].is_prepared}
    tasks = [name for name in plan.tasks if name in prepared]
    preparations = [
        Unit("preparation", task, seed)
        for task in tasks
        for seed in STUDY_TASKS[task].seeds(plan.seeds)
    ]
    calibrations = [Unit("calibration", task) for task in tasks]
    return [preparations, calibrations, units]


def compute(waves: Sequence[Sequence[Unit]], plan: Plan, workers: int) -> None:
    """Compute the units that are not kept yet, and show the progress.

    Raises
    ------
    Stopped
        The user pressed Ctrl-C, or a worker died. The message states what is kept.
    sysid.StoreError
        A result cannot be written.
    """
    everything = [unit for wave in waves for unit in wave]
    bar = tqdm(
        total=len(everything),
        initial=sum(map(plan.is_kept, everything)),
        disable=None,
        desc="studies",
    )
    progress = f"computing in {workers} processes, each compiles what is not compiled yet"
    try:
        with bar, doing(progress):
            for _ in execute(waves, plan, workers):
                bar.update()
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        if isinstance(error, KeyboardInterrupt):
            cause = "Run interrupted."
            code = 130
        else:
            cause = "A worker process died (killed, or out of memory?)."
            code = 1
        n_kept = sum(map(plan.is_kept, everything))
        raise Stopped(
            f"{cause} {n_kept} of {len(everything)} units are kept in {plan.parts}; "
            "the same command goes on from there",
            code,
        ) from None


def execute(waves: Sequence[Sequence[Unit]], plan: Plan, workers: int) -> Iterator[Unit]:
    """Compute the units that are not kept yet, wave after wave; yield each when it is done.

    The processes have one thread. All units of a task, seed and part are computed by the same
    process, since studies share streams. If the iteration ends early, for example by Ctrl-C, the
    processes are ended: the unit that each was computing is computed again next time.

    Raises
    ------
    concurrent.futures.process.BrokenProcessPool
        A process died.
    sysid.StoreError
        A result cannot be written.
    """
    # The pool starts its processes when they are needed.
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_start_worker, initargs=(os.getpid(),)
    )
    try:
        for wave in waves:
            missing = [unit for unit in wave if not plan.is_kept(unit)]
            # The last tasks take longest, and begin first.
            missing.sort(key=_position, reverse=True)
            groups = [list(group) for _, group in groupby(missing, key=lambda unit: unit[1:])]
            futures = {pool.submit(compute_units, group, plan): group for group in groups}
            for future in as_completed(futures):
                future.result()
                yield from futures[future]
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _position(unit: Unit) -> tuple[int, int]:
    """Return the place of a unit's task among all tasks, and its seed."""
    return [*STUDY_TASKS, ""].index(unit.task), unit.seed


def _start_worker(parent: int) -> None:
    """Use one thread, and ignore Ctrl-C, which reaches all processes: the parent ends them.

    A parent that is killed ends them as well.
    """
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    numba.set_num_threads(1)


def compute_unit(unit: Unit, plan: Plan) -> None:
    """Compute a unit and keep its result, unless it is kept already."""
    if plan.is_kept(unit):
        return
    compute_one = PREPARATIONS.get(unit.study) or STUDIES[unit.study].compute
    write_part(compute_one(unit, plan), unit, plan)


def compute_units(units: Sequence[Unit], plan: Plan) -> None:
    """Compute units one after the other, and keep their results."""
    for unit in units:
        compute_unit(unit, plan)


def report_end(plan: Plan, gaps: Mapping[str, str], workers: int, seconds: float) -> None:
    """Log which tasks have no data, the time, and where the report is."""
    for task, reason in gaps.items():
        log.warning(
            "No data for %s, marked as a gap in the tables: %s",
            STUDY_TASKS[task].title,
            reason,
        )
    if gaps:
        log.warning(
            "To fill the gaps, set the environment variable SYSID_DATA to the folder of the data "
            "and run again."
        )
    log.info(
        "This took %.0f s with %d workers. Report: %s",
        seconds,
        workers,
        plan.folder / "report.md",
    )
