"""What a call that takes long is doing: a line in a terminal, a bar in a notebook, else nothing."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from html import escape
from typing import Any, Protocol, TypeVar

from sysid.progress import ERASE, Steps, is_watched, on_steps
from sysid.time_limit import read_clock

SECONDS_UNTIL_SHOWN = 2.0  # s, of a call before anything is shown
SECONDS_BETWEEN_UPDATES = 0.5  # s, between two updates of the display

Function = TypeVar("Function", bound=Callable[..., Any])


class Display(Protocol):
    """Where progress is shown."""

    def show(self, words: str, fraction: float | None) -> None:
        """Show words, and the fraction that is done if it is known."""

    def clear(self) -> None:
        """Remove what was shown."""


class TerminalLine:
    """The line of the cursor, on a terminal. Output that follows is written over it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def show(self, words: str, fraction: float | None) -> None:
        n_columns = shutil.get_terminal_size().columns
        self.stream.write(f"{ERASE}{words[: n_columns - 1]}\r")
        self.stream.flush()

    def clear(self) -> None:
        self.stream.write(ERASE)
        self.stream.flush()


class NotebookBar:
    """A progress bar below the cell that runs."""

    def __init__(self, display: Any) -> None:
        self._display = display  # the module IPython.display
        self._handle: Any = None  # what updates the bar; None until it is shown

    def show(self, words: str, fraction: float | None) -> None:
        value = "" if fraction is None else f' value="{fraction:.3f}"'
        self._write(f'<progress max="1"{value}></progress> {escape(words)}')

    def clear(self) -> None:
        self._write("")

    def _write(self, html: str) -> None:
        content = self._display.HTML(html)
        if self._handle is None:
            self._handle = self._display.display(content, display_id=True)
        else:
            self._handle.update(content)


def find_display() -> Display | None:
    """Return where progress can be shown: a notebook or a terminal; None if there is neither.

    A stream in place of standard error belongs to a program that shows progress itself, as commands
    do, or that collects what is written. Of several threads and processes only the first one shows
    progress.
    """
    is_first = threading.current_thread() is threading.main_thread()
    if not is_first or multiprocessing.parent_process() is not None:
        return None
    package = sys.modules.get("IPython")
    shell = package.get_ipython() if package is not None else None
    if hasattr(shell, "kernel"):
        return NotebookBar(sys.modules["IPython.display"])
    stream = sys.__stderr__
    if stream is not None and sys.stderr is stream and stream.isatty():
        return TerminalLine(stream)
    return None


class Shown:
    """A call whose progress is shown once it takes longer than `SECONDS_UNTIL_SHOWN`."""

    def __init__(self, display: Display) -> None:
        self.work: list[str] = []  # descriptions of the work in progress, the innermost last
        #: present step of a search, as words and as the fraction done; None: nothing is searched
        self.step: tuple[str, float] | None = None
        self._display = display
        self._began = read_clock()
        self._is_over = threading.Event()
        context = copy_context()  # by it a notebook knows the cell
        self._thread = threading.Thread(
            target=context.run, args=(self._keep_showing,), daemon=True, name="progress"
        )
        self._thread.start()

    def describe(self) -> tuple[str, float | None]:
        """Return the words of the present work, and the fraction of its steps that is done."""
        words = ": ".join(dict.fromkeys(self.work))
        fraction = None
        present = self.step  # read once: the thread that works changes it
        if present is not None:
            step, fraction = present
            words += f", {step}"
        return f"{words}, {read_clock() - self._began:.0f} s", fraction

    def begin_step(self, steps: Steps) -> None:
        """Remember the step of a search that begins."""
        n = max(steps.n_planned, steps.n_done + 1)
        self.step = steps.describe(), steps.n_done / n

    def end(self) -> None:
        """Remove what was shown."""
        self._is_over.set()
        self._thread.join()

    def _keep_showing(self) -> None:
        """Show the progress from time to time, from the first moment at which it is shown on.

        A display that fails, such as a terminal that was closed, ends this and not the call.
        """
        if self._is_over.wait(SECONDS_UNTIL_SHOWN):
            return
        with suppress(Exception):
            try:
                while True:
                    self._display.show(*self.describe())
                    if self._is_over.wait(SECONDS_BETWEEN_UPDATES):
                        break
            finally:
                self._display.clear()


_shown: ContextVar[Shown | None] = ContextVar("shown", default=None)


@contextmanager
def doing(words: str) -> Iterator[None]:
    """Show these words while the block runs, if a call above shows its progress."""
    shown = _shown.get()
    if shown is None:
        yield
        return
    shown.work.append(words)
    step_above = shown.step
    shown.step = None
    try:
        yield
    finally:
        shown.work.pop()
        shown.step = step_above


@contextmanager
def _watching(words: str) -> Iterator[None]:
    """Show these words, and the steps of searches, while the block runs."""
    if _shown.get() is not None:  # the call above shows what it does
        yield
        return
    display = None if is_watched() else find_display()
    if display is None:
        yield
        return
    shown = Shown(display)
    before = _shown.set(shown)
    try:
        with on_steps(shown.begin_step), doing(words):
            yield
    finally:
        _shown.reset(before)
        shown.end()


def shows_progress(words: str) -> Callable[[Function], Function]:
    """Make a function show its progress under these words.

    Nothing is shown where a caller listens to the progress itself (`sysid.progress.on_progress`).
    A decorated function that another one calls leaves it to that one (`doing`).
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def watched(*arguments: Any, **options: Any) -> Any:
            with _watching(words):
                return function(*arguments, **options)

        return watched  # type: ignore[return-value]

    return decorate
