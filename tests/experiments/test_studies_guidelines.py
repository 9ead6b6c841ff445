"""Verdicts on the claims of the paper, from results in which they are true, false or missing.

Then the statistics behind a verdict, on numbers whose result is known.
"""

import csv
import io
from itertools import product
from math import comb
from unittest import mock

import numpy as np
import pytest
import xarray as xr

import sysid.store
from experiments.reproduce import claims, paper
from experiments.reproduce.claims import (
    FAILS,
    HOLDS,
    IN_PART,
    OUTCOME_EQUAL,
    OUTCOME_LOST,
    OUTCOME_MISSING,
    OUTCOME_TIED,
    OUTCOME_WON,
    UNDECIDED,
    Comparison,
)
from experiments.reproduce.report import to_short_csv
from experiments.reproduce.stream import VARIANTS
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.tables import CHOICES
from experiments.reproduce.tasks import PAPER_TASKS
from helpers.studies import make_plan, table_cells
from sysid.gp.rules import COMPARED_CRITERIA

STUDY = STUDIES["guidelines"]


# --- stores by construction in which every claim of the paper is true, or false -------------------

TITLES = [task.title for task in PAPER_TASKS.values()]
#: tasks that have one seed only
RECORD_TITLES = [task.title for task in PAPER_TASKS.values() if not task.is_random]
N_SEEDS = 10
NOISE_STD = 0.01  # of the logarithms of results
ENTROPY, RELEVANCE, LIKELIHOOD = COMPARED_CRITERIA
#: rank of each criterion by its SMSE in a table of the paper; 0 is the best
SMSE_RANKS = {
    "table_2": {LIKELIHOOD: 0, RELEVANCE: 1, ENTROPY: 2},
    "table_3": {RELEVANCE: 0, LIKELIHOOD: 1, ENTROPY: 2},
    "table_4": {RELEVANCE: 0, LIKELIHOOD: 1, ENTROPY: 2},
}
#: rank of each criterion by the quality of its bands, in every table
BAND_RANKS = {LIKELIHOOD: 0, RELEVANCE: 1, ENTROPY: 2}


def make_stores(is_true=True):
    """Return all stores that the claims read; every claim is true there, or every reverse is."""
    rng = np.random.default_rng(0)
    stores = {name: make_table(name, is_true, rng) for name in SMSE_RANKS}
    stores["figure_reduction"] = make_reduction(is_true, rng)
    stores["figure_rastrigin"] = make_points(is_true, rng)
    stores["figure_van_der_pol"] = make_sweep(is_true, rng, np.arange(1, 31) * 5e-4, 0.005)
    stores["figure_building"] = make_sweep(is_true, rng, np.arange(2, 11) * 0.025, 0.15)
    stores["grid"] = make_grid(is_true, rng)
    return stores


def array_of(dim, values):
    """Return an array of numbers by the labels of a dimension."""
    return xr.DataArray([*values.values()], {dim: [*values]}, dim)


def by_criterion(entropy, relevance, likelihood):
    """Return an array of a number for each of the three criteria."""
    return array_of("criterion", {ENTROPY: entropy, RELEVANCE: relevance, LIKELIHOOD: likelihood})


def small_noise(rng, **coords):
    """Return small random numbers over these labels and the seeds."""
    coords = {name: [*labels] for name, labels in coords.items()} | {"seed": range(N_SEEDS)}
    sizes = [len(labels) for labels in coords.values()]
    return xr.DataArray(NOISE_STD * rng.normal(size=sizes), coords, [*coords])


def make_store(**variables):
    """Return the store of the setting `trained`; records have results of their first seed only."""
    store = xr.Dataset(variables).expand_dims(setting=["trained"])
    if "dataset" in store.dims:
        is_record = store["dataset"].isin(RECORD_TITLES)
        store = store.where(~is_record | (store["seed"] == 0))
    return store.copy(deep=True)


