"""Predictions of an identified model over records, some steps ahead or in free run.

With a horizon h, y[k] is predicted from the outputs measured up to k - h and the inputs up to k.
Without a horizon the model runs freely, which is a simulation: it is given the inputs and the first
`window` outputs of a record, and feeds its own predictions back to the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, Indices, check_whole, matrix
from sysid.errors import UserError, warn_user
from sysid.model.model import JointModel, Model, on_unchanged_model
from sysid.narx.lags import Narx
from sysid.narx.record import MAX_RATE_DIFFERENCE, TIME_TOLERANCE, Record, read_records
from sysid.progress_display import shows_progress
from sysid.simulation.dynamics import Dynamics, exogenous_rows
from sysid.simulation.propagation.propagation import MeanOnly, Propagation

# Largest number of floats kept while several starts are predicted side by side.
MAX_NUMBERS_PER_BLOCK = 2**22

# A free run of a very long record still has this number of trajectories.
MIN_FREE_RUN_DRAWS = 40

# A free run may take this many times the steps that predictions at a horizon may take in total: all
# its samples share the same few trajectories, and hence their error.
FREE_RUN_STEPS_FACTOR = 4

# Predictions at a horizon use new draws in at least this number of blocks of starts. Their errors
# average out, so that half of `MIN_FREE_RUN_DRAWS` suffices.
MIN_START_BLOCKS = 20


class SimulatedOutput(NamedTuple):
    """Output of a free run after the first w samples."""

    mean: Array  # (n - w, m) output units; nan from the row that left the bounds
    variance: Array  # (n - w, m) latent, output units squared
    left: int | None  # first row outside the bounds; None if there is none
    value: Array  # (m,) outputs in that row; nan if there is none
    #: samples held at a limit that the data of the model never reached: they are no predictions
    n_held: int


@shows_progress("simulating")
@on_unchanged_model
def free_run(
    model: Model | JointModel,
    inputs: ArrayLike,
    initial_outputs: ArrayLike,
    *,
    propagation: Propagation | None = None,
    seed: int = 0,
) -> SimulatedOutput:
    """Simulate a model on plain arrays, starting from its first outputs.

    Parameters
    ----------
    inputs : (n, n_u)
        Inputs of all samples, in the order of ``narx.input_names``; (n, 0) if there are none.
    initial_outputs : (w, m)
        Outputs of the first w < n samples. Lags that reach before the first sample use its value.
    propagation, seed
        As for `forecast`.

    Raises
    ------
    ValueError, TypeError
        If shapes are wrong, values are not finite, a model with lagged outputs has no initial
        outputs, or nothing is to be simulated.
    """
    dynamics = Dynamics(model)
    u = matrix(inputs, len(dynamics.narx.input_names), "inputs")
    y = matrix(initial_outputs, dynamics.n_outputs, "initial_outputs")
    check_window(dynamics, len(y))
    if len(u) <= len(y):
        raise UserError(
            f"free_run: expected more than the {len(y)} inputs of the initial outputs, got {len(u)}"
        )
    n_steps = len(u) - len(y)
    rule = _choose_rule(propagation, dynamics)
    rule = rule.sparing(n_steps, MIN_FREE_RUN_DRAWS, FREE_RUN_STEPS_FACTOR)
    exogenous = exogenous_rows(dynamics.narx, u, np.arange(len(y), len(u)))
    past = past_outputs(y, len(y) - 1, dynamics)
    generator = np.random.default_rng([seed])
    moments = rule.propagate(dynamics, past, exogenous[None], generator)
    mean = moments.mean[0]
    variance = moments.variance[0]
    is_lost = _find_lost_rows(variance)
    if is_lost.any():
        left = int(is_lost.argmax())
        value = mean[left]
    else:
        left = None
        value = np.full(dynamics.n_outputs, np.nan)
    mean = _blank_rows(mean, is_lost)
    variance = _blank_rows(variance, is_lost)
    return SimulatedOutput(mean, variance, left, value, dynamics.count_held(mean))


def _find_lost_rows(variance: Array) -> NDArray[np.bool_]:
    """Return the rows (n,) of a variance (n, m) that are nan because the prediction diverged."""
    return np.asarray(np.isnan(variance).any(axis=1))


def _blank_rows(values: Array, is_lost: NDArray[np.bool_]) -> Array:
    """Return values (n, m) with nan in all lost rows (n,)."""
    return np.where(is_lost[:, None], np.nan, values)


def _choose_rule(propagation: Propagation | None, dynamics: Dynamics) -> Propagation:
    """Return the rule to use: by default the mean, without draws if nothing is fed back."""
    rule = MeanOnly() if propagation is None else propagation
    return rule if dynamics.feeds_back else rule.without_feedback()


def check_window(dynamics: Dynamics, window: int) -> None:
    """Raise ValueError if a window does not contain the outputs that the model needs."""
    if dynamics.feeds_back:
        least = 1
        reason = " (the model needs past outputs)"
    else:
        least = 0
        reason = ""
    check_whole(window, least, f"window, the samples before the first prediction{reason},")


def past_outputs(y: Array, newest: int | Indices, dynamics: Dynamics) -> Array:
    """Return the L outputs (b, L, m) up to and including the samples `newest` (b,) of y.

    Samples before the first one of y get the value of the first one. If y has no samples, the
    outputs are zeros.
    """
    if not len(y):
        return np.zeros((1, dynamics.n_lags, dynamics.n_outputs))
    offsets = np.arange(1 - dynamics.n_lags, 1)
    samples = np.atleast_1d(newest)[:, None] + offsets
    return np.asarray(y[np.maximum(samples, 0)])


class Divergence(NamedTuple):
    """Where a prediction left its bounds (`sysid.simulation.dynamics.Dynamics.bounds`)."""

    record: int  # number of the record
    sample: int
    time: float  # s, or samples
    output: str  # name of the output that is farthest from its measured mean
    value: float  # value of this output outside the bounds; output unit


@dataclass(frozen=True, eq=False)
class RecordForecast:
    """Predictions of one record; nan where they diverged."""

    record: int  # number of the record
    sample: Indices  # (n,) predicted samples k
    time: Array  # (n,) s, or samples
    measured: Array  # (n, m) output units; nan where an output is missing
    mean: Array  # (n, m) output units
    variance: Array  # (n, m) latent, output units squared
    #: (n, p) regressors of the predictions, with predicted means for outputs not yet measured
    regressors: Array
    #: predictions whose regressor reaches before the record; the first values are used there
    n_filled: int
    n_lost: int  # predictions that are nan because they diverged
    n_held: int  # predictions held at a limit that the data of the model never reached
    diverged: Divergence | None  # first divergence; None if there is none
    n_draws: int | None  # trajectories per start; None if nothing is drawn


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predictions of records."""

    horizon: int | None  # samples; None: free run
    window: int  # samples at the start of every record that are not predicted
    output_names: tuple[str, ...]
    #: (m,) output units squared; add it to `variance` for the variance of a measurement
    noise_variance: Array
    records: tuple[RecordForecast, ...]

    @property
    def diverged(self) -> tuple[Divergence, ...]:
        """First divergence of every record that has one."""
        return tuple(record.diverged for record in self.records if record.diverged is not None)

    @property
    def n_filled(self) -> int:
        """Number of predictions whose regressor reaches before its record."""
        return sum(record.n_filled for record in self.records)

    @property
    def n_lost(self) -> int:
        """Number of predictions that are nan because they diverged."""
        return sum(record.n_lost for record in self.records)

    @property
    def n_held(self) -> int:
        """Number of predictions held at a limit that the data of the model never reached.

        Without the limit the simulation would run away there.
        """
        return sum(record.n_held for record in self.records)


