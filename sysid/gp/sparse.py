"""Sparse Gaussian processes: the batch baselines VFE and FITC, and the bound that adaptive training
maximises.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from typing import NamedTuple, Self
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, lapack, solve_triangular
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
from sysid.gp.marginal_likelihood import Likelihood
from sysid.gp.training import MarginalLikelihoodProblem, MaximumLikelihood

#: covariances of samples and inducing points that an evaluation keeps between its two passes, 16 byte each
MOST_KEPT = 2_000_000


class Approximation(Enum):
    """What becomes of the prior variance ``d_i`` of a sample that the inducing points do not
    explain.

    The value is its share ``alpha`` that counts as noise of that sample; the rest is a penalty.

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
    gradient: (
        np.ndarray
    )  # (q + 1,) with respect to (log kernel hyper-parameters, log noise variance)
    point_gradient: (
        np.ndarray | None
    )  # (M, p) with respect to the inducing points, of a stationary kernel


class Posterior(NamedTuple):
    """Posterior of the whitened inducing values ``L^-1 u``: mean `weights`, covariance ``B^-1``."""

    whitening: np.ndarray  # (M, M) lower L^-1 with L L' = Kuu
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


class _Gradient:
    """Sum of the derivatives of the objective F through covariances of the inducing points with
    others.
    """

    def __init__(self, kernel: Kernel, points: np.ndarray) -> None:
        self.kernel = kernel
        self.points = points
        self.along = np.zeros(
            len(kernel.hyperparameter_names)
        )  # (q,) with respect to the log hyper-parameters
        self._pull = np.zeros(points.shape)  # (M, p) to the points, where the kernel is stationary

    def add(
        self,
        weights: np.ndarray,
        others: np.ndarray,
        covariance: np.ndarray,
        times: float = 1.0,
    ) -> None:
        """Add what the derivative `weights` (M, b) with respect to this covariance says; `times`
        for the points.
        """
        self.along += self.kernel.contract_gradient(weights, self.points, covariance, others)
        if isinstance(self.kernel, Stationary):
            self._pull += times * self.kernel.point_gradient(
                weights, self.points, covariance, others
            )

    @property
    def pull(self) -> np.ndarray | None:
        """Derivative with respect to the points (M, p); None if the kernel is not stationary."""
        return self._pull if isinstance(self.kernel, Stationary) else None


#: derivatives of the objective F: ``-2 L' dF/dKuu L`` (M, M), ``dF/dk(x_i, x_i)`` (n,) and ``dF/d noise_variance``
_Slopes = tuple[np.ndarray, np.ndarray, float]


