"""The report in short: counts, baselines and verdicts are those of the stores."""

import numpy as np
import pytest
import xarray as xr

from experiments.studies.cells import empty_cells
from experiments.studies.claims import GUIDELINES
from experiments.studies.guidelines_text import COLUMNS
from experiments.studies.headline import headline
from experiments.studies.published_table import published_cell

DATASETS = ("Rastrigin", "Tanks", "Concrete")


def table_store(factor):
    """Table 4 whose SMSE is the published one times ``factor(dataset, setting, criterion, variant)``."""
    store = xr.concat([empty_cells().expand_dims(seed=[0, 1])] * len(DATASETS), "dataset").assign_coords(
        dataset=list(DATASETS)
    )
    for place in np.ndindex(*(store.sizes[d] for d in ("dataset", "setting", "criterion", "variant"))):
        where = dict(zip(("dataset", "setting", "criterion", "variant"), place, strict=True))
        names = {d: str(store[d].values[i]) for d, i in where.items()}
        cell = published_cell("table_4", names["dataset"], names["criterion"], accepting=names["variant"] != "none")
        store["smse"].loc[names | {"threshold_choice": "published"}] = cell.smse * factor(**names)
    return store


def test_counts_go_from_the_fewest_to_the_most_over_criteria_and_variants():
    def factor(dataset, setting, criterion, variant):
        if setting == "trained":
            return 2.0 if dataset == "Tanks" or (dataset == "Concrete" and criterion == "prior_entropy") else 0.5
        return 0.5 if setting == "adaptive" else 2.0

    text = headline({"table_4": table_store(factor)})
    assert "| Table 4 | 1 to 2 of 3 | 3 of 3 | 0 of 3 |" in text


def baselines(vfe):
    model = ["full_gp", "vfe", "bilinear", "online_gp", "online_gp_adaptive"]
    smse = np.full((2, 5, 3), np.nan)
    smse[0, 0] = [0.0002, 0.0003, 0.0001]
    smse[1, 1], smse[1, 2], smse[1, 3], smse[1, 4] = vfe, 0.3, 0.35, 0.33
    floor = np.array([[np.nan] * 3, [0.2, 0.25, 0.2]])
    return xr.Dataset(
        {"smse": (("dataset", "model", "seed"), smse), "floor_whole_past": (("dataset", "seed"), floor)},
        coords={"dataset": ["Van der Pol", "Building"], "model": model},
    )


def test_the_building_is_compared_with_both_floors():
    text = headline({"baselines": baselines([0.24, 0.3, 0.27])})
    assert "full GP: SMSE 0.000200" in text or "full GP: SMSE 2.00" in text
    assert "VFE 0.270 (published, another plant: 0.3397), 0.900 times the bilinear" in text
    assert "(0.300), 1.20 times the Kalman filter" in text
    assert "the online GP 0.350, following the stream 0.330" in text


def test_a_gap_leaves_its_line_out():
    text = headline({"baselines": baselines(np.nan)})
    assert "Building" not in text
    assert "Van der Pol" in text


@pytest.mark.parametrize("name", COLUMNS)
def test_verdicts_stand_in_the_column_of_their_setting(name):
    verdicts = np.full((len(GUIDELINES), len(COLUMNS)), "", dtype="U20")
    verdicts[1, COLUMNS.index(name)] = "holds in part"
    store = xr.Dataset(
        {"guideline_verdict": (("guideline", "setting"), verdicts)},
        coords={"guideline": list(GUIDELINES), "setting": list(COLUMNS)},
    )
    line = next(line for line in headline({"guidelines": store}).splitlines() if line.startswith("| 2. "))
    cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
    assert cells == ["holds in part" if column == name else "-" for column in COLUMNS]


def test_nothing_gives_nothing():
    assert headline({}) == ""
