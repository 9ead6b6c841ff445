"""Published data sets, which are downloaded once and checked.

A `PublishedTable` declares the files and the columns of each.
"""

import hashlib
import os
import secrets
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from filelock import FileLock

from sysid.arrays import is_number
from sysid.data.source import (
    DataError,
    DataSource,
    Recordings,
    make_record,
    optional_package,
    part,
)
from sysid.errors import UserError
from sysid.narx.record import Array

#: environment variable that names another folder for the cache
CACHE_VARIABLE = "SYSID_CACHE"

#: environment variable that names a folder with local copies
DATA_VARIABLE = "SYSID_DATA"

#: longest time to connect, and between two packets [s]
DOWNLOAD_TIMEOUT = 30.0


def cache_folder() -> Path:
    """Return the folder of the cache.

    It is the one that `CACHE_VARIABLE` names, otherwise the cache folder of the operating system.
    """
    import pooch

    return Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("sysid"))


@contextmanager
def fetch_alone(folder: Path, name: str) -> Iterator[None]:
    """Make a folder of the cache, and keep other processes from fetching the same file into it.

    This holds for the processes of this computer, while the ``with`` block runs. If the block
    raises an error, folders that were made for it are removed if they are empty.

    Raises
    ------
    DataError
        The folder cannot be made.
    """
    path_digest = hashlib.sha256(os.fsencode(folder.absolute() / name)).hexdigest()[:16]
    # every user has lock files of their own, because others may not lock them
    user = os.getuid() if hasattr(os, "getuid") else ""
    with FileLock(Path(tempfile.gettempdir(), f"sysid-{user}-{path_digest}.lock")):
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"cannot write to the cache {cache_folder()} ({error.strerror}): name a writable "
                f"cache folder with the environment variable {CACHE_VARIABLE}"
            ) from error
        try:
            yield
        except BaseException:
            with suppress(OSError):
                for parent in missing:
                    if parent.exists():
                        parent.rmdir()
            raise


