"""Predictions over records, one step to all of them ahead, against naive loops through the live lag window."""

import numpy as np
import pytest
import xarray as xr
from identified import ONE, TWO, identified, mixed, naive_run, record, signals, unstable

from sysid import OnlineGP, SquaredExponential
from sysid.forecast import check_records, forecast, free_run
from sysid.joint import JointModel
from sysid.mean import LinearMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.propagation import MonteCarlo, Pathwise, Taylor
from sysid.scaling import Scaling

EMPTY = np.empty((0, 1))
PREDICT = pytest.mark.parametrize("predict", ["value", "change"])


@PREDICT
def test_one_step_is_the_prediction_of_the_rows(predict):
    joint, data = identified(predict), record()
    found = forecast(joint, data, horizon=1, window=3)
    assert (found.horizon, found.window, found.output_names) == (1, 3, ("a", "b"))
    np.testing.assert_array_equal(found.noise_variance, [1e-3, 1e-3])
    (one,) = found.records
    for i, model in enumerate(joint.models):
        rows = model.narx.dataset(data)
        predicted = model.predict(rows["regressor"].values)
        value = model.narx.predict.to_value(predicted.mean, rows["previous"].values)
        np.testing.assert_array_equal(one.regressors, rows["regressor"].values)
        np.testing.assert_allclose(one.mean[:, i], value, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(one.variance[:, i], predicted.variance)
        np.testing.assert_array_equal(one.measured[:, i], data[model.narx.target].values[3:])
    np.testing.assert_array_equal(one.time, data["time"].values[3:])
    np.testing.assert_array_equal(one.sample, np.arange(3, 30))
    assert (found.n_filled, found.n_lost, found.diverged) == (0, 0, ())


@PREDICT
@pytest.mark.parametrize(("horizon", "window"), [(3, 2), (4, 6)])
def test_several_steps_are_a_naive_loop_from_every_start(predict, horizon, window):
    joint, data = identified(predict), signals(14, 1)
    found = forecast(joint, record(14), horizon=horizon, window=window).records[0]
    np.testing.assert_array_equal(found.sample, np.arange(max(horizon, window), 14))
    for row, k in enumerate(found.sample):
        run = naive_run(joint, data, k - horizon + 1, k, measured_until=k - horizon + 1)
        np.testing.assert_allclose(found.mean[row], run[-1], rtol=1e-8)
        known = np.vstack([[[data["a"][0], data["b"][0]]] * 4, np.stack([data["a"], data["b"]], axis=1)])
        known[4 + k - horizon + 1 : 4 + k + 1] = run
        x = [known[4 + k - lag, "ab".index(name)] if name in "ab" else data["u"][k - lag] for name, lag in FEATURES]
        np.testing.assert_allclose(found.regressors[row], x, rtol=1e-8)


FEATURES = Narx(**TWO).features


@pytest.mark.parametrize("make", [identified, lambda: identified("change"), lambda: mixed(identified("change"))])
@pytest.mark.parametrize("window", [1, 2, 6])
def test_a_free_run_is_a_naive_loop_from_the_window_on(make, window):
    joint, data = make(), signals(16, 1)
    found = forecast(joint, record(16), horizon=None, window=window)
    expected = naive_run(joint, data, window, 15, measured_until=window)
    (one,) = found.records
    np.testing.assert_allclose(one.mean, expected, rtol=1e-8)
    np.testing.assert_array_equal(one.sample, np.arange(window, 16))
    assert found.n_filled == max(0, 3 - window)  # the largest lag is 3
    path = np.vstack([np.stack([data["a"], data["b"]], axis=1)[:window], expected])
    for k in range(window, 16):
        x = [path[max(k - lag, 0), "ab".index(n)] if n in "ab" else data["u"][max(k - lag, 0)] for n, lag in FEATURES]
        np.testing.assert_allclose(one.regressors[k - window], x, rtol=1e-8)
        for i, model in enumerate(joint.models):
            np.testing.assert_allclose(one.variance[k - window, i], model.predict([x]).variance, rtol=1e-6)


def test_a_free_run_sees_no_output_after_the_window():
    joint, changed = identified(), signals(30, 1)
    changed["a"][6:] += 50.0
    one = forecast(joint, record(), horizon=None, window=6).records[0]
    other = forecast(joint, record(a=changed["a"]), horizon=None, window=6).records[0]
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)
    assert (one.measured[:, 0] + 50.0 == other.measured[:, 0]).all()


def test_a_prediction_sees_the_outputs_up_to_its_start_and_the_inputs_up_to_itself():
    joint, horizon = identified(), 4
    base = forecast(joint, record(), horizon=horizon, window=4).records[0].mean
    for name, first_seen in (("a", 20 + horizon), ("u", 20)):
        changed = signals(30, 1)[name]
        changed[20:] += 0.5
        moved = forecast(joint, record(**{name: changed}), horizon=horizon, window=4).records[0].mean
        differs = np.flatnonzero((moved != base).any(axis=1)) + 4
        assert differs.min() >= first_seen
        assert (moved != base).any()
    changed = signals(30, 1)["a"]
    changed[20] += 0.5
    moved = forecast(joint, record(a=changed), horizon=horizon, window=4).records[0].mean
    assert (moved[20 + horizon + 1 - 4] != base[20 + horizon + 1 - 4]).any()


