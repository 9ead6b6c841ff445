"""Training for the free run: the estimator with the smallest held-out simulation error."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from math import ceil, inf
from threading import Lock
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from sysid.arrays import check_counts, listed
from sysid.beside import Beside, n_processes, one_blas_thread, together, wait_for_any
from sysid.errors import UserError, UserTypeError
from sysid.gp.mean import MeanFunction
from sysid.gp.online import OnlineGP
from sysid.gp.training import LATER_FIELD, Hyperparameters, InitialSamples, Start, Training
from sysid.model.model import Model
from sysid.narx.lags import Narx
from sysid.progress import Steps
from sysid.simulation.bands import measure_bands, typical
from sysid.simulation.segments import (
    Fold,
    Limits,
    Segment,
    find_copies,
    folds_of,
    learn_beyond,
    n_samples,
    n_scored_samples,
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
from sysid.time_limit import (
    COMPARISON_TIME_SHARE,
    TimeIsUp,
    check_seconds,
    check_time,
    has_limit,
    limit_of,
    share_of_time,
    unlimited,
)

# A cross-validation has more than two folds only if its fits have at most this many samples in all.
MAX_CROSS_VALIDATION_SAMPLES = 15000
# Each of fewer folds consists of this many blocks, spread over the samples.
BLOCKS_PER_FOLD = 3
# Number of the stream of random numbers for the calibration.
CALIBRATION_STREAM = 1
# Long simulations of each fold that measure the bands; this many reach most of the fold. The parts
# of a fold share them: more of a short part would be almost the same samples again.
N_LONG_RUNS = 5
# Where lags are compared, a feature must lower the mean square by this fraction of it [-]. The
# information criterion of Akaike asks for 2 / n in n independent samples. Errors of a free run stay
# alike over many samples, so that a held-out part of some thousand samples has few hundred of them.
MIN_GAIN_PER_FEATURE = 3e-3
# A fold extrapolates if a signal goes beyond the range of the other samples by this fraction of it.
MAX_INTERPOLATED_EXCESS = 0.1
# Lags, spread over all, with which every route is tried before the others, if there are many.
N_PROBED_LAGS = 6
# A route whose error on the first fold is more than this factor above that of the best route with
# each of these lags is not tried with the others [-].
MAX_PROBED_FACTOR = 3.0
# Pairs of lags and estimator that are compared in full, not only by quick versions.
N_FINALISTS = 4
# Quick versions that go on to the next fold, at least.
MIN_RACING_TRIALS = 16
# Fraction of the time limit, if there is one, that quick versions of the estimators may use [-].
QUICK_TIME_SHARE = 0.6
# Fits that are kept for a training after a comparison of lags: those of all finalists, and more.
MAX_LAST_FITS = 40
# Linear models that are always among the candidates; the last one minimises the free-run error.
LINEAR_MODELS = (LinearModel(minimises_free_run=False), LinearModel())

log = logging.getLogger(__name__)

# Fit without a fold and the mean square of its simulation of the fold, or the reason of a refusal.
Fitted: TypeAlias = tuple[FitResult, float] | Refusal


@dataclass(eq=False)
class Trial:
    """Cross-validation of an estimator: how well it simulates folds that it was not fitted to."""

    estimator: Estimator
    narx: Narx
    folds: Sequence[Fold]
    handicap: float = 1.0  # factor of its squared errors when it is compared [-]
    label: str = ""  # name in log lines; if empty, the name of the estimator
    is_quick: bool = False  # whether the estimator is a quick version
    fits: list[FitResult] = field(default_factory=list)  # without each fold, as far as done
    #: mean squared error of each of these folds, output unit^2
    errors: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # scored samples of each of these folds
    refusal: str = ""  # why the estimator cannot fit the samples; empty if it can
    ran_away: bool = False  # whether the refusal is that of a fit to all samples that runs away

    @property
    def total(self) -> float:
        """Sum of squares so far times the handicap, output unit^2.

        It is infinite after a refusal, or if the simulation of a fold diverged.
        """
        if self.refusal:
            return inf
        return self.handicap * float(np.dot(self.errors, self.sizes))

    @property
    def rmse(self) -> float | None:
        """Root mean squared error of the folds so far, output unit; None if nothing is scored."""
        if not any(self.sizes):
            return None
        return float(np.sqrt(np.average(self.errors, weights=self.sizes)))

    def expect(self, fold: int) -> float:
        """Return the expected sum of squares of the folds before a fold that is not yet done.

        It is extrapolated from the folds done; infinite if there are none.
        """
        n_done = len(self.fits)
        if n_done:
            return self.total * fold / n_done
        return 0.0 if fold == 0 else inf

    def fit(self, fold: int, budget: int, seed: int, limits: Limits) -> Fitted:
        """Fit to the samples around a fold and simulate the fold; a refusal is returned too."""
        try:
            fit = self.estimator.fit(self.folds[fold].rest, self.narx, budget, seed, limits)
        except Refusal as reason:
            return reason
        return self.score(fold, fit)

    def score(self, fold: int, fit: FitResult) -> Fitted:
        """Simulate a fold with a fit to the samples around it."""
        parts, rest = self.folds[fold]
        guarded = replace(fit.candidate, bounds=range_of([*rest, *parts]))
        return fit, squared_error(guarded, parts)

    def report(self) -> dict[str, Any]:
        """Return a report of plain numbers, texts, lists and dicts.

        It has fewer folds if the estimator could no longer become the best.
        """
        report: dict[str, Any] = {
            "route": self.estimator.name,
            "refusal": self.refusal,
            "held_out_rmse": self.rmse,
        }
        if self.is_quick:
            report["is_quick"] = True
        if self.fits:
            report["folds"] = np.sqrt(self.errors).tolist()
            report["reports"] = [fit.report for fit in self.fits]
        return report


def find_best(
    trials: Sequence[Trial],
    budget: int,
    seed: int,
    limits: Limits,
    n_folds: int | None = None,
) -> Trial:
    """Fit estimators without each fold, and simulate the fold from the outputs measured before it.

    The trial with the smallest sum of squares so far does its next fold, so that a trial that can
    no longer become the best costs nothing. A simulation that leaves the range of the samples has
    an infinite error. A `Refusal` is part of the result; every other error is raised. If the time
    of the search is up (`sysid.time_limit`), the trial with most folds is the best so far: it was
    ahead for longest.

    Further processes begin fits that are likely to be needed next. Those that turn out not to be
    needed are dropped, so that the result is the same as with one core.

    Parameters
    ----------
    trials : sequence of Trial
    budget, seed, limits
        As for `Estimator.fit`.
    n_folds : int, optional
        Number of folds that decide, the first ones; None: all.

    Returns
    -------
    Trial
        The best trial, with these folds unless the time was up.

    Raises
    ------
    TimeIsUp
        The time was up before any fold was done.
    """
    # every trial does one fold, the best one all of them
    if n_folds is None:
        n_folds = max(len(trial.folds) for trial in trials)
    n_begun = sum(not trial.fits for trial in trials)
    steps = Steps(max(1, n_begun + n_folds - 1))
    logged = set[str]()
    fits = _FitsInAdvance(budget, seed, limits, n_folds)
    try:
        while True:
            best = min(trials, key=_rank)
            fold = len(best.fits)
            if best.refusal or fold == min(n_folds, len(best.folds)):
                return best
            name = best.label or best.estimator.name
            line = f"{name}, fold {fold + 1} of {len(best.folds)}"
            try:
                check_time()
                if line not in logged:
                    log.info("free run: %s", line)
                    logged.add(line)
                with steps.step():
                    fitted = fits.result(best, fold, trials)
            except TimeIsUp:
                return _best_so_far(trials)
            if isinstance(fitted, Refusal):
                best.refusal = f"{best.estimator.name}: {fitted}"
                continue
            fit, error = fitted
            best.fits.append(fit)
            best.errors.append(error)
            best.sizes.append(n_scored_samples(best.folds[fold].parts))
    finally:
        fits.drop()


def _best_so_far(trials: Sequence[Trial]) -> Trial:
    """Return the trial with most folds, and the smallest error among equals.

    Raises
    ------
    TimeIsUp
        No fold is done.
    """
    begun = [trial for trial in trials if trial.fits and not trial.refusal]
    if not begun:
        raise TimeIsUp
    return min(begun, key=lambda trial: (-len(trial.fits), trial.total))


class _LastFits:
    """Fits without a fold that were done last.

    A comparison of lags and the training with the chosen lags fit the same estimators to the same
    samples. A fit depends on nothing but its arguments, so that it is done only once.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._fits = OrderedDict[bytes, tuple[Estimator, FitResult]]()
        self._lock = Lock()

    def get(self, key: bytes, estimator: Estimator) -> FitResult | None:
        """Return the fit of an estimator with the arguments of this key, or None."""
        with self._lock:
            known, fit = self._fits.get(key, (None, None))
        return fit if known == estimator else None

    def put(self, key: bytes, estimator: Estimator, fit: FitResult) -> None:
        """Keep a fit; the oldest one is forgotten if there are too many."""
        with self._lock:
            self._fits[key] = estimator, fit
            if len(self._fits) > self._capacity:
                self._fits.popitem(last=False)


