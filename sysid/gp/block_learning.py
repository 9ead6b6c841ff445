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
    inlined,
    internal,
    learn,
    predict,
    shared,
)
from sysid.gp.outlier_decisions import (
    IS_OVER,
    N_REJECTED,
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
    rows_of_opening,
    take_predictions,
    takes_place,
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
    BEST,
    NEXT_JUMP,
    CONFIRMED,
    RETURNED,
    ENDED,
    IS_UNDECIDED,
    HAS_OPENED,
    MUST_FORGET,
    N_CLIPPED,
    N_CLIPPED_AHEAD,
) = range(15)


N_BLOCK_NUMBERS = 15


# Values of `Block.learned_later`: the row was held back at a jump; it was an outlier, and the
# plant has jumped; it was an outlier because another signal was wrong.
LEARNED_AT_JUMP = 1
LEARNED_OUTLIER = 2
LEARNED_MENDED = 3


# The only sample of a call of `learn`. For a literal 0, numba would compile `learn` once more.
FIRST_SAMPLE = np.int64(0)


# What a step of `learn_block` does with its row, beside a reason to return.
IS_LEARNED, IS_WITHHELD, STAYS_OUTLIER = range(-3, 0)


_is_closer = internal(is_closer)
_takes_place = internal(takes_place)


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
    #: whether the row before it is held back; WAS_OUTLIER: whether that was an outlier; N_CAUSES,
    #: BEST: number of `causes` of it, and position of its best explanation; NEXT_JUMP: position in
    #: `jumps`; CONFIRMED, RETURNED, ENDED: rows of the last opening of the gate
    #: (`rows_of_opening`); IS_UNDECIDED: whether an opening from before the call is not decided;
    #: HAS_OPENED: whether another one has begun; MUST_FORGET: whether samples must be forgotten
    #: before the next one is learned; N_CLIPPED, N_CLIPPED_AHEAD: variances that were clipped at 0,
    #: in decisions and by `look_ahead`
    numbers: np.ndarray
    jump: np.ndarray  # (1,) error of the measurement at which the gate opened last
    rows: Rows  # as they were measured
    mended: MendedBlock
    jumps: Jumps
    prior_mean: np.ndarray  # (n,) prior mean at the mended rows, if it is not a constant
    record: np.ndarray  # (n,) rows of `RECORD_DTYPE`; their means predict the mended targets
    #: (n,) rows that would be learned only when the next one is known: values above; 0: the others
    learned_later: np.ndarray
    n_mended: np.ndarray  # (n_signals,) number of replaced values of each signal but the target
    point: np.ndarray  # (1, q) scratch: coordinates of a row
    before: np.ndarray  # (p,) scratch: the regressor before a row
    causes: Causes  # scratch
    explained: Explained  # scratch


@internal
def _prior_mean(features, given):  # type: ignore[no-untyped-def]
    """Return the constant mean of the model, or the given one if the mean is no constant."""
    return features.mean if features.has_constant_mean else given


@internal
def _is_within_gate(rules, state, error, variance):  # type: ignore[no-untyped-def]
    scale = state.errors[ERROR_SCALE]
    return not is_beyond_gate(rules.gate, rules.noise_variance, scale, error, variance)


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


# --- jumps of other signals ----------------------------------------------------------------------


@internal
def _is_jump(numbers, rows, row):  # type: ignore[no-untyped-def]
    """Return whether another signal jumps at a row; `NEXT_JUMP` becomes its first jump."""
    position = numbers[NEXT_JUMP]
    while position < rows.size and rows[position] < row:
        position += 1
    numbers[NEXT_JUMP] = position
    return position < rows.size and rows[position] == row


@internal
def _rows_tell_jumps(lags, numbers, mended):  # type: ignore[no-untyped-def]
    """Return whether the measured rows tell which jumps may be wrong.

    They do if no value of another signal is replaced, and if the model stays: a sample that is held
    back when the plant of before returns stays so.
    """
    n_others = 0
    for i in range(mended.numbers[N_REJECTED]):
        if mended.cells[i, 0] != lags.target:
            n_others += 1
    return numbers[IS_UNDECIDED] == 0 and n_others == 0


@inlined
def _jump_may_be_wrong(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, row
):
    """Return whether a value that jumps at a row may be wrong, so that the row is held back.

    It may be if the row is within the gate with the value before the jump.
    """
    jumps = block.jumps
    mended = block.mended
    scratch = block.explained
    is_last = row == block.rows.targets.size - 1
    may_be_wrong = is_last or not _rows_tell_jumps(lags, block.numbers, mended)
    j = block.numbers[NEXT_JUMP]
    while not may_be_wrong and j < jumps.rows.size and jumps.rows[j] == row:
        if jumps.columns[j, 0] >= 0:
            value = jumps.values_before[j]
            _replace_newest(mended.regressors[row], jumps.columns[j], value, scratch.regressors[0])
            prior_mean = _prior_mean(features, jumps.prior_mean[j])
            _predict_one(rules, state, features, prior_mean, scratch)
            error = mended.targets[row] - scratch.mean[0]
            may_be_wrong = _is_within_gate(rules, state, error, scratch.variance[0])
        j += 1
    return may_be_wrong


