"""Benchmarks of `sysid-identify`: its closed loop, fresh processes, sweeps and their engines."""

import io
import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from experiments.benchmark.harness import (
    Job,
    Plan,
    Row,
    interleave,
    resident_memory,
    row,
    time_once,
    timed,
)
from experiments.cli.build import build
from experiments.cli.compose import compose
from experiments.cli.config import CONF
from experiments.files.cache import Cache
from experiments.identify.run import (
    LearnedOutput,
    prepare,
    read_settings,
    run,
    source_of,
    stream,
)
from experiments.identify.run import identify as identify_output
from experiments.plant.plant import plant_of
from experiments.plant.source import Source
from experiments.sweeps import store
from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.engines import Engine, InProcess, JoblibPool
from experiments.sweeps.slurm_engine import SlurmQueue
from experiments.sweeps.sweep import open_sweep
from experiments.validate.assessment import FREE_RUN_LABEL, assess, plan_cases
from experiments.validate.material import select_records
from sysid import Identification, JointModel, LagWindow
from sysid.beside import n_cores
from sysid.store import write

MAX_COMMAND_ROUNDS = 3  # rounds of whole commands; a plan with fewer repetitions has fewer
MEASURES = ("rmse", "coverage_50", "coverage_95", "window")


class PublishedCase(NamedTuple):
    """A published record, and the error that its model must keep."""

    overrides: tuple[str, ...]  # of sysid-identify
    limits: tuple[float, ...]  # largest RMSE of each test record [unit of the output]


class SimulatedCase(NamedTuple):
    """Two simulated records, and the error that the model of the first must keep on the second."""

    estimation: tuple[str, ...]  # overrides of the simulation of both records
    test: tuple[str, ...]  # further overrides of that of the test record
    identification: str  # override of the identification
    limit: float  # largest RMSE of the test record [unit of the output]


PUBLISHED_CASES: dict[str, PublishedCase] = {
    "cascaded tanks": PublishedCase(("data=cascaded_tanks", "training=free_run"), (0.30,)),
    "cascaded tanks, physics": PublishedCase(("experiment=cascaded_tanks_physics",), (0.22,)),
    "Bouc-Wen": PublishedCase(("data=bouc_wen", "training=free_run"), (9e-6,)),
    "Silverbox, physics": PublishedCase(
        ("data=silverbox", "physics=silverbox"), (2e-4, 5e-4, 5e-4)
    ),
}
SERVO = ("system=servo", "controller=position_loop", "noise.std=0.0002", "duration=30s")
TWICE_THE_AMPLITUDE = ("controller.schedule.levels=[0,0.4,0.1,-0.3,0.2,-0.4,-0.1,0.3]",)  # m
SIMULATED_CASES: dict[str, SimulatedCase] = {
    "Wiener-Hammerstein": SimulatedCase(
        ("system=wiener_hammerstein", "noise.std=0.002", "duration=100000samples"),
        ("duration=20000samples",),
        "training=free_run",
        0.011,
    ),
    "servo, twice the amplitude": SimulatedCase(
        SERVO, TWICE_THE_AMPLITUDE, "training=free_run", 6e-4
    ),
    "servo, twice the amplitude, physics": SimulatedCase(
        SERVO, TWICE_THE_AMPLITUDE, "physics=servo", 6e-4
    ),
}
NO_LINEAR_PART = ("linear_part=none",)
#: Physics of the building whose capacities and resistances are wrong by a fifth.
WRONG_PHYSICS = (
    "physics=building",
    "physics.system.zone_capacity=1.6e6",
    "physics.system.wall_capacity=4.8e7",
    "physics.system.radiator_capacity=1.6e5",
    "physics.system.zone_resistance=0.0024",
    "physics.system.wall_resistance=0.004",
    "physics.system.radiator_resistance=0.0024",
)

#: Functions that make the engine of a sweep in a folder; it has two workers if it has any.
ENGINES: dict[str, Callable[[Path], Engine]] = {
    "in process": InProcess,
    "joblib": partial(JoblibPool, workers=2),
    "dask": partial(DaskCluster, workers=2),
    "slurm, local": partial(SlurmQueue, cluster="local", workers=2, jobs_per_task=50),
    "slurm": partial(SlurmQueue, workers=2, jobs_per_task=50, poll=1),
}

log = logging.getLogger(__name__)


