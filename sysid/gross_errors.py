"""Gross errors of records: single wrong measurements, found before anything is learned.

A gross error is a measured value that the plant does not know of: a failed transmission, the code
of a logger, a spike of a sensor. It spoils everything that is estimated by least squares, also the
scales of the signals. It is found in three steps.

1. *Candidates* are values that are far from the median of their neighbours, or far outside the
   range of the signal. So are values of the output far from their linear prediction one step ahead,
   which may be well within the range. Real values are among them: steps, spikes, the start of a
   pulse.
2. *Estimate.* A linear model with lags of the output and of the inputs is fitted to the rows
   without candidates. All candidates are then unknown. They are estimated together from that model
   by least squares, as missing values are (Isaksson, Identification of ARX models subject to
   missing data, IEEE Transactions on Automatic Control 38, 1993).
3. *Decision.* A candidate of the output is wrong if an additive outlier explains the residuals
   around it far better than an innovation does. A wrong measurement shows in its own residual and,
   by the lags, in the residuals after it, whereas a real movement goes on as the model predicts it
   (Chen and Liu, Joint estimation of model parameters and outlier effects in time series, Journal
   of the American Statistical Association 88, 1993). A candidate of an input is wrong if the
   outputs do not answer to it: the model predicts a clear answer, and the residuals contradict it.
   Where the output answers in the direction of the candidate, but less than the model predicts, the
   plant may saturate, and the value stays. Where the linear model predicts no clear answer, the
   plant may answer to the square of the input: a candidate is wrong, too, if a model with squares
   predicts a clear answer, and the outputs are those of ordinary values.
   Candidates whose answers would drown in the noise one by one are judged together.

Values of which the record does not tell whether they are wrong stay as they are, unless they are
far beyond everything else.

A wrong output becomes a missing value. So does a wrong input, unless the record tells what it was:
an input that holds levels has the level before or the one after it, by the residuals, and the
value of another one is that of the estimate, if this is accurate. A missing input would end each
free run, and all rows that have it among their lags would be lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sysid.arrays import Array
from sysid.narx.lags import Narx, OnMissing
from sysid.narx.record import read_records
from sysid.normal import MEDIAN_OF_NORMAL, STDS_OF_QUANTILE

#: which values of each signal are meant, by the name of the signal: (n,) of bool
Marks = dict[str, NDArray[np.bool_]]

#: Records with fewer samples than this together are not screened.
MIN_SAMPLES_TO_SCREEN = 100

#: attribute of a record that was screened: the number of its gross errors by signal, in JSON
SCREENED = "gross_errors"

#: attribute of a screened record: the number of gross errors of each input that are replaced, in
#: JSON; without it, none are
REPLACED = "gross_errors_replaced"

#: number of samples whose median a value is compared with
N_MEDIAN = 7

#: A value is a candidate if it differs from the median of its neighbours by this many standard
#: deviations of the signal, or from the mean of the signal by this many.
MIN_LOCAL_STDS = 3.0
MIN_GLOBAL_STDS = 4.5

#: quantile at both ends beyond which values do not count for the standard deviation of a signal
CLIPPED_QUANTILE = 0.03

#: Values of an input are candidates only if they are this far from the median of their neighbours:
#: a plant that is not linear contradicts a linear model where its inputs are large.
MIN_LOCAL_STDS_OF_INPUTS = 4.5

#: A value of an output is a candidate, too, if its residual is this many standard deviations of all
#: residuals; such candidates are looked for at most this many times.
MIN_RESIDUAL_STDS = 8.0
MAX_SEARCHES = 8

#: number of samples of a block in which the standard deviation of a signal is looked for
SAMPLES_PER_BLOCK_OF_SCREEN = 100

#: A signal rests for most of a record if it moves this many times more in one of the blocks.
MIN_STD_RATIO_OF_REST = 2.0

#: distance of the first from the last decile of a normal variable, in its standard deviations
STDS_BETWEEN_DECILES = 2.563

#: Nothing is screened if more than this fraction of a signal are candidates.
MAX_CANDIDATE_FRACTION = 0.1

#: Longer runs of candidates of one signal are real: the plant was somewhere else.
MAX_RUN = 12

#: smallest and largest number of lags of the output, and rows needed for each of them
MIN_OUTPUT_LAGS = 2
MAX_OUTPUT_LAGS = 8
ROWS_PER_OUTPUT_LAG = 40

#: smallest and largest number of lags of an input, and rows needed for each of them
MIN_INPUT_LAGS = 3
MAX_INPUT_LAGS = 40
ROWS_PER_INPUT_LAG = 15

#: ridge of the fit, and smallest standard deviation of its residuals, for scaled signals
RIDGE = 1e-6
MIN_STD = 1e-6

#: Residuals of a robust fit count less the larger they are, and from this many standard deviations
#: on not at all. The fit is repeated with new weights at most so many times, or until no residual
#: changes by more than this fraction of the standard deviation.
TUKEY_STDS = 6.0
MAX_TUKEY_REWEIGHTINGS = 20
MIN_REWEIGHTED_CHANGE = 1e-3

#: largest number of rows of a robust fit; p coefficients fitted to n rows add p / n of the noise
#: variance to that of a prediction
MAX_REWEIGHTED_ROWS = 10_000

#: seed of the choice of these rows of a longer record; no period of a record matters to random rows
SEED_OF_REWEIGHTED_ROWS = 0

#: quantile of the magnitudes of its residuals beyond which an error, or the rows after it, may lie
OUTER_QUANTILE_OF_ROBUST_FIT = 0.9

#: standard deviation a priori of an unknown output about its interpolation, for scaled signals
MAX_OUTPUT_STDS = 3.0

#: smallest number of rows without candidates for each coefficient
MIN_ROWS_PER_SCREENING_COEFFICIENT = 3

#: The decisions are repeated, with only the wrong values unknown, at most this many times.
MAX_DECISIONS = 3

#: The models are fitted again, with the level of an input in place of its wrong values, until there
#: have been this many fits.
MAX_SCREENING_FITS = 4

#: A wrong value must lower the sum of squared residuals by this many noise variances, and below
#: this fraction of what an innovation leaves.
MIN_GAIN = 40.0
MAX_REMAINING_FRACTION = 0.3

#: error of a prediction by the coefficients, as a fraction of the largest value
MAX_RELATIVE_ERROR = 0.005

#: An output whose residual is explained as well by an innovation is wrong only if it misses its
#: estimate by this many standard deviations of the signal.
MIN_UNSUPPORTED_STDS = 3.0

#: An innovation and a wrong measurement look the same if the squared coefficients of the lags of
#: the output add up to at most this.
MAX_MEMORY_WITHOUT_SUPPORT = 0.05

#: Without a memory of the plant it is right if an input was this many standard deviations from its
#: mean, at the same sample or among the samples before it, so many in all.
EXCUSING_INPUT_STDS = 2.0
EXCUSING_SAMPLES = 4

#: A coefficient of an input, or a combination of them, counts if it is this many standard errors
#: from 0.
MIN_T_VALUE = 4.0

#: The model must predict an answer to an input whose square is this many noise variances; otherwise
#: the outputs cannot tell whether the input was wrong.
MIN_PREDICTED_POWER = 30.0

#: An input is wrong if its value raises the sum of squared residuals by this fraction of the
#: squared predicted answer.
MIN_CONTRADICTED_FRACTION = 0.4

#: An answer in the direction of an input is real if it is this fraction of the predicted one, and
#: exceeds its uncertainty this many times.
MIN_ANSWER_FRACTION = 0.1
MIN_ANSWER_STDS = 2.5

#: The outputs are those of ordinary values of an input if their answer, by a model with squares, is
#: at least and at most this many of its standard deviations. A square is never far below its mean.
#: The answers to all candidates together exceed their standard deviation at most this many times: a
#: plant that saturates answers to real values, but to any fraction of what a square predicts.
MIN_ORDINARY_STDS = -2.5
MAX_ORDINARY_STDS = 6.0
MAX_JOINT_ORDINARY_STDS = 2.0

#: A value of which the outputs tell nothing is wrong if it is this many times as far from the mean
#: as the quantiles of the signal.
MIN_ISOLATED_RANGES = 25.0

#: A wrong value of an input is replaced by that before and after it if, in the rest of the signal,
#: this fraction of the values between equal ones equals them.
MIN_HELD_FRACTION = 0.98

#: A wrong value of any other input is replaced by its estimate if the standard deviation of that is
#: at most this fraction of the standard deviation of the signal.
MAX_ESTIMATE_STDS = 0.5


class Screened(NamedTuple):
    """Records whose gross errors are missing values; those of inputs may be replaced."""

    records: tuple[xr.Dataset, ...]
    #: number of values that were found in each signal; signals without any are left out
    n_found: dict[str, int]
    marks: tuple[Marks, ...]  # for each record
    inputs: tuple[str, ...] = ()  # signals whose values may have been replaced
    #: (n,) estimates of the wrong values of inputs, nan elsewhere, by name for each record
    estimates: tuple[Mapping[str, Array], ...] = ()

    @property
    def n_replaced(self) -> int:
        """Number of values of inputs that are replaced by a level or by an estimate."""
        return sum(
            sum(json.loads(record.attrs.get(REPLACED, "{}")).values()) for record in self.records
        )

    @property
    def n_values(self) -> int:
        """Number of values that were found in all signals."""
        return sum(self.n_found.values())

    def n_values_of(self, signals: Iterable[str]) -> int:
        """Return the number of values that were found in these signals."""
        return sum(self.n_found.get(name, 0) for name in signals)

    def for_rows(self, narx: Narx) -> Narx:
        """Return the lags that build rows of these records: rows with a gross error are skipped."""
        return replace(narx, on_missing=OnMissing.skip) if self.n_found else narx

    def without(self, signals: Sequence[str], measured: Sequence[xr.Dataset]) -> Screened:
        """Return the same without what was found in these signals, for the measured records."""
        if not self.n_values_of(signals):
            return self
        marks = tuple(
            {
                name: np.zeros_like(is_wrong) if name in signals else is_wrong
                for name, is_wrong in of_record.items()
            }
            for of_record in self.marks
        )
        records = without_gross_errors(measured, marks, self.inputs, self.estimates)
        return Screened(records, _count_by_signal(marks), marks, self.inputs, self.estimates)

    @property
    def counts(self) -> str:
        """Number of values that were found in each signal, in words."""
        return ", ".join(f"{n} of {name}" for name, n in self.n_found.items())

    def describe(self) -> str:
        """Return a sentence on what was found; empty if nothing was."""
        if not self.n_found:
            return ""
        values = "value is" if self.n_values == 1 else "values are"
        confirmed = "as no other sample confirms them; gate=none learns every sample as it is"
        if not self.n_replaced:
            return (
                f"gross errors: {self.n_values} measured {values} taken as missing "
                f"({self.counts}), {confirmed}"
            )
        level = "replaced by the level that the input holds, or by an estimate"
        others = "the others are taken as missing"
        fate = level if self.n_replaced == self.n_values else f"{self.n_replaced} {level}, {others}"
        return (
            f"gross errors: {self.n_values} measured {values} not learned ({self.counts}), "
            f"{confirmed} ({fate})"
        )


def screen_records(
    records: xr.Dataset | Sequence[xr.Dataset],
    outputs: Sequence[str],
    inputs: Sequence[str],
) -> Screened:
    """Find the gross errors of records, and make them missing values (nan).

    See the docstring of the module for the method. An input that holds its levels has the same
    value before and after its gross error: then this value replaces it (`replace_held`). Other
    values of inputs are replaced by their estimates, if these are accurate. A record without gross
    errors keeps its values. Each record gets the attribute ``gross_errors``, the
    number of them by signal in JSON, and ``gross_errors_replaced`` if any were replaced. Records
    that have the first one are not screened again.

    Parameters
    ----------
    records
        As for `Narx.dataset`; values may be missing.
    outputs, inputs
        Names of the signals.

    Returns
    -------
    Screened

    Raises
    ------
    ValueError, TypeError
        As `Narx.dataset`, if signals are missing or records do not fit each other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=500)
    >>> y = np.zeros(500)
    >>> for k in range(1, 500):
    ...     y[k] = 0.8 * y[k - 1] + u[k - 1] + 0.01 * rng.normal()
    >>> y[300] += 30.0
    >>> record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(500.0)})
    >>> screened = screen_records(record, ["y"], ["u"])
    >>> screened.n_found, int(np.flatnonzero(screened.marks[0]["y"])[0])
    ({'y': 1}, 300)
    """
    given = [records] if isinstance(records, xr.Dataset) else list(records)
    names = [*outputs, *inputs]
    read = read_records(given, names)
    if all(SCREENED in record.attrs for record in given):
        missing = [
            {name: ~np.isfinite(values) for name, values in record.signals.items()}
            for record in read
        ]
        n_found = Counter[str]()
        for dataset in given:
            n_found.update(json.loads(dataset.attrs[SCREENED]))
        return Screened(tuple(given), dict(n_found), tuple(missing), tuple(inputs))
    marks, estimates = find_gross_errors([record.signals for record in read], outputs, inputs)
    screened = without_gross_errors(given, marks, inputs, estimates)
    return Screened(
        screened, _count_by_signal(marks), tuple(marks), tuple(inputs), tuple(estimates)
    )


def without_gross_errors(
    records: Sequence[xr.Dataset],
    marks: Sequence[Marks],
    inputs: Sequence[str],
    estimates: Sequence[Mapping[str, Array]] = (),
) -> tuple[xr.Dataset, ...]:
    """Return records in which the marked values are missing (nan), or replaced.

    Values of inputs are replaced by the level that they hold (`replace_held`), or else by their
    estimate, if there is one.
    """
    screened = []
    for number, (dataset, of_record) in enumerate(zip(records, marks, strict=True)):
        changed = {}
        n_replaced = {}
        for name, is_wrong in of_record.items():
            if is_wrong.any():
                variable = dataset[name]
                values = np.where(is_wrong, np.nan, np.asarray(variable.values, dtype=np.float64))
                if name in inputs:
                    values = replace_held(values, is_wrong)
                    if estimates and name in estimates[number]:
                        is_left = is_wrong & ~np.isfinite(values)
                        values = np.where(is_left, estimates[number][name], values)
                    n_replaced[name] = int(np.isfinite(values[is_wrong]).sum())
                changed[name] = (variable.dims, values, variable.attrs)
        counts = json.dumps(_count_by_signal([of_record]))
        attributes = {SCREENED: counts}
        if any(n_replaced.values()):
            attributes[REPLACED] = json.dumps(n_replaced)
        if changed:
            attributes["on_missing"] = OnMissing.skip.value
        screened.append(dataset.assign(changed).assign_attrs(attributes))
    return tuple(screened)


def replace_held(values: Array, is_wrong: NDArray[np.bool_]) -> Array:
    """Return a signal (n,) in which wrong values are replaced by the level that it holds.

    A run of wrong values, which are nan, is replaced if the values next to it are equal, and if the
    other values with equal neighbours nearly always equal these (`MIN_HELD_FRACTION`).
    """
    if not _holds_levels(values):
        return values
    replaced = values.copy()
    for begin, end in _runs(is_wrong):
        if begin > 0 and end < len(values) and values[begin - 1] == values[end]:
            replaced[begin:end] = values[end]
    return replaced


def _holds_levels(values: Array) -> bool:
    """Return whether the values (n,) with equal neighbours nearly always equal these."""
    before, at, after = values[:-2], values[1:-1], values[2:]
    has_equal_neighbours = (before == after) & np.isfinite(at)
    is_held = (at == before)[has_equal_neighbours]
    return len(is_held) > 0 and bool(is_held.mean() >= MIN_HELD_FRACTION)


def have_gross_errors(records: Iterable[xr.Dataset]) -> bool:
    """Return whether gross errors were found in any of the records (`screen_records`)."""
    counts = (json.loads(record.attrs.get(SCREENED, "{}")) for record in records)
    return any(any(count.values()) for count in counts)


def are_untouched(marks: Marks, narx: Narx) -> NDArray[np.bool_]:
    """Return which samples (n,) of a record have no gross error in the target and among the lags.

    Signals without marks have none.
    """
    of_target = marks[narx.target]
    is_touched = of_target.copy()
    for name, lag in narx.features:
        if name in marks:
            is_touched |= _at_lag(marks[name], lag)
    return ~is_touched


def are_rows_untouched(
    screened: Screened, narx: Narx, numbers: Iterable[int], times: Iterable[Any]
) -> NDArray[np.bool_]:
    """Return which of n rows are of samples that no gross error touches (`are_untouched`).

    A row is known by the number of its record among the screened ones, and by its time.
    """
    kept: set[tuple[int, Any]] = set()
    for number, record in enumerate(screened.records):
        is_untouched = are_untouched(screened.marks[number], narx)
        kept.update((number, time) for time in record["time"].values[is_untouched].tolist())
    return np.array([row in kept for row in zip(numbers, times, strict=True)], dtype=bool)


def _at_lag(mask: NDArray[np.bool_], lag: int) -> NDArray[np.bool_]:
    """Return a mask `lag` samples later, false before its start."""
    n = len(mask)
    return np.concatenate([np.zeros(min(lag, n), dtype=bool), mask[: max(n - lag, 0)]])


def _count_by_signal(marks: Sequence[Marks]) -> dict[str, int]:
    """Return the number of marked values of each signal that has any."""
    counts: dict[str, int] = {}
    for of_record in marks:
        for name, mask in of_record.items():
            if mask.any():
                counts[name] = counts.get(name, 0) + int(mask.sum())
    return counts


def find_gross_errors(
    records: Sequence[Mapping[str, Array]], outputs: Sequence[str], inputs: Sequence[str]
) -> tuple[list[Marks], list[dict[str, Array]]]:
    """Return which values (n,) of each signal of each record are gross errors.

    Inputs are compared with every output, and are wrong if no output answers to them. Also return
    estimates (n,) of the wrong values of inputs for each record, nan where there is none.
    """
    names = [*outputs, *inputs]
    nothing = [
        {name: np.zeros(len(record[name]), dtype=bool) for name in names} for record in records
    ]
    n_samples = sum(len(record[names[0]]) for record in records)
    no_estimates: list[dict[str, Array]] = [{} for _ in records]
    if n_samples < MIN_SAMPLES_TO_SCREEN:
        return nothing, no_estimates
    signals = {}
    for name in names:
        min_local = MIN_LOCAL_STDS if name in outputs else MIN_LOCAL_STDS_OF_INPUTS
        values = [np.asarray(record[name], dtype=np.float64) for record in records]
        signal = _Signal.of(values, min_local)
        if signal is not None:
            signals[name] = signal
    _add_candidates_by_residuals(signals, outputs, inputs)
    if not any(signal.has_candidates for signal in signals.values()):
        return nothing, no_estimates
    forward, n_lags, estimates = _find(signals, outputs, inputs)
    # The first samples have no rows of their own: time is reversed to decide about them.
    backward = forward
    if any(mask[:n_lags].any() for signal in signals.values() for mask in signal.is_candidate):
        reversed_signals = {name: signal.reversed() for name, signal in signals.items()}
        backward, _, _ = _find(reversed_signals, outputs, inputs)
        backward = {name: [mask[::-1] for mask in masks] for name, masks in backward.items()}
    for name in signals:
        for number, found in enumerate(nothing):
            found[name] = forward[name][number].copy()
            found[name][:n_lags] |= backward[name][number][:n_lags]
    of_records = [
        {name: of_input[number] for name, of_input in estimates.items()}
        for number in range(len(records))
    ]
    return nothing, of_records


def _add_candidates_by_residuals(
    signals: Mapping[str, _Signal], outputs: Sequence[str], inputs: Sequence[str]
) -> None:
    """Add values of the outputs that are far from a linear prediction one step ahead.

    Such an error may be far smaller than the range of its signal.
    """
    moving_inputs = [name for name in inputs if name in signals]
    for output in outputs:
        if output not in signals:
            continue
        signal = signals[output]
        for _ in range(MAX_SEARCHES):
            unknown = {name: one.is_candidate for name, one in signals.items()}
            model = _Model(signals, output, moving_inputs)
            if not model.fit_robustly(unknown):
                break
            found = []
            for record, is_candidate in enumerate(signal.is_candidate):
                residual = model.estimate(record, unknown).residual
                is_far = np.abs(residual) > MIN_RESIDUAL_STDS * model.std
                # Candidates are estimated: what is far after them is another error of a run.
                is_far &= signal.is_known[record] & ~is_candidate
                # the residuals after an error follow from it
                found.append(is_far & ~_at_lag(_spread(is_far, model.n_output_lags), 1))
            n_candidates = _count({output: signal.is_candidate}) + _count({output: found})
            n_known = sum(int(known.sum()) for known in signal.is_known)
            is_too_many = n_candidates > MAX_CANDIDATE_FRACTION * n_known
            if is_too_many or not _count({output: found}):
                break
            signal.is_candidate = [
                old | new for old, new in zip(signal.is_candidate, found, strict=True)
            ]
            signal.interpolate()


class _Found(NamedTuple):
    """Values that are wrong, and what wrong inputs were instead."""

    wrong: _Masks
    n_lags: int  # of the outputs
    estimates: _Estimates


def _find(signals: Mapping[str, _Signal], outputs: Sequence[str], inputs: Sequence[str]) -> _Found:
    """Return which values are wrong, and estimates of the wrong inputs.

    The models are fitted to rows without candidates among the lags, and with several inputs these
    rows may be few. Where the wrong values of an input can be replaced by its level, the rows with
    them count, too: then the models are fitted once more, and decide about the other candidates.
    """
    moving_inputs = [name for name in inputs if name in signals]
    n_lags = 0
    replaced: _Masks = {}
    for _ in range(MAX_SCREENING_FITS):
        unknown = {name: signal.is_candidate for name, signal in signals.items()}
        models = _fit_models(signals, outputs, moving_inputs, unknown)
        n_lags = max([n_lags, *(model.n_output_lags for model in models)])
        for _ in range(MAX_DECISIONS):
            wrong = _decide(signals, models, moving_inputs, unknown)
            is_settled = _count(wrong) == _count(unknown)
            unknown = wrong
            if is_settled:
                break
        n_undecided = sum(
            _count({name: signals[name].is_candidate}) - _count({name: unknown[name]})
            for name in moving_inputs
        )
        if not n_undecided:
            break
        mended = {}
        for name in moving_inputs:
            mended[name], is_replaced = signals[name].with_levels(unknown[name])
            before = replaced.get(name, [np.zeros_like(mask) for mask in is_replaced])
            replaced[name] = [old | new for old, new in zip(before, is_replaced, strict=True)]
            unknown[name] = [
                mask & ~now for mask, now in zip(unknown[name], is_replaced, strict=True)
            ]
        if all(mended[name] is signals[name] for name in moving_inputs):
            break
        signals = {**signals, **mended}
    _decide_by_squares(signals, models, moving_inputs, unknown)
    estimates = _estimate_inputs(signals, models, moving_inputs, unknown)
    for name, masks in replaced.items():
        unknown[name] = [old | new for old, new in zip(unknown[name], masks, strict=True)]
    return _Found(unknown, n_lags, estimates)


def _fit_models(
    signals: Mapping[str, _Signal], outputs: Sequence[str], inputs: Sequence[str], unknown: _Masks
) -> list[_Model]:
    """Return the linear models of those outputs for which there are enough rows."""
    models = []
    for output in outputs:
        if output in signals:
            model = _Model(signals, output, inputs)
            if model.fit(unknown):
                models.append(model)
    return models


#: which values of each signal are meant: by name, (n,) for each record
_Masks = dict[str, list[NDArray[np.bool_]]]

#: estimates of wrong values of the inputs, in their units: by name, (n,) for each record; nan
#: elsewhere
_Estimates = dict[str, list[Array]]


def _count(masks: _Masks) -> int:
    """Return the number of values that are meant."""
    return sum(int(mask.sum()) for of_records in masks.values() for mask in of_records)


def _estimate_inputs(
    signals: Mapping[str, _Signal], models: Sequence[_Model], inputs: Sequence[str], wrong: _Masks
) -> _Estimates:
    """Return what the wrong values of inputs were, as far as the records tell.

    An input that holds levels had the level before or the one after the wrong values: the change
    is where the outputs fit best. Otherwise the value is that of least squares, if it is accurate.
    Where it is not, the outputs depend little on it, and its effect is smaller than the noise.
    """
    n_records = len(next(iter(signals.values())).values)
    of_models: dict[int, list[_Estimate]] = {}
    found: _Estimates = {}
    for name in inputs:
        signal = signals[name]
        found[name] = [np.full(len(values), np.nan) for values in signal.values]
        for record in range(n_records):
            is_wrong = wrong[name][record]
            if not models or not is_wrong.any():
                continue
            if record not in of_models:
                of_models[record] = [model.estimate(record, wrong) for model in models]
            known = np.where(is_wrong, np.nan, signal.values[record])
            holds_levels = _holds_levels(known)
            low = float(np.nanmin(known))
            high = float(np.nanmax(known))
            for begin, end in _runs(is_wrong):
                if not holds_levels:
                    run = _least_squares_run(
                        signal, name, models, of_models[record], record, begin, end
                    )
                    run = np.clip(run, low, high)
                elif (
                    begin == 0
                    or end == len(known)
                    or not np.isfinite(known[[begin - 1, end]]).all()
                ):
                    continue
                else:
                    levels = (float(known[begin - 1]), float(known[end]))
                    run = _levels_of_run(
                        name, models, of_models[record], begin, end, levels, record
                    )
                found[name][record][begin:end] = signal.centre + signal.unit * run
    return found


def _levels_of_run(
    name: str,
    models: Sequence[_Model],
    estimates: Sequence[_Estimate],
    begin: int,
    end: int,
    levels: tuple[float, float],
    record: int,
) -> Array:
    """Return the values of a run of an input that changes from one level to another in it.

    Of all samples at which it may change, the one that leaves the smallest residuals is taken.
    """
    before, after = levels
    n = end - begin
    runs = []
    costs = []
    for n_before in range(n + 1):
        run = np.where(np.arange(n) < n_before, before, after)
        cost = 0.0
        for model, estimate in zip(models, estimates, strict=True):
            residual = model.residuals_with(estimate, name, record, begin, end, run)
            cost += float(residual @ residual) / model.std**2
        runs.append(run)
        costs.append(cost)
    return runs[int(np.argmin(costs))]


def _least_squares_run(
    signal: _Signal,
    name: str,
    models: Sequence[_Model],
    estimates: Sequence[_Estimate],
    record: int,
    begin: int,
    end: int,
) -> Array:
    """Return the estimates of a run of an input, by the output that tells most about it.

    They are nan unless all are accurate (`MAX_ESTIMATE_STDS`). Their covariance S follows from
    their prior of standard deviation s about the interpolation, the effects E of the run on the
    residuals, and the standard deviation r of these::

        S^-1 = I / s^2 + E'E / r^2
    """
    n = end - begin
    best = np.full(n, np.nan)
    smallest_std = MAX_ESTIMATE_STDS
    for model, estimate in zip(models, estimates, strict=True):
        weights = model.input_weights(name)
        last = min(end - 1 + len(weights), len(estimate.residual))
        effects = np.zeros((last - begin, n))
        for k in range(n):
            effect = weights[: last - begin - k]
            effects[k : k + len(effect), k] = effect
        effects[~model.is_row[record][begin:last]] = 0.0
        precision = np.eye(n) / signal.spread**2 + effects.T @ effects / model.std**2
        std = float(np.sqrt(np.linalg.inv(precision).diagonal().max()))
        if std <= smallest_std:
            smallest_std = std
            best = estimate.values[name][begin:end]
    return best


def _decide_by_squares(
    signals: Mapping[str, _Signal], models: Sequence[_Model], inputs: Sequence[str], wrong: _Masks
) -> None:
    """Mark values of inputs that only a model with the squares of the inputs contradicts.

    It decides about the candidates to which the linear models predict no clear answer.
    """
    undecided: _Masks = {}
    for name in inputs:
        undecided[name] = []
        for record, is_candidate in enumerate(signals[name].is_candidate):
            is_undecided = is_candidate & ~wrong[name][record]
            for k in np.flatnonzero(is_undecided).tolist():
                is_undecided[k] = not any(_is_clear(model, [name], record, k) for model in models)
            undecided[name].append(is_undecided)
    if not models or not _count(undecided):
        return
    all_signals = dict(signals)
    unknown = dict(wrong)
    square_of = {name: f"{name}^2" for name in inputs}
    for name, square in square_of.items():
        all_signals[square] = signals[name].squared()
        unknown[name] = signals[name].is_candidate
        unknown[square] = signals[name].is_candidate
    with_squares = []
    for linear in models:
        model = _Model(all_signals, linear.output, [*inputs, *square_of.values()])
        if model.fit(unknown):
            with_squares.append(model)
    n_records = len(wrong[models[0].output])
    estimates = [
        [model.estimate(record, unknown) for record in range(n_records)] for model in with_squares
    ]
    for name, square in square_of.items():
        ordinary = []
        answers = []
        for record, is_undecided in enumerate(undecided[name]):
            for k in np.flatnonzero(is_undecided).tolist():
                clear = _clear_evidence(with_squares, estimates, [name, square], record, k)
                if not clear or not _are_contradicted(clear):
                    continue
                answer = max(clear, key=lambda one: one.power).answer
                if MIN_ORDINARY_STDS < answer < MAX_ORDINARY_STDS:
                    ordinary.append((record, k))
                    answers.append(answer)
        if sum(answers) <= MAX_JOINT_ORDINARY_STDS * np.sqrt(len(answers)):
            for record, k in ordinary:
                wrong[name][record][k] = True


# --- candidates -----------------------------------------------------------------------------------


@dataclass
class _Signal:
    """One signal of all records, scaled, and its candidates."""

    values: list[Array]  # (n,) of each record, without its mean, over its standard deviation
    is_known: list[NDArray[np.bool_]]  # (n,) of each record: whether the value is finite
    is_candidate: list[NDArray[np.bool_]]  # (n,) of each record
    #: (n,) of each record: interpolated between the values that are no candidates
    neighbours: list[Array] = field(default_factory=list)
    spread: float = 1.0  # of a value about its interpolation, in standard deviations
    reach: float = 0.0  # distance of the quantiles from the mean
    centre: float = 0.0  # that was subtracted from the measured values, unit of the signal
    unit: float = 1.0  # that they were divided by

    @classmethod
    def of(cls, records: Sequence[Array], min_local: float) -> _Signal | None:
        """Return the scaled signal; None if it does not move.

        Candidates are at least `min_local` standard deviations from their neighbours.
        """
        known = [np.isfinite(values) for values in records]
        joined = np.concatenate([v[k] for v, k in zip(records, known, strict=True)])
        if len(joined) < MIN_SAMPLES_TO_SCREEN:
            return None
        low, centre, high = np.quantile(joined, [CLIPPED_QUANTILE, 0.5, 1.0 - CLIPPED_QUANTILE])
        clipped = np.clip(joined, low, high)
        std = float(np.std(clipped))
        if std > 0:
            centre = np.mean(clipped)
        distance = np.abs(joined - centre)
        if not std > 0 and distance.any():  # a signal that rests most of the time
            std = float(np.median(distance[distance > 0]))
        of_blocks = max(_std_of_blocks(v[k]) for v, k in zip(records, known, strict=True))
        if of_blocks > MIN_STD_RATIO_OF_REST * std:
            std = of_blocks
        if not std > 0:
            return None
        with np.errstate(over="ignore"):
            scaled = [(values - centre) / std for values in records]
        candidates = []
        for values, is_known in zip(scaled, known, strict=True):
            candidates.append(_find_candidates(values, is_known, min_local))
        reach = max(high - centre, centre - low, std) / std
        signal = cls(scaled, known, candidates, reach=float(reach), centre=float(centre), unit=std)
        n_candidates = sum(int(is_candidate.sum()) for is_candidate in candidates)
        if n_candidates > MAX_CANDIDATE_FRACTION * len(joined):
            signal.is_candidate = [np.zeros_like(is_known) for is_known in known]
        signal.interpolate()
        return signal

    def reversed(self) -> _Signal:
        """Return the signal with time reversed."""
        signal = _Signal(
            [values[::-1] for values in self.values],
            [known[::-1] for known in self.is_known],
            [candidate[::-1] for candidate in self.is_candidate],
            reach=self.reach,
        )
        signal.interpolate()
        return signal

    def squared(self) -> _Signal:
        """Return the square of the scaled signal, scaled, with the same candidates."""
        squares = [values**2 for values in self.values]
        usable = [
            of_record[known & ~candidate]
            for of_record, known, candidate in zip(
                squares, self.is_known, self.is_candidate, strict=True
            )
        ]
        joined = np.concatenate(usable)
        std = max(float(np.std(joined)), MIN_STD)
        scaled = [(of_record - np.mean(joined)) / std for of_record in squares]
        signal = _Signal(scaled, self.is_known, self.is_candidate)
        signal.interpolate()
        return signal

    def with_levels(
        self, wrong: Sequence[NDArray[np.bool_]]
    ) -> tuple[_Signal, list[NDArray[np.bool_]]]:
        """Return the signal with its level in place of wrong values, and which were replaced.

        See `replace_held`. If none can be replaced, it is this signal. Replaced values are no
        candidates.
        """
        values = []
        replaced = []
        for measured, is_wrong in zip(self.values, wrong, strict=True):
            held = replace_held(np.where(is_wrong, np.nan, measured), is_wrong)
            is_replaced = is_wrong & np.isfinite(held)
            values.append(np.where(is_replaced, held, measured))
            replaced.append(is_replaced)
        if not any(mask.any() for mask in replaced):
            return self, replaced
        candidates = [old & ~new for old, new in zip(self.is_candidate, replaced, strict=True)]
        signal = replace(self, values=values, is_candidate=candidates)
        signal.interpolate()
        return signal, replaced

    @property
    def has_candidates(self) -> bool:
        """Whether any value is a candidate."""
        return any(is_candidate.any() for is_candidate in self.is_candidate)

    def interpolate(self) -> None:
        """Interpolate each value from its neighbours that are no candidates.

        A signal that mostly stays the same is held, any other one is interpolated linearly. Between
        neighbours that tell little the interpolation is replaced by the mean.
        """
        joined_steps = [
            np.diff(values[known]) for values, known in zip(self.values, self.is_known, strict=True)
        ]
        steps = np.concatenate(joined_steps)
        is_held = len(steps) > 0 and bool(np.mean(steps == 0.0) > 0.5)
        self.neighbours = []
        errors = []
        for values, known, candidate in zip(
            self.values, self.is_known, self.is_candidate, strict=True
        ):
            usable = known & ~candidate
            interpolated = _hold(values, usable) if is_held else _between(values, usable)
            self.neighbours.append(interpolated)
            errors.append((values - interpolated)[usable])
        error = np.abs(np.concatenate(errors))
        spread = float(np.quantile(error, 0.95)) / STDS_OF_QUANTILE[0.95] if len(error) else 1.0
        if spread > 1.0:  # the mean is a better guess than the neighbours
            self.neighbours = [np.zeros_like(values) for values in self.values]
            spread = 1.0
        self.spread = max(spread, 1e-3)


def _std_of_blocks(values: Array) -> float:
    """Return the largest standard deviation of blocks of a signal, from their quantiles.

    It is that of the time when the signal moves, if it rests for most of the record.
    """
    n_blocks = len(values) // SAMPLES_PER_BLOCK_OF_SCREEN
    if not n_blocks:
        return 0.0
    blocks = values[: n_blocks * SAMPLES_PER_BLOCK_OF_SCREEN].reshape(
        n_blocks, SAMPLES_PER_BLOCK_OF_SCREEN
    )
    low, high = np.quantile(blocks, [0.1, 0.9], axis=1)
    return float(np.max(high - low)) / STDS_BETWEEN_DECILES


def _find_candidates(
    values: Array, is_known: NDArray[np.bool_], min_local: float
) -> NDArray[np.bool_]:
    """Return which scaled values (n,) may be gross errors."""
    k = np.arange(len(values))
    if not is_known.any():
        return np.zeros(len(values), dtype=bool)
    filled = np.interp(k, k[is_known], values[is_known])
    half = N_MEDIAN // 2
    if len(filled) <= half:
        return np.zeros(len(values), dtype=bool)
    around = sliding_window_view(np.pad(filled, half, mode="reflect"), N_MEDIAN)
    median = np.median(around, axis=1)
    is_far = np.abs(filled - median) > min_local
    is_outside = np.abs(filled) > MIN_GLOBAL_STDS
    is_candidate = (is_far | is_outside) & is_known
    for begin, end in _runs(is_candidate):
        if end - begin > MAX_RUN:
            is_candidate[begin:end] = False
    return is_candidate


def _runs(mask: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the runs of true values."""
    edges = np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))
    begins = np.flatnonzero(edges == 1).tolist()
    ends = np.flatnonzero(edges == -1).tolist()
    yield from zip(begins, ends, strict=True)


