"""Measurement noise: its size, what it is kept apart from, who sees it."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plants import Lag, random_input

from simulators import MeasurementNoise, Signal, closed_loop, collect, simulate, simulate_many
from simulators.controllers.open_loop import OpenLoop
from simulators.controllers.pi import PI
from simulators.measurement import signal_to_noise
from simulators.noise import random_streams
from simulators.runge_kutta import PLAIN
from simulators.systems.building import Building
from simulators.systems.van_der_pol import VanDerPol

N = 3000 if PLAIN else 20000


@dataclass(frozen=True)
class Doubled(Lag):
    """The lag with a second output, a hundred times the first."""

    outputs = (*Lag.outputs, Lag.outputs[0]._replace(name="large", unit="cV"))

    def output(self, state):
        return np.concatenate([state, 100.0 * state], axis=-1)


def record(measurement, *, n=N, seed=3, system=None, **options):
    u = random_input([(0.0, 2.0)], n)
    return simulate(system or Doubled(rate_noise_std=0.2), u, seed=seed, measurement=measurement, **options)


def loop(measurement, n=400, seed=5, system=None, **options):
    """Record of the building under its controller at 5 degC outside."""
    system = system or Building()
    exogenous = {"ambient_temperature": np.full(n, 5.0)}
    samples = closed_loop(system, PI(), exogenous, seed=seed, measurement=measurement, **options)
    return collect(samples, system, seed=seed)


def test_standard_deviation_is_reached_on_every_output():
    trajectory = record(MeasurementNoise(std=0.05))
    e = trajectory.output - trajectory.noise_free_output
    np.testing.assert_allclose(e.std(axis=0), 0.05, rtol=4 / np.sqrt(2 * N))
    assert np.abs(e.mean(axis=0)).max() < 4 * 0.05 / np.sqrt(N)
    assert abs(np.corrcoef(e.T)[0, 1]) < 4 / np.sqrt(N)
    assert abs(np.corrcoef(e[1:, 0], e[:-1, 0])[0, 1]) < 4 / np.sqrt(N)


@pytest.mark.parametrize("snr_db", [-3.0, 20.0, 60.0])
def test_signal_to_noise_ratio_is_reached_on_every_output(snr_db):
    trajectory = record(MeasurementNoise(snr_db=snr_db))
    y0 = trajectory.noise_free_output
    e = trajectory.output - y0
    reached = 10 * np.log10(((y0 - y0.mean(axis=0)) ** 2).mean(axis=0) / (e**2).mean(axis=0))
    np.testing.assert_allclose(reached, snr_db, atol=10 * np.log10(1 + 4 * np.sqrt(2 / N)))
    np.testing.assert_allclose(signal_to_noise(y0, trajectory.output), reached, atol=1e-9)


def test_ratio_refers_to_the_power_about_the_mean():
    """A constant that is added to the output does not let the noise grow."""
    near, far = np.sin(np.arange(100.0))[:, np.newaxis], 50.0 + np.sin(np.arange(100.0))[:, np.newaxis]
    noise = MeasurementNoise(snr_db=10.0)
    np.testing.assert_allclose(noise.std_of(far), noise.std_of(near))
    np.testing.assert_allclose(noise.std_of(near), np.sqrt(0.1) * np.std(near))


@given(snr_db=st.floats(-40, 80))
def test_ratio_is_that_of_the_powers(snr_db):
    output = np.array([[1.0, -3.0], [3.0, 5.0], [2.0, 1.0]])
    std = MeasurementNoise(snr_db=snr_db).std_of(output)
    np.testing.assert_allclose(10 * np.log10(output.var(axis=0) / std**2), snr_db, atol=1e-9)


def test_ratio_is_infinite_without_noise():
    y = np.array([[1.0], [2.0]])
    assert signal_to_noise(y, y) == [np.inf]


def test_noise_changes_nothing_but_the_output():
    clean, noisy = record(MeasurementNoise(), n=200), record(MeasurementNoise(std=0.1), n=200)
    for name in ("time", "input", "state", "noise", "noise_free_output"):
        np.testing.assert_array_equal(getattr(clean, name), getattr(noisy, name))
    np.testing.assert_array_equal(clean.output, clean.noise_free_output)
    np.testing.assert_array_equal(noisy.noise_free_output, clean.output)
    assert np.all(noisy.output != clean.output)


def test_noise_is_the_measurement_stream_of_the_seed():
    trajectory = record(MeasurementNoise(std=0.1), n=50, seed=8)
    draws = random_streams(8).measurement.standard_normal((50, 2))
    np.testing.assert_array_equal(trajectory.output, trajectory.noise_free_output + 0.1 * draws)


def test_same_seed_same_noise_other_seed_other_noise():
    noise = MeasurementNoise(std=0.1)
    one, same, other = (record(noise, n=50, seed=seed, noise=False) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.output, same.output)
    np.testing.assert_array_equal(one.noise_free_output, other.noise_free_output)
    assert np.all(one.output != other.output)


def test_noise_does_not_depend_on_the_process_noise():
    noise = MeasurementNoise(std=0.1)
    runs = [record(noise, n=50, noise=drawn) for drawn in (True, False)]
    one, other = (run.output - run.noise_free_output for run in runs)
    np.testing.assert_allclose(one, other, atol=1e-13)
    drawn = record(noise, n=N)
    e = (drawn.output - drawn.noise_free_output)[:, 0]
    assert abs(np.corrcoef(e, drawn.noise[:, 0])[0, 1]) < 4 / np.sqrt(N)


def test_longer_record_begins_with_the_shorter_one():
    noise = MeasurementNoise(std=0.1)
    u = random_input([(0.0, 2.0)], 80)
    long, short = (simulate(Lag(), v, seed=2, measurement=noise).output for v in (u, u[:30]))
    np.testing.assert_array_equal(long[:30], short)


def test_dataset_holds_both_outputs_only_with_noise():
    noisy = record(MeasurementNoise(std=0.1), n=40)
    dataset = noisy.to_dataset()
    np.testing.assert_array_equal(dataset["reading"], noisy.output[:, 0])
    np.testing.assert_array_equal(dataset["large_noise_free"], noisy.noise_free_output[:, 1])
    twin = dataset["reading_noise_free"]
    assert (twin.attrs["units"], twin.attrs["long_name"]) == ("V", "measured level, without noise")
    assert dataset.attrs["outputs"] == '["reading", "large"]'
    clean = record(MeasurementNoise(), n=40).to_dataset()
    assert set(dataset) - set(clean) == {"reading_noise_free", "large_noise_free"}


def test_closed_loop_controller_sees_the_noise():
    seen = []

    class Watching(PI):
        def control(self, time, output, state):
            seen.append(output[0])
            return super().control(time, output, state)

    exogenous = {"ambient_temperature": np.full(50, 5.0)}
    samples = list(closed_loop(Building(), Watching(), exogenous, measurement=MeasurementNoise(std=0.3)))
    np.testing.assert_array_equal(seen, [sample.output[0] for sample in samples])
    e = np.array([sample.output[0] - sample.noise_free_output[0] for sample in samples])
    assert 0.15 < e.std() < 0.45
    quiet, noisy = loop(MeasurementNoise()), loop(MeasurementNoise(std=0.3))
    assert np.abs(quiet.input[:, 1] - noisy.input[:, 1]).max() > 1e-4
    assert np.abs(quiet.state - noisy.state).max() > 1e-3


def test_closed_loop_keeps_the_noise_of_the_sensor_out_of_the_plant():
    """Replayed in open loop, the recorded input gives the same states and the same measurements."""
    noise = MeasurementNoise(std=0.3)
    closed = loop(noise)
    replay = simulate(Building(), closed.input, seed=5, measurement=noise)
    for name in ("state", "output", "noise_free_output", "noise"):
        np.testing.assert_array_equal(getattr(closed, name), getattr(replay, name))


def test_ratio_in_closed_loop_refers_to_the_loop_without_noise():
    quiet, noisy = loop(MeasurementNoise()), loop(MeasurementNoise(snr_db=10.0))
    draws = random_streams(5).measurement.standard_normal((400, 1))
    std = np.std(quiet.output) * 10**-0.5
    np.testing.assert_allclose(noisy.output - noisy.noise_free_output, std * draws, rtol=1e-6, atol=1e-12)
    assert np.abs(noisy.noise_free_output - quiet.output).max() > 1e-3


def test_interrupted_loop_has_the_same_noise():
    system, exogenous = Building(), {"ambient_temperature": np.full(60, 5.0)}
    samples = closed_loop(system, PI(), exogenous, seed=5, measurement=MeasurementNoise(std=0.1))
    part = collect(itertools.islice(samples, 20), system, seed=5)
    whole = loop(MeasurementNoise(std=0.1), n=60)
    np.testing.assert_array_equal(part.output, whole.output[:20])


def test_every_trajectory_has_its_own_ratio():
    """The amplitudes differ tenfold, the ratio does not."""
    u = np.stack([scale * random_input([(-1.0, 1.0)], 2000) for scale in (1.0, 10.0)])
    many = simulate_many(Lag(), u, measurement=MeasurementNoise(snr_db=20.0))
    e = many.output - many.noise_free_output
    assert e[1].std() == pytest.approx(10 * e[0].std(), rel=0.1)
    reached = [signal_to_noise(one.noise_free_output, one.output)[0] for one in many]
    np.testing.assert_allclose(reached, 20.0, atol=0.5)


def test_constant_output_has_no_ratio():
    message = r"MeasurementNoise\(snr_db=20\.0\): expected outputs that vary, output 0 is constant.*excite.*or give std"
    with pytest.raises(ValueError, match=message):
        simulate(Lag(), np.zeros(10), measurement=MeasurementNoise(snr_db=20.0))
    with pytest.raises(ValueError, match="output 1 is constant"):
        MeasurementNoise(snr_db=3.0).std_of(np.array([[1.0, 4.0], [2.0, 4.0]]))


def test_constant_output_of_a_closed_loop_is_refused_at_the_call():
    """Too warm to heat, and as warm inside as outside."""
    still = Building(initial_zone=30.0, initial_wall=30.0, initial_radiator=30.0)
    warm = {"ambient_temperature": np.full(5, 30.0)}
    with pytest.raises(ValueError, match="output 0 is constant"):
        closed_loop(still, PI(), warm, noise=False, measurement=MeasurementNoise(snr_db=3.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"std": 0.1, "snr_db": 20.0}, r"std=0.1\): expected only one of std and snr_db=20.0; change std"),
        ({"std": -0.1}, r"std=-0.1\): expected a number >= 0, or a list with one for each output; change std"),
        ({"std": np.nan}, r"std=nan\): expected a number >= 0"),
        ({"std": "small"}, r"std='small'\): expected a number >= 0"),
        ({"std": True}, r"std=True\): expected a number >= 0"),
        ({"std": []}, r"std=\(\)\): expected a number >= 0"),
        ({"std": [0.1, -0.1]}, r"std=\(0\.1, -0\.1\)\): expected a number >= 0, or a list"),
        ({"std": [[0.1], [0.2]]}, r"std=.*expected a number >= 0, or a list"),
        ({"std": [0.1], "snr_db": 20.0}, r"std=\(0\.1,\)\): expected only one of"),
        ({"snr_db": [20.0, np.nan]}, r"snr_db=\(20\.0, nan\)\): expected a finite number, or a list"),
        (
            {"snr_db": np.inf},
            r"snr_db=inf\): expected a finite number, or a list with one for each output; change snr_db",
        ),
        ({"snr_db": "20 dB"}, r"snr_db='20 dB'\): expected a finite number"),
    ],
)
def test_impossible_noise_is_refused(options, message):
    with pytest.raises(ValueError, match=rf"MeasurementNoise\({message}"):
        MeasurementNoise(**options)


@dataclass(frozen=True)
class Twin(VanDerPol):
    """Both states are measured."""

    outputs: ClassVar = (Signal("seen", "m", "position"), Signal("felt", "m/s", "velocity"))


def test_every_output_may_have_its_own_deviation():
    noise = MeasurementNoise(std=[0.0, 2.0])
    assert noise == MeasurementNoise(std=(0.0, 2)) == MeasurementNoise(std=np.array([0.0, 2.0]))
    assert len({noise, MeasurementNoise(std=[0, 2.0])}) == 1
    record = simulate(Twin(), n_samples=4000, measurement=noise)
    e = record.output - record.noise_free_output
    assert not e[:, 0].any()
    assert e[:, 1].std() == pytest.approx(2.0, rel=0.05)
    many = simulate_many(Twin(), n_samples=4000, seeds=[0, 1], measurement=noise)
    np.testing.assert_array_equal(many[0].output, record.output)
    loop = closed_loop(Twin(), OpenLoop(dt=0.1), {}, n_samples=4000, measurement=noise)
    np.testing.assert_array_equal([sample.output for sample in loop], record.output)


def test_every_output_may_have_its_own_ratio():
    record = simulate(Twin(), n_samples=4000, measurement=MeasurementNoise(snr_db=[10, 30]))
    np.testing.assert_allclose(signal_to_noise(record.noise_free_output, record.output), [10, 30], atol=0.3)


@pytest.mark.parametrize("values", [[0.1], [0.1, 0.2, 0.3]])
@pytest.mark.parametrize("name", ["std", "snr_db"])
def test_a_list_must_fit_the_outputs(name, values):
    noise = MeasurementNoise(**{name: values})
    message = rf"MeasurementNoise\({name}=\(.*\)\): expected one number for all outputs, or one for each of "
    with pytest.raises(ValueError, match=message + r"\['seen', 'felt'\]; change"):
        simulate(Twin(), n_samples=4, measurement=noise)
    with pytest.raises(ValueError, match="^" + message):
        simulate_many(Twin(), n_samples=4, n_trajectories=2, measurement=noise)
    with pytest.raises(ValueError, match=message):
        closed_loop(Twin(), OpenLoop(dt=0.1), {}, n_samples=4, measurement=noise)
    with pytest.raises(ValueError, match=message + r"\['output 0', 'output 1'\]"):
        noise.std_of(np.eye(2))
