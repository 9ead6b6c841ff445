"""The role of a map from the features of a model to the coordinates of its Gaussian process."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class FeatureMap(ABC):
    """Affine map ``z = A (x - offset)`` of features x (p,) in their units to coordinates z (q,)."""

    offset: Array  # (p,) unit of the feature

    @abstractmethod
    def linear_part(self) -> Array:
        """A (q, p), per unit of the feature."""

    @abstractmethod
    def transform(self, x: ArrayLike) -> Array:
        """Coordinates of a row (p,) or of rows (n, p)."""

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return self.offset.size

    @property
    @abstractmethod
    def n_coordinates(self) -> int:
        """Number of coordinates q."""


def rows(x: ArrayLike, n_features: int, name: str) -> Array:
    """One row (p,) or rows (n, p) as floats.

    Raises
    ------
    ValueError
        Another shape; the message begins with the name.
    """
    array = np.asarray(x, dtype=np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] != n_features:
        raise ValueError(
            f"{name} of {n_features} features expects ({n_features},) or (n, {n_features}), got shape {array.shape}"
        )
    return array
