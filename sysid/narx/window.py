"""Regressors of live samples, one by one or in blocks.

They are bit for bit those of the batch lag data set of `Narx`.
"""

from __future__ import annotations

from math import isfinite, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid.arrays import Array, real_numbers
from sysid.errors import UserError
from sysid.narx.lags import LagRows, Narx, OnMissing

NO_INPUT = np.empty(0)  # inputs of one sample of a record without inputs

# Smallest length of the buffer [samples]. When it is full, its newest samples move to its start.
MIN_BUFFER_SAMPLES = 512


class Estimates(NamedTuple):
    """Estimates of missing outputs of consecutive samples (`sysid.narx.record.Estimate`)."""

    values: Array  # (n, n_y) nan where an output is measured, or cannot be estimated
    #: (n, n_y) of bool: rows of the sample with each output as the target, in which estimated lags
    #: are used
    is_informative: NDArray[np.bool_]


class LagPair(NamedTuple):
    """Regressor and target of one sample."""

    regressor: Array  # (n_features,), C-contiguous, not shared with the window
    target: float


class LagWindow:
    """Past samples of one record, from which the regressors of new samples are built.

    A loop that learns from measurements needs one call per sample k (`observe`), or per block of
    samples (`observe_many`). The call takes the outputs y_k measured now and the inputs u_k applied
    from now on, and returns the regressors and targets to learn.

    To predict before y_k is known, and in free run, where y_k *is* the prediction, call `regressor`
    with u_k, which only features of lag 0 use. Then store the sample with `push`.

    Parameters
    ----------
    narx
        Lags. The vectors of outputs and inputs have the order of ``narx.output_names`` and
        ``narx.input_names``.

    Attributes
    ----------
    n_missing : int
        Number of stored samples with a value that is not finite (``on_missing: skip`` only).
    n_skipped : int
        Number of rows that were left out because of them, as in the batch data set.
    n_with_estimates : int
        Number of rows among whose lags are estimates of missing outputs.
    previous_target_value : float
        Target output y[k-1] that belongs to the last returned regressor. With it,
        ``narx.predict.to_value(predicted_target, window.previous_target_value)`` is the predicted
        y[k]. It is NaN before the first regressor, and where a target without lags has no y[k-1].

    Examples
    --------
    >>> window = LagWindow(Narx(outputs={"y": 1}, inputs={"u": 1}))
    >>> window.observe(np.array([20.0]), np.array([0.5])) is None
    True
    >>> window.observe(np.array([20.5]), np.array([0.0]))
    LagPair(regressor=array([20. ,  0.5]), target=0.5)
    >>> window.observe_many(np.array([[20.7], [20.8]]), np.array([[0.0], [0.0]])).regressor
    array([[20.5,  0. ],
           [20.7,  0. ]])
    """

    def __init__(self, narx: Narx) -> None:
        self.n_missing = 0
        self.n_skipped = 0
        self.n_with_estimates = 0
        self.previous_target_value = nan
        self._use(narx)

    def _use(self, narx: Narx) -> None:
        """Build regressors of these lags from now on, and forget all samples."""
        self.narx = narx
        names = narx.signals
        self._width = len(names)
        self._max_lag = narx.max_lag
        self._n_history = max(1, self._max_lag)  # samples before the present one that are kept
        capacity = max(MIN_BUFFER_SAMPLES, 2 * self._n_history + 1)
        self._buffer = np.full((capacity, self._width), nan)
        #: for each value of the buffer, whether it is an estimate; None as long as there are none
        self._is_estimate: NDArray[np.bool_] | None = None
        # positions of the features in the flattened history and present sample
        self._feature_positions = np.array(
            [
                (self._n_history - lag) * self._width + names.index(name)
                for name, lag in narx.features
            ]
        )
        self._n_outputs = len(narx.output_names)
        self._output_shape = (self._n_outputs,)
        self._input_shape = (self._width - self._n_outputs,)
        self._target = names.index(narx.target)
        self._predict = narx.predict
        self.reset()

    def reset(self) -> None:
        """Forget all samples, because a new record begins. The counts continue."""
        self._now = self._n_history  # row of the present sample in the buffer
        self._buffer[: self._now] = nan
        if self._is_estimate is not None:
            self._is_estimate[:] = False
        self._n_stored = 0  # samples of this record
        self._complete_from = 0  # first sample with no missing value in its history

    @property
    def n_stored(self) -> int:
        """Number of samples of this record that were stored."""
        return self._n_stored

    def change_lags(self, narx: Narx, outputs: Array, inputs: Array) -> None:
        """Go on with other lags of the same signals. The counts continue.

        Parameters
        ----------
        narx : Narx
        outputs, inputs : (n, n_y), (n, n_u)
            The last samples of this record, as they were stored: all of them, or at least as many
            as the largest lag.
        """
        n_stored = self._n_stored
        n_missing = self.n_missing
        self._use(narx)
        past_outputs = outputs[-self._n_history :]
        self._store(past_outputs, inputs[-self._n_history :], len(past_outputs))
        n_before = n_stored - self._n_stored  # samples of this record that are not known any more
        if n_before:
            self._complete_from = n_before + max(self._complete_from, self._n_history)
        self._n_stored = n_stored
        self.n_missing = n_missing

    def regressor(self, input: Array = NO_INPUT) -> Array | None:
        """Return the regressor of the present sample, before its output is known.

        Parameters
        ----------
        input : (n_u,)
            Inputs u_k applied from now on.

        Returns
        -------
        (n_features,) or None
            None while fewer than `max_lag` samples are stored, or if a value of the regressor or
            y[k-1] is missing (the latter only if the target has lags).
        """
        inputs = self._buffer[self._now, self._n_outputs :]
        inputs[:] = _read_samples("input", input, self._input_shape)
        history_is_complete = self._n_stored >= self._complete_from
        is_complete = history_is_complete and all(map(isfinite, inputs.tolist()))
        if not is_complete:
            self._check_missing(inputs[None], self._n_outputs)
        if self._n_stored < self._max_lag:
            return None
        window = self._buffer[self._now - self._n_history : self._now + 1]
        row = window.take(self._feature_positions)
        previous = float(self._buffer[self._now - 1, self._target])
        if not is_complete:
            if not np.isfinite(row).all():
                return None
            if self.narx.needs_previous and not isfinite(previous):
                return None
        self.previous_target_value = previous
        return row

    def preview(self, output: Array, input: Array = NO_INPUT) -> LagPair | None:
        """Return what `observe` would return, or raise its error, without storing the sample."""
        previous_of_last_row = self.previous_target_value
        try:
            regressor = self.regressor(input)
            previous = self.previous_target_value
        finally:
            self.previous_target_value = previous_of_last_row
        outputs = _read_samples("output", output, self._output_shape)
        self._check_missing(outputs, 0)
        value = float(outputs[0, self._target])
        if regressor is None or not isfinite(value):
            return None
        return LagPair(regressor, float(self._predict.of(value, previous)))

    def push(self, output: Array, input: Array = NO_INPUT) -> None:
        """Store the present sample; the next one becomes the present.

        Parameters
        ----------
        output, input : (n_y,), (n_u,)
            Outputs y_k and inputs u_k.
        """
        skipped = self.n_skipped
        self.observe_many(output, input)
        self.n_skipped = skipped  # no row was requested, so that none was skipped

    def observe(self, output: Array, input: Array = NO_INPUT) -> LagPair | None:
        """Store the present sample, and return its regressor and target.

        Parameters
        ----------
        output, input : (n_y,), (n_u,)
            Outputs y_k measured now and inputs u_k applied from now on.

        Returns
        -------
        LagPair or None
            None while the window fills, or (``on_missing: skip``) if a value of the row is missing.

        Raises
        ------
        ValueError
            If shapes are wrong, or (``on_missing: error``) a value is not finite. The window is
            unchanged.
        """
        rows = self.observe_many(output, input)
        if not len(rows.target):
            return None
        return LagPair(rows.regressor[0], float(rows.target[0]))

    def observe_many(
        self, outputs: Array, inputs: Array = NO_INPUT, estimates: Estimates | None = None
    ) -> LagRows:
        """Store consecutive samples, and return their regressors and targets.

        Parameters
        ----------
        outputs, inputs : (n, n_y), (n, n_u)
            Outputs and inputs of n samples, or (n_y,), (n_u,) of one sample.
        estimates : Estimates, optional
            Estimates that take the place of missing outputs among the lags of later samples; with
            ``on_missing: skip`` only.

        Returns
        -------
        LagRows
            One row per sample, except while the window fills, and (``on_missing: skip``) except for
            rows with a missing value. ``sample`` counts from the beginning of the record.

        Raises
        ------
        ValueError
            As `observe`; if outputs and inputs differ in length.
        """
        # A single sample in plain arrays takes a short path: it is what a live loop passes.
        n = 1
        is_plain = (
            type(outputs) is type(inputs) is np.ndarray
            and outputs.dtype == inputs.dtype == np.float64
        )
        if not is_plain or outputs.shape != self._output_shape or inputs.shape != self._input_shape:
            outputs = _read_samples("output", outputs, self._output_shape)
            inputs = _read_samples("input", inputs, self._input_shape)
            n = len(outputs)
            if len(inputs) != n:
                raise UserError(
                    f"LagWindow expects as many outputs as inputs, got {n} and {len(inputs)} "
                    "samples"
                )
        first_stored = self._n_stored
        self._store(outputs, inputs, n)
        if estimates is not None:
            self._fill(estimates, n)
            return self._newest_rows(n, estimates.is_informative[:, self._target])
        if n == 1 and first_stored >= self._max_lag and first_stored >= self._complete_from:
            return self._newest_row()
        return self._newest_rows(n)

    def _store(self, outputs: Array, inputs: Array, n: int) -> None:
        """Store n samples; the one after them becomes the present sample."""
        if self._now + n >= len(self._buffer):
            self._make_room(n)
        now = self._now
        n_outputs = self._n_outputs
        block = self._buffer[now : now + n]
        block[:, :n_outputs] = outputs
        block[:, n_outputs:] = inputs
        if self._is_estimate is not None:
            self._is_estimate[now : now + n] = False
        if not all(map(isfinite, block.ravel().tolist())):
            self._check_missing(block, 0)
            missing = np.flatnonzero(~np.isfinite(block).all(axis=1))
            last_missing = self._n_stored + int(missing[-1])
            self.n_missing += len(missing)
            self._complete_from = last_missing + self._n_history + 1
        self._n_stored += n
        self._now = now + n

    def _fill(self, estimates: Estimates, n: int) -> None:
        """Put estimates in place of the missing outputs of the n newest stored samples."""
        if self._is_estimate is None:
            self._is_estimate = np.zeros(self._buffer.shape, dtype=bool)
        newest = slice(self._now - n, self._now)
        outputs = self._buffer[newest, : self._n_outputs]
        is_estimate = ~np.isfinite(outputs) & np.isfinite(estimates.values)
        outputs[is_estimate] = estimates.values[is_estimate]
        self._is_estimate[newest, : self._n_outputs] = is_estimate

    def _newest_row(self) -> LagRows:
        """Return the row of the newest stored sample, all of whose values are known."""
        buffer = self._buffer
        newest = self._now - 1
        window = buffer[newest - self._n_history : newest + 1]
        regressor = window.take(self._feature_positions)[None, :]
        value = buffer[newest, self._target]
        previous = buffer[newest - 1, self._target]
        self.previous_target_value = float(previous)
        target = np.array([self._predict.of(value, previous)])
        return LagRows(regressor, target, np.array([self._n_stored - 1]))

    def _newest_rows(self, n: int, is_informative: NDArray[np.bool_] | None = None) -> LagRows:
        """Return the rows of those of the n newest stored samples whose values are all known.

        Rows with estimated lags are returned where `is_informative` (n,).
        """
        first_stored = self._n_stored - n
        n_filling = max(0, self._max_lag - first_stored)  # samples without a full window
        begin = self._now - n + n_filling  # row of the first sample with a full window
        offsets = self._width * np.arange(n - n_filling)[:, None]
        first_position = (begin - self._n_history) * self._width
        positions = first_position + offsets + self._feature_positions
        regressor = self._buffer.take(positions)
        signal = self._buffer[begin - 1 : self._now, self._target]
        value = signal[1:]
        previous = signal[:-1]
        sample = np.arange(first_stored + n_filling, self._n_stored)
        if first_stored < self._complete_from:
            is_known = np.isfinite(regressor).all(axis=1) & np.isfinite(value)
            if self.narx.needs_previous:
                is_known &= np.isfinite(previous)
            if self._is_estimate is not None:
                of_target = self._is_estimate[begin - 1 : self._now, self._target]
                has_estimate = self._is_estimate.take(positions).any(axis=1)
                if self.narx.needs_previous:
                    has_estimate |= of_target[:-1]
                is_used = ~has_estimate
                if is_informative is not None:
                    is_used |= is_informative[n_filling:]
                is_known &= is_used & ~of_target[1:]
                self.n_with_estimates += int(np.count_nonzero(is_known & has_estimate))
            self.n_skipped += int(np.count_nonzero(~is_known))
            regressor = regressor[is_known]
            value = value[is_known]
            previous = previous[is_known]
            sample = sample[is_known]
        if len(sample):
            self.previous_target_value = float(previous[-1])
        return LagRows(regressor, np.array(self._predict.of(value, previous)), sample)

    def _make_room(self, n: int) -> None:
        """Move the past samples to the start of the buffer.

        The buffer is made larger if n more samples do not fit behind them.
        """
        is_past = slice(self._now - self._n_history, self._now)
        past = self._buffer[is_past].copy()
        n_needed = self._n_history + n
        is_too_small = n_needed >= len(self._buffer)
        if is_too_small:
            self._buffer = np.full((2 * n_needed + 1, self._width), nan)
        self._now = self._n_history
        self._buffer[: self._now] = past
        if self._is_estimate is not None:
            was_estimate = self._is_estimate[is_past].copy()
            if is_too_small:
                self._is_estimate = np.zeros(self._buffer.shape, dtype=bool)
            self._is_estimate[: self._now] = was_estimate

    def _check_missing(self, values: Array, column: int) -> None:
        """Raise UserError for a missing value if ``on_missing`` is ``error``.

        The values (n, m) are those of the signals from `column` on.
        """
        if self.narx.on_missing is not OnMissing.error:
            return
        missing = np.argwhere(~np.isfinite(values))
        if len(missing):
            row, position = missing[0]
            name = self.narx.signals[column + position]
            raise UserError(
                f"Narx(on_missing='error'): signal {name!r} is {values[row, position]} at sample "
                f"{self._n_stored + row} of this record; clean the signal, or set "
                "on_missing='skip'"
            )


def _read_samples(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    """Convert samples to floats (n, m), masked values to nan; a single sample may be (m,)."""
    if type(values) is not np.ndarray or values.dtype != np.float64:
        values = real_numbers(values, f"LagWindow: {name}", missing=True)
    if values.shape == shape:
        return values[None, :]
    if values.ndim != 2 or values.shape[1:] != shape:
        raise UserError(
            f"LagWindow expects {name} of shape {shape}, got {values.shape}; a block of samples "
            f"has (n, {shape[0]})"
        )
    return values