def fetch(url: str, sha256: str, folder: str, name: str) -> Path:
    """Return the path of a file in the cache, and download it if it is not there.

    A file appears in the cache complete and checked, or not at all.

    Parameters
    ----------
    url
        Address of the file.
    sha256
        SHA-256 of the file, in hexadecimal. A cached file with another one is downloaded again.
    folder, name
        Folder and name of the file in the cache.

    Raises
    ------
    DataError
        There is no network, the file does not exist, its checksum is wrong, or the cache cannot be
        written.
    """
    import pooch

    cache = cache_folder() / folder
    path = cache / name
    temporary = cache / f".{name}.{secrets.token_hex(4)}.tmp"
    with fetch_alone(cache, name):
        try:
            if path.is_file() and pooch.file_hash(str(path)) == sha256:
                return path
            pooch.HTTPDownloader(timeout=DOWNLOAD_TIMEOUT)(url, str(temporary), None)
            received = pooch.file_hash(str(temporary))
            if received != sha256:
                raise DataError(
                    f"{url} has sha256 {received}, expected {sha256}: nothing was kept; "
                    "try again, and if the checksum stays wrong use a local copy of the original"
                )
            os.replace(temporary, path)
        except DataError:
            raise
        except OSError as error:
            raise DataError(
                f"could not fetch {url} into {cache} ({type(error).__name__}: {error}): "
                "connect to the network; if the cache cannot be written, name a writable cache "
                f"folder with the environment variable {CACHE_VARIABLE}"
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
    pooch.get_logger().info("Downloaded %s to %s", url, path)
    return path


@dataclass(frozen=True)
class Form:
    """A set of files in which a published table is stored."""

    files: Mapping[str, str]  # SHA-256 of every file by its name, in hexadecimal
    names: tuple[str, ...] | None = None  # of the columns in the files; None: those of the table
    #: address of the folder of the files, ends in /; empty: they cannot be downloaded
    url: str = ""

    def __str__(self) -> str:
        return " and ".join(self.files)


class Column(NamedTuple):
    """Unit and description of a column."""

    unit: str
    long_name: str


@dataclass(frozen=True)
class PublishedTable:
    """A published record or table.

    Attributes
    ----------
    name
        Name of the record.
    folder
        Name of the data set, and of the sub-folder with its files.
    sampling_time
        Sampling time [s], or 1 if the rows are independent of each other.
    columns
        Unit and description of every column.
    forms
        Sets of files in which it is stored, the preferred one first. Their content is the same, up
        to the number of digits.
    attributes
        Attributes of the record: ``licence``, ``source``, ``citation`` and others.
    """

    name: str
    folder: str
    sampling_time: float
    columns: dict[str, Column]
    forms: tuple[Form, ...]
    attributes: dict[str, Any]

    def load(self, path: str | None, *, initialisation_window: int = 0) -> xr.Dataset:
        """Read the record from a local folder, or else from the cache.

        Parameters
        ----------
        path
            Local folder with the files, or with a sub-folder `folder` that has them; they must be
            there. None: the folder that `DATA_VARIABLE` names, which may lack them.
        initialisation_window
            Number of samples at the start that are not scored.

        Raises
        ------
        DataError
            There is no copy and no network, a checksum is wrong, or a folder does not exist.
        """
        form, paths = self._find(path) or self._fetch()
        values = read_columns(paths, form.names or tuple(self.columns))
        return make_record(
            dict(zip(self.columns, values, strict=True)),
            name=self.name,
            sampling_time=self.sampling_time,
            initialisation_window=initialisation_window,
            units={name: column.unit for name, column in self.columns.items()},
            long_names={name: column.long_name for name, column in self.columns.items()},
            attributes=self.attributes
            | {"file": str(form), "sha256": " ".join(form.files.values())},
        )

    def _find(self, path: str | None) -> tuple[Form, list[Path]] | None:
        """Find the first form whose files all lie in a local folder, and check them."""
        given = path or os.environ.get(DATA_VARIABLE)
        if not given:
            return None
        setting = f"path={given!r}"
        if not path:
            setting = f"the environment variable {DATA_VARIABLE}={given!r}"
        if not Path(given).is_dir():
            raise DataError(
                f"{self.folder}: {setting} is no folder (seen from {Path.cwd()}); {self._advise()}"
            )
        for form in self.forms:
            for folder in (Path(given), Path(given, self.folder)):
                if all((folder / name).is_file() for name in form.files):
                    return form, [_check_copy(folder / name, form) for name in form.files]
        if path:
            raise DataError(f"{self.folder}: {setting} holds no copy; {self._advise()}")
        return None

    def _fetch(self) -> tuple[Form, list[Path]]:
        """Return the files of the first form that can be downloaded, from the cache."""
        form = next(form for form in self.forms if form.url)
        try:
            paths = [
                fetch(form.url + name, sha256, self.folder, name)
                for name, sha256 in form.files.items()
            ]
        except DataError as error:
            data_folder = os.environ.get(DATA_VARIABLE) or "not set"
            raise DataError(
                f"{self.folder}: no local copy (environment variable {DATA_VARIABLE}: "
                f"{data_folder}), nothing in the cache {cache_folder()}, no download. "
                f"Connect to the network, or {self._advise()}. The download: {error}"
            ) from error
        return form, paths

    def _advise(self) -> str:
        """Return where local copies are put and how they are named."""
        forms = ", or ".join(str(form) for form in self.forms)
        return (
            f"put {forms} into a folder, or into its sub-folder {self.folder}/, and name that "
            f"folder with data.path or the environment variable {DATA_VARIABLE}"
        )


def _check_copy(path: Path, form: Form) -> Path:
    """Return the path of a local copy; raise DataError if its checksum is wrong."""
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): check its permissions") from error
    expected = form.files[path.name]
    original = form.url + path.name if form.url else "an unchanged copy"
    if found != expected:
        raise DataError(
            f"{path} has sha256 {found}, expected {expected}: it was changed (cut short? other "
            f"line ends?) or is another release; replace it by {original}, or remove it"
        )
    return path


