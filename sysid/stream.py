"""The loop over a stream of samples: collect, train, then predict and learn, block by block."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import check_whole, matrix, vector
from sysid.gp.dictionary import RECORD, UpdateReport
from sysid.gp.online import OnlineGP
from sysid.gp.rules import AcceptAll, Acceptance, Always, Criterion, Insertion, Learning, MarginalLogLikelihood, member
from sysid.gp.selection import Backward, Selection
from sysid.gp.training import Follower, Hyperparameters, InitialSamples, MaximumAPosteriori, Start, Training
from sysid.model.mean import ConstantMean, MeanFunction
from sysid.model.model import NO_LIMITS, Model
from sysid.narx.lags import LagRows, Narx, consecutive
from sysid.narx.window import LagWindow

#: what is reported of a sample that is only collected: nothing is predicted, nothing enters
NOT_PREDICTED = np.array([(np.nan, np.nan, False, False, -1, -1, 0, np.nan, np.nan, np.nan)], dtype=RECORD)


class Measurement(Protocol):
    """One sample of a stream, or consecutive ones: outputs measured at a time, inputs applied from then on."""

    @property
    def output(self) -> np.ndarray:
        """Outputs (n_y,), or (n, n_y) of consecutive samples."""

    @property
    def input(self) -> np.ndarray:
        """Inputs (n_u,), or (n, n_u)."""


@dataclass(frozen=True)
class Settings:
    """How to learn from a stream."""

    training: Training = field(default_factory=MaximumAPosteriori)
    mean: MeanFunction = field(default_factory=ConstantMean)  # fitted if the training standardises
    insertion: Insertion = field(default_factory=Always)
    acceptance: Acceptance = field(default_factory=AcceptAll)
    reduction: Criterion = field(default_factory=MarginalLogLikelihood)
    learning: Learning | str = Learning.every_sample
    scale: bool = True  # whether all variances follow the errors, if every sample is learned
    selection: Selection = field(default_factory=Backward)  # of the initial samples, if they exceed the budget
    budget: int = 100  # points
    seed: int = 0  # of the training's random starts

    def __post_init__(self) -> None:
        check_whole(self.budget, 2, "Settings: budget")
        object.__setattr__(self, "learning", member(Learning, self.learning, "Settings: learning"))


class Block(NamedTuple):
    """What the loop did with consecutive samples of one record."""

    rows: LagRows
    record: np.ndarray  # (n_rows,) one `UpdateReport` a row; its mean is nan while the initial samples are collected


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
    adaptation : Follower or None
        What re-estimates the hyper-parameters while the stream goes on; None if the training does not follow.
    report : dict or None
        What the training tried, if it says so.
    training_seconds : float
        Wall time of the training [s].
    """

    def __init__(self, narx: Narx, settings: Settings, *, start: Start | None = None) -> None:
        self.narx = narx
        self.settings = settings
        self.start = Start() if start is None else start
        self.model: Model | None = None
        self.initial: Model | None = None
        self.hyperparameters: Hyperparameters | None = None
        self.report: dict[str, Any] | None = None
        self.training_seconds = 0.0
        self.adaptation: Follower | None = settings.training.follow(settings.seed)
        self._collected: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # initial samples, block by block
        self._n_collected = 0
        if settings.training.n_initial == 0:
            self._start()

    def observe(self, regressor: ArrayLike, target: float, *, follows: bool = True) -> UpdateReport | None:
        """Predict and learn from one sample; None while it is still one of the initial samples.

        `follows` says whether it comes right after the sample before it, in the same record: a training that
        simulates needs to know where a record begins.
        """
        is_collected = self.model is None
        record = self.observe_many(np.asarray(regressor)[None], [target], follows=[follows])
        return None if is_collected else UpdateReport(*record[0].item())

    def observe_many(
        self, regressors: ArrayLike, targets: ArrayLike, *, follows: ArrayLike | None = None
    ) -> np.ndarray:
        """Predict and learn from consecutive samples, compiled; the same bits for every division into blocks.

        Parameters
        ----------
        regressors : (n, n_features)
        targets : (n,)
        follows : (n,) of bool, optional
            Whether each comes right after the one before it; None: all do.

        Returns
        -------
        structured array (n,)
            One row per sample, with the fields of `sysid.UpdateReport`. Of the initial samples, which are copied and
            collected, nothing is predicted: their mean is nan.

        Raises
        ------
        ValueError
            Wrong shape, or a value that is not finite. Nothing has been learned or collected then.
        other errors
            Of the training. The samples up to the last one that it saw stay collected; with each further one the
            training is tried again.
        """
        collected = NOT_PREDICTED[:0]
        if self.model is None:
            x = matrix(regressors, self.narx.n_features, "regressors")
            y = vector(targets, len(x), "targets")
            after = np.ones(len(y), dtype=bool) if follows is None else np.asarray(follows, dtype=bool)
            done = self._collect(x, y, after)
            collected = np.repeat(NOT_PREDICTED, done)
            if self.model is None:
                return collected
            collected["n_points"][-1:] = self.model.gp.n_points
            regressors, targets = x[done:], y[done:]
        if self.adaptation is not None:
            return np.concatenate([collected, *self._adapt(self.adaptation, self.model, regressors, targets)])
        record = self.model.update_many(regressors, targets)
        return np.concatenate([collected, record]) if len(collected) else record

    def _adapt(
        self, adaptation: Follower, model: Model, regressors: ArrayLike, targets: ArrayLike
    ) -> Iterator[np.ndarray]:
        """Learn in blocks that end where the adaptation wants to look at the errors."""
        x = matrix(regressors, self.narx.n_features, "regressors")
        y = vector(targets, len(x), "targets")
        done = 0
        while done < len(y):
            block = slice(done, done + adaptation.n_until_look)
            record = model.update_many(x[block], y[block])
            adaptation.observe(x[block], y[block], record)
            gp = adaptation.adapted(model.gp)
            if gp is not model.gp:
                self.model = model = replace(model, gp=gp)
            yield record
            done += len(record)

    def finish(self) -> None:
        """Train on the samples collected so far if the training takes all that there are; else nothing."""
        if self.model is None and self.settings.training.n_initial is None and self._n_collected:
            self._start()

    def _collect(self, x: np.ndarray, y: np.ndarray, follows: np.ndarray) -> int:
        """Copy samples until there are enough to train, then train; returns how many were taken."""
        n_initial = self.settings.training.n_initial
        n = len(y) if n_initial is None else min(len(y), max(1, n_initial - self._n_collected))
        follows = follows[:n].copy()
        follows[:1] &= self._n_collected > 0
        self._collected.append((x[:n].copy(), y[:n].copy(), follows))
        self._n_collected += n
        if n_initial is not None and self._n_collected >= n_initial:
            self._start()
        return n

    def _start(self) -> None:
        """Train on what is collected; the model starts from the points of the training, or from selected samples."""
        nothing = np.zeros((0, self.narx.n_features)), np.zeros(0), np.zeros(0, dtype=bool)
        samples = InitialSamples(self.narx, *map(np.concatenate, zip(nothing, *self._collected, strict=True)))
        begin = perf_counter()
        s = self.settings
        start = s.training.prepare(samples, self.start, mean=s.mean, budget=s.budget, seed=s.seed)
        self.training_seconds = perf_counter() - begin
        self.hyperparameters, self.report = start.hyperparameters, start.report
        scaling, mean, hyperparameters, points, limits, _ = start
        assert scaling is not None
        assert mean is not None
        assert hyperparameters is not None
        gp = OnlineGP(
            hyperparameters.kernel,
            noise_variance=hyperparameters.noise_variance,
            learning=s.learning if points is None else Learning.stored,  # given points say it all
            **{name: getattr(s, name) for name in ("budget", "insertion", "acceptance", "reduction", "scale")},
        )
        if points is None:
            centred = samples.targets - mean(samples.regressors)
            gp = s.selection.fill(gp, scaling.transform(samples.regressors), centred)
        else:
            gp.fit(*points)
        self.model = Model(self.narx, scaling, mean, gp, limits=NO_LIMITS if limits is None else limits)
        self.initial = replace(self.model, gp=self.model.gp.copy())
        self._collected.clear()
        if self.adaptation is not None:
            self.adaptation.start(scaling, mean, samples.regressors, samples.targets, gp.learning)


