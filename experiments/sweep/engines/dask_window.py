"""The jobs of a sweep on a Dask cluster: a few at a time, so that memory stays bounded and an interrupt is quick."""

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from experiments.sweep.engine import EngineStopped
from experiments.sweep.engines.dask_job import run_job
from experiments.sweep.execution import ATTEMPTS_ALLOWED, DIED_TWICE
from experiments.sweep.job import Job, Outcome
from experiments.sweep.outcome import attempts, kept, outcome_of

PAUSE = 0.2  # s between two looks at the cluster while nothing ends
LOOK = 1.0  # s between two counts of its workers
KILLED_BEFORE_START = 3  # times that Dask may give a job up before it was ever started


class Window:
    """Keeps one job per worker with the cluster, and asks for the outcome of those that have ended.

    Parameters
    ----------
    client : distributed.Client
        Connected.
    most : int or None
        Jobs at a time, at most.
    patience : float
        How long to wait while there is no worker [s].
    driver : int or None
        As in `run_job`.
    """

    def __init__(self, client: Any, *, most: int | None, patience: float, driver: int | None = None) -> None:
        self._client = client
        self._most = most
        self._patience = patience
        self._driver = driver
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._running: dict[str, tuple[Any, Job]] = {}  # future and job, by key
        self._given_up: Counter[int] = Counter()  # by number of the job
        self._submitted = 0
        self._workers = 0
        self._looked = -LOOK
        self._alone_since = time.monotonic()

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Outcomes as they come.

        Raises
        ------
        EngineStopped
            If there is no worker for longer than the patience, the scheduler ends, or a worker cannot run jobs.
        """
        waiting = deque(jobs)
        try:
            while waiting or self._running:
                self._look()
                self._fill(waiting)
                try:
                    key = self._ended.get(timeout=PAUSE)
                except Empty:
                    continue
                future, job = self._running.pop(key)
                self._fill(waiting)  # before the outcome is fetched: no worker waits for that
                if (outcome := self._outcome(future, job)) is None:
                    waiting.append(job)
                else:
                    yield outcome
        finally:
            self._cancel()

    def _fill(self, waiting: deque[Job]) -> None:
        width = self._workers if self._most is None else min(self._most, self._workers)
        while waiting and len(self._running) < width:
            job = waiting.popleft()
            self._submitted += 1
            key = f"sysid-{os.getpid()}-{id(self)}-{job.number}-{self._submitted}"
            future = self._client.submit(run_job, job, self._driver, key=key, pure=False)
            self._running[key] = future, job
            future.add_done_callback(_putter(self._ended))

    def _look(self) -> None:
        """Count the workers, now and then."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        if self._client.status != "running":
            raise _lost()
        try:
            self._workers = len(self._client.nthreads())
        except (OSError, CancelledError):
            raise _lost() from None
        self._looked = time.monotonic()
        if self._workers:
            self._alone_since = self._looked
        elif self._looked - self._alone_since > self._patience:
            raise EngineStopped(
                f"the Dask cluster has had no worker for {self._patience:g} s: start workers (with a nanny, which "
                "replaces those that are killed), or look into their logs; the same command resumes the sweep"
            )

    def _outcome(self, future: Any, job: Job) -> Outcome | None:
        """Outcome of a job that has ended; None if it is to be tried again."""
        from distributed import KilledWorker

        try:
            outcome: Outcome = future.result(timeout=None if self._patience == float("inf") else self._patience)
        except KilledWorker:
            return self._after_death(job)
        except CancelledError:
            raise _lost() from None
        except Exception as error:  # `execute` raises nothing: this comes from before it
            raise EngineStopped(
                f"a worker cannot run the jobs of this sweep ({type(error).__name__}: {error}): install the same "
                "version of sysid and of its packages for the workers, then the same command resumes the sweep"
            ) from None
        return outcome

    def _after_death(self, job: Job) -> Outcome | None:
        """What became of a job that Dask gives up, because its workers were killed.

        Dask counts the deaths of workers that the job was only waiting at, too; the job itself counts its starts.
        """
        folder = Path(job.folder)
        if (content := kept(folder)) is not None:
            return outcome_of(content, job.number)
        self._given_up[job.number] += 1
        started = attempts(folder)
        if started >= ATTEMPTS_ALLOWED or (started and self._given_up[job.number] > KILLED_BEFORE_START):
            return Outcome(job.number, False, error=DIED_TWICE)
        if self._given_up[job.number] > KILLED_BEFORE_START:
            return Outcome(job.number, False, error="the workers that it waited at were killed again and again")
        return None

    def _cancel(self) -> None:
        """Take back what still waits or runs."""
        futures = [future for future, _ in self._running.values()]
        self._running.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)


def _putter(queue: "SimpleQueue[Any]") -> Callable[[Any], None]:
    def put(future: Any) -> None:
        queue.put(future.key)

    return put


def _lost() -> EngineStopped:
    return EngineStopped(
        "the scheduler of the Dask cluster has ended, was restarted, or cannot be reached any more: the jobs in flight "
        "are lost; start it again if it is yours, then the same command resumes the sweep"
    )
