"""What a user is told about the structure that residual tests find."""

from types import SimpleNamespace

import numpy as np
import pytest

from sysid import (
    FreeRun,
    LagChoice,
    Linear,
    MaximumAPosteriori,
    MaximumLikelihood,
    Narx,
    OnlineGP,
    Settings,
    SquaredExponential,
    residual_tests,
)
from sysid.simulation.residual_advice import Choices, advise, find_remedies

N_SAMPLES = 800
RNG = np.random.default_rng(0)
U, NOISE = RNG.normal(size=(2, N_SAMPLES))


def lagged(values, lag):
    return np.concatenate([np.zeros(lag), values])[: len(values)]


def advice_on(errors, narx, **settings):
    """Return the advice about errors of the output y, with the input u."""
    tests = residual_tests(errors, U, output_names=["y"], input_names=["u"])
    return advise(tests, narx, Choices(**({"has_automatic_lags": False} | settings)))


NARX = Narx({"y": 1}, {"u": 3})
INPUT_CASES = {
    "lag after the last": (
        0.1 * NOISE + lagged(U, 16),
        NARX,
        "contain u at lag 16 (+0.99), but its lags end with 3: give it lags up to 16; narx=auto",
    ),
    "lag before the first": (
        0.1 * NOISE + U,
        NARX,
        "contain u at lag 0 (+1.00), but its lags begin with 1: begin with 0",
    ),
    "known lag": (NOISE + lagged(U, 2), NARX, "at lag 2 (+0.72), which the model knows"),
    "unknown input": (
        0.1 * NOISE - lagged(U, 4),
        Narx({"y": 2}),
        "at lag 4 (-0.99), which is not among the lags of the model: give u this lag",
    ),
    "square": (0.3 * NOISE + lagged(U, 5) ** 2, NARX, "contain the square of u at lag 5"),
    "known to the linear part only": (
        0.3 * NOISE + lagged(U, 5) ** 2,
        NARX.with_linear({"u": 9}),
        "contain the square of u at lag 5 (+0.98), but its lags end with 3",
    ),
}


@pytest.mark.parametrize("case", INPUT_CASES)
def test_errors_that_contain_an_input_are_told_with_what_to_do(case):
    errors, narx, words = INPUT_CASES[case]
    (sentence,) = advice_on(errors, narx)
    assert words in sentence
    assert sentence.startswith("the errors of y still contain ")


@pytest.mark.parametrize("case", INPUT_CASES)
def test_automatic_lags_are_not_recommended_if_they_are_set(case):
    errors, narx, _ = INPUT_CASES[case]
    (sentence,) = advice_on(errors, narx, has_automatic_lags=True)
    assert "auto" not in sentence


def test_errors_that_follow_from_their_past_are_told():
    errors = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        errors[k] = 0.9 * errors[k - 1] + NOISE[k]
    (sentence,) = advice_on(errors, NARX)
    assert "predicted from their own past (lag 1, +0.9" in sentence
    assert "give y more lags, or a linear part" in sentence
    (sentence,) = advice_on(errors, NARX.with_linear({"y": 9}))
    assert sentence.endswith("give y more lags")


@pytest.mark.parametrize(
    ("errors", "narx"),
    [
        pytest.param(NOISE, NARX, id="white"),
        pytest.param(NOISE + 0.2 * lagged(U, 16), NARX, id="weak"),
        pytest.param(U, Narx({"y": []}, {"u": [0]}, predict="value"), id="static"),
    ],
)
def test_there_is_no_advice_without_a_strong_correlation(errors, narx):
    assert advice_on(errors, narx) == []


def test_automatic_lags_are_not_recommended_to_models_of_several_outputs():
    (sentence,) = advice_on(0.1 * NOISE + lagged(U, 16), Narx({"y": 1, "z": 1}, {"u": 3}, "y"))
    assert sentence.endswith("give it lags up to 16")


# --- what is set, and what was tried --------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "tried", "words"),
    [
        pytest.param(0.1 * NOISE + U, {"u": {0, 1, 2}}, "automatic lags leave out", id="tried"),
        pytest.param(0.1 * NOISE + U, {"u": {1, 2}}, "begin with 0", id="not tried"),
        pytest.param(
            0.1 * NOISE + lagged(U, 9), {"u": {9}}, "automatic lags leave out", id="after the last"
        ),
        pytest.param(
            0.1 * NOISE + lagged(U, 2), {"u": {2}}, "describes badly there", id="a lag that it has"
        ),
    ],
)
def test_a_lag_that_was_compared_is_not_advised(errors, tried, words):
    (sentence,) = advice_on(errors, NARX, has_automatic_lags=True, tried_lags=tried)
    assert words in sentence


