"""Records and where they come from: a user's files, stored files, published sets, downloads,
another package.
"""

import hashlib
import http.server
import json
import os
import re
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import nonlinear_benchmarks
import numpy as np
import pooch
import pytest
import xarray as xr
from nonlinear_benchmarks import Input_output_data
from scipy.io import savemat

from sysid import (
    BostonData,
    BoucWenData,
    CascadedTanksData,
    ConcreteData,
    CsvFiles,
    DataError,
    NonlinearBenchmark,
    Recordings,
    SilverboxData,
    StoredRecordings,
    from_nonlinear_benchmarks,
    make_record,
    store,
    to_nonlinear_benchmarks,
)
from sysid.data import published
from sysid.data.published import Column, Form, PublishedTable, cache_folder, fetch
from sysid.data.source import RECORD_ROLES, part

TABLES = [
    member for member in vars(published).values() if isinstance(member, published.PublishedTable)
]
PUBLISHED = [CascadedTanksData, BoucWenData, SilverboxData, BostonData, ConcreteData]
UNITS = {"u": "V", "y": "m"}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The folder of the cache, empty; no local copies, a home of its own, and no network but this
    computer.
    """
    monkeypatch.delenv("SYSID_DATA", raising=False)
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv(
            name, "127.0.0.1" if name == "no_proxy" else "http://127.0.0.1:9"
        )  # nobody listens there
    return tmp_path / "cache"


def files_in(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def assert_same(left, right):
    assert (left.name, left.inputs, left.outputs) == (
        right.name,
        right.inputs,
        right.outputs,
    )
    for role in RECORD_ROLES:
        for a, b in zip(getattr(left, role), getattr(right, role), strict=True):
            xr.testing.assert_identical(a, b)


def sizes(recordings):
    return [[record.sizes["time"] for record in getattr(recordings, role)] for role in RECORD_ROLES]


# --- recordings -----------------------------------------------------------------------------------


def record(n=30, *, seed=0, window=5, dt=0.5, name="step"):
    signals = dict(zip("uy", np.random.default_rng(seed).normal(size=(2, n)), strict=True))
    texts = {
        "units": UNITS,
        "long_names": {"u": "voltage", "y": "height"},
        "attributes": {"licence": "CC0"},
    }
    return make_record(signals, name=name, sampling_time=dt, initialisation_window=window, **texts)


def recordings(**roles):
    return Recordings("rig", ("u",), ("y",), **roles)


def many():
    members = [record(20 + i, seed=i, name=f"run {i}", window=i) for i in range(12)]
    return recordings(
        estimation=members,
        validation=[record(7)],
        test=[record(8), part(record(40), 3)],
    )


def test_a_record_has_the_schema_and_is_a_copy():
    values = np.arange(4.0)
    names = {
        "units": {"y": "V"},
        "long_names": {"y": "voltage"},
        "attributes": {"licence": "CC0"},
    }
    made = make_record(
        {"y": values}, name="step", sampling_time=0.25, initialisation_window=2, **names
    )
    values[0] = 7.0
    assert made.y.values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert made.time.values.tolist() == [0.0, 0.25, 0.5, 0.75]
    assert made.time.attrs["units"] == "s"
    assert made.y.attrs == {"units": "V", "long_name": "voltage"}
    assert made.attrs == {
        "licence": "CC0",
        "name": "step",
        "sampling_time": 0.25,
        "initialisation_window": 2,
    }
    rig = recordings(estimation=[record()], test=[record(9)])
    assert (rig.sampling_time, rig.units, rig.is_static, sizes(rig)) == (
        0.5,
        UNITS,
        False,
        [[30], [], [9]],
    )


def test_part_keeps_time_and_what_is_left_of_the_window():
    whole = record()
    for bounds, window in (
        ((0,), 5),
        ((2, 20), 3),
        ((11, 12), 0),
        ((-4,), 0),
        ((0, -25), 5),
    ):
        expected = whole.isel(time=slice(*bounds) if len(bounds) > 1 else slice(bounds[0], None))
        xr.testing.assert_identical(
            part(whole, *bounds), expected.assign_attrs(initialisation_window=window)
        )
    assert whole.attrs["initialisation_window"] == 5
    named = part(record(), 10, initialisation_window=3, name="tail")
    assert (named.attrs["initialisation_window"], named.attrs["name"]) == (3, "tail")
    xr.testing.assert_identical(part(part(record(), 2, 20), 1, 10), part(record(), 3, 12))


def test_hold_out_cuts_the_end_of_every_record():
    rig = recordings(estimation=[record(30), record(20, seed=1)])
    held = rig.hold_out(0.25, initialisation_window=2)
    assert sizes(held) == [[22, 15], [8, 5], []]
    assert [r.attrs["initialisation_window"] for r in held.validation] == [2, 2]
    np.testing.assert_array_equal(held.validation[1].y, rig.estimation[1].y[15:])
    for fraction in (0.0, 1.0):
        with pytest.raises(ValueError, match="fraction"):
            rig.hold_out(fraction)
    with pytest.raises(ValueError, match="validation"):
        held.hold_out(0.5)


def test_groups_and_files_lead_back_in_any_order(tmp_path):
    groups = many().to_groups()
    assert list(groups)[::11] == ["estimation/record_0", "estimation/record_11"]
    assert list(groups)[12:] == ["validation", "test/record_0", "test/record_1"]
    shuffled = dict(sorted(groups.items()))  # record_10 before record_2
    path = store.write_groups(shuffled, tmp_path / "benchmark.nc", kind="benchmark")
    found = StoredRecordings(path=str(path)).load()
    assert_same(found, many())
    assert type(found.estimation[1].attrs["initialisation_window"]) is int
    assert type(found.estimation[1].attrs["sampling_time"]) is float


def changed(signal, **changes):
    made = record(dt=1.0)
    made[signal].attrs.update(changes)
    return made


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"test": [record().assign_coords(time=np.arange(30) ** 2)]},
            "time of record 0",
        ),
        (
            {"estimation": [record(), record().where(record().time != 3.5)]},
            "of record 1 is nan at sample 7",
        ),
        ({"estimation": [record()], "test": [record(dt=0.4)]}, "one sampling time"),
        (
            {"estimation": [record(dt=1.0)], "test": [changed("u", units="mV")]},
            "'u', record 0 has 'V', record 1 'mV'",
        ),
        (
            {"estimation": [changed("time", units="1"), record(dt=1.0)]},
            "one unit of time",
        ),
        ({"estimation": [record().drop_attrs(deep=False)]}, "'initialisation_window'"),
        (
            {"estimation": [record().assign_attrs(sampling_time=0.6)]},
            "sampling_time 0.6",
        ),
        ({"estimation": [record(window=30)]}, "initialisation_window 30"),
        ({"estimation": [record(window=2.0)]}, r"initialisation_window 2\.0"),
    ],
)
def test_wrong_records_are_named(wrong, message):
    with pytest.raises(ValueError, match=rf"Recordings\('rig'\).*{message}"):
        recordings(**wrong)


def test_what_is_no_record_no_part_or_no_signal_is_refused():
    for key in ("truth", "estimation/record_x", "estimation/record_0/more"):
        with pytest.raises(ValueError, match="groups named"):
            Recordings.from_groups({key: record()})
    two = [replace(recordings(test=[record()]), name=name).to_groups() for name in ("rig", "other")]
    with pytest.raises(ValueError, match="groups with equal attributes"):
        Recordings.from_groups(two[0] | {"validation": two[1]["test"]})
    with pytest.raises(TypeError, match=r"must be an xarray\.Dataset"):
        recordings(estimation=record())
    for inputs, outputs in ((("u",), ()), (("y",), ("y",))):
        with pytest.raises(ValueError, match="at least one output and every signal once"):
            Recordings("rig", inputs, outputs, estimation=(record(),))
    for start, stop in ((30, None), (8, 3)):
        with pytest.raises(ValueError, match="is empty"):
            part(record(), start, stop)


# --- CSV files ------------------------------------------------------------------------------------

GOOD = "t,u,y\n0.0,1,10\n0.1,2,20.5\n0.2,-3e-1,3.0E1\n"
HEAD = "u,y\n1,1\n"
COMMA = {"delimiter": ";", "decimal": ","}


@pytest.fixture
def load(tmp_path):
    """Write text or bytes into a file, and read it."""

    def load_csv(content=GOOD, name="run.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return CsvFiles(
            **({"estimation": str(path), "inputs": ["u"], "outputs": ["y"], "dt": 0.1} | options)
        ).load()

    return load_csv


def test_columns_become_signals_and_files_records(load, tmp_path):
    load(name="one.csv")
    read = load(units={"y": "mm"}, initialisation_window=1, test=[str(tmp_path / "one.csv")] * 2)
    assert (read.inputs, read.outputs, read.units, read.sampling_time) == (
        ("u",),
        ("y",),
        {"y": "mm"},
        0.1,
    )
    assert [record.attrs["name"] for record in read.records] == [
        "run.csv",
        "one.csv",
        "one.csv",
    ]
    (record,) = read.estimation
    np.testing.assert_array_equal(record.time, [0.0, 0.1, 0.2])
    assert set(record.data_vars) == {"u", "y"}
    assert record.attrs["initialisation_window"] == 1
    assert record.y.attrs["units"] == "mm"
    assert set(load(inputs=[]).estimation[0].data_vars) == {"y"}


def test_a_column_of_times_gives_the_sampling_time(load):
    (record,) = load("t,u,y\n5.0,1,1\n5.25,2,2\n5.5,3,3\n", dt=None, time="t").estimation
    np.testing.assert_array_equal(record.time, [5.0, 5.25, 5.5])
    assert (record.attrs["sampling_time"], record.time.attrs["units"]) == (0.25, "s")
    late = "t,u,y\n" + "".join(f"{1.7e9 + 0.01 * i!r},1,2\n" for i in range(50))
    assert load(late, dt=None, time="t").sampling_time == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (GOOD, {}),
        (b"\xef\xbb\xbfu,y\n1,10\n2,20.5\n-0.3,30\n", {}),
        (GOOD.replace("\n", ",\r\n") + "\r\n,,,\r\n", {}),
        ('"t","u","y"\n"0.0","1","10"\n"0.1", 2 ,20.5\n0.2,-0.3,30\n', {}),
        (GOOD.replace(",", "\t"), {"delimiter": r"\t"}),
        (GOOD.replace(",", "\t"), {}),
        (GOOD.replace(",", ";").replace(".", ","), COMMA),
        (GOOD.replace(",", ";").replace(".", ","), {}),
        ("sep=;\n" + GOOD.replace(",", ";"), {}),
        ("sep=,\nu [m/s],y (°C)\n1,10\n2,20.5\n-0.3,30\n", {"dt": 0.1}),
        (
            "u [m/s],y [°C]\n1,10\n2,20.5\n-0.3,30\n".encode("cp1252"),
            {"encoding": "cp1252"},
        ),
        ("y [K];y 2;u\n10;9;1\n20,5;9;2\n30;9;-0,3\n", {"outputs": ["y [K]"]}),
    ],
)
def test_ways_of_writing_the_same(content, options, load):
    read = load(content, **options)
    (record,) = read.estimation
    np.testing.assert_array_equal(
        [record.u, record[read.outputs[0]]], [[1.0, 2.0, -0.3], [10.0, 20.5, 30.0]]
    )


def test_units_stand_in_the_names_of_columns(load):
    content = 'time [ms],T out [degC],u1 [%],"flow (l/min)"\n0,1,2,3\n100,1,2,3\n200,1,2,3\n'
    signals = {
        "inputs": ["u1", "flow"],
        "outputs": ["T out [degC]"],
        "units": {"flow": "m3"},
        "dt": None,
    }
    read = load(content, **signals)
    assert read.units == {"u1": "%", "flow": "m3", "T out [degC]": "degC"}
    assert (
        read.sampling_time,
        read.estimation[0]["T out [degC]"].attrs["long_name"],
    ) == (0.1, "T out")
    with pytest.raises(ValueError, match=r"no columns \['v'\].*'data\.inputs=\[flow\]'"):
        load(content, **signals | {"inputs": ["v"], "units": None})
    with pytest.raises(ValueError, match=r"""more than once.*'data\.inputs=\["u \[V\]"\]'"""):
        load("u [V],u [A],y\n1,2,3\n", inputs=["u"])


STAMPS = np.datetime64("2024-02-29T23:59:59.800") + 50 * np.arange(9).astype("timedelta64[ms]")


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        ([str(stamp) for stamp in STAMPS], {}),
        ([str(stamp).replace(".000", "") + "+01:00" for stamp in STAMPS], {}),
        (
            [f"{str(s)[8:10]}.{str(s)[5:7]}.{str(s)[:4]} {str(s)[11:]}" for s in STAMPS],
            {},
        ),
        (
            [f"{str(s)[5:7]}/{str(s)[8:10]}/{str(s)[:4]} {str(s)[11:]}" for s in STAMPS],
            {"time": "when"},
        ),
        (
            [f"{str(s)[8:10]}/{str(s)[5:7]}/{str(s)[:4]} {str(s)[11:]}" for s in STAMPS],
            {"time_format": "%d/%m/%Y %H:%M:%S.%f"},
        ),
        ([f"{k * 0.05:.15g}".replace(".", ",") for k in range(9)], {}),
        ([repr(k * 0.05 + 1.7e9) for k in range(9)], {}),
        ([repr(k * 0.05) for k in range(9)], {"dt": 0.05, "time": "when"}),
    ],
)
def test_times_and_stamps_give_the_sampling_time(load, texts, options):
    name = options.get("time", "Timestamp")
    rows = [f"{text};{k};{k}\n" for k, text in enumerate(texts)]
    read = load(f"{name};u;y\n{''.join(rows)}", **{"dt": None} | options)
    (record,) = read.estimation
    assert read.sampling_time == 0.05  # not 0.05000000000000002
    np.testing.assert_allclose(record.time - record.time[0], 0.05 * np.arange(9), atol=1e-6)
    assert "note" not in record.attrs
    assert record.attrs.get("start", "")[:8] == ("2024-02-" if ":" in texts[0] else "")


def test_times_that_jitter_are_told_and_refused_beyond_a_tenth(load):
    jitter = np.random.default_rng(0).uniform(-0.004, 0.004, 41)
    jitter[[7, 8]] = -0.004, 0.004
    read = load(
        "t,u,y\n" + "".join(f"{0.1 * k + jitter[k]:.6f},1,2\n" for k in range(41)),
        dt=None,
    )
    step = float(np.median(np.diff(np.round(0.1 * np.arange(41) + jitter, 6))))
    assert read.sampling_time == pytest.approx(step, abs=1e-12)
    worst = 100 * (0.108 - step) / step
    assert (
        f"run.csv: times jitter by up to {worst:.2g} % of {read.sampling_time:.9g} s"
        in read.notes[0]
    )
    with pytest.raises(
        ValueError,
        match=r"line 10: the step of time is 0\.112 s where the median of all steps is 0\.1 s",
    ):
        load(
            "t,u,y\n" + "".join(f"{0.1 * k + 0.012 * (k >= 8)},1,2\n" for k in range(41)),
            dt=None,
        )


def test_gaps_split_a_record_into_segments_that_are_counted(load):
    rows = [[str(0.1 * k), str(k), str(-k)] for k in range(400)]
    rows[100][1], rows[101][2], rows[230][1] = "", "nan", ""
    rows[210][0] = ""
    content = "t,u,y\n" + "".join(
        ",".join(row) + "\n" for k, row in enumerate(rows) if not 300 <= k < 305
    )
    read = load(content, dt=None, on_missing="skip", initialisation_window=3)
    kept = [
        np.arange(100),
        np.arange(102, 210),
        np.arange(231, 300),
        np.arange(305, 400),
    ]  # 211 to 229 are too few
    for record, k in zip(read.estimation, kept, strict=True):
        np.testing.assert_array_equal([record.u, -record.y], [k, k])
        np.testing.assert_allclose(record.time, 0.1 * k)
        assert record.attrs["initialisation_window"] == 3
    assert [record.attrs["name"] for record in read.estimation][:2] == [
        "run.csv, segment 1",
        "run.csv, segment 2",
    ]
    (note,) = read.notes
    assert (
        "4 rows without a value and 1 gaps of time skipped, segments: 4; 1 shorter than 50 left out (19 samples)"
        in note
    )
    with pytest.raises(
        ValueError,
        match=r"line 102, column 'u': the value is missing, the first of 4.*on_missing=skip",
    ):
        load(content, dt=None)
    with pytest.raises(
        ValueError, match="5 parts of at most 108 samples, expected one of at least 200"
    ):
        load(content, dt=None, on_missing="skip", shortest=200)
    whole = load("u,y\n" + "1,2\n" * 20, on_missing="skip")  # no gap, nothing to leave out
    assert (whole.estimation[0].sizes["time"], whole.notes) == (20, ())


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (HEAD + "2,oops\n", {}, "line 3, .*'y'.*'oops'"),
        (HEAD + "2,\n", {}, "line 3, .*'y'.*missing"),
        (HEAD + "inf,2\n", {}, "line 3, .*'u'.*missing"),
        (HEAD + "1_000,2\n", {}, "line 3, .*'u'.*'1_000'"),
        (HEAD + "\n3,3\n", {}, "line 3, .*missing"),
        (HEAD + "2\n", {}, "line 3, .*'y'.*missing"),
        (HEAD + "1,5,2,5\n", {}, "line 3.*decimal comma"),
        ("u,y\n1,5,2,5\n", {}, "line 2.*decimal comma"),
        (
            "u;y\n1,5;2,5\n",
            {"decimal": "."},
            r"line 2, .*'u'.*'1,5'.*data\.decimal=\",\"",
        ),
        ("u;y\n1;2\n", {"delimiter": ","}, r"\['u', 'y'\]"),
        ("u;y\n1.5;2,5\n", COMMA, r"line 2, .*'u'.*'1.5'.*data\.decimal=\"\.\""),
        ("1,2\n3,4\n", {}, r"\['u', 'y'\].*no header"),
        ('u,y\n"1,2\n3,4\n', {}, "quotes"),
        (
            "t,u,y\n0,1,1\n",
            {"dt": None, "time": "t"},
            "line 2: expected at least two times",
        ),
        ("u,height\n3,4\n", {}, r"\['y'\].*\['u', 'height'\]"),
        ("u,y,u\n3,4,5\n", {}, r"\['u', 'u'\].*more than once"),
        ("u,y\n", {}, "rows of numbers"),
        (GOOD.encode("utf-16"), {}, "UTF-8"),
        ("when,u,y\n0,1,1\n", {"dt": None}, "sampling time is not known.*'when'"),
        ("t [parsec],u,y\n0,1,1\n", {"dt": None}, "times in 'parsec'"),
        (
            "t,u,y\n2024-01-01,1,1\nnoon,1,1\n",
            {"dt": None},
            "line 3: 'noon' is neither",
        ),
        (
            GOOD.replace("0.2", "0.1"),
            {"dt": None, "time": "t"},
            "line 4: the time is not later",
        ),
        (
            GOOD + "0.4,1,1\n",
            {"dt": None, "time": "t"},
            "line 5: the step of time is 0.2 s",
        ),
        *[
            (GOOD, options, message)
            for options, message in (
                ({"estimation": []}, r"data\.estimation"),
                ({"dt": float("nan")}, "dt=nan"),
                (
                    {"dt": 0.2, "time": "t"},
                    "line 3: the step of time is 0.1 s where dt is 0.2 s",
                ),
                ({"time": "when"}, r"\['when'\].*'data\.time|data\.time"),
                ({"on_missing": "fill"}, "on_missing must be one of error, skip"),
                ({"encoding": "morse"}, "encoding"),
                ({"delimiter": ",", "decimal": ","}, "decimal"),
                ({"units": {"x": "m"}}, r"units of \['x'\]"),
                ({"inputs": "u"}, "inputs='u'"),
                ({"delimiter": ";;"}, "delimiter"),
                ({"decimal": "p"}, "decimal 'p'"),
                ({"initialisation_window": 3}, "initialisation_window 3"),
            )
        ],
    ],
)
def test_bad_settings_are_named_and_bad_content_with_line_and_column(
    content, options, message, load
):
    with pytest.raises(ValueError, match=message) as caught:
        load(content, **options)
    assert content == GOOD or "run.csv" in str(caught.value)


def test_a_missing_file_and_a_folder_are_told(tmp_path, load):
    for path in (tmp_path / "missing.csv", tmp_path):
        with pytest.raises(DataError, match=str(path)):
            load(estimation=str(path))


# --- stored files ---------------------------------------------------------------------------------


def ensemble(n_trajectories=5, n=12, *, own_input=True):
    """Trajectories in the form of a Monte Carlo study: (trajectory, time), numbers of each beside
    them.
    """
    values = np.random.default_rng(1).normal(size=(2, n_trajectories, n))
    both = ("trajectory", "time")
    return xr.Dataset(
        {
            "u": (both, values[0], {"units": "V"})
            if own_input
            else ("time", values[0, 0], {"units": "V"}),
            "y": (both, values[1], {"units": "V"}),
            "seed": ("trajectory", np.arange(n_trajectories) + 100),
            "mass": ("trajectory", np.arange(n_trajectories) + 0.5),
        },
        coords={
            "time": ("time", 0.5 * np.arange(n), {"units": "s"}),
            "trajectory": np.arange(n_trajectories),
        },
        attrs={
            "system": "toy",
            "inputs": json.dumps(["u"]),
            "outputs": json.dumps(["y"]),
        },
    )


def trajectory(n=20):
    return ensemble(1, n).isel(trajectory=0, drop=True).drop_vars(["seed", "mass"])


@pytest.fixture
def stored(tmp_path):
    """Path of a stored trajectory or ensemble."""

    def write(dataset, name="many.nc", kind="trajectory"):
        return str(store.write(dataset, tmp_path / name, kind=kind))

    return write


def test_a_trajectory_is_cut_in_its_order(stored):
    path = stored(trajectory().assign(x=lambda d: 2 * d.y))
    read = StoredRecordings(
        path=path, split=[0.5, 0.2, 0.3], initialisation_window=1, outputs=["x"]
    ).load()
    assert sizes(read) == [[10], [4], [6]]
    for name in ("y", "time"):
        np.testing.assert_array_equal(
            np.concatenate([r[name] for r in read.records]), trajectory()[name]
        )
    assert [r.attrs["name"] for r in read.records] == [f"many, {role}" for role in RECORD_ROLES]
    assert {r.attrs["initialisation_window"] for r in read.records} == {1}
    assert (read.inputs, read.outputs, read.sampling_time, read.units["u"]) == (
        ("u",),
        ("x",),
        0.5,
        "V",
    )
    assert sizes(StoredRecordings(path=path).load()) == [[10], [], [10]]


@pytest.mark.parametrize("own_input", [True, False])
def test_an_ensemble_is_several_recordings(own_input, stored, tmp_path):
    written = ensemble(own_input=own_input)
    read = StoredRecordings(
        path=stored(written), split=[0.6, 0.2, 0.2], initialisation_window=2
    ).load()
    assert sizes(read) == [[12] * 3, [12], [12]]
    for i, record in enumerate(read.records):
        np.testing.assert_array_equal(record["y"], written["y"][i])
        np.testing.assert_array_equal(record["u"], written["u"][i] if own_input else written["u"])
        assert set(record.data_vars) == {"u", "y"}
        expected = {
            "name": f"many, trajectory {i}",
            "seed": 100 + i,
            "mass": 0.5 + i,
            "initialisation_window": 2,
        }
        assert expected.items() <= record.attrs.items()
    single = stored(trajectory(9), "one.nc")
    apart = StoredRecordings(estimation=[str(tmp_path / "many.nc"), single], test=single).load()
    assert [r.attrs["name"] for r in apart.records] == [
        *(f"many, trajectory {i}" for i in range(5)),
        "one",
        "one",
    ]
    np.testing.assert_array_equal(apart.test[0].y, trajectory(9).y)
    again = StoredRecordings(
        path=store.write_groups(read.to_groups(), tmp_path / "again.nc", kind="benchmark")
    ).load()
    assert [record.attrs["mass"] for record in again.records] == [0.5 + i for i in range(5)]


def test_every_part_has_a_trajectory(stored):
    for split, n, expected in (
        ([0.5, 0.0, 0.5], 2, [1, 0, 1]),
        ([0.98, 0.01, 0.01], 10, [8, 1, 1]),
        ([0.5, 0.0, 0.5], 5, [3, 0, 2]),
    ):
        read = StoredRecordings(path=stored(ensemble(n)), split=split).load()
        assert list(map(len, sizes(read))) == expected
    with pytest.raises(ValueError, match=r"1 trajectories.*data\.split"):
        StoredRecordings(path=stored(ensemble(1))).load()


def test_records_of_a_run_over_several_records_keep_their_part(stored):
    """Records behind each other, told apart by number and part."""
    lengths = (30, 20, 25)
    n = 75
    number = np.repeat(np.arange(3), lengths)
    time = np.concatenate([0.1 * np.arange(length) for length in lengths])
    joined = trajectory(n).assign_coords(
        time=("time", time, {"units": "s"}),
        record=("time", number),
        part=("time", number // 2),
    )
    found = StoredRecordings(path=stored(joined)).load()
    assert sizes(found) == [[30, 20], [], [25]]
    np.testing.assert_array_equal(found.estimation[1]["y"], joined["y"][30:50])
    np.testing.assert_allclose(found.test[0]["time"], 0.1 * np.arange(25))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "a.nc", "test": "b.nc"}, r"data\.path"),
        ({"split": [0.5, 0.2, 0.2]}, "split"),
        ({"path": "missing.nc"}, r"no file .*missing\.nc"),
        ({"path": "."}, r"folder; name one of \['bare\.nc', 'narx\.nc', 'newer\.nc'\]"),
        ({"path": "narx.nc"}, "schema 'narx'"),
        ({"path": "newer.nc"}, "schema_version 99"),
        ({"path": "bare.nc"}, r"\['u', 'y'\].*data\.inputs"),
    ],
)
def test_wrong_settings_and_files_are_named(options, message, stored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored(trajectory(), "narx.nc", kind="narx")
    stored(trajectory().drop_attrs(deep=False), "bare.nc")
    with monkeypatch.context() as patch:
        patch.setattr(store, "SCHEMA_VERSION", 99)
        stored(trajectory(), "newer.nc")
    with pytest.raises((ValueError, OSError), match=message):
        StoredRecordings(**options).load()


# --- published sets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "signals", "step", "expected", "windows"),
    [
        (CascadedTanksData, "pump_voltage level", 4.0, [[1024], [], [1024]], [0, 50]),
        (BoucWenData, "force displacement", 1 / 750, [[4 * 8192], [], [8192]], [0, 0]),
        (
            SilverboxData,
            "input_voltage output_voltage",
            1 / 610.35,
            [[65062], [], [21688, 40475, 32000]],
            [0] + [50] * 3,
        ),
    ],
)
def test_measured_sets_are_split_as_usual(source, signals, step, expected, windows, shared_data):
    loaded = source(path=str(shared_data)).load()
    assert (list(loaded.inputs + loaded.outputs), sizes(loaded)) == (
        signals.split(),
        expected,
    )
    assert loaded.sampling_time == pytest.approx(step)
    assert [r.attrs["initialisation_window"] for r in loaded.records] == (
        windows or [0, 50, 50, 50]
    )
    assert len({r.attrs["name"] for r in loaded.records}) == len(loaded.records)
    if source is CascadedTanksData:
        pairs = [(float(r.pump_voltage[0]), float(r.level[0])) for r in loaded.records]
        assert pairs == [
            (3.2567230505556095, 5.205004959182117),
            (0.9761919656163469, 4.972762645914397),
        ]
    elif source is BoucWenData:
        assert [(r.attrs["official"], r.attrs["period"]) for r in loaded.records] == [
            (0, 8192),
            (1, 8192),
        ]
        assert loaded.test[0].displacement[0] == 1.899147452880088e-4
        assert (
            BoucWenData(path=str(shared_data), user_made_estimation=False).load().estimation == ()
        )
    else:
        raw = np.loadtxt(
            shared_data / "silverbox" / "SNLS80mV.csv",
            delimiter=",",
            skiprows=1,
            usecols=(0, 1),
        )
        for record, start in zip(loaded.records, (40650, 105712, 100, 100), strict=True):
            wanted = raw[start : start + record.sizes["time"]]
            np.testing.assert_array_equal(
                np.column_stack([record.input_voltage, record.output_voltage]), wanted
            )


@pytest.mark.parametrize(
    ("source", "file", "n_estimation"),
    [
        (BostonData, "boston_housing/boston_housing.csv", 451),
        (ConcreteData, "concrete/concrete.csv", 927),
    ],
)
def test_static_sets_keep_the_order_of_the_file_or_a_seeded_one(
    source, file, n_estimation, shared_data
):
    header = (shared_data / file).read_text().splitlines()[0].split(",")
    raw = np.loadtxt(shared_data / file, delimiter=",", skiprows=1)
    orders = []
    for shuffle, seed in ((False, 0), (True, 1), (True, 1), (True, 2)):
        static = source(path=str(shared_data), shuffle=shuffle, seed=seed).load()
        assert static.is_static
        assert list(static.inputs + static.outputs) == header
        assert sizes(static) == [[n_estimation], [], [len(raw) - n_estimation]]
        assert static.test[0].attrs["split"] == (
            f"shuffled with seed {seed}" if shuffle else "file order"
        )
        joined = xr.concat([*static.estimation, *static.test], "time")
        orders.append(joined.row.values.tolist())
        np.testing.assert_array_equal(
            np.column_stack([joined[name] for name in header]), raw[orders[-1]]
        )
        np.testing.assert_array_equal(joined.time, np.arange(len(raw)))
        assert joined.time.attrs["units"] == "1"
    assert orders[1] == orders[2] != orders[3]
    assert sorted(orders[1]) == orders[0] == list(range(len(raw)))
    for wrong in (0, len(raw)):
        with pytest.raises(ValueError, match=f"n_estimation .* got {wrong}"):
            source(path=str(shared_data), n_estimation=wrong).load()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.forms[0]))
def test_every_form_of_a_table_holds_the_same_numbers(table, shared_data, tmp_path):
    """Each form alone in a folder is found; all agree, up to the 5 digits of one of them."""
    reference = table.load(str(shared_data / table.folder))
    urls = [form.url for form in table.forms if form.url]
    assert urls  # pinned to a commit
    assert all(table.attributes[name] for name in ("licence", "source", "citation"))
    assert all(unit and long_name for unit, long_name in table.columns.values())
    for url in urls:
        assert re.fullmatch(
            r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/(.+/)?", url
        )
    for i, form in enumerate(table.forms):
        folder = tmp_path / str(i)
        folder.mkdir()
        for file in form.files:
            shutil.copy(shared_data / table.folder / file, folder)
        record = table.load(str(folder))
        assert record.attrs["file"] == str(form)
        assert list(record.data_vars) == list(reference.data_vars) == list(table.columns)
        for name in table.columns:
            tolerance = 5e-5 if "dataBenchmark.csv" in form.files else 0.0
            np.testing.assert_allclose(
                record[name], reference[name], rtol=0, atol=tolerance, err_msg=name
            )


@pytest.mark.parametrize("source", PUBLISHED)
def test_without_a_copy_the_error_says_what_to_do(source, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty.*holds no copy.*data\.path.*SYSID_DATA"):
        source(path=str(tmp_path / "empty")).load()
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "empty"))
    with pytest.raises(
        DataError,
        match=r"SYSID_DATA.*network.*raw\.githubusercontent\.com.*SYSID_CACHE",
    ):
        source().load()
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "missing"))
    with pytest.raises(DataError, match=r"SYSID_DATA='.*missing'"):
        source().load()
    assert files_in(tmp_path) == []


def test_a_missing_package_is_told(monkeypatch, shared_data, tmp_path):
    shutil.copy(shared_data / "concrete" / "Concrete_Data.xls", tmp_path)
    for name, source in {
        "xlrd": ConcreteData(str(tmp_path)),
        "nonlinear_benchmarks": NonlinearBenchmark("CED"),
    }.items():
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            DataError, match=rf"needs the package {name}.*install -e \"\.\[records\]\""
        ):
            source.load()


# --- downloads from a server on this computer -----------------------------------------------------

CONTENT = b"u,y\n1.5,2.5\n3.5,4.5\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path):
    """A running server with the `folder` of its files and its `url`."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            """Say nothing."""

    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.csv").write_bytes(CONTENT)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(folder))
    ) as running:
        running.folder, running.url = (
            folder,
            f"http://127.0.0.1:{running.server_address[1]}/",
        )
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def table(url):
    columns = {"u": Column("V", "voltage"), "y": Column("m", "height")}
    return PublishedTable(
        "toy",
        "toy",
        0.5,
        columns,
        (Form({"data.csv": SHA256}, url=url),),
        {"licence": "CC0"},
    )


def test_a_file_is_downloaded_once_and_again_if_it_is_damaged(server, cache, caplog, monkeypatch):
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    toy = table(server.url)
    place = cache / "toy" / "data.csv"
    for _ in range(2):
        found = toy.load(None)
        np.testing.assert_array_equal(found["y"], [2.5, 4.5])
        assert {
            "licence": "CC0",
            "file": "data.csv",
            "sha256": SHA256,
        }.items() <= found.attrs.items()
    assert caplog.messages == [f"Downloaded {server.url}data.csv to {place}"]
    assert files_in(cache) == ["toy/data.csv"]
    place.write_bytes(CONTENT[:-4])
    assert len(toy.load(None)["u"]) == 2
    assert place.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("page", "message"),
    [("other", f"expected {SHA256}"), ("nothing", "could not fetch.*404")],
)
def test_a_failed_download_leaves_nothing_and_says_nothing(
    page, message, server, cache, caplog, monkeypatch
):
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    (server.folder / "other").write_bytes(CONTENT[:-4])
    with pytest.raises(DataError, match=message):
        fetch(server.url + page, SHA256, "toy", "data.csv")
    assert not cache.exists()
    assert caplog.messages == pooch.get_logger().filters == []
    (cache / "empty").mkdir(parents=True)
    for folder in ("empty", "other/deep"):  # only the folders that were made go
        with pytest.raises(DataError, match=message):
            fetch(server.url + page, SHA256, folder, "more.csv")
    assert [path.name for path in cache.rglob("*")] == ["empty"]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path, monkeypatch, pretend_download):
    monkeypatch.delenv("SYSID_CACHE")
    assert cache_folder().is_absolute()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "file" / "cache"))
    for call in (
        lambda: table("http://127.0.0.1:9/").load(None),
        NonlinearBenchmark("CED").load,
    ):
        with pytest.raises(DataError, match="SYSID_CACHE"):
            call()
    assert files_in(tmp_path) == ["file"]


def test_local_copies_come_before_a_download_even_if_they_are_changed(
    server, cache, tmp_path, monkeypatch
):
    (tmp_path / "copies" / "toy").mkdir(parents=True)
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "copies"))
    copy = tmp_path / "copies" / "toy" / "data.csv"
    toy = table(server.url)
    copy.write_bytes(CONTENT)
    toy.load(None)
    copy.write_bytes(CONTENT + b"5,6\n")
    with pytest.raises(DataError, match=f"expected {SHA256}"):
        toy.load(None)
    assert not cache.exists()
    copy.unlink()
    toy.load(None)
    assert files_in(cache) == ["toy/data.csv"]


def hold_back(call):
    """The call, which waits until two make it, or one has waited long enough, and a list of the
    calls.
    """
    both = threading.Barrier(2)
    calls = []

    def wait(*arguments, **options):
        calls.append(arguments)
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.5)
        return call(*arguments, **options)

    return wait, calls


def twice_at_once(load):
    with ThreadPoolExecutor(2) as pool:
        return [running.result() for running in [pool.submit(load), pool.submit(load)]]


def test_two_that_fetch_the_same_at_once_download_it_once(
    server, cache, monkeypatch, pretend_download
):
    held, calls = hold_back(pooch.HTTPDownloader.__call__)
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", held)
    for found in twice_at_once(lambda: table(server.url).load(None)):
        np.testing.assert_array_equal(found["y"], [2.5, 4.5])
    assert len(calls) == 1
    held, _ = hold_back(nonlinear_benchmarks.benchmarks.cashed_download)
    monkeypatch.setattr(nonlinear_benchmarks.benchmarks, "cashed_download", held)
    assert_same(*twice_at_once(NonlinearBenchmark("CED").load))
    NonlinearBenchmark("CED").load()
    assert len(pretend_download) == 1
    assert files_in(cache) == [
        *(f"nonlinear_benchmarks/CED/CED/{name}" for name in DRIVES),
        "toy/data.csv",
    ]


def test_another_computer_may_have_been_faster(pretend_download, monkeypatch, cache):
    """It shares the cache, but no locks: the folder is there when the own one is to get its
    name.
    """
    move = os.replace

    def lose(source, target):
        drives(target / "CED")
        move(source, target)

    monkeypatch.setattr(os, "replace", lose)
    assert sizes(NonlinearBenchmark("CED").load()) == [[400] * 2, [], [100] * 2]
    assert files_in(cache) == [f"nonlinear_benchmarks/CED/CED/{name}" for name in DRIVES]


# --- exchange with the package nonlinear_benchmarks -----------------------------------------------


def theirs(n=40, *, channels=None, name="run", window=7, dt=0.02, seed=0):
    shape = (n,) if channels is None else (n, channels)
    u, y = np.random.default_rng(seed).normal(size=(2, *shape))
    return Input_output_data(
        u=u, y=y, sampling_time=dt, name=name, state_initialization_window_length=window
    )


def test_records_of_the_package_become_recordings_and_back():
    given = (
        [theirs(window=None), theirs(20, seed=1)],
        [theirs(seed=2)],
        [theirs(9, seed=3, name="")],
    )
    ours = from_nonlinear_benchmarks(*given, name="rig", units=UNITS)
    assert (ours.inputs, ours.outputs, ours.sampling_time, ours.units) == (
        ("u",),
        ("y",),
        0.02,
        UNITS,
    )
    assert [r.attrs["name"] for r in ours.records] == ["run"] * 3 + ["rig, test 0"]
    assert [r.attrs["initialisation_window"] for r in ours.records] == [0, 7, 7, 7]
    np.testing.assert_array_equal(ours.test[0].u, given[2][0].u)
    exchanged = to_nonlinear_benchmarks(ours)
    assert [len(role) for role in exchanged] == [2, 1, 1]
    back = exchanged.test[0]
    assert (back.state_initialization_window_length, back.sampling_time, back.name) == (
        7,
        0.02,
        "rig, test 0",
    )
    assert_same(from_nonlinear_benchmarks(*exchanged, name="rig", units=UNITS), ours)
    (cut,) = to_nonlinear_benchmarks(replace(ours, test=(part(ours.test[0], 2),))).test
    assert (cut.state_initialization_window_length, len(cut)) == (5, 7)
    chosen = from_nonlinear_benchmarks(
        *given, name="rig", inputs=["force"], initialisation_window=5
    )
    assert (chosen.inputs, chosen.outputs) == (("force",), ("y",))
    assert [r.attrs["initialisation_window"] for r in chosen.records] == [0, 7, 5, 5]
    assert (
        from_nonlinear_benchmarks([theirs(dt=None)], name="rig", sampling_time=0.5).sampling_time
        == 0.5
    )


def test_several_channels_are_numbered():
    ours = from_nonlinear_benchmarks([theirs(channels=3)], name="robot")
    assert (ours.inputs, ours.outputs) == (("u1", "u2", "u3"), ("y1", "y2", "y3"))
    (back,) = to_nonlinear_benchmarks(ours).estimation
    np.testing.assert_array_equal((back.u, back.y), (theirs(channels=3).u, theirs(channels=3).y))


def test_records_that_cannot_be_exchanged_are_named():
    for records, options, message in (
        ([], {}, "at least one record"),
        ([theirs(channels=3)], {"inputs": ["a", "b"]}, "3 names .* of u"),
        ([theirs(channels=3), theirs(channels=2)], {}, "channels"),
        ([theirs(dt=None)], {}, "sampling time"),
        ([theirs()], {"sampling_time": 0.5}, r"0\.02 s, not 0\.5 s"),
    ):
        with pytest.raises(ValueError, match=message):
            from_nonlinear_benchmarks(records, name="rig", **options)
    for name, message in (
        ("WienerHammerstein", "F16.*did you mean 'WienerHammerBenchMark'"),
        (None, "name=None"),
    ):
        with pytest.raises(ValueError, match=message):
            NonlinearBenchmark(name).load()
    with pytest.raises(ValueError, match="no inputs or no time"):
        to_nonlinear_benchmarks(Recordings("free", (), ("y",), estimation=(record(),)))


# --- sets of that package -------------------------------------------------------------------------


DRIVES = ("DATAUNIF.MAT", "FULLTEXT01.zip")


def drives(folder):
    """Files of the set CED as the package leaves them, with made-up numbers."""
    folder.mkdir(parents=True)
    numbers = np.random.default_rng(0).normal(size=(4, 500, 1))
    savemat(
        folder / "DATAUNIF.MAT",
        dict(zip(("u11", "u12", "z11", "z12"), numbers, strict=True)),
        appendmat=False,
    )
    (folder / "FULLTEXT01.zip").write_bytes(b"archive")
    return numbers[:, :, 0]


@pytest.fixture
def pretend_download(monkeypatch):
    """Replace the package's download by one that writes made-up files; counts its calls."""
    calls = []

    def download(url, name, *_, dir_placement, **__):
        folder = Path(dir_placement, name)
        if not folder.exists():
            calls.append(url)
            drives(folder)
        return str(folder)

    monkeypatch.setattr(nonlinear_benchmarks.benchmarks, "cashed_download", download)
    return calls


