"""Selection of the points of a dictionary from a whole record, offline (section 5 of the paper)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sysid.arrays import check_counts, matrix, vector
from sysid.errors import UserError
from sysid.gp.dictionary import scores
from sysid.gp.online import OnlineGP


class Selection(ABC):
    """Which of many samples start a dictionary, judged by its reduction criterion (section 5 of the
    paper).
    """

    @abstractmethod
    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        """Start an online GP from at most `budget` of the samples (n, p), (n,), in its own scales;
        returns it.

        Raises
        ------
        ValueError
            More samples than this selection can hold.
        """


@dataclass(frozen=True)
class Backward(Selection):
    """Start from all samples and remove the one of lowest reduction score until the budget is met.

    Section 5 of the paper. Every removal sees all the others, which takes O(n^2) memory and O(n^3)
    time.
    """

    max_samples: int = 4000  # a factor of so many takes 128 MB

    def __post_init__(self) -> None:
        check_counts(self, max_samples=2)

    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        if len(targets) > max(self.max_samples, gp.budget):
            raise UserError(
                f"Backward: expected at most {self.max_samples} samples (max_samples), got {len(targets)}; select "
                "forward, thin the record, or raise max_samples: memory grows with its square"
            )
        return gp.fit(inputs, targets)


@dataclass(frozen=True)
class Forward(Selection):
    """Start from nothing and add the sample of highest acceptance score of the reduction criterion.

    With N points chosen the others are judged by the prediction from these; O(n N) memory, O(n N^2)
    time. For the entropies this is the pivoted Cholesky factorisation: the sample of largest
    variance comes next. Adding point j to the chosen set updates the latent variances s and the
    residuals r of all samples i::

        c_i = k(x_i, x_j) - sum over columns of l_i l_j,   l_i = c_i / sqrt(s_j + noise_variance)
        s_i -= l_i^2,   r_i -= l_i r_j / sqrt(s_j + noise_variance)

    with the column l appended: a Cholesky factorisation with pivots. Of equal scores the first
    sample wins.
    """

    def fill(self, gp: OnlineGP, inputs: np.ndarray, targets: np.ndarray) -> OnlineGP:
        x = matrix(inputs, gp.n_features, "inputs")
        y = vector(targets, len(x), "targets")
        n = len(y)
        most = min(gp.budget, len(y))
        noise = gp.noise_variance
        residual = y.copy()
        latent = gp.kernel.diagonal(x)
        columns = np.empty((most, n))
        chosen = np.empty(most, dtype=np.int64)
        score = np.empty(n)
        is_free = np.ones(n, dtype=bool)
        for step in range(most):
            scores(
                gp.reduction.acceptance_address,
                n,
                residual,
                latent + noise,
                noise,
                score,
            )
            j = int(np.flatnonzero(is_free)[np.argmax(score[is_free])])
            pivot = np.sqrt(latent[j] + noise)
            column = gp.kernel(x, x[[j]])[:, 0] - columns[:step].T @ columns[:step, j]
            columns[step] = column / pivot
            residual -= columns[step] * (residual[j] / pivot)
            latent = np.maximum(latent - columns[step] ** 2, 0.0)
            chosen[step], is_free[j] = j, False
        gp.fit(x[chosen], y[chosen], numbers=chosen)
        gp.absorb(x[is_free], y[is_free])
        return gp
