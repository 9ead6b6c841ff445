"""Files that the toolbox has written: stored benchmarks and trajectories."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import netCDF4
import numpy as np
import xarray as xr

from sysid import store
from sysid.data.source import DataError, DataSource
from sysid.record import read_records
from sysid.recordings import ROLES, Recordings, part


@dataclass(frozen=True)
class StoredRecordings(DataSource):
    """A stored benchmark with its own split, or stored trajectories.

    With `path`, a file of kind ``benchmark`` gives the records as they were written, and a file of kind
    ``trajectory`` is cut, in its order, into the parts `split`. Without it, `estimation`, `validation` and
    `test` each name trajectories, and every file is one record.

    Raises
    ------
    ValueError
        A split that is not three parts >= 0 with a sum of 1; on `load` also: no file or both ways of naming
        files, and a trajectory that does not say what its inputs and outputs are.
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
        if _kind(self.path) == "benchmark":
            return Recordings.from_groups(store.read_groups(self.path, kind="benchmark"))
        return self._cut(store.read(self.path, kind="trajectory"))

    def _trajectories(self, named: dict[str, list[str]]) -> Recordings:
        first, records = None, {}
        for role, paths in named.items():
            read = [(path, store.read(path, kind="trajectory")) for path in paths]
            first = first or next(iter(read), None)
            records[role] = tuple(self._record(dataset, Path(path).stem) for path, dataset in read)
        assert first is not None  # `load` made sure of a file
        inputs, outputs = self._signals(first[1], first[0])
        return Recordings(Path(first[0]).stem, inputs, outputs, **records)

    def _cut(self, trajectory: xr.Dataset) -> Recordings:
        assert self.path is not None
        whole = self._record(trajectory, Path(self.path).stem)
        ends = np.rint(np.cumsum([0.0, *self.split]) * whole.sizes["time"]).astype(int)
        parts = {
            role: (self._part(whole, int(start), int(end), role),) if end > start else ()
            for role, start, end in zip(ROLES, ends[:-1], ends[1:], strict=True)
        }
        inputs, outputs = self._signals(trajectory, self.path)
        return Recordings(Path(self.path).stem, inputs, outputs, **parts)

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


def _kind(path: str | os.PathLike[str]) -> str:
    """Kind that a file states; empty where it cannot be read, which `sysid.store` explains."""
    if not Path(path).is_file():
        raise DataError(f"no file {path} (seen from {Path.cwd()}): check data.path")
    try:
        with netCDF4.Dataset(path) as file:
            return str(file.__dict__.get("schema", ""))
    except (OSError, RuntimeError, UnicodeDecodeError):
        return ""
