"""Free runs of one function that are split into a measured and a fed-back part (`SplitFeatures`).

A search simulates the same samples again and again, with other weights or other length scales. Only
a few features of a regressor are outputs that the simulation feeds back; the others are measured.
What they add to the distances from the points is computed for all samples at once, by a product of
matrices, and what they add to the mean by another one. The loop over the samples is left with the
outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sysid.arrays import Array
from sysid.compiled import cached_njit
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import covariances
from sysid.gp.kernels import Stationary
from sysid.narx.lags import Narx, Target
from sysid.simulation.segments import Limits, Segment, feedback_of


@cached_njit(nogil=True)
def _simulate(  # type: ignore[no-untyped-def]
    kernel,
    parameters,
    known_distances,
    points,
    matrix,
    offset,
    weights,
    slopes,
    known_means,
    lags,
    is_change,
    limits,
    bounds,
    path,
):
    """Fill a path sample by sample; return the number of steps before it leaves the bounds.

    Parameters
    ----------
    kernel, parameters
        Address and parameters of the kernel as a function of the scaled distance r.
    known_distances : (n, N)
        What the measured coordinates add to the squared scaled distances from the points.
    points : (c, N)
        Fed-back coordinates of the points, in length scales.
    matrix : (c, q)
        Map of the fed-back outputs to these coordinates.
    offset : (q,)
        Outputs at which these coordinates are 0.
    weights : (N,)
    slopes : (q,)
        Slopes of the mean along the fed-back outputs.
    known_means : (n,)
        What the measured features add to the mean, with the intercept.
    lags : (q,)
        Lags of the fed-back outputs.
    is_change : bool
        Whether the function is the change of the output.
    limits, bounds : (2,)
        Values at which the output saturates, and between which it must stay.
    path : (L + n,)
        The first L outputs are given, the others are written.
    """
    n_steps, n_points = known_distances.shape
    n_before = path.size - n_steps
    n_fed_back = lags.size
    n_coordinates = points.shape[0]
    distances = np.empty((1, n_points))
    covariance = np.empty(n_points)
    origin = np.zeros(1)
    for t in range(n_steps):
        k = n_before + t
        value = known_means[t]
        for i in range(n_fed_back):
            value += slopes[i] * path[k - lags[i]]
        for j in range(n_points):
            distances[0, j] = known_distances[t, j]
        for c in range(n_coordinates):
            z = 0.0
            for i in range(n_fed_back):
                z += matrix[c, i] * (path[k - lags[i]] - offset[i])
            for j in range(n_points):
                difference = points[c, j] - z
                distances[0, j] += difference * difference
        for j in range(n_points):
            distances[0, j] = np.sqrt(distances[0, j])
        covariances(kernel, parameters, distances, n_points, origin, covariance)
        for j in range(n_points):
            value += weights[j] * covariance[j]
        if is_change:
            value += path[k - 1]
        value = min(max(value, limits[0]), limits[1])
        path[k] = value
        if not bounds[0] < value < bounds[1]:
            return t
    return n_steps


class SplitFeatures:
    """Regressors of the samples that are simulated, split into fed-back outputs and the rest.

    No coordinate may mix fed-back outputs with other features.

    Parameters
    ----------
    narx : Narx
    scaling : AffineMap
        From features to coordinates.
    regressors : (n, p)
        Measured regressors of all samples.
    limits, bounds : (2,)
        Values at which the output saturates, and outside of which a simulation has diverged.
    """

    def __init__(
        self,
        narx: Narx,
        scaling: AffineMap,
        regressors: Array,
        limits: Limits,
        bounds: tuple[float, float],
    ) -> None:
        self.fed_back_columns, self.lags = feedback_of(narx)
        self.is_change = narx.predict is Target.change
        matrix = scaling.linear_part()
        self.is_fed_back = matrix[:, self.fed_back_columns].any(axis=1)  # of each coordinate
        self.matrix = matrix[self.is_fed_back][:, self.fed_back_columns]
        self.offset = np.ascontiguousarray(scaling.offset[self.fed_back_columns])
        self.known_coordinates = scaling.transform(regressors)[:, ~self.is_fed_back]
        self.known_columns = np.setdiff1d(np.arange(narx.n_features), self.fed_back_columns)
        self.known_features = np.ascontiguousarray(regressors[:, self.known_columns])
        self.limits = np.array(limits)
        self.bounds = np.array(bounds)

    def at(self, kernel: Stationary, points: Array) -> SplitKernel:
        """Return the simulations of functions with this kernel and these points (N, c)."""
        lengths = np.asarray(kernel.length_scales)
        known_lengths = lengths[~self.is_fed_back]
        fed_back_lengths = lengths[self.is_fed_back]
        known_distances = squared_distances(
            self.known_coordinates / known_lengths, points[:, ~self.is_fed_back] / known_lengths
        )
        of_distance = kernel.with_scales(kernel.variance, np.ones(1))
        return SplitKernel(
            features=self,
            kernel=of_distance.address,
            parameters=of_distance.parameters(),
            known_distances=known_distances,
            points=np.ascontiguousarray((points[:, self.is_fed_back] / fed_back_lengths).T),
            matrix=np.ascontiguousarray(self.matrix / fed_back_lengths[:, None]),
        )


@dataclass(frozen=True, eq=False)
class SplitKernel:
    """Kernel and points of functions that are simulated; see `_simulate` for the arrays."""

    features: SplitFeatures
    kernel: Any  # address
    parameters: Array
    known_distances: Array  # (n, N) of all samples
    points: Array
    matrix: Array

    def simulate(
        self, slopes: Array, intercept: float, weights: Array, segment: Segment, rows: slice
    ) -> Array:
        """Return the simulated output (m,) of a segment; if it diverges, nan from there on.

        Parameters
        ----------
        slopes : (p,)
        intercept : float
            Of the mean, a linear function of the features.
        weights : (N,)
            Of the points.
        segment : Segment
        rows : slice
            The m samples of the segment among those of `SplitFeatures`.
        """
        features = self.features
        known_slopes = slopes[features.known_columns]
        known_means = features.known_features[rows] @ known_slopes + intercept
        longest = len(segment.past)
        path = np.zeros(longest + len(segment.values))
        # nan where no feature needs the output
        path[:longest] = np.where(np.isnan(segment.past), 0.0, segment.past)
        n_done = _simulate(
            self.kernel,
            self.parameters,
            self.known_distances[rows],
            self.points,
            self.matrix,
            features.offset,
            weights,
            slopes[features.fed_back_columns],
            known_means,
            features.lags,
            features.is_change,
            features.limits,
            features.bounds,
            path,
        )
        output = path[longest:]
        output[n_done:] = np.nan
        return output


def squared_distances(first: Array, second: Array) -> Array:
    """Return ``|a_i - b_j|^2`` (m, n) of the rows of first (m, c) and second (n, c).

    By a product of matrices, ``|a|^2 + |b|^2 - 2 a'b``, which is at least 0 after rounding.
    """
    squares = first @ second.T
    squares *= -2.0
    squares += np.einsum("ij,ij->i", first, first)[:, None]
    squares += np.einsum("ij,ij->i", second, second)
    return np.asarray(np.maximum(squares, 0.0, out=squares))
