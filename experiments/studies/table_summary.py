"""Cells of tables 2 to 4 over their seeds, beside the published ones: what rows, Markdown and figures are made of."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr

from experiments.studies.cells import CELL
from experiments.studies.published_table import PublishedCell, published_cell
from experiments.studies.setting import Setting
from experiments.studies.stream import VARIANTS, spread

HEADLINE = "leave_one_out"  # our default reference
DIGITS = 4  # decimals of the printed SMSE


class Summary(NamedTuple):
    """A cell: the seeds that have a value, and what the paper prints."""

    dataset: str  # title
    setting: str
    criterion: str
    variant: str  # none, or the reference of the matched acceptance
    choice: str  # of the threshold
    values: Mapping[str, np.ndarray]  # quantity to its values (seed,)
    published: PublishedCell

    @property
    def n_seeds(self) -> int:
        """Seeds with a value."""
        return len(self.values["smse"])

    @property
    def smse(self) -> float:
        """Median over seeds; nan without data."""
        return self.median("smse")

    @property
    def is_at_or_below(self) -> bool:
        """Whether our median SMSE does not exceed the published number, with all our digits."""
        return self.smse <= self.published.smse

    @property
    def n_at_or_below(self) -> int:
        """Seeds at or below the published SMSE."""
        return int(np.sum(self.values["smse"] <= self.published.smse))

    def median(self, quantity: str) -> float:
        """Median over seeds without nan; nan without any."""
        return self.quartiles(quantity)[1]

    def quartiles(self, quantity: str) -> tuple[float, float, float]:
        """Lower quartile, median, upper quartile; nan without any value."""
        values = self.values[quantity]
        nan = float("nan")
        return spread(values) if np.isfinite(values).any() else (nan, nan, nan)


def summaries(store: xr.Dataset, table: str) -> list[Summary]:
    """Cells in the order of dataset, setting, criterion, variant and choice of the threshold.

    Own thresholds are there only where more than half of the seeds with data have one.

    Parameters
    ----------
    store
        What `experiments.studies.cells.combine_cells` gives.
    table
        Name of the published table: table_2, table_3 or table_4.
    """
    store = store.transpose("dataset", *CELL, "seed")
    arrays = {str(name): variable.values for name, variable in store.data_vars.items()}
    names = [[str(name) for name in store[dim].values] for dim in ("dataset", *CELL)]
    found: list[Summary] = []
    for place in np.ndindex(*(len(values) for values in names)):
        dataset, setting, criterion, variant, choice = (values[i] for values, i in zip(names, place, strict=True))
        has_value = np.isfinite(arrays["smse"][place])
        is_common = 2 * has_value.sum() > np.isfinite(arrays["smse"][place[:-1]]).any(axis=0).sum()
        if choice == "own" and not is_common:
            continue
        values = {name: array[place][has_value] for name, array in arrays.items()}
        published = published_cell(table, dataset, criterion, accepting=variant != "none")
        found.append(Summary(dataset, setting, criterion, variant, choice, values, published))
    return found


def with_own_thresholds(cells: list[Summary]) -> list[Summary]:
    """Cells with an own threshold in the place of the published one where there is one."""
    own = {cell[:4] for cell in cells if cell.choice == "own"}
    return [cell for cell in cells if cell.choice == "own" or cell[:4] not in own]


def select(cells: list[Summary], **names: str) -> list[Summary]:
    """Cells with these names, for instance ``setting="trained"``."""
    return [cell for cell in cells if all(getattr(cell, key) == value for key, value in names.items())]


#: the hyper-parameters of a setting, in words
SETTING_TEXT = {
    Setting.trained.value: "maximum a posteriori on the initial rows, then fixed",
    Setting.published.value: "one length scale per task, chosen to reproduce the published initial SMSE, then fixed",
    Setting.adaptive.value: "as trained at the start, re-estimated when the stream contradicts them",
}
#: variants with decisions of their own; the published reference repeats one of them
DISTINCT = VARIANTS[:3]