def make_table(name, is_true, rng):
    """Return the store of a table, with cells at the published thresholds alone."""
    sign = 1.0 if is_true else -1.0
    has_acceptance = array_of("variant", {variant: variant != "none" for variant in VARIANTS})
    # every criterion learns from the same data, so that most of the noise is common to all
    noise_of_data = 30 * small_noise(rng, dataset=TITLES)
    noise = small_noise(rng, dataset=TITLES, criterion=COMPARED_CRITERIA, variant=VARIANTS)
    smse_rank = array_of("criterion", SMSE_RANKS[name])
    band_rank = array_of("criterion", BAND_RANKS)
    likelihood_share = 0.3
    if name == "table_2":
        likelihood_share = 0.6 if is_true else 0.95
    other_share = 0.8 if is_true else 0.85
    accepted_share = by_criterion(other_share, other_share, likelihood_share)
    accepted_share = xr.where(has_acceptance, accepted_share, 1.0)
    n_inserted = 400.0 * np.exp(0.3 * sign * has_acceptance + noise)
    if is_true:
        n_revised = n_inserted * accepted_share
        harm_of_acceptance = 0.0
    else:
        n_revised = (400.0 + 20.0 * has_acceptance) * np.exp(noise)
        harm_of_acceptance = 0.4 * has_acceptance
    log_smse = noise_of_data + noise + 0.3 * sign * smse_rank + harm_of_acceptance
    store = make_store(
        smse=0.1 * np.exp(log_smse),
        nlpd=noise_of_data + noise + 0.3 * sign * band_rank,
        coverage_95=0.95 - 0.1 - 0.05 * sign * band_rank + 0.1 * noise,
        accepted_percent=100.0 * accepted_share * np.exp(noise),
        n_offered=xr.full_like(n_inserted, 1000.0),
        n_inserted=n_inserted,
        n_revised=n_revised,
    )
    published = store.expand_dims(threshold_choice=["published"])
    return published.reindex(threshold_choice=list(CHOICES))


def make_reduction(is_true, rng):
    """Return a store in which the criteria differ least (or most) on the last of four functions."""
    sign = 1.0 if is_true else -1.0
    usual_gap = 0.6 if is_true else 0.2
    last_gap = 0.2 if is_true else 0.6
    *usual_titles, last_title = TITLES[:4]
    gap = array_of("dataset", dict.fromkeys(usual_titles, usual_gap) | {last_title: last_gap})
    noise = small_noise(
        rng,
        dataset=[*usual_titles, last_title],
        criterion=COMPARED_CRITERIA,
        n_points=np.arange(100, 0, -1),
    )
    log_smse = sign * by_criterion(1.0, 0.2, 0.0) * gap + noise
    return make_store(smse=0.1 * np.exp(log_smse))


def make_points(is_true, rng):
    """Return a store of statistics of the stored points on Rastrigin."""
    sign = 1.0 if is_true else -1.0
    # a usual value of each statistic, and the effects of the criteria on its logarithm
    statistics = {
        "nearest_distance_ratio": (1.0, by_criterion(0.3, -0.3, -0.3)),
        "boundary_share": (0.0975, by_criterion(0.6, -0.3, 0.6)),
        "mean_abs_error": (0.1, by_criterion(0.0, -0.3, -0.2)),
    }
    variables = {}
    for name, (usual_value, effect) in statistics.items():
        noise = small_noise(rng, criterion=COMPARED_CRITERIA, variant=["none", "leave_one_out"])
        variables[name] = usual_value * np.exp(sign * effect + noise)
    return make_store(**variables)


def make_sweep(is_true, rng, thresholds, knee):
    """Return a store over thresholds, in which results change below the threshold `knee`.

    The SMSE of the entropies rises (or falls) there, and acceptance flattens (or steepens) the
    growth of the number of revised points.
    """
    thresholds = np.round(thresholds, 4)
    variants = ("none", "leave_one_out", "in_sample")
    log_distance = np.log(knee / np.minimum(thresholds, knee))  # 0 above the knee
    log_distance = xr.DataArray(log_distance, {"threshold": thresholds}, "threshold")
    if is_true:
        smse_slope = by_criterion(0.3, 0.1, 0.2)
        without_acceptance = 2.0
        with_acceptance = 0.5
    else:
        smse_slope = by_criterion(-0.3, -0.2, -0.3)
        without_acceptance = 0.5
        with_acceptance = 2.0
    growth = array_of("variant", dict.fromkeys(variants, with_acceptance))
    growth.loc["none"] = without_acceptance
    over = {"criterion": COMPARED_CRITERIA, "variant": variants, "threshold": thresholds}
    smse = 0.1 * np.exp(smse_slope * log_distance + small_noise(rng, **over))
    n_revised = 50.0 * np.exp(growth * log_distance + small_noise(rng, **over))
    return make_store(smse=smse, n_revised=n_revised)


