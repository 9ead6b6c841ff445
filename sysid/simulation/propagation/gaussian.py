"""Gaussian approximations of the state: Taylor expansion and moment matching.

The state z = (last L outputs of all m), of length L m, is taken as Gaussian with the full
covariance P. H selects the lagged outputs of a regressor from z, and ``S = H P H'`` is their
covariance. For a target whose covariance with them is ``S w``, w (q, m), ``cov(z, target) = P H'
w``; with ``y = A z + target`` (A selects y[k-1] where the target is a change, else A = 0)::

    cov(z, y) = P A' + P H' w
    Var y = A P A' + A cov(z, target) + (A cov(z, target))' + Var target

S may be singular, and is singular where an output was measured.

Moments of a squared exponential process at an uncertain input (`Overlap`, `MomentMatching`). The
deviation d of the input from its mean is Gaussian with covariance ``S = R R'`` (q, q). Every
process sees d through a linear map B of its own, in units of its length scales: its mean is ``f(d)
= sum_k beta_k k_k(d)``, ``k_k(d) = sf2 exp(-0.5 |nu_k - B d|^2)`` with nu_k (c,) the point k
relative to the mean of the input. With ``C = B R`` and ``G = I + C'C``::

    g_k = E k_k = |G|^-1/2 k_k(0) exp(e_k),   e_k = 0.5 nu_k' C G^-1 C' nu_k
    E f = beta' g,   cov(d, f) = S w,   w = sum_k beta_k g_k B' (I + C C')^-1 nu_k
    Q_kl = E k_k^a k_l^b = |G_ab|^-1/2 k_k^a(0) k_l^b(0) exp(0.5 |C_a' nu_k + C_b' nu_l|^2 in the
    metric G_ab^-1) G_ab = I + C_a'C_a + C_b'C_b cov(f_a, f_b) = beta_a' (Q - g g') beta_b,   and
    for a = b  + sf2 - tr(Ky^-1 Q)

The formulas of Girard et al. (2003) and, between outputs, Deisenroth and Rasmussen (2011),
rewritten: S may be singular, and ``Q - g g' = g g' o (exp(D) - 1)`` with D of the size of S and
without cancellation stays accurate however small S is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from sysid.arrays import Array, Indices
from sysid.errors import UserError
from sysid.gp.kernels import SquaredExponential
from sysid.model.model import Model
from sysid.simulation.dynamics import AFFINE, Dynamics, Moments
from sysid.simulation.propagation.propagation import Propagation


class UncertainTargets(NamedTuple):
    """Targets of all outputs at b uncertain regressors."""

    mean: Array  # (b, m) target units
    covariance: Array  # (b, m, m) latent, target units squared
    # (b, q, m) w, whose product with S is the covariance of lagged outputs and targets
    slope: Array


#: targets at regressors of mean (b, p), whose lagged outputs have the covariance S (b, q, q)
OneStep: TypeAlias = Callable[[Array, Array], UncertainTargets]


@dataclass(frozen=True)
class GaussianState(Propagation):
    """Propagation of a Gaussian over the lagged outputs, by a rule for one step."""

    process_noise: bool = False  # whether the noise of the model is fed back

    @abstractmethod
    def one_step(self, dynamics: Dynamics) -> OneStep:
        """Rule for one step of these dynamics."""

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        one_step = self.one_step(dynamics)
        n_starts, n_steps, _ = exogenous.shape
        m = dynamics.n_outputs
        index = dynamics.state_index
        bounds = dynamics.bounds(past)
        moments = Moments(*np.full((2, n_starts, n_steps, m), np.nan))
        mean = past.copy()
        covariance = np.zeros((n_starts, past[0].size, past[0].size))
        goes_on = np.arange(n_starts)
        noise = np.diag(dynamics.noise_variance * self.process_noise)
        for t in range(n_steps):
            x = dynamics.regressors(mean, exogenous[goes_on, t])
            with np.errstate(over="ignore", invalid="ignore"):
                targets = one_step(x, covariance[:, index[:, None], index])
                cross, own = _covary_with_next(dynamics, covariance, targets)
            y = dynamics.to_value(targets.mean, mean[:, -1])
            variance = np.maximum(np.einsum("bii->bi", own), 0.0)
            inside = np.all(
                bounds.contain(y) & (np.sqrt(variance) < bounds.high - bounds.low),
                axis=1,
            )
            moments.mean[goes_on, t] = y
            moments.variance[goes_on[inside], t] = variance[inside]
            mean = np.concatenate([mean[:, 1:], y[:, None]], axis=1)[inside]
            both = np.block([[covariance, cross], [cross.transpose(0, 2, 1), own + noise]])
            covariance = both[inside, m:, m:]  # one sample later
            goes_on = goes_on[inside]
        return moments

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        n_points = max(model.gp.n_points for model in dynamics.models)
        return (
            4 * (dynamics.n_lags * dynamics.n_outputs) ** 2
            + n_steps
            + n_points * (dynamics.n_features + 1)
        )


def _covary_with_next(
    dynamics: Dynamics, covariance: Array, targets: UncertainTargets
) -> tuple[Array, Array]:
    """Covariance (b, L m, m) of the state with the next outputs, and covariance (b, m, m) of the
    next outputs.
    """
    cross = covariance[:, :, dynamics.state_index] @ targets.slope
    own = targets.covariance
    if dynamics.is_change:
        newest = slice(-dynamics.n_outputs, None)
        both = cross[:, newest]
        own = own + covariance[:, newest, newest] + both + both.transpose(0, 2, 1)
        cross = cross + covariance[:, :, newest]
    return cross, 0.5 * (
        own + own.transpose(0, 2, 1)
    )  # rounding must not feed an antisymmetric part back


@dataclass(frozen=True)
class Taylor(GaussianState):
    """Linearise the mean at the mean of the regressor, for any kernel and mean function.

    With J = d mean / dx and the latent variance s2 at the mean x of the regressor, S its
    covariance::

        E = mean(x),  Cov = diag(s2) + J S J',  w = J'

    The error of the function counts as drawn anew at every step; see `MonteCarlo`.
    """

    def one_step(self, dynamics: Dynamics) -> OneStep:
        def expand(regressors: Array, covariance: Array) -> UncertainTargets:
            targets = dynamics.targets(regressors)
            slope = dynamics.gradient(regressors)[:, :, dynamics.feedback]
            spread = slope @ covariance @ slope.transpose(0, 2, 1)
            own = np.eye(dynamics.n_outputs) * targets.variance[:, None, :]
            return UncertainTargets(targets.mean, own + spread, slope.transpose(0, 2, 1))

        return expand


class Mixture:
    """A posterior as a sum of N squared exponentials of c coordinates in length scales.

    Parameters
    ----------
    model : Model
    feedback : (q,)
        Features that are lagged outputs.

    Attributes
    ----------
    view : (c, q)
        B, coordinates in length scales per unit of the lagged outputs.
    variance : float
        sf2, target unit squared.
    points : (N, c)
        In length scales.
    beta : (N,)
        ``Ky^-1 y``.
    cholesky, inverse : (N, N)
        Upper triangular U with ``U'U = Ky``, and ``Ky^-1``.

    Raises
    ------
    ValueError
        A kernel or mean function of which the moments are not known.
    """

    def __init__(self, model: Model, feedback: Indices) -> None:
        kernel: Any = model.gp.kernel
        for given, known, words in (
            (kernel, (SquaredExponential,), "the kernel SquaredExponential"),
            (model.mean, AFFINE, "a zero, constant or linear mean"),
        ):
            if type(given) not in known:
                raise UserError(
                    f"MomentMatching: expected {words}, got {type(given).__name__} for {model.narx.target!r}; Taylor, "
                    "MonteCarlo and SequentialConditioning take any kernel and mean function"
                )
        state = model.gp.exact_form()
        self.scaling, self.lengths, self.variance = (
            model.scaling,
            np.asarray(kernel.length_scales),
            kernel.variance,
        )
        self.view = model.scaling.linear_part()[:, feedback] / self.lengths[:, None]
        self.points = state["inputs"][state["order"]] / self.lengths
        self.beta, self.cholesky = state["weights"], state["cholesky"]
        self.inverse = state["factor"].T @ state["factor"]


class Overlap:
    """Expectations of a posterior and of its exponentials over one Gaussian regressor.

    Parameters
    ----------
    mixture : Mixture
    regressor : (p,)
        Mean.
    root : (q, q)
        R, with the covariance ``R R'`` of the lagged outputs.

    Attributes
    ----------
    projected, gram : (N, q), (q, q)
        ``C' nu`` and ``C'C``.
    exponent, half_log
        e (N,), and ``0.5 log |G|``.
    log_g, g : (N,)
        ``E k_k`` and its logarithm, as g itself may underflow.
    slope : (q,)
        w.
    """

    def __init__(self, mixture: Mixture, regressor: Array, root: Array) -> None:
        self.mixture = mixture
        nu = mixture.points - mixture.scaling.transform(regressor) / mixture.lengths
        c = mixture.view @ root
        self.projected = nu @ c
        self.gram = c.T @ c
        self.exponent, self.half_log = (
            _quadratic(self.projected, self.gram),
            _half_log(self.gram),
        )
        self.log_g = (
            np.log(mixture.variance)
            - 0.5 * np.einsum("kc,kc->k", nu, nu)
            + self.exponent
            - self.half_log
        )
        self.g = np.exp(self.log_g)
        pulled = (mixture.beta * self.g) @ nu
        self.slope = mixture.view.T @ np.linalg.solve(np.eye(len(c)) + c @ c.T, pulled)


def covariance_of(overlaps: list[Overlap]) -> Array:
    """Covariance (m, m) of several posteriors at the same input.

    ``beta_a' (Q - g g') beta_b`` is that of their means; the variance of a posterior adds the mean
    of its latent variance.
    """
    covariance = np.empty((len(overlaps), len(overlaps)))
    for i, first in enumerate(overlaps):
        for j, second in enumerate(overlaps[: i + 1]):
            excess = _excess(first, second)
            covariance[i, j] = covariance[j, i] = first.mixture.beta @ excess @ second.mixture.beta
        known = np.empty(0)
        if len(excess):
            known = solve_triangular(first.mixture.cholesky, first.g, trans=1, check_finite=False)
        latent = first.mixture.variance - known @ known - np.vdot(first.mixture.inverse, excess)
        covariance[i, i] += max(latent, 0.0)
    return covariance


def _excess(first: Overlap, second: Overlap) -> Array:
    """``Q - g g'`` (N, N')."""
    gram = first.gram + second.gram
    mixed = first.projected @ np.linalg.solve(np.eye(len(gram)) + gram, second.projected.T)
    rows = _quadratic(first.projected, gram) - first.exponent
    columns = (
        _quadratic(second.projected, gram)
        - second.exponent
        + first.half_log
        + second.half_log
        - _half_log(gram)
    )
    # D, and g g'
    ratio = mixed + rows[:, None] + columns
    product = np.outer(first.g, second.g)
    excess = product * np.expm1(np.minimum(ratio, 1.0))
    large = ratio > 1.0
    if large.any():
        excess[large] = (
            np.exp((first.log_g[:, None] + second.log_g + ratio)[large]) - product[large]
        )
    return np.asarray(excess)


def _quadratic(projected: Array, gram: Array) -> Array:
    """``0.5 p' (I + gram)^-1 p`` (N,) of the rows p of projected (N, q)."""
    solved = np.linalg.solve(np.eye(len(gram)) + gram, projected.T)
    return np.asarray(0.5 * np.einsum("kq,qk->k", projected, solved))


