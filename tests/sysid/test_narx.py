"""Lags to regressors: against the equation written as loops, live against batch; lags from orders
and from dynamics.
"""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from sysid import LagWindow, Narx, OnMissing, Orders, Target, lags_from_dynamics

STATIC = Narx({"y": []}, {"v": [0], "u": [0]}, predict="value")


def record(n=10, *, dt=0.5, start=0.0, seed=0, **changed):
    rng = np.random.default_rng(seed)
    signals = {
        "y": rng.normal(size=n),
        "v": rng.normal(size=n),
        "u": rng.normal(size=n),
    } | changed
    units = {"y": "degC", "v": "m", "u": "kg s-1"}
    variables = {
        name: ("time", values, {"units": units[name], "long_name": f"signal {name}"})
        for name, values in signals.items()
    }
    return xr.Dataset(
        variables, coords={"time": ("time", start + dt * np.arange(n), {"units": "s"})}
    )


def bare(**signals):
    """Record without any labels."""
    n = len(next(iter(signals.values())))
    return xr.Dataset(
        {name: ("time", values) for name, values in signals.items()},
        coords={"time": np.arange(float(n))},
    )


def naive_rows(narx, signals):
    """The definition, one number at a time."""
    n = len(signals[narx.target])
    for k in range(narx.max_lag, n):
        x = [float(signals[name][k - lag]) for name, lag in narx.features]
        y = float(signals[narx.target][k])
        previous = float(signals[narx.target][k - 1]) if k else np.nan
        needed = [*x, y] + ([previous] if narx.lags[narx.target] else [])
        if np.isfinite(needed).all():
            yield k, x, (y - previous if narx.predict is Target.change else y), previous


def live_rows(narx, records):
    """Regressors, targets, previous outputs by `observe`; and the same from `regressor` and
    `push`.
    """
    window = LagWindow(narx)
    twin = LagWindow(narx)
    found = []
    for signals in records:
        window.reset()
        twin.reset()
        y = np.column_stack([signals[name] for name in narx.output_names])
        u = (
            np.column_stack([signals[name] for name in narx.input_names])
            if narx.inputs
            else np.empty((len(y), 0))
        )
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


# --- settings -------------------------------------------------------------------------------------


def test_settings_from_a_config_equal_those_from_code_and_survive_json_and_pickle():
    narx = Narx(
        outputs={"y": [2, 1], "v": 1},
        inputs={"u": [3, 0], "w": 1},
        predict="value",
        on_missing="skip",
    )
    same = Narx({"y": 2, "v": 1}, {"u": (0, 3), "w": [1]}, "y", Target.value, OnMissing.skip)
    assert (narx, hash(narx)) == (same, hash(same))
    assert narx.feature_names == (
        "y[k-1]",
        "y[k-2]",
        "v[k-1]",
        "u[k]",
        "u[k-3]",
        "w[k-1]",
    )
    assert (narx.n_features, narx.max_lag, narx.target) == (6, 3, "y")
    assert Narx({"y": 1, "v": 1}) != Narx({"v": 1, "y": 1}, target="y")
    assert Narx({"y": 1}, None) == Narx({"y": 1}, {}, "y", Target.change, OnMissing.error)
    for one in (narx, STATIC):
        assert Narx.from_dict(json.loads(json.dumps(one.to_dict()))) == one
        assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"outputs": {}}, ValueError, "outputs"),
        (
            {"outputs": {"y": []}, "inputs": {"u": [0]}},
            ValueError,
            "outputs.*predict='value'",
        ),
        ({"outputs": {"y": []}, "predict": "value"}, ValueError, "no features"),
        (
            {"outputs": {"y": 1, "v": []}, "predict": "value"},
            ValueError,
            "'v'.*not the target 'y'",
        ),
        (
            {"outputs": {"y": ""}, "inputs": {"u": 1}, "predict": "value"},
            TypeError,
            "outputs",
        ),
        ({"outputs": {"y": [0, 1]}}, ValueError, "outputs.* >= 1"),
        ({"outputs": {"y": [1, 1]}}, ValueError, "outputs.*duplicate"),
        (
            {"outputs": {"y": 1}, "inputs": {"u": [0, -1]}},
            ValueError,
            "inputs.*'u'.* >= 0",
        ),
        ({"outputs": {"y": 1}, "inputs": {"y": 1}}, ValueError, r"\['y'\]"),
        (
            {"outputs": {"y": 1}, "inputs": {"u": 1}, "target": "u"},
            ValueError,
            "target='u'",
        ),
        ({"outputs": {"y": 1}, "predict": "slope"}, ValueError, "predict='slope'"),
        ({"outputs": {"y": True}}, TypeError, "outputs"),
        ({"outputs": "y"}, TypeError, "outputs"),
    ],
)
def test_wrong_settings_are_named(options, kind, message):
    with pytest.raises(kind, match=rf"Narx.*{message}"):
        Narx(**options)


