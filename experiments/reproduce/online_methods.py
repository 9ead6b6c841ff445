"""Online regression methods that an online GP is compared with: basis posteriors, streaming VFE,
linear models.

Every method predicts a sample before it learns the target of that sample, and needs a bounded
memory. Features are of the order of one, targets are centred. A variance is that of a measurement:
it contains the noise.

Symbols: n samples, p features, M points of the basis Z (M, p), ``k = k(Z, x)``, noise variance s2,
jitter ``j = s2 / 100``. A GP is known by the values ``u = f(Z) + e'``, ``e' ~ N(0, j I)``, whose
prior covariance ``K = k(Z, Z) + j I`` has a sound factor. A jitter that follows the prior variance
instead is too large for the small noise and the long length scales of trained NARX models.
"""

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

JITTER = 0.01  # of the noise variance
# of the noise variance: what the basis leaves open of a sample that deserves a point of its own
NOVEL = 0.1
# of the largest prior variance: below that a row is a copy of rows already picked
LEAST_PIVOT = 1e-12
#: recursive least squares: variance of every weight at the start, in noise variances; rate at which the noise is found
FIRST_VARIANCE = 1e3
NOISE_RATE = 0.005

Prediction = tuple[np.ndarray, np.ndarray]
#: scores (M,) of points, by the mean (M,) and covariance (M, M) of u and by ``K^-1``; the lowest leaves
Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
cholesky = partial(linalg.cholesky, lower=True, check_finite=False)


class Method(ABC):
    """Regression that learns sample by sample. Arguments are not checked: the study is the only
    caller.
    """

    n_revised = 0  # how often a stored point gave its place to another

    @property
    def n_numbers(self) -> int:
        """Floats held in memory: those of all arrays."""
        return sum(value.size for value in vars(self).values() if isinstance(value, np.ndarray))

    @abstractmethod
    def learn(self, x: ArrayLike, y: float) -> tuple[float, float]:
        """Predict the sample x (p,), then learn its target y. Returns the mean and the variance of
        the prediction.
        """

    @abstractmethod
    def predict(self, inputs: ArrayLike) -> Prediction:
        """Mean (m,) and variance (m,) of measurements at inputs (m, p). Nothing is learned."""


def pivoted_cholesky(
    kernel: Kernel,
    inputs: ArrayLike,
    n: int,
    *,
    explained: np.ndarray | None = None,
    least: float = 0.0,
) -> np.ndarray:
    """Rows that together say most about all rows: each next one is that of largest variance given
    those before.

    With d the variances that are left, ``i = argmax d``, ``l = (k(x_i, X) - L'L_i) / sqrt(d_i)``,
    ``d <- d - l o l`` (Fine and Scheinberg, Efficient SVM training using low-rank kernel
    representations, JMLR 2001). Cost O(n^2 N).

    Parameters
    ----------
    kernel : Kernel
    inputs : (N, p)
    n : int
        Largest number of rows.
    explained : (M, N), optional
        ``L^-1 k(Z, X)`` of points that are known already, ``L L' = k(Z, Z)``.
    least : float
        Variance at which it ends, target unit squared.

    Returns
    -------
    (n,) of int
        Indices of the rows, the first one first; fewer if all others follow from them.
    """
    x = np.asarray(inputs, dtype=float)
    prior = kernel.diagonal(x)
    known = np.zeros((0, len(x))) if explained is None else explained
    left = prior - (known**2).sum(axis=0)
    rows = np.vstack([known, np.zeros((min(n, len(x)), len(x)))])
    least = max(least, LEAST_PIVOT * float(prior.max(initial=0.0)))
    picked: list[int] = []
    for t in range(len(known), len(rows)):
        i = int(np.argmax(left))
        if left[i] <= least:
            break
        rows[t] = (kernel(x[[i]], x)[0] - rows[:t, i] @ rows[:t]) / np.sqrt(left[i])
        left -= rows[t] ** 2
        picked.append(i)
    return np.array(picked, dtype=np.int64)


# --- posteriors of the values at basis points -----------------------------------------------------


