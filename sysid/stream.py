"""The loop over a stream of samples: collect, train, then predict and learn, block by block."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import check_whole, matrix, rows, vector
from sysid.beside import one_blas_thread
from sysid.errors import UserError
from sysid.gp.adaptation import Adaptation, Adaptive
from sysid.gp.dictionary import NOT_PREDICTED, RECORD, UpdateReport
from sysid.gp.mean import AutomaticMean, MeanFunction
from sysid.gp.online import LeaveOneOut, OnlineGP
from sysid.gp.rules import (
    Acceptance,
    Always,
    Criterion,
    ExceedsMinimum,
    Insertion,
    Learning,
    MeanRelevance,
    at_least,
    member,
)
from sysid.gp.selection import Backward, Selection
from sysid.gp.training import Follower, Hyperparameters, InitialSamples, MaximumAPosteriori, Start, Training
from sysid.model.model import NO_LIMITS, Model
from sysid.narx.lags import LagRows, Narx, Target, consecutive
from sysid.narx.window import LagWindow
from sysid.simulation.bands import between, measure_bands
from sysid.simulation.segments import Segment, folds_of, n_samples, segments_of

SCREENINGS, MOST_SCREENED = 3, 2000  # trainings that leave outliers out, and samples that are looked at, at most
PARTS, LEAST = 5, 100  # parts of a record that are held out in turn to calibrate bands, and rows that it needs
PLENTY = 100  # rows for each point: with more nothing is held out
PIECE = 1000  # rows that are handed to the online GP at once, which starts anew after each outlier
LEAST_GAIN = 2.0  # of twice the log density of two samples, if a measurement of another signal is wrong
JUMP = 3.0  # change of an input or another output over a sample that is looked at, in its initial standard deviations

#: what is decided of a sample once it is predicted
DECISIONS = tuple(name for name in RECORD.names or () if name not in ("mean", "variance"))

#: settings that the online GP takes as they are
PASSED_ON = ("budget", "insertion", "acceptance", "reduction", "scale", "forgetting")


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
    """How to learn from a stream; the defaults are those of `sysid-identify`."""

    training: Training = field(default_factory=Adaptive)
    mean: MeanFunction = field(default_factory=AutomaticMean)  # fitted if the training standardises
    insertion: Insertion = field(default_factory=Always)
    acceptance: Acceptance = field(default_factory=lambda: ExceedsMinimum(MeanRelevance()))
    reduction: Criterion = field(default_factory=MeanRelevance)
    learning: Learning | str = Learning.every_sample
    scale: bool = True  # whether all variances follow the errors, if every sample is learned
    forgetting: float | str | None = (
        None  # memory in samples, for a plant that changes; None or "none": nothing is forgotten
    )
    gate: float | str | None = 4.0  # largest standardised error of a sample that is learned, if the target has lags
    selection: Selection = field(default_factory=Backward)  # of the initial samples, if they exceed the budget
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
            object.__setattr__(self, name, at_least(least, getattr(self, name), f"Settings: {name}"))


class Block(NamedTuple):
    """What the loop did with consecutive samples of one record."""

    rows: LagRows
    record: np.ndarray  # (n_rows,) one `UpdateReport` a row; its mean is nan while the initial samples are collected


class Suspect(NamedTuple):
    """A sample that was taken for an outlier, until the next one tells what was wrong."""

    regressor: np.ndarray  # (1, n_features)
    target: np.ndarray  # (1,)
    before: np.ndarray | None  # (n_features,) regressor one sample earlier, if there is one
    record: np.ndarray  # that ends with it


#: what measurements that are not believed exceed their replacement by: by signal and time, counted in rows
Errors = dict[tuple[str, int], float]


class MendedRows:
    """Rows of consecutive samples with replacements of measurements that are not believed.

    A measurement is the target of one row, and a lag of others. What is replaced is remembered from one block of
    rows to the next, as long as a row may have it among its lags.
    """

    def __init__(self, narx: Narx) -> None:
        self.columns = {feature: column for column, feature in enumerate(narx.features)}
        self.target, self._is_change = narx.target, narx.predict is Target.change
        own = narx.lags[narx.target]
        self.reach = max([*own, int(self._is_change)])  # rows after its own that a measured target is part of
        self._longest = max(self.reach, narx.max_lag)
        #: column of the newest value of each other signal
        self.newest = {name: self.columns[name, min(lags)] for name, lags in narx.lags.items() if name != narx.target}
        self.errors: Errors = {}  # times are counted from the first row of `begin`
        self.last = np.zeros(narx.n_features)  # measured row before it

    def begin(self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None) -> None:
        """Take the next rows (n, n_features), (n,); `follows` (n,): whether each comes right after the one before."""
        self.x, self.y, self._measured = x, y, (x, y)
        self.follows = np.ones(len(y), dtype=bool) if follows is None else np.asarray(follows, dtype=bool)
        if self.errors:
            self._mend(0)

    def row(self, row: int, errors: Errors) -> tuple[np.ndarray, float]:
        """A row (n_features,) and its target, if these are the errors; -1: the last one of the block before."""
        x, y = (self.last, np.nan) if row < 0 else (self._measured[0][row], self._measured[1][row])
        x = x.copy()
        for (name, time), error in errors.items():
            lag = row - time
            if (name, lag) in self.columns:
                x[self.columns[name, lag]] -= error
            if name == self.target and lag == 1 and self._is_change:
                y += error
        return x, y

    def find_jumps(self, limits: dict[int, float]) -> list[int]:
        """Rows at which a column of one of these limits changes by more, from the row before."""
        x = self._measured[0]
        if len(x) == 1:
            is_beyond = (abs(x[0, column] - self.last[column]) > limit for column, limit in limits.items())
            return [0] if self.follows[0] and any(is_beyond) else []
        columns = list(limits)
        change = abs(np.diff(x[:, columns], axis=0, prepend=self.last[None, columns]))
        return np.flatnonzero((change > list(limits.values())).any(axis=1) & self.follows).tolist()

    def replace(self, row: int, mean: float) -> None:
        """Put the predicted mean in the place of a row's target, in the rows that follow."""
        self._forget(row)
        self.believe(row + 1, self.errors | {(self.target, row): float(self.y[row]) - mean})

    def believe(self, row: int, errors: Errors) -> None:
        """Believe all measurements but those of these errors, from a row on."""
        if errors != self.errors:
            self.errors = errors
            self._mend(row)

    def end(self) -> None:
        """All rows are done: number what is remembered from the next one on."""
        if n := len(self.y):
            self.last = self._measured[0][-1].copy()
            self._forget(n)
            self.errors = {(name, time - n): error for (name, time), error in self.errors.items()}

    def _forget(self, row: int) -> None:
        """Leave the errors that the row, or the one before it, may have among its lags."""
        self.errors = {
            (name, time): error
            for (name, time), error in self.errors.items()
            if row - time <= self._longest + 1 and self.follows[max(0, time + 1) : row + 1].all()
        }

    def _mend(self, begin: int) -> None:
        """Write the rows from `begin` on anew, as far as a measurement before it reaches."""
        x, y = self._measured
        if self.x is x:
            self.x, self.y = x.copy(), y.copy()
        for row in range(begin, min(begin + self._longest, len(y))):
            if not self.follows[row]:
                return
            self.x[row], self.y[row] = self.row(row, self.errors)


