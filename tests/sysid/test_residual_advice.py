"""What a user is told about the structure that residual tests find."""

import numpy as np
import pytest

from sysid import Narx, residual_tests
from sysid.simulation.residual_advice import advise

N_SAMPLES = 800
RNG = np.random.default_rng(0)
U, NOISE = RNG.normal(size=(2, N_SAMPLES))


def lagged(values, lag):
    return np.concatenate([np.zeros(lag), values])[: len(values)]


def advice_on(errors, narx, **settings):
    """Return the advice about errors of the output y, with the input u."""
    tests = residual_tests(errors, U, output_names=["y"], input_names=["u"])
    return advise(tests, narx, **({"has_automatic_lags": False} | settings))


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
