"""Training for the free run: the estimator that simulates best what it was not fitted to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from sysid.arrays import check_counts
from sysid.gp.online import OnlineGP
from sysid.gp.training import Hyperparameters, InitialSamples, Start, Training
from sysid.model.mean import ConstantMean, LinearMean, MeanFunction
from sysid.model.model import Model
from sysid.narx.lags import Narx
from sysid.simulation_error.calibration import calibrate, find_saturation, measure_bands
from sysid.simulation_error.candidate import Estimator, FitResult, Refusal, find_runaway, range_of, squared_error
from sysid.simulation_error.profile_search import ProfileSearch
from sysid.simulation_error.refinement import LinearModel, OutputErrorRefinement
from sysid.simulation_error.segments import Fold, Limits, folds_of, n_samples, segments_of, stack_regressors

PLENTY = 10000  # samples of all fits of a cross-validation with more than two folds
CALIBRATION = 1  # stream of random numbers
LINEAR = (LinearModel(minimises_free_run=False), LinearModel())  # always among the candidates

log = logging.getLogger(__name__)


@dataclass
class Trial:
    """Cross-validation of an estimator, fold by fold: how well it simulates what it was not fitted to."""

    estimator: Estimator
    fits: list[FitResult] = field(default_factory=list)  # without each fold, as far as there are
    errors: list[float] = field(default_factory=list)  # mean square of each of these folds, output unit^2
    sizes: list[int] = field(default_factory=list)  # samples of each
    refusal: str = ""

    @property
    def total(self) -> float:
        """Sum of squares so far, output unit^2; infinite if one part diverged or on refusal."""
        return np.inf if self.refusal else float(np.dot(self.errors, self.sizes))

    @property
    def squared_error(self) -> float:
        """Mean square so far, output unit^2."""
        return self.total / max(sum(self.sizes), 1)

    def report(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts; fewer folds where it could not win any more."""
        found: dict[str, Any] = {"route": self.estimator.name, "refusal": self.refusal}
        if not self.fits:
            return found | {"held_out_rmse": None}
        whole, *folds = np.sqrt([float(np.average(self.errors, weights=self.sizes)), *self.errors]).tolist()
        return found | {"held_out_rmse": whole, "folds": folds, "reports": [fit.report for fit in self.fits]}


def find_best(
    trials: Sequence[Trial], folds: Sequence[Fold], narx: Narx, budget: int, seed: int, limits: Limits
) -> Trial:
    """Fit estimators without each fold, and simulate the fold from the outputs measured before it.

    The trial with the smallest sum of squares so far goes on, so that one that cannot win any more costs nothing. A
    simulation that leaves the range of the samples counts as infinitely wrong. A `Refusal` is part of the result; every
    other error is raised.

    Returns
    -------
    Trial
        The best, with all folds.
    """
    while True:
        best = min(trials, key=lambda trial: (bool(trial.refusal), trial.total, -len(trial.fits)))
        if best.refusal or len(best.fits) == len(folds):
            return best
        fold = folds[len(best.fits)]
        log.info("free run: %s, part %d of %d", best.estimator.name, len(best.fits) + 1, len(folds))
        try:
            fit = best.estimator.fit(fold.rest, narx, budget, seed, limits)
        except Refusal as reason:
            best.refusal = f"{best.estimator.name}: {reason}"
            continue
        bounds = range_of([*fold.rest, *fold.parts])
        best.fits.append(fit)
        best.errors.append(squared_error(replace(fit.candidate, bounds=bounds), fold.parts))
        best.sizes.append(n_samples(fold.parts))


