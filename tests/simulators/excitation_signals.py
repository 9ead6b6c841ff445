"""Signals of excitations at one sampling time, for the tests of the excitations."""

import numpy as np

EXCITATION_DT = 0.01  # s


def draw_signal(excitation, n, dt=EXCITATION_DT, seed=0):
    """Return n samples of an excitation, drawn with the generator of a seed."""
    return excitation.signal(n, dt, np.random.default_rng(seed))
