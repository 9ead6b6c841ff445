"""Factors that widen the bands of a model, measured on samples that it has not learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sysid.arrays import Array
from sysid.gp.training import InitialSamples
from sysid.model.model import Model
from sysid.narx.lags import reach_of
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly
from sysid.simulation.segments import (
    NumberedSegments,
    Segment,
    folds_of,
    n_samples,
    segments_of,
)

N_BAND_FOLDS = 5  # cross-validation folds for the bands
MIN_ROWS_FOR_BANDS = 100  # with fewer rows of records the bands are not measured

# With more rows than this for each point of the budget, the model itself predicts its own rows.
PLENTIFUL_ROWS_PER_POINT = 100

BAND_HORIZONS = (3, 10, 30, 100, 300)  # samples; the bands of one step are measured as well
HORIZON_SPREAD = 1.75  # errors at steps h / 1.75 to 1.75 h count for the horizon h
N_SHORT_RUNS = 10  # short simulations of each held-out segment
SHORT_RUN_STEPS = 16  # samples of a short simulation
LONG_RUN_STEPS = 400  # samples of a long simulation
# Functions drawn for the spread of these simulations. The spread is a quantile near the end of
# their distribution. Where some of the functions run away, 40 of them are too few: the factors of
# different seeds then differ by two and more.
N_BAND_DRAWS = 200
MATCHED_BAND_LEVELS = (0.5, 0.95)  # probabilities of the bands whose coverage is matched
MAX_STANDARDISED_ERROR = 100.0  # larger standardised errors, and nan, count as this one

#: Horizons [samples] and factors of the standard deviation, as in `sysid.Model.bands`.
Bands: TypeAlias = tuple[tuple[int, float], ...]


def measure_bands_by_folds(
    model: Model,
    samples: InitialSamples,
    learn: Callable[[InitialSamples], Model],
    seed: int,
    *,
    estimates: Array | None = None,
    added: ArrayLike = 0.0,
    whole: NumberedSegments | None = None,
) -> Bands:
    """Measure the bands of a model by cross-validation over the rows that it has learned.

    Each of `N_BAND_FOLDS` folds is predicted by a model that learns the other rows. If there are
    plenty of rows for each point, the model itself predicts them, because its errors then do not
    differ from those of a model that has not seen the rows.

    Parameters
    ----------
    model : Model
    samples : InitialSamples
        All rows that the model has learned.
    learn : callable
        Returns a model of the given rows, with the hyper-parameters of `model`.
    seed : int
        Seed of the draws.
    estimates : (n, n_features), optional
        Regressors of the rows in which every estimated feature was estimated without the row
        itself. The bands then lie between those of these regressors and of the regressors in
        `samples` (`between`).
    added : (n,), optional
        Variance of each row's one-step prediction in addition to that of the model.
    whole : NumberedSegments, optional
        Segments of records with holes, which are predicted and simulated instead of the rows; the
        rows of a fold are those whose samples are in it.

    Returns
    -------
    tuple of (int, float)
        As of `measure_bands`.
    """
    narx, x, t, follows = samples
    if whole is not None:
        return _measure_bands_of_records(model, samples, learn, seed, whole)
    regressors = [x] if estimates is None else [estimates, x]
    if reach_of(narx):
        segments = [segments_of(samples._replace(regressors=known)) for known in regressors]
    else:
        no_past = np.full(1, np.nan)
        segments = [[Segment(known, t, no_past)] for known in regressors]
    is_plentiful = len(t) > PLENTIFUL_ROWS_PER_POINT * model.gp.budget
    folds_by_regressors = [folds_of(cut, N_BAND_FOLDS) for cut in segments]
    held_out: list[list[tuple[Model, Sequence[Segment]]]] = [[] for _ in regressors]
    begin = 0
    for folds in zip(*folds_by_regressors, strict=True):
        end = begin + n_samples(folds[0].parts)
        predictor = model
        if not is_plentiful:
            rest = np.r_[0:begin, end : len(t)]
            rest_follows = follows[rest] & (rest != end)
            predictor = learn(InitialSamples(narx, x[rest], t[rest], rest_follows))
        for pairs, fold in zip(held_out, folds, strict=True):
            pairs.append((predictor, fold.parts))
        begin = end
    bands = [measure_bands(model, pairs, seed, added) for pairs in held_out]
    return between(bands[0], bands[-1])


def _measure_bands_of_records(
    model: Model,
    samples: InitialSamples,
    learn: Callable[[InitialSamples], Model],
    seed: int,
    whole: NumberedSegments,
) -> Bands:
    """Measure the bands as `measure_bands_by_folds`, on the segments of records with holes."""
    narx, x, t, follows = samples
    is_plentiful = len(t) > PLENTIFUL_ROWS_PER_POINT * model.gp.budget
    held_out = []
    begin = 0
    for fold in folds_of(whole.segments, N_BAND_FOLDS):
        end = begin + n_samples(fold.parts)
        predictor = model
        if not is_plentiful:
            first, last = whole.numbers[begin], whole.numbers[end - 1]
            rest = np.flatnonzero((whole.rows < first) | (whole.rows > last))
            rest_follows = follows[rest] & (np.diff(rest, prepend=-2) == 1)
            predictor = learn(InitialSamples(narx, x[rest], t[rest], rest_follows))
        held_out.append((predictor, fold.parts))
        begin = end
    return measure_bands(model, held_out, seed, whole.added_variance)


def measure_bands(
    model: Model,
    held_out: Sequence[tuple[Model, Sequence[Segment]]],
    seed: int,
    added: ArrayLike = 0.0,
    *,
    horizons: Sequence[int] = BAND_HORIZONS,
    n_long: int = 2,
) -> Bands:
    """Measure how much wider than predicted the bands must be on samples that were not learned.

    Models that have not learned the held-out segments predict them one step ahead, and simulate
    them from several starts. The standard deviation is that of `model` itself, in simulations that
    of functions drawn from its posterior (`sysid.Pathwise`). The standardised errors z at about the
    same horizon are taken together. With q_p the quantile p of ``|z|`` and n_p that of a standard
    normal, the factor is::

        c = sqrt(q_50 / n_50  q_95 / n_95)

    so that neither the 50 % nor the 95 % band is far off where z is not normal. (Conformal
    prediction takes one of the quantiles, Lei et al. 2018.) For models of several outputs, and of
    outputs without lags, only one step is measured.

    Parameters
    ----------
    model : Model
    held_out : sequence of (Model, sequence of Segment)
        Models, each with the segments that it has not learned.
    seed : int
        Seed of the draws.
    added : (n,), optional
        Variances of the one-step predictions in addition to those of the model, for the samples of
        all segments, one after the other.
    horizons : sequence of int
        Horizons in addition to one step [samples].
    n_long : int
        Simulations of `LONG_RUN_STEPS` steps of each segment.

    Returns
    -------
    tuple of (int, float)
        Horizons [samples] and factors c, as in `sysid.Model.bands`. Horizons beyond all segments
        are left out.
    """
    narx = model.narx
    noise = model.gp.noise_variance
    has_own_lags = any(name == narx.target for name, _ in narx.features)
    feeds_itself_back = narx.output_names == (narx.target,) and has_own_lags
    lengths = ((N_SHORT_RUNS, SHORT_RUN_STEPS), (n_long, LONG_RUN_STEPS))
    errors = []
    variances = []
    is_measured = []
    simulated: list[tuple[Array, NDArray[np.bool_]]] = []  # errors of runs, and which count
    generator = np.random.default_rng([seed])
    for predictor, segments in held_out:
        for segment in segments:
            mean = predictor.predict(segment.regressors).mean
            variance = model.predict(segment.regressors).variance
            value = narx.predict.to_value(mean, segment.previous)
            predicted = np.clip(value, *predictor.limits)
            errors.append(segment.values - predicted)
            variances.append(variance)
            is_measured.append(segment.measured)
            if horizons and feeds_itself_back:
                for n_runs, n_steps in lengths:
                    runs = _cut_runs(segment, n_runs, n_steps)
                    z = _standardised_run_errors(model, predictor, runs, generator)
                    simulated.append((z, np.array([run.measured for run in runs])))
    total_variance = np.add(np.concatenate(variances), added) + noise
    one_step = np.concatenate(errors) / np.sqrt(total_variance)
    one_step = one_step[np.concatenate(is_measured) & np.isfinite(total_variance)]
    bands = [(1, _widening_factor(one_step))]
    for horizon in horizons:
        first = round(horizon / HORIZON_SPREAD) - 1
        last = int(horizon * HORIZON_SPREAD) if horizon < BAND_HORIZONS[-1] else None
        steps = (slice(None), slice(first, last))
        z = np.concatenate(
            [np.zeros(0), *(errors[steps][counts[steps]] for errors, counts in simulated)]
        )
        if len(z):
            bands.append((horizon, _widening_factor(z)))
    return tuple(bands)


def _cut_runs(segment: Segment, n_runs: int, n_steps: int) -> list[Segment]:
    """Cut at most `n_runs` equal pieces of at most `n_steps` samples, spread over a segment."""
    length = len(segment.values)
    n_steps = min(length, n_steps)
    starts = np.unique(np.linspace(0, length - n_steps, n_runs).astype(int))
    return [segment.part(start, start + n_steps) for start in starts.tolist()]


def _standardised_run_errors(
    model: Model, predictor: Model, runs: Sequence[Segment], generator: np.random.Generator
) -> Array:
    """Return the standardised errors (b, T) of `predictor` in simulations of b runs.

    The variances are those of `model`.
    """
    past = np.nan_to_num([run.past for run in runs])[:, :, None]  # nan where no feature needs it
    exogenous = np.array([run.regressors for run in runs])
    measured = np.array([run.values for run in runs])
    mean = MeanOnly().propagate(Dynamics(predictor), past, exogenous, generator).mean
    spread = AboutPath(Pathwise(N_BAND_DRAWS))
    variance = spread.propagate(Dynamics(model), past, exogenous, generator).variance
    std = np.sqrt(variance[:, :, 0] + model.gp.noise_variance)
    return np.asarray((measured - mean[:, :, 0]) / std)


def between(held_out: Bands, learned: Bands) -> Bands:
    """Return the mean of the factors of held-out samples and of learned samples, by horizon.

    Quantities that are estimated without a fold, such as a fit of a cross-validation or the
    parameters of a physical model, are estimated from fewer samples. Their errors on the fold are
    larger than those of an estimate from all samples on new data, and these are larger than the
    errors of the same estimate on the samples that it has learned. (Efron, Estimating the error
    rate of a prediction rule, 1983, weights the two for the same reason.)
    """
    bands = []
    for (horizon, held_out_factor), (_, learned_factor) in zip(held_out, learned, strict=True):
        bands.append((horizon, 0.5 * (held_out_factor + learned_factor)))
    return tuple(bands)


def typical(parts: Sequence[Bands]) -> Bands:
    """Return the median of the factors of several folds, for the horizons that all of them have.

    The median is robust against a single fold without which the fit failed, or which contains
    behaviour that no other fold contains. In both cases the errors on that fold do not show how
    well a model of all samples predicts.
    """
    factors_of_parts = [dict(bands) for bands in parts]
    horizons = sorted(set.intersection(*map(set, factors_of_parts)))
    medians = []
    for horizon in horizons:
        median = np.median([factors[horizon] for factors in factors_of_parts])
        medians.append((horizon, float(median)))
    return tuple(medians)


def _widening_factor(z: Array) -> float:
    """Return the factor of the standard deviation that gives the bands their nominal coverage."""
    distance = np.nan_to_num(np.abs(z), nan=MAX_STANDARDISED_ERROR)
    distance = np.minimum(distance, MAX_STANDARDISED_ERROR)
    ratios = []
    for level in MATCHED_BAND_LEVELS:
        normal_quantile = ndtri(0.5 + 0.5 * level)
        ratios.append(np.quantile(distance, level) / normal_quantile)
    return float(np.sqrt(np.prod(np.maximum(ratios, 1.0 / MAX_STANDARDISED_ERROR))))
