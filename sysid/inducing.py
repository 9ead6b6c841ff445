"""Sparse Gaussian process with inducing points: marginal likelihood, its gradient, and the posterior."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, lapack, solve_triangular

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

    whitening: np.ndarray  # (M, M) lower L^-1 with L L' = Kuu
    precision_factor: np.ndarray  # (M, M) lower C with C C' = B
    weights: np.ndarray  # (M,) B^-1 V diag(noise)^-1 y
    log_likelihood: float


class _Block(NamedTuple):
    """Quantities of some samples."""

    rows: slice
    features: np.ndarray  # (b, 2 p + 1) see `InducingPoints._features`
    cross: np.ndarray  # (M, b) Kuf
    whitened: np.ndarray  # (M, b) V = L^-1 Kuf
    residual: np.ndarray  # (b,) d = k(x, x) - diag V'V
    noise: np.ndarray  # (b,) noise_variance + alpha d


class _Slopes(NamedTuple):
    """Derivatives of the objective."""

    cross: np.ndarray  # (M, 2 p + 1) (dF/dKuf o Kuf) F, F the features of the samples
    prior: np.ndarray  # (M, M) -2 L' dF/dKuu L
    variance: float  # sum_i dF/dk(x_i, x_i)
    noise: float  # dF/d noise_variance


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
        whitening = self._whitening()
        B, projected = np.eye(len(whitening)), np.zeros(len(whitening))
        terms = len(y) * np.log(2.0 * np.pi)
        for block in self.blocks(whitening, x):
            scaled = block.whitened / np.sqrt(block.noise)
            B += scaled @ scaled.T  # numpy sees the symmetry
            projected += block.whitened @ (y[block.rows] / block.noise)
            terms += np.log(block.noise).sum() + (y[block.rows] ** 2 / block.noise).sum()
            terms += (1.0 - self.approximation.value) * block.residual.sum() / self.noise_variance
        C = _cholesky(B, "posterior precision")
        half = solve_triangular(C, projected, lower=True, check_finite=False)
        terms += 2.0 * np.log(np.diag(C)).sum() - half @ half
        weights = solve_triangular(C, half, lower=True, trans=1, check_finite=False)
        return Posterior(whitening, C, weights, -0.5 * terms)

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
        slopes = (self._fitc if self.approximation is Approximation.fitc else self._vfe)(p, x, y)
        along, pull = self._contract(slopes.cross)
        again, moved = self._contract_prior(-0.5 * p.whitening.T @ slopes.prior @ p.whitening)
        again[0] += self.kernel.variance * slopes.variance
        gradient = np.append(along + again, self.noise_variance * slopes.noise)
        return SparseLikelihood(p.log_likelihood, gradient, pull + moved)

    def _vfe(self, p: Posterior, x: np.ndarray, y: np.ndarray) -> _Slopes:
        """With ``D = noise_variance I`` all sums over products of V follow from ``V V' = noise_variance (B - I)``."""
        s2, eye, inverse = self.noise_variance, np.eye(len(p.weights)), _inverse(p.precision_factor)
        mixing, weights = p.whitening.T @ (eye - inverse) / s2, p.weights @ p.whitening
        cross = np.zeros((len(eye), 2 * self.kernel.n_features + 1))
        noise = 0.5 * (len(eye) - np.trace(inverse) - len(y)) / s2
        for block in self.blocks(p.whitening, x):
            b = (y[block.rows] - p.weights @ block.whitened) / s2
            by_cross = mixing @ block.whitened
            by_cross += np.outer(weights, b)
            by_cross *= block.cross
            cross += by_cross @ block.features
            noise += 0.5 * (b @ b + block.residual.sum() / s2**2)
        prior = np.outer(p.weights, p.weights) - 2.0 * eye + inverse + p.precision_factor @ p.precision_factor.T
        return _Slopes(cross, prior, -0.5 * len(y) / s2, noise)

    def _fitc(self, p: Posterior, x: np.ndarray, y: np.ndarray) -> _Slopes:
        """``h = g`` differs from sample to sample."""
        inverse, noise = _inverse(p.precision_factor), 0.0
        cross = np.zeros((len(inverse), 2 * self.kernel.n_features + 1))
        prior = np.outer(p.weights, p.weights) - np.eye(len(inverse)) + inverse
        for block in self.blocks(p.whitening, x):
            v, d = block.whitened, block.noise
            solved = inverse @ v
            b = (y[block.rows] - p.weights @ v) / d
            g = 0.5 * (b * b - 1.0 / d + np.einsum("ij,ij->j", v, solved) / d**2)
            pushed = v * (2.0 * g)
            prior -= pushed @ v.T
            solved /= d
            pushed += solved
            pushed -= np.outer(p.weights, b)
            by_cross = _product(p.whitening, pushed, transposed=True)
            by_cross *= block.cross
            cross -= by_cross @ block.features
            noise += g.sum()
        return _Slopes(cross, prior, noise, noise)

    def blocks(self, whitening: np.ndarray, inputs: np.ndarray) -> Iterator[_Block]:
        """Covariances with the inducing points, whitened by ``L^-1``, block after block of the inputs (n, p)."""
        coefficients = self._coefficients()
        for start in range(0, len(inputs), self.block_size):
            rows = slice(start, start + self.block_size)
            features = self._features(inputs[rows])
            cross = coefficients @ features.T
            np.exp(cross, out=cross)
            v = _product(whitening, cross)
            residual = self.kernel.variance - np.einsum("ij,ij->j", v, v)
            noise = self.noise_variance + self.approximation.value * residual
            yield _Block(rows, features, cross, v, residual, noise)

    def _samples(self, inputs: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        x = matrix(inputs, self.kernel.n_features, "inputs")
        if len(x) == 0:
            raise ValueError("InducingPoints: inputs must have at least 1 sample, got 0")
        return x, vector(targets, len(x), "targets")

    def _whitening(self) -> np.ndarray:
        kuu = self.kernel(self.points, self.points)
        kuu[np.diag_indices_from(kuu)] += self.jitter * self.kernel.variance
        factor = _cholesky(kuu, f"covariance of {len(kuu)} inducing points with jitter {self.jitter:g}")
        return lapack.dtrtri(factor, lower=1)[0]

    def _scaled(self, inputs: np.ndarray) -> np.ndarray:
        return (inputs - self.points.mean(axis=0)) / np.asarray(self.kernel.length_scales)

    def _features(self, inputs: np.ndarray) -> np.ndarray:
        """``(1, x, x o x)`` (b, 2 p + 1) of inputs x in length scales from the mean of the inducing points."""
        x = self._scaled(inputs)
        return np.hstack([np.ones((len(x), 1)), x, x * x])

    def _coefficients(self) -> np.ndarray:
        """``(log variance - z'z / 2, z, -1 / 2)``: times the features of x, the logarithm of ``k(z, x)``.

        A product of matrices instead of differences: K has a relative error of 1e-16 times the squared distance
        from the mean of the inducing points, in length scales.
        """
        z = self._scaled(self.points)
        constant = np.log(self.kernel.variance) - 0.5 * (z * z).sum(axis=1, keepdims=True)
        return np.hstack([constant, z, np.full(z.shape, -0.5)])

    def _contract(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient through ``K = k(Z, X)``: (log hyper-parameters), (Z).

        With ``z``, ``x`` of Z and X as in `_features`, W of ``dF/dK o K``; `sums` is ``W F``, F the features of X::

            d/d log length_scale_d = sum_ji W_ji (z_jd - x_id)^2,   dF/dZ_jd = sum_i W_ji (x_id - z_jd) / length_scale_d
        """
        z = self._scaled(self.points)
        rows, pulled, squares = np.split(sums, [1, 1 + z.shape[1]], axis=1)
        along = (rows * z * z - 2.0 * z * pulled + squares).sum(axis=0)
        return np.append(rows.sum(), along), (pulled - z * rows) / np.asarray(self.kernel.length_scales)

    def _contract_prior(self, derivative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same through Kuu, in which every point stands twice and the jitter follows the variance."""
        weighted = derivative * self.kernel(self.points, self.points)
        along, pull = self._contract(weighted @ self._features(self.points))
        along[0] += self.jitter * self.kernel.variance * np.trace(derivative)
        return along, 2.0 * pull


def _product(lower: np.ndarray, block: np.ndarray, *, transposed: bool = False) -> np.ndarray:
    """Lower triangular matrix (M, M), or its transpose, times a row-major block (M, b)."""
    return blas.dtrmm(1.0, lower, block.T, side=1, lower=1, trans_a=not transposed).T


def _inverse(factor: np.ndarray) -> np.ndarray:
    """``(C C')^-1`` of a lower factor C."""
    root = lapack.dtrtri(factor, lower=1)[0]
    return root.T @ root


def _cholesky(a: np.ndarray, name: str) -> np.ndarray:
    factor, status = lapack.dpotrf(a, lower=1, clean=1)
    if status != 0:
        raise np.linalg.LinAlgError(f"{name} is not positive definite: raise jitter or noise_variance")
    return factor


__all__ = ["Approximation", "InducingPoints", "Posterior", "SparseLikelihood"]
