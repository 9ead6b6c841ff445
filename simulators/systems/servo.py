"""A servo drive with friction."""

from dataclasses import dataclass
from math import cosh, tanh
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_finite, check_not_negative, check_positive
from simulators.system import Signal, System, parameter


@dataclass(frozen=True)
class Servo(System):
    """Slide that a motor moves against viscous and Coulomb friction; its position is an integrator.

    ::

        q' = v
        m v' = u - d v - c tanh(v / s) + w

    with the force u as input and the position q as output. Below the speed s the Coulomb friction c
    is viscous: the slide creeps instead of sticking. The noise w ~ N(0, force_noise_std^2) is a
    force, held over a sample.

    Raises
    ------
    ValueError
        If mass, creep speed, `dt` or `substeps` is not positive, a friction or the standard
        deviation is negative, or an initial value is not finite.

    Notes
    -----
    H. Olsson et al., Friction models and friction compensation, European Journal of Control 4
    (1998), 176-195. The position has no rest of its own: excite it in a position loop
    (``controller=position_loop``).
    """

    states: ClassVar = (
        Signal("position", "m", "position of the slide"),
        Signal("velocity", "m/s", "velocity of the slide"),
    )
    inputs: ClassVar = (Signal("force", "N", "force of the motor"),)
    outputs: ClassVar = (Signal("displacement", "m", "measured position of the slide"),)
    noises: ClassVar = (Signal("force_noise", "N", "process noise on the force"),)

    dt: float = parameter(0.01, "s")
    substeps: int = parameter(10, meaning="Runge-Kutta steps per sample")
    mass: float = parameter(1.0, "kg", symbol="m")
    viscous_friction: float = parameter(4.0, "N s/m", symbol="d")
    coulomb_friction: float = parameter(1.5, "N", symbol="c")
    creep_speed: float = parameter(0.02, "m/s", symbol="s")
    force_noise_std: float = parameter(0.0, "N")
    initial_position: float = parameter(0.0, "m")
    initial_velocity: float = parameter(0.0, "m/s")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mass", "creep_speed")
        check_not_negative(self, "viscous_friction", "coulomb_friction", "force_noise_std")
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
        m = parameters[0]
        d = parameters[1]
        c = parameters[2]
        s = parameters[3]
        v = state[1]
        derivative[0] = v
        derivative[1] = (input[0] + noise[0] - d * v - c * tanh(v / s)) / m

    def parameters(self) -> Array:
        """Return m [kg], d [N s/m], c [N], s [m/s]."""
        return np.array([self.mass, self.viscous_friction, self.coulomb_friction, self.creep_speed])

    def initial_state(self) -> Array:
        """Return position [m] and velocity [m/s] at time zero."""
        return np.array([self.initial_position, self.initial_velocity])

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and df/du; see `System.jacobian`."""
        m, d, c, s = self.parameters()
        slope = c / s / cosh(min(abs(float(state[1])) / s, 300.0)) ** 2
        A = np.array([[0.0, 1.0], [0.0, -(d + slope) / m]])
        B = np.array([[0.0], [1.0 / m]])
        return A, B

    def noise_std(self) -> Array:
        """Return the standard deviation of the force noise [N]."""
        return np.array([self.force_noise_std])

    def output(self, state: Array) -> Array:
        """Return the position of the slide [m]."""
        return state[..., :1]