def _hold(values: Array, usable: NDArray[np.bool_]) -> Array:
    """Return the last usable value before each sample, the first one before there is any."""
    if not usable.any():
        return np.zeros_like(values)
    position = np.arange(len(values))
    last = np.maximum.accumulate(np.where(usable, position, -1))
    before = np.concatenate([[-1], last[:-1]])
    first = int(np.argmax(usable))
    return np.asarray(values[np.where(before < 0, first, before)])


def _between(values: Array, usable: NDArray[np.bool_]) -> Array:
    """Return the mean of the usable values before and after each sample, weighted by distance."""
    if not usable.any():
        return np.zeros_like(values)
    n = len(values)
    position = np.arange(n)
    last = np.maximum.accumulate(np.where(usable, position, -1))
    before = np.concatenate([[-1], last[:-1]])
    following = np.minimum.accumulate(np.where(usable, position, n)[::-1])[::-1]
    after = np.concatenate([following[1:], [n]])
    has_before = before >= 0
    has_after = after < n
    left = values[np.where(has_before, before, np.minimum(after, n - 1))]
    right = values[np.where(has_after, after, np.maximum(before, 0))]
    gap_left = np.where(has_before, position - before, 1)
    gap_right = np.where(has_after, after - position, 1)
    return np.asarray((left * gap_right + right * gap_left) / (gap_left + gap_right))


