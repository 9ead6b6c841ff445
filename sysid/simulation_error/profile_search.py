"""Profile search: hyper-parameters that minimise the free-run error, weights and trend that follow
by regression.

The length scales of the lags of a signal are tied by a profile (`Profile`), so that 40 lags have no
more hyper-parameters than 4. For given hyper-parameters the weights of the kernel and a linear
trend follow from a Bayesian linear regression (`Ridge`), and the model simulates parts of the
samples that the regression left out (`ProfileProblem`). Nelder and Mead's simplex minimises the
error of these simulations (`optimise`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import minimize

from sysid.arrays import Array, Indices, check_counts, listed
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

SMALLEST = 1e-3  # difference of the cost within the simplex at which it stops [-]
FIRST_SIMPLEX = 0.7  # edges, standard deviations of the priors
FARTHEST = 4.0  # from their medians that hyper-parameters may go, in their standard deviations
WORST = 9.0  # cost of hyper-parameters for which double precision does not suffice [-]

TOLERANCE = 1e-6  # of a kernel's variance: points that have less left explain nothing more
REACH = 10.0  # how far outside its range an output may go in a simulation, in that range [-]
BLOCK = 4096  # rows of features that are held at a time
LEAST_PER_BLOCK = 5  # samples
STEPS = 8  # of the fixed point of saturated targets
INTEGRATES = 0.01  # largest distance of a pole from 1 of a plant that may integrate
# at most, while lags are compared
QUICK_EVALUATIONS = 80
QUICK_POINTS = 60
QUICK_ROWS = 2000


class Minimum(NamedTuple):
    """Smallest cost that was found."""

    x: Array  # (d,)
    value: float
    n_evaluations: int
    starts: tuple[float, ...]  # best value after each start


def optimise(
    cost: Callable[[Array], float],
    starts: Sequence[Array],
    *,
    size: float,
    bound: float,
    evaluations: int,
) -> Minimum:
    """Minimise a cost of x (d,) by Nelder and Mead's simplex from several starts, then again from
    the best.

    It serves a cost with ripples and kinks, whose gradient leads nowhere. Every start gets the same
    share of the evaluations, and so does the last descent, which starts from the best point with a
    new simplex.

    Parameters
    ----------
    starts : sequence of (d,)
    size : float
        Edges of the first simplex, along the axes.
    bound : float
        Largest magnitude of every variable.
    evaluations : int
        Never exceeded.
    """
    best = np.inf
    x = starts[0]
    n = 0

    def count(candidate: Array) -> float:
        nonlocal best, x, n
        value = float(cost(candidate))
        n += 1
        if value < best or n == 1:
            best = value
            x = candidate.copy()
        return value

    def descend(start: Array, size: float, most: int) -> None:
        inward = np.where(start > 0, -size, size)  # so that the simplex is inside the bounds
        simplex = np.vstack([start, start + np.diag(inward)])
        bounds = [(-bound, bound)] * len(start)
        limits = {
            "maxfev": most - n,
            "maxiter": 10**6,
            "fatol": SMALLEST,
            "xatol": 1e-2,
        }
        minimize(
            count,
            start,
            method="Nelder-Mead",
            bounds=bounds,
            options={"initial_simplex": simplex, **limits},
        )

    values = []
    for number, start in enumerate(starts, start=1):
        descend(start, size, number * evaluations // (len(starts) + 1))
        values.append(best)
    while n < evaluations:
        before = best
        descend(x, 0.5 * size, evaluations)
        if before - best < SMALLEST:
            break
    return Minimum(x, best, n, tuple(values))


class Prior(NamedTuple):
    """Log-normal prior of a hyper-parameter."""

    median: float  # of the logarithm
    std: float  # of the logarithm


# std of the signal, at its first lag
OWN_LENGTH = Prior(np.log(4.0), 1.0)
OTHER_LENGTH = Prior(np.log(6.0), 1.0)
# per lag
OWN_GROWTH = Prior(0.05, 0.1)
OTHER_GROWTH = Prior(0.03, 0.05)
WHOLE_GROWTH = 2.0  # largest prior standard deviation of the growth over all lags
SIZE = Prior(np.log(7.0), 1.5)  # of the function, std of the target
NOISE = Prior(np.log(0.5), 1.5)  # std of the target
SLOPE = Prior(np.log(0.7), 1.5)  # of the linear part over a length scale, std of the target


class Values(NamedTuple):
    """Hyper-parameters in their own units."""

    lengths: Array  # (p,) std of the signal of each feature
    size: float  # of the function, target std
    noise: float  # target std
    slope: float  # of the linear part over a length scale, target std


@dataclass(frozen=True)
class Profile:
    """Length scales ``exp(a_s + b_s (lag - first lag))`` of the lags of every signal s: two numbers
    per signal.

    The variables of the optimisation are ``((a_s, b_s) for every signal, log size, log noise, log
    slope)``, each counted from the median of its prior in its standard deviations; b_s only for
    signals of several lags.
    """

    narx: Narx

    @cached_property
    def priors(self) -> tuple[Prior, ...]:
        """Of every variable."""
        found = []
        for name, lags in self.narx.lags.items():
            is_own = name in self.narx.output_names
            if lags:
                found.append(OWN_LENGTH if is_own else OTHER_LENGTH)
            if len(lags) > 1:
                growth = OWN_GROWTH if is_own else OTHER_GROWTH
                span = lags[-1] - lags[0]
                shrink = min(1.0, WHOLE_GROWTH / (growth.std * span))
                found.append(Prior(shrink * growth.median, shrink * growth.std))
        return (*found, SIZE, NOISE, SLOPE)

    def values(self, z: Array) -> Values:
        """Hyper-parameters of variables (d,)."""
        inside = np.clip(z, -FARTHEST, FARTHEST)
        theta = [
            prior.median + prior.std * value
            for prior, value in zip(self.priors, inside.tolist(), strict=True)
        ]
        logarithms = []
        position = 0
        for lags in filter(None, self.narx.lags.values()):
            growth = theta[position + 1] if len(lags) > 1 else 0.0
            logarithms += [theta[position] + growth * (lag - lags[0]) for lag in lags]
            position += 2 if len(lags) > 1 else 1
        size, noise, slope = np.exp(theta[-3:]).tolist()
        return Values(np.exp(logarithms), size, noise, slope)


class Ridge:
    """Bayesian linear regression in blocks of rows: weights without any of the blocks cost one more
    solve.

    ``t = phi(x)'v + e``, ``v ~ N(0, I)``, ``e ~ N(0, s2)``: ``(s2 I + sum_i phi_i phi_i') v = sum_i
    phi_i t_i``. The sums are kept for each block, so that memory does not grow with the number of
    rows.

    The target of a saturated sample is at least (at most) the value that was measured: where the
    prediction lies beyond, it takes the place of the target, `STEPS` times, which leaves the matrix
    as it is.

    Parameters
    ----------
    features : callable
        Features (m, d) of a slice of rows.
    low, high : (n,)
        Bounds of the targets: both are the target itself where it is not saturated, else one of
        them is infinite.
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
        saturated = low < high
        # sums over the blocks before each cut
        matrices = [np.zeros(())]
        vectors = [np.zeros(())]
        censored = []
        for first, last in pairwise(cuts.tolist()):
            phi = features(slice(first, last))
            known = ~saturated[first:last]
            matrices.append(matrices[-1] + phi.T @ phi)
            vectors.append(vectors[-1] + low[first:last][known] @ phi[known])
            censored.append(phi[~known])
        self._matrices = matrices
        self._vectors = vectors
        self._censored = np.concatenate(censored)
        self._rows = np.flatnonzero(saturated)
        self._low, self._high = low[saturated], high[saturated]

    def weights(self, first: int = 0, last: int = 0) -> Array:
        """Posterior mean of v (d,) from all rows but those from first to before last, both of them
        cuts.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the matrix is not positive definite in double precision.
        """
        low, high = np.searchsorted(self.cuts, [first, last])
        factor = self._factor(self._matrices[-1] - (self._matrices[high] - self._matrices[low]))
        vector = self._vectors[-1] - (self._vectors[high] - self._vectors[low])
        kept = (self._rows < first) | (self._rows >= last)
        phi = self._censored[kept]
        low = self._low[kept]
        high = self._high[kept]
        targets = np.where(np.isfinite(low), low, high)
        for _ in range(STEPS if len(targets) else 1):
            weights = dpotrs(factor, vector + targets @ phi, lower=1)[0]
            targets = np.clip(phi @ weights, low, high)
        return weights

    def mean_variance(self) -> float:
        """Posterior variance of phi'v, mean over all rows, target unit squared.

        With ``A = sum_i phi_i phi_i'`` of n rows: ``s2 tr((A + s2 I)^-1 A) / n``.
        """
        matrix = self._matrices[-1]
        inverse = dpotrs(self._factor(matrix.copy()), np.eye(len(matrix)), lower=1)[0]
        explained = len(matrix) - self.noise_variance * float(np.trace(inverse))
        return self.noise_variance * explained / int(self.cuts[-1])

    def _factor(self, matrix: Array) -> Array:
        matrix.flat[:: len(matrix) + 1] += self.noise_variance
        factor, failed = dpotrf(
            matrix.T, lower=1, overwrite_a=1
        )  # the wrappers of SciPy cost as much as this
        if failed or not np.isfinite(factor).all():
            raise np.linalg.LinAlgError(
                f"the leading minor of order {failed} is not positive definite"
            )
        return np.asarray(factor)


