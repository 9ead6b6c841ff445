"""Files that the toolbox has written: stored benchmarks and trajectories."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from sysid import store
from sysid.data.source import DataError, DataSource
from sysid.record import read_records
from sysid.recordings import ROLES, Recordings, part

NUMBER = "trajectory"  # dimension over the trajectories of an ensemble
READ = {"benchmark", "trajectory"}  # kinds of files


@dataclass(frozen=True)
class StoredRecordings(DataSource):
    """A stored benchmark with its own split, or stored trajectories.

    With `path`, a file of kind ``benchmark`` gives the records as they were written, and a file of kind
    ``trajectory`` is cut, in its order, into the parts `split`; if it holds several trajectories, an ensemble over
    (trajectory, time), these are shared out whole, at least one to every part above 0, and the records of a run over
    several records keep the part that they had. Without it, `estimation`,
    `validation` and `test` each name files; every trajectory in them is one record.

    Raises
    ------
    ValueError
        A split that is not three parts >= 0 with a sum of 1; on `load` also: no file or both ways of naming
        files, fewer trajectories than parts, and a trajectory that does not say what its inputs and outputs are.
    """

    path: str | None = None  # benchmark or trajectory
    split: Sequence[float] = (0.5, 0.0, 0.5)  # parts of a trajectory: estimation, validation, test [-]
    estimation: str | Sequence[str] = ()  # trajectory or trajectories
    validation: str | Sequence[str] = ()  # trajectory or trajectories
    test: str | Sequence[str] = ()  # trajectory or trajectories
    inputs: Sequence[str] | None = None  # signals of trajectories; None: those that the file names
    outputs: Sequence[str] | None = None  # signals of trajectories; None: those that the file names
    initialisation_window: int = 0  # samples of every part of a trajectory that are not judged

    def __post_init__(self) -> None:
        parts = list(self.split)
        if len(parts) != len(ROLES) or min(parts) < 0 or abs(sum(parts) - 1) > 1e-9:
            raise ValueError(
                f"StoredRecordings(split={parts}) must be three parts >= 0 with a sum of 1: {', '.join(ROLES)}"
            )

    def load(self) -> Recordings:
        """Read the files; see `DataSource.load`. Errors of `sysid.store` pass through."""
        named = {role: _paths(getattr(self, role)) for role in ROLES}
        if (self.path is not None) == any(named.values()):
            raise ValueError(
                f"StoredRecordings(path={self.path!r}) needs either data.path=<benchmark.nc or trajectory.nc> or "
                f"files in data.estimation, data.validation, data.test, got {named}"
            )
        if self.path is None:
            return self._trajectories(named)
        if _checked_kind(self.path) == "benchmark":
            return Recordings.from_groups(store.read_groups(self.path, kind="benchmark"))
        return self._cut(store.read(self.path, kind="trajectory"))

    def _trajectories(self, named: dict[str, list[str]]) -> Recordings:
        first, records = None, {}
        for role, paths in named.items():
            for path in paths:
                _checked_kind(path)
            read = [(path, store.read(path, kind="trajectory")) for path in paths]
            first = first or next(iter(read), None)
            records[role] = tuple(
                self._record(single, name)
                for path, dataset in read
                for name, single in _singles(dataset, Path(path).stem).items()
            )
        assert first is not None  # `load` made sure of a file
        inputs, outputs = self._signals(first[1], first[0])
        return Recordings(Path(first[0]).stem, inputs, outputs, **records)

    def _cut(self, dataset: xr.Dataset) -> Recordings:
        assert self.path is not None
        stem = Path(self.path).stem
        singles = _singles(dataset, stem)
        records = [self._record(single, name) for name, single in singles.items()]
        inputs, outputs = self._signals(dataset, self.path)
        if _is_joined(dataset):
            identified = [bool(single["part"][0] == 0) for single in singles.values()]
            bare = [record.drop_vars(["record", "part"]) for record in records]
            parts = {
                role: tuple(record for record, first in zip(bare, identified, strict=True) if first == wanted)
                for role, wanted in (("estimation", True), ("test", False))
            }
        elif NUMBER in dataset.dims:
            ends = np.cumsum([0, *_shares(self.split, len(records), self.path)])
            parts = {role: tuple(records[ends[i] : ends[i + 1]]) for i, role in enumerate(ROLES)}
        else:
            ends = np.rint(np.cumsum([0.0, *self.split]) * records[0].sizes["time"]).astype(int)
            parts = {
                role: (self._part(records[0], int(start), int(end), role),) if end > start else ()
                for role, start, end in zip(ROLES, ends[:-1], ends[1:], strict=True)
            }
        return Recordings(stem, inputs, outputs, **parts)

    def _part(self, whole: xr.Dataset, start: int, end: int, role: str) -> xr.Dataset:
        name = f"{whole.attrs['name']}, {role}"
        return part(whole, start, end, name=name, initialisation_window=self.initialisation_window)

    def _record(self, trajectory: xr.Dataset, name: str) -> xr.Dataset:
        (read,) = read_records(trajectory, ())
        own = {"name": name, "initialisation_window": self.initialisation_window, "sampling_time": read.sampling_time}
        return trajectory.assign_attrs(own)

    def _signals(self, trajectory: xr.Dataset, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of inputs and outputs, given or stated by the file."""
        names = []
        for role, given in (("inputs", self.inputs), ("outputs", self.outputs)):
            if given is None and role not in trajectory.attrs:
                raise ValueError(
                    f"{path} does not say which of its signals {sorted(map(str, trajectory.data_vars))} are {role}: "
                    f"set data.{role}=[...]"
                )
            names.append(tuple(json.loads(trajectory.attrs[role]) if given is None else given))
        return names[0], names[1]


