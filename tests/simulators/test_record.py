"""The record of a simulation: process noise, measurement noise, random streams, names, settings."""

import itertools
import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr

from plants import Lag, random_input, ways_to_simulate
from simulators import (
    PI,
    Building,
    MeasurementNoise,
    Signal,
    closed_loop,
    collect,
    random_stream,
    random_streams,
    signal_to_noise,
    simulate,
)
from simulators.noise import Streams, held_noise

N_NOISY_SAMPLES = 20000


@dataclass(frozen=True)
class Doubled(Lag):
    """The lag with a second output, a hundred times the first."""

    outputs: ClassVar = (*Lag.outputs, Signal("large", "cV", "measured level"))
    rate_noise_std: float = 0.2

    def output(self, state):
        return np.concatenate([state, 100.0 * state], axis=-1)


def simulate_doubled(measurement, n=N_NOISY_SAMPLES, seed=3):
    """Return a record of the lag with two outputs."""
    u = random_input([(0.0, 2.0)], n)
    return simulate(Doubled(), u, seed=seed, measurement=measurement)


def simulate_loop(measurement, controller=None, n=400):
    """Return a record of the building under its controller at 5 degC outside."""
    exogenous = {"ambient_temperature": np.full(n, 5.0)}
    if controller is None:
        controller = PI()
    samples = closed_loop(Building(), controller, exogenous, seed=5, measurement=measurement)
    return collect(samples, Building(), seed=5)


# --- streams and process noise --------------------------------------------------------------------


def test_streams_are_the_children_of_the_seed_in_order():
    children = np.random.SeedSequence(7).spawn(6)
    expected = [np.random.default_rng(child).random() for child in children]
    assert [stream.random() for stream in random_streams(7)] == expected
    assert [random_stream(7, name).random() for name in Streams._fields] == expected


def test_streams_of_another_seed_are_others():
    draws = [stream.random() for seed in (7, 8) for stream in random_streams(seed)]
    assert len(set(draws)) == 12


def test_unknown_stream_is_refused():
    with pytest.raises(ValueError, match="got 'wind'"):
        random_stream(0, "wind")


@pytest.mark.parametrize("seed", [0.5, -1, True, "1"])
def test_seeds_that_are_no_whole_numbers_are_refused(seed):
    with pytest.raises(ValueError, match="seed="):
        random_streams(seed)


def test_held_noise_is_the_stream_times_the_deviations():
    std = [2.0, 0.0, 5e-5]
    expected = random_streams(0).process.standard_normal((40, 3)) * std
    np.testing.assert_array_equal(held_noise(random_streams(0).process, 40, std), expected)


@pytest.mark.parametrize("options", [{}, {"dt": 60.0}, {"substeps": 90}], ids=str)
def test_process_noise_is_a_stream_of_the_seed_whatever_the_sampling(options):
    """The deviations are those of held values: a seed gives the same path at any sampling time."""
    expected = held_noise(random_streams(6).process, 20, Building().noise_std())
    run = simulate(Building(), np.zeros((20, 2)), seed=6, **options)
    np.testing.assert_array_equal(run.noise, expected)


def test_process_noise_may_be_left_out():
    u = np.zeros((20, 2))
    without_noise = simulate(Building(), u, noise=False)
    quiet = Building(zone_noise_std=0.0, wall_noise_std=0.0, radiator_noise_std=0.0)
    np.testing.assert_array_equal(without_noise.state, simulate(quiet, u, seed=9).state)
    assert not without_noise.noise.any()


# --- measurement noise ----------------------------------------------------------------------------


@pytest.mark.parametrize("snr_db", [-3.0, 20.0, [10.0, 60.0]], ids=str)
def test_signal_to_noise_ratio_is_reached_on_every_output(snr_db):
    record = simulate_doubled(MeasurementNoise(snr_db=snr_db))
    noise_free = record.noise_free_output
    noise_power = ((record.output - noise_free) ** 2).mean(axis=0)
    ratio = 10 * np.log10(noise_free.var(axis=0) / noise_power)
    four_standard_errors = 10 * np.log10(1 + 4 * np.sqrt(2 / N_NOISY_SAMPLES))
    np.testing.assert_allclose(ratio, snr_db, atol=four_standard_errors)
    np.testing.assert_allclose(signal_to_noise(noise_free, record.output), ratio, atol=1e-9)
    assert np.isinf(signal_to_noise(noise_free, noise_free)).all()


