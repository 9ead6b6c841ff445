"""Learning of a block of rows with the outlier test, in compiled code.

`learn_block` predicts and learns row by row. A row beyond the gate is held back, and the row after
it decides: the measurement was wrong, and its prediction stays among the lags of later rows, or the
plant has jumped, and the row is learned after all. `sysid.outliers` does the same row by row, where
the next row is in another block, and whatever this loop leaves to it (`LEFT_AT_SUSPECT` and the
other reasons to return).
"""

from typing import NamedTuple

import numpy as np

from sysid.gp.dictionary import (
    ERROR_SCALE,
    N_OUTLIERS,
    N_SEEN,
    OUTLIER_LEVEL,
    caller_has_work,
    internal,
    learn,
    predict,
    python_entry,
)
from sysid.gp.outlier_decisions import (
    IS_OVER,
    N_REJECTED,
    NEXT_ROW,
    MendedBlock,
    Rows,
    begin_opening,
    is_beyond_gate,
    is_closer,
    look_ahead,
    mend_rows,
    output_of,
    refutes,
    replace_lags,
    replace_target,
    take_predictions,
    to_points,
)

# Why `learn_block` returns.
(
    ROWS_ARE_DONE,  # there is no row left; the last one may be held back
    GP_HAS_WORK,  # the factors or the scale must be updated, or old samples forgotten
    ROW_IS_REFUSED,  # `learn` cannot learn the next row
    LEFT_AT_JUMP,  # the next row must be held back: another signal jumps, and may be wrong there
    LEFT_AT_SUSPECT,  # the decision about the last row, which is held back, is left to the caller
    OUTLIER_OPENS_GATE,  # the last row is the outlier at which the gate opens
    PLANT_MAY_HAVE_JUMPED,  # the last row is to be learned, but may be part of a burst
) = range(7)


# Positions in `Block.numbers`.
(
    ROW,
    END,
    IS_HELD_BACK,
    NEXT_JUMP,
    ROW_AFTER_OPENING,
    IS_UNDECIDED,
    MUST_FORGET,
    N_CLIPPED,
    N_CLIPPED_AHEAD,
) = range(9)


N_BLOCK_NUMBERS = 9


# Values of `Block.learned_later`.
LEARNED_AT_JUMP = 1
LEARNED_OUTLIER = 2


#: value of `Block.numbers[ROW_AFTER_OPENING]` without an opening
NO_OPENING = -1

_is_closer = internal(is_closer)


class Jumps(NamedTuple):
    """Rows of a block at which another signal jumps, and what the jumps may be instead.

    There is one entry for each signal whose jump may be a wrong measurement, because the next value
    reverses it, or one for the row if there is none.
    """

    rows: np.ndarray  # (k,) rising
    columns: np.ndarray  # (k, 2) columns of the signal's newest value; -1: none
    values_before: np.ndarray  # (k,) value of the signal before the jump
    prior_mean: np.ndarray  # (k,) of the row with this value, unless the mean is a constant


class Block(NamedTuple):
    """Rows that `learn_block` learns; the arrays change in place."""

    #: (N_BLOCK_NUMBERS,) ROW: row that comes next; END: row at which the loop ends; IS_HELD_BACK:
    #: whether the row before it is an outlier about which nothing is decided; NEXT_JUMP: position
    #: in `jumps`; ROW_AFTER_OPENING: row that decides about the opening of the gate, if the plant
    #: has changed (`NO_OPENING` without one); IS_UNDECIDED: whether an opening is not decided;
    #: MUST_FORGET: whether samples must be forgotten before the next one is learned; N_CLIPPED,
    #: N_CLIPPED_AHEAD: variances that were clipped at 0, in decisions and by `look_ahead`
    numbers: np.ndarray
    rows: Rows  # as they were measured
    mended: MendedBlock
    jumps: Jumps
    prior_mean: np.ndarray  # (n,) prior mean at the mended rows, if it is not a constant
    record: np.ndarray  # (n,) rows of `RECORD_DTYPE`
    #: (n,) LEARNED_AT_JUMP, LEARNED_OUTLIER: rows that would be learned only when the next one is
    #: known
    learned_later: np.ndarray
    point: np.ndarray  # (1, q) scratch: coordinates of a row
    before: np.ndarray  # (p,) scratch: the regressor before a row


@internal
def _prior_mean(features, given):  # type: ignore[no-untyped-def]
    return features.mean if features.has_constant_mean else given


@internal
def _learn_one(rules, state, features, block, row):  # type: ignore[no-untyped-def]
    """Predict a row of the block, and learn it unless it is an outlier, as `learn` does.

    Return whether its numbers can be learned.
    """
    mended = block.mended
    one = slice(row, row + 1)
    to_points(features, mended.regressors[one], 1, block.point)
    block.prior_mean[row] = _prior_mean(features, block.prior_mean[row])
    targets = mended.targets[one]
    n_done = learn(rules, state, block.point, targets, block.prior_mean[one], 0, block.record[one])
    return n_done > 0


