"""Pseudo-random binary and multilevel sequences."""

import math
from dataclasses import dataclass

import numpy as np

from simulators.excitation.role import (
    MAX_SAMPLE_NUMBER,
    WHOLE_SAMPLE_TOLERANCE,
    Excitation,
    count_samples,
    find_first_sample,
)
from simulators.settings import (
    Array,
    check_ascending,
    check_positive,
    check_whole,
    list_given,
    refuse,
)

# Range of the stages of a register whose feedback is known.
MIN_STAGES = 2
MAX_STAGES = 32

# Longest hold relative to the shortest one, if it is not given [-].
DEFAULT_HOLD_RATIO = 20


@dataclass(frozen=True)
class PRBS(Excitation):
    """Two levels that follow a shift register of n stages with linear feedback.

    ::

        v_k = amplitude (2 b_i - 1),   i = floor(k dt / clock),   b_i in {0, 1} with period 2^n - 1

    The feedback is a primitive polynomial: every non-zero content of the register occurs once per
    period. The autocorrelation over a period therefore has two values, amplitude^2 at zero and
    -amplitude^2 / (2^n - 1) at other multiples of the clock. The register starts at random. The
    power is about flat up to 0.44 / clock.

    With given stages a longer signal begins with the shorter one; with ``stages=None`` only if both
    need the same number of stages.

    Parameters
    ----------
    amplitude : float
        Distance of the levels from the offset [unit of the input].
    clock : float, optional
        Shortest time between two switches [s], a whole number of samples; None: one sample.
    stages : int, optional
        Stages n of the register, 2 to 32; None: the fewest whose period covers the record.

    Raises
    ------
    ValueError
        On construction: if the amplitude or the clock is not positive or the stages are out of
        range. On use: if the clock is shorter than a sample or no whole multiple of it, or no
        register covers the record.

    Notes
    -----
    L. Ljung, System Identification: Theory for the User (Prentice Hall, 1999), section 13.3.
    Registers of equal stages on several inputs give one sequence with random shifts: use different
    stages where that matters.

    Examples
    --------
    >>> PRBS(stages=3).signal(7, 0.1, np.random.default_rng(1))
    array([-1., -1.,  1.,  1.,  1., -1.,  1.])
    """

    amplitude: float = 1.0  # levels offset - amplitude and offset + amplitude, unit of the input
    clock: float | None = None  # s; None: one sample
    stages: int | None = None  # None: the fewest that cover the record

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "amplitude", *list_given(self, "clock"))
        if self.stages is not None:
            check_whole(self, "stages", MIN_STAGES, MAX_STAGES)

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return v (n,) [unit of the input]; equation in the class."""
        from scipy.signal import max_len_seq  # takes most of a second to import

        n = self._count_stages(n_samples, dt)
        held = min(self._count_clock(dt), n_samples)
        state = int(generator.integers(1, 2**n)) >> np.arange(n) & 1
        bits, _ = max_len_seq(n, state=state, length=math.ceil(n_samples / held))
        return np.repeat(self.amplitude * (2.0 * bits - 1.0), held)[:n_samples]

    def period_samples(self, n_samples: int, dt: float | None = None) -> int:
        """Return the period 2^n - 1 times the clock in samples; see `Excitation.period_samples`."""
        return (2 ** self._count_stages(n_samples, dt) - 1) * self._count_clock(dt)

    def _count_clock(self, dt: float | None) -> int:
        """Return the clock in samples."""
        return 1 if self.clock is None else count_samples(self, "clock", dt)

    def _count_stages(self, n_samples: int, dt: float | None) -> int:
        """Return the number of stages: the given one, or the smallest that covers the record."""
        if self.stages is not None:
            return self.stages
        n_clocks = math.ceil(n_samples / self._count_clock(dt))
        fewest = max(n_clocks.bit_length(), MIN_STAGES)
        if fewest > MAX_STAGES:
            expected = f"a record of fewer than 2^{MAX_STAGES} clocks, got {n_samples} samples"
            raise refuse(self, "stages", expected)
        return fewest


@dataclass(frozen=True)
class APRBS(Excitation):
    """Random levels, each held for a random time.

    ::

        v_k = level_i,   level_i ~ U(low, high)

    Each level is held for a number of samples that is uniform over those with
    ``shortest_hold <= samples dt <= longest_hold``. The signal covers the operating range and the
    dynamics of a nonlinear system, which two levels would not. The shortest hold decides how much
    of the range the output reaches: a usual value is near the dominant time constant. A longer
    signal begins with the shorter one.

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
        On construction: if `low` is not below `high` or the holds are not positive and in order. On
        use: if the shortest hold is shorter than a sample, or no whole number of samples lies
        between the holds.

    Notes
    -----
    O. Nelles, Nonlinear System Identification (Springer, 2001), section 17.7; R. Isermann and M.
    Muenchhof, Identification of Dynamic Systems (Springer, 2011). In these books the holds are the
    run lengths of a PRBS, half of which last one clock; here they are uniform between two limits,
    so that every level lasts long enough.
    """

    low: float = -1.0  # unit of the input
    high: float = 1.0  # unit of the input
    shortest_hold: float | None = None  # s; None: one sample
    longest_hold: float | None = None  # s; None: 20 times the shortest

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascending(self, "low", "high")
        check_positive(self, *list_given(self, "shortest_hold", "longest_hold"))
        shortest = self.shortest_hold
        longest = self.longest_hold
        if shortest is not None and longest is not None and longest < shortest:
            raise refuse(self, "longest_hold", f"a time of shortest_hold={shortest!r} or more")

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return v (n,) [unit of the input]; equation in the class."""
        shortest, longest = self.hold_samples(dt)
        n_levels = math.ceil(n_samples / shortest)
        # Hold and level are drawn together, so that a longer signal begins with the shorter one.
        draws = generator.random((n_levels, 2))
        added = np.floor(draws[:, 0] * (longest - shortest + 1))
        # A level is computed no further than to the end of the record.
        holds = min(shortest, n_samples) + np.minimum(added, n_samples).astype(np.int64)
        levels = self.low + draws[:, 1] * (self.high - self.low)
        n_needed = int(np.searchsorted(np.cumsum(holds), n_samples)) + 1
        return np.repeat(levels[:n_needed], holds[:n_needed])[:n_samples]

    def hold_samples(self, dt: float) -> tuple[int, int]:
        """Return the fewest and the most samples at a level, for a sampling time [s].

        Raises
        ------
        ValueError
            If the shortest hold is shorter than a sample, or no whole number of samples lies
            between the holds.
        """
        shortest = dt if self.shortest_hold is None else self.shortest_hold
        longest = DEFAULT_HOLD_RATIO * shortest if self.longest_hold is None else self.longest_hold
        if shortest < dt * (1.0 - WHOLE_SAMPLE_TOLERANCE):
            raise refuse(self, "shortest_hold", f"a time of at least one sample, dt={dt:.9g} s")
        fewest = find_first_sample(shortest, dt)
        most = math.floor(min(longest / dt, MAX_SAMPLE_NUMBER) + WHOLE_SAMPLE_TOLERANCE)
        if fewest > most:
            raise refuse(
                self,
                "longest_hold",
                f"{fewest * dt:.9g} s or more, the first whole number of samples "
                f"of dt={dt:.9g} s from shortest_hold on",
            )
        return fewest, most