def _key_of(trial: Trial, fold: int, budget: int, seed: int, limits: Limits) -> bytes:
    """Return a digest of the arguments of the fit of a trial without a fold."""
    settings = (repr(trial.estimator), repr(trial.narx), budget, seed, limits)
    digest = blake2b(repr(settings).encode())
    for segment in trial.folds[fold].rest:
        for values in (segment.regressors, segment.values, segment.past, segment.measured):
            digest.update(repr(values.shape).encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.digest()


last_fits = _LastFits(MAX_LAST_FITS)


class _FitsInAdvance:
    """Fits without a fold, some of which other processes begin before they are needed."""

    def __init__(self, budget: int, seed: int, limits: Limits, n_folds: int) -> None:
        self._settings = (budget, seed, limits)
        self._n_folds = n_folds  # that are needed of a trial at most
        self._begun = dict[tuple[Trial, int], Beside[Fitted]]()

    def result(self, trial: Trial, fold: int, trials: Sequence[Trial]) -> Fitted:
        """Return the fit of a trial without a fold, and begin others while waiting for it."""
        if trial.is_quick:
            return self._compute(trial, fold, trials)
        key = _key_of(trial, fold, *self._settings)
        fit = last_fits.get(key, trial.estimator)
        if fit is not None:
            return trial.score(fold, fit)
        fitted = self._compute(trial, fold, trials)
        if not isinstance(fitted, Refusal):
            last_fits.put(key, trial.estimator, fitted[0])
        return fitted

    def _compute(self, trial: Trial, fold: int, trials: Sequence[Trial]) -> Fitted:
        """Return the fit of a trial, from a process of its own."""
        needed = (trial, fold)
        tasks = _open_tasks(trials, self._n_folds)
        tasks.sort(key=lambda task: (task != needed, task[0].expect(task[1])))
        while needed not in self._begun or not self._begun[needed].is_over:
            running = [fit for fit in self._begun.values() if not fit.is_over]
            task = next((task for task in tasks if task not in self._begun), None)
            are_busy = len(running) >= n_processes()
            if task is None or (are_busy and task != needed):
                wait_for_any(running)
            else:
                trial_of_task, fold_of_task = task
                self._begun[task] = Beside(
                    partial(trial_of_task.fit, fold_of_task, *self._settings)
                )
        return self._begun.pop(needed).result()

    def drop(self) -> None:
        """End all fits that are still running."""
        for fit in self._begun.values():
            fit.drop()


def _open_tasks(trials: Sequence[Trial], n_folds: int) -> list[tuple[Trial, int]]:
    """Return those of the first folds that are not done, with their trials."""
    tasks = []
    for trial in trials:
        if not trial.refusal:
            last = min(n_folds, len(trial.folds))
            tasks += [(trial, fold) for fold in range(len(trial.fits), last)]
    return tasks


def _rank(trial: Trial) -> tuple[bool, float, int, bool]:
    """Return a key by which the best trial is the smallest.

    Among equals the linear models are last: an estimator that finds nothing but a linear model
    without a fold may find more with all samples.
    """
    is_linear = trial.estimator in LINEAR_MODELS
    return bool(trial.refusal), trial.total, -len(trial.fits), is_linear


def _race(trials: Sequence[Trial], budget: int, seed: int, limits: Limits) -> list[Trial]:
    """Return the trials after `find_best`: the best first, the others by folds and error."""
    best = find_best(trials, budget, seed, limits)
    return sorted(trials, key=lambda trial: (trial is not best, -len(trial.fits), trial.total))


def _race_in_rounds(trials: Sequence[Trial], budget: int, seed: int, limits: Limits) -> list[Trial]:
    """Return the trials by folds and error, the best first, after rounds of `find_best`.

    In each round one more fold decides, and the better half of the trials goes on, so that many
    trials of nearly equal errors cost no more than twice their first folds. (Successive halving,
    Jamieson and Talwalkar 2016.) At least `MIN_RACING_TRIALS` go on.
    """
    kept = list(trials)
    for n_folds in range(1, max(len(trial.folds) for trial in trials) + 1):
        find_best(kept, budget, seed, limits, n_folds)
        kept.sort(key=_standing)
        kept = kept[: max(MIN_RACING_TRIALS, len(kept) // 2)]
    return sorted(trials, key=_standing)


def _finalists(ranked: Sequence[Trial]) -> list[Trial]:
    """Return the best `N_FINALISTS` of ranked trials, of which at most half are linear models.

    A linear model is as good in its quick version; another estimator may gain by the full search.
    """
    linear = [trial for trial in ranked if trial.estimator in LINEAR_MODELS]
    left_out = linear[N_FINALISTS // 2 :]
    return [trial for trial in ranked if trial not in left_out][:N_FINALISTS]


def _standing(trial: Trial) -> tuple[bool, int, float, bool]:
    """Return a key by which the best of trials with different numbers of folds is the smallest."""
    return bool(trial.refusal), -len(trial.fits), trial.total, trial.estimator in LINEAR_MODELS


def _drop_hopeless_routes(trials: Sequence[Trial], budget: int, seed: int, limits: Limits) -> None:
    """Refuse the trials of routes that are far behind with a few lags, spread over all.

    The routes are compared on the first fold. Linear models stay, as they cost little.
    """
    narxes = list(dict.fromkeys(trial.narx for trial in trials))
    if len(narxes) <= 2 * N_PROBED_LAGS:
        return
    narxes.sort(key=lambda narx: narx.n_features)
    positions = np.linspace(0, len(narxes) - 1, N_PROBED_LAGS).round().astype(int)
    probed = {narxes[position] for position in positions}
    begun = [trial for trial in trials if trial.narx in probed]
    find_best(begun, budget, seed, limits, n_folds=1)
    smallest = dict.fromkeys(probed, inf)  # sum of squares of the best route with these lags
    for trial in begun:
        if trial.fits:
            smallest[trial.narx] = min(smallest[trial.narx], trial.total)
    ratios: dict[Estimator, list[float]] = {}
    for trial in begun:
        if trial.fits and 0.0 < smallest[trial.narx] < inf:
            ratio = float(np.sqrt(trial.total / smallest[trial.narx]))
            ratios.setdefault(trial.estimator, []).append(ratio)
    for trial in trials:
        smallest_ratio = min(ratios.get(trial.estimator, [0.0]))
        is_linear = isinstance(trial.estimator, LinearModel)
        if smallest_ratio > MAX_PROBED_FACTOR and not is_linear and not trial.refusal:
            how = f"its error is at least {smallest_ratio:.2g} times that of another route"
            if smallest_ratio == inf:
                how = "it runs away"
            trial.refusal = (
                f"{trial.estimator.name}: {how} with each of the {N_PROBED_LAGS} lags tried first"
            )


class _Choice(NamedTuple):
    """Trial whose estimator is taken, and its fit to all samples."""

    trial: Trial
    fit: FitResult
    runaway: str  # simulation that leaves the range of the samples; empty if none does
    # the same where inputs exceed those of the samples, which is no reason to refuse a model
    runaway_beyond_inputs: str = ""


def _find_best_in_time(
    trials: Sequence[Trial],
    quick_trials: Sequence[Trial],
    budget: int,
    seed: int,
    limits: Limits,
) -> Trial:
    """Return the best trial, or the best so far once the time of the search is up.

    With a limit, quick versions of the estimators go first (`quick_trials`), so that there is
    something to keep. The best of them is taken if it is better on the folds that the best other
    trial has done. If no fold is done at all, the first trial is taken, the simplest linear model.
    """
    found = []
    for group, share in ((quick_trials, QUICK_TIME_SHARE), (trials, COMPARISON_TIME_SHARE)):
        if group:
            with share_of_time(share), suppress(TimeIsUp):
                found.append(find_best(group, budget, seed, limits))
    if not found or (found[-1].refusal and not found[0].fits):
        with unlimited():
            return find_best(trials[:1], budget, seed, limits)
    is_complete = found[-1] in trials and len(found[-1].fits) == len(found[-1].folds)
    begun = [trial for trial in found if trial.fits and not trial.refusal]
    if is_complete or not begun:
        return found[-1]
    n_common = min(len(trial.fits) for trial in begun)
    return min(begun, key=lambda trial: np.dot(trial.errors[:n_common], trial.sizes[:n_common]))


def _choose(
    trials: Sequence[Trial], segments: Sequence[Segment], budget: int, seed: int, limits: Limits
) -> _Choice:
    """Fit the best estimators to all samples, in turn, until one does not run away.

    If all of them run away, the last one is returned. If the time of the search is up, the fit to
    all samples is that without the fold that it simulates best.

    Parameters
    ----------
    trials : sequence of Trial
        Those of `LINEAR_MODELS` come first.

    Raises
    ------
    ValueError
        All estimators refuse the samples.
    """
    choice: _Choice | None = None
    quick_trials: list[Trial] = []
    if has_limit():
        quick_trials = [_quick_version(trial) for trial in trials]
        quick_trials = [trial for trial in quick_trials if trial.is_quick]
    while True:
        best = _find_best_in_time(trials, quick_trials, budget, seed, limits)
        if best.refusal:
            break
        name = best.estimator.name
        log.info("free run: %s, all samples", name)
        try:
            fit = best.estimator.fit(segments, best.narx, budget, seed, limits)
        except Refusal as reason:
            best.refusal = f"{name}: {reason}"
            continue
        except TimeIsUp:
            fit = best.fits[int(np.argmin(best.errors))]
        runaway = find_runaway(fit.candidate, segments)
        beyond_inputs = ""
        if runaway and not find_runaway(fit.candidate, segments, within_inputs=True):
            beyond_inputs = runaway
            runaway = ""
        choice = _Choice(best, fit, runaway, beyond_inputs)
        if not runaway:
            break
        best.ran_away = True
        best.refusal = (
            f"{name}: its free run leaves the range of the samples by far, in the simulation of "
            f"{runaway}"
        )
    if choice is None:
        reasons = "; ".join(trial.refusal for trial in trials)
        raise UserError(f"FreeRun: no estimator of routes serves these samples: {reasons}")
    return choice


@dataclass(frozen=True)
class FreeRun(Training):
    """Training that chooses kernel, hyper-parameters, linear trend and points for the free run.

    Each estimator of `routes`, and the linear model, is cross-validated: it is fitted to the
    samples around contiguous folds and simulates these folds. The one with the smallest error is
    fitted to all samples. If a simulation of them then runs away
    (`sysid.simulation_error.candidate.find_runaway`), the next best is taken. Where the output
    saturates, saturated samples count as bounds of the target, and the simulation stays within the
    limits; elsewhere it stays within the range of the samples, widened by half on both sides.
    The kernel and the linear mean are those of the estimator: `sysid.Settings` refuse another mean.

    The bands of the simulation are calibrated by the held-out error
    (`sysid.simulation_error.calibration`); the kernel variance is not that of a one-step
    likelihood. `sysid.simulation_error` describes the whole algorithm.
    """

    replaces: ClassVar[frozenset[str]] = frozenset({"kernel", "learning", "mean", "selection"})

    n_initial: int | None = None  # number of samples; None: all samples
    #: estimators that are compared by cross-validation; the best one is used
    routes: Sequence[Estimator] = field(
        default_factory=lambda: (
            ProfileSearch(),
            OutputErrorRefinement(),
            DifferenceSearch(),
        )
    )
    #: folds that are simulated by a model that was not fitted to them; fewer for long records
    folds: int = 5
    #: whether an output that repeats its extreme value is taken to saturate there
    find_limits: bool = True
    #: wall time [s] of the search, which then keeps the best so far (`sysid.time_limit`), or the
    #: simplest linear model if there is nothing yet; None: no limit
    seconds: float | None = field(default=None, metadata=LATER_FIELD)

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", listed(self.routes, "FreeRun: routes", "estimators"))
        are_estimators = all(isinstance(estimator, Estimator) for estimator in self.routes)
        if not self.routes or not are_estimators:
            raise UserTypeError(
                "FreeRun: routes must be estimators such as ProfileSearch(), at least one, "
                f"got {self.routes!r}"
            )
        check_counts(self, folds=2)
        check_seconds("FreeRun", self.seconds)
        if self.n_initial is not None:
            check_counts(self, n_initial=2)

    @property
    def standardise(self) -> bool:
        """Whether features are standardised: always."""
        return True

    @one_blas_thread
    def compare_lags(
        self,
        samples: Sequence[InitialSamples],
        labels: Sequence[str],
        *,
        budget: int,
        seed: int,
        segments: Sequence[Sequence[Segment]] | None = None,
    ) -> list[Trial]:
        """Cross-validate the estimators, and the linear models, with several lags at once.

        Quick versions of the estimators go first; the best `N_FINALISTS` of them, at most half of
        them linear models, are compared in full. Of many lags, the quick versions begin with
        `N_PROBED_LAGS`; a route that is far behind with each of them (`MAX_PROBED_FACTOR`) is not
        tried with the other lags. The samples of all lags must be those of the same records. Every
        estimator is fitted to all samples with its lags; only samples that all lags have are
        scored. A feature must lower the mean square by `MIN_GAIN_PER_FEATURE` of it.

        Parameters
        ----------
        samples : sequence of InitialSamples
            Samples with each of the lags.
        labels : sequence of str
            Names of the lags in log lines.
        budget : int
            Largest number of points.
        seed : int
        segments : sequence of sequence of Segment, optional
            Segments with each of the lags, of records with holes; None: those of the samples.

        Returns
        -------
        list of Trial
            The trials in full, then the quick ones, the best first. Trials that could no longer
            become the best have fewer folds.

        Raises
        ------
        ValueError
            No estimator serves the samples.
        TimeIsUp
            The time of the search was up before any fold was done.
        """
        max_lag = max(with_lags.narx.max_lag for with_lags in samples)
        full_trials: list[Trial] = []
        if segments is None:
            segments = [segments_of(with_lags) for with_lags in samples]
        for with_lags, label, whole in zip(samples, labels, segments, strict=True):
            n_unscored = max_lag - with_lags.narx.max_lag
            compared = [
                segment._replace(transient=min(n_unscored, len(segment.values)))
                for segment in whole
            ]
            full_trials += self._trials_of_lags(with_lags.narx, label, compared)
        limits: Limits = (-inf, inf)
        if self.find_limits:
            limits, _ = find_saturation(compared)  # the same samples with all lags
        quick_trials = [_quick_version(trial) for trial in full_trials]
        _drop_hopeless_routes(quick_trials, budget, seed, limits)
        ranked = _race_in_rounds(quick_trials, budget, seed, limits)
        if ranked[0].refusal:
            raise UserError(
                "FreeRun: no estimator of routes serves these samples with any lags: "
                f"{ranked[0].refusal}"
            )
        full_version = dict(zip(quick_trials, full_trials, strict=True))
        finalists = [full_version[trial] for trial in _finalists(ranked)]
        log.info("free run: the best %d of these once more, with the full search", N_FINALISTS)
        try:
            final = _race(finalists, budget, seed, limits)
        except TimeIsUp:
            final = []
        return sorted([*final, *ranked], key=lambda trial: bool(trial.refusal))

    def _trials_of_lags(self, narx: Narx, label: str, segments: Sequence[Segment]) -> list[Trial]:
        """Return trials of the linear models and of all routes."""
        folds = self._folds(segments)
        handicap = 1.0 + MIN_GAIN_PER_FEATURE * narx.n_features
        estimators = (*LINEAR_MODELS, *self.routes)
        return [Trial(estimator, narx, folds, handicap, label) for estimator in estimators]

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Raise `UserTypeError`: a simulation must know which features are lagged outputs.

        Use `prepare` instead.
        """
        raise UserTypeError(
            "FreeRun: trains a NARX model, by prepare; "
            "take MaximumAPosteriori for samples without lags"
        )

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
        """Choose an estimator and fit it; see `sysid.Training.prepare`.

        Only the limits may be known beforehand. The mean is that of the estimator: `sysid.Settings`
        refuse another.

        Raises
        ------
        ValueError
            Something else is known beforehand, there are no lags of the target or too few samples,
            or no estimator serves the samples.
        """
        _check_unknown(known)
        segments = segments_of(samples) if known.segments is None else list(known.segments)
        narx = samples.narx
        limits: Limits = (-inf, inf)
        counts = (0, 0)
        if self.find_limits:
            limits, counts = find_saturation(segments)
        if known.limits is not None:
            limits = known.limits
        folds = self._folds(segments)
        trials = [Trial(estimator, narx, folds) for estimator in (*LINEAR_MODELS, *self.routes)]
        with limit_of(self).running():
            choice = _choose(trials, segments, budget, seed, limits)
        best = choice.trial
        folds_done = folds[: len(best.fits)]  # fewer if the time was up
        tried = trials if best in trials else [*trials, best]
        fit = choice.fit

        generator = np.random.default_rng([seed, CALIBRATION_STREAM])
        noise, latent = calibrate(fit, segments, best.fits, folds_done, generator)
        regressors = samples.regressors
        if known.segments is not None:
            regressors = stack_regressors(segments)
        initial = fit.candidate.initial_model(noise, latent, regressors)
        warnings = [
            *initial.hyperparameters.warnings,
            *_saturation_notes(limits, counts),
            *_notes_on(choice, trials, folds),
        ]
        if known.limits is None:
            # No simulation leaves the range that the samples cover.
            range_of_samples = limits_of(fit.candidate, segments)
            low, high = np.where(np.isfinite(limits), limits, range_of_samples).tolist()
            limits = (low, high)
        initial = initial._replace(
            hyperparameters=initial.hyperparameters._replace(warnings=tuple(warnings)),
            limits=limits,
        )
        model = _model_of(narx, initial, limits)
        held_out = []
        for fit_without_fold, fold in zip(best.fits, folds_done, strict=True):
            rest = stack_regressors(fold.rest)
            start = fit_without_fold.candidate.initial_model(noise, latent, rest)
            held_out.append((_model_of(narx, start, limits), fold.parts))
        report = {
            "route": best.estimator.name,
            "held_out_rmse": best.rmse,
            "limits": list(limits),
            "tried": [trial.report() for trial in tried],
            "final": fit.report,
        }
        return Start(*initial, report=report, bands=_measure_bands(model, held_out, seed))

    def _folds(self, segments: Sequence[Segment]) -> list[Fold]:
        """Return the folds of a cross-validation; at least two, fewer for long records.

        Every fold costs a fit, and half of a long record is enough for one. Fewer folds than
        `folds` are longer; each then consists of several blocks. Samples beyond those around a fold
        are not held out (`learn_beyond`).
        """
        affordable = MAX_CROSS_VALIDATION_SAMPLES // n_samples(segments)
        n_folds = min(self.folds, max(2, affordable))
        n_blocks = 1 if n_folds == self.folds else BLOCKS_PER_FOLD
        folds = folds_of(segments, n_folds, n_blocks)
        return [learn_beyond(fold) for fold in folds]


def _check_unknown(known: Start) -> None:
    """Raise `UserError` if anything but the limits is known beforehand."""
    given = [
        name
        for name, value in known._asdict().items()
        if value is not None and name not in ("limits", "stays", "n_at_rest", "segments")
    ]
    if given:
        raise UserError(
            f"FreeRun: finds {' and '.join(given)} itself; "
            "leave them unknown, or take another training"
        )


def _quick_version(trial: Trial) -> Trial:
    """Return the trial of the quick version of an estimator."""
    estimator = trial.estimator.quick()
    is_quick = estimator != trial.estimator
    label = trial.label or f"{estimator.name}, quick"
    return Trial(estimator, trial.narx, trial.folds, trial.handicap, label, is_quick)


def _saturation_notes(limits: Limits, counts: tuple[int, int]) -> list[str]:
    """Return a note for each limit at which samples were counted."""
    notes = []
    for limit, count, side in zip(limits, counts, ("below", "above"), strict=True):
        if count:
            notes.append(
                f"{count} samples equal {limit:.6g} and none is {side}: "
                "the output is taken to saturate there"
            )
    return notes


def _notes_on(choice: _Choice, trials: Sequence[Trial], folds: Sequence[Fold]) -> list[str]:
    """Return notes on what makes the chosen model or its held-out error doubtful."""
    notes = []
    copies = find_copies(folds)
    if copies:
        notes.append(
            f"{len(copies)} of {len(folds)} folds are found again in the samples that the model "
            "learned: the record repeats itself, and its held-out error says little about other "
            "samples"
        )
    if choice.runaway or choice.trial.total == inf:
        notes.append(
            "every estimator runs away in some simulation of the samples: "
            "do not rely on the simulation"
        )
    if choice.runaway_beyond_inputs:
        notes.append(
            f"with inputs beyond those of the samples ({choice.runaway_beyond_inputs}) the free "
            "run leaves the range of the samples by far: keep the inputs within their limits"
        )
    if not choice.fit.candidate.weights.any():
        notes.append(f"no better model found than a linear one: {choice.trial.estimator.name}")
        notes += _reasons_for_linear(choice.trial, trials, folds)
    else:
        notes += [trial.refusal for trial in trials if trial.ran_away]
    return notes


def _reasons_for_linear(
    linear: Trial, trials: Sequence[Trial], folds: Sequence[Fold]
) -> Iterator[str]:
    """Yield why no other route was taken, and the folds without which one might have been."""
    reasons = []
    decisive_folds = set[int]()
    for trial in trials:
        if trial.estimator in LINEAR_MODELS or trial.estimator == linear.estimator:
            continue
        if trial.refusal:
            reasons.append(trial.refusal)
            continue
        n_done = min(len(trial.errors), len(linear.errors))
        if not n_done:
            reasons.append(f"{trial.estimator.name}: not compared, as the time was up")
            continue
        of_linear = replace(
            linear,
            fits=linear.fits[:n_done],
            errors=linear.errors[:n_done],
            sizes=linear.sizes[:n_done],
        )
        of_trial = replace(trial, errors=trial.errors[:n_done], sizes=trial.sizes[:n_done])
        error = "infinite" if of_trial.total == inf else f"{of_trial.rmse:.4g}"
        reasons.append(
            f"{trial.estimator.name}: its error on {n_done} of {len(folds)} held-out parts is "
            f"{error}, that of the linear model {of_linear.rmse:.4g}"
        )
        losses = np.subtract(of_trial.errors, of_linear.errors) * of_trial.sizes
        decisive_folds.add(int(np.argmax(losses)))
    if reasons:
        yield f"no route was taken: {'; '.join(reasons)}"
    for number in sorted(decisive_folds):
        where = _describe_extrapolation(linear.narx, folds[number])
        if where:
            yield (
                f"held-out part {number + 1} of {len(folds)} decided this, and it {where}: a "
                "nonlinear model can only extrapolate there; leave such a part (a start-up) out of "
                "the record, or record more like it"
            )


def _describe_extrapolation(narx: Narx, fold: Fold) -> str:
    """Return in words that a fold is outside the range of the other samples; else ''."""
    outputs = np.concatenate([segment.values for segment in fold.parts])
    others = np.concatenate([segment.values for segment in fold.rest])
    columns = {narx.target: (outputs, others)}
    regressors = stack_regressors(fold.parts)
    regressors_of_others = stack_regressors(fold.rest)
    for column, name in enumerate(narx.feature_names):
        columns[name] = regressors[:, column], regressors_of_others[:, column]
    for name, (values, known) in columns.items():
        low, high = float(known.min()), float(known.max())
        margin = MAX_INTERPOLATED_EXCESS * (high - low)
        if values.min() < low - margin or values.max() > high + margin:
            return (
                f"reaches {name} from {values.min():.4g} to {values.max():.4g}, "
                f"the others {low:.4g} to {high:.4g}"
            )
    return ""


def _measure_bands(
    model: Model, held_out: Sequence[tuple[Model, tuple[Segment, ...]]], seed: int
) -> tuple[tuple[int, float], ...]:
    """Return the bands of a model by horizon, measured on folds that other fits left out.

    One step ahead the errors of each fit are compared with its own spread. A fit that minimises the
    error of the free run does not determine its predictions one step ahead, and the model is about
    as certain at samples that it has learned as each fit is at samples that it has not learned. In
    simulations the errors are compared with the spread of the model.
    """
    one_step = typical(
        [
            measure_bands(fit_model, [(fit_model, parts)], seed, horizons=())
            for fit_model, parts in held_out
        ]
    )
    works = []
    for fit_model, parts in held_out:
        n_long = ceil(N_LONG_RUNS / len(parts))
        works.append(partial(measure_bands, model, [(fit_model, parts)], seed, n_long=n_long))
    simulated = together(works)
    return (*one_step, *typical(simulated)[1:])


def _model_of(narx: Narx, start: CompleteStart, limits: Limits) -> Model:
    """Return the model that an identification starts with."""
    gp = OnlineGP(
        start.hyperparameters.kernel,
        noise_variance=start.hyperparameters.noise_variance,
        budget=max(2, len(start.points.targets)),
    )
    gp.fit(*start.points)
    return Model(narx, start.scaling, start.mean, gp, limits=limits)
