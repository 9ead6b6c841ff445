"""Whole functions drawn from the posterior: one per trajectory.

A function of the prior is a sum of random Fourier features. A stationary kernel is the
characteristic function of its spectral density, ``k(x, x') = variance E cos(w'(x - x'))``
(Bochner), so that with frequencies w_i drawn from that density, Gaussian weights and F features::

    f(x) = sqrt(variance / F) sum_i r_i cos(w_i'x + phase_i),   r_i Rayleigh, phase_i uniform

has exactly the covariance of the kernel over all draws (Rahimi and Recht 2008). Every function has
its own frequencies, so that F only decides how far the distribution is from Gaussian. The
frequencies of the squared exponential kernel are Gaussian, those of a Matern kernel of smoothness
nu are Student-t with 2 nu degrees of freedom (Rasmussen and Williams, section 4.2.1). Matheron's
rule turns a function of the prior into one of the posterior (`Pathwise`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import factorial
from typing import NamedTuple, TypeAlias

import numpy as np
from numba import njit
from scipy.linalg import solve_triangular

from sysid.arrays import Array, check_whole
from sysid.errors import UserError
from sysid.gp.kernels import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from sysid.model.model import Model
from sysid.simulation.dynamics import Dynamics, Moments
from sysid.simulation.propagation.propagation import (
    Paths,
    Trajectories,
    fed_back_noise_variance,
)

#: Largest number of cosines of a function; 1000 functions of so many take a gigabyte.
MAX_FEATURES = 100_000

#: Values (n, P) of P functions at points (n, P, p); each column belongs to one function.
Functions: TypeAlias = Callable[[Array], Array]

# Coefficients of the power series of the sine, the highest power first.
SINE_COEFFICIENTS = tuple((-1.0) ** k / factorial(2 * k + 1) for k in range(9, -1, -1))

# Degrees of freedom of the Student-t distributed frequencies of Matern kernels.
STUDENT_DEGREES_OF_FREEDOM = {Matern32: 3, Matern52: 5}


class Draws(NamedTuple):
    """How to draw functions."""

    n_functions: int
    n_features: int  # cosines that each function is made of
    generator: np.random.Generator


def draw(draws: Draws, *factors: Kernel) -> Functions:
    """Draw functions from a Gaussian process of zero mean whose kernel is a product of factors.

    Sums are distributed over the other factors, and a linear factor has a function for each of its
    coefficients. Without factors the functions are constants.

    Raises
    ------
    ValueError
        If the spectral density of a kernel is not known.
    """
    if not factors:
        constants = draws.generator.standard_normal(draws.n_functions)
        return lambda points: constants
    for i, factor in enumerate(factors):
        others = factors[:i] + factors[i + 1 :]
        match factor:
            case Product():
                return draw(draws, *factor.parts, *others)
            case Sum():
                terms = [draw(draws, part, *others) for part in factor.parts]
                return lambda points: np.sum([term(points) for term in terms], axis=0)
            case Linear():
                return _draw_linear(factor, others, draws)
    return _draw_waves(factors, draws)


def _draw_linear(kernel: Linear, others: tuple[Kernel, ...], draws: Draws) -> Functions:
    """Draw functions ``sum_d sqrt(variance_d) x_d g_d(x)`` with g_d drawn from the other factors.

    The first term is that of the constant, with ``x_0 = 1``.
    """
    stds = np.sqrt(kernel.parameters())
    coefficients = [draw(draws, *others) for _ in stds]

    def trend(points: Array) -> Array:
        total = stds[0] * coefficients[0](points)
        for d, std in enumerate(stds[1:]):
            total = total + std * points[:, :, d] * coefficients[d + 1](points)
        return np.asarray(total)

    return trend


def _draw_waves(factors: tuple[Kernel, ...], draws: Draws) -> Functions:
    """Draw sums of cosines.

    The frequencies of a product of stationary kernels are sums of theirs.
    """
    shape = (draws.n_functions, draws.n_features)
    generator = draws.generator
    drawn = sum(_frequencies(factor, shape, generator) for factor in factors)
    variance = np.prod([factor.parameters()[0] for factor in factors])
    amplitude = np.sqrt(variance / draws.n_features) * generator.rayleigh(size=shape)
    phase = generator.uniform(0.0, 2.0 * np.pi, size=shape)
    frequency = np.ascontiguousarray(np.swapaxes(drawn, 1, 2))
    return lambda points: _sum_waves(points, frequency, phase, amplitude)


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _sum_waves(points, frequency, phase, amplitude):  # type: ignore[no-untyped-def]
    """Return ``sum_f amplitude cos(frequency'x + phase)`` (n, P) at points (n, P, p).

    The frequencies are (P, p, F), amplitudes and phases (P, F). The cosine is ``cos 2h = 1 - 2
    sin^2 h``, with the power series of the sine for ``|h| <= pi / 2``. Its error is below 1e-13.
    """
    n, n_functions, p = points.shape
    values = np.empty((n, n_functions))
    angle = np.empty(phase.shape[1])
    for s in range(n_functions):
        for i in range(n):
            for f in range(angle.size):  # a slice would compile the message for a wrong shape
                angle[f] = phase[s, f]
            for d in range(p):
                x = points[i, s, d]
                for f in range(angle.size):
                    angle[f] += x * frequency[s, d, f]
            total = 0.0
            for f in range(angle.size):
                half = 0.5 * angle[f]
                half -= np.pi * np.floor(half / np.pi + 0.5)
                square = half * half
                sine = 0.0
                for c in SINE_COEFFICIENTS:
                    sine = sine * square + c
                sine *= half
                total += amplitude[s, f] * (1.0 - 2.0 * sine * sine)
            values[i, s] = total
    return values


def _frequencies(kernel: Kernel, shape: tuple[int, int], generator: np.random.Generator) -> Array:
    """Draw frequencies (P, F, p) from the spectral density of a stationary kernel."""
    if not isinstance(kernel, SquaredExponential | Matern32 | Matern52):
        raise UserError(
            f"Pathwise: the spectral density of {type(kernel).__name__} is not known; "
            "SequentialConditioning draws functions of any kernel"
        )
    normal = generator.standard_normal((*shape, kernel.n_features))
    gaussian = normal / np.asarray(kernel.length_scales)
    degrees = STUDENT_DEGREES_OF_FREEDOM.get(type(kernel))
    if degrees is None:
        return np.asarray(gaussian)
    chi_squared = generator.chisquare(degrees, size=(*shape, 1))
    return np.asarray(gaussian * np.sqrt(degrees / chi_squared))


@dataclass(frozen=True)
class Pathwise(Trajectories):
    """Draw functions from the posterior; each trajectory follows one of them all the way.

    The error of the function is then the same whenever a trajectory visits the same regressor, as
    it is in reality, so that errors accumulate. Draws that are independent at every step
    (`MonteCarlo`) average them out. A function of the posterior is a function f of the prior
    (`draw`) plus an update by the data (Wilson et al. 2020)::

        f(x) + k(x, X) Ky^-1 (y - f(X) - e),   e ~ N(0, noise_variance)

    If the model has learned samples without storing them, y is a draw of the values at its points
    and e has the variance `diagonal` of `OnlineGP`. The coefficients of a linear part are drawn
    jointly with y, and their linear function is added. The trajectories of all starts follow the
    same functions. The moments of the first sample, where nothing is fed back, are exact.

    The rule takes squared exponential, Matern and linear kernels, their sums and products.
    """

    n_samples: int = 1000  # functions, and trajectories per start
    n_features: int = 100  # cosines that a function is made of

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.n_features, 1, "Pathwise: n_features", below=MAX_FEATURES + 1)

    @property
    def is_calibrated(self) -> bool:
        return not self.process_noise

    def measured(self) -> Pathwise | None:
        return replace(self, process_noise=False) if self.process_noise else None

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        """Draw the functions and follow them; see `Propagation.propagate`.

        Raises
        ------
        ValueError
            If the functions of a kernel cannot be drawn.
        """
        functions = self.functions(dynamics, generator)
        paths = Paths(dynamics, past, exogenous, self.n_samples, self.coverage)
        noise_std = np.sqrt(fed_back_noise_variance(dynamics, self.process_noise))
        for t in range(paths.n_steps):
            regressors = paths.regressors(t)
            values = paths.to_value(t, functions(regressors))
            noise = noise_std * generator.standard_normal(paths.shape)
            paths.feed_back(t, values + noise)
            if t == 0:
                # All trajectories of a start have the same first regressor.
                targets = dynamics.targets(regressors[:: self.n_samples])
                mean = dynamics.to_value(targets.mean, past[:, -1])
                paths.set_moments(t, mean, targets.variance)
            else:
                paths.set_moments(t, *paths.summarise_draws(values))
        return paths.moments

    def functions(
        self, dynamics: Dynamics, generator: np.random.Generator
    ) -> Callable[[Array], Array]:
        """Draw P functions of every output.

        The result maps regressors (b P, p) to targets (b P, m); row i belongs to function ``i mod
        P``.

        Raises
        ------
        ValueError
            As `propagate`.
        """
        draws = Draws(self.n_samples, self.n_features, generator)
        functions = [_draw_posterior(model, draws) for model in dynamics.models]
        return lambda regressors: np.stack([function(regressors) for function in functions], axis=1)

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        per_step = dynamics.n_features + max(model.gp.n_points for model in dynamics.models)
        return self.n_samples * ((dynamics.n_lags + n_steps) * dynamics.n_outputs + per_step)


def _draw_posterior(model: Model, draws: Draws) -> Callable[[Array], Array]:
    """Draw P functions of a posterior.

    The result maps regressors (b P, p) to targets (b P,); row i belongs to function ``i mod P``.
    """
    gp = model.gp
    kernel = gp.point_kernel
    points = gp.point_inputs
    n_functions = draws.n_functions
    prior = draw(draws, kernel)
    state = gp.state()
    noise_std = np.sqrt(gp.diagonal)
    noise = noise_std * draws.generator.standard_normal((len(points), n_functions))
    learned = gp.draw_posterior(n_functions, draws.generator)
    prior_at_points = prior(np.repeat(points[:, None], n_functions, axis=1))
    residual = learned.targets - prior_at_points - noise
    update = _solve(state["cholesky"], state["order"], residual)

    def values(regressors: Array) -> Array:
        z = model.scaling.transform(regressors)
        x, phi = np.split(z, [kernel.n_features], axis=1)
        prior_values = prior(x.reshape(-1, n_functions, x.shape[1]))
        covariance = kernel(x, points).reshape(*prior_values.shape, len(points))
        total = prior_values + np.einsum("bpn,np->bp", covariance, update)
        if gp.n_linear:
            lags = phi.reshape(-1, n_functions, gp.n_linear)
            total += np.einsum("bpl,lp->bp", lags, learned.coefficients)
        return np.asarray(model.mean(regressors) + total.ravel())

    return values


def _solve(cholesky: Array, order: np.ndarray, right: Array) -> Array:
    """Return ``Ky^-1 right`` (N, P), both in the order of the slots.

    The Cholesky factor U is in the order of insertion, which `order` (N,) gives as slots.
    """
    solved = np.empty_like(right)
    if len(right):
        half = solve_triangular(cholesky, right[order], trans=1, check_finite=False)
        solved[order] = solve_triangular(cholesky, half, check_finite=False)
    return solved
