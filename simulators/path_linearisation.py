"""The simulation of a system over some samples, linearised at each of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulators.errors import UserError
from simulators.linearisation import SYSTEM_DIFFERENCE_STEP, output_jacobian
from simulators.runge_kutta import WORK_ROWS, check_drift, kernel, limits_of, problem_of, step
from simulators.settings import Array, is_finite, read_real
from simulators.system import System, delays_of, names_of


class PathLinearisation(NamedTuple):
    """States of a simulation without process noise, and their derivatives from sample to sample.

    ``dx[k+1] = A[k] dx[k] + B[k] du[k] + G[k] w[k]``,  ``dy[k] = C[k] dx[k]``, for deviations from
    the states and inputs of the path, and process noise w[k] that is held over the sample.
    """

    states: Array  # (T + 1, n_x); nan from the sample on at which the simulation diverges
    outputs: Array  # (T + 1, n_y)
    A: Array  # (T, n_x, n_x)
    B: Array  # (T, n_x, number of the chosen inputs)
    G: Array  # (T, n_x, n_w); (T, n_x, 0) if the noise is left out
    C: Array  # (T + 1, n_y, n_x)


def linearise_path(
    system: System,
    state: ArrayLike,
    input: ArrayLike,
    *,
    inputs: Sequence[str] | None = None,
    noise: bool = False,
    time: float = 0.0,
) -> PathLinearisation:
    """Simulate some samples from a state without process noise, and linearise each of them.

    The derivatives are central differences of the simulated sample itself: the same Runge-Kutta
    steps, parameters and limits as in `simulate`. Inputs are held between samples.

    Parameters
    ----------
    system : System
    state : (n_x,) array_like
        At the first sample.
    input : (T, n_u) array_like
        Row k is held from sample k to k + 1.
    inputs : sequence of str, optional
        Inputs by which the states are differentiated, in this order; by default all.
    noise : bool, optional
        Whether they are differentiated by the process noise, too.
    time : float, optional
        Time of the first sample [s], a whole number of samples; parameters may change over time.

    Raises
    ------
    ValueError
        If a shape does not fit the system, a value is not finite, the state is outside its limits,
        the time is negative, an input is unknown or acts after a delay, or the drift raises.
    TypeError
        If the values are no real numbers, or the drift cannot be compiled.

    Examples
    --------
    >>> from simulators import Building
    >>> path = linearise_path(Building(), [20.0, 18.0, 20.0], [[0.0, 0.01]] * 4)
    >>> path.outputs[:, 0].round(1)
    array([20. , 20. , 20.2, 20.3, 20.4])
    """
    title = f"linearise_path of {type(system).__name__}"
    x = np.array(read_real(state, f"{title}: state"), dtype=np.float64)
    u = np.array(read_real(input, f"{title}: input"), dtype=np.float64, order="C")
    n_x = len(system.states)
    if x.shape != (n_x,) or u.ndim != 2 or u.shape[1] != len(system.inputs) or not len(u):
        raise UserError(
            f"{title}: expected a state of {names_of(system.states)} and inputs (T, n_u) of "
            f"{names_of(system.inputs)} with T >= 1, got shapes {x.shape} and {u.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(u).all()):
        raise UserError(f"{title}: expected finite numbers; repair state and input")
    if not is_finite(time) or time < 0:
        raise UserError(f"{title}: expected a time of at least 0 s, got {time!r}; change time")
    lower, upper = limits_of(system)
    if ((x < lower) | (x > upper)).any():
        raise UserError(
            f"{title}: expected a state from {lower.tolist()} to {upper.tolist()}, got "
            f"{x.tolist()}; change state"
        )
    if any(delays_of(system)):
        raise UserError(
            f"{title}: expected inputs that act at once, but they have delays of "
            f"{delays_of(system)} samples; set the delays to 0"
        )
    names = names_of(system.inputs)
    chosen = names if inputs is None else list(inputs)
    if isinstance(inputs, str) or not set(chosen) <= set(names):
        raise UserError(f"{title}: expected a list of inputs among {names}, got {inputs!r}")
    check_drift(system, x, u[0])
    problem = problem_of(system)
    first = round(time / problem.dt)
    rows = np.minimum(np.arange(first, first + len(u)), len(problem.parameters) - 1)
    n_w = len(system.noises)
    columns = [*range(n_x), *(n_x + names.index(name) for name in chosen)]
    if noise:
        columns += range(n_x + len(names), n_x + len(names) + n_w)
    states = np.full((len(u) + 1, n_x), np.nan)
    states[0] = x
    slopes = np.full((len(u), n_x, len(columns)), np.nan)
    _follow(
        problem.address,
        time,
        problem.dt,
        problem.substeps,
        u,
        problem.parameters[rows],
        problem.limits,
        np.zeros(n_w),
        np.array(columns),
        states,
        slopes,
        np.empty((WORK_ROWS, n_x)),
    )
    A, B, G = np.split(slopes, [n_x, n_x + len(chosen)], axis=2)
    outputs = np.array(system.output(states), dtype=np.float64)
    return PathLinearisation(states, outputs, A, B, G, output_jacobian(system, states))


@kernel
def _follow(  # type: ignore[no-untyped-def]
    address,
    start,
    dt,
    substeps,
    inputs,
    parameters,
    limits,
    no_noise,
    columns,
    states,
    slopes,
    work,
):
    """Write the states (T + 1, n_x) and their slopes (T, n_x, p) from sample to sample.

    The first state is given. Rows after a divergence stay as they are.

    Parameters
    ----------
    address, start, dt, substeps, inputs, parameters, limits, work
        As in `step`; `inputs` and `parameters` have a row for each sample.
    no_noise : (n_w,) array
        Zeros.
    columns : (p,) array of int
        The derivatives that are wanted: places in states, inputs and noise behind each other.
    """
    n_x = states.shape[1]
    n_u = inputs.shape[1]
    x = np.empty(n_x)
    u = np.empty((1, n_u))
    w = np.zeros(no_noise.size)
    for k in range(inputs.shape[0]):
        time = start + k * dt
        for c in range(columns.size):
            column = columns[c]
            centre = 0.0
            if column < n_x:
                centre = states[k, column]
            elif column < n_x + n_u:
                centre = inputs[k, column - n_x]
            size = SYSTEM_DIFFERENCE_STEP * max(abs(centre), 1.0)
            for side in (1.0, -1.0):
                x[:] = states[k]
                u[0] = inputs[k]
                w[:] = 0.0
                if column < n_x:
                    x[column] += side * size
                elif column < n_x + n_u:
                    u[0, column - n_x] += side * size
                else:
                    w[column - n_x - n_u] = side * size
                done, _ = step(address, time, dt, substeps, x, u, w, parameters[k], limits, work)
                if done < substeps:
                    return
                for i in range(n_x):
                    if side > 0.0:
                        slopes[k, i, c] = x[i]
                    else:
                        slopes[k, i, c] = (slopes[k, i, c] - x[i]) / (2.0 * size)
        x[:] = states[k]
        u[0] = inputs[k]
        done, _ = step(address, time, dt, substeps, x, u, no_noise, parameters[k], limits, work)
        if done < substeps:
            return
        states[k + 1] = x
