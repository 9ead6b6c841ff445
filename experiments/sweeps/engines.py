"""Where the jobs of a sweep run: the role of an engine, and the two engines of this machine
alone.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from experiments.cli.ends import no_interrupt_for_children
from experiments.cli.options import whole
from experiments.sweeps.store import Job, Limits, Outcome
from experiments.sweeps.task import ONE_THREAD, end_with, execute
from sysid.beside import n_cores

#: in the folder of a sweep: what goes on when its sweep is killed, as only the engine that has sent it can tell
TASKS = ".slurm/tasks.json"
AHEAD = 2  # jobs that a worker of joblib is given before it asks: none waits for the sweep


class EngineStopped(Exception):
    """The engine cannot go on: jobs in flight are lost, finished ones are stored."""


@dataclass(frozen=True)
class Engine(ABC):
    """Runs `experiments.sweeps.task.execute` for every job, in whatever process."""

    folder: Path  # of the sweep

    @property
    def limits(self) -> Limits:
        """Limits of a job that its worker enforces; only engines that survive the end of a worker
        have some.
        """
        return Limits(None, None)

    def taken_over(self, folder: Path) -> frozenset[int]:
        """Numbers of jobs that workers of an earlier sweep in this folder may still be at: nobody
        else touches them.

        Raises
        ------
        EngineStopped
            If another engine has sent them.
        """
        if (folder / TASKS).exists():
            advice = f"take hydra/launcher=slurm, which takes them over, or remove {(folder / TASKS).parent} if none does"
            raise EngineStopped(f"tasks of an earlier sweep in {folder} may still run: {advice}")
        return frozenset()

    @abstractmethod
    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run all jobs and yield each outcome when it is known, in any order; without jobs, wait
        for what goes on.

        A job whose worker was killed is tried once more, then reported as failed. Closed early, the
        generator ends its workers; what they were at is lost.

        Raises
        ------
        ImportError
            If the library of the engine is not installed.
        EngineStopped
            If the jobs in flight are lost and the rest cannot be run.
        """


@dataclass(frozen=True)
class InProcess(Engine):
    """One job after the other, in this process: what kills a job kills the sweep."""

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        yield from map(execute, jobs)


@dataclass(frozen=True)
class JoblibPool(Engine):
    """Processes of joblib's loky, each with one thread; a worker that is killed takes the others
    with it.
    """

    workers: int | None = None  # processes; None: all cores that this process may use

    def __post_init__(self) -> None:
        whole("hydra.launcher.workers", 1 if self.workers is None else self.workers, 1)

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        try:
            from joblib.externals import loky
        except ImportError:
            raise ImportError(
                'hydra/launcher=joblib needs joblib: pip install -e ".[joblib]"'
            ) from None
        workers = min(self.workers or n_cores(), len(jobs))
        # an interrupted start has removed what loky's tracker wants to remove
        quiet = "ignore:resource_tracker"
        os.environ["PYTHONWARNINGS"] = ",".join(
            filter(None, (os.environ.get("PYTHONWARNINGS"), quiet))
        )
        pool = loky.ProcessPoolExecutor(
            workers, initializer=end_with, initargs=(os.getpid(),), env=ONE_THREAD
        )
        waiting = iter(jobs)
        over = False
        try:
            with no_interrupt_for_children():  # the first job starts the workers
                running: set[Future[Outcome]] = {pool.submit(execute, next(waiting))}
            running |= {pool.submit(execute, job) for job in islice(waiting, AHEAD * workers - 1)}
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in sorted(
                    ended, key=lambda one: one.exception() is not None
                ):  # what has ended well first
                    yield future.result()
                running |= {pool.submit(execute, job) for job in islice(waiting, len(ended))}
            over = True
        except loky.BrokenProcessPool as error:
            text = str(error)
            codes = text[text.find("{") : text.find("}") + 1]
            cause = f"exit codes {codes}" if codes else text.splitlines()[0]
            raise EngineStopped(
                f"a worker process ended ({cause}), and joblib's pool with it: the jobs in flight are lost, "
                "the rest has not been run; the same command resumes, hydra/launcher=dask outlives its workers"
            ) from None
        finally:
            tell = threading.excepthook
            threading.excepthook = threading.excepthook if over else _say_nothing
            try:
                pool.shutdown(kill_workers=not over)
            finally:
                threading.excepthook = tell


def _say_nothing(failure: object) -> None:
    """Take what a thread of loky says that misses the jobs of a pool which is killed."""
