"""Exchange of records with the package nonlinear_benchmarks, and its data sets."""

import hashlib
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import nonlinear_benchmarks
import numpy as np
import pytest
from nonlinear_benchmarks import Input_output_data
from scipy.io import savemat

from data_sources import (
    DRIVE_FILES,
    UNITS,
    assert_same_recordings,
    files_in,
    hold_back,
    lengths_by_role,
    load_twice_at_once,
    names_of,
    record,
    windows_of,
    write_drives,
)
from sysid import (
    DataError,
    NonlinearBenchmark,
    Recordings,
    from_nonlinear_benchmarks,
    to_nonlinear_benchmarks,
)
from sysid.data.source import part

pytestmark = pytest.mark.usefixtures("cache")

CACHED_DRIVES = [f"nonlinear_benchmarks/CED/CED/{name}" for name in DRIVE_FILES]
LENGTHS_OF_DRIVES = [[400, 400], [], [100, 100]]


# --- exchange of records --------------------------------------------------------------------------


def package_record(n=40, *, channels=None, name="run", window=7, dt=0.02, seed=0):
    """Return a record as the package has it."""
    shape = (n,) if channels is None else (n, channels)
    u, y = np.random.default_rng(seed).normal(size=(2, *shape))
    return Input_output_data(
        u=u,
        y=y,
        sampling_time=dt,
        name=name,
        state_initialization_window_length=window,
    )


@pytest.fixture
def package_records():
    """Return records of the package for estimation, validation and test."""
    estimation = [package_record(window=None), package_record(20, seed=1)]
    validation = [package_record(seed=2)]
    test = [package_record(9, seed=3, name="")]
    return estimation, validation, test


def test_records_of_the_package_become_recordings(package_records):
    converted = from_nonlinear_benchmarks(*package_records, name="rig", units=UNITS)
    assert converted.inputs == ("u",)
    assert converted.outputs == ("y",)
    assert converted.sampling_time == 0.02
    assert converted.units == UNITS
    assert names_of(converted) == ["run", "run", "run", "rig, test 0"]
    assert windows_of(converted) == [0, 7, 7, 7]
    _, _, test = package_records
    np.testing.assert_array_equal(converted.test[0].u, test[0].u)


def test_recordings_become_records_of_the_package_and_lead_back(package_records):
    converted = from_nonlinear_benchmarks(*package_records, name="rig", units=UNITS)
    exchanged = to_nonlinear_benchmarks(converted)
    assert [len(role) for role in exchanged] == [2, 1, 1]
    returned = exchanged.test[0]
    assert returned.state_initialization_window_length == 7
    assert returned.sampling_time == 0.02
    assert returned.name == "rig, test 0"
    again = from_nonlinear_benchmarks(*exchanged, name="rig", units=UNITS)
    assert_same_recordings(again, converted)
    cut = replace(converted, test=(part(converted.test[0], 2),))
    (returned,) = to_nonlinear_benchmarks(cut).test
    assert returned.state_initialization_window_length == 5
    assert len(returned) == 7


def test_names_the_window_and_the_sampling_time_may_be_given(package_records):
    converted = from_nonlinear_benchmarks(
        *package_records, name="rig", inputs=["force"], initialisation_window=5
    )
    assert converted.inputs == ("force",)
    assert converted.outputs == ("y",)
    assert windows_of(converted) == [0, 7, 5, 5]
    without_time = package_record(dt=None)
    converted = from_nonlinear_benchmarks([without_time], name="rig", sampling_time=0.5)
    assert converted.sampling_time == 0.5


def test_several_channels_are_numbered():
    original = package_record(channels=3)
    converted = from_nonlinear_benchmarks([original], name="robot")
    assert converted.inputs == ("u1", "u2", "u3")
    assert converted.outputs == ("y1", "y2", "y3")
    (returned,) = to_nonlinear_benchmarks(converted).estimation
    np.testing.assert_array_equal(returned.u, original.u)
    np.testing.assert_array_equal(returned.y, original.y)


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        pytest.param([], {}, "at least one record", id="no record"),
        pytest.param(
            [package_record(channels=3)],
            {"inputs": ["a", "b"]},
            "3 names .* of u",
            id="too few names",
        ),
        pytest.param(
            [package_record(channels=3), package_record(channels=2)],
            {},
            "channels",
            id="different channels",
        ),
        pytest.param([package_record(dt=None)], {}, "sampling time", id="no sampling time"),
        pytest.param(
            [package_record()],
            {"sampling_time": 0.5},
            r"0\.02 s, not 0\.5 s",
            id="another sampling time",
        ),
    ],
)
def test_records_that_cannot_be_converted_are_named(records, options, message):
    with pytest.raises(ValueError, match=message):
        from_nonlinear_benchmarks(records, name="rig", **options)


def test_recordings_without_inputs_cannot_be_exchanged():
    free = Recordings("free", (), ("y",), estimation=(record(),))
    with pytest.raises(ValueError, match="no inputs or no time"):
        to_nonlinear_benchmarks(free)


# --- data sets of the package ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("WienerHammerstein", "F16.*did you mean 'WienerHammerBenchMark'"),
        (None, "name=None"),
    ],
)
def test_an_unknown_set_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        NonlinearBenchmark(name).load()


