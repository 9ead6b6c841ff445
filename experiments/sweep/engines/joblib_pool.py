"""Processes of this machine, through joblib's loky."""

import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from experiments.sweep.engine import Engine, EngineStopped, checked_workers
from experiments.sweep.execution import execute
from experiments.sweep.job import Job, Outcome
from experiments.sweep.worker_process import ONE_THREAD, cores, end_with, no_interrupt_for_children

AHEAD = 2  # jobs that a worker is given before it asks: none waits for the sweep


@dataclass(frozen=True)
class JoblibPool(Engine):
    """As many processes as asked for, each with one thread; a worker that is killed takes the others with it."""

    folder: Path  # of the sweep
    workers: int | None = None  # processes; None: all cores that this process may use

    def __post_init__(self) -> None:
        checked_workers(self.workers)

    @property
    def place(self) -> str:
        """How many processes."""
        n = self._processes()
        return f"{n} process{'es' if n != 1 else ''} of this machine"

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run the jobs in their order, each in the next process that is free.

        Raises
        ------
        ImportError
            If joblib is not installed.
        EngineStopped
            If a worker was killed.
        """
        if not jobs:
            return
        loky = _loky()
        workers = min(self._processes(), len(jobs))
        pool = loky.ProcessPoolExecutor(
            max_workers=workers, initializer=end_with, initargs=(os.getpid(),), env=ONE_THREAD
        )
        over = False
        try:
            yield from _outcomes(pool, jobs, AHEAD * workers)
            over = True
        except loky.BrokenProcessPool as error:
            raise EngineStopped(
                f"a worker process ended ({_cause(error)}), and joblib's pool with it: the jobs in flight are lost, "
                "the rest has not been run; the same command resumes, hydra/launcher=dask outlives its workers"
            ) from None
        finally:
            pool.shutdown(kill_workers=not over)

    def _processes(self) -> int:
        return self.workers or cores()


def _loky() -> Any:
    try:
        from joblib.externals import loky
    except ImportError:
        raise ImportError("hydra/launcher=joblib needs joblib: pip install 'sysid[joblib]'") from None
    return loky


def _outcomes(pool: Any, jobs: Sequence[Job], ahead: int) -> Iterator[Outcome]:
    """Outcomes as they come, while never more than so many jobs are with the workers."""
    waiting = iter(jobs)
    resource_tracker.ensure_running()  # its start would let Ctrl-C through
    with no_interrupt_for_children():  # the first job starts the workers
        running: set[Future[Outcome]] = {pool.submit(execute, job) for job in islice(waiting, 1)}
    running |= {pool.submit(execute, job) for job in islice(waiting, ahead - 1)}
    while running:
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        good = [future for future in ended if future.exception() is None]
        yield from (future.result() for future in good)
        for future in ended.difference(good):
            future.result()  # raises
        running |= {pool.submit(execute, job) for job in islice(waiting, len(ended))}


def _cause(error: BaseException) -> str:
    """What loky says of the end of its workers, in a few words."""
    text = str(error)
    codes = text[text.find("{") : text.find("}") + 1]
    return f"exit codes {codes}" if codes else text.splitlines()[0]
