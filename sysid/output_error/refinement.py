"""Output error over the free run, in a metric of the regressors that the function itself chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.kernels import Matern52, Matern52Form, Stationary
from sysid.kernels.stationary import StationaryForm
from sysid.mean import LinearMean
from sysid.narx import Narx
from sysid.output_error.candidate import Candidate
from sysid.output_error.free_run_problem import FreeRunProblem, gradient, mean_square
from sysid.output_error.laplace import latent_variance
from sysid.output_error.levenberg_marquardt import minimise_squares
from sysid.output_error.linear_start import linear_start
from sysid.output_error.metric import gradient_metric, whitening
from sysid.output_error.move import free_run_regressors, moved, spread_points
from sysid.output_error.route import Fitted, Route
from sysid.output_error.segment import Segment
from sysid.output_error.standard_units import StandardUnits
from sysid.output_error.window import Window, held_back, spread_over, windows_of
from sysid.projection import Projection

Array = NDArray[np.float64]

REACH = 1e3  # a free run farther away than this has diverged, standard deviations of the output
GAIN = 0.02  # of the mean square held back, for which the strongest metric is tried again [-]
HEAVIER = (1.0, 10.0, 100.0)  # of the penalty, tried in turn until the first weights beat the linear model [-]


@dataclass(frozen=True)
class OutputErrorRefinement(Route):
    """Linear part and weights of a kernel expansion by output error, in turns with the metric of its kernel.

    All in units in which every signal has variance 1:

    1. A linear model by output error: a stable free run to start from (`linear_start`).
    2. Points spread over the regressors, weights zero; then Levenberg-Marquardt on
       ``sum (y - yhat)^2 + penalty w'Kw``, yhat the free run (`FreeRunProblem`). Once with the regressors whitened,
       which tells a level from a difference, and with each of them by itself, which short records need: what
       simulates windows held back best goes on. If that does not beat the linear model, up to a hundred times the
       penalty is tried; else the model stays linear.
    3. The metric of the average gradient outer product of the function that was found (`gradient_metric`), new
       points in it by pivoted Cholesky, the same function on them by ridge regression, and Levenberg-Marquardt
       again. Kept only if the free run of the windows held back improves; else a milder metric is tried, and
       after the mildest the search ends.
    4. At another budget new points in the metric found; Levenberg-Marquardt on all windows.

    The defaults were fixed on a Bouc-Wen system and serve others as they are; a cross-validation over routes tells
    where they do not.
    """

    penalty: float = 1.0  # of w'Kw, in variances of the output
    search_points: int = 300  # while the metric is searched, whatever the budget: few points find a poorer metric
    stages: int = 8  # metrics tried, at most
    powers: Sequence[float] = (1.0, 0.5, 0.25)  # of the spectrum of the metric, tried in turn [-]
    spread: float = 2.0  # length scale of the strongest direction, its standard deviations
    first_spread: float = 3.0  # first length scale of the whitened regressors, their standard deviations
    plain_spreads: Sequence[float] = (6.0, 12.0)  # of the regressors themselves; the best of all starts is taken
    iterations: int = 12  # of Levenberg-Marquardt in a stage
    window: int = 2048  # samples simulated in one go, at most
    transient: int = 400  # of these not scored, as they depend on the outputs measured before
    search_windows: int = 8  # among all, on which the metric is searched, at most; spread over the record
    hold_every: int = 4  # every n-th of these is held back to judge the stages
    kernel: StationaryForm = field(default_factory=Matern52Form)  # isotropic, of unit length scale in the metric

    def __post_init__(self) -> None:
        for name in ("powers", "plain_spreads"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        least = {
            "search_points": 1,
            "stages": 0,
            "iterations": 1,
            "window": 2,
            "transient": 0,
            "search_windows": 2,
            "hold_every": 2,
        }
        for name, lowest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < lowest:
                raise ValueError(
                    f"OutputErrorRefinement: {name} must be a whole number of at least {lowest}, got {value!r}"
                )
        for name in ("penalty", "spread", "first_spread", "plain_spreads"):
            if not all(0 < value < np.inf for value in np.atleast_1d(getattr(self, name))):
                raise ValueError(
                    f"OutputErrorRefinement: {name} must be positive and finite, got {getattr(self, name)!r}"
                )
        if not self.transient < self.window:
            raise ValueError(
                f"OutputErrorRefinement: transient must be below window ({self.window}), got {self.transient}"
            )
        if not self.powers or not all(0 <= power <= 1 for power in self.powers):
            raise ValueError(f"OutputErrorRefinement: powers must be numbers from 0 to 1, got {self.powers}")
        if not isinstance(self.kernel, StationaryForm):
            raise TypeError(
                f"OutputErrorRefinement: kernel must be the form of a stationary kernel, got {self.kernel!r}"
            )

    def unit_kernel(self, n_coordinates: int) -> Stationary:
        """Kernel of unit variance and unit length scales."""
        return self.kernel.kernel(1.0, np.ones(n_coordinates))

    def fit(
        self, segments: Sequence[Segment], narx: Narx, budget: int, seed: int, limits: tuple[float, float]
    ) -> Fitted:
        """See `Route.fit`."""
        units = StandardUnits.of(segments, narx)
        windows = windows_of([units.standardised(segment) for segment in segments], self.window, self.transient)
        _check(windows, narx)
        searched = spread_over(windows, self.search_windows)
        search = _Search(self, *held_back(searched, self.hold_every), np.random.default_rng([seed]))
        empty = _empty(narx, units.standard_limits(limits))
        best = search.run(empty)
        if len(best.candidate.points) != budget:
            best = search.reduced(best, budget)
        final = search.on_all(best, empty, windows)
        report: dict[str, Any] = {"penalty": best.penalty, "linear contraction": search.contraction}
        report["stages"] = search.in_own_units(units)
        variance = latent_variance(final, windows, best.penalty) * float(units.output.scale[0]) ** 2
        return Fitted(units.in_own_units(final, limits), variance, report)


class _Stage(NamedTuple):
    candidate: Candidate
    held: float  # mean squared error of the windows held back
    penalty: float
    is_linear: bool = False  # no weights were found that help


class _Search:
    """Stages of one refinement, and what each brought."""

    def __init__(
        self,
        settings: OutputErrorRefinement,
        kept: Sequence[Window],
        held: Sequence[Window],
        generator: np.random.Generator,
    ) -> None:
        self.settings = settings
        self.kept = kept
        self.held = held
        self.generator = generator
        self.contraction = 1.0
        self.notes: list[dict[str, Any]] = []

    def run(self, empty: Candidate) -> _Stage:
        """Best stage with `search_points` points, by the windows held back."""
        start = linear_start(empty, self.kept)
        self.contraction = start.contraction
        held = self.note("linear", start.candidate, n_iterations=start.n_iterations)
        best = self.first(start.candidate, held)
        tries = [] if best.is_linear else self.tries(best)
        for _ in range(self.settings.stages):
            if not tries or (stage := self.metric(best, *tries[0])) is None:
                break
            is_clearly_better = stage.held < (1.0 - GAIN) * best.held
            best = min(best, stage, key=lambda one: one.held)
            tries = self.tries(best) if is_clearly_better else tries[1:]
        return best

    def tries(self, best: _Stage) -> list[tuple[float, float]]:
        """Powers and penalties of the next metric, in turn: in a better metric a lighter penalty may do."""
        lighter = max(self.settings.penalty, best.penalty / 10.0)
        strongest, same = self.settings.powers[0], [(power, best.penalty) for power in self.settings.powers]
        return [(strongest, lighter), *same] if lighter < best.penalty else same

    def first(self, linear: Candidate, held: float) -> _Stage:
        """Best weights in the metrics to start from; zero if none beat the linear model on the windows held back."""
        x = np.concatenate([window.segment.regressors[window.scored] for window in self.kept])
        starts = {"whitened": self.start(linear, whitening(x) / self.settings.first_spread, x)}
        for spread in self.settings.plain_spreads:
            starts[f"plain {spread:g}"] = self.start(linear, np.eye(x.shape[1]) / spread, x)
        for factor in HEAVIER:
            penalty = factor * self.settings.penalty
            stages = [self.refined(name, start, penalty) for name, start in starts.items()]
            best = min(stages, key=lambda stage: stage.held)
            if best.held < held:
                return best
        return _Stage(next(iter(starts.values())), held, penalty, is_linear=True)

    def start(self, linear: Candidate, matrix: Array, regressors: Array) -> Candidate:
        """Points spread over the measured regressors (n, p) in a metric, with weights of zero."""
        scaling, kernel = Projection(np.zeros(matrix.shape[1]), matrix), self.settings.unit_kernel(len(matrix))
        points = spread_points(kernel, scaling, regressors, self.settings.search_points, self.generator)
        return replace(linear, scaling=scaling, kernel=kernel, points=points, weights=np.zeros(len(points)))

    def metric(self, before: _Stage, power: float, penalty: float) -> _Stage | None:
        """Weights in the metric of the function found before; None if it varies nowhere."""
        x = free_run_regressors(before.candidate, self.kept)
        slopes = gradient(before.candidate, x, mean=False)
        metric = gradient_metric(x, slopes, spread=self.settings.spread, power=power)
        if metric is None:
            return None
        kernel = self.settings.unit_kernel(len(metric.matrix))
        scaling = Projection(np.zeros(x.shape[1]), metric.matrix)
        start = moved(before.candidate, scaling, kernel, self.kept, self.settings.search_points, self.generator)
        return self.refined("metric", start, penalty, power=power, spectrum=metric.spectrum.tolist())

    def refined(self, name: str, start: Candidate, penalty: float, **told: Any) -> _Stage:
        """Levenberg-Marquardt from a candidate on the windows that are not held back."""
        candidate, n_iterations = fitted(start, self.kept, penalty, self.settings.iterations)
        held = self.note(name, candidate, penalty=penalty, n_iterations=n_iterations, **told)
        return _Stage(candidate, held, penalty)

    def reduced(self, best: _Stage, budget: int) -> _Stage:
        """The best stage on another number of points in its metric; fewer may need a heavier penalty."""
        before, windows, generator = best.candidate, self.kept, self.generator
        start = moved(before, before.scaling, before.kernel, windows, budget, generator)
        if best.is_linear:
            return best._replace(candidate=start)
        stages = [self.refined(f"{budget} points", start, factor * best.penalty) for factor in HEAVIER]
        return min(stages, key=lambda stage: stage.held)

    def on_all(self, best: _Stage, empty: Candidate, windows: Sequence[Window]) -> Candidate:
        """The best stage on all windows."""
        start = best.candidate
        if best.is_linear or not np.isfinite(mean_square(start, windows)):
            start = replace(start, mean=linear_start(empty, windows).candidate.mean, weights=0.0 * start.weights)
        iterations = 0 if best.is_linear else self.settings.iterations
        final, n_iterations = fitted(start, windows, best.penalty, iterations)
        self.note("all windows", final, penalty=best.penalty, n_iterations=n_iterations)
        return final

    def note(self, name: str, candidate: Candidate, **told: Any) -> float:
        """Keep what a stage brought; the mean squared error of the windows held back."""
        fitted, held = mean_square(candidate, self.kept), mean_square(candidate, self.held)
        points = len(candidate.points)
        self.notes.append({"stage": name, "points": points, "fitted rmse": fitted, "held rmse": held, **told})
        return held

    def in_own_units(self, units: StandardUnits) -> list[dict[str, Any]]:
        """Notes with root mean squared errors in the unit of the output."""
        scale = float(units.output.scale[0])
        return [
            note | {name: scale * float(np.sqrt(note[name])) for name in ("fitted rmse", "held rmse")}
            for note in self.notes
        ]


def fitted(start: Candidate, windows: Sequence[Window], penalty: float, iterations: int) -> tuple[Candidate, int]:
    """Levenberg-Marquardt from a candidate: what it found, in how many iterations."""
    problem = FreeRunProblem(start, windows, penalty)
    found = minimise_squares(problem, problem.parameters(), max_iterations=iterations)
    return problem.at(found.x), found.n_iterations


def _empty(narx: Narx, limits: tuple[float, float]) -> Candidate:
    p = narx.n_features
    scaling, mean, kernel = Projection(np.zeros(p), np.eye(p)), LinearMean([0.0] * p), Matern52(1.0, np.ones(p))
    return Candidate(narx, scaling, mean, kernel, np.zeros((0, p)), np.zeros(0), limits, (-REACH, REACH))


def _check(windows: Sequence[Window], narx: Narx) -> None:
    scored = sum(len(window.segment.values) - window.transient for window in windows)
    needed = 10 * (narx.n_features + 1)
    if len(windows) < 2 or scored < needed:
        raise ValueError(
            f"output error: expected at least {needed} samples beside the transients, ten for each linear parameter, "
            f"got {scored} in {len(windows)} windows; use longer records or fewer lags"
        )
