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

N_CHANGING_SAMPLES = 60


def random_voltage(n=N_CHANGING_SAMPLES):
    """Return a pump voltage (n,) [V] for the cascaded tanks."""
    return np.random.default_rng(0).uniform(1.0, 4.0, n)


def simulate_building_in_loop(plant, seed, **options):
    """Return the record of a building under its PI controller at 3 degC outside."""
    ambient = {"ambient_temperature": np.full(N_CHANGING_SAMPLES, 3.0)}
    return collect(closed_loop(plant, PI(), ambient, seed=seed, **options), plant, seed=seed)


# --- changes of a plant ---------------------------------------------------------------------------

# a ramp over the samples 20 to 30, of 4 s each
RAMP = Change("lower_outflow", 0.028, start=80.0, end=120.0)


def test_changing_plant_is_one_plant_after_the_other():
    """A parameter is held over each sample: the bits are those of a plant for each sample."""
    u = random_voltage()
    no_noise = np.zeros((2, 2))
    run = simulate(CascadedTanks(changes=(RAMP,)), u)
    x = CascadedTanks().initial_state()
    for k in range(N_CHANGING_SAMPLES - 1):
        np.testing.assert_array_equal(run.state[k], x)
        share_of_ramp = np.clip((4.0 * k - 80.0) / 40.0, 0.0, 1.0)
        plant = CascadedTanks(lower_outflow=0.04659 + share_of_ramp * (0.028 - 0.04659))
        x = integrate(plant, x, np.full((2, 1), u[k]), no_noise).states[1]


def test_record_of_a_changing_plant_holds_the_values_of_its_parameter():
    run = simulate(CascadedTanks(changes=(RAMP,)), random_voltage())
    values = run.to_dataset()["parameter_lower_outflow"].values
    expected = [0.04659, 0.04659, 0.037295, 0.028, 0.028]
    np.testing.assert_allclose(values[[0, 20, 25, 30, 59]], expected)


def test_many_changing_plants_are_simulated_as_one():
    plant = CascadedTanks(changes=(RAMP,))
    many = simulate_many(plant, random_voltage(), n_trajectories=2)
    run = simulate(plant, random_voltage())
    np.testing.assert_array_equal(many.state[1], run.state)


HIGHER_RESISTANCE = Change("wall_resistance", 0.01, 9000.0)
LOWER_RESISTANCE = Change("wall_resistance", 0.003, 27000.0)


def test_changes_may_be_given_as_dictionaries():
    lower = {"parameter": "wall_resistance", "to": 0.003, "start": 27000.0}
    from_dictionary = Building(changes=[HIGHER_RESISTANCE, lower])
    assert from_dictionary == Building(changes=(HIGHER_RESISTANCE, LOWER_RESISTANCE))


def test_plant_in_a_loop_changes_as_in_open_loop():
    plant = Building(changes=(HIGHER_RESISTANCE, LOWER_RESISTANCE))
    loop = simulate_building_in_loop(plant, seed=2)
    np.testing.assert_array_equal(simulate(plant, loop.input, seed=2).state, loop.state)
    values = plant.values_over(loop.time)["wall_resistance"]
    assert set(values[:10]) == {Building().wall_resistance}
    assert set(values[10:30]) == {0.01}
    assert set(values[30:]) == {0.003}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            [{"parameter": "outflow", "to": 1.0, "start": 0.0}],
            "expected a parameter among .*lower_outflow",
            id="unknown parameter",
        ),
        pytest.param(
            [{"parameter": "dt", "to": 1.0, "start": 0.0}],
            "expected a parameter among",
            id="sampling time",
        ),
        pytest.param(
            [{"parameter": "initial_upper", "to": 1.0, "start": 0.0}],
            "change nothing in the drift",
            id="initial state",
        ),
        pytest.param(
            [{"parameter": "pump_gain", "to": -1.0, "start": 4.0}], "pump_gain=-1", id="bad value"
        ),
        pytest.param([{"parameter": "pump_gain", "to": 0.1}], "changes=.*start", id="no start"),
        pytest.param("soon", "changes=", id="text"),
    ],
)
def test_impossible_changes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        simulate(CascadedTanks(changes=changes), random_voltage())


@pytest.mark.parametrize(
    ("field", "value"), [("to", np.nan), ("start", -1.0), ("end", 10.0), ("end", "later")]
)
def test_bad_fields_of_a_change_are_refused(field, value):
    """A change has a finite value and a start, and an end only after its start."""
    with pytest.raises(ValueError, match=rf"Change\({field}="):
        replace(RAMP, **{field: value})


class TanksWithParameterInOutput(CascadedTanks):
    """Tanks whose output depends on a parameter of the drift."""

    def output(self, state):
        return state[..., 1:] * self.lower_outflow


@pytest.mark.parametrize(
    "plant",
    [
        CascadedTanks(changes=[RAMP, Change("upper_noise_std", 0.1, 0.0)]),
        TanksWithParameterInOutput(changes=[RAMP]),
    ],
    ids=["noise", "output"],
)
def test_changes_of_the_noise_or_the_output_are_refused(plant):
    """The noise is drawn, and the output computed, with the parameters of the start."""
    with pytest.raises(ValueError, match="change the output or the process noise"):
        simulate(plant, random_voltage())


# --- sensors that fail ----------------------------------------------------------------------------

