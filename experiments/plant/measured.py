"""Samples as a source delivers them: one of a record or of a simulation, or a block of them."""

from typing import NamedTuple

import numpy as np

from sysid.narx.window import Estimates


class Measured(NamedTuple):
    """One sample, or consecutive samples, of a record."""

    output: np.ndarray  # (n_y,) or (n, n_y)
    input: np.ndarray  # (n_u,) or (n, n_u), with the signals of the physics last
    estimates: Estimates | None = None  # of missing outputs of a record
