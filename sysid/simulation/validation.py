"""Measures that compare predictive distributions with measured outputs."""

from __future__ import annotations

from math import inf, isfinite, log, nan, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from sysid.arrays import Array, real_numbers, vector
from sysid.errors import UserError
from sysid.model.model import Z_95 as Z_95

# Probabilities of the central bands of a calibration curve.
CALIBRATION_LEVELS = (
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
)


class Validation(NamedTuple):
    """Measures of predictions of n samples.

    A measure that does not exist is nan. After a divergence a measure may be infinite.
    """

    rmse: float  # target unit
    nrmse: float  # ||y - mu|| / ||y - mean(y)||
    fit_percent: float  # 100 (1 - nrmse)
    r2: float  # 1 - smse
    smse: float  # mean squared error / variance of the target
    #: nlpd minus the nlpd of the trivial prediction, nats; a negative value beats the trivial one
    msll: float
    nlpd: float  # mean negative log predictive density of a measurement, nats
    coverage_50: float  # fraction of targets within the central 50 % band of a measurement
    coverage_90: float  # within the central 90 % band
    coverage_95: float  # within the central 95 % band
    n: int  # number of scored samples
    window: int  # measured samples of every record that initialised the model

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the fields by name; nan and infinity become None, because JSON knows neither."""
        return {name: value if isfinite(value) else None for name, value in self._asdict().items()}


class Calibration(NamedTuple):
    """Calibration curve.

    If predictions are well calibrated, `observed` equals `nominal` up to the sampling error.
    """

    nominal: Array  # (m,) probability of central bands of a measurement
    observed: Array  # (m,) fraction of targets within them


def standardised_mean_squared_error(target: np.ndarray, mean: np.ndarray) -> float:
    """Return ``SMSE = mean((y - mu)^2) / Var(y)``; nan if the target is constant.

    Section 5 of Wietzke and Graichen.

    >>> standardised_mean_squared_error(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    0.5
    """
    varies = len(target) > 0 and np.ptp(target) > 0
    variance = float(np.var(target)) if varies else 0.0
    if variance > 0:
        return float(np.mean((target - mean) ** 2)) / variance
    return nan


def validate(
    target: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike | None = None,
    noise_variance: float = 0.0,
    *,
    trivial: tuple[float, float] | None = None,
    window: int = 0,
) -> Validation:
    """Score Gaussian predictions ``N(mean, variance + noise_variance)`` of measured targets.

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
        Measured targets and predictive means. Several records are concatenated without their
        windows.
    variance : (n,), optional
        Latent predictive variance; None for a model without uncertainty.
    noise_variance : float
        Variance of the measurement noise, which is added because the targets are measured.
    trivial : (float, float), optional
        Mean and variance of the ESTIMATION targets, never of these targets: the trivial prediction
        that MSLL compares with.
    window : int
        Measured samples that initialised the model before the first target. It is only stored in
        the result.

    Returns
    -------
    Validation

        - Constant target, or a single one: `smse`, `nrmse`, `fit_percent`, `r2` are nan.
        - No target: all measures are nan.
        - `variance` None: `nlpd`, `msll` and the coverages are nan.
        - `trivial` None, or with zero variance: `msll` is nan.
        - s^2 = 0: an exact prediction has infinite density (NLPD -inf), any other has none (NLPD
          inf), and a single one of the latter outweighs all exact predictions.
        - A mean that is not finite (a free run that diverged) counts as infinitely wrong and not
          covered: RMSE and NLPD are infinite. No sample is left out.

    Raises
    ------
    ValueError, TypeError
        If arrays differ in length, targets are not finite, a variance is negative or nan where the
        mean is finite, or the window is negative.

    Notes
    -----
    NRMSE and fit percent are those of ``goodnessOfFit`` and ``compare`` in MATLAB's System
    Identification Toolbox, and of the package `nonlinear_benchmarks`, whose RMSE over the standard
    deviation of y is the same number. Other packages divide the RMSE by the range of y
    (`permetrics`) or by its mean: these are not comparable. Scores of a benchmark made by this
    toolbox state NRMSE in percent. SMSE and MSLL: Rasmussen and Williams 2006, section 2.5,
    equation 2.34.
    """
    y = vector(target, None, "target")
    mu = vector(mean, len(y), "mean", finite=False)  # a free run may diverge
    if window < 0:
        raise UserError(
            f"validate(window={window}): expected the number of samples that initialised the "
            "model, at least 0"
        )
    if not len(y):
        return Validation(nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, n=0, window=window)
    has_diverged = not np.isfinite(mu).all()
    error = np.where(np.isfinite(mu), y - mu, inf)
    with np.errstate(over="ignore"):  # a free run about to diverge overflows to infinity
        rmse = float(np.sqrt(np.mean(error**2)))
        is_infinite = has_diverged and np.ptp(y) > 0
        smse = inf if is_infinite else standardised_mean_squared_error(y, mu)
    nrmse = sqrt(smse)
    nlpd = nan
    coverages = (nan, nan, nan)
    if variance is not None:
        total_variance = _total_variance(variance, noise_variance, mu)
        z = _standardise(error, total_variance)
        nlpd = _mean_log_loss(error, total_variance)
        coverages = (_coverage(z, 0.5), _coverage(z, 0.9), _coverage(z, 0.95))
    msll = nan
    if trivial is not None and trivial[1] > 0:
        trivial_mean, trivial_variance = trivial
        trivial_nlpd = _mean_log_loss(y - trivial_mean, np.full(len(y), trivial_variance))
        msll = nlpd - trivial_nlpd
    return Validation(
        rmse=rmse,
        nrmse=nrmse,
        fit_percent=100 * (1 - nrmse),
        r2=1 - smse,
        smse=smse,
        msll=msll,
        nlpd=nlpd,
        coverage_50=coverages[0],
        coverage_90=coverages[1],
        coverage_95=coverages[2],
        n=len(y),
        window=window,
    )


def calibration(
    target: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    noise_variance: float = 0.0,
    *,
    levels: ArrayLike = CALIBRATION_LEVELS,
) -> Calibration:
    """Return the fraction of measured targets within the central bands of some probabilities.

    `levels` are these probabilities, strictly between 0 and 1. The other parameters and the errors
    are those of `validate`. Without targets the curve is nan.
    """
    y = vector(target, None, "target")
    mu = vector(mean, len(y), "mean", finite=False)
    nominal = vector(levels, None, "levels")
    if not ((nominal > 0) & (nominal < 1)).all():
        raise UserError(
            f"calibration(levels={nominal.tolist()}): expected probabilities strictly between 0 "
            "and 1"
        )
    error = np.where(np.isfinite(mu), y - mu, inf)
    z = _standardise(error, _total_variance(variance, noise_variance, mu))
    return Calibration(nominal, np.array([_coverage(z, level) for level in nominal]))


def continuous_ranked_probability_score(
    target: ArrayLike, mean: ArrayLike, variance: ArrayLike, noise_variance: float = 0.0
) -> float:
    """Return the mean CRPS of Gaussian predictions ``N(mean, variance + noise_variance)``.

    With z = (y - mu) / s, and density phi and distribution function Phi of the standard normal
    distribution (Gneiting and Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation,
    2007, equation 21)::

        CRPS = s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))

    It is the absolute error of a prediction without uncertainty, and smaller is better.

    Parameters
    ----------
    target, mean, variance, noise_variance
        As for `validate`.

    Returns
    -------
    float
        In the unit of the target. Infinite if a mean is not finite, nan without targets.

    Examples
    --------
    >>> round(continuous_ranked_probability_score([0.0], [0.0], [1.0]), 4)
    0.2337
    >>> continuous_ranked_probability_score([3.0], [1.0], [0.0])
    2.0
    """
    y = vector(target, None, "target")
    mu = vector(mean, len(y), "mean", finite=False)
    std = np.sqrt(_total_variance(variance, noise_variance, mu))
    if not len(y):
        return nan
    if not np.isfinite(mu).all():
        return inf
    error = y - mu
    z = np.divide(error, std, out=np.zeros_like(error), where=std > 0)
    density = np.exp(-(z**2) / 2) / sqrt(2 * pi)
    scores = error * (2 * ndtr(z) - 1) + std * (2 * density - 1 / sqrt(pi))
    return float(np.mean(np.where(std > 0, scores, np.abs(error))))


def _total_variance(variance: ArrayLike, noise_variance: float, mean: Array) -> Array:
    """Return the variance (n,) of a measurement, latent plus noise."""
    latent = vector(variance, len(mean), "variance", finite=False)
    if not 0 <= noise_variance < inf:
        raise UserError(
            f"noise_variance: expected a finite number, at least 0, got {noise_variance}"
        )
    is_invalid = ~(latent >= 0) & np.isfinite(mean)
    if is_invalid.any():
        i = int(np.flatnonzero(is_invalid)[0])
        raise UserError(
            f"variance: {int(is_invalid.sum())} of {len(latent)} values are negative or nan, the "
            f"first is {latent[i]} at index {i}; give latent variances of at least 0, or None for "
            "a model without uncertainty"
        )
    return latent + noise_variance


def _standardise(error: Array, variance: Array) -> Array:
    """Return errors divided by their standard deviation.

    With zero variance, an error of 0 gives 0 and any other gives infinity.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = error / np.sqrt(variance)
    ratio = np.where(np.isinf(error), error, ratio)
    return np.where((error == 0) & (variance == 0), 0.0, ratio)