FAILING_SENSOR = OutlierNoise(
    std=0.01,
    share=0.1,
    size=0.5,
    dropouts=0.05,
    dropout_value=-1.0,
    stuck_from=40,
    stuck_samples=5,
)
STUCK = slice(40, 45)


@pytest.fixture(scope="module")
def failing_record():
    """Return a record of the tanks, 4000 samples, whose sensor fails."""
    return simulate(CascadedTanks(), random_voltage(4000), seed=1, measurement=FAILING_SENSOR)


@pytest.fixture(scope="module")
def clean_record():
    """Return the same record with measurement noise only."""
    noise = MeasurementNoise(std=0.01)
    return simulate(CascadedTanks(), random_voltage(4000), seed=1, measurement=noise)


def test_failing_sensor_changes_neither_the_plant_nor_the_noise(failing_record, clean_record):
    np.testing.assert_array_equal(failing_record.state, clean_record.state)
    without_faults = OutlierNoise(std=0.01, share=0.0)
    run = simulate(CascadedTanks(), random_voltage(4000), seed=1, measurement=without_faults)
    np.testing.assert_array_equal(run.output, clean_record.output)


def test_outliers_and_dropouts_have_their_shares(failing_record, clean_record):
    output = np.delete(failing_record.output.ravel(), STUCK)
    expected = np.delete(clean_record.output.ravel(), STUCK)
    is_dropped = output == -1.0
    assert abs(is_dropped.mean() - 0.05) < 0.015
    error = np.round((output - expected)[~is_dropped], 12)
    assert set(error) == {-0.5, 0.0, 0.5}
    share_of_outliers = 0.1 / 0.95  # of the samples that did not drop out
    assert abs(np.mean(error != 0) - share_of_outliers) < 0.02
    assert abs(np.mean(error > 0.1) - np.mean(error < -0.1)) < 0.02


def test_sizes_of_outliers_are_between_the_smallest_and_the_largest(clean_record):
    sensor = OutlierNoise(std=0.01, share=0.1, size=2.0, largest_size=6.0)
    record = simulate(CascadedTanks(), random_voltage(4000), seed=1, measurement=sensor)
    error = (record.output - clean_record.output).ravel()
    sizes = np.abs(error[np.abs(error) > 1e-9])
    assert abs(len(sizes) / 4000 - 0.1) < 0.02
    assert sizes.min() >= 2.0 - 1e-9
    assert sizes.max() <= 6.0 + 1e-9
    np.testing.assert_allclose(np.quantile(sizes, [0.25, 0.5, 0.75]), [3.0, 4.0, 5.0], atol=0.3)
    assert abs(np.mean(error > 1.0) - np.mean(error < -1.0)) < 0.02


def test_missing_samples_are_nan_and_change_nothing_else(failing_record):
    sensor = replace(FAILING_SENSOR, missing=80, stuck_samples=0)
    complete = simulate(
        CascadedTanks(), random_voltage(4000), seed=1, measurement=sensor.complete()
    )
    record = simulate(CascadedTanks(), random_voltage(4000), seed=1, measurement=sensor)
    is_missing = np.isnan(record.output).all(axis=1)
    assert is_missing.sum() == 80
    assert not is_missing[0]
    np.testing.assert_array_equal(record.output[~is_missing], complete.output[~is_missing])
    np.testing.assert_array_equal(record.state, failing_record.state)


def test_more_missing_samples_than_there_are_samples_are_refused():
    with pytest.raises(ValueError, match=r"missing=5.*fewer than the 5 samples"):
        simulate(VanDerPol(), n_samples=5, measurement=OutlierNoise(missing=5))


def test_stuck_sensor_repeats_its_last_value(failing_record):
    before_and_during = failing_record.output[39:45, 0]
    assert set(before_and_during) == {failing_record.output[39, 0]}


def test_sensors_of_many_trajectories_fail_in_the_same_way(failing_record):
    many = simulate_many(
        CascadedTanks(), random_voltage(4000), seeds=[1], measurement=FAILING_SENSOR
    )
    np.testing.assert_array_equal(many.output[0], failing_record.output)


def test_controller_sees_what_the_sensor_shows():
    sensor = OutlierNoise(std=0.01, share=0.1, size=5.0, stuck_from=20, stuck_samples=10)
    with_sensor = simulate_building_in_loop(Building(), seed=4, measurement=sensor)
    shown = sensor.measure(with_sensor.noise_free_output, 4)
    np.testing.assert_array_equal(shown, with_sensor.output)
    without_sensor = simulate_building_in_loop(Building(), seed=4)
    assert not np.array_equal(with_sensor.input, without_sensor.input)


@pytest.mark.parametrize(
    "settings",
    [
        {"share": -0.1},
        {"share": 0.6, "dropouts": 0.5},
        {"size": "large"},
        {"size": [-1.0]},
        {"dropout_value": np.nan},
        {"stuck_from": 1.5},
        {"stuck_samples": -1},
        {"missing": -1},
        {"missing": 2.5},
        {"size": 2.0, "largest_size": 1.0},
        {"largest_size": "large"},
    ],
    ids=str,
)
def test_impossible_faults_are_refused(settings):
    with pytest.raises(ValueError, match="OutlierNoise"):
        OutlierNoise(**settings)


def test_sizes_of_outliers_for_other_outputs_are_refused():
    sensor = OutlierNoise(size=[1.0, 2.0])
    with pytest.raises(ValueError, match="size"):
        simulate(VanDerPol(), n_samples=5, measurement=sensor)
