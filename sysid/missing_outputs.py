"""Estimates of missing outputs, which take their place among the lags of later rows.

Two passes: a linear model of the rows with measured lags gives the first estimates, with which the
lags are chosen (`estimate_by_lines`). Then the model itself learns the rows with measured lags, and
its estimates replace those of the line for the model that is kept (`estimate_by_model`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sysid.arrays import Array, Indices
from sysid.data.holes import has_holes
from sysid.data.source import RECORD_ROLES, Recordings
from sysid.errors import UserError
from sysid.identification import Identification, Settings
from sysid.lag_choice import MIN_ROWS_PER_COEFFICIENT, best_arx, moves
from sysid.linear_part import LinearPart, LinearPartKind
from sysid.model.gradient import gradient_of, weights_of
from sysid.model.model import Model
from sysid.narx.lags import Narx, OnMissing, Target
from sysid.narx.record import Estimate, Record, read_records, with_estimate, without_estimates
from sysid.normal import STDS_PER_MEDIAN_DEVIATION
from sysid.simulation.baselines import LinearArx

#: Estimates farther from the last measured output than this number of samples add no rows: the
#: errors of a free run are larger than its linearised variance.
MAX_FILLED_SAMPLES = 20

#: largest numbers of lags of the linear model; the first that the rows suffice for is taken
LINE_ORDERS = (10, 4, 2, 1)

#: An estimate may leave the range of the measured output by this fraction of the range.
LEEWAY_OF_ESTIMATES = 0.5

#: The first model learns the rows with measured lags alone if they are at least this fraction of
#: the rows with estimated lags as well.
MIN_FRACTION_WITH_MEASURED_LAGS = 0.25


class Predictor(Protocol):
    """Model of an output that predicts one sample, and states how its lags change it."""

    narx: Narx

    def targets(self, regressors: Array) -> Array:
        """Return the predicted targets (n,) at regressors (n, p)."""

    def slopes(self, regressors: Array) -> Array:
        """Return the derivatives (n, p) of the predicted targets at regressors (n, p)."""


class _Line:
    """Predictions of a linear model."""

    def __init__(self, model: LinearArx) -> None:
        self.narx = model.narx
        self._model = model

    def targets(self, regressors: Array) -> Array:
        return self._model.predict(regressors, np.zeros(len(regressors)))

    def slopes(self, regressors: Array) -> Array:
        return np.tile(self._model.coefficients, (len(regressors), 1))


class _Process:
    """Predictions of the mean of a model."""

    def __init__(self, model: Model) -> None:
        self.narx = model.narx
        self._model = model
        self._weights = weights_of(model)

    def targets(self, regressors: Array) -> Array:
        return self._model.predict(regressors).mean

    def slopes(self, regressors: Array) -> Array:
        return gradient_of(self._model, self._weights, regressors)


def estimate_by_lines(
    learned: Sequence[xr.Dataset],
    records: Sequence[xr.Dataset],
    outputs: Sequence[str],
    inputs: Sequence[str],
) -> list[xr.Dataset]:
    """Return records with estimates of their missing outputs, by a linear model of each output.

    Its lags have the smallest held-out error (`sysid.lag_choice.best_arx`). An output for which
    there are too few rows with measured lags gets no estimates.

    Parameters
    ----------
    learned
        Records that the linear models are fitted to.
    records
        Records that get estimates, where they have holes.
    outputs, inputs
        Names of the signals.
    """
    estimated = list(records)
    for name in outputs:
        if not has_holes(records, [name]):
            continue
        line = _fit_line(learned, name, inputs)
        if line is not None:
            estimated = _with_estimates(_Line(line), learned, estimated)
    return estimated


def with_line_estimates(recordings: Recordings) -> Recordings:
    """Return all records with estimates of their missing outputs by lines (`estimate_by_lines`)."""
    outputs = recordings.outputs
    if recordings.is_static or not has_holes(recordings.records, outputs):
        return recordings
    learned = recordings.estimation
    return _replace_records(
        recordings, estimate_by_lines(learned, recordings.records, outputs, recordings.inputs)
    )


def with_model_estimates(recordings: Recordings, narx: Narx, settings: Settings) -> Recordings:
    """Return all records with estimates of the missing target (`estimate_by_model`)."""
    if recordings.is_static or not has_holes(recordings.records, [narx.target]):
        return recordings
    return _replace_records(
        recordings, estimate_by_model(recordings.estimation, recordings.records, narx, settings)
    )


def _replace_records(recordings: Recordings, records: Sequence[xr.Dataset]) -> Recordings:
    """Return recordings with other records, in the order of `Recordings.records`."""
    ends = np.cumsum([len(getattr(recordings, role)) for role in RECORD_ROLES])
    starts = ends - [len(getattr(recordings, role)) for role in RECORD_ROLES]
    by_role: dict[str, Any] = {
        role: tuple(records[start:end])
        for role, start, end in zip(RECORD_ROLES, starts, ends, strict=True)
    }
    return replace(recordings, **by_role)


def _fit_line(records: Sequence[xr.Dataset], name: str, inputs: Sequence[str]) -> LinearArx | None:
    """Return the linear model of the smallest held-out error; None if no order has rows enough."""
    moving = [
        signal for signal in inputs if any(moves(record[signal].values) for record in records)
    ]
    for max_order in LINE_ORDERS:
        lags = {signal: range(max_order + 1) for signal in moving}
        longest = Narx({name: max_order}, lags, name, on_missing=OnMissing.skip)
        if longest.count_rows(records) < MIN_ROWS_PER_COEFFICIENT * (longest.n_features + 1):
            continue
        with suppress(UserError):
            return best_arx(records, name, moving, on_missing=OnMissing.skip, max_order=max_order)
    return None


def estimate_by_model(
    learned: Sequence[xr.Dataset], records: Sequence[xr.Dataset], narx: Narx, settings: Settings
) -> list[xr.Dataset]:
    """Return records with estimates of the missing target by a first model of it.

    The first model has these lags and settings, and learns the rows with measured lags. If these
    are few (`MIN_FRACTION_WITH_MEASURED_LAGS`), it also learns the rows with estimates that the
    records have. A training for the free run is replaced by that for one step.

    Parameters
    ----------
    learned
        Records to learn from.
    records
        Records that get estimates, where they have holes.
    narx : Narx
    settings : Settings
    """
    if not has_holes(records, [narx.target]) or not narx.lags[narx.target]:
        return list(records)
    if "kernel" in settings.training.replaces:
        settings = Settings(
            budget=settings.budget,
            seed=settings.seed,
            gate=settings.gate,
            linear_part=LinearPart(LinearPartKind.none),
        )
        narx = narx.without_linear()
    try:
        model = _first_model(learned, narx, settings)
    except UserError:  # too few rows for the training: the estimates of the line stay
        return list(records)
    return _with_estimates(_Process(model), learned, records)


def _first_model(records: Sequence[xr.Dataset], narx: Narx, settings: Settings) -> Model:
    """Return a model of the rows with measured lags, or of all rows if these are few."""
    settings = settings.for_linear_lags(narx)
    rows = narx.dataset(records)
    if "added_variance" in rows:
        is_measured = rows["added_variance"].values == 0.0
        n_initial = settings.training.n_initial or 0
        n_needed = max(MIN_FRACTION_WITH_MEASURED_LAGS * len(is_measured), n_initial + 1)
        if is_measured.sum() >= n_needed:
            rows = rows.isel(sample=np.flatnonzero(is_measured))
    return learn_rows(rows, narx, settings)


def learn_rows(rows: xr.Dataset, narx: Narx, settings: Settings) -> Model:
    """Return a model that has learned a lag data set, with the training of a record."""
    x = rows["regressor"].values
    t = rows["target"].values
    identification = Identification(narx, settings, start=settings.know(narx, x, t))
    identification.observe_many(x, t, follows=np.zeros(len(t), dtype=bool))
    identification.finish()
    return identification.require_model()


def _with_estimates(
    predictor: Predictor, learned: Sequence[xr.Dataset], records: Sequence[xr.Dataset]
) -> list[xr.Dataset]:
    """Return the records with the estimates of a predictor, where they have holes."""
    narx = predictor.narx
    target = narx.target
    noise_variance = _noise_variance(predictor, learned)
    values = np.concatenate([record[target].values for record in learned])
    leeway = LEEWAY_OF_ESTIMATES * (np.nanmax(values) - np.nanmin(values))
    limits = (float(np.nanmin(values) - leeway), float(np.nanmax(values) + leeway))
    estimated = []
    for record in records:
        if not has_holes([record], [target]):
            estimated.append(record)
            continue
        (read,) = read_records(record, narx.signals)
        estimate = estimate_missing(predictor, read, noise_variance, limits)
        estimated.append(with_estimate(record, target, estimate))
    return estimated


def _noise_variance(predictor: Predictor, records: Sequence[xr.Dataset]) -> float:
    """Return the variance of the one-step errors at the rows with measured lags, robustly.

    If these rows are few, those with estimated lags count as well.
    """
    narx = replace(predictor.narx, on_missing=OnMissing.skip)
    without = [without_estimates(record) for record in records]
    n_needed = MIN_ROWS_PER_COEFFICIENT * (narx.n_features + 1)
    rows = narx.dataset(without if narx.count_rows(without) >= n_needed else records)
    errors = rows["target"].values - predictor.targets(rows["regressor"].values)
    median_deviation = float(np.median(np.abs(errors - np.median(errors))))
    return max((STDS_PER_MEDIAN_DEVIATION * median_deviation) ** 2, float(np.finfo(float).tiny))


def estimate_missing(
    predictor: Predictor, record: Record, noise_variance: float, limits: tuple[float, float]
) -> Estimate:
    """Estimate the missing samples of the target of a predictor, and what they add to later errors.

    Every missing sample is predicted one step ahead from the samples before, estimates among them.
    With e the errors of the estimates (0 where the output is measured), the slopes a[k] of the
    prediction with respect to the past outputs, and s^2 the noise variance, the errors follow::

        e[k] = a[k]' (e[k-1], e[k-2], ...) + noise of variance s^2     where y[k] is missing

    The variance that estimated lags add to the error of the prediction of y[k] is that of the first
    term. It is propagated with all covariances. Estimates of other outputs count as independent.

    Parameters
    ----------
    predictor : Predictor
    record : Record
    noise_variance : float
        s^2, unit of the output squared.
    limits : (2,)
        Smallest and largest estimate.

    Returns
    -------
    Estimate
        Values are nan where the lags are not known either: before the first full window, and after
        holes of inputs. The added variance is infinite where a lag is an estimate that is more than
        `MAX_FILLED_SAMPLES` samples from the last measurement.
    """
    narx = predictor.narx
    target = narx.target
    filled = {name: record.filled(name).copy() for name in narx.signals}
    measured = record.signals[target]
    y = filled[target]
    y[:] = measured
    is_missing = ~np.isfinite(measured)
    n_lags = _memory(narx)
    n = len(y)
    features = narx.features
    depth = np.zeros(n, dtype=np.int64)  # estimates in a row up to a sample
    for k in np.flatnonzero(is_missing).tolist():
        if k < narx.max_lag:
            continue
        x = np.array([filled[name][k - lag] for name, lag in features])
        if not np.isfinite(x).all() or (narx.needs_previous and not np.isfinite(y[k - 1])):
            continue
        mean = predictor.targets(x[None])[0]
        y[k] = np.clip(narx.predict.to_value(mean, y[k - 1]), *limits)
        depth[k] = depth[k - 1] + 1
    added = _propagate(predictor, filled, is_missing, depth, noise_variance, record)
    is_deep = np.convolve(depth > MAX_FILLED_SAMPLES, np.ones(n_lags + 1))[:n] > 0
    return Estimate(
        values=np.where(is_missing, y, np.nan),
        added_variance=np.where(is_deep, np.inf, added),
        noise_variance=noise_variance,
    )


def _memory(narx: Narx) -> int:
    """Return the number of past outputs that the prediction of the target depends on."""
    return max([1, *(lag for name, lag in narx.features if name == narx.target)])


def _propagate(
    predictor: Predictor,
    filled: dict[str, Array],
    is_missing: NDArray[np.bool_],
    depth: Indices,
    noise_variance: float,
    record: Record,
) -> Array:
    """Return the variances (n,) that the errors of estimates add to the predictions of samples."""
    narx = predictor.narx
    n = len(is_missing)
    n_lags = _memory(narx)
    is_own = [name == narx.target for name, _ in narx.features]
    lags = np.array([lag for name, lag in narx.features if name == narx.target], dtype=np.int64)
    of_others = [
        (column, name, lag)
        for column, (name, lag) in enumerate(narx.features)
        if name != narx.target and name in record.estimates
    ]
    is_estimate = is_missing & (depth > 0)
    is_affected = np.convolve(is_estimate, np.ones(n_lags + 1))[:n] > 0
    for _, name, lag in of_others:
        estimate = record.estimates[name]
        is_affected[lag:] |= np.isfinite(estimate.values)[: n - lag]
    is_affected[: narx.max_lag] = False
    affected = np.flatnonzero(is_affected)
    added = np.zeros(n)
    if not len(affected):
        return added
    x = np.stack([filled[name][affected - lag] for name, lag in narx.features], axis=1)
    is_known = np.asarray(np.isfinite(x).all(axis=1))
    slopes = np.zeros(x.shape)
    slopes[is_known] = predictor.slopes(x[is_known])
    of_past = np.zeros((len(affected), n_lags))
    of_past[:, lags - 1] = slopes[:, is_own]
    if narx.predict is Target.change:
        of_past[:, 0] += 1.0
    covariance = np.zeros((n_lags, n_lags))
    last = -2
    for row, k in enumerate(affected.tolist()):
        if k != last + 1:
            covariance[:] = 0.0
        last = k
        with_past = covariance @ of_past[row]
        variance = float(of_past[row] @ with_past)
        for column, name, lag in of_others:
            if np.isfinite(record.estimates[name].values[k - lag]):
                others = record.estimates[name]
                error_variance = others.added_variance[k - lag] + others.noise_variance
                variance += float(slopes[row, column] ** 2 * error_variance)
        added[k] = variance if is_known[row] else np.inf
        covariance[1:, 1:] = covariance[:-1, :-1].copy()
        covariance[0] = 0.0
        covariance[:, 0] = 0.0
        if is_estimate[k]:
            covariance[0, 0] = variance + noise_variance
            covariance[0, 1:] = with_past[:-1]
            covariance[1:, 0] = with_past[:-1]
    return added