@shows_progress("predicting")
@on_unchanged_model
def forecast(
    model: Model | JointModel,
    records: xr.Dataset | Sequence[xr.Dataset],
    *,
    horizon: int | None,
    window: int,
    propagation: Propagation | None = None,
    seed: int = 0,
) -> Forecast:
    """Predict the outputs of records, each on its own.

    In records with holes (attribute ``on_missing`` = ``skip``) the model's own predictions take the
    place of missing outputs. A free run ends where an input is missing, and begins again, from the
    measured outputs, as soon as all lags of the inputs are known; what cannot be predicted is left
    out.

    Parameters
    ----------
    model : Model or JointModel
    records : data set or sequence of data sets
        As for `Narx.dataset`.
    horizon : int or None
        Samples ahead, at least 1: every sample k >= max(window, horizon) is predicted. None: one
        free run per record, from sample `window` on.
    window : int
        Samples at the start of a record that initialise the model and are not predicted. Lags that
        reach before the record use its first value; such predictions are counted (`n_filled`).
    propagation : Propagation, optional
        Rule that propagates the uncertainty; `MeanOnly` by default. For horizon 1 all rules give
        the same predictions.
    seed : int, optional
        Seed of the draws.

    Raises
    ------
    ValueError, TypeError
        As `check_records`; if the horizon or the window is too small, or a record is not longer
        than both.
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
                f"forecast: record {record.number} has {record.n_samples} samples, expected more "
                f"than the {first} of its window and horizon; use longer records or a shorter "
                "window"
            )
    rule = _choose_rule(propagation, dynamics)
    forecasts = tuple(
        _forecast_record(dynamics, record, rule, horizon, window, seed) for record in read
    )
    names = dynamics.joint.output_names
    return Forecast(horizon, window, names, dynamics.noise_variance, forecasts)


def warn_of_held(n_held: int) -> None:
    """Warn of samples at a limit that the data of the model never reached, if there are any."""
    if n_held:
        warn_user(
            f"{n_held} samples are held at a limit that the data of the model never reached, where "
            "a simulation would run away: they are no predictions"
        )


def check_records(
    model: Model | JointModel, records: xr.Dataset | Sequence[xr.Dataset]
) -> list[Record]:
    """Read records and check that they fit a model.

    Raises
    ------
    ValueError, TypeError
        As `sysid.read_records` (missing signals, time that is not uniform, ...); if values are not
        finite, unless the record says that they are skipped; if the sampling time or the units
        differ from those of the data that the model was identified from, as far as both are known.
    """
    joint = JointModel.of(model)
    read = read_records(records, joint.output_names + joint.input_names)
    for record in read:
        missing = record.first_missing()
        if missing and not record.skips_missing:
            raise UserError(
                f"forecast: {missing}; a model can only be fed with numbers: clean the record or "
                "cut it"
            )
        for name, attributes in record.attributes.items():
            expected_unit = joint.origin.unit(name)
            unit = attributes.get("units", "")
            if expected_unit and unit and expected_unit != unit:
                raise UserError(
                    f"forecast: signal {name!r} of record {record.number} is in {unit!r}, the "
                    f"model was identified from {expected_unit!r}: convert the record"
                )
        expected = joint.origin.sampling_time
        given = record.sampling_time
        allowed = MAX_RATE_DIFFERENCE if record.jitter > 0 else TIME_TOLERANCE
        if expected is not None and abs(given - expected) > allowed * expected:
            raise UserError(
                f"forecast: record {record.number} is sampled every {given:.9g} s, the model was "
                f"identified from samples every {expected:.9g} s: resample the record, or identify "
                f"a model from records like it; if both clocks have one nominal rate, state it for "
                "the file (data.dt)"
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
    """Predict the outputs of one record; the arguments are those of `forecast`."""
    narx = dynamics.narx
    y = np.stack([record.signals[name] for name in narx.output_names], axis=1)
    u = np.array([record.signals[name] for name in narx.input_names]).reshape(-1, len(y)).T
    exogenous = exogenous_rows(narx, u, np.arange(len(y)))
    measured = y
    can_start = np.ones(len(y), dtype=bool)  # whether a prediction may begin at a sample
    if record.missing().any():
        y, can_start = _fill_outputs(dynamics, y, exogenous)
    has_inputs = np.asarray(np.isfinite(exogenous).all(axis=1))
    seeds = [seed, record.number]
    if horizon is None:
        runs = _find_runs(has_inputs, can_start, window)
        sample = np.concatenate([np.arange(0), *(np.arange(*run) for run in runs)])
        rule = rule.sparing(max(len(sample), 1), MIN_FREE_RUN_DRAWS, FREE_RUN_STEPS_FACTOR)
        parts = []
        for number, (begin, end) in enumerate(runs):
            seeds_of_run = seeds if number == 0 else [*seeds, begin]
            parts.append(_run_freely(dynamics, rule, y, exogenous[:end], begin, seeds_of_run))
        mean, variance, regressors = _join(parts, dynamics)
    else:
        sample = np.arange(max(window, horizon), len(y))
        starts = sample - horizon + 1
        n_known = np.cumsum(np.concatenate([[0], has_inputs]))
        has_all_inputs = n_known[sample + 1] - n_known[starts] == horizon
        sample = sample[has_all_inputs & can_start[starts]]
        n_steps = horizon if dynamics.feeds_back else 1
        rule = rule.sparing(len(sample) * n_steps, MIN_FREE_RUN_DRAWS // 2)
        parts = []
        if len(sample):
            parts = [_predict_ahead(dynamics, rule, y, exogenous, sample, n_steps, seeds)]
        mean, variance, regressors = _join(parts, dynamics)
    is_lost = _find_lost_rows(variance)
    diverged = None
    if is_lost.any():
        row = int(is_lost.argmax())
        diverged = _describe_divergence(record, narx, y, int(sample[row]), mean[row])
    mean = _blank_rows(mean, is_lost)
    variance = _blank_rows(variance, is_lost)
    return RecordForecast(
        record=record.number,
        sample=sample,
        time=record.time[sample],
        measured=measured[sample],
        mean=mean,
        variance=variance,
        regressors=regressors,
        n_filled=int((sample < narx.max_lag).sum()),
        n_lost=int(is_lost.sum()),
        n_held=dynamics.count_held(mean),
        diverged=diverged,
        n_draws=rule.n_draws if horizon != 1 else None,
    )


def _join(
    parts: Sequence[tuple[Array, Array, Array]], dynamics: Dynamics
) -> tuple[Array, Array, Array]:
    """Return mean, variance and regressors of several predictions, one after the other."""
    if len(parts) == 1:
        return parts[0]
    none = np.zeros((0, dynamics.n_outputs))
    nothing = (none, none, np.zeros((0, dynamics.n_features)))
    mean, variance, regressors = (
        np.concatenate(arrays) for arrays in zip(nothing, *parts, strict=True)
    )
    return mean, variance, regressors


def _find_runs(
    has_inputs: NDArray[np.bool_], can_start: NDArray[np.bool_], window: int
) -> list[tuple[int, int]]:
    """Return first sample and last sample + 1 of the free runs of a record.

    A run ends where an input is missing.
    """
    runs = []
    known = np.concatenate([[False], has_inputs, [False]])
    for first, end in np.flatnonzero(np.diff(known.astype(np.int8))).reshape(-1, 2).tolist():
        earliest = max(first, window)
        starts = np.flatnonzero(can_start[earliest:end])
        if len(starts):
            runs.append((earliest + int(starts[0]), end))
    return runs


def _fill_outputs(
    dynamics: Dynamics, y: Array, exogenous: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Return outputs (n, m) with predictions one step ahead in place of missing values.

    Where a prediction is impossible, because an input is missing or no output is known yet, the
    output keeps its last value. No prediction may begin with such values among its lags.

    Returns
    -------
    (n, m)
        Outputs.
    (n,) of bool
        Samples whose past outputs are all measured or predicted.
    """
    filled = y.copy()
    n_lags = dynamics.n_lags
    is_known = np.isfinite(y)
    first_values = np.zeros(dynamics.n_outputs)
    for i in range(dynamics.n_outputs):
        if is_known[:, i].any():
            first_values[i] = y[np.argmax(is_known[:, i]), i]
    is_held = np.zeros(len(y), dtype=bool)
    low, high = dynamics.bounds(first_values[None, None])
    for k in np.flatnonzero(~is_known.all(axis=1)).tolist():
        previous = filled[k - 1] if k else first_values
        value = previous
        can_predict = k > 0 and np.isfinite(exogenous[k]).all()
        can_predict = can_predict and not is_held[max(0, k - n_lags) : k].any()
        if can_predict:
            past = past_outputs(filled, k - 1, dynamics)
            target = dynamics.targets(dynamics.regressors(past, exogenous[k : k + 1])).mean
            value = np.clip(dynamics.to_value(target, past[:, -1])[0], low, high)
        else:
            is_held[k] = True
        filled[k] = np.where(is_known[k], y[k], value)
    n_held = np.cumsum(np.concatenate([[0], is_held]))
    sample = np.arange(len(y))
    can_start = n_held[sample] == n_held[np.maximum(sample - n_lags, 0)]
    return filled, can_start


