"""Refinement: linear part, kernel weights and metric that minimise the simulation error by Levenberg-Marquardt.

The file tells its parts in order: the windows of the records that are simulated, standard units, the free run as a
least-squares problem with exact sensitivities (`FreeRunProblem`), its minimisation (`minimise_squares`), the linear
model to begin with (`fit_linear`), the metric that a function chooses by its own gradient (`gradient_metric`), the
transfer of a function to other points in another metric (`transfer`), how certain it is (`latent_variance`), and the
stages of it all (`OutputErrorRefinement`, `_Stages`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import cholesky, solve_triangular

from sysid.arrays import Array, Indices, check_counts
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Matern52, Stationary
from sysid.gp.mean import LinearMean, linear_fit
from sysid.narx.lags import Narx, Target
from sysid.simulation.dynamics import FARTHEST
from sysid.simulation.segments import Limits, Segment, feedback_of, n_samples, scale_signals, stack_regressors
from sysid.simulation_error.candidate import (
    BLOCK,
    Candidate,
    Estimator,
    FitResult,
    Refusal,
    find_runaway,
    in_threads,
    pivots,
    squared_error,
)

FEWEST = 8  # windows that a record is cut into, whatever its length
REACH = 1e3  # a free run farther away than this has diverged, standard deviations of the output
JITTER = 1e-9  # of the kernel's variance, on the diagonal of K: coinciding points stay solvable

FIRST_DAMPING, LEAST_DAMPING = 1e-3, 1e-9  # of the diagonal [-]
LOWERED, RAISED = 8.0, 6.0  # factors of the damping after a step that is kept, after one that is refused
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
FIRST_SPREAD = 6.0  # length scale of a kernel that has no weights, standard deviations
WINDOW, TRANSIENT = 2048, 400  # samples simulated in one go, and of these not scored

LEAST_VARIANCE = 1e-10  # of the largest: combinations of features that vary less do not exist [-]
MOST_DIRECTIONS, LEAST_MOVING = 4, 0.02  # of a metric that moves, and least part of the strongest that one has [-]
LEAST_DIRECTION = 1e-4  # of the strongest: directions along which the function varies less are left out [-]
AHEAD = 100  # samples that tell the state of a linear model
LEAST_STATE = 0.02  # of the strongest combination of lags: the state holds none on which the future depends less [-]
POOL = 4000  # regressors among which points are chosen
CLOSE = 1e-8  # least variance given the earlier points that a point must have, and ridge of the regression [-]
RIDGES = 10.0 ** np.arange(-5, 4)  # tried in turn until a function on other points stays stable
WORSE = 25.0  # the mean square on other points may be so much larger before the weights are refined [-]

GAIN = 0.02  # of the mean square held back, for which the strongest metric is tried again [-]
HEAVIER = (1.0, 10.0, 100.0, 1000.0)  # of the penalty, tried in turn until the first weights beat the linear model [-]
PER_WINDOW = 225  # features x points for each window on which the metric is searched, beyond `search_windows`
PER_POINT = 8  # scored samples for each point beyond the budget while the metric is searched
MOST_WINDOWS = 24  # of the last fit; of longer records that many, spread evenly, suffice
QUICK_POINTS, QUICK_STAGES, QUICK_ITERATIONS = 100, 2, 6  # at most, while lags are compared
STEP, LOST = 0.7, 4.0  # of the number of points in one reduction, where all at once raises the mean square so much [-]


def windows_of(segments: Sequence[Segment], length: int, transient: int) -> list[Segment]:
    """Cut windows that score every sample once, but for the transient at the start of each segment.

    Windows of about `length` samples begin `transient` samples before the first that they score. Where all samples
    make fewer than `FEWEST` of them, both are shortened alike; a short segment scores at least four fifths of itself.
    """
    share = transient / length
    longest = min(length, max(1, int(n_samples(segments) / (share + FEWEST * (1.0 - share)))))
    windows = []
    for segment in segments:
        n, shortest = len(segment.values), int(share * longest)
        skipped = min(shortest, n // 5)
        n_windows = max(1, round((n - skipped) / max(1, longest - shortest)))
        cuts = np.linspace(skipped, n, n_windows + 1).astype(int).tolist()
        parts = [segment.part(first - skipped, last) for first, last in pairwise(cuts) if last > first]
        windows += [part._replace(transient=skipped) for part in parts]
    return windows


def hold_back(windows: Sequence[Segment], most: int, every: int) -> tuple[list[Segment], list[Segment]]:
    """Split at most so many windows, evenly among all: those to fit, and every n-th, which judges the fit.

    The last window judges, if there are fewer than n.
    """
    chosen = spread_evenly(windows, most)
    held = list(range(len(chosen)))[every - 1 :: every] or [len(chosen) - 1]
    return [one for i, one in enumerate(chosen) if i not in held], [chosen[i] for i in held]


def spread_evenly(windows: Sequence[Segment], most: int) -> list[Segment]:
    """At most so many windows, evenly among all."""
    return [windows[i] for i in np.linspace(0, len(windows) - 1, min(most, len(windows))).round().astype(int)]


class StandardUnits:
    """One offset and one scale for all lags of a signal, so that a lagged output stays a lagged output.

    A signal that does not vary in the segments keeps its own scale.

    Raises
    ------
    Refusal
        An output that does not vary.
    """

    def __init__(self, segments: Sequence[Segment], narx: Narx) -> None:
        self.narx, self.output = narx, AffineMap.fit(np.concatenate([segment.values for segment in segments])[:, None])
        if self.output.constant:
            raise Refusal(f"{narx.target!r} does not vary in the samples; there is nothing to explain")
        features, (columns, _) = scale_signals(narx, stack_regressors(segments)), feedback_of(narx)
        offset, scale = features.offset.copy(), features.scale.copy()
        offset[columns], scale[columns] = self.output.offset[0], self.output.scale[0]
        self.features = AffineMap(offset, scale)

    def standardise(self, segment: Segment) -> Segment:
        """Samples in standard units."""
        values, past = (self.output.transform(y[:, None])[:, 0] for y in (segment.values, segment.past))
        return Segment(np.ascontiguousarray(self.features.transform(segment.regressors)), values, past)

    def restore(self, candidate: Candidate, limits: Limits) -> Candidate:
        """Turn a candidate of standardised samples into one of the samples themselves, with limits in their unit.

        Its coordinates and points stay. A change of the output is scaled, a value is shifted too.
        """
        unit, shift = float(self.output.scale[0]), float(self.output.offset[0])
        features, linear, scaling = self.features, candidate.mean, candidate.scaling
        slopes = unit * np.asarray(linear.coefficients) / features.scale
        intercept = unit * linear.intercept - float(slopes @ features.offset)
        if self.narx.predict is Target.value:
            intercept += shift
        low, high = (shift + unit * bound for bound in candidate.bounds)
        return replace(
            candidate,
            scaling=AffineMap.of_matrix(
                features.offset + features.scale * scaling.offset, scaling.linear_part() / features.scale
            ),
            mean=LinearMean(slopes.tolist(), intercept),
            kernel=replace(candidate.kernel, variance=candidate.kernel.variance * unit**2),
            weights=candidate.weights / unit,
            limits=limits,
            bounds=(low, high),
        )


@njit(cache=True, nogil=True)
def propagate(slopes, lags, sensitivity):  # type: ignore[no-untyped-def]
    """Turn derivatives of one step into those of the free run, in place.

    With ``y[k] = F(y[k - l_1], ..., y[k - l_q], theta)`` and outputs before the first that do not depend on theta::

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
                slope, earlier = slopes[k, i], sensitivity[k - lags[i]]
                for j in range(n_parameters):
                    sensitivity[k, j] += slope * earlier[j]


