"""Uninterrupted stretches of the samples that a model is trained on, to simulate them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.narx import Narx, Target
from sysid.start import InitialSamples

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Segment(NamedTuple):
    """Consecutive samples of one record."""

    regressors: Array  # (n, p) measured
    values: Array  # (n,) target output y[k]
    past: Array  # (L,) target output before the first sample, newest last; nan where no feature needs it

    @property
    def previous(self) -> Array:
        """Target output y[k-1] of every sample (n,)."""
        return np.concatenate([self.past[-1:], self.values[:-1]])

    def part(self, first: int, last: int) -> Segment:
        """Samples from first to before last, with the measured outputs before them."""
        outputs = np.concatenate([self.past, self.values[:first]])
        return Segment(self.regressors[first:last], self.values[first:last], outputs[len(outputs) - len(self.past) :])


def feedback_of(narx: Narx) -> tuple[Indices, Indices]:
    """Features (q,) that are lagged values of the target output, and their lags (q,).

    Other outputs count as measured signals.

    Raises
    ------
    ValueError
        If there is none: nothing is fed back then.
    """
    pairs = [(j, lag) for j, (name, lag) in enumerate(narx.features) if name == narx.target]
    if not pairs:
        raise ValueError(
            f"training for simulation: expected lags of the target {narx.target!r}, which a free run feeds back, got "
            "none; give it lags (narx), or take training=maximum_a_posteriori"
        )
    columns, lags = zip(*pairs, strict=True)
    return np.array(columns, dtype=np.int64), np.array(lags, dtype=np.int64)


def segments_of(samples: InitialSamples) -> list[Segment]:
    """Samples cut where one does not follow the other.

    Raises
    ------
    ValueError
        No lags of the target; no samples; a change is predicted and y[k-1] does not follow from the features of a
        segment because it is shorter than their smallest lag of the target.
    """
    columns, lags = feedback_of(samples.narx)
    if not len(samples.targets):
        raise ValueError("training for simulation: expected samples, got none")
    starts = np.flatnonzero(~np.asarray(samples.follows, dtype=bool))
    cuts = np.unique(np.concatenate([[0], starts, [len(samples.targets)]]))
    found = []
    for first, last in pairwise(cuts):
        rows = slice(int(first), int(last))
        found.append(_segment(samples.narx, samples.regressors[rows], samples.targets[rows], columns, lags))
    return found


def _segment(narx: Narx, regressors: Array, targets: Array, columns: Indices, lags: Indices) -> Segment:
    """The lagged values are outputs: y[k-lag] stands in row k."""
    n, longest = len(targets), int(lags.max())
    outputs = np.full(longest + n, np.nan)  # of the samples -L, ..., n - 1
    for column, lag in zip(columns, lags, strict=True):
        outputs[longest - lag : longest - lag + n] = regressors[:, column]
    if narx.predict is Target.value:
        outputs[longest:] = targets
    else:
        for k in range(max(longest, longest + n - int(lags.min())), longest + n):
            outputs[k] = narx.predict.to_value(targets[k - longest], outputs[k - 1])
    if not np.isfinite(outputs[longest:]).all():
        raise ValueError(
            f"training for simulation: expected segments of at least {int(lags.min())} samples, the smallest lag of "
            f"{narx.target!r}, got one of {n}; take lag 1 of it, or leave this segment out"
        )
    return Segment(regressors, outputs[longest:], outputs[:longest])


def shortened(parts: Sequence[Segment], most: int) -> tuple[Segment, ...]:
    """The first so many samples of segments behind each other."""
    kept, left = [], most
    for part in parts:
        if left > 0:
            kept.append(part.part(0, left))
        left -= len(part.values)
    return tuple(kept)
