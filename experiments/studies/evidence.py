"""What claims are tested on: the stores of other studies in one setting, as paired log ratios."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from experiments.studies.setting import Setting
from experiments.studies.tasks.catalogue import TASKS
from experiments.studies.verdict import LOWER, Comparison, Region

COVERAGE, POINT = 0.95, 0.01  # of the band; one percentage point

CELL = ("criterion", "variant", "threshold_choice")  # dimensions of a table in one setting

#: quantity to a scale on which a difference is a log ratio
SCALES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "smse": np.log,
    "accepted_percent": np.log,
    "n_revised": np.log1p,  # plus one point: none is possible
    "n_inserted": np.log1p,
    "nlpd": np.array,  # nats: the ratio is that of the predictive densities
    "coverage_95": lambda share: np.log(np.abs(share - COVERAGE) + POINT),  # distance, plus one point
}


class NeedsError(LookupError):
    """Results that a claim needs and that are not there."""


class Results(NamedTuple):
    """Stores in one setting."""

    setting: str
    stores: Mapping[str, xr.Dataset]  # name of the study
    has_seeds: bool = True  # False: one number per task, nothing can be tested

    def store(self, study: str) -> xr.Dataset:
        """Store of a study in the setting; one that does not tell settings apart is of the setting `trained`.

        Raises
        ------
        NeedsError
            There is none, or it has another setting only.
        """
        if study not in self.stores:
            raise NeedsError(f"{study}.nc")
        found = self.stores[study]
        if self.setting not in settings_of(found):
            raise NeedsError(f"{study}.nc with setting {self.setting}")
        return found.sel(setting=self.setting) if "setting" in found.dims else found


def settings_of(store: xr.Dataset) -> list[str]:
    """Settings that a store has."""
    return store["setting"].values.tolist() if "setting" in store.dims else [Setting.trained.value]


class Evidence(ABC):
    """Comparisons at every place where a claim is tested."""

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """Studies whose stores it reads."""

    @abstractmethod
    def places(self, results: Results) -> dict[str, list[Comparison]]:
        """Comparisons at every place, without values where there are no results.

        Raises
        ------
        NeedsError
            A store that is missing, or that has no such variable or label.
        """


Cell = tuple[str, str]  # criterion and variant


class Ratio(NamedTuple):
    """A quantity of some cells of a table over that of others (geometric means), or over a number."""

    label: str
    quantity: str
    above: tuple[Cell, ...]
    below: tuple[Cell, ...] | float
    region: Region = LOWER

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells."""
        return self.above + (self.below if isinstance(self.below, tuple) else ())


class Condition(NamedTuple):
    """Seeds that a claim speaks of: where a quantity of a cell, or its share, lies strictly between two numbers."""

    cell: Cell
    quantity: str
    low: float
    high: float
    whole: str = ""  # quantity that it is a share of

    def applies(self, rows: xr.Dataset) -> np.ndarray:
        """Mask (seed,) of one task."""
        values = cell_values(rows, self.cell, self.quantity)
        if self.whole:
            values = values / cell_values(rows, self.cell, self.whole)
        return np.asarray((self.low < values) & (values < self.high))


@dataclass(frozen=True)
class TableEvidence(Evidence):
    """Ratios of the cells of a table, task by task.

    At the published thresholds; with `own`, a seed where all the compared cells have a threshold of our rule is judged
    at those. A task whose seeds all miss the conditions is no place of the claim.
    """

    table: str
    ratios: tuple[Ratio, ...]
    own: bool = True
    conditions: tuple[Condition, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The table."""
        return (self.table,)

    def places(self, results: Results) -> dict[str, list[Comparison]]:
        """All tasks of the paper by their titles."""
        store = results.store(self.table).transpose("dataset", *CELL, "seed")
        found: dict[str, list[Comparison]] = {}
        for task in TASKS.values():
            rows = store.sel(dataset=task.title) if task.title in store["dataset"].values else None
            applies = self._applies(rows)
            if rows is not None and len(applies) and not applies.any():
                continue
            is_tested = task.is_random and results.has_seeds
            values = [np.empty(0)] * len(self.ratios) if rows is None else self._log_ratios(rows, applies)
            found[task.title] = [
                Comparison(ratio.label, x, ratio.region, is_tested)
                for ratio, x in zip(self.ratios, values, strict=True)
            ]
        return found

    def _log_ratios(self, rows: xr.Dataset, chosen: np.ndarray) -> list[np.ndarray]:
        """Log ratios over the chosen seeds, one array per ratio."""
        cells = {cell for ratio in self.ratios for cell in ratio.cells}
        has_own = self.own & np.all([np.isfinite(cell_values(rows, cell, "smse", "own")) for cell in cells], axis=0)

        def scaled(side: tuple[Cell, ...] | float, quantity: str) -> np.ndarray:
            scale = SCALES[quantity]
            if not isinstance(side, tuple):
                return scale(np.array(side))
            choices = [[cell_values(rows, cell, quantity, choice) for choice in ("own", "published")] for cell in side]
            return np.mean([scale(np.where(has_own, *pair)) for pair in choices], axis=0)

        with np.errstate(divide="ignore", invalid="ignore"):  # 0 % against 0 % says nothing: nan, which is left out
            pairs = [(scaled(r.above, r.quantity), scaled(r.below, r.quantity)) for r in self.ratios]
            return [(above - below)[chosen] for above, below in pairs]

    def _applies(self, rows: xr.Dataset | None) -> np.ndarray:
        """Seeds with data for which the claim is meant, as a mask; nothing without data."""
        if rows is None:
            return np.empty(0, bool)
        has_data = np.isfinite(cell_values(rows, self.ratios[0].above[0], "smse"))
        if not has_data.any():
            return np.empty(0, bool)
        return np.logical_and.reduce([has_data, *(condition.applies(rows) for condition in self.conditions)])


def cell_values(rows: xr.Dataset, cell: Cell, quantity: str, choice: str = "published") -> np.ndarray:
    """A quantity of a cell of one task over seeds; the dimensions are `CELL` and the seed, in this order.

    Raises
    ------
    NeedsError
        The table has no such quantity, criterion or variant.
    """
    criterion, variant = cell
    try:
        place = [rows.indexes[dim].get_loc(name) for dim, name in zip(CELL, (criterion, variant, choice), strict=True)]
        return np.asarray(rows.variables[quantity].values[tuple(place)])
    except KeyError as error:
        raise NeedsError(f"a table with {error.args[0]}") from error
