"""Files of the toolbox: atomic writing and checked reading of labelled data sets (NetCDF 4).

Every file carries its schema in global attributes: ``schema`` (the kind), ``schema_version``,
``Conventions``, ``title``, ``source``, ``creation_time``, ``package_versions`` (JSON),
``source_commit`` when the package lies in a git checkout, and what the caller adds
(``configuration``, ``seed``, ``history``, timings), so that ``ncdump -h`` alone explains the file.

A file holds one data set (`write`, `read`) or several in named groups (`write_groups`,
`read_groups`).

A file appears under its final name complete or not at all: the bytes are made in memory, written
to a hidden file ``.<name>.<random>.tmp`` next to it, flushed to the disk and then renamed. It ends
with a seal, a digest of all bytes before it, where HDF5 does not look: damage is found before the
library, which may crash of it, opens the file. A file that another program wrote has none. It is no
signature: who edits a file can seal it.

A file may come from a stranger. Before anything is read, what its variables claim is compared with
its size, and with `MOST_BYTES`, which the environment variable SYSID_MOST_BYTES replaces.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

from sysid import __version__
from sysid.errors import UserError, UserTypeError

SCHEMA_VERSION = 3  # of files that are written, and the only one that is read
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

#: attributes that describe the file itself
OWN_ATTRIBUTES = {
    "schema",
    "schema_version",
    "Conventions",
    "group_names",
    "content_sha256",
}
OWN_ATTRIBUTES |= {"creation_time", "package_versions", "source_commit"}

PACKAGES = ("numpy", "scipy", "xarray", "netCDF4", "numba")
SOURCES = (
    "sysid/*.py",
    "simulators/*.py",
    "experiments/*.py",
    "hydra_plugins/*.py",
)  # patterns of git
GIT_TIMEOUT = 2.0  # s

CHUNK_VALUES = 2**17  # largest number of values in one chunk (1 MiB of float64)
COMPRESSED_BYTES = 4096  # arrays from this size on are compressed [byte]
MOST_BYTES = int(
    os.environ.get("SYSID_MOST_BYTES", 8 * 2**30)
)  # that the content of one file may take in memory
# bytes in memory per byte of a file: zlib packs 1030 zeros into one, and nothing more than that
MOST_RATIO = 1100
SMALL = 2**24  # bytes that any file may claim
SEAL = b"\nsha256 "  # before the digest at the end of a file
SEALED = len(SEAL) + 64  # bytes of both
BLOCK = 2**20  # bytes that are read at a time for a digest
# how a file begins; bytes up to the last of those below
HDF5 = b"\x89HDF\r\n\x1a\n"
HEAD = 52
FILE_LENGTH = {
    0: 40,
    1: 44,
    2: 28,
    3: 28,
}  # version of HDF5's superblock -> where it states the length of the file


class StoreError(OSError):
    """A file could not be written, or is not what the reader expects."""


# --- write ----------------------------------------------------------------------------------------


def write(
    dataset: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    kind: str,
    attributes: Mapping[str, Any] | None = None,
) -> Path:
    """Write a data set to a NetCDF 4 file that appears complete or not at all, and return its path.

    Arrays of numbers are stored with a checksum (fletcher32); those of 4 kB and more are also
    compressed (zlib 1 with shuffle: readable everywhere). The file ends with a digest of all its
    bytes (`seal`).

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
        Missing or read-only folder, full disk. A file under the final name is untouched, nothing is
        left.
    """
    chosen = _gather_attributes(dataset.attrs, kind, attributes or {}, provenance())
    return write_bytes(seal(to_bytes(dataset.drop_attrs(deep=False).assign_attrs(chosen))), path)


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
        Name of each group to its data set; ``estimation/record_0`` is a group within a group. A
        group holds a data set or other groups, not both.
    path, kind, attributes
        As in `write`; the attributes are those of the file.
    reproducible
        True writes the attribute ``content_sha256``, a digest of all groups, in place of creation
        time and source commit. Two files of the same content have the same attributes, but not the
        same bytes: HDF5 notes times.

    Raises
    ------
    ValueError, TypeError, StoreError
        As `write`; no groups, or names of groups that cannot be stored.
    """
    _check_groups(groups)
    own = {
        name: part.drop_attrs(deep=False).assign_attrs(_inherit(part.attrs))
        for name, part in groups.items()
    }
    origin = provenance()
    if reproducible:
        digests = "".join(f"{name} {digest(part, part.attrs)}\n" for name, part in own.items())
        content = hashlib.sha256(digests.encode()).hexdigest()
        origin = {"package_versions": package_versions(), "content_sha256": content}
    chosen = _gather_attributes(
        {}, kind, attributes or {}, origin | {"group_names": json.dumps(list(groups))}
    )
    return write_bytes(seal(to_bytes(xr.Dataset(attrs=chosen), own)), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Write a file that appears under its name complete or not at all, and return its path.

    Raises
    ------
    StoreError
        Missing or read-only folder, full disk. A file under the final name is untouched, nothing is
        left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise StoreError(_describe_failure(path, len(content), error)) from error
    _flush_folder(path.parent)
    return path


def _flush_folder(folder: Path) -> None:
    """Make the disk keep the names in a folder, so that a renamed file stays after a loss of power.

    Windows and some network file systems cannot do it; the file is complete in any case.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _describe_failure(path: Path, size: int, error: OSError) -> str:
    if not path.parent.is_dir():
        advice = f"the folder {path.parent} does not exist: create it or choose another one"
    elif path.is_dir():
        advice = "the name belongs to a folder: choose another name"
    else:
        advice = "free space on the disk, or choose a folder that you may write to"
    return f"could not write {path} ({size} bytes): {error.strerror or error}; {advice}; nothing was changed"


def to_bytes(dataset: xr.Dataset, groups: Mapping[str, xr.Dataset] | None = None) -> bytes:
    """Content of the NetCDF 4 file that holds a data set, and others in groups, made in memory.

    HDF5 reports a full disk as "HDF error" and then keeps the failed file open, and with it the
    disk occupied, until the process ends; plain bytes leave writing and its errors to the operating
    system.

    Raises
    ------
    TypeError, ValueError
        A variable or an attribute that NetCDF cannot give back as it was, with its name.
    """
    parts = {name: part.drop_encoding() for name, part in {"": dataset, **(groups or {})}.items()}
    for part in parts.values():
        _check(part)
    file = netCDF4.Dataset("in_memory.nc", mode="w", memory=2**16)
    try:
        for name, part in parts.items():
            place = xr.backends.NetCDF4DataStore(file.createGroup(name) if name else file)
            encoding = {
                owner: options
                for owner, v in part.variables.items()
                if (options := _choose_encoding(v))
            }
            part.dump_to_store(place, encoding=encoding)
    except BaseException:
        file.close()
        raise
    return _cut_padding(file.close())


def _cut_padding(content: memoryview) -> bytes:
    """Cut a file to the length that it states.

    In memory HDF5 makes it longer, in steps of 64 kB, and would not miss the end.
    """
    return bytes(content[: _stated_length(bytes(content[:HEAD]), len(content))])


def _stated_length(head: bytes, otherwise: int) -> int:
    """Length of a file by its first bytes; of another format `otherwise`."""
    place = FILE_LENGTH.get(head[8]) if head.startswith(HDF5) and len(head) == HEAD else None
    return otherwise if place is None else int.from_bytes(head[place : place + 8], "little")


def seal(content: bytes) -> bytes:
    """Content of a file with a digest of all its bytes at its end, behind what HDF5 reads."""
    return content + SEAL + hashlib.sha256(content).hexdigest().encode()


def is_sealed(path: str | os.PathLike[str]) -> bool:
    """Whether a file ends with a seal.

    Raises
    ------
    OSError, ValueError
        The file cannot be read, or was cut or changed.
    """
    with open(path, "rb") as file:
        head = file.read(HEAD)
        size = os.fstat(file.fileno()).st_size
        end = size - SEALED
        file.seek(max(end, 0))
        if not (found := file.read()).startswith(SEAL):
            if _stated_length(head, size) != size:
                raise UserError("it is not as long as it states")
            return False
        file.seek(0)
        content = hashlib.sha256()
        left = end
        while block := file.read(min(BLOCK, left)):
            content.update(block)
            left -= len(block)
    if found != SEAL + content.hexdigest().encode():
        raise UserError("its bytes are not those that were written")
    return True


def digest(dataset: xr.Dataset, attributes: Iterable[str] = ()) -> str:
    """SHA-256 of the content of a data set: names, shapes and values of all variables, and these
    attributes.

    Equal data sets have the same digest, whatever file they were read from.
    """
    found = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        values = dataset[name].values
        if values.dtype.kind in "OUT":
            content = "\0".join(map(str, values.ravel())).encode()
        else:
            content = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        found.update(f"{name} {values.shape} ".encode() + content)
    for name in attributes:
        if name in dataset.attrs:
            found.update(f"{name} {np.asarray(dataset.attrs[name]).tolist()!r} ".encode())
    return found.hexdigest()


# --- where it comes from --------------------------------------------------------------------------


def provenance() -> dict[str, str]:
    """Return the creation time (ISO, UTC), package versions (JSON) and source commit, if there is
    one.

    >>> sorted(provenance().keys() - {"source_commit"})
    ['creation_time', 'package_versions']
    """
    commit = source_commit()
    return {
        "creation_time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "package_versions": package_versions(),
        **({"source_commit": commit} if commit else {}),
    }


@cache
def package_versions() -> str:
    """Return the versions of Python and of the packages that decide the numbers, as a JSON
    object.
    """
    own = {"python": platform.python_version(), "sysid": __version__}
    return json.dumps(own | {name: _find_version(name) for name in PACKAGES})


@cache
def source_commit(folder: Path = Path(__file__).parent) -> str | None:
    """Commit of the git checkout whose top level holds the package folder; None without such a
    checkout.

    It ends in ``-modified`` if a tracked file differs from the commit, or git does not know a
    Python file of the packages. A checkout further up (say, the user's project around a virtual
    environment) does not count.
    """
    top = folder.resolve().parent
    answer = _git(top, "rev-parse", "--show-toplevel", "HEAD").split("\n")
    if len(answer) < 2 or Path(answer[0]).resolve() != top:
        return None
    unknown = ("ls-files", "--others", "--exclude-standard", "--", *SOURCES)
    is_modified = _git(top, "diff", "--name-only", "HEAD") or _git(top, *unknown)
    return answer[1] + ("-modified" if is_modified else "")


def _git(folder: Path, *arguments: str) -> str:
    """Run git and return what it prints; nothing where it is missing, slow, or refuses."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_TIMEOUT, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _gather_attributes(
    inherited: Mapping[str, Any],
    kind: str,
    attributes: Mapping[str, Any],
    origin: Mapping[str, Any],
) -> dict[str, Any]:
    """Global attributes of the file; those that describe the file itself cannot be chosen by the
    caller.
    """
    _check_kind(kind)
    if taken := sorted(OWN_ATTRIBUTES & attributes.keys()):
        raise UserError(f"attributes {taken} are set by sysid.store.write itself: leave them out")
    own = {
        "schema": kind,
        "schema_version": SCHEMA_VERSION,
        "Conventions": CONVENTIONS,
    } | dict(origin)
    return {"title": TITLES[kind], "source": "sysid"} | _inherit(inherited) | dict(attributes) | own


