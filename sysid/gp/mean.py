"""Mean functions: prior means that are subtracted from the target, so that a GP models the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.arrays import listed_numbers
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap

Array = NDArray[np.float64]


#: Relative step of a central difference: cube root of the rounding error [-]
DIFFERENCE_STEP = 6e-6


class LinearFit(NamedTuple):
    """Linear function ``t = intercept + x @ coefficients`` that was fitted to samples."""

    coefficients: Array  # (p,), unit of the target per unit of the feature
    intercept: float  # unit of the target
    rank: int  # of the standardised features (n, p)
    #: largest over smallest singular value of the standardised features [-], or infinite
    #: below full rank
    condition: float


def linear_fit(x: Array, t: Array, *, ridge: float = 0.0, intercept: bool = True) -> LinearFit:
    """Fit targets (n,) to features (n, p) by least squares.

    The fit minimises ``mean((t - c - theta' x)^2) + ridge |scale theta|^2``. Below full rank it is
    the one with the smallest ``|scale theta|``: features that do not vary, and directions that the
    samples do not excite, get no weight.

    Parameters
    ----------
    x, t
        Samples (n, p), (n,).
    ridge
        Penalty on the coefficients of the standardised features, at least 0 [-].
    intercept
        Whether c is estimated. If not, c = 0, and the features are scaled by their root mean square
        and not centred.

    Raises
    ------
    ValueError
        If the ridge is negative or infinite.

    Examples
    --------
    >>> fit = linear_fit(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> np.round(fit.coefficients, 12), round(fit.intercept, 12)
    (array([2.]), 1.0)
    """
    if not 0 <= ridge < inf:
        raise UserError(f"linear_fit(ridge={ridge!r}): expected a finite number >= 0; change ridge")
    scaling = AffineMap.fit(x) if intercept else _scale_by_root_mean_square(x)
    z = scaling.transform(x)
    z[:, list(scaling.constant)] = 0.0  # a constant feature varies by rounding errors only
    mean = float(t.mean()) if intercept else 0.0
    U, s, Vt = np.linalg.svd(z, full_matrices=False)
    least_singular_value = np.finfo(float).eps * max(z.shape) * s[0]
    rank = int(np.count_nonzero(s > least_singular_value))
    kept = s[:rank]
    filters = kept / (kept**2 + len(t) * ridge)
    standardised_coefficients = Vt[:rank].T @ (filters * (U[:, :rank].T @ (t - mean)))
    theta = standardised_coefficients / scaling.scale
    has_full_rank = rank == z.shape[1]
    condition = float(s[0] / s[-1]) if has_full_rank else inf
    return LinearFit(theta, mean - float(theta @ scaling.offset), rank, condition)


def _scale_by_root_mean_square(x: Array) -> AffineMap:
    """Return a map that divides each feature by its root mean square."""
    size = np.sqrt(np.mean(x**2, axis=0))
    return AffineMap(np.zeros(x.shape[1]), np.where(size > 0, size, 1.0))


class MeanFunction(ABC):
    """Prior mean m(x) of a target: the Gaussian process describes ``target - m(x)``.

    A mean function is a frozen dataclass of numbers, so that a model file can name and rebuild it.
    Features and target are in their own units. Prior knowledge, such as an energy balance, goes
    into a subclass:

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
        """Return the mean (n,) of the target at regressors (n, p)."""

    def gradient(self, regressors: Array) -> Array:
        """Return ``dm/dx`` (n, p) at regressors (n, p).

        The default uses central differences; a subclass may override it.
        """
        n_features = regressors.shape[1]
        slopes = np.empty(regressors.shape)
        for d in range(n_features):
            step = DIFFERENCE_STEP * np.maximum(np.abs(regressors[:, d]), 1.0)
            shift = np.outer(step, np.arange(n_features) == d)
            above = regressors + shift
            below = regressors - shift
            slopes[:, d] = (self(above) - self(below)) / (above[:, d] - below[:, d])
        return slopes

    def fitted(self, regressors: Array, targets: Array) -> MeanFunction:
        """Return a mean function of this kind, fitted to training samples (n, p), (n,).

        It is the same object if nothing is estimated.
        """
        return self

    def fitted_to_record(self, regressors: Array, targets: Array) -> MeanFunction:
        """Return a mean function fitted to all samples (n, p), (n,) of a whole record."""
        return self.fitted(regressors, targets)

    def check(self, n_features: int) -> None:
        """Raise UserError unless this mean function can be evaluated for `n_features` features.

        Raises
        ------
        ValueError
            If it needs more features, or does not return one number per regressor.
        """
        try:
            shape = np.shape(self(np.zeros((2, n_features))))
        except IndexError as error:
            raise UserError(
                f"{self}: expected a mean of {n_features} features, but it uses more ({error})"
            ) from error
        if shape != (2,):
            raise UserError(
                f"{self}: expected a mean (n,) of regressors (n, {n_features}), got {shape} for "
                "n = 2"
            )


@dataclass(frozen=True)
class ZeroMean(MeanFunction):
    """``m(x) = 0``: the target is not changed."""

    def __call__(self, regressors: Array) -> Array:
        """Return zeros (n,)."""
        return np.zeros(len(regressors))

    def gradient(self, regressors: Array) -> Array:
        """Return zeros (n, p)."""
        return np.zeros(regressors.shape)


@dataclass(frozen=True)
class ConstantMean(MeanFunction):
    """``m(x) = value``; a fit takes the mean of the training targets, as the paper does.

    Examples
    --------
    >>> ConstantMean().fitted(np.zeros((2, 1)), np.array([1.0, 2.0]))
    ConstantMean(value=1.5)
    """

    value: float = 0.0  # target unit

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        if not np.isfinite(self.value):
            raise UserError(f"ConstantMean: value must be finite, got {self.value}")

    def __call__(self, regressors: Array) -> Array:
        """Return the value for every row (n,)."""
        # numpy.full takes twice as long for the single row of a live sample.
        return np.zeros(len(regressors)) + self.value

    def gradient(self, regressors: Array) -> Array:
        """Return zeros (n, p)."""
        return np.zeros(regressors.shape)

    def fitted(self, regressors: Array, targets: Array) -> ConstantMean:
        """Return a constant mean function whose value is the mean of the targets."""
        return ConstantMean(float(targets.mean()))


def constant_of(mean: MeanFunction) -> float | None:
    """Return the constant that a mean function is; None: it depends on the features."""
    formula = type(mean).__call__
    if formula is ZeroMean.__call__:
        return 0.0
    if isinstance(mean, ConstantMean) and formula is ConstantMean.__call__:
        return 0.0 + mean.value
    return None


@dataclass(frozen=True)
class AutomaticMean(ConstantMean):
    """Linear trend on a record that is known as a whole, if it helps; otherwise a constant.

    On a stream it is the mean of the first samples. They cover only a small part of the region that
    the stream visits later, so that their trend would be misleading. On a record, a Gaussian
    process must predict better than the linear model of all samples, and starts from it. The linear
    model helps if it lowers the mean squared error. The error that p coefficients have on new
    samples is estimated by the factor ``(n + p) / (n - p)``.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> np.round(AutomaticMean().fitted_to_record(x, 1.0 + 2.0 * x[:, 0]).coefficients, 9)
    array([2.])
    """

    def fitted_to_record(self, regressors: Array, targets: Array) -> MeanFunction:
        n, p = regressors.shape
        if n <= p + 1:
            return self.fitted(regressors, targets)
        linear = LinearMean().fitted(regressors, targets)
        mean_squared_error = np.mean((targets - linear(regressors)) ** 2)
        if mean_squared_error * (n + p) / (n - p) < np.var(targets):
            return linear
        return self.fitted(regressors, targets)


@dataclass(frozen=True)
class LinearMean(MeanFunction):
    """``m(x) = intercept + coefficients' x``; on the lags of a NARX, this is a linear ARX model.

    The Gaussian process then describes what the linear model does not explain. Given coefficients
    are kept; without any, they are fitted by least squares on the training samples. In both cases
    they count as certain. A `sysid.Linear` kernel integrates the coefficients out instead.

    Examples
    --------
    >>> mean = LinearMean().fitted(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> np.round(mean(np.array([[10.0]])), 9)
    array([21.])
    """

    #: target unit per unit of the feature; empty: not estimated yet, zeros
    coefficients: Sequence[float] = ()
    intercept: float = 0.0  # target unit
    ridge: float = 0.0  # penalty on the coefficients of the standardised features [-]

    def __post_init__(self) -> None:
        coefficients = listed_numbers(self.coefficients, "LinearMean: coefficients")
        object.__setattr__(self, "coefficients", coefficients)
        object.__setattr__(self, "intercept", float(self.intercept))
        if not np.isfinite([*self.coefficients, self.intercept]).all():
            raise UserError(
                "LinearMean: coefficients and intercept must be finite numbers, got "
                f"{self.coefficients} and {self.intercept}"
            )
        if not 0 <= self.ridge < inf:
            raise UserError(f"LinearMean: ridge must be a finite number >= 0, got {self.ridge!r}")

    def __call__(self, regressors: Array) -> Array:
        """Return ``intercept + coefficients' x`` (n,)."""
        if not self.coefficients:
            return np.full(len(regressors), self.intercept)
        return np.asarray(self.intercept + (regressors * np.asarray(self.coefficients)).sum(axis=1))

    def gradient(self, regressors: Array) -> Array:
        """Return the coefficients for every row (n, p)."""
        if not self.coefficients:
            return np.full(regressors.shape, 0.0)
        return np.full(regressors.shape, self.coefficients)

    def fitted(self, regressors: Array, targets: Array) -> LinearMean:
        """Return this mean if coefficients are given, else the least squares fit with intercept.

        The samples are (n, p), (n,); see `linear_fit`.
        """
        if self.coefficients:
            return self
        fit = linear_fit(regressors, targets, ridge=self.ridge)
        return LinearMean(fit.coefficients.tolist(), fit.intercept, self.ridge)

    def check(self, n_features: int) -> None:
        """Raise UserError unless there is one coefficient per feature, or none."""
        if self.coefficients and len(self.coefficients) != n_features:
            raise UserError(
                f"LinearMean: expected {n_features} coefficients, one per feature, "
                f"got {len(self.coefficients)}"
            )