def read_columns(paths: list[Path], names: tuple[str, ...]) -> list[Array]:
    """Read columns (n,) from the files of a form, whose checksums are right.

    The names are variables of MATLAB files and columns of ``csv`` files. Files ``data`` (white
    space between numbers) and ``xls`` (one sheet, one header line) have these columns in this
    order.

    Raises
    ------
    DataError
        The package xlrd, which reads ``xls``, is not installed.
    """
    import pandas as pd

    path = paths[0]
    suffix = paths[0].suffix
    if suffix == ".mat":
        from scipy.io import loadmat

        variables: dict[str, Any] = {}
        for mat_file in paths:
            variables |= loadmat(mat_file)
        return [variables[name].ravel().astype(np.float64) for name in names]
    if suffix == ".xls":
        xlrd = optional_package("xlrd", f"reading {path.name}")
        sheet = xlrd.open_workbook(path).sheet_by_index(0)
        return [
            np.array(sheet.col_values(i, start_rowx=1), dtype=np.float64) for i in range(len(names))
        ]
    if suffix == ".csv":
        frame = pd.read_csv(path, usecols=list(names), dtype=object, compression=None)
    else:
        frame = pd.read_csv(
            path, sep=r"\s+", header=None, names=list(names), dtype=object, compression=None
        )
    # the cells were read as text, so that every bit of the numbers is right
    return [frame[name].to_numpy().astype(np.float64) for name in names]


#: licence of the benchmarks of 4TU.ResearchData
BENCHMARK_LICENCE = "CC BY-SA 4.0: attribution, and the same licence when passed on"

#: citation of the same benchmarks
BENCHMARK_CITATION = (
    "M. Schoukens, J.P. Noel, Three Benchmarks Addressing Open Challenges in Nonlinear System "
    "Identification, IFAC World Congress 2017"
)

#: folder of the repository that has them as single files
BENCHMARK_URL = (
    "https://raw.githubusercontent.com/JanHHoekstra/Model-Augmentation-Public/"
    "e919367c87d0e23c40ebbc9a9bff5839bff5476e/data/"
)

BOSTON = PublishedTable(
    name="boston",
    folder="boston_housing",
    sampling_time=1.0,
    columns={
        "CRIM": Column("1", "crime rate per head"),
        "ZN": Column("%", "residential land for lots over 25000 square feet"),
        "INDUS": Column("%", "land for business other than retail"),
        "CHAS": Column("1", "1 if the district touches the Charles river, else 0"),
        "NOX": Column("1e-7", "concentration of nitric oxides"),
        "RM": Column("1", "mean number of rooms of a dwelling"),
        "AGE": Column("%", "owner-occupied units built before 1940"),
        "DIS": Column("1", "weighted distance to five centres of employment"),
        "RAD": Column("1", "index of access to radial highways"),
        "TAX": Column("1e-4", "full-value property tax"),
        "PTRATIO": Column("1", "pupils per teacher"),
        "B": Column("1", "transform of the share of Black residents, as published"),
        "LSTAT": Column("%", "residents of lower status, as published"),
        "MEDV": Column("1000 USD", "median value of owner-occupied homes, capped at 50"),
    },
    forms=(
        Form(
            {"housing.data": "e3e36f7b9e5435f9eb8320e106aebad00031fefa3064527da0c71dec59e49b76"},
            url=(
                "https://raw.githubusercontent.com/jbrownlee/Datasets/"
                "d20fcb6402ae34e653d4513b00f39257bb37ed7f/"
            ),
        ),
        Form(
            {
                "boston_housing.csv": (
                    "ebf8b4a9ceaf375f9591be7b862b3eafc6efc952251e77f09dd6c2df9e216ba0"
                )
            }
        ),
    ),
    attributes={
        "static": 1,
        "licence": "none stated (StatLib, UCI): do not pass it on without asking",
        "source": "https://github.com/jbrownlee/Datasets",
        "citation": (
            "D. Harrison, D.L. Rubinfeld, Hedonic prices and the demand for clean air, "
            "J. Environ. Economics and Management 5, 1978"
        ),
    },
)

