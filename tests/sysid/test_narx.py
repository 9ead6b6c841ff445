"""Regressors from lags, compared with the equation written as loops, and live ones with batches."""

import json
import pickle
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from sysid import LagWindow, Narx, OnMissing, Orders, Target, make_record

STATIC = Narx({"y": []}, {"v": [0], "u": [0]}, predict="value")  # without lagged outputs
LABELS = {
    "y": {"units": "degC", "long_name": "signal y"},
    "v": {"units": "m", "long_name": "signal v"},
    "u": {"units": "kg s-1", "long_name": "signal u"},
}


def record(n=10, *, dt=0.5, start=0.0, seed=0, **replaced):
    """Return a labelled record of random signals; `replaced` gives other values to some of them."""
    rng = np.random.default_rng(seed)
    signals = {
        "y": rng.normal(size=n),
        "v": rng.normal(size=n),
        "u": rng.normal(size=n),
    } | replaced
    variables = {name: ("time", values, LABELS[name]) for name, values in signals.items()}
    time = ("time", start + dt * np.arange(n), {"units": "s"})
    return xr.Dataset(variables, coords={"time": time})


def record_without_labels(**signals):
    """Return a record without labels, sampled every second."""
    n = len(next(iter(signals.values())))
    variables = {name: ("time", values) for name, values in signals.items()}
    return xr.Dataset(variables, coords={"time": np.arange(float(n))})


class ExpectedRow(NamedTuple):
    """One row of a lag data set by the equation."""

    sample: int
    regressor: list
    target: float
    previous: float  # output one sample earlier


def naive_rows(narx, signals):
    """Return the rows of a record by the equation, one number at a time."""
    rows = []
    outputs = signals[narx.target]
    for k in range(narx.max_lag, len(outputs)):
        regressor = [float(signals[name][k - lag]) for name, lag in narx.features]
        output = float(outputs[k])
        previous = float(outputs[k - 1]) if k > 0 else np.nan
        needed = [*regressor, output]
        if narx.lags[narx.target]:
            needed.append(previous)
        if not np.isfinite(needed).all():
            continue
        target = output - previous if narx.predict is Target.change else output
        rows.append(ExpectedRow(k, regressor, target, previous))
    return rows


def columns_of(signals, names):
    """Return these signals side by side, (n, number of names)."""
    n = len(next(iter(signals.values())))
    columns = np.empty((n, len(names)))
    for j, name in enumerate(names):
        columns[:, j] = signals[name]
    return columns


class LiveRow(NamedTuple):
    """One row that a window returned, and the output one sample earlier."""

    regressor: np.ndarray
    target: float
    previous: float


def live_rows(narx, records):
    """Return the window that has observed the records, and its rows.

    A second window takes the same samples by `regressor` and `push`: its regressors must be the
    same.
    """
    window = LagWindow(narx)
    second_window = LagWindow(narx)
    rows = []
    for signals in records:
        window.reset()
        second_window.reset()
        outputs = columns_of(signals, narx.output_names)
        inputs = columns_of(signals, narx.input_names)
        for y_k, u_k in zip(outputs, inputs, strict=True):
            regressor = second_window.regressor(u_k)
            row = window.observe(y_k, u_k)
            if row is not None:
                previous = window.previous_target_value
                assert regressor is not None
                assert regressor.tobytes() == row.regressor.tobytes()
                np.testing.assert_equal(second_window.previous_target_value, previous)
                rows.append(LiveRow(row.regressor, row.target, previous))
            second_window.push(y_k, u_k)
    return window, rows


# --- settings -------------------------------------------------------------------------------------

NARX = Narx(
    outputs={"y": [2, 1], "v": 1},
    inputs={"u": [3, 0], "w": 1},
    predict="value",
    on_missing="skip",
)


def test_settings_from_a_configuration_equal_those_from_code():
    from_code = Narx({"y": 2, "v": 1}, {"u": (0, 3), "w": [1]}, "y", Target.value, OnMissing.skip)
    assert from_code == NARX
    assert hash(from_code) == hash(NARX)


def test_settings_have_defaults():
    expected = Narx({"y": 1}, {}, "y", Target.change, OnMissing.error)
    assert Narx({"y": 1}, None) == expected


