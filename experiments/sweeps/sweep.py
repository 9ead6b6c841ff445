"""One sweep: compose all jobs, skip those that are finished, run the others, and report.

The terminal shows one progress line while the sweep runs, and a summary at its end. `sweep.log`
has a line for every job.
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
from experiments.cli.terminal import printable
from experiments.files.identity import (
    code_digest,
    file_digests,
    identity_of,
    module_digests,
    text_digest,
)
from experiments.sweeps import store
from experiments.sweeps.composer import Composer
from experiments.sweeps.engines import TASKS_FILE, Engine, EngineStopped
from experiments.sweeps.store import (
    OUTCOME_FILE,
    Job,
    Manifest,
    Outcome,
    outcome_in,
    read_outcome,
)
from experiments.sweeps.task import keep
from sysid.errors import UserError
from sysid.foreign import check_folder
from sysid.store import write_bytes

JOB_SUBDIR = "${hydra.job.num}"  # the only value that hydra.sweep.subdir may have
RESULTS_FOLDER = "results"  # name of the folder in the cache that holds the store of results
MAX_SHOWN_FAILURES = 20  # failed jobs that are listed on the terminal
MIN_JOBS_FOR_PROGRESS = 100  # fewer jobs are composed within a second or two
MAX_ERROR_WIDTH = 160  # characters of an error on the terminal
RESULT_NOT_VISIBLE = (
    "its worker has stored a result that cannot be found here: "
    "all machines must have access to the folder of the sweep"
)


@dataclass
class Sweep:
    """A sweep and its state; batches of jobs are run in its folder one after the other."""

    loader: ConfigLoader
    master: DictConfig  # configuration of the sweep
    task: str  # function of the command, "experiments.identify:main"
    make_engine: Callable[[Path], Engine]  # makes the engine for the folder of the sweep
    swept: Sequence[str] = ()  # keys that the command sweeps, if known

    def __post_init__(self) -> None:
        self.folder = Path(str(self.master.hydra.sweep.dir)).absolute()
        self._ended: dict[int, Outcome] = {}  # outcomes of all batches, by number of the job
        #: store of results, by the number of those jobs that other sweeps may share
        self._stores: dict[int, Path] = {}

    def conduct(self, batch: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the jobs with these overrides, unless they are finished.

        Returns
        -------
        list of Outcome
            The outcome of every job, in the order of the batch.

        Raises
        ------
        ValueError, OSError
            Before the first job, if a key or an option does not exist, or the folder belongs to
            something else or to a sweep that is running, or has a link that leads out of it.
        Refused
            After an interrupt, or if the engine cannot go on. Finished jobs are stored.
        """
        with self.opened():
            return self.run(batch)

    @contextmanager
    def opened(self, planned: int | None = None) -> Iterator[None]:
        """Lock the folder while batches of jobs are run in it.

        There is one progress line, and one report at the end.

        Parameters
        ----------
        planned : int, optional
            Number of jobs of all batches together, if there are several batches.

        Raises
        ------
        ValueError, OSError, Refused
            As `conduct`.
        """
        sweep_settings: Any = OmegaConf.to_container(self.master.hydra.sweep, resolve=False)
        subdir = sweep_settings["subdir"]
        if subdir != JOB_SUBDIR:
            raise UserError(
                f"hydra.sweep.subdir={subdir} has no effect: the folders of jobs are numbered, so "
                "that a resumed sweep finds them; leave it out (sweep.json lists the jobs)"
            )
        self._engine = self.make_engine(self.folder)
        self.composer = Composer(self.loader, self.master)
        try:
            report = Report(self.folder, planned)
            check_folder(self.folder)
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
                    # An interrupt may have made a library raise an error of its own.
                    self._check()
                    raise
        except KeyboardInterrupt:
            raise Refused(130) from None
        except EngineStopped:
            raise Refused(1) from None

    def run(self, batch: Sequence[Sequence[str]]) -> list[Outcome]:
        """Run the jobs with these overrides, unless they are finished, in an opened sweep.

        Returns
        -------
        list of Outcome
            The outcome of every job, in the order of the batch.

        Raises
        ------
        ValueError
            Before the first job, if a key or an option does not exist.
        KeyboardInterrupt, EngineStopped
            After an interrupt, or if the engine cannot go on. Finished jobs are stored.
        """
        use_own_lock()
        is_quick = len(batch) <= MIN_JOBS_FOR_PROGRESS
        is_hidden = True if is_quick else None  # None: shown on a terminal only
        batch_jobs = [
            self._job(overrides)
            for overrides in tqdm(batch, "checking", unit="job", disable=is_hidden, leave=False)
        ]
        self._manifest.write(self.swept)
        if not self._ended:
            write_bytes(OmegaConf.to_yaml(self.master).encode(), self.folder / "multirun.yaml")
        new_jobs = {job.number: job for job in batch_jobs if job.number not in self._ended}
        jobs_to_run = []
        for number, job in new_jobs.items():
            outcome = self._find(job)
            if outcome is None:
                jobs_to_run.append(job)
            else:
                self._ended[number] = outcome
        self.report.batch(new_jobs, len(new_jobs) - len(jobs_to_run), len(batch_jobs))
        with closing(self._outcomes(jobs_to_run)) as outcomes:
            for outcome in outcomes:
                self._ended[outcome.number] = outcome
                self.report.ended(outcome)
                self._share(new_jobs[outcome.number])
                self._check()  # raises an interrupt that a library has hidden
        return [self._ended[job.number] for job in batch_jobs]

    def _job(self, overrides: Sequence[str]) -> Job:
        """Compose a job and give it a number."""
        configuration, values, numbered = self.composer.job(overrides)
        files = file_digests(configuration)
        identity = identity_of(self.task, configuration, files)
        number = self._manifest.admit(identity, overrides, values)
        if numbered and number:
            configuration, _, _ = self.composer.job(overrides, number)
            files = file_digests(configuration)
        has_output = configuration.get("output") is not None
        cache = configuration.get("cache")
        is_repeatable = not _limits_time(configuration)
        if not numbered and not has_output and isinstance(cache, str) and is_repeatable:
            self._stores[number] = Path(cache, RESULTS_FOLDER).absolute()
        _set_number(configuration["hydra"], number)
        if configuration.get("outputs", "full") != "full":
            # Then the job writes only one file, which holds its configuration.
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
            modules=tuple(module_digests(configuration).items()),
            cwd=os.getcwd(),
            search_path=_search_path(),
            limits=self._engine.limits,
        )

    def _find(self, job: Job) -> Outcome | None:
        """Return the outcome of a job that this or another sweep has finished.

        Return None if the job is not finished, or its files are damaged.
        """
        folder = Path(job.folder)
        content = read_outcome(folder)
        if content is None and (folder / OUTCOME_FILE).exists():
            self.report.damaged(job, f"{OUTCOME_FILE} is damaged")
        if content is not None and content["status"] == "done":
            if content["identity"] == job.identity:
                damage = store.damage(content, folder)
            else:
                damage = "its result belongs to other settings or files"
            outcome = outcome_in(folder)
            if not damage and outcome is not None:
                self._share(job)
                return outcome._replace(number=job.number)
            self.report.damaged(job, damage)
        may_still_run = (self.folder / TASKS_FILE).exists()
        if job.number not in self._stores or may_still_run:
            return None
        return store.fetch(job, self._stores[job.number])

    def _share(self, job: Job) -> None:
        """Add the result of a job to the store of results, if other sweeps may use it."""
        if job.number in self._stores:
            store.share(job, self._stores[job.number])

    def _outcomes(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Run jobs and yield their outcomes.

        The folders of the jobs are cleared before, except for jobs that still run. Outcomes that
        the worker could not store are stored here.
        """
        by_number = {}
        taken_over = self._engine.taken_over(self.folder)
        for job in jobs:
            folder = Path(job.folder)
            try:
                content = read_outcome(folder)
                has_failed = content is not None and content["status"] != "done"
                if job.number not in taken_over or has_failed:
                    store.forget(folder)
                by_number[job.number] = job
            except OSError as error:
                # The old files cannot be removed, and would be taken for the new result.
                yield Outcome(job.number, False, error=f"{type(error).__name__}: {error}")
        if not by_number and not taken_over:
            return
        with closing(self._engine.run(list(by_number.values()))) as outcomes:
            for outcome in outcomes:
                job = by_number[outcome.number]
                if not outcome.stored:
                    kept = keep(outcome, job)
                    outcome = kept if kept.stored else outcome
                elif not _is_visible(job):
                    outcome = outcome._replace(done=False, error=RESULT_NOT_VISIBLE, stored=False)
                yield outcome


def open_sweep(
    command: str, folder: Path, task: str, make_engine: Callable[[Path], Engine]
) -> Sweep:
    """Open a sweep of a command in a folder, while another command runs.

    Parameters
    ----------
    command : str
        Name of the command whose configuration the jobs have.
    folder : Path
        Folder of the sweep.
    task : str
        Function that is called with the configuration of each job, for example
        ``"experiments.identify:main"``.
    make_engine : callable
        Function that makes the engine for the folder of the sweep.
    """
    loader = GlobalHydra.instance().config_loader()
    overrides = ["hydra.mode=MULTIRUN", f"hydra.sweep.dir='{folder}'"]
    master = loader.load_configuration(command, overrides, run_mode=RunMode.MULTIRUN)
    return Sweep(loader, master, task, make_engine)


def _search_path() -> tuple[str, ...]:
    """Return the absolute folders of modules that do not belong to this Python installation."""
    folders = [os.path.abspath(folder) for folder in sys.path if os.path.isdir(folder or ".")]
    installation = (sys.prefix, sys.base_prefix)
    return tuple(folder for folder in folders if not folder.startswith(installation))


def _limits_time(configuration: dict[str, Any]) -> bool:
    """Return whether the wall time of a job's search is limited.

    Its result depends on the speed of the machine: no other sweep may use it.
    """
    training = configuration.get("training")
    return isinstance(training, dict) and training.get("seconds") is not None


def _set_number(hydra: dict[str, Any], number: int) -> None:
    """Set the number of a job in its configuration, and remove its output on the terminal.

    The texts of the help, which only a terminal needs, are removed as well.
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


def _is_visible(job: Job) -> bool:
    """Return whether this process finds the outcome that a worker has stored.

    A shared file system may take some seconds to show it.
    """
    for delay in (0.0, 0.1, 1.0, 10.0):
        time.sleep(delay)
        if (Path(job.folder) / OUTCOME_FILE).exists():
            return True
    return False


# --- report on the terminal


class Report(AbstractContextManager["Report"]):
    """Reports the progress and the end of one sweep.

    Parameters
    ----------
    folder : Path
        Folder of the sweep.
    planned : int, optional
        Number of jobs of all batches together; None if there is only one batch.
    """

    def __init__(self, folder: Path, planned: int | None = None) -> None:
        self._folder = folder
        self._planned = planned
        self._name = folder
        if folder.is_relative_to(Path.cwd()):
            self._name = folder.relative_to(Path.cwd())
        self._jobs: dict[int, Job] = {}
        self._failed: list[Outcome] = []
        self._n_done = 0
        self._n_damaged = 0
        self._n_reused = 0
        self._start = time.perf_counter()
        self._bar: Any = None  # progress bar, from the first batch on

    def damaged(self, job: Job, reason: str) -> None:
        """Record that the files of a finished job are damaged or out of date; it is run again."""
        self._n_damaged += 1
        self.log(f"run again #{job.number}: {reason}")

    def batch(self, jobs: Mapping[int, Job], n_reused: int, n_requested: int) -> None:
        """Add the new jobs of a batch, some of which are finished already.

        The other requested jobs of the batch are jobs of earlier batches.
        """
        self._jobs.update(jobs)
        self._n_reused += n_reused
        if self._bar is None:
            self._print_and_log(f"{self._describe_start(len(jobs), n_reused)}: {self._name}")
            self._bar = tqdm(
                total=len(jobs), unit="job", desc="sweep", disable=None, mininterval=0.2
            )
        if self._planned is not None:
            self._planned -= n_requested - len(jobs)
            self._bar.total = self._planned
        self._bar.update(n_reused)

    def _describe_start(self, n_jobs: int, n_reused: int) -> str:
        """Return the first line of the report, with the numbers of jobs."""
        if self._planned is not None:
            return f"Search with up to {self._planned} jobs"
        line = "Sweep of 1 job" if n_jobs == 1 else f"Sweep of {n_jobs} jobs"
        if n_reused:
            line += f", {n_reused} finished already"
        line += f", {n_jobs - n_reused} to run"
        if self._n_damaged:
            line += f" ({self._n_damaged} again, damaged or out of date)"
        return line

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._finish(error)
        elif isinstance(error, KeyboardInterrupt):
            print_line("Sweep interrupted before its first job")

    def ended(self, outcome: Outcome) -> None:
        """Count and log the outcome of a job."""
        job = self._jobs[outcome.number]
        title = f"#{job.number} {' '.join(job.overrides)}"
        if outcome.done:
            self._n_done += 1
            self.log(f"done {title} in {outcome.seconds:.2f} s: {outcome.value}")
        else:
            self._failed.append(outcome)
            self.log(f"failed {title}: {outcome.error}")
            self._bar.set_postfix_str(f"{len(self._failed)} failed", refresh=False)
        self._bar.update()

    def _finish(self, reason: BaseException | None) -> None:
        """Report how the sweep ended; `reason` is the error that ended it early."""
        if isinstance(reason, EngineStopped):
            self._print_and_log(f"Sweep stopped: {reason}")
        elif isinstance(reason, KeyboardInterrupt):
            self._print_and_log("Sweep interrupted")
        n_failed = len(self._failed)
        n_done = self._n_reused + self._n_done
        n_planned = len(self._jobs) if self._planned is None else self._planned
        n_missing = n_planned - n_done - n_failed
        counts = f"{n_done} done"
        if self._n_reused:
            counts += f" ({self._n_reused} before)"
        if n_failed:
            counts += f", {n_failed} failed"
        if n_missing:
            counts += f", {n_missing} not run"
        elapsed = seconds_text(max(time.perf_counter() - self._start, 0.01))
        jobs = "1 job" if n_planned == 1 else f"{n_planned} jobs"
        self._print_and_log(f"{jobs}: {counts}, in {elapsed}")
        if n_failed:
            self._print_failures()
        if n_failed or n_missing:
            print_line(
                "The same command again runs only what is missing or failed. "
                f"Log: {self._name}/sweep.log"
            )
        print_line(f"Results: {self._name}; next: sysid-collect {self._name}")

    def _print_failures(self) -> None:
        """Print the errors of failed jobs, and where to find more about them."""
        common = set.intersection(*(set(job.overrides) for job in self._jobs.values()))
        for outcome in sorted(self._failed)[:MAX_SHOWN_FAILURES]:
            job = self._jobs[outcome.number]
            own_overrides = [item for item in job.overrides if item not in common]
            title = " ".join([f"#{outcome.number}", *own_overrides])
            line = f"  {title}: {one_line(outcome.error)}"
            if not outcome.stored:
                line += f" (could not be stored in {job.folder})"
            print_line(line, sys.stderr)
        n_further = len(self._failed) - MAX_SHOWN_FAILURES
        if n_further > 0:
            print_line(f"  and {n_further} more, see sweep.log", sys.stderr)
        print_line(
            f"Error, configuration and traceback of a job: {self._name}/<number>/{OUTCOME_FILE}",
            sys.stderr,
        )

    def _print_and_log(self, line: str) -> None:
        """Print a line and add it to the log."""
        self.log(line)
        print_line(line)

    def log(self, line: str) -> None:
        """Add a line to `sweep.log`, unless the disk is full."""
        with (
            suppress(OSError),
            open(self._folder / "sweep.log", "a", encoding="utf-8") as file,
        ):
            file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {' '.join(line.split())}\n")


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Print a line to a stream, by default to the standard output.

    If the reader of the stream has closed it (as `| head` does), the sweep goes on without output.
    """
    stream = stream or sys.stdout
    try:
        print(printable(text), file=stream, flush=True)
    except OSError:
        with suppress(OSError, ValueError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())


def one_line(error: str) -> str:
    """Shorten an error to a line that fits on the terminal."""
    return shorten(error, MAX_ERROR_WIDTH, placeholder="...")
