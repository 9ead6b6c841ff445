"""Insert everything."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion


@dataclass(frozen=True)
class Always(Insertion):
    """Every sample asks for a place."""

    @staticmethod
    def formula(error: float, variance: float, parameters: np.ndarray) -> bool:
        """Yes."""
        return True

    def parameters(self) -> np.ndarray:
        """None are needed."""
        return np.zeros(1)
