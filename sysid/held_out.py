"""Held-out errors of a model: it learns some folds of records, and predicts the others one step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid.gp.training import Start
from sysid.gross_errors import have_gross_errors, std_of_residuals
from sysid.identification import Identification, Settings
from sysid.narx.lags import Narx, consecutive
from sysid.time_limit import out_of_time

#: number of consecutive folds into which the rows of all records are divided
N_FOLDS = 5

#: largest number of rows that the models learn and predict
MAX_SCORED_ROWS = 10_000

#: largest number of samples for the hyper-parameters of these models
MAX_TRAINING_SAMPLES = 300

#: The training of these models ends once an iteration gains less than this [nats], which the
#: errors do not show.
MIN_GAIN_NATS = 0.01

#: Where gross errors were found, larger held-out errors count as errors of this many robust
#: standard deviations: some gross errors may have remained.
MAX_COUNTED_STDS = 4.0


class FoldErrors(NamedTuple):
    """One-step errors of a model on folds that it has not learned."""

    rmse: float  # unit of the target, on the folds that were held out; nan without any
    #: fewer than `N_FOLDS` if the error could no longer come below the limit, or the time was up
    n_folds: int
    largest: float = inf  # magnitude as which larger errors count, unit of the target

    @property
    def is_complete(self) -> bool:
        """Whether all folds were held out."""
        return self.n_folds == N_FOLDS


def held_out_error(
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    limit: float = inf,
    *,
    starts: list[Start] | None = None,
    largest: float = inf,
) -> FoldErrors:
    """Return the one-step error of the model on folds that it has not learned.

    See `held_out_errors`.
    """
    (error,) = held_out_errors(
        narx, records, settings, [1.0], limit, starts=starts, largest=largest
    )
    return error


def held_out_errors(
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    factors: Sequence[float],
    limit: float = inf,
    *,
    starts: list[Start] | None = None,
    largest: float = inf,
) -> list[FoldErrors]:
    """Return the one-step errors of models on folds that they have not learned.

    The rows of the records are divided into five folds. Five models each learn the rows without one
    fold, and predict it. Once the time of the search is up (`sysid.time_limit`), no further fold is
    held out.

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
    starts
        What the training derived from the rows that each model learns, as far as it is known: from
        the same models with another budget, on which it does not depend. Others are appended.
    largest
        Larger errors count as errors of this magnitude [unit of the target]; see
        `largest_counted_error`.

    Raises
    ------
    ValueError
        The rows are too few for the training.
    """
    x, y, follows, ends = _rows_of(narx, records)
    sums_of_squares = np.zeros(len(factors))
    n_folds = np.zeros(len(factors), dtype=int)
    starts = [] if starts is None else starts
    settings = settings.for_linear_lags(narx)
    for fold, (begin, end) in enumerate(pairwise(ends)):
        (in_race,) = np.nonzero(sums_of_squares <= limit**2 * len(y))
        if not len(in_race) or out_of_time():
            break
        is_learned, follows_learned = _without_fold(follows, begin, end)
        factors_in_race = [factors[int(i)] for i in in_race]
        quick = _quick(settings, int(is_learned.sum()))
        if fold == len(starts):
            near = starts[-1].hyperparameters if starts else None
            start = quick.know(narx, x[is_learned], y[is_learned], near=near)
            if out_of_time():
                break  # the hyper-parameters may be unfinished
            starts.append(start)
        errors = _errors(
            narx, quick, starts[fold], factors_in_race, x, y, follows_learned, is_learned
        )
        for i, error in zip(in_race, errors, strict=True):
            counted = np.clip(error, -largest, largest)
            sums_of_squares[i] += float(counted @ counted)
            n_folds[i] += 1
    found = []
    for sum_of_squares, n in zip(sums_of_squares, n_folds, strict=True):
        mean_square = sum_of_squares / ends[n] if n else nan
        found.append(FoldErrors(float(np.sqrt(mean_square)), int(n), largest))
    return found


def largest_counted(residuals: np.ndarray) -> float:
    """Return the magnitude as which larger errors count, by held-out residuals (n,) of one model.

    It is `MAX_COUNTED_STDS` standard deviations, which 5 % of gross errors do not change.
    """
    return MAX_COUNTED_STDS * std_of_residuals(residuals)


def largest_counted_error(
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    *,
    starts: list[Start] | None = None,
) -> float:
    """Return the magnitude as which larger held-out errors count when models are compared.

    It is infinite if no gross errors were found in the records (`sysid.screen_records`). If some
    were, others may have remained. A single one among the targets or the lags would decide which
    model has the smallest error. So the errors of all models that are compared are cut at the same
    magnitude, which is that of `largest_counted` for the residuals of this model. It is infinite,
    too, if the time is up.

    Parameters are those of `held_out_residuals`.
    """
    if not have_gross_errors(records):
        return inf
    residuals = held_out_residuals(narx, records, settings, starts=starts)
    return inf if residuals is None else largest_counted(residuals)


def held_out_residuals(
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    *,
    starts: list[Start] | None = None,
) -> np.ndarray | None:
    """Return the errors (n,) whose root mean square is the `held_out_error`, in the target's unit.

    `starts` are those of `held_out_errors`. None if the time was up.
    """
    x, y, follows, ends = _rows_of(narx, records)
    starts = [] if starts is None else starts
    settings = settings.for_linear_lags(narx)
    residuals: list[np.ndarray] = []
    for fold, (begin, end) in enumerate(pairwise(ends)):
        is_learned, follows_learned = _without_fold(follows, begin, end)
        quick = _quick(settings, int(is_learned.sum()))
        if fold == len(starts):
            near = starts[-1].hyperparameters if starts else None
            starts.append(quick.know(narx, x[is_learned], y[is_learned], near=near))
        if out_of_time():
            return None
        residuals += _errors(narx, quick, starts[fold], [1.0], x, y, follows_learned, is_learned)
    return np.concatenate(residuals)


def _rows_of(
    narx: Narx, records: Sequence[xr.Dataset]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return regressors, targets and whether a row follows the one before, and ends of the folds.

    Of long records only some rows are learned: then no row follows another.
    """
    rows = narx.dataset(records)
    x = rows["regressor"].values
    y = rows["target"].values
    follows = consecutive(rows)
    step = len(y) // MAX_SCORED_ROWS + 1
    if step > 1:
        x = x[::step]
        y = y[::step]
        follows = np.zeros(len(y), dtype=bool)
    return x, y, follows, np.linspace(0, len(y), N_FOLDS + 1).astype(int)


