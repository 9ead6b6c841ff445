"""What a command shows while it works: one line below what it has said, a bar or words; off a
terminal nothing.

The line is there from the first moment: nothing heavy is imported here.
"""

import atexit
import gc
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

QUIET = 0.5  # s without output, after which the line says what is being done
ERASE = "\r\x1b[K"
BAR = re.compile(r"\r?([^|:]*): +\d+%\|.*\| *(\d+/\d+)")
COMPILING = "compiling, once per machine"


class Terminal:
    """A standard stream that erases the line before other output, and one thread that keeps the
    line alive.
    """

    work: ClassVar = ["loading"]  # what is being done, the innermost last
    lock = threading.RLock()
    line = ""  # what the cursor stands in: "words" of ours, a "bar", or nothing that gives way
    bar = ""  # that is open, as it was last drawn
    last = since = 0.0  # s, of the last output and of the begin of the work

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Pass text on; a carriage return and no line end makes a line that is replaced."""
        kind = Terminal
        with kind.lock:
            if kind.line == "words" or (kind.line and text.strip() and not text.startswith("\r")):
                _put(ERASE)
            kind.line = "bar" if text.startswith("\r") and not text.endswith("\n") else ""
            if BAR.search(text) or not text.strip():
                kind.bar = text.strip()
            kind.last = time.monotonic()
            return int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _put(text: str) -> None:
    if sys.__stderr__ is not None:
        sys.__stderr__.write(text)
        sys.__stderr__.flush()


def start() -> None:
    """Show what this process does from now on, if it has a terminal."""
    if not sys.stderr or not sys.stderr.isatty():
        return
    sys.stdout, sys.stderr = Terminal(sys.stdout), Terminal(sys.stderr)
    end = threading.Event()
    Terminal.since = time.monotonic()
    show()
    threading.Thread(target=_keep_alive, args=(end,), daemon=True, name="progress").start()
    atexit.register(_close, end)
    os.register_at_fork(after_in_child=_forget)


def show() -> None:
    """Write what is being done into the line."""
    with Terminal.lock:
        seconds = time.monotonic() - Terminal.since
        bar = BAR.search(Terminal.bar)
        work = [f"{bar[1]} {bar[2]}"] if bar else []
        work += dict.fromkeys(Terminal.work[1:] or Terminal.work)
        words = ": ".join(work) + (f", {seconds:.0f} s" * (seconds >= 1))
        _put(ERASE + words[: shutil.get_terminal_size().columns - 1])
        Terminal.line = "words"


def _keep_alive(end: threading.Event) -> None:
    is_watched = False
    while not end.wait(QUIET / 2):
        is_watched = is_watched or _watch_compiler()
        if time.monotonic() - Terminal.last > QUIET:
            show()


def _close(end: threading.Event) -> None:
    end.set()
    gc.freeze()  # to look at all that was compiled once more would take seconds
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
def doing(words: str) -> Iterator[None]:
    """Say what the block does, while it does not say anything itself."""
    with Terminal.lock:
        Terminal.work.append(words)
        Terminal.since = time.monotonic()
    try:
        yield
    finally:
        with Terminal.lock:
            Terminal.work.remove(words)


@cache
def use_own_lock() -> None:
    """Give the bars of this process a lock of its own.

    The lock that tqdm makes is shared by processes, and would be left in the system when one of
    them is killed.
    """
    from tqdm import tqdm

    tqdm.set_lock(threading.RLock())


def _watch_compiler() -> bool:
    """Say that functions are compiled while they are, once numba is there; returns whether it
    is.
    """
    if not hasattr(sys.modules.get("numba.core.dispatcher"), "Dispatcher"):
        return False
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            with Terminal.lock:
                Terminal.since = Terminal.since if COMPILING in Terminal.work else time.monotonic()
                Terminal.work.append(COMPILING)

        def on_end(self, event: Any) -> None:
            with Terminal.lock:
                Terminal.work.remove(COMPILING)

    event.register("numba:compile", Compiling())
    return True
