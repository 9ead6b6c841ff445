"""Cost of `sysid-identify`: its closed loop and where the time goes, fresh processes, sweeps and
their engines.
"""

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
from typing import Any
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
from experiments.identify.run import identify as identify_output
from experiments.identify.run import prepare, read_settings, run, source_of, stream
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

ROUNDS = 3
MEASURES = ("rmse", "coverage_50", "coverage_95", "window")
#: by case: overrides of sysid-identify, and the largest RMSE of each test record [unit of the output]
RECORDS: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "cascaded tanks": (("data=cascaded_tanks", "training=free_run"), (0.30,)),
    "cascaded tanks, physics": (("experiment=cascaded_tanks_physics",), (0.22,)),
    "Bouc-Wen": (("data=bouc_wen", "training=free_run"), (9e-6,)),
    "Silverbox, physics": (("data=silverbox", "physics=silverbox"), (2e-4, 5e-4, 5e-4)),
}
SERVO = ("system=servo", "controller=position_loop", "noise.std=0.0002", "duration=30s")
TWICE = ("controller.schedule.levels=[0,0.4,0.1,-0.3,0.2,-0.4,-0.1,0.3]",)  # m, the amplitude
#: by case: overrides of a simulation, of that of the test beside, of the identification; the largest RMSE
SIMULATED: dict[str, tuple[tuple[str, ...], tuple[str, ...], str, float]] = {
    "Wiener-Hammerstein": (
        ("system=wiener_hammerstein", "noise.std=0.002", "duration=100000samples"),
        ("duration=20000samples",),
        "training=free_run",
        0.011,
    ),
    "servo, twice the amplitude": (SERVO, TWICE, "training=free_run", 6e-4),
    "servo, twice the amplitude, physics": (SERVO, TWICE, "physics=servo", 6e-4),
}
#: physics of the building whose capacities and resistances are a fifth off
WRONG = (
    *(
        "physics=building",
        "physics.system.zone_capacity=1.6e6",
        "physics.system.wall_capacity=4.8e7",
    ),
    *(
        "physics.system.radiator_capacity=1.6e5",
        "physics.system.zone_resistance=0.0024",
    ),
    *(
        "physics.system.wall_resistance=0.004",
        "physics.system.radiator_resistance=0.0024",
    ),
)

#: by name: what makes an engine for the folder of a sweep, two workers where it has some
ENGINES: dict[str, Callable[[Path], Engine]] = {
    "in process": InProcess,
    "joblib": partial(JoblibPool, workers=2),
    "dask": partial(DaskCluster, workers=2),
    "slurm, local": partial(SlurmQueue, cluster="local", workers=2, jobs_per_task=50),
    "slurm": partial(SlurmQueue, workers=2, jobs_per_task=50, poll=1),
}

log = logging.getLogger(__name__)


def loop(plan: Plan) -> Iterator[Row]:
    """The closed loop of `sysid-identify` with identification, after the training; then its parts
    alone.

    Without estimates: the time of those of the hyper-parameters is subtracted. Simulation alone:
    the same samples, asked for and thrown away. Replayed: they are read, as in a job of a sweep,
    and learned with the hyper-parameters of the training. `update_many`: of the stored samples from
    the same initial model.
    """  # noqa: D401  # its first line stands in benchmark.md
    overrides = [f"duration={plan.duration}", f"seed={plan.seed}"]
    config, once = (
        compose("identify", [*overrides, *own]) for own in ([], ["training=maximum_a_posteriori"])
    )
    rounds = []

    def simulate() -> None:
        alone = source_of(config)
        for samples in (*alone.segments(), alone.finish()):
            deque(samples, maxlen=0)

    def learn(config: Any, source: Source) -> tuple[float, np.ndarray, Identification]:
        identification = prepare(read_settings(config), source)
        records = list[np.ndarray]()
        start = time.perf_counter()
        stopped = stream(source, identification, LagWindow(identification.narx), records)
        if stopped is not None:
            raise stopped
        return (
            time.perf_counter() - start - identification.training_seconds,
            np.concatenate(records),
            identification,
        )

    with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
        for _ in range(min(ROUNDS, plan.repetitions)):
            replayed, *_ = learn(once, source_of(once, Cache(Path(folder))))
            source = source_of(config)
            whole, record, identification = learn(config, source)
            assert identification.adaptation is not None
            estimates = sum(estimate.seconds for estimate in identification.adaptation.estimates)

            model = identification.initial
            assert model is not None
            rows = identification.narx.dataset(source.records())
            online = slice(identification.settings.training.n_initial, len(record))
            regressors = rows["regressor"].values[online]
            data = (
                model.scaling.transform(regressors),
                rows["target"].values[online] - model.mean(regressors),
            )
            parts = (
                time_once(simulate),
                replayed,
                time_once(model.gp.update_many, *data),
            )
            rounds.append((whole, whole - estimates, *parts))

    n_samples = source.n_seen
    n_online = int(np.isfinite(record["mean"]).sum())
    best = np.min(rounds, axis=0)
    seconds = np.array(rounds).T
    details = {
        "samples": n_samples,
        "identified": n_online,
        "entered": (record["slot"] >= 0).sum(),
    }
    cases = {
        "simulation and identification": "<= 3",
        "the same without estimates": "",
        "simulation alone": "",
    }
    cases |= {"replayed": "<= 0.1", "update_many": ""}
    for (case, target), least, times in zip(cases.items(), best, seconds, strict=True):
        yield timed(
            case,
            times,
            "s",
            target=target,
            **{"over simulation alone": least / best[2]},
            **details,
        )


