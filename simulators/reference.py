"""Accurate but slow integration, to check the fixed-step integrator against."""

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from simulators.system import System


def solve_reference(
    system: System,
    initial_state: NDArray[np.float64],
    input: NDArray[np.float64],
    noise: NDArray[np.float64],
    *,
    relative_tolerance: float = 1e-10,
    absolute_tolerance: float = 1e-12,
) -> NDArray[np.float64]:
    """Integrate a system over a record, slowly, with the adaptive DOP853 method restarted at each sample.

    Parameters
    ----------
    system, initial_state, input, noise
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
    for k in range(len(input) - 1):
        span = (k * system.dt, (k + 1) * system.dt)
        held = (input[k], noise[k])
        solution = solve_ivp(lambda t, x, u, w: system.derivative(t, x, u, w), span, states[-1], args=held, **options)
        if not solution.success:
            raise ArithmeticError(f"{type(system).__name__}, sample {k}: DOP853 failed: {solution.message}")
        states.append(solution.y[:, -1])
    return np.array(states)
