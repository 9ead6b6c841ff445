"""The free run as a least-squares problem (output error): sensitivities, Levenberg-Marquardt,
linear models.

The file tells its parts in order: the exact sensitivities of a free run, the minimisation of a sum
of squares (`minimise_squares`), the problem itself (`FreeRunProblem`), the linear model to begin
with (`fit_linear`), and how certain the function at a minimum is (`latent_variance`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numba import njit
from scipy.linalg import cholesky, solve_triangular

from sysid.arrays import Array, Indices
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

JITTER = 1e-9  # of the kernel's variance, on the diagonal of K: coinciding points stay solvable

# of the diagonal [-]
FIRST_DAMPING = 1e-3
LEAST_DAMPING = 1e-9
# factors of the damping after a step that is kept, after one that is refused
LOWERED = 8.0
RAISED = 6.0
TRIALS = 12  # steps that may be refused in a row
FLOOR = 1e-12  # added to the diagonal that is damped

CONTRACTIONS = (
    1.0,
    0.99,
    0.95,
    0.9,
    0.8,
    0.5,
    0.0,
)  # of the poles of the linear model, tried in turn; 0: none are left
LINEAR_ITERATIONS = 20


@njit(cache=True, nogil=True)
def propagate(slopes, lags, sensitivity):  # type: ignore[no-untyped-def]
    """Turn derivatives of one step into those of the free run, in place.

    With ``y[k] = F(y[k - l_1], ..., y[k - l_q], theta)`` and outputs before the first that do not
    depend on theta::

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
    """Regressors (n, p) of a free run: the measured ones with the outputs fed back (n,) in their
    place.
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
    """Linearise every step of the free run ``y[k] = (y[k-1] +) m(x) + sum_j w_j k(W (x - c),
    z_j)``.

    A step that the limits cut off depends on nothing.

    Returns
    -------
    basis : (n, p + 1 + N) or (n, p + 1 + N + q p)
        Derivative of every step with respect to coefficients, intercept and weights, and to the
        rows of W if it moves.
    slopes : (n, q)
        Derivative with respect to the outputs fed back.
    lags : (q,)
    """
    x = simulated_regressors(candidate, segment, path)
    columns, lags = feedback_of(candidate.narx)
    ones = np.ones((len(x), 1))
    z = candidate.scaling.transform(x)
    covariances = candidate.kernel(z, candidate.points)
    of_coordinates = gradient(candidate, z, covariances)
    slopes = (
        candidate.mean.gradient(x)[:, columns]
        + of_coordinates @ candidate.scaling.linear_part()[:, columns]
    )
    if candidate.narx.predict is Target.change:
        slopes = np.hstack([slopes, ones])
        lags = np.append(lags, 1)
    centred = (x - candidate.scaling.offset)[:, None]
    of_metric = [(of_coordinates[:, :, None] * centred).reshape(len(x), -1)] if moves else []
    basis = np.hstack([x, ones, covariances, *of_metric])
    held = ~((path > candidate.limits[0]) & (path < candidate.limits[1]))
    basis[held] = slopes[held] = 0.0
    return basis, slopes, lags


def sensitivity(
    candidate: Candidate, segment: Segment, path: Array, *, moves: bool = False
) -> Array:
    """Return the derivative of the free run with respect to the parameters of `linearise`."""
    basis, slopes, lags = linearise(candidate, segment, path, moves=moves)
    propagate(np.ascontiguousarray(slopes), lags, basis)
    return basis


def gradient(candidate: Candidate, z: Array, covariances: Array) -> Array:
    """``df/dz`` (n, q) of the function of a candidate without its mean, at coordinates z (n, q).

    The covariances (n, N) are those of z and the points.
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
    """Minimise a sum of squares by damped Gauss-Newton steps, ``(curvature + damping
    diag(curvature)) d = descent``.

    A step that does not lower the cost is refused, and so is one to where the cost or the normal
    equations are infinite (the free run of a window stays within its bounds while its sensitivities
    overflow): the damping is raised (Levenberg-Marquardt; Marquardt, An algorithm for least-squares
    estimation of nonlinear parameters, 1963).

    Parameters
    ----------
    cost
        Sum of squares at x (P,); infinite where it does not exist.
    normal_equations
        Curvature J'J (P, P) and descent J'e (P,), minus half the gradient, of the Gauss-Newton
        model ``cost(x + d) ~ cost(x) - 2 descent'd + d'curvature d`` at an x of finite cost.
    tolerance : float
        Relative decrease of the cost, missed twice in a row, at which the minimisation ends [-].

    Returns
    -------
    x : (P,)
    cost : float
        Infinite if it, or the normal equations, are so at the start.
    n_iterations : int
    """
    x = start
    best = cost(start)
    damping = FIRST_DAMPING
    small = 0
    if not np.isfinite(best):
        return start, np.inf, 0
    curvature, descent = normal_equations(x)
    if not np.isfinite(curvature).all():
        return start, np.inf, 0
    for iteration in range(max_iterations):
        diagonal = np.diag(curvature) + FLOOR
        for _ in range(TRIALS):
            trial = x + np.linalg.solve(curvature + np.diag(damping * diagonal), descent)
            lowered = cost(trial)
            if lowered < best:
                found = normal_equations(trial)
                if np.isfinite(found[0]).all():
                    break
            damping = max(damping, 10 * LEAST_DAMPING) * RAISED
        else:
            return x, best, iteration
        small = small + 1 if best - lowered < tolerance * best else 0
        x = trial
        best = lowered
        damping = max(damping / LOWERED, LEAST_DAMPING)
        curvature, descent = found
        if small == 2:
            return x, best, iteration + 1
    return x, best, max_iterations