def loop(plan: Plan) -> Iterator[Row]:
    """Time the closed loop of `sysid-identify` after its training, and then its parts alone.

    The rows are the whole loop with identification, and then

    - without estimates: the time of the estimates of the hyper-parameters is subtracted;
    - simulation alone: the same samples are simulated and thrown away;
    - replayed: the samples are read, as in a job of a sweep, and learned with the hyper-parameters
      of the training;
    - `update_many`: the stored samples are learned from the same initial model.
    """
    common = [f"duration={plan.duration}", f"seed={plan.seed}"]
    adaptive = compose("identify", common)
    fixed = compose("identify", [*common, "training=maximum_a_posteriori"])
    rounds = []
    with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
        for _ in range(min(MAX_COMMAND_ROUNDS, plan.repetitions)):
            replayed, *_ = _learn(fixed, source_of(fixed, Cache(Path(folder))))
            source = source_of(adaptive)
            whole, record, identification = _learn(adaptive, source)
            assert identification.adaptation is not None
            estimates = sum(estimate.seconds for estimate in identification.adaptation.estimates)

            model = identification.initial
            assert model is not None
            rows = identification.narx.dataset(source.records())
            online = slice(identification.settings.training.n_initial, len(record))
            regressors = rows["regressor"].values[online]
            inputs = model.scaling.transform(regressors)
            targets = rows["target"].values[online] - model.mean(regressors)
            simulated = time_once(_simulate, adaptive)
            updated = time_once(model.gp.update_many, inputs, targets)
            rounds.append((whole, whole - estimates, simulated, replayed, updated))

    details = {
        "samples": source.n_seen,
        "identified": int(np.isfinite(record["mean"]).sum()),
        "entered": (record["slot"] >= 0).sum(),
    }
    targets_by_case = {
        "simulation and identification": "<= 3",
        "the same without estimates": "",
        "simulation alone": "",
        "replayed": "<= 0.1",
        "update_many": "",
    }
    seconds = dict(zip(targets_by_case, np.array(rounds).T, strict=True))
    fastest_simulation = seconds["simulation alone"].min()
    for case, times in seconds.items():
        yield timed(
            case,
            times,
            "s",
            target=targets_by_case[case],
            **{"over simulation alone": times.min() / fastest_simulation},
            **details,
        )


def _simulate(config: Any) -> None:
    """Simulate all samples of a run, and throw them away."""
    source = source_of(config)
    for samples in (*source.segments(), source.finish()):
        deque(samples, maxlen=0)


def _learn(config: Any, source: Source) -> tuple[float, np.ndarray, Identification]:
    """Run the loop; return its seconds without the training, its record, and what it identified."""
    identification = prepare(read_settings(config), source)
    learned = LearnedOutput(identification, LagWindow(identification.narx))
    start = time.perf_counter()
    stopped = stream(source, [learned])
    if stopped is not None:
        raise stopped
    seconds = time.perf_counter() - start - identification.training_seconds
    return seconds, np.concatenate(learned.records), identification


def startup(plan: Plan) -> Iterator[Row]:
    """Time `sysid-identify` in its own process: its help, and a whole run with all files.

    ``warm``: numba's compile cache is filled, as on every run but the first. The first run begins
    with an empty cache.
    """
    with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
        whole = [
            f"duration={plan.duration}",
            f"seed={plan.seed}",
            f"hydra.run.dir={folder}/run",
        ]
        jobs = {
            "--help": Job(lambda: identify("--help")),
            f"{plan.duration}, warm": Job(lambda: identify(*whole)),
        }
        rounds = interleave(jobs, min(MAX_COMMAND_ROUNDS, plan.repetitions))
        helping, running = rounds.values()
        yield timed("identify --help", helping, "s", target="<= 0.8")
        yield timed(f"identify {plan.duration}, warm", running, "s", target="<= 3.5")
        if plan.cold:
            cold = time_once(identify, *whole, NUMBA_CACHE_DIR=f"{folder}/cache")
            warm = float(running.min())
            yield row(
                "its first run, over a warm one",
                cold / warm,
                "times",
                target="<= 2.5",
                **{"first s": cold},
            )


