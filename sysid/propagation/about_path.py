"""The uncertainty of a propagation about the path of the mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid.dynamics import Dynamics
from sysid.propagation.mean_only import MeanOnly
from sysid.propagation.propagation import Array, Moments, Propagation


@dataclass(frozen=True)
class AboutPath(Propagation):
    """Predict the fed-back mean, with the spread of another propagation about it.

    The prediction depends neither on the propagation nor on its draws. Where the propagation diverges and the path
    does not, the variance is infinite.
    """

    spread: Propagation

    def propagate(self, dynamics: Dynamics, past: Array, exogenous: Array, generator: np.random.Generator) -> Moments:
        """See `Propagation.propagate`."""
        path = MeanOnly().propagate(dynamics, past, exogenous, generator)
        found = self.spread.propagate(dynamics, past, exogenous, generator)
        variance = variance_about(path.mean, Moments(found.mean, found.variance))
        return Moments(path.mean, np.where(np.isnan(path.variance), np.nan, variance))

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """That of the other propagation."""
        return self.spread.size(dynamics, n_steps)


def variance_about(path: Array, spread: Moments) -> Array:
    """``E (y - p)^2 = v + (m - p)^2`` of moments m, v about a path p; infinite where only the moments are lost."""
    variance = spread.variance + (spread.mean - path) ** 2
    return np.where(np.isnan(variance) & np.isfinite(path), np.inf, variance)