def simulated_regressors(candidate: Candidate, segment: Segment, path: Array) -> Array:
    """Regressors (n, p) of a free run: the measured ones with the outputs fed back (n,) in their place."""
    columns, lags = feedback_of(candidate.narx)
    outputs, longest = np.concatenate([np.nan_to_num(segment.past), path]), len(segment.past)
    rows = np.arange(len(path))[:, None] + longest - lags
    x = segment.regressors.copy()
    x[:, columns] = outputs[rows]
    return x


def linearise(
    candidate: Candidate, segment: Segment, path: Array, *, moves: bool = False
) -> tuple[Array, Array, Indices]:
    """Linearise every step of the free run ``y[k] = (y[k-1] +) m(x) + sum_j w_j k(W (x - c), z_j)``.

    A step that the limits cut off depends on nothing.

    Returns
    -------
    basis : (n, p + 1 + N) or (n, p + 1 + N + q p)
        Derivative of every step with respect to coefficients, intercept and weights, and to the rows of W if it moves.
    slopes : (n, q)
        Derivative with respect to the outputs fed back.
    lags : (q,)
    """
    x = simulated_regressors(candidate, segment, path)
    columns, lags = feedback_of(candidate.narx)
    ones, z = np.ones((len(x), 1)), candidate.scaling.transform(x)
    covariances = candidate.kernel(z, candidate.points)
    of_coordinates = gradient(candidate, z, covariances)
    slopes = candidate.mean.gradient(x)[:, columns] + of_coordinates @ candidate.scaling.linear_part()[:, columns]
    if candidate.narx.predict is Target.change:
        slopes, lags = np.hstack([slopes, ones]), np.append(lags, 1)
    centred = (x - candidate.scaling.offset)[:, None]
    of_metric = [(of_coordinates[:, :, None] * centred).reshape(len(x), -1)] if moves else []
    basis = np.hstack([x, ones, covariances, *of_metric])
    held = ~((path > candidate.limits[0]) & (path < candidate.limits[1]))
    basis[held] = slopes[held] = 0.0
    return basis, slopes, lags


