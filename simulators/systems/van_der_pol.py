"""The Van der Pol oscillator."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_finite, check_not_negative
from simulators.system import Signal, System, parameter


@dataclass(frozen=True)
class VanDerPol(System):
    """Self-excited oscillator with a stable limit cycle of amplitude 2.

    ::

        x'' = mu (1 - x^2) x' - x + w

    with the position x as output and no input. The noise w ~ N(0, acceleration_noise_std^2) is held
    over a sample. Time is dimensionless in the equation; one unit is taken as a second.

    Raises
    ------
    ValueError
        If `damping` or the standard deviation is negative, `dt` or `substeps` is not positive or an
        initial value is not finite.

    Notes
    -----
    B. van der Pol, On relaxation-oscillations, Philosophical Magazine 2 (1926), 978-992. Wietzke
    and Graichen, section 6, sample it every 0.1 s and state N(0, 0.1) for w: read as a variance,
    which with mu = 2 gives their error of a full Gaussian process.
    """

    states: ClassVar = (
        Signal("position", "m", "position of the oscillator"),
        Signal("velocity", "m/s", "velocity of the oscillator"),
    )
    inputs: ClassVar[tuple[Signal, ...]] = ()
    outputs: ClassVar = (Signal("displacement", "m", "measured position"),)
    noises: ClassVar = (Signal("acceleration_noise", "m/s^2", "process noise on the acceleration"),)

    dt: float = parameter(0.1, "s")
    substeps: int = parameter(10, meaning="Runge-Kutta steps per sample")
    damping: float = parameter(2.0, "1/s", symbol="mu")
    acceleration_noise_std: float = parameter(0.1**0.5, "m/s^2")
    initial_position: float = parameter(1.0, "m")
    initial_velocity: float = parameter(0.0, "m/s")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "damping", "acceleration_noise_std")
        check_finite(self, "initial_position", "initial_velocity")

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
        derivative[1] = mu * (1.0 - x * x) * v - x + noise[0]

    def parameters(self) -> Array:
        """Return mu [1/s]."""
        return np.array([self.damping])

    def initial_state(self) -> Array:
        """Return position [m] and velocity [m/s] at time zero."""
        return np.array([self.initial_position, self.initial_velocity])

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and the empty df/du; see `System.jacobian`."""
        x, v = state
        A = np.array(
            [
                [0.0, 1.0],
                [-2.0 * self.damping * x * v - 1.0, self.damping * (1.0 - x * x)],
            ]
        )
        return A, np.empty((2, 0))

    def noise_std(self) -> Array:
        """Return the standard deviation of the acceleration noise [m/s^2]."""
        return np.array([self.acceleration_noise_std])

    def output(self, state: Array) -> Array:
        """Return the position [m]."""
        return state[..., :1]
