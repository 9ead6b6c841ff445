"""The data set of a sweep: one dimension for each swept parameter, one variable for each metric."""

import json
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.collection.axis import Axis, is_grid
from experiments.collection.gathering import Gathered
from experiments.collection.job_result import DONE, STATUSES
from experiments.collection.metric import attributes_of, unit_of
from experiments.collection.planning import command_of
from experiments.collection.timing import is_measured


class Layout(NamedTuple):
    """Which job stands in which cell."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    jobs: np.ndarray  # place of a job in the manifest, for each cell that has one
    cells: np.ndarray  # its cell, a flat index


def dataset_of(found: Gathered) -> xr.Dataset:
    """Metrics of all jobs over the swept parameters, nan where there is none.

    Parameters that do not form a grid (a random search, or some that only some jobs have) are coordinates along one
    dimension ``job``. Several outputs are one more dimension, ``output``.

    Returns
    -------
    xarray.Dataset
        A variable for each metric, ``status`` (flags), ``number`` (of the job, and so of its folder; -1 without) and
        ``timed`` (1 where measured times can be compared). Along the jobs of a search ``trial`` is the number of the
        trial that a job belongs to.
    """
    layout = layout_of(found)
    numbers = np.array([job.number for job in found.sweep.jobs], dtype=np.int64)
    flags = {"flag_values": np.arange(len(STATUSES), dtype=np.int8), "flag_meanings": " ".join(STATUSES)}
    status = _placed(layout, found.status, np.int8(0))
    variables: dict[str, Any] = {
        "status": (layout.dims, status, {"long_name": "what became of the job", **flags}),
        "number": (
            layout.dims,
            _placed(layout, numbers, np.int64(-1)),
            {"long_name": "number of the job and of its folder, -1 where there is none"},
        ),
    }
    several = found.outputs != [""]
    for name, by_output in found.columns.items():
        parts = [_placed(layout, by_output[o], np.nan) if o in by_output else _empty(layout) for o in found.outputs]
        dims, values = ((*layout.dims, "output"), np.stack(parts, axis=-1)) if several else (layout.dims, parts[0])
        variables[name] = (dims, values, attributes_of(name, found.paths[name], found.target_unit))
    if any(is_measured(found.paths[name]) for name in found.columns):
        told = {"long_name": "whether the times of the job can be compared with those of others", "measured": 1}
        told |= {"comment": found.timing.told} if found.timing.told else {}
        variables["timed"] = (layout.dims, _placed(layout, found.timing.counts.astype(np.int8), np.int8(0)), told)
    coordinates = _coordinates(found, layout)
    if several:
        coordinates["output"] = ("output", np.array(found.outputs), {"long_name": "output that the model predicts"})
    return xr.Dataset(variables, coordinates, _attributes(found, layout, status))


def layout_of(found: Gathered) -> Layout:
    """A grid of the parameters if the jobs are worth one, else, and always of a search, a row of jobs.

    Of several jobs with the same parameters the last one that is done has the cell, the last one if none is.
    """
    axes, n = found.axes, len(found.sweep.jobs)
    if found.sweep.objectives or not is_grid(axes, found.sweep.jobs):
        return Layout(("job",), (n,), np.arange(n), np.arange(n))
    shape = tuple(len(axis.values) for axis in axes)
    cells = np.ravel_multi_index([axis.places for axis in axes], shape)
    later_wins = np.argsort(found.status == DONE, kind="stable")
    holder = dict(zip(cells[later_wins].tolist(), later_wins.tolist(), strict=True))
    return Layout(tuple(axis.name for axis in axes), shape, np.array(list(holder.values())), np.array(list(holder)))


def _placed(layout: Layout, column: np.ndarray, empty: Any) -> np.ndarray:
    """Values of jobs at their cells."""
    values = np.full(int(np.prod(layout.shape)), empty, dtype=column.dtype)
    values[layout.cells] = column[layout.jobs]
    return values.reshape(layout.shape)


def _empty(layout: Layout) -> np.ndarray:
    return np.full(layout.shape, np.nan)


def _coordinates(found: Gathered, layout: Layout) -> dict[str, Any]:
    if layout.dims != ("job",):
        return {axis.name: (axis.name, axis.values, _told(axis, found.target_unit)) for axis in found.axes}
    number = np.array([job.number for job in found.sweep.jobs], dtype=np.int64)
    told = {"long_name": "number of the job and of its folder"}
    trials = np.array([found.sweep.trials.get(job.number, -1) for job in found.sweep.jobs], dtype=np.int64)
    said = {"long_name": "number of the trial of the search that the job belongs to, -1 where there is none"}
    return {
        "job": ("job", number, told),
        **({"trial": ("job", trials, said)} if found.sweep.trials else {}),
        **{axis.name: ("job", axis.column, _told(axis, found.target_unit)) for axis in found.axes},
    }


def _told(axis: Axis, target_unit: str) -> dict[str, str]:
    unit = unit_of(axis.key.rpartition(".")[2], target_unit) if axis.values.dtype.kind != "U" else ""
    return {"long_name": axis.key} | ({"units": unit} if unit else {})


def _attributes(found: Gathered, layout: Layout, status: np.ndarray) -> dict[str, Any]:
    sweep, command = found.sweep, command_of(found.sweep)
    counts = {f"n_{name}": int(np.count_nonzero(status == flag)) for flag, name in enumerate(STATUSES)}
    return {
        **({"command": command} if command else {}),
        "sweep_version": sweep.version,
        "sweep_code": sweep.code,
        "swept": json.dumps(list(sweep.swept)),
        "n_jobs": len(sweep.jobs),
        "n_cells": status.size,
        **counts,  # over the cells: missing are also those that no job was planned for
        "n_unplanned": status.size - len(layout.jobs),
        "n_superseded": len(sweep.jobs) - len(layout.jobs),
        **_search(found),
    }


def _search(found: Gathered) -> dict[str, str]:
    """Metrics that a search has gone by: ``objectives`` those that it minimised, ``directions`` of all."""
    names = {path: name for name, path in found.paths.items() if name in found.columns}
    known = {names.get(tuple(key.split(".")), ""): way for key, way in found.sweep.objectives.items()}
    known.pop("", None)
    minimised = [name for name, way in known.items() if way == "minimize"]
    return {"objectives": json.dumps(minimised), "directions": json.dumps(known)} if found.sweep.objectives else {}
