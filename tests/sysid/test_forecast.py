"""Predictions over records, one or several steps ahead and in a free run (simulation).

The references are naive loops, one number at a time.
"""

from functools import partial

import numpy as np
import pytest
import xarray as xr

from coupled_models import (
    ONE_OUTPUT_LAGS,
    TWO_OUTPUT_LAGS,
    joint_model,
    naive_run,
    record,
    signals,
    unstable,
    with_projections,
)
from sysid import (
    JointModel,
    LinearMean,
    Model,
    Narx,
    OnlineGP,
    Pathwise,
    Scaling,
    SquaredExponential,
    Taylor,
    forecast,
    free_run,
)

EACH_TARGET = pytest.mark.parametrize("predict", ["value", "change"])
FEATURES = Narx(**TWO_OUTPUT_LAGS).features
LARGEST_LAG = 3  # samples, of `TWO_OUTPUT_LAGS`


def outputs_of(data):
    """Return the two outputs side by side, (n, 2)."""
    return np.stack([data["a"], data["b"]], axis=1)


def regressor_of(outputs, u, k):
    """Return the regressor of sample k; the first values are held before the record."""
    regressor = []
    for name, lag in FEATURES:
        sample = max(k - lag, 0)
        if name == "u":
            regressor.append(u[sample])
        else:
            regressor.append(outputs[sample, "ab".index(name)])
    return regressor


# --- means ----------------------------------------------------------------------------------------


@EACH_TARGET
def test_one_step_is_the_prediction_of_the_rows(predict):
    joint = joint_model(predict)
    data = record()
    result = forecast(joint, data, horizon=1, window=3)
    np.testing.assert_array_equal(result.noise_variance, [1e-3, 1e-3])
    (predicted,) = result.records
    np.testing.assert_array_equal(predicted.time, data["time"].values[3:])
    for i, model in enumerate(joint.models):
        rows = model.narx.dataset(data)
        x = rows["regressor"].values
        mean, variance = model.predict(x)
        value = model.narx.predict.to_value(mean, rows["previous"].values)
        measured = data[model.narx.target].values[3:]
        np.testing.assert_array_equal(predicted.regressors, x)
        np.testing.assert_allclose(predicted.mean[:, i], value, rtol=1e-12, atol=1e-13)
        # not the same bits, because the rows are in blocks of other sizes
        np.testing.assert_allclose(predicted.variance[:, i], variance, rtol=1e-12)
        np.testing.assert_array_equal(predicted.measured[:, i], measured)


@EACH_TARGET
@pytest.mark.parametrize(("horizon", "window"), [(3, 2), (4, 6)])
def test_several_steps_are_a_naive_loop_from_every_start(predict, horizon, window):
    joint = joint_model(predict)
    data = signals(14, 1)
    (predicted,) = forecast(joint, record(14), horizon=horizon, window=window).records
    np.testing.assert_array_equal(predicted.sample, np.arange(max(horizon, window), 14))
    for row, k in enumerate(predicted.sample):
        start = k - horizon + 1
        simulated = naive_run(joint, data, start, k, measured_until=start)
        np.testing.assert_allclose(predicted.mean[row], simulated[-1], rtol=1e-8)
        outputs = outputs_of(data)
        outputs[start : k + 1] = simulated
        regressor = regressor_of(outputs, data["u"], k)
        np.testing.assert_allclose(predicted.regressors[row], regressor, rtol=1e-8)


@pytest.mark.parametrize(
    "make_model",
    [
        pytest.param(joint_model, id="value"),
        pytest.param(lambda: joint_model("change"), id="change"),
        pytest.param(lambda: with_projections(joint_model("change")), id="projections"),
    ],
)
@pytest.mark.parametrize("window", [1, 2, 6])
def test_a_free_run_is_a_naive_loop_from_the_window_on(make_model, window):
    joint = make_model()
    data = signals(16, 1)
    result = forecast(joint, record(16), horizon=None, window=window)
    expected = naive_run(joint, data, window, 15, measured_until=window)
    (predicted,) = result.records
    np.testing.assert_allclose(predicted.mean, expected, rtol=1e-8)
    np.testing.assert_array_equal(predicted.sample, np.arange(window, 16))
    assert result.n_filled == max(0, LARGEST_LAG - window)
    outputs = np.vstack([outputs_of(data)[:window], expected])
    for row, k in enumerate(predicted.sample):
        x = regressor_of(outputs, data["u"], k)
        np.testing.assert_allclose(predicted.regressors[row], x, rtol=1e-8)
        for i, model in enumerate(joint.models):
            variance = model.predict([x]).variance
            np.testing.assert_allclose(predicted.variance[row, i], variance, rtol=1e-6)


