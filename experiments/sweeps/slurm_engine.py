"""Runs jobs in tasks of a Slurm cluster, through submitit.

A task is a process that runs a few jobs one after the other. It goes on if the sweep that has
submitted it is killed. The outcome of a job is read from its folder, and a file records which task
has which jobs. The same command can therefore take over the tasks of a killed sweep.
"""

import hashlib
import io
import json
import math
import os
import shutil
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from experiments.cli.ends import deferred_interrupt, no_interrupt_for_children
from experiments.cli.options import seconds, whole
from experiments.sweeps.engines import TASKS_FILE, Engine, EngineStopped
from experiments.sweeps.store import (
    Job,
    Limits,
    Outcome,
    count_attempts,
    forget,
    outcome_in,
    read_outcome,
)
from experiments.sweeps.task import (
    DIED_TWICE,
    MAX_ATTEMPTS,
    ONE_THREAD,
    TIMER_DELAY,
    execute,
    limits_of,
)
from sysid import store
from sysid.beside import n_cores
from sysid.errors import UserError

CLUSTERS = ("slurm", "local")
MAX_START_TIME = 60.0  # longest time to start Python from a slow file system [s]
MAX_EARLY_SIGNAL = 60.0  # time by which Slurm may send its signal earlier than requested [s]
WARNING_TIME = 30  # time between SIGUSR2 and the end of a task [s]
UNLIMITED_MINUTES = 10 * 365 * 24 * 60  # time limit of a local task that has no limit [min]
CANCEL_TIMEOUT = 30.0  # cancelled tasks that run longer than this are left to Slurm [s]
MAX_SILENCE = 900.0  # the sweep stops after this time without an answer of squeue [s]
LOCAL_PROCESS = b"submitit.local._local"  # module that submitit runs in a local task
#: states of tasks that have not started
WAITING_STATES = {
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
}


