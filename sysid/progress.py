"""How far a search is, for whoever shows it while the search goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf, isfinite

from sysid.time_limit import read_clock, seconds_left

ERASE = "\r\x1b[K"  # control characters that erase the line of the cursor

#: called with the steps of a search each time that one begins
_listener: ContextVar[Callable[[Steps], object] | None] = ContextVar("listener", default=None)


@contextmanager
def on_steps(listener: Callable[[Steps], object]) -> Iterator[None]:
    """Call a function with the steps of a search each time that one begins within the block."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def on_progress(listener: Callable[[str], object]) -> Iterator[None]:
    """Call a function with a description of each step that a search within the block makes.

    It is a text such as "step 3 of 12, about 40 s more".
    """
    with on_steps(lambda steps: listener(steps.describe())):
        yield


def is_watched() -> bool:
    """Return whether a caller listens to the progress."""
    return _listener.get() is not None


@dataclass
class Steps:
    """Steps of a search; it may need fewer or more than planned, as hopeless ones are left out.

    Parameters
    ----------
    n_planned : int
        Number of steps that a search usually needs.
    """

    n_planned: int
    n_done: int = 0
    began: float = field(default_factory=lambda: read_clock())  # s, on the clock

    @contextmanager
    def step(self) -> Iterator[None]:
        """Report that a step begins, and count it after the block."""
        listener = _listener.get()
        if listener is not None:
            listener(self)
        yield
        self.n_done += 1

    def describe(self) -> str:
        """Return the number of the present step, and about how long the rest takes.

        A limit of the time is also a limit of the estimate.
        """
        n = max(self.n_planned, self.n_done + 1)
        words = f"step {self.n_done + 1} of {n}"
        rest = inf
        if self.n_done:
            rest = (read_clock() - self.began) / self.n_done * (n - self.n_done)
        rest = min(rest, seconds_left())
        if not isfinite(rest):
            return words
        shown = f"{rest:.0f} s" if rest < 120.0 else f"{rest / 60.0:.0f} min"
        return f"{words}, about {shown} more"
