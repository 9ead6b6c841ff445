"""Where an output saturates: found in the samples, and what a saturated sample says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.output_error.segment import Segment

Array = NDArray[np.float64]

LONGEST_RUN = 3  # samples in a row that equal the extreme value exactly
LEAST_SAMPLES = 5  # of them in all
LEAST_RUNS = 2  # separate ones that neither begin nor end a segment: a system at rest is not saturated


class Saturation(NamedTuple):
    """Values beyond which an output was never seen, and at which it stayed again and again."""

    limits: tuple[float, float]  # output unit; infinite for none
    counts: tuple[int, int]  # samples at each


def saturation_of(segments: Sequence[Segment]) -> Saturation:
    """Limits of an output whose extreme value is repeated exactly.

    An extreme counts as a limit if at least `LEAST_RUNS` runs inside the segments, the longest of at least
    `LONGEST_RUN` samples, equal it exactly, `LEAST_SAMPLES` samples in all. A noisy signal does not repeat itself; one
    that is clipped by its sensor or its actuator does.
    """
    values = np.concatenate([segment.values for segment in segments])
    found = [(extreme, _samples_at(segments, extreme)) for extreme in (float(values.min()), float(values.max()))]
    (low, n_low), (high, n_high) = found
    return Saturation((low if n_low else -np.inf, high if n_high else np.inf), (n_low, n_high))


def _samples_at(segments: Sequence[Segment], extreme: float) -> int:
    """Samples at a value if it is a limit, else 0."""
    total, lengths = 0, []
    for segment in segments:
        at = np.concatenate([[False], segment.values == extreme, [False]])
        edges = np.flatnonzero(np.diff(at.astype(np.int8)))
        total += int(at.sum())
        inside = [(first, last) for first, last in edges.reshape(-1, 2) if first > 0 and last < len(segment.values)]
        lengths += [last - first for first, last in inside]
    is_limit = len(lengths) >= LEAST_RUNS and max(lengths) >= LONGEST_RUN and total >= LEAST_SAMPLES
    return total if is_limit else 0
