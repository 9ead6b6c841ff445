"""How a benchmark measures and reports.

It holds the settings, the timing of competitors that take turns, the rows of the table, and the
facts of the machine.
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
Row: TypeAlias = dict[str, Any]  # of the table, as `row` returns it
#: Sizes of a quick run: everything runs, but the times mean nothing.
QUICK: dict[str, Any] = {
    "sizes": (20, 40),
    "budget": 20,
    "repetitions": 2,
    "replacements": 2000,
    "stretch": 20,
    "trajectories": 50,
    "soak_samples": 10_000,
    "rows": 2000,
    "jobs": 8,
    "duration": "10d",
    "sweep_thresholds": (0.1, 0.2),
    "sweep_seeds": 1,
}


@dataclass(frozen=True)
class Plan:
    """Settings of all benchmarks."""

    sizes: tuple[int, ...]  # points
    budget: int  # points
    repetitions: int  # rounds
    replacements: int  # before the accuracy is measured
    soak_samples: int  # of a plant that drifts, through the loop
    rows: int  # of the files that are read
    stretch: int  # samples that `solve_ivp` integrates
    trajectories: int  # of the ensemble
    duration: str  # of the closed loop
    sweep_thresholds: tuple[float, ...]  # K, of the jobs of a sweep
    sweep_seeds: int  # for each of them
    jobs: int  # that do nothing, through each engine
    seed: int
    cold: bool  # whether the start with an empty compile cache is measured

    def rounds(self, size: int) -> int:
        """Return the number of rounds for a dictionary of this size.

        Small dictionaries get more rounds, since a busy machine spoils short times.
        """
        return self.repetitions * min(max(2000 // size, 1), 20)


class Job(NamedTuple):
    """A function that is timed."""

    run: Callable[[], object]
    operations: int = 1  # that one run does
    prepare: Callable[[], object] = lambda: None  # called before each run, not timed


def interleave(jobs: Mapping[Name, Job], repetitions: int) -> dict[Name, np.ndarray]:
    """Time every job once per round, after one round that is not counted.

    The jobs take turns, so that a machine that is busy for a while slows all of them, not one.

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
    """Return the seconds of one call."""
    start = time.perf_counter()
    run(*arguments, **options)
    return time.perf_counter() - start


def resident_memory() -> float:
    """Return the resident memory of this process [MiB]."""
    n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return n_pages * os.sysconf("SC_PAGESIZE") / 2**20


def row(
    case: str,
    value: float,
    unit: str,
    median: float | None = None,
    target: str = "",
    **details: float,
) -> Row:
    """Return one measured number as a row of ``benchmark.json``.

    Parameters
    ----------
    case : str
        What was measured.
    value : float
        Measured number; where times are measured, that of the fastest round.
    unit : str
        Unit of the number.
    median : float, optional
        Median over the rounds.
    target : str, optional
        Bound that the number should keep, such as ``<= 8``.
    **details : float
        Numbers from which it is computed, and others that explain it.
    """
    met = None
    if target:
        sign, _, bound = target.partition(" ")
        met = bool(value <= float(bound)) if sign == "<=" else bool(value >= float(bound))
    return {
        "case": case,
        "value": float(value),
        "unit": unit,
        "median": None if median is None else float(median),
        "target": target or None,
        "met": met,
        "details": {name: float(number) for name, number in details.items()},
    }


def timed(case: str, rounds: np.ndarray, unit: str, **options: Any) -> Row:
    """Return the row of measured times: the smallest and the median of all rounds."""
    return row(case, rounds.min(), unit, median=np.median(rounds), **options)


def ratio(
    case: str,
    seconds: Mapping[str, np.ndarray],
    over: tuple[str, str],
    unit: str,
    **options: Any,
) -> Row:
    """Return the row of the ratio of the times of two competitors.

    Its value is the minimum over the minimum, its median that of the ratios of all rounds.
    """
    first = seconds[over[0]]
    second = seconds[over[1]]
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
    """Return the rows of ``benchmark.json`` as a table of texts.

    Numbers have three digits, and all details of a row share a cell.
    """
    frame = pd.DataFrame(rows).rename(columns={"value": "measured"})
    frame[["measured", "median"]] = frame[["measured", "median"]].astype(float).map(significant)
    frame["met"] = frame["met"].map({True: "yes", False: "NO"})
    frame["details"] = [
        ", ".join(f"{name} {significant(number)}" for name, number in details.items())
        for details in frame["details"]
    ]
    return frame.fillna("")


def machine() -> dict[str, Any]:
    """Return CPU, cores, load, versions and BLAS threads of this machine."""
    made = provenance()
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "versions": json.loads(made["package_versions"]),
        "blas_threads": {name: os.environ.get(name, "not set") for name in THREAD_VARIABLES},
        "source_commit": made.get("source_commit"),
        "time": made["creation_time"],
    }


def _cpu_name() -> str:
    """Return the model name of the CPU, or what Python knows about it."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        names = re.findall(r"^model name\s*:\s*(.*?)\s*$", information.read_text(), re.M)
        if names:
            return str(names[0])
    return platform.processor() or platform.machine()


def describe(facts: dict[str, Any]) -> str:
    """Return the facts of `machine` as one line."""
    versions = ", ".join(
        f"{name} {facts['versions'][name]}" for name in ("python", "numpy", "scipy", "numba")
    )
    threads = ", ".join(f"{name}={value}" for name, value in facts["blas_threads"].items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}; "
        f"{versions}; BLAS threads: {threads}"
    )
