"""Excitations of a given shape: none, steps, staircase, chirps."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulators.excitation.role import (
    Excitation,
    check_below_nyquist,
    count_samples,
    find_first_sample,
    is_pair,
)
from simulators.settings import (
    MAX_SIGNAL_SAMPLES,
    Array,
    check_ascending,
    check_flag,
    check_not_negative,
    check_positive,
    check_whole,
    list_given,
    refuse,
)


@dataclass(frozen=True)
class NoExcitation(Excitation):
    """The input stays at the operating point: ``v_k = 0``.

    Examples
    --------
    >>> NoExcitation(offset=2.0).signal(3, 0.1, np.random.default_rng(0))
    array([2., 2., 2.])
    """

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return zeros (n,)."""
        return np.zeros(n_samples)


@dataclass(frozen=True)
class Steps(Excitation):
    """Levels that begin at given times; each lasts until the next one.

    ::

        v_k = 0 for t_k < time_1,   v_k = level_i for time_i <= t_k < time_{i+1}

    A step between two samples takes effect at the later one. Steps after the end of a record have
    no effect: a longer signal begins with the shorter one.

    Parameters
    ----------
    steps : sequence of (float, float)
        Times [s], ascending from 0 or later, with the level from then on about the offset [unit of
        the input].

    Raises
    ------
    ValueError
        On construction: if there is no step, a step is no pair of finite numbers or the times do
        not ascend. On use: if two steps fall on one sample, so that the first would vanish.

    Examples
    --------
    >>> Steps([[0.2, 3.0], [0.4, -1.0]]).signal(6, 0.1, np.random.default_rng(0))
    array([ 0.,  0.,  3.,  3., -1., -1.])
    """

    steps: Sequence[Sequence[float]] = ((0.0, 1.0),)  # [time in s, level in the unit of the input]

    def __post_init__(self) -> None:
        super().__post_init__()
        are_pairs = isinstance(self.steps, Sequence) and all(map(is_pair, self.steps))
        times = [time for time, _ in self.steps] if are_pairs else []
        are_ascending = all(earlier < later for earlier, later in pairwise(times))
        if not times or times[0] < 0 or not are_ascending:
            raise refuse(
                self,
                "steps",
                "pairs [time in s, level], at least one, with ascending times from 0 on",
            )
        steps = tuple((float(time), float(level)) for time, level in self.steps)
        object.__setattr__(self, "steps", steps)

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return v (n,) [unit of the input]; equation in the class."""
        first_samples = np.array([find_first_sample(time, dt) for time, _ in self.steps])
        distances = np.diff(first_samples)
        if np.any(distances == 0):
            i = int(np.argmin(distances))
            earlier, _ = self.steps[i]
            later, _ = self.steps[i + 1]
            raise refuse(
                self,
                "steps",
                f"at most one step per sample of dt={dt:.9g} s, "
                f"not those at {earlier:.9g} and {later:.9g} s",
            )
        levels = np.array([0.0] + [level for _, level in self.steps])
        n_begun = np.searchsorted(first_samples, np.arange(n_samples), side="right")
        return levels[n_begun]


@dataclass(frozen=True)
class Staircase(Excitation):
    """Equidistant levels, each held for the same time.

    The response shows the static curve of a system, and its hysteresis.

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
        Whether the stairs lead down again; the highest level occurs once in both cases.
    hold : float, optional
        Time at every level [s], a whole number of samples; a longer signal then begins with the
        shorter one. None: all levels get the same number of samples, and the last one those that
        are left over.

    Raises
    ------
    ValueError
        On construction: if `low` is not below `high`, there are fewer than two levels, `down` is no
        bool or the hold is not positive. On use: if the hold is no whole number of samples, or
        without one the record has fewer samples than stairs.

    Examples
    --------
    >>> Staircase(low=0.0, high=2.0, levels=3, hold=0.2).signal(11, 0.1, np.random.default_rng(0))
    array([0., 0., 1., 1., 2., 2., 1., 1., 0., 0., 0.])
    """

    low: float = -1.0  # unit of the input
    high: float = 1.0  # unit of the input
    levels: int = 5  # number of levels, both ends included
    down: bool = True  # whether the stairs lead down again after the highest level
    hold: float | None = None  # s; None: the record is divided equally

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ascending(self, "low", "high")
        check_whole(self, "levels", 2, MAX_SIGNAL_SAMPLES)
        check_flag(self, "down")
        check_positive(self, *list_given(self, "hold"))

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return v (n,) [unit of the input]; equation in the class."""
        up = np.linspace(self.low, self.high, self.levels)
        stairs = np.concatenate([up, up[-2::-1]]) if self.down else up
        held = n_samples // len(stairs) if self.hold is None else count_samples(self, "hold", dt)
        if held < 1:
            raise refuse(
                self,
                "levels",
                f"a record of at least {len(stairs)} samples, one per stair, "
                f"got {n_samples}, or a hold",
            )
        stair = np.arange(n_samples) // min(held, n_samples)
        return stairs[np.minimum(stair, len(stairs) - 1)]


