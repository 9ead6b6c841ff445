"""Insert where the model is wrong."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion, checked_threshold


def _formula(error, variance, parameters):  # type: ignore[no-untyped-def]
    return abs(error) >= parameters[0]


@dataclass(frozen=True)
class ErrorThreshold(Insertion):
    """Insert if the absolute prediction error is at least the threshold."""

    error_threshold: float  # target unit

    formula = staticmethod(_formula)

    def __post_init__(self) -> None:
        checked_threshold(self, "error_threshold")

    def parameters(self) -> np.ndarray:
        """``(error_threshold,)``."""
        return np.array([self.error_threshold], dtype=float)
