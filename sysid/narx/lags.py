"""NARX: which past outputs and inputs explain the next output.

A nonlinear autoregressive model with exogenous inputs predicts, at sample ``k``, the change
``dy[k] = y[k] - y[k-1]`` (or the value ``y[k]``) of one output from lagged signals,

    dy[k] = f(y[k-1], ..., y[k-n_y], u[k-1], ..., u[k-n_u]).

`Narx` names the lags of every signal and turns records into regressors and targets; its live
twin, one sample at a time, is `sysid.LagWindow`. Both give the same bits. A target without lags
is a function of the inputs alone; with lag 0 only, ``y[k] = f(u[k])``, every row of a static table
is a sample.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, check_whole
from sysid.errors import UserError, UserTypeError
from sysid.narx.record import Record, check_name, read_records, read_signals

Lags: TypeAlias = int | Sequence[int]
MOST_LAG = 100_000  # samples: a window of so many is held for every signal
SHOWN = 200  # characters of settings in an error
SignalLags: TypeAlias = Mapping[str, Lags] | tuple[tuple[str, tuple[int, ...]], ...]


class Target(Enum):
    """What is predicted: the change of the target output over one sample, or its value."""

    change = "change"
    value = "value"

    def of(self, value: Any, previous: Any) -> Any:
        """Target of the output y[k], given y[k-1]; numbers or arrays.

        >>> Target.change.of(21.5, 21.0), Target.value.of(21.5, 21.0)
        (0.5, 21.5)
        """
        return value - previous if self is Target.change else value

    def to_value(self, target: Any, previous: Any) -> Any:
        """Output y[k] of a (predicted) target, given y[k-1]; numbers or arrays.

        >>> Target.change.to_value(0.5, 21.0), Target.value.to_value(21.5, 21.0)
        (21.5, 21.5)
        """
        return target + previous if self is Target.change else target

    def unit_of(self, unit: str) -> str:
        """Return the target's unit for a signal in this unit: a change of degC is in K.

        >>> Target.change.unit_of("degC"), Target.value.unit_of("degC"), Target.change.unit_of("m")
        ('K', 'degC', 'm')
        """
        return "K" if self is Target.change and unit == "degC" else unit

    def describe(self, name: str) -> str:
        """Name of the target of a signal, for labels.

        >>> Target.change.describe("zone temperature")
        'change of zone temperature over one sample'
        """
        return f"change of {name} over one sample" if self is Target.change else name


class OnMissing(Enum):
    """What happens at values that are not finite: an error, or rows that are left out and
    counted.
    """

    error = "error"
    skip = "skip"


class LagRows(NamedTuple):
    """Regressors and targets of one record."""

    regressor: Array  # (n_rows, n_features), C-contiguous
    target: Array  # (n_rows,)
    sample: NDArray[np.int64]  # (n_rows,), the sample k of each row


@dataclass(frozen=True)
class Narx:
    """Lags of every signal, and which output is predicted.

    Parameters
    ----------
    outputs
        Lags of each output: ``3`` for 1, 2, 3, or any positive lags, ``[1, 2, 5]``. The target may
        have none, ``[]``, if its value is predicted (a change needs ``y[k-1]``) and there is
        another feature.
    inputs
        Lags of each input: the same, and lag 0 for direct feed-through, ``[0, 1]``.
    target
        Name of the output that is predicted; the first output if left out.
    predict
        `Target.change` for ``y[k] - y[k-1]`` or `Target.value` for ``y[k]`` (or their names).
    on_missing
        `OnMissing.error`: a value that is not finite anywhere in a signal is an error.
        `OnMissing.skip`: a row is left out, and counted, if one of the values it is made of is not
        finite: its regressor, y[k] or, unless it has no lags, y[k-1] of the target.

    All lags are kept as tuples in increasing order, so that settings can be compared and hashed.

    Raises
    ------
    ValueError, TypeError
        Empty, negative, duplicate or fractional lags, lag 0 of an output, a name that is both
        output and input, an unknown target, no feature.

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

    def __post_init__(self) -> None:
        for name, lowest, fewest in (("outputs", 1, 0), ("inputs", 0, 1)):
            object.__setattr__(self, name, _read_lags(name, getattr(self, name), lowest, fewest))
        if not self.outputs:
            raise UserError("Narx(outputs={}) needs at least one output, e.g. outputs={'y': 2}")
        if both := sorted(set(self.output_names) & set(self.input_names)):
            raise UserError(
                f"Narx has {both} among outputs and inputs: a signal is one or the other"
            )
        object.__setattr__(self, "target", self.target or self.output_names[0])
        if self.target not in self.output_names:
            raise UserError(
                f"Narx(target={self.target!r}) must be one of its outputs {list(self.output_names)}"
            )
        for name, choices in (("predict", Target), ("on_missing", OnMissing)):
            try:
                object.__setattr__(self, name, choices(getattr(self, name)))
            except ValueError:
                known = " or ".join(repr(choice.value) for choice in choices)
                raise UserError(f"Narx({name}={getattr(self, name)!r}) must be {known}") from None
        self._check_features()

    def _check_features(self) -> None:
        """Only the target may have no lags, and only if its value is predicted and there is another
        feature.
        """
        for name in (name for name, given in self.lags.items() if not given):
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
        return dict(self.outputs) | dict(self.inputs)  # type: ignore[return-value]  # normal form

    @cached_property
    def features(self) -> tuple[tuple[str, int], ...]:
        """Signal and lag of every feature, outputs first, lags increasing."""
        return tuple((name, lag) for name, lags in self.lags.items() for lag in lags)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, such as ``y[k-1]``, and ``u[k]`` for lag 0."""
        return tuple(f"{name}[k-{lag}]" if lag else f"{name}[k]" for name, lag in self.features)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def max_lag(self) -> int:
        """Largest lag; the first row of a record belongs to this sample."""
        return max(lag for _, lag in self.features)

    @property
    def needs_previous(self) -> bool:
        """Whether a row needs y[k-1] of the target: not if the target has no lags."""
        return bool(self.lags[self.target])

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain dicts, lists and texts, for JSON."""
        return {
            "outputs": {name: list(self.lags[name]) for name in self.output_names},
            "inputs": {name: list(self.lags[name]) for name in self.input_names},
            "target": self.target,
            "predict": self.predict.value,
            "on_missing": self.on_missing.value,
        }

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Narx:
        """Inverse of `to_dict`."""
        return cls(**settings)

    def regressors(self, signals: Mapping[str, ArrayLike], *, record: int = 0) -> LagRows:
        """Regressors and targets of one record of plain arrays.

        Row i belongs to sample ``k = sample[i]``, k >= `max_lag`; its column j is the signal of
        feature j at sample ``k - lag``.

        Parameters
        ----------
        signals
            One array (n,) per signal, in any order; more signals than needed do no harm.
        record
            Number of the record, for messages.

        Raises
        ------
        ValueError, TypeError
            A missing signal, unequal lengths, fewer than ``max_lag + 1`` samples, shapes other than
            (n,), no real numbers, values that are not finite (unless ``on_missing`` is ``skip``).
        """
        read = Record(read_signals(signals, self.signals, record), number=record)
        self._check_record(read)
        return self._rows(read)

    def dataset(self, records: xr.Dataset | Sequence[xr.Dataset]) -> xr.Dataset:
        """Lag data set of one record or of several; no row reaches from one record into another.

        Parameters
        ----------
        records
            One data set per record: dimension and coordinate ``time`` [s] (or the number of the
            sample, units ``1``), with the same step everywhere (relative tolerance 1e-6), and one
            variable (time,) per signal.

        Returns
        -------
        xarray.Dataset
            ``regressor(sample, feature)``, ``target(sample)`` and ``previous(sample)``, the
            target's signal one sample earlier (so that a predicted change becomes a value; where a
            target without lags has none, nan), with coordinates ``time(sample)`` and
            ``record(sample)`` of the target and name, ``signal``, ``lag`` and ``unit`` of every
            feature. Attributes: ``narx`` (JSON of `to_dict`), ``sampling_time`` [unit of time],
            ``n_records``; ``n_missing``, samples with a value that is not finite in any signal;
            ``n_skipped``, rows left out because of them.

        Raises
        ------
        ValueError, TypeError
            As `regressors`; time missing, not uniform or of different steps; units that differ
            between records; no row left.
        """
        read = self.check(records)
        rows = [self._rows(record) for record in read]
        if not sum(len(row.target) for row in rows):
            raise UserError(
                "Narx(on_missing='skip') leaves no row: every window has a value that is not finite"
            )
        return _label_rows(self, read, rows)

    def check(self, records: xr.Dataset | Sequence[xr.Dataset]) -> list[Record]:
        """Read the records of a `dataset`, with all the checks and errors of it, but make no
        rows.
        """
        read = read_records(records, self.signals)
        for record in read:
            self._check_record(record)
        return read

    def _rows(self, record: Record) -> LagRows:
        n = record.n_samples
        first = self.max_lag
        value = record.signals[self.target]
        previous = one_earlier(value)
        regressor = np.empty((n - first, self.n_features))
        for column, (name, lag) in enumerate(self.features):
            regressor[:, column] = record.signals[name][first - lag : n - lag]
        keep = np.isfinite(regressor).all(axis=1) & np.isfinite(value[first:])
        if self.needs_previous:
            keep &= np.isfinite(previous[first:])
        k = np.flatnonzero(keep) + first
        return LagRows(regressor[keep], self.predict.of(value[k], previous[k]), k)

    def _check_record(self, record: Record) -> None:
        if record.n_samples <= self.max_lag:
            name = next(name for name, lags in self.lags.items() if self.max_lag in lags)
            raise UserError(
                f"Narx(lags of {name!r} up to {self.max_lag}) needs at least {self.max_lag + 1} samples per "
                f"record, record {record.number} has {record.n_samples}: use longer records or smaller lags"
            )
        if self.on_missing is OnMissing.error and (found := record.first_missing()):
            raise UserError(
                f"Narx(on_missing='error'): {found}; clean the record, or leave such rows out with on_missing='skip'"
            )