def _describe_divergence(
    record: Record, narx: Narx, y: Array, sample: int, values: Array
) -> Divergence:
    """Describe outputs (m,) outside the bounds by the one farthest from its measured mean."""
    distance = np.abs(values - y.mean(axis=0))
    farthest = int(np.argmax(np.where(np.isnan(distance), np.inf, distance)))
    return Divergence(
        record=record.number,
        sample=sample,
        time=float(record.time[sample]),
        output=narx.output_names[farthest],
        value=float(values[farthest]),
    )


def _run_freely(
    dynamics: Dynamics,
    rule: Propagation,
    y: Array,
    exogenous: Array,
    window: int,
    seeds: list[int],
) -> tuple[Array, Array, Array]:
    """Return mean, variance and regressors of the samples after a window, in one free run."""
    past = past_outputs(y, window - 1, dynamics)
    generator = np.random.default_rng(seeds)
    moments = rule.propagate(dynamics, past, exogenous[None, window:], generator)
    mean = moments.mean[0]
    path = np.concatenate([past[0], mean])
    windows = np.lib.stride_tricks.sliding_window_view(path[:-1], dynamics.n_lags, axis=0)
    last = windows.transpose(0, 2, 1)
    return mean, moments.variance[0], dynamics.regressors(last, exogenous[window:])