@dataclass(frozen=True, eq=False)
class InducingPoints:
    """Prior of a sparse GP: M inducing points stand for the data.

    With ``Kuu = k(Z, Z) + jitter variance I = L L'``, ``V = L^-1 k(Z, X)``, ``d = diag(k(X, X) -
    V'V)``::

        log p(y) ~ log N(y; 0, V'V + D) - (1 - alpha) / (2 noise_variance) sum_i d_i
        D = diag(noise_variance + alpha d),   alpha = 0 (VFE), 1 (FITC)

    VFE is a lower bound of the exact log marginal likelihood. Data are visited in blocks, whitened
    by L: memory O(M^2 + M block_size), beside what a gradient keeps of few samples (`MOST_KEPT`);
    time O(n M^2).

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        Target unit squared, > 0.
    points : (M, p)
        Z, feature units. Copied, read-only.
    approximation : Approximation
    jitter : float
        Relative to the mean prior variance of the points. The inducing values are then those of f
        plus noise of that variance: VFE stays a bound, nothing else is touched. Smooth kernels make
        k(Z, Z) singular in double precision without it; 0 is for well separated points.
    block_size : int
        Samples at a time.

    Raises
    ------
    ValueError, TypeError
        No points, features that are not those of the kernel, values out of range, another kernel.
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
                f"InducingPoints: kernel must be a kernel with hyper-parameters, got {self.kernel!r}"
            )
        points = matrix(self.points, self.kernel.n_features, "InducingPoints: points").copy()
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        if len(points) == 0:
            raise UserError("InducingPoints: points must have at least 1 row, got 0")
        if not 0 < self.noise_variance < np.inf:
            raise UserError(
                f"InducingPoints: noise_variance must be positive and finite, got {self.noise_variance}"
            )
        if not 0 <= self.jitter < 1:
            raise UserError(
                f"InducingPoints: jitter must be from 0 to below 1, got {self.jitter}; 1e-8 is usual"
            )
        check_counts(self, block_size=1)

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
        sysid.arrays.NotPositiveDefiniteError
            If Kuu is not positive definite in double precision.
        """
        x, y = self._samples(inputs, targets)
        whitening = self._whitening()
        return self._condition(whitening, self.blocks(whitening, x), y)

    def _whitening(self) -> np.ndarray:
        """``L^-1`` (M, M), lower."""
        kuu = self.kernel(self.points, self.points)
        kuu[np.diag_indices_from(kuu)] += self.jitter * np.mean(self.kernel.diagonal(self.points))
        factor = _cholesky(
            kuu, f"covariance of {len(kuu)} inducing points with jitter {self.jitter:g}"
        )
        return np.asarray(lapack.dtrtri(factor, lower=1)[0])

    def _condition(
        self, whitening: np.ndarray, blocks: Iterable[_Block], y: np.ndarray
    ) -> Posterior:
        B = np.eye(len(whitening))
        projected = np.zeros(len(whitening))
        terms = len(y) * np.log(2.0 * np.pi)
        for block in blocks:
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
            d/dk(x_i, x_i) = h_i,   d/d noise_variance = sum_i g_i + (1 - alpha) / (2
            noise_variance^2) sum_i d_i

        Parameters and errors are those of `posterior`.
        """
        x, y = self._samples(inputs, targets)
        whitening = self._whitening()
        kept = [*self.blocks(whitening, x)] if len(x) * len(self.points) <= MOST_KEPT else None
        p = self._condition(whitening, kept or self.blocks(whitening, x), y)
        slopes = self._fitc if self.approximation is Approximation.fitc else self._vfe
        gradient = _Gradient(self.kernel, self.points)
        prior, variance, noise = slopes(p, kept or self.blocks(whitening, x), y, gradient)
        derivative = (
            -0.5 * p.whitening.T @ prior @ p.whitening
        )  # dF/dKuu, in which every point stands twice
        gradient.add(derivative, self.points, self.kernel(self.points, self.points), times=2.0)
        gradient.along += self.kernel.diagonal_gradient(variance, x)
        jitter = np.full(len(self.points), self.jitter * np.trace(derivative) / len(self.points))
        gradient.along += self.kernel.diagonal_gradient(
            jitter, self.points
        )  # which follows the variances
        return SparseLikelihood(
            p.log_likelihood,
            np.append(gradient.along, self.noise_variance * noise),
            gradient.pull,
        )

    def _vfe(
        self, p: Posterior, blocks: Iterable[_Block], y: np.ndarray, gradient: _Gradient
    ) -> _Slopes:
        """With ``D = noise_variance I`` all sums over products of V follow from ``V V' =
        noise_variance (B - I)``.
        """
        s2 = self.noise_variance
        eye = np.eye(len(p.weights))
        inverse = _inverse(p.precision_factor)
        mixing = p.whitening.T @ (eye - inverse) / s2
        weights = p.weights @ p.whitening
        noise = 0.5 * (len(eye) - np.trace(inverse) - len(y)) / s2
        for block in blocks:
            b = (y[block.rows] - p.weights @ block.whitened) / s2
            by_cross = mixing @ block.whitened
            by_cross += np.outer(weights, b)
            gradient.add(by_cross, block.inputs, block.cross)
            noise += 0.5 * (b @ b + block.residual.sum() / s2**2)
        prior = (
            np.outer(p.weights, p.weights)
            - 2.0 * eye
            + inverse
            + p.precision_factor @ p.precision_factor.T
        )
        return prior, np.full(len(y), -0.5 / s2), noise

    def _fitc(
        self, p: Posterior, blocks: Iterable[_Block], y: np.ndarray, gradient: _Gradient
    ) -> _Slopes:
        """``h = g`` differs from sample to sample."""
        inverse = _inverse(p.precision_factor)
        slopes = np.empty(len(y))
        prior = np.outer(p.weights, p.weights) - np.eye(len(inverse)) + inverse
        for block in blocks:
            v = block.whitened
            d = block.noise
            solved = inverse @ v
            b = (y[block.rows] - p.weights @ v) / d
            g = 0.5 * (b * b - 1.0 / d + np.einsum("ij,ij->j", v, solved) / d**2)
            pushed = v * (2.0 * g)
            prior -= pushed @ v.T
            solved /= d
            pushed += solved
            pushed -= np.outer(p.weights, b)
            gradient.add(
                _product(p.whitening, -pushed, transposed=True),
                block.inputs,
                block.cross,
            )
            slopes[block.rows] = g
        return prior, slopes, float(slopes.sum())

    def blocks(self, whitening: np.ndarray, inputs: np.ndarray) -> Iterator[_Block]:
        """Covariances with the inducing points, whitened by ``L^-1``, block after block of the
        inputs (n, p).
        """
        variances = self.kernel.diagonal(inputs)
        for start in range(0, len(inputs), self.block_size):
            rows = slice(start, start + self.block_size)
            cross = self.kernel(self.points, inputs[rows])
            v = _product(whitening, cross)
            residual = variances[rows] - np.einsum("ij,ij->j", v, v)
            noise = self.noise_variance + self.approximation.value * residual
            yield _Block(rows, inputs[rows], cross, v, residual, noise)

    def _samples(self, inputs: ArrayLike, targets: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        x = matrix(inputs, self.kernel.n_features, "inputs")
        if len(x) == 0:
            raise UserError("InducingPoints: inputs must have at least 1 sample, got 0")
        return x, vector(targets, len(x), "targets")


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
        raise NotPositiveDefiniteError(
            f"{name} is not positive definite: raise jitter or noise_variance"
        )
    return factor


START = MaximumLikelihood(n_initial=500, restarts=3)  # exact GP on some of the samples


LLOYD_STEPS = 10  # of k-means, before the inducing points are trained


GAIN_STEPS = 10  # iterations whose common gain is judged


@dataclass(frozen=True, eq=False)
class VariationalProblem(MarginalLikelihoodProblem):
    """The same for a model that has `points` alone: the likelihood of all samples by VFE, with
    these points.

    What the points cannot represent counts as noise, so that the hyper-parameters are those that
    serve the model.
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
        """Problem of inputs (n, p), centred targets (n,) and points (M, p); None: the inputs are
        the points.
        """
        plain = MarginalLikelihoodProblem.of(settings, inputs, targets)
        points = inputs if points is None else points
        return cls(plain.settings, plain.inputs, plain.targets, plain.expected, points=points)

    def log_density(self, kernel: Kernel, noise_variance: float) -> Likelihood:
        """VFE with its gradient; `n_given` has no effect."""
        found = InducingPoints(kernel, noise_variance, self.points).log_likelihood(
            self.inputs, self.targets
        )
        return Likelihood(found.value, found.gradient)


