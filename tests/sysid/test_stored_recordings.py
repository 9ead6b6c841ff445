"""Recordings from stored files: trajectories, ensembles, and runs over several records."""

import json

import numpy as np
import pytest
import xarray as xr

from data_sources import lengths_by_role, names_of, windows_of
from sysid import StoredRecordings, store


def ensemble(n_trajectories=5, n=12, *, own_input=True):
    """Return trajectories as a Monte Carlo study stores them, with numbers of each beside them."""
    u, y = np.random.default_rng(1).normal(size=(2, n_trajectories, n))
    dimensions = ("trajectory", "time")
    input_dimensions = dimensions if own_input else "time"
    input_values = u if own_input else u[0]
    return xr.Dataset(
        {
            "u": (input_dimensions, input_values, {"units": "V"}),
            "y": (dimensions, y, {"units": "V"}),
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
    """Return a single trajectory of n samples."""
    only = ensemble(1, n).isel(trajectory=0, drop=True)
    return only.drop_vars(["seed", "mass"])


@pytest.fixture
def write(tmp_path):
    """Return a function that stores a trajectory or an ensemble, and returns its path."""

    def write_dataset(dataset, name="many.nc", kind="trajectory"):
        return str(store.write(dataset, tmp_path / name, kind=kind))

    return write_dataset


def test_a_trajectory_is_cut_in_its_order(write):
    path = write(trajectory().assign(x=lambda dataset: 2 * dataset.y))
    loaded = StoredRecordings(
        path=path, split=[0.5, 0.2, 0.3], initialisation_window=1, outputs=["x"]
    ).load()
    assert lengths_by_role(loaded) == [[10], [4], [6]]
    for name in ("y", "time"):
        joined = np.concatenate([record[name] for record in loaded.records])
        np.testing.assert_array_equal(joined, trajectory()[name])
    assert names_of(loaded) == ["many, estimation", "many, validation", "many, test"]
    assert windows_of(loaded) == [1, 1, 1]
    assert loaded.inputs == ("u",)
    assert loaded.outputs == ("x",)
    assert loaded.sampling_time == 0.5
    assert loaded.units["u"] == "V"


def test_a_trajectory_is_halved_by_default(write):
    loaded = StoredRecordings(path=write(trajectory())).load()
    assert lengths_by_role(loaded) == [[10], [], [10]]


@pytest.mark.parametrize("own_input", [True, False], ids=["own inputs", "shared input"])
def test_an_ensemble_is_several_records(own_input, write):
    written = ensemble(own_input=own_input)
    path = write(written)
    loaded = StoredRecordings(path=path, split=[0.6, 0.2, 0.2], initialisation_window=2).load()
    assert lengths_by_role(loaded) == [[12, 12, 12], [12], [12]]
    for i, record in enumerate(loaded.records):
        u = written["u"][i] if own_input else written["u"]
        np.testing.assert_array_equal(record["u"], u)
        np.testing.assert_array_equal(record["y"], written["y"][i])
        assert set(record.data_vars) == {"u", "y"}
        assert record.attrs["name"] == f"many, trajectory {i}"
        assert record.attrs["seed"] == 100 + i
        assert record.attrs["mass"] == 0.5 + i
        assert record.attrs["initialisation_window"] == 2


def test_numbers_of_a_trajectory_survive_another_file(write, tmp_path):
    loaded = StoredRecordings(path=write(ensemble())).load()
    path = store.write_groups(loaded.to_groups(), tmp_path / "again.nc", kind="benchmark")
    again = StoredRecordings(path=path).load()
    assert [record.attrs["mass"] for record in again.records] == [0.5, 1.5, 2.5, 3.5, 4.5]


@pytest.mark.parametrize("own_input", [True, False], ids=["own inputs", "shared input"])
def test_every_role_may_have_files(own_input, write):
    many = write(ensemble(own_input=own_input))
    single = write(trajectory(9), "one.nc")
    loaded = StoredRecordings(estimation=[many, single], test=single).load()
    trajectories = [f"many, trajectory {i}" for i in range(5)]
    assert names_of(loaded) == [*trajectories, "one", "one"]
    np.testing.assert_array_equal(loaded.test[0].y, trajectory(9).y)


@pytest.mark.parametrize(
    ("split", "n_trajectories", "n_records"),
    [
        ([0.5, 0.0, 0.5], 2, [1, 0, 1]),
        ([0.98, 0.01, 0.01], 10, [8, 1, 1]),
        ([0.5, 0.0, 0.5], 5, [3, 0, 2]),
    ],
    ids=["two in halves", "small fractions", "five in halves"],
)
def test_every_role_gets_a_trajectory(split, n_trajectories, n_records, write):
    loaded = StoredRecordings(path=write(ensemble(n_trajectories)), split=split).load()
    assert [len(lengths) for lengths in lengths_by_role(loaded)] == n_records


def test_one_trajectory_is_too_few_to_divide(write):
    with pytest.raises(ValueError, match=r"1 trajectories.*data\.split"):
        StoredRecordings(path=write(ensemble(1))).load()


def test_records_of_a_run_over_several_records_keep_their_role(write):
    """Records are stored one after the other, with the number and the part of each sample."""
    lengths = (30, 20, 25)
    number = np.repeat(np.arange(3), lengths)
    time = np.concatenate([0.1 * np.arange(length) for length in lengths])
    joined = trajectory(75).assign_coords(
        time=("time", time, {"units": "s"}),
        record=("time", number),
        part=("time", number // 2),
    )
    loaded = StoredRecordings(path=write(joined)).load()
    assert lengths_by_role(loaded) == [[30, 20], [], [25]]
    np.testing.assert_array_equal(loaded.estimation[1]["y"], joined["y"][30:50])
    np.testing.assert_allclose(loaded.test[0]["time"], 0.1 * np.arange(25))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"path": "a.nc", "test": "b.nc"}, r"data\.path", id="two ways"),
        pytest.param({"split": [0.5, 0.2, 0.2]}, "split", id="split"),
        pytest.param({"path": "missing.nc"}, r"no file .*missing\.nc", id="no file"),
        pytest.param(
            {"path": "."},
            r"folder; name one of \['bare\.nc', 'narx\.nc', 'newer\.nc'\]",
            id="folder",
        ),
        pytest.param({"path": "narx.nc"}, "schema 'narx'", id="another schema"),
        pytest.param({"path": "newer.nc"}, "schema_version 99", id="newer schema"),
        pytest.param({"path": "bare.nc"}, r"\['u', 'y'\].*data\.inputs", id="no attributes"),
    ],
)
def test_wrong_settings_and_files_are_named(options, message, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(trajectory(), "narx.nc", kind="narx")
    write(trajectory().drop_attrs(deep=False), "bare.nc")
    with monkeypatch.context() as patch:
        patch.setattr(store, "SCHEMA_VERSION", 99)
        write(trajectory(), "newer.nc")
    with pytest.raises((ValueError, OSError), match=message):
        StoredRecordings(**options).load()
