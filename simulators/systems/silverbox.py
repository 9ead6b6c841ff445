"""An electronic oscillator with a hardening spring."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_finite, check_not_negative, check_positive
from simulators.system import Signal, System


@dataclass(frozen=True)
class Silverbox(System):
    """Duffing oscillator as an electronic circuit.

    ::

        y'' + 2 z w (1 + d y^2) y' + w^2 (y + b y^2 + a y^3 + e y^5) = w^2 g (u + o + n)

    with the input voltage u and the output voltage y. The noise n ~ N(0, input_noise_std^2) is held over a sample. The
    defaults are fitted to the measured record.

    Raises
    ------
    ValueError
        If the frequency, `dt` or `substeps` is not positive, a standard deviation or the damping is negative, or
        another value is not finite.

    Notes
    -----
    T. Wigren and J. Schoukens, Three free data sets for development and benchmarking in nonlinear system
    identification, European Control Conference 2013, 2933-2938: z, w, a and g. The small terms b, d, e and o are what
    the record says beyond them. Its input has no power near the Nyquist frequency: ``interpolation=band_limited``.
    """

    states: ClassVar = (
        Signal("displacement", "V", "displacement of the oscillator"),
        Signal("velocity", "V/s", "its velocity"),
    )
    inputs: ClassVar = (Signal("input_voltage", "V", "force on the oscillator"),)
    outputs: ClassVar = (Signal("output_voltage", "V", "measured displacement"),)
    noises: ClassVar = (Signal("input_noise", "V", "process noise on the input"),)

    dt: float = 0.0016384  # s
    substeps: int = 4  # Runge-Kutta steps per sample
    natural_frequency: float = 429.3  # w, rad/s
    damping_ratio: float = 0.0488  # z, -
    gain: float = 1.009  # g, -
    cubic: float = 3.95  # a, 1/V^2
    quadratic: float = -0.033  # b, 1/V
    quintic: float = 0.0  # e, 1/V^4
    cubic_damping: float = 0.0  # d, 1/V^2
    input_offset: float = -0.0054  # o, V
    input_noise_std: float = 0.0  # V
    initial_displacement: float = 0.0  # V
    initial_velocity: float = 0.0  # V/s

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "natural_frequency")
        check_not_negative(self, "damping_ratio", "input_noise_std")
        check_finite(self, "gain", "cubic", "quadratic", "quintic", "cubic_damping", "input_offset")
        check_finite(self, "initial_displacement", "initial_velocity")

    @staticmethod
    def drift(time: float, state: Array, input: Array, noise: Array, parameters: Array, derivative: Array) -> None:
        """Write velocity and acceleration; equation in the class."""
        w, z, g, a = parameters[0], parameters[1], parameters[2], parameters[3]
        b, e, d, o = parameters[4], parameters[5], parameters[6], parameters[7]
        y, v = state[0], state[1]
        force = g * (input[0] + noise[0] + o) - y * (1.0 + y * (b + y * (a + e * y * y)))
        derivative[0] = v
        derivative[1] = w * (w * force - 2.0 * z * (1.0 + d * y * y) * v)

    def parameters(self) -> Array:
        """Return w [rad/s], z [-], g [-], a [1/V^2], b [1/V], e [1/V^4], d [1/V^2], o [V]."""
        linear = self.natural_frequency, self.damping_ratio, self.gain
        return np.array([*linear, self.cubic, self.quadratic, self.quintic, self.cubic_damping, self.input_offset])

    def initial_state(self) -> Array:
        """Return displacement [V] and velocity [V/s] at time zero."""
        return np.array([self.initial_displacement, self.initial_velocity])

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and df/du; see `System.jacobian`."""
        w, z, g, a, b, e, d, _ = self.parameters()
        y, v = state
        slope = 1.0 + 2.0 * b * y + 3.0 * a * y**2 + 5.0 * e * y**4
        down = -(w**2) * slope - 4.0 * z * w * d * y * v
        return np.array([[0.0, 1.0], [down, -2.0 * z * w * (1.0 + d * y**2)]]), np.array([[0.0], [w**2 * g]])

    def noise_std(self) -> Array:
        """Return the standard deviation of the noise on the input [V]."""
        return np.array([self.input_noise_std])
