"""The live regressor: samples one by one or in blocks, the same bits as the batch lag data set of
`Narx`.
"""

from __future__ import annotations

from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from sysid.arrays import Array
from sysid.errors import UserError, UserTypeError
from sysid.narx.lags import LagRows, Narx, OnMissing

NO_INPUT = np.empty(0)
MIN_CAPACITY = 512  # samples; the buffer is moved to its start once per so many samples


class LagPair(NamedTuple):
    """Regressor and target of one sample."""

    regressor: Array  # (n_features,), C-contiguous, not shared with the window
    target: float


class LagWindow:
    """Past samples of one record, and the regressors of the samples that come.

    In a loop that learns from measurements, one call per sample k (`observe`), or per block of
    samples (`observe_many`), does it all: it takes the outputs y_k measured now and the inputs u_k
    applied from now on, and returns what there is to learn. To predict before y_k is known (and in
    free run, where y_k *is* the prediction), ask for `regressor` with u_k (used by features of lag
    0 only), then store the sample with `push`.

    Parameters
    ----------
    narx
        Lags; the order of ``narx.output_names`` and ``narx.input_names`` is that of the vectors
        here.

    Attributes
    ----------
    n_missing : int
        Samples stored so far with a value that is not finite (``on_missing: skip`` only).
    n_skipped : int
        Rows that were left out because of them, as in the batch data set.
    previous_target_value : float
        Target output y[k-1] that belongs to the regressor returned last (NaN before the first, and
        where a target without lags has none): ``narx.predict.to_value(predicted_target,
        window.previous_target_value)`` is the predicted y[k].

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
        self.narx = narx
        self.n_missing = 0
        self.n_skipped = 0
        self.previous_target_value = nan
        names = narx.signals
        self._width = len(names)
        self._max_lag = narx.max_lag
        self._n_history = max(
            1, self._max_lag
        )  # samples before the present one that the buffer keeps
        self._buffer = np.full((max(MIN_CAPACITY, 2 * self._n_history + 1), self._width), nan)
        self._gather = np.array(
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
        """Forget all samples: a new record begins. The counts go on."""
        self._now = self._n_history  # row of the present sample in the buffer
        self._buffer[: self._now] = nan
        self._n_stored = 0  # samples of this record
        self._complete_from = 0  # first sample whose window surely holds no missing value

    def regressor(self, input: Array = NO_INPUT) -> Array | None:
        """Regressor of the present sample, before its output is known.

        Parameters
        ----------
        input : (n_u,)
            Inputs u_k applied from now on.

        Returns
        -------
        (n_features,) or None
            None while fewer than `max_lag` samples are stored, or if the regressor or y[k-1] is
            missing (the latter only if the target has lags).
        """
        present = self._buffer[self._now]
        present[self._n_outputs :] = _samples("input", input, self._input_shape)
        is_complete = self._n_stored >= self._complete_from and all(
            map(isfinite, present[self._n_outputs :].tolist())
        )
        if not is_complete:
            self._check_missing(present[None, self._n_outputs :], self._n_outputs)
        if self._n_stored < self._max_lag:
            return None
        row = self._buffer[self._now - self._n_history : self._now + 1].take(self._gather)
        previous = float(self._buffer[self._now - 1, self._target])
        if not is_complete and not (
            np.isfinite(row).all() and (isfinite(previous) or not self.narx.needs_previous)
        ):
            return None
        self.previous_target_value = previous
        return row

    def push(self, output: Array, input: Array = NO_INPUT) -> None:
        """Store the present sample; the next one becomes the present.

        Parameters
        ----------
        output, input : (n_y,), (n_u,)
            Outputs y_k and inputs u_k.
        """
        skipped = self.n_skipped
        self.observe_many(output, input)
        self.n_skipped = skipped  # nothing was asked for

    def observe(self, output: Array, input: Array = NO_INPUT) -> LagPair | None:
        """Regressor and target of the present sample, which is then stored.

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
            Wrong shapes; a value that is not finite with ``on_missing: error``. The window is
            unchanged.
        """
        rows = self.observe_many(output, input)
        return LagPair(rows.regressor[0], float(rows.target[0])) if len(rows.target) else None

    def observe_many(self, outputs: Array, inputs: Array = NO_INPUT) -> LagRows:
        """Regressors and targets of consecutive samples, which are then stored.

        Parameters
        ----------
        outputs, inputs : (n, n_y), (n, n_u)
            Or those of one sample, (n_y,), (n_u,).

        Returns
        -------
        LagRows
            One row per sample, but for those while the window fills and (``on_missing: skip``)
            those with a missing value; ``sample`` counts from the begin of the record.

        Raises
        ------
        ValueError
            As `observe`; outputs and inputs of different lengths.
        """
        n = 1
        is_plain = (
            type(outputs) is type(inputs) is np.ndarray
            and outputs.dtype == inputs.dtype == np.float64
        )
        if not is_plain or outputs.shape != self._output_shape or inputs.shape != self._input_shape:
            outputs = _samples("output", outputs, self._output_shape)
            inputs = _samples("input", inputs, self._input_shape)
            n = len(outputs)
            if len(inputs) != n:
                raise UserError(
                    f"LagWindow expects as many outputs as inputs, got {n} and {len(inputs)} samples"
                )
        if self._now + n >= len(self._buffer):
            self._make_room(n)
        now = self._now
        stored = self._n_stored
        history = self._n_history
        block = self._buffer[now : now + n]
        block[:, : self._n_outputs], block[:, self._n_outputs :] = outputs, inputs
        if not all(map(isfinite, block.ravel().tolist())):
            self._check_missing(block, 0)
            missing = np.flatnonzero(~np.isfinite(block).all(axis=1))
            self.n_missing += len(missing)
            self._complete_from = stored + int(missing[-1]) + history + 1
        self._n_stored = stored + n
        self._now = now + n
        if (
            n == 1 and stored >= self._max_lag and stored >= self._complete_from
        ):  # as below, for one row
            regressor = self._buffer[now - history : now + 1].take(self._gather)[None, :]
            value = self._buffer[now, self._target]
            previous = self._buffer[now - 1, self._target]
            self.previous_target_value = float(previous)
            return LagRows(
                regressor,
                np.array([self._predict.of(value, previous)]),
                np.array([stored]),
            )
        first = max(0, self._max_lag - stored)  # of the block with a full window
        begin = (now + first - history) * self._width
        regressor = self._buffer.take(
            begin + self._width * np.arange(n - first)[:, None] + self._gather
        )
        signal = self._buffer[now + first - 1 : now + n, self._target]
        value = signal[1:]
        previous = signal[:-1]
        sample = np.arange(stored + first, stored + n)
        if stored < self._complete_from:
            keep = np.isfinite(regressor).all(axis=1) & np.isfinite(value)
            if self.narx.needs_previous:
                keep &= np.isfinite(previous)
            self.n_skipped += int(np.count_nonzero(~keep))
            regressor = regressor[keep]
            value = value[keep]
            previous = previous[keep]
            sample = sample[keep]
        if len(sample):
            self.previous_target_value = float(previous[-1])
        return LagRows(regressor, np.array(self._predict.of(value, previous)), sample)

    def _make_room(self, n: int) -> None:
        """Move the past samples to the begin of the buffer, and make it larger if n more do not fit
        behind them.
        """
        past = self._buffer[self._now - self._n_history : self._now].copy()
        if self._n_history + n >= len(self._buffer):
            self._buffer = np.full((2 * (self._n_history + n) + 1, self._width), nan)
        self._now = self._n_history
        self._buffer[: self._now] = past

    def _check_missing(self, values: Array, column: int) -> None:
        """Refuse values (n, m) of the signals from a column on that are missing, if none may be."""
        where = np.argwhere(~np.isfinite(values))
        if len(where) and self.narx.on_missing is OnMissing.error:
            row, position = where[0]
            raise UserError(
                f"Narx(on_missing='error'): signal {self.narx.signals[column + position]!r} is "
                f"{values[row, position]} at sample {self._n_stored + row} of this record; clean the signal, "
                "or set on_missing='skip'"
            )


def _samples(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    """Convert samples to floats (n, m); one sample may come as (m,)."""
    if type(values) is not np.ndarray or values.dtype != np.float64:
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise UserTypeError(
                f"LagWindow expects {name} of real numbers, got dtype {values.dtype}"
            )
        values = values.astype(np.float64)
    if values.shape == shape:
        return values[None, :]
    if values.ndim != 2 or values.shape[1:] != shape:
        raise UserError(
            f"LagWindow expects {name} of shape {shape}, got {values.shape}; a block of samples has (n, {shape[0]})"
        )
    return values
