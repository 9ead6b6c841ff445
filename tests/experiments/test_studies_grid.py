"""The grid of acceptance and reduction criteria on made-up stores, and on real streams."""

import numpy as np
import pytest
from reproducing import make_plan, prepare

from experiments.studies.execution import compute_job
from experiments.studies.grid import (
    ACCEPTANCES,
    CRITERIA,
    IS_MATCHED,
    count_agreement,
    find_best,
    median_smse,
    relate_to_best,
)
from experiments.studies.report import STUDIES
from experiments.studies.stream import Outcome, Run, Streams, row_of
from experiments.studies.study import Unit, part_of, write_part

STUDY = STUDIES["grid"]
KIND = dict(zip(CRITERIA, (0, 0, 1, 2, 2), strict=True))
#: SMSE by kind of reduction (rows) and of acceptance, the last column without
SMSE = np.array([[4.0, 8.0, 6.0, 5.0], [3.0, 2.0, 4.0, 5.0], [1.0, 3.0, 1.5, 2.0]])


@pytest.fixture
def store(tmp_path):
    """SMSE times 1, 2, 3 over the seeds of Rastrigin; times 10 in the only one of the Tanks; no Building."""
    plan = make_plan(tmp_path, "rastrigin", "tanks", "building", seeds=3)
    for task, seed, factor in (("rastrigin", 0, 1), ("rastrigin", 1, 2), ("rastrigin", 2, 3), ("tanks", 0, 10)):
        rows = []
        for acceptance in ACCEPTANCES:
            for reduction in CRITERIA:
                smse = SMSE[KIND[reduction], KIND.get(acceptance, 3)] * factor
                outcome = Outcome(smse, *[0.0] * 4, 500, 400, int(100 * seed + 10 * smse), 0, 0.0)
                rows.append(row_of(Run("trained", reduction, acceptance), outcome))
        write_part(part_of(rows), Unit("grid", task, seed), plan)
    return STUDY.combine(plan)


def cells_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_rows_are_medians(store):
    rows = STUDY.rows(store)
    names = "dataset,setting,reduction,acceptance,reference,smse,n_revised,accepted_percent,n_seeds"
    assert ",".join(rows) == names
    assert len(rows) == 3 * 6 * 5
    found = rows.set_index(["dataset", "reduction", "acceptance"])
    row = found.loc["Rastrigin", "mean_relevance", "predictive_entropy"]
    assert tuple(row) == ("trained", "leave_one_out", 6.0, 160.0, 40.0, 3)
    assert found.loc["Tanks", "prior_entropy", "none"]["reference"] == ""
    assert found.loc["Tanks", "prior_entropy", "marginal_log_likelihood"]["smse"] == 60.0
    gap = found.loc["Building", "prior_entropy", "none"]
    assert gap["n_seeds"] == 0
    assert np.isnan(gap["smse"])


def test_pairs_are_matched_within_their_class_and_share_one_name(store):
    for acceptance in ACCEPTANCES:
        for reduction in CRITERIA:
            is_matched = KIND.get(acceptance) == KIND[reduction]
            assert bool(IS_MATCHED.sel(acceptance=acceptance, reduction=reduction)) is is_matched
    ratio = relate_to_best(median_smse(store)).sel(dataset="Tanks")
    assert find_best(ratio) == ["Marginal log likelihood with prior entropy"]
    assert float(ratio.sel(acceptance="mean_relevance", reduction="prior_entropy")) == 8.0


def test_tables_answer_whether_the_diagonal_is_best(store):
    store["smse"].loc[{"dataset": "Tanks", "acceptance": "none", "reduction": "mean_relevance"}] *= 4.0
    tables = STUDY.tables(store)
    best = cells_of(tables["best"])
    assert best[2] == ["Rastrigin", "2.00", "Marginal log likelihood with prior entropy", "1.500", "2.000"]
    means = {row[0]: row[1:] for row in cells_of(tables["means"])}
    assert means["Prior entropy"] == ["5.000", "4.000", "4.000", "8.000", "6.000", "6.000", "2 of 2"]
    assert means["Mean relevance"][0] == f"{np.sqrt(5.0 * 20.0):.2f}"  # geometric, over datasets
    assert means["Mean relevance"][-1] == "2 of 2"
    assert means["Log predictive density"][-1] == "0 of 2"
    rastrigin, tanks = tables["medians"].split("### Tanks")
    row = ["Marginal log likelihood", "20.0", "**10.0**", "**10.0**", "30.0", "15.0", "15.0"]
    assert row in cells_of(tanks)
    assert tanks.count("**") == 2 * 4
    assert "### Rastrigin" in rastrigin


def test_agreement_counts_cells_of_every_seed(store):
    assert count_agreement(store, "reduction") == (2 * 6 * 4, 2 * 6 * 4, 0.0)  # pairs, acceptances, seeds with data
    assert count_agreement(store, "acceptance") == (2 * 5 * 4, 2 * 5 * 4, 0.0)
    where = {"dataset": "Rastrigin", "acceptance": "none", "reduction": "predictive_entropy", "seed": 1}
    store["smse"].loc[where] *= 1.25
    other = {"dataset": "Tanks", "acceptance": "mean_relevance", "reduction": "log_predictive_density", "seed": 0}
    store["n_revised"].loc[other] += 1
    equal, n, largest = count_agreement(store, "reduction")
    assert (equal, n) == (46, 48)
    assert largest == pytest.approx(0.2)
    assert cells_of(STUDY.tables(store)["agreement"])[2] == ["reduction, under every acceptance", "48", "46", "0.200"]


def test_the_figure_shows_ratios_and_frames_matched_pairs(store):
    figure = STUDY.figures(store)["grid"]()
    panels = {ax.get_title(): ax for ax in figure.axes if ax.get_title()}
    assert list(panels) == ["Rastrigin", "Tanks", "Building"]
    ax = panels["Tanks"]
    image = ax.images[0].get_array()
    assert (image.shape, image[0, 2]) == ((6, 5), 4.0)  # without acceptance, mean relevance: 5, colours end at 4
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert (texts[2, 0], texts[0, 3]) == ("5.00", "8.00")
    assert len(ax.patches) == 4 + 1 + 4
    assert [text.get_text() for text in panels["Building"].texts] == ["no data"]


def test_without_any_data_nothing_is_left(store):
    tables = STUDY.tables(store.sel(dataset=["Building"]))
    assert set(tables.values()) == {"No data."}


def test_the_real_grid_is_full_and_its_equivalent_criteria_agree(tmp_path):
    plan = prepare(make_plan(tmp_path, "rastrigin", budget=15, most_rows=60))
    for seed in range(2):
        compute_job((Unit("grid", "rastrigin", seed),), plan)
    real = STUDY.combine(plan)
    assert np.isfinite(real["smse"].values).all()
    assert (real["n_inserted"] == 60).all()
    assert (real.sel(acceptance="none")["n_revised"] == 60).all()
    assert len({round(float(x), 12) for x in real["smse"].isel(seed=0).values.flat}) > 5
    for role, n in (("reduction", 24), ("acceptance", 20)):
        assert count_agreement(real, role)[:2] == (n, n)
    run = Run("trained", "mean_relevance", "log_predictive_density", "leave_one_out")
    cell = real.sel(dataset="Rastrigin", reduction="mean_relevance", acceptance="log_predictive_density", seed=1)
    assert float(cell["smse"]) == Streams("rastrigin", 1, plan).offer(run).smse
