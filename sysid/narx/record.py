"""Records: checked signals over a uniform time, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import MAX_MAGNITUDE, Array, as_number, vector
from sysid.errors import UserError, UserTypeError
from sysid.netcdf_names import obstacle_to_name

TIME_TOLERANCE = 1e-6  # largest deviation of a time step, as a fraction of the sampling time [-]

#: largest difference between the sampling times of two real clocks of one nominal rate, and between
#: a stated sampling time and the mean step of times that jitter [-]
MAX_RATE_DIFFERENCE = 0.01

MAX_NAME_LENGTH = 100  # characters of the name of a signal

# Characters that have a meaning in paths, groups of files, templates or formulas in labels.
UNSAFE_NAME_CHARACTERS = set("/\\{}$")

#: Coordinates of records and of their files, which no signal can be named after.
RECORD_COORDINATES = ("time", "record", "part")

HOW_TO_MAKE_A_RECORD = (
    "build one from arrays or columns with sysid.make_record(signals, name=..., sampling_time=...)"
)

# Accepted units of time: seconds, or 1 if time counts samples.
RECORD_TIME_UNITS = ("s", "1")

#: attribute of a record whose signals may have missing values (nan), and its value
ON_MISSING_ATTRIBUTE = "on_missing"
SKIPS_MISSING = "skip"

#: attributes of the variables of a record that hold the estimates of an output, and the variances
#: that these add: their value is the name of the output
ESTIMATE_OF = "estimate_of"
ADDED_VARIANCE_OF = "added_variance_of"

#: A row with estimated lags is used if they add at most this many times the noise variance to the
#: error of its target. Where all rows have the same weight, a row whose error has more than twice
#: the variance of the others makes a least-squares estimate worse, not better.
MAX_ADDED_VARIANCE_RATIO = 1.0


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimates of the missing samples of an output, by a model of it."""

    values: Array  # (n,) unit of the output; nan where it is measured, or cannot be estimated
    #: (n,) variance that estimated lags add to the error of the one-step prediction of each sample,
    #: unit squared; infinite where they are not to be used
    added_variance: Array
    noise_variance: (
        float  # error variance of a one-step prediction from measured lags, unit squared
    )

    @property
    def is_informative(self) -> NDArray[np.bool_]:
        """Mark the samples (n,) whose estimated lags add little to the error of their prediction.

        See `MAX_ADDED_VARIANCE_RATIO`.
        """
        return self.added_variance <= MAX_ADDED_VARIANCE_RATIO * self.noise_variance


@dataclass(frozen=True, eq=False)
class Record:
    """Signals of one experiment, with their time and attributes where these are known."""

    signals: dict[str, Array]  # (n,) by name
    number: int = 0
    time: Array = field(default_factory=lambda: np.empty(0))  # (n,) s; empty if not known
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name of the signal
    time_unit: str = "s"
    #: estimates of missing samples, by name of the output
    estimates: dict[str, Estimate] = field(default_factory=dict)
    skips_missing: bool = False  # whether missing values were asked to be skipped
    jitter: float = 0.0  # largest deviation of a step of its clock, in sampling times [-]

    def filled(self, name: str) -> Array:
        """Return a signal (n,) with its estimates in place of missing values."""
        values = self.signals[name]
        if name not in self.estimates:
            return values
        return np.where(np.isfinite(values), values, self.estimates[name].values)

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
        is_finite = [np.isfinite(values) for values in self.signals.values()]
        return ~np.logical_and.reduce(is_finite)

    def first_missing(self) -> str:
        """Describe the first value that is not finite; empty if all values are finite."""
        samples = np.flatnonzero(self.missing())
        if not len(samples):
            return ""
        first = samples[0]
        name = next(name for name, values in self.signals.items() if not np.isfinite(values[first]))
        when = f"sample {first}"
        if len(self.time):
            when += f" (time {self.time[first]:g} s)"
        return (
            f"signal {name!r} of record {self.number} is {self.signals[name][first]} at {when}, "
            f"the first of {len(samples)} samples with values that are not finite"
        )


