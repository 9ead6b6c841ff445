"""Concrete: compressive strength of 1030 mixtures."""

from dataclasses import dataclass
from functools import partial

from sysid.data.published import Form, PinnedFile, PublishedTable
from sysid.data.reader import read_csv, read_xls
from sysid.data.source import DataSource
from sysid.data.static_table import Column, split_rows
from sysid.recordings import Recordings

DENSITY = "kg/m^3"
COLUMNS = {
    "cement": Column(DENSITY, "cement"),
    "slag": Column(DENSITY, "blast furnace slag"),
    "fly_ash": Column(DENSITY, "fly ash"),
    "water": Column(DENSITY, "water"),
    "superplasticizer": Column(DENSITY, "superplasticizer"),
    "coarse_aggregate": Column(DENSITY, "coarse aggregate"),
    "fine_aggregate": Column(DENSITY, "fine aggregate"),
    "age": Column("d", "age when tested"),
    "strength": Column("MPa", "compressive strength"),
}
ORIGINAL = PinnedFile(
    "Concrete_Data.xls",
    "0233dedd4c6f36b73ce7ffe2dd607eb5373ea74de1fe2a88c1b69fd69fabfad3",
    "https://raw.githubusercontent.com/Daniel-RPS/Concrete-Repository-UCI/4a13f04cfa4728053f904162a5294aa77e437853/"
    "Concrete_Data.xls",
)
CONVERTED = PinnedFile("concrete.csv", "55cb74d00d9d0e8327a8f43fdc22fa9522f10d2651eb16d5080c6e8cb074bf78")
TABLE = PublishedTable(
    folder="concrete",
    forms=(
        Form((CONVERTED,), partial(read_csv, names=tuple(COLUMNS))),
        Form((ORIGINAL,), partial(read_xls, names=tuple(COLUMNS))),
    ),
    attributes={
        "licence": "not stated with the file (UCI shows CC BY 4.0 as far as known; repository: MIT)",
        "source": "UCI Machine Learning Repository, copy of https://github.com/Daniel-RPS/Concrete-Repository-UCI",
        "citation": "I-C. Yeh, Modeling of strength of high-performance concrete using artificial neural networks, "
        "Cement and Concrete Research 28, 1998",
    },
)


@dataclass(frozen=True)
class ConcreteData(DataSource):
    """Concrete strength, 1030 rows: seven components [kg/m^3] and the age [d], output ``strength`` [MPa].

    The rows are independent (attribute ``static``); 25 of them are repeated in the original. The default split is
    by file order, 927 rows for estimation and 103 for the test. The downloaded original is an Excel 97 file and
    needs the package xlrd (``pip install 'sysid[records]'``).

    Licence not stated with the file; UCI shows CC BY 4.0 as far as known. Cite Yeh, *Modeling of strength of
    high-performance concrete using artificial neural networks*, 1998.
    """

    path: str | None = None  # folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    n_estimation: int = 927  # rows
    shuffle: bool = False  # order the rows at random before the split
    seed: int = 0  # of the order, used only with shuffle

    def load(self) -> Recordings:
        """Read and split the table; see `DataSource.load` and `split_rows`."""
        return split_rows(
            TABLE.load(self.path),
            COLUMNS,
            name="concrete",
            target="strength",
            n_estimation=self.n_estimation,
            shuffle=self.shuffle,
            seed=self.seed,
        )