# --- decision about a row that is held back ------------------------------------------------------


@inlined
def _find_causes(rules, state, features, lags, block, suspect):  # type: ignore[no-untyped-def]
    """Find the wrong values of other signals that would explain a suspect; return their number.

    See `sysid.outliers.OutlierHandling._find_causes`.
    """
    mended = block.mended
    causes = block.causes
    scratch = block.explained
    n_causes = 0
    n = mended.numbers[N_REJECTED]
    if block.rows.follows[suspect]:
        replace_lags(lags, block.rows, suspect - 1, mended.cells, mended.errors, n, block.before)
    for s in range(lags.newest.shape[0]):
        column = lags.newest[s, 0]
        measured = mended.regressors[suspect, column]
        before = block.before[column]
        after = mended.regressors[suspect + 1, column]
        if not block.rows.follows[suspect] or not _is_closer(after, before, measured):
            continue
        measured_error = 0.0
        measured_cost = 0.0
        for value in (measured, before):
            _replace_newest(
                mended.regressors[suspect], lags.newest[s], value, scratch.regressors[0]
            )
            block.numbers[N_CLIPPED] += _predict_one(rules, state, features, features.mean, scratch)
            error = mended.targets[suspect] - scratch.mean[0]
            variance = scratch.variance[0] + rules.noise_variance
            cost = density_cost(error, variance)
            if value == measured:
                measured_error = error
                measured_cost = cost
        if not _is_within_gate(rules, state, error, scratch.variance[0]):
            continue
        causes.cells[n_causes, 0] = lags.others[s, 0]
        causes.cells[n_causes, 1] = suspect - lags.others[s, 1]
        causes.columns[n_causes, 0] = lags.newest[s, 0]
        causes.columns[n_causes, 1] = lags.newest[s, 1]
        causes.errors[n_causes] = measured - before
        causes.gains[n_causes] = measured_cost - cost
        causes.measured_errors[n_causes] = measured_error
        causes.expected_squares[n_causes] = error * error + variance
        n_causes += 1
    return n_causes


@internal
def _add_cause(causes, i, cells, errors, n):  # type: ignore[no-untyped-def]
    """Append the wrong value of cause i to n errors of measurements; return how many they are."""
    cells[n, 0] = causes.cells[i, 0]
    cells[n, 1] = causes.cells[i, 1]
    errors[n] = causes.errors[i]
    return n + 1


@inlined
def _explain(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, n_causes, n_others
):
    """Return the position of the best explanation of a suspect (`best_explanation`).

    `n_others` is the number of errors without that of its target, which is the last one.
    """
    mended = block.mended
    causes = block.causes
    scratch = block.explained
    row = block.numbers[ROW]
    was_outlier = block.numbers[WAS_OUTLIER] == 1
    target_error = mended.errors[n_others] if was_outlier else 0.0
    for i in range(n_others):
        scratch.cells[i, 0] = mended.cells[i, 0]
        scratch.cells[i, 1] = mended.cells[i, 1]
        scratch.errors[i] = mended.errors[i]
    for i in range(n_causes + 2):
        n = n_others
        if i < n_causes:
            n = _add_cause(causes, i, scratch.cells, scratch.errors, n)
        elif i == n_causes and was_outlier:
            scratch.cells[n, 0] = lags.target
            scratch.cells[n, 1] = row - 1
            scratch.errors[n] = target_error
            n += 1
        target = replace_lags(
            lags, block.rows, row, scratch.cells, scratch.errors, n, scratch.regressors[0]
        )
        block.numbers[N_CLIPPED] += _predict_one(rules, state, features, features.mean, scratch)
        scratch.next_mean[i] = scratch.mean[0]
        scratch.next_latent[i] = scratch.variance[0]
        scratch.next_errors[i] = target - scratch.mean[0]
        scratch.next_variances[i] = scratch.variance[0] + rules.noise_variance
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
def _mend_next_rows(  # type: ignore[no-untyped-def]
    lags, rows, mended, causes, row, n_others, best, n_causes
):
    """Mend the rows from the one after a suspect on, according to its best explanation.

    Its target was right. `n_others` is the number of errors without that of the target.
    """
    n = n_others
    if best < n_causes:
        n = _add_cause(causes, best, mended.cells, mended.errors, n)
    mended.numbers[N_REJECTED] = n
    mend_rows(lags, rows, mended, row)