class ProfileProblem:
    """Free-run error of a model over parts of the samples, with weights from the samples around
    each part.

    ::

        t = mean + unit (size g(x) + slope (b_0 + sum_d b_d z_d / length_d)) v-linear, v ~ N(0, I)

    with the features g of the kernel's points (`Pivots`) and z standardised: kernel weights and a
    linear trend are integrated out together. The target is the change of the output since its
    newest lag.

    A part shares two things with the samples around it: the points are chosen among all regressors
    (never by the targets), and the first regressors after a part contain its last outputs.

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
        An output that does not vary.

    Attributes
    ----------
    inputs : (n, p)
        Standardised regressors of the rows of the regression.
    blocks : list
        Samples that are left out of a regression and simulated: the first of its rows, the row
        after the last, and segments.
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
        self.scaling, self.baseline = (
            scale_signals(narx, self.regressors),
            np.zeros(narx.n_features),
        )
        before = np.concatenate([segment.previous for segment in segments])
        if (
            narx.predict is Target.value
        ):  # the model corrects the prediction that the newest lag does not change
            columns, lags = feedback_of(narx)
            newest = columns[np.argmin(lags)]
            self.baseline[newest], before = 1.0, self.regressors[:, newest]
        changes = outputs - before
        self.unit, self.spread = float(np.std(changes)), float(np.std(outputs))
        coordinates = narx
        if settings.differences:
            coordinates, self.scaling = _difference(narx, self.scaling, self.unit)
            self._check_integrates(changes)
        self.profile, self.to_coordinates = (
            Profile(coordinates),
            self.scaling.linear_part(),
        )
        if not self.unit > 0:
            raise Refusal(f"the output {narx.target!r} does not vary")
        self.low = np.where(outputs <= limits[0], -np.inf, changes / self.unit)
        self.high = np.where(outputs >= limits[1], np.inf, changes / self.unit)
        reach = REACH * float(np.ptp(outputs))
        self.bounds = (float(outputs.min()) - reach, float(outputs.max()) + reach)
        self.step = -(-len(outputs) // settings.rows)
        self.inputs = np.ascontiguousarray(self.scaling.transform(self.regressors[:: self.step]))
        self.blocks: list[tuple[int, int, tuple[Segment, ...]]] = []
        for n in settings.blocks:
            most = max(1, settings.simulated // (len(settings.blocks) * n))
            last = 0
            for fold in folds_of(segments, n):
                first = last
                last = last + n_samples(fold.parts)
                self.blocks.append(
                    (
                        -(-first // self.step),
                        -(-last // self.step),
                        truncate(fold.parts, most),
                    )
                )

    def _check_integrates(self, changes: Array) -> None:
        columns, _ = feedback_of(self.narx)
        own = np.asarray(linear_fit(self.regressors, changes).coefficients)[columns]
        nearest = float(np.abs(1.0 - np.roots([1.0, -1.0 - own[0], *-own[1:]])).min())
        if nearest > INTEGRATES:
            raise Refusal(
                f"the pole of the linear model that is nearest to 1 is {nearest:.2g} away: no integrator"
            )

    def fit(self, values: Values) -> tuple[Pivots, Ridge]:
        """Points, and regression on the rows, one block behind the other."""
        kernel = self.kernel.with_scales(1.0, values.lengths)
        chosen = pivots(kernel, self.inputs, self.n_points, TOLERANCE)
        phi = _features(values, chosen.columns.T, self.inputs)
        cuts = np.unique([0, len(phi), *(row for block in self.blocks for row in block[:2])])
        low = self.low[:: self.step]
        high = self.high[:: self.step]
        return chosen, Ridge(lambda rows: phi[rows], low, high, cuts, values.noise**2)

    def final(self, values: Values, budget: int) -> tuple[Pivots, Ridge]:
        """At most `budget` points, and regression on all samples; memory of a few thousand rows of
        features.
        """
        kernel = self.kernel.with_scales(1.0, values.lengths)
        chosen = pivots(kernel, self.inputs, budget, TOLERANCE)
        points = self.inputs[chosen.chosen]

        def features(rows: slice) -> Array:
            z = self.scaling.transform(self.regressors[rows])
            return _features(values, chosen.features(kernel(z, points)), z)

        n = len(self.regressors)
        cuts = np.unique([*range(0, n, BLOCK), n])
        return chosen, Ridge(features, self.low, self.high, cuts, values.noise**2)

    def empty(self, values: Values, chosen: Pivots) -> Candidate:
        """Model of these points without weights."""
        kernel = self.kernel.with_scales((self.unit * values.size) ** 2, values.lengths)
        points = self.inputs[chosen.chosen]
        mean = LinearMean(self.baseline.tolist())
        return Candidate(
            self.narx,
            self.scaling,
            mean,
            kernel,
            points,
            np.zeros(len(points)),
            self.limits,
            self.bounds,
        )

    def candidate(self, empty: Candidate, values: Values, chosen: Pivots, v: Array) -> Candidate:
        """Model of weights v of a regression."""
        n = len(chosen.chosen)
        slopes = self.unit * values.slope * v[n:-1] / values.lengths @ self.to_coordinates
        intercept = self.unit * values.slope * v[-1] - float(slopes @ self.scaling.offset)
        mean = LinearMean((self.baseline + slopes).tolist(), intercept)
        return empty.with_function(mean, chosen.to_weights(v[:n]) / (self.unit * values.size))

    def error(self, z: Array) -> float:
        """Root mean square of the free-run error over all blocks, in standard deviations of the
        output.

        A block that diverges counts with a constant output, and adds 1 / number of partitions.
        """
        values = self.profile.values(z)
        total = 0.0
        diverged = 0
        chosen, ridge = self.fit(values)
        empty = self.empty(values, chosen)
        for first, last, parts in self.blocks:
            candidate = self.candidate(empty, values, chosen, ridge.weights(first, last))
            for part in parts:
                error = (candidate.simulate(part) - part.values) / self.spread
                lost = np.isnan(error)
                diverged += bool(lost.any())
                error[lost] = (part.values[lost] - part.values.mean()) / self.spread
                total += float(error @ error)
        n = sum(n_samples(parts) for _, _, parts in self.blocks)
        return float(np.sqrt(total / n)) + diverged / len(self.settings.blocks)

    def cost(self, z: Array) -> float:
        """``log error + regularisation |z|^2 / 2``."""
        try:
            error = self.error(z)
        except np.linalg.LinAlgError:
            return WORST
        return float(np.log(error)) + 0.5 * self.settings.regularisation * float(z @ z)


def _features(values: Values, kernel: Array, z: Array) -> Array:
    """Features (n, N + p + 1) of the kernel's (n, N) and of standardised regressors z (n, p)."""
    linear = np.column_stack([z / values.lengths, np.ones(len(z))])
    return np.hstack([values.size * kernel, values.slope * linear])


