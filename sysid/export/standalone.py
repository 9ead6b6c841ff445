"""Formulas of an exported model, with NumPy alone.

Everything below this docstring is copied into the exported files. It must also run with Python 3.9
and NumPy 1.20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """Gaussian process of one output.

    It has N stored points, from the oldest to the youngest, in q coordinates of p features.
    """

    #: formula and its parameters; for a sum or product: formula and parts
    kernel: tuple[Callable[..., Any], Any]
    intercept: float  # of the mean function, unit of the target
    slopes: np.ndarray  # (p,) of the mean function
    offset: np.ndarray  # (p,) subtracted from the features
    matrix: np.ndarray  # (q, p) from features to coordinates
    points: np.ndarray  # (N, q)
    weights: np.ndarray  # (N,) (K + noise_variance I)^-1 y
    whitened: np.ndarray  # (N,) F y
    factor: np.ndarray  # (N, N) lower triangular F with F'F = (K + noise_variance I)^-1
    lowest: float  # lower limit of the output in free run, unit of the output
    highest: float  # upper limit of the output in free run, unit of the output


class ExportedModel(NamedTuple):
    """Models of one or several outputs over the same regressors."""

    parts: Sequence[Part]  # one per target
    outputs: Sequence[str]
    inputs: Sequence[str]
    features: Sequence[tuple[str, int]]  # signal and lag of every column of a regressor
    is_change: bool  # whether the target is y[k] - y[k-1]
    window: int  # number of first outputs that a free run needs

    def predict(self, regressors: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and latent variance of the targets at regressors (n, p).

        Both have shape (n,), or (n, number of targets) if there are several targets.
        """
        x = real_numbers(regressors)
        p = len(self.features)
        if x.ndim != 2 or x.shape[1] != p or not np.isfinite(x).all():
            raise ValueError(f"regressors: expected finite numbers (n, {p}), got shape {x.shape}")
        means = []
        variances = []
        for part in self.parts:
            mean, variance = moments(part, x)
            means.append(mean)
            variances.append(variance)
        return shaped(means), shaped(variances)

    def regressors(self, u: Any, y: Any) -> np.ndarray:
        """Return regressors (n - L, p) for samples L, ..., n - 1 of inputs u and outputs y.

        L is the largest lag.
        """
        inputs = columns(u, self.inputs, "u")
        outputs = columns(y, self.outputs, "y")
        if len(inputs) != len(outputs):
            raise ValueError(
                f"expected u and y of one length, got {len(inputs)} and {len(outputs)}"
            )
        largest_lag = max([lag for _, lag in self.features])
        samples = np.arange(largest_lag, len(outputs))
        return lagged(self.features, self.signals(inputs, outputs), samples)

    def simulate(self, u: Any, y_init: Any) -> np.ndarray:
        """Return the outputs of a free run: a simulation from the first outputs y_init.

        They have shape (n,) or (n, number of outputs), for inputs u of n samples. The first outputs
        are returned as they are. A lag that reaches before them takes the first of them.
        """
        inputs = columns(u, self.inputs, "u")
        first = columns(y_init, self.outputs, "y_init")
        n = len(inputs)
        start = len(first)
        if not self.window <= start < n:
            raise ValueError(
                f"y_init: expected {self.window} to {n - 1} first outputs, got {start}"
            )
        to_simulate = np.zeros((n - start, len(self.outputs)))
        signals = self.signals(inputs, np.concatenate([first, to_simulate]))
        for k in range(start, n):
            x = lagged(self.features, signals, k)
            for i, name in enumerate(self.outputs):
                part = self.parts[i]
                before = signals[name][k - 1] if self.is_change else 0.0
                y = mean_only(part, x) + before
                signals[name][k] = min(max(y, part.lowest), part.highest)
        return shaped([signals[name] for name in self.outputs])

    def start(self, u: Any, y: Any) -> Loop:
        """Return a loop for your own program, which has seen the first inputs u and outputs y.

        It needs at least as many first samples as a free run.
        """
        return Loop(self, u, y)

    def signals(self, inputs: np.ndarray, outputs: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of inputs and outputs by name."""
        signals = {name: outputs[:, i] for i, name in enumerate(self.outputs)}
        signals.update({name: inputs[:, i] for i, name in enumerate(self.inputs)})
        return signals


class Loop:
    """Model beside a running plant: every step takes one sample and returns its prediction.

    The loop stores the lagged samples.
    """

    def __init__(self, model: ExportedModel, u: Any, y: Any) -> None:
        """Start after these first samples of inputs u and outputs y."""
        inputs = columns(u, model.inputs, "u")
        outputs = columns(y, model.outputs, "y")
        if not model.window <= len(outputs) == len(inputs):
            raise ValueError(
                f"expected u and y of the first {model.window} or more samples, "
                f"got {len(inputs)} and {len(outputs)}"
            )
        self.model = model
        self.largest_lag = max([lag for _, lag in model.features])
        #: the last samples of every signal; the present sample is at the end
        self.last_samples: dict[str, np.ndarray] = {}
        for k in range(len(inputs)):
            self.append(inputs[k], outputs[k])

    def append(self, u: np.ndarray, y: np.ndarray) -> None:
        """Store one more sample of inputs and outputs.

        The first sample also stands for all samples before it.
        """
        for name, value in self.model.signals(u[None], y[None]).items():
            previous = self.last_samples.get(name, np.repeat(value, self.largest_lag + 1))
            self.last_samples[name] = np.append(previous[1:], value)

    def step(self, u: Any, y: Any = None) -> tuple[Any, Any]:
        """Return mean and latent variance of the outputs of this sample.

        The prediction uses the inputs u of this sample and everything before it. Then y is stored
        as the measured output of this sample. Without y, the mean is stored instead, within its
        limits, as in a free run; the variance is still that of one step. The results are numbers
        for a single output, else arrays (number of outputs,).
        """
        model = self.model
        inputs = columns(np.reshape(u, (1, -1)), model.inputs, "u")[0]
        measured = None
        if y is not None:
            measured = columns(np.reshape(y, (1, -1)), model.outputs, "y")[0]
        before = np.zeros(len(model.outputs))
        if self.last_samples:
            before = np.array([self.last_samples[name][-1] for name in model.outputs])
        self.append(inputs, before)  # no feature contains the output of this sample
        x = lagged(model.features, self.last_samples, self.largest_lag)
        mean = np.empty(len(model.parts))
        variance = np.empty(len(model.parts))
        for i, part in enumerate(model.parts):
            means, variances = moments(part, x[None])
            mean[i] = means[0] if measured is not None else mean_only(part, x)
            variance[i] = variances[0]
        if model.is_change:
            mean = mean + before
        if measured is None:
            lowest = np.array([part.lowest for part in model.parts])
            highest = np.array([part.highest for part in model.parts])
            mean = np.clip(mean, lowest, highest)
        output = mean if measured is None else measured
        for i, name in enumerate(model.outputs):
            self.last_samples[name][-1] = output[i]
        if len(mean) == 1:
            return float(mean[0]), float(variance[0])
        return mean, variance


def moments(part: Part, regressors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and latent variance (n,) of the target at regressors (n, p)."""
    z = (regressors - part.offset) @ part.matrix.T
    k = covariance(part.kernel, part.points.T[:, None, :], z.T[:, :, None])  # (n, N)
    white = k @ part.factor.T
    variance = covariance(part.kernel, z.T, z.T) - (white * white).sum(axis=1)
    prior = part.intercept + (regressors * part.slopes).sum(axis=1)
    return white @ part.whitened + prior, np.maximum(variance, 0.0)


def mean_only(part: Part, regressor: np.ndarray) -> float:
    """Return the mean of the target at one regressor (p,)."""
    z = part.matrix @ (regressor - part.offset)
    k = covariance(part.kernel, part.points.T, z[:, None])
    return float(part.intercept + (regressor * part.slopes).sum() + part.weights @ k)


def covariance(kernel: tuple[Callable[..., Any], Any], points: np.ndarray, x: np.ndarray) -> Any:
    """Return the covariances of points and x, each given by coordinate (q, ...)."""
    formula, parameters = kernel
    return formula(parameters, points, x)


def squared_exponential(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """Return ``variance exp(-r^2 / 2)``; the parameters are variance and length scales."""
    return parameters[0] * np.exp(-0.5 * squared_distances(points, x, parameters[1:]))


def matern_32(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """Return ``variance (1 + a) exp(-a)``, ``a = sqrt(3) r``.

    The parameters are variance and length scales.
    """
    a = np.sqrt(3.0 * squared_distances(points, x, parameters[1:]))
    return parameters[0] * (1.0 + a) * np.exp(-a)


def matern_52(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """Return ``variance (1 + a + a^2 / 3) exp(-a)``, ``a = sqrt(5) r``.

    The parameters are variance and length scales.
    """
    a = np.sqrt(5.0 * squared_distances(points, x, parameters[1:]))
    return parameters[0] * (1.0 + a + a * a / 3.0) * np.exp(-a)


def linear(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """Return ``offset variance + sum_d weight variance_d points_d x_d``.

    The parameters are the offset variance and the weight variances.
    """
    return parameters[0] + sum(parameters[1 + d] * points[d] * x[d] for d in range(len(x)))


def with_linear_part(parameters: Any, points: np.ndarray, x: np.ndarray) -> Any:
    """Return a covariance of the first coordinates plus ``phi'P phi'`` of the others, phi.

    The parameters are the first covariance and the lower triangular C (p, p) with ``C C' = P``.
    """
    first, root = parameters
    d = len(x) - len(root)
    whitened_points = np.tensordot(root.T, points[d:], 1)
    whitened = np.tensordot(root.T, x[d:], 1)
    linear_part = np.einsum("p...,p...->...", whitened_points, whitened)
    return covariance(first, points[:d], x[:d]) + linear_part


def total(parts: Sequence[Any], points: np.ndarray, x: np.ndarray) -> Any:
    """Return the sum of the covariances of the parts."""
    return sum(covariance(part, points, x) for part in parts)


def product(parts: Sequence[Any], points: np.ndarray, x: np.ndarray) -> Any:
    """Return the product of the covariances of the parts."""
    return math.prod(covariance(part, points, x) for part in parts)


def squared_distances(points: np.ndarray, x: np.ndarray, length_scales: np.ndarray) -> Any:
    """Return ``r^2 = sum_d ((points_d - x_d) / length scale_d)^2``."""
    return sum(((points[d] - x[d]) / length_scales[d]) ** 2 for d in range(len(x)))


def lagged(
    features: Sequence[tuple[str, int]], signals: Mapping[str, np.ndarray], k: Any
) -> np.ndarray:
    """Return the features of samples k: every signal (n,) at sample k - lag.

    A lag that reaches before the first sample takes the first sample.
    """
    return np.stack([signals[name][np.maximum(k - lag, 0)] for name, lag in features], axis=-1)


def columns(values: Any, names: Sequence[str], kind: str) -> np.ndarray:
    """Return the values as an array (n, number of names) of finite numbers.

    The values may have shape (n,) if there is a single name.
    """
    array = real_numbers(values)
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


def real_numbers(values: Any) -> np.ndarray:
    """Return the values as an array of floats; what lies below a mask was not measured."""
    if np.ma.is_masked(values):
        raise ValueError("some values are masked: fill them, or leave their samples out")
    if np.iscomplexobj(values):
        raise ValueError("expected real numbers, got complex ones")
    return np.asarray(values, dtype=float)


def shaped(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return a single array (n,) as it is, several as the columns of one array."""
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)


def numbers(text: str, *shape: int) -> np.ndarray:
    """Return the numbers in a text as an array of this shape."""
    return np.array([float(word) for word in text.split()]).reshape(shape)


def lower(text: str, n: int) -> np.ndarray:
    """Return the lower triangular matrix (n, n) whose numbers are in a text, row by row."""
    matrix = np.zeros((n, n))
    matrix[np.tril_indices(n)] = numbers(text, n * (n + 1) // 2)
    return matrix
