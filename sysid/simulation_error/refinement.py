"""Refinement of a model for the free run by Levenberg-Marquardt.

`OutputErrorRefinement` minimises the simulation error over the linear part, the kernel weights and
the metric; `_Stages` are its steps. `Material` holds the samples in standard units. The windows of
the records come from `windows.py`, the least-squares problem of every stage from `output_error.py`,
and the metrics from `metric.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sysid.arrays import Array, as_number, check_counts, listed, listed_numbers
from sysid.errors import UserError, UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Matern52, SquaredExponential, Stationary
from sysid.gp.mean import LinearMean
from sysid.narx.lags import Narx
from sysid.simulation.segments import Limits, Segment, n_scored_samples
from sysid.simulation_error.candidate import (
    Candidate,
    Estimator,
    FitResult,
    Refusal,
    find_runaway,
    squared_error,
)
from sysid.simulation_error.metric import (
    add_points,
    gradient_metric,
    state_metric,
    transfer,
    whitening,
)
from sysid.simulation_error.output_error import (
    FreeRunProblem,
    fit_linear,
    free_run_regressors,
    gradient,
    latent_variance,
)
from sysid.simulation_error.windows import (
    StandardUnits,
    hold_back,
    spread_evenly,
    windows_of,
)

# A free run farther than this from the mean has diverged, in standard deviations of the output.
DIVERGENCE_BOUND_STDS = 1e3
# First samples of a simulated segment that are not scored, at most.
MAX_TRANSIENT_SAMPLES = 400

# Directions of a metric that is fitted together with the weights, at most.
MAX_METRIC_DIRECTIONS = 4
# A direction is fitted only if its slope is more than this fraction of the largest [-].
MIN_FITTED_SLOPE = 0.02
# The list of metrics starts again from the first after a stage that lowers the held-out mean square
# by more than this fraction [-].
MIN_RELATIVE_GAIN = 0.02
# Factor of all length scales for a kernel whose functions are smooth; 1 for the others [-].
LENGTH_FACTORS: dict[type[Stationary], float] = {SquaredExponential: 2.0}
# All starts go this fraction of the iterations, and at least so many; then the best one goes on.
RACE_DIVISOR = 3
MIN_RACE_ITERATIONS = 3
# Factors of the penalty, tried in turn until the first weights beat the linear model [-].
PENALTY_FACTORS = (1.0, 10.0, 100.0, 1000.0)
# The search for the metric uses one window for each of this many products features x points, and at
# least `search_windows`.
PRODUCTS_PER_WINDOW = 225
# The search for the metric uses one point for this many scored samples, if that is more than the
# budget.
SAMPLES_PER_POINT = 8
# Windows of the last fit, at most; of a longer record this many are spread evenly.
MAX_FINAL_WINDOWS = 24
# Upper limits of the settings of a quick version, which is used to compare lags.
QUICK_REFINEMENT_POINTS = 100
QUICK_STAGES = 2
QUICK_ITERATIONS = 6
# The points become fewer gradually if reducing them at once raises the held-out mean square by more
# than this factor.
MAX_LOSS = 4.0
# Fraction of the points that is kept in one step of a gradual reduction [-].
SHRINK_FACTOR = 0.7
# The search from the second start ends once its held-out mean square is more than this factor above
# the result of the first.
MAX_FACTOR_BEHIND = 4.0


class Material(NamedTuple):
    """Samples that an estimator fits, in standard units."""

    units: StandardUnits
    segments: list[Segment]
    windows: list[Segment]
    n_scored: int  # samples that the windows score
    empty: Candidate  # without points, and with a mean of zero

    @property
    def segments_with_transients(self) -> list[Segment]:
        """Segments whose first samples, the transients, are not scored."""
        segments = []
        for segment in self.segments:
            transient = min(MAX_TRANSIENT_SAMPLES, len(segment.values) // 5)
            segments.append(segment._replace(transient=transient))
        return segments

    @classmethod
    def of(
        cls,
        segments: Sequence[Segment],
        narx: Narx,
        limits: Limits,
        *,
        per_parameter: int,
        window: int,
        transient: int,
    ) -> Material:
        """Standardise segments and cut their windows.

        Parameters
        ----------
        segments, narx, limits
            As for `Estimator.fit`.
        per_parameter : int
            Scored samples that are needed for each linear parameter.
        window, transient : int
            Length of a window and of its transient [samples].

        Raises
        ------
        Refusal
            There are too few samples for each linear parameter, or the output does not vary.
        """
        units = StandardUnits(segments, narx)
        p = narx.n_features
        standard = [units.standardise(segment) for segment in segments]
        windows = windows_of(standard, window, transient)
        n_scored = n_scored_samples(windows)
        n_needed = per_parameter * (p + 1)
        if len(windows) < 2 or n_scored < n_needed:
            raise Refusal(
                f"expected at least {n_needed} samples beside the transients, "
                f"{per_parameter} for each linear parameter, got {n_scored} "
                f"in {len(windows)} windows; use longer records or fewer lags"
            )
        low, high = units.output.transform(np.array(limits)[:, None])[:, 0].tolist()
        empty = Candidate(
            narx,
            scaling=AffineMap.of_matrix(np.zeros(p), np.eye(p)),
            mean=LinearMean([0.0] * p),
            kernel=Matern52(1.0, np.ones(p)),
            points=np.zeros((0, p)),
            weights=np.zeros(0),
            limits=(low, high),
            bounds=(-DIVERGENCE_BOUND_STDS, DIVERGENCE_BOUND_STDS),
        )
        return cls(units, standard, windows, n_scored, empty)

    def result(
        self, final: Candidate, limits: Limits, penalty: float, report: dict[str, Any]
    ) -> FitResult:
        """Return the result of a fit in the units of the samples."""
        standard_variance = latent_variance(final, self.windows, penalty)
        variance = standard_variance * float(self.units.output.scale[0]) ** 2
        return FitResult(self.units.restore(final, limits), variance, report)


@dataclass(frozen=True)
class OutputErrorRefinement(Estimator):
    """Linear part, weights and metric of a kernel expansion that minimise the simulation error.

    In units in which every signal has variance 1:

    1. A linear model is fitted to the simulation error (`fit_linear`). Its free run is stable.
    2. Points are spread over the regressors, with weights of zero. Levenberg-Marquardt minimises
       ``sum (y - yhat)^2 + penalty w'Kw``, yhat the free run (`FreeRunProblem`). This is done in
       several metrics: with the regressors whitened, which separates a level from a difference;
       with every regressor by itself, which suits short records; and with the state of the linear
       model (`state_metric`), which has few coordinates whatever the number of lags. Each metric
       is tried with each kernel: a smooth one extrapolates better where the function is nearly a
       polynomial, such as a product of input and output, and a rough one follows a bend. The search
       continues from two starts, one after the other: the best metric of all lags, by the error on
       the windows held back, and the best metric of the state. If neither beats the linear model,
       up to a thousand times the penalty is tried. If that does not help, the model stays linear.
       Here and below, a stage whose free run leaves the range of the samples (`find_runaway`) has
       an infinite error.
    3. The next metric is that of the average gradient outer product of the current function
       (`gradient_metric`). New points are chosen in it by pivoted Cholesky, the function is
       expressed by them by ridge regression, and Levenberg-Marquardt runs again. It also fits the
       strongest directions of the metric (at most four rows of W in ``z = Wx``), together with
       weights and linear part. The result is kept only if the free run of the windows held back
       improves. Otherwise a heavier penalty is tried, then a metric of all directions that is not
       fitted, then milder ones; the search ends after the mildest. From the second start the
       search also ends once the first is far ahead.
    4. For another budget, new points are chosen in the metric found. They become fewer gradually
       if a reduction at once loses much, and the penalty grows as long as that helps. Then
       Levenberg-Marquardt runs on all windows. The model becomes linear if no stage of this budget
       beats the linear model.

    The defaults were chosen on a Bouc-Wen system and suit other systems, too. Where they do not,
    the cross-validation of the training shows it.
    """

    penalty: float = 1.0  # factor of w'Kw, in variances of the output
    search_points: int = 100  # points while the metric is searched; fewer for short records
    stages: int = 14  # metrics that are tried from each of two starts, at most
    #: exponents of the spectrum of the metric, tried in turn [-]
    powers: Sequence[float] = (1.0, 0.5, 0.25)
    spread: float = 2.0  # length scale of the strongest direction, in its standard deviations
    #: first length scale of the whitened regressors, in their standard deviations
    first_spread: float = 3.0
    #: first length scales of the regressors themselves, in their standard deviations
    plain_spreads: Sequence[float] = (6.0, 12.0)
    #: first length scales of the state of the linear model; the best of all starts is taken
    state_spreads: Sequence[float] = (3.0,)
    iterations: int = 12  # iterations of Levenberg-Marquardt in a stage
    window: int = 2048  # samples simulated in one go, at most
    #: first samples of a window that are not scored, as they depend on the outputs measured before
    transient: int = 400
    #: windows for the metric, spread over the record; more for many features and points
    search_windows: int = 8
    hold_every: int = 4  # every n-th of these windows is held back to score the stages
    #: prototypes; in the metric they are isotropic, of unit length scale. The lengths above are
    #: those of rough kernels; those of `SquaredExponential` are twice as long.
    kernels: Sequence[Stationary] = field(
        default_factory=lambda: (Matern52(), SquaredExponential())
    )

    def __post_init__(self) -> None:
        for name in ("powers", "plain_spreads", "state_spreads"):
            numbers = listed_numbers(getattr(self, name), f"OutputErrorRefinement: {name}")
            object.__setattr__(self, name, numbers)
        kernels = listed(self.kernels, "OutputErrorRefinement: kernels", "kernels")
        object.__setattr__(self, "kernels", kernels)
        check_counts(
            self,
            search_points=1,
            stages=0,
            iterations=1,
            window=2,
            transient=0,
            search_windows=2,
            hold_every=2,
        )
        is_short = self.transient < self.window
        are_kernels = bool(kernels) and all(
            isinstance(kernel, Stationary) and kernel.is_prototype for kernel in kernels
        )
        are_powers = bool(self.powers) and all(0 <= power <= 1 for power in self.powers)
        requirements = [
            ("transient", is_short, f"below window ({self.window})"),
            ("powers", are_powers, "numbers from 0 to 1, at least one"),
            ("kernels", are_kernels, "prototypes of stationary kernels, at least one"),
        ]
        for name in ("penalty", "spread", "first_spread"):
            value = getattr(self, name)
            requirements.append((name, 0 < as_number(value) < np.inf, "positive and finite"))
        for name in ("plain_spreads", "state_spreads"):
            are_positive = all(0 < value < np.inf for value in getattr(self, name))
            requirements.append((name, are_positive, "positive and finite"))
        for name, is_met, requirement in requirements:
            if not is_met:
                error = UserTypeError if name == "kernels" else UserError
                raise error(
                    f"OutputErrorRefinement: {name} must be {requirement}, "
                    f"got {getattr(self, name)!r}"
                )

    def quick(self) -> OutputErrorRefinement:
        """Return a version with fewer points, metrics and iterations."""
        return replace(
            self,
            search_points=min(QUICK_REFINEMENT_POINTS, self.search_points),
            stages=min(QUICK_STAGES, self.stages),
            iterations=min(QUICK_ITERATIONS, self.iterations),
        )

    def fit(
        self,
        segments: Sequence[Segment],
        narx: Narx,
        budget: int,
        seed: int,
        limits: Limits,
    ) -> FitResult:
        """Go through the stages; see `Estimator.fit`.

        Raises
        ------
        Refusal
            There are fewer than ten samples for each linear parameter, the output does not vary,
            the linear model is unstable with every contraction, or the sensitivities of the free
            run overflow.
        """
        material = Material.of(
            segments,
            narx,
            limits,
            per_parameter=10,
            window=self.window,
            transient=self.transient,
        )
        n_points = min(self.search_points, max(budget, material.n_scored // SAMPLES_PER_POINT))
        n_windows = max(self.search_windows, narx.n_features * n_points // PRODUCTS_PER_WINDOW)
        fitted, held_out = hold_back(material.windows, n_windows, self.hold_every)
        stages = _Stages(self, material, fitted, held_out, n_points, np.random.default_rng([seed]))
        best = stages.run(material.empty)
        if len(best.candidate.points) != budget:
            best = stages.change_budget(best, budget)
        final = stages.fit_all(best)
        report = {
            "penalty": best.penalty,
            "linear contraction": stages.contraction,
            "stages": _in_output_units(stages.notes, float(material.units.output.scale[0])),
        }
        return material.result(final, limits, best.penalty, report)


def _in_output_units(notes: list[dict[str, Any]], unit: float) -> list[dict[str, Any]]:
    """Turn the mean squared errors of notes into root mean squares in the unit of the output."""
    converted = []
    for note in notes:
        fitted = unit * float(np.sqrt(note["fitted rmse"]))
        held_out = unit * float(np.sqrt(note["held rmse"]))
        converted.append(note | {"fitted rmse": fitted, "held rmse": held_out})
    return converted


def _length_factor(kernel: Stationary) -> float:
    """Return the factor of all length scales for a kernel."""
    return LENGTH_FACTORS.get(type(kernel), 1.0)


class _Stage(NamedTuple):
    """Result of one stage."""

    candidate: Candidate
    held_out_error: float  # mean squared error of the windows held back
    penalty: float
    is_linear: bool = False  # whether no weights were found that help
    moves: bool = False  # whether the metric was fitted too


#: candidates of one kernel, with weights of zero, by the name of their metric
_Starts: TypeAlias = dict[str, Candidate]


class _MetricTrial(NamedTuple):
    """Metric that a stage tries next."""

    power: float  # exponent of the spectrum
    penalty: float
    moves: bool  # whether the metric is fitted too


def _error_of(stage: _Stage) -> float:
    """Return the error by which stages are compared."""
    return stage.held_out_error


@dataclass
class _Stages:
    """Stages of one refinement, and notes on the error of each."""

    settings: OutputErrorRefinement
    material: Material
    fitted: Sequence[Segment]  # windows that the stages are fitted to
    held_out: Sequence[Segment]  # windows that are held back to score the stages
    n_points: int  # number of points while the metric is searched
    generator: np.random.Generator
    contraction: float = 1.0  # contraction of the poles of the linear model
    linear_error: float = np.inf  # mean squared error of the linear model on the windows held back
    notes: list[dict[str, Any]] = field(default_factory=list)

    def run(self, empty: Candidate) -> _Stage:
        """Return the best stage with `n_points` points, by the windows held back."""
        linear, self.contraction, n_iterations = fit_linear(
            empty, self.material.segments_with_transients
        )
        self.linear_error = self.note("linear", linear, n_iterations=n_iterations)
        first, *others = sorted(self.begin(linear), key=_error_of)
        best = self.search(first)
        results = [best]
        for other in others:
            results.append(self.search(other, best.held_out_error))
        return min(results, key=_error_of)

    def search(self, best: _Stage, rival_error: float = np.inf) -> _Stage:
        """Return the best stage that is reached from a first one by changes of the metric.

        The search ends when no metric helps, after `stages` metrics, or when the first stage of
        another search, of error `rival_error`, is far ahead.
        """
        trials = [] if best.is_linear else self.metrics_to_try(best)
        for number in range(self.settings.stages):
            is_behind = best.held_out_error > MAX_FACTOR_BEHIND * rival_error
            if not trials or (number > 0 and is_behind):
                break
            stage = self.change_metric(best, *trials[0])
            if stage is None:
                break
            enough = (1.0 - MIN_RELATIVE_GAIN) * best.held_out_error
            is_clearly_better = stage.held_out_error < enough
            best = min(best, stage, key=_error_of)
            trials = self.metrics_to_try(best) if is_clearly_better else trials[1:]
        return best

    def metrics_to_try(self, best: _Stage) -> list[_MetricTrial]:
        """Return the metrics to try after a stage, in turn.

        The first ones are fitted, with the penalty of the stage and another one: a lighter one if
        the penalty was raised before, since a better metric may need less, otherwise a heavier one.
        """
        lighter = max(self.settings.penalty, best.penalty / 10.0)
        heavier = 10.0 * best.penalty
        was_raised = lighter < best.penalty
        penalties = (lighter, best.penalty) if was_raised else (best.penalty, heavier)
        fitted = [_MetricTrial(1.0, penalty, True) for penalty in penalties]
        fixed = [_MetricTrial(power, best.penalty, False) for power in self.settings.powers]
        return fitted + fixed

    def begin(self, linear: Candidate) -> list[_Stage]:
        """Return the stages to start from: the best metric of all lags, and the best of the state.

        They are separate, since the search cannot leave the state. The metrics of each kernel race
        against each other (`race`), and the better kernel is taken. The penalty is the lightest
        with which one of them beats the linear model on the windows held back. With a heavier
        penalty than the first, only the best metrics so far are tried again. If no penalty helps,
        the linear model alone is returned.
        """
        settings = self.settings
        x = np.concatenate([window.regressors[window.transient :] for window in self.fitted])
        metrics = {"whitened": whitening(x)[0] / settings.first_spread}
        for spread in settings.plain_spreads:
            metrics[f"plain {spread:g}"] = np.eye(x.shape[1]) / spread
        state = state_metric(linear, x)
        of_lags: list[_Starts] = []
        of_state: list[_Starts] = []
        for number, kernel in enumerate(settings.kernels):
            factor = _length_factor(kernel)
            # Further kernels and the state have their own generators, so that the starts of the
            # first kernel do not depend on them.
            generator = self.generator if number == 0 else self.generator.spawn(1)[0]
            starts = {}
            for name, matrix in metrics.items():
                starts[name] = add_points(
                    linear, kernel, matrix / factor, x, self.n_points, generator
                )
            of_lags.append(starts)
            starts = {}
            for spread in settings.state_spreads if len(state) else ():
                (generator,) = self.generator.spawn(1)
                starts[f"state {spread:g}"] = add_points(
                    linear, kernel, state / (factor * spread), x, self.n_points, generator
                )
            of_state.append(starts)
        any_start = of_lags[0]["whitened"]
        groups = [of_lags, of_state] if any(of_state) else [of_lags]
        for factor in PENALTY_FACTORS:
            penalty = factor * settings.penalty
            best_of_groups = []
            for group in groups:
                best_of_kernels = []
                for number, starts in enumerate(group):
                    best, group[number] = self.race(starts, penalty)
                    best_of_kernels.append(best)
                best_of_groups.append(min(best_of_kernels, key=_error_of))
            if min(map(_error_of, best_of_groups)) < self.linear_error:
                return best_of_groups
        return [_Stage(any_start, self.linear_error, penalty, is_linear=True)]

    def race(self, starts: _Starts, penalty: float) -> tuple[_Stage, _Starts]:
        """Return the best stage of several starts, and the start that led to it.

        All of them go some iterations; only the best goes on. Several starts are returned if all of
        them run away.
        """
        n_race = self.settings.iterations
        if len(starts) > 1:
            n_race = max(MIN_RACE_ITERATIONS, n_race // RACE_DIVISOR)
        stages = {}
        for name, start in starts.items():
            stages[name] = self.refine(name, start, penalty, max_iterations=n_race)
        best = min(stages.values(), key=_error_of)
        in_race = {
            name: starts[name]
            for name, stage in stages.items()
            if stage.held_out_error <= best.held_out_error
        }
        n_left = self.settings.iterations - n_race
        if n_left > 0 and np.isfinite(best.held_out_error):
            name = next(iter(in_race))
            further = self.refine(name, best.candidate, penalty, max_iterations=n_left)
            best = min(best, further, key=_error_of)
        return best, in_race

    def add_points(
        self,
        candidate: Candidate,
        kernel: Stationary,
        matrix: Array,
        regressors: Array,
        n_points: int,
    ) -> Candidate:
        """Return the candidate with other points and zero weights; see `metric.add_points`."""
        return add_points(candidate, kernel, matrix, regressors, n_points, self.generator)

    def change_metric(
        self, before: _Stage, power: float, penalty: float, moves: bool
    ) -> _Stage | None:
        """Fit weights in the metric of the function of the stage before.

        A metric that is fitted too has few directions. None is returned if the function is
        constant.
        """
        candidate = before.candidate
        x = free_run_regressors(candidate, self.fitted)
        z = candidate.scaling.transform(x)
        coordinate_slopes = gradient(candidate, z, candidate.kernel(z, candidate.points))
        slopes = coordinate_slopes @ candidate.scaling.linear_part()
        spread = _length_factor(candidate.kernel) * self.settings.spread
        metric = gradient_metric(x, slopes, spread=spread, power=power)
        if metric is None:
            return None
        matrix, spectrum = metric
        if moves:
            n_strong = int(np.sum(spectrum[:MAX_METRIC_DIRECTIONS] > MIN_FITTED_SLOPE))
            matrix = matrix[: max(1, n_strong)]
        new = self.add_points(candidate, candidate.kernel, matrix, x, self.n_points)
        start = transfer(candidate, new, x, self.fitted)
        return self.refine("metric", start, penalty, moves, power=power, spectrum=spectrum.tolist())

    def refine(
        self,
        name: str,
        start: Candidate,
        penalty: float,
        moves: bool = False,
        *,
        max_iterations: int | None = None,
        **details: Any,
    ) -> _Stage:
        """Fit linear part and weights of a candidate, and its metric if it moves.

        The fit is to the windows that are not held back. It takes at most the iterations of the
        settings, unless another number is given.
        """
        if max_iterations is None:
            max_iterations = self.settings.iterations
        problem = FreeRunProblem(start, self.fitted, penalty, moves)
        candidate, cost, n_iterations = problem.minimise(max_iterations)
        held_out_error = self.note(
            name,
            candidate,
            penalty=penalty,
            moves=moves,
            n_iterations=n_iterations,
            **details,
        )
        if not np.isfinite(cost):
            held_out_error = np.inf
        return _Stage(candidate, held_out_error, penalty, moves=moves)

    def change_budget(self, best: _Stage, budget: int) -> _Stage:
        """Fit another number of points in the metric of a stage.

        If the error grows much, the points become fewer in steps. The result is marked as linear
        if it does not beat the linear model.
        """
        if best.is_linear:
            return best._replace(candidate=self.resize(best, budget))
        result = self.refine_resized(best, budget)
        if not result.held_out_error < MAX_LOSS * best.held_out_error:
            step = best
            while len(step.candidate.points) > budget:
                n_points = max(budget, int(SHRINK_FACTOR * len(step.candidate.points)))
                step = self.refine_resized(step, n_points)
            result = min(result, step, key=_error_of)
        if result.held_out_error < self.linear_error:
            return result
        return result._replace(is_linear=True)

    def resize(self, stage: _Stage, n: int) -> Candidate:
        """Return a candidate of n points that approximates the function of a stage."""
        candidate = stage.candidate
        x = free_run_regressors(candidate, self.fitted)
        metric = candidate.scaling.linear_part()
        new = self.add_points(candidate, candidate.kernel, metric, x, n)
        return transfer(candidate, new, x, self.fitted)

    def refine_resized(self, stage: _Stage, n: int) -> _Stage:
        """Return the best fit with n points of several penalties, heavier as long as that helps."""
        start = self.resize(stage, n)
        name = f"{n} points"
        first_factor, *heavier_factors = PENALTY_FACTORS
        best = self.refine(name, start, first_factor * stage.penalty, stage.moves)
        for factor in heavier_factors:
            heavier = self.refine(name, start, factor * stage.penalty, stage.moves)
            is_usable = np.isfinite(best.held_out_error)
            if is_usable and heavier.held_out_error >= best.held_out_error:
                break
            best = heavier
        return best

    def fit_all(self, best: _Stage) -> Candidate:
        """Fit the candidate of a stage to all windows.

        If the fitted candidate runs away, the candidate of the stage is returned. If that one runs
        away too, or the stage is linear, the linear model is returned.
        """
        windows = spread_evenly(self.material.windows, MAX_FINAL_WINDOWS)
        if not best.is_linear:
            problem = FreeRunProblem(best.candidate, windows, best.penalty, best.moves)
            final, cost, n_iterations = problem.minimise(self.settings.iterations)
            held_out_error = self.note(
                "all windows",
                final,
                penalty=best.penalty,
                moves=best.moves,
                n_iterations=n_iterations,
            )
            if np.isfinite(held_out_error) and np.isfinite(cost):
                return final
            if np.isfinite(best.held_out_error):
                return best.candidate
        linear, _, n_iterations = fit_linear(
            self.material.empty, self.material.segments_with_transients
        )
        final = replace(best.candidate, mean=linear.mean, weights=0.0 * best.candidate.weights)
        self.note("all windows", final, penalty=best.penalty, n_iterations=n_iterations)
        return final

    def note(self, name: str, candidate: Candidate, **details: Any) -> float:
        """Add a note on a stage; return its mean squared error of the windows held back.

        The error is infinite if a simulation runs away.
        """
        fitted_error = squared_error(candidate, self.fitted)
        held_out_error = squared_error(candidate, self.held_out)
        runaway = "windows held back"
        if np.isfinite(held_out_error):
            runaway = find_runaway(candidate, self.material.segments)
        if runaway:
            held_out_error = np.inf
        note = {
            "stage": name,
            "kernel": type(candidate.kernel).__name__,
            "points": len(candidate.points),
            "fitted rmse": fitted_error,
            "held rmse": held_out_error,
            "runs away from": runaway,
        }
        self.notes.append(note | details)
        return held_out_error
