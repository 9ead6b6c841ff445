"""Decisions about an outlier by the rows after it, in compiled code.

A measurement beyond the gate may be wrong, or the plant has changed. `refutes` decides by the next
row; `look_ahead` compares the rows after an opening of the gate with the predictions of the model
from before it. `sysid.outliers` prepares their arguments and acts on what they return;
`sysid.gp.block_learning` does both for the rows of a block.
"""

import math
from typing import NamedTuple

import numpy as np

from sysid.gp.dictionary import ERROR_SCALE, Dictionary, Rules, internal, predict, shared

# --- measurements that are replaced among the lags of later samples ------------------------------


class Features(NamedTuple):
    """Map from regressors to the coordinates of the kernel, and the mean function; see `AffineMap`.

    The coordinates of x are ``matrix (x - offset)``, or ``(x - offset) / scale`` without a matrix.
    """

    offset: np.ndarray  # (p,)
    scale: np.ndarray  # (p,)
    matrix: np.ndarray  # (q, p); (0, p) without a matrix
    mean: float  # prior mean of the target, if it is a constant
    has_constant_mean: bool


class Lags(NamedTuple):
    """Where the lags of each signal are among the columns of regressors."""

    #: (n_signals, n_lags, 2) columns of each signal and lag; -1: none. There are two if the linear
    #: part has the lag, too
    columns: np.ndarray
    target: int  # signal that is predicted
    previous: int  # column of the output before the target; -1: none
    is_change: bool  # whether the target is the change of the output
    max_lag: int  # largest lag of any signal
    others: np.ndarray  # (n_signals - 1, 2) the signals but the target, and their smallest lags
    newest: np.ndarray  # (n_signals - 1, 2) columns of the newest values of these; -1: none


class Rows(NamedTuple):
    """Rows of a block as they were measured."""

    regressors: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)
    continues: np.ndarray  # (n,) whether each row belongs to the record of the one before it
    follows: np.ndarray  # (n,) whether each row comes right after the one before it


# Positions in `MendedBlock.numbers`.
N_REJECTED, N_CUT = range(2)


class MendedBlock(NamedTuple):
    """Rows of a block in which rejected measurements are replaced; the arrays change in place."""

    #: (2,) N_REJECTED: number of `cells`; N_CUT: replacements cut to the range learned
    numbers: np.ndarray
    cells: np.ndarray  # (c, 2) signal and row of each rejected measurement; the rest is free
    errors: np.ndarray  # (c,) measured value minus its replacement
    learned: np.ndarray  # (2,) range of the outputs that the model has learned
    regressors: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)


# Positions in `OpeningState.numbers`.
(
    NEXT_ROW,
    N_SAMPLES,
    N_CONFIRMED,
    N_REPLACED,
    N_ERRORS_REPLACED,
    N_RETURNED,
    N_OUT_OF_RANGE,
    LAST_FAR_SAMPLE,
    CONFIRMED_ROW,
    RETURNED_ROW,
    END_ROW,
    IS_PREDICTED,
    IS_CONFIRMED,
    HAS_SEEMED_TO_RETURN,
    IS_OVER,
    HAS_RETURNED,
) = range(16)


N_OPENING_NUMBERS = 16


# `LAST_FAR_SAMPLE` while there is none
NO_FAR_SAMPLE = -1


