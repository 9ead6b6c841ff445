"""What a record holds: process noise, measurement noise, streams of the seed, names and
settings.
"""

import itertools
import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr

from plants import Lag, every_run, random_input
from simulators import (
    PI,
    Building,
    MeasurementNoise,
    Signal,
    closed_loop,
    collect,
    signal_to_noise,
    simulate,
)
from simulators.noise import Streams, held_noise, random_stream, random_streams

N = 20000


@dataclass(frozen=True)
class Doubled(Lag):
    """The lag with a second output, a hundred times the first."""

    outputs: ClassVar = (*Lag.outputs, Signal("large", "cV", "measured level"))
    rate_noise_std: float = 0.2

    def output(self, state):
        return np.concatenate([state, 100.0 * state], axis=-1)


def record(measurement, n=N, seed=3, **options):
    return simulate(
        Doubled(),
        random_input([(0.0, 2.0)], n),
        seed=seed,
        measurement=measurement,
        **options,
    )


def loop(measurement, controller=None, n=400):
    """Record of the building under its controller at 5 degC outside."""
    exogenous = {"ambient_temperature": np.full(n, 5.0)}
    samples = closed_loop(
        Building(), controller or PI(), exogenous, seed=5, measurement=measurement
    )
    return collect(samples, Building(), seed=5)


# --- streams and process noise ----------------------------------------------------------------------


def test_streams_are_the_children_of_the_seed_in_order():
    children = [
        np.random.default_rng(child).random() for child in np.random.SeedSequence(7).spawn(5)
    ]
    assert [stream.random() for stream in random_streams(7)] == children
    assert [random_stream(7, name).random() for name in Streams._fields] == children
    assert len({*children, *(stream.random() for stream in random_streams(8))}) == 10
    with pytest.raises(ValueError, match="got 'wind'"):
        random_stream(0, "wind")
    for seed in (0.5, -1, True, "1"):
        with pytest.raises(ValueError, match="seed="):
            random_streams(seed)


def test_held_noise_is_the_stream_times_the_deviations():
    std = [2.0, 0.0, 5e-5]
    expected = random_streams(0).process.standard_normal((40, 3)) * std
    np.testing.assert_array_equal(held_noise(random_streams(0).process, 40, std), expected)


def test_process_noise_is_a_stream_of_the_seed_whatever_the_sampling():
    """Deviations are those of the held values: the same seed gives the same path at any dt and any
    substeps.
    """
    u = np.zeros((20, 2))
    expected = held_noise(random_streams(6).process, 20, Building().noise_std())
    for options in ({}, {"dt": 60.0}, {"substeps": 90}):
        np.testing.assert_array_equal(simulate(Building(), u, seed=6, **options).noise, expected)
    quiet = Building(zone_noise_std=0.0, wall_noise_std=0.0, radiator_noise_std=0.0)
    off = simulate(Building(), u, noise=False)
    np.testing.assert_array_equal(off.state, simulate(quiet, u, seed=9).state)
    assert not off.noise.any()


# --- measurement noise ------------------------------------------------------------------------------


@pytest.mark.parametrize("snr_db", [-3.0, 20.0, [10.0, 60.0]])
def test_signal_to_noise_ratio_is_reached_on_every_output(snr_db):
    trajectory = record(MeasurementNoise(snr_db=snr_db))
    y0 = trajectory.noise_free_output
    reached = 10 * np.log10(y0.var(axis=0) / ((trajectory.output - y0) ** 2).mean(axis=0))
    np.testing.assert_allclose(reached, snr_db, atol=10 * np.log10(1 + 4 * np.sqrt(2 / N)))
    np.testing.assert_allclose(signal_to_noise(y0, trajectory.output), reached, atol=1e-9)
    assert np.isinf(signal_to_noise(y0, y0)).all()


@pytest.mark.parametrize("std", [0.1, [0.1, 2.0], (0.0, 2.0), np.array([0.1, 0.0])])
def test_noise_is_the_measurement_stream_of_the_seed_and_leaves_the_plant_alone(std):
    clean = record(MeasurementNoise(), n=50)
    noisy = record(MeasurementNoise(std=std), n=50)
    draws = random_streams(3).measurement.standard_normal((50, 2))
    np.testing.assert_array_equal(noisy.output, clean.output + std * draws)
    np.testing.assert_array_equal(clean.output, clean.noise_free_output)
    for name in ("time", "input", "state", "noise", "noise_free_output"):
        np.testing.assert_array_equal(getattr(clean, name), getattr(noisy, name))
    assert hash(MeasurementNoise(std=std)) == hash(MeasurementNoise(std=std))


