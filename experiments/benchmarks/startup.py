"""Wall times of fresh processes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target
from experiments.benchmarks.timing import Job, interleave, time_once

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3


def startup(plan: Plan) -> Iterator[Row]:
    """``sysid-identify`` in a process of its own: its help, and a whole run with all its files.

    Warm: numba's compile cache is filled, as on every run but the first. Cold: the cache is a new folder.
    """
    with TemporaryDirectory(prefix="sysid-benchmark-") as name:
        whole = [f"duration={plan.duration}", f"seed={plan.seed}", f"hydra.run.dir={name}/run"]
        jobs = {
            "--help": Job(lambda: identify(["--help"], {})),
            f"{plan.duration}, warm": Job(lambda: identify(whole, {})),
        }
        targets = {"--help": Target(2.0), f"{plan.duration}, warm": Target(10.0)}
        for case, seconds in interleave(jobs, min(ROUNDS, plan.repetitions)).items():
            yield _row(case, seconds, targets.get(case))
        if plan.cold:
            cold = Job(lambda: identify(whole, {"NUMBA_CACHE_DIR": f"{name}/cache"}))
            yield _row(f"{plan.duration}, cold", np.array([time_once(cold)]), Target(30.0))


def _row(case: str, seconds: np.ndarray, target: Target | None) -> Row:
    return Row("startup", f"identify {case}", seconds.min(), "s", float(np.median(seconds)), target)


def identify(arguments: Sequence[str], environment: dict[str, str]) -> None:
    """Run the command.

    Raises
    ------
    ChildProcessError
        With what the command wrote, if it failed.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "experiments.identify", *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path} | environment
    )
    if result.returncode != 0:
        raise ChildProcessError(f"{' '.join(command)} failed: {(result.stderr or result.stdout).strip()}")
