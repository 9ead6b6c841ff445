"""Tables from Excel workbooks and Parquet files, through optional packages."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pandas as pd

from sysid import store
from sysid.data.source import optional_package
from sysid.data.text_table import MAX_UNIT_ROWS, check_size, count_unit_rows, read_units
from sysid.errors import UserError

#: ending of a workbook -> package that reads it
PACKAGES_OF_WORKBOOKS = {
    ".xlsx": "openpyxl",
    ".xlsm": "openpyxl",
    ".xls": "xlrd",
}

#: bytes at the start of a part of a workbook in which XML could define texts that grow
DEFINITION_BYTES = 65536

#: first version of pyarrow that runs nothing of a file (CVE-2023-47248)
FIRST_SAFE_PYARROW = (14, 0, 1)

#: bytes of one number in memory
BYTES_PER_NUMBER = 8


def read_workbook(path: Path) -> pd.DataFrame:
    """Read the first sheet of an Excel workbook, whose first row names the columns.

    Formulas are not computed: their stored results are read.

    Raises
    ------
    sysid.DataError
        The package that reads it is not installed, or the file is too large.
    ValueError
        It is no workbook, is damaged, or has no rows.
    """
    check_size(path, "workbook")
    name_of_package = PACKAGES_OF_WORKBOOKS[path.suffix.lower()]
    optional_package(name_of_package, f"reading {path.name}", extra="tables")
    if name_of_package == "openpyxl":
        _check_archive(path)
    try:
        with pd.ExcelFile(path, engine=name_of_package) as book:
            sheets = [str(name) for name in book.sheet_names]
            cells = pd.read_excel(book, sheet_name=sheets[0], header=None, dtype=object)
    except Exception as error:  # the packages raise errors of many kinds for a damaged file
        raise UserError(f"{path}: damaged or no workbook ({error}): save it again") from None
    cells = cells.dropna(how="all", axis=0).dropna(how="all", axis=1)
    if len(cells) < 2:
        raise UserError(f"{path}: expected a row of names and rows of numbers in its first sheet")
    names = [" ".join(str(name).split()) if pd.notna(name) else "" for name in cells.iloc[0]]
    first_row = int(cells.index[1]) + 1
    below = cells.iloc[1:].reset_index(drop=True)
    attributes: dict[str, Any] = {"file": str(path), "notes": []}
    if len(sheets) > 1:
        attributes["notes"].append(f"its first sheet is read, {sheets[0]!r} of {sheets}")
    head = below.iloc[: MAX_UNIT_ROWS + 1].to_numpy()
    texts = [["" if pd.isna(cell) else str(cell).strip() for cell in row] for row in head]
    n_units = count_unit_rows(texts)
    if n_units:
        attributes["units"] = read_units(texts[0], names, attributes["notes"])
        below = below.iloc[n_units:].reset_index(drop=True)
    table = below.infer_objects()
    table.columns = pd.Index(names)
    table.attrs = attributes | {"line": first_row + n_units, "row_word": "row"}
    return table


def _check_archive(path: Path) -> None:
    """Raise UserError if a workbook, which is a zip archive of XML, could grow beyond its size."""
    allowed = min(
        store.max_content_bytes(),
        max(store.ALWAYS_ALLOWED_BYTES, store.MAX_COMPRESSION_RATIO * path.stat().st_size),
    )
    try:
        with zipfile.ZipFile(path) as archive:
            n_bytes = sum(part.file_size for part in archive.infolist())
            if n_bytes > allowed:
                raise UserError(
                    f"{path}: it claims {n_bytes} bytes unpacked, at most {allowed} are allowed: "
                    "save it as CSV"
                )
            for part in archive.infolist():
                with archive.open(part) as opened:
                    start = opened.read(DEFINITION_BYTES)
                if b"<!DOCTYPE" in start or b"<!ENTITY" in start:
                    raise UserError(f"{path}: its part {part.filename!r} defines texts: refused")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise UserError(f"{path}: damaged or no workbook ({error}): save it again") from None


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file.

    Raises
    ------
    sysid.DataError
        pyarrow is not installed, or the file is too large.
    ValueError
        It is no Parquet file, is damaged, or claims more than it may take.
    """
    check_size(path, "Parquet file")
    package = optional_package("pyarrow", f"reading {path.name}", extra="tables")
    version = tuple(int(part) for part in package.__version__.split(".")[:3])
    if version < FIRST_SAFE_PYARROW:
        raise UserError(
            f"{path}: pyarrow {package.__version__} may run what a file contains: update it"
        )
    parquet = optional_package("pyarrow.parquet", f"reading {path.name}", extra="tables")
    try:
        with parquet.ParquetFile(path) as file:
            metadata = file.metadata
            n_bytes = sum(
                metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)
            )
            n_numbers = metadata.num_rows * metadata.num_columns
            claimed = max(n_bytes, BYTES_PER_NUMBER * n_numbers)
            possible = max(
                store.ALWAYS_ALLOWED_BYTES, store.MAX_COMPRESSION_RATIO * path.stat().st_size
            )
            if claimed > min(possible, store.max_content_bytes()):
                raise UserError(f"{path}: it claims {claimed} bytes, more than is allowed: cut it")
            table = file.read().to_pandas()
    except UserError:
        raise
    except Exception as error:  # pyarrow raises errors of many kinds for a damaged file
        raise UserError(f"{path}: damaged or no Parquet file ({error}): write it again") from None
    table.attrs = {"file": str(path), "line": 1, "row_word": "row"}
    return table
