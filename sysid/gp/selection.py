"""Selection of the points of a dictionary from a whole record, offline (section 5 of the paper)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sysid.arrays import check_counts, matrix, vector
from sysid.errors import UserError
from sysid.gp.dictionary import SCORE_TIE, scores
from sysid.gp.online import OnlineGP


class Selection(ABC):
    """Decides which of many samples start a dictionary (section 5 of the paper).

    The choice follows the reduction criterion of the online GP.
    """

    @abstractmethod
    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        """Start an online GP from at most `budget` of the samples (n, p), (n,), and return it.

        The samples are in the scales of the online GP.

        Raises
        ------
        ValueError
            More samples than this selection can hold.
        """


@dataclass(frozen=True)
class Backward(Selection):
    """Start from all samples and remove the one of lowest reduction score until the budget is met.

    Section 5 of the paper. Every removal takes all remaining samples into account, which costs
    O(n^2) memory and O(n^3) operations.
    """

    max_samples: int = 4000  # the factor of 4000 samples takes 128 MB

    def __post_init__(self) -> None:
        check_counts(self, max_samples=2)

    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        if len(targets) > max(self.max_samples, gp.budget):
            raise UserError(
                f"Backward: expected at most {self.max_samples} samples (max_samples), got "
                f"{len(targets)}; select forward, thin the record, or raise max_samples: memory "
                "grows with its square"
            )
        return gp.fit(inputs, targets)


@dataclass(frozen=True)
class Forward(Selection):
    """Start from nothing and add the sample of highest acceptance score of the reduction criterion.

    When N points are chosen, the scores of the other samples are computed from their prediction by
    these points; this takes O(n N) memory and O(n N^2) operations. Adding point j to the chosen set
    updates the latent variances s and the residuals r of all samples i::

        c_i = k(x_i, x_j) - sum over columns of l_i l_j,   l_i = c_i / sqrt(s_j + noise_variance)
        s_i -= l_i^2,   r_i -= l_i r_j / sqrt(s_j + noise_variance)

    and appends the column l. For the entropies, which choose the sample of largest variance next,
    this is the pivoted Cholesky factorisation. Of scores that are equal up to rounding, the first
    sample is chosen.
    """

    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        x = matrix(inputs, gp.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        n = len(y)
        n_chosen = min(gp.budget, n)
        noise = gp.noise_variance
        formula = gp.reduction.acceptance_address
        residual = y.copy()
        latent = gp.kernel.diagonal(x)
        columns = np.empty((n_chosen, n))
        chosen = np.empty(n_chosen, dtype=np.int64)
        score = np.empty(n)
        is_free = np.ones(n, dtype=bool)
        for step in range(n_chosen):
            scores(formula, n, residual, latent + noise, noise, score)
            free = np.flatnonzero(is_free)
            j = int(free[_index_of_highest(score[free])])
            pivot = np.sqrt(latent[j] + noise)
            column = gp.kernel(x, x[[j]])[:, 0] - columns[:step].T @ columns[:step, j]
            columns[step] = column / pivot
            residual -= columns[step] * (residual[j] / pivot)
            latent = np.maximum(latent - columns[step] ** 2, 0.0)
            chosen[step] = j
            is_free[j] = False
        gp.fit(x[chosen], y[chosen], numbers=chosen, n_seen=n)
        gp.absorb(x[is_free], y[is_free])
        return gp


def _index_of_highest(values: np.ndarray) -> int:
    """Return the index of the highest value; among ties (`SCORE_TIE`) it is the first one."""
    highest = float(values.max())
    if not np.isfinite(highest):
        return int(values.argmax())
    return int(np.argmax(values >= highest - SCORE_TIE * abs(highest)))