def check_name(name: object) -> None:
    """Raise an error unless a name of a signal can stand in files, file names and labels.

    Raises
    ------
    ValueError, TypeError
        The message lists what is allowed.
    """
    if not isinstance(name, str) or not name:
        raise UserTypeError(f"the name of a signal must be text such as 'mass_flow', got {name!r}")
    is_allowed = (
        len(name) <= MAX_NAME_LENGTH
        and name.isprintable()
        and not UNSAFE_NAME_CHARACTERS & set(name)
        and name[0] not in ".-"
        and name == name.strip()
    )
    if not is_allowed:
        unsafe = " ".join(sorted(UNSAFE_NAME_CHARACTERS))
        raise UserError(
            f"a signal cannot be named {name[:MAX_NAME_LENGTH]!r}: a name has up to "
            f"{MAX_NAME_LENGTH} printable characters, none of {unsafe}, and begins with no point, "
            "hyphen or blank; rename it, and keep its unit in the attribute units"
        )


def check_name_in_record(name: object) -> None:
    """Raise an error unless a signal of this name can be stored in the file of a record.

    Raises
    ------
    ValueError, TypeError
        As `check_name`; NetCDF refuses the name, or a coordinate of a record has it.
    """
    check_name(name)
    obstacle = obstacle_to_name(str(name))
    if name in RECORD_COORDINATES:
        obstacle = f"the files of records have the coordinates {', '.join(RECORD_COORDINATES)}"
    if obstacle:
        raise UserError(
            f"a signal cannot be named {name!r}: {obstacle}; rename it, or leave it out of the "
            "signals"
        )


def read_signals(
    signals: Mapping[Any, ArrayLike], names: Sequence[str], number: int
) -> dict[str, Array]:
    """Return the named signals as float64 arrays (n,) of equal length.

    Raises
    ------
    ValueError, TypeError
        If a signal is missing (the message lists those present), has another shape or no real
        numbers, or the lengths differ.
    """
    absent = [name for name in names if name not in signals]
    if absent:
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
    """Read one or several data sets with dimension ``time`` as records of equal sampling time.

    Time is in seconds, or counts samples (units ``1``).

    Raises
    ------
    ValueError, TypeError
        As `read_signals`; if `records` is neither a data set nor a list of data sets, or is empty;
        if time is missing, in another unit, not finite or not uniform; if sampling times or units
        differ between records.
    """
    datasets = _list_datasets(records)
    if not datasets:
        raise UserError("expected at least one record, got an empty list")
    read = [_read_record(dataset, names, number) for number, dataset in enumerate(datasets)]
    for record in read[1:]:
        _check_same_units(read[0], record)
    return read


def _list_datasets(records: Any) -> list[xr.Dataset]:
    """Return one or several data sets as a list; raise UserTypeError for anything else."""
    if isinstance(records, xr.Dataset):
        return [records]
    if not isinstance(records, Sequence | Iterator) or isinstance(records, str):
        raise UserTypeError(
            f"expected a record or a list of records, got {type(records).__name__}: "
            f"{HOW_TO_MAKE_A_RECORD}"
        )
    given = list(records)
    for number, record in enumerate(given):
        if not isinstance(record, xr.Dataset):
            raise UserTypeError(
                f"record {number} must be an xarray.Dataset, got {type(record).__name__}: "
                f"{HOW_TO_MAKE_A_RECORD}"
            )
    return given


