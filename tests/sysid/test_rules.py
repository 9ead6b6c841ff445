"""The five criteria, insertion and acceptance: every score against its definition in the paper,
ties, bad input.
"""

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
from sysid.gp import formula, rules
from sysid.gp.kernels import SquaredExponential
from sysid.gp.online import OnlineGP

each_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
each_reference = pytest.mark.parametrize(
    "reference", list(rules.Reference), ids=lambda reference: reference.value
)
thorough = settings(deadline=None, max_examples=50, derandomize=True)
problems = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(3, 9),
    "p": st.integers(1, 3),
    "log_noise": st.floats(-4, 0.5),
}


def random_problem(seed, n, n_features, log_noise):
    """GP of n points with a nonlinear target; noise variance 10**log_noise of the signal
    variance.
    """
    rng = np.random.default_rng(seed)
    variance = float(10 ** rng.uniform(-2, 2))
    kernel = SquaredExponential(variance, rng.uniform(0.3, 2.0, size=n_features))
    x = rng.uniform(-2, 2, size=(n, n_features))
    y = np.sqrt(variance) * (
        np.sin(2 * x.sum(axis=1)) + rng.normal(size=n) * (0.1 + np.sqrt(10**log_noise))
    )
    return NaiveGP(kernel, variance * 10**log_noise, x, y)


def online(model, n, **roles):
    """Online GP of the first n points, and no room for more."""
    gp = OnlineGP(model.kernel, noise_variance=model.noise_variance, budget=n, **roles)
    return gp.fit(model.inputs[:n], model.targets[:n])


def line_of(targets, **roles):
    """Reports of a budget of 3 for points that are too far apart to know of each other."""
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.1, budget=3, **roles)
    return gp.update_many(100.0 * np.arange(len(targets))[:, None], targets)


def close(actual, expected, relative=1e-6):
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=relative * max(1e-6, np.abs(expected).max())
    )


@each_criterion
@given(**problems)
@thorough
def test_the_lowest_score_with_the_candidate_leaves(criterion, seed, n, p, log_noise):
    """Scores are those of the paper up to a constant that the points of a set share."""
    model = random_problem(seed, n + 1, p, log_noise)
    gp = online(model, n, reduction=criterion)
    naive = reduction_scores(
        criterion, model, n
    )  # the candidate, point n, is in the set but never removed
    ours = gp.candidate_scores(model.inputs[n:], model.targets[n:])[0]
    close(ours - ours.mean(), naive - naive.mean(), 1e-5)
    report = gp.update(model.inputs[n], model.targets[n])
    assert report.accepted
    assert report.removed == report.slot
    assert naive[report.removed] <= naive.min() + 1e-8 * max(1.0, np.abs(naive).max())
    close(report.reduction_score, ours[report.removed], 1e-5)
    np.testing.assert_array_equal(gp.inputs[report.slot], model.inputs[n])


@each_reference
@each_criterion
@given(**problems)
@settings(thorough, max_examples=20)
def test_acceptance_scores_are_those_of_the_paper(criterion, reference, seed, n, p, log_noise):
    model = random_problem(seed, n, p, log_noise)
    acceptance = rules.ExceedsMinimum(criterion, reference)
    least = stored_acceptance_scores(acceptance, model).min()
    x = np.random.default_rng(seed).uniform(-2, 2, size=p)
    y = float(model.targets[0])
    mean, latent = model.predict_one(x)
    report = online(model, n, acceptance=acceptance).update(x, y)
    score = acceptance_score(criterion, y - mean, latent, model.noise_variance)
    close(report.acceptance_score, score)
    close(report.acceptance_minimum, least)
    if abs(score - least) > 1e-6 * max(1.0, abs(score)):
        assert report.accepted == (score > least)


@each_criterion
def test_a_surprising_point_is_worth_no_less(criterion):
    """No score falls when the residual grows, none depends on its sign, and all are finite."""
    for name in ("reduction", "acceptance"):
        formula = getattr(type(criterion), name)
        for noise in (1e-12, 0.1, 1e3):
            for latent in (0.0, 1e-12, 0.3, 1e6):
                scores = [formula(r, noise + latent, noise) for r in (0.0, 0.1, 1.0, 1e3)]
                assert np.isfinite(scores).all()
                assert all(a <= b for a, b in pairwise(scores))
                assert formula(-1.0, noise + latent, noise) == scores[2]


# --- ties -------------------------------------------------------------------------------------------


