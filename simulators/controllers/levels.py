"""A set-point that steps through levels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulators.controllers.set_point import SetPoint, Time
from simulators.settings import check_positive, refuse


@dataclass(frozen=True)
class Levels(SetPoint):
    """Set-point that holds each of its levels for a time and then starts again; one level is a constant.

    ::

        r(t) = levels[i],   i = floor(t / hold) mod number of levels

    Parameters
    ----------
    levels : sequence of float
        Set-points, in the unit of the controlled output.
    hold : float
        Time on each level [s].

    Raises
    ------
    ValueError
        If there is no level, one is not finite or `hold` is not positive.

    Examples
    --------
    >>> Levels(levels=(4.0, 6.0), hold=100.0).set_point(np.array([0.0, 99.0, 100.0, 250.0]))
    array([4., 4., 6., 4.])
    """

    levels: Sequence[float] = (4.0, 6.0)  # unit of the output
    hold: float = 400.0  # s

    def __post_init__(self) -> None:
        check_positive(self, "hold")
        object.__setattr__(self, "levels", tuple(self.levels))
        if not self.levels or not np.all(np.isfinite(self.levels)):
            raise refuse(self, "levels", "at least one finite level")

    def set_point(self, time: Time) -> Time:
        """Return the level at `time` [s], a float or an array."""
        index = np.floor_divide(time, self.hold).astype(int) % len(self.levels)
        return np.asarray(self.levels, dtype=np.float64)[index]
