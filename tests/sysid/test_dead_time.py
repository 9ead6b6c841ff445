"""Dead times: after how many samples each input acts, and the lags that follow from them."""

from dataclasses import replace

import numpy as np
import pytest

import simulators
from sysid import (
    Fixed,
    FreeRun,
    LagChoice,
    Narx,
    Settings,
    choose_lags,
    estimate_dead_times,
    identify,
    make_record,
    rank_lags,
)
from sysid.dead_time import DeadTime, DeadTimes
from sysid.gross_errors import screen_records
from sysid.lag_choice import best_arx, best_arx_of_equal_lags
from sysid.simulation_error.linear_model import LinearModel
from sysid.simulation_error.training import Trial

N_SAMPLES = 2000
#: delays of the ten seeds: the second one is that of the second input [samples]
DELAYS = [
    (0, 3),
    (1, 25),
    (2, 60),
    (5, 0),
    (7, 11),
    (15, 1),
    (23, 40),
    (38, 7),
    (50, 33),
    (60, 19),
]
NOISE = (0.01, 0.03, 0.05)  # standard deviation of the noise over that of the output


def delayed(u, delay):
    """Return an input that is 0 before the delay."""
    return np.concatenate([np.zeros(delay), u])[: len(u)]


def tanh_plant(u, _):
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k])
    return y


def oscillating_plant(u, _):
    y = np.zeros(len(u))
    for k in range(2, len(u)):
        y[k] = 1.6 * y[k - 1] - 0.8 * y[k - 2] + 0.1 * u[k] + 0.08 * u[k - 1]
    return y


def hammerstein_plant(u, _):
    limited = np.clip(u, -0.8, 0.8)
    y = np.zeros(len(u))
    for k in range(2, len(u)):
        y[k] = 1.3 * y[k - 1] - 0.4 * y[k - 2] + limited[k] + 0.5 * limited[k - 1]
    return y


def wiener_plant(u, _):
    state = np.zeros(len(u))
    for k in range(1, len(u)):
        state[k] = 0.85 * state[k - 1] + 0.45 * u[k]
    return np.tanh(state) + 0.09 * state**2


def two_input_plant(u, v):
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.85 * y[k - 1] + np.tanh(u[k]) + 0.6 * np.sin(v[k]) - 0.1 * np.tanh(y[k - 1]) ** 2
    return y


def square_plant(u, _):
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.8 * y[k - 1] + u[k] ** 2
    return y


def white(rng):
    return rng.normal(size=N_SAMPLES)


def steps(rng):
    """Return levels that are held for 5 to 29 samples."""
    levels = rng.uniform(-1.7, 1.7, size=N_SAMPLES)
    return np.repeat(levels, rng.integers(5, 30, size=N_SAMPLES))[:N_SAMPLES]


def coloured(rng):
    u = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        u[k] = 0.9 * u[k - 1] + 0.44 * rng.normal()
    return u


PLANTS = {
    "tanh": tanh_plant,
    "oscillating": oscillating_plant,
    "hammerstein": hammerstein_plant,
    "wiener": wiener_plant,
    "two_inputs": two_input_plant,
    "square": square_plant,
}
EXCITATIONS = {"white": white, "steps": steps, "coloured": coloured}


def simulate(plant, excitation, seed, delays=None):
    """Return a record of a plant whose inputs act after these delays, and the delays."""
    rng = np.random.default_rng(seed)
    delays = DELAYS[seed] if delays is None else delays
    inputs = [EXCITATIONS[excitation](rng) for _ in delays]
    y = PLANTS[plant](*(delayed(u, d) for u, d in zip(inputs, delays, strict=True)))
    y = y + NOISE[seed % len(NOISE)] * y.std() * rng.normal(size=N_SAMPLES)
    signals = {"y": y, "u": inputs[0]}
    if plant == "two_inputs":
        signals["v"] = inputs[1]
    return make_record(signals, name="r", sampling_time=0.5), delays[: len(signals) - 1]


def estimated(record):
    """Return the dead times of all inputs of a record."""
    inputs = [name for name in record if name != "y"]
    found = estimate_dead_times(record, "y", inputs)
    return [found.by_input[name].samples for name in inputs]