def sensitivity(candidate: Candidate, segment: Segment, path: Array, *, moves: bool = False) -> Array:
    """Derivative of the free run with respect to the parameters of `linearise`."""
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
    """Minimise a sum of squares by damped Gauss-Newton steps, ``(curvature + damping diag(curvature)) d = descent``.

    A step that does not lower the cost is refused, and so is one to where the cost or the normal equations are infinite
    (the free run of a window stays within its bounds while its sensitivities overflow): the damping is raised
    (Levenberg-Marquardt; Marquardt, An algorithm for least-squares estimation of nonlinear parameters, 1963).

    Parameters
    ----------
    cost
        Sum of squares at x (P,); infinite where it does not exist.
    normal_equations
        Curvature J'J (P, P) and descent J'e (P,), minus half the gradient, of the Gauss-Newton model
        ``cost(x + d) ~ cost(x) - 2 descent'd + d'curvature d`` at an x of finite cost.
    tolerance : float
        Relative decrease of the cost, missed twice in a row, at which the minimisation ends [-].

    Returns
    -------
    x : (P,)
    cost : float
        Infinite if it, or the normal equations, are so at the start.
    n_iterations : int
    """
    x, best, damping, small = start, cost(start), FIRST_DAMPING, 0
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
        x, best, damping = trial, lowered, max(damping / LOWERED, LEAST_DAMPING)
        curvature, descent = found
        if small == 2:
            return x, best, iteration + 1
    return x, best, max_iterations


@dataclass(frozen=True, eq=False)
class FreeRunProblem:
    """The sum of squares ``sum_k (y[k] - yhat[k])^2 + penalty w'Kw`` of linear part and weights, yhat the free run.

    The parameters (P,) are the coefficients and the intercept of the mean, then the whitened weights ``v = L'w`` with
    ``L L' = K``, for which the penalty is ``penalty v'v``, and, if the metric moves, the rows of W in the coordinates
    ``z = W (x - c)``, in which the points stay where they are: the combinations of lags on which the function depends.
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
        mean, weights = self.candidate.mean, self.candidate.weights
        whitened = solve_triangular(self.unwhitening, weights) if len(weights) else weights
        metric = self.candidate.scaling.linear_part().ravel() if self.moves else np.zeros(0)
        return np.concatenate([mean.coefficients, [mean.intercept], whitened, metric])

    def at(self, x: Array) -> Candidate:
        """Candidate of the parameters x."""
        mean = LinearMean(x[: self.n_linear - 1].tolist(), float(x[self.n_linear - 1]))
        scaling, p = self.candidate.scaling, self.n_linear - 1
        if self.moves:
            scaling = AffineMap.of_matrix(scaling.offset, x[self.of_weights.stop :].reshape(-1, p))
        return replace(self.candidate, mean=mean, weights=self.unwhitening @ x[self.of_weights], scaling=scaling)

    def cost(self, x: Array) -> float:
        """The sum of squares; infinite if a window diverges, or if the parameters are not finite."""
        if not np.isfinite(x).all():
            return np.inf
        candidate, whitened = self.at(x), x[self.of_weights]

        def square(window: Segment) -> float:
            return float(np.sum((window.values - candidate.simulate(window))[window.transient :] ** 2))

        total = sum(in_threads(square, self.windows), self.penalty * float(whitened @ whitened))
        return total if np.isfinite(total) else np.inf

    def normal_equations(self, x: Array) -> tuple[Array, Array]:
        """Curvature (P, P) and descent (P,) at x, where the cost is finite, window by window."""
        candidate, weights = self.at(x), self.of_weights
        curvature, descent = np.zeros((len(x), len(x))), np.zeros(len(x))

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
        curvature, descent[weights] = self.whiten(curvature), self.unwhitening.T @ descent[weights]
        curvature[weights, weights] += self.penalty * np.eye(len(self.unwhitening))
        descent[weights] -= self.penalty * x[weights]
        return curvature, descent

    def minimise(self, max_iterations: int) -> tuple[Candidate, float, int]:
        """Candidate at the minimum by Levenberg-Marquardt, its cost, and the number of iterations."""
        start = self.parameters()
        x, cost, n_iterations = minimise_squares(self.cost, self.normal_equations, start, max_iterations=max_iterations)
        return self.at(x), cost, n_iterations

    def whiten(self, moments: Array) -> Array:
        """Turn second moments (P, P) of the basis into those for whitened weights."""
        back, weights = self.unwhitening, self.of_weights
        moments = moments.copy()
        moments[weights] = back.T @ moments[weights]
        moments[:, weights] = moments[:, weights] @ back
        return moments


def fit_linear(
    empty: Candidate, windows: Sequence[Segment], iterations: int = LINEAR_ITERATIONS
) -> tuple[Candidate, float, int]:
    """Minimise the simulation error of a linear model, from least squares one step ahead.

    Least squares may leave a model whose free run diverges. Its poles are then multiplied by a contraction c: the
    coefficient of y[k - l] is multiplied by c^l; for a target that is a change, that of ``y[k] = y[k-1] + ...``. The
    last contraction, 0, leaves the response to the inputs alone.

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
        coefficients[columns] = (coefficients[columns] + is_previous) * contraction**lags - is_previous
        candidate = replace(empty, mean=LinearMean(coefficients.tolist(), one_step.intercept))
        for most in {iterations: None, 0: None}:  # least squares may be stable where the minimum is not
            found, cost, n_iterations = FreeRunProblem(candidate, windows, penalty=0.0).minimise(most)
            if np.isfinite(cost) and not find_runaway(found, windows):
                return found, contraction, n_iterations
    raise Refusal("the free run of a linear model diverges, or leaves the range of the samples, even without its poles")


