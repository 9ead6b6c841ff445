"""Lags that begin with the dead times of the inputs, of records and while a stream goes on.

`with_dead_times` moves the lags of inputs of records. `DeadTimeFollower` does the same in a stream:
first with its first samples, then whenever the hyper-parameters have been estimated again. Both
estimate the dead times with `sysid.estimate_dead_times`, and take other lags only where these
predict the output better.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np
import xarray as xr

from sysid.arrays import Array, check_whole
from sysid.data.source import make_record
from sysid.dead_time import (
    MAX_DELAY,
    MAX_EQUAL_DELAY_ERROR_RATIO,
    N_DELAY_FOLDS,
    DeadTime,
    DeadTimes,
    estimate_dead_times,
)
from sysid.errors import UserError
from sysid.gp.adaptation import MIN_GROWTH_FOR_ESTIMATE
from sysid.identification import Identification
from sysid.narx.lags import UNDELAYED_FIRST_LAG, Narx, OnMissing, Target
from sysid.narx.window import Estimates, LagWindow
from sysid.simulation.linear_models import HeldOutErrors

#: number of first samples of a stream from which dead times are estimated: delays up to `MAX_DELAY`
#: are tried in as many
N_FIRST_SAMPLES = 500

#: number of last samples of a stream that are kept to estimate from
MAX_KEPT_FOR_DEAD_TIMES = 5000

#: number of samples after which a new estimate of the hyper-parameters is noticed
CHECK_INTERVAL = 50

#: An estimate without a result is repeated when this many times the samples have come.
GROWTH_WITHOUT_RESULT = 2

#: Other lags are taken if the present ones have at least this many times their held-out RMSE.
MIN_ERROR_RATIO_FOR_OTHER_LAGS = 1.01

#: The same where only the samples since the last estimate show it, so that all others are given up.
MIN_ERROR_RATIO_FOR_A_CHANGE = 1.05

#: number of lags of the output in the linear models that are compared
N_COMPARED_OUTPUT_LAGS = 10

#: Outputs and inputs of consecutive samples, and estimates of missing outputs.
Piece = tuple[Array, Array, Estimates | None]


class DeadTimeChange(NamedTuple):
    """A change of the lags of a stream."""

    sample: int  # number of samples that had been seen
    dead_times: DeadTimes  # what was found in the last samples
    narx: Narx  # the lags from this sample on
    #: first lag of each input whose lags have changed, before and after [samples]
    first_lags: dict[str, tuple[int, int]]
    n_learned: int  # number of last samples that the new model was trained on

    def describe(self) -> str:
        """Return a sentence on what was found, and what became of the model."""
        sentences = dict(zip(self._delayed, self.dead_times.describe(), strict=False))
        found = []
        for name, (before, after) in self.first_lags.items():
            words = sentences.get(name, f"{name} has no dead time")
            found.append(f"{words} (its lags begin with {after}, before with {before})")
        return (
            f"{', '.join(found)}, as the last {self.n_learned} samples show; after "
            f"{self.sample} samples the model was trained anew on them"
        )

    @property
    def _delayed(self) -> list[str]:
        """Inputs of which `DeadTimes.describe` has a sentence."""
        return [name for name, found in self.dead_times.by_input.items() if found.shift]

    def to_dict(self) -> dict[str, object]:
        """Return the numbers for JSON."""
        return {
            "sample": self.sample,
            "samples_learned": self.n_learned,
            "first_lags": {name: list(pair) for name, pair in self.first_lags.items()},
            "dead_times": {name: found.samples for name, found in self.dead_times.by_input.items()},
        }


def with_dead_times(
    records: xr.Dataset | Sequence[xr.Dataset],
    narx: Narx,
    *,
    inputs: Sequence[str] | None = None,
    dead_times: DeadTimes | None = None,
) -> Narx:
    """Return the lags, with those of each input moved to where it begins to act.

    Lags of an input begin with its dead time or with the lag before, whichever predicts better:
    linear models with the lags of each signal, and with the squares of the inputs, predict the
    output one step ahead; each fifth of the rows is held out in turn. Lags are moved only where the
    present ones have at least 1.01 times the error.

    Parameters
    ----------
    records
        As for `Narx.dataset`.
    narx : Narx
        Its numbers of lags stay.
    inputs : sequence of str, optional
        Inputs whose lags may be moved; None: all.
    dead_times : DeadTimes, optional
        Those of the records; None: they are estimated (`estimate_dead_times`).

    Returns
    -------
    Narx
        The same one if no input has a dead time.

    Raises
    ------
    ValueError, TypeError
        As `Narx.dataset`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=1000)
    >>> y = np.zeros(1000)
    >>> for k in range(15, 1000):
    ...     y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 15]) + 0.01 * rng.normal()
    >>> record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(1000.0)})
    >>> with_dead_times(record, Narx({"y": 1}, {"u": 2})).lags
    {'y': (1,), 'u': (15, 16)}
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    if dead_times is None:
        dead_times = estimate_dead_times(several, narx.target, narx.input_names)
    moved = narx.input_names if inputs is None else inputs
    return _moved(several, narx, moved, dead_times, MIN_ERROR_RATIO_FOR_OTHER_LAGS)