def test_features_are_in_the_order_of_the_signals():
    assert NARX.feature_names == (
        "y[k-1]",
        "y[k-2]",
        "v[k-1]",
        "u[k]",
        "u[k-3]",
        "w[k-1]",
    )
    assert NARX.n_features == 6
    assert NARX.max_lag == 3
    assert NARX.target == "y"
    y_first = Narx({"y": 1, "v": 1}, target="y")
    v_first = Narx({"v": 1, "y": 1}, target="y")
    assert y_first != v_first


@pytest.mark.parametrize("narx", [NARX, STATIC], ids=["lags", "table"])
def test_settings_survive_json_and_pickle(narx):
    text = json.dumps(narx.to_dict())
    assert Narx.from_dict(json.loads(text)) == narx
    assert pickle.loads(pickle.dumps(narx)) == narx


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        pytest.param({"outputs": {}}, ValueError, "outputs", id="no outputs"),
        pytest.param(
            {"outputs": {"y": []}, "inputs": {"u": [0]}},
            ValueError,
            "outputs.*predict='value'",
            id="change without lags",
        ),
        pytest.param(
            {"outputs": {"y": []}, "predict": "value"},
            ValueError,
            "no features",
            id="no feature",
        ),
        pytest.param(
            {"outputs": {"y": 1, "v": []}, "predict": "value"},
            ValueError,
            "'v'.*not the target 'y'",
            id="another output without lags",
        ),
        pytest.param(
            {"outputs": {"y": ""}, "inputs": {"u": 1}, "predict": "value"},
            TypeError,
            "outputs",
            id="lags are a text",
        ),
        pytest.param({"outputs": {"y": [0, 1]}}, ValueError, "outputs.* >= 1", id="lag 0"),
        pytest.param({"outputs": {"y": [1, 1]}}, ValueError, "outputs.*duplicate", id="lag twice"),
        pytest.param(
            {"outputs": {"y": 1}, "inputs": {"u": [0, -1]}},
            ValueError,
            "inputs.*'u'.* >= 0",
            id="negative lag",
        ),
        pytest.param(
            {"outputs": {"y": 1}, "inputs": {"y": 1}},
            ValueError,
            r"\['y'\]",
            id="output as input",
        ),
        pytest.param(
            {"outputs": {"y": 1}, "inputs": {"u": 1}, "target": "u"},
            ValueError,
            "target='u'",
            id="target is an input",
        ),
        pytest.param(
            {"outputs": {"y": 1}, "predict": "slope"},
            ValueError,
            "predict='slope'",
            id="unknown target",
        ),
        pytest.param({"outputs": {"y": True}}, TypeError, "outputs", id="lags are a boolean"),
        pytest.param({"outputs": "y"}, TypeError, "outputs", id="outputs are a text"),
    ],
)
def test_wrong_settings_are_named(options, error, message):
    with pytest.raises(error, match=rf"Narx.*{message}"):
        Narx(**options)


# --- the equation ---------------------------------------------------------------------------------


def lag_lists(smallest):
    """Return the strategy for the lags of a signal: a list, or the number of the first lags."""
    lists = st.lists(st.integers(smallest, 6), min_size=1, max_size=3, unique=True)
    return lists | st.integers(1, 4)


@st.composite
def narx_settings(draw):
    """Return any settings with up to two outputs and two inputs."""
    n_outputs = draw(st.integers(1, 2))
    outputs = {f"y{i}": draw(lag_lists(1)) for i in range(n_outputs)}
    n_inputs = draw(st.integers(0, 2))
    inputs = {f"u{i}": draw(lag_lists(0)) for i in range(n_inputs)}
    target = draw(st.sampled_from(sorted(outputs)))
    predict = draw(st.sampled_from(Target))
    has_other_signals = n_inputs > 0 or n_outputs > 1
    may_have_no_lags = predict is Target.value and has_other_signals
    if may_have_no_lags and draw(st.booleans()):
        outputs[target] = []
        for name, lags in inputs.items():
            inputs[name] = draw(st.sampled_from([[0], lags]))
    return Narx(outputs, inputs, target, predict, OnMissing.skip)