def _read_lags(option: str, signals: SignalLags | None, lowest: int, fewest: int) -> SignalLags:
    """Names and lags of signals; lags as increasing tuples of at least `fewest`. None stands for no
    signals.
    """
    signals = {} if signals is None else signals
    if not isinstance(signals, Mapping | tuple):
        raise UserTypeError(f"Narx({option}={signals!r}) must map names to lags, e.g. {{'y': 3}}")
    found = []
    for name, lags in dict(signals).items():
        check_name(name)
        found.append(
            (
                name,
                _sort_lags(f"Narx({option}={{{name!r}: {lags!r}}})", lags, lowest, fewest),
            )
        )
    return tuple(found)


def _sort_lags(where: str, lags: Any, lowest: int, fewest: int) -> tuple[int, ...]:
    """Lags 1 to n of a number n, or the given ones, increasing."""
    given = list(lags) if isinstance(lags, Sequence) else [lags]
    if isinstance(lags, str) or any(
        isinstance(lag, bool) or not isinstance(lag, Integral) for lag in given
    ):
        raise UserTypeError(f"{where}: expected an integer or a list of integers")
    if (largest := max(given, default=0)) > MOST_LAG:
        raise UserError(
            f"{where[:SHOWN]}: the lag {largest} is beyond {MOST_LAG}; sample more slowly"
        )
    given = sorted(map(int, given if isinstance(lags, Sequence) else range(1, int(lags) + 1)))
    if len(given) < (fewest if isinstance(lags, Sequence) else 1):
        raise UserError(
            f"{where}: no lags; give a number >= 1, or a list with at least one lag >= {lowest}"
        )
    if len(set(given)) < len(given):
        raise UserError(f"{where}: duplicate lags; name each lag once")
    if given and given[0] < lowest:
        reason = "an output cannot explain itself" if given[0] == 0 else "the future is not known"
        raise UserError(f"{where}: lags must be >= {lowest} ({reason})")
    return tuple(given)