@dataclass(frozen=True, eq=False)
class FreeRunProblem:
    """The sum of squares ``sum_k (y[k] - yhat[k])^2 + penalty w'Kw`` of linear part and weights,
    yhat the free run.

    The parameters (P,) are the coefficients and the intercept of the mean, then the whitened
    weights ``v = L'w`` with ``L L' = K``, for which the penalty is ``penalty v'v``, and, if the
    metric moves, the rows of W in the coordinates ``z = W (x - c)``, in which the points stay where
    they are: the combinations of lags on which the function depends.
    """

    candidate: Candidate  # everything but the values of the parameters
    windows: Sequence[Segment]
    penalty: float
    moves: bool = False  # whether the metric is among the parameters

    @property
    def n_linear(self) -> int:
        """Number of parameters of the mean."""
        return self.candidate.narx.n_features + 1

    @property
    def of_weights(self) -> slice:
        """Parameters that are whitened weights."""
        return slice(self.n_linear, self.n_linear + len(self.candidate.points))

    @cached_property
    def unwhitening(self) -> Array:
        """``L'^-1`` (N, N): ``w = L'^-1 v``."""
        n = len(self.candidate.points)
        if not n:
            return np.zeros((0, 0))
        gram = self.candidate.kernel(self.candidate.points, self.candidate.points)
        gram[np.diag_indices(n)] += JITTER * self.candidate.kernel.variance
        return np.asarray(solve_triangular(cholesky(gram, lower=True), np.eye(n), lower=True).T)

    def parameters(self) -> Array:
        """Parameters of the candidate."""
        mean = self.candidate.mean
        weights = self.candidate.weights
        whitened = solve_triangular(self.unwhitening, weights) if len(weights) else weights
        metric = self.candidate.scaling.linear_part().ravel() if self.moves else np.zeros(0)
        return np.concatenate([mean.coefficients, [mean.intercept], whitened, metric])

    def at(self, x: Array) -> Candidate:
        """Candidate of the parameters x."""
        mean = LinearMean(x[: self.n_linear - 1].tolist(), float(x[self.n_linear - 1]))
        scaling = self.candidate.scaling
        p = self.n_linear - 1
        if self.moves:
            scaling = AffineMap.of_matrix(scaling.offset, x[self.of_weights.stop :].reshape(-1, p))
        return replace(
            self.candidate,
            mean=mean,
            weights=self.unwhitening @ x[self.of_weights],
            scaling=scaling,
        )

    def cost(self, x: Array) -> float:
        """Return the sum of squares; infinite if a window diverges or a parameter is not finite."""
        if not np.isfinite(x).all():
            return np.inf
        candidate = self.at(x)
        whitened = x[self.of_weights]

        def square(window: Segment) -> float:
            return float(
                np.sum((window.values - candidate.simulate(window))[window.transient :] ** 2)
            )

        total = sum(in_threads(square, self.windows), self.penalty * float(whitened @ whitened))
        return total if np.isfinite(total) else np.inf

    def normal_equations(self, x: Array) -> tuple[Array, Array]:
        """Curvature (P, P) and descent (P,) at x, where the cost is finite, window by window."""
        candidate = self.at(x)
        weights = self.of_weights
        curvature = np.zeros((len(x), len(x)))
        descent = np.zeros(len(x))

        def products(window: Segment) -> tuple[Array, Array]:
            path = candidate.simulate(window)
            S = sensitivity(candidate, window, path, moves=self.moves)[window.transient :]
            with np.errstate(over="ignore", invalid="ignore"):
                return S.T @ S, S.T @ (window.values - path)[window.transient :]

        for square, product in in_threads(products, self.windows):
            curvature += square
            descent += product
        if not np.isfinite(curvature).all():
            return curvature + np.inf, descent
        curvature, descent[weights] = (
            self.whiten(curvature),
            self.unwhitening.T @ descent[weights],
        )
        curvature[weights, weights] += self.penalty * np.eye(len(self.unwhitening))
        descent[weights] -= self.penalty * x[weights]
        return curvature, descent

    def minimise(self, max_iterations: int) -> tuple[Candidate, float, int]:
        """Candidate at the minimum by Levenberg-Marquardt, its cost, and the number of
        iterations.
        """
        start = self.parameters()
        x, cost, n_iterations = minimise_squares(
            self.cost, self.normal_equations, start, max_iterations=max_iterations
        )
        return self.at(x), cost, n_iterations

    def whiten(self, moments: Array) -> Array:
        """Turn second moments (P, P) of the basis into those for whitened weights."""
        back = self.unwhitening
        weights = self.of_weights
        moments = moments.copy()
        moments[weights] = back.T @ moments[weights]
        moments[:, weights] = moments[:, weights] @ back
        return moments


