"""What the errors of a simulation near an operating point still have to do with the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.linalg import toeplitz

from sysid.arrays import Array

#: a sample counts ``exp(-d^2 / (2 LOCAL_WIDTH^2))`` at the distance d from the operating point, the
#: root of the mean square over the features, each in its standard deviations
LOCAL_WIDTH = 0.5
#: lags of each input whose coefficients are corrected, from its smallest one in the model
N_CORRECTED_LAGS = 16
#: order of the autoregressive filter that makes the errors white
WHITENING_ORDER = 10
#: decays of the corrections over a lag, and their variances, relative to that of errors per input,
#: among which the likelihood decides
DECAYS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
VARIANCES = tuple(np.geomspace(1e-8, 10.0, 28).tolist())
#: least effective number of samples near the operating point, in corrected coefficients
LEAST_SAMPLES_PER_COEFFICIENT = 2.0


class SimulatedErrors(NamedTuple):
    """Errors of a simulation with its regressors and the measured inputs."""

    errors: Array  # (n,) measured minus simulated output
    regressors: Array  # (n, p)
    inputs: Mapping[str, Array]  # (n_past + n,) by name, those before the first error included


class Correction(NamedTuple):
    """Gaussian distribution of additions to r coefficients of inputs."""

    features: tuple[tuple[str, int], ...]  # signals and lags
    mean: Array  # (r,)
    root: Array  # R (r, r), R R' = covariance


def local_correction(
    found: SimulatedErrors,
    first_lags: Mapping[str, int],
    point: Array,
    feedback: Array,
) -> Correction | None:
    """Return by how much the coefficients of the inputs are wrong near an operating point.

    The errors r of a good model have nothing to do with the inputs. If they have, the lags or the
    functions of the model cannot represent the plant at this point, for example because it is
    linear, and was fitted to all levels of the record. This is a model error model (Ljung, Model
    validation and model error modeling, Lund 1999), local and Bayesian::

        r[k] = sum_l a_l r[k-l] + sum_j h_j u[k-j] + noise

    With the feedback a of the model, h adds to its coefficients of the inputs. The noise is made
    white by an autoregressive filter on r and on the regressors of h. A sample counts the more, the
    closer its regressor is to the operating point. The prior of h decays with the lag,
    ``cov(h_i, h_j) = c d^max(i, j)`` (the kernel TC; Chen, Ohlsson and Ljung, Automatica 48, 2012);
    c and d maximise the marginal likelihood. It is often the largest for c = 0: then there is no
    correction.

    Parameters
    ----------
    found : SimulatedErrors
    first_lags
        Smallest lag of each input, by name.
    point : (p,)
        Regressor of the operating point.
    feedback : (L,)
        Coefficients a of the lags 1 to L of the output.

    Returns
    -------
    Correction or None
        None: the likelihood is the largest without one, the feedback is unstable, or there are too
        few samples near the operating point.
    """
    n = len(found.errors)
    names = [name for name in first_lags if np.std(found.inputs[name]) > 0]
    features = tuple(
        (name, lag)
        for name in names
        for lag in range(first_lags[name], first_lags[name] + N_CORRECTED_LAGS)
    )
    closeness = _closeness(found.regressors, point)
    is_stable = (np.abs(np.roots(np.concatenate([[1.0], -feedback]))) < 1.0).all()
    needed = LEAST_SAMPLES_PER_COEFFICIENT * len(features)
    if not names or not is_stable or closeness.sum() < needed:
        return None
    responses = _responses(found, features, feedback)
    white, white_responses = _whitened(found.errors - found.errors.mean(), responses)
    start = WHITENING_ORDER + N_CORRECTED_LAGS
    weights = np.sqrt(closeness[start:])
    y = white[start:] * weights
    X = white_responses[start:] * weights[:, np.newaxis]
    noise_variance = (y @ y) / closeness[start:].sum()
    sizes = np.array([np.std(found.errors[:n]) / np.std(found.inputs[name]) for name in names])
    best = 0.0
    correction = None
    for decay in DECAYS:
        root = np.kron(np.diag(sizes), _decaying_root(decay))
        precision = root.T @ (X.T @ X) @ root / noise_variance
        score = root.T @ (X.T @ y) / noise_variance
        eigenvalues, vectors = np.linalg.eigh(precision)
        scores = vectors.T @ score
        for variance in VARIANCES:
            shrunk = variance / (1.0 + variance * np.maximum(eigenvalues, 0.0))
            logarithms = np.log1p(variance * np.maximum(eigenvalues, 0.0))
            evidence = 0.5 * float((scores**2 * shrunk).sum() - logarithms.sum())
            if evidence > best:
                best = evidence
                mean = root @ (vectors @ (scores * shrunk))
                correction = Correction(features, mean, (root @ vectors) * np.sqrt(shrunk))
    return correction


def _closeness(regressors: Array, point: Array) -> Array:
    """Return how much each sample counts (n,), 1 at the operating point."""
    std = regressors.std(axis=0)
    varies = std > 0
    distances = (regressors[:, varies] - point[varies]) / std[varies]
    return np.asarray(np.exp(-0.5 * np.mean(distances**2, axis=1) / LOCAL_WIDTH**2))


def _responses(
    found: SimulatedErrors, features: tuple[tuple[str, int], ...], feedback: Array
) -> Array:
    """Return the outputs (n, r) of the feedback to the lags of the inputs, without their means.

    Inputs before the first known one count as their mean.
    """
    from scipy.signal import lfilter  # takes long to import

    n = len(found.errors)
    lagged = np.zeros((n, len(features)))
    for column, (name, lag) in enumerate(features):
        values = found.inputs[name] - found.inputs[name].mean()
        rows = len(values) - n - lag + np.arange(n)
        is_known = rows >= 0
        lagged[is_known, column] = values[rows[is_known]]
    return np.asarray(lfilter([1.0], np.concatenate([[1.0], -feedback]), lagged, axis=0))


def _whitened(errors: Array, responses: Array) -> tuple[Array, Array]:
    """Return errors (n,) and responses (n, r) behind the filter that makes the errors white."""
    from scipy.signal import lfilter  # takes long to import

    lagged = toeplitz(errors, np.zeros(WHITENING_ORDER + 1))
    coefficients = np.linalg.lstsq(lagged[:, 1:], errors, rcond=None)[0]
    whitening = np.concatenate([[1.0], -coefficients])
    return lfilter(whitening, [1.0], errors), lfilter(whitening, [1.0], responses, axis=0)


def _decaying_root(decay: float) -> Array:
    """Return a root of the prior covariance ``d^max(i, j)`` of consecutive coefficients."""
    lags = np.arange(N_CORRECTED_LAGS)
    return np.asarray(np.linalg.cholesky(decay ** np.maximum.outer(lags, lags).astype(float)))
