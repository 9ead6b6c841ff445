"""One run of `sysid-reproduce`: compute what is missing, combine, write, tell."""

import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.launch import Stopped
from experiments.studies.catalogue import STUDIES, WORK
from experiments.studies.execution import Execution
from experiments.studies.part import kept_tasks
from experiments.studies.plan import QUICK, Plan
from experiments.studies.report import check_folder, write_report, write_study
from experiments.studies.study import Unit
from experiments.studies.tasks.catalogue import TASKS

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen studies into ``config.output``.

    Raises
    ------
    ValueError
        An unknown study or task, numbers that leave nothing to compute.
    sysid.StoreError
        Results of another version or of other settings in the folder; a file that cannot be written.
    Stopped
        After Ctrl-C or the death of a worker; what was computed so far is kept, and the same command goes on.
    """
    begin = time.perf_counter()
    plan, names = plan_of(config), studies_of(config)
    workers = whole("workers", config.workers, 1) if config.workers is not None else len(os.sched_getaffinity(0))
    plan.folder.mkdir(parents=True, exist_ok=True)
    check_folder(plan, STUDIES)
    execution = Execution(plan, workers)
    waves = waves_of(names, plan)
    try:
        execution.run(waves)
    except KeyboardInterrupt:
        raise Stopped(f"Run interrupted. {_kept(waves, execution)}", 130) from None
    except BrokenProcessPool:
        raise Stopped(f"A worker process died (killed, or out of memory?). {_kept(waves, execution)}", 1) from None
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True), "fingerprint": plan.fingerprint}
    for name in (name for name in names if waves_of([name], combined_plan(name, plan))[-1] or STUDIES[name].needs):
        write_study(STUDIES[name], combined_plan(name, plan), execution.gaps, attributes, figures=config.figures)
    write_report([STUDIES[name] for name in STUDIES if (plan.folder / f"{name}.md").is_file()], plan)
    tell(names, execution, time.perf_counter() - begin)


def plan_of(config: DictConfig) -> Plan:
    """Checked settings.

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
    tasks = chosen("tasks", config.tasks, list(TASKS))
    seeds = whole("seeds", config.seeds, 1)
    plan = Plan(Path(config.output), tuple(tasks), seeds)
    return replace(plan.quickened(), seeds=min(seeds, QUICK["seeds"])) if config.quick else plan


def studies_of(config: DictConfig) -> list[str]:
    """Studies to run, those that they read included, in the order of the report."""
    names = set(chosen("study", config.study, list(STUDIES)))
    names |= {needed for name in names for needed in STUDIES[name].needs}
    return [name for name in STUDIES if name in names]


def chosen(key: str, value: object, known: Sequence[str]) -> list[str]:
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


def waves_of(names: Sequence[str], plan: Plan) -> list[list[Unit]]:
    """Units of all studies, after what they share."""
    units = [unit for name in names for unit in STUDIES[name].units(plan)]
    tasks = {unit.task for unit in units}
    shared = replace(plan, tasks=tuple(name for name in plan.tasks if name in tasks))
    return [WORK["preparation"].units(shared), WORK["calibration"].units(shared), units]


def combined_plan(study: str, plan: Plan) -> Plan:
    """The plan with the tasks that earlier runs in the same folder computed: they stay in the tables of the study."""
    tasks = {*plan.tasks, *kept_tasks(STUDIES[study], plan)}
    return replace(plan, tasks=tuple(name for name in TASKS if name in tasks))


def _kept(waves: Sequence[Sequence[Unit]], execution: Execution) -> str:
    n = sum(len(wave) for wave in waves)
    return f"{execution.n_kept} of {n} units are kept in {execution.plan.parts}; the same command goes on from there"


def tell(names: Sequence[str], execution: Execution, seconds: float) -> None:
    """Say what was written and what is missing."""
    for task, reason in execution.gaps.items():
        log.warning("No data for %s, marked as a gap in the tables: %s", TASKS[task].title, reason)
    if execution.gaps:
        log.warning("To have them, name the folder of the data by the environment variable SYSID_DATA and run again.")
    for name in names:
        log.info("%s: %s", STUDIES[name].title, execution.plan.folder / f"{name}.md")
    if execution.plan.quick:
        log.info("quick=true: sizes too small for the numbers to mean anything")
    log.info("Took %.0f s with %d workers. Report: %s", seconds, execution.workers, execution.plan.folder / "report.md")
