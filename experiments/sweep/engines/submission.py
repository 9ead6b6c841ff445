"""Where submitit sends tasks: to Slurm, or to processes of this machine that stand in for it.

A task is a new Python process that runs a few jobs one after the other. It outlives the sweep that submitted it.
"""

import io
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from experiments.sweep.engine import EngineStopped
from experiments.sweep.execution import execute
from experiments.sweep.job import Job, Outcome
from experiments.sweep.worker_process import ONE_THREAD, no_interrupt_for_children

WARNING_AHEAD = 30  # s that SIGUSR2 comes before the end of a task; Slurm takes up to a minute more
ENDLESS = 10 * 365 * 24 * 60  # min
PATIENCE = 30.0  # s; cancelled tasks that last longer are left to Slurm
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}


class Submission(ABC):
    """Submits tasks, sees which are there, and cancels them."""

    cluster: str  # name, for people
    poll: float  # s between two looks, unless set
    settle: float  # s after the end of a task in which the files that it has written may still come into sight
    executor: Any  # of submitit

    @abstractmethod
    def send(self, batches: Sequence[tuple[Job, ...]], at_a_time: int) -> list[str]:
        """Submit a task for each batch of jobs; the names of the tasks.

        Raises
        ------
        RuntimeError, OSError
            If they are refused.
        """

    @abstractmethod
    def there(self, known: Collection[str]) -> dict[str, bool] | None:
        """Tasks of this sweep that are not over, known or not: whether each has started; None: nobody can say now."""

    @abstractmethod
    def room(self, n_tasks: int, most: int, largest: int) -> int:
        """How many tasks may be sent while so many are there, of which `most` run at a time."""

    @abstractmethod
    def end(self, names: Sequence[str] | None) -> None:
        """Ask tasks to end at once; None: all of this sweep."""

    def fate(self, name: str) -> str:
        """What is known about the end of a task that died; empty: nothing."""
        return ""

    def cancel(self, names: list[str] | None, known: Collection[str] = ()) -> None:
        """End tasks and wait until they are gone; None: all of this sweep."""
        end = time.monotonic() + PATIENCE
        while names != [] and time.monotonic() < end:
            self.end(names)
            left = self.there(known if names is None else names)
            if left is not None and not set(left) & set(left if names is None else names):
                return
            time.sleep(min(self.poll, 1.0))

    def returned(self, name: str) -> tuple[list[Outcome], str]:
        """What a task that is over has returned, and what went wrong in a line."""
        job = self.executor.job_class(self.executor.folder, job_id=name)
        if not job.paths.result_pickle.exists():
            return [], ""
        try:
            error = job.exception()
            if error is None:
                return list(job.result()), ""
        except Exception as broken:  # a file that was not written to its end may raise anything
            return [], f"what it returned cannot be read ({type(broken).__name__})"
        lines = [line for line in str(error).splitlines() if line[:1].isalpha() and ": " in line]
        return [], lines[-1] if lines else ""

    def log(self, name: str) -> Path:
        """Standard error of a task."""
        return Path(self.executor.job_class(self.executor.folder, job_id=name).paths.stderr)

    def clear(self, name: str, with_logs: bool) -> None:
        """Remove what submitit has written for a task that is over."""
        paths = self.executor.job_class(self.executor.folder, job_id=name).paths
        logs = [paths.stdout, paths.stderr] if with_logs else []
        for path in [paths.submitted_pickle, paths.result_pickle, *logs]:
            path.unlink(missing_ok=True)


