"""Gaussian approximations of the state: Taylor expansion and moment matching.

The state z, the last L samples of all m outputs, is a vector of length L m. It is taken as Gaussian
with the full covariance P. H selects the lagged outputs of a regressor from z, so that their
covariance is ``S = H P H'``. S is singular where an output was measured. Let ``S w`` with w (q, m)
be the covariance of the lagged outputs with the targets. With ``y = A z + target``, where A selects
y[k-1] if the target is a change and is zero otherwise::

    cov(z, target) = P H' w
    cov(z, y) = P A' + P H' w
    Var y = A P A' + A cov(z, target) + (A cov(z, target))' + Var target

Moments of a squared exponential process at an uncertain input (`Overlap`, `MomentMatching`). The
deviation d of the input from its mean is Gaussian with covariance ``S = R R'`` (q, q). Every
process sees d through a linear map B of its own, in units of its length scales. Its mean is::

    f(d) = sum_k beta_k k_k(d),   k_k(d) = sf2 exp(-0.5 |nu_k - B d|^2)

with nu_k (c,) the point k relative to the mean of the input. With ``C = B R`` and ``G = I + C'C``::

    g_k = E k_k = |G|^-1/2 k_k(0) exp(e_k),   e_k = 0.5 nu_k' C G^-1 C' nu_k
    E f = beta' g
    cov(d, f) = S w,   w = sum_k beta_k g_k B' (I + C C')^-1 nu_k

For two processes a and b, with ``G_ab = I + C_a'C_a + C_b'C_b``::

    Q_kl = E k_k^a k_l^b = |G_ab|^-1/2 k_k^a(0) k_l^b(0) exp(0.5 v' G_ab^-1 v)
    v = C_a' nu_k + C_b' nu_l
    cov(f_a, f_b) = beta_a' (Q - g g') beta_b
    Var f_a = beta_a' (Q - g g') beta_a + sf2 - tr(Ky^-1 Q)

With a linear part, whose whitened features are ``psi = C'phi = psi_0 + V d``, the coefficients and
the values at the points have a joint posterior (`sysid.gp.dictionary`). The mean of the linear part
is affine in d, and joins the mean function. With h = (psi, k), h_0 = (psi_0, U'^-1 g) and block
diagonal matrices (A, B)::

    latent variance = sf2 - h'W h,   W = (I, U^-1) (I - M'M) (I, U'^-1) - (I, 0)
    its expectation = sf2 - |U'^-1 g|^2 + |M h_0|^2 - tr(W cov(h))
    cov(psi) = V S V',   cov(psi, k_k) = g_k V R G^-1 C' nu_k,   cov(k) = Q - g g'

These are the formulas of Girard et al. (2003) and, between outputs, of Deisenroth and Rasmussen
(2011), rewritten so that S may be singular. ``Q - g g' = g g' o (exp(D) - 1)``, with D of the size
of S and without cancellation, stays accurate however small S is.
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
from sysid.model.mean_map import AFFINE_MEANS, map_to_points, mean_with_linear_part
from sysid.model.model import Model
from sysid.simulation.dynamics import Dynamics, Moments
from sysid.simulation.propagation.propagation import (
    Propagation,
    fed_back_noise_variance,
    undefined_moments,
)


class UncertainTargets(NamedTuple):
    """Targets of all outputs at b uncertain regressors."""

    mean: Array  # (b, m) target units
    covariance: Array  # (b, m, m) latent, target units squared
    #: (b, q, m) w: S w is the covariance of the lagged outputs with the targets
    slope: Array


#: Targets at regressors of mean (b, p) whose lagged outputs have the covariance S (b, q, q).
OneStep: TypeAlias = Callable[[Array, Array], UncertainTargets]


@dataclass(frozen=True)
class GaussianState(Propagation):
    """Propagation of a Gaussian over the lagged outputs, by a rule for one step."""

    process_noise: bool = False  # whether the noise of the model is fed back

    @abstractmethod
    def one_step(self, dynamics: Dynamics) -> OneStep:
        """Return the rule for one step of these dynamics."""

    def propagate(
        self,
        dynamics: Dynamics,
        past: Array,
        exogenous: Array,
        generator: np.random.Generator,
    ) -> Moments:
        one_step = self.one_step(dynamics)
        n_starts, n_steps, _ = exogenous.shape
        n_outputs = dynamics.n_outputs
        state_size = past[0].size
        lagged = dynamics.state_index
        bounds = dynamics.bounds(past)
        moments = undefined_moments(n_starts, n_steps, n_outputs)
        mean = past.copy()
        covariance = np.zeros((n_starts, state_size, state_size))
        noise = np.diag(fed_back_noise_variance(dynamics, self.process_noise))
        running = np.arange(n_starts)  # starts that have not diverged
        for t in range(n_steps):
            regressors = dynamics.regressors(mean, exogenous[running, t])
            lagged_covariance = covariance[:, lagged[:, None], lagged]
            with np.errstate(over="ignore", invalid="ignore"):
                targets = one_step(regressors, lagged_covariance)
                cross, next_covariance = _covary_with_next(dynamics, covariance, targets)
            outputs = dynamics.to_value(targets.mean, mean[:, -1])
            variance = np.maximum(np.einsum("bii->bi", next_covariance), 0.0)
            is_narrow = np.sqrt(variance) < bounds.high - bounds.low
            inside = np.all(bounds.contain(outputs) & is_narrow, axis=1)
            moments.mean[running, t] = outputs
            moments.variance[running[inside], t] = variance[inside]

            # The next state drops the oldest outputs and appends the new ones.
            mean = np.concatenate([mean[:, 1:], outputs[:, None]], axis=1)[inside]
            transposed = cross.transpose(0, 2, 1)
            extended = np.block([[covariance, cross], [transposed, next_covariance + noise]])
            covariance = extended[inside, n_outputs:, n_outputs:]
            running = running[inside]
        return moments

    def size(self, dynamics: Dynamics, n_steps: int) -> int:
        n_points = max(model.gp.n_points for model in dynamics.models)
        state_size = dynamics.n_lags * dynamics.n_outputs
        return 4 * state_size**2 + n_steps + n_points * (dynamics.n_features + 1)


def _covary_with_next(
    dynamics: Dynamics, covariance: Array, targets: UncertainTargets
) -> tuple[Array, Array]:
    """Return the covariances of the state with the next outputs, and of the next outputs.

    Their shapes are (b, L m, m) and (b, m, m).
    """
    cross = covariance[:, :, dynamics.state_index] @ targets.slope
    next_covariance = targets.covariance
    if dynamics.is_change:
        newest = slice(-dynamics.n_outputs, None)
        newest_cross = cross[:, newest]
        next_covariance = (
            next_covariance
            + covariance[:, newest, newest]
            + newest_cross
            + newest_cross.transpose(0, 2, 1)
        )
        cross = cross + covariance[:, :, newest]
    # Without this, the antisymmetric part of rounding errors would be fed back.
    symmetric = 0.5 * (next_covariance + next_covariance.transpose(0, 2, 1))
    return cross, symmetric


@dataclass(frozen=True)
class Taylor(GaussianState):
    """Linearise the mean at the mean of the regressor, for any kernel and mean function.

    With the mean x of the regressor, its covariance S, ``J = d mean / dx`` and the latent variance
    s2 at x::

        E = mean(x),  Cov = diag(s2) + J S J',  w = J'

    The error of the function is treated as independent at every step; see `MonteCarlo`.
    """

    def one_step(self, dynamics: Dynamics) -> OneStep:
        def expand(regressors: Array, covariance: Array) -> UncertainTargets:
            targets = dynamics.targets(regressors)
            slope = dynamics.gradient(regressors)[:, :, dynamics.feedback]
            transposed = slope.transpose(0, 2, 1)
            from_regressor = slope @ covariance @ transposed
            latent = np.eye(dynamics.n_outputs) * targets.variance[:, None, :]
            return UncertainTargets(targets.mean, latent + from_regressor, transposed)

        return expand


class Mixture:
    """A posterior mean as a sum of N squared exponentials of c coordinates.

    The mean of a linear part is not among them.

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
    linear_part : LinearPartMoments or None
        What the latent variance needs of a linear part; None without one.

    Raises
    ------
    ValueError
        If the moments of the kernel or the mean function are not known.
    """

    def __init__(self, model: Model, feedback: Indices) -> None:
        kernel: Any = model.gp.point_kernel
        if type(kernel) is not SquaredExponential:
            raise _unknown_moments(model, "the kernel SquaredExponential", kernel)
        if type(model.mean) not in AFFINE_MEANS:
            raise _unknown_moments(model, "a zero, constant or linear mean", model.mean)
        self.linear_part = None
        if model.gp.n_linear:
            state = model.gp.state()
            self.linear_part = LinearPartMoments(model, feedback)
        else:
            state = model.gp.exact_form()
        self.scaling = map_to_points(model)
        self.lengths = np.asarray(kernel.length_scales)
        self.variance = kernel.variance
        self.view = self.scaling.linear_part()[:, feedback] / self.lengths[:, None]
        self.points = model.gp.point_inputs[model.gp.age_order] / self.lengths
        self.beta = state["weights"]
        self.cholesky = state["cholesky"]
        self.inverse = state["factor"].T @ state["factor"]


class LinearPartMoments:
    """The latent variance of a model with a linear part of p lags, at an uncertain regressor.

    Parameters
    ----------
    model : Model
    feedback : (q,)
        Features that are lagged outputs.

    Attributes
    ----------
    view : (p, q)
        V, whitened features of the linear part per unit of the lagged outputs.
    root : (p + N, p + N)
        M, upper triangular.
    weights : (p + N, p + N)
        W.
    """

    def __init__(self, model: Model, feedback: Indices) -> None:
        gp = model.gp
        p = gp.n_linear
        state = gp.state()
        self.model = model
        self.view = gp.whiten_lags(model.scaling.linear_part()[:, feedback].T).T
        self.root = state["root"]
        _, std, directions = np.linalg.svd(self.root)
        known = directions.T * np.maximum(1.0 - std**2, 0.0) @ directions  # I - M'M
        whitening = np.eye(len(known))
        whitening[p:, p:] = state["factor"]
        self.weights = whitening.T @ known @ whitening
        self.weights[:p, :p] = -self.root[:, :p].T @ self.root[:, :p]

    def whitened(self, regressor: Array) -> Array:
        """Return psi_0 (p,) of the mean (n_features,) of a regressor."""
        z = self.model.scaling.transform(regressor[None])
        return np.asarray(self.model.gp.whiten_lags(z)[0])


def _unknown_moments(model: Model, expected: str, given: object) -> UserError:
    """Return the error for a kernel or mean function whose moments are not known."""
    return UserError(
        f"MomentMatching: expected {expected}, got {type(given).__name__} for "
        f"{model.narx.target!r}; Taylor, MonteCarlo and SequentialConditioning take any kernel "
        "and mean function"
    )


class Overlap:
    """Expectations of a posterior and of its exponentials over one Gaussian regressor.

    The symbols are those of the formulas at the head of this file.

    Parameters
    ----------
    mixture : Mixture
    regressor : (p,)
        Mean of the regressor.
    root : (q, q)
        R, with the covariance ``R R'`` of the lagged outputs.

    Attributes
    ----------
    projected : (N, q)
        ``C' nu_k`` of every point.
    gram : (q, q)
        ``C'C``.
    exponent : (N,)
        e.
    half_log : float
        ``0.5 log |G|``.
    g, log_g : (N,)
        ``E k_k`` and its logarithm, because g itself may underflow.
    slope : (q,)
        w.
    lags : (p,)
        psi_0 of a linear part; empty without one.
    lags_by_root : (p, q)
        ``V R`` of a linear part.
    """

    def __init__(self, mixture: Mixture, regressor: Array, root: Array) -> None:
        self.mixture = mixture
        nu = mixture.points - mixture.scaling.transform(regressor) / mixture.lengths
        c = mixture.view @ root
        self.projected = nu @ c
        self.gram = c.T @ c
        self.exponent = _quadratic(self.projected, self.gram)
        self.half_log = _half_log(self.gram)
        self.log_g = (
            np.log(mixture.variance)
            - 0.5 * np.einsum("kc,kc->k", nu, nu)
            + self.exponent
            - self.half_log
        )
        self.g = np.exp(self.log_g)
        weighted_points = (mixture.beta * self.g) @ nu
        slope_in_length_scales = np.linalg.solve(np.eye(len(c)) + c @ c.T, weighted_points)
        self.slope = mixture.view.T @ slope_in_length_scales
        self.lags = np.zeros(0)
        self.lags_by_root = np.zeros((0, len(root)))
        if mixture.linear_part is not None:
            self.lags = mixture.linear_part.whitened(regressor)
            self.lags_by_root = mixture.linear_part.view @ root


def covariance_of(overlaps: list[Overlap]) -> Array:
    """Return the covariance (m, m) of several posteriors at the same uncertain input.

    ``beta_a' (Q - g g') beta_b`` is the covariance of their means. The variance of a posterior adds
    the expectation of its latent variance.
    """
    covariance = np.empty((len(overlaps), len(overlaps)))
    for i, first in enumerate(overlaps):
        beta = first.mixture.beta
        for j, second in enumerate(overlaps[:i]):
            between_means = beta @ _excess(first, second) @ second.mixture.beta
            covariance[i, j] = between_means
            covariance[j, i] = between_means
        excess = _excess(first, first)
        covariance[i, i] = beta @ excess @ beta + _expected_latent_variance(first, excess)
    return covariance


def _expected_latent_variance(overlap: Overlap, excess: Array) -> float:
    """Return the expectation of the latent variance, at least 0, with ``Q = g g' + excess``.

    It is ``sf2 - tr(Ky^-1 Q)`` without a linear part.
    """
    mixture = overlap.mixture
    whitened = np.empty(0)
    if len(excess):
        whitened = solve_triangular(mixture.cholesky, overlap.g, trans=1, check_finite=False)
    if mixture.linear_part is None:
        reduction = np.vdot(mixture.inverse, excess)
    else:
        at_mean = mixture.linear_part.root @ np.concatenate([overlap.lags, whitened])
        spread = np.vdot(mixture.linear_part.weights, _covariance_with_lags(overlap, excess))
        reduction = spread - at_mean @ at_mean
    latent = mixture.variance - whitened @ whitened - reduction
    return max(latent, 0.0)


def _covariance_with_lags(overlap: Overlap, excess: Array) -> Array:
    """Return the covariance (p + N, p + N) of psi and the N exponentials."""
    by_root = overlap.lags_by_root
    solved = np.linalg.solve(np.eye(len(overlap.gram)) + overlap.gram, overlap.projected.T)
    cross = by_root @ (solved * overlap.g)
    return np.block([[by_root @ by_root.T, cross], [cross.T, excess]])


def _excess(first: Overlap, second: Overlap) -> Array:
    """Return ``Q - g g'`` (N, N')."""
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
    log_ratio = mixed + rows[:, None] + columns  # D
    product = np.outer(first.g, second.g)  # g g'
    excess = product * np.expm1(np.minimum(log_ratio, 1.0))
    is_large = log_ratio > 1.0
    if is_large.any():
        log_q = first.log_g[:, None] + second.log_g + log_ratio
        excess[is_large] = np.exp(log_q[is_large]) - product[is_large]
    return np.asarray(excess)


def _quadratic(projected: Array, gram: Array) -> Array:
    """Return ``0.5 p' (I + gram)^-1 p`` (N,) for the rows p of projected (N, q)."""
    solved = np.linalg.solve(np.eye(len(gram)) + gram, projected.T)
    return np.asarray(0.5 * np.einsum("kq,qk->k", projected, solved))


