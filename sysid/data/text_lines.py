"""Texts of a column as the lines of one text, which is searched at once."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

from sysid.data.source import optional_package
from sysid.narx.record import Array

#: first version of pandas whose numbers are exact to the last bit by default
FIRST_EXACT_PANDAS = (3, 1)

#: A text of more bytes is not held by one array of Arrow's.
MAX_BYTES_IN_ARROW = 2**31 - 1


def exact_numbers() -> dict[str, str]:
    """Return the options with which `pandas.read_csv` reads numbers exactly to the last bit."""
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    return {"float_precision": "round_trip"} if version < FIRST_EXACT_PANDAS else {}


def join_lines(cells: pd.Series) -> str | None:
    """Return the texts of cells, none of which is missing, with a line break around each.

    None: there is no cell, or pandas does not keep the texts in an array of Arrow's, as it does
    where PyArrow is installed. Arrow searches a million joined texts in a small part of the time
    that Python takes for them one by one.
    """
    kind = cells.dtype
    if not isinstance(kind, pd.StringDtype) or kind.storage != "pyarrow" or not len(cells):
        return None
    pyarrow = optional_package("pyarrow", "searching a column of texts", extra="tables")
    texts = pyarrow.table({"texts": cells})["texts"].combine_chunks()
    if texts.nbytes > MAX_BYTES_IN_ARROW:
        return None
    lines = pyarrow.ListArray.from_arrays([0, len(texts)], texts.cast(pyarrow.string()))
    compute = optional_package("pyarrow.compute", "searching a column of texts", extra="tables")
    joined = compute.binary_join(lines, "\n")[0].as_py()
    return f"\n{joined}\n"


def are_all(lines: str, pattern: str) -> bool:
    """Return whether all lines of a text have this form; its digits are those of ASCII."""
    pyarrow = optional_package("pyarrow", "searching a column of texts", extra="tables")
    compute = optional_package("pyarrow.compute", "searching a column of texts", extra="tables")
    texts = pyarrow.array([lines], pyarrow.large_string())
    found = compute.match_substring_regex(texts, rf"\A\n(?:(?:{pattern})\n)*\z")
    return bool(found[0].as_py())


def read_lines(lines: str, decimal: str) -> Array:
    """Return the numbers (n,) of all lines of a text, whose thousands are not separated.

    Pandas would skip a sign between thousands, but reads such numbers of 16 digits or more not
    exactly to the last bit.
    """
    table = pd.read_csv(
        io.BytesIO(lines[1:].encode()),
        sep="\x1f",  # stands in no line
        header=None,
        dtype=np.float64,
        decimal=decimal,
        na_filter=False,
        **exact_numbers(),
    )
    return np.asarray(table[0].to_numpy())


def character_codes(cells: pd.Series) -> np.ndarray | None:
    """Return the ASCII codes (n, n_characters) of texts, with zeros behind shorter ones.

    None: the texts cannot be joined (see `join_lines`), or have other characters.
    """
    lengths = cells.str.len()
    width = int(lengths.max())
    if lengths.min() < width:
        cells = cells.str.pad(width, side="right", fillchar="\0")
    lines = join_lines(cells)
    if lines is None or not lines.isascii():
        return None
    return np.frombuffer(lines[1:].encode(), np.uint8).reshape(len(cells), width + 1)[:, :width]
