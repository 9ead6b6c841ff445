"""Insert where the model is unsure."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion, checked_threshold


def _formula(error, variance, parameters):  # type: ignore[no-untyped-def]
    return variance > parameters[0]


@dataclass(frozen=True)
class VarianceThreshold(Insertion):
    """Insert if the latent predictive variance exceeds the threshold (strictly)."""

    variance_threshold: float  # target unit^2

    formula = staticmethod(_formula)

    def __post_init__(self) -> None:
        checked_threshold(self, "variance_threshold")

    def parameters(self) -> np.ndarray:
        """``(variance_threshold,)``."""
        return np.array([self.variance_threshold], dtype=float)
