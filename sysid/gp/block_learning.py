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
    Causes,
    MendedBlock,
    Rows,
    begin_opening,
    best_explanation,
    density_cost,
    is_beyond_gate,
    is_closer,
    look_ahead,
    mend_rows,
    output_of,
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
    LEFT_AT_SUSPECT,  # the decision about the last row, which is held back, is left to the caller
    OUTLIER_OPENS_GATE,  # the last row is the outlier at which the gate opens
    PLANT_MAY_HAVE_JUMPED,  # the last row is to be learned, but may be part of a burst
) = range(6)


# Positions in `Block.numbers`.
(
    ROW,
    END,
    IS_HELD_BACK,
    WAS_OUTLIER,
    N_CAUSES,
    NEXT_JUMP,
    ROW_AFTER_OPENING,
    IS_UNDECIDED,
    MUST_FORGET,
    N_CLIPPED,
    N_CLIPPED_AHEAD,
) = range(11)


N_BLOCK_NUMBERS = 11


# Values of `Block.learned_later`: the row was held back at a jump; it was an outlier, and the
# plant has jumped; it was an outlier because another signal was wrong.
LEARNED_AT_JUMP = 1
LEARNED_OUTLIER = 2
LEARNED_MENDED = 3


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


class Explained(NamedTuple):
    """The row after a sample that is held back, under each explanation of it; k of `Causes`."""

    cells: np.ndarray  # (c, 2) errors of replaced measurements under one explanation
    errors: np.ndarray  # (c,)
    regressors: np.ndarray  # (1, p) of one explanation
    points: np.ndarray  # (1, q)
    mean: np.ndarray  # (1,)
    variance: np.ndarray  # (1,)
    next_mean: np.ndarray  # (k + 2,) predictions of the row
    next_latent: np.ndarray  # (k + 2,) their latent variances
    next_errors: np.ndarray  # (k + 2,) their errors
    next_variances: np.ndarray  # (k + 2,) variances of the errors, with noise
    costs: np.ndarray  # (k + 2,)


class Block(NamedTuple):
    """Rows that `learn_block` learns; the arrays change in place."""

    #: (N_BLOCK_NUMBERS,) ROW: row that comes next; END: row at which the loop ends; IS_HELD_BACK:
    #: whether the row before it is held back; WAS_OUTLIER: whether that was an outlier; N_CAUSES:
    #: number of `causes` of it; NEXT_JUMP: position in `jumps`; ROW_AFTER_OPENING: row that decides
    #: about the opening of the gate, if the plant has changed (`NO_OPENING` without one);
    #: IS_UNDECIDED: whether an opening is not decided; MUST_FORGET: whether samples must be
    #: forgotten before the next one is learned; N_CLIPPED, N_CLIPPED_AHEAD: variances that were
    #: clipped at 0, in decisions and by `look_ahead`
    numbers: np.ndarray
    rows: Rows  # as they were measured
    mended: MendedBlock
    jumps: Jumps
    prior_mean: np.ndarray  # (n,) prior mean at the mended rows, if it is not a constant
    record: np.ndarray  # (n,) rows of `RECORD_DTYPE`
    #: (n,) rows that would be learned only when the next one is known: values above; 0: the others
    learned_later: np.ndarray
    n_mended: np.ndarray  # (n_signals,) number of replaced values of each signal but the target
    point: np.ndarray  # (1, q) scratch: coordinates of a row
    before: np.ndarray  # (p,) scratch: the regressor before a row
    causes: Causes  # scratch
    explained: Explained  # scratch


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
def _replace_newest(regressor, columns, value, out):  # type: ignore[no-untyped-def]
    """Write a regressor (p,) with another value in these columns, a signal's newest value."""
    for d in range(out.size):
        out[d] = regressor[d]
    for column in columns:
        if column >= 0:
            out[column] = value


@internal
def _predict_one(rules, state, features, prior_mean, scratch):  # type: ignore[no-untyped-def]
    """Predict the regressor in `Explained`, and return whether its variance was clipped at 0."""
    to_points(features, scratch.regressors, 1, scratch.points)
    n_clipped = predict(rules, state, scratch.points, scratch.mean, scratch.variance)
    scratch.mean[0] += prior_mean
    return n_clipped


