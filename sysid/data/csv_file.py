"""CSV files of the user's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from sysid.data.csv_table import CsvFormat, read_table
from sysid.data.source import DataSource
from sysid.record import TIME_TOLERANCE, Array
from sysid.recordings import ROLES, Recordings, make_record


@dataclass(frozen=True)
class CsvFiles(DataSource):
    """One CSV file per record, with a first line that names the columns.

    Every role takes one path or a list of paths; several files stay several records. Times come from `dt`, row
    k standing for k dt, or from a column of uniform times in seconds, named by `time`. Every cell of the columns
    must hold a number: ``on_missing=skip`` does not apply to files, a record with a gap is to be split there.

    Raises
    ------
    ValueError
        An impossible delimiter, decimal sign or initialisation window; on `load` also: no file or no outputs
        named, both or neither of `dt` and `time`, units of an unknown signal, and what is wrong in a file.
    """

    estimation: str | Sequence[str] = ()  # path or paths
    validation: str | Sequence[str] = ()  # path or paths
    test: str | Sequence[str] = ()  # path or paths
    inputs: Sequence[str] = ()  # columns
    outputs: Sequence[str] = ()  # columns
    dt: float | None = None  # sampling time, s
    time: str | None = None  # column with the time, s; instead of dt
    units: Mapping[str, str] | None = None  # unit of a signal, say {u: V}
    delimiter: str = ","  # between two cells; a tab may be written as a backslash and a t
    decimal: str = "."  # sign in a number, "." or ","
    initialisation_window: int = 0  # samples at the start of every record that are not judged

    def __post_init__(self) -> None:
        CsvFormat(self.delimiter, self.decimal)
        for name in ("inputs", "outputs"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"CsvFiles({name}={getattr(self, name)!r}) must be a list: write data.{name}=[...]")

    def load(self) -> Recordings:
        """Read all files; see `DataSource.load`."""
        self._check()
        roles = {role: tuple(self._record(path) for path in _paths(getattr(self, role))) for role in ROLES}
        return Recordings("csv", tuple(self.inputs), tuple(self.outputs), **roles)

    def _check(self) -> None:
        if not any(_paths(getattr(self, role)) for role in ROLES):
            raise ValueError("CsvFiles needs a file: set data.estimation=<file>, and data.test=<file> to judge with")
        if not self.outputs:
            raise ValueError("CsvFiles needs the names of its columns: set data.outputs=[y], and data.inputs=[u]")
        if (self.dt is None) == (self.time is None):
            raise ValueError(
                f"CsvFiles(dt={self.dt!r}, time={self.time!r}) needs one of both: set data.dt to the sampling time "
                "[s], or data.time to the column with the times [s]"
            )
        if self.dt is not None and not 0 < self.dt < np.inf:
            raise ValueError(f"CsvFiles(dt={self.dt!r}) must be a finite number of seconds > 0")
        if self.units is not None and not isinstance(self.units, Mapping):
            raise ValueError(f"CsvFiles(units={self.units!r}) must be a mapping: write 'data.units={{u: V}}'")
        if unknown := sorted(set(self.units or {}) - {*self.inputs, *self.outputs}):
            raise ValueError(f"CsvFiles(units of {unknown}): expected units of {[*self.inputs, *self.outputs]} only")

    def _record(self, path: str) -> xr.Dataset:
        signals = [*self.inputs, *self.outputs]
        wanted = list(dict.fromkeys([*signals, *([] if self.time is None else [self.time])]))
        columns = read_table(Path(path), wanted, CsvFormat(self.delimiter, self.decimal))
        record = make_record(
            {name: columns[name] for name in signals},
            name=Path(path).stem,
            sampling_time=self.dt or 1.0,
            initialisation_window=self.initialisation_window,
            units=self.units,
            long_names={name: f"column {name} of {Path(path).name}" for name in signals},
            attributes={"file": str(path)},
        )
        return record if self.time is None else _with_time(record, columns[self.time], f"{path}, column {self.time!r}")


def _paths(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _with_time(record: xr.Dataset, time: Array, place: str) -> xr.Dataset:
    """Record at these times; whether they are uniform is checked with all other records."""
    steps = np.diff(time)
    if not len(steps) or (steps <= 0).any():
        line = int(np.argmax(steps <= 0)) + 3 if len(steps) else 2
        raise ValueError(
            f"{place}, line {line}: expected at least two times [s] that increase; sort the rows, or use dt"
        )
    mean = float(time[-1] - time[0]) / len(steps)
    worst = int(np.abs(steps - mean).argmax())
    if abs(steps[worst] - mean) > TIME_TOLERANCE * mean + 4 * np.spacing(np.abs(time).max()):
        raise ValueError(
            f"{place}, line {worst + 3}: the step of time is {steps[worst]:.9g} s where the mean is {mean:.9g} s; "
            "resample the record, split it at the jump, or, where times are merely rounded, give dt instead of time"
        )
    return record.assign_coords(time=("time", time, record["time"].attrs)).assign_attrs(sampling_time=mean)
