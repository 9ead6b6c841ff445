"""Sources of records, and the data split that a source returns."""

from __future__ import annotations

import importlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from os import PathLike
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import as_number, is_number, listed, real_numbers
from sysid.data.holes import has_holes, split_records_at_holes
from sysid.errors import UserError, UserTypeError
from sysid.narx.record import TIME_TOLERANCE, Record, check_name_in_record, read_records

#: roles of the records of a data split
RECORD_ROLES = ("estimation", "validation", "test")

#: attributes that a stored group has beside those of its record
GROUP_ATTRIBUTES = ("recordings", "inputs", "outputs")


@dataclass(frozen=True, eq=False)
class Recordings:
    """Data split of one system: its records for estimation, validation and test.

    Records are separate: no lag, no simulation and no score extends from one record into another.

    Every record is a data set with dimension and coordinate ``time``, one variable (time,) per
    signal with ``units`` and ``long_name``, and the attributes

    - ``name``;
    - ``sampling_time`` [s], or 1 where ``time`` counts samples (units ``1``);
    - ``initialisation_window``: number of samples at the start that only initialise a model and are
      not scored;
    - ``note``, if anything was left out or changed when the record was read;
    - ``on_missing`` = ``skip`` if values may be missing (nan), because they are skipped;
    - ``static`` = 1 if the rows are independent of each other (a table, not a signal over time).

    Parameters
    ----------
    name
        Name of the system or data set.
    inputs, outputs
        Names of the signals; a record may hold more variables than these.
    estimation, validation, test
        Records to identify from, to choose settings with, and to test the model on.

    Raises
    ------
    ValueError, TypeError
        There is no output or no record, a name is given twice, the time is missing or not uniform,
        a signal is missing, not (time,) or not finite (unless the record says that missing values
        are skipped), units or sampling times differ between records, or an attribute is missing or
        impossible.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    estimation: tuple[xr.Dataset, ...] = ()
    validation: tuple[xr.Dataset, ...] = ()
    test: tuple[xr.Dataset, ...] = ()

    def __post_init__(self) -> None:
        for field in ("inputs", "outputs", *RECORD_ROLES):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        names = self.inputs + self.outputs
        for name in names:
            check_name_in_record(name)
        if not self.outputs or len(set(names)) < len(names):
            raise UserError(
                f"Recordings({self.name!r}): expected at least one output and every signal once, "
                f"got inputs {list(self.inputs)} and outputs {list(self.outputs)}"
            )
        try:
            read = read_records(self.records, names)
            for record, dataset in zip(read, self.records, strict=True):
                _check_record(record, dataset)
        except (UserError, UserTypeError) as error:
            counts = [f"{len(getattr(self, role))} {role}" for role in RECORD_ROLES]
            order = f" ({', '.join(counts)}, in this order)" if len(self.records) > 1 else ""
            raise type(error)(f"the records of {self.name}{order}: {error}") from None

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
            name: first[name].attrs["units"]
            for name in self.inputs + self.outputs
            if "units" in first[name].attrs
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Different notes on the records: what reading changed, and which tests are learned."""
        notes = [str(record.attrs["note"]) for record in self.records if "note" in record.attrs]
        return tuple(dict.fromkeys([*notes, *self.notes_on_learned_tests]))

    @property
    def notes_on_learned_tests(self) -> tuple[str, ...]:
        """A note on each validation or test record with the samples of an estimation record."""
        notes = []
        for test in self.validation + self.test:
            for record in self.estimation:
                if self._have_same_samples(test, record):
                    notes.append(
                        f"the test record {test.attrs['name']!r} has the same samples as the "
                        f"estimation record {record.attrs['name']!r}: its errors are not those of "
                        "new data; take another record as the test"
                    )
        return tuple(notes)

    def _have_same_samples(self, first: xr.Dataset, second: xr.Dataset) -> bool:
        """Whether all inputs and outputs of two records are the same."""
        return first.sizes["time"] == second.sizes["time"] and all(
            np.array_equal(first[name].values, second[name].values, equal_nan=True)
            for name in self.inputs + self.outputs
        )

    def hold_out(self, fraction: float, *, initialisation_window: int = 0) -> Recordings:
        """Move the last part of every estimation record to validation.

        Parameters
        ----------
        fraction
            Fraction of the samples of each record that is held out, above 0 and below 1.
        initialisation_window
            Initialisation window of the held-out parts [samples].

        Raises
        ------
        ValueError
            The fraction is out of range, one of the two parts would be empty, or there are
            validation records already.
        """
        if not 0 < fraction < 1 or self.validation:
            raise UserError(
                f"Recordings({self.name!r}).hold_out({fraction!r}) expects a fraction above 0 and "
                f"below 1 and no validation records, there are {len(self.validation)}"
            )
        estimation = []
        validation = []
        for record in self.estimation:
            n = record.sizes["time"]
            end = n - round(fraction * n)
            if not 0 < end < n:
                raise UserError(
                    f"{self.name}: {fraction:.0%} of a record with {n} samples cannot be held out: "
                    "give a longer record, or a test record"
                )
            validation.append(part(record, end, initialisation_window=initialisation_window))
            estimation.append(part(record, 0, end))
        return replace(self, estimation=tuple(estimation), validation=tuple(validation))

    def to_groups(self) -> dict[str, xr.Dataset]:
        """Return the records by the name of their group in a file.

        Each record has the names of inputs and outputs as attributes, in JSON.

        Returns
        -------
        dict
            ``estimation`` for one record, ``estimation/record_0``, ``estimation/record_1``, ... for
            several; the same for validation and test.
        """
        group_attributes = {
            "recordings": self.name,
            "inputs": json.dumps(self.inputs),
            "outputs": json.dumps(self.outputs),
        }
        groups = {}
        for role in RECORD_ROLES:
            records = getattr(self, role)
            for number, record in enumerate(records):
                key = role if len(records) == 1 else f"{role}/record_{number}"
                groups[key] = record.assign_attrs(group_attributes)
        return groups

    @classmethod
    def from_groups(cls, groups: Mapping[str, xr.Dataset]) -> Recordings:
        """Invert `to_groups`.

        Raises
        ------
        ValueError
            There is no group, a group has another name, two groups are the same record, the groups
            belong to different data splits, or `Recordings` refuses the records.
        """
        numbers = {key: _read_group_name(key) for key in groups}
        names = sorted(groups, key=lambda key: numbers[key])
        for first, second in pairwise(names):
            if numbers[first] == numbers[second]:
                raise UserError(
                    f"groups {first!r} and {second!r} are the same record: leave one of them out"
                )
        in_order = [(numbers[key], groups[key]) for key in names]
        headers = {
            tuple(str(record.attrs.get(name)) for name in GROUP_ATTRIBUTES)
            for _, record in in_order
        }
        is_one_split = len(headers) == 1 and "None" not in next(iter(headers))
        if not is_one_split:
            raise UserError(
                f"expected groups with equal attributes {', '.join(GROUP_ATTRIBUTES)}, "
                f"got groups {sorted(groups)}: build them with Recordings.to_groups"
            )
        name, inputs, outputs = headers.pop()
        by_role: dict[str, list[xr.Dataset]] = {role: [] for role in RECORD_ROLES}
        for (role, _), record in in_order:
            attributes = {}
            for key, value in record.attrs.items():
                if key not in GROUP_ATTRIBUTES:
                    is_numpy_number = isinstance(value, np.generic)  # as NetCDF returns numbers
                    attributes[key] = value.item() if is_numpy_number else value
            stripped = record.drop_attrs(deep=False).assign_attrs(attributes)
            by_role[RECORD_ROLES[role]].append(stripped)
        return cls(
            name,
            read_names(inputs),
            read_names(outputs),
            **{role: tuple(records) for role, records in by_role.items()},
        )


