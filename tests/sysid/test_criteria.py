"""Criteria: every score against its definition in the paper, with one GP from scratch per left-out point."""

import ctypes
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import (
    COMPILED,
    CRITERIA,
    INSERTIONS,
    PUBLISHED_ACCEPTANCE,
    PUBLISHED_REDUCTION,
    PUBLISHED_REFERENCE,
    NaiveGP,
    acceptance_score,
    criterion_name,
    first_lowest,
    insertion_rule,
    plain,
    reduction_scores,
    stored_acceptance_scores,
)

from sysid import OnlineGP, SquaredExponential, dictionary
from sysid.acceptance import AcceptAll, ExceedsMinimum
from sysid.criteria import (
    Criterion,
    LogPredictiveDensity,
    MarginalLogLikelihood,
    MeanRelevance,
    PredictiveEntropy,
    PriorEntropy,
)
from sysid.reference import Reference

each_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
each_reference = pytest.mark.parametrize("reference", list(Reference), ids=lambda reference: reference.value)
thorough = settings(deadline=None, max_examples=50 if COMPILED else 15, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def random_problem(seed, n, n_features, log_noise):
    """GP of n points with a nonlinear target; noise variance 10**log_noise of the signal variance."""
    rng = np.random.default_rng(seed)
    variance = float(10 ** rng.uniform(-2, 2))
    scales = tuple(rng.uniform(0.3, 2.0, size=n_features))
    x = rng.uniform(-2, 2, size=(n, n_features))
    y = np.sqrt(variance) * (np.sin(2 * x.sum(axis=1)) + rng.normal(size=n) * (0.1 + np.sqrt(10**log_noise)))
    return NaiveGP(variance, scales, variance * 10**log_noise, x, y)


def online(model, budget, **roles):
    kernel = SquaredExponential(model.variance, model.length_scales)
    return OnlineGP(kernel, noise_variance=model.noise_variance, budget=budget, **roles)


def close(actual, expected, relative=1e-6):
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=relative * max(1e-6, np.abs(expected).max()))


def centred(values):
    return np.asarray(values) - np.mean(values)


problems = {"seed": seeds, "n": st.integers(3, 9), "p": st.integers(1, 3), "log_noise": st.floats(-4, 0.5)}


def test_the_five_criteria_of_the_paper_are_found():
    assert {criterion_name(criterion) for criterion in CRITERIA} >= set(PUBLISHED_REDUCTION)
    assert set(PUBLISHED_REDUCTION) == set(PUBLISHED_ACCEPTANCE) == set(PUBLISHED_REFERENCE)


@each_criterion
@given(**problems)
@thorough
def test_reduction_scores_are_those_of_the_paper_up_to_a_shared_constant(criterion, seed, n, p, log_noise):
    model = random_problem(seed, n, p, log_noise)
    gp = online(model, n).fit(model.inputs, model.targets)
    formula = plain(type(criterion).reduction)
    ours = [formula(r, v, model.noise_variance) for r, v in zip(*gp.leave_one_out(), strict=True)]
    naive = reduction_scores(criterion, model, n)
    np.testing.assert_allclose(centred(ours), centred(naive), rtol=0, atol=1e-8 * max(100.0, np.abs(naive).max()))


@each_criterion
@given(**problems)
@thorough
def test_the_lowest_score_with_the_candidate_leaves(criterion, seed, n, p, log_noise):
    model = random_problem(seed, n + 1, p, log_noise)
    gp = online(model, n, reduction=criterion).fit(model.inputs[:n], model.targets[:n])
    report = gp.update(model.inputs[n], model.targets[n])
    naive = reduction_scores(criterion, model, n)  # the candidate, point n, is in the set but never removed
    assert report.accepted
    assert report.removed == report.slot
    assert naive[report.removed] <= naive.min() + 1e-8 * max(1.0, np.abs(naive).max())
    residual, latent = model.left_out(report.removed)
    expected = plain(type(criterion).reduction)(residual, latent + model.noise_variance, model.noise_variance)
    close(report.reduction_score, expected, 1e-5)
    np.testing.assert_array_equal(gp.inputs[report.slot], model.inputs[n])


def test_leave_one_out_is_a_gp_without_the_point():
    model = random_problem(5, 8, 2, -2)
    residual, variance = online(model, 8).fit(model.inputs, model.targets).leave_one_out()
    naive = np.array([model.left_out(i) for i in range(8)])
    close(residual, naive[:, 0], 1e-10)
    close(variance, naive[:, 1] + model.noise_variance, 1e-10)