class OpeningState(NamedTuple):
    """State of an opening of the gate (`sysid.outliers.Opening`); the arrays change in place."""

    #: (N_OPENING_NUMBERS,) NEXT_ROW: row of the block that is compared next; N_SAMPLES: samples
    #: since the opening; N_CONFIRMED: samples in a row that the measured lags predict; N_REPLACED:
    #: values in a row that were replaced; N_ERRORS_REPLACED: number of `cells`; N_RETURNED: number
    #: of `returned_regressors`; N_OUT_OF_RANGE: replacements cut to the range learned;
    #: LAST_FAR_SAMPLE: the last sample far outside of the range learned (`FAR_RANGES`), counted as
    #: N_SAMPLES; CONFIRMED_ROW: row of the block that confirmed the measurements; RETURNED_ROW: row
    #: at which the plant seemed to return; END_ROW: row at which the opening is over; IS_PREDICTED:
    #: whether the next row is predicted already; IS_CONFIRMED: whether the samples confirm the
    #: measurements, so that only a jump back can still refute them; HAS_SEEMED_TO_RETURN: whether
    #: the plant then seemed to return, but has not; IS_OVER, HAS_RETURNED: the decision
    numbers: np.ndarray
    jump: np.ndarray  # (1,) error of the measurement at which the gate opened
    cells: np.ndarray  # (c, 2) signal and row of each replaced measurement
    errors: np.ndarray  # (c,) measured value minus its replacement
    learned: np.ndarray  # (2,) range of the outputs that the model has learned
    #: (2, p) the next row as measured, and with replaced lags
    regressors: np.ndarray
    target: np.ndarray  # (1,) target of the next row, with replaced lags
    points: np.ndarray  # (2, q) both in coordinates of the kernel
    mean: np.ndarray  # (2,) their predictions
    variance: np.ndarray  # (2,)
    returned_regressors: np.ndarray  # (N_RETURNED_SAMPLES, p) rows since the plant seemed to return
    returned_targets: np.ndarray  # (N_RETURNED_SAMPLES,)


# The samples that are learned after the gate has opened are forgotten again if the plant of before
# returns after at most this many wrong ones.
MAX_BURST_SAMPLES = 10


# The plant of before has returned if a sample is within this many gates of its prediction from the
# values that replace the burst, beyond as many (of the same width) from that from the measured
# values, and if the first error is at most this fraction of the second one. The gates widen with
# the square root of the number of values that were replaced in a row: each of them follows from
# the replacements before it, so that their errors add up.
RETURN_GATES = 2.0
RETURN_ERROR_FRACTION = 0.2


# Number of samples that the model of before must predict well in a row, from the return on, until
# it takes over with the next one.
N_RETURNED_SAMPLES = 2


# Number of samples in a row whose prediction from the measured lags confirms these.
N_CONFIRMING_SAMPLES = 2


# A prediction confirms its lags only if its standard deviation is at most this many times that of
# the noise. With 4 times, the predictions of an offset far outside of the range learned were taken
# for confirmed, and the burst was learned.
MAX_CONFIRMING_STDS = 2.0


# Samples that confirm the measurements do not tell an offset of the sensor from a jump of a plant
# that goes on as the model knows it. A jump back within `MAX_BURST_SAMPLES` may: the plant of
# before may have returned where the output changes by at least this fraction of the jump, in the
# other direction [-]. It is less than 1, because the output of the plant changes, too.
MIN_JUMP_BACK = 0.25


# A prediction that takes the place of a rejected measurement goes beyond the range of the outputs
# that the model has learned by at most this fraction of the range, on each side [-].
MAX_BEYOND_LEARNED = 0.1


# A measurement that is replaced lies far outside of the range of the outputs that the model has
# learned if it exceeds it by this many ranges [-]. It was wrong if the model of before predicts the
# samples again as soon as none of them has it among its lags.
FAR_RANGES = 0.5


@shared
def is_beyond_gate(gate, noise_variance, scale, error, variance):  # type: ignore[no-untyped-def]
    """Return whether a prediction error is that of an outlier; a gate of 0 is infinitely wide."""
    return gate > 0.0 and error * error > gate * gate * ((variance + noise_variance) * scale)


@shared
def gate_width(gate, noise_variance, scale, variance):  # type: ignore[no-untyped-def]
    """Return the largest prediction error that is no outlier; infinite if the gate is 0."""
    width = gate if gate > 0.0 else math.inf
    return width * math.sqrt((variance + noise_variance) * scale)


@shared
def replace_lags(lags, rows, row, cells, errors, n, out):  # type: ignore[no-untyped-def]
    """Write the regressor of a row with n errors subtracted from its lags; return its target."""
    for d in range(out.size):
        out[d] = rows.regressors[row, d]
    target = rows.targets[row]
    for i in range(n):
        signal = cells[i, 0]
        lag = row - cells[i, 1]
        if 0 <= lag < lags.columns.shape[1]:
            for c in range(lags.columns.shape[2]):
                column = lags.columns[signal, lag, c]
                if column >= 0:
                    out[column] -= errors[i]
        if lags.is_change and signal == lags.target and lag == 1:
            target += errors[i]
    return target


