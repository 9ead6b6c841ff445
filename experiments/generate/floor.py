"""The noise floor: predictions of the true system, which no model can be expected to beat.

The true system knows its state and its inputs, but not the future noise.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from simulators import DivergenceError, Trajectory
from simulators.interpolation import Piece
from simulators.limit import inputs_between
from simulators.noise import held_noise
from simulators.runge_kutta import WORK_ROWS, follow, problem_of, stepper
from simulators.system import delays_of
from sysid.arrays import Array
from sysid.beside import n_cores

PAIRS_PER_BATCH = 16  # pairs of noise paths that are in memory at the same time


class Floor(NamedTuple):
    """Best predictions of every sample by the true system (n, n_y), nan where it diverges."""

    one_step: Array  # from the true state one sample earlier; sample 0 is the true output
    free_run: Array  # from the true state at sample `start`; the true outputs up to there


def find_floor(trajectory: Trajectory, driven: Sequence[str], start: int, n_paths: int) -> Floor:
    """Predict every sample of a trajectory with its own system, as a mean over the process noise.

    ::

        one step:  y[k] = E_w h(f(x[k-1], u, w))
        free run:  y[k] = E_w h(z[k]),  z[start] = x[start],  z[k] = f(z[k-1], u, w[k-1])

    with the true states x and the recorded inputs u. These means have the smallest expected squared
    error of all predictions that know x, u and the system, but not the future noise.

    The mean over one step is a weighted sum over 2 n_w + 1 values of the noise: 0, and +-sqrt(3)
    standard deviations of each channel. It is exact for polynomials in one channel up to degree
    five. The mean of the free run is taken over simulated noise paths, in pairs w and -w; for a
    linear system one pair is exact. Without process noise there is only one simulation.

    Parameters
    ----------
    trajectory : Trajectory
        The whole simulation, with its transient.
    driven : sequence of str
        Inputs that a controller drives. They are held between samples, even if the other inputs
        are interpolated.
    start : int
        Last sample at which the true state is known to the free run.
    n_paths : int
        Number of simulated noise paths, at least 4; an odd number is rounded up.
    """
    return Floor(_one_step(trajectory, driven), _free_run(trajectory, driven, start, n_paths))


def _one_step(trajectory: Trajectory, driven: Sequence[str]) -> Array:
    """Return the mean of every output (n, n_y), given the state one sample earlier."""
    system = trajectory.system
    state = trajectory.state
    advance = stepper(system)
    dt = trajectory.system.dt
    stds = np.diag(system.noise_std())[system.noise_std() > 0]  # one row for each noisy channel
    noise_points = np.concatenate(
        [
            np.zeros((1, len(system.noises))),
            np.sqrt(3) * stds,
            -np.sqrt(3) * stds,
        ]
    )
    weights = np.array([1 - len(stds) / 3] + 2 * len(stds) * [1 / 6])
    next_states = np.repeat(state[np.newaxis], len(noise_points), axis=0)
    for k, inputs in enumerate(inputs_between(trajectory, driven)):
        for i, noise in enumerate(noise_points):
            next_states[i, k + 1] = state[k]
            try:
                advance(k * dt, next_states[i, k + 1], inputs, noise)
            except DivergenceError:
                next_states[i, k + 1] = np.nan
    return np.tensordot(weights, np.array(system.output(next_states)), axes=1)


def _free_run(trajectory: Trajectory, driven: Sequence[str], start: int, n_paths: int) -> Array:
    """Return the mean of every output (n, n_y) over the noise paths."""
    system = trajectory.system
    pieces = _pieces(trajectory, driven, start)
    problem = problem_of(system)

    def follow_path(noise: Array) -> Array:
        """Return the outputs (n, n_y) under a noise path (n, n_w), nan once they diverge.

        Up to sample `start` they are the true outputs.
        """
        states = trajectory.state.copy()
        work = np.empty((WORK_ROWS, trajectory.state.shape[1]))
        for first, last, values, rows in pieces:
            piece_states = states[first : last + 1]
            piece_noise = noise[first : last + 1]
            done, _, _ = follow(
                problem.address,
                first,
                problem.dt,
                problem.substeps,
                piece_states,
                values,
                rows,
                piece_noise,
                problem.parameters,
                problem.limits,
                work,
            )
            if done < last - first:
                states[first + done + 1 :] = np.nan
                break
        return np.array(system.output(states))

    def follow_pair(number: int) -> Array:
        """Return the mean of the outputs under a noise path and under its negative."""
        sequence = np.random.SeedSequence(trajectory.seed, spawn_key=(*b"noise floor", number))
        generator = np.random.default_rng(sequence)
        noise = held_noise(generator, len(trajectory.time), system.noise_std())
        if not noise.any():
            return follow_path(noise)
        return (follow_path(noise) + follow_path(-noise)) / 2

    mean = follow_pair(0)
    n_pairs = math.ceil(n_paths / 2) if system.noise_std().any() else 1
    with ThreadPoolExecutor(n_cores()) as pool:
        for first in range(1, n_pairs, PAIRS_PER_BATCH):
            numbers = range(first, min(first + PAIRS_PER_BATCH, n_pairs))
            pair_means = pool.map(follow_pair, numbers)
            for number, pair_mean in zip(numbers, pair_means, strict=True):
                mean = mean + (pair_mean - mean) / (number + 1)
    return mean


def _pieces(trajectory: Trajectory, driven: Sequence[str], start: int) -> tuple[Piece, ...]:
    """Cut the inputs from sample `start` on into pieces.

    If some inputs are held and others are interpolated, there is one piece for each sample.
    """
    system = trajectory.system
    all_pieces = trajectory.interpolation.pieces(
        trajectory.input, system.substeps, delays_of(system)
    )
    kept = [piece for piece in all_pieces if piece.last > start]
    if driven and any(piece.rows > 1 for piece in kept):
        rows = kept[0].rows
        return tuple(
            Piece(k, k + 1, inputs, rows)
            for k, inputs in enumerate(inputs_between(trajectory, driven))
            if k >= start
        )
    return tuple(
        Piece(max(first, start), last, values[max(start - first, 0) * rows :], rows)
        for first, last, values, rows in kept
    )