def _coverage(z: Array, level: float) -> float:
    """Return the fraction of z within the central band of a standard normal distribution.

    The band has the probability `level`. Without samples the fraction is nan.
    """
    if not len(z):
        return nan
    half_width = ndtri(0.5 + 0.5 * level)
    return float(np.mean(np.abs(z) <= half_width))


def _mean_log_loss(error: Array, variance: Array) -> float:
    """Return the mean of ``-log N(error; 0, variance)``.

    It is infinite if the variance is zero where the error is not.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = 0.5 * (log(2 * pi) + np.log(variance) + error**2 / variance)
    loss_without_variance = np.where(error == 0, -inf, inf)
    loss = np.where(variance == 0, loss_without_variance, loss)
    loss = np.where(np.isinf(error), inf, loss)
    return inf if np.isposinf(loss).any() else float(np.mean(loss))


def fit_percent(y: ArrayLike, y_hat: ArrayLike) -> float | np.ndarray:
    """Return ``100 (1 - ||y - y_hat|| / ||y - mean(y)||)`` of every output.

    A perfect prediction has 100, the mean of y has 0. This is the fit of ``compare`` in MATLAB's
    System Identification Toolbox. Where ``compare`` simulates (horizon Inf), `y_hat` is a free run
    without the samples that initialise it.

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
    measured = real_numbers(y, "fit_percent: y")
    predicted = real_numbers(y_hat, "fit_percent: y_hat")
    if measured.shape != predicted.shape or measured.ndim not in (1, 2):
        raise UserError(
            "fit_percent: expected two arrays (n,) or (n, m) of one shape, got "
            f"{measured.shape} and {predicted.shape}"
        )
    if measured.ndim == 1:
        return validate(measured, predicted).fit_percent
    return np.array(
        [
            validate(measured_output, predicted_output).fit_percent
            for measured_output, predicted_output in zip(measured.T, predicted.T, strict=True)
        ]
    )
