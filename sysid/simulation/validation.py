"""Measures of a predictive distribution against the truth."""

from __future__ import annotations

from math import inf, isfinite, log, nan, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sysid.arrays import Array, vector
from sysid.errors import UserError

Z_95 = float(
    ndtri(0.975)
)  # half width of a band of 95 %: standard deviations from the mean to either end
LEVELS = (
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    0.99,
)  # of a calibration curve


class Validation(NamedTuple):
    """Measures of predictions of n samples; nan where a measure does not exist, infinite after a
    divergence.
    """

    rmse: float  # target unit
    nrmse: float  # ||y - mu|| / ||y - mean(y)||
    fit_percent: float  # 100 (1 - nrmse)
    r2: float  # 1 - smse
    smse: float  # mean squared error / variance of the target
    # nlpd minus that of the trivial prediction, nats; below zero is better than trivial
    msll: float
    nlpd: float  # mean negative log predictive density of a measurement, nats
    coverage_50: float  # fraction of targets within the central 50 % band of a measurement
    coverage_90: float
    coverage_95: float
    n: int  # samples scored
    window: int  # measured samples before them that the model was given, of every record

    def to_dict(self) -> dict[str, float | int | None]:
        """Fields by name; nan and infinity become None, as JSON knows neither."""
        return {name: value if isfinite(value) else None for name, value in self._asdict().items()}


class Calibration(NamedTuple):
    """Calibration curve: `observed` equals `nominal` up to the sampling error if predictions are
    well calibrated.
    """

    nominal: Array  # (m,) probability of central bands of a measurement
    observed: Array  # (m,) fraction of targets within them


def standardised_mean_squared_error(target: np.ndarray, mean: np.ndarray) -> float:
    """``SMSE = mean((y - mu)^2) / Var(y)``, section 5 of Wietzke and Graichen; nan if the target is
    constant.

    >>> standardised_mean_squared_error(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    0.5
    """
    variance = float(np.var(target)) if len(target) and np.ptp(target) > 0 else 0.0
    return float(np.mean((target - mean) ** 2)) / variance if variance > 0 else nan


def validate(
    target: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike | None = None,
    noise_variance: float = 0.0,
    *,
    trivial: tuple[float, float] | None = None,
    window: int = 0,
) -> Validation:
    """All measures of Gaussian predictions ``N(mean, variance + noise_variance)`` of measured
    targets.

    With targets y, predictive means mu, the variances ``s^2 = variance + noise_variance`` of a
    measurement, and mean m and variance v of the estimation targets::

        RMSE  = sqrt(mean((y - mu)^2))
        SMSE  = mean((y - mu)^2) / Var(y),  R2 = 1 - SMSE
        NRMSE = ||y - mu|| / ||y - mean(y)|| = sqrt(SMSE),  fit percent = 100 (1 - NRMSE)
        NLPD  = mean(log(2 pi s^2) / 2 + (y - mu)^2 / (2 s^2))
        MSLL  = NLPD - mean(log(2 pi v) / 2 + (y - m)^2 / (2 v))

    Parameters
    ----------
    target, mean : (n,)
        Measured targets and predictive means; of several records, one behind the other without
        their windows.
    variance : (n,), optional
        Latent predictive variance; None for a model without uncertainty.
    noise_variance : float
        Of the measurement, added to the latent one because the targets are measured.
    trivial : (float, float), optional
        Mean and variance of the ESTIMATION targets, never of these: the trivial prediction that
        MSLL compares with.
    window : int
        Samples that the model was given before the first target; passed on to the result.

    Returns
    -------
    Validation

        - Constant target, or a single one: `smse`, `nrmse`, `fit_percent`, `r2` are nan.
        - No target: all measures are nan.
        - `variance` None: `nlpd`, `msll` and the coverages are nan.
        - `trivial` unknown, or of constant estimation targets: `msll` is nan.
        - s^2 = 0: a hit has infinite density (NLPD -inf), a miss none (NLPD inf), and one miss
          outweighs all hits.
        - A mean that is not finite (a free run that diverged) counts as infinitely wrong and not
          covered: RMSE and NLPD are infinite. No sample is left out.

    Raises
    ------
    ValueError, TypeError
        Arrays of different lengths, targets that are not finite, a variance that is negative or nan
        where the mean is finite, a negative window.

    Notes
    -----
    NRMSE and fit percent are those of ``goodnessOfFit`` and ``compare`` in MATLAB's System
    Identification Toolbox, and of the package `nonlinear_benchmarks`, whose RMSE over the standard
    deviation of y is the same number. Other packages divide the RMSE by the range of y
    (`permetrics`) or by its mean: not comparable. Scores of a benchmark made by this toolbox state
    NRMSE in percent. SMSE and MSLL: Rasmussen and Williams 2006, section 2.5, equation 2.34.
    """
    y = vector(target, None, "target")
    mu = vector(mean, len(y), "mean", finite=False)  # a free run may diverge
    if window < 0:
        raise UserError(
            f"validate(window={window}): expected the number of samples given before, at least 0"
        )
    if not len(y):
        return Validation(nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, n=0, window=window)
    diverged = not np.isfinite(mu).all()
    error = np.where(np.isfinite(mu), y - mu, inf)
    with np.errstate(over="ignore"):  # of a free run about to diverge: infinite
        rmse = float(np.sqrt(np.mean(error**2)))
        smse = inf if diverged and np.ptp(y) > 0 else standardised_mean_squared_error(y, mu)
    nlpd = nan
    covered = (nan, nan, nan)
    if variance is not None:
        total = _total_variance(variance, noise_variance, mu)
        z = _standardise(error, total)
        nlpd = _mean_log_loss(error, total)
        covered = (_coverage(z, 0.5), _coverage(z, 0.9), _coverage(z, 0.95))
    msll = nan
    if trivial is not None and trivial[1] > 0:
        msll = nlpd - _mean_log_loss(y - trivial[0], np.full(len(y), trivial[1]))
    nrmse = sqrt(smse)
    return Validation(
        rmse,
        nrmse,
        100 * (1 - nrmse),
        1 - smse,
        smse,
        msll,
        nlpd,
        *covered,
        n=len(y),
        window=window,
    )