def test_the_controller_sees_the_noise_and_the_plant_does_not():
    """Replayed in open loop, the recorded input gives the same states and the same measurements."""
    seen = []

    class Watching(PI):
        def control(self, time, output, state):
            seen.append(output[0])
            return super().control(time, output, state)

    noise = MeasurementNoise(std=0.3)
    closed = loop(noise, Watching())
    quiet = loop(MeasurementNoise())
    np.testing.assert_array_equal(seen, closed.output[:, 0])
    assert np.abs(quiet.input[:, 1] - closed.input[:, 1]).max() > 1e-4
    replay = simulate(Building(), closed.input, seed=5, measurement=noise)
    for name in ("time", "input", "state", "output", "noise_free_output", "noise"):
        np.testing.assert_array_equal(getattr(closed, name), getattr(replay, name))


def test_ratio_in_closed_loop_refers_to_the_loop_without_noise():
    quiet = loop(MeasurementNoise())
    noisy = loop(MeasurementNoise(snr_db=10.0))
    draws = random_streams(5).measurement.standard_normal((400, 1))
    std = np.std(quiet.output) * 10**-0.5
    np.testing.assert_allclose(
        noisy.output - noisy.noise_free_output, std * draws, rtol=1e-6, atol=1e-12
    )
    assert np.abs(noisy.noise_free_output - quiet.output).max() > 1e-3


def test_constant_output_has_no_ratio():
    """A building too warm to heat, and as warm inside as outside."""
    still = Building(initial_zone=30.0, initial_wall=30.0, initial_radiator=30.0)
    noise = MeasurementNoise(snr_db=3.0)
    with pytest.raises(ValueError, match="output 0 is constant"):
        simulate(Lag(), np.zeros(10), measurement=noise)
    with pytest.raises(ValueError, match="output 0 is constant"):
        closed_loop(
            still,
            PI(),
            {"ambient_temperature": np.full(5, 30.0)},
            noise=False,
            measurement=noise,
        )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("std", [-0.1, np.nan, "small", True, [], [0.1, -0.1], [[0.1], [0.2]]]),
        ("snr_db", [np.inf, "20 dB", [20.0, np.nan]]),
    ],
)
def test_impossible_noise_is_refused(name, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"MeasurementNoise\({name}="):
            MeasurementNoise(**{name: value})
    with pytest.raises(ValueError, match="only one of std and snr_db"):
        MeasurementNoise(std=0.1, snr_db=20.0)
    noise = MeasurementNoise(**{name: [0.1, 0.2, 0.3]})
    for run in every_run(Doubled(), np.ones(4), measurement=noise):
        with pytest.raises(ValueError, match=rf"^MeasurementNoise\({name}=.*'reading', 'large'"):
            run()


# --- the data set -----------------------------------------------------------------------------------


def test_dataset_explains_itself_and_survives_netcdf(tmp_path):
    noisy = record(MeasurementNoise(std=0.1), n=40)
    clean = record(MeasurementNoise(), n=40).to_dataset()
    noisy.to_dataset().to_netcdf(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc") as file:
        stored = file.load()
    xr.testing.assert_identical(stored, noisy.to_dataset())
    names = [
        "drive",
        "reading",
        "large",
        "level",
        "drift_noise",
        "reading_noise_free",
        "large_noise_free",
    ]
    columns = (
        noisy.input,
        noisy.output,
        noisy.state,
        noisy.noise,
        noisy.noise_free_output,
    )
    np.testing.assert_array_equal(
        np.stack([stored[name] for name in names], axis=1), np.hstack(columns)
    )
    assert set(stored) - set(clean) == {"reading_noise_free", "large_noise_free"}
    assert stored["reading_noise_free"].attrs == {
        "units": "V",
        "long_name": "measured level, without noise",
    }
    assert Doubled(**json.loads(stored.attrs["parameters"])) == noisy.system
    expected = {
        "seed": 3,
        "dt": 0.1,
        "substeps": 4,
        "outputs": '["reading", "large"]',
        "inputs": '["drive"]',
    }
    expected["system"] = f"{__name__}.Doubled"  # not of the package; others have their public name
    assert stored.attrs.items() >= expected.items()
    assert loop(MeasurementNoise(), n=2).to_dataset().attrs["system"] == "simulators.Building"


def test_collect_takes_the_first_samples_and_refuses_nothing_and_gaps():
    exogenous = {"ambient_temperature": np.full(60, 5.0)}
    samples = list(itertools.islice(closed_loop(Building(), PI(), exogenous, seed=5), 20))
    whole = loop(MeasurementNoise(), n=60)
    np.testing.assert_array_equal(collect(samples, Building(), seed=5).output, whole.output[:20])
    for wrong, system in (
        ([], Building()),
        (samples[1:], Building()),
        (samples, Building(dt=600.0)),
    ):
        with pytest.raises(ValueError, match="collect: expected"):
            collect(wrong, system, seed=0)
