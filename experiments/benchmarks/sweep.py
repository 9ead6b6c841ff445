"""What a sweep costs beside the work of its jobs, and what more workers gain."""

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target
from experiments.benchmarks.startup import identify
from experiments.benchmarks.timing import Job, interleave, time_once
from experiments.joint_identification import run
from experiments.sweeps.engines import InProcess
from experiments.sweeps.sweep import Sweep

ROUNDS = 3
MANY = (4, 16, 64)  # workers for which the gain is estimated


class Cost(NamedTuple):
    """Seconds per job."""

    work: float  # of the job itself
    overhead: float  # beside it
    conducting: float  # of the process that conducts, for a job that is finished


def sweep(plan: Plan) -> Iterator[Row]:
    """Jobs of the building in a sweep: cost per job beyond the same work called directly; two workers against one.

    The gain of more workers is an estimate: all jobs shared out evenly after the start of a worker, but never faster
    than one process conducts them.
    """
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        folder = Path(name)
        cost, row = overhead(plan, folder)
        yield row
        yield Row("sweep", "conducting, per finished job", cost.conducting, "s")
        seconds = {workers: joblib_seconds(plan, folder, workers) for workers in (1, 2)}
        n = len(jobs_of(plan, plan.sweep_seeds))
        yield Row(
            "sweep",
            f"{n} jobs, two processes against one",
            seconds[1] / seconds[2],
            "times",
            target=Target(1.7, at_least=True),
            details={f"{workers} s": value for workers, value in seconds.items()},
        )
        start = max(seconds[1] - n * (cost.work + cost.overhead), 0.0)
        for workers in MANY:
            gain = _gain(cost, n_jobs=10_000, workers=workers, start=start)
            yield Row("sweep", f"10000 jobs, {workers} processes (estimate)", gain, "times")


def thresholds(plan: Plan) -> Iterator[Row]:
    """The 540 jobs of ``experiment=building_thresholds`` on two processes, from an empty cache to the last result."""
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        arguments = ["-m", "experiment=building_thresholds", *_places(Path(name)), *_processes(2)]
        if not plan.cold:
            arguments += [f"duration={plan.duration}", "insertion.error_threshold=0.1", "acceptance=none", "seed=0"]
        seconds = time_once(Job(lambda: identify(arguments, {})))
    yield Row("thresholds", "building, two processes", seconds, "s", target=Target(360.0))


def jobs_of(plan: Plan, seeds: int) -> list[list[str]]:
    """Overrides of jobs that differ in thresholds and seeds."""
    return [
        [f"duration={plan.duration}", f"insertion.error_threshold={threshold}", f"seed={plan.seed + seed}"]
        for threshold in plan.sweep_thresholds
        for seed in range(seeds)
    ]


def overhead(plan: Plan, folder: Path) -> tuple[Cost, Row]:
    """Jobs called one by one from Python, and the same through a sweep in this process; nothing is shared."""
    lines = [[*overrides, "outputs=lean", "cache=null"] for overrides in jobs_of(plan, 1)]
    configs = [compose("identify", overrides=overrides) for overrides in lines]
    names = (folder / f"{number}" for number in count())

    def direct() -> None:
        told = logging.getLogger("experiments")
        told.setLevel(logging.WARNING)  # what a job says goes to its file in a sweep
        for config in configs:
            own = next(names)
            own.mkdir()
            run(config, own)
        told.setLevel(logging.NOTSET)

    jobs = {"direct": Job(direct, len(lines)), "swept": Job(lambda: conduct(next(names), lines), len(lines))}
    seconds = interleave(jobs, min(ROUNDS, plan.repetitions))
    extra = seconds["swept"] - seconds["direct"]
    value = float(seconds["swept"].min() - seconds["direct"].min())
    details = {f"{name} s": float(times.min()) for name, times in seconds.items()}
    row = Row("sweep", "overhead per job, in process", value, "s", float(np.median(extra)), Target(0.15), details)
    return Cost(float(seconds["direct"].min()), value, conducting_seconds(plan, next(names))), row


def conducting_seconds(plan: Plan, folder: Path) -> float:
    """Time per job that is finished: it is composed, numbered, found and checked."""
    short = ["duration=2d", "training.n_initial=20", "cache=null"]
    lines = [[*short, f"seed={plan.seed + number}"] for number in range(4 * plan.sweep_seeds)]
    conduct(folder, lines)
    return time_once(Job(lambda: conduct(folder, lines), len(lines)))


def conduct(folder: Path, lines: Sequence[Sequence[str]]) -> None:
    """Run a sweep of `sysid-identify` in this process."""
    loader = GlobalHydra.instance().config_loader()
    master = loader.load_configuration(
        "identify", ["hydra.mode=MULTIRUN", f"hydra.sweep.dir='{folder}'"], run_mode=RunMode.MULTIRUN
    )
    with redirect_stdout(io.StringIO()):
        outcomes = Sweep(loader, master, "experiments.identify:main", InProcess).conduct(lines)
    if failed := [outcome.error for outcome in outcomes if not outcome.done]:
        raise ChildProcessError(f"jobs of the sweep failed: {failed[0]}")


def joblib_seconds(plan: Plan, folder: Path, workers: int) -> float:
    """Wall time of a sweep on processes, from its start to its end, with an empty cache."""
    own = folder / f"joblib-{workers}"
    values = ",".join(map(str, plan.sweep_thresholds))
    swept = [f"insertion.error_threshold={values}", f"seed=range({plan.seed},{plan.seed + plan.sweep_seeds})"]
    arguments = ["-m", f"duration={plan.duration}", *swept, *_places(own), *_processes(workers)]
    return time_once(Job(lambda: identify(arguments, {})))


def _places(folder: Path) -> list[str]:
    return [f"hydra.sweep.dir='{folder}/sweep'", f"cache='{folder}/cache'"]


def _processes(workers: int) -> list[str]:
    return ["hydra/launcher=joblib", f"hydra.launcher.workers={workers}"]


def _gain(cost: Cost, *, n_jobs: int, workers: int, start: float) -> float:
    """Estimated ratio of the times of one worker and of many."""
    one = start + n_jobs * (cost.work + cost.overhead)
    return one / (start + n_jobs * max((cost.work + cost.overhead) / workers, cost.conducting))