def split_at_holes(recordings: Recordings, shortest: int) -> Recordings:
    """Return recordings whose records are the parts between missing samples, for methods without.

    Parts of fewer than `shortest` samples are left out, with a note.

    Raises
    ------
    ValueError
        No part is long enough.
    """
    names = [*recordings.inputs, *recordings.outputs]
    if not has_holes(recordings.records, names):
        return recordings
    split: dict[str, Any] = {}
    for role in RECORD_ROLES:
        split[role] = tuple(split_records_at_holes(getattr(recordings, role), names, shortest))
        if getattr(recordings, role) and not split[role]:
            raise UserError(
                f"{recordings.name}: no {role} record has {shortest} samples in a row without a "
                "missing value, which the physics needs; fill the holes"
            )
    return replace(recordings, **split)


def read_names(text: object) -> tuple[str, ...]:
    """Return the names of signals that a file states as a JSON list.

    Raises
    ------
    ValueError
        The text is no JSON list of names.
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
    """Make a record over ``time`` = k sampling_time [s] from arrays (n,).

    The record has the form that `Recordings` requires.

    Parameters
    ----------
    signals
        Arrays (n,) by the name of their signal. Masked values are missing: they become nan.
    name
        Name of the record.
    sampling_time
        Sampling time [s].
    initialisation_window
        Number of samples at the start that are not scored.
    units, long_names
        Texts by the name of the signal; a signal may have none.
    attributes
        More attributes of the record.

    Raises
    ------
    ValueError, TypeError
        The sampling time is no positive number, or the signals are none, no numbers, or not of one
        length.
    """
    if not 0 < as_number(sampling_time) < np.inf:
        raise UserError(
            f"make_record: sampling_time must be a number of seconds > 0, got {sampling_time!r}"
        )
    units = units or {}
    long_names = long_names or {}
    numbers = {}
    for signal, values in signals.items():
        check_name_in_record(signal)
        numbers[signal] = real_numbers(values, f"signal {signal!r}", missing=True).copy()
    shapes = {signal: column.shape for signal, column in numbers.items()}
    if len({*shapes.values()}) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise UserError(f"make_record: expected signals (n,) of one length, got shapes {shapes}")
    variables = {}
    for signal, column in numbers.items():
        texts = {}
        if signal in units:
            texts["units"] = units[signal]
        if signal in long_names:
            texts["long_name"] = long_names[signal]
        variables[signal] = xr.Variable("time", column, texts, fastpath=True)
    n = len(next(iter(numbers.values())))
    time = time_coordinate(sampling_time * np.arange(n, dtype=np.float64))
    required = {
        "name": name,
        "sampling_time": float(sampling_time),
        "initialisation_window": initialisation_window,
    }
    return xr.Dataset(variables, coords={"time": time}, attrs=dict(attributes or {}) | required)


def time_coordinate(seconds: np.ndarray) -> xr.IndexVariable:
    """Return the coordinate ``time`` of a record from its times (n,) [s].

    Like the signals of a record, it is made by xarray's fast path: without that, xarray imports
    Dask for the first array of a process, which takes longer than reading a million rows.
    """
    attributes = {"units": "s", "long_name": "time"}
    return xr.IndexVariable("time", pd.Index(seconds), attributes, fastpath=True)


def part(
    record: xr.Dataset,
    start: int = 0,
    stop: int | None = None,
    *,
    initialisation_window: int | None = None,
    name: str | None = None,
) -> xr.Dataset:
    """Return samples ``start`` to ``stop`` (excluded) with their time, units and attributes.

    Parameters
    ----------
    start, stop
        As in a slice; negative numbers count from the end.
    initialisation_window
        Initialisation window of the part. None: the rest of the record's window,
        ``max(window - start, 0)``, because the samples cut off at the front belong to it.
    name
        Name of the part; None: that of the record.

    Raises
    ------
    ValueError
        The part is empty, or the record has no ``initialisation_window``.
    """
    first, end, _ = slice(start, stop).indices(record.sizes["time"])
    if end <= first:
        n_samples = record.sizes["time"]
        raise UserError(
            f"part({start}, {stop}) of a record with {n_samples} samples is empty: choose samples "
            "that it has"
        )
    if initialisation_window is None:
        if "initialisation_window" not in record.attrs:
            raise UserError(
                "the record has no attribute initialisation_window: build it with make_record"
            )
        initialisation_window = max(int(record.attrs["initialisation_window"]) - first, 0)
    attributes: dict[str, Any] = {"initialisation_window": initialisation_window}
    if name is not None:
        attributes["name"] = name
    return record.isel(time=slice(first, end)).assign_attrs(attributes)


def _check_record(record: Record, dataset: xr.Dataset) -> None:
    """Raise UserError if a value or an attribute of a record is missing or does not fit."""
    first_missing = record.first_missing()
    if first_missing and not record.skips_missing:
        raise UserError(f"{first_missing}: fill the gap, or split the record there into two")
    required = ("name", "sampling_time", "initialisation_window")
    absent = [name for name in required if name not in dataset.attrs]
    if absent:
        raise UserError(
            f"record {record.number} has no attributes {absent}: build it with make_record"
        )
    stated = float(dataset.attrs["sampling_time"])
    measured = record.sampling_time  # nan if there is one sample: then nothing is compared
    if not stated > 0 or abs(stated - measured) > 2 * TIME_TOLERANCE * stated:
        raise UserError(
            f"record {record.number} states sampling_time {stated:g} but its time has steps of "
            f"{measured:g}: correct one of them"
        )
    window = dataset.attrs["initialisation_window"]
    is_whole = is_number(window, Integral)
    if not is_whole or not 0 <= window < record.n_samples:
        raise UserError(
            f"record {record.number} ({dataset.attrs['name']!r}) has initialisation_window "
            f"{window!r}, expected a whole number of samples from 0 to {record.n_samples - 1}: "
            "it must leave samples to score"
        )


def _read_group_name(key: str) -> tuple[int, int]:
    """Return role (its index) and number of the record whose group has this name."""
    match = re.fullmatch(rf"/?({'|'.join(RECORD_ROLES)})(?:/record_(\d+))?", key)
    if not match:
        raise UserError(
            f"expected groups named {', '.join(RECORD_ROLES)} or, for example, "
            f"{RECORD_ROLES[0]}/record_0, got {key!r}"
        )
    return RECORD_ROLES.index(match[1]), int(match[2] or 0)


class DataError(OSError):
    """Data is missing, cannot be downloaded, or is not what was expected."""


@dataclass(frozen=True)
class DataSource(ABC):
    """Settings of a source of records; files are read by `load` only."""

    @abstractmethod
    def load(self) -> Recordings:
        """Read the records.

        Raises
        ------
        DataError
            A file is missing, unreachable, damaged or not the expected one.
        ValueError
            The content of a file, or a setting, cannot be used.
        """


def list_paths(given: str | Sequence[str] | None, setting: str) -> list[str]:
    """Return one path, several or none as a list.

    Raises
    ------
    TypeError
        Something else was given; the message names the setting.
    """
    paths = [given] if isinstance(given, str) else list(listed(given or (), setting, "files"))
    if not all(isinstance(path, str | PathLike) for path in paths):
        raise UserTypeError(f"{setting} must be a list of files, got {given!r}")
    return paths


def optional_package(name: str, purpose: str, *, extra: str = "records") -> ModuleType:
    """Import an optional package, which an extra of this one installs, and return it.

    Raises
    ------
    DataError
        The package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{purpose} needs the package {name}, which cannot be imported ({error}): "
            f'install it with pip install -e ".[{extra}]"'
        ) from error
