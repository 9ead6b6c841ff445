"""Training for the free run: the estimator that simulates best what it was not fitted to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, ClassVar, TypeAlias

import numpy as np

from sysid.arrays import check_counts, listed
from sysid.beside import Beside, n_processes, one_blas_thread, together, wait_for_any
from sysid.errors import UserError, UserTypeError
from sysid.gp.mean import MeanFunction
from sysid.gp.online import OnlineGP
from sysid.gp.training import Hyperparameters, InitialSamples, Start, Training
from sysid.model.model import Model
from sysid.narx.lags import Narx
from sysid.simulation.bands import measure_bands, typical
from sysid.simulation.segments import (
    Fold,
    Limits,
    Segment,
    find_copies,
    folds_of,
    n_samples,
    segments_of,
    stack_regressors,
)
from sysid.simulation_error.calibration import calibrate, find_saturation
from sysid.simulation_error.candidate import (
    CompleteStart,
    Estimator,
    FitResult,
    Refusal,
    find_runaway,
    limits_of,
    range_of,
    squared_error,
)
from sysid.simulation_error.linear_model import LinearModel
from sysid.simulation_error.profile_search import DifferenceSearch, ProfileSearch
from sysid.simulation_error.refinement import OutputErrorRefinement

PLENTY = 15000  # samples of all fits of a cross-validation with more than two folds
CALIBRATION = 1  # stream of random numbers
LONG_RUNS = 5  # simulations of each part that measure the bands, so that they reach most of it
PER_FEATURE = 1e-3  # part of the mean square that a feature must earn where lags are compared [-]
FINALISTS = 4  # lags and estimators that are compared in full, not by quick versions
LINEAR = (
    LinearModel(minimises_free_run=False),
    LinearModel(),
)  # always among the candidates

log = logging.getLogger(__name__)
Fitted: TypeAlias = (
    tuple[FitResult, float] | Refusal
)  # without a fold, and the mean square of its simulation


@dataclass(eq=False)
class Trial:
    """Cross-validation of an estimator, fold by fold: how well it simulates what it was not fitted
    to.
    """

    estimator: Estimator
    narx: Narx
    folds: Sequence[Fold]
    handicap: float = 1.0  # factor of its squared errors when it is compared [-]
    label: str = ""  # what the log calls it; empty: the name of the estimator
    is_quick: bool = False  # whether the estimator is a quick version
    fits: list[FitResult] = field(default_factory=list)  # without each fold, as far as there are
    errors: list[float] = field(
        default_factory=list
    )  # mean square of each of these folds, output unit^2
    sizes: list[int] = field(default_factory=list)  # samples of each
    refusal: str = ""

    @property
    def total(self) -> float:
        """Sum of squares so far times the handicap, output unit^2; infinite if one part diverged or
        on refusal.
        """
        return inf if self.refusal else self.handicap * float(np.dot(self.errors, self.sizes))

    @property
    def rmse(self) -> float | None:
        """Error of the parts simulated so far, output unit; None if there are none."""
        return float(np.sqrt(np.average(self.errors, weights=self.sizes))) if self.fits else None

    def expect(self, fold: int) -> float:
        """Sum of squares before a fold that is still to come, as far as the others tell."""
        done = len(self.fits)
        return self.total * fold / done if done else inf if fold else 0.0

    def fit(self, fold: int, budget: int, seed: int, limits: Limits) -> Fitted:
        """Fit to the samples around a fold and simulate it; a refusal is a result too."""
        parts, rest = self.folds[fold]
        try:
            fit = self.estimator.fit(rest, self.narx, budget, seed, limits)
        except Refusal as reason:
            return reason
        return fit, squared_error(replace(fit.candidate, bounds=range_of([*rest, *parts])), parts)

    def report(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts; fewer folds where it could not win any more."""
        found: dict[str, Any] = {"route": self.estimator.name, "refusal": self.refusal}
        if not self.fits:
            return found | {"held_out_rmse": None}
        folds = np.sqrt(self.errors).tolist()
        reports = [fit.report for fit in self.fits]
        return found | {"held_out_rmse": self.rmse, "folds": folds, "reports": reports}


