"""Whether rows may come right after each other: their lags show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid.arrays import Array
from sysid.narx.lags import Narx, Target

#: Largest difference between a lag of the target and the same value, computed from the target of an
#: earlier row, relative to the size of both [-].
MAX_RELATIVE_DIFFERENCE = 1e-9


class Succession:
    """Compares the lags of a row with those of a row `distance` samples before it.

    A value that both rows contain must be the same: lag i of the later row is lag ``i - distance``
    of the earlier one. If this is 0 for the target, it is the target of the earlier row. Where the
    rows contain no value in common, they may follow each other.
    """

    def __init__(self, narx: Narx, distance: int = 1) -> None:
        columns: dict[tuple[str, int], int] = {}
        for column, feature in enumerate(narx.features):
            columns.setdefault(feature, column)
        shared = [
            (column, columns[name, lag - distance])
            for column, (name, lag) in enumerate(narx.features)
            if (name, lag - distance) in columns
        ]
        self._shared = shared  # columns of the later and of the earlier row
        self._later = [later for later, _ in shared]
        self._earlier = [earlier for _, earlier in shared]
        self._is_change = narx.predict is Target.change
        previous = columns.get((narx.target, 1))
        #: column of the target of the earlier row among the lags of the later one
        self._target = columns.get((narx.target, distance))
        if self._is_change and previous is None:  # the value of the target is not known
            self._target = None
        self._previous = previous

    def of_rows(self, x: Array, y: Array) -> NDArray[np.bool_]:
        """Return whether each row but the first may come right after the one before it.

        Of rows (n, p) with targets (n,) the result has shape (n - 1,). A target of nan is not
        known.
        """
        return self.between(x[:-1], y[:-1], x[1:])

    def between(self, x: Array, y: Array, later: Array) -> NDArray[np.bool_]:
        """Return whether each later row (n, p) may follow its row x (n, p) with target y (n,)."""
        follows: NDArray[np.bool_] = (later[:, self._later] == x[:, self._earlier]).all(axis=1)
        if self._target is None:
            return follows
        before = x[:, self._previous] if self._is_change else np.zeros(len(y))
        return follows & ~_differs(later[:, self._target], before, y)

    def of_pair(self, x: Sequence[float] | Array, y: float, later: Array) -> bool:
        """Return whether a row (p,) may follow the row x (p,) with target y.

        For one pair of rows this takes less time than `between`.
        """
        values = later.tolist()
        for column, column_before in self._shared:
            if values[column] != x[column_before]:
                return False
        if self._target is None:
            return True
        before = 0.0
        if self._is_change and self._previous is not None:
            before = x[self._previous]
        return not _differs(values[self._target], before, y)


def _differs(value: Any, before: Any, change: Any) -> Any:
    """Return whether a value is not ``before + change``, up to rounding.

    It does not differ if one of them is not known.
    """
    difference = abs(value - (before + change))
    size = abs(value) + abs(before) + abs(change)
    return difference > MAX_RELATIVE_DIFFERENCE * size
