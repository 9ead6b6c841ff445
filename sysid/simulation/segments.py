"""Segments of records that are simulated in one go, and folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from sysid.arrays import Array, Indices
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap
from sysid.gp.training import InitialSamples
from sysid.narx.lags import Narx, Target

# correlation of changes from which on a stretch of a record is a copy of another one [-]
COPY = 0.95
CHANCE = 1e-3  # probability at most that a stretch of another record is as much alike

Limits: TypeAlias = tuple[
    float, float
]  # between which an output saturates, its unit; infinite for none


class Segment(NamedTuple):
    """Consecutive samples of one record, which are simulated in one go."""

    regressors: Array  # (n, p) measured
    values: Array  # (n,) target output y[k]
    # (L,) target output before the first sample, newest last; nan where no feature needs it
    past: Array
    # first samples, which are not scored: they still depend on the noise of the past
    transient: int = 0

    @property
    def previous(self) -> Array:
        """Target output y[k-1] of every sample (n,)."""
        return np.concatenate([self.past[-1:], self.values[:-1]])

    def part(self, first: int, last: int) -> Segment:
        """Cut out samples from first to before last, with the measured outputs before them."""
        outputs = np.concatenate([self.past, self.values[:first]])
        return Segment(
            self.regressors[first:last],
            self.values[first:last],
            outputs[len(outputs) - len(self.past) :],
        )


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
        raise UserError(
            f"training for simulation: expected lags of the target {narx.target!r}, which a free run feeds back, got "
            "none; give it lags (narx), or take training=maximum_a_posteriori"
        )
    columns, lags = zip(*pairs, strict=True)
    return np.array(columns, dtype=np.int64), np.array(lags, dtype=np.int64)


def segments_of(samples: InitialSamples) -> list[Segment]:
    """Cut samples where one does not follow the other.

    Raises
    ------
    ValueError
        No lags of the target; no samples; a change is predicted and y[k-1] does not follow from the
        features of a segment because it is shorter than their smallest lag of the target.
    """
    columns, lags = feedback_of(samples.narx)
    if not len(samples.targets):
        raise UserError("training for simulation: expected samples, got none")
    starts = np.flatnonzero(~np.asarray(samples.follows, dtype=bool))
    cuts = np.unique(np.concatenate([[0], starts, [len(samples.targets)]]))
    found = []
    for first, last in pairwise(cuts):
        rows = slice(int(first), int(last))
        found.append(
            _segment(
                samples.narx,
                samples.regressors[rows],
                samples.targets[rows],
                columns,
                lags,
            )
        )
    return found


def _segment(
    narx: Narx, regressors: Array, targets: Array, columns: Indices, lags: Indices
) -> Segment:
    """Segment of consecutive rows; the outputs are read from the lagged values: y[k - lag] stands
    in row k.
    """
    n = len(targets)
    longest = int(lags.max())
    outputs = np.full(longest + n, np.nan)  # of the samples -L, ..., n - 1
    for column, lag in zip(columns, lags, strict=True):
        outputs[longest - lag : longest - lag + n] = regressors[:, column]
    if narx.predict is Target.value:
        outputs[longest:] = targets
    else:
        for k in range(max(longest, longest + n - int(lags.min())), longest + n):
            outputs[k] = narx.predict.to_value(targets[k - longest], outputs[k - 1])
    if not np.isfinite(outputs[longest:]).all():
        raise UserError(
            f"training for simulation: expected segments of at least {int(lags.min())} samples, the smallest lag of "
            f"{narx.target!r}, got one of {n}; take lag 1 of it, or leave this segment out"
        )
    return Segment(regressors, outputs[longest:], outputs[:longest])


def truncate(parts: Sequence[Segment], most: int) -> tuple[Segment, ...]:
    """Keep at most so many samples, the first, of segments one behind the other."""
    kept = []
    left = most
    for part in parts:
        if left > 0:
            kept.append(part.part(0, left))
        left -= len(part.values)
    return tuple(kept)


class Fold(NamedTuple):
    """Consecutive samples that are left out of a fit, and the segments around them."""

    parts: tuple[Segment, ...]
    rest: tuple[Segment, ...]


def n_samples(segments: Sequence[Segment]) -> int:
    """Count the samples of all segments."""
    return sum(len(segment.values) for segment in segments)


def scale_signals(narx: Narx, regressors: Array) -> AffineMap:
    """Standardise every lag of a signal like its first, so that a lagged signal stays the same
    signal.
    """
    own = AffineMap.fit(regressors)
    names = [name for name, _ in narx.features]
    first = [names.index(name) for name in names]
    constant = tuple(j for j, i in enumerate(first) if i in own.constant)
    return AffineMap(own.offset[first], own.scale[first], constant)


def stack_regressors(segments: Sequence[Segment]) -> Array:
    """Measured regressors (n, p) of all segments."""
    return np.concatenate([segment.regressors for segment in segments])


def find_copies(folds: Sequence[Fold]) -> list[int]:
    """Folds, counted from 0, whose output is found again in the samples around them.

    Compared are the first n changes d of the output in the longest part, over at most half of the
    longest segment of the rest, with every stretch e of the rest: the largest ``c = d'e / (|d|
    |e|)`` is at least `COPY`, and not so by chance. Of N stretches of noise one is as much alike
    with a probability of at most ``N (1 - c^2)^((m - 1) / 2)``, ``m = n / sum rho^2`` the
    independent ones of n samples, rho the autocorrelation of d at all lags (Bartlett). A record
    that repeats itself says nothing about samples that do not.
    """
    from scipy.signal import correlate  # takes most of a second to import

    found = []
    for number, fold in enumerate(folds):
        own = np.diff(max((part.values for part in fold.parts), key=len))
        own = own[: max((len(segment.values) for segment in fold.rest), default=0) // 2]
        energy = float(own @ own)
        alike = 0.0
        n_places = 0
        for segment in fold.rest:
            other = np.diff(segment.values)
            if len(other) >= len(own) and energy > 0:
                sums = np.concatenate([[0.0], np.cumsum(other**2)])
                there = np.maximum(
                    sums[len(own) :] - sums[: -len(own)], COPY**2 * energy
                )  # nothing moves there
                alike = max(
                    alike,
                    float(np.max(correlate(other, own, "valid") / np.sqrt(energy * there))),
                )
                n_places += len(there)
        if alike >= COPY:
            m = len(own) / float(np.sum((correlate(own, own) / energy) ** 2))
            if n_places * max(1.0 - alike**2, 0.0) ** ((m - 1.0) / 2.0) <= CHANCE:
                found.append(number)
    return found


def folds_of(segments: Sequence[Segment], n: int) -> list[Fold]:
    """Cut all segments, one behind the other, into n parts of equal lengths; a cut may go through a
    segment.

    Raises
    ------
    ValueError
        Fewer than 2 folds, or fewer samples than folds.
    """
    total = n_samples(segments)
    if not 2 <= n <= total:
        raise UserError(
            f"cross-validation: expected from 2 to {total} folds of {total} samples, got {n}; change folds"
        )
    folds = []
    for first, last in pairwise(np.linspace(0, total, n + 1).astype(int).tolist()):
        parts = []
        rest = []
        start = 0
        for segment in segments:
            length = len(segment.values)
            low, high = (min(max(cut - start, 0), length) for cut in (first, last))
            parts.append(segment.part(low, high))
            rest += [segment.part(0, low), segment.part(high, length)]
            start += length
        kept = [tuple(part for part in found if len(part.values)) for found in (parts, rest)]
        folds.append(Fold(*kept))
    return folds
