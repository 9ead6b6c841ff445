"""Search for the hyper-parameters that minimise the free-run error (`ProfileSearch`).

The length scales of the lags of a signal are tied by a profile (`Profile`), so that 40 lags have no
more hyper-parameters than 4. For given hyper-parameters the weights of the kernel and a linear
trend follow from a Bayesian linear regression (`Ridge`). The model then simulates the samples that
the regression left out (`ProfileProblem`). Nelder and Mead's simplex minimises the error of these
simulations (`SimplexSearch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from math import ceil
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import minimize

from sysid.arrays import Array, Indices, as_number, check_counts, check_whole, listed
from sysid.beside import together
from sysid.errors import UserError, UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Matern52, SquaredExponential, Stationary
from sysid.gp.mean import LinearMean, linear_fit
from sysid.narx.lags import Narx, Target
from sysid.simulation.segments import (
    Limits,
    Segment,
    feedback_of,
    folds_of,
    n_samples,
    scale_signals,
    stack_regressors,
    truncate,
)
from sysid.simulation_error.candidate import (
    Candidate,
    Estimator,
    FitResult,
    Pivots,
    Refusal,
    find_runaway,
    pivots,
)
from sysid.simulation_error.split_free_run import SplitFeatures
from sysid.time_limit import check_time

# A descent of the simplex ends when the costs within it differ by less than this [-].
COST_TOLERANCE = 1e-3
# A descent of the simplex ends when its edges are below this, in standard deviations of the priors.
VARIABLE_TOLERANCE = 1e-2
# Largest number of searches, whose starts are drawn before the first one.
MAX_SEARCH_STARTS = 100_000
# Edges of the first simplex, in standard deviations of the priors.
FIRST_SIMPLEX_EDGE = 0.7
# Hyper-parameters stay within this distance of their medians, in standard deviations of the priors.
MAX_PRIOR_DEVIATION = 4.0
# The search for one kernel ends once its cost, the logarithm of the error, is this much above that
# of another kernel after as many descents [-].
MAX_COST_BEHIND = 0.05
# Cost of hyper-parameters for which double precision does not suffice [-].
SINGULAR_COST = 9.0

# No more points are chosen once the largest variance that is left is below this fraction of the
# kernel's variance [-].
MIN_POINT_VARIANCE = 1e-6
# A simulated output has diverged if it is farther outside the range of the samples than this factor
# times the range [-].
DIVERGENCE_RANGES = 10.0
# Rows of features that are held in memory at a time.
FEATURE_BLOCK_ROWS = 4096
# Samples that every block needs.
MIN_SAMPLES_PER_BLOCK = 5
# Iterations of the fixed point for the targets of saturated samples.
SATURATION_ITERATIONS = 8
# A plant integrates if a pole of its linear model is at most this far from 1 [-].
MAX_INTEGRATOR_POLE_DISTANCE = 0.01
# Upper limits of the settings of a quick search, which is used to compare lags.
QUICK_EVALUATIONS = 80
QUICK_PROFILE_POINTS = 60
QUICK_ROWS = 2000


class Minimum(NamedTuple):
    """Smallest cost that was found."""

    x: Array  # (d,)
    value: float
    n_evaluations: int
    starts: tuple[float, ...]  # smallest cost after the descent from each start


@dataclass(frozen=True)
class SimplexSearch:
    """Minimise a cost of x (d,) by Nelder and Mead's simplex, in several stages.

    The simplex suits a cost with ripples and kinks, whose gradient is of no use. It descends from
    every start, then again from the best point with a new simplex. Every start and the last descent
    are a stage, with the same share of the evaluations.

    Parameters
    ----------
    cost : callable
    starts : sequence of (d,)
    size : float
        Edges of the first simplex, along the axes.
    bound : float
        Largest magnitude of every variable.
    evaluations : int
        Largest number of evaluations of the cost.
    """

    cost: Callable[[Array], float]
    starts: Sequence[Array]
    size: float
    bound: float
    evaluations: int

    @property
    def n_stages(self) -> int:
        """Number of stages: a descent from every start, and the last one from the best point."""
        return len(self.starts) + 1

    def run(self, stage: int, before: Minimum | None = None) -> Minimum:
        """Return the minimum after a stage, counted from 0, given that after the stage before."""
        begun = Minimum(self.starts[0], np.inf, 0, ()) if before is None else before
        max_evaluations = (stage + 1) * self.evaluations // self.n_stages
        if stage < len(self.starts):
            after = self._descend(begun, self.starts[stage], self.size, max_evaluations)
            return after._replace(starts=(*begun.starts, after.value))
        while begun.n_evaluations < max_evaluations:
            after = self._descend(begun, begun.x, 0.5 * self.size, max_evaluations)
            if begun.value - after.value < COST_TOLERANCE:
                return after
            begun = after
        return begun

    def _descend(self, before: Minimum, start: Array, size: float, max_evaluations: int) -> Minimum:
        """Return the minimum after a descent; the evaluations before it count, too."""
        best = before.value
        x = before.x
        n = before.n_evaluations

        def evaluate(trial: Array) -> float:
            nonlocal best, x, n
            check_time()
            value = float(self.cost(trial))
            n += 1
            if value < best or n == 1:
                best = value
                x = trial.copy()
            return value

        inward = np.where(start > 0, -size, size)  # so that the simplex is inside the bounds
        options = {
            "initial_simplex": np.vstack([start, start + np.diag(inward)]),
            "maxfev": max_evaluations - n,
            "maxiter": 10**6,
            "fatol": COST_TOLERANCE,
            "xatol": VARIABLE_TOLERANCE,
        }
        bounds = [(-self.bound, self.bound)] * len(start)
        minimize(evaluate, start, method="Nelder-Mead", bounds=bounds, options=options)
        return before._replace(x=x, value=best, n_evaluations=n)


def search_together(searches: Sequence[SimplexSearch], max_behind: float) -> list[Minimum]:
    """Return the minima of searches of equally many stages, done at the same time.

    A search whose cost is more than `max_behind` above the smallest one after a stage ends there.
    """
    minima: list[Minimum | None] = [None] * len(searches)
    in_race = list(range(len(searches)))
    for stage in range(searches[0].n_stages):
        works = [partial(searches[number].run, stage, minima[number]) for number in in_race]
        after_stage = together(works)
        for number, minimum in zip(in_race, after_stage, strict=True):
            minima[number] = minimum
        largest = min(minimum.value for minimum in after_stage) + max_behind
        in_race = [
            number
            for number, minimum in zip(in_race, after_stage, strict=True)
            if minimum.value <= largest
        ]
    return [minimum for minimum in minima if minimum is not None]


class Prior(NamedTuple):
    """Log-normal prior of a hyper-parameter."""

    median: float  # of the logarithm
    std: float  # of the logarithm


# Length scale of an output at its first lag, in standard deviations of the signal.
OUTPUT_LENGTH_PRIOR = Prior(np.log(4.0), 1.0)
# Length scale of an input at its first lag, in standard deviations of the signal.
INPUT_LENGTH_PRIOR = Prior(np.log(6.0), 1.0)
# Growth of the logarithm of the length scale of an output, per lag.
OUTPUT_GROWTH_PRIOR = Prior(0.05, 0.1)
# Growth of the logarithm of the length scale of an input, per lag.
INPUT_GROWTH_PRIOR = Prior(0.03, 0.05)
# Largest prior standard deviation of this growth over all lags of a signal.
MAX_TOTAL_GROWTH_STD = 2.0
# Size of the function, in standard deviations of the target.
SIZE_PRIOR = Prior(np.log(7.0), 1.5)
# Noise, in standard deviations of the target.
NOISE_PRIOR = Prior(np.log(0.5), 1.5)
# Change of the linear part over a length scale, in standard deviations of the target.
SLOPE_PRIOR = Prior(np.log(0.7), 1.5)


class Values(NamedTuple):
    """Hyper-parameters in their own units."""

    lengths: Array  # (p,) length scale of each feature, std of its signal
    size: float  # of the function, target std
    noise: float  # target std
    slope: float  # change of the linear part over a length scale, target std


@dataclass(frozen=True)
class Profile:
    """Length scales ``exp(a_s + b_s (lag - first lag))`` of the lags of every signal s.

    The variables of the optimisation are ``((a_s, b_s) for every signal, log size, log noise, log
    slope)``. Each is the deviation from the median of its prior, in standard deviations of the
    prior. A signal with a single lag has no b_s.
    """

    narx: Narx

    @cached_property
    def priors(self) -> tuple[Prior, ...]:
        """Prior of every variable."""
        priors = []
        for name, lags in self.narx.lags.items():
            is_output = name in self.narx.output_names
            if lags:
                priors.append(OUTPUT_LENGTH_PRIOR if is_output else INPUT_LENGTH_PRIOR)
            if len(lags) > 1:
                growth = OUTPUT_GROWTH_PRIOR if is_output else INPUT_GROWTH_PRIOR
                span = lags[-1] - lags[0]
                shrink = min(1.0, MAX_TOTAL_GROWTH_STD / (growth.std * span))
                priors.append(Prior(shrink * growth.median, shrink * growth.std))
        return (*priors, SIZE_PRIOR, NOISE_PRIOR, SLOPE_PRIOR)

    def values(self, z: Array) -> Values:
        """Return the hyper-parameters of variables z (d,)."""
        deviations = np.clip(z, -MAX_PRIOR_DEVIATION, MAX_PRIOR_DEVIATION).tolist()
        theta = []
        for prior, deviation in zip(self.priors, deviations, strict=True):
            theta.append(prior.median + prior.std * deviation)
        log_lengths = []
        position = 0
        for lags in self.narx.lags.values():
            if not lags:
                continue
            has_growth = len(lags) > 1
            first = theta[position]
            growth = theta[position + 1] if has_growth else 0.0
            log_lengths += [first + growth * (lag - lags[0]) for lag in lags]
            position += 2 if has_growth else 1
        size, noise, slope = np.exp(theta[-3:]).tolist()
        return Values(np.exp(log_lengths), size, noise, slope)


class Ridge:
    """Bayesian linear regression of blocks of rows, any of which can be left out.

    ``t = phi(x)'v + e``, ``v ~ N(0, I)``, ``e ~ N(0, s2)``: ``(s2 I + sum_i phi_i phi_i') v = sum_i
    phi_i t_i``. The sums are kept for each block. Leaving blocks out therefore costs one more
    solve, and memory does not grow with the number of rows.

    The target of a saturated sample is a bound: the true value is at least (at most) the measured
    one. Where the prediction lies beyond the bound, it replaces the target. This is repeated
    `SATURATION_ITERATIONS` times and does not change the matrix.

    Parameters
    ----------
    features : callable
        Function that returns the features (m, d) of a slice of rows.
    low, high : (n,)
        Bounds of the targets. Both are the target itself where it is not saturated; otherwise one
        of them is infinite. Where both are, the target is missing, and the row is left out.
    cuts : (b + 1,)
        Rows where blocks begin, from 0 to n, increasing.
    noise_variance : float
        s2, target unit squared, > 0.
    """

    def __init__(
        self,
        features: Callable[[slice], Array],
        low: Array,
        high: Array,
        cuts: Indices,
        noise_variance: float,
    ) -> None:
        self.cuts = cuts
        self.noise_variance = noise_variance
        is_missing = np.isinf(low) & np.isinf(high)
        if is_missing.any():
            low = np.where(is_missing, 0.0, low)
            high = np.where(is_missing, 0.0, high)
        is_saturated = low < high
        # sums over all rows before each cut
        matrices = [np.zeros(())]
        vectors = [np.zeros(())]
        saturated_features = []
        for first, last in pairwise(cuts.tolist()):
            phi = features(slice(first, last))
            if is_missing[first:last].any():
                phi = np.where(is_missing[first:last, None], 0.0, phi)
            is_known = ~is_saturated[first:last]
            matrices.append(matrices[-1] + phi.T @ phi)
            vectors.append(vectors[-1] + low[first:last][is_known] @ phi[is_known])
            saturated_features.append(phi[~is_known])
        self._matrices = matrices
        self._vectors = vectors
        self._saturated_features = np.concatenate(saturated_features)
        self._saturated_rows = np.flatnonzero(is_saturated)
        self._saturated_low = low[is_saturated]
        self._saturated_high = high[is_saturated]

    def weights(self, first: int = 0, last: int = 0) -> Array:
        """Return the posterior mean of v (d,) without the rows from first to before last.

        Both must be cuts; if they are equal, all rows are used.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the matrix is not positive definite in double precision.
        """
        i, j = np.searchsorted(self.cuts, [first, last])
        factor = self._factor(self._matrices[-1] - (self._matrices[j] - self._matrices[i]))
        vector = self._vectors[-1] - (self._vectors[j] - self._vectors[i])
        is_used = (self._saturated_rows < first) | (self._saturated_rows >= last)
        phi = self._saturated_features[is_used]
        low = self._saturated_low[is_used]
        high = self._saturated_high[is_used]
        targets = np.where(np.isfinite(low), low, high)
        n_iterations = SATURATION_ITERATIONS if len(targets) else 1
        for _ in range(n_iterations):
            weights = dpotrs(factor, vector + targets @ phi, lower=1)[0]
            # clipped, but without the wrapper of `numpy.clip`, which takes longer than the products
            targets = np.minimum(np.maximum(phi @ weights, low), high)
        return weights

    def mean_variance(self) -> float:
        """Return the posterior variance of phi'v, averaged over all rows, target unit squared.

        With ``A = sum_i phi_i phi_i'`` of n rows: ``s2 tr((A + s2 I)^-1 A) / n``.
        """
        matrix = self._matrices[-1]
        inverse = dpotrs(self._factor(matrix.copy()), np.eye(len(matrix)), lower=1)[0]
        explained = len(matrix) - self.noise_variance * float(np.trace(inverse))
        return self.noise_variance * explained / int(self.cuts[-1])

    def _factor(self, matrix: Array) -> Array:
        """Return the Cholesky factor of ``matrix + s2 I``; the matrix is overwritten."""
        matrix.flat[:: len(matrix) + 1] += self.noise_variance
        # LAPACK is called directly: the wrappers of SciPy take as long as the factorisation.
        factor, failed_order = dpotrf(matrix.T, lower=1, overwrite_a=1)
        if failed_order or not np.isfinite(factor).all():
            raise np.linalg.LinAlgError(
                f"the leading minor of order {failed_order} is not positive definite"
            )
        return np.asarray(factor)


class HeldOutBlock(NamedTuple):
    """Samples that a regression leaves out, and that are simulated."""

    first: int  # first row of the regression that is left out
    last: int  # row after the last one that is left out
    parts: tuple[Segment, ...]
    samples: tuple[slice, ...]  # samples of each part among those that are simulated


class ProfileProblem:
    """Free-run error of a model over blocks of the samples that its weights were not fitted to.

    ::

        t = unit (size g(x)'v + slope (b_0 + sum_d b_d z_d / length_d)),   (v, b) ~ N(0, I)

    with the features g of the kernel's points (`Pivots`) and standardised features z. Kernel
    weights v and linear trend b are estimated together. The target t is the change of the output
    since its newest lag.

    A block shares two things with the samples around it: the points are chosen among all regressors
    (never by the targets), and the first regressors after a block contain its last outputs.

    Parameters
    ----------
    narx, segments, limits
        As for `Estimator.fit`.
    kernel : Stationary
        Prototype.
    settings : ProfileSearch
    budget : int
        Largest number of points.

    Raises
    ------
    Refusal
        The output does not vary, or with `differences` the plant does not integrate.

    Attributes
    ----------
    inputs : (n, p)
        Standardised regressors of the rows of the regression.
    blocks : list of HeldOutBlock
    """

    def __init__(
        self,
        narx: Narx,
        segments: Sequence[Segment],
        limits: Limits,
        kernel: Stationary,
        settings: ProfileSearch,
        budget: int,
    ) -> None:
        self.narx = narx
        self.limits = limits
        self.kernel = kernel
        self.settings = settings
        self.n_points = min(settings.points, budget)
        self.regressors = stack_regressors(segments)
        outputs = np.concatenate([segment.values for segment in segments])
        self.scaling = scale_signals(narx, self.regressors)
        self.baseline = np.zeros(narx.n_features)
        before = np.concatenate([segment.previous for segment in segments])
        if narx.predict is Target.value:
            # The model corrects the prediction that the output stays at its newest lag.
            columns, lags = feedback_of(narx)
            newest = columns[np.argmin(lags)]
            self.baseline[newest] = 1.0
            before = self.regressors[:, newest]
        changes = outputs - before
        self.unit = float(np.std(changes))
        self.spread = float(np.std(outputs))
        coordinates = narx
        if settings.differences:
            coordinates, self.scaling = _difference(narx, self.scaling, self.unit)
            self._check_integrates(changes)
        self.profile = Profile(coordinates)
        self.to_coordinates = self.scaling.linear_part()
        if not self.unit > 0:
            raise Refusal(f"the output {narx.target!r} does not vary")
        self.low = np.where(outputs <= limits[0], -np.inf, changes / self.unit)
        self.high = np.where(outputs >= limits[1], np.inf, changes / self.unit)
        is_measured = np.concatenate([segment.measured for segment in segments])
        self.low[~is_measured] = -np.inf
        self.high[~is_measured] = np.inf
        reach = DIVERGENCE_RANGES * float(np.ptp(outputs))
        self.bounds = (float(outputs.min()) - reach, float(outputs.max()) + reach)
        self.step = ceil(len(outputs) / settings.rows)  # the search uses every step-th sample
        # one feature after the other in memory, as points are chosen and features are computed
        self.inputs = np.asfortranarray(self.scaling.transform(self.regressors[:: self.step]))
        self.blocks, is_simulated = self._cut_blocks(segments)
        self.simulated = SplitFeatures(
            narx, self.scaling, self.regressors[is_simulated], limits, self.bounds
        )

    def _cut_blocks(
        self, segments: Sequence[Segment]
    ) -> tuple[list[HeldOutBlock], NDArray[np.bool_]]:
        """Return the blocks of all partitions in turn, and which of all samples they simulate.

        The partitions share many of the samples that are simulated.
        """
        settings = self.settings
        folds = []
        is_simulated = np.zeros(n_samples(segments), dtype=bool)
        for n in settings.blocks:
            max_simulated = max(1, settings.simulated // (len(settings.blocks) * n))
            last = 0
            for fold in folds_of(segments, n):
                first = last
                last = first + n_samples(fold.parts)
                parts = truncate(fold.parts, max_simulated)
                is_simulated[first : first + n_samples(parts)] = True
                folds.append((first, last, parts))
        n_simulated_before = np.cumsum(is_simulated) - is_simulated
        blocks = []
        for first, last, parts in folds:
            samples = []
            begin = int(n_simulated_before[first])
            for part in parts:
                end = begin + len(part.values)
                samples.append(slice(begin, end))
                begin = end
            rows = ceil(first / self.step), ceil(last / self.step)
            blocks.append(HeldOutBlock(*rows, parts, tuple(samples)))
        return blocks, is_simulated

    def _check_integrates(self, changes: Array) -> None:
        """Raise `Refusal` unless a pole of the linear model is near 1."""
        columns, _ = feedback_of(self.narx)
        coefficients = np.asarray(linear_fit(self.regressors, changes).coefficients)[columns]
        poles = np.roots([1.0, -1.0 - coefficients[0], *-coefficients[1:]])
        distance = float(np.abs(1.0 - poles).min())
        if distance > MAX_INTEGRATOR_POLE_DISTANCE:
            raise Refusal(
                "the pole of the linear model that is nearest to 1 is "
                f"{distance:.2g} away: no integrator"
            )

    def fit(self, values: Values) -> tuple[Pivots, Ridge]:
        """Return the points of the search and the regression on its rows, cut at all blocks."""
        kernel = self.kernel.with_scales(1.0, values.lengths)
        chosen = pivots(kernel, self.inputs, self.n_points, MIN_POINT_VARIANCE)
        phi = _features(values, chosen.columns.T, self.inputs)
        ends = [0, len(phi)]
        for block in self.blocks:
            ends += [block.first, block.last]
        cuts = np.unique(ends)
        low = self.low[:: self.step]
        high = self.high[:: self.step]
        return chosen, Ridge(lambda rows: phi[rows], low, high, cuts, values.noise**2)

    def final(self, values: Values, budget: int) -> tuple[Pivots, Ridge]:
        """Return at most `budget` points and the regression on all samples.

        Only `FEATURE_BLOCK_ROWS` rows of features are in memory at a time.
        """
        kernel = self.kernel.with_scales(1.0, values.lengths)
        chosen = pivots(kernel, self.inputs, budget, MIN_POINT_VARIANCE)
        points = self.inputs[chosen.chosen]

        def features(rows: slice) -> Array:
            z = self.scaling.transform(self.regressors[rows])
            return _features(values, chosen.features(kernel(z, points)), z)

        n = len(self.regressors)
        cuts = np.unique([*range(0, n, FEATURE_BLOCK_ROWS), n])
        return chosen, Ridge(features, self.low, self.high, cuts, values.noise**2)

    def candidate(self, values: Values, chosen: Pivots, v: Array) -> Candidate:
        """Return the candidate with these points and the weights v of a regression."""
        slopes, intercept, weights = self._function(values, chosen, v)
        return Candidate(
            self.narx,
            scaling=self.scaling,
            mean=LinearMean(slopes.tolist(), intercept),
            kernel=self._kernel(values),
            points=self.inputs[chosen.chosen],
            weights=weights,
            limits=self.limits,
            bounds=self.bounds,
        )

    def _kernel(self, values: Values) -> Stationary:
        """Return the kernel of the target in its unit."""
        return self.kernel.with_scales((self.unit * values.size) ** 2, values.lengths)

    def _function(self, values: Values, chosen: Pivots, v: Array) -> tuple[Array, float, Array]:
        """Return slopes, intercept and weights of the points for the weights v of a regression."""
        n = len(chosen.chosen)
        slopes = self.unit * values.slope * v[n:-1] / values.lengths @ self.to_coordinates
        intercept = self.unit * values.slope * v[-1] - float(slopes @ self.scaling.offset)
        weights = chosen.to_weights(v[:n]) / (self.unit * values.size)
        return self.baseline + slopes, intercept, weights

    def error(self, z: Array) -> float:
        """Return the root mean square of the free-run error, in standard deviations of the output.

        All blocks are simulated. Where a simulation has diverged, the error is that of a constant
        output; every segment that diverges also adds 1 / number of partitions.
        """
        values = self.profile.values(z)
        chosen, ridge = self.fit(values)
        split = self.simulated.at(self._kernel(values), self.inputs[chosen.chosen])
        sum_of_squares = 0.0
        n_diverged = 0
        n_scored = 0
        for block in self.blocks:
            v = ridge.weights(block.first, block.last)
            function = self._function(values, chosen, v)
            for part, samples in zip(block.parts, block.samples, strict=True):
                output = split.simulate(*function, part, samples)
                error = (output - part.values) / self.spread
                is_lost = np.isnan(error)
                if is_lost.any():
                    n_diverged += 1
                    error[is_lost] = (part.values[is_lost] - part.values.mean()) / self.spread
                error = part.scored(error)
                n_scored += len(error)
                sum_of_squares += float(error @ error)
        rms = float(np.sqrt(sum_of_squares / max(n_scored, 1)))
        return rms + n_diverged / len(self.settings.blocks)

    def cost(self, z: Array) -> float:
        """Return ``log error + regularisation |z|^2 / 2``, the cost of the search."""
        try:
            error = self.error(z)
        except np.linalg.LinAlgError:
            return SINGULAR_COST
        return float(np.log(error)) + 0.5 * self.settings.regularisation * float(z @ z)


def _features(values: Values, kernel_features: Array, z: Array) -> Array:
    """Return the features (n, N + p + 1) of a regression.

    They follow from the features (n, N) of the kernel and the standardised regressors z (n, p).
    One feature follows the other in memory.
    """
    n, n_points = kernel_features.shape
    features = np.empty((n_points + z.shape[1] + 1, n))
    np.multiply(values.size, kernel_features.T, out=features[:n_points])
    np.multiply((values.slope / values.lengths)[:, None], z.T, out=features[n_points:-1])
    features[-1] = values.slope
    return features.T


def _difference(narx: Narx, scaling: AffineMap, unit: float) -> tuple[Narx, AffineMap]:
    """Return lags and coordinates of a model of the differences of the target.

    The coordinates of the target are ``(y[k-i] - y[k-i-1]) / unit``; the last lag of the target has
    no coordinate of its own.
    """
    columns, lags = feedback_of(narx)
    if len(lags) < 2 or (np.diff(lags) != 1).any():
        raise Refusal(
            f"differences: expected at least two lags of {narx.target!r} in a row, "
            f"got {lags.tolist()}"
        )
    matrix = np.diag(1.0 / scaling.scale)
    matrix[columns] = 0.0
    matrix[columns, columns] = 1.0 / unit
    matrix[columns[:-1], columns[1:]] = -1.0 / unit
    lags_of_differences = dict(narx.lags)
    lags_of_differences[narx.target] = narx.lags[narx.target][:-1]
    outputs = {name: lags_of_differences[name] for name in narx.output_names}
    inputs = {name: lags_of_differences[name] for name in narx.input_names}
    differenced = Narx(outputs, inputs, narx.target, predict=narx.predict)
    without_last = np.delete(matrix, columns[-1], axis=0)
    return differenced, AffineMap.of_matrix(scaling.offset, without_last)


@dataclass(frozen=True)
class ProfileSearch(Estimator):
    """Search for the hyper-parameters that minimise the free-run error.

    They are the length scales of a profile, the noise, and the sizes of kernel and linear trend.

    There are two hyper-parameters per signal, whatever the number of its lags, and three more. The
    error is that of simulations of blocks of the samples, by models that were fitted to the samples
    around each block. The weights of the kernel and of a linear trend follow from a regression,
    which costs one factorisation per block. The search suits long memories, strong noise and short
    records.
    """

    # whether differences of successive outputs replace the outputs
    differences: ClassVar[bool] = False

    #: prototypes; the search is done for each of them
    kernels: Sequence[Stationary] = field(
        default_factory=lambda: (SquaredExponential(), Matern52())
    )
    evaluations: int = 300  # evaluations of the free-run error, for each kernel
    # descents that share the evaluations: from the medians of the priors, then from random draws
    starts: int = 2
    blocks: Sequence[int] = (3, 5, 8)  # numbers of blocks; each gives a partition of the samples
    points: int = 100  # points during the search, at most
    rows: int = 5000  # samples of a regression during the search, at most
    simulated: int = 6000  # samples simulated in one evaluation, at most
    regularisation: float = 0.01  # weight of the squared distance from the medians of the priors

    def __post_init__(self) -> None:
        for name, kind in (("kernels", "kernels"), ("blocks", "numbers")):
            items = listed(getattr(self, name), f"ProfileSearch: {name}", kind)
            object.__setattr__(self, name, items)
        are_prototypes = all(
            isinstance(kernel, Stationary) and kernel.is_prototype for kernel in self.kernels
        )
        if not self.kernels or not are_prototypes:
            raise UserTypeError(
                "ProfileSearch: kernels must be prototypes of stationary kernels, at least one, "
                f"got {self.kernels!r}"
            )
        if not self.blocks:
            raise UserError("ProfileSearch: blocks must be one or more numbers, got none")
        for n_blocks in self.blocks:
            check_whole(n_blocks, 2, "ProfileSearch: blocks")
        check_counts(self, evaluations=1, starts=1, points=1, rows=1, simulated=1)
        if self.starts > MAX_SEARCH_STARTS:
            raise UserError(
                f"{type(self).__name__}: starts must be at most {MAX_SEARCH_STARTS}, "
                f"got {self.starts}"
            )
        if not 0 <= as_number(self.regularisation) < np.inf:
            raise UserError(
                f"ProfileSearch: regularisation must be a number >= 0, got {self.regularisation!r}"
            )

    def quick(self) -> ProfileSearch:
        """Return a version with one kernel and one start, and fewer evaluations and samples."""
        return replace(
            self,
            kernels=self.kernels[:1],
            starts=1,
            blocks=self.blocks[:2],
            evaluations=min(QUICK_EVALUATIONS, self.evaluations),
            points=min(QUICK_PROFILE_POINTS, self.points),
            rows=min(QUICK_ROWS, self.rows),
            simulated=min(QUICK_ROWS, self.simulated),
        )

    def fit(
        self,
        segments: Sequence[Segment],
        narx: Narx,
        budget: int,
        seed: int,
        limits: Limits,
    ) -> FitResult:
        """Search the hyper-parameters of every kernel, and take the best; see `Estimator.fit`.

        The best is the one of lowest cost whose model does not run away. A kernel whose cost is
        more than `MAX_COST_BEHIND` above that of another one after a descent is not pursued.

        Raises
        ------
        Refusal
            There are fewer than `MIN_SAMPLES_PER_BLOCK` samples in a block, the output does not
            vary, or double precision does not suffice for the regression.
        """
        n = n_samples(segments)
        n_blocks = max(self.blocks)
        n_needed = MIN_SAMPLES_PER_BLOCK * n_blocks
        if n < n_needed:
            raise Refusal(
                f"expected at least {n_needed} samples, {MIN_SAMPLES_PER_BLOCK} in each of "
                f"{n_blocks} blocks, got {n}; take a longer record or fewer blocks"
            )

        problems = [
            ProfileProblem(narx, segments, limits, kernel, self, budget) for kernel in self.kernels
        ]
        searches = [
            self._search(problem, np.random.default_rng([seed, number]))
            for number, problem in enumerate(problems)
        ]
        minima = search_together(searches, MAX_COST_BEHIND)
        results = list(zip(problems, minima, strict=True))
        for problem, minimum in sorted(results, key=lambda result: result[1].value):
            fit = _fit_at_minimum(problem, minimum, budget, n)
            if not find_runaway(fit.candidate, segments):
                break
        report: dict[str, Any] = {"searches": []}
        for other_problem, other_minimum in results:
            search = {
                "kernel": type(other_problem.kernel).__name__,
                "cost": other_minimum.value,
                "evaluations": other_minimum.n_evaluations,
                "starts": list(other_minimum.starts),
            }
            report["searches"].append(search)
        return fit._replace(report=report | fit.report)

    def _search(self, problem: ProfileProblem, generator: np.random.Generator) -> SimplexSearch:
        """Return the search of a problem from the medians of the priors and from random starts."""
        d = len(problem.profile.priors)
        starts = [np.zeros(d), *generator.standard_normal((self.starts - 1, d))]
        return SimplexSearch(
            problem.cost,
            starts,
            size=FIRST_SIMPLEX_EDGE,
            bound=MAX_PRIOR_DEVIATION,
            evaluations=self.evaluations,
        )


def _fit_at_minimum(
    problem: ProfileProblem, minimum: Minimum, budget: int, n_samples: int
) -> FitResult:
    """Fit the model with the hyper-parameters of a minimum to all samples."""
    values = problem.profile.values(minimum.x)
    try:
        chosen, ridge = problem.final(values, budget)
        error = problem.error(minimum.x)
        explained_variance = ridge.mean_variance()
        candidate = problem.candidate(values, chosen, ridge.weights())
    except np.linalg.LinAlgError as reason:
        raise Refusal(
            f"double precision does not suffice for the regression on {n_samples} samples: {reason}"
        ) from reason
    unexplained_variance = values.size**2 * float(np.mean(chosen.residual))
    latent_variance = problem.unit**2 * (explained_variance + unexplained_variance)
    feature_names = problem.profile.narx.feature_names
    report = {
        "kernel": type(problem.kernel).__name__,
        "free_run_error": error * problem.spread,  # output unit
        "length_scales": dict(zip(feature_names, values.lengths.tolist(), strict=True)),
        "size": values.size,
        "noise": values.noise,
        "slope": values.slope,
        "at_bounds": int(np.sum(np.abs(minimum.x) >= MAX_PRIOR_DEVIATION)),
    }
    return FitResult(candidate, latent_variance, report)


@dataclass(frozen=True)
class DifferenceSearch(ProfileSearch):
    """Profile search for a plant that integrates: its rate does not depend on its position.

    The features of the model are ``y[k-i] - y[k-i-1]`` instead of ``y[k-i]``. The search refuses a
    plant whose linear model has no pole within `MAX_INTEGRATOR_POLE_DISTANCE` of 1, and a single
    lag of the target.
    """

    differences: ClassVar[bool] = True
