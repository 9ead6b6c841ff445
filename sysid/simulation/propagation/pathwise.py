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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from sysid.arrays import Array, Indices, check_whole
from sysid.compiled import cached_njit
from sysid.errors import UserError
from sysid.gp.dictionary import covariances
from sysid.gp.kernels import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from sysid.model.mean_map import AFFINE_MEANS, pad_and_stack
from sysid.model.model import Model
from sysid.simulation.dynamics import Dynamics, Moments
from sysid.simulation.propagation.propagation import (
    Paths,
    Trajectories,
    fed_back_noise_variance,
)

#: Largest number of cosines of a function; 1000 functions of so many take a gigabyte.
MAX_FEATURES = 100_000

# Coefficients of the power series of the sine, the highest power first.
SINE_COEFFICIENTS = tuple((-1.0) ** k / factorial(2 * k + 1) for k in range(9, -1, -1))

# Rounding may be different in sums of cosines, but nan and infinity are what they are.
WAVE_OPTIONS = {"reassoc", "contract", "nsz"}

# Steps over which each path is followed before the next one. The numbers of its functions then stay
# in the cache of the processor.
STEPS_TOGETHER = 64

# Degrees of freedom of the Student-t distributed frequencies of Matern kernels.
STUDENT_DEGREES_OF_FREEDOM = {Matern32: 3, Matern52: 5}


class Draws(NamedTuple):
    """How to draw functions."""

    n_functions: int
    n_features: int  # cosines that each function is made of
    generator: np.random.Generator


class Term(NamedTuple):
    """P functions ``prod_d x_d  sum_f amplitude_f cos(frequency_f'x + phase_f)``."""

    coordinates: tuple[int, ...]  # the coordinates d by which the sum is multiplied
    frequency: Array  # (P, p, F)
    phase: Array  # (P, F)
    amplitude: Array  # (P, F)


class Waves(NamedTuple):
    """P functions that are sums of terms, whose F cosines follow each other."""

    frequency: Array  # (P, p, F)
    phase: Array  # (P, F)
    amplitude: Array  # (P, F)
    end: Indices  # (n_terms,) number of cosines up to the end of each term
    coordinates: Indices  # (n_terms, degree) coordinates that multiply a term, then -1

    @classmethod
    def of(cls, terms: Sequence[Term]) -> Waves:
        """Return the sum of terms."""
        degree = max(len(term.coordinates) for term in terms)
        coordinates = np.full((len(terms), degree), -1)
        for row, term in zip(coordinates, terms, strict=True):
            row[: len(term.coordinates)] = term.coordinates
        return cls(
            frequency=_join([term.frequency for term in terms]),
            phase=_join([term.phase for term in terms]),
            amplitude=_join([term.amplitude for term in terms]),
            end=np.cumsum([term.phase.shape[1] for term in terms]),
            coordinates=coordinates,
        )


def _join(arrays: Sequence[Array]) -> Array:
    """Return arrays one behind the other along their last axis, C-contiguously."""
    return np.ascontiguousarray(np.concatenate(arrays, axis=-1))


class Update(NamedTuple):
    """What data add to P functions: sums of N kernels and of linear functions, one for each."""

    points: Array  # (p, N) points of the kernels
    weights: Array  # (P, N)
    coefficients: Array  # (P, n_linear) of the coordinates after the first p


def draw(draws: Draws, kernel: Kernel) -> Waves:
    """Draw functions from a Gaussian process of zero mean.

    Sums are distributed over the other factors of a product, and a linear factor has a function for
    each of its coefficients.

    Raises
    ------
    ValueError
        If the spectral density of a kernel is not known.
    """
    return Waves.of(_draw_terms(draws, (kernel,), kernel.n_features))


def _draw_terms(draws: Draws, factors: tuple[Kernel, ...], n_inputs: int) -> list[Term]:
    """Draw functions of p inputs from the product of kernels; without factors they are constants.

    A constant is a cosine of frequency zero.
    """
    if not factors:
        n = draws.n_functions
        constants = draws.generator.standard_normal(n)
        return [Term((), np.zeros((n, n_inputs, 1)), np.zeros((n, 1)), constants[:, None])]
    for i, factor in enumerate(factors):
        others = factors[:i] + factors[i + 1 :]
        match factor:
            case Product():
                return _draw_terms(draws, (*factor.parts, *others), n_inputs)
            case Sum():
                of_parts = [_draw_terms(draws, (part, *others), n_inputs) for part in factor.parts]
                return [term for terms in of_parts for term in terms]
            case Linear():
                return _draw_linear(factor, others, draws, n_inputs)
    return [_draw_waves(factors, draws)]


