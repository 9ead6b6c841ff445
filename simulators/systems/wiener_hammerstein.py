"""A Wiener-Hammerstein system: a saturation between two linear filters."""

from dataclasses import dataclass
from math import cosh, pi, tanh
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_finite, check_not_negative, check_positive
from simulators.system import Signal, System, parameter


@dataclass(frozen=True)
class WienerHammerstein(System):
    """Linear filter, static saturation, linear filter; nothing between them is measured.

    ::

        x' = Omega (u + w - x)            first stage, a real pole at Omega = 2 pi F
        a'' + 2 zeta W a' + W^2 a = W^2 x     second stage, W = 2 pi f1
        z  = h tanh(a / h)                saturation at the level h
        b'' + 2 eta V b' + V^2 b = V^2 z      second filter, V = 2 pi f2,   y = b

    with the voltage u as input and y as output. Time is in the unit of the sampling: one sample is
    1 s. The noise w ~ N(0, input_noise_std^2) is a voltage, held over a sample.

    Raises
    ------
    ValueError
        If a frequency, a damping ratio, the level, `dt` or `substeps` is not positive, the standard
        deviation is negative, or an initial value is not finite.

    Notes
    -----
    The structure is that of J. Schoukens, J. Suykens and L. Ljung, Wiener-Hammerstein benchmark,
    15th IFAC Symposium on System Identification (2009); filters and saturation are our own.
    """

    states: ClassVar = (
        Signal("first", "V", "output of the real pole"),
        Signal("filtered", "V", "output of the first filter"),
        Signal("filtered_rate", "V/s", "its rate"),
        Signal("second", "V", "output of the second filter"),
        Signal("second_rate", "V/s", "its rate"),
    )
    inputs: ClassVar = (Signal("voltage", "V", "voltage at the first filter"),)
    outputs: ClassVar = (Signal("response", "V", "measured voltage behind the second filter"),)
    noises: ClassVar = (Signal("input_noise", "V", "process noise on the voltage"),)

    dt: float = parameter(1.0, "s")
    substeps: int = parameter(4, meaning="Runge-Kutta steps per sample")
    first_pole: float = parameter(0.05, "Hz", symbol="F")
    first_frequency: float = parameter(0.08, "Hz", symbol="f1")
    first_damping: float = parameter(0.25, symbol="zeta")
    second_frequency: float = parameter(0.06, "Hz", symbol="f2")
    second_damping: float = parameter(0.15, symbol="eta")
    saturation_level: float = parameter(1.6, "V", symbol="h")
    input_noise_std: float = parameter(0.0, "V")
    initial_first: float = parameter(0.0, "V")
    initial_filtered: float = parameter(0.0, "V")
    initial_filtered_rate: float = parameter(0.0, "V/s")
    initial_second: float = parameter(0.0, "V")
    initial_second_rate: float = parameter(0.0, "V/s")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "first_pole", "first_frequency", "first_damping")
        check_positive(self, "second_frequency", "second_damping", "saturation_level")
        check_not_negative(self, "input_noise_std")
        check_finite(self, "initial_first", "initial_filtered", "initial_filtered_rate")
        check_finite(self, "initial_second", "initial_second_rate")

    @staticmethod
    def drift(
        time: float,
        state: Array,
        input: Array,
        noise: Array,
        parameters: Array,
        derivative: Array,
    ) -> None:
        """Write the rates of both filters; equations in the class."""
        pole = parameters[0]
        W = parameters[1]
        zeta = parameters[2]
        V = parameters[3]
        eta = parameters[4]
        h = parameters[5]
        x = state[0]
        a = state[1]
        a_rate = state[2]
        b = state[3]
        b_rate = state[4]
        derivative[0] = pole * (input[0] + noise[0] - x)
        derivative[1] = a_rate
        derivative[2] = W * W * (x - a) - 2.0 * zeta * W * a_rate
        derivative[3] = b_rate
        derivative[4] = V * V * (h * tanh(a / h) - b) - 2.0 * eta * V * b_rate

    def parameters(self) -> Array:
        """Return Omega, W [1/s], zeta [-], V [1/s], eta [-], h [V]."""
        return np.array(
            [
                2 * pi * self.first_pole,
                2 * pi * self.first_frequency,
                self.first_damping,
                2 * pi * self.second_frequency,
                self.second_damping,
                self.saturation_level,
            ]
        )

    def initial_state(self) -> Array:
        """Return the voltages [V] and rates [V/s] of both filters at time zero."""
        return np.array(
            [
                self.initial_first,
                self.initial_filtered,
                self.initial_filtered_rate,
                self.initial_second,
                self.initial_second_rate,
            ]
        )

    def output(self, state: Array) -> Array:
        """Return the voltage behind the second filter [V]."""
        return state[..., 3:4]

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and df/du; see `System.jacobian`."""
        pole, W, zeta, V, eta, h = self.parameters()
        A = np.zeros((5, 5))
        B = np.zeros((5, 1))
        A[0, 0] = -pole
        A[1, 2] = 1.0
        A[2, :3] = W * W, -W * W, -2.0 * zeta * W
        A[3, 4] = 1.0
        A[4, 1] = V * V / cosh(min(abs(float(state[1])) / h, 300.0)) ** 2
        A[4, 3:] = -V * V, -2.0 * eta * V
        B[0, 0] = pole
        return A, B

    def noise_std(self) -> Array:
        """Return the standard deviation of the noise on the input [V]."""
        return np.array([self.input_noise_std])