@dataclass(frozen=True)
class FreeRun(Training):
    """Kernel, its hyper-parameters, a linear trend and the dictionary, chosen by the error of the free run.

    Each estimator of `routes`, and the linear model, is cross-validated: it is fitted to the samples around contiguous
    parts and simulates those parts; the one with the smallest error is fitted to all samples, unless a simulation of
    these then runs away (`sysid.simulation_error.candidate.find_runaway`): the next best is taken. Where the output
    saturates, saturated samples count as bounds of the target and the simulation stays within the limits; elsewhere it
    stays within the range of the samples and half as much again on both sides. The kernel and the linear mean are those
    of the estimator: another mean is refused.

    The bands are calibrated for the simulation by the held-out error (`sysid.simulation_error.calibration`): the kernel
    variance is not that of a one-step likelihood. The whole algorithm: `sysid.simulation_error`.
    """

    replaces: ClassVar[frozenset[str]] = frozenset({"kernel", "learning", "mean", "selection"})

    n_initial: int | None = None  # samples; None: all that there are
    #: the best by cross-validation is taken
    routes: Sequence[Estimator] = field(default_factory=lambda: (ProfileSearch(), OutputErrorRefinement()))
    folds: int = 5  # parts that are simulated by a model that was not fitted to them; fewer of long records
    find_limits: bool = True  # whether an output that repeats its extreme value is taken to saturate there

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", tuple(self.routes))
        if not self.routes or not all(isinstance(estimator, Estimator) for estimator in self.routes):
            raise TypeError(
                f"FreeRun: routes must be estimators such as ProfileSearch(), at least one, got {self.routes!r}"
            )
        check_counts(self, folds=2)
        if self.n_initial is not None:
            check_counts(self, n_initial=2)

    @property
    def standardise(self) -> bool:
        """Always."""
        return True

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Refuse: a simulation needs to know which features are lagged outputs; see `prepare`."""
        raise TypeError("FreeRun: trains a NARX model, by prepare; take MaximumAPosteriori for samples without lags")

    def prepare(self, samples: InitialSamples, known: Start, *, mean: MeanFunction, budget: int, seed: int) -> Start:
        """Choose an estimator and fit it; see `sysid.Training.prepare`. All but the limits must be unknown.

        Raises
        ------
        ValueError
            Something that is known beforehand, no lags of the target, too few samples, or no estimator that serves
            them.
        """
        given = [name for name, value in known._asdict().items() if value is not None and name != "limits"]
        given += [] if isinstance(mean, ConstantMean | LinearMean) else [f"its mean (not {mean})"]
        if given:
            raise ValueError(
                f"FreeRun: finds {' and '.join(given)} itself; leave them unknown, or take another training"
            )
        segments, narx = segments_of(samples), samples.narx
        found, counts = find_saturation(segments) if self.find_limits else ((-np.inf, np.inf), (0, 0))
        limits = found if known.limits is None else known.limits
        # each fold costs a fit; two suffice where half of the samples are plenty
        folds = folds_of(segments, min(self.folds, max(2, PLENTY // len(samples.targets))))
        trials = [Trial(estimator) for estimator in (*LINEAR, *self.routes)]
        chosen: tuple[Trial, FitResult, str] | None = None  # the last, if all of them run away
        while not (best := find_best(trials, folds, narx, budget, seed, limits)).refusal:
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
            raise ValueError(f"FreeRun: no estimator of routes serves these samples: {reasons}")
        best, fit, runaway = chosen
        generator = np.random.default_rng([seed, CALIBRATION])
        noise, latent = calibrate(fit, segments, best.fits, folds, generator)
        initial = fit.candidate.initial_model(noise, latent, samples.regressors)
        assert initial.hyperparameters is not None
        notes = [
            f"{count} samples equal {limit:.6g} and none is {word}: the output is taken to saturate there"
            for limit, count, word in zip(limits, counts, ("below", "above"), strict=True)
            if count
        ]
        held_out = float(np.sqrt(np.average(best.errors, weights=best.sizes)))
        if runaway or not np.isfinite(held_out):
            notes.append("every estimator runs away in some simulation of the samples: do not rely on the simulation")
        notes += [f"no better model found than a linear one: {best.estimator.name}"] if best.estimator in LINEAR else []
        if known.limits is None:  # no simulation leaves the region that the samples tell of
            limits = tuple(np.where(np.isfinite(limits), limits, range_of(segments)).tolist())
        report = {
            "route": best.estimator.name,
            "held_out_rmse": held_out,
            "limits": list(limits),
            "tried": [trial.report() for trial in trials],
            "final": fit.report,
        }
        hyperparameters = initial.hyperparameters._replace(warnings=(*initial.hyperparameters.warnings, *notes))
        initial = initial._replace(hyperparameters=hyperparameters, limits=limits, report=report)
        apart = []
        for one, fold in zip(best.fits, folds, strict=True):
            begun = one.candidate.initial_model(noise, latent, stack_regressors(fold.rest))
            apart.append((_model_of(narx, begun, limits), fold.parts))
        return initial._replace(bands=measure_bands(_model_of(narx, initial, limits), apart, seed))


def _model_of(narx: Narx, start: Start, limits: Limits) -> Model:
    """The model that an identification starts with."""
    scaling, mean, found, points, *_ = start
    assert scaling is not None
    assert mean is not None
    assert found is not None
    assert points is not None
    gp = OnlineGP(found.kernel, noise_variance=found.noise_variance, budget=max(2, len(points.targets)))
    gp.fit(*points)
    return Model(narx, scaling, mean, gp, limits=limits)