@dataclass(frozen=True, eq=False)
class SparseGP:
    """Sparse GP that has seen its data; ``y = f(x) + e``, ``f`` of zero mean.

    With the names of `InducingPoints` and ``v = L^-1 k(Z, x)``::

        mean = v'w,   latent variance = k(x, x) - v'v + v' B^-1 v

    (Quinonero-Candela and Rasmussen, A unifying view of sparse approximate Gaussian process
    regression, JMLR 2005). Its memory is two M x M factors; a prediction costs O(M^2).

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
        """Learn from inputs (n, p) and centred targets (n,), with the hyper-parameters as they are.

        Raises
        ------
        ValueError, sysid.arrays.NotPositiveDefiniteError
            As `InducingPoints.posterior`.
        """
        return cls(prior, prior.posterior(inputs, targets))

    @property
    def noise_variance(self) -> float:
        """Noise variance, target unit squared."""
        return self.prior.noise_variance

    def predict(self, inputs: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (m,) and latent variance (m,) at inputs (m, p).

        Add `noise_variance` for the variance of a measured target.

        Raises
        ------
        ValueError
            Inputs of another shape, or that are not finite.

        Warns
        -----
        RuntimeWarning
            If rounding put variances below 0; they are set to 0.
        """
        x = matrix(inputs, self.prior.kernel.n_features, "inputs")
        mean = np.empty(len(x))
        variance = np.empty(len(x))
        root = self.posterior.precision_factor
        for block in self.prior.blocks(self.posterior.whitening, x):
            half = blas.dtrsm(1.0, root, block.whitened.T, side=1, lower=1, trans_a=1)  # (b, M)
            mean[block.rows] = self.posterior.weights @ block.whitened
            variance[block.rows] = block.residual + np.einsum("ij,ij->i", half, half)
        if clipped := int((variance < 0).sum()):
            text = f"SparseGP: {clipped} of {len(x)} variances were below 0 by rounding and are set to 0; raise jitter"
            warn(text, RuntimeWarning, stacklevel=2)
        return mean, np.maximum(variance, 0.0)


