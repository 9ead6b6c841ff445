"""What the first run of an installation compiles, half of it in a second process."""

import logging

import numpy as np

from simulators import OpenLoop, VanDerPol, closed_loop
from sysid import OnlineGP, SquaredExponential
from sysid.beside import SHARE_TIMEOUT, Beside
from sysid.gp.dictionary import covariance_matrix, delete, learn
from sysid.gp.formula import PLAIN

log = logging.getLogger(__name__)


def compile_together() -> None:
    """Compile what every live identification calls, if nothing of it is kept yet.

    The second process compiles the learning, this one the rest. numba keeps what each compiled in
    files, and makes the same machine code whoever compiles.
    """
    if PLAIN or learn.signatures:
        return
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=2, learning="stored")
    if not covariance_matrix.stats.cache_misses:
        return
    log.info("The first run compiles for some seconds")
    own = gp.copy()
    learning = Beside(lambda: gp.update([0.0], 0.0))
    delete(own._state, 0, 0)  # first: the learning needs it in a moment, and takes it from the file
    own.fit([[0.0]], [0.0])
    own.predict(np.zeros((1, 1)))
    own.drift()
    list(closed_loop(VanDerPol(), OpenLoop(dt=VanDerPol.dt), {}, n_samples=2))
    import experiments.identify.figures  # noqa: F401  slow, and this process would only wait

    learning.result(SHARE_TIMEOUT)
