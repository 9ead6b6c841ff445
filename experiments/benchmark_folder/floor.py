"""What no model can beat: the true system, told everything but the noise that is still to come."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simulators import Trajectory
from simulators.integrators import stepper


class Reachable(NamedTuple):
    """Outputs (n, n_y) of the true system without process noise."""

    one_step: np.ndarray  # from the true state one sample earlier; sample 0 is the true one
    free_run: np.ndarray  # from the true state at `start`; until then the true ones


def reachable(trajectory: Trajectory, driven: Sequence[str], start: int) -> Reachable:
    """Predict every sample of a trajectory by the system that made it, without process noise.

    ::

        one step:  y[k] = h(f(x[k-1], u, w = 0))
        free run:  y[k] = h(z[k]),  z[start] = x[start],  z[k] = f(z[k-1], u, w = 0)

    with the true states x and the recorded inputs u. What the process noise does later on cannot be known, nor
    can the measurement noise: their root mean square is the floor for any model.

    Parameters
    ----------
    trajectory : Trajectory
        Whole simulation from its start on.
    driven : sequence of str
        Inputs that a controller drives; they are held, whatever the interpolation of the others.
    start : int
        Last sample at which the true state is known to the free run.
    """
    system = trajectory.system
    advance, silent = stepper(system), np.zeros(len(system.noises))
    one_step, free_run = trajectory.state.copy(), trajectory.state.copy()
    for k, inputs in enumerate(_inputs_between(trajectory, driven)):
        one_step[k + 1] = trajectory.state[k]
        advance(k * system.dt, one_step[k + 1], inputs, silent)
        if k >= start:
            free_run[k + 1] = free_run[k]
            advance(k * system.dt, free_run[k + 1], inputs, silent)
    return Reachable(np.array(system.output(one_step)), np.array(system.output(free_run)))


def _inputs_between(trajectory: Trajectory, driven: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield the inputs from each sample to the next as the stepper takes them."""
    system, u = trajectory.system, trajectory.input
    columns = [index for index, signal in enumerate(system.inputs) if signal.name in driven]
    k = 0
    for piece in trajectory.interpolation.pieces(u, system.substeps):
        ends = 0 if piece.rows == 1 else 1
        for row in range(piece.last - piece.first):
            inputs = piece.values[row * piece.rows : (row + 1) * piece.rows + ends].copy()
            inputs[:, columns] = u[k, columns]
            yield inputs
            k += 1
