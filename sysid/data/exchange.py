"""Exchange of records with the package ``nonlinear_benchmarks``.

Its type of record holds ``u``, ``y``, ``sampling_time``, ``name`` and ``state_initialization_window_length``; it
has no units, names of signals or start time, and its slices (version 1.0.1) lose name and window. Hence slice
here, with `sysid.recordings.part`, and convert whole records.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from sysid.data.extra import optional_package
from sysid.record import Array
from sysid.recordings import ROLES, Recordings, make_record


@runtime_checkable
class InputOutput(Protocol):
    """What is read of a record of the package; u and y are (n,) or (n, channels)."""

    u: Any
    y: Any
    sampling_time: Any  # s, None where it is not known
    name: str
    state_initialization_window_length: int | None  # samples, None where there is none


class Exchanged(NamedTuple):
    """Records of the package by role, each a tuple of ``nonlinear_benchmarks.Input_output_data``."""

    estimation: tuple[Any, ...]
    validation: tuple[Any, ...]
    test: tuple[Any, ...]


def from_nonlinear_benchmarks(
    estimation: Sequence[InputOutput] = (),
    validation: Sequence[InputOutput] = (),
    test: Sequence[InputOutput] = (),
    *,
    name: str,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    sampling_time: float | None = None,
    initialisation_window: int | None = None,
    units: Mapping[str, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Recordings:
    """Recordings from records of the package; they start at time 0.

    Parameters
    ----------
    estimation, validation, test
        Records of each role.
    inputs, outputs
        Names of the channels; None: ``u`` and ``y``, numbered from 1 where there are several.
    sampling_time
        That of records which do not state it [s].
    initialisation_window
        That of all validation and test records; None: what each record states, 0 where it states nothing.
    units, attributes
        Of the signals, by name, and of every record.

    Raises
    ------
    ValueError
        No record; no sampling time, or two different ones; a wrong number of names; what `Recordings` refuses.
    """
    given = dict(zip(ROLES, (estimation, validation, test), strict=True))
    records = [record for role in given.values() for record in role]
    if not records:
        raise ValueError(f"from_nonlinear_benchmarks({name!r}): expected at least one record, got none")
    u, y = _names("u", inputs, records[0].u), _names("y", outputs, records[0].y)
    converted = {
        role: tuple(
            make_record(
                _channels(u, record.u) | _channels(y, record.y),
                name=record.name or f"{name}, {role} {number}",
                sampling_time=_sampling_time(record, sampling_time),
                initialisation_window=_window(record, None if role == "estimation" else initialisation_window),
                units=units,
                attributes=attributes,
            )
            for number, record in enumerate(members)
        )
        for role, members in given.items()
    }
    return Recordings(name, u, y, **converted)


def to_nonlinear_benchmarks(recordings: Recordings) -> Exchanged:
    """Records of the package, one per record: u (n,) or (n, inputs), y alike, sampling time, name and window.

    Units, names of signals and the start time have no place there and are left out.

    Raises
    ------
    DataError
        The package is not installed.
    ValueError
        Recordings without inputs, or static ones.
    """
    if not recordings.inputs or recordings.is_static:
        raise ValueError(
            f"recordings {recordings.name!r} have no inputs or no time: the record type of nonlinear_benchmarks "
            "needs both"
        )
    package = optional_package("nonlinear_benchmarks", "converting to its type of record")
    return Exchanged(*(tuple(_exchange(package, recordings, r) for r in getattr(recordings, role)) for role in ROLES))


def _exchange(package: Any, recordings: Recordings, record: xr.Dataset) -> Any:
    u, y = (
        np.column_stack([record[name].values for name in names]) for names in (recordings.inputs, recordings.outputs)
    )
    return package.Input_output_data(
        u=u[:, 0] if u.shape[1] == 1 else u,
        y=y[:, 0] if y.shape[1] == 1 else y,
        sampling_time=recordings.sampling_time,
        name=record.attrs["name"],
        state_initialization_window_length=record.attrs["initialisation_window"],
    )


def _names(letter: str, given: Sequence[str] | None, values: Any) -> tuple[str, ...]:
    n = 1 if np.ndim(values) == 1 else np.shape(values)[1]
    names = tuple(given) if given is not None else (letter,) if n == 1 else tuple(f"{letter}{i + 1}" for i in range(n))
    if len(names) != n:
        raise ValueError(f"expected {n} names for the channels of {letter}, got {list(names)}")
    return names


def _channels(names: Sequence[str], values: Any) -> dict[str, Array]:
    array = np.asarray(values, dtype=np.float64)
    columns = array[:, None] if array.ndim == 1 else array
    if columns.ndim != 2 or columns.shape[1] != len(names):
        raise ValueError(f"expected channels {list(names)} in every record, got an array of shape {array.shape}")
    return {name: columns[:, i] for i, name in enumerate(names)}


def _sampling_time(record: InputOutput, given: float | None) -> float:
    stated = None if record.sampling_time is None else float(np.squeeze(record.sampling_time))
    if stated is None and given is None:
        raise ValueError(f"record {record.name!r} does not state its sampling time: give it [s] (data.dt)")
    if stated is not None and given is not None and abs(stated - given) > 1e-6 * stated:
        raise ValueError(f"record {record.name!r} has the sampling time {stated:g} s, not {given:g} s: leave it out")
    return float(given if stated is None else stated)  # type: ignore[arg-type]


def _window(record: InputOutput, given: int | None) -> int:
    stated = record.state_initialization_window_length
    return int(given if given is not None else stated or 0)