def test_a_free_run_sees_no_output_after_its_window():
    joint = joint_model()
    is_later = np.arange(30) >= 6
    changed = signals(30, 1)["a"] + 50.0 * is_later
    (expected,) = forecast(joint, record(), horizon=None, window=6).records
    (predicted,) = forecast(joint, record(a=changed), horizon=None, window=6).records
    np.testing.assert_array_equal(predicted.mean, expected.mean)


@pytest.mark.parametrize(("signal", "first_affected"), [("a", 24), ("u", 20)])
def test_predictions_see_outputs_up_to_their_start_and_inputs_up_to_themselves(
    signal, first_affected
):
    predict = partial(forecast, joint_model(), horizon=4, window=4)
    changed = signals(30, 1)[signal]
    changed[20] += 0.5
    (expected,) = predict(record()).records
    (predicted,) = predict(record(**{signal: changed})).records
    is_affected = (predicted.mean != expected.mean).any(axis=1)
    assert predicted.sample[is_affected].min() == first_affected


# --- variances ------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 5])
def test_the_variance_of_several_steps_is_that_of_the_free_run_from_there(horizon):
    joint = joint_model("change")
    data = signals(30, 1)
    outputs = outputs_of(data)
    u = data["u"][:, None]
    result = forecast(joint, record(), horizon=horizon, window=8, propagation=Taylor())
    (predicted,) = result.records
    for k in (8, 17, 29):
        start = k - horizon + 1
        alone = free_run(joint, u[: k + 1], outputs[:start], propagation=Taylor())
        np.testing.assert_allclose(predicted.mean[k - 8], alone.mean[-1], rtol=1e-9)
        np.testing.assert_allclose(predicted.variance[k - 8], alone.variance[-1], rtol=1e-9)


def test_blocks_of_any_size_give_the_same_predictions(monkeypatch):
    predict = partial(
        forecast, joint_model("change"), record(), horizon=5, window=8, propagation=Taylor()
    )
    (at_once,) = predict().records
    monkeypatch.setattr("sysid.simulation.forecast.MAX_NUMBERS_PER_BLOCK", 1)
    (start_by_start,) = predict().records
    np.testing.assert_allclose(start_by_start.mean, at_once.mean, rtol=1e-12)
    np.testing.assert_allclose(start_by_start.variance, at_once.variance, rtol=1e-9)


# --- several records, other models ----------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 3, None])
def test_records_never_run_together(horizon):
    joint = joint_model()
    records = [record(20, 1), record(12, 2)]
    together = forecast(joint, records, horizon=horizon, window=2)
    for i, data in enumerate(records):
        (alone,) = forecast(joint, data, horizon=horizon, window=2).records
        np.testing.assert_array_equal(together.records[i].mean, alone.mean)
        assert together.records[i].record == i
        assert alone.record == 0
    if horizon is None:
        assert together.n_filled == 2


def test_records_are_drawn_independently_and_the_seed_repeats_them():
    draw = partial(
        forecast,
        joint_model(),
        [record(12, 1), record(12, 1)],
        horizon=None,
        window=2,
        propagation=Pathwise(5, 5),
        seed=3,
    )
    first, second = draw().records
    _, repeated = draw().records
    assert not np.array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(second.mean, repeated.mean)


def test_a_single_model_and_plain_arrays_serve_as_well():
    model = joint_model(lags=ONE_OUTPUT_LAGS, n_points=(9,)).models[0]
    data = signals(20, 1)
    u = data["u"][:, None]
    y = data["a"][:, None]
    (expected,) = forecast(model, record(20), horizon=None, window=3).records
    run = free_run(model, u.tolist(), y[:3])
    np.testing.assert_array_equal(run.mean, expected.mean)
    np.testing.assert_array_equal(run.variance, expected.variance)
    assert run.left is None
    with pytest.raises(ValueError, match="expected more than the 3 inputs"):
        free_run(model, u[:3], y[:3])


def model_of_two_features(narx, coefficients):
    """Return a model with a linear mean and one point."""
    kernel = SquaredExponential(0.1, [1.0, 1.0])
    gp = OnlineGP(kernel, noise_variance=0.01, budget=5)
    gp.fit([[0.5, 0.1]], [0.3])
    return Model(narx, Scaling.identity(2), LinearMean(coefficients), gp)


def test_a_model_without_lagged_outputs_needs_no_window():
    narx = Narx(outputs={"y": []}, inputs={"u": [0, 2]}, predict="value")
    model = model_of_two_features(narx, (1.0, 0.5))
    u = signals(8)["u"]
    data = xr.Dataset(
        {"y": ("time", np.zeros(8)), "u": ("time", u)},
        coords={"time": np.arange(8.0)},
    )
    result = forecast(model, data, horizon=None, window=0)
    two_samples_earlier = u[[0, 0, *range(6)]]
    mean, variance = model.predict(np.stack([u, two_samples_earlier], axis=1))
    (predicted,) = result.records
    np.testing.assert_allclose(predicted.mean[:, 0], mean, rtol=1e-12)
    np.testing.assert_allclose(predicted.variance[:, 0], variance, rtol=1e-12)
    assert result.n_filled == 2


