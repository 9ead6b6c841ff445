"""Exchange with the package nonlinear_benchmarks, and its sets as a source."""

import hashlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import nonlinear_benchmarks
import numpy as np
import pytest
from nonlinear_benchmarks import Input_output_data
from scipy.io import savemat

from sysid.data.exchange import from_nonlinear_benchmarks, to_nonlinear_benchmarks
from sysid.data.nonlinear_benchmarks import NonlinearBenchmark
from sysid.data.source import DataError
from sysid.recordings import Recordings, make_record, part


def theirs(n=40, *, channels=None, name="run", window=7, dt=0.02, seed=0):
    shape = (n,) if channels is None else (n, channels)
    u, y = np.random.default_rng(seed).normal(size=(2, *shape))
    return Input_output_data(u=u, y=y, sampling_time=dt, name=name, state_initialization_window_length=window)


def test_records_of_the_package_become_recordings():
    estimation, test = theirs(window=None), theirs(30, seed=1, name="")
    ours = from_nonlinear_benchmarks([estimation], test=[test], name="rig", units={"u": "V", "y": "rad"})
    assert (ours.inputs, ours.outputs, ours.sampling_time, ours.units) == (("u",), ("y",), 0.02, {"u": "V", "y": "rad"})
    np.testing.assert_array_equal(ours.test[0].u, test.u)
    np.testing.assert_array_equal(ours.test[0].y, test.y)
    assert [r.attrs["name"] for r in ours.records] == ["run", "rig, test 0"]
    assert [r.attrs["initialisation_window"] for r in ours.records] == [0, 7]


def test_there_and_back():
    ours = from_nonlinear_benchmarks([theirs(), theirs(20, seed=1)], [theirs(seed=2)], [theirs(9, seed=3)], name="rig")
    exchanged = to_nonlinear_benchmarks(ours)
    assert [len(role) for role in exchanged] == [2, 1, 1]
    assert all(isinstance(record, Input_output_data) for role in exchanged for record in role)
    assert exchanged.test[0].state_initialization_window_length == 7
    assert exchanged.test[0].sampling_time == 0.02
    again = from_nonlinear_benchmarks(*exchanged, name="rig")
    for left, right in zip(ours.records, again.records, strict=True):
        assert left.identical(right)


def test_our_parts_keep_what_slices_of_the_package_lose():
    whole = theirs()
    assert (whole[2:].name, whole[2:].state_initialization_window_length) == ("", None)
    ours = from_nonlinear_benchmarks(test=[whole], name="rig").test[0]
    cut = replace(from_nonlinear_benchmarks(test=[whole], name="rig"), test=(part(ours, 2),))
    (back,) = to_nonlinear_benchmarks(cut).test
    assert (back.name, back.state_initialization_window_length, len(back)) == ("run", 5, 38)
    np.testing.assert_array_equal(back.y, whole.y[2:])


def test_several_channels_are_numbered_or_named():
    ours = from_nonlinear_benchmarks([theirs(channels=3)], name="robot")
    assert (ours.inputs, ours.outputs) == (("u1", "u2", "u3"), ("y1", "y2", "y3"))
    (back,) = to_nonlinear_benchmarks(ours).estimation
    assert back.u.shape == (40, 3)
    np.testing.assert_array_equal(back.y, theirs(channels=3).y)
    named = from_nonlinear_benchmarks([theirs()], name="rig", inputs=["force"], outputs=["position"])
    assert (named.inputs, named.outputs) == (("force",), ("position",))
    with pytest.raises(ValueError, match="expected 3 names for the channels of u"):
        from_nonlinear_benchmarks([theirs(channels=3)], name="robot", inputs=["a", "b"])
    with pytest.raises(ValueError, match="expected channels"):
        from_nonlinear_benchmarks([theirs(channels=3), theirs(channels=2)], name="robot")


def test_the_window_of_tests_may_be_chosen():
    ours = from_nonlinear_benchmarks([theirs()], test=[theirs()], name="rig", initialisation_window=5)
    assert [r.attrs["initialisation_window"] for r in ours.records] == [7, 5]


