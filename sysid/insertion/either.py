"""Insert where the model is unsure or wrong."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion, checked_threshold


def _formula(error, variance, parameters):  # type: ignore[no-untyped-def]
    return variance > parameters[0] or abs(error) >= parameters[1]


@dataclass(frozen=True)
class EitherThreshold(Insertion):
    """Insert if the variance exceeds its threshold (strictly) or the absolute error reaches its own."""

    variance_threshold: float  # target unit^2
    error_threshold: float  # target unit

    formula = staticmethod(_formula)

    def __post_init__(self) -> None:
        checked_threshold(self, "variance_threshold")
        checked_threshold(self, "error_threshold")

    def parameters(self) -> np.ndarray:
        """``(variance_threshold, error_threshold)``."""
        return np.array([self.variance_threshold, self.error_threshold], dtype=float)
