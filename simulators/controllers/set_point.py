"""The role of a set-point over time."""

from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simulators.controllers.controller import Reference

Time = TypeVar("Time", float, NDArray[np.float64])


class SetPoint(ABC):
    """What a controlled output should be, in the unit of that output."""

    @abstractmethod
    def set_point(self, time: Time) -> Time:
        """Return the set-point r at `time` [s], a float or an array."""

    def references(self, time: NDArray[np.float64]) -> dict[str, Reference]:
        """Return what to store with a simulation: the set-point over times (n,) [s]."""
        values = np.broadcast_to(np.asarray(self.set_point(time), dtype=np.float64), np.shape(time))
        return {"set_point": Reference(values, "set-point of the controller")}
