"""Insert where the model is wrong."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion, check_threshold


@dataclass(frozen=True)
class ErrorThreshold(Insertion):
    """Insert if the absolute prediction error is at least the threshold."""

    error_threshold: float  # target unit

    @staticmethod
    def formula(error: float, variance: float, parameters: np.ndarray) -> bool:
        """``|error| >= error_threshold``."""
        return abs(error) >= parameters[0]

    def __post_init__(self) -> None:
        check_threshold(self, "error_threshold")

    def parameters(self) -> np.ndarray:
        """``(error_threshold,)``."""
        return np.array([self.error_threshold], dtype=float)
