"""Files of the toolbox: atomic writing and checked reading of labelled data sets (NetCDF 4).

Every file states its schema in global attributes: ``schema`` (the kind), ``schema_version``,
``Conventions``, ``title``, ``source``, ``creation_time``, ``package_versions`` (JSON) and, if the
package lies in a git checkout, ``source_commit``. The caller adds others (``configuration``,
``seed``, ``history``, timings), so that ``ncdump -h`` alone explains the file.

A file holds one data set (`write`, `read`) or several in named groups (`write_groups`,
`read_groups`).

A file appears under its final name complete or not at all: the bytes are made in memory, written
to a hidden file ``.<name>.<random>.tmp`` next to it, flushed to the disk and then renamed. It ends
with a seal, a digest of all bytes before it, in a place that HDF5 ignores. The seal reveals damage
before the library, which may crash on a damaged file, opens it. Files of other programs have no
seal. The seal is no signature: whoever edits a file can seal it again.

A file may come from a stranger. Before anything is read, the memory that its variables claim is
compared with the size of the file, and with `max_content_bytes`, which the environment variable
SYSID_MOST_BYTES sets.
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
from sysid.file_structure import HDF5_SIGNATURE, find_reference
from sysid.netcdf_names import obstacle_to_name, obstacle_to_path

SCHEMA_VERSION = 3  # version of the files that are written; no other version is read
CONVENTIONS = "CF-1.11"

#: kinds of files, with their titles
SCHEMA_TITLES = {
    "trajectory": "Trajectory of a dynamic system: signals over time",
    "narx": "Lag data set: regressors and targets of a NARX model",
    "result": "Result of an online identification, sample by sample",
    "plan": "Inputs chosen to learn: what was decided, planned and predicted",
    "model": "Identified Gaussian process model",
    "benchmark": (
        "Benchmark of system identification: measured signals for estimation, validation and test"
    ),
    "truth": (
        "Answer to a benchmark of system identification: noise-free outputs, states and noise"
    ),
    "validation": "Validation of an identified model: predictions, residuals and their tests",
    "study": "Comparison of criteria over tasks, settings and seeds",
    "job": "Result of one identification: summary, record and model",
    "sweep": "Results of a sweep: metrics over the swept parameters",
}

#: attributes that describe the file itself; the caller cannot set them
FILE_ATTRIBUTES = {
    "schema",
    "schema_version",
    "Conventions",
    "group_names",
    "content_sha256",
    "creation_time",
    "package_versions",
    "source_commit",
}

#: packages whose versions may change the results
NUMERICAL_PACKAGES = ("numpy", "scipy", "xarray", "netCDF4", "numba")

#: patterns of git for the Python files of the toolbox
SOURCE_PATTERNS = (
    "sysid/*.py",
    "simulators/*.py",
    "experiments/*.py",
    "hydra_plugins/*.py",
)

GIT_TIMEOUT = 2.0  # longest time that a call of git may take [s]

#: largest number of values in one chunk (1 MiB of float64)
MAX_CHUNK_VALUES = 2**17

#: Arrays of at least this size are compressed [byte].
MIN_COMPRESSED_BYTES = 4096

#: largest size in memory of the content of one file unless `MAX_CONTENT_VARIABLE` sets it [byte]
DEFAULT_MAX_CONTENT_BYTES = 8 * 2**30

#: environment variable that sets this size
MAX_CONTENT_VARIABLE = "SYSID_MOST_BYTES"

#: largest possible size in memory for each byte of a file: zlib packs at most 1030 bytes into one
MAX_COMPRESSION_RATIO = 1100

#: size in memory that a file of any size may claim [byte]
ALWAYS_ALLOWED_BYTES = 2**24

#: bytes before the digest at the end of a file
SEAL_PREFIX = b"\nsha256 "

#: length of the seal: the prefix and the digest [byte]
SEAL_BYTES = len(SEAL_PREFIX) + 64

#: size of the blocks in which a file is read to compute its digest [byte]
DIGEST_BLOCK_BYTES = 2**20

BYTES_PER_EMPTY_TEXT = 64  # memory of a text of Python without characters [byte]
BYTES_PER_CHARACTER = 4  # memory of a character in an array of texts [byte]

#: number of first bytes that contain the stated length of a file
HDF5_HEAD_BYTES = 52

#: version of HDF5's superblock -> position where it states the length of the file [byte]
HDF5_LENGTH_POSITIONS = {
    0: 40,
    1: 44,
    2: 28,
    3: 28,
}


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
    compressed (zlib level 1 with shuffle, which every reader knows). The file ends with a digest of
    all its bytes (`seal`).

    Parameters
    ----------
    dataset
        Numbers, flags (bool) and text; time in seconds. It is not changed.
    path
        Final name of the file, in an existing folder. A file of that name is replaced.
    kind
        Schema of the file: a key of `SCHEMA_TITLES`.
    attributes
        More global attributes, which replace those of the data set: ``configuration`` (resolved,
        YAML text), ``seed``, timings, ``title``, ``history``.

    Raises
    ------
    ValueError, TypeError
        Unknown kind; an attribute or a variable that NetCDF cannot give back as it was.
    StoreError
        Missing or read-only folder, full disk. An existing file of this name is untouched, and no
        temporary file is left.
    """
    file_attributes = _gather_attributes(dataset.attrs, kind, attributes or {}, provenance())
    content = to_bytes(dataset.drop_attrs(deep=False).assign_attrs(file_attributes))
    return write_bytes(seal(content), path)


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
        Data set of each group by name; ``estimation/record_0`` is a group within a group. A group
        holds a data set or other groups, not both.
    path, kind, attributes
        As in `write`; the attributes are those of the file.
    reproducible
        True: write the attribute ``content_sha256``, a digest of all groups, instead of creation
        time and source commit. Two files of the same content then have the same attributes, but
        not the same bytes, because HDF5 stores times.

    Raises
    ------
    ValueError, TypeError, StoreError
        As `write`; no groups, or names of groups that cannot be stored.
    """
    _check_groups(groups)
    written = {
        name: dataset.drop_attrs(deep=False).assign_attrs(_inherit(dataset.attrs))
        for name, dataset in groups.items()
    }
    origin = provenance()
    if reproducible:
        digests = "".join(
            f"{name} {digest(dataset, dataset.attrs)}\n" for name, dataset in written.items()
        )
        content_digest = hashlib.sha256(digests.encode()).hexdigest()
        origin = {"package_versions": package_versions(), "content_sha256": content_digest}
    origin["group_names"] = json.dumps(list(groups))
    file_attributes = _gather_attributes({}, kind, attributes or {}, origin)
    content = to_bytes(xr.Dataset(attrs=file_attributes), written)
    return write_bytes(seal(content), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Write a file that appears under its name complete or not at all, and return its path.

    Raises
    ------
    StoreError
        Missing or read-only folder, full disk. An existing file of this name is untouched, and no
        temporary file is left.
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
    """Write the names in a folder to the disk, so that a renamed file survives a loss of power.

    Windows and some network file systems cannot do it; the file is complete in any case.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _describe_failure(path: Path, size: int, error: OSError) -> str:
    """Return the message for a file that could not be written."""
    if not path.parent.is_dir():
        advice = f"the folder {path.parent} does not exist: create it or choose another one"
    elif path.is_dir():
        advice = "the name belongs to a folder: choose another name"
    else:
        advice = "free space on the disk, or choose a folder that you may write to"
    reason = error.strerror or error
    return f"could not write {path} ({size} bytes): {reason}; {advice}; nothing was changed"


