"""One heated thermal zone with wall and radiator."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_finite, check_not_negative, check_positive
from simulators.system import Signal, System, parameter


@dataclass(frozen=True)
class Building(System):
    """Thermal zone, wall and hot-water radiator.

    ::

        Cz Tz' = (Tw - Tz)/Rz + (Tr - Tz)/Rr + Cz w1
        Cw Tw' = (Tz - Tw)/Rz + (Ta - Tw)/Rw + Cw w2
        Cr Tr' = (Tz - Tr)/Rr + cw m (Ts - Tr) + Cr w3

    with the ambient temperature Ta and the hot-water flow m as inputs and Tz as output. The noise
    w_i ~ N(0, std^2) is a temperature rate, held over a sample. The heat that the water brings in,
    cw m (Ts - Tr), makes the system bilinear; it needs about 30 substeps in 900 s to be accurate.

    Raises
    ------
    ValueError
        If a capacity, resistance, the heat capacity of water, `dt` or `substeps` is not positive, a
        standard deviation is negative or a temperature is not finite.

    Notes
    -----
    Equations: Wietzke and Graichen, section 6. They give no R, no C and no initial state: the
    defaults are calibrated, not published.
    """

    states: ClassVar = (
        Signal("zone", "degC", "temperature of the zone"),
        Signal("wall", "degC", "temperature of the wall"),
        Signal("radiator", "degC", "temperature of the radiator"),
    )
    inputs: ClassVar = (
        Signal("ambient_temperature", "degC", "temperature of the outside air"),
        Signal("mass_flow", "kg/s", "hot-water flow through the radiator"),
    )
    outputs: ClassVar = (Signal("zone_temperature", "degC", "measured temperature of the zone"),)
    noises: ClassVar = (
        Signal("zone_noise", "K/s", "process noise on the rate of the zone temperature"),
        Signal("wall_noise", "K/s", "process noise on the rate of the wall temperature"),
        Signal(
            "radiator_noise",
            "K/s",
            "process noise on the rate of the radiator temperature",
        ),
    )

    dt: float = parameter(900.0, "s")
    substeps: int = parameter(30, meaning="Runge-Kutta steps per sample")
    zone_capacity: float = parameter(2e6, "J/K", symbol="Cz")
    wall_capacity: float = parameter(4e7, "J/K", symbol="Cw")
    radiator_capacity: float = parameter(2e5, "J/K", symbol="Cr")
    zone_resistance: float = parameter(0.002, "K/W", symbol="Rz", meaning="zone to wall")
    wall_resistance: float = parameter(0.005, "K/W", symbol="Rw", meaning="wall to ambient")
    radiator_resistance: float = parameter(0.002, "K/W", symbol="Rr", meaning="radiator to zone")
    water_heat_capacity: float = parameter(4180.0, "J/(kg K)", symbol="cw")
    supply_temperature: float = parameter(60.0, "degC", symbol="Ts")
    zone_noise_std: float = parameter(5e-5, "K/s")
    wall_noise_std: float = parameter(5e-5, "K/s")
    radiator_noise_std: float = parameter(5e-5, "K/s")
    initial_zone: float = parameter(20.0, "degC")
    initial_wall: float = parameter(15.0, "degC")
    initial_radiator: float = parameter(30.0, "degC")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            self,
            "zone_capacity",
            "wall_capacity",
            "radiator_capacity",
            "water_heat_capacity",
        )
        check_positive(self, "zone_resistance", "wall_resistance", "radiator_resistance")
        check_not_negative(self, "zone_noise_std", "wall_noise_std", "radiator_noise_std")
        check_finite(
            self,
            "supply_temperature",
            "initial_zone",
            "initial_wall",
            "initial_radiator",
        )

    @staticmethod
    def drift(
        time: float,
        state: Array,
        input: Array,
        noise: Array,
        parameters: Array,
        derivative: Array,
    ) -> None:
        """Write the rates [K/s] of zone, wall and radiator; equations in the class."""
        Tz = state[0]
        Tw = state[1]
        Tr = state[2]
        Ta = input[0]
        m = input[1]
        per_Cz = parameters[0]
        per_Cw = parameters[1]
        per_Cr = parameters[2]
        Gz = parameters[3]
        Gw = parameters[4]
        Gr = parameters[5]
        cw = parameters[6]
        Ts = parameters[7]
        from_wall = Gz * (Tw - Tz)
        from_radiator = Gr * (Tr - Tz)
        derivative[0] = per_Cz * (from_wall + from_radiator) + noise[0]
        derivative[1] = per_Cw * (Gw * (Ta - Tw) - from_wall) + noise[1]
        derivative[2] = per_Cr * (cw * m * (Ts - Tr) - from_radiator) + noise[2]

    def parameters(self) -> Array:
        """Return 1/Cz, 1/Cw, 1/Cr [K/J], 1/Rz, 1/Rw, 1/Rr [W/K], cw [J/(kg K)], Ts [degC].

        The drift multiplies by the inverses, which is faster than a division.
        """
        return np.array(
            [
                1.0 / self.zone_capacity,
                1.0 / self.wall_capacity,
                1.0 / self.radiator_capacity,
                1.0 / self.zone_resistance,
                1.0 / self.wall_resistance,
                1.0 / self.radiator_resistance,
                self.water_heat_capacity,
                self.supply_temperature,
            ]
        )

    def initial_state(self) -> Array:
        """Return the temperatures of zone, wall and radiator at time zero [degC]."""
        return np.array([self.initial_zone, self.initial_wall, self.initial_radiator])

    def input_limits(self) -> tuple[Array, Array]:
        """Return the limits of ambient temperature [degC] and flow [kg/s].

        The temperature is above absolute zero, and water flows in one direction only.
        """
        return np.array([-273.15, 0.0]), np.array([np.inf, np.inf])

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx [1/s] and df/du; see `System.jacobian`."""
        per_Cz, per_Cw, per_Cr, Gz, Gw, Gr, cw, Ts = self.parameters()
        zone = per_Cz * np.array([-(Gz + Gr), Gz, Gr])
        wall = per_Cw * np.array([Gz, -(Gz + Gw), 0.0])
        radiator = per_Cr * np.array([Gr, 0.0, -(Gr + cw * input[1])])
        B = np.array([[0.0, 0.0], [per_Cw * Gw, 0.0], [0.0, per_Cr * cw * (Ts - state[2])]])
        return np.array([zone, wall, radiator]), B

    def noise_std(self) -> Array:
        """Return the standard deviations of the three noise channels [K/s]."""
        return np.array([self.zone_noise_std, self.wall_noise_std, self.radiator_noise_std])

    def output(self, state: Array) -> Array:
        """Return the temperature of the zone [degC]."""
        return state[..., :1]
