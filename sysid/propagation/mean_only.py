"""Means fed back, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid import mean_path
from sysid.dynamics import Dynamics
from sysid.mean_path import MeanMap
from sysid.propagation.paths import Paths
from sysid.propagation.propagation import Array, Moments, Propagation


@dataclass(frozen=True)
class MeanOnly(Propagation):
    """Feed the mean back as if it had been measured; the cheapest.

    The variance of a sample is that of the model at the regressor of the mean path: what one step adds, and
    nothing of what the steps before have added. It is far too small for a free run.
    """

    def propagate(self, dynamics: Dynamics, past: Array, exogenous: Array, generator: np.random.Generator) -> Moments:
        """See `Propagation.propagate`; nothing is drawn."""
        if dynamics.mean_map is None:
            return _interpreted(dynamics, past, exogenous)
        return _compiled(dynamics, dynamics.mean_map, past, exogenous)

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """The path and its regressors."""
        return (dynamics.n_lags + n_steps) * (dynamics.n_outputs + dynamics.n_features)


def _compiled(dynamics: Dynamics, mean_map: MeanMap, past: Array, exogenous: Array) -> Moments:
    n_starts, n_steps, _ = exogenous.shape
    n_lags, n_outputs = dynamics.n_lags, dynamics.n_outputs
    path = np.full((n_starts, n_lags + n_steps, n_outputs), np.nan)
    path[:, :n_lags] = past
    done = np.empty(n_starts, dtype=np.int64)
    mean_path.run(mean_map, *dynamics.bounds(past), exogenous, path, done)
    x = exogenous.copy()
    for j, row, column in zip(dynamics.feedback, dynamics.row, dynamics.column, strict=True):
        x[:, :, j] = path[:, row : row + n_steps, column]
    inside = np.arange(n_steps) < done[:, None]
    variance = np.full((n_starts, n_steps, n_outputs), np.nan)
    variance[inside] = dynamics.targets(x[inside]).variance
    return Moments(path[:, n_lags:], variance)


def _interpreted(dynamics: Dynamics, past: Array, exogenous: Array) -> Moments:
    paths = Paths(dynamics, past, exogenous, 1, None)
    for t in range(paths.n_steps):
        targets = dynamics.targets(paths.regressors(t))
        values = paths.to_value(t, targets.mean)
        paths.push(t, values)
        paths.note(t, values[:, 0], targets.variance)
    return paths.moments()
