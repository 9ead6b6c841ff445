"""Formulas of an exported model as expressions of CasADi.

Everything below this docstring is copied into the exported files. It needs CasADi and NumPy, and
nothing else. The toolbox itself imports this file only to check a file that it exports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import casadi
import numpy as np

#: A Matern covariance is a power series for a squared distance ``3 r^2`` or ``5 r^2`` below this,
#: so that its derivatives are accurate, and known, at a stored point, too [-].
SERIES_BELOW = 0.1

#: A square root is taken of this, at least: its derivative is finite at a stored point [-].
LEAST_SQUARE = 1e-200

N_SERIES_TERMS = 16  # the first term left out is below 1e-16 where the series is used
SERIES_ROUNDING = 1e-14  # a coefficient of the series below this is rounding of zero


class Structure(NamedTuple):
    """What stays as it is in the model of one output while it learns."""

    kernel: Any  # formula, or (total or product, kernels)
    n_features: int  # p
    n_coordinates: int  # d, of the kernel
    n_points: int  # N, the budget: as many points as there may be
    n_linear: int  # l, coefficients of the linear part; 0 without one
    learns_every_sample: bool  # whether the values at the points have a posterior of their own
    lowest: float  # smallest value of the output in free run, unit of the output
    highest: float  # largest value of the output in free run, unit of the output

    def shapes(self) -> dict[str, Any]:
        """Return the sparsity of each block of the parameters, in their order.

        A triangular matrix has only the numbers of its triangle, column by column.
        """
        p = self.n_features
        d = self.n_coordinates
        n = self.n_points
        n_linear = self.n_linear
        dense = casadi.Sparsity.dense
        shapes = {
            "noise_variance": dense(1, 1),  # of a measurement, unit of the target squared
            "intercept": dense(1, 1),  # of the mean function, unit of the target
            "slopes": dense(1, p),  # of the mean function
            "offset": dense(p, 1),  # subtracted from the features
            "matrix": dense(d + n_linear, p),  # from features to coordinates
            "kernel": dense(count_parameters(self.kernel, d), 1),
            "points": dense(d, n),  # zeros beyond the points that are stored
            "weights": dense(n, 1),  # (K + c I)^-1 y, zeros beyond them
            "factor": casadi.Sparsity.lower(n),  # F, F'F = (K + c I)^-1
        }
        if n_linear:
            shapes["coefficients"] = dense(1, n_linear)  # posterior mean of the linear part
            shapes["linear_root"] = dense(n_linear, n_linear)  # C', C C' their prior covariance
        if self.learns_every_sample:
            shapes["root"] = casadi.Sparsity.upper(n_linear + n)  # M, M'M posterior covariance
        return shapes

    @property
    def n_parameters(self) -> int:
        """Length of the vector of the parameters of this output."""
        return sum(shape.nnz() for shape in self.shapes().values())


class SampleFunctions:
    """Functions of one sample, from which those of n samples are made.

    Attributes
    ----------
    n_states, n_inputs, n_parameters : int
    n_output_states : int
        The first elements of the state, which are outputs: errors of them are passed on.
    transition : casadi.Function
        Next state, and outputs (m,), of a state, the inputs of a sample and the parameters.
    step : casadi.Function
        The same with the latent variance and the noise variance (m,) of the sample.
    spread : casadi.Function
        Next state, outputs, variance (m,) and covariance of the errors of the outputs among the
        states, of a state, the inputs, the parameters and the covariance before.
    """

    n_states: int
    n_inputs: int
    n_parameters: int
    n_output_states: int
    transition: Any
    step: Any
    spread: Any

    def symbols(self, n: int) -> tuple[Any, Any, Any]:
        """Return a state, the inputs of n samples (n_u, n) and the parameters, as symbols."""
        if n != int(n) or n < 1:
            raise ValueError(f"expected a whole number of samples, at least 1, got {n!r}")
        state = casadi.MX.sym("state", self.n_states)
        u = casadi.MX.sym("u", self.n_inputs, int(n))
        return state, u, casadi.MX.sym("parameters", self.n_parameters)

    def simulation(self, n: int) -> Any:
        """Return the function of n samples in free run: outputs (m, n) of inputs u (n_u, n)."""
        state, u, parameters = self.symbols(n)
        now = state
        outputs = []
        for k in range(n):
            now, y = self.transition(now, u[:, k], parameters)
            outputs.append(y)
        return casadi.Function(
            f"simulation_{n}",
            [state, u, parameters],
            [casadi.horzcat(*outputs), now],
            ["state", "u", "parameters"],
            ["mean", "next"],
        )

    def forecast(self, n: int) -> Any:
        """Return the function of n samples in free run with the variance, both (m, n).

        The variance grows as the linearised model passes errors on, ``A P A' + diag(variance)``.
        The error of the function counts as independent at every sample.
        """
        state, u, parameters = self.symbols(n)
        now = state
        errors = casadi.MX.zeros(self.n_output_states, self.n_output_states)
        outputs = []
        variances = []
        for k in range(n):
            now, y, variance, errors = self.spread(now, u[:, k], parameters, errors)
            outputs.append(y)
            variances.append(variance)
        return casadi.Function(
            f"forecast_{n}",
            [state, u, parameters],
            [casadi.horzcat(*outputs), casadi.horzcat(*variances), now],
            ["state", "u", "parameters"],
            ["mean", "variance", "next"],
        )


class ExportedModel(SampleFunctions):
    """Functions of the models of one or several outputs over the same regressors.

    Parameters
    ----------
    structures
        One per target.
    outputs, inputs
        Names of the signals.
    features
        Signal and lag of every column of a regressor.
    is_change
        Whether the target is y[k] - y[k-1].
    feeds_back
        Whether every output has a model, so that the model can run on its own predictions.
    """

    def __init__(
        self,
        structures: Sequence[Structure],
        outputs: Sequence[str],
        inputs: Sequence[str],
        features: Sequence[tuple[str, int]],
        is_change: bool,
        feeds_back: bool,
    ) -> None:
        """Build the functions."""
        self.structures = structures
        self.outputs = outputs
        self.inputs = inputs
        self.features = features
        self.is_change = is_change
        self.n_parameters = sum(structure.n_parameters for structure in structures)
        x = casadi.MX.sym("x", len(features))
        parameters = casadi.MX.sym("parameters", self.n_parameters)
        moments = [moments_of(*part, x) for part in self.parts(parameters)]
        means = casadi.vertcat(*[moment[0] for moment in moments])
        variances = casadi.vertcat(*[moment[1] for moment in moments])
        noise_variances = casadi.vertcat(*[moment[2] for moment in moments])
        #: mean and latent variance (m,) of the targets at a regressor (p,), and the noise variance
        self.predict = casadi.Function(
            "predict",
            [x, parameters],
            [means, variances, noise_variances],
            ["x", "parameters"],
            ["mean", "variance", "noise_variance"],
        )
        if feeds_back:
            self.build_steps()

    def parts(self, parameters: Any) -> list[tuple[Structure, dict[str, Any]]]:
        """Return the structure of every output with its blocks of the parameters."""
        parts = []
        first = 0
        for structure in self.structures:
            blocks = {}
            for name, shape in structure.shapes().items():
                blocks[name] = casadi.MX(shape, parameters[first : first + shape.nnz()])
                first += shape.nnz()
            parts.append((structure, blocks))
        return parts

    def build_steps(self) -> None:
        """Build the functions of one sample.

        The state are the samples before this one: of each output, then of each input, its last
        values, the newest first.
        """
        #: signal and lag of every element of the state
        self.state_features = tuple(
            (name, lag)
            for name in [*self.outputs, *self.inputs]
            for lag in range(1, self.longest_lag(name) + 1)
        )
        self.n_states = len(self.state_features)
        self.n_inputs = len(self.inputs)
        self.n_output_states = sum(name in self.outputs for name, _ in self.state_features)
        state, u, parameters = self.symbols(1)
        x = self.regressor_of(state, u)
        means = casadi.vertcat(*[mean_of(*part, x) for part in self.parts(parameters)])
        free = means + self.before(state) if self.is_change else means
        y = self.within_limits(free)
        names_in = ["state", "u", "parameters"]
        next_state = self.next_state(state, u, y)
        #: state after this sample, and its outputs (m,), the mean
        self.transition = casadi.Function(
            "transition", [state, u, parameters], [next_state, y], names_in, ["next", "mean"]
        )
        _, variance, noise_variance = self.predict(x, parameters)
        #: the same with the latent variance and the noise variance (m,) of one step
        self.step = casadi.Function(
            "step",
            [state, u, parameters],
            [next_state, y, variance, noise_variance],
            names_in,
            ["next", "mean", "variance", "noise_variance"],
        )
        # of the errors P of the last outputs: cov(next) = A P A' + diag(variance of this step)
        n_y = self.n_output_states
        errors = casadi.MX.sym("errors", n_y, n_y)
        by_state = casadi.jacobian(self.next_state(state, u, free), state)[:n_y, :n_y]
        newest = [self.state_features.index((name, 1)) for name in self.outputs if n_y]
        added = casadi.MX(n_y, n_y)
        of_outputs = casadi.jacobian(free, state)[:, :n_y]
        spread = casadi.diag(of_outputs @ errors @ of_outputs.T) if n_y else 0.0
        for i, position in enumerate(newest):
            added[position, position] = variance[i]
        self.spread = casadi.Function(
            "spread",
            [state, u, parameters, errors],
            [next_state, y, variance + spread, by_state @ errors @ by_state.T + added],
        )

    def longest_lag(self, name: str) -> int:
        """Return the number of past samples of a signal that a step needs."""
        lags = [lag for signal, lag in self.features if signal == name]
        least = 1 if self.is_change and name in self.outputs else 0
        return max([least, *lags])

    def regressor_of(self, state: Any, u: Any) -> Any:
        """Return the regressor (p,) of the sample after a state, with the inputs u."""
        values = []
        for name, lag in self.features:
            if lag == 0:
                values.append(u[self.inputs.index(name)])
            else:
                values.append(state[self.state_features.index((name, lag))])
        return casadi.vertcat(*values)

    def before(self, state: Any) -> Any:
        """Return the outputs (m,) of the last sample of a state."""
        return casadi.vertcat(*[state[self.state_features.index((n, 1))] for n in self.outputs])

    def within_limits(self, y: Any) -> Any:
        """Return the outputs (m,) within their limits, as a free run keeps them."""
        values = []
        for i, structure in enumerate(self.structures):
            value = y[i]
            if structure.lowest > -np.inf:
                value = casadi.fmax(value, structure.lowest)
            if structure.highest < np.inf:
                value = casadi.fmin(value, structure.highest)
            values.append(value)
        return casadi.vertcat(*values)

    def next_state(self, state: Any, u: Any, y: Any) -> Any:
        """Return the state one sample later, with inputs u and outputs y of this sample."""
        values = []
        for position, (name, lag) in enumerate(self.state_features):
            if lag > 1:
                values.append(state[position - 1])
            elif name in self.outputs:
                values.append(y[self.outputs.index(name)])
            else:
                values.append(u[self.inputs.index(name)])
        return casadi.vertcat(*values) if values else casadi.MX(0, 1)

    def state(self, u: Any, y: Any) -> np.ndarray:
        """Return the state after samples of inputs u (n, n_u) and outputs y (n, m).

        A lag that reaches before the first sample takes the first sample.
        """
        inputs = columns(u, self.inputs, "u")
        outputs = columns(y, self.outputs, "y")
        if len(inputs) != len(outputs) or not len(inputs):
            raise ValueError(
                f"expected u and y of one length, at least 1, got {len(inputs)} and {len(outputs)}"
            )
        signals = {name: outputs[:, i] for i, name in enumerate(self.outputs)}
        signals.update({name: inputs[:, i] for i, name in enumerate(self.inputs)})
        last = len(outputs)
        return np.array([signals[name][max(last - lag, 0)] for name, lag in self.state_features])


def moments_of(structure: Structure, blocks: dict[str, Any], x: Any) -> tuple[Any, Any, Any]:
    """Return mean and latent variance of a target at a regressor x (p,), and the noise variance.

    The latent variance is ``k(z, z) - |F k|^2``, with the covariances k of z and the points. If
    every sample is learned, ``|M (C'phi, F k)|^2`` is added.
    """
    z, phi, k = locate(structure, blocks, x)
    whitened = blocks["factor"] @ k
    prior = covariance(structure.kernel, blocks["kernel"], z, z)
    variance = casadi.fmax(prior - casadi.sumsqr(whitened), 0.0)
    if structure.n_linear:
        whitened = casadi.vertcat(blocks["linear_root"] @ phi, whitened)
    if structure.learns_every_sample:
        variance = variance + casadi.sumsqr(blocks["root"] @ whitened)
    return mean_at(blocks, x, phi, k), variance, blocks["noise_variance"]


def mean_of(structure: Structure, blocks: dict[str, Any], x: Any) -> Any:
    """Return the mean of a target at a regressor x (p,)."""
    _, phi, k = locate(structure, blocks, x)
    return mean_at(blocks, x, phi, k)


def locate(structure: Structure, blocks: dict[str, Any], x: Any) -> tuple[Any, Any, Any]:
    """Return the coordinates z (d,) of a regressor, its lags phi (l,), and its covariances (N,)."""
    coordinates = blocks["matrix"] @ (x - blocks["offset"])
    z = coordinates[: structure.n_coordinates]
    k = covariance(structure.kernel, blocks["kernel"], blocks["points"], z)
    return z, coordinates[structure.n_coordinates :], k


def mean_at(blocks: dict[str, Any], x: Any, phi: Any, k: Any) -> Any:
    """Return the mean ``m(x) + phi'theta + k'a`` of a target."""
    mean = blocks["intercept"] + blocks["slopes"] @ x + casadi.dot(blocks["weights"], k)
    if "coefficients" in blocks:
        mean = mean + blocks["coefficients"] @ phi
    return mean


def covariance(kernel: Any, parameters: Any, points: Any, z: Any) -> Any:
    """Return the covariances (N,) of points (d, N) and z (d,)."""
    numbers = iter(casadi.vertsplit(parameters))
    return evaluate(kernel, numbers, points, casadi.repmat(z, 1, points.shape[1]))


def evaluate(kernel: Any, numbers: Iterator[Any], points: Any, z: Any) -> Any:
    """Return the covariances (N,) of the columns of points and z (d, N).

    The formulas take their parameters from the numbers, one after the other.
    """
    if isinstance(kernel, tuple):
        combine, parts = kernel
        return combine([evaluate(part, numbers, points, z) for part in parts])
    parameters = [next(numbers) for _ in range(1 + points.shape[0])]
    return kernel(parameters[0], casadi.vertcat(*parameters[1:]), points, z)


def count_parameters(kernel: Any, d: int) -> int:
    """Return the number of parameters of a kernel of d coordinates."""
    if isinstance(kernel, tuple):
        return sum(count_parameters(part, d) for part in kernel[1])
    return 1 + d


def squared_exponential(variance: Any, length_scales: Any, points: Any, z: Any) -> Any:
    """Return ``variance exp(-r^2 / 2)``."""
    return variance * casadi.exp(-0.5 * squared_distances(points, z, length_scales))


def matern_32(variance: Any, length_scales: Any, points: Any, z: Any) -> Any:
    """Return ``variance (1 + a) exp(-a)``, ``a = sqrt(3) r``."""
    square = 3.0 * squared_distances(points, z, length_scales)
    a = casadi.sqrt(casadi.fmax(square, SERIES_BELOW))
    return variance * by_series(square, (1.0 + a) * casadi.exp(-a), matern_series([1.0, 1.0]))


def matern_52(variance: Any, length_scales: Any, points: Any, z: Any) -> Any:
    """Return ``variance (1 + a + a^2 / 3) exp(-a)``, ``a = sqrt(5) r``."""
    square = 5.0 * squared_distances(points, z, length_scales)
    a = casadi.sqrt(casadi.fmax(square, SERIES_BELOW))
    far = (1.0 + a + a * a / 3.0) * casadi.exp(-a)
    return variance * by_series(square, far, matern_series([1.0, 1.0, 1.0 / 3.0]))


def matern_series(polynomial: Sequence[float]) -> list[float]:
    """Return the coefficients of the power series of ``polynomial(a) exp(-a)``."""
    exponential = [1.0]
    for i in range(1, N_SERIES_TERMS):
        exponential.append(-exponential[-1] / i)
    series = np.convolve(polynomial, exponential)[:N_SERIES_TERMS]
    return [0.0 if abs(value) < SERIES_ROUNDING else float(value) for value in series]


def by_series(square: Any, far: Any, series: Sequence[float]) -> Any:
    """Return a power series of a near a = 0, and `far` elsewhere; the square is a^2.

    The even powers of a are powers of its square, whose derivatives exist at a = 0. The odd ones
    begin with a^3, whose second derivative is zero there.
    """
    near = casadi.fmin(square, SERIES_BELOW)
    even = 0.0
    for coefficient in series[-2::-2]:
        even = even * near + coefficient
    odd = 0.0
    for coefficient in series[-1:2:-2]:
        odd = odd * near + coefficient
    cube = casadi.fmax(near, LEAST_SQUARE) ** 1.5
    return casadi.if_else(square < SERIES_BELOW, even + odd * cube, far)


def linear(offset_variance: Any, weight_variances: Any, points: Any, z: Any) -> Any:
    """Return ``offset variance + sum_d weight variance_d points_d z_d``."""
    products = points * z * casadi.repmat(weight_variances, 1, points.shape[1])
    return offset_variance + casadi.sum1(products).T


def total(covariances: Sequence[Any]) -> Any:
    """Return the sum of the covariances."""
    result = covariances[0]
    for values in covariances[1:]:
        result = result + values
    return result


def product(covariances: Sequence[Any]) -> Any:
    """Return the product of the covariances."""
    result = covariances[0]
    for values in covariances[1:]:
        result = result * values
    return result


def squared_distances(points: Any, z: Any, length_scales: Any) -> Any:
    """Return ``r^2 = sum_d ((points_d - z_d) / length scale_d)^2`` (N,)."""
    scaled = (points - z) / casadi.repmat(length_scales, 1, points.shape[1])
    return casadi.sum1(scaled * scaled).T


def columns(values: Any, names: Sequence[str], kind: str) -> np.ndarray:
    """Return the values as an array (n, number of names) of finite numbers.

    The values may have shape (n,) if there is a single name.
    """
    array = np.asarray(values, dtype=float)
    if array.ndim == 1 and len(names) == 1:
        array = array[:, None]
    n_bad = int((~np.isfinite(array)).sum())
    if array.ndim != 2 or array.shape[1] != len(names) or n_bad:
        expected = f"numbers (n, {len(names)}) of {list(names)}"
        if not names:
            expected = "none, np.zeros((n, 0)) for n samples"
        raise ValueError(
            f"{kind}: expected {expected}, got shape {array.shape} with {n_bad} values that are "
            "not finite"
        )
    return array


def numbers(text: str, *shape: int) -> np.ndarray:
    """Return the numbers in a text as an array of this shape."""
    return np.array([float(word) for word in text.split()]).reshape(shape)
