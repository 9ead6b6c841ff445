"""Sparse Gaussian processes: VFE and FITC.

Both are batch baselines. Adaptive training maximises the VFE bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from typing import NamedTuple, Self
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, block_diag, lapack, solve_triangular
from scipy.optimize import OptimizeResult, minimize

from sysid.arrays import (
    NotPositiveDefiniteError,
    check_counts,
    check_whole,
    matrix,
    vector,
)
from sysid.errors import UserError, UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Kernel, SquaredExponential, Stationary
from sysid.gp.linear_part import StableSpline, WithLinearPart
from sysid.gp.marginal_likelihood import TOLERANCE, Likelihood
from sysid.gp.training import (
    COST_IF_NOT_POSITIVE_DEFINITE,
    Hyperparameters,
    MarginalLikelihoodProblem,
    MaximumLikelihood,
)
from sysid.progress_display import shows_progress

#: Largest number of covariances between samples and inducing points that an evaluation keeps from
#: its first pass over the data for its second. Each takes 16 byte.
MAX_KEPT_COVARIANCES = 2_000_000

#: Training of the exact GP, on some of the samples, that gives the first hyper-parameters.
EXACT_GP_TRAINING = MaximumLikelihood(n_initial=500, restarts=3)

#: Iterations of k-means, which chooses the inducing points before they are trained.
N_KMEANS_ITERATIONS = 10

#: Last iterations of L-BFGS-B whose total gain is compared with the tolerance.
N_GAIN_ITERATIONS = 10


class Approximation(Enum):
    """Treatment of the prior variance ``d_i`` of a sample that the inducing points do not explain.

    The value is the fraction ``alpha`` of ``d_i`` that counts as noise of that sample; the rest is
    a penalty.

    References
    ----------
    vfe: Titsias, Variational learning of inducing variables in sparse Gaussian processes, AISTATS
    2009. fitc: Snelson and Ghahramani, Sparse Gaussian processes using pseudo-inputs, NIPS 2006.
    """

    vfe = 0.0
    fitc = 1.0


class SparseLikelihood(NamedTuple):
    """(Approximate) log marginal likelihood and its gradient."""

    value: float
    #: (q + 1,) with respect to (log kernel hyper-parameters, log noise variance)
    gradient: np.ndarray
    #: (M, p) with respect to the inducing points; None if the kernel is not stationary
    point_gradient: np.ndarray | None


class Posterior(NamedTuple):
    """Posterior of the whitened inducing values ``L^-1 u``: mean `weights`, covariance ``B^-1``."""

    whitening: np.ndarray  # (M, M) lower L^-1 with L L' = Kuu
    precision_factor: np.ndarray  # (M, M) lower C with C C' = B
    weights: np.ndarray  # (M,) B^-1 V diag(noise)^-1 y
    log_likelihood: float


class _Block(NamedTuple):
    """Covariances of b samples with the M inducing points, and what follows from them."""

    rows: slice
    inputs: np.ndarray  # (b, p)
    cross: np.ndarray  # (M, b) Kuf
    whitened: np.ndarray  # (M, b) V = L^-1 Kuf
    residual: np.ndarray  # (b,) d = k(x, x) - diag V'V
    noise: np.ndarray  # (b,) noise_variance + alpha d


class _CovarianceGradient:
    """Derivatives of the objective F that pass through covariances of the inducing points.

    They are sums over all covariances that were added. The kernel is that of the points, without a
    linear part.
    """

    def __init__(self, kernel: Kernel, points: np.ndarray) -> None:
        self.kernel = kernel
        self.points = points
        #: (q,) with respect to the log hyper-parameters
        self.by_hyperparameters = np.zeros(len(kernel.hyperparameter_names))
        self._by_points = np.zeros(points.shape)

    def add(
        self,
        weights: np.ndarray,
        others: np.ndarray,
        covariance: np.ndarray,
        point_factor: float = 1.0,
    ) -> None:
        """Add the contribution of one covariance of the points with other points.

        Parameters
        ----------
        weights : (M, b)
            Derivative of F with respect to this covariance.
        others : (b, p)
        covariance : (M, b)
        point_factor : float
            Multiplies the derivative with respect to the points.
        """
        self.by_hyperparameters += self.kernel.contract_gradient(
            weights, self.points, covariance, others
        )
        if isinstance(self.kernel, Stationary):
            self._by_points += point_factor * self.kernel.point_gradient(
                weights, self.points, covariance, others
            )

    @property
    def by_points(self) -> np.ndarray | None:
        """Derivative with respect to the points (M, p); None if the kernel is not stationary."""
        return self._by_points if isinstance(self.kernel, Stationary) else None


class _Gradient(NamedTuple):
    """Derivatives of the objective F that pass through the rows of V, before whitening."""

    of_points: _CovarianceGradient
    by_linear_root: np.ndarray  # (p_l, p_l) G = dF/dC', C' the root of the linear part

    def by_linear_hyperparameters(self, linear: StableSpline) -> np.ndarray:
        """Return the derivatives (q,) with respect to the log hyper-parameters of a linear part.

        F depends on C' through ``P = C C'`` alone, so that ``dF/dP = C'^-1 G / 2``.
        """
        by_covariance = 0.5 * solve_triangular(linear.root().T, self.by_linear_root)
        return linear.contract_covariance(0.5 * (by_covariance + by_covariance.T))


class _Slopes(NamedTuple):
    """Derivatives of the objective F with respect to everything but k(Z, X)."""

    by_point_covariance: np.ndarray  # (M, M) -2 L' dF/dKuu L
    by_variances: np.ndarray  # (n,) dF/dk(x_i, x_i)
    by_noise: float  # dF/d noise_variance


@dataclass(frozen=True, eq=False)
class InducingPoints:
    """Prior of a sparse GP, in which M inducing points represent the data.

    With ``Kuu = k(Z, Z) + jitter variance I = L L'``, ``V = L^-1 k(Z, X)`` and
    ``d = diag(k(X, X) - V'V)``::

        log p(y) ~ log N(y; 0, V'V + D) - (1 - alpha) / (2 noise_variance) sum_i d_i
        D = diag(noise_variance + alpha d),   alpha = 0 (VFE), 1 (FITC)

    The coefficients of a linear part (`WithLinearPart`) are further inducing values, and represent
    it exactly: with ``P = C C'`` the rows ``C'phi_i`` come before those of V, and d concerns the
    other part of the kernel alone.

    VFE is a lower bound of the exact log marginal likelihood. Data are processed in blocks, which
    are whitened by L. Memory is O(M^2 + M block_size), plus the covariances that a gradient keeps
    if there are few samples (`MAX_KEPT_COVARIANCES`). Time is O(n M^2).

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        Target unit squared, > 0.
    points : (M, p)
        Z, feature units. Copied, read-only. Their features of a linear part have no effect.
    approximation : Approximation
    jitter : float
        Relative to the mean prior variance of the points. The inducing values are then those of f
        plus noise of that variance: VFE remains a bound, and nothing else changes. Smooth kernels
        make k(Z, Z) singular in double precision without it. Use 0 for well separated points only.
    block_size : int
        Number of samples that are processed together.

    Raises
    ------
    ValueError, TypeError
        If there are no points, their features are not those of the kernel, a value is out of range,
        or the kernel is a prototype.
    """

    kernel: Kernel
    noise_variance: float  # target unit^2
    points: np.ndarray  # feature units
    approximation: Approximation = Approximation.vfe
    jitter: float = 1e-8  # signal variance
    block_size: int = 512  # samples

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel) or self.kernel.is_prototype:
            raise UserTypeError(
                "InducingPoints: kernel must be a kernel with hyper-parameters, "
                f"got {self.kernel!r}"
            )
        points = matrix(self.points, self.kernel.n_features, "InducingPoints: points").copy()
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        if len(points) == 0:
            raise UserError("InducingPoints: points must have at least 1 row, got 0")
        if not 0 < self.noise_variance < np.inf:
            raise UserError(
                "InducingPoints: noise_variance must be positive and finite, "
                f"got {self.noise_variance}"
            )
        if not 0 <= self.jitter < 1:
            raise UserError(
                f"InducingPoints: jitter must be from 0 to below 1, got {self.jitter}; "
                "1e-8 is usual"
            )
        check_counts(self, block_size=1)

    @property
    def _linear(self) -> StableSpline | None:
        """The linear part of the kernel, if it has one."""
        return self.kernel.linear if isinstance(self.kernel, WithLinearPart) else None

    @property
    def _point_kernel(self) -> Kernel:
        """The kernel without its linear part."""
        return self.kernel.kernel if isinstance(self.kernel, WithLinearPart) else self.kernel

    def _split(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of the point kernel and those of the linear part."""
        first_of_linear = inputs.shape[1] - sum(self.kernel.linear_lags)
        return inputs[:, :first_of_linear], inputs[:, first_of_linear:]

    def posterior(self, inputs: ArrayLike, targets: ArrayLike) -> Posterior:
        """Return the posterior, with the (approximate) log marginal likelihood.

        With ``B = I + V D^-1 V' = C C'``, ``w = B^-1 V D^-1 y``::

            log N(y; 0, V'V + D) = -0.5 (n log 2 pi + log|D| + log|B| + y'D^-1 y - |C'w|^2)

        Parameters
        ----------
        inputs : (n, p)
        targets : (n,)
            Of zero mean a priori: subtract their mean first.

        Raises
        ------
        ValueError
            If shapes do not fit, there are no samples, or values are not finite.
        sysid.arrays.NotPositiveDefiniteError
            If Kuu is not positive definite in double precision.
        """
        x, y = self._samples(inputs, targets)
        whitening = self._whitening()
        return self._condition(whitening, self.blocks(whitening, x), y)

    def _whitening(self) -> np.ndarray:
        """Return ``L^-1`` (M, M), lower triangular, below the identity of a linear part."""
        points, _ = self._split(self.points)
        kuu = self._point_kernel(points, points)
        prior_variance = np.mean(self._point_kernel.diagonal(points))
        kuu[np.diag_indices_from(kuu)] += self.jitter * prior_variance
        name = f"covariance of {len(kuu)} inducing points with jitter {self.jitter:g}"
        inverse, _ = lapack.dtrtri(_cholesky(kuu, name), lower=1)
        n_linear = sum(self.kernel.linear_lags)
        if n_linear == 0:
            return np.asarray(inverse)
        return np.asfortranarray(block_diag(np.eye(n_linear), inverse))

    def _condition(
        self, whitening: np.ndarray, blocks: Iterable[_Block], y: np.ndarray
    ) -> Posterior:
        """Return the posterior given targets y (n,) of the samples in these blocks."""
        B = np.eye(len(whitening))
        projected = np.zeros(len(whitening))
        penalty_fraction = 1.0 - self.approximation.value
        terms = len(y) * np.log(2.0 * np.pi)
        for block in blocks:
            targets = y[block.rows]
            scaled = block.whitened / np.sqrt(block.noise)
            B += scaled @ scaled.T  # NumPy uses the symmetry of this product
            projected += block.whitened @ (targets / block.noise)
            terms += np.log(block.noise).sum() + (targets**2 / block.noise).sum()
            terms += penalty_fraction * block.residual.sum() / self.noise_variance
        C = _cholesky(B, "posterior precision")
        half = solve_triangular(C, projected, lower=True, check_finite=False)
        terms += 2.0 * np.log(np.diag(C)).sum() - half @ half
        weights = solve_triangular(C, half, lower=True, trans=1, check_finite=False)
        return Posterior(
            whitening=whitening,
            precision_factor=C,
            weights=weights,
            log_likelihood=-0.5 * terms,
        )

    def log_likelihood(self, inputs: ArrayLike, targets: ArrayLike) -> SparseLikelihood:
        """Return the (approximate) log marginal likelihood with its gradient.

        This takes two passes over the data. With ``b = (V'V + D)^-1 y``,
        ``g = diag(b b' - (V'V + D)^-1) / 2`` and the derivative with respect to d,
        ``h = alpha g - (1 - alpha) / (2 noise_variance)``::

            d/dKuf = L^-T (w b' - B^-1 V D^-1 - 2 V diag(h))
            d/dKuu = -L^-T (w w' - I + B^-1 - 2 V diag(h) V') L^-1 / 2
            d/dk(x_i, x_i) = h_i
            d/d noise_variance = sum_i g_i + (1 - alpha) / (2 noise_variance^2) sum_i d_i

        Parameters and errors are those of `posterior`.
        """
        x, y = self._samples(inputs, targets)
        n_linear = sum(self.kernel.linear_lags)
        points, _ = self._split(self.points)
        whitening = self._whitening()
        first_pass, second_pass = self._blocks_twice(whitening, x)
        posterior = self._condition(whitening, first_pass, y)
        gradient = _Gradient(
            of_points=_CovarianceGradient(self._point_kernel, points),
            by_linear_root=np.zeros((n_linear, n_linear)),
        )
        if self.approximation is Approximation.fitc:
            slopes = self._fitc_slopes(posterior, second_pass, y, gradient)
        else:
            slopes = self._vfe_slopes(posterior, second_pass, y, gradient)
        of_points = slice(n_linear, None)
        by_point_covariance = slopes.by_point_covariance[of_points, of_points]
        whitening_of_points = whitening[of_points, of_points]
        by_kuu = -0.5 * whitening_of_points.T @ by_point_covariance @ whitening_of_points
        # Every point occurs twice in Kuu, as a row and as a column.
        kuu = self._point_kernel(points, points)
        gradient.of_points.add(by_kuu, points, kuu, point_factor=2.0)
        by_hyperparameters = gradient.of_points.by_hyperparameters
        x_of_points, _ = self._split(x)
        by_hyperparameters += self._point_kernel.diagonal_gradient(slopes.by_variances, x_of_points)
        # The jitter is proportional to the prior variances of the points.
        n_points = len(points)
        by_point_variances = np.full(n_points, self.jitter * np.trace(by_kuu) / n_points)
        by_hyperparameters += self._point_kernel.diagonal_gradient(by_point_variances, points)
        if self._linear is not None:
            by_linear = gradient.by_linear_hyperparameters(self._linear)
            by_hyperparameters = np.concatenate([by_hyperparameters, by_linear])
        return SparseLikelihood(
            value=posterior.log_likelihood,
            gradient=np.append(by_hyperparameters, self.noise_variance * slopes.by_noise),
            point_gradient=gradient.of_points.by_points,
        )

    def _blocks_twice(
        self, whitening: np.ndarray, x: np.ndarray
    ) -> tuple[Iterable[_Block], Iterable[_Block]]:
        """Return the blocks of x (n, p) for a first and a second pass, from memory if they fit."""
        if len(x) * len(self.points) <= MAX_KEPT_COVARIANCES:
            kept = list(self.blocks(whitening, x))
            return kept, kept
        return self.blocks(whitening, x), self.blocks(whitening, x)

    def _vfe_slopes(
        self,
        posterior: Posterior,
        blocks: Iterable[_Block],
        y: np.ndarray,
        gradient: _Gradient,
    ) -> _Slopes:
        """Return the slopes of VFE, and add the derivatives through k(Z, X) to `gradient`.

        Because of ``D = noise_variance I``, all sums over products of V follow from
        ``V V' = noise_variance (B - I)``.
        """
        s2 = self.noise_variance
        w = posterior.weights
        C = posterior.precision_factor
        eye = np.eye(len(w))
        inverse = _inverse(C)
        mixing = posterior.whitening.T @ (self._represented(eye) - inverse) / s2
        weights = w @ posterior.whitening
        by_noise = 0.5 * (len(eye) - np.trace(inverse) - len(y)) / s2
        for block in blocks:
            b = (y[block.rows] - w @ block.whitened) / s2
            by_cross = mixing @ block.whitened
            by_cross += np.outer(weights, b)
            self._add_to_gradient(gradient, by_cross, block)
            by_noise += 0.5 * (b @ b + block.residual.sum() / s2**2)
        return _Slopes(
            by_point_covariance=np.outer(w, w) - 2.0 * eye + inverse + C @ C.T,
            by_variances=np.full(len(y), -0.5 / s2),
            by_noise=by_noise,
        )

    def _fitc_slopes(
        self,
        posterior: Posterior,
        blocks: Iterable[_Block],
        y: np.ndarray,
        gradient: _Gradient,
    ) -> _Slopes:
        """Return the slopes of FITC, and add the derivatives through k(Z, X) to `gradient`.

        Here ``h = g``, which differs from sample to sample.
        """
        w = posterior.weights
        inverse = _inverse(posterior.precision_factor)
        by_point_covariance = np.outer(w, w) - np.eye(len(inverse)) + inverse
        by_variances = np.empty(len(y))
        for block in blocks:
            v = block.whitened
            d = block.noise
            solved = inverse @ v
            b = (y[block.rows] - w @ v) / d
            g = 0.5 * (b * b - 1.0 / d + np.einsum("ij,ij->j", v, solved) / d**2)
            minus_by_whitened = self._represented(v) * (2.0 * g)
            by_point_covariance -= minus_by_whitened @ v.T
            solved /= d
            minus_by_whitened += solved
            minus_by_whitened -= np.outer(w, b)
            by_cross = _product(posterior.whitening, -minus_by_whitened, transposed=True)
            self._add_to_gradient(gradient, by_cross, block)
            by_variances[block.rows] = g
        return _Slopes(by_point_covariance, by_variances, float(by_variances.sum()))

    def _represented(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of V with zeros in those of the linear part, on which d does not depend."""
        n_linear = sum(self.kernel.linear_lags)
        if n_linear == 0:
            return rows
        represented = rows.copy()
        represented[:n_linear] = 0.0
        return represented

    def _add_to_gradient(self, gradient: _Gradient, by_cross: np.ndarray, block: _Block) -> None:
        """Add the contribution of the covariances of one block of samples."""
        x, lags = self._split(block.inputs)
        n_linear = lags.shape[1]
        gradient.of_points.add(by_cross[n_linear:], x, block.cross[n_linear:])
        if n_linear:
            gradient.by_linear_root[:] += by_cross[:n_linear] @ lags

    def blocks(self, whitening: np.ndarray, inputs: np.ndarray) -> Iterator[_Block]:
        """Yield the covariances of the inducing points with one block of the inputs at a time.

        The inputs have shape (n, p); `whitening` is ``L^-1``.
        """
        x, lags = self._split(inputs)
        points, _ = self._split(self.points)
        n_linear = lags.shape[1]
        linear_root = np.zeros((0, 0)) if self._linear is None else self._linear.root().T
        variances = self._point_kernel.diagonal(x)
        for start in range(0, len(inputs), self.block_size):
            rows = slice(start, start + self.block_size)
            cross = self._point_kernel(points, x[rows])
            if n_linear:
                cross = np.concatenate([linear_root @ lags[rows].T, cross])
            v = _product(whitening, cross)
            of_points = v[n_linear:]
            residual = variances[rows] - np.einsum("ij,ij->j", of_points, of_points)
            noise = self.noise_variance + self.approximation.value * residual
            yield _Block(rows, inputs[rows], cross, v, residual, noise)

    def _samples(self, inputs: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples as arrays (n, p) and (n,), with n >= 1."""
        x = matrix(inputs, self.kernel.n_features, "inputs")
        if len(x) == 0:
            raise UserError("InducingPoints: inputs must have at least 1 sample, got 0")
        return x, vector(targets, len(x), "targets")


def _product(lower: np.ndarray, block: np.ndarray, *, transposed: bool = False) -> np.ndarray:
    """Return a lower triangular matrix (M, M), or its transpose, times a row-major block (M, b)."""
    return blas.dtrmm(1.0, lower, block.T, side=1, lower=1, trans_a=not transposed).T


def _inverse(factor: np.ndarray) -> np.ndarray:
    """Return ``(C C')^-1`` of a lower triangular factor C."""
    root = lapack.dtrtri(factor, lower=1)[0]
    return root.T @ root


def _cholesky(a: np.ndarray, name: str) -> np.ndarray:
    """Return the lower Cholesky factor of a."""
    factor, status = lapack.dpotrf(a, lower=1, clean=1)
    if status != 0:
        raise NotPositiveDefiniteError(
            f"{name} is not positive definite: raise jitter or noise_variance"
        )
    return factor


@dataclass(frozen=True, eq=False)
class VariationalProblem(MarginalLikelihoodProblem):
    """Marginal likelihood problem of a model that keeps only `points` of its samples.

    The likelihood of all samples is that of VFE with these points. What the points cannot represent
    counts as noise. The hyper-parameters are therefore those that suit the model.
    """

    points: np.ndarray = field(kw_only=True)  # (M, p), in the scales of the inputs

    @classmethod
    def of(
        cls,
        settings: MaximumLikelihood,
        inputs: np.ndarray,
        targets: np.ndarray,
        points: np.ndarray | None = None,
    ) -> Self:
        """Return the problem of inputs (n, p), centred targets (n,) and points (M, p).

        Without points, the inputs are the points.
        """
        exact = MarginalLikelihoodProblem.of(settings, inputs, targets)
        points = inputs if points is None else points
        return cls(exact.settings, exact.inputs, exact.targets, exact.expected, points=points)

    def log_density(self, kernel: Kernel, noise_variance: float) -> Likelihood:
        """Return the VFE bound and its gradient; `n_given` and `noise_factors` have no effect."""
        inducing = InducingPoints(kernel, noise_variance, self.points)
        likelihood = inducing.log_likelihood(self.inputs, self.targets)
        return Likelihood(likelihood.value, likelihood.gradient)


@dataclass(frozen=True, eq=False)
class SparseGP:
    """Sparse GP that has learned its data: ``y = f(x) + e``, where ``f`` has zero mean a priori.

    With the names of `InducingPoints` and ``v = L^-1 k(Z, x)``::

        mean = v'w,   latent variance = k(x, x) - v'v + v' B^-1 v

    (Quinonero-Candela and Rasmussen, A unifying view of sparse approximate Gaussian process
    regression, JMLR 2005). It stores two M x M factors; a prediction costs O(M^2).

    Examples
    --------
    >>> x = np.linspace(-3, 3, 200)[:, None]
    >>> prior = InducingPoints(SquaredExponential(1.0, [1.0]), noise_variance=0.01, points=x[::20])
    >>> mean, variance = SparseGP.condition(prior, x, np.sin(x[:, 0])).predict([[0.5]])
    >>> bool(abs(mean[0] - np.sin(0.5)) < 0.01), bool(0 < variance[0] < 0.01)
    (True, True)
    """

    prior: InducingPoints
    posterior: Posterior

    @classmethod
    def condition(cls, prior: InducingPoints, inputs: ArrayLike, targets: ArrayLike) -> Self:
        """Return the sparse GP that has learned inputs (n, p) and centred targets (n,).

        The hyper-parameters and inducing points of the prior do not change.

        Raises
        ------
        ValueError, sysid.arrays.NotPositiveDefiniteError
            Under the conditions of `InducingPoints.posterior`.
        """
        return cls(prior, prior.posterior(inputs, targets))

    @property
    def noise_variance(self) -> float:
        """Noise variance, target unit squared."""
        return self.prior.noise_variance

    def predict(self, inputs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean (m,) and the latent variance (m,) at inputs (m, p).

        Add `noise_variance` for the variance of a measured target.

        Raises
        ------
        ValueError
            If inputs have another shape, or are not finite.

        Warns
        -----
        RuntimeWarning
            If rounding made variances negative; they are set to 0.
        """
        x = matrix(inputs, self.prior.kernel.n_features, "inputs")
        mean = np.empty(len(x))
        variance = np.empty(len(x))
        C = self.posterior.precision_factor
        for block in self.prior.blocks(self.posterior.whitening, x):
            half = blas.dtrsm(1.0, C, block.whitened.T, side=1, lower=1, trans_a=1)  # (b, M)
            mean[block.rows] = self.posterior.weights @ block.whitened
            variance[block.rows] = block.residual + np.einsum("ij,ij->i", half, half)
        n_negative = int((variance < 0).sum())
        if n_negative > 0:
            warn(
                f"SparseGP: {n_negative} of {len(x)} variances were below 0 by rounding and are "
                "set to 0; raise jitter",
                RuntimeWarning,
                stacklevel=2,
            )
        return mean, np.maximum(variance, 0.0)


class SparseFit(NamedTuple):
    """Result of the training of a sparse GP."""

    model: SparseGP
    objective: float  # VFE: lower bound of the log marginal likelihood; FITC: its approximation
    n_iterations: int
    converged: bool
    seconds: float  # wall time of the whole training
    warnings: tuple[str, ...]  # what a user should know about this estimate


@shows_progress("training")
def fit_sparse(
    inputs: ArrayLike,
    targets: ArrayLike,
    *,
    approximation: Approximation = Approximation.vfe,
    n_inducing: int = 100,
    training: MaximumLikelihood = EXACT_GP_TRAINING,
    max_iterations: int = 300,
    tolerance: float = 0.0,
    jitter: float = 1e-8,
    seed: int = 0,
) -> SparseFit:
    """Train hyper-parameters and inducing points together on all samples.

    L-BFGS-B with the analytic gradient searches ``(log variance, log length scales, log
    noise/variance, Z / std)``. It starts from the hyper-parameters of an exact GP on a random
    subset, and from the centres of k-means. The result does not depend on the units of the features
    (up to rounding). Subtract the mean from the targets first.

    Parameters
    ----------
    inputs : (n, p)
    targets : (n,)
        Of zero mean a priori.
    approximation : Approximation
    n_inducing : int
        M, from 1 to the number of distinct inputs.
    training : MaximumLikelihood
        Gives the first hyper-parameters, on ``n_initial`` random samples (all, if there are fewer).
        Its bounds, which are relative to these samples, and its priors hold for the sparse GP too.
    max_iterations : int
        Largest number of iterations of L-BFGS-B. A warning reports that the search stopped there.
    tolerance : float
        The training has converged once its last 10 iterations together gained less than this, in
        nats per sample (whatever the units of the target); less than
        `sysid.gp.marginal_likelihood.TOLERANCE` counts as that. 1e-4 is usual for many samples.
    jitter : float
        See `InducingPoints`.
    seed : int
        Seed of the subset, of the starts and of k-means.

    Raises
    ------
    ValueError
        If shapes do not fit, values are not finite, there are fewer than 2 samples, or
        `n_inducing`, `max_iterations`, `tolerance` or `jitter` is out of range.
    """
    from scipy.cluster.vq import kmeans2  # slow to import

    begin = perf_counter()
    n_features = np.shape(inputs)[1] if np.ndim(inputs) == 2 else 0
    x = matrix(inputs, n_features, "inputs")
    y = vector(targets, len(x), "targets")
    _check_fit_settings(x, n_inducing, training, max_iterations, tolerance)
    generator = np.random.default_rng(seed)
    subset = generator.permutation(len(x))[: training.n_initial]
    exact_gp = training.train(x[subset], y[subset], seed)
    problem = _SparseProblem(
        exact=MarginalLikelihoodProblem.of(training, x[subset], y[subset]),
        inputs=x,
        targets=y,
        spread=AffineMap.fit(x).scale,
        approximation=approximation,
        jitter=jitter,
    )
    centres, _ = kmeans2(
        x / problem.spread, n_inducing, iter=N_KMEANS_ITERATIONS, minit="++", seed=generator
    )
    result = problem.solve(problem.start(exact_gp, centres), max_iterations, tolerance)
    model = SparseGP.condition(problem.prior(result.x), x, y)
    warnings = problem.exact.warnings(problem.hyperparameters(result.x))
    if not result.success:
        stopped = f"stopped after {result.nit} iterations without convergence: {result.message}"
        warnings = (*warnings, stopped)
    return SparseFit(
        model=model,
        objective=model.posterior.log_likelihood,
        n_iterations=int(result.nit),
        converged=bool(result.success),
        seconds=perf_counter() - begin,
        warnings=warnings,
    )


def _check_fit_settings(
    x: np.ndarray,
    n_inducing: int,
    training: MaximumLikelihood,
    max_iterations: int,
    tolerance: float,
) -> None:
    """Raise UserError unless these arguments of `fit_sparse` suit the inputs x (n, p)."""
    check_whole(n_inducing, 1, "fit_sparse: n_inducing")
    check_whole(max_iterations, 1, "fit_sparse: max_iterations")
    if len(x) < 2:
        raise UserError(f"fit_sparse: inputs must have at least 2 samples, got {len(x)}")
    n_distinct = len(np.unique(x, axis=0))
    if n_inducing > n_distinct:
        raise UserError(
            f"fit_sparse: n_inducing must be at most {n_distinct}, the number of distinct inputs, "
            f"got {n_inducing}"
        )
    if not 0 <= tolerance < np.inf:
        raise UserError(
            f"fit_sparse: tolerance must be at least 0 and finite, got {tolerance}; 1e-4 is usual"
        )
    if type(training.kernel) is not SquaredExponential:
        raise UserTypeError(
            f"fit_sparse: training.kernel must be SquaredExponential(), got {training.kernel}"
        )


@dataclass(frozen=True, eq=False)
class _SparseProblem:
    """Minimisation of minus the objective of a sparse GP.

    The variables are those of the exact problem (p + 2,), followed by the inducing points divided
    by the spread of each feature, row by row.
    """

    exact: MarginalLikelihoodProblem  # bounds and priors of the hyper-parameters
    inputs: np.ndarray
    targets: np.ndarray
    spread: np.ndarray  # standard deviation per feature
    approximation: Approximation
    jitter: float

    def start(self, exact_gp: Hyperparameters, centres: np.ndarray) -> np.ndarray:
        """Return the variables for these hyper-parameters and these divided points (M, p)."""
        logs = exact_gp.kernel.log_hyperparameters()
        log_noise_ratio = np.log(exact_gp.noise_variance) - logs[0]
        return np.concatenate([logs, [log_noise_ratio], centres.ravel()])

    def solve(self, start: np.ndarray, max_iterations: int, tolerance: float) -> OptimizeResult:
        """Minimise by L-BFGS-B, with an additional criterion of convergence.

        The search also succeeds once the last `N_GAIN_ITERATIONS` iterations together gained less
        than the tolerance.
        """
        n_coordinates = start.size - len(self.exact.bounds)
        unbounded = np.tile([-np.inf, np.inf], (n_coordinates, 1))
        min_gain = max(tolerance, TOLERANCE) * len(self.targets)
        costs: list[float] = []

        def gain_is_small() -> bool:
            if len(costs) <= N_GAIN_ITERATIONS:
                return False
            gain = costs[-1 - N_GAIN_ITERATIONS] - costs[-1]
            return gain < min_gain

        def stop_if_gain_is_small(intermediate_result: OptimizeResult) -> None:
            costs.append(intermediate_result.fun)
            if gain_is_small():
                raise StopIteration

        result = minimize(
            self.cost,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=np.vstack([self.exact.bounds, unbounded]),
            options={"maxiter": max_iterations, "maxfun": 10 * max_iterations, "ftol": 0.0},
            callback=stop_if_gain_is_small,
        )
        result.success = result.success or gain_is_small()
        return result

    def hyperparameters(self, x: np.ndarray) -> np.ndarray:
        """Return the variables of the exact problem (p + 2,)."""
        return x[: len(self.spread) + 2]

    def prior(self, x: np.ndarray) -> InducingPoints:
        """Return the prior of the sparse GP for all variables x."""
        p = len(self.spread)
        kernel = SquaredExponential(1.0, self.spread).with_log_hyperparameters(x[: p + 1])
        noise_variance = float(np.exp(x[0] + x[p + 1]))
        points = x[p + 2 :].reshape(-1, p) * self.spread
        return InducingPoints(kernel, noise_variance, points, self.approximation, self.jitter)

    def cost(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log posterior and its gradient for all variables x."""
        try:
            likelihood = self.prior(x).log_likelihood(self.inputs, self.targets)
        except np.linalg.LinAlgError:
            return COST_IF_NOT_POSITIVE_DEFINITE, np.zeros_like(x)
        value, gradient, point_gradient = likelihood
        assert point_gradient is not None  # the kernel is stationary
        gradient[0] += gradient[-1]  # the noise is relative to the signal variance
        penalty, slope = self.exact.prior(self.hyperparameters(x))
        return penalty - value, np.append(slope - gradient, -point_gradient * self.spread)