def _without_fold(follows: np.ndarray, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows are outside a fold, and which of them follow the row before."""
    is_learned = np.ones(len(follows), dtype=bool)
    is_learned[begin:end] = False
    follows_learned = follows.copy()
    follows_learned[end : end + 1] = False
    return is_learned, follows_learned


def _quick(settings: Settings, n_learned: int) -> Settings:
    """Return the settings with a training on fewer samples."""
    training: Any = settings.training
    quick = replace(
        training,
        n_initial=min(training.n_initial, n_learned),
        record_samples=min(training.record_samples, MAX_TRAINING_SAMPLES),
        min_gain=max(training.min_gain, MIN_GAIN_NATS),
    )
    return replace(settings, training=quick)


def _errors(
    narx: Narx,
    settings: Settings,
    start: Start,
    factors: Sequence[float],
    x: np.ndarray,
    y: np.ndarray,
    follows: np.ndarray,
    is_learned: np.ndarray,
) -> Iterator[np.ndarray]:
    """Yield the errors of the rows that are not learned, for each factor of the variance."""
    for factor in factors:
        identification = Identification(narx, settings, start=scaled(start, factor))
        identification.observe_many(x[is_learned], y[is_learned], follows=follows[is_learned])
        yield identification.require_model().predict(x[~is_learned]).mean - y[~is_learned]


def scaled(start: Start, factor: float) -> Start:
    """Return a start with another variance of the kernel without its linear part."""
    assert start.hyperparameters is not None
    return start._replace(hyperparameters=start.hyperparameters.with_variance_factor(factor))
