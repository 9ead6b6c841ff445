"""Bayesian linear regression in blocks of samples: weights without any of the blocks at the price of one more solve.

``t = phi(x)'v + e``, ``v ~ N(0, I)``, ``e ~ N(0, s2)``: ``(s2 I + sum_i phi_i phi_i') v = sum_i phi_i t_i``. The sums
are kept for each block, so that memory does not grow with the number of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

STEPS = 8  # of the fixed point of saturated targets


class Targets(NamedTuple):
    """What a regression explains."""

    values: Array  # (n,)
    above: Bools  # (n,) the true target is this value or larger
    below: Bools  # (n,) or smaller

    def every(self, step: int) -> Targets:
        """Every so many-th of them."""
        return Targets(self.values[::step], self.above[::step], self.below[::step])

    @property
    def censored(self) -> Bools:
        """Samples (n,) that are only bounds."""
        return self.above | self.below


class Ridge:
    """Regression of targets on features that are computed block by block.

    A saturated sample says only that its target is at least (at most) what was seen: it is replaced by the prediction
    where that lies beyond, again and again (`STEPS`), which keeps the matrix.

    Parameters
    ----------
    features : callable
        Features (m, d) of a slice of rows.
    targets : Targets
        Of all n rows.
    cuts : (b + 1,)
        Rows where blocks begin, from 0 to n, increasing.
    noise_variance : float
        s2, target unit squared, > 0.
    """

    def __init__(
        self, features: Callable[[slice], Array], targets: Targets, cuts: NDArray[np.int64], noise_variance: float
    ) -> None:
        self.cuts, self.noise_variance = cuts, noise_variance
        matrices, vectors, censored = [np.zeros(())], [np.zeros(())], []  # sums over the blocks before each cut
        for first, last in pairwise(cuts.tolist()):
            phi, known = features(slice(first, last)), ~targets.censored[first:last]
            matrices.append(matrices[-1] + phi.T @ phi)
            vectors.append(vectors[-1] + targets.values[first:last][known] @ phi[known])
            censored.append(phi[~known])
        self._matrices, self._vectors = matrices, vectors
        self._censored = np.concatenate(censored)
        self._rows = np.flatnonzero(targets.censored)
        self._seen, self._is_above = targets.values[self._rows], targets.above[self._rows]

    def weights(self, first: int = 0, last: int = 0) -> Array:
        """Posterior mean of v (d,) from all rows but those from first to before last, both of them cuts.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the matrix is not positive definite in double precision.
        """
        low, high = np.searchsorted(self.cuts, [first, last])
        factor = self._factor(self._matrices[-1] - (self._matrices[high] - self._matrices[low]))
        vector = self._vectors[-1] - (self._vectors[high] - self._vectors[low])
        kept = (self._rows < first) | (self._rows >= last)
        phi, seen, above = self._censored[kept], self._seen[kept], self._is_above[kept]
        targets = seen
        for _ in range(STEPS if len(seen) else 1):
            weights = np.asarray(cho_solve(factor, vector + targets @ phi, check_finite=False))
            predicted = phi @ weights
            targets = np.where(above, np.maximum(seen, predicted), np.minimum(seen, predicted))
        return weights

    def mean_variance(self) -> float:
        """Posterior variance of phi'v, mean over all rows, target unit squared.

        With ``A = sum_i phi_i phi_i'`` of n rows: ``s2 tr((A + s2 I)^-1 A) / n``.
        """
        matrix = self._matrices[-1]
        inverse = cho_solve(self._factor(matrix.copy()), np.eye(len(matrix)), check_finite=False)
        explained = len(matrix) - self.noise_variance * float(np.trace(inverse))
        return self.noise_variance * explained / int(self.cuts[-1])

    def _factor(self, matrix: Array) -> tuple[Array, bool]:
        matrix[np.diag_indices_from(matrix)] += self.noise_variance
        factor, lower = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        return factor, lower
