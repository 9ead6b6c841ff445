"""Sparse Gaussian process regression with trained inducing points: the batch baselines VFE and FITC."""

from dataclasses import dataclass
from numbers import Integral
from time import perf_counter
from typing import NamedTuple, Self
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas
from scipy.optimize import OptimizeResult, minimize

from sysid.arrays import matrix, vector
from sysid.inducing import Approximation, InducingPoints, Posterior
from sysid.kernels import SquaredExponential, SquaredExponentialForm
from sysid.scaling import Scaling
from sysid.training import MarginalLikelihoodProblem, MaximumLikelihood

START = MaximumLikelihood(n_initial=500, restarts=3)  # exact GP on some of the samples
LLOYD_STEPS = 10  # of k-means, before the inducing points are trained
GAIN_STEPS = 10  # iterations whose common gain is judged


@dataclass(frozen=True, eq=False)
class SparseGP:
    """Sparse GP that has seen its data; ``y = f(x) + e``, ``f`` of zero mean.

    With the names of `InducingPoints` and ``v = L^-1 k(Z, x)``::

        mean = v'w,   latent variance = k(x, x) - v'v + v' B^-1 v

    (Quinonero-Candela and Rasmussen, A unifying view of sparse approximate Gaussian process regression, JMLR
    2005). Its memory is two M x M factors; a prediction costs O(M^2).

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
        ValueError, numpy.linalg.LinAlgError
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
        mean, variance = np.empty(len(x)), np.empty(len(x))
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

    L-BFGS-B with the analytic gradient over ``(log variance, log length scales, log noise/variance, Z / std)``,
    from the exact GP's hyper-parameters on a random subset and the centres of k-means. The result does not depend on
    the units of the features (up to rounding); centre the targets.

    Parameters
    ----------
    inputs : (n, p)
    targets : (n,)
        Of zero mean a priori.
    approximation : Approximation
    n_inducing : int
        M, from 1 to the number of distinct inputs.
    training : MaximumLikelihood
        Finds the start on ``n_initial`` random samples (all, if there are fewer). Its bounds, relative to these
        samples, and its priors hold for the sparse GP too.
    max_iterations : int
        Of L-BFGS-B; a warning says if it stopped there.
    tolerance : float
        The training has converged once its last 10 iterations together gained less than this, in nats per sample
        (whatever the units of the target); 0 waits for L-BFGS-B's own rule. 1e-4 is usual for many samples.
    jitter : float
        See `InducingPoints`.
    seed : int
        Of the subset, of the starts and of k-means.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite, fewer than 2 samples, another `n_inducing`,
        `max_iterations`, `tolerance` or `jitter`.
    """
    begin = perf_counter()
    x = matrix(inputs, np.shape(inputs)[1] if np.ndim(inputs) == 2 else 0, "inputs")
    y = vector(targets, len(x), "targets")
    _check(x, n_inducing, max_iterations, tolerance)
    if not isinstance(training.kernel, SquaredExponentialForm):
        form = type(training.kernel).__name__
        raise TypeError(
            f"fit_sparse: training.kernel must be a SquaredExponentialForm, the only kernel here, got {form}"
        )
    generator = np.random.default_rng(seed)
    subset = generator.permutation(len(x))[: training.n_initial]
    start = training.train(x[subset], y[subset], seed)
    spread = Scaling.fit(x).scale
    exact = MarginalLikelihoodProblem.of(training, x[subset], y[subset])
    problem = _SparseProblem(exact, x, y, spread, approximation, jitter)
    logs = start.kernel.log_hyperparameters()
    first = np.append(logs, np.log(start.noise_variance) - logs[0])
    centres = _k_means(x / spread, n_inducing, generator)
    result = problem.solve(np.concatenate([first, centres.ravel()]), max_iterations, tolerance)
    model = SparseGP.condition(problem.prior(result.x), x, y)
    notes = exact.warnings(result.x[: first.size])
    if not result.success:
        notes = (*notes, f"stopped after {result.nit} iterations without convergence: {result.message}")
    seconds = perf_counter() - begin
    return SparseFit(model, model.posterior.log_likelihood, int(result.nit), bool(result.success), seconds, notes)


