"""Measures of a predictive distribution against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, log, nan, pi, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from sysid.arrays import vector

Array: TypeAlias = NDArray[np.float64]

Z_95 = float(ndtri(0.975))  # half width of the central 95 % of a standard normal
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of a calibration curve


class Scores(NamedTuple):
    """How good predictions are; n samples."""

    n: int
    smse: float  # mean squared error / variance of the target
    rmse: float  # target unit
    mean_variance: float  # mean latent predictive variance, target unit^2
    coverage_95: float  # fraction of targets within the 95 % band of a measurement
    nlpd: float  # mean negative log predictive density of a measurement, nats


class Moments(NamedTuple):
    """Mean and variance of the estimation targets: the trivial prediction that MSLL compares with."""

    mean: float  # target unit
    variance: float  # target unit^2


class Validation(NamedTuple):
    """How good predictions of n samples are; nan where a measure does not exist, infinite after a divergence."""

    rmse: float  # target unit
    nrmse: float  # ||y - mu|| / ||y - mean(y)||
    fit_percent: float  # 100 (1 - nrmse)
    r2: float  # 1 - smse
    smse: float  # mean squared error / variance of the target
    msll: float  # nlpd minus that of the trivial prediction, nats; below zero is better than trivial
    nlpd: float  # mean negative log predictive density of a measurement, nats
    coverage_50: float  # fraction of targets within the central 50 % band of a measurement
    coverage_90: float
    coverage_95: float
    n: int  # samples scored
    window: int  # measured samples before them that the model was given, of every record

    def to_dict(self) -> dict[str, float | int | None]:
        """Fields by name for JSON, which knows neither nan nor infinity: both become None."""
        return {name: value if isfinite(value) else None for name, value in self._asdict().items()}


class Calibration(NamedTuple):
    """Calibration curve: of well-calibrated predictions `observed` equals `nominal` up to the sampling error."""

    nominal: Array  # (m,) probability of central bands of a measurement
    observed: Array  # (m,) fraction of targets within them


def standardised_mean_squared_error(target: np.ndarray, mean: np.ndarray) -> float:
    """``SMSE = mean((y - mu)^2) / Var(y)``, section 5 of Wietzke and Graichen; nan if the target is constant.

    >>> standardised_mean_squared_error(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    0.5
    """
    variance = float(np.var(target)) if len(target) and np.ptp(target) > 0 else 0.0
    return float(np.mean((target - mean) ** 2)) / variance if variance > 0 else nan


def scores(target: np.ndarray, mean: np.ndarray, variance: np.ndarray, noise_variance: float) -> Scores:
    """Scores of Gaussian predictions ``N(mean, variance + noise_variance)`` of measured targets.

    Parameters
    ----------
    target, mean, variance : (n,)
        Measured target, predictive mean and latent predictive variance.
    noise_variance : float
        Target unit squared.
    """
    if not len(target):
        return Scores(0, *[nan] * 5)
    error, noisy = target - mean, variance + noise_variance
    return Scores(
        n=len(target),
        smse=standardised_mean_squared_error(target, mean),
        rmse=_root_mean_square(error),
        mean_variance=float(np.mean(variance)),
        coverage_95=_covered(_standardised(error, noisy), 0.95),
        nlpd=_mean_log_loss(error, noisy),
    )


def moments(targets: ArrayLike) -> Moments:
    """Mean and variance of estimation targets (n,), for `validate`.

    Raises
    ------
    ValueError, TypeError
        Without targets, or if one is not finite.
    """
    y = vector(targets, None, "estimation targets")
    if not len(y):
        raise ValueError("estimation targets: expected at least one, got none; leave `trivial` out of validate")
    return Moments(float(np.mean(y)), float(np.var(y)))


def validate(
    target: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike | None = None,
    noise_variance: float = 0.0,
    *,
    trivial: Moments | None = None,
    window: int = 0,
) -> Validation:
    """All measures of Gaussian predictions ``N(mean, variance + noise_variance)`` of measured targets.

    With targets y, predictive means mu, their noisy variances ``s^2 = variance + noise_variance`` and the moments
    m, v of the estimation targets::

        RMSE  = sqrt(mean((y - mu)^2))
        SMSE  = mean((y - mu)^2) / Var(y),  R2 = 1 - SMSE
        NRMSE = ||y - mu|| / ||y - mean(y)|| = sqrt(SMSE),  fit percent = 100 (1 - NRMSE)
        NLPD  = mean(log(2 pi s^2) / 2 + (y - mu)^2 / (2 s^2))
        MSLL  = NLPD - mean(log(2 pi v) / 2 + (y - m)^2 / (2 v))

    Parameters
    ----------
    target, mean : (n,)
        Measured targets and predictive means; of several records, one behind the other without their windows.
    variance : (n,), optional
        Latent predictive variance; None for a model without uncertainty.
    noise_variance : float
        Of the measurement, added to the latent one because the targets are measured.
    trivial : Moments, optional
        `moments` of the ESTIMATION targets, never of these.
    window : int
        Samples that the model was given before the first target; passed on to the result.

    Returns
    -------
    Validation

        - Constant target, or a single one: `smse`, `nrmse`, `fit_percent`, `r2` are nan.
        - No target: all measures are nan.
        - `variance` None: `nlpd`, `msll` and the coverages are nan.
        - `trivial` unknown, or of constant estimation targets: `msll` is nan.
        - s^2 = 0: a hit has infinite density (NLPD -inf), a miss none (NLPD inf), and one miss outweighs all hits.
        - A mean that is not finite (a free run that diverged) counts as infinitely wrong and not covered: RMSE and
          NLPD are infinite. No sample is left out.

    Raises
    ------
    ValueError, TypeError
        Arrays of different lengths, targets that are not finite, a variance that is negative or nan where the mean is
        finite, a negative window.

    Notes
    -----
    NRMSE and fit percent are those of ``goodnessOfFit`` and ``compare`` in MATLAB's System Identification Toolbox,
    and of the package `nonlinear_benchmarks`, whose RMSE over the standard deviation of y is the same number.
    Other packages divide the RMSE by the range of y (`permetrics`) or by its mean: not comparable. Scores of a
    benchmark made by this toolbox state NRMSE in percent. SMSE and MSLL: Rasmussen and Williams 2006, section 2.5,
    equation 2.34.
    """
    y, mu = vector(target, None, "target"), _of_size(mean, target, "mean")
    if window < 0:
        raise ValueError(f"validate(window={window}): expected the number of samples given before, at least 0")
    if not len(y):
        return Validation(nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, n=0, window=window)
    diverged = not np.isfinite(mu).all()
    error = np.where(np.isfinite(mu), y - mu, inf)
    with np.errstate(over="ignore"):  # of a free run about to diverge: infinite
        rmse = _root_mean_square(error)
        smse = inf if diverged and np.ptp(y) > 0 else standardised_mean_squared_error(y, mu)
    nlpd, covered = nan, (nan, nan, nan)
    if variance is not None:
        noisy = _noisy(variance, noise_variance, mu)
        z = _standardised(error, noisy)
        nlpd = _mean_log_loss(error, noisy)
        covered = (_covered(z, 0.5), _covered(z, 0.9), _covered(z, 0.95))
    nrmse, msll = sqrt(smse), nlpd - _trivial_loss(y, trivial)
    return Validation(rmse, nrmse, 100 * (1 - nrmse), 1 - smse, smse, msll, nlpd, *covered, n=len(y), window=window)


def probability_transform(
    target: ArrayLike, mean: ArrayLike, variance: ArrayLike, noise_variance: float = 0.0
) -> Array:
    """Probability integral transform (n,): predictive distribution function at every measured target.

    Uniform on [0, 1] for well-calibrated predictions, 0.5 for a hit of a prediction without variance, nan where the
    mean is not finite. Parameters and errors as `validate`.
    """
    y, mu = vector(target, None, "target"), _of_size(mean, target, "mean")
    error = np.where(np.isfinite(mu), y - mu, nan)
    return np.asarray(ndtr(_standardised(error, _noisy(variance, noise_variance, mu))))


def calibration(
    target: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    noise_variance: float = 0.0,
    *,
    levels: Sequence[float] = LEVELS,
) -> Calibration:
    """Calibration curve: fraction of measured targets within central bands of nominal probability `levels`.

    Parameters and errors as `validate`; every level lies strictly between 0 and 1. Without targets the curve is nan.
    """
    y, mu = vector(target, None, "target"), _of_size(mean, target, "mean")
    nominal = vector(levels, None, "levels")
    if not ((nominal > 0) & (nominal < 1)).all():
        raise ValueError(f"calibration(levels={tuple(levels)}): expected probabilities strictly between 0 and 1")
    z = _standardised(np.where(np.isfinite(mu), y - mu, inf), _noisy(variance, noise_variance, mu))
    return Calibration(nominal, np.array([_covered(z, level) for level in nominal]))


def _of_size(values: ArrayLike, target: ArrayLike, name: str) -> Array:
    """Float vector as long as the target; values that are not finite are kept, because a free run may diverge."""
    array, n = np.asarray(values, dtype=np.float64), np.size(target)
    if array.shape != (n,):
        raise ValueError(f"{name}: expected shape ({n},), one value per target, got {array.shape}")
    return array


def _noisy(variance: ArrayLike, noise_variance: float, mean: Array) -> Array:
    """Variance (n,) of a measurement."""
    latent = _of_size(variance, mean, "variance")
    if not 0 <= noise_variance < inf:
        raise ValueError(f"noise_variance: expected a finite number, at least 0, got {noise_variance}")
    bad = ~(latent >= 0) & np.isfinite(mean)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"variance: {int(bad.sum())} of {len(latent)} values are negative or nan, the first is {latent[i]} at "
            f"index {i}; give latent variances of at least 0, or None for a model without uncertainty"
        )
    return latent + noise_variance


def _root_mean_square(error: Array) -> float:
    return float(np.sqrt(np.mean(error**2)))


def _standardised(error: Array, noisy: Array) -> Array:
    """Errors over their standard deviation; without variance 0 for a hit and infinite for a miss."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = error / np.sqrt(noisy)
    ratio = np.where(np.isinf(error), error, ratio)
    return np.where((error == 0) & (noisy == 0), 0.0, ratio)


def _covered(standardised: Array, level: float) -> float:
    """Fraction within the central band of a standard normal with this probability; nan of no samples."""
    return float(np.mean(np.abs(standardised) <= ndtri(0.5 + 0.5 * level))) if len(standardised) else nan


def _mean_log_loss(error: Array, noisy: Array) -> float:
    """Mean of ``-log N(error; 0, noisy)``, a miss of a certain prediction being infinitely bad."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        loss = 0.5 * (log(2 * pi) + np.log(noisy) + error**2 / noisy)
    loss = np.where(noisy == 0, np.where(error == 0, -inf, inf), loss)
    loss = np.where(np.isinf(error), inf, loss)
    return inf if np.isposinf(loss).any() else float(np.mean(loss))


def _trivial_loss(target: Array, trivial: Moments | None) -> float:
    """Log loss of the Gaussian with the moments of the estimation targets; nan if there is none."""
    if trivial is None or not trivial.variance > 0:
        return nan
    return _mean_log_loss(target - trivial.mean, np.full(len(target), trivial.variance))
