"""Sets of the package ``nonlinear_benchmarks``, the loader of nonlinearbenchmark.org."""

import difflib
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sysid.data.cache import cache_folder, made
from sysid.data.exchange import from_nonlinear_benchmarks
from sysid.data.extra import optional_package
from sysid.data.published import DATA_VARIABLE
from sysid.data.source import DataError, DataSource
from sysid.recordings import Recordings

PACKAGE = "nonlinear_benchmarks"
FOLDERS = {"WienerHammerstein_Process_Noise": "WienHammer"}  # of sets whose folder has another name
OWN = {"Cascaded_Tanks": "cascaded_tanks", "Silverbox": "silverbox", "BoucWen": "bouc_wen"}  # sources with local copies
NOWHERE = "file:///nowhere/"  # address that keeps the package from downloading into a folder of local copies
ARCHIVES = {  # of sets whose archive the package names by the end of its address
    "CED": "FULLTEXT01.zip",
    "WienerHammerBenchMark": "WienerHammerBenchMark.mat",
}


@dataclass(frozen=True)
class NonlinearBenchmark(DataSource):
    """One of the sets of nonlinearbenchmark.org, split as its loader splits it.

    ``CED``, ``EMPS``, ``Cascaded_Tanks``, ``Silverbox``, ``WienerHammerBenchMark``, ``ParWH``, ``F16``, and
    ``BoucWen``, ``WienerHammerstein_Process_Noise``, ``Industrial_robot``, for which no split is official
    (records without one all become test records). Signals are ``u`` and ``y``, or ``u1``, ``u2``, ...

    The package (``pip install 'sysid[records]'``) fetches the files itself, from the addresses of their authors,
    without checksums and, in 1.0.1, without verifying certificates: the records carry the SHA-256 of their numbers
    (attribute ``sha256``), which `sha256` pins. Files enter the cache only after they were read completely. Local
    copies lie as the package leaves them, in ``<folder>/<set>/`` or ``<folder>/nonlinear_benchmarks/<set>/``.

    Licences and citations are those of each set: see its page on nonlinearbenchmark.org.

    Raises
    ------
    ValueError
        On `load`: no name or an unknown one; no sampling time for a set that states none.
    """

    name: str | None = None  # set, by the name of its function in the package
    path: str | None = None  # folder with local copies; None: that of SYSID_DATA, else the cache, else a download
    dt: float | None = None  # sampling time of sets that do not state it, s
    initialisation_window: int | None = None  # samples of each test that are not judged; None: as the package says
    sha256: str | None = None  # expected checksum of the numbers; None: not compared

    def load(self) -> Recordings:
        """Read the set; see `DataSource.load`."""
        package = optional_package(PACKAGE, "data=nonlinear_benchmarks")
        function = self._function(package)
        estimation, test = _split(self._obtain(function))
        found = _checksum([*estimation, *test])
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

    def _function(self, package: Any) -> Callable[..., Any]:
        known = {function.__name__: function for function in [*package.all_benchmarks, package.F16]}
        if self.name not in known:
            near = difflib.get_close_matches(str(self.name), known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"NonlinearBenchmark(name={self.name!r}): expected one of {', '.join(known)}{hint}")
        return known[self.name]

    def _obtain(self, function: Callable[..., Any]) -> Any:
        place, nowhere = cache_folder() / PACKAGE, NOWHERE + ARCHIVES.get(str(self.name), "")
        if folder := self._local():
            return _call(function, folder, url=nowhere)
        if (place / str(self.name)).is_dir():
            return _call(function, place / str(self.name), url=nowhere)
        return _download(function, place, str(self.name))

    def _local(self) -> Path | None:
        """Folder in which the folder of the set lies, or None."""
        given = self.path or os.environ.get(DATA_VARIABLE)
        name = FOLDERS.get(str(self.name), str(self.name))
        for folder in (Path(given), Path(given, PACKAGE)) if given else ():
            if (folder / name).is_dir():
                return folder
        if self.path:
            raise DataError(f"data.path={self.path!r} holds neither {name}/ nor {PACKAGE}/{name}/: {_advice(name)}")
        return None


def _advice(name: str) -> str:
    return (
        f"copy the folder {name} of the cache of {PACKAGE} from a computer with a network, and name the folder around "
        f"it with data.path or the environment variable {DATA_VARIABLE}"
    )


def _call(function: Callable[..., Any], folder: Path, final: Path | None = None, **options: Any) -> Any:
    """Let the package read, and where it has to also fetch, the files of a set in this folder, to stay in `final`."""
    try:
        return function(dir_placement=str(folder), **options)
    except Exception as error:  # the package raises plain exceptions
        said = str(error).replace(str(folder), str(final or folder))
        name = FOLDERS.get(function.__name__, function.__name__)
        own = f"; data={OWN[name]} reads this set from local copies of single files too" if name in OWN else ""
        raise DataError(
            f"{PACKAGE} could not provide {function.__name__} in {final or folder} ({type(error).__name__}: {said}); "
            f"connect to the network, or {_advice(name)}; complete copies hold the downloaded archive too{own}"
        ) from error


def _download(function: Callable[..., Any], place: Path, name: str) -> Any:
    """Fetch a set into the cache, where it appears after it was read completely, or not at all."""
    temporary = place / f".{name}.{secrets.token_hex(4)}.tmp"
    with made(temporary):
        try:
            with redirect_stdout(io.StringIO()):  # the package prints every attempt, with the temporary folder
                result = _call(function, temporary, place / name)
            if not (place / name).exists():  # another process may have been faster
                os.replace(temporary, place / name)
            return result
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _split(result: Any) -> tuple[list[Any], list[Any]]:
    """Estimation and test records of a result of the package: a pair, or a list without a split."""
    if isinstance(result, list):
        return [], list(_flat(result))
    estimation, test = result
    return list(_flat(estimation)), list(_flat(test))


def _flat(records: Any) -> Iterator[Any]:
    if isinstance(records, tuple | list):
        for record in records:
            yield from _flat(record)
    else:
        yield records


def _checksum(records: list[Any]) -> str:
    digest = hashlib.sha256()
    for record in records:
        for values in (record.u, record.y):
            digest.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
    return digest.hexdigest()