def _half_log(gram: Array) -> float:
    """``0.5 log |I + gram|`` of a positive semi-definite matrix, accurate for a small one."""
    return 0.5 * float(np.log1p(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum())


@dataclass(frozen=True)
class MomentMatching(GaussianState):
    """Exact mean and covariance of every step, given a Gaussian before it (formulas at the head of
    the file).

    For squared exponential kernels and zero, constant or linear mean functions. Against `Taylor` it
    also sees the curvature of the function over the spread of the regressor, and the covariance of
    several outputs that follows from it; like `Taylor` it counts the error of the function as drawn
    anew at every step.
    """

    def one_step(self, dynamics: Dynamics) -> OneStep:
        """Match the moments of the targets; see `GaussianState.one_step`.

        Raises
        ------
        ValueError
            Another kernel or mean function.
        """
        mixtures = [Mixture(model, dynamics.feedback) for model in dynamics.models]
        origin = np.zeros((1, dynamics.n_features))
        slopes = [model.mean.gradient(origin)[0] for model in dynamics.models]
        trend = np.stack([slope[dynamics.feedback] for slope in slopes], axis=1)

        def match(regressors: Array, covariance: Array) -> UncertainTargets:
            mean = np.stack([model.mean(regressors) for model in dynamics.models], axis=1)
            own = np.empty((len(mean), dynamics.n_outputs, dynamics.n_outputs))
            slope = np.empty((len(mean), *trend.shape))
            for b, x in enumerate(regressors):
                values, vectors = np.linalg.eigh(covariance[b])
                root = vectors * np.sqrt(
                    np.maximum(values, 0.0)
                )  # rounding may leave eigenvalues below zero
                found = [Overlap(mixture, x, root) for mixture in mixtures]
                w = np.stack([one.slope for one in found], axis=1)
                mixed = trend.T @ covariance[b] @ w
                mean[b] += [float(one.mixture.beta @ one.g) for one in found]
                own[b] = trend.T @ covariance[b] @ trend + mixed + mixed.T + covariance_of(found)
                slope[b] = trend + w
            return UncertainTargets(mean, own, slope)

        return match
