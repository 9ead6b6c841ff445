"""The role of a mean function."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP = 6e-6  # of a central difference, relative to the size of the feature: cube root of the rounding [-]


class MeanFunction(ABC):
    """Prior mean m(x) of a target: the Gaussian process describes ``target - m(x)``.

    A frozen dataclass of numbers, so that a model file can name and rebuild it. Features and target are in their
    own units. What is known beforehand, such as a balance of energy, is a subclass of the user's own:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Cooling(MeanFunction):
    ...     rate: float  # 1 per sample
    ...
    ...     def __call__(self, regressors):
    ...         return self.rate * (regressors[:, 1] - regressors[:, 0])
    >>> Cooling(0.1)(np.array([[20.0, 10.0]]))
    array([-1.])
    """

    @abstractmethod
    def __call__(self, regressors: Array) -> Array:
        """Mean (n,) of the target at regressors (n, p)."""

    def at(self, regressor: Array) -> float:
        """Mean of the target at one regressor (p,), the bits of the batch; quick where nothing depends on it."""
        return float(self(np.asarray(regressor, dtype=np.float64)[None, :])[0])

    def gradient(self, regressors: Array) -> Array:
        """``dm/dx`` (n, p) at regressors (n, p); by central differences unless a mean function knows better."""
        slopes = np.empty(regressors.shape)
        for d in range(regressors.shape[1]):
            step = STEP * np.maximum(np.abs(regressors[:, d]), 1.0)
            above, below = regressors.copy(), regressors.copy()
            above[:, d] += step
            below[:, d] -= step
            slopes[:, d] = (self(above) - self(below)) / (above[:, d] - below[:, d])
        return slopes

    def fitted(self, regressors: Array, targets: Array) -> MeanFunction:
        """Mean function of this kind for training samples (n, p), (n,); itself if nothing of it is estimated."""
        return self

    def check(self, n_features: int) -> None:
        """Refuse a number of features that this mean function does not fit, by evaluating it.

        Raises
        ------
        ValueError
            If it does not give one number per regressor.
        """
        try:
            shape = np.shape(self(np.zeros((2, n_features))))
        except IndexError as error:
            raise ValueError(f"{self}: expected a mean of {n_features} features, it asks for more ({error})") from error
        if shape != (2,):
            raise ValueError(f"{self}: expected a mean (n,) of regressors (n, {n_features}), got {shape} for n = 2")