@pytest.mark.parametrize("place", ["CED", "nonlinear_benchmarks/CED"])
def test_a_set_of_the_package_is_read_from_a_local_copy(place, tmp_path, monkeypatch):
    numbers = drives(tmp_path / "copies" / place)
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "copies"))
    source = NonlinearBenchmark("CED", path=str(tmp_path / "copies"))
    loaded = source.load()
    expected = [
        numbers[i::2, begin:end] for begin, end in ((0, 400), (400, 500)) for i in (0, 1)
    ]  # u11, u12, z11, z12
    for record, pair in zip(loaded.records, expected, strict=True):
        np.testing.assert_array_equal((record.u, record.y), pair)
    assert (sizes(loaded), loaded.sampling_time) == ([[400] * 2, [], [100] * 2], 0.02)
    assert [r.attrs["initialisation_window"] for r in loaded.records] == [0, 0, 10, 10]
    attributes = loaded.test[1].attrs
    assert attributes["name"] == "test CED high input amplitude"
    assert (
        attributes["sha256"]
        == hashlib.sha256(b"".join(pair.astype("<f8").tobytes() for pair in expected)).hexdigest()
    )
    assert_same(replace(source, path=None, sha256=attributes["sha256"]).load(), loaded)
    with pytest.raises(DataError, match=f"have sha256 {attributes['sha256']}, expected 00"):
        replace(source, sha256="00").load()


