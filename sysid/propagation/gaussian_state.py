"""A Gaussian over the lagged outputs, fed back: what Taylor expansion and moment matching share.

The state z = (last L outputs of all m), of length L m, is taken as Gaussian with the full covariance P. For a target
whose covariance with the regressor's lagged outputs is ``S w`` (S their covariance, w (q, m)), ``cov(z, target) =
P C' w``; with ``y = B z + target`` (B picks y[k-1] where the target is a change, else 0)::

    cov(z, y) = P B' + P C' w
    Var y = B P B' + B cov(z, target) + (B cov(z, target))' + Var target

S may be singular, and is where an output was measured.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sysid.dynamics import Dynamics
from sysid.propagation.propagation import Moments, Propagation

Array: TypeAlias = NDArray[np.float64]


class UncertainTargets(NamedTuple):
    """Targets of all outputs at b uncertain regressors."""

    mean: Array  # (b, m) target units
    covariance: Array  # (b, m, m) latent, target units squared
    slope: Array  # (b, q, m) w, whose product with S is the covariance of lagged outputs and targets


#: targets at regressors of mean (b, p), whose lagged outputs have the covariance S (b, q, q)
OneStep: TypeAlias = Callable[[Array, Array], UncertainTargets]


@dataclass(frozen=True)
class GaussianState(Propagation):
    """Propagation of a Gaussian over the lagged outputs, by a rule for one step."""

    process_noise: bool = False  # whether the noise of the model is fed back

    @abstractmethod
    def one_step(self, dynamics: Dynamics) -> OneStep:
        """Rule for one step of these dynamics."""

    def propagate(self, dynamics: Dynamics, past: Array, exogenous: Array, generator: np.random.Generator) -> Moments:
        """See `Propagation.propagate`; nothing is drawn."""
        one_step = self.one_step(dynamics)
        n_starts, n_steps, _ = exogenous.shape
        m, index = dynamics.n_outputs, dynamics.state_index
        bounds = dynamics.bounds(past)
        moments = Moments(*np.full((2, n_starts, n_steps, m), np.nan))
        mean, covariance = past.copy(), np.zeros((n_starts, past[0].size, past[0].size))
        goes_on = np.arange(n_starts)
        noise = np.diag(dynamics.noise_variance * self.process_noise)
        for t in range(n_steps):
            x = dynamics.regressors(mean, exogenous[goes_on, t])
            with np.errstate(over="ignore", invalid="ignore"):
                targets = one_step(x, covariance[:, index[:, None], index])
                cross, own = _fed_back(dynamics, covariance, targets)
            y = dynamics.to_value(targets.mean, mean[:, -1])
            variance = np.maximum(np.einsum("bii->bi", own), 0.0)
            inside = np.all(bounds.contain(y) & (np.sqrt(variance) < bounds.width), axis=1)
            moments.mean[goes_on, t] = y
            moments.variance[goes_on[inside], t] = variance[inside]
            mean = np.concatenate([mean[:, 1:], y[:, None]], axis=1)[inside]
            covariance = _shifted(covariance, cross, own + noise)[inside]
            goes_on = goes_on[inside]
        return moments

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """Covariances of the state, and the slopes of the kernel at all points."""
        n_points = max(model.gp.n_points for model in dynamics.models)
        return 4 * (dynamics.n_lags * dynamics.n_outputs) ** 2 + n_steps + n_points * (dynamics.n_features + 1)


def _fed_back(dynamics: Dynamics, covariance: Array, targets: UncertainTargets) -> tuple[Array, Array]:
    """Covariance (b, L m, m) of the state with the next outputs, and theirs (b, m, m)."""
    cross = covariance[:, :, dynamics.state_index] @ targets.slope
    own = targets.covariance
    if dynamics.is_change:
        newest = slice(-dynamics.n_outputs, None)
        both = cross[:, newest]
        own = own + covariance[:, newest, newest] + both + both.transpose(0, 2, 1)
        cross = cross + covariance[:, :, newest]
    return cross, 0.5 * (own + own.transpose(0, 2, 1))  # rounding must not feed an antisymmetric part back


def _shifted(covariance: Array, cross: Array, own: Array) -> Array:
    """Covariance of the state one sample later."""
    m = own.shape[1]
    shifted = np.empty_like(covariance)
    shifted[:, :-m, :-m] = covariance[:, m:, m:]
    shifted[:, :-m, -m:] = cross[:, m:]
    shifted[:, -m:, :-m] = cross[:, m:].transpose(0, 2, 1)
    shifted[:, -m:, -m:] = own
    return shifted
