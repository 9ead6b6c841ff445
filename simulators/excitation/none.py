"""An input that rests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.excitation import Excitation


@dataclass(frozen=True)
class NoExcitation(Excitation):
    """The input stays at the operating point: ``v_k = 0``.

    Examples
    --------
    >>> NoExcitation(offset=2.0).signal(3, 0.1, np.random.default_rng(0))
    array([2., 2., 2.])
    """

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return zeros (n,)."""
        return np.zeros(n_samples)
