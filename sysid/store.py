"""Files of the toolbox: atomic writing and checked reading of labelled data sets (NetCDF 4).

Every file carries its schema in global attributes: ``schema`` (the kind), ``schema_version``,
``Conventions``, ``title``, ``source``, ``creation_time``, ``package_versions`` (JSON),
``source_commit`` when the package lies in a git checkout, and what the caller adds
(``configuration``, ``seed``, ``history``, timings), so that ``ncdump -h`` alone explains the file.

A file holds one data set (`write`, `read`) or several in named groups (`write_groups`, `read_groups`).

A file appears under its final name complete or not at all: the bytes are made in memory, written
to a hidden file ``.<name>.<random>.tmp`` next to it, flushed to the disk and then renamed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import xarray as xr

from sysid.atomic import StoreError, write_bytes
from sysid.netcdf import attributes_from_file, from_file, groups_from_file, groups_to_bytes, to_bytes
from sysid.provenance import package_versions, provenance

SCHEMA_VERSION = 2  # 2: a model states its mean function and its origin
OLDEST_VERSION = 1  # that can be read
CONVENTIONS = "CF-1.11"
TITLES = {
    "trajectory": "Trajectory of a dynamic system: signals over time",
    "narx": "Lag data set: regressors and targets of a NARX model",
    "result": "Result of an online identification, sample by sample",
    "model": "Identified Gaussian process model",
    "benchmark": "Benchmark of system identification: measured signals for estimation, validation and test",
    "truth": "Answer to a benchmark of system identification: noise-free outputs, states and noise",
    "validation": "Validation of an identified model: predictions, residuals and their tests",
    "study": "Comparison of criteria over tasks, settings and seeds",
    "job": "Result of one identification: summary, record and model",
    "sweep": "Results of a sweep: metrics over the swept parameters",
}
OWN_ATTRIBUTES = {
    "schema",
    "schema_version",
    "Conventions",
    "creation_time",
    "package_versions",
    "source_commit",
    "group_names",
}


Content = TypeVar("Content")


def write(
    dataset: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    kind: str,
    attributes: Mapping[str, Any] | None = None,
) -> Path:
    """Write a data set to a NetCDF 4 file that appears complete or not at all, and return its path.

    Numbers are stored with a checksum (fletcher32); arrays of 4 kB and more are also compressed
    (zlib 1 with shuffle: readable everywhere). Checksums cover neither text nor single numbers (0-d).

    Parameters
    ----------
    dataset
        Numbers, flags (bool) and text; time in seconds. It is not changed.
    path
        Final name of the file, in an existing folder. A file of that name is replaced.
    kind
        Schema of the file: a key of `TITLES`.
    attributes
        More global attributes, which win over those of the data set: ``configuration`` (resolved,
        YAML text), ``seed``, timings, ``title``, ``history``.

    Raises
    ------
    ValueError, TypeError
        Unknown kind; an attribute or a variable that NetCDF cannot give back as it was.
    StoreError
        Missing or read-only folder, full disk. A file under the final name is untouched, nothing is left.
    """
    chosen = _file_attributes(dataset.attrs, kind, attributes or {}, provenance())
    return write_bytes(to_bytes(dataset.drop_attrs(deep=False).assign_attrs(chosen)), path)


def write_groups(
    groups: Mapping[str, xr.Dataset],
    path: str | os.PathLike[str],
    *,
    kind: str,
    attributes: Mapping[str, Any] | None = None,
    reproducible: bool = False,
) -> Path:
    """Write named data sets to one NetCDF 4 file, each as a group with attributes of its own.

    Parameters
    ----------
    groups
        Name of each group to its data set; ``estimation/record_0`` is a group within a group. A group
        holds a data set or other groups, not both.
    path, kind, attributes
        As in `write`; the attributes are those of the file.
    reproducible
        True leaves out creation time and source commit, so that the same content, written by the same
        package versions, gives the same bytes.

    Raises
    ------
    ValueError, TypeError, StoreError
        As `write`; no groups, or names of groups that cannot be stored.
    """
    origin = {"package_versions": package_versions()} if reproducible else provenance()
    chosen = _file_attributes({}, kind, attributes or {}, origin | {"group_names": json.dumps(list(groups))})
    own = {
        name: dataset.drop_attrs(deep=False).assign_attrs(_inherited(dataset.attrs)) for name, dataset in groups.items()
    }
    return write_bytes(groups_to_bytes(own, chosen), path)


def read(path: str | os.PathLike[str], *, kind: str) -> xr.Dataset:
    """Read a file of `write` into memory, and check that it is what the caller expects.

    Parameters
    ----------
    path
        The file.
    kind
        Expected schema: a key of `TITLES`.

    Returns
    -------
    xarray.Dataset
        The data set as written, bit for bit, with the attributes of the file; the file is closed.

    Raises
    ------
    ValueError
        Unknown kind.
    StoreError
        Missing, truncated or damaged file (a flipped byte in an array of numbers included), a NetCDF
        file of another origin, another kind, another schema version.
    """
    return _checked_read(path, kind, lambda file: from_file(file, check=lambda found: _check_single(found, file, kind)))


def read_groups(path: str | os.PathLike[str], *, kind: str, under: str = "") -> dict[str, xr.Dataset]:
    """Read the groups of a file of `write_groups` into memory, in the order in which they were given.

    Parameters
    ----------
    path, kind
        As in `read`.
    under
        Only the group of this name, or those within it; empty: all.

    Returns
    -------
    dict of str to xarray.Dataset
        Name of each group to its data set as written, bit for bit, with the attributes of the group.

    Raises
    ------
    ValueError, StoreError
        As `read`; also for a file of `write`, which has no groups.
    """
    return _checked_read(
        path, kind, lambda file: groups_from_file(file, names=lambda found: _group_names(found, file, kind, under))
    )


def read_attributes(path: str | os.PathLike[str], *, kind: str, under: str = "") -> dict[str, dict[str, Any]]:
    """Read the attributes of groups, and of the file (under the name ""), without any data: a millisecond.

    Parameters
    ----------
    path, kind, under
        As in `read_groups`.

    Raises
    ------
    ValueError, StoreError
        As `read_groups`.
    """
    return _checked_read(
        path, kind, lambda file: attributes_from_file(file, names=lambda found: _group_names(found, file, kind, under))
    )


def read_any(path: str | os.PathLike[str], *, kind: str) -> dict[str, xr.Dataset]:
    """Read a file of `write` (under the name "") or of `write_groups`.

    Raises
    ------
    ValueError, StoreError
        As `read`.
    """
    single = _checked_read(
        path, kind, lambda file: from_file(file, check=lambda found: _check_schema(found, file, kind))
    )
    return read_groups(path, kind=kind) if "group_names" in single.attrs else {"": single}


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Attributes of a NetCDF 4 file of any kind; empty where it cannot be read, which `read` and others explain."""
    try:
        return attributes_from_file(Path(path), names=lambda found: [])[""]
    except (OSError, RuntimeError, UnicodeDecodeError):
        return {}


