"""One function per trajectory, drawn as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from sysid.dynamics import Dynamics
from sysid.model import Model
from sysid.propagation.paths import Paths, checked_count, checked_coverage
from sysid.propagation.prior_draw import Draws, draw
from sysid.propagation.propagation import Array, Moments, Propagation


@dataclass(frozen=True)
class Pathwise(Propagation):
    """Draw functions from the posterior; each trajectory follows one of them all the way.

    What is not known of the function stays the same wherever the trajectory comes by again, as it is in truth, so
    that errors add up; draws that are independent at every step (`MonteCarlo`) average them out. A function of the
    posterior is one of the prior (`sysid.propagation.prior_draw`) and an update by the data (Wilson et al. 2020)::

        f(x) + k(x, X) Ky^-1 (y - f(X) - e),   e ~ N(0, noise_variance)

    The trajectories of all starts follow the same functions. Of the first sample, where nothing is fed back, the
    moments are exact. For squared exponential, Matern and linear kernels, their sums and products.
    """

    n_samples: int = 200  # functions, and trajectories per start
    n_features: int = 100  # cosines that a function is made of
    process_noise: bool = False  # whether the noise of the model is fed back
    coverage: float | None = 0.95  # of the band that the variance stands for; None: the variance of all draws

    def __post_init__(self) -> None:
        checked_count("Pathwise", "n_samples", self.n_samples, 2)
        checked_coverage("Pathwise", self.coverage)
        checked_count("Pathwise", "n_features", self.n_features, 1)

    def propagate(self, dynamics: Dynamics, past: Array, exogenous: Array, generator: np.random.Generator) -> Moments:
        """See `Propagation.propagate`.

        Raises
        ------
        ValueError
            A kernel whose functions cannot be drawn.
        """
        functions = self.functions(dynamics, generator)
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        noise = np.sqrt(dynamics.noise_variance) * self.process_noise
        for t in range(paths.n_steps):
            x = paths.regressors(t)
            values = paths.to_value(t, functions(x))
            paths.push(t, values + noise * generator.standard_normal(paths.shape))
            if t == 0:
                targets = dynamics.targets(x[:: self.n_samples])
                paths.note(t, dynamics.to_value(targets.mean, past[:, -1]), targets.variance)
            else:
                paths.note(t, *paths.of_draws(values))
        return paths.moments()

    def functions(self, dynamics: Dynamics, generator: np.random.Generator) -> Callable[[Array], Array]:
        """Draw P functions of every output; regressors (b P, p), those of the functions in turn, to targets (b P, m).

        Raises
        ------
        ValueError
            As `propagate`.
        """
        draws = Draws(self.n_samples, self.n_features, generator)
        functions = [_posterior(model, draws) for model in dynamics.models]
        return lambda x: np.stack([function(x) for function in functions], axis=1)

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        """The paths, and the regressors and covariances of one step."""
        per_step = dynamics.n_features + max(model.gp.n_points for model in dynamics.models)
        return self.n_samples * ((dynamics.n_lags + n_steps) * dynamics.n_outputs + per_step)


def _posterior(model: Model, draws: Draws) -> Callable[[Array], Array]:
    """Targets (b P,) of drawn functions at regressors (b P, p), those of the P functions in turn."""
    kernel, points, n = model.gp.kernel, model.gp.inputs, draws.n_functions
    prior = draw(kernel, draws)
    state = model.gp.state()
    noise = np.sqrt(model.gp.noise_variance) * draws.generator.standard_normal((len(points), n))
    missing = state["targets"][:, None] - prior(np.repeat(points[:, None], n, axis=1)) - noise
    update = _solved(state["cholesky"], state["order"], missing)

    def values(regressors: Array) -> Array:
        z = model.scaling.transform(regressors)
        by_function = prior(z.reshape(-1, n, z.shape[1]))
        covariance = kernel(z, points).reshape(*by_function.shape, len(points))
        learned = np.einsum("bpn,np->bp", covariance, update)
        return np.asarray(model.mean(regressors) + (by_function + learned).ravel())

    return values


def _solved(cholesky: Array, order: np.ndarray, right: Array) -> Array:
    """``Ky^-1 right`` (N, P) by slot, from U by age."""
    solved = np.empty_like(right)
    if len(right):
        half = solve_triangular(cholesky, right[order], trans=1, check_finite=False)
        solved[order] = solve_triangular(cholesky, half, check_finite=False)
    return solved