@internal
def _report_measured(lags, block, row):  # type: ignore[no-untyped-def]
    """Report the change from the value that was measured before a row, not from a mended one."""
    if lags.is_change:
        report = block.record[row]
        report["mean"] = report["mean"] + (block.rows.targets[row] - block.mended.targets[row])


@internal
def _extend_range(lags, mended, row):  # type: ignore[no-untyped-def]
    """Extend the range of the learned outputs by that of a row."""
    if lags.is_change and lags.previous < 0:
        return
    value = output_of(lags, mended.regressors[row], mended.targets[row])
    mended.learned[0] = min(mended.learned[0], value)
    mended.learned[1] = max(mended.learned[1], value)


# --- jumps of other signals ----------------------------------------------------------------------


@internal
def _replace_newest(regressors, i, columns, value):  # type: ignore[no-untyped-def]
    """Replace the newest value of a signal, which is in these columns, in regressor i."""
    for column in columns:
        if column >= 0:
            regressors[i, column] = value


@internal
def _rows_tell_jumps(lags, block):  # type: ignore[no-untyped-def]
    """Return whether the measured rows tell which jumps may be wrong.

    They do if no value of another signal is replaced, and if the model stays: a sample that is held
    back when the plant of before returns stays so.
    """
    if block.numbers[IS_UNDECIDED] == 1:
        return False
    for i in range(block.mended.numbers[N_REJECTED]):
        if block.mended.cells[i, 0] != lags.target:
            return False
    return True


@internal
def _jump_may_be_wrong(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, next_row, row
):
    """Return whether a value that jumps at a row may be wrong, so that the row is held back.

    It may be if the row is within the gate with the value before the jump.
    """
    if row == block.rows.targets.size - 1 or not _rows_tell_jumps(lags, block):
        return True
    jumps = block.jumps
    mended = block.mended
    noise_variance = rules.noise_variance
    for j in range(block.numbers[NEXT_JUMP], jumps.rows.size):
        if jumps.rows[j] > row:
            break
        if jumps.columns[j, 0] < 0:
            continue
        for d in range(mended.regressors.shape[1]):
            next_row.regressors[0, d] = mended.regressors[row, d]
        _replace_newest(next_row.regressors, 0, jumps.columns[j], jumps.values_before[j])
        to_points(features, next_row.regressors, 1, next_row.points)
        predict(rules, state, next_row.points[:1], next_row.mean, next_row.variance)
        error = mended.targets[row] - (
            next_row.mean[0] + _prior_mean(features, jumps.prior_mean[j])
        )
        scale = state.errors[ERROR_SCALE]
        if not is_beyond_gate(rules.gate, noise_variance, scale, error, next_row.variance[0]):
            return True
    return False


@internal
def _is_jump(block, row):  # type: ignore[no-untyped-def]
    """Return whether another signal jumps at a row; `NEXT_JUMP` becomes its first jump."""
    rows = block.jumps.rows
    position = block.numbers[NEXT_JUMP]
    while position < rows.size and rows[position] < row:
        position += 1
    block.numbers[NEXT_JUMP] = position
    return position < rows.size and rows[position] == row


# --- decision about a row that is held back ------------------------------------------------------


@internal
def _another_signal_may_be_wrong(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, next_row, suspect
):
    """Return whether a wrong value of another signal would explain an outlier.

    See `sysid.outliers.OutlierHandling._find_causes`, which computes what it explains.
    """
    rows = block.rows
    mended = block.mended
    if not rows.follows[suspect]:
        return False
    n = mended.numbers[N_REJECTED]
    replace_lags(lags, rows, suspect - 1, mended.cells, mended.errors, n, block.before)
    n_clipped = 0
    for s in range(lags.newest.shape[0]):
        column = lags.newest[s, 0]
        before = block.before[column]
        after = mended.regressors[suspect + 1, column]
        if not _is_closer(after, before, mended.regressors[suspect, column]):
            continue
        for d in range(mended.regressors.shape[1]):
            next_row.regressors[0, d] = mended.regressors[suspect, d]
            next_row.regressors[1, d] = mended.regressors[suspect, d]
        _replace_newest(next_row.regressors, 1, lags.newest[s], before)
        to_points(features, next_row.regressors, 2, next_row.points)
        n_clipped += predict(rules, state, next_row.points, next_row.mean, next_row.variance)
        error = mended.targets[suspect] - (next_row.mean[1] + features.mean)
        scale = state.errors[ERROR_SCALE]
        if not is_beyond_gate(rules.gate, rules.noise_variance, scale, error, next_row.variance[1]):
            return True
    block.numbers[N_CLIPPED] += n_clipped
    return False


