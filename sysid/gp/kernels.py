"""Covariance functions, and where a training searches their hyper-parameters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import sqrt
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numba import njit

from sysid.arrays import matrix
from sysid.errors import UserError, UserTypeError
from sysid.gp import compiled_kernels
from sysid.gp.compiled_kernels import ADD, MULTIPLY, SHIPPED
from sysid.gp.dictionary import covariance_matrix, prior_variances
from sysid.gp.formula import COVARIANCE_SIGNATURE, address

BLOCK = 128  # rows of a gradient that are computed at a time: they stay in the cache
DIAGONAL = 32  # points whose prior variances are differentiated at a time


class Expected(NamedTuple):
    """What is known of hyper-parameters before the likelihood speaks, in the units of the data; p
    features.
    """

    variance: float  # mean square of the target
    lengths: np.ndarray  # (p,) typical distances
    variance_bounds: np.ndarray  # (2,) target unit^2
    length_scale_bounds: np.ndarray  # (p, 2) feature units
    log_length_scales: np.ndarray  # (p,) median of the log-normal prior
    length_scale_std: float  # of the logarithm; infinite: no prior
    weight_bounds: (
        np.ndarray
    )  # (p, 2) of a linear function's weight variances, target unit^2 / feature unit^2
    log_weights: np.ndarray  # (p,) median of their log-normal prior
    weight_std: float  # of the logarithm; infinite: no prior

    def without_unit(self) -> "Expected":
        """For a factor without unit: relative to the variance."""
        return self._replace(
            variance=1.0,
            variance_bounds=self.variance_bounds / self.variance,
            weight_bounds=self.weight_bounds / self.variance,
            log_weights=self.log_weights - np.log(self.variance),
        )


class SearchSpace(NamedTuple):
    """Where a training searches the q log hyper-parameters of a kernel; equal bounds fix a
    hyper-parameter.
    """

    start: np.ndarray  # (q,) first start
    along_lengths: np.ndarray  # (q,) change of each with the logarithm of all lengths
    bounds: np.ndarray  # (q, 2)
    medians: np.ndarray  # (q,) of log-normal priors
    stds: np.ndarray  # (q,) of the logarithms; infinite: no prior

    def fix_first(self) -> "SearchSpace":
        """Return a copy whose first hyper-parameter is fixed at its start, without a prior."""
        bounds = self.bounds.copy()
        stds = self.stds.copy()
        bounds[0], stds[0] = self.start[0], np.inf
        return self._replace(bounds=bounds, stds=stds)

    @classmethod
    def join(cls, parts: "Sequence[SearchSpace]") -> "SearchSpace":
        """All hyper-parameters of the parts, one part after the other."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Kernel(ABC):
    """Covariance function ``k(x, x')`` of a Gaussian process.

    A kernel states its covariance once, as the function `row` that fills a row of the covariance
    matrix; the compiled online GP, the training and the batch prediction all use it. For training
    it also maps itself to a vector of log hyper-parameters and contracts its gradient; the first of
    them must be the log of a variance.

    A kernel without hyper-parameters, such as ``Matern52()`` or ``Sum([Linear(), Matern52()])``, is
    a prototype for any number of features. A training searches its hyper-parameters in its
    `search_space` and fills it.
    """

    row: ClassVar[Callable[..., None]]

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features of a point."""

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Vector that `row` receives."""

    @property
    @abstractmethod
    def hyperparameter_names(self) -> tuple[str, ...]:
        """What each of the `log_hyperparameters` is, for people."""

    @abstractmethod
    def log_hyperparameters(self) -> np.ndarray:
        """Logarithms of the trainable hyper-parameters."""

    @abstractmethod
    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Kernel of the same kind with other hyper-parameters."""

    @abstractmethod
    def stretched(self, factors: np.ndarray) -> Self:
        """Return the same kernel for features in other units, by factors c (p,).

        With it, ``stretched(c)(c x, c x') = k(x, x')``.
        """

    @abstractmethod
    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """``sum_ij weights_ij dK_ij / d log theta`` for every log hyper-parameter.

        Parameters
        ----------
        weights : (n, m)
        points : (n, p)
        covariance : (n, m) noise-free K between these points and the others
        others : (m, p)
            None: the points themselves.
        """

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """``sum_i weights_i dk(x_i, x_i) / d log theta`` for every log hyper-parameter; weights
        (n,), points (n, p).
        """
        parts = (slice(first, first + DIAGONAL) for first in range(0, len(points), DIAGONAL))
        gradients = [
            self.contract_gradient(np.diag(weights[i]), points[i], self(points[i], points[i]))
            for i in parts
        ]
        return np.asarray(np.sum(gradients, axis=0))

    @abstractmethod
    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """``d k(x_i, z_j) / d x_i`` (m, n, p) of inputs x (m, p) and points z (n, p), target unit^2
        / feature unit.
        """

    @property
    def is_prototype(self) -> bool:
        """Whether hyper-parameters and number of features are open."""
        return False

    def scaled(self, factor: float) -> Self:
        """Return the kernel of this covariance times a factor."""
        logs = self.log_hyperparameters()
        logs[0] += np.log(factor)
        return self.with_log_hyperparameters(logs)

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        """Kernel of the same kind, of this variance, whose functions change over these lengths
        (p,).

        Parameters
        ----------
        variance : float
            Target unit^2.
        length_scales : (p,)
            Feature units.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no with_scales, which a training needs"
        )

    def search_space(self, expected: Expected) -> SearchSpace:
        """Where a training searches the log hyper-parameters: starts, bounds and priors from what
        is expected.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no search_space, which a training needs"
        )

    def describe(self, features: Sequence[str]) -> dict[str, Any]:
        """Class and fields as plain values for people, one number for each feature under its
        name.
        """
        plain = {name: self._describe(value, features) for name, value in vars(self).items()}
        return {"class": type(self).__name__} | plain

    def _describe(self, value: Any, features: Sequence[str]) -> Any:
        if isinstance(value, Kernel):
            return value.describe(features)
        if not isinstance(value, tuple):
            return value
        if len(value) == self.n_features and all(isinstance(item, float) for item in value):
            return dict(zip(features, value, strict=True))
        return [self._describe(item, features) for item in value]

    @property
    def address(self) -> Any:
        """`row` as compiled loops call it; shipped rows stay in the disk cache."""
        row = type(self).row
        return address(row, COVARIANCE_SIGNATURE, kept=row in SHIPPED)

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Covariance matrix (m, n) between the rows of first (m, p) and second (n, p)."""
        rows = matrix(first, self.n_features, "first")
        others = matrix(second, self.n_features, "second")
        out = np.empty((len(rows), len(others)))
        columns = np.ascontiguousarray(others.T)
        covariance_matrix(self.address, self.parameters(), columns, rows, out)
        return out

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """Prior variances ``k(x, x)`` (n,) of the rows of points (n, p)."""
        out = np.empty(len(points))
        prior_variances(self.address, self.parameters(), np.ascontiguousarray(points), out)
        return out

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Logarithm of the prior variance at features of one, and its gradient, by log
        hyper-parameters (q,).
        """
        kernel = self.with_log_hyperparameters(values)
        one = np.ones((1, self.n_features))
        variance = kernel(one, one)
        return float(np.log(variance[0, 0])), kernel.contract_gradient(
            np.ones((1, 1)), one, variance
        ) / variance[0, 0]


def read_positive(owner: object, name: str) -> tuple[float, ...]:
    """Numbers of a field, one or several, each of which must be positive and finite.

    Raises
    ------
    ValueError
        Naming the class and the field.
    """
    values = getattr(owner, name)
    try:
        numbers = tuple(float(value) for value in np.atleast_1d(np.asarray(values, dtype=float)))
    except (TypeError, ValueError, OverflowError):
        shown = values.tolist() if isinstance(values, np.ndarray) else values
        raise UserError(
            f"{type(owner).__name__}: {name} must be positive and finite, got {shown!r}"
        ) from None
    if not numbers or not all(0 < value < np.inf for value in numbers):
        shown = values if np.ndim(values) == 0 else numbers
        raise UserError(f"{type(owner).__name__}: {name} must be positive and finite, got {shown}")
    return numbers


class OnePerFeature(Kernel):
    """Kernel with two fields: a variance, and one number per feature.

    In a prototype a single number takes the place of the latter, whatever the number of features.
    """

    names: ClassVar[tuple[str, str]]  # of the hyper-parameters, for people

    def __post_init__(self) -> None:
        variance, numbers = (field.name for field in fields(self)[:2])  # type: ignore[arg-type]
        is_single = np.ndim(getattr(self, numbers)) == 0
        (value,), values = read_positive(self, variance), read_positive(self, numbers)
        object.__setattr__(self, variance, value)
        object.__setattr__(self, numbers, values[0] if is_single else values)

    @property
    def is_prototype(self) -> bool:
        return self == type(self)()

    def parameters(self) -> np.ndarray:
        """Variance, then the number of each feature."""
        (_, variance), (name, numbers) = list(vars(self).items())[:2]
        if isinstance(numbers, float):
            raise UserError(
                f"{type(self).__name__}: {name} must be one number per feature, got {numbers} for any number of "
                "features; a training fills such a prototype, and so does with_scales"
            )
        return np.array([variance, *numbers])

    @property
    def n_features(self) -> int:
        return len(self.parameters()) - 1

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        return (
            self.names[0],
            *(f"{self.names[1]} {d + 1}" for d in range(self.n_features)),
        )

    def log_hyperparameters(self) -> np.ndarray:
        """Logarithms of `parameters`."""
        return np.log(self.parameters())

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        variance, *numbers = np.exp(values)
        return type(self)(variance, numbers)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Stationary(OnePerFeature):
    """Kernel of the scaled distance r with automatic relevance determination (ARD).

    ``k(x, x') = variance f(r)``, ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2``, ``f(0) = 1``.
    With the slope ``s = -variance f'(r) / r`` (`slope`)::

        dk / d log length_scale_d = s ((x_d - x'_d) / length_scale_d)^2
        dk / d x_d = -s (x_d - x'_d) / length_scale_d^2

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number serves any number of features: a
        prototype.
    """

    variance: float = 1.0  # target unit^2
    length_scales: Sequence[float] | np.ndarray | float = 1.0  # feature units

    names = ("signal variance", "length scale")

    @abstractmethod
    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``-variance f'(r) / r`` (m, n) between the rows of first (m, p) and second (n, p) of this
        covariance.
        """

    def scaled(self, factor: float) -> Self:
        return replace(self, variance=factor * self.variance)

    def stretched(self, factors: np.ndarray) -> Self:
        return type(self)(self.variance, np.asarray(self.length_scales) * factors)

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        return type(self)(variance, length_scales)

    def search_space(self, expected: Expected) -> SearchSpace:
        """Bounds of all, a prior on the length scales."""
        p = len(expected.lengths)
        start = self.with_scales(expected.variance, expected.lengths).log_hyperparameters()
        return SearchSpace(
            start=start,
            along_lengths=np.append(0.0, np.ones(p)),
            bounds=np.log(np.vstack([expected.variance_bounds, expected.length_scale_bounds])),
            medians=np.append(start[0], expected.log_length_scales),
            stds=np.append(np.inf, np.full(p, expected.length_scale_std)),
        )

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """Return the variance for every point."""
        return np.full(len(points), self.variance)

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.diagonal_gradient`; only the variance is there."""
        return self.variance * weights.sum() * np.eye(1, 1 + points.shape[1])[0]

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the first of the logarithms and its gradient, wherever the features are."""
        return float(values[0]), np.eye(1, len(values))[0]

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`.

        With ``M = weights o s``, z and x the points and the others in length scales: ``sum_ij M_ij
        (z_id - x_jd)^2 = sum_i z_id^2 (M 1)_i + sum_j x_jd^2 (M'1)_j - 2 z_d' M x_d``.
        """
        others = points if others is None else others
        m = weights * self.slope(points, others, covariance)
        z, x = (
            (rows - points.mean(axis=0)) / np.asarray(self.length_scales)
            for rows in (points, others)
        )
        scales = (
            (z * z).T @ m.sum(axis=1)
            + (x * x).T @ m.sum(axis=0)
            - 2.0 * np.einsum("id,id->d", z, m @ x)
        )
        return np.concatenate([[np.vdot(weights, covariance)], scales])

    def point_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray,
    ) -> np.ndarray:
        """``sum_j weights_ij dk(z_i, x_j) / d z_i`` (n, p); points z, others x, the rest as in
        `contract_gradient`.
        """
        m = weights * self.slope(points, others, covariance)
        centre = points.mean(axis=0)
        pulled = m @ (others - centre) - m.sum(axis=1)[:, None] * (points - centre)
        return np.asarray(pulled / np.square(self.length_scales))

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        x = matrix(inputs, self.n_features, "inputs")
        z = matrix(points, self.n_features, "points")
        difference = (z[None, :, :] - x[:, None, :]) / np.square(self.length_scales)
        slope = self.slope(x, z, self(x, z))
        return np.asarray(slope[:, :, None] * difference)

    def weighted_gradient(
        self,
        inputs: np.ndarray,
        points: np.ndarray,
        weights: np.ndarray,
        covariance: np.ndarray,
    ) -> np.ndarray:
        """``sum_j weights_j d k(x_i, z_j) / d x_i`` (m, p): the gradient of a function that is a
        sum of kernels.
        """
        x = matrix(inputs, self.n_features, "inputs")
        z = matrix(points, self.n_features, "points")
        found = np.empty(x.shape)
        centre = z.mean(axis=0)
        points_and_one = weights[:, None] * np.column_stack([z - centre, np.ones(len(z))])
        for first in range(0, len(x), BLOCK):
            rows = slice(first, first + BLOCK)
            moments = self.slope(x[rows], z, covariance[rows]) @ points_and_one
            found[rows] = moments[:, :-1] - moments[:, -1:] * (x[rows] - centre)
        return np.asarray(found / np.square(self.length_scales))

    def distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Scaled distances r (m, n) between the rows of first (m, p) and second (n, p)."""
        out = np.zeros((len(first), len(second)))
        _add_squares(
            np.ascontiguousarray(first),
            np.ascontiguousarray(second.T),
            np.asarray(self.length_scales),
            out,
        )
        return np.sqrt(out, out=out)


@njit(cache=True, nogil=True, error_model="numpy")
def _add_squares(first, second, scales, out):  # type: ignore[no-untyped-def]
    """Add ``sum_d ((first[i, d] - second[d, j]) / scales[d])^2`` to out[i, j]."""
    for i in range(len(first)):
        row = out[i]
        for d in range(len(scales)):
            x = first[i, d]
            inverse = 1.0 / scales[d]
            column = second[d]
            for j in range(row.size):
                difference = (column[j] - x) * inverse
                row[j] += difference * difference


@dataclass(frozen=True)
class SquaredExponential(Stationary):
    """Squared exponential with automatic relevance determination (ARD), section 2 of the paper.

    ``k(x, x') = variance exp(-0.5 sum_d ((x_d - x'_d) / length_scale_d)^2)``

    Parameters
    ----------
    variance : float
        Signal variance sf2 > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number serves any number of features: a
        prototype.
    """

    row = staticmethod(compiled_kernels.squared_exponential)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Return the covariance itself."""
        return covariance


@dataclass(frozen=True)
class Matern32(Stationary):
    """Matern kernel of smoothness 3/2 with automatic relevance determination: functions with one
    derivative.

    ``k(x, x') = variance (1 + sqrt(3) r) exp(-sqrt(3) r)``, ``r^2 = sum_d ((x_d - x'_d) /
    length_scale_d)^2`` (Rasmussen and Williams, equation 4.17). ``-f'(r) / r = 3 exp(-sqrt(3) r)``.

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number serves any number of features: a
        prototype.
    """

    row = staticmethod(compiled_kernels.matern_32)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``3 variance exp(-sqrt(3) r) = 3 k / (1 + sqrt(3) r)``."""
        return np.asarray(3.0 * covariance / (1.0 + sqrt(3.0) * self.distances(first, second)))


@dataclass(frozen=True)
class Matern52(Stationary):
    """Matern kernel of smoothness 5/2 with automatic relevance determination: functions with two
    derivatives.

    ``k(x, x') = variance (1 + a + a^2 / 3) exp(-a)``, ``a = sqrt(5) r``,
    ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2`` (Rasmussen and Williams, equation 4.17).
    ``-f'(r) / r = 5 / 3 (1 + a) exp(-a)``.

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number serves any number of features: a
        prototype.
    """

    row = staticmethod(compiled_kernels.matern_52)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """``5 / 3 variance (1 + a) exp(-a) = 5 k / (3 + a^2 / (1 + a))``, ``a = sqrt(5) r``."""
        a = self.distances(first, second)
        a *= sqrt(5.0)
        return np.asarray(5.0 * covariance / (3.0 + a * a / (1.0 + a)))


@dataclass(frozen=True)
class Linear(OnePerFeature):
    """Linear trend ``f(x) = b + w'x`` with ``b ~ N(0, offset_variance)``, ``w_d ~ N(0,
    weight_variance_d)``.

    ``k(x, x') = offset_variance + sum_d weight_variance_d x_d x'_d`` (Rasmussen and Williams,
    section 4.2.2). The coefficients are integrated out: what the data leave open of them is in the
    predicted variance, which grows with the square of the distance from the origin.

    Parameters
    ----------
    offset_variance : float
        > 0, unit of the target squared.
    weight_variances : sequence of float
        One per feature, > 0, unit of the target squared per unit of the feature squared. A single
        number serves any number of features: a prototype.
    """

    offset_variance: float = 1.0  # target unit^2
    weight_variances: Sequence[float] | np.ndarray | float = 1.0  # target unit^2 / feature unit^2

    row = staticmethod(compiled_kernels.linear)
    names = ("offset variance", "weight variance")

    def scaled(self, factor: float) -> Self:
        return type(self)(factor * self.offset_variance, factor * np.asarray(self.weight_variances))

    def stretched(self, factors: np.ndarray) -> Self:
        return type(self)(
            self.offset_variance, np.asarray(self.weight_variances) / np.square(factors)
        )

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        """Trend with this variance of the offset, and of the change over each length."""
        return type(self)(variance, variance / np.square(length_scales))

    def search_space(self, expected: Expected) -> SearchSpace:
        """Bounds of all, priors on all, which start from the medians; that of the offset is the
        expected variance.
        """
        p = len(expected.lengths)
        medians = np.append(np.log(expected.variance), expected.log_weights)
        return SearchSpace(
            start=medians,
            along_lengths=np.append(0.0, np.full(p, -2.0)),
            bounds=np.log(np.vstack([expected.variance_bounds, expected.weight_bounds])),
            medians=medians,
            stds=np.full(p + 1, expected.weight_std),
        )

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """``offset_variance + sum_d weight_variance_d x_d^2``."""
        return np.asarray(
            self.offset_variance + np.square(points) @ np.asarray(self.weight_variances)
        )

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """``log(offset_variance + sum_d weight_variance_d)``."""
        total = float(np.logaddexp.reduce(values))
        return total, np.exp(values - total)

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`; ``dK / d log weight_variance_d = weight_variance_d x_d
        x_d'``.
        """
        pulled = weights @ (points if others is None else others)
        along = np.einsum("id,id->d", points, pulled) * np.asarray(self.weight_variances)
        return np.append(self.offset_variance * weights.sum(), along)

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`; ``weight_variance_d z_d`` wherever x is."""
        x = matrix(inputs, self.n_features, "inputs")
        z = matrix(points, self.n_features, "points")
        return np.tile(np.asarray(self.weight_variances) * z, (len(x), 1, 1))


@dataclass(frozen=True)
class OfParts(Kernel):
    """Kernel made of at least two others of the same features, which may be made of others
    themselves.

    Parameters
    ----------
    parts : sequence of Kernel
        Prototypes, or filled kernels.
    """

    parts: Sequence[Kernel]

    row = staticmethod(compiled_kernels.composition)
    code: ClassVar[int]  # of the instruction that joins two parts

    def __post_init__(self) -> None:
        parts = tuple(self.parts) if isinstance(self.parts, Sequence) else (self.parts,)
        name = type(self).__name__
        if wrong := [part for part in parts if not isinstance(part, Kernel)]:
            raise UserTypeError(f"{name}: parts must be instances of Kernel, got {wrong[0]!r}")
        if len(parts) < 2:
            raise UserError(f"{name}: parts must be at least two, got {len(parts)}")
        features = ["any number" if part.is_prototype else part.n_features for part in parts]
        if len(set(features)) > 1:
            raise UserError(f"{name}: parts must have the same number of features, got {features}")
        object.__setattr__(self, "parts", parts)

    @property
    def is_prototype(self) -> bool:
        return self.parts[0].is_prototype

    @property
    def n_features(self) -> int:
        return self.parts[0].n_features

    @property
    def address(self) -> Any:
        own = self._own_rows()
        row = compiled_kernels.composition_with(own) if own else compiled_kernels.composition
        return address(row, COVARIANCE_SIGNATURE, kept=not own)

    def _own_rows(self) -> tuple[Callable[..., None], ...]:
        """Rows of the parts, and of their parts, that are not shipped; each once."""
        found = [
            part._own_rows() if isinstance(part, OfParts) else (type(part).row,)
            for part in self.parts
        ]
        return tuple(dict.fromkeys(row for rows in found for row in rows if row not in SHIPPED))

    def parameters(self) -> np.ndarray:
        """Program of `sysid.gp.compiled_kernels.composition`."""
        instructions = self._instructions(SHIPPED + self._own_rows())
        n_rows = (len(instructions) + 1) // 2  # all but the first are joined
        return np.concatenate([[2 + sum(map(len, instructions)), n_rows], *instructions])

    def _instructions(self, rows: Sequence[Callable[..., None]]) -> list[list[float]]:
        """Those of the first part, then of each other part and the one that joins it."""
        found: list[list[float]] = []
        for i, part in enumerate(self.parts):
            if isinstance(part, OfParts):
                found += part._instructions(rows)
            else:
                numbers = part.parameters()
                found += [[rows.index(type(part).row), len(numbers), *numbers]]
            found += [[self.code, 0]] if i else []
        return found

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        """Those of each part in turn."""
        return tuple(
            f"part {i + 1}: {name}"
            for i, part in enumerate(self.parts)
            for name in part.hyperparameter_names
        )

    def log_hyperparameters(self) -> np.ndarray:
        """Those of each part in turn."""
        return np.concatenate([part.log_hyperparameters() for part in self.parts])

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        return type(self)(
            [part.with_log_hyperparameters(share) for part, share in self.split(values)]
        )

    def split(self, values: np.ndarray) -> Iterator[tuple[Kernel, np.ndarray]]:
        """Each part with its log hyper-parameters."""
        ends = np.cumsum([len(part.hyperparameter_names) for part in self.parts])
        return zip(self.parts, np.split(values, ends[:-1]), strict=True)

    def stretched(self, factors: np.ndarray) -> Self:
        return type(self)([part.stretched(factors) for part in self.parts])


@dataclass(frozen=True)
class Sum(OfParts):
    """``k(x, x') = sum_i k_i(x, x')``: the sum of independent functions, a trend and what deviates
    from it for example.

    Parameters
    ----------
    parts : sequence of Kernel
        At least two, of the same features; or prototypes.
    """

    code = ADD

    def scaled(self, factor: float) -> Self:
        return type(self)([part.scaled(factor) for part in self.parts])

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        """Parts of equal shares of the variance and of these lengths."""
        return type(self)(
            [part.with_scales(variance / len(self.parts), length_scales) for part in self.parts]
        )

    def search_space(self, expected: Expected) -> SearchSpace:
        """Those of the parts, which start from equal shares of the variance; the bounds are those
        of the whole.
        """
        share = expected._replace(variance=expected.variance / len(self.parts))
        return SearchSpace.join([part.search_space(share) for part in self.parts])

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        return np.sum([part.diagonal(points) for part in self.parts], axis=0)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        found = [part.log_variance(share) for part, share in self.split(values)]
        total = float(np.logaddexp.reduce([value for value, _ in found]))
        return total, np.concatenate([np.exp(value - total) * slope for value, slope in found])

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`; each part has its own hyper-parameters."""
        x = points if others is None else others
        return np.concatenate(
            [part.contract_gradient(weights, points, part(points, x), x) for part in self.parts]
        )

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        return np.sum([part.input_gradient(inputs, points) for part in self.parts], axis=0)


@dataclass(frozen=True)
class Product(OfParts):
    """``k(x, x') = prod_i k_i(x, x')``: with a linear part, a trend whose coefficients change over
    the features.

    A training gives the first part the unit of the covariance; the others have none. Of each other
    part it fixes the first hyper-parameter, which scales it, at 1: only the product of the scales
    matters.

    Parameters
    ----------
    parts : sequence of Kernel
        At least two, of the same features; or prototypes. The unit of the product of their
        variances is that of the target squared.
    """

    code = MULTIPLY

    def scaled(self, factor: float) -> Self:
        return type(self)([self.parts[0].scaled(factor), *self.parts[1:]])

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        """Parts of these lengths; the first has the variance, the others have 1."""
        first, *others = self.parts
        filled = [part.with_scales(1.0, length_scales) for part in others]
        return type(self)([first.with_scales(variance, length_scales), *filled])

    def search_space(self, expected: Expected) -> SearchSpace:
        first, *others = self.parts
        fixed = [part.search_space(expected.without_unit()).fix_first() for part in others]
        return SearchSpace.join([first.search_space(expected), *fixed])

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        return np.prod([part.diagonal(points) for part in self.parts], axis=0)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        found = [part.log_variance(share) for part, share in self.split(values)]
        return float(np.sum([value for value, _ in found])), np.concatenate(
            [slope for _, slope in found]
        )

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`; ``dK / d theta_i = dK_i / d theta_i prod_(l != i)
        K_l``.
        """
        x = points if others is None else others
        found = [part(points, x) for part in self.parts]
        shares = [weights * _multiply_others(found, i) for i in range(len(found))]
        gradients = zip(self.parts, shares, found, strict=True)
        return np.concatenate(
            [part.contract_gradient(share, points, own, x) for part, share, own in gradients]
        )

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`; the product rule."""
        found = [part(inputs, points) for part in self.parts]
        slopes = [part.input_gradient(inputs, points) for part in self.parts]
        return np.sum(
            [_multiply_others(found, i)[:, :, None] * slope for i, slope in enumerate(slopes)],
            axis=0,
        )


def _multiply_others(factors: list[np.ndarray], i: int) -> np.ndarray:
    """Product of all factors but the i-th; nothing is divided, since factors may be 0."""
    return np.prod(factors[:i] + factors[i + 1 :], axis=0)