class _SmallGain:
    """Ends a minimisation once `GAIN_STEPS` iterations together lowered the cost by less than `least`."""

    def __init__(self, least: float) -> None:
        self.least = least
        self.costs: list[float] = []
        self.reached = False

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        self.costs.append(intermediate_result.fun)
        if len(self.costs) > GAIN_STEPS and self.costs[-1 - GAIN_STEPS] - self.costs[-1] < self.least:
            self.reached = True
            raise StopIteration


@dataclass(frozen=True, eq=False)
class _SparseProblem:
    """Minimise minus the objective over the hyper-parameters of the exact problem, then ``Z / spread``."""

    exact: MarginalLikelihoodProblem  # bounds and priors
    inputs: np.ndarray
    targets: np.ndarray
    spread: np.ndarray  # standard deviation per feature
    approximation: Approximation
    jitter: float

    def solve(self, start: np.ndarray, max_iterations: int, tolerance: float) -> OptimizeResult:
        hyper = self.exact.bounds
        free = np.tile([-np.inf, np.inf], (start.size - len(hyper), 1))
        options = {"maxiter": max_iterations, "maxfun": 10 * max_iterations}
        bounds = np.vstack([hyper, free])
        stop = _SmallGain(tolerance * len(self.targets))
        result = minimize(self.cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=stop)
        result.success = result.success or stop.reached
        return result

    def prior(self, x: np.ndarray) -> InducingPoints:
        p = len(self.spread)
        kernel = SquaredExponential(1.0, self.spread).with_log_hyperparameters(x[: p + 1])
        noise, points = float(np.exp(x[0] + x[p + 1])), x[p + 2 :].reshape(-1, p) * self.spread
        return InducingPoints(kernel, noise, points, self.approximation, self.jitter)

    def cost(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        p = len(self.spread)
        try:
            value, gradient, moved = self.prior(x).log_likelihood(self.inputs, self.targets)
        except np.linalg.LinAlgError:
            return 1e25, np.zeros_like(x)
        gradient[0] += gradient[-1]  # the noise is relative to the signal variance
        penalty, slope = self.exact.prior(x[: p + 2])
        return penalty - value, np.append(slope - gradient, -moved * self.spread)


def _check(x: np.ndarray, n_inducing: int, max_iterations: int, tolerance: float) -> None:
    if len(x) < 2:
        raise ValueError(f"fit_sparse: inputs must have at least 2 samples, got {len(x)}")
    for name, value in (("n_inducing", n_inducing), ("max_iterations", max_iterations)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"fit_sparse: {name} must be a whole number of at least 1, got {value!r}")
    if not 0 <= tolerance < np.inf:
        raise ValueError(f"fit_sparse: tolerance must be at least 0 and finite, got {tolerance}; 1e-4 is usual")
    distinct = len(np.unique(x, axis=0))
    if n_inducing > distinct:
        raise ValueError(f"fit_sparse: n_inducing must be at most {distinct}, the distinct inputs, got {n_inducing}")


def _k_means(x: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
    """Centres (n, p) of clusters: k-means++ (Arthur and Vassilvitskii, 2007), then steps of Lloyd."""
    centres = x[[generator.integers(len(x))]]
    distance = ((x - centres[0]) ** 2).sum(axis=1)
    while len(centres) < n:
        new = x[generator.choice(len(x), p=distance / distance.sum())]
        centres = np.vstack([centres, new])
        distance = np.minimum(distance, ((x - new) ** 2).sum(axis=1))
    for _ in range(LLOYD_STEPS):
        centres = _lloyd(x, centres)
    return centres


def _lloyd(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Mean of the samples nearest to each centre; a centre without samples stays."""
    from scipy.cluster.vq import vq  # slow to import

    labels, _ = vq(x, centres)
    sizes, sums = np.bincount(labels, minlength=len(centres)), np.zeros_like(centres)
    np.add.at(sums, labels, x)
    return np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)


__all__ = ["SparseFit", "SparseGP", "fit_sparse"]
