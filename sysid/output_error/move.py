"""A function moved to other points in another metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid.feature_map import FeatureMap
from sysid.kernels import Stationary
from sysid.output_error.candidate import Candidate
from sysid.output_error.free_run_problem import mean_square, simulated_regressors
from sysid.output_error.pivot import pivots
from sysid.output_error.window import Window

Array = NDArray[np.float64]

BLOCK = 4096  # regressors whose covariances are held at a time
POOL = 4000  # regressors among which points are chosen
CLOSE = 1e-8  # least variance given the earlier points that a point must have, and ridge of the regression [-]
RIDGES = 10.0 ** np.arange(-5, 4)  # tried in turn until a function that is moved to other points stays stable
WORSE = 25.0  # the mean square of a moved function may be so much larger before its weights are refined [-]


def moved(
    candidate: Candidate,
    scaling: FeatureMap,
    kernel: Stationary,
    windows: Sequence[Window],
    n_points: int,
    generator: np.random.Generator,
) -> Candidate:
    """The same function on other points in another metric, by ridge regression over the free run.

    The least ridge is taken with which the free run stays about as good; zero weights if there is none.
    """
    x = free_run_regressors(candidate, windows)
    points = spread_points(kernel, scaling, x, n_points, generator)
    gram, moments, right = kernel(points, points), np.zeros((len(points), len(points))), np.zeros(len(points))
    for block in (x[i : i + BLOCK] for i in range(0, len(x), BLOCK)):
        across = kernel(scaling.transform(block), points)
        moments += across.T @ across
        right += across.T @ (candidate.predict(block) - candidate.mean(block))
    before = mean_square(candidate, windows)
    new = replace(candidate, scaling=scaling, kernel=kernel, points=points, weights=np.zeros(len(points)))
    for ridge in RIDGES:
        system = moments + ridge * gram + CLOSE * len(x) * np.eye(len(points))
        trial = replace(new, weights=np.linalg.solve(system, right))
        if mean_square(trial, windows) < WORSE * before:
            return trial
    return new


def spread_points(
    kernel: Stationary, scaling: FeatureMap, regressors: Array, n_points: int, generator: np.random.Generator
) -> Array:
    """Coordinates of at most so many of the regressors (n, p), each where the variance given the others is largest."""
    if len(regressors) > POOL:
        regressors = regressors[np.sort(generator.choice(len(regressors), POOL, replace=False))]
    coordinates = scaling.transform(regressors)
    return np.asarray(coordinates[pivots(kernel, coordinates, n_points, CLOSE).chosen])


def free_run_regressors(candidate: Candidate, windows: Sequence[Window]) -> Array:
    """Regressors (n, p) that the free run visits at the scored samples; the measured ones of a window that diverges."""
    rows = []
    for window in windows:
        path, x = candidate.simulate(window.segment), window.segment.regressors
        if np.isfinite(path).all():
            x = simulated_regressors(candidate, window.segment, path)
        rows.append(x[window.scored])
    return np.concatenate(rows)