def change_of_mean(mean: np.ndarray, spread: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """``|a_r| / Q_rr``, ``a = K^-1 m``, ``Q = K^-1``: how far the mean at z_r moves when z_r leaves
    (KRLS-T).
    """
    return np.asarray(abs(inverse @ mean) / np.diag(inverse))


def csato_score(mean: np.ndarray, spread: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """``a_r^2 / (Q_rr + C_rr)``, ``C = Q S Q - Q`` (Csato and Opper 2002)."""
    return np.asarray((inverse @ mean) ** 2 / np.einsum("ij,ij->i", inverse @ spread, inverse))


#: settings of `BasisPosterior` by the name of the method
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "krls_t": {"growth": 0.0, "full": change_of_mean, "alpha": 1.0},
    "sogp": {"growth": NOVEL, "full": csato_score, "alpha": 0.0},
    "ald_krls": {"growth": NOVEL, "full": None, "alpha": 0.0},
    "rgp": {"growth": 0.0, "full": None, "alpha": 1.0},
}


@dataclass(eq=False)
class BasisMethod(Method):
    """GP that is known by the values u at points Z; its subclasses describe the arguments."""

    kernel: Kernel
    noise_variance: float
    budget: int
    _: KW_ONLY
    growth: float = NOVEL
    initial: InitVar[ArrayLike | None] = None

    def __post_init__(self, initial: ArrayLike | None) -> None:
        self.jitter = JITTER * self.noise_variance
        self.points = np.array(
            np.zeros((0, self.kernel.n_features)) if initial is None else initial
        )
        self.factor = cholesky(self._prior(self.points))  # L L' = K

    def _prior(self, points: np.ndarray) -> np.ndarray:
        """``K = k(Z, Z) + j I``, symmetric bit for bit."""
        covariance = self.kernel(points, points)
        return np.asarray(0.5 * (covariance + covariance.T) + self.jitter * np.eye(len(points)))


@dataclass(eq=False, kw_only=True)
class BasisPosterior(BasisMethod):
    """Gaussian posterior of the values u at M basis points, from which all samples are predicted.

    A sample meets the prior N(0, K), or the posterior N(m, S) of the samples before it::

        q = K^-1 k,   gamma = k(x, x) - k'q,   h = S q,   s = gamma + q'h + s2,   e = y - q'm
        mean = q'm,   variance = s

    gamma is what the basis leaves open. The sample becomes a basis point if ``gamma + j > growth
    s2`` and there is room, or a point may leave; its value u* has the variance ``v = gamma + j +
    q'h``, and j is a part of its noise::

        grow:     g = (h, v),   S <- [[S, h], [h', v]] - g g'/s,   m <- (m, q'm) + g e/s
        project:  P = s2 + alpha gamma + q'h,   S <- S - h h'/P,   m <- m + h e/P
        drop r:   remove row and column r of m, S, K, Z, which marginalises u_r

    While nothing is dropped or projected it is the exact GP. For a basis that stays it is FITC
    (``alpha = 1``) or VFE (``alpha = 0``).

    Cost O(M^2) per sample; a point that leaves costs O(M^3) on top.

    `PRESETS` has the settings of the published methods:

    - ``krls_t``: Van Vaerenbergh, Lazaro-Gredilla and Santamaria, Kernel recursive least-squares
      tracker for time-varying regression, IEEE TNNLS 2012, without forgetting. Every sample enters;
      the newest may leave.
    - ``sogp``: Csato and Opper, Sparse on-line Gaussian processes, Neural Computation 2002.
    - ``ald_krls``: Engel, Mannor and Meir, The kernel recursive least-squares algorithm, IEEE TSP
      2004.
    - ``rgp``: Huber, Recursive Gaussian process: on-line regression and learning, Pattern
      Recognition Letters 2014; also online FITC (Bijl and others 2015). The basis is `initial`, or
      the first M samples.

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        s2 > 0, target unit squared; below 1e-8 of the prior variance double precision cannot hold
        the factor.
    budget : int
        Largest M >= 1.
    growth : float
        Least gamma of a new basis point, in noise variances; 0: every sample is novel.
    full : Score or None
        Score by which a point leaves when there are M + 1; None: nobody leaves, the sample is
        projected.
    alpha : float
        Share of gamma, from 0 to 1, that counts as noise of a sample that is projected.
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
        self.mean, self.spread = np.zeros(len(self.points)), self.covariance.copy()

    def _project(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """``k`` (M, m), ``L^-1 k`` (M, m) with ``L L' = K``, ``q = K^-1 k`` (M, m), gamma (m,).

        K may have the condition 1e12. Substitution with its factor is backward stable, which a
        product with an inverse that is updated point by point is not; a refinement of q gains
        nothing.
        """
        k = self.kernel(self.points, inputs)
        whitened = solve_triangular(self.factor, k, lower=True, check_finite=False)
        q = solve_triangular(self.factor, whitened, lower=True, trans=1, check_finite=False)
        return k, whitened, q, self.kernel.diagonal(inputs) - (whitened**2).sum(axis=0)

    def predict(self, inputs: ArrayLike) -> Prediction:
        _, _, q, gamma = self._project(np.asarray(inputs))
        return q.T @ self.mean, self.noise_variance + gamma + np.einsum(
            "ij,ij->j", q, self.spread @ q
        )

    def learn(self, x: ArrayLike, y: float) -> tuple[float, float]:
        row = np.asarray(x)[None]
        k, whitened, q, gamma = (part[..., 0] for part in self._project(row))
        h = self.spread @ q
        mean = float(q @ self.mean)
        explained = float(q @ h)
        variance = float(gamma + explained + self.noise_variance)
        pivot = float(gamma + self.jitter)  # variance of u* given u
        if pivot > self.growth * self.noise_variance and (
            self.full or len(self.mean) < self.budget
        ):
            prior = float(self.kernel.diagonal(row)[0]) + self.jitter
            self.points, self.covariance = (
                np.vstack([self.points, row]),
                bordered(self.covariance, k, prior),
            )
            self.factor = np.tril(bordered(self.factor, whitened, np.sqrt(pivot)))
            self.mean, self.spread = (
                np.append(self.mean, mean),
                bordered(self.spread, h, pivot + explained),
            )
            h = np.append(h, pivot + explained)
            divisor = variance
        else:
            divisor = float(self.noise_variance + self.alpha * gamma + explained)
        self.mean += h * ((y - mean) / divisor)
        self.spread -= np.outer(h, h) / divisor
        if self.full is not None and len(self.mean) > self.budget:
            self._drop(int(np.argmin(self.full(self.mean, self.spread, inverse_of(self.factor)))))
        return mean, variance

    def _drop(self, r: int) -> None:
        others = np.arange(len(self.mean)) != r
        newest_leaves = r == len(self.mean) - 1
        self.points, self.mean = self.points[others], self.mean[others]
        self.covariance, self.spread = (
            self.covariance[others][:, others],
            self.spread[others][:, others],
        )
        self.factor = self.factor[:-1, :-1].copy() if newest_leaves else cholesky(self.covariance)
        self.n_revised += not newest_leaves


@dataclass(eq=False, kw_only=True)
class StreamingVFE(BasisMethod):
    """Variational sparse GP that learns in batches and moves a few of its M inducing points with
    each.

    What the samples say of u is kept as data sites, a likelihood ``exp(b'w - w'A w / 2)`` of the
    whitened values ``w = L^-1 u``, ``L L' = K``. A batch (X, y) and new points Z', with L' of K'
    and ``V = L'^-1 k(Z', X)``::

        G = L^-1 k(Z, Z') L'^-T,   A <- G'A G + V V'/s2,   b <- G'b + V y/s2,   C C' = I + A
        mean = v'(I + A)^-1 b,   variance = s2 + k(x, x) - v'v + |C^-1 v|^2,   v = L'^-1 k(Z', x)

    These are the sites of Bui, Nguyen and Turner, Streaming sparse Gaussian process approximations,
    NeurIPS 2017, with hyper-parameters that stay; whitened, no difference of two inverses is
    needed. Points that stay give batch VFE. Every move loses information. A row enters if the
    points leave open more than `growth` noise variances of it, and the point leaves whose absence
    changes the mean least (`change_of_mean`). Cost O(M^3) per batch. Samples that do not fill a
    batch wait; until then they are not learned.

    Parameters
    ----------
    kernel : Kernel
    noise_variance : float
        s2 > 0, target unit squared; below 1e-8 of the prior variance double precision cannot hold
        the factor.
    budget : int
        M >= 1.
    batch : int
        Samples that are learned together.
    moves : int
        Largest number of points that leave per batch.
    growth : float
        Least gamma of a new point, in noise variances.
    initial : (m, p), optional
        First inducing points, m <= M.
    """

    batch: int = 50
    moves: int = 5

    def __post_init__(self, initial: ArrayLike | None) -> None:
        super().__post_init__(initial)
        n = len(self.points)
        self.information, self.shift = np.zeros((n, n)), np.zeros(n)  # A, b
        self.root, self.weights = np.eye(n), np.zeros(n)  # C, (I + A)^-1 b
        self.waiting_inputs, self.waiting_targets = (
            np.zeros((self.batch, self.kernel.n_features)),
            np.zeros(self.batch),
        )
        self.n_waiting = 0

    def _whiten(self, inputs: np.ndarray) -> np.ndarray:
        """``L^-1 k(Z, X)`` (M, m)."""
        return solve_triangular(
            self.factor,
            self.kernel(self.points, inputs),
            lower=True,
            check_finite=False,
        )

    def predict(self, inputs: ArrayLike) -> Prediction:
        x = np.asarray(inputs)
        v = self._whiten(x)
        known = solve_triangular(self.root, v, lower=True, check_finite=False)
        gamma = self.kernel.diagonal(x) - (v**2).sum(axis=0)
        return v.T @ self.weights, self.noise_variance + gamma + (known**2).sum(axis=0)

    def learn(self, x: ArrayLike, y: float) -> tuple[float, float]:
        mean, variance = self.predict(np.asarray(x)[None])
        self.waiting_inputs[self.n_waiting], self.waiting_targets[self.n_waiting] = x, y
        self.n_waiting += 1
        if self.n_waiting == len(self.waiting_targets):
            self._learn_batch(self.waiting_inputs, self.waiting_targets)
            self.n_waiting = 0
        return float(mean[0]), float(variance[0])

    def _learn_batch(self, x: np.ndarray, y: np.ndarray) -> None:
        most = max(self.budget - len(self.points), self.moves)
        least = self.growth * self.noise_variance
        new = x[pivoted_cholesky(self.kernel, x, most, explained=self._whiten(x), least=least)]
        if len(new):
            self._move(new)
        v = self._whiten(x)
        self.information += v @ v.T / self.noise_variance
        self.shift += v @ y / self.noise_variance
        self.root = cholesky(np.eye(len(v)) + self.information)
        self.weights = cho_solve((self.root, True), self.shift)

    def _move(self, new: np.ndarray) -> None:
        """Take in new points (m, p), let others go, and say what the sites say in terms of the new
        basis.
        """
        old = self.points
        factor = self.factor
        mean = self.factor @ self.weights
        covariance = self._prior(old)
        kept = np.arange(len(old))
        while len(kept) + len(new) > self.budget:
            of_kept = covariance[np.ix_(kept, kept)]
            kept = np.delete(
                kept,
                np.argmin(change_of_mean(mean[kept], of_kept, inverse_of(cholesky(of_kept)))),
            )
        self.n_revised += len(old) - len(kept)
        self.points = np.vstack([old[kept], new])
        self.factor = cholesky(self._prior(self.points))
        cross = self.kernel(old, self.points)
        cross[kept, np.arange(len(kept))] += self.jitter  # the same values u
        half = solve_triangular(factor, cross, lower=True)
        change = solve_triangular(self.factor, half.T, lower=True).T  # G
        self.information = change.T @ self.information @ change
        self.shift = change.T @ self.shift


# --- linear models --------------------------------------------------------------------------------


class LinearModel(Method):
    """Bayesian linear regression ``y = phi(x)'w + e`` with exponential forgetting, in units of the
    noise variance s2.

    ::

        h = P phi,   g = h / (l + phi'h),   w += g (y - phi'w),   P <- (P - g h') / l
        mean = phi'w,   variance = s2 (1 + phi'h)

    From ``w = 0``, ``P = P0`` on, w minimises ``sum_t l^(n - t) (y_t - phi_t'w)^2 + l^n w'P0^-1
    w``.
    """

    kept = 1.0  # l
    # of the running mean s2 of (y - phi'w)^2 / (1 + phi'h); 0: s2 is known
    rate = 0.0
    least_rate = 0.0
    noise_variance: float
    weights: np.ndarray  # (D,)
    spread: np.ndarray  # (D, D) P

    @abstractmethod
    def features(self, inputs: np.ndarray) -> np.ndarray:
        """``phi`` (m, D) of inputs (m, p)."""

    def predict(self, inputs: ArrayLike) -> Prediction:
        phi = self.features(np.asarray(inputs))
        return phi @ self.weights, self.noise_variance * (
            1.0 + np.einsum("ij,ij->i", phi, phi @ self.spread)
        )

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
    """Bayesian linear regression on D random features whose products approximate a
    squared-exponential kernel.

    The D/2 frequencies W are Gaussian, orthogonal in blocks of p, in units of the inverse length
    scales::

        phi(x) = sqrt(2 variance / D) (cos W x, sin W x),   E[phi(x)'phi(x')] = k(x, x'),   w ~ N(0,
        I)

    The mean is ridge regression with the penalty s2, so ``P0 = I / s2``. Cost O(D^2). Far from all
    samples the variance is too small: the features have no part that the samples leave open. The
    seed matters.

    Source: Gijsberts and Metta, Real-time model learning using incremental sparse spectrum Gaussian
    process regression, Neural Networks 2013; orthogonal frequencies: Yu and others, Orthogonal
    random features, NIPS 2016.

    Parameters
    ----------
    kernel : SquaredExponential
    noise_variance : float
        s2 > 0, target unit squared.
    n_weights : int
        D; of an odd number one is left out.
    seed : int
        Of the frequencies.
    """

    def __init__(self, kernel: Any, noise_variance: float, n_weights: int, *, seed: int) -> None:
        self.noise_variance = noise_variance
        generator = np.random.default_rng(seed)
        n = n_weights // 2
        p = kernel.n_features
        directions = np.linalg.qr(generator.standard_normal((-(-n // p), p, p)))[0].reshape(-1, p)[
            :n
        ]
        lengths = np.sqrt(generator.chisquare(p, (n, 1)))
        self.frequencies = directions * lengths / np.asarray(kernel.length_scales)
        self.amplitude = float(np.sqrt(kernel.variance / n))
        self.weights, self.spread = np.zeros(2 * n), np.eye(2 * n) / self.noise_variance

    def features(self, inputs: np.ndarray) -> np.ndarray:
        angles = inputs @ self.frequencies.T
        return self.amplitude * np.hstack([np.cos(angles), np.sin(angles)])


class RecursiveLeastSquares(LinearModel):
    """Linear regression with an offset, ``phi = (x, 1)``; for lagged inputs and outputs an ARX
    model.

    ``P0 = 1000 I``. The noise variance is found: it starts at 1 and is the mean of the scaled
    squared errors, first of all samples, then with the rate 0.005. Cost O(p^2). With forgetting,
    inputs that stay constant for longer than ``1 / (1 - l)`` samples let P grow without bound along
    what they do not excite.

    Source: Ljung, System Identification, 1999, section 11.2.

    Parameters
    ----------
    n_features : int
        p >= 1.
    memory : float
        T > 1, samples: ``l = 1 - 1/T``.
    """

    rate = 0.5
    least_rate = NOISE_RATE

    def __init__(self, n_features: int, memory: float = np.inf) -> None:
        self.kept = 1 - 1 / memory
        self.noise_variance = 1.0
        self.weights, self.spread = (
            np.zeros(n_features + 1),
            FIRST_VARIANCE * np.eye(n_features + 1),
        )

    def features(self, inputs: np.ndarray) -> np.ndarray:
        return np.hstack([inputs, np.ones((len(inputs), 1))])


# --- what they share ------------------------------------------------------------------------------


def inverse_of(factor: np.ndarray) -> np.ndarray:
    """``(L L')^-1`` of a lower factor L."""
    lower = np.tril(lapack.dpotri(factor, lower=1)[0])
    return lower + np.tril(lower, -1).T


def bordered(inner: np.ndarray, side: np.ndarray, corner: float) -> np.ndarray:
    """``[[inner, side], [side', corner]]``."""
    return np.vstack([np.column_stack([inner, side]), np.append(side, corner)])
