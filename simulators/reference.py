"""Accurate but slow integration, to check the fixed-step integrator against."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from simulators.interpolation import Interpolation
from simulators.system import System

InputAt = Callable[[int, float], NDArray[np.float64]]


def solve_reference(
    system: System,
    initial_state: NDArray[np.float64],
    input: NDArray[np.float64],
    noise: NDArray[np.float64],
    *,
    interpolation: Interpolation = Interpolation.held,
    relative_tolerance: float = 1e-10,
    absolute_tolerance: float = 1e-12,
) -> NDArray[np.float64]:
    """Integrate a system over a record, slowly, with the adaptive DOP853 method restarted at each sample.

    Limits of the states are not applied.

    Parameters
    ----------
    system, initial_state, input, noise, interpolation
        As in `simulators.integrators.integrate`.
    relative_tolerance, absolute_tolerance : float
        Error control of the solver; the absolute one in units of the state.

    Returns
    -------
    (n, n_x) array
        States at the times k dt.

    Raises
    ------
    ArithmeticError
        If the solver gives up.
    """
    states = [np.asarray(initial_state, dtype=np.float64)]
    options = {"method": "DOP853", "rtol": relative_tolerance, "atol": absolute_tolerance}
    at = input_function(input, system.dt, interpolation)
    for k in range(len(input) - 1):

        def drift(t: float, x: NDArray[np.float64], k: int = k) -> NDArray[np.float64]:
            return system.derivative(t, x, at(k, t), noise[k])

        solution = solve_ivp(drift, (k * system.dt, (k + 1) * system.dt), states[-1], **options)
        if not solution.success:
            raise ArithmeticError(f"{type(system).__name__}, sample {k}: DOP853 failed: {solution.message}")
        states.append(solution.y[:, -1])
    return np.array(states)


def input_function(input: NDArray[np.float64], dt: float, interpolation: Interpolation) -> InputAt:
    """Return the input as a function of time, by its definition in `Interpolation`.

    Parameters
    ----------
    input : (n, n_u) array
        Samples at k dt.
    dt : float
        Sampling interval [s].
    interpolation : Interpolation
        The input between its samples.

    Returns
    -------
    callable
        ``at(k, t)``: input (n_u,) at time t [s] from k dt to (k + 1) dt.
    """
    builders = {
        Interpolation.held: _steps,
        Interpolation.linear: _ramps,
        Interpolation.band_limited: _trigonometric_polynomial,
    }
    return builders[interpolation](input, dt)


def _steps(input: NDArray[np.float64], dt: float) -> InputAt:
    return lambda k, t: input[k]


def _ramps(input: NDArray[np.float64], dt: float) -> InputAt:
    def at(k: int, t: float) -> NDArray[np.float64]:
        share = t / dt - k
        return (1.0 - share) * input[k] + share * input[k + 1]

    return at


def _trigonometric_polynomial(input: NDArray[np.float64], dt: float) -> InputAt:
    """Sum of cosines and sines through all samples; a line at the Nyquist frequency counts once."""
    n = len(input)
    angles = 2.0 * np.pi / n * np.arange(n // 2 + 1)  # of each line over a sample
    lines = np.exp(-1j * np.outer(angles, np.arange(n))) @ input / n
    lines[1 : (n + 1) // 2] *= 2.0

    def at(k: int, t: float) -> NDArray[np.float64]:
        phases = angles * (t / dt)
        return np.cos(phases) @ lines.real - np.sin(phases) @ lines.imag

    return at