def _read_record(dataset: xr.Dataset, names: Sequence[str], number: int) -> Record:
    time, unit = _read_time(dataset, number)
    for name in set(names) & set(dataset.variables):
        if dataset[name].dims != ("time",):
            raise UserError(
                f"signal {name!r} of record {number} has dimensions {dataset[name].dims}, expected "
                "('time',): pass several records as a list with one data set each"
            )
    signals = read_signals(dict(dataset.variables), names, number)
    _check_magnitudes(signals, number)
    attributes = {name: _read_attributes(dataset, name, number) for name in names}
    estimates = _read_estimates(dataset, names)
    skips_missing = dataset.attrs.get(ON_MISSING_ATTRIBUTE) == SKIPS_MISSING
    jitter = as_number(dataset.attrs.get("jitter", 0.0))
    return Record(signals, number, time, attributes, unit, estimates, skips_missing, jitter)


def _read_estimates(dataset: xr.Dataset, names: Sequence[str]) -> dict[str, Estimate]:
    """Return the estimates that a data set holds, by name of the output."""
    values = _variables_by(dataset, ESTIMATE_OF)
    added = _variables_by(dataset, ADDED_VARIANCE_OF)
    estimates = {}
    for name in names:
        if name in values and name in added:
            estimate = dataset.variables[values[name]]
            estimates[name] = Estimate(
                estimate.values,
                dataset.variables[added[name]].values,
                float(estimate.attrs["noise_variance"]),
            )
    return estimates


def _variables_by(dataset: xr.Dataset, attribute: str) -> dict[str, str]:
    """Return the names of the variables that have an attribute, by its value."""
    return {
        str(variable.attrs[attribute]): str(name)
        for name, variable in dataset.variables.items()
        if attribute in variable.attrs
    }


def without_estimates(dataset: xr.Dataset) -> xr.Dataset:
    """Return a record without the variables that hold estimates."""
    held = [
        *_variables_by(dataset, ESTIMATE_OF).values(),
        *_variables_by(dataset, ADDED_VARIANCE_OF).values(),
    ]
    return dataset.drop_vars(held)


def with_estimate(dataset: xr.Dataset, name: str, estimate: Estimate | None) -> xr.Dataset:
    """Return a record with these estimates of an output in place of those that it has, if any.

    Two variables hold them; None: there are none.
    """
    kept = dataset
    for attribute in (ESTIMATE_OF, ADDED_VARIANCE_OF):
        held = _variables_by(dataset, attribute)
        if name in held:
            kept = kept.drop_vars(held[name])
    if estimate is None:
        return kept
    label = f"{name}_estimate"
    while label in kept.variables:
        label += "_"
    unit = kept[name].attrs.get("units", "")
    attributes = {
        "long_name": f"estimate of {name} where it is missing",
        ESTIMATE_OF: name,
        "noise_variance": estimate.noise_variance,
    }
    attributes_of_variance = {
        "long_name": f"variance that estimated lags add to the prediction of {name}",
        ADDED_VARIANCE_OF: name,
    }
    if unit:
        attributes["units"] = unit
        attributes_of_variance["units"] = f"({unit})2"
    return kept.assign(
        {
            label: ("time", estimate.values, attributes),
            f"{label}_added_variance": ("time", estimate.added_variance, attributes_of_variance),
        }
    )


def _check_magnitudes(signals: Mapping[str, Array], number: int) -> None:
    """Raise UserError if the powers of a signal would underflow or overflow; it may be zero."""
    for name, values in signals.items():
        largest = np.abs(values).max(initial=0.0, where=np.isfinite(values))
        if largest >= MAX_MAGNITUDE:
            raise UserError(
                f"signal {name!r} of record {number} has a value of magnitude {largest:g}, "
                f"expected less than {MAX_MAGNITUDE:g}: give it in a larger unit, or leave the "
                "value empty if it is wrong"
            )
        if 0 < largest < 1 / MAX_MAGNITUDE:
            raise UserError(
                f"signal {name!r} of record {number} has no value above {largest:g}, expected 0 or "
                f"more than {1 / MAX_MAGNITUDE:g}; give it in a smaller unit"
            )


