"""Predictions of an identified model over records: one step, several steps, or all of them ahead.

Horizon h: y[k] from outputs measured up to k - h and inputs up to k. Without a horizon the model runs freely: it sees
the first `window` outputs of a record and the inputs, and feeds its own predictions back to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sysid.dynamics import Dynamics, exogenous_rows
from sysid.free_run import FreeRun, check_window, free_run, past_outputs, without_lost
from sysid.joint import JointModel
from sysid.model import Model
from sysid.propagation import MeanOnly, Moments, Propagation
from sysid.record import TIME_TOLERANCE, Record, read_records

__all__ = ["Divergence", "Forecast", "FreeRun", "RecordForecast", "check_records", "forecast", "free_run"]

Array: TypeAlias = NDArray[np.float64]

BLOCK = 2**22  # numbers kept while starts are predicted side by side


class Divergence(NamedTuple):
    """Where a prediction left its bounds (`sysid.dynamics.Dynamics.bounds`)."""

    record: int
    sample: int
    time: float  # s, or samples
    output: str  # name
    value: float  # that it left with; output unit


@dataclass(frozen=True, eq=False)
class RecordForecast:
    """Predictions of one record; nan where they diverged."""

    record: int  # number
    sample: NDArray[np.int64]  # (n,) k
    time: Array  # (n,) s, or samples
    measured: Array  # (n, m) output units
    mean: Array  # (n, m) output units
    variance: Array  # (n, m) latent, output units squared
    regressors: Array  # (n, p) of the predictions, with predicted means for outputs not yet measured
    n_filled: int  # predictions whose regressor reaches before the record, whose first values it holds there
    n_lost: int  # predictions that are nan
    diverged: Divergence | None  # the first


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predictions of records."""

    horizon: int | None  # samples; None: free run
    window: int  # samples at the start of every record that are not predicted
    output_names: tuple[str, ...]
    noise_variance: Array  # (m,) to be added for the variance of a measurement; output units squared
    records: tuple[RecordForecast, ...]

    @property
    def diverged(self) -> tuple[Divergence, ...]:
        """First divergence of every record that has one."""
        return tuple(one.diverged for one in self.records if one.diverged is not None)

    @property
    def n_filled(self) -> int:
        """Predictions whose regressor reaches before its record."""
        return sum(one.n_filled for one in self.records)

    @property
    def n_lost(self) -> int:
        """Predictions that are nan because they diverged."""
        return sum(one.n_lost for one in self.records)


def forecast(
    model: Model | JointModel,
    records: xr.Dataset | Sequence[xr.Dataset],
    *,
    horizon: int | None,
    window: int,
    propagation: Propagation | None = None,
    seed: int = 0,
) -> Forecast:
    """Predict records; none runs into another.

    Parameters
    ----------
    model : Model or JointModel
    records : data set or sequence of data sets
        As for `Narx.dataset`.
    horizon : int or None
        Samples ahead, at least 1: every k >= max(window, horizon) is predicted. None: one free run per record, from
        sample `window` on.
    window : int
        Samples at the start of a record that initialise the model and are not predicted. Lags that reach before the
        record hold its first value there, which is counted.
    propagation : Propagation, optional
        What becomes of the uncertainty; `MeanOnly` if left out. For horizon 1 all give the same.
    seed : int, optional
        Of the draws.

    Raises
    ------
    ValueError, TypeError
        As `check_records`; a horizon or window that is too small, a record that is not longer than they are.
    """
    dynamics = Dynamics(model)
    check_window(dynamics, window)
    _check_horizon(horizon)
    read = check_records(dynamics.joint, records)
    first = window if horizon is None else max(window, horizon)
    for record in read:
        if record.n_samples <= first:
            raise ValueError(
                f"forecast: record {record.number} has {record.n_samples} samples, expected more than the {first} of "
                "its window and horizon; use longer records or a shorter window"
            )
    run = _Run(dynamics, MeanOnly() if propagation is None else propagation, horizon, window, seed)
    found = tuple(run.forecast(record) for record in read)
    return Forecast(horizon, window, dynamics.joint.output_names, dynamics.noise_variance, found)


def check_records(model: Model | JointModel, records: xr.Dataset | Sequence[xr.Dataset]) -> list[Record]:
    """Records that fit a model, read.

    Raises
    ------
    ValueError, TypeError
        As `sysid.record.read_records` (missing signals, time that is not uniform, ...); values that are not finite;
        another sampling time or other units than those that the model was identified from, as far as both are known.
    """
    joint = JointModel.of(model)
    read = read_records(records, joint.output_names + joint.input_names)
    for record in read:
        if found := record.first_missing():
            raise ValueError(f"forecast: {found}; a model can only be fed with numbers: clean the record or cut it")
        _check_units(joint, record)
        _check_sampling_time(joint, record)
    return read


