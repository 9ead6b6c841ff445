"""Work that other processes do beside this one, each in a copy of it (fork), so that threads need
not share Python.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Generic, NoReturn, TypeVar

from threadpoolctl import threadpool_limits

PATIENCE = 60.0  # s that another process may take longer than this one for a share of the same size
MOST = 16  # processes: more find little to do, and need memory

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


def one_blas_thread(function: F) -> F:
    """Let a function use one thread of BLAS: many small products wait for each other's, many times
    as long.

    Commands do so from their start. With another number of threads the last digits differ.
    """
    return threadpool_limits.wrap(limits=1, user_api="blas")(function)


def n_cores() -> int:
    """Cores that this process may use: those it is bound to, or fewer by the variable
    ``PYTHON_CPU_COUNT``.
    """
    given = os.environ.get("PYTHON_CPU_COUNT", "")
    if given.isdigit():
        return max(1, int(given))
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_processes() -> int:
    """Count the processes that share the work, this one among them.

    One that does a share for another works alone.
    """
    return min(n_cores(), MOST) if _is_linux() and multiprocessing.parent_process() is None else 1


class Beside(Generic[T]):
    """Work that begins in a process of its own, a copy of this one, which never sees Ctrl-C.

    With one core, or where processes cannot be copied, nothing begins before the result is asked
    for.

    Parameters
    ----------
    work : callable
        Its result is sent to this process; what else it changes in memory is lost.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer: Connection | None = None
        if n_processes() < 2:
            return
        fork = multiprocessing.get_context("fork")
        answer, sender = fork.Pipe(duplex=False)
        self._process = fork.Process(target=_send, args=(work, sender), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # Python 3.12: threads, as of BLAS, are not copied
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sender.close()
        self._answer = answer

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self._answer is None or self._answer.poll()

    def result(self, patience: float | None = None) -> T:
        """Return the result of the work.

        It is done here if the process could not, or needs more seconds than `patience`.
        """
        try:
            if self._answer is not None and self._answer.poll(patience):
                return self._answer.recv()
        # it failed, was killed, or has a result that cannot be sent: here the reason is seen
        except Exception:
            pass
        finally:
            self.drop()
        return self._work()

    def drop(self) -> None:
        """End the process if it is still at work."""
        if self._answer is not None:
            self._answer.close()
            self._process.kill()
            self._process.join()
            self._answer = None


def wait_for_any(several: Iterable[Beside[T]]) -> None:
    """Wait until one of them is over; all of them must be at work in other processes."""
    wait([one._answer for one in several if one._answer is not None])


def together(works: Sequence[Callable[[], T]]) -> list[T]:
    """Results of several works, in their order, each of a process of its own; one for each core at
    a time.
    """
    begun: list[Beside[T]] = []
    try:
        for work in works:
            while len(running := [one for one in begun if not one.is_over]) >= n_processes():
                wait_for_any(running)
            begun.append(Beside(work))
        return [one.result() for one in begun]
    finally:
        for one in begun:
            one.drop()


def _send(work: Callable[[], T], sender: Connection) -> NoReturn:
    try:
        sender.send(work())
    except BaseException:  # nothing is sent: the other process does the work, and sees why
        os._exit(1)
    os._exit(0)


def _is_linux() -> bool:
    return sys.platform == "linux"
