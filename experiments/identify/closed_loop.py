"""A note on loops in which the samples do not tell what a controlled input does."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.plant.live import LiveSource

if TYPE_CHECKING:
    from experiments.identify.result import Result

# Largest standard error of the effect of one standard deviation of an input, in standard deviations
# of the target, with which the samples tell what the input does.
MAX_EFFECT_ERROR = 0.3

# Fraction of the variance of a regressor below which what others leave unexplained is rounding.
LEAST_UNEXPLAINED_SHARE = 1e-20


def effect_error(
    regressors: NDArray[np.float64], column: int, noise_variance: float, target_std: float
) -> tuple[float, float]:
    """Return how well samples tell the effect of one regressor, if it is linear.

    With the residual r of the regressor x after the other ones have explained it, the estimate of
    its coefficient has the standard error ``sqrt(noise variance / sum r^2)`` (Ljung, System
    Identification, section 13.4: in a loop without set-point changes or noise r is zero).

    Parameters
    ----------
    regressors : (n, p) array
    column : int
        Number of the regressor.
    noise_variance : float
        Variance of the noise of the target.
    target_std : float
        Standard deviation of the target.

    Returns
    -------
    float
        Standard error of the effect of one standard deviation of the regressor, in standard
        deviations of the target.
    float
        Fraction of the variance of the regressor that the other regressors leave unexplained.
    """
    x = regressors[:, column]
    others = np.delete(regressors, column, axis=1)
    spread = others.std(axis=0)
    others = others[:, spread > 0] / spread[spread > 0]
    others = np.column_stack([others, np.ones(len(x))])
    coefficients, *_ = np.linalg.lstsq(others, x, rcond=None)
    squares = float(np.sum(np.square(x - others @ coefficients)))
    variance = float(x.var())
    if variance == 0 or target_std == 0:
        return np.inf, 0.0
    rounding = len(x) * variance * LEAST_UNEXPLAINED_SHARE
    standard_error = np.sqrt(noise_variance / max(squares, rounding))
    return standard_error * np.sqrt(variance) / target_std, squares / (len(x) * variance)


def note_closed_loop(result: "Result") -> list[str]:
    """Return a note for each controlled input whose effect the identified samples do not tell."""
    source = result.source
    rows = result.identified
    model = result.identification.model
    if not isinstance(source, LiveSource) or rows is None or model is None:
        return []
    features = model.narx.without_linear().features
    regressors = rows["regressor"].values[:, : len(features)]
    if len(regressors) <= len(features) or not np.isfinite(regressors).all():
        return []
    target_std = float(rows["target"].values.std())
    notes = []
    for name in source.plant.controller.inputs_driven:
        lags = [lag for signal, lag in features if signal == name]
        if not lags:
            continue
        column = features.index((name, min(lags)))
        error, share = effect_error(regressors, column, model.gp.noise_variance, target_std)
        if error > MAX_EFFECT_ERROR:
            notes.append(
                f"the loop is hardly identifiable: the other regressors explain all but "
                f"{100 * share:.2g} % of the variance of {name}, which the controller computes "
                "from them, so that the samples do not tell what it does; change the set-point "
                "more often, or add a probing signal"
            )
    return notes
