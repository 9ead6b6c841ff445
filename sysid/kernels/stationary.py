"""What kernels of the scaled distance of two points share."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from sysid.arrays import matrix
from sysid.kernels.form import Expected, Form, Space
from sysid.kernels.kernel import Kernel, checked_positive


@dataclass(frozen=True)
class Stationary(Kernel):
    """Kernel of the scaled distance r with automatic relevance determination (ARD).

    ``k(x, x') = variance f(r)``, ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2``, ``f(0) = 1``. With the
    slope ``s = -variance f'(r) / r`` (`slope`)::

        dk / d log length_scale_d = s ((x_d - x'_d) / length_scale_d)^2
        dk / d x_d = -s (x_d - x'_d) / length_scale_d^2

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature.
    """

    variance: float  # target unit^2
    length_scales: Sequence[float] | np.ndarray  # feature units

    def __post_init__(self) -> None:
        (variance,) = checked_positive(self, "variance", self.variance)
        object.__setattr__(self, "variance", variance)
        object.__setattr__(self, "length_scales", checked_positive(self, "length_scales", self.length_scales))

    @abstractmethod
    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``-variance f'(r) / r`` (m, n) between the rows of first (m, p) and second (n, p) of this covariance."""

    @property
    def n_features(self) -> int:
        """Number of features of a point."""
        return len(self.length_scales)

    def parameters(self) -> np.ndarray:
        """``(variance, length_scale_1, ..., length_scale_p)``."""
        return np.array([self.variance, *self.length_scales])

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        """Those of `parameters`."""
        return ("signal variance", *(f"length scale {d + 1}" for d in range(self.n_features)))

    def log_hyperparameters(self) -> np.ndarray:
        """Logarithms of `parameters`."""
        return np.log(self.parameters())

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Kernel with these logarithms of (variance, length scales)."""
        variance, *scales = np.exp(values)
        return type(self)(variance, scales)

    def stretched(self, factors: np.ndarray) -> Self:
        """See `Kernel.stretched`."""
        return type(self)(self.variance, np.asarray(self.length_scales) * factors)

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """The variance, at every point."""
        return np.full(len(points), self.variance)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """The first of the logarithms, wherever the features are."""
        gradient = np.zeros(len(values))
        gradient[0] = 1.0
        return float(values[0]), gradient

    def contract_gradient(self, weights: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """See `Kernel.contract_gradient`.

        With ``M = weights o s`` and ``z = x / length_scale``: ``sum_ij M_ij (z_id - z_jd)^2
        = 2 (sum_i z_id^2 (M 1)_i - z_d' M z_d)``.
        """
        m = weights * self.slope(points, points, covariance)
        z = (points - points.mean(axis=0)) / np.asarray(self.length_scales)
        scales = 2.0 * ((z * z).T @ m.sum(axis=1) - np.einsum("id,id->d", z, m @ z))
        return np.concatenate([[(weights * covariance).sum()], scales])

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`."""
        x, z = matrix(inputs, self.n_features, "inputs"), matrix(points, self.n_features, "points")
        difference = (z[None, :, :] - x[:, None, :]) / np.square(self.length_scales)
        slope = self.slope(x, z, self(x, z))
        return np.asarray(slope[:, :, None] * difference)

    def weighted_gradient(self, inputs: np.ndarray, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """See `Kernel.weighted_gradient`; contracted before anything (m, n, p) is made."""
        x, z = matrix(inputs, self.n_features, "inputs"), matrix(points, self.n_features, "points")
        slope, centre = self.slope(x, z, self(x, z)) * weights, z.mean(axis=0)
        moments = slope @ (z - centre) - slope.sum(axis=1)[:, None] * (x - centre)
        return np.asarray(moments / np.square(self.length_scales))

    def distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Scaled distances r (m, n) between the rows of first (m, p) and second (n, p)."""
        squared = np.zeros((len(first), len(second)))
        for d, scale in enumerate(self.length_scales):
            squared += ((first[:, None, d] - second[None, :, d]) / scale) ** 2
        return np.sqrt(squared)


class StationaryForm(Form):
    """Form of a stationary kernel: its variance, and one length scale for each feature."""

    @abstractmethod
    def kernel(self, variance: float, length_scales: np.ndarray) -> Stationary:
        """Kernel of this variance and these length scales."""

    def space(self, expected: Expected) -> Space:
        """Bounds of all, a prior on the length scales."""
        p = len(expected.lengths)
        return Space(
            start=self.kernel(expected.variance, expected.lengths).log_hyperparameters(),
            along_lengths=np.append(0.0, np.ones(p)),
            bounds=np.log(np.vstack([expected.variance_bounds, expected.length_scale_bounds])),
            held=np.arange(1, p + 1),
            medians=expected.log_length_scales,
            stds=np.full(p, expected.length_scale_std),
        )
