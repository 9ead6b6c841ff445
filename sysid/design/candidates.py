"""Candidates for the next stretch of an input: their limits, and the classes that draw them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from sysid.arrays import Array, Indices, as_number, check_whole
from sysid.errors import UserError


@dataclass(frozen=True)
class InputLimits:
    """Limits of one input, which hold for every sample.

    Parameters
    ----------
    low, high : float
        Smallest and largest value [unit of the input].
    rate : float
        Largest change from one sample to the next [unit of the input].
    rms : float
        Largest root mean square of a stretch about the middle of the range [unit of the input]. A
        stretch of more power is shrunk towards the middle.

    Raises
    ------
    ValueError
        The limits contradict each other, or are not finite.
    """

    low: float
    high: float
    rate: float = inf
    rms: float = inf

    def __post_init__(self) -> None:
        low, high = as_number(self.low), as_number(self.high)
        if not (isfinite(low) and isfinite(high) and low < high):
            raise UserError(
                f"InputLimits: expected finite limits low < high, got {self.low!r} and "
                f"{self.high!r}"
            )
        if not as_number(self.rate) > 0:
            raise UserError(
                f"InputLimits: expected a rate above 0 per sample, got {self.rate!r}; leave it out "
                "if the input may jump"
            )
        if not as_number(self.rms) > 0:
            raise UserError(
                f"InputLimits: expected a root mean square above 0, got {self.rms!r}; leave it out "
                "if the power has no limit"
            )

    @classmethod
    def of(cls, name: str, values: Any) -> InputLimits:
        """Return the limits of an input from ``(low, high)`` or ``(low, high, rate)``."""
        if isinstance(values, InputLimits):
            return values
        is_list = isinstance(values, Sequence) and not isinstance(values, str)
        if not is_list or len(values) not in (2, 3):
            raise UserError(
                f"limits of {name!r}: expected (low, high) or (low, high, rate), got {values!r}"
            )
        try:
            return cls(*(float(value) for value in values))
        except (TypeError, ValueError) as error:
            raise UserError(f"limits of {name!r}: {error}") from None

    @property
    def middle(self) -> float:
        """Middle of the range [unit of the input]."""
        return 0.5 * (self.low + self.high)

    def stretch(self, unit: Array, previous: float) -> Array:
        """Return a stretch (n,) that keeps all limits, from one (n,) between 0 and 1.

        The input before its first sample is `previous`.
        """
        return self.keep(self.low + (self.high - self.low) * unit, previous)

    def keep(self, values: Array, previous: float) -> Array:
        """Return the values (n,) within all limits, the first one after the input `previous`."""
        deviation = values - self.middle
        rms = float(np.sqrt(np.mean(np.square(deviation))))
        if rms > self.rms:
            values = self.middle + (self.rms / rms) * deviation
        return self.clip(values, previous)

    def clip(self, values: Array, previous: float) -> Array:
        """Return the values (n,) within the limits, the first one after the input `previous`.

        Where the wanted value is too far away, the input moves towards it as fast as it may.
        """
        return clip_changes(values, self.low, self.high, self.rate, previous)


def check_ascending(name: str, values: Any) -> None:
    """Raise UserError unless the limits of an output are two numbers that ascend."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    if not is_list or len(values) != 2 or not as_number(values[0]) < as_number(values[1]):
        given = list(values) if is_list else values
        raise UserError(
            f"output_limits of {name!r}: expected [low, high] with low < high, got {given!r}"
        )


def clip_changes(
    values: Array,
    low: float | Array,
    high: float | Array,
    rate: float | Array,
    previous: float | Array,
) -> Array:
    """Return the values (n,) or (n, q) within limits, and within `rate` of the value before.

    The value before the first one is `previous`. Where a wanted value is too far away, the result
    moves towards it as fast as it may.
    """
    clipped = np.clip(values, low, high)
    if np.isinf(rate).all():
        return clipped
    present = previous
    for k, wanted in enumerate(clipped):
        present = np.clip(wanted, present - rate, present + rate)
        clipped[k] = present
    return clipped


class StretchClass(ABC):
    """Class of signals from which candidates for a stretch of one input are drawn."""

    @abstractmethod
    def draw(self, n_samples: int, generator: np.random.Generator) -> Array:
        """Return a stretch (n_samples,) between 0, the lower limit, and 1, the upper limit."""


@dataclass(frozen=True)
class RandomSteps(StretchClass):
    """Random levels, each held for a random number of samples.

    Parameters
    ----------
    shortest, longest : int
        Range of the number of samples for which a level is held.
    """

    shortest: int = 3
    longest: int = 25

    def __post_init__(self) -> None:
        _check_range(self)

    def draw(self, n_samples: int, generator: np.random.Generator) -> Array:
        lengths = _draw_lengths(n_samples, self.shortest, self.longest, generator)
        levels = generator.uniform(size=len(lengths))
        return np.repeat(levels, lengths)[:n_samples]


@dataclass(frozen=True)
class RandomSwitches(StretchClass):
    """The limits themselves, in turns, each held for a random number of samples.

    Parameters
    ----------
    shortest, longest : int
        Range of the number of samples for which a limit is held.
    """

    shortest: int = 1
    longest: int = 15

    def __post_init__(self) -> None:
        _check_range(self)

    def draw(self, n_samples: int, generator: np.random.Generator) -> Array:
        lengths = _draw_lengths(n_samples, self.shortest, self.longest, generator)
        first = generator.integers(2)
        levels = (first + np.arange(len(lengths))) % 2
        return np.repeat(levels.astype(np.float64), lengths)[:n_samples]