def _draw_linear(
    kernel: Linear, others: tuple[Kernel, ...], draws: Draws, n_inputs: int
) -> list[Term]:
    """Draw functions ``sum_d sqrt(variance_d) x_d g_d(x)`` with g_d drawn from the other factors.

    The first term is that of the constant, with ``x_0 = 1``.
    """
    terms = []
    for d, std in enumerate(np.sqrt(kernel.parameters())):
        coordinate = () if d == 0 else (d - 1,)
        for term in _draw_terms(draws, others, n_inputs):
            terms.append(
                term._replace(
                    coordinates=(*coordinate, *term.coordinates), amplitude=std * term.amplitude
                )
            )
    return terms


def _draw_waves(factors: tuple[Kernel, ...], draws: Draws) -> Term:
    """Draw sums of cosines.

    The frequencies of a product of stationary kernels are sums of theirs.
    """
    shape = (draws.n_functions, draws.n_features)
    generator = draws.generator
    drawn = sum(_frequencies(factor, shape, generator) for factor in factors)
    variance = np.prod([factor.parameters()[0] for factor in factors])
    amplitude = np.sqrt(variance / draws.n_features) * generator.rayleigh(size=shape)
    phase = generator.uniform(0.0, 2.0 * np.pi, size=shape)
    return Term((), np.swapaxes(drawn, 1, 2), phase, amplitude)


class Functions(NamedTuple):
    """P functions of each of m outputs, in the form that the compiled loops take.

    The arrays are padded with zeros to the largest number of inputs p, of cosines F and of points N
    among the outputs.
    """

    frequency: Array  # (m, P, p, F)
    phase: Array  # (m, P, F)
    amplitude: Array  # (m, P, F)
    end: Indices  # (m, n_terms)
    factors: Indices  # (m, n_terms, degree) coordinates that multiply a term, then -1
    n_inputs: Indices  # (m,) p of each output
    points: Array  # (m, p, N)
    weights: Array  # (m, P, N)
    kernels: Any  # (m,) addresses of the kernels of the updates
    parameters: Array  # (m, number of kernel parameters)

    @classmethod
    def of(cls, several: Sequence[DrawnFunction]) -> Functions:
        """Join the functions of all outputs."""
        degree = max(function.waves.coordinates.shape[1] for function in several)
        n_terms = max(function.waves.end.size for function in several)
        end = np.empty((len(several), n_terms), dtype=np.int64)
        factors = np.full((len(several), n_terms, degree), -1)
        for i, function in enumerate(several):
            waves = function.waves
            end[i] = waves.end[-1]
            end[i, : waves.end.size] = waves.end
            n, of_waves = waves.coordinates.shape
            factors[i, :n, :of_waves] = waves.coordinates
        return cls(
            frequency=pad_and_stack([function.waves.frequency for function in several]),
            phase=pad_and_stack([function.waves.phase for function in several]),
            amplitude=pad_and_stack([function.waves.amplitude for function in several]),
            end=end,
            factors=factors,
            n_inputs=np.array([len(function.update.points) for function in several]),
            points=pad_and_stack([function.update.points for function in several]),
            weights=pad_and_stack([function.update.weights for function in several]),
            kernels=np.array([function.kernel.address for function in several]),
            parameters=pad_and_stack([function.kernel.parameters() for function in several]),
        )


@dataclass(frozen=True, eq=False)
class DrawnFunction:
    """P functions of the coordinates of one output: waves and what data add to them."""

    waves: Waves
    update: Update
    kernel: Kernel  # of the update

    @classmethod
    def of_prior(cls, waves: Waves) -> DrawnFunction:
        """Return functions without an update."""
        n_functions, n_inputs, _ = waves.frequency.shape
        nothing = Update(
            points=np.zeros((n_inputs, 0)),
            weights=np.zeros((n_functions, 0)),
            coefficients=np.zeros((n_functions, 0)),
        )
        return cls(waves, nothing, SquaredExponential(1.0, np.ones(n_inputs)))

    @cached_property
    def compiled(self) -> Functions:
        """What the compiled loop takes."""
        return Functions.of([self])

    def __call__(self, coordinates: Array) -> Array:
        """Return values (b P,) at coordinates (b P, c); row i belongs to function ``i mod P``."""
        values = np.empty(len(coordinates))
        _evaluate(self.compiled, self.update.coefficients, coordinates, values)
        return values


