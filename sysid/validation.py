"""Measures of a predictive distribution against the truth."""

from math import log, pi
from typing import NamedTuple

import numpy as np

Z_95 = 1.959963984540054  # half width of the central 95 % of a standard normal


class Scores(NamedTuple):
    """How good predictions are; n samples."""

    n: int
    smse: float  # mean squared error / variance of the target
    rmse: float  # target unit
    mean_variance: float  # mean latent predictive variance, target unit^2
    coverage_95: float  # fraction of targets within the 95 % band of a measurement
    nlpd: float  # mean negative log predictive density of a measurement, nats


def standardised_mean_squared_error(target: np.ndarray, mean: np.ndarray) -> float:
    """``SMSE = mean((y - mu)^2) / Var(y)``, section 5 of Wietzke and Graichen; nan if the target is constant.

    >>> standardised_mean_squared_error(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    0.5
    """
    variance = float(np.var(target)) if len(target) else 0.0
    return float(np.mean((target - mean) ** 2)) / variance if variance > 0 else float("nan")


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
        return Scores(0, *[float("nan")] * 5)
    error, noisy = target - mean, variance + noise_variance
    return Scores(
        n=len(target),
        smse=standardised_mean_squared_error(target, mean),
        rmse=float(np.sqrt(np.mean(error**2))),
        mean_variance=float(np.mean(variance)),
        coverage_95=float(np.mean(np.abs(error) <= Z_95 * np.sqrt(noisy))),
        nlpd=float(np.mean(0.5 * (log(2 * pi) + np.log(noisy) + error**2 / noisy))),
    )
