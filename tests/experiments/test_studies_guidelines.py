"""Verdicts on results by construction: true, reversed, missing, partial."""

import csv
import io

import numpy as np
import pytest
import xarray as xr
from guideline_stores import ENTROPY, LIKELIHOOD, RELEVANCE, SEEDS, TITLES, world
from reproducing import cells_of, make_plan

from experiments.studies import paper
from experiments.studies.guidelines import COLUMNS, examine, find_places, judge_claims, read_claims, read_printed
from experiments.studies.report import STUDIES, to_short_csv
from experiments.studies.tasks import TASKS
from experiments.studies.verdict import sum_up
from sysid import store as files

STUDY, CLAIMS = STUDIES["guidelines"], read_claims()


@pytest.fixture(scope="module")
def true_world():
    return world()


@pytest.fixture(scope="module")
def true_store(true_world):
    return judge_claims(true_world)


def by_name(name):
    return next(claim for claim in CLAIMS if claim["name"] == name)


def of_task(name, stores, setting="trained"):
    return examine(by_name(name), setting, stores)


def test_every_claim_holds_where_it_is_true(true_store):
    found = dict(
        zip(true_store["claim"].values.tolist(), true_store["verdict"].sel(setting="trained").values, strict=True)
    )
    assert len(found) == len(CLAIMS)
    assert {name: verdict for name, verdict in found.items() if verdict != "holds"} == {}
    assert (true_store["guideline_verdict"].sel(setting="trained") == "holds").all()


def test_no_claim_holds_where_it_is_reversed_and_gaps_leave_it_undecided(true_world):
    stores = world(-1.0)
    empty = {name: xr.full_like(store, np.nan, dtype=float) for name, store in true_world.items()}
    for claim in CLAIMS:
        name, study = claim["name"], claim["study"]
        assert of_task(name, stores).verdict == "does not hold", name
        rest = {other: store for other, store in true_world.items() if other != study}
        found = of_task(name, rest)
        assert (found.verdict, found.needs, found.places) == ("undecided", f"{study}.nc", {})
        found = of_task(name, empty)
        assert found.verdict == "undecided", name
        assert study in found.needs


def test_gaps_that_could_change_the_verdict_leave_it_undecided(true_world):
    def without(n):
        store = true_world["table_2"].copy(deep=True)
        store["smse"].loc[{"dataset": TITLES[:n]}] = np.nan
        return of_task("lowest_smse_table_2", {"table_2": store})

    one, many = without(1), without(6)
    assert (one.verdict, one.needs) == ("holds", "table_2 for Rastrigin")
    assert many.verdict == "undecided"
    assert many.needs == f"table_2 for {', '.join(TITLES[:6])}"


def test_a_store_without_a_quantity_or_a_criterion_is_told(true_world):
    cells, points = true_world["table_3"], true_world["figure_rastrigin"]
    cases = {
        "lowest_nlpd_table_3": ("table_3", cells.drop_vars("nlpd"), "nlpd"),
        "lowest_smse_table_3": ("table_3", cells.sel(criterion=[ENTROPY, LIKELIHOOD]), "criterion"),
        "points_of_prior_entropy": ("figure_rastrigin", points.drop_vars("boundary_share"), "boundary_share"),
    }
    for claim, (study, store, word) in cases.items():
        found = of_task(claim, {study: store})
        assert found.verdict == "undecided"
        assert found.needs.startswith(f"{study}.nc with all that it compares (")
        assert word in found.needs


def test_other_settings_are_judged_by_their_own_results(true_world):
    reversed_world = world(-1.0, seed=1)
    mixed = {
        name: xr.concat([true_world[name], reversed_world[name].assign_coords(setting=["adaptive"])], "setting")
        for name in ("table_2", "figure_reduction")
    }
    for name in ("lowest_smse_table_2", "lowest_smse_reduction"):
        found = [of_task(name, mixed, setting).verdict for setting in ("trained", "published", "adaptive")]
        assert found == ["holds", "", "does not hold"]
    found = [of_task("entropies_agree", true_world, setting).verdict for setting in COLUMNS]
    assert found == ["holds", "", "", ""]  # a store without settings is of the trained one


