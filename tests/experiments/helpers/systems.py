"""A system that is not one of the package, as a user would write it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators import Signal, System, parameter


@dataclass(frozen=True)
class TwoRooms(System):
    """Two rooms with a wall between them; one is heated."""

    # The docstring has no block of equations: a card then shows the source of the drift.
    states: ClassVar = (
        Signal("warm", "degC", "heated room"),
        Signal("cold", "degC", "other room"),
    )
    inputs: ClassVar = (Signal("heat", "K/h", "heating"),)
    outputs: ClassVar = (
        Signal("warm_air", "degC", "air in the heated room"),
        Signal("cold_air", "degC", "other air"),
    )
    noises: ClassVar = (Signal("draught", "K/h", "draught"),)

    dt: float = 0.5  # h, taken as s
    substeps: int = 2
    exchange: float = parameter(0.3, "between the rooms | 1/h")
    loss: float = 0.2
    noise: float = parameter(0.05, "K/h")

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        flow = parameters[0] * (state[0] - state[1])
        derivative[0] = input[0] - flow - parameters[1] * state[0] + noise[0]
        derivative[1] = flow - parameters[1] * state[1]

    def parameters(self):
        return np.array([self.exchange, self.loss])

    def initial_state(self):
        return np.array([1.0, 0.5])

    def noise_std(self):
        return np.array([self.noise])

    def output(self, state):
        return state[..., :2]
