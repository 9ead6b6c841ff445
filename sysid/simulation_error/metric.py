"""Metrics in which the points of a function lie: by its own gradient, by the state of a linear
model.

`gradient_metric` is the metric that a function chooses by its own gradient, `state_metric` that of
a linear model. `add_points` spreads points in a metric, `transfer` expresses a function by other
points in another metric.
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
from sysid.simulation_error.candidate import BLOCK, Candidate, pivots, squared_error

LEAST_VARIANCE = 1e-10  # of the largest: combinations of features that vary less do not exist [-]
# of the strongest: directions along which the function varies less are left out [-]
LEAST_DIRECTION = 1e-4
AHEAD = 100  # samples that tell the state of a linear model
# of the strongest combination of lags: the state holds none on which the future depends less [-]
LEAST_STATE = 0.02
POOL = 4000  # regressors among which points are chosen
# least variance given the earlier points that a point must have, and ridge of the regression [-]
CLOSE = 1e-8
RIDGES = 10.0 ** np.arange(-5, 4)  # tried in turn until a function on other points stays stable
# the mean square on other points may be so much larger before the weights are refined [-]
WORSE = 25.0


def whitening(regressors: Array) -> tuple[Array, Array]:
    """V (q, p) with ``cov(V x) = I`` for the rows x of the regressors (n, p), and its pseudoinverse
    (p, q).

    q < p if the regressors are collinear.
    """
    variance, direction = np.linalg.eigh(np.atleast_2d(np.cov(regressors.T)))
    kept = variance > LEAST_VARIANCE * variance[-1]
    root = np.sqrt(variance[kept][::-1])
    direction = direction[:, kept][:, ::-1]
    return (direction / root).T, direction * root


def gradient_metric(
    regressors: Array, gradient: Array, *, spread: float, power: float = 1.0
) -> tuple[Array, Array] | None:
    """Metric from the average gradient outer product of a function f over the regressors.

    With ``G = E[grad f grad f']``, C the covariance of the regressors and mu the largest eigenvalue
    of ``C^1/2 G C^1/2``, whose eigenvalues and eigenvectors are ``mu s^2`` and E::

        W = diag(s^power) E' C^-1/2 / spread

    so that for power 1 ``W'W = G / (spread^2 mu)``: the function may vary along those combinations
    of features along which it does vary. Power 0 whitens; powers between are milder.

    Parameters
    ----------
    regressors : (n, p)
    gradient : (n, p)
        Of f at the regressors.
    spread : float
        Length scale of the strongest direction, in standard deviations of the regressors along it
        [-].
    power : float
        Of the spectrum, 0 to 1.

    Returns
    -------
    W : (q, p)
        Coordinates ``z = W x`` of an isotropic kernel of unit length scale, per unit of the
        feature.
    spectrum : (q,)
        s, slope of the function along each direction over the largest, decreasing.

    Or None if the function, or the regressors themselves, do not vary.

    References
    ----------
    A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin, Mechanism for feature learning in neural
    networks and backpropagation-free machine learning models, Science 383 (2024) 1461-1467: the
    average gradient outer product as the metric of a kernel, refitted in turns ("recursive feature
    machine"). There by one-step least squares, here over a free run; the scale by mu and the powers
    are ours.
    """
    white, back = whitening(regressors)
    along = gradient @ back  # gradient of f in whitened coordinates
    values, turned = np.linalg.eigh(along.T @ along / len(along))
    if not values.size or not values[-1] > 0:
        return None
    spectrum = np.sqrt(np.maximum(values[::-1], 0.0) / values[-1])
    kept = spectrum > LEAST_DIRECTION
    spectrum = spectrum[kept]
    turned = turned[:, ::-1][:, kept]
    return (spectrum**power)[:, None] * (turned.T @ white) / spread, spectrum


def state_metric(linear: Candidate, regressors: Array) -> Array:
    """Metric W (q, p) in which regressors are alike that a linear model continues alike: its
    whitened state.

    The rows of the gradient are those of `AHEAD` future outputs, with inputs of zero from now on.
    Combinations of lags of which they depend less than `LEAST_STATE` are left out, so that many
    lags have no more coordinates than few: the state of subspace identification (Van Overschee and
    De Moor, Subspace identification for linear systems, 1996).
    """
    narx = linear.narx
    n = linear.narx.n_features
    columns, lags = feedback_of(narx)
    mean = LinearMean(linear.mean.coefficients)
    endless = (-MAX_OUTPUT_MAGNITUDE, MAX_OUTPUT_MAGNITUDE)
    homogeneous = replace(linear, mean=mean, limits=endless, bounds=endless)
    future = np.zeros((AHEAD, n))
    for i, (name, lag) in enumerate(narx.features):
        x = np.zeros((AHEAD, n))
        past = np.zeros(lags.max())
        for j, (other, later) in enumerate(narx.features):
            if other == name and later >= lag and j not in columns:
                x[later - lag : later - lag + 1, j] = 1.0
        if i in columns:
            past[-lag] = 1.0
        future[:, i] = homogeneous.simulate(Segment(x, np.zeros(AHEAD), past))
    metric = gradient_metric(
        regressors, future[np.isfinite(future).all(axis=1)], spread=1.0, power=0.0
    )
    return np.zeros((0, n)) if metric is None else metric[0][metric[1] > LEAST_STATE]


def transfer(
    candidate: Candidate, new: Candidate, regressors: Array, windows: Sequence[Segment]
) -> Candidate:
    """Express the function of a candidate by the points of a new one, by ridge regression at
    regressors (n, p).

    It takes the least ridge with which the free run stays about as good, and zero weights if there
    is none.
    """
    n = len(new.points)
    kernel = new.kernel
    points = new.points
    gram = kernel(points, points)
    moments = np.zeros((n, n))
    right = np.zeros(n)
    for block in (regressors[i : i + BLOCK] for i in range(0, len(regressors), BLOCK)):
        across = kernel(new.scaling.transform(block), points)
        moments += across.T @ across
        right += across.T @ (candidate.predict(block) - candidate.mean(block))
    before = squared_error(candidate, windows)
    for ridge in RIDGES:
        system = moments + ridge * gram + CLOSE * len(regressors) * np.eye(n)
        trial = replace(new, weights=np.linalg.solve(system, right))
        if squared_error(trial, windows) < WORSE * before:
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
    """Replace the points by at most n others, spread over regressors (n, p) in a metric, with
    weights of zero.
    """
    if len(regressors) > POOL:
        regressors = regressors[np.sort(generator.choice(len(regressors), POOL, replace=False))]
    scaling = AffineMap.of_matrix(np.zeros(matrix.shape[1]), matrix)
    unit = kernel.with_scales(1.0, np.ones(len(matrix)))
    coordinates = scaling.transform(regressors)
    points = coordinates[pivots(unit, coordinates, n, CLOSE).chosen]
    return replace(
        candidate,
        scaling=scaling,
        kernel=unit,
        points=points,
        weights=np.zeros(len(points)),
    )
