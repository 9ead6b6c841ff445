"""A metric of the features that a fitted function chooses by its own gradient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_VARIANCE = 1e-10  # of the largest: combinations of features that vary less do not exist [-]
LEAST_DIRECTION = 1e-4  # of the strongest: directions along which the function varies less are left out [-]


class Metric(NamedTuple):
    """Coordinates ``z = W x`` of an isotropic kernel of unit length scale."""

    matrix: Array  # (q, p) W, per unit of the feature
    spectrum: Array  # (q,) slope of the function along each direction, in units of the largest, decreasing


def whitening(regressors: Array) -> Array:
    """V (q, p) with ``cov(V x) = I`` for the rows x of the regressors (n, p); q < p if they are collinear."""
    variance, direction = _principal(regressors)
    return np.asarray((direction / np.sqrt(variance)).T)


def gradient_metric(regressors: Array, gradient: Array, *, spread: float, power: float = 1.0) -> Metric | None:
    """Metric from the average gradient outer product of a function f over the regressors.

    With ``G = E[grad f grad f']``, C the covariance of the regressors and mu the largest eigenvalue of
    ``C^1/2 G C^1/2``, whose eigenvalues and eigenvectors are ``mu s^2`` and E::

        W = diag(s^power) E' C^-1/2 / spread

    so that for power 1 ``W'W = G / (spread^2 mu)``: the function may vary along those combinations of
    features along which it does vary. Power 0 whitens; powers between are milder.

    Parameters
    ----------
    regressors : (n, p)
    gradient : (n, p)
        Of f at the regressors.
    spread : float
        Length scale of the strongest direction, in standard deviations of the regressors along it [-].
    power : float
        Of the spectrum, 0 to 1.

    Returns
    -------
    Metric or None
        None if the function does not vary over the regressors.

    References
    ----------
    A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin, Mechanism for feature learning in neural networks and
    backpropagation-free machine learning models, Science 383 (2024) 1461-1467: the average gradient outer product
    as the metric of a kernel, refitted in turns ("recursive feature machine"). There by one-step least squares, here
    over a free run; the scale by mu and the powers are ours.
    """
    variance, direction = _principal(regressors)
    along = gradient @ (direction * np.sqrt(variance))  # gradient of f in whitened coordinates
    values, turned = np.linalg.eigh(along.T @ along / len(along))
    if not values[-1] > 0:
        return None
    spectrum = np.sqrt(np.maximum(values[::-1], 0.0) / values[-1])
    kept = spectrum > LEAST_DIRECTION
    spectrum, turned = spectrum[kept], turned[:, ::-1][:, kept]
    white = (direction / np.sqrt(variance)).T
    return Metric((spectrum**power)[:, None] * (turned.T @ white) / spread, spectrum)


def _principal(regressors: Array) -> tuple[Array, Array]:
    """Variances (q,), decreasing, and directions (p, q) of the regressors (n, p)."""
    variance, direction = np.linalg.eigh(np.atleast_2d(np.cov(regressors.T)))
    kept = variance > LEAST_VARIANCE * variance[-1]
    return variance[kept][::-1], direction[:, kept][:, ::-1]
