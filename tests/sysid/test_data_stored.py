"""Stored benchmarks and trajectories as sources."""

import json

import numpy as np
import pytest
import xarray as xr

from sysid import store
from sysid.data.source import DataError
from sysid.data.stored import StoredRecordings
from sysid.narx import Narx
from sysid.recordings import ROLES, Recordings, make_record


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
    for options in ({"path": str(narx)}, {"test": str(narx)}):
        with pytest.raises(DataError, match=r"kind 'narx', expected benchmark\.nc or trajectory\.nc"):
            StoredRecordings(**options).load()
    truth = store.write_groups({"test": trajectory()}, tmp_path / "truth.nc", kind="truth")
    with pytest.raises(
        DataError, match=r"truth\.nc is a file of kind 'truth', expected benchmark\.nc or trajectory\.nc"
    ):
        StoredRecordings(path=str(truth)).load()
    foreign = tmp_path / "foreign.nc"
    trajectory().to_netcdf(foreign)
    with pytest.raises(store.StoreError, match="of another origin"):
        StoredRecordings(path=str(foreign)).load()
    with monkeypatch.context() as patch:
        patch.setattr(store, "SCHEMA_VERSION", 99)
        path = stored("newer.nc")
    with pytest.raises(store.StoreError, match="schema_version 99, newer"):
        StoredRecordings(path=path).load()


def ensemble(n_trajectories=5, n=12, *, own_input=True):
    """Trajectories in the form of a Monte Carlo study: (trajectory, time), numbers of each beside them."""
    values = np.random.default_rng(1).normal(size=(2, n_trajectories, n))
    both = ("trajectory", "time")
    return xr.Dataset(
        {
            "u": (both, values[0], {"units": "V"}) if own_input else ("time", values[0, 0], {"units": "V"}),
            "y": (both, values[1], {"units": "V"}),
            "seed": ("trajectory", np.arange(n_trajectories) + 100),
            "mass": ("trajectory", np.arange(n_trajectories) + 0.5),
        },
        coords={"time": ("time", 0.5 * np.arange(n), {"units": "s"}), "trajectory": np.arange(n_trajectories)},
        attrs={"system": "toy", "inputs": json.dumps(["u"]), "outputs": json.dumps(["y"])},
    )


@pytest.mark.parametrize("own_input", [True, False])
def test_an_ensemble_is_several_recordings(own_input, tmp_path):
    written = ensemble(own_input=own_input)
    path = store.write(written, tmp_path / "many.nc", kind="trajectory")
    read = StoredRecordings(path=str(path), split=[0.6, 0.2, 0.2], initialisation_window=2).load()
    assert [len(getattr(read, role)) for role in ROLES] == [3, 1, 1]
    for i, record in enumerate(read.records):
        assert record["u"].dims == record["y"].dims == ("time",)
        np.testing.assert_array_equal(record["y"], written["y"][i])
        np.testing.assert_array_equal(record["u"], written["u"][i] if own_input else written["u"])
        assert set(record.data_vars) == {"u", "y"}
        assert record.attrs["name"] == f"many, trajectory {i}"
        assert (record.attrs["seed"], record.attrs["mass"]) == (100 + i, 0.5 + i)
        assert record.attrs["initialisation_window"] == 2
    assert read.units == {"u": "V", "y": "V"}
    again = store.write_groups(read.to_groups(), tmp_path / "benchmark.nc", kind="benchmark")
    for one, two in zip(read.records, StoredRecordings(path=str(again)).load().records, strict=True):
        xr.testing.assert_equal(one, two)
        assert one.attrs["mass"] == two.attrs["mass"]


def test_no_lag_reaches_from_one_trajectory_into_another(tmp_path):
    path = store.write(ensemble(), tmp_path / "many.nc", kind="trajectory")
    read = StoredRecordings(path=str(path), split=[0.8, 0.0, 0.2]).load()
    rows = Narx({"y": 2}, {"u": 1}).dataset(read.estimation)
    assert rows.sizes["sample"] == 4 * (12 - 2)
    y = ensemble()["y"].values
    for row in (0, 9, 10, 39):
        i, k = divmod(row, 10)
        np.testing.assert_array_equal(rows["regressor"][row, :2], [y[i, k + 1], y[i, k]])


def test_ensembles_may_be_named_by_role(stored, tmp_path):
    path = str(store.write(ensemble(3), tmp_path / "many.nc", kind="trajectory"))
    read = StoredRecordings(estimation=path, test=stored("one.nc")).load()
    assert [r.attrs["name"] for r in read.records] == [*(f"many, trajectory {i}" for i in range(3)), "one"]


@pytest.mark.parametrize(
    ("split", "n", "expected"),
    [
        ([0.5, 0.0, 0.5], 2, [1, 0, 1]),
        ([0.9, 0.05, 0.05], 3, [1, 1, 1]),
        ([0.9, 0.05, 0.05], 20, [18, 1, 1]),
        ([0.98, 0.01, 0.01], 10, [8, 1, 1]),
        ([0.5, 0.0, 0.5], 5, [3, 0, 2]),
        ([1.0, 0.0, 0.0], 4, [4, 0, 0]),
    ],
)
def test_every_part_has_a_trajectory(split, n, expected, tmp_path):
    path = store.write(ensemble(n), tmp_path / "many.nc", kind="trajectory")
    read = StoredRecordings(path=str(path), split=split).load()
    assert [len(getattr(read, role)) for role in ROLES] == expected


def test_more_parts_than_trajectories_are_refused(tmp_path):
    path = store.write(ensemble(1), tmp_path / "many.nc", kind="trajectory")
    with pytest.raises(ValueError, match=r"holds 1 trajectories, data\.split=.* needs at least 2.*set parts to 0"):
        StoredRecordings(path=str(path)).load()


def test_records_of_a_run_over_several_records_keep_their_part(tmp_path):
    """What `sysid-identify data=...` stores: records behind each other, told apart by number and part."""
    lengths, n = (30, 20, 25), 75
    number = np.repeat(np.arange(3), lengths)
    time = np.concatenate([0.1 * np.arange(length) for length in lengths])
    values = np.random.default_rng(0).normal(size=(2, n))
    joined = xr.Dataset(
        {"u": ("time", values[0]), "y": ("time", values[1])},
        coords={"time": ("time", time, {"units": "s"}), "record": ("time", number), "part": ("time", number // 2)},
        attrs={"inputs": '["u"]', "outputs": '["y"]'},
    )
    store.write(joined, tmp_path / "trajectory.nc", kind="trajectory")
    found = StoredRecordings(path=str(tmp_path / "trajectory.nc")).load()
    assert [record.sizes["time"] for record in found.estimation] == [30, 20]
    assert [record.sizes["time"] for record in found.test] == [25]
    np.testing.assert_array_equal(found.estimation[1]["y"], values[1, 30:50])
    np.testing.assert_allclose(found.test[0]["time"], 0.1 * np.arange(25))
