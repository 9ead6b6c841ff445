"""Insert where the model is unsure or wrong."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion, check_threshold


@dataclass(frozen=True)
class EitherThreshold(Insertion):
    """Insert if the variance exceeds its threshold (strictly) or the absolute error reaches its own."""

    variance_threshold: float  # target unit^2
    error_threshold: float  # target unit

    @staticmethod
    def formula(error: float, variance: float, parameters: np.ndarray) -> bool:
        """``variance > variance_threshold or |error| >= error_threshold``."""
        return variance > parameters[0] or abs(error) >= parameters[1]

    def __post_init__(self) -> None:
        check_threshold(self, "variance_threshold")
        check_threshold(self, "error_threshold")

    def parameters(self) -> np.ndarray:
        """``(variance_threshold, error_threshold)``."""
        return np.array([self.variance_threshold, self.error_threshold], dtype=float)