@internal
def _is_within_gate(rules, state, error, variance):  # type: ignore[no-untyped-def]
    scale = state.errors[ERROR_SCALE]
    return not is_beyond_gate(rules.gate, rules.noise_variance, scale, error, variance)


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
    rules, state, features, lags, block, row
):
    """Return whether a value that jumps at a row may be wrong, so that the row is held back.

    It may be if the row is within the gate with the value before the jump.
    """
    if row == block.rows.targets.size - 1 or not _rows_tell_jumps(lags, block):
        return True
    jumps = block.jumps
    mended = block.mended
    scratch = block.explained
    for j in range(block.numbers[NEXT_JUMP], jumps.rows.size):
        if jumps.rows[j] > row:
            break
        if jumps.columns[j, 0] < 0:
            continue
        _replace_newest(
            mended.regressors[row], jumps.columns[j], jumps.values_before[j], scratch.regressors[0]
        )
        prior_mean = _prior_mean(features, jumps.prior_mean[j])
        _predict_one(rules, state, features, prior_mean, scratch)
        error = mended.targets[row] - scratch.mean[0]
        if _is_within_gate(rules, state, error, scratch.variance[0]):
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
def _find_causes(rules, state, features, lags, block, suspect):  # type: ignore[no-untyped-def]
    """Find the wrong values of other signals that would explain a suspect; return their number.

    See `sysid.outliers.OutlierHandling._find_causes`.
    """
    rows = block.rows
    mended = block.mended
    causes = block.causes
    scratch = block.explained
    n_causes = 0
    if not rows.follows[suspect]:
        return n_causes
    n = mended.numbers[N_REJECTED]
    replace_lags(lags, rows, suspect - 1, mended.cells, mended.errors, n, block.before)
    noise_variance = rules.noise_variance
    x = mended.regressors[suspect]
    target = mended.targets[suspect]
    for s in range(lags.newest.shape[0]):
        column = lags.newest[s, 0]
        value = x[column]
        before = block.before[column]
        after = mended.regressors[suspect + 1, column]
        if not _is_closer(after, before, value):
            continue
        _replace_newest(x, lags.newest[s], value, scratch.regressors[0])
        block.numbers[N_CLIPPED] += _predict_one(rules, state, features, features.mean, scratch)
        measured_error = target - scratch.mean[0]
        measured_cost = density_cost(measured_error, scratch.variance[0] + noise_variance)
        _replace_newest(x, lags.newest[s], before, scratch.regressors[0])
        block.numbers[N_CLIPPED] += _predict_one(rules, state, features, features.mean, scratch)
        error = target - scratch.mean[0]
        variance = scratch.variance[0] + noise_variance
        if not _is_within_gate(rules, state, error, scratch.variance[0]):
            continue
        causes.cells[n_causes, 0] = lags.others[s, 0]
        causes.cells[n_causes, 1] = suspect - lags.others[s, 1]
        causes.columns[n_causes, 0] = lags.newest[s, 0]
        causes.columns[n_causes, 1] = lags.newest[s, 1]
        causes.errors[n_causes] = value - before
        causes.gains[n_causes] = measured_cost - density_cost(error, variance)
        causes.measured_errors[n_causes] = measured_error
        causes.expected_squares[n_causes] = error * error + variance
        n_causes += 1
    return n_causes


@internal
def _predict_next(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, n_errors, explanation
):
    """Predict the next row with n of the errors in `Explained` among its lags."""
    scratch = block.explained
    row = block.numbers[ROW]
    target = replace_lags(
        lags, block.rows, row, scratch.cells, scratch.errors, n_errors, scratch.regressors[0]
    )
    block.numbers[N_CLIPPED] += _predict_one(rules, state, features, features.mean, scratch)
    scratch.next_mean[explanation] = scratch.mean[0]
    scratch.next_latent[explanation] = scratch.variance[0]
    scratch.next_errors[explanation] = target - scratch.mean[0]
    scratch.next_variances[explanation] = scratch.variance[0] + rules.noise_variance


@internal
def _explain(rules, state, features, lags, block, n_causes):  # type: ignore[no-untyped-def]
    """Return the position of the best explanation of a suspect (`best_explanation`)."""
    mended = block.mended
    causes = block.causes
    scratch = block.explained
    was_outlier = block.numbers[WAS_OUTLIER] == 1
    n = mended.numbers[N_REJECTED]
    n_others = n - 1 if was_outlier else n
    for i in range(n_others):
        scratch.cells[i, 0] = mended.cells[i, 0]
        scratch.cells[i, 1] = mended.cells[i, 1]
        scratch.errors[i] = mended.errors[i]
    for i in range(n_causes):
        scratch.cells[n_others, 0] = causes.cells[i, 0]
        scratch.cells[n_others, 1] = causes.cells[i, 1]
        scratch.errors[n_others] = causes.errors[i]
        _predict_next(rules, state, features, lags, block, n_others + 1, i)
    target_error = 0.0
    if was_outlier:
        scratch.cells[n_others, 0] = mended.cells[n_others, 0]
        scratch.cells[n_others, 1] = mended.cells[n_others, 1]
        scratch.errors[n_others] = mended.errors[n_others]
        target_error = mended.errors[n_others]
    _predict_next(rules, state, features, lags, block, n, n_causes)
    _predict_next(rules, state, features, lags, block, n_others, n_causes + 1)
    return best_explanation(
        n_causes,
        causes,
        was_outlier,
        target_error,
        scratch.next_errors,
        scratch.next_variances,
        scratch.costs,
    )


