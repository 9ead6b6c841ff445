"""The sum of kernels: a function that is a sum of independent ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sysid.kernels import row
from sysid.kernels.form import Expected, Form, Space
from sysid.kernels.parts import OfParts, checked_parts


@dataclass(frozen=True)
class Sum(OfParts):
    """``k(x, x') = sum_i k_i(x, x')``: the sum of independent functions, a trend and what deviates from it for example.

    Parameters
    ----------
    parts : sequence of Kernel
        At least two, of the same features.
    """

    row = staticmethod(row.total)

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """Sum of those of the parts."""
        return np.sum([part.diagonal(points) for part in self.parts], axis=0)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Logarithm of the sum of the parts' variances."""
        found = [part.log_variance(share) for part, share in self.shared_out(values)]
        total = float(np.logaddexp.reduce([value for value, _ in found]))
        return total, np.concatenate([np.exp(value - total) * slope for value, slope in found])

    def contract_gradient(self, weights: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """See `Kernel.contract_gradient`; each part has its own hyper-parameters."""
        return np.concatenate([part.contract_gradient(weights, points, part(points, points)) for part in self.parts])

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`."""
        return np.sum([part.input_gradient(inputs, points) for part in self.parts], axis=0)


@dataclass(frozen=True)
class SumForm(Form):
    """Form of `Sum`.

    Parameters
    ----------
    parts : sequence of Form
        At least two.
    """

    parts: Sequence[Form]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", checked_parts(self, self.parts, Form))

    def kernel(self, variance: float, length_scales: np.ndarray) -> Sum:
        """Parts of equal shares of the variance and of these lengths."""
        return Sum([part.kernel(variance / len(self.parts), length_scales) for part in self.parts])

    def space(self, expected: Expected) -> Space:
        """Those of the parts, which start from equal shares of the variance."""
        share = expected.share(len(self.parts))
        return Space.of_parts([part.space(share) for part in self.parts])