def _paths(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _singles(dataset: xr.Dataset, stem: str) -> dict[str, xr.Dataset]:
    """Trajectories of a file by name, each over time only; what is one number of each becomes an attribute."""
    if _is_joined(dataset):
        numbers = np.unique(dataset["record"].values).tolist()
        return {f"{stem}, record {i}": dataset.isel(time=dataset["record"].values == i) for i in numbers}
    if NUMBER not in dataset.dims:
        return {stem: dataset}
    found = {}
    for i in range(dataset.sizes[NUMBER]):
        single = dataset.isel({NUMBER: i})
        numbers = {str(name): values.values.item() for name, values in single.variables.items() if values.ndim == 0}
        found[f"{stem}, {NUMBER} {i}"] = single.drop_vars(numbers).assign_attrs(numbers)
    return found


def _is_joined(dataset: xr.Dataset) -> bool:
    """Whether several records lie behind each other, as a run over records stores them."""
    return {"record", "part"} <= set(dataset.coords) and len(np.unique(dataset["record"].values)) > 1


def _shares(split: Sequence[float], n: int, path: str) -> list[int]:
    """Numbers of n trajectories for the parts: the nearest to their sizes, at least one where a part is above 0."""
    lowest = [1 if size > 0 else 0 for size in split]
    if sum(lowest) > n:
        raise ValueError(
            f"{path} holds {n} trajectories, data.split={list(split)} needs at least {sum(lowest)}, one for every "
            "part above 0: set parts to 0, or store more trajectories"
        )
    shares = list(lowest)
    while sum(shares) < n:
        shares[int(np.argmax([size * n - share for size, share in zip(split, shares, strict=True)]))] += 1
    return shares


def _checked_kind(path: str | os.PathLike[str]) -> str:
    """Kind of a file; a file of the toolbox of another kind than those that are read here is an error."""
    kind = _kind(path)
    if kind in set(store.TITLES) - READ:
        raise DataError(f"{path} is a file of kind {kind!r}, expected benchmark.nc or trajectory.nc: name one of these")
    return kind


def _kind(path: str | os.PathLike[str]) -> str:
    """Kind that a file states; empty where it cannot be read, which `sysid.store` explains."""
    if not Path(path).is_file():
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check data.path")
    return str(store.header(path).get("schema", ""))