@dataclass(frozen=True)
class SlurmQueue(Engine):
    """Runs jobs in arrays of Slurm tasks."""

    #: "slurm", or "local" to try it with processes of this machine, where options of Slurm have no
    #: effect
    cluster: str = "slurm"
    workers: int | None = None  # tasks at a time; None: as many as Slurm starts (local: all cores)
    jobs_per_task: int = 1
    cpus_per_task: int = 1
    time_limit: float | str | None = None  # time limit of a job
    memory_limit: float | str | None = None  # memory limit of a job
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    setup: Sequence[str] = field(default_factory=list)  # shell commands that run before the jobs
    #: further options of sbatch by name
    additional_parameters: Mapping[str, Any] = field(default_factory=dict)
    array_size: int = 1000  # tasks of an array
    poll: float | str | None = None  # s between two queries of the queue; None: 5 (local: 0.1)

    def __post_init__(self) -> None:
        if self.cluster not in CLUSTERS:
            raise UserError(
                f"hydra.launcher.cluster must be one of {', '.join(CLUSTERS)}, got {self.cluster!r}"
            )
        for name in ("workers", "jobs_per_task", "cpus_per_task", "array_size"):
            if name != "workers" or self.workers is not None:
                whole(f"hydra.launcher.{name}", getattr(self, name), 1)
        if self.cluster != "local" and "%" in str(self.folder.absolute()):
            raise UserError(
                "Slurm takes % in the name of a folder for a pattern such as %j, and would write "
                f"to another folder: set hydra.sweep.dir to another folder than {self.folder}"
            )
        seconds(1 if self.poll is None else self.poll, "hydra.launcher.poll", "5s")
        if isinstance(self.setup, str) or not isinstance(self.additional_parameters, Mapping):
            raise UserError(
                "hydra.launcher.setup must be a list of lines, "
                "and additional_parameters a map of sbatch's options"
            )
        _ = self.limits  # raises an error if a limit cannot be read

    @property
    def limits(self) -> Limits:
        return limits_of(self.time_limit, self.memory_limit)

    def taken_over(self, folder: Path) -> frozenset[int]:
        """Return the numbers of jobs in tasks that an earlier sweep has submitted."""
        _, tasks = _read_tasks_file(folder / TASKS_FILE)
        return frozenset(number for jobs in tasks.values() for number, _ in jobs)

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run the jobs and yield their outcomes.

        Tasks that an earlier sweep in this folder has left are waited for and not started again.

        Raises
        ------
        ImportError
            If submitit is not installed.
        EngineStopped
            If Slurm is not installed, refuses the tasks, or does not answer. Tasks that were
            submitted go on.
        """
        submission = LocalSubmission(self) if self.cluster == "local" else Submission(self)
        book = TaskBook(self, submission)
        try:
            yield from book.outcomes(jobs)
        except EngineStopped:
            raise
        except BaseException:
            with deferred_interrupt():
                submission.cancel(book.tasks)
                book.clear()
            raise
        book.clear()

    @property
    def at_a_time(self) -> int:
        """Number of tasks that may run at a time."""
        if self.workers:
            return self.workers
        return self.array_size if self.cluster == "slurm" else n_cores()

    @property
    def minutes(self) -> int | None:
        """Time limit of a task [min]; it is so long that the limits of its jobs end them before."""
        if self.limits.time is None:
            return None
        job_time = self.jobs_per_task * (self.limits.time + TIMER_DELAY)
        task_time = job_time + MAX_START_TIME + WARNING_TIME + MAX_EARLY_SIGNAL
        return math.ceil(task_time / 60)


class Submission:
    """Submits arrays of Slurm tasks, queries which tasks are not over, and cancels them.

    Raises
    ------
    ImportError, EngineStopped
        As `SlurmQueue.run`.
    """

    poll = 5.0  # s between two queries, unless the user sets it
    file_delay = 15.0  # s after the end of a task until all its files are visible here
    executor: Any  # submitit's executor

    def __init__(self, settings: SlurmQueue) -> None:
        commands = ("sbatch", "srun", "squeue", "scancel")
        missing = [command for command in commands if shutil.which(command) is None]
        if missing:
            raise EngineStopped(
                f"hydra/launcher=slurm needs Slurm's {', '.join(missing)}, not found on PATH: "
                "start the sweep on a login node of the cluster, "
                "or try it on this machine with hydra.launcher.cluster=local"
            )
        memory = None
        if settings.limits.memory is not None:
            # More than the limit of the job, so that the job itself can report that it exceeds it.
            memory = f"{math.ceil(1.1 * settings.limits.memory / 2**20) + 200}M"
        cpus = settings.cpus_per_task
        # Only the fits of a free run use several cores.
        environment = ONE_THREAD | {"PYTHON_CPU_COUNT": str(cpus)}
        exports = [f"export {name}={value}" for name, value in environment.items()]
        name = f"sysid-{hashlib.sha256(os.fsencode(settings.folder)).hexdigest()[:8]}"
        self.executor = _submitit().SlurmExecutor((settings.folder / TASKS_FILE).parent)
        self.executor.update_parameters(
            job_name=name,
            cpus_per_task=cpus,
            time=settings.minutes,
            mem=memory,
            # The sweep itself runs lost jobs again.
            additional_parameters={"no-requeue": True, **settings.additional_parameters},
            srun_args=[f"--cpus-per-task={cpus}"],  # srun does not take it from sbatch
            setup=[*exports, *map(str, settings.setup)],
            partition=settings.partition,
            account=settings.account,
            qos=settings.qos,
            constraint=settings.constraint,
            wckey=None,
            signal_delay_s=WARNING_TIME,
        )
        self._squeue = (
            "squeue",
            f"--user={os.getuid()}",
            f"--name={name}",
            "--array",
            "--noheader",
            "--format=%i %T",
        )

    def send(self, batches: Sequence[Sequence[Job]], at_a_time: int) -> list[str]:
        """Submit a task for each batch of jobs, and return the names of the tasks.

        Raises
        ------
        RuntimeError, OSError
            If Slurm refuses the tasks.
        """
        self.executor.update_parameters(array_parallelism=at_a_time)
        with redirect_stderr(io.StringIO()):  # the exception repeats what sbatch prints
            return [str(task.job_id) for task in self.executor.map_array(perform, batches)]

    def query_tasks(self, known: Collection[str]) -> dict[str, bool] | None:
        """Return the tasks of this sweep that are not over, and whether each has started.

        Return None if squeue does not answer. A task is listed as soon as sbatch has answered, and
        also if it is not among the known tasks.
        """
        lines = _run_command(*self._squeue)
        if lines is None:
            return None
        has_started = {}
        for line in lines:
            name, state = line.split()
            has_started[name] = state not in WAITING_STATES
        return has_started

    def room(self, n_tasks: int, at_a_time: int, array_size: int) -> int:
        """Return how many tasks may be submitted, while `n_tasks` are not over.

        A whole array is submitted when only the last tasks of the one before are left.
        """
        return array_size if n_tasks <= at_a_time // 4 else 0

    def end(self, names: Sequence[str]) -> None:
        """Request that tasks end at once."""
        _run_command("scancel", *names)

    def cancel(self, known: Collection[str], spared: Collection[str] = ()) -> None:
        """End all tasks of this sweep except the spared ones, and wait until they have ended."""
        end = time.monotonic() + CANCEL_TIMEOUT
        while time.monotonic() < end:
            tasks = self.query_tasks(known)
            names = [name for name in tasks or () if name not in spared]
            if names:
                self.end(names)
            elif tasks is not None:
                return
            time.sleep(min(self.poll, 1.0))

    def error(self, name: str) -> str:
        """Return the error that a finished task has raised, in one line; empty without an error."""
        try:
            task = self._task(name)
            error = task.exception() if task.paths.result_pickle.exists() else None
        except Exception as broken:  # an incomplete file may raise any error
            return f"what it returned cannot be read ({type(broken).__name__})"
        lines = [
            line for line in str(error or "").splitlines() if line[:1].isalpha() and ": " in line
        ]
        return lines[-1] if lines else ""

    def log(self, name: str) -> Path:
        """Return the file with the standard error of a task."""
        return Path(self._task(name).paths.stderr)

    def clear(self, name: str, with_logs: bool) -> None:
        """Remove the files that submitit has written for a finished task."""
        paths = self._task(name).paths
        logs = [paths.stdout, paths.stderr] if with_logs else []
        for path in [paths.submitted_pickle, paths.result_pickle, *logs]:
            path.unlink(missing_ok=True)

    def _task(self, name: str) -> Any:
        """Return submitit's object for a task."""
        return self.executor.job_class(self.executor.folder, job_id=name)


