"""Limits of time and memory of one job: how people write them, and how the process that runs it ends itself.

A compiled loop cannot be interrupted, and memory cannot be taken back from a job that holds it: so the process
stores why, and kills itself. While compiled code holds the interpreter no Python can store anything: then a timer
of the interpreter that needs no Python writes where the process stood, and ends it; the next attempt tells
(`where_it_stood`). Only engines that outlive a worker set limits.
"""

import faulthandler
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from experiments.options import seconds

POLL = 0.1  # s
GRACE = 2.0  # s; a process that cannot even say why it ends is ended by its timer that much later
TRACE = ".trace"  # file in the folder of a job that such a timer writes to
PAGE = os.sysconf("SC_PAGE_SIZE")  # byte


class Limits(NamedTuple):
    """What a single job may use; None: anything."""

    time: float | None = None  # s
    memory: int | None = None  # byte


def limits_of(time_limit: float | str | None, memory_limit: float | str | None) -> Limits:
    """Limits as people write them, such as 10min and 2GB; None: none.

    Raises
    ------
    ValueError
        With the option that is wrong.
    """
    return Limits(
        None if time_limit is None else seconds_of(time_limit, "time_limit"),
        None if memory_limit is None else bytes_of(memory_limit),
    )


def seconds_of(duration: float | str, option: str) -> float:
    """Seconds of a setting of the launcher.

    Raises
    ------
    ValueError
        If it is no duration.
    """
    try:
        return seconds(duration)
    except ValueError:
        raise ValueError(
            f"hydra.launcher.{option} must be a number of seconds, or one with a unit such as 10min, got {duration!r}"
        ) from None


def bytes_of(size: float | str) -> int:
    """Bytes of a number of bytes, or of a number with kB, MB, GB, TB or KiB, MiB, GiB, TiB.

    Raises
    ------
    ValueError
        If it is neither, or not positive.

    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of(1000)
    (2000000000, 1610612736, 1000)
    """
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*(?:([kKMGT])(i?)B|B)?\s*", str(size))
    value = float(match[1]) if match else float("nan")
    if match and match[2]:
        value *= (1024 if match[3] else 1000) ** ("KMGT".index(match[2].upper()) + 1)
    if not 1 <= value < float("inf"):
        raise ValueError(
            f"hydra.launcher.memory_limit must be a number of bytes, or one with a unit such as 500MB or 2GB, "
            f"got {size!r}"
        )
    return int(value)


@contextmanager
def guard_limits(
    time_limit: float | None, memory_limit: int | None, give_reason: Callable[[str], object], folder: Path
) -> Iterator[None]:
    """Kill this process when the block takes longer or more memory than it may, after calling `give_reason(reason)`.

    Parameters
    ----------
    time_limit : float or None
        Wall time [s].
    memory_limit : int or None
        Resident memory of the whole process [byte].
    give_reason : callable
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
        target=_watch, args=(over, time_limit, memory_limit, give_reason), name="limits of the job", daemon=True
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
    over: threading.Event, time_limit: float | None, memory_limit: int | None, give_reason: Callable[[str], object]
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
            give_reason(reason)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)


def resident_memory() -> int:
    """Resident memory of this process [byte]."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE
