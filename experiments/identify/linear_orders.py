"""The best linear models with equally many lags of every signal, beside every run.

One is fitted by least squares to all samples that the model learned, and predicts the samples that
validate the model. The other learns in the stream, by recursive least squares, and predicts each
sample first. Both know the measured signals only: neither the noise nor the signals of physics.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from experiments.files.cache import Cache, Kind, array_digest
from experiments.files.identity import code_digest, key_of
from experiments.files.outputs import plain
from experiments.identify.result import Result
from sysid import standardised_mean_squared_error
from sysid.arrays import Array
from sysid.dead_time import estimate_dead_times
from sysid.errors import UserError
from sysid.gp.affine_map import AffineMap
from sysid.gp.mean import linear_fit
from sysid.held_out import N_FOLDS
from sysid.lag_choice import MAX_EQUAL_LAGS, MIN_ROWS_PER_COEFFICIENT, moves
from sysid.narx.record import read_records
from sysid.simulation.linear_models import (
    HeldOutErrors,
    LaggedSignals,
    lag_signals,
    recursive_least_squares,
)

MIN_ROWS_FOR_SCALES = 10  # fewer initial samples do not standardise the features of the recursion
NO_ORDERS: dict[str, Any] = {"smse_linear": None, "smse_stream_linear": None, "linear_lags": None}


@dataclass(frozen=True, eq=False)
class _Samples:
    """Signals and targets of n samples, and what they are used for."""

    signals: list[dict[str, Array]]  # of each record: values of the signals that get lags
    first_lags: dict[str, int]  # of each of these signals; empty if the features are given
    given: Array  # (n, p) features of the model, if the data are static; else (n, 0)
    record: np.ndarray  # (n,) number of the record
    sample: np.ndarray  # (n,) number of the sample in its record
    target: Array  # (n,) target of the model
    is_learned: np.ndarray  # (n,) the model learned it, as an initial sample or in the stream
    is_online: np.ndarray  # (n,) the model predicted it in the stream
    is_scored: np.ndarray  # (n,) it validates the model

    def key(self) -> str:
        """Return the digest of all samples and of the code."""
        digests = [
            array_digest(*(signals[name] for name in self.first_lags)) for signals in self.signals
        ]
        uses = array_digest(self.is_learned, self.is_online, self.is_scored)
        rows = array_digest(self.given, self.record, self.sample, self.target)
        content = {
            "signals": digests,
            "rows": rows,
            "uses": uses,
            "lags": [*self.first_lags.items()],
        }
        return key_of(content | {"code": code_digest()})

    def lagged(self) -> LaggedSignals:
        """Return `MAX_EQUAL_LAGS` lags of all signals; given features have no lag."""
        n = len(self.target)
        if not self.first_lags:
            return LaggedSignals(self.given, np.zeros(n, dtype=np.int64))
        features = np.empty((n, MAX_EQUAL_LAGS * len(self.first_lags)))
        n_known = np.empty(n, dtype=np.int64)
        for number, signals in enumerate(self.signals):
            rows = self.record == number
            of_record = lag_signals(signals, self.first_lags, MAX_EQUAL_LAGS, self.sample[rows])
            features[rows] = of_record.features
            n_known[rows] = of_record.n_known
        return LaggedSignals(features, n_known)


def compare_orders(result: Result, cache: Cache | None = None) -> dict[str, Any]:
    """Return the errors of the best linear models of 1 to 12 lags of every measured signal.

    The lags of an input begin with 0 if the model has this lag, else with 1; on records its dead
    time is left out in addition. Outputs have lags even if the model has none. Static data have no
    lags: the linear model has the features of the model. Where lags are missing at the start of a
    record or after a gap, the models predict from the lags that are there (`lag_signals`), and do
    not learn.

    Parameters
    ----------
    result
        A complete identification.
    cache
        Where jobs share the errors, which depend on the samples alone.

    Returns
    -------
    dict
        ``smse_linear``: SMSE of the first model on the samples that validate the identified one.
        Its order has the smallest error on held-out fifths of the learned samples.

        ``smse_stream_linear``: SMSE in the stream of recursive least squares of the best order,
        which is known only afterwards.

        ``linear_lags``: the numbers of lags ``after_stream`` and ``in_stream`` of these two (0 if
        static), and the errors of all orders that were ``tried``.

        Values are None if the samples are too few, or do not vary. If the computation fails, the
        notes of the result say why.
    """
    try:
        samples = _samples_of(result)
        if samples is None:
            return NO_ORDERS
        compute = partial(_compare, samples)
        if cache is None:
            return compute()
        return cache.obtain(LINEAR_ERRORS, samples.key(), compute)
    except (UserError, np.linalg.LinAlgError) as error:
        result.notes.append(f"no linear model of equally many lags: {error}")
        return NO_ORDERS


def _samples_of(result: Result) -> _Samples | None:
    """Return the samples of a result; None if there are none that vary."""
    rows = result.rows
    if rows is None or not len(result.record):
        return None
    source = result.source
    record = rows["record"].values
    time = rows["time"].values
    target = rows["target"].values
    number = np.arange(len(target))
    is_learned = number < len(result.record)
    if np.ptp(target[is_learned]) == 0:
        return None
    is_online = np.zeros(len(target), dtype=bool)
    is_online[: len(result.record)] = result.is_online
    is_scored = np.zeros(len(target), dtype=bool)
    if result.validation is not None and result.validation.sizes["sample"]:
        is_scored = source.is_scored(record, time)
    first_lags: dict[str, int] = {}
    given = rows["regressor"].values
    recordings = source.recordings()
    if recordings is None or not recordings.is_static:
        first_lags = _first_lags(result)
        given = given[:, :0]
    signals = []
    sample = np.empty(len(target), dtype=np.int64)
    for i, dataset in enumerate(result.signals):
        (read,) = read_records(dataset, list(first_lags))
        signals.append({name: read.filled(name) for name in first_lags})
        is_of_record = record == i
        sample[is_of_record] = np.searchsorted(dataset["time"].values, time[is_of_record])
    return _Samples(
        signals, first_lags, given, record, sample, target, is_learned, is_online, is_scored
    )


def _first_lags(result: Result) -> dict[str, int]:
    """Return the first lag of every measured signal that moves."""
    source = result.source
    narx = result.identification.narx
    physics_signals = {} if source.physics is None else source.physics.physics.signals
    first_lags = dict.fromkeys(source.outputs, 1)
    measured_inputs = [name for name in source.inputs if name not in physics_signals]
    shifts = _shifts_of(result, measured_inputs)
    for name in measured_inputs:
        usual = 0 if (name, 0) in narx.features else 1
        first_lags[name] = shifts.get(name, 0) + usual
    return {
        name: first_lag
        for name, first_lag in first_lags.items()
        if any(moves(record[name].values) for record in result.signals)
    }


def _shifts_of(result: Result, inputs: Sequence[str]) -> dict[str, int]:
    """Return how many lags of each input its dead time leaves out.

    Those of a stream are known with ``narx.nk=auto`` only.
    """
    source = result.source
    recordings = source.recordings()
    if result.dead_times is not None:
        return result.dead_times.shifts(inputs)
    if recordings is None:
        return {}
    target = result.identification.narx.target
    return estimate_dead_times(source.learned(), target, inputs).shifts(inputs)


# --- errors ---------------------------------------------------------------------------------------


def _compare(samples: _Samples) -> dict[str, Any]:
    """Return the errors that `compare_orders` describes."""
    features, n_known = samples.lagged()
    learned_lags = n_known[samples.is_learned]
    orders = _affordable_orders(samples, learned_lags)
    if not orders:
        return NO_ORDERS
    if samples.first_lags:
        sizes = {order: order * len(samples.first_lags) for order in orders}
    else:
        sizes = {0: features.shape[1]}
    features = features[:, : sizes[orders[-1]]]
    is_fitted = samples.is_learned & (n_known >= orders[-1])
    if np.ptp(samples.target[is_fitted]) == 0:
        return NO_ORDERS
    held_out = HeldOutErrors(features[is_fitted], samples.target[is_fitted], N_FOLDS)
    stream_errors = _errors_in_stream(samples, features, is_fitted, [*sizes.values()])
    tried = []
    for (order, size), smse_stream in zip(sizes.items(), stream_errors, strict=True):
        held_out_rmse = held_out.rmse(range(size))
        tried.append({"lags": order, "held_out_rmse": held_out_rmse, "smse_stream": smse_stream})
    best = min(tried, key=lambda row: row["held_out_rmse"])
    best_in_stream = min(tried, key=lambda row: row["smse_stream"])
    has_stream = np.isfinite(best_in_stream["smse_stream"])
    best_order = int(best["lags"])
    knows_lags = samples.is_learned & (n_known >= best_order)
    smse_linear = _error_after_stream(samples, features[:, : sizes[best_order]], knows_lags)
    errors: dict[str, Any] = plain(
        {
            "smse_linear": smse_linear,
            "smse_stream_linear": best_in_stream["smse_stream"],
            "linear_lags": {
                "after_stream": best_order,
                "in_stream": best_in_stream["lags"] if has_stream else None,
                "tried": tried,
            },
        }
    )
    return errors


def _affordable_orders(samples: _Samples, learned_lags: np.ndarray) -> list[int]:
    """Return the numbers of lags for which there are enough samples, increasing.

    It is 0 if the features are given.

    Parameters
    ----------
    samples
        All samples.
    learned_lags : (n_learned,)
        Number of known lags of each learned sample.
    """
    if not samples.first_lags:
        n_needed = MIN_ROWS_PER_COEFFICIENT * (samples.given.shape[1] + 1)
        return [0] if len(learned_lags) >= n_needed else []
    affordable = []
    for order in range(1, MAX_EQUAL_LAGS + 1):
        n_coefficients = order * len(samples.first_lags) + 1
        n_rows = np.count_nonzero(learned_lags >= order)
        if n_rows >= MIN_ROWS_PER_COEFFICIENT * n_coefficients:
            affordable.append(order)
    return affordable


def _error_after_stream(samples: _Samples, features: Array, is_fitted: np.ndarray) -> float:
    """Fit a linear model to some samples; return its SMSE on those that validate the model.

    Features that are not known are taken for their means.
    """
    fitted = features[is_fitted]
    fit = linear_fit(fitted, samples.target[is_fitted])
    scored = features[samples.is_scored]
    scored = np.where(np.isnan(scored), fitted.mean(axis=0), scored)
    predicted = fit.intercept + scored @ fit.coefficients
    return standardised_mean_squared_error(samples.target[samples.is_scored], predicted)


def _errors_in_stream(
    samples: _Samples, features: Array, is_fitted: np.ndarray, sizes: Sequence[int]
) -> list[float]:
    """Return the SMSE in the stream of recursive least squares, for each number of features.

    The initial samples standardise features and target, or all learned samples if there are too few
    initial ones. Features that are not known are taken for their means.
    """
    is_initial = is_fitted & ~samples.is_online
    standardising = is_initial if is_initial.sum() >= MIN_ROWS_FOR_SCALES else is_fitted
    scaling = AffineMap.fit(features[standardising])
    mean = samples.target[standardising].mean()
    learned = np.flatnonzero(samples.is_learned)
    z = scaling.transform(features[learned])
    z = np.where(np.isnan(z), 0.0, z)
    predicted = mean + recursive_least_squares(
        np.column_stack([np.ones(len(z)), z]),
        samples.target[learned] - mean,
        [1 + size for size in sizes],
        is_learned=is_fitted[learned],
    )
    is_online = samples.is_online[learned]
    measured = samples.target[learned][is_online]
    return [standardised_mean_squared_error(measured, column[is_online]) for column in predicted.T]


# --- cache ----------------------------------------------------------------------------------------


def _to_dataset(errors: dict[str, Any]) -> xr.Dataset:
    return xr.Dataset(attrs={"errors": json.dumps(errors, allow_nan=False)})


def _from_dataset(dataset: xr.Dataset) -> dict[str, Any]:
    errors: dict[str, Any] = json.loads(dataset.attrs["errors"])
    return errors


LINEAR_ERRORS = Kind("linear", "Errors of linear models of one run", _to_dataset, _from_dataset)