@pytest.mark.parametrize("rule", [Taylor(), MonteCarlo(5)], ids=lambda rule: type(rule).__name__)
def test_the_variance_of_several_steps_is_that_of_the_free_run_from_there(rule):
    joint, data = identified("change"), signals(30, 1)
    outputs, u = np.stack([data["a"], data["b"]], axis=1), data["u"][:, None]
    for horizon in (1, 5):
        found = forecast(joint, record(), horizon=horizon, window=8, propagation=Taylor()).records[0]
        for k in (8, 17, 29):
            alone = free_run(joint, u[: k + 1], outputs[: k - horizon + 1], propagation=Taylor())
            np.testing.assert_allclose(found.mean[k - 8], alone.mean[-1], rtol=1e-9)
            np.testing.assert_allclose(found.variance[k - 8], alone.variance[-1], rtol=1e-9)
    drawn = forecast(joint, record(), horizon=None, window=8, propagation=rule)
    assert (drawn.records[0].variance[3:] > 0).all()


def test_records_never_run_together():
    joint = identified()
    for horizon in (1, 3, None):
        both = forecast(joint, [record(20, 1), record(12, 2)], horizon=horizon, window=2)
        for i, alone in enumerate((record(20, 1), record(12, 2))):
            expected = forecast(joint, alone, horizon=horizon, window=2).records[0]
            np.testing.assert_array_equal(both.records[i].mean, expected.mean)
            np.testing.assert_array_equal(both.records[i].regressors, expected.regressors)
            assert (both.records[i].record, expected.record) == (i, 0)
    assert both.n_filled == 2
    drawn = forecast(joint, [record(12, 1)] * 2, horizon=None, window=2, propagation=Pathwise(5, 5), seed=3)
    assert not np.array_equal(drawn.records[0].mean, drawn.records[1].mean)
    again = forecast(joint, [record(12, 1)] * 2, horizon=None, window=2, propagation=Pathwise(5, 5), seed=3)
    np.testing.assert_array_equal(drawn.records[1].mean, again.records[1].mean)


