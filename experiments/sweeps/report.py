"""What a person sees of a sweep: one line while it runs, a few at its end, everything in `sweep.log`."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

from experiments.options import seconds_text
from experiments.sweeps.engines import EngineStopped
from experiments.sweeps.store import OUTCOME, Outcome
from experiments.sweeps.task import Job

MOST_FAILURES = 20  # told on the terminal
MANY = 100  # jobs that are composed within a second or two
WIDTH = 160  # characters of an error on the terminal


def show_composing(batch: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
    """The jobs one by one, with a line on the terminal where there are so many that it takes seconds."""
    return tqdm(batch, unit="job", disable=None if len(batch) > MANY else True, desc="checking", leave=False)


class Report:
    """Progress and end of one sweep.

    Parameters
    ----------
    folder : Path
    place : str
        Where jobs are run, for people.
    planned : int, optional
        Jobs of all batches; None: there is one.
    """

    def __init__(self, folder: Path, place: str, planned: int | None = None) -> None:
        self._folder = folder
        self._place = place
        self._planned = planned
        self._jobs: dict[int, Job] = {}
        self._failed: list[Outcome] = []
        self._done = self._damaged = self._reused = 0
        self._note = ""
        self._start = time.perf_counter()
        self._bar: tqdm | None = None

    def damaged(self, job: Job, what: str) -> None:
        """A finished job whose files are not what it has to write; it is run anew."""
        self._damaged += 1
        self.log(f"anew #{job.number}: {what}")

    def batch(self, jobs: Mapping[int, Job], n_reused: int, n_asked: int) -> None:
        """Take jobs, some finished already; those asked for that are not among them are those of earlier batches."""
        self._jobs.update(jobs)
        self._reused += n_reused
        if self._bar is None:
            self._bar = self._begin(n_reused)
        if self._planned is not None:
            self._planned -= n_asked - len(jobs)
            self._bar.total = self._planned
            for place in ("n", "initial", "last_print_n"):  # what is finished already took no time
                setattr(self._bar, place, getattr(self._bar, place, 0) + n_reused)

    def _begin(self, n_reused: int) -> tqdm:
        """Say what is to be done."""
        n = len(self._jobs)
        if self._planned is None:
            kept = f", {n_reused} finished already" if n_reused else ""
            anew = f" ({self._damaged} anew, damaged or out of date)" if self._damaged else ""
            line = f"Sweep of {n} job{'s' * (n != 1)}{kept}, {n - n_reused} to run{anew}"
        else:
            line = f"Search with up to {self._planned} jobs"
        line = f"{line} in {self._place}: {_shorten(self._folder)}"
        self.log(line)
        say(line)
        return tqdm(
            total=self._planned or n,
            initial=n_reused if self._planned is None else 0,
            unit="job",
            disable=None,
            desc="sweep",
            mininterval=0.2,
            ncols=_columns(),
        )

    def __enter__(self) -> "Report":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        if self._bar is not None:
            self.note(self._note)
            self._bar.update()

    def note(self, text: str) -> None:
        """Show a few words beside the progress: what was found so far."""
        self._note = text
        shown = [f"{len(self._failed)} failed"] * bool(self._failed) + [text] * bool(text)
        if self._bar is not None and shown:
            self._bar.set_postfix_str(", ".join(shown), refresh=False)

    def _finish(self, reason: BaseException | None) -> None:
        """Tell how the sweep ended."""
        failed, done = len(self._failed), self._reused + self._done
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
            self.log(line)
            say(line)
        if failed:
            self._tell_failures()
        folder = _shorten(self._folder)
        if failed or missing:
            say(f"The same command again runs only what is missing or failed. Log: {folder}/sweep.log")
        say(f"Results: {folder}")

    def _tell_failures(self) -> None:
        common = set.intersection(*(set(job.overrides) for job in self._jobs.values()))
        for outcome in sorted(self._failed)[:MOST_FAILURES]:
            job = self._jobs[outcome.number]
            own = [one for one in job.overrides if one not in common]
            say(f"  {' '.join([f'#{outcome.number}', *own])}: {one_line(outcome.error)}", sys.stderr)
            if not outcome.stored:
                say(f"     could not be stored in {job.folder}", sys.stderr)
        if len(self._failed) > MOST_FAILURES:
            say(f"  and {len(self._failed) - MOST_FAILURES} more, see sweep.log", sys.stderr)
        say(f"Error, configuration and traceback of a job: {_shorten(self._folder)}/<number>/{OUTCOME}", sys.stderr)

    def log(self, line: str) -> None:
        """Add a line to `sweep.log`; a full disk does not end a sweep."""
        with suppress(OSError), open(self._folder / "sweep.log", "a", encoding="utf-8") as file:
            file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {' '.join(line.split())}\n")


def say(text: str, stream: TextIO | None = None) -> None:
    """Print to a stream, by default the output; who reads it may stop reading (| head): the sweep goes on."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:
        with suppress(OSError, ValueError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())


def one_line(error: str) -> str:
    """An error in a line that fits on the terminal."""
    line = " ".join(error.split())
    return line if len(line) <= WIDTH else f"{line[:WIDTH]}..."


def _columns() -> int | None:
    """Width of the progress line where the terminal does not say its own; None: as wide as it is."""
    try:
        return None if os.get_terminal_size(sys.stderr.fileno()).columns else 100
    except (OSError, ValueError):
        return None


def _shorten(folder: Path) -> str:
    """Path as short as it can be."""
    with suppress(ValueError):
        return str(folder.relative_to(Path.cwd()))
    return str(folder)
