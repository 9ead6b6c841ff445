"""Open loop, closed loop and their records."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from plants import Basin, Lag

from simulators import Interpolation, closed_loop, collect, simulate
from simulators.controllers.pi import PI
from simulators.noise import held_noise, random_streams
from simulators.systems.building import Building
from simulators.systems.van_der_pol import VanDerPol
from simulators.weather.measured import MeasuredWeather
from simulators.weather.synthetic import SyntheticWeather

ARRAYS = ("time", "input", "state", "output", "noise")


def ambient(n, seed=0):
    """Exogenous inputs of the building with synthetic weather."""
    return {"ambient_temperature": SyntheticWeather().temperature(900.0 * np.arange(n), seed=seed)}


def run(n=200, *, seed=0, exogenous=None, system=None, **options):
    """Record of the building under its PI controller."""
    system = system or Building()
    samples = closed_loop(system, PI(), exogenous or ambient(n, seed), seed=seed, **options)
    return collect(samples, system, seed=seed)


def assert_plausible(trajectory, complete):
    """Check comfort, heating and roughness of a year under control against known ranges."""
    zone, flow = trajectory.output[:, 0], trajectory.input[:, 1]
    assert zone.min() > 15.3
    assert zone.max() < (30.0 if complete else 24.0)
    assert 0.0 <= flow.min() < flow.max() <= 0.1
    if complete:
        assert zone.min() < 16.8
        assert np.diff(zone).std() == pytest.approx(0.09, abs=0.006)
        summer = slice(170 * 96, 220 * 96)
        assert flow[summer].mean() < 0.3 * flow.mean()


@pytest.mark.parametrize("seed", [0, 1])
def test_synthetic_year_is_plausible(year_samples, seed):
    assert_plausible(run(year_samples, seed=seed), year_samples == 35041)


def test_measured_year_is_plausible(year_samples, measured_year):
    temperature = MeasuredWeather(measured_year).temperature(900.0 * np.arange(year_samples))
    record = run(exogenous={"ambient_temperature": temperature})
    assert_plausible(record, year_samples == 35041)


def test_zone_settles_at_the_set_point_in_constant_weather():
    week = 7 * 96
    record = run(week, noise=False, exogenous={"ambient_temperature": np.full(week, 5.0)})
    evenings = record.output[[day * 96 + 87 for day in range(5)], 0]
    np.testing.assert_allclose(evenings, 21.5, atol=0.25)
    assert record.output[-1, 0] == pytest.approx(17.5, abs=0.1)


def test_same_seed_same_bits():
    one, same, other = run(seed=3), run(seed=3), run(seed=4)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert not np.allclose(one.state, other.state)
    assert not np.allclose(one.noise, other.noise)


def test_closed_loop_equals_replay_of_its_inputs():
    closed = run(300, seed=5)
    replay = simulate(Building(), closed.input, seed=5)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(closed, name), getattr(replay, name))


def test_first_sample_is_the_start_and_seen_by_the_controller():
    first = next(closed_loop(Building(initial_zone=10.0), PI(), ambient(4)))
    assert first.time == 0.0
    np.testing.assert_array_equal(first.state, [10.0, 15.0, 30.0])
    np.testing.assert_array_equal(first.output, [10.0])
    assert first.input[0] == ambient(4)["ambient_temperature"][0]
    assert first.input[1] == pytest.approx(0.002 * (17.5 - 10.0))


def test_input_acts_from_its_own_sample_on():
    u = np.tile([5.0, 0.01], (10, 1))
    changed = u.copy()
    changed[4, 1] = 0.05
    one, other = (simulate(Building(), v, seed=1).state for v in (u, changed))
    np.testing.assert_array_equal(one[:5], other[:5])
    assert other[5, 2] > one[5, 2] + 1.0


def test_future_weather_does_not_reach_back():
    early, late = ambient(120), ambient(120)
    late["ambient_temperature"] = late["ambient_temperature"] + np.where(np.arange(120) >= 60, 15.0, 0.0)
    one, other = run(exogenous=early), run(exogenous=late)
    np.testing.assert_array_equal(one.state[:61], other.state[:61])
    np.testing.assert_array_equal(one.input[:60], other.input[:60])
    assert not np.allclose(one.state[61:], other.state[61:])


def test_short_run_is_the_start_of_a_longer_one():
    np.testing.assert_array_equal(run(50).state, run(80).state[:50])


def test_samples_are_copies():
    clean = list(closed_loop(Building(), PI(), ambient(30)))
    spoiled = []
    for sample in closed_loop(Building(), PI(), ambient(30)):
        spoiled.append([np.copy(array) for array in sample[1:6]])
        for array in sample[1:6]:
            array[:] = -1e3
    for one, other in zip(clean, spoiled, strict=True):
        for a, b in zip(one[1:6], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_interrupted_loop_can_be_stored():
    part = itertools.islice(closed_loop(Building(), PI(), ambient(100)), 40)
    record = collect(part, Building(), seed=0)
    np.testing.assert_array_equal(record.state, run(100).state[:40])


def test_arguments_are_not_changed():
    exogenous, u = ambient(20), np.zeros((20, 2))
    before = exogenous["ambient_temperature"].copy()
    run(exogenous=exogenous)
    simulate(Building(), u)
    np.testing.assert_array_equal(exogenous["ambient_temperature"], before)
    assert not u.any()


def test_sampling_and_start_can_be_replaced():
    u = np.tile([0.0, 0.02], (7, 1))
    options = {"dt": 600.0, "substeps": 20, "initial_state": [1.0, 2.0, 3.0]}
    given = simulate(Building(), u, **options)
    own = Building(dt=600.0, substeps=20, initial_zone=1.0, initial_wall=2.0, initial_radiator=3.0)
    np.testing.assert_array_equal(given.state, simulate(own, u).state)
    assert (given.system.dt, given.system.substeps) == (600.0, 20)
    np.testing.assert_array_equal(given.time, 600.0 * np.arange(7))


def test_noise_is_the_process_stream_of_the_seed():
    expected = held_noise(random_streams(6).process, 7, Building().noise_std())
    np.testing.assert_array_equal(simulate(Building(), np.zeros((7, 2)), seed=6).noise, expected)


def test_noise_can_be_left_out():
    u = np.tile([0.0, 0.02], (7, 1))
    quiet = replace(Building(), zone_noise_std=0.0, wall_noise_std=0.0, radiator_noise_std=0.0)
    off = simulate(Building(), u, noise=False)
    np.testing.assert_array_equal(off.state, simulate(quiet, u, seed=9).state)
    assert not off.noise.any()


def test_dataset_explains_itself_and_survives_netcdf(tmp_path):
    record = run(30, seed=2)
    dataset = record.to_dataset()
    dataset.to_netcdf(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc") as file:
        stored = file.load()
    xr.testing.assert_identical(stored, dataset)
    assert stored["mass_flow"].units == "kg/s"
    assert stored["time"].units == "s"
    assert all(variable.attrs["long_name"] for variable in stored.variables.values())
    system, columns = Building(), (record.input, record.output, record.state, record.noise)
    signals = [*system.inputs, *system.outputs, *system.states, *system.noises]
    for signal, column in zip(signals, np.hstack(columns).T, strict=True):
        np.testing.assert_array_equal(stored[signal.name], column)
    assert Building(**json.loads(stored.attrs["parameters"])) == Building()
    assert (stored.attrs["seed"], stored.attrs["dt"], stored.attrs["substeps"]) == (2, 900.0, 30)


@pytest.mark.parametrize(
    ("exogenous", "message"),
    [
        ({}, r"each input of \['ambient_temperature', 'mass_flow'\] exactly once"),
        ({"ambient_temperature": [0.0], "mass_flow": [0.0]}, "exactly once"),
        ({"ambient_temperature": [0.0], "wind": [0.0]}, "exactly once"),
        ({"ambient_temperature": []}, "one length n_samples >= 1"),
        ({"ambient_temperature": 3.0}, "one length n_samples >= 1"),
        ({"ambient_temperature": [[0.0, 1.0]]}, "one length n_samples >= 1"),
        ({"ambient_temperature": [0.0, np.nan]}, "'ambient_temperature' is nan at sample 1"),
    ],
)
def test_wrong_exogenous_inputs_are_refused_at_the_call(exogenous, message):
    with pytest.raises(ValueError, match=message):
        closed_loop(Building(), PI(), exogenous)


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (PI(output="roof"), r"expected outputs among \['zone_temperature'\]"),
        (PI(input="window"), "exactly once"),
        (PI(dt=600.0), "dt of the system, 900 s, got 600 s"),
    ],
)
def test_wrong_wiring_is_refused_at_the_call(controller, message):
    with pytest.raises(ValueError, match=message):
        closed_loop(Building(), controller, ambient(3))


def test_number_of_samples_must_fit():
    with pytest.raises(ValueError, match="n_samples=4"):
        closed_loop(Building(), PI(), ambient(3), n_samples=4)


@pytest.mark.parametrize("u", [np.zeros((3, 1)), np.zeros(3), np.zeros((0, 2))])
def test_wrong_input_shape_is_refused(u):
    with pytest.raises(ValueError, match=r"columns \['ambient_temperature', 'mass_flow'\], got \("):
        simulate(Building(), u)


@pytest.mark.parametrize("start", [[1.0, 2.0], [1.0, 2.0, np.inf]])
def test_wrong_start_is_refused(start):
    with pytest.raises(ValueError, match="3 finite initial states"):
        simulate(Building(), np.zeros((3, 2)), initial_state=start)


def test_controller_that_returns_nan_is_named():
    class Broken(PI):
        def control(self, time, output, state):
            return (float("nan") if time > 1000 else 0.01,), state

    samples = closed_loop(Building(), Broken(), ambient(5))
    assert [next(samples).time, next(samples).time] == [0.0, 900.0]
    with pytest.raises(ArithmeticError, match="Broken set 'mass_flow' to nan at time 1800 s"):
        next(samples)


def test_collect_refuses_nothing_and_gaps():
    samples = list(closed_loop(Building(), PI(), ambient(5)))
    with pytest.raises(ValueError, match="at least one sample"):
        collect([], Building(), seed=0)
    with pytest.raises(ValueError, match="expected samples at k dt"):
        collect(samples[1:], Building(), seed=0)
    with pytest.raises(ValueError, match="the dt that was simulated"):
        collect(samples, Building(dt=600.0), seed=0)


def test_signal_of_a_single_input_needs_no_column():
    u = np.sin(np.arange(9.0))
    one, other = simulate(Lag(), u), simulate(Lag(), u[:, np.newaxis])
    np.testing.assert_array_equal(one.state, other.state)
    assert one.input.shape == (9, 1)


def test_system_without_inputs_needs_only_the_number_of_samples():
    one, other = simulate(VanDerPol(), n_samples=9), simulate(VanDerPol(), np.empty((9, 0)))
    np.testing.assert_array_equal(one.state, other.state)
    assert one.input.shape == (9, 0)


def test_one_sample_is_the_start():
    for interpolation in Interpolation:
        record = simulate(Lag(initial_level=2.0), [3.0], interpolation=interpolation)
        np.testing.assert_array_equal(record.state, [[2.0]])


@pytest.mark.parametrize(
    ("system", "options", "message"),
    [
        (Lag(), {}, r"Lag: expected an input with columns \['drive'\], or n_samples.*got no input and n_samples=None"),
        (Lag(), {"n_samples": 5}, "got no input and n_samples=5; give the one that fits the system"),
        (VanDerPol(), {}, "VanDerPol: .*or n_samples >= 1 for a system without inputs, got no input"),
        (VanDerPol(), {"n_samples": 0}, "n_samples=0"),
        (VanDerPol(), {"input": np.zeros(4)}, r"input of shape \(n >= 1, 0\) with columns \[\], got \(4,\)"),
        (Lag(), {"input": [1.0, np.nan]}, "input 'drive' is nan at sample 1: expected finite numbers; repair"),
        (
            Lag(),
            {"input": np.zeros(4), "n_samples": 5},
            "n_samples=5 rows, got 4; cut the input or leave n_samples out",
        ),
        (Lag(rate_noise_std=0.1), {"input": np.zeros(4), "seed": -1}, "seed=-1: expected an integer >= 0"),
    ],
)
def test_input_that_does_not_fit_is_refused(system, options, message):
    with pytest.raises(ValueError, match=message):
        simulate(system, **options)


@pytest.mark.parametrize("start", [[-0.01], [1.2]])
def test_start_outside_the_limits_is_refused(start):
    message = rf"Basin: expected an initial 'level' from 0 to 1 m, got {start[0]:g}; change initial_state"
    with pytest.raises(ValueError, match=message):
        simulate(Basin(), np.zeros(3), initial_state=start)


def test_clipped_substeps_are_reported_by_every_record():
    """A basin that is full from the second sample on: 8 substeps in each sample meet the brim, one before."""
    u, basin = np.full(6, 0.5), Basin(substeps=8, initial_level=0.53)
    record = simulate(basin, u)
    samples = list(closed_loop(basin, Steady(dt=1.0), {}, n_samples=6))
    assert [sample.n_clipped for sample in samples] == [0, 1, 8, 8, 8, 8]
    assert record.n_clipped == collect(samples, basin, seed=0).n_clipped == 33
    assert record.to_dataset().attrs["clipped_substeps"] == 33
    assert simulate(basin, 0 * u).to_dataset().attrs["clipped_substeps"] == 0


class Steady(PI):
    """Always the same command."""

    outputs_read = ("reading",)
    inputs_driven = ("drive",)

    def control(self, time, output, state):
        return (0.5,), state


def test_dataset_names_the_interpolation():
    names = {
        i: simulate(Lag(), np.zeros(3), interpolation=i).to_dataset().attrs["interpolation"] for i in Interpolation
    }
    assert names == {i: i.value for i in Interpolation}
