"""OnlineGP: algorithm 1 against a naive implementation, consistency, causality, ties, errors, repair."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import (
    COMPILED,
    CRITERIA,
    INSERTIONS,
    NaiveGP,
    NaiveOnlineGP,
    backward_elimination,
    criterion_name,
    insertion_rule,
    matched_and_crossed,
    online_gp,
    random_stream,
    reduction_scores,
    scratch,
)

from sysid import OnlineGP, SquaredExponential, dictionary
from sysid.acceptance import AcceptAll, ExceedsMinimum
from sysid.criteria import Criterion, LogPredictiveDensity, MarginalLogLikelihood, MeanRelevance, PriorEntropy
from sysid.insertion import Always, EitherThreshold, ErrorThreshold, VarianceThreshold
from sysid.online import UpdateReport
from sysid.reference import Reference

each_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
each_rule = pytest.mark.parametrize("rule", INSERTIONS, ids=lambda rule: rule.__name__)
DECISIONS = ("inserted", "accepted", "slot", "removed", "n_points")
FLOATS = ("mean", "variance", "acceptance_score", "acceptance_minimum")


class Oldest(Criterion):
    """All points are worth the same, so the oldest leaves."""

    reduction = staticmethod(lambda residual, variance, noise_variance: 1.0)
    acceptance = reduction
    published_reference = Reference.leave_one_out


def assert_same_bits(first, second):
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name


def assert_same_reports(first, second):
    for name in UpdateReport._fields:
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name


def assert_equals_scratch(gp, tolerance=1e-9):
    """Predictions and leave-one-out of the dictionary are those of a GP built from its points."""
    points = np.random.default_rng(0).uniform(-2.5, 2.5, size=(20, gp.n_features))
    mean, variance = gp.predict(points)
    naive, fitted = (
        scratch(gp),
        OnlineGP(gp.kernel, noise_variance=gp.noise_variance, budget=max(2, gp.n_points)),
    )
    fitted.fit(gp.inputs, gp.targets)
    for reference in (naive.predict(points), fitted.predict(points)):
        np.testing.assert_allclose(mean, reference[0], rtol=0, atol=tolerance * max(1.0, np.abs(gp.targets).max()))
        np.testing.assert_allclose(variance, reference[1], rtol=0, atol=tolerance * gp.kernel.variance)
    left_out = gp.leave_one_out()
    for ours, other in zip(left_out, fitted.leave_one_out(), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-7, atol=tolerance)
    residual, latent = np.array([naive.left_out(i) for i in range(gp.n_points)]).T
    np.testing.assert_allclose(left_out.residual, residual, rtol=1e-6, atol=tolerance)
    np.testing.assert_allclose(left_out.variance, latent + gp.noise_variance, rtol=1e-6, atol=tolerance)


# --- algorithm 1 ------------------------------------------------------------------------------------


@each_rule
@each_criterion
def test_stream_equals_algorithm_1_from_scratch(criterion, rule):
    replaced, refused = 0, 0
    for case, acceptance in enumerate(matched_and_crossed(criterion)):
        budget, n_features = 4 + case % 3, 1 + case % 2
        x, y = random_stream(70, n_features, seed=case)
        insertion = insertion_rule(rule, 0.03, 0.15)
        naive = NaiveOnlineGP(1.3, [0.8] * n_features, 0.02, budget, insertion, acceptance, criterion)
        roles = {"insertion": insertion, "acceptance": acceptance, "reduction": criterion}
        gp = online_gp(n_features, variance=1.3, noise_variance=0.02, budget=budget, **roles)
        reports = gp.update_many(x, y)
        expected = [naive.update(*sample) for sample in zip(x, y, strict=True)]
        for name in DECISIONS:
            np.testing.assert_array_equal(getattr(reports, name), [row[name] for row in expected], f"{case} {name}")
        for name in FLOATS:
            other = [row[name] for row in expected]
            np.testing.assert_allclose(getattr(reports, name), other, rtol=1e-7, atol=1e-10, err_msg=f"{case} {name}")
        np.testing.assert_array_equal(gp.age_order, [slot for slot, _, _ in naive.points])
        replaced += np.count_nonzero(reports.removed >= 0)
        refused += np.count_nonzero(reports.inserted & ~reports.accepted)
    assert replaced > 20
    assert refused > 3


def test_the_streams_above_exercise_every_branch():
    """Drop by insertion, growth, refusal and replacement all happen; else the comparison is hollow."""
    x, y = random_stream(36, 2, seed=1)
    acceptance = ExceedsMinimum(MarginalLogLikelihood())
    gp = online_gp(
        2, variance=1.3, noise_variance=0.02, budget=5, insertion=ErrorThreshold(0.25), acceptance=acceptance
    )
    reports = gp.update_many(x, y)
    assert (~reports.inserted).any()
    assert (reports.inserted & ~reports.accepted).any()
    assert (reports.removed >= 0).any()
    asked = reports.inserted & ~np.isnan(reports.acceptance_score)
    np.testing.assert_array_equal(
        reports.accepted[asked], (reports.acceptance_score > reports.acceptance_minimum)[asked]
    )


@each_criterion
def test_drop_leaves_the_dictionary_untouched(criterion):
    x, y = random_stream(30, 2, seed=4)
    gp = online_gp(2, reduction=criterion, acceptance=ExceedsMinimum(criterion), insertion=VarianceThreshold(0.05))
    for sample in zip(x, y, strict=True):
        before = gp.state()
        report = gp.update(*sample)
        if not report.accepted:
            before["counts"][dictionary.MINIMUM_IS_STALE] = gp._state.counts[dictionary.MINIMUM_IS_STALE]
            assert_same_bits(gp.state(), before)
            assert (report.slot, report.removed) == (-1, -1)
        else:
            np.testing.assert_array_equal(gp.inputs[report.slot], sample[0])
            assert gp.age_order[-1] == report.slot


@each_criterion
def test_candidate_scores_are_those_of_the_set_with_each_candidate_and_change_nothing(criterion):
    x, y = random_stream(40, 2, seed=5)
    gp = online_gp(2, variance=1.3, noise_variance=0.02, budget=6)
    gp.update_many(x[:30], y[:30])
    assert not np.array_equal(gp.age_order, np.arange(6))
    before, slots = gp.state(), scratch(gp)
    expected = []
    for sample in zip(x[30:], y[30:], strict=True):
        expected.append(reduction_scores(criterion, slots.plus(*sample), 6))
    found = gp.candidate_scores(x[30:], y[30:], criterion)
    assert found.shape == (10, 6)
    shared = (found - expected)[:, :1]  # what all points of a set share is left out
    np.testing.assert_allclose(found, expected + shared, rtol=1e-7, atol=1e-9)
    own = OnlineGP(gp.kernel, noise_variance=0.02, budget=6, reduction=criterion)
    own.restore(before, before["counts"])
    np.testing.assert_array_equal(own.candidate_scores(x[30:], y[30:]), found)
    report = own.update(x[30], y[30])
    assert (found[0].min(), report.removed) == (pytest.approx(report.reduction_score), found[0].argmin())
    assert_same_bits(gp.state(), before)


def test_candidate_scores_check_their_samples_and_take_none():
    gp = online_gp(2, budget=6)
    assert gp.candidate_scores([[0.0, 1.0]], [1.0]).shape == (1, 0)
    gp.update([0.0, 1.0], 2.0)
    assert gp.candidate_scores(np.empty((0, 2)), []).shape == (0, 1)
    with pytest.raises(ValueError, match="targets"):
        gp.candidate_scores([[0.0, 1.0]], [1.0, 2.0])


def test_a_candidate_must_exceed_the_minimum_and_not_just_reach_it():
    x, y = random_stream(12, 2, seed=5)
    reports = online_gp(2, acceptance=ExceedsMinimum(Oldest())).update_many(x, y)
    np.testing.assert_array_equal(reports.accepted, np.arange(12) < 6)
    np.testing.assert_array_equal(reports.acceptance_score[6:], reports.acceptance_minimum[6:])


# --- insertion --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("insertion", "target", "inserted"),
    [  # an empty GP predicts mean 0 and variance 1, both exactly
        (Always(), 0.0, True),
        (VarianceThreshold(1.0), 9.0, False),
        (VarianceThreshold(np.nextafter(1.0, 0.0)), 0.0, True),
        (ErrorThreshold(0.5), 0.5, True),
        (ErrorThreshold(0.5), -0.5, True),
        (ErrorThreshold(np.nextafter(0.5, 1.0)), 0.5, False),
        (ErrorThreshold(0.0), 0.0, True),
        (EitherThreshold(1.0, 0.5), 0.5, True),
        (EitherThreshold(1.0, 0.5), np.nextafter(-0.5, 0.0), False),
        (EitherThreshold(np.nextafter(1.0, 0.0), 0.5), 0.0, True),
    ],
)
def test_variance_must_exceed_and_error_must_reach_its_threshold(insertion, target, inserted):
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=2, insertion=insertion)
    report = gp.update([0.3], target)
    assert (report.mean, report.variance) == (0.0, 1.0)
    assert report.inserted is inserted
    assert gp.n_points == int(inserted)


@pytest.mark.parametrize("value", [-1e-9, -np.inf, np.inf, np.nan, True, False, "0.1", None, [0.1]])
@pytest.mark.parametrize("rule", [rule for rule in INSERTIONS if rule is not Always], ids=lambda rule: rule.__name__)
def test_thresholds_are_checked(rule, value):
    with pytest.raises(ValueError, match=f"{rule.__name__}: .*_threshold must be a number of at least 0.*got") as error:
        insertion_rule(rule, value, value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("swapped", [False, True])
def test_either_threshold_checks_both(swapped):
    values = (0.1, -1.0) if swapped else (-1.0, 0.1)
    with pytest.raises(ValueError, match="error_threshold" if swapped else "variance_threshold"):
        EitherThreshold(*values)


# --- consistency ------------------------------------------------------------------------------------


@each_criterion
@given(seed=st.integers(0, 2**32 - 1), log_noise=st.floats(-4, 0))
@settings(deadline=None, derandomize=True, max_examples=12 if COMPILED else 4)
def test_any_sequence_of_changes_equals_a_gp_of_the_final_points(criterion, seed, log_noise):
    rng = np.random.default_rng(seed)
    n_features, budget = int(rng.integers(1, 4)), int(rng.integers(2, 9))
    roles = {"reduction": criterion, "acceptance": ExceedsMinimum(criterion)}
    gp = online_gp(n_features, noise_variance=10**log_noise, budget=budget, **roles)
    for _ in range(8):
        action = rng.choice(["fit", "update_many", "update", "reduce_to"], p=[0.1, 0.4, 0.3, 0.2])
        x, y = random_stream(int(rng.integers(1, 15)), n_features, seed=rng)
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
def test_fit_with_too_many_points_is_backward_elimination(criterion):
    x, y = random_stream(14, 2, seed=8)
    gp = online_gp(2, budget=5, reduction=criterion).fit(x, y)
    kept = backward_elimination(criterion, NaiveGP(1.0, (0.8, 0.8), 1e-2, x, y), 5)
    np.testing.assert_array_equal(gp.inputs[gp.age_order], x[kept])
    np.testing.assert_array_equal(gp.targets[gp.age_order], y[kept])
    assert_equals_scratch(gp)


@each_criterion
def test_reduce_to_is_backward_elimination_and_the_dictionary_can_grow_again(criterion):
    x, y = random_stream(20, 2, seed=9)
    gp = online_gp(2, budget=10, reduction=criterion).fit(x[:10], y[:10])
    gp.reduce_to(10)
    assert gp.n_points == 10
    gp.reduce_to(4)
    kept = backward_elimination(criterion, NaiveGP(1.0, (0.8, 0.8), 1e-2, x[:10], y[:10]), 4)
    np.testing.assert_array_equal(gp.inputs[gp.age_order], x[kept])
    reports = gp.update_many(x[10:], y[10:])
    np.testing.assert_array_equal(reports.n_points, [5, 6, 7, 8, 9, 10, 10, 10, 10, 10])
    np.testing.assert_array_equal(reports.slot[:6], np.arange(4, 10))
    assert_equals_scratch(gp)


def test_fit_without_points_is_an_empty_gp():
    gp = online_gp(2).fit(np.zeros((0, 2)), [])
    assert gp.n_points == 0
    np.testing.assert_array_equal(gp.predict(np.zeros((1, 2))), [[0.0], [1.0]])


def test_reduce_to_needs_an_integer():
    gp = online_gp(1).fit(*random_stream(5, 1, seed=0))
    with pytest.raises((TypeError, ValueError), match="reduce_to"):
        gp.reduce_to(2.5)


@pytest.mark.parametrize("n_points", [0, -1, 4])
def test_reduce_to_checks_its_number(n_points):
    gp = online_gp(1).fit(*random_stream(3, 1, seed=0))
    with pytest.raises(ValueError, match=f"reduce_to: expected a whole number from 1 to 3.*got {n_points}"):
        gp.reduce_to(n_points)


def test_fit_replaces_what_was_there():
    x, y = random_stream(12, 2, seed=10)
    gp = online_gp(2)
    gp.update_many(x, y)
    gp.fit(x[:3], y[:3])
    assert_same_bits(gp.state(), online_gp(2).fit(x[:3], y[:3]).state())
    assert gp.fit(x, y) is gp


@each_criterion
def test_update_equals_update_many_bit_for_bit(criterion):
    x, y = random_stream(70, 2, seed=12)
    roles = {
        "reduction": criterion,
        "acceptance": ExceedsMinimum(criterion),
        "insertion": VarianceThreshold(1e-3),
    }
    whole, single, mixed = (online_gp(2, **roles) for _ in range(3))
    reports = whole.update_many(x, y)
    assert [repr(single.update(a, b)) for a, b in zip(x, y, strict=True)] == [repr(report) for report in reports]
    assert_same_bits(single.state(), whole.state())
    rng, done, parts = np.random.default_rng(0), 0, []
    while done < 70:
        size = int(rng.integers(0, 12))
        if size == 1:
            parts.append([mixed.update(list(x[done]), y[done])])
        else:
            parts.append(mixed.update_many(x[done : done + size], y[done : done + size]))
        done = min(70, done + size)
        mixed.predict(x[:3])
    rows = [report for part in parts for report in part]
    for name in UpdateReport._fields:
        joined = np.array([getattr(row, name) for row in rows])
        assert joined.tobytes() == getattr(reports, name).tobytes(), name
    assert_same_bits(mixed.state(), whole.state())


def test_layout_and_type_of_the_arrays_do_not_matter():
    x, y = random_stream(30, 3, seed=13)
    x, y = x.astype(np.float32).astype(float), np.round(4 * y)
    reports = online_gp(3).update_many(x, y)
    frozen = x.copy()
    frozen.flags.writeable = False
    wide = np.zeros((30, 6))
    wide[:, ::2] = x
    for points, targets in (
        (np.asfortranarray(x), y.astype(int)),
        (wide[:, ::2], y.astype(np.float32)),
        (x.astype(np.float32), np.repeat(y, 2)[::2]),
        (x.tolist(), y.tolist()),
        (frozen, y),
    ):
        assert_same_reports(online_gp(3).update_many(points, targets), reports)
        gp = online_gp(3)
        for t, report in enumerate(reports):
            assert repr(gp.update(points[t], targets[t])) == repr(report)


def test_inputs_are_copied():
    x, y = random_stream(4, 2, seed=14)
    original = x.copy()
    gp = online_gp(2)
    gp.update_many(x, y)
    point = np.array([0.1, 0.2])
    gp.update(point, 1.0)
    x[:], y[:], point[:] = 7.0, 7.0, 7.0
    gp.inputs[:] = 7.0
    gp.targets[:] = 7.0
    np.testing.assert_array_equal(gp.inputs, np.vstack([original, [0.1, 0.2]]))
    assert_equals_scratch(gp)


def test_restored_state_continues_bit_for_bit():
    x, y = random_stream(60, 2, seed=15)
    roles = {"acceptance": ExceedsMinimum(MeanRelevance()), "reduction": MeanRelevance()}
    gp, copy = online_gp(2, **roles), online_gp(2, **roles)
    gp.update_many(x[:35], y[:35])
    state = gp.state()
    copy.restore(state, state["counts"])
    assert_same_reports(copy.update_many(x[35:], y[35:]), gp.update_many(x[35:], y[35:]))
    assert_same_bits(copy.state(), gp.state())
    assert copy.repairs == gp.repairs


def test_restore_refuses_what_does_not_fit():
    gp = online_gp(2).fit(*random_stream(6, 2, seed=16))
    state = gp.state()
    with pytest.raises(ValueError, match="at most 5 points"):
        online_gp(2, budget=5).restore(state, state["counts"])
    with pytest.raises(ValueError, match="order"):
        online_gp(2).restore(state | {"order": np.zeros(6, dtype=int)}, state["counts"])
    with pytest.raises(ValueError, match="inputs"):
        online_gp(3).restore(state, state["counts"])
    with pytest.raises(KeyError, match="factor"):
        online_gp(2).restore({k: v for k, v in state.items() if k != "factor"}, state["counts"])


@pytest.mark.parametrize("name", ["inputs", "factor"])
def test_restore_refuses_a_single_row(name):
    state = online_gp(2).fit(*random_stream(6, 2, seed=16)).state()
    with pytest.raises(ValueError, match=name):
        online_gp(2).restore(state | {name: state[name][:1]}, state["counts"])


@each_criterion
def test_later_samples_never_change_earlier_reports(criterion):
    x, y = random_stream(60, 2, seed=17)
    roles = {"reduction": criterion, "acceptance": ExceedsMinimum(criterion)}
    reports = online_gp(2, **roles).update_many(x, y)
    for cut in (1, 5, 6, 7, 30, 59):
        other_x, other_y = x.copy(), y.copy()
        other_x[cut:] *= -1.7
        other_y[cut:] += 5.0
        changed = online_gp(2, **roles).update_many(other_x, other_y)
        for name in UpdateReport._fields:
            assert getattr(changed, name)[:cut].tobytes() == getattr(reports, name)[:cut].tobytes()
        same_input = online_gp(2, **roles).update_many(x, np.where(np.arange(60) < cut, y, other_y))
        assert same_input.mean[cut] == reports.mean[cut]  # predicted before its own target was seen
        assert same_input.variance[cut] == reports.variance[cut]


def test_empty_gp_predicts_the_prior():
    gp = online_gp(3, variance=2.5)
    mean, variance = gp.predict(np.random.default_rng(0).normal(size=(4, 3)))
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_array_equal(variance, 2.5)
    assert gp.predict(np.zeros((0, 3)))[0].shape == (0,)
    assert len(gp.update_many(np.zeros((0, 3)), [])) == gp.n_points == 0
    assert gp.leave_one_out().residual.shape == (0,)
    assert gp.drift() == 0.0


def test_reports_are_plain_python_and_indexable():
    x, y = random_stream(8, 2, seed=18)
    report = online_gp(2).update(x[0], y[0])
    assert [type(value) for value in report] == [float, float, bool, bool, int, int, int, float, float, float]
    reports = online_gp(2).update_many(x, y)
    assert len(reports) == len(list(reports)) == 8
    assert repr(reports[0]) == repr(report)
    assert reports[-1].n_points == 6


# --- duplicates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_variance", [1e-2, 1e-8])
@each_criterion
def test_duplicates_survive_and_are_counted(criterion, noise_variance):
    rng = np.random.default_rng(19)
    distinct = rng.uniform(-2, 2, size=(4, 2))
    x = distinct[rng.integers(0, 4, size=80)] + np.where(np.arange(80) % 2, 1e-9, 0.0)[:, None]
    y = np.sin(x[:, 0]) + 1e-2 * rng.normal(size=80)
    gp = online_gp(2, noise_variance=noise_variance, budget=8, reduction=criterion)
    reports = gp.update_many(x, y)
    assert np.isfinite(reports.mean).all()
    assert (reports.variance >= 0).all()
    mean, variance = gp.predict(np.vstack([x, distinct]))
    assert np.isfinite(mean).all()
    assert (variance >= 0).all()
    assert (np.abs(mean) < 3).all()
    assert (gp.leave_one_out().variance >= noise_variance * (1 - 1e-6)).all()
    count = 0  # entries that met a stored point at their place
    stored = {}
    for t, report in enumerate(reports):
        stored.pop(report.removed, None)
        count += any(np.allclose(x[t], other, rtol=0, atol=1e-8) for other in stored.values())
        stored[report.slot] = x[t]
    assert count > 10
    assert gp.repairs["near_duplicates"] == count


def test_points_that_are_merely_close_are_no_duplicates():
    gp = online_gp(1)
    gp.update_many([[0.0], [0.001], [0.5]], [0.0, 0.0, 1.0])
    assert gp.repairs["near_duplicates"] == 0
    gp.update([0.5], 1.1)
    assert gp.repairs["near_duplicates"] == 1


# --- errors -----------------------------------------------------------------------------------------


@pytest.fixture
def trained():
    gp = online_gp(2, acceptance=ExceedsMinimum(MarginalLogLikelihood()))
    gp.update_many(*random_stream(20, 2, seed=20))
    return gp


GOOD = [0.1, 0.2]

BAD_UPDATES = [
    ([np.nan, 0.0], 1.0, ValueError, "x: 1 of 2 values are not finite.*nan at index 0"),
    ([0.0, -np.inf], 1.0, ValueError, "x: 1 of 2 values are not finite.*inf at index 1"),
    (GOOD, np.nan, ValueError, "y: .*not finite.*nan"),
    (GOOD, np.inf, ValueError, "y: .*not finite.*inf"),
    ([0.0], 1.0, ValueError, r"x: expected shape \(2,\), got \(1,\)"),
    ([0.0, 0.0, 0.0], 1.0, ValueError, r"x: expected shape \(2,\), got \(3,\)"),
    ([[0.0], [0.0]], 1.0, ValueError, r"x: expected shape \(2,\), got \(2, 1\)"),
    ([GOOD], 1.0, ValueError, r"x: expected shape \(2,\), got \(1, 2\)"),
    (GOOD, [1.0], ValueError, "y: expected shape"),
    (GOOD, [1.0, 2.0], ValueError, "y: expected shape"),
    (GOOD, None, TypeError, "y: expected real numbers, got dtype object"),
]

BAD_RECORDS = [
    ([GOOD, [np.nan, 0.0]], [1.0, 1.0], ValueError, r"inputs: 1 of 4 values.*nan at index \(1, 0\)"),
    ([GOOD, GOOD], [1.0, np.inf], ValueError, "targets: 1 of 2 values.*inf at index 1"),
    (GOOD, [1.0], ValueError, r"inputs: expected shape \(n, 2\).*got \(2,\).*x\[None, :\]"),
    ([[0.0, 0.0, 0.0]], [1.0], ValueError, r"inputs: expected shape \(n, 2\).*got \(1, 3\)"),
    ([[GOOD]], [1.0], ValueError, r"inputs: expected shape \(n, 2\).*got \(1, 1, 2\)"),
    ([GOOD], [1.0, 2.0], ValueError, r"targets: expected shape \(1,\), got \(2,\)"),
    ([GOOD], [[1.0]], ValueError, r"targets: expected shape \(1,\), got \(1, 1\)"),
    ([["0.1", "0.2"]], [1.0], TypeError, "inputs: expected real numbers, got dtype <U3"),
    ([GOOD], ["1.0"], TypeError, "targets: expected real numbers, got dtype <U3"),
    ([[1j, 0.0]], [1.0], TypeError, "inputs: expected real numbers, got dtype complex128"),
    ([[None, 0.0]], [1.0], TypeError, "inputs: expected real numbers, got dtype object"),
]


@pytest.mark.parametrize(("x", "y", "kind", "message"), BAD_UPDATES)
def test_bad_sample_is_refused_and_nothing_is_learned(trained, x, y, kind, message):
    before = trained.state()
    with pytest.raises(kind, match=message):
        trained.update(x, y)
    assert_same_bits(trained.state(), before)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (["0.1", "0.2"], 1.0),
        (GOOD, "1.0"),
        ([0.1 + 1j, 0.2], 1.0),
        (np.array([0.1 + 1j, 0.2]), 1.0),
        (GOOD, np.complex128(1j)),
    ],
)
def test_sample_of_the_wrong_type_is_refused_and_nothing_is_learned(trained, x, y):
    before = trained.state()
    with pytest.raises(TypeError, match=r"[xy]: expected real numbers, got dtype"):
        trained.update(x, y)
    assert_same_bits(trained.state(), before)


@pytest.mark.parametrize(("x", "y", "kind", "message"), BAD_RECORDS)
@pytest.mark.parametrize("method", ["update_many", "fit"])
def test_bad_record_is_refused_and_nothing_is_learned(trained, method, x, y, kind, message):
    before = trained.state()
    with pytest.raises(kind, match=message):
        getattr(trained, method)(x, y)
    assert_same_bits(trained.state(), before)


@pytest.mark.parametrize("x", [GOOD, [[1.0]], [[np.nan, 0.0]]])
def test_predict_checks_its_inputs(trained, x):
    with pytest.raises(ValueError, match="inputs"):
        trained.predict(x)


@pytest.mark.parametrize("budget", [1, 0, -3, 2.5, True, "ten", None])
def test_budget_is_checked(budget):
    with pytest.raises(ValueError, match="OnlineGP: budget must be an integer of at least 2 points, got") as error:
        online_gp(1, budget=budget)
    assert str(error.value).endswith(repr(budget))


@pytest.mark.parametrize("budget", [np.nan, np.inf])
def test_budget_that_is_not_finite_is_named(budget):
    with pytest.raises((TypeError, ValueError), match="OnlineGP: budget"):
        online_gp(1, budget=budget)


@pytest.mark.parametrize("noise_variance", [-1.0, 0.0, np.nan, np.inf, 2.9e-8])
def test_noise_variance_is_checked_against_the_kernel(noise_variance):
    with pytest.raises(ValueError, match=r"noise_variance must be at least 1e-08 .*\(3e-08\), got") as error:
        online_gp(1, variance=3.0, noise_variance=noise_variance)
    assert str(noise_variance) in str(error.value)
    assert online_gp(1, variance=3.0, noise_variance=3e-8).noise_variance == 3e-8


@pytest.mark.parametrize(
    ("role", "value", "expected"),
    [
        ("insertion", Always, "Insertion"),
        ("insertion", 0.1, "Insertion"),
        ("insertion", PriorEntropy(), "Insertion"),
        ("acceptance", PriorEntropy(), "Acceptance"),
        ("acceptance", True, "Acceptance"),
        ("reduction", PriorEntropy, "Criterion"),
        ("reduction", "prior_entropy", "Criterion"),
        ("reduction", ExceedsMinimum(PriorEntropy()), "Criterion"),
    ],
)
def test_roles_are_checked(role, value, expected):
    with pytest.raises(TypeError, match=f"OnlineGP: {role} must be an instance of {expected}, got") as error:
        online_gp(1, **{role: value})
    assert repr(value) in str(error.value)


def test_kernel_is_checked():
    with pytest.raises(TypeError, match="kernel must be an instance of Kernel, got"):
        OnlineGP(np.exp, noise_variance=0.1, budget=3)


def test_defaults():
    gp = online_gp(1)
    assert gp.insertion == Always()
    assert gp.acceptance == AcceptAll()
    assert gp.reduction == MarginalLogLikelihood()


# --- drift ------------------------------------------------------------------------------------------


FACTORS = [name for name in ("factor", "cholesky") if name in dictionary.Dictionary._fields]


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("corrupt", FACTORS)
def test_drift_is_measured_repaired_and_counted(corrupt, one_by_one):
    budget = 60 if COMPILED else 20
    n = budget + dictionary.PROBE_INTERVAL
    x, y = random_stream(2 * n, 2, seed=21)
    gp = online_gp(2, budget=budget, reduction=LogPredictiveDensity())
    gp.update_many(x[:n], y[:n])
    assert gp.repairs["refactorisations"] == 0
    assert gp.drift() < 1e-10
    getattr(gp._state, corrupt)[:] *= 1.001
    assert gp.drift() > 1e-4
    entries = gp._state.counts[dictionary.N_ENTRIES]
    left = int(dictionary.PROBE_INTERVAL - entries % dictionary.PROBE_INTERVAL)
    rest = slice(n, n + left - 1), slice(n + left - 1, n + left + 5)
    for part, refactorisations in zip(rest, (0, 1), strict=True):
        assert gp.drift() > 1e-4
        if one_by_one:
            for sample in zip(x[part], y[part], strict=True):
                gp.update(*sample)
        else:
            gp.update_many(x[part], y[part])
        assert gp.repairs["refactorisations"] == refactorisations
    assert gp.drift() < 1e-10
    assert_equals_scratch(gp)
    gp.update_many(x[n + left + 5 :], y[n + left + 5 :])
    assert gp.repairs["refactorisations"] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("corrupt", FACTORS)
def test_a_factor_that_is_no_number_is_repaired(corrupt, value):
    x, y = random_stream(120, 2, seed=25)
    gp = online_gp(2, budget=20, reduction=Oldest())
    gp.update_many(x[:95], y[:95])
    getattr(gp._state, corrupt)[15, 15] = value
    with np.errstate(invalid="ignore"):
        gp.update_many(x[95:], y[95:])
    assert gp.repairs["refactorisations"] == 1
    assert_equals_scratch(gp)


def test_the_sample_after_a_repair_is_predicted_by_the_repaired_model():
    """In one call: the record must go on, with nothing lost or learned twice."""
    x, y = random_stream(220, 2, seed=22)
    gp = online_gp(2, budget=20, reduction=Oldest())
    gp.update_many(x[:90], y[:90])
    for name in FACTORS:
        getattr(gp._state, name)[:] *= 1.01
    reports = gp.update_many(x[90:], y[90:])  # the 100th entry is a probe
    assert gp.repairs["refactorisations"] == 1
    assert reports.accepted.all()
    np.testing.assert_array_equal(np.sort(gp.targets), np.sort(y[-20:]))
    mean, variance = NaiveGP(1.0, (0.8, 0.8), 1e-2, x[80:100], y[80:100]).predict_one(x[100])
    assert reports.mean[10] == pytest.approx(mean, abs=1e-9)
    assert reports.variance[10] == pytest.approx(variance, abs=1e-9)
    assert_equals_scratch(gp)


def test_negative_variances_are_clipped_and_counted():
    """A factor that is too large makes them; a healthy one has not been seen to."""
    x, y = random_stream(6, 2, seed=24)
    gp = online_gp(2).fit(x, y)
    assert (gp.predict(x)[1] > 0).all()
    assert gp.repairs["clipped_variances"] == 0
    spoilt = "pivots" if "pivots" in dictionary.Dictionary._fields else "factor"
    getattr(gp._state, spoilt)[:] *= 1.5
    np.testing.assert_array_equal(gp.predict(x)[1], 0.0)
    assert gp.repairs["clipped_variances"] == 6
    assert gp.update(x[0], y[0]).variance == 0.0
    assert gp.repairs["clipped_variances"] > 6
    assert np.isfinite(gp.predict(x)).all()


def test_a_healthy_stream_is_never_repaired():
    x, y = random_stream(600 if COMPILED else 150, 1, seed=23)
    for noise_variance in (1.0, 1e-4, 1e-8):
        gp = online_gp(1, noise_variance=noise_variance, budget=15, reduction=Oldest())
        gp.update_many(x, y)
        assert gp.repairs["refactorisations"] == 0


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
def test_other_hyperparameters_keep_points_ages_rules_and_counts(criterion):
    x, y = random_stream(60, 2, seed=4)
    rules = {"budget": 12, "insertion": ErrorThreshold(0.01), "acceptance": ExceedsMinimum(criterion)}
    gp = OnlineGP(SquaredExponential(1.3, [0.8] * x.shape[1]), noise_variance=0.02, reduction=criterion, **rules)
    gp.update_many(x, y)
    gp.update(gp.inputs[3], gp.targets[3] + 9.0)  # may enter as a near-duplicate
    gp.n_refactorisations, gp.n_renewals, gp.n_clipped_predictions = 3, 4, 5
    before, kernel = gp.state(), SquaredExponential(2.0, [1.1] * x.shape[1])
    other = gp.with_hyperparameters(kernel, 0.05)
    assert (other.kernel, other.noise_variance, other.budget) == (kernel, 0.05, 12)
    assert (other.insertion, other.acceptance, other.reduction) == (gp.insertion, gp.acceptance, gp.reduction)
    for name in ("inputs", "targets", "age_order"):
        np.testing.assert_array_equal(getattr(other, name), getattr(gp, name))
    assert other.repairs == gp.repairs
    assert other.n_renewals == 4
    counts = before["counts"]
    assert counts[dictionary.N_ENTRIES] > 0
    np.testing.assert_array_equal(other.state()["counts"][:-1], counts[:-1])  # the last: what is still to be computed
    assert_equals_scratch(other)
    more, targets = random_stream(40, 2, seed=5)
    again = OnlineGP(kernel, noise_variance=0.05, reduction=criterion, **rules)
    again.fit(gp.inputs[gp.age_order], gp.targets[gp.age_order])
    assert_same_decisions(other.update_many(more, targets), again.update_many(more, targets))
    np.testing.assert_equal(gp.state(), before)


def assert_same_decisions(first, second):
    np.testing.assert_allclose(first.mean, second.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(first.variance, second.variance, rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(first.accepted, second.accepted)


def test_other_hyperparameters_are_checked_and_an_empty_gp_takes_them():
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=5)
    with pytest.raises(ValueError, match="noise_variance must be at least"):
        gp.with_hyperparameters(SquaredExponential(1.0, [1.0]), 1e-10)
    assert gp.with_hyperparameters(SquaredExponential(2.0, [1.0]), 0.1).predict([[0.0]])[1][0] == 2.0