def _check_units(joint: JointModel, record: Record) -> None:
    for name, attributes in record.attributes.items():
        expected, got = joint.origin.unit(name), attributes.get("units", "")
        if expected and got and expected != got:
            raise ValueError(
                f"forecast: signal {name!r} of record {record.number} is in {got!r}, the model was identified from "
                f"{expected!r}: convert the record"
            )


def _check_sampling_time(joint: JointModel, record: Record) -> None:
    expected, got = joint.origin.sampling_time, record.sampling_time
    if expected is not None and abs(got - expected) > TIME_TOLERANCE * expected:
        raise ValueError(
            f"forecast: record {record.number} is sampled every {got:g} s, the model was identified from samples "
            f"every {expected:g} s: resample the record, or identify a model from records like it"
        )


def _check_horizon(horizon: int | None) -> None:
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, int | np.integer) or horizon < 1):
        raise ValueError(f"forecast: horizon must be an integer of at least 1, or None for a free run, got {horizon!r}")


@dataclass(frozen=True, eq=False)
class _Run:
    """Settings of a forecast, and how one record is predicted with them."""

    dynamics: Dynamics
    propagation: Propagation
    horizon: int | None
    window: int
    seed: int

    def forecast(self, record: Record) -> RecordForecast:
        narx = self.dynamics.narx
        y = np.stack([record.signals[name] for name in narx.output_names], axis=1)
        u = np.array([record.signals[name] for name in narx.input_names]).reshape(-1, len(y)).T
        rows = exogenous_rows(narx, u, np.arange(len(y)))
        if self.horizon is None:
            first, (mean, variance, regressors) = self.window, self._freely(y, rows, record.number)
        else:
            first = max(self.window, self.horizon)
            mean, variance, regressors = self._ahead(y, rows, first, self.horizon, record.number)
        sample = np.arange(first, len(y))
        diverged = _first_divergence(record, sample, mean, variance, narx.output_names)
        mean, variance = without_lost(mean, variance)
        return RecordForecast(
            record=record.number,
            sample=sample,
            time=record.time[sample],
            measured=y[sample],
            mean=mean,
            variance=variance,
            regressors=regressors,
            n_filled=int((sample < narx.max_lag).sum()),
            n_lost=int(np.isnan(mean).any(axis=1).sum()),
            diverged=diverged,
        )

    def _freely(self, y: Array, rows: Array, number: int) -> tuple[Array, Array, Array]:
        """Mean, variance and regressors of one free run after the window."""
        dynamics = self.dynamics
        past, exogenous = past_outputs(y, self.window - 1, dynamics), rows[None, self.window :]
        moments = self.propagation.propagate(dynamics, past, exogenous, np.random.default_rng([self.seed, number]))
        path = np.concatenate([past, moments.mean], axis=1)[0]
        last = np.lib.stride_tricks.sliding_window_view(path[:-1], dynamics.n_lags, axis=0).transpose(0, 2, 1)
        return moments.mean[0], moments.variance[0], dynamics.regressors(last, exogenous[0])

    def _ahead(self, y: Array, rows: Array, first: int, horizon: int, number: int) -> tuple[Array, Array, Array]:
        """Mean, variance and regressors of all samples from the first on, predicted a horizon ahead."""
        dynamics, samples = self.dynamics, np.arange(first, len(y))
        size = self.propagation.size(dynamics, horizon) + (horizon + 2) * dynamics.n_features
        length = max(1, BLOCK // size)
        found = []
        for block in range(0, len(samples), length):
            k = samples[block : block + length]
            past = past_outputs(y, k - horizon, dynamics)
            exogenous = rows[k[:, None] - horizon + 1 + np.arange(horizon)]
            generator = np.random.default_rng([self.seed, number, block])
            moments = self.propagation.propagate(dynamics, past, exogenous, generator)
            last = np.concatenate([past, moments.mean[:, :-1]], axis=1)[:, -dynamics.n_lags :]
            final = (_last_or_left(moments), moments.variance[:, -1], dynamics.regressors(last, exogenous[:, -1]))
            found.append(final)
        mean, variance, regressors = (np.concatenate(part) for part in zip(*found, strict=True))
        return mean, variance, regressors


def _last_or_left(moments: Moments) -> Array:
    """Mean (b, m) of the last step, or the value that a start left its bounds with on the way."""
    lost = np.any(np.isnan(moments.variance), axis=2)
    step = np.where(lost.any(axis=1), lost.argmax(axis=1), lost.shape[1] - 1)
    return np.asarray(moments.mean[np.arange(len(step)), step])


def _first_divergence(
    record: Record, sample: NDArray[np.int64], mean: Array, variance: Array, names: Sequence[str]
) -> Divergence | None:
    lost = np.flatnonzero(np.any(np.isnan(variance), axis=1))
    if not len(lost):
        return None
    row = lost[0]
    distance = np.abs(mean[row] - np.mean([record.signals[name] for name in names], axis=1))
    worst = int(np.argmax(np.where(np.isnan(distance), np.inf, distance)))
    k = int(sample[row])
    return Divergence(record.number, k, float(record.time[k]), names[worst], float(mean[row, worst]))
