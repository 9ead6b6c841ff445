"""One function per trajectory, drawn where it is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from sysid.dynamics import Dynamics
from sysid.model import Model
from sysid.propagation.paths import Paths, checked_count, checked_coverage
from sysid.propagation.propagation import Array, Moments, Propagation

KNOWN = 1e-12  # of the prior variance: a value whose conditional variance is smaller is certain
LARGEST = 2**28  # numbers kept in memory


@dataclass(frozen=True)
class SequentialConditioning(Propagation):
    """Draw every value of a trajectory given all values that the same trajectory has drawn before.

    The joint distribution of the function at the points of a trajectory, exactly and for any kernel:
    ``f_t = mean_t + l_t' n_(1..t-1) + d_t n_t`` with (l_t, d_t) the row that point t adds to the Cholesky factor of
    their posterior covariance, n standard normal. What `Pathwise` does for the kernels that it knows, at a cost that
    grows with the square of the number of steps; for other kernels, and to check it.
    """

    n_samples: int = 200  # trajectories per start
    process_noise: bool = False  # whether the noise of the model is fed back
    coverage: float | None = 0.95  # of the band that the variance stands for; None: the variance of all draws

    def __post_init__(self) -> None:
        checked_count("SequentialConditioning", "n_samples", self.n_samples, 2)
        checked_coverage("SequentialConditioning", self.coverage)

    def propagate(self, dynamics: Dynamics, past: Array, exogenous: Array, generator: np.random.Generator) -> Moments:
        """See `Propagation.propagate`.

        Raises
        ------
        ValueError
            More steps than memory holds.
        """
        if (size := len(past) * self.size(dynamics, exogenous.shape[1])) > LARGEST:
            raise ValueError(
                f"SequentialConditioning: {exogenous.shape[1]} steps of {self.n_samples} trajectories need "
                f"{8 * size / 2**30:.0f} GiB; use fewer trajectories, a shorter horizon, or Pathwise"
            )
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        n_rows = len(past) * self.n_samples
        drawn = [_Drawn(model, n_rows, paths.n_steps, generator) for model in dynamics.models]
        noise = np.sqrt(dynamics.noise_variance) * self.process_noise
        for t in range(paths.n_steps):
            x = paths.regressors(t)
            mean, variance, values = (
                np.stack(part, axis=1) for part in zip(*(one.step(t, x) for one in drawn), strict=True)
            )
            conditional = paths.to_value(t, mean), variance.reshape(paths.shape)
            paths.push(t, paths.to_value(t, values) + noise * generator.standard_normal(paths.shape))
            paths.note(t, *paths.of_conditionals(*conditional))
        return paths.moments()

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """Factors and points of all trajectories."""
        per_step = n_steps + sum(model.gp.n_points + dynamics.n_features + 2 for model in dynamics.models)
        return self.n_samples * n_steps * per_step * dynamics.n_outputs


class _Drawn:
    """Values of R functions of one posterior, drawn one after the other."""

    def __init__(self, model: Model, n_rows: int, n_steps: int, generator: np.random.Generator) -> None:
        self.model, self.generator = model, generator
        state = model.gp.state()
        self.cholesky, self.whitened = state["cholesky"], state["whitened"]
        self.points = state["inputs"][state["order"]]
        self.visited = np.empty((n_rows, n_steps, model.gp.n_features))
        self.projected = np.empty((n_rows, n_steps, len(self.points)))
        self.rows = np.zeros((n_rows, n_steps, n_steps))
        self.inverse = np.zeros((n_rows, n_steps))  # 1 / d_t; 0 where the value was certain
        self.normal = np.zeros((n_rows, n_steps))

    def step(self, t: int, regressors: Array) -> tuple[Array, Array, Array]:
        """Conditional mean and variance of the targets (R,) at regressors (R, p), and draws of them."""
        z = self.model.scaling.transform(regressors)
        projected = self._projected(z)
        self.visited[:, t], self.projected[:, t] = z, projected
        row = self._row(t, z, projected)
        mean = self.model.mean(regressors) + projected @ self.whitened + np.einsum("rt,rt->r", row, self.normal[:, :t])
        prior = self.model.gp.kernel.diagonal(z)
        variance = np.maximum(prior - (projected**2).sum(axis=1) - (row**2).sum(axis=1), 0.0)
        root = np.sqrt(np.where(variance > KNOWN * prior, variance, 0.0))
        np.divide(1.0, root, out=self.inverse[:, t], where=root > 0)
        self.rows[:, t, :t] = row
        self.normal[:, t] = self.generator.standard_normal(len(z))
        return mean, variance, mean + root * self.normal[:, t]

    def _projected(self, z: Array) -> Array:
        """``U'^-1 k(X, z)`` (R, N)."""
        if not len(self.points):
            return np.empty((len(z), 0))
        covariance = self.model.gp.kernel(self.points, z)
        return np.asarray(solve_triangular(self.cholesky, covariance, trans=1, check_finite=False).T)

    def _row(self, t: int, z: Array, projected: Array) -> Array:
        """l_t (R, t): forward substitution of the posterior covariance with the points before."""
        kernel = self.model.gp.kernel
        prior = np.array([kernel(one[None, :], before)[0] for one, before in zip(z, self.visited[:, :t], strict=True)])
        row = prior.reshape(len(z), t) - np.einsum("rtn,rn->rt", self.projected[:, :t], projected)
        for s in range(t):
            row[:, s] -= np.einsum("rs,rs->r", self.rows[:, s, :s], row[:, :s])
            row[:, s] *= self.inverse[:, s]
        return row
