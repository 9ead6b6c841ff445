"""Ctrl-C and SIGTERM: while files are written they wait, and a sweep ends by both the same way."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_quietly() -> None:
    """Have a command that is interrupted while it starts or ends say so in one line, with exit code 130."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            return before(kind, error, trace)
        print("Interrupted", file=sys.stderr)
        raise SystemExit(130)

    sys.excepthook = hook


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C, and SIGTERM where it is handled, until the block is done; then handle it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    handlers = {one: signal.getsignal(one) for one in SIGNALS}
    before = {one: signal.signal(one, remember) for one, handler in handlers.items() if callable(handler)}
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

    Python cannot raise anything inside a finaliser or a callback of the interpreter: it prints the exception there and
    goes on. A signal that the process ignores, as background jobs of a shell ignore Ctrl-C, is still ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    arrived: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if arrived:
            raise KeyboardInterrupt

    def unraisable(event: Any) -> None:
        if not (arrived and issubclass(event.exc_type, KeyboardInterrupt)):
            hook(event)

    numbers = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    before, hook = {one: signal.signal(one, interrupt) for one in numbers}, sys.unraisablehook
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
    resource_tracker.ensure_running()  # its start would let Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
