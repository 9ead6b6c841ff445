"""Linear regression by a singular value decomposition of standardised features."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.scaling import Scaling

Array = NDArray[np.float64]


class LinearFit(NamedTuple):
    """``t = intercept + x @ coefficients``."""

    coefficients: Array  # (p,), unit of the target per unit of the feature
    intercept: float  # unit of the target
    rank: int  # of the standardised features (n, p)
    condition: float  # largest over smallest singular value of these; infinite below full rank [-]


def linear_fit(x: Array, t: Array, *, ridge: float = 0.0, intercept: bool = True) -> LinearFit:
    """Least squares of targets (n,) on features (n, p).

    Minimises ``mean((t - c - theta' x)^2) + ridge |scale theta|^2``. Below full rank ``|scale theta|`` is the
    smallest possible: features that do not vary, and directions that the samples do not excite, get no weight.

    Parameters
    ----------
    x, t
        Samples (n, p), (n,).
    ridge
        Penalty on the coefficients of the standardised features, at least 0 [-].
    intercept
        Whether c is estimated; else c = 0, and features are not centred, but scaled by their root mean square.

    Raises
    ------
    ValueError
        A negative or infinite ridge.

    Examples
    --------
    >>> fit = linear_fit(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> np.round(fit.coefficients, 12), round(fit.intercept, 12)
    (array([2.]), 1.0)
    """
    if not 0 <= ridge < inf:
        raise ValueError(f"linear_fit(ridge={ridge!r}): expected a finite number >= 0; change ridge")
    scaling = Scaling.fit(x) if intercept else _root_mean_square(x)
    z = scaling.transform(x)
    z[:, list(scaling.constant)] = 0.0  # rounding of a constant explains nothing
    mean = float(t.mean()) if intercept else 0.0
    weights, rank, condition = _solve(z, t - mean, len(t) * ridge)
    theta = weights / scaling.scale
    return LinearFit(theta, mean - float(theta @ scaling.offset), rank, condition)


def _root_mean_square(x: Array) -> Scaling:
    size = np.sqrt(np.mean(x**2, axis=0))
    return Scaling(np.zeros(x.shape[1]), np.where(size > 0, size, 1.0))


def _solve(z: Array, t: Array, penalty: float) -> tuple[Array, int, float]:
    """Minimum-norm minimiser of ``|t - z w|^2 + penalty |w|^2``, rank and condition number of z."""
    U, s, Vt = np.linalg.svd(z, full_matrices=False)
    rank = int(np.count_nonzero(s > np.finfo(float).eps * max(z.shape) * s[0]))
    kept = s[:rank]
    w = Vt[:rank].T @ (kept / (kept**2 + penalty) * (U[:, :rank].T @ t))
    return w, rank, float(s[0] / s[-1]) if rank == z.shape[1] else inf
