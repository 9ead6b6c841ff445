"""Objects that one thread uses at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

Method = TypeVar("Method", bound=Callable[..., Any])


def exclusive(method: Method) -> Method:
    """Make a method hold the `lock` of its object, so that other threads wait until it ends."""

    @wraps(method)
    def locked(self: Any, *arguments: Any, **options: Any) -> Any:
        with self.lock:
            return method(self, *arguments, **options)

    return locked  # type: ignore[return-value]


class Exclusive:
    """Base class of objects whose methods hold their `lock` while they run.

    A copy has a lock of its own. If another thread held the lock when the process was forked, the
    object is half changed in the new process, and that thread is not there to complete the change:
    whoever takes the lock there gets an error.

    Attributes
    ----------
    lock : RLock
        The thread that holds it may take it again.
    """

    lock: Any

    def _renew_lock(self) -> None:
        """Give this object a lock that nobody holds."""
        vars(self)["lock"] = threading.RLock()
        _exclusive_objects.add(self)

    def __getstate__(self) -> dict[str, object]:
        content = dict(vars(self))
        content.pop("lock", None)
        return content

    def __setstate__(self, content: dict[str, object]) -> None:
        vars(self).update(content)
        self._renew_lock()

    def _refuse_if_held(self) -> None:
        """Refuse every further use if a thread holds the lock that this process does not have."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            vars(self)["lock"] = _LockOfLostThread()


class _LockOfLostThread:
    """Lock that another thread held when this process was forked."""

    def __enter__(self) -> NoReturn:
        raise RuntimeError(
            "this process was forked while another thread was changing the model, which is half "
            "changed here: fork before threads use the model, pass the model to the process as an "
            "argument, or start processes with 'spawn'"
        )

    def __exit__(self, *error: object) -> None: ...

    def acquire(self, blocking: bool = True) -> NoReturn:
        """Raise RuntimeError."""
        self.__enter__()

    def release(self) -> None:
        """Do nothing."""


#: all such objects of this process
_exclusive_objects: WeakSet[Exclusive] = WeakSet()


def _refuse_lost_locks() -> None:
    """Refuse, in a new process, the use of objects that a thread was changing during the fork."""
    for exclusive_object in list(_exclusive_objects):
        if not isinstance(exclusive_object.lock, _LockOfLostThread):
            exclusive_object._refuse_if_held()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_refuse_lost_locks)