@pytest.mark.parametrize("folder", ["CED", "nonlinear_benchmarks/CED"])
def test_a_set_is_read_from_a_local_copy(folder, tmp_path, monkeypatch):
    copies = tmp_path / "copies"
    signals = write_drives(copies / folder)
    monkeypatch.setenv("SYSID_DATA", str(copies))
    source = NonlinearBenchmark("CED", path=str(copies))
    loaded = source.load()

    low_amplitude = signals[0::2]  # u11, z11
    high_amplitude = signals[1::2]  # u12, z12
    expected = [
        low_amplitude[:, :400],
        high_amplitude[:, :400],
        low_amplitude[:, 400:],
        high_amplitude[:, 400:],
    ]
    for loaded_record, pair in zip(loaded.records, expected, strict=True):
        np.testing.assert_array_equal(loaded_record.u, pair[0])
        np.testing.assert_array_equal(loaded_record.y, pair[1])
    assert lengths_by_role(loaded) == LENGTHS_OF_DRIVES
    assert loaded.sampling_time == 0.02
    assert windows_of(loaded) == [0, 0, 10, 10]
    attributes = loaded.test[1].attrs
    assert attributes["name"] == "test CED high input amplitude"

    content = b"".join(pair.astype("<f8").tobytes() for pair in expected)
    checksum = hashlib.sha256(content).hexdigest()
    assert attributes["sha256"] == checksum
    found_by_variable = replace(source, path=None, sha256=checksum).load()
    assert_same_recordings(found_by_variable, loaded)
    with pytest.raises(DataError, match=f"have sha256 {checksum}, expected 00"):
        replace(source, sha256="00").load()


def test_a_failed_download_leaves_nothing(monkeypatch, cache, capsys):
    def write_half(url, path, *_):
        Path(path).write_bytes(b"half")
        raise OSError(f"no connection for {path}")

    monkeypatch.setattr("urllib.request.urlretrieve", write_half)
    message = r"network.*data\.path.*SYSID_DATA.*data=cascaded_tanks"
    with pytest.raises(DataError, match=message) as error:
        NonlinearBenchmark("Cascaded_Tanks").load()
    assert ".tmp" not in str(error.value)
    assert capsys.readouterr().out == ""
    assert not cache.exists()


def test_an_incomplete_local_copy_never_downloads(tmp_path, monkeypatch):
    urls = []
    monkeypatch.setattr("urllib.request.urlretrieve", lambda url, *_: urls.append(url))
    write_drives(tmp_path / "CED")
    (tmp_path / "CED" / "FULLTEXT01.zip").unlink()
    with pytest.raises(DataError, match="archive"):
        NonlinearBenchmark("CED", path=str(tmp_path)).load()
    assert files_in(tmp_path) == ["CED/DATAUNIF.MAT"]
    assert set(urls) == {"file:///nowhere/FULLTEXT01.zip"}
    with pytest.raises(DataError, match="holds neither WienHammer/"):
        NonlinearBenchmark("WienerHammerstein_Process_Noise", path=str(tmp_path)).load()


def test_records_without_a_split_are_tests_and_need_a_sampling_time(tmp_path, shared_data):
    folder = tmp_path / "BoucWen" / "BoucWenFiles" / "Test signals" / "Validation signals"
    folder.mkdir(parents=True)
    archive = "Hysteretic Benchmark with a Dynamic Nonlinearity_1_all.zip"
    (tmp_path / "BoucWen" / archive).write_bytes(b"archive")
    for letter in "uy":
        shutil.copy(shared_data / "bouc_wen" / f"{letter}val_multisine.mat", folder)
        sweep = f"{letter}val_sinesweep"
        savemat(folder / f"{sweep}.mat", {sweep: np.ones((1, 50))})
    source = NonlinearBenchmark("BoucWen", path=str(tmp_path), dt=1 / 750, initialisation_window=20)
    loaded = source.load()
    assert lengths_by_role(loaded) == [[], [], [8192, 50]]
    assert loaded.test[0].attrs["initialisation_window"] == 20
    with pytest.raises(ValueError, match="sampling time"):
        replace(source, dt=None).load()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nonlinear_benchmarks", None)
    message = r"needs the package nonlinear_benchmarks.*install -e \"\.\[records\]\""
    with pytest.raises(DataError, match=message):
        NonlinearBenchmark("CED").load()


def test_a_cache_that_cannot_be_written_is_reported(tmp_path, monkeypatch, package_downloads):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="SYSID_CACHE"):
        NonlinearBenchmark("CED").load()
    assert files_in(tmp_path) == ["file"]


def test_two_threads_that_need_the_same_set_download_it_once(cache, monkeypatch, package_downloads):
    benchmarks = nonlinear_benchmarks.benchmarks
    waiting_download, _ = hold_back(benchmarks.cashed_download)
    monkeypatch.setattr(benchmarks, "cashed_download", waiting_download)
    first, second = load_twice_at_once(NonlinearBenchmark("CED").load)
    assert_same_recordings(first, second)
    NonlinearBenchmark("CED").load()
    assert len(package_downloads) == 1
    assert files_in(cache) == CACHED_DRIVES


def test_another_computer_may_have_filled_the_cache_first(package_downloads, monkeypatch, cache):
    """It shares the cache but no locks: the folder is there when ours is to get its name."""
    move = os.replace

    def move_too_late(source, target):
        write_drives(target / "CED")
        move(source, target)

    monkeypatch.setattr(os, "replace", move_too_late)
    assert lengths_by_role(NonlinearBenchmark("CED").load()) == LENGTHS_OF_DRIVES
    assert files_in(cache) == CACHED_DRIVES