def _read_time(dataset: xr.Dataset, number: int) -> tuple[Array, str]:
    """Return the uniform time (n,) of a record and its unit."""
    if "time" not in dataset.coords or dataset["time"].dims != ("time",):
        raise UserError(
            f"record {number} needs a dimension 'time' with a coordinate [s], it has dimensions "
            f"{list(dataset.sizes)} and coordinates {list(dataset.coords)}"
        )
    unit = str(dataset["time"].attrs.get("units", "s"))
    if unit not in RECORD_TIME_UNITS:
        raise UserError(
            f"time of record {number} has units {unit!r}, expected 's', or '1' where it counts "
            "samples: convert it to seconds"
        )
    given = dataset["time"].values
    if given.dtype.kind in "mM":
        raise UserTypeError(
            f"time of record {number} has time stamps ({given.dtype}), expected seconds: "
            "record.assign_coords(time=(record.time - record.time[0]) / numpy.timedelta64(1, 's'))"
        )
    time = vector(given, None, f"time of record {number}", finite=False)
    is_single = given.dtype == np.float32
    rounding = 4 * float(np.spacing(np.abs(given).max(initial=0.0))) if is_single else 0.0
    _check_uniform(time, number, rounding)
    return time, unit


def _read_attributes(dataset: xr.Dataset, name: str, number: int) -> dict[str, str]:
    """Return the unit and the long name of a signal, as far as they are known."""
    attributes = {}
    for key in ("units", "long_name"):
        if key not in dataset[name].attrs:
            continue
        value = dataset[name].attrs[key]
        if not isinstance(value, str):
            raise UserTypeError(
                f"units and long_name of signal {name!r} of record {number} must be text, got "
                f"{value!r}"
            )
        attributes[key] = value
    return attributes


def _check_uniform(time: Array, number: int, rounding: float) -> None:
    is_finite = np.isfinite(time)
    if not is_finite.all():
        sample = np.flatnonzero(~is_finite)[0]
        raise UserError(f"time of record {number} is not finite at sample {sample}")
    worst = find_jump(time, rounding)
    if worst is not None:
        steps = np.diff(time)
        raise UserError(
            f"time of record {number} must increase in equal steps: step {worst} (from "
            f"{time[worst]:g} s) is {steps[worst]:g} s, the mean {steps.mean():g} s; resample the "
            "record, or split it where time jumps"
        )


def find_jump(time: Array, rounding: float = 0.0) -> int | None:
    """Return the step that deviates most from the mean step; None if all steps are equal.

    Steps are equal up to `TIME_TOLERANCE` and the rounding of the times, which is larger than that
    of double precision if they were in single precision.
    """
    steps = np.diff(time)
    if not len(steps):
        return None
    deviation = np.abs(steps - steps.mean())
    rounding = max(rounding, 4 * float(np.spacing(np.abs(time).max(initial=0.0))))
    allowed = TIME_TOLERANCE * steps.mean() + rounding
    if steps.mean() <= 0 or (deviation > allowed).any():
        return int(deviation.argmax())
    return None


def _check_same_units(first: Record, record: Record) -> None:
    """Raise UserError unless two records have the same sampling time and the same units."""
    _check_equal("one unit of time", first, record, first.time_unit, record.time_unit)
    difference = abs(record.sampling_time - first.sampling_time)
    if difference > TIME_TOLERANCE * first.sampling_time:
        expected_time = f"{first.sampling_time:.9g} s"
        _check_equal(
            "one sampling time", first, record, expected_time, f"{record.sampling_time:.9g} s"
        )
    for name, attributes in record.attributes.items():
        expected_unit = first.attributes[name].get("units")
        _check_equal(f"one unit of {name!r}", first, record, expected_unit, attributes.get("units"))


def _check_equal(what: str, first: Record, record: Record, expected: Any, found: Any) -> None:
    if found != expected:
        raise UserError(
            f"records need {what}, record {first.number} has {expected!r}, record {record.number} "
            f"{found!r}: convert them, or identify them separately"
        )
