"""OnlineGP: algorithm 1, consistency, duplicates, drift, compiled code, prediction and refusals."""

import functools
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

import fixed_streams
import naive
from fixed_streams import arrays_of
from sysid import (
    AcceptAll,
    Always,
    ErrorThreshold,
    ExceedsMinimum,
    Insertion,
    Linear,
    MarginalLogLikelihood,
    Matern52,
    MeanRelevance,
    OnlineGP,
    PriorEntropy,
    SquaredExponential,
    Sum,
    UpdateReport,
)
from sysid.gp import dictionary
from sysid.gp.online import PREDICTION_BLOCK_ROWS

each_criterion = pytest.mark.parametrize("criterion", naive.CRITERIA, ids=naive.criterion_name)
seeds = st.integers(0, 2**32 - 1)
REPORTED_DECISIONS = ("inserted", "accepted", "slot", "removed", "n_points")
REPORTED_FLOATS = ("mean", "variance", "acceptance_score", "acceptance_minimum")


@dataclass(frozen=True)
class ErrorExceeds(Insertion):
    """Insert samples whose error exceeds a bound: a rule that a user may write.

    The bound may be an integer.
    """

    bound: float

    def parameters(self):
        return np.array([self.bound])

    @staticmethod
    def formula(error, variance, novelty, parameters):
        return abs(error) > parameters[0]


def assert_same_bits(first, second):
    """Assert that two dictionaries hold the same arrays, bit for bit."""
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name


def assert_equals_scratch(gp, tolerance=1e-9):
    """Assert that predictions and leave-one-out are those of a GP built from the stored points."""
    exact = naive.scratch(gp)
    points = np.random.default_rng(0).uniform(-2.5, 2.5, size=(20, gp.n_features))
    mean, variance = gp.predict(points)
    exact_mean, exact_variance = exact.predict(points)
    mean_tolerance = tolerance * max(1.0, np.abs(gp.targets).max())
    variance_tolerance = tolerance * gp.kernel.diagonal(points).max()
    np.testing.assert_allclose(mean, exact_mean, rtol=0, atol=mean_tolerance)
    np.testing.assert_allclose(variance, exact_variance, rtol=0, atol=variance_tolerance)
    left_out = gp.leave_one_out()
    exact_left_out = np.array([exact.left_out(i) for i in range(gp.n_points)])
    residual = exact_left_out[:, 0]
    variance_with_noise = exact_left_out[:, 1] + gp.noise_variance
    np.testing.assert_allclose(left_out.residual, residual, rtol=1e-6, atol=tolerance)
    np.testing.assert_allclose(left_out.variance, variance_with_noise, rtol=1e-6, atol=tolerance)


# --- algorithm 1 ----------------------------------------------------------------------------------

N_ACCEPTANCES = len(naive.matched_and_crossed(naive.CRITERIA[0]))


def default_insertion(criterion, acceptance_index):
    """Return the insertion rule that the default run combines with a criterion and acceptance.

    The default run has every criterion with every acceptance rule, and both with every insertion
    rule. The other combinations are slow.
    """
    number = naive.CRITERIA.index(criterion) + acceptance_index
    return naive.INSERTIONS[number % len(naive.INSERTIONS)]


def combinations_of_rules():
    """Return every criterion, index of an acceptance rule and insertion rule as parameters."""
    combinations = []
    for criterion in naive.CRITERIA:
        for acceptance_index in range(N_ACCEPTANCES):
            for insertion in naive.INSERTIONS:
                is_default = insertion is default_insertion(criterion, acceptance_index)
                combination = pytest.param(
                    criterion,
                    acceptance_index,
                    insertion,
                    id=f"{naive.criterion_name(criterion)}-{acceptance_index}-{insertion.__name__}",
                    marks=[] if is_default else [pytest.mark.slow],
                )
                combinations.append(combination)
    return combinations


@functools.cache
def learn_both_ways(criterion, acceptance_index, insertion):
    """Learn a stream by an OnlineGP and by algorithm 1 from scratch.

    The stream, the number of features and the budget vary with the acceptance rule. Return the
    reports of the OnlineGP, those of algorithm 1, and for each the slots of its points, the oldest
    point first.
    """
    n_features = 1 + acceptance_index % 2
    x, y = naive.random_stream(70, n_features, seed=acceptance_index)
    gp = naive.online_gp(
        n_features,
        variance=1.3,
        noise_variance=0.02,
        budget=4 + acceptance_index % 3,
        insertion=naive.insertion_rule(insertion, variance_threshold=0.03, error_threshold=0.15),
        acceptance=naive.matched_and_crossed(criterion)[acceptance_index],
        reduction=criterion,
    )
    exact = naive.NaiveOnlineGP(gp)
    reports = gp.update_many(x, y)
    exact_reports = [exact.update(*sample) for sample in zip(x, y, strict=True)]
    exact_slots = [slot for slot, _, _ in exact.points]
    return reports, exact_reports, gp.age_order, exact_slots


