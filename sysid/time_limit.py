"""A limit on the wall time of a search, which then keeps the best result so far.

The limit is that of the training (`seconds`). It counts only while a block of `TimeLimit.running`
runs: the search for lags, estimator and hyper-parameters, not the samples that a plant delivers in
between. Code that searches asks `out_of_time` between two steps, or calls `check_time` within one
whose result is of no use unless it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any

from sysid.errors import UserError

#: fraction of the time that comparisons may use; the rest trains the model that they choose
COMPARISON_TIME_SHARE = 0.75


class TimeIsUp(Exception):
    """The time of a search is up before the step that raises this is complete."""


class TimeLimit:
    """Wall time that a search may take.

    Parameters
    ----------
    seconds : float or None
        s; None: there is no limit.

    Attributes
    ----------
    was_reached : bool
        Whether the search has left something out because the time was up.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = inf if seconds is None else float(seconds)
        self.was_reached = False
        self._spent_before = 0.0  # s, in the blocks that are over
        self._began: float | None = None  # s, on the clock; None: no block is running
        self._share = 1.0  # fraction of the time that the present block may use

    @classmethod
    def of(cls, training: Any) -> TimeLimit:
        """Return the limit that a training states, if it states any."""
        return cls(getattr(training, "seconds", None))

    @property
    def spent(self) -> float:
        """Seconds that the search has taken so far."""
        running = 0.0 if self._began is None else read_clock() - self._began
        return self._spent_before + running

    @property
    def rest(self) -> float:
        """Seconds that the present block may still take; infinite without a limit."""
        return self._share * self.seconds - self.spent

    def describe(self, name: str) -> list[str]:
        """Return a note if the time was up; `name` is how the caller states the limit."""
        if not self.was_reached:
            return []
        return [
            f"{name}={self.seconds:g} ended the search before it was complete: this is the best "
            f"model so far, and another run may find another one; raise {name}, or leave it out"
        ]

    @contextmanager
    def running(self) -> Iterator[TimeLimit]:
        """Count the time of the block, in which `out_of_time` and `check_time` heed this limit."""
        if self._began is not None:
            yield self
            return
        self._began = read_clock()
        before = _running_limit.set(self)
        try:
            yield self
        finally:
            _running_limit.reset(before)
            self._spent_before = self.spent
            self._began = None

    @contextmanager
    def _with_share(self, share: float) -> Iterator[None]:
        """Let the block use only a fraction of the whole time."""
        before = self._share
        self._share = min(share, before)
        try:
            yield
        finally:
            self._share = before


_running_limit: ContextVar[TimeLimit | None] = ContextVar("running_limit", default=None)


def read_clock() -> float:
    """Return the time [s] of a clock that never goes back."""
    return time.monotonic()


def limit_of(training: Any) -> TimeLimit:
    """Return the running limit; without one, a new one of the time that a training states."""
    running = _running_limit.get()
    return TimeLimit.of(training) if running is None else running


@contextmanager
def share_of_time(share: float) -> Iterator[None]:
    """Let the block use a fraction of the time of the running limit, from its first second on.

    What follows the block, such as the training of what it chooses, then has time left.
    """
    limit = _running_limit.get()
    if limit is None:
        yield
        return
    with limit._with_share(share):
        yield


@contextmanager
def unlimited() -> Iterator[None]:
    """Run the block without a limit: what it computes is needed for any result."""
    before = _running_limit.set(None)
    try:
        yield
    finally:
        _running_limit.reset(before)


def has_limit() -> bool:
    """Return whether a limit is running."""
    limit = _running_limit.get()
    return limit is not None and limit.seconds < inf


def out_of_time() -> bool:
    """Return whether the search has to end, because the time of the running limit is up."""
    limit = _running_limit.get()
    if limit is None or limit.rest > 0.0:
        return False
    limit.was_reached = True
    return True


def check_time() -> None:
    """Raise `TimeIsUp` if the time of the running limit is up."""
    if out_of_time():
        raise TimeIsUp


def seconds_left() -> float:
    """Return the seconds that the running limit leaves; infinite without a limit."""
    limit = _running_limit.get()
    return inf if limit is None else max(0.0, limit.rest)


def check_seconds(name: str, seconds: Any) -> None:
    """Raise UserError unless a limit is None or a positive number of seconds."""
    if seconds is None:
        return
    from sysid.arrays import is_number  # it loads NumPy, which a command that shows help does not

    if not is_number(seconds) or not 0.0 < float(seconds) < inf:
        raise UserError(
            f"{name}: seconds must be a positive number, the wall time [s] of the search, or null "
            f"(None) for no limit, got {seconds!r}"
        )