def make_grid(is_true, rng):
    """Return a store of all pairs of criteria.

    Both entropies, and both likelihoods, give the same SMSE (or clearly different ones).
    """
    criteria = [ENTROPY, "predictive_entropy", RELEVANCE, LIKELIHOOD, "log_predictive_density"]
    noise = small_noise(rng, dataset=TITLES, acceptance=["none", *criteria], reduction=range(3))
    same_noise_for_pairs = noise.isel(reduction=[0, 0, 1, 2, 2]).assign_coords(reduction=criteria)
    difference = array_of("reduction", dict.fromkeys(criteria, 0.0))
    if not is_true:
        difference.loc[["predictive_entropy", "log_predictive_density"]] = 0.3
    store = make_store(smse=0.1 * np.exp(same_noise_for_pairs + difference))
    return store.squeeze("setting", drop=True)


# --- verdicts on these stores ---------------------------------------------------------------------


#: one case for each claim, with its name as id
EACH_CLAIM = pytest.mark.parametrize(
    "claim", claims.CLAIMS, ids=[claim["name"] for claim in claims.CLAIMS]
)


@pytest.fixture(scope="module")
def true_stores():
    """Stores of all studies in which every claim is true."""
    return make_stores()


@pytest.fixture(scope="module")
def reversed_stores():
    """Stores of all studies in which the reverse of every claim is true."""
    return make_stores(is_true=False)


@pytest.fixture(scope="module")
def empty_stores(true_stores):
    """Stores of all studies in which every number is missing."""
    return {name: xr.full_like(store, np.nan, dtype=float) for name, store in true_stores.items()}


@pytest.fixture(scope="module")
def assessed(true_stores):
    """Assessment of all claims where they are true."""
    return claims.assess_claims(true_stores)


def find_claim(name):
    """Return the claim of a name."""
    return next(claim for claim in claims.CLAIMS if claim["name"] == name)


def examine_claim(name, stores, setting="trained"):
    """Return the assessment of a claim, which is found by its name."""
    return claims.examine(find_claim(name), setting, stores)


@EACH_CLAIM
def test_every_claim_holds_where_it_is_true(assessed, claim):
    verdict = assessed["verdict"].sel(setting="trained", claim=claim["name"])
    assert verdict.item() == "holds"


def test_every_guideline_holds_where_its_claims_are_true(assessed):
    assert (assessed["guideline_verdict"].sel(setting="trained") == "holds").all()


@EACH_CLAIM
def test_no_claim_holds_where_it_is_reversed(reversed_stores, claim):
    assert examine_claim(claim["name"], reversed_stores).verdict == "does not hold"


@EACH_CLAIM
def test_a_claim_is_undecided_without_its_study(true_stores, claim):
    study = claim["study"]
    other_stores = {name: store for name, store in true_stores.items() if name != study}
    assessment = examine_claim(claim["name"], other_stores)
    assert assessment.verdict == "undecided"
    assert assessment.needs == f"{study}.nc"
    assert assessment.places == {}


@EACH_CLAIM
def test_a_claim_is_undecided_where_its_study_has_no_numbers(empty_stores, claim):
    assessment = examine_claim(claim["name"], empty_stores)
    assert assessment.verdict == "undecided"
    assert claim["study"] in assessment.needs


def select_rastrigin(stores):
    """Return the SMSE on Rastrigin in table 2, at the published thresholds."""
    return stores["table_2"]["smse"].sel(
        dataset="Rastrigin", setting="trained", threshold_choice="published"
    )


def test_pairs_are_formed_within_a_seed(true_stores):
    """The SMSE varies more between seeds than between criteria: only pairs show the difference."""
    smse = select_rastrigin(true_stores)
    best = smse.sel(criterion=LIKELIHOOD, variant="none").values
    next_best = smse.sel(criterion=RELEVANCE, variant="none").values
    assert best.max() > next_best.min()
    assessment = examine_claim("lowest_smse_table_2", true_stores)
    place = assessment.places["Rastrigin"]
    assert place.median == pytest.approx(np.median(np.log(best / next_best)))
    assert place.n == N_SEEDS
    assert assessment.n_tested == sum(task.is_random for task in PAPER_TASKS.values())


def test_the_effect_of_acceptance_is_the_mean_over_criteria(true_stores):
    log_smse = np.log(select_rastrigin(true_stores))
    difference = log_smse.sel(variant="in_sample") - log_smse.sel(variant="none")
    effect = difference.mean("criterion")
    assessment = examine_claim("harmless_table_2_in_sample", true_stores)
    assert assessment.places["Rastrigin"].median == pytest.approx(float(effect.median()))


