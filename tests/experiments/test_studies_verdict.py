"""Tests and counts behind a verdict, against naive versions and results that are known by construction."""

from itertools import product
from math import comb

import numpy as np
import pytest

from experiments.studies.verdict import (
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
    holm,
    judge,
    judge_claim,
    judge_place,
    median_interval,
    sign_test,
    signed_rank,
)

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