@st.composite
def narx_and_records(draw):
    """Return settings and up to three records of all magnitudes, some with missing values."""
    narx = draw(narx_settings())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    missing_fraction = draw(st.sampled_from([0.0, 0.02, 0.2]))
    missing_value = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    length = st.integers(narx.max_lag + 1, narx.max_lag + 25)
    records = []
    for n in draw(st.lists(length, min_size=1, max_size=3)):
        signals = {}
        for name in narx.signals:
            values = 10 ** rng.uniform(-9, 9) * rng.normal(size=n)
            is_missing = rng.random(n) < missing_fraction
            signals[name] = np.where(is_missing, missing_value, values)
        records.append(signals)
    return narx, records


def count_missing_samples(records):
    """Return the number of samples at which a signal is missing."""
    count = 0
    for signals in records:
        is_complete = np.isfinite(list(signals.values())).all(axis=0)
        count += np.count_nonzero(~is_complete)
    return count


def assert_same_arrays(rows_of_records, expected):
    """Assert that the rows of `Narx.regressors` for each record are the expected ones."""
    samples = np.concatenate([rows.sample for rows in rows_of_records])
    regressors = np.concatenate([rows.regressor for rows in rows_of_records])
    targets = np.concatenate([rows.target for rows in rows_of_records])
    expected_regressors = np.array([row.regressor for row in expected])
    expected_targets = np.array([row.target for row in expected])
    assert samples.tolist() == [row.sample for row in expected]
    assert regressors.tobytes() == expected_regressors.tobytes()
    assert targets.tobytes() == expected_targets.tobytes()


def assert_same_live_rows(rows, expected):
    """Assert that the rows of a window are the expected ones."""
    regressors = [row.regressor.tobytes() for row in rows]
    expected_regressors = [np.array(row.regressor).tobytes() for row in expected]
    previous_outputs = [row.previous for row in rows]
    expected_previous_outputs = [row.previous for row in expected]
    assert regressors == expected_regressors
    assert [row.target for row in rows] == [row.target for row in expected]
    np.testing.assert_array_equal(previous_outputs, expected_previous_outputs)


def assert_same_dataset(data, expected, record_numbers):
    """Assert that the rows of a lag data set are the expected ones.

    The records have no labels and are sampled every second, so that times are sample numbers.
    """
    regressors = np.array([row.regressor for row in expected])
    previous_outputs = [row.previous for row in expected]
    assert data.regressor.values.tobytes() == regressors.tobytes()
    np.testing.assert_array_equal(data.previous.values, previous_outputs)
    assert data.time.values.tolist() == [row.sample for row in expected]
    assert data.record.values.tolist() == record_numbers


@settings(max_examples=60, deadline=None)
@given(narx_and_records())
def test_rows_live_and_in_batch_equal_the_equation_bit_for_bit(narx_with_records):
    narx, records = narx_with_records
    expected = []
    record_numbers = []
    for number, signals in enumerate(records):
        rows = naive_rows(narx, signals)
        expected.extend(rows)
        record_numbers.extend([number] * len(rows))
    n_possible = sum(len(signals[narx.target]) - narx.max_lag for signals in records)
    n_skipped = n_possible - len(expected)
    n_missing = count_missing_samples(records)

    assert_same_arrays([narx.regressors(signals) for signals in records], expected)

    window, rows = live_rows(narx, records)
    assert_same_live_rows(rows, expected)
    assert window.n_skipped == n_skipped
    assert window.n_missing == n_missing

    if expected:  # without a row there is no data set
        data = narx.dataset(record_without_labels(**signals) for signals in records)
        assert_same_dataset(data, expected, record_numbers)
        assert data.attrs["n_skipped"] == n_skipped
        assert data.attrs["n_missing"] == n_missing


