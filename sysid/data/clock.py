"""Times of the rows of a table: the column, its unit, stamps, the sampling time."""

from __future__ import annotations

import datetime
import re
import warnings
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from sysid.data.cell_numbers import read_numbers, to_number
from sysid.data.columns import (
    SECONDS_PER_UNIT,
    find_columns,
    location,
    names_of_columns,
    setting_text,
    split_name,
    units_of_columns,
)
from sysid.data.stamps import (
    MAX_TEXT_CHARACTERS,
    group_by_form,
    read_durations,
    read_stamps,
    whole_numbers,
)
from sysid.errors import UserError
from sysid.narx.record import MAX_RATE_DIFFERENCE, TIME_TOLERANCE, Array, find_jump

#: names of a column that is taken as the times if none is named, best first. A capital T alone is a
#: temperature
TIME_NAMES = (
    "time",
    "timestamp",
    "datetime",
    "stamp",
    "t",
    "date",
)

#: word for `time`: no column has the times
NO_TIME = "none"

#: largest deviation of a step from the sampling time, as a fraction of the sampling time [-]
MAX_JITTER = 0.1

#: A longer step is a gap, in sampling times [-].
MIN_GAP_STEPS = 1.5

#: largest difference between a stated sampling time and equal steps: it may be stated with three
#: digits [-]
MAX_STATED_DIFFERENCE = 1e-3

#: least number of the rarer of the two steps of rounded times, and its least share of all steps [-]
MIN_ROUNDED_STEPS = 3
MIN_ROUNDED_SHARE = 0.02

#: largest spread of rounded times around equal steps, in units of the rounding [-]
MAX_ROUNDING_SPREAD = 1.5

#: smallest number of rows before and after a clock starts again; with fewer, a row is out of order
MIN_EXPERIMENT_ROWS = 10

#: larger numbers cannot be seconds since 1970: they count a smaller unit [s]
MAX_EPOCH_SECONDS = 1e11

#: times in days of the years 1968 to 2064: since 1900, as Excel counts them, and since the year 0,
#: as MATLAB does
RANGES_OF_DAYS = ((25_000.0, 60_000.0), (719_000.0, 754_000.0))

#: a time of day, or a time below an hour as Excel shows it
CLOCK = re.compile(r"(?:(\d+):)?(\d{1,3}):(\d\d)(?:[.,](\d+))?")

#: the end of a time of a 12-hour clock
HALF_DAY = re.compile(r"[AaPp][Mm]$")

#: period of a clock without a date, by the number of its fields [s]
HOUR = 3600.0
DAY = 86400.0


@dataclass
class Times:
    """Times of the rows of a table."""

    seconds: Any  # (n,) s, nan where missing
    start: str = ""  # time stamp of the first row, if any
    #: rounding error of a time that is not in its digits [s]
    resolution: float = 0.0
    is_measured: bool = True  # whether the table has the times
    notes: list[str] = field(default_factory=list)  # choices that were made


def find_time(
    table: pd.DataFrame, signals: list[str], dt: float | None, notes: list[str]
) -> str | None:
    """Return the name of the column of times; None if the index, or `dt` alone, has them.

    Raises
    ------
    ValueError
        There is no column of times, and the sampling time is not known.
    """
    if isinstance(table.index, pd.DatetimeIndex | pd.TimedeltaIndex):
        return None
    whole_names = names_of_columns(table)
    candidates = []
    for whole in whole_names:
        name, _ = split_name(whole)
        is_signal = name in signals or whole in signals
        if is_time_name(whole) and not is_signal:
            candidates.append((TIME_NAMES.index(_time_word(name)), whole))
    if not candidates:
        if dt is not None:
            return None
        raise UserError(
            f"{location(table)}: the sampling time is not known: set {_key(table, 'dt')} to "
            f"seconds, or {_key(table, 'time')} to the column with the times, there are "
            f"{whole_names}"
        )
    candidates.sort()
    best = [whole for rank, whole in candidates if rank == candidates[0][0]]
    if len(best) > 1 and len(set(best)) == len(best):
        raise UserError(
            f"{location(table)}: columns {best} may be the times: name one of them, "
            f"{setting_text(table, 'time', best[:1])}"
        )
    if len(candidates) > 1:
        others = " or ".join(repr(whole) for _, whole in candidates[1:])
        notes.append(f"column {best[0]!r} is taken as the times, not {others}")
    return split_name(best[0])[0] if len(best) == 1 else best[0]


