"""Pivoted Cholesky factorisation of a covariance matrix: spread-out points, and the features that they span.

Compiled, in a file of its own: numba's disk cache knows only the content of this file; of `sysid.dictionary` it calls
`covariances` alone, the convention by which a kernel is called.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sysid.dictionary import covariances
from sysid.kernels import Kernel

Array = NDArray[np.float64]


class Pivots(NamedTuple):
    """Points chosen one by one, each the one of largest variance given those before."""

    chosen: NDArray[np.int64]  # (N,) rows
    columns: Array  # (N, n) G with K = G'G at the chosen points and K >= G'G everywhere
    residual: Array  # (n,) variance that they do not explain

    def to_weights(self, v: Array) -> Array:
        """Weights w of the chosen points with ``k(x, Z) w = g(x)'v``: ``C'w = v``, C lower, ``k(Z, Z) = C C'``."""
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(self.factor, v, lower=True, trans=1))

    def features(self, cross: Array) -> Array:
        """Features g (m, N) of rows with the covariances ``cross = k(X, Z)`` (m, N): ``C^-1 cross'``."""
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(self.factor, cross.T, lower=True).T)

    @property
    def factor(self) -> Array:
        """C (N, N), lower."""
        return self.columns[:, self.chosen].T


def pivots(kernel: Kernel, inputs: Array, most: int, tolerance: float) -> Pivots:
    """At most so many rows of inputs (n, q); fewer if all others have less than `tolerance` of the variance left.

    ``k(X, X)`` is never built: memory O(n N), time O(n N^2).
    """
    n, most = len(inputs), min(most, len(inputs))
    columns, residual = np.empty((most, n)), kernel.diagonal(inputs)
    chosen = np.empty(most, dtype=np.int64)
    points = np.ascontiguousarray(inputs.T)
    least = tolerance * float(residual.max())
    found = _choose(kernel.address, kernel.parameters(), points, least, columns, residual, chosen)
    return Pivots(chosen[:found], columns[:found], residual)


@njit(cache=True)
def _choose(kernel, parameters, points, least, columns, residual, chosen):  # type: ignore[no-untyped-def]
    """Fill columns (most, n), residual (n,) and chosen (most,) with points (q, n); returns how many were chosen."""
    p, n = points.shape
    x = np.empty(p)
    for m in range(len(chosen)):
        i = np.argmax(residual)
        if residual[i] <= least:
            return m
        chosen[m] = i
        for d in range(p):
            x[d] = points[d, i]
        column = columns[m]
        covariances(kernel, parameters, points, n, x, column)
        for q in range(m):
            factor, other = columns[q, i], columns[q]
            for j in range(n):
                column[j] -= factor * other[j]
        scale = 1.0 / np.sqrt(residual[i])
        for j in range(n):
            column[j] *= scale
            residual[j] = max(residual[j] - column[j] * column[j], 0.0)
        for q in range(m):
            column[chosen[q]] = 0.0  # by rounding it is not
        residual[i] = 0.0
    return len(chosen)
