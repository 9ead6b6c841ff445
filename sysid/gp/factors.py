"""Factors of the covariance of the stored points.

The functions compute them from scratch, rescale them, carry a posterior over to another prior, and
check a state that was stored.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from sysid.arrays import NotPositiveDefiniteError
from sysid.gp import dictionary
from sysid.gp.dictionary import Dictionary

#: Directions of which the samples have removed less than this fraction of the prior variance count
#: as not measured when a posterior is carried over: the fraction is then due to rounding.
MIN_MEASURED_FRACTION = 1e-13

#: Largest precision in whitened coordinates, relative to the prior, that `carry_over` squares.
#: Rounding then changes the precision of a direction that is not measured by a thousandth at most.
MAX_SQUARED_PRECISION = 1e12


class Forgotten(NamedTuple):
    """Posterior of the whitened values after a step of forgetting."""

    root: np.ndarray  # (n, n) M
    mean: np.ndarray  # (n,) b


def factorise(state: Dictionary) -> None:
    """Compute ``U'U = Ky`` and ``F = U'^-1`` from scratch, O(N^3).

    Raises
    ------
    sysid.arrays.NotPositiveDefiniteError
        If Ky is not positive definite in double precision.
    """
    n = int(state.counts[dictionary.N_STORED])
    if n == 0:
        return
    order = state.order[:n]
    lower, status = lapack.dpotrf(state.covariance[np.ix_(order, order)], lower=1, clean=1)
    if status == 0:
        inverse, status = lapack.dtrtri(lower, lower=1)
    if status != 0:
        raise NotPositiveDefiniteError(
            f"OnlineGP: the covariance of {n} points is not positive definite "
            f"(LAPACK status {status}); raise the noise variance"
        )
    put_factors(state, lower.T, inverse)
    dictionary.update_from_factors(state, n)


def put_factors(state: Dictionary, upper: np.ndarray, lower: np.ndarray) -> None:
    """Store the factors U (n, n) and F (n, n); of each only its triangle is used."""
    n = len(upper)
    state.triangles[:n, 0] = 0.0
    state.triangles[:n, 1 : n + 1] = np.triu(upper)
    state.triangles[:n, :n] += np.tril(lower)


def is_within_prior(root: np.ndarray) -> bool:
    """Return whether M is a triangular root ``M'M`` of a posterior covariance.

    In whitened coordinates the prior covariance is I, and a posterior covariance is not larger.
    """
    return bool(
        (np.diag(root) > 0).all()
        and np.linalg.norm(root, 2) <= 1 + 1e-9
        and not np.tril(root, -1).any()
    )


def scale_state(state: Dictionary, factor: float) -> None:
    """Multiply the covariance of the points by a factor, and update all that follows from it."""
    root = np.sqrt(factor)
    n_rows = len(state.triangles)
    is_lower = np.tri(n_rows, n_rows + 1)  # entries of F; the others are those of U
    state.covariance[:] *= factor
    state.triangles[:] *= np.where(is_lower, 1.0 / root, root)
    state.precision[:] /= factor
    state.pivots[:] /= root
    state.whitened[:] /= root
    state.counts[dictionary.MINIMUM_IS_STALE] = 1


def forget(root: np.ndarray, mean: np.ndarray, excitation: np.ndarray, n_steps: float) -> Forgotten:
    """Return M and b after a step of forgetting in the directions that recent samples excite.

    Each column of `excitation` (n, L) is phi over the standard deviation of the noise of one of the
    last L samples, so that ``excitation excitation' = V diag(l) V'`` is their information. Of the
    prior variance of direction i, they alone determine the fraction ``l_i / (1 + l_i)``. The
    whitened values move towards the prior, each direction by its own fraction::

        w <- G w + noise,   G = V diag(sqrt(1 - r)) V',   noise ~ N(0, I - G G')
        r_i = 1 - exp(-n_steps L l_i / (1 + l_i)^2)

    With ``n_steps = m / T^2`` in every m-th sample, the gain of the Kalman filter becomes that of a
    memory of T samples in all directions that are excited, strongly or weakly. A direction with
    ``l_i = 0`` keeps its mean and its variance.
    """
    information, directions = np.linalg.eigh(excitation @ excitation.T)
    information = np.maximum(information, 0.0)
    n_recent = excitation.shape[1]
    mixed_in = -np.expm1(-n_steps * n_recent * information / (1.0 + information) ** 2)
    change = np.sqrt(1.0 - mixed_in) - 1.0
    moved = root + ((root @ directions) * change) @ directions.T
    rows = np.concatenate([moved, np.sqrt(mixed_in)[:, None] * directions.T])
    new_root = np.linalg.qr(rows, mode="r")
    new_root *= np.sign(np.diag(new_root))[:, None]
    return Forgotten(new_root, mean + directions @ (change * (directions.T @ mean)))


def carry_over(
    old: Dictionary,
    new: Dictionary,
    old_linear_root: np.ndarray,
    new_linear_root: np.ndarray,
) -> None:
    """Compute the posterior of the hidden values z under a new prior from that under the old one.

    Both states have the same points and ages. With ``z = U'w`` and the old posterior
    ``w ~ N(b, P)``, the likelihood of the samples is ``exp(-z'A z/2 + h'z)`` with
    ``A = U^-1 (P^-1 - I) U'^-1`` and ``h = U^-1 P^-1 b``. In the whitened coordinates of the new
    prior, with its factor V, the posterior precision is ``I + V A V'``, and the precision times the
    mean is ``V h``. The coefficients of a linear part belong to z; their factors are the roots C'
    (p_l, p_l) of the two priors.
    """
    n = int(old.counts[dictionary.N_STORED])
    n_linear = len(old_linear_root)
    size = n_linear + n
    old_upper = np.zeros((size, size))
    old_upper[:n_linear, :n_linear] = old_linear_root
    old_upper[n_linear:, n_linear:] = np.triu(old.cholesky[:n, :n])
    new_upper = np.zeros((size, size))
    new_upper[:n_linear, :n_linear] = new_linear_root
    new_upper[n_linear:, n_linear:] = np.triu(new.cholesky[:n, :n])
    root = np.triu(old.root[:size, :size])
    change = solve_triangular(old_upper, new_upper.T, trans="T").T  # V U^-1
    carry = _by_least_squares if n_linear else _by_precision
    new.root[:size, :size], new.whitened[:size] = carry(root, old.whitened[:size], change)
    dictionary.update_from_factors(new, n)


def _by_precision(
    root: np.ndarray, mean: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the new M and b from the old ones and ``change = V U^-1``, by `carry_over`'s formulas.

    The precision contains the square of M^-1. Where it is too large for double precision, for
    instance after thousands of samples at one point, `_by_least_squares` takes over.
    """
    n = len(mean)
    root_inverse = solve_triangular(root, np.eye(n))
    old_precision = root_inverse @ root_inverse.T
    precision = np.eye(n) + change @ (old_precision - np.eye(n)) @ change.T
    if max(np.trace(old_precision), np.trace(precision)) > MAX_SQUARED_PRECISION:
        return _by_least_squares(root, mean, change)
    precision_times_mean = change @ (old_precision @ mean)
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    covariance = (vectors / np.maximum(values, 1.0)) @ vectors.T
    return np.linalg.cholesky(covariance).T, covariance @ precision_times_mean


