"""Mean functions: what is subtracted from the target before the GP sees it."""

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


# of a central difference, relative to the size of the feature: cube root of the rounding [-]
STEP = 6e-6


class LinearFit(NamedTuple):
    """``t = intercept + x @ coefficients``."""

    coefficients: Array  # (p,), unit of the target per unit of the feature
    intercept: float  # unit of the target
    rank: int  # of the standardised features (n, p)
    condition: float  # largest over smallest singular value of these; infinite below full rank [-]


def linear_fit(x: Array, t: Array, *, ridge: float = 0.0, intercept: bool = True) -> LinearFit:
    """Least squares of targets (n,) on features (n, p).

    Minimises ``mean((t - c - theta' x)^2) + ridge |scale theta|^2``. Below full rank ``|scale
    theta|`` is the smallest possible: features that do not vary, and directions that the samples do
    not excite, get no weight.

    Parameters
    ----------
    x, t
        Samples (n, p), (n,).
    ridge
        Penalty on the coefficients of the standardised features, at least 0 [-].
    intercept
        Whether c is estimated; else c = 0, and features are not centred, but scaled by their root
        mean square.

    Raises
    ------
    ValueError
        A negative or infinite ridge.

    Examples
    --------
    >>> fit = linear_fit(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> np.round(fit.coefficients, 12), round(fit.intercept, 12)
    (array([2.]), 1.0)
    """
    if not 0 <= ridge < inf:
        raise UserError(f"linear_fit(ridge={ridge!r}): expected a finite number >= 0; change ridge")
    scaling = AffineMap.fit(x) if intercept else _root_mean_square(x)
    z = scaling.transform(x)
    z[:, list(scaling.constant)] = 0.0  # rounding of a constant explains nothing
    mean = float(t.mean()) if intercept else 0.0
    U, s, Vt = np.linalg.svd(z, full_matrices=False)
    rank = int(np.count_nonzero(s > np.finfo(float).eps * max(z.shape) * s[0]))
    kept = s[:rank]
    weights = Vt[:rank].T @ (kept / (kept**2 + len(t) * ridge) * (U[:, :rank].T @ (t - mean)))
    theta = weights / scaling.scale
    condition = float(s[0] / s[-1]) if rank == z.shape[1] else inf
    return LinearFit(theta, mean - float(theta @ scaling.offset), rank, condition)


def _root_mean_square(x: Array) -> AffineMap:
    size = np.sqrt(np.mean(x**2, axis=0))
    return AffineMap(np.zeros(x.shape[1]), np.where(size > 0, size, 1.0))


class MeanFunction(ABC):
    """Prior mean m(x) of a target: the Gaussian process describes ``target - m(x)``.

    A frozen dataclass of numbers, so that a model file can name and rebuild it. Features and target
    are in their own units. What is known beforehand, such as a balance of energy, is a subclass of
    the user's own:

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

    def gradient(self, regressors: Array) -> Array:
        """``dm/dx`` (n, p) at regressors (n, p); by central differences unless a mean function
        knows better.
        """
        slopes = np.empty(regressors.shape)
        for d in range(regressors.shape[1]):
            step = STEP * np.maximum(np.abs(regressors[:, d]), 1.0)
            shift = np.outer(step, np.arange(regressors.shape[1]) == d)
            above = regressors + shift
            below = regressors - shift
            slopes[:, d] = (self(above) - self(below)) / (above[:, d] - below[:, d])
        return slopes

    def fitted(self, regressors: Array, targets: Array) -> MeanFunction:
        """Mean function of this kind for training samples (n, p), (n,); itself if nothing of it is
        estimated.
        """
        return self

    def fitted_to_record(self, regressors: Array, targets: Array) -> MeanFunction:
        """Mean function for all samples (n, p), (n,) of a record that is known as a whole."""
        return self.fitted(regressors, targets)

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
            raise UserError(
                f"{self}: expected a mean of {n_features} features, it asks for more ({error})"
            ) from error
        if shape != (2,):
            raise UserError(
                f"{self}: expected a mean (n,) of regressors (n, {n_features}), got {shape} for n = 2"
            )


@dataclass(frozen=True)
class ZeroMean(MeanFunction):
    """``m(x) = 0``: the target is taken as it is."""

    def __call__(self, regressors: Array) -> Array:
        """Zeros (n,)."""
        return np.zeros(len(regressors))

    def gradient(self, regressors: Array) -> Array:
        """Zeros (n, p)."""
        return np.zeros(regressors.shape)


@dataclass(frozen=True)
class ConstantMean(MeanFunction):
    """``m(x) = value``; fitted, it is the mean of the training targets, as the paper centres them.

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
        return (
            np.zeros(len(regressors)) + self.value
        )  # numpy.full takes twice as long for the one row of a live sample

    def gradient(self, regressors: Array) -> Array:
        """Zeros (n, p)."""
        return np.zeros(regressors.shape)

    def fitted(self, regressors: Array, targets: Array) -> ConstantMean:
        """Return a constant mean function at the mean of the targets."""
        return ConstantMean(float(targets.mean()))