def _moved(
    records: Sequence[xr.Dataset],
    narx: Narx,
    inputs: Sequence[str],
    dead_times: DeadTimes,
    min_error_ratio: float,
) -> Narx:
    """Return the lags, moved where the present ones have at least so many times the error."""
    candidates = {
        name: _first_lags(dead_times.by_input[name], _first_lag(narx, name))
        for name in inputs
        if name in dead_times.by_input and narx.lags.get(name)
    }
    if all(len(first_lags) == 1 for first_lags in candidates.values()):
        return narx
    return _choose(records, narx, candidates, min_error_ratio)


def _first_lag(narx: Narx, name: str) -> int:
    """Return the smallest lag of an input."""
    return min(narx.lags[name])


def _first_lags(found: DeadTime, present: int) -> list[int]:
    """Return the lags with which those of an input may begin, the present one first."""
    first_lags = [present]
    if found.samples is not None and found.shift:
        others = [found.samples, found.shift]
    elif present > UNDELAYED_FIRST_LAG:
        others = [UNDELAYED_FIRST_LAG]
    else:
        others = []
    return list(dict.fromkeys([*first_lags, *others]))


def _choose(
    records: Sequence[xr.Dataset],
    narx: Narx,
    candidates: Mapping[str, Sequence[int]],
    min_error_ratio: float,
) -> Narx:
    """Return the lags with the smallest held-out error, input by input in turn."""
    plain = narx.without_linear()
    errors = _LagErrors(records, plain, candidates)
    shifts = dict.fromkeys(candidates, 0)
    for name, first_lags in candidates.items():
        present = _first_lag(narx, name)
        error_by_first_lag = {
            first_lag: errors.rmse(plain.shifted(shifts | {name: first_lag - present}))
            for first_lag in first_lags
        }
        others = [first_lag for first_lag in first_lags if first_lag != present]
        if not others:
            continue
        smallest = min(error_by_first_lag[first_lag] for first_lag in others)
        largest_equal = MAX_EQUAL_DELAY_ERROR_RATIO * smallest
        best = next(lag for lag in others if error_by_first_lag[lag] <= largest_equal)
        if min_error_ratio * error_by_first_lag[best] <= error_by_first_lag[present]:
            shifts[name] = best - present
    return narx.shifted(shifts) if any(shifts.values()) else narx


def _is_no_worse(records: Sequence[xr.Dataset], narx: Narx, moved: Narx) -> bool:
    """Whether linear models with the moved lags have no larger held-out error."""
    candidates = {
        name: [_first_lag(narx, name), _first_lag(moved, name)]
        for name in narx.input_names
        if narx.lags[name]
    }
    errors = _LagErrors(records, narx.without_linear(), candidates)
    return errors.rmse(moved.without_linear()) <= errors.rmse(narx.without_linear())


