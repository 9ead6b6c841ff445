"""The Bouc-Wen oscillator with hysteresis."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators.settings import (
    Array,
    check_finite,
    check_not_negative,
    check_positive,
    refuse,
)
from simulators.system import Signal, System, parameter


@dataclass(frozen=True)
class BoucWen(System):
    """Oscillator with one degree of freedom and a hysteretic force z.

    ::

        m y'' + c y' + k y + z = u + w
        z' = alpha y' - beta (gamma |y'| |z|^(nu-1) z + delta y' |z|^nu)

    with the force u as input and the displacement y as output. The noise w ~ N(0,
    force_noise_std^2) is a force, held over a sample.

    Raises
    ------
    ValueError
        If mass, stiffness, `dt` or `substeps` is not positive, the damping, alpha, beta or the
        standard deviation is negative, nu is below 1 or another field is not finite.

    Notes
    -----
    J.-P. Noel and M. Schoukens, Hysteretic benchmark with a dynamic nonlinearity, Workshop on
    Nonlinear System Identification Benchmarks (2016), with its parameters; that benchmark has no
    process noise. The benchmark is integrated at 15 kHz and observed at 750 Hz: hence 20 substeps.
    Its force varies between the samples: simulate with `Interpolation.band_limited` (or linearly at
    15 kHz).
    """

    states: ClassVar = (
        Signal("position", "m", "position of the mass"),
        Signal("velocity", "m/s", "velocity of the mass"),
        Signal("restoring_force", "N", "hysteretic force"),
    )
    inputs: ClassVar = (Signal("force", "N", "external force on the mass"),)
    outputs: ClassVar = (Signal("displacement", "m", "measured position of the mass"),)
    noises: ClassVar = (Signal("force_noise", "N", "process noise on the force"),)

    dt: float = parameter(1 / 750, "s")
    substeps: int = parameter(20, meaning="Runge-Kutta steps per sample")
    mass: float = parameter(2.0, "kg", symbol="m")
    damping: float = parameter(10.0, "N s/m", symbol="c")
    stiffness: float = parameter(5e4, "N/m", symbol="k")
    alpha: float = parameter(5e4, "N/m", meaning="stiffness of the hysteresis")
    beta: float = parameter(1e3, "N^(1-nu)/m", meaning="weight of the hysteresis")
    gamma: float = parameter(0.8, "-", meaning="shape of the loop")
    delta: float = parameter(-1.1, "-", meaning="shape of the loop")
    nu: float = parameter(1.0, "-", meaning="smoothness of the loop")
    force_noise_std: float = parameter(0.0, "N")
    initial_position: float = parameter(0.0, "m")
    initial_velocity: float = parameter(0.0, "m/s")
    initial_restoring_force: float = parameter(0.0, "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mass", "stiffness")
        check_not_negative(self, "damping", "alpha", "beta", "force_noise_std")
        check_finite(self, "gamma", "delta", "nu")
        check_finite(self, "initial_position", "initial_velocity", "initial_restoring_force")
        if self.nu < 1:
            raise refuse(self, "nu", "a number >= 1")

    @staticmethod
    def drift(
        time: float,
        state: Array,
        input: Array,
        noise: Array,
        parameters: Array,
        derivative: Array,
    ) -> None:
        """Write the rates of position, velocity and hysteretic force; equations in the class."""
        y = state[0]
        v = state[1]
        z = state[2]
        per_m = parameters[0]
        c = parameters[1]
        k = parameters[2]
        alpha = parameters[3]
        beta = parameters[4]
        gamma = parameters[5]
        delta = parameters[6]
        nu = parameters[7]
        power = 1.0 if nu == 1.0 else abs(z) ** (nu - 1.0)
        derivative[0] = v
        derivative[1] = per_m * (input[0] + noise[0] - c * v - k * y - z)
        derivative[2] = alpha * v - beta * power * (gamma * abs(v) * z + delta * v * abs(z))

    def parameters(self) -> Array:
        """Return 1/m [1/kg], c [N s/m], k, alpha [N/m], beta [N^(1-nu)/m], gamma, delta, nu."""
        return np.array(
            [
                1.0 / self.mass,
                self.damping,
                self.stiffness,
                self.alpha,
                self.beta,
                self.gamma,
                self.delta,
                self.nu,
            ]
        )

    def initial_state(self) -> Array:
        """Return position [m], velocity [m/s] and hysteretic force [N] at time zero."""
        return np.array(
            [self.initial_position, self.initial_velocity, self.initial_restoring_force]
        )

    def jacobian(self, state: Array, input: Array) -> tuple[Array, Array]:
        """Return df/dx and df/du; see `System.jacobian`.

        At v = 0 or z = 0 they are the mean of both sides.
        """
        per_m, c, k, alpha, beta, gamma, delta, nu = self.parameters()
        _, v, z = state
        z_to_nu = abs(z) ** nu
        power = abs(z) ** (nu - 1.0)
        z_rate_by_v = alpha - beta * (gamma * np.sign(v) * power * z + delta * z_to_nu)
        z_rate_by_z = -beta * nu * power * (gamma * abs(v) + delta * v * np.sign(z))
        A = np.array(
            [
                [0.0, 1.0, 0.0],
                [-k * per_m, -c * per_m, -per_m],
                [0.0, z_rate_by_v, z_rate_by_z],
            ]
        )
        B = np.array([[0.0], [per_m], [0.0]])
        return A, B

    def noise_std(self) -> Array:
        """Return the standard deviation of the force noise [N]."""
        return np.array([self.force_noise_std])

    def output(self, state: Array) -> Array:
        """Return the position of the mass [m]."""
        return state[..., :1]
