"""Amplitude-modulated pseudo-random binary signal."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.excitation.duration import WHOLE, first_sample
from simulators.excitation.excitation import Excitation
from simulators.settings import check_ascending, check_positive, refuse

SPREAD = 20  # longest hold over the shortest one, if not given


@dataclass(frozen=True)
class APRBS(Excitation):
    """Random levels, each held for a random time.

    ::

        v_k = level_i,   level_i ~ U(low, high),   held for a number of samples uniform over those with
        shortest_hold <= samples dt <= longest_hold

    It covers the operating range and the dynamics of a nonlinear system, where two levels would not. The
    shortest hold decides how much of the range the output reaches: near the dominant time constant is usual.
    A longer signal begins with the shorter one.

    Parameters
    ----------
    low, high : float
        Range of the levels about the offset [unit of the input].
    shortest_hold : float, optional
        Shortest time at a level [s], a sample or more; None: one sample.
    longest_hold : float, optional
        Longest time at a level [s]; None: 20 times the shortest.

    Raises
    ------
    ValueError
        On construction: if `low` is not below `high` or the holds are not positive and in order. On use: if the
        shortest hold is shorter than a sample, or no whole number of samples lies between the holds.

    Notes
    -----
    O. Nelles, Nonlinear System Identification (Springer, 2001), section 17.7; R. Isermann and M. Muenchhof,
    Identification of Dynamic Systems (Springer, 2011). There the holds are the run lengths of a PRBS, half of
    which last one clock; here they are uniform between two limits, so that every level lasts long enough.
    """

    low: float = -1.0  # unit of the input
    high: float = 1.0  # unit of the input
    shortest_hold: float | None = None  # s; None: one sample
    longest_hold: float | None = None  # s; None: 20 times the shortest

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascending(self, "low", "high")
        given = [name for name in ("shortest_hold", "longest_hold") if getattr(self, name) is not None]
        check_positive(self, *given)
        if self.shortest_hold is not None and self.longest_hold is not None and self.longest_hold < self.shortest_hold:
            raise refuse(self, "longest_hold", f"a time of shortest_hold={self.shortest_hold!r} or more")

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return v (n,) [unit of the input]; equation in the class."""
        shortest, longest = self.hold_samples(dt)
        draws = generator.random((-(-n_samples // shortest), 2))  # row by row, so that longer signals agree
        holds = shortest + np.floor(draws[:, 0] * (longest - shortest + 1)).astype(np.int64)
        levels = self.low + draws[:, 1] * (self.high - self.low)
        needed = int(np.searchsorted(np.cumsum(holds), n_samples)) + 1
        return np.repeat(levels[:needed], holds[:needed])[:n_samples]

    def hold_samples(self, dt: float) -> tuple[int, int]:
        """Return the fewest and the most samples at a level, for a sampling interval [s].

        Raises
        ------
        ValueError
            If the shortest hold is shorter than a sample, or no whole number of samples lies between the holds.
        """
        shortest = dt if self.shortest_hold is None else self.shortest_hold
        longest = SPREAD * shortest if self.longest_hold is None else self.longest_hold
        if shortest < dt * (1.0 - WHOLE):
            raise ValueError(
                f"APRBS(shortest_hold={self.shortest_hold!r}): expected a time of at least one sampling interval dt="
                f"{dt:.9g} s, got {shortest / dt:.6g} samples; set shortest_hold to {dt:.9g} s or more"
            )
        limits = first_sample(shortest, dt), math.floor(longest / dt + WHOLE)
        if limits[0] > limits[1]:
            raise ValueError(
                f"APRBS(shortest_hold={self.shortest_hold!r}, longest_hold={self.longest_hold!r}): expected a whole "
                f"number of samples of dt={dt:.9g} s from {shortest:.9g} to {longest:.9g} s, got none; set "
                f"longest_hold to {limits[0] * dt:.9g} s or more"
            )
        return limits
