"""Baselines: full and sparse GPs, linear ARX and the online GP on every task, beside published values and floors."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments.studies.baselines.catalogue import METHODS
from experiments.studies.baselines.floor import floor
from experiments.studies.baselines.method import QUANTITIES, Material, measured
from experiments.studies.baselines.report import markdown
from experiments.studies.plan import Plan
from experiments.studies.published_table import FULL_GP_VAN_DER_POL, VFE_BUILDING
from experiments.studies.setting import data_of
from experiments.studies.study import Study, Unit
from experiments.studies.tasks.catalogue import TASKS, task_of
from experiments.studies.tasks.task import Rows, TaskData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = ("boston", "concrete")  # rows without time, which can be shuffled
ORDERS = ("given", "shuffled")
SHUFFLED_METHODS = ("full_gp", "online_gp", "ridge")
SEEDED_METHODS = ("online_gp_adaptive",)  # whose seed decides more than the rows
FLOORS = ("floor_whole_past", "floor_true_state")
PUBLISHED = {("van_der_pol", "full_gp"): FULL_GP_VAN_DER_POL, ("building", "vfe"): VFE_BUILDING}
SECONDS, BUILDING_SECONDS, SHUFFLED_SECONDS = 5.0, 30.0, 1.5  # of a unit, about


class BaselinesStudy(Study):
    """Batch models beside the online GP; shuffled tables as data sets of their own, which never count."""

    name, title = "baselines", "Baselines: batch models beside the online GP"

    def units(self, plan: Plan) -> list[Unit]:
        """One unit per task and seed, of records too: tables are shuffled, and the adaptive GP keeps a sample."""
        return [Unit(self.name, name, seed) for name in plan.tasks for seed in range(plan.seeds)]

    def expected_seconds(self, unit: Unit, plan: Plan) -> float:
        """The Building takes longest, a shuffled table alone is short."""
        if unit.task == "building":
            return BUILDING_SECONDS
        return SHUFFLED_SECONDS if unit.seed not in task_of(unit.task, plan).seeds(plan.seeds) else SECONDS

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Quantities (order, model) of a task and seed, nan where a method is not computed; floors of the Building."""
        part = _blank()
        row_seed = task_of(unit.task, plan).row_seed(unit.seed)
        methods = tuple(METHODS) if row_seed == unit.seed else SEEDED_METHODS
        material = Material.of(data_of(unit.task, row_seed, plan), unit.task, unit.seed, plan)
        _fill(part, "given", material, methods)
        if unit.task in TABLES:
            data = shuffled(data_of(unit.task, 0, plan), unit.seed)
            _fill(part, "shuffled", Material.of(data, unit.task, unit.seed, plan), SHUFFLED_METHODS)
        if unit.task == "building":
            found = floor(task_of(unit.task, plan).rows(unit.seed)[1])
            part = part.assign(floor_whole_past=found.whole_past, floor_true_state=found.true_state)
        return part

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """Quantities (dataset, model, seed); a task without data is there, with nan."""
        sets = {}
        for task in plan.tasks:
            seeds = [parts.get(Unit(self.name, task, seed), _blank()) for seed in range(plan.seeds)]
            whole = xr.concat(seeds, "seed").assign_coords(seed=range(plan.seeds))
            sets[TASKS[task].title] = whole.sel(order="given", drop=True)
            if task in TABLES:
                sets[f"{TASKS[task].title}, shuffled"] = whole.sel(order="shuffled", drop=True)
        store = xr.concat(list(sets.values()), "dataset", combine_attrs="drop").assign_coords(dataset=list(sets))
        published = xr.full_like(store["smse"].isel(seed=0, drop=True), np.nan)
        for (task, method), value in PUBLISHED.items():
            if task in plan.tasks:
                published.loc[{"dataset": TASKS[task].title, "model": method}] = value
        store = store.assign(smse_published=published)
        for name, unit in QUANTITIES.items():
            store[name].attrs["units"] = unit
        return store.transpose("dataset", "model", "seed")

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """One row per data set and method that was computed, medians over seeds."""
        rows = []
        for dataset in store["dataset"].values:
            for model in store["model"].values:
                cell = store.sel(dataset=dataset, model=model)
                if n := int(np.isfinite(cell["smse"]).sum()):
                    rows.append(_row(cell) | {"n_seeds": n})
        return rows

    def markdown(self, store: xr.Dataset) -> str:
        """One table per group of tasks."""
        return markdown(store, self.rows(store))

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """Error against memory and time, on the Building; none if it was not computed."""
        title = TASKS["building"].title
        if title not in store["dataset"].values or not np.isfinite(store["smse"].sel(dataset=title)).any():
            return {}

        def draw() -> "Figure":
            from experiments.studies.baselines.figure import cost_figure

            return cost_figure(store.sel(dataset=title))

        return {"baselines_building": draw}


def shuffled(data: TaskData, seed: int) -> TaskData:
    """All rows in a random order, split and standardised as those in file order."""
    inputs = np.vstack([data.training_inputs, data.test_inputs])
    targets = np.concatenate([data.training_targets, data.test_targets])
    order = np.random.default_rng(seed).permutation(len(targets))
    training, test = np.split(order, [len(data.training_targets)])
    return TaskData.of(
        Rows(inputs[training], targets[training]), Rows(inputs[test], targets[test]), len(data.initial_targets)
    )


def _blank() -> xr.Dataset:
    coords = {"order": list(ORDERS), "model": list(METHODS)}
    cells = {name: (("order", "model"), np.full((len(ORDERS), len(METHODS)), np.nan)) for name in QUANTITIES}
    return xr.Dataset({**cells, **dict.fromkeys(FLOORS, np.nan)}, coords=coords)


def _fill(part: xr.Dataset, order: str, material: Material, names: tuple[str, ...]) -> None:
    """Quantities of the methods that are for this task."""
    n_rows = len(material.data.training_targets)
    for name in names:
        if METHODS[name].is_for(material.task, n_rows, material.seed):
            for quantity, value in measured(METHODS[name], material).items():
                part[quantity].loc[order, name] = value


def _row(cell: xr.Dataset) -> dict[str, object]:
    """Medians over the seeds that the method was computed for; the floor is that of the same seeds."""
    here = cell.isel(seed=np.flatnonzero(np.isfinite(cell["smse"])))
    row: dict[str, object] = {"dataset": str(cell["dataset"].values), "model": str(cell["model"].values)}
    row |= {name: median(here[name].values) for name in QUANTITIES}
    row["smse_published"] = float(cell["smse_published"])
    for name in FLOORS:
        row[name] = median(here[name].values)
    row["ratio_to_floor"] = median(here["smse"].values / here["floor_whole_past"].values)
    return row


def median(values: np.ndarray) -> float:
    """Without nan; nan of nothing."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
