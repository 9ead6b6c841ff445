"""Correlations over lags that stay within a record, and what they are together under independence."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, fdtrc, ndtri

from sysid.validation import Z_95

Array: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]
Lags: TypeAlias = NDArray[np.int64]

CONSTANT = 1e-9  # standard deviation over magnitude below which a signal does not vary
NEGLIGIBLE = 1e-6  # variance of a combination of lags, over that of the largest, below which it does not count


class Correlations(NamedTuple):
    """Correlations of m columns at some lags, and a test of all lags of a column together."""

    values: Array  # (n_lags, m)
    band: Array  # (n_lags, m) half width that 95 % of the values at this lag keep under independence
    statistic: Array  # (m,)
    p_value: Array  # (m,)
    freedom: tuple[float, ...]  # of the chi-squared distribution, or of numerator and denominator of F


def standardised(x: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Columns (n, m) with mean 0 and mean square 1, and which of them vary (m,); the others are 0."""
    size = np.abs(x).max(axis=0)
    x = x / np.where(size > 0, size, 1.0)
    x = x - x.mean(axis=0)
    spread = np.sqrt(np.mean(x**2, axis=0))
    varies = spread > CONSTANT
    return np.where(varies, x / np.where(varies, spread, 1.0), 0.0), varies


def normal_scores(x: Array) -> Array:
    """Quantiles of a normal distribution at the ranks of every column; equal values share their mean rank."""
    ranks = np.stack([_mean_ranks(column) for column in x.T], axis=1)
    return np.asarray(ndtri(ranks / (len(x) + 1)))


def own_past(z: Array, place: Places, lags: Lags, n_parameters: int) -> Correlations:
    """Autocorrelations at lags 1 to M and the Ljung-Box statistic.

    With N samples and N_k pairs at lag k (N - k for one record)::

        r_k = sum_t z[t] z[t-k] / sum_t z[t]^2
        Q = N (N + 2) sum_k r_k^2 / N_k

    Under Gaussian white noise E[Q] = M, and Var[Q] exceeds the 2 M of the chi-squared distribution by about
    4 M (M - 1) / N, since the r_k^2 are uncorrelated only in the limit. Q is therefore compared with a scaled
    chi-squared distribution of this mean and variance; for long records it is that of Ljung and Box.

    Parameters
    ----------
    z : (n, m)
        Of `standardised`.
    place : (n,)
        Number of each sample in its record.
    lags : (M,)
        1 to M.
    n_parameters : int
        The degrees of freedom that estimation has taken from Q.
    """
    n, n_lags = len(z), len(lags)
    pairs = np.array([np.count_nonzero(place >= k) for k in range(2 * n_lags + 1)], dtype=float)
    r = _lagged_means(z, z, place, lags)
    statistic = n * (n + 2) * np.sum(r**2 / pairs[lags, None], axis=0)
    freedom = 2 * n_lags**2 / _portmanteau_variance(pairs, n, lags)
    p_value = chdtrc(freedom * (1 - n_parameters / n_lags), statistic * freedom / n_lags)
    band = np.broadcast_to(Z_95 * np.sqrt(pairs[lags, None]) / n, r.shape)
    return Correlations(r, band, statistic, p_value, (freedom * (1 - n_parameters / n_lags),))


def past_products(a: Array, z: Array, place: Places, lags: Lags) -> Correlations:
    """Correlations of ``a[t-k]``, k = 1 to M, with ``z[t]``, for a white a: their squares simply add up.

    ``r_k = sum_t a[t-k] z[t] / sqrt(sum_t a^2 sum_t z^2)`` has the variance s_k / N, s_k being the share of the
    squares of a, about their mean, that takes part at lag k. ``Q = N sum_k r_k^2 / s_k`` is chi-squared, M degrees.
    """
    r, share = _with_shares(a, z, place, lags)
    statistic = len(z) * np.sum(r**2 / share, axis=0)
    band = Z_95 * np.sqrt(share / len(z))
    return Correlations(r, band, statistic, chdtrc(len(lags), statistic), (float(len(lags)),))


