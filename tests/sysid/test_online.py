"""OnlineGP: algorithm 1 from scratch, consistency, causality, repair, compiled code, errors."""

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
DECISIONS = ("inserted", "accepted", "slot", "removed", "n_points")
FLOATS = ("mean", "variance", "acceptance_score", "acceptance_minimum")


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
    residual, latent = np.array([exact.left_out(i) for i in range(gp.n_points)]).T
    noisy = latent + gp.noise_variance
    np.testing.assert_allclose(left_out.residual, residual, rtol=1e-6, atol=tolerance)
    np.testing.assert_allclose(left_out.variance, noisy, rtol=1e-6, atol=tolerance)


# --- algorithm 1 ----------------------------------------------------------------------------------

N_ACCEPTANCES = len(naive.matched_and_crossed(naive.CRITERIA[0]))


def default_rule(criterion, case):
    """Return the insertion rule that the default run combines with a criterion and acceptance.

    Every pair of criterion, acceptance and insertion rule occurs. The other combinations are slow.
    """
    number = naive.CRITERIA.index(criterion) + case
    return naive.INSERTIONS[number % len(naive.INSERTIONS)]


def combinations_of_rules():
    """Return every criterion, number of an acceptance rule and insertion rule as parameters."""
    combinations = []
    for criterion in naive.CRITERIA:
        for case in range(N_ACCEPTANCES):
            for rule in naive.INSERTIONS:
                is_default = rule is default_rule(criterion, case)
                marks = [] if is_default else [pytest.mark.slow]
                name = f"{naive.criterion_name(criterion)}-{case}-{rule.__name__}"
                combinations.append(pytest.param(criterion, case, rule, id=name, marks=marks))
    return combinations


@functools.cache
def learn_both_ways(criterion, case, rule):
    """Learn a stream by an OnlineGP and by algorithm 1 from scratch.

    Return the reports of the OnlineGP, those of algorithm 1, and the slots of both by age.
    """
    n_features = 1 + case % 2
    x, y = naive.random_stream(70, n_features, seed=case)
    gp = naive.online_gp(
        n_features,
        variance=1.3,
        noise_variance=0.02,
        budget=4 + case % 3,
        insertion=naive.insertion_rule(rule, 0.03, 0.15),
        acceptance=naive.matched_and_crossed(criterion)[case],
        reduction=criterion,
    )
    exact = naive.NaiveOnlineGP(gp)
    reports = gp.update_many(x, y)
    exact_reports = [exact.update(*sample) for sample in zip(x, y, strict=True)]
    exact_slots = [slot for slot, _, _ in exact.points]
    return reports, exact_reports, gp.age_order, exact_slots


