"""Four coupled tanks, fed by two pumps: a plant with two inputs and two outputs."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators.settings import Array, check_not_negative, check_positive, refuse
from simulators.system import Signal, System, parameter

GRAVITY = 981.0  # acceleration of free fall, cm/s^2


@dataclass(frozen=True)
class QuadrupleTank(System):
    """Two lower tanks, whose levels are measured, and an upper tank above each of them.

    The left pump feeds the lower left and the upper right tank, the right pump the lower right and
    the upper left tank. Each upper tank empties into the lower one below it::

        A1 x1' = -a1 sqrt(2 g x1) + a1 sqrt(2 g x3) + c1 k1 u1       + A1 w1,    y1 = x1
        A2 x2' = -a2 sqrt(2 g x2) + a2 sqrt(2 g x4) + c2 k2 u2       + A2 w2,    y2 = x2
        A1 x3' = -a1 sqrt(2 g x3)                   + (1 - c2) k2 u2 + A1 w3
        A2 x4' = -a2 sqrt(2 g x4)                   + (1 - c1) k1 u1 + A2 w4

    with the levels x1 (lower left), x2 (lower right), x3 (upper left) and x4 (upper right) from 0
    to H, the voltages u of the pumps, the areas A of the tanks and a of their outlets on the left
    and on the right, g = 981 cm/s^2, and the fraction c of the flow of a pump that reaches its
    lower tank. What overflows is lost: levels are clipped at H, as they are at 0. The square root
    of a negative level counts as 0. The noise w_i ~ N(0, std^2) is a level rate, held over a
    sample.

    A step of a pump first moves the lower tank on its own side, and later that on the other side.
    If c1 + c2 < 1, the later effect is the larger one: the zero of the plant is unstable.

    Raises
    ------
    ValueError
        If an area, a gain, the height, `dt` or `substeps` is not positive, a fraction is not
        between 0 and 1, a standard deviation is negative, or an initial level is not between 0 and
        the height.

    Notes
    -----
    K. H. Johansson, The quadruple-tank process: a multivariable laboratory process with an
    adjustable zero, IEEE Transactions on Control Systems Technology 8 (2000), 456-465; the defaults
    are its parameters and its operating point P-, at 3 V. The noise, the height and the sampling
    time are ours.
    """

    states: ClassVar = (
        Signal("lower_left", "cm", "level of the lower left tank"),
        Signal("lower_right", "cm", "level of the lower right tank"),
        Signal("upper_left", "cm", "level of the upper left tank"),
        Signal("upper_right", "cm", "level of the upper right tank"),
    )
    inputs: ClassVar = (
        Signal("left_pump", "V", "voltage of the left pump"),
        Signal("right_pump", "V", "voltage of the right pump"),
    )
    outputs: ClassVar = (
        Signal("left_level", "cm", "measured level of the lower left tank"),
        Signal("right_level", "cm", "measured level of the lower right tank"),
    )
    noises: ClassVar = (
        Signal("lower_left_noise", "cm/s", "process noise on the rate of the lower left level"),
        Signal("lower_right_noise", "cm/s", "process noise on the rate of the lower right level"),
        Signal("upper_left_noise", "cm/s", "process noise on the rate of the upper left level"),
        Signal("upper_right_noise", "cm/s", "process noise on the rate of the upper right level"),
    )

    dt: float = parameter(5.0, "s")
    substeps: int = parameter(4, meaning="Runge-Kutta steps per sample")
    left_area: float = parameter(28.0, "cm^2", symbol="A1")
    right_area: float = parameter(32.0, "cm^2", symbol="A2")
    left_outlet: float = parameter(0.071, "cm^2", symbol="a1")
    right_outlet: float = parameter(0.057, "cm^2", symbol="a2")
    left_gain: float = parameter(3.33, "cm^3/(V s)", symbol="k1")
    right_gain: float = parameter(3.35, "cm^3/(V s)", symbol="k2")
    left_fraction: float = parameter(
        0.7, symbol="c1", meaning="part of the left flow that reaches the lower left tank"
    )
    right_fraction: float = parameter(
        0.6, symbol="c2", meaning="part of the right flow that reaches the lower right tank"
    )
    height: float = parameter(20.0, "cm", symbol="H")
    lower_noise_std: float = parameter(0.0, "cm/s")
    upper_noise_std: float = parameter(0.0, "cm/s")
    initial_lower_left: float = parameter(12.4, "cm")
    initial_lower_right: float = parameter(12.7, "cm")
    initial_upper_left: float = parameter(1.8, "cm")
    initial_upper_right: float = parameter(1.4, "cm")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "left_area", "right_area", "left_outlet", "right_outlet")
        check_positive(self, "left_gain", "right_gain", "height")
        check_not_negative(self, "left_fraction", "right_fraction")
        check_not_negative(self, "lower_noise_std", "upper_noise_std")
        initial_levels = (
            "initial_lower_left",
            "initial_lower_right",
            "initial_upper_left",
            "initial_upper_right",
        )
        check_not_negative(self, *initial_levels)
        highest_values = {
            "left_fraction": 1.0,
            "right_fraction": 1.0,
            **dict.fromkeys(initial_levels, self.height),
        }
        for name, highest in highest_values.items():
            if getattr(self, name) > highest:
                raise refuse(self, name, f"a number <= {highest:g}")

    @staticmethod
    def drift(
        time: float,
        state: Array,
        input: Array,
        noise: Array,
        parameters: Array,
        derivative: Array,
    ) -> None:
        """Write the rates [cm/s] of the levels; equations in the class."""
        A1 = parameters[0]
        A2 = parameters[1]
        a1 = parameters[2]
        a2 = parameters[3]
        k1 = parameters[4]
        k2 = parameters[5]
        c1 = parameters[6]
        c2 = parameters[7]
        from_1 = a1 * math.sqrt(2.0 * GRAVITY * max(state[0], 0.0))
        from_2 = a2 * math.sqrt(2.0 * GRAVITY * max(state[1], 0.0))
        from_3 = a1 * math.sqrt(2.0 * GRAVITY * max(state[2], 0.0))
        from_4 = a2 * math.sqrt(2.0 * GRAVITY * max(state[3], 0.0))
        derivative[0] = (from_3 - from_1 + c1 * k1 * input[0]) / A1 + noise[0]
        derivative[1] = (from_4 - from_2 + c2 * k2 * input[1]) / A2 + noise[1]
        derivative[2] = ((1.0 - c2) * k2 * input[1] - from_3) / A1 + noise[2]
        derivative[3] = ((1.0 - c1) * k1 * input[0] - from_4) / A2 + noise[3]

    def parameters(self) -> Array:
        """Return A1, A2, a1, a2 [cm^2], k1, k2 [cm^3/(V s)], c1, c2."""
        return np.array(
            [
                self.left_area,
                self.right_area,
                self.left_outlet,
                self.right_outlet,
                self.left_gain,
                self.right_gain,
                self.left_fraction,
                self.right_fraction,
            ]
        )

    def initial_state(self) -> Array:
        """Return the four levels at time zero [cm]."""
        return np.array(
            [
                self.initial_lower_left,
                self.initial_lower_right,
                self.initial_upper_left,
                self.initial_upper_right,
            ]
        )

    def state_limits(self) -> tuple[Array, Array]:
        """Return the levels of empty and of full tanks [cm]."""
        return np.zeros(4), np.full(4, self.height)

    def input_limits(self) -> tuple[Array, Array]:
        """Return the limits of both voltages [V]: a pump does not suck, and takes at most 10 V."""
        return np.zeros(2), np.full(2, 10.0)

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array] | None:
        """Return df/dx [1/s] and df/du; see `System.jacobian`.

        The result is None where they do not exist: at an empty tank and outside the tanks.
        """
        if not all(0 < level <= self.height for level in state):
            return None
        A1, A2, a1, a2, k1, k2, c1, c2 = self.parameters()
        areas = np.array([A1, A2, A1, A2])
        outlets = np.array([a1, a2, a1, a2])
        slopes = outlets / areas * np.sqrt(0.5 * GRAVITY / np.asarray(state))
        A = np.diag(-slopes)
        A[0, 2] = slopes[2]
        A[1, 3] = slopes[3]
        B = np.array(
            [
                [c1 * k1 / A1, 0.0],
                [0.0, c2 * k2 / A2],
                [0.0, (1 - c2) * k2 / A1],
                [(1 - c1) * k1 / A2, 0.0],
            ]
        )
        return A, B

    def noise_std(self) -> Array:
        """Return the standard deviations of the noise on the level rates [cm/s]."""
        lower = self.lower_noise_std
        upper = self.upper_noise_std
        return np.array([lower, lower, upper, upper])

    def output(self, state: Array) -> Array:
        """Return the levels of the lower tanks [cm] of states (..., 4) as (..., 2)."""
        return state[..., :2]