@pytest.mark.parametrize(
    ("narx", "missing_samples", "n_skipped"),
    [
        pytest.param(Narx({"y": [1, 700]}, {"u": 40}, on_missing="skip"), [1000], 40, id="lags"),
        pytest.param(STATIC, [], 0, id="table"),
    ],
)
def test_live_equals_batch_in_a_record_longer_than_the_buffer(narx, missing_samples, n_skipped):
    single = record(3000, seed=3)
    single["u"][missing_samples] = np.nan
    data = narx.dataset(single)
    signals = {name: values.values for name, values in single.data_vars.items()}
    window, rows = live_rows(narx, [signals])
    for name in ("regressor", "target", "previous"):
        values = [getattr(row, name) for row in rows]
        np.testing.assert_array_equal(values, data[name].values, err_msg=name)
    assert window.n_missing == data.attrs["n_missing"]
    assert window.n_skipped == n_skipped
    assert data.attrs["n_skipped"] == n_skipped


# --- labelled data sets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("u", "error", "message"),
    [
        pytest.param(np.zeros(4), ValueError, "one length", id="two lengths"),
        pytest.param(
            np.zeros(3),
            ValueError,
            "'u' up to 3.* at least 4 samples .*record 7 has 3",
            id="too short",
        ),
        pytest.param(
            np.zeros(3, dtype=complex), TypeError, "'u' of record 7.*real", id="complex numbers"
        ),
    ],
)
def test_wrong_signals_are_named(u, error, message):
    signals = {"y": np.zeros(3), "u": u}
    with pytest.raises(error, match=message):
        Narx({"y": 1}, {"u": 3}).regressors(signals, record=7)


@pytest.mark.parametrize("missing", [np.nan, -np.inf])
def test_the_error_of_a_missing_value_names_its_record_sample_and_time(missing):
    broken = record(10, start=100.0, seed=1)
    broken["u"][6:8] = missing
    broken["y"][9] = missing
    message = (
        rf"'u' of record 1 is {missing} at sample 6 \(time 103 s\), "
        r"the first of 3 samples.*on_missing='skip'"
    )
    with pytest.raises(ValueError, match=message):
        Narx({"y": 2}, {"u": 1}).dataset([record(10), broken])


@pytest.mark.parametrize("missing", [np.nan, -np.inf])
def test_a_record_of_missing_values_leaves_no_row(missing):
    empty = record(10, y=np.full(10, missing))
    with pytest.raises(ValueError, match="leaves no row"):
        Narx({"y": 2}, on_missing="skip").dataset(empty)


def test_labels_explain_the_data():
    narx = Narx({"y": 2}, {"u": [0, 3]})
    data = narx.dataset([record(8), record(9)])
    assert data.feature.values.tolist() == list(narx.feature_names)
    assert data.unit.values.tolist() == ["degC", "degC", "kg s-1", "kg s-1"]
    assert data.signal.values.tolist() == ["y", "y", "u", "u"]
    assert data.lag.values.tolist() == [1, 2, 0, 3]
    assert data.target.attrs == {
        "units": "K",
        "long_name": "change of signal y over one sample",
    }
    assert data.previous.attrs == {
        "units": "degC",
        "long_name": "signal y one sample earlier",
    }
    assert data.attrs["n_records"] == 2
    assert data.attrs["n_missing"] == 0
    assert data.attrs["sampling_time"] == 0.5
    assert Narx.from_dict(json.loads(data.attrs["narx"])) == narx
    outputs = narx.predict.to_value(data.target, data.previous)
    outputs_of_first_record = record(8).y[3:]  # the largest lag is 3
    np.testing.assert_allclose(outputs[:5], outputs_of_first_record, rtol=1e-14)


def test_a_record_without_labels_gets_empty_labels():
    time_of_a_table = ("time", np.arange(5.0), {"units": "1"})
    table = record_without_labels(y=np.arange(5.0)).assign_coords(time=time_of_a_table)
    data = Narx({"y": 1}).dataset(table)
    assert data.time.attrs["units"] == "1"
    assert data.attrs["sampling_time"] == 1.0
    assert data.unit.values.tolist() == [""]
    assert "units" not in data.target.attrs


