"""Records from NetCDF files of the toolbox."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sysid import store
from sysid.arrays import listed, listed_numbers
from sysid.data.source import (
    ROLES,
    DataSource,
    Recordings,
    list_paths,
    part,
    read_names,
)
from sysid.errors import UserError
from sysid.narx.record import read_records

NUMBER = "trajectory"  # dimension over the trajectories of an ensemble


@dataclass(frozen=True)
class StoredRecordings(DataSource):
    """A stored benchmark with its own split, or stored trajectories.

    With `path`, a file of kind ``benchmark`` gives the records as they were written, and a file of
    kind ``trajectory`` is cut, in its order, into the parts `split`; if it holds several
    trajectories, an ensemble over (trajectory, time), these are shared out whole, at least one to
    every part above 0, and the records of a run over several records keep the part that they had.
    Without it, `estimation`, `validation` and `test` each name files; every trajectory in them is
    one record.

    Raises
    ------
    ValueError
        A split that is not three parts >= 0 with a sum of 1; on `load` also: no file or both ways
        of naming files, fewer trajectories than parts, and a trajectory that does not say what its
        inputs and outputs are.
    """

    path: str | None = None  # benchmark or trajectory
    split: Sequence[float] = (
        0.5,
        0.0,
        0.5,
    )  # parts of a trajectory: estimation, validation, test [-]
    estimation: str | Sequence[str] = ()  # trajectory or trajectories
    validation: str | Sequence[str] = ()  # trajectory or trajectories
    test: str | Sequence[str] = ()  # trajectory or trajectories
    inputs: Sequence[str] | None = None  # signals of trajectories; None: those that the file names
    outputs: Sequence[str] | None = None  # signals of trajectories; None: those that the file names
    initialisation_window: int = 0  # samples of every part of a trajectory that are not judged

    def __post_init__(self) -> None:
        parts = list(listed_numbers(self.split, "StoredRecordings: split"))
        if len(parts) != len(ROLES) or min(parts) < 0 or abs(sum(parts) - 1) > 1e-9:
            raise UserError(
                f"StoredRecordings(split={parts}) must be three parts >= 0 with a sum of 1: {', '.join(ROLES)}"
            )

    def load(self) -> Recordings:
        """Read the files; see `DataSource.load`. Errors of `sysid.store` pass through."""
        named = {
            role: list_paths(getattr(self, role), f"StoredRecordings: {role}") for role in ROLES
        }
        if (self.path is not None) == any(named.values()):
            raise UserError(
                f"StoredRecordings(path={self.path!r}) needs either data.path=<benchmark.nc or trajectory.nc> or "
                f"files in data.estimation, data.validation, data.test, got {named}"
            )
        if self.path is None:
            return self._read_roles(named)
        if store.header(self.path).get("schema") == "benchmark":
            return Recordings.from_groups(store.read_groups(self.path, kind="benchmark"))
        return self._split(self.path)

    def _read_roles(self, named: dict[str, list[str]]) -> Recordings:
        """Every trajectory of the files of a role is one record of it; the first file names inputs
        and outputs.
        """
        files = [
            (role, path, store.read(path, kind="trajectory"))
            for role, paths in named.items()
            for path in paths
        ]
        records: dict[str, list[xr.Dataset]] = {role: [] for role in ROLES}
        for role, path, dataset in files:
            records[role] += self._records(dataset, path)
        _, path, dataset = files[0]
        return self._label(records, dataset, path)

    def _split(self, path: str) -> Recordings:
        """Parts of a file of trajectories: those of a run as they were, an ensemble in whole ones,
        one in pieces.
        """
        dataset = store.read(path, kind="trajectory")
        records = self._records(dataset, path)
        parts: dict[str, list[xr.Dataset]] = {role: [] for role in ROLES}
        if _is_joined(dataset):
            for record in records:
                parts["estimation" if record["part"][0] == 0 else "test"].append(
                    record.drop_vars(["record", "part"])
                )
        elif NUMBER in dataset.dims:
            ends = np.cumsum([0, *_share_out(self.split, len(records), path)])
            parts = {role: records[ends[i] : ends[i + 1]] for i, role in enumerate(ROLES)}
        else:
            (whole,) = records
            ends = np.rint(np.cumsum([0.0, *self.split]) * whole.sizes["time"]).astype(int)
            window = self.initialisation_window
            name = whole.attrs["name"]
            for role, start, end in zip(ROLES, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
                if end > start:
                    parts[role] = [
                        part(
                            whole,
                            start,
                            end,
                            name=f"{name}, {role}",
                            initialisation_window=window,
                        )
                    ]
        return self._label(parts, dataset, path)

    def _records(self, dataset: xr.Dataset, path: str) -> list[xr.Dataset]:
        """Trajectories of a file, each with the attributes of a record."""
        found = []
        for name, single in _take_apart(dataset, Path(path).stem).items():
            (read,) = read_records(single, ())
            own = {"name": name, "sampling_time": read.sampling_time}
            found.append(
                single.assign_attrs(own | {"initialisation_window": self.initialisation_window})
            )
        return found

    def _label(
        self, records: dict[str, list[xr.Dataset]], dataset: xr.Dataset, path: str
    ) -> Recordings:
        """Name inputs and outputs of the records of each role, as given or as the file states."""
        names: dict[str, Any] = {}
        for role, given in (("inputs", self.inputs), ("outputs", self.outputs)):
            if given is None and role not in dataset.attrs:
                raise UserError(
                    f"{path} does not say which of its signals {sorted(map(str, dataset.data_vars))} are {role}: "
                    f"set data.{role}=[...]"
                )
            names[role] = read_names(dataset.attrs[role]) if given is None else given
            if not isinstance(names[role], str):
                names[role] = listed(names[role], f"StoredRecordings: {role}", "names of signals")
        return Recordings(Path(path).stem, **names, **records)  # type: ignore[arg-type]  # lists become tuples


def _take_apart(dataset: xr.Dataset, stem: str) -> dict[str, xr.Dataset]:
    """Trajectories of a file by name, each over time only; what is one number of each becomes an
    attribute.
    """
    if _is_joined(dataset):
        numbers = np.unique(dataset["record"].values).tolist()
        return {
            f"{stem}, record {i}": dataset.isel(time=dataset["record"].values == i) for i in numbers
        }
    if NUMBER not in dataset.dims:
        return {stem: dataset}
    found = {}
    for i in range(dataset.sizes[NUMBER]):
        single = dataset.isel({NUMBER: i})
        numbers = {
            str(name): values.values.item()
            for name, values in single.variables.items()
            if values.ndim == 0
        }
        found[f"{stem}, {NUMBER} {i}"] = single.drop_vars(numbers).assign_attrs(numbers)
    return found


def _is_joined(dataset: xr.Dataset) -> bool:
    """Whether several records lie behind each other, as a run over records stores them."""
    return {"record", "part"} <= set(dataset.coords) and len(
        np.unique(dataset["record"].values)
    ) > 1


def _share_out(split: Sequence[float], n: int, path: str) -> list[int]:
    """Numbers of n trajectories for the parts: the nearest to their sizes, at least one where a
    part is above 0.
    """
    lowest = [1 if size > 0 else 0 for size in split]
    if sum(lowest) > n:
        raise UserError(
            f"{path} holds {n} trajectories, data.split={list(split)} needs at least {sum(lowest)}, one for every "
            "part above 0: set parts to 0, or store more trajectories"
        )
    shares = list(lowest)
    while sum(shares) < n:
        shares[
            int(np.argmax([size * n - share for size, share in zip(split, shares, strict=True)]))
        ] += 1
    return shares
