"""Candidates: their free runs, when these run away, and the online GP that is the same function."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import LAGS, candidate_of, excited, linear_candidate, segment_of
from sysid import Model, Narx, OnlineGP, SquaredExponential
from sysid.simulation.segments import Segment
from sysid.simulation_error.candidate import (
    find_runaway,
    pivots,
    range_of,
    squared_error,
)


@pytest.mark.parametrize(
    ("coefficients", "u", "scale", "runaway"),
    [
        ([0.5, 1.0], excited(200), 1.0, ""),
        ([1.05, 1.0], excited(200), 1.0, "the samples themselves"),
        ([1.0, 0.01], excited(200, mean=0.3), 1.0, "the samples twice in a row"),
        ([0.0, 1.9], excited(200), 1.0 / 1.9, "larger inputs"),
        ([1.05, 0.0], np.zeros(200), 1.0, "disturbed first outputs"),
        ([1.02, 0.0], np.zeros(200), 1.0, "the highest first outputs"),
    ],
)
def test_a_simulation_that_leaves_the_range_of_the_samples_is_found(
    coefficients, u, scale, runaway
):
    """The output of the samples is that of the candidate, but for a scale; it begins at 0, and has
    one value of 1.
    """
    candidate = linear_candidate(Narx({"y": 1}, {"u": 1}, predict="value"), coefficients)
    y = np.zeros(200)
    for k in range(1, 200):
        y[k] = min(coefficients[0], 1.0) * y[k - 1] + scale * coefficients[1] * u[k - 1]
    y[150] = y[150] if u.any() else 1.0
    segment = segment_of(candidate.narx, {"y": y, "u": u})
    assert find_runaway(candidate, [segment]) == runaway
    low, high = range_of([segment])
    assert (low, high) == pytest.approx(
        (1.5 * y.min() - 0.5 * y.max(), 1.5 * y.max() - 0.5 * y.min())
    )


def test_inputs_between_those_of_the_samples_may_run_away_too():
    """A function that is wrong about u = 0.9 only, between a level of 1 in the first half and of -1
    in the second.
    """
    u = np.repeat([1.0, -1.0], 100)
    candidate = linear_candidate(Narx({"y": 1}, {"u": 1}, predict="value"), [0.0, 1.0])
    wrong = {
        "kernel": SquaredExponential(1.0, [1e3, 0.02]),
        "points": np.array([[0.0, 0.9]]),
        "weights": np.array([9.0]),
    }
    segment = segment_of(candidate.narx, {"y": np.append(0.0, u[:-1]), "u": u})
    assert find_runaway(candidate, [segment]) == ""
    assert find_runaway(replace(candidate, **wrong), [segment]) == "disturbed inputs"


def test_a_free_run_that_leaves_its_bounds_is_nan_from_there():
    growing = linear_candidate(Narx({"y": 1}, predict="value"), [2.0], bounds=(-10.0, 10.0))
    segment = Segment(np.ones((5, 1)), np.ones(5), np.ones(1))
    np.testing.assert_array_equal(growing.simulate(segment), [2.0, 4.0, 8.0, np.nan, np.nan])
    assert squared_error(growing, [segment]) == np.inf


@pytest.mark.parametrize("noise", [1e-4, 0.1, 10.0])
def test_the_online_gp_of_a_start_is_the_same_function(noise):
    narx = LAGS["change"]
    candidate = candidate_of(narx, n_points=8, limits=(-1.0, 2.0))
    x = np.random.default_rng(3).standard_normal((30, narx.n_features))
    start = candidate.initial_model(noise, 0.02, x)
    gp = OnlineGP(start.hyperparameters.kernel, noise_variance=noise, budget=8).fit(*start.points)
    found = Model(narx, start.scaling, start.mean, gp, limits=start.limits).predict(x)
    np.testing.assert_allclose(found.mean, candidate.predict(x), rtol=1e-6, atol=1e-8)
    assert found.variance.mean() == pytest.approx(0.02, rel=5e-3)
    assert start.limits == (-1.0, 2.0)


def test_pivots_are_the_points_of_largest_variance_one_after_the_other():
    x = np.random.default_rng(0).standard_normal((20, 2))
    kernel = SquaredExponential(1.7, [1.0, 2.0])
    found = pivots(kernel, x, 6, 1e-9)
    K = kernel(x, x)
    chosen = [0]
    for _ in range(6):
        known = K[:, chosen] @ np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen])
        chosen.append(int(np.argmax(np.diag(K) - np.diag(known))))
    np.testing.assert_array_equal(found.chosen, chosen[:6])
    np.testing.assert_allclose(found.columns.T @ found.columns, known, atol=1e-10)
    np.testing.assert_allclose(found.residual, np.diag(K - known), atol=1e-10)
    v = np.arange(6.0)
    across = kernel(x, x[chosen[:6]])
    np.testing.assert_allclose(across @ found.to_weights(v), found.columns.T @ v, atol=1e-8)
    np.testing.assert_allclose(found.features(across), found.columns.T, atol=1e-8)
    few = pivots(kernel, np.repeat(x[:3], 4, axis=0), 10, 1e-6)
    assert sorted(few.chosen // 4) == [0, 1, 2]
