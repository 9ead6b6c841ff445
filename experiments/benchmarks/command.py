"""Cost of `sysid-identify`: its closed loop and where the time goes, fresh processes, and sweeps."""

import io
import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from experiments.benchmarks.harness import Job, Plan, Row, interleave, row, time_once, timed
from experiments.identification import prepare, run, source_of, stream
from experiments.launch import CONF
from experiments.sweeps.engines import InProcess
from experiments.sweeps.sweep import Sweep
from sysid import LagWindow

ROUNDS = 3


def loop(plan: Plan) -> Iterator[Row]:
    """The closed loop of `sysid-identify` with identification, after the training; then its parts alone.

    Simulation alone: the same samples, asked for and thrown away. Identification alone: `update_many` on the
    stored samples from the same initial model. The rest of the loop is lags, scaling, reports and Python.
    """
    config = compose("identify", overrides=[f"duration={plan.duration}", f"seed={plan.seed}"])
    rounds = []

    def simulate() -> None:
        alone = source_of(config)
        for samples in (*alone.segments(), alone.finish()):
            deque(samples, maxlen=0)

    for _ in range(min(ROUNDS, plan.repetitions)):
        source = source_of(config)
        identification = prepare(config, source)
        records: list[np.ndarray] = []
        start = time.perf_counter()
        stopped = stream(source, identification, LagWindow(identification.narx), records)
        whole = time.perf_counter() - start - identification.training_seconds
        if stopped is not None:
            raise stopped

        record, model = np.concatenate(records), identification.initial
        assert model is not None
        rows = identification.narx.dataset(source.records())
        online = slice(identification.settings.training.n_initial, len(record))
        regressors = rows["regressor"].values[online]
        data = model.scaling.transform(regressors), rows["target"].values[online] - model.mean(regressors)
        rounds.append((whole, time_once(simulate), time_once(model.gp.update_many, *data)))

    n_samples, n_online = source.n_seen, int(np.isfinite(record["mean"]).sum())
    best, seconds = np.min(rounds, axis=0), np.array(rounds).T
    details = {"samples": n_samples, "identified": n_online, "entered": (record["slot"] >= 0).sum()}
    rate = {"samples/s": n_samples / best[0], "over simulation alone": best[0] / best[1]}
    yield timed("simulation and identification", seconds[0], "s", target="<= 3", **details, **rate)
    for i, case, n in ((1, "simulation alone", n_samples), (2, "identification alone (update_many)", n_online)):
        rates = {"samples/s": n / best[i], "fraction of the loop": best[i] / best[0]}
        yield timed(case, seconds[i], "s", samples=n, **rates)


def startup(plan: Plan) -> Iterator[Row]:
    """``sysid-identify`` in a process of its own: its help, and a whole run with all its files.

    Warm: numba's compile cache is filled, as on every run but the first. Cold: the cache is a new folder.
    """
    with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
        whole = [f"duration={plan.duration}", f"seed={plan.seed}", f"hydra.run.dir={folder}/run"]
        jobs = {"--help": Job(lambda: identify("--help")), f"{plan.duration}, warm": Job(lambda: identify(*whole))}
        rounds = interleave(jobs, min(ROUNDS, plan.repetitions))
        for (case, seconds), most in zip(rounds.items(), (0.8, 3.5), strict=True):
            yield timed(f"identify {case}", seconds, "s", target=f"<= {most}")
        if plan.cold:
            cold, warm = time_once(identify, *whole, NUMBA_CACHE_DIR=f"{folder}/cache"), float(seconds.min())
            yield row("its first run, over a warm one", cold / warm, "times", target="<= 2.5", **{"first s": cold})


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
        raise ChildProcessError(f"{' '.join(command)} failed: {(result.stderr or result.stdout).strip()}")


def sweep(plan: Plan) -> Iterator[Row]:
    """Jobs of the building in a sweep: cost per job beyond the same work called directly; two workers against one."""
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        folder = Path(name)
        seconds = interleave(_direct_and_swept(plan, folder), min(ROUNDS, plan.repetitions))
        direct, swept = seconds["direct"].min(), seconds["swept"].min()
        extra, details = np.median(seconds["swept"] - seconds["direct"]), {"direct s": direct, "swept s": swept}
        yield row("overhead per job, in process", swept - direct, "s", extra, "<= 0.15", **details)
        known = [[*line, f"cache='{folder}/cache'"] for line in _lines(plan)]
        conduct(folder / "first", known)
        again = time_once(conduct, folder / "again", known) / len(known)
        yield row("a further model of one trajectory, over a job alone", again / swept, "times", target="<= 0.33")

        values = ",".join(map(str, plan.sweep_thresholds))
        seeds = f"range({plan.seed},{plan.seed + plan.sweep_seeds})"
        line = ["-m", f"duration={plan.duration}", f"insertion.error_threshold={values}", f"seed={seeds}"]
        one, two = (time_once(identify, *line, *_on_processes(folder / f"joblib-{n}", n)) for n in (1, 2))
    n_jobs = len(plan.sweep_thresholds) * plan.sweep_seeds
    case, details = f"{n_jobs} jobs, two processes against one", {"1 s": one, "2 s": two}
    yield row(case, one / two, "times", target=">= 1.7", **details)


def _direct_and_swept(plan: Plan, folder: Path) -> dict[str, Job]:
    """Jobs called one by one from Python, and a sweep of them in this process; nothing is shared."""
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

    return {"direct": Job(direct, len(lines)), "swept": Job(lambda: conduct(next(new), lines), len(lines))}


def _lines(plan: Plan) -> list[list[str]]:
    """Overrides of jobs that differ in the threshold alone."""
    common = [f"duration={plan.duration}", f"seed={plan.seed}", "outputs=lean"]
    return [[*common, f"insertion.error_threshold={value}"] for value in plan.sweep_thresholds]


def conduct(folder: Path, lines: Sequence[Sequence[str]]) -> None:
    """Run a sweep of `sysid-identify` in this process; one line of overrides for each job.

    Raises
    ------
    ChildProcessError
        If a job failed.
    """
    loader = GlobalHydra.instance().config_loader()
    overrides = ["hydra.mode=MULTIRUN", f"hydra.sweep.dir='{folder}'"]
    master = loader.load_configuration("identify", overrides, run_mode=RunMode.MULTIRUN)
    with redirect_stdout(io.StringIO()):
        outcomes = Sweep(loader, master, "experiments.identify:main", InProcess).conduct(lines)
    if failed := [outcome.error for outcome in outcomes if not outcome.done]:
        raise ChildProcessError(f"jobs of the sweep failed: {failed[0]}")


def _on_processes(folder: Path, workers: int) -> list[str]:
    places = [f"hydra.sweep.dir='{folder}/sweep'", f"cache='{folder}/cache'"]
    return [*places, "hydra/launcher=joblib", f"hydra.launcher.workers={workers}"]


def thresholds(plan: Plan) -> Iterator[Row]:
    """The 540 jobs of ``experiment=building_thresholds`` on two processes, from an empty cache to the last result."""
    fewer = [f"duration={plan.duration}", "insertion.error_threshold=0.1", "acceptance=none", "seed=0"]
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        arguments = ["-m", "experiment=building_thresholds", *_on_processes(Path(name), 2)]
        seconds = time_once(identify, *arguments, *([] if plan.cold else fewer))
    yield row("building, two processes", seconds, "s", target="<= 360")
