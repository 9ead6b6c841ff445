"""Which of many points are on the Pareto front."""

import numpy as np


def non_dominated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Mask (n,) of the points that no other point dominates when both objectives (n,) are minimised.

    Point j dominates i if it is at least as good in both objectives and better in one, so equal points are all on
    the front or all off it. A point with an objective that is nan is off it and dominates none. O(n log n): by the
    first objective, then the second, a point must be the best of its ties and better than all before them.
    """
    front = np.zeros(len(first), dtype=bool)
    known = np.flatnonzero(~(np.isnan(first) | np.isnan(second)))
    order = known[np.lexsort((second[known], first[known]))]
    x, y = first[order], second[order]
    start = np.searchsorted(x, x, side="left")  # of the ties in the first objective
    best = np.minimum.accumulate(y)
    front[order] = (y == y[start]) & ((start == 0) | (y < best[start - 1]))
    return front
