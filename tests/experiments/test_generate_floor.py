"""The noise floor: the mean over the future process noise, compared with formulas."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from experiments.generate.floor import find_floor
from experiments.plant.plant import plant_of
from helpers.benchmarks import compose_benchmark
from simulators import Change, Signal, System, Trajectory, simulate
from simulators.noise import held_noise

#: last sample at which the free run knows the true state
START = 5
N_SAMPLES = 20


@dataclass(frozen=True)
class Walk(System):
    """Random walk whose outputs are the square of its place and the place."""

    states: ClassVar = (Signal("place", "m", "place"),)
    inputs: ClassVar = ()
    outputs: ClassVar = (
        Signal("square", "m^2", "square of the place"),
        Signal("seen", "m", "place"),
    )
    noises: ClassVar = (
        Signal("push", "m/s", "push"),
        Signal("idle", "m/s", "channel without noise"),
    )

    dt: float = 0.5
    substeps: int = 2
    noise: float = 0.3  # m/s
    wave: float = 0.0  # amplitude of a speed that depends on time, m/s
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


#: standard deviation of the change of the place in one sample, m
STEP_STD = 0.3 * 0.5


def test_one_step_ahead_the_mean_of_the_square_includes_the_variance_of_a_step():
    trajectory = simulate(Walk(), n_samples=N_SAMPLES, seed=1)

    floor = find_floor(trajectory, (), START, 6)

    x = trajectory.state[:, 0]
    expected = np.stack([x[:-1] ** 2 + STEP_STD**2, x[:-1]], axis=1)
    np.testing.assert_allclose(floor.one_step[1:], expected, rtol=1e-12)
    np.testing.assert_array_equal(floor.one_step[0], [x[0] ** 2, x[0]])


def test_in_free_run_the_mean_is_over_pairs_of_opposite_paths():
    """The linear terms of w and -w cancel in each pair."""
    n_pairs = 3
    trajectory = simulate(Walk(), n_samples=N_SAMPLES, seed=1)

    floor = find_floor(trajectory, (), START, 2 * n_pairs)

    x = trajectory.state[:, 0]
    walked = []
    for number in range(n_pairs):
        seed = np.random.SeedSequence(1, spawn_key=(*b"noise floor", number))
        noise = held_noise(np.random.default_rng(seed), N_SAMPLES, trajectory.system.noise_std())
        walked.append(0.5 * np.cumsum(noise[START:-1, 0]))
    square = x[START] ** 2 + np.mean(np.square(walked), axis=0)
    np.testing.assert_allclose(floor.free_run[START + 1 :, 0], square, rtol=1e-9)
    np.testing.assert_allclose(floor.free_run[START:, 1], x[START], rtol=1e-12)
    known = np.stack([x**2, x], axis=1)[: START + 1]
    np.testing.assert_array_equal(floor.free_run[: START + 1], known)


def test_limits_of_the_states_count():
    """From a limit, half of the pushes lead away, and the other half lead nowhere."""
    n_paths = 4000
    trajectory = simulate(Walk(lowest=1.0), n_samples=2, seed=3)

    floor = find_floor(trajectory, (), 0, n_paths)

    mean = 1 + STEP_STD / math.sqrt(2 * math.pi)
    tolerance = 5 * STEP_STD / math.sqrt(n_paths)
    assert floor.free_run[1, 1] == pytest.approx(mean, abs=tolerance)
    mean_of_rule = 1 + STEP_STD * math.sqrt(3) / 6  # one of three values leads away
    assert floor.one_step[1, 1] == pytest.approx(mean_of_rule, rel=1e-12)


def test_the_floor_knows_how_parameters_change():
    """Both means follow ``x[k+1] = x[k] + a[k] (sin t[k+1] - sin t[k])``."""
    change = Change("wave", 2.0, start=3.0, end=6.0)
    trajectory = simulate(Walk(changes=[change]), n_samples=N_SAMPLES, seed=1)

    floor = find_floor(trajectory, (), START, 4)

    x = trajectory.state[:, 0]
    t = trajectory.time
    amplitude = np.interp(t, [3.0, 6.0], [0.0, 2.0])[:-1]
    steps = amplitude * np.diff(np.sin(t))
    assert abs(steps[START + 5 :]).min() > 0.01
    np.testing.assert_allclose(
        floor.one_step[1:, 1], x[:-1] + steps, atol=1e-4
    )  # the error of Runge-Kutta
    free_run = x[START] + np.cumsum(steps[START:])
    np.testing.assert_allclose(floor.free_run[START + 1 :, 1], free_run, atol=1e-3)


def test_held_and_linear_inputs_count_together():
    """The building is linear in its noise: any number of pairs gives the noise-free run."""
    plant = plant_of(compose_benchmark("system=building", "interpolation=linear"))
    trajectory = plant.trajectory(N_SAMPLES, 3)
    driven = plant.controller.inputs_driven

    of_4_paths = find_floor(trajectory, driven, START, 4).free_run
    of_20_paths = find_floor(trajectory, driven, START, 20).free_run
    all_inputs_held = find_floor(trajectory, plant.inputs, START, 4).free_run

    np.testing.assert_array_equal(of_4_paths[: START + 1], trajectory.output[: START + 1])
    np.testing.assert_allclose(of_4_paths, of_20_paths, rtol=1e-9)
    assert np.abs(all_inputs_held - of_4_paths).max() > 1e-4


@dataclass(frozen=True)
class Cliff(Walk):
    """A walk that runs away."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = noise[0] + state[0] ** 9


def test_a_floor_that_diverges_is_not_a_number():
    trajectory = simulate(Walk(noise=0.0), n_samples=N_SAMPLES)
    of_cliff = Trajectory(**(vars(trajectory) | {"system": Cliff()}))

    floor = find_floor(of_cliff, (), START, 4)

    assert np.isfinite(floor.free_run[: START + 1]).all()
    assert np.isnan(floor.free_run[-1]).all()