@shared
def replace_lags_of_rows(  # type: ignore[no-untyped-def]
    lags, rows, begin, cells, errors, n, regressors, targets
):
    """Write the rows from `begin` on that have the measurements of n errors among their lags."""
    for row in range(begin, min(begin + lags.max_lag, targets.size)):
        if not rows.continues[row]:
            return
        targets[row] = replace_lags(lags, rows, row, cells, errors, n, regressors[row])


@internal
def output_of(lags, x, y):  # type: ignore[no-untyped-def]
    """Return the output of a row x (p,) with target y; nan if they do not have it."""
    if not lags.is_change:
        return y
    return y + x[lags.previous] if lags.previous >= 0 else math.nan


@shared
def replacement_error(lags, low, high, x, y, mean):  # type: ignore[no-untyped-def]
    """Return by how much a target y of a row x (p,) exceeds its replacement, and if that was cut.

    It is replaced by its predicted mean, unless that is too far beyond the range of the outputs
    learned so far, from low to high (`MAX_BEYOND_LEARNED`). A range that is not known is infinite.
    """
    error = y - mean
    has_value = not lags.is_change or lags.previous >= 0
    is_unknown = low == -math.inf and high == math.inf
    if not has_value or not low < math.inf or is_unknown:
        return error, False
    margin = MAX_BEYOND_LEARNED * (high - low)
    measured = output_of(lags, x, y)
    predicted = measured - error
    replacement = min(max(predicted, low - margin), high + margin)
    if replacement == predicted:
        return error, False
    return measured - replacement, True


@shared
def forget_errors(lags, rows, mended, row):  # type: ignore[no-untyped-def]
    """Keep only the errors that a row, or the one before it, may have among its lags."""
    numbers = mended.numbers
    kept = 0
    for i in range(numbers[N_REJECTED]):
        time = mended.cells[i, 1]
        is_kept = time >= row - lags.max_lag - 1
        for later in range(max(0, time + 1), min(row + 1, rows.targets.size)):
            is_kept = is_kept and rows.continues[later]
        if is_kept:
            mended.cells[kept, 0] = mended.cells[i, 0]
            mended.cells[kept, 1] = time
            mended.errors[kept] = mended.errors[i]
            kept += 1
    numbers[N_REJECTED] = kept


@internal
def mend_rows(lags, rows, mended, begin):  # type: ignore[no-untyped-def]
    """Replace the rejected measurements among the lags of the rows from `begin` on."""
    n = mended.numbers[N_REJECTED]
    replace_lags_of_rows(
        lags, rows, begin, mended.cells, mended.errors, n, mended.regressors, mended.targets
    )


@shared
def replace_target(lags, rows, mended, row, mean):  # type: ignore[no-untyped-def]
    """Replace the target of a row by its predicted mean, in the rows that follow."""
    numbers = mended.numbers
    forget_errors(lags, rows, mended, row)
    low = mended.learned[0]
    high = mended.learned[1]
    x = mended.regressors[row]
    error, is_cut = replacement_error(lags, low, high, x, mended.targets[row], mean)
    if is_cut:
        numbers[N_CUT] += 1
    n = numbers[N_REJECTED]
    mended.cells[n, 0] = lags.target
    mended.cells[n, 1] = row
    mended.errors[n] = error
    numbers[N_REJECTED] = n + 1
    mend_rows(lags, rows, mended, row + 1)


@internal
def to_points(features, regressors, n, points):  # type: ignore[no-untyped-def]
    """Write the coordinates of n regressors, as `AffineMap.transform` does."""
    for i in range(n):
        if features.matrix.shape[0] == 0:
            for d in range(points.shape[1]):
                points[i, d] = (regressors[i, d] - features.offset[d]) / features.scale[d]
        else:
            for c in range(points.shape[1]):
                points[i, c] = 0.0
            for d in range(features.offset.size):
                centred = regressors[i, d] - features.offset[d]
                for c in range(points.shape[1]):
                    points[i, c] += centred * features.matrix[c, d]


# --- decisions about an outlier by the next row --------------------------------------------------


# A measurement beyond the gate is wrong only if, with its replacement, the expected square of the
# next error is at most this fraction of the square of its own error, or of the next error without
# the replacement: a model that is wrong here misses all of them. The same holds for another signal
# that is blamed for an outlier, whose own error must be this small with the replacement, too.
MAX_NEXT_SQUARE_FRACTION = 0.25


