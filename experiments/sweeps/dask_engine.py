"""Runs jobs on a Dask cluster: processes of this machine, a running scheduler, or a batch system.

Only one job per worker is submitted at a time, so that memory stays bounded and an interrupt is
quick.
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
from experiments.cli.ends import deferred_interrupt, end_with, no_interrupt_for_children
from experiments.cli.options import seconds, whole
from experiments.sweeps.engines import Engine, EngineStopped
from experiments.sweeps.store import Job, Limits, Outcome, count_attempts, outcome_in
from experiments.sweeps.task import (
    DIED_TWICE,
    MAX_ATTEMPTS,
    ONE_THREAD,
    execute,
    limits_of,
)
from sysid.beside import n_cores
from sysid.errors import UserError

CONNECTION_TIMEOUT = 15.0  # s until a scheduler has to answer
ATTEMPT_TIMEOUT = 3.0  # s of one attempt to connect, which Ctrl-C has to wait for
CLOSE_TIMEOUT = 10.0  # s that the end of a cluster may take
RESULT_WAIT = 0.2  # s to wait for the next result before the loop goes on
COUNT_INTERVAL = 1.0  # s between two counts of the workers
MAX_KILLED_BEFORE_START = 3  # times that Dask may give up a job that was never started
#: memory at which a nanny kills its worker, over the memory limit; the job itself ends before that
#: and reports the reason
NANNY_MEMORY_FACTOR = 1.25
#: settings of Dask while a cluster of this machine runs: otherwise Dask ends the nanny of a killed
#: worker if the next worker needs more than 15 s to start, as on a busy machine
LOCAL_CLUSTER_SETTINGS = {"distributed.deploy.lost-worker-timeout": "1000 days"}
LOOPBACK = "127.0.0.1:0"
SCHEDULER_LOST = (
    "the scheduler of the Dask cluster has ended, was restarted, or can no longer be reached: "
    "the running jobs are lost; start the scheduler again if it is yours, "
    "then the same command resumes the sweep"
)
#: settings of Dask for workers that are busy for a long time, keep their data, and log nothing
DASK_SETTINGS = {
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
    """Runs jobs in Dask workers with one thread each.

    If a worker is killed, its job loses one of two attempts, and the other workers go on.
    """

    #: number of processes, or for a running cluster the largest number of jobs at a time; None: all
    workers: int | None = None
    #: address of a running scheduler, or path of its scheduler file; None: a cluster is started
    address: str | None = None
    #: `_target_` and settings of a cluster class; None: a cluster of this machine
    cluster: Mapping[str, Any] | None = None
    memory_limit: str | float | None = None  # memory limit of the process of a job
    time_limit: str | float | None = None  # time limit of a job
    patience: str | float | None = "5min"  # how long to wait without a worker; None: for ever

    def __post_init__(self) -> None:
        whole("hydra.launcher.workers", 1 if self.workers is None else self.workers, 1)
        if self.address is not None and self.cluster is not None:
            raise UserError(
                "hydra.launcher.address and hydra.launcher.cluster exclude each other: "
                "give only one of them"
            )
        if self.cluster is not None and (self.workers is None or "_target_" not in self.cluster):
            raise UserError(
                "hydra.launcher.cluster needs a _target_, such as dask_jobqueue.SLURMCluster, "
                "and a number of workers"
            )
        _ = self.limits, self._patience  # raise an error if a value cannot be read

    @property
    def limits(self) -> Limits:
        return limits_of(self.time_limit, self.memory_limit)

    @property
    def _patience(self) -> float:
        """How long to wait while there is no worker [s]."""
        if self.patience is None:
            return inf
        return seconds(self.patience, "hydra.launcher.patience", "10min")

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run the jobs and yield their outcomes.

        A cluster that was started here is ended at the end; a cluster that ran before runs on.

        Raises
        ------
        ImportError
            If Dask is not installed, or cryptography for a cluster that is started here.
        ValueError
            If the cluster class refuses its settings.
        EngineStopped
            If no scheduler answers, the scheduler ends, there is no worker for longer than the
            patience, or a worker cannot run jobs.
        """
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ImportError('hydra/launcher=dask needs Dask: pip install -e ".[dask]"') from None
        with _quiet(), self._connected(len(jobs)) as client:
            yield from self._outcomes(client, jobs)

    @contextmanager
    def _connected(self, n_jobs: int) -> Iterator[Any]:
        """Connect to the cluster, or start it, and yield a client of it."""
        import dask
        from distributed import Client

        with ExitStack() as stack:
            folder = stack.enter_context(
                TemporaryDirectory(prefix="sysid-dask-", ignore_cleanup_errors=True)
            )
            if self.address is not None:
                client = _reach(self.address)
                stack.callback(_end, client)
            else:
                # An interrupted client would need a minute to end.
                with deferred_interrupt():
                    if self.cluster is not None:
                        cluster = build_one(self.cluster, "hydra.launcher.cluster")
                        stack.callback(_end, cluster)
                        # With `adapt`, workers that end are replaced.
                        cluster.adapt(minimum=self.workers, maximum=self.workers)
                    else:
                        stack.enter_context(dask.config.set(LOCAL_CLUSTER_SETTINGS))
                        cluster = self._start(min(self.workers or n_cores(), n_jobs), folder)
                        stack.callback(_end, cluster, is_local=True)
                    client = Client(cluster, set_as_default=False, name="sysid")
                    stack.callback(_end, client)
            yield client

    def _start(self, n_workers: int, folder: str) -> Any:
        """Start a cluster on this machine that only accepts connections with this sweep's keys.

        Anybody who reaches the port of a scheduler can run code as its owner, and all users of a
        machine can reach its loopback address. The keys stay in memory, and each worker gets them
        when it is started.
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
        nanny_limit = 0  # no limit
        if self.limits.memory is not None:
            nanny_limit = int(NANNY_MEMORY_FACTOR * self.limits.memory)
        with (
            no_interrupt_for_children(),
            dask.config.set(DASK_SETTINGS | {"temporary-directory": folder}),
        ):
            return LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                host="127.0.0.1",
                security=security,
                dashboard_address=LOOPBACK,
                worker_dashboard_address=LOOPBACK,
                scheduler_kwargs={"dashboard": False},
                memory_limit=nanny_limit,
                local_directory=folder,
                silence_logs=logging.CRITICAL,
                env=ONE_THREAD,
            )

    def _outcomes(self, client: Any, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yield the outcomes when they are known, with one submitted job for each worker."""
        max_running = inf
        if self.address is not None and self.workers is not None:
            max_running = self.workers
        is_local = self.address is None and self.cluster is None
        parent = os.getpid() if is_local else None
        waiting = deque(jobs)
        ended_keys = SimpleQueue[str]()
        n_given_up = Counter[int]()  # how often Dask has given up a job, by number of the job
        keys = (f"sysid-{os.getpid()}-{id(waiting)}-{number}" for number in count())
        running: dict[str, tuple[Any, Job]] = {}
        n_workers = 0
        last_count = -COUNT_INTERVAL  # s, time of the last count of the workers
        last_worker = time.monotonic()  # s, time at which there was a worker

        def put_key(future: Any) -> None:
            ended_keys.put(future.key)

        def submit_jobs() -> None:
            while waiting and len(running) < min(max_running, n_workers):
                job = waiting.popleft()
                future = client.submit(run_job, job, parent, key=next(keys), pure=False)
                running[future.key] = future, job
                future.add_done_callback(put_key)

        try:
            while waiting or running:
                if time.monotonic() - last_count >= COUNT_INTERVAL:
                    n_workers = _count_workers(client)
                    last_count = time.monotonic()
                    if n_workers:
                        last_worker = last_count
                    if last_count - last_worker > self._patience:
                        raise EngineStopped(
                            f"the Dask cluster has had no worker for {self._patience:g} s: "
                            "start workers (with a nanny, which replaces killed workers), "
                            "or look into their logs; the same command resumes the sweep"
                        )
                submit_jobs()
                try:
                    future, job = running.pop(ended_keys.get(timeout=RESULT_WAIT))
                except Empty:
                    continue
                submit_jobs()  # so that no worker has to wait while the outcome is fetched
                outcome = self._outcome(future, job, n_given_up)
                if outcome is None:
                    waiting.append(job)
                else:
                    yield outcome
        finally:
            if running and client.status == "running":
                with deferred_interrupt():
                    client.cancel([future for future, _ in running.values()], force=True)

    def _outcome(self, future: Any, job: Job, n_given_up: Counter[int]) -> Outcome | None:
        """Return the outcome of a job that has ended, or None if it has to be tried again.

        Dask gives up a job if its workers were killed, even if the job was only waiting there. The
        job itself therefore counts how often it was started.
        """
        from distributed import KilledWorker

        try:
            outcome: Outcome = future.result(
                timeout=None if self._patience == inf else self._patience
            )
            return outcome
        except KilledWorker:
            n_given_up[job.number] += 1
        except CancelledError:
            raise EngineStopped(SCHEDULER_LOST) from None
        except Exception as error:  # comes from Dask or an import, as `execute` raises no error
            raise EngineStopped(
                f"a worker cannot run the jobs of this sweep ({type(error).__name__}: {error}): "
                "install the same version of sysid and of its packages for the workers, "
                "then the same command resumes the sweep"
            ) from None
        stored = outcome_in(Path(job.folder))
        if stored is not None:
            return stored
        n_attempts = count_attempts(job.folder)
        if n_attempts >= MAX_ATTEMPTS or n_given_up[job.number] > MAX_KILLED_BEFORE_START:
            error_text = "the workers where it waited were killed several times"
            if n_attempts:
                error_text = DIED_TWICE
            return Outcome(job.number, False, error=error_text)
        return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the logs of Dask, and give one thread to every process that is started in the block.

    Dask would log every worker that starts or ends, which the sweep reports itself. The variables
    of numba are not set here, because numba refuses a change while it runs; the workers get them
    later.
    """
    # tornado and asyncio log callbacks that Ctrl-C has interrupted.
    packages = ("distributed", "tornado", "asyncio")
    names = list(packages)
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] in packages:
            names.append(name)
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    environment = dict(os.environ)
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    for name, value in ONE_THREAD.items():
        if not name.startswith("NUMBA"):
            os.environ[name] = value
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
        # Nannies set further variables for their workers.
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


def _reach(address: str) -> Any:
    """Return a client of a running cluster."""
    from distributed import Client

    where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    start = time.monotonic()
    while True:
        try:
            # An interrupted client would need half a minute to end.
            with deferred_interrupt():
                return Client(**where, timeout=ATTEMPT_TIMEOUT, set_as_default=False, name="sysid")
        except (OSError, ValueError) as error:
            has_time_left = time.monotonic() - start < CONNECTION_TIMEOUT
            if isinstance(error, OSError) and has_time_left:
                continue
            lines = str(error).strip().splitlines()
            cause = lines[0] if lines else type(error).__name__
            raise EngineStopped(
                f"no Dask scheduler answers at {address} within {CONNECTION_TIMEOUT:g} s: "
                "does it run there (`dask scheduler` prints its address), "
                f"and can this machine reach it? ({cause})"
            ) from None


def _end(client_or_cluster: Any, is_local: bool = False) -> None:
    """Close a client or a cluster; the workers of a local cluster are killed at once."""
    with suppress(OSError), deferred_interrupt():
        nannies = list(client_or_cluster.workers.values()) if is_local else []
        for nanny in nannies:
            nanny.close_gracefully()  # keeps the nanny from starting another worker
            if nanny.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, SIGKILL)
        client_or_cluster.close(timeout=CLOSE_TIMEOUT)


def _count_workers(client: Any) -> int:
    """Return the number of workers; raise EngineStopped if the scheduler cannot be reached."""
    with suppress(OSError, CancelledError):
        if client.status == "running":
            return len(client.nthreads())
    raise EngineStopped(SCHEDULER_LOST)


def run_job(job: Job, parent: int | None) -> Outcome:
    """Run a job in a worker.

    Parameters
    ----------
    job
        The job.
    parent
        Number of the process that has started this worker; the worker ends with it. None if the
        worker does not belong to this sweep.
    """
    if parent is not None:
        end_with(parent)
    return execute(job)