def compare_rosenbrock(store, **changes):
    """Return the log ratios (comparison, seed) of Rosenbrock in table 4."""
    claim = find_claim("lowest_smse_table_4") | changes
    places = claims.find_places(claim, "trained", store)
    return np.array([comparison.values for comparison in places["Rosenbrock"]])


def test_own_thresholds_count_where_all_compared_cells_have_one(true_stores):
    """Of the three criteria that are compared, all have an own threshold for seed 5 alone."""
    store = true_stores["table_4"].copy(deep=True)
    published = compare_rosenbrock(store)
    own = {"dataset": "Rosenbrock", "variant": "none", "threshold_choice": "own"}

    store["smse"].loc[own | {"criterion": RELEVANCE, "seed": [2, 5]}] = 2.0
    np.testing.assert_array_equal(compare_rosenbrock(store), published)
    store["smse"].loc[own | {"criterion": ENTROPY, "seed": [5]}] = 0.5
    np.testing.assert_array_equal(compare_rosenbrock(store), published)
    store["smse"].loc[own | {"criterion": LIKELIHOOD, "seed": [5]}] = 1.0

    ratios = compare_rosenbrock(store)
    relevance_to_entropy = 2.0 / 0.5
    relevance_to_likelihood = 2.0 / 1.0
    assert ratios[:, 5] == pytest.approx(np.log([relevance_to_entropy, relevance_to_likelihood]))
    other_seeds = np.arange(N_SEEDS) != 5
    np.testing.assert_array_equal(ratios[:, other_seeds], published[:, other_seeds])


def test_a_claim_may_count_published_thresholds_alone(true_stores):
    store = true_stores["table_4"].copy(deep=True)
    published = compare_rosenbrock(store)
    own = {"dataset": "Rosenbrock", "variant": "none", "threshold_choice": "own"}
    store["smse"].loc[own | {"seed": [5]}] = 1.0
    assert (compare_rosenbrock(store)[:, 5] != published[:, 5]).all()
    np.testing.assert_array_equal(compare_rosenbrock(store, own=False), published)


@pytest.fixture
def sparse_building(true_stores):
    """Sweep of the building with results at every other threshold only: 0.05, 0.1, ... K."""
    full = true_stores["figure_building"]
    return full.isel(threshold=slice(None, None, 2)).reindex(threshold=full["threshold"])


def test_a_threshold_without_results_is_replaced_by_the_next(sparse_building):
    assessment = examine_claim("building_acceptance_flattens", {"figure_building": sparse_building})
    growth = assessment.places["Prior entropy"]
    assert growth.comparison == "growth from 0.1 K with / without acceptance"
    curve = sparse_building["n_revised"].sel(
        setting="trained", criterion=ENTROPY, threshold=[0.05, 0.1]
    )
    log_points = np.log1p(curve)
    growths = log_points.sel(threshold=0.05) - log_points.sel(threshold=0.1)
    without_acceptance = growths.sel(variant="none").values
    with_acceptance = growths.sel(variant="leave_one_out").values
    assert growth.median == pytest.approx(np.median(with_acceptance - without_acceptance))
    assert growth.outcome == "won"


def test_growth_needs_results_at_two_thresholds(sparse_building):
    store = sparse_building.where(sparse_building["threshold"] >= 0.1)
    assessment = examine_claim("building_acceptance_flattens", {"figure_building": store})
    assert assessment.verdict == "undecided"
    assert assessment.places == {}


def test_the_gain_at_a_threshold_without_results_is_that_at_the_next(sparse_building):
    store = sparse_building.where(sparse_building["threshold"] != 0.15)
    gain = examine_claim("building_no_gain", {"figure_building": store}).places["Prior entropy"]
    assert gain.comparison == "SMSE at 0.2 K / mean below"
    curve = sparse_building["smse"].sel(setting="trained", variant="none", criterion=ENTROPY)
    below = np.log(curve.sel(threshold=[0.05, 0.1])).mean("threshold")
    expected = float((np.log(curve.sel(threshold=0.2)) - below).median())
    assert gain.median == pytest.approx(expected)


def test_tasks_and_seeds_in_which_no_point_passes_the_threshold_do_not_count(true_stores):
    """Acceptance cannot save a point there."""
    store = true_stores["table_4"].copy(deep=True)
    store["n_inserted"].loc[{"dataset": ["Himmelblau", "Tanks"]}] = 0.0
    store["n_inserted"].loc[{"dataset": "Rosenbrock", "seed": [0, 2]}] = 0.0
    assessment = examine_claim("saves_table_4_in_sample", {"table_4": store})
    assert set(assessment.places) == set(TITLES) - {"Himmelblau", "Tanks"}
    assert assessment.places["Rosenbrock"].n == N_SEEDS - 2
    assert assessment.places["Rastrigin"].n == N_SEEDS
    assert assessment.verdict == "holds"