def to_bytes(dataset: xr.Dataset, groups: Mapping[str, xr.Dataset] | None = None) -> bytes:
    """Return the bytes of a NetCDF 4 file that holds a data set, and others in groups.

    The file is made in memory. On a full disk HDF5 would report only "HDF error" and keep the
    failed file open, and with it the disk occupied, until the process ends. Bytes are written by
    the operating system, which reports its errors.

    Raises
    ------
    TypeError, ValueError
        A variable or an attribute that NetCDF cannot give back as it was, with its name.
    """
    given = {"": dataset, **(groups or {})}
    datasets = {name: part.drop_encoding() for name, part in given.items()}
    for part in datasets.values():
        _check(part)
    file = netCDF4.Dataset("in_memory.nc", mode="w", memory=2**16)
    try:
        for name, part in datasets.items():
            group = xr.backends.NetCDF4DataStore(file.createGroup(name) if name else file)
            encoding = {}
            for variable_name, variable in part.variables.items():
                options = _choose_encoding(variable)
                if options:
                    encoding[variable_name] = options
            part.dump_to_store(group, encoding=encoding)
    except BaseException:
        file.close()
        raise
    return _cut_padding(file.close())


def _cut_padding(content: memoryview) -> bytes:
    """Cut a file to the length that it states.

    In memory HDF5 enlarges a file in steps of 64 kB. It does not read the bytes at the end.
    """
    head = bytes(content[:HDF5_HEAD_BYTES])
    return bytes(content[: _stated_length(head, len(content))])


