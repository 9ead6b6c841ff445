"""The role of an insertion rule."""

from abc import ABC, abstractmethod
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from sysid.formula import DECISION, address


class Insertion(ABC):
    """Decides from its own prediction whether a sample is worth a place (algorithm 2, section 3.1)."""

    @staticmethod
    @abstractmethod
    def formula(error: float, variance: float, parameters: np.ndarray) -> bool:
        """Whether to insert.

        Parameters
        ----------
        error : float
            Prediction error ``y - mu``, unit of the target.
        variance : float
            Latent predictive variance, that unit squared.
        parameters : indexable
            What `parameters` returns.
        """

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Numbers that `formula` receives, at least one."""

    @property
    def address(self) -> Any:
        """`formula` as compiled loops call it."""
        return address(type(self).formula, DECISION)


def check_threshold(owner: object, name: str) -> None:
    """Refuse a threshold that is not a number of at least 0."""
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < inf:
        raise ValueError(
            f"{type(owner).__name__}: {name} must be a number of at least 0, in the target's own units, got {value!r}"
        )
