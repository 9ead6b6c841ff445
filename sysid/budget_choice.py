"""The number of stored points of a model of records, chosen by held-out error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import xarray as xr

from sysid.beside import one_blas_thread
from sysid.gp.kernels import Linear
from sysid.gp.training import MaximumLikelihood, Start
from sysid.held_out import N_FOLDS, FoldErrors, held_out_error, largest_counted_error
from sysid.identification import AUTOMATIC_BUDGET, Settings
from sysid.model.model import max_points
from sysid.narx.lags import Narx
from sysid.progress import Steps
from sysid.progress_display import shows_progress
from sysid.store import max_content_bytes
from sysid.time_limit import COMPARISON_TIME_SHARE, limit_of, share_of_time

#: numbers of points that are tried in turn, after the first one of `Settings.max_points`
LARGER_BUDGETS: tuple[int, ...] = (200, 400)

#: A larger budget must lower the held-out error below this fraction of the error before.
MAX_ERROR_RATIO_OF_GROWTH = 0.98


class BudgetChoice(NamedTuple):
    """The chosen number of points and the budgets that were tried; `str` describes it in a line."""

    narx: Narx
    settings: Settings  #: those of the identification, with the chosen budget
    #: held-out error one step ahead [unit of the target] by budget, in the order of the trials; it
    #: has fewer folds for a budget that could no longer lower the error enough
    errors: dict[int, FoldErrors]

    def __str__(self) -> str:
        described = []
        for budget, error in self.errors.items():
            folds = "" if error.is_complete else f" ({error.n_folds} parts)"
            described.append(f"{budget} points {error.rmse:.4g}{folds}")
        return (
            f"{self.settings.max_points} points; RMSE one step ahead on held-out parts, unit of "
            f"{self.narx.target}: {', '.join(described)}"
        )


@shows_progress("choosing the budget")
@one_blas_thread
def choose_budget(
    records: xr.Dataset | Sequence[xr.Dataset],
    narx: Narx,
    settings: Settings,
    *,
    error: FoldErrors | None = None,
    starts: list[Start] | None = None,
) -> BudgetChoice | None:
    """Let the budget grow while this lowers the held-out error by more than 2 %.

    The model with 100 points and that with 200 predict held-out folds one step ahead, as in
    `sysid.choose_lags`. If 200 points are better, 400 are tried, too.

    Parameters
    ----------
    records
        As for `Narx.dataset`.
    narx
        Regressors.
    settings
        Settings of the identification.
    error
        Held-out error of the model with 100 points, if it is known.
    starts
        As for `sysid.held_out.held_out_error`, of the same model.

    Returns
    -------
    BudgetChoice or None
        None if there is nothing to choose: the budget is a number, the model is linear, the
        training estimates no hyper-parameters one step ahead, or the records have no more rows
        than points.
    """
    training = settings.training
    if settings.budget != AUTOMATIC_BUDGET or not isinstance(training, MaximumLikelihood):
        return None
    if isinstance(training.kernel, Linear):
        return None
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    n_rows = narx.dataset(several).sizes["sample"]
    n_learned = n_rows - -(-n_rows // N_FOLDS)  # without the largest fold
    if n_learned <= settings.max_points:
        return None
    steps = Steps(len(LARGER_BUDGETS) + (error is None))
    with limit_of(training).running(), share_of_time(COMPARISON_TIME_SHARE):
        starts = [] if starts is None else starts
        return _grow(narx, several, settings, error, starts, n_learned, steps)


def _grow(
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    error: FoldErrors | None,
    starts: list[Start],
    n_learned: int,
    steps: Steps,
) -> BudgetChoice | None:
    """Do what `choose_budget` describes; None if the time is up before anything is compared."""
    if error is None:
        with steps.step():
            largest = largest_counted_error(narx, records, settings, starts=starts)
            error = held_out_error(narx, records, settings, starts=starts, largest=largest)
    if not error.is_complete:
        return None
    chosen = replace(settings, budget=settings.max_points)
    smallest = error.rmse
    errors = {chosen.max_points: error}
    for budget in LARGER_BUDGETS:
        if budget > max_points(max_content_bytes()):
            break  # `Settings` would refuse it
        larger = replace(settings, budget=budget)
        limit = MAX_ERROR_RATIO_OF_GROWTH * smallest
        with steps.step():
            error = held_out_error(
                narx, records, larger, limit, starts=starts, largest=error.largest
            )
        if error.n_folds:
            errors[budget] = error
        is_better = error.is_complete and error.rmse < limit
        if is_better:
            chosen = larger
            smallest = error.rmse
        if not is_better or n_learned <= budget:
            break
    return BudgetChoice(narx, chosen, errors)
