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
from experiments.sweep.engine import EngineStopped
from experiments.sweep.job import Job, Outcome

MOST_FAILURES = 20  # told on the terminal
MANY = 100  # jobs that are composed within a second or two
WIDTH = 160  # characters of an error on the terminal


def _columns() -> int | None:
    """Width of the progress line where the terminal does not say its own; None: as wide as it is."""
    try:
        return None if os.get_terminal_size(sys.stderr.fileno()).columns else 100
    except (OSError, ValueError):
        return None


def composing(batch: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
    """The jobs one by one, with a line on the terminal where there are so many that it takes seconds."""
    return tqdm(batch, unit="job", disable=None if len(batch) > MANY else True, desc="checking", leave=False)


class Report:
    """Progress and end of one sweep."""

    def __init__(self, folder: Path, place: str, planned: int | None = None) -> None:
        self._folder = folder
        self._place = place
        self._planned = planned  # jobs of all batches; None: there is one
        self._jobs: dict[int, Job] = {}
        self._ended: list[Outcome] = []
        self._damaged = 0
        self._reused = 0
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
            self._begin(n_reused)
        if self._planned is None:
            return
        self._planned -= n_asked - len(jobs)
        if self._bar is not None and not self._bar.disable:
            self._bar.total = self._planned
            for place in ("n", "initial", "last_print_n"):  # what is finished already took no time
                setattr(self._bar, place, getattr(self._bar, place) + n_reused)

    def _begin(self, n_reused: int) -> None:
        """Say what is to be done."""
        n, initial = len(self._jobs), 0
        if self._planned is None:
            kept = f", {n_reused} finished already" if n_reused else ""
            anew = f" ({self._damaged} anew, damaged or out of date)" if self._damaged else ""
            line, initial = f"Sweep of {n} job{'s' * (n != 1)}{kept}, {n - n_reused} to run{anew}", n_reused
        else:
            line = f"Search with up to {self._planned} jobs"
        line = f"{line} in {self._place}: {_shown(self._folder)}"
        self.log(line)
        _say(line)
        self._bar = tqdm(
            total=self._planned or n,
            initial=initial,
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
            _say("Sweep interrupted before its first job")

    def ended(self, outcome: Outcome) -> None:
        """Count a job."""
        self._ended.append(outcome)
        job = self._jobs[outcome.number]
        told = f"#{job.number} {' '.join(job.overrides)}"
        if outcome.done:
            self.log(f"done {told} in {outcome.seconds:.2f} s: {outcome.value}")
        else:
            self.log(f"failed {told}: {outcome.error}")
        if self._bar is not None:
            self._show(self._note)
            self._bar.update()

    def note(self, text: str) -> None:
        """Show a few words beside the progress: what was found so far."""
        self._note = text
        self._show(text)

    def _show(self, note: str) -> None:
        failed = len(self._failed())
        told = [f"{failed} failed"] * bool(failed) + [note] * bool(note)
        if self._bar is not None and told:
            self._bar.set_postfix_str(", ".join(told), refresh=False)

    def _failed(self) -> list[Outcome]:
        return [outcome for outcome in self._ended if not outcome.done]

    def _finish(self, reason: BaseException | None) -> None:
        """Tell how the sweep ended."""
        failed = self._failed()
        planned = len(self._jobs) if self._planned is None else self._planned
        done = self._reused + len(self._ended) - len(failed)
        missing = planned - done - len(failed)
        counts = [f"{done} done" + (f" ({self._reused} before)" if self._reused else "")]
        counts += [f"{len(failed)} failed"] if failed else []
        counts += [f"{missing} not run"] if missing else []
        elapsed = seconds_text(max(time.perf_counter() - self._start, 0.01))
        lines = [f"{planned} jobs: {', '.join(counts)}, in {elapsed}"]
        if isinstance(reason, EngineStopped):
            lines.insert(0, f"Sweep stopped: {reason}")
        elif isinstance(reason, KeyboardInterrupt):
            lines.insert(0, "Sweep interrupted")
        for line in lines:
            self.log(line)
        _say("\n".join(lines))
        if failed:
            self._tell_failures(failed)
        folder = _shown(self._folder)
        if failed or missing:
            _say(f"The same command again runs only what is missing or failed. Log: {folder}/sweep.log")
        _say(f"Results: {folder}")

    def _tell_failures(self, failed: list[Outcome]) -> None:
        failed = sorted(failed, key=lambda outcome: outcome.number)
        common = set.intersection(*(set(job.overrides) for job in self._jobs.values()))
        for outcome in failed[:MOST_FAILURES]:
            error = " ".join(outcome.error.split())
            short = error if len(error) <= WIDTH else f"{error[:WIDTH]}..."
            own = [one for one in self._jobs[outcome.number].overrides if one not in common]
            _say(f"  {' '.join([f'#{outcome.number}', *own])}: {short}", sys.stderr)
            if not outcome.stored:
                _say(f"     could not be stored in {self._jobs[outcome.number].folder}", sys.stderr)
        if len(failed) > MOST_FAILURES:
            _say(f"  and {len(failed) - MOST_FAILURES} more, see sweep.log", sys.stderr)
        _say(f"Error, configuration and traceback of a job: {_shown(self._folder)}/<number>/outcome.json", sys.stderr)

    def log(self, line: str) -> None:
        """Add a line to `sweep.log`; a full disk does not end a sweep."""
        with suppress(OSError), open(self._folder / "sweep.log", "a", encoding="utf-8") as file:
            file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {' '.join(line.split())}\n")


def _say(text: str, stream: TextIO | None = None) -> None:
    """Print to a stream, by default the output; who reads it may stop reading (| head): the sweep goes on."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:
        with suppress(OSError, ValueError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())


def _shown(folder: Path) -> str:
    """Path as short as it can be."""
    with suppress(ValueError):
        return str(folder.relative_to(Path.cwd()))
    return str(folder)
