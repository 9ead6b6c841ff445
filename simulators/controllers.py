"""Controllers and their set-points."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from simulators.settings import (
    Array,
    check_ascending,
    check_finite,
    check_not_negative,
    check_positive,
    check_whole,
    is_finite,
    refuse,
)
from simulators.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

MIN_HOLD = 1e-9  # shortest time on a level, s: no float counts the holds of shorter ones

Memory = tuple[float, ...]  # state of a controller; also the values of its inputs
Time = TypeVar("Time", float, Array)


class Reference(NamedTuple):
    """Set-point of a controller, or a bound of the range that it keeps to, over time."""

    values: Array  # (n,) in the unit of the output
    description: str
    output: str | None = None  # output that it concerns; None: the first that the controller reads


@dataclass(frozen=True)
class Controller(ABC):
    """Sampled feedback law with explicit state.

    A controller is a frozen dataclass of settings. It holds no state itself: `control` takes the
    state and returns the next one.

    Parameters
    ----------
    dt : float
        Sampling time [s]; must equal the system's.

    Raises
    ------
    ValueError
        If `dt` is not positive.
    """

    dt: float  # s

    def __post_init__(self) -> None:
        check_positive(self, "dt")

    @property
    @abstractmethod
    def outputs_read(self) -> tuple[str, ...]:
        """Names of the system outputs that `control` receives, in this order."""

    @property
    def states_read(self) -> tuple[str, ...]:
        """Names of the system states that `control` receives after the outputs.

        They are true states, which no sensor measures: for controllers that show what could be
        reached. By default there are none.
        """
        return ()

    @property
    @abstractmethod
    def inputs_driven(self) -> tuple[str, ...]:
        """Names of the system inputs that `control` returns, in this order."""

    def references(self, time: Array) -> dict[str, Reference]:
        """Return the set-points and bounds of the controller over times (n,) [s], by name.

        They are stored with a simulation, in the unit of the output that they concern. By default
        there are none.
        """
        return {}

    @abstractmethod
    def initial_state(self) -> Memory:
        """Return the state of the controller at time zero."""

    @abstractmethod
    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return the inputs to hold from `time` [s] on, and the next state.

        Parameters
        ----------
        time : float
            Time of the measurement [s].
        output : sequence of float
            Values of `outputs_read`, and of `states_read`.
        state : tuple of float
            State of the controller.

        Returns
        -------
        tuple of (tuple of float, tuple of float)
            Values of `inputs_driven`, next state.
        """

    def track(
        self, time: float, output: Sequence[float], state: Memory, applied: Sequence[float]
    ) -> Memory:
        """Return the next state while something else drives the inputs.

        The controller can then take over without a jump. By default it goes on as if its own
        inputs had been applied.

        Parameters
        ----------
        time, output, state
            As in `control`.
        applied : sequence of float
            Values of `inputs_driven` that are applied from `time` on.
        """
        return self.control(time, output, state)[1]