def test_blocks_of_starts_change_nothing(monkeypatch):
    joint = identified("change")
    whole = forecast(joint, record(), horizon=3, window=3, propagation=Taylor()).records[0]
    monkeypatch.setattr("sysid.forecast.BLOCK", 1)
    single = forecast(joint, record(), horizon=3, window=3, propagation=Taylor()).records[0]
    np.testing.assert_allclose(single.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(single.variance, whole.variance, rtol=1e-9)
    np.testing.assert_array_equal(single.sample, whole.sample)


def test_a_single_model_and_plain_arrays_serve_as_well():
    model = identified(lags=ONE, n_points=(9,)).models[0]
    data = signals(20, 1)
    expected = forecast(model, record(20), horizon=None, window=3).records[0]
    run = free_run(model, data["u"][:, None].tolist(), data["a"][:3, None])
    np.testing.assert_array_equal(run.mean, expected.mean)
    np.testing.assert_array_equal(run.variance, expected.variance)
    assert run.left is None
    assert np.isnan(run.value).all()
    with pytest.raises(ValueError, match="expected more than the 3 inputs"):
        free_run(model, data["u"][:3, None], data["a"][:3, None])
    with pytest.raises(ValueError, match=r"initial_outputs: expected shape \(n, 1\)"):
        free_run(model, data["u"][:9, None], data["a"][:3])
    with pytest.raises(ValueError, match="at least 1, as the model needs past outputs, got 0"):
        free_run(model, data["u"][:9, None], EMPTY)


def test_a_model_without_lagged_outputs_needs_no_window():
    narx = Narx(outputs={"y": []}, inputs={"u": [0, 2]}, predict="value")
    gp = OnlineGP(SquaredExponential(1.0, [1.0, 1.0]), noise_variance=0.01, budget=5).fit([[0.0, 1.0]], [0.3])
    model = Model(narx, Scaling.identity(2), LinearMean((1.0, 0.5), 0.0), gp)
    u = signals(8)["u"]
    data = xr.Dataset({"y": ("time", u * 0), "u": ("time", u)}, coords={"time": np.arange(8.0)})
    found = forecast(model, data, horizon=None, window=0)
    expected = model.predict(np.stack([u, u[[0, 0, *range(6)]]], axis=1))
    np.testing.assert_allclose(found.records[0].mean[:, 0], expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.records[0].variance[:, 0], expected.variance, rtol=1e-12)
    assert found.n_filled == 2
    assert len(forecast(model, data, horizon=2, window=0).records[0].mean) == 6


def test_a_model_without_inputs_runs_freely():
    narx = Narx(outputs={"a": [1, 2]}, predict="value")
    gp = OnlineGP(SquaredExponential(0.1, [1.0, 1.0]), noise_variance=0.01, budget=5).fit([[0.5, 0.1]], [0.3])
    joint = JointModel.of(Model(narx, Scaling.identity(2), LinearMean((0.4, 0.2), 0.0), gp))
    found = forecast(joint, record(10), horizon=None, window=2).records[0]
    np.testing.assert_allclose(found.mean, naive_run(joint, signals(10, 1), 2, 9, measured_until=2), rtol=1e-9)


def growing(n=20):
    values = {"y": ("time", np.ones(n)), "u": ("time", np.zeros(n))}
    return xr.Dataset(values, coords={"time": 5.0 + 2.0 * np.arange(n)})


@pytest.mark.parametrize("rule", [None, Taylor(), Pathwise(4, 4)], ids=lambda rule: type(rule).__name__)
def test_divergence_is_reported_and_the_rest_is_nan(rule):
    path = (-3.0) ** np.arange(20)
    leaves = int(np.argmax((path > 1001) | (path < -1000)))  # 1e3 times the range of the points, which is 0 to 1
    found = forecast(unstable(-3.0), [growing(4), growing()], horizon=None, window=1, propagation=rule)
    assert found.records[0].diverged is None
    (one,) = found.diverged
    assert (one.record, one.sample, one.time, one.output) == (1, leaves, 5.0 + 2.0 * leaves, "y")
    np.testing.assert_allclose(one.value, path[leaves], rtol=0.02)
    second = found.records[1]
    assert np.isnan(second.mean[leaves - 1 :]).all()
    assert np.isnan(second.variance[leaves - 1 :]).all()
    np.testing.assert_allclose(second.mean[: leaves - 1, 0], path[1:leaves], rtol=0.02)
    assert found.n_lost == second.n_lost == 20 - leaves


def test_divergence_of_several_steps_is_counted_per_start():
    data = growing()
    data["y"][7] = -900.0
    found = forecast(unstable(-3.0), data, horizon=3, window=1, propagation=Taylor())
    one = found.records[0]
    assert np.flatnonzero(np.isnan(one.mean[:, 0])).tolist() == [10 - 3]
    assert one.diverged is not None
    assert (one.diverged.sample, one.n_lost) == (10, 1)
    np.testing.assert_allclose(one.diverged.value, 2700.0, rtol=0.02)


def test_the_bounds_follow_the_outputs_that_a_model_was_identified_from():
    near = forecast(unstable(-3.0, output_range=(0.9, 1.1)), growing(), horizon=None, window=1).records[0]
    assert near.diverged is not None
    assert near.diverged.sample == 5  # 3^5 > 1.1 + 1e3 0.2
    wide = forecast(unstable(-3.0, output_range=(-100.0, 100.0)), growing(12), horizon=None, window=1)
    assert wide.diverged == ()


@pytest.mark.parametrize("rule", [None, Taylor(), MonteCarlo(3)], ids=lambda rule: type(rule).__name__)
def test_a_value_that_is_no_number_has_diverged(rule):
    model = unstable(gain=1e80, output_range=(-1e40, 1e40))
    found = forecast(model, growing(), horizon=None, window=1, propagation=rule)
    assert found.diverged[0].sample == 1
    assert found.n_lost == 19


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0, "window": 3}, "horizon must be an integer of at least 1, or None for a free run, got 0"),
        ({"horizon": 1.0, "window": 3}, "horizon must be an integer"),
        ({"horizon": None, "window": 0}, "at least 1, as the model needs past outputs, got 0"),
        ({"horizon": None, "window": 30}, "record 0 has 30 samples, expected more than the 30 of its window"),
        ({"horizon": 31, "window": 3}, "record 0 has 30 samples, expected more than the 31 of its window"),
    ],
)
def test_settings_that_leave_nothing_to_predict_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        forecast(identified(), record(), **arguments)


def test_records_that_do_not_fit_the_model_are_refused():
    joint = identified(sampling_time=0.5, units={"a": "V", "u": "A"})
    broken = signals(30, 1)["u"]
    broken[4] = np.nan
    with pytest.raises(ValueError, match="signal 'u' of record 1 is nan at sample 4"):
        check_records(joint, [record(), record(u=broken)])
    with pytest.raises(ValueError, match=r"record 0 is sampled every 0.25 s, .* every 0.5 s"):
        check_records(joint, record(step=0.25))
    with pytest.raises(ValueError, match=r"has no signals \['b'\]"):
        check_records(joint, record().drop_vars("b"))
    other = record()
    other["a"].attrs["units"] = "mV"
    with pytest.raises(ValueError, match="signal 'a' of record 0 is in 'mV', the model was identified from 'V'"):
        check_records(joint, other)
    other["a"].attrs["units"] = "V"
    other["b"].attrs["units"] = "m"  # of which the model knows nothing
    assert [one.n_samples for one in check_records(joint, [other])] == [30]
    assert len(check_records(identified(), record(step=0.25))) == 1
