"""Covariance functions, and the ranges in which a training searches their hyper-parameters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import sqrt
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from sysid.arrays import matrix
from sysid.compiled import cached_njit
from sysid.errors import UserError, UserTypeError
from sysid.gp import compiled_kernels
from sysid.gp.compiled_kernels import ADD, MULTIPLY, SHIPPED
from sysid.gp.dictionary import covariance_matrix, prior_variances
from sysid.gp.formula import COVARIANCE_SIGNATURE, address

#: Number of rows of a gradient that are computed together, so that they stay in the cache.
GRADIENT_BLOCK_ROWS = 128
#: Number of points whose prior variances are differentiated together.
DIAGONAL_BLOCK_POINTS = 32


class Expected(NamedTuple):
    """Knowledge about the hyper-parameters before the likelihood is evaluated, for p features.

    All values are in the units of the data. An infinite standard deviation means that there is no
    prior.
    """

    #: mean square of the target
    variance: float
    #: (p,) typical distances between samples
    lengths: np.ndarray
    #: (2,) target unit^2
    variance_bounds: np.ndarray
    #: (p, 2) feature units
    length_scale_bounds: np.ndarray
    #: (p,) median of the log-normal prior
    log_length_scales: np.ndarray
    #: standard deviation of the logarithm of a length scale
    length_scale_std: float
    #: (p, 2) of the weight variances of a linear function, target unit^2 / feature unit^2
    weight_bounds: np.ndarray
    #: (p,) median of the log-normal prior of the weight variances
    log_weights: np.ndarray
    #: standard deviation of the logarithm of a weight variance
    weight_std: float
    #: (p,) standard deviations of the features; 1 for a constant feature
    spread: np.ndarray

    def of_features(self, features: slice) -> "Expected":
        """Return the knowledge about some of the features."""
        return self._replace(
            lengths=self.lengths[features],
            length_scale_bounds=self.length_scale_bounds[features],
            log_length_scales=self.log_length_scales[features],
            weight_bounds=self.weight_bounds[features],
            log_weights=self.log_weights[features],
            spread=self.spread[features],
        )

    def without_unit(self) -> "Expected":
        """Return the same values relative to the variance, for a dimensionless factor."""
        return self._replace(
            variance=1.0,
            variance_bounds=self.variance_bounds / self.variance,
            weight_bounds=self.weight_bounds / self.variance,
            log_weights=self.log_weights - np.log(self.variance),
        )


class SearchSpace(NamedTuple):
    """Starts, bounds and priors of the q log hyper-parameters of a kernel.

    Equal bounds fix a hyper-parameter.
    """

    #: (q,) first start
    start: np.ndarray
    #: (q,) change of each log hyper-parameter when the logarithm of all length scales grows by one
    along_lengths: np.ndarray
    #: (q, 2) lower and upper bounds
    bounds: np.ndarray
    #: (q,) medians of the log-normal priors
    medians: np.ndarray
    #: (q,) standard deviations of the logarithms; infinite: no prior
    stds: np.ndarray

    def fix_first(self) -> "SearchSpace":
        """Return a copy whose first hyper-parameter is fixed at its start, without a prior."""
        bounds = self.bounds.copy()
        bounds[0] = self.start[0]
        stds = self.stds.copy()
        stds[0] = np.inf
        return self._replace(bounds=bounds, stds=stds)

    @classmethod
    def join(cls, parts: "Sequence[SearchSpace]") -> "SearchSpace":
        """Return the space of the hyper-parameters of all parts, one part after the other."""
        return cls(
            start=np.concatenate([part.start for part in parts]),
            along_lengths=np.concatenate([part.along_lengths for part in parts]),
            bounds=np.concatenate([part.bounds for part in parts]),
            medians=np.concatenate([part.medians for part in parts]),
            stds=np.concatenate([part.stds for part in parts]),
        )


class Kernel(ABC):
    """Covariance function ``k(x, x')`` of a Gaussian process.

    A kernel states its covariance once, as the function `row` that fills a row of the covariance
    matrix. The compiled online GP, the training and the batch prediction all use this function.
    For training, a kernel also maps itself to a vector of log hyper-parameters and contracts its
    gradient with a matrix. The first log hyper-parameter must be the logarithm of a variance.

    A kernel without hyper-parameters, such as ``Matern52()`` or ``Sum([Linear(), Matern52()])``, is
    a prototype for any number of features. A training searches the hyper-parameters within the
    `search_space` of the prototype and returns a kernel with the values that it found.
    """

    #: function that fills a row of a covariance matrix, see `sysid.gp.compiled_kernels`
    row: ClassVar[Callable[..., None]]

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features of a point (p)."""

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Return the vector of parameters that `row` receives."""

    @property
    @abstractmethod
    def hyperparameter_names(self) -> tuple[str, ...]:
        """Readable names of the `log_hyperparameters`, in the same order."""

    @abstractmethod
    def log_hyperparameters(self) -> np.ndarray:
        """Return the logarithms of the trainable hyper-parameters."""

    @abstractmethod
    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        """Return a kernel of the same kind with other hyper-parameters."""

    @abstractmethod
    def stretched(self, factors: np.ndarray) -> Self:
        """Return the same covariance for features that were multiplied by factors c (p,).

        The result satisfies ``stretched(c)(c x, c x') = k(x, x')``.
        """

    @abstractmethod
    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return ``sum_ij weights_ij dK_ij / d log theta`` for every log hyper-parameter (q,).

        Parameters
        ----------
        weights : (n, m)
        points : (n, p)
        covariance : (n, m)
            Noise-free covariance K between `points` and `others`.
        others : (m, p)
            None stands for `points`.
        """

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return ``sum_i weights_i dk(x_i, x_i) / d log theta`` for every log hyper-parameter.

        The weights have shape (n,), the points x have shape (n, p).
        """
        gradients = []
        for first in range(0, len(points), DIAGONAL_BLOCK_POINTS):
            rows = slice(first, first + DIAGONAL_BLOCK_POINTS)
            x = points[rows]
            gradients.append(self.contract_gradient(np.diag(weights[rows]), x, self(x, x)))
        return np.asarray(np.sum(gradients, axis=0))

    @abstractmethod
    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return ``d k(x_i, z_j) / d x_i`` (m, n, p), in target unit^2 / feature unit.

        The inputs x have shape (m, p), the points z have shape (n, p).
        """

    def gradient_covariance(self, points: np.ndarray) -> np.ndarray:
        """Return the prior covariance (n, p, p) of the partial derivatives at points (n, p).

        ``cov(df/dx_a, df/dx_b) = d^2 k(x, x') / (dx_a dx'_b)`` at ``x' = x`` (Rasmussen and
        Williams, section 9.4), in target unit^2 per product of two feature units.

        Raises
        ------
        TypeError
            The functions of this kernel have no derivative, or the kernel does not state it.
        """
        raise UserTypeError(
            f"{type(self).__name__} states no covariance of derivatives: define "
            "gradient_covariance(points), or take another kernel, such as Matern52"
        )

    @property
    def is_prototype(self) -> bool:
        """Whether this is a prototype: hyper-parameters and number of features are still open."""
        return False

    @property
    def linear_lags(self) -> tuple[int, ...]:
        """Numbers of lags of the signals of a linear part; empty without one.

        The features of the linear part are the last ones of a point, signal after signal.
        """
        return ()

    def scaled(self, factor: float) -> Self:
        """Return a kernel whose covariance is this covariance times `factor`."""
        logs = self.log_hyperparameters()
        logs[0] += np.log(factor)
        return self.with_log_hyperparameters(logs)

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        """Return a kernel of the same kind with this variance and these length scales.

        Parameters
        ----------
        variance : float
            Target unit^2.
        length_scales : (p,)
            Distances over which the functions change, in feature units.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no with_scales, which a training needs"
        )

    def search_space(self, expected: Expected) -> SearchSpace:
        """Return the starts, bounds and priors of the log hyper-parameters for a training."""
        raise NotImplementedError(
            f"{type(self).__name__} has no search_space, which a training needs"
        )

    def describe(self, features: Sequence[str]) -> dict[str, Any]:
        """Return the class and the fields as plain values for people.

        Values that belong to features become a dictionary with the name of each feature.
        """
        described = {name: self._describe(value, features) for name, value in vars(self).items()}
        return {"class": type(self).__name__} | described

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
        """Address of `row` for compiled loops; only rows of this package use the disk cache."""
        row = type(self).row
        return address(row, COVARIANCE_SIGNATURE, kept=row in SHIPPED)

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the covariance matrix (m, n) of the rows of first (m, p) and second (n, p)."""
        rows = matrix(first, self.n_features, "first")
        others = matrix(second, self.n_features, "second")
        out = np.empty((len(rows), len(others)))
        columns = np.ascontiguousarray(others.T)
        covariance_matrix(self.address, self.parameters(), columns, rows, out)
        return out

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        """Return the prior variances ``k(x, x)`` (n,) of the rows of points (n, p)."""
        out = np.empty(len(points))
        prior_variances(self.address, self.parameters(), np.ascontiguousarray(points), out)
        return out

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log prior variance at a point whose features are all 1, and its gradient.

        The gradient (q,) is with respect to the log hyper-parameters `values` (q,).
        """
        kernel = self.with_log_hyperparameters(values)
        point = np.ones((1, self.n_features))
        covariance = kernel(point, point)
        variance = covariance[0, 0]
        gradient = kernel.contract_gradient(np.ones((1, 1)), point, covariance)
        return float(np.log(variance)), gradient / variance


def read_positive(owner: object, name: str) -> tuple[float, ...]:
    """Return the numbers of a field, one or several, as a tuple.

    Raises
    ------
    ValueError
        If there are none, or one is not positive and finite. The message names class and field.
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


class PerFeatureKernel(Kernel):
    """Kernel with two fields: a variance, and one number per feature.

    In a prototype the second field is a single number, whatever the number of features.
    """

    names: ClassVar[tuple[str, str]]  # readable names of the two hyper-parameters

    def __post_init__(self) -> None:
        variance_field, numbers_field = fields(self)[:2]  # type: ignore[arg-type]
        is_single_number = np.ndim(getattr(self, numbers_field.name)) == 0
        (variance,) = read_positive(self, variance_field.name)
        numbers = read_positive(self, numbers_field.name)
        object.__setattr__(self, variance_field.name, variance)
        object.__setattr__(self, numbers_field.name, numbers[0] if is_single_number else numbers)

    @property
    def is_prototype(self) -> bool:
        _, numbers = list(vars(self).values())[:2]
        return isinstance(numbers, float) and self == type(self)()

    def _variance_and_numbers(self) -> tuple[float, tuple[float, ...]]:
        """Return the two fields; raise UserError if there is not one number per feature."""
        variance, numbers = list(vars(self).values())[:2]
        if isinstance(numbers, float):
            _, name = list(vars(self))[:2]
            raise UserError(
                f"{type(self).__name__}: {name} must be one number per feature, got {numbers} for "
                "any number of features; a training or with_scales fills in such a prototype"
            )
        return variance, numbers

    def parameters(self) -> np.ndarray:
        """Return the variance, followed by the number of each feature."""
        variance, numbers = self._variance_and_numbers()
        return np.array([variance, *numbers])

    @property
    def n_features(self) -> int:
        _, numbers = self._variance_and_numbers()
        return len(numbers)

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        variance_name, feature_name = self.names
        feature_names = [f"{feature_name} {d + 1}" for d in range(self.n_features)]
        return (variance_name, *feature_names)

    def log_hyperparameters(self) -> np.ndarray:
        """Return the logarithms of `parameters`."""
        return np.log(self.parameters())

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        variance, *numbers = np.exp(values)
        return type(self)(variance, numbers)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Stationary(PerFeatureKernel):
    """Kernel of the scaled distance r, with automatic relevance determination (ARD).

    ``k(x, x') = variance f(r)``, ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2``, ``f(0) = 1``.
    With the slope ``s = -variance f'(r) / r`` (`slope`)::

        dk / d log length_scale_d = s ((x_d - x'_d) / length_scale_d)^2
        dk / d x_d = -s (x_d - x'_d) / length_scale_d^2

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number makes a prototype for any number
        of features.
    """

    variance: float = 1.0  # target unit^2
    length_scales: Sequence[float] | np.ndarray | float = 1.0  # feature units

    names = ("signal variance", "length scale")

    @abstractmethod
    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Return ``-variance f'(r) / r`` (m, n) for the rows of first (m, p) and second (n, p).

        `covariance` (m, n) is the covariance of the same rows.
        """

    def scaled(self, factor: float) -> Self:
        return replace(self, variance=factor * self.variance)

    def stretched(self, factors: np.ndarray) -> Self:
        return type(self)(self.variance, np.asarray(self.length_scales) * factors)

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        return type(self)(variance, length_scales)

    def search_space(self, expected: Expected) -> SearchSpace:
        """Return bounds for all hyper-parameters, and a prior for the length scales."""
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
        """See `Kernel.diagonal_gradient`; only the variance has a derivative other than zero."""
        return self.variance * weights.sum() * np.eye(1, 1 + points.shape[1])[0]

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log signal variance and its gradient; they do not depend on the features."""
        return float(values[0]), np.eye(1, len(values))[0]

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`.

        With ``M = weights o s`` (element by element), and z and x the points and the others in
        units of the length scales::

            sum_ij M_ij (z_id - x_jd)^2
                = sum_i z_id^2 (M 1)_i + sum_j x_jd^2 (M'1)_j - 2 z_d' M x_d
        """
        others = points if others is None else others
        m = weights * self.slope(points, others, covariance)
        centre = points.mean(axis=0)
        scales = np.asarray(self.length_scales)
        z = (points - centre) / scales
        x = (others - centre) / scales
        squares_of_z = (z * z).T @ m.sum(axis=1)
        squares_of_x = (x * x).T @ m.sum(axis=0)
        products = np.einsum("id,id->d", z, m @ x)
        by_length_scales = squares_of_z + squares_of_x - 2.0 * products
        by_variance = np.vdot(weights, covariance)
        return np.concatenate([[by_variance], by_length_scales])

    def point_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray,
    ) -> np.ndarray:
        """Return ``sum_j weights_ij dk(z_i, x_j) / d z_i`` (n, p) of points z and others x.

        The arguments are those of `contract_gradient`.
        """
        m = weights * self.slope(points, others, covariance)
        centre = points.mean(axis=0)
        weighted = m @ (others - centre) - m.sum(axis=1)[:, None] * (points - centre)
        return np.asarray(weighted / np.square(self.length_scales))

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        x = matrix(inputs, self.n_features, "inputs")
        z = matrix(points, self.n_features, "points")
        difference = (z[None, :, :] - x[:, None, :]) / np.square(self.length_scales)
        slope = self.slope(x, z, self(x, z))
        return np.asarray(slope[:, :, None] * difference)

    def gradient_covariance(self, points: np.ndarray) -> np.ndarray:
        """See `Kernel.gradient_covariance`; it is ``s(0) / length_scale_d^2`` on the diagonal."""
        x = matrix(points, self.n_features, "points")
        origin = np.zeros((1, self.n_features))
        slope = float(self.slope(origin, origin, np.full((1, 1), self.variance))[0, 0])
        return np.tile(np.diag(slope / np.square(self.length_scales)), (len(x), 1, 1))

    def weighted_gradient(
        self,
        inputs: np.ndarray,
        points: np.ndarray,
        weights: np.ndarray,
        covariance: np.ndarray,
    ) -> np.ndarray:
        """Return ``sum_j weights_j d k(x_i, z_j) / d x_i`` (m, p).

        This is the gradient of a function that is a weighted sum of kernels. The inputs x have
        shape (m, p), the points z shape (n, p), the weights (n,); `covariance` is k(x, z) (m, n).
        """
        x = matrix(inputs, self.n_features, "inputs")
        z = matrix(points, self.n_features, "points")
        gradient = np.empty(x.shape)
        centre = z.mean(axis=0)
        points_and_one = weights[:, None] * np.column_stack([z - centre, np.ones(len(z))])
        for first in range(0, len(x), GRADIENT_BLOCK_ROWS):
            rows = slice(first, first + GRADIENT_BLOCK_ROWS)
            moments = self.slope(x[rows], z, covariance[rows]) @ points_and_one
            sums_of_points = moments[:, :-1]
            sums_of_weights = moments[:, -1:]
            gradient[rows] = sums_of_points - sums_of_weights * (x[rows] - centre)
        return np.asarray(gradient / np.square(self.length_scales))

    def distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the scaled distances r (m, n) of the rows of first (m, p) and second (n, p)."""
        out = np.zeros((len(first), len(second)))
        _add_squares(
            np.ascontiguousarray(first),
            np.ascontiguousarray(second.T),
            np.asarray(self.length_scales),
            out,
        )
        return np.sqrt(out, out=out)


@cached_njit(nogil=True, error_model="numpy")
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
    """Squared exponential kernel with automatic relevance determination (section 2 of the paper).

    ``k(x, x') = variance exp(-0.5 sum_d ((x_d - x'_d) / length_scale_d)^2)``

    Parameters
    ----------
    variance : float
        Signal variance sf2 > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number makes a prototype for any number
        of features.
    """

    row = staticmethod(compiled_kernels.squared_exponential)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Return the covariance itself, which equals the slope."""
        return covariance


@dataclass(frozen=True)
class Matern32(Stationary):
    """Matern kernel of smoothness 3/2 with automatic relevance determination.

    Its functions have one derivative. With ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2``
    (Rasmussen and Williams, equation 4.17)::

        k(x, x') = variance (1 + sqrt(3) r) exp(-sqrt(3) r)
        -f'(r) / r = 3 exp(-sqrt(3) r)

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number makes a prototype for any number
        of features.
    """

    row = staticmethod(compiled_kernels.matern_32)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Return ``3 variance exp(-sqrt(3) r) = 3 k / (1 + sqrt(3) r)``."""
        return np.asarray(3.0 * covariance / (1.0 + sqrt(3.0) * self.distances(first, second)))


@dataclass(frozen=True)
class Matern52(Stationary):
    """Matern kernel of smoothness 5/2 with automatic relevance determination.

    Its functions have two derivatives. With ``a = sqrt(5) r`` and
    ``r^2 = sum_d ((x_d - x'_d) / length_scale_d)^2`` (Rasmussen and Williams, equation 4.17)::

        k(x, x') = variance (1 + a + a^2 / 3) exp(-a)
        -f'(r) / r = 5 / 3 (1 + a) exp(-a)

    Parameters
    ----------
    variance : float
        Signal variance > 0, unit of the target squared.
    length_scales : sequence of float
        One per feature, > 0, unit of the feature. A single number makes a prototype for any number
        of features.
    """

    row = staticmethod(compiled_kernels.matern_52)

    def slope(self, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Return ``5 / 3 variance (1 + a) exp(-a) = 5 k / (3 + a^2 / (1 + a))``, a = sqrt(5) r."""
        a = self.distances(first, second)
        a *= sqrt(5.0)
        return np.asarray(5.0 * covariance / (3.0 + a * a / (1.0 + a)))


@dataclass(frozen=True)
class Linear(PerFeatureKernel):
    """Linear trend ``f(x) = b + w'x`` with random coefficients.

    The coefficients are ``b ~ N(0, offset_variance)`` and ``w_d ~ N(0, weight_variance_d)``, so
    that ``k(x, x') = offset_variance + sum_d weight_variance_d x_d x'_d`` (Rasmussen and Williams,
    section 4.2.2). They are integrated out: as far as the data do not determine them, they add to
    the predicted variance, which grows with the square of the distance from the origin.

    Parameters
    ----------
    offset_variance : float
        > 0, unit of the target squared.
    weight_variances : sequence of float
        One per feature, > 0, unit of the target squared per unit of the feature squared. A single
        number makes a prototype for any number of features.
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
        """Return a trend whose offset, and whose change over each length, have this variance."""
        return type(self)(variance, variance / np.square(length_scales))

    def search_space(self, expected: Expected) -> SearchSpace:
        """Return bounds and priors for all hyper-parameters; the search starts from the medians.

        The median of the offset variance is the expected variance.
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
        """Return ``offset_variance + sum_d weight_variance_d x_d^2`` (n,)."""
        weight_variances = np.asarray(self.weight_variances)
        return np.asarray(self.offset_variance + np.square(points) @ weight_variances)

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.diagonal_gradient`; the terms of `diagonal` are their own derivatives."""
        by_offset = self.offset_variance * weights.sum()
        by_weights = weights @ np.square(points) * np.asarray(self.weight_variances)
        return np.append(by_offset, by_weights)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return ``log(offset_variance + sum_d weight_variance_d)`` and its gradient."""
        total = float(np.logaddexp.reduce(values))
        return total, np.exp(values - total)

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`.

        ``dK / d log weight_variance_d = weight_variance_d x_d x_d'``.
        """
        others = points if others is None else others
        weighted = weights @ others
        by_offset = self.offset_variance * weights.sum()
        by_weights = np.einsum("id,id->d", points, weighted) * np.asarray(self.weight_variances)
        return np.append(by_offset, by_weights)

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`; it is ``weight_variance_d z_d`` for every x."""
        x = matrix(inputs, self.n_features, "inputs")
        z = matrix(points, self.n_features, "points")
        return np.tile(np.asarray(self.weight_variances) * z, (len(x), 1, 1))

    def gradient_covariance(self, points: np.ndarray) -> np.ndarray:
        """See `Kernel.gradient_covariance`; it is that of the coefficients."""
        x = matrix(points, self.n_features, "points")
        return np.tile(np.diag(self.weight_variances), (len(x), 1, 1))


@dataclass(frozen=True)
class CompositeKernel(Kernel):
    """Kernel that combines at least two kernels of the same features.

    The parts may be composite kernels themselves.

    Parameters
    ----------
    parts : sequence of Kernel
        Either prototypes, or kernels with hyper-parameters.
    """

    parts: Sequence[Kernel]

    row = staticmethod(compiled_kernels.composition)
    code: ClassVar[int]  # code of the instruction that joins two parts

    def __post_init__(self) -> None:
        parts = tuple(self.parts) if isinstance(self.parts, Sequence) else (self.parts,)
        name = type(self).__name__
        for part in parts:
            if not isinstance(part, Kernel):
                raise UserTypeError(f"{name}: parts must be instances of Kernel, got {part!r}")
            if not callable(getattr(type(part), "row", None)):
                raise UserTypeError(
                    f"{name}: parts must have a compiled row, got {part!r}; give a linear part to "
                    "the whole kernel, WithLinearPart(kernel, linear)"
                )
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
        extra_rows = self._extra_rows()
        if not extra_rows:
            return address(compiled_kernels.composition, COVARIANCE_SIGNATURE, kept=True)
        row = compiled_kernels.composition_with(extra_rows)
        return address(row, COVARIANCE_SIGNATURE, kept=False)

    def _extra_rows(self) -> tuple[Callable[..., None], ...]:
        """Return each row once that occurs at any depth but is not among `SHIPPED`."""
        rows: dict[Callable[..., None], None] = {}  # a set that keeps the order
        for part in self.parts:
            if isinstance(part, CompositeKernel):
                rows |= dict.fromkeys(part._extra_rows())
            elif type(part).row not in SHIPPED:
                rows[type(part).row] = None
        return tuple(rows)

    def parameters(self) -> np.ndarray:
        """Return the program that `sysid.gp.compiled_kernels.composition` runs."""
        instructions = self._instructions(SHIPPED + self._extra_rows())
        n_numbers = 2 + sum(len(instruction) for instruction in instructions)
        n_stack_rows = (len(instructions) + 1) // 2  # every row but the first is joined once
        return np.concatenate([[n_numbers, n_stack_rows], *instructions])

    def _instructions(self, rows: Sequence[Callable[..., None]]) -> list[list[float]]:
        """Return the instructions of all parts, where every part but the first is joined.

        The code of a part is the position of its row among `rows`.
        """
        instructions: list[list[float]] = []
        for i, part in enumerate(self.parts):
            if isinstance(part, CompositeKernel):
                instructions += part._instructions(rows)
            else:
                numbers = part.parameters()
                instructions.append([rows.index(type(part).row), len(numbers), *numbers])
            if i > 0:
                instructions.append([self.code, 0])
        return instructions

    @property
    def hyperparameter_names(self) -> tuple[str, ...]:
        """Names of the hyper-parameters of each part in turn."""
        return tuple(
            f"part {i + 1}: {name}"
            for i, part in enumerate(self.parts)
            for name in part.hyperparameter_names
        )

    def log_hyperparameters(self) -> np.ndarray:
        """Return the log hyper-parameters of each part in turn."""
        return np.concatenate([part.log_hyperparameters() for part in self.parts])

    def with_log_hyperparameters(self, values: np.ndarray) -> Self:
        return type(self)(
            [part.with_log_hyperparameters(numbers) for part, numbers in self.split(values)]
        )

    def split(self, values: np.ndarray) -> Iterator[tuple[Kernel, np.ndarray]]:
        """Return pairs of each part and its log hyper-parameters."""
        ends = np.cumsum([len(part.hyperparameter_names) for part in self.parts])
        return zip(self.parts, np.split(values, ends[:-1]), strict=True)

    def stretched(self, factors: np.ndarray) -> Self:
        return type(self)([part.stretched(factors) for part in self.parts])


@dataclass(frozen=True)
class Sum(CompositeKernel):
    """``k(x, x') = sum_i k_i(x, x')``: the covariance of a sum of independent functions.

    An example is a trend and the deviation from it.

    Parameters
    ----------
    parts : sequence of Kernel
        At least two: kernels of the same features, or prototypes.
    """

    code = ADD

    def scaled(self, factor: float) -> Self:
        return type(self)([part.scaled(factor) for part in self.parts])

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        """Return parts that have these length scales and share the variance equally."""
        variance_of_part = variance / len(self.parts)
        return type(self)(
            [part.with_scales(variance_of_part, length_scales) for part in self.parts]
        )

    def search_space(self, expected: Expected) -> SearchSpace:
        """Return the spaces of the parts, which start from equal fractions of the variance.

        The bounds of each part are those of the whole variance.
        """
        of_part = expected._replace(variance=expected.variance / len(self.parts))
        return SearchSpace.join([part.search_space(of_part) for part in self.parts])

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        return np.sum([part.diagonal(points) for part in self.parts], axis=0)

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.diagonal_gradient`; each part has its own hyper-parameters."""
        return np.concatenate([part.diagonal_gradient(weights, points) for part in self.parts])

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        logs = []
        gradients = []
        for part, numbers in self.split(values):
            log, gradient = part.log_variance(numbers)
            logs.append(log)
            gradients.append(gradient)
        total = float(np.logaddexp.reduce(logs))
        fractions = [np.exp(log - total) for log in logs]
        return total, np.concatenate(
            [fraction * gradient for fraction, gradient in zip(fractions, gradients, strict=True)]
        )

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

    def gradient_covariance(self, points: np.ndarray) -> np.ndarray:
        return np.sum([part.gradient_covariance(points) for part in self.parts], axis=0)


@dataclass(frozen=True)
class Product(CompositeKernel):
    """``k(x, x') = prod_i k_i(x, x')``, the product of the covariances of its parts.

    With a linear part it describes a trend whose coefficients change over the features.

    A training gives the first part the unit of the covariance; the other parts are dimensionless.
    Only the product of the scales of all parts matters. The training therefore fixes the first
    hyper-parameter of each other part, which scales that part, at 1.

    Parameters
    ----------
    parts : sequence of Kernel
        At least two: kernels of the same features, or prototypes. The product of their variances
        has the unit of the target squared.
    """

    code = MULTIPLY

    def scaled(self, factor: float) -> Self:
        return type(self)([self.parts[0].scaled(factor), *self.parts[1:]])

    def with_scales(self, variance: float, length_scales: np.ndarray) -> Self:
        """Return parts with these length scales; the first gets the variance, the others get 1."""
        first, *others = self.parts
        filled = [part.with_scales(1.0, length_scales) for part in others]
        return type(self)([first.with_scales(variance, length_scales), *filled])

    def search_space(self, expected: Expected) -> SearchSpace:
        first, *others = self.parts
        fixed = [part.search_space(expected.without_unit()).fix_first() for part in others]
        return SearchSpace.join([first.search_space(expected), *fixed])

    def diagonal(self, points: np.ndarray) -> np.ndarray:
        return np.prod([part.diagonal(points) for part in self.parts], axis=0)

    def diagonal_gradient(self, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.diagonal_gradient`; this is the product rule."""
        variances = [part.diagonal(points) for part in self.parts]
        gradients = []
        for i, part in enumerate(self.parts):
            weights_of_part = weights * _multiply_others(variances, i)
            gradients.append(part.diagonal_gradient(weights_of_part, points))
        return np.concatenate(gradients)

    def log_variance(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        logs = []
        gradients = []
        for part, numbers in self.split(values):
            log, gradient = part.log_variance(numbers)
            logs.append(log)
            gradients.append(gradient)
        return float(np.sum(logs)), np.concatenate(gradients)

    def contract_gradient(
        self,
        weights: np.ndarray,
        points: np.ndarray,
        covariance: np.ndarray,
        others: np.ndarray | None = None,
    ) -> np.ndarray:
        """See `Kernel.contract_gradient`.

        ``dK / d theta_i = dK_i / d theta_i prod_(l != i) K_l``.
        """
        x = points if others is None else others
        covariances = [part(points, x) for part in self.parts]
        gradients = []
        for i, part in enumerate(self.parts):
            weights_of_part = weights * _multiply_others(covariances, i)
            gradients.append(part.contract_gradient(weights_of_part, points, covariances[i], x))
        return np.concatenate(gradients)

    def input_gradient(self, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
        """See `Kernel.input_gradient`; this is the product rule."""
        covariances = [part(inputs, points) for part in self.parts]
        terms = []
        for i, part in enumerate(self.parts):
            other_factors = _multiply_others(covariances, i)[:, :, None]
            terms.append(other_factors * part.input_gradient(inputs, points))
        return np.sum(terms, axis=0)

    def gradient_covariance(self, points: np.ndarray) -> np.ndarray:
        """See `Kernel.gradient_covariance`; this is the product rule, once for x, once for x'."""
        variances = [part.diagonal(points) for part in self.parts]
        slopes = []
        for part in self.parts:
            # dk(x, x') / dx at x' = x, which is dk(x, x') / dx' there because k is symmetric
            of_part = [part.input_gradient(x[None], x[None])[0, 0] for x in points]
            slopes.append(np.array(of_part))
        total = np.zeros((len(points), self.n_features, self.n_features))
        for i, part in enumerate(self.parts):
            factor = _multiply_others(variances, i)
            total += factor[:, None, None] * part.gradient_covariance(points)
            for j in range(len(self.parts)):
                if j != i:
                    others = [v for n, v in enumerate(variances) if n not in (i, j)]
                    factor = np.prod([np.ones(len(points)), *others], axis=0)
                    product = slopes[i][:, :, None] * slopes[j][:, None, :]
                    total += factor[:, None, None] * product
        return total


def _multiply_others(factors: list[np.ndarray], i: int) -> np.ndarray:
    """Return the product of all factors but the i-th, without dividing: factors may be 0."""
    return np.prod(factors[:i] + factors[i + 1 :], axis=0)
