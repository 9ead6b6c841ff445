"""Gross errors of records are found, and what the plant really does is not taken for one."""

from dataclasses import replace

import numpy as np
import pytest

from recorded_plants import records
from sysid import (
    FreeRun,
    Identification,
    Narx,
    OnMissing,
    Settings,
    choose_lags,
    identify,
    make_record,
    rank_lags,
    screen_records,
)
from sysid.gross_errors import MAX_REWEIGHTED_ROWS, are_rows_untouched, are_untouched
from sysid.missing_outputs import estimate_by_lines
from sysid.simulation.forecast import forecast
from sysid.simulation.segments import segments_of_records
from sysid.simulation_error.linear_model import LinearModel

N_SAMPLES = 1000
#: a training on a tenth of the samples is enough for the plant of `simulate`
QUICK = Settings(budget=20, training=replace(Settings().training, record_samples=100))


def simulate(u, *, saturates=False, seed=0):
    """Return the output of y[k] = 0.8 y[k-1] + u[k-1] + e[k]; the input may saturate at 1."""
    rng = np.random.default_rng(seed)
    acting = np.tanh(u) if saturates else u
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.8 * y[k - 1] + acting[k - 1] + 0.01 * rng.normal()
    return y


def noise(seed=1):
    return np.random.default_rng(seed).normal(size=N_SAMPLES)


