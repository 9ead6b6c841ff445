"""Windows of the records that are simulated in one go, and the standard units that they are in."""

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
    n_samples,
    scale_signals,
    stack_regressors,
)
from sysid.simulation_error.candidate import Candidate, Refusal

FEWEST = 8  # windows that a record is cut into, whatever its length


def windows_of(segments: Sequence[Segment], length: int, transient: int) -> list[Segment]:
    """Cut windows that score every sample once, but for the transient at the start of each segment.

    Windows of about `length` samples begin `transient` samples before the first that they score.
    Where all samples make fewer than `FEWEST` of them, both are shortened alike; a short segment
    scores at least four fifths of itself.
    """
    share = transient / length
    longest = min(length, max(1, int(n_samples(segments) / (share + FEWEST * (1.0 - share)))))
    windows = []
    for segment in segments:
        n = len(segment.values)
        shortest = int(share * longest)
        skipped = min(shortest, n // 5)
        n_windows = max(1, round((n - skipped) / max(1, longest - shortest)))
        cuts = np.linspace(skipped, n, n_windows + 1).astype(int).tolist()
        parts = [
            segment.part(first - skipped, last) for first, last in pairwise(cuts) if last > first
        ]
        windows += [part._replace(transient=skipped) for part in parts]
    return windows


def hold_back(
    windows: Sequence[Segment], most: int, every: int
) -> tuple[list[Segment], list[Segment]]:
    """Split at most so many windows, evenly among all: those to fit, and every n-th, which judges
    the fit.

    The last window judges, if there are fewer than n.
    """
    chosen = spread_evenly(windows, most)
    held = list(range(len(chosen)))[every - 1 :: every] or [len(chosen) - 1]
    return [one for i, one in enumerate(chosen) if i not in held], [chosen[i] for i in held]


def spread_evenly(windows: Sequence[Segment], most: int) -> list[Segment]:
    """At most so many windows, evenly among all."""
    return [
        windows[i]
        for i in np.linspace(0, len(windows) - 1, min(most, len(windows))).round().astype(int)
    ]


class StandardUnits:
    """One offset and one scale for all lags of a signal, so that a lagged output stays a lagged
    output.

    A signal that does not vary in the segments keeps its own scale.

    Raises
    ------
    Refusal
        An output that does not vary.
    """

    def __init__(self, segments: Sequence[Segment], narx: Narx) -> None:
        self.narx, self.output = (
            narx,
            AffineMap.fit(np.concatenate([segment.values for segment in segments])[:, None]),
        )
        if self.output.constant:
            raise Refusal(
                f"{narx.target!r} does not vary in the samples; there is nothing to explain"
            )
        features, (columns, _) = (
            scale_signals(narx, stack_regressors(segments)),
            feedback_of(narx),
        )
        offset = features.offset.copy()
        scale = features.scale.copy()
        offset[columns], scale[columns] = self.output.offset[0], self.output.scale[0]
        self.features = AffineMap(offset, scale)

    def standardise(self, segment: Segment) -> Segment:
        """Convert samples to standard units."""
        values, past = (
            self.output.transform(y[:, None])[:, 0] for y in (segment.values, segment.past)
        )
        return Segment(
            np.ascontiguousarray(self.features.transform(segment.regressors)),
            values,
            past,
        )

    def restore(self, candidate: Candidate, limits: Limits) -> Candidate:
        """Turn a candidate of standardised samples into one of the samples themselves, with limits
        in their unit.

        Its coordinates and points stay. A change of the output is scaled, a value is shifted too.
        """
        unit = float(self.output.scale[0])
        shift = float(self.output.offset[0])
        features = self.features
        linear = candidate.mean
        scaling = candidate.scaling
        slopes = unit * np.asarray(linear.coefficients) / features.scale
        intercept = unit * linear.intercept - float(slopes @ features.offset)
        if self.narx.predict is Target.value:
            intercept += shift
        low, high = (shift + unit * bound for bound in candidate.bounds)
        return replace(
            candidate,
            scaling=AffineMap.of_matrix(
                features.offset + features.scale * scaling.offset,
                scaling.linear_part() / features.scale,
            ),
            mean=LinearMean(slopes.tolist(), intercept),
            kernel=replace(candidate.kernel, variance=candidate.kernel.variance * unit**2),
            weights=candidate.weights / unit,
            limits=limits,
            bounds=(low, high),
        )
