"""One measured number, and what it is held against."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Target(NamedTuple):
    """Bound that a number should keep."""

    bound: float
    at_least: bool = False  # else at most

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"

    def met(self, value: float) -> bool:
        """Whether the number keeps the bound."""
        compare: Callable[[float, float], bool] = operator.ge if self.at_least else operator.le
        return bool(compare(value, self.bound))


@dataclass(frozen=True)
class Row:
    """Line of the table of results."""

    benchmark: str
    case: str
    value: float  # of the fastest round, where times are measured
    unit: str
    median: float | None = None  # over the rounds
    target: Target | None = None
    details: dict[str, float] = field(default_factory=dict)  # what the number is made of

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts for JSON."""
        target = self.target
        return {
            "benchmark": self.benchmark,
            "case": self.case,
            "value": float(self.value),
            "unit": self.unit,
            "median": None if self.median is None else float(self.median),
            "target": None if target is None else str(target),
            "met": None if target is None else target.met(self.value),
            "details": {name: float(value) for name, value in self.details.items()},
        }


def microseconds(benchmark: str, case: str, seconds: np.ndarray, target: Target | None, **details: float) -> Row:
    """Row of the time per operation of every round [s]."""
    micro = 1e6 * seconds
    return Row(benchmark, case, micro.min(), "us", float(np.median(micro)), target, details)


def ratio(
    benchmark: str,
    case: str,
    seconds: dict[str, np.ndarray],
    over: tuple[str, str],
    unit: str,
    target: Target | None,
    **details: float,
) -> Row:
    """Row of the ratio of two competitors: minimum over minimum, and the median of the rounds' ratios."""
    first, second = (seconds[name] for name in over)
    times = {f"{name} us": 1e6 * seconds[name].min() for name in over}
    median = float(np.median(first / second))
    return Row(benchmark, case, first.min() / second.min(), unit, median, target, times | details)
