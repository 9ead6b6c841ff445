"""Affine scaling of features and targets, fitted on training samples only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sysid.feature_map import Array, FeatureMap, rows

RELATIVE_CONSTANT = 1e-12  # a feature whose std is below this fraction of its mean is constant [-]


@dataclass(frozen=True, eq=False)
class Scaling(FeatureMap):
    """Affine map per feature, ``z = (x - offset) / scale``.

    Rows are mapped entry by entry: one row alone gives the same bits as the same row in a batch.
    Arrays are copied and read-only.

    Parameters
    ----------
    offset : (p,)
        Subtracted first, in the unit of each feature.
    scale : (p,)
        Divided by, positive, in the unit of each feature.
    constant
        Indices of the features that did not vary in the training samples (their scale is 1).

    Raises
    ------
    ValueError
        Shapes that differ, an offset that is not finite, a scale that is not positive and finite.

    Examples
    --------
    >>> scaling = Scaling.fit(np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> scaling.transform([5.0, 5.0])
    array([3., 0.])
    >>> scaling.constant
    (1,)
    """

    offset: Array  # unit of the feature
    scale: Array  # unit of the feature
    constant: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("offset", "scale"):
            object.__setattr__(self, name, _read_only(getattr(self, name), name))
        if self.offset.shape != self.scale.shape:
            raise ValueError(
                f"Scaling needs offset and scale of one length, got {self.offset.size} and {self.scale.size}"
            )
        if not np.all(self.scale > 0):
            raise ValueError(f"Scaling(scale) must be positive, got {self.scale.tolist()}: use 1 for no scaling")
        object.__setattr__(self, "constant", tuple(int(i) for i in self.constant))
        if not all(0 <= i < self.n_features for i in self.constant):
            raise ValueError(f"Scaling(constant={self.constant}) must be indices below {self.n_features}")

    @classmethod
    def fit(cls, x: ArrayLike) -> Scaling:
        """Offset = mean and scale = population standard deviation of each column of the training samples.

        A column counts as constant if its standard deviation is no larger than rounding,
        ``std <= 1e-12 * |mean|``; it gets scale 1 and is reported in `constant`.

        Parameters
        ----------
        x : (n, p)
            Training samples, n >= 1. A target (n,) is passed as ``target[:, None]``.

        Raises
        ------
        ValueError
            Not two-dimensional, no samples, or values that are not finite (which feature, how many).
        """
        x = _training_samples(x)
        mean, std = _moments(x)
        is_constant = std <= RELATIVE_CONSTANT * np.abs(mean)
        return cls(mean, np.where(is_constant, 1.0, std), tuple(np.flatnonzero(is_constant).tolist()))

    @classmethod
    def identity(cls, n_features: int) -> Scaling:
        """Scaling that changes nothing: offset 0, scale 1."""
        return cls(np.zeros(n_features), np.ones(n_features))

    def linear_part(self) -> Array:
        """diag(1 / scale), (p, p)."""
        return np.diag(1.0 / self.scale)

    @property
    def n_coordinates(self) -> int:
        """As many as features."""
        return self.n_features

    def transform(self, x: ArrayLike) -> Array:
        """Scaled features z = (x - offset) / scale of a row (p,) or of rows (n, p)."""
        return (rows(x, self.n_features, "Scaling") - self.offset) / self.scale

    def inverse(self, z: ArrayLike) -> Array:
        """Features in their units, x = offset + scale * z, of a row (p,) or of rows (n, p)."""
        return self.offset + self.scale * rows(z, self.n_features, "Scaling")

    def inverse_variance(self, variance: ArrayLike) -> Array:
        """Variances in squared units, scale^2 * variance, of a row (p,) or of rows (n, p)."""
        return self.scale**2 * rows(variance, self.n_features, "Scaling")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scaling):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...]]:
        return tuple(self.offset.tolist()), tuple(self.scale.tolist()), self.constant


def _read_only(values: ArrayLike, name: str) -> Array:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"Scaling({name}) must be a vector of finite numbers, got {array.tolist()}")
    array.setflags(write=False)
    return array


def _training_samples(x: ArrayLike) -> Array:
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or x.shape[0] == 0:
        raise ValueError(
            f"Scaling.fit expects training samples (n, p) with n >= 1, got shape {x.shape}: "
            "pass a single feature or target as x[:, None]"
        )
    missing = np.count_nonzero(~np.isfinite(x), axis=0)
    if missing.any():
        feature = int(np.flatnonzero(missing)[0])
        raise ValueError(
            f"Scaling.fit expects finite samples, feature {feature} has {missing[feature]} of {len(x)} "
            "that are not: drop these rows first (Narx(on_missing='skip') does)"
        )
    return x


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and population standard deviation per column, free of overflow and of cancellation.

    Columns are first divided by a power of two near their largest magnitude, which costs no bit, and
    counted from their first sample, so that a constant column has a standard deviation of exactly 0.
    """
    _, exponent = np.frexp(np.abs(x).max(axis=0))
    unit = np.ldexp(x, -exponent)
    deviation = unit - unit[0]
    mean, std = unit[0] + deviation.mean(axis=0), deviation.std(axis=0)
    return np.ldexp(mean, exponent), np.ldexp(std, exponent)