# --- the equation ---------------------------------------------------------------------------------


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
        inputs = inputs and {
            name: draw(st.sampled_from([[0], lags])) for name, lags in inputs.items()
        }
    narx = Narx(outputs, inputs, target, predict, OnMissing.skip)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = draw(st.sampled_from([0.0, 0.02, 0.2]))
    bad = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    records = []
    for length in draw(
        st.lists(st.integers(narx.max_lag + 1, narx.max_lag + 25), min_size=1, max_size=3)
    ):
        signals = {
            name: 10 ** rng.uniform(-9, 9) * rng.normal(size=length) for name in narx.signals
        }
        records.append(
            {n: np.where(rng.random(length) < share, bad, s) for n, s in signals.items()}
        )
    return narx, records


@settings(max_examples=60, deadline=None)
@given(cases())
def test_rows_are_the_equation_live_and_in_batch_bit_for_bit(case):
    narx, records = case
    rows = [narx.regressors(signals) for signals in records]
    expected = [row for signals in records for row in naive_rows(narx, signals)]
    samples, regressors, targets, previous = (
        zip(*expected, strict=True) if expected else ((), (), (), ())
    )
    batch = np.concatenate([row.regressor for row in rows])
    assert np.concatenate([row.sample for row in rows]).tolist() == list(samples)
    assert batch.tobytes() == np.array(regressors).tobytes()
    assert np.concatenate([row.target for row in rows]).tobytes() == np.array(targets).tobytes()
    window, found = live_rows(narx, records)
    assert b"".join(x.tobytes() for x, _, _ in found) == batch.tobytes()
    assert [target for _, target, _ in found] == list(targets)
    np.testing.assert_array_equal([before for *_, before in found], previous)
    possible = sum(len(signals[narx.target]) - narx.max_lag for signals in records)
    missing = sum(
        np.count_nonzero(~np.isfinite(list(signals.values())).all(axis=0)) for signals in records
    )
    assert (window.n_skipped, window.n_missing) == (possible - len(expected), missing)
    if expected:
        data = narx.dataset(bare(**signals) for signals in records)
        assert data.regressor.values.tobytes() == batch.tobytes()
        np.testing.assert_array_equal(data.previous.values, previous)
        assert data.time.values.tolist() == list(samples)
        assert (
            data.record.values.tolist()
            == np.repeat(range(len(rows)), [len(row.sample) for row in rows]).tolist()
        )
        assert (data.attrs["n_skipped"], data.attrs["n_missing"]) == (
            window.n_skipped,
            missing,
        )


