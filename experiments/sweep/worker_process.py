"""Processes of this machine that run jobs: one thread each, no Ctrl-C of their own, none outlives its parent."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: of a worker, set before it imports NumPy and numba
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
PR_SET_PDEATHSIG = 1  # prctl(2)


@contextmanager
def no_interrupt_for_children() -> Iterator[None]:
    """Processes and threads that are started in the block never see Ctrl-C: their parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends, even while compiled code holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
