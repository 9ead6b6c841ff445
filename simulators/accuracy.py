"""Whether the Runge-Kutta steps of a simulation are small enough."""

from dataclasses import replace

import numpy as np

from simulators.integrators import DivergenceError, stepper
from simulators.trajectory import Trajectory


def substep_error(trajectory: Trajectory, *, n_samples: int = 200) -> float:
    """Return the error of one sample of the simulation, estimated by twice as many Runge-Kutta steps.

    ::

        max over k, i of |y_i(x_k, S steps) - y_i(x_k, 2 S steps)| / std_k(y_i[k+1] - y_i[k])

    with y_i(x_k, S steps) the output one sample after x_k, at up to `n_samples` samples spread over the record,
    with the recorded input held and the recorded noise. For a method of order four the error is 16/15 of that
    difference.

    Parameters
    ----------
    trajectory : Trajectory
        At least two samples.
    n_samples : int, optional
        Samples to look at.

    Returns
    -------
    float
        Relative to the standard deviation of the change of the output over one sample; 0 if no output changes, infinite
        if a sample diverges.

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
    coarse, fine = stepper(system), stepper(replace(system, substeps=2 * system.substeps))
    worst = np.zeros(len(spread))
    for k in np.unique(np.linspace(0, len(trajectory.time) - 2, n_samples).astype(int)):
        ends = []
        for advance in (coarse, fine):
            x = trajectory.state[k].copy()
            try:
                advance(trajectory.time[k], x, trajectory.input[k : k + 1], trajectory.noise[k])
            except DivergenceError:
                return float("inf")
            ends.append(system.output(x))
        worst = np.maximum(worst, np.abs(ends[0] - ends[1]))
    return float(np.max(worst[spread > 0] / spread[spread > 0], initial=0.0))