@cached_njit(nogil=True, fastmath=WAVE_OPTIONS)
def _sum_waves(  # type: ignore[no-untyped-def]
    i, s, x, frequency, phase, amplitude, end, factors, angle
):
    """Return the waves of function s of output i at the coordinates x.

    The cosine is ``cos 2h = 1 - 2 sin^2 h``, with the power series of the sine for ``|h| <= pi /
    2``. Its error is below 1e-13. angle (F,) is a scratch array.
    """
    for f in range(angle.size):  # a slice would compile the message for a wrong shape
        angle[f] = phase[i, s, f]
    for d in range(frequency.shape[2]):
        x_d = x[d]
        for f in range(angle.size):
            angle[f] += x_d * frequency[i, s, d, f]
    for f in range(angle.size):
        half = 0.5 * angle[f]
        half -= np.pi * np.floor(half * (1.0 / np.pi) + 0.5)
        square = half * half
        sine = 0.0
        for c in SINE_COEFFICIENTS:
            sine = sine * square + c
        sine *= half
        angle[f] = amplitude[i, s, f] * (1.0 - 2.0 * sine * sine)
    value = 0.0
    begin = 0
    for term in range(end.shape[1]):
        total = 0.0
        for f in range(begin, end[i, term]):
            total += angle[f]
        for j in range(factors.shape[2]):
            if factors[i, term, j] >= 0:
                total *= x[factors[i, term, j]]
        value += total
        begin = end[i, term]
    return value


@cached_njit(nogil=True, fastmath=WAVE_OPTIONS)
def _sum_kernels(  # type: ignore[no-untyped-def]
    i, s, x, n_used, points, weights, kernels, parameters, k
):
    """Return the update of function s of output i at the coordinates x, without its linear part.

    Of output i n_used[i] coordinates are used. k (N,) is a scratch array.
    """
    covariances(kernels[i], parameters[i], points[i, : n_used[i]], k.size, x, k)
    value = 0.0
    for j in range(k.size):
        value += k[j] * weights[i, s, j]
    return value


@cached_njit(nogil=True, fastmath=WAVE_OPTIONS)
def _evaluate(functions, coefficients, coordinates, values):  # type: ignore[no-untyped-def]
    """Write the values (b P,) of the functions of one output at coordinates (b P, c)."""
    frequency, phase, amplitude, end, factors = functions[:5]
    n_used, points, weights, kernels, parameters = functions[5:]
    _, n_functions, n_inputs, n_waves = frequency.shape
    x = np.empty(n_inputs)
    angle = np.empty(n_waves)
    k = np.empty(points.shape[2])
    for s in range(n_functions):
        for row in range(s, len(coordinates), n_functions):
            for d in range(n_inputs):
                x[d] = coordinates[row, d]
            value = _sum_waves(0, s, x, frequency, phase, amplitude, end, factors, angle)
            value += _sum_kernels(0, s, x, n_used, points, weights, kernels, parameters, k)
            for j in range(coefficients.shape[1]):
                value += coordinates[row, n_inputs + j] * coefficients[s, j]
            values[row] = value


class PathMap(NamedTuple):
    """P functions of the regressor of each output, whose mean functions are affine.

    Their targets are ``intercept + slopes'x + f(z)`` with the coordinates ``z = A (x - offset)``
    and the functions f without the linear part of their update.
    """

    intercept: Array  # (m, P) target unit
    slopes: Array  # (m, P, p) target unit per unit of the feature
    offset: Array  # (m, p) unit of the feature
    n_entries: Indices  # (m,) number of entries of A that are not zero
    coordinate: Indices  # (m, q) rows of these entries
    feature: Indices  # (m, q) their columns
    factor: Array  # (m, q) their values

    @classmethod
    def of(cls, models: Sequence[Model], drawn: Sequence[DrawnFunction]) -> PathMap:
        """Return the maps of functions that were drawn from the posteriors of models."""
        intercepts = []
        slopes = []
        entries = []
        for model, function in zip(models, drawn, strict=True):
            A = model.scaling.linear_part()
            n_inputs = function.waves.frequency.shape[1]
            of_linear_part = function.update.coefficients @ A[n_inputs:]
            origin = np.zeros((1, A.shape[1]))
            intercepts.append(model.mean(origin)[0] - of_linear_part @ model.scaling.offset)
            slopes.append(model.mean.gradient(origin)[0] + of_linear_part)
            coordinate, feature = np.nonzero(A[:n_inputs])
            entries.append((coordinate, feature, A[coordinate, feature]))
        coordinates, features, factors = zip(*entries, strict=True)
        return cls(
            intercept=np.array(intercepts),
            slopes=np.array(slopes),
            offset=np.array([model.scaling.offset for model in models]),
            n_entries=np.array([len(one) for one in factors]),
            coordinate=pad_and_stack(coordinates).astype(np.int64),
            feature=pad_and_stack(features).astype(np.int64),
            factor=pad_and_stack(factors),
        )