class Extreme(Oldest):
    """Points of target 0 are worth infinitely little, all others infinitely much."""

    reduction = staticmethod(
        lambda residual, variance, noise_variance: np.inf if residual**2 > 0.1 else -np.inf
    )


@pytest.mark.parametrize(
    ("criterion", "targets", "removed"),
    [
        (rules.MeanRelevance(), [1.0 + 1e-11, 1.0, 1.0, 5.0], [0]),
        (rules.MeanRelevance(), [1.0 + 1e-7, 1.0, 1.0, 5.0], [1]),
        (Extreme(), [3.0, 0.0, 0.0, 5.0], [1]),
        (Extreme(), [3.0, 4.0, 4.0, 5.0], [0]),
        *((criterion, np.ones(9), [0, 1, 2, 0, 1, 2]) for criterion in CRITERIA),
    ],
)
def test_of_scores_within_a_relative_gap_of_1e_9_the_oldest_leaves_also_of_infinite_ones(
    criterion, targets, removed
):
    np.testing.assert_array_equal(line_of(targets, reduction=criterion)["removed"][3:], removed)


# --- insertion --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("insertion", "target", "inserted"),
    [  # an empty GP predicts mean 0 and variance 1, both exactly
        (rules.Always(), 0.0, True),
        (rules.VarianceThreshold(1.0), 9.0, False),
        (rules.VarianceThreshold(np.nextafter(1.0, 0.0)), 0.0, True),
        (rules.ErrorThreshold(0.5), 0.5, True),
        (rules.ErrorThreshold(0.5), -0.5, True),
        (rules.ErrorThreshold(np.nextafter(0.5, 1.0)), 0.5, False),
        (rules.ErrorThreshold(0.0), 0.0, True),
        (rules.Either(1.0, 0.5), 0.5, True),
        (rules.Either(1.0, 0.5), np.nextafter(-0.5, 0.0), False),
        (rules.Either(np.nextafter(1.0, 0.0), 0.5), 0.0, True),
    ],
)
def test_variance_must_exceed_and_error_must_reach_its_threshold(insertion, target, inserted):
    gp = OnlineGP(
        SquaredExponential(1.0, [1.0]),
        noise_variance=0.1,
        budget=2,
        insertion=insertion,
    )
    report = gp.update([0.3], target)
    assert (report.mean, report.variance) == (0.0, 1.0)
    assert report.inserted is inserted
    assert gp.n_points == int(inserted)


# --- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1e-9, -np.inf, np.inf, np.nan, True, "0.1", None, [0.1]])
def test_thresholds_are_checked(value):
    good = {"variance_threshold": 0.1, "error_threshold": 0.1}
    for rule in (rules.VarianceThreshold, rules.ErrorThreshold, rules.Either):
        for field in fields(rule):
            own = {other.name: good[other.name] for other in fields(rule)}
            with pytest.raises(ValueError, match=f"{rule.__name__}: .*{field.name}"):
                rule(**own | {field.name: value})


def test_acceptance_takes_a_criterion_and_a_reference_by_member_or_name():
    assert rules.ExceedsMinimum(rules.PriorEntropy(), "in_sample") == rules.ExceedsMinimum(
        rules.PriorEntropy(), rules.Reference.in_sample
    )
    assert rules.ExceedsMinimum(rules.PriorEntropy()).reference is rules.Reference.leave_one_out
    for reference in ("loo", "LEAVE_ONE_OUT", None, 1, ["in_sample"]):
        with pytest.raises(ValueError, match="reference"):
            rules.ExceedsMinimum(rules.PriorEntropy(), reference)
    for criterion in (rules.PriorEntropy, "prior_entropy", None, rules.AcceptAll()):
        with pytest.raises(TypeError, match="criterion"):
            rules.ExceedsMinimum(criterion)


@pytest.mark.skipif(formula.JIT_DISABLED, reason="nothing is compiled")
def test_only_formulas_of_the_toolbox_are_kept_on_disk():
    class Own(rules.MeanRelevance):
        @staticmethod
        def reduction(residual, variance, noise_variance):
            return residual * variance

    kept = []
    for criterion in (rules.MeanRelevance(), Own()):
        assert criterion.reduction_address
        compiled = formula._compiled[type(criterion).reduction, id(formula.SCORE_SIGNATURE)]
        kept.append(compiled._cache.cache_path is not None)
    assert kept == [True, False]
