"""The data set of a sweep: a dimension per swept parameter, a variable per metric."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from experiments.collection.read import STATUSES, TIME, Results
from experiments.job_file import NUMBERS, SQUARED, TIMES, UNIT
from experiments.options import meant
from sysid.model.result import squared_unit

LARGEST_SHARE = 4  # cells of a grid for each of its jobs; a random search has far more
LONG_NAMES = {
    **{name: meaning for name, (_, meaning) in NUMBERS.items()},
    **{f"{TIME}_{name}": meaning for name, meaning in TIMES.items()},
    f"{TIME}_job": "wall time of the job in its worker",
}
#: unit by the last part of a name: of metrics, and of thresholds, which are in the units of the target
UNITS = {
    **{name: unit for name, (unit, _) in NUMBERS.items()},
    **dict.fromkeys(("held_out_rmse", "error_threshold"), UNIT),
    **dict.fromkeys(("noise_variance", "variance_threshold"), SQUARED),
    **dict.fromkeys(("nrmse", "r2", "msll", "coverage_50", "coverage_90", "n"), "1"),
    "fit_percent": "%",
}


def build_dataset(found: Results) -> xr.Dataset:
    """Lay out the metrics of all jobs over the swept parameters, nan where there is none.

    Parameters that do not form a grid (those of a search, or some that only some jobs have) are coordinates along one
    dimension ``job``. Several outputs are one more dimension, ``output``. Of several jobs with the same parameters the
    last one that is done has the cell, the last one if none is.

    Returns
    -------
    xarray.Dataset
        A variable for each metric, ``status`` (flags), ``number`` (of the job, and so of its folder; -1 without) and
        ``timed`` (1 where measured times can be compared).
    """
    jobs = found.jobs.assign(job=found.jobs.index)
    dims = list(found.parameters) if is_grid(found) else ["job"]
    axes = {name: pd.Categorical(jobs[name]) for name in dims}
    shape = [len(axis.categories) for axis in axes.values()]
    jobs["cell"] = np.ravel_multi_index([axis.codes.astype(int) for axis in axes.values()], shape)
    last_done = np.argsort(jobs["status"] == "done", kind="stable")
    jobs = jobs.iloc[last_done].drop_duplicates("cell", keep="last").sort_index()

    def lay_out(values: pd.Series, empty: float, dtype: type) -> np.ndarray:
        cells: np.ndarray = np.full(math.prod(shape), empty, dtype)
        cells[jobs["cell"]] = values.loc[jobs.index]
        return cells.reshape(shape)

    status = lay_out(jobs["status"].map(STATUSES.index), 0, np.int8)
    flags = {"flag_values": np.arange(len(STATUSES), dtype=np.int8), "flag_meanings": " ".join(STATUSES)}
    numbers = {"long_name": "number of the job and of its folder, -1 where there is none"}
    variables: dict[str, Any] = {
        "status": (dims, status, {"long_name": "what became of the job"} | flags),
        "number": (dims, lay_out(jobs["job"], -1, np.int64), numbers),
    }
    for name, keys in found.metrics.items():
        values = np.stack([lay_out(numbers[name], np.nan, float) for numbers in found.numbers.values()], axis=-1)
        own = ([*dims, "output"], values) if found.outputs else (dims, values[..., 0])
        unit = "s" if keys[0] == TIME else find_unit(keys[-1], found.target_unit)
        meaning = LONG_NAMES.get(name, " ".join(keys))
        variables[name] = (*own, _drop_empty(units=unit, long_name=meaning, measured=int(keys[0] == TIME)))
    if found.measured:
        timed = "whether the times of the job can be compared with those of others"
        about = _drop_empty(long_name=timed, measured=1, comment=found.timing)
        variables["timed"] = (dims, lay_out(jobs["timed"], 0, np.int8), about)
    coordinates: dict[str, Any] = {}
    if dims == ["job"]:
        coordinates["job"] = "job", jobs["job"], {"long_name": "number of the job and of its folder"}
    for name, key in found.parameters.items():
        values, unit = np.asarray(axes[name].categories if name in axes else jobs[name]), ""
        if values.dtype.kind in "iuf":
            unit = find_unit(key.rpartition(".")[2], found.target_unit)
        else:
            values = np.where(pd.isna(values), "", values).astype(str)
        coordinates[name] = (name if name in axes else "job", values, _drop_empty(long_name=key, units=unit))
    if found.outputs:
        coordinates["output"] = ("output", found.outputs, {"long_name": "output that the model predicts"})
    counts = {f"n_{name}": int(np.sum(status == flag)) for flag, name in enumerate(STATUSES)}  # missing: unplanned, too
    sizes = {"n_jobs": len(found.jobs), "n_cells": status.size, **counts}
    sizes |= {"n_unplanned": status.size - len(jobs), "n_superseded": len(found.jobs) - len(jobs)}
    sweep = found.sweep
    about = {"sweep_version": sweep.version, "sweep_code": sweep.code, "swept": json.dumps(sweep.swept)}
    return xr.Dataset(variables, coordinates, about | sizes)


def is_grid(found: Results) -> bool:
    """Whether the jobs are worth a dimension for each parameter: all have all of them, many cells have a job."""
    columns = found.jobs[list(found.parameters)]
    if not found.parameters or found.sweep.is_search or columns.isna().any(axis=None):
        return False
    return math.prod(columns.nunique()) <= LARGEST_SHARE * len(columns)


def find_unit(name: str, target_unit: str) -> str:
    """Find the unit of a metric or parameter; empty if it is not known.

    >>> find_unit("rmse", "K"), find_unit("noise_variance", "K"), find_unit("n_seen", "K"), find_unit("budget", "K")
    ('K', 'K2', '1', '')
    """
    unit = UNITS.get(name, "")
    if unit == SQUARED:
        return squared_unit(target_unit) if target_unit else ""
    return target_unit if unit == UNIT else unit


def _drop_empty(**attributes: str | int) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value}


def check_names(option: str, names: Sequence[str], known: Sequence[Any], problem: str) -> None:
    """Raise ValueError for the first name that is not known, with the nearest that is."""
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{option}: {problem} {unknown[0]!r}{meant(unknown[0], known)}")