CONCRETE = PublishedTable(
    name="concrete",
    folder="concrete",
    sampling_time=1.0,
    columns={
        "cement": Column("kg/m^3", "cement"),
        "slag": Column("kg/m^3", "blast furnace slag"),
        "fly_ash": Column("kg/m^3", "fly ash"),
        "water": Column("kg/m^3", "water"),
        "superplasticizer": Column("kg/m^3", "superplasticizer"),
        "coarse_aggregate": Column("kg/m^3", "coarse aggregate"),
        "fine_aggregate": Column("kg/m^3", "fine aggregate"),
        "age": Column("d", "age when tested"),
        "strength": Column("MPa", "compressive strength"),
    },
    forms=(
        Form({"concrete.csv": "55cb74d00d9d0e8327a8f43fdc22fa9522f10d2651eb16d5080c6e8cb074bf78"}),
        Form(
            {
                "Concrete_Data.xls": (
                    "0233dedd4c6f36b73ce7ffe2dd607eb5373ea74de1fe2a88c1b69fd69fabfad3"
                )
            },
            url="https://raw.githubusercontent.com/Daniel-RPS/Concrete-Repository-UCI/"
            "4a13f04cfa4728053f904162a5294aa77e437853/",
        ),
    ),
    attributes={
        "static": 1,
        "licence": (
            "not stated with the file (UCI shows CC BY 4.0 as far as known; repository: MIT)"
        ),
        "source": (
            "UCI Machine Learning Repository, copy of "
            "https://github.com/Daniel-RPS/Concrete-Repository-UCI"
        ),
        "citation": (
            "I-C. Yeh, Modeling of strength of high-performance concrete using artificial neural "
            "networks, Cement and Concrete Research 28, 1998"
        ),
    },
)


def _cascaded_tanks(role: str, names: tuple[str, str]) -> PublishedTable:
    """Return the table of one record of the cascaded tanks, with its column names in the files."""
    url = BENCHMARK_URL + "cascaded_tanks/"
    original = {
        "dataBenchmark.mat": "cb2f88d4388be4d3f2a24c6402fba804976aac5f2e1f26cda59ea0a38d016eab"
    }
    converted = {
        "cascaded_tanks.csv": "0f68f71659be0e5719ccedd197097bd72a1117c0dc412acc919b55c1c597b924"
    }
    short = {
        "dataBenchmark.csv": "ef2388ed822f3aef4aa80d6b0f2b466dd80b361786b3eafc7a2957c31ea323a7"
    }
    return PublishedTable(
        name=f"cascaded tanks, {role}",
        folder="cascaded_tanks",
        sampling_time=4.0,
        columns={
            "pump_voltage": Column("V", "pump voltage"),
            "level": Column("V", "level of the lower tank"),
        },
        forms=(
            Form(original, names, url),
            Form(converted, names),
            Form(short, names, url),
        ),
        attributes={
            "licence": BENCHMARK_LICENCE,
            "source": "4TU.ResearchData, https://doi.org/10.4121/12960104",
            "citation": BENCHMARK_CITATION,
        },
    )


CASCADED_TANKS_ESTIMATION = _cascaded_tanks("estimation", ("uEst", "yEst"))
CASCADED_TANKS_TEST = _cascaded_tanks("test", ("uVal", "yVal"))