def _by_least_squares(
    root: np.ndarray, mean: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the new M and b without the square of M^-1, for values known to many digits.

    With ``M = W diag(s) T'``, the likelihood of the samples is that of the measurements
    ``L w_old = r`` with unit noise, ``L = diag(sqrt(1/s^2 - 1)) T'``. The posterior mean is the
    least squares solution of ``[L V U^-1' ; I] w = [r; 0]``, whose QR decomposition gives the root.
    """
    n = len(mean)
    _, std, directions = np.linalg.svd(root)
    known = np.maximum(1.0 - std**2, 0.0)
    is_measured = known > MIN_MEASURED_FRACTION
    weight = np.sqrt(np.where(is_measured, known, 0.0)) / std
    measured = np.zeros(n)
    projected = directions @ mean
    measured[is_measured] = projected[is_measured] / (std * np.sqrt(known))[is_measured]
    rows = np.concatenate([(weight[:, None] * directions) @ change.T, np.eye(n)])
    right = np.concatenate([measured, np.zeros(n)])
    # large rows first, and pivoting, keep the small rows accurate
    by_size = np.argsort(-np.square(rows).sum(axis=1), kind="stable")
    Q, R, pivots = qr(rows[by_size], mode="economic", pivoting=True)
    new_mean = np.empty(n)
    new_mean[pivots] = solve_triangular(R, Q.T @ right[by_size])
    permutation = np.eye(n)[:, pivots]
    new_root = np.linalg.qr(solve_triangular(R, permutation.T, trans="T"), mode="r")
    return new_root * np.sign(np.diag(new_root))[:, None], new_mean


def relative_inconsistency(state: Dictionary) -> float:
    """Return how far a state is from one computed from scratch: 0 if exact, infinite if not finite.

    It is the largest of the drift of the factors and the relative residuals of ``Ky a = y``,
    ``F y = b`` (as ``U'b = y``), q and 1/diag(U). If every sample is learned, the targets do not
    determine b; then ``Ua = b`` replaces the first two.
    """
    n = int(state.counts[dictionary.N_STORED])
    if n == 0:
        return 0.0
    order = state.order[:n]
    ky = state.covariance[np.ix_(order, order)]
    y = state.targets[order]
    a = state.weights[:n]
    b = state.whitened[len(state.whitened) - len(state.pivots) :][:n]
    upper = np.triu(state.cholesky[:n, :n])
    lower = np.tril(state.factor[:n, :n])
    learns_every_sample = state.root.size > 0
    if learns_every_sample:
        residuals = [_relative_residual(upper @ a, b)]
    else:
        residuals = [_relative_residual(ky @ a, y), _relative_residual(upper.T @ b, y)]
    of_precision = (lower**2).sum(axis=0) / state.precision[:n]
    of_pivots = np.diag(state.cholesky)[:n] * state.pivots[:n]
    residuals.append(_relative_residual(of_precision, np.ones(n)))
    residuals.append(_relative_residual(of_pivots, np.ones(n)))
    if not np.isfinite(residuals).all():
        return float("inf")
    return max(float(dictionary.drift(state, n)), *residuals)


def _relative_residual(values: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference of two vectors, relative to the largest expected value."""
    largest = max(float(np.max(np.abs(expected))), 1e-300)
    return float(np.max(np.abs(values - expected)) / largest)
