"""Proportional-integral controller with saturation and anti-windup."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulators.controllers.controller import Controller, Memory, Reference
from simulators.controllers.schedule import ComfortSchedule
from simulators.controllers.set_point import SetPoint
from simulators.settings import check_ascending, check_not_negative


@dataclass(frozen=True)
class PI(Controller):
    """Proportional-integral control of one output with one saturated input.

    ::

        e_k = r(t_k) - y_k,   v_k = Kp e_k + I_k,   u_k = min(max(v_k, u_min), u_max)
        I_{k+1} = I_k                 if v_k > u_max and e_k > 0, or v_k < u_min and e_k < 0
        I_{k+1} = I_k + Ki dt e_k     otherwise

    The first case is the anti-windup: while the input saturates, an error that would drive it further
    into saturation is not integrated (conditional integration).

    Raises
    ------
    ValueError
        If a gain is negative, the limits are not ascending or `dt` is not positive.

    Notes
    -----
    A PI controller on the hot-water flow heats the building of Wietzke and Graichen, section 6; they give
    no gains. The defaults are calibrated for `simulators.systems.building.Building`.

    Examples
    --------
    >>> (flow,), state = PI().control(8 * 3600.0, [20.5], (0.0,))
    >>> flow
    0.002
    """

    dt: float = 900.0  # s
    output: str = "zone_temperature"  # name of the controlled output
    input: str = "mass_flow"  # name of the driven input
    proportional_gain: float = 0.002  # Kp, input per K: kg/(s K)
    integral_gain: float = 2e-7  # Ki, input per K and s: kg/(s^2 K)
    minimum: float = 0.0  # kg/s
    maximum: float = 0.1  # kg/s
    schedule: SetPoint = field(default_factory=ComfortSchedule)  # set-point over time

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "proportional_gain", "integral_gain")
        check_ascending(self, "minimum", "maximum")

    @property
    def outputs_read(self) -> tuple[str, ...]:
        """Name of the controlled output."""
        return (self.output,)

    @property
    def inputs_driven(self) -> tuple[str, ...]:
        """Name of the driven input."""
        return (self.input,)

    def references(self, time: NDArray[np.float64]) -> dict[str, Reference]:
        """Return the set-point, and the comfort band where there is one, over times (n,) [s]."""
        return self.schedule.references(time)

    def initial_state(self) -> Memory:
        """Return the integral part I_0 = 0 [unit of the input]."""
        return (0.0,)

    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return (u_k,) and (I_{k+1},) from (y_k,) and (I_k,); equations in the class."""
        (y,), (I,) = output, state
        e = self.schedule.set_point(time) - y
        v = self.proportional_gain * e + I
        u = min(max(v, self.minimum), self.maximum)
        winds_up = (v > self.maximum and e > 0) or (v < self.minimum and e < 0)
        return (u,), (I if winds_up else I + self.integral_gain * self.dt * e,)
