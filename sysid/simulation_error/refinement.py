"""Refinement: linear part, kernel weights and metric that minimise the simulation error by
Levenberg-Marquardt.

The windows of the records are those of `windows.py`, the least-squares problem that is solved again
and again is that of `output_error.py`, the metrics are those of `metric.py`. Here are the samples
that an estimator works on (`Material`), and the stages of the refinement (`OutputErrorRefinement`,
`_Stages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from sysid.arrays import Array, check_counts, listed_numbers
from sysid.errors import UserError, UserTypeError
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Matern52, Stationary
from sysid.gp.mean import LinearMean
from sysid.narx.lags import Narx
from sysid.simulation.segments import Limits, Segment
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

REACH = 1e3  # a free run farther away than this has diverged, standard deviations of the output
TRANSIENT = 400  # samples of a simulation that are not scored

# of a metric that moves, and least part of the strongest that one has [-]
MOST_DIRECTIONS = 4
LEAST_MOVING = 0.02
GAIN = 0.02  # of the mean square held back, for which the strongest metric is tried again [-]
HEAVIER = (
    1.0,
    10.0,
    100.0,
    1000.0,
)  # of the penalty, tried in turn until the first weights beat the linear model [-]
# features x points for each window on which the metric is searched, beyond `search_windows`
PER_WINDOW = 225
PER_POINT = 8  # scored samples for each point beyond the budget while the metric is searched
MOST_WINDOWS = 24  # of the last fit; of longer records that many, spread evenly, suffice
# at most, while lags are compared
QUICK_POINTS = 100
QUICK_STAGES = 2
QUICK_ITERATIONS = 6
# of the number of points in one reduction, where all at once raises the mean square so much [-]
STEP = 0.7
LOST = 4.0


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
        return [
            one._replace(transient=min(TRANSIENT, len(one.values) // 5)) for one in self.segments
        ]

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

        Raises
        ------
        Refusal
            Too few samples for each linear parameter, or an output that does not vary.
        """
        units = StandardUnits(segments, narx)
        p = narx.n_features
        standard = [units.standardise(segment) for segment in segments]
        windows = windows_of(standard, window, transient)
        scored = sum(len(one.values) - one.transient for one in windows)
        needed = per_parameter * (p + 1)
        if len(windows) < 2 or scored < needed:
            raise Refusal(
                f"expected at least {needed} samples beside the transients, {per_parameter} for each linear parameter, "
                f"got {scored} in {len(windows)} windows; use longer records or fewer lags"
            )
        low, high = units.output.transform(np.array(limits)[:, None])[:, 0].tolist()
        identity = AffineMap.of_matrix(np.zeros(p), np.eye(p))
        kernel = Matern52(1.0, np.ones(p))
        mean = LinearMean([0.0] * p)
        nothing = np.zeros((0, p))
        empty = Candidate(
            narx,
            identity,
            mean,
            kernel,
            nothing,
            nothing[:, 0],
            (low, high),
            (-REACH, REACH),
        )
        return cls(units, standard, windows, scored, empty)

    def result(
        self, final: Candidate, limits: Limits, penalty: float, report: dict[str, Any]
    ) -> FitResult:
        """Return the result in the units of the samples."""
        variance = (
            latent_variance(final, self.windows, penalty) * float(self.units.output.scale[0]) ** 2
        )
        return FitResult(self.units.restore(final, limits), variance, report)


