"""Static test functions of two inputs, with their minima and gradients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from simulators.errors import UserError
from simulators.settings import Array, read_real


class StaticFunction(ABC):
    """The role of a static function ``y = f(x1, x2)``; everything is dimensionless.

    It may be evaluated outside its domain. Calls and `gradient` raise TypeError unless they are
    given real numbers, ValueError unless the last axis has length 2 and all numbers are finite.
    """

    name: ClassVar[str]
    lower: ClassVar[tuple[float, float]]  # lower bounds of the domain
    upper: ClassVar[tuple[float, float]]  # upper bounds of the domain
    minimum: ClassVar[float]  # smallest value in the domain
    # all points of the domain with the smallest value
    minimisers: ClassVar[tuple[tuple[float, float], ...]]

    @abstractmethod
    def value(self, x1: Array, x2: Array) -> Array:
        """Return f at inputs of any one shape."""

    @abstractmethod
    def slopes(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        """Return the two partial derivatives of f at inputs of any one shape."""

    def __call__(self, x: ArrayLike) -> Array:
        """Return f (...) at points (..., 2)."""
        x = _read_points(self, x)
        return np.asarray(self.value(x[..., 0], x[..., 1]))

    def gradient(self, x: ArrayLike) -> Array:
        """Return (df/dx1, df/dx2), shape (..., 2), at points (..., 2)."""
        x = _read_points(self, x)
        return np.stack(self.slopes(x[..., 0], x[..., 1]), axis=-1)

    def to_dataset(self, x: ArrayLike) -> xr.Dataset:
        """Return a static record: rows that are independent of each other, in the order given.

        Parameters
        ----------
        x : (n, 2) array_like
            Points, for example of a `simulators.Sampling`.

        Returns
        -------
        xarray.Dataset
            Variables x1, x2 and y (time,); ``time`` counts the rows. Attributes: name, static = 1,
            sampling_time = 1 and initialisation_window = 0 [rows].

        Raises
        ------
        TypeError, ValueError
            As for a call of the function; also if x has another shape or no rows.
        """
        x = _read_points(self, x)
        if x.ndim != 2 or not len(x):
            raise UserError(
                f"{type(self).__name__}: expected points of shape (n, 2), n >= 1, got {x.shape}"
            )
        x1, x2 = np.ascontiguousarray(x.T)
        columns = {
            "x1": (x1, "first input"),
            "x2": (x2, "second input"),
            "y": (self(x), f"{self.name} function"),
        }
        variables = {
            name: ("time", column, {"units": "1", "long_name": meaning})
            for name, (column, meaning) in columns.items()
        }
        rows = (
            "time",
            np.arange(len(x), dtype=np.float64),
            {"units": "1", "long_name": "number of the row"},
        )
        attributes = {
            "name": self.name,
            "static": 1,
            "sampling_time": 1.0,
            "initialisation_window": 0,
        }
        return xr.Dataset(variables, coords={"time": rows}, attrs=attributes)


@dataclass(frozen=True)
class Himmelblau(StaticFunction):
    """Four equal minima: ``f = (x1^2 + x2 - 11)^2 + (x1 + x2^2 - 7)^2`` on [-4, 4]^2.

    Himmelblau, Applied Nonlinear Programming (1972).

    Examples
    --------
    >>> float(Himmelblau()([3.0, 2.0])), float(Himmelblau()([0.0, 0.0]))
    (0.0, 170.0)
    """

    name: ClassVar = "Himmelblau"
    lower: ClassVar = (-4.0, -4.0)
    upper: ClassVar = (4.0, 4.0)
    minimum: ClassVar = 0.0
    minimisers: ClassVar = (
        (3.0, 2.0),
        (-2.805118086952745, 3.131312518250573),
        (-3.779310253377747, -3.283185991286169),
        (3.5844283403304917, -1.8481265269644034),
    )

    def value(self, x1: Array, x2: Array) -> Array:
        """Return ``(x1^2 + x2 - 11)^2 + (x1 + x2^2 - 7)^2``."""
        return (x1**2 + x2 - 11) ** 2 + (x1 + x2**2 - 7) ** 2

    def slopes(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        """Return ``(4 x1 p + 2 q, 2 p + 4 x2 q)``, p = x1^2 + x2 - 11 and q = x1 + x2^2 - 7."""
        p = x1**2 + x2 - 11
        q = x1 + x2**2 - 7
        return 4 * x1 * p + 2 * q, 2 * p + 4 * x2 * q


@dataclass(frozen=True)
class Rastrigin(StaticFunction):
    """Many local minima: ``f = 20 + sum_i (xi^2 - 10 cos(2 pi xi))`` on [-1, 1]^2.

    Rastrigin, Systems of Extremal Control (1974), in two dimensions.

    Examples
    --------
    >>> float(Rastrigin()([0.0, 0.0])), float(Rastrigin()([1.0, 1.0]))
    (0.0, 2.0)
    """

    name: ClassVar = "Rastrigin"
    lower: ClassVar = (-1.0, -1.0)
    upper: ClassVar = (1.0, 1.0)
    minimum: ClassVar = 0.0
    minimisers: ClassVar = ((0.0, 0.0),)

    def value(self, x1: Array, x2: Array) -> Array:
        """Return ``20 + x1^2 - 10 cos(2 pi x1) + x2^2 - 10 cos(2 pi x2)``."""
        return 20 + x1**2 - 10 * np.cos(2 * np.pi * x1) + x2**2 - 10 * np.cos(2 * np.pi * x2)

    def slopes(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        """Return ``2 xi + 20 pi sin(2 pi xi)`` for both inputs xi."""
        slope1 = 2 * x1 + 20 * np.pi * np.sin(2 * np.pi * x1)
        slope2 = 2 * x2 + 20 * np.pi * np.sin(2 * np.pi * x2)
        return slope1, slope2


@dataclass(frozen=True)
class SixHumpCamel(StaticFunction):
    """Six minima, two of them global, on [-2, 2]^2.

    ::

        f = (4 - 2.1 x1^2 + x1^4/3) x1^2 + x1 x2 + (-4 + 4 x2^2) x2^2

    Dixon and Szegoe, Towards Global Optimisation 2 (1978). Wietzke and Graichen print the last term
    as ``(-4 + 4 x2) x2^2``, a misprint; this is the textbook function.

    Examples
    --------
    >>> float(SixHumpCamel()([0.0, 1.0]))
    0.0
    """

    name: ClassVar = "Six-Hump Camel"
    lower: ClassVar = (-2.0, -2.0)
    upper: ClassVar = (2.0, 2.0)
    minimum: ClassVar = -1.0316284534898774
    minimisers: ClassVar = (
        (0.08984201310031807, -0.7126564030207396),
        (-0.08984201310031807, 0.7126564030207396),
    )

    def value(self, x1: Array, x2: Array) -> Array:
        """Return ``(4 - 2.1 x1^2 + x1^4/3) x1^2 + x1 x2 + (-4 + 4 x2^2) x2^2``."""
        return (4 - 2.1 * x1**2 + x1**4 / 3) * x1**2 + x1 * x2 + (-4 + 4 * x2**2) * x2**2

    def slopes(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        """Return ``(8 x1 - 8.4 x1^3 + 2 x1^5 + x2, x1 - 8 x2 + 16 x2^3)``."""
        return 8 * x1 - 8.4 * x1**3 + 2 * x1**5 + x2, x1 - 8 * x2 + 16 * x2**3


@dataclass(frozen=True)
class Rosenbrock(StaticFunction):
    """A curved valley: ``f = (1 - x1)^2 + 100 (x2 - x1^2)^2`` on [-1, 1]^2.

    The minimum lies in a corner.

    Rosenbrock, The Computer Journal 3 (1960) 175.

    Examples
    --------
    >>> float(Rosenbrock()([1.0, 1.0])), float(Rosenbrock()([0.0, 0.0]))
    (0.0, 1.0)
    """

    name: ClassVar = "Rosenbrock"
    lower: ClassVar = (-1.0, -1.0)
    upper: ClassVar = (1.0, 1.0)
    minimum: ClassVar = 0.0
    minimisers: ClassVar = ((1.0, 1.0),)

    def value(self, x1: Array, x2: Array) -> Array:
        """Return ``(1 - x1)^2 + 100 (x2 - x1^2)^2``."""
        return (1 - x1) ** 2 + 100 * (x2 - x1**2) ** 2

    def slopes(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        """Return ``(2 (x1 - 1) - 400 x1 (x2 - x1^2), 200 (x2 - x1^2))``."""
        return 2 * (x1 - 1) - 400 * x1 * (x2 - x1**2), 200 * (x2 - x1**2)


def _read_points(function: StaticFunction, x: ArrayLike) -> Array:
    """Return checked points (..., 2) as floats."""
    title = type(function).__name__
    x = read_real(x, title)
    if x.ndim < 1 or x.shape[-1] != 2:
        raise UserError(f"{title}: expected points of shape (..., 2), got {x.shape}")
    if not np.isfinite(x).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise UserError(f"{title}: expected finite inputs, got {x[first]} at {first}; remove it")
    return x.astype(np.float64)
