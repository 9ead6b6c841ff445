"""Tests and counts behind a verdict, against naive versions and results that are known by construction."""

from itertools import product
from math import comb

import numpy as np
import pytest

from experiments.studies.verdict import (
    LOWER,
    Comparison,
    Outcome,
    Place,
    Verdict,
    at_most,
    holm,
    judge,
    judgement,
    median_interval,
    sign_test,
    signed_rank,
    within,
)

STEADY = np.linspace(-0.01, 0.01, 10) + 1e-4 * np.arange(10)  # noise around 0, without ties


def shifted(shift, region=LOWER, **options):
    return Comparison("", shift + STEADY, region, **options)


@pytest.mark.parametrize("n", range(16))
def test_interval_is_the_narrowest_with_at_least_95_percent(n):
    values = np.random.default_rng([n]).permutation(np.arange(n) * 1.0)
    below = [sum(comb(n, j) for j in range(k)) / 2**n for k in range(n // 2 + 1)]  # P(fewer than k heads)
    allowed = [k for k in range(1, n // 2 + 1) if 2 * below[k] <= 0.05]
    expected = (max(allowed) - 1.0, n - 1.0 * max(allowed)) if allowed else (-np.inf, np.inf)
    assert median_interval(values) == expected


@pytest.mark.parametrize("seed", range(6))
def test_signed_rank_is_the_share_of_signs_that_are_as_extreme(seed):
    values = np.random.default_rng([1, seed]).normal(0.4, 1.0, size=4 + seed)
    ranks = np.argsort(np.argsort(np.abs(values))) + 1
    total = ranks.sum()
    found = abs(2 * ranks[values > 0].sum() - total)
    extreme = [abs(2 * ranks[np.array(s, bool)].sum() - total) >= found for s in product((0, 1), repeat=len(values))]
    assert signed_rank(values) == pytest.approx(np.mean(extreme))
    assert signed_rank(np.append(values, 0.0)) == signed_rank(values)


def test_sign_test():
    assert sign_test(6, 0) == pytest.approx(2 / 64)
    assert sign_test(0, 0) == 1.0
    assert signed_rank(np.zeros(10)) == 1.0
    assert sign_test(7, 0, 1 / 3) == pytest.approx(3.0**-7)


def test_holm_goes_down_step_by_step():
    p = [0.01, 0.04, np.nan, 0.03, 0.005]
    expected = [0.03, 0.06, np.nan, 0.06, 0.02]  # 3 p, max(1 p, before), no test, 2 p, 4 p
    np.testing.assert_allclose(holm(p), expected)
    np.testing.assert_allclose(holm([0.9, 0.8]), [1.0, 1.0])
    assert not len(holm([]))


@pytest.mark.parametrize(
    ("comparison", "outcome"),
    [
        (shifted(-0.1), Outcome.won),
        (shifted(0.1), Outcome.lost),
        (shifted(-0.009), Outcome.tied),  # shown to be below 1, but within 1 %
        (Comparison("", 0.3 * STEADY), Outcome.equal),
        (Comparison("", 20 * STEADY - 0.02), Outcome.tied),
        (Comparison("", np.full(10, np.nan)), Outcome.missing),
        (Comparison("", np.empty(0)), Outcome.missing),
        (Comparison("", STEADY[:5] - 0.1), Outcome.tied),  # too few for an interval
        (shifted(0.03, at_most(1.05)), Outcome.won),
        (shifted(0.045, at_most(1.05)), Outcome.tied),
        (shifted(0.07, at_most(1.05)), Outcome.lost),
        (shifted(0.3, within(1.5)), Outcome.won),
        (shifted(0.5, within(1.5)), Outcome.lost),
        (shifted(-0.5, within(1.5)), Outcome.lost),
        (shifted(-0.4, within(1.5)), Outcome.tied),
        (Comparison("", np.array([-0.02]), LOWER, False), Outcome.won),
        (Comparison("", np.array([0.02]), LOWER, False), Outcome.lost),
        (Comparison("", np.array([-0.005]), LOWER, False), Outcome.tied),
        (Comparison("", np.array([np.nan, 0.02]), at_most(1.05), False), Outcome.won),
    ],
)
def test_outcome_of_a_comparison(comparison, outcome):
    assert judge(comparison).outcome is outcome


def test_p_value_is_that_of_the_nearest_bound():
    shifts = {LOWER: -0.004, at_most(1.05): np.log(1.05) - 0.004, within(1.5): np.log(1.5) - 0.004}
    for region, shift in shifts.items():
        wide = Comparison("", shift + 2 * STEADY, region)
        assert judge(wide).outcome is Outcome.tied
        assert judge(wide).p_value == 1.0
        won = judge(Comparison("", shift - 0.01 + STEADY, region))
        assert won.outcome is Outcome.won
        assert won.p_value == pytest.approx(signed_rank(STEADY - 0.014))
    lost = judge(Comparison("", STEADY - np.log(1.5) - 0.0092, within(1.5)))
    assert lost.outcome is Outcome.lost
    assert lost.p_value == pytest.approx(signed_rank(STEADY - 0.0092))


def test_place_needs_all_comparisons_and_is_lost_by_one():
    small, large, worse = Comparison("", np.append(STEADY[:9] - 0.1, 0.001)), shifted(-0.5), shifted(0.2)
    won = Place.of([large, small])
    assert won.outcome is Outcome.won
    assert won.p_value == judge(small).p_value > judge(large).p_value
    assert won.decisive == judge(small)
    lost = Place.of([large, worse, small])
    assert lost.outcome is Outcome.lost
    assert lost.p_value == pytest.approx(3 * judge(worse).p_value)
    assert Place.of([large, Comparison("", 0.3 * STEADY)]).outcome is Outcome.equal
    assert Place.of([large, Comparison("", 20 * STEADY)]).outcome is Outcome.tied
    assert Place.of([large, Comparison("", np.empty(0))]).outcome is Outcome.missing


def test_decisive_comparison_has_the_outcome_of_its_place_and_lies_farthest_out():
    inside, outside = shifted(0.3, within(1.5)), shifted(-0.6, within(1.5))
    assert Place.of([inside, outside]).decisive.median == pytest.approx(judge(outside).median)
    single = judge(Comparison("", np.array([-0.5]), LOWER, False))
    assert np.isnan([single.p_value, single.low, single.high]).all()  # one number has no test
    equal, tied = Comparison("equal", 0.3 * STEADY), Comparison("tied", 0.005 + 20 * STEADY)
    assert Place.of([tied, equal]).decisive.label == "equal"
    assert Place.of([tied, shifted(-0.5)]).decisive.label == "tied"
    assert Place.of([tied, shifted(-0.5)]).p_value == 1.0


def places(*shifts, **options):
    return {str(i): [shifted(shift, **options)] for i, shift in enumerate(shifts)}


@pytest.mark.parametrize(
    ("shifts", "verdict"),
    [
        ([-0.1] * 7, Verdict.holds),
        ([0.1] * 7, Verdict.fails),
        ([-0.1] * 4 + [0.0] * 3, Verdict.holds),
        ([-0.1] * 2 + [0.0] * 5, Verdict.in_part),
        ([-0.1] * 3 + [0.1] * 3, Verdict.in_part),
        ([-0.1] * 9 + [0.1], Verdict.holds),  # the sign test is for it
        ([-0.1] * 5 + [0.1], Verdict.in_part),
        ([-0.1] + [0.1] * 9, Verdict.fails),
        ([0.1] + [0.0] * 6, Verdict.fails),
        ([-0.1], Verdict.holds),
        ([-0.1, -0.1, 0.0, 0.0], Verdict.in_part),  # more than half is needed
        ([-0.1, -0.1, -0.1, 0.0], Verdict.holds),
    ],
)
def test_verdict_by_counts(shifts, verdict):
    assert judgement(places(*shifts)).verdict is verdict


def test_shown_equality_speaks_against_a_difference():
    equal = {str(i): [Comparison("", 0.3 * STEADY)] for i in range(7)}
    found = judgement(equal)
    assert (found.verdict, found.n_equal, found.n_tied) == (Verdict.fails, 7, 0)
    assert judgement(equal | {"won": [shifted(-0.1)]}).verdict is Verdict.in_part
    more = {f"{i} more": [Comparison("", 0.3 * STEADY)] for i in range(7)}
    assert judgement(equal | more | {"won": [shifted(-0.1)]}).verdict is Verdict.fails


def test_places_without_a_test_are_judged_by_the_sign_test_alone():
    def single(*values):
        return {str(i): [Comparison("", np.array([x]), LOWER, False)] for i, x in enumerate(values)}

    assert judgement(single(-1, -1, -1)).verdict is Verdict.undecided
    assert judgement(single(*[-1] * 6)).verdict is Verdict.holds
    assert judgement(single(*[1] * 6)).verdict is Verdict.fails
    assert judgement(single(*[-1] * 7, 1, 1, 1)).verdict is Verdict.undecided
    assert judgement(single(*[-1] * 7, 1, 1, 1), chance=1 / 3).verdict is Verdict.holds
    assert judgement(single(*[1] * 6), chance=0.2).verdict is Verdict.undecided  # (4/5)^6 is likely
    assert judgement(single(-1, -1, -1)).n_tested == 0


def single(value):
    return [Comparison("", np.array([value]), LOWER, False)]


@pytest.mark.parametrize(
    ("won", "shifts", "verdict"),
    [
        (3, [0.1, 0.1, 0.1, 0.0], Verdict.fails),  # three numbers without a spread against what is shown
        (3, [-0.1, 0.1, 0.1, 0.1], Verdict.in_part),
        (3, [-0.1, 0.0, 0.0], Verdict.in_part),  # most places are won, but not of those with a test
        (3, [-0.1, -0.1, 0.0], Verdict.holds),
        (3, [-0.009, -0.009], Verdict.undecided),
        (3, [0.0, 0.0], Verdict.fails),  # shown to be equal
        (6, [0.0, 0.0], Verdict.in_part),  # six numbers are something
    ],
)
def test_single_numbers_alone_make_no_claim_hold(won, shifts, verdict):
    found = judgement({f"record {i}": single(-1.0) for i in range(won)} | places(*shifts))
    assert found.verdict is verdict


def test_a_missing_place_may_be_one_with_a_test():
    """Three numbers and two tested wins hold; a third place with a test could be lost, or won."""
    gap = {"gap": [Comparison("", np.empty(0))]}
    known = {f"record {i}": single(-1.0) for i in range(3)} | places(-0.1, 0.0)
    assert judgement(known).verdict is Verdict.in_part
    assert judgement(known | gap).verdict is Verdict.undecided
    more = {f"record {i}": single(-1.0) for i in range(4)} | places(-0.1, -0.1, 0.0, 0.0, 0.0)
    assert judgement(more).verdict is judgement(more | gap).verdict is Verdict.in_part  # 3 of 6 are not most


def test_missing_places_leave_a_verdict_only_if_they_cannot_change_it():
    gap = [Comparison("", np.empty(0))]
    few = places(*[-0.1] * 9) | {"gap": gap}
    found = judgement(few)
    assert (found.verdict, found.n_missing) == (Verdict.holds, 1)
    assert judgement(places(*[-0.1] * 4) | {"gap": gap}).verdict is Verdict.undecided
    assert judgement({"gap": gap}).verdict is Verdict.undecided
    assert judgement({}).verdict is Verdict.undecided


def test_tests_are_corrected_for_the_number_of_places():
    """One place with p near 1 % among ten is nothing."""
    values = np.array([-1.0, -0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.25, 0.22])
    one = Comparison("", values)
    wide = {str(i): [Comparison("", 20 * STEADY)] for i in range(9)}
    assert judge(one).outcome is Outcome.won
    assert judge(one).p_value < 0.05
    assert judgement({"one": [one]}).verdict is Verdict.holds
    found = judgement({"one": [one]} | wide)
    assert found.p_least == pytest.approx(10 * judge(one).p_value, abs=1e-12) or found.p_least > 0.01
    assert found.p_least == pytest.approx(10 * signed_rank(values))


@pytest.mark.parametrize("n_rivals", [1, 2])
@pytest.mark.parametrize("region", [LOWER, at_most(1.05), within(1.5)])
def test_noise_is_undecided(region, n_rivals):
    """Ratios scattered around the bound: 7 tasks with seeds and 3 records, at least 95 % of 200 repetitions."""
    rng, repetitions = np.random.default_rng([2, n_rivals]), 200
    undecided = 0
    for _ in range(repetitions):
        values = region.high + 0.3 * rng.normal(size=(10, n_rivals, 10))
        drawn = {
            str(i): [Comparison("", x if i < 7 else x[:1], region, i < 7) for x in each]
            for i, each in enumerate(values)
        }
        undecided += judgement(drawn, 1 / (1 + n_rivals)).verdict is Verdict.undecided
    assert undecided >= 0.95 * repetitions
