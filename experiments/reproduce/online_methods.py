"""Online regression methods for comparison: basis posteriors, streaming VFE, linear models.

Every method predicts a sample before it learns the target of that sample, and needs a bounded
memory. Features are of the order of one, targets are centred. A variance is that of a measurement:
it contains the noise.

Symbols: n samples, p features, M points of the basis Z (M, p), ``k = k(Z, x)``, noise variance s2,
jitter ``j = s2 / 100``. A GP is represented by the values ``u = f(Z) + e'``, ``e' ~ N(0, j I)``,
whose prior covariance ``K = k(Z, Z) + j I`` has a well-conditioned factor. A jitter in proportion
to the prior variance would be too large for the small noise and the long length scales of trained
NARX models.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.linalg import cho_solve, lapack, solve_triangular

from sysid.gp.kernels import Kernel

JITTER_RATIO = 0.01  # jitter over the noise variance
# A sample becomes a basis point if its variance given the basis exceeds this, in noise variances.
NOVELTY_RATIO = 0.1
# A row whose variance given the picked rows is below this, over the largest prior variance, repeats
# them.
MIN_PIVOT_RATIO = 1e-12
# Recursive least squares: first variance of every weight, in noise variances.
FIRST_WEIGHT_VARIANCE = 1e3
MIN_NOISE_RATE = 0.005  # smallest rate at which its noise variance is adapted, per sample

Prediction = tuple[np.ndarray, np.ndarray]
#: Function that scores points (M,) by the mean (M,) and covariance (M, M) of u and by ``K^-1``. The
#: point with the lowest score leaves.
Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
cholesky = partial(linalg.cholesky, lower=True, check_finite=False)


class Method(ABC):
    """Regression that learns sample by sample.

    Arguments are not checked, since only the study calls it.
    """

    n_revised = 0  # stored points that were replaced

    @property
    def n_numbers(self) -> int:
        """Number of floats in memory: those of all arrays."""
        return sum(value.size for value in vars(self).values() if isinstance(value, np.ndarray))

    @abstractmethod
    def learn(self, x: ArrayLike, y: float) -> tuple[float, float]:
        """Predict the sample x (p,), then learn its target y; return mean and variance."""

    @abstractmethod
    def predict(self, inputs: ArrayLike) -> Prediction:
        """Return mean (m,) and variance (m,) of measurements at inputs (m, p)."""


def pivoted_cholesky(
    kernel: Kernel,
    inputs: ArrayLike,
    n: int,
    *,
    explained: np.ndarray | None = None,
    least: float = 0.0,
) -> np.ndarray:
    """Pick rows one by one, each with the largest variance given those before.

    With d the variances that are left, ``i = argmax d``, ``l = (k(x_i, X) - L'L_i) / sqrt(d_i)``,
    ``d <- d - l o l`` (Fine and Scheinberg, Efficient SVM training using low-rank kernel
    representations, JMLR 2001). Cost O(n^2 N).

    Parameters
    ----------
    kernel : Kernel
        Covariance function.
    inputs : (N, p)
        All rows.
    n : int
        Largest number of rows to pick.
    explained : (M, N), optional
        ``L^-1 k(Z, X)`` of points that are given, ``L L' = k(Z, Z)``.
    least : float
        No more rows are picked once the largest variance is at most this, target unit squared.

    Returns
    -------
    (n,) of int
        Indices of the rows in the order in which they were picked; fewer than n if all others
        depend on them.
    """
    x = np.asarray(inputs, dtype=float)
    prior = kernel.diagonal(x)
    given = np.zeros((0, len(x))) if explained is None else explained
    residual = prior - (given**2).sum(axis=0)
    rows = np.vstack([given, np.zeros((min(n, len(x)), len(x)))])
    least = max(least, MIN_PIVOT_RATIO * float(prior.max(initial=0.0)))
    picked: list[int] = []
    for t in range(len(given), len(rows)):
        i = int(np.argmax(residual))
        if residual[i] <= least:
            break
        rows[t] = (kernel(x[[i]], x)[0] - rows[:t, i] @ rows[:t]) / np.sqrt(residual[i])
        residual -= rows[t] ** 2
        picked.append(i)
    return np.array(picked, dtype=np.int64)


# --- posteriors of the values at basis points -----------------------------------------------------


def change_of_mean(mean: np.ndarray, spread: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Return how far the mean at each z_r moves when z_r leaves (KRLS-T).

    It is ``|a_r| / Q_rr`` with ``a = K^-1 m`` and ``Q = K^-1``.
    """
    return np.asarray(abs(inverse @ mean) / np.diag(inverse))


def csato_score(mean: np.ndarray, spread: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Return ``a_r^2 / (Q_rr + C_rr)`` with ``C = Q S Q - Q`` (Csato and Opper 2002)."""
    diagonal = np.einsum("ij,ij->i", inverse @ spread, inverse)  # of Q + C = Q S Q
    return np.asarray((inverse @ mean) ** 2 / diagonal)


#: Settings of `BasisPosterior` by the name of the method.
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "krls_t": {"growth": 0.0, "full": change_of_mean, "alpha": 1.0},
    "sogp": {"growth": NOVELTY_RATIO, "full": csato_score, "alpha": 0.0},
    "ald_krls": {"growth": NOVELTY_RATIO, "full": None, "alpha": 0.0},
    "rgp": {"growth": 0.0, "full": None, "alpha": 1.0},
}


@dataclass(eq=False)
class BasisMethod(Method):
    """GP that is represented by the values u at points Z; subclasses describe the arguments."""

    kernel: Kernel
    noise_variance: float
    budget: int
    _: KW_ONLY
    growth: float = NOVELTY_RATIO
    initial: InitVar[ArrayLike | None] = None

    def __post_init__(self, initial: ArrayLike | None) -> None:
        self.jitter = JITTER_RATIO * self.noise_variance
        no_points = np.zeros((0, self.kernel.n_features))
        self.points = np.array(no_points if initial is None else initial)
        self.factor = cholesky(self._prior(self.points))  # L L' = K

    def _prior(self, points: np.ndarray) -> np.ndarray:
        """Return ``K = k(Z, Z) + j I``, symmetric bit for bit."""
        covariance = self.kernel(points, points)
        return np.asarray(0.5 * (covariance + covariance.T) + self.jitter * np.eye(len(points)))


@dataclass(eq=False, kw_only=True)
class BasisPosterior(BasisMethod):
    """Gaussian posterior of the values u at M basis points, from which all samples are predicted.

    N(m, S) is the posterior of u given the samples before, at first the prior N(0, K). A sample is
    predicted by::

        q = K^-1 k,   gamma = k(x, x) - k'q,   h = S q,   s = gamma + q'h + s2,   e = y - q'm
        mean = q'm,   variance = s

    gamma is the variance of the sample given the basis. The sample becomes a basis point if
    ``gamma + j > growth s2``, and if there is room or a point may leave. Its value u* has the
    variance ``v = gamma + j + q'h``, and j is a part of its noise. Otherwise it is projected::

        grow:     g = (h, v),   S <- [[S, h], [h', v]] - g g'/s,   m <- (m, q'm) + g e/s
        project:  P = s2 + alpha gamma + q'h,   S <- S - h h'/P,   m <- m + h e/P
        drop r:   remove row and column r of m, S, K, Z, which marginalises u_r

    While nothing is dropped or projected, the method is the exact GP. With a fixed basis it is FITC
    (``alpha = 1``) or VFE (``alpha = 0``).

    Cost O(M^2) per sample; a point that leaves costs O(M^3) on top.

    `PRESETS` has the settings of the published methods:

    - ``krls_t``: Van Vaerenbergh, Lazaro-Gredilla and Santamaria, Kernel recursive least-squares
      tracker for time-varying regression, IEEE TNNLS 2012, without forgetting. Every sample enters,
      and even the newest may leave.
    - ``sogp``: Csato and Opper, Sparse on-line Gaussian processes, Neural Computation 2002.
    - ``ald_krls``: Engel, Mannor and Meir, The kernel recursive least-squares algorithm, IEEE TSP
      2004.
    - ``rgp``: Huber, Recursive Gaussian process: on-line regression and learning, Pattern
      Recognition Letters 2014; also online FITC (Bijl and others 2015). The basis is `initial`, or
      the first M samples.

    Parameters
    ----------
    kernel : Kernel
        Covariance function.
    noise_variance : float
        s2 > 0, target unit squared; below 1e-8 of the prior variance the factor cannot be computed
        in double precision.
    budget : int
        Largest M >= 1.
    growth : float
        Smallest gamma + j of a new basis point, in noise variances; 0: every sample becomes one.
    full : Score or None
        Score by which a point leaves when there are M + 1; None: no point leaves, the sample is
        projected.
    alpha : float
        Fraction of gamma, from 0 to 1, that counts as noise of a projected sample.
    initial : (m, p), optional
        First basis, m <= M.

    Examples
    --------
    >>> from sysid import SquaredExponential
    >>> method = BasisPosterior(SquaredExponential(1.0, [0.5]), 1e-4, 15, **PRESETS["krls_t"])
    >>> for x in np.linspace(-1, 1, 60):
    ...     mean, variance = method.learn([x], np.sin(3 * x))
    >>> len(method.points), bool(abs(method.predict([[0.3]])[0][0] - np.sin(0.9)) < 0.01)
    (15, True)
    """

    full: Score | None
    alpha: float

    def __post_init__(self, initial: ArrayLike | None) -> None:
        super().__post_init__(initial)
        self.covariance = self._prior(self.points)
        self.mean = np.zeros(len(self.points))
        self.spread = self.covariance.copy()

    def _project(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return ``k``, ``L^-1 k`` with ``L L' = K``, ``q = K^-1 k`` (all M, m), and gamma (m,).

        The condition number of K may be 1e12. Substitution with its factor is backward stable; the
        product with an inverse that is updated point by point is not. Iterative refinement of q
        does not make it more accurate.
        """
        k = self.kernel(self.points, inputs)
        whitened = solve_triangular(self.factor, k, lower=True, check_finite=False)
        q = solve_triangular(self.factor, whitened, lower=True, trans=1, check_finite=False)
        gamma = self.kernel.diagonal(inputs) - (whitened**2).sum(axis=0)
        return k, whitened, q, gamma

    def predict(self, inputs: ArrayLike) -> Prediction:
        _, _, q, gamma = self._project(np.asarray(inputs))
        explained = np.einsum("ij,ij->j", q, self.spread @ q)
        return q.T @ self.mean, self.noise_variance + gamma + explained

    def learn(self, x: ArrayLike, y: float) -> tuple[float, float]:
        row = np.asarray(x)[None]
        k, whitened, q, gamma = (part[..., 0] for part in self._project(row))
        h = self.spread @ q
        mean = float(q @ self.mean)
        explained = float(q @ h)
        variance = float(gamma + explained + self.noise_variance)
        pivot = float(gamma + self.jitter)  # variance of u* given u
        is_novel = pivot > self.growth * self.noise_variance
        may_enter = self.full is not None or len(self.mean) < self.budget
        if is_novel and may_enter:
            prior = float(self.kernel.diagonal(row)[0]) + self.jitter
            self.points = np.vstack([self.points, row])
            self.covariance = bordered(self.covariance, k, prior)
            self.factor = np.tril(bordered(self.factor, whitened, np.sqrt(pivot)))
            self.mean = np.append(self.mean, mean)
            self.spread = bordered(self.spread, h, pivot + explained)
            h = np.append(h, pivot + explained)
            divisor = variance
        else:
            divisor = float(self.noise_variance + self.alpha * gamma + explained)
        self.mean += h * ((y - mean) / divisor)
        self.spread -= np.outer(h, h) / divisor
        if self.full is not None and len(self.mean) > self.budget:
            scores = self.full(self.mean, self.spread, inverse_of(self.factor))
            self._drop(int(np.argmin(scores)))
        return mean, variance

    def _drop(self, r: int) -> None:
        """Remove basis point r; its removal is a revision unless it is the newest one."""
        others = np.arange(len(self.mean)) != r
        is_newest = r == len(self.mean) - 1
        self.points = self.points[others]
        self.mean = self.mean[others]
        self.covariance = self.covariance[others][:, others]
        self.spread = self.spread[others][:, others]
        if is_newest:
            self.factor = self.factor[:-1, :-1].copy()
        else:
            self.factor = cholesky(self.covariance)
            self.n_revised += 1


@dataclass(eq=False, kw_only=True)
class StreamingVFE(BasisMethod):
    """Variational sparse GP that learns in batches, each of which moves a few inducing points.

    The information of the samples is kept as data sites: a likelihood ``exp(b'w - w'A w / 2)`` of
    the whitened values ``w = L^-1 u``, ``L L' = K``. With a batch (X, y) and new points Z', L' of
    K' and ``V = L'^-1 k(Z', X)``, the update is::

        G = L^-1 k(Z, Z') L'^-T,   A <- G'A G + V V'/s2,   b <- G'b + V y/s2,   C C' = I + A
        mean = v'(I + A)^-1 b,   variance = s2 + k(x, x) - v'v + |C^-1 v|^2,   v = L'^-1 k(Z', x)

    These are the sites of Bui, Nguyen and Turner, Streaming sparse Gaussian process approximations,
    NeurIPS 2017, with constant hyper-parameters. Whitening avoids the difference of two inverses.
    If no point moves, the result is that of batch VFE. Every move loses information. A row enters
    if its variance given the points exceeds `growth` noise variances; the point whose absence
    changes the mean least leaves (`change_of_mean`). Cost O(M^3) per batch. Samples wait until they
    fill a batch, and are learned only then.

    Parameters
    ----------
    kernel : Kernel
        Covariance function.
    noise_variance : float
        s2 > 0, target unit squared; below 1e-8 of the prior variance the factor cannot be computed
        in double precision.
    budget : int
        M >= 1.
    batch : int
        Samples that are learned together.
    moves : int
        Largest number of points that leave per batch.
    growth : float
        Smallest gamma of a new point, in noise variances.
    initial : (m, p), optional
        First inducing points, m <= M.
    """

    batch: int = 50
    moves: int = 5

    def __post_init__(self, initial: ArrayLike | None) -> None:
        super().__post_init__(initial)
        n = len(self.points)
        self.information = np.zeros((n, n))  # A
        self.shift = np.zeros(n)  # b
        self.root = np.eye(n)  # C
        self.weights = np.zeros(n)  # (I + A)^-1 b
        self.waiting_inputs = np.zeros((self.batch, self.kernel.n_features))
        self.waiting_targets = np.zeros(self.batch)
        self.n_waiting = 0

    def _whiten(self, inputs: np.ndarray) -> np.ndarray:
        """Return ``L^-1 k(Z, X)`` (M, m)."""
        k = self.kernel(self.points, inputs)
        return solve_triangular(self.factor, k, lower=True, check_finite=False)

    def predict(self, inputs: ArrayLike) -> Prediction:
        x = np.asarray(inputs)
        v = self._whiten(x)
        explained = solve_triangular(self.root, v, lower=True, check_finite=False)  # C^-1 v
        gamma = self.kernel.diagonal(x) - (v**2).sum(axis=0)
        return v.T @ self.weights, self.noise_variance + gamma + (explained**2).sum(axis=0)

    def learn(self, x: ArrayLike, y: float) -> tuple[float, float]:
        mean, variance = self.predict(np.asarray(x)[None])
        self.waiting_inputs[self.n_waiting] = x
        self.waiting_targets[self.n_waiting] = y
        self.n_waiting += 1
        if self.n_waiting == len(self.waiting_targets):
            self._learn_batch(self.waiting_inputs, self.waiting_targets)
            self.n_waiting = 0
        return float(mean[0]), float(variance[0])

    def _learn_batch(self, x: np.ndarray, y: np.ndarray) -> None:
        """Move inducing points to novel rows of a batch (m, p), (m,), then learn the batch."""
        max_novel = max(self.budget - len(self.points), self.moves)
        min_variance = self.growth * self.noise_variance
        explained = self._whiten(x)
        novel = pivoted_cholesky(self.kernel, x, max_novel, explained=explained, least=min_variance)
        if len(novel):
            self._move(x[novel])
        v = self._whiten(x)
        self.information += v @ v.T / self.noise_variance
        self.shift += v @ y / self.noise_variance
        self.root = cholesky(np.eye(len(v)) + self.information)
        self.weights = cho_solve((self.root, True), self.shift)

    def _move(self, new: np.ndarray) -> None:
        """Add new points (m, p), remove others, and transform the sites to the new basis."""
        old = self.points
        old_factor = self.factor
        mean = self.factor @ self.weights
        covariance = self._prior(old)
        kept = np.arange(len(old))
        while len(kept) + len(new) > self.budget:
            of_kept = covariance[np.ix_(kept, kept)]
            inverse = inverse_of(cholesky(of_kept))
            scores = change_of_mean(mean[kept], of_kept, inverse)
            kept = np.delete(kept, np.argmin(scores))
        self.n_revised += len(old) - len(kept)
        self.points = np.vstack([old[kept], new])
        self.factor = cholesky(self._prior(self.points))
        cross = self.kernel(old, self.points)
        cross[kept, np.arange(len(kept))] += self.jitter  # kept points have the same values u
        half = solve_triangular(old_factor, cross, lower=True)
        change = solve_triangular(self.factor, half.T, lower=True).T  # G
        self.information = change.T @ self.information @ change
        self.shift = change.T @ self.shift


# --- linear models --------------------------------------------------------------------------------


class LinearModel(Method):
    """Bayesian linear regression ``y = phi(x)'w + e`` with exponential forgetting.

    In units of the noise variance s2, it is::

        h = P phi,   g = h / (l + phi'h),   w += g (y - phi'w),   P <- (P - g h') / l
        mean = phi'w,   variance = s2 (1 + phi'h)

    Starting from ``w = 0`` and ``P = P0``, w minimises
    ``sum_t l^(n - t) (y_t - phi_t'w)^2 + l^n w'P0^-1 w``.
    """

    kept = 1.0  # l, forgetting factor per sample
    # s2 is the running mean of (y - phi'w)^2 / (1 + phi'h), with this rate; 0: s2 is given.
    rate = 0.0
    least_rate = 0.0  # smallest value to which the rate falls
    noise_variance: float
    weights: np.ndarray  # (D,)
    spread: np.ndarray  # (D, D) P

    @abstractmethod
    def features(self, inputs: np.ndarray) -> np.ndarray:
        """Return ``phi`` (m, D) of inputs (m, p)."""

    def predict(self, inputs: ArrayLike) -> Prediction:
        phi = self.features(np.asarray(inputs))
        growth = np.einsum("ij,ij->i", phi, phi @ self.spread)
        return phi @ self.weights, self.noise_variance * (1.0 + growth)

    def learn(self, x: ArrayLike, y: float) -> tuple[float, float]:
        phi = self.features(np.asarray(x)[None])[0]
        h = self.spread @ phi
        mean = float(phi @ self.weights)
        growth = float(phi @ h)
        variance = self.noise_variance * (1.0 + growth)
        error = y - mean
        self.weights += h * (error / (self.kept + growth))
        self.spread = (self.spread - np.outer(h, h) / (self.kept + growth)) / self.kept
        self.noise_variance += self.rate * (error**2 / (1.0 + growth) - self.noise_variance)
        self.rate = max(self.least_rate, self.rate / (1.0 + self.rate))
        return mean, variance


class RandomFeatures(LinearModel):
    """Bayesian linear regression on D random features.

    Products of the features approximate a squared-exponential kernel. The D/2 frequencies W are
    Gaussian, orthogonal in blocks of p, in units of the inverse length scales::

        phi(x) = sqrt(2 variance / D) (cos W x, sin W x)
        E[phi(x)'phi(x')] = k(x, x'),   w ~ N(0, I)

    The mean is ridge regression with the penalty s2, so ``P0 = I / s2``. Cost O(D^2). Far from all
    samples the variance is too small: once the weights are known, no uncertainty remains anywhere.
    Results depend on the seed.

    Source: Gijsberts and Metta, Real-time model learning using incremental sparse spectrum Gaussian
    process regression, Neural Networks 2013; orthogonal frequencies: Yu and others, Orthogonal
    random features, NIPS 2016.

    Parameters
    ----------
    kernel : SquaredExponential
        Covariance function that is approximated.
    noise_variance : float
        s2 > 0, target unit squared.
    n_weights : int
        D; an odd number is reduced by one.
    seed : int
        Seed of the frequencies.
    """

    def __init__(self, kernel: Any, noise_variance: float, n_weights: int, *, seed: int) -> None:
        self.noise_variance = noise_variance
        generator = np.random.default_rng(seed)
        n = n_weights // 2
        p = kernel.n_features
        n_blocks = math.ceil(n / p)
        blocks, _ = np.linalg.qr(generator.standard_normal((n_blocks, p, p)))
        directions = blocks.reshape(-1, p)[:n]
        lengths = np.sqrt(generator.chisquare(p, (n, 1)))
        self.frequencies = directions * lengths / np.asarray(kernel.length_scales)
        self.amplitude = float(np.sqrt(kernel.variance / n))
        self.weights = np.zeros(2 * n)
        self.spread = np.eye(2 * n) / self.noise_variance

    def features(self, inputs: np.ndarray) -> np.ndarray:
        angles = inputs @ self.frequencies.T
        return self.amplitude * np.hstack([np.cos(angles), np.sin(angles)])


class RecursiveLeastSquares(LinearModel):
    """Linear regression with an offset, ``phi = (x, 1)``; of lags, it is an ARX model.

    ``P0 = 1000 I``. The noise variance starts at 1 and is estimated as the mean of the scaled
    squared errors, first over all samples, then with the rate 0.005. Cost O(p^2). With forgetting,
    inputs that stay constant for longer than ``1 / (1 - l)`` samples let P grow without bound in
    the directions that they do not excite.

    Source: Ljung, System Identification, 1999, section 11.2.

    Parameters
    ----------
    n_features : int
        p >= 1.
    memory : float
        T > 1, samples; the forgetting factor is ``l = 1 - 1/T``.
    """

    rate = 0.5
    least_rate = MIN_NOISE_RATE

    def __init__(self, n_features: int, memory: float = np.inf) -> None:
        self.kept = 1 - 1 / memory
        self.noise_variance = 1.0
        self.weights = np.zeros(n_features + 1)
        self.spread = FIRST_WEIGHT_VARIANCE * np.eye(n_features + 1)

    def features(self, inputs: np.ndarray) -> np.ndarray:
        return np.hstack([inputs, np.ones((len(inputs), 1))])


# --- linear algebra -------------------------------------------------------------------------------


def inverse_of(factor: np.ndarray) -> np.ndarray:
    """Return ``(L L')^-1`` of a lower factor L."""
    lower = np.tril(lapack.dpotri(factor, lower=1)[0])
    return lower + np.tril(lower, -1).T


def bordered(inner: np.ndarray, side: np.ndarray, corner: float) -> np.ndarray:
    """Return ``[[inner, side], [side', corner]]``."""
    return np.vstack([np.column_stack([inner, side]), np.append(side, corner)])