def levels(seed=1, n_held=20):
    """Return an input that holds each of its levels for so many samples."""
    return np.repeat(np.random.default_rng(seed).uniform(-1, 1, N_SAMPLES // n_held), n_held)


def pulses():
    """Return an input that rests, except for a pulse of one sample now and then."""
    u = np.zeros(N_SAMPLES)
    u[50::97] = 1.0
    return u


def noise_with_spikes():
    u = 0.3 * noise()
    u[30::71] += 4.0
    return u


def binary(seed=1):
    return np.repeat(np.random.default_rng(seed).choice([-1.0, 1.0], N_SAMPLES // 5), 5)


EXCITATIONS = {
    "noise": noise,
    "levels": levels,
    "pulses": pulses,
    "noise with spikes": noise_with_spikes,
    "binary": binary,
}


def record_of(u, y):
    return make_record({"y": y, "u": u}, name="record", sampling_time=1.0)


def found_in(record):
    """Return the samples of y and of u that are taken for gross errors."""
    marks = screen_records(record, ["y"], ["u"]).marks[0]
    return [np.flatnonzero(marks[name]).tolist() for name in ("y", "u")]


@pytest.mark.parametrize("saturates", [False, True], ids=["linear", "saturating"])
@pytest.mark.parametrize("excitation", EXCITATIONS.values(), ids=EXCITATIONS.keys())
def test_a_record_without_gross_errors_keeps_all_values(excitation, saturates):
    u = excitation()
    record = record_of(u, simulate(u, saturates=saturates))
    screened = screen_records(record, ["y"], ["u"])
    assert screened.n_found == {}
    assert screened.describe() == ""
    assert screened.records[0].drop_attrs().identical(record.drop_attrs())


@pytest.mark.parametrize("size", [5, 30, 1000])
@pytest.mark.parametrize("excitation", [noise, levels, binary])
def test_gross_errors_of_the_output_are_found_anywhere(excitation, size):
    u = excitation()
    y = simulate(u)
    wrong = [0, 1, 57, 300, 301, 302, 640, N_SAMPLES - 1]
    y[wrong] += size * y.std() * np.array([1, -1, 1, 1, 1, 1, -1, 1])
    assert found_in(record_of(u, y)) == [wrong, []]


@pytest.mark.parametrize("size", [8, 1000])
@pytest.mark.parametrize("excitation", [noise, binary])
def test_gross_errors_of_the_input_are_found(excitation, size):
    u = excitation()
    y = simulate(u, saturates=True)
    wrong = [11, 57, 300, 640]
    u[wrong] += size * u.std() * np.array([1, -1, 1, -1])
    assert found_in(record_of(u, y)) == [[], wrong]


def simulate_slowly(u):
    """Return the output of two slow stages in a row, with noise."""
    rng = np.random.default_rng(0)
    x = np.zeros(len(u))
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        x[k] = 0.95 * x[k - 1] + 0.05 * u[k - 1]
        y[k] = 0.97 * y[k - 1] + 0.03 * x[k - 1]
    return y + 0.04 * y.std() * rng.normal(size=len(u))


#: samples of spikes, and their sizes in standard deviations of the input
SPIKES = np.arange(37, N_SAMPLES, 53)
SPIKE_STDS = np.geomspace(6, 40, len(SPIKES)) * np.resize([1, -1], len(SPIKES))


def test_gross_errors_of_an_input_that_no_lag_is_clear_about_are_found_together():
    """The lags of held levels are collinear, and the answer to one sample drowns in the noise."""
    u = levels(n_held=50)
    y = simulate_slowly(u)
    u[SPIKES] += SPIKE_STDS * u.std()
    assert found_in(record_of(u, y)) == [[], SPIKES.tolist()]


def test_gross_errors_of_an_input_that_holds_its_levels_are_replaced():
    u = levels(n_held=50)
    spoiled = u.copy()
    spoiled[SPIKES] += SPIKE_STDS * u.std()
    screened = screen_records(record_of(spoiled, simulate_slowly(u)), ["y"], ["u"])
    last_of_a_level = 249
    assert last_of_a_level in SPIKES
    np.testing.assert_allclose(screened.records[0]["u"], u, atol=1e-12)
    assert screened.n_found == {"u": len(SPIKES)}
    assert "replaced by the level that the input holds" in screened.describe()
    again = screen_records(screened.records[0], ["y"], ["u"])
    assert again.describe() == screened.describe()


@pytest.mark.parametrize("first_wrong", [98, 99, 100, 101])
def test_the_outputs_tell_at_which_of_the_wrong_samples_a_level_changed(first_wrong):
    u = levels()
    spoiled = u.copy()
    wrong = slice(first_wrong, first_wrong + 2)
    spoiled[wrong] += 30.0
    screened = screen_records(record_of(spoiled, simulate(u)), ["y"], ["u"])
    assert screened.n_found == {"u": 2}
    np.testing.assert_allclose(screened.records[0]["u"], u, atol=1e-12)


@pytest.mark.parametrize(
    "u",
    [np.random.default_rng(1).choice([-1.0, 1.0], N_SAMPLES), noise()],
    ids=["binary", "noise"],
)
def test_gross_errors_of_an_input_that_holds_no_level_are_estimated(u):
    """Half of the values of the binary input between equal ones differ from them."""
    spoiled = u.copy()
    wrong = [57, 300, 301, 640]
    spoiled[wrong] += 30.0
    screened = screen_records(record_of(spoiled, simulate(u)), ["y"], ["u"])
    found = screened.records[0]["u"].values
    noise_std = 0.01
    np.testing.assert_allclose(found[wrong], u[wrong], atol=6 * noise_std)
    untouched = np.setdiff1d(np.arange(N_SAMPLES), wrong)
    np.testing.assert_array_equal(found[untouched], u[untouched])
    assert "4 measured values are not learned" in screened.describe()


def test_gross_errors_of_an_input_that_no_output_tells_are_missing():
    u = noise(3)
    y = simulate(noise(4))
    wrong = [57, 300, 640]
    u[wrong] += 1000.0
    screened = screen_records(record_of(u, y), ["y"], ["u"])
    assert np.flatnonzero(~np.isfinite(screened.records[0]["u"])).tolist() == wrong
    assert "3 measured values are taken as missing" in screened.describe()


@pytest.mark.parametrize("plant", ["motor", "heat_exchanger"])
def test_gross_errors_of_two_inputs_in_a_short_record_are_found(plant):
    """Few rows have no error among the many lags of both inputs."""
    n = 800
    u, y = records(plant, seeds=2)[1]["estimation"]
    rng = np.random.default_rng([1, 7])
    signals = {"y": y[:n]}
    wrong = {}
    for number in range(2):
        name = f"u{number}"
        spoiled = u[:n, number].copy()
        samples = rng.choice(n, n // 50, replace=False)
        sizes = rng.choice([-1, 1], n // 50) * 10 ** rng.uniform(np.log10(5), 3, n // 50)
        spoiled[samples] += sizes * spoiled.std()
        signals[name] = spoiled
        wrong[name] = sorted(samples.tolist())
    record = make_record(signals, name="record", sampling_time=1.0)
    screened = screen_records(record, ["y"], list(wrong))
    for name, samples in wrong.items():
        assert np.flatnonzero(screened.marks[0][name]).tolist() == samples


@pytest.mark.parametrize("excitation", [noise, levels])
@pytest.mark.parametrize("signal", ["y", "u"])
def test_gross_errors_do_not_end_the_free_runs_that_a_training_simulates(signal, excitation):
    u = excitation()
    clean = {"y": simulate(u), "u": u}
    rng = np.random.default_rng(5)
    wrong = rng.choice(N_SAMPLES, N_SAMPLES // 50, replace=False)
    spoiled = clean | {signal: clean[signal].copy()}
    sizes = 10 ** rng.uniform(np.log10(8), 3, len(wrong))
    spoiled[signal][wrong] += rng.choice([-1, 1], len(wrong)) * sizes * clean[signal].std()
    test = record_of(excitation(7), simulate(excitation(7), seed=7))
    training = FreeRun(routes=(LinearModel(),), folds=2, find_limits=False)
    errors = []
    for signals in (clean, spoiled):
        record = record_of(signals["u"], signals["y"])
        screened = screen_records(record, ["y"], ["u"])
        narx = screened.for_rows(Narx({"y": 1}, {"u": 10}))
        (estimated,) = estimate_by_lines(screened.records, screened.records, ["y"], ["u"])
        settings = Settings(training=training, budget=10)
        identification = Identification.of_records(estimated, narx, settings)
        assert len(segments_of_records(estimated, narx)) == 1
        found = forecast(identification.model, test, horizon=None, window=10).records[0]
        errors.append(float(np.std(found.mean[:, 0] - found.measured[:, 0])))
    assert identification.n_gross_errors == {signal: len(wrong)}
    assert errors[1] < 1.05 * errors[0]


def test_real_spikes_of_an_input_that_no_lag_is_clear_about_are_kept():
    u = levels(n_held=50)
    u[SPIKES] += SPIKE_STDS * u.std()
    assert found_in(record_of(u, simulate_slowly(u))) == [[], []]


def test_a_code_that_a_logger_writes_for_some_samples_is_found():
    u = noise()
    y = simulate(u)
    y[400:408] = -999.0
    assert found_in(record_of(u, y)) == [list(range(400, 408)), []]


def test_a_disturbance_that_moves_the_plant_is_no_gross_error():
    u = noise()
    y = simulate(u)
    decay = 0.8 ** np.arange(N_SAMPLES - 500)
    y[500:] += 40.0 * decay
    assert found_in(record_of(u, y)) == [[], []]


def test_records_are_screened_once():
    u = noise()
    y = simulate(u)
    y[300] += 50.0
    screened = screen_records(record_of(u, y), ["y"], ["u"])
    again = screen_records(screened.records, ["y"], ["u"])
    assert again.records == screened.records
    assert again.n_found == screened.n_found == {"y": 1}
    assert "1 measured value is taken as missing (1 of y)" in screened.describe()


def test_a_model_of_a_record_with_gross_errors_is_as_good_as_of_the_clean_record():
    u = noise()
    y = simulate(u, saturates=True)
    test_u = noise(seed=7)
    test = (test_u, simulate(test_u, saturates=True, seed=8))
    narx = Narx({"y": 1}, {"u": 1})
    wrong_y = y.copy()
    wrong_y[40::53] += 100.0
    wrong_u = u.copy()
    wrong_u[21::47] = -999.0
    settings = {"dt": 1.0, "budget": 30, "linear_part": "none", "test": test}
    clean = identify((u, y), narx, **settings)
    with pytest.warns(UserWarning, match="40 measured values are not learned"):
        dirty = identify((wrong_u, wrong_y), narx, **settings)
    rmse = [found.validate().loc[("y", "1 step"), "rmse"] for found in (clean, dirty)]
    assert rmse[1] < 1.1 * rmse[0]
    assert dirty.identifications["y"].n_gross_errors == {"y": 19, "u": 21}
    assert np.array_equal(dirty.measured.estimation[0]["y"].values, wrong_y)


def test_without_a_gate_every_sample_is_learned():
    u = noise()
    y = simulate(u)
    y[300] += 50.0
    settings = Settings(budget=10, gate=None)
    found = Identification.of_records(record_of(u, y), Narx({"y": 1}, {"u": 1}), settings)
    assert found.n_gross_errors == {}
    assert found.model.gp.n_seen == N_SAMPLES - 1


def test_lags_are_chosen_without_gross_errors():
    u = noise()
    y = simulate(u)
    settings = Settings(budget=10, linear_part="none")
    clean = choose_lags(record_of(u, y), "y", ["u"], settings=settings, max_order=2)
    y[[100, 500, 501]] += [80.0, -80.0, 900.0]
    dirty = choose_lags(record_of(u, y), "y", ["u"], settings=settings, max_order=2)
    assert dirty.narx.lags == clean.narx.lags
    assert any("3 of y" in note for note in dirty.notes)


def test_an_error_far_smaller_than_the_range_of_a_slow_output_is_found():
    """The output moves by many times the size of the errors, but a line predicts it."""
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-1, 1, 40), 50)
    y = np.zeros(2000)
    for k in range(1, 2000):
        y[k] = 0.97 * y[k - 1] + 0.03 * u[k - 1] + 0.001 * rng.normal()
    wrong = [50, 700, 1300]
    measured = y.copy()
    measured[wrong] += 0.4 * y.std()
    assert found_in(record_of(u, measured)) == [wrong, []]
    assert found_in(record_of(u, y)) == [[], []]


def test_a_plant_with_an_even_effect_of_its_input_contradicts_no_line():
    rng = np.random.default_rng(4)
    u = rng.normal(size=2000)
    y = np.zeros(2000)
    for k in range(1, 2000):
        y[k] = 0.7 * y[k - 1] + 0.2 * u[k - 1] + 0.3 * u[k - 1] ** 2 + 0.01 * rng.normal()
    assert found_in(record_of(u, y)) == [[], []]


def even_plant(u, effect):
    """Return the output of y[k] = 0.7 y[k-1] + effect(u[k-1]) + e[k]."""
    rng = np.random.default_rng(0)
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.7 * y[k - 1] + effect(u[k - 1]) + 0.02 * rng.normal()
    return y


@pytest.mark.parametrize("size", [8.0, 30.0])
def test_gross_errors_of_an_input_with_an_even_effect_are_found(size):
    u = noise()
    y = even_plant(u, np.square)
    wrong = [100, 400, 401, 650, 800]
    u[wrong] += size * np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    assert found_in(record_of(u, y)) == [[], wrong]


@pytest.mark.parametrize(
    "effect",
    [np.square, np.abs, lambda u: np.minimum(u**2, 4.0), lambda u: u**2 / (1.0 + u**2 / 4.0)],
    ids=["square", "magnitude", "limited square", "saturating square"],
)
def test_real_pulses_of_an_input_with_an_even_effect_are_kept(effect):
    u = noise()
    u[[100, 300, 500, 600, 650, 800]] += 8.0
    assert not found_in(record_of(u, even_plant(u, effect)))[1]


def test_the_excitation_after_a_long_rest_is_no_error():
    rng = np.random.default_rng(0)
    u = np.concatenate([np.zeros(10_000), rng.normal(size=900)])
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1])
    assert found_in(record_of(u, y)) == [[], []]


def test_scores_with_and_without_gross_errors_stand_side_by_side():
    u = noise()
    y = simulate(u)
    narx = Narx({"y": 1}, {"u": 1})
    found = identify((u[:700], y[:700]), narx, inputs=["u"], outputs=["y"], dt=1.0, budget=20)
    clean = found.validate((u[700:], y[700:]))
    assert "n_gross_errors" not in clean
    wrong = y[700:].copy()
    wrong[[100, 200]] += 50.0
    table = found.validate((u[700:], wrong))
    assert (table["n_gross_errors"] == 2).all()
    assert (table["rmse"] > 100 * clean["rmse"]).all()
    assert (table["rmse_without_gross_errors"] < 1.1 * clean["rmse"]).all()
    learner = found.identifications["y"]
    learner.settings = replace(learner.settings, gate=None)
    assert "n_gross_errors" not in found.validate((u[700:], wrong))


def test_lines_are_compared_without_gross_errors_too():
    u = noise()
    y = simulate(u)
    narx = Narx({"y": 1}, {"u": 1})
    found = identify((u[:700], y[:700]), narx, inputs=["u"], outputs=["y"], dt=1.0, budget=20)
    wrong = y[700:].copy()
    wrong[[100, 200]] += 50.0
    clean = found.compare(data=(u[700:], y[700:]))
    table = found.compare(data=(u[700:], wrong))
    assert [*clean.columns] == ["rmse", "fit_percent"]
    assert [*table.columns] == [
        "rmse_without_gross_errors",
        "fit_without_gross_errors",
        "rmse",
        "fit_percent",
    ]
    assert table["rmse_without_gross_errors"].tolist() == pytest.approx(
        clean["rmse"].tolist(), rel=0.1
    )
    assert (table["rmse"] > 10 * table["rmse_without_gross_errors"]).all()


def test_gross_errors_take_no_part_in_the_residual_tests():
    u = noise()
    y = simulate(u)
    narx = Narx({"y": 1}, {"u": 1})
    found = identify((u[:700], y[:700]), narx, inputs=["u"], outputs=["y"], dt=1.0, budget=20)
    wrong = y[700:].copy()
    wrong[150] += 50.0
    tested = found.residual_tests((u[700:], wrong))["y"]
    clean = found.residual_tests((u[700:], y[700:]))["y"]
    assert tested.n == clean.n - 2  # the wrong sample, and the one that has it among its lags
    for test, of_clean in zip(tested.tests, clean.tests, strict=True):
        assert test.values == pytest.approx(of_clean.values, abs=0.15)


def test_rows_without_any_that_is_untouched():
    u = noise()
    wrong = simulate(u)
    wrong[2::40] += 50.0
    narx = Narx({"y": 45}, {"u": 1})
    screened = screen_records(record_of(u, wrong), ["y"], ["u"])
    rows = narx.dataset(record_of(u, wrong))
    numbers = rows["record"].values.tolist()
    times = rows["time"].values.tolist()
    assert not are_rows_untouched(screened, narx, numbers, times).any()
    shorter = Narx({"y": 1}, {"u": 1})
    is_untouched = are_rows_untouched(screened, shorter, numbers, times)
    clean = screened.for_rows(shorter).dataset(screened.records)["time"].values
    assert is_untouched.tolist() == np.isin(times, clean).tolist()
    assert are_rows_untouched(screened, narx, [], []).tolist() == []


def test_gross_errors_are_counted_for_each_model():
    u = noise()
    w = noise(2)
    inputs = np.stack([u, w], axis=1)
    outputs = np.stack([simulate(u), simulate(w, seed=3)], axis=1)
    learned = inputs[:700], outputs[:700]
    options = {"inputs": ["u", "w"], "outputs": ["y", "z"], "dt": 1.0}
    of_y = identify(learned, Narx({"y": 1}, {"u": 1}), QUICK, **options)
    of_z = identify(learned, Narx({"z": 1}, {"w": 1}), QUICK, **options)
    both = replace(of_y, identifications=of_y.identifications | of_z.identifications)
    wrong = outputs[700:].copy()
    wrong[[100, 200], 0] += 50.0
    wrong[150, 1] += 50.0
    table = both.validate((inputs[700:], wrong))
    assert table["n_gross_errors"]["y"].tolist() == [2, 2]
    assert table["n_gross_errors"]["z"].tolist() == [1, 1]


def test_the_samples_that_a_gross_error_touches_are_those_with_it_among_their_lags():
    marks = {"y": np.zeros(10, dtype=bool), "u": np.zeros(10, dtype=bool)}
    marks["y"][2] = True
    marks["u"][6] = True
    untouched = are_untouched(marks, Narx({"y": 2}, {"u": [0, 2]}))
    assert np.flatnonzero(~untouched).tolist() == [2, 3, 4, 6, 8]


@pytest.mark.parametrize("seed", range(2))
def test_runs_of_errors_within_the_range_of_the_signal_are_found(seed):
    rng = np.random.default_rng(seed)
    u = levels()
    y = simulate(u)
    wrong = y.copy()
    is_wrong = np.zeros(N_SAMPLES, dtype=bool)
    for begin in (100, 340, 560, 700, 905):
        run = slice(begin, begin + int(rng.integers(2, 6)))
        size = rng.uniform(1.5, 3.0, size=run.stop - run.start) * y.std()
        wrong[run] += size * rng.choice([-1, 1], size=len(size))
        is_wrong[run] = True
    found = screen_records(record_of(u, wrong), ["y"], ["u"]).marks[0]["y"]
    np.testing.assert_array_equal(found, is_wrong)


def test_errors_of_a_record_that_is_longer_than_the_robust_fit_are_found():
    rng = np.random.default_rng(3)
    n = 2 * MAX_REWEIGHTED_ROWS
    u = np.repeat(rng.uniform(-1, 1, n // 20), 20)
    y = simulate(u)
    is_wrong = np.zeros(n, dtype=bool)
    is_wrong[rng.choice(np.arange(50, n - 50), n // 200, replace=False)] = True
    wrong = np.where(is_wrong, y + rng.choice([-0.5, 0.5], size=n), y)  # y reaches 4
    found = screen_records(record_of(u, wrong), ["y"], ["u"]).marks[0]["y"]
    np.testing.assert_array_equal(found, is_wrong)


@pytest.mark.parametrize("distance", [1, 2, 3, 5])
@pytest.mark.parametrize("excitation", [noise, levels])
def test_a_small_error_near_a_huge_one_is_found(excitation, distance):
    """The huge one is among the lags of the rows that tell of the small one, and is unknown."""
    u = excitation()
    y = simulate(u)
    small = np.array([100, 340, 560, 905])
    huge = small + distance * np.array([1, -1, 1, -1])
    y[small] += 5 * y.std() * np.array([1, 1, -1, -1])
    y[huge] += 1000 * y.std()
    assert found_in(record_of(u, y)) == [sorted([*small, *huge]), []]


# --- errors that the screen did not name ----------------------------------------------------------


def screened_record(u, y, n_found):
    """Return a record that counts as screened, with so many gross errors of y."""
    return record_of(u, y).assign_attrs(gross_errors=f'{{"y": {n_found}}}')


def lags_of_best(record):
    """Return na, nb and nk of the fewest lags within 1 % of the best of the linear models."""
    ranked = rank_lags(record, "y", ["u"], max_order=4, on_missing=OnMissing.skip)
    equal = [row for row in ranked if row["linear"] <= 1.01 * ranked[0]["linear"]]
    best = min(equal, key=lambda row: row["na"] + row["nb"])
    return best["na"], best["nb"], best["nk"]


@pytest.mark.parametrize("seed", [1, 6])
def test_one_gross_error_that_remained_does_not_decide_about_the_lags(seed):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=600)
    y = np.zeros(600)
    for k in range(2, 600):
        y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1] + 0.05 * rng.normal()
    y[300] = np.nan  # the one that was found
    assert lags_of_best(screened_record(u, y, 1)) == (2, 1, 1)
    y[150] += np.nanstd(y)
    assert lags_of_best(screened_record(u, y, 1)) == (2, 1, 1)
    assert lags_of_best(screened_record(u, y, 0)) != (2, 1, 1)  # every error counts in full


def test_a_choice_by_cut_errors_says_so():
    u = noise()
    y = simulate(u)
    y[[300, 640]] += [50.0, -50.0]
    choice = choose_lags(record_of(u, y), "y", ["u"], settings=QUICK, max_order=1)
    assert any("further gross errors may have remained" in note for note in choice.notes)
    clean = choose_lags(record_of(u, simulate(u)), "y", ["u"], settings=QUICK, max_order=1)
    assert not any("held-out errors beyond" in note for note in clean.notes)
    assert choice.narx.lags == clean.narx.lags