@dataclass(frozen=True)
class RandomRamps(StretchClass):
    """Straight lines between random levels, each of a random number of samples.

    Parameters
    ----------
    shortest, longest : int
        Range of the number of samples of a line.
    """

    shortest: int = 5
    longest: int = 40

    def __post_init__(self) -> None:
        _check_range(self)

    def draw(self, n_samples: int, generator: np.random.Generator) -> Array:
        lengths = _draw_lengths(n_samples, self.shortest, self.longest, generator)
        levels = generator.uniform(size=len(lengths) + 1)
        corners = np.concatenate([[0], np.cumsum(lengths)])
        return np.interp(np.arange(n_samples), corners, levels)


@dataclass(frozen=True)
class RandomWaves(StretchClass):
    """A sum of cosines with random phases, which spans a random part of the range.

    Their frequencies are random, from one period in the stretch to `highest`, uniform on a
    logarithmic scale.

    Parameters
    ----------
    n_waves : int
        Number of cosines.
    highest : float
        Largest frequency [periods per sample], at most 0.5.
    """

    n_waves: int = 4
    highest: float = 0.25

    def __post_init__(self) -> None:
        check_whole(self.n_waves, 1, "RandomWaves: n_waves")
        _check_frequency(self)

    def draw(self, n_samples: int, generator: np.random.Generator) -> Array:
        lowest = min(1.0 / n_samples, self.highest)
        exponents = generator.uniform(np.log(lowest), np.log(self.highest), self.n_waves)
        phases = generator.uniform(0.0, 2 * np.pi, self.n_waves)
        angles = 2 * np.pi * np.exp(exponents) * np.arange(n_samples)[:, None] + phases
        wave = np.cos(angles).sum(axis=1)
        spread = float(np.ptp(wave))
        unit = (wave - wave.min()) / spread if spread > 0 else np.zeros(n_samples)
        low, high = np.sort(generator.uniform(size=2))
        return low + (high - low) * unit


@dataclass(frozen=True)
class RandomNoise(StretchClass):
    """Gaussian noise of a random bandwidth about the middle of the range, clipped to it.

    It is a sum of the harmonics of twice the stretch up to a random frequency, with Gaussian
    amplitudes. The frequency is uniform on a logarithmic scale, from one period in the stretch to
    `highest`.

    Parameters
    ----------
    std : float
        Standard deviation before it is clipped, as a fraction of the range, at most 0.5.
    highest : float
        Largest frequency [periods per sample], at most 0.5.
    """

    std: float = 0.25
    highest: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < as_number(self.std) <= 0.5:
            raise UserError(
                f"RandomNoise: expected std above 0 and at most 0.5 of the range, got {self.std!r}"
            )
        _check_frequency(self)

    def draw(self, n_samples: int, generator: np.random.Generator) -> Array:
        lowest = min(1.0 / n_samples, self.highest)
        bandwidth = np.exp(generator.uniform(np.log(lowest), np.log(self.highest)))
        n_harmonics = max(1, int(2 * n_samples * bandwidth))
        angles = np.pi * np.arange(n_samples)[:, None] * np.arange(1, n_harmonics + 1) / n_samples
        cosines, sines = generator.standard_normal((2, n_harmonics))
        noise = np.cos(angles) @ cosines + np.sin(angles) @ sines
        return np.clip(0.5 + self.std * noise / np.sqrt(n_harmonics), 0.0, 1.0)


def _check_frequency(stretch_class: RandomWaves | RandomNoise) -> None:
    """Raise UserError unless the largest frequency can be sampled."""
    if not 0 < as_number(stretch_class.highest) <= 0.5:
        raise UserError(
            f"{type(stretch_class).__name__}: expected highest above 0 and at most 0.5 periods per "
            f"sample, got {stretch_class.highest!r}"
        )


def _check_range(stretch_class: RandomSteps | RandomSwitches | RandomRamps) -> None:
    """Raise UserError unless the numbers of samples are at least 1 and in order."""
    name = type(stretch_class).__name__
    check_whole(stretch_class.shortest, 1, f"{name}: shortest")
    check_whole(stretch_class.longest, 1, f"{name}: longest")
    if stretch_class.longest < stretch_class.shortest:
        raise UserError(
            f"{name}: expected shortest <= longest, got {stretch_class.shortest} and "
            f"{stretch_class.longest}"
        )


def _draw_lengths(
    n_samples: int, shortest: int, longest: int, generator: np.random.Generator
) -> Indices:
    """Return numbers of samples in the range whose sum is at least `n_samples`."""
    most = -(-n_samples // shortest)
    lengths = generator.integers(shortest, longest + 1, size=most)
    n_needed = int(np.searchsorted(np.cumsum(lengths), n_samples)) + 1
    return lengths[:n_needed]


#: Classes of the candidates by default, in turns.
STRETCH_CLASSES: tuple[StretchClass, ...] = (
    RandomSteps(),
    RandomNoise(),
    RandomWaves(),
    RandomSwitches(),
    RandomNoise(),
    RandomRamps(),
)
