"""A linear mean, estimated once by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from sysid.least_squares import linear_fit
from sysid.mean.function import Array, MeanFunction


@dataclass(frozen=True)
class LinearMean(MeanFunction):
    """``m(x) = intercept + coefficients' x``: on the lags of a NARX, a linear ARX model.

    The Gaussian process then describes what the linear model leaves. Fitted by least squares on the training
    samples, the coefficients stay and count as certain; a `sysid.kernels.Linear` kernel integrates them out instead.

    Examples
    --------
    >>> mean = LinearMean().fitted(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> np.round(mean(np.array([[10.0]])), 9)
    array([21.])
    """

    coefficients: Sequence[float] = ()  # target unit per unit of the feature; empty: not yet estimated, zeros
    intercept: float = 0.0  # target unit
    ridge: float = 0.0  # penalty on the coefficients of the standardised features [-]

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", tuple(float(value) for value in self.coefficients))
        object.__setattr__(self, "intercept", float(self.intercept))
        if not np.isfinite([*self.coefficients, self.intercept]).all():
            raise ValueError(
                f"LinearMean: coefficients and intercept must be finite, got {self.coefficients} and {self.intercept}"
            )
        if not 0 <= self.ridge < inf:
            raise ValueError(f"LinearMean: ridge must be a finite number >= 0, got {self.ridge!r}")

    def __call__(self, regressors: Array) -> Array:
        """``intercept + coefficients' x``, (n,)."""
        if not self.coefficients:
            return np.full(len(regressors), self.intercept)
        products = regressors * np.asarray(self.coefficients)
        return np.asarray(self.intercept + products.sum(axis=1))

    def gradient(self, regressors: Array) -> Array:
        """The coefficients, (n, p)."""
        slopes = np.zeros(regressors.shape)
        slopes[:] = self.coefficients or 0.0
        return slopes

    def fitted(self, regressors: Array, targets: Array) -> LinearMean:
        """Least squares with intercept on the samples (n, p), (n,); see `sysid.least_squares.linear_fit`."""
        fit = linear_fit(regressors, targets, ridge=self.ridge)
        return LinearMean(fit.coefficients.tolist(), fit.intercept, self.ridge)

    def check(self, n_features: int) -> None:
        """Refuse another number of features than of coefficients."""
        if self.coefficients and len(self.coefficients) != n_features:
            raise ValueError(
                f"LinearMean: expected {n_features} coefficients, one per feature, got {len(self.coefficients)}"
            )
