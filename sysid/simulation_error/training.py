"""Training for the free run: the estimator that simulates best what it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sysid.arrays import check_counts
from sysid.gp.training import Hyperparameters, InitialSamples, Start, Training
from sysid.model.mean import MeanFunction
from sysid.narx.lags import Narx
from sysid.simulation_error.calibration import calibrate, find_saturation
from sysid.simulation_error.candidate import Estimator, FitResult, Refusal, squared_error
from sysid.simulation_error.profile_search import ProfileSearch
from sysid.simulation_error.refinement import OutputErrorRefinement
from sysid.simulation_error.segments import Fold, Limits, folds_of, n_samples, segments_of

PLENTY = 10000  # samples of all fits of a cross-validation with more than two folds
CALIBRATION = 1  # stream of random numbers


class Trial(NamedTuple):
    """Cross-validation of an estimator: how well it simulates what it was not fitted to."""

    estimator: Estimator
    squared_error: float  # mean over all held-out samples, output unit^2; infinite if one part diverged or on refusal
    errors: tuple[float, ...] = ()  # of each fold
    fits: tuple[FitResult, ...] = ()  # without each fold; none if the estimator refused
    refusal: str = ""

    def report(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts."""
        found: dict[str, Any] = {"route": type(self.estimator).__name__, "refusal": self.refusal}
        if self.refusal:
            return found | {"held_out_rmse": None}
        whole, *folds = np.sqrt([self.squared_error, *self.errors]).tolist()
        return found | {"held_out_rmse": whole, "folds": folds, "reports": [fit.report for fit in self.fits]}


def cross_validate(
    estimator: Estimator, folds: Sequence[Fold], narx: Narx, budget: int, seed: int, limits: Limits
) -> Trial:
    """Fit an estimator without each fold, and simulate the fold from the outputs measured before it.

    A `Refusal` is part of the result; every other error is raised.
    """
    try:
        fits = tuple(estimator.fit(fold.rest, narx, budget, seed, limits) for fold in folds)
    except Refusal as reason:
        return Trial(estimator, np.inf, refusal=f"{type(estimator).__name__}: {reason}")
    errors = tuple(squared_error(fit.candidate, fold.parts) for fit, fold in zip(fits, folds, strict=True))
    mean = float(np.average(errors, weights=[n_samples(fold.parts) for fold in folds]))
    return Trial(estimator, mean, errors, fits)


@dataclass(frozen=True)
class FreeRun(Training):
    """Kernel, its hyper-parameters, a linear trend and the dictionary, chosen by the error of the free run.

    Each estimator of `routes` is cross-validated: it is fitted to the samples around contiguous parts and simulates
    those parts; the one with the smallest error is fitted to all samples. Where the output saturates, saturated
    samples count as bounds of the target and the simulation stays within the limits. The kernel and the mean are
    those of the estimator; settings of the same name elsewhere have no effect.

    The bands are calibrated for the simulation by the held-out error (`sysid.simulation_error.calibration`): kernel
    variance and noise are not those of a one-step likelihood. The whole algorithm: `sysid.simulation_error`.
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
        if given:
            raise ValueError(
                f"FreeRun: finds {' and '.join(given)} itself; leave them unknown, or take another training"
            )
        segments, narx = segments_of(samples), samples.narx
        found, counts = find_saturation(segments) if self.find_limits else ((-np.inf, np.inf), (0, 0))
        limits = found if known.limits is None else known.limits
        # each fold costs a fit; two suffice where half of the samples are plenty
        folds = folds_of(segments, min(self.folds, max(2, PLENTY // len(samples.targets))))
        trials = [cross_validate(estimator, folds, narx, budget, seed, limits) for estimator in self.routes]
        best = min(trials, key=lambda trial: (bool(trial.refusal), trial.squared_error))
        if best.refusal:
            reasons = "; ".join(trial.refusal for trial in trials)
            raise ValueError(f"FreeRun: no estimator of routes serves these samples: {reasons}")
        fit = best.estimator.fit(segments, narx, budget, seed, limits)
        generator = np.random.default_rng([seed, CALIBRATION])
        noise, latent = calibrate(fit, segments, best.fits, folds, generator)
        initial = fit.candidate.initial_model(noise, latent, samples.regressors)
        assert initial.hyperparameters is not None
        notes = [
            f"{count} samples equal {limit:.6g} and none is {word}: the output is taken to saturate there"
            for limit, count, word in zip(limits, counts, ("below", "above"), strict=True)
            if count
        ]
        if not np.isfinite(best.squared_error):
            notes.append("every estimator diverged on samples that it was not fitted to: do not rely on the simulation")
        report = {
            "route": type(best.estimator).__name__,
            "held_out_rmse": float(np.sqrt(best.squared_error)),
            "limits": list(limits),
            "tried": [trial.report() for trial in trials],
            "final": fit.report,
        }
        warnings = (*initial.hyperparameters.warnings, *notes)
        return initial._replace(hyperparameters=initial.hyperparameters._replace(warnings=warnings), report=report)
