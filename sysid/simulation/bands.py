"""How wide the bands of a model must be, for every horizon, by samples that it has not learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sysid.arrays import Array
from sysid.gp.training import InitialSamples
from sysid.model.model import Model
from sysid.narx.lags import reach_of
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.forecast import FEWEST
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly
from sysid.simulation.segments import Segment, folds_of, n_samples, segments_of

N_BAND_FOLDS = 5  # parts of the rows of records that are held out in turn
MIN_ROWS_FOR_BANDS = 100  # with fewer rows of records nothing is measured
PLENTIFUL_ROWS_PER_POINT = 100  # with more rows for each point of the model nothing is held out

HORIZONS = (3, 10, 30, 100, 300)  # samples, that bands are measured at, beside one step
REACH = 1.75  # times and part of a horizon: steps that count for it
# simulations of each part that is held out, and their steps; steps of longer ones
SHORT = (10, 16)
LONG = 400
Bands: TypeAlias = tuple[tuple[int, float], ...]  # horizons and factors, as of `sysid.Model.bands`
LEVELS = (0.5, 0.95)  # of the bands that shall cover
MOST_INFLATED = 100.0  # largest standardised error that counts


def measure_bands_by_folds(
    model: Model,
    samples: InitialSamples,
    learn: Callable[[InitialSamples], Model],
    seed: int,
    *,
    estimates: Array | None = None,
    added: ArrayLike = 0.0,
) -> Bands:
    """Bands of a model by the rows that it has learned, each fifth of which is held out in turn.

    A fifth is predicted by a model that learns the other rows; if there are plenty for each point,
    by the model itself, whose errors do not differ from these any more.

    Parameters
    ----------
    model : Model
    samples : InitialSamples
        All rows that it has learned.
    learn : callable
        Model of some of the rows, with the hyper-parameters of the model.
    seed : int
        Of the draws.
    estimates : (n, n_features), optional
        Regressors of the rows as they are for who has not seen them, where some are estimates that
        know the rows. The bands lie between what both say (`between`).
    added : (n,), optional
        Variance that the prediction of each row has beside that of the model, in one step.

    Returns
    -------
    tuple of (int, float)
        As of `measure_bands`.
    """
    narx, x, t, follows = samples
    seen = [x] if estimates is None else [estimates, x]
    if reach_of(narx):
        segments = [segments_of(samples._replace(regressors=each)) for each in seen]
    else:
        segments = [[Segment(each, t, np.full(1, np.nan))] for each in seen]
    is_plentiful = len(t) > PLENTIFUL_ROWS_PER_POINT * model.gp.budget
    held_out = []
    begin = 0
    for folds in zip(*(folds_of(each, N_BAND_FOLDS) for each in segments), strict=True):
        end = begin + n_samples(folds[0].parts)
        judge = model
        if not is_plentiful:
            rest = np.r_[0:begin, end : len(t)]
            judge = learn(InitialSamples(narx, x[rest], t[rest], follows[rest] & (rest != end)))
        held_out.append([(judge, fold.parts) for fold in folds])
        begin = end
    bands = [measure_bands(model, each, seed, added) for each in zip(*held_out, strict=True)]
    return between(bands[0], bands[-1])


def measure_bands(
    model: Model,
    held_out: Sequence[tuple[Model, Sequence[Segment]]],
    seed: int,
    added: ArrayLike = 0.0,
    *,
    horizons: Sequence[int] = HORIZONS,
    n_long: int = 2,
) -> Bands:
    """How much wider than a model says bands must be, by horizon, for samples that it has not
    learned.

    Parts are predicted one step ahead, and simulated from several places on, by models that have
    not learned them; the model itself says how sure it is there, in simulations by the spread of
    functions drawn from its posterior (`sysid.Pathwise`). Of the standardised errors z of a horizon
    and those about it, q_p their quantile of the distance from zero and n_p that of a standard
    normal::

        c = sqrt(q_50 / n_50  q_95 / n_95)

    so that neither the 50 % nor the 95 % band is far off where z is not normal (conformal
    prediction takes one of the quantiles, Lei et al. 2018). Models of several outputs, and without
    lags of any, are judged one step ahead.

    Parameters
    ----------
    model : Model
    held_out : sequence of (Model, sequence of Segment)
        Models, and the parts that each of them has not learned.
    seed : int
        Of the draws.
    added : (n,), optional
        Variances that one step has beside those of the model, at the samples of all parts, one
        behind the other.
    horizons : sequence of int
        Beside one step, in samples.
    n_long : int
        Simulations of `LONG` steps of each part.

    Returns
    -------
    tuple of (int, float)
        Horizons [samples] and factors c, as of `sysid.Model.bands`.
    """
    narx = model.narx
    noise = model.gp.noise_variance
    runs = []
    errors = []
    variances = []
    generator = np.random.default_rng([seed])
    spread = AboutPath(Pathwise(FEWEST))
    for judge, parts in held_out:
        for part in parts:
            mean = judge.predict(part.regressors).mean
            variance = model.predict(part.regressors).variance
            predicted = np.clip(narx.predict.to_value(mean, part.previous), *judge.limits)
            errors.append(part.values - predicted)
            variances.append(variance)
            if not horizons or narx.output_names != (narx.target,) or not narx.lags[narx.target]:
                continue
            for most, longest in (SHORT, (n_long, LONG)):
                n_steps = min(len(part.values), longest)
                starts = np.unique(np.linspace(0, len(part.values) - n_steps, most).astype(int))
                pieces = [part.part(start, start + n_steps) for start in starts.tolist()]
                past = np.nan_to_num([piece.past for piece in pieces])[
                    :, :, None
                ]  # where no feature needs it
                exogenous = np.array([piece.regressors for piece in pieces])
                path = (
                    MeanOnly().propagate(Dynamics(judge), past, exogenous, generator).mean[:, :, 0]
                )
                about = spread.propagate(Dynamics(model), past, exogenous, generator).variance[
                    :, :, 0
                ]
                runs.append(
                    (np.array([piece.values for piece in pieces]) - path) / np.sqrt(about + noise)
                )
    bands = [
        (
            1,
            _widen(
                np.concatenate(errors) / np.sqrt(np.add(np.concatenate(variances), added) + noise)
            ),
        )
    ]
    for horizon in horizons:
        steps = slice(
            round(horizon / REACH) - 1,
            int(horizon * REACH) if horizon < HORIZONS[-1] else None,
        )
        z = np.concatenate([np.zeros(0), *(run[:, steps].ravel() for run in runs)])
        bands += [(horizon, _widen(z))] if len(z) else []
    return tuple(bands)


def between(held_out: Bands, learned: Bands) -> Bands:
    """Mean of the factors of held-out samples and of those that are known, by horizon.

    What is estimated without a part, a fit of a cross-validation or the parameters of physics, is
    estimated from fewer samples: its errors are larger than those of what knows all of them, which
    are larger than the errors that this makes where it knows the samples. (Efron, Estimating the
    error rate of a prediction rule, 1983, weighs the two for the same reason.)
    """
    return tuple(
        (horizon, 0.5 * (c + d)) for (horizon, c), (_, d) in zip(held_out, learned, strict=True)
    )


def typical(parts: Sequence[Bands]) -> Bands:
    """Median of the factors of several parts, by horizon, as far as all of them have it.

    One part where a fit to fewer samples failed, or where the record holds what is found nowhere
    else, does not set the bands of a model that knows all samples.
    """
    several = [dict(bands) for bands in parts]
    common = sorted(set.intersection(*map(set, several)))
    return tuple(
        (horizon, float(np.median([one[horizon] for one in several]))) for horizon in common
    )


def _widen(z: Array) -> float:
    """Factor of the standard deviation with which errors are within bands as often as they shall
    be.
    """
    distance = np.minimum(np.nan_to_num(np.abs(z), nan=MOST_INFLATED), MOST_INFLATED)
    ratios = [np.quantile(distance, level) / ndtri(0.5 + 0.5 * level) for level in LEVELS]
    return float(np.sqrt(np.prod(np.maximum(ratios, 1.0 / MOST_INFLATED))))
