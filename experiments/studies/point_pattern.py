"""How points are spread over a box: at its boundary, evenly or in clusters."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

MARGIN = 0.05  # of the half-width of the box: what counts as its boundary


def boundary_share(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Share of the points (n, p) within `MARGIN` half-widths of an edge of the box."""
    low, high = np.asarray(lower), np.asarray(upper)
    margin = MARGIN * 0.5 * (high - low)
    return float(np.mean(((points < low + margin) | (points > high - margin)).any(axis=1)))


def share_of_area(n_dimensions: int) -> float:
    """Share that uniform points have on average: ``1 - (1 - MARGIN)^p``."""
    return float(1.0 - (1.0 - MARGIN) ** n_dimensions)


def nearest_distance_ratio(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Mean distance of n points (n, 2) to their nearest neighbour over what uniform points in the rectangle have.

    Below 1: clusters; above 1: even. Clark and Evans, Ecology 35 (1954) 445. The expectation, for the area A and
    the perimeter P, is that of Donnelly (Simulation studies to determine edge effects of nearest neighbour
    analysis, 1978), for points next to an edge have no neighbours behind it::

        0.5 sqrt(A / n) + (0.0514 + 0.041 / sqrt(n)) P / n
    """
    sides, n = np.asarray(upper) - np.asarray(lower), len(points)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    expected = 0.5 * sqrt(np.prod(sides) / n) + (0.0514 + 0.041 / sqrt(n)) * 2.0 * sides.sum() / n
    return float(distances.min(axis=1).mean() / expected)