@each_reference
@each_criterion
@given(**problems)
@settings(thorough, max_examples=20 if COMPILED else 8)
def test_acceptance_scores_are_those_of_the_paper(criterion, reference, seed, n, p, log_noise):
    model = random_problem(seed, n, p, log_noise)
    acceptance = ExceedsMinimum(criterion, reference)
    gp = online(model, n, acceptance=acceptance).fit(model.inputs, model.targets)
    ours, naive = np.empty(n), stored_acceptance_scores(acceptance, model)
    dictionary.acceptance_scores(gp._rules, gp._state, n, ours)
    close(ours, naive)
    x, y = np.random.default_rng(seed).uniform(-2, 2, size=p), float(model.targets[0])
    mean, latent = model.predict_one(x)
    report = gp.update(x, y)
    score = acceptance_score(criterion, y - mean, latent, model.noise_variance)
    close(report.acceptance_score, score)
    close(report.acceptance_minimum, naive.min())
    if abs(score - naive.min()) > 1e-6 * max(1.0, abs(score)):
        assert report.accepted == (score > naive.min())


def test_references_differ_where_the_paper_is_ambiguous():
    """In sample the entropy threshold is below the noise variance, so it accepts nearly everything."""
    model = random_problem(11, 9, 1, -3)
    minima = {}
    for reference in Reference:
        for criterion in (PriorEntropy(), MarginalLogLikelihood()):
            gp = online(model, 9, acceptance=ExceedsMinimum(criterion, reference.value))
            report = gp.fit(model.inputs, model.targets).update(model.inputs[0], 0.0)
            minima[criterion_name(criterion), reference.value] = report.acceptance_minimum
    assert minima["PriorEntropy", "in_sample"] < model.noise_variance
    assert minima["PriorEntropy", "published"] == minima["PriorEntropy", "in_sample"]
    assert minima["PriorEntropy", "leave_one_out"] > minima["PriorEntropy", "in_sample"]
    assert minima["MarginalLogLikelihood", "published"] == minima["MarginalLogLikelihood", "leave_one_out"]
    assert minima["MarginalLogLikelihood", "in_sample"] != minima["MarginalLogLikelihood", "leave_one_out"]


@pytest.mark.parametrize(
    "pair",
    [(PriorEntropy(), PredictiveEntropy()), (MarginalLogLikelihood(), LogPredictiveDensity())],
    ids=["entropies", "likelihoods"],
)
def test_two_criteria_choose_the_same_point(pair):
    rng = np.random.default_rng(3)
    for seed in range(200 if COMPILED else 40):
        n = int(rng.integers(3, 13))
        model = random_problem(seed, n + 1, int(rng.integers(1, 4)), rng.uniform(-6, 1))
        removed = []
        for criterion in pair:
            gp = online(model, n, reduction=criterion).fit(model.inputs[:n], model.targets[:n])
            removed.append(gp.update(model.inputs[n], model.targets[n]).removed)
        assert removed[0] == removed[1], f"case {seed}: n = {n}"


def test_criteria_that_are_not_equivalent_choose_differently():
    """Guards the test above: entropy, mean relevance and likelihood are three different criteria."""
    different = {"mean and likelihood": 0, "mean and entropy": 0, "likelihood and entropy": 0}
    for seed in range(60):
        model = random_problem(seed, 10, 2, -2)
        removed = {}
        for criterion in (MeanRelevance(), MarginalLogLikelihood(), PriorEntropy()):
            gp = online(model, 9, reduction=criterion).fit(model.inputs[:9], model.targets[:9])
            removed[criterion_name(criterion)] = gp.update(model.inputs[9], model.targets[9]).removed
        mean, likelihood, entropy = removed.values()
        different["mean and likelihood"] += mean != likelihood
        different["mean and entropy"] += mean != entropy
        different["likelihood and entropy"] += likelihood != entropy
    assert min(different.values()) > 6


@each_criterion
@given(
    residual=st.floats(-1e3, 1e3),
    log_noise=st.floats(-12, 3),
    latent=st.one_of(st.just(0.0), st.floats(1e-12, 1e6)),
)
@settings(thorough, max_examples=100)
def test_contract_scores_are_finite_and_compiled_equals_plain(criterion, residual, log_noise, latent):
    noise = 10.0**log_noise
    variance = noise + latent
    for name in ("reduction", "acceptance"):
        formula = plain(getattr(type(criterion), name))
        score = formula(residual, variance, noise)
        assert np.isfinite(score)
        if COMPILED:
            signature = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * 3)
            compiled = signature(getattr(criterion, f"{name}_address"))(residual, variance, noise)
            assert compiled == pytest.approx(score, rel=1e-13, abs=1e-300)


@pytest.mark.parametrize(
    "criterion", [c for c in CRITERIA if criterion_name(c) in PUBLISHED_REDUCTION], ids=criterion_name
)
def test_a_surprising_point_is_worth_no_less(criterion):
    """No score falls when the residual grows, and none depends on the sign of the residual."""
    for formula in (plain(type(criterion).reduction), plain(type(criterion).acceptance)):
        scores = [formula(r, 0.3, 0.1) for r in (0.0, 0.1, 1.0, 10.0)]
        assert all(a <= b for a, b in pairwise(scores))
        assert formula(-1.0, 0.3, 0.1) == formula(1.0, 0.3, 0.1)