def _inherit(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a data set without those of the file that it was read from."""
    kept = {name: value for name, value in attributes.items() if name not in OWN_ATTRIBUTES}
    if kept.get("title") in TITLES.values():
        del kept["title"]
    return kept


# --- what can be stored ---------------------------------------------------------------------------


def _check_groups(groups: Mapping[str, xr.Dataset]) -> None:
    if not groups:
        raise UserError("expected at least one group, got none")
    for name in groups:
        for part in name.split("/") if isinstance(name, str) else [name]:
            _check_name(f"group {name!r}: part", part)
        if inside := [other for other in groups if other.startswith(f"{name}/")]:
            raise UserError(
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
        raise UserTypeError(
            f"variable {name!r} is {variable.dtype}, expected integer, float32, float64, bool or text: "
            "convert it first (times to seconds in float64)"
        )


def _check_attribute(owner: str, name: object, value: object) -> None:
    _check_name(f"attribute {owner}:", name)
    if not (_is_scalar(value) or _is_plain_list(value)):
        raise UserTypeError(
            f"attribute {name!r} {owner} is {value!r} ({type(value).__name__}); NetCDF gives back only text, "
            "64-bit numbers and flat lists of at least two texts or two numbers: store json.dumps(value)"
        )


def _check_name(owner: str, name: object) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise UserError(
            f"{owner} {name!r} cannot be stored: a name is text, not empty, without '/'"
        )


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind in "iu" or dtype.newbyteorder("=") in (np.float32, np.float64)


def _is_scalar(value: object) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _is_number(np.asarray(value).dtype)  # an integer beyond 64 bits becomes an object
    return isinstance(value, str) or (isinstance(value, np.number) and _is_number(value.dtype))


def _is_plain_list(value: object) -> bool:
    """Flat, of one type, and longer than one (NetCDF gives a list of one back as its only
    entry).
    """
    if not isinstance(value, list | tuple | np.ndarray) or np.ndim(value) != 1:
        return False
    entries = list(value)
    return (
        len(entries) > 1
        and all(map(_is_scalar, entries))
        and len({isinstance(e, str) for e in entries}) == 1
    )


def _choose_encoding(variable: xr.Variable) -> dict[str, Any]:
    """Checksum, chunks and compression of one variable; none for text, single numbers, empty
    arrays.
    """
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


# --- read -----------------------------------------------------------------------------------------


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
        Missing, truncated or damaged file (a flipped byte in an array of numbers included), a
        NetCDF file of another origin, another kind, another schema version.
    """
    with _open(path, kind) as (file, attributes):
        if "group_names" in attributes:
            names = attributes["group_names"]
            raise StoreError(
                f"{path} holds the groups {names}: read it with sysid.store.read_groups"
            )
        return _load(file)


def read_groups(
    path: str | os.PathLike[str], *, kind: str, under: str = ""
) -> dict[str, xr.Dataset]:
    """Read the groups of a file of `write_groups` into memory, in the order in which they were
    given.

    Parameters
    ----------
    path, kind
        As in `read`.
    under
        Only the group of this name, or those within it; empty: all.

    Returns
    -------
    dict of str to xarray.Dataset
        Name of each group to its data set as written, bit for bit, with the attributes of the
        group.

    Raises
    ------
    ValueError, StoreError
        As `read`; also for a file of `write`, which has no groups.
    """
    with _open(path, kind) as (file, attributes):
        return {name: _load(file, name) for name in _read_group_names(attributes, path, under)}


def read_attributes(
    path: str | os.PathLike[str], *, kind: str, under: str = ""
) -> dict[str, dict[str, Any]]:
    """Read the attributes of groups, and of the file (under the name ""), without any data: a
    millisecond.

    Parameters
    ----------
    path, kind, under
        As in `read_groups`.

    Raises
    ------
    ValueError, StoreError
        As `read_groups`.
    """
    with _open(path, kind) as (file, attributes):
        names = _read_group_names(attributes, path, under)
        return {"": attributes} | {name: _read_attributes(file, name) for name in names}


def read_any(path: str | os.PathLike[str], *, kind: str) -> dict[str, xr.Dataset]:
    """Read a file of `write` (under the name "") or of `write_groups`.

    Raises
    ------
    ValueError, StoreError
        As `read`.
    """
    with _open(path, kind) as (file, attributes):
        names = _read_group_names(attributes, path, "") if "group_names" in attributes else [""]
        return {name: _load(file, name) for name in names}


def from_file(path: Path) -> xr.Dataset:
    """Read a NetCDF 4 file of any origin into memory as a data set; the inverse of `to_bytes`.

    Raises
    ------
    StoreError
        Missing, truncated or damaged file.
    """
    with _report_damage(path), netCDF4.Dataset(path) as file:
        return _load(file)


def parse_json(text: object, path: str | os.PathLike[str]) -> Any:
    """Content of an attribute of a file.

    Raises
    ------
    StoreError
        No JSON text, or one that is nested too deep.
    """
    with _report_damage(path):
        return json.loads(str(text))


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Attributes of a NetCDF 4 file of any kind; empty where it cannot be read, which `read` and
    others explain.
    """
    try:
        with _report_damage(path):
            if not Path(path).is_file():
                return {}
            is_sealed(path)
            with netCDF4.Dataset(path) as file:
                return _read_attributes(file)
    except StoreError:
        return {}


@contextmanager
def _open(
    path: str | os.PathLike[str], kind: str
) -> Iterator[tuple[netCDF4.Dataset, dict[str, Any]]]:
    """Open file of the expected kind, and its attributes."""
    _check_kind(kind)
    if not Path(path).is_file():
        inside = [one.name for one in sorted(Path(path).glob("*.nc"))]
        advice = f"it is a folder; name one of {inside} in it" if inside else "check the path"
        raise StoreError(f"no file {path}: {advice}, or write it with sysid.store.write")
    with _report_damage(path):
        is_sealed(path)
        file = netCDF4.Dataset(path)
    with file:
        attributes = _read_attributes(file)
        _check_schema(attributes, path, kind)
        yield file, attributes


@contextmanager
def _report_damage(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what netCDF4, HDF5 and xarray raise on a damaged file into a `StoreError`.

    Only calls of them belong inside: an error of our own code is not the file's fault.
    """
    try:
        yield
    except StoreError:
        raise
    except (
        OSError,
        RuntimeError,
        ValueError,
        AttributeError,
        LookupError,
        TypeError,
        MemoryError,
    ) as error:
        raise StoreError(
            f"cannot read {path} as NetCDF 4 ({error}): the file is truncated, damaged or of another "
            "format; restore it from a copy or write it anew"
        ) from error


def _read_attributes(file: netCDF4.Dataset, group: str = "") -> dict[str, Any]:
    with _report_damage(file.filepath()):
        place = file[group] if group else file
        return {name: place.getncattr(name) for name in place.ncattrs()}


def _load(file: netCDF4.Dataset, group: str = "") -> xr.Dataset:
    path = file.filepath()
    with _report_damage(path):
        place = file[group] if group else file
        _check_claim(
            sum(math.prod(v.shape) * _bytes_of_one(v) for v in place.variables.values()),
            path,
        )
        read = [
            np.asarray(v[...], dtype=object) for v in place.variables.values() if v.dtype is str
        ]
        _check_claim(
            sum(4 * texts.size * max(map(len, texts.flat), default=0) for texts in read),
            path,
        )  # as an array
        data = xr.backends.NetCDF4DataStore(place)
        found = (
            xr.open_dataset(data, decode_times=False, mask_and_scale=False).load().drop_encoding()
        )
        texts = {name: v for name, v in found.variables.items() if v.dtype.kind == "O"}
        return found.assign(
            {name: (v.dims, v.values.astype(str), v.attrs) for name, v in texts.items()}
        )


def _bytes_of_one(variable: netCDF4.Variable) -> int:
    """Bytes of one value in memory; of a text, whose length only its reading tells, those of an
    empty one.
    """
    return 64 if variable.dtype is str else int(np.dtype(variable.dtype).itemsize)


def _check_claim(claimed: int, path: str) -> None:
    """Refuse content that would take more memory than a file of this size can hold, or than is
    allowed.
    """
    size = os.path.getsize(path)
    if claimed > max(SMALL, MOST_RATIO * size):
        raise StoreError(
            f"{path} claims {claimed} bytes, more than its {size} bytes can hold: it is damaged or forged"
        )
    if claimed > MOST_BYTES:
        raise StoreError(
            f"{path} takes {claimed} bytes of memory, at most {MOST_BYTES} are allowed: if you trust it, set the "
            f"environment variable SYSID_MOST_BYTES={claimed}"
        )


def _check_kind(kind: str) -> None:
    if kind not in TITLES:
        raise UserError(f"kind must be one of {', '.join(TITLES)}, got {kind!r}")


def _check_schema(attributes: Mapping[str, Any], path: str | os.PathLike[str], kind: str) -> None:
    found = attributes.get("schema")
    version = attributes.get("schema_version")
    if found is None or not isinstance(version, int | np.integer):
        raise StoreError(
            f"{path} is a NetCDF file of another origin: it has no attributes 'schema' and 'schema_version'; "
            "build an xarray.Dataset from it and write that with sysid.store.write"
        )
    if found != kind:
        raise StoreError(
            f"{path} holds schema {found!r}, expected {kind!r}: read it with kind={found!r}"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema_version {version}, newer than this sysid reads ({SCHEMA_VERSION}): "
            "read it with the sysid that wrote it, or with a newer one"
        )
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema_version {version}, older than this sysid reads ({SCHEMA_VERSION}): "
            "read it with the sysid that wrote it, or make it anew: identify, or simulate, again"
        )


def _read_group_names(
    attributes: Mapping[str, Any], path: str | os.PathLike[str], under: str
) -> list[str]:
    if "group_names" not in attributes:
        raise StoreError(f"{path} holds one data set and no groups: read it with sysid.store.read")
    with _report_damage(path):
        names = [str(name) for name in parse_json(attributes["group_names"], path)]
    return [name for name in names if not under or f"{name}/".startswith(f"{under}/")]
