"""The state of a dictionary outside the compiled loops: built, factorised, copied, taken out and put back."""

from collections.abc import Mapping, Sequence
from numbers import Integral

import numpy as np
from scipy.linalg import lapack

from sysid import dictionary
from sysid.arrays import matrix, vector
from sysid.dictionary import Dictionary
from sysid.kernels import Kernel

#: smallest noise variance, relative to the prior variance, for which double precision holds the factor
LEAST_NOISE = 1e-8

FACTORS = ("cholesky", "factor")
BY_AGE = ("pivots", "whitened", "weights", "precision")


def empty(budget: int, n_features: int) -> Dictionary:
    """State without points."""
    n = budget + 1
    counts = np.zeros(dictionary.N_COUNTS, dtype=np.int64)
    counts[dictionary.MINIMUM_IS_STALE] = 1
    return Dictionary(
        inputs=np.zeros((n_features, budget)),
        targets=np.zeros(budget),
        covariance=np.zeros((budget, budget)),
        order=np.arange(budget),
        cholesky=np.zeros((n, n)),
        factor=np.zeros((n, n)),
        pivots=np.zeros(n),
        whitened=np.zeros(n),
        weights=np.zeros(n),
        precision=np.zeros(n),
        work=np.zeros((8, n)),
        counts=counts,
        minimum=np.zeros(1),
    )


def of_points(
    kernel: Kernel, noise_variance: float, inputs: np.ndarray, targets: np.ndarray, budget: int
) -> Dictionary:
    """State with these points and their exact covariance; `factorise` does the rest."""
    n = len(targets)
    state = empty(budget, kernel.n_features)
    state.inputs[:, :n] = inputs.T
    state.targets[:n] = targets
    state.covariance[:n, :n] = kernel(inputs, inputs)
    prior = np.diag(state.covariance)[:n].copy()
    alike = state.covariance[:n, :n] ** 2 > np.outer(prior, prior) * (1.0 - dictionary.ALIKE)
    alike &= (state.covariance[:n, :n] > 0) & (abs(prior[:, None] - prior) <= dictionary.SAME * prior)
    state.covariance[np.arange(n), np.arange(n)] += noise_variance
    state.counts[dictionary.N_POINTS] = n
    state.counts[dictionary.N_DUPLICATES] = np.count_nonzero(np.tril(alike, -1).any(axis=1))
    return state


