"""The grid of acceptance and reduction criteria on made-up stores, and on one real stream."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.studies.catalogue import STUDIES
from experiments.studies.execution import compute_and_keep
from experiments.studies.grid import ACCEPTANCES, CRITERIA, Grid, empty_grid
from experiments.studies.grid_verdict import agreement, agreement_text, best_cells, cell_medians, is_matched, relative
from experiments.studies.label import LABELS
from experiments.studies.part import read_part
from experiments.studies.plan import Plan
from experiments.studies.report import csv_text
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.study import Unit
from sysid import LogPredictiveDensity, MeanRelevance, OnlineGP, PriorEntropy

COLUMNS = "dataset,setting,reduction,acceptance,reference,smse,n_revised,accepted_percent,n_seeds"
KIND = {
    "prior_entropy": 0,
    "predictive_entropy": 0,
    "mean_relevance": 1,
    "marginal_log_likelihood": 2,
    "log_predictive_density": 2,
}
#: SMSE by kind of reduction (rows) and of acceptance, the last column without
SMSE = np.array([[4.0, 8.0, 6.0, 5.0], [3.0, 2.0, 4.0, 5.0], [1.0, 3.0, 1.5, 2.0]])
SEEDS = 3


def made_up(seed, scale=1.0):
    """Cells that follow `SMSE`, times 1, 2, 3 over the seeds."""
    cells = empty_grid()
    for i, acceptance in enumerate(ACCEPTANCES):
        for j, reduction in enumerate(CRITERIA):
            value = SMSE[KIND[reduction], KIND.get(acceptance, 3)] * (seed + 1) * scale
            cells["smse"].values[i, j] = value
            cells["n_revised"].values[i, j] = 100 * seed + 10 * value
            cells["accepted_percent"].values[i, j] = 25.0
    return cells


def store_of(tanks_scale=10.0):
    plan = Plan(Path("nowhere"), tasks=("rastrigin", "tanks", "building"), seeds=SEEDS)
    parts = {Unit("grid", "rastrigin", seed): made_up(seed) for seed in range(SEEDS)}
    parts[Unit("grid", "tanks", 0)] = made_up(0, tanks_scale)
    return Grid().combine(parts, plan).assign_attrs(gaps=json.dumps({"Building": "no weather"}))


def line_of(text, start):
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in line.strip("|").split("|")]


def mean_of(text, reduction):
    """Cells of the table of geometric means, without the name of the reduction."""
    before_agreement = text[: text.index("## Criteria that choose")]
    return line_of(before_agreement, f"| {reduction} |")[1:]


def test_columns_are_exact_and_rows_are_medians():
    rows = Grid().rows(store_of())
    text = csv_text(rows)
    assert text.splitlines()[0] == COLUMNS
    assert len(rows) == 3 * 6 * 5
    read = list(csv.DictReader(io.StringIO(text)))
    keys = ("dataset", "reduction", "acceptance")
    found = {tuple(row[key] for key in keys): row for row in read}
    row = found["Rastrigin", "mean_relevance", "predictive_entropy"]
    assert (row["smse"], row["n_revised"], row["accepted_percent"], row["n_seeds"]) == ("6", "160", "25", "3")
    assert (row["setting"], row["reference"]) == ("trained", "leave_one_out")
    row = found["Tanks", "prior_entropy", "marginal_log_likelihood"]
    assert (row["smse"], row["n_seeds"]) == ("60", "1")
    assert found["Tanks", "prior_entropy", "none"]["reference"] == ""
    gap = found["Building", "prior_entropy", "none"]
    assert (gap["smse"], gap["n_revised"], gap["n_seeds"]) == ("", "", "0")


def test_pairs_are_matched_within_their_class():
    found = {(a, r) for a in ACCEPTANCES for r in CRITERIA if is_matched(a, r)}
    assert found == {(a, r) for a in CRITERIA for r in CRITERIA if KIND[a] == KIND[r]}


def test_the_best_cell_has_one_name_for_criteria_that_choose_the_same_points():
    ratio = relative(cell_medians(store_of())["smse"]).sel(dataset="Tanks")
    assert best_cells(ratio) == ["Marginal log likelihood with prior entropy"]
    assert float(ratio.sel(acceptance="mean_relevance", reduction="prior_entropy")) == 8.0


def test_markdown_answers_whether_the_diagonal_is_best():
    text = Grid().markdown(store_of())
    assert text.startswith("Building: no weather.")
    line = line_of(text, "| Rastrigin | 2.00 |")
    assert line[2:] == ["Marginal log likelihood with prior entropy", "1.500", "2.000"]
    assert "an acceptance is a matched one in 0 of 2 datasets, and a matched one is within 5 % of it in 0." in text
    lowest = "the lowest is 1.000: Marginal log likelihood with prior entropy"
    assert f"{lowest}; the best matched pair has 1.500: Marginal" in text
    expected = ["5.000", "4.000", "4.000", "8.000", "6.000", "6.000", "2 of 2"]
    assert mean_of(text, "Prior entropy") == expected
    assert mean_of(text, "reduction") == ["none", *(LABELS[name].lower() for name in CRITERIA), "matched is best in"]
    assert mean_of(text, "Mean relevance")[-1] == "2 of 2"
    assert mean_of(text, "Log predictive density")[-1] == "0 of 2"
    tanks = text[text.index("### Tanks") :]
    assert line_of(tanks, "| Marginal log likelihood")[1:] == ["20.0", "**10.0**", "**10.0**", "30.0", "15.0", "15.0"]
    assert tanks.count("**") == 2 * 4


def test_a_matched_best_cell_is_told():
    store = store_of()
    store["smse"].loc[{"dataset": "Tanks", "acceptance": "mean_relevance", "reduction": "mean_relevance"}] = 1.0
    text = Grid().markdown(store)
    assert "is a matched one in 1 of 2 datasets, and a matched one is within 5 % of it in 1." in text
    assert line_of(text, "| Tanks | 1.00 |")[2:] == ["Mean relevance with mean relevance", "1.000", "20.00"]


def test_geometric_means_are_over_datasets():
    store = store_of()
    store["smse"].loc[{"dataset": "Tanks", "acceptance": "none", "reduction": "mean_relevance"}] *= 4.0
    text = Grid().markdown(store)
    assert mean_of(text, "Mean relevance")[0] == f"{np.sqrt(5.0 * 20.0):.2f}"


def test_agreement_counts_cells_of_every_seed():
    store = store_of()
    assert agreement(store, "reduction") == (2 * 6 * 4, 2 * 6 * 4, 0.0)  # pairs, acceptances, seeds with data
    assert agreement(store, "acceptance") == (2 * 5 * 4, 2 * 5 * 4, 0.0)
    where = {"dataset": "Rastrigin", "acceptance": "none", "reduction": "predictive_entropy", "seed": 1}
    store["smse"].loc[where] *= 1.25
    other = {"dataset": "Tanks", "acceptance": "mean_relevance", "reduction": "log_predictive_density", "seed": 0}
    store["n_revised"].loc[other] += 1
    equal, n, largest = agreement(store, "reduction")
    assert (equal, n) == (46, 48)
    assert largest == pytest.approx(0.2)
    text = agreement_text(store)
    assert "As reduction criteria, under every acceptance: 46 of 48 pairs of cells agree" in text
    assert "the largest difference is 0.200." in text
    assert "As acceptance criteria, under every reduction: 40 of 40" in text


def test_without_any_data_only_the_reasons_are_left():
    store = store_of().sel(dataset=["Building"])
    assert Grid().markdown(store) == "Building: no weather."
    assert len(Grid().figures(store)["grid"]().axes) > 1


def test_the_figure_shows_ratios_and_frames_matched_pairs():
    figure = Grid().figures(store_of())["grid"]()
    panels = {ax.get_title(): ax for ax in figure.axes if ax.get_title()}
    assert list(panels) == ["Rastrigin", "Tanks", "Building"]
    ax = panels["Tanks"]
    image = ax.images[0].get_array()
    assert image.shape == (6, 5)
    assert image[0, 2] == 4.0  # without acceptance, mean relevance: 5, colours end at 4
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert texts[2, 0] == "5.00"
    assert texts[0, 3] == "8.00"
    assert len(ax.patches) == 4 + 1 + 4
    assert [text.get_text() for text in panels["Building"].texts] == ["no data"]


# a real stream


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Two seeds of Rastrigin, 60 rows of the stream."""
    plan = Plan(tmp_path_factory.mktemp("grid"), tasks=("rastrigin",), seeds=2, budget=15, n_initial=20, most_rows=60)
    study = STUDIES["grid"]
    for unit in (*(Unit("preparation", "rastrigin", seed) for seed in range(2)), *study.units(plan)):
        assert compute_and_keep(unit, plan) is None
    return plan, study.combine({unit: read_part(unit, plan) for unit in study.units(plan)}, plan)


