"""Benchmark of reading text files as records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import sysid
from experiments.benchmark.harness import Job, Plan, Row, interleave, ratio

READ_SAMPLING_TIME = 0.5  # s, between two rows
FIRST_STAMP = "2024-01-31 23:50"  # of the rows that have time stamps
READ_DECIMALS = {"u": 6, "v": 4, "y": 5}  # of the numbers in each column
HOLES_PER_ROW = 1e-4  # empty cells of a column for each row; there is at least one
GROUPED_SCALE = 1e4  # factor of the numbers whose thousands are separated
WHOLE_SCALE = 100  # factor of the numbers that are rounded to whole ones
BLANK_WIDTH = 14  # characters of a cell of columns that blanks align
READER_NAME = "sysid"
PANDAS_NAME = "pandas"
MAX_READING_RATIO = 4  # largest time of reading records over that of pandas


@dataclass(frozen=True)
class TextForm:
    """How a file is written, and how pandas and the toolbox are told to read it."""

    write: Callable[[pd.DataFrame, Path], None]
    pandas: dict[str, Any] = field(default_factory=dict)  # options of `pandas.read_csv`
    records: dict[str, Any] = field(default_factory=dict)  # settings of `sysid.CsvFiles`


def reading(plan: Plan) -> Iterator[Row]:
    """Time reading a file of a time, two inputs and an output as a record against `pandas`.

    The file has times in seconds, time stamps or times of a clock, decimal commas, columns that
    blanks align, empty cells, whole numbers, or separated thousands. `pandas.read_csv` is told the
    form of the file, which the toolbox recognises; it reads durations and times of a clock as
    texts.
    """
    table = _table(plan)
    with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
        for name, form in TEXT_FORMS.items():
            path = Path(folder) / "record.csv"
            form.write(table, path)
            files = sysid.CsvFiles(
                estimation=str(path), inputs=["u", "v"], outputs=["y"], **form.records
            )
            jobs = {
                READER_NAME: Job(files.load),
                PANDAS_NAME: Job(partial(pd.read_csv, path, **form.pandas)),
            }
            yield ratio(
                f"{plan.rows} rows, {name}",
                interleave(jobs, plan.repetitions),
                (READER_NAME, PANDAS_NAME),
                PANDAS_NAME,
                target=f"<= {MAX_READING_RATIO}",
            )


def _table(plan: Plan) -> pd.DataFrame:
    """Return the rows of the files: times in seconds and normal numbers, as texts."""
    rng = np.random.default_rng(plan.seed)
    table = {"time": [f"{READ_SAMPLING_TIME * row:.1f}" for row in range(plan.rows)]}
    for name, n_decimals in READ_DECIMALS.items():
        table[name] = [f"{value:.{n_decimals}f}" for value in rng.normal(size=plan.rows)]
    return pd.DataFrame(table)


def _write_plain(table: pd.DataFrame, path: Path) -> None:
    """Write commas between the cells."""
    table.to_csv(path, index=False)


def _write_stamps(
    table: pd.DataFrame, path: Path, stamp_format: str = "%Y-%m-%d %H:%M:%S.%f"
) -> None:
    """Write time stamps instead of seconds."""
    step = pd.Timedelta(READ_SAMPLING_TIME, "s")
    stamps = pd.date_range(FIRST_STAMP, periods=len(table), freq=step)
    table.assign(time=stamps.strftime(stamp_format)).to_csv(path, index=False)


def _write_durations(table: pd.DataFrame, path: Path) -> None:
    """Write times as pandas writes durations."""
    durations = pd.to_timedelta(READ_SAMPLING_TIME * np.arange(len(table)), unit="s")
    table.assign(time=durations.astype(str)).to_csv(path, index=False)


def _write_decimal_commas(table: pd.DataFrame, path: Path) -> None:
    """Write semicolons between the cells, and decimal commas."""
    with_commas = table.apply(lambda column: column.str.replace(".", ",", regex=False))
    with_commas.to_csv(path, index=False, sep=";")


def _write_aligned(table: pd.DataFrame, path: Path) -> None:
    """Write columns that blanks align."""
    aligned = table.apply(lambda column: column.str.rjust(BLANK_WIDTH))
    lines = aligned["time"].str.cat(aligned.drop(columns="time"))
    path.write_text("\n".join(["time u v y", *lines]) + "\n")


def _write_holes(table: pd.DataFrame, path: Path) -> None:
    """Leave some cells of the first input and of the output empty."""
    rng = np.random.default_rng(0)
    n_holes = max(1, round(HOLES_PER_ROW * len(table)))
    with_holes = table.copy()
    for name in ("u", "y"):
        is_empty = np.zeros(len(table), dtype=bool)
        is_empty[rng.integers(1, len(table) - 1, n_holes)] = True
        with_holes[name] = table[name].mask(is_empty, "")
    with_holes.to_csv(path, index=False)


def _write_clock(table: pd.DataFrame, path: Path) -> None:
    """Write times as mm:ss.0, as Excel shows them."""
    seconds = READ_SAMPLING_TIME * np.arange(len(table))
    clock = [f"{int(time // 60) % 60:02d}:{time % 60:04.1f}" for time in seconds]
    table.assign(time=clock).to_csv(path, index=False)


def _write_whole_numbers(table: pd.DataFrame, path: Path) -> None:
    """Write whole numbers, also as times in milliseconds, with empty cells."""
    step = round(1000 * READ_SAMPLING_TIME)
    whole = {"time [ms]": [str(step * row) for row in range(len(table))]}
    for name in READ_DECIMALS:
        whole[name] = [f"{WHOLE_SCALE * float(cell):.0f}" for cell in table[name]]
    _write_holes(pd.DataFrame(whole), path)


def _write_grouped(table: pd.DataFrame, path: Path, thousands: str, decimal: str) -> None:
    """Write numbers with separated thousands."""
    signs = str.maketrans({",": thousands, ".": decimal})
    grouped = {"time": table["time"].str.translate(signs)}
    for name in READ_DECIMALS:
        numbers = GROUPED_SCALE * table[name].astype(float)
        grouped[name] = numbers.map("{:,.2f}".format).str.translate(signs)
    pd.DataFrame(grouped).to_csv(path, index=False, sep=";")


def _grouped_form(thousands: str, decimal: str) -> TextForm:
    """Return a form of files with separated thousands."""
    return TextForm(
        partial(_write_grouped, thousands=thousands, decimal=decimal),
        pandas={"sep": ";", "thousands": thousands, "decimal": decimal},
    )


def _stamp_form(stamp_format: str) -> TextForm:
    """Return a form of files with time stamps of a format."""
    return TextForm(
        partial(_write_stamps, stamp_format=stamp_format),
        pandas={"parse_dates": ["time"], "date_format": stamp_format},
    )


#: the forms of the files by name
TEXT_FORMS: dict[str, TextForm] = {
    "seconds": TextForm(_write_plain),
    "time stamps": TextForm(_write_stamps, pandas={"parse_dates": ["time"]}),
    "time stamps with the day first": _stamp_form("%d.%m.%Y %H:%M:%S.%f"),
    "time stamps of a 12-hour clock": _stamp_form("%m/%d/%Y %I:%M:%S.%f %p"),
    "durations": TextForm(_write_durations),
    "decimal commas": TextForm(_write_decimal_commas, pandas={"sep": ";", "decimal": ","}),
    "columns aligned by blanks": TextForm(_write_aligned, pandas={"sep": r"\s+"}),
    "empty cells": TextForm(_write_holes, records={"on_missing": "skip"}),
    "times of a clock": TextForm(_write_clock),
    "whole numbers and empty cells": TextForm(_write_whole_numbers, records={"on_missing": "skip"}),
    "thousands separated by commas": _grouped_form(",", "."),
    "thousands separated by points": _grouped_form(".", ","),
    "thousands separated by blanks": _grouped_form(" ", "."),
}