def learn_from(
    samples: Iterable[Measurement],
    identification: Identification,
    window: LagWindow,
    *,
    outputs: Sequence[str],
    inputs: Sequence[str],
) -> Iterator[Block]:
    """Feed a stream to an identification: the one loop, for live samples and for blocks of a record.

    Each sample is predicted before its target is used. The loop is lazy: it asks for the next samples when
    the next block is asked for, so a live closed loop advances with it and can be stopped at any time.

    Parameters
    ----------
    samples : iterable of Measurement
        One sample or a block of consecutive samples at a time.
    identification : Identification
    window : LagWindow
        Of the same `Narx`; keeps the lags and counts missing samples. Reset it between two records.
    outputs, inputs : sequence of str
        Names of the columns of the samples' outputs and inputs.

    Raises
    ------
    ValueError
        If the model needs a signal that the samples do not have.
    """
    narx = identification.narx
    y_columns = _columns(narx.output_names, outputs, "outputs")
    u_columns = _columns(narx.input_names, inputs, "inputs")
    last = -2  # sample of the row before
    for sample in samples:
        rows = window.observe_many(sample.output[..., y_columns], sample.input[..., u_columns])
        if len(rows.sample):
            follows = np.diff(rows.sample, prepend=last) == 1 if identification.model is None else None
            yield Block(rows, identification.observe_many(rows.regressor, rows.target, follows=follows))
            last = rows.sample[-1]


