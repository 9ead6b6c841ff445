"""What an exported model computes, with NumPy alone; the text of this module is copied into the exported files.

All functions are free of the toolbox. A kernel's formula is its `row`: its loop over points runs once, and what it
takes for numbers are arrays of all points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """Gaussian process of one output; N points of p features, from the oldest to the youngest."""

    covariance: Callable[[Any, Any], Any]  # of points and others, each by coordinate
    prior_mean: Callable[[Any], Any]  # of regressors (n, p) in their own units
    offset: np.ndarray  # (p,) subtracted from the features
    matrix: np.ndarray  # (q, p) from features to the q coordinates of the points
    points: np.ndarray  # (N, q)
    weights: np.ndarray  # (N,) (K + noise_variance I)^-1 y
    whitened: np.ndarray  # (N,) F y
    factor: np.ndarray  # (N, N) lower triangular F with F'F = (K + noise_variance I)^-1
    lowest: float  # output in free run, its unit
    highest: float  # output in free run, its unit


def filled(row: Callable[..., None], parameters: Sequence[float], points: np.ndarray, x: np.ndarray) -> Any:
    """Covariances of points and x, each by coordinate (q, ...), by the formula `row` of a single pair."""
    out = [0.0]
    row(points, 1, 1, len(points), x, parameters, out)
    return out[0]


def moments(part: Part, regressors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and latent variance (n,) of the target at regressors (n, p)."""
    z = (regressors - part.offset) @ part.matrix.T
    k = part.covariance(part.points.T[:, None, :], z.T[:, :, None])  # (n, N)
    white = k @ part.factor.T
    variance = part.covariance(z.T, z.T) - (white * white).sum(axis=1)
    return white @ part.whitened + part.prior_mean(regressors), np.maximum(variance, 0.0)


def mean_only(part: Part, regressor: np.ndarray) -> float:
    """Mean of the target at one regressor (p,)."""
    z = part.matrix @ (regressor - part.offset)
    k = part.covariance(part.points.T, z[:, None])
    return float(part.prior_mean(regressor[None])[0] + part.weights @ k)


def lagged(features: Sequence[tuple[str, int]], signals: Mapping[str, np.ndarray], k: Any) -> np.ndarray:
    """Features of samples k: every signal (n,) at k - lag; lags before the first sample hold it."""
    return np.stack([signals[name][np.maximum(k - lag, 0)] for name, lag in features], axis=-1)


def columns(values: Any, names: Sequence[str], kind: str) -> np.ndarray:
    """Finite numbers (n, number of names) of values (n, number of names), or (n,) of a single name."""
    array = np.asarray(values, dtype=float)
    array = array[:, None] if array.ndim == 1 and len(names) == 1 else array
    if array.ndim != 2 or array.shape[1] != len(names) or not np.isfinite(array).all():
        raise ValueError(f"{kind}: expected finite numbers (n, {len(names)}) of {list(names)}, got {array.shape}")
    return array


def run_freely(
    parts: Sequence[Part],
    features: Sequence[tuple[str, int]],
    signals: dict[str, np.ndarray],
    outputs: Sequence[str],
    start: int,
    is_change: bool,
) -> None:
    """Fill the outputs among the signals, each (n,), from sample `start` on with predicted means within the limits."""
    for k in range(start, len(signals[outputs[0]])):
        x = lagged(features, signals, k)
        for i, name in enumerate(outputs):
            y = mean_only(parts[i], x) + (signals[name][k - 1] if is_change else 0.0)
            signals[name][k] = min(max(y, parts[i].lowest), parts[i].highest)


def numbers(text: str, *shape: int) -> np.ndarray:
    """Array of the numbers in a text."""
    return np.array([float(word) for word in text.split()]).reshape(shape)


def lower(text: str, n: int) -> np.ndarray:
    """Lower triangular matrix (n, n) of the numbers in a text, row by row."""
    found = np.zeros((n, n))
    found[np.tril_indices(n)] = numbers(text, n * (n + 1) // 2)
    return found
