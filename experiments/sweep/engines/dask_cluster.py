"""A Dask cluster: processes of this machine, a scheduler that runs, or a batch system."""

import logging
import os
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import Any

from experiments.build import build_one
from experiments.sweep.engine import Engine, EngineStopped, Limits, checked_workers, limits_of, seconds_of
from experiments.sweep.job import Job, Outcome
from experiments.sweep.worker_process import ONE_THREAD, cores, no_interrupt_for_children

CONNECTING = 15.0  # s until a scheduler has to answer
ENDING = 10.0  # s that the end of a cluster may take
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
        checked_workers(self.workers)
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
        """Which cluster."""
        if self.address is not None:
            most = "" if self.workers is None else f", {self.workers} jobs at a time"
            return f"the Dask cluster at {self.address}{most}"
        if self.cluster is not None:
            return f"{self.workers} workers of {self.cluster['_target_']}"
        n = self._processes
        return f"a Dask cluster of {n} process{'es' if n > 1 else ''} of this machine"

    @property
    def limits(self) -> Limits:
        """Limits of a job."""
        return limits_of(self.time_limit, self.memory_limit)

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
        _import_distributed()
        from experiments.sweep.engines.dask_window import Window

        here = self.address is None and self.cluster is None
        with _quiet(), self._connected(len(jobs)) as client:
            _check_workers(client)
            window = Window(
                client,
                most=self.workers if self.address is not None else None,
                patience=self._patience,
                driver=os.getpid() if here else None,
            )
            yield from window.run(jobs)

    @property
    def _patience(self) -> float:
        return float("inf") if self.patience is None else seconds_of(self.patience, "patience")

    @property
    def _processes(self) -> int:
        return self.workers or cores()

    def _connected(self, n_jobs: int) -> AbstractContextManager[Any]:
        if self.address is not None:
            return _running(self.address)
        if self.cluster is not None:
            return _built(self.cluster, self._processes)
        return _local(min(self._processes, n_jobs), self.limits.memory)


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise ImportError("hydra/launcher=dask needs Dask: pip install 'sysid[dask]'") from None
    return distributed


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Dask tells about workers that come and go, which the sweep tells; and one thread for all it starts.

    Not of numba here, which refuses a change while it runs: the workers get that later.
    """
    logger, environment = logging.getLogger("distributed"), dict(os.environ)
    children = [
        logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name[:12] == "distributed."
    ]
    loops = [logging.getLogger("tornado"), logging.getLogger("asyncio")]  # they tell of callbacks that Ctrl-C cut off
    before = {one: one.level for one in (logger, *loops, *children)}
    for one in before:
        one.setLevel(logging.CRITICAL + 1)
    os.environ.update({name: value for name, value in ONE_THREAD.items() if not name.startswith("NUMBA")})
    try:
        yield
    finally:
        for one, level in before.items():
            one.setLevel(level)
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
    with _closed(client):
        yield client


@contextmanager
def _built(description: Mapping[str, Any], workers: int) -> Iterator[Any]:
    """Client of a cluster of a class of its own; workers that end are replaced."""
    from distributed import Client

    cluster = build_one(description, "hydra.launcher.cluster")
    try:
        cluster.adapt(minimum=workers, maximum=workers)
        with _closed(Client(cluster, set_as_default=False, name="sysid")) as client:
            yield client
    finally:
        cluster.close(timeout=ENDING)


@contextmanager
def _local(workers: int, memory_limit: int | None) -> Iterator[Any]:
    """Client of processes of this machine, which can be reached from this machine alone."""
    import dask
    from distributed import Client, LocalCluster

    with TemporaryDirectory(prefix="sysid-dask-", ignore_cleanup_errors=True) as folder:
        with no_interrupt_for_children(), dask.config.set({**SETTINGS, "temporary-directory": folder}):
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
        try:
            with _closed(Client(cluster, set_as_default=False, name="sysid")) as client:
                yield client
        finally:
            _end(cluster)


@contextmanager
def _closed(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        with suppress(OSError):
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
