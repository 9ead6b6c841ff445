"""How a command ends: errors that are mistakes, exit codes, Ctrl-C and SIGTERM."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf.errors import OmegaConfBaseException

import simulators.errors
import sysid.errors

#: what either library raises where a value cannot be meant
REFUSALS = (sysid.errors.UserError, simulators.errors.UserError)
#: errors that end a command in one line; whatever else is raised keeps its traceback
MISTAKES = (
    *(sysid.errors.UserError, sysid.errors.UserTypeError),
    *(
        simulators.errors.UserError,
        simulators.errors.UserTypeError,
        simulators.errors.SimulationError,
    ),
    *(OSError, OmegaConfBaseException),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Refused(SystemExit):
    """The command has said why it ends: there is nothing to add."""


class Stopped(Exception):
    """The run ended early; what it had computed is stored. Carries the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def is_mistake(error: BaseException) -> bool:
    """Whether an error tells of a mistake of the user, not of ours.

    A mistake is what the toolbox refuses, what the operating system refuses, and what the
    configuration cannot hold. Any other ``ValueError`` or ``TypeError`` is a bug.
    """
    return isinstance(error, MISTAKES)


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C, and SIGTERM where it is handled, until the block is done; then handle
    it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, frame: Any) -> None:
        arrived.append(number)

    handlers = {one: signal.getsignal(one) for one in SIGNALS}
    before = {
        one: signal.signal(one, remember) for one, handler in handlers.items() if callable(handler)
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        if arrived:  # also after an error, which it may have caused
            handle: Any = before[signal.Signals(arrived[0])]
            handle(arrived[0], None)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt at either signal; what is yielded raises it again, if it was lost.

    Python cannot raise anything inside a finaliser or a callback of the interpreter: it prints the
    exception there and goes on. A signal that the process ignores, as background jobs of a shell
    ignore Ctrl-C, is still ignored.
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

    def unraisable(event: Any) -> None:
        if not (arrived and issubclass(event.exc_type, KeyboardInterrupt)):
            hook(event)

    numbers = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, interrupt) for one in numbers}
    hook = sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        yield check
    finally:
        sys.unraisablehook = hook
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def no_interrupt_for_children() -> Iterator[None]:
    """Start processes and threads in the block that never see Ctrl-C: their parent ends them."""
    from multiprocessing import resource_tracker  # slow to import

    resource_tracker.ensure_running()  # its start would let Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
