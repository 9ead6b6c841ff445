"""One sweep from end to end: compose all jobs, leave out what is finished, run the rest, tell."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from experiments.code_version import code_digest
from experiments.sweep import outcome as outcomes
from experiments.sweep.composition import Composer
from experiments.sweep.engine import Engine, EngineStopped
from experiments.sweep.identity import identity_of
from experiments.sweep.interruption import interruptible
from experiments.sweep.job import Job, Outcome
from experiments.sweep.manifest import Manifest
from experiments.sweep.ownership import owned
from experiments.sweep.report import Report, composing
from sysid import store

SUBDIR = "${hydra.job.num}"
UNSEEN = "its worker has stored a result that is not there: all machines need to see the folder of the sweep"


class Ended(Exception):
    """The sweep ended before all jobs were run; carries the exit code."""

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
        self._check_subdir()
        engine = self.engine(self.folder)
        try:
            with owned(self.folder):
                manifest = Manifest.of(self.folder, str(self.master.hydra.job.config_name))
                with Report(self.folder, engine.place, planned) as report, interruptible() as check:
                    yield Session(self, engine, manifest, report, Composer(self.loader, self.master), check)
        except KeyboardInterrupt:
            raise Ended("interrupted", 130) from None
        except EngineStopped as stop:
            raise Ended(str(stop), 1) from None

    def _check_subdir(self) -> None:
        found = OmegaConf.to_container(self.master.hydra.sweep, resolve=False)
        assert isinstance(found, dict)
        if found["subdir"] != SUBDIR:
            raise ValueError(
                f"hydra.sweep.subdir={found['subdir']} has no effect: the folders of jobs are numbered, so that each "
                "is found again; leave it out (sweep.json says which job has which number)"
            )


@dataclass(frozen=True)
class Session:
    """A sweep whose folder is held: batches of jobs are run in it, one after the other."""

    sweep: Sweep
    engine: Engine
    manifest: Manifest
    report: Report
    composer: Composer
    check: Callable[[], None]  # raises an interrupt that was lost
    found: dict[int, Outcome] = field(default_factory=dict)  # of all batches

    def run(self, batch: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the jobs with these overrides that are not finished; the outcome of each, in their order.

        Raises
        ------
        ValueError
            Before the first of them: keys and options that do not exist.
        KeyboardInterrupt, EngineStopped
            What is finished is stored.
        """
        folder, limits = self.sweep.folder, self.engine.limits
        jobs = [replace(job, time_limit=limits.time, memory_limit=limits.memory) for job in self._jobs(batch)]
        self.manifest.sweep(self.sweep.swept)
        self.manifest.write()
        if not self.found:
            store.write_bytes(OmegaConf.to_yaml(self.sweep.master).encode(), folder / "multirun.yaml")
        self._run({job.number: job for job in jobs}, len(jobs))
        return [self.found[job.number] for job in jobs]

    def _jobs(self, batch: Sequence[Sequence[str]]) -> Iterator[Job]:
        """Compose and number all jobs."""
        folder = self.sweep.folder
        surroundings: dict[str, Any] = {
            "code": code_digest(),
            "cwd": os.getcwd(),
            "search_path": tuple(_search_path()),
        }
        for overrides in composing(batch):
            configuration, values, numbered = self.composer.job(overrides)
            identity = identity_of(self.sweep.task, configuration)
            number = self.manifest.admit(identity, overrides, values)
            if numbered and number:
                configuration = self.composer.job(overrides, number).configuration
            _place(configuration["hydra"], number)
            if configuration.get("outputs", "full") != "full":  # the one file of the job says its configuration
                configuration["hydra"]["output_subdir"] = None
            yield Job(
                number,
                str(folder / str(number)),
                identity,
                tuple(overrides),
                self.sweep.task,
                json.dumps(configuration),
                **surroundings,
            )

    def _run(self, jobs: Mapping[int, Job], n_asked: int) -> None:
        """Run what neither an earlier sweep nor an earlier batch has."""
        new = {number: job for number, job in jobs.items() if number not in self.found}
        finished = {number: end for number, job in new.items() if (end := _finished(job, self.report)) is not None}
        self.found.update(finished)
        self.report.batch(new, len(finished), n_asked)
        todo = [job for number, job in new.items() if number not in finished]
        with closing(_outcomes(self.engine, todo, self.sweep.folder)) as running:
            for outcome in running:
                self.found[outcome.number] = outcome
                self.report.ended(outcome)
                self.check()


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


def _finished(job: Job, report: Report) -> Outcome | None:
    """Outcome of a job that is finished, checked; None if it is to be run."""
    folder = Path(job.folder)
    content = outcomes.kept(folder)
    if content is None:
        if (folder / outcomes.NAME).exists():
            report.damaged(job, f"{outcomes.NAME} is damaged")
        return None
    if content["status"] != "done":
        return None
    other = "" if content["identity"] == job.identity else "its result is that of other settings or files"
    if damage := other or outcomes.damage(content, folder):
        report.damaged(job, damage)
        return None
    return outcomes.outcome_of(content, job.number)


def _outcomes(engine: Engine, jobs: Sequence[Job], folder: Path) -> Generator[Outcome, None, None]:
    """Run jobs from a clean start, but for those that are still run, and store what the worker could not."""
    by_number = {}
    taken_over = engine.taken_over(folder)
    for job in jobs:
        try:
            own, content = Path(job.folder), outcomes.kept(Path(job.folder))
            if job.number not in taken_over or (content is not None and content["status"] != "done"):
                outcomes.forget(own)
            by_number[job.number] = job
        except OSError as error:  # what is there is old, and would be taken for the result
            yield Outcome(job.number, False, error=f"{type(error).__name__}: {error}")
    if not by_number and not taken_over:
        return
    with closing(engine.run(list(by_number.values()))) as running:
        for outcome in running:
            job = by_number[outcome.number]
            if not outcome.stored:
                outcome = _stored(outcome, job)
            elif not _is_seen(job):
                outcome = outcome._replace(done=False, error=UNSEEN, stored=False)
            yield outcome


def _is_seen(job: Job) -> bool:
    """Whether what a worker has stored is there for this process; a shared file system may take a moment."""
    for wait in (0.0, 0.1, 1.0, 10.0):
        time.sleep(wait)
        if (Path(job.folder) / outcomes.NAME).exists():
            return True
    return False


def _stored(outcome: Outcome, job: Job) -> Outcome:
    try:
        outcomes.keep(outcome, job)
    except OSError:
        return outcome
    return outcome._replace(stored=True)
