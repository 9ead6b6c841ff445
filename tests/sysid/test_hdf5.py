"""Bytes of HDF5 files: the hash of the library, and what is cut off or set to zero."""

import netCDF4
import pytest

from sysid.hdf5 import lookup3, normalised


def from_memory(folder, **attributes):
    file = netCDF4.Dataset(folder / "unused.nc", mode="w", memory=1024)
    file.setncatts(attributes)
    return file.close()


def stated(content, place, width=8):
    return int.from_bytes(content[place : place + width], "little")


@pytest.mark.parametrize(("data", "value"), [(b"", 0xDEADBEEF), (b"Four score and seven years ago", 0x17770551)])
def test_hash_is_the_published_one(data, value):
    """Values that its author gives in the source of lookup3."""
    assert lookup3(data) == value


@pytest.mark.parametrize("size", [1, 50, 300, 3000])
def test_hash_and_places_are_those_of_the_library(tmp_path, size):
    """Headers of different sizes: the recomputed checksum of an untouched header is the stored one."""
    content = bytes(from_memory(tmp_path, text="x" * size))
    root = stated(content, 36)
    width = 1 << (content[root + 5] & 3)
    end = root + 22 + width + stated(content, root + 22, width)
    assert lookup3(content[root:end]) == stated(content, end, 4)
    cleaned = normalised(memoryview(content))
    assert len(cleaned) == stated(content, 28)
    assert cleaned[root + 6 : root + 22] == bytes(16) != content[root + 6 : root + 22]
    assert lookup3(cleaned[root:end]) == stated(cleaned, end, 4)
    changed = [place for place in range(len(cleaned)) if cleaned[place] != content[place]]
    assert set(changed) <= {*range(root + 6, root + 22), *range(end, end + 4)}
    assert netCDF4.Dataset("again", memory=cleaned).text == "x" * size


@pytest.mark.parametrize("content", [b"x" * 200, b"\x89HDF\r\n\x1a\n" + bytes([9]) + bytes(200)], ids=len)
def test_an_unknown_layout_stays_as_it_is(content):
    assert normalised(memoryview(content)) == content


def test_a_header_that_is_not_understood_stays_as_it_is(tmp_path):
    content = bytearray(from_memory(tmp_path, text="x"))
    content[stated(content, 36) + 40] ^= 1  # its checksum is no longer right
    assert normalised(memoryview(content)) == bytes(content[: stated(content, 28)])
