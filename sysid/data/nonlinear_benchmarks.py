"""Exchange of records with the package ``nonlinear_benchmarks``, the loader of
nonlinearbenchmark.org, and its sets.
"""

import difflib
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from sysid.data.published import DATA_VARIABLE, cache_folder, fetch_alone
from sysid.data.source import (
    ROLES,
    DataError,
    DataSource,
    Recordings,
    make_record,
    optional_package,
)
from sysid.errors import UserError
from sysid.narx.record import Array

PACKAGE = "nonlinear_benchmarks"
# address that keeps the package from downloading into a folder of local copies
NOWHERE = "file:///nowhere/"

FOLDERS = {"WienerHammerstein_Process_Noise": "WienHammer"}  # of sets whose folder has another name
OWN = {
    "Cascaded_Tanks": "cascaded_tanks",
    "Silverbox": "silverbox",
    "BoucWen": "bouc_wen",
}  # sources with local copies
ARCHIVES = {  # of sets whose archive the package names by the end of its address
    "CED": "FULLTEXT01.zip",
    "WienerHammerBenchMark": "WienerHammerBenchMark.mat",
}


@runtime_checkable
class InputOutput(Protocol):
    """What is read of a record of the package; u and y are (n,) or (n, channels)."""

    u: Any
    y: Any
    sampling_time: Any  # s, None where it is not known
    name: str
    state_initialization_window_length: int | None  # samples, None where there is none


class Exchanged(NamedTuple):
    """Records of the package by role, each a tuple of
    ``nonlinear_benchmarks.Input_output_data``.
    """

    estimation: tuple[Any, ...]
    validation: tuple[Any, ...]
    test: tuple[Any, ...]


