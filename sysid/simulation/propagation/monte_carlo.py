"""Independent draws at every step, and draws of whole functions conditioned step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from sysid.arrays import Array
from sysid.errors import UserError
from sysid.model.model import Model
from sysid.simulation.dynamics import Dynamics, Moments
from sysid.simulation.propagation.propagation import Paths, Trajectories

KNOWN = 1e-12  # of the prior variance: a value whose conditional variance is smaller is certain
LARGEST = 2**28  # numbers kept in memory


@dataclass(frozen=True)
class MonteCarlo(Trajectories):
    """Draw each step from the predictive distribution there, independently of all other steps.

    The uncertainty of the function then acts like white noise: a path that visits the same place
    twice meets two different functions. This understates the spread of a free run; see `Pathwise`.
    The moments of a sample are those of the mixture of its predictive distributions, so the first
    one is exact.
    """

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        noise = dynamics.noise_variance * self.process_noise
        for t in range(paths.n_steps):
            targets = dynamics.targets(paths.regressors(t))
            mean = paths.to_value(t, targets.mean)
            variance = targets.variance.reshape(paths.shape)
            paths.push(
                t,
                mean + np.sqrt(variance + noise) * generator.standard_normal(paths.shape),
            )
            paths.note(t, *paths.of_conditionals(mean, variance))
        return paths.moments

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        return self.n_samples * (
            (dynamics.n_lags + n_steps) * dynamics.n_outputs + dynamics.n_features
        )


@dataclass(frozen=True)
class SequentialConditioning(Trajectories):
    """Draw every value of a trajectory given all values that the same trajectory has drawn before.

    The joint distribution of the function at the points of a trajectory, exactly and for any
    kernel: ``f_t = mean_t + l_t' n_(1..t-1) + d_t n_t`` with (l_t, d_t) the row that point t adds
    to the Cholesky factor of their posterior covariance, n standard normal. `Pathwise` does the
    same for the kernels that it knows; here the cost grows with the square of the number of steps.
    Use it for other kernels, and to check `Pathwise`.
    """

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        """Draw all trajectories; see `Propagation.propagate`.

        Raises
        ------
        ValueError
            More steps than memory holds.
        """
        if (size := len(past) * self.size(dynamics, exogenous.shape[1])) > LARGEST:
            raise UserError(
                f"SequentialConditioning: {exogenous.shape[1]} steps of {self.n_samples} trajectories need "
                f"{8 * size / 2**30:.0f} GiB; use fewer trajectories, a shorter horizon, or Pathwise"
            )
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        n_rows = len(past) * self.n_samples
        drawn = [
            _FunctionDraws(model, n_rows, paths.n_steps, generator) for model in dynamics.models
        ]
        noise = np.sqrt(dynamics.noise_variance) * self.process_noise
        for t in range(paths.n_steps):
            x = paths.regressors(t)
            mean, variance, values = (
                np.stack(part, axis=1)
                for part in zip(*(one.step(t, x) for one in drawn), strict=True)
            )
            conditional = paths.to_value(t, mean), variance.reshape(paths.shape)
            paths.push(
                t,
                paths.to_value(t, values) + noise * generator.standard_normal(paths.shape),
            )
            paths.note(t, *paths.of_conditionals(*conditional))
        return paths.moments

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        per_step = n_steps + sum(
            model.gp.n_points + dynamics.n_features + 2 for model in dynamics.models
        )
        return self.n_samples * n_steps * per_step * dynamics.n_outputs


class _FunctionDraws:
    """Values of R functions of one posterior; each is drawn given those before."""

    def __init__(
        self, model: Model, n_rows: int, n_steps: int, generator: np.random.Generator
    ) -> None:
        self.model = model
        self.generator = generator
        state = model.gp.exact_form()
        self.cholesky, self.whitened = state["cholesky"], state["whitened"]
        self.points = state["inputs"][state["order"]]
        self.visited = np.empty((n_rows, n_steps, model.gp.n_features))
        self.projected = np.empty((n_rows, n_steps, len(self.points)))
        self.rows = np.zeros((n_rows, n_steps, n_steps))
        self.inverse = np.zeros((n_rows, n_steps))  # 1 / d_t; 0 where the value was certain
        self.normal = np.zeros((n_rows, n_steps))

    def step(self, t: int, regressors: Array) -> tuple[Array, Array, Array]:
        """Conditional mean and variance of the targets (R,) at regressors (R, p), and draws of
        them.
        """
        z = self.model.scaling.transform(regressors)
        projected = np.empty((len(z), 0))
        if len(self.points):
            covariance = self.model.gp.kernel(self.points, z)
            projected = solve_triangular(
                self.cholesky, covariance, trans=1, check_finite=False
            ).T  # U'^-1 k(X, z)
        self.visited[:, t], self.projected[:, t] = z, projected
        row = self._row(t, z, projected)
        mean = (
            self.model.mean(regressors)
            + projected @ self.whitened
            + np.einsum("rt,rt->r", row, self.normal[:, :t])
        )
        prior = self.model.gp.kernel.diagonal(z)
        variance = np.maximum(prior - (projected**2).sum(axis=1) - (row**2).sum(axis=1), 0.0)
        root = np.sqrt(np.where(variance > KNOWN * prior, variance, 0.0))
        np.divide(1.0, root, out=self.inverse[:, t], where=root > 0)
        self.rows[:, t, :t] = row
        self.normal[:, t] = self.generator.standard_normal(len(z))
        return mean, variance, mean + root * self.normal[:, t]

    def _row(self, t: int, z: Array, projected: Array) -> Array:
        """l_t (R, t): forward substitution of the posterior covariance with the points before."""
        kernel = self.model.gp.kernel
        prior = np.array(
            [
                kernel(one[None, :], before)[0]
                for one, before in zip(z, self.visited[:, :t], strict=True)
            ]
        )
        row = prior.reshape(len(z), t) - np.einsum("rtn,rn->rt", self.projected[:, :t], projected)
        for s in range(t):
            row[:, s] -= np.einsum("rs,rs->r", self.rows[:, s, :s], row[:, :s])
            row[:, s] *= self.inverse[:, s]
        return row
