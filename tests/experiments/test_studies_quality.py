"""What the tables must show, on the tasks that are not random: repeated by `pytest -m slow`."""

import json
import os

import numpy as np
import pytest
import xarray as xr

from experiments.studies.baselines.floor import floors_of
from experiments.studies.catalogue import STUDIES
from experiments.studies.execution import Execution, compute_and_keep
from experiments.studies.part import read_part
from experiments.studies.plan import Plan
from experiments.studies.report import write_study
from experiments.studies.study import Unit
from experiments.studies.table_summary import summaries
from sysid import store
from tests.experiments.reproducing import quick_plan

RECORDS = ("concrete", "tanks")


@pytest.fixture(scope="module")
def tables(shared_data, tmp_path_factory):
    """Tables 2 to 4 of the two records in full size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYSID_DATA", str(shared_data))
        plan = Plan(tmp_path_factory.mktemp("tables"), RECORDS, seeds=3)
        units = {name: STUDIES[name].units(plan) for name in ("table_2", "table_3", "table_4")}
        before = [[Unit(work, task) for task in RECORDS] for work in ("preparation", "calibration")]
        execution = Execution(plan, os.cpu_count() or 1)
        execution.run([*before, [unit for some in units.values() for unit in some]])
        assert not execution.gaps
        return {
            name: STUDIES[name].combine({unit: read_part(unit, plan) for unit in some}, plan)
            for name, some in units.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("table", ["table_2", "table_3", "table_4"])
def test_following_the_stream_is_at_or_below_every_published_error(tables, table):
    cells = [
        cell
        for cell in summaries(tables[table], table)
        if cell.setting == "adaptive" and cell.choice == "published" and cell.n_seeds
    ]
    assert len(cells) == 2 * 3 * 4  # records, criteria, variants
    worse = [(cell.dataset, cell.criterion, cell.variant) for cell in cells if cell.smse > cell.published.smse]
    assert not worse


@pytest.mark.slow
def test_without_following_most_cells_of_the_error_threshold_are_at_or_below(tables):
    cells = [
        cell
        for cell in summaries(tables["table_4"], "table_4")
        if cell.setting == "trained" and cell.choice == "published" and cell.n_seeds
    ]
    assert all(cell.smse <= cell.published.smse for cell in cells)


def store_of_baselines():
    smse = np.array([[[0.5, 0.7, 0.6], [0.9, 0.8, 1.0]], [[0.3, 0.2, 0.4], [0.5, 0.5, 0.5]]])
    return xr.Dataset(
        {
            "smse": (("dataset", "model", "seed"), smse),
            "floor_whole_past": (("dataset", "seed"), [[np.nan] * 3, [0.2, 0.25, 0.21]]),
        },
        coords={"dataset": ["Boston", "Building"], "model": ["full_gp", "vfe"]},
    )


def test_floors_are_medians_over_seeds():
    assert floors_of(store_of_baselines()) == {"Boston": 0.6, "Building": 0.21}


def test_tables_know_the_floors_of_the_baselines_in_their_folder(tmp_path):
    plan = quick_plan(tmp_path, "rastrigin")
    for unit in (Unit("preparation", "rastrigin", 0), Unit("preparation", "rastrigin", 1)):
        compute_and_keep(unit, plan)
    compute_and_keep(Unit("calibration", "rastrigin"), plan)
    for unit in STUDIES["table_4"].units(plan):
        compute_and_keep(unit, plan)
    store.write(store_of_baselines(), tmp_path / "baselines.nc", kind="study")
    write_study(STUDIES["table_4"], plan, {}, {}, figures=True)
    attributes = store.read(tmp_path / "table_4.nc", kind="study").attrs
    assert json.loads(attributes["floors"]) == {"Boston": 0.6, "Building": 0.21}
    blocks = (tmp_path / "table_4.md").read_text().split("\n\n")
    pictures = [i for i, block in enumerate(blocks) if block.startswith("![")]
    assert len(pictures) == 3
    assert all(blocks[i + 1].startswith("*SMSE of every dataset in the setting") for i in pictures)
    assert all((tmp_path / f"table_4_trained.{form}").stat().st_size > 1000 for form in ("pdf", "png"))