def free_run_regressors(candidate: Candidate, windows: Sequence[Segment]) -> Array:
    """Regressors (n, p) that the free run visits at the scored samples; the measured ones of a window that diverges."""
    rows = []
    for window in windows:
        path, x = candidate.simulate(window), window.regressors
        if np.isfinite(path).all():
            x = simulated_regressors(candidate, window, path)
        rows.append(x[window.transient :])
    return np.concatenate(rows)


def whitening(regressors: Array) -> tuple[Array, Array]:
    """V (q, p) with ``cov(V x) = I`` for the rows x of the regressors (n, p), and its pseudoinverse (p, q).

    q < p if the regressors are collinear.
    """
    variance, direction = np.linalg.eigh(np.atleast_2d(np.cov(regressors.T)))
    kept = variance > LEAST_VARIANCE * variance[-1]
    root, direction = np.sqrt(variance[kept][::-1]), direction[:, kept][:, ::-1]
    return (direction / root).T, direction * root


def gradient_metric(
    regressors: Array, gradient: Array, *, spread: float, power: float = 1.0
) -> tuple[Array, Array] | None:
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
    W : (q, p)
        Coordinates ``z = W x`` of an isotropic kernel of unit length scale, per unit of the feature.
    spectrum : (q,)
        s, slope of the function along each direction over the largest, decreasing.

    Or None if the function, or the regressors themselves, do not vary.

    References
    ----------
    A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin, Mechanism for feature learning in neural networks and
    backpropagation-free machine learning models, Science 383 (2024) 1461-1467: the average gradient outer product
    as the metric of a kernel, refitted in turns ("recursive feature machine"). There by one-step least squares, here
    over a free run; the scale by mu and the powers are ours.
    """
    white, back = whitening(regressors)
    along = gradient @ back  # gradient of f in whitened coordinates
    values, turned = np.linalg.eigh(along.T @ along / len(along))
    if not values.size or not values[-1] > 0:
        return None
    spectrum = np.sqrt(np.maximum(values[::-1], 0.0) / values[-1])
    kept = spectrum > LEAST_DIRECTION
    spectrum, turned = spectrum[kept], turned[:, ::-1][:, kept]
    return (spectrum**power)[:, None] * (turned.T @ white) / spread, spectrum


def state_metric(linear: Candidate, regressors: Array) -> Array:
    """Metric W (q, p) in which regressors are alike that a linear model continues alike: its whitened state.

    The rows of the gradient are those of `AHEAD` future outputs, with inputs of zero from now on. Combinations of lags
    of which they depend less than `LEAST_STATE` are left out, so that many lags have no more coordinates than few: the
    state of subspace identification (Van Overschee and De Moor, Subspace identification for linear systems, 1996).
    """
    narx, n = linear.narx, linear.narx.n_features
    columns, lags = feedback_of(narx)
    mean, endless = LinearMean(linear.mean.coefficients), (-FARTHEST, FARTHEST)
    homogeneous = replace(linear, mean=mean, limits=endless, bounds=endless)
    future = np.zeros((AHEAD, n))
    for i, (name, lag) in enumerate(narx.features):
        x, past = np.zeros((AHEAD, n)), np.zeros(lags.max())
        for j, (other, later) in enumerate(narx.features):
            if other == name and later >= lag and j not in columns:
                x[later - lag : later - lag + 1, j] = 1.0
        if i in columns:
            past[-lag] = 1.0
        future[:, i] = homogeneous.simulate(Segment(x, np.zeros(AHEAD), past))
    metric = gradient_metric(regressors, future[np.isfinite(future).all(axis=1)], spread=1.0, power=0.0)
    return np.zeros((0, n)) if metric is None else metric[0][metric[1] > LEAST_STATE]


def transfer(candidate: Candidate, new: Candidate, regressors: Array, windows: Sequence[Segment]) -> Candidate:
    """Express the function of a candidate by the points of a new one, by ridge regression at regressors (n, p).

    It takes the least ridge with which the free run stays about as good, and zero weights if there is none.
    """
    n, kernel, points = len(new.points), new.kernel, new.points
    gram, moments, right = kernel(points, points), np.zeros((n, n)), np.zeros(n)
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


def latent_variance(candidate: Candidate, windows: Sequence[Segment], penalty: float) -> float:
    """Mean variance of the function over the free run, by Laplace's approximation at a minimum.

    With ``H = J'J`` of the free run, ``A = H + penalty K`` (both of coefficients, intercept and weights, of which the
    penalty takes the weights only), b the basis at a regressor and ``s^2`` the residual variance::

        s^2 b'A^-1 b + v (k(x, x) - k_u' K^-1 k_u),   v = w'Kw / N

    averaged over the regressors: what the samples leave open, and what the points cannot represent.

    Raises
    ------
    Refusal
        Sensitivities of the free run that overflow: a small change of the parameters changes it without bounds.
    """
    problem = FreeRunProblem(candidate, windows, penalty=0.0)
    x, n_linear = problem.parameters(), problem.n_linear
    free, _ = problem.normal_equations(x)
    if not np.isfinite(free).all():
        raise Refusal("the sensitivities of the free run overflow: the model is unstable within its bounds")
    penalised, whitened = free.copy(), np.arange(n_linear, len(x))
    penalised[whitened, whitened] += penalty
    inverse, moments = np.linalg.pinv(penalised, hermitian=True), np.zeros_like(free)
    n_scored = 0
    for window in windows:
        basis = linearise(candidate, window, candidate.simulate(window))[0][window.transient :]
        moments, n_scored = moments + basis.T @ basis, n_scored + len(basis)
    moments = problem.whiten(moments) / n_scored
    used = float(np.sum(inverse * free))
    residual = squared_error(candidate, windows) * n_scored / max(n_scored - used, 1.0)
    weights = x[n_linear:]
    represented = float(np.trace(moments[n_linear:, n_linear:]))
    unrepresented = max(candidate.kernel.variance - represented, 0.0) * float(weights @ weights) / max(len(weights), 1)
    return residual * float(np.sum(inverse * moments)) + unrepresented


class Material(NamedTuple):
    """Samples in standard units, and a candidate without points or mean."""

    units: StandardUnits
    segments: list[Segment]
    windows: list[Segment]
    n_scored: int
    empty: Candidate

    @property
    def whole(self) -> list[Segment]:
        """Segments with transients."""
        return [one._replace(transient=min(TRANSIENT, len(one.values) // 5)) for one in self.segments]

    @classmethod
    def of(
        cls, segments: Sequence[Segment], narx: Narx, limits: Limits, *, per_parameter: int, window: int, transient: int
    ) -> Material:
        """Standardise segments and cut their windows.

        Raises
        ------
        Refusal
            Too few samples for each linear parameter, or an output that does not vary.
        """
        units, p = StandardUnits(segments, narx), narx.n_features
        standard = [units.standardise(segment) for segment in segments]
        windows = windows_of(standard, window, transient)
        scored, needed = sum(len(one.values) - one.transient for one in windows), per_parameter * (p + 1)
        if len(windows) < 2 or scored < needed:
            raise Refusal(
                f"expected at least {needed} samples beside the transients, {per_parameter} for each linear parameter, "
                f"got {scored} in {len(windows)} windows; use longer records or fewer lags"
            )
        low, high = units.output.transform(np.array(limits)[:, None])[:, 0].tolist()
        identity, kernel = AffineMap.of_matrix(np.zeros(p), np.eye(p)), Matern52(1.0, np.ones(p))
        mean, nothing = LinearMean([0.0] * p), np.zeros((0, p))
        empty = Candidate(narx, identity, mean, kernel, nothing, nothing[:, 0], (low, high), (-REACH, REACH))
        return cls(units, standard, windows, scored, empty)

    def result(self, final: Candidate, limits: Limits, penalty: float, report: dict[str, Any]) -> FitResult:
        """Result in the units of the samples."""
        variance = latent_variance(final, self.windows, penalty) * float(self.units.output.scale[0]) ** 2
        return FitResult(self.units.restore(final, limits), variance, report)


def add_points(
    candidate: Candidate, kernel: Stationary, matrix: Array, regressors: Array, n: int, generator: np.random.Generator
) -> Candidate:
    """Replace the points by at most n others, spread over regressors (n, p) in a metric, with weights of zero."""
    if len(regressors) > POOL:
        regressors = regressors[np.sort(generator.choice(len(regressors), POOL, replace=False))]
    scaling, unit = (
        AffineMap.of_matrix(np.zeros(matrix.shape[1]), matrix),
        kernel.with_scales(1.0, np.ones(len(matrix))),
    )
    coordinates = scaling.transform(regressors)
    points = coordinates[pivots(unit, coordinates, n, CLOSE).chosen]
    return replace(candidate, scaling=scaling, kernel=unit, points=points, weights=np.zeros(len(points)))


@dataclass(frozen=True)
class LinearModel(Estimator):
    """Linear model: the least that any other estimator must reach. Its points have weights of zero."""

    minimises_free_run: bool = True  # output error; else the error of one step (ARX)

    @property
    def name(self) -> str:
        return "linear output error" if self.minimises_free_run else "linear ARX"

    def fit(self, segments: Sequence[Segment], narx: Narx, budget: int, seed: int, limits: Limits) -> FitResult:
        """Fit by least squares, then minimise the error of the free run; see `Estimator.fit`.

        Raises
        ------
        Refusal
            Fewer than two samples for each parameter, or an output that does not vary.
        """
        material = Material.of(segments, narx, limits, per_parameter=2, window=WINDOW, transient=TRANSIENT)
        iterations = LINEAR_ITERATIONS if self.minimises_free_run else 0
        linear, contraction, n_iterations = fit_linear(material.empty, material.whole, iterations)
        x, metric = stack_regressors(material.windows), np.eye(narx.n_features) / FIRST_SPREAD
        final = add_points(linear, Matern52(), metric, x, budget, np.random.default_rng([seed]))
        return material.result(final, limits, 1.0, {"contraction": contraction, "n_iterations": n_iterations})


@dataclass(frozen=True)
class OutputErrorRefinement(Estimator):
    """Linear part, weights and metric of a kernel expansion that minimise the simulation error.

    In units in which every signal has variance 1:

    1. A linear model that minimises the simulation error: a stable free run to begin with (`fit_linear`).
    2. Points spread over the regressors, weights zero; then Levenberg-Marquardt on
       ``sum (y - yhat)^2 + penalty w'Kw``, yhat the free run (`FreeRunProblem`). Once with the regressors whitened,
       which tells a level from a difference, with each of them by itself, which short records need, and with the state
       of the linear model (`state_metric`), which has few coordinates however many the lags. The best of all lags, by
       the windows held back, and that of the state go on, one after the other. If neither beats the linear model, up to
       a thousand times the penalty is tried; else the model stays linear.
       A stage whose free run leaves the range of the samples (`find_runaway`) is infinitely wrong, here and below.
    3. The metric of the average gradient outer product of the function that was found (`gradient_metric`), new
       points in it by pivoted Cholesky, the same function on them by ridge regression, and Levenberg-Marquardt
       again, which moves the strongest directions of the metric too (at most four rows of W in ``z = Wx``), together
       with weights and linear part. The result is kept only if the free run of the windows held back improves; else a
       heavier penalty, then a metric of all directions that does not move, then a milder one, and the mildest is the
       last. The second start ends where the first is far ahead.
    4. At another budget new points in the metric found, fewer in steps where much is lost at once, with a heavier
       penalty as long as that helps; Levenberg-Marquardt on all windows. Linear again if nothing is left that beats
       the linear model.

    The defaults were fixed on a Bouc-Wen system and serve others as they are; the cross-validation of the training
    tells where they do not.
    """

    penalty: float = 1.0  # of w'Kw, in variances of the output
    search_points: int = 100  # while the metric is searched; of short records not that many
    stages: int = 14  # metrics tried, at most, from each of two starts
    powers: Sequence[float] = (1.0, 0.5, 0.25)  # of the spectrum of the metric, tried in turn [-]
    spread: float = 2.0  # length scale of the strongest direction, its standard deviations
    first_spread: float = 3.0  # first length scale of the whitened regressors, their standard deviations
    plain_spreads: Sequence[float] = (6.0, 12.0)  # of the regressors themselves
    state_spreads: Sequence[float] = (3.0,)  # of the state of the linear model; the best of all starts is taken
    iterations: int = 12  # of Levenberg-Marquardt in a stage
    window: int = 2048  # samples simulated in one go, at most
    transient: int = 400  # of these not scored, as they depend on the outputs measured before
    search_windows: int = 8  # among all, spread over the record, for the metric; more for many features and points
    hold_every: int = 4  # every n-th of these is held back to judge the stages
    kernel: Stationary = field(default_factory=Matern52)  # prototype; isotropic, of unit length scale in the metric

    def __post_init__(self) -> None:
        for name in ("powers", "plain_spreads", "state_spreads"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        check_counts(
            self, search_points=1, stages=0, iterations=1, window=2, transient=0, search_windows=2, hold_every=2
        )
        is_kernel = isinstance(self.kernel, Stationary) and self.kernel.is_prototype
        are_powers = bool(self.powers) and all(0 <= power <= 1 for power in self.powers)
        requirements = [
            ("transient", self.transient < self.window, f"below window ({self.window})"),
            ("powers", are_powers, "numbers from 0 to 1, at least one"),
            ("kernel", is_kernel, "the prototype of a stationary kernel"),
        ]
        for name in ("penalty", "spread", "first_spread", "plain_spreads", "state_spreads"):
            is_positive = all(0 < value < np.inf for value in np.atleast_1d(getattr(self, name)))
            requirements.append((name, is_positive, "positive and finite"))
        for name, is_met, words in requirements:
            if not is_met:
                error = TypeError if name == "kernel" else ValueError
                raise error(f"OutputErrorRefinement: {name} must be {words}, got {getattr(self, name)!r}")

    def quick(self) -> OutputErrorRefinement:
        """Fewer points, metrics and iterations."""
        changes = {"search_points": QUICK_POINTS, "stages": QUICK_STAGES, "iterations": QUICK_ITERATIONS}
        fewer: Any = {name: min(most, getattr(self, name)) for name, most in changes.items()}
        return replace(self, **fewer)

    def fit(self, segments: Sequence[Segment], narx: Narx, budget: int, seed: int, limits: Limits) -> FitResult:
        """Go through the stages; see `Estimator.fit`.

        Raises
        ------
        Refusal
            Fewer than ten samples for each linear parameter, an output that does not vary, a linear model that is
            unstable in spite of all contractions, or a free run whose sensitivities overflow.
        """
        material = Material.of(segments, narx, limits, per_parameter=10, window=self.window, transient=self.transient)
        n_points = min(self.search_points, max(budget, material.n_scored // PER_POINT))
        most = max(self.search_windows, narx.n_features * n_points // PER_WINDOW)
        kept, held = hold_back(material.windows, most, self.hold_every)
        stages = _Stages(self, material, kept, held, n_points, np.random.default_rng([seed]))
        best = stages.run(material.empty)
        if len(best.candidate.points) != budget:
            best = stages.change_budget(best, budget)
        final = stages.fit_all(best)
        unit = float(material.units.output.scale[0])
        for note in stages.notes:
            note |= {name: unit * float(np.sqrt(note[name])) for name in ("fitted rmse", "held rmse")}
        report = {"penalty": best.penalty, "linear contraction": stages.contraction, "stages": stages.notes}
        return material.result(final, limits, best.penalty, report)


class _Stage(NamedTuple):
    """Candidate of one stage."""

    candidate: Candidate
    held: float  # mean squared error of the windows held back
    penalty: float
    is_linear: bool = False  # no weights were found that help
    moves: bool = False  # the metric was fitted too


@dataclass
class _Stages:
    """Stages of one refinement, and notes on the error of each."""

    settings: OutputErrorRefinement
    material: Material
    kept: Sequence[Segment]
    held: Sequence[Segment]
    n_points: int  # while the metric is searched
    generator: np.random.Generator
    contraction: float = 1.0  # of the poles of the linear model
    linear: float = np.inf  # mean squared error of the linear model on the windows held back
    notes: list[dict[str, Any]] = field(default_factory=list)

    def run(self, empty: Candidate) -> _Stage:
        """Best stage with `search_points` points, by the windows held back."""
        linear, self.contraction, n_iterations = fit_linear(empty, self.material.whole)
        self.linear = self.note("linear", linear, n_iterations=n_iterations)
        first, *others = sorted(self.begin(linear), key=lambda stage: stage.held)
        best = self.search(first)
        return min([best, *(self.search(other, best.held) for other in others)], key=lambda stage: stage.held)

    def search(self, best: _Stage, rival: float = np.inf) -> _Stage:
        """Best stage on the way from a first one: another metric as long as one helps, and a rival is not far ahead."""
        tries = [] if best.is_linear else self.tries(best)
        for number in range(self.settings.stages):
            if not tries or (number and best.held > LOST * rival):
                break
            if (stage := self.change_metric(best, *tries[0])) is None:
                break
            is_clearly_better = stage.held < (1.0 - GAIN) * best.held
            best = min(best, stage, key=lambda one: one.held)
            tries = self.tries(best) if is_clearly_better else tries[1:]
        return best

    def tries(self, best: _Stage) -> list[tuple[float, float, bool]]:
        """Powers and penalties of the next metrics, and whether they move; a better one may need less penalty."""
        lighter = max(self.settings.penalty, best.penalty / 10.0)
        penalties = (lighter, best.penalty) if lighter < best.penalty else (best.penalty, 10.0 * best.penalty)
        moving = [(1.0, penalty, True) for penalty in penalties]
        return [*moving, *((power, best.penalty, False) for power in self.settings.powers)]

    def begin(self, linear: Candidate) -> list[_Stage]:
        """Best weights in the first metrics of all lags, and in those of the state, where the search cannot leave it.

        The linear model alone if none beats it on the windows held back.
        """
        x = np.concatenate([window.regressors[window.transient :] for window in self.kept])
        metrics = {"whitened": whitening(x)[0] / self.settings.first_spread}
        metrics |= {f"plain {spread:g}": np.eye(x.shape[1]) / spread for spread in self.settings.plain_spreads}
        starts = {name: self.add_points(linear, matrix, x, self.n_points) for name, matrix in metrics.items()}
        state, settings = state_metric(linear, x), self.settings
        for spread in settings.state_spreads if len(state) else ():
            (own,) = self.generator.spawn(1)  # the other starts do not depend on this one
            starts[f"state {spread:g}"] = add_points(linear, settings.kernel, state / spread, x, self.n_points, own)
        for factor in HEAVIER:
            penalty = factor * self.settings.penalty
            stages = [self.refine(name, start, penalty) for name, start in starts.items()]
            if min(stage.held for stage in stages) < self.linear:
                groups = stages[: len(metrics)], stages[len(metrics) :]
                return [min(group, key=lambda stage: stage.held) for group in groups if group]
        return [_Stage(next(iter(starts.values())), self.linear, penalty, is_linear=True)]

    def add_points(self, candidate: Candidate, matrix: Array, regressors: Array, n_points: int) -> Candidate:
        """Replace the points by others, spread over regressors (n, p) in a metric, with weights of zero."""
        return add_points(candidate, self.settings.kernel, matrix, regressors, n_points, self.generator)

    def change_metric(self, before: _Stage, power: float, penalty: float, moves: bool) -> _Stage | None:
        """Fit weights in the metric of the function before, of few directions if it moves; None if that is constant."""
        x = free_run_regressors(before.candidate, self.kept)
        z, matrix = before.candidate.scaling.transform(x), before.candidate.scaling.linear_part()
        slopes = gradient(before.candidate, z, before.candidate.kernel(z, before.candidate.points)) @ matrix
        metric = gradient_metric(x, slopes, spread=self.settings.spread, power=power)
        if metric is None:
            return None
        matrix, spectrum = metric
        if moves:
            matrix = matrix[: max(1, np.sum(spectrum[:MOST_DIRECTIONS] > LEAST_MOVING))]
        new = self.add_points(before.candidate, matrix, x, self.n_points)
        start = transfer(before.candidate, new, x, self.kept)
        return self.refine("metric", start, penalty, moves, power=power, spectrum=spectrum.tolist())

    def refine(self, name: str, start: Candidate, penalty: float, moves: bool = False, **details: Any) -> _Stage:
        """Fit linear part and weights of a candidate, and a metric that moves, to the windows not held back."""
        problem = FreeRunProblem(start, self.kept, penalty, moves)
        candidate, cost, n_iterations = problem.minimise(self.settings.iterations)
        held = self.note(name, candidate, penalty=penalty, moves=moves, n_iterations=n_iterations, **details)
        return _Stage(candidate, held if np.isfinite(cost) else np.inf, penalty, moves=moves)

    def change_budget(self, best: _Stage, budget: int) -> _Stage:
        """Fit weights of another number of points in the metric of a stage; fewer may need a heavier penalty.

        Where the error grows much, the points become fewer in steps. The model is linear if nothing beats that.
        """
        if best.is_linear:
            return best._replace(candidate=self.resize(best, budget))
        found, step = self.refine_resized(best, budget), best
        if not found.held < LOST * best.held:
            while len(step.candidate.points) > budget:
                step = self.refine_resized(step, max(budget, int(STEP * len(step.candidate.points))))
            found = min(found, step, key=lambda stage: stage.held)
        return found if found.held < self.linear else found._replace(is_linear=True)

    def resize(self, stage: _Stage, n: int) -> Candidate:
        """The same function by n points, as far as they can represent it."""
        x = free_run_regressors(stage.candidate, self.kept)
        new = self.add_points(stage.candidate, stage.candidate.scaling.linear_part(), x, n)
        return transfer(stage.candidate, new, x, self.kept)

    def refine_resized(self, stage: _Stage, n: int) -> _Stage:
        """Best of several penalties with n points, heavier ones as long as they help."""
        start = self.resize(stage, n)
        refined = (self.refine(f"{n} points", start, factor * stage.penalty, stage.moves) for factor in HEAVIER)
        best = next(refined)
        for found in refined:
            if np.isfinite(best.held) and found.held >= best.held:
                break
            best = found
        return best

    def fit_all(self, best: _Stage) -> Candidate:
        """Fit the candidate of a stage to all windows; it stays as it is, or becomes linear, if that runs away."""
        windows = spread_evenly(self.material.windows, MOST_WINDOWS)
        if not best.is_linear:
            problem = FreeRunProblem(best.candidate, windows, best.penalty, best.moves)
            final, cost, n_iterations = problem.minimise(self.settings.iterations)
            held = self.note("all windows", final, penalty=best.penalty, moves=best.moves, n_iterations=n_iterations)
            if np.isfinite(held) and np.isfinite(cost):
                return final
            if np.isfinite(best.held):
                return best.candidate
        linear, _, n_iterations = fit_linear(self.material.empty, self.material.whole)
        final = replace(best.candidate, mean=linear.mean, weights=0.0 * best.candidate.weights)
        self.note("all windows", final, penalty=best.penalty, n_iterations=n_iterations)
        return final

    def note(self, name: str, candidate: Candidate, **details: Any) -> float:
        """Note the errors of a stage; return the mean square of the windows held back, infinite if it runs away."""
        fitted, held = squared_error(candidate, self.kept), squared_error(candidate, self.held)
        runaway = find_runaway(candidate, self.material.segments) if np.isfinite(held) else "windows held back"
        held = np.inf if runaway else held
        words = {"stage": name, "points": len(candidate.points), "fitted rmse": fitted, "held rmse": held}
        self.notes.append(words | {"runs away from": runaway} | details)
        return held
