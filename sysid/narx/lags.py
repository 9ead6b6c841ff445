"""NARX: the past outputs and inputs that explain the next output.

A nonlinear autoregressive model with exogenous inputs predicts, at sample ``k``, the change
``dy[k] = y[k] - y[k-1]`` (or the value ``y[k]``) of one output from lagged signals,

    dy[k] = f(y[k-1], ..., y[k-n_y], u[k-1], ..., u[k-n_u]).

`Narx` contains the lags of every signal and turns records into regressors and targets.
`sysid.LagWindow` does the same live, one sample at a time, with bit for bit the same result. A
target without lags is a function of the inputs alone. If in addition all lags of the inputs are 0,
``y[k] = f(u[k])``, every row of a static table is a sample.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, check_whole, is_number
from sysid.errors import UserError, UserTypeError
from sysid.narx.record import Record, check_name, read_records, read_signals
from sysid.units import unit_of_difference

#: Lags of one signal: a number n for 1 to n, or a list.
Lags: TypeAlias = int | Sequence[int]
#: Lags by name of the signal, as given by a user or in the normal form of `Narx`.
SignalLags: TypeAlias = Mapping[str, Lags] | tuple[tuple[str, tuple[int, ...]], ...]

MAX_LAG = 100_000  # samples; every signal is kept in memory over its largest lag
MAX_SETTING_CHARACTERS = 200  # characters of a setting that are quoted in a message


class Target(Enum):
    """Quantity that is predicted: the change of the target output over one sample, or its value."""

    change = "change"
    value = "value"

    def of(self, value: Any, previous: Any) -> Any:
        """Return the target that belongs to the output y[k], given y[k-1]; numbers or arrays.

        >>> Target.change.of(21.5, 21.0), Target.value.of(21.5, 21.0)
        (0.5, 21.5)
        """
        return value - previous if self is Target.change else value

    def to_value(self, target: Any, previous: Any) -> Any:
        """Return the output y[k] of a (predicted) target, given y[k-1]; numbers or arrays.

        >>> Target.change.to_value(0.5, 21.0), Target.value.to_value(21.5, 21.0)
        (21.5, 21.5)
        """
        return target + previous if self is Target.change else target

    def unit_of(self, unit: str) -> str:
        """Return the unit of the target for a signal in this unit: a change of degC is in K.

        >>> Target.change.unit_of("degC"), Target.value.unit_of("degC"), Target.change.unit_of("m")
        ('K', 'degC', 'm')
        """
        return unit_of_difference(unit) if self is Target.change else unit

    def describe(self, name: str) -> str:
        """Return the name of the target of a signal, for labels.

        >>> Target.change.describe("zone temperature")
        'change of zone temperature over one sample'
        """
        return f"change of {name} over one sample" if self is Target.change else name


class OnMissing(Enum):
    """Treatment of values that are not finite.

    They are an error, or the rows that contain them are skipped and counted.
    """

    error = "error"
    skip = "skip"


class LagRows(NamedTuple):
    """Regressors and targets of one record."""

    regressor: Array  # (n_rows, n_features), C-contiguous
    target: Array  # (n_rows,)
    sample: NDArray[np.int64]  # (n_rows,) sample k of each row


@dataclass(frozen=True)
class Narx:
    """Lags of every signal, and the output that is predicted.

    Parameters
    ----------
    outputs
        Lags of each output: ``3`` for 1, 2, 3, or a list of positive lags such as ``[1, 2, 5]``.
        The target may have none, ``[]``, if its value is predicted (a change needs ``y[k-1]``) and
        there is another feature.
    inputs
        Lags of each input in the same form. Lag 0 is direct feed-through, ``[0, 1]``.
    target
        Name of the output that is predicted; by default the first output.
    predict
        `Target.change` for ``y[k] - y[k-1]`` or `Target.value` for ``y[k]`` (or their names).
    on_missing
        `OnMissing.error`: a value that is not finite anywhere in a signal is an error.
        `OnMissing.skip`: a row is skipped and counted if one of its values is not finite: a feature
        of its regressor, y[k], or y[k-1] of a target that has lags.
    linear
        Lags of the signals in the linear part of the model (`sysid.StableSpline`), beside those
        above, in the form of `inputs`. Its features come last. None by default.

    All lags are kept as tuples in increasing order, so that settings can be compared and hashed.

    Raises
    ------
    ValueError, TypeError
        If lags are empty, negative, duplicate or fractional, an output has lag 0, a name is both
        output and input, the target is unknown, or there is no feature.

    Examples
    --------
    >>> narx = Narx(outputs={"y": 2}, inputs={"u": [0, 3]})
    >>> narx.feature_names
    ('y[k-1]', 'y[k-2]', 'u[k]', 'u[k-3]')
    >>> narx.regressors({"y": [1.0, 2.0, 4.0, 8.0, 7.0], "u": [0.0, 1.0, 2.0, 3.0, 4.0]}).target
    array([ 4., -1.])

    A static task:

    >>> static = Narx(outputs={"y": []}, inputs={"x1": [0], "x2": [0]}, predict="value")
    >>> static.max_lag, static.feature_names
    (0, ('x1[k]', 'x2[k]'))
    """

    outputs: SignalLags
    inputs: SignalLags = field(default_factory=dict)
    target: str = ""
    predict: Target = Target.change
    on_missing: OnMissing = OnMissing.error
    linear: SignalLags = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Lags of an output start at 1, those of an input at 0; only an output may have none.
        outputs = _read_signal_lags("outputs", self.outputs, lowest=1, fewest=0)
        inputs = _read_signal_lags("inputs", self.inputs, lowest=0, fewest=1)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "inputs", inputs)
        linear = _read_signal_lags("linear", self.linear, lowest=0, fewest=1)
        object.__setattr__(self, "linear", linear)
        if not self.outputs:
            raise UserError("Narx(outputs={}) needs at least one output, e.g. outputs={'y': 2}")
        duplicates = sorted(set(self.output_names) & set(self.input_names))
        if duplicates:
            raise UserError(
                f"Narx has {duplicates} among outputs and inputs: a signal is one or the other"
            )
        object.__setattr__(self, "target", self.target or self.output_names[0])
        if self.target not in self.output_names:
            raise UserError(
                f"Narx(target={self.target!r}) must be one of its outputs {list(self.output_names)}"
            )
        self._check_linear()
        self._read_choice("predict", Target)
        self._read_choice("on_missing", OnMissing)
        self._check_features()

    def _read_choice(self, name: str, choices: type[Enum]) -> None:
        """Turn a setting that may be a name into the member of an enumeration."""
        given = getattr(self, name)
        try:
            object.__setattr__(self, name, choices(given))
        except ValueError:
            known = " or ".join(repr(choice.value) for choice in choices)
            raise UserError(f"Narx({name}={given!r}) must be {known}") from None

    def _check_linear(self) -> None:
        """Raise UserError if a lag of the linear part belongs to no signal or is impossible."""
        for name, lags in self.linear_lags.items():
            if name not in self.signals:
                raise UserError(
                    f"Narx(linear): {name!r} must be one of the signals {list(self.signals)}"
                )
            if name in self.output_names and 0 in lags:
                raise UserError(
                    f"Narx(linear={{{name!r}: {list(lags)}}}): lags of an output must be >= 1 (an "
                    "output cannot explain itself)"
                )

    def _check_features(self) -> None:
        """Raise UserError for an output without lags, unless it is a target that needs none.

        Only the target may have no lags, and only if its value is predicted and there is another
        feature.
        """
        for name, lags in self.lags.items():
            if lags:
                continue
            where = f"Narx(outputs={{{name!r}: []}})"
            if name != self.target:
                raise UserError(
                    f"{where}: it is not the target {self.target!r}, give it lags, or leave it out"
                )
            if self.predict is Target.change:
                raise UserError(
                    f"{where}: the change y[k] - y[k-1] needs lags >= 1, or choose predict='value'"
                )
            if not self.features:
                raise UserError(f"{where} has no features: give this output or an input lags")

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in the order of `LagWindow`'s output vector."""
        return tuple(dict(self.outputs))

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of `LagWindow`'s input vector."""
        return tuple(dict(self.inputs))

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of all signals, outputs first."""
        return self.output_names + self.input_names

    @cached_property
    def lags(self) -> dict[str, tuple[int, ...]]:
        """Lags of every signal, increasing, outputs first."""
        return dict(self.outputs) | dict(self.inputs)  # type: ignore[return-value]

    @cached_property
    def features(self) -> tuple[tuple[str, int], ...]:
        """Signal and lag of every feature, outputs first, lags increasing.

        Those of the linear part follow in the same order.
        """
        parts = (self.lags, self.linear_lags)
        return tuple((name, lag) for part in parts for name, lags in part.items() for lag in lags)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, such as ``y[k-1]``, and ``u[k]`` for lag 0."""
        names = [f"{name}[k-{lag}]" if lag else f"{name}[k]" for name, lag in self.features]
        first = len(names) - self.n_linear
        return (*names[:first], *(f"{name} (linear)" for name in names[first:]))

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.features)

    @cached_property
    def linear_lags(self) -> dict[str, tuple[int, ...]]:
        """Lags of every signal in the linear part, increasing; empty without one."""
        return dict(self.linear)  # type: ignore[arg-type]

    @property
    def n_linear(self) -> int:
        """Number of features of the linear part, which are the last ones."""
        return sum(map(len, self.linear_lags.values()))

    def with_linear(self, lags: SignalLags) -> Narx:
        """Return the same lags with these ones of the linear part."""
        return replace(self, linear=lags)

    def without_linear(self) -> Narx:
        """Return the same lags without those of the linear part."""
        return replace(self, linear={})

    def shifted(self, shifts: Mapping[str, int]) -> Narx:
        """Return the same lags, with those of these inputs larger by so many samples each.

        The lags of the inputs in the linear part move with them.

        >>> Narx({"y": 1}, {"u": 2}).shifted({"u": 7}).lags
        {'y': (1,), 'u': (8, 9)}
        """

        def moved(lags: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
            return {
                name: [lag + shifts.get(name, 0) for lag in of_signal]
                for name, of_signal in lags.items()
            }

        inputs = moved({name: self.lags[name] for name in self.input_names})
        return replace(self, inputs=inputs, linear=moved(self.linear_lags))

    def largest_lag(self, name: str) -> int:
        """Return the largest lag of a signal, also in the linear part; 0 if it has none."""
        return max((lag for signal, lag in self.features if signal == name), default=0)

    @property
    def max_lag(self) -> int:
        """Largest lag; the first row of a record belongs to this sample."""
        return max(lag for _, lag in self.features)

    @property
    def needs_previous(self) -> bool:
        """Whether a row needs y[k-1] of the target, which it does if the target has lags."""
        return bool(self.lags[self.target])

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as dicts, lists and strings, for JSON."""
        settings: dict[str, Any] = {
            "outputs": {name: list(self.lags[name]) for name in self.output_names},
            "inputs": {name: list(self.lags[name]) for name in self.input_names},
            "target": self.target,
            "predict": self.predict.value,
            "on_missing": self.on_missing.value,
        }
        if self.linear:
            settings["linear"] = {name: list(lags) for name, lags in self.linear_lags.items()}
        return settings

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Narx:
        """Build from the settings that `to_dict` returned."""
        return cls(**settings)

    def regressors(self, signals: Mapping[str, ArrayLike], *, record: int = 0) -> LagRows:
        """Return the regressors and targets of one record of plain arrays.

        Row i belongs to sample ``k = sample[i]``, k >= `max_lag`; its column j is the signal of
        feature j at sample ``k - lag``.

        Parameters
        ----------
        signals
            One array (n,) per signal, in any order. Signals that are not needed are ignored.
        record
            Number of the record, for messages.

        Raises
        ------
        ValueError, TypeError
            If a signal is missing, is not (n,) or contains no real numbers, lengths differ, there
            are fewer than ``max_lag + 1`` samples, or values are not finite (unless ``on_missing``
            is ``skip``).
        """
        read = Record(read_signals(signals, self.signals, record), number=record)
        self._check_record(read)
        return self.rows_of(read)

    def dataset(self, records: xr.Dataset | Sequence[xr.Dataset]) -> xr.Dataset:
        """Build the lag data set of records; no row reaches from one record into another.

        Parameters
        ----------
        records
            One data set per record: dimension and coordinate ``time`` [s] (or the number of the
            sample, units ``1``), with the same step everywhere (relative tolerance 1e-6), and one
            variable (time,) per signal.

        Returns
        -------
        xarray.Dataset
            Variables:

            - ``regressor(sample, feature)``
            - ``target(sample)``
            - ``previous(sample)``: the signal of the target one sample earlier, which turns a
              predicted change into a value; nan where a target without lags has none
            - ``added_variance(sample)``, only if records have estimates of missing outputs: the
              variance that estimated lags add to the error of the target, 0 where all are measured

            Coordinates: ``time(sample)`` and ``record(sample)`` of the target; the name
            (``feature``), ``signal``, ``lag`` and ``unit`` of every feature.

            Attributes: ``narx`` (JSON of `to_dict`), ``sampling_time`` [unit of time],
            ``n_records``, ``n_missing`` (number of samples with a value that is not finite in any
            signal) and ``n_skipped`` (number of rows that were left out because of them).

        Raises
        ------
        ValueError, TypeError
            As `regressors`; if time is missing, not uniform or differs in its step, units differ
            between records, or no row is left.
        """
        read = self.check(records)
        rows = [self.rows_of(record) for record in read]
        if not sum(len(row.target) for row in rows):
            raise UserError(
                "Narx(on_missing='skip') leaves no row: every window has a value that is not finite"
            )
        return _label_rows(self, read, rows)

    def count_rows(self, records: xr.Dataset | Sequence[xr.Dataset]) -> int:
        """Return how many rows `dataset` has; 0 if no record is longer than the largest lag."""
        read = read_records(records, self.signals)
        return sum(len(self.rows_of(record).sample) for record in read if self._has_rows(record))

    def _has_rows(self, record: Record) -> bool:
        return record.n_samples > self.max_lag

    def check(self, records: xr.Dataset | Sequence[xr.Dataset]) -> list[Record]:
        """Read and check records as `dataset` does, without building rows."""
        read = read_records(records, self.signals)
        for record in read:
            self._check_record(record)
        return read

    def rows_of(self, record: Record) -> LagRows:
        """Return the regressors and targets of a record without missing values.

        Estimates of the record take the place of missing lags, where they add little to the error
        of the target (`Estimate.is_informative`).
        """
        n = record.n_samples
        first = self.max_lag
        value = record.signals[self.target]
        filled = {name: record.filled(name) for name in self.signals}
        previous = one_earlier(filled[self.target])
        regressor = np.empty((n - first, self.n_features))
        for column, (name, lag) in enumerate(self.features):
            regressor[:, column] = filled[name][first - lag : n - lag]
        is_known = np.isfinite(regressor).all(axis=1) & np.isfinite(value[first:])
        if self.needs_previous:
            is_known &= np.isfinite(previous[first:])
        if record.estimates:
            is_used = self._has_measured_lags(record)
            if self.target in record.estimates:
                is_used |= record.estimates[self.target].is_informative
            is_known &= is_used[first:]
        k = np.flatnonzero(is_known) + first
        return LagRows(regressor[is_known], self.predict.of(value[k], previous[k]), k)

    def _has_measured_lags(self, record: Record) -> NDArray[np.bool_]:
        """Mark the samples (n,) whose lags, and y[k-1] if it is needed, are measured values."""
        lags = list(self.features)
        if self.needs_previous:
            lags.append((self.target, 1))
        is_measured = np.ones(record.n_samples, dtype=bool)
        for name, lag in lags:
            is_measured[:lag] = False
            is_finite = np.isfinite(record.signals[name])
            is_measured[lag:] &= is_finite[: record.n_samples - lag]
        return is_measured

    def added_variance(self, record: Record, samples: NDArray[np.int64]) -> Array:
        """Return the variance that estimated lags add to the errors of the targets of samples (n,).

        It is 0 where all lags are measured; unit of the output squared.
        """
        if self.target not in record.estimates:
            return np.zeros(len(samples))
        added = record.estimates[self.target].added_variance[samples]
        return np.where(self._has_measured_lags(record)[samples], 0.0, added)

    def _check_record(self, record: Record) -> None:
        """Raise UserError if a record is too short, or has missing values that are not skipped."""
        max_lag = self.max_lag
        if record.n_samples <= max_lag:
            name = next(name for name, lag in self.features if lag == max_lag)
            raise UserError(
                f"Narx(lags of {name!r} up to {max_lag}) needs at least {max_lag + 1} samples per "
                f"record, record {record.number} has {record.n_samples}: use longer records or "
                "smaller lags"
            )
        if self.on_missing is OnMissing.skip:
            return
        missing = record.first_missing()
        if missing:
            raise UserError(
                f"Narx(on_missing='error'): {missing}; clean the record, or leave such rows out "
                "with on_missing='skip'"
            )


def _read_signal_lags(
    option: str, signals: SignalLags | None, lowest: int, fewest: int
) -> SignalLags:
    """Return names and lags of signals, the lags as increasing tuples of at least `fewest`.

    None means no signals.
    """
    signals = {} if signals is None else signals
    if not isinstance(signals, Mapping | tuple):
        raise UserTypeError(f"Narx({option}={signals!r}) must map names to lags, e.g. {{'y': 3}}")
    read = []
    for name, lags in dict(signals).items():
        check_name(name)
        where = f"Narx({option}={{{name!r}: {lags!r}}})"
        read.append((name, _sort_lags(where, lags, lowest, fewest)))
    return tuple(read)


def _sort_lags(where: str, lags: Any, lowest: int, fewest: int) -> tuple[int, ...]:
    """Return the lags 1 to n for a number n, or the given list of lags, increasing."""
    is_list = isinstance(lags, Sequence)
    given = list(lags) if is_list else [lags]
    are_integers = all(is_number(lag, Integral) for lag in given)
    if isinstance(lags, str) or not are_integers:
        raise UserTypeError(f"{where}: expected an integer or a list of integers")
    largest = max(given, default=0)
    if largest > MAX_LAG:
        raise UserError(
            f"{where[:MAX_SETTING_CHARACTERS]}: the lag {largest} is beyond {MAX_LAG}; sample more "
            "slowly"
        )
    chosen = given if is_list else range(1, int(lags) + 1)
    sorted_lags = sorted(map(int, chosen))
    min_count = fewest if is_list else 1
    if len(sorted_lags) < min_count:
        raise UserError(
            f"{where}: no lags; give a number >= 1, or a list with at least one lag >= {lowest}"
        )
    if len(set(sorted_lags)) < len(sorted_lags):
        raise UserError(f"{where}: duplicate lags; name each lag once")
    if sorted_lags and sorted_lags[0] < lowest:
        is_zero = sorted_lags[0] == 0
        reason = "an output cannot explain itself" if is_zero else "the future is not known"
        raise UserError(f"{where}: lags must be >= {lowest} ({reason})")
    return tuple(sorted_lags)


def _label_rows(narx: Narx, records: Sequence[Record], rows: Sequence[LagRows]) -> xr.Dataset:
    """Return the rows of all records as one data set, with the variables of `Narx.dataset`."""
    first = records[0]
    attributes = first.attributes[narx.target]
    name = attributes.get("long_name", narx.target)
    target_attributes = attributes | {"long_name": narx.predict.describe(name)}
    if "units" in attributes:
        target_attributes["units"] = narx.predict.unit_of(attributes["units"])
    previous_attributes = attributes | {"long_name": f"{name} one sample earlier"}
    regressor = np.concatenate([row.regressor for row in rows])
    target = np.concatenate([row.target for row in rows])
    previous = []
    time = []
    number = []
    for record, row in zip(records, rows, strict=True):
        previous.append(one_earlier(record.filled(narx.target))[row.sample])
        time.append(record.time[row.sample])
        number.append(np.full(len(row.sample), record.number, dtype=np.int64))
    signals, lags = zip(*narx.features, strict=True)
    units = [first.attributes[signal].get("units", "") for signal in signals]
    n_possible_rows = sum(record.n_samples - narx.max_lag for record in records)
    regressor_attributes = {"long_name": "lagged signals, each in its unit"}
    time_attributes = {"units": first.time_unit, "long_name": "time of the target"}
    unit_attributes = {"long_name": "unit of the feature, empty if unknown"}
    dataset = xr.Dataset(
        {
            "regressor": (("sample", "feature"), regressor, regressor_attributes),
            "target": ("sample", target, target_attributes),
            "previous": ("sample", np.concatenate(previous), previous_attributes),
        },
        coords={
            "time": ("sample", np.concatenate(time), time_attributes),
            "record": ("sample", np.concatenate(number), {"long_name": "number of the record"}),
            "feature": ("feature", list(narx.feature_names), {"long_name": "signal and lag"}),
            "signal": ("feature", list(signals), {"long_name": "signal of the feature"}),
            "lag": ("feature", np.array(lags, dtype=np.int64), {"long_name": "lag in samples"}),
            "unit": ("feature", units, unit_attributes),
        },
        attrs={
            "narx": json.dumps(narx.to_dict()),
            "sampling_time": first.sampling_time,
            "n_records": len(records),
            "n_missing": sum(int(record.missing().sum()) for record in records),
            "n_skipped": n_possible_rows - len(target),
        },
    )
    if not any(record.estimates for record in records):
        return dataset
    added = [
        narx.added_variance(record, row.sample) for record, row in zip(records, rows, strict=True)
    ]
    noise_variances = [
        record.estimates[narx.target].noise_variance
        for record in records
        if narx.target in record.estimates
    ]
    attributes_of_variance = {
        "long_name": "variance that estimated lags add to the error of the target",
        "noise_variance": float(np.mean(noise_variances)) if noise_variances else 0.0,
    }
    return dataset.assign(added_variance=("sample", np.concatenate(added), attributes_of_variance))


def added_variance_of(rows: xr.Dataset) -> Array | float:
    """Return the variances (n,) that estimated lags add to the errors of rows; 0: none have any."""
    return rows["added_variance"].values if "added_variance" in rows else 0.0


def consecutive(rows: xr.Dataset) -> NDArray[np.bool_]:
    """Return which rows (n,) of a lag data set directly follow the row before them.

    Such a row belongs to the same record and to the next sample.
    """
    record = rows["record"].values
    time = rows["time"].values
    is_same_record = np.diff(record) == 0
    is_next_sample = np.diff(time) < 1.5 * rows.attrs["sampling_time"]
    follows = is_same_record & is_next_sample
    return np.concatenate([np.zeros(min(1, len(time)), dtype=bool), follows])


def own_lags_of(narx: Narx) -> list[int]:
    """Return the numbers of the features that are lags of the target, without the linear part."""
    names = [name for name, _ in narx.without_linear().features]
    return [column for column, name in enumerate(names) if name == narx.target]


def reach_of(narx: Narx) -> int:
    """Return the number of later rows that depend on a measured value of the target.

    It is the largest lag of the target, and at least 1 if the change is predicted, because the
    change depends on y[k-1].
    """
    largest_lag = narx.largest_lag(narx.target)
    if narx.predict is Target.change:
        return max(largest_lag, 1)
    return largest_lag


def one_earlier(signal: Array) -> Array:
    """Return the signal (n,), n >= 1, one sample earlier; nan at the first sample.

    >>> one_earlier(np.array([1.0, 2.0, 3.0]))
    array([nan,  1.,  2.])
    """
    return np.concatenate([[np.nan], signal[:-1]])


#: Number of lags, or delay, of all signals, or a list with one for each.
Order: TypeAlias = int | Sequence[int]
#: First lag of all inputs, or a list with one for each; "auto": their dead times.
FirstLag: TypeAlias = int | str | Sequence[int | str]
#: value of `Orders.nk` for an input whose lags begin with its dead time
AUTOMATIC_FIRST_LAG = "auto"
#: first lag of such an input as long as its dead time is not known [samples]
UNDELAYED_FIRST_LAG = 1


@dataclass(frozen=True)
class Orders:
    """Number of lags of the outputs and inputs, and the delay of the inputs.

    An output has the lags ``1, ..., na``, an input the lags ``nk, ..., nk + nb - 1``::

        y[k] = f(y[k-1], ..., y[k-na], u[k-nk], ..., u[k-nk-nb+1])

    A number applies to all signals, a list has one number for each output or input. A signal of
    order 0 has no lags. The lags of an input with ``nk="auto"`` begin with its dead time:
    `sysid.with_dead_times` finds it for records, `sysid.DeadTimeFollower` in a stream. Until then
    (`undelayed`) they begin with 1.

    The models of all outputs share the regressors. For orders that differ between the predicted
    outputs, as in MATLAB's matrices of orders, give each output its own `Narx`.

    Raises
    ------
    ValueError
        If an order is not a whole number of at least 0.

    Examples
    --------
    >>> Orders(na=2, nb=[2, 1], nk=[1, 0]).narx(["y"], ["u", "v"]).feature_names
    ('y[k-1]', 'y[k-2]', 'u[k-1]', 'u[k-2]', 'v[k]')
    """

    na: Order = 2  # number of lags of each output
    nb: Order = 2  # number of lags of each input
    #: first lag of each input, samples; 0: the input acts at once; "auto": its dead time
    nk: FirstLag = 1
    target: str = ""  # output to predict; empty: the first output
    predict: str = "change"  # change: y[k] - y[k-1]; value: y[k]
    on_missing: str = "error"  # values that are not finite are an error, or (skip) are skipped

    def __post_init__(self) -> None:
        for name in ("na", "nb", "nk"):
            value = getattr(self, name)
            is_list = isinstance(value, Sequence) and not isinstance(value, str)
            orders = tuple(value) if is_list else (value,)
            for order in orders:
                if name == "nk" and order == AUTOMATIC_FIRST_LAG:
                    continue
                if name == "nk" and isinstance(order, str):
                    raise UserError(
                        f"Orders: nk must be {AUTOMATIC_FIRST_LAG} or a whole number of at least "
                        f"0, or a list of them, got {order!r}"
                    )
                check_whole(order, 0, f"Orders: {name}, or every one of a list of them,")
                if order > MAX_LAG:
                    raise UserError(
                        f"Orders: {name} must be at most {MAX_LAG} lags, got {order}; "
                        f"lower {name}, or sample more slowly"
                    )
            if is_list:
                object.__setattr__(self, name, orders)

    @property
    def has_automatic_delays(self) -> bool:
        """Whether the lags of any input begin with its dead time."""
        first_lags = (self.nk,) if isinstance(self.nk, int | str) else self.nk
        return AUTOMATIC_FIRST_LAG in first_lags

    def delayed_inputs(self, inputs: Sequence[str]) -> list[str]:
        """Return the inputs whose lags begin with their dead times."""
        nk = _orders_of("nk", self.nk, inputs, "inputs")
        return [name for name, k in zip(inputs, nk, strict=True) if k == AUTOMATIC_FIRST_LAG]

    def undelayed(self, inputs: Sequence[str]) -> Orders:
        """Return the orders with which the search for the dead times of these inputs begins."""
        nk = _orders_of("nk", self.nk, inputs, "inputs")
        return replace(
            self, nk=[UNDELAYED_FIRST_LAG if k == AUTOMATIC_FIRST_LAG else k for k in nk]
        )

    def narx(self, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
        """Return the `Narx` of these outputs and inputs.

        Raises
        ------
        ValueError
            If a delay is "auto", the length of a list differs from the number of signals, or `Narx`
            raises it, for example because there are no lags at all.
        """
        target = self.target or outputs[0]
        output_lags = {
            name: lags for name, lags in self.output_lags(outputs).items() if lags or name == target
        }
        input_lags = {name: lags for name, lags in self.input_lags(inputs).items() if lags}
        return Narx(
            output_lags,
            input_lags,
            target,
            predict=self.predict,  # type: ignore[arg-type]
            on_missing=self.on_missing,  # type: ignore[arg-type]
        )

    def output_lags(self, outputs: Sequence[str]) -> dict[str, list[int]]:
        """Return the lags of every output, empty for order 0."""
        na = _orders_of("na", self.na, outputs, "outputs")
        return {name: list(range(1, n + 1)) for name, n in zip(outputs, na, strict=True)}

    def input_lags(self, inputs: Sequence[str]) -> dict[str, list[int]]:
        """Return the lags of every input, empty for order 0."""
        nb = _orders_of("nb", self.nb, inputs, "inputs")
        if self.has_automatic_delays:
            raise UserError(
                "Orders: nk=auto needs samples, in which dead times are looked for, as those of "
                "sysid-identify, sysid.with_dead_times or sysid.DeadTimeFollower; give numbers nk "
                "here"
            )
        nk = _orders_of("nk", self.nk, inputs, "inputs")
        return {name: list(range(k, k + n)) for name, n, k in zip(inputs, nb, nk, strict=True)}


def _orders_of(
    name: str, order: Order | FirstLag, signals: Sequence[str], kind: str
) -> tuple[Any, ...]:
    """Return one order for every signal."""
    is_list = isinstance(order, Sequence) and not isinstance(order, str)
    orders = tuple(order) if is_list else (order,) * len(signals)  # type: ignore[arg-type]
    if len(orders) != len(signals):
        raise UserError(
            f"Orders: expected one number {name} for all {kind}, or one for each of "
            f"{list(signals)}, got {list(orders)}"
        )
    return orders
