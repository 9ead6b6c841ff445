"""The linear view of a system: its steady states, and its linearisation at the sampling time."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.errors import UserError
from simulators.interpolation import Interpolation
from simulators.settings import Array, read_real
from simulators.system import System, delays_of, names_of

#: relative step of a central difference of a system: cube root of the rounding error [-]
SYSTEM_DIFFERENCE_STEP = 6e-6
#: Newton steps to a steady state
MAX_STATE_NEWTON_STEPS = 200
#: shortest Newton step to a steady state, as a fraction of the full one
LEAST_STATE_NEWTON_FRACTION = 1e-6
#: change of a state over a sample at a steady state, relative to its magnitude plus one
STEADY_STATE_TOLERANCE = 1e-9
#: a pole at this distance from 1 is 1
UNIT_POLE_TOLERANCE = 1e-9
#: methods of `scipy.signal.cont2discrete` by the course of the input between samples
DISCRETISATIONS = {Interpolation.held: "zoh", Interpolation.linear: "foh"}


class LinearSystem(NamedTuple):
    """Linearisation of a system about an operating point, at its sampling time.

    ``x[k+1] = A x[k] + B u[k - d]``, ``y[k] = C x[k] + D u[k - d]`` for deviations from the
    operating point, with the delay d of each input.
    """

    A: Array  # (n_x, n_x)
    B: Array  # (n_x, n_u)
    C: Array  # (n_y, n_x)
    D: Array  # (n_y, n_u); zero for inputs that are held
    delays: tuple[int, ...]  # of the inputs [samples]
    dt: float  # sampling time [s]

    @property
    def poles(self) -> NDArray[np.complex128]:
        """Poles (n_x,) of the sampled system, those of the largest magnitude first."""
        poles = np.linalg.eigvals(self.A).astype(np.complex128)
        return np.asarray(poles[np.argsort(-np.abs(poles), kind="stable")])

    def frequency_response(self, frequencies: ArrayLike) -> NDArray[np.complex128]:
        """Return ``C (zI - A)^-1 B z^-d + D z^-d`` (n, n_y, n_u) at frequencies (n,) [Hz]."""
        z = np.exp(2j * np.pi * np.asarray(frequencies, dtype=np.float64) * self.dt)
        states = np.linalg.solve(z[:, None, None] * np.eye(len(self.A)) - self.A, self.B)
        late = z[:, None] ** -np.array(self.delays, dtype=np.float64)
        return np.asarray((self.C @ states + self.D) * late[:, None, :])

    def static_gain(self) -> Array:
        """Return ``C (I - A)^-1 B + D`` (n_y, n_u); nan if a pole is 1 (an integrator)."""
        if (np.abs(self.poles - 1.0) < UNIT_POLE_TOLERANCE).any():
            return np.full(self.D.shape, np.nan)
        states = np.linalg.solve(np.eye(len(self.A)) - self.A, self.B)
        return np.asarray(self.C @ states + self.D)


def steady_state(system: System, input: ArrayLike, start: ArrayLike | None = None) -> Array:
    """Return the state (n_x,) that does not change under a constant input, without noise.

    Gauss-Newton steps from a state, by default the initial one. Of several steady states, such as
    those of a system that integrates, it is one near this state. Parameters are those at time zero.

    Parameters
    ----------
    system : System
    input : (n_u,)
    start : (n_x,), optional

    Raises
    ------
    ValueError
        If there is no steady state near the start.
    """
    u = _read_input(system, input)
    x = system.initial_state().astype(np.float64) if start is None else np.array(start, dtype=float)
    low, high = system.state_limits()
    rate = _rate(system, x, u)
    for _ in range(MAX_STATE_NEWTON_STEPS):
        if _is_steady(system, x, rate):
            break
        slopes = jacobian_of(system, x, u)[0]
        step = -np.linalg.lstsq(slopes, rate, rcond=None)[0]
        fraction = 1.0
        while fraction > LEAST_STATE_NEWTON_FRACTION:
            tried = np.clip(x + fraction * step, low, high)
            new = _rate(system, tried, u)
            if np.linalg.norm(new) < np.linalg.norm(rate):
                break
            fraction /= 2
        else:
            break
        x, rate = tried, new
    if not _is_steady(system, x, rate):
        shown = ", ".join(
            f"{name}={value:g}" for name, value in zip(names_of(system.inputs), u, strict=True)
        )
        raise UserError(
            f"steady_state: {type(system).__name__} has no steady state for {shown or 'no input'} "
            "near the start; give another input, or a start near the state that you expect"
        )
    return x


def _rate(system: System, state: Array, input: Array) -> Array:
    """Return the derivative (n_x,) of the state at time zero, without noise."""
    return system.derivative(0.0, state, input, np.zeros(len(system.noises)))


def _is_steady(system: System, state: Array, rate: Array) -> bool:
    """Return whether a state changes over a sample by no more than rounding."""
    return bool((np.abs(rate) * system.dt <= STEADY_STATE_TOLERANCE * (1.0 + np.abs(state))).all())


def jacobian_of(system: System, state: Array, input: Array) -> tuple[Array, Array]:
    """Return df/dx (n_x, n_x) and df/du (n_x, n_u): `System.jacobian`, or central differences."""
    known = system.jacobian(state, input)
    if known is not None:
        return known
    n_x = len(state)
    both = np.concatenate([state, input])
    columns = []
    for i, value in enumerate(both):
        step = np.zeros(len(both))
        step[i] = SYSTEM_DIFFERENCE_STEP * max(abs(value), 1.0)
        above = both + step
        below = both - step
        change = _rate(system, above[:n_x], above[n_x:]) - _rate(system, below[:n_x], below[n_x:])
        columns.append(change / (above[i] - below[i]))
    slopes = np.array(columns).T.reshape(n_x, len(both))
    return slopes[:, :n_x], slopes[:, n_x:]


def output_jacobian(system: System, states: Array) -> Array:
    """Return dh/dx (..., n_y, n_x) at states (..., n_x), by central differences."""
    columns = []
    for i in range(states.shape[-1]):
        step = np.zeros_like(states)
        step[..., i] = SYSTEM_DIFFERENCE_STEP * np.maximum(np.abs(states[..., i]), 1.0)
        change = system.output(states + step) - system.output(states - step)
        columns.append(change / (2 * step[..., i, np.newaxis]))
    return np.stack(columns, axis=-1)


def linearise(
    system: System,
    input: ArrayLike,
    state: ArrayLike | None = None,
    *,
    interpolation: Interpolation | str = Interpolation.held,
    of_states: bool = False,
) -> LinearSystem:
    """Linearise a system about a state and input, and discretise it exactly at its sampling time.

    ::

        A = exp(df/dx dt),   B = int_0^dt exp(df/dx s) ds df/du,   C = dh/dx

    for an input that is held.

    Parameters
    ----------
    system : System
    input : (n_u,)
        Constant input of the operating point, in its units.
    state : (n_x,), optional
        By default the `steady_state`.
    interpolation : Interpolation or str
        Course of the input between its samples: held or linear.
    of_states : bool
        Whether the outputs of the linear system are the states, in place of the system's own.

    Raises
    ------
    ValueError
        If there is no steady state, or the input is band-limited, which has no discrete system.

    Examples
    --------
    >>> from simulators import Heater
    >>> heater = linearise(Heater(), [50.0, 4.0])
    >>> heater.static_gain().round(2)
    array([[  2.36, -35.86]])
    """
    from scipy.signal import cont2discrete  # takes long to import

    course = Interpolation(interpolation)
    if course not in DISCRETISATIONS:
        raise UserError(
            f"linearise: an input that is {course.value} has no discrete system; take held or "
            "linear"
        )
    u = _read_input(system, input)
    x = steady_state(system, u) if state is None else read_real(state, "state").astype(np.float64)
    if x.shape != (len(system.states),):
        raise UserError(
            f"linearise: expected the states {names_of(system.states)}, got shape {x.shape}"
        )
    A, B = jacobian_of(system, x, u)
    C = np.eye(len(x)) if of_states else output_jacobian(system, x)
    D = np.zeros((len(C), len(u)))
    continuous = (A, B, C, D)
    discrete = cont2discrete(continuous, system.dt, method=DISCRETISATIONS[course])
    A_d, B_d, C_d, D_d = discrete[:4]
    return LinearSystem(A_d, B_d, C_d, D_d, delays_of(system), system.dt)


def _read_input(system: System, input: ArrayLike) -> Array:
    """Return an input (n_u,), or raise UserError."""
    u = np.atleast_1d(read_real(input, "input")).astype(np.float64)
    if u.shape != (len(system.inputs),) or not np.isfinite(u).all():
        raise UserError(
            f"expected a finite value for each of the inputs {names_of(system.inputs)}, got "
            f"{u.tolist()}"
        )
    return u
