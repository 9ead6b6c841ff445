"""What no model can be expected to beat: the true system, told everything but the noise that is
still to come.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from simulators import DivergenceError, Trajectory
from simulators.interpolation import Piece
from simulators.noise import held_noise
from simulators.runge_kutta import WORK_ROWS, follow, problem_of, stepper
from sysid.arrays import Array
from sysid.beside import n_cores

BATCH = 16  # pairs of noise paths that exist at a time


class Floor(NamedTuple):
    """Best predictions of every sample by the true system (n, n_y), nan where it diverges."""

    one_step: Array  # from the true state one sample earlier; sample 0 is the true one
    free_run: Array  # from the true state at `start`; until then the true ones


def find_floor(trajectory: Trajectory, driven: Sequence[str], start: int, n_paths: int) -> Floor:
    """Predict every sample of a trajectory by the system that made it, with the mean over the
    process noise.

    ::

        one step:  y[k] = E_w h(f(x[k-1], u, w))
        free run:  y[k] = E_w h(z[k]),  z[start] = x[start],  z[k] = f(z[k-1], u, w[k-1])

    with the true states x and the recorded inputs u. These means have the smallest expected squared
    error of all predictions that know x, u and the system, but not the noise to come. The mean over
    one step is a sum over 2 n_w + 1 values of the noise, 0 and +-sqrt(3) standard deviations of
    each channel, exact for polynomials in one channel up to degree five. That of the free run is
    over simulated noise paths, in pairs w and -w, for which a linear system needs only one. Without
    process noise one simulation is both.

    Parameters
    ----------
    trajectory : Trajectory
        Whole simulation from its start on.
    driven : sequence of str
        Inputs that a controller drives; they are held, whatever the interpolation of the others.
    start : int
        Last sample at which the true state is known to the free run.
    n_paths : int
        Simulated noise paths, at least 4; an odd number is rounded up.
    """
    return Floor(_one_step(trajectory, driven), _free_run(trajectory, driven, start, n_paths))


def _one_step(trajectory: Trajectory, driven: Sequence[str]) -> Array:
    """Mean of every output (n, n_y), given the state one sample earlier."""
    system = trajectory.system
    state = trajectory.state
    advance = stepper(system)
    dt = trajectory.system.dt
    channels = np.diag(system.noise_std())[system.noise_std() > 0]
    points = np.concatenate(
        [
            np.zeros((1, len(system.noises))),
            np.sqrt(3) * channels,
            -np.sqrt(3) * channels,
        ]
    )
    weights = np.array([1 - len(channels) / 3] + 2 * len(channels) * [1 / 6])
    reached = np.repeat(state[np.newaxis], len(points), axis=0)
    for k, inputs in enumerate(_inputs_between(trajectory, driven)):
        for i, noise in enumerate(points):
            reached[i, k + 1] = state[k]
            try:
                advance(k * dt, reached[i, k + 1], inputs, noise)
            except DivergenceError:
                reached[i, k + 1] = np.nan
    return np.tensordot(weights, np.array(system.output(reached)), axes=1)


def _free_run(trajectory: Trajectory, driven: Sequence[str], start: int, n_paths: int) -> Array:
    """Mean of every output (n, n_y) over the noise paths."""
    system = trajectory.system
    pieces = _pieces(trajectory, driven, start)
    _, address, parameters, limits, dt, substeps = problem_of(system)

    def follow_path(noise: Array) -> Array:
        """Return the outputs: the true ones until the first piece, then under a noise path.

        The path is (n, n_w); the outputs are nan once they diverge.
        """
        states = trajectory.state.copy()
        work = np.empty((WORK_ROWS, trajectory.state.shape[1]))
        for first, last, values, rows in pieces:
            part = states[first : last + 1]
            shown = noise[first : last + 1]
            done, _, _ = follow(
                address,
                first,
                dt,
                substeps,
                part,
                values,
                rows,
                shown,
                parameters,
                limits,
                work,
            )
            if done < last - first:
                states[first + done + 1 :] = np.nan
                break
        return np.array(system.output(states))

    def run(number: int) -> Array:
        """Mean of the outputs under a noise path and under its negative."""
        sequence = np.random.SeedSequence(trajectory.seed, spawn_key=(*b"noise floor", number))
        noise = held_noise(
            np.random.default_rng(sequence), len(trajectory.time), system.noise_std()
        )
        return (follow_path(noise) + follow_path(-noise)) / 2 if noise.any() else follow_path(noise)

    mean = run(0)
    n_pairs = -(-n_paths // 2) if system.noise_std().any() else 1
    with ThreadPoolExecutor(n_cores()) as pool:
        for first in range(1, n_pairs, BATCH):
            for number, value in enumerate(
                pool.map(run, range(first, min(first + BATCH, n_pairs))), first
            ):
                mean = mean + (value - mean) / (number + 1)
    return mean


def _pieces(trajectory: Trajectory, driven: Sequence[str], start: int) -> tuple[Piece, ...]:
    """Cut the inputs from sample `start` on into pieces.

    It is one piece per sample where some inputs are held and others are not.
    """
    found = trajectory.interpolation.pieces(trajectory.input, trajectory.system.substeps)
    kept = [piece for piece in found if piece.last > start]
    if driven and any(piece.rows > 1 for piece in kept):
        between = enumerate(_inputs_between(trajectory, driven))
        return tuple(Piece(k, k + 1, inputs, kept[0].rows) for k, inputs in between if k >= start)
    return tuple(
        Piece(max(first, start), last, values[max(start - first, 0) * rows :], rows)
        for first, last, values, rows in kept
    )


def _inputs_between(trajectory: Trajectory, driven: Sequence[str]) -> Iterator[Array]:
    """Yield the inputs from each sample to the next as the stepper takes them."""
    system = trajectory.system
    u = trajectory.input
    columns = [index for index, signal in enumerate(system.inputs) if signal.name in driven]
    between = (
        inputs
        for piece in trajectory.interpolation.pieces(u, system.substeps)
        for inputs in piece.split()
    )
    for k, inputs in enumerate(between):
        inputs = inputs.copy()
        inputs[:, columns] = u[k, columns]
        yield inputs