@dataclass(frozen=True)
class OutputErrorRefinement(Estimator):
    """Linear part, weights and metric of a kernel expansion that minimise the simulation error.

    In units in which every signal has variance 1:

    1. A linear model that minimises the simulation error: a stable free run to begin with (`fit_linear`).
    2. Points spread over the regressors, weights zero; then Levenberg-Marquardt on
       ``sum (y - yhat)^2 + penalty w'Kw``, yhat the free run (`FreeRunProblem`). Once with the
       regressors whitened, which tells a level from a difference, with each of them by itself,
       which short records need, and with the state of the linear model (`state_metric`), which has
       few coordinates however many the lags. The best of all lags, by the windows held back, and
       that of the state go on, one after the other. If neither beats the linear model, up to a
       thousand times the penalty is tried; else the model stays linear. A stage whose free run
       leaves the range of the samples (`find_runaway`) is infinitely wrong, here and below.
    3. The metric of the average gradient outer product of the function that was found (`gradient_metric`), new
       points in it by pivoted Cholesky, the same function on them by ridge regression, and
       Levenberg-Marquardt again, which moves the strongest directions of the metric too (at most
       four rows of W in ``z = Wx``), together with weights and linear part. The result is kept only
       if the free run of the windows held back improves; else a heavier penalty, then a metric of
       all directions that does not move, then a milder one, and the mildest is the last. The second
       start ends where the first is far ahead.
    4. At another budget new points in the metric found, fewer in steps where much is lost at once, with a heavier
       penalty as long as that helps; Levenberg-Marquardt on all windows. Linear again if nothing is
       left that beats the linear model.

    The defaults were fixed on a Bouc-Wen system and serve others as they are; the cross-validation
    of the training tells where they do not.
    """

    penalty: float = 1.0  # of w'Kw, in variances of the output
    search_points: int = 100  # while the metric is searched; of short records not that many
    stages: int = 14  # metrics tried, at most, from each of two starts
    powers: Sequence[float] = (
        1.0,
        0.5,
        0.25,
    )  # of the spectrum of the metric, tried in turn [-]
    spread: float = 2.0  # length scale of the strongest direction, its standard deviations
    first_spread: float = (
        3.0  # first length scale of the whitened regressors, their standard deviations
    )
    plain_spreads: Sequence[float] = (6.0, 12.0)  # of the regressors themselves
    state_spreads: Sequence[float] = (
        3.0,
    )  # of the state of the linear model; the best of all starts is taken
    iterations: int = 12  # of Levenberg-Marquardt in a stage
    window: int = 2048  # samples simulated in one go, at most
    transient: int = 400  # of these not scored, as they depend on the outputs measured before
    # among all, spread over the record, for the metric; more for many features and points
    search_windows: int = 8
    hold_every: int = 4  # every n-th of these is held back to judge the stages
    kernel: Stationary = field(
        default_factory=Matern52
    )  # prototype; isotropic, of unit length scale in the metric

    def __post_init__(self) -> None:
        for name in ("powers", "plain_spreads", "state_spreads"):
            numbers = listed_numbers(getattr(self, name), f"OutputErrorRefinement: {name}")
            object.__setattr__(self, name, numbers)
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
        is_kernel = isinstance(self.kernel, Stationary) and self.kernel.is_prototype
        are_powers = bool(self.powers) and all(0 <= power <= 1 for power in self.powers)
        requirements = [
            (
                "transient",
                self.transient < self.window,
                f"below window ({self.window})",
            ),
            ("powers", are_powers, "numbers from 0 to 1, at least one"),
            ("kernel", is_kernel, "the prototype of a stationary kernel"),
        ]
        for name in ("penalty", "spread", "first_spread"):
            value = getattr(self, name)
            is_positive = isinstance(value, Real) and 0 < float(value) < np.inf
            requirements.append((name, is_positive, "positive and finite"))
        for name in ("plain_spreads", "state_spreads"):
            are_positive = all(0 < value < np.inf for value in getattr(self, name))
            requirements.append((name, are_positive, "positive and finite"))
        for name, is_met, words in requirements:
            if not is_met:
                error = UserTypeError if name == "kernel" else UserError
                raise error(
                    f"OutputErrorRefinement: {name} must be {words}, got {getattr(self, name)!r}"
                )

    def quick(self) -> OutputErrorRefinement:
        """Fewer points, metrics and iterations."""
        changes = {
            "search_points": QUICK_POINTS,
            "stages": QUICK_STAGES,
            "iterations": QUICK_ITERATIONS,
        }
        fewer: Any = {name: min(most, getattr(self, name)) for name, most in changes.items()}
        return replace(self, **fewer)

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
            Fewer than ten samples for each linear parameter, an output that does not vary, a linear
            model that is unstable in spite of all contractions, or a free run whose sensitivities
            overflow.
        """
        material = Material.of(
            segments,
            narx,
            limits,
            per_parameter=10,
            window=self.window,
            transient=self.transient,
        )
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
            note |= {
                name: unit * float(np.sqrt(note[name])) for name in ("fitted rmse", "held rmse")
            }
        report = {
            "penalty": best.penalty,
            "linear contraction": stages.contraction,
            "stages": stages.notes,
        }
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
        return min(
            [best, *(self.search(other, best.held) for other in others)],
            key=lambda stage: stage.held,
        )

    def search(self, best: _Stage, rival: float = np.inf) -> _Stage:
        """Best stage on the way from a first one: another metric as long as one helps, and a rival
        is not far ahead.
        """
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
        """Powers and penalties of the next metrics, and whether they move; a better one may need
        less penalty.
        """
        lighter = max(self.settings.penalty, best.penalty / 10.0)
        penalties = (
            (lighter, best.penalty)
            if lighter < best.penalty
            else (best.penalty, 10.0 * best.penalty)
        )
        moving = [(1.0, penalty, True) for penalty in penalties]
        return [
            *moving,
            *((power, best.penalty, False) for power in self.settings.powers),
        ]

    def begin(self, linear: Candidate) -> list[_Stage]:
        """Best weights in the first metrics of all lags, and in those of the state, where the
        search cannot leave it.

        The linear model alone if none beats it on the windows held back.
        """
        x = np.concatenate([window.regressors[window.transient :] for window in self.kept])
        metrics = {"whitened": whitening(x)[0] / self.settings.first_spread}
        metrics |= {
            f"plain {spread:g}": np.eye(x.shape[1]) / spread
            for spread in self.settings.plain_spreads
        }
        starts = {
            name: self.add_points(linear, matrix, x, self.n_points)
            for name, matrix in metrics.items()
        }
        state = state_metric(linear, x)
        settings = self.settings
        for spread in settings.state_spreads if len(state) else ():
            (own,) = self.generator.spawn(1)  # the other starts do not depend on this one
            starts[f"state {spread:g}"] = add_points(
                linear, settings.kernel, state / spread, x, self.n_points, own
            )
        for factor in HEAVIER:
            penalty = factor * self.settings.penalty
            stages = [self.refine(name, start, penalty) for name, start in starts.items()]
            if min(stage.held for stage in stages) < self.linear:
                groups = stages[: len(metrics)], stages[len(metrics) :]
                return [min(group, key=lambda stage: stage.held) for group in groups if group]
        return [_Stage(next(iter(starts.values())), self.linear, penalty, is_linear=True)]

    def add_points(
        self, candidate: Candidate, matrix: Array, regressors: Array, n_points: int
    ) -> Candidate:
        """Replace the points by others, spread over regressors (n, p) in a metric, with weights of
        zero.
        """
        return add_points(
            candidate,
            self.settings.kernel,
            matrix,
            regressors,
            n_points,
            self.generator,
        )

    def change_metric(
        self, before: _Stage, power: float, penalty: float, moves: bool
    ) -> _Stage | None:
        """Fit weights in the metric of the function before, of few directions if it moves; None if
        that is constant.
        """
        x = free_run_regressors(before.candidate, self.kept)
        z = before.candidate.scaling.transform(x)
        matrix = before.candidate.scaling.linear_part()
        slopes = (
            gradient(before.candidate, z, before.candidate.kernel(z, before.candidate.points))
            @ matrix
        )
        metric = gradient_metric(x, slopes, spread=self.settings.spread, power=power)
        if metric is None:
            return None
        matrix, spectrum = metric
        if moves:
            matrix = matrix[: max(1, np.sum(spectrum[:MOST_DIRECTIONS] > LEAST_MOVING))]
        new = self.add_points(before.candidate, matrix, x, self.n_points)
        start = transfer(before.candidate, new, x, self.kept)
        return self.refine("metric", start, penalty, moves, power=power, spectrum=spectrum.tolist())

    def refine(
        self,
        name: str,
        start: Candidate,
        penalty: float,
        moves: bool = False,
        **details: Any,
    ) -> _Stage:
        """Fit linear part and weights of a candidate, and a metric that moves, to the windows not
        held back.
        """
        problem = FreeRunProblem(start, self.kept, penalty, moves)
        candidate, cost, n_iterations = problem.minimise(self.settings.iterations)
        held = self.note(
            name,
            candidate,
            penalty=penalty,
            moves=moves,
            n_iterations=n_iterations,
            **details,
        )
        return _Stage(candidate, held if np.isfinite(cost) else np.inf, penalty, moves=moves)

    def change_budget(self, best: _Stage, budget: int) -> _Stage:
        """Fit weights of another number of points in the metric of a stage; fewer may need a
        heavier penalty.

        Where the error grows much, the points become fewer in steps. The model is linear if nothing
        beats that.
        """
        if best.is_linear:
            return best._replace(candidate=self.resize(best, budget))
        found = self.refine_resized(best, budget)
        step = best
        if not found.held < LOST * best.held:
            while len(step.candidate.points) > budget:
                step = self.refine_resized(
                    step, max(budget, int(STEP * len(step.candidate.points)))
                )
            found = min(found, step, key=lambda stage: stage.held)
        return found if found.held < self.linear else found._replace(is_linear=True)

    def resize(self, stage: _Stage, n: int) -> Candidate:
        """Represent the same function by n points, as far as they can."""
        x = free_run_regressors(stage.candidate, self.kept)
        new = self.add_points(stage.candidate, stage.candidate.scaling.linear_part(), x, n)
        return transfer(stage.candidate, new, x, self.kept)

    def refine_resized(self, stage: _Stage, n: int) -> _Stage:
        """Best of several penalties with n points, heavier ones as long as they help."""
        start = self.resize(stage, n)
        refined = (
            self.refine(f"{n} points", start, factor * stage.penalty, stage.moves)
            for factor in HEAVIER
        )
        best = next(refined)
        for found in refined:
            if np.isfinite(best.held) and found.held >= best.held:
                break
            best = found
        return best

    def fit_all(self, best: _Stage) -> Candidate:
        """Fit the candidate of a stage to all windows; it stays as it is, or becomes linear, if
        that runs away.
        """
        windows = spread_evenly(self.material.windows, MOST_WINDOWS)
        if not best.is_linear:
            problem = FreeRunProblem(best.candidate, windows, best.penalty, best.moves)
            final, cost, n_iterations = problem.minimise(self.settings.iterations)
            held = self.note(
                "all windows",
                final,
                penalty=best.penalty,
                moves=best.moves,
                n_iterations=n_iterations,
            )
            if np.isfinite(held) and np.isfinite(cost):
                return final
            if np.isfinite(best.held):
                return best.candidate
        linear, _, n_iterations = fit_linear(self.material.empty, self.material.whole)
        final = replace(best.candidate, mean=linear.mean, weights=0.0 * best.candidate.weights)
        self.note("all windows", final, penalty=best.penalty, n_iterations=n_iterations)
        return final

    def note(self, name: str, candidate: Candidate, **details: Any) -> float:
        """Note the errors of a stage; return the mean square of the windows held back, infinite if
        it runs away.
        """
        fitted = squared_error(candidate, self.kept)
        held = squared_error(candidate, self.held)
        runaway = (
            find_runaway(candidate, self.material.segments)
            if np.isfinite(held)
            else "windows held back"
        )
        held = np.inf if runaway else held
        words = {
            "stage": name,
            "points": len(candidate.points),
            "fitted rmse": fitted,
            "held rmse": held,
        }
        self.notes.append(words | {"runs away from": runaway} | details)
        return held
