"""A model in the making: a function of the regressors as a sum of kernels, which can be simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid.feature_map import FeatureMap
from sysid.kernels import Stationary
from sysid.marginal_likelihood import Hyperparameters
from sysid.mean import LinearMean
from sysid.mean_path import MeanMap, run
from sysid.narx import Narx, Target
from sysid.output_error.increasing import reached
from sysid.output_error.segment import Segment, feedback_of
from sysid.start import Points, Start
from sysid.state import LEAST_NOISE

Array = NDArray[np.float64]

FARTHEST = 1e50  # bound of a free run where none is known; squares of it are still numbers
MARGIN = 10.0  # of the smallest noise that double precision can hold beside the variance [-]
BLOCK = 4096  # rows of covariances that are held at a time
SMALLEST_FACTOR = 1e-15  # of the largest factor of a kernel's variance [-]
LARGEST = 1e6  # noise variance, variance of the kernel [-]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Function ``f(x) = m(x) + sum_j w_j k(z(x), z_j)`` of a target, with what a simulation needs.

    Parameters
    ----------
    narx : Narx
    scaling : FeatureMap
        z(x), from features to coordinates.
    mean : LinearMean
        m, of features in their own units.
    kernel : Stationary
    points : (N, q)
        Coordinates z_j.
    weights : (N,)
        w_j, unit of the target over that of the kernel.
    limits : (2,)
        Between which the output saturates, its unit; infinite for none.
    bounds : (2,)
        Outside of which a free run has diverged, output unit.
    """

    narx: Narx
    scaling: FeatureMap
    mean: LinearMean
    kernel: Stationary
    points: Array
    weights: Array
    limits: tuple[float, float] = (-np.inf, np.inf)
    bounds: tuple[float, float] = (-FARTHEST, FARTHEST)

    @cached_property
    def mean_map(self) -> MeanMap:
        """Arrays for the compiled free run of the one output that is fed back."""
        columns, lags = feedback_of(self.narx)
        origin = np.zeros((1, self.narx.n_features))
        return MeanMap(
            kernels=np.array([self.kernel.address]),
            parameters=self.kernel.parameters()[None],
            points=np.ascontiguousarray(self.points.T)[None],
            weights=self.weights[None],
            n_coordinates=np.array([self.scaling.n_coordinates]),
            n_points=np.array([len(self.weights)]),
            intercept=self.mean(origin),
            slopes=self.mean.gradient(origin),
            offset=self.scaling.offset[None],
            matrix=np.ascontiguousarray(self.scaling.linear_part())[None],
            feedback=columns,
            row=lags.max() - lags,
            column=np.zeros(len(lags), dtype=np.int64),
            is_change=self.narx.predict is Target.change,
            lowest=np.array([self.limits[0]]),
            highest=np.array([self.limits[1]]),
        )

    def simulate(self, segment: Segment, start: int = 0) -> Array:
        """Output (n - start,) from the sample `start` on, from the outputs measured before it; nan once diverged."""
        part = segment.part(start, len(segment.values))
        longest = len(part.past)
        path = np.zeros((1, longest + len(part.values), 1))
        path[0, :longest, 0] = np.nan_to_num(part.past)  # where no feature needs it
        done, (low, high) = np.zeros(1, dtype=np.int64), self.bounds
        exogenous = np.ascontiguousarray(part.regressors)[None]
        run(self.mean_map, np.array([low]), np.array([high]), exogenous, path, done)
        output = path[0, longest:, 0]
        output[int(done[0]) :] = np.nan
        return output

    def predict(self, regressors: Array) -> Array:
        """Mean (n,) of the target at regressors (n, p)."""
        z = self.scaling.transform(regressors)
        blocks = [self.kernel(z[i : i + BLOCK], self.points) @ self.weights for i in range(0, len(z), BLOCK)]
        return np.asarray(self.mean(regressors) + np.concatenate([np.zeros(0), *blocks]))

    def start(self, noise_variance: float, latent_variance: float, regressors: Array) -> Start:
        """What an online GP of the same mean function starts from.

        The points get the targets ``t = (c K + noise_variance I) w / c``: whatever the noise and the factor c of the
        kernel's variance, their posterior mean is the function of this candidate. The factor is the one with which
        the mean latent variance over regressors (n, p) is `latent_variance`, as far as double precision allows.

        Parameters
        ----------
        noise_variance, latent_variance : float
            Target unit squared; > 0.
        """
        factor = self.factor(noise_variance, latent_variance, regressors)
        kernel, weights = replace(self.kernel, variance=factor * self.kernel.variance), self.weights / factor
        targets = kernel(self.points, self.points) @ weights + noise_variance * weights
        hyperparameters = Hyperparameters(kernel, noise_variance, float("nan"))
        points = Points(np.array(self.points), targets)
        return Start(self.scaling, self.mean, hyperparameters, points, limits=self.limits)

    def expanded(self, points: Array, weights: Array) -> Candidate:
        """The same with other points (N, q) and their weights (N,)."""
        return replace(self, points=points, weights=weights)

    def factor(self, noise_variance: float, latent_variance: float, regressors: Array) -> float:
        """Factor c of the kernel's variance with which the mean latent variance is this one; see `start`."""
        solve = self._mean_variance(regressors)
        most = noise_variance / (MARGIN * LEAST_NOISE * self.kernel.variance)
        return reached(lambda c: solve(noise_variance, c), latent_variance, SMALLEST_FACTOR * most, most)

    def noise_for(self, latent_variance: float, regressors: Array) -> float:
        """Noise variance with which the mean latent variance over regressors (n, p) is this one, kernel as it is."""
        solve, unit = self._mean_variance(regressors), self.kernel.variance
        return reached(lambda noise: solve(noise, 1.0), latent_variance, MARGIN * LEAST_NOISE * unit, LARGEST * unit)

    def latent_variance(self, noise_variance: float, regressors: Array) -> float:
        """Mean latent variance over regressors (n, p) with this noise, kernel as it is."""
        return self._mean_variance(regressors)(noise_variance, 1.0)

    def _mean_variance(self, regressors: Array) -> Callable[[float, float], float]:
        """Mean latent variance over regressors (n, p) as a function of noise variance and factor c.

        ``c k(x, x) - c^2 k(x, Z) (c K + s I)^-1 k(Z, x)`` by the eigenvalues of K = Q diag(l) Q'.
        """
        values, vectors = np.linalg.eigh(self.kernel(self.points, self.points))
        inputs, seen = self.scaling.transform(regressors), np.zeros(len(values))
        for i in range(0, len(inputs), BLOCK):
            seen += np.sum((self.kernel(inputs[i : i + BLOCK], self.points) @ vectors) ** 2, axis=0)
        values, seen = np.maximum(values, 0.0), seen / len(inputs)

        def solve(noise_variance: float, factor: float) -> float:
            explained = float(np.sum(factor**2 * seen / (factor * values + noise_variance)))
            return factor * self.kernel.variance - explained

        return solve


def squared_error(candidate: Candidate, segments: Sequence[Segment]) -> float:
    """Mean squared error of the free run over each segment, output unit squared; infinite if one diverges."""
    errors = np.concatenate([candidate.simulate(segment) - segment.values for segment in segments])
    return float(np.mean(errors**2)) if np.isfinite(errors).all() else np.inf
