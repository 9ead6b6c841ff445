"""Dead time of each input: after how many samples it acts on the output.

The output is predicted one step ahead from its own lags and, for each input, from a window of
``N_WINDOW`` lags that begins at the delay d (with z the input and q its square without mean and
without the part that is linear in z)::

    y[k] = c + sum_i a_i y[k-i] + sum_inputs sum_(j=d)^(d+N_WINDOW-1) (b_j z[k-j] + g_j q[k-j])

1. *Scan.* Each delay from 0 on is scored by the error on folds that are held out in turn. The
   windows of all inputs are moved in turn until none moves. This is the choice of ``nk`` by
   validation of Ljung, System Identification (1999), section 16.4, and of `arxstruc` there. The
   squares find inputs whose effect is even, which correlation does not.
2. *Onset.* The window covers where the input begins to act, but may begin earlier. Lags are added
   to the model from the last one of the window backwards, and an F test of each one says whether it
   has an effect beside all later lags. The dead time is the smallest lag with a significant effect.
   The lags of the output whiten the noise, and the later lags of a coloured input take what it has
   in common with the earlier ones, which is what prewhitening does in the method of correlation
   (Bjorklund and Ljung, A review of time-delay estimation techniques, 42nd IEEE CDC, 2003).
   A small effect, which may be an artefact of the linear model, counts only if it begins abruptly
   and the lags from there on lower the held-out error.
3. *Decision.* An abrupt onset is the dead time. An effect that begins slowly, such as that of a
   plant with several lags in series, becomes significant too late. It counts as a dead time only if
   lags that begin with 0 or 1 predict clearly worse, and then the smallest delay is taken whose
   error in the scan is as small as the smallest one. Otherwise this delay is a `slow_onset`: one
   step ahead nothing depends on it, but for a free run lags from there on are tried, too.

A controller that sets the input from the output of the same sample makes lag 0 significant: then no
dead time is found. Other feedback is told in a warning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import fdtrc

from sysid.arrays import Array, Indices, check_whole
from sysid.gross_errors import screen_records, std_of_residuals
from sysid.narx.record import Record, read_records
from sysid.progress_display import shows_progress
from sysid.simulation.linear_models import HeldOutErrors

#: default largest delay that is tried [samples]
MAX_DELAY = 100

#: largest delay that is tried, as a fraction of all samples
MAX_DELAY_FRACTION = 0.2

#: number of lags of the output
N_OUTPUT_LAGS = 10

#: number of lags of an input in its window
N_WINDOW = 6

#: number of lags before the window that are tested for an effect; more where there are at least
#: this many rows for each coefficient
N_TESTED_BEFORE = 15
MIN_ROWS_PER_TESTED_COEFFICIENT = 8

#: number of lags after the window that are tested with it
N_TESTED_AFTER = 3

#: number of folds that are held out in turn
N_DELAY_FOLDS = 5

#: Where gross errors were found in the records, rows whose error exceeds this many robust standard
#: deviations are left out, unless they are more than this fraction of the rows.
LARGE_ERROR_STDS = 4.0
MAX_LARGE_FRACTION = 0.03

#: number of times that rows with large errors are looked for
N_SEARCHES_FOR_LARGE_ERRORS = 5

#: The windows of the inputs are moved at most this many times in turn; those of more inputs than
#: this are moved twice.
MAX_SWEEPS = 3
MAX_INPUTS_FOR_ALL_SWEEPS = 4

#: largest numbers of rows and of lagged features, which limit time and memory
MAX_ROWS = 5000
MAX_LAGGED_FEATURES = 900

#: number of pieces, spread over long records, whose rows are used
N_RECORD_PIECES = 10

#: There is no estimate with fewer rows for each coefficient of the regression.
MIN_ROWS_PER_DELAY_COEFFICIENT = 3

#: probability of a false alarm below which a lag has an effect
MAX_ONSET_P_VALUE = 1e-8

#: smallest effect of a lag, as a fraction of the largest one among the lags of the regression;
#: smaller ones are artefacts of linear models of a nonlinear plant
MIN_ONSET_FRACTION = 0.12

#: A dead time is taken if lags from 0 or 1 on have at least this many times its held-out RMSE.
MIN_ERROR_RATIO_WITHOUT_DELAY = 1.01

#: Delays whose errors have at most this ratio to the smallest one count as equal: the smallest of
#: them is taken if the onset is slow, unless the input is smooth.
MAX_EQUAL_DELAY_ERROR_RATIO = 1.002

#: largest number of lags from 0 or 1 on that are compared with the window
MAX_UNDELAYED_LAGS = 10

#: The onset is abrupt if its sum of squares exceeds those of all lags before by this factor.
MIN_ABRUPT_RATIO = 20.0

#: An input is smooth, so that neighbouring lags hardly differ and no onset is abrupt, if its past
#: explains more than this fraction of its variance.
MAX_PREDICTABLE_FRACTION = 0.99

#: smallest sum of squares of a lag before the onset in this comparison, in noise variances
MIN_SQUARES_BEFORE = 4.0

#: Dead times up to this one are the ordinary ones: those of a sampled plant without a delay.
MAX_UNDELAYED = 1

#: A square is left out if its standard deviation without its linear part is at most this, for an
#: input of standard deviation 1: the square of a binary input is constant.
MIN_SQUARE_STD = 1e-6

#: A record comes from a closed loop if past errors of the output explain at least this fraction of
#: what the past of the input leaves of it, with at most this p-value.
MIN_FEEDBACK_FRACTION = 0.03
MAX_FEEDBACK_P_VALUE = 1e-6
N_FEEDBACK_LAGS = 5


class DeadTime(NamedTuple):
    """Dead time of one input, and what it was found from."""

    #: Number of samples d after which the input acts: y[k] depends on u[k-d], but not on later
    #: inputs. None if no lag has a significant effect, or if the effect begins slowly.
    samples: int | None
    #: (n_delays,) held-out RMSE one step ahead with a window of lags from each delay on, 0, 1, ...
    #: [unit of the output]
    errors: Array
    error_without: float  # the same without this input [unit of the output]
    p_value: float  # of the F test that the lag `samples` has no effect; nan if there is none
    #: Number of samples after which an effect without a dead time, which begins slowly, has begun;
    #: None if it begins at once, or there is none.
    slow_onset: int | None = None

    @property
    def unexplained_fraction(self) -> float:
        """Smallest held-out error as a fraction of that without this input."""
        return float(self.errors.min()) / max(self.error_without, np.finfo(float).tiny)

    @property
    def shift(self) -> int:
        """Number of lags from 0 on that an input with this dead time does not need.

        The lag before the dead time remains, in case the estimate is one sample too large. There is
        no shift for dead times of 0 and 1.
        """
        return _shift_of(self.samples)

    @property
    def largest_shift(self) -> int:
        """Number of lags from 0 on that the input may not need, if its effect begins slowly."""
        return max(self.shift, _shift_of(self.slow_onset))

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {
            "samples": self.samples,
            "slow_onset": self.slow_onset,
            "p_value": None if np.isnan(self.p_value) else self.p_value,
            "rmse_by_delay": self.errors.tolist(),
            "rmse_without": self.error_without,
        }


def _shift_of(delay: int | None) -> int:
    """Return the number of lags from 0 on that an input with this delay does not need."""
    if delay is None or delay <= MAX_UNDELAYED:
        return 0
    return delay - 1


class DeadTimes(NamedTuple):
    """Dead times of the inputs of a record."""

    by_input: dict[str, DeadTime]  # of the inputs with an estimate
    sampling_time: float  # unit of time; nan if it is not known
    time_unit: str
    output_unit: str  # empty if it is not known
    warnings: list[str]  # sentences on what makes the estimates doubtful

    @property
    def has_any(self) -> bool:
        """Whether any input has a dead time of at least 2 samples."""
        return any(found.shift for found in self.by_input.values())

    def shifts(self, inputs: Sequence[str]) -> dict[str, int]:
        """Return the shift of the lags of each input; 0 without an estimate."""
        return {name: self.by_input[name].shift if name in self.by_input else 0 for name in inputs}

    def largest_shifts(self, inputs: Sequence[str]) -> dict[str, int]:
        """Return the largest shift of each input (`DeadTime.largest_shift`)."""
        shifts = self.shifts(inputs)
        return shifts | {
            name: self.by_input[name].largest_shift for name in inputs if name in self.by_input
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        has_seconds = self.time_unit == "s" and np.isfinite(self.sampling_time)
        return {
            "sampling_time": self.sampling_time if has_seconds else None,
            "by_input": {name: found.to_dict() for name, found in self.by_input.items()},
            "warnings": self.warnings,
        }

    def describe(self) -> list[str]:
        """Return a sentence for each dead time of at least 2 samples, and the warnings."""
        sentences = []
        for name, found in self.by_input.items():
            if not found.shift:
                continue
            words = f"{name} acts after {found.samples} samples"
            if self.time_unit == "s" and np.isfinite(self.sampling_time):
                words += f", {found.samples * self.sampling_time:.4g} s"  # type: ignore[operator]
            sentences.append(words)
        return [*sentences, *self.warnings]


@shows_progress("estimating dead times")
def estimate_dead_times(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    max_delay: int = MAX_DELAY,
) -> DeadTimes:
    """Estimate after how many samples each input acts on the output.

    See the docstring of the module for the method.

    Parameters
    ----------
    records
        As for `Narx.dataset`. Gross errors are taken as missing (`screen_records`); if there are
        any, rows with the largest of the other errors are left out. Missing values are
        interpolated; samples whose output is missing are not predicted.
    target, inputs
        Names of the output and of the inputs. Constant inputs have no estimate.
    max_delay
        Largest delay that is tried [samples]. It is at most a fifth of all samples, and less with
        many inputs, or if a record is shorter.

    Returns
    -------
    DeadTimes
        It has no estimates if the output is constant or the records are too short.

    Raises
    ------
    ValueError, TypeError
        As `Narx.dataset`, if signals are missing or records do not fit each other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=1000)
    >>> y = np.zeros(1000)
    >>> for k in range(15, 1000):
    ...     y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 15]) + 0.01 * rng.normal()
    >>> record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(1000.0)})
    >>> estimate_dead_times(record, "y", ["u"]).by_input["u"].samples
    15
    """
    check_whole(max_delay, 0, "estimate_dead_times: max_delay")
    screened = screen_records(records, [target], inputs)
    read = read_records(screened.records, [target, *inputs])
    unit = read[0].attributes[target].get("units", "")
    nothing = DeadTimes({}, read[0].sampling_time, read[0].time_unit, unit, [])
    moving = [name for name in inputs if _moves(read, name)]
    if not moving or not _moves(read, target):
        return nothing
    regression = _Regression.of(read, target, moving, max_delay)
    if regression is None:
        return nothing
    windows = regression.scan()
    found = {name: regression.find_onset(name, windows) for name in moving}
    cleaned = regression
    if screened.n_found:
        cleaned, windows = regression.without_large_errors(windows)
    if cleaned is not regression:
        for name in moving:
            of_cleaned = cleaned.find_onset(name, windows)
            # Without noise, the only large errors may be those after the steps of an input: then
            # the input explains less without them.
            if of_cleaned.unexplained_fraction < found[name].unexplained_fraction:
                found[name] = of_cleaned
    warnings = []
    driven = cleaned.find_feedback(windows)
    if driven:
        warnings.append(
            f"{', '.join(driven)} depends on past errors of {target}: the record seems to come "
            "from a closed loop, whose feedback biases dead times and lags"
        )
    return nothing._replace(by_input=found, warnings=warnings)


def _moves(records: Sequence[Record], name: str) -> bool:
    """Whether a signal takes more than one value in any record."""
    for record in records:
        values = record.signals[name]
        known = values[np.isfinite(values)]
        if len(known) and np.ptp(known) > 0:
            return True
    return False


class _Regression:
    """Linear regression of the output on its lags and on windows of lags of the inputs."""

    def __init__(
        self,
        x: Array,
        y: Array,
        sample: Indices,
        columns: Mapping[str, Indices],
        scale: float,
    ) -> None:
        self.x = x  # (n, p) lags of the output, then those of the inputs; standardised
        self.y = y  # (n,) standardised output
        self.sample = sample  # (n,) a number of each row; it rises by 1 to the next sample
        self.columns = columns  # (n_lags, n_features) columns of each input, by lag
        self.scale = scale  # standard deviation of the output
        self.held_out = HeldOutErrors(x, y, N_DELAY_FOLDS)

    @classmethod
    def of(
        cls, records: Sequence[Record], target: str, inputs: Sequence[str], max_delay: int
    ) -> "_Regression | None":
        """Return the regression; None if the records are too short."""
        sizes = [record.n_samples for record in records]
        n_lags = max_delay + N_WINDOW
        n_lags = min(n_lags, int(MAX_DELAY_FRACTION * sum(sizes)) + N_WINDOW)
        n_lags = min(n_lags, MAX_LAGGED_FEATURES // (2 * len(inputs)), min(sizes) // 2)
        first = max(N_OUTPUT_LAGS, n_lags - 1)
        n_rows = sum(size - first for size in sizes)
        n_coefficients = 1 + N_OUTPUT_LAGS + 2 * N_WINDOW * len(inputs)
        n_coefficients += 2 * N_TESTED_BEFORE
        if n_lags <= N_WINDOW or n_rows < MIN_ROWS_PER_DELAY_COEFFICIENT * n_coefficients:
            return None
        output = _standardise([_interpolate(record.signals[target]) for record in records])
        measured = np.concatenate([record.signals[target] for record in records])
        lagged_inputs = {
            name: _with_squares([_interpolate(record.signals[name]) for record in records])
            for name in inputs
        }
        measured_rows = [np.flatnonzero(np.isfinite(r.signals[target][first:])) for r in records]
        kept = _spread_rows(sum(map(len, measured_rows)))
        blocks = []
        targets = []
        samples = []
        n_before = 0
        for number, of_record in enumerate(measured_rows):
            is_of_record = (kept >= n_before) & (kept < n_before + len(of_record))
            rows = of_record[kept[is_of_record] - n_before]
            n_before += len(of_record)
            lags = sliding_window_view(output[number], N_OUTPUT_LAGS)[first - N_OUTPUT_LAGS : -1]
            parts = [lags[rows, ::-1]]
            for features in lagged_inputs.values():
                for values in features:
                    lags = sliding_window_view(values[number], n_lags)[first - n_lags + 1 :]
                    parts.append(lags[rows, ::-1])
            blocks.append(np.hstack(parts))
            targets.append(output[number][first:][rows])
            samples.append(rows + sum(sizes[:number]) + number)
        columns = {}
        begin = N_OUTPUT_LAGS
        for name, features in lagged_inputs.items():
            n = n_lags * len(features)
            columns[name] = begin + np.arange(n).reshape(len(features), n_lags).T
            begin += n
        x = np.vstack(blocks)
        y = np.concatenate(targets)
        sample = np.concatenate(samples)
        return cls(x, y, sample, columns, float(np.nanstd(measured)))

    def without_large_errors(self, windows: dict[str, int]) -> tuple["_Regression", dict[str, int]]:
        """Return the regression without the rows of large errors, if these are few, and its scan.

        `windows` are those of the `scan` of this regression.

        Where some gross errors were found, others may have remained: a few of them among the
        outputs or their lags would decide which delay has the smallest error. The errors are those
        of held-out folds, with the windows of the smallest error.
        """
        regression = self
        for _ in range(N_SEARCHES_FOR_LARGE_ERRORS):
            errors = regression.held_out.residuals(regression._others(windows, ""))
            is_kept = np.abs(errors) <= LARGE_ERROR_STDS * std_of_residuals(errors)
            n_large = np.count_nonzero(~is_kept)
            if not n_large or n_large > MAX_LARGE_FRACTION * len(errors):
                break
            regression = _Regression(
                regression.x[is_kept],
                regression.y[is_kept],
                regression.sample[is_kept],
                self.columns,
                self.scale,
            )
            windows = regression.scan()
        return regression, windows

    def _window(self, name: str, delay: int) -> list[int]:
        """Return the columns of an input whose window begins at this delay."""
        columns: list[int] = self.columns[name][delay : delay + N_WINDOW].ravel().tolist()
        return columns

    def _others(self, windows: Mapping[str, int], name: str) -> list[int]:
        """Return the columns of the output, and of the windows of all inputs but one."""
        columns = list(range(N_OUTPUT_LAGS))
        for other, delay in windows.items():
            if other != name:
                columns += self._window(other, delay)
        return columns

    def errors_by_delay(self, name: str, windows: Mapping[str, int]) -> Array:
        """Return the held-out errors for each delay of an input, given the windows of others."""
        others = self._others(windows, name)
        n_delays = len(self.columns[name]) - N_WINDOW + 1
        columns = [others + self._window(name, delay) for delay in range(n_delays)]
        return self.held_out.rmse_of_many(np.array(columns))

    def scan(self) -> dict[str, int]:
        """Return the delay of the window of each input with the smallest held-out error.

        Inputs are added in the order of what they explain alone.
        """
        alone = {name: self.errors_by_delay(name, {}).min() for name in self.columns}
        names = sorted(alone, key=lambda name: alone[name])
        windows: dict[str, int] = {}
        n_sweeps = MAX_SWEEPS if len(names) <= MAX_INPUTS_FOR_ALL_SWEEPS else 2
        for _ in range(n_sweeps):
            before = dict(windows)
            for name in names:
                windows[name] = int(np.argmin(self.errors_by_delay(name, windows)))
            if windows == before or len(names) == 1:
                break
        return windows

    def find_onset(self, name: str, windows: Mapping[str, int]) -> DeadTime:
        """Return the dead time of an input, given the windows of all."""
        errors = self.errors_by_delay(name, windows)
        others = self._others(windows, name)
        error_without = float(self.held_out.rmse(others))
        found = DeadTime(None, self.scale * errors, self.scale * error_without, np.nan)
        latest = self._latest_equal(errors, windows[name])
        end = min(latest + N_WINDOW + N_TESTED_AFTER, len(self.columns[name]))
        first = max(0, windows[name] - self._n_tested_before(name, others))
        squares, p_values = self._test_lags(name, first, end, others)
        # The last lag stands for all later ones, too, if the input is held for many samples.
        squares[-1] = 0.0
        p_values[-1] = 1.0
        is_significant = p_values < MAX_ONSET_P_VALUE
        is_large = squares >= MIN_ONSET_FRACTION * squares.max()
        has_effect = is_significant & is_large
        if not has_effect.any():
            return found
        position = int(np.argmax(has_effect))
        earliest = int(np.argmax(is_significant))
        if _is_abrupt(squares, earliest) and self._needs_earlier_lags(
            name, first, first + position, end, others
        ):
            position = earliest
        delay = first + position
        found = found._replace(samples=delay, p_value=float(p_values[position]))
        if delay <= MAX_UNDELAYED:
            return found
        is_smooth = self._is_smooth(name)
        if _is_abrupt(squares, position) and not is_smooth:
            return found
        smallest = errors.min()
        begin = int(np.argmax(errors <= MAX_EQUAL_DELAY_ERROR_RATIO * smallest))
        needs_delay = (
            self._error_without_delay(name, others) >= MIN_ERROR_RATIO_WITHOUT_DELAY * smallest
        )
        if needs_delay and is_smooth:
            return found
        if needs_delay and begin > MAX_UNDELAYED:
            return found._replace(samples=min(delay, begin))
        onset = min(delay, begin)
        slow_onset = onset if onset > MAX_UNDELAYED else None
        return found._replace(samples=None, p_value=np.nan, slow_onset=slow_onset)

    def _latest_equal(self, errors: Array, delay: int) -> int:
        """Return the last of the delays from this one on whose errors count as equal to its own.

        At most `N_WINDOW` delays follow. Where the effect is slow, neighbouring windows are equally
        good, and an early one ends before the lags of the largest effect.
        """
        following = errors[delay : delay + N_WINDOW + 1]
        is_worse = following > MAX_EQUAL_DELAY_ERROR_RATIO * errors[delay]
        n_equal = int(np.argmax(is_worse)) if is_worse.any() else len(following)
        return delay + n_equal - 1

    def _n_tested_before(self, name: str, others: Sequence[int]) -> int:
        """Return how many lags before the window of an input are tested: as many as rows allow."""
        n_features = self.columns[name].shape[1]
        n_coefficients = len(self.y) // MIN_ROWS_PER_TESTED_COEFFICIENT - len(others)
        return max(N_TESTED_BEFORE, n_coefficients // n_features - N_WINDOW)

    def _needs_earlier_lags(
        self, name: str, first: int, delay: int, end: int, others: Sequence[int]
    ) -> bool:
        """Whether the lags of an input before a delay lower the held-out error clearly."""
        if delay == first:
            return False
        lags = self.columns[name]
        error = self.held_out.rmse([*others, *lags[delay:end].ravel().tolist()])
        with_earlier = self.held_out.rmse([*others, *lags[first:end].ravel().tolist()])
        return MIN_ERROR_RATIO_WITHOUT_DELAY * with_earlier <= error

    def _test_lags(
        self, name: str, first: int, end: int, others: Sequence[int]
    ) -> tuple[Array, Array]:
        """Return the sum of squares that each lag from `first` on explains beside all later ones.

        Also return the p-values of their F tests. The sums of squares are in noise variances.
        """
        tested = self.columns[name][first:end][::-1]
        p = 1 + len(others) + tested.size
        columns = np.empty((len(self.y), p + 1))
        columns[:, 0] = 1.0
        columns[:, 1 : 1 + len(others)] = self.x[:, others]
        columns[:, 1 + len(others) : p] = self.x[:, tested.ravel()]
        columns[:, p] = self.y
        explained = np.asarray(np.linalg.qr(columns, mode="r"))[:, -1] ** 2
        freedom = len(self.y) - p
        noise_variance = max(explained[-1] / freedom, np.finfo(float).tiny)
        n_features = tested.shape[1]
        by_lag = explained[1 + len(others) : p].reshape(-1, n_features).sum(axis=1)[::-1]
        squares = by_lag / noise_variance
        return squares, fdtrc(n_features, freedom, squares / n_features)

    def _is_smooth(self, name: str) -> bool:
        """Whether the past of an input explains nearly all of its variance."""
        of_input = self.x[:, self.columns[name][: 1 + N_OUTPUT_LAGS, 0]]
        centred = of_input - of_input.mean(axis=0)
        now = centred[:, 0]
        past = centred[:, 1:]
        unexplained = now - past @ np.linalg.lstsq(past, now, rcond=None)[0]
        return bool(np.sum(unexplained**2) < (1.0 - MAX_PREDICTABLE_FRACTION) * np.sum(now**2))

    def _error_without_delay(self, name: str, others: Sequence[int]) -> float:
        """Return the smallest held-out error with lags of an input that begin with 0 or 1."""
        errors = []
        for first in range(MAX_UNDELAYED + 1):
            last = min(MAX_UNDELAYED_LAGS + first, len(self.columns[name]))
            for end in range(first + 1, last + 1):
                columns = self.columns[name][first:end].ravel().tolist()
                errors.append(self.held_out.rmse([*others, *columns]))
        return min(errors)

    def find_feedback(self, windows: Mapping[str, int]) -> list[str]:
        """Return the inputs that past errors of the output explain in part."""
        columns = self._others(windows, "")
        x = np.column_stack([np.ones(len(self.y)), self.x[:, columns]])
        error = self.y - x @ np.linalg.lstsq(x, self.y, rcond=None)[0]
        k = np.arange(N_FEEDBACK_LAGS, len(error))
        k = k[self.sample[k] - self.sample[k - N_FEEDBACK_LAGS] == N_FEEDBACK_LAGS]
        past_errors = np.column_stack([error[k - lag] for lag in range(1, N_FEEDBACK_LAGS + 1)])
        driven = []
        for name, by_lag in self.columns.items():
            of_input = self.x[:, by_lag[:, 0]]
            past = of_input[k, 1 : 1 + N_OUTPUT_LAGS]
            p = 1 + past.shape[1] + N_FEEDBACK_LAGS
            if len(k) < MIN_ROWS_PER_DELAY_COEFFICIENT * p:
                continue
            design = np.column_stack([np.ones(len(k)), past, past_errors, of_input[k, 0]])
            explained = np.asarray(np.linalg.qr(design, mode="r"))[:, -1] ** 2
            by_errors = explained[1 + past.shape[1] : p].sum()
            unexplained = max(explained[-1], np.finfo(float).eps * len(k))
            freedom = len(k) - p
            statistic = (by_errors / N_FEEDBACK_LAGS) / (unexplained / freedom)
            p_value = fdtrc(N_FEEDBACK_LAGS, freedom, statistic)
            fraction = by_errors / (by_errors + unexplained)
            if p_value <= MAX_FEEDBACK_P_VALUE and fraction >= MIN_FEEDBACK_FRACTION:
                driven.append(name)
        return driven


def _is_abrupt(squares: Array, position: int) -> bool:
    """Whether the sum of squares of a lag is large compared with those of all lags before it."""
    before = squares[:position].max(initial=MIN_SQUARES_BEFORE)
    return bool(squares[position] >= MIN_ABRUPT_RATIO * before)


def _spread_rows(n: int) -> Indices:
    """Return the numbers of the rows that are used: all, or pieces spread over n rows."""
    if n <= MAX_ROWS:
        return np.arange(n)
    starts = np.linspace(0, n - MAX_ROWS // N_RECORD_PIECES, N_RECORD_PIECES).astype(int)
    return (starts[:, None] + np.arange(MAX_ROWS // N_RECORD_PIECES)).ravel()


def _interpolate(values: Array) -> Array:
    """Return a signal (n,) whose missing values are interpolated; zeros if all are missing."""
    is_known = np.isfinite(values)
    if not is_known.any():
        return np.zeros_like(values)
    k = np.arange(len(values))
    return np.interp(k, k[is_known], values[is_known])


def _standardise(values: Sequence[Array]) -> list[Array]:
    """Return a signal of several records with mean 0 and standard deviation 1."""
    joined = np.concatenate(values)
    return [(part - joined.mean()) / joined.std() for part in values]


def _with_squares(values: Sequence[Array]) -> list[list[Array]]:
    """Return a standardised input of several records, and its square if it is not constant.

    The square is without its mean and without its part that is linear in the input.
    """
    linear = _standardise(values)
    joined = np.concatenate(linear)
    slope = np.mean(joined**3)
    square = [part**2 - 1.0 - slope * part for part in linear]
    std = np.concatenate(square).std()
    if std <= MIN_SQUARE_STD:
        return [linear]
    return [linear, [part / std for part in square]]
