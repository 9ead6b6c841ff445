"""A constant mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid.mean.function import Array, MeanFunction


@dataclass(frozen=True)
class ConstantMean(MeanFunction):
    """``m(x) = value``; fitted, it is the mean of the training targets, as the paper centres them.

    Examples
    --------
    >>> ConstantMean().fitted(np.zeros((2, 1)), np.array([1.0, 2.0]))
    ConstantMean(value=1.5)
    """

    value: float = 0.0  # target unit

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        if not np.isfinite(self.value):
            raise ValueError(f"ConstantMean: value must be finite, got {self.value}")

    def __call__(self, regressors: Array) -> Array:
        """The value, (n,)."""
        return np.full(len(regressors), self.value)

    def at(self, regressor: Array) -> float:
        """The value."""
        return self.value

    def gradient(self, regressors: Array) -> Array:
        """Zeros (n, p)."""
        return np.zeros(regressors.shape)

    def fitted(self, regressors: Array, targets: Array) -> ConstantMean:
        """The mean of the targets."""
        return ConstantMean(float(targets.mean()))