@cached_njit(nogil=True, fastmath=WAVE_OPTIONS)
def _follow(  # type: ignore[no-untyped-def]
    path_map, functions, place, is_change, limits, bounds, exogenous, first, noise, values, drawn
) -> None:
    """Feed functions back over K steps, one path after the other.

    Parameters
    ----------
    path_map : PathMap
    functions : Functions
    place : three (q,)
        `feedback`, `row` and `column` of `Dynamics`.
    is_change : bool
        Whether the target is y[k] - y[k-1].
    limits, bounds : two (m,) each
        Smallest and largest values that the outputs can take, and between which they must stay.
    exogenous : (b, T, p)
        As for `Propagation.propagate`.
    first : int
        First of the steps.
    noise : (K, b, P, m)
        Noise that is fed back.
    values : (b, P, L + T, m)
        Outputs before the steps; those that are fed back are written, as `Paths.feed_back` does.
    drawn : (K, b, P, m)
        Written: the outputs without noise.
    """
    feedback, row, column = place
    lowest, highest = limits
    low, high = bounds
    n_starts, n_paths, n_values, n_outputs = values.shape
    n_features = exogenous.shape[2]
    n_lags = n_values - exogenous.shape[1]
    # what is taken out of a tuple in a loop takes time
    intercept, slopes, offset, n_entries, coordinate, feature, factor = path_map
    frequency, phase, amplitude, end, factors = functions[:5]
    n_used, points, weights, kernels, parameters = functions[5:]
    x = np.empty(n_features)
    z = np.empty(frequency.shape[2])
    angle = np.empty(frequency.shape[3])
    k = np.empty(points.shape[2])
    for s in range(n_paths):
        for b in range(n_starts):
            for step in range(len(drawn)):
                t = first + step
                now = n_lags + t
                for d in range(n_features):
                    x[d] = exogenous[b, t, d]
                for j in range(feedback.size):
                    x[feedback[j]] = values[b, s, t + row[j], column[j]]
                is_inside = True
                for i in range(n_outputs):
                    value = intercept[i, s]
                    for d in range(n_features):
                        value += slopes[i, s, d] * x[d]
                    for d in range(z.size):
                        z[d] = 0.0
                    for j in range(n_entries[i]):
                        d = feature[i, j]
                        z[coordinate[i, j]] += factor[i, j] * (x[d] - offset[i, d])
                    value += _sum_waves(i, s, z, frequency, phase, amplitude, end, factors, angle)
                    value += _sum_kernels(i, s, z, n_used, points, weights, kernels, parameters, k)
                    if is_change:
                        value += values[b, s, now - 1, i]
                    if value < lowest[i]:
                        value = lowest[i]
                    elif value > highest[i]:
                        value = highest[i]
                    drawn[step, b, s, i] = value
                    values[b, s, now, i] = value + noise[step, b, s, i]
                    is_inside &= low[i] < values[b, s, now, i] < high[i]
                if not is_inside:
                    for i in range(n_outputs):
                        values[b, s, now, i] = values[b, s, now - 1, i]


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

    With a coverage, functions whose trajectory runs away are left out, if most others do not:
    `Paths.leave_out_runaways`. The posterior of few samples and many lags has unstable functions,
    also if the plant is stable.

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
        # All trajectories of a start have the same first regressor.
        first_targets = dynamics.targets(paths.regressors(0)[:: self.n_samples])
        outputs = np.empty((paths.n_steps, *paths.shape))
        for begin in range(0, paths.n_steps, STEPS_TOGETHER):
            steps = range(begin, min(begin + STEPS_TOGETHER, paths.n_steps))
            noise = noise_std * generator.standard_normal((len(steps), *paths.shape))
            drawn = functions.follow(paths, begin, noise)
            if drawn is not None:
                outputs[begin : steps.stop] = drawn
                paths.take_steps(begin, drawn, noise)
                continue
            for t in steps:
                outputs[t] = paths.to_value(t, functions(paths.regressors(t)))
                paths.take_steps(t, outputs[t, None], noise[t - begin, None])
        if self.coverage is not None:
            paths.leave_out_runaways(outputs)
        first_mean = dynamics.to_value(first_targets.mean, past[:, -1])
        paths.replace_moments(0, first_mean, first_targets.variance)
        return paths.moments

    def functions(self, dynamics: Dynamics, generator: np.random.Generator) -> DrawnFunctions:
        """Draw P functions of every output.

        Raises
        ------
        ValueError
            As `propagate`.
        """
        draws = Draws(self.n_samples, self.n_features, generator)
        drawn = tuple(_draw_posterior(model, draws) for model in dynamics.models)
        return DrawnFunctions(dynamics.models, drawn)

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        per_step = dynamics.n_features + max(model.gp.n_points for model in dynamics.models)
        of_outputs = (dynamics.n_lags + 2 * n_steps) * dynamics.n_outputs
        return self.n_samples * (of_outputs + per_step)