def test_pairs_are_formed_within_a_seed(true_world):
    """Between seeds the SMSE varies far more than between criteria: only pairs show the difference."""
    smse = true_world["table_2"]["smse"].sel(dataset="Rastrigin", setting="trained", variant="none")
    smse = smse.sel(threshold_choice="published")
    best, next_best = (smse.sel(criterion=name).values for name in (LIKELIHOOD, RELEVANCE))
    assert best.max() > next_best.min()
    place = of_task("lowest_smse_table_2", true_world).places["Rastrigin"]
    assert place.median == pytest.approx(np.median(np.log(best / next_best)))
    assert place.n == SEEDS
    found = of_task("lowest_smse_table_2", true_world)
    untested = {name for name, place in found.places.items() if np.isnan(place.p_value)}
    assert untested == {task.title for task in TASKS.values() if not task.is_random}
    assert found.n_tested == 7
    smse = np.log(
        true_world["table_2"]["smse"].sel(dataset="Rastrigin", setting="trained", threshold_choice="published")
    )
    level = (smse.sel(variant="in_sample") - smse.sel(variant="none")).mean("criterion")  # of three criteria
    found = of_task("harmless_table_2_in_sample", true_world)
    assert found.places["Rastrigin"].median == pytest.approx(float(level.median()))


def test_the_full_size_of_a_reduction_does_not_count(true_world):
    store = true_world["figure_reduction"].copy(deep=True)
    store["smse"].loc[{"criterion": LIKELIHOOD, "n_points": 100}] *= 1e6
    worlds = ({"figure_reduction": each} for each in (true_world["figure_reduction"], store))
    one, other = (of_task("lowest_smse_reduction", each).places["Rastrigin"].median for each in worlds)
    assert one == other < 0


def test_too_few_seeds_are_told(true_world):
    few = {"figure_van_der_pol": true_world["figure_van_der_pol"].isel(seed=slice(5))}
    found = of_task("van_der_pol_relevance_lowest", few)
    assert (found.verdict, found.needs) == ("undecided", "six seeds of Van der Pol")
    enough = {"figure_van_der_pol": true_world["figure_van_der_pol"].isel(seed=slice(6))}
    assert of_task("van_der_pol_relevance_lowest", enough).verdict == "holds"


def test_own_thresholds_count_where_all_compared_cells_have_one(true_world):
    claim, store = by_name("lowest_smse_table_4"), true_world["table_4"].copy(deep=True)

    def values(**changes):
        found = find_places(claim | changes, "trained", {"table_4": store})
        return [comparison.values.copy() for comparison in found["Rosenbrock"]]

    place = {"dataset": "Rosenbrock", "variant": "none", "threshold_choice": "own"}
    published = values()
    for criterion, seeds, smse in ((RELEVANCE, [2, 5], 2.0), (ENTROPY, [5], 0.5)):
        store["smse"].loc[place | {"criterion": criterion, "seed": seeds}] = smse
        np.testing.assert_array_equal(values(), published)  # the third criterion has none
    store["smse"].loc[place | {"criterion": LIKELIHOOD, "seed": [5]}] = 1.0
    assert [each[5] for each in values()] == pytest.approx([np.log(4.0), np.log(2.0)])
    np.testing.assert_array_equal(np.delete(values(), 5, axis=1), np.delete(published, 5, axis=1))
    np.testing.assert_array_equal(values(own=False), published)


