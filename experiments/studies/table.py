"""Tables 2 to 4: cells over tasks, settings, criteria, variants and seeds, beside the published ones."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import xarray as xr

from experiments.studies.cells import Cell, Choices, combine_cells, compute_cells, outcomes_under
from experiments.studies.plan import Plan
from experiments.studies.published_table import published_cell
from experiments.studies.stream import Outcome
from experiments.studies.study import Study, Unit
from experiments.studies.table_markdown import table_markdown
from experiments.studies.table_rows import long_row
from experiments.studies.table_summary import select, summaries
from experiments.studies.tasks.catalogue import TASKS
from experiments.studies.threshold import is_meaningless, own_threshold
from sysid import Always, ErrorThreshold, Insertion, VarianceThreshold

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Table(Study):
    """A table of cells."""

    @abstractmethod
    def outcomes(self, task: str, cells: Mapping[str, Cell], criterion: str) -> Mapping[str, Choices]:
        """Threshold and outcome of the cells of all variants, by choice of the threshold."""

    def units(self, plan: Plan) -> list[Unit]:
        """One unit per task and seed, of records too: the adaptive setting keeps a random sample of the stream."""
        return [Unit(self.name, name, seed) for name in plan.tasks for seed in range(plan.seeds)]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Cells of a task and seed."""
        return compute_cells(unit, plan, partial(self.outcomes, unit.task))

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """All tasks and seeds."""
        return combine_cells(parts, plan)

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """Long form."""
        return [long_row(cell) for cell in summaries(store, self.name)]

    def markdown(self, store: xr.Dataset) -> str:
        """One table per setting, counts, cells that stay worse, comparisons.

        Reads the attributes ``gaps`` (JSON, dataset to the reason why it has no data) and ``floors`` (JSON, dataset to
        a reachable SMSE), if they are there.
        """
        return table_markdown(store, self.name)

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """Ours against published, one figure per setting."""
        from experiments.studies.table_figures import dot_plot

        cells = summaries(store, self.name)
        chosen = {setting: select(cells, setting=setting) for setting in store["setting"].values}
        return {f"{self.name}_{s}": partial(dot_plot, found) for s, found in chosen.items()}


class Table2(Table):
    """All new points are offered: SMSE and percentage accepted, with and without acceptance."""

    name, title = "table_2", "Table 2: all new points offered"
    weight = 1.0

    def outcomes(self, task: str, cells: Mapping[str, Cell], criterion: str) -> Mapping[str, Choices]:
        """No threshold."""
        found = outcomes_under(Always(), cells)
        return {variant: {"published": (float("nan"), outcome)} for variant, outcome in found.items()}


class ThresholdTable(Table):
    """Insertion by one threshold alone: SMSE and revised points."""

    rule: ClassVar[type[Insertion]]
    weight = 1.0

    def outcomes(self, task: str, cells: Mapping[str, Cell], criterion: str) -> Mapping[str, Choices]:
        """The published threshold, and one of our rule where that means nothing."""
        published = {
            variant: published_cell(self.name, TASKS[task].title, criterion, accepting=variant != "none")
            for variant in cells
        }
        (threshold,) = {cell.threshold for cell in published.values()}
        found: dict[str, dict[str, tuple[float, Outcome]]] = {}
        for variant, outcome in outcomes_under(self.rule(threshold), cells).items():  # type: ignore[call-arg]
            found[variant] = {"published": (threshold, outcome)}
            if is_meaningless(outcome, published[variant].n_revised):
                found[variant]["own"] = own_threshold(cells[variant], self.rule, int(published[variant].n_revised))
        return found


class Table3(ThresholdTable):
    """The variance threshold."""

    name, title, rule = "table_3", "Table 3: insertion by the variance threshold", VarianceThreshold


class Table4(ThresholdTable):
    """The error threshold."""

    name, title, rule = "table_4", "Table 4: insertion by the error threshold", ErrorThreshold