class _LagErrors:
    """Held-out errors of linear models with different lags of the same signals."""

    def __init__(
        self, records: Sequence[xr.Dataset], narx: Narx, candidates: Mapping[str, Sequence[int]]
    ) -> None:
        lags = {name: set(of_input) for name, of_input in narx.lags.items()}
        lags[narx.target] |= set(range(1, 1 + N_COMPARED_OUTPUT_LAGS))
        for name, first_lags in candidates.items():
            present = _first_lag(narx, name)
            for first_lag in first_lags:
                lags[name] |= {lag + first_lag - present for lag in narx.lags[name]}
        every_lag = Narx(
            {name: sorted(lags[name]) for name in narx.output_names},
            {name: sorted(lags[name]) for name in narx.input_names},
            narx.target,
            Target.value,
            OnMissing.skip,
        )
        rows = every_lag.dataset(records)
        x = rows["regressor"].values
        self._n_features = x.shape[1]
        squares = (x - x.mean(axis=0)) ** 2
        self._columns = {feature: i for i, feature in enumerate(every_lag.features)}
        self._outputs = set(narx.output_names)
        self._target = narx.target
        self._errors = HeldOutErrors(
            np.column_stack([x, squares]), rows["target"].values, N_DELAY_FOLDS
        )

    def rmse(self, narx: Narx) -> float:
        """Return the held-out error of a linear model with these lags [unit of the output]."""
        own = [(self._target, lag) for lag in range(1, 1 + N_COMPARED_OUTPUT_LAGS)]
        features = dict.fromkeys([*own, *narx.features])
        columns = []
        for feature in features:
            columns.append(self._columns[feature])
            if feature[0] not in self._outputs:
                columns.append(self._n_features + self._columns[feature])
        return self._errors.rmse(columns)


