"""The paper's own numbers in the shape of our tables, so that the same tests can be put to them."""

import numpy as np
import xarray as xr

from experiments.studies.cells import CHOICES
from experiments.studies.evidence import Results
from experiments.studies.published_table import published_cell
from experiments.studies.stream import CRITERIA, VARIANTS
from experiments.studies.tasks.catalogue import TASKS

PRINTED = "printed"  # name of this column, beside the settings
DIMENSIONS = ("dataset", "criterion", "variant", "threshold_choice", "seed")
QUANTITIES = ("smse", "n_revised", "n_inserted", "accepted_percent")


def printed_table(table: str) -> xr.Dataset:
    """Table 2, 3 or 4 as printed, one number per task.

    The paper does not say which reference its acceptance has: its numbers stand under each. Without acceptance every
    point that is inserted is revised; with it only table 2 tells how many were inserted.
    """
    titles = [task.title for task in TASKS.values()]
    shape = (len(titles), len(CRITERIA), len(VARIANTS), len(CHOICES), 1)
    values = {quantity: np.full(shape, np.nan) for quantity in QUANTITIES}
    for place in np.ndindex(shape[:3]):
        title, criterion, variant = (names[i] for names, i in zip((titles, [*CRITERIA], VARIANTS), place, strict=True))
        cell = published_cell(table, title, criterion, accepting=variant != "none")
        known = {"smse": cell.smse, "n_revised": cell.n_revised, "accepted_percent": cell.accepted_percent}
        if variant == "none":
            known["n_inserted"] = cell.n_revised
        for quantity, value in known.items():
            values[quantity][(*place, CHOICES.index("published"), 0)] = value
    coords = {"dataset": titles, "criterion": list(CRITERIA), "variant": list(VARIANTS)}
    variables = {name: (DIMENSIONS, array) for name, array in values.items()}
    return xr.Dataset(variables, coords=coords | {"threshold_choice": list(CHOICES), "seed": [0]})


def printed_results() -> Results:
    """All three tables."""
    stores = {name: printed_table(name).expand_dims(setting=[PRINTED]) for name in ("table_2", "table_3", "table_4")}
    return Results(PRINTED, stores, has_seeds=False)
