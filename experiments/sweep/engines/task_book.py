"""Which task has which jobs: what is to be submitted, what is there, what has become of it.

How a job has ended is read from its folder, so tasks that outlive the sweep that has submitted them are no loss: they
are noted in a file, and the same command takes them over.
"""

import json
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.sweep.engine import TASKS, EngineStopped
from experiments.sweep.engines.submission import Submission
from experiments.sweep.execution import ATTEMPTS_ALLOWED, DIED_TWICE
from experiments.sweep.job import Job, Outcome
from experiments.sweep.outcome import attempts, forget, kept, outcome_of
from sysid import store

NOTES = Path(TASKS).name
MOST_SILENCE = 900.0  # s


@dataclass
class _Task:
    """A task in the queue."""

    jobs: list[Job]  # without those that have ended
    attempts: dict[int, int]  # of each job when the task was submitted
    gone: float | None = None  # s; when it was first seen to be over


class TaskBook:
    """What of a sweep is waiting, submitted and over.

    Parameters
    ----------
    submission : Submission
        Where tasks are sent.
    at_a_time : int
        Tasks that may run at a time.
    jobs_per_task, array_size : int
        Jobs of a task, tasks of an array.
    poll : float
        Time between two looks [s].
    """

    def __init__(
        self, submission: Submission, at_a_time: int, jobs_per_task: int, array_size: int, poll: float
    ) -> None:
        self.tasks: dict[str, _Task] = {}
        self._submission = submission
        self._folder = Path(submission.executor.folder)
        self._at_a_time = at_a_time
        self._jobs_per_task = jobs_per_task
        self._array_size = array_size
        self._poll = poll
        self._waiting: deque[Job] = deque()
        self._in_vain: Counter[int] = Counter()  # tasks that died before any of their jobs had started, by job
        self._refused = False
        self._logs = False
        self._heard = time.monotonic()

    def outcomes(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Outcomes as they come."""
        yield from self._resume(jobs)
        while self._waiting or self.tasks:
            self._submit()
            time.sleep(self._poll)
            if (there := self._there()) is not None:
                for name in list(self.tasks):
                    yield from self._look(name, there)

    def clear(self) -> None:
        """Remove everything but the logs of tasks that died."""
        if not self._logs:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for path in [*self._folder.glob("*.pkl*"), *self._folder.glob(".submission*"), self._folder / NOTES]:
            path.unlink(missing_ok=True)

    def _resume(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Take over what is left of an earlier sweep, as far as it does what is asked for; cancel the rest."""
        left: dict[int, Job] = {job.number: job for job in jobs}
        if self._folder.exists():
            noted = self._noted()
            if (there := self._submission.there(noted)) is None:
                raise EngineStopped("squeue does not answer, and tasks of this sweep may still run: try again later")
            for name in there:
                mine = [left[number] for number, identity in noted.get(name, []) if _same(left.get(number), identity)]
                if mine and not any(number in left and left[number] not in mine for number, _ in noted[name]):
                    self.tasks[name] = _Task(mine, {job.number: _attempts(job) for job in mine})
            self._submission.cancel([name for name in there if name not in self.tasks])
            for job in (job for task in self.tasks.values() for job in task.jobs):
                left.pop(job.number, None)
        for job in left.values():
            content = kept(Path(job.folder))
            if content is not None and content["identity"] == job.identity:  # a task has ended since the sweep looked
                yield outcome_of(content, job.number)
                continue
            with suppress(OSError):
                forget(Path(job.folder))
            self._waiting.append(job)

    def _submit(self) -> None:
        """Send as many tasks as there is room for."""
        most, size = self._at_a_time, self._jobs_per_task
        room = self._submission.room(len(self.tasks), most, self._array_size)
        if not self._waiting or room < 1 or (self._refused and self.tasks):
            return
        chosen = [self._waiting.popleft() for _ in range(min(room * size, len(self._waiting)))]
        batches = [tuple(chosen[start : start + size]) for start in range(0, len(chosen), size)]
        before = {job.number: _attempts(job) for job in chosen}
        try:
            names = self._submission.send(batches, most - len(self.tasks))
        except (RuntimeError, OSError) as error:
            self._waiting.extendleft(reversed(chosen))
            self._refused = True
            if not self.tasks:
                said = " ".join(str(error).split()) or type(error).__name__
                raise EngineStopped(f"tasks could not be submitted: {said}") from None
            return
        self._refused = False
        for name, batch in zip(names, batches, strict=True):
            self.tasks[name] = _Task(list(batch), {job.number: before[job.number] for job in batch})
        self._note()

    def _there(self) -> dict[str, bool] | None:
        there = self._submission.there(self.tasks)
        if there is not None:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > MOST_SILENCE:
            raise EngineStopped(
                f"squeue has not answered for {MOST_SILENCE / 60:g} min; tasks that run go on, and the same command "
                "finds them again"
            )
        return there

    def _look(self, name: str, there: Mapping[str, bool]) -> Iterator[Outcome]:
        """Outcomes that a task has stored since the last look; its end."""
        task = self.tasks[name]
        if not there.get(name, True):
            return
        over = name not in there
        for job in list(task.jobs):
            if over:
                with suppress(OSError):
                    os.listdir(job.folder)  # a network file system looks again
            if (content := kept(Path(job.folder))) is not None:
                task.jobs.remove(job)
                yield outcome_of(content, job.number)
        if over:
            task.gone = task.gone or time.monotonic()
            if not task.jobs or time.monotonic() - task.gone >= self._submission.settle:
                yield from self._ended(name, self.tasks.pop(name))

    def _ended(self, name: str, task: _Task) -> Iterator[Outcome]:
        """Jobs that a task has not finished: those that it returned without storing, once more, or twice dead."""
        returned, error = self._submission.returned(name) if task.jobs else ([], "")
        yield from returned_of(task.jobs, returned)
        dead = [job for job in task.jobs if job.number not in {outcome.number for outcome in returned}]
        if all(_attempts(job) <= task.attempts[job.number] for job in dead):
            self._in_vain.update(job.number for job in dead)
        hopeless = [job for job in dead if _attempts(job) + self._in_vain[job.number] >= ATTEMPTS_ALLOWED]
        self._waiting.extendleft(job for job in reversed(dead) if job not in hopeless)
        self._logs |= bool(dead)
        self._submission.clear(name, with_logs=not dead)
        if hopeless:
            told = [DIED_TWICE, error, self._submission.fate(name), f"log: {self._submission.log(name)}"]
            reason = "; ".join(part for part in told if part)
            yield from (Outcome(job.number, False, error=reason) for job in hopeless)

    def _note(self) -> None:
        """Store which task has which jobs."""
        tasks = {name: [[job.number, job.identity] for job in task.jobs] for name, task in self.tasks.items()}
        content = {"schema": "tasks", "schema_version": 1, "cluster": self._submission.cluster, "tasks": tasks}
        with suppress(OSError):  # tasks that are not noted are cancelled by the next sweep
            store.write_bytes(json.dumps(content).encode(), self._folder / NOTES)

    def _noted(self) -> dict[str, list[tuple[int, str]]]:
        """What an earlier sweep has noted."""
        content = _read_notes(self._folder / NOTES)
        if content["cluster"] not in ("", self._submission.cluster):
            raise EngineStopped(
                f"tasks with hydra.launcher.cluster={content['cluster']} may still run: resume with that setting, or "
                f"remove {self._folder} if none does"
            )
        return dict(content["tasks"])


def noted_jobs(path: Path) -> frozenset[int]:
    """Numbers of the jobs that tasks were submitted with."""
    return frozenset(number for entries in _read_notes(path)["tasks"].values() for number, _ in entries)


def _read_notes(path: Path) -> dict[str, Any]:
    """Notes of an earlier sweep; empty ones if there are none that can be read."""
    try:
        content = json.loads(path.read_bytes())
        entries = {
            str(name): [(int(number), str(identity)) for number, identity in entries]
            for name, entries in content["tasks"].items()
        }
        return {"cluster": str(content["cluster"]), "tasks": entries}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {"cluster": "", "tasks": {}}


def returned_of(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """Outcomes of some jobs out of those of a task."""
    numbers = {job.number for job in jobs}
    yield from (outcome for outcome in outcomes if outcome.number in numbers)


def _same(job: Job | None, identity: str) -> bool:
    return job is not None and job.identity == identity


def _attempts(job: Job) -> int:
    return attempts(Path(job.folder))
