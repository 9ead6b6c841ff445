"""Median and quartiles over seeds, some of which may be missing."""

from typing import NamedTuple

import numpy as np


class Quartiles(NamedTuple):
    """Quantiles over the last axis; nan where nothing is known."""

    low: np.ndarray  # 25 %
    median: np.ndarray
    high: np.ndarray  # 75 %
    known: np.ndarray  # number of values


def quartiles(values: np.ndarray) -> Quartiles:
    """Quartiles (...) of values (..., n) without the nan among them, linear between the order statistics.

    Infinite values are the largest ones: a quantile between a finite and an infinite one is infinite.
    """
    ordered = np.sort(values, axis=-1)  # nan last
    count = np.sum(~np.isnan(values), axis=-1)
    low, median, high = (_quantile(ordered, count, level) for level in (0.25, 0.5, 0.75))
    return Quartiles(low, median, high, count)


def _quantile(ordered: np.ndarray, count: np.ndarray, level: float) -> np.ndarray:
    """Quantile of the first ``count`` of the ordered values."""
    position = level * (np.maximum(count, 1) - 1)
    below, above = (
        np.take_along_axis(ordered, index.astype(int)[..., np.newaxis], axis=-1)[..., 0]
        for index in (np.floor(position), np.ceil(position))
    )
    with np.errstate(invalid="ignore"):
        return np.where(below == above, below, below + (position - np.floor(position)) * (above - below))
