"""Stored benchmarks and trajectories as sources."""

import json

import numpy as np
import pytest
import xarray as xr

from sysid import store
from sysid.data.source import DataError
from sysid.data.stored import StoredRecordings
from sysid.recordings import Recordings, make_record


def trajectory(n=20, *, names=True, seed=0):
    values = np.random.default_rng(seed).normal(size=(3, n))
    signals = {name: ("time", v, {"units": "V", "long_name": name}) for name, v in zip("uyx", values, strict=True)}
    time = ("time", 0.5 * np.arange(n), {"units": "s"})
    attributes = {"system": "toy", "inputs": json.dumps(["u"]), "outputs": json.dumps(["y"])} if names else {}
    return xr.Dataset(signals, coords={"time": time}, attrs=attributes)


@pytest.fixture
def stored(tmp_path):
    """Path of a stored trajectory."""

    def write(name="trajectory.nc", **options):
        return str(store.write(trajectory(**options), tmp_path / name, kind="trajectory"))

    return write


def test_a_benchmark_comes_back_as_it_was_written(tmp_path):
    records = [make_record({"u": [1.0, 2.0], "y": [3.0, 4.0]}, name=str(i), sampling_time=0.1) for i in range(3)]
    written = Recordings("rig", ("u",), ("y",), estimation=records[:2], test=records[2:])
    path = store.write_groups(written.to_groups(), tmp_path / "benchmark.nc", kind="benchmark")
    read = StoredRecordings(path=str(path)).load()
    assert (read.name, read.inputs, read.outputs) == ("rig", ("u",), ("y",))
    assert (len(read.estimation), len(read.validation), len(read.test)) == (2, 0, 1)
    for left, right in zip(written.records, read.records, strict=True):
        xr.testing.assert_identical(left, right)


def test_a_trajectory_is_cut_in_its_order(stored):
    read = StoredRecordings(path=stored(), split=[0.5, 0.2, 0.3], initialisation_window=1).load()
    whole = trajectory()
    sizes = [record.sizes["time"] for record in read.records]
    assert sizes == [10, 4, 6]
    np.testing.assert_array_equal(np.concatenate([r.y for r in read.records]), whole.y)
    np.testing.assert_array_equal(np.concatenate([r.time for r in read.records]), whole.time)
    assert {r.attrs["initialisation_window"] for r in read.records} == {1}
    assert [r.attrs["name"] for r in read.records] == [f"trajectory, {r}" for r in ("estimation", "validation", "test")]
    assert (read.inputs, read.outputs, read.sampling_time, read.units["y"]) == (("u",), ("y",), 0.5, "V")
    assert "x" in read.estimation[0]


def test_an_empty_part_is_no_record(stored):
    read = StoredRecordings(path=stored()).load()
    assert (len(read.estimation), len(read.validation), len(read.test)) == (1, 0, 1)


def test_what_is_read_can_be_stored_as_a_benchmark(stored, tmp_path):
    read = StoredRecordings(path=stored(), outputs=["x"]).load()
    path = store.write_groups(read.to_groups(), tmp_path / "benchmark.nc", kind="benchmark")
    again = StoredRecordings(path=str(path)).load()
    assert again.outputs == ("x",)
    np.testing.assert_array_equal(again.test[0].x, read.test[0].x)


def test_trajectories_by_role_stay_apart(stored):
    paths = [stored(f"{i}.nc", n=10 + i, seed=i) for i in range(3)]
    read = StoredRecordings(estimation=paths[:2], test=paths[2]).load()
    assert [r.sizes["time"] for r in read.estimation] == [10, 11]
    np.testing.assert_array_equal(read.test[0].y, trajectory(12, seed=2).y)
    assert [r.attrs["name"] for r in read.records] == ["0", "1", "2"]


def test_signals_may_be_named_where_the_file_does_not(stored):
    path = stored(names=False)
    with pytest.raises(ValueError, match=r"which of its signals \['u', 'x', 'y'\] are inputs: set data\.inputs"):
        StoredRecordings(path=path).load()
    read = StoredRecordings(path=path, inputs=["u"], outputs=["x", "y"]).load()
    assert (read.inputs, read.outputs) == (("u",), ("x", "y"))
    with pytest.raises(ValueError, match=r"no signals \['z'\]"):
        StoredRecordings(path=path, inputs=["z"], outputs=["y"]).load()


@pytest.mark.parametrize("options", [{}, {"path": "a.nc", "test": "b.nc"}])
def test_files_are_named_in_one_way(options):
    with pytest.raises(ValueError, match=r"needs either data\.path=<benchmark.nc or trajectory.nc> or files"):
        StoredRecordings(**options).load()


@pytest.mark.parametrize("split", [[0.5, 0.5], [0.5, 0.6, -0.1], [0.5, 0.2, 0.2]])
def test_a_split_has_three_parts_of_one(split):
    with pytest.raises(ValueError, match="three parts >= 0 with a sum of 1"):
        StoredRecordings(split=split)


def test_other_files_are_told_apart(stored, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"no file .*missing\.nc"):
        StoredRecordings(path=str(tmp_path / "missing.nc")).load()
    (tmp_path / "text.nc").write_text("u,y\n1,2\n")
    with pytest.raises(store.StoreError, match=r"cannot read .*text\.nc as NetCDF"):
        StoredRecordings(path=str(tmp_path / "text.nc")).load()
    narx = store.write(trajectory(), tmp_path / "narx.nc", kind="narx")
    with pytest.raises(store.StoreError, match="holds schema 'narx', expected 'trajectory'"):
        StoredRecordings(path=str(narx)).load()
    foreign = tmp_path / "foreign.nc"
    trajectory().to_netcdf(foreign)
    with pytest.raises(store.StoreError, match="of another origin"):
        StoredRecordings(path=str(foreign)).load()
    with monkeypatch.context() as patch:
        patch.setattr(store, "SCHEMA_VERSION", 99)
        path = stored("newer.nc")
    with pytest.raises(store.StoreError, match="schema_version 99, newer"):
        StoredRecordings(path=path).load()