def startup(plan: Plan) -> Iterator[Row]:
    """``sysid-identify`` in a process of its own: its help, and a whole run with all its files.

    Warm: numba's compile cache is filled, as on every run but the first. Cold: the cache is a new
    folder.
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
        rounds = interleave(jobs, min(ROUNDS, plan.repetitions))
        for (case, seconds), most in zip(rounds.items(), (0.8, 3.5), strict=True):
            yield timed(f"identify {case}", seconds, "s", target=f"<= {most}")
        if plan.cold:
            cold = time_once(identify, *whole, NUMBA_CACHE_DIR=f"{folder}/cache")
            warm = float(seconds.min())
            yield row(
                "its first run, over a warm one",
                cold / warm,
                "times",
                target="<= 2.5",
                **{"first s": cold},
            )


def free_run(plan: Plan) -> Iterator[Row]:
    """Models of published and simulated records: error of the free run on the test, coverage,
    linear models beside.

    Each is identified from its estimation record with nothing but these overrides, then validated
    with two windows and five horizons; a published one that is trained for it once more with one
    core. Records that are not there are left out. Last, the building in its loop, with physics that
    is wrong over without.
    """
    for case, (overrides, limits) in RECORDS.items():
        yield from (rows := [*_free_run(case, overrides, limits, plan.seed, "<= 20")])
        if rows and "training=free_run" in overrides and n_cores() > 1:
            config = compose(
                "identify", overrides=["figures=false", f"seed={plan.seed}", *overrides]
            )
            with patch.dict(os.environ, PYTHON_CPU_COUNT="1"):
                alone = time_once(
                    identify_output, read_settings(config), source_of(config), None, {}
                )
            ratio = alone / rows[0]["details"]["seconds"]
            yield row(f"{case}: one core, over {n_cores()}", ratio, "times", target=">= 1.7")
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        for number, (case, (simulated, of_test, own, most)) in enumerate(SIMULATED.items()):
            data = ["data=stored", own]
            for role, overrides in (
                ("estimation", simulated),
                ("test", (*simulated, *of_test)),
            ):
                plant = plant_of(config := compose("identify", overrides=[*overrides]))
                record = plant.trajectory(
                    plant.n_samples(config.duration), plan.seed + (role == "test")
                ).to_dataset()
                path = Path(name, f"{role}_{number}.nc")
                write(record, path, kind="trajectory")
                data.append(f"data.{role}=['{path}']")
            yield from _free_run(case, data, (most,), plan.seed)
    errors = []
    for physics in ((), WRONG):
        config = compose("identify", overrides=["figures=false", f"seed={plan.seed}", *physics])
        errors.append(
            identify_output(read_settings(config), source_of(config), None, {}).summary["rmse"]
        )
    details = {"K": errors[1], "without K": errors[0]}
    yield row(
        "building beside wrong physics, one step",
        errors[1] / errors[0],
        "times",
        target="<= 0.9",
        **details,
    )


def _free_run(
    case: str,
    overrides: Sequence[str],
    limits: Sequence[float],
    seed: int,
    target_seconds: str = "",
) -> Iterator[Row]:
    """Identify and validate: the error of the test, of several test records each, and the time of
    the validation.
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
    lags = {f"lags_of_{name}": len(own) for name, own in model.narx.lags.items()}
    target = f"<= {limits[0]}" if len(limits) == 1 else ""
    yield row(
        case,
        measured["free_run_rmse"],
        "RMSE",
        target=target,
        **lags,
        seconds=seconds,
        **measured,
    )
    each = [one for one in content["records"] if one["horizon"] == FREE_RUN_LABEL]
    for one, most in zip(each, limits, strict=True) if each else ():
        covered = {name: one[name] for name in MEASURES}
        yield row(
            f"{case}: {one['record']}",
            one["rmse"],
            "RMSE",
            target=f"<= {most}",
            **covered,
        )
    recordings = found.source.recordings()
    propagation = build(compose("validate"), "propagation")
    assert recordings is not None
    material = replace(select_records(recordings), physics=found.source.physics)
    cases = plan_cases([1, 3, 10, 30, 100], [50, 5], 1)
    start = time.perf_counter()
    assessment = assess(JointModel.of(model), material, cases, propagation, seed=seed)
    took = time.perf_counter() - start
    name = model.narx.target
    errors = {
        f"{one.words}, window {one.window}": score[name].rmse
        for one, score in assessment.scores.items()
    }
    yield row(f"{case}: its validation", took, "s", target=target_seconds, **errors)


