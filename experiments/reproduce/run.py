"""One run of `sysid-reproduce`: all studies, what is missing of them is computed, their files, and
the report.
"""

import logging
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import active_children, get_context
from pathlib import Path

import numba
from omegaconf import DictConfig, OmegaConf
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from experiments.cli.ends import Stopped
from experiments.cli.options import choose, flag, whole
from experiments.cli.progress import doing
from experiments.reproduce.report import write_report, write_study
from experiments.reproduce.stream import PREPARATIONS
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import Plan, Study, Unit, write_part
from experiments.reproduce.tasks import TASKS
from sysid import DataError
from sysid.beside import n_cores
from sysid.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReproduceSettings:
    """What is computed, how, and what is written of it."""

    plan: Plan  # sizes and numbers of all studies, and the folder of the results
    studies: tuple[
        Study, ...
    ]  # that were chosen, and those that they read; in the order of the report
    workers: int  # processes
    has_figures: bool
    configuration: str  # YAML, for the stores


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen studies into ``config.output``.

    Raises
    ------
    ValueError
        An unknown study or task, numbers that leave nothing to compute.
    sysid.StoreError
        A damaged result in the folder; a file that cannot be written.
    Stopped
        After Ctrl-C or the death of a worker; what was computed so far is kept, and the same
        command goes on.
    """
    begin = time.perf_counter()
    settings = read_settings(config)
    settings.plan.folder.mkdir(parents=True, exist_ok=True)
    plan, gaps = read_records(settings.plan)
    if any((plan.folder / "parts").glob("*")) and not plan.parts.is_dir():
        log.info(
            "Results of another version, or of other settings, are in %s: all is computed again",
            plan.folder,
        )
    names = sorted(study.name for study in settings.studies)
    how_long = (
        "a minute or two" if plan.quick else "minutes to hours, and can be stopped and continued"
    )
    log.info("Reproduce %s into %s; takes %s", ", ".join(names), plan.folder, how_long)
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
    tell(plan, gaps, settings.workers, time.perf_counter() - begin)


def read_settings(config: DictConfig) -> ReproduceSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    has_figures = flag("figures", config.figures)
    plan = make_plan(config)
    names = set(choose("study", config.study, list(STUDIES)))
    names |= {needed for name in names for needed in STUDIES[name].needs}
    return ReproduceSettings(
        plan=plan,
        studies=tuple(study for name, study in STUDIES.items() if name in names),
        workers=n_cores() if config.workers is None else whole("workers", config.workers, 1),
        has_figures=has_figures,
        configuration=OmegaConf.to_yaml(config, resolve=True),
    )


def make_plan(config: DictConfig) -> Plan:
    """Read the sizes and numbers of all studies.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    if not isinstance(config.output, str) or not config.output:
        raise UserError(f"output must be the name of a folder, got {config.output!r}")
    tasks = choose("tasks", config.tasks, list(TASKS))
    plan = Plan(
        Path(config.output),
        tuple(tasks),
        whole("seeds", config.seeds, 1),
        whole("budget", config.budget, 2),
    )
    if plan.budget != Plan.budget and choose("study", config.study, list(STUDIES)) != ["online"]:
        raise UserError(
            f"budget must be {Plan.budget}, the paper's, but for study=online alone; got {plan.budget}"
        )
    return plan.shorten() if flag("quick", config.quick) else plan


def read_records(plan: Plan) -> tuple[Plan, dict[str, str]]:
    """Return the plan with the digests of the measured records, and why some tasks have none."""
    digests = {}
    gaps = {}
    for name in plan.tasks:
        try:
            digests[name] = TASKS[name].digest()
        except DataError as error:
            gaps[name] = str(error).partition(" The download: ")[0]
    return replace(
        plan, records=tuple((name, text) for name, text in digests.items() if text)
    ), gaps


def plan_waves(studies: Sequence[Study], plan: Plan, gaps: Mapping[str, str]) -> list[list[Unit]]:
    """Plan what is computed: preparations, calibrations and the studies; each wave needs those
    before it.
    """
    units = [unit for study in studies for unit in study.units(plan) if unit.task not in gaps]
    prepared = {unit.task for unit in units if STUDIES[unit.study].is_prepared}
    tasks = [name for name in plan.tasks if name in prepared]
    return [
        [
            Unit("preparation", task, seed)
            for task in tasks
            for seed in TASKS[task].seeds(plan.seeds)
        ],
        [Unit("calibration", task) for task in tasks],
        units,
    ]


def compute(waves: Sequence[Sequence[Unit]], plan: Plan, workers: int) -> None:
    """Compute what is not kept yet, and show how far it is.

    Raises
    ------
    Stopped
        After Ctrl-C or the death of a worker, with what is kept.
    sysid.StoreError
        A result that cannot be written.
    """
    everything = [unit for wave in waves for unit in wave]
    try:
        bar = tqdm(
            total=len(everything),
            initial=sum(map(plan.is_kept, everything)),
            disable=None,
            desc="studies",
        )
        with (
            bar,
            doing(f"computing in {workers} processes, each compiles what is not compiled yet"),
        ):
            for _ in execute(waves, plan, workers):
                bar.update()
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        kept = f"{sum(map(plan.is_kept, everything))} of {len(everything)} units are kept in {plan.parts}"
        is_interrupt = isinstance(error, KeyboardInterrupt)
        cause = (
            "Run interrupted."
            if is_interrupt
            else "A worker process died (killed, or out of memory?)."
        )
        raise Stopped(
            f"{cause} {kept}; the same command goes on from there",
            130 if is_interrupt else 1,
        ) from None


def execute(waves: Sequence[Sequence[Unit]], plan: Plan, workers: int) -> Iterator[Unit]:
    """Compute what is not kept yet, wave after wave, in processes of one thread; yield each unit
    when it is done.

    All units of a task and seed are computed by the same process, for studies have streams in
    common. Left early, by Ctrl-C say, the processes are ended: the unit that each was at is
    computed again next time.

    Raises
    ------
    concurrent.futures.process.BrokenProcessPool
        A process died.
    sysid.StoreError
        A result that cannot be written.
    """
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_start_worker
    )  # starts them when needed
    try:
        for wave in waves:
            missing = [unit for unit in wave if not plan.is_kept(unit)]
            missing.sort(
                key=lambda unit: ([*TASKS, ""].index(unit.task), unit.seed),
                reverse=True,
            )  # the longest first
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


def _start_worker() -> None:
    """One thread; Ctrl-C reaches every process of the terminal, and the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    numba.set_num_threads(1)


def compute_unit(unit: Unit, plan: Plan) -> None:
    """Compute a unit and keep it; what is kept already is not computed again."""
    if plan.is_kept(unit):
        return
    compute_one = PREPARATIONS.get(unit.study) or STUDIES[unit.study].compute
    write_part(compute_one(unit, plan), unit, plan)


def compute_units(units: Sequence[Unit], plan: Plan) -> None:
    """Compute and keep some units."""
    for unit in units:
        compute_unit(unit, plan)


def tell(plan: Plan, gaps: Mapping[str, str], workers: int, seconds: float) -> None:
    """Log the gaps, the time and where the report is."""
    for task, reason in gaps.items():
        log.warning(
            "No data for %s, marked as a gap in the tables: %s",
            TASKS[task].title,
            reason,
        )
    if gaps:
        log.warning(
            "To have them, name the folder of the data by the environment variable SYSID_DATA and run again."
        )
    log.info(
        "Took %.0f s with %d workers. Report: %s",
        seconds,
        workers,
        plan.folder / "report.md",
    )
