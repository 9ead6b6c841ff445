"""A recorded signal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulators.errors import UserError
from simulators.excitation.role import Excitation
from simulators.settings import (
    Array,
    check_flag,
    find_file,
    is_finite,
    parse_number,
    read_csv,
    refuse,
)

# The time of a row may differ from the time of its sample by this fraction of a sample [-].
MAX_TIME_JITTER = 0.05


@dataclass(frozen=True)
class Recorded(Excitation):
    """The samples of a list or of a column of a CSV file, plus the offset.

    Row k is sample k; nothing is resampled. A file is UTF-8 with commas, decimal points and one
    header line. A longer signal begins with the shorter one.

    Parameters
    ----------
    path : str, optional
        CSV file; give this or `values`.
    column : str, optional
        Column with the signal [unit of the input]; None: the only one besides the time.
    time_column : str, optional
        Column with the time [s], checked against the sampling time; None: the one called ``time``,
        if any.
    values : sequence of float, optional
        The samples [unit of the input].
    repeat : bool
        Whether a record that is too short starts again. Otherwise it raises an error.

    Raises
    ------
    ValueError
        On construction: if both `path` and `values` are given, the values are not finite numbers or
        `repeat` is no bool. On use: if neither is given, the file does not fit, its times are not
        those of the samples, or the record is too short.
    FileNotFoundError
        On use: if there is no such file.

    Examples
    --------
    >>> Recorded(values=[1.0, 2.0], repeat=True).signal(5, 0.1, np.random.default_rng(0))
    array([1., 2., 1., 2., 1.])
    """

    path: str | None = None  # CSV file
    column: str | None = None  # column with the signal; None: the only one besides the time
    time_column: str | None = None  # column with the time in s; None: the one called time, if any
    values: Sequence[float] | None = None  # samples instead of a file, unit of the input
    repeat: bool = False  # whether it starts again after the end

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag(self, "repeat")
        if self.values is None:
            return
        if self.path is not None:
            raise refuse(self, "path", "only one of path and values")
        values = tuple(self.values) if isinstance(self.values, Iterable) else ()
        are_finite = all(isinstance(value, bool) or is_finite(value) for value in values)
        if not values or not are_finite:
            raise UserError(
                "Recorded(values=...): expected finite numbers, at least one; repair values"
            )
        object.__setattr__(self, "values", tuple(map(float, values)))

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return the first n samples of the record (n,) [unit of the input]."""
        record = self._read_record(dt)
        if len(record) < n_samples and not self.repeat:
            expected = f"true, or a record of at least {n_samples} samples, got {len(record)}"
            raise refuse(self, "repeat", expected)
        return np.resize(record, n_samples)

    def period_samples(self, n_samples: int, dt: float | None = None) -> int | None:
        """Return the number of samples of the record if it repeats, else None.

        See `Excitation.period_samples`.
        """
        return len(self._read_record(dt)) if self.repeat else None

    def _read_record(self, dt: float | None) -> Array:
        """Return all samples; times are checked if `dt` [s] is given."""
        if self.values is not None:
            return np.array(self.values)
        if self.path is None:
            raise refuse(self, "path", "a CSV file, or values")
        path = find_file(self)
        header, lines = read_csv(path)
        rows = [row for row in lines if row]
        time = self._find_time(header)
        signal = _read_column(path, rows, self._find_signal(header, time), header)
        if time is not None and dt is not None:
            _check_times(path, _read_column(path, rows, time, header), dt)
        return signal

    def _find_time(self, header: list[str]) -> int | None:
        """Return the position of the column of time, None if there is none."""
        if self.time_column is not None:
            return self._find(self.time_column, "time_column", header)
        return header.index("time") if header.count("time") == 1 else None

    def _find_signal(self, header: list[str], time: int | None) -> int:
        """Return the position of the column with the signal."""
        if self.column is not None:
            return self._find(self.column, "column", header)
        others = [i for i in range(len(header)) if i != time]
        if len(others) != 1:
            raise refuse(self, "column", f"one of the columns {header} of {self.path}")
        return others[0]

    def _find(self, name: str, field: str, header: list[str]) -> int:
        """Return the position of a named column, which must occur once."""
        if header.count(name) != 1:
            raise refuse(
                self,
                field,
                f"the name of one column, it is found {header.count(name)} times "
                f"in the columns {header} of {self.path}",
            )
        return header.index(name)


def _read_column(path: Path, rows: list[list[str]], index: int, header: list[str]) -> Array:
    """Return one column as numbers.

    Raises
    ------
    ValueError
        If a cell holds no number; the message names row and column.
    """
    values = np.empty(len(rows))
    for i, row in enumerate(rows):
        cell = row[index] if index < len(row) else "no cell"
        values[i] = parse_number(cell)
        if not np.isfinite(values[i]):
            raise UserError(
                f"{path}, row {i + 1} of the data: expected a finite number in column "
                f"{header[index]!r}, got {cell!r}; repair the row or choose another column"
            )
    return values


def _check_times(path: Path, time: Array, dt: float) -> None:
    """Raise ValueError unless the times [s] of the rows are dt apart."""
    expected = time[0] + dt * np.arange(len(time))
    wrong = np.flatnonzero(np.abs(time - expected) > MAX_TIME_JITTER * dt)
    if wrong.size:
        first = wrong[0]
        mean = (time[-1] - time[0]) / (len(time) - 1)
        raise UserError(
            f"{path}: expected rows every dt={dt:.9g} s, got {mean:.9g} s on average and at row "
            f"{first + 1} the time {time[first]:.9g} s, not {expected[first]:.9g} s; "
            "resample the record or simulate with its interval"
        )
