"""The role of an engine: it runs the jobs of a sweep somewhere."""

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.options import seconds
from experiments.sweep.job import Job, Outcome


class EngineStopped(Exception):
    """The engine cannot go on: jobs in flight are lost, finished ones are stored."""


@dataclass(frozen=True)
class Limits:
    """What a single job may use; None: anything."""

    time: float | None = None  # s
    memory: int | None = None  # byte


NO_LIMITS = Limits()


#: in the folder of a sweep: what goes on when its sweep is killed, as only the engine that has sent it can tell
TASKS = ".slurm/tasks.json"


class Engine(ABC):
    """Runs `experiments.sweep.execution.execute` for every job, in whatever process."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where and how many at a time, for people: "2 processes of this machine"."""

    @property
    def limits(self) -> Limits:
        """Limits of a job that its worker enforces; only engines that survive the end of a worker have some."""
        return NO_LIMITS

    def taken_over(self, folder: Path) -> frozenset[int]:
        """Numbers of jobs that workers of an earlier sweep in this folder may still be at: nobody else touches them.

        Raises
        ------
        EngineStopped
            If another engine has sent them.
        """
        if (folder / TASKS).exists():
            raise EngineStopped(
                f"tasks of an earlier sweep in {folder} may still run: take hydra/launcher=slurm, which takes them "
                f"over, or remove {(folder / TASKS).parent} if none does"
            )
        return frozenset()

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run all jobs and yield each outcome when it is known, in any order.

        A job whose worker was killed is tried once more, then reported as failed. Closed early, the generator ends
        its workers; what they were at is lost.

        Raises
        ------
        EngineStopped
            If the jobs in flight are lost and the rest cannot be run.
        """


def checked_workers(workers: int | None) -> int | None:
    """Number of workers, None for all there are.

    Raises
    ------
    ValueError
        Anything else.
    """
    if workers is None or (isinstance(workers, int) and not isinstance(workers, bool) and workers >= 1):
        return workers
    raise ValueError(f"hydra.launcher.workers must be a whole number, at least 1, or null, got {workers!r}")


def limits_of(time_limit: float | str | None, memory_limit: float | str | None) -> Limits:
    """Limits as people write them, such as 10min and 2GB; None: none.

    Raises
    ------
    ValueError
        With the option that is wrong.
    """
    return Limits(
        None if time_limit is None else seconds_of(time_limit, "time_limit"),
        None if memory_limit is None else bytes_of(memory_limit, "hydra.launcher.memory_limit"),
    )


def seconds_of(duration: float | str, option: str) -> float:
    """Seconds of a setting of the launcher.

    Raises
    ------
    ValueError
        If it is no duration.
    """
    try:
        return seconds(duration)
    except ValueError:
        raise ValueError(
            f"hydra.launcher.{option} must be a number of seconds, or one with a unit such as 10min, got {duration!r}"
        ) from None


def bytes_of(size: float | str, option: str = "memory_limit") -> int:
    """Bytes of a number of bytes, or of a number with kB, MB, GB, TB or KiB, MiB, GiB, TiB.

    Raises
    ------
    ValueError
        If it is neither, or not positive.

    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of(1000)
    (2000000000, 1610612736, 1000)
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(?:([kKMGT])(i?)B|B)?\s*", str(size))
    try:
        value = float(match[1]) if match else float("nan")
    except ValueError:
        value = float("nan")
    if match and match[2]:
        value *= (1024 if match[3] else 1000) ** ("KMGT".index(match[2].upper()) + 1)
    if not 1 <= value < float("inf"):
        raise ValueError(f"{option} must be a number of bytes, or one with a unit such as 500MB or 2GB, got {size!r}")
    return int(value)
