"""The first run of an installation compiles; two processes do it side by side. Later runs load what they kept."""

import logging
import multiprocessing
import os

import numpy as np

from experiments.job_file import is_multirun
from experiments.launch import no_interrupt_for_children
from simulators import OpenLoop, VanDerPol, closed_loop
from sysid import OnlineGP, SquaredExponential
from sysid.gp.dictionary import covariance_matrix, learn
from sysid.gp.formula import PLAIN

log = logging.getLogger(__name__)


def compile_together() -> None:
    """Compile what every live identification calls, if nothing of it is kept yet.

    A forked process compiles the learning, this one the rest, until both are done. numba keeps what each compiled in
    files, and makes the same machine code whoever compiles. With one processor, without fork, and in a sweep, which has
    a process for each processor, everything is compiled when it is first called.
    """
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if PLAIN or is_multirun() or n_processors < 2 or learn.signatures:
        return
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=2, learning="stored")
    if not covariance_matrix.stats.cache_misses:
        return
    log.info("The first run compiles for some seconds")
    with no_interrupt_for_children():
        beside = multiprocessing.get_context("fork").Process(target=gp.update, args=([0.0], 0.0), daemon=True)
        beside.start()
    try:
        own = gp.copy().fit([[0.0]], [0.0])
        own.predict(np.zeros((1, 1)))
        own.drift()
        list(closed_loop(VanDerPol(), OpenLoop(dt=VanDerPol.dt), {}, n_samples=2))
        beside.join()
    finally:
        beside.kill()
