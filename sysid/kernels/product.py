"""The product of kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sysid.kernels import row
from sysid.kernels.form import Expected, Form, Space
from sysid.kernels.parts import OfParts, checked_parts


@dataclass(frozen=True)
class Product(OfParts):
    """``k(x, x') = prod_i k_i(x, x')``: with a linear part, a trend whose coefficients change over the features.

    Parameters
    ----------
    parts : sequence of Kernel
        At least two, of the same features. The unit of the product of their variances is that of the target squared.
    """

    row = staticmethod(row.product)

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """Product of those of the parts."""
        return np.prod([part.diagonal(points) for part in self.parts], axis=0)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum of those of the parts."""
        found = [part.log_variance(share) for part, share in self.shared_out(values)]
        return float(np.sum([value for value, _ in found])), np.concatenate([slope for _, slope in found])

    def contract_gradient(self, weights: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """See `Kernel.contract_gradient`; ``dK / d theta_i = dK_i / d theta_i prod_(l != i) K_l``."""
        found = [part(points, points) for part in self.parts]
        return np.concatenate(
            [
                part.contract_gradient(weights * _without(found, i), points, found[i])
                for i, part in enumerate(self.parts)
            ]
        )

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`; the product rule."""
        found = [part(inputs, points) for part in self.parts]
        terms = [
            _without(found, i)[:, :, None] * part.input_gradient(inputs, points) for i, part in enumerate(self.parts)
        ]
        return np.sum(terms, axis=0)


def _without(factors: list[np.ndarray], i: int) -> np.ndarray:
    """Product of all factors but the i-th; nothing is divided, since factors may be 0."""
    return np.prod(factors[:i] + factors[i + 1 :], axis=0)


@dataclass(frozen=True)
class ProductForm(Form):
    """Form of `Product`: the first part has the unit of the covariance, the others have none.

    Of each other part the first hyper-parameter, which scales it, stays at 1: only the product of the scales matters.

    Parameters
    ----------
    parts : sequence of Form
        At least two.
    """

    parts: Sequence[Form]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", checked_parts(self, self.parts, Form))

    def kernel(self, variance: float, length_scales: np.ndarray) -> Product:
        """Parts of these lengths; the first has the variance, the others have 1."""
        first, *others = self.parts
        return Product([first.kernel(variance, length_scales), *(part.kernel(1.0, length_scales) for part in others)])

    def space(self, expected: Expected) -> Space:
        """Those of the parts."""
        first, *others = self.parts
        return Space.of_parts([first.space(expected), *(part.space(expected.unit()).fixed_first() for part in others)])