def fit_linear(
    empty: Candidate, windows: Sequence[Segment], iterations: int = LINEAR_ITERATIONS
) -> tuple[Candidate, float, int]:
    """Minimise the simulation error of a linear model, from least squares one step ahead.

    Least squares may leave a model whose free run diverges. Its poles are then multiplied by a
    contraction c: the coefficient of y[k - l] is multiplied by c^l; for a target that is a change,
    that of ``y[k] = y[k-1] + ...``. The last contraction, 0, leaves the response to the inputs
    alone.

    Parameters
    ----------
    empty : Candidate
        Without points; its mean is replaced.

    Returns
    -------
    Candidate
        Without points.
    float
        The contraction; 1 if the free run of the least squares is stable.
    int
        Number of iterations.

    Raises
    ------
    Refusal
        Not even the response to the inputs stays within the range of the samples.
    """
    narx = empty.narx
    targets = [narx.predict.of(window.values, window.previous) for window in windows]
    one_step = linear_fit(stack_regressors(windows), np.concatenate(targets))
    columns, lags = feedback_of(narx)
    is_previous = (lags == 1) & (narx.predict is Target.change)
    for contraction in CONTRACTIONS:
        coefficients = np.array(one_step.coefficients)
        coefficients[columns] = (
            coefficients[columns] + is_previous
        ) * contraction**lags - is_previous
        candidate = replace(empty, mean=LinearMean(coefficients.tolist(), one_step.intercept))
        for most in {
            iterations: None,
            0: None,
        }:  # least squares may be stable where the minimum is not
            found, cost, n_iterations = FreeRunProblem(candidate, windows, penalty=0.0).minimise(
                most
            )
            if np.isfinite(cost) and not find_runaway(found, windows):
                return found, contraction, n_iterations
    raise Refusal(
        "the free run of a linear model diverges, or leaves the range of the samples, even without its poles"
    )


def free_run_regressors(candidate: Candidate, windows: Sequence[Segment]) -> Array:
    """Regressors (n, p) that the free run visits at the scored samples; the measured ones of a
    window that diverges.
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
    """Mean variance of the function over the free run, by Laplace's approximation at a minimum.

    With ``H = J'J`` of the free run, ``A = H + penalty K`` (both of coefficients, intercept and
    weights, of which the penalty takes the weights only), b the basis at a regressor and ``s^2``
    the residual variance::

        s^2 b'A^-1 b + v (k(x, x) - k_u' K^-1 k_u),   v = w'Kw / N

    averaged over the regressors: what the samples leave open, and what the points cannot represent.

    Raises
    ------
    Refusal
        Sensitivities of the free run that overflow: a small change of the parameters changes it
        without bounds.
    """
    problem = FreeRunProblem(candidate, windows, penalty=0.0)
    x = problem.parameters()
    n_linear = problem.n_linear
    free, _ = problem.normal_equations(x)
    if not np.isfinite(free).all():
        raise Refusal(
            "the sensitivities of the free run overflow: the model is unstable within its bounds"
        )
    penalised = free.copy()
    whitened = np.arange(n_linear, len(x))
    penalised[whitened, whitened] += penalty
    inverse = np.linalg.pinv(penalised, hermitian=True)
    moments = np.zeros_like(free)
    n_scored = 0
    for window in windows:
        basis = linearise(candidate, window, candidate.simulate(window))[0][window.transient :]
        moments = moments + basis.T @ basis
        n_scored = n_scored + len(basis)
    moments = problem.whiten(moments) / n_scored
    used = float(np.sum(inverse * free))
    residual = squared_error(candidate, windows) * n_scored / max(n_scored - used, 1.0)
    weights = x[n_linear:]
    represented = float(np.trace(moments[n_linear:, n_linear:]))
    unrepresented = (
        max(candidate.kernel.variance - represented, 0.0)
        * float(weights @ weights)
        / max(len(weights), 1)
    )
    return residual * float(np.sum(inverse * moments)) + unrepresented