def test_a_model_may_have_no_inputs():
    narx = Narx(outputs={"a": [1, 2]}, predict="value")
    joint = JointModel.of(model_of_two_features(narx, (0.4, 0.2)))
    (predicted,) = forecast(joint, record(10), horizon=None, window=2).records
    expected = naive_run(joint, signals(10, 1), 2, 9, measured_until=2)
    np.testing.assert_allclose(predicted.mean, expected, rtol=1e-9)


# --- divergence -----------------------------------------------------------------------------------

EACH_PROPAGATION = pytest.mark.parametrize(
    "propagation", [None, Taylor(), Pathwise(4, 4)], ids=["default", "Taylor", "Pathwise"]
)


def constant_record(n=20):
    """Return a record with the output 1 and the input 0, sampled every 2 s from 5 s on."""
    values = {"y": ("time", np.ones(n)), "u": ("time", np.zeros(n))}
    return xr.Dataset(values, coords={"time": 5.0 + 2.0 * np.arange(n)})


@EACH_PROPAGATION
def test_divergence_is_reported_and_the_rest_is_nan(propagation):
    """Bounds are 1000 times the range of the points, which is 0 to 1, beyond that range."""
    path = (-3.0) ** np.arange(20)
    is_outside = (path > 1001) | (path < -1000)
    leaves = int(np.argmax(is_outside))
    records = [constant_record(4), constant_record()]
    result = forecast(unstable(-3.0), records, horizon=None, window=1, propagation=propagation)

    short, long = result.records
    assert short.diverged is None
    (divergence,) = result.diverged
    assert divergence.record == 1
    assert divergence.sample == leaves
    assert divergence.time == 5.0 + 2.0 * leaves
    assert divergence.output == "y"
    np.testing.assert_allclose(divergence.value, path[leaves], rtol=0.02)
    assert np.isnan(long.mean[leaves - 1 :]).all()
    np.testing.assert_allclose(long.mean[: leaves - 1, 0], path[1:leaves], rtol=0.02)
    assert long.n_lost == 20 - leaves
    assert result.n_lost == 20 - leaves


@EACH_PROPAGATION
def test_divergence_is_reported_where_the_square_of_a_value_overflows(propagation):
    model = unstable(gain=1e80, output_range=(-1e40, 1e40))
    result = forecast(model, constant_record(), horizon=None, window=1, propagation=propagation)
    assert result.diverged[0].sample == 1
    assert result.n_lost == 19


def test_divergence_of_several_steps_is_counted_per_start():
    data = constant_record()
    data["y"][7] = -900.0
    (predicted,) = forecast(unstable(-3.0), data, horizon=3, window=1, propagation=Taylor()).records
    (lost,) = np.flatnonzero(np.isnan(predicted.mean[:, 0]))
    assert predicted.sample[lost] == 10
    assert predicted.diverged.sample == 10
    assert predicted.n_lost == 1
    np.testing.assert_allclose(predicted.diverged.value, 2700.0, rtol=0.02)


# --- refusals -------------------------------------------------------------------------------------


def forecast_known(records):
    """Simulate with a model that knows its sampling time and a unit."""
    model = joint_model(sampling_time=0.5, units={"a": "V"})
    return forecast(model, records, horizon=None, window=3)


def record_in_millivolt():
    """Return a record whose first output has another unit than the model's."""
    data = record()
    data["a"].attrs["units"] = "mV"
    return data


@pytest.mark.parametrize(
    ("horizon", "window", "message"),
    [
        pytest.param(0, 3, "horizon.*must be a whole number", id="horizon 0"),
        pytest.param(None, 0, r"needs past outputs\), must be a whole", id="window 0"),
        pytest.param(31, 3, "has 30 samples, expected more than the 31", id="short record"),
    ],
)
def test_unusable_horizons_and_windows_are_refused(horizon, window, message):
    with pytest.raises(ValueError, match=message):
        forecast(joint_model(), record(), horizon=horizon, window=window)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        pytest.param(
            [record(), record(u=np.full(30, np.nan))],
            "'u' of record 1 is nan at sample 0",
            id="missing values",
        ),
        pytest.param(
            record(step=0.25),
            r"record 0 is sampled every 0.25 s, .* every 0.5 s",
            id="another sampling time",
        ),
        pytest.param(record().drop_vars("b"), r"has no signals \['b'\]", id="missing signal"),
        pytest.param(record_in_millivolt(), "in 'mV', .* from 'V'", id="another unit"),
    ],
)
def test_records_that_do_not_fit_the_model_are_refused(records, message):
    with pytest.raises(ValueError, match=message):
        forecast_known(records)
