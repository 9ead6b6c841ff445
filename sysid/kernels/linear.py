"""The linear kernel: a linear trend whose coefficients are integrated out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from sysid.arrays import matrix
from sysid.kernels import row
from sysid.kernels.form import Expected, Form, Space
from sysid.kernels.kernel import Kernel, checked_positive


@dataclass(frozen=True)
class Linear(Kernel):
    """Linear trend ``f(x) = b + w'x`` with ``b ~ N(0, offset_variance)``, ``w_d ~ N(0, weight_variance_d)``.

    ``k(x, x') = offset_variance + sum_d weight_variance_d x_d x'_d`` (Rasmussen and Williams, section 4.2.2).
    The coefficients are integrated out: what the data leave open of them is in the predicted variance, which
    grows with the square of the distance from the origin.

    Parameters
    ----------
    offset_variance : float
        > 0, unit of the target squared.
    weight_variances : sequence of float
        One per feature, > 0, unit of the target squared per unit of the feature squared.
    """

    offset_variance: float  # target unit^2
    weight_variances: Sequence[float] | np.ndarray  # target unit^2 / feature unit^2

    row = staticmethod(row.linear)

    def __post_init__(self) -> None:
        (variance,) = checked_positive(self, "offset_variance", self.offset_variance)
        object.__setattr__(self, "offset_variance", variance)
        object.__setattr__(self, "weight_variances", checked_positive(self, "weight_variances", self.weight_variances))

    @property
    def n_features(self) -> int:
        """Number of features of a point."""
        return len(self.weight_variances)

    def parameters(self) -> np.ndarray:
        """``(offset_variance, weight_variance_1, ..., weight_variance_p)``."""
        return np.array([self.offset_variance, *self.weight_variances])

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        """Those of `parameters`."""
        return ("offset variance", *(f"weight variance {d + 1}" for d in range(self.n_features)))

    def log_hyperparameters(self) -> np.ndarray:
        """Logarithms of `parameters`."""
        return np.log(self.parameters())

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Kernel with these logarithms of (offset variance, weight variances)."""
        offset, *weights = np.exp(values)
        return type(self)(offset, weights)

    def stretched(self, factors: np.ndarray) -> Self:
        """See `Kernel.stretched`."""
        return type(self)(self.offset_variance, np.asarray(self.weight_variances) / np.square(factors))

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """``offset_variance + sum_d weight_variance_d x_d^2``."""
        return np.asarray(self.offset_variance + np.square(points) @ np.asarray(self.weight_variances))

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """``log(offset_variance + sum_d weight_variance_d)``."""
        total = float(np.logaddexp.reduce(values))
        return total, np.exp(values - total)

    def contract_gradient(self, weights: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """See `Kernel.contract_gradient`; ``dK / d log weight_variance_d = weight_variance_d x_d x_d'``."""
        along = np.einsum("id,id->d", points, weights @ points) * np.asarray(self.weight_variances)
        return np.append(self.offset_variance * weights.sum(), along)

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`; ``weight_variance_d z_d`` wherever x is."""
        x, z = matrix(inputs, self.n_features, "inputs"), matrix(points, self.n_features, "points")
        return np.tile(np.asarray(self.weight_variances) * z, (len(x), 1, 1))


@dataclass(frozen=True)
class LinearForm(Form):
    """Form of `Linear`: the variance of its offset, and one weight variance for each feature."""

    def kernel(self, variance: float, length_scales: np.ndarray) -> Linear:
        """Trend with this variance of the offset, and of the change over each length."""
        return Linear(variance, variance / np.square(length_scales))

    def space(self, expected: Expected) -> Space:
        """Bounds of all, priors on all, which start from the medians; that of the offset is the expected variance."""
        p, medians = len(expected.lengths), np.append(np.log(expected.variance), expected.log_weights)
        return Space(
            start=medians,
            along_lengths=np.append(0.0, np.full(p, -2.0)),
            bounds=np.log(np.vstack([expected.variance_bounds, expected.weight_bounds])),
            held=np.arange(p + 1),
            medians=medians,
            stds=np.full(p + 1, expected.weight_std),
        )
