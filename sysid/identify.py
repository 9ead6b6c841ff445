"""The loop over a stream of samples: collect, train, then predict and learn one by one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np

from sysid.acceptance import AcceptAll, Acceptance
from sysid.criteria import Criterion, MarginalLogLikelihood
from sysid.insertion import Always, Insertion
from sysid.lag_window import LagWindow
from sysid.model import Model
from sysid.narx import Narx
from sysid.online import OnlineGP
from sysid.report import UpdateReport
from sysid.scaling import Scaling
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
    insertion: Insertion = field(default_factory=Always)
    acceptance: Acceptance = field(default_factory=AcceptAll)
    reduction: Criterion = field(default_factory=MarginalLogLikelihood)
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

    Attributes
    ----------
    model : Model or None
        None until the initial samples are there.
    initial : Model or None
        A copy of the model before it learned from the stream.
    hyperparameters : Hyperparameters or None
    training_seconds : float
        Wall time of the training [s].
    """

    def __init__(self, narx: Narx, settings: Settings) -> None:
        self.narx = narx
        self.settings = settings
        self.model: Model | None = None
        self.initial: Model | None = None
        self.hyperparameters: Hyperparameters | None = None
        self.training_seconds = 0.0
        self._regressors: list[np.ndarray] = []
        self._targets: list[float] = []
        if settings.training.n_initial == 0:
            self._start()

    def observe(self, regressor: np.ndarray, target: float) -> UpdateReport | None:
        """Predict and learn from one sample; None while it is still one of the initial samples."""
        if self.model is not None:
            return self.model.update(regressor, target)
        self._regressors.append(regressor)
        self._targets.append(target)
        if len(self._targets) == self.settings.training.n_initial:
            self._start()
        return None

    def _start(self) -> None:
        inputs = np.array(self._regressors).reshape(-1, self.narx.n_features)
        targets = np.array(self._targets)
        training = self.settings.training
        standardise = training.standardise and len(inputs) > 0
        scaling = Scaling.fit(inputs) if standardise else Scaling.identity(self.narx.n_features)
        offset = float(targets.mean()) if standardise else 0.0
        scaled = scaling.transform(inputs)
        begin = perf_counter()
        self.hyperparameters = training.train(scaled, targets - offset, self.settings.seed)
        self.training_seconds = perf_counter() - begin
        self.model, self.initial = (
            Model(self.narx, scaling, offset, self._gp().fit(scaled, targets - offset)) for _ in range(2)
        )

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
    for sample in samples:
        pair = window.observe(sample.output[output_columns], sample.input[input_columns])
        if pair is not None:
            report = identification.observe(pair.regressor, pair.target)
            n_points = 0 if identification.model is None else identification.model.gp.n_points
            yield Step(sample.time, pair.target, window.previous_target_value, report, n_points, record)


def _columns(needed: Sequence[str], present: Sequence[str], kind: str) -> np.ndarray:
    missing = [name for name in needed if name not in present]
    if missing:
        raise ValueError(
            f"identify: the model needs {kind} {missing}, the samples have {list(present)}; change the lags "
            "(narx) or the source of the samples"
        )
    return np.array([list(present).index(name) for name in needed], dtype=int)
