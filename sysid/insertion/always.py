"""Insert everything."""

from dataclasses import dataclass

import numpy as np

from sysid.insertion.rule import Insertion


def _formula(error, variance, parameters):  # type: ignore[no-untyped-def]
    return True


@dataclass(frozen=True)
class Always(Insertion):
    """Every sample asks for a place."""

    formula = staticmethod(_formula)

    def parameters(self) -> np.ndarray:
        """None are needed."""
        return np.zeros(1)
