"""Windows of a record that are simulated each from its own measured outputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.output_error.segment import Segment

Array = NDArray[np.float64]

FEWEST = 4  # windows that a record is cut into, whatever its length


class Window(NamedTuple):
    """Samples that are simulated in one go, and from which on they are scored."""

    segment: Segment
    transient: int  # first samples, not scored: they still depend on the noise of the outputs before them

    @property
    def scored(self) -> slice:
        """Samples that count."""
        return slice(self.transient, None)


def windows_of(segments: Sequence[Segment], length: int, transient: int) -> list[Window]:
    """Windows that score every sample once, but for the transient at the start of each segment.

    Windows of about `length` samples begin `transient` samples before the first that they score. Where all samples
    make fewer than `FEWEST` of them, both are shortened alike; a short segment scores at least four fifths of itself.

    Raises
    ------
    ValueError
        No samples.
    """
    total = sum(len(segment.values) for segment in segments)
    if not total:
        raise ValueError("windows: expected samples, got none")
    share = transient / length
    longest = min(length, max(1, int(total / (share + FEWEST * (1.0 - share)))))
    return [window for segment in segments for window in _cut(segment, longest, int(share * longest))]


def _cut(segment: Segment, length: int, transient: int) -> list[Window]:
    n = len(segment.values)
    skipped = min(transient, n // 5)
    n_windows = max(1, round((n - skipped) / max(1, length - transient)))
    cuts = np.linspace(skipped, n, n_windows + 1).astype(int)
    parts = [segment.part(int(first) - skipped, int(last)) for first, last in pairwise(cuts) if last > first]
    return [Window(part, skipped) for part in parts]


def spread_over(windows: Sequence[Window], most: int) -> list[Window]:
    """At most so many windows, evenly among all."""
    chosen = np.linspace(0, len(windows) - 1, min(most, len(windows))).round().astype(int)
    return [windows[i] for i in chosen]


def held_back(windows: Sequence[Window], every: int) -> tuple[list[Window], list[Window]]:
    """Windows to fit, and every n-th, held back to judge the fit (the last, if there are fewer)."""
    held = list(range(every - 1, len(windows), every)) or [len(windows) - 1]
    return [w for i, w in enumerate(windows) if i not in held], [windows[i] for i in held]