def _checked_read(path: str | os.PathLike[str], kind: str, load: Callable[[Path], Content]) -> Content:
    _check_kind(kind)
    path = Path(path)
    if not path.is_file():
        raise StoreError(f"no file {path}: check the path, or write it with sysid.store.write")
    try:
        return load(path)
    except StoreError:
        raise
    except (OSError, RuntimeError, ValueError, AttributeError, LookupError, TypeError) as error:
        raise StoreError(
            f"cannot read {path} as NetCDF 4 ({error}): the file is truncated, damaged or of another "
            "format; restore it from a copy or write it anew"
        ) from error


def _check_kind(kind: str) -> None:
    if kind not in TITLES:
        raise ValueError(f"kind must be one of {', '.join(TITLES)}, got {kind!r}")


def _check_schema(attributes: Mapping[str, Any], path: Path, kind: str) -> None:
    if "schema" not in attributes or "schema_version" not in attributes:
        raise StoreError(
            f"{path} is a NetCDF file of another origin: it has no attributes 'schema' and 'schema_version'; "
            "build an xarray.Dataset from it and write that with sysid.store.write"
        )
    found, version = attributes["schema"], attributes["schema_version"]
    if found != kind:
        raise StoreError(f"{path} holds schema {found!r}, expected {kind!r}: read it with kind={found!r}")
    if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        age, advice = (
            ("newer", "update sysid")
            if version > SCHEMA_VERSION
            else ("older", "write it anew with this sysid, or read it with the sysid that wrote it")
        )
        raise StoreError(
            f"{path} has schema_version {version}, {age} than this sysid reads ({OLDEST_VERSION} to {SCHEMA_VERSION}): "
            + advice
        )


def _check_single(attributes: Mapping[str, Any], path: Path, kind: str) -> None:
    _check_schema(attributes, path, kind)
    if "group_names" in attributes:
        raise StoreError(f"{path} holds the groups {attributes['group_names']}: read it with sysid.store.read_groups")


def _group_names(attributes: Mapping[str, Any], path: Path, kind: str, under: str) -> list[str]:
    _check_schema(attributes, path, kind)
    if "group_names" not in attributes:
        raise StoreError(f"{path} holds one data set and no groups: read it with sysid.store.read")
    names = list(json.loads(attributes["group_names"]))
    return [name for name in names if not under or f"{name}/".startswith(f"{under}/")]


def _file_attributes(
    inherited: Mapping[str, Any], kind: str, attributes: Mapping[str, Any], origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Global attributes of the file; those that describe the file itself cannot be chosen by the caller."""
    _check_kind(kind)
    if taken := sorted(OWN_ATTRIBUTES & attributes.keys()):
        raise ValueError(f"attributes {taken} are set by sysid.store.write itself: leave them out")
    own = {"schema": kind, "schema_version": SCHEMA_VERSION, "Conventions": CONVENTIONS} | dict(origin)
    return {"title": TITLES[kind], "source": "sysid"} | _inherited(inherited) | dict(attributes) | own


def _inherited(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a data set without those of the file that it was read from."""
    kept = {name: value for name, value in attributes.items() if name not in OWN_ATTRIBUTES}
    if kept.get("title") in TITLES.values():
        del kept["title"]
    return kept
