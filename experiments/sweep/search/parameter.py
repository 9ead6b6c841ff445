"""One parameter of a search: what it may be, and how the command line writes it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

DIGITS = 6  # of a number out of an interval: of its span, on a logarithmic scale of the number


@dataclass(frozen=True)
class Parameter(ABC):
    """What a sampler chooses, for one key."""

    key: str  # as the command line writes it, a plus included

    @abstractmethod
    def distribution(self) -> "BaseDistribution":
        """What Optuna chooses from."""

    @abstractmethod
    def value(self, chosen: Any) -> Any:
        """Value of the key for what Optuna has chosen; its text is what the command line takes."""

    @abstractmethod
    def extremes(self) -> Sequence[Any]:
        """Values to check before anything is run."""

    @property
    @abstractmethod
    def n_values(self) -> float:
        """How many values there are; infinite of an interval."""


@dataclass(frozen=True)
class Interval(Parameter):
    """Any number, or whole number, from low to high, both included."""

    low: float
    high: float
    log: bool = False  # whether ratios count, not differences
    whole: bool = False

    def distribution(self) -> "BaseDistribution":
        """Numbers."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def value(self, chosen: Any) -> Any:
        """The number in a few digits, so that a command line repeats it exactly.

        >>> Interval("x", 0.03, 0.5).value(0.123456789), Interval("x", 1e-4, 1.0, log=True).value(0.000123456789)
        (0.123457, 0.000123457)
        """
        if self.whole:
            return int(chosen)
        scale = abs(chosen) if self.log else self.high - self.low
        return min(max(round(chosen, DIGITS - 1 - math.floor(math.log10(scale))), self.low), self.high) + 0.0

    def extremes(self) -> Sequence[Any]:
        """Both ends."""
        return [int(self.low), int(self.high)] if self.whole else [self.low, self.high]

    @property
    def n_values(self) -> float:
        """Those of an interval of whole numbers are counted."""
        return self.high - self.low + 1 if self.whole else math.inf


@dataclass(frozen=True)
class Steps(Parameter):
    """Numbers of a range, in whose order neighbours are alike."""

    values: Sequence[float]

    def distribution(self) -> "BaseDistribution":
        """Places in the range."""
        from optuna.distributions import IntDistribution

        return IntDistribution(0, len(self.values) - 1)

    def value(self, chosen: Any) -> Any:
        """The number at a place."""
        return self.values[chosen]

    def extremes(self) -> Sequence[Any]:
        """First and last."""
        return [self.values[0], self.values[-1]]

    @property
    def n_values(self) -> float:
        """How many numbers."""
        return len(self.values)


@dataclass(frozen=True)
class Choices(Parameter):
    """Values without an order, as the command line writes them."""

    values: tuple[str, ...]

    def distribution(self) -> "BaseDistribution":
        """Categories."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def value(self, chosen: Any) -> Any:
        """The choice."""
        return chosen

    def extremes(self) -> Sequence[Any]:
        """All."""
        return self.values

    @property
    def n_values(self) -> float:
        """How many choices."""
        return len(self.values)
