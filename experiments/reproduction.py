"""One run of `sysid-reproduce`: compute what is missing, combine, write, tell."""

import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from experiments.launch import Stopped
from experiments.studies.execution import Job, execute
from experiments.studies.report import STUDIES, write_report, write_study
from experiments.studies.study import STREAM_STUDIES, Plan, Unit
from experiments.studies.tasks import TASKS
from sysid import DataError

log = logging.getLogger(__name__)


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
    plan, names = make_plan(config), choose_studies(config)
    workers = whole("workers", config.workers, 1) if config.workers is not None else len(os.sched_getaffinity(0))
    plan.folder.mkdir(parents=True, exist_ok=True)
    plan, gaps = read_records(plan)
    others = sorted(path.name for path in (plan.folder / "parts").glob("*") if path != plan.parts)
    if others and not plan.parts.is_dir():
        log.info("Results of another version, or of other settings, are in %s: all is computed again", plan.folder)
    units = [unit for name in names for unit in STUDIES[name].units(plan) if unit.task not in gaps]
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
    except KeyboardInterrupt:
        raise Stopped(f"Run interrupted. {_count_kept(jobs, plan)}", 130) from None
    except BrokenProcessPool:
        raise Stopped(f"A worker process died (killed, or out of memory?). {_count_kept(jobs, plan)}", 1) from None
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True)}
    for name in names:
        whole_plan = add_kept_tasks(name, plan)
        if STUDIES[name].units(whole_plan) or STUDIES[name].needs:
            write_study(STUDIES[name], whole_plan, gaps, attributes, figures=config.figures)
            log.info("%s: %s", STUDIES[name].title, plan.folder / f"{name}.md")
    write_report(list(STUDIES), plan)
    _tell(plan, gaps)
    log.info("Took %.0f s with %d workers. Report: %s", time.perf_counter() - begin, workers, plan.folder / "report.md")


def make_plan(config: DictConfig) -> Plan:
    """Check the settings.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    for key in ("figures", "quick"):
        if not isinstance(config[key], bool):
            raise ValueError(f"{key} must be true or false, got {config[key]!r}")
    if not isinstance(config.output, str) or not config.output:
        raise ValueError(f"output must be the name of a folder, got {config.output!r}")
    tasks = choose("tasks", config.tasks, list(TASKS))
    plan = Plan(Path(config.output), tuple(tasks), whole("seeds", config.seeds, 1))
    return plan.shorten() if config.quick else plan


def choose_studies(config: DictConfig) -> list[str]:
    """Studies to run, those that they read included, in the order of the report."""
    names = set(choose("study", config.study, list(STUDIES)))
    names |= {needed for name in names for needed in STUDIES[name].needs}
    return [name for name in STUDIES if name in names]


def choose(key: str, value: object, known: Sequence[str]) -> list[str]:
    """Names that a configuration lists, in the order of those known; ``all`` stands for all.

    Raises
    ------
    ValueError
        A name that does not exist, with the nearest that does, or none at all.
    """
    given = OmegaConf.to_object(value) if OmegaConf.is_list(value) else value
    names = given if isinstance(given, list) else [given]
    if names == ["all"]:
        return list(known)
    unknown = [str(name) for name in names if name not in known]
    if unknown or not names:
        near = get_close_matches(unknown[0], known, n=1) if unknown else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        expected = f"{key} must be all, or some of {', '.join(known)}"
        raise ValueError(f"{expected}, got {', '.join(unknown) or 'none'}{hint}")
    return [name for name in known if name in names]


def whole(key: str, value: object, least: int) -> int:
    """Whole number of a configuration."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{key} must be a whole number of at least {least}, got {value!r}")
    return value


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
    shared: dict[tuple[str, int], list[Unit]] = {}
    for unit in units:
        if unit.study in STREAM_STUDIES:
            shared.setdefault((unit.task, unit.seed), []).append(unit)
    return [*map(tuple, shared.values()), *((unit,) for unit in units if unit.study not in STREAM_STUDIES)]


def weigh(job: Job) -> float:
    """About how long a job takes [s]: for the progress bar, and to begin with what takes longest."""
    return sum(
        (STUDIES[unit.study].weight if unit.study in STUDIES else 0.3) * (TASKS[unit.task].weight if unit.task else 1.0)
        for unit in job
    )


def add_kept_tasks(study: str, plan: Plan) -> Plan:
    """The plan with the tasks that earlier runs in the same folder computed: they stay in the tables of the study."""
    found = dict.fromkeys(plan.tasks, "")
    for task in (name for name in TASKS if name in STUDIES[study].tasks and name not in found):
        if not any((plan.parts / study).glob(f"{task}-*")):
            continue
        with suppress(DataError):  # its records are not there any more
            records = TASKS[task].digest()
            alone = replace(plan.select([task]), records=((task, records),) if records else ())
            units = STUDIES[study].units(alone)
            if units and all(map(alone.is_kept, units)):
                found[task] = records
    digests = dict(plan.records) | {task: text for task, text in found.items() if text}
    return replace(plan.select([name for name in TASKS if name in found]), records=tuple(digests.items()))


def _count_kept(jobs: Sequence[Job], plan: Plan) -> str:
    units = [unit for job in jobs for unit in job]
    n = sum(map(plan.is_kept, units))
    return f"{n} of {len(units)} units are kept in {plan.parts}; the same command goes on from there"


def _tell(plan: Plan, gaps: dict[str, str]) -> None:
    """Say what was written and what is missing."""
    for task, reason in gaps.items():
        log.warning("No data for %s, marked as a gap in the tables: %s", TASKS[task].title, reason)
    if gaps:
        log.warning("To have them, name the folder of the data by the environment variable SYSID_DATA and run again.")
    if plan.quick:
        log.info("quick=true: sizes too small for the numbers to mean anything")
