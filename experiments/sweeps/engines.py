"""Engines run the jobs of a sweep: their base class, and the two engines for one machine."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from experiments.cli.ends import end_with, no_interrupt_for_children
from experiments.cli.options import whole
from experiments.sweeps.store import Job, Limits, Outcome
from experiments.sweeps.task import ONE_THREAD, execute
from sysid.beside import n_cores

#: file in the folder of a sweep that lists the tasks that go on if the sweep is killed; only the
#: engine that has submitted the tasks can take them over
TASKS_FILE = ".slurm/tasks.json"
JOBS_PER_WORKER = 2  # jobs queued or running for each joblib worker, so that none has to wait


class EngineStopped(Exception):
    """Raised if an engine cannot go on: running jobs are lost, finished jobs are stored."""


@dataclass(frozen=True)
class Engine(ABC):
    """Runs `experiments.sweeps.task.execute` for every job, in this process or in others."""

    folder: Path  # folder of the sweep

    @property
    def limits(self) -> Limits:
        """Limits of a job that its worker enforces.

        Only engines that survive the end of a worker have limits.
        """
        return Limits(None, None)

    def taken_over(self, folder: Path) -> frozenset[int]:
        """Return the numbers of jobs that workers of an earlier sweep may still be running.

        Other workers must not touch the folders of these jobs.

        Raises
        ------
        EngineStopped
            If another engine has submitted them.
        """
        tasks_file = folder / TASKS_FILE
        if tasks_file.exists():
            raise EngineStopped(
                f"tasks of an earlier sweep in {folder} may still run: "
                "resume with hydra/launcher=slurm, which takes them over, "
                f"or remove {tasks_file.parent} if no task runs"
            )
        return frozenset()

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run all jobs and yield each outcome when it is known, in any order.

        Without jobs, it waits for the jobs that were taken over. A job whose worker was killed is
        tried once more, and then reported as failed. If the generator is closed early, it ends its
        workers, and their running jobs are lost.

        Raises
        ------
        ImportError
            If the library of the engine is not installed.
        EngineStopped
            If the running jobs are lost and the others cannot be run.
        """


@dataclass(frozen=True)
class InProcess(Engine):
    """Runs one job after the other in this process; whatever kills a job kills the sweep."""

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        yield from map(execute, jobs)


@dataclass(frozen=True)
class JoblibPool(Engine):
    """Runs jobs in processes of joblib's loky, each with one thread.

    If one worker is killed, the others end as well.
    """

    workers: int | None = None  # number of processes; None: all cores that this process may use

    def __post_init__(self) -> None:
        whole("hydra.launcher.workers", 1 if self.workers is None else self.workers, 1)

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        try:
            from joblib.externals import loky
        except ImportError:
            raise ImportError(
                'hydra/launcher=joblib needs joblib: pip install -e ".[joblib]"'
            ) from None
        n_workers = min(self.workers or n_cores(), len(jobs))
        _ignore_warnings_of_resource_tracker()
        pool = loky.ProcessPoolExecutor(
            n_workers, initializer=end_with, initargs=(os.getpid(),), env=ONE_THREAD
        )
        waiting = iter(jobs)
        is_complete = False
        try:
            with no_interrupt_for_children():  # the first job starts the workers
                running: set[Future[Outcome]] = {pool.submit(execute, next(waiting))}
            n_further = JOBS_PER_WORKER * n_workers - 1
            running |= {pool.submit(execute, job) for job in islice(waiting, n_further)}
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=_has_failed):  # successful jobs first
                    yield future.result()
                running |= {pool.submit(execute, job) for job in islice(waiting, len(ended))}
            is_complete = True
        except loky.BrokenProcessPool as error:
            raise EngineStopped(
                f"a worker process ended ({_cause_of(error)}), and joblib's pool with it: "
                "the running jobs are lost, and the others have not been run; "
                "the same command resumes the sweep, "
                "and hydra/launcher=dask goes on if a worker is killed"
            ) from None
        finally:
            previous_hook = threading.excepthook
            if not is_complete:
                threading.excepthook = _ignore_thread_error
            try:
                pool.shutdown(kill_workers=not is_complete)
            finally:
                threading.excepthook = previous_hook


def _ignore_warnings_of_resource_tracker() -> None:
    """Silence warnings of loky's tracker about files that an interrupted start has removed."""
    filters = [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker"]
    os.environ["PYTHONWARNINGS"] = ",".join(item for item in filters if item)


def _has_failed(future: Future[Outcome]) -> bool:
    """Return whether a future ended with an exception."""
    return future.exception() is not None


def _cause_of(broken_pool: Exception) -> str:
    """Return the exit codes of the workers from loky's message, or the first line of it."""
    text = str(broken_pool)
    exit_codes = text[text.find("{") : text.find("}") + 1]
    return f"exit codes {exit_codes}" if exit_codes else text.splitlines()[0]


def _ignore_thread_error(failure: object) -> None:
    """Ignore the error of a loky thread that no longer finds the jobs of a killed pool."""