def free_run(plan: Plan) -> Iterator[Row]:
    """Measure free runs of published and simulated records: errors, coverage, linear models.

    Each model is identified from its estimation record with nothing but the overrides of its case,
    then validated with two initialisation windows and five horizons. A published one that is
    trained for the free run is identified once more with one core. Records that are not there are
    left out. The last row compares the building in its loop beside wrong physics with the building
    without physics, both without a linear part: with one, both are close to the limit.
    """
    for case, published in PUBLISHED_CASES.items():
        overrides = published.overrides
        rows = [*_free_run(case, overrides, published.limits, plan.seed, "<= 20")]
        yield from rows
        if rows and "training=free_run" in overrides and n_cores() > 1:
            config = compose(
                "identify", overrides=["figures=false", f"seed={plan.seed}", *overrides]
            )
            with patch.dict(os.environ, PYTHON_CPU_COUNT="1"):
                seconds = time_once(
                    identify_output, read_settings(config), source_of(config), None, {}
                )
            ratio = seconds / rows[0]["details"]["seconds"]
            yield row(f"{case}: one core, over {n_cores()}", ratio, "times", target=">= 1.7")
    with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
        for number, (case, simulated) in enumerate(SIMULATED_CASES.items()):
            estimation = Path(folder, f"estimation_{number}.nc")
            test = Path(folder, f"test_{number}.nc")
            _write_trajectory(simulated.estimation, plan.seed, estimation)
            _write_trajectory((*simulated.estimation, *simulated.test), plan.seed + 1, test)
            overrides = (
                "data=stored",
                simulated.identification,
                f"data.estimation=['{estimation}']",
                f"data.test=['{test}']",
            )
            yield from _free_run(case, overrides, (simulated.limit,), plan.seed)
    without_physics = _building_error(NO_LINEAR_PART, plan.seed)
    with_wrong_physics = _building_error((*NO_LINEAR_PART, *WRONG_PHYSICS), plan.seed)
    details = {"K": with_wrong_physics, "without K": without_physics}
    yield row(
        "building beside wrong physics, one step",
        with_wrong_physics / without_physics,
        "times",
        target="<= 0.9",
        **details,
    )


def _write_trajectory(overrides: Sequence[str], seed: int, path: Path) -> None:
    """Simulate the plant of a configuration, and write its record."""
    config = compose("identify", overrides=[*overrides])
    plant = plant_of(config)
    record = plant.trajectory(plant.n_samples(config.duration), seed).to_dataset()
    write(record, path, kind="trajectory")


def _building_error(physics: Sequence[str], seed: int) -> float:
    """Return the RMSE [K] of the building one step ahead."""
    config = compose("identify", overrides=["figures=false", f"seed={seed}", *physics])
    found = identify_output(read_settings(config), source_of(config), None, {})
    return found.summary["rmse"]


def _free_run(
    case: str,
    overrides: Sequence[str],
    limits: Sequence[float],
    seed: int,
    target_seconds: str = "",
) -> Iterator[Row]:
    """Identify and validate a record.

    The rows are the error of all test records together, that of each if there are several, and the
    time of the validation.
    """
    config = compose("identify", overrides=["figures=false", f"seed={seed}", *overrides])
    start = time.perf_counter()
    try:
        found = identify_output(read_settings(config), source_of(config), None, {})
    except OSError as reason:
        log.warning("%s is left out: %s", case, reason)
        return
    seconds = time.perf_counter() - start
    model = found.identification.require_model()
    assert found.report is not None
    content = found.report.content
    measured = {f"free_run_{name}": content["free_run"][name] for name in MEASURES}
    measured |= {f"one_step_{name}": content["one_step"][name] for name in MEASURES}
    for name, linear in (found.linear or {}).items():
        measured |= {f"{name}_{key}": linear[key] or np.nan for key in ("rmse", "free_run_rmse")}
    n_lags = {f"lags_of_{name}": len(lags) for name, lags in model.narx.lags.items()}
    target = f"<= {limits[0]}" if len(limits) == 1 else ""
    yield row(
        case,
        measured["free_run_rmse"],
        "RMSE",
        target=target,
        **n_lags,
        seconds=seconds,
        **measured,
    )
    scores = [score for score in content["records"] if score["horizon"] == FREE_RUN_LABEL]
    if scores:
        for score, limit in zip(scores, limits, strict=True):
            yield row(
                f"{case}: {score['record']}",
                score["rmse"],
                "RMSE",
                target=f"<= {limit}",
                **{name: score[name] for name in MEASURES},
            )
    recordings = found.source.recordings()
    propagation = build(compose("validate"), "propagation")
    assert recordings is not None
    material = replace(select_records(recordings), physics=found.source.physics)
    cases = plan_cases([1, 3, 10, 30, 100], [50, 5], 1)
    start = time.perf_counter()
    assessment = assess(JointModel.of(model), material, cases, propagation, seed=seed)
    seconds = time.perf_counter() - start
    output = model.narx.target
    errors = {
        f"{validated.words}, window {validated.window}": score_by_output[output].rmse
        for validated, score_by_output in assessment.scores.items()
    }
    yield row(f"{case}: its validation", seconds, "s", target=target_seconds, **errors)


