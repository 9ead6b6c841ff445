"""Results of single units on disk: written once, found again by an interrupted run."""

from pathlib import Path

import xarray as xr

from experiments.studies.plan import Plan
from experiments.studies.study import Unit
from experiments.studies.tasks.catalogue import TASKS, task_of
from sysid import store


def part_path(unit: Unit, plan: Plan) -> Path:
    """File of a unit."""
    return plan.parts / unit.file_name


def write_part(dataset: xr.Dataset, unit: Unit, plan: Plan) -> None:
    """Keep the result of a unit."""
    path = part_path(unit, plan)
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write(dataset, path, kind="study", attributes={"fingerprint": plan.fingerprint})


def read_part(unit: Unit, plan: Plan) -> xr.Dataset:
    """Result of a unit that was kept.

    Raises
    ------
    sysid.store.StoreError
        No file, a damaged one, or one of another plan or version.
    """
    path = part_path(unit, plan)
    dataset = store.read(path, kind="study")
    found = dataset.attrs.get("fingerprint")
    if found != plan.fingerprint:
        raise store.StoreError(
            f"{path} was computed with other settings or another version (fingerprint {found}, expected "
            f"{plan.fingerprint}): choose another folder (output=...), or move {plan.folder} away"
        )
    return dataset


def kept_tasks(plan: Plan) -> set[str]:
    """Tasks whose rows were prepared by this or an earlier run, for all seeds."""
    return {
        name
        for name in TASKS
        if all(part_path(Unit("preparation", name, s), plan).is_file() for s in task_of(name, plan).seeds(plan.seeds))
    }
