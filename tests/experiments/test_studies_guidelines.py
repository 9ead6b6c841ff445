"""Verdicts on results by construction: true, reversed, missing, partial."""

import csv
import io
from itertools import product
from math import comb

import numpy as np
import pytest
import xarray as xr
from guideline_stores import ENTROPY, LIKELIHOOD, RELEVANCE, SEEDS, TITLES, world
from reproducing import cells_of, make_plan

from experiments.reproduction import STUDIES, to_short_csv
from experiments.studies import paper
from experiments.studies.guidelines import (
    CLAIMS,
    COLUMNS,
    EQUAL,
    FAILS,
    HOLDS,
    IN_PART,
    LOST,
    MISSING,
    TIED,
    UNDECIDED,
    WON,
    Comparison,
    examine,
    find_places,
    holm,
    judge,
    judge_claim,
    judge_claims,
    judge_place,
    median_interval,
    read_printed,
    sign_test,
    signed_rank,
    sum_up,
)
from experiments.studies.tasks import PAPER_TASKS
from sysid import store as files

STUDY = STUDIES["guidelines"]


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
    assert untested == {task.title for task in PAPER_TASKS.values() if not task.is_random}
    assert found.n_tested == 7
    smse = np.log(
        true_world["table_2"]["smse"].sel(dataset="Rastrigin", setting="trained", threshold_choice="published")
    )
    level = (smse.sel(variant="in_sample") - smse.sel(variant="none")).mean("criterion")  # of three criteria
    found = of_task("harmless_table_2_in_sample", true_world)
    assert found.places["Rastrigin"].median == pytest.approx(float(level.median()))


def test_too_few_seeds_are_told(true_world):
    few = {"figure_van_der_pol": true_world["figure_van_der_pol"].isel(seed=slice(5))}
    found = of_task("van_der_pol_relevance_lowest", few)
    assert (found.verdict, found.needs) == ("undecided", "six seeds of Van der Pol")
    enough = {"figure_van_der_pol": true_world["figure_van_der_pol"].isel(seed=slice(6))}
    assert of_task("van_der_pol_relevance_lowest", enough).verdict == "holds"


def test_own_thresholds_count_where_all_compared_cells_have_one(true_world):
    claim, store = by_name("lowest_smse_table_4"), true_world["table_4"].copy(deep=True)

    def values(**changes):
        found = find_places(claim | changes, "trained", store)
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


def test_guideline_from_its_parts():
    holds, open_, fails = "holds", "undecided", "does not hold"
    cases = {(holds, open_): holds, (holds, open_, open_): open_, (holds, fails): "holds in part", (fails, ""): fails}
    assert {parts: sum_up(parts) for parts in cases} == cases
    assert sum_up(["", ""]) == ""


def test_store_is_written_read_and_told(true_world, tmp_path):
    """From the folder of a run to the rows and the text; one store is not there, one is of another version."""
    plan = make_plan(tmp_path, *PAPER_TASKS)
    assert STUDY.units(plan) == []
    for name, store in true_world.items():
        if name != "figure_building":
            fingerprint = "another" if name == "grid" else plan.fingerprint
            files.write(store, tmp_path / f"{name}.nc", kind="study", attributes={"fingerprint": fingerprint})
    combined = STUDY.combine(plan)
    rows = list(csv.DictReader(io.StringIO(to_short_csv(STUDY.rows(combined)))))
    names = "claim,source,setting,verdict,needs,n_won,n_lost,n_equal,n_tied,n_missing,p_sign,p_least,ratio,place,"
    assert (
        ",".join(rows[0]) == names + "outcome,comparison,place_ratio,place_ratio_low,place_ratio_high,place_p,n_seeds"
    )
    own = [row for row in rows if row["claim"] == "lowest_smse_table_2" and row["setting"] == "trained"]
    assert [row["place"] for row in own] == TITLES
    low, middle, high = (float(own[0][f"place_ratio{ending}"]) for ending in ("_low", "", "_high"))
    assert 0 < low < middle < high < 1
    ratio = of_task("lowest_smse_table_2", true_world).places["Tanks"].median
    assert float(own[TITLES.index("Tanks")]["place_ratio"]) == pytest.approx(np.exp(ratio), rel=1e-5)
    for claim, study in (("building_no_gain", "figure_building"), ("entropies_agree", "grid")):
        needy = [row for row in rows if row["claim"] == claim and row["setting"] == "trained"]
        assert [(row["verdict"], row["needs"], row["place"]) for row in needy] == [("undecided", f"{study}.nc", "")]
    tables = STUDY.tables(combined)
    row = ["lowest_smse_table_2", "guideline 1", "holds", "-", "-", "holds", "10", "0", "0", "0", "0"]
    assert row in [line[:11] for line in cells_of(tables["claims"])]
    assert all(claim["test"] in tables["tests"] for claim in CLAIMS)
    assert "| 6. An acceptance" in tables["guidelines"]
    (tmp_path / "table_2.nc").write_bytes(b"nothing")
    with pytest.raises(files.StoreError):
        STUDY.combine(plan)