def input_past(u: Array, z: Array, place: Places, lags: Lags) -> Correlations:
    """Correlations of one input ``u[t-k]`` with ``z[t]``, and the F test of all lags together.

    ``r_k = sum_t u[t-k] z[t] / sqrt(sum_t u^2 sum_t z^2)`` has the variance s_k / N, s_k being the share of the
    squares of u, about their mean, that takes part at lag k. A coloured input correlates the r_k with each other:
    on the n samples that have all lags, with their covariance S and rank q, ``R2 = r' S^-1 r`` is what a regression
    explains, and ``F = (R2 / q) / ((1 - R2) / (n - 1 - q))``. It is exact for Gaussian z, whatever the input. Box and
    Jenkins whiten the input instead, which the inverse of S does at once.

    Parameters
    ----------
    u : (n,)
        Of `standardised`.
    z : (n, m)
        Of `standardised`.
    place : (n,)
    lags : (n_lags,)
    """
    r, share = _with_shares(u[:, None], z, place, lags)
    now = np.flatnonzero(place >= lags[-1])
    X, y = u[now[:, None] - lags], z[now]
    X, y = X - X.mean(axis=0), y - y.mean(axis=0)
    size, direction = np.linalg.eigh(X.T @ X)
    kept = size > NEGLIGIBLE * size[-1]
    q = max(1, int(np.count_nonzero(kept)))  # an input that is constant there explains nothing: F = 0
    explained = np.sum((direction[:, kept].T @ (X.T @ y)) ** 2 / size[kept, None], axis=0)
    total = np.sum(y**2, axis=0)
    unexplained = np.maximum(total - explained, np.finfo(float).eps * np.maximum(total, 1.0))
    freedom = (float(q), float(len(now) - 1 - q))
    statistic = (explained / freedom[0]) / (unexplained / freedom[1])
    band = np.broadcast_to(Z_95 * np.sqrt(share / len(z)), r.shape)
    return Correlations(r, band, statistic, fdtrc(*freedom, statistic), freedom)


def _with_shares(a: Array, z: Array, place: Places, lags: Lags) -> tuple[Array, Array]:
    """Correlations r_k (n_lags, m) of a[t-k] with z[t], and the shares s_k of the squares of a (n_lags, 1 or m)."""
    ones = np.ones_like(a)
    share = _lagged_means(a**2, ones, place, lags) - _lagged_means(a, ones, place, lags) ** 2
    return _lagged_means(a, z, place, lags), np.maximum(share, 1 / len(z))  # an a of which nothing takes part


def _mean_ranks(column: Array) -> Array:
    """Ranks 1 to n."""
    _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which])


def _lagged_means(a: Array, z: Array, place: Places, lags: Lags) -> Array:
    """``sum_t a[t-k] z[t] / n`` within records, for every lag (n_lags, m)."""
    rows = [np.flatnonzero(place >= k) for k in lags]
    return np.array([np.einsum("tm,tm->m", a[now - k], z[now]) for k, now in zip(lags, rows, strict=True)]) / len(z)


def _portmanteau_variance(pairs: Array, n: int, lags: Lags) -> float:
    """Variance of Q for Gaussian white noise of known mean, exactly.

    With ``S_k = sum_t e[t] e[t-k]``, counting the products that share samples::

        E[S_j^2 S_k^2] = N_j N_k + 4 N_max(j,k) + 8 N_(j+k)  (j != k),   E[S_k^4] = 3 N_k^2 + 6 N_k + 12 N_2k

    and ``r_k = S_k / S_0`` is independent of S_0, with ``E[S_0^4] = N (N + 2) (N + 4) (N + 6)``.
    """
    j, k = lags[:, None], lags[None, :]
    fourth = pairs[j] * pairs[k] + 4 * pairs[np.maximum(j, k)] + 8 * pairs[j + k]
    diagonal = 3 * pairs[lags] ** 2 + 6 * pairs[lags] + 12 * pairs[2 * lags]
    np.fill_diagonal(fourth, diagonal)
    second = n * (n + 2) / ((n + 4) * (n + 6)) * float(np.sum(fourth / (pairs[j] * pairs[k])))
    return second - len(lags) ** 2