def is_closer(value, first, second):  # type: ignore[no-untyped-def]
    """Return whether a value is closer to the first than to the second of two others."""
    return abs(value - first) < abs(value - second)


@shared
def is_close(expected_square, error):  # type: ignore[no-untyped-def]
    """Return whether an expected square of an error is far below the square of another error."""
    return expected_square < MAX_NEXT_SQUARE_FRACTION * error * error


@shared
def density_cost(error, variance):  # type: ignore[no-untyped-def]
    """Return minus twice the log density of a normal error, less a constant."""
    return error * error / variance + math.log(variance)


@shared
def is_refuted(  # type: ignore[no-untyped-def]
    error, error_if_wrong, variance_if_wrong, error_if_right, variance_if_right
):
    """Return whether the sample after an outlier shows that the measurement was wrong.

    Three explanations compete. The measurement was wrong: then the next sample is predicted well
    with the replacement among its lags. It was right, and the plant has moved: then the next sample
    is predicted from the measurement. Or the model is wrong here, as beside a jump that it has
    hardly seen: then the next error is of the size of this one, or is expected to be. A measurement
    is refused only if the first explanation is better than both others. Otherwise it is learned,
    and forgotten again if later samples show that it was part of a burst
    (`sysid.outliers.Opening`).

    `error` is the measurement minus its prediction. The others are the error of the next sample and
    its variance, with noise, if the measurement was wrong, and if it was right.
    """
    cost_if_wrong = density_cost(error_if_wrong, variance_if_wrong)
    cost_if_right = density_cost(error_if_right, variance_if_right)
    expected_square = error_if_wrong * error_if_wrong + variance_if_wrong
    largest_error = max(abs(error), abs(error_if_right))
    return cost_if_wrong < cost_if_right and is_close(expected_square, largest_error)


# Blame another signal only if replacing its value raises twice the log density of the suspect and
# of the next sample by more than this.
MIN_BLAME_GAIN = 2.0


@shared
def best_explanation(  # type: ignore[no-untyped-def]
    n_causes, causes, was_outlier, target_error, errors, variances, costs
):
    """Return the position of what explains a sample that was held back, and the next one, best.

    The explanations are each of the causes, which are wrong values of other signals, then "its
    target was wrong", then "nothing was wrong". The errors (n_causes + 2,) of the next sample and
    their variances, with noise, are those under each of them. `target_error` is the measured target
    minus its prediction. The costs (n_causes + 2,) are written: minus twice the log density.

    A cause counts only if it explains both samples clearly better than "nothing was wrong", and far
    better than a model that is wrong here. An outlier also has to be refuted (`is_refuted`) if its
    target was wrong.
    """
    wrong = n_causes
    right = n_causes + 1
    for i in range(n_causes + 2):
        costs[i] = density_cost(errors[i], variances[i])
    for i in range(n_causes):
        next_square = errors[i] * errors[i] + variances[i]
        measured_error = causes.measured_errors[i]
        is_explained = not was_outlier or (
            is_close(causes.expected_squares[i], measured_error)
            and is_close(next_square, measured_error)
        )
        if is_explained and costs[right] - costs[i] + causes.gains[i] > MIN_BLAME_GAIN:
            costs[i] -= causes.gains[i]
        else:
            costs[i] = math.inf
    if was_outlier and not is_refuted(
        target_error, errors[wrong], variances[wrong], errors[right], variances[right]
    ):
        costs[wrong] = math.inf
    best = 0
    for i in range(1, n_causes + 2):
        if costs[i] < costs[best]:
            best = i
    return best


class Causes(NamedTuple):
    """Wrong values of other signals, each of which would explain a sample that was held back."""

    cells: np.ndarray  # (k, 2) signal and row of each value
    columns: np.ndarray  # (k, 2) its columns in the regressor of the sample; -1: none
    errors: np.ndarray  # (k,) measured value minus the value one sample earlier
    gains: np.ndarray  # (k,) rise of twice the log density of the sample with the earlier value
    measured_errors: np.ndarray  # (k,) error of the sample as it was measured
    expected_squares: np.ndarray  # (k,) expected square of its error with the earlier value


class NextRow(NamedTuple):
    """The row after an outlier as it is if the measurement was wrong, and if it was right."""

    regressors: np.ndarray  # (2, p)
    points: np.ndarray  # (2, q)
    mean: np.ndarray  # (2,) predictions
    variance: np.ndarray  # (2,)
    n_clipped: np.ndarray  # (1,) number of variances that were negative and were clipped at 0


