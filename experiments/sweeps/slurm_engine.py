"""Tasks of a Slurm cluster, through submitit: each runs a few jobs one after the other in a process
of its own.

A task outlives the sweep that has submitted it. How a job has ended is read from its folder, and
which task has which jobs is noted in a file: so the same command takes over the tasks of a sweep
that was killed.
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
from experiments.sweeps.engines import TASKS, Engine, EngineStopped
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
    ATTEMPTS_ALLOWED,
    DIED_TWICE,
    GRACE,
    ONE_THREAD,
    execute,
    limits_of,
)
from sysid import store
from sysid.beside import n_cores
from sysid.errors import UserError

CLUSTERS = ("slurm", "local")
START = 60.0  # s; a task may take that long to start Python from a slow file system
SLURM_EARLY = 60.0  # s; Slurm sends its signal up to that much earlier than asked
WARNING_AHEAD = 30  # s that SIGUSR2 comes before the end of a task
ENDLESS = 10 * 365 * 24 * 60  # min
PATIENCE = 30.0  # s; cancelled tasks that last longer are left to Slurm
MOST_SILENCE = 900.0  # s in which squeue does not answer
WAITING = {
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
}


@dataclass(frozen=True)
class SlurmQueue(Engine):
    """Arrays of tasks."""

    # or "local": processes of this machine, to try it; what is Slurm's has no effect there
    cluster: str = "slurm"
    workers: int | None = None  # tasks at a time; None: as many as Slurm starts (local: all cores)
    jobs_per_task: int = 1
    cpus_per_task: int = 1
    time_limit: float | str | None = None  # of a job
    memory_limit: float | str | None = None  # of a job
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    setup: Sequence[str] = field(default_factory=list)  # lines of shell before the jobs
    additional_parameters: Mapping[str, Any] = field(
        default_factory=dict
    )  # of sbatch, name -> value
    array_size: int = 1000  # tasks
    poll: float | str | None = None  # s between two looks at the queue; None: 5 (local: 0.1)

    def __post_init__(self) -> None:
        if self.cluster not in CLUSTERS:
            raise UserError(
                f"hydra.launcher.cluster must be one of {', '.join(CLUSTERS)}, got {self.cluster!r}"
            )
        for name in ("workers", "jobs_per_task", "cpus_per_task", "array_size"):
            if name != "workers" or self.workers is not None:
                whole(f"hydra.launcher.{name}", getattr(self, name), 1)
        if self.cluster != "local" and "%" in str(self.folder.absolute()):
            why = "Slurm takes % in the folder of a sweep for a pattern, as in its %j, and writes elsewhere"
            raise UserError(f"{why}: set hydra.sweep.dir to another one than {self.folder}")
        seconds(1 if self.poll is None else self.poll, "hydra.launcher.poll", "5s")
        if isinstance(self.setup, str) or not isinstance(self.additional_parameters, Mapping):
            raise UserError(
                "hydra.launcher.setup is a list of lines, additional_parameters a map of sbatch's options"
            )
        _ = self.limits

    @property
    def limits(self) -> Limits:
        return limits_of(self.time_limit, self.memory_limit)

    def taken_over(self, folder: Path) -> frozenset[int]:
        """Jobs of tasks that were noted as submitted."""
        _, tasks = _read_notes(folder / TASKS)
        return frozenset(number for jobs in tasks.values() for number, _ in jobs)

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run the jobs; tasks that an earlier sweep in this folder has left are waited for, not
        started anew.

        Raises
        ------
        ImportError
            If submitit is not installed.
        EngineStopped
            If there is no Slurm, if it refuses the tasks, or does not answer; tasks that are there
            go on.
        """
        submission = (LocalSubmission if self.cluster == "local" else Submission)(self)
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
        """Tasks that may run at a time."""
        return self.workers or (self.array_size if self.cluster == "slurm" else n_cores())

    @property
    def minutes(self) -> int | None:
        """Time limit of a task [min] that its jobs cannot use up: they are ended before."""
        if self.limits.time is None:
            return None
        most = self.jobs_per_task * (self.limits.time + GRACE) + START + WARNING_AHEAD + SLURM_EARLY
        return math.ceil(most / 60)