SILVERBOX = PublishedTable(
    name="Silverbox",
    folder="silverbox",
    sampling_time=1 / 610.35,
    columns={
        "input_voltage": Column("V", "input voltage"),
        "output_voltage": Column("V", "output voltage"),
    },
    forms=(
        Form(
            {"SNLS80mV.csv": "ae62d5a91230c10f76e6dd02c8a4fac3c9d4d8a95fbf50e87cb0c4885003e0f1"},
            names=("V1", "V2"),
            url=(
                "https://raw.githubusercontent.com/biaslab/nsi-silverbox/"
                "728f07e4539d4f7da76a4778b52a756260b488ac/data/Silverbox/"
            ),
        ),
    ),
    attributes={
        "licence": (
            "none stated for the data (published as a free data set): "
            "do not pass it on without asking"
        ),
        "source": "https://github.com/biaslab/nsi-silverbox (repository: MIT)",
        "citation": (
            "T. Wigren, J. Schoukens, Three free data sets for development and benchmarking in "
            "nonlinear system identification, European Control Conference 2013"
        ),
    },
)

BOUC_WEN_TEST = PublishedTable(
    name="Bouc-Wen multisine, test",
    folder="bouc_wen",
    sampling_time=1 / 750,
    columns={
        "force": Column("N", "force on the mass"),
        "displacement": Column("m", "displacement of the mass"),
    },
    forms=(
        Form(
            {
                "uval_multisine.mat": (
                    "3eb9abc0aef66b97beaf003fbcb45b43a4e28d7e82db5bf8abc1c931b92106ed"
                ),
                "yval_multisine.mat": (
                    "05e462f7c508c26c8e69549e2b80ff5acea2828b399175c8bdd3fa70eb9905bc"
                ),
            },
            names=("uval_multisine", "yval_multisine"),
            url=BENCHMARK_URL + "bouc_wen/",
        ),
        Form(
            {
                "test_multisine.csv": (
                    "975a53a5a4436178d153693fed41ea5ab2b07d94761c7f0e2490203b4835895b"
                )
            },
            ("u", "y"),
        ),
    ),
    attributes={
        "licence": BENCHMARK_LICENCE,
        "source": "4TU.ResearchData, https://doi.org/10.4121/12967592",
        "citation": BENCHMARK_CITATION,
        "note": "official test, free of noise, one steady-state period",
        "official": 1,
        "period": 8192,  # samples
    },
)

BOUC_WEN_ESTIMATION = replace(
    BOUC_WEN_TEST,
    name="Bouc-Wen multisine, estimation (user-made)",
    forms=(
        Form(
            {
                "uest_multisine.mat": (
                    "d397884e6b68cad06c91a1ee98dd84949a94826f56c4907aa1908583dc5c9a60"
                ),
                "yest_multisine.mat": (
                    "ae0c7c0df174b61d17517c7092bc2b7d2888a695dbd9bca9a63c7c9fc067f605"
                ),
            },
            names=("u", "y"),
            url=BENCHMARK_URL + "bouc_wen/",
        ),
        Form(
            {
                "est_multisine.csv": (
                    "6de509d23808fede53f90beea01c3cc7dffa37c588d2aec6707366264e735458"
                )
            },
            ("u", "y"),
        ),
    ),
    attributes=BOUC_WEN_TEST.attributes
    | {
        "licence": "BSD-3-Clause, that of the repository",
        "source": "https://github.com/JanHHoekstra/Model-Augmentation-Public",
        "note": (
            "NOT official: made by a user with the generator of the benchmark; "
            "four steady-state periods, output noise of about 7.3e-6 m rms"
        ),
        "official": 0,
    },
)


