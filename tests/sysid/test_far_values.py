"""Values of inputs and other outputs far outside of everything learned are not learned at first."""

from dataclasses import replace

import numpy as np
import pytest

from sysid import Identification, Model, Narx, Settings
from sysid.far_values import MAX_UNEXPLAINED_EXCURSIONS, FarValues
from sysid.gp.outlier_decisions import MAX_BURST_SAMPLES

NARX = Narx({"y": 2}, {"u": 2}, predict="change")
SETTINGS = Settings(budget=50)
N_SAMPLES = 900
BEGIN = 500
N_TRANSIENT = 50  # samples after a burst that do not count


def simulate(n=N_SAMPLES, *, seed=0, holds=1):
    """Return u and y of y[k] = 0.8 y[k-1] + tanh(u[k-1]) + e[k]; u is held for some samples."""
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.normal(size=n // holds), holds)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1]) + 0.01 * rng.normal()
    return u, y


def identify(u, y, n_together=N_SAMPLES, narx=NARX, settings=SETTINGS):
    """Return the identification of a stream in blocks of rows, its record, and errors by sample."""
    rows = narx.regressors({"y": y, "u": u})
    identification = Identification(narx, settings)
    records = []
    for begin in range(0, len(rows.target), n_together):
        block = slice(begin, begin + n_together)
        records.append(
            identification.observe_many(rows.regressor[block], rows.target[block]).copy()
        )
    record = np.concatenate(records)
    errors = np.full(len(y), np.nan)
    errors[rows.sample] = rows.target - record["mean"]
    return identification, record, errors


def rms(errors):
    return float(np.sqrt(np.mean(errors**2)))


@pytest.mark.parametrize("n_together", [N_SAMPLES, 1], ids=["block", "one by one"])
@pytest.mark.parametrize("length", [1, 3, 10])
@pytest.mark.parametrize("values", ["constant", "random"])
def test_a_failing_sensor_of_an_input_does_not_change_the_model(length, values, n_together):
    u, y = simulate()
    after = slice(BEGIN + length + N_TRANSIENT, None)
    clean = rms(identify(u, y)[2][after])
    wrong = np.full(length, -999.0)
    if values == "random":
        wrong = 1000.0 * np.random.default_rng(length).choice([-1.0, 1.0], length)
    u[BEGIN : BEGIN + length] = wrong
    identification, record, errors = identify(u, y, n_together)
    assert rms(errors[after]) < 1.1 * clean
    assert identification.n_mended == {"u": length}
    # the rows with one of the values among the two lags of u, which begin one sample later
    passed_over = slice(BEGIN + 1 - NARX.max_lag, BEGIN + 1 - NARX.max_lag + length + 1)
    assert not record["inserted"][passed_over].any()


def test_the_rows_are_predicted_with_the_last_value_before():
    u, y = simulate(holds=30)
    clean = identify(u, y)[2]
    u[BEGIN : BEGIN + 5] = -999.0  # u would stay as it is here
    _, _, errors = identify(u, y)
    during = slice(BEGIN, BEGIN + 6)
    assert np.allclose(errors[during], clean[during], atol=0.01)


def test_another_output_that_fails_does_not_change_the_model():
    rng = np.random.default_rng(1)
    u, y = simulate()
    v = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        v[k] = 0.7 * v[k - 1] + 0.4 * np.tanh(y[k - 1]) + 0.01 * rng.normal()
    narx = Narx({"y": 2, "v": 2}, {"u": 2}, target="v", predict="change")

    def error_after(y_measured):
        rows = narx.regressors({"y": y_measured, "v": v, "u": u})
        identification = Identification(narx, SETTINGS)
        record = identification.observe_many(rows.regressor, rows.target)
        return rms((rows.target - record["mean"])[BEGIN + N_TRANSIENT :])

    wrong = y.copy()
    wrong[BEGIN : BEGIN + 10] = 1000.0 * rng.normal(size=10)
    assert error_after(wrong) < 1.1 * error_after(y)


@pytest.mark.parametrize("n_together", [7, 1])
def test_blocks_of_any_size_give_the_same_model(n_together):
    u, y = simulate(holds=4)
    u[200:203] = 30.0
    y[201] += 5.0  # a wrong output just before: its decision comes with the far values
    u[300:340] = 12.0
    y[400:404] += 3.0
    u[404:408] = -500.0
    found = [identify(u, y, n)[:2] for n in (N_SAMPLES, n_together)]
    for field in ("mean", "variance"):
        assert np.array_equal(*(record[field] for _, record in found), equal_nan=True)
    assert found[0][0].n_mended == found[1][0].n_mended


def test_a_new_level_is_learned_after_ten_samples():
    u, y = simulate(holds=10)
    rng = np.random.default_rng(3)
    u[BEGIN:] = 30.0 + rng.normal(size=N_SAMPLES - BEGIN)
    y[BEGIN:] = 0.0
    for k in range(BEGIN, N_SAMPLES):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1] - 30.0) + 0.01 * rng.normal()
    identification, _, errors = identify(u, y)
    assert identification.n_mended["u"] == MAX_BURST_SAMPLES
    assert rms(errors[-100:]) < 0.1


