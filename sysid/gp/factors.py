"""Factors of the covariance of the stored points.

They are computed from scratch, rescaled, carried over to another prior, and checked.
"""

import numpy as np
from scipy.linalg import lapack, solve_triangular

from sysid.arrays import NotPositiveDefiniteError
from sysid.gp import dictionary
from sysid.gp.dictionary import Dictionary


def factorise(state: Dictionary) -> None:
    """``U'U = Ky`` and ``F = U'^-1`` from scratch, O(N^3).

    Raises
    ------
    sysid.arrays.NotPositiveDefiniteError
        If Ky is not positive definite in double precision.
    """
    n = int(state.counts[dictionary.N_POINTS])
    if n == 0:
        return
    order = state.order[:n]
    lower, status = lapack.dpotrf(state.covariance[np.ix_(order, order)], lower=1, clean=1)
    if status == 0:
        inverse, status = lapack.dtrtri(lower, lower=1)
    if status != 0:
        raise NotPositiveDefiniteError(
            f"OnlineGP: the covariance of {n} points is not positive definite (LAPACK status {status}); "
            "raise the noise variance"
        )
    put_factors(state, lower.T, inverse)
    dictionary.summarise(state, n)


def put_factors(state: Dictionary, upper: np.ndarray, lower: np.ndarray) -> None:
    """Let U (n, n) and F (n, n) be the factors, each by its triangle."""
    n = len(upper)
    state.triangles[:n, : n + 1] = np.pad(np.triu(upper), ((0, 0), (1, 0))) + np.pad(
        np.tril(lower), ((0, 0), (0, 1))
    )


def no_wider_than_prior(root: np.ndarray) -> bool:
    """Whether M'M is the covariance of a posterior in coordinates whose prior covariance is I."""
    return bool(
        (np.diag(root) > 0).all()
        and np.linalg.norm(root, 2) <= 1 + 1e-9
        and not np.tril(root, -1).any()
    )


def scale_state(state: Dictionary, factor: float) -> None:
    """Multiply the covariance of the points by a factor, and give everything that follows from
    it.
    """
    root = np.sqrt(factor)
    state.covariance[:] *= factor
    state.triangles[:] *= np.where(
        np.tri(len(state.triangles), len(state.triangles) + 1), 1.0 / root, root
    )  # F, U
    state.precision[:] /= factor
    for array in (state.pivots, state.whitened):
        array[:] /= root
    state.counts[dictionary.MINIMUM_IS_STALE] = 1


def carry_over(old: Dictionary, new: Dictionary) -> None:
    """Posterior of the places under a new prior, from that under the old one; both have the same
    points and ages.

    With ``z = U'w`` and the old posterior ``w ~ N(b, P)``, the samples said ``exp(-z'A z/2 + h'z)``
    with ``A = U^-1 (P^-1 - I) U'^-1`` and ``h = U^-1 P^-1 b``. In the whitened coordinates of the
    new prior the precision is ``I + V A V'``, V its factor, and the precision times the mean is ``V
    h``.
    """
    n = int(old.counts[dictionary.N_POINTS])
    inverse = solve_triangular(np.triu(old.root[:n, :n]), np.eye(n))
    precision = inverse @ inverse.T
    change = solve_triangular(
        np.triu(old.cholesky[:n, :n]), np.triu(new.cholesky[:n, :n]).T, trans="T"
    ).T  # V U^-1
    weight = change @ (precision @ old.whitened[:n])
    precision = np.eye(n) + change @ (precision - np.eye(n)) @ change.T
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    covariance = (vectors / np.maximum(values, 1.0)) @ vectors.T
    new.root[:n, :n] = np.linalg.cholesky(covariance).T
    new.whitened[:n] = covariance @ weight
    dictionary.summarise(new, n)


def contradiction(state: Dictionary) -> float:
    """How far a state is from one computed from scratch: 0 if exact, infinite if it is nonsense.

    The drift of the factors, and the largest relative residual of ``Ky a = y``, ``Fy = b`` and
    ``q``. If every sample is learned, the targets do not say what b is: then that of ``Ua = b``.
    """
    n = int(state.counts[dictionary.N_POINTS])
    if n == 0:
        return 0.0
    order = state.order[:n]
    ky = state.covariance[np.ix_(order, order)]
    y = state.targets[order]
    upper = np.triu(state.cholesky[:n, :n])
    of_stored = ((ky @ state.weights[:n], y), (upper.T @ state.whitened[:n], y))
    pairs = (
        *(((upper @ state.weights[:n], state.whitened[:n]),) if state.root.size else of_stored),
        (
            (np.tril(state.factor[:n, :n]) ** 2).sum(axis=0) / state.precision[:n],
            np.ones(n),
        ),
        (np.diag(state.cholesky)[:n] * state.pivots[:n], np.ones(n)),
    )
    residuals = [np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-300) for a, b in pairs]
    worst = max(float(dictionary.drift(state, n)), *map(float, residuals))
    return worst if np.isfinite(residuals).all() else float("inf")