@shared
def refutes(  # type: ignore[no-untyped-def]
    rules, state, features, lags, rows, row, cells, errors, next_row
):
    """Return whether a row shows that the measurement before it was wrong (`is_refuted`).

    The last of the errors is that of this measurement; `cells` has the signal and the row of each.
    What are named tuples elsewhere are plain tuples of their fields here: a call from Python takes
    a microsecond more for each named tuple.
    """
    rules = Rules(*rules)
    state = Dictionary(*state)
    features = Features(*features)
    lags = Lags(*lags)
    rows = Rows(*rows)
    next_row = NextRow(*next_row)
    n = errors.size
    target_if_wrong = replace_lags(lags, rows, row, cells, errors, n, next_row.regressors[0])
    target_if_right = replace_lags(lags, rows, row, cells, errors, n - 1, next_row.regressors[1])
    to_points(features, next_row.regressors, 2, next_row.points)
    mean = next_row.mean
    variance = next_row.variance
    next_row.n_clipped[0] = predict(rules, state, next_row.points, mean, variance)
    mean[0] += features.mean
    mean[1] += features.mean
    noise = rules.noise_variance
    return is_refuted(
        errors[n - 1],
        target_if_wrong - mean[0],
        variance[0] + noise,
        target_if_right - mean[1],
        variance[1] + noise,
    )


# --- openings of the gate ------------------------------------------------------------------------


@internal
def _note_if_far(opening, output):  # type: ignore[no-untyped-def]
    """Remember the present sample if its measured output is far outside of the range learned."""
    low = opening.learned[0]
    high = opening.learned[1]
    margin = FAR_RANGES * (high - low)
    if margin >= 0.0 and (output < low - margin or output > high + margin):
        opening.numbers[LAST_FAR_SAMPLE] = opening.numbers[N_SAMPLES]


@internal
def _drop_old_errors(opening, oldest):  # type: ignore[no-untyped-def]
    """Keep only the errors of measurements from the row `oldest` on."""
    kept = 0
    for i in range(opening.numbers[N_ERRORS_REPLACED]):
        if opening.cells[i, 1] >= oldest:
            opening.cells[kept, 0] = opening.cells[i, 0]
            opening.cells[kept, 1] = opening.cells[i, 1]
            opening.errors[kept] = opening.errors[i]
            kept += 1
    opening.numbers[N_ERRORS_REPLACED] = kept


@shared
def begin_opening(  # type: ignore[no-untyped-def]
    lags, opening, cells, errors, n, row, output, low, high
):
    """Begin an opening at a row with n errors of replaced measurements: cells (c, 2), errors (c,).

    The last error is that of the measurement at which the gate opens. Errors that the row does not
    have among its lags do not count. `output` is the measured output of the sample before; `low`
    and `high` are the range of the outputs that the model has learned.
    """
    numbers = opening.numbers
    for i in range(N_OPENING_NUMBERS):
        numbers[i] = 0
    numbers[NEXT_ROW] = row
    numbers[LAST_FAR_SAMPLE] = NO_FAR_SAMPLE
    opening.learned[0] = low
    opening.learned[1] = high
    for i in range(n):
        opening.cells[i, 0] = cells[i, 0]
        opening.cells[i, 1] = cells[i, 1]
        opening.errors[i] = errors[i]
    opening.jump[0] = errors[n - 1]
    numbers[N_ERRORS_REPLACED] = n
    _drop_old_errors(opening, row - lags.max_lag)
    numbers[N_REPLACED] = numbers[N_ERRORS_REPLACED]
    _note_if_far(opening, output)


@shared
def take_predictions(  # type: ignore[no-untyped-def]
    opening, mean_if_right, variance_if_right, mean_if_wrong, variance_if_wrong
):
    """Take the predictions of the next row if the measurement before it was right, and if not."""
    opening.mean[0] = mean_if_right
    opening.mean[1] = mean_if_wrong
    opening.variance[0] = variance_if_right
    opening.variance[1] = variance_if_wrong
    opening.numbers[IS_PREDICTED] = 1


