"""Windows of the records that are simulated in one go, and the standard units of their signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from sysid.gp.affine_map import AffineMap
from sysid.gp.mean import LinearMean
from sysid.narx.lags import Narx, Target
from sysid.simulation.segments import (
    Limits,
    Segment,
    feedback_of,
    find_beyond,
    n_samples,
    scale_signals,
    stack_regressors,
)
from sysid.simulation_error.candidate import Candidate, Refusal

# Records are cut into at least this many windows; short ones get shorter windows.
MIN_WINDOWS = 8


def windows_of(segments: Sequence[Segment], length: int, transient: int) -> list[Segment]:
    """Cut windows that score every sample once, except the transient at the start of each segment.

    A window has about `length` samples and begins `transient` samples before the first one that it
    scores. If the records hold fewer than `MIN_WINDOWS` such windows, both lengths are reduced by
    the same factor. The transient of a segment is at most a fifth of it.
    """
    share = transient / length
    lengths_per_record = share + MIN_WINDOWS * (1.0 - share)
    longest = min(length, max(1, int(n_samples(segments) / lengths_per_record)))
    overlap = int(share * longest)
    windows = []
    for segment in segments:
        n = len(segment.values)
        skipped = min(overlap, n // 5)
        n_windows = max(1, round((n - skipped) / max(1, longest - overlap)))
        cuts = np.linspace(skipped, n, n_windows + 1).astype(int).tolist()
        for first, last in pairwise(cuts):
            if last > first:
                window = segment.part(first - skipped, last)
                windows.append(window._replace(transient=skipped))
    return windows


def hold_back(
    windows: Sequence[Segment], max_windows: int, every: int
) -> tuple[list[Segment], list[Segment]]:
    """Split at most `max_windows` evenly spread windows into those to fit and those held back.

    Every `every`-th window is held back to score the fit; of fewer windows, the last one. A window
    far beyond the others (a start-up) is fitted, as nothing can be learned about it from them: the
    one before or after it is held back instead.
    """
    chosen = spread_evenly(windows, max_windows)
    held = list(range(every - 1, len(chosen), every))
    if not held:
        held = [len(chosen) - 1]
    for position, number in enumerate(held):
        for instead in (number, number - 1, number + 1):
            is_free = instead == number or instead not in held
            if is_free and 0 <= instead < len(chosen) and not _is_beyond_others(chosen, instead):
                held[position] = instead
                break
    kept_windows = [window for i, window in enumerate(chosen) if i not in held]
    held_windows = [chosen[i] for i in held]
    return kept_windows, held_windows


def _is_beyond_others(windows: Sequence[Segment], number: int) -> bool:
    """Return whether an output of a window is far beyond those of the other windows."""
    others = [*windows[:number], *windows[number + 1 :]]
    return bool(find_beyond(windows[number], others).any())


def spread_evenly(windows: Sequence[Segment], max_windows: int) -> list[Segment]:
    """Return at most `max_windows` windows, spread evenly over all."""
    n = min(max_windows, len(windows))
    positions = np.linspace(0, len(windows) - 1, n).round().astype(int)
    return [windows[i] for i in positions]


class StandardUnits:
    """Units in which every signal has mean 0 and variance 1.

    All lags of a signal share one offset and one scale, so that a lagged output stays a lagged
    output. A signal that does not vary in the segments keeps its own scale.

    Raises
    ------
    Refusal
        The output does not vary.
    """

    def __init__(self, segments: Sequence[Segment], narx: Narx) -> None:
        outputs = np.concatenate([segment.values for segment in segments])
        self.narx = narx
        self.output = AffineMap.fit(outputs[:, None])
        if self.output.constant:
            raise Refusal(
                f"{narx.target!r} does not vary in the samples; there is nothing to explain"
            )
        features = scale_signals(narx, stack_regressors(segments))
        columns, _ = feedback_of(narx)
        offset = features.offset.copy()
        scale = features.scale.copy()
        offset[columns] = self.output.offset[0]
        scale[columns] = self.output.scale[0]
        self.features = AffineMap(offset, scale)

    def standardise(self, segment: Segment) -> Segment:
        """Return a segment in standard units."""
        regressors = np.ascontiguousarray(self.features.transform(segment.regressors))
        values = self.output.transform(segment.values[:, None])[:, 0]
        past = self.output.transform(segment.past[:, None])[:, 0]
        return Segment(regressors, values, past, is_measured=segment.is_measured)

    def restore(self, candidate: Candidate, limits: Limits) -> Candidate:
        """Return a candidate for the units of the samples, from one for standard units.

        Its coordinates and points do not change. A target that is a change of the output is
        scaled; a target that is its value is shifted too. The limits are in the unit of the
        samples.
        """
        unit = float(self.output.scale[0])
        shift = float(self.output.offset[0])
        features = self.features
        linear = candidate.mean
        slopes = unit * np.asarray(linear.coefficients) / features.scale
        intercept = unit * linear.intercept - float(slopes @ features.offset)
        if self.narx.predict is Target.value:
            intercept += shift
        scaling = AffineMap.of_matrix(
            features.offset + features.scale * candidate.scaling.offset,
            candidate.scaling.linear_part() / features.scale,
        )
        low, high = candidate.bounds
        return replace(
            candidate,
            scaling=scaling,
            mean=LinearMean(slopes.tolist(), intercept),
            kernel=replace(candidate.kernel, variance=candidate.kernel.variance * unit**2),
            weights=candidate.weights / unit,
            limits=limits,
            bounds=(shift + unit * low, shift + unit * high),
        )
