"""Limits of time and memory of one job, enforced by the process that runs it: it ends itself.

A compiled loop cannot be interrupted, and memory cannot be taken back from a job that holds it: so the process
stores why, and kills itself. While compiled code holds the interpreter no Python can store anything: then a timer
of the interpreter that needs no Python writes where the process stood, and ends it; the next attempt tells
(`where_it_stood`). Only engines that outlive a worker set limits.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL = 0.1  # s
GRACE = 2.0  # s; a process that cannot even say why it ends is ended by its timer that much later
TRACE = ".trace"  # file in the folder of a job that such a timer writes to
PAGE = os.sysconf("SC_PAGE_SIZE")  # byte


@contextmanager
def guarded(
    time_limit: float | None, memory_limit: int | None, last_words: Callable[[str], object], folder: Path
) -> Iterator[None]:
    """Kill this process when the block takes longer or more memory than it may, after calling `last_words(reason)`.

    Parameters
    ----------
    time_limit : float or None
        Wall time [s].
    memory_limit : int or None
        Resident memory of the whole process [byte].
    last_words : callable
        Stores why the job ends.
    folder : Path
        Of the job.

    Raises
    ------
    OSError
        If the folder cannot be written to.
    """
    if time_limit is None and memory_limit is None:
        yield
        return
    over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(over, time_limit, memory_limit, last_words), name="limits of the job", daemon=True
    )
    with _timer(time_limit, folder / TRACE):
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()


@contextmanager
def _timer(time_limit: float | None, trace: Path) -> Iterator[None]:
    """End this process some time after the limit, whatever it is at."""
    if time_limit is None:
        yield
        return
    with open(trace, "w") as file:
        faulthandler.dump_traceback_later(time_limit + GRACE, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    trace.unlink(missing_ok=True)


def where_it_stood(folder: Path) -> str:
    """Where an attempt at a job stood when its timer ended it; empty if none did."""
    try:
        return (folder / TRACE).read_text(errors="replace")
    except OSError:
        return ""


def time_exceeded(time_limit: float) -> str:
    """What is told of a job that took longer than its limit [s]."""
    return f"time limit of {time_limit:g} s exceeded"


def _watch(
    over: threading.Event, time_limit: float | None, memory_limit: int | None, last_words: Callable[[str], object]
) -> None:
    start = time.monotonic()
    while not over.wait(POLL):
        if time_limit is not None and time.monotonic() - start > time_limit:
            reason = time_exceeded(time_limit)
        elif memory_limit is not None and (used := resident_memory()) > memory_limit:
            reason = f"memory limit of {memory_limit / 1e6:.0f} MB exceeded ({used / 1e6:.0f} MB in use)"
        else:
            continue
        try:
            last_words(reason)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)


def resident_memory() -> int:
    """Resident memory of this process [byte]."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE
