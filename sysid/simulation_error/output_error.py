"""The free run as a least-squares problem (output error).

The parts, in order: exact sensitivities of a free run (`sensitivity`), the minimisation of a sum of
squares by Levenberg-Marquardt (`minimise_squares`), the least-squares problem (`FreeRunProblem`),
the linear model to begin with (`fit_linear`), and the uncertainty of the function at a minimum
(`latent_variance`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from sysid.arrays import Array, Indices
from sysid.compiled import cached_njit
from sysid.gp.affine_map import AffineMap
from sysid.gp.mean import LinearMean, linear_fit
from sysid.narx.lags import Target
from sysid.simulation.segments import Segment, feedback_of, stack_regressors
from sysid.simulation_error.candidate import (
    Candidate,
    Refusal,
    find_runaway,
    in_threads,
    squared_error,
)
from sysid.time_limit import check_time

# Added to the diagonal of K, relative to the kernel's variance, so that points may coincide [-].
GRAM_JITTER = 1e-9

# Damping of Levenberg-Marquardt, relative to the diagonal of the curvature [-].
FIRST_DAMPING = 1e-3
MIN_DAMPING = 1e-9
# The damping is divided by this factor after an accepted step.
DAMPING_DECREASE = 8.0
# The damping is multiplied by this factor after a rejected step.
DAMPING_INCREASE = 6.0
# Steps that may be rejected in a row.
MAX_REJECTED_STEPS = 12
# Added to the diagonal of the curvature before it is damped.
DIAGONAL_FLOOR = 1e-12

# Factors of the poles of the linear model that are tried in turn; 0 removes all poles [-].
POLE_CONTRACTIONS = (1.0, 0.99, 0.95, 0.9, 0.8, 0.5, 0.0)
# Iterations of Levenberg-Marquardt for the linear model, at most.
MAX_LINEAR_MODEL_ITERATIONS = 20


@cached_njit(nogil=True)
def propagate(slopes, lags, sensitivity):  # type: ignore[no-untyped-def]
    """Turn derivatives of one step into those of the free run, in place.

    With ``y[k] = F(y[k - l_1], ..., y[k - l_q], theta)``, and outputs before the first sample that
    do not depend on theta::

        S[k] = dF[k] / dtheta + sum_i dF[k] / dy[k - l_i]  S[k - l_i],   S[k] = dy[k] / dtheta

    Parameters
    ----------
    slopes : (n, q)
        ``dF[k] / dy[k - l_i]``.
    lags : (q,)
        ``l_i >= 1``.
    sensitivity : (n, P)
        ``dF[k] / dtheta``, C-contiguous; holds S afterwards.
    """
    n, n_parameters = sensitivity.shape
    for k in range(n):
        for i in range(lags.size):
            if k >= lags[i]:
                slope = slopes[k, i]
                earlier = sensitivity[k - lags[i]]
                for j in range(n_parameters):
                    sensitivity[k, j] += slope * earlier[j]


def simulated_regressors(candidate: Candidate, segment: Segment, path: Array) -> Array:
    """Return the regressors (n, p) of a free run with the outputs `path` (n,).

    They are the measured regressors, with simulated in place of measured outputs.
    """
    columns, lags = feedback_of(candidate.narx)
    outputs = np.concatenate([np.nan_to_num(segment.past), path])
    longest = len(segment.past)
    rows = np.arange(len(path))[:, None] + longest - lags
    x = segment.regressors.copy()
    x[:, columns] = outputs[rows]
    return x


def linearise(
    candidate: Candidate, segment: Segment, path: Array, *, moves: bool = False
) -> tuple[Array, Array, Indices]:
    """Linearise every step of a free run.

    A step is ``y[k] = (y[k-1] +) m(x) + sum_j w_j k(W (x - c), z_j)``. Where the output is held at
    one of its limits, all derivatives are zero.

    Parameters
    ----------
    path : (n,)
        Outputs of the free run.
    moves : bool
        Whether the rows of W are parameters too.

    Returns
    -------
    basis : (n, p + 1 + N) or (n, p + 1 + N + q p)
        Derivative of every step with respect to coefficients, intercept and weights, and to the
        rows of W if it moves.
    slopes : (n, q)
        Derivative with respect to the outputs fed back.
    lags : (q,)
        Lags of these outputs.
    """
    x = simulated_regressors(candidate, segment, path)
    columns, lags = feedback_of(candidate.narx)
    ones = np.ones((len(x), 1))
    z = candidate.scaling.transform(x)
    covariances = candidate.kernel(z, candidate.points)
    coordinate_gradient = gradient(candidate, z, covariances)
    mean_slopes = candidate.mean.gradient(x)[:, columns]
    kernel_slopes = coordinate_gradient @ candidate.scaling.linear_part()[:, columns]
    slopes = mean_slopes + kernel_slopes
    if candidate.narx.predict is Target.change:
        slopes = np.hstack([slopes, ones])
        lags = np.append(lags, 1)
    derivatives = [x, ones, covariances]
    if moves:
        centred = (x - candidate.scaling.offset)[:, None]
        by_metric = coordinate_gradient[:, :, None] * centred
        derivatives.append(by_metric.reshape(len(x), -1))
    basis = np.hstack(derivatives)
    low, high = candidate.limits
    is_inside = (path > low) & (path < high)
    basis[~is_inside] = 0.0
    slopes[~is_inside] = 0.0
    return basis, slopes, lags


def sensitivity(
    candidate: Candidate, segment: Segment, path: Array, *, moves: bool = False
) -> Array:
    """Return the derivative of the free run with respect to the parameters of `linearise`."""
    basis, slopes, lags = linearise(candidate, segment, path, moves=moves)
    propagate(np.ascontiguousarray(slopes), lags, basis)
    return basis


def gradient(candidate: Candidate, z: Array, covariances: Array) -> Array:
    """Return ``df/dz`` (n, q) at coordinates z (n, q), for the function f without its mean.

    The covariances (n, N) are those between z and the points.
    """
    if not len(candidate.weights):
        return np.zeros(z.shape)
    return candidate.kernel.weighted_gradient(z, candidate.points, candidate.weights, covariances)


def minimise_squares(
    cost: Callable[[Array], float],
    normal_equations: Callable[[Array], tuple[Array, Array]],
    start: Array,
    *,
    max_iterations: int,
    tolerance: float = 1e-3,
) -> tuple[Array, float, int]:
    """Minimise a sum of squares by damped Gauss-Newton steps (Levenberg-Marquardt).

    A step d solves ``(curvature + damping diag(curvature)) d = descent``. It is rejected, and the
    damping raised, if it does not lower the cost or leads to infinite normal equations. (The free
    run of a window may stay within its bounds while its sensitivities overflow.)

    Parameters
    ----------
    cost
        Sum of squares at x (P,); infinite where it does not exist.
    normal_equations
        Curvature J'J (P, P) and descent J'e (P,), minus half the gradient, of the Gauss-Newton
        model ``cost(x + d) ~ cost(x) - 2 descent'd + d'curvature d`` at an x of finite cost.
    tolerance : float
        The minimisation ends after two steps in a row whose relative decrease of the cost is
        smaller than this [-].

    Returns
    -------
    x : (P,)
    cost : float
        Infinite if the cost or the normal equations are infinite at the start.
    n_iterations : int

    References
    ----------
    D. W. Marquardt, An algorithm for least-squares estimation of nonlinear parameters, 1963.
    """
    x = start
    best = cost(start)
    damping = FIRST_DAMPING
    n_small_steps = 0
    if not np.isfinite(best):
        return start, np.inf, 0
    curvature, descent = normal_equations(x)
    if not np.isfinite(curvature).all():
        return start, np.inf, 0
    for iteration in range(max_iterations):
        check_time()
        diagonal = np.diag(curvature) + DIAGONAL_FLOOR
        for _ in range(MAX_REJECTED_STEPS):
            trial = x + np.linalg.solve(curvature + np.diag(damping * diagonal), descent)
            trial_cost = cost(trial)
            if trial_cost < best:
                trial_curvature, trial_descent = normal_equations(trial)
                if np.isfinite(trial_curvature).all():
                    break
            damping = max(damping, 10 * MIN_DAMPING) * DAMPING_INCREASE
        else:
            return x, best, iteration
        is_small = best - trial_cost < tolerance * best
        n_small_steps = n_small_steps + 1 if is_small else 0
        x = trial
        best = trial_cost
        curvature = trial_curvature
        descent = trial_descent
        damping = max(damping / DAMPING_DECREASE, MIN_DAMPING)
        if n_small_steps == 2:
            return x, best, iteration + 1
    return x, best, max_iterations


class FreeRuns(NamedTuple):
    """Free runs of all windows with the parameters x."""

    x: Array  # (P,)
    candidate: Candidate  # with these parameters
    paths: list[Array]  # (n,) simulated outputs of each window


@dataclass(frozen=True, eq=False)
class FreeRunProblem:
    """Sum of squares ``sum_k (y[k] - yhat[k])^2 + penalty w'Kw``, with yhat the free run.

    The parameters (P,) are, in this order, the coefficients and the intercept of the mean; the
    whitened weights ``v = L'w`` with ``L L' = K``, for which the penalty is ``penalty v'v``; and,
    if the metric moves, the rows of W in the coordinates ``z = W (x - c)``. W selects the
    combinations of lags on which the function depends. The points keep their coordinates.
    """

    candidate: Candidate  # supplies everything except the values of the parameters
    windows: Sequence[Segment]
    penalty: float
    moves: bool = False  # whether the metric is among the parameters
    # the last free runs, if any: normal equations follow a cost of the same parameters
    last: list[FreeRuns] = field(default_factory=list, init=False, repr=False)

    @property
    def n_linear(self) -> int:
        """Number of parameters of the mean."""
        return self.candidate.narx.n_features + 1

    @property
    def of_weights(self) -> slice:
        """Positions of the whitened weights among the parameters."""
        return slice(self.n_linear, self.n_linear + len(self.candidate.points))

    @cached_property
    def unwhitening(self) -> Array:
        """Matrix ``L'^-1`` (N, N) that turns whitened weights into weights: ``w = L'^-1 v``."""
        n = len(self.candidate.points)
        if not n:
            return np.zeros((0, 0))
        gram = self.candidate.kernel(self.candidate.points, self.candidate.points)
        gram[np.diag_indices(n)] += GRAM_JITTER * self.candidate.kernel.variance
        factor = cholesky(gram, lower=True)
        return np.asarray(solve_triangular(factor, np.eye(n), lower=True).T)

    def parameters(self) -> Array:
        """Return the parameters of the candidate."""
        mean = self.candidate.mean
        weights = self.candidate.weights
        whitened = solve_triangular(self.unwhitening, weights) if len(weights) else weights
        metric = self.candidate.scaling.linear_part().ravel() if self.moves else np.zeros(0)
        return np.concatenate([mean.coefficients, [mean.intercept], whitened, metric])

    def at(self, x: Array) -> Candidate:
        """Return the candidate with the parameters x."""
        p = self.n_linear - 1
        mean = LinearMean(x[:p].tolist(), float(x[p]))
        scaling = self.candidate.scaling
        if self.moves:
            matrix = x[self.of_weights.stop :].reshape(-1, p)
            scaling = AffineMap.of_matrix(scaling.offset, matrix)
        weights = self.unwhitening @ x[self.of_weights]
        return replace(self.candidate, mean=mean, weights=weights, scaling=scaling)

    def simulate(self, x: Array) -> FreeRuns:
        """Return the free runs of all windows with the parameters x."""
        if not (self.last and np.array_equal(self.last[0].x, x)):
            candidate = self.at(x)
            paths = list(in_threads(candidate.simulate, self.windows))
            self.last[:] = [FreeRuns(x.copy(), candidate, paths)]
        return self.last[0]

    def cost(self, x: Array) -> float:
        """Return the sum of squares; infinite if a window diverges or a parameter is not finite."""
        if not np.isfinite(x).all():
            return np.inf
        whitened = x[self.of_weights]
        total = self.penalty * float(whitened @ whitened)
        for window, path in zip(self.windows, self.simulate(x).paths, strict=True):
            total += float(np.sum(window.scored(window.values - path) ** 2))
        return total if np.isfinite(total) else np.inf

    def normal_equations(self, x: Array) -> tuple[Array, Array]:
        """Return curvature (P, P) and descent (P,) at x, where the cost must be finite."""
        _, candidate, paths = self.simulate(x)
        weights = self.of_weights
        curvature = np.zeros((len(x), len(x)))
        descent = np.zeros(len(x))

        def products(run: tuple[Segment, Array]) -> tuple[Array, Array]:
            window, path = run
            S = window.scored(sensitivity(candidate, window, path, moves=self.moves))
            error = window.scored(window.values - path)
            with np.errstate(over="ignore", invalid="ignore"):
                return S.T @ S, S.T @ error

        runs = list(zip(self.windows, paths, strict=True))
        for window_curvature, window_descent in in_threads(products, runs):
            curvature += window_curvature
            descent += window_descent
        if not np.isfinite(curvature).all():
            return curvature + np.inf, descent
        curvature = self.whiten(curvature)
        descent[weights] = self.unwhitening.T @ descent[weights]
        curvature[weights, weights] += self.penalty * np.eye(len(self.unwhitening))
        descent[weights] -= self.penalty * x[weights]
        return curvature, descent

    def minimise(self, max_iterations: int) -> tuple[Candidate, float, int]:
        """Minimise by Levenberg-Marquardt; return the candidate, its cost and the iterations."""
        start = self.parameters()
        x, cost, n_iterations = minimise_squares(
            self.cost, self.normal_equations, start, max_iterations=max_iterations
        )
        return self.at(x), cost, n_iterations

    def whiten(self, moments: Array) -> Array:
        """Return second moments (P, P) of the basis for whitened weights.

        The given moments are those for the weights themselves.
        """
        back = self.unwhitening
        weights = self.of_weights
        moments = moments.copy()
        moments[weights] = back.T @ moments[weights]
        moments[:, weights] = moments[:, weights] @ back
        return moments


def fit_linear(
    empty: Candidate, windows: Sequence[Segment], iterations: int = MAX_LINEAR_MODEL_ITERATIONS
) -> tuple[Candidate, float, int]:
    """Minimise the simulation error of a linear model, starting from least squares one step ahead.

    The free run of the least-squares model may diverge. Its poles are then multiplied by a
    contraction c: the coefficient of y[k - l] is multiplied by c^l. For a target that is a change,
    these are the coefficients of ``y[k] = y[k-1] + ...``. The last contraction, 0, leaves only the
    response to the inputs.

    Parameters
    ----------
    empty : Candidate
        Candidate without points; its mean is replaced.
    iterations : int
        Largest number of iterations; 0 keeps the error one step ahead.

    Returns
    -------
    Candidate
        The linear model, without points.
    float
        The contraction; 1 if the free run of the least-squares model is stable.
    int
        Number of iterations.

    Raises
    ------
    Refusal
        Not even the response to the inputs stays within the range of the samples.
    """
    narx = empty.narx
    targets = [narx.predict.of(window.values, window.previous) for window in windows]
    is_measured = np.concatenate([window.measured for window in windows])
    one_step = linear_fit(
        stack_regressors(windows)[is_measured], np.concatenate(targets)[is_measured]
    )
    columns, lags = feedback_of(narx)
    is_previous = (lags == 1) & (narx.predict is Target.change)
    # The least-squares model may be stable where the minimum of the simulation error is not.
    iterations_to_try = [iterations] if iterations == 0 else [iterations, 0]
    for contraction in POLE_CONTRACTIONS:
        coefficients = np.array(one_step.coefficients)
        of_values = coefficients[columns] + is_previous
        coefficients[columns] = of_values * contraction**lags - is_previous
        candidate = replace(empty, mean=LinearMean(coefficients.tolist(), one_step.intercept))
        problem = FreeRunProblem(candidate, windows, penalty=0.0)
        for max_iterations in iterations_to_try:
            linear, cost, n_iterations = problem.minimise(max_iterations)
            if np.isfinite(cost) and not find_runaway(linear, windows):
                return linear, contraction, n_iterations
    raise Refusal(
        "the free run of a linear model diverges, or leaves the range of the samples, "
        "even without its poles"
    )


def free_run_regressors(candidate: Candidate, windows: Sequence[Segment]) -> Array:
    """Return the regressors (n, p) that the free run visits at the scored samples.

    For a window that diverges, they are the measured regressors.
    """
    rows = []
    for window in windows:
        path = candidate.simulate(window)
        x = window.regressors
        if np.isfinite(path).all():
            x = simulated_regressors(candidate, window, path)
        rows.append(x[window.transient :])
    return np.concatenate(rows)


def latent_variance(candidate: Candidate, windows: Sequence[Segment], penalty: float) -> float:
    """Return the mean variance of the function over the free run, by Laplace's approximation.

    The candidate must be a minimum. With ``H = J'J`` of the free run for coefficients, intercept
    and weights, ``A = H + penalty K`` (the penalty applies to the weights only), b the basis at a
    regressor and ``s^2`` the residual variance, this is::

        s^2 b'A^-1 b + v (k(x, x) - k_u' K^-1 k_u),   v = w'Kw / N

    averaged over the regressors. The first term is the uncertainty of the parameters, the second
    the variance that the points cannot represent.

    Raises
    ------
    Refusal
        The sensitivities of the free run overflow: a small change of the parameters changes it
        without bounds.
    """
    problem = FreeRunProblem(candidate, windows, penalty=0.0)
    x = problem.parameters()
    n_linear = problem.n_linear
    curvature, _ = problem.normal_equations(x)
    if not np.isfinite(curvature).all():
        raise Refusal(
            "the sensitivities of the free run overflow: the model is unstable within its bounds"
        )
    penalised = curvature.copy()
    whitened = np.arange(n_linear, len(x))
    penalised[whitened, whitened] += penalty
    inverse = np.linalg.pinv(penalised, hermitian=True)
    moments = np.zeros_like(curvature)
    n_scored = 0
    for window in windows:
        basis, _, _ = linearise(candidate, window, candidate.simulate(window))
        scored = window.scored(basis)
        moments = moments + scored.T @ scored
        n_scored = n_scored + len(scored)
    moments = problem.whiten(moments) / n_scored
    degrees_of_freedom = float(np.sum(inverse * curvature))
    sum_of_squares = squared_error(candidate, windows) * n_scored
    residual_variance = sum_of_squares / max(n_scored - degrees_of_freedom, 1.0)
    weights = x[n_linear:]
    represented = float(np.trace(moments[n_linear:, n_linear:]))
    missing_share = max(candidate.kernel.variance - represented, 0.0)
    unrepresented = missing_share * float(weights @ weights) / max(len(weights), 1)
    return residual_variance * float(np.sum(inverse * moments)) + unrepresented
