"""Segments of records that are simulated in one go, and folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sysid.arrays import Array, Indices
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap
from sysid.gp.training import InitialSamples
from sysid.narx.lags import Narx, Target

# A stretch of a record is a copy of another one if their changes correlate at least this much [-].
MIN_COPY_CORRELATION = 0.95

# A copy counts only if an equally high correlation is at most this probable by chance.
MAX_CHANCE_PROBABILITY = 1e-3

# Outputs of a fold that go beyond the range of the other samples by this fraction of it are not
# held out [-]. A start-up does; the extremes of an excitation do not.
MAX_BEYOND_OTHERS = 0.5

# At least this fraction of a fold stays held out [-].
MIN_FRACTION_WITHIN = 0.5

#: Smallest and largest value of an output that saturates, in its unit; infinite if it does not.
Limits: TypeAlias = tuple[float, float]


class Segment(NamedTuple):
    """Consecutive samples of one record, which are simulated in one go."""

    regressors: Array  # (n, p) measured regressors
    values: Array  # (n,) target output y[k]
    #: (L,) target output before the first sample, newest last; nan where no feature needs it
    past: Array
    #: number of first samples that are not scored: they depend on the noise in `past`, or a model
    #: that is compared does not have them
    transient: int = 0
    #: (n,) whether each output was measured; estimates are not scored. None: all were
    is_measured: NDArray[np.bool_] | None = None

    @property
    def previous(self) -> Array:
        """Target output y[k-1] (n,) before every sample."""
        return np.concatenate([self.past[-1:], self.values[:-1]])

    def part(self, first: int, last: int) -> Segment:
        """Cut out the samples from `first` to before `last`, with the measured outputs before."""
        outputs = np.concatenate([self.past, self.values[:first]])
        past = outputs[len(outputs) - len(self.past) :]
        values = self.values[first:last]
        transient = min(max(self.transient - first, 0), len(values))
        is_measured = None if self.is_measured is None else self.is_measured[first:last]
        return Segment(self.regressors[first:last], values, past, transient, is_measured)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Mark the samples (n,) whose output was measured."""
        if self.is_measured is None:
            return np.ones(len(self.values), dtype=bool)
        return self.is_measured

    def scored(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return those of the rows (n, ...) of all samples that are scored.

        These are the samples after the transient whose output was measured.
        """
        if self.is_measured is None:
            return rows[self.transient :]
        return rows[self.transient :][self.is_measured[self.transient :]]


def feedback_of(narx: Narx) -> tuple[Indices, Indices]:
    """Return the features (q,) that are lagged values of the target output, and their lags (q,).

    Other outputs count as measured signals.

    Raises
    ------
    ValueError
        If there is none, so that nothing is fed back.
    """
    pairs = [(j, lag) for j, (name, lag) in enumerate(narx.features) if name == narx.target]
    if not pairs:
        raise UserError(
            f"training for simulation: expected lags of the target {narx.target!r}, which a free "
            "run feeds back, got none; give it lags (narx), or take training=maximum_a_posteriori"
        )
    columns, lags = zip(*pairs, strict=True)
    return np.array(columns, dtype=np.int64), np.array(lags, dtype=np.int64)


def segments_of(samples: InitialSamples) -> list[Segment]:
    """Cut samples into segments wherever a sample does not follow the one before it.

    Raises
    ------
    ValueError
        If the target has no lags or there are no samples. Also if a change is predicted and a
        segment is shorter than the smallest lag of the target, because y[k-1] is then not among its
        features.
    """
    columns, lags = feedback_of(samples.narx)
    if not len(samples.targets):
        raise UserError("training for simulation: expected samples, got none")
    starts = np.flatnonzero(~np.asarray(samples.follows, dtype=bool))
    cuts = np.unique(np.concatenate([[0], starts, [len(samples.targets)]]))
    segments = []
    for first, last in pairwise(cuts):
        rows = slice(int(first), int(last))
        regressors = samples.regressors[rows]
        targets = samples.targets[rows]
        segments.append(_build_segment(samples.narx, regressors, targets, columns, lags))
    return segments


def _build_segment(
    narx: Narx, regressors: Array, targets: Array, columns: Indices, lags: Indices
) -> Segment:
    """Build the segment of consecutive rows.

    Its outputs are taken from the lagged values: the feature of a lag contains y[k - lag] in row k.
    Outputs that no row contains are computed from the targets.
    """
    n = len(targets)
    longest = int(lags.max())
    shortest = int(lags.min())
    outputs = np.full(longest + n, np.nan)  # of the samples -L, ..., n - 1
    for column, lag in zip(columns, lags, strict=True):
        outputs[longest - lag : longest - lag + n] = regressors[:, column]
    if narx.predict is Target.value:
        outputs[longest:] = targets
    else:
        first_unknown = max(longest, longest + n - shortest)
        for k in range(first_unknown, longest + n):
            outputs[k] = narx.predict.to_value(targets[k - longest], outputs[k - 1])
    if not np.isfinite(outputs[longest:]).all():
        raise UserError(
            f"training for simulation: expected segments of at least {shortest} samples, the "
            f"smallest lag of {narx.target!r}, got one of {n}; take lag 1 of it, or leave this "
            "segment out"
        )
    return Segment(regressors, outputs[longest:], outputs[:longest])


def segments_of_records(records: xr.Dataset | Sequence[xr.Dataset], narx: Narx) -> list[Segment]:
    """Cut records with holes into segments, which end only where an input is missing.

    See `numbered_segments`.
    """
    return numbered_segments(records, narx).segments


class NumberedSegments(NamedTuple):
    """Segments of records with holes, and the numbers of their samples."""

    segments: list[Segment]
    #: (n,) of the samples of all segments, one after the other, counted over all records
    numbers: Indices
    #: (n,) variance that estimated lags add to the one-step predictions of these samples
    added_variance: Array
    #: (m,) numbers of the rows of the lag data set (`Narx.dataset`), counted likewise
    rows: Indices


def numbered_segments(records: xr.Dataset | Sequence[xr.Dataset], narx: Narx) -> NumberedSegments:
    """Cut records with holes into segments, which end only where an input is missing.

    Missing outputs are bridged by the estimates that the records have; these samples are not
    scored. A segment begins where all lags are known again.

    Raises
    ------
    ValueError
        As `segments_of`; no sample has all lags.
    """
    _, lags = feedback_of(narx)
    longest = int(lags.max())
    segments = []
    numbers = []
    added_variances = []
    row_numbers = []
    n_before = 0  # samples of the records before
    for record in narx.check(records):
        filled = {name: record.filled(name) for name in narx.signals}
        is_known = np.logical_and.reduce([np.isfinite(values) for values in filled.values()])
        n_known = _count_in_a_row(is_known)
        rows = np.flatnonzero(n_known > narx.max_lag)
        measured = np.isfinite(record.signals[narx.target])
        for part in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            if not len(part):
                continue
            x = np.stack([filled[name][part - lag] for name, lag in narx.features], axis=1)
            y = filled[narx.target]
            past = y[part[0] - longest : part[0]].copy()
            is_measured = measured[part]
            segment = Segment(x, y[part], past, is_measured=is_measured)
            segments.append(segment._replace(is_measured=None) if is_measured.all() else segment)
            numbers.append(n_before + part)
            added_variances.append(narx.added_variance(record, part))
        row_numbers.append(n_before + narx.rows_of(record).sample)
        n_before += record.n_samples
    if not segments:
        raise UserError("training for simulation: expected samples with all lags, got none")
    return NumberedSegments(
        segments,
        np.concatenate(numbers),
        np.concatenate(added_variances),
        np.concatenate(row_numbers),
    )


def _count_in_a_row(is_known: NDArray[np.bool_]) -> Indices:
    """Return how many of the samples up to each one (n,) are known without a gap.

    >>> _count_in_a_row(np.array([True, True, False, True])).tolist()
    [1, 2, 0, 1]
    """
    position = np.arange(len(is_known))
    last_unknown = np.maximum.accumulate(np.where(is_known, -1, position))
    return position - last_unknown


def truncate(parts: Sequence[Segment], max_samples: int) -> tuple[Segment, ...]:
    """Keep at most the first `max_samples` samples of consecutive segments."""
    kept = []
    n_left = max_samples
    for part in parts:
        if n_left > 0:
            kept.append(part.part(0, n_left))
        n_left -= len(part.values)
    return tuple(kept)


class Fold(NamedTuple):
    """Consecutive samples that are held out of a fit, and the samples around them."""

    parts: tuple[Segment, ...]  # samples that are held out
    rest: tuple[Segment, ...]  # samples around them


def n_samples(segments: Sequence[Segment]) -> int:
    """Count the samples of all segments."""
    return sum(len(segment.values) for segment in segments)


def n_scored_samples(segments: Sequence[Segment]) -> int:
    """Count the measured samples of all segments without their transients."""
    return sum(len(segment.scored(segment.values)) for segment in segments)


def scale_signals(narx: Narx, regressors: Array) -> AffineMap:
    """Return a standardisation that treats all lags of a signal alike.

    Every lag has the offset and the scale of the first lag, so that a lagged signal stays the same
    signal.
    """
    by_feature = AffineMap.fit(regressors)
    names = [name for name, _ in narx.features]
    first = [names.index(name) for name in names]
    constant = tuple(j for j, i in enumerate(first) if i in by_feature.constant)
    return AffineMap(by_feature.offset[first], by_feature.scale[first], constant)


def stack_regressors(segments: Sequence[Segment]) -> Array:
    """Return the measured regressors (n, p) of all segments, one after the other."""
    return np.concatenate([segment.regressors for segment in segments])


def find_copies(folds: Sequence[Fold]) -> list[int]:
    """Return the folds, counted from 0, whose output is repeated in the samples around them.

    A fold that repeats other samples cannot show how well a model predicts new samples. Let d be
    the first n changes of the output in the longest part of the fold, at most half as many as the
    longest segment around it has samples. It is compared with every stretch e of n changes in the
    segments around it::

        c = d'e / (|d| |e|)

    The fold is a copy if the largest c is at least `MIN_COPY_CORRELATION`, and this is unlikely to
    be chance. With the autocorrelation rho of d at all lags, m is the number of independent samples
    among n (Bartlett), and one of N stretches of noise is as similar with at most the probability::

        N (1 - c^2)^((m - 1) / 2),   m = n / sum rho^2
    """
    copies = []
    for number, fold in enumerate(folds):
        changes = np.diff(max((part.values for part in fold.parts), key=len))
        longest = max((len(segment.values) for segment in fold.rest), default=0)
        changes = changes[: longest // 2]
        correlation, n_stretches = _correlate_with_stretches(changes, fold.rest)
        if correlation >= MIN_COPY_CORRELATION:
            chance = _chance_of_correlation(correlation, changes, n_stretches)
            if chance <= MAX_CHANCE_PROBABILITY:
                copies.append(number)
    return copies


def _correlate_with_stretches(changes: Array, segments: Sequence[Segment]) -> tuple[float, int]:
    """Return the largest correlation of changes (n,) with a stretch, and the number of stretches.

    Stretches are all n consecutive changes of the output in the segments.
    """
    from scipy.signal import correlate  # takes most of a second to import

    n = len(changes)
    energy = float(changes @ changes)
    largest = 0.0
    n_stretches = 0
    if not energy > 0:
        return largest, n_stretches
    for segment in segments:
        others = np.diff(segment.values)
        if len(others) < n:
            continue
        sums = np.concatenate([[0.0], np.cumsum(others**2)])
        # Without the lower bound, rounding errors of a constant stretch could correlate.
        others_energy = np.maximum(sums[n:] - sums[:-n], MIN_COPY_CORRELATION**2 * energy)
        products = correlate(others, changes, "valid")
        correlations = products / np.sqrt(energy * others_energy)
        largest = max(largest, float(np.max(correlations)))
        n_stretches += len(others_energy)
    return largest, n_stretches


def _chance_of_correlation(correlation: float, changes: Array, n_stretches: int) -> float:
    """Return an upper bound of the probability that a stretch correlates as much by chance."""
    from scipy.signal import correlate  # takes most of a second to import

    autocorrelation = correlate(changes, changes) / float(changes @ changes)
    n_independent = len(changes) / float(np.sum(autocorrelation**2))
    unexplained = max(1.0 - correlation**2, 0.0)
    return float(n_stretches * unexplained ** ((n_independent - 1.0) / 2.0))


def folds_of(segments: Sequence[Segment], n: int, n_blocks: int = 1) -> list[Fold]:
    """Cut all segments, one after the other, into n folds of equal lengths.

    Each fold consists of `n_blocks` blocks of equal lengths, spread evenly over the samples: the
    samples around several short blocks cover more of the same region than those around a long one.
    A cut may go through a segment.

    Raises
    ------
    ValueError
        If there are fewer than 2 folds, or fewer samples than blocks.
    """
    total = n_samples(segments)
    if n < 2 or n * n_blocks > total:
        raise UserError(
            f"cross-validation: expected from 2 to {total // n_blocks} folds of {total} samples, "
            f"got {n}; change folds"
        )
    folds = []
    blocks = list(pairwise(np.linspace(0, total, n * n_blocks + 1).astype(int).tolist()))
    for number in range(n):
        parts = []
        rest = []
        start = 0  # sample, counted over all segments, with which the segment starts
        for segment in segments:
            length = len(segment.values)
            position = 0
            for first, last in blocks[number::n]:
                low = min(max(first - start, 0), length)
                high = min(max(last - start, 0), length)
                rest.append(segment.part(position, low)._replace(transient=0))
                parts.append(segment.part(low, high))
                position = high
            rest.append(segment.part(position, length)._replace(transient=0))
            start += length
        folds.append(Fold(_without_empty(parts), _without_empty(rest)))
    return folds


def find_beyond(segment: Segment, others: Sequence[Segment]) -> NDArray[np.bool_]:
    """Mark the samples (n,) of a segment whose measured output is far beyond those of others.

    They are beyond the range of the others by more than `MAX_BEYOND_OTHERS` of it.
    """
    known = np.concatenate([np.empty(0), *(other.values for other in others)])
    known = known[np.isfinite(known)]
    if not len(known):
        return np.zeros(len(segment.values), dtype=bool)
    low = known.min()
    high = known.max()
    margin = MAX_BEYOND_OTHERS * (high - low)
    is_beyond = (segment.values < low - margin) | (segment.values > high + margin)
    return np.asarray(is_beyond & segment.measured)


def learn_beyond(fold: Fold) -> Fold:
    """Return a fold whose samples lie within the range of those around it, as far as possible.

    Beyond the samples around a fold a nonlinear model can only extrapolate. If outputs of the fold
    go beyond their range by more than `MAX_BEYOND_OTHERS` of it (a start-up does), the samples from
    the first of them to the last one are not held out, but belong to those around the fold. Once at
    a start-up, a simulation depends on it for long; so what is held out begins after it. If less
    than `MIN_FRACTION_WITHIN` of the fold remained, it stays as it is.
    """
    parts = []
    beyond = []
    for part in fold.parts:
        (rows,) = np.nonzero(find_beyond(part, fold.rest))
        if not len(rows):
            parts.append(part)
            continue
        first = int(rows[0])
        last = int(rows[-1]) + 1
        parts += [part.part(0, first), part.part(last, len(part.values))]
        beyond.append(part.part(first, last)._replace(transient=0))
    if n_samples(parts) < MIN_FRACTION_WITHIN * n_samples(fold.parts):
        return fold
    return Fold(_without_empty(parts), (*beyond, *fold.rest))


def _without_empty(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Leave out segments without samples."""
    return tuple(segment for segment in segments if len(segment.values))
