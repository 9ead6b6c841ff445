"""A labelled data set as NetCDF 4 bytes and back: what the format can hold, checksums, compression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

CHUNK_VALUES = 2**17  # largest number of values in one chunk (1 MiB of float64)
COMPRESSED_BYTES = 4096  # arrays from this size on are compressed [byte]


def to_bytes(dataset: xr.Dataset) -> memoryview:
    """Content of the NetCDF 4 file that holds the data set, made in memory.

    HDF5 reports a full disk as "HDF error" and then keeps the failed file open, and with it the disk
    occupied, until the process ends; plain bytes leave writing and its errors to the operating system.

    Raises
    ------
    TypeError, ValueError
        A variable or an attribute that NetCDF cannot give back as it was, with its name.
    """
    dataset = dataset.drop_encoding()
    _check(dataset)
    encoding = {name: options for name, v in dataset.variables.items() if (options := _encoding(v))}
    file = netCDF4.Dataset("in_memory.nc", mode="w", memory=2**16)
    try:
        dataset.dump_to_store(xr.backends.NetCDF4DataStore(file), encoding=encoding)
    except BaseException:
        file.close()
        raise
    return _without_padding(file.close())


def from_file(path: Path, *, check: Callable[[Mapping[str, Any]], None]) -> xr.Dataset:
    """Load a NetCDF 4 file into memory and close it; `check` sees the attributes before any data is read.

    Raises
    ------
    OSError, RuntimeError, ValueError and others
        Whatever HDF5, netCDF4 and xarray raise for a damaged file, and what `check` raises.
    """
    with xr.open_dataset(path, engine="netcdf4", decode_times=False, mask_and_scale=False) as opened:
        check(opened.attrs)
        loaded = opened.load().drop_encoding()
    texts = {name: v for name, v in loaded.variables.items() if v.dtype.kind == "O"}
    return loaded.assign({name: (v.dims, v.values.astype(str), v.attrs) for name, v in texts.items()})


def _check(dataset: xr.Dataset) -> None:
    for name, value in dataset.attrs.items():
        _check_attribute("of the data set", name, value)
    for owner, variable in dataset.variables.items():
        _check_variable(owner, variable)
        for name, value in variable.attrs.items():
            _check_attribute(f"of variable {owner!r}", name, value)


def _check_variable(name: object, variable: xr.Variable) -> None:
    _check_name("variable", name)
    is_text = variable.dtype.kind == "U" or (
        variable.dtype == object and all(isinstance(value, str) for value in variable.values.flat)
    )
    if not is_text and not _is_number(variable.dtype) and variable.dtype != bool:
        raise TypeError(
            f"variable {name!r} is {variable.dtype}, expected integer, float32, float64, bool or text: "
            "convert it first (times to seconds in float64)"
        )


def _check_attribute(owner: str, name: object, value: object) -> None:
    _check_name(f"attribute {owner}:", name)
    if not (_is_scalar(value) or _is_plain_list(value)):
        raise TypeError(
            f"attribute {name!r} {owner} is {value!r} ({type(value).__name__}); NetCDF gives back only text, "
            "64-bit numbers and flat lists of at least two texts or two numbers: store json.dumps(value)"
        )


def _check_name(owner: str, name: object) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"{owner} {name!r} cannot be stored: a name is text, not empty, without '/'")


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind in "iu" or dtype.newbyteorder("=") in (np.float32, np.float64)


def _is_scalar(value: object) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _is_number(np.asarray(value).dtype)  # an integer beyond 64 bits becomes an object
    return isinstance(value, str) or (isinstance(value, np.number) and _is_number(value.dtype))


def _is_plain_list(value: object) -> bool:
    """Flat, of one type, and longer than one (NetCDF gives a list of one back as its only entry)."""
    if not isinstance(value, list | tuple | np.ndarray) or np.ndim(value) != 1:
        return False
    entries = list(value)
    return len(entries) > 1 and all(map(_is_scalar, entries)) and len({isinstance(e, str) for e in entries}) == 1


def _without_padding(content: memoryview) -> memoryview:
    """Cut off the zeros after the end of the file that its superblock states (HDF5 format, version 0 to 3).

    HDF5 grows a file in memory in steps of 64 kB; without them a file cut short is always noticed.
    """
    place = {0: 40, 1: 44, 2: 28, 3: 28}.get(content[8])  # of the 8 bytes that state the end, by version
    return content if place is None else content[: int.from_bytes(content[place : place + 8], "little")]


def _encoding(variable: xr.Variable) -> dict[str, Any]:
    """Checksum, chunks and compression of one variable; none for text, single numbers, empty arrays."""
    if variable.dtype.kind not in "biuf":
        return {}
    if variable.ndim == 0 or variable.size == 0:
        return {"_FillValue": None}
    rows = max(1, CHUNK_VALUES * variable.shape[0] // variable.size)
    compressed = variable.nbytes >= COMPRESSED_BYTES
    return {
        "_FillValue": None,
        "chunksizes": (min(variable.shape[0], rows), *variable.shape[1:]),
        "fletcher32": True,
        "zlib": compressed,
        "shuffle": compressed,
        "complevel": 1,
    }
