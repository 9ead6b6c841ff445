"""The role of a covariance function."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from sysid.arrays import matrix, vector
from sysid.dictionary import covariance_matrix
from sysid.formula import COVARIANCE, address
from sysid.kernels import row


class Kernel(ABC):
    """Covariance function ``k(x, x')`` of a Gaussian process.

    A kernel is one formula, `row`, that fills a row of the covariance matrix; the compiled online GP, the
    training and the batch prediction all use it. For training it also maps itself to a vector of
    log hyper-parameters and contracts its gradient; the first of them must be the log of a variance.
    """

    row: ClassVar[Callable[..., None]]

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features of a point."""

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Vector that `row` receives."""

    @property
    @abstractmethod
    def hyperparameter_names(self) -> tuple[str, ...]:
        """What each of the `log_hyperparameters` is, for people."""

    @abstractmethod
    def log_hyperparameters(self) -> np.ndarray:
        """Logarithms of the trainable hyper-parameters."""

    @abstractmethod
    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Kernel of the same kind with other hyper-parameters."""

    @abstractmethod
    def stretched(self, factors: np.ndarray) -> Self:
        """The same kernel for features in other units: ``stretched(c)(c x, c x') = k(x, x')``, factors c (p,)."""

    @abstractmethod
    def contract_gradient(self, weights: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``sum_ij weights_ij dK_ij / d log theta`` for every log hyper-parameter.

        Parameters
        ----------
        weights : (n, n) symmetric
        points : (n, p)
        covariance : (n, n) noise-free K of these points
        """

    @abstractmethod
    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """``d k(x_i, z_j) / d x_i`` (m, n, p) of inputs x (m, p) and points z (n, p), target unit^2 / feature unit."""

    def weighted_gradient(self, inputs: np.ndarray, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """``sum_j weights_j d k(x_i, z_j) / d x_i`` (m, p): the gradient of a function that is a sum of kernels."""
        return np.einsum("ijd,j->id", self.input_gradient(inputs, points), weights)

    def told(self, features: Sequence[str]) -> dict[str, Any]:
        """Class and fields as plain values for people, one number for each feature under its name."""
        fields = vars(self)
        return {"class": type(self).__name__} | {name: self._told(fields[name], features) for name in fields}

    def _told(self, value: Any, features: Sequence[str]) -> Any:
        if isinstance(value, Kernel):
            return value.told(features)
        if not isinstance(value, tuple):
            return value
        if len(value) == self.n_features and all(isinstance(item, float) for item in value):
            return dict(zip(features, value, strict=True))
        return [self._told(item, features) for item in value]

    @property
    def address(self) -> Any:
        """`row` as compiled loops call it; those of `sysid.kernels.row` stay in the disk cache."""
        formula = type(self).row
        return address(formula, COVARIANCE, kept=formula.__module__ == row.__name__)

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Covariance matrix (m, n) between the rows of first (m, p) and second (n, p)."""
        rows, others = matrix(first, self.n_features, "first"), matrix(second, self.n_features, "second")
        out = np.empty((len(rows), len(others)))
        columns = np.ascontiguousarray(others.T)
        covariance_matrix(self.address, self.parameters(), columns, rows, out)
        return out

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """Prior variances ``k(x, x)`` (n,) of the rows of points (n, p)."""
        return np.array([self(x[None, :], x[None, :])[0, 0] for x in points])

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Logarithm of the prior variance at features of one, and its gradient, by log hyper-parameters (q,)."""
        kernel, one = self.with_log_hyperparameters(values), np.ones((1, self.n_features))
        variance = kernel(one, one)
        return float(np.log(variance[0, 0])), kernel.contract_gradient(np.ones((1, 1)), one, variance) / variance[0, 0]

    def gradient(self, x: np.ndarray, points: np.ndarray) -> np.ndarray:
        """``d k(x, z_j) / d x`` (n, p) of one input x (p,) and points z (n, p)."""
        one = vector(x, self.n_features, "x")[None, :]
        return self.input_gradient(one, points)[0]


def checked_positive(owner: object, name: str, values: Any) -> tuple[float, ...]:
    """Values as a tuple of positive finite numbers, at least one.

    Raises
    ------
    ValueError
        Naming the class and the field.
    """
    numbers = tuple(float(value) for value in np.atleast_1d(np.asarray(values, dtype=float)))
    if not numbers or not all(np.isfinite(value) and value > 0 for value in numbers):
        shown = values if np.ndim(values) == 0 else numbers
        raise ValueError(f"{type(owner).__name__}: {name} must be positive and finite, got {shown}")
    return numbers