class LocalSubmission(Submission):
    """Runs tasks as processes of this machine instead of Slurm tasks."""

    poll = 0.1
    file_delay = 0.0

    def __init__(self, settings: SlurmQueue) -> None:
        self.executor = _submitit().LocalExecutor((settings.folder / TASKS_FILE).parent)
        self.executor.update_parameters(
            timeout_min=settings.minutes or UNLIMITED_MINUTES, signal_delay_s=WARNING_TIME
        )
        self._children: dict[str, Any] = {}

    def send(self, batches: Sequence[Sequence[Job]], at_a_time: int) -> list[str]:
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(ONE_THREAD)
        try:
            tasks = {}
            for batch in batches:
                task = self.executor.submit(perform, batch)
                tasks[str(task.job_id)] = task
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value
        self._children |= tasks
        return list(tasks)

    def query_tasks(self, known: Collection[str]) -> dict[str, bool]:
        """Return the running child processes, and known tasks that an earlier sweep has left."""
        others = [name for name in known if name not in self._children and self._is_task(name)]
        self._children = {name: task for name, task in self._children.items() if not task.done()}
        return dict.fromkeys([*self._children, *others], True)

    def room(self, n_tasks: int, at_a_time: int, array_size: int) -> int:
        """Return how many tasks may be started in addition to those that run."""
        return min(at_a_time - n_tasks, array_size)

    def end(self, names: Sequence[str]) -> None:
        """Send SIGTERM to submitit's controller of each task, which ends the task."""
        for name in names:
            with suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGTERM)

    def _is_task(self, name: str) -> bool:
        """Return whether a process is a task of this folder.

        A later process may have the same number.
        """
        try:
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return LOCAL_PROCESS in arguments and os.fsencode(self.executor.folder) in arguments


def perform(batch: Sequence[Job]) -> None:
    """Run the jobs of a task one after the other, in its process.

    Raises
    ------
    OSError
        If the outcome of a job could not be stored.
    """
    signal.signal(signal.SIGUSR2, _raise_timeout)
    # With this handler cancelled tasks end at once; submitit's handler waits for SIGKILL.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for outcome in [execute(job) for job in batch]:
        if not outcome.stored:
            raise OSError(
                f"the outcome of job {outcome.number} could not be stored ({outcome.error})"
            )