def find_stated(table: pd.DataFrame, dt: float | None, notes: list[str]) -> float | None:
    """Return the sampling time [s]: `dt`, or without it and a column of times, that of the file.

    Raises
    ------
    ValueError
        `dt` is not what the file states.
    """
    of_file = table.attrs.get("sampling_time")
    if of_file is None:
        return dt
    if dt is None:
        if not 0 < of_file < np.inf:
            raise UserError(
                f"{location(table)}: it states the sampling time {of_file:.9g} s, expected one > 0"
            )
        if not any(is_time_name(name) for name in names_of_columns(table)):
            notes.append(f"the file states the sampling time {of_file:.9g} s")
            return float(of_file)
        return None
    if abs(dt - of_file) > MAX_STATED_DIFFERENCE * of_file:
        raise UserError(
            f"{location(table)}: it states the sampling time {of_file:.9g} s, dt is {dt:.9g} s: "
            "correct one of them, or leave dt out"
        )
    return dt


def _time_word(name: str) -> str:
    """Return a name of times in small letters, without the unit at its end."""
    return re.sub(rf"[ _.-]({'|'.join(SECONDS_PER_UNIT)})$", "", name.lower())


def is_time_name(column: str) -> bool:
    """Return whether a column of this name has the times if none is named.

    >>> is_time_name("Time [s]"), is_time_name("t_ms"), is_time_name("T"), is_time_name("T [ms]")
    (True, True, False, True)
    """
    name, unit = split_name(column)
    is_temperature = name == "T" and unit not in SECONDS_PER_UNIT
    return _time_word(name) in TIME_NAMES and not is_temperature


def has_counts(table: pd.DataFrame, column: int) -> bool:
    """Return whether a column of times begins with a number, of either decimal sign."""
    cells = table.iloc[:, column]
    if pd.api.types.is_numeric_dtype(cells):
        return True
    first = _first_text(cells)
    return any(to_number(first, decimal) is not None for decimal in ".,")


def read_times(
    table: pd.DataFrame,
    dt: float | None,
    time: str | None,
    time_format: str | None,
    decimal: str,
) -> Times:
    """Return the times of all rows.

    Raises
    ------
    ValueError
        A cell is neither a number nor a time stamp, or the unit of the times is not known.
    """
    has_time_index = isinstance(table.index, pd.DatetimeIndex | pd.TimedeltaIndex)
    if time is None and not has_time_index:
        return Times(float(dt or 1.0) * np.arange(len(table)), is_measured=False)
    if time is None:
        return _elapsed(pd.Series(table.index), [])
    column = find_columns(table, [time], "time")[time]
    stamps = _plain_stamps(table.iloc[:, column].reset_index(drop=True))
    are_numbers = pd.api.types.is_numeric_dtype(stamps)
    first = "" if are_numbers else _first_text(stamps)
    if first and to_number(first, decimal) is not None:
        are_numbers = True
    if are_numbers and not (time_format and "%" in time_format):
        return _read_counts(table, column, time_format, decimal)
    if first and not time_format and CLOCK.fullmatch(first):
        return _read_clock(table, column, stamps)
    if first or are_numbers:
        stamps = _read_stamps(table, stamps.astype(str), first, time_format)
    return _elapsed(stamps, [])


def _plain_stamps(cells: pd.Series) -> pd.Series:
    """Return cells of Python's objects of dates and of times of day as stamps and as texts."""
    if cells.dtype != object:
        return cells
    filled = [cell for cell in cells if cell is not None and not pd.isna(cell)]
    if filled and all(isinstance(cell, datetime.time) for cell in filled):
        return cells.map(lambda cell: cell.isoformat() if isinstance(cell, datetime.time) else cell)
    if filled and all(isinstance(cell, datetime.timedelta) for cell in filled):
        return pd.to_timedelta(cells)
    if filled and all(isinstance(cell, datetime.date) for cell in filled):
        return pd.to_datetime(cells, utc=True)
    return cells


def _elapsed(stamps: pd.Series, notes: list[str]) -> Times:
    """Return the times since the first stamp or duration that is there."""
    known = stamps.dropna()
    if not len(known):
        return Times(np.full(len(stamps), np.nan))
    elapsed = stamps - known.iloc[0]
    start = "" if pd.api.types.is_timedelta64_dtype(stamps) else str(known.iloc[0])
    seconds = elapsed.dt.total_seconds().to_numpy(dtype=np.float64)
    return Times(seconds, start, notes=notes)


