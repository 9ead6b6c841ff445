"""Estimates of missing outputs, compared with a naive version, and records with holes."""

import numpy as np
import pandas as pd
import pytest

from sysid import (
    FreeRun,
    Identification,
    LagWindow,
    MaximumAPosteriori,
    Narx,
    Settings,
    identify,
    make_record,
)
from sysid.missing_outputs import estimate_by_lines, estimate_by_model, estimate_missing
from sysid.narx.record import read_records
from sysid.narx.window import Estimates
from sysid.simulation.baselines import LinearArx
from sysid.simulation.forecast import forecast
from sysid.simulation.segments import numbered_segments, segments_of_records
from sysid.simulation_error.linear_model import LinearModel

N = 400
SETTINGS = Settings(training=MaximumAPosteriori(n_initial=40), budget=20, linear_part="none")


def simulate(seed=0, n=N):
    """Return input and output of a first-order plant with a saturated input and noise."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + np.tanh(u[k - 1]) + 0.05 * rng.normal()
    return u, y


def make(u, y):
    return make_record(
        {"u": u, "y": y}, name="r", sampling_time=0.1, attributes={"on_missing": "skip"}
    )


def with_holes(values, samples):
    holed = values.copy()
    holed[samples] = np.nan
    return holed


HOLES = {
    "single": [50, 120],
    "two lags apart": [50, 52],
    "in a row": [80, 81, 82],
    "at the start": [0, 1, 2, 30],
    "at the end": [N - 2, N - 1],
}


@pytest.mark.parametrize("predict", ["change", "value"])
@pytest.mark.parametrize("samples", HOLES.values(), ids=HOLES.keys())
def test_estimates_and_their_variances_are_those_of_a_naive_version(samples, predict):
    """A line predicts each hole; the errors are propagated with one column per missing sample."""
    u, y = simulate()
    narx = Narx({"y": 2}, {"u": [1]}, predict=predict, on_missing="skip")
    line = LinearArx.fit(narx, make(u, y))

    class Line:
        def __init__(self):
            self.narx = narx

        def targets(self, x):
            return line.intercept + x @ line.coefficients

        def slopes(self, x):
            return np.tile(line.coefficients, (len(x), 1))

    holed = with_holes(y, samples)
    (record,) = read_records(make(u, holed), narx.signals)
    noise_variance = 0.3
    found = estimate_missing(Line(), record, noise_variance, (-1e9, 1e9))

    a1, a2, b = line.coefficients
    a1 += predict == "change"
    filled = holed.copy()
    # error of each filled sample as a combination of independent errors, one for each hole
    error = np.zeros((N, N))
    added = np.zeros(N)
    for k in range(2, N):
        error_of_prediction = a1 * error[k - 1] + a2 * error[k - 2]
        added[k] = noise_variance * error_of_prediction @ error_of_prediction
        if np.isnan(holed[k]) and np.isfinite(filled[[k - 1, k - 2]]).all():
            filled[k] = a1 * filled[k - 1] + a2 * filled[k - 2] + b * u[k - 1] + line.intercept
            error[k] = error_of_prediction
            error[k, k] += 1.0
    is_missing = np.isnan(holed)
    np.testing.assert_allclose(found.values[is_missing], filled[is_missing], rtol=1e-10)
    assert np.isnan(found.values[~is_missing]).all()
    is_known = np.isfinite(found.added_variance)
    np.testing.assert_allclose(found.added_variance[is_known], added[is_known], atol=1e-12)
    is_used = np.isfinite(filled[1:-1]) & np.isfinite(filled[:-2])
    assert is_known[2:][is_used].all()


def holed_records(seed=3, share=0.1):
    u, y = simulate(seed)
    rng = np.random.default_rng(seed)
    samples = 5 + rng.permutation(N - 5)[: int(share * N)]
    return u, y, make(u, with_holes(y, samples)), samples


@pytest.fixture(scope="module")
def estimated():
    """Return a record with 10 % of the outputs missing, with the estimates of a first model."""
    _, y, record, samples = holed_records()
    narx = Narx({"y": 2}, {"u": 1}, on_missing="skip")
    (by_line,) = estimate_by_lines([record], [record], ["y"], ["u"])
    (by_model,) = estimate_by_model([by_line], [by_line], narx, SETTINGS)
    return y, samples, by_line, by_model, narx


def test_the_model_estimates_missing_outputs_better_than_a_line(estimated):
    y, samples, by_line, by_model, narx = estimated
    errors = []
    for record in (by_line, by_model):
        (read,) = read_records(record, narx.signals)
        errors.append(np.std(read.estimates["y"].values[samples] - y[samples]))
    assert errors[1] < errors[0]
    assert errors[1] < 0.15  # the noise has 0.05


def test_rows_with_estimates_are_used_and_never_have_a_missing_target(estimated):
    _, _, _, record, narx = estimated
    rows = narx.dataset(record)
    without = narx.dataset(record.drop_vars(["y_estimate", "y_estimate_added_variance"]))
    times = rows["time"].values
    assert set(without["time"].values) < set(times)
    values = record["y"].values[np.searchsorted(record["time"].values, times)]
    assert np.isfinite(values).all()
    added = rows["added_variance"]
    is_measured = np.isin(times, without["time"].values)
    assert (added.values[is_measured] == 0).all()
    assert (added.values[~is_measured] > 0).all()
    assert (added.values <= added.attrs["noise_variance"]).all()


@pytest.mark.parametrize("block", [1, 7, 400])
def test_live_rows_equal_those_of_the_lag_data_set(estimated, block):
    _, _, _, record, narx = estimated
    (read,) = read_records(record, narx.signals)
    estimate = read.estimates["y"]
    window = LagWindow(narx)
    regressors = []
    samples = []
    for begin in range(0, N, block):
        part = slice(begin, begin + block)
        rows = window.observe_many(
            read.signals["y"][part, None],
            read.signals["u"][part, None],
            Estimates(estimate.values[part, None], estimate.is_informative[part, None]),
        )
        regressors.append(rows.regressor)
        samples.append(rows.sample)
    expected = narx.rows_of(read)
    np.testing.assert_array_equal(np.concatenate(samples), expected.sample)
    np.testing.assert_array_equal(np.concatenate(regressors), expected.regressor)
    dataset = narx.dataset(record)
    assert window.n_with_estimates == np.count_nonzero(dataset["added_variance"].values)
    assert window.n_skipped == dataset.attrs["n_skipped"]


def test_segments_go_through_holes_of_the_output_and_end_at_those_of_an_input(estimated):
    _, samples, _, record, narx = estimated
    (segment,) = segments_of_records(record, narx)
    assert len(segment.values) == N - 2
    assert np.isfinite(segment.values).all()
    is_measured = ~np.isin(np.arange(2, N), samples)
    np.testing.assert_array_equal(segment.measured, is_measured)
    assert len(segment.scored(segment.values)) == is_measured.sum()
    part = segment.part(10, 60)
    np.testing.assert_array_equal(part.measured, is_measured[10:60])

    u = with_holes(record["u"].values, [200])
    cut = numbered_segments(record.assign(u=("time", u)), narx)
    assert [len(part.values) for part in cut.segments] == [198, N - 203]
    np.testing.assert_array_equal(cut.numbers, [*range(2, 200), *range(203, N)])


def test_a_free_run_goes_through_holes_of_the_output(estimated):
    """It does not depend on the outputs after the window, so that their holes change nothing."""
    y, samples, _, record, narx = estimated
    model = Identification.of_records(record, narx, SETTINGS).model
    whole = make(record["u"].values, y)
    expected = forecast(model, whole, horizon=None, window=3).records[0]
    found = forecast(model, record, horizon=None, window=3).records[0]
    np.testing.assert_array_equal(found.mean, expected.mean)
    is_missing = np.isin(found.sample, samples)
    np.testing.assert_array_equal(np.isnan(found.measured[:, 0]), is_missing)


def test_a_free_run_begins_again_after_a_hole_of_an_input(estimated):
    y, _, _, record, narx = estimated
    model = Identification.of_records(record, narx, SETTINGS).model
    u = record["u"].values
    whole = make(with_holes(u, [200, 201]), y)
    found = forecast(model, whole, horizon=None, window=3).records[0]
    after = make(u[202:], y[202:])
    np.testing.assert_array_equal(found.sample, [*range(3, 201), *range(203, N)])
    expected = forecast(model, after, horizon=None, window=2).records[0]
    np.testing.assert_allclose(found.mean[found.sample >= 204], expected.mean[:], atol=0.5)


def test_predictions_one_step_ahead_leave_out_what_cannot_be_known(estimated):
    y, _, _, record, narx = estimated
    model = Identification.of_records(record, narx, SETTINGS).model
    holed = make(record["u"].values, with_holes(y, [100]))
    found = forecast(model, holed, horizon=1, window=3).records[0]
    expected = forecast(model, make(record["u"].values, y), horizon=1, window=3).records[0]
    is_same = ~np.isin(found.sample, [101, 102])
    np.testing.assert_array_equal(found.mean[is_same], expected.mean[is_same])
    assert np.isnan(found.measured[97])
    assert np.isfinite(found.mean).all()


def test_an_input_that_is_missing_everywhere_leaves_no_estimates():
    _, _, record, _ = holed_records()
    empty = record.assign(u=("time", np.full(N, np.nan)))
    (found,) = estimate_by_lines([record], [empty], ["y"], ["u"])
    (read,) = read_records(found, ["y", "u"])
    assert np.isnan(read.estimates["y"].values).all()


@pytest.mark.filterwarnings("ignore:.*samples of y are missing")
@pytest.mark.parametrize("as_dataset", [False, True], ids=["table", "data set"])
def test_identify_loses_next_to_nothing(as_dataset):
    u, y = simulate(5, 900)
    rng = np.random.default_rng(1)
    holed = with_holes(y, rng.permutation(600)[:60])
    test = make(u[600:], y[600:]).drop_attrs(deep=False)
    errors = []
    for values in (y, holed):
        data = pd.DataFrame({"u": u[:600], "y": values[:600]})
        if as_dataset:
            data = make(u[:600], values[:600]).drop_attrs(deep=False)
        found = identify(
            data, Narx({"y": 2}, {"u": 1}), SETTINGS, dt=0.1, on_missing="skip", test=test
        )
        errors.append(found.validate()["rmse"])
    assert (errors[1] < 1.1 * errors[0]).all()
    assert found.validate().loc[("y", "1 step"), "n"] == 298


def test_missing_test_samples_are_left_out_of_the_scores():
    u, y = simulate(6, 900)
    holed = with_holes(y, [650, 651, 700])
    with pytest.warns(UserWarning, match="3 of 900 samples of y are missing"):
        found = identify(
            pd.DataFrame({"u": u, "y": holed}),
            Narx({"y": 2}, {"u": 1}),
            SETTINGS,
            dt=0.1,
            on_missing="skip",
        )
    table = found.validate()
    n_test = 270
    assert (table["n"] == n_test - 2 - 3).all()
    compared = found.compare()
    assert np.isfinite(compared.to_numpy()).all()


def test_the_training_for_the_free_run_does_not_score_holes():
    """Values in the holes that are grossly wrong estimates leave the result as it is."""
    u, y = simulate(7)
    narx = Narx({"y": 2}, {"u": 1}, on_missing="skip")
    training = FreeRun(routes=(LinearModel(),), folds=2, find_limits=False)
    settings = Settings(training=training, budget=10)
    samples = list(range(60, 140))
    (record,) = estimate_by_lines([make(u, y)], [make(u, with_holes(y, samples))], ["y"], ["u"])
    coefficients = []
    for shift in (0.0, 0.5):
        wrong = record.assign(y_estimate=record["y_estimate"] + shift)
        model = Identification.of_records(wrong, narx, settings).model
        coefficients.append(model.mean.coefficients)
    whole = Identification.of_records(make(u, y), narx, settings).model
    np.testing.assert_allclose(coefficients[0], whole.mean.coefficients, atol=0.03)
    np.testing.assert_allclose(coefficients[1], coefficients[0], atol=0.03)