def test_a_threshold_that_a_setting_leaves_out_is_replaced_by_the_next_and_told(true_world):
    every_other = true_world["figure_building"].isel(threshold=slice(None, None, 2))  # 0.05, 0.1, ... K
    store = every_other.reindex(threshold=true_world["figure_building"]["threshold"])
    growth = of_task("building_acceptance_flattens", {"figure_building": store}).places["Prior entropy"]
    assert growth.comparison == "growth from 0.1 K with / without acceptance"
    points = np.log1p(store["n_revised"].sel(setting="trained", criterion=ENTROPY, threshold=[0.05, 0.1]).values)
    grown = (points[:, 0] - points[:, 1])[[0, 1]]  # without, with acceptance
    assert growth.median == pytest.approx(np.median(grown[1] - grown[0]))
    assert growth.outcome == "won"
    low = {"figure_building": store.where(store["threshold"] != 0.15)}
    curve = np.log(store["smse"].sel(setting="trained", variant="none", criterion=ENTROPY, threshold=[0.05, 0.1, 0.15]))
    gain = of_task("building_no_gain", {"figure_building": store}).places["Prior entropy"]
    assert gain.median == pytest.approx(float((curve[-1] - curve[:-1].mean("threshold")).median()))
    smse = np.log(store["smse"].sel(setting="trained", variant="none", criterion=ENTROPY))
    rise = of_task("building_entropy_rises", low).places["Prior entropy"]
    assert rise.comparison == "SMSE at 0.2 / at the lowest threshold"
    assert rise.median == pytest.approx(float((smse.sel(threshold=0.2) - smse.sel(threshold=0.05)).median()))
    gain = of_task("building_no_gain", low).places["Prior entropy"]
    assert gain.comparison == "SMSE at 0.2 K / mean below"
    mean = smse.sel(threshold=[0.05, 0.1]).mean("threshold")
    assert gain.median == pytest.approx(float((smse.sel(threshold=0.2) - mean).median()))


def test_too_few_thresholds_are_told(true_world):
    """Nothing to compare: neither a growth nor a rise."""
    store = true_world["figure_building"]
    names = ("building_acceptance_flattens", "building_entropy_rises", "building_no_gain")
    for kept, told in (([0.05], names), ([0.15, 0.2], names[:1]), ([], names)):
        for name in told:
            found = of_task(name, {"figure_building": store.where(store["threshold"].isin(kept))})
            assert found.verdict == "undecided"
            assert found.needs.startswith("figure_building for "), name


def test_tasks_that_miss_the_conditions_of_a_claim_are_no_places_of_it(true_world):
    """Where nothing passes the threshold acceptance saves nothing; where nearly all points pass no more can."""
    store = true_world["table_4"].copy(deep=True)
    store["n_inserted"].loc[{"dataset": ["Himmelblau", "Tanks"]}] = 0.0
    found = of_task("saves_table_4_in_sample", {"table_4": store})
    assert set(found.places) == set(TITLES) - {"Himmelblau", "Tanks"}
    assert found.verdict == "holds"
    store, at = true_world["table_4"].copy(deep=True), {"criterion": LIKELIHOOD, "variant": "none"}
    for title in TITLES:
        here = at | {"dataset": title}
        store["n_offered"].loc[here] = store["n_inserted"].sel(here) / (0.89 if title == "Rastrigin" else 0.91)
    found = of_task("threshold_not_met_table_4", {"table_4": store})
    assert (set(found.places), found.verdict) == ({"Rastrigin"}, "holds")


def test_printed_numbers_are_those_of_the_paper(true_store):
    cells, table_2 = read_printed()["table_2"].sel(setting="printed"), paper.read_table("table_2")
    at = {"dataset": "Concrete", "criterion": LIKELIHOOD, "threshold_choice": "published", "seed": 0}
    row = table_2.loc["Concrete"]
    assert float(cells["smse"].sel(at | {"variant": "in_sample"})) == row["marginal_log_likelihood_smse_accept"]
    assert float(cells["smse"].sel(at | {"variant": "none"})) == row["marginal_log_likelihood_smse"]
    printed = true_store.sel(claim="lowest_smse_table_2", setting="printed")
    names = [f"{criterion}_smse" for criterion in (ENTROPY, RELEVANCE, LIKELIHOOD)]
    ratios = {title: [row[names[2]] / row[name] for name in names[:2]] for title, row in table_2.iterrows()}
    assert int(printed["n_won"]) == sum(max(each) < 1 / 1.01 for each in ratios.values()) == 7
    assert int(printed["n_lost"]) == sum(max(each) > 1.01 for each in ratios.values()) == 3
    assert int(printed["n_tested"]) == 0
    assert true_store["verdict"].sel(claim="lowest_nlpd_table_3", setting="printed") == ""


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        (["holds", "undecided"], "holds"),
        (["holds", "undecided", "undecided"], "undecided"),
        (["holds", "does not hold"], "holds in part"),
        (["does not hold", ""], "does not hold"),
        (["", ""], ""),
    ],
    ids=["half", "less", "both", "one", "none"],
)
def test_guideline_from_its_parts(parts, verdict):
    assert sum_up(parts) == verdict