def elapsed_seconds(stamps: np.ndarray) -> Array:
    """Return the seconds (n,) since the first of time stamps, or of durations."""
    return _elapsed(pd.Series(stamps), []).seconds


def find_equal_step(seconds: Array, resolution: float) -> float | None:
    """Return the step of times that are equal up to their resolution; None if they are not."""
    mean = float(seconds[-1] - seconds[0]) / (len(seconds) - 1)
    offsets = seconds - seconds[0] - mean * np.arange(len(seconds))
    if mean <= 0 or np.abs(offsets).max() > resolution:
        return None
    return _round_step(mean, resolution / (len(seconds) - 1))


def _read_counts(table: pd.DataFrame, column: int, time_format: str | None, decimal: str) -> Times:
    """Return times that are numbers of seconds or of another unit."""
    name = names_of_columns(table)[column]
    unit = units_of_columns(table).get(column, "")
    notes: list[str] = []
    if not unit:
        suffix = re.search(rf"[A-Za-z][ _.-]({'|'.join(SECONDS_PER_UNIT)})$", name)
        if suffix is not None:
            unit = suffix[1]
            if SECONDS_PER_UNIT[unit] != 1.0:
                notes.append(f"times are read in {unit}, as the name of column {name!r} ends")
    if time_format:
        if time_format not in SECONDS_PER_UNIT or (unit and unit != time_format):
            stated = f"the file states {unit!r}" if unit else "the times are numbers"
            raise UserError(
                f"{location(table)}, column {name!r}: {stated}, got time_format={time_format!r}: "
                f"leave it out, or state the unit of the numbers, {', '.join(SECONDS_PER_UNIT)}"
            )
        unit = time_format
    if unit and unit not in SECONDS_PER_UNIT:
        raise UserError(
            f"{location(table)}: times in {unit!r}, expected one of "
            f"{', '.join(SECONDS_PER_UNIT)}, or stamps"
        )
    values = read_numbers(table, column, decimal, notes)
    is_single = table.iloc[:, column].dtype == np.float32
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    seconds_per_unit = SECONDS_PER_UNIT[unit or "s"]
    if not unit and largest > MAX_EPOCH_SECONDS:
        raise UserError(
            f"{location(table)}, column {name!r}: times up to {largest:.4g} are no seconds: state "
            "their unit, data.time_format=ms (or us, ns)"
        )
    if not unit and _are_days(values):
        raise UserError(
            f"{location(table)}, column {name!r}: times such as {values[0]:.9g} seem to be days, "
            "as Excel and MATLAB count them: state their unit, data.time_format=d (or s if they "
            "are seconds)"
        )
    spacing = float(np.spacing(np.float32(largest))) if is_single else 0.0
    return Times(
        np.multiply(values, seconds_per_unit),
        resolution=spacing * seconds_per_unit,
        notes=notes,
    )


def _are_days(values: Array) -> bool:
    """Return whether times are days of a calendar: their steps are round numbers of seconds."""
    known = values[np.isfinite(values)]
    if len(known) < 3:
        return False
    if not any(low <= known.min() and known.max() <= high for low, high in RANGES_OF_DAYS):
        return False
    steps = np.diff(known)
    step = float(np.median(steps))
    if not 0 < step < 1:
        return False
    tolerance = float(np.abs(steps - step).max()) / len(steps) + 4 * float(np.spacing(known.max()))
    mean = float(known[-1] - known[0]) / len(steps)
    return _count_digits(DAY * mean, DAY * tolerance) + 2 <= _count_digits(mean, tolerance)


def _count_digits(value: float, tolerance: float) -> int:
    """Return the fewest digits with which a number is within the tolerance.

    >>> _count_digits(0.2500001, 1e-6)
    2
    """
    for n_digits in range(1, 17):
        if abs(float(f"{value:.{n_digits}g}") - value) <= tolerance:
            return n_digits
    return 17