@dataclass(frozen=True)
class OpenLoop(Controller):
    """Controller that reads no output and drives no input.

    With it an open loop runs sample by sample.

    Examples
    --------
    >>> OpenLoop(dt=900.0).control(0.0, (), ())
    ((), ())
    """

    outputs_read = ()
    inputs_driven = ()

    def initial_state(self) -> Memory:
        """Return no state."""
        return ()

    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return no input and no state."""
        return (), ()


class SetPoint(ABC):
    """Set-point of a controlled output over time, in the unit of that output."""

    @abstractmethod
    def set_point(self, time: Time) -> Time:
        """Return the set-point r at `time` [s], a float or an array."""

    def references(self, time: Array) -> dict[str, Reference]:
        """Return the signals to store with a simulation: the set-point over times (n,) [s]."""
        values = np.broadcast_to(np.asarray(self.set_point(time), dtype=np.float64), np.shape(time))
        return {"set_point": Reference(values, "set-point of the controller")}


@dataclass(frozen=True)
class ComfortSchedule(SetPoint):
    """Comfort band of a building: narrow by day on working days, relaxed at night and at weekends.

    ::

        day(t)  = day_start <= hour of t < day_end, Monday to Friday
        r(t)    = day_lower + offset       if day(t) or day(t + preheat)
        r(t)    = relaxed_lower + offset   otherwise

    Time zero is midnight before the first day. A set-point below the comfort band, with a negative
    offset, trades comfort for heat.

    Raises
    ------
    ValueError
        If a lower bound is not below its upper bound, the hours are not ascending within 0 to 24,
        the offset is not finite, the first weekday is not 0 to 6, or the preheating time is
        negative or longer than the day, so that the set-point would rise and fall before it.

    Notes
    -----
    Bounds: Wietzke and Graichen, section 6; the hours, the offset and the preheating time are ours.

    Examples
    --------
    >>> schedule = ComfortSchedule()
    >>> schedule.set_point(6 * 3600.0), schedule.set_point(22 * 3600.0)
    (21.5, 17.5)
    >>> ComfortSchedule(preheat=2.0).set_point(3600.0 * np.array([3.9, 4.0, 6.0]))
    array([17.5, 21.5, 21.5])
    >>> schedule.upper(3600.0 * np.array([5.0, 6.0, 22.0]))
    array([28., 24., 28.])
    """

    day_lower: float = 21.0  # degC
    day_upper: float = 24.0  # degC
    relaxed_lower: float = 17.0  # degC
    relaxed_upper: float = 28.0  # degC
    day_start: float = 6.0  # h
    day_end: float = 22.0  # h
    offset: float = 0.5  # set-point above the lower bound, K
    first_weekday: int = 0  # weekday of the first day, 0 = Monday
    preheat: float = 0.0  # time before the day at which the set-point rises already, h

    def __post_init__(self) -> None:
        check_ascending(self, "day_lower", "day_upper")
        check_ascending(self, "relaxed_lower", "relaxed_upper")
        check_ascending(self, "day_start", "day_end")
        check_not_negative(self, "day_start", "preheat")
        check_finite(self, "offset")
        check_whole(self, "first_weekday", 0, 6)
        if self.day_end > 24:
            raise refuse(self, "day_end", "at most 24 h")
        length = self.day_end - self.day_start
        if self.preheat > length:
            raise refuse(self, "preheat", f"at most the {length:g} h of the day")

    def lower(self, time: Time) -> Time:
        """Return the lower comfort bound [degC] at `time` [s], a float or an array."""
        return self._choose(self._is_day(time), self.day_lower, self.relaxed_lower)

    def upper(self, time: Time) -> Time:
        """Return the upper comfort bound [degC] at `time` [s], a float or an array."""
        return self._choose(self._is_day(time), self.day_upper, self.relaxed_upper)

    def set_point(self, time: Time) -> Time:
        """Return the set-point r [degC] at `time` [s], a float or an array."""
        is_heated = self._is_day(time) | self._is_day(time + self.preheat * SECONDS_PER_HOUR)
        return self._choose(is_heated, self.day_lower, self.relaxed_lower) + self.offset

    def references(self, time: Array) -> dict[str, Reference]:
        """Return the comfort band and the set-point over times (n,) [s]."""
        bounds = {
            "comfort_lower": Reference(self.lower(time), "lower bound of the comfort band"),
            "comfort_upper": Reference(self.upper(time), "upper bound of the comfort band"),
        }
        return bounds | super().references(time)

    def _is_day(self, time: Time) -> Any:
        """Return whether `time` [s] is in a day of the narrow band: a bool, or an array of them."""
        hour = time % SECONDS_PER_DAY / SECONDS_PER_HOUR
        is_working_day = (time // SECONDS_PER_DAY + self.first_weekday) % 7 < 5
        return is_working_day & (hour >= self.day_start) & (hour < self.day_end)

    def _choose(self, is_day: Any, by_day: float, relaxed: float) -> Any:
        """Return the value by day or the relaxed one.

        It is computed by arithmetic, which works for floats and arrays alike.
        """
        return by_day * is_day + relaxed * (1 - is_day)


@dataclass(frozen=True)
class PI(Controller):
    """Proportional-integral control of one output with one saturated input.

    ::

        e_k = r(t_k) - y_k,   v_k = Kp e_k + I_k,   u_k = min(max(v_k, u_min), u_max)
        I_{k+1} = I_k                 if v_k > u_max and e_k > 0, or v_k < u_min and e_k < 0
        I_{k+1} = I_k + Ki dt e_k     otherwise

    The first case is the anti-windup: while the input saturates, an error that would drive it
    further into saturation is not integrated (conditional integration).

    Raises
    ------
    ValueError
        If a gain is negative, the limits are not ascending or `dt` is not positive.

    Notes
    -----
    A PI controller on the hot-water flow heats the building of Wietzke and Graichen, section 6;
    they give no gains. The defaults are calibrated for `simulators.Building`.

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
        if not isinstance(self.schedule, SetPoint):
            raise refuse(self, "schedule", "a SetPoint such as ComfortSchedule()")

    @property
    def outputs_read(self) -> tuple[str, ...]:
        """Name of the controlled output."""
        return (self.output,)

    @property
    def inputs_driven(self) -> tuple[str, ...]:
        """Name of the driven input."""
        return (self.input,)

    def references(self, time: Array) -> dict[str, Reference]:
        """Return the set-point, and the comfort band where there is one, over times (n,) [s]."""
        return self.schedule.references(time)

    def initial_state(self) -> Memory:
        """Return the integral part I_0 = 0 [unit of the input]."""
        return (0.0,)

    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return (u_k,) and (I_{k+1},) from (y_k,) and (I_k,); equations in the class."""
        (y,) = output
        (I,) = state
        e = self.schedule.set_point(time) - y
        v = self.proportional_gain * e + I
        u = min(max(v, self.minimum), self.maximum)
        winds_up = (v > self.maximum and e > 0) or (v < self.minimum and e < 0)
        next_I = I if winds_up else I + self.integral_gain * self.dt * e
        return (u,), (next_I,)

    def track(
        self, time: float, output: Sequence[float], state: Memory, applied: Sequence[float]
    ) -> Memory:
        """Return the integral part with which this controller would have applied the input.

        ``I_{k+1} = u_k - Kp e_k``, within the limits of the input: at the same error its next input
        is u_k, so that it takes over without a jump (tracking mode; Astrom and Hagglund, "Advanced
        PID Control", section 3.5).
        """
        (y,) = output
        (u,) = applied
        e = self.schedule.set_point(time) - y
        I = min(max(u - self.proportional_gain * e, self.minimum), self.maximum)
        return (I,)


@dataclass(frozen=True)
class Levels(SetPoint):
    """Set-point that holds each of its levels for a time, and then starts again.

    A single level is a constant set-point.

    ::

        r(t) = levels[i],   i = floor(t / hold) mod number of levels

    Parameters
    ----------
    levels : sequence of float
        Set-points, in the unit of the controlled output.
    hold : float
        Time on each level [s].

    Raises
    ------
    ValueError
        If there is no level, one is not finite or `hold` is shorter than a nanosecond.

    Examples
    --------
    >>> Levels(levels=(4.0, 6.0), hold=100.0).set_point(np.array([0.0, 99.0, 100.0, 250.0]))
    array([4., 4., 6., 4.])
    """

    levels: Sequence[float] = (4.0, 6.0)  # unit of the output
    hold: float = 400.0  # s

    def __post_init__(self) -> None:
        check_positive(self, "hold")
        if self.hold < MIN_HOLD:
            raise refuse(self, "hold", f"at least {MIN_HOLD:g} s")
        is_list = isinstance(self.levels, Iterable) and not isinstance(self.levels, str)
        if is_list:
            object.__setattr__(self, "levels", tuple(self.levels))
        if not is_list or not self.levels or not all(map(is_finite, self.levels)):
            raise refuse(self, "levels", "at least one finite level")

    def set_point(self, time: Time) -> Time:
        """Return the level at `time` [s], a float or an array."""
        index = (np.floor_divide(time, self.hold) % len(self.levels)).astype(int)
        return np.asarray(self.levels, dtype=np.float64)[index]