def test_real_pulses_are_learned_after_some():
    """The output responds: the value before a pulse does not explain it."""
    rng = np.random.default_rng(4)
    u = 0.01 * rng.normal(size=N_SAMPLES)
    begins = range(200, N_SAMPLES, 40)
    for begin in begins:
        u[begin : begin + 4] += 1.0
    y = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        y[k] = 0.8 * y[k - 1] + u[k - 1] + 0.01 * rng.normal()
    identification, _, errors = identify(u, y)
    assert identification.n_mended["u"] == 4 * MAX_UNEXPLAINED_EXCURSIONS
    assert rms(errors[begins[-5] :]) < 0.1


def test_a_model_that_is_saved_during_an_excursion_goes_on_alike(tmp_path):
    u, y = simulate()
    u[BEGIN : BEGIN + 6] = -999.0
    rows = NARX.regressors({"y": y, "u": u})
    whole = Identification(NARX, SETTINGS)
    whole.observe_many(rows.regressor, rows.target)
    first = Identification(NARX, SETTINGS)
    cut = BEGIN + 3
    first.observe_many(rows.regressor[:cut], rows.target[:cut])
    path = tmp_path / "model.nc"
    first.require_model().save(path)
    resumed = Identification.resume(Model.load(path))
    resumed.observe_many(rows.regressor[cut:], rows.target[cut:])
    predicted = [
        found.require_model().predict(rows.regressor[-50:]).mean for found in (whole, resumed)
    ]
    assert np.array_equal(*predicted)


def test_nothing_is_far_before_the_signal_has_moved_nor_without_the_gate():
    far_values = FarValues(NARX)
    x = np.zeros((5, 4))
    assert far_values.are_near(x)
    x[3:, 2:] = 7.0  # the first step of an input that was constant
    assert far_values.are_near(x)
    x[4, 2] = 100.0
    assert not far_values.are_near(x)
    u, y = simulate()
    u[BEGIN : BEGIN + 5] = -999.0
    identification, _, _ = identify(u, y, settings=replace(SETTINGS, gate=None))
    assert identification.n_mended == {}


def test_pulses_of_a_whole_record_are_learned():
    """A record was screened before: what is left of its inputs is real."""
    rng = np.random.default_rng(4)
    u = 0.01 * rng.normal(size=N_SAMPLES)
    u[[300, 301, 302]] += 1.0
    y = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        y[k] = 0.8 * y[k - 1] + u[k - 1] + 0.01 * rng.normal()
    rows = NARX.regressors({"y": y, "u": u})
    start = SETTINGS.know(NARX, rows.regressor, rows.target)
    identification = Identification(NARX, SETTINGS, start=start)
    identification.observe_many(rows.regressor, rows.target)
    assert identification.n_mended == {}
    identification.finish()
    rows.regressor[-1, 2] = 100.0  # from here on it is a stream
    identification.observe_many(rows.regressor[-1:], rows.target[-1:])
    assert identification.n_mended == {"u": 1}


def test_a_state_that_does_not_fit_is_refused():
    far_values = FarValues(NARX)
    far_values.recall(FarValues(NARX).write())
    with pytest.raises(KeyError):
        far_values.recall({"w": [0.0, 1.0, 0.0, 0, 0, 0, 0]})
    with pytest.raises((TypeError, ValueError)):
        far_values.recall({"u": [0.0, 1.0]})
