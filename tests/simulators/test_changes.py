"""Plants whose parameters change, and sensors that fail."""

from dataclasses import replace

import numpy as np
import pytest

from simulators import (
    PI,
    Building,
    CascadedTanks,
    Change,
    MeasurementNoise,
    OutlierNoise,
    VanDerPol,
    closed_loop,
    collect,
    simulate,
    simulate_many,
)
from simulators.runge_kutta import integrate

N = 60
RAMP = Change("lower_outflow", 0.028, start=80.0, end=120.0)  # samples 20 to 30 of 4 s


def pump(n=N):
    return np.random.default_rng(0).uniform(1.0, 4.0, n)


def test_a_changing_plant_is_one_plant_after_the_other():
    """Held over each sample: the same bits as sample by sample with the parameters of that
    sample.
    """
    u = pump()
    none = np.zeros((2, 2))
    found = simulate(CascadedTanks(changes=(RAMP,)), u)
    x = CascadedTanks().initial_state()
    for k in range(N - 1):
        np.testing.assert_array_equal(found.state[k], x)
        share = np.clip((4.0 * k - 80.0) / 40.0, 0.0, 1.0)
        plant = CascadedTanks(lower_outflow=0.04659 + share * (0.028 - 0.04659))
        x = integrate(plant, x, np.full((2, 1), u[k]), none).states[1]
    stored = found.to_dataset()["parameter_lower_outflow"].values
    np.testing.assert_allclose(
        stored[[0, 20, 25, 30, 59]], [0.04659, 0.04659, 0.037295, 0.028, 0.028]
    )
    many = simulate_many(CascadedTanks(changes=(RAMP,)), u, n_trajectories=2)
    np.testing.assert_array_equal(many.state[1], found.state)


def test_a_loop_changes_as_the_open_loop_does_and_changes_follow_each_other():
    step = Change("wall_resistance", 0.01, 9000.0)
    back = Change("wall_resistance", 0.003, 27000.0)
    plant = Building(
        changes=[step, {"parameter": "wall_resistance", "to": 0.003, "start": 27000.0}]
    )
    assert plant == Building(changes=(step, back))
    ambient = {"ambient_temperature": np.full(N, 3.0)}
    loop = collect(closed_loop(plant, PI(), ambient, seed=2), plant, seed=2)
    np.testing.assert_array_equal(simulate(plant, loop.input, seed=2).state, loop.state)
    values = plant.values_over(loop.time)["wall_resistance"]
    assert set(values[:10]) == {Building().wall_resistance}
    assert set(values[10:30]) == {0.01}
    assert set(values[30:]) == {0.003}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [{"parameter": "outflow", "to": 1.0, "start": 0.0}],
            "expected a parameter among .*lower_outflow",
        ),
        ([{"parameter": "dt", "to": 1.0, "start": 0.0}], "expected a parameter among"),
        (
            [{"parameter": "initial_upper", "to": 1.0, "start": 0.0}],
            "change nothing in the drift",
        ),
        ([{"parameter": "pump_gain", "to": -1.0, "start": 4.0}], "pump_gain=-1"),
        ([{"parameter": "pump_gain", "to": 0.1}], "changes=.*start"),
        ("soon", "changes="),
    ],
)
def test_impossible_changes_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        simulate(CascadedTanks(changes=changes), pump())


@pytest.mark.parametrize(
    "wrong", [{"to": np.nan}, {"start": -1.0}, {"end": 10.0}, {"end": "later"}]
)
def test_a_change_has_an_end_after_its_start(wrong):
    with pytest.raises(ValueError, match=f"Change\\({next(iter(wrong))}="):
        replace(RAMP, **wrong)


FAILING = OutlierNoise(
    std=0.01,
    share=0.1,
    size=0.5,
    dropouts=0.05,
    dropout_value=-1.0,
    stuck_from=40,
    stuck_samples=5,
)


def test_sensors_fail_in_their_share_and_the_noise_stays():
    u = pump(4000)
    plant = CascadedTanks()
    clean = simulate(plant, u, seed=1, measurement=MeasurementNoise(std=0.01))
    found = simulate(plant, u, seed=1, measurement=FAILING)
    np.testing.assert_array_equal(found.state, clean.state)
    error = np.delete((found.output - clean.output).ravel(), slice(40, 45))
    dropped = np.delete(found.output.ravel(), slice(40, 45)) == -1.0
    assert set(np.round(error[~dropped], 12)) == {-0.5, 0.0, 0.5}
    assert abs(np.mean(np.round(error[~dropped], 12) != 0) - 0.1 / 0.95) < 0.02
    assert abs(np.mean(error[~dropped] > 0.1) - np.mean(error[~dropped] < -0.1)) < 0.02
    assert abs(dropped.mean() - 0.05) < 0.015
    assert set(found.output[39:45, 0]) == {found.output[39, 0]}
    many = simulate_many(plant, u, seeds=[1], measurement=FAILING)
    np.testing.assert_array_equal(many.output[0], found.output)
    without = OutlierNoise(std=0.01, share=0.0)
    np.testing.assert_array_equal(
        simulate(plant, u, seed=1, measurement=without).output, clean.output
    )


def test_a_controller_sees_what_the_sensor_shows():
    ambient = {"ambient_temperature": np.full(N, 3.0)}
    sensor = OutlierNoise(std=0.01, share=0.1, size=5.0, stuck_from=20, stuck_samples=10)
    found = collect(
        closed_loop(Building(), PI(), ambient, seed=4, measurement=sensor),
        Building(),
        seed=4,
    )
    np.testing.assert_array_equal(sensor.measure(found.noise_free_output, 4), found.output)
    silent = collect(closed_loop(Building(), PI(), ambient, seed=4), Building(), seed=4)
    assert not np.array_equal(found.input, silent.input)


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": -0.1},
        {"share": 0.6, "dropouts": 0.5},
        {"size": "large"},
        {"size": [-1.0]},
        {"dropout_value": np.nan},
        {"stuck_from": 1.5},
        {"stuck_samples": -1},
    ],
)
def test_impossible_faults_are_refused(wrong):
    with pytest.raises(ValueError, match="OutlierNoise"):
        OutlierNoise(**wrong)
    with pytest.raises(ValueError, match="size"):
        simulate(VanDerPol(), n_samples=5, measurement=OutlierNoise(size=[1.0, 2.0]))


def test_parameters_that_the_noise_or_the_output_know_do_not_change():
    """Not even beside one of the drift: the noise is drawn, and the output made, with those of the
    start.
    """

    class Scaled(CascadedTanks):
        def output(self, state):
            return state[..., 1:] * self.lower_outflow

    with pytest.raises(ValueError, match="change the output or the process noise"):
        simulate(CascadedTanks(changes=[RAMP, Change("upper_noise_std", 0.1, 0.0)]), pump())
    with pytest.raises(ValueError, match="change the output or the process noise"):
        simulate(Scaled(changes=[RAMP]), pump())
