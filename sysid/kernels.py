"""Covariance functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, ClassVar, Self

import numpy as np

from sysid.arrays import matrix
from sysid.dictionary import covariance_matrix
from sysid.formula import COVARIANCE, address


class Kernel(ABC):
    """Covariance function ``k(x, x')`` of a Gaussian process.

    A kernel is one formula, `row`, that fills a row of the covariance matrix; the compiled online GP, the
    training and the batch prediction all use it. For training it also maps itself to a vector of
    log hyper-parameters and contracts its gradient.
    """

    row: ClassVar[Callable[..., None]]

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features of a point."""

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Vector that `row` receives."""

    @abstractmethod
    def log_hyperparameters(self) -> np.ndarray:
        """Logarithms of the trainable hyper-parameters."""

    @abstractmethod
    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Kernel of the same kind with other hyper-parameters."""

    @abstractmethod
    def contract_gradient(self, weights: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``sum_ij weights_ij dK_ij / d log theta`` for every log hyper-parameter.

        Parameters
        ----------
        weights : (n, n) symmetric
        points : (n, p)
        covariance : (n, n) noise-free K of these points
        """

    @property
    def address(self) -> Any:
        """`row` as compiled loops call it."""
        return address(type(self).row, COVARIANCE)

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Covariance matrix (m, n) between the rows of first (m, p) and second (n, p)."""
        rows, others = matrix(first, self.n_features, "first"), matrix(second, self.n_features, "second")
        out = np.empty((len(rows), len(others)))
        columns = np.ascontiguousarray(others.T)
        covariance_matrix(self.address, self.parameters(), columns, rows, out)
        return out


def _squared_exponential_row(points, stride, n, p, x, parameters, out):  # type: ignore[no-untyped-def]
    """``out[j] = variance exp(-0.5 sum_d ((points[d, j] - x[d]) / length_scale[d])^2)``."""
    for j in range(n):
        out[j] = 0.0
    for d in range(p):
        inverse = 1.0 / parameters[1 + d]
        for j in range(n):
            difference = (points[d * stride + j] - x[d]) * inverse
            out[j] += difference * difference
    for j in range(n):
        out[j] = parameters[0] * exp(-0.5 * out[j])


@dataclass(frozen=True)
class SquaredExponential(Kernel):
    """Squared exponential with automatic relevance determination (ARD), section 2 of the paper.

    ``k(x, x') = variance exp(-0.5 sum_d ((x_d - x'_d) / length_scale_d)^2)``

    Parameters
    ----------
    variance : float
        Signal variance sf2 > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature.
    """

    variance: float  # target unit^2
    length_scales: Sequence[float] | np.ndarray  # feature units

    row = staticmethod(_squared_exponential_row)

    def __post_init__(self) -> None:
        scales = tuple(float(value) for value in np.atleast_1d(np.asarray(self.length_scales, dtype=float)))
        object.__setattr__(self, "length_scales", scales)
        object.__setattr__(self, "variance", float(self.variance))
        if not (np.isfinite(self.variance) and self.variance > 0):
            raise ValueError(f"SquaredExponential: variance must be positive and finite, got {self.variance}")
        if not scales or not all(np.isfinite(value) and value > 0 for value in scales):
            raise ValueError(f"SquaredExponential: length_scales must be positive and finite, got {scales}")

    @property
    def n_features(self) -> int:
        """Number of features of a point."""
        return len(self.length_scales)

    def parameters(self) -> np.ndarray:
        """``(variance, length_scale_1, ..., length_scale_p)``."""
        return np.array([self.variance, *self.length_scales])

    def log_hyperparameters(self) -> np.ndarray:
        """Logarithms of `parameters`."""
        return np.log(self.parameters())

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Kernel with these logarithms of (variance, length scales)."""
        variance, *scales = np.exp(values)
        return type(self)(variance, scales)

    def contract_gradient(self, weights: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """See `Kernel.contract_gradient`.

        With ``M = weights o K`` and ``z = x / length_scale``: ``sum_ij M_ij (z_id - z_jd)^2
        = 2 (sum_i z_id^2 (M 1)_i - z_d' M z_d)``.
        """
        m = weights * covariance
        z = (points - points.mean(axis=0)) / np.asarray(self.length_scales)
        scales = 2.0 * ((z * z).T @ m.sum(axis=1) - np.einsum("id,id->d", z, m @ z))
        return np.concatenate([[m.sum()], scales])
