"""A Dask cluster: processes of this machine, a scheduler that runs, or a batch system.

A few jobs at a time are with the cluster, so that memory stays bounded and an interrupt is quick.
"""

import logging
import os
import time
import warnings
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Any

from experiments.build import build_one
from experiments.launch import deferred_interrupt
from experiments.sweeps.engines import Engine, EngineStopped, check_workers, count_cores
from experiments.sweeps.limits import Limits, limits_of, seconds_of
from experiments.sweeps.store import Outcome, count_attempts, outcome_in
from experiments.sweeps.task import (
    ATTEMPTS_ALLOWED,
    DIED_TWICE,
    ONE_THREAD,
    Job,
    end_with,
    execute,
    no_interrupt_for_children,
)

CONNECTING = 15.0  # s until a scheduler has to answer
ENDING = 10.0  # s that the end of a cluster may take
PAUSE = 0.2  # s between two looks at the cluster while nothing ends
LOOK = 1.0  # s between two counts of its workers
KILLED_BEFORE_START = 3  # times that Dask may give a job up before it was ever started
SPARE = 1.25  # a nanny kills its worker at that many times the memory limit: the job itself ends, and tells, before
LOOPBACK = "127.0.0.1:0"
#: of Dask: its workers compute for long without a word, keep their data, and are silent
SETTINGS = {
    "distributed.scheduler.worker-ttl": None,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 1.0,
    "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "critical",
}


@dataclass(frozen=True)
class DaskCluster(Engine):
    """Workers of one thread each; one that is killed costs the job that it runs one of its two attempts."""

    folder: Path  # of the sweep
    workers: int | None = None  # processes; of a running cluster: jobs at a time at most; None: all there are
    address: str | None = None  # of a scheduler, or path of its scheduler file; None: a cluster is started
    cluster: Mapping[str, Any] | None = None  # `_target_` and settings of a cluster class; None: this machine
    memory_limit: str | float | None = None  # of the process of a job
    time_limit: str | float | None = None  # of a job
    patience: str | float | None = "5min"  # how long to wait while there is no worker; None: for ever

    def __post_init__(self) -> None:
        check_workers(self.workers)
        if self.address is not None and self.cluster is not None:
            raise ValueError("hydra.launcher.address and hydra.launcher.cluster exclude each other: give one of them")
        if self.address is not None and ":" not in self.address and not Path(self.address).is_file():
            raise ValueError(
                f"hydra.launcher.address must be that of a scheduler, such as tcp://host:8786, or the path of its "
                f"scheduler file, got {self.address!r}"
            )
        if self.cluster is not None and (self.workers is None or "_target_" not in self.cluster):
            raise ValueError(
                "hydra.launcher.cluster needs a _target_, such as dask_jobqueue.SLURMCluster, and a number of workers"
            )
        _ = self.limits, self._patience

    @property
    def place(self) -> str:
        if self.address is not None:
            most = "" if self.workers is None else f", {self.workers} jobs at a time"
            return f"the Dask cluster at {self.address}{most}"
        if self.cluster is not None:
            return f"{self.workers} workers of {self.cluster['_target_']}"
        n = self.workers or count_cores()
        return f"a Dask cluster of {n} process{'es' if n > 1 else ''} of this machine"

    @property
    def limits(self) -> Limits:
        return limits_of(self.time_limit, self.memory_limit)

    @property
    def _patience(self) -> float:
        return inf if self.patience is None else seconds_of(self.patience, "patience")

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run jobs as there are workers; a cluster that was started is ended, another one runs on.

        Raises
        ------
        ImportError
            If Dask is not installed.
        ValueError
            If the cluster class refuses its settings.
        EngineStopped
            If no scheduler answers, it ends, or there is no worker for longer than the patience.
        """
        if not jobs:
            return
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ImportError("hydra/launcher=dask needs Dask: pip install 'sysid[dask]'") from None
        here = self.address is None and self.cluster is None
        most = inf if self.address is None or self.workers is None else self.workers
        with _quiet(), self._connected(len(jobs)) as client:
            _check_workers(client)
            yield from Window(client, most, self._patience, os.getpid() if here else None).outcomes(jobs)

    def _connected(self, n_jobs: int) -> AbstractContextManager[Any]:
        if self.address is not None:
            return _running(self.address)
        if self.cluster is not None:
            return _built(self.cluster, self.workers or count_cores())
        return _local(min(self.workers or count_cores(), n_jobs), self.limits.memory)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Dask tells about workers that come and go, which the sweep tells; one thread for all it starts.

    Not of numba here, which refuses a change while it runs: the workers get that later.
    """
    noisy = [name for name in logging.root.manager.loggerDict if name.startswith("distributed.")]
    names = ("distributed", "tornado", "asyncio", *noisy)  # these two tell of callbacks that Ctrl-C cut off
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    environment = dict(os.environ)
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    os.environ.update({name: value for name, value in ONE_THREAD.items() if not name.startswith("NUMBA")})
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
        for name in set(os.environ) - set(environment):  # what nannies leave there for their workers
            del os.environ[name]
        os.environ.update(environment)


@contextmanager
def _running(address: str) -> Iterator[Any]:
    """Client of a cluster that is somebody else's."""
    from distributed import Client

    place = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = Client(**place, timeout=CONNECTING, set_as_default=False, name="sysid")
    except (OSError, ValueError) as error:
        cause = str(error).strip().splitlines() or [type(error).__name__]
        raise EngineStopped(
            f"no Dask scheduler answers at {address} within {CONNECTING:g} s: does it run there (`dask scheduler` "
            f"tells its address), and can this machine reach it? ({cause[0]})"
        ) from None
    with _closing(client):
        yield client