class DeadTimeFollower:
    """Looks for the dead times of the inputs of a stream, and moves the lags to them.

    Pass it to `sysid.learn_from`. Dead times are estimated from the first `n_first` samples, and
    again after a new estimate of the hyper-parameters (`sysid.Adaptive`) if a tenth more samples
    have been seen since, from the last `max_kept` samples. As soon as at least `n_first` samples
    are new, they are looked at alone first: the plant may have changed.

    Lags are moved as by `with_dead_times`; the new samples alone must show 1.05 times the error of
    the present lags. Regressors of other lags are other features, so the model is then trained anew
    on the kept samples, or on the new ones alone if the present lags predict the others better.
    Until then the stream is predicted with the lags of before. Where no input has a dead time, the
    stream is learned bit for bit as without this object.

    A follower belongs to one identification and one stream, whose records may be several.

    Parameters
    ----------
    inputs : sequence of str, optional
        Inputs whose lags may be moved; None: all of the `Narx`.
    sampling_time : float
        Sampling time [s], for messages; nan: it is not known.
    n_first : int
        Number of first samples. Delays up to a fifth of them are tried.
    max_kept : int
        Number of last samples that are kept, at least `n_first`.

    Attributes
    ----------
    dead_times : DeadTimes or None
        The last estimate with which the lags begin; None until there are `n_first` samples.
    changes : list of DeadTimeChange
        Every change of the lags.

    Raises
    ------
    ValueError
        A number is no whole number, or too small.

    Examples
    --------
    >>> from sysid import Identification, LagWindow, Orders, Settings, learn_from
    >>> class Samples(NamedTuple):
    ...     output: Array
    ...     input: Array
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=600)
    >>> y = np.zeros(600)
    >>> for k in range(15, 600):
    ...     y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 15]) + 0.01 * rng.normal()
    >>> settings = Settings(budget=20, linear_part="none")
    >>> narx = Orders(na=1, nb=1, nk="auto").undelayed(["u"]).narx(["y"], ["u"])
    >>> identification = Identification(narx, settings)
    >>> follower = DeadTimeFollower()
    >>> blocks = learn_from(
    ...     [Samples(y[:, None], u[:, None])],
    ...     identification,
    ...     LagWindow(narx),
    ...     outputs=["y"],
    ...     inputs=["u"],
    ...     dead_times=follower,
    ... )
    >>> sum(len(block.record) for block in blocks)
    599
    >>> identification.narx.lags
    {'y': (1,), 'u': (15,)}
    >>> [change.sample for change in follower.changes]
    [500]
    """

    def __init__(
        self,
        inputs: Sequence[str] | None = None,
        *,
        sampling_time: float = nan,
        n_first: int = N_FIRST_SAMPLES,
        max_kept: int = MAX_KEPT_FOR_DEAD_TIMES,
    ) -> None:
        check_whole(n_first, 1, "DeadTimeFollower: n_first")
        check_whole(max_kept, n_first, "DeadTimeFollower: max_kept")
        self.inputs = None if inputs is None else tuple(inputs)
        self.sampling_time = sampling_time
        self.n_first = n_first
        self.max_kept = max_kept
        self.n_seen = 0
        self.dead_times: DeadTimes | None = None
        self.changes: list[DeadTimeChange] = []
        self._kept: deque[tuple[int, Array]] = deque()  # number of the record; signals (n, m)
        self._n_kept = 0
        self._n_records = 0
        self._n_looked_at = 0  # samples seen at the last estimate of the dead times
        self._n_before_newest = 0  # samples before those that are looked at alone next
        self._n_estimates = 0  # of the hyper-parameters that were noticed

    def pieces(
        self, outputs: Array, inputs: Array, estimates: Estimates | None, window: LagWindow
    ) -> Iterator[Piece]:
        """Yield the samples in pieces, after each of which `follow` is to be called, and keep them.

        Parameters
        ----------
        outputs, inputs : (n, n_y), (n, n_u) or (n_y,), (n_u,)
            Consecutive samples, or one.
        estimates : Estimates or None
            Of missing outputs.
        window : LagWindow
            It is about to store them.
        """
        if not window.n_stored:
            self._n_records += 1
        if np.ndim(outputs) == 1:
            self._keep(np.concatenate([outputs, inputs])[None])
            yield outputs, inputs, estimates
            return
        n = len(outputs)
        begin = 0
        while begin < n:
            end = min(n, begin + CHECK_INTERVAL - self.n_seen % CHECK_INTERVAL)
            piece = slice(begin, end)
            of_piece = None
            if estimates is not None:
                of_piece = Estimates(estimates.values[piece], estimates.is_informative[piece])
            self._keep(np.column_stack([outputs[piece], inputs[piece]]))
            yield outputs[piece], inputs[piece], of_piece
            begin = end

    def _keep(self, signals: Array) -> None:
        """Keep samples (n, m), and drop blocks that are not needed any more."""
        self._kept.append((self._n_records, np.array(signals, dtype=np.float64)))
        self.n_seen += len(signals)
        self._n_kept += len(signals)
        while self._n_kept - len(self._kept[0][1]) >= self.max_kept:
            self._n_kept -= len(self._kept.popleft()[1])

    def _forget_before(self, n: int) -> None:
        """Keep the last n samples only."""
        while self._n_kept > n:
            number, signals = self._kept.popleft()
            n_dropped = min(len(signals), self._n_kept - n)
            self._n_kept -= n_dropped
            if n_dropped < len(signals):
                self._kept.appendleft((number, signals[n_dropped:]))

    def follow(self, identification: Identification, window: LagWindow) -> DeadTimeChange | None:
        """Look for dead times if it is time to, and change the lags of both where needed."""
        if self.n_seen % CHECK_INTERVAL or not self._is_due(identification):
            return None
        n_newest = self.n_seen - self._n_before_newest
        n_kept = min(self._n_kept, self.max_kept)
        if not self._n_looked_at:
            self._n_before_newest = self.n_seen
        self._n_looked_at = self.n_seen
        self._n_estimates = _n_estimates(identification)
        change = None
        if self.n_first <= n_newest < n_kept:
            self._n_before_newest = self.n_seen
            change = self._look_at_newest(identification, window, n_newest, n_kept)
        if change is None:
            found = self._find(identification.narx, n_kept)
            if self.dead_times is None or self._agrees(found, identification.narx):
                self.dead_times = found
            moved = self._moved(identification.narx, found, n_kept, MIN_ERROR_RATIO_FOR_OTHER_LAGS)
            change = self._change(identification, window, found, moved, n_kept)
        if change is not None:
            self._n_before_newest = self.n_seen
            self.dead_times = change.dead_times
            self.changes.append(change)
            self._n_estimates = _n_estimates(identification)
        return change

    def _agrees(self, found: DeadTimes, narx: Narx) -> bool:
        """Whether lags begin with these dead times, so that the estimate describes the model."""
        for name, of_input in found.by_input.items():
            has_shift = of_input.samples is not None and of_input.shift > 0
            expected = [of_input.samples, of_input.shift] if has_shift else [UNDELAYED_FIRST_LAG]
            is_followed = self.inputs is None or name in self.inputs
            if is_followed and _first_lag(narx, name) not in expected:
                return False
        return True

    def _is_due(self, identification: Identification) -> bool:
        """Whether the dead times should be estimated now."""
        if not self._n_looked_at:
            if not identification.can_change_lags:
                raise UserError(
                    "DeadTimeFollower: this identification was resumed from a model whose training "
                    "is not stored with it, so that its lags cannot change; leave out dead_times, "
                    "or begin a new identification"
                )
            return self.n_seen >= self.n_first
        if _n_estimates(identification) != self._n_estimates:
            return self.n_seen >= MIN_GROWTH_FOR_ESTIMATE * self._n_looked_at
        is_known = self.dead_times is not None and bool(self.dead_times.by_input)
        return not is_known and self.n_seen >= GROWTH_WITHOUT_RESULT * self._n_looked_at

    def _signals(self, n: int, n_after: int = 0) -> list[Array]:
        """Return the last n samples before the `n_after` newest, arrays (n, m) of each record."""
        by_record: dict[int, list[Array]] = {}
        n_later = 0  # samples after the present block
        for number, signals in reversed(self._kept):
            end = len(signals) - max(0, n_after - n_later)
            begin = max(0, len(signals) - (n + n_after - n_later))
            n_later += len(signals)
            if begin < end:
                by_record.setdefault(number, []).append(signals[begin:end])
        return [np.concatenate(parts[::-1]) for parts in reversed(by_record.values())]

    def _find(self, narx: Narx, n: int) -> DeadTimes:
        """Return the dead times in the last n samples."""
        found = estimate_dead_times(
            self._records(narx, n), narx.target, narx.input_names, max_delay=MAX_DELAY
        )
        return found._replace(sampling_time=self.sampling_time, time_unit="s")

    def _records(self, narx: Narx, n: int, n_after: int = 0) -> list[xr.Dataset]:
        """Return samples as records, without pieces that are shorter than the lags."""
        records = []
        for signals in self._signals(n, n_after):
            columns = dict(zip(narx.signals, signals.T, strict=True))
            records.append(make_record(columns, name="stream", sampling_time=1.0))
        longest = max(records, key=lambda record: record.sizes["time"])
        n_needed = narx.max_lag + MAX_DELAY + 1
        long_enough = [record for record in records if record.sizes["time"] > n_needed]
        return long_enough or [longest]

    def _look_at_newest(
        self, identification: Identification, window: LagWindow, n: int, n_kept: int
    ) -> DeadTimeChange | None:
        """Move the lags to the dead times of the last n samples if these show that they are others.

        All samples before are forgotten if the present lags predict them better.
        """
        narx = identification.narx
        found = self._find(narx, n)
        moved = self._moved(narx, found, n, MIN_ERROR_RATIO_FOR_A_CHANGE)
        if moved == narx:
            return None
        if _is_no_worse(self._records(narx, n_kept - n, n), narx, moved):
            return self._change(identification, window, found, moved, n_kept)
        change = self._change(identification, window, found, moved, n)
        if change is not None:
            self._forget_before(n)
        return change

    def _moved(self, narx: Narx, found: DeadTimes, n: int, min_error_ratio: float) -> Narx:
        """Return the lags, moved to these dead times if they predict the last n samples better."""
        inputs = narx.input_names if self.inputs is None else self.inputs
        return _moved(self._records(narx, n), narx, inputs, found, min_error_ratio)

    def _change(
        self,
        identification: Identification,
        window: LagWindow,
        found: DeadTimes,
        moved: Narx,
        n: int,
    ) -> DeadTimeChange | None:
        """Train a model with other lags on the last n samples; None if they are not others."""
        narx = identification.narx
        if moved == narx:
            return None
        regressors = []
        targets = []
        follows = []
        for signals in self._signals(n):
            if len(signals) <= moved.max_lag:
                continue
            rows = moved.regressors(dict(zip(moved.signals, signals.T, strict=True)))
            regressors.append(rows.regressor)
            targets.append(rows.target)
            follows.append(np.diff(rows.sample, prepend=-2) == 1)
        n_rows = sum(map(len, targets))
        is_changed = identification.change_lags(
            moved,
            np.concatenate(regressors),
            np.concatenate(targets),
            follows=np.concatenate(follows),
            n_forgotten=self.n_seen - n_rows,
        )
        if not is_changed:
            return None
        last = self._signals(n)[-1]
        n_outputs = len(moved.output_names)
        window.change_lags(moved, last[:, :n_outputs], last[:, n_outputs:])
        first_lags = {
            name: (_first_lag(narx, name), _first_lag(moved, name))
            for name in narx.input_names
            if narx.lags[name] != moved.lags[name]
        }
        return DeadTimeChange(self.n_seen, found, moved, first_lags, n)


def _n_estimates(identification: Identification) -> int:
    """Return how often the hyper-parameters of a stream have been estimated again."""
    return len(getattr(identification.adaptation, "estimates", ()))
