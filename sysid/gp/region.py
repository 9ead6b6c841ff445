"""Where the samples of a stream lie, and the departure of a plant that was at rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sysid.arrays import matrix, vector
from sysid.errors import UserError

#: A sample is far outside a region if it is further from the centre than this many half widths.
FAR_HALF_WIDTHS = 10.0

#: Samples outgrow a region if their mean distance from their median exceeds so many half widths.
MOVING_HALF_WIDTHS = 2.0

#: Differences of at most this fraction of a value are rounding errors [-].
ROUNDING = 1e-12


class Region:
    """Range of the target, and of its lags among the features, in samples seen so far.

    While a plant is at rest, the target moves by noise at most. Once the plant is excited, the
    target moves far beyond the range that it had at rest.

    Parameters
    ----------
    columns : sequence of int
        The features that are lags of the target.

    Attributes
    ----------
    low, high : (n_columns + 1,)
        Smallest and largest value of these features and of the target; infinite before the first
        sample.
    """

    def __init__(self, columns: Sequence[int]) -> None:
        self.columns = list(columns)
        self.low = np.full(len(self.columns) + 1, np.inf)
        self.high = np.full(len(self.columns) + 1, -np.inf)

    @property
    def is_empty(self) -> bool:
        """Whether no sample has been included."""
        return bool(self.low[-1] > self.high[-1])

    def extend(self, regressors: np.ndarray, targets: np.ndarray) -> None:
        """Include samples (n, p), (n,)."""
        values = self._values(regressors, targets)
        self.low = np.minimum(self.low, values.min(axis=0, initial=np.inf))
        self.high = np.maximum(self.high, values.max(axis=0, initial=-np.inf))

    def join(self, other: Region) -> None:
        """Include the samples of another region."""
        self.low = np.minimum(self.low, other.low)
        self.high = np.maximum(self.high, other.high)

    def is_far_from(self, regressors: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return which samples (n, p), (n,) are far outside the region; none if it is empty."""
        if self.is_empty:
            return np.zeros(len(targets), dtype=bool)
        centre = 0.5 * (self.low + self.high)
        distance = np.abs(self._values(regressors, targets) - centre)
        return np.asarray((distance > self._limit(FAR_HALF_WIDTHS)).any(axis=1))

    def is_outgrown_by(self, regressors: np.ndarray, targets: np.ndarray) -> bool:
        """Return whether samples (n, p), (n,) move much more than those of the region.

        The distance of a sample counts up to that of a sample far outside, so that a few wrong
        measurements do not decide.
        """
        if self.is_empty:
            return False
        values = self._values(regressors, targets)
        distances = np.abs(values - np.median(values, axis=0))
        distance = np.minimum(distances, self._limit(FAR_HALF_WIDTHS)).mean(axis=0)
        return bool((distance > self._limit(MOVING_HALF_WIDTHS)).any())

    def _limit(self, n_half_widths: float) -> np.ndarray:
        """Return this many half widths of each value, and at least the rounding error."""
        rounding = ROUNDING * np.maximum(np.abs(self.low), np.abs(self.high))
        return np.maximum(n_half_widths * 0.5 * (self.high - self.low), rounding)

    def _values(self, regressors: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.column_stack([regressors[:, self.columns], targets])

    def state(self) -> np.ndarray:
        """Return the smallest and the largest values (2, n_columns + 1); zeros if it is empty."""
        if self.is_empty:
            return np.zeros((2, len(self.low)))
        return np.stack([self.low, self.high])


def count_at_rest(
    regressors: np.ndarray, targets: np.ndarray, columns: Sequence[int], n_needed: int
) -> int:
    """Return the number of rows at rest with which a known record (n, p), (n,) begins.

    The rest ends at the last row that doubles the range of the rows before, if the median distance
    of the rows from there on exceeds that range. At least `n_needed` rows come after the rest.
    `columns` are the features that are lags of the target.
    """
    values = np.column_stack([regressors[:, list(columns)], targets])
    if len(values) < 2:
        return 0
    width = np.maximum.accumulate(values) - np.minimum.accumulate(values)
    rounding = ROUNDING * np.abs(values).max(axis=0)
    doubles = (width[1:] > 2.0 * width[:-1] + rounding).any(axis=1)
    for last in np.flatnonzero(doubles)[::-1].tolist():
        later = values[last + 1 :]
        if len(later) < n_needed:
            continue
        distance = np.median(np.abs(later - np.median(later, axis=0)), axis=0)
        if (distance > width[last] + rounding).any():
            return int(last) + 1
    return 0


class Departures:
    """Notices that a stream leaves the region of all samples before, as after a rest.

    The samples of an interval are compared with the region of all samples before the interval
    ahead of it. They have departed if most of them are far from the region, or if they outgrow it
    (`Region`). The interval ahead is left out because the stream may have departed near its end.
    From then on samples are kept until there are enough for a training.

    Parameters
    ----------
    columns : sequence of int
        The features that are lags of the target.
    interval : int
        Number of samples between two tests.
    n_needed : int
        Number of samples after the first interval that has departed.
    n_features : int

    Attributes
    ----------
    region : Region
        Region of the samples up to the interval before the last one, without outliers.
    last : Region
        Region of the last interval, without outliers.
    n_departed : int
        Number of samples since the departure, up to the last test; 0: there was none.
    """

    def __init__(
        self, columns: Sequence[int], interval: int, n_needed: int, n_features: int
    ) -> None:
        self.region = Region(columns)
        self.last = Region(columns)
        self.n_departed = 0
        self._interval = interval
        self._n_needed = n_needed
        #: columns of the samples since the departure or the last test
        self._regressors = np.zeros((0, n_features))
        self._targets = np.zeros(0)
        self._is_usual = np.zeros(0, dtype=bool)

    @property
    def is_complete(self) -> bool:
        """Whether there are enough samples after a departure for a training."""
        return self.n_departed >= self._interval + self._n_needed

    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples (n, p), (n,) since the departure, or since the last test."""
        return self._regressors, self._targets

    def observe(self, regressors: np.ndarray, targets: np.ndarray, is_usual: np.ndarray) -> None:
        """Keep samples (n, p), (n,), of which those that are usual (n,) are no outliers."""
        self._regressors = np.concatenate([self._regressors, regressors])
        self._targets = np.concatenate([self._targets, targets])
        self._is_usual = np.concatenate([self._is_usual, is_usual])

    def test(self) -> None:
        """Test the samples since the last test, which fill an interval."""
        x = self._regressors
        y = self._targets
        if not self.n_departed:
            are_far = 2 * int(self.region.is_far_from(x, y).sum()) > len(y)
            if not are_far and not self.region.is_outgrown_by(x, y):
                self._move_on()
                return
        self.n_departed = len(y)

    def _move_on(self) -> None:
        """Include the interval before the last one in the region, and drop its samples."""
        self.region.join(self.last)
        self.last = Region(self.region.columns)
        self.last.extend(self._regressors[self._is_usual], self._targets[self._is_usual])
        self._regressors = self._regressors[:0]
        self._targets = self._targets[:0]
        self._is_usual = self._is_usual[:0]

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restore` needs to continue bit for bit."""
        return {
            "seen_ranges": np.concatenate([self.region.state(), self.last.state()]),
            "seen_departure": np.column_stack([self._regressors, self._targets, self._is_usual]),
            "seen_departed": np.array(
                [self.n_departed, not self.region.is_empty, not self.last.is_empty]
            ),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state contradicts itself or the settings.
        """
        p = self._regressors.shape[1]
        counts = vector(state["seen_departed"], 3, "seen_departed")
        rows = matrix(state["seen_departure"], p + 2, "seen_departure")
        ends = matrix(state["seen_ranges"], len(self.region.low), "seen_ranges")
        n_departed = int(counts[0])
        n_since_test = len(rows) - n_departed
        fits = 0 <= n_since_test <= self._interval and n_departed >= 0
        if len(ends) != 4 or not fits or not (ends[::2] <= ends[1::2]).all():
            raise UserError(
                "seen_ranges must be two ranges, and the rows of seen_departure must fit the "
                "interval"
            )
        self.n_departed = n_departed
        if counts[1]:
            self.region.low, self.region.high = ends[:2].copy()
        if counts[2]:
            self.last.low, self.last.high = ends[2:].copy()
        self._regressors = np.ascontiguousarray(rows[:, :p])
        self._targets = rows[:, p].copy()
        self._is_usual = rows[:, p + 1] != 0