@contextmanager
def _built(description: Mapping[str, Any], workers: int) -> Iterator[Any]:
    """Client of a cluster of a class of its own; workers that end are replaced."""
    from distributed import Client

    with deferred_interrupt():
        cluster = build_one(description, "hydra.launcher.cluster")
    try:
        cluster.adapt(minimum=workers, maximum=workers)
        with _closing(Client(cluster, set_as_default=False, name="sysid")) as client:
            yield client
    finally:
        with deferred_interrupt():
            cluster.close(timeout=ENDING)


@contextmanager
def _local(workers: int, memory_limit: int | None) -> Iterator[Any]:
    """Client of processes of this machine, which can be reached from this machine alone."""
    import dask
    from distributed import Client, LocalCluster

    with TemporaryDirectory(prefix="sysid-dask-", ignore_cleanup_errors=True) as folder:
        settings = SETTINGS | {"temporary-directory": folder}
        cluster = None
        try:
            with deferred_interrupt(), no_interrupt_for_children(), dask.config.set(settings):
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address=LOOPBACK,
                    worker_dashboard_address=LOOPBACK,
                    scheduler_kwargs={"dashboard": False},
                    memory_limit=0 if memory_limit is None else int(SPARE * memory_limit),
                    local_directory=folder,
                    silence_logs=logging.CRITICAL,
                    env=ONE_THREAD,
                )
            with _closing(Client(cluster, set_as_default=False, name="sysid")) as client:
                yield client
        finally:
            if cluster is not None:
                with deferred_interrupt():
                    _end(cluster)


@contextmanager
def _closing(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        with suppress(OSError), deferred_interrupt():
            client.close(timeout=ENDING)


def _end(cluster: Any) -> None:
    """End a local cluster at once, whatever its workers are at."""
    for nanny in list(cluster.workers.values()):
        nanny.close_gracefully()  # it does not start another worker
        if nanny.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(nanny.pid, SIGKILL)
    with suppress(OSError):
        cluster.close(timeout=ENDING)


def _check_workers(client: Any) -> None:
    """Warn of workers of a cluster that do not suit: jobs run one at a time in a process, and may end it."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    threads = sum(worker["nthreads"] > 1 for worker in workers)
    if threads:
        warnings.warn(f"{threads} workers have several threads, of which sweeps use one: start more with --nthreads 1")
    bare = sum(worker.get("nanny") is None for worker in workers)
    if bare:
        warnings.warn(f"{bare} workers have no nanny: after a job that ends its worker they are not replaced")


def run_job(job: Job, driver: int | None) -> Outcome:
    """Run a job in a worker.

    Parameters
    ----------
    job
        What to run.
    driver
        Process that started this worker and that it must not outlive; None: the worker belongs to somebody else.
    """
    if driver is not None:
        end_with(driver)
    return execute(job)


class Window:
    """Keeps one job per worker with the cluster, and asks for the outcome of those that have ended.

    Parameters
    ----------
    client : distributed.Client
        Connected.
    most : float
        Jobs at a time, at most.
    patience : float
        How long to wait while there is no worker [s].
    driver : int or None
        As in `run_job`.
    """

    def __init__(self, client: Any, most: float, patience: float, driver: int | None) -> None:
        self._client, self._most, self._patience, self._driver = client, most, patience, driver
        self._ended: SimpleQueue[str] = SimpleQueue()  # keys
        self._running: dict[str, tuple[Any, Job]] = {}  # future and job, by key
        self._given_up: Counter[int] = Counter()  # by number of the job
        self._submitted = self._workers = 0
        self._looked = -LOOK
        self._alone_since = time.monotonic()

    def outcomes(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Outcomes as they come.

        Raises
        ------
        EngineStopped
            If there is no worker for longer than the patience, the scheduler ends, or a worker cannot run jobs.
        """
        waiting = deque(jobs)
        try:
            while waiting or self._running:
                self._count_workers()
                self._fill(waiting)
                try:
                    future, job = self._running.pop(self._ended.get(timeout=PAUSE))
                except Empty:
                    continue
                self._fill(waiting)  # before the outcome is fetched: no worker waits for that
                if (outcome := self._outcome(future, job)) is None:
                    waiting.append(job)
                else:
                    yield outcome
        finally:
            futures = [future for future, _ in self._running.values()]
            if futures and self._client.status == "running":
                with deferred_interrupt():
                    self._client.cancel(futures, force=True)

    def _fill(self, waiting: deque[Job]) -> None:
        while waiting and len(self._running) < min(self._most, self._workers):
            job = waiting.popleft()
            self._submitted += 1
            key = f"sysid-{os.getpid()}-{id(self)}-{job.number}-{self._submitted}"
            future = self._client.submit(run_job, job, self._driver, key=key, pure=False)
            self._running[key] = future, job
            future.add_done_callback(lambda ended: self._ended.put(ended.key))

    def _count_workers(self) -> None:
        """Count the workers, now and then."""
        if time.monotonic() - self._looked < LOOK:
            return
        try:
            if self._client.status != "running":
                raise _lost()
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
            outcome: Outcome = future.result(timeout=None if self._patience == inf else self._patience)
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
        if (outcome := outcome_in(Path(job.folder))) is not None:
            return outcome
        self._given_up[job.number] += 1
        started, too_often = count_attempts(job.folder), self._given_up[job.number] > KILLED_BEFORE_START
        if started >= ATTEMPTS_ALLOWED or (started and too_often):
            return Outcome(job.number, False, error=DIED_TWICE)
        if too_often:
            return Outcome(job.number, False, error="the workers that it waited at were killed again and again")
        return None


def _lost() -> EngineStopped:
    return EngineStopped(
        "the scheduler of the Dask cluster has ended, was restarted, or cannot be reached any more: the jobs in flight "
        "are lost; start it again if it is yours, then the same command resumes the sweep"
    )
