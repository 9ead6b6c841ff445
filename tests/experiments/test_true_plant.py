"""The true equations of a plant as what a plan predicts with."""

import numpy as np
import pytest

from experiments.plant.true_plant import KnowsPlant, TruePlant
from simulators import Building, CascadedTanks, Change, simulate
from sysid.control.prediction import Situation

STATE = [20.0, 18.0, 25.0]
N_STEPS = 12
OUTSIDE = np.linspace(-5.0, 5.0, N_STEPS + 1)
FLOW = np.random.default_rng(0).uniform(0.0, 0.1, (N_STEPS, 1))


def true_building(**settings):
    forecast = {"ambient_temperature": OUTSIDE, "price": np.zeros(3)}
    return TruePlant(Building(), STATE, forecast, ["mass_flow"], **settings)


def test_mean_is_the_simulation_without_noise():
    u = np.column_stack([OUTSIDE, np.append(FLOW, 0.0)])
    trajectory = simulate(Building(), u, initial_state=STATE, noise=False)
    prediction = true_building().linearise(FLOW)
    np.testing.assert_array_equal(prediction.mean, trajectory.noise_free_output[1:])


def finite_differences(predictor, driven, size):
    """Return the derivatives (T, m, T, q) of the outputs of a plan by differences of each input."""
    columns = []
    for j in np.ndindex(driven.shape):
        moved = np.zeros_like(driven)
        moved[j] = size
        above = predictor.linearise(driven + moved).mean
        below = predictor.linearise(driven - moved).mean
        columns.append((above - below) / (2 * size))
    return np.stack(columns, axis=2).reshape(*columns[0].shape, *driven.shape)


def test_sensitivity_of_the_building_is_that_of_finite_differences():
    predictor = true_building()
    found = predictor.linearise(FLOW).sensitivity
    expected = finite_differences(predictor, FLOW, 1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected).max() > 1.0
    assert not np.triu(found[:, 0, :, 0], 1).any()


def test_sensitivity_of_the_tanks_is_that_of_finite_differences():
    voltage = np.random.default_rng(1).uniform(1.5, 3.0, (N_STEPS, 1))
    predictor = TruePlant(CascadedTanks(), [4.0, 5.0], {}, ["pump_voltage"])
    found = predictor.linearise(voltage).sensitivity
    expected = finite_differences(predictor, voltage, 1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_standard_deviation_is_that_of_simulations_with_noise():
    u = np.column_stack([OUTSIDE, np.append(FLOW, 0.0)])
    ends = np.array(
        [
            simulate(Building(), u, initial_state=STATE, seed=seed).noise_free_output[1:, 0]
            for seed in range(400)
        ]
    )
    found = true_building().standard_deviation(FLOW)[:, 0]
    np.testing.assert_allclose(found, ends.std(axis=0), rtol=0.15)
    assert not true_building(noise=False).standard_deviation(FLOW).any()


def test_parameters_are_those_at_the_time_of_the_situation():
    changes = [Change("radiator_resistance", 0.004, 900.0)]
    outputs = {"zone_temperature": np.array([20.0])}
    forecast = {"ambient_temperature": OUTSIDE}
    source = KnowsPlant(Building(changes=changes))
    means = []
    for time in (0.0, 900.0):
        situation = Situation(time, outputs, {}, np.array(STATE))
        predictor = source(None, situation, forecast, ["mass_flow"])
        means.append(predictor.linearise(FLOW).mean)
    changed = TruePlant(Building(radiator_resistance=0.004), STATE, forecast, ["mass_flow"])
    np.testing.assert_array_equal(means[1], changed.linearise(FLOW).mean)
    assert not np.array_equal(means[0], means[1])


def test_a_forecast_that_ends_too_early_is_refused():
    with pytest.raises(ValueError, match="ambient_temperature"):
        true_building().linearise(np.zeros((N_STEPS + 1, 1)))


def test_the_state_must_be_known():
    outputs = {"zone_temperature": np.array([20.0])}
    source = KnowsPlant(Building())
    known = Situation(900.0, outputs, {}, np.array(STATE))
    predictor = source(None, known, {"ambient_temperature": OUTSIDE}, ["mass_flow"])
    expected = true_building().linearise(FLOW)
    np.testing.assert_array_equal(predictor.linearise(FLOW).mean, expected.mean)
    with pytest.raises(ValueError, match="expected the true state"):
        source(None, known._replace(state=None), {}, ["mass_flow"])
