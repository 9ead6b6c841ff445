"""Sample-by-sample records of all jobs in one file, written job by job: one record at a time is in memory."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import netCDF4
import numpy as np
import xarray as xr
from tqdm import tqdm

from experiments.collection.cells import Layout
from experiments.collection.gathering import Gathered
from experiments.job_file import FILE, RECORD, read_record
from sysid import store
from sysid.store import CHUNK_VALUES

SAMPLE = "sample"
PREFIX = "record_"  # a record and a summary may use the same name


class Source(NamedTuple):
    """A record of a job, and where it belongs."""

    path: Path
    output: str
    cell: tuple[int, ...]  # index, with that of the output if there are several


def sources_of(found: Gathered, layout: Layout) -> list[Source]:
    """Records of the jobs that are done."""
    sources = []
    for cell, place in zip(layout.cells.tolist(), layout.jobs.tolist(), strict=True):
        path = found.sweep.folder / str(found.sweep.jobs[place].number) / FILE
        index = tuple(int(i) for i in np.unravel_index(cell, layout.shape))
        for i, output in enumerate(found.outputs):
            if _has(found, output, place):
                sources.append(Source(path, output, (*index, i) if found.outputs != [""] else index))
    return sources


def _has(found: Gathered, output: str, place: int) -> bool:
    """Whether a job has numbers of an output: only those that are done have."""
    columns = (by_output.get(output) for by_output in found.columns.values())
    return any(column is not None and not np.isnan(column[place]) for column in columns)


def check_records(sources: Sequence[Source], names: Sequence[str]) -> int:
    """Number of samples of each record, before anything is written.

    Raises
    ------
    ValueError
        A variable that a record does not have, with the nearest that it has; records of different length.
    """
    lengths: dict[int, Path] = {}
    for path, output, _ in sources:
        columns, length = _facts(path, output)
        for name in names:
            if name not in columns:
                near = get_close_matches(name, columns, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(
                    f"records: {path} has no {name!r}, expected some of {', '.join(sorted(columns))}{hint}"
                )
        lengths.setdefault(length, path)
    if len(lengths) != 1:
        told = ", ".join(f"{length} samples in {path}" for length, path in lengths.items())
        raise ValueError(f"records: expected records of the same length, got {told or 'none'}: leave out records=")
    return next(iter(lengths))


def _facts(path: Path, output: str) -> tuple[set[str], int]:
    """Numbers along the samples of a record, and how many samples there are."""
    try:
        with netCDF4.Dataset(path) as file:
            group = file[f"{RECORD}/{output}" if output else RECORD]
            columns = {name for name, v in group.variables.items() if v.dimensions == (SAMPLE,) and v.dtype is not str}
            return columns, len(group.dimensions[SAMPLE])
    except (OSError, IndexError, KeyError) as error:
        raise store.StoreError(f"{path} holds no record of {output or 'its output'} ({error})") from error


def write_with_records(
    dataset: xr.Dataset, path: Path, *, kind: str, sources: Sequence[Source], names: Sequence[str], length: int
) -> Path:
    """Write the data set of a sweep, and variables ``record_<name>`` (..., sample), complete or not at all.

    Raises
    ------
    sysid.StoreError
        As `sysid.store.write`; a record that cannot be read.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        store.write(dataset, temporary, kind=kind)
        _make_extensible(temporary, kind)
        _append(temporary, dataset["status"].dims, sources, names, length)
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, store.StoreError) or not isinstance(error, OSError | RuntimeError):
            raise
        raise store.StoreError(
            f"could not write {path} ({error}): free space on the disk; nothing was changed"
        ) from error
    return path


def _make_extensible(path: Path, kind: str) -> None:
    """Write a file of the store anew, as HDF5 does it on a disk: a file made in memory takes no more variables."""
    whole = store.read(path, kind=kind)
    packed = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}
    encoding: dict[Any, dict[str, Any]] = {
        name: {"_FillValue": None, **(packed if variable.ndim else {})}
        for name, variable in whole.variables.items()
        if variable.dtype.kind in "iuf"
    }
    whole.to_netcdf(path, engine="netcdf4", encoding=encoding)


def _append(path: Path, cells: Sequence[Any], sources: Sequence[Source], names: Sequence[str], length: int) -> None:
    with netCDF4.Dataset(path, "a") as file:
        file.createDimension(SAMPLE, length)
        dims = (*cells, *(["output"] if "output" in file.dimensions else []), SAMPLE)
        for name in names:
            chunks = (*(1 for _ in dims[1:]), min(length, CHUNK_VALUES))
            file.createVariable(
                PREFIX + name,
                "f8",
                dims,
                zlib=True,
                complevel=1,
                shuffle=True,
                fletcher32=True,
                chunksizes=chunks,
                fill_value=np.nan,
            )
        for place, (source, record) in enumerate(_records(sources)):
            for name in names:
                variable = file[PREFIX + name]
                variable[source.cell] = record[name].values.astype(np.float64)
                if place == 0:
                    variable.setncatts(_told(record[name]))
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def _records(sources: Sequence[Source]) -> Iterator[tuple[Source, xr.Dataset]]:
    for source in tqdm(sources, unit=" records", disable=None, desc="copying", mininterval=0.2):
        yield source, read_record(source.path, source.output)


def _told(variable: xr.DataArray) -> dict[str, Any]:
    return {name: text for name, text in variable.attrs.items() if name in ("units", "long_name")}