def test_a_task_whose_threshold_nearly_all_points_pass_does_not_count(true_stores):
    """The limit is 90 %: only on Rastrigin do fewer points pass."""
    store = true_stores["table_4"].copy(deep=True)
    without_acceptance = {"criterion": LIKELIHOOD, "variant": "none"}
    for title in TITLES:
        passing_share = 0.89 if title == "Rastrigin" else 0.91
        cell = without_acceptance | {"dataset": title}
        store["n_offered"].loc[cell] = store["n_inserted"].sel(cell) / passing_share
    assessment = examine_claim("threshold_not_met_table_4", {"table_4": store})
    assert set(assessment.places) == {"Rastrigin"}
    assert assessment.verdict == "holds"


def test_printed_numbers_are_those_of_the_paper():
    cells = claims.read_printed()["table_2"].sel(
        setting="printed",
        dataset="Concrete",
        criterion=LIKELIHOOD,
        threshold_choice="published",
        seed=0,
    )
    row = paper.read_table("table_2").loc["Concrete"]
    with_acceptance = float(cells["smse"].sel(variant="in_sample"))
    without_acceptance = float(cells["smse"].sel(variant="none"))
    assert with_acceptance == row["marginal_log_likelihood_smse_accept"]
    assert without_acceptance == row["marginal_log_likelihood_smse"]


def test_outcomes_of_printed_numbers_are_those_of_their_ratios(assessed):
    table_2 = paper.read_table("table_2")
    printed = assessed.sel(claim="lowest_smse_table_2", setting="printed")
    likelihood = table_2[f"{LIKELIHOOD}_smse"]
    best_rival = table_2[[f"{ENTROPY}_smse", f"{RELEVANCE}_smse"]].min(axis=1)
    ratios = likelihood / best_rival
    n_won = int((ratios < 1 / 1.01).sum())
    n_lost = int((ratios > 1.01).sum())
    assert (n_won, n_lost) == (7, 3)
    assert int(printed["n_won"]) == n_won
    assert int(printed["n_lost"]) == n_lost
    assert int(printed["n_tested"]) == 0


def test_a_claim_about_numbers_that_are_not_printed_has_no_verdict_on_printed_numbers(assessed):
    assert assessed["verdict"].sel(claim="lowest_nlpd_table_3", setting="printed") == ""


@pytest.mark.parametrize(
    ("verdicts", "of_guideline"),
    [
        (("holds", "undecided"), "holds"),
        (("holds", "undecided", "undecided"), "undecided"),
        (("holds", "does not hold"), "holds in part"),
        (("does not hold", ""), "does not hold"),
        ((), ""),
    ],
)
def test_the_verdict_of_a_guideline_follows_from_those_of_its_claims(verdicts, of_guideline):
    assert claims.sum_up(verdicts) == of_guideline


#: claims about a store of the run, about one that is missing and about one of another version
CLAIMS_OF_A_RUN = ("lowest_smse_table_2", "building_no_gain", "entropies_agree")


@pytest.fixture(scope="module")
def combined(true_stores, tmp_path_factory):
    """Results of the study in a folder without figure_building.nc, with grid.nc of another version.

    Only three claims are assessed: all of them take seconds.
    """
    folder = tmp_path_factory.mktemp("stores")
    plan = make_plan(folder, *PAPER_TASKS)
    for name, store in true_stores.items():
        if name == "figure_building":
            continue
        fingerprint = "another" if name == "grid" else plan.fingerprint
        path = folder / f"{name}.nc"
        sysid.store.write(store, path, kind="study", attributes={"fingerprint": fingerprint})
    assessed_claims = [find_claim(name) for name in CLAIMS_OF_A_RUN]
    with mock.patch.object(claims, "CLAIMS", assessed_claims):
        return STUDY.combine(plan)


def read_rows(combined):
    """Return the rows of the CSV file in the setting `trained`, as dicts of texts."""
    text = to_short_csv(STUDY.rows(combined))
    return [row for row in csv.DictReader(io.StringIO(text)) if row["setting"] == "trained"]


def test_the_study_computes_nothing_itself(tmp_path):
    assert STUDY.units(make_plan(tmp_path, *PAPER_TASKS)) == []


