"""All pairs of criteria, and error thresholds, on made-up stores with known medians and on real streams."""

import numpy as np
import pytest
import xarray as xr
from reproducing import cells_of, make_plan, outcome, prepare

from experiments.reproduction import STUDIES
from experiments.studies import paper
from experiments.studies.stream import QUANTITIES, TITLES, VARIANTS, Run, offer, run_of
from experiments.studies.study import Unit, part_of, write_part
from experiments.studies.sweeps import ACCEPTANCES, CRITERIA
from sysid import store as files

GRID, VAN_DER_POL, BUILDING = (STUDIES[name] for name in ("grid", "figure_van_der_pol", "figure_building"))
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
                found = outcome(smse=smse, n_offered=500, n_inserted=400, n_revised=int(100 * seed + 10 * smse))
                rows.append(Run("trained", reduction, acceptance)._asdict() | found)
        write_part(part_of(rows), Unit("grid", task, seed), plan)
    return GRID.combine(plan)


def test_rows_of_the_grid_are_medians(store):
    rows = GRID.rows(store)
    assert ",".join(rows) == "dataset,setting,reduction,acceptance,reference,smse,n_revised,accepted_percent,n_seeds"
    assert len(rows) == 3 * 6 * 5
    found = rows.set_index(["dataset", "reduction", "acceptance"])
    row = found.loc["Rastrigin", "mean_relevance", "predictive_entropy"]
    assert tuple(row) == ("trained", "leave_one_out", 6.0, 160.0, 40.0, 3)
    assert found.loc["Tanks", "prior_entropy", "none"]["reference"] == ""
    assert found.loc["Tanks", "prior_entropy", "marginal_log_likelihood"]["smse"] == 60.0
    gap = found.loc["Building", "prior_entropy", "none"]
    assert gap["n_seeds"] == 0
    assert np.isnan(gap["smse"])


def test_tables_of_the_grid_tell_means_and_medians(store):
    store["smse"].loc[{"dataset": "Tanks", "acceptance": "none", "reduction": "mean_relevance"}] *= 4.0
    tables = GRID.tables(store)
    means = cells_of(tables["means"])
    assert means[0][:3] == ["reduction", "none", "Prior entropy"]
    assert means[2] == ["Prior entropy", "5.000", "4.000", "4.000", "8.000", "6.000", "6.000"]
    assert means[4][1] == f"{np.sqrt(5.0 * 20.0):.2f}"  # geometric, over datasets
    likelihood = ["2.000", "**1.000**", "**1.000**", "3.000", "1.500", "1.500"]
    assert means[5] == ["Marginal log likelihood", *likelihood]
    _, rastrigin, tanks = tables["medians"].split("## ")
    assert tanks.count("**") == 2 * 4
    assert ["Mean relevance", "10.0", "6.00", "6.00", "4.00", "8.00", "8.00"] in cells_of(rastrigin)


def test_the_figure_of_the_grid_shows_ratios_and_frames_matched_pairs(store):
    figure = GRID.figures(store)["grid"]()
    panels = {ax.get_title(): ax for ax in figure.axes if ax.get_title()}
    assert list(panels) == ["Rastrigin", "Tanks"]
    ax = panels["Tanks"]
    image = ax.images[0].get_array()
    assert (image.shape, image[0, 2]) == ((6, 5), 4.0)  # without acceptance, mean relevance: 5, colours end at 4
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert (texts[2, 0], texts[0, 3]) == ("5.00", "8.00")
    framed = {(round(box.get_x() + 0.46), round(box.get_y() + 0.46)) for box in ax.patches}
    kinds = [*KIND.values()]
    assert framed == {(x, y + 1) for x in range(5) for y in range(5) if kinds[x] == kinds[y]}


def test_the_real_grid_is_full_and_its_equivalent_criteria_agree(tmp_path):
    plan = prepare(make_plan(tmp_path, "rastrigin", budget=15, most_rows=60, seeds=1), "grid")
    real = GRID.combine(plan)
    assert np.isfinite(real["smse"].values).all()
    assert (real["n_inserted"] == 60).all()
    assert (real.sel(acceptance="none")["n_revised"] == 60).all()
    for one, other in (("prior_entropy", "predictive_entropy"), ("marginal_log_likelihood", "log_predictive_density")):
        for role in ("reduction", "acceptance"):
            a, b = (real.sel({role: name}, drop=True) for name in (one, other))
            np.testing.assert_allclose(a["smse"], b["smse"], rtol=1e-6)
            assert (a["n_revised"] == b["n_revised"]).all()
    run = Run("trained", "mean_relevance", "log_predictive_density", "leave_one_out")
    cell = real.sel(dataset="Rastrigin", reduction="mean_relevance", acceptance="log_predictive_density", seed=0)
    assert float(cell["smse"]) == offer(run, Unit("", "rastrigin"), plan)["smse"]


# --- thresholds -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Van der Pol in quick size: plan and store."""
    plan = make_plan(tmp_path_factory.mktemp("sweep"), "van_der_pol", seeds=1, most_rows=60)
    prepare(plan, "figure_van_der_pol")
    return plan, VAN_DER_POL.combine(plan).isel(seed=0)


