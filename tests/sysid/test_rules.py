"""The five criteria, insertion and acceptance: scores as defined in the paper, ties, bad input."""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import (
    CRITERIA,
    NaiveGP,
    Oldest,
    acceptance_score,
    criterion_name,
    reduction_scores,
    stored_acceptance_scores,
)
from sysid import (
    AcceptAll,
    Always,
    Either,
    ErrorThreshold,
    ExceedsMinimum,
    MeanRelevance,
    OnlineGP,
    PriorEntropy,
    Reference,
    SquaredExponential,
    VarianceThreshold,
)
from sysid.gp import formula

each_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
each_reference = pytest.mark.parametrize(
    "reference", list(Reference), ids=lambda reference: reference.value
)
thorough = settings(deadline=None, max_examples=25, derandomize=True)
problems = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(3, 9),
    "p": st.integers(1, 3),
    "log_noise": st.floats(-4, 0.5),
}


def random_problem(seed, n, n_features, log_noise):
    """Return a naive GP of n points of a nonlinear target.

    Its noise variance is 10**log_noise of the signal variance.
    """
    rng = np.random.default_rng(seed)
    variance = float(10 ** rng.uniform(-2, 2))
    kernel = SquaredExponential(variance, rng.uniform(0.3, 2.0, size=n_features))
    x = rng.uniform(-2, 2, size=(n, n_features))
    error_std = 0.1 + np.sqrt(10**log_noise)
    error = error_std * rng.normal(size=n)
    y = np.sqrt(variance) * (np.sin(2 * x.sum(axis=1)) + error)
    return NaiveGP(kernel, variance * 10**log_noise, x, y)


def full_gp(model, n, **roles):
    """Return an online GP that stores the first n points of a naive GP and has no room for more."""
    gp = OnlineGP(model.kernel, noise_variance=model.noise_variance, budget=n, **roles)
    return gp.fit(model.inputs[:n], model.targets[:n])


def assert_close(actual, expected, relative=1e-6):
    """Assert that numbers are equal, up to an error relative to the largest of them."""
    tolerance = relative * max(1e-6, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


@each_criterion
@given(**problems)
@thorough
def test_the_lowest_score_with_the_candidate_leaves(criterion, seed, n, p, log_noise):
    """Scores are those of the paper, up to a constant that the points of a set share.

    The candidate, point n, belongs to the set but is never removed.
    """
    model = random_problem(seed, n + 1, p, log_noise)
    gp = full_gp(model, n, reduction=criterion)
    exact_scores = reduction_scores(criterion, model, n)
    (scores,) = gp.candidate_scores(model.inputs[n:], model.targets[n:])
    assert_close(scores - scores.mean(), exact_scores - exact_scores.mean(), 1e-5)
    report = gp.update(model.inputs[n], model.targets[n])
    assert report.accepted
    assert report.removed == report.slot
    rounding = 1e-8 * max(1.0, np.abs(exact_scores).max())
    assert exact_scores[report.removed] <= exact_scores.min() + rounding
    assert_close(report.reduction_score, scores[report.removed], 1e-5)
    np.testing.assert_array_equal(gp.inputs[report.slot], model.inputs[n])


@each_reference
@each_criterion
@given(**problems)
@settings(thorough, max_examples=12)
def test_acceptance_scores_are_those_of_the_paper(criterion, reference, seed, n, p, log_noise):
    model = random_problem(seed, n, p, log_noise)
    acceptance = ExceedsMinimum(criterion, reference)
    minimum = stored_acceptance_scores(acceptance, model).min()
    x = np.random.default_rng(seed).uniform(-2, 2, size=p)
    y = float(model.targets[0])
    mean, latent = model.predict_one(x)
    score = acceptance_score(criterion, y - mean, latent, model.noise_variance)
    report = full_gp(model, n, acceptance=acceptance).update(x, y)
    assert_close(report.acceptance_score, score)
    assert_close(report.acceptance_minimum, minimum)
    is_tie = abs(score - minimum) <= 1e-6 * max(1.0, abs(score))
    if not is_tie:
        assert report.accepted == (score > minimum)


@pytest.mark.parametrize("latent", [0.0, 1e-12, 0.3, 1e6])
@pytest.mark.parametrize("noise", [1e-12, 0.1, 1e3])
@pytest.mark.parametrize("role", ["reduction", "acceptance"])
@each_criterion
def test_a_surprising_point_is_worth_no_less(criterion, role, noise, latent):
    """No score falls when the residual grows, none depends on its sign, and all are finite."""
    score = getattr(type(criterion), role)
    scores = [score(residual, noise + latent, noise) for residual in (0.0, 0.1, 1.0, 1e3)]
    assert np.isfinite(scores).all()
    assert all(smaller <= larger for smaller, larger in pairwise(scores))
    assert score(-1.0, noise + latent, noise) == scores[2]


# --- ties -----------------------------------------------------------------------------------------


class Extreme(Oldest):
    """Points of target 0 have an infinitely low score, all others an infinitely high one."""

    @staticmethod
    def reduction(residual, variance, noise_variance):
        return np.inf if residual**2 > 0.1 else -np.inf


def learn_distant_points(targets, **roles):
    """Return the reports of a GP of three points for samples that do not influence each other."""
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=3, **roles)
    return gp.update_many(100.0 * np.arange(len(targets))[:, None], targets)


