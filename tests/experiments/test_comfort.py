"""Heat and comfort of a simulated building, and the heat at a given discomfort."""

from dataclasses import replace

import numpy as np
import pytest

import simulators
from experiments.plant.comfort import (
    discomfort,
    heat_at,
    heat_of_water,
)
from simulators import Building, CascadedTanks, Change, ComfortSchedule


def heat_by_small_steps(trajectory, n_steps):
    """Return the heat of each sample [J], by explicit Euler steps of the equations."""
    system = trajectory.system
    step = system.dt / n_steps
    heats = []
    for k in range(len(trajectory.time) - 1):
        x = trajectory.state[k].copy()
        heat = 0.0
        for _ in range(n_steps):
            flow = trajectory.input[k, 1]
            power = system.water_heat_capacity * flow * (system.supply_temperature - x[2])
            heat += step * power
            x = x + step * system.derivative(0.0, x, trajectory.input[k], trajectory.noise[k])
        heats.append(heat)
    return np.array(heats)


def test_heat_of_each_sample_is_that_of_small_steps():
    system = Building(initial_wall=19.0)
    flows = np.array([0.0, 0.1, 0.02, 0.0, 0.05, 0.05])
    outside = np.array([-5.0, 0.0, 3.0, 5.0, -2.0, 1.0])
    trajectory = simulators.simulate(system, np.column_stack([outside, flows]), seed=3)
    expected = heat_by_small_steps(trajectory, 5000)
    np.testing.assert_allclose(heat_of_water(trajectory), expected, rtol=2e-3, atol=2e3)
    assert expected[1] > 1e6
    assert heat_of_water(trajectory).sum() == pytest.approx(expected.sum(), rel=1e-3)


def test_a_clogged_radiator_changes_nothing_in_the_balance():
    change = Change("radiator_resistance", 0.004, 1800.0)
    system = Building(initial_wall=19.0, changes=[change])
    constant = np.tile([0.0, 0.02], (6, 1))
    changed = simulators.simulate(system, constant, noise=False)
    as_it_is_then = replace(Building(initial_wall=19.0), radiator_resistance=0.004)
    later = simulators.simulate(
        as_it_is_then, constant[2:], noise=False, initial_state=changed.state[2]
    )
    np.testing.assert_allclose(heat_of_water(changed)[2:], heat_of_water(later))


def test_heat_is_that_of_buildings_whose_wall_stays():
    tanks = simulators.simulate(CascadedTanks(), np.ones(5))
    with pytest.raises(ValueError, match="expected a trajectory of Building, got CascadedTanks"):
        heat_of_water(tanks)
    changing = Building(changes=[Change("wall_resistance", 0.004, 1800.0)])
    trajectory = simulators.simulate(changing, np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"\['wall_resistance'\] change"):
        heat_of_water(trajectory)


def test_discomfort_counts_degrees_and_hours_outside_the_band():
    trajectory = simulators.simulate(Building(), np.zeros((97, 2)), noise=False)
    zone = np.full((97, 1), 20.0)
    zone[40:44] = 24.5  # 10 to 11 o'clock
    zone[92:96] = 16.0  # 23 to 24 o'clock
    trajectory = replace(trajectory, noise_free_output=zone)
    found = discomfort(trajectory, ComfortSchedule())
    assert found[0] == 0.0  # relaxed at night
    assert found[24] == 0.25  # 1 K below, a quarter of an hour
    assert found[40] == 0.125
    assert found[92] == 0.25
    assert found.sum() == 0.25 * (60 + 0.5 * 4 + 4)


def test_heat_is_interpolated_between_the_best_runs():
    discomforts = [100.0, 10.0, 1000.0, 50.0]
    heats = [14000.0, 15000.0, 13000.0, 16000.0]  # the last one is beaten in both
    middle = 10**1.5
    assert heat_at(middle, discomforts, heats) == pytest.approx(14500.0)
    assert heat_at(100.0, discomforts, heats) == pytest.approx(14000.0)
    assert heat_at(10.0, discomforts, heats) == pytest.approx(15000.0)


def test_runs_that_cost_more_heat_for_less_comfort_are_left_out():
    assert np.isnan(heat_at(30.0, [10.0, 20.0, 90.0], [3000.0, 3100.0, 3200.0]))


@pytest.mark.parametrize("wanted", [9.9, 1001.0])
def test_heat_is_not_extrapolated(wanted):
    assert np.isnan(heat_at(wanted, [10.0, 1000.0], [15000.0, 13000.0]))


@pytest.mark.parametrize(
    ("wanted", "discomforts", "heats"),
    [
        (5.0, [], []),
        (5.0, [1.0, 10.0], [1.0]),
        (5.0, [0.0, 10.0], [2.0, 1.0]),
        (5.0, [1.0, 10.0], [np.nan, 1.0]),
        (0.0, [1.0, 10.0], [2.0, 1.0]),
        (np.nan, [1.0, 10.0], [2.0, 1.0]),
    ],
)
def test_impossible_points_are_refused(wanted, discomforts, heats):
    with pytest.raises(ValueError, match="heat_at: expected as many finite heats"):
        heat_at(wanted, discomforts, heats)
