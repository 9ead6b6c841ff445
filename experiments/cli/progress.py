"""The progress line of a command: one line below the output, on a terminal only.

It names the work that is being done, or shows a progress bar. The line is there from the first
moment: nothing heavy is imported here.
"""

import atexit
import gc
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

from sysid.progress import ERASE

SECONDS_UNTIL_DRAWN_AGAIN = 0.5  # s without output, after which the line is drawn again
TQDM_BAR = re.compile(r"\r?([^|:]*): +\d+%\|.*\| *(\d+/\d+)")  # its description, and i/n
COMPILING = "compiling, once per machine"


class Terminal:
    """A standard stream that erases the progress line before other output.

    The state of the line is shared by all streams. A thread keeps the line up to date.
    """

    work: ClassVar = ["loading"]  # descriptions of the work in progress, the innermost last
    lock = threading.RLock()
    line = ""  # content of the cursor's line: "words" (the progress line), "bar", or "" for others
    bar = ""  # the open progress bar of tqdm, as it was drawn last
    last = 0.0  # s, monotonic time of the last output
    since = 0.0  # s, monotonic time at which the innermost work began

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text to the stream; one with a carriage return and no line end is a bar."""
        with Terminal.lock:
            starts_line = text.startswith("\r")
            is_bar_in_the_way = Terminal.line and text.strip() and not starts_line
            if Terminal.line == "words" or is_bar_in_the_way:
                _put(ERASE)
            Terminal.line = "bar" if starts_line and not text.endswith("\n") else ""
            if TQDM_BAR.search(text) or not text.strip():
                Terminal.bar = text.strip()
            Terminal.last = time.monotonic()
            return int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _put(text: str) -> None:
    """Write a text to the real standard error, if there is one."""
    if sys.__stderr__ is not None:
        sys.__stderr__.write(text)
        sys.__stderr__.flush()


def start() -> None:
    """Show the progress line from now on, if this process has a terminal."""
    if not sys.stderr or not sys.stderr.isatty():
        return
    sys.stdout = Terminal(sys.stdout)
    sys.stderr = Terminal(sys.stderr)
    end = threading.Event()
    Terminal.since = time.monotonic()
    show()
    threading.Thread(target=_keep_alive, args=(end,), daemon=True, name="progress").start()
    atexit.register(_close, end)
    os.register_at_fork(after_in_child=_forget)


def show() -> None:
    """Draw the progress line: the open bar, the work in progress, and its seconds."""
    with Terminal.lock:
        seconds = time.monotonic() - Terminal.since
        bar = TQDM_BAR.search(Terminal.bar)
        parts = [f"{bar[1]} {bar[2]}"] if bar else []
        parts += dict.fromkeys(Terminal.work[1:] or Terminal.work)  # each description once
        words = ": ".join(parts)
        if seconds >= 1:
            words += f", {seconds:.0f} s"
        max_length = shutil.get_terminal_size().columns - 1
        _put(ERASE + words[:max_length])
        Terminal.line = "words"


def _keep_alive(end: threading.Event) -> None:
    """Draw the line again after each silence, until `end` is set."""
    is_watched = False
    while not end.wait(SECONDS_UNTIL_DRAWN_AGAIN / 2):
        is_watched = is_watched or _watch_compiler()
        if time.monotonic() - Terminal.last > SECONDS_UNTIL_DRAWN_AGAIN:
            show()


def _close(end: threading.Event) -> None:
    """Erase the line at the end of the process."""
    end.set()
    gc.freeze()  # a last garbage collection over all compiled functions would take seconds
    with Terminal.lock:
        if Terminal.line == "words":
            _put(ERASE)
        Terminal.line = ""


def _forget() -> None:
    """Give a forked process a lock of its own and no line.

    It has no thread that keeps the line, nor one that would release the lock that it inherits.
    """
    Terminal.lock = threading.RLock()
    Terminal.line = ""


@contextmanager
def doing(words: str) -> Iterator[Callable[[str], None]]:
    """Show these words in the progress line while the block runs and writes no output itself.

    The block gets a function that adds how far it is to the words.
    """
    shown = words

    def add(progress: str) -> None:
        nonlocal shown
        with Terminal.lock:
            position = Terminal.work.index(shown)
            shown = f"{words}, {progress}"
            Terminal.work[position] = shown

    with Terminal.lock:
        Terminal.work.append(words)
        Terminal.since = time.monotonic()
    try:
        yield add
    finally:
        with Terminal.lock:
            Terminal.work.remove(shown)


@cache
def use_own_lock() -> None:
    """Give the progress bars of this process a lock of its own.

    The lock that tqdm makes is shared by processes, and would be left in the system when one of
    them is killed.
    """
    from tqdm import tqdm

    tqdm.set_lock(threading.RLock())


def _watch_compiler() -> bool:
    """Show in the line when numba compiles; return whether numba was imported already."""
    if not hasattr(sys.modules.get("numba.core.dispatcher"), "Dispatcher"):
        return False
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            with Terminal.lock:
                if COMPILING not in Terminal.work:
                    Terminal.since = time.monotonic()
                Terminal.work.append(COMPILING)

        def on_end(self, event: Any) -> None:
            with Terminal.lock:
                Terminal.work.remove(COMPILING)

    event.register("numba:compile", Compiling())
    return True