@pytest.mark.parametrize("std", [0.1, [0.1, 2.0], (0.0, 2.0), np.array([0.1, 0.0])], ids=repr)
def test_noise_is_the_measurement_stream_of_the_seed_and_leaves_the_plant_alone(std):
    clean = simulate_doubled(MeasurementNoise(), n=50)
    noisy = simulate_doubled(MeasurementNoise(std=std), n=50)
    draws = random_streams(3).measurement.standard_normal((50, 2))
    np.testing.assert_array_equal(noisy.output, clean.output + std * draws)
    np.testing.assert_array_equal(clean.output, clean.noise_free_output)
    for name in ("time", "input", "state", "noise", "noise_free_output"):
        np.testing.assert_array_equal(getattr(clean, name), getattr(noisy, name))
    assert hash(MeasurementNoise(std=std)) == hash(MeasurementNoise(std=std))


class ObservedPI(PI):
    """PI controller that lists the outputs that it sees."""

    seen: ClassVar[list[float]] = []

    def control(self, time, output, state):
        self.seen.append(output[0])
        return super().control(time, output, state)


def test_controller_sees_the_noise_and_the_plant_does_not():
    """In open loop the recorded input gives the same states and the same measurements."""
    ObservedPI.seen.clear()
    noise = MeasurementNoise(std=0.3)
    closed = simulate_loop(noise, ObservedPI())
    np.testing.assert_array_equal(ObservedPI.seen, closed.output[:, 0])
    without_noise = simulate_loop(MeasurementNoise())
    assert np.abs(without_noise.input[:, 1] - closed.input[:, 1]).max() > 1e-4
    replay = simulate(Building(), closed.input, seed=5, measurement=noise)
    for name in ("time", "input", "state", "output", "noise_free_output", "noise"):
        np.testing.assert_array_equal(getattr(closed, name), getattr(replay, name))


def test_ratio_in_closed_loop_refers_to_the_loop_without_noise():
    without_noise = simulate_loop(MeasurementNoise())
    noisy = simulate_loop(MeasurementNoise(snr_db=10.0))
    draws = random_streams(5).measurement.standard_normal((400, 1))
    std = np.std(without_noise.output) * 10**-0.5
    noise = noisy.output - noisy.noise_free_output
    np.testing.assert_allclose(noise, std * draws, rtol=1e-6, atol=1e-12)
    assert np.abs(noisy.noise_free_output - without_noise.output).max() > 1e-3


def test_ratio_of_a_constant_output_is_refused():
    with pytest.raises(ValueError, match="output 0 is constant"):
        simulate(Lag(), np.zeros(10), measurement=MeasurementNoise(snr_db=3.0))


def test_ratio_of_a_constant_output_in_a_loop_is_refused():
    """A building too warm to heat, and as warm inside as outside."""
    still = Building(initial_zone=30.0, initial_wall=30.0, initial_radiator=30.0)
    exogenous = {"ambient_temperature": np.full(5, 30.0)}
    measurement = MeasurementNoise(snr_db=3.0)
    with pytest.raises(ValueError, match="output 0 is constant"):
        closed_loop(still, PI(), exogenous, noise=False, measurement=measurement)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("std", -0.1),
        ("std", np.nan),
        ("std", "small"),
        ("std", True),
        ("std", []),
        ("std", [0.1, -0.1]),
        ("std", [[0.1], [0.2]]),
        ("snr_db", np.inf),
        ("snr_db", "20 dB"),
        ("snr_db", [20.0, np.nan]),
    ],
)
def test_impossible_noise_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"MeasurementNoise\({name}="):
        MeasurementNoise(**{name: value})


