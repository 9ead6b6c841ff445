"""Records from NetCDF files of the toolbox."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sysid import store
from sysid.arrays import listed, listed_numbers
from sysid.data.clock import equalise
from sysid.data.source import (
    RECORD_ROLES,
    DataSource,
    Recordings,
    list_paths,
    part,
    read_names,
)
from sysid.errors import UserError
from sysid.narx.record import read_records

#: dimension over the trajectories of an ensemble
TRAJECTORY_DIMENSION = "trajectory"


@dataclass(frozen=True)
class StoredRecordings(DataSource):
    """A stored benchmark with its own split, or stored trajectories.

    With `path`, a file of kind ``benchmark`` gives its records as they were written. A file of kind
    ``trajectory`` is cut, in its order, into the fractions `split`. The trajectories of an ensemble
    over (trajectory, time) stay whole: they are distributed, at least one to every fraction above
    0. The records of a run over several records keep their part.

    Without `path`, `estimation`, `validation` and `test` each name files; every trajectory in them
    is one record.

    Raises
    ------
    ValueError
        The split is not three fractions >= 0 with a sum of 1. On `load` also: no file is named, or
        files are named in both ways; there are fewer trajectories than parts; a trajectory does not
        state its inputs and outputs.
    """

    path: str | None = None  # benchmark or trajectory
    #: fractions of a trajectory: estimation, validation, test [-]
    split: Sequence[float] = (0.5, 0.0, 0.5)
    estimation: str | Sequence[str] = ()  # trajectory or trajectories
    validation: str | Sequence[str] = ()  # trajectory or trajectories
    test: str | Sequence[str] = ()  # trajectory or trajectories
    inputs: Sequence[str] | None = None  # signals of trajectories; None: those that the file names
    outputs: Sequence[str] | None = None  # signals of trajectories; None: those that the file names
    initialisation_window: int = 0  # samples of every part of a trajectory that are not scored

    def __post_init__(self) -> None:
        fractions = list(listed_numbers(self.split, "StoredRecordings: split"))
        has_right_sum = abs(sum(fractions) - 1) <= 1e-9
        if len(fractions) != len(RECORD_ROLES) or min(fractions) < 0 or not has_right_sum:
            raise UserError(
                f"StoredRecordings(split={fractions}) must be three parts >= 0 with a sum of 1: "
                f"{', '.join(RECORD_ROLES)}"
            )

    def load(self) -> Recordings:
        """Read the files; see `DataSource.load`. Errors of `sysid.store` are passed on."""
        files = {
            role: list_paths(getattr(self, role), f"StoredRecordings: {role}")
            for role in RECORD_ROLES
        }
        has_path = self.path is not None
        has_files = any(files.values())
        if has_path == has_files:
            raise UserError(
                f"StoredRecordings(path={self.path!r}) needs either "
                "data.path=<benchmark.nc or trajectory.nc> or files in data.estimation, "
                f"data.validation, data.test, got {files}"
            )
        if self.path is None:
            return self._read_roles(files)
        if store.header(self.path).get("schema") == "benchmark":
            return Recordings.from_groups(store.read_groups(self.path, kind="benchmark"))
        return self._split(self.path)

    def _read_roles(self, files: dict[str, list[str]]) -> Recordings:
        """Read the trajectories of the files of each role; the first file names the signals."""
        read = [
            (role, path, store.read(path, kind="trajectory"))
            for role, paths in files.items()
            for path in paths
        ]
        records: dict[str, list[xr.Dataset]] = {role: [] for role in RECORD_ROLES}
        for role, path, dataset in read:
            records[role] += self._records(dataset, path)
        _, first_path, first_dataset = read[0]
        return self._label(records, first_dataset, first_path)

    def _split(self, path: str) -> Recordings:
        """Distribute the trajectories of a file over the roles, or split the only one."""
        dataset = store.read(path, kind="trajectory")
        records = self._records(dataset, path)
        by_role: dict[str, list[xr.Dataset]] = {role: [] for role in RECORD_ROLES}
        if _has_several_records(dataset):
            for record in records:
                role = "estimation" if record["part"][0] == 0 else "test"
                by_role[role].append(record.drop_vars(["record", "part"]))
        elif TRAJECTORY_DIMENSION in dataset.dims:
            ends = np.cumsum([0, *_distribute(self.split, len(records), path)])
            for i, role in enumerate(RECORD_ROLES):
                by_role[role] = records[ends[i] : ends[i + 1]]
        else:
            (whole,) = records
            ends = np.rint(np.cumsum([0.0, *self.split]) * whole.sizes["time"]).astype(int)
            for i, role in enumerate(RECORD_ROLES):
                start = int(ends[i])
                end = int(ends[i + 1])
                if end > start:
                    cut = part(
                        whole,
                        start,
                        end,
                        name=f"{whole.attrs['name']}, {role}",
                        initialisation_window=self.initialisation_window,
                    )
                    by_role[role] = [cut]
        return self._label(by_role, dataset, path)

    def _records(self, dataset: xr.Dataset, path: str) -> list[xr.Dataset]:
        """Return the trajectories of a file, each with the attributes of a record."""
        records = []
        for name, trajectory in _separate(dataset, Path(path).stem).items():
            trajectory, note = equalise(trajectory, path)
            (read,) = read_records(trajectory, ())
            if note:
                trajectory = trajectory.assign_attrs(note=f"{path}: {note}")
            record = trajectory.assign_attrs(
                name=name,
                sampling_time=read.sampling_time,
                initialisation_window=self.initialisation_window,
            )
            records.append(record)
        return records

    def _label(
        self, records: dict[str, list[xr.Dataset]], dataset: xr.Dataset, path: str
    ) -> Recordings:
        """Return the records with the names of inputs and outputs, given or stated by the file."""
        names: dict[str, Any] = {}
        for kind, given in (("inputs", self.inputs), ("outputs", self.outputs)):
            if given is None and kind not in dataset.attrs:
                signals = sorted(map(str, dataset.data_vars))
                raise UserError(
                    f"{path} does not say which of its signals {signals} are {kind}: "
                    f"set data.{kind}=[...]"
                )
            names[kind] = read_names(dataset.attrs[kind]) if given is None else given
            if not isinstance(names[kind], str):
                names[kind] = listed(names[kind], f"StoredRecordings: {kind}", "names of signals")
        # the constructor turns lists of records into tuples
        return Recordings(Path(path).stem, **names, **records)  # type: ignore[arg-type]


def _separate(dataset: xr.Dataset, stem: str) -> dict[str, xr.Dataset]:
    """Return the trajectories of a file by name, each over time only.

    Variables with one number per trajectory become attributes.
    """
    if _has_several_records(dataset):
        numbers = np.unique(dataset["record"].values).tolist()
        return {
            f"{stem}, record {i}": dataset.isel(time=dataset["record"].values == i) for i in numbers
        }
    if TRAJECTORY_DIMENSION not in dataset.dims:
        return {stem: dataset}
    trajectories = {}
    for i in range(dataset.sizes[TRAJECTORY_DIMENSION]):
        trajectory = dataset.isel({TRAJECTORY_DIMENSION: i})
        scalars = {
            str(name): variable.values.item()
            for name, variable in trajectory.variables.items()
            if variable.ndim == 0
        }
        name = f"{stem}, {TRAJECTORY_DIMENSION} {i}"
        trajectories[name] = trajectory.drop_vars(scalars).assign_attrs(scalars)
    return trajectories


def _has_several_records(dataset: xr.Dataset) -> bool:
    """Whether several records follow each other, as a run over several records stores them."""
    if not {"record", "part"} <= set(dataset.coords):
        return False
    return len(np.unique(dataset["record"].values)) > 1


def _distribute(split: Sequence[float], n: int, path: str) -> list[int]:
    """Return how many of n trajectories each fraction of the split gets.

    The numbers are as close to the fractions as possible, but at least one for a fraction above 0.
    """
    counts = [1 if fraction > 0 else 0 for fraction in split]
    n_needed = sum(counts)
    if n_needed > n:
        raise UserError(
            f"{path} holds {n} trajectories, data.split={list(split)} needs at least {n_needed}, "
            "one for every part above 0: set parts to 0, or store more trajectories"
        )
    while sum(counts) < n:
        shortfalls = [fraction * n - count for fraction, count in zip(split, counts, strict=True)]
        counts[int(np.argmax(shortfalls))] += 1
    return counts
