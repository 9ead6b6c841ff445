"""Samplings of a box: the points at which a static function is evaluated."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import index

import numpy as np
from numpy.typing import ArrayLike

from simulators.errors import UserError
from simulators.noise import random_stream
from simulators.settings import Array


class Sampling(ABC):
    """The role of a sampling: n points in a box, the same for the same seed."""

    @abstractmethod
    def unit(self, n: int, d: int, generator: np.random.Generator) -> Array:
        """Return n points (n, d) in the unit box [0, 1]^d."""

    def sample(self, n: int, lower: ArrayLike, upper: ArrayLike, seed: int = 0) -> Array:
        """Return n points in a box.

        Parameters
        ----------
        n : int
            Number of points, at least 1.
        lower, upper : (d,) array_like
            Bounds of the box, in the unit of each input.
        seed : int
            Seed, not negative; points are drawn from its stream of random test signals.

        Returns
        -------
        (n, d) array

        Raises
        ------
        ValueError
            If n < 1, the seed is negative, the bounds are not two finite vectors of one length with
            lower < upper, or a grid cannot have n points.
        TypeError
            If n is not an integer.
        """
        if index(n) < 1:
            raise UserError(f"{type(self).__name__}: expected n >= 1 points, got {n}")
        low, high = _check_box(lower, upper)
        unit = self.unit(index(n), low.size, random_stream(seed, "excitation"))
        return np.minimum(low + (high - low) * unit, high)  # rounding must not leave the box


@dataclass(frozen=True)
class Uniform(Sampling):
    """Independent points, uniform in the box; a longer sample begins with the shorter one.

    Examples
    --------
    >>> Uniform().sample(5, [-1, 0], [1, 10], seed=1).shape
    (5, 2)
    """

    def unit(self, n: int, d: int, generator: np.random.Generator) -> Array:
        """Return independent uniform numbers."""
        return generator.random((n, d))


@dataclass(frozen=True)
class LatinHypercube(Sampling):
    """Every input is stratified: each of its n equal intervals holds exactly one point.

    McKay, Beckman and Conover, Technometrics 21 (1979) 239; scipy.stats.qmc. A longer sample has
    other points.

    Examples
    --------
    >>> x = LatinHypercube().sample(4, [0.0], [4.0], seed=1)
    >>> sorted(np.floor(x[:, 0]).tolist())
    [0.0, 1.0, 2.0, 3.0]
    """

    def unit(self, n: int, d: int, generator: np.random.Generator) -> Array:
        """Return one point per interval of each input; order and position are random."""
        from scipy.stats import qmc  # slow to import

        return np.asarray(qmc.LatinHypercube(d, seed=generator).random(n))


@dataclass(frozen=True)
class Sobol(Sampling):
    """Sobol's sequence of low discrepancy, randomly scrambled.

    A longer sample begins with the shorter one. The sequence is balanced for 2^m points; the first
    n points of the next power of two are taken. Owen, Journal of Complexity 14 (1998) 466, for the
    scrambling; scipy.stats.qmc.

    Examples
    --------
    >>> x = Sobol().sample(8, [0, 0], [1, 1], seed=1)
    >>> np.bincount((8 * x[:, 0]).astype(int)).tolist()
    [1, 1, 1, 1, 1, 1, 1, 1]
    """

    def unit(self, n: int, d: int, generator: np.random.Generator) -> Array:
        """Return the first n points of the scrambled sequence."""
        from scipy.stats import qmc  # slow to import

        m = (n - 1).bit_length()
        return np.asarray(qmc.Sobol(d, seed=generator).random_base2(m)[:n])


@dataclass(frozen=True)
class Grid(Sampling):
    """Equidistant points, the bounds included; the last input varies fastest.

    The seed has no effect.

    Examples
    --------
    >>> Grid().sample(4, [0, 0], [1, 10]).tolist()
    [[0.0, 0.0], [0.0, 10.0], [1.0, 0.0], [1.0, 10.0]]
    """

    def unit(self, n: int, d: int, generator: np.random.Generator) -> Array:
        """Return every combination of m equidistant numbers per input, n = m^d."""
        m = round(n ** (1 / d))
        if m < 2 or m**d != n:
            below = m - 1 if m**d > n else m
            smaller = max(below, 2)
            raise UserError(
                f"Grid: expected m^{d} points with m >= 2, got n={n}; "
                f"use {smaller**d} or {(smaller + 1) ** d}"
            )
        axis = np.linspace(0, 1, m)
        coordinates = np.meshgrid(*[axis] * d, indexing="ij")
        return np.stack([values.ravel() for values in coordinates], axis=1)


def _check_box(lower: ArrayLike, upper: ArrayLike) -> tuple[Array, Array]:
    """Return the bounds of a box as arrays (d,)."""
    low = np.asarray(lower, dtype=np.float64)
    high = np.asarray(upper, dtype=np.float64)
    are_vectors = (
        low.ndim == 1
        and low.size > 0
        and low.shape == high.shape
        and bool(np.isfinite([low, high]).all())
    )
    if not are_vectors or not (low < high).all():
        raise UserError(
            "a box needs finite bounds lower < upper of one shape (d,), "
            f"got lower={low.tolist()} and upper={high.tolist()}; change them"
        )
    return low, high
