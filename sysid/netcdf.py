"""A labelled data set as NetCDF 4 bytes and back: what the format can hold, checksums, compression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

from sysid.hdf5 import normalised

CHUNK_VALUES = 2**17  # largest number of values in one chunk (1 MiB of float64)
COMPRESSED_BYTES = 4096  # arrays from this size on are compressed [byte]
READING: dict[str, Any] = {"engine": "netcdf4", "decode_times": False, "mask_and_scale": False}


def to_bytes(dataset: xr.Dataset) -> bytes:
    """Content of the NetCDF 4 file that holds the data set, made in memory.

    HDF5 reports a full disk as "HDF error" and then keeps the failed file open, and with it the disk
    occupied, until the process ends; plain bytes leave writing and its errors to the operating system.

    Raises
    ------
    TypeError, ValueError
        A variable or an attribute that NetCDF cannot give back as it was, with its name.
    """
    return _in_memory({"": dataset})


def groups_to_bytes(groups: Mapping[str, xr.Dataset], attributes: Mapping[str, Any]) -> bytes:
    """Content of the NetCDF 4 file that holds one data set per group, and attributes for all of them.

    Raises
    ------
    TypeError, ValueError
        As `to_bytes`; no groups, or names of groups that cannot be stored.
    """
    _check_groups(groups)
    return _in_memory({"": xr.Dataset(attrs=dict(attributes)), **groups})


def from_file(path: Path, *, check: Callable[[Mapping[str, Any]], None]) -> xr.Dataset:
    """Load a NetCDF 4 file into memory and close it; `check` sees the attributes before any data is read.

    Raises
    ------
    OSError, RuntimeError, ValueError and others
        Whatever HDF5, netCDF4 and xarray raise for a damaged file, and what `check` raises.
    """
    return _load(path, None, check)


def groups_from_file(path: Path, *, names: Callable[[Mapping[str, Any]], list[str]]) -> dict[str, xr.Dataset]:
    """Load groups of a NetCDF 4 file; `names` sees the attributes of the file and says which, and in which order.

    Raises
    ------
    OSError, RuntimeError, ValueError and others
        As `from_file`.
    """
    with xr.open_dataset(path, **READING) as opened:
        chosen = names(opened.attrs)
    return {name: _load(path, name, lambda attributes: None) for name in chosen}


def attributes_from_file(path: Path, *, names: Callable[[Mapping[str, Any]], list[str]]) -> dict[str, dict[str, Any]]:
    """Attributes of the file (under the name "") and of the groups that `names` chooses; no data is read.

    Raises
    ------
    OSError, RuntimeError, ValueError and others
        As `from_file`.
    """
    with netCDF4.Dataset(path) as file:
        own = _attributes(file)
        return {"": own} | {name: _attributes(file[name]) for name in names(own)}


def _attributes(place: netCDF4.Dataset) -> dict[str, Any]:
    return {name: place.getncattr(name) for name in place.ncattrs()}


def _load(path: Path, group: str | None, check: Callable[[Mapping[str, Any]], None]) -> xr.Dataset:
    with xr.open_dataset(path, group=group, **READING) as opened:
        check(opened.attrs)
        loaded = opened.load().drop_encoding()
    texts = {name: v for name, v in loaded.variables.items() if v.dtype.kind == "O"}
    return loaded.assign({name: (v.dims, v.values.astype(str), v.attrs) for name, v in texts.items()})


def _in_memory(parts: Mapping[str, xr.Dataset]) -> bytes:
    """One data set per group, that of the file itself under the empty name."""
    parts = {group: dataset.drop_encoding() for group, dataset in parts.items()}
    for dataset in parts.values():
        _check(dataset)
    file = netCDF4.Dataset("in_memory.nc", mode="w", memory=2**16)
    try:
        for group, dataset in parts.items():
            place = xr.backends.NetCDF4DataStore(file.createGroup(group) if group else file)
            encoding = {name: options for name, v in dataset.variables.items() if (options := _encoding(v))}
            dataset.dump_to_store(place, encoding=encoding)
    except BaseException:
        file.close()
        raise
    return normalised(file.close())


def _check_groups(groups: Mapping[str, xr.Dataset]) -> None:
    if not groups:
        raise ValueError("expected at least one group, got none")
    for name in groups:
        for part in name.split("/") if isinstance(name, str) else [name]:
            _check_name(f"group {name!r}: part", part)
        if inside := [other for other in groups if other.startswith(f"{name}/")]:
            raise ValueError(
                f"group {name!r} cannot be stored: it holds a data set and other groups, {inside}; "
                "give it a name of its own, such as 'test/record_0'"
            )


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
