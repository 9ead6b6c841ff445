"""How well a route simulates what it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sysid.narx import Narx
from sysid.output_error.candidate import squared_error
from sysid.output_error.route import Fitted, Route
from sysid.output_error.segment import Segment


class HeldOut(NamedTuple):
    """Free-run errors of parts that were left out of the fit."""

    squared_error: float  # mean over all samples, output unit^2; infinite if one part diverged
    parts: tuple[float, ...]  # of each fold
    fitted: tuple[Fitted, ...]  # without each fold

    @property
    def rmse(self) -> float:
        """Root of the mean, output unit."""
        return float(np.sqrt(self.squared_error))


class Fold(NamedTuple):
    """Consecutive samples that are left out, and the segments around them."""

    parts: tuple[Segment, ...]
    rest: tuple[Segment, ...]

    @property
    def n_samples(self) -> int:
        """Samples that are left out."""
        return n_samples(self.parts)


def n_samples(segments: Sequence[Segment]) -> int:
    """Samples of all segments."""
    return sum(len(segment.values) for segment in segments)


def folds_of(segments: Sequence[Segment], n: int) -> list[Fold]:
    """All segments behind each other, cut into n parts of equal lengths; a cut may go through a segment.

    Raises
    ------
    ValueError
        Fewer than 2 folds, or fewer samples than folds.
    """
    total = n_samples(segments)
    if not 2 <= n <= total:
        raise ValueError(
            f"cross-validation: expected from 2 to {total} folds of {total} samples, got {n}; change folds"
        )
    cuts = np.linspace(0, total, n + 1).astype(int)
    return [_fold(segments, int(first), int(last)) for first, last in pairwise(cuts)]


def _fold(segments: Sequence[Segment], first: int, last: int) -> Fold:
    parts, rest, start = [], [], 0
    for segment in segments:
        length = len(segment.values)
        low, high = (min(max(cut - start, 0), length) for cut in (first, last))
        parts.append(segment.part(low, high))
        rest += [segment.part(0, low), segment.part(high, length)]
        start += length
    kept = [tuple(part for part in found if len(part.values)) for found in (parts, rest)]
    return Fold(*kept)


def held_out(
    route: Route, folds: Sequence[Fold], narx: Narx, *, budget: int, seed: int, limits: tuple[float, float]
) -> HeldOut:
    """Fit a route without each part, and simulate the part from the outputs measured before it."""
    fitted = [route.fit(fold.rest, narx, budget, seed, limits) for fold in folds]
    errors = [squared_error(found.candidate, fold.parts) for found, fold in zip(fitted, folds, strict=True)]
    return HeldOut(
        float(np.average(errors, weights=[fold.n_samples for fold in folds])),
        tuple(errors),
        tuple(fitted),
    )
