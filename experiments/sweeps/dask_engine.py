"""A Dask cluster: processes of this machine, a scheduler that runs, or a batch system.

A few jobs at a time are with the cluster, so that memory stays bounded and an interrupt is quick.
"""

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Any

from experiments.cli.build import build_one
from experiments.cli.ends import deferred_interrupt, no_interrupt_for_children
from experiments.cli.options import seconds, whole
from experiments.sweeps.engines import Engine, EngineStopped
from experiments.sweeps.store import Job, Limits, Outcome, count_attempts, outcome_in
from experiments.sweeps.task import (
    ATTEMPTS_ALLOWED,
    DIED_TWICE,
    ONE_THREAD,
    end_with,
    execute,
    limits_of,
)
from sysid.beside import n_cores
from sysid.errors import UserError

CONNECTING = 15.0  # s until a scheduler has to answer
ANSWERING = 3.0  # s that one try takes, and that Ctrl-C waits meanwhile
ENDING = 10.0  # s that the end of a cluster may take
PAUSE = 0.2  # s between two looks at the cluster while nothing ends
LOOK = 1.0  # s between two counts of its workers
KILLED_BEFORE_START = 3  # times that Dask may give a job up before it was ever started
# a nanny kills its worker at that many times the memory limit: the job itself ends, and tells,
# before
SPARE = 1.25
LOOPBACK = "127.0.0.1:0"
LOST = (
    "the scheduler of the Dask cluster has ended, was restarted, or cannot be reached any more: the jobs in flight "
    "are lost; start it again if it is yours, then the same command resumes the sweep"
)
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
    """Workers of one thread each; one that is killed costs the job that it runs one of its two
    attempts.
    """

    workers: int | None = (
        None  # processes; of a running cluster: jobs at a time at most; None: all there are
    )
    address: str | None = (
        None  # of a scheduler, or path of its scheduler file; None: a cluster is started
    )
    cluster: Mapping[str, Any] | None = (
        None  # `_target_` and settings of a cluster class; None: this machine
    )
    memory_limit: str | float | None = None  # of the process of a job
    time_limit: str | float | None = None  # of a job
    patience: str | float | None = (
        "5min"  # how long to wait while there is no worker; None: for ever
    )

    def __post_init__(self) -> None:
        whole("hydra.launcher.workers", 1 if self.workers is None else self.workers, 1)
        if self.address is not None and self.cluster is not None:
            raise UserError(
                "hydra.launcher.address and hydra.launcher.cluster exclude each other: give one of them"
            )
        if self.cluster is not None and (self.workers is None or "_target_" not in self.cluster):
            needed = "a _target_, such as dask_jobqueue.SLURMCluster, and a number of workers"
            raise UserError(f"hydra.launcher.cluster needs {needed}")
        _ = self.limits, self._patience

    @property
    def limits(self) -> Limits:
        return limits_of(self.time_limit, self.memory_limit)

    @property
    def _patience(self) -> float:
        return (
            inf
            if self.patience is None
            else seconds(self.patience, "hydra.launcher.patience", "10min")
        )

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run jobs as there are workers; a cluster that was started is ended, another one runs on.

        Raises
        ------
        ImportError
            If Dask, or what makes the keys of a cluster that is started here, is not installed.
        ValueError
            If the cluster class refuses its settings.
        EngineStopped
            If no scheduler answers, it ends, there is no worker for longer than the patience, or
            one cannot run jobs.
        """
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ImportError('hydra/launcher=dask needs Dask: pip install -e ".[dask]"') from None
        with _quiet(), self._connected(len(jobs)) as client:
            yield from self._outcomes(client, jobs)

    @contextmanager
    def _connected(self, n_jobs: int) -> Iterator[Any]:
        """Client of the cluster."""
        from distributed import Client

        with ExitStack() as stack:
            folder = stack.enter_context(
                TemporaryDirectory(prefix="sysid-dask-", ignore_cleanup_errors=True)
            )
            if self.address is not None:
                client = _reach(self.address)
                stack.callback(_end, client)
            else:
                with (
                    deferred_interrupt()
                ):  # a client that is made by half waits for a minute to end
                    if self.cluster is not None:
                        cluster = build_one(self.cluster, "hydra.launcher.cluster")
                        stack.callback(_end, cluster)
                        cluster.adapt(
                            minimum=self.workers, maximum=self.workers
                        )  # workers that end are replaced
                    else:
                        cluster = self._start(min(self.workers or n_cores(), n_jobs), folder)
                        stack.callback(_end, cluster, is_local=True)
                    client = Client(cluster, set_as_default=False, name="sysid")
                    stack.callback(_end, client)
            yield client

    def _start(self, workers: int, folder: str) -> Any:
        """Start a cluster on this machine that speaks only with who has the keys of this sweep.

        Who reaches the port of a scheduler can run code as its owner: the loopback belongs to all
        users of a machine. The keys are in memory, and handed to each worker as it is started.
        """
        import dask
        from distributed import LocalCluster
        from distributed.security import Security

        try:
            security = Security.temporary()
        except ImportError:
            raise ImportError(
                'hydra/launcher=dask needs cryptography: pip install -e ".[dask]"'
            ) from None
        with (
            no_interrupt_for_children(),
            dask.config.set(SETTINGS | {"temporary-directory": folder}),
        ):
            return LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                security=security,
                dashboard_address=LOOPBACK,
                worker_dashboard_address=LOOPBACK,
                scheduler_kwargs={"dashboard": False},
                memory_limit=0 if self.limits.memory is None else int(SPARE * self.limits.memory),
                local_directory=folder,
                silence_logs=logging.CRITICAL,
                env=ONE_THREAD,
            )

    def _outcomes(self, client: Any, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Outcomes as they come, while one job per worker is with the cluster."""
        most = self.workers if self.address is not None and self.workers is not None else inf
        driver = os.getpid() if self.address is None and self.cluster is None else None
        waiting = deque(jobs)
        ended = SimpleQueue[str]()
        given_up = Counter[int]()
        keys = (f"sysid-{os.getpid()}-{id(waiting)}-{number}" for number in count())
        running: dict[str, tuple[Any, Job]] = {}
        workers = 0
        looked = -LOOK
        alone_since = time.monotonic()

        def fill() -> None:
            while waiting and len(running) < min(most, workers):
                job = waiting.popleft()
                future = client.submit(run_job, job, driver, key=next(keys), pure=False)
                running[future.key] = future, job
                future.add_done_callback(lambda one: ended.put(one.key))

        try:
            while waiting or running:
                if time.monotonic() - looked >= LOOK:
                    workers = _count_workers(client)
                    looked = time.monotonic()
                    alone_since = looked if workers else alone_since
                    if looked - alone_since > self._patience:
                        raise EngineStopped(
                            f"the Dask cluster has had no worker for {self._patience:g} s: start workers (with a "
                            "nanny, which replaces those that are killed), or look into their logs; the same command "
                            "resumes the sweep"
                        )
                fill()
                try:
                    future, job = running.pop(ended.get(timeout=PAUSE))
                except Empty:
                    continue
                fill()  # before the outcome is fetched: no worker waits for that
                if (outcome := self._outcome(future, job, given_up)) is None:
                    waiting.append(job)
                else:
                    yield outcome
        finally:
            if running and client.status == "running":
                with deferred_interrupt():
                    client.cancel([future for future, _ in running.values()], force=True)

    def _outcome(self, future: Any, job: Job, given_up: Counter[int]) -> Outcome | None:
        """Outcome of a job that has ended; None if it is to be tried again.

        Dask gives a job up when its workers were killed, also those at which it was only waiting;
        the job itself counts its starts.
        """
        from distributed import KilledWorker

        try:
            outcome: Outcome = future.result(
                timeout=None if self._patience == inf else self._patience
            )
            return outcome
        except KilledWorker:
            given_up[job.number] += 1
        except CancelledError:
            raise EngineStopped(LOST) from None
        except Exception as error:  # `execute` raises nothing: this comes from before it
            raise EngineStopped(
                f"a worker cannot run the jobs of this sweep ({type(error).__name__}: {error}): install the same "
                "version of sysid and of its packages for the workers, then the same command resumes the sweep"
            ) from None
        if (stored := outcome_in(Path(job.folder))) is not None:
            return stored
        started = count_attempts(job.folder)
        too_often = given_up[job.number] > KILLED_BEFORE_START
        if started >= ATTEMPTS_ALLOWED or too_often:
            waited = "the workers that it waited at were killed again and again"
            return Outcome(job.number, False, error=DIED_TWICE if started else waited)
        return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Dask tells about workers that come and go, which the sweep tells; one thread for
    all it starts.

    Not of numba here, which refuses a change while it runs: the workers get that later.
    """
    loud = (
        "distributed",
        "tornado",
        "asyncio",
    )  # the last two tell of callbacks that Ctrl-C cut off
    names = [
        *loud,
        *(name for name in logging.root.manager.loggerDict if name.partition(".")[0] in loud),
    ]
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    environment = dict(os.environ)
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    os.environ.update(
        {name: value for name, value in ONE_THREAD.items() if not name.startswith("NUMBA")}
    )
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
        for name in set(os.environ) - set(
            environment
        ):  # what nannies leave there for their workers
            del os.environ[name]
        os.environ.update(environment)


def _reach(address: str) -> Any:
    """Client of a cluster that is somebody else's."""
    from distributed import Client

    place = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    began = time.monotonic()
    while True:
        try:
            with (
                deferred_interrupt()
            ):  # a client that is made by half waits for half a minute to end
                return Client(**place, timeout=ANSWERING, set_as_default=False, name="sysid")
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and time.monotonic() - began < CONNECTING:
                continue
            cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
            ask = f"does it run there (`dask scheduler` tells its address), and can this machine reach it? ({cause})"
            raise EngineStopped(
                f"no Dask scheduler answers at {address} within {CONNECTING:g} s: {ask}"
            ) from None


def _end(client_or_cluster: Any, is_local: bool = False) -> None:
    """Close a client or a cluster; a local cluster ends at once, whatever its workers are at."""
    with suppress(OSError), deferred_interrupt():
        for nanny in list(client_or_cluster.workers.values()) if is_local else []:
            nanny.close_gracefully()  # it does not start another worker
            if nanny.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, SIGKILL)
        client_or_cluster.close(timeout=ENDING)


def _count_workers(client: Any) -> int:
    with suppress(OSError, CancelledError):
        if client.status == "running":
            return len(client.nthreads())
    raise EngineStopped(LOST)


def run_job(job: Job, driver: int | None) -> Outcome:
    """Run a job in a worker.

    Parameters
    ----------
    job
        What to run.
    driver
        Process that started this worker and that it must not outlive; None: the worker belongs to
        somebody else.
    """
    if driver is not None:
        end_with(driver)
    return execute(job)