def from_nonlinear_benchmarks(
    estimation: Sequence[InputOutput] = (),
    validation: Sequence[InputOutput] = (),
    test: Sequence[InputOutput] = (),
    *,
    name: str,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    sampling_time: float | None = None,
    initialisation_window: int | None = None,
    units: Mapping[str, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Recordings:
    """Collect records of the package in a data split; every record starts at time 0.

    Parameters
    ----------
    estimation, validation, test
        Records of each role.
    inputs, outputs
        Names of the channels; None: ``u`` and ``y``, numbered from 1 where there are several.
    sampling_time
        That of records which do not state it [s].
    initialisation_window
        That of all validation and test records; None: what each record states, 0 where it states
        nothing.
    units, attributes
        Of the signals, by name, and of every record.

    Raises
    ------
    ValueError
        No record; no sampling time, or two different ones; a wrong number of names; what
        `Recordings` refuses.
    """
    given = dict(zip(ROLES, (estimation, validation, test), strict=True))
    records = [record for role in given.values() for record in role]
    if not records:
        raise UserError(
            f"from_nonlinear_benchmarks({name!r}): expected at least one record, got none"
        )
    u = _name_channels("u", inputs, records[0].u)
    y = _name_channels("y", outputs, records[0].y)
    converted = {
        role: tuple(
            make_record(
                _split_channels(u, record.u) | _split_channels(y, record.y),
                name=record.name or f"{name}, {role} {number}",
                sampling_time=_read_sampling_time(record, sampling_time),
                initialisation_window=_read_window(
                    record, None if role == "estimation" else initialisation_window
                ),
                units=units,
                attributes=attributes,
            )
            for number, record in enumerate(members)
        )
        for role, members in given.items()
    }
    return Recordings(name, u, y, **converted)


def to_nonlinear_benchmarks(recordings: Recordings) -> Exchanged:
    """Convert every record to the record type of the package.

    It holds u (n,) or (n, inputs), y alike, the sampling time, the name and the window.

    Units, names of signals and the start time have no place there and are left out.

    Raises
    ------
    DataError
        The package is not installed.
    ValueError
        A data split without inputs, or of rows without time.
    """
    if not recordings.inputs or recordings.is_static:
        raise UserError(
            f"recordings {recordings.name!r} have no inputs or no time: the record type of nonlinear_benchmarks "
            "needs both"
        )
    package = optional_package(PACKAGE, "converting to its type of record")

    def convert(record: xr.Dataset) -> Any:
        u, y = (
            record[names[0]].values
            if len(names) == 1
            else np.column_stack([record[name].values for name in names])
            for names in (recordings.inputs, recordings.outputs)
        )
        window = record.attrs["initialisation_window"]
        return package.Input_output_data(
            u, y, recordings.sampling_time, record.attrs["name"], window
        )

    return Exchanged(*(tuple(map(convert, getattr(recordings, role))) for role in ROLES))


def _name_channels(letter: str, given: Sequence[str] | None, values: Any) -> tuple[str, ...]:
    n = 1 if np.ndim(values) == 1 else np.shape(values)[1]
    numbered = (letter,) if n == 1 else tuple(f"{letter}{i + 1}" for i in range(n))
    names = numbered if given is None else tuple(given)
    if len(names) != n:
        raise UserError(f"expected {n} names for the channels of {letter}, got {list(names)}")
    return names


def _split_channels(names: Sequence[str], values: Any) -> dict[str, Array]:
    array = np.asarray(values, dtype=np.float64)
    columns = array[:, None] if array.ndim == 1 else array
    if columns.ndim != 2 or columns.shape[1] != len(names):
        raise UserError(
            f"expected channels {list(names)} in every record, got an array of shape {array.shape}"
        )
    return {name: columns[:, i] for i, name in enumerate(names)}


def _read_sampling_time(record: InputOutput, given: float | None) -> float:
    stated = None if record.sampling_time is None else float(np.squeeze(record.sampling_time))
    if stated is None and given is None:
        raise UserError(
            f"record {record.name!r} does not state its sampling time: give it [s] (data.dt)"
        )
    if stated is not None and given is not None and abs(stated - given) > 1e-6 * stated:
        raise UserError(
            f"record {record.name!r} has the sampling time {stated:g} s, not {given:g} s: leave it out"
        )
    return float(given if stated is None else stated)  # type: ignore[arg-type]


def _read_window(record: InputOutput, given: int | None) -> int:
    return int(given if given is not None else record.state_initialization_window_length or 0)


@dataclass(frozen=True)
class NonlinearBenchmark(DataSource):
    """One of the sets of nonlinearbenchmark.org, split as its loader splits it.

    ``CED``, ``EMPS``, ``Cascaded_Tanks``, ``Silverbox``, ``WienerHammerBenchMark``, ``ParWH``,
    ``F16``, and ``BoucWen``, ``WienerHammerstein_Process_Noise``, ``Industrial_robot``, for which
    no split is official (records without one all become test records). Signals are ``u`` and ``y``,
    or ``u1``, ``u2``, ...

    The package (``pip install -e ".[records]"``) fetches the files itself, from the addresses of
    their authors, without checksums and, in 1.0.1, without verifying certificates: the records
    carry the SHA-256 of their numbers (attribute ``sha256``), which `sha256` pins. Files enter the
    cache only after they were read completely. Local copies lie as the package leaves them, in
    ``<folder>/<set>/`` or ``<folder>/nonlinear_benchmarks/<set>/``.

    Licences and citations are those of each set: see its page on nonlinearbenchmark.org.

    Raises
    ------
    ValueError
        On `load`: no name or an unknown one; no sampling time for a set that states none.
    """

    name: str | None = None  # set, by the name of its function in the package
    path: str | None = (
        None  # folder with local copies; None: that of SYSID_DATA, else the cache, else a download
    )
    dt: float | None = None  # sampling time of sets that do not state it, s
    initialisation_window: int | None = (
        None  # samples of each test that are not judged; None: as the package says
    )
    sha256: str | None = None  # expected checksum of the numbers; None: not compared

    def load(self) -> Recordings:
        """Read the set; see `DataSource.load`."""
        package = optional_package(PACKAGE, "data=nonlinear_benchmarks")
        known = {function.__name__: function for function in [*package.all_benchmarks, package.F16]}
        if self.name not in known:
            near = difflib.get_close_matches(str(self.name), known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(
                f"NonlinearBenchmark(name={self.name!r}): expected one of {', '.join(known)}{hint}"
            )
        result = self._obtain(known[self.name])
        parts = (
            ([], result) if isinstance(result, list) else result
        )  # a list has no split: all of it tests
        estimation, test = (list(_flatten(members)) for members in parts)
        found = _compute_checksum([*estimation, *test])
        if self.sha256 is not None and found != self.sha256:
            raise DataError(
                f"the numbers of {self.name} have sha256 {found}, expected {self.sha256}: use an unchanged copy, "
                "or correct data.sha256"
            )
        return from_nonlinear_benchmarks(
            estimation,
            test=test,
            name=str(self.name),
            sampling_time=self.dt,
            initialisation_window=self.initialisation_window,
            attributes={
                "source": "https://www.nonlinearbenchmark.org",
                "licence": "see the page of the set",
                "citation": "see the page of the set",
                "loader": f"{PACKAGE} {version(PACKAGE)}",
                "sha256": found,
            },
        )

    def _obtain(self, function: Callable[..., Any]) -> Any:
        place = cache_folder() / PACKAGE
        name = str(self.name)
        folder = self._local()
        if folder is None:
            folder = place / name
            if not folder.is_dir():
                with fetch_alone(place, name):
                    if not folder.is_dir():  # another process may have been faster
                        return _download(function, place, name)
        return _call(function, folder, url=NOWHERE + ARCHIVES.get(name, ""))

    def _local(self) -> Path | None:
        """Folder in which the folder of the set lies, or None."""
        given = self.path or os.environ.get(DATA_VARIABLE)
        name = FOLDERS.get(str(self.name), str(self.name))
        for folder in (Path(given), Path(given, PACKAGE)) if given else ():
            if (folder / name).is_dir():
                return folder
        if self.path:
            raise DataError(
                f"data.path={self.path!r} holds neither {name}/ nor {PACKAGE}/{name}/: {_advise(name)}"
            )
        return None


def _advise(name: str) -> str:
    return (
        f"copy the folder {name} of the cache of {PACKAGE} from a computer with a network, and name the folder around "
        f"it with data.path or the environment variable {DATA_VARIABLE}"
    )


def _call(
    function: Callable[..., Any],
    folder: Path,
    final: Path | None = None,
    **options: Any,
) -> Any:
    """Let the package read, and where it has to also fetch, the files of a set in this folder, to
    stay in `final`.
    """
    try:
        return function(dir_placement=str(folder), **options)
    except Exception as error:  # the package raises plain exceptions
        said = str(error).replace(str(folder), str(final or folder))
        name = FOLDERS.get(function.__name__, function.__name__)
        own = (
            f"; data={OWN[name]} reads this set from local copies of single files too"
            if name in OWN
            else ""
        )
        raise DataError(
            f"{PACKAGE} could not provide {function.__name__} in {final or folder} ({type(error).__name__}: {said}); "
            f"connect to the network, or {_advise(name)}; complete copies hold the downloaded archive too{own}"
        ) from error


def _download(function: Callable[..., Any], place: Path, name: str) -> Any:
    """Fetch a set into the cache, where it appears after it was read completely, or not at all."""
    with tempfile.TemporaryDirectory(
        dir=place, prefix=f".{name}.", suffix=".tmp", ignore_cleanup_errors=True
    ) as own:
        temporary = Path(own, name)
        temporary.mkdir()
        with redirect_stdout(
            io.StringIO()
        ):  # the package prints every attempt, with the temporary folder
            result = _call(function, temporary, place / name)
        try:
            os.replace(temporary, place / name)
        except OSError:
            if not (
                place / name
            ).is_dir():  # another computer with the same cache may have been faster
                raise
        return result


def _flatten(records: Any) -> Iterator[Any]:
    """Yield the records in lists and tuples within each other."""
    if isinstance(records, tuple | list):
        for record in records:
            yield from _flatten(record)
    else:
        yield records


def _compute_checksum(records: list[Any]) -> str:
    digest = hashlib.sha256()
    for record in records:
        digest.update(
            np.asarray(record.u, dtype="<f8").tobytes()
            + np.asarray(record.y, dtype="<f8").tobytes()
        )
    return digest.hexdigest()