@each_criterion
def test_contract_criterion_has_a_published_reference_and_can_be_compared(criterion):
    assert isinstance(criterion.published_reference, Reference)
    assert criterion == type(criterion)()
    assert hash(criterion) == hash(type(criterion)())


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
@pytest.mark.parametrize("rule", INSERTIONS, ids=lambda rule: rule.__name__)
@given(error=st.floats(-2, 2), variance=st.floats(0, 2), thresholds=st.tuples(*[st.floats(0, 2)] * 2))
@thorough
def test_contract_compiled_insertion_equals_plain(rule, error, variance, thresholds):
    insertion = insertion_rule(rule, *thresholds)
    parameters = insertion.parameters()
    signature = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_double, ctypes.c_double, ctypes.c_void_p)
    for e, v in ((error, variance), (error, thresholds[0]), (thresholds[1], variance), (-thresholds[1], 0.0)):
        compiled = signature(insertion.address)(e, v, parameters.ctypes.data)
        assert compiled == bool(plain(rule.formula)(e, v, parameters))


class HighestVariance(Criterion):
    """A user's criterion: the point with the largest variance leaves."""

    reduction = staticmethod(lambda residual, variance, noise_variance: -variance)
    acceptance = staticmethod(lambda residual, variance, noise_variance: variance)
    published_reference = Reference.leave_one_out


def test_a_criterion_from_outside_the_package_works():
    model = random_problem(2, 9, 2, -2)
    gp = online(model, 8, reduction=HighestVariance(), acceptance=ExceedsMinimum(HighestVariance()))
    gp.fit(model.inputs[:8], model.targets[:8])
    report = gp.update(model.inputs[8], model.targets[8])
    assert report.removed == int(np.argmax([model.left_out(i)[1] for i in range(8)]))


class Oldest(Criterion):
    """All points are worth the same."""

    reduction = staticmethod(lambda residual, variance, noise_variance: 1.0)
    acceptance = reduction
    published_reference = Reference.leave_one_out


def test_exact_ties_cost_the_oldest_its_place():
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=4, reduction=Oldest())
    reports = gp.update_many(np.random.default_rng(0).normal(size=(14, 1)), np.arange(14.0))
    np.testing.assert_array_equal(reports.removed[4:], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    np.testing.assert_array_equal(gp.targets, [12.0, 13.0, 10.0, 11.0])
    np.testing.assert_array_equal(gp.age_order, [2, 3, 0, 1])


@each_criterion
def test_points_that_no_score_can_tell_apart_leave_by_age(criterion):
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=3, reduction=criterion)
    reports = gp.update_many(100.0 * np.arange(9.0)[:, None], np.ones(9))
    np.testing.assert_array_equal(reports.removed, [-1, -1, -1, 0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(("excess", "removed"), [(1e-11, 0), (1e-7, 1)])
def test_a_tie_is_a_relative_gap_below_1e_9(excess, removed):
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=3, reduction=MeanRelevance())
    report = gp.update_many(100.0 * np.arange(4.0)[:, None], [1.0 + excess, 1.0, 1.0, 5.0])[3]
    assert report.removed == removed


@pytest.mark.parametrize("least", [-np.inf, -2.0, 0.0, np.inf])
def test_the_oldest_of_the_lowest_is_found_among_extreme_scores(least):
    scores = np.array([np.inf, least, least, np.inf])
    with np.errstate(invalid="ignore"):  # plain Python warns of -inf + inf
        assert dictionary.lowest(scores, 4) == (0 if least == np.inf else 1)
    assert dictionary.lowest(np.array([1.0, 1.0, -3.0]), 2) == 0


def test_first_lowest_of_the_naive_reference():
    assert first_lowest(np.array([3.0, 1.0, 1.0, 2.0])) == 1


@pytest.mark.parametrize("reference", ["loo", "LEAVE_ONE_OUT", None, 1, ["in_sample"]])
def test_unknown_reference_is_refused(reference):
    with pytest.raises(ValueError, match=r"leave_one_out.*in_sample.*published.*got") as error:
        ExceedsMinimum(PriorEntropy(), reference)
    assert repr(reference) in str(error.value)


def test_reference_by_name_equals_reference_by_member():
    assert ExceedsMinimum(PriorEntropy(), "in_sample") == ExceedsMinimum(PriorEntropy(), Reference.in_sample)
    assert ExceedsMinimum(PriorEntropy()).reference is Reference.leave_one_out


@pytest.mark.parametrize("criterion", [PriorEntropy, "prior_entropy", None, AcceptAll()])
def test_acceptance_needs_a_criterion(criterion):
    with pytest.raises(TypeError, match="criterion must be a Criterion, got"):
        ExceedsMinimum(criterion)
