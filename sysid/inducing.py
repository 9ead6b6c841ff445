"""Sparse Gaussian process with inducing points: marginal likelihood, its gradient, and the posterior."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack, solve_triangular

from sysid.arrays import matrix, vector
from sysid.kernels import SquaredExponential


class Approximation(Enum):
    """What becomes of the prior variance ``d_i`` of a sample that the inducing points do not explain.

    The value is its share ``alpha`` that counts as noise of that sample; the rest is a penalty.

    References
    ----------
    vfe: Titsias, Variational learning of inducing variables in sparse Gaussian processes, AISTATS 2009.
    fitc: Snelson and Ghahramani, Sparse Gaussian processes using pseudo-inputs, NIPS 2006.
    """

    vfe = 0.0
    fitc = 1.0


class SparseLikelihood(NamedTuple):
    """(Approximate) log marginal likelihood and its gradient."""

    value: float
    gradient: np.ndarray  # (p + 2,) with respect to (log kernel hyper-parameters, log noise variance)
    point_gradient: np.ndarray  # (M, p) with respect to the inducing points


class Posterior(NamedTuple):
    """Posterior of the whitened inducing values ``L^-1 u``: mean `weights`, covariance ``B^-1``."""

    factor: np.ndarray  # (M, M) lower L with L L' = Kuu
    precision_factor: np.ndarray  # (M, M) lower C with C C' = B
    weights: np.ndarray  # (M,) B^-1 V diag(noise)^-1 y
    log_likelihood: float


class _Block(NamedTuple):
    """Quantities of some samples."""

    rows: slice
    inputs: np.ndarray  # (b, p)
    cross: np.ndarray  # (M, b) Kuf
    whitened: np.ndarray  # (M, b) V = L^-1 Kuf
    residual: np.ndarray  # (b,) d = k(x, x) - diag V'V
    noise: np.ndarray  # (b,) noise_variance + alpha d


@dataclass(frozen=True, eq=False)
class InducingPoints:
    """Prior of a sparse GP: M inducing points stand for the data.

    With ``Kuu = k(Z, Z) + jitter variance I = L L'``, ``V = L^-1 k(Z, X)``, ``d = diag(k(X, X) - V'V)``::

        log p(y) ~ log N(y; 0, V'V + D) - (1 - alpha) / (2 noise_variance) sum_i d_i
        D = diag(noise_variance + alpha d),   alpha = 0 (VFE), 1 (FITC)

    VFE is a lower bound of the exact log marginal likelihood. Data are visited in blocks, whitened by L:
    memory O(M^2 + M block_size), time O(n M^2).

    Parameters
    ----------
    kernel : SquaredExponential
    noise_variance : float
        Target unit squared, > 0.
    points : (M, p)
        Z, feature units. Copied, read-only.
    approximation : Approximation
    jitter : float
        Relative to the signal variance. The inducing values are then those of f plus noise of that variance: VFE
        stays a bound, nothing else is touched. Smooth kernels make k(Z, Z) singular in double precision
        without it; 0 is for well separated points.
    block_size : int
        Samples at a time.

    Raises
    ------
    ValueError, TypeError
        No points, features that are not those of the kernel, values out of range, another kernel.
    """

    kernel: SquaredExponential
    noise_variance: float  # target unit^2
    points: np.ndarray  # feature units
    approximation: Approximation = Approximation.vfe
    jitter: float = 1e-8  # signal variance
    block_size: int = 512  # samples

    def __post_init__(self) -> None:
        if type(self.kernel) is not SquaredExponential:
            name = type(self.kernel).__name__
            raise TypeError(f"InducingPoints: kernel must be a SquaredExponential, whose gradient is used, got {name}")
        points = matrix(self.points, self.kernel.n_features, "InducingPoints: points").copy()
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        if len(points) == 0:
            raise ValueError("InducingPoints: points must have at least 1 row, got 0")
        if not 0 < self.noise_variance < np.inf:
            raise ValueError(f"InducingPoints: noise_variance must be positive and finite, got {self.noise_variance}")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"InducingPoints: jitter must be from 0 to below 1, got {self.jitter}; 1e-8 is usual")
        if isinstance(self.block_size, bool) or not isinstance(self.block_size, Integral) or self.block_size < 1:
            raise ValueError(f"InducingPoints: block_size must be a whole number above 0, got {self.block_size!r}")

    def posterior(self, inputs: ArrayLike, targets: ArrayLike) -> Posterior:
        """Posterior of the inducing values and (approximate) log marginal likelihood.

        With ``B = I + V D^-1 V' = C C'``, ``w = B^-1 V D^-1 y``::

            log N(y; 0, V'V + D) = -0.5 (n log 2 pi + log|D| + log|B| + y'D^-1 y - |C'w|^2)

        Parameters
        ----------
        inputs : (n, p)
        targets : (n,)
            Of zero mean a priori: centre them first.

        Raises
        ------
        ValueError
            Shapes that do not fit, no samples, values that are not finite.
        numpy.linalg.LinAlgError
            If Kuu is not positive definite in double precision.
        """
        x, y = self._samples(inputs, targets)
        factor = self._factor()
        B, projected = np.eye(len(factor)), np.zeros(len(factor))
        terms = len(y) * np.log(2.0 * np.pi)
        for block in self.blocks(factor, x):
            scaled = block.whitened / block.noise
            B += scaled @ block.whitened.T
            projected += scaled @ y[block.rows]
            terms += np.log(block.noise).sum() + (y[block.rows] ** 2 / block.noise).sum()
            terms += (1.0 - self.approximation.value) * block.residual.sum() / self.noise_variance
        C = _cholesky(B, "posterior precision")
        half = solve_triangular(C, projected, lower=True, check_finite=False)
        terms += 2.0 * np.log(np.diag(C)).sum() - half @ half
        return Posterior(factor, C, solve_triangular(C, half, lower=True, trans=1, check_finite=False), -0.5 * terms)

    def log_likelihood(self, inputs: ArrayLike, targets: ArrayLike) -> SparseLikelihood:
        """(Approximate) log marginal likelihood with its gradient, in two passes over the data.

        With ``b = (V'V + D)^-1 y``, ``g = diag(b b' - (V'V + D)^-1) / 2`` and the derivative
        ``h = alpha g - (1 - alpha) / (2 noise_variance)`` with respect to d::

            d/dKuf = L^-T (w b' - B^-1 V D^-1 - 2 V diag(h))
            d/dKuu = -L^-T (w w' - I + B^-1 - 2 V diag(h) V') L^-1 / 2
            d/dk(x_i, x_i) = h_i,   d/d noise_variance = sum_i g_i + (1 - alpha) / (2 noise_variance^2) sum_i d_i

        Parameters and errors are those of `posterior`.
        """
        x, y = self._samples(inputs, targets)
        p = self.posterior(x, y)
        inverse, root = (lapack.dtrtri(factor, lower=1)[0] for factor in (p.factor, p.precision_factor))
        spread, noise = np.zeros_like(inverse), 0.0  # V diag(h) V'
        total = np.zeros(self.kernel.n_features + 1)
        moved = np.zeros(self.points.shape)
        share, s2 = self.approximation.value, self.noise_variance
        for block in self.blocks(p.factor, x):
            v, d = block.whitened, block.noise
            u = root @ v
            b = (y[block.rows] - p.weights @ v) / d
            g = 0.5 * (b * b - 1.0 / d + (u * u).sum(axis=0) / d**2)
            h = share * g - (1.0 - share) / (2.0 * s2)
            spread += (v * h) @ v.T
            noise += g.sum() + (1.0 - share) / (2.0 * s2**2) * block.residual.sum()
            total[0] += self.kernel.variance * h.sum()
            by_cross = inverse.T @ (np.outer(p.weights, b) - root.T @ (u / d) - 2.0 * v * h)
            along, pull = self._contract(by_cross * block.cross, block.inputs)
            total, moved = total + along, moved + pull
        inner = np.outer(p.weights, p.weights) - np.eye(len(root)) + root.T @ root - 2.0 * spread
        along, pull = self._contract_prior(-0.5 * inverse.T @ inner @ inverse)
        return SparseLikelihood(p.log_likelihood, np.append(total + along, s2 * noise), moved + pull)

    def blocks(self, factor: np.ndarray, inputs: np.ndarray) -> Iterator[_Block]:
        """Covariances with the inducing points, whitened by `factor`, block after block of the inputs (n, p)."""
        for start in range(0, len(inputs), self.block_size):
            rows = slice(start, start + self.block_size)
            cross = self.kernel(self.points, inputs[rows])
            v = solve_triangular(factor, cross, lower=True, check_finite=False)
            residual = self.kernel.variance - (v * v).sum(axis=0)
            noise = self.noise_variance + self.approximation.value * residual
            yield _Block(rows, inputs[rows], cross, v, residual, noise)

    def _samples(self, inputs: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        x = matrix(inputs, self.kernel.n_features, "inputs")
        if len(x) == 0:
            raise ValueError("InducingPoints: inputs must have at least 1 sample, got 0")
        return x, vector(targets, len(x), "targets")

    def _factor(self) -> np.ndarray:
        kuu = self.kernel(self.points, self.points)
        kuu[np.diag_indices_from(kuu)] += self.jitter * self.kernel.variance
        return _cholesky(kuu, f"covariance of {len(kuu)} inducing points with jitter {self.jitter:g}")

    def _contract(self, weights: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient through ``K = k(Z, X)``: (log hyper-parameters), (Z); weights (M, b) are ``dF/dK o K``.

        With ``z = Z / length_scale``, ``x = X / length_scale``, W the weights::

            d/d log length_scale_d = sum_ji W_ji (z_jd - x_id)^2,   dF/dZ_jd = sum_i W_ji (x_id - z_jd) / length_scale_d
        """
        scales = np.asarray(self.kernel.length_scales)
        centre = self.points.mean(axis=0)
        z, x = (self.points - centre) / scales, (inputs - centre) / scales
        rows, pulled = weights.sum(axis=1), weights @ x
        along = rows @ (z * z) - 2.0 * (z * pulled).sum(axis=0) + weights.sum(axis=0) @ (x * x)
        return np.append(rows.sum(), along), (pulled - z * rows[:, None]) / scales

    def _contract_prior(self, derivative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same through Kuu, in which every point stands twice and the jitter follows the variance."""
        along, pull = self._contract(derivative * self.kernel(self.points, self.points), self.points)
        along[0] += self.jitter * self.kernel.variance * np.trace(derivative)
        return along, 2.0 * pull


def _cholesky(a: np.ndarray, name: str) -> np.ndarray:
    factor, status = lapack.dpotrf(a, lower=1, clean=1)
    if status != 0:
        raise np.linalg.LinAlgError(f"{name} is not positive definite: raise jitter or noise_variance")
    return factor


__all__ = ["Approximation", "InducingPoints", "Posterior", "SparseLikelihood"]