def _stated_length(head: bytes, otherwise: int) -> int:
    """Return the length of a file that its first bytes state; `otherwise` for another format."""
    if not head.startswith(HDF5_SIGNATURE) or len(head) != HDF5_HEAD_BYTES:
        return otherwise
    superblock_version = head[8]
    position = HDF5_LENGTH_POSITIONS.get(superblock_version)
    if position is None:
        return otherwise
    return int.from_bytes(head[position : position + 8], "little")


def seal(content: bytes) -> bytes:
    """Return the content of a file with a digest of all its bytes appended, which HDF5 ignores."""
    return content + SEAL_PREFIX + hashlib.sha256(content).hexdigest().encode()


def is_sealed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file ends with a seal, and check the file against it.

    Raises
    ------
    OSError, ValueError
        The file cannot be read, is larger than allowed, or was cut or changed.
    """
    with open(path, "rb") as file:
        head = file.read(HDF5_HEAD_BYTES)
        size = os.fstat(file.fileno()).st_size
        _check_size(path, size)
        content_end = size - SEAL_BYTES
        file.seek(max(content_end, 0))
        end_of_file = file.read()
        if not end_of_file.startswith(SEAL_PREFIX):
            if _stated_length(head, size) != size:
                raise UserError("it is not as long as it states")
            return False
        file.seek(0)
        content_digest = hashlib.sha256()
        n_left = content_end
        while block := file.read(min(DIGEST_BLOCK_BYTES, n_left)):
            content_digest.update(block)
            n_left -= len(block)
    if end_of_file != SEAL_PREFIX + content_digest.hexdigest().encode():
        raise UserError("its bytes are not those that were written")
    return True


def _check_size(path: str | os.PathLike[str], size: int) -> None:
    """Raise StoreError if a file has more bytes than its content may have, as a sparse file may."""
    allowed = max_content_bytes()
    if size > allowed:
        raise StoreError(
            f"{path} has {size} bytes, at most {allowed} are allowed: "
            f"if you trust it, set the environment variable {MAX_CONTENT_VARIABLE}={size}"
        )


def digest(dataset: xr.Dataset, attributes: Iterable[str] = ()) -> str:
    """Return the SHA-256 of the names, shapes and values of all variables, and of these attributes.

    Equal data sets have the same digest, whatever file they were read from.
    """
    sha256 = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        values = dataset[name].values
        if values.dtype.kind in "OUT":
            content = "\0".join(map(str, values.ravel())).encode()
        else:
            content = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        sha256.update(f"{name} {values.shape} ".encode() + content)
    for name in attributes:
        if name in dataset.attrs:
            value = np.asarray(dataset.attrs[name]).tolist()
            sha256.update(f"{name} {value!r} ".encode())
    return sha256.hexdigest()


# --- provenance -----------------------------------------------------------------------------------


def provenance() -> dict[str, str]:
    """Return creation time (ISO, UTC), package versions (JSON) and source commit, if there is one.

    >>> sorted(provenance().keys() - {"source_commit"})
    ['creation_time', 'package_versions']
    """
    origin = {
        "creation_time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "package_versions": package_versions(),
    }
    commit = source_commit()
    if commit:
        origin["source_commit"] = commit
    return origin


@cache
def package_versions() -> str:
    """Return the versions of Python, `sysid` and the numerical packages as a JSON object."""
    versions = {"python": platform.python_version(), "sysid": __version__}
    for name in NUMERICAL_PACKAGES:
        versions[name] = _find_version(name)
    return json.dumps(versions)


@cache
def source_commit(folder: Path = Path(__file__).parent) -> str | None:
    """Return the commit of the git checkout whose top level holds the package folder, or None.

    The commit ends in ``-modified`` if a tracked file differs from it, or if git does not track a
    Python file of the packages. A checkout further up does not count, for example that of a project
    whose virtual environment contains the package.
    """
    top = folder.resolve().parent
    lines = _git(top, "rev-parse", "--show-toplevel", "HEAD").split("\n")
    if len(lines) < 2 or Path(lines[0]).resolve() != top:
        return None
    commit = lines[1]
    list_untracked = ("ls-files", "--others", "--exclude-standard", "--", *SOURCE_PATTERNS)
    is_modified = _git(top, "diff", "--name-only", "HEAD") or _git(top, *list_untracked)
    return f"{commit}-modified" if is_modified else commit


def _git(folder: Path, *arguments: str) -> str:
    """Run git and return its output; empty if git is missing, too slow, or fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_TIMEOUT, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _find_version(package: str) -> str:
    """Return the version of a package, or "not installed"."""
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
    """Return the global attributes of a file.

    Those that describe the file itself cannot be set by the caller.
    """
    _check_kind(kind)
    reserved = sorted(FILE_ATTRIBUTES & attributes.keys())
    if reserved:
        raise UserError(
            f"attributes {reserved} are set by sysid.store.write itself: leave them out"
        )
    defaults = {"title": SCHEMA_TITLES[kind], "source": "sysid"}
    schema = {
        "schema": kind,
        "schema_version": SCHEMA_VERSION,
        "Conventions": CONVENTIONS,
    }
    return defaults | _inherit(inherited) | dict(attributes) | schema | dict(origin)