@dataclass(frozen=True)
class Chirp(Excitation):
    """Swept sine; a subclass defines how the phase grows.

    ::

        v_k = amplitude sin(phi(t)),   t = (k mod D) dt,   phi(0) = 0,   phi'(t) = 2 pi f(t)
        f(0) = f_start,   f(T) = f_end,   T = D dt

    Parameters
    ----------
    f_start, f_end : float, optional
        Frequency at the start and at the end of a sweep [Hz], ascending or not; None: 1/T, and half
        of the Nyquist frequency, 1/(4 dt).
    amplitude : float
        Amplitude about the offset [unit of the input].
    duration : float, optional
        Duration T of a sweep [s], a whole number of samples; sweeps then repeat, and a longer
        signal begins with the shorter one. None: one sweep over the record.

    Raises
    ------
    ValueError
        On construction: if a frequency is negative or the amplitude or the duration is not
        positive. On use: if a frequency reaches the Nyquist frequency or the duration is no whole
        number of samples.
    """

    f_start: float | None = None  # Hz; None: one cycle in a sweep
    f_end: float | None = None  # Hz; None: half of the Nyquist frequency
    amplitude: float = 1.0  # unit of the input
    duration: float | None = None  # s; None: the whole record

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, *list_given(self, "f_start", "f_end"))
        check_positive(self, "amplitude", *list_given(self, "duration"))

    @abstractmethod
    def phase(self, time: Array, duration: float, f_start: float, f_end: float) -> Array:
        """Return phi [rad] at times (n,) [s] of a sweep with the duration T [s].

        The frequencies are in Hz.
        """

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return v (n,) [unit of the input]; equation in the class."""
        f_start, f_end = self.frequencies(n_samples, dt)
        D = self.period_samples(n_samples, dt)
        if D > MAX_SIGNAL_SAMPLES:
            expected = f"at most {MAX_SIGNAL_SAMPLES} samples of dt={dt:.9g} s"
            raise refuse(self, "duration", expected)
        time = dt * np.arange(D, dtype=np.float64)
        sweep = self.amplitude * np.sin(self.phase(time, D * dt, f_start, f_end))
        return np.resize(sweep, n_samples)

    def frequencies(self, n_samples: int, dt: float) -> tuple[float, float]:
        """Return the frequencies [Hz] at the start and at the end of a sweep.

        Raises
        ------
        ValueError
            If one reaches the Nyquist frequency.
        """
        T = self.period_samples(n_samples, dt) * dt
        f_start = 1 / T if self.f_start is None else self.f_start
        f_end = 0.25 / dt if self.f_end is None else self.f_end
        check_below_nyquist(self, "f_start", f_start, dt)
        check_below_nyquist(self, "f_end", f_end, dt)
        return f_start, f_end

    def period_samples(self, n_samples: int, dt: float | None = None) -> int:
        """Return the number of samples D of a sweep; see `Excitation.period_samples`."""
        if self.duration is None:
            return n_samples
        return count_samples(self, "duration", dt)


@dataclass(frozen=True)
class LinearChirp(Chirp):
    """Sine whose frequency grows linearly; settings and errors as in `Chirp`.

    ::

        f(t)   = f_start + (f_end - f_start) t / T
        phi(t) = 2 pi (f_start t + (f_end - f_start) t^2 / (2 T))

    Its power is about flat between the two frequencies.
    """

    def phase(self, time: Array, duration: float, f_start: float, f_end: float) -> Array:
        """Return phi [rad]; equation in the class, arguments as in `Chirp.phase`."""
        return 2 * np.pi * (f_start * time + (f_end - f_start) * time**2 / (2 * duration))


@dataclass(frozen=True)
class LogarithmicChirp(Chirp):
    """Sine whose frequency grows exponentially; settings and errors as in `Chirp`.

    ::

        f(t)   = f_start r^(t / T),   r = f_end / f_start
        phi(t) = 2 pi f_start T (r^(t / T) - 1) / ln(r)

    Its power falls with 1/f: equal power per octave. Both frequencies must be positive and differ.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, *list_given(self, "f_start", "f_end"))
        if self.f_start is not None and self.f_start == self.f_end:
            raise refuse(
                self,
                "f_end",
                f"a frequency other than f_start={self.f_start!r} "
                "(for a sine of one frequency take a linear chirp)",
            )

    def phase(self, time: Array, duration: float, f_start: float, f_end: float) -> Array:
        """Return phi [rad]; equation in the class, arguments as in `Chirp.phase`.

        Raises
        ------
        ValueError
            If both frequencies are equal.
        """
        if f_start == f_end:
            raise refuse(
                self,
                "f_end",
                f"another frequency than f_start, {f_start:.9g} Hz for a sweep of {duration:.9g} s",
            )
        rate = math.log(f_end / f_start)
        return 2 * np.pi * f_start * duration * np.expm1(rate * time / duration) / rate
