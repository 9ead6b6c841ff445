"""Cascaded tanks: the measured benchmark record."""

from dataclasses import dataclass
from functools import partial

from sysid.data.published import Form, PinnedFile, PublishedTable
from sysid.data.reader import read_csv, read_mat
from sysid.data.source import DataSource
from sysid.recordings import Recordings, make_record

COLUMNS = ("uEst", "yEst", "uVal", "yVal")
URL = (
    "https://raw.githubusercontent.com/JanHHoekstra/Model-Augmentation-Public/"
    "e919367c87d0e23c40ebbc9a9bff5839bff5476e/data/cascaded_tanks/"
)
MAT = PinnedFile(
    "dataBenchmark.mat",
    "cb2f88d4388be4d3f2a24c6402fba804976aac5f2e1f26cda59ea0a38d016eab",
    URL + "dataBenchmark.mat",
)
CONVERTED = PinnedFile("cascaded_tanks.csv", "0f68f71659be0e5719ccedd197097bd72a1117c0dc412acc919b55c1c597b924")
OFFICIAL_CSV = PinnedFile(
    "dataBenchmark.csv",
    "ef2388ed822f3aef4aa80d6b0f2b466dd80b361786b3eafc7a2957c31ea323a7",
    URL + "dataBenchmark.csv",
)
TABLE = PublishedTable(
    folder="cascaded_tanks",
    forms=(
        Form((MAT,), partial(read_mat, names={name: name for name in COLUMNS})),
        Form((CONVERTED,), partial(read_csv, names=COLUMNS)),
        Form((OFFICIAL_CSV,), partial(read_csv, names=COLUMNS)),
    ),
    attributes={
        "licence": "CC BY-SA 4.0: attribution, and the same licence when passed on",
        "source": "4TU.ResearchData, https://doi.org/10.4121/12960104",
        "citation": "M. Schoukens, J.P. Noel, Three Benchmarks Addressing Open Challenges in Nonlinear System "
        "Identification, IFAC World Congress 2017",
    },
)
SAMPLING_TIME = 4.0  # s


@dataclass(frozen=True)
class CascadedTanksData(DataSource):
    """Measured record of two water tanks, one above the other, fed by a pump.

    1024 samples for estimation and 1024 for the test, every 4 s. Input ``pump_voltage`` [V], a multisine up to
    0.0144 Hz held between the samples; output ``level`` [V], the sensor of the lower tank, not calibrated, which
    overflows at 10 V. The states at the start are unknown but the same in both records.

    Licence CC BY-SA 4.0. Source: 4TU.ResearchData, DOI 10.4121/12960104. Cite Schoukens and Noel, *Three
    Benchmarks Addressing Open Challenges in Nonlinear System Identification*, 2017.

    Notes
    -----
    The loader of the benchmark left the first 5 samples of the test unjudged up to its version 1.0.0 and leaves
    50 since 1.0.1: published errors use either. ``dataBenchmark.csv`` has 5 digits, the other forms all of them.
    """

    path: str | None = None  # folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    initialisation_window: int = 50  # samples of the test that are not judged; older publications: 5

    def load(self) -> Recordings:
        """Read both records; see `DataSource.load`."""
        columns, attributes = TABLE.load(self.path)
        units = {"pump_voltage": "V", "level": "V"}
        names = {"pump_voltage": "pump voltage", "level": "level of the lower tank"}
        estimation, test = (
            make_record(
                {"pump_voltage": columns[f"u{kind}"], "level": columns[f"y{kind}"]},
                name=f"cascaded tanks, {role}",
                sampling_time=SAMPLING_TIME,
                initialisation_window=window,
                units=units,
                long_names=names,
                attributes=attributes,
            )
            for kind, role, window in (("Est", "estimation", 0), ("Val", "test", self.initialisation_window))
        )
        return Recordings("cascaded_tanks", ("pump_voltage",), ("level",), estimation=(estimation,), test=(test,))