class Submission:
    """Submits tasks as arrays of Slurm, sees which are there, and cancels them.

    Raises
    ------
    ImportError, EngineStopped
        As `SlurmQueue.run`.
    """

    poll = 5.0  # s between two looks, unless set
    # s after the end of a task in which the files that it has written may still come into sight
    settle = 15.0
    executor: Any  # of submitit

    def __init__(self, settings: SlurmQueue) -> None:
        if missing := [
            name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None
        ]:
            start = "start the sweep on a login node of the cluster"
            advice = f"{start}, or try it on this machine with hydra.launcher.cluster=local"
            raise EngineStopped(
                f"hydra/launcher=slurm needs Slurm's {', '.join(missing)}, not found on PATH: {advice}"
            )
        memory = settings.limits.memory
        cpus = settings.cpus_per_task
        environment = ONE_THREAD | {
            "PYTHON_CPU_COUNT": str(cpus)
        }  # the fits of a free run use all that were asked for
        name = f"sysid-{hashlib.sha256(os.fsencode(settings.folder)).hexdigest()[:8]}"
        self.executor = _submitit().SlurmExecutor((settings.folder / TASKS).parent)
        self.executor.update_parameters(
            job_name=name,
            cpus_per_task=cpus,
            time=settings.minutes,
            mem=None if memory is None else f"{math.ceil(1.1 * memory / 2**20) + 200}M",
            additional_parameters={"no-requeue": True}
            | dict(settings.additional_parameters),  # retries are ours
            srun_args=[f"--cpus-per-task={cpus}"],  # srun does not take it from sbatch
            setup=[
                *(f"export {name}={value}" for name, value in environment.items()),
                *map(str, settings.setup),
            ],
            **{
                option: getattr(settings, option)
                for option in ("partition", "account", "qos", "constraint")
            },
            wckey=None,
            signal_delay_s=WARNING_AHEAD,
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
        """Submit a task for each batch of jobs; the names of the tasks.

        Raises
        ------
        RuntimeError, OSError
            If they are refused.
        """
        self.executor.update_parameters(array_parallelism=at_a_time)
        with redirect_stderr(io.StringIO()):  # what sbatch says is in the exception too
            return [str(task.job_id) for task in self.executor.map_array(perform, batches)]

    def there(self, known: Collection[str]) -> dict[str, bool] | None:
        """Tasks of this sweep that are not over, known or not: whether each has started; None:
        nobody can say now.

        squeue knows a task as soon as sbatch has answered.
        """
        lines = _answer(*self._squeue)
        if lines is None:
            return None
        return {name: state not in WAITING for name, state in (line.split() for line in lines)}

    def room(self, n_tasks: int, most: int, largest: int) -> int:
        """How many tasks may be sent while so many are there, of which `most` run at a time.

        An array at a time, and the next one when the last tasks of the one before run.
        """
        return largest if n_tasks <= most // 4 else 0

    def end(self, names: Sequence[str]) -> None:
        """Ask tasks to end at once."""
        _answer("scancel", *names)

    def cancel(self, known: Collection[str], spared: Collection[str] = ()) -> None:
        """End all tasks of this sweep but those that are spared, and wait until they are gone."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            there = self.there(known)
            names = [name for name in there or () if name not in spared]
            if names:
                self.end(names)
            elif there is not None:
                return
            time.sleep(min(self.poll, 1.0))

    def error(self, name: str) -> str:
        """Return what a task that is over has raised, in a line; empty if it has said nothing."""
        try:
            error = (
                self._job(name).exception()
                if self._job(name).paths.result_pickle.exists()
                else None
            )
        except Exception as broken:  # a file that was not written to its end may raise anything
            return f"what it returned cannot be read ({type(broken).__name__})"
        lines = [
            line for line in str(error or "").splitlines() if line[:1].isalpha() and ": " in line
        ]
        return lines[-1] if lines else ""

    def log(self, name: str) -> Path:
        """Return the file of the standard error of a task."""
        return Path(self._job(name).paths.stderr)

    def clear(self, name: str, with_logs: bool) -> None:
        """Remove what submitit has written for a task that is over."""
        paths = self._job(name).paths
        logs = [paths.stdout, paths.stderr] if with_logs else []
        for path in [paths.submitted_pickle, paths.result_pickle, *logs]:
            path.unlink(missing_ok=True)

    def _job(self, name: str) -> Any:
        return self.executor.job_class(self.executor.folder, job_id=name)


class LocalSubmission(Submission):
    """Processes of this machine instead."""

    poll = 0.1
    settle = 0.0

    def __init__(self, settings: SlurmQueue) -> None:
        self.executor = _submitit().LocalExecutor((settings.folder / TASKS).parent)
        self.executor.update_parameters(
            timeout_min=settings.minutes or ENDLESS, signal_delay_s=WARNING_AHEAD
        )
        self._children: dict[str, Any] = {}

    def send(self, batches: Sequence[Sequence[Job]], at_a_time: int) -> list[str]:
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(ONE_THREAD)
        try:
            tasks = {
                str(task.job_id): task
                for task in (self.executor.submit(perform, batch) for batch in batches)
            }
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        self._children |= tasks
        return list(tasks)

    def there(self, known: Collection[str]) -> dict[str, bool]:
        """Own children, and processes that an earlier sweep has left."""
        others = [name for name in known if name not in self._children and self._is_task(name)]
        self._children = {name: task for name, task in self._children.items() if not task.done()}
        return dict.fromkeys([*self._children, *others], True)

    def room(self, n_tasks: int, most: int, largest: int) -> int:
        """As many as there are places."""
        return min(most - n_tasks, largest)

    def end(self, names: Sequence[str]) -> None:
        """Tell the controller, which tells the task."""
        for name in names:
            with suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGTERM)

    def _is_task(self, name: str) -> bool:
        """Whether the process of this number is a task of this folder, and not a later one of the
        same number.
        """
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"submitit.local._local" in words and os.fsencode(self.executor.folder) in words


def perform(batch: Sequence[Job]) -> None:
    """Run the jobs of a task, in its process.

    Raises
    ------
    OSError
        If the outcome of a job could not be stored.
    """
    signal.signal(signal.SIGUSR2, _tell_that_time_is_over)
    signal.signal(
        signal.SIGTERM, signal.SIG_DFL
    )  # cancelled tasks end at once; submitit has them wait for SIGKILL
    for outcome in [execute(job) for job in batch]:
        if not outcome.stored:
            raise OSError(
                f"the outcome of job {outcome.number} could not be stored ({outcome.error})"
            )


def _tell_that_time_is_over(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(
        "Slurm's time limit of the task is over: raise it, or limit jobs by hydra.launcher.time_limit"
    )


class Task:
    """A task in the queue, as it was submitted."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)  # without those that have ended
        self.attempts = {job.number: count_attempts(job.folder) for job in jobs}
        self.gone: float | None = None  # s; when it was first seen to be over


class TaskBook:
    """What of a sweep is waiting, submitted and over."""

    def __init__(self, settings: SlurmQueue, submission: Submission) -> None:
        self.tasks: dict[str, Task] = {}
        self._settings = settings
        self._submission = submission
        self._notes = settings.folder / TASKS
        self._waiting: deque[Job] = deque()
        self._in_vain: Counter[int] = (
            Counter()
        )  # tasks that died before any of their jobs had started, by job
        self._refused = self._logs = False
        self._heard = time.monotonic()

    def outcomes(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Outcomes as they come."""
        yield from self._resume(jobs)
        while self._waiting or self.tasks:
            self._submit()
            time.sleep(
                self._submission.poll
                if self._settings.poll is None
                else seconds(self._settings.poll)
            )
            there = self._submission.there(self.tasks)
            if there is not None:
                self._heard = time.monotonic()
                for name in list(self.tasks):
                    yield from self._look(name, there)
            elif time.monotonic() - self._heard > MOST_SILENCE:
                raise EngineStopped(
                    f"squeue has not answered for {MOST_SILENCE / 60:g} min; tasks that run go on, and the same "
                    "command finds them again"
                )

    def clear(self) -> None:
        """Remove everything but the logs of tasks that died."""
        folder = self._notes.parent
        if not self._logs:
            shutil.rmtree(folder, ignore_errors=True)
            return
        for path in [*folder.glob("*.pkl*"), *folder.glob(".submission*"), self._notes]:
            path.unlink(missing_ok=True)

    def _resume(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Take over what is left of an earlier sweep, as far as it does what is asked for; cancel
        the rest.
        """
        left = {job.number: job for job in jobs}
        if self._notes.parent.exists():
            cluster, noted = _read_notes(self._notes)
            if cluster not in ("", self._settings.cluster):
                raise EngineStopped(
                    f"tasks with hydra.launcher.cluster={cluster} may still run: resume with that setting, or remove "
                    f"{self._notes.parent} if none does"
                )
            if (there := self._submission.there(noted)) is None:
                raise EngineStopped(
                    "squeue does not answer, and tasks of this sweep may still run: try again later"
                )
            for name in there:
                known = [
                    (left[number], identity)
                    for number, identity in noted.get(name, [])
                    if number in left
                ]
                if known and all(
                    job.identity == identity for job, identity in known
                ):  # it does what is asked for
                    self.tasks[name] = Task([left.pop(job.number) for job, _ in known])
            self._submission.cancel(noted, spared=self.tasks)
        for job in left.values():
            folder = Path(job.folder)
            content = read_outcome(folder)
            outcome = outcome_in(folder)
            if content is not None and outcome is not None and content["identity"] == job.identity:
                yield outcome  # a task has ended since the sweep looked
                continue
            with suppress(OSError):
                forget(folder)
            self._waiting.append(job)

    def _submit(self) -> None:
        """Send as many tasks as there is room for."""
        most = self._settings.at_a_time
        size = self._settings.jobs_per_task
        room = self._submission.room(len(self.tasks), most, self._settings.array_size)
        if not self._waiting or room < 1 or (self._refused and self.tasks):
            return
        chosen = [self._waiting.popleft() for _ in range(min(room * size, len(self._waiting)))]
        tasks = [Task(chosen[start : start + size]) for start in range(0, len(chosen), size)]
        with (
            deferred_interrupt(),
            no_interrupt_for_children(),
        ):  # what is sent is noted, or nobody would find it
            try:
                names = self._submission.send(
                    [tuple(task.jobs) for task in tasks], most - len(self.tasks)
                )
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                self._waiting.extendleft(reversed(chosen))
                self._refused = True
                if not self.tasks:
                    said = " ".join(str(error).split()) or type(error).__name__
                    raise EngineStopped(f"tasks could not be submitted: {said}") from None
                return
            self._refused = False
            self.tasks |= dict(zip(names, tasks, strict=True))
            noted = {
                name: [[job.number, job.identity] for job in task.jobs]
                for name, task in self.tasks.items()
            }
            content = {
                "schema": "tasks",
                "schema_version": 1,
                "cluster": self._settings.cluster,
                "tasks": noted,
            }
            with suppress(OSError):  # tasks that are not noted are cancelled by the next sweep
                store.write_bytes(json.dumps(content).encode(), self._notes)

    def _look(self, name: str, there: Mapping[str, bool]) -> Iterator[Outcome]:
        """Outcomes that a task has stored since the last look; its end."""
        if not there.get(name, True):
            return
        task = self.tasks[name]
        over = name not in there
        for job in list(task.jobs):
            if over:
                with suppress(OSError):
                    os.listdir(job.folder)  # a network file system looks again
            if (outcome := outcome_in(Path(job.folder))) is not None:
                task.jobs.remove(job)
                yield outcome
        if over:
            task.gone = task.gone or time.monotonic()
            if not task.jobs or time.monotonic() - task.gone >= self._submission.settle:
                yield from self._ended(name, self.tasks.pop(name))

    def _ended(self, name: str, task: Task) -> Iterator[Outcome]:
        """Send the jobs that a task has not finished once more; fail those that have lost two."""
        started = {job.number: count_attempts(job.folder) for job in task.jobs}
        if all(started[number] <= task.attempts[number] for number in started):
            self._in_vain.update(list(started))
        hopeless = [
            job
            for job in task.jobs
            if started[job.number] + self._in_vain[job.number] >= ATTEMPTS_ALLOWED
        ]
        self._waiting.extendleft(job for job in reversed(task.jobs) if job not in hopeless)
        self._logs |= bool(task.jobs)
        if hopeless:
            submission = self._submission
            reason = f"{submission.error(name) or DIED_TWICE}; log: {submission.log(name)}"
            yield from (Outcome(job.number, False, error=reason) for job in hopeless)
        self._submission.clear(name, with_logs=not task.jobs)


def _read_notes(path: Path) -> tuple[str, dict[str, Any]]:
    """Cluster of an earlier sweep, and number and identity of the jobs of each task; empty if it
    left no notes.
    """
    try:
        content = json.loads(path.read_bytes())
        return content["cluster"], content["tasks"]
    except (OSError, ValueError, LookupError):
        return "", {}


def _submitit() -> Any:
    """Import submitit, which leaves the logs of this process as they are."""
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    except ImportError:
        raise ImportError(
            'hydra/launcher=slurm needs submitit: pip install -e ".[slurm]"'
        ) from None
    return submitit


def _answer(*command: str) -> list[str] | None:
    """Lines that a command of Slurm prints, away from Ctrl-C; None if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (
        [line for line in done.stdout.splitlines() if line.strip()]
        if done.returncode == 0
        else None
    )
