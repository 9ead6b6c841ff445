"""Candidates: their free runs, when these run away, and the online GP that is the same function."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import (
    FIRST_ORDER_LAGS,
    KINDS_OF_LAGS,
    linear_candidate,
    random_candidate,
    segment_of,
    sine_input,
)
from sysid import Model, Narx, OnlineGP, SquaredExponential
from sysid.simulation.segments import Segment
from sysid.simulation_error.candidate import (
    find_runaway,
    pivots,
    range_of,
    squared_error,
)

# --- free runs that run away ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coefficients", "u", "scale", "runaway"),
    [
        ([0.5, 1.0], sine_input(200), 1.0, ""),
        ([1.05, 1.0], sine_input(200), 1.0, "the samples themselves"),
        ([1.0, 0.01], sine_input(200, mean=0.3), 1.0, "the samples twice in a row"),
        ([0.0, 1.9], sine_input(200), 1.0 / 1.9, "larger inputs"),
        ([1.05, 0.0], np.zeros(200), 1.0, "disturbed first outputs"),
        ([1.02, 0.0], np.zeros(200), 1.0, "the highest first outputs"),
    ],
    ids=[
        "none",
        "the samples",
        "twice in a row",
        "larger inputs",
        "disturbed first outputs",
        "highest first outputs",
    ],
)
def test_simulation_that_leaves_the_range_of_the_samples_is_named(coefficients, u, scale, runaway):
    """The samples begin at 0 and follow the candidate, but for a scale of the input.

    Their pole is at most 1. Without an input one output is set to 1, so that the samples have a
    range.
    """
    pole, gain = coefficients
    y = np.zeros(200)
    for k in range(1, 200):
        y[k] = min(pole, 1.0) * y[k - 1] + scale * gain * u[k - 1]
    if not u.any():
        y[150] = 1.0
    segment = segment_of(FIRST_ORDER_LAGS, {"y": y, "u": u})
    candidate = linear_candidate(FIRST_ORDER_LAGS, coefficients)

    assert find_runaway(candidate, [segment]) == runaway
    low = 1.5 * y.min() - 0.5 * y.max()
    high = 1.5 * y.max() - 0.5 * y.min()
    assert range_of([segment]) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("within_inputs", "runaway"), [(False, "larger inputs"), (True, "")], ids=["larger", "within"]
)
def test_inputs_of_the_record_may_be_all_that_a_model_ever_gets(within_inputs, runaway):
    """The candidate follows the largest input just to the end of the range, and no farther."""
    u = sine_input(200)
    segment = segment_of(FIRST_ORDER_LAGS, {"y": np.append(0.0, u[:-1]), "u": u})
    candidate = linear_candidate(FIRST_ORDER_LAGS, [0.0, 1.9])

    assert find_runaway(candidate, [segment], within_inputs=within_inputs) == runaway


def test_disturbed_inputs_within_those_of_the_record_may_run_away():
    """The function is wrong at u = 0.9, between the inputs 1 and -1 of the record."""
    u = np.repeat([1.0, -1.0], 100)
    segment = segment_of(FIRST_ORDER_LAGS, {"y": np.append(0.0, u[:-1]), "u": u})
    wrong = replace(
        linear_candidate(FIRST_ORDER_LAGS, [0.0, 1.0]),
        kernel=SquaredExponential(1.0, [1e3, 0.02]),
        points=np.array([[0.0, 0.9]]),
        weights=np.array([9.0]),
    )
    assert find_runaway(wrong, [segment], within_inputs=True) == "disturbed inputs"


def test_inputs_between_those_of_the_samples_may_run_away_too():
    """The input is 1 in the first half and -1 in the second; the function is wrong at u = 0.9."""
    u = np.repeat([1.0, -1.0], 100)
    segment = segment_of(FIRST_ORDER_LAGS, {"y": np.append(0.0, u[:-1]), "u": u})
    right = linear_candidate(FIRST_ORDER_LAGS, [0.0, 1.0])
    wrong = replace(
        right,
        kernel=SquaredExponential(1.0, [1e3, 0.02]),
        points=np.array([[0.0, 0.9]]),
        weights=np.array([9.0]),
    )
    assert find_runaway(right, [segment]) == ""
    assert find_runaway(wrong, [segment]) == "disturbed inputs"


def test_free_run_is_nan_from_where_it_leaves_its_bounds():
    narx = Narx({"y": 1}, predict="value")
    doubling = linear_candidate(narx, [2.0], bounds=(-10.0, 10.0))
    segment = Segment(regressors=np.ones((5, 1)), values=np.ones(5), past=np.ones(1))
    np.testing.assert_array_equal(doubling.simulate(segment), [2.0, 4.0, 8.0, np.nan, np.nan])
    assert squared_error(doubling, [segment]) == np.inf


# --- the online GP --------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_variance", [1e-4, 0.1, 10.0])
def test_online_gp_of_a_start_is_the_same_function(noise_variance):
    narx = KINDS_OF_LAGS["change"]
    candidate = random_candidate(narx, n_points=8, limits=(-1.0, 2.0))
    x = np.random.default_rng(3).standard_normal((30, narx.n_features))
    start = candidate.initial_model(noise_variance, 0.02, x)
    kernel = start.hyperparameters.kernel
    gp = OnlineGP(kernel, noise_variance=noise_variance, budget=8).fit(*start.points)
    model = Model(narx, start.scaling, start.mean, gp, limits=start.limits)

    prediction = model.predict(x)
    np.testing.assert_allclose(prediction.mean, candidate.predict(x), rtol=1e-6, atol=1e-8)
    assert prediction.variance.mean() == pytest.approx(0.02, rel=5e-3)
    assert start.limits == (-1.0, 2.0)


# --- pivoted Cholesky -----------------------------------------------------------------------------

N_PIVOTS = 6
PIVOT_KERNEL = SquaredExponential(1.7, [1.0, 2.0])


def random_inputs():
    """Return inputs (20, 2) among which points are chosen."""
    return np.random.default_rng(0).standard_normal((20, 2))


def test_pivots_are_the_points_of_largest_variance_one_after_the_other():
    x = random_inputs()
    covariance = PIVOT_KERNEL(x, x)
    chosen = [0]
    for _ in range(N_PIVOTS):
        of_chosen = covariance[np.ix_(chosen, chosen)]
        explained = covariance[:, chosen] @ np.linalg.solve(of_chosen, covariance[chosen])
        remaining_variance = np.diag(covariance) - np.diag(explained)
        chosen.append(int(np.argmax(remaining_variance)))

    result = pivots(PIVOT_KERNEL, x, N_PIVOTS, 1e-9)

    np.testing.assert_array_equal(result.chosen, chosen[:N_PIVOTS])
    np.testing.assert_allclose(result.columns.T @ result.columns, explained, atol=1e-10)
    np.testing.assert_allclose(result.residual, remaining_variance, atol=1e-10)


def test_features_and_weights_of_pivots_give_the_same_function():
    x = random_inputs()
    result = pivots(PIVOT_KERNEL, x, N_PIVOTS, 1e-9)
    cross_covariance = PIVOT_KERNEL(x, x[result.chosen])
    np.testing.assert_allclose(result.features(cross_covariance), result.columns.T, atol=1e-8)
    v = np.arange(float(N_PIVOTS))
    function = cross_covariance @ result.to_weights(v)
    np.testing.assert_allclose(function, result.columns.T @ v, atol=1e-8)


def test_repeated_inputs_are_chosen_once():
    x = np.repeat(random_inputs()[:3], 4, axis=0)
    result = pivots(PIVOT_KERNEL, x, 10, 1e-6)
    assert sorted(result.chosen // 4) == [0, 1, 2]
