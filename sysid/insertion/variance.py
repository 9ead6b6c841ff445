"""Insert where the model is unsure."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion, check_threshold


@dataclass(frozen=True)
class VarianceThreshold(Insertion):
    """Insert if the latent predictive variance exceeds the threshold (strictly)."""

    variance_threshold: float  # target unit^2

    @staticmethod
    def formula(error: float, variance: float, parameters: np.ndarray) -> bool:
        """``variance > variance_threshold``."""
        return variance > parameters[0]

    def __post_init__(self) -> None:
        check_threshold(self, "variance_threshold")

    def parameters(self) -> np.ndarray:
        """``(variance_threshold,)``."""
        return np.array([self.variance_threshold], dtype=float)
