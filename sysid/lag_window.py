"""The live regressor: one sample at a time, the same bits as the batch lag data set of `Narx`."""

from __future__ import annotations

from math import isfinite, nan
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sysid.narx import Narx, OnMissing

Array: TypeAlias = NDArray[np.float64]

NOTHING = np.empty(0)
MIN_CAPACITY = 512  # samples; the buffer is moved to its start once per so many samples


class LagPair(NamedTuple):
    """Regressor and target of one sample."""

    regressor: Array  # (n_features,), C-contiguous, not shared with the window
    target: float


class LagWindow:
    """Past samples of one record, and the regressor of the present one.

    In a loop that learns from measurements, one call per sample k does it all: `observe` takes the
    outputs y_k measured now and the inputs u_k applied from now on, and returns what there is to learn.
    To predict before y_k is known (and in free run, where y_k *is* the prediction), ask for
    `regressor` with u_k (used by features of lag 0 only), then store the sample with `push`.

    Parameters
    ----------
    narx
        Lags; the order of ``narx.output_names`` and ``narx.input_names`` is that of the vectors here.

    Attributes
    ----------
    n_missing : int
        Samples stored so far with a value that is not finite (``on_missing: skip`` only).
    n_skipped : int
        Rows that `observe` left out because of them, as in the batch data set.
    previous_target_value : float
        Target output y[k-1] that belongs to the regressor returned last (NaN before the first, and where a
        target without lags has none):
        ``narx.predict.to_value(predicted_target, window.previous_target_value)`` is the predicted y[k].

    Examples
    --------
    >>> window = LagWindow(Narx(outputs={"y": 1}, inputs={"u": 1}))
    >>> window.observe(np.array([20.0]), np.array([0.5])) is None
    True
    >>> window.observe(np.array([20.5]), np.array([0.0]))
    LagPair(regressor=array([20. ,  0.5]), target=0.5)
    """

    def __init__(self, narx: Narx) -> None:
        self.narx = narx
        self.n_missing = 0
        self.n_skipped = 0
        self.previous_target_value = nan
        names, width = narx.signals, len(narx.signals)
        self._max_lag = narx.max_lag
        self._capacity = max(MIN_CAPACITY, 2 * self._max_lag + 1)
        self._buffer = np.full((self._capacity, width), nan)
        self._flat = self._buffer.reshape(-1)
        self._gather = np.array([(self._max_lag - lag) * width + names.index(name) for name, lag in narx.features])
        self._n_outputs = len(narx.output_names)
        self._output_shape = (self._n_outputs,)
        self._input_shape = (width - self._n_outputs,)
        self._target = narx.output_names.index(narx.target)
        self._target_of = narx.predict.of
        self._needs_previous = narx.needs_previous
        self.reset()

    def reset(self) -> None:
        """Forget all samples: a new record begins. The counts go on."""
        self._now = self._max_lag  # row of the present sample in the buffer
        self._n_stored = 0  # samples of this record
        self._doubtful = 0  # coming samples whose window may hold a value that is not finite
        self._last = nan  # target output of the sample stored last

    def regressor(self, input: Array = NOTHING) -> Array | None:
        """Regressor of the present sample, before its output is known.

        Parameters
        ----------
        input : (n_u,)
            Inputs u_k applied from now on.

        Returns
        -------
        (n_features,) or None
            None while fewer than `max_lag` samples are stored, or if the regressor or y[k-1] is missing (the
            latter only if the target has lags).
        """
        input = _vector("input", input, self._input_shape)
        self._buffer[self._now, self._n_outputs :] = input
        is_finite = self._all_finite(input.tolist(), self._n_outputs)
        if self._n_stored < self._max_lag:
            return None
        return self._row(certain=is_finite and not self._doubtful)

    def push(self, output: Array, input: Array = NOTHING) -> None:
        """Store the present sample; the next one becomes the present.

        Parameters
        ----------
        output, input : (n_y,), (n_u,)
            Outputs y_k and inputs u_k.
        """
        self._advance(self._write(output, input))

    def observe(self, output: Array, input: Array = NOTHING) -> LagPair | None:
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
            Wrong shapes; a value that is not finite with ``on_missing: error``. The window is unchanged.
        """
        values = self._write(output, input)
        pair = self._pair(values[self._target]) if self._n_stored >= self._max_lag else None
        self._advance(values)
        return pair

    def _pair(self, value: float) -> LagPair | None:
        row = self._row(certain=not self._doubtful)
        if row is None or not isfinite(value):
            self.n_skipped += 1
            return None
        return LagPair(row, self._target_of(value, self._last))

    def _row(self, *, certain: bool) -> Array | None:
        """Regressor of the present sample from a full window; None if it or a needed y[k-1] is not finite."""
        width = self._buffer.shape[1]
        row = self._flat[(self._now - self._max_lag) * width : (self._now + 1) * width].take(self._gather)
        if not certain and not (np.isfinite(row).all() and (isfinite(self._last) or not self._needs_previous)):
            return None
        self.previous_target_value = self._last
        return row

    def _write(self, output: Array, input: Array) -> list[float]:
        """Put the present sample into the buffer, and count it if a value is missing."""
        output = _vector("output", output, self._output_shape)
        input = _vector("input", input, self._input_shape)
        sample = self._buffer[self._now]
        sample[: self._n_outputs] = output
        sample[self._n_outputs :] = input
        values = sample.tolist()
        if not self._all_finite(values, 0):
            self.n_missing += 1
            self._doubtful = self._max_lag + 1
        return values

    def _advance(self, values: list[float]) -> None:
        self._last = values[self._target]
        self._n_stored += 1
        self._now += 1
        if self._doubtful:
            self._doubtful -= 1
        if self._now == self._capacity:
            self._buffer[: self._max_lag] = self._buffer[self._capacity - self._max_lag :]
            self._now = self._max_lag

    def _all_finite(self, values: list[float], first: int) -> bool:
        """Whether all values are finite; an error if one is not and may not be skipped."""
        if all(map(isfinite, values)):
            return True
        if self.narx.on_missing is OnMissing.error:
            position = next(i for i, value in enumerate(values) if not isfinite(value))
            raise ValueError(
                f"Narx(on_missing='error'): signal {self.narx.signals[first + position]!r} is "
                f"{values[position]} at sample {self._n_stored} of this record; clean the signal, "
                "or set on_missing='skip'"
            )
        return False


def _vector(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    if type(values) is not np.ndarray or values.dtype != np.float64:
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise TypeError(f"LagWindow expects {name} of real numbers, got dtype {values.dtype}")
        values = values.astype(np.float64)
    if values.shape != shape:
        raise ValueError(f"LagWindow expects {name} of shape {shape}, got {values.shape}")
    return values
