"""Readers of files with a known content: columns of numbers by name.

They trust their files, whose checksums were compared before; a user's own files go through `csv_table`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sysid.data.extra import optional_package
from sysid.record import Array


def read_mat(*paths: Path, names: Mapping[str, str]) -> dict[str, Array]:
    """Columns from MATLAB files: name of the column -> name of the variable, in any of the files."""
    from scipy.io import loadmat

    variables = {name: value for path in paths for name, value in loadmat(path).items()}
    return {column: variables[name].ravel().astype(np.float64) for column, name in names.items()}


def read_csv(path: Path, *, names: Sequence[str]) -> dict[str, Array]:
    """Columns of these names from a comma-separated file with a header line."""
    with open(path, encoding="utf-8") as file:
        header = [name.strip().strip('"') for name in file.readline().split(",")]
    places = [header.index(name) for name in names]
    values = np.loadtxt(path, delimiter=",", skiprows=1, usecols=places, ndmin=2, encoding="utf-8")
    return {name: values[:, i].copy() for i, name in enumerate(names)}


def read_plain(path: Path, *, names: Sequence[str]) -> dict[str, Array]:
    """Columns, in the order of the names, from a text file with white space between numbers and no header."""
    values = np.loadtxt(path, ndmin=2, encoding="utf-8")
    return {name: values[:, i].copy() for i, name in enumerate(names)}


def read_xls(path: Path, *, names: Sequence[str]) -> dict[str, Array]:
    """Columns, in the order of the names, from the first sheet of an Excel 97 file with one header line.

    Raises
    ------
    DataError
        The package xlrd is not installed.
    """
    sheet = optional_package("xlrd", f"reading {path.name}").open_workbook(path).sheet_by_index(0)
    return {name: np.array(sheet.col_values(i, start_rowx=1), dtype=np.float64) for i, name in enumerate(names)}
