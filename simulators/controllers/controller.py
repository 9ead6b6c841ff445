"""The role of a sampled controller."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulators.settings import check_positive

Memory = tuple[float, ...]


class Reference(NamedTuple):
    """What a controller aims at over time."""

    values: NDArray[np.float64]  # (n,) in the unit of the output
    description: str


@dataclass(frozen=True)
class Controller(ABC):
    """Sampled feedback law with explicit state.

    A controller is a frozen dataclass of settings. It holds no state itself: `control` takes the state
    and returns the next one.

    Parameters
    ----------
    dt : float
        Sampling interval [s]; must equal the system's.

    Raises
    ------
    ValueError
        If `dt` is not positive.
    """

    dt: float  # s

    def __post_init__(self) -> None:
        check_positive(self, "dt")

    @property
    @abstractmethod
    def outputs_read(self) -> tuple[str, ...]:
        """Names of the system outputs that `control` receives, in this order."""

    @property
    @abstractmethod
    def inputs_driven(self) -> tuple[str, ...]:
        """Names of the system inputs that `control` returns, in this order."""

    def references(self, time: NDArray[np.float64]) -> dict[str, Reference]:
        """Return what the controller aims at over times (n,) [s], by name; by default nothing.

        They are stored with a simulation, in the unit of the first output that the controller reads.
        """
        return {}

    @abstractmethod
    def initial_state(self) -> Memory:
        """Return the state of the controller at time zero."""

    @abstractmethod
    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return the inputs to hold from `time` [s] on, and the next state.

        Parameters
        ----------
        time : float
            Time of the measurement [s].
        output : sequence of float
            Values of `outputs_read`.
        state : tuple of float
            State of the controller.

        Returns
        -------
        tuple of (tuple of float, tuple of float)
            Values of `inputs_driven`, next state.
        """
