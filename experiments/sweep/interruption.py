"""Ctrl-C and SIGTERM end a sweep the same way, and neither is lost."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


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

    numbers = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
    before, hook = {one: signal.signal(one, interrupt) for one in numbers}, sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        yield check
    finally:
        sys.unraisablehook = hook
        for one, handler in before.items():
            signal.signal(one, handler)
