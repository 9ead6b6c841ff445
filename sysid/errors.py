"""Errors that the user made, as opposed to faults of the toolbox, and warnings for the user."""

import sys
import warnings

#: packages whose frames are passed over to find the line of the user: this one, and the decorator
#: `sysid.beside.one_blas_thread`
OWN_PACKAGES = ("sysid", "threadpoolctl", "contextlib")


class UserError(ValueError):
    """The user gave a value that cannot be used.

    The message states what was expected, what was given, and what to do. Every other ``ValueError``
    is a fault of the code that raised it. Commands print a `UserError` as one line, and a fault
    with its traceback.
    """


class UserTypeError(TypeError):
    """The user gave an object of the wrong type; otherwise as `UserError`."""


def warn_user(message: str) -> None:
    """Warn at the line that called this package, however deep in it the warning arises."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_own(frame.f_globals):
        level += 1
        frame = frame.f_back
    warnings.warn(message, stacklevel=level)


def _is_own(names: dict[str, object]) -> bool:
    """Return whether a module with these global names belongs to `OWN_PACKAGES`."""
    package, _, _ = str(names.get("__name__", "")).partition(".")
    return package in OWN_PACKAGES