def _read_clock(table: pd.DataFrame, column: int, cells: pd.Series) -> Times:
    """Return times that are read from a clock without a date: hh:mm:ss, mm:ss.0, or hh:mm.

    Such a clock begins again after a day, mm:ss.0 after an hour. A step back across that moment is
    continued if it is then as long as the others.
    """
    name = names_of_columns(table)[column]
    texts = cells.fillna("")
    if not isinstance(cells.dtype, pd.StringDtype):
        texts = cells.map(lambda cell: cell if isinstance(cell, str) else "")
    if texts.str.len().max() > MAX_TEXT_CHARACTERS:
        for row, text in enumerate(texts):
            if len(text.strip()) > MAX_TEXT_CHARACTERS:
                raise _no_time(table, row, name, text)
        texts = texts.map(str.strip)
    seconds = np.full(len(cells), np.nan)
    n_fields = 0
    has_fraction = False
    for rows, form, characters in group_by_form(texts):
        if not form:  # the cells are empty
            continue
        match = CLOCK.fullmatch(form)
        fields = 0 if match is None else 2 + (match[1] is not None)
        n_fields = n_fields or fields
        if match is None or fields != n_fields:
            raise _no_time(table, int(rows[0]), name, texts.iloc[rows[0]])
        of_group = [whole_numbers(characters, *match.span(group)) for group in range(1, 5)]
        hours, minutes, whole_seconds, decimals = of_group
        seconds[rows] = 60 * minutes + whole_seconds + 3600 * hours
        if match[4] is not None:
            has_fraction = True
            seconds[rows] += decimals / 10.0 ** len(match[4])
    notes: list[str] = []
    period = DAY
    if n_fields == 2 and has_fraction:
        notes.append(f"times such as {_first_text(cells)} in column {name!r} are read as mm:ss")
        period = HOUR
    elif n_fields == 2:
        seconds *= 60
        if np.nanmax(seconds) >= DAY:
            raise UserError(
                f"{location(table)}, column {name!r}: times such as {_first_text(cells)} may be "
                'hours and minutes, or minutes and seconds: state data.time_format="%M:%S", or '
                "write hours, minutes and seconds"
            )
        notes.append(f"times such as {_first_text(cells)} in column {name!r} are read as hh:mm")
    known = np.flatnonzero(np.isfinite(seconds))
    steps = np.diff(seconds[known])
    usual = float(np.median(steps)) if len(steps) else 0.0
    is_round = np.abs(steps + period - usual) <= MAX_JITTER * usual + 1e-9
    if usual > 0 and is_round.any():
        seconds[known[1:]] += period * np.cumsum(is_round)
        what = "hour" if period == HOUR else "midnight"
        notes.append(f"the clock passes the {what} {int(is_round.sum())} times")
    return Times(seconds, notes=notes)


def _no_time(table: pd.DataFrame, row: int, name: str, text: str) -> UserError:
    """Return the error for a cell that a clock does not show."""
    return UserError(
        f"{location(table, row)}, column {name!r}: {text!r} is no time as those before: correct "
        "it, or leave it empty if it is missing"
    )


def _first_text(cells: pd.Series) -> str:
    """Return the first text that is not empty; an empty one if no cell has a text."""
    return next((cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()), "")


