"""No mean."""

from dataclasses import dataclass

import numpy as np

from sysid.mean.function import Array, MeanFunction


@dataclass(frozen=True)
class ZeroMean(MeanFunction):
    """``m(x) = 0``: the target is taken as it is."""

    def __call__(self, regressors: Array) -> Array:
        """Zeros (n,)."""
        return np.zeros(len(regressors))

    def at(self, regressor: Array) -> float:
        """Zero."""
        return 0.0

    def gradient(self, regressors: Array) -> Array:
        """Zeros (n, p)."""
        return np.zeros(regressors.shape)