@pytest.mark.parametrize(
    "narx",
    [Narx({"y": [1, 700]}, {"u": 40}, on_missing="skip"), STATIC],
    ids=["lags", "table"],
)
def test_live_equals_batch_where_the_window_is_moved_several_times(narx):
    single = record(3000, seed=3)
    if narx is not STATIC:
        single["u"][1000] = np.nan
    data = narx.dataset(single)
    window, found = live_rows(narx, [{name: v.values for name, v in single.data_vars.items()}])
    for i, name in enumerate(("regressor", "target", "previous")):
        np.testing.assert_array_equal([row[i] for row in found], data[name].values)
    assert (window.n_missing, window.n_skipped) == (
        data.attrs["n_missing"],
        data.attrs["n_skipped"],
    )
    assert window.n_skipped == (0 if narx is STATIC else 40)


# --- labelled data sets ---------------------------------------------------------------------------


def test_wrong_signals_are_named():
    for u, kind, message in (
        (np.zeros(4), ValueError, "one length"),
        (np.zeros(3), ValueError, "'u' up to 3.* at least 4 samples .*record 7 has 3"),
        (np.zeros(3, dtype=complex), TypeError, "'u' of record 7.*real"),
    ):
        with pytest.raises(kind, match=message):
            Narx({"y": 1}, {"u": 3}).regressors({"y": np.zeros(3), "u": u}, record=7)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_missing_value_is_an_error_with_its_place(bad):
    broken = record(10, start=100.0, seed=1)
    broken["u"][6:8] = bad
    broken["y"][9] = bad
    message = rf"'u' of record 1 is {bad} at sample 6 \(time 103 s\), the first of 3 samples.*on_missing='skip'"
    with pytest.raises(ValueError, match=message):
        Narx({"y": 2}, {"u": 1}).dataset([record(10), broken])
    with pytest.raises(ValueError, match="leaves no row"):
        Narx({"y": 2}, on_missing="skip").dataset(record(10, y=np.full(10, bad)))


def test_labels_explain_the_data():
    narx = Narx({"y": 2}, {"u": [0, 3]})
    data = narx.dataset([record(8), record(9)])
    assert data.feature.values.tolist() == list(narx.feature_names)
    assert data.unit.values.tolist() == ["degC", "degC", "kg s-1", "kg s-1"]
    assert list(zip(data.signal.values, data.lag.values, strict=True)) == [
        ("y", 1),
        ("y", 2),
        ("u", 0),
        ("u", 3),
    ]
    assert data.target.attrs == {
        "units": "K",
        "long_name": "change of signal y over one sample",
    }
    assert data.previous.attrs == {
        "units": "degC",
        "long_name": "signal y one sample earlier",
    }
    assert (
        data.attrs["n_records"],
        data.attrs["n_missing"],
        data.attrs["sampling_time"],
    ) == (2, 0, 0.5)
    assert Narx.from_dict(json.loads(data.attrs["narx"])) == narx
    np.testing.assert_allclose(
        narx.predict.to_value(data.target, data.previous)[:5],
        record(8).y[3:],
        rtol=1e-14,
    )
    times = ("time", np.arange(5.0), {"units": "1"})  # as in a table
    without = Narx({"y": 1}).dataset(bare(y=np.arange(5.0)).assign_coords(time=times))
    assert (without.time.attrs["units"], without.attrs["sampling_time"]) == ("1", 1.0)
    assert (without.unit.values.tolist(), "units" in without.target.attrs) == (
        [""],
        False,
    )


def timed(times):
    return record().assign_coords(time=("time", times))