@dataclass(frozen=True)
class StaticTable(DataSource):
    """Table of independent rows: the first `n_estimation` for estimation, the others for the test.

    The output is the last column. ``time`` numbers the rows in the order used (units ``1``). The
    variable ``row`` has their numbers in the file, the attribute ``split`` states how they were
    ordered.

    Raises
    ------
    ValueError
        On `load`: `n_estimation` leaves no row for estimation or for the test.
    """

    #: folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    path: str | None = None
    n_estimation: int = 1  # number of rows for estimation
    shuffle: bool = False  # order the rows at random before the split
    seed: int = 0  # of the order, used only with shuffle

    @property
    @abstractmethod
    def table(self) -> PublishedTable:
        """The published table that has the rows."""

    def load(self) -> Recordings:
        """Read and split the table; see `DataSource.load`."""
        whole = self.table.load(self.path)
        name = self.table.name
        n = whole.sizes["time"]
        is_whole = is_number(self.n_estimation, Integral)
        if not is_whole or not 1 <= self.n_estimation < n:
            raise UserError(
                f"{name}: expected n_estimation from 1 to {n - 1} of {n} rows, "
                f"got {self.n_estimation}"
            )
        order = np.random.default_rng(self.seed).permutation(n) if self.shuffle else np.arange(n)
        split = f"shuffled with seed {self.seed}" if self.shuffle else "file order"
        time = whole["time"].variable
        time.attrs |= {"units": "1", "long_name": "number of the row in the order used"}
        whole = whole.isel(time=order).assign_coords(time=time).assign_attrs(split=split)
        whole["row"] = (
            "time",
            order,
            {"units": "1", "long_name": "number of the row in the file"},
        )
        *inputs, output = self.table.columns
        return Recordings(
            name,
            tuple(inputs),
            (output,),
            estimation=(part(whole, 0, self.n_estimation, name=f"{name}, estimation"),),
            test=(part(whole, self.n_estimation, name=f"{name}, test"),),
        )


@dataclass(frozen=True)
class BostonData(StaticTable):
    """Boston housing: 506 rows with 13 inputs and the output ``MEDV`` [1000 USD].

    This is the classical, uncorrected version. The rows are independent (attribute ``static``). The
    default split is by file order, 451 rows for estimation and 55 for the test.

    No licence is stated. Cite Harrison and Rubinfeld, *Hedonic prices and the demand for clean
    air*, 1978. The column ``B`` is a transform based on race, for which several libraries have
    removed the set: here it serves the comparison with published figures only.
    """

    table = BOSTON
    n_estimation: int = 451  # number of rows for estimation


@dataclass(frozen=True)
class ConcreteData(StaticTable):
    """Concrete strength: 1030 rows with eight inputs and the output ``strength`` [MPa].

    The inputs are seven components [kg/m^3] and the age [d]. The rows are independent (attribute
    ``static``); 25 of them are repeated in the original. The default split is by file order, 927
    rows for estimation and 103 for the test. The downloaded original is an Excel 97 file and needs
    the package xlrd (``pip install -e ".[records]"``).

    Licence not stated with the file; UCI shows CC BY 4.0 as far as known. Cite Yeh, *Modeling of
    strength of high-performance concrete using artificial neural networks*, 1998.
    """

    table = CONCRETE
    n_estimation: int = 927  # number of rows for estimation


@dataclass(frozen=True)
class CascadedTanksData(DataSource):
    """Measured record of two water tanks, one above the other, fed by a pump.

    1024 samples for estimation and 1024 for the test, every 4 s. Input ``pump_voltage`` [V], a
    multisine up to 0.0144 Hz held between the samples; output ``level`` [V], the sensor of the
    lower tank, not calibrated, which overflows at 10 V. The states at the start are unknown but the
    same in both records.

    Licence CC BY-SA 4.0. Source: 4TU.ResearchData, DOI 10.4121/12960104. Cite Schoukens and Noel,
    *Three Benchmarks Addressing Open Challenges in Nonlinear System Identification*, 2017.

    Notes
    -----
    Up to version 1.0.0 the loader of the benchmark did not score the first 5 samples of the test;
    since 1.0.1 it does not score the first 50. Published errors use either number. The file
    ``dataBenchmark.csv`` has 5 digits, the other files have all of them.
    """

    #: folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    path: str | None = None
    #: samples of the test that are not scored; older publications: 5
    initialisation_window: int = 50

    def load(self) -> Recordings:
        """Read both records; see `DataSource.load`."""
        estimation = CASCADED_TANKS_ESTIMATION.load(self.path)
        test = CASCADED_TANKS_TEST.load(self.path, initialisation_window=self.initialisation_window)
        return Recordings(
            "cascaded_tanks",
            ("pump_voltage",),
            ("level",),
            estimation=(estimation,),
            test=(test,),
        )


