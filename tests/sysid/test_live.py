"""A running plant: steps with missing samples, new runs, and a look ahead."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sysid import MaximumAPosteriori, Narx, Settings, identify
from sysid.simulation.validation import Z_95

NARX = Narx({"y": 2}, {"heat": [1, 2], "flow": 1})
SETTINGS = Settings(budget=20, training=MaximumAPosteriori(), linear_part="none")
N_BEFORE = 300
NOISE_STD = 0.02


def plant(n, seed):
    """Return the signals of ``y[k] = 0.8 y[k-1] + tanh(heat[k-1]) - 0.3 flow[k-1] + 20``."""
    rng = np.random.default_rng(seed)
    heat, flow, noise = rng.normal(size=(3, n))
    y = np.full(n, 100.0)
    for k in range(1, n):
        effect = np.tanh(heat[k - 1]) - 0.3 * flow[k - 1]
        y[k] = 20.0 + 0.8 * y[k - 1] + effect + NOISE_STD * noise[k]
    return {"y": y, "heat": heat, "flow": flow}


def model_of(signals, **changes):
    """Identify a new model of the plant."""
    changes = {"narx": NARX, "settings": SETTINGS, "dt": 0.5, "identified": 1, **changes}
    return identify(signals, inputs=["heat", "flow"], outputs=["y"], **changes)


@pytest.fixture(scope="module")
def identified():
    """Return the model before its first step, which nobody may change."""
    return model_of(plant(N_BEFORE, 0))


@pytest.fixture
def live(identified):
    return deepcopy(identified)


@pytest.fixture
def twin(identified):
    """Return another model that is the same as `live`."""
    return deepcopy(identified)


@pytest.fixture(scope="module")
def run():
    """Return the samples of a run, one mapping each."""
    signals = plant(120, 1)
    return [{name: values[k] for name, values in signals.items()} for k in range(120)]


def test_a_prediction_has_the_unit_of_the_output(live, run):
    errors = []
    is_inside = []
    for sample in run:
        for report in live.step(**sample).values():
            errors.append(report.mean - sample["y"])
            is_inside.append(report.low <= sample["y"] <= report.high)
    assert len(errors) == len(run) - NARX.max_lag
    assert np.std(errors) < 1.5 * NOISE_STD
    assert np.mean(is_inside) > 0.85


def test_signals_may_be_named_or_come_in_order(run, identified):
    by_name, by_order, by_mapping = (deepcopy(identified) for _ in range(3))
    for sample in run[:20]:
        inputs = {"heat": sample["heat"], "flow": sample["flow"]}
        expected = repr(by_name.step(**sample))
        assert repr(by_order.step(sample["y"], [sample["heat"], sample["flow"]])) == expected
        assert repr(by_mapping.step({"y": sample["y"]}, inputs)) == expected


def test_a_missing_output_is_replaced_by_its_prediction(live, run):
    """The variance of the estimate goes through the slope of the model, here by differences."""
    for sample in run[:30]:
        live.step(**sample)
    n_seen = live.model.gp.n_seen
    missing = live.step(**run[30] | {"y": np.nan})["y"]
    assert missing.update is None
    assert live.model.gp.n_seen == n_seen
    assert missing.mean == pytest.approx(run[30]["y"], abs=5 * NOISE_STD)

    x = np.array(
        [
            missing.mean,
            run[29]["y"],
            run[30]["heat"],
            run[29]["heat"],
            run[30]["flow"],
        ]
    )
    step = 1e-4
    shifted = x + step * np.eye(5)[0]
    of_both = live.model.predict(np.array([x, shifted]))
    slope = 1.0 + (of_both.mean[1] - of_both.mean[0]) / step  # a change is predicted
    known = float(live.model.calibrated(of_both.variance[0])) + live.model.gp.noise_variance
    variance_of_estimate = ((missing.high - missing.low) / (2 * Z_95)) ** 2
    expected = np.sqrt(known + slope**2 * variance_of_estimate)

    after = live.step(**run[31])["y"]
    assert after.mean == pytest.approx(missing.mean + of_both.mean[0], rel=1e-12)
    assert (after.high - after.low) / (2 * Z_95) == pytest.approx(expected, rel=1e-6)


def test_bands_of_a_long_gap_grow_and_shrink_again(live, run):
    for sample in run[:30]:
        live.step(**sample)
    widths = []
    for k in range(30, 50):
        measured = run[k] if k >= 40 else run[k] | {"y": np.nan}
        report = live.step(**measured)["y"]
        widths.append(report.high - report.low)
        assert report.low - NOISE_STD <= run[k]["y"] <= report.high + NOISE_STD
    in_gap, first_after, later = widths[:10], widths[10], widths[13:]
    assert np.all(np.diff(in_gap[:4]) > 0)
    assert min(*in_gap[4:], first_after) > in_gap[3]
    assert max(later) < 1.1 * widths[0]


def test_most_samples_after_single_holes_are_learned(live, run):
    rng = np.random.default_rng(2)
    n_measured = 0
    n_before = live.model.gp.n_seen
    for sample in run:
        is_missing = rng.random() < 0.2
        n_measured += not is_missing
        live.step(**sample | {"y": np.nan} if is_missing else sample)
    assert live.model.gp.n_seen - n_before > 0.5 * n_measured


def test_nothing_is_predicted_while_an_input_is_missing_among_the_lags(live, run):
    for sample in run[:10]:
        live.step(**sample)
    assert live.step(**run[10] | {"heat": np.nan})  # lag 0 is not used
    assert live.step(**run[11]) == {}
    assert live.step(**run[12]) == {}
    assert live.step(**run[13])


def test_a_new_run_does_not_follow_the_last_one(live, run, twin):
    """The last sample of the old run is a gross error that the model still holds back."""
    for sample in run[:20]:
        live.step(**sample)
        twin.step(**sample)
    live.step(**run[20] | {"y": run[20]["y"] + 30.0})
    live.reset()
    twin.reset()
    for k, sample in enumerate(run[40:60]):
        report = live.step(**sample)
        expected = twin.step(**sample)
        assert bool(report) == (k >= NARX.max_lag)
        if report:
            assert report["y"].mean == pytest.approx(expected["y"].mean, abs=NOISE_STD)
            assert not report["y"].outlier


def test_a_look_ahead_is_the_simulation_from_the_same_samples(live, run):
    first, n_ahead = 30, 15
    for sample in run[:first]:
        live.step(**sample)
    coming = np.array([[sample["heat"], sample["flow"]] for sample in run[first : first + n_ahead]])
    table = live.ahead(coming)
    begin = first - NARX.max_lag
    record = {
        name: np.array([sample[name] for sample in run[begin : first + n_ahead]])
        for name in ("y", "heat", "flow")
    }
    simulated = live.simulate(record)
    for column in ("y_mean", "y_low", "y_high"):
        np.testing.assert_allclose(table[column], simulated[column], rtol=1e-12)
    np.testing.assert_allclose(table.index, 0.5 * np.arange(1, n_ahead + 1))


def test_a_look_ahead_knows_what_is_missing(live, run, twin):
    """The variance of an estimated last output goes through the slopes of the free run."""
    for sample in run[:30]:
        live.step(**sample)
    n_ahead = 10
    coming = np.array([[sample["heat"], sample["flow"]] for sample in run[31 : 31 + n_ahead]])
    for sample in run[:31]:
        twin.step(**sample)
    missing = live.step(**run[30] | {"y": np.nan})["y"]
    added = live.ahead(coming)
    known = twin.ahead(coming)
    width = (added["y_high"] - added["y_low"]).to_numpy()
    width_if_known = (known["y_high"] - known["y_low"]).to_numpy()
    np.testing.assert_allclose(added["y_mean"], known["y_mean"], atol=5 * NOISE_STD)
    assert width[0] > 1.2 * width_if_known[0]
    assert width[-1] == pytest.approx(width_if_known[-1], rel=0.2)

    std = (missing.high - missing.low) / (2 * Z_95)
    first = {
        "y": np.array([run[29]["y"], missing.mean]),
        "heat": np.array([run[29]["heat"], run[30]["heat"]]),
        "flow": np.array([run[29]["flow"], run[30]["flow"]]),
    }
    means = []
    for error in (std, -std):
        record = {
            name: np.concatenate([values, [sample[name] for sample in run[31 : 31 + n_ahead]]])
            for name, values in first.items()
        }
        record["y"][1] += error
        means.append(live.simulate(record)["y_mean"].to_numpy())
    spread = 0.5 * (means[0] - means[1])
    expected = np.sqrt(width_if_known[0] ** 2 + (2 * Z_95 * spread[0]) ** 2)
    assert width[0] == pytest.approx(expected, rel=0.02)


def test_what_the_model_takes_for_wrong_is_not_among_the_lags(live, run, twin):
    for sample in run[:40]:
        live.step(**sample)
        twin.step(**sample)
    spike = live.step(**run[40] | {"y": run[40]["y"] + 8.0})["y"]
    expected = twin.step(**run[40])["y"]
    assert spike.outlier
    assert spike.mean == expected.mean
    coming = np.array([[sample["heat"], sample["flow"]] for sample in run[41:45]])
    ahead = live.ahead(coming)
    np.testing.assert_allclose(ahead["y_mean"], twin.ahead(coming)["y_mean"], atol=0.1)
    after = live.step(**run[41])["y"]
    assert after.mean == pytest.approx(run[41]["y"], abs=0.1)
    assert after.low < run[41]["y"] < after.high
    assert after.high - after.low > expected.high - expected.low
    for sample in run[42:50]:
        report = live.step(**sample)["y"]
        assert report.low - NOISE_STD < sample["y"] < report.high + NOISE_STD
    assert report.high - report.low == pytest.approx(expected.high - expected.low, rel=0.1)


def test_signals_may_be_named_y_and_u():
    rng = np.random.default_rng(4)
    u, v = rng.normal(size=(2, 200))
    y = np.zeros(200)
    for k in range(1, 200):
        y[k] = 0.5 * y[k - 1] + u[k - 1] - v[k - 1] + 0.01 * rng.normal()
    signals = {"y": y, "u": u, "v": v}
    found = identify(
        signals,
        Narx({"y": 1}, {"u": 1, "v": 1}),
        inputs=["u", "v"],
        outputs=["y"],
        settings=SETTINGS,
        dt=1.0,
        identified=1,
    )
    for k in range(100, 110):
        found.step(y=y[k], u=u[k], v=v[k])
    series = pd.Series({"v": v[110], "u": u[110]})
    report = found.step(y[110], series)["y"]
    assert report.mean == pytest.approx(y[110], abs=0.1)
    assert found.step(y[111], {"u": u[111], "v": v[111]})["y"].mean == pytest.approx(
        y[111], abs=0.1
    )
    with pytest.raises(ValueError, match="inputs u and v, got w"):
        found.step(y[112], {"u": 1.0, "v": 1.0, "w": 2.0})


def test_outputs_of_one_plant_step_together():
    rng = np.random.default_rng(3)
    u = rng.normal(size=200)
    a = np.zeros(200)
    b = np.zeros(200)
    for k in range(1, 200):
        a[k] = 0.7 * a[k - 1] + u[k - 1] + 0.01 * rng.normal()
        b[k] = 0.5 * b[k - 1] + 0.3 * a[k - 1] + 0.01 * rng.normal()
    found = [
        identify(
            {"u": u, "a": a, "b": b},
            Narx({"a": 1, "b": 1}, {"u": 1}, target=target),
            inputs=["u"],
            outputs=["a", "b"],
            settings=SETTINGS,
            dt=1.0,
            identified=1,
        )
        for target in ("a", "b")
    ]
    alone = replace(found[0])
    found = replace(found[0], identifications=found[0].identifications | found[1].identifications)
    assert set(alone.step(a=a[99], b=b[99], u=u[99])) == set()
    with pytest.raises(ValueError, match="one model for each output among the lags"):
        alone.ahead(u[100:105])
    reports = {}
    for k in range(100, 120):
        value = np.nan if k == 118 else a[k]
        reports = found.step(a=value, b=b[k], u=u[k])
        assert k == 100 or set(reports) == {"a", "b"}
    added = reports["b"].high - reports["b"].low
    model = found.models["b"]
    assert added > 2 * Z_95 * np.sqrt(model.gp.noise_variance)  # a[118] is an estimate
    table = found.ahead(u[120:125])
    assert [*table] == ["a_mean", "a_low", "a_high", "b_mean", "b_low", "b_high"]
    np.testing.assert_allclose(table["a_mean"], a[120:125], atol=0.1)


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        pytest.param([], {"heat": 1.0, "flow": 1.0}, "outputs y, got nothing", id="no output"),
        pytest.param([1.0], {"heat": 1.0}, "inputs heat and flow, got heat", id="one input"),
        pytest.param([1.0], {}, "inputs heat and flow, got nothing", id="no input"),
        pytest.param([1.0, [1.0]], {}, r"heat and flow, got values of shape \(1,\)", id="short"),
        pytest.param([1.0], {"heta": 1.0, "flow": 1.0}, "heta is no signal", id="unknown name"),
        pytest.param([1.0, [1.0, 2.0]], {"flow": 1.0}, "inputs once, got them by", id="twice"),
        pytest.param([np.inf, [1.0, 2.0]], {}, "finite number for y, or nan, got inf", id="inf"),
        pytest.param([[1.0, 2.0], [1.0, 2.0]], {}, r"outputs y, got .* \(2,\)", id="two outputs"),
        pytest.param(["1.0", [1.0, 2.0]], {}, "real numbers", id="text"),
    ],
)
def test_a_step_that_is_not_one_sample_is_refused(arguments, named, message, live, run, twin):
    for sample in run[:5]:
        live.step(**sample)
    for sample in run[:5]:
        twin.step(**sample)
    with pytest.raises((ValueError, TypeError), match=message):
        live.step(*arguments, **named)
    assert repr(live.step(**run[5])) == repr(twin.step(**run[5]))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param(np.zeros(3), "heat', 'flow'.*got shape", id="one input of two"),
        pytest.param(np.zeros((0, 2)), "coming samples", id="nothing"),
        pytest.param([[0.0, np.nan]], "finite inputs", id="missing"),
        pytest.param({"heat": [1.0]}, r"'heat', 'flow'.*got \['heat'\]", id="one name of two"),
        pytest.param({"heat": [1.0], "flow": [1.0, 2.0]}, "lengths.*'flow': 2", id="lengths"),
    ],
)
def test_a_look_ahead_needs_all_coming_inputs(inputs, message, live, run):
    for sample in run[:5]:
        live.step(**sample)
    with pytest.raises(ValueError, match=message):
        live.ahead(inputs)


def test_coming_inputs_are_given_by_name_in_any_order(live, run):
    for sample in run[:30]:
        live.step(**sample)
    coming = np.array([[50.0, 3.0], [60.0, 4.0], [40.0, 5.0]])
    expected = live.ahead(coming)
    by_name = {"flow": coming[:, 1], "heat": coming[:, 0]}
    for named in (by_name, pd.DataFrame(by_name)):
        pd.testing.assert_frame_equal(live.ahead(named), expected)
    unnamed = pd.DataFrame(coming)
    pd.testing.assert_frame_equal(live.ahead(unnamed), expected)


def test_a_look_ahead_needs_the_lags(live, run):
    live.step(**run[0])
    with pytest.raises(ValueError, match=r"at least 2 samples of this run.*got 1; call step first"):
        live.ahead(np.zeros((3, 2)))
    live.step(**run[1])
    live.step(**run[2] | {"flow": np.nan})
    with pytest.raises(ValueError, match="input 'flow' is missing in some of them"):
        live.ahead(np.zeros((3, 2)))


def test_a_plant_without_inputs_looks_ahead_by_a_number_of_samples():
    y = np.sin(0.3 * np.arange(200)) + 0.01 * np.random.default_rng(0).normal(size=200)
    found = identify(
        {"y": y}, Narx({"y": 3}), inputs=[], outputs=["y"], settings=SETTINGS, dt=1.0, identified=1
    )
    for value in y[100:110]:
        found.step(y=value)
    table = found.ahead(5)
    np.testing.assert_allclose(table["y_mean"], np.sin(0.3 * np.arange(110, 115)), atol=0.1)
    with pytest.raises(ValueError, match=r"number of coming samples.*got 0"):
        found.ahead(0)