def test_a_failed_download_of_the_package_leaves_nothing(monkeypatch, cache, capsys):
    def half(url, place, *_):
        Path(place).write_bytes(b"half")
        raise OSError(f"no connection for {place}")

    monkeypatch.setattr("urllib.request.urlretrieve", half)
    with pytest.raises(
        DataError, match=r"network.*data\.path.*SYSID_DATA.*data=cascaded_tanks"
    ) as caught:
        NonlinearBenchmark("Cascaded_Tanks").load()
    assert ".tmp" not in str(caught.value)
    assert capsys.readouterr().out == ""
    assert not cache.exists()


def test_an_incomplete_local_copy_never_downloads(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("urllib.request.urlretrieve", lambda url, *_: asked.append(url))
    drives(tmp_path / "CED")
    (tmp_path / "CED" / "FULLTEXT01.zip").unlink()
    with pytest.raises(DataError, match="archive"):
        NonlinearBenchmark("CED", path=str(tmp_path)).load()
    assert files_in(tmp_path) == ["CED/DATAUNIF.MAT"]
    assert set(asked) == {"file:///nowhere/FULLTEXT01.zip"}
    with pytest.raises(DataError, match="holds neither WienHammer/"):
        NonlinearBenchmark("WienerHammerstein_Process_Noise", path=str(tmp_path)).load()


def test_records_without_a_split_are_tests_and_need_dt(tmp_path, shared_data):
    folder = tmp_path / "BoucWen" / "BoucWenFiles" / "Test signals" / "Validation signals"
    folder.mkdir(parents=True)
    (
        tmp_path / "BoucWen" / "Hysteretic Benchmark with a Dynamic Nonlinearity_1_all.zip"
    ).write_bytes(b"archive")
    for letter in "uy":
        shutil.copy(shared_data / "bouc_wen" / f"{letter}val_multisine.mat", folder)
        savemat(
            folder / f"{letter}val_sinesweep.mat",
            {f"{letter}val_sinesweep": np.ones((1, 50))},
        )
    source = NonlinearBenchmark("BoucWen", path=str(tmp_path), dt=1 / 750, initialisation_window=20)
    loaded = source.load()
    assert sizes(loaded) == [[], [], [8192, 50]]
    assert loaded.test[0].attrs["initialisation_window"] == 20
    with pytest.raises(ValueError, match="sampling time"):
        replace(source, dt=None).load()