def _predict_ahead(
    dynamics: Dynamics,
    rule: Propagation,
    y: Array,
    exogenous: Array,
    sample: Indices,
    horizon: int,
    seeds: list[int],
) -> tuple[Array, Array, Array]:
    """Return mean, variance and regressors of samples, each predicted `horizon` steps ahead.

    If the prediction of a sample diverges before its last step, its mean is the value with which it
    left the bounds.
    """
    size = rule.size(dynamics, horizon) + (horizon + 2) * dynamics.n_features
    n_in_memory = MAX_NUMBERS_PER_BLOCK // size
    n_per_block = math.ceil(len(sample) / MIN_START_BLOCKS)
    length = max(1, min(n_in_memory, n_per_block))
    means = []
    variances = []
    regressors = []
    for begin in range(0, len(sample), length):
        k = sample[begin : begin + length]
        past = past_outputs(y, k - horizon, dynamics)
        steps = k[:, None] - horizon + 1 + np.arange(horizon)
        ahead = exogenous[steps]
        generator = np.random.default_rng([*seeds, begin])
        mean, variance = rule.propagate(dynamics, past, ahead, generator)
        last = np.concatenate([past, mean[:, :-1]], axis=1)[:, -dynamics.n_lags :]
        is_lost = np.isnan(variance).any(axis=2)
        final_step = np.where(np.any(is_lost, axis=1), np.argmax(is_lost, axis=1), horizon - 1)
        means.append(mean[np.arange(len(k)), final_step])
        variances.append(variance[:, -1])
        regressors.append(dynamics.regressors(last, ahead[:, -1]))
    return np.concatenate(means), np.concatenate(variances), np.concatenate(regressors)
