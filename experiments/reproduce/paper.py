"""The numbers that the paper prints."""

from functools import cache
from itertools import product
from pathlib import Path

import pandas as pd

from sysid.gp.rules import COMPARED_CRITERIA

FULL_GP_VAN_DER_POL = 0.0002  # SMSE, section 6
VFE_BUILDING = 0.3397  # SMSE, section 6
TABLES = ("table_1", "table_2", "table_3", "table_4")
THRESHOLDS = {"table_3": "variance_threshold", "table_4": "error_threshold"}


@cache
def read_table(table: str) -> pd.DataFrame:
    """Read a table as printed, by its first column (the dataset; of table 1 the criterion)."""
    (path,) = (Path(__file__).parent / "published").glob(f"{table}_*.csv")
    return pd.read_csv(path, index_col=0, dtype=str).astype(
        float
    )  # each number is the nearest one to its text


@cache
def read_cells(table: str) -> pd.DataFrame:
    """Cells of table 2, 3 or 4: ``dataset``, ``criterion``, ``is_accepting``, and the numbers that
    the paper prints.

    These are ``threshold`` (target unit, squared for the variance), ``smse``, ``n_revised``,
    ``accepted_percent``; nan where it prints nothing. Table 2 states a percentage only, of which
    the number of points follows; without acceptance it revises all new points.
    """
    cells = []
    is_printed = table != "table_2"
    every = product(read_table(table).iterrows(), COMPARED_CRITERIA, (False, True))
    for (dataset, row), criterion, is_accepting in every:
        suffix = "_accept" if is_accepting else ""
        percent = row[f"{criterion}_accepted_percent"] if is_accepting and not is_printed else 100.0
        found = {
            "threshold": row[THRESHOLDS[table]] if is_printed else float("nan"),
            "smse": row[f"{criterion}_smse{suffix}"],
            "n_revised": row[f"{criterion}_n_revised{suffix}"]
            if is_printed
            else percent / 100 * row["n_new"],
            "accepted_percent": float("nan") if is_printed else percent,
        }
        cells.append(
            {"dataset": dataset, "criterion": criterion, "is_accepting": is_accepting} | found
        )
    return pd.DataFrame(cells).round({"n_revised": 0})