def _label_rows(narx: Narx, records: Sequence[Record], rows: Sequence[LagRows]) -> xr.Dataset:
    """Rows of all records as one data set; its variables and attributes are those of
    `Narx.dataset`.
    """

    def join(part: Callable[[Record, LagRows], np.ndarray]) -> np.ndarray:
        return np.concatenate(
            [part(record, row) for record, row in zip(records, rows, strict=True)]
        )

    first = records[0]
    attributes = first.attributes[narx.target]
    name = attributes.get("long_name", narx.target)
    own = {"long_name": narx.predict.describe(name)}
    if "units" in attributes:
        own["units"] = narx.predict.unit_of(attributes["units"])
    regressor = join(lambda record, row: row.regressor)
    target = join(lambda record, row: row.target)
    previous = join(lambda record, row: one_earlier(record.signals[narx.target])[row.sample])
    time = join(lambda record, row: record.time[row.sample])
    number = join(lambda record, row: np.full(len(row.sample), record.number, dtype=np.int64))
    signals, lags = zip(*narx.features, strict=True)
    units = [first.attributes[signal].get("units", "") for signal in signals]
    return xr.Dataset(
        {
            "regressor": (
                ("sample", "feature"),
                regressor,
                {"long_name": "lagged signals, each in its unit"},
            ),
            "target": ("sample", target, attributes | own),
            "previous": (
                "sample",
                previous,
                attributes | {"long_name": f"{name} one sample earlier"},
            ),
        },
        coords={
            "time": (
                "sample",
                time,
                {"units": first.time_unit, "long_name": "time of the target"},
            ),
            "record": ("sample", number, {"long_name": "number of the record"}),
            "feature": (
                "feature",
                list(narx.feature_names),
                {"long_name": "signal and lag"},
            ),
            "signal": (
                "feature",
                list(signals),
                {"long_name": "signal of the feature"},
            ),
            "lag": (
                "feature",
                np.array(lags, dtype=np.int64),
                {"long_name": "lag in samples"},
            ),
            "unit": (
                "feature",
                units,
                {"long_name": "unit of the feature, empty if unknown"},
            ),
        },
        attrs={
            "narx": json.dumps(narx.to_dict()),
            "sampling_time": first.sampling_time,
            "n_records": len(records),
            "n_missing": sum(int(record.missing().sum()) for record in records),
            "n_skipped": sum(record.n_samples - narx.max_lag for record in records) - len(target),
        },
    )