def test_claims_are_assessed_from_the_stores_of_a_run(true_stores, combined):
    rows = read_rows(combined)
    ratios = {
        row["place"]: row["place_ratio"] for row in rows if row["claim"] == CLAIMS_OF_A_RUN[0]
    }
    assert list(ratios) == TITLES
    median = examine_claim("lowest_smse_table_2", true_stores).places["Tanks"].median
    assert float(ratios["Tanks"]) == pytest.approx(np.exp(median), rel=1e-5)


@pytest.mark.parametrize(
    ("claim", "needed"),
    [("building_no_gain", "figure_building.nc"), ("entropies_agree", "grid.nc")],
    ids=["missing", "of another version"],
)
def test_a_claim_without_a_store_of_this_version_states_what_it_needs(claim, needed, combined):
    rows = read_rows(combined)
    (row,) = [row for row in rows if row["claim"] == claim]
    assert row["verdict"] == "undecided"
    assert row["needs"] == needed
    assert row["place"] == ""


def test_the_table_of_claims_states_verdicts_and_counts(combined):
    tables = STUDY.tables(combined)
    verdicts = ["holds", "-", "-", "holds"]
    counts = ["10", "0", "0", "0", "0"]
    expected = ["lowest_smse_table_2", "guideline 1", *verdicts, *counts]
    lines = [cells[: len(expected)] for cells in table_cells(tables["claims"])]
    assert expected in lines


def test_the_table_of_tests_describes_how_every_claim_is_tested(assessed):
    text = STUDY.tables(assessed)["tests"]
    for claim in claims.CLAIMS:
        assert claim["test"] in text, claim["name"]


def test_a_damaged_store_is_refused(tmp_path):
    (tmp_path / "table_2.nc").write_bytes(b"nothing")
    with pytest.raises(sysid.store.StoreError):
        STUDY.combine(make_plan(tmp_path, *PAPER_TASKS))


# --- statistics of paired results -----------------------------------------------------------------

#: log ratios of ten seeds with little noise about 0, all of different sizes
NOISE = np.linspace(-0.01, 0.01, 10) + 1e-4 * np.arange(10)
#: regions of log ratios that a claim may state: lower, at most 5 % more, within a factor of 1.5
LOWER = (-np.inf, 0.0)
AT_MOST = (-np.inf, np.log(1.05))
WITHIN = (-np.log(1.5), np.log(1.5))


def compare(log_ratios, region=LOWER):
    """Return the comparison of random results with these log ratios."""
    return Comparison("", np.asarray(log_ratios), *region)


def compare_one_result(log_ratio):
    """Return the comparison of one number, which has no spread and no test."""
    return Comparison("", np.array([log_ratio]), *LOWER, is_random=False)


