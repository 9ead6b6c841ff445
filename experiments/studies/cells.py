"""Cells of tables 2 to 4: one stream for every setting, criterion, variant and choice of threshold."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import xarray as xr

from experiments.studies.plan import Plan
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.stream import (
    CRITERIA,
    VARIANTS,
    Outcome,
    acceptance_of,
    distinct_variants,
    identification_of,
    initial_smse,
    offer,
)
from experiments.studies.study import Unit, seeds_of
from experiments.studies.tasks.catalogue import TASKS
from experiments.studies.tasks.task import TaskData
from sysid import Hyperparameters, Insertion

CELL = ("setting", "criterion", "variant", "threshold_choice")
QUANTITIES = (*Outcome._fields, "accepted_percent", "threshold")
CHOICES = ("published", "own")  # the published threshold; one of our rule, where that means nothing


class Cell:
    """One stream of a task and seed, at any threshold."""

    def __init__(self, unit: Unit, plan: Plan, setting: Setting, criterion: str, variant: str) -> None:
        row_seed = TASKS[unit.task]().row_seed(unit.seed)
        self.data: TaskData = data_of(unit.task, row_seed, plan)
        self.start: Hyperparameters = hyperparameters_of(unit.task, row_seed, setting, plan)
        self.training = setting.training(plan.n_initial)
        self.criterion, self.variant = CRITERIA[criterion], variant
        self.budget, self.seed = plan.budget, unit.seed
        self.smse_initial = _initial_smse(unit.task, row_seed, setting, plan)

    def offer(self, insertion: Insertion) -> Outcome:
        """What becomes of the stream under an insertion rule."""
        identification = identification_of(
            self.data,
            self.start,
            insertion,
            acceptance_of(self.criterion, self.variant),
            self.criterion,
            budget=self.budget,
            seed=self.seed,
            training=self.training,
        )
        return offer(identification, self.data, smse_initial=self.smse_initial)


@lru_cache(maxsize=len(Setting))
def _initial_smse(task: str, seed: int, setting: Setting, plan: Plan) -> float:
    return initial_smse(data_of(task, seed, plan), hyperparameters_of(task, seed, setting, plan))


def empty_cells() -> xr.Dataset:
    """All cells of one task and seed, nan."""
    coords: dict[str, list[str]] = {
        "setting": [setting.value for setting in Setting],
        "criterion": list(CRITERIA),
        "variant": list(VARIANTS),
        "threshold_choice": list(CHOICES),
    }
    shape = tuple(len(values) for values in coords.values())
    return xr.Dataset({name: (CELL, np.full(shape, np.nan)) for name in QUANTITIES}, coords=coords)


#: threshold and outcome, by choice of the threshold
Choices = Mapping[str, tuple[float, Outcome]]


def compute_cells(
    unit: Unit, plan: Plan, outcomes: Callable[[Mapping[str, Cell], str], Mapping[str, Choices]]
) -> xr.Dataset:
    """Fill the cells of a task and seed.

    Of a record the seed decides only which sample the adaptive setting keeps: with seeds above 0 it is the only one.

    Parameters
    ----------
    outcomes
        From the cells of all variants that differ, by variant, and the name of their criterion to what becomes of
        each. A variant that makes the same decisions as another is not among them.
    """
    cells = empty_cells()
    arrays = {quantity: cells[quantity].values for quantity in QUANTITIES}  # views: faster than labels
    for i, setting in enumerate(Setting):
        if setting is not Setting.adaptive and TASKS[unit.task]().row_seed(unit.seed) != unit.seed:
            continue
        for j, (name, criterion) in enumerate(CRITERIA.items()):
            same = distinct_variants(criterion)
            distinct = {v: Cell(unit, plan, setting, name, v) for v in dict.fromkeys(same.values())}
            found = outcomes(distinct, name)
            for k, variant in enumerate(same.values()):
                for choice, (threshold, outcome) in found[variant].items():
                    values = outcome._asdict() | {"accepted_percent": outcome.accepted_percent, "threshold": threshold}
                    for quantity, value in values.items():
                        arrays[quantity][i, j, k, CHOICES.index(choice)] = value
    return cells


def outcomes_under(insertion: Insertion, cells: Mapping[str, Cell]) -> dict[str, Outcome]:
    """Outcome of every variant under an insertion rule, without computing what must come out the same.

    The in-sample score of a stored point never exceeds its leave-one-out score: with ``u = noise_variance q`` in (0, 1]
    the latent variances are ``s (1 - u)`` against ``s (1 - u) / u``, the squared residuals ``s^2 a^2`` against
    ``s^2 a^2 / u^2``, the noisy variances ``s (2 - u)`` against ``s / u``. So where the leave-one-out reference, the
    strictest, accepts every point that is inserted, all variants make the same decisions.
    """
    strictest = cells["leave_one_out"].offer(insertion)
    if strictest.n_revised == strictest.n_inserted:
        return dict.fromkeys(cells, strictest)
    return {name: strictest if name == "leave_one_out" else cell.offer(insertion) for name, cell in cells.items()}


def combine_cells(parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
    """Cells over tasks and seeds; nan where a task has no such seed, or no data."""
    return combine_parts(parts, plan, empty_cells()).transpose("dataset", *CELL, "seed")


def combine_parts(parts: Mapping[Unit, xr.Dataset], plan: Plan, empty: xr.Dataset) -> xr.Dataset:
    """Parts of one task and seed each along ``dataset`` (titles) and ``seed``; `empty` stands where there is none."""
    tasks = []
    for name in plan.tasks:
        seeds = sorted(unit.seed for unit in parts if unit.task == name)
        found = [part.drop_attrs() for part in seeds_of(parts, name)] or [empty]
        tasks.append(xr.concat(found, xr.Variable("seed", seeds or [0])).reindex(seed=range(plan.seeds)))
    return xr.concat(tasks, xr.Variable("dataset", [TASKS[name].title for name in plan.tasks]))