# --- estimates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", PLANTS)
def test_dead_time_is_found_within_a_sample(plant):
    record, delays = simulate(plant, "steps", 6)
    assert np.abs(np.subtract(estimated(record), delays)).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("excitation", EXCITATIONS)
@pytest.mark.parametrize("plant", PLANTS)
def test_dead_time_is_found_within_a_sample_in_nine_of_ten_records(plant, excitation):
    n_found = 0
    for seed in range(10):
        record, delays = simulate(plant, excitation, seed)
        is_near = [
            found is not None and abs(found - delay) <= 1
            for found, delay in zip(estimated(record), delays, strict=True)
        ]
        n_found += all(is_near)
    assert n_found >= 9


def test_outliers_and_missing_samples_do_not_hide_a_dead_time():
    record, _ = simulate("tanh", "steps", 5)
    rng = np.random.default_rng(0)
    y = record["y"].values.copy()
    y[rng.choice(len(y), 20, replace=False)] += 5.0
    y[rng.choice(len(y), 40, replace=False)] = np.nan
    assert estimated(record.assign(y=("time", y))) == [15]


def heater_record(seed, n=3000, n_errors=30):
    """Return a record with errors of 4 K; heat acts through a wall, from the eighth sample on."""
    rng = np.random.default_rng(seed)
    heat = np.repeat(rng.uniform(10, 90, 60), 70)[:n]
    flow = np.repeat(rng.uniform(2, 6, n // 100), 120)[:n]
    trajectory = simulators.simulate(simulators.Heater(), np.column_stack([heat, flow]), dt=0.5)
    y = trajectory.to_dataset()["temperature"].values + 0.08 * rng.normal(size=n)
    y[rng.choice(n, n_errors, replace=False)] += 4.0
    return make_record({"y": y, "heat": heat, "flow": flow}, name="r", sampling_time=0.5)


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_onset_with_outliers_is_not_found_too_late(seed):
    """At first its effect is hardly more than the noise."""
    found = estimate_dead_times(heater_record(seed), "y", ["heat", "flow"]).by_input
    of_flow = found["flow"].samples
    assert of_flow is None or of_flow <= 2
    onset = found["heat"].samples or found["heat"].slow_onset
    assert 3 <= onset <= 8
    assert found["heat"].largest_shift == onset - 1


@pytest.mark.parametrize("seed", [2, 6, 7])
def test_gross_errors_that_the_screen_leaves_do_not_decide(seed):
    """Some of those in the steep start-up remain, and would have more weight than the delay."""
    record = heater_record(seed, n=4000, n_errors=0)
    rng = np.random.default_rng(seed)
    y = record["y"].values.copy()
    signs = rng.choice([-1.0, 1.0], 40)
    y[rng.choice(len(y), 40, replace=False)] += signs * rng.uniform(2.0, 6.0, 40)
    y[rng.choice(len(y), 80, replace=False)] = np.nan
    record = record.assign(y=("time", y))
    n_left = 40 - sum(screen_records(record, ["y"], ["heat", "flow"]).n_found.values())
    assert n_left > 0

    found = estimate_dead_times(record, "y", ["heat", "flow"]).by_input["heat"]

    assert 3 <= (found.samples or found.slow_onset) <= 9
    assert found.errors.min() < 0.12  # the noise has a standard deviation of 0.08


@pytest.mark.parametrize("n_hold", [20, 100])
def test_steps_without_noise_are_no_gross_errors(n_hold):
    """One sample is wrong; the only other large errors are those of a line after the steps."""
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-1.0, 1.0, N_SAMPLES // n_hold), n_hold)
    gain = np.tanh(5.0 * delayed(u, 15))
    y = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        y[k] = 0.9 * y[k - 1] + 0.1 * gain[k]
    y[1000] += 10.0 * y.std()
    record = make_record({"y": y, "u": u}, name="r", sampling_time=0.5)
    assert sum(screen_records(record, ["y"], ["u"]).n_found.values()) == 1
    assert estimated(record) == [15]


def test_an_effect_at_once_has_no_slow_onset():
    record, _ = simulate("tanh", "steps", 0)
    found = estimate_dead_times(record, "y", ["u"]).by_input["u"]
    assert found.slow_onset is None
    assert found.largest_shift == 0


def test_dead_time_is_found_in_several_records():
    records = [
        simulate("tanh", "white", seed, (12, 0))[0].isel(time=slice(0, 700)) for seed in (0, 1)
    ]
    assert estimate_dead_times(records, "y", ["u"]).by_input["u"].samples == 12


def test_errors_by_delay_are_held_out_errors_of_the_window():
    """The error at each delay is that of least squares; the error without the input is larger."""
    record, _ = simulate("oscillating", "white", 4)
    found = estimate_dead_times(record, "y", ["u"]).by_input["u"]
    assert len(found.errors) == 101
    assert np.argmin(found.errors) in range(2, 8)
    assert found.errors.max() <= 1.02 * found.error_without
    assert found.error_without > 3 * found.errors.min()
    assert found.p_value < 1e-8


@pytest.mark.parametrize("early", [0.5, 0.1])
def test_a_second_late_effect_does_not_hide_the_first_one(early):
    rng = np.random.default_rng(0)
    u = rng.normal(size=N_SAMPLES)
    y = tanh_plant(delayed(u, 20), None) + 0.02 * rng.normal(size=N_SAMPLES)
    y += early * delayed(u, 1)
    record = make_record({"y": y, "u": u}, name="r", sampling_time=1.0)
    assert estimated(record) == [1]


def test_dead_time_of_an_input_without_effect_is_not_known():
    record, _ = simulate("tanh", "white", 5)
    noise = np.random.default_rng(1).normal(size=N_SAMPLES)
    record = record.assign(w=("time", noise))
    assert estimated(record) == [15, None]


@pytest.mark.parametrize("change", ["constant_output", "short", "constant_input"])
def test_there_is_no_estimate_without_information(change):
    record, _ = simulate("tanh", "white", 5)
    if change == "short":
        record = record.isel(time=slice(0, 30))
    else:
        name = "y" if change == "constant_output" else "u"
        record = record.assign({name: ("time", np.ones(N_SAMPLES))})
    found = estimate_dead_times(record, "y", ["u"])
    assert found.by_input == {}
    assert found.shifts(["u"]) == {"u": 0}
    assert found.describe() == []


def test_a_record_from_a_closed_loop_gets_a_warning():
    rng = np.random.default_rng(0)
    y = np.zeros(N_SAMPLES)
    u = np.zeros(N_SAMPLES)
    for k in range(5, N_SAMPLES):
        y[k] = 0.9 * y[k - 1] + 0.1 * u[k - 5] + 0.1 * rng.normal()
        u[k] = -1.5 * y[k - 1] + 0.1 * rng.normal()
    record = make_record({"y": y, "u": u}, name="r", sampling_time=1.0)
    (warning,) = estimate_dead_times(record, "y", ["u"]).warnings
    assert "u depends on past errors of y" in warning
    assert "closed loop" in warning


@pytest.mark.parametrize("excitation", EXCITATIONS)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_record_from_an_open_loop_gets_no_warning(plant, excitation):
    record, delays = simulate(plant, excitation, 4)
    assert estimate_dead_times(record, "y", ["u", "v"][: len(delays)]).warnings == []


# --- lags -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def delayed_record():
    return simulate("two_inputs", "white", 4, (7, 12))[0]


def test_lags_of_each_input_begin_with_its_dead_time(delayed_record):
    ranked = rank_lags(delayed_record, "y", ["u", "v"], max_order=3)
    assert sorted({tuple(row["nk"]) for row in ranked}) == [(6, 11), (7, 12)]
    assert ranked[0]["nk"] == [7, 12]


def test_without_a_dead_time_the_candidates_are_the_usual_ones():
    record, _ = simulate("two_inputs", "white", 4, (1, 0))
    ranked = rank_lags(record, "y", ["u", "v"], max_order=3)
    assert {row["nk"] for row in ranked} == {0, 1}


def test_inputs_with_equal_dead_times_share_one_number():
    record, _ = simulate("two_inputs", "white", 4, (9, 9))
    ranked = rank_lags(record, "y", ["u", "v"], max_order=2)
    assert {row["nk"] for row in ranked} == {8, 9}


@pytest.mark.parametrize("fit", ["best_arx", "best_arx_of_equal_lags"])
def test_linear_rivals_know_the_dead_times(delayed_record, fit):
    if fit == "best_arx":
        arx = best_arx(delayed_record, "y", ["u", "v"])
    else:
        arx = best_arx_of_equal_lags(
            delayed_record, best_arx(delayed_record, "y", []).narx, ["u", "v"]
        )
    assert arx.narx.lags["u"][0] in (6, 7)
    assert arx.narx.lags["v"][0] in (11, 12)


def test_the_choice_of_lags_states_dead_times(delayed_record):
    settings = Settings(training=Fixed(1.0, 3.0, 0.01), budget=10)
    choice = choose_lags(delayed_record, "y", ["u", "v"], max_order=1, settings=settings)
    assert choice.narx.lags["u"][0] in (6, 7)
    assert choice.narx.lags["v"][0] in (11, 12)
    assert choice.notes == ["u acts after 7 samples, 3.5 s", "v acts after 12 samples, 6 s"]
    assert "u acts after 7 samples, 3.5 s" in str(choice)


def test_candidates_in_free_run_have_the_dead_times(delayed_record, monkeypatch):
    def compare_lags(self, samples, labels, **settings):
        return [Trial(LinearModel(), with_lags.narx, []) for with_lags in samples]

    monkeypatch.setattr(FreeRun, "compare_lags", compare_lags)
    settings = Settings(training=FreeRun())
    choice = choose_lags(delayed_record, "y", ["u", "v"], max_order=1, settings=settings)
    assert [row["nk"] for row in choice.tried] == [[6, 11], [7, 12]]
    assert choice.narx.lags["v"] == (11,)


def test_candidates_in_free_run_begin_with_a_slow_onset_too(monkeypatch):
    def compare_lags(self, samples, labels, **settings):
        return [Trial(LinearModel(), with_lags.narx, []) for with_lags in samples]

    def estimate(records, target, inputs):
        of_u = DeadTime(None, np.ones(3), 1.0, np.nan, slow_onset=6)
        return DeadTimes({"u": of_u}, 1.0, "s", "", [])

    monkeypatch.setattr(FreeRun, "compare_lags", compare_lags)
    monkeypatch.setattr("sysid.lag_choice.estimate_dead_times", estimate)
    record, _ = simulate("tanh", "steps", 0)
    choice = choose_lags(record, "y", ["u"], settings=Settings(training=FreeRun()))
    candidates = [(row["na"], row["nb"], row["nk"]) for row in choice.tried]
    assert {(2, 2, 0), (2, 2, 1), (2, 41, 0), (2, 2, 5), (2, 2, 6)} < set(candidates)
    assert (2, 41, 5) not in candidates


# --- from Python ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_the_delay():
    """Model whose lags end before the input acts."""
    record, _ = simulate("tanh", "white", 5)
    training = replace(
        Settings().training, n_initial=50, record_samples=50, restarts=1, max_iterations=5
    )
    settings = Settings(training=training, budget=10, linear_part="none")
    return identify(record, Narx({"y": 1}, {"u": 3}), settings)


def test_a_model_tells_which_lag_is_missing(without_the_delay):
    (note,) = without_the_delay.notes
    assert "the errors of y still contain u at lag 15 (+0.9" in note
    assert 'give it lags up to 15; narx="auto" finds dead times' in note
    assert f"Note: {note}" in repr(without_the_delay)


def test_a_model_tests_its_errors_on_any_record(without_the_delay):
    record, _ = simulate("tanh", "white", 5)
    (test,) = [
        test for test in without_the_delay.residual_tests(record)["y"].tests if test.name == "input"
    ]
    assert test.alarm
    assert test.largest_lag == 15
    assert without_the_delay.residual_tests(record.isel(time=slice(0, 60))) == {}


def test_an_identified_model_states_dead_times_and_a_closed_loop():
    record, _ = simulate("tanh", "white", 5)
    training = Fixed(1.0, 3.0, 1e-3, n_initial=20)
    narx = Narx({"y": 1}, {"u": [15]})
    found = identify(record, narx, training=training, budget=15, linear_part="none")
    assert "acts after" not in repr(found)
    dead_times = estimate_dead_times(record, "y", ["u"])._replace(warnings=["a closed loop"])
    settings = Settings(training=training)
    choice = LagChoice(narx, "one_step", [], [], settings, dead_times)
    shown = replace(found, lag_choices={"y": choice})
    assert "u[k-15]; 15 points; u acts after 15 samples, 7.5 s" in repr(shown)
    assert shown.notes[0] == "a closed loop"