@pytest.mark.parametrize(("criterion", "case", "rule"), combinations_of_rules())
def test_stream_equals_algorithm_1_from_scratch(criterion, case, rule):
    reports, exact_reports, slots, exact_slots = learn_both_ways(criterion, case, rule)
    for name in DECISIONS:
        expected = [report[name] for report in exact_reports]
        np.testing.assert_array_equal(reports[name], expected, name)
    for name in FLOATS:
        expected = [report[name] for report in exact_reports]
        np.testing.assert_allclose(reports[name], expected, rtol=1e-7, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(slots, exact_slots)


@each_criterion
def test_the_streams_of_algorithm_1_contain_every_decision(criterion):
    n_replaced = 0
    n_rejected = 0
    n_dropped = 0
    for case in range(N_ACCEPTANCES):
        reports, _, _, _ = learn_both_ways(criterion, case, default_rule(criterion, case))
        n_replaced += np.count_nonzero(reports["removed"] >= 0)
        n_rejected += np.count_nonzero(reports["inserted"] & ~reports["accepted"])
        n_dropped += np.count_nonzero(~reports["inserted"])
    assert n_replaced > 20
    assert n_rejected > 3
    assert n_dropped > 0


@each_criterion
def test_candidate_scores_are_those_of_the_set_with_each_candidate_and_change_nothing(
    criterion,
):
    x, y = naive.random_stream(40, 2, seed=5)
    gp = naive.online_gp(2, noise_variance=0.02)
    gp.update_many(x[:30], y[:30])
    assert not np.array_equal(gp.age_order, np.arange(6))
    before = gp.state()
    stored = naive.scratch(gp)
    expected = []
    for candidate in zip(x[30:], y[30:], strict=True):
        with_candidate = stored.plus(*candidate)
        expected.append(naive.reduction_scores(criterion, with_candidate, 6))
    scores = gp.candidate_scores(x[30:], y[30:], criterion)
    # a constant that all points of a set share has no effect, so it is left out
    shared = (scores - np.array(expected))[:, :1]
    np.testing.assert_allclose(scores, expected + shared, rtol=1e-7, atol=1e-9)
    assert_same_bits(gp.state(), before)


def test_an_empty_gp_has_no_candidate_scores():
    x, y = naive.random_stream(1, 2, seed=5)
    assert naive.online_gp(2).candidate_scores(x, y).shape == (1, 0)


def test_a_candidate_must_exceed_the_minimum_and_not_just_reach_it():
    x, y = naive.random_stream(12, 2, seed=5)
    gp = naive.online_gp(2, acceptance=ExceedsMinimum(naive.Oldest()))
    reports = gp.update_many(x, y)
    np.testing.assert_array_equal(reports["accepted"], np.arange(12) < 6)
    np.testing.assert_array_equal(
        reports["acceptance_score"][6:], reports["acceptance_minimum"][6:]
    )


# --- consistency ----------------------------------------------------------------------------------


@each_criterion
@given(
    seed=seeds,
    log_noise=st.floats(-4, 0),
    kernel=st.sampled_from([None, *naive.FAMILY.values()]),
)
@settings(deadline=None, derandomize=True, max_examples=12)
def test_any_sequence_of_changes_equals_a_gp_of_the_final_points(
    criterion, seed, log_noise, kernel
):
    rng = np.random.default_rng(seed)
    n_features = 3 if kernel else int(rng.integers(1, 4))
    budget = int(rng.integers(2, 9))
    kernel = kernel or SquaredExponential(1.0, [0.8] * n_features)
    gp = OnlineGP(
        kernel,
        noise_variance=5 * 10**log_noise,
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
def test_fit_and_reduce_to_are_backward_elimination_and_the_dictionary_can_grow_again(
    criterion,
):
    x, y = naive.random_stream(20, 2, seed=9)
    gp = naive.online_gp(2, budget=10, reduction=criterion)
    gp.update_many(x, y)
    assert gp.fit(x[:14], y[:14]) is gp
    all_points = naive.NaiveGP(gp.kernel, 1e-2, x[:14], y[:14])
    for n_points in (10, 4):
        gp.reduce_to(n_points)
        kept = naive.backward_elimination(criterion, all_points, n_points)
        np.testing.assert_array_equal(gp.inputs[gp.age_order], x[kept])
        np.testing.assert_array_equal(gp.targets[gp.age_order], y[kept])
    reports = gp.update_many(x[10:], y[10:])
    np.testing.assert_array_equal(reports["n_points"], [5, 6, 7, 8, 9, 10, 10, 10, 10, 10])
    np.testing.assert_array_equal(reports["slot"][:6], np.arange(4, 10))
    assert_equals_scratch(gp)


LAYOUTS = {
    "column by column, integer targets": lambda x, y: (np.asfortranarray(x), y.astype(int)),
    "every second column, single precision targets": lambda x, y: (
        np.repeat(x, 2, axis=1)[:, ::2],
        y.astype(np.float32),
    ),
    "single precision, every second target": lambda x, y: (
        x.astype(np.float32),
        np.repeat(y, 2)[::2],
    ),
    "lists": lambda x, y: (x.tolist(), y.tolist()),
}


@pytest.mark.parametrize("convert", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_and_type_of_the_arrays_do_not_matter(convert):
    x, y = naive.random_stream(30, 3, seed=13)
    x = x.astype(np.float32).astype(float)  # numbers that single precision can hold
    y = np.round(4 * y)
    points, targets = convert(x, y)
    expected = naive.online_gp(3).update_many(x, y)
    reports = naive.online_gp(3).update_many(points, targets)
    first_report = naive.online_gp(3).update(points[0], targets[0])
    assert_same_bits(arrays_of(reports), arrays_of(expected))
    assert repr(tuple(first_report)) == repr(expected[0].item())


def test_what_goes_in_and_what_comes_out_are_copies():
    x, y = naive.random_stream(4, 2, seed=14)
    original = x.copy()
    point = np.array([0.1, 0.2])
    gp = naive.online_gp(2)
    gp.update_many(x, y)
    gp.update(point, 1.0)
    state = gp.state()
    for array in (x, y, point, gp.inputs, gp.targets, gp.age_order, *state.values()):
        array[:] = 7
    np.testing.assert_array_equal(gp.inputs, np.vstack([original, [0.1, 0.2]]))
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
    "copied": lambda gp: gp.copy(),
}


@pytest.mark.parametrize("make_copy", WAYS_TO_COPY.values(), ids=WAYS_TO_COPY)
def test_a_copy_continues_alone_and_bit_for_bit(make_copy):
    x, y = naive.random_stream(60, 2, seed=15)
    gp = naive.online_gp(2, acceptance=ExceedsMinimum(MeanRelevance()), reduction=MeanRelevance())
    gp.fit(x[:12], y[:12])
    gp.update_many(x[12:35], y[12:35])
    state = gp.state()
    other = make_copy(gp)
    reports_of_copy = other.update_many(x[35:], y[35:])
    assert_same_bits(gp.state(), state)
    reports = gp.update_many(x[35:], y[35:])
    assert_same_bits(arrays_of(reports_of_copy), arrays_of(reports))
    assert_same_bits(other.state(), gp.state())
    assert other.repairs == gp.repairs


def test_sample_numbers_name_the_samples_that_are_stored():
    x, y = naive.random_stream(60, 2, seed=15)
    gp = naive.online_gp(2, acceptance=ExceedsMinimum(MeanRelevance()), reduction=MeanRelevance())
    gp.fit(x[:12], y[:12])
    gp.update_many(x[12:], y[12:])
    gp.reduce_to(4)
    for other in (gp, gp.copy(), gp.with_hyperparameters(gp.kernel, 0.3)):
        np.testing.assert_array_equal(other.inputs, x[other.sample_numbers])
        np.testing.assert_array_equal(other.targets, y[other.sample_numbers])


def state_of_six_points():
    """Return the state of a GP of two features that stores six points."""
    return naive.online_gp(2).fit(*naive.random_stream(6, 2, seed=16)).state()


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
    gp = naive.online_gp(n_features, budget=budget)
    with pytest.raises(ValueError, match=message):
        gp.restore(state | change(state), state["counts"])


def test_restore_refuses_a_state_without_a_factor():
    state = state_of_six_points()
    del state["factor"]
    with pytest.raises(KeyError, match="factor"):
        naive.online_gp(2).restore(state, state["counts"])


@pytest.mark.parametrize("cut", [1, 5, 6, 7, 30, 59])
@each_criterion
def test_later_samples_never_change_earlier_reports(criterion, cut):
    x, y = naive.random_stream(60, 2, seed=17)
    roles = {"reduction": criterion, "acceptance": ExceedsMinimum(criterion)}
    changed_targets = np.where(np.arange(60) < cut, y, y + 5.0)
    reports = naive.online_gp(2, **roles).update_many(x, y)
    changed = naive.online_gp(2, **roles).update_many(x, changed_targets)
    for name in UpdateReport._fields:
        assert changed[name][:cut].tobytes() == reports[name][:cut].tobytes()
    for name in ("mean", "variance"):  # predicted before its own target was seen
        assert changed[name][cut] == reports[name][cut]


@each_criterion
def test_other_hyperparameters_keep_points_ages_rules_and_counts(criterion):
    x, y = naive.random_stream(60, 2, seed=4)
    roles = {
        "insertion": ErrorThreshold(0.01),
        "acceptance": ExceedsMinimum(criterion),
        "reduction": criterion,
    }
    gp = naive.online_gp(2, budget=12, **roles)
    gp.update_many(x, y)
    gp.n_refactorisations = 3
    gp.n_renewals = 4
    gp.n_clipped_predictions = 5
    before = gp.state()
    kernel = SquaredExponential(2.0, [1.1, 1.1])
    other = gp.with_hyperparameters(kernel, 0.05)
    expected_settings = roles | {"kernel": kernel, "noise_variance": 0.05, "budget": 12}
    assert {name: getattr(other, name) for name in expected_settings} == expected_settings
    for name in ("inputs", "targets", "order"):
        np.testing.assert_array_equal(other.state()[name], before[name])
    assert other.counts() | {"minimum_is_stale": 0} == gp.counts() | {"minimum_is_stale": 0}
    assert_equals_scratch(other)
    other.update_many(*naive.random_stream(40, 2, seed=5))
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
    x = distinct[rng.integers(0, 4, size=80)] + tiny_shift
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
    """Return how many samples entered where a point was stored already."""
    n_duplicates = 0
    stored = {}  # point by slot
    for point, report in zip(x, reports, strict=True):
        stored.pop(report["removed"], None)
        distances = [np.abs(point - other).max() for other in stored.values()]
        n_duplicates += any(distance <= 1e-8 for distance in distances)
        stored[report["slot"]] = point
    return n_duplicates


PROPORTIONAL = [[1.0, 2.0], [10.0, 20.0], [-1.0, -2.0]]


@pytest.mark.parametrize(
    ("kernel", "inputs"),
    [
        (SquaredExponential(1.0, [0.8]), [[0.0], [0.001], [0.5]]),
        (Linear(1e-12, [1.0, 1.0]), PROPORTIONAL),
        (Sum([Linear(0.1, [1.0, 1.0]), Matern52(1e-12, [1.0, 1.0])]), PROPORTIONAL),
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
    at_once.fit([*inputs, inputs[1]], np.zeros(4))
    assert one_by_one.repairs["near_duplicates"] == 1
    assert at_once.repairs["near_duplicates"] == 1


# --- drift ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged_factor", ["factor", "cholesky"])
@pytest.mark.parametrize("damage", [1.01, np.nan, np.inf])
def test_drift_is_repaired_at_the_next_probe_and_the_next_sample_is_predicted_by_the_repaired_model(
    damaged_factor, damage
):
    """All in one call: the record continues, and no sample is lost or learned twice."""
    x, y = naive.random_stream(220, 2, seed=22)
    gp = naive.online_gp(2, budget=20, reduction=naive.Oldest())
    gp.update_many(x[:95], y[:95])
    assert gp.drift() < 1e-10
    getattr(gp._state, damaged_factor)[15, 15] *= damage
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
    exact = naive.NaiveGP(gp.kernel, 1e-2, x[80:100], y[80:100])
    mean, variance = exact.predict_one(x[100])
    assert reports["mean"][5] == pytest.approx(mean, abs=1e-9)
    assert reports["variance"][5] == pytest.approx(variance, abs=1e-9)
    assert_equals_scratch(gp)


def test_negative_variances_are_clipped_and_counted():
    """A factor that is too large makes them; no sound factor is known to."""
    x, y = naive.random_stream(6, 2, seed=24)
    gp = naive.online_gp(2).fit(x, y)
    assert gp.repairs["clipped_variances"] == 0
    gp._state.pivots[:] *= 1.5
    gp._state.cholesky[range(6), range(6)] /= 1.5
    np.testing.assert_array_equal(gp.predict(x)[1], 0.0)
    assert gp.repairs["clipped_variances"] == 6
    assert gp.update(x[0], y[0]).variance == 0.0
    assert gp.repairs["clipped_variances"] > 6


@pytest.mark.parametrize("method", ["update_many", "fit"])
@pytest.mark.parametrize(
    "kernel",
    [Linear(0.4, [0.6] * 3), Sum([naive.LINEAR, naive.SE])],
    ids=["linear", "sum"],
)
def test_samples_at_which_the_noise_is_lost_beside_the_prior_variance_are_refused(kernel, method):
    """Rounding would make variances negative there, and predictions nan."""
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
    """The limit of the drift is relative to the prior variance, a million times larger there."""
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
    near.restore(far.state(), far.state()["counts"])
    other = far.with_hyperparameters(far.kernel, 1e-2)
    assert near._rules.tolerance == far._rules.tolerance
    assert other._rules.tolerance == far._rules.tolerance


# --- compiled and plain ---------------------------------------------------------------------------


def test_compiled_equals_plain(tmp_path):
    """A second process runs with the compiler if this one runs without it, and the reverse."""
    path = tmp_path / "other.npz"
    other_mode = "0" if config.DISABLE_JIT else "1"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": other_mode}
    command = [sys.executable, str(Path(fixed_streams.__file__)), str(path)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    arrays = fixed_streams.run_fixed_streams()
    with np.load(path) as loaded:
        others = dict(loaded)
    assert arrays.keys() == others.keys()
    assert arrays.pop("compiled") != others["compiled"]
    n_replaced = 0
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype, name
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, others[name], rtol=1e-10, atol=1e-10, err_msg=name)
        else:
            np.testing.assert_array_equal(array, others[name], err_msg=name)
        if name.endswith("-removed"):
            n_replaced += np.count_nonzero(array >= 0)
    assert n_replaced > 200


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_all_settings_have_one_compiled_loop():
    kernel = SquaredExponential(1.0, [1.0])
    for options in (
        {},
        {"learning": "every_sample", "gate": 3.0},
        {"forgetting": 50, "insertion": Larger(1)},
    ):
        gp = OnlineGP(kernel, noise_variance=0.1, budget=3, **options)
        gp.update([0.0], 0.0)
    gp = OnlineGP(kernel, noise_variance=0.1, budget=3)
    x = np.eye(1)
    y = np.zeros(1)
    x.flags.writeable = False  # as arrays of other libraries are
    y.flags.writeable = False
    gp.update_many(x, y)
    gp.update(x[0], y[0])
    gp.predict(x)
    assert len(dictionary.learn.signatures) == 1
    assert len(dictionary.predict.signatures) == 1


# --- prediction -----------------------------------------------------------------------------------


@pytest.mark.parametrize("learning", ["stored", "every_sample"])
@pytest.mark.parametrize("n_learned", [0, 3, 9])
def test_many_points_are_predicted_as_one_by_one(n_learned, learning):
    x = np.random.default_rng(n_learned).normal(size=(PREDICTION_BLOCK_ROWS + 20, 2))
    kernel = SquaredExponential(2.0, [0.7, 1.1])
    gp = OnlineGP(kernel, noise_variance=1e-3, budget=9, learning=learning)
    gp.update_many(x[:n_learned], np.sin(x[:n_learned, 0]))
    at_once = np.array(gp.predict(x))
    one_by_one = np.concatenate([gp.predict(point[None]) for point in x], axis=1)
    np.testing.assert_allclose(at_once, one_by_one, 1e-11, 1e-14)
    for length in (2, 3, PREDICTION_BLOCK_ROWS, PREDICTION_BLOCK_ROWS + 1):
        np.testing.assert_array_equal(gp.predict(x[:length]), at_once[:, :length])


def test_an_empty_gp_predicts_the_prior():
    gp = naive.online_gp(2, variance=2.5).fit(np.zeros((0, 2)), [])
    np.testing.assert_array_equal(gp.predict(np.zeros((3, 2))), [[0.0] * 3, [2.5] * 3])
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
BAD_SAMPLES = [
    *(pytest.param(bad, 1.0, "(x|inputs): ", id=f"x {name}") for name, bad in BAD_POINTS.items()),
    *(
        pytest.param(GOOD_POINT, bad, "(y|targets): ", id=f"y {name}")
        for name, bad in BAD_TARGETS.items()
    ),
]


@pytest.fixture
def unchanged_gp():
    """Yield a GP of two features and assert afterwards that it has learned nothing."""
    gp = naive.online_gp(2, acceptance=ExceedsMinimum(MarginalLogLikelihood()))
    gp.update_many(*naive.random_stream(20, 2, seed=20))
    before = gp.state()
    yield gp
    assert_same_bits(gp.state(), before)


@pytest.mark.parametrize(("x", "y", "message"), BAD_SAMPLES)
def test_a_bad_sample_is_refused_and_nothing_is_learned(x, y, message, unchanged_gp):
    with pytest.raises((TypeError, ValueError), match=message):
        unchanged_gp.update(x, y)


@pytest.mark.parametrize("method", ["update_many", "fit", "candidate_scores"])
@pytest.mark.parametrize(("x", "y", "message"), BAD_SAMPLES)
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


#: The noise variance is close to the least one, relative to the prior variance at features of one.
GOOD_OPTIONS = {"kernel": Linear(1.0, [1.0, 1.0]), "noise_variance": 3e-8, "budget": 6}
BAD_OPTIONS = {
    "budget": [1, -3, 2.5, True, "ten", None, np.nan],
    "noise_variance": [-1.0, 0.0, np.nan, np.inf, 2.9e-8],
    "kernel": [np.exp],
    "insertion": [Always, 0.1, PriorEntropy()],
    "acceptance": [PriorEntropy(), True],
    "reduction": [PriorEntropy, "prior_entropy", ExceedsMinimum(PriorEntropy())],
}


@pytest.mark.parametrize(
    ("option", "value"),
    [(option, value) for option, values in BAD_OPTIONS.items() for value in values],
    ids=str,
)
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


@dataclass(frozen=True)
class Larger(Insertion):
    """Insert samples whose error exceeds a bound, as a user may write the rule.

    The bound may be an integer.
    """

    bound: float

    def parameters(self):
        return np.array([self.bound])

    @staticmethod
    def formula(error, variance, novelty, parameters):
        return abs(error) > parameters[0]


@pytest.mark.parametrize("bound", [1, 1.0], ids=["integer", "float"])
def test_parameters_of_a_users_rule_may_be_integers(bound):
    x = np.random.default_rng(0).normal(size=(60, 1))
    y = 2 * x[:, 0]
    kernel = SquaredExponential(1.0, [1.0])
    gp = OnlineGP(kernel, noise_variance=0.1, budget=3, insertion=Larger(bound))
    reports = gp.update_many(x, y)
    np.testing.assert_array_equal(reports["inserted"], abs(y - reports["mean"]) > 1)
    assert 0 < reports["inserted"].sum() < 60