def _raise_timeout(number: int, frame: FrameType | None) -> None:
    """Raise TimeoutError when Slurm signals that the time of the task is nearly over."""
    raise TimeoutError(
        "Slurm's time limit of the task is over: raise it, "
        "or limit jobs by hydra.launcher.time_limit"
    )


class Task:
    """A submitted task."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)  # jobs that have not ended
        self.attempts = {job.number: count_attempts(job.folder) for job in jobs}
        self.end_time: float | None = None  # s; time at which the task was first found to be over


class TaskBook:
    """Keeps account of the jobs of a sweep that wait, and of the tasks that are submitted."""

    def __init__(self, settings: SlurmQueue, submission: Submission) -> None:
        self.tasks: dict[str, Task] = {}  # submitted tasks by name
        self._settings = settings
        self._submission = submission
        self._tasks_file = settings.folder / TASKS_FILE
        self._waiting: deque[Job] = deque()
        #: number of tasks that ended before any of their jobs had started, by job
        self._ended_unstarted: Counter[int] = Counter()
        self._was_refused = False  # whether the last submission was refused
        self._keeps_logs = False  # whether a task has died, so that its log is kept
        self._last_answer = time.monotonic()

    def outcomes(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run the jobs and yield their outcomes when they are known."""
        yield from self._resume(jobs)
        interval = self._submission.poll
        if self._settings.poll is not None:
            interval = seconds(self._settings.poll)
        while self._waiting or self.tasks:
            self._submit()
            time.sleep(interval)
            has_started = self._submission.query_tasks(self.tasks)
            if has_started is not None:
                self._last_answer = time.monotonic()
                for name in list(self.tasks):
                    yield from self._check_task(name, has_started)
            elif time.monotonic() - self._last_answer > MAX_SILENCE:
                raise EngineStopped(
                    f"squeue has not answered for {MAX_SILENCE / 60:g} min; "
                    "running tasks go on, and the same command finds them again"
                )

    def clear(self) -> None:
        """Remove the files of the tasks, except for the logs of tasks that have died."""
        folder = self._tasks_file.parent
        if not self._keeps_logs:
            shutil.rmtree(folder, ignore_errors=True)
            return
        for path in [*folder.glob("*.pkl*"), *folder.glob(".submission*"), self._tasks_file]:
            path.unlink(missing_ok=True)

    def _resume(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Take over tasks of an earlier sweep, and yield outcomes that they have stored.

        Tasks with jobs that are no longer wanted are cancelled. All other jobs wait to be
        submitted.
        """
        remaining = {job.number: job for job in jobs}
        if self._tasks_file.parent.exists():
            self._take_over_tasks(remaining)
        for job in remaining.values():
            folder = Path(job.folder)
            content = read_outcome(folder)
            outcome = outcome_in(folder)
            if content is not None and outcome is not None and content["identity"] == job.identity:
                yield outcome  # the job has ended since the sweep was started
                continue
            with suppress(OSError):
                forget(folder)
            self._waiting.append(job)

    def _take_over_tasks(self, remaining: dict[int, Job]) -> None:
        """Take over tasks of an earlier sweep, and remove their jobs from the remaining ones.

        A task is taken over if all its remaining jobs have the same identity as before. The other
        tasks are cancelled.
        """
        cluster, recorded = _read_tasks_file(self._tasks_file)
        if cluster not in ("", self._settings.cluster):
            raise EngineStopped(
                f"tasks with hydra.launcher.cluster={cluster} may still run: "
                f"resume with that setting, or remove {self._tasks_file.parent} if no task runs"
            )
        running = self._submission.query_tasks(recorded)
        if running is None:
            raise EngineStopped(
                "squeue does not answer, and tasks of this sweep may still run: try again later"
            )
        for name in running:
            identities = {
                number: identity
                for number, identity in recorded.get(name, [])
                if number in remaining
            }
            is_unchanged = all(
                remaining[number].identity == identity for number, identity in identities.items()
            )
            if identities and is_unchanged:
                self.tasks[name] = Task([remaining.pop(number) for number in identities])
        self._submission.cancel(recorded, spared=self.tasks)

    def _submit(self) -> None:
        """Submit as many tasks as there is room for."""
        at_a_time = self._settings.at_a_time
        size = self._settings.jobs_per_task
        room = self._submission.room(len(self.tasks), at_a_time, self._settings.array_size)
        if not self._waiting or room < 1 or (self._was_refused and self.tasks):
            return
        n_jobs = min(room * size, len(self._waiting))
        jobs = [self._waiting.popleft() for _ in range(n_jobs)]
        tasks = [Task(jobs[start : start + size]) for start in range(0, n_jobs, size)]
        batches = [tuple(task.jobs) for task in tasks]
        # An interrupt must not come between the submission of tasks and the record of their names.
        with deferred_interrupt(), no_interrupt_for_children():
            try:
                names = self._submission.send(batches, at_a_time - len(self.tasks))
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                self._waiting.extendleft(reversed(jobs))
                self._was_refused = True
                if not self.tasks:
                    reason = " ".join(str(error).split()) or type(error).__name__
                    raise EngineStopped(f"tasks could not be submitted: {reason}") from None
                return
            self._was_refused = False
            self.tasks |= dict(zip(names, tasks, strict=True))
            with suppress(OSError):  # the next sweep cancels tasks that are not recorded
                self._write_tasks_file()

    def _write_tasks_file(self) -> None:
        """Record the jobs of every submitted task."""
        recorded = {
            name: [[job.number, job.identity] for job in task.jobs]
            for name, task in self.tasks.items()
        }
        content = {
            "schema": "tasks",
            "schema_version": 1,
            "cluster": self._settings.cluster,
            "tasks": recorded,
        }
        store.write_bytes(json.dumps(content).encode(), self._tasks_file)

    def _check_task(self, name: str, has_started: Mapping[str, bool]) -> Iterator[Outcome]:
        """Yield the outcomes that a task has stored since the last check.

        `has_started` holds the tasks that are not over. If the task is over, it is removed.
        """
        is_over = name not in has_started
        if not is_over and not has_started[name]:
            return
        task = self.tasks[name]
        for job in list(task.jobs):
            if is_over:
                with suppress(OSError):
                    os.listdir(job.folder)  # makes a network file system update the folder
            outcome = outcome_in(Path(job.folder))
            if outcome is not None:
                task.jobs.remove(job)
                yield outcome
        if is_over:
            task.end_time = task.end_time or time.monotonic()
            has_waited = time.monotonic() - task.end_time >= self._submission.file_delay
            if not task.jobs or has_waited:
                yield from self._remove_task(name)

    def _remove_task(self, name: str) -> Iterator[Outcome]:
        """Remove a task that is over.

        Jobs that it has not finished are submitted once more, and fail after the second attempt.
        """
        task = self.tasks.pop(name)
        attempts = {job.number: count_attempts(job.folder) for job in task.jobs}
        if all(attempts[number] <= task.attempts[number] for number in attempts):
            self._ended_unstarted.update(list(attempts))
        failed = [
            job
            for job in task.jobs
            if attempts[job.number] + self._ended_unstarted[job.number] >= MAX_ATTEMPTS
        ]
        self._waiting.extendleft(job for job in reversed(task.jobs) if job not in failed)
        if task.jobs:
            self._keeps_logs = True
        if failed:
            error = self._submission.error(name) or DIED_TWICE
            reason = f"{error}; log: {self._submission.log(name)}"
            for job in failed:
                yield Outcome(job.number, False, error=reason)
        self._submission.clear(name, with_logs=not task.jobs)


def _read_tasks_file(path: Path) -> tuple[str, dict[str, Any]]:
    """Read the cluster of an earlier sweep, and the numbers and identities of the jobs by task.

    Both are empty if there is no file that can be read.
    """
    try:
        content = json.loads(path.read_bytes())
        return content["cluster"], content["tasks"]
    except (OSError, ValueError, LookupError):
        return "", {}


def _submitit() -> Any:
    """Import submitit so that it does not change the logging of this process."""
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    except ImportError:
        raise ImportError(
            'hydra/launcher=slurm needs submitit: pip install -e ".[slurm]"'
        ) from None
    return submitit


def _run_command(*command: str) -> list[str] | None:
    """Return the lines that a command of Slurm prints; None if it fails.

    Ctrl-C does not reach the command.
    """
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=60, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if result.returncode != 0:
        return None
    return [line for line in result.stdout.splitlines() if line.strip()]