def calibration(
    target: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    noise_variance: float = 0.0,
    *,
    levels: ArrayLike = LEVELS,
) -> Calibration:
    """Calibration curve: fraction of measured targets within central bands of nominal probability
    `levels`.

    Parameters and errors as `validate`; every level lies strictly between 0 and 1. Without targets
    the curve is nan.
    """
    y = vector(target, None, "target")
    mu = vector(mean, len(y), "mean", finite=False)
    nominal = vector(levels, None, "levels")
    if not ((nominal > 0) & (nominal < 1)).all():
        raise UserError(
            f"calibration(levels={nominal.tolist()}): expected probabilities strictly between 0 and 1"
        )
    z = _standardise(
        np.where(np.isfinite(mu), y - mu, inf),
        _total_variance(variance, noise_variance, mu),
    )
    return Calibration(nominal, np.array([_coverage(z, level) for level in nominal]))


def _total_variance(variance: ArrayLike, noise_variance: float, mean: Array) -> Array:
    """Variance (n,) of a measurement."""
    latent = vector(variance, len(mean), "variance", finite=False)
    if not 0 <= noise_variance < inf:
        raise UserError(
            f"noise_variance: expected a finite number, at least 0, got {noise_variance}"
        )
    bad = ~(latent >= 0) & np.isfinite(mean)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise UserError(
            f"variance: {int(bad.sum())} of {len(latent)} values are negative or nan, the first is {latent[i]} at "
            f"index {i}; give latent variances of at least 0, or None for a model without uncertainty"
        )
    return latent + noise_variance


def _standardise(error: Array, variance: Array) -> Array:
    """Errors over their standard deviation; without variance a hit counts as 0 and a miss as
    infinite.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = error / np.sqrt(variance)
    ratio = np.where(np.isinf(error), error, ratio)
    return np.where((error == 0) & (variance == 0), 0.0, ratio)


def _coverage(z: Array, level: float) -> float:
    """Fraction within the central band of a standard normal with this probability; nan of no
    samples.
    """
    return float(np.mean(np.abs(z) <= ndtri(0.5 + 0.5 * level))) if len(z) else nan


def _mean_log_loss(error: Array, variance: Array) -> float:
    """Mean of ``-log N(error; 0, variance)``; infinite if a prediction without variance misses."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = 0.5 * (log(2 * pi) + np.log(variance) + error**2 / variance)
    loss = np.where(variance == 0, np.where(error == 0, -inf, inf), loss)
    loss = np.where(np.isinf(error), inf, loss)
    return inf if np.isposinf(loss).any() else float(np.mean(loss))


def fit_percent(y: ArrayLike, y_hat: ArrayLike) -> float | np.ndarray:
    """``100 (1 - ||y - y_hat|| / ||y - mean(y)||)`` of every output; 100 is perfect, 0 as good as
    the mean.

    It is the fit of ``compare`` in MATLAB's System Identification Toolbox. Where ``compare``
    simulates (horizon Inf), `y_hat` is a free run without the samples that initialise it.

    Parameters
    ----------
    y, y_hat : (n,) or (n, m)
        Measured and predicted outputs.

    Returns
    -------
    float, or ndarray (m,)
        -inf for a prediction that diverged, nan for a measured output that is constant.

    Raises
    ------
    ValueError
        Arrays of different shapes, or measured outputs that are not finite.

    Examples
    --------
    >>> fit_percent([0.0, 2.0, 4.0], [0.0, 2.0, 3.0])  # doctest: +ELLIPSIS
    64.6...
    """
    measured = np.asarray(y, dtype=np.float64)
    predicted = np.asarray(y_hat, dtype=np.float64)
    if measured.shape != predicted.shape or measured.ndim not in (1, 2):
        raise UserError(
            f"fit_percent: expected two arrays (n,) or (n, m) of one shape, got {measured.shape} and {predicted.shape}"
        )
    if measured.ndim == 1:
        return validate(measured, predicted).fit_percent
    return np.array(
        [validate(*pair).fit_percent for pair in zip(measured.T, predicted.T, strict=True)]
    )