@internal
def _learn_suspect(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, suspect, opens
):
    """Learn a suspect after all: see `OnlineGP.believe`.

    Its report has the prediction from before, and the new decisions.
    """
    _extend_range(lags, block.mended, suspect)
    state.counts[N_SEEN] -= 1
    if block.numbers[WAS_OUTLIER] == 1:
        state.counts[N_OUTLIERS] -= 1
    if opens:
        state.errors[OUTLIER_LEVEL] = rules.gate_opens_after
    report = block.record[suspect]
    mean = report["mean"]
    variance = report["variance"]
    _learn_one(rules, state, features, block, suspect)
    if opens:
        state.errors[OUTLIER_LEVEL] = rules.gate_opens_after
    report["mean"] = mean
    report["variance"] = variance
    block.numbers[IS_HELD_BACK] = 0


@internal
def _learn_mended(rules, state, features, lags, block, suspect, cause):  # type: ignore[no-untyped-def]
    """Learn a suspect with the earlier value of another signal, whose newest value was wrong."""
    causes = block.causes
    regressor = block.mended.regressors[suspect]
    measured = block.before
    for d in range(regressor.size):
        measured[d] = regressor[d]
    for column in causes.columns[cause]:
        if column >= 0:
            regressor[column] -= causes.errors[cause]
    _learn_suspect(rules, state, features, lags, block, suspect, False)
    for d in range(regressor.size):
        regressor[d] = measured[d]
    block.n_mended[causes.cells[cause, 0]] += 1


@internal
def _refuse_suspect(rules, state, block):  # type: ignore[no-untyped-def]
    """Let a suspect stay an outlier: its prediction stays in its place among later lags."""
    block.numbers[IS_HELD_BACK] = 0
    interval = rules.forget_interval
    if interval > 0 and state.counts[N_SEEN] % interval == 0:
        block.numbers[MUST_FORGET] = 1


@internal
def _mend_next_rows(lags, block, n_others, cause):  # type: ignore[no-untyped-def]
    """Mend the rows after a suspect whose target was right; -1: no other signal was wrong, either.

    `n_others` is the number of errors without that of the target.
    """
    causes = block.causes
    mended = block.mended
    n = n_others
    if cause >= 0:
        mended.cells[n, 0] = causes.cells[cause, 0]
        mended.cells[n, 1] = causes.cells[cause, 1]
        mended.errors[n] = causes.errors[cause]
        n += 1
    mended.numbers[N_REJECTED] = n
    mend_rows(lags, block.rows, mended, block.numbers[ROW])


@internal
def _look_ahead(rules, state, features, lags, block, opening, n_others):  # type: ignore[no-untyped-def]
    """Begin an opening of the gate at the next row, and compare the rows that come."""
    numbers = block.numbers
    mended = block.mended
    low = mended.learned[0]
    high = mended.learned[1]
    n = n_others + 1  # the error of the target is still there
    begin_opening(opening, mended.cells, mended.errors, n, numbers[ROW], low, high)
    if n_others == 0:
        mean = block.explained.next_mean
        variance = block.explained.next_latent
        right = numbers[N_CAUSES] + 1
        wrong = numbers[N_CAUSES]
        take_predictions(opening, mean[right], variance[right], mean[wrong], variance[wrong])
    numbers[N_CLIPPED_AHEAD] = look_ahead(rules, state, features, lags, block.rows, opening)
    if opening.numbers[IS_OVER] == 1:
        numbers[ROW_AFTER_OPENING] = opening.numbers[NEXT_ROW] - 1


