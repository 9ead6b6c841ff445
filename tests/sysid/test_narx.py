"""Lags to regressors: against the equation written as loops, live against batch, and every error."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from sysid.lag_window import LagWindow
from sysid.narx import Narx, OnMissing, Target

STATIC = Narx({"y": []}, {"v": [0], "u": [0]}, predict="value")


def record(n=10, *, dt=0.5, start=0.0, seed=0, **changed):
    rng = np.random.default_rng(seed)
    signals = {"y": rng.normal(size=n), "v": rng.normal(size=n), "u": rng.normal(size=n)} | changed
    units = {"y": "degC", "v": "m", "u": "kg s-1"}
    variables = {
        name: ("time", values, {"units": units[name], "long_name": f"signal {name}"})
        for name, values in signals.items()
    }
    return xr.Dataset(variables, coords={"time": ("time", start + dt * np.arange(n), {"units": "s"})})


def naive_rows(narx, signals):
    """The definition, one number at a time."""
    n = len(signals[narx.target])
    for k in range(narx.max_lag, n):
        x = [float(signals[name][k - lag]) for name, lag in narx.features]
        y, previous = float(signals[narx.target][k]), float(signals[narx.target][k - 1]) if k else np.nan
        needed = [*x, y] + ([previous] if narx.lags[narx.target] else [])
        if np.isfinite(needed).all():
            yield k, x, (y - previous if narx.predict is Target.change else y), previous


# --- settings -------------------------------------------------------------------------------------


def test_features_come_outputs_first_with_increasing_lags():
    narx = Narx(outputs={"zone_temperature": 2}, inputs={"ambient": [3, 1], "mass_flow": [0]})
    assert narx.feature_names == (
        "zone_temperature[k-1]",
        "zone_temperature[k-2]",
        "ambient[k-1]",
        "ambient[k-3]",
        "mass_flow[k]",
    )
    assert narx.n_features == 5
    assert narx.max_lag == 3
    assert narx.signals == ("zone_temperature", "ambient", "mass_flow")
    assert narx.lags == {"zone_temperature": (1, 2), "ambient": (1, 3), "mass_flow": (0,)}
    assert narx.target == "zone_temperature"
    assert narx.predict is Target.change
    assert narx.on_missing is OnMissing.error


def test_settings_from_a_config_equal_those_from_code():
    plain = {"outputs": {"y": [1, 2]}, "inputs": {"u": 1}, "predict": "value", "on_missing": "skip"}
    narx = Narx(**plain)
    same = Narx({"y": 2}, {"u": (1,)}, "y", Target.value, OnMissing.skip)
    assert narx == same
    assert hash(narx) == hash(same)
    assert narx != Narx({"y": 2}, {"u": 2}, "y", Target.value, OnMissing.skip)
    assert Narx({"y": 1, "v": 1}) != Narx({"v": 1, "y": 1}, target="y")


def test_settings_survive_json_and_pickle():
    narx = Narx({"y": [2, 5], "v": 1}, {"u": [0, 4]}, "v", Target.value, OnMissing.skip)
    assert Narx.from_dict(json.loads(json.dumps(narx.to_dict()))) == narx
    assert pickle.loads(pickle.dumps(narx)) == narx
    assert Narx.from_dict(json.loads(json.dumps(STATIC.to_dict()))) == STATIC


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": {}}, "needs at least one output"),
        ({"outputs": {"y": []}}, r"Narx\(outputs=\{'y': \[\]\}\): no lags"),
        ({"outputs": {"y": []}}, r"the change y\[k\] - y\[k-1\] needs an earlier output.*predict='value'"),
        ({"outputs": {"y": []}, "inputs": {"u": [0]}}, "needs an earlier output"),
        ({"outputs": {"y": []}, "inputs": {"u": 3}, "predict": "change"}, "needs an earlier output"),
        ({"outputs": {"y": []}, "predict": "value"}, r"Narx\(outputs=\{'y': \[\]\}\) has no features"),
        (
            {"outputs": {"y": 1, "v": []}, "inputs": {"u": 1}, "predict": "value"},
            r"'v': \[\]\}\): no lags, and it is not the target 'y'",
        ),
        ({"outputs": {"y": 0}, "inputs": {"u": 1}, "predict": "value"}, r"'y': 0\}\): no lags"),
        ({"outputs": {"y": ""}, "inputs": {"u": 1}, "predict": "value"}, r"'y': ''\}\): no lags"),
        ({"outputs": {"y": 1}, "inputs": {"u": []}, "predict": "value"}, r"'u': \[\]\}\): no lags"),
        ({"outputs": {"y": 0}}, "no lags"),
        ({"outputs": {"y": [0, 1]}}, "lags must be >= 1 .an output cannot explain itself"),
        ({"outputs": {"y": [-1]}}, "lags must be >= 1"),
        ({"outputs": {"y": -2}}, "no lags"),
        ({"outputs": {"y": [1, 1]}}, "duplicate lags"),
        ({"outputs": {"y": 1}, "inputs": {"u": [0, -1]}}, r"inputs=\{'u'.*lags must be >= 0"),
        ({"outputs": {"y": 1}, "inputs": {"u": 0}}, "at least one lag >= 0"),
        ({"outputs": {"y": 1}, "inputs": {"y": 1}}, r"\['y'\] among outputs and inputs"),
        ({"outputs": {"y": 1}, "target": "z"}, r"target='z'\) must be one of its outputs \['y'\]"),
        ({"outputs": {"y": 1}, "inputs": {"u": 1}, "target": "u"}, "one of its outputs"),
        ({"outputs": {"y": 1}, "predict": "slope"}, r"predict='slope'\) must be 'change' or 'value'"),
        ({"outputs": {"y": 1}, "on_missing": "fill"}, r"on_missing='fill'\) must be 'error' or 'skip'"),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Narx(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"outputs": {"y": 1.5}},
        {"outputs": {"y": [1.0]}},
        {"outputs": {"y": "3"}},
        {"outputs": {"y": True}},
        {"outputs": {"y": None}},
        {"outputs": "y"},
        {"outputs": {"y": 1}, "inputs": 3},
        {"outputs": {1: 1}},
    ],
)
def test_settings_of_a_wrong_type_are_refused(options):
    with pytest.raises(TypeError, match=r"Narx\((outputs|inputs)"):
        Narx(**options)


def test_none_stands_for_no_inputs():
    assert Narx({"y": 1}, None) == Narx({"y": 1})


# --- plain arrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("predict", list(Target))
@pytest.mark.parametrize(
    ("outputs", "inputs"),
    [
        ({"y": 3}, {}),
        ({"y": 2, "v": [3]}, {"u": [0, 4]}),
        ({"y": [2]}, {"u": [0]}),
        ({"v": 1, "y": [5]}, {"u": 2}),
    ],
)
def test_rows_are_the_equation(outputs, inputs, predict):
    narx = Narx(outputs, inputs, predict=predict)
    signals = {name: v.values for name, v in record(12).data_vars.items()}
    expected = list(naive_rows(narx, signals))
    rows = narx.regressors(signals)
    assert rows.sample.tolist() == [k for k, *_ in expected]
    np.testing.assert_array_equal(rows.regressor, [x for _, x, *_ in expected])
    np.testing.assert_array_equal(rows.target, [target for _, _, target, _ in expected])
    assert rows.regressor.flags.c_contiguous
    assert rows.regressor.dtype == rows.target.dtype == np.float64


def test_integers_bools_and_float32_become_float64():
    rows = Narx({"y": 1}, {"u": 1}).regressors({"y": np.arange(4, dtype=np.float32), "u": [True, False, True, True]})
    np.testing.assert_array_equal(rows.regressor, [[0, 1], [1, 0], [2, 1]])
    assert rows.regressor.dtype == np.float64


def test_a_record_of_the_smallest_length_gives_one_row():
    assert len(Narx({"y": 3}).regressors({"y": np.arange(4.0)}).target) == 1


@pytest.mark.parametrize(
    ("signals", "kind", "message"),
    [
        ({"y": np.zeros(5)}, ValueError, r"record 7 has no signals \['u'\]: it has \['y'\]"),
        ({"y": np.zeros(5), "u": np.zeros(4)}, ValueError, "need one length, got {'y': 5, 'u': 4}"),
        (
            {"y": np.zeros((5, 1)), "u": np.zeros(5)},
            ValueError,
            r"'y' of record 7 must have shape \(n,\), got \(5, 1\)",
        ),
        (
            {"y": np.zeros(5), "u": np.zeros(5, dtype=complex)},
            TypeError,
            "'u' of record 7 must be real numbers, got dtype c",
        ),
        ({"y": np.zeros(5), "u": ["a"] * 5}, TypeError, "real numbers"),
        (
            {"y": np.zeros(3), "u": np.zeros(3)},
            ValueError,
            r"Narx\(lags of 'u' up to 3\) needs at least 4 samples per record, record 7 has 3: use longer",
        ),
        ({"y": np.zeros(0), "u": np.zeros(0)}, ValueError, "record 7 has 0"),
    ],
)
def test_wrong_signals_are_named(signals, kind, message):
    with pytest.raises(kind, match=message):
        Narx({"y": 1}, {"u": 3}).regressors(signals, record=7)


# --- missing values -------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_missing_value_is_an_error_with_its_place(bad):
    broken = record(10, start=100.0, seed=1)
    broken["u"][6:8] = bad
    broken["y"][9] = bad
    message = rf"'u' of record 1 is {bad} at sample 6 \(time 103 s\), the first of 3 samples.*on_missing='skip'"
    with pytest.raises(ValueError, match=message):
        Narx({"y": 2}, {"u": 1}).dataset([record(10), broken])


def test_a_missing_value_that_no_row_uses_is_an_error_too():
    with pytest.raises(ValueError, match="signal 'u' of record 0 is nan at sample 4, the first of 1 samples"):
        Narx({"y": 1}, {"u": 1}).regressors({"y": np.arange(5.0), "u": [0, 1, 2, 3, np.nan]})


def test_skipped_rows_and_missing_samples_are_counted():
    broken = record(20)
    broken["y"][5] = np.nan  # rows 5 (target), 6 (lag 1), 7 (lag 2)
    broken["u"][6] = np.inf  # row 9 (lag 3); row 6 does not use it
    broken["u"][19] = np.nan  # no row uses it
    data = Narx({"y": 2}, {"u": [3]}, on_missing="skip").dataset(broken)
    assert data.attrs["n_missing"] == 3
    assert data.attrs["n_skipped"] == 4
    assert (data.time.values / 0.5).astype(int).tolist() == [3, 4, 8, *range(10, 20)]


def test_previous_output_must_be_known_even_when_it_is_no_feature():
    y = np.arange(8.0)
    y[4] = np.nan
    rows = Narx({"y": [3]}, predict="value", on_missing="skip").regressors({"y": y})
    assert rows.sample.tolist() == [3, 6]


def test_skipping_everything_is_an_error():
    with pytest.raises(ValueError, match="leaves no row"):
        Narx({"y": 2}, on_missing="skip").dataset(record(10, y=np.full(10, np.nan)))


# --- targets without lags -------------------------------------------------------------------------


def table(n=6, **changed):
    """Static record: rows that are independent of each other."""
    counted = record(n, **changed)
    return counted.assign_coords(time=("time", np.arange(float(n)), {"units": "1"})).assign_attrs(static=1)


def test_every_row_of_a_table_is_a_sample():
    assert STATIC.max_lag == 0
    assert STATIC.feature_names == ("v[k]", "u[k]")
    single = table()
    data = STATIC.dataset(single)
    np.testing.assert_array_equal(data.regressor.values, np.column_stack([single.v, single.u]))
    np.testing.assert_array_equal(data.target.values, single.y.values)
    np.testing.assert_array_equal(data.previous.values, [np.nan, *single.y.values[:-1]])
    assert data.time.values.tolist() == list(range(6))
    assert data.time.attrs["units"] == "1"
    assert data.attrs["n_skipped"] == data.attrs["n_missing"] == 0
    assert data.attrs["sampling_time"] == 1.0


def test_a_table_may_have_a_single_row_but_not_none():
    assert STATIC.dataset(table(1)).sizes["sample"] == 1
    with pytest.raises(ValueError, match="needs at least 1 samples per record, record 0 has 0"):
        STATIC.regressors({"y": [], "v": [], "u": []})


def test_the_first_row_of_every_table_has_no_previous_output():
    data = STATIC.dataset([table(3), table(2)])
    assert np.flatnonzero(np.isnan(data.previous.values)).tolist() == [0, 3]
    _, found = live_rows(STATIC, [{n: v.values for n, v in t.data_vars.items()} for t in (table(3), table(2))])
    np.testing.assert_array_equal([previous for *_, previous in found], data.previous.values)
    np.testing.assert_array_equal([x for x, *_ in found], data.regressor.values)


def test_a_missing_row_of_a_table_costs_no_other_row():
    broken = table()
    broken["y"][1], broken["u"][3] = np.nan, np.inf
    narx = Narx(**STATIC.to_dict() | {"on_missing": "skip"})
    data = narx.dataset(broken)
    assert data.time.values.tolist() == [0, 2, 4, 5]
    assert data.attrs["n_skipped"] == data.attrs["n_missing"] == 2
    assert np.isnan(data.previous.values).tolist() == [True, True, False, False]
    window, found = live_rows(narx, [{name: v.values for name, v in broken.data_vars.items()}])
    np.testing.assert_array_equal([target for _, target, _ in found], data.target.values)
    assert window.n_skipped == window.n_missing == 2
    with pytest.raises(ValueError, match="signal 'y' of record 0 is nan at sample 1"):
        STATIC.dataset(broken)


def test_a_response_to_inputs_alone_needs_no_earlier_output():
    y, u = np.arange(6.0), np.arange(10.0, 16.0)
    y[2] = np.nan
    rows = Narx({"y": []}, {"u": [0, 1]}, predict="value", on_missing="skip").regressors({"y": y, "u": u})
    assert rows.sample.tolist() == [1, 3, 4, 5]
    assert rows.regressor.tolist() == [[11, 10], [13, 12], [14, 13], [15, 14]]


def test_live_a_table_is_predicted_before_its_first_row_is_stored():
    window = LagWindow(STATIC)
    assert window.regressor(np.array([3.0, 4.0])).tolist() == [3.0, 4.0]
    assert np.isnan(window.previous_target_value)
    assert window.observe(np.array([7.0]), np.array([5.0, 6.0])) == (pytest.approx([5.0, 6.0]), 7.0)
    assert window.regressor(np.array([8.0, 9.0])).tolist() == [8.0, 9.0]
    assert window.previous_target_value == 7.0


def test_live_equals_batch_for_a_long_table():
    signals = {name: v.values for name, v in table(1500).data_vars.items()}
    _, found = live_rows(STATIC, [signals])
    np.testing.assert_array_equal([x for x, *_ in found], STATIC.regressors(signals).regressor)


# --- labelled data sets ---------------------------------------------------------------------------


def test_records_never_run_together():
    records = [record(8, seed=i, start=50.0 * i) for i in range(3)]
    narx = Narx({"y": 2, "v": 1}, {"u": [0, 3]})
    data = narx.dataset(records)
    assert data.sizes == {"sample": 3 * 5, "feature": 5}
    for number, single in enumerate(records):
        alone = narx.dataset(single)
        part = data.isel(sample=data.record.values == number)
        for name in ("regressor", "target", "previous", "time"):
            np.testing.assert_array_equal(part[name].values, alone[name].values)


def test_labels_explain_the_data():
    narx = Narx({"y": 2}, {"u": [0, 3]})
    data = narx.dataset([record(8), record(9)])
    assert data.feature.values.tolist() == list(narx.feature_names)
    assert data.unit.values.tolist() == ["degC", "degC", "kg s-1", "kg s-1"]
    assert data.signal.values.tolist() == ["y", "y", "u", "u"]
    assert data.lag.values.tolist() == [1, 2, 0, 3]
    assert data.target.attrs == {"units": "K", "long_name": "change of signal y over one sample"}
    assert data.previous.attrs == {"units": "degC", "long_name": "signal y one sample earlier"}
    assert data.time.attrs["units"] == "s"
    assert data.attrs["n_records"] == 2
    assert data.attrs["n_missing"] == data.attrs["n_skipped"] == 0
    assert data.attrs["sampling_time"] == 0.5
    assert Narx.from_dict(json.loads(data.attrs["narx"])) == narx
    assert set(data.coords) == {"time", "record", "feature", "signal", "lag", "unit"}


@pytest.mark.parametrize("predict", list(Target))
def test_target_and_previous_give_the_output_back(predict):
    single = record(9)
    data = Narx({"y": 2}, predict=predict).dataset(single)
    back = predict.to_value(data.target.values, data.previous.values)
    np.testing.assert_allclose(back, single.y.values[2:], rtol=1e-14)


def test_signals_without_labels_are_fine():
    bare = xr.Dataset({"y": ("time", np.arange(5.0))}, coords={"time": np.arange(5.0)})
    data = Narx({"y": 1}).dataset(bare)
    assert data.unit.values.tolist() == [""]
    assert "units" not in data.target.attrs


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "at least one record, got an empty list"),
        (record().drop_vars("u"), r"record 0 has no signals \['u'\]: it has \['time', 'v', 'y'\]"),
        (record().drop_vars("time"), "record 0 needs a dimension 'time' with a coordinate"),
        (record().rename(time="t"), "needs a dimension 'time'"),
        (
            record().expand_dims(run=2),
            r"has dimensions \('run', 'time'\), expected \('time',\): pass several records",
        ),
        ([record(), record(dt=0.500001)], "record 0 has 0.5 s, record 1 0.500001 s"),
        ([record(), record(2)], "needs at least 4 samples per record, record 1 has 2"),
        ([record(), record(1)], "record 1 has 1"),
        (record(dt=-0.5), "time of record 0 must increase in equal steps"),
        (record(dt=0.0), "time of record 0 must increase"),
        (record().isel(time=[0, 1, 2, 4, 5]), r"equal steps: step 2 \(from 1 s\) is 1 s, the mean 0.625 s"),
    ],
)
def test_wrong_records_are_named(records, message):
    with pytest.raises(ValueError, match=message):
        Narx({"y": 1}, {"u": 3}).dataset(records)


def test_wrong_time_and_units_are_named():
    narx = Narx({"y": 1})
    hours, unknown, kelvin = record(), record(), record()
    hours.time.attrs["units"] = "h"
    with pytest.raises(ValueError, match="time of record 0 has units 'h', expected 's'"):
        narx.dataset(hours)
    times = np.arange(10.0)
    times[4] = np.nan
    with pytest.raises(ValueError, match="time of record 0 is not finite at sample 4"):
        narx.dataset(unknown.assign_coords(time=times))
    with pytest.raises(TypeError, match="time of record 0 must be real numbers, got dtype datetime64"):
        narx.dataset(unknown.assign_coords(time=np.arange(10).astype("datetime64[s]").astype("datetime64[ns]")))
    kelvin.y.attrs["units"] = "K"
    with pytest.raises(ValueError, match="'y' has units 'degC' in record 0 and 'K' in record 1"):
        narx.dataset([record(), kelvin])
    with pytest.raises(TypeError, match=r"record 1 must be an xarray.Dataset, got dict"):
        narx.dataset([record(), {"y": np.zeros(5)}])


@pytest.mark.parametrize(
    "records", [pd.DataFrame({"y": np.zeros(5)}), {"y": np.zeros(5)}, np.zeros((5, 2)), "y", 3, None]
)
def test_what_is_no_record_is_told_by_its_type(records):
    message = rf"^expected a record or a list of records, got {type(records).__name__}: build one .*make_record\("
    with pytest.raises(TypeError, match=message):
        Narx({"y": 1}).dataset(records)


def test_records_may_come_one_after_the_other():
    narx = Narx({"y": 1})
    assert narx.dataset(r for r in [record(), record()]).identical(narx.dataset([record(), record()]))


@pytest.mark.parametrize("times", [900.0 * np.arange(35000), 1e8 + np.arange(2000) / 750, np.linspace(0, 5, 52)])
def test_rounding_of_long_times_is_no_gap(times):
    bare = xr.Dataset({"y": ("time", np.zeros(len(times)))}, coords={"time": times})
    assert Narx({"y": 1}).dataset(bare).attrs["sampling_time"] == pytest.approx(times[1] - times[0], rel=1e-5)


def test_time_steps_off_by_more_than_the_tolerance_are_refused():
    times = 0.1 * np.arange(100)
    ok = xr.Dataset({"y": ("time", np.zeros(100))}, coords={"time": times})
    Narx({"y": 1}).dataset(ok.assign_coords(time=np.where(np.arange(100) == 50, times + 0.5e-7, times)))
    with pytest.raises(ValueError, match="equal steps: step"):
        Narx({"y": 1}).dataset(ok.assign_coords(time=np.where(np.arange(100) == 50, times + 2e-7, times)))


# --- live -----------------------------------------------------------------------------------------


def live_rows(narx, records):
    """Regressors, targets, previous outputs by `observe`; and the same from `regressor` and `push`."""
    window, twin = LagWindow(narx), LagWindow(narx)
    found = []
    for signals in records:
        window.reset()
        twin.reset()
        y = np.column_stack([signals[name] for name in narx.output_names])
        u = np.column_stack([signals[name] for name in narx.input_names]) if narx.inputs else np.empty((len(y), 0))
        for y_k, u_k in zip(y, u, strict=True):
            asked = twin.regressor(u_k)
            pair = window.observe(y_k, u_k)
            if pair is not None:
                assert asked is not None
                assert asked.tobytes() == pair.regressor.tobytes()
                np.testing.assert_equal(twin.previous_target_value, window.previous_target_value)
                found.append((pair.regressor, pair.target, window.previous_target_value))
            twin.push(y_k, u_k)
    return window, found


@st.composite
def cases(draw):
    lags = st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True) | st.integers(1, 4)
    direct = st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True) | st.integers(1, 4)
    outputs = {f"y{i}": draw(lags) for i in range(draw(st.integers(1, 2)))}
    inputs = {f"u{i}": draw(direct) for i in range(draw(st.integers(0, 2)))}
    target = draw(st.sampled_from(sorted(outputs)))
    predict = draw(st.sampled_from(Target))
    if predict is Target.value and (inputs or len(outputs) > 1) and draw(st.booleans()):
        outputs[target] = []
        inputs = inputs and {name: draw(st.sampled_from([[0], lags])) for name, lags in inputs.items()}
    narx = Narx(outputs, inputs, target, predict, OnMissing.skip)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = draw(st.sampled_from([0.0, 0.02, 0.2]))
    bad = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    records = []
    for length in draw(st.lists(st.integers(narx.max_lag + 1, narx.max_lag + 25), min_size=1, max_size=3)):
        signals = {name: 10 ** rng.uniform(-9, 9) * rng.normal(size=length) for name in narx.signals}
        records.append({n: np.where(rng.random(length) < share, bad, s) for n, s in signals.items()})
    return narx, records


@settings(max_examples=150, deadline=None)
@given(cases())
def test_live_equals_batch_bit_for_bit(case):
    narx, records = case
    rows = [narx.regressors(signals) for signals in records]
    window, found = live_rows(narx, records)
    assert len(found) == sum(len(row.target) for row in rows)
    joined = np.concatenate([row.regressor for row in rows])
    targets = np.concatenate([row.target for row in rows])
    assert b"".join(x.tobytes() for x, _, _ in found) == joined.tobytes()
    assert np.array([target for _, target, _ in found]).tobytes() == targets.tobytes()
    expected = [row for signals in records for row in naive_rows(narx, signals)]
    np.testing.assert_array_equal([previous for *_, previous in found], [previous for *_, previous in expected])
    possible = sum(len(signals[narx.target]) - narx.max_lag for signals in records)
    assert window.n_skipped == possible - len(found)
    assert window.n_missing == sum(
        np.count_nonzero(~np.isfinite(list(signals.values())).all(axis=0)) for signals in records
    )


def test_live_equals_the_data_set_of_a_long_record_with_long_lags():
    narx = Narx({"y": [1, 700]}, {"u": 40}, on_missing="skip")
    single = record(3000, seed=3)
    single["u"][1000] = np.nan
    data = narx.dataset(single)
    window, found = live_rows(narx, [{name: v.values for name, v in single.data_vars.items()}])
    np.testing.assert_array_equal([x for x, *_ in found], data.regressor.values)
    np.testing.assert_array_equal([target for _, target, _ in found], data.target.values)
    np.testing.assert_array_equal([previous for *_, previous in found], data.previous.values)
    assert (window.n_missing, window.n_skipped) == (data.attrs["n_missing"], data.attrs["n_skipped"]) == (1, 40)


def test_a_returned_regressor_is_the_callers_own():
    window = LagWindow(Narx({"y": 2}))
    first = [window.observe(np.array([float(k)])) for k in range(3)][-1]
    first.regressor[:] = -1.0
    assert window.observe(np.array([3.0])).regressor.tolist() == [2.0, 1.0]
    assert first.regressor.flags.c_contiguous
    assert first.regressor.dtype == np.float64


def test_direct_feed_through_uses_the_present_input():
    window = LagWindow(Narx({"y": 1}, {"u": [0, 1]}))
    window.push(np.array([20.0]), np.array([1.0]))
    assert window.regressor(np.array([5.0])).tolist() == [20.0, 5.0, 1.0]
    assert window.regressor(np.array([6.0])).tolist() == [20.0, 6.0, 1.0]


def test_free_run_repeats_a_linear_model():
    narx = Narx({"y": 1}, {"u": 1})
    window, y = LagWindow(narx), 1.0
    u = np.sin(np.arange(30.0))[:, None]
    window.push(np.array([y]), u[0])
    for k in range(1, 30):
        x = window.regressor(u[k])
        predicted = narx.predict.to_value(-0.1 * x[0] + 0.5 * x[1], window.previous_target_value)
        y = y + (-0.1 * y + 0.5 * u[k - 1, 0])
        assert predicted == pytest.approx(y, rel=1e-12)
        window.push(np.array([predicted]), u[k])


def test_a_new_record_starts_with_an_empty_window():
    window = LagWindow(Narx({"y": 2}))
    for k in range(5):
        window.observe(np.array([float(k)]))
    window.reset()
    assert window.regressor() is None
    assert window.observe(np.array([7.0])) is None
    assert window.observe(np.array([8.0])) is None
    assert window.observe(np.array([9.0])).regressor.tolist() == [8.0, 7.0]


def test_previous_target_value_is_unknown_at_first():
    assert np.isnan(LagWindow(Narx({"y": 1})).previous_target_value)


def test_live_missing_value_is_an_error_and_leaves_the_window_as_it_was():
    window = LagWindow(Narx({"y": 1}, {"u": 1}))
    window.observe(np.array([1.0]), np.array([2.0]))
    message = "on_missing='error'.: signal 'u' is nan at sample 1 of this record"
    for call in (window.observe, window.push):
        with pytest.raises(ValueError, match=message):
            call(np.array([5.0]), np.array([np.nan]))
    with pytest.raises(ValueError, match=message):
        window.regressor(np.array([np.nan]))
    assert window.n_missing == 0
    assert window.observe(np.array([3.0]), np.array([0.0])).regressor.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("output", "input", "kind", "message"),
    [
        (np.zeros(2), np.zeros(1), ValueError, r"output of shape \(1,\), got \(2,\)"),
        (np.zeros(1), np.zeros((1, 1)), ValueError, r"input of shape \(1,\), got \(1, 1\)"),
        (0.0, np.zeros(1), ValueError, r"output of shape \(1,\), got \(\)"),
        (np.zeros(1, dtype=complex), np.zeros(1), TypeError, "output of real numbers, got dtype complex128"),
        (np.zeros(1), ["a"], TypeError, "input of real numbers"),
    ],
)
def test_live_wrong_vectors_are_named(output, input, kind, message):
    with pytest.raises(kind, match=message):
        LagWindow(Narx({"y": 1}, {"u": 1})).observe(output, input)


def test_live_forgotten_input_is_named():
    with pytest.raises(ValueError, match=r"input of shape \(1,\), got \(0,\)"):
        LagWindow(Narx({"y": 1}, {"u": 1})).observe(np.zeros(1))


def test_live_takes_lists_and_integers():
    window = LagWindow(Narx({"y": 1}, {"u": 1}))
    window.push([1], [2])
    assert window.observe(np.array([3]), [True]).regressor.tolist() == [1.0, 2.0]
