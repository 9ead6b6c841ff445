"""What an exported model computes, with NumPy alone: everything below this docstring is copied into
the exported files.

It runs with Python 3.9 and NumPy 1.20, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """Gaussian process of one output; N points from the oldest to the youngest, in q coordinates of
    p features.
    """

    kernel: tuple[
        Callable[..., Any], Any
    ]  # formula and its parameters; of a sum or product: and its parts
    intercept: float  # of the mean function, unit of the target
    slopes: np.ndarray  # (p,) of the mean function
    offset: np.ndarray  # (p,) subtracted from the features
    matrix: np.ndarray  # (q, p) from features to coordinates
    points: np.ndarray  # (N, q)
    weights: np.ndarray  # (N,) (K + noise_variance I)^-1 y
    whitened: np.ndarray  # (N,) F y
    factor: np.ndarray  # (N, N) lower triangular F with F'F = (K + noise_variance I)^-1
    lowest: float  # output in free run, its unit
    highest: float  # output in free run, its unit


class ExportedModel(NamedTuple):
    """Models of one or several outputs over the same regressors."""

    parts: Sequence[Part]  # one per target
    outputs: Sequence[str]
    inputs: Sequence[str]
    features: Sequence[tuple[str, int]]  # signal and lag of every column of a regressor
    is_change: bool  # whether the target is y[k] - y[k-1]
    window: int  # first outputs that a free run needs

    def predict(self, regressors: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and latent variance of the targets at regressors (n, p): (n,), or (n, number of
        targets) of several.
        """
        x = np.asarray(regressors, dtype=float)
        p = len(self.features)
        if x.ndim != 2 or x.shape[1] != p or not np.isfinite(x).all():
            raise ValueError(f"regressors: expected finite numbers (n, {p}), got shape {x.shape}")
        found = [moments(part, x) for part in self.parts]
        return shaped([mean for mean, _ in found]), shaped([variance for _, variance in found])

    def regressors(self, u: Any, y: Any) -> np.ndarray:
        """Regressors (n - L, p) of samples L, ..., n - 1 of inputs u and outputs y, L the largest
        lag.
        """
        inputs = columns(u, self.inputs, "u")
        outputs = columns(y, self.outputs, "y")
        if len(inputs) != len(outputs):
            raise ValueError(
                f"expected u and y of one length, got {len(inputs)} and {len(outputs)}"
            )
        first = max([lag for _, lag in self.features])
        return lagged(self.features, self.signals(inputs, outputs), np.arange(first, len(outputs)))

    def simulate(self, u: Any, y_init: Any) -> np.ndarray:
        """Outputs in free run, (n,) or (n, number of outputs), from inputs u and the first outputs
        y_init.

        The first outputs are returned as they are; lags that reach before them hold the first.
        """
        inputs = columns(u, self.inputs, "u")
        first = columns(y_init, self.outputs, "y_init")
        n = len(inputs)
        start = len(first)
        if not self.window <= start < n:
            raise ValueError(
                f"y_init: expected {self.window} to {n - 1} first outputs, got {start}"
            )
        signals = self.signals(
            inputs, np.concatenate([first, np.zeros((n - start, len(self.outputs)))])
        )
        for k in range(start, n):
            x = lagged(self.features, signals, k)
            for i, name in enumerate(self.outputs):
                y = mean_only(self.parts[i], x) + (signals[name][k - 1] if self.is_change else 0.0)
                signals[name][k] = min(max(y, self.parts[i].lowest), self.parts[i].highest)
        return shaped([signals[name] for name in self.outputs])

    def start(self, u: Any, y: Any) -> Loop:
        """Loop of your own behind the first inputs u and outputs y, as many as a free run needs, or
        more.
        """
        return Loop(self, u, y)

    def signals(self, inputs: np.ndarray, outputs: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of inputs and outputs by name."""
        signals = {name: outputs[:, i] for i, name in enumerate(self.outputs)}
        signals.update({name: inputs[:, i] for i, name in enumerate(self.inputs)})
        return signals


class Loop:
    """The model beside a running plant: one sample in, its prediction out; the lags are kept
    here.
    """

    def __init__(self, model: ExportedModel, u: Any, y: Any) -> None:
        """Begin behind these first samples."""
        inputs = columns(u, model.inputs, "u")
        outputs = columns(y, model.outputs, "y")
        if not model.window <= len(outputs) == len(inputs):
            raise ValueError(
                f"expected u and y of the first {model.window} or more samples, got {len(inputs)} and {len(outputs)}"
            )
        self.model, self.last = model, max([lag for _, lag in model.features])
        self.kept: dict[
            str, np.ndarray
        ] = {}  # the last samples of every signal, the present one at the end
        for k in range(len(inputs)):
            self.append(inputs[k], outputs[k])

    def append(self, u: np.ndarray, y: np.ndarray) -> None:
        """Take one more sample of inputs and outputs; the first one stands for all before it."""
        for name, value in self.model.signals(u[None], y[None]).items():
            kept = self.kept.get(name, np.repeat(value, self.last + 1))
            self.kept[name] = np.append(kept[1:], value)

    def step(self, u: Any, y: Any = None) -> tuple[Any, Any]:
        """Mean and latent variance of the outputs of this sample, from its inputs and all before
        it.

        Then y is taken for what was measured at this sample; without it the mean is, within its
        bounds, as in a free run: the variance remains that of one step. Numbers for a single
        output, else arrays (number of outputs,).
        """
        model = self.model
        row = columns(np.reshape(u, (1, -1)), model.inputs, "u")[0]
        given = None if y is None else columns(np.reshape(y, (1, -1)), model.outputs, "y")[0]
        before = np.array([self.kept[name][-1] if self.kept else 0.0 for name in model.outputs])
        self.append(row, before)  # the output of this sample is among no features
        x = lagged(model.features, self.kept, self.last)
        found = [moments(part, x[None]) for part in model.parts]
        mean = np.array([one[0] for one, _ in found])
        if given is None:
            mean = np.array([mean_only(part, x) for part in model.parts])
        mean = mean + before if model.is_change else mean
        if given is None:
            bounds = np.array([(part.lowest, part.highest) for part in model.parts])
            given = mean = np.clip(mean, bounds[:, 0], bounds[:, 1])
        for i, name in enumerate(model.outputs):
            self.kept[name][-1] = given[i]
        variance = np.array([one[0] for _, one in found])
        return (float(mean[0]), float(variance[0])) if len(mean) == 1 else (mean, variance)


def moments(part: Part, regressors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and latent variance (n,) of the target at regressors (n, p)."""
    z = (regressors - part.offset) @ part.matrix.T
    k = covariance(part.kernel, part.points.T[:, None, :], z.T[:, :, None])  # (n, N)
    white = k @ part.factor.T
    variance = covariance(part.kernel, z.T, z.T) - (white * white).sum(axis=1)
    prior = part.intercept + (regressors * part.slopes).sum(axis=1)
    return white @ part.whitened + prior, np.maximum(variance, 0.0)


def mean_only(part: Part, regressor: np.ndarray) -> float:
    """Mean of the target at one regressor (p,)."""
    z = part.matrix @ (regressor - part.offset)
    k = covariance(part.kernel, part.points.T, z[:, None])
    return float(part.intercept + (regressor * part.slopes).sum() + part.weights @ k)


def covariance(kernel: tuple[Callable[..., Any], Any], points: np.ndarray, x: np.ndarray) -> Any:
    """Covariances of points and x, each by coordinate (q, ...)."""
    formula, parameters = kernel
    return formula(parameters, points, x)


def squared_exponential(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """``variance exp(-r^2 / 2)``; parameters: variance, length scales."""
    return parameters[0] * np.exp(-0.5 * squared_distances(points, x, parameters[1:]))


def matern_32(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """``variance (1 + a) exp(-a)``, ``a = sqrt(3) r``; parameters: variance, length scales."""
    a = np.sqrt(3.0 * squared_distances(points, x, parameters[1:]))
    return parameters[0] * (1.0 + a) * np.exp(-a)


def matern_52(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """``variance (1 + a + a^2 / 3) exp(-a)``, ``a = sqrt(5) r``; parameters: variance, length
    scales.
    """
    a = np.sqrt(5.0 * squared_distances(points, x, parameters[1:]))
    return parameters[0] * (1.0 + a + a * a / 3.0) * np.exp(-a)


def linear(parameters: np.ndarray, points: np.ndarray, x: np.ndarray) -> Any:
    """``offset variance + sum_d weight variance_d points_d x_d``; parameters: those variances."""
    return parameters[0] + sum(parameters[1 + d] * points[d] * x[d] for d in range(len(x)))


def total(parts: Sequence[Any], points: np.ndarray, x: np.ndarray) -> Any:
    """Sum of the covariances of the parts."""
    return sum(covariance(part, points, x) for part in parts)


def product(parts: Sequence[Any], points: np.ndarray, x: np.ndarray) -> Any:
    """Product of the covariances of the parts."""
    return math.prod(covariance(part, points, x) for part in parts)


def squared_distances(points: np.ndarray, x: np.ndarray, length_scales: np.ndarray) -> Any:
    """``r^2 = sum_d ((points_d - x_d) / length scale_d)^2``."""
    return sum(((points[d] - x[d]) / length_scales[d]) ** 2 for d in range(len(x)))


def lagged(
    features: Sequence[tuple[str, int]], signals: Mapping[str, np.ndarray], k: Any
) -> np.ndarray:
    """Features of samples k: every signal (n,) at k - lag; lags before the first sample hold it."""
    return np.stack([signals[name][np.maximum(k - lag, 0)] for name, lag in features], axis=-1)


def columns(values: Any, names: Sequence[str], kind: str) -> np.ndarray:
    """Finite numbers (n, number of names) of values (n, number of names), or (n,) of a single
    name.
    """
    array = np.asarray(values, dtype=float)
    array = array[:, None] if array.ndim == 1 and len(names) == 1 else array
    if array.ndim != 2 or array.shape[1] != len(names) or not np.isfinite(array).all():
        raise ValueError(
            f"{kind}: expected finite numbers (n, {len(names)}) of {list(names)}, got {array.shape}"
        )
    return array


def shaped(parts: Sequence[np.ndarray]) -> np.ndarray:
    """(n,) of a single array (n,), (n, number of arrays) of several."""
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)


def numbers(text: str, *shape: int) -> np.ndarray:
    """Array of the numbers in a text."""
    return np.array([float(word) for word in text.split()]).reshape(shape)


def lower(text: str, n: int) -> np.ndarray:
    """Lower triangular matrix (n, n) of the numbers in a text, row by row."""
    found = np.zeros((n, n))
    found[np.tril_indices(n)] = numbers(text, n * (n + 1) // 2)
    return found
