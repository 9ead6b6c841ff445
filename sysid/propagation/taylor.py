"""First-order expansion of the mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid.dynamics import Dynamics
from sysid.propagation.gaussian_state import Array, GaussianState, OneStep, UncertainTargets


@dataclass(frozen=True)
class Taylor(GaussianState):
    """Linearise the mean at the mean of the regressor, for any kernel and mean function.

    With J = d mean / dx and the latent variance s2 at the mean x of the regressor, S its covariance::

        E = mean(x),  Cov = diag(s2) + J S J',  w = J'

    What is not known of the function counts as drawn anew at every step; see `MonteCarlo`.
    """

    def one_step(self, dynamics: Dynamics) -> OneStep:
        """See `GaussianState.one_step`."""

        def expand(regressors: Array, covariance: Array) -> UncertainTargets:
            targets = dynamics.targets(regressors)
            slope = dynamics.gradient(regressors)[:, :, dynamics.feedback]
            spread = slope @ covariance @ slope.transpose(0, 2, 1)
            own = np.eye(dynamics.n_outputs) * targets.variance[:, None, :]
            return UncertainTargets(targets.mean, own + spread, slope.transpose(0, 2, 1))

        return expand
