"""Linear combinations of features, where the Gaussian process varies along few directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sysid.feature_map import Array, FeatureMap, rows


@dataclass(frozen=True, eq=False)
class Projection(FeatureMap):
    """Affine map ``z = A (x - offset)`` with any matrix: a squared exponential of z has the metric ``A'A``.

    Lagged signals are nearly collinear, and a length scale per lag cannot tell a level from a difference; a
    combination of lags can.

    Parameters
    ----------
    offset : (p,)
        Subtracted first, in the unit of each feature.
    matrix : (q, p)
        A, per unit of the feature, q >= 1.

    Raises
    ------
    ValueError
        Shapes that do not fit, or values that are not finite.

    Examples
    --------
    >>> sum_and_difference = Projection(np.zeros(2), np.array([[1.0, 1.0], [1.0, -1.0]]))
    >>> sum_and_difference.transform([3.0, 1.0])
    array([4., 2.])
    """

    offset: Array  # unit of the feature
    matrix: Array  # per unit of the feature

    def __post_init__(self) -> None:
        offset, matrix = (np.array(values, dtype=np.float64) for values in (self.offset, self.matrix))
        if offset.ndim != 1 or matrix.ndim != 2 or matrix.shape[0] < 1 or matrix.shape[1] != offset.size:
            raise ValueError(
                f"Projection: expected offset (p,) and matrix (q, p), got shapes {offset.shape} and {matrix.shape}"
            )
        if not (np.isfinite(offset).all() and np.isfinite(matrix).all()):
            raise ValueError("Projection: offset and matrix must be finite")
        for name, array in (("offset", offset), ("matrix", matrix)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def linear_part(self) -> Array:
        """A (q, p)."""
        return self.matrix

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates q."""
        return len(self.matrix)

    def transform(self, x: ArrayLike) -> Array:
        """Coordinates of a row (p,) or of rows (n, p), feature by feature: a row alone gives the bits of the batch."""
        centred = rows(x, self.n_features, "Projection") - self.offset
        z = np.zeros((*centred.shape[:-1], self.n_coordinates))
        for d, column in enumerate(self.matrix.T):
            z += centred[..., d, None] * column
        return z

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Projection):
            return NotImplemented
        return bool(np.array_equal(self.offset, other.offset) and np.array_equal(self.matrix, other.matrix))

    def __hash__(self) -> int:
        return hash((tuple(self.offset.tolist()), tuple(self.matrix.ravel().tolist())))