def record_with_times(times, **attributes):
    """Return a record with these times and with these attributes of its time."""
    return record().assign_coords(time=("time", times, attributes))


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        pytest.param([], ValueError, "at least one record", id="no record"),
        pytest.param(
            record().drop_vars("u"),
            ValueError,
            r"record 0 has no signals \['u'\]",
            id="missing signal",
        ),
        pytest.param(
            record().drop_vars("time"),
            ValueError,
            "record 0 needs a dimension 'time'",
            id="no time",
        ),
        pytest.param(
            record().expand_dims(run=2),
            ValueError,
            "'run', 'time'.*list",
            id="two dimensions",
        ),
        pytest.param(
            [record(), record(dt=0.500001)],
            ValueError,
            "record 0 has '0.5 s', record 1 '0.500001 s'",
            id="two sampling times",
        ),
        pytest.param(
            record(dt=-0.5),
            ValueError,
            "time of record 0 must increase",
            id="time runs backwards",
        ),
        pytest.param(
            record().isel(time=[0, 1, 2, 4, 5]),
            ValueError,
            r"step 2 \(from 1 s\)",
            id="gap of time",
        ),
        pytest.param(
            record_with_times([*range(4), np.nan, *range(5, 10)]),
            ValueError,
            "time of record 0 is not finite at sample 4",
            id="time is nan",
        ),
        pytest.param(
            record_with_times(np.arange(10).astype("datetime64[s]").astype("datetime64[ns]")),
            TypeError,
            "time of record 0",
            id="stamps",
        ),
        pytest.param(
            record_with_times(np.arange(10.0), units="h"),
            ValueError,
            "units 'h'",
            id="hours",
        ),
        pytest.param(
            [record(), record().assign(y=("time", np.zeros(10), {"units": "K"}))],
            ValueError,
            "'degC'.*record 1 'K'",
            id="two units",
        ),
        pytest.param(
            pd.DataFrame({"y": np.zeros(5)}),
            TypeError,
            r"DataFrame: .*make_record\(",
            id="table",
        ),
        pytest.param(None, TypeError, "NoneType", id="None"),
    ],
)
def test_wrong_records_are_named(records, error, message):
    with pytest.raises(error, match=message):
        Narx({"y": 1}, {"u": 3}).dataset(records)


def dataset_at(times):
    """Return the lag data set of a record of zeros at these times."""
    zeros = record_without_labels(y=np.zeros(len(times)))
    return Narx({"y": 1}).dataset(zeros.assign_coords(time=times))


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(900.0 * np.arange(35000), id="a year"),
        pytest.param(1e8 + np.arange(2000) / 750, id="far from zero"),
        pytest.param(np.linspace(0, 5, 52), id="a step that is no decimal number"),
    ],
)
def test_rounding_of_times_is_no_gap(times):
    data = dataset_at(times)
    assert data.attrs["sampling_time"] == pytest.approx(times[1] - times[0], rel=1e-5)


def times_with_delay(delay):
    """Return times in steps of 0.1 s, one of which is late by a delay in seconds."""
    times = 0.1 * np.arange(100)
    times[50] += delay
    return times


def test_more_than_rounding_of_times_is_a_gap():
    dataset_at(times_with_delay(0.5e-7))
    with pytest.raises(ValueError, match="equal steps: step"):
        dataset_at(times_with_delay(2e-7))


# --- the live window ------------------------------------------------------------------------------


def test_a_regressor_uses_the_present_input_and_belongs_to_the_caller():
    window = LagWindow(Narx({"y": 1}, {"u": [0, 1]}))
    assert np.isnan(window.previous_target_value)
    window.push([20], [True])
    regressor = window.regressor(np.array([5.0]))
    regressor[:] = -1.0
    assert window.regressor([6]).tolist() == [20.0, 6.0, 1.0]


@pytest.mark.parametrize(
    ("output", "input", "error", "message"),
    [
        pytest.param(
            [0.0, 0.0],
            [0.0],
            ValueError,
            r"output of shape \(1,\), got \(2,\)",
            id="two outputs",
        ),
        pytest.param(
            [0.0],
            [],
            ValueError,
            r"input of shape \(1,\), got \(0,\)",
            id="no input",
        ),
        pytest.param([0j], [0.0], TypeError, "output: expected real numbers", id="complex output"),
        pytest.param([0.0], ["a"], TypeError, "input: expected real numbers", id="input is a text"),
        pytest.param(
            [0.0],
            [np.nan],
            ValueError,
            "on_missing='error'.: signal 'u' is nan at sample 1 of this record",
            id="missing input",
        ),
    ],
)
@pytest.mark.parametrize("method", ["observe", "push"])
def test_wrong_samples_are_named_and_leave_the_window_as_it_was(
    method, output, input, error, message
):
    window = LagWindow(Narx({"y": 1}, {"u": 1}))
    window.observe([1.0], [2.0])
    with pytest.raises(error, match=message):
        getattr(window, method)(np.array(output), np.array(input))
    assert window.n_missing == 0
    assert window.observe([3.0], [0.0]).regressor.tolist() == [1.0, 2.0]


