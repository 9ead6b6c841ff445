"""Records of the package ``nonlinear_benchmarks``, the loader of nonlinearbenchmark.org."""

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
    DataError,
    DataSource,
    Recordings,
    make_record,
    optional_package,
)
from sysid.errors import UserError
from sysid.narx.record import Array

PACKAGE = "nonlinear_benchmarks"

#: address without files, so that the package cannot download into a folder of local copies
UNREACHABLE_URL = "file:///nowhere/"

#: sets whose folder has another name than the set
SET_FOLDERS = {"WienerHammerstein_Process_Noise": "WienHammer"}

#: sets that a source of the toolbox reads too, from local copies of single files
TOOLBOX_SOURCES = {
    "Cascaded_Tanks": "cascaded_tanks",
    "Silverbox": "silverbox",
    "BoucWen": "bouc_wen",
}

#: sets whose archive the package names after the end of its address
SET_ARCHIVES = {
    "CED": "FULLTEXT01.zip",
    "WienerHammerBenchMark": "WienerHammerBenchMark.mat",
}


@runtime_checkable
class InputOutput(Protocol):
    """The attributes that are read from a record of the package."""

    u: Any  # (n,) or (n, n_channels)
    y: Any  # (n,) or (n, n_channels)
    sampling_time: Any  # [s]; None if it is not known
    name: str
    state_initialization_window_length: int | None  # samples; None if there is no window


