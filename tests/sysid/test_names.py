"""Names of signals that files cannot hold are refused before anything is computed."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

from sysid import Narx, Recordings, StoreError, identify, make_record
from sysid.netcdf_names import obstacle_to_name
from sysid.store import read, write, write_groups

FIRST_CHARACTERS = [chr(code) for code in range(0x20, 0x7F)] + [*"éÅ日𝄞ﬁ\u00a0\u0301\u212b\u200b"]
RECORD_NAMES = ("time", "record", "part")
TOO_LONG = "日" * 70  # 210 bytes
DECOMPOSED = "e\u0301"  # an e and an accent: NetCDF makes one character of them


def netcdf_stores(name):
    """Return whether NetCDF gives back a variable and a group under this very name."""
    with netCDF4.Dataset("in memory", "w", memory=1024) as file:
        try:
            file.createDimension("n", 1)
            file.createVariable(name, "f8", ("n",))
            file.createGroup(f"{name}_")
        except (RuntimeError, OSError, ValueError):
            return False
        return [*file.variables] == [name]


@pytest.mark.parametrize("place", ["{}x", "x{}x", "x{}"])
def test_a_name_without_an_obstacle_is_one_that_netcdf_stores(place):
    for character in FIRST_CHARACTERS:
        name = place.format(character)
        if "/" not in name and not obstacle_to_name(name):
            assert netcdf_stores(name), name
    assert not obstacle_to_name("T_out [degC]")


REFUSED = ["%open", "(u)", "#1", "=u", "'u'", "~u", TOO_LONG, DECOMPOSED, *RECORD_NAMES]


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_refuses_a_name_that_its_file_cannot_hold(name):
    with pytest.raises(ValueError, match="cannot be named"):
        make_record({name: [1.0, 2.0]}, name="r", sampling_time=1.0)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("role", ["input", "output"])
def test_identify_refuses_the_name_before_it_learns(name, role):
    names = ("u", name) if role == "output" else (name, "y")
    signals = dict(zip(names, np.random.default_rng(0).normal(size=(2, 60)), strict=True))
    with pytest.raises(ValueError, match="cannot be named"):
        identify(signals, inputs=[names[0]], outputs=[names[1]], dt=1.0, narx="auto")


@pytest.mark.parametrize("name", ["time", "part"])
def test_a_data_set_with_a_signal_of_that_name_is_refused(name):
    time = np.arange(5.0)
    record = make_record({"y": time, "u": time}, name="r", sampling_time=1.0)
    record = record.assign_coords({name: ("time", time)})
    with pytest.raises(ValueError, match="cannot be named"):
        Recordings("r", (name,), ("y",), estimation=(record,))


@pytest.mark.parametrize("name", ["%y", DECOMPOSED, TOO_LONG, "y\t"])
def test_a_store_says_why_it_cannot_hold_a_name_and_writes_nothing(name, tmp_path):
    dataset = xr.Dataset({name: ("n", [1.0])})
    with pytest.raises(ValueError, match="cannot be stored"):
        write(dataset, tmp_path / "a.nc", kind="result")
    with pytest.raises(ValueError, match="cannot be stored"):
        write_groups({name: xr.Dataset({"y": ("n", [1.0])})}, tmp_path / "a.nc", kind="model")
    assert not [*tmp_path.iterdir()]
    with pytest.raises(StoreError):
        read(tmp_path / "a.nc", kind="result")


@pytest.mark.parametrize("name", ["", "%open", "a/b", "n ", "\n", TOO_LONG, DECOMPOSED])
def test_a_store_refuses_the_name_of_a_dimension_that_it_cannot_hold(name, tmp_path):
    with pytest.raises(ValueError, match=r"dimension .* cannot be stored"):
        write(xr.Dataset({"y": (name, [1.0])}), tmp_path / "x.nc", kind="result")
    assert not [*tmp_path.iterdir()]


def test_regressors_of_arrays_may_have_any_such_name():
    rows = Narx({"y": 1}, {"%open": 1}).regressors({"y": np.arange(3.0), "%open": np.ones(3)})
    assert rows.regressor.shape == (2, 2)
