"""Sources of records, and the data split that a source gives."""

from __future__ import annotations

import importlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import listed
from sysid.errors import UserError, UserTypeError
from sysid.narx.record import TIME_TOLERANCE, Record, check_name, read_records

ROLES = ("estimation", "validation", "test")
OWN_ATTRIBUTES = ("recordings", "inputs", "outputs")  # of every stored group


@dataclass(frozen=True, eq=False)
class Recordings:
    """Data split of one system: its records for estimation, validation and test.

    Every record stays by itself: no lag, no simulation and no score reaches from one into another.

    Every record is a data set with dimension and coordinate ``time``, one variable (time,) per
    signal with ``units`` and ``long_name``, and the attributes

    - ``name``;
    - ``sampling_time`` [s], or 1 where ``time`` counts samples (units ``1``);
    - ``initialisation_window``: so many samples at the start only initialise a model and are not
      judged;
    - ``note``, if anything was left out or taken otherwise when it was read;
    - ``static`` = 1 where the rows are independent of each other (a table, not a signal over time).

    Parameters
    ----------
    name
        What was recorded.
    inputs, outputs
        Names of the signals; a record may hold more variables than these.
    estimation, validation, test
        Records to identify from, to choose settings with, and to judge with.

    Raises
    ------
    ValueError, TypeError
        No output, a name given twice, no record at all; time missing or not uniform; a signal
        missing, not (time,) or not finite; units or sampling times that differ between records; a
        missing or impossible attribute.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    estimation: tuple[xr.Dataset, ...] = ()
    validation: tuple[xr.Dataset, ...] = ()
    test: tuple[xr.Dataset, ...] = ()

    def __post_init__(self) -> None:
        for field in ("inputs", "outputs", *ROLES):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        names = self.inputs + self.outputs
        for name in names:
            check_name(name)
        if not self.outputs or len(set(names)) < len(names):
            raise UserError(
                f"Recordings({self.name!r}): expected at least one output and every signal once, got inputs "
                f"{list(self.inputs)} and outputs {list(self.outputs)}"
            )
        try:
            read = read_records(self.records, names)
            for record, dataset in zip(read, self.records, strict=True):
                _check_record(record, dataset)
        except (UserError, UserTypeError) as error:
            counts = ", ".join(f"{len(getattr(self, role))} {role}" for role in ROLES)
            raise type(error)(
                f"Recordings({self.name!r}), records in the order {counts}: {error}"
            ) from None

    @property
    def records(self) -> tuple[xr.Dataset, ...]:
        """All records: estimation, validation, test."""
        return self.estimation + self.validation + self.test

    @property
    def sampling_time(self) -> float:
        """Sampling time of every record [s]; 1 where time counts samples."""
        return float(self.records[0].attrs["sampling_time"])

    @property
    def is_static(self) -> bool:
        """Whether the rows are independent of each other."""
        return all(np.array_equal(record.attrs.get("static", 0), 1) for record in self.records)

    @property
    def units(self) -> dict[str, str]:
        """Unit of every input and output that has one."""
        first = self.records[0]
        return {
            n: first[n].attrs["units"]
            for n in self.inputs + self.outputs
            if "units" in first[n].attrs
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be told of how the records were read, once each."""
        return tuple(
            dict.fromkeys(str(one.attrs["note"]) for one in self.records if "note" in one.attrs)
        )

    def hold_out(self, fraction: float, *, initialisation_window: int = 0) -> Recordings:
        """Move the last part of every estimation record to validation.

        Parameters
        ----------
        fraction
            Part of the samples of each record that is held out, above 0 and below 1.
        initialisation_window
            That of the held-out parts [samples].

        Raises
        ------
        ValueError
            Another fraction, nothing left on one side, or validation records that are there
            already.
        """
        if not 0 < fraction < 1 or self.validation:
            raise UserError(
                f"Recordings({self.name!r}).hold_out({fraction!r}) expects a fraction above 0 and below 1 and no "
                f"validation records, there are {len(self.validation)}"
            )
        ends = [
            record.sizes["time"] - round(fraction * record.sizes["time"])
            for record in self.estimation
        ]
        pairs = list(zip(self.estimation, ends, strict=True))
        held = tuple(
            part(record, end, initialisation_window=initialisation_window) for record, end in pairs
        )
        return replace(
            self,
            estimation=tuple(part(record, 0, end) for record, end in pairs),
            validation=held,
        )

    def to_groups(self) -> dict[str, xr.Dataset]:
        """Return the records by the name of their group in a file.

        Each has the names of inputs and outputs among its attributes, as JSON.

        Returns
        -------
        dict
            ``estimation`` for one record, ``estimation/record_0``, ``estimation/record_1``, ... for
            several; the same for validation and test.
        """
        own = {
            "recordings": self.name,
            "inputs": json.dumps(self.inputs),
            "outputs": json.dumps(self.outputs),
        }
        groups = {}
        for role in ROLES:
            records = getattr(self, role)
            for number, record in enumerate(records):
                key = role if len(records) == 1 else f"{role}/record_{number}"
                groups[key] = record.assign_attrs(own)
        return groups

    @classmethod
    def from_groups(cls, groups: Mapping[str, xr.Dataset]) -> Recordings:
        """Inverse of `to_groups`.

        Raises
        ------
        ValueError
            No group, another name of a group, groups of different data splits, or what the class
            refuses.
        """
        placed = sorted((_read_group_name(key), record) for key, record in groups.items())
        headers = {
            tuple(str(record.attrs.get(name)) for name in OWN_ATTRIBUTES) for _, record in placed
        }
        if len(headers) != 1 or "None" in (header := headers.pop()):
            raise UserError(
                f"expected groups with equal attributes {', '.join(OWN_ATTRIBUTES)}, got groups {sorted(groups)}: "
                "build them with Recordings.to_groups"
            )
        name, inputs, outputs = header
        by_role: dict[str, list[xr.Dataset]] = {role: [] for role in ROLES}
        for (role, _), record in placed:
            own = {
                name: value for name, value in record.attrs.items() if name not in OWN_ATTRIBUTES
            }
            numbers = {
                name: value.item() for name, value in own.items() if isinstance(value, np.generic)
            }  # of a file
            by_role[ROLES[role]].append(record.drop_attrs(deep=False).assign_attrs(own | numbers))
        return cls(
            name,
            read_names(inputs),
            read_names(outputs),
            **{k: tuple(v) for k, v in by_role.items()},
        )