class SlurmSubmission(Submission):
    """Job arrays of Slurm."""

    cluster = "slurm"
    poll = 5.0
    settle = 15.0

    def __init__(self, folder: Path, name: str, parameters: Mapping[str, Any], setup: Sequence[str]) -> None:
        missing = [command for command in ("sbatch", "srun", "squeue", "scancel") if shutil.which(command) is None]
        if missing:
            raise EngineStopped(
                f"hydra/launcher=slurm needs Slurm's {', '.join(missing)}, not found on PATH: start the sweep on a "
                "login node of the cluster, or try it on this machine with hydra.launcher.cluster=local"
            )
        self.executor = _submitit().SlurmExecutor(folder)
        self._name = name
        self.executor.update_parameters(
            **parameters,
            job_name=name,
            wckey=None,
            signal_delay_s=WARNING_AHEAD,
            srun_args=[f"--cpus-per-task={parameters['cpus_per_task']}"],  # srun does not take it from sbatch
            setup=[*(f"export {name}={value}" for name, value in ONE_THREAD.items()), *setup],
        )

    def send(self, batches: Sequence[tuple[Job, ...]], at_a_time: int) -> list[str]:
        """Submit an array."""
        self.executor.update_parameters(array_parallelism=at_a_time)
        with redirect_stderr(io.StringIO()):  # what sbatch says is in the exception too
            return [str(task.job_id) for task in self.executor.map_array(perform, batches)]

    def there(self, known: Collection[str]) -> dict[str, bool] | None:
        """Ask squeue, which knows a task as soon as sbatch has answered."""
        lines = _answer("squeue", *self._mine(), "--array", "--noheader", "--format=%i %T")
        if lines is None:
            return None
        return {name: state not in WAITING for name, state in (line.split() for line in lines)}

    def room(self, n_tasks: int, most: int, largest: int) -> int:
        """An array at a time, and the next one when the last tasks of the one before run."""
        return largest if n_tasks <= most // 4 else 0

    def end(self, names: Sequence[str] | None) -> None:
        """Cancel by the name of the sweep, or one by one."""
        if names is None or names:
            _answer("scancel", *(self._mine() if names is None else names))

    def fate(self, name: str) -> str:
        """State in Slurm's accounts."""
        lines = _answer("sacct", "--allocations", "--noheader", "--parsable2", "--format=State", f"--jobs={name}")
        return f"Slurm says {lines[0]}" if lines else ""

    def _mine(self) -> list[str]:
        return [f"--user={os.getuid()}", f"--name={self._name}"]


class LocalSubmission(Submission):
    """Processes of this machine."""

    cluster = "local"
    poll = 0.1
    settle = 0.0

    def __init__(self, folder: Path, time_limit: int | None) -> None:
        self.executor = _submitit().LocalExecutor(folder)
        self.executor.update_parameters(timeout_min=time_limit or ENDLESS, signal_delay_s=WARNING_AHEAD)
        self._children: dict[str, Any] = {}
        self._others: set[str] = set()

    def send(self, batches: Sequence[tuple[Job, ...]], at_a_time: int) -> list[str]:
        """Start processes, which never see Ctrl-C: the sweep ends them."""
        names = []
        with no_interrupt_for_children(), _environment(ONE_THREAD):
            for batch in batches:
                task = self.executor.submit(perform, batch)
                self._children[str(task.job_id)] = task
                names.append(str(task.job_id))
        return names

    def there(self, known: Collection[str]) -> dict[str, bool]:
        """Own children, and processes that an earlier sweep has left."""
        own = [name for name, task in self._children.items() if not task.done()]
        self._others = {name for name in {*known, *self._others} - set(self._children) if self._is_task(name)}
        return dict.fromkeys([*own, *self._others], True)

    def room(self, n_tasks: int, most: int, largest: int) -> int:
        """As many as there are places."""
        return min(most - n_tasks, largest)

    def end(self, names: Sequence[str] | None) -> None:
        """Tell the controller, which tells the task."""
        for name in self.there(names or ()):
            if names is None or name in names:
                with suppress(ProcessLookupError):
                    os.kill(int(name), signal.SIGTERM)

    def _is_task(self, name: str) -> bool:
        """Whether the process of this number is a task of this folder, and not a later one of the same number."""
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"submitit.local._local" in words and os.fsencode(self.executor.folder) in words


def perform(batch: Sequence[Job]) -> list[Outcome]:
    """Run the jobs of a task, in its process."""
    signal.signal(signal.SIGUSR2, _time_is_over)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # cancelled tasks end at once; submitit has them wait for SIGKILL
    return [execute(job) for job in batch]


def _time_is_over(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("Slurm's time limit of the task is over: raise it, or limit jobs by hydra.launcher.time_limit")


def _submitit() -> Any:
    """Submitit, which leaves the logs of this process as they are."""
    try:
        with _environment({"SUBMITIT_LOG_LEVEL": "NOCONFIG"}):
            import submitit
    except ImportError:
        raise ImportError("hydra/launcher=slurm needs submitit: pip install 'sysid[slurm]'") from None
    return submitit


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _answer(*command: str) -> list[str] | None:
    """Lines that a command of Slurm prints, away from Ctrl-C; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [line for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else None
