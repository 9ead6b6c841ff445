"""What was chosen for a model by held-out errors, for the advice about its errors."""

from sysid.budget_choice import BudgetChoice
from sysid.identification import Identification
from sysid.lag_choice import LagChoice
from sysid.simulation.residual_advice import Choices, find_remedies


def choices_of(
    identification: Identification,
    lag_choice: LagChoice | None,
    budget_choice: BudgetChoice | None,
    *,
    n_rows: int,
    is_stream: bool = False,
    has_automatic_lags: bool | None = None,
) -> Choices:
    """Return what was chosen for the model of an identification, and what a user can still change.

    Parameters
    ----------
    identification : Identification
    lag_choice : LagChoice or None
        The automatic choice of its lags and its estimator, if there was one.
    budget_choice : BudgetChoice or None
        The choice of its number of points for given lags, if there was one.
    n_rows : int
        Number of rows that the training could have used.
    is_stream : bool
        Whether the hyper-parameters come from the first samples of a stream.
    has_automatic_lags : bool, optional
        None: they are automatic if there is a choice of them. Those of a simulated plant are
        automatic without one.
    """
    budget_is_chosen = budget_choice is not None
    kernel_is_chosen = False
    tried_lags: dict[str, set[int]] = {}
    if lag_choice is not None:
        budget_is_chosen |= lag_choice.has_chosen_budget
        kernel_is_chosen = lag_choice.estimator is not None
        tried_lags = lag_choice.tried_lags
    if has_automatic_lags is None:
        has_automatic_lags = lag_choice is not None
    training = identification.settings.training
    remedies = []
    if identification.model is not None:
        remedies = find_remedies(
            identification.model,
            training,
            n_rows=n_rows,
            is_stream=is_stream,
            budget_is_chosen=budget_is_chosen,
            kernel_is_chosen=kernel_is_chosen,
        )
    is_for_free_run = "kernel" in training.replaces
    return Choices(has_automatic_lags, tried_lags, remedies, is_for_free_run)