@pytest.mark.parametrize(
    ("acceptance", "reduction"), [("none", PriorEntropy()), ("log_predictive_density", MeanRelevance())]
)
def test_a_real_cell_is_what_an_online_gp_gives(real, acceptance, reduction):
    plan, store = real
    data, start = (
        get("rastrigin", 1, *more, plan) for get, more in ((data_of, ()), (hyperparameters_of, [Setting.trained]))
    )
    gp = OnlineGP(
        start.kernel,
        noise_variance=start.noise_variance,
        budget=plan.budget,
        acceptance=ACCEPTANCES[acceptance],
        reduction=reduction,
    ).fit(data.initial_inputs, data.initial_targets)
    n_revised = sum(gp.update(x, y).accepted for x, y in zip(data.inputs, data.targets, strict=True))
    mean, _ = gp.predict(data.test_inputs)
    smse = np.mean((data.test_targets - mean) ** 2) / np.var(data.test_targets)
    (name,) = [name for name, criterion in CRITERIA.items() if criterion == reduction]
    cell = store.sel(dataset="Rastrigin", acceptance=acceptance, reduction=name, seed=1)
    assert float(cell["smse"]) == pytest.approx(smse, rel=1e-9)
    assert float(cell["n_revised"]) == n_revised
    assert float(cell["accepted_percent"]) == pytest.approx(100.0 * n_revised / 60)


def test_acceptances_judge_by_their_own_criterion_without_the_point():
    assert ACCEPTANCES["log_predictive_density"].criterion == LogPredictiveDensity()
    assert {a.reference.value for name, a in ACCEPTANCES.items() if name != "none"} == {"leave_one_out"}
    assert [a.criterion for name, a in ACCEPTANCES.items() if name != "none"] == list(CRITERIA.values())


def test_the_real_grid_is_full_and_its_equivalent_criteria_agree(real):
    _, store = real
    assert np.isfinite(store["smse"].values).all()
    assert (store["n_inserted"] == 60).all()
    assert (store.sel(acceptance="none")["n_revised"] == 60).all()
    assert len({round(float(x), 12) for x in store["smse"].isel(seed=0).values.flat}) > 5
    for role, n in (("reduction", 24), ("acceptance", 20)):
        assert agreement(store, role)[:2] == (n, n)
