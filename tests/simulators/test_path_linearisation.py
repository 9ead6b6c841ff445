"""The samples of a simulation, linearised, compared with the simulation of other inputs."""

import numpy as np
import pytest

from simulators import (
    Building,
    CascadedTanks,
    Change,
    Heater,
    Servo,
    UserError,
    VanDerPol,
    linearise,
    linearise_path,
    simulate,
)

HOLD = 4  # samples


def random_input(low, high, n_samples, n_inputs):
    """Return levels (n_samples, n_inputs) that are held for some samples."""
    n_levels = -(-n_samples // HOLD)
    levels = np.random.default_rng(1).uniform(low, high, (n_levels, n_inputs))
    return np.repeat(levels, HOLD, axis=0)[:n_samples]


CASES = {
    "building": (Building(), [20.0, 18.0, 25.0], random_input([-5.0, 0.0], [10.0, 0.1], 20, 2)),
    "tanks": (CascadedTanks(), [4.0, 5.0], random_input([1.0], [4.0], 20, 1)),
    "servo": (Servo(), None, random_input([-5.0], [5.0], 20, 1)),
}


@pytest.mark.parametrize(("system", "state", "u"), CASES.values(), ids=CASES)
def test_states_and_outputs_are_those_of_the_simulation(system, state, u):
    state = system.initial_state() if state is None else state
    path = linearise_path(system, state, u)
    trajectory = simulate(system, np.vstack([u, u[-1:]]), initial_state=state, noise=False)
    np.testing.assert_array_equal(path.states, trajectory.state)
    np.testing.assert_array_equal(path.outputs, trajectory.noise_free_output)


@pytest.mark.parametrize(("system", "state", "u"), CASES.values(), ids=CASES)
def test_derivatives_predict_small_changes_of_state_and_input(system, state, u):
    state = np.asarray(system.initial_state() if state is None else state)
    rng = np.random.default_rng(0)
    moved_u = u + 1e-4 * rng.normal(size=u.shape)
    moved_state = state + 1e-4 * rng.normal(size=state.shape)
    path = linearise_path(system, state, u)
    moved = linearise_path(system, moved_state, moved_u)
    x = moved_state - state
    for k in range(len(u)):
        x = path.A[k] @ x + path.B[k] @ (moved_u - u)[k]
        change = moved.states[k + 1] - path.states[k + 1]
        np.testing.assert_allclose(x, change, rtol=1e-2, atol=1e-6)
        expected = moved.outputs[k + 1] - path.outputs[k + 1]
        np.testing.assert_allclose(path.C[k + 1] @ x, expected, rtol=1e-2, atol=1e-6)


def test_one_sample_of_a_plant_that_is_linear_for_its_input_is_discretised_exactly():
    state = [20.0, 18.0, 25.0]
    input = [0.0, 0.03]
    path = linearise_path(Building(), state, [input])
    exact = linearise(Building(substeps=1), input, state)
    np.testing.assert_allclose(path.A[0], exact.A, rtol=1e-5)
    np.testing.assert_allclose(path.C[0], exact.C, rtol=1e-8)


def test_noise_is_held_over_a_sample():
    system = Building()
    u = random_input([-5.0, 0.0], [10.0, 0.1], 8, 2)
    noisy = simulate(system, np.vstack([u, u[-1:]]), seed=2)
    path = linearise_path(system, system.initial_state(), u, noise=True)
    x = np.zeros(3)
    for k in range(len(u)):
        x = path.A[k] @ x + path.G[k] @ noisy.noise[k]
        np.testing.assert_allclose(path.states[k + 1] + x, noisy.state[k + 1], rtol=1e-6)
    assert linearise_path(system, system.initial_state(), u).G.shape == (8, 3, 0)


def test_chosen_inputs_are_differentiated_in_their_order():
    system = Building()
    u = random_input([-5.0, 0.0], [10.0, 0.1], 6, 2)
    both = linearise_path(system, [20.0, 18.0, 25.0], u)
    chosen = ["mass_flow", "ambient_temperature"]
    turned = linearise_path(system, [20.0, 18.0, 25.0], u, inputs=chosen)
    np.testing.assert_array_equal(turned.B, both.B[:, :, ::-1])
    alone = linearise_path(system, [20.0, 18.0, 25.0], u, inputs=["mass_flow"])
    np.testing.assert_array_equal(alone.B, both.B[:, :, 1:])
    assert np.all(np.abs(both.B).max(axis=(0, 1)) > 0)


def test_parameters_are_those_at_the_time_of_each_sample():
    change = Change("radiator_resistance", 0.004, 4 * 900.0)
    u = np.tile([0.0, 0.02], (3, 1))
    state = [20.0, 18.0, 25.0]
    changing = Building(changes=[change])
    begun = linearise_path(changing, state, u, time=3 * 900.0)
    before = linearise_path(Building(), state, u)
    after = linearise_path(Building(radiator_resistance=0.004), begun.states[1], u)
    np.testing.assert_array_equal(begun.A[0], before.A[0])
    np.testing.assert_array_equal(begun.states[1], before.states[1])
    np.testing.assert_array_equal(begun.A[1:], after.A[:2])


def test_states_after_a_divergence_are_nan():
    path = linearise_path(VanDerPol(), [1e8, 1e8], np.zeros((5, 0)))
    assert np.isfinite(path.states[0]).all()
    assert np.isnan(path.states[1:]).all()
    assert np.isnan(path.outputs[1:]).all()


@pytest.mark.parametrize(
    ("system", "state", "u", "settings", "message"),
    [
        (Building(), [20.0], [[0.0, 0.0]], {}, r"expected a state of .* got shapes \(1,\)"),
        (Building(), [20.0, 18.0, 20.0], [[0.0]], {}, r"got shapes \(3,\) and \(1, 1\)"),
        (Building(), [20.0, 18.0, np.nan], [[0.0, 0.0]], {}, "expected finite numbers"),
        (Building(), [20.0, 18.0, 20.0], [[0.0, 0.0]], {"inputs": ["flow"]}, r"got \['flow'\]"),
        (Building(), [20.0, 18.0, 20.0], [[0.0, 0.0]], {"inputs": "mass_flow"}, "list of inputs"),
        (Building(), [20.0, 18.0, 20.0], [[0.0, 0.0]], {"time": -900.0}, "at least 0 s, got -900"),
        (Building(), [20.0, 18.0, 20.0], [[0.0, 0.0]], {"time": "now"}, "at least 0 s, got 'now'"),
        (Building(), [20.0, 18.0, 20.0], np.zeros((0, 2)), {}, r"with T >= 1, .* and \(0, 2\)"),
        (CascadedTanks(), [-1.0, 3.0], [[1.0]], {}, r"from \[0.0, 0.0\] to \[10.0, 10.0\], got"),
        (Heater(heat_delay=2), [40.0, 40.0], [[50.0, 4.0]], {}, "act at once"),
    ],
)
def test_what_does_not_fit_is_refused(system, state, u, settings, message):
    with pytest.raises(UserError, match=message):
        linearise_path(system, state, u, **settings)
