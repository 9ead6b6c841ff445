"""A linear model whose free run is stable, to start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sysid.least_squares import linear_fit
from sysid.mean import LinearMean
from sysid.narx import Target
from sysid.output_error.candidate import Candidate
from sysid.output_error.free_run_problem import FreeRunProblem
from sysid.output_error.levenberg_marquardt import minimise_squares
from sysid.output_error.segment import feedback_of
from sysid.output_error.window import Window

CONTRACTIONS = (1.0, 0.99, 0.95, 0.9, 0.8, 0.5)  # of the poles of the linear model, tried in turn
ITERATIONS = 20


class LinearStart(NamedTuple):
    """A candidate without points."""

    candidate: Candidate
    contraction: float  # of the poles of the one-step fit, 1 if its free run was stable
    n_iterations: int


def linear_start(empty: Candidate, windows: Sequence[Window]) -> LinearStart:
    """Output error of a linear model, from least squares one step ahead.

    Least squares may leave a model whose free run diverges; its poles are then drawn towards zero:
    the coefficient of y[k - l] times ``contraction^l``.

    Parameters
    ----------
    empty : Candidate
        Without points; its mean is replaced.

    Raises
    ------
    ValueError
        If no contraction gives a free run that stays within the bounds.
    """
    one_step = _one_step(empty, windows)
    for contraction in CONTRACTIONS:
        candidate = replace(empty, mean=_contracted(empty, one_step, contraction))
        problem = FreeRunProblem(candidate, windows, penalty=0.0)
        found = minimise_squares(problem, problem.parameters(), max_iterations=ITERATIONS)
        if np.isfinite(found.cost):
            return LinearStart(problem.at(found.x), contraction, found.n_iterations)
    raise ValueError(
        "output error: the free run of a linear model diverges even with its poles drawn towards zero; expected "
        "signals that a linear model can follow roughly; change the lags, or predict the value instead of the change"
    )


def _one_step(empty: Candidate, windows: Sequence[Window]) -> LinearMean:
    regressors = np.concatenate([window.segment.regressors for window in windows])
    targets = [empty.narx.predict.of(window.segment.values, window.segment.previous) for window in windows]
    fit = linear_fit(regressors, np.concatenate(targets))
    return LinearMean(fit.coefficients.tolist(), fit.intercept)


def _contracted(empty: Candidate, mean: LinearMean, contraction: float) -> LinearMean:
    """With the poles times the contraction; of a change, those of ``y[k] = y[k-1] + ...``."""
    columns, lags = feedback_of(empty.narx)
    coefficients = np.array(mean.coefficients)
    is_previous = (lags == 1) & (empty.narx.predict is Target.change)
    coefficients[columns] = (coefficients[columns] + is_previous) * contraction**lags - is_previous
    return LinearMean(coefficients.tolist(), mean.intercept)