class SparseFit(NamedTuple):
    """What a training of a sparse GP returns."""

    model: SparseGP
    objective: float  # VFE: lower bound of the log marginal likelihood; FITC: its approximation
    n_iterations: int
    converged: bool
    seconds: float  # wall time of everything
    warnings: tuple[str, ...]  # what a user should know about this estimate


def fit_sparse(
    inputs: ArrayLike,
    targets: ArrayLike,
    *,
    approximation: Approximation = Approximation.vfe,
    n_inducing: int = 100,
    training: MaximumLikelihood = START,
    max_iterations: int = 300,
    tolerance: float = 0.0,
    jitter: float = 1e-8,
    seed: int = 0,
) -> SparseFit:
    """Train hyper-parameters and inducing points together on all samples.

    L-BFGS-B with the analytic gradient over ``(log variance, log length scales, log noise/variance,
    Z / std)``, from the exact GP's hyper-parameters on a random subset and the centres of k-means.
    The result does not depend on the units of the features (up to rounding); centre the targets.

    Parameters
    ----------
    inputs : (n, p)
    targets : (n,)
        Of zero mean a priori.
    approximation : Approximation
    n_inducing : int
        M, from 1 to the number of distinct inputs.
    training : MaximumLikelihood
        Finds the start on ``n_initial`` random samples (all, if there are fewer). Its bounds,
        relative to these samples, and its priors hold for the sparse GP too.
    max_iterations : int
        Of L-BFGS-B; a warning says if it stopped there.
    tolerance : float
        The training has converged once its last 10 iterations together gained less than this, in
        nats per sample (whatever the units of the target); 0 waits for L-BFGS-B's own rule. 1e-4 is
        usual for many samples.
    jitter : float
        See `InducingPoints`.
    seed : int
        Of the subset, of the starts and of k-means.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite, fewer than 2 samples, another
        `n_inducing`, `max_iterations`, `tolerance` or `jitter`.
    """
    from scipy.cluster.vq import kmeans2  # slow to import

    begin = perf_counter()
    x = matrix(inputs, np.shape(inputs)[1] if np.ndim(inputs) == 2 else 0, "inputs")
    y = vector(targets, len(x), "targets")
    check_whole(n_inducing, 1, "fit_sparse: n_inducing")
    check_whole(max_iterations, 1, "fit_sparse: max_iterations")
    if len(x) < 2:
        raise UserError(f"fit_sparse: inputs must have at least 2 samples, got {len(x)}")
    if n_inducing > (distinct := len(np.unique(x, axis=0))):
        raise UserError(
            f"fit_sparse: n_inducing must be at most {distinct}, the distinct inputs, got {n_inducing}"
        )
    if not 0 <= tolerance < np.inf:
        raise UserError(
            f"fit_sparse: tolerance must be at least 0 and finite, got {tolerance}; 1e-4 is usual"
        )
    if type(training.kernel) is not SquaredExponential:
        raise UserTypeError(
            f"fit_sparse: training.kernel must be SquaredExponential(), got {training.kernel}"
        )
    generator = np.random.default_rng(seed)
    subset = generator.permutation(len(x))[: training.n_initial]
    start = training.train(x[subset], y[subset], seed)
    spread = AffineMap.fit(x).scale
    exact = MarginalLikelihoodProblem.of(training, x[subset], y[subset])
    problem = _SparseProblem(exact, x, y, spread, approximation, jitter)
    logs = start.kernel.log_hyperparameters()
    first = np.append(logs, np.log(start.noise_variance) - logs[0])
    centres, _ = kmeans2(x / spread, n_inducing, iter=LLOYD_STEPS, minit="++", seed=generator)
    result = problem.solve(np.concatenate([first, centres.ravel()]), max_iterations, tolerance)
    model = SparseGP.condition(problem.prior(result.x), x, y)
    notes = exact.warnings(result.x[: first.size])
    if not result.success:
        notes = (
            *notes,
            f"stopped after {result.nit} iterations without convergence: {result.message}",
        )
    seconds = perf_counter() - begin
    return SparseFit(
        model,
        model.posterior.log_likelihood,
        int(result.nit),
        bool(result.success),
        seconds,
        notes,
    )


