"""Bouc-Wen hysteresis: the official multisine test and an estimation record made with the benchmark's generator."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import xarray as xr

from sysid.data.published import Form, PinnedFile, PublishedTable
from sysid.data.reader import read_csv, read_mat
from sysid.data.source import DataSource
from sysid.record import Array
from sysid.recordings import Recordings, make_record

URL = (
    "https://raw.githubusercontent.com/JanHHoekstra/Model-Augmentation-Public/"
    "e919367c87d0e23c40ebbc9a9bff5839bff5476e/data/bouc_wen/"
)
CITATION = (
    "M. Schoukens, J.P. Noel, Three Benchmarks Addressing Open Challenges in Nonlinear System Identification, "
    "IFAC World Congress 2017"
)
TEST_INPUT = PinnedFile(
    "uval_multisine.mat",
    "3eb9abc0aef66b97beaf003fbcb45b43a4e28d7e82db5bf8abc1c931b92106ed",
    URL + "uval_multisine.mat",
)
TEST_OUTPUT = PinnedFile(
    "yval_multisine.mat",
    "05e462f7c508c26c8e69549e2b80ff5acea2828b399175c8bdd3fa70eb9905bc",
    URL + "yval_multisine.mat",
)
TEST_CSV = PinnedFile("test_multisine.csv", "975a53a5a4436178d153693fed41ea5ab2b07d94761c7f0e2490203b4835895b")
TEST = PublishedTable(
    folder="bouc_wen",
    forms=(
        Form((TEST_INPUT, TEST_OUTPUT), partial(read_mat, names={"u": "uval_multisine", "y": "yval_multisine"})),
        Form((TEST_CSV,), partial(read_csv, names=("u", "y"))),
    ),
    attributes={
        "licence": "CC BY-SA 4.0: attribution, and the same licence when passed on",
        "source": "4TU.ResearchData, https://doi.org/10.4121/12967592",
        "citation": CITATION,
        "note": "official test, free of noise, one steady-state period",
    },
)
ESTIMATION_INPUT = PinnedFile(
    "uest_multisine.mat",
    "d397884e6b68cad06c91a1ee98dd84949a94826f56c4907aa1908583dc5c9a60",
    URL + "uest_multisine.mat",
)
ESTIMATION_OUTPUT = PinnedFile(
    "yest_multisine.mat",
    "ae0c7c0df174b61d17517c7092bc2b7d2888a695dbd9bca9a63c7c9fc067f605",
    URL + "yest_multisine.mat",
)
ESTIMATION_CSV = PinnedFile("est_multisine.csv", "6de509d23808fede53f90beea01c3cc7dffa37c588d2aec6707366264e735458")
ESTIMATION = PublishedTable(
    folder="bouc_wen",
    forms=(
        Form((ESTIMATION_INPUT, ESTIMATION_OUTPUT), partial(read_mat, names={"u": "u", "y": "y"})),
        Form((ESTIMATION_CSV,), partial(read_csv, names=("u", "y"))),
    ),
    attributes={
        "licence": "BSD-3-Clause, that of the repository",
        "source": "https://github.com/JanHHoekstra/Model-Augmentation-Public",
        "citation": CITATION,
        "note": "NOT official: made by a user with the generator of the benchmark; four steady-state periods, "
        "output noise of about 7.3e-6 m rms",
    },
)
SAMPLING_TIME = 1 / 750  # s
PERIOD = 8192  # samples of one period of the inputs


@dataclass(frozen=True)
class BoucWenData(DataSource):
    """Records of the Bouc-Wen oscillator, a mass on a hysteretic spring, at 750 Hz.

    Input ``force`` [N], random-phase multisines from 5 to 150 Hz with 50 N rms and a period of 8192 samples
    (attribute ``period``); output ``displacement`` [m]. Test: the official multisine, 8192 samples. Estimation:
    32768 samples made by a user of the benchmark, because it has no estimation record of its own; attribute
    ``official`` tells them apart (1 and 0).

    Licence of the test CC BY-SA 4.0 (4TU.ResearchData, DOI 10.4121/12967592), of the estimation record
    BSD-3-Clause. Cite Schoukens and Noel, 2017.

    Notes
    -----
    The benchmark names no initialisation window. Both records are in steady state, so that what came before
    the first sample is the end of the period; the default judges every sample.
    """

    path: str | None = None  # folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    user_made_estimation: bool = True  # False: the official test alone
    initialisation_window: int = 0  # samples of the test that are not judged

    def load(self) -> Recordings:
        """Read the records; see `DataSource.load`."""
        columns, attributes = TEST.load(self.path)
        test = _record(columns, "test", self.initialisation_window, attributes | {"official": 1})
        estimation: tuple[xr.Dataset, ...] = ()
        if self.user_made_estimation:
            columns, attributes = ESTIMATION.load(self.path)
            estimation = (_record(columns, "estimation (user-made)", 0, attributes | {"official": 0}),)
        return Recordings("bouc_wen", ("force",), ("displacement",), estimation=estimation, test=(test,))


def _record(columns: dict[str, Array], role: str, window: int, attributes: Mapping[str, str | int]) -> xr.Dataset:
    return make_record(
        {"force": columns["u"], "displacement": columns["y"]},
        name=f"Bouc-Wen multisine, {role}",
        sampling_time=SAMPLING_TIME,
        initialisation_window=window,
        units={"force": "N", "displacement": "m"},
        long_names={"force": "force on the mass", "displacement": "displacement of the mass"},
        attributes=dict(attributes) | {"period": PERIOD},
    )
