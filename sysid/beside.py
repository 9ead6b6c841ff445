"""Work in parallel processes.

Each process is a copy of this one (fork). Unlike threads, processes do not share the interpreter.
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

#: how much longer [s] another process may take than this one for an equal share of the work
SHARE_TIMEOUT = 60.0

#: largest number of processes: more would have little to do and need memory
MAX_PROCESSES = 16

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., object])


def one_blas_thread(function: Function) -> Function:
    """Make a function use one thread of BLAS.

    Small matrix products take many times longer when the threads of several processes wait for each
    other. Commands use one thread from their start. With another number of threads the last digits
    of the results differ.
    """
    return threadpool_limits.wrap(limits=1, user_api="blas")(function)


def n_cores() -> int:
    """Return the number of cores that this process may use.

    These are the cores that it is bound to, unless the environment variable ``PYTHON_CPU_COUNT``
    gives a number.
    """
    given = os.environ.get("PYTHON_CPU_COUNT", "")
    if given.isdigit():
        return max(1, int(given))
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_processes() -> int:
    """Return the number of processes that share the work, including this one.

    It is 1 in a process that was started to do part of the work, and on systems other than Linux.
    """
    is_child = multiprocessing.parent_process() is not None
    if is_child or not _is_linux():
        return 1
    return min(n_cores(), MAX_PROCESSES)


class Beside(Generic[Result]):
    """Work that runs in a process of its own, a copy of this one, which ignores Ctrl-C.

    With one core, or where processes cannot be copied, the work is done in this process when the
    result is requested.

    Parameters
    ----------
    work : callable
        Its return value is sent to this process. Other changes that it makes in memory are lost.
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._receiver: Connection | None = None
        if n_processes() < 2:
            return
        fork = multiprocessing.get_context("fork")
        receiver, sender = fork.Pipe(duplex=False)
        self._process = fork.Process(target=_send, args=(work, sender), daemon=True)
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns that threads, such as those of BLAS, are not copied
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        sender.close()
        self._receiver = receiver

    @property
    def is_over(self) -> bool:
        """Whether `result` need not wait for another process."""
        return self._receiver is None or self._receiver.poll()

    def result(self, timeout: float | None = None) -> Result:
        """Return the result of the work.

        The work is done in this process if the other one failed or needs more than `timeout`
        seconds from now; None: there is no limit.
        """
        try:
            if self._receiver is not None and self._receiver.poll(timeout):
                return self._receiver.recv()
        # The other process failed or was killed, or its result cannot be sent. Doing the work here
        # shows the reason.
        except Exception:
            pass
        finally:
            self.drop()
        return self._work()

    def drop(self) -> None:
        """End the process if it is still running."""
        if self._receiver is not None:
            self._receiver.close()
            self._process.kill()
            self._process.join()
            self._receiver = None


def wait_for_any(running: Iterable[Beside[Result]]) -> None:
    """Wait until one of several tasks is over; all must be running in other processes."""
    wait([task._receiver for task in running if task._receiver is not None])


def together(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Do several pieces of work, each in a process of its own, and return their results in order.

    At most `n_processes` of them run at the same time.
    """
    begun: list[Beside[Result]] = []
    try:
        for work in works:
            running = [task for task in begun if not task.is_over]
            while len(running) >= n_processes():
                wait_for_any(running)
                running = [task for task in begun if not task.is_over]
            begun.append(Beside(work))
        return [task.result() for task in begun]
    finally:
        for task in begun:
            task.drop()


def _send(work: Callable[[], Result], sender: Connection) -> NoReturn:
    """Do the work, send its result, and end this process."""
    try:
        sender.send(work())
    except BaseException:  # nothing is sent: the other process does the work and sees the reason
        os._exit(1)
    os._exit(0)


def _is_linux() -> bool:
    return sys.platform == "linux"