class Exchanged(NamedTuple):
    """Tuples of records of the package, ``nonlinear_benchmarks.Input_output_data``, by role."""

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
    name
        Name of the data split.
    inputs, outputs
        Names of the channels; None: ``u`` and ``y``, numbered from 1 if there are several.
    sampling_time
        Sampling time of records that do not state it [s].
    initialisation_window
        Initialisation window of all validation and test records. None: the one that each record
        states, or 0.
    units
        Units of the signals by name.
    attributes
        Attributes of every record.

    Raises
    ------
    ValueError
        There is no record, no sampling time or a contradictory one, the number of names is wrong,
        or `Recordings` refuses the records.
    """
    given = {"estimation": estimation, "validation": validation, "test": test}
    first = next((record for records in given.values() for record in records), None)
    if first is None:
        raise UserError(
            f"from_nonlinear_benchmarks({name!r}): expected at least one record, got none"
        )
    input_names = _name_channels("u", inputs, first.u)
    output_names = _name_channels("y", outputs, first.y)

    def convert(record: InputOutput, role: str, number: int) -> xr.Dataset:
        u = _split_channels(input_names, record.u)
        y = _split_channels(output_names, record.y)
        window = None if role == "estimation" else initialisation_window
        return make_record(
            u | y,
            name=record.name or f"{name}, {role} {number}",
            sampling_time=_read_sampling_time(record, sampling_time),
            initialisation_window=_read_window(record, window),
            units=units,
            attributes=attributes,
        )

    converted = {
        role: tuple(convert(record, role, number) for number, record in enumerate(records))
        for role, records in given.items()
    }
    return Recordings(name, input_names, output_names, **converted)


def to_nonlinear_benchmarks(recordings: Recordings) -> Exchanged:
    """Convert every record to the record type of the package.

    It has u (n,) or (n, n_inputs), y (n,) or (n, n_outputs), the sampling time, the name and the
    initialisation window. Units, names of signals and the start time are left out.

    Raises
    ------
    DataError
        The package is not installed.
    ValueError
        The data split has no inputs, or its rows have no time.
    """
    if not recordings.inputs or recordings.is_static:
        raise UserError(
            f"recordings {recordings.name!r} have no inputs or no time: "
            "the record type of nonlinear_benchmarks needs both"
        )
    package = optional_package(PACKAGE, "converting to its type of record")

    def convert(record: xr.Dataset) -> Any:
        return package.Input_output_data(
            _join_channels(record, recordings.inputs),
            _join_channels(record, recordings.outputs),
            recordings.sampling_time,
            record.attrs["name"],
            record.attrs["initialisation_window"],
        )

    return Exchanged(
        estimation=tuple(convert(record) for record in recordings.estimation),
        validation=tuple(convert(record) for record in recordings.validation),
        test=tuple(convert(record) for record in recordings.test),
    )


def _join_channels(record: xr.Dataset, names: Sequence[str]) -> np.ndarray:
    """Return one signal as (n,), several as the columns of (n, n_channels)."""
    if len(names) == 1:
        return record[names[0]].values
    return np.column_stack([record[name].values for name in names])


def _name_channels(letter: str, given: Sequence[str] | None, values: Any) -> tuple[str, ...]:
    """Return the names of the channels of an array: those given, or the letter, numbered."""
    n = 1 if np.ndim(values) == 1 else np.shape(values)[1]
    if given is not None:
        names = tuple(given)
    elif n == 1:
        names = (letter,)
    else:
        names = tuple(f"{letter}{i + 1}" for i in range(n))
    if len(names) != n:
        raise UserError(f"expected {n} names for the channels of {letter}, got {list(names)}")
    return names


def _split_channels(names: Sequence[str], values: Any) -> dict[str, Array]:
    """Return the channels (n,) of an array by name."""
    array = np.asarray(values, dtype=np.float64)
    columns = array[:, None] if array.ndim == 1 else array
    if columns.ndim != 2 or columns.shape[1] != len(names):
        raise UserError(
            f"expected channels {list(names)} in every record, got an array of shape {array.shape}"
        )
    return {name: columns[:, i] for i, name in enumerate(names)}


def _read_sampling_time(record: InputOutput, given: float | None) -> float:
    """Return the sampling time [s] that a record states, otherwise the given one."""
    stated = None if record.sampling_time is None else float(np.squeeze(record.sampling_time))
    if stated is None and given is None:
        raise UserError(
            f"record {record.name!r} does not state its sampling time: give it [s] (data.dt)"
        )
    if stated is not None and given is not None and abs(stated - given) > 1e-6 * stated:
        raise UserError(
            f"record {record.name!r} has the sampling time {stated:g} s, not {given:g} s: "
            "leave it out"
        )
    return float(given if stated is None else stated)  # type: ignore[arg-type]


def _read_window(record: InputOutput, given: int | None) -> int:
    """Return the given initialisation window; None: the one that the record states, or 0."""
    if given is not None:
        return int(given)
    return int(record.state_initialization_window_length or 0)


@dataclass(frozen=True)
class NonlinearBenchmark(DataSource):
    """A data set of nonlinearbenchmark.org, split as its loader splits it.

    The sets are ``CED``, ``EMPS``, ``Cascaded_Tanks``, ``Silverbox``, ``WienerHammerBenchMark``,
    ``ParWH``, ``F16``, and three sets without an official split, ``BoucWen``,
    ``WienerHammerstein_Process_Noise`` and ``Industrial_robot``, whose records all become test
    records. Signals are ``u`` and ``y``, or ``u1``, ``u2``, ...

    The package (``pip install -e ".[records]"``) downloads the files itself, from the addresses of
    their authors, without checksums and, in 1.0.1, without verifying certificates. Therefore the
    records have the SHA-256 of their numbers as an attribute, ``sha256``, which is compared with
    the setting `sha256`. Files enter the cache only after they were read completely. Local copies
    lie as the package leaves them, in ``<folder>/<set>/`` or
    ``<folder>/nonlinear_benchmarks/<set>/``.

    For licences and citations see the page of each set on nonlinearbenchmark.org.

    Raises
    ------
    ValueError
        On `load`: the name is missing or unknown, or the set does not state its sampling time and
        none is given.
    """

    name: str | None = None  # name of the set, that of its function in the package
    #: folder with local copies; None: that of SYSID_DATA, else the cache, else a download
    path: str | None = None
    dt: float | None = None  # sampling time of sets that do not state it [s]
    #: samples of each test that are not scored; None: as the package states
    initialisation_window: int | None = None
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
        has_no_split = isinstance(result, list)
        if has_no_split:
            estimation_records = []
            test_records = result
        else:
            estimation_records, test_records = result
        estimation = list(_flatten(estimation_records))
        test = list(_flatten(test_records))
        checksum = _compute_checksum([*estimation, *test])
        if self.sha256 is not None and checksum != self.sha256:
            raise DataError(
                f"the numbers of {self.name} have sha256 {checksum}, expected {self.sha256}: "
                "use an unchanged copy, or correct data.sha256"
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
                "sha256": checksum,
            },
        )

    def _obtain(self, function: Callable[..., Any]) -> Any:
        """Let the package read the set from a local copy or the cache, or download it."""
        name = str(self.name)
        folder = self._local_folder()
        if folder is None:
            cache = cache_folder() / PACKAGE
            folder = cache / name
            if not folder.is_dir():
                with fetch_alone(cache, name):
                    if not folder.is_dir():  # another process may have been faster
                        return _download(function, cache, name)
        return _call(function, folder, url=UNREACHABLE_URL + SET_ARCHIVES.get(name, ""))

    def _local_folder(self) -> Path | None:
        """Return the local folder that holds the folder of the set, or None."""
        given = self.path or os.environ.get(DATA_VARIABLE)
        if not given:
            return None
        name = SET_FOLDERS.get(str(self.name), str(self.name))
        for folder in (Path(given), Path(given, PACKAGE)):
            if (folder / name).is_dir():
                return folder
        if self.path:
            raise DataError(
                f"data.path={self.path!r} holds neither {name}/ nor {PACKAGE}/{name}/: "
                f"{_advise(name)}"
            )
        return None


def _advise(name: str) -> str:
    """Return how a local copy of a set is made and named."""
    return (
        f"copy the folder {name} of the cache of {PACKAGE} from a computer with a network, and "
        f"name the folder around it with data.path or the environment variable {DATA_VARIABLE}"
    )


def _call(
    function: Callable[..., Any],
    folder: Path,
    final: Path | None = None,
    **options: Any,
) -> Any:
    """Let the package read a set from a folder, and download files that are missing there.

    `final` is the folder that messages name, if the files are moved there afterwards.
    """
    try:
        return function(dir_placement=str(folder), **options)
    except Exception as error:  # the package raises plain exceptions
        named_folder = final or folder
        reason = str(error).replace(str(folder), str(named_folder))
        name = SET_FOLDERS.get(function.__name__, function.__name__)
        alternative = ""
        if name in TOOLBOX_SOURCES:
            source = TOOLBOX_SOURCES[name]
            alternative = f"; data={source} reads this set from local copies of single files too"
        raise DataError(
            f"{PACKAGE} could not provide {function.__name__} in {named_folder} "
            f"({type(error).__name__}: {reason}); connect to the network, or {_advise(name)}; "
            f"complete copies hold the downloaded archive too{alternative}"
        ) from error


def _download(function: Callable[..., Any], cache: Path, name: str) -> Any:
    """Download a set into the cache, where it appears after it was read completely."""
    with tempfile.TemporaryDirectory(
        dir=cache, prefix=f".{name}.", suffix=".tmp", ignore_cleanup_errors=True
    ) as parent:
        temporary = Path(parent, name)
        temporary.mkdir()
        # the package prints every attempt, with the temporary folder
        with redirect_stdout(io.StringIO()):
            result = _call(function, temporary, cache / name)
        try:
            os.replace(temporary, cache / name)
        except OSError:
            # another computer with the same cache may have been faster
            if not (cache / name).is_dir():
                raise
        return result


def _flatten(records: Any) -> Iterator[Any]:
    """Yield the records of nested lists and tuples."""
    if isinstance(records, tuple | list):
        for record in records:
            yield from _flatten(record)
    else:
        yield records


def _compute_checksum(records: list[Any]) -> str:
    """Return the SHA-256 of the numbers u and y of all records."""
    sha256 = hashlib.sha256()
    for record in records:
        sha256.update(np.asarray(record.u, dtype="<f8").tobytes())
        sha256.update(np.asarray(record.y, dtype="<f8").tobytes())
    return sha256.hexdigest()
