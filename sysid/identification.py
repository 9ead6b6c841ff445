"""An identification: its settings, the initial samples, their training, then learning sample by
sample.

`Identification` is what a caller holds. It begins with a `Collector`, which gathers the initial
samples; the training makes a model of them, and from then on a `Learner` predicts and learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import check_whole, matrix, member, rows, vector
from sysid.beside import one_blas_thread
from sysid.errors import UserError, UserTypeError
from sysid.gp.adaptation import Adaptation, Adaptive
from sysid.gp.dictionary import NOT_PREDICTED, UpdateReport
from sysid.gp.mean import AutomaticMean, MeanFunction
from sysid.gp.online import OnlineGP
from sysid.gp.rules import (
    Acceptance,
    Always,
    Criterion,
    ExceedsMinimum,
    Insertion,
    Learning,
    MeanRelevance,
    at_least,
)
from sysid.gp.selection import Backward, Selection
from sysid.gp.training import (
    Follower,
    Hyperparameters,
    InitialSamples,
    MaximumAPosteriori,
    Start,
    Training,
)
from sysid.initial_training import Trained, train
from sysid.model.model import NO_LIMITS, Model
from sysid.narx.lags import Narx, consecutive
from sysid.outliers import OutlierHandling, reach_of
from sysid.simulation.bands import MIN_ROWS_FOR_BANDS, measure_bands_by_folds

# rows that are handed to the online GP at once, which starts anew after each outlier
MAX_PIECE_ROWS = 1000

#: settings that the online GP takes as they are
PASSED_ON = ("budget", "insertion", "acceptance", "reduction", "scale", "forgetting")


@dataclass(frozen=True)
class Settings:
    """How to learn from a stream; the defaults are those of `sysid-identify`."""

    training: Training = field(default_factory=Adaptive)
    mean: MeanFunction = field(default_factory=AutomaticMean)  # fitted if the training standardises
    insertion: Insertion = field(default_factory=Always)
    acceptance: Acceptance = field(default_factory=lambda: ExceedsMinimum(MeanRelevance()))
    reduction: Criterion = field(default_factory=MeanRelevance)
    learning: Learning | str = Learning.every_sample
    scale: bool = True  # whether all variances follow the errors, if every sample is learned
    #: memory in samples, for a plant that changes; None or "none": nothing is forgotten
    forgetting: float | str | None = None
    gate: float | str | None = (
        4.0  # largest standardised error of a sample that is learned, if the target has lags
    )
    selection: Selection = field(
        default_factory=Backward
    )  # of the initial samples, if they exceed the budget
    budget: int = 100  # points
    seed: int = 0  # of the training's random starts

    def __post_init__(self) -> None:
        check_whole(self.budget, 2, "Settings: budget")
        if "mean" in self.training.replaces and self.mean != AutomaticMean():
            raise UserError(
                f"Settings: expected no mean, as this training brings its own, got {self.mean}; leave it out, or take "
                "another training"
            )
        object.__setattr__(self, "learning", member(Learning, self.learning, "Settings: learning"))
        for name, least in (("forgetting", 2.0), ("gate", 1.0)):
            object.__setattr__(
                self, name, at_least(least, getattr(self, name), f"Settings: {name}")
            )


class Collector:
    """The identification before it has a model: gathers the initial samples.

    Attributes
    ----------
    n_collected : int
        Samples so far.
    """

    def __init__(self, narx: Narx, n_initial: int | None) -> None:
        self.n_collected = 0
        self._narx = narx
        self._n_initial = n_initial  # samples that train; None: all that there are
        self._blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    @property
    def is_complete(self) -> bool:
        """Whether there are as many samples as the training wants."""
        return self._n_initial is not None and self.n_collected >= self._n_initial

    @property
    def takes_all(self) -> bool:
        """Whether the training wants all samples that there are, and there are some."""
        return self._n_initial is None and self.n_collected > 0

    def take(self, x: np.ndarray, y: np.ndarray, follows: np.ndarray) -> int:
        """Copy samples until there are enough; returns how many were taken, at least one of
        them.
        """
        n = len(y)
        if self._n_initial is not None:
            n = min(n, max(1, self._n_initial - self.n_collected))
        follows = follows[:n].copy()
        follows[:1] &= self.n_collected > 0
        self._blocks.append((x[:n].copy(), y[:n].copy(), follows))
        self.n_collected += n
        return n

    def samples(self) -> InitialSamples:
        """All samples so far."""
        nothing = (
            np.zeros((0, self._narx.n_features)),
            np.zeros(0),
            np.zeros(0, dtype=bool),
        )
        return InitialSamples(
            self._narx, *map(np.concatenate, zip(nothing, *self._blocks, strict=True))
        )


class Learner:
    """The identification once it has a model: predicts each sample, then learns it.

    Parameters
    ----------
    model : Model
    gate : float or None
        Of the model, where a row tells whether the one before was an outlier.
    n_mended : dict
        How many values of each signal but the target were replaced already.

    Attributes
    ----------
    model : Model
        Another object after each estimate of an adaptation.
    initial : Model
        A copy of the model before it learned from the stream.
    adaptation : Follower or None
        What re-estimates the hyper-parameters.
    outliers : OutlierHandling
    """

    def __init__(self, model: Model, gate: float | None, n_mended: dict[str, int]) -> None:
        self.model = model
        self.initial = replace(model, gp=model.gp.copy(), pending={}, follower=None)
        self.adaptation: Follower | None = None
        self.outliers = OutlierHandling(
            model.narx, model.scaling, has_gate=gate is not None, n_mended=n_mended
        )
        self._has_gate = gate is not None

    def learn(
        self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None
    ) -> tuple[list[np.ndarray], UpdateReport | None]:
        """Learn in pieces: up to each outlier, and to where the adaptation wants to look at the
        errors.

        Returns
        -------
        list of structured array
            Records of the pieces.
        UpdateReport or None
            Of the sample before the first row, if it was held back and has been learned now.
        """
        outliers = self.outliers
        mended = self.outliers.mended
        adaptation = self.adaptation
        outliers.begin(x, y, follows)
        records: list[np.ndarray] = []
        correction: UpdateReport | None = None
        done = 0
        longest = MAX_PIECE_ROWS if adaptation is None else adaptation.n_until_look
        while done < len(y):
            if outliers.suspect is not None:
                report = self._reconsider(done)
                if report is not None and records:
                    records[-1][-1] = report
                elif report is not None:
                    correction = report
            piece, is_held_back = outliers.next_piece(
                done, longest, gate_is_open=self.model.gp.gate_is_open
            )
            record = self.model.update_many(
                mended.x[piece],
                mended.y[piece],
                until_outlier=True,
                withhold=is_held_back,
            )
            piece = slice(done, done + len(record))
            done = piece.stop
            if adaptation is not None:
                adaptation.observe(mended.x[piece], mended.y[piece], record)
                gp = adaptation.adapted(self.model.gp, is_settled=not is_held_back)
                if gp is not self.model.gp:
                    self.model = replace(self.model, gp=gp)
                longest = adaptation.n_until_look
            gate_is_open = self.model.gp.gate_is_open
            outliers.look_at(piece, record, is_held_back=is_held_back, gate_is_open=gate_is_open)
            records.append(record)
        outliers.end()
        if self._has_gate:
            self._note()
        return records, correction

    def finish(self) -> UpdateReport | None:
        """No sample will follow: decide about one that is held back; return its report if it is
        learned now.
        """
        if self.outliers.suspect is None:
            return None
        report = self._reconsider(None)
        self._note()
        return report

    def _reconsider(self, row: int | None) -> UpdateReport | None:
        """Decide about the suspect by the row after it; return its report anew if it is learned."""
        accepted = self.outliers.reconsider(self.model, row)
        if accepted is None:
            return None
        if accepted.plant_jumped and self.adaptation is not None:
            self.adaptation.believe()
        return accepted.report

    def _note(self) -> None:
        """Let the model know what `Identification.resume` needs to go on."""
        self.model.pending.update(seen=self.model.gp.n_seen, **self.outliers.pending())


class Identification:
    """A model in the making: collects the initial samples, trains, then learns online.

    A sample beyond the gate is passed over, and its measurement, which is among the lags of the
    next samples too, is replaced there by its prediction. If the next sample is likelier after the
    measurement than after its replacement, it was the plant that jumped, not the sensor: the sample
    is learned, one later, its measurement comes back, and the gate is open until a sample is within
    it. So it is after ``2 (n_y + 1)`` outliers in a row, n_y the largest lag of the target, or if
    more than one sample in six is one. Where the target has no lags, no sample tells of the one
    before: there is no gate.

    Inputs and other outputs are measured, too. Where the newest value of one jumps by three
    standard deviations, or the sample is beyond the gate, the sample waits for the next one. If the
    jump is taken back by then, and both samples are likelier with the value before it, that takes
    its place among the lags, and the sample is learned. Initial samples are mended so if the
    Gaussian process trained with them predicts each from the others better.

    Parameters
    ----------
    narx : Narx
    settings : Settings
    start : Start, optional
        What is known beforehand.

    Attributes
    ----------
    model : Model or None
        None until the initial samples are there; another object after each estimate of an
        adaptation.
    initial : Model or None
        A copy of the model before it learned from the stream.
    hyperparameters : Hyperparameters or None
        Of the initial model.
    adaptation : Follower or None
        What re-estimates the hyper-parameters while the stream goes on; None if the training does
        not, or they stay.
    report : dict or None
        What the training tried, if it says so.
    training_seconds : float
        Wall time of the training [s].
    n_initial_outliers : int
        Initial samples beyond the gate, which were left out of the training.
    n_mended : dict
        How many values of each signal but the target were replaced.
    correction : UpdateReport or None
        Set by each call of `observe`, `observe_many` and `finish`: the report anew of the last
        sample before that call, if it was held back and has been learned now; it takes the place of
        the last row that was returned. None: that row stands. Its prediction is the same, and nan
        after `resume`.
    """

    def __init__(self, narx: Narx, settings: Settings, *, start: Start | None = None) -> None:
        self.narx = narx
        self.settings = settings
        self.start = Start() if start is None else start
        self.hyperparameters: Hyperparameters | None = None
        self.report: dict[str, Any] | None = None
        self.training_seconds = 0.0
        self.n_initial_outliers = 0
        self.correction: UpdateReport | None = None
        self._follower = settings.training.follow(settings.seed)
        self._phase: Collector | Learner = Collector(narx, settings.training.n_initial)
        if settings.training.n_initial == 0:
            self._phase = self._train(self._phase)

    @property
    def gate(self) -> float | None:
        """The gate of the settings; None where no row tells whether the one before was an outlier,
        for want of lags.
        """
        return self.settings.gate if reach_of(self.narx) else None  # type: ignore[return-value]  # Settings reads texts

    @property
    def model(self) -> Model | None:
        """The model as far as it has learned; None until the initial samples are there."""
        return self._phase.model if isinstance(self._phase, Learner) else None

    @model.setter
    def model(self, model: Model) -> None:
        if not isinstance(self._phase, Learner):
            raise AttributeError(
                "Identification: there is no model yet that another could replace; see `resume`"
            )
        self._phase.model = model

    def require_model(self) -> Model:
        """Return the model as far as it has learned.

        Raises
        ------
        ValueError
            The initial samples are not there yet.
        """
        if not isinstance(self._phase, Learner):
            n = self._phase.n_collected
            needed = self.settings.training.n_initial
            raise UserError(
                f"Identification: there is no model yet, {n} of {needed} initial samples are there"
            )
        return self._phase.model

    @property
    def initial(self) -> Model | None:
        """A copy of the model before it learned from the stream; None until there is one."""
        return self._phase.initial if isinstance(self._phase, Learner) else None

    @property
    def adaptation(self) -> Follower | None:
        """What re-estimates the hyper-parameters while the stream goes on."""
        return self._phase.adaptation if isinstance(self._phase, Learner) else self._follower

    @property
    def n_mended(self) -> dict[str, int]:
        """How many values of each signal but the target were replaced."""
        return dict(self._phase.outliers.n_mended) if isinstance(self._phase, Learner) else {}

    def observe(
        self, regressor: ArrayLike, target: float, *, follows: bool = True
    ) -> UpdateReport | None:
        """Predict and learn from one sample; None while it is still one of the initial samples.

        `follows` says whether it comes right after the sample before it, in the same record: a
        training that simulates needs to know where a record begins.
        """
        is_collected = isinstance(self._phase, Collector)
        record = self.observe_many(np.asanyarray(regressor)[None], [target], follows=[follows])
        return None if is_collected else UpdateReport(*record[0].item())

    def observe_many(
        self,
        regressors: ArrayLike,
        targets: ArrayLike,
        *,
        follows: ArrayLike | None = None,
    ) -> np.ndarray:
        """Predict and learn from consecutive samples, compiled; the same bits for every division
        into blocks.

        Parameters
        ----------
        regressors : (n, n_features)
        targets : (n,)
        follows : (n,) of bool, optional
            Whether each comes right after the one before it; None: all do.

        Returns
        -------
        structured array (n,)
            One row per sample, with the fields of `sysid.UpdateReport`. Of the initial samples,
            which are copied and collected, nothing is predicted: their mean is nan. If the last row
            is an outlier, or one at which another signal jumps, the sample is held back until the
            next call. What was returned stays as it is: if the sample is learned then, its report
            anew stands in `correction`.

        Raises
        ------
        ValueError
            Wrong shape, or a value that is not finite. Nothing has been learned or collected then.
        other errors
            Of the training. The samples up to the last one that it saw stay collected; with each
            further one the training is tried again.
        """
        self.correction = None
        collected = NOT_PREDICTED[:0]
        phase = self._phase
        if isinstance(phase, Collector):
            x = matrix(regressors, self.narx.n_features, "regressors")
            y = vector(targets, len(x), "targets")
            after = (
                np.ones(len(y), dtype=bool) if follows is None else np.asarray(follows, dtype=bool)
            )
            done = phase.take(x, y, after)
            collected = np.repeat(NOT_PREDICTED, done)
            if not phase.is_complete:
                return collected
            phase = self._phase = self._train(phase)
            collected["n_points"][-1:] = phase.model.gp.n_points
            regressors = x[done:]
            targets = y[done:]
            follows = after[done:]
        x, y = rows(regressors, targets, self.narx.n_features, "regressors")
        if len(y) > 1:  # all of them are checked before the first is learned
            x, y = (
                matrix(x, self.narx.n_features, "regressors"),
                vector(y, len(x), "targets"),
            )
        records, self.correction = phase.learn(x, y, follows)
        if len(records) == 1 and not len(collected):
            return records[0]
        return np.concatenate([collected, *records])

    def finish(self) -> None:
        """No sample will follow: learn one that waits for it; train now if the training takes all
        that there are.

        If the last sample was held back and is learned now, its report stands in `correction`.
        """
        self.correction = None
        if isinstance(self._phase, Collector) and self._phase.takes_all:
            self._phase = self._train(self._phase)
        if isinstance(self._phase, Learner):
            self.correction = self._phase.finish()

    @classmethod
    @one_blas_thread
    def of_records(
        cls,
        records: xr.Dataset | Sequence[xr.Dataset],
        narx: Narx,
        settings: Settings,
        *,
        start: Start | None = None,
    ) -> Identification:
        """Learn records as a whole.

        Parameters
        ----------
        records
            One data set per record, see `Narx.dataset`.
        narx : Narx
        settings : Settings
        start : Start, optional
            What is known beforehand; None: what ``settings.training.know`` says of all records.
            ``Start()``: nothing, the first samples give the hyper-parameters as they do of a
            stream.

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
        >>> found = Identification.of_records(record, Narx({"y": 1}, {"u": 1}), Settings(budget=20))
        >>> found.model.gp.n_points
        20
        """
        rows = narx.dataset(records)
        x = rows["regressor"].values
        t = rows["target"].values
        if start is None:
            start = settings.training.know(x, t, mean=settings.mean, seed=settings.seed)
        identification = cls(narx, settings, start=start)
        identification.observe_many(x, t, follows=consecutive(rows))
        identification.finish()
        identification.calibrate(rows)
        if identification.model is None:
            raise UserError(
                f"identify: training.n_initial is {identification.settings.training.n_initial}, the records give "
                f"{rows.sizes['sample']} rows; give longer records, or lower n_initial"
            )
        return identification

    @classmethod
    def resume(cls, model: Model) -> Identification:
        """Go on with a model, of a file say, where its identification stood, bit for bit.

        Samples that the model learned by `Model.update_many` in between are not known: then nothing
        is pending, and its hyper-parameters stay.

        Examples
        --------
        >>> narx = Narx({"y": 1}, {"u": 1})
        >>> signals = {"y": np.sin(0.3 * np.arange(120)), "u": np.cos(0.3 * np.arange(120))}
        >>> rows, found = narx.regressors(signals), Identification(narx, Settings(budget=20))
        >>> _ = found.observe_many(rows.regressor[:110], rows.target[:110])
        >>> resumed = Identification.resume(found.model)
        >>> resumed.observe(rows.regressor[110], rows.target[110]).n_points
        20
        """
        gp = model.gp
        pending = model.pending
        own = {name: getattr(gp, name) for name in (*PASSED_ON, "learning", "gate")}
        found = cls(model.narx, Settings(training=MaximumAPosteriori(), mean=model.mean, **own))
        learner = found._phase = Learner(model, found.gate, n_mended={})
        if isinstance(model.follower, Adaptation) and model.follower.n_seen == gp.n_seen:
            learner.adaptation = model.follower
        if pending.get("seen") == gp.n_seen:
            try:
                learner.outliers.recall(pending)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"what the model says to be pending does not fit it: {error}; save it anew"
                ) from error
        return found

    def calibrate(
        self, rows: xr.Dataset, judged: xr.Dataset | None = None, added: ArrayLike = 0.0
    ) -> None:
        """Measure how wide the bands of the model must be (`sysid.Model.bands`), by the rows that
        it has learned.

        Each fifth of them is predicted by a model with the same hyper-parameters that learns from
        the others; of more than `PLENTIFUL_ROWS_PER_POINT` rows for each point by the model itself,
        whose errors do not differ from these any more (`sysid.simulation.bands`). Nothing is
        measured for a training that has done so, for a plant that changes (`forgetting`), and of
        fewer than `MIN_ROWS_FOR_BANDS` rows.

        Parameters
        ----------
        rows
            Lag data set of the records.
        judged
            The same where some regressors are estimates that know the rows: every fifth as it is
            for who has not seen it. The bands lie between what both say
            (`sysid.simulation.bands.between`).
        added : (n,), optional
            Variance that the prediction of each row has beside that of the model, in one step.
        """
        model = self.model
        s = self.settings
        x = rows["regressor"].values
        t = rows["target"].values
        if model is None or model.bands or s.forgetting or len(t) < MIN_ROWS_FOR_BANDS:
            return
        known = Hyperparameters(model.gp.kernel, model.gp.noise_variance, np.nan)
        start = Start(model.scaling, model.mean, known, limits=model.limits)

        def learn(rest: InitialSamples) -> Model:
            """Model of some of the rows with the same hyper-parameters."""
            n_initial = min(s.budget, len(rest.targets))
            training = MaximumAPosteriori(n_initial=n_initial)
            again = Identification(self.narx, replace(s, training=training), start=start)
            again.observe_many(rest.regressors, rest.targets, follows=rest.follows)
            return again.require_model()

        samples = InitialSamples(self.narx, x, t, consecutive(rows))
        estimates = None if judged is None else judged["regressor"].values
        bands = measure_bands_by_folds(
            model, samples, learn, s.seed, estimates=estimates, added=added
        )
        self.model = replace(model, bands=bands)

    def _train(self, collector: Collector) -> Learner:
        """Train on what is collected; the model starts from the points of the training, or from
        selected samples.
        """
        s = self.settings
        prepare = partial(s.training.prepare, mean=s.mean, budget=s.budget, seed=s.seed)
        trained = train(collector.samples(), self.start, prepare, self.gate)
        model = self._initial_model(trained)
        learner = Learner(model, self.gate, trained.n_mended)
        self.training_seconds = trained.seconds
        self.hyperparameters = trained.start.hyperparameters
        self.report = trained.start.report
        self.n_initial_outliers = trained.n_outliers
        if self._follower is not None and not self.start.stays:
            x = trained.samples.regressors
            y = trained.samples.targets
            n_left_out = collector.n_collected - len(y)
            self._follower.start(
                model.scaling,
                model.mean,
                x,
                y,
                model.gp.learning,
                n_left_out=n_left_out,
            )
            learner.adaptation = self._follower
            learner.model = replace(model, follower=self._follower)
        return learner

    def _initial_model(self, trained: Trained) -> Model:
        """Build the model that the training found, of its points or of the selected samples."""
        s = self.settings
        scaling, mean, hyperparameters, points, limits, _, bands, _ = trained.start
        if scaling is None or mean is None or hyperparameters is None:
            wanted = "a scaling, a mean and hyper-parameters"
            raise UserTypeError(f"{s.training}: expected `prepare` to return {wanted}")
        gp = OnlineGP(
            hyperparameters.kernel,
            noise_variance=hyperparameters.noise_variance,
            learning=s.learning if points is None else Learning.stored,  # given points say it all
            gate=self.gate,
            gate_opens_after=2 * (reach_of(self.narx) + 1),
            **{name: getattr(s, name) for name in PASSED_ON},
        )
        if points is None:
            x = trained.samples.regressors
            y = trained.samples.targets
            gp = s.selection.fill(gp, scaling.transform(x), y - mean(x))
        else:
            gp.fit(*points)
        return Model(self.narx, scaling, mean, gp, limits=limits or NO_LIMITS, bands=bands or ())
