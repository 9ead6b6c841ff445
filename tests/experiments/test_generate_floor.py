"""The noise floor: the mean over the process noise to come, against formulas and plain simulations."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from generating import configured

from experiments.generation.floor import find_floor
from experiments.plant import plant_of
from simulators import Signal, System, simulate
from simulators.noise import held_noise

START, N = 5, 20
PATHS = 4000


@dataclass(frozen=True)
class Walk(System):
    """Random walk, seen as its square and as it is."""

    states: ClassVar = (Signal("place", "m", "place"),)
    inputs: ClassVar = ()
    outputs: ClassVar = (Signal("square", "m^2", "square of the place"), Signal("seen", "m", "place"))
    noises: ClassVar = (Signal("push", "m/s", "push"), Signal("idle", "m/s", "channel without noise"))

    dt: float = 0.5
    substeps: int = 2
    noise: float = 0.3  # m/s
    wave: float = 0.0  # m/s, of the speed that depends on time
    lowest: float = -np.inf  # m

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = noise[0] + parameters[0] * math.cos(time)

    def parameters(self):
        return np.array([self.wave])

    def initial_state(self):
        return np.array([1.0])

    def state_limits(self):
        return np.array([self.lowest]), np.array([np.inf])

    def noise_std(self):
        return np.array([self.noise, 0.0])

    def output(self, state):
        return np.concatenate([state**2, state], axis=-1)


def test_means_of_a_random_walk():
    """With S the variance of the walk since the start: E y = x^2 + S, its variance over pairs: 2 S^2 / pairs."""
    found = find_floor(simulate(Walk(), n_samples=N, seed=1), (), START, PATHS)
    x = simulate(Walk(), n_samples=N, seed=1).state[:, 0]
    step = (0.3 * 0.5) ** 2
    np.testing.assert_allclose(found.one_step[1:], np.stack([x[:-1] ** 2 + step, x[:-1]], axis=1), rtol=1e-12)
    np.testing.assert_array_equal(found.one_step[0], [x[0] ** 2, x[0]])
    S, x0 = step * np.arange(N - START), x[START]
    error = np.sqrt(2 * S**2 / (PATHS / 2))
    assert (np.abs(found.free_run[START:, 0] - (x0**2 + S)) <= 5 * error).all()
    np.testing.assert_allclose(found.free_run[START:, 1], x0, rtol=1e-12)  # pairs cancel in what is linear
    np.testing.assert_array_equal(found.free_run[:START], np.stack([x**2, x], axis=1)[:START])


def test_every_pair_of_paths_counts_alike():
    trajectory = simulate(Walk(), n_samples=N, seed=1)
    sequences = [np.random.SeedSequence(1, spawn_key=(*b"noise floor", number)) for number in range(3)]
    noises = [held_noise(np.random.default_rng(one), N, trajectory.system.noise_std()) for one in sequences]
    walked = [0.5 * np.cumsum(noise[START:-1, 0]) for noise in noises]
    expected = trajectory.state[START, 0] ** 2 + np.mean(np.square(walked), axis=0)  # w and -w cancel in the middle
    np.testing.assert_allclose(find_floor(trajectory, (), START, 6).free_run[START + 1 :, 0], expected, rtol=1e-9)


def test_limits_of_the_states_count():
    """One step from a wall: half of the pushes lead away from it, those against it lead nowhere."""
    trajectory = simulate(Walk(lowest=1.0), n_samples=2, seed=3)
    found = find_floor(trajectory, (), 0, PATHS)
    away = 0.3 * 0.5 / math.sqrt(2 * math.pi)
    assert found.free_run[1, 1] == pytest.approx(1 + away, abs=5 * 0.15 / math.sqrt(PATHS))
    assert found.one_step[1, 1] == pytest.approx(1 + 0.3 * 0.5 * math.sqrt(3) / 6, rel=1e-12)  # of the rule


def test_time_goes_on_where_the_free_run_starts():
    trajectory = simulate(Walk(noise=0.0, wave=2.0), n_samples=N)
    found = find_floor(trajectory, (), START, 4)
    np.testing.assert_array_equal(found.free_run, trajectory.output)
    np.testing.assert_allclose(found.one_step, trajectory.output, rtol=1e-12)


def test_held_and_linear_inputs_together_under_noise():
    """The building is linear in its noise: pairs of paths give the noise-free run, however many there are."""
    plant = plant_of(configured("system=building", "interpolation=linear"))
    trajectory = plant.trajectory(N, 3)
    few, more = (find_floor(trajectory, plant.controller.inputs_driven, START, n_paths) for n_paths in (4, 20))
    np.testing.assert_array_equal(few.free_run[: START + 1], trajectory.output[: START + 1])
    np.testing.assert_allclose(few.free_run, more.free_run, rtol=1e-9)
    held = find_floor(trajectory, plant.inputs, START, 4)
    assert np.abs(held.free_run - few.free_run).max() > 1e-4


def test_a_floor_that_diverges_is_not_a_number():
    @dataclass(frozen=True)
    class Cliff(Walk):
        @staticmethod
        def drift(time, state, input, noise, parameters, derivative):
            derivative[0] = noise[0] + state[0] ** 9

    trajectory = simulate(Walk(noise=0.0), n_samples=N)
    found = find_floor(type(trajectory)(Cliff(), *list(vars(trajectory).values())[1:]), (), START, 4)
    assert np.isfinite(found.free_run[: START + 1]).all()
    assert np.isnan(found.free_run[-1]).all()
