"""A second process does half of the work: what the first run of an installation compiles, and half of the figures."""

import logging
import multiprocessing
import os
import warnings
from collections.abc import Callable

import numpy as np

from experiments.job_file import is_multirun
from experiments.launch import no_interrupt_for_children
from simulators import OpenLoop, VanDerPol, closed_loop
from sysid import OnlineGP, SquaredExponential
from sysid.gp.dictionary import covariance_matrix, delete, learn
from sysid.gp.formula import PLAIN

PATIENCE = 60.0  # s that the second process may take longer than this one

log = logging.getLogger(__name__)


def beside(work: Callable[[], object]) -> Callable[[], bool]:
    """Begin `work` in a forked process; what is returned waits for its end, and says whether it is done.

    It is not done if it failed, without a word, and not begun with one processor, without fork, and in a sweep, which
    has a process for each processor.
    """
    if is_multirun() or not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        return lambda: False

    def silently() -> None:
        try:
            work()
        except BaseException:
            os._exit(1)

    def is_done() -> bool:
        process.join(PATIENCE)
        process.kill()
        process.join()
        return process.exitcode == 0

    process = multiprocessing.get_context("fork").Process(target=silently, daemon=True)
    with no_interrupt_for_children(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: threads, here those of BLAS, are not forked
        process.start()
    return is_done


def compile_together() -> None:
    """Compile what every live identification calls, if nothing of it is kept yet.

    The second process compiles the learning, this one the rest. numba keeps what each compiled in files, and makes the
    same machine code whoever compiles. In a sweep everything is compiled when it is first called.
    """
    if PLAIN or is_multirun() or learn.signatures:
        return
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=2, learning="stored")
    if not covariance_matrix.stats.cache_misses:
        return
    log.info("The first run compiles for some seconds")
    is_done = beside(lambda: gp.update([0.0], 0.0))
    own = gp.copy()
    delete(own._state, 0, 0)  # first: the learning needs it in a moment, and takes it from the file
    own.fit([[0.0]], [0.0])
    own.predict(np.zeros((1, 1)))
    own.drift()
    list(closed_loop(VanDerPol(), OpenLoop(dt=VanDerPol.dt), {}, n_samples=2))
    import experiments.plots.identification  # noqa: F401  slow, and this process would only wait

    is_done()