def identify(*arguments: str, **environment: str) -> None:
    """Run `sysid-identify` in its own process.

    Raises
    ------
    ChildProcessError
        The command failed; the message has what it wrote.
    """
    path = os.pathsep.join(filter(None, [str(CONF.parent), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "experiments.identify", *arguments]
    variables = os.environ | {"PYTHONPATH": path} | environment
    result = subprocess.run(command, capture_output=True, text=True, env=variables)
    if result.returncode != 0:
        raise ChildProcessError(
            f"{' '.join(command)} failed: {(result.stderr or result.stdout).strip()}"
        )


def sweep(plan: Plan) -> Iterator[Row]:
    """Measure the cost of a job in a sweep beyond its work, and the gain of a second worker.

    The jobs identify the building; their work is the same call from Python. A further row has the
    time of a job whose trajectory the cache already holds.
    """
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        folder = Path(name)
        n_rounds = min(MAX_COMMAND_ROUNDS, plan.repetitions)
        seconds = interleave(_direct_and_swept(plan, folder), n_rounds)
        direct = seconds["direct"].min()
        swept = seconds["swept"].min()
        details = {"direct s": direct, "swept s": swept}
        yield row(
            "overhead per job, in process",
            swept - direct,
            "s",
            np.median(seconds["swept"] - seconds["direct"]),
            "<= 0.15",
            **details,
        )
        cached = [[*line, f"cache='{folder}/cache'"] for line in _lines(plan)]
        conduct(folder / "first", cached)
        again = time_once(conduct, folder / "again", cached) / len(cached)
        yield row(
            "a further model of one trajectory, over a job alone",
            again / swept,
            "times",
            target="<= 0.33",
        )

        values = ",".join(map(str, plan.sweep_thresholds))
        line = [
            "-m",
            f"duration={plan.duration}",
            f"insertion.error_threshold={values}",
            f"seed=range({plan.seed},{plan.seed + plan.sweep_seeds})",
        ]
        one_worker = time_once(identify, *line, *_on_processes(folder / "joblib-1", 1))
        two_workers = time_once(identify, *line, *_on_processes(folder / "joblib-2", 2))
    n_jobs = len(plan.sweep_thresholds) * plan.sweep_seeds
    case = f"{n_jobs} jobs, two processes against one"
    details = {"1 s": one_worker, "2 s": two_workers}
    yield row(case, one_worker / two_workers, "times", target=">= 1.7", **details)


def _direct_and_swept(plan: Plan, folder: Path) -> dict[str, Job]:
    """Return two ways to run the same jobs: called from Python, and as a sweep in this process.

    The jobs share nothing.
    """
    lines = [[*line, "cache=null"] for line in _lines(plan)]
    configs = [compose("identify", overrides=line) for line in lines]
    new_folders = (folder / f"{number}" for number in count())

    def direct() -> None:
        log = logging.getLogger("experiments")
        log.setLevel(logging.WARNING)  # in a sweep the lines of a job go to its file
        for config in configs:
            job_folder = next(new_folders)
            job_folder.mkdir()
            run(config, job_folder)
        log.setLevel(logging.NOTSET)

    return {
        "direct": Job(direct, len(lines)),
        "swept": Job(lambda: conduct(next(new_folders), lines), len(lines)),
    }


def _lines(plan: Plan) -> list[list[str]]:
    """Return the overrides of jobs that differ in their threshold only."""
    common = [f"duration={plan.duration}", f"seed={plan.seed}", "outputs=lean"]
    return [[*common, f"insertion.error_threshold={value}"] for value in plan.sweep_thresholds]


def conduct(
    folder: Path,
    lines: Sequence[Sequence[str]],
    engine: Callable[[Path], Engine] = InProcess,
    task: str = "experiments.identify:main",
) -> None:
    """Run a sweep of `sysid-identify`; each job has its line of overrides.

    With another ``task``, that function is called with the configuration of `sysid-identify`.

    Raises
    ------
    ChildProcessError
        A job failed.
    """
    with redirect_stdout(io.StringIO()):
        outcomes = open_sweep("identify", folder, task, engine).conduct(lines)
    errors = [outcome.error for outcome in outcomes if not outcome.done]
    if errors:
        raise ChildProcessError(f"jobs of the sweep failed: {errors[0]}")


def _on_processes(folder: Path, workers: int) -> list[str]:
    """Return the overrides of a sweep on processes, with its results and cache in a folder."""
    return [
        f"hydra.sweep.dir='{folder}/sweep'",
        f"cache='{folder}/cache'",
        "hydra/launcher=joblib",
        f"hydra.launcher.workers={workers}",
    ]


def thresholds(plan: Plan) -> Iterator[Row]:
    """Time the 540 jobs of ``experiment=building_thresholds`` on two processes.

    The time is that from an empty cache to the last result. With ``quick=true`` there are only a
    few jobs.
    """
    with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
        arguments = [
            "-m",
            "experiment=building_thresholds",
            *_on_processes(Path(folder), 2),
        ]
        if not plan.cold:
            arguments += [
                f"duration={plan.duration}",
                "insertion.error_threshold=0.1",
                "acceptance=none",
                "seed=0",
            ]
        seconds = time_once(identify, *arguments)
    yield row("building, two processes", seconds, "s", target="<= 360")


class Usage(NamedTuple):
    """Time and memory that this process and its children have used."""

    wall: float  # ms
    processor: float  # ms, of this process
    children: float  # ms, processor time of the children that have ended
    memory: float  # KiB, resident memory of this process


@dataclass(frozen=True)
class Watched(Engine):
    """An engine that notes the usage when its jobs begin, and at each outcome."""

    make: Callable[[Path], Engine]
    usages: list[Usage]

    def run(self, jobs: Sequence[store.Job]) -> Generator[store.Outcome, None, None]:
        self.usages.append(_read_usage())
        for outcome in self.make(self.folder).run(jobs):
            self.usages.append(_read_usage())
            yield outcome


def jobs(plan: Plan) -> Iterator[Row]:
    """Measure what the driver spends on a job that does nothing, through each engine.

    The driver is the process that composes the jobs, sends them and counts their outcomes. The
    value is its processor time per job while they run. The details [ms] have its time per job of
    the second and of the last quarter of the jobs, which shows whether it grows with their number;
    that of composing before the first job; that of the workers; the wall time per job, and until
    the first outcome; the memory [KiB] that a job takes when it is planned, and in the last
    quarter. Slurm is left out if SLURM_CONF is not set.
    """
    n = plan.jobs
    quarter = plan.jobs // 4
    for name, make in ENGINES.items():
        if name == "slurm" and "SLURM_CONF" not in os.environ:
            continue
        usages = [_read_usage()]
        with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
            lines = [[f"seed={number}", f"cache='{folder}/cache'"] for number in range(n)]
            engine = partial(Watched, make=make, usages=usages)
            conduct(Path(folder, "sweep"), lines, engine, f"{__name__}:{nothing.__name__}")
            usages.append(_read_usage())
        # Usage 0 is before the sweep, 1 at the first job, 2 + k after job k, the last at the end.
        planning = _per_job(usages[0], usages[1], n)
        running = _per_job(usages[1], usages[-1], n)
        second = _per_job(usages[2 + quarter], usages[2 + 2 * quarter], quarter)
        last = _per_job(usages[n + 1 - quarter], usages[n + 1], quarter)
        details: dict[str, Any] = {
            "second quarter": second.processor,
            "last quarter": last.processor,
            "composing": planning.processor,
            "workers": running.children,
            "wall": running.wall,
            "first": usages[2].wall - usages[1].wall,
            "KiB planned": planning.memory,
            "KiB run": last.memory,
        }
        yield row(f"{n} jobs, {name}: driver", running.processor, "ms a job", **details)


def _read_usage() -> Usage:
    """Return what this process and its children have used until now."""
    times = os.times()
    processor = time.process_time()
    wall = time.perf_counter()
    children = times.children_user + times.children_system
    return Usage(1e3 * wall, 1e3 * processor, 1e3 * children, 1024 * resident_memory())


def _per_job(before: Usage, after: Usage, n_jobs: int) -> Usage:
    """Return the usage between two moments per job."""
    return Usage(*((b - a) / n_jobs for a, b in zip(before, after, strict=True)))


def nothing(config: object) -> None:
    """Do nothing: the task of a job that costs no time of its own."""