def _read_stamps(
    table: pd.DataFrame, cells: pd.Series, first: str, time_format: str | None
) -> pd.Series:
    """Convert texts into time stamps.

    Without a format, stamps like 2024-01-31 are ISO, and those with points, 31.1.2024, have the day
    first; pandas guesses the format of all others. A comma may stand before the fraction of a
    second.
    """
    options: dict[str, Any]
    if time_format:
        options = {"format": time_format}
    elif time_format is None and re.match(r"\d{4}-\d\d-\d\d", first) and not HALF_DAY.search(first):
        options = {"format": "ISO8601"}
    else:
        options = {"dayfirst": re.match(r"\d{1,2}\.\d", first) is not None}
    convert: Any = pd.to_datetime
    if re.match(r"-?\d+ days? ", first):
        convert = pd.to_timedelta
        options = {}
    else:
        options["utc"] = True
    if convert is pd.to_timedelta:
        at_once = read_durations(cells)
    elif options.get("format") == "ISO8601":
        at_once = None  # pandas is as fast
    else:
        at_once = read_stamps(cells, first, time_format)
    if at_once is not None:
        return at_once
    texts = cells
    if "," in first and not time_format:
        texts = cells.str.replace(r"(:\d\d),(\d)", r"\1.\2", regex=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a format that pandas cannot guess is slower to read
        stamps = convert(texts, errors="coerce", **options)
        if stamps[cells.notna()].isna().any():
            texts = cells.str.strip()
            if not time_format:
                texts = texts.str.replace(r"(:\d\d),(\d)", r"\1.\2", regex=True)
            stamps = convert(texts, errors="coerce", **options)
    is_wrong = stamps.isna() & cells.notna()
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        kind = "a time stamp" if cells.iloc[row] == first else f"a time stamp like {first!r}"
        raise UserError(
            f"{location(table, row)}: {cells.iloc[row]!r} is neither a number nor {kind}: correct "
            "it, or set the form of the stamps, such as "
            f"'data.time_format=\"%d/%m/%Y %H:%M:%S\"'; {_leave_out(table)} if it has no times"
        )
    return stamps


@dataclass
class Steps:
    """Steps between rows that have a time."""

    sampling_time: float  # s
    is_gap: np.ndarray  # (n - 1,) which steps are gaps
    jitter: float = 0.0  # largest deviation of a step that is none, in sampling times [-]
    rounding: float = 0.0  # unit to which the times are rounded, as far as it is coarse [s]
    notes: list[str] = field(default_factory=list)

    def without_rounding(self, seconds: Array) -> Array:
        """Return the times (n,) that rounded times stand for; other times are returned as they are.

        Rows follow each other where there is no gap of time.
        """
        if not self.rounding:
            return seconds
        numbers = np.arange(len(seconds), dtype=np.float64)
        if self.is_gap.any():
            first = seconds[np.flatnonzero(np.isfinite(seconds))[0]]
            numbers = np.rint((seconds - first) / self.sampling_time)
        return np.asarray(self.sampling_time * numbers)


def find_steps(
    table: pd.DataFrame,
    times: Times,
    rows: np.ndarray,
    dt: float | None,
    on_missing: str,
) -> Steps:
    """Find the sampling time, and check that the steps of the times are equal.

    Equal steps are the sampling time. Otherwise it is the mean step: the span of the times over
    their number. A stated `dt` must agree with it.

    Raises
    ------
    ValueError
        A time is not later than the one before, the steps differ too much, or `dt` is another.
    """
    seconds = times.seconds[rows]
    steps = np.diff(seconds)
    is_between_neighbours = np.diff(rows) == 1
    resolution = 4 * float(np.spacing(np.abs(seconds).max())) + 2 * times.resolution
    no_gap = np.zeros(len(steps), dtype=bool)
    if not len(steps[is_between_neighbours]):
        if dt is None:
            raise UserError(
                f"{location(table, 0)}: expected at least two times that follow each other; "
                "or set dt"
            )
        return Steps(dt, no_gap)
    if not times.is_measured and dt is not None:
        return Steps(dt, no_gap)
    if dt is not None and _are_coarse(seconds, rows, dt):
        note = f"stamps are coarser than dt={dt:.9g} s, with which they agree"
        return Steps(dt, no_gap, rounding=max(float(steps.max()), 2 * dt), notes=[note])
    check_increasing(table, times, rows)
    usual = float(np.median(steps[is_between_neighbours]))
    step = _round_step(usual, resolution)
    is_gap = no_gap
    rounding = 0.0
    if np.ptp(steps[is_between_neighbours]) > TIME_TOLERANCE * step + resolution:
        rounding = _find_rounding(seconds, is_between_neighbours)
    if on_missing == "skip" and not rounding:
        is_gap = is_between_neighbours & (steps > MIN_GAP_STEPS * (dt or step))
    is_step = is_between_neighbours & ~is_gap
    deviation = np.where(is_step, np.abs(steps - step), 0.0)
    are_equal = deviation.max() <= TIME_TOLERANCE * step + resolution
    if not are_equal and not rounding:
        rounding = _find_rounding(seconds, is_step)
    limit = MAX_JITTER * step + resolution
    mean = float(steps[is_step].mean()) if is_step.any() else step
    if rounding and not is_gap.any():
        mean = float(seconds[-1] - seconds[0]) / int(rows[-1] - rows[0])
    if dt is not None:
        _check_stated(table, int(rows[1]), dt, step if are_equal else mean, are_equal)
    if deviation.max() > limit and not rounding:
        first = int(np.argmax(deviation > limit))
        raise UserError(
            f"{location(table, int(rows[first + 1]))}: the step of time is {steps[first]:.9g} s "
            f"where the median of all steps is {step:.9g} s; steps may differ by {MAX_JITTER:.0%}: "
            f"resample the record, {_setting(table, 'resample', f'{step:.3g}')}; "
            "on_missing=skip counts the samples in a gap as missing; if the column has no times, "
            f"{_leave_out(table)}, and {_setting(table, 'dt', f'{step:.3g}')} sets the step"
        )
    if are_equal:
        return Steps(step if dt is None else dt, is_gap)
    tolerance = float(np.abs(steps[is_step] - mean).max()) / max(int(is_step.sum()), 1)
    shown = dt or round_rate(mean, tolerance)
    deviation = np.where(is_step, np.abs(steps - shown), 0.0)
    jitter = float(deviation.max()) / shown
    source = "dt" if dt else f"the mean of {int(is_step.sum())} steps"
    how = f"times jitter by up to {100 * jitter:.2g} % of {shown:.9g} s, {source},"
    if rounding:
        how = f"times are rounded to {rounding:.3g} s, their steps are {shown:.9g} s, {source},"
    return Steps(shown, is_gap, jitter, rounding, [f"{how} and are taken as equal steps"])


def equalise(record: xr.Dataset, name: str, dt: float | None = None) -> tuple[xr.Dataset, str]:
    """Return a record whose times are equal steps if they are of one nominal rate, and a note.

    Times that jitter, or that are rounded, are read as those of a table (`find_steps`): equal steps
    take their place, and the record states the jitter. Other times are returned as they are, also
    those that are no equal steps: whoever reads the record refuses them.

    Parameters
    ----------
    record : xarray.Dataset
    name : str
        Name of the record for messages.
    dt : float, optional
        Stated sampling time [s].

    Raises
    ------
    ValueError
        The times jitter, and `dt` is not their rate.
    """
    if "time" not in record.coords or record["time"].dims != ("time",):
        return record, ""
    time = record["time"]
    if time.dtype.kind != "f" or time.attrs.get("units", "s") != "s":
        return record, ""
    seconds = time.values.astype(np.float64)
    n = len(seconds)
    if n < 2 or not np.isfinite(seconds).all() or find_jump(seconds) is None:
        return record, ""
    table = pd.DataFrame(index=pd.RangeIndex(n))
    table.attrs["file"] = name
    table.attrs["row_word"] = "sample"
    times = Times(seconds)
    rows = np.arange(n)
    try:
        steps = find_steps(table, times, rows, None, "error")
    except UserError:  # steps that differ too much: the reader of the record says so
        return record, ""
    if dt is not None:
        if abs(dt - steps.sampling_time) > MAX_RATE_DIFFERENCE * steps.sampling_time:
            raise UserError(
                f"{name}: dt={dt!r} does not fit its times, whose steps are "
                f"{steps.sampling_time:.9g} s on average: leave dt out, or correct the times"
            )
        steps = find_steps(table, times, rows, dt, "error")
    equal = seconds[0] + steps.sampling_time * rows
    attributes = {"jitter": steps.jitter} if steps.jitter else {}
    record = record.assign_coords(time=("time", equal, time.attrs)).assign_attrs(attributes)
    return record, "; ".join(steps.notes)


def check_increasing(table: pd.DataFrame, times: Times, rows: np.ndarray) -> None:
    """Raise UserError unless each of these rows is later than the one before."""
    steps = np.diff(times.seconds[rows])
    if not (steps <= 0).any():
        return
    row = int(rows[np.argmax(steps <= 0) + 1])
    raise UserError(
        f"{location(table, row)}: the time is not later than that of the row before: sort the "
        f"rows; if several experiments stand below each other, name their column, "
        f"{setting_text(table, 'experiment', ['run'])}; if stamps are too coarse to differ, "
        f"set {_key(table, 'dt')}; {_leave_out(table)} if it has no times"
    )


def find_restarts(times: Times) -> list[int]:
    """Return the rows at which the clock starts again at the time of the first row.

    There are none if the clock goes back to another time, or soon after a start.
    """
    if not times.is_measured:
        return []
    known = np.flatnonzero(np.isfinite(times.seconds))
    seconds = times.seconds[known]
    steps = np.diff(seconds)
    back = np.flatnonzero(steps < 0) + 1
    if not len(back) or not (steps > 0).any():
        return []
    usual = float(np.median(steps[steps > 0]))
    is_start = np.abs(seconds[back] - seconds[0]) <= MIN_GAP_STEPS * usual
    lengths = np.diff([0, *back, len(seconds)])
    if not is_start.all() or lengths.min() < MIN_EXPERIMENT_ROWS:
        return []
    return [int(row) for row in known[back]]


def _setting(table: pd.DataFrame, option: str, value: str) -> str:
    """Return a setting as the user writes it, on a command line or in Python."""
    return f"{_key(table, option)}={value}"


def _key(table: pd.DataFrame, option: str) -> str:
    """Return the name of a setting, on a command line or in Python."""
    return f"data.{option}" if "file" in table.attrs else option


def _leave_out(table: pd.DataFrame) -> str:
    """Return how to leave the column of times out."""
    how = _setting(table, "time", NO_TIME if "file" in table.attrs else repr(NO_TIME))
    return f"{how} leaves the column out"


def _check_stated(
    table: pd.DataFrame, row: int, dt: float, measured: float, are_equal: bool
) -> None:
    """Raise UserError unless a stated sampling time is that of the times."""
    allowed = MAX_STATED_DIFFERENCE if are_equal else MAX_RATE_DIFFERENCE
    if abs(dt - measured) > allowed * measured:
        raise UserError(
            f"{location(table, row)}: the step of time is {measured:.9g} s where dt is {dt:.9g} s: "
            f"correct one of them, or leave {_key(table, 'dt')} out; {_leave_out(table)} if it "
            "has no times"
        )


def _find_rounding(seconds: Array, is_step: np.ndarray) -> float:
    """Return the unit to which times of equal steps are rounded [s]; 0 if they are not.

    Rounded times of equal steps have steps of two neighbouring multiples of the unit, which take
    turns so that no time is much further than half the unit from where equal steps would be. Steps
    are at least two units, so that a missing row does not look like rounding.
    """
    steps = np.diff(seconds)[is_step]
    precision = 8 * float(np.spacing(np.abs(seconds).max()))
    smallest = float(steps.min())
    largest = float(steps.max())
    unit = largest - smallest
    if unit <= precision or smallest < 2 * unit - precision:
        return 0.0
    is_long = steps > (smallest + largest) / 2
    is_of_two = np.minimum(np.abs(steps - smallest), np.abs(steps - largest)) <= precision
    n_rarer = min(int(is_long.sum()), int((~is_long).sum()))
    if not is_of_two.all() or n_rarer < max(MIN_ROUNDED_STEPS, MIN_ROUNDED_SHARE * len(steps)):
        return 0.0
    starts = np.concatenate([[0], np.flatnonzero(~is_step) + 1, [len(seconds)]])
    for first, end in pairwise(starts):
        k = np.arange(end - first)
        if len(k) > 2:
            offsets = seconds[first:end] - seconds[first]
            slope, _ = np.polyfit(k, offsets, 1)
            if np.ptp(offsets - slope * k) > MAX_ROUNDING_SPREAD * unit + precision:
                return 0.0
    return float(f"{unit:.6g}")


def _are_coarse(seconds: Array, rows: np.ndarray, dt: float) -> bool:
    """Return whether stamps are too coarse to differ, and agree with a stated sampling time."""
    steps = np.diff(seconds)
    if not (steps == 0).any() or (steps < 0).any():
        return False
    unit = float(steps.max())
    if unit == 0:  # a date, for example
        return True
    offsets = seconds - dt * rows
    return bool(unit >= 2 * dt and np.ptp(offsets) <= unit * (1 + MAX_STATED_DIFFERENCE))


def _round_step(step: float, resolution: float) -> float:
    """Round a step [s] to the fewest digits that the resolution of the times allows.

    >>> _round_step(0.09999999999999432, 1e-13)
    0.1
    """
    tolerance = max(resolution, 1e-12 * step)
    for n_digits in range(1, 17):
        rounded = float(f"{step:.{n_digits}g}")
        if abs(rounded - step) <= tolerance:
            return rounded
    return float(f"{step:.17g}")


def round_rate(step: float, tolerance: float) -> float:
    """Round a mean step [s], or its rate [Hz], to the fewest digits that its tolerance allows.

    >>> round_rate(0.0166661, 1e-6) == 1 / 60, round_rate(0.1000004, 1e-6)
    (True, 0.1)
    """
    for n_digits in range(1, 17):
        of_step = float(f"{step:.{n_digits}g}")
        if abs(of_step - step) <= tolerance:
            return of_step
        of_rate = 1.0 / float(f"{1.0 / step:.{n_digits}g}")
        if abs(of_rate - step) <= tolerance:
            return of_rate
    return step