def factorise(state: Dictionary) -> None:
    """``U'U = Ky`` and ``F = U'^-1`` from scratch, O(N^3).

    Raises
    ------
    numpy.linalg.LinAlgError
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
        raise np.linalg.LinAlgError(
            f"OnlineGP: the covariance of {n} points is not positive definite (LAPACK status {status}); "
            "raise the noise variance"
        )
    state.cholesky[:n, :n], state.factor[:n, :n] = lower.T, inverse
    dictionary.summarise(state, n)


def with_hyperparameters(state: Dictionary, kernel: Kernel, noise_variance: float) -> Dictionary:
    """The same points in the same slots, as old as before and with the same counts, factorised anew, O(N^3)."""
    n = int(state.counts[dictionary.N_POINTS])
    inputs = np.ascontiguousarray(state.inputs[:, :n].T)
    renewed = of_points(kernel, noise_variance, inputs, state.targets[:n], state.targets.size)
    renewed.order[:] = state.order
    renewed.counts[:] = state.counts
    factorise(renewed)
    return renewed


def copy_into(target: Dictionary, source: Dictionary) -> None:
    """Copy a state of at least the same capacity whose points fit."""
    for to, array in zip(target, source, strict=True):
        to[...] = array[tuple(slice(size) for size in to.shape)]


def taken_out(state: Dictionary) -> dict[str, np.ndarray]:
    """Copies of the arrays that define a state, for `put_back`."""
    n = int(state.counts[dictionary.N_POINTS])
    return {
        "inputs": np.ascontiguousarray(state.inputs[:, :n].T),
        "targets": state.targets[:n].copy(),
        "order": state.order[:n].copy(),
        "cholesky": np.triu(state.cholesky[:n, :n]),
        "factor": np.tril(state.factor[:n, :n]),
        **{name: getattr(state, name)[:n].copy() for name in BY_AGE},
        "counts": state.counts.copy(),
    }


def put_back(
    kernel: Kernel,
    noise_variance: float,
    budget: int,
    arrays: Mapping[str, np.ndarray],
    counts: Sequence[int],
) -> Dictionary:
    """State of `taken_out`, bit for bit.

    Raises
    ------
    ValueError, KeyError
        Arrays that are missing, do not fit together, exceed the budget or contradict the points by more than
        ten times the tolerance.
    """
    n = len(arrays["targets"])
    if n > budget or sorted(arrays["order"]) != list(range(n)) or len(counts) != dictionary.N_COUNTS:
        raise ValueError(f"expected at most {budget} points with an order of their own, got {n}")
    shapes = {name: np.shape(arrays[name]) for name in (*FACTORS, *BY_AGE, "inputs")}
    expected = dict.fromkeys(FACTORS, (n, n)) | dict.fromkeys(BY_AGE, (n,)) | {"inputs": (n, kernel.n_features)}
    if shapes != expected:
        raise ValueError(f"expected arrays of shapes {expected}, got {shapes}")
    x = matrix(arrays["inputs"], kernel.n_features, "inputs")
    state = of_points(kernel, noise_variance, x, vector(arrays["targets"], n, "targets"), budget)
    state.order[:n] = arrays["order"]
    for name in FACTORS:
        getattr(state, name)[:n, :n] = matrix(arrays[name], n, name)
    for name in BY_AGE:
        getattr(state, name)[:n] = vector(arrays[name], n, name)
    state.counts[:] = counts
    state.counts[dictionary.N_POINTS] = n
    state.counts[dictionary.MINIMUM_IS_STALE] = 1
    most = 10 * tolerance(kernel, noise_variance, budget, x)
    if not (worst := contradiction(state)) <= most:
        raise ValueError(
            f"restore: factors and weights contradict the points by {worst:.3g}, expected at most "
            f"{most:.3g}; the arrays were changed after they were taken out"
        )
    return state


def contradiction(state: Dictionary) -> float:
    """How far a state is from one computed from scratch: 0 if exact, infinite if it is nonsense.

    The drift of the factors, and the largest relative residual of ``Ky a = y``, ``Fy = b`` and ``q``.
    """
    n = int(state.counts[dictionary.N_POINTS])
    if n == 0:
        return 0.0
    order = state.order[:n]
    ky, y = state.covariance[np.ix_(order, order)], state.targets[order]
    pairs = (
        (ky @ state.weights[:n], y),
        (np.triu(state.cholesky[:n, :n]).T @ state.whitened[:n], y),
        ((np.tril(state.factor[:n, :n]) ** 2).sum(axis=0) / state.precision[:n], np.ones(n)),
        (np.diag(state.cholesky)[:n] * state.pivots[:n], np.ones(n)),
    )
    residuals = [np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-300) for a, b in pairs]
    worst = max(float(dictionary.drift(state, n)), *map(float, residuals))
    return worst if np.isfinite(residuals).all() else float("inf")


def largest_prior_variance(kernel: Kernel, inputs: np.ndarray | None = None) -> float:
    """Largest ``k(x, x)`` at the origin, at features of one, and at inputs (n, p); stationary kernels have but one."""
    reference = np.outer([0.0, 1.0], np.ones(kernel.n_features))
    points = reference if inputs is None else np.concatenate([reference, inputs])
    return float(kernel.diagonal(points).max())


def tolerance(kernel: Kernel, noise_variance: float, budget: int, inputs: np.ndarray) -> float:
    """Largest drift of the factors of inputs (n, p) that needs no repair, by the condition of their covariance."""
    condition = budget * largest_prior_variance(kernel, inputs) / noise_variance
    return float(1e-10 + 10.0 * np.finfo(float).eps * condition)


def checked_noise_variance(noise_variance: float, prior_variance: float) -> float:
    """Noise variance that double precision can hold beside the prior variance, or an error that says so."""
    if not np.isfinite(noise_variance) or not noise_variance >= LEAST_NOISE * prior_variance * (1 - 1e-9):
        raise ValueError(
            f"OnlineGP: noise_variance must be at least {LEAST_NOISE:g} of the kernel's variance "
            f"({LEAST_NOISE * prior_variance:g}), got {noise_variance}; below that double precision "
            "cannot hold the factor"
        )
    return float(noise_variance)


def checked_budget(budget: int) -> int:
    """Budget as an int of at least 2 points, or an error that says so."""
    if isinstance(budget, bool) or not isinstance(budget, Integral) or budget < 2:
        raise ValueError(f"OnlineGP: budget must be an integer of at least 2 points, got {budget!r}")
    return int(budget)