def test_a_missing_input_of_a_regressor_is_named_and_leaves_the_window_as_it_was():
    window = LagWindow(Narx({"y": 1}, {"u": 1}))
    window.observe([1.0], [2.0])
    with pytest.raises(ValueError, match="'u' is nan at sample 1"):
        window.regressor([np.nan])
    assert window.n_missing == 0
    assert window.observe([3.0], [0.0]).regressor.tolist() == [1.0, 2.0]


# --- lags as numbers na, nb, nk -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orders", "outputs", "inputs", "features"),
    [
        ({"na": 2, "nb": 3, "nk": 1}, "y", "u", "y[k-1] y[k-2] u[k-1] u[k-2] u[k-3]"),
        ({"na": 1, "nb": 2, "nk": 0}, "y", "u", "y[k-1] u[k] u[k-1]"),
        ({"na": 2, "nb": 0}, "y", "u", "y[k-1] y[k-2]"),
        (
            {"na": [2, 1], "nb": [1, 2], "nk": [0, 3]},
            "yz",
            "uv",
            "y[k-1] y[k-2] z[k-1] u[k] v[k-3] v[k-4]",
        ),
        (
            {"na": 1, "nb": 2, "nk": 1},
            "yz",
            "uv",
            "y[k-1] z[k-1] u[k-1] u[k-2] v[k-1] v[k-2]",
        ),
        ({"na": [1, 0], "nb": 1}, "yz", "u", "y[k-1] u[k-1]"),
    ],
)
def test_orders_are_those_of_matlab(orders, outputs, inputs, features):
    """y[k] = f(y[k-1], ..., y[k-na], u[k-nk], ..., u[k-nk-nb+1]).

    A list has one order for each signal. The signals have names of one letter.
    """
    narx = Orders(**orders).narx(outputs, inputs)
    assert narx.feature_names == tuple(features.split())


def test_orders_carry_the_other_settings():
    orders = Orders(na=0, nb=2, nk=0, predict="value", on_missing="skip")
    expected = Narx({"y": []}, {"u": [0, 1]}, "y", Target.value, OnMissing.skip)
    assert orders.narx(["y"], ["u"]) == expected
    assert Orders(target="z").narx(["y", "z"], []).target == "z"


@pytest.mark.parametrize("name", ["na", "nb", "nk"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2", [1, -1], None], ids=repr)
def test_wrong_orders_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        Orders(**{name: value})


@pytest.mark.parametrize("name", ["na", "nb", "nk"])
def test_too_many_orders_are_named(name):
    with pytest.raises(ValueError, match=f"one number {name}"):
        Orders(**{name: [1, 1]}).narx(["y"], ["u"])


@pytest.mark.parametrize("unit", [1e80, 1e300])
def test_a_signal_whose_powers_would_overflow_is_refused(unit):
    signals = {"y": unit * np.arange(9.0), "u": np.zeros(9)}
    record = make_record(signals, name="r", sampling_time=1.0)
    message = r"'y' of record 0 has a value of magnitude 8e\+\d+, expected less than 1e\+70"
    with pytest.raises(ValueError, match=message):
        Narx({"y": 1}, {"u": 1}).dataset(record)


@pytest.mark.parametrize("unit", [1e-300, 1e-80])
def test_a_signal_whose_powers_would_underflow_is_refused(unit):
    signals = {"y": unit * np.arange(9.0), "u": np.zeros(9)}
    record = make_record(signals, name="r", sampling_time=1.0)
    with pytest.raises(ValueError, match=r"'y' of record 0 has no value above .*smaller unit"):
        Narx({"y": 1}, {"u": 1}).dataset(record)
