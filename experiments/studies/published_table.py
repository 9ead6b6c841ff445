"""The numbers that the paper prints."""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

FULL_GP_VAN_DER_POL = 0.0002  # SMSE, section 6
VFE_BUILDING = 0.3397  # SMSE, section 6

FILES = {
    "table_1": "table_1_complexity.csv",
    "table_2": "table_2_acceptance.csv",
    "table_3": "table_3_variance_threshold.csv",
    "table_4": "table_4_error_threshold.csv",
}
THRESHOLDS = {"table_3": "variance_threshold", "table_4": "error_threshold"}


class PublishedCell(NamedTuple):
    """What the paper prints for one dataset, criterion and variant; nan where it prints nothing."""

    threshold: float  # target unit, squared for the variance
    smse: float
    n_revised: float  # points
    accepted_percent: float


@cache
def published_rows(table: str) -> dict[str, dict[str, float]]:
    """Rows of a table by their first column (the dataset; of table 1 the criterion)."""
    text = files("experiments.studies.published").joinpath(FILES[table]).read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))
    names = rows[0][1:]
    return {row[0]: dict(zip(names, map(float, row[1:]), strict=True)) for row in rows[1:]}


def published_cell(table: str, dataset: str, criterion: str, *, accepting: bool) -> PublishedCell:
    """Cell of tables 2 to 4.

    Without acceptance table 2 revises all new points; it states a percentage only, of which the number follows.
    """
    row = published_rows(table)[dataset]
    nan = float("nan")
    variant = "_accept" if accepting else ""
    smse = row[f"{criterion}_smse{variant}"]
    if table != "table_2":
        return PublishedCell(row[THRESHOLDS[table]], smse, row[f"{criterion}_n_revised{variant}"], nan)
    percent = row[f"{criterion}_accepted_percent"] if accepting else 100.0
    return PublishedCell(nan, smse, round(percent / 100.0 * row["n_new"]), percent)


def published_initial(table: str, dataset: str) -> float:
    """SMSE before the stream, as the table prints it."""
    return published_rows(table)[dataset]["initial_smse"]
