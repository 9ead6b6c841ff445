"""The error of the free run as a sum of squares of the weights of a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from sysid.mean import LinearMean
from sysid.narx import Target
from sysid.output_error.candidate import Candidate
from sysid.output_error.levenberg_marquardt import NormalEquations, SquaresProblem
from sysid.output_error.segment import Segment, feedback_of
from sysid.output_error.sensitivity import free_run_sensitivity
from sysid.output_error.window import Window

Array = NDArray[np.float64]

JITTER = 1e-9  # of the kernel's variance, on the diagonal of K: coinciding points stay solvable


class Step(NamedTuple):
    """One step of a free run, linearised at its own regressors."""

    basis: Array  # (n, p + 1 + N) derivative with respect to coefficients, intercept and weights
    slopes: Array  # (n, q) with respect to the outputs fed back
    lags: NDArray[np.int64]  # (q,)


def simulated_regressors(candidate: Candidate, segment: Segment, path: Array) -> Array:
    """Regressors (n, p) of a free run: the measured ones with the outputs fed back (n,) in their place."""
    columns, lags = feedback_of(candidate.narx)
    outputs, longest = np.concatenate([np.nan_to_num(segment.past), path]), len(segment.past)
    rows = np.arange(len(path))[:, None] + longest - lags
    x = segment.regressors.copy()
    x[:, columns] = outputs[rows]
    return x


def linearised(candidate: Candidate, segment: Segment, path: Array) -> Step:
    """One step of the free run ``y[k] = (y[k-1] +) m(x) + sum_j w_j k(z(x), z_j)`` at its regressors.

    A step that the limits cut off depends on nothing.
    """
    x = simulated_regressors(candidate, segment, path)
    columns, lags = feedback_of(candidate.narx)
    z, ones = candidate.scaling.transform(x), np.ones((len(x), 1))
    covariances = candidate.kernel(z, candidate.points)
    slopes = gradient(candidate, x)[:, columns]
    if candidate.narx.predict is Target.change:
        slopes, lags = np.hstack([slopes, ones]), np.append(lags, 1)
    is_free = (path > candidate.limits[0]) & (path < candidate.limits[1])
    basis = np.hstack([x, ones, covariances])
    return Step(np.where(is_free[:, None], basis, 0.0), np.where(is_free[:, None], slopes, 0.0), lags)


def gradient(candidate: Candidate, regressors: Array, *, mean: bool = True) -> Array:
    """``df/dx`` (n, p) of the function of a candidate, with or without its mean, at regressors (n, p)."""
    z = candidate.scaling.transform(regressors)
    slopes = np.zeros((len(z), z.shape[1]))
    if len(candidate.weights):
        slopes = candidate.kernel.weighted_gradient(z, candidate.points, candidate.weights)
    slopes = slopes @ candidate.scaling.linear_part()
    return np.asarray(slopes + candidate.mean.gradient(regressors)) if mean else slopes


@dataclass(frozen=True, eq=False)
class FreeRunProblem(SquaresProblem):
    """Minimise ``sum_k (y[k] - yhat[k])^2 + penalty w'Kw`` over linear part and weights, yhat the free run.

    The parameters (P,) are the coefficients and the intercept of the mean, then the whitened weights
    ``v = L'w`` with ``L L' = K``, for which the penalty is ``penalty v'v``.
    """

    candidate: Candidate  # everything but the values of the parameters
    windows: Sequence[Window]
    penalty: float

    @cached_property
    def unwhitening(self) -> Array:
        """``L'^-1`` (N, N): ``w = L'^-1 v``."""
        n = len(self.candidate.points)
        if not n:
            return np.zeros((0, 0))
        gram = self.candidate.kernel(self.candidate.points, self.candidate.points)
        gram[np.diag_indices(n)] += JITTER * self.candidate.kernel.variance
        return np.asarray(solve_triangular(cholesky(gram, lower=True), np.eye(n), lower=True).T)

    @property
    def n_linear(self) -> int:
        """Parameters of the mean."""
        return self.candidate.narx.n_features + 1

    def parameters(self) -> Array:
        """Those of the candidate."""
        mean, weights = self.candidate.mean, self.candidate.weights
        whitened = solve_triangular(self.unwhitening, weights) if len(weights) else weights
        return np.concatenate([mean.coefficients, [mean.intercept], whitened])

    def at(self, x: Array) -> Candidate:
        """Candidate with these parameters."""
        mean = LinearMean(x[: self.n_linear - 1].tolist(), float(x[self.n_linear - 1]))
        return replace(self.candidate, mean=mean, weights=self.unwhitening @ x[self.n_linear :])

    def cost(self, x: Array) -> float:
        """See the class; infinite if a window diverges."""
        candidate, whitened = self.at(x), x[self.n_linear :]
        total = self.penalty * float(whitened @ whitened)
        for window in self.windows:
            total += float(np.sum(residuals(candidate, window) ** 2))
        return total if np.isfinite(total) else np.inf

    def normal_equations(self, x: Array) -> NormalEquations:
        """J'J and J'e, window by window."""
        curvature, descent = self.unpenalised(x)
        whitened = np.arange(self.n_linear, len(x))
        curvature[whitened, whitened] += self.penalty
        descent[whitened] -= self.penalty * x[whitened]
        return NormalEquations(curvature, descent)

    def unpenalised(self, x: Array) -> NormalEquations:
        """The same without the penalty."""
        candidate = self.at(x)
        curvature, descent = np.zeros((len(x), len(x))), np.zeros(len(x))
        for window in self.windows:
            path = candidate.simulate(window.segment)
            step = linearised(candidate, window.segment, path)
            sensitivity = free_run_sensitivity(step.slopes, step.lags, step.basis)[window.scored]
            curvature += sensitivity.T @ sensitivity
            descent += sensitivity.T @ (window.segment.values - path)[window.scored]
        return NormalEquations(self.whitened(curvature), self.whitened_row(descent))

    def whitened(self, moments: Array) -> Array:
        """Second moments (P, P) of the basis, for whitened weights."""
        back, n = self.unwhitening, self.n_linear
        moments = moments.copy()
        moments[n:] = back.T @ moments[n:]
        moments[:, n:] = moments[:, n:] @ back
        return moments

    def whitened_row(self, row: Array) -> Array:
        """A row (P,) of the basis, for whitened weights."""
        return np.concatenate([row[: self.n_linear], self.unwhitening.T @ row[self.n_linear :]])


def residuals(candidate: Candidate, window: Window) -> Array:
    """Errors of the free run at the scored samples; not finite if it diverges."""
    return np.asarray((window.segment.values - candidate.simulate(window.segment))[window.scored])


def mean_square(candidate: Candidate, windows: Sequence[Window]) -> float:
    """Mean squared error of the free run over the scored samples, infinite if it diverges."""
    errors = np.concatenate([residuals(candidate, window) for window in windows])
    return float(np.mean(errors**2)) if np.isfinite(errors).all() else np.inf
