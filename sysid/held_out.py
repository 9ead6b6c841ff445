"""Held-out errors of a model: it learns some folds of records, and predicts the others one step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid.identification import Identification, Settings
from sysid.narx.lags import Narx, consecutive

#: number of consecutive folds into which the rows of all records are divided
N_FOLDS = 5

#: largest number of rows that the models learn and predict
MAX_SCORED_ROWS = 10_000

#: largest number of samples for the hyper-parameters of these models
MAX_TRAINING_SAMPLES = 300


class FoldErrors(NamedTuple):
    """One-step errors of a model on folds that it has not learned."""

    rmse: float  # unit of the target, on the folds that were held out
    n_folds: int  # fewer than `N_FOLDS` if the error could no longer come below the limit


def held_out_error(
    narx: Narx, records: Sequence[xr.Dataset], settings: Settings, limit: float = inf
) -> FoldErrors:
    """Return the one-step error of the model on folds that it has not learned.

    See `held_out_errors`.
    """
    (error,) = held_out_errors(narx, records, settings, [1.0], limit)
    return error


def held_out_errors(
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    factors: Sequence[float],
    limit: float = inf,
) -> list[FoldErrors]:
    """Return the one-step errors of models on folds that they have not learned.

    The rows of the records are divided into five folds. Five models each learn the rows without one
    fold, and predict it.

    Parameters
    ----------
    narx, records
        Regressors and what they are built from.
    settings
        Settings of the identification.
    factors
        The models differ in the variance of their kernel without its linear part: the one of the
        training times each of these factors.
    limit
        RMSE [unit of the target]. The error of a model that exceeds it is of no interest: no
        further fold is held out once the RMSE of all folds must exceed it.

    Raises
    ------
    ValueError
        The rows are too few for the training.
    """
    rows = narx.dataset(records)
    x = rows["regressor"].values
    y = rows["target"].values
    follows = consecutive(rows)
    step = len(y) // MAX_SCORED_ROWS + 1
    if step > 1:  # of long records only some rows are learned: then no row follows another
        x = x[::step]
        y = y[::step]
        follows = np.zeros(len(y), dtype=bool)
    ends = np.linspace(0, len(y), N_FOLDS + 1).astype(int)
    sums_of_squares = np.zeros(len(factors))
    n_folds = np.zeros(len(factors), dtype=int)
    for begin, end in pairwise(ends):
        (in_race,) = np.nonzero(sums_of_squares <= limit**2 * len(y))
        if not len(in_race):
            break
        is_learned = np.ones(len(y), dtype=bool)
        is_learned[begin:end] = False
        follows_learned = follows.copy()
        follows_learned[end : end + 1] = False
        factors_in_race = [factors[int(i)] for i in in_race]
        errors = _errors(narx, settings, factors_in_race, x, y, follows_learned, is_learned)
        for i, error in zip(in_race, errors, strict=True):
            sums_of_squares[i] += float(error @ error)
            n_folds[i] += 1
    mean_squares = sums_of_squares / ends[n_folds]
    return [
        FoldErrors(float(np.sqrt(mean_square)), int(n))
        for mean_square, n in zip(mean_squares, n_folds, strict=True)
    ]


def _errors(
    narx: Narx,
    settings: Settings,
    factors: Sequence[float],
    x: np.ndarray,
    y: np.ndarray,
    follows: np.ndarray,
    is_learned: np.ndarray,
) -> Iterator[np.ndarray]:
    """Yield the errors of the rows that are not learned, for each factor of the variance."""
    settings = settings.for_linear_lags(narx)
    training: Any = settings.training
    quick = replace(
        training,
        n_initial=min(training.n_initial, int(is_learned.sum())),
        record_samples=min(training.record_samples, MAX_TRAINING_SAMPLES),
    )
    settings = replace(settings, training=quick)
    start = settings.know(narx, x[is_learned], y[is_learned])
    assert start.hyperparameters is not None
    for factor in factors:
        scaled = start._replace(hyperparameters=start.hyperparameters.with_variance_factor(factor))
        identification = Identification(narx, settings, start=scaled)
        identification.observe_many(x[is_learned], y[is_learned], follows=follows[is_learned])
        yield identification.require_model().predict(x[~is_learned]).mean - y[~is_learned]
