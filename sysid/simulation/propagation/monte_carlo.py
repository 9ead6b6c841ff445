"""Independent draws at every step, and draws of whole functions conditioned step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from sysid.arrays import Array
from sysid.errors import UserError
from sysid.model.model import Model
from sysid.simulation.dynamics import Dynamics, Moments
from sysid.simulation.propagation.propagation import (
    Paths,
    Trajectories,
    fed_back_noise_variance,
)

# A value is certain if its conditional variance is at most this fraction of the prior variance [-].
CERTAIN_VARIANCE_FRACTION = 1e-12

# Largest number of floats that may be kept in memory.
MAX_NUMBERS_IN_MEMORY = 2**28


@dataclass(frozen=True)
class MonteCarlo(Trajectories):
    """Draw each step from its predictive distribution, independently of all other steps.

    The uncertainty of the function then acts like white noise: a path that visits the same
    regressor twice meets two different functions. This understates the spread of a free run; see
    `Pathwise`. The moments of a sample are those of the mixture of its predictive distributions, so
    that those of the first sample are exact.
    """

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        noise_variance = fed_back_noise_variance(dynamics, self.process_noise)
        for t in range(paths.n_steps):
            targets = dynamics.targets(paths.regressors(t))
            mean = paths.to_value(t, targets.mean)
            variance = targets.variance.reshape(paths.shape)
            normal = generator.standard_normal(paths.shape)
            paths.feed_back(t, mean + np.sqrt(variance + noise_variance) * normal)
            paths.set_moments(t, *paths.summarise_conditionals(mean, variance))
        return paths.moments

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        n_outputs = (dynamics.n_lags + n_steps) * dynamics.n_outputs
        return self.n_samples * (n_outputs + dynamics.n_features)


@dataclass(frozen=True)
class SequentialConditioning(Trajectories):
    """Draw every value of a trajectory given all earlier draws of the same trajectory.

    The values have exactly the joint distribution of the function at the points of the trajectory,
    for any kernel::

        f_t = mean_t + l_t' n_(1..t-1) + d_t n_t

    with (l_t, d_t) the row that point t adds to the Cholesky factor of their posterior covariance,
    and n standard normal. `Pathwise` does the same for the kernels that it knows. Here the cost
    grows with the square of the number of steps: use it for other kernels, and to check `Pathwise`.
    """

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        """Return the moments of all trajectories; see `Propagation.propagate`.

        Raises
        ------
        ValueError
            If the steps need too much memory.
        """
        n_starts = len(past)
        n_steps = exogenous.shape[1]
        size = n_starts * self.size(dynamics, n_steps)
        if size > MAX_NUMBERS_IN_MEMORY:
            raise UserError(
                f"SequentialConditioning: {n_steps} steps of {self.n_samples} trajectories need "
                f"{8 * size / 2**30:.0f} GiB; use fewer trajectories, a shorter horizon, or "
                "Pathwise"
            )
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        n_trajectories = n_starts * self.n_samples
        functions = [
            _FunctionDraws(model, n_trajectories, n_steps, generator) for model in dynamics.models
        ]
        noise_std = np.sqrt(fed_back_noise_variance(dynamics, self.process_noise))
        for t in range(n_steps):
            regressors = paths.regressors(t)
            steps = [function.step(t, regressors) for function in functions]
            mean = np.stack([step.mean for step in steps], axis=1)
            variance = np.stack([step.variance for step in steps], axis=1)
            drawn = np.stack([step.drawn for step in steps], axis=1)
            conditional_mean = paths.to_value(t, mean)
            conditional_variance = variance.reshape(paths.shape)
            noise = noise_std * generator.standard_normal(paths.shape)
            paths.feed_back(t, paths.to_value(t, drawn) + noise)
            centre, spread = paths.summarise_conditionals(conditional_mean, conditional_variance)
            paths.set_moments(t, centre, spread)
        return paths.moments

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        per_step = n_steps + sum(
            model.gp.n_points + model.gp.n_linear + dynamics.n_features + 2
            for model in dynamics.models
        )
        return self.n_samples * n_steps * per_step * dynamics.n_outputs


class _Draw(NamedTuple):
    """Draws of R functions at one step, with their conditional moments."""

    mean: Array  # (R,) target units
    variance: Array  # (R,) target units squared
    drawn: Array  # (R,) target units


class _FunctionDraws:
    """Values of R functions of one posterior, each drawn given all earlier values."""

    def __init__(
        self, model: Model, n_functions: int, n_steps: int, generator: np.random.Generator
    ) -> None:
        self.model = model
        self.generator = generator
        state = model.gp.exact_form()
        self.cholesky = state["cholesky"]
        self.whitened = state["whitened"]
        self.points = state["inputs"][state["order"]]
        n_point_features = model.gp.point_kernel.n_features
        self.visited = np.empty((n_functions, n_steps, n_point_features))  # earlier points
        #: C'phi of the linear part at the earlier points
        self.visited_lags = np.empty((n_functions, n_steps, model.gp.n_linear))
        self.projected = np.empty((n_functions, n_steps, len(self.points)))  # U'^-1 k(X, point)
        self.rows = np.zeros((n_functions, n_steps, n_steps))  # l_t
        self.inverse = np.zeros((n_functions, n_steps))  # 1 / d_t; 0 where the value is certain
        self.normal = np.zeros((n_functions, n_steps))  # n_t

    def step(self, t: int, regressors: Array) -> _Draw:
        """Draw the targets (R,) at regressors (R, p)."""
        z = self.model.scaling.transform(regressors)
        projected = np.empty((len(z), 0))
        if len(self.points):
            covariance = self.model.gp.kernel(self.points, z)
            solved = solve_triangular(self.cholesky, covariance, trans=1, check_finite=False)
            projected = solved.T
        self.visited[:, t] = z[:, : self.visited.shape[2]]
        self.visited_lags[:, t] = self.model.gp.whiten_lags(z)
        self.projected[:, t] = projected
        row = self._factor_row(t, projected)
        mean = (
            self.model.mean(regressors)
            + projected @ self.whitened
            + np.einsum("rt,rt->r", row, self.normal[:, :t])
        )
        prior = self.model.gp.kernel.diagonal(z)
        variance = np.maximum(prior - (projected**2).sum(axis=1) - (row**2).sum(axis=1), 0.0)
        is_uncertain = variance > CERTAIN_VARIANCE_FRACTION * prior
        std = np.sqrt(np.where(is_uncertain, variance, 0.0))
        np.divide(1.0, std, out=self.inverse[:, t], where=std > 0)
        self.rows[:, t, :t] = row
        self.normal[:, t] = self.generator.standard_normal(len(z))
        return _Draw(mean, variance, mean + std * self.normal[:, t])

    def _factor_row(self, t: int, projected: Array) -> Array:
        """Return l_t (R, t) by forward substitution of the covariance with the earlier points."""
        kernel = self.model.gp.point_kernel
        priors = []
        for points in self.visited[:, : t + 1]:
            priors.append(kernel(points[[t]], points[:t])[0])
        prior = np.array(priors).reshape(len(projected), t)
        if self.model.gp.n_linear:
            lags = self.visited_lags[:, t]
            prior += np.einsum("rtp,rp->rt", self.visited_lags[:, :t], lags)
        explained = np.einsum("rtn,rn->rt", self.projected[:, :t], projected)
        row = prior - explained
        for s in range(t):
            row[:, s] -= np.einsum("rs,rs->r", self.rows[:, s, :s], row[:, :s])
            row[:, s] *= self.inverse[:, s]
        return row