def identify(*arguments: str, **environment: str) -> None:
    """Run the command in a process of its own.

    Raises
    ------
    ChildProcessError
        With what the command wrote, if it failed.
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
    """Jobs of the building in a sweep: cost per job beyond the same work called directly; two
    workers against one.
    """
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        folder = Path(name)
        seconds = interleave(_direct_and_swept(plan, folder), min(ROUNDS, plan.repetitions))
        direct = seconds["direct"].min()
        swept = seconds["swept"].min()
        extra = np.median(seconds["swept"] - seconds["direct"])
        details = {"direct s": direct, "swept s": swept}
        yield row(
            "overhead per job, in process",
            swept - direct,
            "s",
            extra,
            "<= 0.15",
            **details,
        )
        known = [[*line, f"cache='{folder}/cache'"] for line in _lines(plan)]
        conduct(folder / "first", known)
        again = time_once(conduct, folder / "again", known) / len(known)
        yield row(
            "a further model of one trajectory, over a job alone",
            again / swept,
            "times",
            target="<= 0.33",
        )

        values = ",".join(map(str, plan.sweep_thresholds))
        seeds = f"range({plan.seed},{plan.seed + plan.sweep_seeds})"
        line = [
            "-m",
            f"duration={plan.duration}",
            f"insertion.error_threshold={values}",
            f"seed={seeds}",
        ]
        one, two = (
            time_once(identify, *line, *_on_processes(folder / f"joblib-{n}", n)) for n in (1, 2)
        )
    n_jobs = len(plan.sweep_thresholds) * plan.sweep_seeds
    case = f"{n_jobs} jobs, two processes against one"
    details = {"1 s": one, "2 s": two}
    yield row(case, one / two, "times", target=">= 1.7", **details)


def _direct_and_swept(plan: Plan, folder: Path) -> dict[str, Job]:
    """Jobs called one by one from Python, and a sweep of them in this process; nothing is
    shared.
    """
    lines = [[*line, "cache=null"] for line in _lines(plan)]
    configs = [compose("identify", overrides=line) for line in lines]
    new = (folder / f"{number}" for number in count())

    def direct() -> None:
        log = logging.getLogger("experiments")
        log.setLevel(logging.WARNING)  # in a sweep the lines of a job go to its file
        for config in configs:
            own = next(new)
            own.mkdir()
            run(config, own)
        log.setLevel(logging.NOTSET)

    return {
        "direct": Job(direct, len(lines)),
        "swept": Job(lambda: conduct(next(new), lines), len(lines)),
    }


def _lines(plan: Plan) -> list[list[str]]:
    """Return the overrides of jobs that differ in the threshold alone."""
    common = [f"duration={plan.duration}", f"seed={plan.seed}", "outputs=lean"]
    return [[*common, f"insertion.error_threshold={value}"] for value in plan.sweep_thresholds]


def conduct(
    folder: Path,
    lines: Sequence[Sequence[str]],
    engine: Callable[[Path], Engine] = InProcess,
    task: str = "experiments.identify:main",
) -> None:
    """Run a sweep of `sysid-identify`, or of another function with its configuration; a line of
    overrides for each job.

    Raises
    ------
    ChildProcessError
        If a job failed.
    """
    with redirect_stdout(io.StringIO()):
        outcomes = open_sweep("identify", folder, task, engine).conduct(lines)
    if failed := [outcome.error for outcome in outcomes if not outcome.done]:
        raise ChildProcessError(f"jobs of the sweep failed: {failed[0]}")


def _on_processes(folder: Path, workers: int) -> list[str]:
    places = [f"hydra.sweep.dir='{folder}/sweep'", f"cache='{folder}/cache'"]
    return [*places, "hydra/launcher=joblib", f"hydra.launcher.workers={workers}"]


def thresholds(plan: Plan) -> Iterator[Row]:
    """The 540 jobs of ``experiment=building_thresholds`` on two processes, from an empty cache to
    the last result.

    With ``quick=true`` only a few of them.
    """  # noqa: D401  # its first line stands in benchmark.md
    fewer = [
        f"duration={plan.duration}",
        "insertion.error_threshold=0.1",
        "acceptance=none",
        "seed=0",
    ]
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        arguments = [
            "-m",
            "experiment=building_thresholds",
            *_on_processes(Path(name), 2),
        ]
        seconds = time_once(identify, *arguments, *([] if plan.cold else fewer))
    yield row("building, two processes", seconds, "s", target="<= 360")


@dataclass(frozen=True)
class Watched(Engine):
    """An engine, with what this process has used when the jobs begin, and at each outcome."""

    make: Callable[[Path], Engine]
    used: list[np.ndarray]  # as `_used`

    def run(self, jobs: Sequence[store.Job]) -> Generator[store.Outcome, None, None]:
        self.used.append(_used())
        for outcome in self.make(self.folder).run(jobs):
            self.used.append(_used())
            yield outcome


def jobs(plan: Plan) -> Iterator[Row]:
    """Jobs that do nothing, through each engine: what the driver spends on one, and whether that
    grows with them.

    The driver is the process that composes the jobs, sends them and counts their outcomes. Value:
    its processor time per job while they run. The details [ms] have that of the second and of the
    last quarter of the jobs, of composing before the first job, and of the workers; the wall time
    per job, and until the first outcome; the memory [KiB] that a job takes when it is planned, and
    in the last quarter. Slurm is left out where SLURM_CONF names none.
    """
    n = plan.jobs
    quarter = plan.jobs // 4
    for name, make in ENGINES.items():
        if name == "slurm" and "SLURM_CONF" not in os.environ:
            continue
        found = [_used()]
        with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
            lines = [[f"seed={number}", f"cache='{folder}/cache'"] for number in range(n)]
            engine = partial(Watched, make=make, used=found)
            conduct(Path(folder, "sweep"), lines, engine, f"{__name__}:{nothing.__name__}")
            found.append(_used())
        used = np.array(found)
        (_, composing, _, planned), (wall, driver, workers, _) = (
            np.diff(used[[0, 1, -1]], axis=0) / n
        )
        second, last = (
            np.diff(used[[end - quarter, end]], axis=0)[0] / quarter
            for end in (2 + 2 * quarter, n + 1)
        )
        details = {
            "second quarter": second[1],
            "last quarter": last[1],
            "composing": composing,
            "workers": workers,
        }
        details |= {
            "wall": wall,
            "first": used[2, 0] - used[1, 0],
            "KiB planned": planned,
            "KiB run": last[3],
        }
        yield row(f"{n} jobs, {name}: driver", driver, "ms a job", **details)


def _used() -> np.ndarray:
    """Wall time, processor time of this process and of its children that have ended [ms], and its
    memory [KiB].
    """
    times = os.times()
    processor = time.process_time()
    seconds = (
        time.perf_counter(),
        processor,
        times.children_user + times.children_system,
    )
    return np.array([*(1e3 * each for each in seconds), 1024 * resident_memory()])


def nothing(config: object) -> None:
    """Be a job that does nothing."""
