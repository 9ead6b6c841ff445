"""The end of a command: mistakes of the user, exit codes, Ctrl-C and SIGTERM."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf.errors import OmegaConfBaseException

import simulators.errors
import sysid.errors

#: errors that either library raises for invalid values
REFUSALS = (sysid.errors.UserError, simulators.errors.UserError)
#: errors that end a command with one line; all others keep their traceback
MISTAKES = (
    sysid.errors.UserError,
    sysid.errors.UserTypeError,
    simulators.errors.UserError,
    simulators.errors.UserTypeError,
    simulators.errors.SimulationError,
    OSError,
    MemoryError,
    OmegaConfBaseException,
)
INTERRUPTING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1  # option of prctl(2): the signal that a process gets when its parent ends


class Refused(SystemExit):
    """The command has printed why it ends: nothing needs to be added."""


class Stopped(Exception):
    """The run ended early, and its results so far are stored. Carries the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def is_mistake(error: BaseException) -> bool:
    """Whether an error is a mistake of the user, not a bug.

    A mistake is what the toolbox refuses, what the operating system refuses, what does not fit into
    memory, and what the configuration cannot hold. Any other ``ValueError`` or ``TypeError`` is a
    bug.
    """
    return isinstance(error, MISTAKES)


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C, and SIGTERM where it is handled, until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, frame: Any) -> None:
        arrived.append(number)

    handlers: dict[signal.Signals, Any] = {}
    for number in INTERRUPTING_SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
            signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:  # also after an error, which the signal may have caused
            handle = handlers[signal.Signals(arrived[0])]
            handle(arrived[0], None)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt at Ctrl-C and SIGTERM; yield a function that raises a lost one again.

    Python cannot raise an exception inside a finaliser or a callback of the interpreter: it prints
    the exception there and goes on. A signal that the process ignores, as background jobs of a
    shell ignore Ctrl-C, is still ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    arrived: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        arrived.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if arrived:
            raise KeyboardInterrupt

    previous_hook = sys.unraisablehook

    def drop_our_interrupt(event: Any) -> None:
        is_ours = arrived and issubclass(event.exc_type, KeyboardInterrupt)
        if not is_ours:
            previous_hook(event)

    handled = [n for n in INTERRUPTING_SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    previous_handlers = {number: signal.signal(number, interrupt) for number in handled}
    sys.unraisablehook = drop_our_interrupt
    try:
        yield check
    finally:
        sys.unraisablehook = previous_hook
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@contextmanager
def no_interrupt_for_children() -> Iterator[None]:
    """Start processes and threads in the block that never see Ctrl-C: their parent ends them."""
    from multiprocessing import resource_tracker  # slow to import

    resource_tracker.ensure_running()  # if it were started later, Ctrl-C would reach it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with(parent: int) -> None:
    """Let the system kill this process when its parent ends, however that ends.

    This also works while compiled code holds the interpreter.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