# --- what paired results say -----------------------------------------------------------------------

STEADY = np.linspace(-0.01, 0.01, 10) + 1e-4 * np.arange(10)  # noise around 0, without ties


LOWER, AT_MOST, WITHIN = (-np.inf, 0.0), (-np.inf, np.log(1.05)), (-np.log(1.5), np.log(1.5))
GAP = [Comparison("", np.empty(0))]


def shifted(shift, region=LOWER):
    return Comparison("", shift + STEADY, *region)


@pytest.mark.parametrize("n", [0, 5, 6, 9, 15])
def test_interval_is_the_narrowest_with_at_least_95_percent(n):
    values = np.random.default_rng([n]).permutation(np.arange(n) * 1.0)
    below = [sum(comb(n, j) for j in range(k)) / 2**n for k in range(n // 2 + 1)]  # P(fewer than k heads)
    allowed = [k for k in range(1, n // 2 + 1) if 2 * below[k] <= 0.05]
    expected = (max(allowed) - 1.0, n - 1.0 * max(allowed)) if allowed else (-np.inf, np.inf)
    assert median_interval(values) == expected


@pytest.mark.parametrize("seed", range(2))
def test_signed_rank_is_the_share_of_signs_that_are_as_extreme(seed):
    values = np.random.default_rng([1, seed]).normal(0.4, 1.0, size=4 + seed)
    ranks = np.argsort(np.argsort(np.abs(values))) + 1
    total = ranks.sum()
    found = abs(2 * ranks[values > 0].sum() - total)
    extreme = [abs(2 * ranks[np.array(s, bool)].sum() - total) >= found for s in product((0, 1), repeat=len(values))]
    assert signed_rank(values) == pytest.approx(np.mean(extreme))
    assert signed_rank(np.append(values, 0.0)) == signed_rank(values)
    assert (sign_test(6, 0), sign_test(0, 0)) == (pytest.approx(2 / 64), 1.0)
    assert sign_test(7, 0, 1 / 3) == pytest.approx(3.0**-7)


def test_holm_goes_down_step_by_step():
    p = [0.01, 0.04, 0.03, 0.005]
    expected = [0.02, 0.03, 0.06, 0.06]  # 4 p, 3 p, 2 p, max(1 p, before), in ascending order
    np.testing.assert_allclose(holm(p), expected)
    np.testing.assert_allclose(holm([0.9, 0.8]), [1.0, 1.0])
    assert not len(holm([]))


@pytest.mark.parametrize(
    ("comparison", "outcome"),
    [
        (shifted(-0.1), WON),
        (shifted(0.1), LOST),
        (shifted(-0.009), TIED),  # shown to be below 1, but within 1 %
        (Comparison("", 0.3 * STEADY), EQUAL),
        (Comparison("", 20 * STEADY - 0.02), TIED),
        (Comparison("", np.full(10, np.nan)), MISSING),
        (Comparison("", np.empty(0)), MISSING),
        (Comparison("", STEADY[:5] - 0.1), TIED),  # too few for an interval
        (shifted(0.03, AT_MOST), WON),
        (shifted(0.045, AT_MOST), TIED),
        (shifted(0.07, AT_MOST), LOST),
        (shifted(0.3, WITHIN), WON),
        (shifted(0.5, WITHIN), LOST),
        (shifted(-0.5, WITHIN), LOST),
        (shifted(-0.4, WITHIN), TIED),
        (Comparison("", np.array([-0.02]), *LOWER, False), WON),
        (Comparison("", np.array([0.02]), *LOWER, False), LOST),
        (Comparison("", np.array([-0.005]), *LOWER, False), TIED),
        (Comparison("", np.array([np.nan, 0.02]), *AT_MOST, False), WON),
    ],
)
def test_outcome_of_a_comparison(comparison, outcome):
    assert judge(comparison).outcome == outcome


def test_p_value_is_that_of_the_nearest_bound():
    shifts = {LOWER: -0.004, AT_MOST: np.log(1.05) - 0.004, WITHIN: np.log(1.5) - 0.004}
    for region, shift in shifts.items():
        wide = Comparison("", shift + 2 * STEADY, *region)
        assert judge(wide).outcome == TIED
        assert judge(wide).p_value == 1.0
        won = judge(Comparison("", shift - 0.01 + STEADY, *region))
        assert won.outcome == WON
        assert won.p_value == pytest.approx(signed_rank(STEADY - 0.014))
    lost = judge(Comparison("", STEADY - np.log(1.5) - 0.0092, *WITHIN))
    assert lost.outcome == LOST
    assert lost.p_value == pytest.approx(signed_rank(STEADY - 0.0092))


def test_place_needs_all_comparisons_and_is_lost_by_one():
    small, large, worse = Comparison("", np.append(STEADY[:9] - 0.1, 0.001)), shifted(-0.5), shifted(0.2)
    won = judge_place([large, small])
    assert won.outcome == WON
    assert won.p_value == judge(small).p_value > judge(large).p_value
    assert won == judge(small)
    lost = judge_place([large, worse, small])
    assert lost.outcome == LOST
    assert lost.p_value == pytest.approx(3 * judge(worse).p_value)
    assert judge_place([large, Comparison("", 0.3 * STEADY)]).outcome == EQUAL
    assert judge_place([large, Comparison("", 20 * STEADY)]).outcome == TIED
    assert judge_place([large, Comparison("", np.empty(0))]).outcome == MISSING


def test_decisive_comparison_has_the_outcome_of_its_place_and_lies_farthest_out():
    inside, outside = shifted(0.3, WITHIN), shifted(-0.6, WITHIN)
    assert judge_place([inside, outside]).median == pytest.approx(judge(outside).median)
    single = judge(Comparison("", np.array([-0.5]), *LOWER, False))
    assert np.isnan([single.p_value, single.low, single.high]).all()  # one number has no test
    equal, tied = Comparison("equal", 0.3 * STEADY), Comparison("tied", 0.005 + 20 * STEADY)
    assert judge_place([tied, equal]).comparison == "equal"
    assert judge_place([tied, shifted(-0.5)]).comparison == "tied"
    assert judge_place([tied, shifted(-0.5)]).p_value == 1.0


def single(value):
    return [Comparison("", np.array([value]), *LOWER, False)]


def places(*shifts):
    return {str(i): [shifted(shift)] for i, shift in enumerate(shifts)}


@pytest.mark.parametrize(
    ("shifts", "verdict"),
    [
        ([-0.1] * 7, HOLDS),
        ([0.1] * 7, FAILS),
        ([-0.1] * 4 + [0.0] * 3, HOLDS),
        ([-0.1] * 2 + [0.0] * 5, IN_PART),
        ([-0.1] * 3 + [0.1] * 3, IN_PART),
        ([-0.1] * 9 + [0.1], HOLDS),  # the sign test is for it
        ([-0.1] * 5 + [0.1], IN_PART),
        ([-0.1] + [0.1] * 9, FAILS),
        ([0.1] + [0.0] * 6, FAILS),
        ([-0.1], HOLDS),
        ([-0.1, -0.1, 0.0, 0.0], IN_PART),  # more than half is needed
        ([-0.1, -0.1, -0.1, 0.0], HOLDS),
    ],
)
def test_verdict_by_counts(shifts, verdict):
    assert judge_claim(places(*shifts)).verdict == verdict


def test_shown_equality_speaks_against_a_difference():
    equal = {str(i): [Comparison("", 0.3 * STEADY)] for i in range(7)}
    found = judge_claim(equal)
    assert (found.verdict, found.n_equal, found.n_tied) == (FAILS, 7, 0)
    assert judge_claim(equal | {"won": [shifted(-0.1)]}).verdict == IN_PART
    more = {f"{i} more": [Comparison("", 0.3 * STEADY)] for i in range(7)}
    assert judge_claim(equal | more | {"won": [shifted(-0.1)]}).verdict == FAILS


def test_places_without_a_test_are_judged_by_the_sign_test_alone():
    def singles(*values):
        return {str(i): single(x) for i, x in enumerate(values)}

    assert judge_claim(singles(-1, -1, -1)).verdict == UNDECIDED
    assert judge_claim(singles(*[-1] * 6)).verdict == HOLDS
    assert judge_claim(singles(*[1] * 6)).verdict == FAILS
    assert judge_claim(singles(*[-1] * 7, 1, 1, 1)).verdict == UNDECIDED
    assert judge_claim(singles(*[-1] * 7, 1, 1, 1), chance=1 / 3).verdict == HOLDS
    assert judge_claim(singles(*[1] * 6), chance=0.2).verdict == UNDECIDED  # (4/5)^6 is likely
    assert judge_claim(singles(-1, -1, -1)).n_tested == 0
    assert judge_claim(singles(0) | {"won": [shifted(-0.1)]}).verdict == IN_PART  # half of the places are not most


@pytest.mark.parametrize(
    ("won", "shifts", "verdict"),
    [
        (3, [0.1, 0.1, 0.1, 0.0], FAILS),  # three numbers without a spread against what is shown
        (3, [-0.1, 0.1, 0.1, 0.1], IN_PART),
        (3, [-0.1, 0.0, 0.0], IN_PART),  # most places are won, but not of those with a test
        (3, [-0.1, -0.1, 0.0], HOLDS),
        (3, [-0.1, 0.0], IN_PART),  # half of those with a test are not most
        (3, [-0.009, -0.009], UNDECIDED),
        (3, [0.0, 0.0], FAILS),  # shown to be equal
        (6, [0.0, 0.0], IN_PART),  # six numbers are something
    ],
)
def test_single_numbers_alone_make_no_claim_hold(won, shifts, verdict):
    found = judge_claim({f"record {i}": single(-1.0) for i in range(won)} | places(*shifts))
    assert found.verdict == verdict


def test_missing_places_leave_a_verdict_only_if_they_cannot_change_it():
    few = places(*[-0.1] * 9) | {"gap": GAP}
    found = judge_claim(few)
    assert (found.verdict, found.n_missing) == (HOLDS, 1)
    assert judge_claim(places(*[-0.1] * 4) | {"gap": GAP}).verdict == UNDECIDED
    assert judge_claim({"gap": GAP}).verdict == UNDECIDED
    assert judge_claim({}).verdict == UNDECIDED


def test_tests_are_corrected_for_the_number_of_places():
    """One place with p near 1 % among ten is nothing."""
    values = np.array([-1.0, -0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.25, 0.22])
    one = Comparison("", values)
    wide = {str(i): [Comparison("", 20 * STEADY)] for i in range(9)}
    assert judge(one).outcome == WON
    assert judge(one).p_value < 0.05
    assert judge_claim({"one": [one]}).verdict == HOLDS
    found = judge_claim({"one": [one]} | wide)
    assert found.p_least == pytest.approx(10 * judge(one).p_value, abs=1e-12) or found.p_least > 0.01
    assert found.p_least == pytest.approx(10 * signed_rank(values))


@pytest.mark.parametrize("region", [LOWER, AT_MOST, WITHIN], ids=["lower", "at_most", "within"])
def test_noise_is_undecided(region):
    """Ratios scattered around the bound: 7 tasks with seeds and 3 records, at least 95 % of 100 repetitions."""
    rng, undecided = np.random.default_rng([2, 2]), 0
    for _ in range(100):
        values = region[1] + 0.3 * rng.normal(size=(10, 2, 10))
        drawn = {
            str(i): [Comparison("", x if i < 7 else x[:1], *region, i < 7) for x in each]
            for i, each in enumerate(values)
        }
        undecided += judge_claim(drawn, 1 / 3).verdict == UNDECIDED
    assert undecided >= 95
