"""Compilation in the first run of an installation, half of it in a second process."""

import logging

import numpy as np

from simulators import OpenLoop, VanDerPol, closed_loop, collect, predict_one_step
from sysid import OnlineGP, SquaredExponential
from sysid.beside import SHARE_TIMEOUT, Beside
from sysid.gp.dictionary import covariance_matrix, delete, learn
from sysid.gp.formula import JIT_DISABLED
from sysid.simulation.linear_models import recursive_least_squares

log = logging.getLogger(__name__)


def compile_together() -> None:
    """Compile the functions that every live identification calls, unless numba's cache has them.

    The second process compiles the learning, this one the rest. numba writes what each process
    compiled to files; the machine code does not depend on the process that compiled it.
    """
    if JIT_DISABLED or learn.signatures:
        return
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=2, learning="stored")
    if not covariance_matrix.stats.cache_misses:
        return
    log.info("The first run compiles for some seconds")
    gp_here = gp.copy()
    learning = Beside(lambda: gp.update([0.0], 0.0))
    # `delete` comes first: the second process needs it in a moment, and loads it from the file.
    delete(gp_here._state, 0, 0)
    gp_here.fit([[0.0]], [0.0])
    gp_here.predict(np.zeros((1, 1)))
    gp_here.drift()
    recursive_least_squares(np.ones((1, 1)), np.zeros(1), [1])
    oscillator = VanDerPol()
    samples = closed_loop(oscillator, OpenLoop(dt=VanDerPol.dt), {}, n_samples=2)
    predict_one_step(collect(samples, oscillator, seed=0), measurement_std=0.0)
    # The figures import matplotlib, which is slow: this process would only wait meanwhile.
    import experiments.identify.figures  # noqa: F401

    learning.result(SHARE_TIMEOUT)
