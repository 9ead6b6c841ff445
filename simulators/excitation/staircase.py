"""Staircase up, and down again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.duration import whole_samples
from simulators.excitation.excitation import Excitation
from simulators.settings import check_ascending, check_positive, check_whole, refuse


@dataclass(frozen=True)
class Staircase(Excitation):
    """Equidistant levels, each held for the same time: the static curve of a system, and its hysteresis.

    ::

        low, low + d, ..., high, high - d, ..., low,   d = (high - low) / (levels - 1)

    The last level lasts until the end of the record.

    Parameters
    ----------
    low, high : float
        First and highest level about the offset [unit of the input].
    levels : int
        Number of levels, both ends included.
    down : bool
        Whether the stairs lead down again; the highest level occurs once either way.
    hold : float, optional
        Time at every level [s], a whole number of samples; a longer signal then begins with the shorter one. None:
        the record is shared equally, the samples left over go to the last level.

    Raises
    ------
    ValueError
        On construction: if `low` is not below `high`, there are fewer than two levels, `down` is no bool or the hold
        is not positive. On use: if the hold is no whole number of samples, or without one the record has fewer
        samples than stairs.

    Examples
    --------
    >>> Staircase(low=0.0, high=2.0, levels=3, hold=0.2).signal(11, 0.1, np.random.default_rng(0))
    array([0., 0., 1., 1., 2., 2., 1., 1., 0., 0., 0.])
    """

    low: float = -1.0  # unit of the input
    high: float = 1.0  # unit of the input
    levels: int = 5  # number of levels, both ends included
    down: bool = True  # down again after the highest level
    hold: float | None = None  # s; None: the record shared equally

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascending(self, "low", "high")
        check_whole(self, "levels", 2)
        if not isinstance(self.down, bool):
            raise refuse(self, "down", "true or false")
        if self.hold is not None:
            check_positive(self, "hold")

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return v (n,) [unit of the input]; equation in the class."""
        up = np.linspace(self.low, self.high, self.levels)
        stairs = np.concatenate([up, up[-2::-1]]) if self.down else up
        held = n_samples // len(stairs) if self.hold is None else whole_samples(self, "hold", dt)
        if held < 1:
            raise ValueError(
                f"Staircase(levels={self.levels}, down={self.down}): expected a record of at least {len(stairs)} "
                f"samples, one per stair, got {n_samples}; lengthen the record, take fewer levels or set hold"
            )
        return stairs[np.minimum(np.arange(n_samples) // held, len(stairs) - 1)]
