"""Files that take their content from elsewhere, or many times from one place, are refused.

`tests/data/references` has small files of h5py, one for each way in which HDF5 allows it.
"""

import json
import struct
import time
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

from sysid import StoreError, store
from sysid.errors import UserError
from sysid.file_structure import HDF5_SIGNATURE, _Zeros, find_reference

REFERENCES = Path(__file__).parents[1] / "data" / "references"
TEXT_LENGTH = 100_000
N_TEXTS = 300

#: file -> words of the refusal
REFUSALS = {
    "external_data": "data in another file",
    "external_data_latest": "data in another file",
    "external_data_tracked": "data in another file",
    "external_link": "external link",
    "external_link_latest": "external link",
    "external_link_many": "external link",
    "external_link_tracked": "external link",
    "external_link_packed": "links that are compressed",
    "virtual_data": "virtual data set",
    "virtual_data_latest": "virtual data set",
    "shared_attributes": "attributes that several groups share",
    "user_block": "does not begin as a NetCDF 4 file does",
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("is_sealed", [False, True], ids=["unsealed", "sealed"])
def test_a_file_with_content_of_other_files_is_refused(name, is_sealed, tmp_path):
    path = tmp_path / "file.nc"
    content = (REFERENCES / f"{name}.nc").read_bytes()
    path.write_bytes(store.seal(content) if is_sealed else content)
    with pytest.raises(StoreError, match=REFUSALS[name]):
        store.read(path, kind="trajectory")
    assert store.header(path) == {}
    with pytest.raises(StoreError, match=REFUSALS[name]):
        store.from_file(path)


def change_reserved_bytes(content, signature, position):
    """Set bytes behind a signature that HDF5 does not compare."""
    at = content.index(signature) + position
    return content[:at] + b"\x07" * 3 + content[at + 3 :]


@pytest.mark.parametrize(
    ("name", "signature"), [("external_data", b"HEAP"), ("virtual_data", b"GCOL")]
)
def test_bytes_that_mean_nothing_hide_nothing(name, signature, tmp_path):
    content = (REFERENCES / f"{name}.nc").read_bytes()
    path = tmp_path / "file.nc"
    path.write_bytes(change_reserved_bytes(content, signature, 5))
    assert find_reference(path, 2**24)


def share_last_text(path):
    """Let all references to texts of a file mean the last one, the longest."""
    content = bytearray(path.read_bytes())
    text = content.index(b"x" * TEXT_LENGTH)
    (index,) = struct.unpack_from("<H", content, text - 16)
    collection = content.rindex(b"GCOL", 0, text)
    shared = struct.pack("<IQI", TEXT_LENGTH, collection, index)
    last = content.index(shared)
    for number in range(N_TEXTS):
        content[last - 16 * number : last - 16 * number + 16] = shared
    path.write_bytes(content)
    assert path.stat().st_size < 2**18


@pytest.mark.parametrize("kind", ["column", "row", "attribute"])
def test_a_text_that_is_referenced_many_times_is_not_read(kind, tmp_path):
    path = tmp_path / "text.nc"
    texts = [f"{number:09d}" for number in range(N_TEXTS - 1)] + ["x" * TEXT_LENGTH]
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"schema": "trajectory", "schema_version": np.int64(store.SCHEMA_VERSION)})
        if kind == "attribute":
            file.setncattr_string("names", texts)
        else:
            shape = (N_TEXTS, 1) if kind == "column" else (1, N_TEXTS)
            file.createDimension("a", shape[0])
            file.createDimension("b", shape[1])
            values = np.array(texts, dtype=object).reshape(shape)
            file.createVariable("names", str, ("a", "b"))[:] = values
    share_last_text(path)
    with pytest.raises(StoreError, match=r"the same text many times, 300\d{5} bytes"):
        store.read(path, kind="trajectory")


def test_texts_are_counted_while_they_are_read(tmp_path, monkeypatch):
    """References that are compressed are found only by reading, block by block."""
    monkeypatch.setattr(store, "find_reference", lambda path, allowed: "")
    path = tmp_path / "text.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"schema": "trajectory", "schema_version": np.int64(store.SCHEMA_VERSION)})
        file.createDimension("a", N_TEXTS)
        texts = [f"{number:09d}" for number in range(N_TEXTS - 1)] + ["x" * TEXT_LENGTH]
        file.createVariable("names", str, ("a",))[:] = np.array(texts, dtype=object)
    share_last_text(path)
    with pytest.raises(StoreError, match=r"claims [12]\d{7} bytes, more than its \d{6} bytes can"):
        store.read(path, kind="trajectory")


def test_ordinary_texts_are_read(tmp_path):
    names = np.array([[f"a{i}{j}" for j in range(50)] for i in range(400)])
    dataset = xr.Dataset({"names": (("i", "j"), names), "one": "text", "none": ("k", names[:0, 0])})
    store.write(dataset, tmp_path / "text.nc", kind="narx", attributes={"listed": ["a", "b"]})
    read = store.read(tmp_path / "text.nc", kind="narx")
    assert (read["names"].values == names).all()
    assert str(read["one"].values) == "text"
    assert read.sizes["k"] == 0


