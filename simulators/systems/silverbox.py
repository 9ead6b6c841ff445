"""An electronic oscillator with a hardening spring."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_finite, check_not_negative, check_positive
from simulators.system import Signal, System, parameter


@dataclass(frozen=True)
class Silverbox(System):
    """Duffing oscillator as an electronic circuit.

    ::

        y'' = w^2 (g G (u + o + n) - 2 z D v - K y),   v = y' / w
        G = 1 + p y^2 + m y v + q v^2
        D = 1 + d y^2 + f |v| + c v^2
        K = 1 + b y + a y^2 + k |v| + l v^2

    with the input voltage u and the output voltage y. The noise n ~ N(0, input_noise_std^2) is held
    over a sample. The defaults are fitted to the measured record.

    Raises
    ------
    ValueError
        If the frequency, `dt` or `substeps` is not positive, a standard deviation or the damping is
        negative, or another value is not finite.

    Notes
    -----
    T. Wigren and J. Schoukens, Three free data sets for development and benchmarking in nonlinear
    system identification, European Control Conference 2013, 2933-2938, for the terms with w, z, a
    and g. The other terms are small and were found in the record. D and K make a restoring force
    that is a polynomial of displacement and velocity (S. F. Masri and T. K. Caughey, A
    nonparametric identification technique for nonlinear dynamic problems, Journal of Applied
    Mechanics 46, 1979, 433-447), with the absolute velocity among its terms. The polynomial holds
    up to the 0.3 V of the record. The input has no power near the Nyquist frequency: simulate with
    ``interpolation=band_limited``.
    """

    states: ClassVar = (
        Signal("displacement", "V", "displacement of the oscillator"),
        Signal("velocity", "V/s", "its velocity"),
    )
    inputs: ClassVar = (Signal("input_voltage", "V", "force on the oscillator"),)
    outputs: ClassVar = (Signal("output_voltage", "V", "measured displacement"),)
    noises: ClassVar = (Signal("input_noise", "V", "process noise on the input"),)

    dt: float = parameter(0.0016384, "s")
    substeps: int = parameter(4, meaning="Runge-Kutta steps per sample")
    natural_frequency: float = parameter(429.0, "rad/s", symbol="w")
    damping_ratio: float = parameter(0.04704, "-", symbol="z")
    gain: float = parameter(1.0107, "-", symbol="g")
    cubic: float = parameter(3.55, "1/V^2", symbol="a")
    quadratic: float = parameter(-0.0343, "1/V", symbol="b")
    absolute_stiffness: float = parameter(0.053, "1/V", symbol="k")
    velocity_stiffness: float = parameter(0.66, "1/V^2", symbol="l")
    cubic_damping: float = parameter(-24.1, "1/V^2", symbol="d")
    quadratic_damping: float = parameter(0.733, "1/V", symbol="f")
    velocity_damping: float = parameter(5.22, "1/V^2", symbol="c")
    displacement_gain: float = parameter(-0.47, "1/V^2", symbol="p")
    mixed_gain: float = parameter(-2.1, "1/V^2", symbol="m")
    velocity_gain: float = parameter(0.47, "1/V^2", symbol="q")
    input_offset: float = parameter(-0.00543, "V", symbol="o")
    input_noise_std: float = parameter(0.0, "V")
    initial_displacement: float = parameter(0.0, "V")
    initial_velocity: float = parameter(0.0, "V/s")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "natural_frequency")
        check_not_negative(self, "damping_ratio", "input_noise_std")
        check_finite(self, "gain", "cubic", "quadratic", "input_offset")
        check_finite(self, "absolute_stiffness", "velocity_stiffness")
        check_finite(self, "cubic_damping", "quadratic_damping", "velocity_damping")
        check_finite(self, "displacement_gain", "mixed_gain", "velocity_gain")
        check_finite(self, "initial_displacement", "initial_velocity")

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
        w = parameters[0]
        z = parameters[1]
        g = parameters[2]
        o = parameters[3]
        a = parameters[4]
        b = parameters[5]
        k = parameters[6]
        l = parameters[7]
        d = parameters[8]
        f = parameters[9]
        c = parameters[10]
        p = parameters[11]
        m = parameters[12]
        q = parameters[13]
        y = state[0]
        v = state[1] / w
        gain = g * (1.0 + p * y * y + m * y * v + q * v * v)
        damping = 2.0 * z * (1.0 + d * y * y + abs(v) * (f + c * abs(v)))
        stiffness = 1.0 + y * (b + y * a) + abs(v) * (k + l * abs(v))
        derivative[0] = state[1]
        derivative[1] = w * w * (gain * (input[0] + noise[0] + o) - damping * v - stiffness * y)

    def parameters(self) -> Array:
        """Return w, z, g, o, a, b, k, l, d, f, c, p, m and q, in the units of the fields."""
        return np.array(
            [
                self.natural_frequency,
                self.damping_ratio,
                self.gain,
                self.input_offset,
                self.cubic,
                self.quadratic,
                self.absolute_stiffness,
                self.velocity_stiffness,
                self.cubic_damping,
                self.quadratic_damping,
                self.velocity_damping,
                self.displacement_gain,
                self.mixed_gain,
                self.velocity_gain,
            ]
        )

    def initial_state(self) -> Array:
        """Return displacement [V] and velocity [V/s] at time zero."""
        return np.array([self.initial_displacement, self.initial_velocity])

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and df/du; see `System.jacobian`."""
        w, z, g, o, a, b, k, l, d, f, c, p, m, q = self.parameters()
        u = g * (input[0] + o)
        y = state[0]
        v = state[1] / w
        by_u = g * (1.0 + p * y**2 + m * y * v + q * v**2)
        by_y = u * (2.0 * p * y + m * v) - 4.0 * z * d * y * v
        by_y -= 1.0 + 2.0 * b * y + 3.0 * a * y**2 + k * abs(v) + l * v**2
        by_v = u * (m * y + 2.0 * q * v) - y * (k * np.sign(v) + 2.0 * l * v)
        by_v -= 2.0 * z * (1.0 + d * y**2 + 2.0 * f * abs(v) + 3.0 * c * v**2)
        A = np.array([[0.0, 1.0], [w**2 * by_y, w * by_v]])
        B = np.array([[0.0], [w**2 * by_u]])
        return A, B

    def noise_std(self) -> Array:
        """Return the standard deviation of the noise on the input [V]."""
        return np.array([self.input_noise_std])

    def output(self, state: Array) -> Array:
        """Return the displacement [V]."""
        return state[..., :1]
