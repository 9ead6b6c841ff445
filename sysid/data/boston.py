"""Boston housing: prices of 506 districts."""

from dataclasses import dataclass
from functools import partial

from sysid.data.published import Form, PinnedFile, PublishedTable
from sysid.data.reader import read_csv, read_plain
from sysid.data.source import DataSource
from sysid.data.static_table import Column, split_rows
from sysid.recordings import Recordings

COLUMNS = {
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
}
ORIGINAL = PinnedFile(
    "housing.data",
    "e3e36f7b9e5435f9eb8320e106aebad00031fefa3064527da0c71dec59e49b76",
    "https://raw.githubusercontent.com/jbrownlee/Datasets/d20fcb6402ae34e653d4513b00f39257bb37ed7f/housing.data",
)
CONVERTED = PinnedFile("boston_housing.csv", "ebf8b4a9ceaf375f9591be7b862b3eafc6efc952251e77f09dd6c2df9e216ba0")
TABLE = PublishedTable(
    folder="boston_housing",
    forms=(
        Form((ORIGINAL,), partial(read_plain, names=tuple(COLUMNS))),
        Form((CONVERTED,), partial(read_csv, names=tuple(COLUMNS))),
    ),
    attributes={
        "licence": "none stated (StatLib, UCI): do not pass it on without asking",
        "source": "https://github.com/jbrownlee/Datasets",
        "citation": "D. Harrison, D.L. Rubinfeld, Hedonic prices and the demand for clean air, J. Environ. Economics "
        "and Management 5, 1978",
    },
)


@dataclass(frozen=True)
class BostonData(DataSource):
    """Boston housing, 506 rows in the classical, uncorrected version: 13 inputs, output ``MEDV`` [1000 USD].

    The rows are independent (attribute ``static``). The default split is by file order, 451 rows for estimation
    and 55 for the test.

    No licence is stated. Cite Harrison and Rubinfeld, *Hedonic prices and the demand for clean air*, 1978. The
    column ``B`` is a transform based on race, for which several libraries have removed the set: here it serves
    the comparison with published figures only.
    """

    path: str | None = None  # folder with a local copy; None: that of SYSID_DATA, else the cache, else a download
    n_estimation: int = 451  # rows
    shuffle: bool = False  # order the rows at random before the split
    seed: int = 0  # of the order, used only with shuffle

    def load(self) -> Recordings:
        """Read and split the table; see `DataSource.load` and `split_rows`."""
        return split_rows(
            TABLE.load(self.path),
            COLUMNS,
            name="boston",
            target="MEDV",
            n_estimation=self.n_estimation,
            shuffle=self.shuffle,
            seed=self.seed,
        )
