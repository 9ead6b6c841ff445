"""Tables: numbers as text, pandas frames as CSV, Markdown and plain text, quantiles over seeds."""

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
# numbers between them are written without a power of ten
LEAST = 1e-4
MOST = 1e6
TEXTS: dict[str, Any] = {
    "headers": "keys",
    "showindex": False,
    "disable_numparse": True,
}  # of a frame, as they are


def significant(value: float, digits: int = 3) -> str:
    """Write a measured number with exactly so many significant digits; whole numbers keep all;
    empty for nan.

    >>> significant(0.01), significant(2890.4), significant(0.0), significant(1.0, 2)
    ('0.0100', '2890', '0', '1.0')
    >>> significant(7e-7).encode("ascii", "namereplace").decode()
    '7.00\\\\N{MIDDLE DOT}10\\\\N{SUPERSCRIPT MINUS}\\\\N{SUPERSCRIPT SEVEN}'
    """
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if LEAST <= abs(float(f"{value:.{digits - 1}e}")) < MOST:
        return f"{value:.{max(0, digits - 1 - int(exponent))}f}"
    return f"{mantissa}\u00b710{str(int(exponent)).translate(SUPERSCRIPTS)}"


def fixed(value: float, digits: int) -> str:
    """Write a number with so many decimals, and a dash for nan.

    >>> fixed(2.345, 1), fixed(float("nan"), 1)
    ('2.3', '-')
    """
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def with_unit(value: float, unit: str, digits: int = 4) -> str:
    """Write a number with its unit, none for 1."""
    return f"{value:.{digits}g} {'' if unit == '1' else unit}".rstrip()


def to_csv(frame: pd.DataFrame) -> str:
    """Write one header line and one line per row; every number is the shortest text that gives back
    its bits.

    >>> print(to_csv(pd.DataFrame({"u": [0.1, 1 / 3]})), end="")
    u
    0.1
    0.3333333333333333
    """
    return frame.to_csv(index=False, lineterminator="\n")


def to_markdown(frame: pd.DataFrame) -> str:
    """Write a Markdown table of cells that are text already; empty without rows.

    >>> print(to_markdown(pd.DataFrame({"a": ["1"], "b": ["x|y"]})))
    | a   | b    |
    |:----|:-----|
    | 1   | x\\|y |
    """
    if frame.empty:
        return ""
    cells = frame.astype(str).map(lambda text: text.replace("|", r"\|"))
    return str(tabulate(cells, tablefmt="pipe", **TEXTS))


def to_text(frame: pd.DataFrame, words: Collection[str] = ()) -> str:
    """Write a table for the terminal: the first column and those of words to the left, the others
    to the right.

    >>> print(to_text(pd.DataFrame({"a": ["long"], "b": ["1.5"]})))
    a       b
    long  1.5
    """
    aligned = ["left" if name in words else "right" for name in frame.columns[1:]]
    return str(tabulate(frame.astype(str), tablefmt="plain", colalign=("left", *aligned), **TEXTS))


def quantiles(values: np.ndarray, levels: tuple[float, ...] = (0.25, 0.5, 0.75)) -> np.ndarray:
    """Quantiles (level, ...) of values (..., n) over the last axis, nan left out; nan where nothing
    is known.

    Linear between the order statistics. Infinite values are the largest ones: a quantile between a
    finite and an infinite one is infinite, where `numpy.nanquantile` gives nan.
    """
    series = pd.DataFrame(values.reshape(-1, values.shape[-1]).T)
    below, above = (
        series.quantile([*levels], interpolation=end).to_numpy() for end in ("lower", "higher")
    )
    position = np.multiply.outer(levels, series.count().to_numpy() - 1)
    with np.errstate(invalid="ignore"):
        found = np.where(below == above, below, below + position % 1 * (above - below))
    return found.reshape(len(levels), *values.shape[:-1])


def pool(table: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Pool the rows that agree in the columns ``by``, which become the index; without any all rows
    are pooled.

    Returns
    -------
    pandas.DataFrame
        With columns (level, name) for the quantiles of the levels 0.25, 0.5 and 0.75, nan left out.

    >>> pool(pd.DataFrame({"u": [1, 1, 2], "y": [3.0, 5.0, 4.0]}), ["u"], ["y"])[0.5]["y"].tolist()
    [4.0, 4.0]
    """
    groups = table.groupby(list(by) or np.zeros(len(table)), observed=True, dropna=False)
    return groups[list(columns)].quantile([0.25, 0.5, 0.75]).unstack().swaplevel(axis=1)
