"""Which errors tell of a mistake of the user: they end in one line, all others keep their traceback."""

import dis
from types import TracebackType

from omegaconf.errors import OmegaConfBaseException

PACKAGES = ("sysid", "simulators", "experiments", "hydra_plugins")
RAISE = dis.opmap["RAISE_VARARGS"]


def is_mistake(error: BaseException) -> bool:
    """Whether an error tells of a mistake of the user, not of ours.

    A mistake is what the toolbox refuses by a ``raise`` of its own, what the operating system refuses, and what
    the configuration cannot hold. A ``ValueError`` or ``TypeError`` out of an operation is a bug.
    """
    if isinstance(error, OSError | OmegaConfBaseException):
        return True
    trace = _innermost(error)
    if trace is None or not isinstance(error, ValueError | TypeError | ArithmeticError):
        return False
    return _is_ours(trace) and _is_raise(trace)


def is_bug_of_ours(error: BaseException) -> bool:
    """Whether an operation in our code failed, where no ``raise`` stands."""
    trace = _innermost(error)
    return trace is not None and _is_ours(trace) and not _is_raise(trace)


def _innermost(error: BaseException) -> TracebackType | None:
    """Where the error arose."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in PACKAGES


def _is_raise(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == RAISE