@pytest.mark.parametrize("setting", ["trained", "published"])
def test_every_number_of_a_sweep_is_that_of_a_single_stream(real, setting):
    plan, store = real
    for variant, criterion in zip(VARIANTS, (*paper.CRITERIA, paper.CRITERIA[0]), strict=True):
        for threshold in store["threshold"].values[[0, -1]]:
            run = run_of(setting, criterion, variant, "error", float(threshold))
            alone = offer(run, Unit("", "van_der_pol"), plan)
            cell = store.sel(setting=setting, criterion=criterion, variant=variant, threshold=threshold)
            for name in {*QUANTITIES} - {"seconds", "accepted_percent"}:
                assert float(cell[name]) == alone[name]
    low = store.isel(threshold=0).sel(setting="trained", criterion="prior_entropy")
    assert len(set(low["n_revised"].sel(variant=list(VARIANTS[:3])).values)) == 3  # otherwise nothing is told apart


def test_adaptive_is_computed_at_its_thresholds_and_variants_only(real):
    adaptive, thresholds = real[1]["smse"].sel(setting="adaptive"), real[1]["threshold"].values
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
        for setting, (thresholds, _) in BUILDING.sweeps.items():
            for threshold in thresholds:
                for factor, criterion in zip((3.0, 1.0, 2.0), paper.CRITERIA, strict=True):
                    for variant in VARIANTS:
                        smse = threshold * factor * (seed + 1)
                        found = outcome(smse=smse, mean_variance=smse, n_inserted=1, n_revised=100 / threshold)
                        run = run_of(setting, criterion, variant, "error", threshold)
                        rows.append({"criterion": criterion, "variant": variant, **run._asdict(), **found})
        write_part(part_of(rows), Unit(BUILDING.name, "building", seed), plan)
    return BUILDING.combine(plan)


def test_the_store_of_a_sweep_keeps_names_units_and_the_published_baseline(made_up):
    assert made_up["smse"].dims == ("setting", "criterion", "variant", "threshold", "seed")
    assert {*QUANTITIES} - {"accepted_percent"} < set(made_up.data_vars)
    np.testing.assert_allclose(made_up["threshold"], 0.025 * np.arange(2, 11))
    assert (made_up["threshold"].attrs["units"], made_up["mean_variance"].attrs["units"]) == ("K", "K^2")
    cell = made_up.isel(setting=0, variant=1, threshold=2).sel(criterion="marginal_log_likelihood")
    np.testing.assert_allclose(cell["smse"], np.array([1, 2, 3]) * 2 * 0.1)
    assert float(made_up["baseline_smse_published"]) == 0.3397
    assert np.isnan(made_up["baseline_smse"])


def test_rows_and_tables_of_a_sweep_are_medians_with_the_lowest_marked(made_up):
    rows = BUILDING.rows(made_up)
    assert len(rows) == 3 * 4 * (9 + 4)
    quartiles = (
        f"{name}{ending}"
        for name in ("smse", "mean_variance", "n_revised")
        for ending in ("", "_lower_quartile", "_upper_quartile")
    )
    assert list(rows) == ["setting", "criterion", "variant", "threshold", *quartiles, "n_inserted", "n_seeds"]
    row = rows.set_index(["setting", "criterion", "variant", "threshold"]).loc[
        "adaptive", "mean_relevance", "none", 0.1
    ]
    expected = {"smse": 0.2, "smse_lower_quartile": 0.15, "smse_upper_quartile": 0.25, "n_revised": 1000, "n_seeds": 3}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    tables = BUILDING.tables(made_up)
    assert ["0.1", "0.6 / 1000", "**0.2 / 1000**", "0.4 / 1000"] in cells_of(tables["sections"])
    assert "## adaptive, leave_one_out" in tables["sections"]
    assert "not computed yet" in tables["baseline"]


def test_the_baseline_is_read_where_it_was_computed(tmp_path):
    plan = make_plan(tmp_path, "van_der_pol", seeds=3)
    smse = (("dataset", "model", "seed"), [[[1e-4, 5e-4, 2e-4], [9.0, 9.0, 9.0]]])
    store = xr.Dataset({"smse": smse}, {"dataset": ["Van der Pol"], "model": ["full_gp", "vfe"]})
    files.write(store, tmp_path / "baselines.nc", kind="study", attributes={"fingerprint": plan.fingerprint})
    assert float(VAN_DER_POL.combine(plan)["baseline_smse"]) == 2e-4
    assert np.isnan(VAN_DER_POL.combine(make_plan(tmp_path, "van_der_pol", seeds=2))["baseline_smse"])


def test_figures_of_a_sweep_have_a_column_per_variant_and_the_baselines(made_up):
    store = made_up.assign(baseline_smse=0.3).copy(deep=True)
    store["smse"].loc[{"seed": 2, "threshold": 0.25}] *= 100.0  # bands of bad seeds do not press the medians down
    figures = BUILDING.figures(store)
    assert list(figures) == ["figure_building", "figure_building_adaptive"]
    axes = np.reshape(figures["figure_building"]().axes, (3, 3))
    assert [ax.get_title() for ax in axes[0]] == [*TITLES.values()]
    smse, _, revised = axes[:, 1]
    np.testing.assert_allclose(smse.lines[1].get_ydata(), 2 * store["threshold"])
    assert [line.get_ydata()[0] for line in smse.lines[3:]] == [0.3397, 0.3]
    np.testing.assert_allclose(revised.lines[0].get_ydata(), 100 / store["threshold"])
    highest = max(np.max(line.get_ydata()) for line in smse.lines)
    assert highest < smse.get_ylim()[1] <= 1.25 * highest
    assert (smse.get_yscale(), revised.get_yscale()) == ("log", "log")
