"""Metrics of the regressors in which the points of a candidate lie.

A metric is a matrix W of coordinates ``z = W x`` in which the kernel has unit length scale.
`gradient_metric` derives it from the gradient of a function, `state_metric` from a linear model.
`add_points` spreads points in a metric. `transfer` expresses a function by other points in another
metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sysid.arrays import Array
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Stationary
from sysid.gp.mean import LinearMean
from sysid.simulation.dynamics import MAX_OUTPUT_MAGNITUDE
from sysid.simulation.segments import Segment, feedback_of
from sysid.simulation_error.candidate import (
    COVARIANCE_BLOCK_ROWS,
    Candidate,
    pivots,
    squared_error,
)

# Combinations of features with less than this fraction of the largest variance are left out [-].
MIN_RELATIVE_VARIANCE = 1e-10
# Directions along which the slope is less than this fraction of the largest are left out [-].
MIN_RELATIVE_SLOPE = 1e-4
# Future samples of a linear model that define its state.
STATE_HORIZON_SAMPLES = 100
# The state leaves out combinations of lags along which the slope of the future outputs is below
# this fraction of the largest [-].
MIN_STATE_SLOPE = 0.02
# Points are chosen among at most this many regressors.
MAX_POINT_CANDIDATES = 4000
# Smallest conditional variance of a new point given the earlier ones, relative to the kernel's [-].
MIN_CONDITIONAL_VARIANCE = 1e-8
# Diagonal term of the regression on other points, for each regressor, relative to the kernel's
# variance [-].
TRANSFER_DIAGONAL = 1e-8
# Ridges that are tried in turn until the free run on other points is accurate enough.
TRANSFER_RIDGES = 10.0 ** np.arange(-5, 4)
# On other points the mean squared error may grow by this factor before the weights are refined [-].
MAX_TRANSFER_LOSS = 25.0


def whitening(regressors: Array) -> tuple[Array, Array]:
    """Return V (q, p) with ``cov(V x) = I`` for the rows x of the regressors (n, p).

    The second result is the pseudoinverse (p, q) of V. q < p if the regressors are collinear.
    """
    variance, direction = np.linalg.eigh(np.atleast_2d(np.cov(regressors.T)))
    kept = variance > MIN_RELATIVE_VARIANCE * variance[-1]
    root = np.sqrt(variance[kept][::-1])
    direction = direction[:, kept][:, ::-1]
    return (direction / root).T, direction * root


def gradient_metric(
    regressors: Array, gradient: Array, *, spread: float, power: float = 1.0
) -> tuple[Array, Array] | None:
    """Return the metric of the average gradient outer product of a function f over the regressors.

    With ``G = E[grad f grad f']``, C the covariance of the regressors and mu the largest eigenvalue
    of ``C^1/2 G C^1/2``, whose eigenvalues and eigenvectors are ``mu s^2`` and E::

        W = diag(s^power) E' C^-1/2 / spread

    so that for power 1 ``W'W = G / (spread^2 mu)``: length scales are short along the combinations
    of features along which the function varies. Power 0 whitens the regressors; powers in between
    are milder.

    Parameters
    ----------
    regressors : (n, p)
    gradient : (n, p)
        Gradient of f at the regressors.
    spread : float
        Length scale of the strongest direction, in standard deviations of the regressors along it
        [-].
    power : float
        Exponent of the spectrum, 0 to 1.

    Returns
    -------
    W : (q, p)
        Coordinates ``z = W x`` of an isotropic kernel of unit length scale, per unit of the
        feature.
    spectrum : (q,)
        s, slope of the function along each direction relative to the largest, decreasing.

    None is returned instead if the function, or all regressors, do not vary.

    References
    ----------
    A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin, Mechanism for feature learning in neural
    networks and backpropagation-free machine learning models, Science 383 (2024) 1461-1467: the
    average gradient outer product as the metric of a kernel, refitted in turns ("recursive feature
    machine"). They fit one step ahead by least squares; here the fit is to a free run. The scale
    mu and the powers are ours.
    """
    white, back = whitening(regressors)
    whitened_gradient = gradient @ back
    outer_product = whitened_gradient.T @ whitened_gradient / len(whitened_gradient)
    eigenvalues, eigenvectors = np.linalg.eigh(outer_product)
    if not eigenvalues.size or not eigenvalues[-1] > 0:
        return None
    spectrum = np.sqrt(np.maximum(eigenvalues[::-1], 0.0) / eigenvalues[-1])
    kept = spectrum > MIN_RELATIVE_SLOPE
    spectrum = spectrum[kept]
    directions = eigenvectors[:, ::-1][:, kept]
    return (spectrum**power)[:, None] * (directions.T @ white) / spread, spectrum


def state_metric(linear: Candidate, regressors: Array) -> Array:
    """Return the metric W (q, p) of the whitened state of a linear model.

    In this metric two regressors are close if the model continues them alike. The rows of the
    gradient are those of `STATE_HORIZON_SAMPLES` future outputs, with inputs of zero from now on.
    Combinations of lags on which these outputs hardly depend (`MIN_STATE_SLOPE`) are left out, so
    that the number of coordinates does not grow with the number of lags. This is the state of
    subspace identification (Van Overschee and De Moor, Subspace identification for linear systems,
    1996).
    """
    future = _future_outputs(linear)
    is_finite = np.isfinite(future).all(axis=1)
    metric = gradient_metric(regressors, future[is_finite], spread=1.0, power=0.0)
    if metric is None:
        return np.zeros((0, linear.narx.n_features))
    matrix, spectrum = metric
    return matrix[spectrum > MIN_STATE_SLOPE]


def _future_outputs(linear: Candidate) -> Array:
    """Return the response (STATE_HORIZON_SAMPLES, p) of the next outputs to 1 in each feature.

    A measured signal that is 1 at a lag now has that value at its longer lags later on.
    """
    narx = linear.narx
    n = narx.n_features
    columns, lags = feedback_of(narx)
    no_limits = (-MAX_OUTPUT_MAGNITUDE, MAX_OUTPUT_MAGNITUDE)
    homogeneous = replace(
        linear,
        mean=LinearMean(linear.mean.coefficients),
        limits=no_limits,
        bounds=no_limits,
    )
    unknown = np.zeros(STATE_HORIZON_SAMPLES)
    future = np.zeros((STATE_HORIZON_SAMPLES, n))
    for i, (name, lag) in enumerate(narx.features):
        x = np.zeros((STATE_HORIZON_SAMPLES, n))
        past = np.zeros(lags.max())
        if i in columns:
            past[-lag] = 1.0
        for j, (name_of_column, lag_of_column) in enumerate(narx.features):
            is_measured = j not in columns
            steps = lag_of_column - lag  # until the value has moved to this column
            if name_of_column == name and is_measured and 0 <= steps < STATE_HORIZON_SAMPLES:
                x[steps, j] = 1.0
        future[:, i] = homogeneous.simulate(Segment(x, unknown, past))
    return future


def transfer(
    candidate: Candidate, new: Candidate, regressors: Array, windows: Sequence[Segment]
) -> Candidate:
    """Express the function of a candidate by the points of a new one.

    The weights follow from a ridge regression at regressors (n, p). Of `TRANSFER_RIDGES` the
    smallest is taken with which the mean squared error of the free run grows by less than
    `MAX_TRANSFER_LOSS`. If there is none, the weights are zero.
    """
    n = len(new.points)
    kernel = new.kernel
    points = new.points
    gram = kernel(points, points)
    moments = np.zeros((n, n))
    right = np.zeros(n)
    for first in range(0, len(regressors), COVARIANCE_BLOCK_ROWS):
        block = regressors[first : first + COVARIANCE_BLOCK_ROWS]
        covariances = kernel(new.scaling.transform(block), points)
        moments += covariances.T @ covariances
        right += covariances.T @ (candidate.predict(block) - candidate.mean(block))
    error_before = squared_error(candidate, windows)
    for ridge in TRANSFER_RIDGES:
        system = moments + ridge * gram + TRANSFER_DIAGONAL * len(regressors) * np.eye(n)
        trial = replace(new, weights=np.linalg.solve(system, right))
        if squared_error(trial, windows) < MAX_TRANSFER_LOSS * error_before:
            return trial
    return replace(new, weights=np.zeros(n))


def add_points(
    candidate: Candidate,
    kernel: Stationary,
    matrix: Array,
    regressors: Array,
    n: int,
    generator: np.random.Generator,
) -> Candidate:
    """Return the candidate with at most n other points, whose weights are zero.

    The points are spread over regressors (m, p) in the metric of a matrix (q, p).
    """
    if len(regressors) > MAX_POINT_CANDIDATES:
        rows = generator.choice(len(regressors), MAX_POINT_CANDIDATES, replace=False)
        regressors = regressors[np.sort(rows)]
    scaling = AffineMap.of_matrix(np.zeros(matrix.shape[1]), matrix)
    unit_kernel = kernel.with_scales(1.0, np.ones(len(matrix)))
    coordinates = scaling.transform(regressors)
    chosen = pivots(unit_kernel, coordinates, n, MIN_CONDITIONAL_VARIANCE).chosen
    points = coordinates[chosen]
    return replace(
        candidate,
        scaling=scaling,
        kernel=unit_kernel,
        points=points,
        weights=np.zeros(len(points)),
    )
