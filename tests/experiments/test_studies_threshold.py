"""SMSE, variance and revised points against the error threshold."""

import numpy as np
import pytest
from reproducing import make_plan, prepare

from experiments.studies import paper
from experiments.studies.execution import compute_job
from experiments.studies.report import STUDIES
from experiments.studies.stream import VARIANTS, Outcome, Streams, row_of, run_of
from experiments.studies.study import Unit, part_of, read_part, write_part
from experiments.studies.threshold import DIMENSIONS, read_baseline

STUDY = STUDIES["figure_building"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = prepare(make_plan(tmp_path_factory.mktemp("sweep"), "van_der_pol", seeds=1, most_rows=60))
    compute_job((Unit("figure_van_der_pol", "van_der_pol"),), plan)
    return plan


@pytest.fixture(scope="module")
def real(plan):
    return STUDIES["figure_van_der_pol"].combine(plan).isel(seed=0)


@pytest.mark.parametrize("setting", ["trained", "published"])
@pytest.mark.parametrize("criterion", paper.CRITERIA)
def test_every_number_is_that_of_a_single_stream(plan, real, setting, criterion):
    for variant in VARIANTS:
        for threshold in real["threshold"].values[[0, 2, -1]]:
            run = run_of(setting, criterion, variant, "error", float(threshold))
            alone = Streams("van_der_pol", 0, plan).offer(run)
            cell = real.sel(setting=setting, criterion=criterion, variant=variant, threshold=threshold)
            found = {name: float(cell[name]) for name in Outcome._fields if name != "seconds"}
            assert found == {name: float(getattr(alone, name)) for name in found}
    low = real.isel(threshold=0).sel(setting="trained", criterion="prior_entropy")
    assert len(set(low["n_revised"].sel(variant=list(VARIANTS[:3])).values)) == 3  # otherwise nothing is told apart


def test_adaptive_is_computed_at_its_thresholds_and_variants_only(real):
    adaptive, thresholds = real["smse"].sel(setting="adaptive"), real["threshold"].values
    assert thresholds.tolist() == [0.0005, 0.003, 0.0055, 0.008, 0.0105, 0.013]
    expected = np.isin(thresholds, np.round(0.001 + 0.002 * np.arange(8), 4))
    for variant, n_criteria in {"none": 3, "leave_one_out": 3, "in_sample": 0, "published": 1}.items():
        has_value = adaptive.sel(variant=variant).notnull().transpose("criterion", "threshold").values
        assert has_value.any(axis=1).sum() == n_criteria
        assert (has_value == (has_value.any(axis=1)[:, None] & expected)).all()


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Store of the Building: SMSE and points follow simple rules; seeds 1, 2, 3 times."""
    plan = make_plan(tmp_path_factory.mktemp("made_up"), "building", seeds=3, quick=False)
    for seed in (2, 0, 1):
        rows = []
        for setting, (thresholds, _) in STUDY.sweeps.items():
            for threshold in STUDY.sweeps["trained"][0]:
                for factor, criterion in zip((3.0, 1.0, 2.0), paper.CRITERIA, strict=True):
                    for variant in VARIANTS if threshold in thresholds else ():
                        smse = threshold * factor * (seed + 1)
                        outcome = Outcome(smse, *[smse] * 4, 1, 1, 100 / threshold, 0, 0.0)
                        key = {"criterion": criterion, "variant": variant}
                        rows.append(key | row_of(run_of(setting, criterion, variant, "error", threshold), outcome))
        write_part(part_of(rows), Unit(STUDY.name, "building", seed), plan)
    return plan


def test_the_store_keeps_names_seeds_and_baselines(made_up):
    store = STUDY.combine(made_up)
    assert store["smse"].dims == (*DIMENSIONS, "seed")
    assert set(Outcome._fields) < set(store.data_vars)
    np.testing.assert_allclose(store["threshold"], 0.025 * np.arange(2, 11))
    assert (store["threshold"].attrs["units"], store["mean_variance"].attrs["units"]) == ("K", "K^2")
    cell = store.isel(setting=0, variant=1, threshold=2).sel(criterion="marginal_log_likelihood")
    np.testing.assert_allclose(cell["smse"], np.array([1, 2, 3]) * 2 * 0.1)
    assert float(store["baseline_smse_published"]) == 0.3397
    assert np.isnan(store["baseline_smse"])


def test_rows_and_tables_are_medians_with_the_lowest_marked(made_up):
    store = STUDY.combine(made_up)
    rows = STUDY.rows(store)
    assert len(rows) == 3 * 4 * (9 + 4)
    keys = {"setting": "adaptive", "criterion": "mean_relevance", "variant": "none", "threshold": 0.1}
    (row,) = rows[(rows[list(keys)] == list(keys.values())).all(axis=1)].to_dict("records")
    expected = {"smse": 0.2, "smse_lower_quartile": 0.15, "smse_upper_quartile": 0.25, "n_revised": 1000, "n_seeds": 3}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    tables = STUDY.tables(store)
    lines = [[cell.strip() for cell in line.split("|")] for line in tables["sections"].splitlines()]
    assert ["", "0.1", "0.6 / 1000", "**0.2 / 1000**", "0.4 / 1000", ""] in lines
    assert "## Setting `trained`: acceptance, in-sample" in tables["sections"]
    assert "not computed yet" in tables["baseline"]


def test_the_baseline_is_read_where_it_was_computed(tmp_path):
    plan = make_plan(tmp_path, "van_der_pol", seeds=3)
    assert np.isnan(read_baseline(plan, "van_der_pol", "full_gp"))
    for seed, smse in enumerate([1e-4, 5e-4, 2e-4]):
        rows = [{"order": "given", "model": "full_gp", "smse": smse}, {"order": "given", "model": "vfe", "smse": 9.0}]
        rows.append({"order": "shuffled", "model": "full_gp", "smse": 7.0})
        write_part(part_of(rows), Unit("baselines", "van_der_pol", seed), plan)
    assert read_baseline(plan, "van_der_pol", "full_gp") == 2e-4
    assert read_baseline(plan, "van_der_pol", "vfe") == 9.0
    assert np.isnan(read_baseline(plan, "van_der_pol", "ridge"))
    assert float(STUDIES["figure_van_der_pol"].combine(plan)["baseline_smse"]) == 2e-4
    part = read_part(Unit("baselines", "van_der_pol", 1), plan)
    assert part["order"].values.tolist() == ["given", "given", "shuffled"]


def test_figures_have_a_column_per_variant_and_the_baselines(made_up):
    store = STUDY.combine(made_up).assign(baseline_smse=0.3)
    store["smse"].loc[{"seed": 2, "threshold": 0.25}] *= 100.0  # bands of bad seeds do not press the medians down
    figures = STUDY.figures(store)
    assert list(figures) == ["figure_building", "figure_building_adaptive"]
    axes = np.reshape(figures["figure_building"]().axes, (3, 3))
    titles = ["Without acceptance", "Acceptance, leave-one-out", "Acceptance, in-sample"]
    assert [ax.get_title() for ax in axes[0]] == titles
    smse, _, revised = axes[:, 1]
    np.testing.assert_allclose(smse.lines[1].get_ydata(), 2 * store["threshold"])
    assert [line.get_ydata()[0] for line in smse.lines[3:]] == [0.3397, 0.3]
    np.testing.assert_allclose(revised.lines[0].get_ydata(), 100 / store["threshold"])
    assert axes[2, 0].get_xlabel() == "Error threshold [K]"
    highest = max(np.max(line.get_ydata()) for line in smse.lines)
    assert highest < smse.get_ylim()[1] <= 1.25 * highest * (1 + 1e-9)


def test_nothing_is_drawn_without_data(tmp_path):
    empty = STUDY.combine(make_plan(tmp_path, "building"))
    assert STUDY.rows(empty).empty
    assert not STUDY.figures(empty)
    assert "0.3397" in STUDY.tables(empty)["baseline"]