def _inherit(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a data set without those of the file that it was read from."""
    kept = {name: value for name, value in attributes.items() if name not in FILE_ATTRIBUTES}
    if kept.get("title") in SCHEMA_TITLES.values():
        del kept["title"]
    return kept


# --- checks before writing ------------------------------------------------------------------------


def _check_groups(groups: Mapping[str, xr.Dataset]) -> None:
    """Raise UserError if there is no group, or a group that cannot be stored under its name."""
    if not groups:
        raise UserError("expected at least one group, got none")
    for name in groups:
        parts = name.split("/") if isinstance(name, str) else [name]
        for part in parts:
            _check_name(f"group {name!r}: part", part)
        inside = [other for other in groups if other.startswith(f"{name}/")]
        if inside:
            raise UserError(
                f"group {name!r} cannot be stored: it holds a data set and other groups, {inside}; "
                "give it a name of its own, such as 'test/record_0'"
            )


def _check(dataset: xr.Dataset) -> None:
    """Raise an error if NetCDF cannot give back a variable, dimension or attribute as it is."""
    for dimension in dataset.sizes:
        _check_name("dimension", dimension)
    for name, value in dataset.attrs.items():
        _check_attribute("of the data set", name, value)
    for variable_name, variable in dataset.variables.items():
        _check_variable(variable_name, variable)
        for name, value in variable.attrs.items():
            _check_attribute(f"of variable {variable_name!r}", name, value)


def _check_variable(name: object, variable: xr.Variable) -> None:
    _check_name("variable", name)
    is_text = variable.dtype.kind == "U"
    if variable.dtype == object:
        is_text = all(isinstance(value, str) for value in variable.values.flat)
    if not is_text and not _is_number(variable.dtype) and variable.dtype != bool:
        raise UserTypeError(
            f"variable {name!r} is {variable.dtype}, expected integer, float32, float64, bool or "
            "text: convert it first (times to seconds in float64)"
        )


def _check_attribute(owner: str, name: object, value: object) -> None:
    _check_name(f"attribute {owner}:", name)
    if not _is_scalar(value) and not _is_plain_list(value):
        raise UserTypeError(
            f"attribute {name!r} {owner} is {value!r} ({type(value).__name__}); NetCDF gives back "
            "only text, 64-bit numbers and flat lists of at least two texts or two numbers: "
            "store json.dumps(value)"
        )


def _check_name(owner: str, name: object) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise UserError(
            f"{owner} {name!r} cannot be stored: a name is text, not empty, without '/'"
        )
    obstacle = obstacle_to_name(name)
    if obstacle:
        raise UserError(f"{owner} {name!r} cannot be stored: {obstacle}")


def _is_number(dtype: np.dtype) -> bool:
    """Whether NetCDF stores numbers of this type as they are."""
    return dtype.kind in "iu" or dtype.newbyteorder("=") in (np.float32, np.float64)


def _is_scalar(value: object) -> bool:
    """Whether a value is a text or a number that NetCDF stores as it is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _is_number(np.asarray(value).dtype)  # an integer beyond 64 bits becomes an object
    return isinstance(value, str) or (isinstance(value, np.number) and _is_number(value.dtype))


def _is_plain_list(value: object) -> bool:
    """Whether a value is a flat list of at least two texts or two numbers.

    NetCDF gives back a list of one entry as that entry.
    """
    if not isinstance(value, list | tuple | np.ndarray) or np.ndim(value) != 1:
        return False
    entries = list(value)
    if len(entries) < 2 or not all(_is_scalar(entry) for entry in entries):
        return False
    n_texts = sum(isinstance(entry, str) for entry in entries)
    return n_texts in (0, len(entries))


def _choose_encoding(variable: xr.Variable) -> dict[str, Any]:
    """Return checksum, chunks and compression of a variable.

    Text, single numbers and empty arrays have none of them.
    """
    if variable.dtype.kind not in "biuf":
        return {}
    if variable.ndim == 0 or variable.size == 0:
        return {"_FillValue": None}
    n_rows = variable.shape[0]
    max_chunk_rows = max(1, MAX_CHUNK_VALUES * n_rows // variable.size)
    is_compressed = variable.nbytes >= MIN_COMPRESSED_BYTES
    return {
        "_FillValue": None,
        "chunksizes": (min(n_rows, max_chunk_rows), *variable.shape[1:]),
        "fletcher32": True,
        "zlib": is_compressed,
        "shuffle": is_compressed,
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
        Expected schema: a key of `SCHEMA_TITLES`.

    Returns
    -------
    xarray.Dataset
        The data set as it was written, bit for bit, with the attributes of the file.

    Raises
    ------
    ValueError
        Unknown kind.
    StoreError
        The file is missing, truncated or damaged (even by a single byte of an array of numbers), or
        it is of another origin, another kind or another schema version.
    """
    with _open(path, kind) as (file, attributes):
        if "group_names" in attributes:
            names = attributes["group_names"]
            raise StoreError(
                f"{path} holds the groups {names}: read it with sysid.store.read_groups"
            )
        return _load_groups(file, [""])[""]


def read_groups(
    path: str | os.PathLike[str], *, kind: str, under: str = ""
) -> dict[str, xr.Dataset]:
    """Read the groups of a file of `write_groups` into memory, in the order of writing.

    Parameters
    ----------
    path, kind
        As in `read`.
    under
        Read only the group of this name and the groups within it; empty: all groups.

    Returns
    -------
    dict of str to xarray.Dataset
        Data set of each group by name, as it was written, bit for bit, with the attributes of the
        group.

    Raises
    ------
    ValueError, StoreError
        As `read`; also for a file of `write`, which has no groups.
    """
    with _open(path, kind) as (file, attributes):
        names = _read_group_names(attributes, path, under)
        return _load_groups(file, names)


def read_attributes(
    path: str | os.PathLike[str], *, kind: str, under: str = ""
) -> dict[str, dict[str, Any]]:
    """Read the attributes of groups, and of the file under the name "", but no variables.

    This takes about a millisecond.

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
        claim = _Claim(str(path))
        groups = {"": attributes}
        for name in names:
            groups[name] = _read_attributes(file, name)
            claim.add_texts(groups[name].values())
        return groups


def read_any(path: str | os.PathLike[str], *, kind: str) -> dict[str, xr.Dataset]:
    """Read a file of `write`, whose data set gets the name "", or of `write_groups`.

    Raises
    ------
    ValueError, StoreError
        As `read`.
    """
    with _open(path, kind) as (file, attributes):
        names = [""]
        if "group_names" in attributes:
            names = _read_group_names(attributes, path, "")
        return _load_groups(file, names)


def from_file(path: Path) -> xr.Dataset:
    """Read a NetCDF 4 file of any origin into memory as a data set; the inverse of `to_bytes`.

    The seal is not checked (`is_sealed`).

    Raises
    ------
    StoreError
        Missing, truncated or damaged file.
    """
    with _report_damage(path), _open_unless_it_refers(path) as file:
        return _load_groups(file, [""])[""]


def from_file_with_groups(path: Path) -> dict[str, xr.Dataset]:
    """Read an HDF5 file of another program and its groups, by their path; "" is the file itself.

    Groups whose name begins with ``#`` are internal to that program and are left out. Variables of
    types that NetCDF does not know are left out by NetCDF.

    Raises
    ------
    StoreError
        Missing, truncated or damaged file, or one that claims more than it may take.
    """
    with _report_damage(path), _open_unless_it_refers(path) as file:
        return _load_groups(file, ["", *_list_groups(file)])


def _list_groups(owner: netCDF4.Dataset) -> Iterator[str]:
    """Yield the paths of all groups below a group, without those that are internal."""
    for name, group in owner.groups.items():
        if not name.startswith("#"):
            yield group.path.strip("/")
            yield from _list_groups(group)


def parse_json(text: object, path: str | os.PathLike[str]) -> Any:
    """Return the content of a JSON attribute of a file.

    Raises
    ------
    StoreError
        The text is no JSON, or is nested too deeply.
    """
    with _report_damage(path):
        return json.loads(str(text))


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the attributes of a NetCDF 4 file of any kind; empty if it cannot be read.

    `read` and the other readers explain why a file cannot be read.
    """
    try:
        with _report_damage(path):
            if not Path(path).is_file():
                return {}
            is_sealed(path)
            with _open_unless_it_refers(path) as file:
                return _read_attributes(file)
    except StoreError:
        return {}


@contextmanager
def _open(
    path: str | os.PathLike[str], kind: str
) -> Iterator[tuple[netCDF4.Dataset, dict[str, Any]]]:
    """Open a file, check that it is of the expected kind, and yield it with its attributes."""
    _check_kind(kind)
    if not Path(path).is_file():
        names_inside = [file.name for file in sorted(Path(path).glob("*.nc"))]
        advice = "check the path"
        if Path(path).is_dir():
            advice = "it is a folder; name a file in it"
        if names_inside:
            advice = f"it is a folder; name one of {names_inside} in it"
        raise StoreError(f"no file {path}: {advice}, or write it with sysid.store.write")
    obstacle = obstacle_to_path(path)
    if obstacle:
        raise StoreError(f"cannot read {path}: {obstacle}")
    with _report_damage(path):
        is_sealed(path)
        file = _open_unless_it_refers(path)
    with file:
        attributes = _read_attributes(file)
        _check_schema(attributes, path, kind)
        yield file, attributes


def _open_unless_it_refers(path: str | os.PathLike[str]) -> netCDF4.Dataset:
    """Open a file that refers to no other file, and not to the same text many times.

    Raises
    ------
    StoreError
        It does.
    OSError, ValueError
        It cannot be read.
    """
    reference = find_reference(path, ALWAYS_ALLOWED_BYTES)
    if reference:
        raise StoreError(
            f"{path} refers to {reference}: it is damaged or forged; "
            "write its content to a NetCDF file of its own"
        )
    return netCDF4.Dataset(path)


@contextmanager
def _report_damage(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the errors that netCDF4, HDF5 and xarray raise for a damaged file into a `StoreError`.

    Only calls of these libraries belong inside the block: an error of our own code is not the
    file's fault.
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
            f"cannot read {path} as NetCDF 4 ({error}): the file is truncated, damaged or of "
            "another format; restore it from a copy, or write it again"
        ) from error


def _read_attributes(file: netCDF4.Dataset, group: str = "") -> dict[str, Any]:
    """Return the attributes of a file or of one of its groups."""
    with _report_damage(file.filepath()):
        owner = file[group] if group else file
        return {name: owner.getncattr(name) for name in owner.ncattrs()}


class _Claim:
    """The memory that the content of a file takes, summed over all groups that are read.

    Two names of groups may mean the same group, and a text may be referenced many times: content
    counts as often as it is read.

    Parameters
    ----------
    path
        Path of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = os.path.getsize(path)
        self._n_bytes = 0
        self._n_bytes_of_texts = 0

    def add(self, n_bytes: int) -> None:
        """Count content; raise StoreError if all takes more than the file can hold or may take."""
        self._n_bytes += n_bytes
        self._check(self._n_bytes, MAX_COMPRESSION_RATIO * self.size)

    def add_texts(self, values: Iterable[object]) -> None:
        """Count the texts among values; raise StoreError if they are longer than the file.

        A file holds each text once, and without compression.
        """
        for value in values:
            if isinstance(value, str):
                self._n_bytes_of_texts += len(value)
            elif isinstance(value, list | np.ndarray):
                texts = np.ravel(np.asarray(value, dtype=object))
                self._n_bytes_of_texts += sum(len(text) for text in texts if isinstance(text, str))
        self._check(self._n_bytes_of_texts, self.size)

    def _check(self, claimed: int, possible: int) -> None:
        if claimed > max(ALWAYS_ALLOWED_BYTES, possible):
            raise StoreError(
                f"{self.path} claims {claimed} bytes, more than its {self.size} bytes can hold: "
                "it is damaged or forged"
            )
        allowed = max_content_bytes()
        if claimed > allowed:
            raise StoreError(
                f"{self.path} takes {claimed} bytes of memory, at most {allowed} are allowed: "
                f"if you trust it, set the environment variable {MAX_CONTENT_VARIABLE}={claimed}"
            )


def _load_groups(file: netCDF4.Dataset, names: Iterable[str]) -> dict[str, xr.Dataset]:
    """Read the data sets of groups into memory; the name "" means that of the file."""
    claim = _Claim(file.filepath())
    return {name: _load(file, name, claim) for name in names}


def _load(file: netCDF4.Dataset, group: str, claim: _Claim) -> xr.Dataset:
    """Read the data set of a file or of one of its groups into memory, and count what it takes."""
    with _report_damage(claim.path):
        owner = file[group] if group else file
        stored = list(owner.variables.values())
        for variable in stored:
            if variable.dtype is not str and not isinstance(variable.datatype, np.dtype):
                raise StoreError(
                    f"{claim.path}: variable {variable.name!r} has a type of its own "
                    f"({variable.datatype}), expected numbers or texts: write it with numbers"
                )
        claim.add(sum(math.prod(v.shape) * _bytes_per_value(v) for v in stored))
        for variable in stored:
            claim.add_texts(variable.getncattr(name) for name in variable.ncattrs())
            if variable.dtype is str:
                claim.add(_bytes_as_array(variable, claim))
        dataset = xr.open_dataset(
            xr.backends.NetCDF4DataStore(owner), decode_times=False, mask_and_scale=False
        )
        dataset = dataset.load().drop_encoding()
        claim.add_texts(dataset.attrs.values())
        converted = {
            name: (variable.dims, variable.values.astype(str), variable.attrs)
            for name, variable in dataset.variables.items()
            if variable.dtype.kind == "O"
        }
        return dataset.assign(converted)


def _bytes_per_value(variable: netCDF4.Variable) -> int:
    """Return the bytes of one value in memory.

    The length of a text is known only after it has been read: it counts as an empty one. Characters
    are joined to texts, and may be texts of one character each.
    """
    if variable.dtype is str or np.dtype(variable.dtype).kind == "S":
        return BYTES_PER_EMPTY_TEXT
    return int(np.dtype(variable.dtype).itemsize)


def _bytes_as_array(variable: netCDF4.Variable, claim: _Claim) -> int:
    """Return the bytes of a variable of texts, in which each takes as much as the longest one.

    The texts are read in blocks, each of which takes at most `ALWAYS_ALLOWED_BYTES` if every text
    is as long as the file, and counted after each.
    """
    longest = 0
    for texts in _text_blocks(variable, max(ALWAYS_ALLOWED_BYTES // claim.size, 1)):
        claim.add_texts([texts])
        longest = max(longest, max(map(len, texts), default=0))
    return BYTES_PER_CHARACTER * math.prod(variable.shape) * longest


def _text_blocks(
    variable: netCDF4.Variable, max_texts: int, index: tuple[int, ...] = ()
) -> Iterator[np.ndarray]:
    """Yield the texts of a variable in blocks of at most so many, those below an index."""
    if len(index) == variable.ndim:
        yield np.array([variable[index or ...]], dtype=object)
        return
    n_rows = variable.shape[len(index)]
    n_texts_of_row = math.prod(variable.shape[len(index) + 1 :])
    if n_texts_of_row > max_texts:
        for row in range(n_rows):
            yield from _text_blocks(variable, max_texts, (*index, row))
        return
    n_rows_of_block = max_texts // max(n_texts_of_row, 1)
    for first in range(0, n_rows, n_rows_of_block):
        rows = slice(first, first + n_rows_of_block)
        yield np.ravel(np.asarray(variable[(*index, rows)], dtype=object))


def max_content_bytes() -> int:
    """Return the largest size in memory of the content of one file [byte].

    Raises
    ------
    StoreError
        The environment variable that sets it is no number above 0.
    """
    given = os.environ.get(MAX_CONTENT_VARIABLE)
    if given is None:
        return DEFAULT_MAX_CONTENT_BYTES
    n_bytes = math.nan
    with suppress(ValueError):
        n_bytes = float(given)
    if not 1 <= n_bytes < math.inf:
        raise StoreError(
            f"environment variable {MAX_CONTENT_VARIABLE}={given!r}: expected a number of bytes "
            "such as 20e9; change it, or unset it"
        )
    return int(n_bytes)


def _check_kind(kind: str) -> None:
    if kind not in SCHEMA_TITLES:
        raise UserError(f"kind must be one of {', '.join(SCHEMA_TITLES)}, got {kind!r}")


def _check_schema(attributes: Mapping[str, Any], path: str | os.PathLike[str], kind: str) -> None:
    """Raise StoreError unless a file has the expected schema in the version of this package."""
    found = attributes.get("schema")
    version = attributes.get("schema_version")
    if found is None or not isinstance(version, int | np.integer):
        raise StoreError(
            f"{path} is a NetCDF file of another origin: it has no attributes 'schema' and "
            "'schema_version'; name a file that the toolbox wrote, or build an xarray.Dataset from "
            "this one and write it with sysid.store.write"
        )
    if found != kind:
        raise StoreError(
            f"{path} holds schema {found!r}, expected {kind!r}: name another file, or read this "
            f"one with kind={found!r}"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema_version {version}, newer than this sysid reads ({SCHEMA_VERSION}): "
            "read it with the sysid that wrote it, or with a newer one"
        )
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema_version {version}, older than this sysid reads ({SCHEMA_VERSION}): "
            "read it with the sysid that wrote it, or identify or simulate again"
        )


def _read_group_names(
    attributes: Mapping[str, Any], path: str | os.PathLike[str], under: str
) -> list[str]:
    """Return the names of the groups of a file that are `under`, or of all groups."""
    if "group_names" not in attributes:
        raise StoreError(f"{path} holds one data set and no groups: read it with sysid.store.read")
    names = parse_json(attributes["group_names"], path)
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) < len(names):
        raise StoreError(
            f"{path} does not list its groups (attribute group_names): it is damaged or forged"
        )
    if not under:
        return names
    return [name for name in names if f"{name}/".startswith(f"{under}/")]