def identify(
    records: xr.Dataset | Sequence[xr.Dataset],
    narx: Narx,
    settings: Settings | None = None,
    *,
    start: Start | None = None,
) -> Identification:
    """Identify a model from records in one call.

    Parameters
    ----------
    records
        One data set per record, see `Narx.dataset`.
    narx : Narx
    settings : Settings, optional
    start : Start, optional
        What is known beforehand.

    Returns
    -------
    Identification
        Its `model` has seen all records and learns on with `observe_many`.

    Raises
    ------
    ValueError
        As `Narx.dataset`; fewer rows than ``settings.training.n_initial``.

    Examples
    --------
    >>> time = np.arange(200.0)
    >>> record = xr.Dataset({"y": ("time", np.sin(0.3 * time)), "u": ("time", np.cos(0.3 * time))}, {"time": time})
    >>> found = identify(record, Narx({"y": 1}, {"u": 1}), Settings(budget=20))
    >>> found.model.gp.n_points
    20
    """
    identification = Identification(narx, Settings() if settings is None else settings, start=start)
    rows = narx.dataset(records)
    identification.observe_many(rows["regressor"].values, rows["target"].values, follows=consecutive(rows))
    identification.finish()
    if identification.model is None:
        raise ValueError(
            f"identify: training.n_initial is {identification.settings.training.n_initial}, the records give "
            f"{rows.sizes['sample']} rows; give longer records, or lower n_initial"
        )
    return identification


def _columns(needed: Sequence[str], present: Sequence[str], kind: str) -> np.ndarray | slice:
    if missing := [name for name in needed if name not in present]:
        raise ValueError(f"narx needs {kind} {missing}, the samples have {list(present)}; change narx or their source")
    columns = [list(present).index(name) for name in needed]
    return slice(None) if columns == list(range(len(present))) else np.array(columns, dtype=int)