def consecutive(rows: xr.Dataset) -> NDArray[np.bool_]:
    """Whether each row (n,) of a lag data set comes right after the one before it, in the same
    record.
    """
    record = rows["record"].values
    time = rows["time"].values
    follows = (np.diff(record) == 0) & (np.diff(time) < 1.5 * rows.attrs["sampling_time"])
    return np.concatenate([np.zeros(min(1, len(time)), dtype=bool), follows])


def reach_of(narx: Narx) -> int:
    """Return the number of rows after its own that a measured target is part of."""
    return max([*narx.lags[narx.target], int(narx.predict is Target.change)])


def one_earlier(signal: Array) -> Array:
    """Signal (n,), n >= 1, one sample earlier; nan at the first sample, which has none before it.

    >>> one_earlier(np.array([1.0, 2.0, 3.0]))
    array([nan,  1.,  2.])
    """
    return np.concatenate([[np.nan], signal[:-1]])


Order: TypeAlias = int | Sequence[int]


@dataclass(frozen=True)
class Orders:
    """Number of lags of the outputs and inputs, and the delay of the inputs.

    An output has the lags ``1, ..., na``, an input the lags ``nk, ..., nk + nb - 1``:
    ``y[k] = f(y[k-1], ..., y[k-na], u[k-nk], ..., u[k-nk-nb+1])``. A number serves all signals; a
    list has one for each output or input. A signal of order 0 has no lags. All models of several
    outputs share the regressors; where MATLAB's matrices tell one output from the other, each has a
    `Narx` of its own.

    Raises
    ------
    ValueError
        Orders that are not whole numbers of at least 0.

    Examples
    --------
    >>> Orders(na=2, nb=[2, 1], nk=[1, 0]).narx(["y"], ["u", "v"]).feature_names
    ('y[k-1]', 'y[k-2]', 'u[k-1]', 'u[k-2]', 'v[k]')
    """

    na: Order = 2  # lags of each output
    nb: Order = 2  # lags of each input
    nk: Order = 1  # first lag of each input, samples; 0: the input acts at once
    target: str = ""  # output to predict; empty: the first
    predict: str = "change"  # change y[k] - y[k-1], or value y[k]
    on_missing: str = "error"  # error, or skip

    def __post_init__(self) -> None:
        for name in ("na", "nb", "nk"):
            value = getattr(self, name)
            is_list = isinstance(value, Sequence) and not isinstance(value, str)
            for order in value if is_list else [value]:
                check_whole(order, 0, f"Orders: {name}, or every one of a list of them,")
            object.__setattr__(self, name, tuple(value) if is_list else value)

    def narx(self, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
        """Lags of these outputs and inputs.

        Raises
        ------
        ValueError
            A list of another length, or what `Narx` refuses: no lags at all, for example.
        """
        target = self.target or outputs[0]
        past = {
            name: lags for name, lags in self.output_lags(outputs).items() if lags or name == target
        }
        return Narx(
            past,
            {name: lags for name, lags in self.input_lags(inputs).items() if lags},
            target,
            predict=self.predict,  # type: ignore[arg-type]
            on_missing=self.on_missing,  # type: ignore[arg-type]
        )

    def output_lags(self, outputs: Sequence[str]) -> dict[str, list[int]]:
        """Lags of every output, empty for order 0."""
        na = _of_each("na", self.na, outputs, "outputs")
        return {name: list(range(1, n + 1)) for name, n in zip(outputs, na, strict=True)}

    def input_lags(self, inputs: Sequence[str]) -> dict[str, list[int]]:
        """Lags of every input, empty for order 0."""
        nb, nk = (_of_each(name, getattr(self, name), inputs, "inputs") for name in ("nb", "nk"))
        return {name: list(range(k, k + n)) for name, n, k in zip(inputs, nb, nk, strict=True)}


def _of_each(name: str, order: Order, signals: Sequence[str], kind: str) -> tuple[int, ...]:
    """Return the order of every signal."""
    found = tuple(order) if isinstance(order, Sequence) else (int(order),) * len(signals)
    if len(found) != len(signals):
        raise UserError(
            f"Orders: expected one number {name} for all {kind}, or one for each of {list(signals)}, got {list(found)}"
        )
    return found
