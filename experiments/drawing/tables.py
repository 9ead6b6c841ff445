"""Tables: numbers as text, data frames as CSV, Markdown and plain text, quantiles over seeds."""

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from sysid import Target, markup
from sysid.units import POWER

SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
# numbers from the first up to the second are written without a power of ten
MIN_WITHOUT_POWER = 1e-4
MAX_WITHOUT_POWER = 1e6
#: options of `tabulate` that write the cells of a data frame as they are
CELLS_AS_TEXT: dict[str, Any] = {
    "headers": "keys",
    "showindex": False,
    "disable_numparse": True,
}


def significant(value: float, digits: int = 3) -> str:
    """Return a measured number as text with this many significant digits.

    Numbers below 1e6 keep all digits before the point. The text is empty for nan.

    >>> significant(0.01), significant(2890.4), significant(0.0), significant(1.0, 2)
    ('0.0100', '2890', '0', '1.0')
    >>> significant(7e-7).encode("ascii", "namereplace").decode()
    '7.00\\\\N{MIDDLE DOT}10\\\\N{SUPERSCRIPT MINUS}\\\\N{SUPERSCRIPT SEVEN}'
    """
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    if value == 0:
        return "0"
    scientific = f"{value:.{digits - 1}e}"
    mantissa, exponent_text = scientific.split("e")
    exponent = int(exponent_text)
    if MIN_WITHOUT_POWER <= abs(float(scientific)) < MAX_WITHOUT_POWER:
        decimals = max(0, digits - 1 - exponent)
        return f"{value:.{decimals}f}"
    return f"{mantissa}\u00b710{str(exponent).translate(SUPERSCRIPTS)}"


def fixed(value: float, digits: int) -> str:
    """Return a number as text with this many decimals; a dash for nan.

    >>> fixed(2.345, 1), fixed(float("nan"), 1)
    ('2.3', '-')
    """
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def shown_unit(unit: str) -> str:
    r"""Return a unit as figures and pages show it: degrees, powers, and 1 where there is none.

    A digit is a power after ``^`` or ``**``, and after the symbol of a unit: not in the name of a
    substance or in a number (`sysid.units.POWER`).

    >>> print(*map(ascii, map(shown_unit, ("degC", "K2", "V", "", "W/m2K", "m^2", "CO2", "N2"))))
    '\xb0C' 'K\xb2' 'V' '1' 'W/m\xb2K' 'm\xb2' 'CO2' 'N2'
    """
    return POWER.sub(_raise_digits, markup.shown_unit(unit)) or "1"


def _raise_digits(match: re.Match[str]) -> str:
    digits = match["marked"] or match["plain"]
    return (match["symbol"] or "") + digits.translate(SUPERSCRIPTS)


def error_unit(unit: str) -> str:
    """Return the unit of an error of a quantity in this unit.

    >>> error_unit("degC"), error_unit("V")
    ('K', 'V')
    """
    return Target.change.unit_of(unit)


def with_unit(value: float, unit: str, digits: int = 4) -> str:
    """Return a number as text with its unit; the unit 1 is not written.

    >>> print(with_unit(0.25, "K"), with_unit(0.25, "1"), with_unit(5, "1000 USD"), sep="; ")
    0.25 K; 0.25; 5 x 1000 USD
    """
    shown_unit = "" if unit == "1" else unit
    if shown_unit[:1].isdigit():  # a factor
        shown_unit = f"x {shown_unit}"
    return f"{value:.{digits}g} {shown_unit}".rstrip()


def to_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV: one header line, and one line per row.

    Every number is the shortest text that gives back its bits.

    >>> print(to_csv(pd.DataFrame({"u": [0.1, 1 / 3]})), end="")
    u
    0.1
    0.3333333333333333
    """
    return frame.to_csv(index=False, lineterminator="\n")


def to_markdown(frame: pd.DataFrame) -> str:
    """Return a frame whose cells are texts as a Markdown table; empty without rows.

    >>> print(to_markdown(pd.DataFrame({"a": ["1"], "b": ["x|y"]})))
    | a   | b    |
    |:----|:-----|
    | 1   | x\\|y |
    """
    if frame.empty:
        return ""
    cells = frame.astype(str).map(lambda text: text.replace("|", r"\|"))
    return str(tabulate(cells, tablefmt="pipe", **CELLS_AS_TEXT))


def to_text(frame: pd.DataFrame, words: Collection[str] = ()) -> str:
    """Return a table for the terminal.

    The first column and those named in `words` are aligned to the left, the others to the right.

    >>> print(to_text(pd.DataFrame({"a": ["long"], "b": ["1.5"]})))
    a       b
    long  1.5
    """
    aligned = ["left" if name in words else "right" for name in frame.columns[1:]]
    return str(
        tabulate(frame.astype(str), tablefmt="plain", colalign=("left", *aligned), **CELLS_AS_TEXT)
    )


def quantiles(values: np.ndarray, levels: tuple[float, ...] = (0.25, 0.5, 0.75)) -> np.ndarray:
    """Return the quantiles (level, ...) of values (..., n) over the last axis, without nan.

    They are linear between the order statistics, and nan if no value is known. Infinite values are
    the largest ones: a quantile between a finite and an infinite one is infinite, where
    `numpy.nanquantile` gives nan.
    """
    series = pd.DataFrame(values.reshape(-1, values.shape[-1]).T)
    below = series.quantile([*levels], interpolation="lower").to_numpy()
    above = series.quantile([*levels], interpolation="higher").to_numpy()
    position = np.multiply.outer(levels, series.count().to_numpy() - 1)
    with np.errstate(invalid="ignore"):
        between = below + position % 1 * (above - below)
        result = np.where(below == above, below, between)
    return result.reshape(len(levels), *values.shape[:-1])


def pool(table: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Return the quartiles of columns over the rows that agree in the columns ``by``.

    Without such columns all rows are pooled.

    Returns
    -------
    pandas.DataFrame
        With ``by`` as index, and columns (level, name) for the quantiles of the levels 0.25, 0.5
        and 0.75, without nan.

    >>> pool(pd.DataFrame({"u": [1, 1, 2], "y": [3.0, 5.0, 4.0]}), ["u"], ["y"])[0.5]["y"].tolist()
    [4.0, 4.0]
    """
    groups = table.groupby(list(by) or np.zeros(len(table)), observed=True, dropna=False)
    return groups[list(columns)].quantile([0.25, 0.5, 0.75]).unstack().swaplevel(axis=1)
