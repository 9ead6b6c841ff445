"""Outliers: measurements that are rejected, and the values that replace them.

A sample that may be an outlier is held back until the next one is known (`OutlierHandling`). A
measurement that turns out to be wrong is replaced among the lags of later samples (`MendedRows`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from sysid.arrays import matrix, vector
from sysid.gp import block_learning, outlier_decisions
from sysid.gp.affine_map import AffineMap
from sysid.gp.block_learning import Block, Explained, Jumps
from sysid.gp.dictionary import NOT_PREDICTED, UpdateReport
from sysid.gp.mean import constant_of
from sysid.gp.online import OnlineGP
from sysid.gp.outlier_decisions import (
    Causes,
    Features,
    Lags,
    MendedBlock,
    NextRow,
    OpeningState,
    Rows,
    begin_comparison,
    begin_opening,
    best_explanation,
    compares_next,
    density_cost,
    finish_comparison,
    forget_errors,
    is_closer,
    jumps_back,
    replace_lags,
    replace_lags_of_rows,
    replace_target,
    replacement_error,
    rows_of_opening,
    set_predictions,
    take_predictions,
    takes_place,
)
from sysid.model.model import Model, Prediction
from sysid.narx.lags import Narx, Target, reach_of
from sysid.narx.succession import Succession

#: Hold back a sample if an input or another output jumps by more than this, in its initial standard
#: deviations.
OUTLIER_JUMP_STDS = 3.0

#: fields of a report that are its prediction; the others are decided afterwards
PREDICTION_FIELDS = ("mean", "variance")

#: a measurement: its signal, and its time in rows
Cell: TypeAlias = tuple[str, int]

#: smallest and largest value of an output
Range: TypeAlias = tuple[float, float]

#: the range of an output that is not known; no value extends it
UNKNOWN_RANGE: Range = (-np.inf, np.inf)

#: the range of no values; the first one becomes the range
NO_VALUES: Range = (np.inf, -np.inf)

#: what stands for `UNKNOWN_RANGE` in the state of `OutlierHandling.write_pending`
UNKNOWN = "unknown"

#: no row at which another signal jumps
NO_JUMPS = Jumps(
    np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.int64), np.zeros(0), np.zeros(0)
)

#: a jump in a row that comes alone: the next row, which shows if it is reversed, is not known
LONE_JUMP = Jumps(np.zeros(1, dtype=np.int64), np.full((1, 2), -1), np.full(1, np.nan), np.zeros(1))

#: positions in `OpeningState.numbers` of rows
ROWS_OF_OPENING = (
    outlier_decisions.NEXT_ROW,
    outlier_decisions.CONFIRMED_ROW,
    outlier_decisions.RETURNED_ROW,
    outlier_decisions.END_ROW,
)

#: rejected measurements, each with its measured value minus its replacement
Errors: TypeAlias = dict[Cell, float]


class BothPredictions(NamedTuple):
    """Predictions of a row from its measured lags and from those with replacements, in this order.

    They are the same if nothing is replaced.
    """

    means: tuple[float, float]
    variances: tuple[float, float]  # latent


class Suspect(NamedTuple):
    """A sample that is held back as a possible outlier until the next one is known."""

    regressor: np.ndarray  # (1, n_features)
    target: np.ndarray  # (1,)
    before: np.ndarray | None  # (n_features,) regressor one sample earlier, if there is one
    was_outlier: bool  # True: it was beyond the gate; False: another signal jumped
    row: np.ndarray  # (1,) its report


class Accepted(NamedTuple):
    """A sample that was held back and has now been learned."""

    report: UpdateReport  # with the prediction that was reported before, and the new decisions
    plant_jumped: bool  # whether it was beyond the gate although its measurements were right
    opening: Opening | None  # of the gate, if it opens with the sample


class Cause(NamedTuple):
    """A wrong value of another signal that would explain a suspect."""

    error: float  # measured value minus the value one sample earlier
    gain: float  # rise of twice the log density of the suspect if that value replaces it
    measured_error: float  # error of the suspect as it was measured
    expected_square: float  # expected square of its error if that value replaces it


class MendedRows:
    """Rows of consecutive samples in which rejected measurements are replaced.

    A measurement is the target of one row and a lag of later ones. The replacements are remembered
    from one block of rows to the next, as long as a row may have the measurement among its lags.

    Attributes
    ----------
    learned : (float, float)
        Smallest and largest value of the target output that the model has learned (`learn`). A
        prediction goes beyond it by at most `MAX_BEYOND_LEARNED` of it where it replaces a
        measurement: several in a row are fed back, and may run away. It goes anywhere while the
        range is `UNKNOWN_RANGE`: the samples that a model learns from then on are only some of all.
    n_clipped : int
        Number of predictions that went beyond it.
    """

    def __init__(self, narx: Narx) -> None:
        #: columns of each signal and lag: two if the linear part has it, too
        self.columns: dict[tuple[str, int], list[int]] = {}
        for column, feature in enumerate(narx.features):
            self.columns.setdefault(feature, []).append(column)
        self.target = narx.target
        self._features = narx.features
        self._is_change = narx.predict is Target.change
        self.reach = reach_of(narx)
        self._max_lag = max(self.reach, narx.max_lag)
        #: column of the newest value of each signal but the target
        self.newest = {
            name: self.columns[name, min(lags)][0]
            for name, lags in narx.lags.items()
            if name != narx.target
        }
        self._narx = narx
        self._succession = Succession(narx)
        #: positions of the signals in `lags`
        self.positions = {name: i for i, name in enumerate(narx.signals)}
        self.errors: Errors = {}  # times are counted from the first row of `begin`
        self.learned = NO_VALUES
        self.n_clipped = 0
        #: column of the output before the target; None if the target is a change without this lag
        self._previous = self.columns.get((narx.target, 1), [None])[0]
        self._has_values = not self._is_change or self._previous is not None
        self.lags = self._find_lags()
        #: measured regressor (n_features,) one sample before that row; each list is new
        self.last: list[float] = [0.0] * narx.n_features
        self.last_target = np.nan  # its measured target; nan: not known
        self.n_skipped = 0  # samples without a row since then, in the same record
        self.begin(np.zeros((0, narx.n_features)), np.zeros(0), None)

    def _find_lags(self) -> Lags:
        """Return where the lags are, in the form that the compiled functions take."""
        columns = np.full((len(self.positions), self._max_lag + 1, 2), -1)
        for (name, lag), found in self.columns.items():
            columns[self.positions[name], lag, : len(found)] = found
        previous = -1 if self._previous is None else self._previous
        target = self.positions[self.target]
        others = np.zeros((len(self.newest), 2), dtype=np.int64)
        newest = np.full((len(self.newest), 2), -1)
        for i, (name, column) in enumerate(self.newest.items()):
            others[i] = self.positions[name], self._features[column][1]
            found = self.columns_of_newest(name)
            newest[i, : len(found)] = found
        return Lags(columns, target, previous, self._is_change, self._max_lag, others, newest)

    def columns_of_newest(self, name: str) -> list[int]:
        """Return all columns of the newest value of a signal: two if it is in the linear part."""
        return self.columns[self._features[self.newest[name]]]

    @property
    def measured_regressors(self) -> np.ndarray:
        """Regressors of the rows (n, n_features) as they were measured."""
        return self._measured[0]

    @property
    def measured_targets(self) -> np.ndarray:
        """Targets of the rows (n,) as they were measured."""
        return self._measured[1]

    @property
    def has_mended_targets(self) -> bool:
        """Whether the target of any row may have been mended: it is a change, and rows were."""
        return self._is_change and self.y is not self._measured[1]

    def begin(self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None) -> None:
        """Take the next rows (n, n_features) and targets (n,).

        `follows` (n,) states whether each row comes right after the one before; None: all do.
        """
        self.x = x
        self.y = y
        self._measured = (x, y)
        if follows is None:
            self.follows = np.ones(len(y), dtype=bool)
        else:
            self.follows = np.array(follows, dtype=bool)
        #: whether each row belongs to the same record as the one before: measurements that are
        #: replaced are replaced among its lags
        self.continues = self.follows.copy()
        #: the rows as they were measured, in the form that the compiled functions take
        self.measured_rows = Rows(x, y, self.continues, self.follows)
        if self.n_skipped and len(y):
            self.follows[0] = False
            self.n_skipped = 0
        if self.errors and len(y):
            if self.continues[0]:
                self._mend(0)
            else:
                self.errors = {}

    def skip(self, n: int) -> None:
        """Pass over n samples of the same record that have no row."""
        self.n_skipped += n
        self.errors = _counted_from(n, self.without_old(self.errors, n))

    def follows_last(self, x: np.ndarray) -> bool:
        """Return whether a row (n_features,) may come after the last one.

        Then its lags are those of the last row one sample later, or as many more as were skipped.
        """
        succession = self._succession
        if self.n_skipped:
            succession = Succession(self._narx, 1 + self.n_skipped)
        return succession.of_pair(self.last, self.last_target, x)

    def follow_each_other(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return whether each row but the first of (n, n_features) may follow the one before it."""
        return self._succession.of_rows(x, y)

    def ends_with(self, past: Mapping[str, np.ndarray]) -> bool:
        """Return whether the last row is that of the newest of the last samples (k,) of a run.

        If not, these samples belong to another run. Samples that were skipped are passed over.
        """
        position = -1 - self.n_skipped
        values = []
        expected = []
        for column, (name, lag) in enumerate(self._features):
            if lag - position <= len(past[name]):
                values.append(past[name][position - lag])
                expected.append(self.last[column])
        return bool(np.array_equal(values, expected))

    def row(self, row: int, errors: Errors) -> tuple[np.ndarray, float]:
        """Return a row (n_features,) and its target with these errors subtracted.

        Row -1 is the last one of the block before; its target is nan.
        """
        if not errors:
            if row < 0:
                return np.array(self.last), np.nan
            return self._measured[0][row].copy(), float(self._measured[1][row])
        rows = self.measured_rows
        if row < 0:
            yes = np.array([True])
            rows = Rows(np.array([self.last]), np.array([np.nan]), yes, yes)
            errors = _counted_from(row, errors)
            row = 0
        x = np.empty(len(self.last))
        y = replace_lags(self.lags, rows, row, *self.cells_of(errors), len(errors), x)
        return x, y

    def mend_next(self, x: np.ndarray, y: float) -> tuple[np.ndarray, float]:
        """Return the row (n_features,) after the last block, and its target, mended."""
        yes = np.array([True])
        rows = Rows(x[np.newaxis], np.array([y]), yes, yes)
        mended = np.empty(len(x))
        cells, errors = self.cells_of(self.errors)
        target = replace_lags(self.lags, rows, 0, cells, errors, len(errors), mended)
        return mended, float(target)

    def cells_of(self, errors: Errors, n_free: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the signals and rows (c, 2) of errors, and the errors (c,); the last are free."""
        n = len(errors) + n_free
        cells = np.zeros((n, 2), dtype=np.int64)
        values = np.zeros(n)
        for i, ((name, time), error) in enumerate(errors.items()):
            cells[i, 0] = self.positions[name]
            cells[i, 1] = time
            values[i] = error
        return cells, values

    def find_jumps(self, limits: dict[int, float]) -> list[int]:
        """Return the rows where a column changes by more than its limit from the row before.

        `limits` has the limit of each column that is tested.
        """
        x = self._measured[0]
        if len(x) == 1:
            for column, limit in limits.items():
                if abs(x.item(0, column) - self.last[column]) > limit and self.follows[0]:
                    return [0]
            return []
        columns = list(limits)
        last = np.array([self.last])
        change = abs(np.diff(x[:, columns], axis=0, prepend=last[:, columns]))
        has_jump = (change > list(limits.values())).any(axis=1)
        return np.flatnonzero(has_jump & self.follows).tolist()

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """Extend the range of the learned outputs by those of rows (n, n_features), (n,)."""
        if not self._has_values or not len(y):
            return
        if len(y) == 1:  # a loop passes single samples, whose minimum takes longer than they do
            value = float(y[0]) + (float(x[0, self._previous]) if self._is_change else 0.0)
            low, high = self.learned
            if low <= value <= high:
                return
            self.learned = union(self.learned, (value, value))
            return
        values = self._values(x, y)
        self.learned = union(self.learned, (float(values.min()), float(values.max())))

    def _values(self, x: np.ndarray, y: ArrayLike) -> np.ndarray:
        """Return the outputs (n,) of rows (n, n_features) with targets (n,), or that of one row."""
        return np.asarray(y + x[..., self._previous] if self._is_change else y)

    def output_before(self, row: int) -> float:
        """Return the measured output of the sample before a row; nan if its row has none."""
        if not self._has_values:
            return np.nan
        before = row - 1
        x = self.measured_regressors[before] if before >= 0 else np.array(self.last)
        y = float(self.measured_targets[before]) if before >= 0 else self.last_target
        return float(self._values(x, y))

    def error_of(self, x: np.ndarray, y: float, mean: float, learned: Range) -> tuple[float, bool]:
        """Return by how much the target of a row (n_features,) exceeds what takes its place.

        This is its predicted mean, unless that is too far beyond the range of the outputs learned
        so far. The second value states whether it is.
        """
        error, is_cut = replacement_error(self.lags, *learned, x, y, mean)
        return error, bool(is_cut)

    def replace_target(self, row: int, mean: float) -> None:
        """Replace the target of a row by its predicted mean, in the rows that follow."""
        block = self.compiled_block()
        replace_target(self.lags, self.measured_rows, block, row, mean)
        self.take_block(block)

    def compiled_block(self, n_more: int = 0) -> MendedBlock:
        """Return the rows and the errors in the form that the compiled functions take.

        There is room for n further errors, which are not dropped.
        """
        self._own_rows()
        cells, errors = self.cells_of(self.errors, self.n_free_cells + n_more)
        numbers = np.array([len(self.errors), 0])
        return MendedBlock(numbers, cells, errors, np.array(self.learned), self.x, self.y)

    def _own_rows(self) -> None:
        """Copy the rows before they are mended, unless this was done."""
        if self.x is self._measured[0]:
            self.x = self.x.copy()
            self.y = self.y.copy()

    @property
    def n_free_cells(self) -> int:
        """Largest number of errors that compiled functions add, until they drop old ones."""
        return (self._max_lag + 4) * len(self.positions)

    def take_block(self, block: MendedBlock) -> None:
        """Take the errors and the range that a compiled function has left in a block."""
        n = int(block.numbers[outlier_decisions.N_REJECTED])
        self.errors = self.errors_of(block.cells[:n], block.errors[:n])
        self.n_clipped += int(block.numbers[outlier_decisions.N_CUT])
        low, high = block.learned.tolist()
        self.learned = (low, high)

    def errors_of(self, cells: np.ndarray, values: np.ndarray) -> Errors:
        """Return the errors (c,) of measurements given by signal and row (c, 2)."""
        names = list(self.positions)
        pairs = zip(cells.tolist(), values.tolist(), strict=True)
        return {(names[i], time): error for (i, time), error in pairs}

    def set_errors(self, row: int, errors: Errors) -> None:
        """Replace exactly the measurements of these errors, in the rows from `row` on."""
        if errors != self.errors:
            self.errors = errors
            self._mend(row)

    def end(self) -> None:
        """End the block: count the times of the errors from the next row on."""
        n = len(self.y)
        if n:
            self.last = self._measured[0][-1].tolist()
            self.last_target = float(self._measured[1][-1])
            if self.errors:
                if len(self.without_old(self.errors, n)) < len(self.errors) or not all(
                    self.continues
                ):
                    self._forget(n)
                self.errors = _counted_from(n, self.errors)

    def _forget(self, row: int) -> None:
        """Keep only the errors that this row, or the one before it, may have among its lags."""
        block = self.compiled_block()
        forget_errors(self.lags, self.measured_rows, block, row)
        self.take_block(block)

    def without_old(self, errors: Errors, row: int) -> Errors:
        """Return the errors that may be among the lags of this row, or of the one before it."""
        oldest = row - self._max_lag - 1
        return {cell: error for cell, error in errors.items() if cell[1] >= oldest}

    def _mend(self, begin: int) -> None:
        """Recompute the rows from `begin` on that have earlier measurements among their lags."""
        if not self.errors and begin == 0:
            self.x, self.y = self._measured
            return
        self._own_rows()
        cells, errors = self.cells_of(self.errors)
        replace_lags_of_rows(
            self.lags, self.measured_rows, begin, cells, errors, len(errors), self.x, self.y
        )


class Opening:
    """The time after the gate has opened, in which it may turn out that no plant has changed.

    Several wrong measurements in a row look like a plant that has changed: the gate opens, and they
    are learned. A copy of the model from before predicts the samples that follow, on the one hand
    from the measured lags, on the other hand with the wrong measurements replaced by its own
    predictions. If the latter predicts a sample far better, and the next ones well, too, the plant
    of before has returned: it was a burst of wrong measurements, and what was learned since the
    gate opened is forgotten (`has_returned`). If the copy predicts some samples from the measured
    lags, and is sure of it, the measurements seem right (`is_confirmed`). An offset of the sensor
    may look like that, too: the copy is kept as long as a burst may last, and compares again where
    the output jumps back. If it does not, the opening is over (`is_over`). Measurements far outside
    of the range learned need samples that have them among their lags. If the copy predicts samples
    only once none of these is among the lags, the plant of before has returned, too: the end of a
    burst does not show where the plant jumps itself.

    The plant that returns after a change of the innovation that an additive outlier is: see Chen
    and Liu, Joint estimation of model parameters and outlier effects in time series, Journal of the
    American Statistical Association 88 (1993).

    Parameters
    ----------
    mended : MendedRows
    model : Model
        Model at the opening, whose online GP goes on learning.
    gp : OnlineGP
        Online GP before it learned the first of these samples.
    state : OpeningState
        State of the opening, which goes on changing.
    n_clipped_variances : int
        Number of variances that were clipped at 0 in the predictions so far.
    features : Features
        Scaling and mean of the model.

    Attributes
    ----------
    is_confirmed : bool
        Whether samples have confirmed the measurements since the opening. Another opening may take
        the place of this one.
    is_over : bool
        Whether the plant has changed, or may have.
    has_returned : bool
        Whether the plant of before has returned.
    gp : OnlineGP
    state : OpeningState
        Its memory is used by the next opening once this one has ended.
    has_copy : bool
        Whether `gp` is a copy that nobody else uses (`keep`).
    follower : object
        Copy of the object that re-estimates the hyper-parameters; None: there is none.
    n_clipped_variances : int
        Number of variances of its predictions that were negative and were clipped at 0.
    """

    def __init__(
        self,
        mended: MendedRows,
        model: Model,
        gp: OnlineGP,
        state: OpeningState,
        features: Features,
        n_clipped_variances: int = 0,
    ) -> None:
        self.model = model
        self.gp = gp
        self.follower: Any = None
        self.has_copy = False
        self.n_clipped_variances = n_clipped_variances
        self._mended = mended
        self._features = features
        self.state = state
        #: regressors (k, n_features) and targets (k,) of rows of earlier blocks that are not
        #: compared yet: the rows of the state are counted from the first of them
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._n_waiting = 0  # number of these rows
        #: whether nothing is left to be compared in the block
        self._is_searched = False
        self._read_decision()

    def _read_decision(self) -> None:
        """Take over the decision from the state."""
        numbers = self.state.numbers.tolist()
        self.is_confirmed = bool(numbers[outlier_decisions.IS_CONFIRMED])
        self.is_over = bool(numbers[outlier_decisions.IS_OVER])
        self.has_returned = bool(numbers[outlier_decisions.HAS_RETURNED])

    def keep(self, copied: OnlineGP) -> None:
        """Go on with a copy of the online GP, which is about to learn."""
        copied.n_clipped_predictions += self.n_clipped_variances
        self.n_clipped_variances = 0
        self.gp = copied
        self.has_copy = True

    def _number(self, position: int) -> int:
        return int(self.state.numbers[position])

    @property
    def n_samples(self) -> int:
        """Number of samples since the opening, up to the decision."""
        return self._number(outlier_decisions.N_SAMPLES)

    @property
    def n_clipped(self) -> int:
        """Number of replacements that were cut to the range of the learned outputs."""
        return self._number(outlier_decisions.N_OUT_OF_RANGE)

    @property
    def learned(self) -> Range:
        """Range of the outputs that the model has learned."""
        low, high = self.state.learned.tolist()
        return low, high

    @property
    def errors(self) -> Errors:
        """Errors of replaced measurements. Their times are counted in the block."""
        n = self._number(outlier_decisions.N_ERRORS_REPLACED)
        errors = self._mended.errors_of(self.state.cells[:n], self.state.errors[:n])
        return _counted_from(self._n_waiting, errors)

    @property
    def returned(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows (1, n_features) and targets (1,) since the plant seemed to return."""
        x = self.state.returned_regressors
        y = self.state.returned_targets
        n = self._number(outlier_decisions.N_RETURNED)
        return [(x[i : i + 1], y[i : i + 1]) for i in range(n)]

    @property
    def is_decided(self) -> bool:
        """Whether it is known if the plant has changed."""
        return self.is_over or self.has_returned

    def has_ended(self, row: int) -> bool:
        """Return whether the opening is over at a row of the block."""
        return self.is_over and self.row_of_decision(row) <= row

    def row_of_decision(self, n_rows: int) -> int:
        """Return the row of the block that decides; the number of rows if none of them does."""
        if self.is_over:
            return self._number(outlier_decisions.END_ROW) - self._n_waiting
        if self.has_returned:
            return self._number(outlier_decisions.NEXT_ROW) - 1 - self._n_waiting
        return n_rows

    def rows(self, n_rows: int) -> tuple[int, int, int]:
        """Return the rows of the opening in the block; see `rows_of_opening`."""
        n_waiting = self._n_waiting
        after = n_waiting + n_rows + 1  # the row after the block may begin another opening
        confirmed, returned, end = rows_of_opening(self.state, after)
        return confirmed - n_waiting, returned - n_waiting, end - n_waiting

    @property
    def jump(self) -> float:
        """Error of the measurement at which the gate opened."""
        return self.state.jump.item(0)

    def skip(self, n: int) -> None:
        """Pass over n samples of the same record that have no row.

        If the measurements are confirmed, a jump back would not be seen: the opening is over.
        """
        if self.is_confirmed:
            self.state.numbers[outlier_decisions.IS_OVER] = 1
            self.state.numbers[outlier_decisions.END_ROW] = self._n_waiting
            self._read_decision()
            return
        kept = self._mended.without_old(self.errors, n)
        cells, values = self._mended.cells_of(_counted_from(n, kept))
        self.state.cells[: len(kept)] = cells
        self.state.errors[: len(kept)] = values
        self.state.numbers[outlier_decisions.N_ERRORS_REPLACED] = len(kept)

    def begin_block(self) -> None:
        """Go on with the rows of a new block."""
        self._is_searched = False

    def end_block(self) -> None:
        """Count the rows of the state from the first row of the next block on.

        Rows that are not compared yet wait for those of the next block.
        """
        rows = self._mended.measured_rows
        n_rows = len(rows.targets)
        n_gone = self.state.numbers.item(outlier_decisions.NEXT_ROW)
        if self.is_decided:
            n_gone = self._n_waiting + n_rows
        begin = 0
        if n_gone:  # then none waits that came before this block
            begin = n_gone - self._n_waiting
            self._waiting = []
            self._n_waiting = 0
            self.state.cells[:, 1] -= n_gone
            for position in ROWS_OF_OPENING:
                self.state.numbers[position] -= n_gone
        if begin < n_rows:
            self._waiting.append((rows.regressors[begin:].copy(), rows.targets[begin:].copy()))
            self._n_waiting += n_rows - begin

    def _rows_to_compare(self) -> Rows:
        """Return the rows that wait and those of the block, as they were measured."""
        rows = self._mended.measured_rows
        if not self._waiting:
            return rows
        regressors = np.concatenate([*(x for x, _ in self._waiting), rows.regressors])
        targets = np.concatenate([*(y for _, y in self._waiting), rows.targets])
        yes = np.ones(self._n_waiting, dtype=bool)
        continues = np.concatenate([yes, rows.continues])
        follows = np.concatenate([yes, rows.follows])
        return Rows(regressors, targets, continues, follows)

    def _row_waits(self) -> bool:
        """Return whether the only row of a block waits for the next one.

        It does after samples have confirmed the measurements, unless the output jumps back.
        """
        numbers = self.state.numbers
        rows = self._mended.measured_rows
        if not self.is_confirmed or len(rows.targets) > 1 or not rows.continues.item(0):
            return False
        n_samples = numbers.item(outlier_decisions.N_SAMPLES) + self._n_waiting + 1
        if n_samples > outlier_decisions.MAX_BURST_SAMPLES:
            return False
        if numbers.item(outlier_decisions.N_RETURNED):
            return False
        x = rows.regressors[0]
        y = rows.targets.item(0)
        return not jumps_back(self._mended.lags, x, y, self.jump)

    def look_ahead(self) -> None:
        """Compare the measured rows that come next, until one of them decides.

        What the model learns meanwhile does not matter: only the model from before predicts them.
        """
        if self.is_decided or self._is_searched:
            return
        self._is_searched = True
        if self._row_waits():
            return
        mended = self._mended
        rows = self._rows_to_compare()
        gp = self.gp
        if self._features.has_constant_mean:
            n_clipped = gp.look_ahead(self._features, mended.lags, rows, self.state)
            self._read_decision()
            if n_clipped and self.has_copy:
                gp.n_clipped_predictions += n_clipped
            elif n_clipped:
                self.n_clipped_variances += n_clipped
            return
        state = self.state
        model_before = replace(self.model, gp=gp)
        while compares_next(mended.lags, rows, state):
            n = begin_comparison(mended.lags, rows, state)
            if n > 0:
                state.mean[:n], state.variance[:n] = model_before.predict_few(
                    state.regressors[:n], is_checked=True
                )
                set_predictions(state, n, 0.0)
            if n >= 0:
                finish_comparison(*gp.gate_numbers, mended.lags, rows, state)
            state.numbers[outlier_decisions.NEXT_ROW] += 1
        self._read_decision()


class Outcome(NamedTuple):
    """How far the compiled loop has learned a block (`OutlierHandling.learn_in_block`)."""

    row: int  # the row that comes next
    reason: int  # why it ended: see `sysid.gp.block_learning`
    #: record of the rows up to there, before the means are corrected to the measured targets
    predicted: np.ndarray
    n_clipped_ahead: int  # variances of its last look ahead that were clipped at 0


class OutlierHandling:
    """Holds back possible outliers, decides about them, and mends the lags of later samples.

    `begin` takes the rows of a block. The caller learns them by `learn_in_block`, which decides
    about the samples that are held back. Or it learns them in pieces that end with an outlier, or
    with a row that `holds_back` names, and passes the record of each piece to `take_record`. If
    there is a `suspect` then, the caller calls `reconsider` before the next piece. `end` closes the
    block.

    Parameters
    ----------
    model : Model
        A sample is held back where another signal jumps by more than `OUTLIER_JUMP_STDS` times its
        standard deviation in the scaling of the model.
    has_gate : bool
        Whether samples are held back at all.
    n_mended : dict
        Number of values of each signal but the target that were replaced already.

    Attributes
    ----------
    mended : MendedRows
        Rows as they are learned.
    suspect : Suspect or None
        The last sample, if it is held back.
    opening : Opening or None
        The time since the gate opened, until it is known whether the plant has changed.
    n_mended : dict
        Number of values of each signal but the target that were replaced.
    """

    def __init__(
        self,
        model: Model,
        *,
        has_gate: bool,
        n_mended: dict[str, int],
    ) -> None:
        narx = model.narx
        self.mended = MendedRows(narx)
        self.suspect: Suspect | None = None
        self.opening: Opening | None = None
        self._unused: OnlineGP | None = None  # its memory is used by the next copy
        self.n_mended = n_mended
        self._features = narx.features
        self._has_gate = has_gate
        #: rows where another signal jumps, and what may be wrong there
        self._jumps = NO_JUMPS
        #: largest change of a column at which a sample is not held back
        self._jump_limits: dict[int, float] = {}
        self._take_model(model)
        self._next_row = NextRow(
            np.empty((2, narx.n_features)),
            np.empty((2, model.gp.n_features)),
            np.empty(2),
            np.empty(2),
            np.zeros(1, dtype=np.int64),
        )
        #: state of the next opening; None: the last one has kept it
        self._free_opening_state: OpeningState | None = None
        #: which rows of the block are learned later than they are predicted (`Block`)
        self._learned_later = np.zeros(0, dtype=np.int64)
        #: whether a sample was held back so far: the loop that decides about them is compiled then
        self._has_held_back = False

    def _take_model(self, model: Model) -> None:
        """Take the scaling and the mean of a model."""
        self._compiled_features = compiled_features(model)
        self._limit_jumps(model.scaling)

    def _limit_jumps(self, scaling: AffineMap) -> None:
        """Set the largest changes of the columns at which a sample is not held back."""
        self._jump_limits = {}
        if not self._has_gate or scaling.matrix is not None:
            return
        for column in self.mended.newest.values():
            if column not in scaling.constant:
                std = float(scaling.scale[column])
                self._jump_limits[column] = OUTLIER_JUMP_STDS * std

    def restart(self, model: Model, row: int) -> None:
        """Continue with a new model from a row on.

        No sample is held back any more, and no measurement is replaced: the new model has learned
        the samples as they were measured.
        """
        self.suspect = None
        self.opening = None
        self.mended.set_errors(row, {})
        self._take_model(model)
        self._find_jumps()

    def undo(self, model: Model, row: int) -> None:
        """Continue with the model from before the opening, whose errors are replaced from `row` on.

        The measurements of the burst are replaced among the lags.
        """
        assert self.opening is not None
        errors = self.opening.errors
        self.mended.learned = self.opening.learned
        self.mended.n_clipped += self.opening.n_clipped
        self.opening = None
        self.suspect = None
        self.mended.set_errors(row, errors)
        self._take_model(model)
        self._find_jumps()

    def _find_jumps(self) -> None:
        """Find the rows of the block where another signal jumps, and what may be wrong there."""
        mended = self.mended
        found = mended.find_jumps(self._jump_limits)
        if not found:
            self._jumps = NO_JUMPS
            return
        if len(mended.y) == 1:
            self._jumps = LONE_JUMP
            return
        entries: list[tuple[int, list[int], float]] = []
        rows = np.array([row for row in found if row < len(mended.y) - 1], dtype=int)
        for name, column in mended.newest.items():
            columns = mended.columns_of_newest(name)
            values = mended.measured_regressors[:, column]
            before = np.where(rows > 0, values[rows - 1], mended.last[column])
            is_reversed = is_closer(values[rows + 1], before, values[rows])
            for i in np.flatnonzero(is_reversed & mended.follows[rows + 1]).tolist():
                entries.append((int(rows[i]), columns, float(before[i])))
        explained = {row for row, _, _ in entries}
        entries += [(row, [], np.nan) for row in found if row not in explained]
        entries.sort(key=lambda entry: entry[0])
        self._jumps = Jumps(
            np.array([row for row, _, _ in entries]),
            np.array([[*columns, -1, -1][:2] for _, columns, _ in entries]),
            np.array([before for _, _, before in entries]),
            np.zeros(len(entries)),
        )

    def begin(self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None) -> None:
        """Take the next rows, as `MendedRows.begin`.

        What is pending from a row does not touch one whose lags show that it cannot follow it.
        """
        follows = np.ones(len(y), dtype=bool) if follows is None else np.array(follows, dtype=bool)
        is_pending = self.suspect is not None or self.opening is not None or self.mended.errors
        if is_pending and len(y) and not self.mended.follows_last(x[0]):
            follows[0] = False
        if len(y) > 1:
            follows[1:] &= self.mended.follow_each_other(x, y)
        self.mended.begin(x, y, follows)
        if self.opening is not None:
            self.opening.begin_block()
        self._find_jumps()
        if len(y) > 1:
            self._learned_later = np.zeros(len(y), dtype=np.int64)

    def holds_back(self, row: int, *, gate_is_open: bool) -> bool:
        """Return whether a row that is passed alone is held back, whatever its target is.

        It is if another signal jumps there, unless the gate is open, which lets the row pass.
        """
        return not gate_is_open and len(self._jumps.rows) > 0 and row in self._jumps.rows

    # --- rows of a block --------------------------------------------------------------------------

    @property
    def has_constant_mean(self) -> bool:
        """Whether the mean of the model is a constant."""
        return self._compiled_features.has_constant_mean

    def block_may_decide(self, row: int) -> bool:
        """Return whether `learn_in_block` can go on at a row of the block.

        The sample before a suspect must be in this block, too. `learn_in_block` is not called
        before there is anything to decide about, so that it is compiled only if it is needed.
        """
        mended = self.mended
        if not self._has_gate or len(mended.y) == 1:
            return False
        suspect = self.suspect
        if suspect is None:
            return self._has_held_back or bool(len(self._jumps.rows))
        is_replaced = (mended.target, row - 1) in mended.errors
        return self.has_constant_mean and row > 1 and is_replaced == suspect.was_outlier

    def learn_in_block(self, model: Model, begin: int, end: int, record: np.ndarray) -> Outcome:
        """Predict and learn the rows from `begin` to `end`, as far as compiled code decides.

        The record (n,) is that of the block. A suspect may be there before and afterwards. If the
        last row opens the gate, the caller passes it to `take_record`.
        """
        mended = self.mended
        block = self._new_block(begin, end, record)
        opening = self.opening
        numbers = block.numbers
        if opening is not None:
            confirmed, returned, ended = opening.rows(len(mended.y))
            numbers[block_learning.CONFIRMED] = confirmed
            numbers[block_learning.RETURNED] = returned
            numbers[block_learning.ENDED] = ended
            block.jump[0] = opening.jump
        numbers[block_learning.IS_UNDECIDED] = opening is not None and not opening.is_over
        if self.suspect is not None:
            numbers[block_learning.IS_HELD_BACK] = 1
            numbers[block_learning.WAS_OUTLIER] = self.suspect.was_outlier
        self.suspect = None
        features = self._compiled_features
        if not features.has_constant_mean:
            _compute_prior_means(model, block)
        opening_state = self._opening_state(
            len(mended.errors) + len(self._jumps.rows) + 2 * mended.n_free_cells
        )
        reason = model.gp.learn_block(features, mended.lags, block, opening_state)
        mended.take_block(block.mended)
        for name, position in mended.positions.items():
            if block.n_mended[position]:
                n_before = self.n_mended.get(name, 0)
                self.n_mended[name] = n_before + int(block.n_mended[position])
        row = int(numbers[block_learning.ROW])
        has_opened = bool(numbers[block_learning.HAS_OPENED])
        if has_opened or (opening is not None and opening.has_ended(row)):
            self.end_opening()
        self._free_opening_state = opening_state
        if has_opened:
            new = Opening(mended, model, model.gp, opening_state, features)
            if new.is_over and not new.has_ended(row):
                self.opening = new
                self._free_opening_state = None
        predicted = record[begin:row].copy()
        opens_gate = reason == block_learning.OUTLIER_OPENS_GATE
        self._report_measured(slice(begin, row - 1 if opens_gate else row), record)
        if numbers[block_learning.IS_HELD_BACK]:
            was_outlier = bool(numbers[block_learning.WAS_OUTLIER])
            self.suspect = self._suspect_at(row - 1, was_outlier, record[row - 1 : row])
        return Outcome(row, reason, predicted, int(numbers[block_learning.N_CLIPPED_AHEAD]))

    def _new_block(self, begin: int, end: int, record: np.ndarray) -> Block:
        """Return the rows of the block in the form that `block_learning.learn_block` takes."""
        mended = self.mended
        numbers = np.zeros(block_learning.N_BLOCK_NUMBERS, dtype=np.int64)
        numbers[block_learning.ROW] = begin
        numbers[block_learning.END] = end
        block = mended.compiled_block(len(self._jumps.rows))
        n_features = len(self._features)
        n_coordinates = self._next_row.points.shape[1]
        n_others = len(mended.newest)
        return Block(
            numbers=numbers,
            jump=np.zeros(1),
            rows=mended.measured_rows,
            mended=block,
            jumps=self._jumps,
            prior_mean=np.zeros(len(mended.y)),
            record=record,
            learned_later=self._learned_later,
            n_mended=np.zeros(len(mended.positions), dtype=np.int64),
            point=np.empty((1, n_coordinates)),
            before=np.empty(n_features),
            causes=new_causes(n_others),
            explained=Explained(
                cells=np.empty(block.cells.shape, dtype=np.int64),
                errors=np.empty(len(block.errors)),
                regressors=np.empty((1, n_features)),
                points=np.empty((1, n_coordinates)),
                mean=np.empty(1),
                variance=np.empty(1),
                next_mean=np.empty(n_others + 2),
                next_latent=np.empty(n_others + 2),
                next_errors=np.empty(n_others + 2),
                next_variances=np.empty(n_others + 2),
                costs=np.empty(n_others + 2),
            ),
        )

    def _opening_state(self, n_cells: int) -> OpeningState:
        """Return the state for the next opening, with room for the errors of n measurements."""
        state = self._free_opening_state
        if state is None or len(state.errors) < n_cells:
            n_features = self._next_row.regressors.shape[1], self._next_row.points.shape[1]
            self._free_opening_state = state = new_opening_state(n_cells, *n_features)
        return state

    def _report_measured(self, rows: slice, record: np.ndarray) -> None:
        """Correct the means in the record (n,) of the block to predict the measured targets."""
        mended = self.mended
        if mended.has_mended_targets:
            record["mean"][rows] += mended.measured_targets[rows] - mended.y[rows]

    def _suspect_at(self, row: int, was_outlier: bool, report: np.ndarray) -> Suspect:
        """Return the suspect at a row of the block, whose report (1,) is given."""
        mended = self.mended
        regressor = mended.x[row : row + 1].copy()
        target = mended.y[row : row + 1].copy()
        return Suspect(regressor, target, self._regressor_before(row), was_outlier, report.copy())

    def _regressor_before(self, row: int) -> np.ndarray | None:
        """Return the regressor (n_features,) one sample before a row, if there is one."""
        if not self.mended.follows[row]:
            return None
        before, _ = self.mended.row(row - 1, self.mended.errors)
        return before

    def learned_later(self, rows: slice) -> np.ndarray:
        """Return which rows of the block were learned later than they were predicted (`Block`)."""
        return self._learned_later[rows]

    # --- single rows ------------------------------------------------------------------------------

    def take_record(
        self,
        piece: slice,
        record: np.ndarray,
        *,
        is_held_back: bool,
        gate_is_open: bool,
    ) -> None:
        """Take the record of a piece, which ends with the first outlier.

        The last row becomes the suspect if it was held back or is an outlier. The measurement of an
        outlier is replaced by its prediction among the lags of the rows after it, unless the gate
        is open: then the plant has changed. The record of mended rows is corrected to report the
        change from the value that was measured before, not from the mended one.
        """
        mended = self.mended
        row = piece.stop - 1
        is_outlier = bool(record["outlier"][-1])
        is_suspect = is_held_back or is_outlier
        if self._has_gate:
            end = row if is_suspect and not gate_is_open else piece.stop
            learned = slice(piece.start, end)
            mended.learn(mended.x[learned], mended.y[learned])
        if is_suspect:
            self._has_held_back = True
            before = self._regressor_before(row)
            regressor = mended.x[row : row + 1].copy()
            target = mended.y[row : row + 1].copy()
        if is_outlier and gate_is_open:
            mended.set_errors(piece.stop, {})
        elif is_outlier:
            mended.replace_target(row, float(record["mean"][-1]))
        if mended.has_mended_targets:
            record["mean"] += mended.measured_targets[piece] - mended.y[piece]
        if is_suspect:
            self.suspect = Suspect(regressor, target, before, is_outlier, record[-1:].copy())

    def end(self) -> None:
        """End the block."""
        if self.opening is not None:
            self.opening.end_block()
        self.mended.end()

    def count_mended(self, names: Sequence[str]) -> None:
        """Count a replaced value of each of these signals."""
        for name in names:
            self.n_mended[name] = self.n_mended.get(name, 0) + 1

    def skip(self, n: int) -> None:
        """Pass over n samples of the same record that have no row; nothing is held back then.

        What was replaced among the lags stays replaced.
        """
        self.mended.skip(n)
        if self.opening is not None:
            self.opening.skip(n)

    def reconsider(self, model: Model, row: int | None) -> Accepted | None:
        """Decide about the suspect, now that the row after it is known.

        The model learns the suspect unless "its target was wrong" explains the next row best. The
        other explanations are that no measurement was wrong, or that the newest value of another
        signal was: then the value one sample earlier replaces it.

        Parameters
        ----------
        model : Model
        row : int or None
            The row after the suspect; None: there is none.

        Returns
        -------
        Accepted or None
            None if the suspect stays an outlier.
        """
        suspect = self.suspect
        self.suspect = None
        if suspect is None:
            return None
        errors = dict(self.mended.errors)
        cause = None
        known = None  # predictions of the next row
        if row is not None and self.mended.follows[row]:
            is_target_wrong, cause, known = self._explain(suspect, model, row)
            if is_target_wrong:
                return None
        elif suspect.was_outlier:
            return None
        if cause is not None:
            name, error = cause
            suspect.regressor[0, self.mended.columns_of_newest(name)] -= error
            self.n_mended[name] = self.n_mended.get(name, 0) + 1
        plant_jumped = suspect.was_outlier and cause is None
        opening = None
        if plant_jumped and row is not None:
            jump = errors[self.mended.target, row - 1]
            if self.may_open(row, jump):
                self.end_opening()
                opening = self.begin_opening(model, model.gp, errors, row, known)
                opening.look_ahead()
        return self._accept(suspect, model, plant_jumped, opening)

    def accept_jump(self, model: Model, n_clipped_ahead: int) -> Accepted:
        """Learn the suspect, at which the plant may have jumped (`learn_in_block`).

        `n_clipped_ahead` is the number of variances that were clipped at 0 when it looked ahead.
        """
        suspect = self.suspect
        state = self._free_opening_state
        assert suspect is not None
        assert state is not None
        self.suspect = None
        features = self._compiled_features
        opening = Opening(self.mended, model, model.gp, state, features, n_clipped_ahead)
        self._free_opening_state = None
        return self._accept(suspect, model, True, opening)

    def _accept(
        self, suspect: Suspect, model: Model, plant_jumped: bool, opening: Opening | None
    ) -> Accepted:
        """Learn the suspect, and keep the model from before if an opening is not over."""
        x = suspect.regressor
        y = suspect.target
        self.mended.learn(x, y)
        z = model.scaling.transform(x)
        prior_mean = model.mean(x)
        if opening is not None and not opening.is_over:
            opening.keep(self.copy_of(model.gp))
        learned = model.gp.believe(
            z, y, prior_mean, was_outlier=suspect.was_outlier, opens=plant_jumped
        )
        for name in PREDICTION_FIELDS:
            learned[name] = suspect.row[name]
        report = UpdateReport(*learned[0].item())
        return Accepted(report, plant_jumped, opening)

    def begin_opening(
        self,
        model: Model,
        gp: OnlineGP,
        errors: Errors,
        row: int,
        known: BothPredictions | None = None,
        n_cut: int = 0,
    ) -> Opening:
        """Return an opening of the gate at a row of the block.

        `gp` is the online GP of the model before it learned the sample before the row. `errors` are
        those of replaced measurements, also those of a burst that was refused; `n_cut` of their
        replacements were cut to the range of the learned outputs, and not counted yet. `known` are
        the predictions of the row, if they are known already.
        """
        mended = self.mended
        cells, values = mended.cells_of(errors)
        state = self._opening_state(len(errors) + mended.n_free_cells)
        self._free_opening_state = None
        output = mended.output_before(row)
        begin_opening(mended.lags, state, cells, values, len(errors), row, output, *mended.learned)
        state.numbers[outlier_decisions.N_OUT_OF_RANGE] = n_cut
        if known is not None:
            (mean_if_right, mean_if_wrong), (if_right, if_wrong) = known
            take_predictions(state, mean_if_right, if_right, mean_if_wrong, if_wrong)
        return Opening(mended, model, gp, state, self._compiled_features)

    def may_open(self, row: int, error: float) -> bool:
        """Return whether an opening of the gate may begin at a row of the block (`takes_place`).

        `error` is that of the measurement before the row.
        """
        opening = self.opening
        if opening is None:
            return True
        return takes_place(row, error, *opening.rows(len(self.mended.y)), opening.jump)

    def copy_of(self, gp: OnlineGP) -> OnlineGP:
        """Return a copy of an online GP, in the memory of one that is not used any more."""
        copied = gp.copy(self._unused)
        self._unused = None
        return copied

    def end_opening(self) -> None:
        """End an opening after which the present model stays."""
        if self.opening is not None:
            self._free_opening_state = self.opening.state
            if self.opening.has_copy:
                self._unused = self.opening.gp
        self.opening = None

    def _explain(
        self, suspect: Suspect, model: Model, row: int
    ) -> tuple[bool, tuple[str, float] | None, BothPredictions | None]:
        """Find what explains the row after the suspect best, and mend the rows accordingly.

        Returns
        -------
        bool
            Whether the target of the suspect was wrong.
        (str, float) or None
            The other signal whose newest value was wrong, and its error; None: no value was.
        BothPredictions or None
            Predictions of the row if only the target of the suspect is replaced among its lags.
        """
        mended = self.mended
        target_cell = (mended.target, row - 1)
        if suspect.was_outlier and target_cell not in mended.errors:
            return True, None, None
        other_errors = {cell: error for cell, error in mended.errors.items() if cell != target_cell}
        causes = self._find_causes(suspect, model, row)
        if not causes and not suspect.was_outlier:  # nothing can be wrong
            return False, None, None
        if not causes and self._compiled_features.has_constant_mean:
            error = mended.errors[target_cell]
            return self._explain_by_target(model, row, other_errors, target_cell, error)
        # explanations: each cause, then "its target was wrong", then "nothing was wrong"
        explanations = [other_errors | {cell: cause.error} for cell, cause in causes.items()]
        explanations += [mended.errors, other_errors]
        targets, prediction = self._predict_row(model, row, explanations)
        errors = targets - prediction.mean
        variances = prediction.variance + model.gp.noise_variance
        target_error = mended.errors[target_cell] if suspect.was_outlier else 0.0
        wrong = len(causes)
        best = best_explanation(
            wrong,
            _compiled_causes(list(causes.values())),
            suspect.was_outlier,
            target_error,
            errors,
            variances,
            np.empty(wrong + 2),
        )
        if suspect.was_outlier and best == wrong:
            return True, None, None
        mended.set_errors(row, explanations[best])
        if best < len(causes):
            cell, cause = list(causes.items())[best]
            return False, (cell[0], cause.error), None
        if other_errors:
            return False, None, None
        wrong_mean, right_mean = prediction.mean[wrong:].tolist()
        wrong_variance, right_variance = prediction.variance[wrong:].tolist()
        return (
            False,
            None,
            BothPredictions((right_mean, wrong_mean), (right_variance, wrong_variance)),
        )

    def _explain_by_target(
        self, model: Model, row: int, other_errors: Errors, target_cell: Cell, error: float
    ) -> tuple[bool, None, BothPredictions | None]:
        """Do what `_explain` does for an outlier if no other signal can be wrong.

        The mean is a constant. `error` is that of the measurement at `target_cell`.
        """
        mended = self.mended
        features = self._compiled_features
        next_row = self._next_row
        cells, errors = mended.cells_of(other_errors | {target_cell: error})
        rows = mended.measured_rows
        if model.gp.refutes(features, mended.lags, rows, row, cells, errors, next_row):
            return True, None, None
        mended.set_errors(row, other_errors)
        if other_errors:
            return False, None, None
        if_wrong, if_right = next_row.mean.tolist()
        variance_if_wrong, variance_if_right = next_row.variance.tolist()
        return (
            False,
            None,
            BothPredictions((if_right, if_wrong), (variance_if_right, variance_if_wrong)),
        )

    def _predict_row(
        self, model: Model, row: int, explanations: list[Errors]
    ) -> tuple[np.ndarray, Prediction]:
        """Return the targets (m,) of a row under each explanation, and their predictions (m,)."""
        regressors = []
        targets = []
        for errors in explanations:
            regressor, target = self.mended.row(row, errors)
            regressors.append(regressor)
            targets.append(target)
        return np.array(targets), model.predict_few(np.array(regressors), is_checked=True)

    def _find_causes(self, suspect: Suspect, model: Model, row: int) -> dict[Cell, Cause]:
        """Find the newest values of other signals that may be wrong and would explain the suspect.

        A value may be wrong if the value after it is closer to the value before it. It explains the
        suspect if the suspect is within the gate once the value before replaces it. `row` is the
        row after the suspect.
        """
        if suspect.before is None:
            return {}
        mended = self.mended
        causes: dict[Cell, Cause] = {}
        (x,) = suspect.regressor
        y = suspect.target
        for name, column in mended.newest.items():
            value = x[column]
            before = suspect.before[column]
            after = mended.x[row, column]
            if not is_closer(after, before, value):
                continue
            measured_and_mended = np.array([x, x])
            measured_and_mended[1, mended.columns_of_newest(name)] = before
            mean, latent = model.predict_few(measured_and_mended, is_checked=True)
            errors = y - mean
            variances = latent + model.gp.noise_variance
            if model.gp.is_beyond_gate(errors[1], latent[1]):
                continue
            measured_cost, mended_cost = density_costs(errors, variances)
            time = row - 1 - self._features[column][1]
            causes[name, time] = Cause(
                error=value - before,
                gain=measured_cost - mended_cost,
                measured_error=float(errors[0]),
                expected_square=float(errors[1] ** 2 + variances[1]),
            )
        return causes

    def write_pending(self, pending: dict[str, Any]) -> None:
        """Write the state that `recall` needs to continue, as lists and numbers.

        These are the last row, the errors of replaced measurements, and the suspect.
        """
        mended = self.mended
        suspect = self.suspect
        pending["last"] = mended.last
        pending["last_target"] = None if math.isnan(mended.last_target) else mended.last_target
        pending["skipped"] = mended.n_skipped
        pending["errors"] = []
        if mended.errors:
            pending["errors"] = [[*cell, error] for cell, error in mended.errors.items()]
        pending["suspect"] = None
        if suspect is not None:
            pending["suspect"] = {
                "regressor": suspect.regressor.tolist(),
                "target": suspect.target.tolist(),
                "before": None if suspect.before is None else suspect.before.tolist(),
                "outlier": suspect.was_outlier,
            }
        pending["learned"] = _range_to_store(mended.learned)
        pending["clipped"] = mended.n_clipped

    def recall(self, pending: dict[str, Any]) -> None:
        """Continue from the state that `write_pending` has written.

        The prediction of the suspect is not part of that state: its report has nan there. The range
        of the learned outputs stays if it is not stored.

        Raises
        ------
        KeyError, TypeError, ValueError
            Content that does not fit the features.
        """
        n = len(self._features)
        self.mended.last = vector(pending["last"], n, "last").tolist()
        last_target = pending.get("last_target")
        self.mended.last_target = np.nan if last_target is None else float(last_target)
        self.mended.n_skipped = int(pending.get("skipped", 0))
        self.mended.errors = {
            (str(name), int(time)): float(error) for name, time, error in pending["errors"]
        }
        self.mended.learned = recall_range(pending) or self.mended.learned
        self.mended.n_clipped = int(pending.get("clipped", 0))
        suspect = pending["suspect"]
        if suspect is not None:
            before = None if suspect["before"] is None else vector(suspect["before"], n, "before")
            row = NOT_PREDICTED.copy()
            row["outlier"] = suspect["outlier"]
            regressor = matrix(suspect["regressor"], n, "regressor")
            target = vector(suspect["target"], 1, "target")
            self.suspect = Suspect(regressor, target, before, bool(row["outlier"][0]), row)


def compiled_features(model: Model) -> Features:
    """Return the map from regressors to points of a model, and its mean, for compiled functions.

    All arrays are copies that can be written: numba compiles a function once more for arrays that
    cannot be, and whether those of a map can be depends on where it comes from.
    """
    mean = constant_of(model.mean)
    scaling = model.scaling
    matrix = np.zeros((0, scaling.n_features)) if scaling.matrix is None else scaling.matrix
    return Features(
        np.array(scaling.offset),
        np.array(scaling.scale),
        np.array(matrix, order="C"),
        0.0 if mean is None else mean,
        mean is not None,
    )


def new_opening_state(n_cells: int, n_features: int, n_coordinates: int) -> OpeningState:
    """Return the state of an opening with room for the errors of this many measurements.

    Its numbers are set by `outlier_decisions.begin_opening`.
    """
    return OpeningState(
        numbers=np.zeros(outlier_decisions.N_OPENING_NUMBERS, dtype=np.int64),
        jump=np.empty(1),
        cells=np.zeros((n_cells, 2), dtype=np.int64),
        errors=np.zeros(n_cells),
        learned=np.empty(2),
        regressors=np.empty((2, n_features)),
        target=np.empty(1),
        points=np.empty((2, n_coordinates)),
        mean=np.empty(2),
        variance=np.empty(2),
        returned_regressors=np.empty((outlier_decisions.N_RETURNED_SAMPLES, n_features)),
        returned_targets=np.empty(outlier_decisions.N_RETURNED_SAMPLES),
    )


def new_causes(n: int) -> Causes:
    """Return room for n causes."""
    return Causes(
        cells=np.zeros((n, 2), dtype=np.int64),
        columns=np.zeros((n, 2), dtype=np.int64),
        errors=np.zeros(n),
        gains=np.zeros(n),
        measured_errors=np.zeros(n),
        expected_squares=np.zeros(n),
    )


def _compiled_causes(causes: list[Cause]) -> Causes:
    """Return what `best_explanation` needs to know about causes."""
    compiled = new_causes(len(causes))
    for i, cause in enumerate(causes):
        compiled.gains[i] = cause.gain
        compiled.measured_errors[i] = cause.measured_error
        compiled.expected_squares[i] = cause.expected_square
    return compiled


def _compute_prior_means(model: Model, block: Block) -> None:
    """Compute the prior means of the rows that `learn_block` learns, and of those at jumps."""
    numbers = block.numbers
    rows = slice(numbers[block_learning.ROW], numbers[block_learning.END])
    block.prior_mean[rows] = model.prior_mean(block.mended.regressors[rows])
    jumps = block.jumps
    is_reached = (rows.start <= jumps.rows) & (jumps.rows < rows.stop)
    may_be_wrong = np.flatnonzero(is_reached & (jumps.columns[:, 0] >= 0))
    regressors = block.mended.regressors[jumps.rows[may_be_wrong]]
    for regressor, jump in zip(regressors, may_be_wrong, strict=True):
        columns = jumps.columns[jump]
        regressor[columns[columns >= 0]] = jumps.values_before[jump]
    if len(regressors):
        jumps.prior_mean[may_be_wrong] = model.prior_mean(regressors)


def _counted_from(row: int, errors: Errors) -> Errors:
    """Return the errors with their times counted from a row."""
    return {(name, time - row): error for (name, time), error in errors.items()}


def union(first: Range, second: Range) -> Range:
    """Return the smallest range that contains both."""
    return min(first[0], second[0]), max(first[1], second[1])


def range_known_to(model: Model) -> Range:
    """Return the range of the outputs that a model has learned, as far as the model shows it.

    It is the `Model.known_range`.
    """
    known = model.known_range
    if known[0] < known[1]:
        return known
    return UNKNOWN_RANGE if model.gp.n_points else NO_VALUES


def regressors_of_points(model: Model) -> np.ndarray:
    """Return the regressors (n, n_features) of the points of a model, as far as it shows them.

    There are none if the coordinates of the points do not show them (a scaling with a matrix).
    """
    if model.scaling.matrix is not None or not model.gp.n_points:
        return np.zeros((0, model.narx.n_features))
    return model.scaling.inverse(model.gp.inputs)


def recall_range(pending: dict[str, Any]) -> Range | None:
    """Return the stored range of the learned outputs (`OutlierHandling.write_pending`); None: none.

    Raises
    ------
    TypeError, ValueError
        It is not a range.
    """
    stored = pending.get("learned")
    if stored is None:
        return None
    if stored == UNKNOWN:
        return UNKNOWN_RANGE
    low, high = vector(stored, 2, "learned").tolist()
    return low, high


def _range_to_store(learned: Range) -> list[float] | str | None:
    """Return a range for `OutlierHandling.write_pending`; None: there are no values."""
    if learned == NO_VALUES:
        return None
    return UNKNOWN if learned == UNKNOWN_RANGE else list(learned)


def density_costs(errors: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return minus twice the log density (m,) of normal errors (m,), less a constant."""
    pairs = zip(errors.tolist(), variances.tolist(), strict=True)
    return np.array([density_cost(error, variance) for error, variance in pairs])
