"""Moments of Gaussian processes with squared exponential kernels at an uncertain input.

The input d is Gaussian around a known place with covariance ``S = R R'`` (q, q). Every process sees it through a
linear map B of its own, in units of its length scales: ``f(d) = sum_k beta_k k_k(d)`` plus what is not known of it,
``k_k(d) = sf2 exp(-0.5 |nu_k - B d|^2)`` with nu_k (c,) the point k seen from the known place. With ``C = B R`` and
``G = I + C'C``::

    g_k = E k_k = |G|^-1/2 k_k(0) exp(e_k),   e_k = 0.5 nu_k' C G^-1 C' nu_k
    E f = beta' g,   cov(d, f) = S w,   w = sum_k beta_k g_k B' (I + C C')^-1 nu_k
    Q_kl = E k_k^a k_l^b = |G_ab|^-1/2 k_k^a(0) k_l^b(0) exp(0.5 |C_a' nu_k + C_b' nu_l|^2 in the metric G_ab^-1)
    G_ab = I + C_a'C_a + C_b'C_b
    cov(f_a, f_b) = beta_a' (Q - g g') beta_b,   and for a = b  + sf2 - tr(Ky^-1 Q)

The formulas of Girard et al. (2003) and, between outputs, Deisenroth and Rasmussen (2011), rewritten: S may be
singular, and ``Q - g g' = g g' o (exp(D) - 1)`` with D of the size of S and without cancellation stays accurate
however small S is.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Array: TypeAlias = NDArray[np.float64]


class Mixture(NamedTuple):
    """A posterior as a sum of N squared exponentials."""

    variance: float  # sf2, target unit^2
    points: Array  # (N, c) in length scales
    beta: Array  # (N,) Ky^-1 y
    cholesky: Array  # (N, N) upper triangular, U'U = Ky
    inverse: Array  # (N, N) Ky^-1


class Overlap(NamedTuple):
    """What a posterior and one Gaussian input have in common."""

    mixture: Mixture
    slope: Array  # (q,) w
    projected: Array  # (N, q) C' nu
    gram: Array  # (q, q) C'C
    log_g: Array  # (N,) logarithm of g, which itself may be too small for a number
    exponent: Array  # (N,) e
    half_log: float  # 0.5 log |G|

    @property
    def g(self) -> Array:
        """``E k_k`` (N,)."""
        return np.asarray(np.exp(self.log_g))

    @property
    def mean(self) -> float:
        """``E f``."""
        return float(self.mixture.beta @ self.g)


def root_of(covariance: Array) -> Array:
    """R (q, q) with ``R R' = S`` of a positive semi-definite S; what rounding leaves below zero counts as zero."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def overlap(mixture: Mixture, place: Array, view: Array, root: Array) -> Overlap:
    """Overlap with a Gaussian input.

    Parameters
    ----------
    mixture : Mixture
    place : (c,)
        What the mixture sees of the mean of the input, in length scales.
    view : (c, q)
        B.
    root : (q, q)
        R.
    """
    nu, c = mixture.points - place, view @ root
    projected, gram = nu @ c, c.T @ c
    exponent, half_log = _quadratic(projected, gram), _half_log(gram)
    log_g = np.log(mixture.variance) - 0.5 * np.einsum("kc,kc->k", nu, nu) + exponent - half_log
    pulled = (mixture.beta * np.exp(log_g)) @ nu
    slope = view.T @ np.linalg.solve(np.eye(len(c)) + c @ c.T, pulled)
    return Overlap(mixture, slope, projected, gram, log_g, exponent, half_log)


def cross_covariance(first: Overlap, second: Overlap) -> float:
    """Covariance of two posterior means at the same input, ``beta_a' (Q - g g') beta_b``."""
    return float(first.mixture.beta @ _excess(first, second) @ second.mixture.beta)


def variance(found: Overlap) -> float:
    """Variance of a posterior: of its mean, and the mean of its latent variance."""
    mixture, excess = found.mixture, _excess(found, found)
    known = solve_triangular(mixture.cholesky, found.g, trans=1, check_finite=False) if len(excess) else np.empty(0)
    latent = mixture.variance - known @ known - np.vdot(mixture.inverse, excess)
    return float(mixture.beta @ excess @ mixture.beta + max(latent, 0.0))


def _excess(first: Overlap, second: Overlap) -> Array:
    """``Q - g g'`` (N, N')."""
    ratio, product = _log_ratio(first, second), np.outer(first.g, second.g)
    excess = product * np.expm1(np.minimum(ratio, 1.0))
    large = ratio > 1.0
    if large.any():
        excess[large] = np.exp((first.log_g[:, None] + second.log_g + ratio)[large]) - product[large]
    return np.asarray(excess)


def _log_ratio(first: Overlap, second: Overlap) -> Array:
    """D (N, N'), the logarithm of ``Q_kl / (g_k g_l)``."""
    gram = first.gram + second.gram
    mixed = first.projected @ np.linalg.solve(np.eye(len(gram)) + gram, second.projected.T)
    rows = _quadratic(first.projected, gram) - first.exponent
    columns = _quadratic(second.projected, gram) - second.exponent
    return np.asarray(mixed + rows[:, None] + (columns + first.half_log + second.half_log - _half_log(gram)))


def _quadratic(projected: Array, gram: Array) -> Array:
    """``0.5 p' (I + gram)^-1 p`` (N,) of the rows p of projected (N, q)."""
    solved = np.linalg.solve(np.eye(len(gram)) + gram, projected.T)
    return np.asarray(0.5 * np.einsum("kq,qk->k", projected, solved))


def _half_log(gram: Array) -> float:
    """``0.5 log |I + gram|`` of a positive semi-definite matrix, accurate for a small one."""
    return 0.5 * float(np.log1p(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum())
