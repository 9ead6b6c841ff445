"""Affine maps of the features to the coordinates of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import matrix, real_numbers, vector
from sysid.compiled import cached_njit
from sysid.errors import UserError

Array = NDArray[np.float64]

#: A feature is constant if its standard deviation is at most this fraction of its mean [-]
MAX_RELATIVE_STD_OF_CONSTANT = 1e-12

#: A map with a matrix is applied by compiled code to at least so many rows: fewer need less time
#: than the preparations of the call. The bits are the same.
MIN_COMPILED_ROWS = 32


@dataclass(frozen=True, eq=False)
class AffineMap:
    """Map of features x (p,) in their own units to coordinates z (q,) of the kernel.

    It is ``z = (x - offset) / scale`` with one scale per feature, or ``z = A (x - offset)`` with a
    matrix (`of_matrix`). A single row gives the same bits as the same row in a batch. Arrays are
    copied and read-only.

    Parameters
    ----------
    offset : (p,)
        Unit of each feature.
    scale : (p,)
        Positive, unit of each feature; 1 if there is a matrix.
    constant
        Indices of the features that did not vary in the training samples; their scale is 1.
    matrix : (q, p), optional
        A, per unit of each feature.

    Raises
    ------
    ValueError
        If shapes do not fit, values are not finite, or a scale is not positive.

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
                f"AffineMap(scale) must be positive, got {self.scale.tolist()}: "
                "use 1 for no scaling"
            )
        if not all(0 <= i < p for i in self.constant):
            raise UserError(f"AffineMap(constant={self.constant}) must be indices below {p}")
        if self.matrix is None:
            return
        if len(self.matrix) == 0 or not np.all(self.scale == 1):
            raise UserError(
                "AffineMap(matrix) must have rows, and the scale must be 1: "
                "divide the matrix by the scale"
            )

    @classmethod
    def fit(cls, x: ArrayLike, shared: Sequence[int] = ()) -> AffineMap:
        """Return the map that standardises the training samples.

        The offset is the mean and the scale is the population standard deviation of each column. A
        column is constant if its standard deviation is no larger than rounding,
        ``std <= 1e-12 * |mean|``; its scale is 1, and its index is in `constant`.

        Parameters
        ----------
        x : (n, p)
            Training samples, n >= 1. A target (n,) is passed as ``target[:, None]``.
        shared : sequence of int
            Sizes of the groups of the last columns that share one offset and one scale, those of
            all their samples together, such as the lags of a signal. The columns before them have
            their own.

        Raises
        ------
        ValueError
            If the samples are not two-dimensional, there are none, or values are not finite. The
            message counts these values and names the first one.
        """
        x = real_numbers(x, "AffineMap.fit(x)")
        if x.ndim != 2 or x.shape[0] == 0:
            raise UserError(
                f"AffineMap.fit: expected samples (n, p), n >= 1, got {x.shape}; "
                "one feature is x[:, None]"
            )
        mean, std = _moments(matrix(x, x.shape[1], "AffineMap.fit(x)"))
        first = x.shape[1] - sum(shared)
        for size in shared:
            group = slice(first, first + size)
            mean_of_group, std_of_group = _moments(x[:, group].reshape(-1, 1))
            mean[group] = mean_of_group
            std[group] = std_of_group
            first += size
        is_constant = std <= MAX_RELATIVE_STD_OF_CONSTANT * np.abs(mean)
        return cls(
            offset=mean,
            scale=np.where(is_constant, 1.0, std),
            constant=tuple(np.flatnonzero(is_constant).tolist()),
        )

    @classmethod
    def identity(cls, n_features: int) -> AffineMap:
        """Return the map that changes nothing: offset 0, scale 1."""
        return cls(np.zeros(n_features), np.ones(n_features))

    @classmethod
    def of_matrix(cls, offset: ArrayLike, matrix: ArrayLike) -> AffineMap:
        """Return the map ``z = A (x - offset)`` with a matrix A (q, p).

        A squared exponential kernel of z has the metric ``A'A``. Lagged signals are nearly
        collinear: one length scale per lag cannot distinguish a level from a difference, but a
        combination of lags can.

        Examples
        --------
        >>> sum_and_difference = np.array([[1.0, 1.0], [1.0, -1.0]])
        >>> AffineMap.of_matrix(np.zeros(2), sum_and_difference).transform([3.0, 1.0])
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
        """Return the coordinates of a row (p,) or of rows (n, p)."""
        if type(x) is not np.ndarray or x.dtype != np.float64 or x.shape[1:] != self.offset.shape:
            x = self._rows(x)
        centred: Array = x - self.offset
        if self.matrix is None:
            return centred / self.scale
        # The bits of a matrix product would depend on the number of rows, those of a sum do not.
        z = np.zeros((*centred.shape[:-1], len(self.matrix)))
        if z.ndim == 2 and len(z) >= MIN_COMPILED_ROWS:
            _add_products(np.ascontiguousarray(centred), np.ascontiguousarray(self.matrix.T), z)
            return z
        for d, column in enumerate(self.matrix.T):
            z += centred[..., d, None] * column
        return z

    def inverse(self, z: ArrayLike) -> Array:
        """Return the features ``x = offset + scale * z``, in their units, of one or several rows.

        The coordinates z have shape (p,) or (n, p).

        Raises
        ------
        ValueError
            If the map has a matrix, or z has another shape.
        """
        if self.matrix is not None:
            raise UserError(
                "AffineMap.inverse: a map with a matrix has no inverse; "
                "solve linear_part() for the features"
            )
        return self.offset + self.scale * self._rows(z)

    def _rows(self, x: ArrayLike) -> Array:
        """Return x as an array (p,) or (n, p)."""
        array = real_numbers(x, "AffineMap")
        p = self.n_features
        if array.ndim not in (1, 2) or array.shape[-1] != p:
            raise UserError(
                f"AffineMap of {p} features: expected shape ({p},) or (n, {p}), got {array.shape}"
            )
        return array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineMap):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        """Return all values as a hashable tuple."""
        matrix = None
        if self.matrix is not None:
            matrix = tuple(tuple(row) for row in self.matrix.tolist())
        return (
            tuple(self.offset.tolist()),
            tuple(self.scale.tolist()),
            self.constant,
            matrix,
        )


@cached_njit(nogil=True)
def _add_products(x, columns, z):  # type: ignore[no-untyped-def]
    """Add ``sum_d x[i, d] columns[d]`` to z[i], term by term."""
    for i in range(len(x)):
        for d in range(len(columns)):
            factor = x[i, d]
            for c in range(columns.shape[1]):
                z[i, c] += factor * columns[d, c]


Scaling = AffineMap  #: earlier name of maps with a scale
Projection = AffineMap.of_matrix  #: earlier name of maps with a matrix


def _moments(x: Array) -> tuple[Array, Array]:
    """Return mean and population standard deviation per column, without overflow or cancellation.

    Each column is first divided by a power of two near its largest magnitude, which is exact. Then
    its first sample is subtracted, so that a constant column has a standard deviation of exactly 0.
    """
    _, exponent = np.frexp(np.abs(x).max(axis=0))
    normalised = np.ldexp(x, -exponent)
    deviation = normalised - normalised[0]
    mean = normalised[0] + deviation.mean(axis=0)
    std = deviation.std(axis=0)
    return np.ldexp(mean, exponent), np.ldexp(std, exponent)
