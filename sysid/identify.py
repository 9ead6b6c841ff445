"""The loop over a stream of samples: collect, train, then predict and learn one by one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from sysid.acceptance import AcceptAll, Acceptance
from sysid.adaptation import Adaptation
from sysid.arrays import matrix, vector
from sysid.criteria import Criterion, MarginalLogLikelihood
from sysid.dictionary import RECORD
from sysid.insertion import Always, Insertion
from sysid.lag_window import LagWindow
from sysid.mean import ConstantMean, MeanFunction
from sysid.model import NO_LIMITS, Model
from sysid.narx import Narx
from sysid.online import OnlineGP
from sysid.report import UpdateReport, UpdateReports
from sysid.selection import Backward, Selection
from sysid.start import NOTHING_KNOWN, InitialSamples, Start
from sysid.state import checked_budget
from sysid.training import Hyperparameters, MaximumAPosteriori, Training


class Measurement(Protocol):
    """One sample of a stream: outputs measured at a time, inputs applied from then on."""

    @property
    def time(self) -> float:
        """Time [s]."""

    @property
    def output(self) -> np.ndarray:
        """Outputs (n_y,)."""

    @property
    def input(self) -> np.ndarray:
        """Inputs (n_u,)."""


@dataclass(frozen=True)
class Settings:
    """How to learn from a stream."""

    training: Training = field(default_factory=MaximumAPosteriori)
    mean: MeanFunction = field(default_factory=ConstantMean)  # fitted if the training standardises
    insertion: Insertion = field(default_factory=Always)
    acceptance: Acceptance = field(default_factory=AcceptAll)
    reduction: Criterion = field(default_factory=MarginalLogLikelihood)
    selection: Selection = field(default_factory=Backward)  # of the initial samples, if they exceed the budget
    budget: int = 100  # points
    seed: int = 0  # of the training's random starts

    def __post_init__(self) -> None:
        checked_budget(self.budget)


class Step(NamedTuple):
    """What the loop did with one sample."""

    time: float  # s
    target: float
    previous: float  # target signal one sample earlier
    report: UpdateReport | None  # None while the initial samples are collected
    n_points: int  # points in the dictionary after the sample
    record: int = 0  # number of the record


class Identification:
    """A model in the making: collects the initial samples, trains, then learns online.

    Parameters
    ----------
    narx : Narx
    settings : Settings
    start : Start, optional
        What is known beforehand.

    Attributes
    ----------
    model : Model or None
        None until the initial samples are there; another object after each estimate of an adaptation.
    initial : Model or None
        A copy of the model before it learned from the stream.
    hyperparameters : Hyperparameters or None
        Of the initial model.
    adaptation : Adaptation or None
        What re-estimates the hyper-parameters while the stream goes on; None if the training does not follow.
    report : dict or None
        What the training tried, if it says so.
    training_seconds : float
        Wall time of the training [s].
    """

    def __init__(self, narx: Narx, settings: Settings, *, start: Start = NOTHING_KNOWN) -> None:
        self.narx = narx
        self.settings = settings
        self.start = start
        self.model: Model | None = None
        self.initial: Model | None = None
        self.hyperparameters: Hyperparameters | None = None
        self.report: dict[str, Any] | None = None
        self.training_seconds = 0.0
        self.adaptation: Adaptation | None = settings.training.follow(settings.seed)
        self._regressors: list[np.ndarray] = []
        self._targets: list[float] = []
        self._follows: list[bool] = []
        if settings.training.n_initial == 0:
            self._start()

    def observe(self, regressor: np.ndarray, target: float, *, follows: bool = True) -> UpdateReport | None:
        """Predict and learn from one sample; None while it is still one of the initial samples.

        `follows` says whether it comes right after the sample before it, in the same record: a training that
        simulates needs to know where a record begins.
        """
        if self.model is None:
            self._collect(regressor, target, follows)
            return None
        report = self.model.update(regressor, target)
        if self.adaptation is not None:
            self._follow(self.adaptation, self.model, regressor, target, report)
        return report

    def observe_many(
        self, regressors: ArrayLike, targets: ArrayLike, *, follows: ArrayLike | None = None
    ) -> UpdateReports:
        """Predict and learn from recorded samples, compiled; decisions, estimates and bits of `observe`.

        Parameters
        ----------
        regressors : (n, n_features)
        targets : (n,)
        follows : (n,) of bool, optional
            Whether each comes right after the one before it; None: all do.

        Returns
        -------
        UpdateReports
            Of the samples after the initial ones, which are collected first.

        Raises
        ------
        ValueError
            Wrong shape, or a value that is not finite. Nothing has been learned then.
        """
        x = matrix(regressors, self.narx.n_features, "regressors")
        y = vector(targets, len(x), "targets")
        after = np.ones(len(y), dtype=bool) if follows is None else np.asarray(follows, dtype=bool)
        done, blocks = 0, []
        while self.model is None and done < len(y):
            self._collect(x[done], float(y[done]), bool(after[done]))
            done += 1
        while self.model is not None and done < len(y):
            n = len(y) if self.adaptation is None else self.adaptation.n_until_look
            block = slice(done, done + n)
            blocks.append(self._update_many(self.model, x[block], y[block]))
            done += n
        return _joined(blocks)

    def finish(self) -> None:
        """Train on the samples collected so far if the training takes all that there are; else nothing."""
        if self.model is None and self.settings.training.n_initial is None and self._targets:
            self._start()

    def _collect(self, regressor: np.ndarray, target: float, follows: bool) -> None:
        self._follows.append(follows and len(self._follows) > 0)
        self._regressors.append(regressor)
        self._targets.append(target)
        if len(self._targets) == self.settings.training.n_initial:
            self._start()

    def _update_many(self, model: Model, regressors: np.ndarray, targets: np.ndarray) -> UpdateReports:
        reports = model.update_many(regressors, targets)
        if self.adaptation is not None:
            self._follow(self.adaptation, model, regressors, targets, reports)
        return reports

    def _follow(
        self,
        adaptation: Adaptation,
        model: Model,
        regressors: np.ndarray,
        targets: np.ndarray | float,
        reports: UpdateReport | UpdateReports,
    ) -> None:
        adaptation.observe(regressors, targets, reports)
        gp = adaptation.adapted(model.gp)
        if gp is not model.gp:
            self.model = replace(model, gp=gp)

    def _start(self) -> None:
        regressors = np.array(self._regressors).reshape(-1, self.narx.n_features)
        targets = np.array(self._targets)
        samples = InitialSamples(self.narx, regressors, targets, np.array(self._follows, dtype=bool))
        begin = perf_counter()
        settings = self.settings
        start = settings.training.prepare(
            samples, self.start, mean=settings.mean, budget=settings.budget, seed=settings.seed
        )
        self.training_seconds = perf_counter() - begin
        self.hyperparameters, self.report = start.hyperparameters, start.report
        self.model, self.initial = (self._model(start, samples) for _ in range(2))
        if self.adaptation is not None:
            self.adaptation.start(self.initial, regressors, targets)

    def _model(self, start: Start, samples: InitialSamples) -> Model:
        """Model of a complete start: its points, or those selected from the samples."""
        scaling, mean, hyperparameters, points, limits, _ = start
        assert scaling is not None
        assert mean is not None
        assert hyperparameters is not None
        if points is None:
            centred = samples.targets - mean(samples.regressors)
            gp = self.settings.selection.fill(self._gp(), scaling.transform(samples.regressors), centred)
        else:
            gp = self._gp().fit(*points)
        return Model(self.narx, scaling, mean, gp, limits=NO_LIMITS if limits is None else limits)

    def _gp(self) -> OnlineGP:
        assert self.hyperparameters is not None
        settings = self.settings
        return OnlineGP(
            self.hyperparameters.kernel,
            noise_variance=self.hyperparameters.noise_variance,
            budget=settings.budget,
            insertion=settings.insertion,
            acceptance=settings.acceptance,
            reduction=settings.reduction,
        )


def identify(
    samples: Iterable[Measurement],
    identification: Identification,
    window: LagWindow,
    *,
    outputs: Sequence[str],
    inputs: Sequence[str],
    record: int = 0,
) -> Iterator[Step]:
    """Feed a stream to an identification, one step per sample that has a full lag window.

    Each sample is predicted before its target is used. The loop is lazy: it asks for the next sample when
    the next step is asked for, so a live closed loop advances with it and can be stopped at any time.

    Parameters
    ----------
    samples : iterable of Measurement
    identification : Identification
    window : LagWindow
        Of the same `Narx`; keeps the lags and counts missing samples.
    outputs, inputs : sequence of str
        Names of the columns of the samples' outputs and inputs.
    record : int, optional
        Number of the record that the samples belong to; between two records the caller resets the window.

    Raises
    ------
    ValueError
        If the model needs a signal that the samples do not have.
    """
    narx = identification.narx
    output_columns = _columns(narx.output_names, outputs, "outputs")
    input_columns = _columns(narx.input_names, inputs, "inputs")
    follows = False
    for sample in samples:
        pair = window.observe(sample.output[output_columns], sample.input[input_columns])
        if pair is not None:
            report = identification.observe(pair.regressor, pair.target, follows=follows)
            n_points = 0 if identification.model is None else identification.model.gp.n_points
            yield Step(sample.time, pair.target, window.previous_target_value, report, n_points, record)
        follows = pair is not None


def _joined(blocks: Sequence[UpdateReports]) -> UpdateReports:
    """Reports of consecutive blocks, of which there may be none."""
    empty = np.zeros(0, dtype=RECORD)
    return UpdateReports(
        *(np.concatenate([empty[name], *(getattr(block, name) for block in blocks)]) for name in UpdateReport._fields)
    )


def _columns(needed: Sequence[str], present: Sequence[str], kind: str) -> np.ndarray:
    missing = [name for name in needed if name not in present]
    if missing:
        raise ValueError(
            f"identify: the model needs {kind} {missing}, the samples have {list(present)}; change the lags "
            "(narx) or the source of the samples"
        )
    return np.array([list(present).index(name) for name in needed], dtype=int)
