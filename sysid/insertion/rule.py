"""The role of an insertion rule."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf
from typing import Any, ClassVar

import numpy as np

from sysid.formula import DECISION, address


class Insertion(ABC):
    """Decides from its own prediction whether a sample is worth a place (algorithm 2, section 3.1).

    `formula` has the signature ``(error, variance, parameters) -> bool`` with the prediction error ``y - mu`` in the
    unit of the target, the latent predictive variance in that unit squared, and the vector that
    `parameters` returns.
    """

    formula: ClassVar[Callable[..., bool]]

    @abstractmethod
    def parameters(self) -> np.ndarray:
        """Numbers that `formula` receives."""

    @property
    def address(self) -> Any:
        """`formula` as compiled loops call it."""
        return address(type(self).formula, DECISION)


def checked_threshold(owner: object, name: str) -> float:
    """Threshold of a rule as a float; at least 0 and below infinity."""
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise ValueError(
            f"{type(owner).__name__}: {name} must be a number of at least 0 in the target's own units, got {value!r}"
        )
    return float(value)