@internal
def _decide(rules, state, features, lags, block, opening):  # type: ignore[no-untyped-def]
    """Decide about the suspect before the next row, as `sysid.outliers.OutlierHandling` does.

    Return a reason to return from the loop, or `ROWS_ARE_DONE` to go on.
    """
    numbers = block.numbers
    row = numbers[ROW]
    suspect = row - 1
    was_outlier = numbers[WAS_OUTLIER] == 1
    n_others = block.mended.numbers[N_REJECTED] - (1 if was_outlier else 0)
    n_causes = 0
    best = 1  # nothing was wrong
    if block.rows.follows[row]:
        if suspect == 0 or not features.has_constant_mean:
            return LEFT_AT_SUSPECT
        n_causes = _find_causes(rules, state, features, lags, block, suspect)
        if n_causes > 0 or was_outlier:
            best = _explain(rules, state, features, lags, block, n_causes)
    elif was_outlier:
        best = 0
    numbers[N_CAUSES] = n_causes
    if was_outlier and best == n_causes:
        _refuse_suspect(rules, state, block)
        return ROWS_ARE_DONE
    if best < n_causes:
        _mend_next_rows(lags, block, n_others, best)
        block.learned_later[suspect] = LEARNED_MENDED if was_outlier else LEARNED_AT_JUMP
        _learn_mended(rules, state, features, lags, block, suspect, best)
    elif was_outlier:
        _mend_next_rows(lags, block, n_others, -1)
        if numbers[IS_UNDECIDED] == 0 and numbers[ROW_AFTER_OPENING] <= row:
            _look_ahead(rules, state, features, lags, block, opening, n_others)
            if opening.numbers[IS_OVER] == 0:
                return PLANT_MAY_HAVE_JUMPED
        block.learned_later[suspect] = LEARNED_OUTLIER
        _learn_suspect(rules, state, features, lags, block, suspect, True)
    else:
        block.learned_later[suspect] = LEARNED_AT_JUMP
        _learn_suspect(rules, state, features, lags, block, suspect, False)
    return GP_HAS_WORK if caller_has_work(rules, state) else ROWS_ARE_DONE


@internal
def _learn_next(rules, refusing_rules, state, features, lags, block):  # type: ignore[no-untyped-def]
    """Predict the next row, and learn it unless it is held back.

    Return a reason to return from the loop, or `ROWS_ARE_DONE` to go on.
    """
    numbers = block.numbers
    row = numbers[ROW]
    if numbers[MUST_FORGET] == 1:
        return GP_HAS_WORK
    gate_was_open = state.errors[OUTLIER_LEVEL] >= rules.gate_opens_after
    is_jump = not gate_was_open and _is_jump(block, row)
    is_held_back = is_jump and _jump_may_be_wrong(rules, state, features, lags, block, row)
    if not _learn_one(refusing_rules if is_held_back else rules, state, features, block, row):
        return ROW_IS_REFUSED
    numbers[ROW] = row + 1
    report = block.record[row]
    if is_held_back:
        error = block.mended.targets[row] - report["mean"]
        report["outlier"] = not _is_within_gate(rules, state, error, report["variance"])
        if report["outlier"]:
            state.counts[N_OUTLIERS] += 1
            state.errors[OUTLIER_LEVEL] += 1.0
    elif is_jump:
        block.learned_later[row] = LEARNED_AT_JUMP
    if report["outlier"] and state.errors[OUTLIER_LEVEL] >= rules.gate_opens_after:
        return OUTLIER_OPENS_GATE
    if report["outlier"]:
        replace_target(lags, block.rows, block.mended, row, report["mean"])
    _report_measured(lags, block, row)
    if is_held_back or report["outlier"]:
        numbers[IS_HELD_BACK] = 1
        numbers[WAS_OUTLIER] = report["outlier"]
        return ROWS_ARE_DONE
    _extend_range(lags, block.mended, row)
    return GP_HAS_WORK if caller_has_work(rules, state) else ROWS_ARE_DONE


@python_entry
def learn_block(  # type: ignore[no-untyped-def]
    rules, refusing_rules, state, features, lags, block, opening
):
    """Predict and learn rows of a block up to `END`, and return why the loop ended.

    The refusing rules have the gate `GATE_REFUSES_ALL`. `opening` is scratch. If the plant
    may have jumped, it is left as it was when the loop had looked ahead.
    """
    numbers = block.numbers
    while numbers[ROW] < numbers[END]:
        if numbers[IS_HELD_BACK] == 1:
            reason = _decide(rules, state, features, lags, block, opening)
        else:
            reason = _learn_next(rules, refusing_rules, state, features, lags, block)
        if reason != ROWS_ARE_DONE:
            return reason
    return ROWS_ARE_DONE
