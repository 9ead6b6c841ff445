"""Files that say which key they belong to, and prove that not a byte of them has changed."""

import hashlib
from pathlib import Path

import xarray as xr

from sysid import store
from sysid.store import from_file, provenance, to_bytes

MARK = b"\nsha256 "
SEAL_BYTES = len(MARK) + 64


class Damaged(ValueError):
    """A file is not what was written."""


def write(dataset: xr.Dataset, path: Path, *, key: str, title: str) -> None:
    """Write a data set to a NetCDF 4 file with a digest of all its bytes at the end, complete or not at all.

    The digest lies behind what NetCDF reads: ncdump and xarray read the file as any other.

    Raises
    ------
    TypeError, ValueError
        What NetCDF cannot give back as it was.
    sysid.StoreError
        Read-only folder, full disk.
    """
    attributes = dataset.attrs | {"title": title, "source": "sysid", "key": key, **provenance()}
    content = to_bytes(dataset.drop_attrs(deep=False).assign_attrs(attributes))
    store.write_bytes(content + MARK + hashlib.sha256(content).hexdigest().encode(), path)


def read(path: Path, *, key: str) -> xr.Dataset:
    """Data set of a file.

    Raises
    ------
    FileNotFoundError
        There is none.
    Damaged
        It is truncated, changed, of another origin, or belongs to another key.
    OSError
        It cannot be read.
    """
    content = path.read_bytes()
    body, seal = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
    if not seal.startswith(MARK):
        raise Damaged("it does not end with a digest: truncated, or of another origin")
    if seal != MARK + hashlib.sha256(body).hexdigest().encode():
        raise Damaged("its digest is not that of its content")
    dataset = from_file(path)
    if dataset.attrs.get("key") != key:
        raise Damaged(f"it belongs to the key {dataset.attrs.get('key')!r}")
    return dataset
