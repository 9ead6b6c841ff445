"""A flow heater: an electric element heats a wall, which heats the oil that flows through."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_finite, check_not_negative, check_positive, check_whole
from simulators.system import Signal, System, parameter

#: largest delay of the heat [samples]
MAX_HEAT_DELAY = 100_000


@dataclass(frozen=True)
class Heater(System):
    """Heated wall, and oil that flows along it, whose temperature is measured.

    ::

        Cw w' = p q (1 - s q) - G (w - x)
        Cx x' = G (w - x) - c F (x - Tin),     y = x

    with the temperatures w of the wall and x of the oil, the heat q in percent and the flow F. The
    heat acts late: q is the command of `heat_delay` samples before; at first it is that of the
    first sample. The element gives less power for each percent as it gets hot (s), and the flow
    multiplies the temperature, so that gain and time constants depend on the operating point. There
    is no process noise.

    Raises
    ------
    ValueError
        If a capacity, the conductance, p, c, `dt` or `substeps` is not positive, s is negative, the
        delay is no whole number of samples of at least 0, or another field is not finite.

    Notes
    -----
    Divided by the capacities, the defaults are::

        w' = (0.09 q (1 - 0.003 q) + 0.35 (x - w)) / 4
        x' = (0.02 F (15 - x) + 1.05 (w - x)) / 6

    The first line is multiplied by three here, so that the wall loses the heat that the oil gains.
    The numbers are made up: 18.9 kW at full heat, and oil that takes up 1.2 kJ per litre and
    kelvin.
    """

    states: ClassVar = (
        Signal("wall", "degC", "temperature of the wall"),
        Signal("oil", "degC", "temperature of the oil"),
    )
    inputs: ClassVar = (
        Signal("heat", "%", "command of the heating element, which acts late"),
        Signal("flow", "l/min", "flow of the oil"),
    )
    outputs: ClassVar = (Signal("temperature", "degC", "measured temperature of the oil"),)

    dt: float = parameter(0.5, "s")
    substeps: int = parameter(4, meaning="Runge-Kutta steps per sample")
    heat_delay: int = parameter(7, "samples", meaning="delay of the heat")
    power: float = parameter(0.27, "kW/%", symbol="p", meaning="power of the element at low heat")
    saturation: float = parameter(
        0.003, "1/%", symbol="s", meaning="loss of power of the hot element"
    )
    conductance: float = parameter(1.05, "kW/K", symbol="G", meaning="wall to oil")
    wall_capacity: float = parameter(12.0, "kJ/K", symbol="Cw")
    oil_capacity: float = parameter(6.0, "kJ/K", symbol="Cx")
    flow_capacity: float = parameter(
        0.02, "kW/K per l/min", symbol="c", meaning="heat that the flow carries away"
    )
    inlet_temperature: float = parameter(15.0, "degC", symbol="Tin")
    initial_wall: float = parameter(40.0, "degC")
    initial_oil: float = parameter(40.0, "degC")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "heat_delay", 0, MAX_HEAT_DELAY)
        check_positive(self, "power", "conductance", "wall_capacity", "oil_capacity")
        check_positive(self, "flow_capacity")
        check_not_negative(self, "saturation")
        check_finite(self, "inlet_temperature", "initial_wall", "initial_oil")

    @staticmethod
    def drift(
        time: float,
        state: Array,
        input: Array,
        noise: Array,
        parameters: Array,
        derivative: Array,
    ) -> None:
        """Write the rates [K/s] of wall and oil; equations in the class."""
        w = state[0]
        x = state[1]
        q = input[0]
        p = parameters[0]
        s = parameters[1]
        G = parameters[2]
        Cw = parameters[3]
        Cx = parameters[4]
        c = parameters[5]
        inlet = parameters[6]
        derivative[0] = (p * q * (1.0 - s * q) - G * (w - x)) / Cw
        derivative[1] = (G * (w - x) - c * input[1] * (x - inlet)) / Cx

    def parameters(self) -> Array:
        """Return p [kW/%], s [1/%], G [kW/K], Cw, Cx [kJ/K], c [kW/K per l/min], Tin [degC]."""
        return np.array(
            [
                self.power,
                self.saturation,
                self.conductance,
                self.wall_capacity,
                self.oil_capacity,
                self.flow_capacity,
                self.inlet_temperature,
            ]
        )

    def initial_state(self) -> Array:
        """Return the temperatures of wall and oil at time zero [degC]."""
        return np.array([self.initial_wall, self.initial_oil])

    def input_limits(self) -> tuple[Array, Array]:
        """Return the limits of heat [%] and flow [l/min]: neither is negative."""
        return np.zeros(2), np.array([100.0, np.inf])

    def input_delays(self) -> tuple[int, ...]:
        """Return the delays of heat and flow [samples]."""
        return int(self.heat_delay), 0

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and df/du; see `System.jacobian`."""
        p, s, G, Cw, Cx, c, inlet = self.parameters()
        q, flow = input
        A = np.array([[-G / Cw, G / Cw], [G / Cx, -(G + c * flow) / Cx]])
        B = np.array([[p * (1.0 - 2.0 * s * q) / Cw, 0.0], [0.0, -c * (state[1] - inlet) / Cx]])
        return A, B

    def output(self, state: Array) -> Array:
        """Return the temperature of the oil [degC]."""
        return state[..., 1:]
