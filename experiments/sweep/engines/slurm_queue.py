"""Tasks of a Slurm cluster, through submitit."""

import hashlib
import math
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.interrupt import deferred_interrupt
from experiments.sweep.engine import TASKS, Engine, EngineStopped, Limits, checked_workers, limits_of
from experiments.sweep.engines.submission import WARNING_AHEAD, LocalSubmission, SlurmSubmission, Submission
from experiments.sweep.engines.task_book import TaskBook, noted_jobs
from experiments.sweep.guard import GRACE
from experiments.sweep.job import Job, Outcome
from experiments.sweep.worker_process import cores

CLUSTERS = ("slurm", "local")
START = 60.0  # s; a task may take that long to start Python from a slow file system
SLURM_EARLY = 60.0  # s; Slurm sends its signal up to that much earlier than asked


@dataclass(frozen=True)
class SlurmQueue(Engine):
    """Arrays of tasks; each task runs `jobs_per_task` jobs in a process of its own."""

    folder: Path  # of the sweep, seen by all machines
    cluster: str = "slurm"  # or "local": processes of this machine, to try it; what is Slurm's has no effect there
    workers: int | None = None  # tasks at a time; None: as many as Slurm starts (local: all cores)
    jobs_per_task: int = 1
    cpus_per_task: int = 1
    time_limit: float | str | None = None  # of a job
    memory_limit: float | str | None = None  # of a job
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    setup: Sequence[str] = field(default_factory=list)  # lines of shell before the jobs
    additional_parameters: Mapping[str, Any] = field(default_factory=dict)  # of sbatch, name -> value
    array_size: int = 1000  # tasks
    poll: float | None = None  # s between two looks at the queue; None: 5 (local: 0.1)

    def __post_init__(self) -> None:
        if self.cluster not in CLUSTERS:
            raise ValueError(f"hydra.launcher.cluster must be one of {', '.join(CLUSTERS)}, got {self.cluster!r}")
        checked_workers(self.workers)
        for name in ("jobs_per_task", "cpus_per_task", "array_size"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"hydra.launcher.{name} must be a whole number, at least 1, got {value!r}")
        if self.poll is not None and not (type(self.poll) in (int, float) and 0 < self.poll < math.inf):
            raise ValueError(f"hydra.launcher.poll must be a positive number of seconds, got {self.poll!r}")
        if isinstance(self.setup, str) or not isinstance(self.additional_parameters, Mapping):
            raise ValueError("hydra.launcher.setup is a list of lines, additional_parameters a map of sbatch's options")
        _ = self.limits

    @property
    def place(self) -> str:
        """Which queue, and how many tasks at a time."""
        if self.cluster == "local":
            return f"{self._at_a_time()} processes of this machine, through submitit"
        return "Slurm" + (f", {self.workers} tasks at a time" if self.workers else "")

    @property
    def limits(self) -> Limits:
        """Limits that the task itself enforces; those given to Slurm are a bit above."""
        return limits_of(self.time_limit, self.memory_limit)

    def taken_over(self, folder: Path) -> frozenset[int]:
        """Jobs of tasks that were noted as submitted."""
        return noted_jobs(folder / TASKS)

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run the jobs; tasks that an earlier sweep in this folder has left are waited for, not started anew.

        Raises
        ------
        ImportError
            If submitit is not installed.
        EngineStopped
            If there is no Slurm, if it refuses the tasks, or does not answer; tasks that are there go on.
        """
        if not jobs and not (self.folder / TASKS).exists():
            return
        submission = self._submission()
        book = TaskBook(
            submission, self._at_a_time(), self.jobs_per_task, self.array_size, self.poll or submission.poll
        )
        try:
            yield from book.outcomes(jobs)
        except EngineStopped:
            raise
        except BaseException:
            with deferred_interrupt():
                submission.cancel(None, book.tasks)
                book.clear()
            raise
        book.clear()

    def _at_a_time(self) -> int:
        return self.workers or (self.array_size if self.cluster == "slurm" else cores())

    def _submission(self) -> Submission:
        folder = (self.folder / TASKS).parent
        if self.cluster == "local":
            return LocalSubmission(folder, self._minutes())
        name = f"sysid-{hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:8]}"
        memory = self.limits.memory
        parameters = {
            "cpus_per_task": self.cpus_per_task,
            "time": self._minutes(),
            "mem": None if memory is None else f"{math.ceil(1.1 * memory / 2**20) + 200}M",
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "additional_parameters": {"no-requeue": True} | dict(self.additional_parameters),  # retries are ours
        }
        return SlurmSubmission(folder, name, parameters, [str(line) for line in self.setup])

    def _minutes(self) -> int | None:
        """Time of a task that its jobs cannot use up: they are ended before."""
        if (limit := self.limits.time) is None:
            return None
        return math.ceil((self.jobs_per_task * (limit + GRACE) + START + WARNING_AHEAD + SLURM_EARLY) / 60)