# --- the linear model -----------------------------------------------------------------------------


class _Estimate(NamedTuple):
    """Signals of one record in which the unknown values are estimated, and the residuals."""

    values: dict[str, Array]  # (n,) scaled
    residual: Array  # (n,) 0 where there is no row


class _Model:
    """Linear model of one output, with lags of it and of the inputs, and its residuals.

    ``y[k] = c + sum_i a_i y[k-i] + sum_inputs sum_j b_j u[k-j]`` with the scaled signals. Before
    the start of a record the inputs are at their mean.
    """

    def __init__(self, signals: Mapping[str, _Signal], output: str, inputs: Sequence[str]) -> None:
        self.signals = signals
        self.output = output
        self.inputs = list(inputs)
        n = sum(len(values) for values in signals[output].values)
        self.n_output_lags = int(
            np.clip(n // ROWS_PER_OUTPUT_LAG, MIN_OUTPUT_LAGS, MAX_OUTPUT_LAGS)
        )
        n_input_lags = 0
        if self.inputs:
            n_input_lags = n // (ROWS_PER_INPUT_LAG * len(self.inputs))
        self.n_input_lags = int(np.clip(n_input_lags, MIN_INPUT_LAGS, MAX_INPUT_LAGS))
        self.coefficients = np.zeros(0)
        self.std = 1.0  # of the residuals
        self.t_values = np.zeros(0)
        self._covariance: Array = np.zeros((0, 0))  # (p, p) of the coefficients
        self._input_weights: dict[str, Array] = {}  # (n_input_lags,) of the inputs asked for

    @property
    def output_weights(self) -> Array:
        """Effect of y[k] on the residuals of rows k, k + 1, ...: 1, -a_1, -a_2, ..."""
        return np.concatenate([[1.0], -self.coefficients[1 : 1 + self.n_output_lags]])

    def memory(self, n_samples: int) -> float:
        """Return the sum of the squared effects of y[k] on that many samples after it."""
        return float(np.sum(self.output_weights[1 : 1 + n_samples] ** 2))

    def input_weights(self, name: str) -> Array:
        """Effect of u[k] on the residuals of rows k, k + 1, ...; effects of chance are 0.

        The lags of an input that seldom moves are collinear, so that no coefficient may be clear
        alone. Then `_in_clear_directions` tells what is clear of them together.
        """
        if name not in self._input_weights:
            chosen = self._columns_of_input(name)
            coefficients = self.coefficients[chosen]
            is_clear = np.abs(self.t_values[chosen]) > MIN_T_VALUE
            if is_clear.any():
                clear = np.where(is_clear, coefficients, 0.0)
            else:
                clear = _in_clear_directions(coefficients, self._covariance[chosen, chosen])
            self._input_weights[name] = -clear
        return self._input_weights[name]

    def has_clear_lags(self, name: str) -> bool:
        """Whether a coefficient of an input is clear alone."""
        return bool(np.any(np.abs(self.t_values[self._columns_of_input(name)]) > MIN_T_VALUE))

    def _columns_of_input(self, name: str) -> slice:
        """Return the positions of the lags of an input among the coefficients."""
        begin = 1 + self.n_output_lags + self.inputs.index(name) * self.n_input_lags
        return slice(begin, begin + self.n_input_lags)

    def weights(self, name: str) -> Array:
        """Effect of a value of a signal on the residuals from its sample on."""
        return self.output_weights if name == self.output else self.input_weights(name)

    def _features(self, values: Mapping[str, Array], is_chosen: NDArray[np.bool_]) -> Array:
        """Return the features (p, m) of the chosen samples of a record, one feature in each row.

        The first samples of a record lack lags.
        """
        y = values[self.output]
        features = [np.ones(np.count_nonzero(is_chosen))]
        for lag in range(1, self.n_output_lags + 1):
            features.append(_delayed(y, lag)[is_chosen])
        for name in self.inputs:
            for lag in range(self.n_input_lags):
                features.append(_delayed(values[name], lag)[is_chosen])
        return np.array(features)

    def _residual(self, values: Mapping[str, Array]) -> Array:
        """Return the residuals (n,) of all samples of a record; the first ones lack lags."""
        y = values[self.output]
        n = len(y)
        residual = np.convolve(y, self.output_weights)[:n] - self.coefficients[0]
        begin = 1 + self.n_output_lags
        for name in self.inputs:
            effects = self.coefficients[begin : begin + self.n_input_lags]
            residual -= np.convolve(values[name], effects)[:n]
            begin += self.n_input_lags
        return residual

    def _filled(self, name: str, record: int) -> Array:
        """Return a signal without missing values, whose rows do not count."""
        signal = self.signals[name]
        known = signal.is_known[record]
        return np.where(known, signal.values[record], signal.neighbours[record])

    def fit(self, is_unknown: _Masks) -> bool:
        """Fit to the rows without unknown values; return whether there are enough of them.

        Fewer lags of the inputs are taken until there are.
        """
        while not self._fit(is_unknown):
            if self.n_input_lags <= MIN_INPUT_LAGS or not self.inputs:
                return False
            self.n_input_lags = max(MIN_INPUT_LAGS, self.n_input_lags // 2)
        return True

    def fit_robustly(self, is_unknown: _Masks) -> bool:
        """Do what `fit` does, and weigh down rows with large residuals.

        A few errors among the lags spoil least squares, and with them the residuals of all rows.
        The weights are those of Tukey (Beaton and Tukey, The fitting of power series, Technometrics
        16, 1974), iterated. Of a long record at most `MAX_REWEIGHTED_ROWS` rows are taken, which
        suffice for a few dozen coefficients.
        """
        if not self.fit(is_unknown):
            return False
        x, y = self._clean_rows
        if len(y) > MAX_REWEIGHTED_ROWS:
            generator = np.random.default_rng(SEED_OF_REWEIGHTED_ROWS)
            chosen = np.sort(generator.choice(len(y), MAX_REWEIGHTED_ROWS, replace=False))
            x, y = x[:, chosen], y[chosen]
        residual: Array = y - self.coefficients @ x
        for _ in range(MAX_TUKEY_REWEIGHTINGS):
            std = max(float(np.median(np.abs(residual))) / MEDIAN_OF_NORMAL, MIN_STD)
            weights = np.maximum(1.0 - (residual / (TUKEY_STDS * std)) ** 2, 0.0) ** 2
            weighted = weights * x
            gram = weighted @ x.T
            gram[np.diag_indices(len(gram))] += RIDGE * len(y)
            self.coefficients = np.asarray(np.linalg.solve(gram, weighted @ y), dtype=float)
            before = residual
            residual = y - self.coefficients @ x
            if np.abs(residual - before).max() < MIN_REWEIGHTED_CHANGE * std:
                break
        self.std = max(std_of_residuals(residual, OUTER_QUANTILE_OF_ROBUST_FIT), MIN_STD)
        self._input_weights = {}
        return True

    def _fit(self, is_unknown: _Masks) -> bool:
        """Fit the model with the present numbers of lags, if there are enough rows."""
        names = [self.output, *self.inputs]
        designs = []
        targets = []
        self.is_row: list[NDArray[np.bool_]] = []
        for record in range(len(self.signals[self.output].values)):
            values = {name: self._filled(name, record) for name in names}
            y = values[self.output]
            is_row = np.arange(len(y)) >= self.n_output_lags
            is_clean = is_row.copy()
            for name in names:
                n_after = self.n_output_lags + 1 if name == self.output else self.n_input_lags
                missing = ~self.signals[name].is_known[record]
                is_row &= ~_spread(missing, n_after)
                is_clean &= ~_spread(missing | is_unknown[name][record], n_after)
            self.is_row.append(is_row)
            designs.append(self._features(values, is_clean))
            targets.append(y[is_clean])
        x = designs[0] if len(designs) == 1 else np.concatenate(designs, axis=1)
        y = np.concatenate(targets)
        p = len(x)
        if len(y) < MIN_ROWS_PER_SCREENING_COEFFICIENT * p:
            return False
        self._clean_rows = (x, y)
        gram = x @ x.T
        gram[np.diag_indices(p)] += RIDGE * len(y)
        inverse = np.linalg.inv(gram)
        self.coefficients = inverse @ (x @ y)
        self.std = max(std_of_residuals(y - self.coefficients @ x), MIN_STD)
        self.t_values = self.coefficients / (self.std * np.sqrt(np.diag(inverse)))
        self._covariance = np.asarray(self.std**2 * inverse)
        self._input_weights = {}
        return True

    def estimate(self, record: int, is_unknown: _Masks) -> _Estimate:
        """Estimate the unknown values of a record together, by least squares.

        The sum of squared residuals over the noise variance is minimised, with a normal prior of
        every value about its interpolation.
        """
        from scipy.sparse import csc_matrix, diags  # takes long to import
        from scipy.sparse.linalg import spsolve

        names = [self.output, *self.inputs]
        values = {}
        cells: list[tuple[str, int]] = []
        for name in names:
            unknown = is_unknown[name][record]
            neighbours = self.signals[name].neighbours[record]
            values[name] = np.where(unknown, neighbours, self._filled(name, record))
            cells += [(name, k) for k in np.flatnonzero(unknown).tolist()]
        is_row = self.is_row[record]
        residual = np.where(is_row, self._residual(values), 0.0)
        if not cells:
            return _Estimate(values, residual)
        n = len(residual)
        rows = []
        columns = []
        entries = []
        precision = np.empty(len(cells))
        weights = {name: self.weights(name) for name in names}
        for column, (name, k) in enumerate(cells):
            effect = weights[name][: n - k]
            of_rows = np.arange(k, k + len(effect))
            rows.append(of_rows)
            columns.append(np.full(len(effect), column))
            entries.append(np.where(is_row[of_rows], effect, 0.0))
            spread = MAX_OUTPUT_STDS if name == self.output else self.signals[name].spread
            precision[column] = (self.std / spread) ** 2
        shape = (n, len(cells))
        indices = (np.concatenate(rows), np.concatenate(columns))
        effects = csc_matrix((np.concatenate(entries), indices), shape)
        normal = (effects.T @ effects + diags(precision)).tocsc()
        change = np.atleast_1d(spsolve(normal, -(effects.T @ residual)))
        for (name, k), of_cell in zip(cells, change.tolist(), strict=True):
            values[name][k] += of_cell
        return _Estimate(values, residual + effects @ change)

    def variance_with(
        self, estimate: _Estimate, record: int, begin: int, end: int, last: int
    ) -> float:
        """Return the variance of the residuals of the rows from `begin` to before `last`.

        The outputs from `begin` to before `end` are as they were measured. The variance contains
        the error of the coefficients, `MAX_RELATIVE_ERROR` of the largest output among the rows and
        their lags. Other values that are estimated do not count with their measurement.
        """
        first = max(begin - self.n_output_lags, 0)
        values = estimate.values[self.output][first:last].copy()
        measured = self._filled(self.output, record)
        values[begin - first : end - first] = measured[begin:end]
        error = MAX_RELATIVE_ERROR * float(np.abs(values).max())
        return self.std**2 + error**2

    def residuals_with(
        self,
        estimate: _Estimate,
        name: str,
        record: int,
        begin: int,
        end: int,
        run: Array | None = None,
    ) -> Array:
        """Return the residuals from sample `begin` on with other values of a run of a signal.

        The values are those of `run`; None: as they were measured.
        """
        if run is None:
            run = self.signals[name].values[record][begin:end]
        weights = self.weights(name)
        n = len(estimate.residual)
        last = min(end - 1 + len(weights), n)
        residual = estimate.residual[begin:last].copy()
        is_row = self.is_row[record][begin:last]
        for k in range(begin, end):
            error = run[k - begin] - estimate.values[name][k]
            effect = weights[: last - k]
            residual[k - begin : k - begin + len(effect)] += error * effect
        return np.where(is_row, residual, 0.0)


def _in_clear_directions(coefficients: Array, covariance: Array) -> Array:
    """Return the coefficients (p,) without their parts in directions where these may be chance.

    The directions are the eigenvectors of the covariance (p, p), in which the errors of the
    coefficients are independent. A part counts if it is `MIN_T_VALUE` standard errors from 0.
    """
    variances, directions = np.linalg.eigh(covariance)
    parts = coefficients @ directions
    is_clear = np.abs(parts) > MIN_T_VALUE * np.sqrt(np.maximum(variances, 0.0))
    return np.asarray(directions @ np.where(is_clear, parts, 0.0))


def _delayed(values: Array, lag: int) -> Array:
    """Return a signal `lag` samples later, 0 before its start."""
    if not lag:
        return values
    return np.concatenate([np.zeros(min(lag, len(values))), values[:-lag]])


def _spread(mask: NDArray[np.bool_], n: int) -> NDArray[np.bool_]:
    """Return which samples are at most n - 1 samples after a marked one."""
    counts = np.cumsum(mask)
    before = np.concatenate([np.zeros(min(n, len(mask)), dtype=counts.dtype), counts[:-n]])
    return np.asarray(counts > before)


def std_of_residuals(residual: Array, outer_quantile: float = 0.95) -> float:
    """Return a standard deviation that residuals beyond a quantile do not change."""
    magnitude = np.abs(residual - np.median(residual))
    middle = np.quantile(magnitude, 0.5) / MEDIAN_OF_NORMAL
    outer = np.quantile(magnitude, outer_quantile) / STDS_OF_QUANTILE[outer_quantile]
    return float(max(middle, outer))


# --- decisions ------------------------------------------------------------------------------------


class _InputEvidence(NamedTuple):
    """What an output tells about a candidate of an input."""

    power: float  # squared predicted answer, in noise variances
    contradicted: float  # rise of the squared residuals by the measured value, likewise
    fraction: float  # of the predicted answer that the output shows
    answer: float  # the same in its standard deviations


def _decide(
    signals: Mapping[str, _Signal],
    models: Sequence[_Model],
    inputs: Sequence[str],
    unknown: _Masks,
) -> _Masks:
    """Return which of the unknown values are wrong; the others are real, or cannot be decided."""
    wrong = {
        name: [np.zeros_like(mask) for mask in of_records] for name, of_records in unknown.items()
    }
    n_records = len(next(iter(unknown.values())))
    estimates = [
        [model.estimate(record, unknown) for record in range(n_records)] for model in models
    ]
    estimates_for_inputs = []
    for model, of_records in zip(models, estimates, strict=True):
        if model.memory(model.n_output_lags) <= MAX_MEMORY_WITHOUT_SUPPORT:
            # An unknown output would take all of the answer to an input upon itself.
            known_output = [np.zeros_like(mask) for mask in unknown[model.output]]
            unknown_inputs = {**unknown, model.output: known_output}
            of_records = [model.estimate(record, unknown_inputs) for record in range(n_records)]
        estimates_for_inputs.append(of_records)
    for name in inputs:
        _decide_on_input(
            signals[name], name, models, estimates_for_inputs, unknown[name], wrong[name]
        )
    for model, of_records in zip(models, estimates, strict=True):
        name = model.output
        for record, estimate in enumerate(of_records):
            is_excused = np.zeros(len(estimate.residual), dtype=bool)
            for input_name in inputs:
                is_wrong_input = wrong[input_name][record]
                values = signals[input_name].values[record]
                values = np.where(is_wrong_input, estimate.values[input_name], values)
                is_excused |= _spread(np.abs(values) > EXCUSING_INPUT_STDS, EXCUSING_SAMPLES)
            for begin, end in _runs(unknown[name][record]):
                is_wrong = wrong[name][record]
                if _is_wrong_output(model, estimate, record, begin, end, is_excused):
                    is_wrong[begin:end] = True
                elif end - begin > 1:
                    is_wrong[begin:end] = _find_wrong_in_run(model, estimate, record, begin, end)
    return wrong


def _is_wrong_output(
    model: _Model,
    estimate: _Estimate,
    record: int,
    begin: int,
    end: int,
    is_excused: NDArray[np.bool_],
) -> bool:
    """Return whether a run of candidates of an output is wrong.

    Two explanations compete: the measured values are right, and innovations moved the plant there;
    or they are wrong. The first one leaves only the residuals after the run.
    """
    name = model.output
    measured = model.residuals_with(estimate, name, record, begin, end)
    last = begin + len(measured)
    variance = model.variance_with(estimate, record, begin, end, last)
    estimated = estimate.residual[begin : begin + len(measured)]
    cost_of_estimate = float(estimated @ estimated)
    after = measured[end - begin :]
    cost_of_innovation = float(after @ after)
    cost_of_measured = float(measured @ measured)
    gain = (cost_of_innovation - cost_of_estimate) / variance
    if gain > MIN_GAIN and cost_of_estimate < MAX_REMAINING_FRACTION * cost_of_innovation:
        return True
    # At the end of a record, and without a memory of the plant, both explain the same.
    n_after = int(model.is_row[record][end : begin + len(measured)].sum())
    if model.memory(n_after) > MAX_MEMORY_WITHOUT_SUPPORT:
        return False
    has_memory = model.memory(model.n_output_lags) > MAX_MEMORY_WITHOUT_SUPPORT
    are_isolated = all(_is_isolated(model.signals[name], record, k) for k in range(begin, end))
    if not has_memory and is_excused[begin:end].any() and not are_isolated:
        return False
    values = model.signals[name].values[record][begin:end]
    distance = float(np.max(np.abs(values - estimate.values[name][begin:end])))
    return distance > MIN_UNSUPPORTED_STDS and cost_of_measured - cost_of_estimate > (
        MIN_GAIN * variance
    )


def _find_wrong_in_run(
    model: _Model, estimate: _Estimate, record: int, begin: int, end: int
) -> NDArray[np.bool_]:
    """Return which values of a run of candidates of an output are wrong if the others are right."""
    measured = model.residuals_with(estimate, model.output, record, begin, end)
    weights = model.output_weights
    last = begin + len(measured)
    variance = model.variance_with(estimate, record, begin, end, last)
    is_wrong = np.zeros(end - begin, dtype=bool)
    for k in range(end - begin):
        residual = measured[k : k + len(weights)]
        effect = weights[: len(residual)]
        estimated = residual - effect * float(effect @ residual) / float(effect @ effect)
        cost_of_estimate = float(estimated @ estimated)
        cost_of_innovation = float(residual[1:] @ residual[1:])
        gain = (cost_of_innovation - cost_of_estimate) / variance
        is_wrong[k] = (
            gain > MIN_GAIN and cost_of_estimate < MAX_REMAINING_FRACTION * cost_of_innovation
        )
    return is_wrong


def _decide_on_input(
    signal: _Signal,
    name: str,
    models: Sequence[_Model],
    estimates: Sequence[Sequence[_Estimate]],
    unknown: Sequence[NDArray[np.bool_]],
    wrong: Sequence[NDArray[np.bool_]],
) -> None:
    """Mark the candidates of an input that are wrong."""
    has_clear_lags = any(model.has_clear_lags(name) for model in models)
    unclear: list[tuple[int, int]] = []
    contradicted = []
    answers = []
    for record, is_unknown in enumerate(unknown):
        for k in np.flatnonzero(is_unknown).tolist():
            if not has_clear_lags and _is_isolated(signal, record, k):
                wrong[record][k] = True  # the answer to it is too uncertain to judge it
                continue
            clear = _clear_evidence(models, estimates, [name], record, k)
            if not clear:
                wrong[record][k] = _is_isolated(signal, record, k)
                unclear.append((record, k))
                continue
            strongest = max(clear, key=lambda one: one.power)
            has_answered = (
                strongest.fraction > MIN_ANSWER_FRACTION and strongest.answer > MIN_ANSWER_STDS
            )
            if has_answered:
                continue
            if not _are_contradicted(clear):
                unclear.append((record, k))
                continue
            contradicted.append((record, k))
            if strongest.fraction < MIN_ANSWER_FRACTION:
                wrong[record][k] = True
            answers.append(strongest.answer)
    # Answers in the direction of the candidates, each within its uncertainty, add up where the
    # plant saturates.
    saturates = bool(answers) and sum(answers) / np.sqrt(len(answers)) > MIN_ANSWER_STDS
    for record, k in contradicted:
        wrong[record][k] |= not saturates or _is_isolated(signal, record, k)
    if _are_contradicted_together(unclear, name, models, estimates):
        for record, k in unclear:
            wrong[record][k] = True


def _are_contradicted_together(
    candidates: Sequence[tuple[int, int]],
    name: str,
    models: Sequence[_Model],
    estimates: Sequence[Sequence[_Estimate]],
) -> bool:
    """Return whether the outputs contradict samples of an input that none is clear about alone.

    The candidates are records and samples. What the outputs tell about them is added up: they must
    predict a clear answer to all of them, and show none.
    """
    evidence = []
    for record, k in candidates:
        for model, of_records in zip(models, estimates, strict=True):
            if _predicted_power(model, [name], record, k) > 0.0:
                evidence.append(_evidence(model, of_records[record], [name], record, k))
    power = sum(one.power for one in evidence)
    if power <= MIN_PREDICTED_POWER:
        return False
    contradicted = sum(one.contradicted for one in evidence)
    answer = sum(one.fraction * one.power for one in evidence) / np.sqrt(power)
    return bool(contradicted > MIN_CONTRADICTED_FRACTION * power and answer < MIN_ANSWER_STDS)


def _is_isolated(signal: _Signal, record: int, k: int) -> bool:
    """Return whether a value is so far beyond all others that no output has to tell."""
    return bool(abs(signal.values[record][k]) > MIN_ISOLATED_RANGES * signal.reach > 0.0)


def _predicted_answers(model: _Model, names: Sequence[str], record: int, k: int) -> list[Array]:
    """Return the answer of an output to sample k of each of these inputs, from that sample on."""
    is_row = model.is_row[record][k : k + model.n_input_lags]
    answers = []
    for name in names:
        signal = model.signals[name]
        step = float(signal.values[record][k] - signal.neighbours[record][k])
        answers.append(np.where(is_row, step * model.input_weights(name)[: len(is_row)], 0.0))
    return answers


def _predicted_power(model: _Model, names: Sequence[str], record: int, k: int) -> float:
    """Return the squared predicted answer to sample k of these inputs, in noise variances."""
    answer = np.sum(_predicted_answers(model, names, record, k), axis=0)
    return float(answer @ answer) / model.std**2


def _is_clear(model: _Model, names: Sequence[str], record: int, k: int) -> bool:
    """Return whether a model predicts a clear answer to sample k of these inputs."""
    return _predicted_power(model, names, record, k) > MIN_PREDICTED_POWER


def _clear_evidence(
    models: Sequence[_Model],
    estimates: Sequence[Sequence[_Estimate]],
    names: Sequence[str],
    record: int,
    k: int,
) -> list[_InputEvidence]:
    """Return what the outputs tell that, by their models, answer clearly to these inputs."""
    return [
        _evidence(model, of_records[record], names, record, k)
        for model, of_records in zip(models, estimates, strict=True)
        if _is_clear(model, names, record, k)
    ]


def _are_contradicted(evidence: Sequence[_InputEvidence]) -> bool:
    """Return whether all outputs contradict an input as it was measured."""
    return all(one.contradicted > MIN_CONTRADICTED_FRACTION * one.power for one in evidence)


def _evidence(
    model: _Model, estimate: _Estimate, names: Sequence[str], record: int, k: int
) -> _InputEvidence:
    """Return what an output tells about sample k of these inputs, which were measured together.

    The model must predict an answer to it.
    """
    answers = _predicted_answers(model, names, record, k)
    answer = np.sum(answers, axis=0)
    power = float(answer @ answer)
    variance = model.std**2
    estimated = estimate.residual[k : k + len(answer)]
    measured = estimated.copy()
    for name in names:
        measured += model.residuals_with(estimate, name, record, k, k + 1) - estimated
    contradicted = float(measured @ measured - estimated @ estimated)
    # the residuals with the measured value lack what the output has answered less than predicted
    fraction = 1.0 - float(answer @ measured) / power
    strongest = model.signals[names[int(np.argmax([one @ one for one in answers]))]]
    step = float(strongest.values[record][k] - strongest.neighbours[record][k])
    uncertainty = float(np.sqrt(variance / power + (strongest.spread / step) ** 2))
    return _InputEvidence(
        power / variance, contradicted / variance, fraction, fraction / uncertainty
    )
