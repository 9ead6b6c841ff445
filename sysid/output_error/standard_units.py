"""Samples in units in which every signal has mean 0 and variance 1, and candidates back in their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid.mean import LinearMean
from sysid.narx import Narx, Target
from sysid.output_error.candidate import Candidate
from sysid.output_error.segment import Segment, feedback_of
from sysid.projection import Projection
from sysid.scaling import Scaling

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StandardUnits:
    """One offset and one scale for all lags of a signal, so that a lagged output stays a lagged output."""

    narx: Narx
    features: Scaling
    output: Scaling  # of the one target output

    @classmethod
    def of(cls, segments: Sequence[Segment], narx: Narx) -> StandardUnits:
        """Units of these samples; a signal that does not vary keeps its own scale.

        Raises
        ------
        ValueError
            An output that does not vary.
        """
        output = Scaling.fit(np.concatenate([segment.values for segment in segments])[:, None])
        if output.constant:
            raise ValueError(f"output error: {narx.target!r} does not vary in the samples; there is nothing to explain")
        signals = [name for name, _ in narx.features]
        newest = [signals.index(name) for name in signals]  # the smallest lag of each feature's signal
        spread = Scaling.fit(np.concatenate([segment.regressors for segment in segments]))
        offset, scale = spread.offset[newest], spread.scale[newest]
        columns, _ = feedback_of(narx)
        offset[columns], scale[columns] = output.offset[0], output.scale[0]
        return cls(narx, Scaling(offset, scale), output)

    def standardised(self, segment: Segment) -> Segment:
        """The same samples in standard units."""
        values, past = (self.output.transform(y[:, None])[:, 0] for y in (segment.values, segment.past))
        return Segment(np.ascontiguousarray(self.features.transform(segment.regressors)), values, past)

    def standard_limits(self, limits: tuple[float, float]) -> tuple[float, float]:
        """Limits of the output in standard units."""
        low, high = (np.asarray(limits) - self.output.offset[0]) / self.output.scale[0]
        return float(low), float(high)

    def in_own_units(self, candidate: Candidate, limits: tuple[float, float]) -> Candidate:
        """The candidate of standardised samples as one of the samples themselves, with limits in their unit.

        Its coordinates and points stay. A change of the output is scaled, a value shifted too.
        """
        unit, shift = float(self.output.scale[0]), float(self.output.offset[0])
        features, linear, scaling = self.features, candidate.mean, candidate.scaling
        slopes = unit * np.asarray(linear.coefficients) / features.scale
        intercept = unit * linear.intercept - float(slopes @ features.offset)
        if self.narx.predict is Target.value:
            intercept += shift
        low, high = (shift + unit * bound for bound in candidate.bounds)
        return Candidate(
            self.narx,
            Projection(features.offset + features.scale * scaling.offset, scaling.linear_part() / features.scale),
            LinearMean(slopes.tolist(), intercept),
            replace(candidate.kernel, variance=candidate.kernel.variance * unit**2),
            candidate.points,
            candidate.weights / unit,
            limits,
            (low, high),
        )