@pytest.mark.parametrize(
    ("records", "kind", "message"),
    [
        ([], ValueError, "at least one record"),
        (record().drop_vars("u"), ValueError, r"record 0 has no signals \['u'\]"),
        (record().drop_vars("time"), ValueError, "record 0 needs a dimension 'time'"),
        (record().expand_dims(run=2), ValueError, "'run', 'time'.*list"),
        (
            [record(), record(dt=0.500001)],
            ValueError,
            "record 0 has '0.5 s', record 1 '0.500001 s'",
        ),
        (record(dt=-0.5), ValueError, "time of record 0 must increase"),
        (record().isel(time=[0, 1, 2, 4, 5]), ValueError, r"step 2 \(from 1 s\)"),
        (
            timed([*range(4), np.nan, *range(5, 10)]),
            ValueError,
            "time of record 0 is not finite at sample 4",
        ),
        (
            timed(np.arange(10).astype("datetime64[s]").astype("datetime64[ns]")),
            TypeError,
            "time of record 0",
        ),
        (
            record().assign_coords(time=("time", np.arange(10.0), {"units": "h"})),
            ValueError,
            "units 'h'",
        ),
        (
            [record(), record().assign(y=("time", np.zeros(10), {"units": "K"}))],
            ValueError,
            "'degC'.*record 1 'K'",
        ),
        (pd.DataFrame({"y": np.zeros(5)}), TypeError, r"DataFrame: .*make_record\("),
        (None, TypeError, "NoneType"),
    ],
)
def test_wrong_records_are_named(records, kind, message):
    with pytest.raises(kind, match=message):
        Narx({"y": 1}, {"u": 3}).dataset(records)


def test_rounding_of_times_is_no_gap_and_more_is_one():
    for times in (
        900.0 * np.arange(35000),
        1e8 + np.arange(2000) / 750,
        np.linspace(0, 5, 52),
    ):
        data = Narx({"y": 1}).dataset(bare(y=np.zeros(len(times))).assign_coords(time=times))
        assert data.attrs["sampling_time"] == pytest.approx(times[1] - times[0], rel=1e-5)
    times = 0.1 * np.arange(100)
    late = {shift: np.where(np.arange(100) == 50, times + shift, times) for shift in (0.5e-7, 2e-7)}
    Narx({"y": 1}).dataset(bare(y=np.zeros(100)).assign_coords(time=late[0.5e-7]))
    with pytest.raises(ValueError, match="equal steps: step"):
        Narx({"y": 1}).dataset(bare(y=np.zeros(100)).assign_coords(time=late[2e-7]))


# --- the live window ------------------------------------------------------------------------------


def test_a_regressor_uses_the_present_input_and_is_the_callers_own():
    window = LagWindow(Narx({"y": 1}, {"u": [0, 1]}))
    assert np.isnan(window.previous_target_value)
    window.push([20], [True])
    window.regressor(np.array([5.0]))[:] = -1.0
    assert window.regressor([6]).tolist() == [20.0, 6.0, 1.0]


@pytest.mark.parametrize(
    ("output", "input", "kind", "message"),
    [
        ([0.0, 0.0], [0.0], ValueError, r"output of shape \(1,\), got \(2,\)"),
        ([0.0], [], ValueError, r"input of shape \(1,\), got \(0,\)"),
        ([0j], [0.0], TypeError, "output of real numbers"),
        ([0.0], ["a"], TypeError, "input of real numbers"),
        (
            [0.0],
            [np.nan],
            ValueError,
            "on_missing='error'.: signal 'u' is nan at sample 1 of this record",
        ),
    ],
)
def test_wrong_samples_are_named_and_leave_the_window_as_it_was(output, input, kind, message):
    window = LagWindow(Narx({"y": 1}, {"u": 1}))
    window.observe([1.0], [2.0])
    for call in (window.observe, window.push):
        with pytest.raises(kind, match=message):
            call(np.array(output), np.array(input))
    with pytest.raises(ValueError, match="'u' is nan at sample 1"):
        window.regressor([np.nan])
    assert (window.n_missing, window.observe([3.0], [0.0]).regressor.tolist()) == (
        0,
        [1.0, 2.0],
    )


