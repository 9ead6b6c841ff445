"""Training for simulation: the model that simulates best what it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sysid.marginal_likelihood import Hyperparameters
from sysid.mean import MeanFunction
from sysid.narx import Narx
from sysid.output_error.calibration import calibrated
from sysid.output_error.cross_validation import Fold, HeldOut, folds_of, held_out
from sysid.output_error.profile import ProfileSearch
from sysid.output_error.refinement import OutputErrorRefinement
from sysid.output_error.route import Fitted, Route
from sysid.output_error.saturation import Saturation, saturation_of
from sysid.output_error.segment import segments_of
from sysid.start import InitialSamples, Start
from sysid.training import Training

PLENTY = 10000  # samples of all fits of a cross-validation with more than two folds
CALIBRATION = 1  # stream of random numbers


class Trial(NamedTuple):
    """A route and how well it simulates what it was not fitted to."""

    route: Route
    held_out: HeldOut | None  # None: the route refused
    refusal: str = ""

    @property
    def squared_error(self) -> float:
        """Held out, output unit squared; infinite if it diverged or was refused."""
        return np.inf if self.held_out is None else self.held_out.squared_error

    def report(self) -> dict[str, Any]:
        """As plain numbers, texts, lists and dicts."""
        found: dict[str, Any] = {"route": type(self.route).__name__, "refusal": self.refusal}
        if self.held_out is None:
            return found | {"held_out_rmse": None}
        folds = [float(np.sqrt(error)) for error in self.held_out.parts]
        return found | {
            "held_out_rmse": self.held_out.rmse,
            "folds": folds,
            "reports": [fitted.report for fitted in self.held_out.fitted],
        }


@dataclass(frozen=True)
class FreeRun(Training):
    """Kernel, its hyper-parameters, a linear trend and the dictionary, chosen by the error of the free run.

    Several routes are tried. Each is fitted to the samples around contiguous parts and simulates those; the one with
    the smallest error is fitted to all samples. Where the output saturates (`sysid.output_error.saturation`), saturated
    samples count as bounds of the target and the simulation stays within the limits. The kernel and the mean are
    those of the route; settings of the same name elsewhere have no effect.

    The bands are calibrated for the simulation by the held-out error (`sysid.output_error.calibration`): kernel
    variance and noise are not those of a one-step likelihood.
    """

    replaces: ClassVar[frozenset[str]] = frozenset({"kernel", "mean", "selection"})

    n_initial: int | None = None  # samples; None: all that there are
    routes: Sequence[Route] = field(
        default_factory=lambda: (ProfileSearch(), OutputErrorRefinement())
    )  # the best by cross-validation is taken
    folds: int = 5  # parts that are simulated by a model that was not fitted to them; fewer of long records
    find_limits: bool = True  # whether an output that repeats its extreme value is taken to saturate there

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", tuple(self.routes))
        if not self.routes or not all(isinstance(route, Route) for route in self.routes):
            raise TypeError(
                f"FreeRun: routes must be routes such as ProfileSearch(), at least one, got {self.routes!r}"
            )
        for name, least in (("n_initial", 2), ("folds", 2)):
            value = getattr(self, name)
            is_all = name == "n_initial" and value is None
            if not is_all and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"FreeRun: {name} must be a whole number of at least {least}, got {value!r}")

    @property
    def standardise(self) -> bool:
        """Always."""
        return True

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Refused: a simulation needs to know which features are lagged outputs; see `prepare`."""
        raise TypeError("FreeRun: trains a NARX model, by prepare; take MaximumAPosteriori for samples without lags")

    def prepare(self, samples: InitialSamples, known: Start, *, mean: MeanFunction, budget: int, seed: int) -> Start:
        """See `sysid.training.Training.prepare`; all but the limits must be unknown.

        Raises
        ------
        ValueError
            Something that is known beforehand, no lags of the target, or too few samples.
        """
        given = [name for name, value in known._asdict().items() if value is not None and name != "limits"]
        if given:
            raise ValueError(
                f"FreeRun: finds {' and '.join(given)} itself; leave them unknown, or take another training"
            )
        segments = segments_of(samples)
        saturation = saturation_of(segments) if self.find_limits else Saturation((-np.inf, np.inf), (0, 0))
        limits = saturation.limits if known.limits is None else known.limits
        folds = folds_of(segments, self._n_folds(len(samples.targets)))
        trials = [_tried(route, folds, samples.narx, budget, seed, limits) for route in self.routes]
        best = min(trials, key=lambda trial: (trial.held_out is None, trial.squared_error))
        if best.held_out is None:
            raise ValueError("FreeRun: no route could be fitted: " + "; ".join(trial.refusal for trial in trials))
        fitted = best.route.fit(segments, samples.narx, budget, seed, limits)
        generator = np.random.default_rng([seed, CALIBRATION])
        noise, latent = calibrated(fitted, segments, best.held_out, folds, generator=generator)
        start = fitted.candidate.start(noise, latent, samples.regressors)
        assert start.hyperparameters is not None
        notes = (*start.hyperparameters.warnings, *_notes(best, saturation, limits))
        report = _report(trials, best, fitted, limits)
        return start._replace(hyperparameters=start.hyperparameters._replace(warnings=notes), report=report)

    def _n_folds(self, n: int) -> int:
        """Fewer folds, of which each costs a fit, where half of the samples are plenty."""
        return min(self.folds, max(2, PLENTY // max(n, 1)))


def _tried(
    route: Route, folds: Sequence[Fold], narx: Narx, budget: int, seed: int, limits: tuple[float, float]
) -> Trial:
    try:
        return Trial(route, held_out(route, folds, narx, budget=budget, seed=seed, limits=limits))
    except (ValueError, np.linalg.LinAlgError) as reason:
        return Trial(route, None, f"{type(route).__name__}: {reason}")


def _notes(best: Trial, saturation: Saturation, limits: tuple[float, float]) -> list[str]:
    """What a user should know."""
    notes = []
    for limit, count, word in zip(limits, saturation.counts, ("below", "above"), strict=True):
        if count:
            notes.append(f"{count} samples equal {limit:.6g} and none is {word}: the output is taken to saturate there")
    if not np.isfinite(best.squared_error):
        notes.append("every route diverged on samples that it was not fitted to: do not rely on the simulation")
    return notes


def _report(trials: Sequence[Trial], best: Trial, fitted: Fitted, limits: tuple[float, float]) -> dict[str, Any]:
    """What was tried, as plain numbers, texts, lists and dicts."""
    return {
        "route": type(best.route).__name__,
        "held_out_rmse": float(np.sqrt(best.squared_error)),
        "limits": list(limits),
        "tried": [trial.report() for trial in trials],
        "final": fitted.report,
    }