class Identification:
    """A model in the making: collects the initial samples, trains, then learns online.

    A sample beyond the gate is passed over, and its measurement, which is among the lags of the next samples too, is
    replaced there by its prediction. If the next sample is likelier after the measurement than after its replacement,
    it was the plant that jumped, not the sensor: the sample is learned, one later, its measurement comes back, and the
    gate is open until a sample is within it. So it is after ``2 (n_y + 1)`` outliers in a row, n_y the largest lag of
    the target, or if more than one sample in six is one. Where the target has no lags, no sample tells of the one
    before: there is no gate.

    Inputs and other outputs are measured, too. Where the newest value of one jumps by three standard deviations, or
    the sample is beyond the gate, the sample waits for the next one. If the jump is taken back by then, and both
    samples are likelier with the value before it, that takes its place among the lags, and the sample is learned.
    Initial samples are mended so if the Gaussian process trained with them predicts each from the others better.

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
        What re-estimates the hyper-parameters while the stream goes on; None if the training does not, or they stay.
    report : dict or None
        What the training tried, if it says so.
    training_seconds : float
        Wall time of the training [s].
    n_initial_outliers : int
        Initial samples beyond the gate, which were left out of the training.
    n_mended : dict
        How many values of each signal but the target were replaced.
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
        self.n_initial_outliers = 0
        self.n_mended: dict[str, int] = {}
        self._mended = MendedRows(narx)
        self._limits: dict[int, float] = {}  # of the change of a column, beyond which a sample waits for the next one
        self._suspect: Suspect | None = None  # the sample before, if it was an outlier
        self._collected: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # initial samples, block by block
        self._n_collected = 0
        if settings.training.n_initial == 0:
            self._start()

    @property
    def gate(self) -> float | None:
        """The gate of the settings; None where no row tells whether the one before was an outlier, for want of lags."""
        return self.settings.gate if self._mended.reach else None  # type: ignore[return-value]  # Settings reads texts

    def observe(self, regressor: ArrayLike, target: float, *, follows: bool = True) -> UpdateReport | None:
        """Predict and learn from one sample; None while it is still one of the initial samples.

        `follows` says whether it comes right after the sample before it, in the same record: a training that
        simulates needs to know where a record begins.
        """
        is_collected = self.model is None
        record = self.observe_many(np.asanyarray(regressor)[None], [target], follows=[follows])
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
            collected, nothing is predicted: their mean is nan. If the last row is an outlier, or one at which another
            signal jumps, the next call may write it anew: it is learned then.

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
            follows = after[done:]
        x, y = rows(regressors, targets, self.narx.n_features, "regressors")
        if len(y) > 1:  # all of them are checked before the first is learned
            x, y = matrix(x, self.narx.n_features, "regressors"), vector(y, len(x), "targets")
        records = [collected, *self._learn(self.model, x, y, follows)]
        found = records[1] if len(records) == 2 and not len(collected) else np.concatenate(records)
        if self._suspect is not None and len(y):
            self._suspect = self._suspect._replace(record=found)
        return found

    def _learn(self, model: Model, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None) -> Iterator[np.ndarray]:
        """Learn in pieces: up to each outlier, and to where the adaptation wants to look at the errors."""
        mended = self._mended
        mended.begin(x, y, follows)
        jumps = [*mended.find_jumps(self._limits), len(y)]
        done, longest = 0, PIECE if self.adaptation is None else self.adaptation.n_until_look
        while done < len(y):
            if self._suspect is not None:
                self._reconsider(self._suspect, model, done)
            jump = jumps[bisect_left(jumps, done + model.gp.gate_is_open)]
            withhold = jump == done
            piece = slice(done, done + 1 if withhold else min(done + longest, jump))
            record = model.update_many(mended.x[piece], mended.y[piece], until_outlier=True, withhold=withhold)
            done += len(record)
            if self.adaptation is not None:
                self.adaptation.observe(mended.x[piece.start : done], mended.y[piece.start : done], record)
                gp = self.adaptation.adapted(model.gp, is_settled=not withhold)
                if gp is not model.gp:
                    self.model = model = replace(model, gp=gp)
                longest = self.adaptation.n_until_look
            if withhold or record[-1]["outlier"]:
                row = slice(done - 1, done)
                before = mended.row(done - 2, mended.errors)[0] if mended.follows[done - 1] else None
                self._suspect = Suspect(mended.x[row].copy(), mended.y[row].copy(), before, record)
            if record[-1]["outlier"]:
                if model.gp.gate_is_open:  # the plant has changed
                    mended.believe(done, {})
                else:
                    mended.replace(done - 1, float(record[-1]["mean"]))
            if mended.y is not y:  # reported is the change from the measured value before, not from the mended one
                record["mean"] += y[piece.start : done] - mended.y[piece.start : done]
            yield record
        mended.end()
        if self.gate is not None:
            self._note(model)

    def _note(self, model: Model) -> None:
        """Let the model know what `resume` needs to go on, as plain content: the last row, and what is not settled."""
        mended, suspect = self._mended, self._suspect
        model.pending.update(
            seen=model.gp.n_seen,
            last=mended.last.tolist(),
            errors=[[*key, error] for key, error in mended.errors.items()],
            suspect=None
            if suspect is None
            else {
                "regressor": suspect.regressor.tolist(),
                "target": suspect.target.tolist(),
                "before": None if suspect.before is None else suspect.before.tolist(),
                "outlier": bool(suspect.record["outlier"][-1]),
            },
        )

    @classmethod
    @one_blas_thread
    def of_records(
        cls, records: xr.Dataset | Sequence[xr.Dataset], narx: Narx, settings: Settings, *, start: Start | None = None
    ) -> Identification:
        """Learn records as a whole.

        Parameters
        ----------
        records
            One data set per record, see `Narx.dataset`.
        narx : Narx
        settings : Settings
        start : Start, optional
            What is known beforehand; None: what ``settings.training.know`` says of all records. ``Start()``: nothing,
            the first samples give the hyper-parameters as they do of a stream.

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
        x, t = rows["regressor"].values, rows["target"].values
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

        Samples that the model learned by `Model.update_many` in between are not known: then nothing is pending, and its
        hyper-parameters stay.

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
        gp, pending = model.gp, model.pending
        own = {name: getattr(gp, name) for name in (*PASSED_ON, "learning", "gate")}
        found = cls(model.narx, Settings(training=MaximumAPosteriori(), mean=model.mean, **own))
        found._adopt(model)
        if isinstance(model.follower, Adaptation) and model.follower.n_seen == gp.n_seen:
            found.adaptation = model.follower
        if pending.get("seen") == gp.n_seen:
            try:
                found._recall(pending, model.narx.n_features)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"what the model says to be pending does not fit it: {error}; save it anew") from error
        return found

    def _recall(self, pending: dict[str, Any], n: int) -> None:
        """Inverse of `_note`."""
        self._mended.last = vector(pending["last"], n, "last")
        self._mended.errors = {(str(name), int(time)): float(error) for name, time, error in pending["errors"]}
        if (suspect := pending["suspect"]) is not None:
            before = None if suspect["before"] is None else vector(suspect["before"], n, "before")
            record = NOT_PREDICTED.copy()
            record["outlier"] = suspect["outlier"]
            regressor, target = matrix(suspect["regressor"], n, "regressor"), vector(suspect["target"], 1, "target")
            self._suspect = Suspect(regressor, target, before, record)

    def _adopt(self, model: Model) -> None:
        """Learn by a model from now on."""
        scaling = model.scaling
        if self.gate is not None and scaling.matrix is None:
            columns = [c for c in self._mended.newest.values() if c not in scaling.constant]
            self._limits = {column: JUMP * float(scaling.scale[column]) for column in columns}
        self.model, self.initial = model, replace(model, gp=model.gp.copy(), pending={}, follower=None)

    def _reconsider(self, suspect: Suspect, model: Model, row: int) -> None:
        """Learn the suspect, the sample before a row, unless the row is likeliest if the suspect's target is wrong.

        Nothing may be wrong, or the newest value of another signal, which then stays as it was before. The record
        of the sample, which was returned already, is written anew.
        """
        self._suspect = None
        mended, was_outlier = self._mended, bool(suspect.record["outlier"][-1])
        causes: dict[tuple[str, int], tuple[float, float]] = {}
        likeliest = 0
        own = mended.target, row - 1
        is_followed = row < len(mended.y) and mended.follows[row]
        if was_outlier and not (is_followed and own in mended.errors):
            return
        if is_followed:
            believed = {key: error for key, error in mended.errors.items() if key != own}
            causes = self._find_causes(suspect, model, row)
            errors = [*(believed | {key: error} for key, (error, _) in causes.items()), mended.errors, believed]
            costs = _costs(model, *map(np.stack, zip(*(mended.row(row, each) for each in errors), strict=True)))
            for i, (_, gain) in enumerate(causes.values()):
                costs[i] = costs[i] - gain if costs[-1] - costs[i] + gain > LEAST_GAIN else np.inf
            likeliest = int(np.argmin(costs))
            if was_outlier and likeliest == len(causes):
                return
            mended.believe(row, errors[likeliest])
        x, y, _, record = suspect
        is_cause = likeliest < len(causes)
        if is_cause:
            (name, _), (error, _) = list(causes.items())[likeliest]
            x[0, mended.newest[name]] -= error
            self.n_mended[name] = self.n_mended.get(name, 0) + 1
        z, prior = model.scaling.transform(x), model.mean(x)
        became = model.gp.believe(z, y, prior, was_outlier=was_outlier, opens=was_outlier and not is_cause)[0]
        for name in DECISIONS:
            record[name][-1] = became[name]
        if self.adaptation is not None and was_outlier and not is_cause:
            self.adaptation.believe()

    def _find_causes(self, suspect: Suspect, model: Model, row: int) -> dict[tuple[str, int], tuple[float, float]]:
        """Errors of the newest values of other signals that explain the suspect, the sample before a row, and the gain.

        With the value before in its place the suspect is within the gate; the value after is closer to that, too.
        """
        if suspect.before is None:
            return {}
        mended, found, (x,), y = self._mended, {}, suspect.regressor, suspect.target
        for name, column in mended.newest.items():
            value, before, after = x[column], suspect.before[column], mended.x[row, column]
            if abs(after - before) < abs(after - value):
                both = np.stack([x, x])
                both[1, column] = before
                mean, variance = model.predict(both[1:])
                if not model.gp.is_beyond_gate(y[0] - mean[0], variance[0]):
                    as_measured, as_before = _costs(model, both, y)
                    found[name, row - 1 - self.narx.features[column][1]] = value - before, as_measured - as_before
        return found

    def calibrate(self, rows: xr.Dataset, judged: xr.Dataset | None = None, added: ArrayLike = 0.0) -> None:
        """Measure how wide the bands of the model must be (`sysid.Model.bands`), by the rows that it has learned.

        Each fifth of them is predicted by a model with the same hyper-parameters that learns from the others; of more
        than `PLENTY` rows for each point by the model itself, whose errors do not differ from these any more. Nothing
        is measured for a training that has done so, for a plant that changes (`forgetting`), and of fewer than `LEAST`
        rows.

        Parameters
        ----------
        rows
            Lag data set of the records.
        judged
            The same where some regressors are estimates that know the rows: every fifth as it is for who has not seen
            it. The bands lie between what both say (`between`).
        added : (n,), optional
            Variance that the prediction of each row has beside that of the model, in one step.
        """
        model, s = self.model, self.settings
        x, t, follows = rows["regressor"].values, rows["target"].values, consecutive(rows)
        seen = [x] if judged is None else [judged["regressor"].values, x]
        if model is None or model.bands or s.forgetting or len(t) < LEAST:
            return
        segments = [[Segment(each, t, np.full(1, np.nan))] for each in seen]
        if self._mended.reach:
            segments = [segments_of(InitialSamples(self.narx, each, t, follows)) for each in seen]
        known = Hyperparameters(model.gp.kernel, model.gp.noise_variance, np.nan)
        start, held_out, begin = Start(model.scaling, model.mean, known, limits=model.limits), [], 0
        for folds in zip(*(folds_of(each, PARTS) for each in segments), strict=True):
            judge, end = model, begin + n_samples(folds[0].parts)
            if len(t) <= PLENTY * s.budget:
                rest = np.r_[0:begin, end : len(t)]
                training = MaximumAPosteriori(n_initial=min(s.budget, len(rest)))
                again = Identification(self.narx, replace(s, training=training), start=start)
                again.observe_many(x[rest], t[rest], follows=follows[rest] & (rest != end))
                assert again.model is not None
                judge = again.model
            held_out.append([(judge, fold.parts) for fold in folds])
            begin = end
        bands = [measure_bands(model, each, s.seed, added) for each in zip(*held_out, strict=True)]
        self.model = replace(model, bands=between(bands[0], bands[-1]))

    def finish(self) -> None:
        """No sample will follow: learn one that waits for it; train now if the training takes all that there are."""
        if self.model is None and self.settings.training.n_initial is None and self._n_collected:
            self._start()
        if self.model is not None and self._suspect is not None:
            self._reconsider(self._suspect, self.model, len(self._mended.y))
            self._note(self.model)

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
        train = partial(s.training.prepare, mean=s.mean, budget=s.budget, seed=s.seed)
        start = train(samples, self.start)
        without, n_mended = self._without_spikes(samples)
        if n_mended and (measured := self._leave_one_out(start, samples)):
            other = train(without, self.start)
            if (mended := self._leave_one_out(other, without)) and mended.log_density > measured.log_density:
                samples, start, self.n_mended = without, other, n_mended
        for _ in range(SCREENINGS):
            outliers = self._find_outliers(start, samples)
            if not outliers.any():
                break
            self.n_initial_outliers += int(outliers.sum())
            samples = self._without(samples, outliers)
            start = train(samples, self.start)
        self.training_seconds = perf_counter() - begin
        self.hyperparameters, self.report = start.hyperparameters, start.report
        scaling, mean, hyperparameters, points, limits, _, bands, _ = start
        assert scaling is not None
        assert mean is not None
        assert hyperparameters is not None
        gp = OnlineGP(
            hyperparameters.kernel,
            noise_variance=hyperparameters.noise_variance,
            learning=s.learning if points is None else Learning.stored,  # given points say it all
            gate=self.gate,
            gate_opens_after=2 * (self._mended.reach + 1),
            **{name: getattr(s, name) for name in PASSED_ON},
        )
        if points is None:
            centred = samples.targets - mean(samples.regressors)
            gp = s.selection.fill(gp, scaling.transform(samples.regressors), centred)
        else:
            gp.fit(*points)
        model = Model(self.narx, scaling, mean, gp, limits=limits or NO_LIMITS, bands=bands or ())
        self._adopt(model)
        self._collected.clear()
        if self.start.stays:
            self.adaptation = None
        if self.adaptation is not None:
            n_left_out = self._n_collected - len(samples.targets)
            x, y = samples.regressors, samples.targets
            self.adaptation.start(scaling, mean, x, y, gp.learning, n_left_out=n_left_out)
            self.model = replace(model, follower=self.adaptation)

    def _leave_one_out(self, start: Start, samples: InitialSamples) -> LeaveOneOut | None:
        """Each initial sample as the trained GP predicts it from all others; None: there is no gate, or no GP yet."""
        n, found = len(samples.targets), start.hyperparameters
        if self.gate is None or start.points is not None or found is None or not 2 <= n <= MOST_SCREENED:
            return None
        assert start.scaling is not None
        assert start.mean is not None
        gp = OnlineGP(found.kernel, noise_variance=found.noise_variance, budget=n)
        gp.fit(start.scaling.transform(samples.regressors), samples.targets - start.mean(samples.regressors))
        return gp.leave_one_out()

    def _find_outliers(self, start: Start, samples: InitialSamples) -> np.ndarray:
        """Which of the initial samples (n,) are beyond the gate if the trained GP predicts each from all others."""
        if (found := self._leave_one_out(start, samples)) is None:
            return np.zeros(len(samples.targets), dtype=bool)
        is_far: np.ndarray = found.residual**2 > float(self.gate or np.inf) ** 2 * found.variance
        return is_far & (is_far.sum() <= len(is_far) // 4)

    def _without_spikes(self, samples: InitialSamples) -> tuple[InitialSamples, dict[str, int]]:
        """Initial samples without the jumps of other signals that are taken back at once, and how many of each."""
        x, y, follows = samples.regressors, samples.targets, samples.follows
        mended = MendedRows(self.narx)
        if self.gate is None or not len(y):
            return samples, {}
        counts: dict[str, int] = {}
        mended.begin(x, y, follows)
        low, high = np.quantile(x, [0.05, 0.95], axis=0)
        limits = JUMP * np.clip(x, low, high).std(axis=0)
        for name, column in mended.newest.items():
            for row in mended.find_jumps({column: float(limits[column])}):
                before, value, after = x[[row - 1, row, min(row + 1, len(x) - 1)], column]
                if abs(after - before) < abs(after - value) and follows[min(row + 1, len(x) - 1)]:
                    counts[name] = counts.get(name, 0) + 1
                    time = row - self.narx.features[column][1]
                    mended.believe(row, mended.errors | {(name, time): value - before})
        return InitialSamples(samples.narx, mended.x, mended.y, follows), counts

    def _without(self, samples: InitialSamples, outliers: np.ndarray) -> InitialSamples:
        """Initial samples without outliers (n,), nor the rows that have their measurements among the lags."""
        left_out = outliers.copy()
        for row in np.flatnonzero(outliers).tolist():
            for after in range(row + 1, min(row + 1 + self._mended.reach, len(outliers))):
                if not samples.follows[after]:
                    break
                left_out[after] = True
        kept = np.flatnonzero(~left_out)
        follows = samples.follows[kept] & (np.diff(kept, prepend=-2) == 1)
        return InitialSamples(samples.narx, samples.regressors[kept], samples.targets[kept], follows)


def _costs(model: Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minus twice the log density (m,) of targets (m,), or of one, at regressors (m, n_features), less a constant."""
    mean, variance = model.predict(x)
    noisy = variance + model.gp.noise_variance
    costs: np.ndarray = (y - mean) ** 2 / noisy + np.log(noisy)
    return costs


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
            is_next = len(rows.sample) == 1 and rows.sample[0] == last + 1
            follows = None if is_next else np.diff(rows.sample, prepend=last) == 1
            yield Block(rows, identification.observe_many(rows.regressor, rows.target, follows=follows))
            last = rows.sample[-1]


def _columns(needed: Sequence[str], present: Sequence[str], kind: str) -> np.ndarray | slice:
    if missing := [name for name in needed if name not in present]:
        raise UserError(f"narx needs {kind} {missing}, the samples have {list(present)}; change narx or their source")
    columns = [list(present).index(name) for name in needed]
    return slice(None) if columns == list(range(len(present))) else np.array(columns, dtype=int)
