"""Draws that are independent at every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid.dynamics import Dynamics
from sysid.propagation.paths import Paths, checked_count, checked_coverage
from sysid.propagation.propagation import Array, Moments, Propagation


@dataclass(frozen=True)
class MonteCarlo(Propagation):
    """Draw each step from the predictive distribution there, independently of all other steps.

    What is not known of the function then acts like white noise: a path that comes by the same place twice meets
    two different functions. This understates the spread of a free run; see `Pathwise`. The moments of a sample are
    those of the mixture of its predictive distributions, so the first one is exact.
    """

    n_samples: int = 200  # trajectories per start
    process_noise: bool = False  # whether the noise of the model is fed back
    coverage: float | None = 0.95  # of the band that the variance stands for; None: the variance of all draws

    def __post_init__(self) -> None:
        checked_count("MonteCarlo", "n_samples", self.n_samples, 2)
        checked_coverage("MonteCarlo", self.coverage)

    def propagate(self, dynamics: Dynamics, past: Array, exogenous: Array, generator: np.random.Generator) -> Moments:
        """See `Propagation.propagate`."""
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        noise = dynamics.noise_variance * self.process_noise
        for t in range(paths.n_steps):
            targets = dynamics.targets(paths.regressors(t))
            mean, variance = paths.to_value(t, targets.mean), targets.variance.reshape(paths.shape)
            paths.push(t, mean + np.sqrt(variance + noise) * generator.standard_normal(paths.shape))
            paths.note(t, *paths.of_conditionals(mean, variance))
        return paths.moments()

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """The paths and the regressors of one step."""
        return self.n_samples * ((dynamics.n_lags + n_steps) * dynamics.n_outputs + dynamics.n_features)