def find_best(trials: Sequence[Trial], budget: int, seed: int, limits: Limits) -> Trial:
    """Fit estimators without each fold, and simulate the fold from the outputs measured before it.

    The trial with the smallest sum of squares so far goes on, so that one that cannot win any more
    costs nothing. A simulation that leaves the range of the samples counts as infinitely wrong. A
    `Refusal` is part of the result; every other error is raised.

    Further processes fit beforehand what is likely to be asked for next. What is not asked for is
    dropped: the result is that of one core.

    Returns
    -------
    Trial
        The best, with all folds.
    """
    told = set[str]()
    begun = dict[tuple[Trial, int], Beside[Fitted]]()
    try:
        while True:
            best = min(trials, key=_rank)
            fold = len(best.fits)
            if best.refusal or fold == len(best.folds):
                return best
            words = f"{best.label or best.estimator.name}, part {fold + 1} of {len(best.folds)}"
            if words not in told:
                log.info("free run: %s", words)
                told.add(words)
            open_ = [
                (one, i)
                for one in trials
                if not one.refusal
                for i in range(len(one.fits), len(one.folds))
            ]
            open_.sort(key=lambda task: (task != (best, fold), task[0].expect(task[1])))
            while (asked := open_[0]) not in begun or not begun[asked].is_over:
                running = [one for one in begun.values() if not one.is_over]
                task = next((task for task in open_ if task not in begun), None)
                if task is None or (len(running) >= n_processes() and task != asked):
                    wait_for_any(running)
                else:
                    begun[task] = Beside(partial(task[0].fit, task[1], budget, seed, limits))
            fitted = begun.pop(asked).result()
            if isinstance(fitted, Refusal):
                best.refusal = f"{best.estimator.name}: {fitted}"
                continue
            best.fits.append(fitted[0])
            best.errors.append(fitted[1])
            best.sizes.append(n_samples(best.folds[fold].parts))
    finally:
        for one in begun.values():
            one.drop()


def _rank(trial: Trial) -> tuple[bool, float, int, bool]:
    """Smallest first; a linear model gives way to one that falls back to it without a part, but
    knows more with it.
    """
    return bool(trial.refusal), trial.total, -len(trial.fits), trial.estimator in LINEAR


def _race(trials: Sequence[Trial], budget: int, seed: int, limits: Limits) -> list[Trial]:
    """Trials after `find_best`: the best, then those that could win no more, by folds and error."""
    best = find_best(trials, budget, seed, limits)
    return sorted(trials, key=lambda trial: (trial is not best, -len(trial.fits), trial.total))