def _difference(narx: Narx, scaling: AffineMap, unit: float) -> tuple[Narx, AffineMap]:
    """Lags without the last of the target, and coordinates ``(y[k-i] - y[k-i-1]) / unit`` for those
    of the target.
    """
    columns, lags = feedback_of(narx)
    if len(lags) < 2 or (np.diff(lags) != 1).any():
        raise Refusal(
            f"differences: expected at least two lags of {narx.target!r} in a row, got {lags.tolist()}"
        )
    matrix = np.diag(1.0 / scaling.scale)
    matrix[columns] = 0.0
    matrix[columns, columns], matrix[columns[:-1], columns[1:]] = (
        1.0 / unit,
        -1.0 / unit,
    )
    kept = {
        name: numbers[:-1] if name == narx.target else numbers
        for name, numbers in narx.lags.items()
    }
    outputs, inputs = (
        {name: kept[name] for name in names} for names in (narx.output_names, narx.input_names)
    )
    found = Narx(outputs, inputs, narx.target, predict=narx.predict)
    return found, AffineMap.of_matrix(scaling.offset, np.delete(matrix, columns[-1], axis=0))


@dataclass(frozen=True)
class ProfileSearch(Estimator):
    """Length scales tied by a profile over the lag, found with the noise and the sizes by the
    free-run error.

    There are two hyper-parameters per signal, whatever the number of its lags, and three more. The
    error is that of simulations of parts of the samples by models that were fitted to the samples
    around each part; the weights of the kernel and of a linear trend follow from a regression,
    which costs one factorisation per part. It serves long memories, strong noise and short records.
    """

    differences: ClassVar[bool] = False  # of successive outputs stand in the place of the outputs

    kernels: Sequence[Stationary] = field(
        default_factory=lambda: (SquaredExponential(), Matern52())
    )  # prototypes
    evaluations: int = 300  # of the free-run error, for each kernel
    starts: int = 2  # descents that share them: from the medians of the priors, then from draws
    blocks: Sequence[int] = (3, 5, 8)  # partitions of the samples
    points: int = 100  # most points during the search
    rows: int = 5000  # most samples of a regression during the search
    simulated: int = 6000  # most samples simulated in one evaluation
    regularisation: float = 0.01  # weight of the squared distance from the medians of the priors

    def __post_init__(self) -> None:
        for name, kind in (("kernels", "kernels"), ("blocks", "numbers")):
            object.__setattr__(
                self, name, listed(getattr(self, name), f"ProfileSearch: {name}", kind)
            )
        if not self.kernels or not all(
            isinstance(one, Stationary) and one.is_prototype for one in self.kernels
        ):
            raise UserTypeError(
                f"ProfileSearch: kernels must be prototypes of stationary kernels, at least one, got {self.kernels!r}"
            )
        if not self.blocks or not all(
            isinstance(number, Real) and number >= 2 for number in self.blocks
        ):
            raise UserError(
                f"ProfileSearch: blocks must be numbers of at least 2, at least one, got {self.blocks}"
            )
        check_counts(self, evaluations=1, starts=1, points=1, rows=1, simulated=1)
        if not (isinstance(self.regularisation, Real) and 0 <= float(self.regularisation) < np.inf):
            raise UserError(
                f"ProfileSearch: regularisation must be a number >= 0, got {self.regularisation!r}"
            )

    def quick(self) -> ProfileSearch:
        """One kernel, from one start, with fewer evaluations on fewer samples."""
        changes = {
            "evaluations": QUICK_EVALUATIONS,
            "points": QUICK_POINTS,
            "rows": QUICK_ROWS,
            "simulated": QUICK_ROWS,
        }
        fewer: Any = {name: min(most, getattr(self, name)) for name, most in changes.items()}
        return replace(self, kernels=self.kernels[:1], starts=1, blocks=self.blocks[:2], **fewer)

    def fit(
        self,
        segments: Sequence[Segment],
        narx: Narx,
        budget: int,
        seed: int,
        limits: Limits,
    ) -> FitResult:
        """Optimise the hyper-parameters of every kernel, and take the best that does not run away;
        see `Estimator.fit`.

        Raises
        ------
        Refusal
            Fewer than `LEAST_PER_BLOCK` samples in a block, an output that does not vary, or a
            regression that double precision cannot solve.
        """
        least = LEAST_PER_BLOCK * max(self.blocks)
        n = n_samples(segments)
        if n < least:
            raise Refusal(
                f"expected at least {least} samples, {LEAST_PER_BLOCK} in each of {max(self.blocks)} blocks, got {n}; "
                "take a longer record or fewer blocks"
            )

        problems = [
            ProfileProblem(narx, segments, limits, kernel, self, budget) for kernel in self.kernels
        ]

        def search(number: int) -> Minimum:
            problem = problems[number]
            generator = np.random.default_rng([seed, number])
            d = len(problem.profile.priors)
            starts = [np.zeros(d), *generator.standard_normal((self.starts - 1, d))]
            return optimise(
                problem.cost,
                starts,
                size=FIRST_SIMPLEX,
                bound=FARTHEST,
                evaluations=self.evaluations,
            )

        found = together([partial(search, number) for number in range(len(problems))])
        tried = list(zip(problems, found, strict=True))
        for problem, best in sorted(tried, key=lambda pair: pair[1].value):
            values = problem.profile.values(best.x)
            try:
                (chosen, ridge), error = (
                    problem.final(values, budget),
                    problem.error(best.x),
                )
                empty = problem.empty(values, chosen)
                variance = ridge.mean_variance()
                candidate = problem.candidate(empty, values, chosen, ridge.weights())
            except np.linalg.LinAlgError as reason:
                words = (
                    f"double precision does not suffice for the regression on {n} samples: {reason}"
                )
                raise Refusal(words) from reason
            if not find_runaway(candidate, segments):
                break
        unexplained = values.size**2 * float(np.mean(chosen.residual))
        report = {
            "searches": [
                {
                    "kernel": type(other.kernel).__name__,
                    "cost": found.value,
                    "evaluations": found.n_evaluations,
                    "starts": list(found.starts),
                }
                for other, found in tried
            ],
            "kernel": type(problem.kernel).__name__,
            "free_run_error": error * problem.spread,  # output unit
            "length_scales": dict(
                zip(
                    problem.profile.narx.feature_names,
                    values.lengths.tolist(),
                    strict=True,
                )
            ),
            "size": values.size,
            "noise": values.noise,
            "slope": values.slope,
            "at_bounds": int(np.sum(np.abs(best.x) >= FARTHEST)),
        }
        return FitResult(candidate, problem.unit**2 * (variance + unexplained), report)


@dataclass(frozen=True)
class DifferenceSearch(ProfileSearch):
    """Profile search for a plant that integrates, whose rate does not depend on its position.

    The model knows ``y[k-i] - y[k-i-1]`` in the place of ``y[k-i]``. It refuses a plant whose
    linear model has no pole within `INTEGRATES` of 1, and a single lag of the target.
    """

    differences: ClassVar[bool] = True
