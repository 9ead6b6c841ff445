"""Results of single units on disk: written once, found again by an interrupted run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import xarray as xr

from experiments.studies.plan import Plan
from experiments.studies.study import Unit, Work
from experiments.studies.tasks.catalogue import TASKS
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
    sysid.StoreError
        No file, a damaged one, or one of another plan or version.
    """
    path = part_path(unit, plan)
    try:
        dataset = store.read(path, kind="study")
    except store.StoreError as error:
        raise store.StoreError(f"{error}; or delete it, and the same command computes it again") from error
    found = dataset.attrs.get("fingerprint")
    if found != plan.fingerprint:
        raise store.StoreError(
            f"{path} was computed with other settings or another version (fingerprint {found}, expected "
            f"{plan.fingerprint}): choose another folder (output=...), or move {plan.folder} away"
        )
    return dataset


def kept_tasks(work: Work, plan: Plan) -> set[str]:
    """Tasks of which everything that this work computes is there, from this or an earlier run."""
    return {name for name in TASKS if _is_complete(work.units(replace(plan, tasks=(name,))), plan)}


def _is_complete(units: Sequence[Unit], plan: Plan) -> bool:
    return bool(units) and all(part_path(unit, plan).is_file() for unit in units)
