"""Own thresholds, where a published one means nothing at the scale of our model."""

import numpy as np

from experiments.studies.cells import Cell
from experiments.studies.stream import Outcome, identification_of
from sysid import AcceptAll, Always, ErrorThreshold, Insertion, VarianceThreshold

RAISE = 1.25  # factor between a threshold that revises too many points and the next
FEWEST, MOST = 0.1, 0.99  # of the published number of revised points; of the stream


def is_meaningless(outcome: Outcome, n_published: float) -> bool:
    """Whether none or all points pass: fewer than a tenth of the published revisions, or 99 % of the stream."""
    return outcome.n_inserted < FEWEST * n_published or outcome.n_inserted > MOST * outcome.n_offered


def own_threshold(cell: Cell, rule: type[Insertion], n_published: int) -> tuple[float, Outcome]:
    """Threshold of our rule and its outcome, with at most `n_published` revised points.

    The rule looks at the training part alone: the initial model predicts the whole stream; the threshold starts at
    the value that `n_published` points of it exceed (latent variance, or absolute error), and is raised by a quarter
    until the stream revises no more points than published.

    Raises
    ------
    ValueError
        If the initial model leaves nothing to exceed: no factor raises a threshold of 0.
    """
    threshold = exceeded_by(surprise(cell, rule), n_published)
    if not threshold > 0:
        raise ValueError(f"own threshold: expected errors or variances above 0 in the stream, got {threshold}")
    while True:
        outcome = cell.offer(rule(threshold))  # type: ignore[call-arg]
        if outcome.n_revised <= n_published:
            return threshold, outcome
        threshold *= RAISE


def surprise(cell: Cell, rule: type[Insertion]) -> np.ndarray:
    """What the rule compares with its threshold, by the initial model for every point of the stream."""
    identification = identification_of(
        cell.data, cell.start, Always(), AcceptAll(), cell.criterion, budget=cell.budget, seed=cell.seed
    )
    assert identification.model is not None
    mean, variance = identification.model.predict(cell.data.inputs)
    compared: dict[type[Insertion], np.ndarray] = {
        VarianceThreshold: variance,
        ErrorThreshold: np.abs(cell.data.targets - mean),
    }
    return compared[rule]


def exceeded_by(values: np.ndarray, n: int) -> float:
    """Threshold in the middle between the n-th and the next largest value: n values exceed it, fewer if there are ties.

    Half of the smallest value where all shall exceed it; twice the largest where none shall.
    """
    ordered = np.sort(values)[::-1]
    padded = np.concatenate([[3.0 * ordered[0]], ordered, [0.0]])
    n = min(n, len(ordered))
    return float(0.5 * (padded[n] + padded[n + 1]))
