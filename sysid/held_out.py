"""Held-out errors of a model: it learns some folds of records, and predicts the others one step."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid.identification import Identification, Settings
from sysid.narx.lags import Narx, consecutive

#: number of consecutive folds into which the rows of all records are divided
N_FOLDS = 5

#: Folds that are held out together, so that three models predict all folds.
HELD_OUT_TOGETHER = ((0, 3), (1, 4), (2,))

#: largest number of rows that the models learn and predict
MAX_SCORED_ROWS = 10_000


class FoldErrors(NamedTuple):
    """One-step errors of a model on folds that it has not learned."""

    rmse: float  # unit of the target, on the folds that were held out
    n_folds: int  # fewer than `N_FOLDS` if the error could no longer come below the limit


def held_out_error(
    narx: Narx, records: Sequence[xr.Dataset], settings: Settings, limit: float = inf
) -> FoldErrors:
    """Return the one-step error of the model on folds that it has not learned.

    The rows of the records are divided into five folds. Three models each learn the rows without
    one or two folds, and predict these.

    Parameters
    ----------
    narx, records
        Regressors and what they are built from.
    settings
        Settings of the identification.
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
    sum_of_squares = 0.0
    n_predicted = 0
    n_folds = 0
    for folds in HELD_OUT_TOGETHER:
        is_learned = np.ones(len(y), dtype=bool)
        follows_learned = follows.copy()
        for fold in folds:
            is_learned[ends[fold] : ends[fold + 1]] = False
            follows_learned[ends[fold + 1] : ends[fold + 1] + 1] = False
        error = _errors(narx, settings, x, y, follows_learned, is_learned)
        sum_of_squares += float(error @ error)
        n_predicted += len(error)
        n_folds += len(folds)
        if sum_of_squares > limit**2 * len(y):
            break
    return FoldErrors(float(np.sqrt(sum_of_squares / n_predicted)), n_folds)


def _errors(
    narx: Narx,
    settings: Settings,
    x: np.ndarray,
    y: np.ndarray,
    follows: np.ndarray,
    is_learned: np.ndarray,
) -> np.ndarray:
    """Return the errors of the rows that are not learned."""
    settings = settings.for_linear_lags(narx)
    training: Any = settings.training
    n_initial = min(training.n_initial, int(is_learned.sum()))
    settings = replace(settings, training=replace(training, n_initial=n_initial))
    start = settings.know(narx, x[is_learned], y[is_learned])
    identification = Identification(narx, settings, start=start)
    identification.observe_many(x[is_learned], y[is_learned], follows=follows[is_learned])
    return identification.require_model().predict(x[~is_learned]).mean - y[~is_learned]