@internal
def _remember_returned(opening):  # type: ignore[no-untyped-def]
    """Keep the next row, with replaced lags, as one since the plant seemed to return."""
    numbers = opening.numbers
    n = numbers[N_RETURNED]
    if n == 0:
        numbers[RETURNED_ROW] = numbers[NEXT_ROW]
    for d in range(opening.regressors.shape[1]):
        opening.returned_regressors[n, d] = opening.regressors[1, d]
    opening.returned_targets[n] = opening.target[0]
    numbers[N_RETURNED] = n + 1


@internal
def _replace_next(lags, opening):  # type: ignore[no-untyped-def]
    """Replace the target of the next row by its predicted mean, among the lags of later rows."""
    numbers = opening.numbers
    error, is_cut = replacement_error(
        lags,
        opening.learned[0],
        opening.learned[1],
        opening.regressors[1],
        opening.target[0],
        opening.mean[1],
    )
    if is_cut:
        numbers[N_OUT_OF_RANGE] += 1
    n = numbers[N_ERRORS_REPLACED]
    opening.cells[n, 0] = lags.target
    opening.cells[n, 1] = numbers[NEXT_ROW]
    opening.errors[n] = error
    numbers[N_ERRORS_REPLACED] = n + 1
    numbers[N_REPLACED] += 1


@internal
def _largest_lag(lags):  # type: ignore[no-untyped-def]
    """Return the largest lag of the target."""
    largest = 0
    for lag in range(lags.columns.shape[1]):
        if lags.columns[lags.target, lag, 0] >= 0:
            largest = lag
    return largest


@internal
def _may_be_burst(lags, opening):  # type: ignore[no-untyped-def]
    """Return whether the samples since the opening may still turn out to be a burst.

    Where some are far away, the samples after them that have them among their lags, and those that
    confirm the plant of before, come after the burst.
    """
    numbers = opening.numbers
    n_samples = numbers[N_SAMPLES]
    if 0 <= numbers[LAST_FAR_SAMPLE] <= MAX_BURST_SAMPLES:
        n_samples -= _largest_lag(lags) + N_CONFIRMING_SAMPLES
    return n_samples <= MAX_BURST_SAMPLES or numbers[N_RETURNED] > 0


@internal
def _decide_by_confirmed(lags, opening):  # type: ignore[no-untyped-def]
    """Decide about the opening by the last samples, which the measured lags have predicted.

    They confirm their lags: then only a jump back can show that the measurements were wrong.
    Measurements far away need samples that have them among their lags. Where enough samples are
    predicted without them instead, they were wrong.
    """
    numbers = opening.numbers
    n_confirmed = numbers[N_CONFIRMED]
    if numbers[IS_CONFIRMED]:
        return
    if numbers[LAST_FAR_SAMPLE] == NO_FAR_SAMPLE:
        numbers[IS_CONFIRMED] = n_confirmed == N_CONFIRMING_SAMPLES
        numbers[CONFIRMED_ROW] = numbers[NEXT_ROW]
        return
    largest_lag = _largest_lag(lags)
    n_since_lags = max(numbers[N_SAMPLES] - numbers[LAST_FAR_SAMPLE] - largest_lag, 0)
    n_without = min(n_since_lags, n_confirmed)
    if n_confirmed - n_without >= min(N_CONFIRMING_SAMPLES, largest_lag):
        _end_at(opening, numbers[NEXT_ROW])
    elif n_without == N_CONFIRMING_SAMPLES:
        numbers[HAS_RETURNED] = 1
        numbers[N_ERRORS_REPLACED] = 0  # the measured lags are right


def jumps_back(lags, x, y, jump):  # type: ignore[no-untyped-def]
    """Return whether the output of a row x (p,) with target y jumps back.

    It changes by at least `MIN_JUMP_BACK` of the jump, in the other direction. If the row does not
    have the output before it, this is not known, and counts as true.
    """
    if not lags.is_change and lags.previous < 0:
        return True
    change = y if lags.is_change else y - x[lags.previous]
    return bool(-change * jump >= MIN_JUMP_BACK * jump * jump)


_jumps_back = internal(jumps_back)


@internal
def _end_at(opening, row):  # type: ignore[no-untyped-def]
    """End an opening at a row: the measurements were right."""
    opening.numbers[IS_OVER] = 1
    opening.numbers[END_ROW] = row