@dataclass(frozen=True)
class FreeRun(Training):
    """Kernel, its hyper-parameters, a linear trend and the dictionary, chosen by the error of the
    free run.

    Each estimator of `routes`, and the linear model, is cross-validated: it is fitted to the
    samples around contiguous parts and simulates those parts; the one with the smallest error is
    fitted to all samples, unless a simulation of these then runs away
    (`sysid.simulation_error.candidate.find_runaway`): the next best is taken. Where the output
    saturates, saturated samples count as bounds of the target and the simulation stays within the
    limits; elsewhere it stays within the range of the samples and half as much again on both sides.
    The kernel and the linear mean are those of the estimator: `sysid.Settings` refuse another mean.

    The bands are calibrated for the simulation by the held-out error
    (`sysid.simulation_error.calibration`): the kernel variance is not that of a one-step
    likelihood. The whole algorithm: `sysid.simulation_error`.
    """

    replaces: ClassVar[frozenset[str]] = frozenset({"kernel", "learning", "mean", "selection"})

    n_initial: int | None = None  # samples; None: all that there are
    #: the best by cross-validation is taken
    routes: Sequence[Estimator] = field(
        default_factory=lambda: (
            ProfileSearch(),
            OutputErrorRefinement(),
            DifferenceSearch(),
        )
    )
    # parts that are simulated by a model that was not fitted to them; fewer of long records
    folds: int = 5
    # whether an output that repeats its extreme value is taken to saturate there
    find_limits: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", listed(self.routes, "FreeRun: routes", "estimators"))
        if not self.routes or not all(
            isinstance(estimator, Estimator) for estimator in self.routes
        ):
            raise UserTypeError(
                f"FreeRun: routes must be estimators such as ProfileSearch(), at least one, got {self.routes!r}"
            )
        check_counts(self, folds=2)
        if self.n_initial is not None:
            check_counts(self, n_initial=2)

    @property
    def standardise(self) -> bool:
        """Always."""
        return True

    @one_blas_thread
    def compare_lags(
        self,
        samples: Sequence[InitialSamples],
        labels: Sequence[str],
        *,
        budget: int,
        seed: int,
    ) -> list[Trial]:
        """Cross-validate the estimators, and the linear model, with several lags at once.

        Quick versions of the estimators go first; the best `FINALISTS` of them are compared in
        full. The samples of all lags are those of the same records; compared are the ones that all
        of them have. A feature has to earn `PER_FEATURE` of the mean square.

        Returns
        -------
        list of Trial
            Those in full, then the quick ones, the best first; those that could win no more have
            fewer parts.

        Raises
        ------
        ValueError
            No estimator serves the samples.
        """
        most = max(one.narx.max_lag for one in samples)
        trials = []
        for one, label in zip(samples, labels, strict=True):
            cut = most - one.narx.max_lag
            segments = [segment.part(cut, len(segment.values)) for segment in segments_of(one)]
            segments = [segment for segment in segments if len(segment.values)]
            folds = self._folds(segments)
            handicap = 1.0 + PER_FEATURE * one.narx.n_features
            estimators = (*LINEAR[-1:], *self.routes)
            trials += [
                Trial(estimator, one.narx, folds, handicap, label) for estimator in estimators
            ]
        limits = find_saturation(segments)[0] if self.find_limits else (-inf, inf)
        quick = []
        for full in trials:
            estimator = full.estimator.quick()
            is_quick = estimator != full.estimator
            quick.append(
                Trial(
                    estimator,
                    full.narx,
                    full.folds,
                    full.handicap,
                    full.label,
                    is_quick,
                )
            )
        ranked = _race(quick, budget, seed, limits)
        if ranked[0].refusal:
            reason = ranked[0].refusal
            raise UserError(
                f"FreeRun: no estimator of routes serves these samples with any lags: {reason}"
            )
        in_full = dict(zip(quick, trials, strict=True))
        log.info("free run: the best %d of these once more, with the full search", FINALISTS)
        final = _race([in_full[trial] for trial in ranked[:FINALISTS]], budget, seed, limits)
        return sorted([*final, *ranked], key=lambda trial: bool(trial.refusal))

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Refuse: a simulation needs to know which features are lagged outputs; see `prepare`."""
        advice = "take MaximumAPosteriori for samples without lags"
        raise UserTypeError(f"FreeRun: trains a NARX model, by prepare; {advice}")

    @one_blas_thread
    def prepare(
        self,
        samples: InitialSamples,
        known: Start,
        *,
        mean: MeanFunction,
        budget: int,
        seed: int,
    ) -> Start:
        """Choose an estimator and fit it; see `sysid.Training.prepare`. All but the limits must be
        unknown.

        The mean is that of the estimator: `sysid.Settings` refuses another.

        Raises
        ------
        ValueError
            Something that is known beforehand, no lags of the target, too few samples, or no
            estimator that serves them.
        """
        given = [
            name
            for name, value in known._asdict().items()
            if value is not None and name not in ("limits", "stays")
        ]
        if given:
            raise UserError(
                f"FreeRun: finds {' and '.join(given)} itself; leave them unknown, or take another training"
            )
        segments = segments_of(samples)
        narx = samples.narx
        found, counts = (
            find_saturation(segments) if self.find_limits else ((-np.inf, np.inf), (0, 0))
        )
        limits = found if known.limits is None else known.limits
        folds = self._folds(segments)
        trials = [Trial(estimator, narx, folds) for estimator in (*LINEAR, *self.routes)]
        chosen: tuple[Trial, FitResult, str] | None = None  # the last, if all of them run away
        while not (best := find_best(trials, budget, seed, limits)).refusal:
            log.info("free run: %s, all samples", best.estimator.name)
            try:
                fit = best.estimator.fit(segments, narx, budget, seed, limits)
            except Refusal as reason:
                best.refusal = f"{best.estimator.name}: {reason}"
                continue
            runaway = find_runaway(fit.candidate, segments)
            chosen = best, fit, runaway
            if not runaway:
                break
            best.refusal = f"{best.estimator.name}: its free run leaves the range of the samples by far, of {runaway}"
        if chosen is None:
            reasons = "; ".join(trial.refusal for trial in trials)
            raise UserError(f"FreeRun: no estimator of routes serves these samples: {reasons}")
        best, fit, runaway = chosen
        generator = np.random.default_rng([seed, CALIBRATION])
        noise, latent = calibrate(fit, segments, best.fits, folds, generator)
        initial = fit.candidate.initial_model(noise, latent, samples.regressors)
        notes = [
            f"{count} samples equal {limit:.6g} and none is {word}: the output is taken to saturate there"
            for limit, count, word in zip(limits, counts, ("below", "above"), strict=True)
            if count
        ]
        if copies := find_copies(folds):
            notes.append(
                f"{len(copies)} of {len(folds)} held-out parts are found again in the samples that the model learned: "
                "the record repeats itself, its held-out error says little about other samples"
            )
        if runaway or best.total == inf:
            notes.append(
                "every estimator runs away in some simulation of the samples: do not rely on the simulation"
            )
        if not fit.candidate.weights.any():
            notes.append(f"no better model found than a linear one: {best.estimator.name}")
        if known.limits is None:  # no simulation leaves the region that the samples tell of
            limits = tuple(
                np.where(np.isfinite(limits), limits, limits_of(fit.candidate, segments)).tolist()
            )
        report = {
            "route": best.estimator.name,
            "held_out_rmse": best.rmse,
            "limits": list(limits),
            "tried": [trial.report() for trial in trials],
            "final": fit.report,
        }
        hyperparameters = initial.hyperparameters._replace(
            warnings=(*initial.hyperparameters.warnings, *notes)
        )
        initial = initial._replace(hyperparameters=hyperparameters, limits=limits)
        model = _model_of(narx, initial, limits)
        apart = []
        for one, fold in zip(best.fits, folds, strict=True):
            begun = one.candidate.initial_model(noise, latent, stack_regressors(fold.rest))
            apart.append((_model_of(narx, begun, limits), fold.parts))
        # a fit to the free run leaves open what it says one step ahead: there it is as sure as it
        # is of other samples
        one_step = typical(
            [measure_bands(judge, [(judge, parts)], seed, horizons=()) for judge, parts in apart]
        )
        held_out = together(
            [partial(measure_bands, model, [one], seed, n_long=LONG_RUNS) for one in apart]
        )
        return Start(*initial, report=report, bands=(*one_step, *typical(held_out)[1:]))

    def _folds(self, segments: Sequence[Segment]) -> list[Fold]:
        """Each fold costs a fit; two suffice where half of the samples are plenty."""
        return folds_of(segments, min(self.folds, max(2, PLENTY // n_samples(segments))))


def _model_of(narx: Narx, start: CompleteStart, limits: Limits) -> Model:
    """Build the model that an identification starts with."""
    scaling, mean, found, points, _ = start
    gp = OnlineGP(
        found.kernel,
        noise_variance=found.noise_variance,
        budget=max(2, len(points.targets)),
    )
    gp.fit(*points)
    return Model(narx, scaling, mean, gp, limits=limits)