@inlined
def _look_ahead(  # type: ignore[no-untyped-def]
    rules, state, features, lags, block, opening, n_others
):
    """Begin an opening of the gate at the next row, and compare the rows that come.

    The error of the target comes after the others in the free part of the errors.
    """
    numbers = block.numbers
    mended = block.mended
    low = mended.learned[0]
    high = mended.learned[1]
    row = numbers[ROW]
    output = output_of(lags, block.rows.regressors[row - 1], block.rows.targets[row - 1])
    begin_opening(lags, opening, mended.cells, mended.errors, n_others + 1, row, output, low, high)
    if n_others == 0:
        mean = block.explained.next_mean
        latent = block.explained.next_latent
        wrong = numbers[N_CAUSES]
        right = wrong + 1
        take_predictions(opening, mean[right], latent[right], mean[wrong], latent[wrong])
    numbers[N_CLIPPED_AHEAD] = look_ahead(rules, state, features, lags, block.rows, opening)
    numbers[HAS_OPENED] = 1
    numbers[IS_UNDECIDED] = 0
    confirmed, returned, end = rows_of_opening(opening, block.rows.targets.size)
    numbers[CONFIRMED] = confirmed
    numbers[RETURNED] = returned
    numbers[ENDED] = end
    block.jump[0] = opening.jump[0]


@inlined
def _decide(rules, state, features, lags, block, opening):  # type: ignore[no-untyped-def]
    """Decide about the suspect before the next row, as `sysid.outliers.OutlierHandling` does.

    Mend the rows after it, and return a decision, or a reason to return to the caller.
    """
    numbers = block.numbers
    row = numbers[ROW]
    follows = block.rows.follows[row]
    was_outlier = numbers[WAS_OUTLIER] == 1
    n_others = block.mended.numbers[N_REJECTED] - numbers[WAS_OUTLIER]
    if follows and (row == 1 or not features.has_constant_mean):
        return LEFT_AT_SUSPECT
    n_causes = 0
    best = 1  # nothing was wrong
    if follows:
        n_causes = _find_causes(rules, state, features, lags, block, row - 1)
        best = n_causes + 1
        if n_causes > 0 or was_outlier:
            best = _explain(rules, state, features, lags, block, n_causes, n_others)
    elif was_outlier:
        best = 0
    numbers[N_CAUSES] = n_causes
    numbers[BEST] = best
    if was_outlier and best == n_causes:
        interval = rules.forget_interval
        if interval > 0 and state.counts[N_SEEN] % interval == 0:
            numbers[MUST_FORGET] = 1
        return STAYS_OUTLIER
    if was_outlier or best < n_causes:
        mended = block.mended
        _mend_next_rows(lags, block.rows, mended, block.causes, row, n_others, best, n_causes)
    plant_jumped = was_outlier and best > n_causes
    if plant_jumped and _takes_place(
        row,
        block.mended.errors[n_others],
        numbers[CONFIRMED],
        numbers[RETURNED],
        numbers[ENDED],
        block.jump[0],
    ):
        _look_ahead(rules, state, features, lags, block, opening, n_others)
        if opening.numbers[IS_OVER] == 0:
            return PLANT_MAY_HAVE_JUMPED
    return IS_LEARNED


# --- learning of a row ---------------------------------------------------------------------------


@internal
def _extend_range(lags, mended, row):  # type: ignore[no-untyped-def]
    """Extend the range of the learned outputs by that of a row."""
    if lags.is_change and lags.previous < 0:
        return
    value = output_of(lags, mended.regressors[row], mended.targets[row])
    mended.learned[0] = min(mended.learned[0], value)
    mended.learned[1] = max(mended.learned[1], value)


@internal
def _write_learned_regressor(mended, causes, row, cause, out):  # type: ignore[no-untyped-def]
    """Write the regressor of a row with the earlier value of a signal that was wrong; -1: none."""
    for d in range(out.size):
        out[d] = mended.regressors[row, d]
    if cause >= 0:
        for column in causes.columns[cause]:
            if column >= 0:
                out[column] -= causes.errors[cause]


@inlined
def _begin_suspect(rules, state, lags, block, suspect):  # type: ignore[no-untyped-def]
    """Prepare the learning of a suspect, and return the position of its cause; -1: none."""
    numbers = block.numbers
    state.counts[N_SEEN] -= 1
    state.counts[N_OUTLIERS] -= numbers[WAS_OUTLIER]
    _extend_range(lags, block.mended, suspect)
    if numbers[BEST] < numbers[N_CAUSES]:
        return numbers[BEST]
    if numbers[WAS_OUTLIER] == 1:
        state.errors[OUTLIER_LEVEL] = rules.gate_opens_after
    return -1