def test_store_is_written_read_and_told(true_world, tmp_path):
    """From the folder of a run to the rows and the text; one store is not there, one is of another version."""
    plan = make_plan(tmp_path, *TASKS)
    assert STUDY.units(plan) == []
    for name, store in true_world.items():
        if name != "figure_building":
            fingerprint = "another" if name == "grid" else plan.fingerprint
            files.write(store, tmp_path / f"{name}.nc", kind="study", attributes={"fingerprint": fingerprint})
    combined = STUDY.combine(plan)
    files.write(combined, tmp_path / "guidelines.nc", kind="study")
    store = files.read(tmp_path / "guidelines.nc", kind="study")
    xr.testing.assert_identical(store.drop_attrs(), combined.drop_attrs())
    rows = list(csv.DictReader(io.StringIO(to_short_csv(STUDY.rows(store)))))
    names = (
        "claim,source,setting,verdict,needs,n_won,n_lost,n_equal,n_tied,n_missing,p_sign,p_least,ratio,place,outcome,"
    )
    assert ",".join(rows[0]) == names + "comparison,place_ratio,place_ratio_low,place_ratio_high,place_p,n_seeds"
    own = [row for row in rows if row["claim"] == "lowest_smse_table_2" and row["setting"] == "trained"]
    assert [row["place"] for row in own] == TITLES
    low, middle, high = (float(own[0][f"place_ratio{ending}"]) for ending in ("_low", "", "_high"))
    assert 0 < low < middle < high < 1
    ratio = of_task("lowest_smse_table_2", true_world).places["Tanks"].median
    assert float(own[TITLES.index("Tanks")]["place_ratio"]) == pytest.approx(np.exp(ratio), rel=1e-5)
    for claim, study in (("building_no_gain", "figure_building"), ("entropies_agree", "grid")):
        needy = [row for row in rows if row["claim"] == claim and row["setting"] == "trained"]
        assert [(row["verdict"], row["needs"], row["place"]) for row in needy] == [("undecided", f"{study}.nc", "")]
    tables = STUDY.tables(store)
    lines = cells_of(tables["claims"])
    verdicts = ["holds", "-", "-", "holds", "-", "10 / 0 / 0"]
    assert ["lowest smse table 2", "guideline 1", *verdicts] in [line[:8] for line in lines]
    assert all(claim["test"] in tables["places"] for claim in CLAIMS)
    assert "Tanks won 0.7" in tables["places"]
    assert "| 6. An acceptance" in tables["guidelines"]
    (tmp_path / "table_2.nc").write_bytes(b"nothing")
    with pytest.raises(files.StoreError):
        STUDY.combine(plan)


def test_figures_show_every_claim_with_results(true_store):
    drawings = STUDY.figures(true_store)
    assert list(drawings) == ["guidelines", "guidelines_printed"]
    figure = drawings["guidelines"]()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == len(CLAIMS)
    assert labels[-1] == "Lowest SMSE table 2 (guideline 1)  10/0/0"
    markers = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", None)]
    assert len(markers) == int(np.isfinite(true_store["median"].sel(setting="trained")).sum())
    shown = true_store["verdict"].sel(setting="trained").values.tolist()
    assert sorted(text.get_text() for text in figure.axes[0].texts) == sorted(shown)
    assert list(STUDY.figures(judge_claims({}))) == ["guidelines_printed"]