def _half_log(gram: Array) -> float:
    """Return ``0.5 log |I + gram|`` of a positive semi-definite matrix.

    It is accurate for a small matrix, too.
    """
    eigenvalues = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    return 0.5 * float(np.log1p(eigenvalues).sum())


@dataclass(frozen=True)
class MomentMatching(GaussianState):
    """Compute the exact mean and covariance of every step, given a Gaussian state before it.

    It takes squared exponential kernels, also beside a linear part, and zero, constant or linear
    mean functions. The formulas stand at the head of this file. Beyond what `Taylor` does, it
    accounts for the curvature of the function over the spread of the regressor, and for the
    covariance of several outputs that follows from it. As in `Taylor`, the error of the function is
    treated as independent at every step.
    """

    def one_step(self, dynamics: Dynamics) -> OneStep:
        """Return the rule that matches the moments of the targets.

        Raises
        ------
        ValueError
            For another kernel or mean function.
        """
        mixtures = [Mixture(model, dynamics.feedback) for model in dynamics.models]
        origin = np.zeros((1, dynamics.n_features))
        means = [mean_with_linear_part(model) for model in dynamics.models]
        slopes = [mean.gradient(origin)[0] for mean in means]
        trend = np.stack([slope[dynamics.feedback] for slope in slopes], axis=1)

        def match(regressors: Array, covariance: Array) -> UncertainTargets:
            mean = np.stack([prior_mean(regressors) for prior_mean in means], axis=1)
            target_covariance = np.empty((len(mean), dynamics.n_outputs, dynamics.n_outputs))
            slope = np.empty((len(mean), *trend.shape))
            for b, x in enumerate(regressors):
                # Rounding may leave eigenvalues below zero.
                eigenvalues, vectors = np.linalg.eigh(covariance[b])
                root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
                overlaps = [Overlap(mixture, x, root) for mixture in mixtures]
                w = np.stack([overlap.slope for overlap in overlaps], axis=1)
                of_trend = trend.T @ covariance[b] @ trend
                mixed = trend.T @ covariance[b] @ w
                mean[b] += [float(overlap.mixture.beta @ overlap.g) for overlap in overlaps]
                target_covariance[b] = of_trend + mixed + mixed.T + covariance_of(overlaps)
                slope[b] = trend + w
            return UncertainTargets(mean, target_covariance, slope)

        return match
