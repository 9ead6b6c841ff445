"""Exact moments of one step from a Gaussian, for the squared exponential kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.dynamics import AFFINE, Dynamics
from sysid.feature_map import FeatureMap
from sysid.kernels import SquaredExponential
from sysid.model import Model
from sysid.propagation import overlap
from sysid.propagation.gaussian_state import Array, GaussianState, OneStep, UncertainTargets
from sysid.propagation.overlap import Mixture, Overlap

INSTEAD = "Taylor, MonteCarlo and SequentialConditioning take any kernel and mean function"


@dataclass(frozen=True)
class MomentMatching(GaussianState):
    """Mean and covariance of every step exactly, given a Gaussian before it (`sysid.propagation.overlap`).

    For squared exponential kernels and zero, constant or linear mean functions. Against `Taylor` it also sees the
    curvature of the function over the spread of the regressor, and the covariance of several outputs that follows
    from it; like `Taylor` it takes what is not known of the function as drawn anew at every step.
    """

    def one_step(self, dynamics: Dynamics) -> OneStep:
        """See `GaussianState.one_step`.

        Raises
        ------
        ValueError
            Another kernel or mean function.
        """
        parts = [_part(model, dynamics.feedback) for model in dynamics.models]
        trend = np.stack([_trend(model)[dynamics.feedback] for model in dynamics.models], axis=1)

        def match(regressors: Array, covariance: Array) -> UncertainTargets:
            mean = np.stack([model.mean(regressors) for model in dynamics.models], axis=1)
            own = np.empty((len(mean), dynamics.n_outputs, dynamics.n_outputs))
            slope = np.empty((len(mean), *trend.shape))
            for b, x in enumerate(regressors):
                root = overlap.root_of(covariance[b])
                found = [part.overlap(x, root) for part in parts]
                w = np.stack([one.slope for one in found], axis=1)
                mixed = trend.T @ covariance[b] @ w
                mean[b] += [one.mean for one in found]
                own[b] = trend.T @ covariance[b] @ trend + mixed + mixed.T + _covariance(found)
                slope[b] = trend + w
            return UncertainTargets(mean, own, slope)

        return match


class _Part(NamedTuple):
    """One model, as it sees an uncertain regressor."""

    scaling: FeatureMap
    lengths: Array  # (c,) length scales of the coordinates
    view: Array  # (c, q) lengths per unit of the lagged outputs
    mixture: Mixture

    def overlap(self, regressor: Array, root: Array) -> Overlap:
        """Overlap with a regressor of mean (p,), R of its lagged outputs (q, q)."""
        return overlap.overlap(self.mixture, self.scaling.transform(regressor) / self.lengths, self.view, root)


def _part(model: Model, feedback: NDArray[np.int64]) -> _Part:
    kernel = model.gp.kernel
    if not isinstance(kernel, SquaredExponential):
        raise ValueError(
            f"MomentMatching: expected the kernel SquaredExponential, got {type(kernel).__name__} for "
            f"{model.narx.target!r}; {INSTEAD}"
        )
    state, lengths = model.gp.state(), np.asarray(kernel.length_scales)
    mixture = Mixture(
        variance=kernel.variance,
        points=state["inputs"][state["order"]] / lengths,
        beta=state["weights"],
        cholesky=state["cholesky"],
        inverse=state["factor"].T @ state["factor"],
    )
    return _Part(model.scaling, lengths, model.scaling.linear_part()[:, feedback] / lengths[:, None], mixture)


def _trend(model: Model) -> Array:
    """Slopes (p,) of the mean function."""
    if not isinstance(model.mean, AFFINE):
        raise ValueError(
            f"MomentMatching: expected a zero, constant or linear mean, got {type(model.mean).__name__} for "
            f"{model.narx.target!r}; {INSTEAD}"
        )
    return np.asarray(model.mean.gradient(np.zeros((1, model.narx.n_features)))[0])


def _covariance(found: list[Overlap]) -> Array:
    """Covariance (m, m) of the posteriors at the uncertain input."""
    own = np.diag([overlap.variance(one) for one in found])
    for i in range(len(found)):
        for j in range(i):
            own[i, j] = own[j, i] = overlap.cross_covariance(found[i], found[j])
    return own
