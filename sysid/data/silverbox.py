"""Silverbox: the measured record of an electronic Duffing oscillator."""

from dataclasses import dataclass
from functools import partial

from sysid.data.published import Form, PinnedFile, PublishedTable
from sysid.data.reader import read_csv
from sysid.data.source import DataSource
from sysid.recordings import Recordings, make_record, part

FILE = PinnedFile(
    "SNLS80mV.csv",
    "ae62d5a91230c10f76e6dd02c8a4fac3c9d4d8a95fbf50e87cb0c4885003e0f1",
    "https://raw.githubusercontent.com/biaslab/nsi-silverbox/728f07e4539d4f7da76a4778b52a756260b488ac/"
    "data/Silverbox/SNLS80mV.csv",
)
TABLE = PublishedTable(
    folder="silverbox",
    forms=(Form((FILE,), partial(read_csv, names=("V1", "V2"))),),
    attributes={
        "licence": "none stated for the data (published as a free data set): do not pass it on without asking",
        "source": "https://github.com/biaslab/nsi-silverbox (repository: MIT)",
        "citation": "T. Wigren, J. Schoukens, Three free data sets for development and benchmarking in nonlinear "
        "system identification, European Control Conference 2013",
    },
)
SAMPLING_TIME = 1 / 610.35  # s
MULTISINE = (40650, 127400)  # samples of the ten realisations, end excluded
TRAINING_END = 40650 + 65062  # the first three quarters of them
ARROW = (100, 40575)  # samples of the growing noise, end excluded
WITHIN_TRAINING = 32000  # samples of the arrow up to which it stays in the range of the multisine


@dataclass(frozen=True)
class SilverboxData(DataSource):
    """Measured record of the Silverbox, 131072 samples at 610.35 Hz, in the usual split.

    Input ``input_voltage`` [V], output ``output_voltage`` [V]. Estimation: the first three quarters of the
    multisine. Test, three records: the last quarter of it, the whole arrow (noise whose amplitude grows beyond
    that of the estimation record), and its first 32000 samples, where nothing is extrapolated.

    No licence is stated for the data. Cite Wigren and Schoukens, *Three free data sets for development and
    benchmarking in nonlinear system identification*, 2013. The file keeps 5 digits.
    """

    path: str | None = None  # folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    initialisation_window: int = 50  # samples of each test that are not judged

    def load(self) -> Recordings:
        """Read the records; see `DataSource.load`."""
        columns, attributes = TABLE.load(self.path)
        whole = make_record(
            {"input_voltage": columns["V1"], "output_voltage": columns["V2"]},
            name="Silverbox",
            sampling_time=SAMPLING_TIME,
            units={"input_voltage": "V", "output_voltage": "V"},
            long_names={"input_voltage": "input voltage", "output_voltage": "output voltage"},
            attributes=attributes,
        )
        estimation = part(whole, MULTISINE[0], TRAINING_END, name="Silverbox multisine, estimation")
        ranges = {
            "Silverbox multisine, test": (TRAINING_END, MULTISINE[1]),
            "Silverbox arrow, test": ARROW,
            "Silverbox arrow without extrapolation, test": (ARROW[0], ARROW[0] + WITHIN_TRAINING),
        }
        test = tuple(
            part(whole, *bounds, name=name, initialisation_window=self.initialisation_window)
            for name, bounds in ranges.items()
        )
        return Recordings("silverbox", ("input_voltage",), ("output_voltage",), estimation=(estimation,), test=test)