@pytest.mark.parametrize(
    ("criterion", "targets", "removed"),
    [
        pytest.param(MeanRelevance(), [1.0 + 1e-11, 1.0, 1.0, 5.0], [0], id="equal up to 1e-11"),
        pytest.param(MeanRelevance(), [1.0 + 1e-7, 1.0, 1.0, 5.0], [1], id="higher by 1e-7"),
        pytest.param(Extreme(), [3.0, 0.0, 0.0, 5.0], [1], id="two of minus infinity"),
        pytest.param(Extreme(), [3.0, 4.0, 4.0, 5.0], [0], id="all infinite"),
        *(
            pytest.param(criterion, np.ones(9), [0, 1, 2, 0, 1, 2], id=criterion_name(criterion))
            for criterion in CRITERIA
        ),
    ],
)
def test_of_scores_within_a_relative_gap_of_1e_9_the_oldest_leaves_also_of_infinite_ones(
    criterion, targets, removed
):
    reports = learn_distant_points(targets, reduction=criterion)
    np.testing.assert_array_equal(reports["removed"][3:], removed)


# --- insertion ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("insertion", "target", "is_inserted"),
    [
        (Always(), 0.0, True),
        (VarianceThreshold(1.0), 9.0, False),
        (VarianceThreshold(np.nextafter(1.0, 0.0)), 0.0, True),
        (ErrorThreshold(0.5), 0.5, True),
        (ErrorThreshold(0.5), -0.5, True),
        (ErrorThreshold(np.nextafter(0.5, 1.0)), 0.5, False),
        (ErrorThreshold(0.0), 0.0, True),
        (Either(1.0, 0.5), 0.5, True),
        (Either(1.0, 0.5), np.nextafter(-0.5, 0.0), False),
        (Either(np.nextafter(1.0, 0.0), 0.5), 0.0, True),
    ],
    ids=str,
)
def test_variance_must_exceed_and_error_must_reach_its_threshold(insertion, target, is_inserted):
    """The GP is empty, so that it predicts mean 0 and variance 1 exactly."""
    kernel = SquaredExponential(1.0, [1.0])
    gp = OnlineGP(kernel, noise_variance=0.1, budget=2, insertion=insertion)
    report = gp.update([0.3], target)
    assert report.mean == 0.0
    assert report.variance == 1.0
    assert report.inserted is is_inserted
    assert gp.n_points == int(is_inserted)


# --- bad input ------------------------------------------------------------------------------------

THRESHOLDS = [
    (rule, field.name)
    for rule in (VarianceThreshold, ErrorThreshold, Either)
    for field in fields(rule)
]


@pytest.mark.parametrize("value", [-1e-9, -np.inf, np.inf, np.nan, True, "0.1", None, [0.1]])
@pytest.mark.parametrize(("rule", "name"), THRESHOLDS)
def test_thresholds_are_checked(rule, name, value):
    thresholds = {field.name: 0.1 for field in fields(rule)}
    thresholds[name] = value
    with pytest.raises(ValueError, match=f"{rule.__name__}: .*{name}"):
        rule(**thresholds)


def test_acceptance_takes_a_reference_by_member_or_name():
    by_name = ExceedsMinimum(PriorEntropy(), "in_sample")
    assert by_name == ExceedsMinimum(PriorEntropy(), Reference.in_sample)


def test_acceptance_leaves_stored_points_out_by_default():
    assert ExceedsMinimum(PriorEntropy()).reference is Reference.leave_one_out


@pytest.mark.parametrize("reference", ["loo", "LEAVE_ONE_OUT", None, 1, ["in_sample"]])
def test_an_unknown_reference_is_refused(reference):
    with pytest.raises(ValueError, match="reference"):
        ExceedsMinimum(PriorEntropy(), reference)


@pytest.mark.parametrize(
    "criterion",
    [PriorEntropy, "prior_entropy", None, AcceptAll()],
    ids=["class", "text", "none", "acceptance"],
)
def test_an_acceptance_by_something_else_than_a_criterion_is_refused(criterion):
    with pytest.raises(TypeError, match="criterion"):
        ExceedsMinimum(criterion)


class UsersRelevance(MeanRelevance):
    """A criterion of a user."""

    @staticmethod
    def reduction(residual, variance, noise_variance):
        return residual * variance


@pytest.mark.skipif(formula.JIT_DISABLED, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("criterion", "is_kept"),
    [(MeanRelevance(), True), (UsersRelevance(), False)],
    ids=["of the toolbox", "of a user"],
)
def test_only_formulas_of_the_toolbox_are_kept_on_disk(criterion, is_kept):
    assert criterion.reduction_address
    compiled = formula._compiled[type(criterion).reduction, id(formula.SCORE_SIGNATURE)]
    assert (compiled._cache.cache_path is not None) == is_kept
