"""Measurements that are not believed, and what replaces them.

A sample that may be an outlier is held back until the next one is known (`OutlierHandling`). What
turns out to be wrong is replaced among the lags of the samples after it (`MendedRows`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sysid.arrays import matrix, vector
from sysid.gp.affine_map import AffineMap
from sysid.gp.dictionary import NOT_PREDICTED, RECORD_DTYPE, UpdateReport
from sysid.model.model import Model
from sysid.narx.lags import Narx, Target, reach_of

#: blame another signal only if replacing its value raises twice the log density of the two samples by at least this
MIN_BLAME_GAIN = 2.0

#: a sample is held back where an input or another output changes by more, in its initial standard deviations
OUTLIER_JUMP_STDS = 3.0

#: what is decided of a sample once it is predicted
DECISIONS = tuple(name for name in RECORD_DTYPE.names or () if name not in ("mean", "variance"))

#: what measurements that are not believed exceed their replacement by: by signal and time, counted in rows
Errors = dict[tuple[str, int], float]


class Suspect(NamedTuple):
    """A sample that was held back as a possible outlier, until the next one tells what was
    wrong.
    """

    regressor: np.ndarray  # (1, n_features)
    target: np.ndarray  # (1,)
    before: np.ndarray | None  # (n_features,) regressor one sample earlier, if there is one
    was_outlier: bool  # whether it was beyond the gate; else another signal jumped there
    row: np.ndarray  # (1,) what was reported of it


class Accepted(NamedTuple):
    """A sample that was held back and has been learned after all."""

    report: UpdateReport  # with the prediction that was reported, and what is decided now
    # it had been taken for an outlier, but nothing was wrong with its measurement
    plant_jumped: bool


class MendedRows:
    """Rows of consecutive samples with replacements of measurements that are not believed.

    A measurement is the target of one row, and a lag of others. What is replaced is remembered from
    one block of rows to the next, as long as a row may have it among its lags.
    """

    def __init__(self, narx: Narx) -> None:
        self.columns = {feature: column for column, feature in enumerate(narx.features)}
        self.target = narx.target
        self._is_change = narx.predict is Target.change
        self.reach = reach_of(narx)
        self._longest = max(self.reach, narx.max_lag)
        #: column of the newest value of each other signal
        self.newest = {
            name: self.columns[name, min(lags)]
            for name, lags in narx.lags.items()
            if name != narx.target
        }
        self.errors: Errors = {}  # times are counted from the first row of `begin`
        self.last = np.zeros(narx.n_features)  # measured row before it

    @property
    def measured_targets(self) -> np.ndarray:
        """Targets of the rows (n,) as they were measured."""
        return self._measured[1]

    @property
    def has_replacements(self) -> bool:
        """Whether any of the rows was written anew."""
        return self.y is not self._measured[1]

    def begin(self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None) -> None:
        """Take the next rows (n, n_features), (n,); `follows` (n,): whether each comes right after
        the one before.
        """
        self.x = x
        self.y = y
        self._measured = (x, y)
        self.follows = (
            np.ones(len(y), dtype=bool) if follows is None else np.asarray(follows, dtype=bool)
        )
        if self.errors:
            self._mend(0)

    def row(self, row: int, errors: Errors) -> tuple[np.ndarray, float]:
        """Return a row (n_features,) and its target as they are if these are the errors.

        Row -1 is the last one of the block before.
        """
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
            is_beyond = (
                abs(x[0, column] - self.last[column]) > limit for column, limit in limits.items()
            )
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


class OutlierHandling:
    """Holds back samples that may be outliers, decides about them, and mends the lags of those
    after them.

    The rows of a block are taken with `begin`. The caller predicts them in the pieces that
    `next_piece` gives, and reports each with `look_at`. Before the next piece it calls `reconsider`
    if there is a `suspect`. `end` closes the block.

    Parameters
    ----------
    narx : Narx
    scaling : AffineMap
        Of the model: where another signal jumps by three of its standard deviations, a sample is
        held back.
    has_gate : bool
        Whether any sample is held back.
    n_mended : dict
        How many values of each signal but the target were replaced already.

    Attributes
    ----------
    mended : MendedRows
        Rows as they are learned.
    suspect : Suspect or None
        The last sample, if it is held back.
    n_mended : dict
        How many values of each signal but the target were replaced.
    """

    def __init__(
        self,
        narx: Narx,
        scaling: AffineMap,
        *,
        has_gate: bool,
        n_mended: dict[str, int],
    ) -> None:
        self.mended = MendedRows(narx)
        self.suspect: Suspect | None = None
        self.n_mended = n_mended
        self._features = narx.features
        self._jumps: list[int] = []
        self._limits: dict[
            int, float
        ] = {}  # of the change of a column, beyond which a sample is held back
        if has_gate and scaling.matrix is None:
            columns = [c for c in self.mended.newest.values() if c not in scaling.constant]
            self._limits = {
                column: OUTLIER_JUMP_STDS * float(scaling.scale[column]) for column in columns
            }

    def begin(self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None) -> None:
        """Take the next rows, as `MendedRows.begin`."""
        self.mended.begin(x, y, follows)
        self._jumps = [*self.mended.find_jumps(self._limits), len(y)]

    def next_piece(self, begin: int, longest: int, *, gate_is_open: bool) -> tuple[slice, bool]:
        """Rows from `begin` on that are predicted at once, and whether the only one of them is held
        back.
        """
        jump = self._jumps[bisect_left(self._jumps, begin + gate_is_open)]
        if jump == begin:
            return slice(begin, begin + 1), True
        return slice(begin, min(begin + longest, jump)), False

    def look_at(
        self,
        piece: slice,
        record: np.ndarray,
        *,
        is_held_back: bool,
        gate_is_open: bool,
    ) -> None:
        """Look at what became of the rows of a piece, which ends with the first outlier.

        The last row becomes the suspect if it was held back or is an outlier. The measurement of an
        outlier is replaced by its prediction among the lags of the rows after it, unless the gate
        is open: then the plant has changed. Where rows were mended, the record is made to report
        the change from the measured value before, not from the mended one.
        """
        mended = self.mended
        row = piece.stop - 1
        is_outlier = bool(record[-1]["outlier"])
        is_suspect = is_held_back or is_outlier
        if is_suspect:
            own = slice(row, row + 1)
            before = mended.row(row - 1, mended.errors)[0] if mended.follows[row] else None
            regressor = mended.x[own].copy()
            target = mended.y[own].copy()
        if is_outlier and gate_is_open:
            mended.believe(piece.stop, {})
        elif is_outlier:
            mended.replace(row, float(record[-1]["mean"]))
        if mended.has_replacements:
            record["mean"] += mended.measured_targets[piece] - mended.y[piece]
        if is_suspect:
            self.suspect = Suspect(regressor, target, before, is_outlier, record[-1:].copy())

    def end(self) -> None:
        """All rows are done."""
        self.mended.end()

    def reconsider(self, model: Model, row: int | None) -> Accepted | None:
        """Decide about the suspect, now that the row after it is known; None: no row comes after
        it.

        The model learns the suspect unless "its target was wrong" explains the next row best.
        Nothing may be wrong, or the newest value of another signal: then the value before takes its
        place.

        Returns
        -------
        Accepted or None
            None if the suspect stays an outlier.
        """
        suspect = self.suspect
        self.suspect = None
        if suspect is None:
            return None
        mended = self.mended
        was_outlier = suspect.was_outlier
        causes: dict[tuple[str, int], tuple[float, float]] = {}
        likeliest = 0
        if row is not None and mended.follows[row]:
            own = mended.target, row - 1
            if was_outlier and own not in mended.errors:
                return None
            believed = {key: error for key, error in mended.errors.items() if key != own}
            causes = self._find_causes(suspect, model, row)
            errors = [
                *(believed | {key: error} for key, (error, _) in causes.items()),
                mended.errors,
                believed,
            ]
            costs = _costs(
                model,
                *map(
                    np.stack,
                    zip(*(mended.row(row, each) for each in errors), strict=True),
                ),
            )
            for i, (_, gain) in enumerate(causes.values()):
                costs[i] = (
                    costs[i] - gain if costs[-1] - costs[i] + gain > MIN_BLAME_GAIN else np.inf
                )
            likeliest = int(np.argmin(costs))
            if was_outlier and likeliest == len(causes):
                return None
            mended.believe(row, errors[likeliest])
        elif was_outlier:
            return None
        x = suspect.regressor
        y = suspect.target
        is_cause = likeliest < len(causes)
        if is_cause:
            (name, _), (error, _) = list(causes.items())[likeliest]
            x[0, mended.newest[name]] -= error
            self.n_mended[name] = self.n_mended.get(name, 0) + 1
        plant_jumped = was_outlier and not is_cause
        z = model.scaling.transform(x)
        prior = model.mean(x)
        became = model.gp.believe(z, y, prior, was_outlier=was_outlier, opens=plant_jumped)
        for name in DECISIONS:
            suspect.row[name] = became[name]
        return Accepted(UpdateReport(*suspect.row[0].item()), plant_jumped)

    def _find_causes(
        self, suspect: Suspect, model: Model, row: int
    ) -> dict[tuple[str, int], tuple[float, float]]:
        """Errors of the newest values of other signals that explain the suspect, the sample before
        a row, and the gain.

        With the value before in its place the suspect is within the gate; the value after is closer
        to that, too.
        """
        if suspect.before is None:
            return {}
        mended, found, (x,), y = self.mended, {}, suspect.regressor, suspect.target
        for name, column in mended.newest.items():
            value = x[column]
            before = suspect.before[column]
            after = mended.x[row, column]
            if abs(after - before) < abs(after - value):
                both = np.stack([x, x])
                both[1, column] = before
                mean, variance = model.predict(both[1:])
                if not model.gp.is_beyond_gate(y[0] - mean[0], variance[0]):
                    as_measured, as_before = _costs(model, both, y)
                    found[name, row - 1 - self._features[column][1]] = (
                        value - before,
                        as_measured - as_before,
                    )
        return found

    def pending(self) -> dict[str, Any]:
        """Return what `recall` needs to go on, as plain content.

        This is the last row, what is replaced, and the suspect.
        """
        mended = self.mended
        suspect = self.suspect
        return {
            "last": mended.last.tolist(),
            "errors": [[*key, error] for key, error in mended.errors.items()],
            "suspect": None
            if suspect is None
            else {
                "regressor": suspect.regressor.tolist(),
                "target": suspect.target.tolist(),
                "before": None if suspect.before is None else suspect.before.tolist(),
                "outlier": suspect.was_outlier,
            },
        }

    def recall(self, pending: dict[str, Any]) -> None:
        """Go on from what `pending` gave; the prediction of the suspect is not known any more.

        Raises
        ------
        KeyError, TypeError, ValueError
            Content that does not fit the features.
        """
        n = len(self._features)
        self.mended.last = vector(pending["last"], n, "last")
        self.mended.errors = {
            (str(name), int(time)): float(error) for name, time, error in pending["errors"]
        }
        if (suspect := pending["suspect"]) is not None:
            before = None if suspect["before"] is None else vector(suspect["before"], n, "before")
            row = NOT_PREDICTED.copy()
            row["outlier"] = suspect["outlier"]
            regressor = matrix(suspect["regressor"], n, "regressor")
            target = vector(suspect["target"], 1, "target")
            self.suspect = Suspect(regressor, target, before, bool(row["outlier"][0]), row)


def _costs(model: Model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minus twice the log density (m,) of targets (m,), or of one, at regressors (m, n_features),
    less a constant.
    """
    mean, variance = model.predict(x)
    noisy = variance + model.gp.noise_variance
    costs: np.ndarray = (y - mean) ** 2 / noisy + np.log(noisy)
    return costs