@dataclass(frozen=True, eq=False)
class _SparseProblem:
    """Minimise minus the objective over the hyper-parameters of the exact problem, then ``Z /
    spread``.
    """

    exact: MarginalLikelihoodProblem  # bounds and priors
    inputs: np.ndarray
    targets: np.ndarray
    spread: np.ndarray  # standard deviation per feature
    approximation: Approximation
    jitter: float

    def solve(self, start: np.ndarray, max_iterations: int, tolerance: float) -> OptimizeResult:
        """L-BFGS-B, which also succeeds once `GAIN_STEPS` iterations gain less than the tolerance
        together.
        """
        free = np.tile([-np.inf, np.inf], (start.size - len(self.exact.bounds), 1))
        options = {"maxiter": max_iterations, "maxfun": 10 * max_iterations}
        bounds = np.vstack([self.exact.bounds, free])
        costs: list[float] = []

        def gain_is_small() -> bool:
            return len(costs) > GAIN_STEPS and costs[-1 - GAIN_STEPS] - costs[-1] < tolerance * len(
                self.targets
            )

        def stop(intermediate_result: OptimizeResult) -> None:
            costs.append(intermediate_result.fun)
            if gain_is_small():
                raise StopIteration

        result = minimize(
            self.cost,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options=options,
            callback=stop,
        )
        result.success = result.success or gain_is_small()
        return result

    def prior(self, x: np.ndarray) -> InducingPoints:
        p = len(self.spread)
        kernel = SquaredExponential(1.0, self.spread).with_log_hyperparameters(x[: p + 1])
        noise = float(np.exp(x[0] + x[p + 1]))
        points = x[p + 2 :].reshape(-1, p) * self.spread
        return InducingPoints(kernel, noise, points, self.approximation, self.jitter)

    def cost(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        p = len(self.spread)
        try:
            value, gradient, moved = self.prior(x).log_likelihood(self.inputs, self.targets)
            assert moved is not None  # the kernel is stationary
        except np.linalg.LinAlgError:
            return 1e25, np.zeros_like(x)
        gradient[0] += gradient[-1]  # the noise is relative to the signal variance
        penalty, slope = self.exact.prior(x[: p + 2])
        return penalty - value, np.append(slope - gradient, -moved * self.spread)