#: first sample of the ten multisine realisations of the Silverbox, and first sample after them
SILVERBOX_MULTISINE = (40650, 127400)

#: first sample after the three quarters of the multisine realisations that are for estimation
SILVERBOX_ESTIMATION_END = 40650 + 65062

#: first sample of the arrow, the noise whose amplitude grows, and first sample after it
SILVERBOX_ARROW = (100, 40575)

#: number of samples of the arrow that stay in the range of the multisine
N_ARROW_WITHIN_RANGE = 32000


@dataclass(frozen=True)
class SilverboxData(DataSource):
    """Measured record of the Silverbox, 131072 samples at 610.35 Hz, in the usual split.

    Input ``input_voltage`` [V], output ``output_voltage`` [V]. Estimation: the first three quarters
    of the multisine. Test, three records: the last quarter of the multisine, the whole arrow (noise
    whose amplitude grows beyond that of the estimation record), and the first 32000 samples of the
    arrow, which need no extrapolation.

    No licence is stated for the data. Cite Wigren and Schoukens, *Three free data sets for
    development and benchmarking in nonlinear system identification*, 2013. The file keeps 5 digits.
    """

    #: folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    path: str | None = None
    initialisation_window: int = 50  # samples of each test that are not scored

    def load(self) -> Recordings:
        """Read the records; see `DataSource.load`."""
        whole = SILVERBOX.load(self.path)
        multisine_start, multisine_end = SILVERBOX_MULTISINE
        arrow_start, arrow_end = SILVERBOX_ARROW
        estimation = part(
            whole,
            multisine_start,
            SILVERBOX_ESTIMATION_END,
            name="Silverbox multisine, estimation",
        )
        test_ranges = {
            "Silverbox multisine, test": (SILVERBOX_ESTIMATION_END, multisine_end),
            "Silverbox arrow, test": (arrow_start, arrow_end),
            "Silverbox arrow without extrapolation, test": (
                arrow_start,
                arrow_start + N_ARROW_WITHIN_RANGE,
            ),
        }
        test = tuple(
            part(
                whole,
                start,
                end,
                name=name,
                initialisation_window=self.initialisation_window,
            )
            for name, (start, end) in test_ranges.items()
        )
        return Recordings(
            "silverbox",
            ("input_voltage",),
            ("output_voltage",),
            estimation=(estimation,),
            test=test,
        )


@dataclass(frozen=True)
class BoucWenData(DataSource):
    """Records of the Bouc-Wen oscillator, a mass on a hysteretic spring, at 750 Hz.

    Input ``force`` [N], random-phase multisines from 5 to 150 Hz with 50 N rms and a period of 8192
    samples (attribute ``period``); output ``displacement`` [m]. Test: the official multisine, 8192
    samples. Estimation: 32768 samples made by a user of the benchmark, which has no official
    estimation record. The attribute ``official`` is 1 for the test and 0 for the estimation record.

    Licence of the test CC BY-SA 4.0 (4TU.ResearchData, DOI 10.4121/12967592), of the estimation
    record BSD-3-Clause. Cite Schoukens and Noel, 2017.

    Notes
    -----
    The benchmark states no initialisation window. Both records are in steady state, so that the end
    of the period precedes the first sample; by default every sample is scored.
    """

    #: folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    path: str | None = None
    user_made_estimation: bool = True  # False: the official test alone
    initialisation_window: int = 0  # samples of the test that are not scored

    def load(self) -> Recordings:
        """Read the records; see `DataSource.load`."""
        test = BOUC_WEN_TEST.load(self.path, initialisation_window=self.initialisation_window)
        estimation = (BOUC_WEN_ESTIMATION.load(self.path),) if self.user_made_estimation else ()
        return Recordings(
            "bouc_wen",
            ("force",),
            ("displacement",),
            estimation=estimation,
            test=(test,),
        )