@inlined
def _finish_suspect(  # type: ignore[no-untyped-def]
    rules, state, block, suspect, cause, mean, variance
):
    """Report what was decided about a suspect that was learned, and its prediction from before."""
    numbers = block.numbers
    was_outlier = numbers[WAS_OUTLIER] == 1
    report = block.record[suspect]
    report["mean"] = mean
    report["variance"] = variance
    numbers[IS_HELD_BACK] = 0
    if cause >= 0:
        block.n_mended[block.causes.cells[cause, 0]] += 1
    if not was_outlier:
        block.learned_later[suspect] = LEARNED_AT_JUMP
    elif cause >= 0:
        block.learned_later[suspect] = LEARNED_MENDED
    else:
        block.learned_later[suspect] = LEARNED_OUTLIER
        state.errors[OUTLIER_LEVEL] = rules.gate_opens_after


@inlined
def _begin_row(rules, state, features, lags, block, row):  # type: ignore[no-untyped-def]
    """Return whether the next row is learned or withheld, or a reason to return."""
    if block.numbers[MUST_FORGET] == 1:
        return GP_HAS_WORK
    gate_is_open = state.errors[OUTLIER_LEVEL] >= rules.gate_opens_after
    if gate_is_open or not _is_jump(block.numbers, block.jumps.rows, row):
        return IS_LEARNED
    if _jump_may_be_wrong(rules, state, features, lags, block, row):
        return IS_WITHHELD
    block.learned_later[row] = LEARNED_AT_JUMP
    return IS_LEARNED


@inlined
def _count_outlier(rules, state, block, row):  # type: ignore[no-untyped-def]
    """Count a row that was held back as an outlier if it is beyond the gate."""
    report = block.record[row]
    error = block.mended.targets[row] - report["mean"]
    report["outlier"] = not _is_within_gate(rules, state, error, report["variance"])
    if report["outlier"]:
        state.counts[N_OUTLIERS] += 1
        state.errors[OUTLIER_LEVEL] += 1.0


@inlined
def _finish_row(rules, state, lags, block, row, action):  # type: ignore[no-untyped-def]
    """Hold back a row that was predicted, if it is withheld or an outlier.

    Return `IS_LEARNED` or `IS_WITHHELD`, or a reason to return.
    """
    numbers = block.numbers
    mended = block.mended
    numbers[ROW] = row + 1
    if action == IS_WITHHELD:
        _count_outlier(rules, state, block, row)
    is_outlier = block.record[row]["outlier"]
    if is_outlier and state.errors[OUTLIER_LEVEL] >= rules.gate_opens_after:
        return OUTLIER_OPENS_GATE
    if is_outlier:
        replace_target(lags, block.rows, mended, row, block.record[row]["mean"])
    if is_outlier or action == IS_WITHHELD:
        numbers[IS_HELD_BACK] = 1
        numbers[WAS_OUTLIER] = is_outlier
        return IS_WITHHELD
    _extend_range(lags, mended, row)
    return IS_LEARNED


@shared
def learn_block(  # type: ignore[no-untyped-def]
    rules, refusing_rules, state, features, lags, block, opening
):
    """Predict and learn rows of a block up to `END`, and return why the loop ended.

    In each step one row is learned: the next one, or the suspect before it. The refusing rules have
    the gate `GATE_REFUSES_ALL`. `opening` is scratch. If the plant may have jumped, it is left as
    it was when the loop had looked ahead.
    """
    numbers = block.numbers
    regressors = block.explained.regressors
    while numbers[ROW] < numbers[END]:
        row = numbers[ROW]
        cause = -1
        is_suspect = numbers[IS_HELD_BACK] == 1
        if is_suspect:
            action = _decide(rules, state, features, lags, block, opening)
        else:
            action = _begin_row(rules, state, features, lags, block, row)
        if action >= 0:
            return action
        if action == STAYS_OUTLIER:
            numbers[IS_HELD_BACK] = 0
            continue
        if is_suspect:
            row -= 1
            cause = _begin_suspect(rules, state, lags, block, row)
        mean = block.record[row]["mean"]
        variance = block.record[row]["variance"]
        _write_learned_regressor(block.mended, block.causes, row, cause, regressors[0])
        to_points(features, regressors, 1, block.point)
        block.prior_mean[row] = _prior_mean(features, block.prior_mean[row])
        n_learned = learn(
            refusing_rules if action == IS_WITHHELD else rules,
            state,
            block.point,
            block.mended.targets[row : row + 1],
            block.prior_mean[row : row + 1],
            FIRST_SAMPLE,
            block.record[row : row + 1],
        )
        if n_learned < 0:
            return ROW_IS_REFUSED
        if is_suspect:
            _finish_suspect(rules, state, block, row, cause, mean, variance)
        else:
            action = _finish_row(rules, state, lags, block, row, action)
        if action >= 0:
            return action
        if action == IS_LEARNED and caller_has_work(rules, state):
            return GP_HAS_WORK
    return ROWS_ARE_DONE