@pytest.mark.parametrize("name", sorted(path.name for path in REFERENCES.parent.glob("*.nc")))
def test_files_of_the_toolbox_refer_to_nothing(name):
    assert find_reference(REFERENCES.parent / name, 2**24) == ""


# --- sums over groups -----------------------------------------------------------------------------


def write_groups(path, names, listed, n_values=1_500_000):
    """Write groups with arrays of 12 MB that were never filled, and list names of groups."""
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"schema": "job", "schema_version": np.int64(store.SCHEMA_VERSION)})
        file.setncattr("group_names", json.dumps(listed))
        for name in names:
            group = file.createGroup(name)
            group.createDimension("n", n_values)
            group.createVariable("x", "f8", ("n",), zlib=True, chunksizes=(2**17,))


def test_a_group_of_the_size_that_is_always_allowed_is_read(tmp_path):
    write_groups(tmp_path / "job.nc", ["a"], ["a"])
    assert store.read_groups(tmp_path / "job.nc", kind="job")["a"].sizes["n"] == 1_500_000


@pytest.mark.parametrize("listed", [["a", "b"], ["a", "./a"], ["a", "/a"]], ids=str)
def test_the_claims_of_all_groups_count_together(tmp_path, listed):
    write_groups(tmp_path / "job.nc", ["a", "b"], listed)
    with pytest.raises(StoreError, match=r"claims 24000000 bytes|cannot read"):
        store.read_groups(tmp_path / "job.nc", kind="job")


@pytest.mark.parametrize("listed", [["a", "a"], {"a": 1}, [["a"]], "a", [1]], ids=str)
def test_a_list_of_groups_names_each_group_once(tmp_path, listed):
    write_groups(tmp_path / "job.nc", ["a"], listed, n_values=200_000)
    with pytest.raises(StoreError, match="does not list its groups"):
        store.read_groups(tmp_path / "job.nc", kind="job")


@pytest.mark.parametrize("kind", ["sequences", "records"])
def test_variables_of_types_of_their_own_are_refused(tmp_path, kind):
    path = tmp_path / "narx.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"schema": "narx", "schema_version": np.int64(store.SCHEMA_VERSION)})
        file.createDimension("n", 3)
        own_type = file.createVLType(np.float64, "t")
        if kind == "records":
            own_type = file.createCompoundType(np.dtype([("a", "f8"), ("b", "i4")]), "c")
        file.createVariable("x", own_type, ("n",))
    with pytest.raises(StoreError, match="has a type of its own"):
        store.read(path, kind="narx")


def test_single_characters_count_as_texts(tmp_path):
    path = tmp_path / "narx.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"schema": "narx", "schema_version": np.int64(store.SCHEMA_VERSION)})
        file.createDimension("n", 10_000_000)
        file.createDimension("one", 1)
        variable = file.createVariable("x", "S1", ("n", "one"), zlib=True, chunksizes=(2**20, 1))
        variable.setncattr("_Encoding", "utf-8")
    with pytest.raises(StoreError, match="claims 640000000 bytes"):
        store.read(path, kind="narx")


def test_a_file_of_more_than_the_allowed_size_is_not_read(tmp_path):
    path = tmp_path / "narx.nc"
    store.write(xr.Dataset({"x": 1.0}), path, kind="narx")
    with open(path, "r+b") as file:
        file.truncate(2**40)  # without content on the disk
    with pytest.raises(StoreError, match="has 1099511627776 bytes, at most 8589934592"):
        store.read(path, kind="narx")
    assert store.header(path) == {}


#: beginning of an HDF5 file whose addresses count from its first byte
HDF5_HEAD = HDF5_SIGNATURE + bytes(56)

#: bytes that fill a file, each of which seems to begin something
ENDLESS = {
    "local heaps": b"HEAP\0",
    "collections": b"GCOL\1\0\0\0" + struct.pack("<Q", 2**20) + struct.pack("<HHxxxxQ", 1, 1, 16),
    "links": b"\x01\x0a\x40\x70\x70\x02\0",
    "links without a zero": b"\x01\x09\x40\x70\x70",
    "layouts": b"\x04\x03",
}


@pytest.mark.parametrize("pattern", ENDLESS.values(), ids=ENDLESS)
def test_a_file_is_searched_in_a_time_that_its_length_justifies(pattern, tmp_path):
    path = tmp_path / "forged.nc"
    path.write_bytes(HDF5_HEAD + pattern * (2**20 // len(pattern)))
    start = time.process_time()
    try:
        found = find_reference(path, 2**24)
    except UserError as error:
        found = str(error)
    assert found in ("", "its collections of texts overlap each other")
    assert time.process_time() - start < 10


def test_a_name_is_searched_for_zeros_from_any_position():
    content = b"ab\0cdef\0gh"
    zeros = _Zeros(content)
    for begin, end in [(0, 2), (0, 3), (3, 7), (4, 7), (3, 8), (1, 2), (1, 4), (8, 10), (5, 7)]:
        assert zeros.is_free(begin, end) == (b"\0" not in content[begin:end])
