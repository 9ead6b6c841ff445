"""Records: signals over a uniform time, checked, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, vector
from sysid.errors import UserError, UserTypeError

TIME_TOLERANCE = 1e-6  # of the sampling time: largest deviation of a time step [-]
LONGEST_NAME = 100  # characters
UNSAFE = set("/\\{}$")  # of paths, groups of files, templates and formulas in labels
ADVICE = (
    "build one from arrays or columns with sysid.make_record(signals, name=..., sampling_time=...)"
)
TIME_UNITS = ("s", "1")  # seconds; number of the sample


@dataclass(frozen=True, eq=False)
class Record:
    """Signals of one experiment, each (n,), with their time and attributes where these are
    known.
    """

    signals: dict[str, Array]
    number: int = 0
    time: Array = field(default_factory=lambda: np.empty(0))  # s
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    time_unit: str = "s"

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return len(next(iter(self.signals.values())))

    @property
    def sampling_time(self) -> float:
        """Mean time step [s]; NaN for fewer than two samples."""
        if len(self.time) < 2:
            return float("nan")
        return float(self.time[-1] - self.time[0]) / (len(self.time) - 1)

    def missing(self) -> NDArray[np.bool_]:
        """Mark the samples (n,) at which the value of some signal is not finite."""
        return ~np.logical_and.reduce([np.isfinite(values) for values in self.signals.values()])

    def first_missing(self) -> str:
        """Signal, sample and count of the values that are not finite; empty if there are none."""
        samples = np.flatnonzero(self.missing())
        if not len(samples):
            return ""
        first = samples[0]
        name = next(name for name, values in self.signals.items() if not np.isfinite(values[first]))
        when = f"sample {first}" + (f" (time {self.time[first]:g} s)" if len(self.time) else "")
        return (
            f"signal {name!r} of record {self.number} is {self.signals[name][first]} at {when}, "
            f"the first of {len(samples)} samples with values that are not finite"
        )


def check_name(name: object) -> None:
    """Refuse a name of a signal that could not stand in files, file names and labels.

    Raises
    ------
    ValueError, TypeError
        With what is allowed.
    """
    if not isinstance(name, str) or not name:
        raise UserTypeError(f"the name of a signal must be text such as 'mass_flow', got {name!r}")
    if (
        len(name) > LONGEST_NAME
        or not name.isprintable()
        or UNSAFE & {*name}
        or name[0] in ".-"
        or name != name.strip()
    ):
        raise UserError(
            f"a signal cannot be named {name[:LONGEST_NAME]!r}: a name has up to {LONGEST_NAME} printable characters, "
            f"none of {' '.join(sorted(UNSAFE))}, and begins with no point, hyphen or blank; rename it, and keep its "
            "unit in the attribute units"
        )


def read_signals(
    signals: Mapping[Any, ArrayLike], names: Sequence[str], number: int
) -> dict[str, Array]:
    """Named signals as float64 arrays (n,) of one length.

    Raises
    ------
    ValueError, TypeError
        A missing signal (those present are listed), another shape, no real numbers, unequal
        lengths.
    """
    if absent := [name for name in names if name not in signals]:
        raise UserError(
            f"record {number} has no signals {absent}: it has {sorted(map(str, signals))}"
        )
    arrays = {
        name: vector(signals[name], None, f"signal {name!r} of record {number}", finite=False)
        for name in names
    }
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"signals of record {number} need one length, got {lengths}")
    return arrays


def read_records(records: xr.Dataset | Sequence[xr.Dataset], names: Sequence[str]) -> list[Record]:
    """One or several data sets with dimension ``time`` as records of the same sampling time.

    Time is in seconds, or counts samples (units ``1``).

    Raises
    ------
    ValueError, TypeError
        As `read_signals`; no data set or list of them; no records; time missing, in another unit,
        not finite, not uniform; sampling times or units that differ between records.
    """
    records = _datasets(records)
    if not records:
        raise UserError("expected at least one record, got an empty list")
    read = [_read(record, names, number) for number, record in enumerate(records)]
    for record in read[1:]:
        _check_alike(read[0], record)
    return read


def _datasets(records: Any) -> list[xr.Dataset]:
    """One or several data sets as a list; what else came is named."""
    if isinstance(records, xr.Dataset):
        return [records]
    if not isinstance(records, Sequence | Iterator) or isinstance(records, str):
        raise UserTypeError(
            f"expected a record or a list of records, got {type(records).__name__}: {ADVICE}"
        )
    given = list(records)
    for number, record in enumerate(given):
        if not isinstance(record, xr.Dataset):
            raise UserTypeError(
                f"record {number} must be an xarray.Dataset, got {type(record).__name__}: {ADVICE}"
            )
    return given


def _read(dataset: xr.Dataset, names: Sequence[str], number: int) -> Record:
    if "time" not in dataset.coords or dataset["time"].dims != ("time",):
        raise UserError(
            f"record {number} needs a dimension 'time' with a coordinate [s], it has dimensions "
            f"{list(dataset.sizes)} and coordinates {list(dataset.coords)}"
        )
    if (unit := str(dataset["time"].attrs.get("units", "s"))) not in TIME_UNITS:
        raise UserError(
            f"time of record {number} has units {unit!r}, expected 's', or '1' where it counts samples: convert it "
            "to seconds"
        )
    time = vector(dataset["time"].values, None, f"time of record {number}", finite=False)
    _check_uniform(time, number)
    for name in set(names) & set(dataset.variables):
        if dataset[name].dims != ("time",):
            raise UserError(
                f"signal {name!r} of record {number} has dimensions {dataset[name].dims}, expected "
                "('time',): pass several records as a list with one data set each"
            )
    signals = read_signals(dict(dataset.variables), names, number)
    kept = {name: dataset[name].attrs for name in names}
    attributes = {
        name: {key: kept[name][key] for key in ("units", "long_name") if key in kept[name]}
        for name in names
    }
    for name, found in attributes.items():
        if other := [value for value in found.values() if not isinstance(value, str)]:
            where = f"signal {name!r} of record {number}"
            raise UserTypeError(f"units and long_name of {where} must be text, got {other[0]!r}")
    return Record(signals, number, time, attributes, unit)


def _check_uniform(time: Array, number: int) -> None:
    if not np.isfinite(time).all():
        raise UserError(
            f"time of record {number} is not finite at sample {np.flatnonzero(~np.isfinite(time))[0]}"
        )
    if (worst := find_jump(time)) is not None:
        steps = np.diff(time)
        raise UserError(
            f"time of record {number} must increase in equal steps: step {worst} (from {time[worst]:g} s) is "
            f"{steps[worst]:g} s, the mean {steps.mean():g} s; resample the record, or split it where time jumps"
        )


def find_jump(time: Array) -> int | None:
    """Worst step, unless all equal their mean to `TIME_TOLERANCE`, beside the rounding of the times
    themselves.
    """
    steps = np.diff(time)
    if not len(steps):
        return None
    deviation = np.abs(steps - steps.mean())
    allowed = TIME_TOLERANCE * steps.mean() + 4 * np.spacing(np.abs(time).max(initial=0.0))
    return int(deviation.argmax()) if steps.mean() <= 0 or (deviation > allowed).any() else None


def _check_alike(first: Record, record: Record) -> None:
    steps = first.sampling_time, record.sampling_time
    differ = abs(steps[1] - steps[0]) > TIME_TOLERANCE * steps[0]
    pairs: list[tuple[str, Any, Any]] = [("one unit of time", first.time_unit, record.time_unit)]
    pairs += [("one sampling time", f"{steps[0]:.9g} s", f"{steps[1]:.9g} s")] if differ else []
    for name, attributes in record.attributes.items():
        pairs.append(
            (
                f"one unit of {name!r}",
                first.attributes[name].get("units"),
                attributes.get("units"),
            )
        )
    for what, expected, found in pairs:
        if found != expected:
            raise UserError(
                f"records need {what}, record {first.number} has {expected!r}, record {record.number} {found!r}: "
                "convert them, or identify them apart"
            )