@dataclass(frozen=True, eq=False)
class DrawnFunctions:
    """P functions of every output, drawn from the posteriors of its models.

    Parameters
    ----------
    models : sequence of Model
        Models of the m outputs.
    drawn : sequence of DrawnFunction
        Functions of the coordinates of each model, without its mean function.
    """

    models: Sequence[Model]
    drawn: Sequence[DrawnFunction]

    def __call__(self, regressors: Array) -> Array:
        """Return targets (b P, m) at regressors (b P, p); row i belongs to function ``i mod P``."""
        targets = []
        for model, function in zip(self.models, self.drawn, strict=True):
            coordinates = model.scaling.transform(regressors)
            targets.append(model.mean(regressors) + function(coordinates))
        return np.stack(targets, axis=1)

    @cached_property
    def maps(self) -> tuple[PathMap, Functions] | None:
        """What the compiled loop takes; None if a mean function is not affine in the regressors."""
        if not all(type(model.mean) in AFFINE_MEANS for model in self.models):
            return None
        return PathMap.of(self.models, self.drawn), Functions.of(self.drawn)

    def follow(self, paths: Paths, first: int, noise: Array) -> Array | None:
        """Return the outputs (K, b, P, m) of K steps from `first` on, by the compiled loop.

        Noise (K, b, P, m) is fed back, but not returned. `Paths.take_steps` has to be called with
        the outputs afterwards. None: a mean function is not affine.
        """
        if self.maps is None:
            return None
        drawn = np.empty(noise.shape)
        dynamics = paths.dynamics
        _follow(
            *self.maps,
            (dynamics.feedback, dynamics.row, dynamics.column),
            dynamics.is_change,
            (dynamics.limits[0], dynamics.limits[1]),
            (paths.bounds.low, paths.bounds.high),
            paths.exogenous,
            first,
            noise,
            paths.values,
            drawn,
        )
        return drawn


def _draw_posterior(model: Model, draws: Draws) -> DrawnFunction:
    """Draw P functions of the coordinates of a model from its posterior, without its mean."""
    gp = model.gp
    points = gp.point_inputs
    n_functions = draws.n_functions
    waves = draw(draws, gp.point_kernel)
    state = gp.state()
    noise_std = np.sqrt(gp.diagonal)
    noise = noise_std * draws.generator.standard_normal((len(points), n_functions))
    learned = gp.draw_posterior(n_functions, draws.generator)
    prior_at_points = DrawnFunction.of_prior(waves)(np.repeat(points, n_functions, axis=0))
    residual = learned.targets - prior_at_points.reshape(-1, n_functions) - noise
    update = Update(
        points=np.ascontiguousarray(points.T),
        weights=np.ascontiguousarray(_solve(state["cholesky"], state["order"], residual).T),
        coefficients=np.ascontiguousarray(learned.coefficients.T),
    )
    return DrawnFunction(waves, update, gp.point_kernel)


def _solve(cholesky: Array, order: np.ndarray, right: Array) -> Array:
    """Return ``Ky^-1 right`` (N, P), both in the order of the slots.

    The Cholesky factor U is in the order of insertion, which `order` (N,) gives as slots.
    """
    solved = np.empty_like(right)
    if len(right):
        half = solve_triangular(cholesky, right[order], trans=1, check_finite=False)
        solved[order] = solve_triangular(cholesky, half, check_finite=False)
    return solved