# --- lags as numbers na, nb, nk -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orders", "outputs", "inputs", "names"),
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
def test_orders_are_those_of_matlab(orders, outputs, inputs, names):
    """y[k] = f(y[k-1], ..., y[k-na], u[k-nk], ..., u[k-nk-nb+1]); a list has one order for each
    signal.
    """
    assert Orders(**orders).narx(outputs, inputs).feature_names == tuple(names.split())
    narx = Orders(na=0, nb=2, nk=0, predict="value", on_missing="skip").narx(["y"], ["u"])
    assert narx == Narx({"y": []}, {"u": [0, 1]}, "y", Target.value, OnMissing.skip)
    assert Orders(target="z").narx(["y", "z"], []).target == "z"


@pytest.mark.parametrize("name", ["na", "nb", "nk"])
def test_wrong_orders_are_named(name):
    for value in (-1, 1.5, True, "2", [1, -1], None):
        with pytest.raises(ValueError, match=name):
            Orders(**{name: value})
    with pytest.raises(ValueError, match=f"one number {name}"):
        Orders(**{name: [1, 1]}).narx(["y"], ["u"])


# --- lags from dynamics ---------------------------------------------------------------------------


def bouc_wen(x, u):
    y, v, z = x
    return [
        v,
        (u[0] - 5e4 * y - 10 * v - z) / 2,
        5e4 * v - 1e3 * (0.8 * abs(v) * z - 1.1 * v * abs(z)),
    ]


def tanks(x, u):
    return [
        -0.15 * np.sqrt(x[0]) + 0.07 * u[0],
        0.15 * np.sqrt(x[0]) - 0.1 * np.sqrt(x[1]),
    ]


def van_der_pol(x, u):
    return [x[1], 2 * (1 - x[0] ** 2) * x[1] - x[0]]


def building(x, u):
    zone = ((x[1] - x[0]) / 0.002 + (x[2] - x[0]) / 0.002) / 2e6
    wall = ((x[0] - x[1]) / 0.002 + (u[0] - x[1]) / 0.005) / 4e7
    return [zone, wall, ((x[0] - x[2]) / 0.002 + 4180 * u[1] * (60 - x[2])) / 2e5]


def first(x):
    return x[:1]


def last(x):
    return x[1:]


NAMES = {
    bouc_wen: (1 / 750, ["position", "velocity", "restoring_force"], ["force"]),
    tanks: (4.0, ["upper", "lower"], ["pump"]),
    van_der_pol: (0.1, ["position", "velocity"], []),
    building: (900.0, ["zone", "wall", "radiator"], ["ambient", "flow"]),
}
REST = [0.0, 0.0, 0.0]
MOVING = [1e-3, 0.1, 20.0]
BACK = [1e-3, -0.1, 20.0]


def read(system, states, inputs, output=first, **options):
    dt, state_names, input_names = NAMES[system]
    names = {"state_names": state_names, "input_names": input_names, "output_name": "y"}
    return lags_from_dynamics(system, output, states, inputs, dt, **names, **options)


@pytest.mark.parametrize(
    ("system", "output", "state", "input", "lags", "reason"),
    [
        (bouc_wen, first, MOVING, [3.0], (3, 3), None),
        (bouc_wen, first, [1e-5, 1e-4, 0.1], [3.0], (3, 3), None),
        (
            bouc_wen,
            first,
            REST,
            [0.0],
            (2, 2),
            "no input moves position - 2e-05 restoring_force",
        ),  # z' = 5e4 y'
        (tanks, last, [5.0, 4.0], [3.0], (2, 2), None),
        (
            tanks,
            first,
            [5.0, 4.0],
            [3.0],
            (1, 1),
            "the output never shows a change along lower",
        ),
        (van_der_pol, first, [-2.0, 0.1], [], (2,), None),
        (building, first, [20, 15, 30], [5, 0.03], (3, 3, 3), None),
        (
            building,
            first,
            [20, 15, 60],
            [5, 0.03],
            (3, 3, 0),
            "flow does not reach the output",
        ),  # water is as warm
    ],
)
def test_benchmark_systems_need_these_lags_and_the_report_says_why(
    system, output, state, input, lags, reason
):
    report = read(system, [state], [input], output)
    (point,) = report.points
    assert point.lags == (report.n_y, *report.n_u.values()) == lags
    assert point.reasons == ((reason,) if reason else ())
    assert point.kept > 1e-5
    assert point.dropped < 1e-12
    if reason:
        assert f"because {reason}" in str(report)
    used = {name: n for name, n in zip(NAMES[system][2], lags[1:], strict=True) if n}
    assert report.narx(predict=Target.value) == Narx({"y": lags[0]}, used, predict="value")