@internal
def _may_jump_back(lags, rows, opening):  # type: ignore[no-untyped-def]
    """Return whether the output jumps back at a later row, so that this row must be compared.

    If it does at none of the rows that a burst may reach, the opening is over. If some of these
    rows are not known yet, it is not decided.
    """
    numbers = opening.numbers
    begin = numbers[NEXT_ROW]
    end = begin + max(MAX_BURST_SAMPLES - numbers[N_SAMPLES], 0)
    for row in range(begin, end):
        if row == rows.targets.size:
            return False
        if not rows.continues[row]:
            end = row
            break
        if _jumps_back(lags, rows.regressors[row], rows.targets[row], opening.jump[0]):
            return True
    _end_at(opening, end)
    return False


@shared
def compares_next(lags, rows, opening):  # type: ignore[no-untyped-def]
    """Return whether the next row of a block is to be compared with the predictions.

    It is not where the opening is decided, at the end of the block, and where no known row can
    refute measurements that are confirmed.
    """
    numbers = opening.numbers
    is_decided = numbers[IS_OVER] or numbers[HAS_RETURNED]
    if is_decided or numbers[NEXT_ROW] >= rows.targets.size:
        return False
    if not numbers[IS_CONFIRMED] or numbers[N_RETURNED] > 0:
        return True
    return _may_jump_back(lags, rows, opening)


@shared
def begin_comparison(lags, rows, opening):  # type: ignore[no-untyped-def]
    """Write the regressors by which the next row is predicted, and return how many there are.

    They are that with the measured lags and, if values are replaced, that with the replacements.
    None is needed if the predictions are known. Return -1 if the burst would be too long: then the
    opening is over.
    """
    numbers = opening.numbers
    row = numbers[NEXT_ROW]
    numbers[N_SAMPLES] += 1
    if not _may_be_burst(lags, opening):
        _end_at(opening, row)
        return -1
    if not rows.continues[row]:
        numbers[N_ERRORS_REPLACED] = 0
    n_errors = numbers[N_ERRORS_REPLACED]
    for d in range(opening.regressors.shape[1]):
        opening.regressors[0, d] = rows.regressors[row, d]
    opening.target[0] = replace_lags(
        lags, rows, row, opening.cells, opening.errors, n_errors, opening.regressors[1]
    )
    is_predicted = numbers[IS_PREDICTED] == 1
    numbers[IS_PREDICTED] = 0
    if is_predicted and rows.continues[row]:
        return 0
    return 2 if n_errors > 0 else 1


@shared
def finish_comparison(  # type: ignore[no-untyped-def]
    gate, noise_variance, scale, lags, rows, opening
):
    """Compare the next row with both of its predictions (`sysid.outliers.Opening`).

    If the plant has returned for certain, the row is not yet part of the errors.
    """
    numbers = opening.numbers
    row = numbers[NEXT_ROW]
    # widths of the gate for the prediction from measured lags and for that from replaced ones
    width = gate_width(gate, noise_variance, scale, opening.variance[0])
    replaced_width = gate_width(gate, noise_variance, scale, opening.variance[1])
    largest_width = MAX_CONFIRMING_STDS * gate_width(gate, noise_variance, scale, 0.0)
    # errors of both, in gates
    measured = abs(rows.targets[row] - opening.mean[0]) / width
    replaced = abs(opening.target[0] - opening.mean[1]) / replaced_width
    is_informed = width <= largest_width
    # Far from all samples before, the model allows everything: that is no explanation.
    measured_in_same_gates = measured * width / replaced_width
    is_confirmed = measured <= 1.0 and is_informed
    if not rows.continues[row]:
        # no lag is left from before: the model of before is right, or it is not
        if is_confirmed and not numbers[IS_CONFIRMED]:
            numbers[HAS_RETURNED] = 1
        else:
            _end_at(opening, row)
        numbers[HAS_SEEMED_TO_RETURN] = numbers[N_RETURNED] > 0
        numbers[N_RETURNED] = 0
        return
    n_added_up = numbers[N_REPLACED] if numbers[N_ERRORS_REPLACED] > 0 else 1
    return_gates = RETURN_GATES * math.sqrt(max(n_added_up, 1))
    oldest = row - lags.max_lag
    if numbers[N_RETURNED] > 0 and replaced <= return_gates:
        if numbers[N_RETURNED] == N_RETURNED_SAMPLES:
            numbers[HAS_RETURNED] = 1
            return
        _remember_returned(opening)
        _drop_old_errors(opening, oldest)
        return
    if numbers[IS_CONFIRMED] and numbers[N_RETURNED] > 0:
        numbers[HAS_SEEMED_TO_RETURN] = 1
        _end_at(opening, row)
    numbers[N_RETURNED] = 0
    numbers[N_CONFIRMED] = numbers[N_CONFIRMED] + 1 if is_confirmed else 0
    _decide_by_confirmed(lags, opening)
    if numbers[IS_OVER] or numbers[HAS_RETURNED]:
        return
    is_much_better = replaced <= RETURN_ERROR_FRACTION * measured_in_same_gates
    may_return = not numbers[IS_CONFIRMED] or _jumps_back(
        lags, rows.regressors[row], rows.targets[row], opening.jump[0]
    )
    may_return = may_return and not is_confirmed
    if may_return and replaced <= return_gates < measured_in_same_gates and is_much_better:
        _remember_returned(opening)
    elif replaced > 1.0:
        if not is_confirmed:
            _note_if_far(opening, output_of(lags, opening.regressors[1], opening.target[0]))
        _replace_next(lags, opening)
    else:
        numbers[N_REPLACED] = 0
    _drop_old_errors(opening, oldest)


