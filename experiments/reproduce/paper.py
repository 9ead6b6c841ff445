"""The numbers that the paper prints."""

from functools import cache
from itertools import product
from pathlib import Path

import pandas as pd

from sysid.gp.rules import COMPARED_CRITERIA

FULL_GP_VAN_DER_POL = 0.0002  # SMSE, section 6
VFE_BUILDING = 0.3397  # SMSE, section 6
PRINTED_TABLES = ("table_1", "table_2", "table_3", "table_4")
THRESHOLD_COLUMNS = {"table_3": "variance_threshold", "table_4": "error_threshold"}


@cache
def read_table(table: str) -> pd.DataFrame:
    """Read a table as printed; its index is the dataset, or the criterion in table 1."""
    (path,) = (Path(__file__).parent / "published").glob(f"{table}_*.csv")
    # As floats, numbers are the nearest ones to their printed texts.
    return pd.read_csv(path, index_col=0, dtype=str).astype(float)


@cache
def read_cells(table: str) -> pd.DataFrame:
    """Return the cells of table 2, 3 or 4: ``dataset``, ``criterion``, ``is_accepting``, numbers.

    The numbers that the paper prints are ``threshold`` (target unit, squared for the variance),
    ``smse``, ``n_revised`` and ``accepted_percent``; they are nan where it prints nothing. Table 2
    states a percentage only, from which the number of points follows; without acceptance it revises
    all new points.
    """
    cells = []
    has_threshold = table in THRESHOLD_COLUMNS
    every = product(read_table(table).iterrows(), COMPARED_CRITERIA, (False, True))
    for (dataset, row), criterion, is_accepting in every:
        suffix = "_accept" if is_accepting else ""
        cell = {
            "dataset": dataset,
            "criterion": criterion,
            "is_accepting": is_accepting,
            "threshold": float("nan"),
            "smse": row[f"{criterion}_smse{suffix}"],
        }
        if has_threshold:
            cell["threshold"] = row[THRESHOLD_COLUMNS[table]]
            cell["n_revised"] = row[f"{criterion}_n_revised{suffix}"]
            cell["accepted_percent"] = float("nan")
        else:
            percent = row[f"{criterion}_accepted_percent"] if is_accepting else 100.0
            cell["n_revised"] = percent / 100 * row["n_new"]
            cell["accepted_percent"] = percent
        cells.append(cell)
    return pd.DataFrame(cells).round({"n_revised": 0})
