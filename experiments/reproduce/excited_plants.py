"""Simulated plants for the comparison of excitations."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import simulators
import sysid
from sysid.arrays import Array

#: Weather of the building, and its seed: it is the same in all runs.
WEATHER = simulators.SyntheticWeather()
WEATHER_SEED = 0


@dataclass(frozen=True)
class ForcedVanDerPol(simulators.VanDerPol):
    """Van der Pol oscillator that a force u drives: ``x'' = mu (1 - x^2) x' - x + u + w``."""

    inputs: ClassVar = (simulators.Signal("force", "m/s^2", "force per mass"),)

    @staticmethod
    def drift(
        time: float,
        state: Array,
        input: Array,
        noise: Array,
        parameters: Array,
        derivative: Array,
    ) -> None:
        """Write velocity and acceleration; equation in the class."""
        x = state[0]
        v = state[1]
        mu = parameters[0]
        derivative[0] = v
        derivative[1] = mu * (1.0 - x * x) * v - x + input[0] + noise[0]

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and df/du; see `System.jacobian`."""
        A, _ = super().jacobian(state, input)
        return A, np.array([[0.0], [1.0]])


@dataclass(frozen=True)
class ExcitedPlant:
    """A plant of which one input is excited.

    The outputs are measured exactly. The process noise acts like about 1 % of the range of the
    input, or is that of the plant's own studies.
    """

    title: str
    unit: str  # of the output
    system: simulators.System
    input: str  # that is excited
    low: float  # unit of the input
    high: float
    bandwidth: float  # highest frequency of the fixed excitations [periods per sample]
    #: unit of the output; fixed excitations go beyond them in some per cent of the samples
    output_limits: tuple[float, float]
    narx: sysid.Narx
    weather_input: str | None = None  # input that the weather drives

    @property
    def inputs(self) -> list[str]:
        """Names of all inputs."""
        return [signal.name for signal in self.system.inputs]

    @property
    def output(self) -> str:
        """Name of the output."""
        return self.system.outputs[0].name

    @property
    def half_range(self) -> float:
        """Half of the range of the excited input, in its unit."""
        return 0.5 * (self.high - self.low)

    def with_weather(self, signal: Array, first_sample: int) -> Array:
        """Return all inputs (n, n_u) for a signal (n,) of the excited one, in the plant's order."""
        inputs = np.zeros((len(signal), len(self.inputs)))
        inputs[:, self.inputs.index(self.input)] = signal
        if self.weather_input is not None:
            time = self.system.dt * (first_sample + np.arange(len(signal)))
            temperature = WEATHER.temperature(time, seed=WEATHER_SEED)
            inputs[:, self.inputs.index(self.weather_input)] = temperature
        return inputs


#: Plants by the name of their task.
EXCITED_PLANTS: dict[str, ExcitedPlant] = {
    "excited_van_der_pol": ExcitedPlant(
        title="Van der Pol, forced",
        unit="m",
        system=ForcedVanDerPol(acceleration_noise_std=0.1),
        input="force",
        low=-4.0,
        high=4.0,
        bandwidth=0.1,
        output_limits=(-2.4, 2.4),
        narx=sysid.Narx({"displacement": 2}, {"force": 2}, predict=sysid.Target.change),
    ),
    "excited_bouc_wen": ExcitedPlant(
        title="Bouc-Wen, simulated",
        unit="m",
        system=simulators.BoucWen(force_noise_std=1.0),
        input="force",
        low=-100.0,
        high=100.0,
        bandwidth=0.2,
        output_limits=(-1.5e-3, 1.5e-3),
        narx=sysid.Narx({"displacement": 3}, {"force": 3}, predict=sysid.Target.change),
    ),
    "excited_tanks": ExcitedPlant(
        title="Tanks, simulated",
        unit="V",
        system=simulators.CascadedTanks(upper_noise_std=0.004, lower_noise_std=0.004),
        input="pump_voltage",
        low=1.0,
        high=5.0,
        bandwidth=0.1,
        output_limits=(3.0, 9.5),
        narx=sysid.Narx({"level": 2}, {"pump_voltage": 2}, predict=sysid.Target.change),
    ),
    "excited_building": ExcitedPlant(
        title="Building, open loop",
        unit="K",
        system=simulators.Building(),
        input="mass_flow",
        low=0.0,
        high=0.1,
        bandwidth=0.1,
        output_limits=(18.0, 33.0),
        narx=sysid.Narx(
            {"zone_temperature": 3},
            {"ambient_temperature": 3, "mass_flow": 3},
            predict=sysid.Target.change,
        ),
        weather_input="ambient_temperature",
    ),
    "excited_silverbox": ExcitedPlant(
        title="Silverbox, simulated",
        unit="V",
        system=simulators.Silverbox(input_noise_std=1e-3),
        input="input_voltage",
        low=-0.1,
        high=0.1,
        bandwidth=0.3,
        output_limits=(-0.25, 0.25),
        narx=sysid.Narx({"output_voltage": 2}, {"input_voltage": [0, 1, 2]}),
    ),
    "excited_wiener_hammerstein": ExcitedPlant(
        title="Wiener-Hammerstein, simulated",
        unit="V",
        system=simulators.WienerHammerstein(input_noise_std=0.02),
        input="voltage",
        low=-2.0,
        high=2.0,
        bandwidth=0.2,
        output_limits=(-2.2, 2.2),
        narx=sysid.Narx({"response": 5}, {"voltage": 5}, predict=sysid.Target.change),
    ),
    "excited_servo": ExcitedPlant(
        title="Servo, open loop",
        unit="m",
        system=simulators.Servo(force_noise_std=0.08),
        input="force",
        low=-8.0,
        high=8.0,
        bandwidth=0.05,
        output_limits=(-1.0, 1.0),
        narx=sysid.Narx({"displacement": 2}, {"force": 2}, predict=sysid.Target.change),
    ),
}