@shared
def set_predictions(opening, n, prior_mean):  # type: ignore[no-untyped-def]
    """Add the prior mean to the n predictions of the next row; both are the same if n is 1."""
    for i in range(n):
        opening.mean[i] += prior_mean
    if n == 1:
        opening.mean[1] = opening.mean[0]
        opening.variance[1] = opening.variance[0]


@shared
def rows_of_opening(opening, after):  # type: ignore[no-untyped-def]
    """Return rows of an opening that tell where another one may take its place (`takes_place`).

    The first row confirms the measurements. At the second one the plant seems to return. At the
    third one the opening is over; `after`, a row after all others, stands for it while that is not
    known. If no row confirms, or the plant does not seem to return, the third row stands there.
    """
    numbers = opening.numbers
    end = numbers[END_ROW] if numbers[IS_OVER] else after
    confirmed = numbers[CONFIRMED_ROW] if numbers[IS_CONFIRMED] else end
    seems_to_return = numbers[N_RETURNED] > 0 or numbers[HAS_SEEMED_TO_RETURN]
    returned = numbers[RETURNED_ROW] if seems_to_return else end
    return confirmed, returned, end


def takes_place(row, error, confirmed, returned, end, jump):  # type: ignore[no-untyped-def]
    """Return whether another opening may begin at a row, with this error of the measurement.

    The other arguments are the `rows_of_opening` of the present opening, and its jump. The present
    one must be over, or its measurements must be confirmed. In the second case an error that is
    much smaller than its jump begins none: a wrong measurement does more harm the larger it is.
    """
    if row >= end:
        return True
    return confirmed <= row < returned and abs(error) >= MIN_JUMP_BACK * abs(jump)


@internal
def look_ahead(rules, state, features, lags, rows, opening):  # type: ignore[no-untyped-def]
    """Compare the rows of a block that come next, until one of them decides about an opening.

    `rules` and `state` are those of the model from before the opening. Return how many of the
    variances were negative and were clipped at 0.
    """
    numbers = opening.numbers
    n_clipped = 0
    while compares_next(lags, rows, opening):
        n = begin_comparison(lags, rows, opening)
        if n > 0:
            to_points(features, opening.regressors, n, opening.points)
            n_clipped += predict(rules, state, opening.points[:n], opening.mean, opening.variance)
            set_predictions(opening, n, features.mean)
        if n >= 0:
            finish_comparison(
                rules.gate, rules.noise_variance, state.errors[ERROR_SCALE], lags, rows, opening
            )
        numbers[NEXT_ROW] += 1
    return n_clipped


@shared
def look_ahead_from_python(  # type: ignore[no-untyped-def]
    rules, state, features, lags, rows, opening
):
    """Call `look_ahead` with plain tuples of the fields, as `refutes` takes them."""
    return look_ahead(
        Rules(*rules),
        Dictionary(*state),
        Features(*features),
        Lags(*lags),
        Rows(*rows),
        OpeningState(*opening),
    )