@internal
def _believe(rules, state, features, lags, block, suspect):  # type: ignore[no-untyped-def]
    """Learn an outlier after all, and open the gate: see `OnlineGP.believe`.

    Its report has the prediction from before, and the new decisions.
    """
    _extend_range(lags, block.mended, suspect)
    state.counts[N_OUTLIERS] -= 1
    state.counts[N_SEEN] -= 1
    state.errors[OUTLIER_LEVEL] = rules.gate_opens_after
    row = block.record[suspect]
    mean = row["mean"]
    variance = row["variance"]
    _learn_one(rules, state, features, block, suspect)
    state.errors[OUTLIER_LEVEL] = rules.gate_opens_after
    row["mean"] = mean
    row["variance"] = variance
    block.learned_later[suspect] = LEARNED_OUTLIER


@internal
def _decide(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, opening, next_row
):
    """Decide about the outlier before the next row (`sysid.outliers.OutlierHandling.reconsider`).

    Return a reason to return from the loop, or `ROWS_ARE_DONE` to go on.
    """
    numbers = block.numbers
    rows = block.rows
    mended = block.mended
    row = numbers[ROW]
    suspect = row - 1
    if not rows.follows[row]:
        is_wrong = True
    elif suspect == 0 or not features.has_constant_mean:
        return LEFT_AT_SUSPECT
    elif _another_signal_may_be_wrong(rules, state, features, lags, block, next_row, suspect):
        return LEFT_AT_SUSPECT
    else:
        n = mended.numbers[N_REJECTED]
        cells = mended.cells[:n]
        errors = mended.errors[:n]
        is_wrong = refutes(rules, state, features, lags, rows, row, cells, errors, next_row)
        numbers[N_CLIPPED] += next_row.n_clipped[0]
    if is_wrong:
        numbers[IS_HELD_BACK] = 0
        interval = rules.forget_interval
        if interval > 0 and state.counts[N_SEEN] % interval == 0:
            numbers[MUST_FORGET] = 1
        return ROWS_ARE_DONE
    n_others = mended.numbers[N_REJECTED] - 1
    mended.numbers[N_REJECTED] = n_others
    mend_rows(lags, rows, mended, row)
    if numbers[IS_UNDECIDED] == 0 and numbers[ROW_AFTER_OPENING] <= row:
        low = mended.learned[0]
        high = mended.learned[1]
        begin_opening(opening, mended.cells, mended.errors, n_others + 1, row, low, high)
        if n_others == 0:
            mean = next_row.mean
            variance = next_row.variance
            take_predictions(opening, mean[1], variance[1], mean[0], variance[0])
        numbers[N_CLIPPED_AHEAD] = look_ahead(rules, state, features, lags, rows, opening)
        if opening.numbers[IS_OVER] == 0:
            return PLANT_MAY_HAVE_JUMPED
        numbers[ROW_AFTER_OPENING] = opening.numbers[NEXT_ROW] - 1
    _believe(rules, state, features, lags, block, suspect)
    numbers[IS_HELD_BACK] = 0
    return GP_HAS_WORK if caller_has_work(rules, state) else ROWS_ARE_DONE


@internal
def _learn_next(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, next_row
):
    """Predict and learn the next row, unless it is held back.

    Return a reason to return from the loop, or `ROWS_ARE_DONE` to go on.
    """
    numbers = block.numbers
    row = numbers[ROW]
    gate_was_open = state.errors[OUTLIER_LEVEL] >= rules.gate_opens_after
    is_jump = not gate_was_open and _is_jump(block, row)
    if is_jump and _jump_may_be_wrong(rules, state, features, lags, block, next_row, row):
        return LEFT_AT_JUMP
    if numbers[MUST_FORGET] == 1:
        return GP_HAS_WORK
    if not _learn_one(rules, state, features, block, row):
        return ROW_IS_REFUSED
    numbers[ROW] = row + 1
    if is_jump:
        block.learned_later[row] = LEARNED_AT_JUMP
    if not block.record[row]["outlier"]:
        _report_measured(lags, block, row)
        _extend_range(lags, block.mended, row)
        return GP_HAS_WORK if caller_has_work(rules, state) else ROWS_ARE_DONE
    if state.errors[OUTLIER_LEVEL] >= rules.gate_opens_after:
        return OUTLIER_OPENS_GATE
    replace_target(lags, block.rows, block.mended, row, block.record[row]["mean"])
    _report_measured(lags, block, row)
    numbers[IS_HELD_BACK] = 1
    return ROWS_ARE_DONE


@python_entry
def learn_block(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, opening, next_row
):
    """Predict and learn rows of a block up to `END`, and return why the loop ended.

    `opening` and `next_row` are scratch. If the gate opens, `opening` is left as it was when the
    loop looked ahead.
    """
    numbers = block.numbers
    while numbers[ROW] < numbers[END]:
        if numbers[IS_HELD_BACK] == 1:
            reason = _decide(rules, state, features, lags, block, opening, next_row)
        else:
            reason = _learn_next(rules, state, features, lags, block, next_row)
        if reason != ROWS_ARE_DONE:
            return reason
    return ROWS_ARE_DONE