def read_names(text: object) -> tuple[str, ...]:
    """Names of signals as a file states them: a JSON list.

    Raises
    ------
    ValueError
        Anything else.
    """
    names = None
    with suppress(ValueError, RecursionError):
        names = json.loads(str(text))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"expected a JSON list of names of signals, got {str(text)[:100]!r}")
    return tuple(names)


def make_record(
    signals: Mapping[str, ArrayLike],
    *,
    name: str,
    sampling_time: float,
    initialisation_window: int = 0,
    units: Mapping[str, str] | None = None,
    long_names: Mapping[str, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Record over ``time`` = k sampling_time [s] from plain arrays (n,), in the schema of
    `Recordings`.
    """
    texts = {"units": units or {}, "long_name": long_names or {}}
    variables = {
        signal: (
            "time",
            np.array(values, dtype=np.float64),
            {k: t[signal] for k, t in texts.items() if signal in t},
        )
        for signal, values in signals.items()
    }
    n = len(next(iter(variables.values()))[1])
    time = (
        "time",
        sampling_time * np.arange(n, dtype=np.float64),
        {"units": "s", "long_name": "time"},
    )
    own = {
        "name": name,
        "sampling_time": float(sampling_time),
        "initialisation_window": initialisation_window,
    }
    return xr.Dataset(variables, coords={"time": time}, attrs=dict(attributes or {}) | own)


def part(
    record: xr.Dataset,
    start: int = 0,
    stop: int | None = None,
    *,
    initialisation_window: int | None = None,
    name: str | None = None,
) -> xr.Dataset:
    """Cut out samples ``start`` to ``stop`` (excluded); time, names, units and attributes stay.

    Parameters
    ----------
    start, stop
        As in a slice; negative numbers count from the end.
    initialisation_window
        That of the part; None: what is left of the record's own, ``max(window - start, 0)``:
        samples cut off at the front have served their purpose.
    name
        Name of the part; None: that of the record.

    Raises
    ------
    ValueError
        No sample left, or a record without ``initialisation_window``.
    """
    first, end, _ = slice(start, stop).indices(record.sizes["time"])
    if end <= first:
        raise UserError(
            f"part({start}, {stop}) of a record of {record.sizes['time']} samples is empty"
        )
    if initialisation_window is None:
        if "initialisation_window" not in record.attrs:
            raise UserError(
                "the record has no attribute initialisation_window: build it with make_record"
            )
        initialisation_window = max(int(record.attrs["initialisation_window"]) - first, 0)
    attributes = {"initialisation_window": initialisation_window} | (
        {} if name is None else {"name": name}
    )
    return record.isel(time=slice(first, end)).assign_attrs(attributes)


def _check_record(record: Record, dataset: xr.Dataset) -> None:
    if found := record.first_missing():
        raise UserError(f"{found}: fill the gap, or split the record there into two")
    if absent := [
        n for n in ("name", "sampling_time", "initialisation_window") if n not in dataset.attrs
    ]:
        raise UserError(
            f"record {record.number} has no attributes {absent}: build it with make_record"
        )
    stated = float(dataset.attrs["sampling_time"])
    found_time = record.sampling_time
    if (
        not stated > 0 or abs(stated - found_time) > 2 * TIME_TOLERANCE * stated
    ):  # not for NaN: one sample
        raise UserError(
            f"record {record.number} states sampling_time {stated:g} but its time has steps of {found_time:g}: "
            "correct one of them"
        )
    window = dataset.attrs["initialisation_window"]
    if (
        not isinstance(window, int | np.integer)
        or isinstance(window, bool)
        or not 0 <= window < record.n_samples
    ):
        raise UserError(
            f"record {record.number} ({dataset.attrs['name']!r}) has initialisation_window {window!r}, expected a "
            f"whole number of samples from 0 to {record.n_samples - 1}: it must leave something to judge"
        )


def _read_group_name(key: str) -> tuple[int, int]:
    """Role and number of the group with this name."""
    found = re.fullmatch(rf"/?({'|'.join(ROLES)})(?:/record_(\d+))?", key)
    if not found:
        raise UserError(
            f"expected groups named {', '.join(ROLES)} or, say, {ROLES[0]}/record_0, got {key!r}"
        )
    return ROLES.index(found[1]), int(found[2] or 0)


class DataError(OSError):
    """Data is not where it was expected, cannot be fetched, or is not what it should be."""


@dataclass(frozen=True)
class DataSource(ABC):
    """Settings of a source; nothing is read before `load`."""

    @abstractmethod
    def load(self) -> Recordings:
        """Read the records.

        Raises
        ------
        DataError
            A file is missing, unreachable, damaged or not the expected one.
        ValueError
            The content of a file, or a setting, is not usable.
        """


def list_paths(given: str | Sequence[str] | None, setting: str) -> list[str]:
    """One path, several or none as a list.

    Raises
    ------
    TypeError
        Anything else, with the name of the setting.
    """
    paths = [given] if isinstance(given, str) else list(listed(given or (), setting, "files"))
    if not all(isinstance(path, str | PathLike) for path in paths):
        raise UserTypeError(f"{setting} must be a list of files, got {given!r}")
    return paths


def optional_package(name: str, purpose: str) -> ModuleType:
    """Import an optional package.

    Raises
    ------
    DataError
        It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{purpose} needs the package {name}, which cannot be imported ({error}): install it with "
            'pip install -e ".[records]"'
        ) from error