def test_a_lag_between_those_of_the_model_is_advised():
    (sentence,) = advice_on(0.1 * NOISE + lagged(U, 2), Narx({"y": 1}, {"u": [1, 3]}))
    assert "but its lags leave this one out: give it this lag" in sentence


@pytest.mark.parametrize(
    ("remedies", "words"),
    [
        (["raise the budget"], "badly there: raise the budget"),
        (["raise the budget", "pray"], "badly there: raise the budget, or pray"),
        ([], "nothing is left to set"),
    ],
)
def test_only_what_can_be_changed_is_advised(remedies, words):
    (sentence,) = advice_on(NOISE + lagged(U, 2), NARX, remedies=remedies)
    assert words in sentence


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({}, "give y more lags"),
        ({"has_automatic_lags": True, "tried_lags": {"y": {1, 2}}}, "did not lower the error"),
        ({"has_automatic_lags": True, "tried_lags": {"y": {1}}}, "give y more lags"),
        ({"is_for_free_run": True}, None),
    ],
    ids=["own lags", "more lags were tried", "no more lags were tried", "for the free run"],
)
def test_more_lags_are_advised_where_they_may_help(choices, words):
    errors = np.zeros(N_SAMPLES)
    for k in range(1, N_SAMPLES):
        errors[k] = 0.9 * errors[k - 1] + NOISE[k]
    advice = advice_on(errors, NARX, **choices)
    assert len(advice) == (words is not None)
    assert all(words in sentence for sentence in advice)


def model_of(kernel, *, budget=10, n=10, is_idle=False):
    """Return a model of n points with this kernel and budget."""
    gp = OnlineGP(kernel, noise_variance=0.1, budget=budget)
    x = RNG.normal(size=(n, 1))
    gp.fit(x, np.zeros(n) if is_idle else x[:, 0])
    return SimpleNamespace(gp=gp)


SMOOTH = SquaredExponential(1.0, [1.0])
STRAIGHT = Linear(1.0, [1.0])


@pytest.mark.parametrize(
    ("model", "training", "options", "remedies"),
    [
        pytest.param(model_of(SMOOTH), None, {}, ["budget"], id="full"),
        pytest.param(model_of(SMOOTH, budget=20), None, {}, [], id="not full"),
        pytest.param(model_of(SMOOTH), None, {"budget_is_chosen": True}, [], id="chosen"),
        pytest.param(model_of(STRAIGHT), None, {}, ["another kernel"], id="linear"),
        pytest.param(
            model_of(STRAIGHT), None, {"kernel_is_chosen": True}, [], id="linear by held-out error"
        ),
        pytest.param(
            model_of(SMOOTH, is_idle=True), FreeRun(), {}, [], id="linear model of the free run"
        ),
        pytest.param(
            model_of(SMOOTH),
            MaximumAPosteriori(),
            {"n_rows": 500},
            ["budget", "more samples (record_samples)"],
            id="a long record",
        ),
        pytest.param(
            model_of(SMOOTH), MaximumAPosteriori(), {"n_rows": 300}, ["budget"], id="a short record"
        ),
        pytest.param(
            model_of(SMOOTH, budget=20),
            MaximumLikelihood(n_initial=50),
            {"n_rows": 300, "is_stream": True},
            ["more samples (n_initial)"],
            id="a stream",
        ),
    ],
)
def test_a_remedy_is_what_a_user_can_change(model, training, options, remedies):
    found = find_remedies(model, training, **options)
    assert len(found) == len(remedies)
    assert all(words in remedy for words, remedy in zip(remedies, found, strict=True))


def test_a_candidate_without_a_score_is_not_shown():
    rows = [
        {"na": 2, "nb": 1, "nk": 1, "model": 0.25, "chosen": True},
        {"na": 1, "nb": 1, "nk": 1, "model": None},
    ]
    choice = LagChoice(Narx({"y": 2}, {"u": 1}), "free_run", rows, [], Settings())
    assert str(choice).splitlines()[1:] == ["  na=2 nb=1 nk=1: model 0.25, chosen"]


def test_the_lags_that_a_choice_tried_are_those_of_all_candidates():
    rows = [
        {"na": 2, "nb": 1, "nk": [3, 0], "chosen": True, "estimator": "linear", "budget": 100},
        {"na": 1, "nb": 2, "nk": 1},
    ]
    narx = Narx({"y": 2}, {"u": [3], "v": [0]})
    choice = LagChoice(narx, "one_step", rows, [], Settings())
    assert choice.tried_lags == {"y": {1, 2}, "u": {1, 2, 3}, "v": {0, 1, 2}}
    assert choice.estimator == "linear"
    assert choice.has_chosen_budget
