"""Predictions over records by a model and by the baselines it must beat, against naive loops, one
number at a time.
"""

import math
from functools import partial

import numpy as np
import pytest
import xarray as xr

from identified import ONE, TWO, identified, mixed, naive_run, record, signals, unstable
from sysid import (
    JointModel,
    LinearMean,
    Model,
    Narx,
    OnlineGP,
    Pathwise,
    Scaling,
    SquaredExponential,
    Target,
    Taylor,
    forecast,
    free_run,
)
from sysid.simulation.baselines import LinearArx, Mean, Persistence

PREDICT = pytest.mark.parametrize("predict", ["value", "change"])
FEATURES = Narx(**TWO).features


@PREDICT
def test_one_step_is_the_prediction_of_the_rows(predict):
    joint = identified(predict)
    data = record()
    found = forecast(joint, data, horizon=1, window=3)
    np.testing.assert_array_equal(found.noise_variance, [1e-3, 1e-3])
    (one,) = found.records
    for i, model in enumerate(joint.models):
        rows = model.narx.dataset(data)
        predicted = model.predict(rows["regressor"].values)
        value = model.narx.predict.to_value(predicted.mean, rows["previous"].values)
        np.testing.assert_array_equal(one.regressors, rows["regressor"].values)
        np.testing.assert_allclose(one.mean[:, i], value, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(
            one.variance[:, i], predicted.variance, rtol=1e-12
        )  # blocks of other sizes
        np.testing.assert_array_equal(one.measured[:, i], data[model.narx.target].values[3:])
    np.testing.assert_array_equal(one.time, data["time"].values[3:])


def regressor_of(path, u, k):
    """Of the outputs (n, 2) and the input (n,); the first values are held before the record."""
    return [
        path[max(k - lag, 0), "ab".index(name)] if name in "ab" else u[max(k - lag, 0)]
        for name, lag in FEATURES
    ]


@PREDICT
@pytest.mark.parametrize(("horizon", "window"), [(3, 2), (4, 6)])
def test_several_steps_are_a_naive_loop_from_every_start(predict, horizon, window):
    joint = identified(predict)
    data = signals(14, 1)
    found = forecast(joint, record(14), horizon=horizon, window=window).records[0]
    np.testing.assert_array_equal(found.sample, np.arange(max(horizon, window), 14))
    for row, k in enumerate(found.sample):
        start = k - horizon + 1
        run = naive_run(joint, data, start, k, measured_until=start)
        np.testing.assert_allclose(found.mean[row], run[-1], rtol=1e-8)
        path = np.stack([data["a"], data["b"]], axis=1)
        path[start : k + 1] = run
        np.testing.assert_allclose(
            found.regressors[row], regressor_of(path, data["u"], k), rtol=1e-8
        )


@pytest.mark.parametrize(
    "make",
    [identified, lambda: identified("change"), lambda: mixed(identified("change"))],
)
@pytest.mark.parametrize("window", [1, 2, 6])
def test_a_free_run_is_a_naive_loop_from_the_window_on(make, window):
    joint = make()
    data = signals(16, 1)
    found = forecast(joint, record(16), horizon=None, window=window)
    expected = naive_run(joint, data, window, 15, measured_until=window)
    (one,) = found.records
    np.testing.assert_allclose(one.mean, expected, rtol=1e-8)
    np.testing.assert_array_equal(one.sample, np.arange(window, 16))
    assert found.n_filled == max(0, 3 - window)  # the largest lag is 3
    path = np.vstack([np.stack([data["a"], data["b"]], axis=1)[:window], expected])
    for k in range(window, 16):
        x = regressor_of(path, data["u"], k)
        np.testing.assert_allclose(one.regressors[k - window], x, rtol=1e-8)
        for i, model in enumerate(joint.models):
            np.testing.assert_allclose(
                one.variance[k - window, i], model.predict([x]).variance, rtol=1e-6
            )


def test_predictions_see_outputs_up_to_their_start_and_inputs_up_to_themselves():
    joint = identified()
    later = signals(30, 1)["a"] + 50.0 * (np.arange(30) >= 6)
    one, other = (
        forecast(joint, data, horizon=None, window=6).records[0]
        for data in (record(), record(a=later))
    )
    np.testing.assert_array_equal(one.mean, other.mean)
    ahead = partial(forecast, joint, horizon=4, window=4)
    base = ahead(record()).records[0].mean
    for name, first_seen in (("a", 24), ("u", 20)):
        changed = signals(30, 1)[name]
        changed[20] += 0.5
        differs = (
            np.flatnonzero((ahead(record(**{name: changed})).records[0].mean != base).any(axis=1))
            + 4
        )
        assert differs.min() == first_seen


def test_the_variance_of_several_steps_is_that_of_the_free_run_from_there(monkeypatch):
    joint = identified("change")
    data = signals(30, 1)
    outputs = np.stack([data["a"], data["b"]], axis=1)
    u = data["u"][:, None]
    for horizon in (1, 5):
        found = forecast(joint, record(), horizon=horizon, window=8, propagation=Taylor()).records[
            0
        ]
        for k in (8, 17, 29):
            alone = free_run(joint, u[: k + 1], outputs[: k - horizon + 1], propagation=Taylor())
            np.testing.assert_allclose(found.mean[k - 8], alone.mean[-1], rtol=1e-9)
            np.testing.assert_allclose(found.variance[k - 8], alone.variance[-1], rtol=1e-9)
    monkeypatch.setattr("sysid.simulation.forecast.MAX_NUMBERS_PER_BLOCK", 1)  # start by start
    single = forecast(joint, record(), horizon=5, window=8, propagation=Taylor()).records[0]
    np.testing.assert_allclose(single.mean, found.mean, rtol=1e-12)
    np.testing.assert_allclose(single.variance, found.variance, rtol=1e-9)


def test_records_never_run_together():
    joint = identified()
    for horizon in (1, 3, None):
        both = forecast(joint, [record(20, 1), record(12, 2)], horizon=horizon, window=2)
        for i, alone in enumerate((record(20, 1), record(12, 2))):
            expected = forecast(joint, alone, horizon=horizon, window=2).records[0]
            np.testing.assert_array_equal(both.records[i].mean, expected.mean)
            assert (both.records[i].record, expected.record) == (i, 0)
    assert both.n_filled == 2
    drawn, again = (
        forecast(
            joint,
            [record(12, 1)] * 2,
            horizon=None,
            window=2,
            propagation=Pathwise(5, 5),
            seed=3,
        )
        for _ in range(2)
    )
    assert not np.array_equal(drawn.records[0].mean, drawn.records[1].mean)
    np.testing.assert_array_equal(drawn.records[1].mean, again.records[1].mean)


def test_a_single_model_and_plain_arrays_serve_as_well():
    model = identified(lags=ONE, n_points=(9,)).models[0]
    data = signals(20, 1)
    expected = forecast(model, record(20), horizon=None, window=3).records[0]
    u = data["u"][:, None]
    y = data["a"][:, None]
    run = free_run(model, u.tolist(), y[:3])
    np.testing.assert_array_equal(run.mean, expected.mean)
    np.testing.assert_array_equal(run.variance, expected.variance)
    assert run.left is None
    with pytest.raises(ValueError, match="expected more than the 3 inputs"):
        free_run(model, u[:3], y[:3])


def small_model(narx, mean):
    gp = OnlineGP(SquaredExponential(0.1, [1.0, 1.0]), noise_variance=0.01, budget=5).fit(
        [[0.5, 0.1]], [0.3]
    )
    return Model(narx, Scaling.identity(2), LinearMean(mean), gp)


def test_models_without_lagged_outputs_need_no_window_and_others_no_inputs():
    model = small_model(Narx(outputs={"y": []}, inputs={"u": [0, 2]}, predict="value"), (1.0, 0.5))
    u = signals(8)["u"]
    data = xr.Dataset({"y": ("time", u * 0), "u": ("time", u)}, coords={"time": np.arange(8.0)})
    found = forecast(model, data, horizon=None, window=0)
    expected = model.predict(np.stack([u, u[[0, 0, *range(6)]]], axis=1))
    np.testing.assert_allclose(found.records[0].mean[:, 0], expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.records[0].variance[:, 0], expected.variance, rtol=1e-12)
    assert found.n_filled == 2
    joint = JointModel.of(small_model(Narx(outputs={"a": [1, 2]}, predict="value"), (0.4, 0.2)))
    found = forecast(joint, record(10), horizon=None, window=2).records[0]
    np.testing.assert_allclose(
        found.mean, naive_run(joint, signals(10, 1), 2, 9, measured_until=2), rtol=1e-9
    )


# divergence


def growing(n=20):
    values = {"y": ("time", np.ones(n)), "u": ("time", np.zeros(n))}
    return xr.Dataset(values, coords={"time": 5.0 + 2.0 * np.arange(n)})


@pytest.mark.parametrize(
    "rule", [None, Taylor(), Pathwise(4, 4)], ids=lambda rule: type(rule).__name__
)
def test_divergence_is_reported_and_the_rest_is_nan(rule):
    path = (-3.0) ** np.arange(20)
    leaves = int(
        np.argmax((path > 1001) | (path < -1000))
    )  # 1e3 times the range of the points, which is 0 to 1
    found = forecast(
        unstable(-3.0),
        [growing(4), growing()],
        horizon=None,
        window=1,
        propagation=rule,
    )
    assert found.records[0].diverged is None
    (one,) = found.diverged
    assert (one.record, one.sample, one.time, one.output) == (
        1,
        leaves,
        5.0 + 2.0 * leaves,
        "y",
    )
    np.testing.assert_allclose(one.value, path[leaves], rtol=0.02)
    second = found.records[1]
    assert np.isnan(second.mean[leaves - 1 :]).all()
    np.testing.assert_allclose(second.mean[: leaves - 1, 0], path[1:leaves], rtol=0.02)
    assert found.n_lost == second.n_lost == 20 - leaves
    beyond = unstable(gain=1e80, output_range=(-1e40, 1e40))  # its square is no number
    found = forecast(beyond, growing(), horizon=None, window=1, propagation=rule)
    assert (found.diverged[0].sample, found.n_lost) == (1, 19)


def test_divergence_of_several_steps_is_counted_per_start():
    data = growing()
    data["y"][7] = -900.0
    found = forecast(unstable(-3.0), data, horizon=3, window=1, propagation=Taylor())
    one = found.records[0]
    assert np.flatnonzero(np.isnan(one.mean[:, 0])).tolist() == [10 - 3]
    assert (one.diverged.sample, one.n_lost) == (10, 1)
    np.testing.assert_allclose(one.diverged.value, 2700.0, rtol=0.02)


# baselines: linear least squares

A, B, C = (
    [1.5, -0.7],
    [0.5, 0.25],
    0.3,
)  # y[k] = C + A.(y[k-1], y[k-2]) + B.(u[k], u[k-1]) + e[k]
NARX = Narx({"y": 2}, {"u": [0, 1]}, predict="value")


def known_system(n=400, *, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    e = noise * rng.normal(size=n)
    for k in range(2, n):
        y[k] = C + A[0] * y[k - 1] + A[1] * y[k - 2] + B[0] * u[k] + B[1] * u[k - 1] + e[k]
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, coords={"time": 0.5 * np.arange(n)})


def test_a_known_system_is_found_exactly_and_simulated():
    model = LinearArx.fit(NARX, known_system())
    np.testing.assert_allclose([*model.coefficients, model.intercept], [*A, *B, C], rtol=1e-9)
    assert (model.rank, model.warnings) == (4, ())
    truth = known_system(1000, seed=2)
    np.testing.assert_allclose(model.free_run(truth), truth.y, atol=1e-8)


def test_what_is_not_excited_gets_no_weight_and_is_reported():
    data = known_system(200, noise=0.1)
    data["copy"] = 2 * data["u"]
    data["idle"] = data["u"] * 1e-9 + 1e6 / 3  # constant but for rounding
    narx = Narx({"y": 2}, {"u": [0], "copy": [0], "idle": [0]}, predict="value")
    model = LinearArx.fit(narx, data)
    assert (model.rank, model.condition) == (3, math.inf)
    assert model.warnings == ("the regressors have rank 3 of 5: coefficients of minimum norm",)
    u, copy, idle = model.coefficients[2:]
    assert idle == 0.0
    assert u == pytest.approx(
        2 * copy
    )  # equal shares of two standardised features that are the same


# baselines: one step and free run


def naive_free_run(model, data, n_initial):
    """The equation, one number at a time."""
    narx = model.narx
    y = [float(value) for value in data[model.narx.target].values[:n_initial]]
    for k in range(n_initial, data.sizes["time"]):
        value = model.intercept
        for (name, lag), theta in zip(narx.features, model.coefficients, strict=True):
            value += theta * (
                y[k - lag] if name == narx.target else float(data[name].values[k - lag])
            )
        y.append(value + (y[k - 1] if narx.predict is Target.change else 0.0))
    return np.array(y)


@PREDICT
@pytest.mark.parametrize("n_initial", [None, 3, 599])
def test_linear_predictions_are_the_equation(predict, n_initial):
    narx = Narx({"y": 2}, {"u": [0, 3]}, predict=predict)
    data = known_system(600, noise=0.3)
    model = LinearArx.fit(narx, data)
    rows = narx.dataset(data)
    expected = [model.intercept + sum(model.coefficients * row) for row in rows.regressor.values]
    np.testing.assert_allclose(model.one_step(rows), expected, rtol=1e-12, atol=1e-13)
    first = 3 if n_initial is None else n_initial
    simulated = model.free_run(data, n_initial=n_initial)
    np.testing.assert_allclose(simulated, naive_free_run(model, data, first), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(simulated[:first], data.y.values[:first])


def test_a_free_run_sees_no_later_output_and_other_outputs_as_measured():
    data = known_system(100, noise=0.3)
    data["v"] = ("time", np.random.default_rng(5).normal(size=100))
    model = LinearArx.fit(Narx({"v": 1, "y": 2}, {"u": 1}, target="y"), data)
    simulated = model.free_run(data)
    np.testing.assert_allclose(simulated, naive_free_run(model, data, 2), rtol=1e-9)
    blind = data.copy(deep=True)
    blind["y"][2:] = np.nan
    np.testing.assert_array_equal(model.free_run(blind), simulated)


def test_an_unstable_simulation_is_nan_from_its_overflow_on():
    model = LinearArx(Narx({"y": 1}, predict="value"), np.array([-1e30]), 0.0, 1, 1.0)
    simulated = model.free_run({"y": np.ones(20)})
    np.testing.assert_array_equal(np.sign(simulated[:11]), [1, -1] * 5 + [1])
    assert abs(simulated[10]) == pytest.approx(1e300)
    assert np.isnan(simulated[11:]).all()


@PREDICT
def test_mean_and_persistence_by_hand(predict):
    narx = Narx({"y": 1}, predict=predict)
    data = xr.Dataset({"y": ("time", [1.0, 2.0, 4.0, 9.0])}, coords={"time": np.arange(4.0)})
    rows = narx.dataset(data)
    mean = Mean.fit(narx, data)
    persistence = Persistence(narx)
    assert mean.value == 5.0
    assert mean.one_step(rows).tolist() == ([4.0, 3.0, 1.0] if predict == "change" else [5.0] * 3)
    assert persistence.one_step(rows).tolist() == (
        [0.0] * 3 if predict == "change" else [1.0, 2.0, 4.0]
    )
    assert mean.free_run(data).tolist() == [1.0, 5.0, 5.0, 5.0]
    assert persistence.free_run(data).tolist() == [1.0] * 4
    assert persistence.free_run(data, n_initial=3).tolist() == [1.0, 2.0, 4.0, 4.0]


# what is refused


def predict(records, **model):
    """Free run of a model that knows its sampling time and a unit."""
    return forecast(
        identified(sampling_time=0.5, units={"a": "V"}, **model),
        records,
        horizon=None,
        window=3,
    )


def in_millivolt():
    data = record()
    data["a"].attrs["units"] = "mV"
    return data


def simulate(n_initial=None, **changed):
    return Persistence(NARX).free_run(
        {"y": np.zeros(10), "u": np.zeros(10)} | changed, n_initial=n_initial
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: forecast(identified(), record(), horizon=0, window=3),
            "horizon.*must be a whole number",
        ),
        (
            lambda: forecast(identified(), record(), horizon=None, window=0),
            r"needs past outputs\), must be a whole",
        ),
        (
            lambda: forecast(identified(), record(), horizon=31, window=3),
            "has 30 samples, expected more than the 31",
        ),
        (
            lambda: predict([record(), record(u=np.full(30, np.nan))]),
            "'u' of record 1 is nan at sample 0",
        ),
        (
            lambda: predict(record(step=0.25)),
            r"record 0 is sampled every 0.25 s, .* every 0.5 s",
        ),
        (lambda: predict(record().drop_vars("b")), r"has no signals \['b'\]"),
        (lambda: predict(in_millivolt()), "in 'mV', .* from 'V'"),
        (
            lambda: Persistence(Narx({"y": []}, {"u": [0]}, predict="value")),
            "Persistence needs an output",
        ),
        (lambda: Mean(NARX, math.nan), r"Mean\(value=nan\)"),
        (lambda: LinearArx.fit(NARX, known_system(), ridge=-1.0), "ridge=-1.0"),
        (
            lambda: Mean(NARX, 0.0).one_step(Narx({"y": 1}).dataset(known_system())),
            "expects the features",
        ),
        (
            lambda: simulate(u=np.r_[np.zeros(9), np.nan]),
            "'u' of record 0 is nan at sample 9",
        ),
        (
            lambda: simulate(5, y=np.r_[np.zeros(4), np.nan, np.zeros(5)]),
            "'y' of record 0 is nan at sample 4",
        ),
        (lambda: simulate(10), "needs n_initial from 2 to 9, got 10"),
        (lambda: simulate(u=np.zeros(3)), "need one length"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
