"""NARX: which past outputs and inputs explain the next output.

A nonlinear autoregressive model with exogenous inputs predicts, at sample ``k``, the change
``dy[k] = y[k] - y[k-1]`` (or the value ``y[k]``) of one output from lagged signals,

    dy[k] = f(y[k-1], ..., y[k-n_y], u[k-1], ..., u[k-n_u]).

`Narx` names the lags of every signal and turns records into regressors and targets; its live
twin, one sample at a time, is `sysid.lag_window.LagWindow`. Both give the same bits. A target without lags
is a function of the inputs alone; with lag 0 only, ``y[k] = f(u[k])``, every row of a static table is a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.lag_data import labelled, one_earlier
from sysid.lag_list import SignalLags, check_without_lags, normalised
from sysid.record import Record, read_records, read_signals

Array: TypeAlias = NDArray[np.float64]


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
        """Unit of the target of a signal in this unit: a change of a temperature in degC is in K.

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
    """What happens at values that are not finite: an error, or rows that are left out and counted."""

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
        Lags of each output: ``3`` for 1, 2, 3, or any positive lags, ``[1, 2, 5]``. The target may have none,
        ``[]``, if its value is predicted (a change needs ``y[k-1]``) and there is another feature.
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
        Empty, negative, duplicate or fractional lags, lag 0 of an output, a name that is both output
        and input, an unknown target, no feature.

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
            lags = normalised(name, getattr(self, name), lowest, fewest)
            object.__setattr__(self, name, tuple(lags.items()))
        if not self.outputs:
            raise ValueError("Narx(outputs={}) needs at least one output, e.g. outputs={'y': 2}")
        if both := sorted(set(self.output_names) & set(self.input_names)):
            raise ValueError(f"Narx has {both} among outputs and inputs: a signal is one or the other")
        object.__setattr__(self, "target", self.target or self.output_names[0])
        if self.target not in self.output_names:
            raise ValueError(f"Narx(target={self.target!r}) must be one of its outputs {list(self.output_names)}")
        object.__setattr__(self, "predict", _choice("predict", Target, self.predict))
        object.__setattr__(self, "on_missing", _choice("on_missing", OnMissing, self.on_missing))
        check_without_lags(self.lags, self.target, is_change=self.predict is Target.change)

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

    @property
    def lags(self) -> dict[str, tuple[int, ...]]:
        """Lags of every signal, increasing, outputs first."""
        return normalised("outputs", self.outputs, 1, 0) | normalised("inputs", self.inputs, 0, 1)

    @property
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
        """Settings as plain dicts, lists and texts, for JSON."""
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

        Row i belongs to sample ``k = sample[i]``, k >= `max_lag`; its column j is the signal of feature j
        at sample ``k - lag``.

        Parameters
        ----------
        signals
            One array (n,) per signal, in any order; more signals than needed do no harm.
        record
            Number of the record, for messages.

        Raises
        ------
        ValueError, TypeError
            A missing signal, unequal lengths, fewer than ``max_lag + 1`` samples, shapes other than (n,),
            no real numbers, values that are not finite (unless ``on_missing`` is ``skip``).
        """
        return self._rows(Record(read_signals(signals, self.signals, record), number=record))

    def dataset(self, records: xr.Dataset | Sequence[xr.Dataset]) -> xr.Dataset:
        """Lag data set of one record or of several; no row reaches from one record into another.

        Parameters
        ----------
        records
            One data set per record: dimension and coordinate ``time`` [s] (or the number of the sample, units
            ``1``), with the same step everywhere (relative tolerance 1e-6), and one variable (time,) per signal.

        Returns
        -------
        xarray.Dataset
            ``regressor(sample, feature)``, ``target(sample)`` and ``previous(sample)``, the target's signal
            one sample earlier (so that a predicted change becomes a value; where a target without lags has
            none, nan), with coordinates ``time(sample)`` and ``record(sample)`` of the target and name,
            ``signal``, ``lag`` and ``unit`` of every feature. Attributes: ``narx`` (JSON of `to_dict`),
            ``sampling_time`` [unit of time], ``n_records``; ``n_missing``, samples with a value that is not
            finite in any signal; ``n_skipped``, rows left out because of them.

        Raises
        ------
        ValueError, TypeError
            As `regressors`; time missing, not uniform or of different steps; units that differ between
            records; no row left.
        """
        read = read_records(records, self.signals)
        rows = [self._rows(record) for record in read]
        if not sum(len(row.target) for row in rows):
            raise ValueError("Narx(on_missing='skip') leaves no row: every window has a value that is not finite")
        return labelled(self, read, rows)

    def _rows(self, record: Record) -> LagRows:
        self._check_record(record)
        n, first, value = record.n_samples, self.max_lag, record.signals[self.target]
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
            raise ValueError(
                f"Narx(lags of {name!r} up to {self.max_lag}) needs at least {self.max_lag + 1} samples per "
                f"record, record {record.number} has {record.n_samples}: use longer records or smaller lags"
            )
        if self.on_missing is OnMissing.error and (found := record.first_missing()):
            raise ValueError(
                f"Narx(on_missing='error'): {found}; clean the record, or leave such rows out with on_missing='skip'"
            )


Choice = TypeVar("Choice", bound=Enum)


def _choice(option: str, choices: type[Choice], value: Any) -> Choice:
    try:
        return choices(value)
    except ValueError:
        names = " or ".join(repr(choice.value) for choice in choices)
        raise ValueError(f"Narx({option}={value!r}) must be {names}") from None