def test_standard_deviation_beside_a_ratio_is_refused():
    with pytest.raises(ValueError, match="only one of std and snr_db"):
        MeasurementNoise(std=0.1, snr_db=20.0)


@pytest.mark.parametrize("way", range(3), ids=["alone", "in a set", "in a loop"])
@pytest.mark.parametrize("name", ["std", "snr_db"])
def test_noise_for_another_number_of_outputs_is_refused(name, way):
    noise = MeasurementNoise(**{name: [0.1, 0.2, 0.3]})
    simulate_doubled_lag = ways_to_simulate(Doubled(), np.ones(4), measurement=noise)[way]
    with pytest.raises(ValueError, match=rf"^MeasurementNoise\({name}=.*'reading', 'large'"):
        simulate_doubled_lag()


# --- the data set ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy_record():
    """Return a record of 40 samples with measurement noise."""
    return simulate_doubled(MeasurementNoise(std=0.1), n=40)


def test_dataset_survives_netcdf(noisy_record, tmp_path):
    noisy_record.to_dataset().to_netcdf(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc") as file:
        stored = file.load()
    xr.testing.assert_identical(stored, noisy_record.to_dataset())


def test_dataset_holds_every_signal_by_its_name(noisy_record):
    dataset = noisy_record.to_dataset()
    expected = {
        "drive": noisy_record.input[:, 0],
        "reading": noisy_record.output[:, 0],
        "large": noisy_record.output[:, 1],
        "level": noisy_record.state[:, 0],
        "drift_noise": noisy_record.noise[:, 0],
        "reading_noise_free": noisy_record.noise_free_output[:, 0],
        "large_noise_free": noisy_record.noise_free_output[:, 1],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(dataset[name], values)
    assert dataset["reading_noise_free"].attrs == {
        "units": "V",
        "long_name": "measured level, without noise",
    }


def test_noise_free_outputs_are_stored_only_beside_noisy_ones(noisy_record):
    clean = simulate_doubled(MeasurementNoise(), n=40).to_dataset()
    additional = set(noisy_record.to_dataset()) - set(clean)
    assert additional == {"reading_noise_free", "large_noise_free"}


def test_dataset_holds_the_settings_of_the_simulation(noisy_record):
    attributes = noisy_record.to_dataset().attrs
    assert Doubled(**json.loads(attributes["parameters"])) == noisy_record.system
    expected = {
        "seed": 3,
        "dt": 0.1,
        "substeps": 4,
        "outputs": '["reading", "large"]',
        "inputs": '["drive"]',
        "system": f"{__name__}.Doubled",
    }
    assert attributes.items() >= expected.items()


def test_system_of_the_package_is_stored_by_its_public_name():
    dataset = simulate_loop(MeasurementNoise(), n=2).to_dataset()
    assert dataset.attrs["system"] == "simulators.Building"


# --- collected samples ----------------------------------------------------------------------------


def first_samples(n):
    """Return the first n samples of a loop of 60."""
    exogenous = {"ambient_temperature": np.full(60, 5.0)}
    return list(itertools.islice(closed_loop(Building(), PI(), exogenous, seed=5), n))


def test_first_samples_of_a_loop_are_collected():
    whole = simulate_loop(MeasurementNoise(), n=60)
    beginning = collect(first_samples(20), Building(), seed=5)
    np.testing.assert_array_equal(beginning.output, whole.output[:20])


@pytest.mark.parametrize(
    ("wanted_samples", "system"),
    [
        pytest.param(slice(0, 0), Building(), id="no samples"),
        pytest.param(slice(1, 20), Building(), id="first sample missing"),
        pytest.param(slice(0, 20), Building(dt=600.0), id="another sampling time"),
    ],
)
def test_samples_that_are_no_beginning_of_a_loop_are_refused(wanted_samples, system):
    samples = first_samples(20)[wanted_samples]
    with pytest.raises(ValueError, match="collect: expected"):
        collect(samples, system, seed=0)