def test_sampling_times_are_stated_once():
    unknown = theirs(dt=None)
    assert from_nonlinear_benchmarks([unknown], name="rig", sampling_time=0.5).sampling_time == 0.5
    with pytest.raises(ValueError, match=r"does not state its sampling time: give it \[s\]"):
        from_nonlinear_benchmarks([unknown], name="rig")
    with pytest.raises(ValueError, match=r"has the sampling time 0\.02 s, not 0\.5 s"):
        from_nonlinear_benchmarks([theirs()], name="rig", sampling_time=0.5)
    with pytest.raises(ValueError, match="at least one record"):
        from_nonlinear_benchmarks(name="rig")


def test_records_without_inputs_have_no_counterpart():
    record = make_record({"y": [1.0, 2.0]}, name="free", sampling_time=1.0)
    with pytest.raises(ValueError, match="no inputs or no time"):
        to_nonlinear_benchmarks(Recordings("free", (), ("y",), estimation=(record,)))


# ---- sets of the package


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The folder of the cache, empty; no local copies, and a home of its own for the package."""
    monkeypatch.delenv("SYSID_DATA", raising=False)
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "cache"


def drives(folder):
    """Files of the set CED as the package leaves them, with made-up numbers."""
    folder.mkdir(parents=True)
    numbers = np.random.default_rng(0).normal(size=(4, 500, 1))
    savemat(folder / "DATAUNIF.MAT", dict(zip(("u11", "u12", "z11", "z12"), numbers, strict=True)), appendmat=False)
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


def check_drives(loaded, numbers):
    u11, u12, z11, z12 = numbers
    expected = [(u11[:400], z11[:400]), (u12[:400], z12[:400]), (u11[400:], z11[400:]), (u12[400:], z12[400:])]
    for record, (u, y) in zip(loaded.records, expected, strict=True):
        np.testing.assert_array_equal(record.u, u)
        np.testing.assert_array_equal(record.y, y)
    assert (len(loaded.estimation), len(loaded.test), loaded.sampling_time) == (2, 2, 0.02)
    assert [r.attrs["initialisation_window"] for r in loaded.records] == [0, 0, 10, 10]
    assert loaded.test[1].attrs["name"] == "test CED high input amplitude"
    assert loaded.test[0].attrs["loader"].startswith("nonlinear_benchmarks 1.")


@pytest.mark.parametrize("place", ["CED", "nonlinear_benchmarks/CED"])
def test_a_local_copy_is_read(place, tmp_path, monkeypatch):
    numbers = drives(tmp_path / "copies" / place)
    check_drives(NonlinearBenchmark("CED", path=str(tmp_path / "copies")).load(), numbers)
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "copies"))
    check_drives(NonlinearBenchmark("CED").load(), numbers)


def test_a_set_is_downloaded_once(pretend_download, cache):
    first = NonlinearBenchmark("CED").load()
    second = NonlinearBenchmark("CED").load()
    check_drives(first, drives(cache / "compare"))
    assert len(pretend_download) == 1
    assert first.test[0].identical(second.test[0])
    assert [path.name for path in (cache / "nonlinear_benchmarks").iterdir()] == ["CED"]


def test_a_failed_download_leaves_nothing(monkeypatch, cache):
    def half(url, name, *_, dir_placement, **__):
        Path(dir_placement, name).mkdir()
        Path(dir_placement, name, "FULLTEXT01.zip").write_bytes(b"half")
        raise RuntimeError("connection lost")

    monkeypatch.setattr(nonlinear_benchmarks.benchmarks, "cashed_download", half)
    with pytest.raises(
        DataError, match=r"RuntimeError: connection lost.*connect to the network.*data\.path.*SYSID_DATA"
    ):
        NonlinearBenchmark("CED").load()
    assert not cache.exists()


@pytest.mark.parametrize(
    ("name", "source"), [("Cascaded_Tanks", "cascaded_tanks"), ("Silverbox", "silverbox"), ("BoucWen", "bouc_wen")]
)
def test_without_network_the_message_names_what_will_do(name, source, monkeypatch, cache, capsys):
    def refuse(url, place, *_):
        raise OSError(f"no network for {place}")

    monkeypatch.setattr("urllib.request.urlretrieve", refuse)
    with pytest.raises(DataError, match=rf"; data={source} reads this set from local copies") as caught:
        NonlinearBenchmark(name).load()
    assert f"could not provide {name} in {cache / 'nonlinear_benchmarks' / name} (" in str(caught.value)
    assert ".tmp" not in str(caught.value)
    assert capsys.readouterr().out == ""
    assert (Path(__file__).parents[2] / "conf" / "data" / f"{source}.yaml").is_file()
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_reported(pretend_download, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="writable cache folder with the environment variable SYSID_CACHE"):
        NonlinearBenchmark("CED").load()
    assert pretend_download == []


def test_an_incomplete_local_copy_never_downloads(tmp_path, monkeypatch):
    asked = []

    def retrieve(url, *_):
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlretrieve", retrieve)
    drives(tmp_path / "copies" / "CED")
    (tmp_path / "copies" / "CED" / "FULLTEXT01.zip").unlink()
    with pytest.raises(DataError, match="complete copies hold the downloaded archive too"):
        NonlinearBenchmark("CED", path=str(tmp_path / "copies")).load()
    assert [path.name for path in (tmp_path / "copies" / "CED").iterdir()] == ["DATAUNIF.MAT"]
    assert set(asked) == {"file:///nowhere/FULLTEXT01.zip"}


def test_a_folder_without_the_set_is_told(tmp_path):
    with pytest.raises(DataError, match=r"holds neither WienHammer/ nor nonlinear_benchmarks/WienHammer/: copy"):
        NonlinearBenchmark("WienerHammerstein_Process_Noise", path=str(tmp_path)).load()


def test_numbers_can_be_pinned(tmp_path):
    u11, u12, z11, z12 = drives(tmp_path / "CED")
    source = NonlinearBenchmark("CED", path=str(tmp_path))
    found = source.load().test[0].attrs["sha256"]
    order = [u11[:400], z11[:400], u12[:400], z12[:400], u11[400:], z11[400:], u12[400:], z12[400:]]
    assert found == hashlib.sha256(np.concatenate(order).astype("<f8").tobytes()).hexdigest()
    assert replace(source, sha256=found).load().name == "CED"
    with pytest.raises(DataError, match=f"have sha256 {found}, expected 00"):
        replace(source, sha256="00").load()


def test_records_without_a_split_are_tests_and_need_dt(tmp_path, shared_data):
    folder = tmp_path / "BoucWen" / "BoucWenFiles" / "Test signals" / "Validation signals"
    folder.mkdir(parents=True)
    (tmp_path / "BoucWen" / "Hysteretic Benchmark with a Dynamic Nonlinearity_1_all.zip").write_bytes(b"archive")
    for letter in "uy":
        shutil.copy(shared_data / "bouc_wen" / f"{letter}val_multisine.mat", folder)
        savemat(folder / f"{letter}val_sinesweep.mat", {f"{letter}val_sinesweep": np.ones((1, 50))})
    source = NonlinearBenchmark("BoucWen", path=str(tmp_path), dt=1 / 750, initialisation_window=20)
    loaded = source.load()
    assert loaded.estimation == ()
    assert [r.sizes["time"] for r in loaded.test] == [8192, 50]
    assert loaded.test[0].attrs["initialisation_window"] == 20
    with pytest.raises(ValueError, match="does not state its sampling time"):
        replace(source, dt=None).load()


def test_a_single_file_is_found_under_its_own_name(tmp_path):
    """The Wiener-Hammerstein record: 188000 samples in one file without an archive."""
    values = np.random.default_rng(0).normal(size=(2, 188000, 1))
    (tmp_path / "WienerHammerBenchMark").mkdir()
    variables = {"uBenchMark": values[0], "yBenchMark": values[1], "fs": 51200.0}
    savemat(tmp_path / "WienerHammerBenchMark" / "WienerHammerBenchMark.mat", variables)
    loaded = NonlinearBenchmark("WienerHammerBenchMark", path=str(tmp_path)).load()
    np.testing.assert_array_equal(loaded.test[0].y, values[1, 105200:184000, 0])
    assert [r.attrs["initialisation_window"] for r in loaded.records] == [0, 50]
    assert loaded.sampling_time == 1 / 51200


def test_unknown_names_are_told_with_a_near_one():
    with pytest.raises(ValueError, match=r"expected one of .*F16.*did you mean 'WienerHammerBenchMark'"):
        NonlinearBenchmark("WienerHammerstein").load()
    with pytest.raises(ValueError, match="name=None"):
        NonlinearBenchmark().load()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nonlinear_benchmarks", None)
    with pytest.raises(DataError, match=r"needs the package nonlinear_benchmarks.*pip install 'sysid\[records\]'"):
        NonlinearBenchmark("CED").load()