def test_the_largest_numbers_over_the_points_count_and_jacobian_and_tolerance_are_used():
    """A wrong Jacobian that hides the hysteresis gives the order of the linear oscillator."""
    report = read(bouc_wen, [REST, MOVING, BACK], [[0.0], [1.0], [2.0]])
    assert (report.n_y, report.n_u) == (3, {"force": 3})
    assert [point.lags for point in report.points] == [(2, 2), (3, 3), (3, 3)]
    assert "force 1 and 1 more" in str(report)
    wrong = [[0, 1, 0], [-25e3, -5, 0], [0, 0, 0]], [[0], [0.5], [0]]
    assert read(bouc_wen, [MOVING], [[1.0]], jacobian=lambda x, u: wrong).n_y == 2
    assert read(bouc_wen, [MOVING], [[1.0]], jacobian=lambda x, u: None).n_y == 3
    assert read(bouc_wen, [[1e-5, 1e-4, 0.1]], [[1.0]], tolerance=1e-3).n_y == 2


def read_simple(drift, output, states, inputs, dt):
    names = {
        "state_names": "ab"[: len(states[0])],
        "input_names": "uv"[: len(inputs[0])],
        "output_name": "y",
    }
    return lags_from_dynamics(drift, output, states, inputs, dt, **names)


def test_what_dies_within_a_sample_or_is_hidden_has_no_lags():
    """x' = -20 x + u sampled every second: y[k] = 2e-9 y[k-1] + 0.05 u[k-1]; one of two modes is
    hidden.
    """
    (point,) = read_simple(lambda x, u: u - 20 * x, first, [[1.0]], [[1.0]], 1.0).points
    assert (point.lags, point.reasons) == (
        (0, 1),
        ("1 of 1 modes die out within one sample",),
    )
    T = np.array([[0.6, 0.8], [-0.8, 0.6]])
    A = T @ np.diag([-1.0, -2.0]) @ T.T
    (point,) = read_simple(
        lambda x, u: A @ x + T @ u,
        lambda x: [T[:, 0] @ x],
        [[1.0, 2.0]],
        [[1.0, 1.0]],
        0.3,
    ).points
    assert point.lags == (1, 1, 0)  # what is left of the other input is rounding


def test_steps_at_rest_follow_the_magnitudes_of_the_other_points():
    seen = []
    read_simple(
        lambda x, u: seen.append(np.abs([*x, *u])) or u - x,
        first,
        [[0.0], [1e-3]],
        [[0.0], [1e-5]],
        1.0,
    )
    np.testing.assert_allclose(np.max(seen[: len(seen) // 2], axis=0), [6e-9, 6e-11], rtol=0.02)


@pytest.mark.parametrize(
    ("system", "states", "inputs", "output", "message"),
    [
        (bouc_wen, [REST, MOVING], [[0.0]], first, "one row per point, got 2 and 1"),
        (bouc_wen, [[0.0, 1.0]], [[0.0]], first, r"states: expected shape \(n, 3\)"),
        (
            tanks,
            [[5.0, 4.0]],
            [[3.0]],
            lambda x: x,
            "output must return one value, got 2",
        ),
        (tanks, [[0.0, 4.0]], [[3.0]], last, "inside the range where it is defined"),
    ],
)
def test_wrong_points_are_named(system, states, inputs, output, message):
    with pytest.raises(ValueError, match=message):
        read(system, states, inputs, output)
