"""Reference solutions by an adaptive integrator, and the accuracy of a simulation against them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.integrate import solve_ivp

from simulators.errors import SimulationError
from simulators.interpolation import Interpolation
from simulators.record import Trajectory
from simulators.runge_kutta import DivergenceError, stepper
from simulators.settings import Array
from simulators.system import System, delays_of

InputAt = Callable[[int, float], Array]


def solve_reference(
    system: System,
    initial_state: Array,
    input: Array,
    noise: Array,
    *,
    interpolation: Interpolation = Interpolation.held,
    relative_tolerance: float = 1e-10,
    absolute_tolerance: float = 1e-12,
) -> Array:
    """Integrate a system over a record with the adaptive DOP853 method.

    The method is restarted at each sample, which is slow. Limits of the states are not applied.

    Parameters
    ----------
    system, initial_state, input, noise, interpolation
        As in `simulators.runge_kutta.integrate`.
    relative_tolerance, absolute_tolerance : float
        Tolerances of the solver; the absolute one is in units of the state.

    Returns
    -------
    (n, n_x) array
        States at the times k dt.

    Raises
    ------
    ArithmeticError
        If the solver fails.
    """
    states = [np.asarray(initial_state, dtype=np.float64)]
    options = {
        "method": "DOP853",
        "rtol": relative_tolerance,
        "atol": absolute_tolerance,
    }
    acting = interpolation.delayed(input, delays_of(system))
    input_at = interpolate_input(acting, system.dt, interpolation)
    for k in range(len(input) - 1):

        def drift(t: float, x: Array, k: int = k) -> Array:
            return system.derivative(t, x, input_at(k, t), noise[k])

        solution = solve_ivp(drift, (k * system.dt, (k + 1) * system.dt), states[-1], **options)
        if not solution.success:
            raise SimulationError(
                f"{type(system).__name__}, sample {k}: DOP853 failed: {solution.message}"
            )
        states.append(solution.y[:, -1])
    return np.array(states)


def interpolate_input(input: Array, dt: float, interpolation: Interpolation) -> InputAt:
    """Return the input as a function of time, by its definition in `Interpolation`.

    Parameters
    ----------
    input : (n, n_u) array
        Samples at k dt.
    dt : float
        Sampling time [s].
    interpolation : Interpolation
        The input between its samples.

    Returns
    -------
    callable
        ``input_at(k, t)``: input (n_u,) at time t [s] from k dt to (k + 1) dt.
    """
    if interpolation is Interpolation.held:
        return lambda k, t: input[k]
    if interpolation is Interpolation.linear:

        def draw_line(k: int, t: float) -> Array:
            fraction = t / dt - k
            return (1.0 - fraction) * input[k] + fraction * input[k + 1]

        return draw_line
    n = len(input)
    angles = 2.0 * np.pi / n * np.arange(n // 2 + 1)  # phase of each line over a sample, rad
    lines = np.exp(-1j * np.outer(angles, np.arange(n))) @ input / n
    # Lines count twice, with their conjugates; a line at the Nyquist frequency counts once.
    lines[1 : (n + 1) // 2] *= 2.0

    def sum_lines(k: int, t: float) -> Array:
        phases = angles * (t / dt)
        return np.cos(phases) @ lines.real - np.sin(phases) @ lines.imag

    return sum_lines


def substep_error(trajectory: Trajectory, *, n_samples: int = 200) -> float:
    """Return the error of one sample of the simulation, relative to the change of the output.

    It is estimated by a simulation with twice as many Runge-Kutta steps::

        max over k, i of |y_i(x_k, S steps) - y_i(x_k, 2 S steps)| / std_k(y_i[k+1] - y_i[k])

    with y_i(x_k, S steps) the output one sample after x_k, at up to `n_samples` samples spread over
    the record, with the recorded input held and the recorded noise. For a method of order four the
    error is 16/15 of that difference.

    Parameters
    ----------
    trajectory : Trajectory
        At least two samples.
    n_samples : int, optional
        Number of samples at which the error is computed, at most.

    Returns
    -------
    float
        Error relative to the standard deviation of the change of the output over one sample; 0 if
        no output changes, infinite if a sample diverges.

    Examples
    --------
    >>> from simulators import simulate
    >>> from simulators.systems.building import Building
    >>> flow = np.column_stack([np.zeros(50), np.linspace(0, 0.1, 50)])
    >>> [substep_error(simulate(Building(), flow, substeps=s)) < 1e-3 for s in (4, 30)]
    [False, True]
    """
    system = trajectory.system
    spread = np.diff(trajectory.noise_free_output, axis=0).std(axis=0)
    acting = trajectory.interpolation.delayed(trajectory.input, delays_of(system))
    coarse = stepper(system)
    fine = stepper(replace(system, substeps=2 * system.substeps))
    largest = np.zeros(len(spread))
    samples = np.unique(np.linspace(0, len(trajectory.time) - 2, n_samples).astype(int))
    for k in samples:
        time = trajectory.time[k]
        held_input = acting[k : k + 1]
        noise = trajectory.noise[k]
        outputs = []
        for advance in (coarse, fine):
            x = trajectory.state[k].copy()
            try:
                advance(time, x, held_input, noise)
            except DivergenceError:
                return float("inf")
            outputs.append(system.output(x))
        largest = np.maximum(largest, np.abs(outputs[0] - outputs[1]))
    varies = spread > 0
    return float(np.max(largest[varies] / spread[varies], initial=0.0))
