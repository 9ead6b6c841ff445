"""Selection by adding."""

from dataclasses import dataclass

import numpy as np

from sysid.arrays import matrix, vector
from sysid.criteria import Criterion
from sysid.dictionary import scores
from sysid.kernels import Kernel
from sysid.online import OnlineGP
from sysid.selection.selection import Selection


@dataclass(frozen=True)
class Forward(Selection):
    """Start from nothing and add the sample of highest acceptance score of the reduction criterion.

    With N points chosen the others are judged by the prediction from these; O(n N) memory, O(n N^2) time. For the
    entropies this is the pivoted Cholesky factorisation: the sample of largest variance comes next.
    """

    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        """See `Selection.fill`."""
        x = matrix(inputs, gp.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        chosen = forward(gp.kernel, gp.noise_variance, x, y, gp.reduction, gp.budget)
        return gp.fit(x[chosen], y[chosen])


def forward(
    kernel: Kernel, noise_variance: float, inputs: np.ndarray, targets: np.ndarray, criterion: Criterion, n_points: int
) -> np.ndarray:
    """Indices of at most `n_points` of the samples (n, p), (n,), in the order in which they were added.

    Adding point j to the chosen set updates the latent variances s and the residuals r of all samples i::

        c_i = k(x_i, x_j) - sum over columns of l_i l_j,   l_i = c_i / sqrt(s_j + noise_variance)
        s_i -= l_i^2,   r_i -= l_i r_j / sqrt(s_j + noise_variance)

    with the column l appended: a Cholesky factorisation with pivots. Of equal scores the first sample wins.
    """
    n, most = len(targets), min(n_points, len(targets))
    residual, latent = targets.copy(), kernel.diagonal(inputs)
    columns, chosen, score = np.empty((most, n)), np.empty(most, dtype=np.int64), np.empty(n)
    is_free = np.ones(n, dtype=bool)
    for step in range(most):
        scores(criterion.acceptance_address, n, residual, latent + noise_variance, noise_variance, score)
        j = int(np.flatnonzero(is_free)[np.argmax(score[is_free])])
        pivot = np.sqrt(latent[j] + noise_variance)
        column = kernel(inputs, inputs[[j]])[:, 0] - columns[:step].T @ columns[:step, j]
        columns[step] = column / pivot
        residual -= columns[step] * (residual[j] / pivot)
        latent = np.maximum(latent - columns[step] ** 2, 0.0)
        chosen[step], is_free[j] = j, False
    return chosen