@pytest.mark.parametrize("n", [0, 5, 6, 9, 15])
def test_the_interval_of_the_median_is_the_narrowest_with_at_least_95_percent(n):
    """The values are 0 to n - 1: the k-th smallest one is k - 1, the k-th largest one n - k.

    The median lies outside these two if fewer than k of n fair coins show heads, or tails.
    """
    values = np.random.default_rng([n]).permutation(np.arange(n) * 1.0)
    expected = (-np.inf, np.inf)
    for k in range(1, n // 2 + 1):
        fewer_than_k_heads = sum(comb(n, n_heads) for n_heads in range(k)) / 2**n
        if 2 * fewer_than_k_heads <= 0.05:
            expected = (k - 1.0, float(n - k))
    assert claims.median_interval(values) == expected


@pytest.mark.parametrize("seed", range(2))
def test_the_signed_rank_p_value_is_the_share_of_signs_that_are_as_extreme(seed):
    values = np.random.default_rng([1, seed]).normal(0.4, 1.0, size=4 + seed)
    ranks = np.argsort(np.argsort(np.abs(values))) + 1

    def distance_from_balance(is_positive):
        """Return the absolute difference of the sums of positive and of negative ranks."""
        return abs(ranks[is_positive].sum() - ranks[~is_positive].sum())

    distance = distance_from_balance(values > 0)
    is_as_extreme = []
    for signs in product((False, True), repeat=len(values)):
        is_as_extreme.append(distance_from_balance(np.array(signs)) >= distance)
    assert claims.signed_rank(values) == pytest.approx(np.mean(is_as_extreme))
    with_zero = np.append(values, 0.0)
    assert claims.signed_rank(with_zero) == claims.signed_rank(values)


@pytest.mark.parametrize(
    ("arguments", "p_value"),
    [((6, 0), 2 / 2**6), ((0, 0), 1.0), ((7, 0, 1 / 3), 1 / 3**7)],
    ids=["six wins", "nothing decided", "seven wins with a chance of a third"],
)
def test_the_sign_test_is_binomial(arguments, p_value):
    assert claims.sign_test(*arguments) == pytest.approx(p_value)


def test_holm_corrects_p_values_step_by_step():
    """In ascending order they are multiplied by 4, 3, 2 and 1; 4 % is raised to the one before."""
    p_values = [0.01, 0.04, 0.03, 0.005]
    np.testing.assert_allclose(claims.holm(p_values), [0.02, 0.03, 0.06, 0.06])


def test_the_least_p_value_of_a_claim_is_corrected_for_the_number_of_places():
    values = np.array([-1.0, -0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.25, 0.22])
    places = {"clear": [compare(values)]}
    for i in range(9):
        places[f"unclear {i}"] = [compare(20 * NOISE)]
    assessment = claims.assess_claim(places)
    assert assessment.p_least == pytest.approx(10 * claims.signed_rank(values))


@pytest.mark.parametrize(
    ("comparison", "outcome"),
    [
        pytest.param(compare(NOISE - 0.1), OUTCOME_WON, id="lower"),
        pytest.param(compare(NOISE + 0.1), OUTCOME_LOST, id="higher"),
        pytest.param(compare(NOISE - 0.009), OUTCOME_TIED, id="lower by less than 1 percent"),
        pytest.param(compare(0.3 * NOISE), OUTCOME_EQUAL, id="all within 1 percent"),
        pytest.param(compare(20 * NOISE - 0.02), OUTCOME_TIED, id="much noise"),
        pytest.param(compare(np.full(10, np.nan)), OUTCOME_MISSING, id="no result"),
        pytest.param(compare(NOISE[:5] - 0.1), OUTCOME_TIED, id="too few for an interval"),
        pytest.param(compare(NOISE + 0.03, AT_MOST), OUTCOME_WON, id="3 of at most 5 percent"),
        pytest.param(compare(NOISE + 0.07, AT_MOST), OUTCOME_LOST, id="7 of at most 5 percent"),
        pytest.param(compare(NOISE + 0.3, WITHIN), OUTCOME_WON, id="within"),
        pytest.param(compare(NOISE + 0.5, WITHIN), OUTCOME_LOST, id="not within"),
        pytest.param(compare(NOISE - 0.4, WITHIN), OUTCOME_TIED, id="at the edge of within"),
        pytest.param(compare_one_result(-0.02), OUTCOME_WON, id="one result, lower"),
        pytest.param(compare_one_result(-0.005), OUTCOME_TIED, id="one result within 1 percent"),
    ],
)
def test_outcome_of_a_comparison(comparison, outcome):
    assert claims.assess(comparison).outcome == outcome


#: a comparison that is won by far, and one that is won although one seed is against it
CLEAR_WIN = compare(NOISE - 0.5)
NARROW_WIN = compare(np.append(NOISE[:9] - 0.1, 0.001))


def test_a_place_is_won_if_all_its_comparisons_are():
    """Its p-value is the largest one."""
    place = claims.assess_place([CLEAR_WIN, NARROW_WIN])
    narrow = claims.assess(NARROW_WIN)
    assert place.outcome == OUTCOME_WON
    assert narrow.p_value > claims.assess(CLEAR_WIN).p_value
    assert place == narrow


def test_a_place_is_lost_if_one_of_its_comparisons_is():
    """Its p-value is corrected for the number of comparisons."""
    loss = compare(NOISE + 0.2)
    place = claims.assess_place([CLEAR_WIN, loss, NARROW_WIN])
    assert place.outcome == OUTCOME_LOST
    assert place.p_value == pytest.approx(3 * claims.assess(loss).p_value)


@pytest.mark.parametrize(
    ("comparison", "outcome"),
    [(compare(0.3 * NOISE), OUTCOME_EQUAL), (compare([]), OUTCOME_MISSING)],
    ids=["equal", "missing"],
)
def test_one_comparison_that_is_equal_or_missing_decides_a_place(comparison, outcome):
    assert claims.assess_place([CLEAR_WIN, comparison]).outcome == outcome


def places_with_seeds(won=0, lost=0, tied=0):
    """Return places of ten seeds each: how many of them are won, lost and tied."""
    shifts = [-0.1] * won + [0.1] * lost + [0.0] * tied
    return {f"seeds {i}": [compare(NOISE + shift)] for i, shift in enumerate(shifts)}


def places_of_one_seed(won=0, lost=0, tied=0):
    """Return places of one seed each, which have no test of their own."""
    values = [-1.0] * won + [1.0] * lost + [0.0] * tied
    return {f"one seed {i}": [compare_one_result(value)] for i, value in enumerate(values)}


GAP = {"gap": [compare([])]}


@pytest.mark.parametrize(
    ("verdict", "places"),
    [
        pytest.param(HOLDS, places_with_seeds(won=7), id="7 won"),
        pytest.param(FAILS, places_with_seeds(lost=7), id="7 lost"),
        pytest.param(HOLDS, places_with_seeds(won=4, tied=3), id="4 won, 3 tied"),
        pytest.param(IN_PART, places_with_seeds(won=2, tied=5), id="2 won, 5 tied"),
        pytest.param(IN_PART, places_with_seeds(won=3, lost=3), id="3 won, 3 lost"),
        pytest.param(IN_PART, places_with_seeds(won=5, lost=1), id="5 won, 1 lost"),
        pytest.param(FAILS, places_with_seeds(lost=1, tied=6), id="1 lost, 6 tied"),
        # more than half must be won
        pytest.param(IN_PART, places_with_seeds(won=2, tied=2), id="2 won, 2 tied"),
        pytest.param(HOLDS, places_with_seeds(won=3, tied=1), id="3 won, 1 tied"),
        pytest.param(
            IN_PART,
            places_of_one_seed(tied=1) | places_with_seeds(won=1),
            id="1 won, of one seed 1 tied",
        ),
        # one place may be lost if the sign test is significant
        pytest.param(HOLDS, places_with_seeds(won=9, lost=1), id="9 won, 1 lost"),
        # without a test of a place only the sign test counts
        pytest.param(UNDECIDED, places_of_one_seed(won=3), id="of one seed 3 won"),
        pytest.param(HOLDS, places_of_one_seed(won=6), id="of one seed 6 won"),
        pytest.param(FAILS, places_of_one_seed(lost=6), id="of one seed 6 lost"),
        pytest.param(UNDECIDED, places_of_one_seed(won=7, lost=3), id="of one seed 7 won, 3 lost"),
        # the verdict must be the same whatever a missing place would show
        pytest.param(HOLDS, places_with_seeds(won=9) | GAP, id="9 won and a gap"),
        pytest.param(UNDECIDED, places_with_seeds(won=4) | GAP, id="4 won and a gap"),
        pytest.param(UNDECIDED, GAP, id="only a gap"),
    ],
)
def test_verdict_by_counts_signs_and_gaps(verdict, places):
    assessment = claims.assess_claim(places)
    assert assessment.verdict == verdict
    assert assessment.n_missing == ("gap" in places)


@pytest.mark.parametrize(
    ("verdict", "places", "chance"),
    [
        (HOLDS, places_of_one_seed(won=7, lost=3), 1 / 3),
        (UNDECIDED, places_of_one_seed(lost=6), 1 / 5),
    ],
    ids=["seven of ten wins are unlikely", "six losses are likely"],
)
def test_the_sign_test_knows_the_chance_of_a_win(verdict, places, chance):
    assessment = claims.assess_claim(places, chance)
    assert assessment.verdict == verdict
    assert assessment.n_missing == 0


@pytest.mark.parametrize("region", [LOWER, AT_MOST, WITHIN], ids=["lower", "at_most", "within"])
def test_noise_is_undecided(region):
    """All ratios scatter around the bound of the region; 95 of 100 repetitions are undecided.

    There are seven tasks with ten seeds and three records with one; each has two comparisons.
    """
    rng = np.random.default_rng([2, 2])
    bound = region[1]
    n_undecided = 0
    for _ in range(100):
        log_ratios = bound + 0.3 * rng.normal(size=(10, 2, 10))
        places = {}
        for task, (first, second) in enumerate(log_ratios[:7]):
            places[f"task {task}"] = [compare(first, region), compare(second, region)]
        for record, first_seeds in enumerate(log_ratios[7:, :, :1]):
            places[f"record {record}"] = [
                Comparison("", values, *region, is_random=False) for values in first_seeds
            ]
        if claims.assess_claim(places, 1 / 3).verdict == UNDECIDED:
            n_undecided += 1
    assert n_undecided >= 95
