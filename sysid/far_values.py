"""Values of inputs and other outputs that lie far outside of everything learned.

A sensor that fails for some samples delivers values such as -999. The outlier test judges the
target, and knows a wrong value of another signal only if the next one reverses it. A value that is
far outside of the range learned so far is therefore not learned at first (`FarValues`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sysid.arrays import vector
from sysid.gp.outlier_decisions import MAX_BURST_SAMPLES
from sysid.narx.lags import Narx

#: A value is far if it is outside of the range learned by more than this many ranges [-].
FAR_VALUE_RANGES = 3.0

#: After this many excursions that the held value does not explain, the next one is taken for real.
MAX_UNEXPLAINED_EXCURSIONS = 3


@dataclass
class _Signal:
    """What is known about an input or another output, and about its present excursion."""

    columns: list[int]  # of all its lags among the regressors
    newest: int  # column of its newest value
    low: float = math.inf  # range of the values learned; without any it is empty
    high: float = -math.inf
    held: float = math.nan  # the last value that was not far
    n_far: int = 0  # number of far values in a row
    is_away: bool = False  # whether the last row had a far value among its lags
    is_unexplained: bool = False  # whether a row of this excursion was beyond the gate
    n_unexplained: int = 0  # number of past excursions that had such rows

    def limits(self) -> tuple[float, float]:
        """Return the smallest and the largest value that are not far.

        Nothing is far as long as the signal has not moved.
        """
        if not self.low < self.high:
            return -math.inf, math.inf
        margin = FAR_VALUE_RANGES * (self.high - self.low)
        return self.low - margin, self.high + margin

    def learn(self, lowest: float, highest: float) -> None:
        """Extend the range."""
        self.low = min(self.low, lowest)
        self.high = max(self.high, highest)

    def replacement(self) -> float:
        """Return what stands for a far value: the last value before it, as far as it is known."""
        if math.isnan(self.held):
            return 0.5 * (self.low + self.high)
        return self.held

    def end_excursion(self) -> None:
        """Count the excursion that is over."""
        self.n_unexplained += self.is_unexplained
        self.is_away = False
        self.is_unexplained = False

    def accepts(self) -> bool:
        """Return whether the next far value is taken for a real one."""
        return self.n_far >= MAX_BURST_SAMPLES or self.n_unexplained >= MAX_UNEXPLAINED_EXCURSIONS


class FarValues:
    """Rows with values of inputs or other outputs far outside of the range learned.

    A value v is far if ``v < low - 3 (high - low)`` or ``v > high + 3 (high - low)``, where low and
    high are the smallest and the largest value of its signal in the rows before
    (`FAR_VALUE_RANGES`). Rows that have a far value among their lags are not learned; they are
    predicted with the last value before. The eleventh far value in a row (`MAX_BURST_SAMPLES`) is a
    new level of the signal, which is learned from there on. Shorter excursions may be real, too, as
    the pulses of an input that is at rest otherwise: then the output responds, and samples are
    beyond the gate although the value before has replaced the far one. After three such excursions
    the next one is learned. (A failing sensor of an input that changes at every sample looks alike:
    there, the value before explains nothing, either.)

    Parameters
    ----------
    narx : Narx
    """

    def __init__(self, narx: Narx) -> None:
        self._signals: dict[str, _Signal] = {}
        #: what `write` has returned, until something else than the held values changes
        self._written: dict[str, list[float | None]] | None = None
        for name, lags in narx.lags.items():
            columns = [j for j, (other, _) in enumerate(narx.features) if other == name]
            if name != narx.target and columns:
                newest = narx.features.index((name, min(lags)))
                self._signals[name] = _Signal(columns, newest)

    @property
    def _is_any_away(self) -> bool:
        return any(signal.is_away for signal in self._signals.values())

    def learn(self, x: np.ndarray) -> None:
        """Extend the ranges by those of rows (n, n_features) that the model has learned."""
        if not len(x):
            return
        self._written = None
        for signal in self._signals.values():
            values = x[:, signal.columns]
            signal.learn(float(values.min()), float(values.max()))
            signal.held = float(x[-1, signal.newest])

    def are_near(self, x: np.ndarray) -> bool:
        """Return whether no value of rows (n, n_features) is far; then extend the ranges by them.

        If an excursion is not over, this is false.
        """
        if not len(x) or self._is_any_away:
            return not len(x)
        if len(x) == 1 and self._is_known(x[0].tolist()):
            return True
        self._written = None
        ranges = []
        for signal in self._signals.values():
            low, high = signal.limits()
            values = x[:, signal.columns]
            lowest = float(values.min())
            highest = float(values.max())
            if lowest < low or highest > high:
                return False
            ranges.append((lowest, highest))
        for signal, found in zip(self._signals.values(), ranges, strict=True):
            signal.learn(*found)
            signal.held = float(x[-1, signal.newest])
        return True

    def _is_known(self, row: list[float]) -> bool:
        """Return whether all values of a row are within the ranges; then nothing else changes.

        A loop passes single samples, whose smallest values would take longer than this.
        """
        for signal in self._signals.values():
            for column in signal.columns:
                if not signal.low <= row[column] <= signal.high:
                    return False
        for signal in self._signals.values():
            signal.held = row[signal.newest]
        return True

    def take(self, x: np.ndarray, *, continues: bool) -> tuple[np.ndarray, list[str]] | None:
        """Take the next row (n_features,).

        Returns
        -------
        numpy.ndarray
            The row with far values replaced.
        list of str
            The signals whose newest value is far.

        None stands for both if no value of the row is far.
        """
        self._written = None
        replaced = x.copy()
        names = []
        is_far = False
        for name, signal in self._signals.items():
            if not continues:
                signal.n_far = 0
            newest = float(x[signal.newest])
            low, high = signal.limits()
            if not low <= newest <= high and signal.accepts():
                signal.learn(newest, newest)
                signal.is_unexplained = False
                signal.n_unexplained = 0
                low, high = signal.limits()
            values = x[signal.columns]
            are_far = (values < low) | (values > high)
            if low <= newest <= high:
                signal.n_far = 0
                signal.held = newest
            else:
                signal.n_far += 1
                names.append(name)
            if are_far.any():
                is_far = True
                signal.is_away = True
                replaced[np.array(signal.columns)[are_far]] = signal.replacement()
                continue
            if signal.is_away:
                signal.end_excursion()
            signal.learn(float(values.min()), float(values.max()))
        return (replaced, names) if is_far else None

    def note_outlier(self) -> None:
        """Note that the last row was beyond the gate although its far values were replaced."""
        self._written = None
        for signal in self._signals.values():
            signal.is_unexplained |= signal.is_away

    def write(self) -> dict[str, list[float | None]]:
        """Return the state of each signal that `recall` needs to continue, as numbers.

        The value held is that of an excursion; otherwise the last row has it.
        """
        if self._written is None:
            self._written = self._state()
        return self._written

    def _state(self) -> dict[str, list[float | None]]:
        """Return what `write` does."""
        return {
            name: [
                None if math.isinf(signal.low) else signal.low,
                None if math.isinf(signal.high) else signal.high,
                signal.held if signal.is_away else None,
                signal.n_far,
                signal.is_away,
                signal.is_unexplained,
                signal.n_unexplained,
            ]
            for name, signal in self._signals.items()
        }

    def recall(self, stored: dict[str, Any], last: list[float] | None = None) -> None:
        """Continue from the state that `write` has returned; other signals keep theirs.

        `last` (n_features,) is the last row; None: it is not known.

        Raises
        ------
        AttributeError, KeyError, TypeError, ValueError
            Content that does not fit the signals.
        """
        self._written = None
        for name, content in stored.items():
            signal = self._signals[name]
            low, high, held, *counts = content
            n_far, is_away, is_unexplained, n_unexplained = vector(counts, 4, name).tolist()
            signal.low = math.inf if low is None else float(low)
            signal.high = -math.inf if high is None else float(high)
            signal.held = math.nan if held is None else float(held)
            signal.n_far = int(n_far)
            signal.is_away = bool(is_away)
            if last is not None and not signal.is_away:
                signal.held = last[signal.newest]
            signal.is_unexplained = bool(is_unexplained)
            signal.n_unexplained = int(n_unexplained)
