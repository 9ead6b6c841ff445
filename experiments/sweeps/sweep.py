"""One sweep from end to end: compose all jobs, leave out what is finished, run the rest, tell.

A person sees one line while it runs and a few at its end; `sweep.log` has everything.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from textwrap import shorten
from typing import Any, TextIO

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from experiments.cli.ends import Refused, interruptible
from experiments.cli.options import seconds_text
from experiments.cli.progress import use_own_lock
from experiments.files.identity import (
    code_digest,
    file_digests,
    identity_of,
    text_digest,
)
from experiments.sweeps import store
from experiments.sweeps.composer import Composer
from experiments.sweeps.engines import TASKS, Engine, EngineStopped
from experiments.sweeps.store import (
    OUTCOME,
    Job,
    Manifest,
    Outcome,
    outcome_in,
    read_outcome,
)
from experiments.sweeps.task import keep
from sysid.errors import UserError
from sysid.store import write_bytes

SUBDIR = "${hydra.job.num}"
RESULTS = "results"  # folder in the cache
MOST_FAILURES = 20  # told on the terminal
MANY = 100  # jobs that are composed within a second or two
WIDTH = 160  # characters of an error on the terminal
UNSEEN = "its worker has stored a result that is not there: all machines need to see the folder of the sweep"


@dataclass
class Sweep:
    """What a launcher is asked for, and how far it is: batches of jobs are run in its folder, one
    after the other.
    """

    loader: ConfigLoader
    master: DictConfig  # configuration of the sweep
    task: str  # function of the command, "experiments.identify:main"
    make_engine: Callable[[Path], Engine]  # for the folder of the sweep
    swept: Sequence[str] = ()  # keys that the command sweeps, if that is known

    def __post_init__(self) -> None:
        self.folder = Path(str(self.master.hydra.sweep.dir)).absolute()
        self._ended: dict[int, Outcome] = {}  # of all batches
        self._stores: dict[
            int, Path
        ] = {}  # store of results of those jobs that other sweeps may share

    def conduct(self, batch: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the jobs with these overrides that are not finished; the outcome of each, in their
        order.

        Raises
        ------
        ValueError, OSError
            Before the first job: keys and options that do not exist, a folder that belongs to
            something else, or to a sweep that is running.
        Refused
            After an interrupt, or when the engine cannot go on; what is finished is stored.
        """
        with self.opened():
            return self.run(batch)

    @contextmanager
    def opened(self, planned: int | None = None) -> Iterator[None]:
        """Hold the folder while batches of jobs are run in it, with one progress line and one
        report at the end.

        Parameters
        ----------
        planned : int, optional
            Jobs of all batches together, if there are several.

        Raises
        ------
        ValueError, OSError, Refused
            As `conduct`.
        """
        subdir = OmegaConf.to_container(self.master.hydra.sweep, resolve=False)["subdir"]  # type: ignore[call-overload,index]
        if subdir != SUBDIR:
            numbered = "the folders of jobs are numbered, so that each is found again; leave it out (see sweep.json)"
            raise UserError(f"hydra.sweep.subdir={subdir} has no effect: {numbered}")
        self._engine = self.make_engine(self.folder)
        self.composer = Composer(self.loader, self.master)
        try:
            report = Report(self.folder, planned)
            with (
                interruptible() as self._check,
                store.hold(self.folder),
                report as self.report,
            ):
                try:
                    self._manifest = Manifest.open(
                        self.folder, str(self.master.hydra.job.config_name)
                    )
                    yield
                except Exception:
                    # what an interrupt cuts off in a library may end in an error of that
                    self._check()
                    raise
        except KeyboardInterrupt:
            raise Refused(130) from None
        except EngineStopped:
            raise Refused(1) from None

    def run(self, batch: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the jobs with these overrides that are not finished, while the sweep is opened; as
        `conduct`.

        Raises
        ------
        ValueError
            Before the first of them: keys and options that do not exist.
        KeyboardInterrupt, EngineStopped
            What is finished is stored.
        """
        use_own_lock()
        is_shown = (
            None if len(batch) > MANY else True
        )  # on a terminal, where composing takes seconds
        asked = [
            self._job(each)
            for each in tqdm(batch, "checking", unit="job", disable=is_shown, leave=False)
        ]
        self._manifest.write(self.swept)
        if not self._ended:
            write_bytes(OmegaConf.to_yaml(self.master).encode(), self.folder / "multirun.yaml")
        jobs = {job.number: job for job in asked if job.number not in self._ended}
        found = {number: self._find(job) for number, job in jobs.items()}
        todo = [job for number, job in jobs.items() if found[number] is None]
        self._ended |= {number: outcome for number, outcome in found.items() if outcome is not None}
        self.report.batch(jobs, len(jobs) - len(todo), len(asked))
        with closing(self._outcomes(todo)) as running:
            for outcome in running:
                self._ended[outcome.number] = outcome
                self.report.ended(outcome)
                self._share(jobs[outcome.number])
                self._check()  # raises an interrupt that was lost
        return [self._ended[job.number] for job in asked]

    def _job(self, overrides: Sequence[str]) -> Job:
        """Compose and number a job."""
        configuration, values, numbered = self.composer.job(overrides)
        files = file_digests(configuration)
        identity = identity_of(self.task, configuration, files)
        number = self._manifest.admit(identity, overrides, values)
        if numbered and number:
            configuration, _, _ = self.composer.job(overrides, number)
            files = file_digests(configuration)
        elif (
            not numbered
            and configuration.get("output") is None
            and isinstance(configuration.get("cache"), str)
        ):
            self._stores[number] = Path(configuration["cache"], RESULTS).absolute()
        _place(configuration["hydra"], number)
        if (
            configuration.get("outputs", "full") != "full"
        ):  # the one file of the job says its configuration
            configuration["hydra"]["output_subdir"] = None
        return Job(
            number=number,
            folder=str(self.folder / str(number)),
            identity=identity,
            overrides=tuple(overrides),
            task=self.task,
            configuration=json.dumps(configuration),
            code=code_digest(),
            text=text_digest(),
            files=tuple(files.items()),
            cwd=os.getcwd(),
            search_path=_search_path(),
            limits=self._engine.limits,
        )

    def _find(self, job: Job) -> Outcome | None:
        """Outcome of a job that this or another sweep has finished, checked; None if it is to be
        run.
        """
        folder = Path(job.folder)
        content = read_outcome(folder)
        if content is None and (folder / OUTCOME).exists():
            self.report.damaged(job, f"{OUTCOME} is damaged")
        if content is not None and content["status"] == "done":
            other = (
                ""
                if content["identity"] == job.identity
                else "its result is that of other settings or files"
            )
            if not (found := other or store.damage(content, folder)):
                self._share(job)
                return outcome_in(folder)
            self.report.damaged(job, found)
        if job.number not in self._stores or (self.folder / TASKS).exists():  # a task may be at it
            return None
        return store.fetch(job, self._stores[job.number])

    def _share(self, job: Job) -> None:
        if job.number in self._stores:
            store.share(job, self._stores[job.number])

    def _outcomes(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run jobs from a clean start, but for those that are still run, and store what the worker
        could not.
        """
        by_number = {}
        taken_over = self._engine.taken_over(self.folder)
        for job in jobs:
            try:
                content = read_outcome(Path(job.folder))
                if job.number not in taken_over or (
                    content is not None and content["status"] != "done"
                ):
                    store.forget(Path(job.folder))
                by_number[job.number] = job
            except OSError as error:  # what is there is old, and would be taken for the result
                yield Outcome(job.number, False, error=f"{type(error).__name__}: {error}")
        if not by_number and not taken_over:
            return
        with closing(self._engine.run(list(by_number.values()))) as running:
            for outcome in running:
                job = by_number[outcome.number]
                if not outcome.stored:
                    stored = keep(outcome, job)
                    outcome = stored if stored.stored else outcome
                elif not _is_seen(job):
                    outcome = outcome._replace(done=False, error=UNSEEN, stored=False)
                yield outcome


def open_sweep(
    command: str, folder: Path, task: str, make_engine: Callable[[Path], Engine]
) -> Sweep:
    """Open a sweep of a command in a folder, while another command runs.

    Parameters
    ----------
    command : str
        Name of the command whose configuration each job has.
    folder : Path
        Folder of the sweep.
    task : str
        Function that gets the configuration of each job, ``"experiments.identify:main"`` for
        example.
    make_engine : callable
        Makes the engine for the folder of the sweep.
    """
    loader = GlobalHydra.instance().config_loader()
    overrides = ["hydra.mode=MULTIRUN", f"hydra.sweep.dir='{folder}'"]
    master = loader.load_configuration(command, overrides, run_mode=RunMode.MULTIRUN)
    return Sweep(loader, master, task, make_engine)


def _search_path() -> tuple[str, ...]:
    """Folders of modules that are no part of this Python, absolute."""
    folders = [os.path.abspath(folder) for folder in sys.path if os.path.isdir(folder or ".")]
    return tuple(
        folder for folder in folders if not folder.startswith((sys.prefix, sys.base_prefix))
    )


def _place(hydra: dict[str, Any], number: int) -> None:
    """Give a job its number, keep its log off the terminal, and leave out what only a terminal
    needs.
    """
    hydra |= {"help": {}, "hydra_help": {}}
    hydra["job"] |= {"num": number, "id": str(number)}
    hydra["sweep"]["subdir"] = str(number)
    logging = hydra.get("job_logging") or {}
    root = logging.get("root")
    handlers = logging.get("handlers") or {}
    if root:
        names = root.get("handlers") or []
        root["handlers"] = [
            name for name in names if handlers.get(name, {}).get("class") != "logging.StreamHandler"
        ]


def _is_seen(job: Job) -> bool:
    """Whether what a worker has stored is there for this process; a shared file system may take a
    moment.
    """
    for wait in (0.0, 0.1, 1.0, 10.0):
        time.sleep(wait)
        if (Path(job.folder) / OUTCOME).exists():
            return True
    return False


# --- what a person sees


class Report(AbstractContextManager["Report"]):
    """Progress and end of one sweep.

    Parameters
    ----------
    folder : Path
    planned : int, optional
        Jobs of all batches; None: there is one.
    """

    def __init__(self, folder: Path, planned: int | None = None) -> None:
        self._folder = folder
        self._planned = planned
        self._name = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        self._jobs: dict[int, Job] = {}
        self._failed: list[Outcome] = []
        self._done = self._damaged = self._reused = 0
        self._start = time.perf_counter()
        self._bar: Any = None  # until the first batch is known

    def damaged(self, job: Job, what: str) -> None:
        """Note that the files of a finished job are not what it has to write; it is run anew."""
        self._damaged += 1
        self.log(f"anew #{job.number}: {what}")

    def batch(self, jobs: Mapping[int, Job], n_reused: int, n_asked: int) -> None:
        """Take jobs, some finished already; those asked for that are not among them are those of
        earlier batches.
        """
        self._jobs.update(jobs)
        self._reused += n_reused
        if self._bar is None:
            n = len(jobs)
            line = f"Search with up to {self._planned} jobs"
            if self._planned is None:
                kept = f", {n_reused} finished already" if n_reused else ""
                anew = f" ({self._damaged} anew, damaged or out of date)" if self._damaged else ""
                line = f"Sweep of {n} job{'s' * (n != 1)}{kept}, {n - n_reused} to run{anew}"
            self._tell(f"{line}: {self._name}")
            self._bar = tqdm(total=n, unit="job", desc="sweep", disable=None, mininterval=0.2)
        if self._planned is not None:
            self._planned -= n_asked - len(jobs)
            self._bar.total = self._planned
        self._bar.update(n_reused)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._finish(error)
        elif isinstance(error, KeyboardInterrupt):
            say("Sweep interrupted before its first job")

    def ended(self, outcome: Outcome) -> None:
        """Count a job."""
        job = self._jobs[outcome.number]
        named = f"#{job.number} {' '.join(job.overrides)}"
        if outcome.done:
            self._done += 1
            self.log(f"done {named} in {outcome.seconds:.2f} s: {outcome.value}")
        else:
            self._failed.append(outcome)
            self.log(f"failed {named}: {outcome.error}")
            self._bar.set_postfix_str(f"{len(self._failed)} failed", refresh=False)
        self._bar.update()

    def _finish(self, reason: BaseException | None) -> None:
        """Tell how the sweep ended."""
        failed = len(self._failed)
        done = self._reused + self._done
        planned = len(self._jobs) if self._planned is None else self._planned
        missing = planned - done - failed
        counts = [f"{done} done" + (f" ({self._reused} before)" if self._reused else "")]
        counts += [f"{failed} failed"] * bool(failed) + [f"{missing} not run"] * bool(missing)
        elapsed = seconds_text(max(time.perf_counter() - self._start, 0.01))
        lines = [f"{planned} jobs: {', '.join(counts)}, in {elapsed}"]
        if isinstance(reason, EngineStopped):
            lines.insert(0, f"Sweep stopped: {reason}")
        elif isinstance(reason, KeyboardInterrupt):
            lines.insert(0, "Sweep interrupted")
        for line in lines:
            self._tell(line)
        common = set.intersection(*(set(job.overrides) for job in self._jobs.values()))
        for outcome in sorted(self._failed)[:MOST_FAILURES]:
            job = self._jobs[outcome.number]
            own = " ".join(
                [
                    f"#{outcome.number}",
                    *(one for one in job.overrides if one not in common),
                ]
            )
            unstored = "" if outcome.stored else f" (could not be stored in {job.folder})"
            say(f"  {own}: {one_line(outcome.error)}{unstored}", sys.stderr)
        if failed > MOST_FAILURES:
            say(f"  and {failed - MOST_FAILURES} more, see sweep.log", sys.stderr)
        if failed:
            say(
                f"Error, configuration and traceback of a job: {self._name}/<number>/{OUTCOME}",
                sys.stderr,
            )
        if failed or missing:
            say(
                f"The same command again runs only what is missing or failed. Log: {self._name}/sweep.log"
            )
        say(f"Results: {self._name}; next: sysid-collect {self._name}")

    def _tell(self, line: str) -> None:
        self.log(line)
        say(line)

    def log(self, line: str) -> None:
        """Add a line to `sweep.log`; a full disk does not end a sweep."""
        with (
            suppress(OSError),
            open(self._folder / "sweep.log", "a", encoding="utf-8") as file,
        ):
            file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {' '.join(line.split())}\n")


def say(text: str, stream: TextIO | None = None) -> None:
    """Print to a stream, by default the output; who reads it may stop reading (| head): the sweep
    goes on.
    """
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:
        with suppress(OSError, ValueError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())


def one_line(error: str) -> str:
    """Shorten an error to a line that fits on the terminal."""
    return shorten(error, WIDTH, placeholder="...")