@dataclass(frozen=True)
class AutomaticMean(ConstantMean):
    """A linear trend on a record that is known as a whole, if it helps; on a stream the mean of the
    first samples.

    The first samples of a stream cover a small part of what it will visit: a trend of theirs leads
    astray. On a record the linear model of all samples is what a Gaussian process must beat, and
    what it starts from. It helps if it lowers the mean squared error, each estimated for new
    samples by the factor ``(n + p) / (n - p)`` of p coefficients.

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
        left = np.mean((targets - linear(regressors)) ** 2)
        return (
            linear
            if left * (n + p) / (n - p) < np.var(targets)
            else self.fitted(regressors, targets)
        )


@dataclass(frozen=True)
class LinearMean(MeanFunction):
    """``m(x) = intercept + coefficients' x``: on the lags of a NARX, a linear ARX model.

    The Gaussian process then describes what the linear model leaves. Coefficients that are given
    stay; without any they are fitted by least squares on the training samples. Either way they
    count as certain; a `sysid.Linear` kernel integrates them out instead.

    Examples
    --------
    >>> mean = LinearMean().fitted(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> np.round(mean(np.array([[10.0]])), 9)
    array([21.])
    """

    coefficients: Sequence[
        float
    ] = ()  # target unit per unit of the feature; empty: not yet estimated, zeros
    intercept: float = 0.0  # target unit
    ridge: float = 0.0  # penalty on the coefficients of the standardised features [-]

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "coefficients",
            listed_numbers(self.coefficients, "LinearMean: coefficients"),
        )
        object.__setattr__(self, "intercept", float(self.intercept))
        if not np.isfinite([*self.coefficients, self.intercept]).all():
            raise UserError(
                f"LinearMean: expected finite numbers, got {self.coefficients} and {self.intercept}"
            )
        if not 0 <= self.ridge < inf:
            raise UserError(f"LinearMean: ridge must be a finite number >= 0, got {self.ridge!r}")

    def __call__(self, regressors: Array) -> Array:
        """``intercept + coefficients' x``, (n,)."""
        if not self.coefficients:
            return np.full(len(regressors), self.intercept)
        return np.asarray(self.intercept + (regressors * np.asarray(self.coefficients)).sum(axis=1))

    def gradient(self, regressors: Array) -> Array:
        """Return the coefficients for every row (n, p)."""
        return np.full(regressors.shape, self.coefficients or 0.0)

    def fitted(self, regressors: Array, targets: Array) -> LinearMean:
        """Least squares with intercept on the samples (n, p), (n,), see `linear_fit`; given
        coefficients stay.
        """
        if self.coefficients:
            return self
        fit = linear_fit(regressors, targets, ridge=self.ridge)
        return LinearMean(fit.coefficients.tolist(), fit.intercept, self.ridge)

    def check(self, n_features: int) -> None:
        """Refuse another number of features than of coefficients."""
        if self.coefficients and len(self.coefficients) != n_features:
            raise UserError(
                f"LinearMean: expected {n_features} coefficients, one per feature, got {len(self.coefficients)}"
            )