@pytest.mark.parametrize(("criterion", "acceptance_index", "insertion"), combinations_of_rules())
def test_stream_equals_algorithm_1_from_scratch(criterion, acceptance_index, insertion):
    results = learn_both_ways(criterion, acceptance_index, insertion)
    reports, exact_reports, slots, exact_slots = results
    for name in REPORTED_DECISIONS:
        expected = [report[name] for report in exact_reports]
        np.testing.assert_array_equal(reports[name], expected, name)
    for name in REPORTED_FLOATS:
        expected = [report[name] for report in exact_reports]
        np.testing.assert_allclose(reports[name], expected, rtol=1e-7, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(slots, exact_slots)


@each_criterion
def test_the_streams_of_algorithm_1_contain_every_decision(criterion):
    n_replaced = 0
    n_rejected = 0
    n_dropped = 0
    for acceptance_index in range(N_ACCEPTANCES):
        insertion = default_insertion(criterion, acceptance_index)
        reports, _, _, _ = learn_both_ways(criterion, acceptance_index, insertion)
        n_replaced += np.count_nonzero(reports["removed"] >= 0)
        n_rejected += np.count_nonzero(reports["inserted"] & ~reports["accepted"])
        n_dropped += np.count_nonzero(~reports["inserted"])
    assert n_replaced > 20
    assert n_rejected > 3
    assert n_dropped > 0


@each_criterion
def test_candidate_scores_are_the_scores_of_the_stored_points_with_each_candidate_added(criterion):
    """The GP itself does not change."""
    x, y = naive.random_stream(40, 2, seed=5)
    gp = naive.online_gp(2, noise_variance=0.02, budget=6)
    gp.update_many(x[:30], y[:30])
    slots_are_in_order_of_age = np.array_equal(gp.age_order, np.arange(6))
    assert not slots_are_in_order_of_age
    before = gp.state()
    stored = naive.scratch(gp)
    expected = []
    for candidate in zip(x[30:], y[30:], strict=True):
        with_candidate = stored.plus(*candidate)
        expected.append(naive.reduction_scores(criterion, with_candidate, 6))
    scores = gp.candidate_scores(x[30:], y[30:], criterion)
    # only differences between the scores for one candidate count: a common constant may differ
    constant = (scores - np.array(expected))[:, :1]
    np.testing.assert_allclose(scores, expected + constant, rtol=1e-7, atol=1e-9)
    assert_same_bits(gp.state(), before)


def test_an_empty_gp_has_no_candidate_scores():
    x, y = naive.random_stream(1, 2, seed=5)
    scores = naive.online_gp(2).candidate_scores(x, y)
    assert scores.shape == (1, 0)


def test_a_candidate_must_exceed_the_minimum_and_not_just_reach_it():
    """All scores are equal here, so only the six samples that fill the budget are accepted."""
    x, y = naive.random_stream(12, 2, seed=5)
    gp = naive.online_gp(2, budget=6, acceptance=ExceedsMinimum(naive.Oldest()))
    reports = gp.update_many(x, y)
    scores = reports["acceptance_score"][6:]
    minima = reports["acceptance_minimum"][6:]
    np.testing.assert_array_equal(reports["accepted"], [True] * 6 + [False] * 6)
    np.testing.assert_array_equal(scores, minima)


@pytest.mark.parametrize("learning", ["stored", "every_sample"])
@pytest.mark.parametrize("seed", range(5))
def test_a_sample_that_repeats_the_worst_point_just_reaches_the_minimum(learning, seed):
    """In sample both have the same score, whatever rounding says."""
    x, y = naive.random_stream(4, 2, seed)
    acceptance = ExceedsMinimum(PriorEntropy(), "in_sample")
    gp = naive.online_gp(2, budget=4, acceptance=acceptance, learning=learning).fit(x, y)
    _, variances = gp.predict(x)
    worst = np.argmin(variances)
    report = gp.update(x[worst], y[worst])
    assert report.acceptance_score == pytest.approx(report.acceptance_minimum, rel=1e-9)
    assert not report.accepted


# --- consistency ----------------------------------------------------------------------------------


@each_criterion
@given(
    seed=seeds,
    noise_exponent=st.floats(-4, 0),
    kernel=st.sampled_from([None, *naive.FAMILY.values()]),
)
@settings(deadline=None, derandomize=True, max_examples=12)
def test_any_sequence_of_changes_equals_a_gp_of_the_final_points(
    criterion, seed, noise_exponent, kernel
):
    """Where no kernel of three features is given, the number of features varies."""
    rng = np.random.default_rng(seed)
    n_features = 3
    if kernel is None:
        n_features = int(rng.integers(1, 4))
        kernel = SquaredExponential(1.0, [0.8] * n_features)
    budget = int(rng.integers(2, 9))
    gp = OnlineGP(
        kernel,
        noise_variance=5 * 10**noise_exponent,
        budget=budget,
        reduction=criterion,
        acceptance=ExceedsMinimum(criterion),
    )
    for _ in range(8):
        action = rng.choice(["fit", "update_many", "update", "reduce_to"], p=[0.1, 0.4, 0.3, 0.2])
        x, y = naive.random_stream(int(rng.integers(1, 15)), n_features, seed=rng)
        if action == "fit":
            gp.fit(x, y)
        elif action == "update_many":
            gp.update_many(x, y)
        elif action == "update":
            gp.update(x[0], y[0])
        elif gp.n_points > 1:
            gp.reduce_to(int(rng.integers(1, gp.n_points + 1)))
    if gp.n_points:
        np.testing.assert_array_equal(np.sort(gp.age_order), np.arange(gp.n_points))
        assert_equals_scratch(gp)


@each_criterion
def test_fit_and_reduce_to_eliminate_backwards_and_later_samples_fill_the_budget_again(criterion):
    x, y = naive.random_stream(20, 2, seed=9)
    gp = naive.online_gp(2, budget=10, reduction=criterion)
    gp.update_many(x, y)
    assert gp.fit(x[:14], y[:14]) is gp
    all_points = naive.NaiveGP(gp.kernel, gp.noise_variance, x[:14], y[:14])
    for n_points in (10, 4):  # fit has reduced to the budget of 10 already
        gp.reduce_to(n_points)
        kept = naive.backward_elimination(criterion, all_points, n_points)
        np.testing.assert_array_equal(gp.inputs[gp.age_order], x[kept])
        np.testing.assert_array_equal(gp.targets[gp.age_order], y[kept])
    reports = gp.update_many(x[10:], y[10:])
    np.testing.assert_array_equal(reports["n_points"], [5, 6, 7, 8, 9, 10, 10, 10, 10, 10])
    np.testing.assert_array_equal(reports["slot"][:6], np.arange(4, 10))
    assert_equals_scratch(gp)


def to_columns_and_integers(x, y):
    """Return the inputs stored column by column, and integer targets."""
    return np.asfortranarray(x), y.astype(int)


def to_every_second_column_and_single_precision(x, y):
    """Return the inputs as every second column of an array, and targets in single precision."""
    return np.repeat(x, 2, axis=1)[:, ::2], y.astype(np.float32)


def to_single_precision_and_every_second_target(x, y):
    """Return inputs in single precision, and the targets as every second element of an array."""
    return x.astype(np.float32), np.repeat(y, 2)[::2]


def to_lists(x, y):
    """Return inputs and targets as lists."""
    return x.tolist(), y.tolist()


@pytest.mark.parametrize(
    "convert",
    [
        to_columns_and_integers,
        to_every_second_column_and_single_precision,
        to_single_precision_and_every_second_target,
        to_lists,
    ],
)
def test_layout_and_type_of_the_arrays_do_not_matter(convert):
    """All conversions are exact: inputs fit into single precision, targets are whole numbers."""
    x, y = naive.random_stream(30, 3, seed=13)
    x = x.astype(np.float32).astype(float)
    y = np.round(4 * y)
    converted_x, converted_y = convert(x, y)
    expected = naive.online_gp(3).update_many(x, y)
    reports = naive.online_gp(3).update_many(converted_x, converted_y)
    first_report = naive.online_gp(3).update(converted_x[0], converted_y[0])
    assert_same_bits(arrays_of(reports), arrays_of(expected))
    # compared as text, because nan does not equal itself
    assert repr(tuple(first_report)) == repr(expected[0].item())


def test_a_gp_shares_no_array_with_its_caller():
    x, y = naive.random_stream(4, 2, seed=14)
    original = x.copy()
    point = np.array([0.1, 0.2])
    gp = naive.online_gp(2)
    gp.update_many(x, y)
    gp.update(point, 1.0)
    state = gp.state()
    for array in (x, y, point, gp.inputs, gp.targets, gp.age_order, *state.values()):
        array[:] = 7
    expected = np.vstack([original, [0.1, 0.2]])
    np.testing.assert_array_equal(gp.inputs, expected)
    assert_equals_scratch(gp)


def restore_from_state(gp):
    """Return a new GP with the state of another one."""
    state = gp.state()
    restored = naive.online_gp(2, acceptance=gp.acceptance, reduction=gp.reduction)
    restored.restore(state, state["counts"])
    return restored


WAYS_TO_COPY = {
    "restored": restore_from_state,
    "pickled": lambda gp: pickle.loads(pickle.dumps(gp)),
    "copied": OnlineGP.copy,
}


@pytest.mark.parametrize("make_copy", WAYS_TO_COPY.values(), ids=WAYS_TO_COPY)
def test_a_copy_leaves_the_original_alone_and_continues_bit_for_bit_like_it(make_copy):
    x, y = naive.random_stream(60, 2, seed=15)
    gp = naive.online_gp(2, acceptance=ExceedsMinimum(MeanRelevance()), reduction=MeanRelevance())
    gp.fit(x[:12], y[:12])
    gp.update_many(x[12:35], y[12:35])
    state = gp.state()
    copy = make_copy(gp)
    reports_of_copy = copy.update_many(x[35:], y[35:])
    assert_same_bits(gp.state(), state)
    reports = gp.update_many(x[35:], y[35:])
    assert_same_bits(arrays_of(reports_of_copy), arrays_of(reports))
    assert_same_bits(copy.state(), gp.state())
    assert copy.repairs == gp.repairs


@pytest.mark.parametrize(
    "derive",
    [
        pytest.param(lambda gp: gp, id="original"),
        pytest.param(OnlineGP.copy, id="copied"),
        pytest.param(
            lambda gp: gp.with_hyperparameters(gp.kernel, 0.3), id="other hyper-parameters"
        ),
    ],
)
def test_sample_numbers_name_the_samples_that_are_stored(derive):
    x, y = naive.random_stream(60, 2, seed=15)
    gp = naive.online_gp(2, acceptance=ExceedsMinimum(MeanRelevance()), reduction=MeanRelevance())
    gp.fit(x[:12], y[:12])
    gp.update_many(x[12:], y[12:])
    gp.reduce_to(4)
    derived = derive(gp)
    np.testing.assert_array_equal(derived.inputs, x[derived.sample_numbers])
    np.testing.assert_array_equal(derived.targets, y[derived.sample_numbers])


def state_of_six_points():
    """Return the state of a GP of two features that stores six points."""
    x, y = naive.random_stream(6, 2, seed=16)
    gp = naive.online_gp(2).fit(x, y)
    return gp.state()


@pytest.mark.parametrize(
    ("change", "message", "n_features", "budget"),
    [
        pytest.param(lambda state: {"order": np.zeros(6, dtype=int)}, "order", 2, 6, id="order"),
        pytest.param(lambda state: {"inputs": state["inputs"][:1]}, "inputs", 2, 6, id="inputs"),
        pytest.param(lambda state: {"factor": state["factor"][:1]}, "factor", 2, 6, id="factor"),
        pytest.param(
            lambda state: {"weights": 1.01 * state["weights"]}, "restore", 2, 6, id="weights"
        ),
        pytest.param(lambda state: {}, "at most 5 points", 2, 5, id="budget"),
        pytest.param(lambda state: {}, "inputs", 3, 6, id="features"),
    ],
)
def test_restore_refuses_what_does_not_fit(change, message, n_features, budget):
    state = state_of_six_points()
    changed_state = state | change(state)
    gp = naive.online_gp(n_features, budget=budget)
    with pytest.raises(ValueError, match=message):
        gp.restore(changed_state, state["counts"])


def test_restore_refuses_a_state_without_a_factor():
    state = state_of_six_points()
    del state["factor"]
    with pytest.raises(KeyError, match="factor"):
        naive.online_gp(2).restore(state, state["counts"])


@pytest.mark.parametrize("first_changed", [1, 5, 6, 7, 30, 59])
@each_criterion
def test_later_samples_never_change_earlier_reports(criterion, first_changed):
    x, y = naive.random_stream(60, 2, seed=17)
    changed_y = y.copy()
    changed_y[first_changed:] += 5.0
    rules = {"reduction": criterion, "acceptance": ExceedsMinimum(criterion)}
    reports = naive.online_gp(2, **rules).update_many(x, y)
    changed_reports = naive.online_gp(2, **rules).update_many(x, changed_y)
    for name in UpdateReport._fields:
        earlier = reports[name][:first_changed]
        assert changed_reports[name][:first_changed].tobytes() == earlier.tobytes(), name
    for name in ("mean", "variance"):  # a sample is predicted before its target is seen
        assert changed_reports[name][first_changed] == reports[name][first_changed], name


@each_criterion
def test_other_hyperparameters_keep_points_ages_rules_and_counts(criterion):
    x, y = naive.random_stream(60, 2, seed=4)
    rules = {
        "insertion": ErrorThreshold(0.01),
        "acceptance": ExceedsMinimum(criterion),
        "reduction": criterion,
    }
    gp = naive.online_gp(2, budget=12, **rules)
    gp.update_many(x, y)
    gp.n_refactorisations = 3
    gp.n_renewals = 4
    gp.n_clipped_predictions = 5
    before = gp.state()
    kernel = SquaredExponential(2.0, [1.1, 1.1])
    other = gp.with_hyperparameters(kernel, 0.05)
    expected_settings = rules | {"kernel": kernel, "noise_variance": 0.05, "budget": 12}
    for name, value in expected_settings.items():
        assert getattr(other, name) == value, name
    for name in ("inputs", "targets", "order"):
        np.testing.assert_array_equal(other.state()[name], before[name])
    counts = gp.counts()
    counts_of_other = other.counts()
    del counts["minimum_is_stale"]  # a flag that may differ
    del counts_of_other["minimum_is_stale"]
    assert counts_of_other == counts
    assert_equals_scratch(other)
    later_x, later_y = naive.random_stream(40, 2, seed=5)
    other.update_many(later_x, later_y)
    assert_equals_scratch(other)
    np.testing.assert_equal(gp.state(), before)
    with pytest.raises(ValueError, match="noise_variance"):
        gp.with_hyperparameters(kernel, 1e-10)


# --- duplicates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_variance", [1e-2, 1e-8])
@each_criterion
def test_duplicates_survive_and_are_counted(criterion, noise_variance):
    rng = np.random.default_rng(19)
    distinct = rng.uniform(-2, 2, size=(4, 2))
    tiny_shift = np.where(np.arange(80) % 2, 1e-9, 0.0)[:, None]
    repeated = distinct[rng.integers(0, 4, size=80)]
    x = repeated + tiny_shift
    y = np.sin(x[:, 0]) + 1e-2 * rng.normal(size=80)
    gp = naive.online_gp(2, noise_variance=noise_variance, budget=8, reduction=criterion)
    reports = gp.update_many(x, y)
    mean, variance = gp.predict(np.vstack([x, distinct]))
    assert (np.abs([*reports["mean"], *mean]) < 3).all()
    assert (np.array([*reports["variance"], *variance]) >= 0).all()
    assert (gp.leave_one_out().variance >= noise_variance * (1 - 1e-6)).all()
    n_duplicates = count_entries_at_stored_points(x, reports)
    assert n_duplicates > 10
    assert gp.repairs["near_duplicates"] == n_duplicates


def count_entries_at_stored_points(x, reports):
    """Return the number of samples that entered within 1e-8 of a stored point."""
    n_duplicates = 0
    stored = {}  # point by slot
    for point, report in zip(x, reports, strict=True):
        stored.pop(report["removed"], None)
        distances = [np.abs(point - other).max() for other in stored.values()]
        if min(distances, default=np.inf) <= 1e-8:
            n_duplicates += 1
        stored[report["slot"]] = point
    return n_duplicates


PROPORTIONAL_POINTS = [[1.0, 2.0], [10.0, 20.0], [-1.0, -2.0]]


@pytest.mark.parametrize(
    ("kernel", "inputs"),
    [
        (SquaredExponential(1.0, [0.8]), [[0.0], [0.001], [0.5]]),
        (Linear(1e-12, [1.0, 1.0]), PROPORTIONAL_POINTS),
        (Sum([Linear(0.1, [1.0, 1.0]), Matern52(1e-12, [1.0, 1.0])]), PROPORTIONAL_POINTS),
    ],
    ids=["close", "linear", "almost linear"],
)
def test_close_and_proportional_points_are_no_duplicates_but_equal_ones_are(kernel, inputs):
    one_by_one = OnlineGP(kernel, noise_variance=0.1, budget=6)
    at_once = OnlineGP(kernel, noise_variance=0.1, budget=6)
    one_by_one.update_many(inputs, np.zeros(3))
    at_once.fit(inputs, np.zeros(3))
    assert one_by_one.repairs["near_duplicates"] == 0
    assert at_once.repairs["near_duplicates"] == 0
    one_by_one.update(inputs[1], 1.0)
    inputs_with_duplicate = [*inputs, inputs[1]]
    at_once.fit(inputs_with_duplicate, np.zeros(4))
    assert one_by_one.repairs["near_duplicates"] == 1
    assert at_once.repairs["near_duplicates"] == 1


# --- drift ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged_factor", ["factor", "cholesky"])
@pytest.mark.parametrize("damage", [1.01, np.nan, np.inf])
def test_drift_is_repaired_at_the_next_probe(damaged_factor, damage):
    """One call repairs and goes on: no sample is lost or learned twice.

    The sample after the probe is predicted by the repaired model.
    """
    x, y = naive.random_stream(220, 2, seed=22)
    gp = naive.online_gp(2, budget=20, reduction=naive.Oldest())
    gp.update_many(x[:95], y[:95])
    assert gp.drift() < 1e-10
    factor = getattr(gp._state, damaged_factor)
    factor[15, 15] *= damage
    assert gp.drift() > 1e-4
    before_probe = gp.copy()
    with np.errstate(invalid="ignore"):
        before_probe.update_many(x[95:99], y[95:99])
        reports = gp.update_many(x[95:], y[95:])  # the 100th entry is a probe
    assert before_probe.repairs["refactorisations"] == 0
    assert gp.repairs["refactorisations"] == 1
    assert gp.drift() < 1e-10
    assert reports["accepted"].all()
    np.testing.assert_array_equal(np.sort(gp.targets), np.sort(y[-20:]))
    exact = naive.NaiveGP(gp.kernel, gp.noise_variance, x[80:100], y[80:100])
    mean, variance = exact.predict_one(x[100])
    report_after_probe = reports[100 - 95]
    assert report_after_probe["mean"] == pytest.approx(mean, abs=1e-9)
    assert report_after_probe["variance"] == pytest.approx(variance, abs=1e-9)
    assert_equals_scratch(gp)


def test_negative_variances_are_clipped_and_counted():
    """The factor is made too large by hand: no sound factor with negative variances is known."""
    x, y = naive.random_stream(6, 2, seed=24)
    gp = naive.online_gp(2).fit(x, y)
    assert gp.repairs["clipped_variances"] == 0
    gp._state.pivots[:] *= 1.5
    gp._state.cholesky[range(6), range(6)] /= 1.5
    _, variance = gp.predict(x)
    np.testing.assert_array_equal(variance, 0.0)
    assert gp.repairs["clipped_variances"] == 6
    assert gp.update(x[0], y[0]).variance == 0.0
    assert gp.repairs["clipped_variances"] > 6


@pytest.mark.parametrize("method", ["update_many", "fit"])
@pytest.mark.parametrize(
    "kernel",
    [Linear(0.4, [0.6] * 3), Sum([naive.LINEAR, naive.SE])],
    ids=["linear", "sum"],
)
def test_samples_whose_prior_variance_is_too_large_for_the_noise_are_refused(kernel, method):
    """Rounding would make variances negative there, and predictions nan.

    The noise variance just suffices for the samples at 1e4 times the inputs.
    """
    x, y = naive.random_stream(60, 3, seed=1)
    noise = 1.001e-13 * kernel.diagonal(1e4 * x).max()
    gp = OnlineGP(kernel, noise_variance=noise, budget=10).fit(x[:5], y[:5])
    before = gp.state()
    farthest = np.argmax(kernel.diagonal(x))
    near_and_too_far = np.vstack([x[:1], 2e4 * x[farthest]])
    message = "noise_variance must be at least 1e-13 of the prior variance"
    with pytest.raises(ValueError, match=message):
        getattr(gp, method)(near_and_too_far, y[:2])
    np.testing.assert_equal(gp.state(), before)
    reports = gp.update_many(1e4 * x, y)
    assert np.isfinite(reports["mean"]).all()
    assert gp.repairs["refactorisations"] == 0
    assert gp.repairs["clipped_variances"] == 0


def test_rounding_far_from_the_origin_is_no_drift():
    """The tolerated drift is relative to the prior variance, which is much larger there.

    A restored GP and one with other hyper-parameters take the tolerance over.
    """
    kernel = Sum([naive.LINEAR, naive.SE])
    near = OnlineGP(kernel, noise_variance=1e-2, budget=6)
    far = OnlineGP(kernel, noise_variance=1e-2, budget=6)
    x = np.random.default_rng(4).uniform(-1, 1, size=(120, 3))
    y = np.random.default_rng(5).normal(size=120)
    near.update_many(x, y)
    far.update_many(1e4 * x, 1e4 * y)
    assert near.repairs["refactorisations"] == 0
    assert far.repairs["refactorisations"] == 0
    assert far.drift() > near._rules.tolerance / 100
    far.fit(1e4 * x[:6], y[:6])
    assert far._rules.tolerance > 1e5 * near._rules.tolerance
    state = far.state()
    near.restore(state, state["counts"])
    other = far.with_hyperparameters(far.kernel, 1e-2)
    assert near._rules.tolerance == far._rules.tolerance
    assert other._rules.tolerance == far._rules.tolerance


# --- compiled and plain ---------------------------------------------------------------------------


def test_compiled_equals_plain(tmp_path):
    """A second process uses the compiler if this one does not, and the reverse."""
    path = tmp_path / "other.npz"
    disables_compiler = "0" if config.DISABLE_JIT else "1"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": disables_compiler}
    command = [sys.executable, str(Path(fixed_streams.__file__)), str(path)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    arrays = fixed_streams.run_fixed_streams()
    with np.load(path) as loaded:
        arrays_of_other = dict(loaded)
    assert arrays.keys() == arrays_of_other.keys()
    assert arrays.pop("compiled") != arrays_of_other["compiled"]
    n_replaced = 0
    for name, array in arrays.items():
        other = arrays_of_other[name]
        assert array.dtype == other.dtype, name
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, other, rtol=1e-10, atol=1e-10, err_msg=name)
        else:
            np.testing.assert_array_equal(array, other, err_msg=name)
        if name.endswith("-removed"):
            n_replaced += np.count_nonzero(array >= 0)
    assert n_replaced > 200


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_the_loop_over_samples_is_compiled_once_for_all_settings():
    """It is not compiled again for arrays that cannot be written."""
    kernel = SquaredExponential(1.0, [1.0])
    settings_of_gps = [
        {},
        {"learning": "every_sample", "gate": 3.0},
        {"forgetting": 50, "insertion": ErrorExceeds(1)},
    ]
    for gp_settings in settings_of_gps:
        gp = OnlineGP(kernel, noise_variance=0.1, budget=3, **gp_settings)
        gp.update([0.0], 0.0)
    gp = OnlineGP(kernel, noise_variance=0.1, budget=3)
    x = np.ones((1, 1))
    y = np.zeros(1)
    x.flags.writeable = False  # like many arrays of other libraries
    y.flags.writeable = False
    gp.update_many(x, y)
    gp.update(x[0], y[0])
    gp.predict(x)
    assert len(dictionary.learn.signatures) == 1
    assert len(dictionary.predict.signatures) == 1


# --- prediction -----------------------------------------------------------------------------------


each_learning = pytest.mark.parametrize("learning", ["stored", "every_sample"])
each_number_learned = pytest.mark.parametrize("n_learned", [0, 3, 9])


@functools.cache
def predict_more_than_a_block(n_learned, learning):
    """Learn samples and predict more points than a block holds.

    Return the GP, the points and the predictions (2, number of points): mean and variance.
    """
    x = np.random.default_rng(n_learned).normal(size=(PREDICTION_BLOCK_ROWS + 20, 2))
    kernel = SquaredExponential(2.0, [0.7, 1.1])
    gp = OnlineGP(kernel, noise_variance=1e-3, budget=9, learning=learning)
    gp.update_many(x[:n_learned], np.sin(x[:n_learned, 0]))
    return gp, x, np.array(gp.predict(x))


@each_learning
@each_number_learned
def test_many_points_are_predicted_as_one_by_one(n_learned, learning):
    gp, x, at_once = predict_more_than_a_block(n_learned, learning)
    one_by_one = np.concatenate([gp.predict(point[None]) for point in x], axis=1)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("n_points", [2, 3, PREDICTION_BLOCK_ROWS, PREDICTION_BLOCK_ROWS + 1])
@each_learning
@each_number_learned
def test_a_prediction_does_not_depend_on_the_points_that_follow(n_learned, learning, n_points):
    gp, x, at_once = predict_more_than_a_block(n_learned, learning)
    np.testing.assert_array_equal(gp.predict(x[:n_points]), at_once[:, :n_points])


def test_an_empty_gp_predicts_the_prior():
    gp = naive.online_gp(2, variance=2.5).fit(np.zeros((0, 2)), [])
    mean, variance = gp.predict(np.zeros((3, 2)))
    np.testing.assert_array_equal(mean, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(variance, [2.5, 2.5, 2.5])
    assert len(gp.update_many(np.zeros((0, 2)), [])) == 0
    assert gp.n_points == 0
    assert gp.leave_one_out().residual.size == 0
    assert gp.drift() == 0.0


# --- bad input ------------------------------------------------------------------------------------

GOOD_POINT = [0.1, 0.2]


@pytest.mark.parametrize(
    "x", [GOOD_POINT, [[1.0]], [[np.nan, 0.0]]], ids=["vector", "one feature", "nan"]
)
def test_bad_inputs_of_a_prediction_are_refused(x):
    with pytest.raises(ValueError, match="inputs"):
        naive.online_gp(2).predict(x)


BAD_POINTS = {
    "nan": [np.nan, 0.0],
    "infinite": [0.0, -np.inf],
    "one feature": [0.0],
    "matrix": [GOOD_POINT],
    "text": ["0.1", "0.2"],
    "complex": np.array([0.1 + 1j, 0.2]),
}
BAD_TARGETS = {
    "nan": np.nan,
    "infinite": np.inf,
    "list": [1.0],
    "two": [1.0, 2.0],
    "none": None,
    "text": "1.0",
    "complex": np.complex128(1j),
}


def bad_samples():
    """Return point, target and message of every bad sample as parameters."""
    samples = []
    for name, point in BAD_POINTS.items():
        samples.append(pytest.param(point, 1.0, "(x|inputs): ", id=f"x {name}"))
    for name, target in BAD_TARGETS.items():
        samples.append(pytest.param(GOOD_POINT, target, "(y|targets): ", id=f"y {name}"))
    return samples


@pytest.fixture
def unchanged_gp():
    """Yield a GP of two features and assert afterwards that it has learned nothing."""
    gp = naive.online_gp(2, acceptance=ExceedsMinimum(MarginalLogLikelihood()))
    x, y = naive.random_stream(20, 2, seed=20)
    gp.update_many(x, y)
    before = gp.state()
    yield gp
    assert_same_bits(gp.state(), before)


@pytest.mark.parametrize(("x", "y", "message"), bad_samples())
def test_a_bad_sample_is_refused_and_nothing_is_learned(x, y, message, unchanged_gp):
    with pytest.raises((TypeError, ValueError), match=message):
        unchanged_gp.update(x, y)


@pytest.mark.parametrize("method", ["update_many", "fit", "candidate_scores"])
@pytest.mark.parametrize(("x", "y", "message"), bad_samples())
def test_a_bad_sample_of_a_block_is_refused_and_nothing_is_learned(
    x, y, message, method, unchanged_gp
):
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(unchanged_gp, method)([x], [y])


@pytest.mark.parametrize("method", ["update_many", "fit", "candidate_scores"])
def test_blocks_of_a_wrong_shape_are_refused(method, unchanged_gp):
    with pytest.raises(ValueError, match="inputs: "):
        getattr(unchanged_gp, method)(GOOD_POINT, [1.0])
    with pytest.raises(ValueError, match="targets: "):
        getattr(unchanged_gp, method)([GOOD_POINT], [1.0, 2.0])


@pytest.mark.parametrize("n_points", [0, 7, 2.5])
def test_a_reduction_to_an_impossible_number_of_points_is_refused(n_points, unchanged_gp):
    with pytest.raises(ValueError, match="reduce_to"):
        unchanged_gp.reduce_to(n_points)


#: The prior variance at features of one is 3. The noise variance is the smallest that is allowed.
GOOD_OPTIONS = {"kernel": Linear(1.0, [1.0, 1.0]), "noise_variance": 3e-8, "budget": 6}
BAD_OPTIONS = {
    "budget": [1, -3, 2.5, True, "ten", None, np.nan, np.timedelta64(9, "s")],
    "noise_variance": [-1.0, 0.0, np.nan, np.inf, 2.9e-8, "low", None],
    "kernel": [np.exp],
    "insertion": [Always, 0.1, PriorEntropy()],
    "acceptance": [PriorEntropy(), True],
    "reduction": [PriorEntropy, "prior_entropy", ExceedsMinimum(PriorEntropy())],
}


def bad_options():
    """Return every option with each of its bad values."""
    pairs = []
    for option, values in BAD_OPTIONS.items():
        for value in values:
            pairs.append((option, value))
    return pairs


@pytest.mark.parametrize(("option", "value"), bad_options(), ids=str)
def test_bad_options_are_refused(option, value):
    with pytest.raises((TypeError, ValueError), match=f"OnlineGP: {option} must be"):
        OnlineGP(**GOOD_OPTIONS | {option: value})


@pytest.mark.parametrize("option", BAD_OPTIONS)
def test_options_are_read_only(option):
    gp = OnlineGP(**GOOD_OPTIONS)
    with pytest.raises(AttributeError, match=f"{option} is fixed.*with_hyperparameters"):
        setattr(gp, option, getattr(gp, option))


def test_default_rules_store_every_sample_and_remove_by_marginal_likelihood():
    gp = OnlineGP(**GOOD_OPTIONS)
    assert gp.insertion == Always()
    assert gp.acceptance == AcceptAll()
    assert gp.reduction == MarginalLogLikelihood()


@pytest.mark.parametrize("bound", [1, 1.0], ids=["integer", "float"])
def test_parameters_of_a_users_rule_may_be_integers(bound):
    x = np.random.default_rng(0).normal(size=(60, 1))
    y = 2 * x[:, 0]
    kernel = SquaredExponential(1.0, [1.0])
    gp = OnlineGP(kernel, noise_variance=0.1, budget=3, insertion=ErrorExceeds(bound))
    reports = gp.update_many(x, y)
    error = y - reports["mean"]
    np.testing.assert_array_equal(reports["inserted"], abs(error) > 1)
    assert 0 < reports["inserted"].sum() < 60


@pytest.mark.parametrize("budget", [20_001, 10**9, 2**62, 10**30])
def test_a_budget_that_no_memory_holds_is_refused(budget):
    with pytest.raises(ValueError, match=r"budget must be .*at most 20000, got"):
        OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=budget)


def test_a_lack_of_memory_is_explained(monkeypatch):
    def fail(*arguments):
        raise MemoryError("Unable to allocate 3 GiB")

    monkeypatch.setattr(OnlineGP, "_new_state", fail)
    with pytest.raises(ValueError, match=r"budget=9000 needs more memory.*3 GiB.*fewer points"):
        OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=9000)
