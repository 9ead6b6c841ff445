"""Any acceptance criterion with any reduction criterion: the full grid, which the paper asks for and does not show."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments.benchmarks.scores import CRITERIA
from experiments.studies.cells import combine_parts
from experiments.studies.grid_verdict import cell_medians, grid_markdown
from experiments.studies.plan import Plan
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.stream import Outcome, identification_of, initial_smse, offer
from experiments.studies.study import Study, Unit
from sysid import AcceptAll, Acceptance, Always, ExceedsMinimum, Reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCEPTANCES: dict[str, Acceptance] = {"none": AcceptAll()} | {
    name: ExceedsMinimum(criterion, reference=Reference.leave_one_out) for name, criterion in CRITERIA.items()
}
CELL = ("acceptance", "reduction")
QUANTITIES = (*Outcome._fields, "accepted_percent")
COLUMNS = ("dataset", "setting", "reduction", "acceptance", "reference")
MEDIANS = ("smse", "n_revised", "accepted_percent")


class Grid(Study):
    """All new points offered with trained hyper-parameters; stored points judged without themselves."""

    name, title = "grid", "Acceptance by reduction: all pairs of criteria"
    weight = 0.45

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """One stream for each of the 30 cells."""
        data = data_of(unit.task, unit.seed, plan)
        start = hyperparameters_of(unit.task, unit.seed, Setting.trained, plan)
        cells = empty_grid()
        arrays = {quantity: cells[quantity].values for quantity in QUANTITIES}  # views: faster than labels
        before = initial_smse(data, start)
        for i, acceptance in enumerate(ACCEPTANCES.values()):
            for j, reduction in enumerate(CRITERIA.values()):
                identification = identification_of(
                    data, start, Always(), acceptance, reduction, budget=plan.budget, seed=unit.seed
                )
                outcome = offer(identification, data, smse_initial=before)
                for quantity, array in arrays.items():
                    array[i, j] = getattr(outcome, quantity)
        return cells

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """All tasks and seeds; nan where a task has no such seed, or no data."""
        return combine_parts(parts, plan, empty_grid()).transpose("dataset", *CELL, "seed")

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """Medians over seeds, one row per cell; without data nan and no seed."""
        medians = cell_medians(store)
        n_seeds = store["smse"].notnull().sum("seed")
        rows: list[dict[str, object]] = []
        for place in np.ndindex(*medians["smse"].shape):
            dataset, acceptance, reduction = (
                str(medians[d].values[i]) for d, i in zip(("dataset", *CELL), place, strict=True)
            )
            reference = "" if acceptance == "none" else Reference.leave_one_out.value
            key = dict(zip(COLUMNS, (dataset, Setting.trained.value, reduction, acceptance, reference), strict=True))
            values = {name: float(medians[name].values[place]) for name in MEDIANS}
            rows.append({**key, **values, "n_seeds": int(n_seeds.values[place])})
        return rows

    def markdown(self, store: xr.Dataset) -> str:
        """Medians, best cells, whether matched acceptance is best, and which criteria agree."""
        return grid_markdown(store)

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """Heat maps relative to the best cell of each dataset."""
        from experiments.studies.grid_figures import heat_maps

        return {self.name: lambda: heat_maps(cell_medians(store)["smse"])}


def empty_grid() -> xr.Dataset:
    """All cells of one task and seed, nan."""
    coords = {"acceptance": list(ACCEPTANCES), "reduction": list(CRITERIA)}
    shape = (len(ACCEPTANCES), len(CRITERIA))
    return xr.Dataset({name: (CELL, np.full(shape, np.nan)) for name in QUANTITIES}, coords=coords)
