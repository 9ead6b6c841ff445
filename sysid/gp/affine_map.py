"""Affine maps of the features to the coordinates of the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import matrix, vector
from sysid.errors import UserError

Array = NDArray[np.float64]

RELATIVE_CONSTANT = 1e-12  # a feature whose std is below this fraction of its mean is constant [-]


@dataclass(frozen=True, eq=False)
class AffineMap:
    """Map of features x (p,) in their own units to coordinates z (q,) of the kernel.

    ``z = (x - offset) / scale`` with one scale per feature, or ``z = A (x - offset)`` with a matrix
    (`of_matrix`). A row alone gives the same bits as the same row in a batch. Arrays are copied and
    read-only.

    Parameters
    ----------
    offset : (p,)
        Unit of each feature.
    scale : (p,)
        Positive, unit of each feature; 1 where there is a matrix.
    constant
        Indices of the features that did not vary in the training samples; their scale is 1.
    matrix : (q, p), optional
        A, per unit of each feature.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite, a scale that is not positive.

    Examples
    --------
    >>> scaling = AffineMap.fit(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> scaling.transform([5.0, 5.0])
    array([3., 0.])
    >>> scaling.constant
    (1,)
    """

    offset: Array
    scale: Array
    constant: tuple[int, ...] = ()
    matrix: Array | None = None

    def __post_init__(self) -> None:
        arrays = {"offset": vector(self.offset, None, "AffineMap(offset)")}
        p = arrays["offset"].size
        arrays["scale"] = vector(self.scale, p, "AffineMap(scale)")
        if self.matrix is not None:
            arrays["matrix"] = matrix(self.matrix, p, "AffineMap(matrix)")
        for name, array in arrays.items():
            object.__setattr__(self, name, array.copy())
            getattr(self, name).setflags(write=False)
        object.__setattr__(self, "constant", tuple(int(i) for i in self.constant))
        if not np.all(self.scale > 0):
            raise UserError(
                f"AffineMap(scale) must be positive, got {self.scale.tolist()}: use 1 for no scaling"
            )
        if not all(0 <= i < p for i in self.constant):
            raise UserError(f"AffineMap(constant={self.constant}) must be indices below {p}")
        if self.matrix is not None and not (len(self.matrix) and np.all(self.scale == 1)):
            raise UserError(
                "AffineMap(matrix) must have rows, and the scale be 1: divide the matrix by the scale"
            )

    @classmethod
    def fit(cls, x: ArrayLike) -> AffineMap:
        """Offset = mean and scale = population standard deviation of each column of the training
        samples.

        A column counts as constant if its standard deviation is no larger than rounding,
        ``std <= 1e-12 * |mean|``; it gets scale 1 and is reported in `constant`.

        Parameters
        ----------
        x : (n, p)
            Training samples, n >= 1. A target (n,) is passed as ``target[:, None]``.

        Raises
        ------
        ValueError
            Not two-dimensional, no samples, or values that are not finite (how many, which is the
            first).
        """
        x = np.asarray(x, dtype=np.float64)
        if x.ndim != 2 or x.shape[0] == 0:
            raise UserError(
                f"AffineMap.fit: expected samples (n, p), n >= 1, got {x.shape}; one feature is x[:, None]"
            )
        mean, std = _moments(matrix(x, x.shape[1], "AffineMap.fit(x)"))
        is_constant = std <= RELATIVE_CONSTANT * np.abs(mean)
        return cls(
            mean,
            np.where(is_constant, 1.0, std),
            tuple(np.flatnonzero(is_constant).tolist()),
        )

    @classmethod
    def identity(cls, n_features: int) -> AffineMap:
        """Map that changes nothing: offset 0, scale 1."""
        return cls(np.zeros(n_features), np.ones(n_features))

    @classmethod
    def of_matrix(cls, offset: ArrayLike, matrix: ArrayLike) -> AffineMap:
        """Map ``z = A (x - offset)`` with a matrix A (q, p): a squared exponential of z has the
        metric ``A'A``.

        Lagged signals are nearly collinear. A length scale per lag cannot tell a level from a
        difference; a combination of lags can.

        Examples
        --------
        >>> sum_and_difference = AffineMap.of_matrix(np.zeros(2), np.array([[1.0, 1.0], [1.0, -1.0]]))
        >>> sum_and_difference.transform([3.0, 1.0])
        array([4., 2.])
        """
        return cls(np.asarray(offset), np.ones(np.shape(offset)), matrix=np.asarray(matrix))

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return self.offset.size

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates q."""
        return self.n_features if self.matrix is None else len(self.matrix)

    def linear_part(self) -> Array:
        """Return the matrix A (q, p), per unit of the feature: `matrix`, or diag(1 / scale)."""
        return np.diag(1.0 / self.scale) if self.matrix is None else self.matrix

    def transform(self, x: ArrayLike) -> Array:
        """Coordinates of a row (p,) or of rows (n, p)."""
        if not (
            type(x) is np.ndarray and x.dtype == np.float64 and x.shape[1:] == self.offset.shape
        ):
            x = self._rows(x)
        centred: Array = x - self.offset
        if self.matrix is None:
            return centred / self.scale
        z = np.zeros((*centred.shape[:-1], len(self.matrix)))
        for d, column in enumerate(
            self.matrix.T
        ):  # a matrix product of one row has other bits than that of a batch
            z += centred[..., d, None] * column
        return z

    def inverse(self, z: ArrayLike) -> Array:
        """Features in their units, x = offset + scale * z, of a row (p,) or of rows (n, p).

        Raises
        ------
        ValueError
            The map has a matrix, or z another shape.
        """
        if self.matrix is not None:
            raise UserError(
                "AffineMap.inverse: a map with a matrix has none; solve linear_part() for the features"
            )
        return self.offset + self.scale * self._rows(z)

    def _rows(self, x: ArrayLike) -> Array:
        array = np.asarray(x, dtype=np.float64)
        p = self.n_features
        if array.ndim not in (1, 2) or array.shape[-1] != p:
            raise UserError(
                f"AffineMap of {p} features: expected shape ({p},) or (n, {p}), got {array.shape}"
            )
        return array

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, AffineMap) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        matrix = None if self.matrix is None else tuple(map(tuple, self.matrix.tolist()))
        return (
            tuple(self.offset.tolist()),
            tuple(self.scale.tolist()),
            self.constant,
            matrix,
        )


Scaling = AffineMap  #: earlier name of maps with a scale
Projection = AffineMap.of_matrix  #: earlier name of maps with a matrix


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and population standard deviation per column, free of overflow and of cancellation.

    Columns are first divided by a power of two near their largest magnitude, which costs no bit,
    and counted from their first sample, so that a constant column has a standard deviation of
    exactly 0.
    """
    _, exponent = np.frexp(np.abs(x).max(axis=0))
    unit = np.ldexp(x, -exponent)
    deviation = unit - unit[0]
    mean = unit[0] + deviation.mean(axis=0)
    std = deviation.std(axis=0)
    return np.ldexp(mean, exponent), np.ldexp(std, exponent)
