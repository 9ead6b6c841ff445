"""The data set of a sweep: a dimension per swept parameter, a variable per metric; records sample by sample."""

import json
import math
import os
import secrets
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas as pd
import xarray as xr
from tqdm import tqdm

from experiments.collection.read import STATUSES, TIME, Keys, Results, Sweep
from experiments.job_file import FILE, NUMBERS, SQUARED, TIMES, UNIT, read_record
from sysid import StoreError, store
from sysid.model.result import squared_unit

KIND = "sweep"  # schema of the file
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

    Parameters that do not form a grid (a random search, or some that only some jobs have) are coordinates along one
    dimension ``job``, and so are those of a search. Several outputs are one more dimension, ``output``. Of several
    jobs with the same parameters the last one that is done has the cell, the last one if none is.

    Returns
    -------
    xarray.Dataset
        A variable for each metric, ``status`` (flags), ``number`` (of the job, and so of its folder; -1 without) and
        ``timed`` (1 where measured times can be compared). Along the jobs of a search ``trial`` is the number of the
        trial that a job belongs to.
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
    told = "number of the job and of its folder"
    variables: dict[str, Any] = {
        "status": (dims, status, {"long_name": "what became of the job"} | flags),
        "number": (dims, lay_out(jobs["job"], -1, np.int64), {"long_name": f"{told}, -1 where there is none"}),
    }
    for name, keys in found.metrics.items():
        values = np.stack([lay_out(numbers[name], np.nan, float) for numbers in found.numbers.values()], axis=-1)
        own = ([*dims, "output"], values) if found.outputs else (dims, values[..., 0])
        variables[name] = (*own, _describe_metric(name, keys, found.target_unit))
    if found.measured:
        timed = "whether the times of the job can be compared with those of others"
        about = _drop_empty(long_name=timed, measured=1, comment=found.timing)
        variables["timed"] = (dims, lay_out(jobs["timed"], 0, np.int8), about)
    coordinates: dict[str, Any] = {"job": ("job", jobs["job"], {"long_name": told})} if dims == ["job"] else {}
    if dims == ["job"] and found.sweep.trials:
        trial = "number of the trial of the search that the job belongs to, -1 where there is none"
        coordinates["trial"] = ("job", jobs["trial"], {"long_name": trial})
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
    return xr.Dataset(variables, coordinates, _describe_sweep(found) | sizes)


def is_grid(found: Results) -> bool:
    """Whether the jobs are worth a dimension for each parameter: all have all of them, many cells have a job."""
    columns = found.jobs[list(found.parameters)]
    if not found.parameters or found.sweep.objectives or columns.isna().any(axis=None):
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


def _describe_metric(name: str, keys: Keys, target_unit: str) -> dict[str, Any]:
    is_time = keys[0] == TIME
    unit = "s" if is_time else find_unit(keys[-1], target_unit)
    return _drop_empty(units=unit, long_name=LONG_NAMES.get(name, " ".join(keys)), measured=int(is_time))


def _drop_empty(**attributes: str | int) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value}


def _describe_sweep(found: Results) -> dict[str, Any]:
    """Origin of a sweep, and the metrics that a search has gone by."""
    sweep = found.sweep
    about = _drop_empty(command=restore_command(sweep), sweep_version=sweep.version, sweep_code=sweep.code)
    about["swept"] = json.dumps(sweep.swept)
    if sweep.objectives:
        names = {".".join(keys): name for name, keys in found.metrics.items()}
        ways = {names[key]: way for key, way in sweep.objectives.items() if key in names}
        about["objectives"] = json.dumps([name for name, way in ways.items() if way == "minimize"])
        about["directions"] = json.dumps(ways)
    return about


def restore_command(sweep: Sweep) -> str:
    """Command that plans exactly these jobs: a full grid of the overrides that all of them have; or empty.

    Those of a search, and of several commands in one folder, have none.
    """
    jobs = [tuple(job.overrides) for job in sweep.jobs]
    keys = {tuple(line.partition("=")[0] for line in job) for job in jobs}
    columns = [list(dict.fromkeys(column)) for column in zip(*jobs, strict=False)]
    is_full = len(keys) == 1 and len({*jobs}) == len(jobs) == math.prod(map(len, columns))
    if sweep.objectives or not is_full:
        return ""
    lines = [",".join([first, *(line.partition("=")[2] for line in others)]) for first, *others in columns]
    return shlex.join([f"sysid-{sweep.command}", "-m", *lines])


# --- records --------------------------------------------------------------------------------------


def write_with_records(found: Results, dataset: xr.Dataset, path: Path, names: Sequence[str]) -> None:
    """Write the data set and variables ``record_<name>`` (..., sample), complete or not at all, record by record.

    Raises
    ------
    ValueError
        A variable that a record does not have, with the nearest that it has; records of different length.
    sysid.StoreError
        As `sysid.store.write`; a record that cannot be read.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        whole = store.read(store.write(dataset, temporary, kind=KIND), kind=KIND)
        packed = {"_FillValue": None, "fletcher32": True, "zlib": True, "complevel": 1}
        encoding = {name: packed for name, v in whole.variables.items() if v.dtype.kind in "iuf" and v.ndim}
        whole.to_netcdf(temporary, engine="netcdf4", encoding=encoding)  # one made in memory takes no more variables
        with netCDF4.Dataset(temporary, "a") as file:
            _append_records(file, found, dataset, names)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, StoreError) or not isinstance(error, OSError | RuntimeError):
            raise
        raise StoreError(f"could not write {path} ({error}): free space on the disk; nothing was changed") from error


def _append_records(file: netCDF4.Dataset, found: Results, dataset: xr.Dataset, names: Sequence[str]) -> None:
    dims = [*map(str, dataset["status"].dims), *(["output"] if found.outputs else []), "sample"]
    records = list(_find_records(found, dataset))
    for path, output, cell in tqdm(records, unit=" records", disable=None, mininterval=0.2):
        record = read_record(path, output)
        known = [str(name) for name in record if record[name].dims == ("sample",)]
        check_names("records", names, known, f"{path} has no")
        length = record.sizes["sample"]
        if "sample" not in file.dimensions:
            file.createDimension("sample", length)
            chunks = [*(1 for _ in dims[1:]), min(length, store.CHUNK_VALUES)]
            packed: dict[str, Any] = {"compression": "zlib", "fletcher32": True, "fill_value": np.nan}
            for name in names:
                variable = file.createVariable(f"record_{name}", float, dims, chunksizes=chunks, **packed)
                about = record[name].attrs
                variable.setncatts({key: about[key] for key in ("units", "long_name") if key in about})
        if length != (expected := len(file.dimensions["sample"])):
            told = f"expected records of the same length, {expected} samples, got {length} in {path}"
            raise ValueError(f"records: {told}: leave out records=")
        for name in names:
            file[f"record_{name}"][cell] = record[name].values.astype(float)


def _find_records(found: Results, dataset: xr.Dataset) -> Iterator[tuple[Path, str, tuple[int, ...]]]:
    """Yield file, output and cell of the records of jobs that are done."""
    for cell in zip(*np.nonzero(dataset["status"].values == STATUSES.index("done")), strict=True):
        number = int(dataset["number"].values[cell])
        for place, (output, numbers) in enumerate(found.numbers.items()):
            if numbers.loc[number].notna().any():
                yield found.sweep.folder / str(number) / FILE, output, (*cell, place) if output else cell


def check_names(option: str, names: Sequence[str], known: Sequence[str], problem: str) -> None:
    """Raise ValueError for the first name that is not known, with the nearest that is."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{option}: {problem} {name!r}, expected some of {', '.join(known)}{hint}")
