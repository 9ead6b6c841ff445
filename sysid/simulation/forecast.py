"""Predictions of an identified model over records: one step, several steps, or all of them ahead.

Horizon h: y[k] from outputs measured up to k - h and inputs up to k. Without a horizon the model
runs freely: it sees the first `window` outputs of a record and the inputs, and feeds its own
predictions back to the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import Array, Indices, check_whole, matrix
from sysid.errors import UserError
from sysid.model.model import JointModel, Model
from sysid.narx.record import TIME_TOLERANCE, Record, read_records
from sysid.simulation.dynamics import Dynamics, exogenous_rows
from sysid.simulation.propagation.propagation import MeanOnly, Propagation

BLOCK = 2**22  # numbers kept while starts are predicted side by side
FEWEST = 40  # trajectories of a free run, of a very long record
MANY = 4  # times the steps of a horizon may a free run take: its few trajectories err together
BLOCKS = 20  # of starts with draws of their own, at least; then half as many draws serve


class SimulatedOutput(NamedTuple):
    """Output of a free run after the first w samples."""

    mean: Array  # (n - w, m) output units; nan from where it left its bounds
    variance: Array  # (n - w, m) latent, output units squared
    left: int | None  # row whose value left the bounds
    value: Array  # (m,) outputs that it left with; nan if it did not
    n_held: int  # samples at a limit that the data of the model never reached: no predictions


def free_run(
    model: Model | JointModel,
    inputs: ArrayLike,
    initial_outputs: ArrayLike,
    *,
    propagation: Propagation | None = None,
    seed: int = 0,
) -> SimulatedOutput:
    """Simulate a model from its first outputs on plain arrays.

    Parameters
    ----------
    inputs : (n, n_u)
        Inputs of all samples, in the order of ``narx.input_names``; (n, 0) if there are none.
    initial_outputs : (w, m)
        Outputs of the first w < n samples; lags before the first hold it.
    propagation, seed
        As for `forecast`.

    Raises
    ------
    ValueError, TypeError
        Wrong shapes, values that are not finite, no initial outputs for a model with lagged
        outputs, nothing to simulate.
    """
    dynamics = Dynamics(model)
    u = matrix(inputs, len(dynamics.narx.input_names), "inputs")
    y = matrix(initial_outputs, dynamics.n_outputs, "initial_outputs")
    check_window(dynamics, len(y))
    if len(u) <= len(y):
        raise UserError(
            f"free_run: expected more than the {len(y)} inputs of the initial outputs, got {len(u)}"
        )
    rule = _choose_rule(propagation, dynamics).sparing(len(u) - len(y), FEWEST, MANY)
    exogenous = exogenous_rows(dynamics.narx, u, np.arange(len(y), len(u)))
    past = past_outputs(y, len(y) - 1, dynamics)
    generator = np.random.default_rng([seed])
    (mean,), (variance,) = rule.propagate(dynamics, past, exogenous[None], generator)
    lost = np.isnan(variance).any(axis=1)
    left = int(lost.argmax()) if lost.any() else None
    value = np.full(dynamics.n_outputs, np.nan) if left is None else mean[left]
    mean, variance = (np.where(lost[:, None], np.nan, part) for part in (mean, variance))
    return SimulatedOutput(mean, variance, left, value, dynamics.count_held(mean))


def _choose_rule(propagation: Propagation | None, dynamics: Dynamics) -> Propagation:
    rule = MeanOnly() if propagation is None else propagation
    return rule if dynamics.feeds_back else rule.without_feedback()


def check_window(dynamics: Dynamics, window: int) -> None:
    """Refuse a window that does not hold the outputs that the model needs."""
    reason = " (the model needs past outputs)" if dynamics.feeds_back else ""
    check_whole(
        window,
        int(dynamics.feeds_back),
        f"window, the samples before the first prediction{reason},",
    )


def past_outputs(y: Array, newest: int | Indices, dynamics: Dynamics) -> Array:
    """Return the outputs (b, L, m) of the L samples of y up to the newest (b,).

    The first of y stands for what was before it; zeros if y is empty.
    """
    if not len(y):
        return np.zeros((1, dynamics.n_lags, dynamics.n_outputs))
    ages = np.arange(1 - dynamics.n_lags, 1)
    return np.asarray(y[np.maximum(np.atleast_1d(newest)[:, None] + ages, 0)])


class Divergence(NamedTuple):
    """Where a prediction left its bounds (`sysid.simulation.dynamics.Dynamics.bounds`)."""

    record: int
    sample: int
    time: float  # s, or samples
    output: str  # name
    value: float  # that it left with; output unit


@dataclass(frozen=True, eq=False)
class RecordForecast:
    """Predictions of one record; nan where they diverged."""

    record: int  # number
    sample: Indices  # (n,) k
    time: Array  # (n,) s, or samples
    measured: Array  # (n, m) output units
    mean: Array  # (n, m) output units
    variance: Array  # (n, m) latent, output units squared
    # (n, p) of the predictions, with predicted means for outputs not yet measured
    regressors: Array
    # predictions whose regressor reaches before the record, whose first values it holds there
    n_filled: int
    n_lost: int  # predictions that are nan
    n_held: int  # at a limit that the data of the model never reached
    diverged: Divergence | None  # the first
    n_draws: int | None  # per start; None if nothing is drawn


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predictions of records."""

    horizon: int | None  # samples; None: free run
    window: int  # samples at the start of every record that are not predicted
    output_names: tuple[str, ...]
    # (m,) to be added for the variance of a measurement; output units squared
    noise_variance: Array
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

    @property
    def n_held(self) -> int:
        """Predictions at a limit that the data of the model never reached, where a simulation would
        run away.
        """
        return sum(one.n_held for one in self.records)


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
        Samples ahead, at least 1: every k >= max(window, horizon) is predicted. None: one free run
        per record, from sample `window` on.
    window : int
        Samples at the start of a record that initialise the model and are not predicted. Lags that
        reach before the record hold its first value there, which is counted.
    propagation : Propagation, optional
        What becomes of the uncertainty; `MeanOnly` if left out. For horizon 1 all give the same.
    seed : int, optional
        Of the draws.

    Raises
    ------
    ValueError, TypeError
        As `check_records`; a horizon or window that is too small, a record that is not longer than
        they are.
    """
    dynamics = Dynamics(model)
    check_window(dynamics, window)
    if horizon is not None:
        check_whole(horizon, 1, "forecast: horizon, if it is not None for a free run,")
    read = check_records(dynamics.joint, records)
    first = window if horizon is None else max(window, horizon)
    for record in read:
        if record.n_samples <= first:
            raise UserError(
                f"forecast: record {record.number} has {record.n_samples} samples, expected more than the {first} of "
                "its window and horizon; use longer records or a shorter window"
            )
    rule = _choose_rule(propagation, dynamics)
    found = tuple(
        _forecast_record(dynamics, record, rule, horizon, window, seed) for record in read
    )
    return Forecast(horizon, window, dynamics.joint.output_names, dynamics.noise_variance, found)


def warn_of_held(n_held: int) -> None:
    """Warn of samples at a limit that the data of the model never reached, if there are any."""
    if n_held:
        warnings.warn(
            f"{n_held} samples are held at a limit that the data of the model never reached, where a simulation would "
            "run away: they are no predictions",
            stacklevel=4,
        )


def check_records(
    model: Model | JointModel, records: xr.Dataset | Sequence[xr.Dataset]
) -> list[Record]:
    """Read records, and refuse those that do not fit a model.

    Raises
    ------
    ValueError, TypeError
        As `sysid.read_records` (missing signals, time that is not uniform, ...); values that are
        not finite; another sampling time or other units than those that the model was identified
        from, as far as both are known.
    """
    joint = JointModel.of(model)
    read = read_records(records, joint.output_names + joint.input_names)
    for record in read:
        if found := record.first_missing():
            raise UserError(
                f"forecast: {found}; a model can only be fed with numbers: clean the record or cut it"
            )
        for name, attributes in record.attributes.items():
            unit = joint.origin.unit(name)
            given = attributes.get("units", "")
            if unit and given and unit != given:
                raise UserError(
                    f"forecast: signal {name!r} of record {record.number} is in {given!r}, the model was identified "
                    f"from {unit!r}: convert the record"
                )
        expected = joint.origin.sampling_time
        got = record.sampling_time
        if expected is not None and abs(got - expected) > TIME_TOLERANCE * expected:
            raise UserError(
                f"forecast: record {record.number} is sampled every {got:g} s, the model was identified from samples "
                f"every {expected:g} s: resample the record, or identify a model from records like it"
            )
    return read


def _forecast_record(
    dynamics: Dynamics,
    record: Record,
    rule: Propagation,
    horizon: int | None,
    window: int,
    seed: int,
) -> RecordForecast:
    narx = dynamics.narx
    names = dynamics.narx.output_names
    y = np.stack([record.signals[name] for name in names], axis=1)
    u = np.array([record.signals[name] for name in narx.input_names]).reshape(-1, len(y)).T
    exogenous = exogenous_rows(narx, u, np.arange(len(y)))
    if horizon is None:
        sample = np.arange(window, len(y))
        past = past_outputs(y, window - 1, dynamics)
        generator = np.random.default_rng([seed, record.number])
        rule = rule.sparing(len(sample), FEWEST, MANY)
        (mean,), (variance,) = rule.propagate(dynamics, past, exogenous[None, window:], generator)
        path = np.concatenate([past[0], mean])
        last = np.lib.stride_tricks.sliding_window_view(
            path[:-1], dynamics.n_lags, axis=0
        ).transpose(0, 2, 1)
        regressors = dynamics.regressors(last, exogenous[window:])
    else:
        sample = np.arange(max(window, horizon), len(y))
        n_steps = horizon if dynamics.feeds_back else 1
        seeds = [seed, record.number]
        rule = rule.sparing(len(sample) * n_steps, FEWEST // 2)
        mean, variance, regressors = _predict_ahead(
            dynamics, rule, y, exogenous, sample, n_steps, seeds
        )
    lost = np.isnan(variance).any(axis=1)
    diverged = None
    if lost.any():
        row = int(lost.argmax())
        k = int(sample[row])
        distance = np.abs(mean[row] - y.mean(axis=0))
        worst = int(np.argmax(np.where(np.isnan(distance), np.inf, distance)))
        diverged = Divergence(
            record.number,
            k,
            float(record.time[k]),
            names[worst],
            float(mean[row, worst]),
        )
    mean, variance = (np.where(lost[:, None], np.nan, part) for part in (mean, variance))
    return RecordForecast(
        record=record.number,
        sample=sample,
        time=record.time[sample],
        measured=y[sample],
        mean=mean,
        variance=variance,
        regressors=regressors,
        n_filled=int((sample < narx.max_lag).sum()),
        n_lost=int(lost.sum()),
        n_held=dynamics.count_held(mean),
        diverged=diverged,
        n_draws=rule.n_draws if horizon != 1 else None,
    )


def _predict_ahead(
    dynamics: Dynamics,
    rule: Propagation,
    y: Array,
    exogenous: Array,
    sample: Indices,
    horizon: int,
    seeds: list[int],
) -> tuple[Array, Array, Array]:
    """Mean, variance and regressors of samples, each predicted a horizon ahead.

    The mean of a sample whose prediction diverges on the way is the value with which it left the
    bounds.
    """
    size = rule.size(dynamics, horizon) + (horizon + 2) * dynamics.n_features
    length = max(1, min(BLOCK // size, -(-len(sample) // BLOCKS)))
    found = []
    for block in range(0, len(sample), length):
        k = sample[block : block + length]
        past = past_outputs(y, k - horizon, dynamics)
        ahead = exogenous[k[:, None] - horizon + 1 + np.arange(horizon)]
        mean, variance = rule.propagate(
            dynamics, past, ahead, np.random.default_rng([*seeds, block])
        )
        last = np.concatenate([past, mean[:, :-1]], axis=1)[:, -dynamics.n_lags :]
        lost = np.isnan(variance).any(axis=2)
        step = np.where(np.any(lost, axis=1), np.argmax(lost, axis=1), horizon - 1)
        regressors = dynamics.regressors(last, ahead[:, -1])
        found.append((mean[np.arange(len(k)), step], variance[:, -1], regressors))
    mean, variance, regressors = (np.concatenate(part) for part in zip(*found, strict=True))
    return mean, variance, regressors
