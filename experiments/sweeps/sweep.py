"""One sweep from end to end: compose all jobs, leave out what is finished, run the rest, tell."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from experiments.launch import interruptible
from experiments.sweeps.engines import TASKS, Engine, EngineStopped
from experiments.sweeps.identity import code_digest, file_digests, identity_of, text_digest
from experiments.sweeps.keys import Composer
from experiments.sweeps.report import Report, show_composing
from experiments.sweeps.store import (
    OUTCOME,
    Manifest,
    Outcome,
    damage,
    fetch,
    forget,
    hold,
    outcome_in,
    read_outcome,
    share,
)
from experiments.sweeps.task import Job, keep
from sysid import store

SUBDIR = "${hydra.job.num}"
RESULTS = "results"  # folder in the cache
UNSEEN = "its worker has stored a result that is not there: all machines need to see the folder of the sweep"


class Ended(Exception):
    """The sweep ended before all jobs were run, and has said so; carries the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Sweep:
    """What a launcher is asked for."""

    loader: ConfigLoader
    master: DictConfig  # configuration of the sweep
    task: str  # function of the command, "experiments.identify:main"
    engine: Callable[[Path], Engine]  # made for the folder of the sweep
    swept: Sequence[str] = ()  # keys that the command sweeps, if that is known

    @property
    def folder(self) -> Path:
        """Folder of the sweep."""
        return Path(str(self.master.hydra.sweep.dir)).absolute()

    def conduct(self, batch: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the jobs with these overrides that are not finished; the outcome of each, in their order.

        Raises
        ------
        ValueError, OSError
            Before the first job: keys and options that do not exist, a folder that belongs to something else, or to a
            sweep that is running.
        Ended
            After an interrupt, or when the engine cannot go on; what is finished is stored.
        """
        if not batch:
            raise ValueError("the sweep has no jobs: an empty range or list is swept")
        with self.opened() as session:
            return session.run(batch)

    @contextmanager
    def opened(self, planned: int | None = None) -> Iterator["Session"]:
        """Hold the folder while batches of jobs are run in it, with one progress line and one report at the end.

        Parameters
        ----------
        planned : int, optional
            Jobs of all batches together, if there are several.

        Raises
        ------
        ValueError, OSError, Ended
            As `conduct`.
        """
        subdir = OmegaConf.to_container(self.master.hydra.sweep, resolve=False)["subdir"]  # type: ignore[call-overload,index]
        if subdir != SUBDIR:
            raise ValueError(
                f"hydra.sweep.subdir={subdir} has no effect: the folders of jobs are numbered, so that each "
                "is found again; leave it out (sweep.json says which job has which number)"
            )
        engine = self.engine(self.folder)
        try:
            with interruptible() as check, hold(self.folder):
                manifest = Manifest.of(self.folder, str(self.master.hydra.job.config_name))
                with Report(self.folder, engine.place, planned) as report:
                    yield Session(self, engine, manifest, report, Composer(self.loader, self.master), check)
        except KeyboardInterrupt:
            raise Ended("interrupted", 130) from None
        except EngineStopped as stop:
            raise Ended(str(stop), 1) from None


@dataclass(frozen=True)
class Session:
    """A sweep whose folder is held: batches of jobs are run in it, one after the other."""

    sweep: Sweep
    engine: Engine
    manifest: Manifest
    report: Report
    composer: Composer
    check: Callable[[], None]  # raises an interrupt that was lost
    ended: dict[int, Outcome] = field(default_factory=dict)  # of all batches
    stores: dict[int, Path] = field(default_factory=dict)  # store of results of those jobs that other sweeps may share

    def run(self, batch: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the jobs with these overrides that are not finished; the outcome of each, in their order.

        Raises
        ------
        ValueError
            Before the first of them: keys and options that do not exist.
        KeyboardInterrupt, EngineStopped
            What is finished is stored.
        """
        jobs = list(self._jobs(batch))
        self.manifest.sweep(self.sweep.swept)
        self.manifest.write()
        if not self.ended:
            store.write_bytes(OmegaConf.to_yaml(self.sweep.master).encode(), self.sweep.folder / "multirun.yaml")
        self._run({job.number: job for job in jobs if job.number not in self.ended}, len(jobs))
        return [self.ended[job.number] for job in jobs]

    def _jobs(self, batch: Sequence[Sequence[str]]) -> Iterator[Job]:
        """Compose and number all jobs."""
        folder, limits = self.sweep.folder, self.engine.limits
        common: dict[str, Any] = {
            "task": self.sweep.task,
            "code": code_digest(),
            "text": text_digest(),
            "cwd": os.getcwd(),
            "search_path": tuple(_search_path()),
            "time_limit": limits.time,
            "memory_limit": limits.memory,
        }
        for overrides in show_composing(batch):
            configuration, values, numbered = self.composer.job(overrides)
            files = file_digests(configuration)
            identity = identity_of(self.sweep.task, configuration, files)
            number = self.manifest.admit(identity, overrides, values)
            if numbered and number:
                configuration = self.composer.job(overrides, number).configuration
                files = file_digests(configuration)
            elif not numbered and configuration.get("output") is None and isinstance(configuration.get("cache"), str):
                self.stores[number] = Path(configuration["cache"], RESULTS).absolute()
            _place(configuration["hydra"], number)
            if configuration.get("outputs", "full") != "full":  # the one file of the job says its configuration
                configuration["hydra"]["output_subdir"] = None
            yield Job(
                number=number,
                folder=str(folder / str(number)),
                identity=identity,
                overrides=tuple(overrides),
                configuration=json.dumps(configuration),
                files=tuple(files.items()),
                **common,
            )

    def _run(self, jobs: Mapping[int, Job], n_asked: int) -> None:
        """Run what neither an earlier batch nor an earlier sweep has."""
        todo = []
        for number, job in jobs.items():
            if (outcome := self._find(job)) is None:
                todo.append(job)
            else:
                self.ended[number] = outcome
        self.report.batch(jobs, len(jobs) - len(todo), n_asked)
        with closing(_outcomes(self.engine, todo, self.sweep.folder)) as running:
            for outcome in running:
                self.ended[outcome.number] = outcome
                self.report.ended(outcome)
                self._share(jobs[outcome.number])
                self.check()

    def _find(self, job: Job) -> Outcome | None:
        """Outcome of a job that this or another sweep has finished, checked; None if it is to be run."""
        folder = Path(job.folder)
        content = read_outcome(folder)
        if content is None and (folder / OUTCOME).exists():
            self.report.damaged(job, f"{OUTCOME} is damaged")
        if content is not None and content["status"] == "done":
            other = "" if content["identity"] == job.identity else "its result is that of other settings or files"
            if not (found := other or damage(content, folder)):
                self._share(job)
                return outcome_in(folder)
            self.report.damaged(job, found)
        elsewhere = self.stores.get(job.number)
        if elsewhere is None or (self.sweep.folder / TASKS).exists():  # a task may be at it
            return None
        changed = {"number": job.number, "overrides": list(job.overrides)}
        return outcome_in(folder) if fetch(job.identity, elsewhere, folder, changed) else None

    def _share(self, job: Job) -> None:
        if job.number in self.stores:
            share(job.identity, Path(job.folder), self.stores[job.number])


def _search_path() -> list[str]:
    """Folders of modules that are no part of this Python, absolute."""
    folders = [os.path.abspath(folder) for folder in sys.path if os.path.isdir(folder or ".")]
    return [folder for folder in folders if not folder.startswith((sys.prefix, sys.base_prefix))]


def _place(hydra: dict[str, Any], number: int) -> None:
    """Give a job its number, keep its log off the terminal, and leave out what only a terminal needs."""
    hydra |= {"help": {}, "hydra_help": {}}
    hydra["job"] |= {"num": number, "id": str(number)}
    hydra["sweep"]["subdir"] = str(number)
    logging = hydra.get("job_logging") or {}
    root, handlers = logging.get("root"), logging.get("handlers") or {}
    if root:
        names = root.get("handlers") or []
        root["handlers"] = [name for name in names if handlers.get(name, {}).get("class") != "logging.StreamHandler"]


def _outcomes(engine: Engine, jobs: Sequence[Job], folder: Path) -> Generator[Outcome, None, None]:
    """Run jobs from a clean start, but for those that are still run, and store what the worker could not."""
    by_number = {}
    taken_over = engine.taken_over(folder)
    for job in jobs:
        try:
            content = read_outcome(Path(job.folder))
            if job.number not in taken_over or (content is not None and content["status"] != "done"):
                forget(Path(job.folder))
            by_number[job.number] = job
        except OSError as error:  # what is there is old, and would be taken for the result
            yield Outcome(job.number, False, error=f"{type(error).__name__}: {error}")
    if not by_number and not taken_over:
        return
    with closing(engine.run(list(by_number.values()))) as running:
        for outcome in running:
            job = by_number[outcome.number]
            if not outcome.stored:
                stored = keep(outcome, job)
                outcome = stored if stored.stored else outcome
            elif not _is_seen(job):
                outcome = outcome._replace(done=False, error=UNSEEN, stored=False)
            yield outcome


def _is_seen(job: Job) -> bool:
    """Whether what a worker has stored is there for this process; a shared file system may take a moment."""
    for wait in (0.0, 0.1, 1.0, 10.0):
        time.sleep(wait)
        if (Path(job.folder) / OUTCOME).exists():
            return True
    return False
