"""How a benchmark measures and reports: the settings, competitors that take turns, rows of the
table, the machine.
"""

import json
import os
import platform
import re
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from experiments import THREAD_VARIABLES
from experiments.drawing.tables import significant
from sysid.store import provenance

Name = TypeVar("Name", bound=Hashable)
Row: TypeAlias = dict[str, Any]  # of the table, as `row` makes it
#: sizes with which the times mean nothing, but everything runs
QUICK: dict[str, Any] = {
    **{
        "sizes": (20, 40),
        "budget": 20,
        "repetitions": 2,
        "replacements": 2000,
        "stretch": 20,
        "trajectories": 50,
    },
    **{"soak_samples": 10_000, "jobs": 8},
    **{"duration": "10d", "sweep_thresholds": (0.1, 0.2), "sweep_seeds": 1},
}


@dataclass(frozen=True)
class Plan:
    """Settings of all benchmarks."""

    sizes: tuple[int, ...]  # points
    budget: int  # points
    repetitions: int
    replacements: int
    soak_samples: int  # through the loop of a plant that drifts
    stretch: int  # samples that `solve_ivp` integrates
    trajectories: int  # of the ensemble
    duration: str  # of the closed loop
    sweep_thresholds: tuple[float, ...]  # K, of the jobs of a sweep
    sweep_seeds: int  # for each of them
    jobs: int  # that do nothing, through each engine
    seed: int
    cold: bool  # whether the start with an empty compile cache is measured

    def rounds(self, size: int) -> int:
        """Choose the rounds for a dictionary of this size.

        Short ones get more, since a busy machine spoils their times.
        """
        return self.repetitions * min(max(2000 // size, 1), 20)


class Job(NamedTuple):
    """Something to be timed."""

    run: Callable[[], object]
    operations: int = 1  # that one run does
    prepare: Callable[[], object] = lambda: None  # before each run, not timed


def interleave(jobs: Mapping[Name, Job], repetitions: int) -> dict[Name, np.ndarray]:
    """Time every job once per round, after one round that is not counted.

    A machine that is busy for a while then slows all competitors, not one of them.

    Returns
    -------
    dict of numpy.ndarray
        Seconds per operation (repetitions,) of every job.
    """
    seconds = np.empty((1 + repetitions, len(jobs)))
    for times in seconds:
        for i, job in enumerate(jobs.values()):
            job.prepare()
            times[i] = time_once(job.run) / job.operations
    return dict(zip(jobs, seconds[1:].T, strict=True))


def time_once(run: Callable[..., object], *arguments: Any, **options: Any) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run(*arguments, **options)
    return time.perf_counter() - start


def resident_memory() -> float:
    """Resident memory of this process [MiB]."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def row(
    case: str,
    value: float,
    unit: str,
    median: float | None = None,
    target: str = "",
    **details: float,
) -> Row:
    """One measured number as it stands in ``benchmark.json``.

    Parameters
    ----------
    case : str
        What was measured.
    value : float
        Number of the fastest round, where times are measured.
    unit : str
    median : float, optional
        Median over the rounds.
    target : str, optional
        Bound that the number should keep, such as ``<= 8``.
    **details : float
        What the number is made of.
    """
    sign, _, bound = target.partition(" ")
    return {
        "case": case,
        "value": float(value),
        "unit": unit,
        "median": None if median is None else float(median),
        "target": target or None,
        "met": bool(value <= float(bound) if sign == "<=" else value >= float(bound))
        if target
        else None,
        "details": {name: float(number) for name, number in details.items()},
    }


def timed(case: str, rounds: np.ndarray, unit: str, **options: Any) -> Row:
    """Row of the time of every round, in this unit: the least, and the median."""
    return row(case, rounds.min(), unit, median=np.median(rounds), **options)


def ratio(
    case: str,
    seconds: Mapping[str, np.ndarray],
    over: tuple[str, str],
    unit: str,
    **options: Any,
) -> Row:
    """Row of the ratio of two competitors: minimum over minimum, and the median of the rounds'
    ratios.
    """
    first, second = (seconds[name] for name in over)
    times = {f"{name} us": 1e6 * seconds[name].min() for name in over}
    return row(
        case,
        first.min() / second.min(),
        unit,
        median=np.median(first / second),
        **times,
        **options,
    )


def to_frame(rows: list[Row]) -> pd.DataFrame:
    """Rows of ``benchmark.json`` as texts for a table: numbers to three digits, all details in one
    cell.
    """
    frame = pd.DataFrame(rows).rename(columns={"value": "measured"})
    frame[["measured", "median"]] = frame[["measured", "median"]].astype(float).map(significant)
    frame["met"] = frame["met"].map({True: "yes", False: "NO"})
    frame["details"] = [
        ", ".join(f"{name} {significant(x)}" for name, x in of.items()) for of in frame["details"]
    ]
    return frame.fillna("")


def machine() -> dict[str, Any]:
    """CPU, cores, load, versions and BLAS threads."""
    made = provenance()
    information = Path("/proc/cpuinfo")
    names = (
        re.findall(r"^model name\s*:\s*(.*?)\s*$", information.read_text(), re.M)
        if information.is_file()
        else []
    )
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "versions": json.loads(made["package_versions"]),
        "blas_threads": {name: os.environ.get(name, "not set") for name in THREAD_VARIABLES},
        "source_commit": made.get("source_commit"),
        "time": made["creation_time"],
    }


def describe(facts: dict[str, Any]) -> str:
    """Facts of `machine` in one line."""
    versions = ", ".join(
        f"{name} {facts['versions'][name]}" for name in ("python", "numpy", "scipy", "numba")
    )
    threads = ", ".join(f"{name}={value}" for name, value in facts["blas_threads"].items())
    return f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}; {versions}; BLAS threads: {threads}"
