"""The search of hyper-parameters by the error of simulations, against naive versions."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import rosen

from free_runs import (
    FREE,
    LAGS,
    PROFILE,
    SIMPLE,
    candidate_of,
    samples_of,
    segment_of,
    system,
)
from sysid import DifferenceSearch, Matern52, Narx, ProfileSearch, SquaredExponential
from sysid.simulation.segments import segments_of
from sysid.simulation_error.candidate import Refusal, find_runaway, limits_of, pivots
from sysid.simulation_error.profile_search import (
    Profile,
    ProfileProblem,
    Ridge,
    optimise,
)


def naive_weights(phi, t, noise_variance):
    """Least squares with the prior as further rows."""
    rows = np.vstack([phi / np.sqrt(noise_variance), np.eye(phi.shape[1])])
    return np.linalg.lstsq(
        rows, np.append(t / np.sqrt(noise_variance), np.zeros(phi.shape[1])), rcond=None
    )[0]


def test_weights_without_a_block_are_those_of_the_other_rows():
    """Saturated targets are bounds: replaced by the prediction where that lies beyond, eight
    times.
    """
    generator = np.random.default_rng(0)
    phi = generator.standard_normal((30, 4))
    t = generator.standard_normal(30)
    everything = np.arange(30)
    above = np.isin(everything, [3, 10])
    below = everything == 20
    for bounds in ((above & False, below & False), (above, below)):
        low = np.where(bounds[1], -np.inf, t)
        high = np.where(bounds[0], np.inf, t)
        ridge = Ridge(lambda rows: phi[rows], low, high, np.array([0, 7, 10, 22, 30]), 0.3)
        for first, last in ((0, 0), (0, 7), (7, 22), (10, 30)):
            rest = np.r_[0:first, last:30]
            seen = t[rest]
            for _ in range(8):
                w = naive_weights(phi[rest], seen, 0.3)
                high = np.maximum(t[rest], phi[rest] @ w)
                low = np.minimum(t[rest], phi[rest] @ w)
                seen = np.where(bounds[0][rest], high, np.where(bounds[1][rest], low, t[rest]))
            np.testing.assert_allclose(ridge.weights(first, last), w, rtol=1e-8)
        covariance = np.linalg.inv(phi.T @ phi / 0.3 + np.eye(4))
        assert ridge.mean_variance() == pytest.approx(
            np.mean([row @ covariance @ row for row in phi])
        )
    assert not np.allclose(ridge.weights(), naive_weights(phi, t, 0.3), rtol=1e-3)


def test_the_search_finds_a_minimum_and_keeps_to_its_evaluations():
    asked = []

    def cost(x):
        asked.append(x.copy())
        return rosen(x)

    found = optimise(
        cost,
        [np.array([-1.2, 1.0]), np.array([3.0, 3.0])],
        size=0.5,
        bound=4.0,
        evaluations=300,
    )
    assert len(asked) == found.n_evaluations <= 300
    assert found.value == rosen(found.x) == min(map(rosen, asked)) < 1e-2
    assert np.max(np.abs(asked)) <= 4.0


def test_length_scales_follow_a_profile_over_the_lag():
    narx = Narx({"y": [1, 3], "x": [2]}, {"u": [0, 1, 4], "v": [5]}, target="y")
    profile = Profile(narx)
    assert len(profile.priors) == 2 + 1 + 2 + 1 + 3
    z = np.linspace(-1.0, 1.0, 9)
    theta = [
        prior.median + prior.std * value for prior, value in zip(profile.priors, z, strict=True)
    ]
    a_y, b_y, a_x, a_u, b_u, a_v, *rest = theta
    expected = [a_y, a_y + 2 * b_y, a_x, a_u, a_u + b_u, a_u + 4 * b_u, a_v]
    found = profile.values(z)
    np.testing.assert_allclose(np.log(found.lengths), expected, atol=1e-12)
    np.testing.assert_allclose(np.log([found.size, found.noise, found.slope]), rest)
    np.testing.assert_array_equal(
        profile.values(100 * z).lengths, profile.values(4.0 * np.sign(z)).lengths
    )


def profile_problem(narx, *records, limits=FREE, kernel=None, **settings):
    settings = {
        "blocks": (2,),
        "points": 6,
        "rows": 1000,
        "simulated": 1000,
        "regularisation": 0.0,
    } | settings
    kernel = SquaredExponential() if kernel is None else kernel
    settings = ProfileSearch(**settings)
    return ProfileProblem(
        narx, segments_of(samples_of(narx, *records)), limits, kernel, settings, 100
    )


@pytest.mark.parametrize(
    ("predict", "prototype"), [("change", Matern52()), ("value", SquaredExponential())]
)
def test_the_objective_is_the_error_of_blocks_that_were_left_out(predict, prototype):
    """By least squares on the rows outside of each block and a loop over its samples."""
    narx = replace(SIMPLE, predict=predict)
    signals = system()
    problem = profile_problem(narx, signals, kernel=prototype, blocks=(2, 3), regularisation=0.1)
    z = np.array([0.1, -0.2, 0.3, -0.4, 0.2])
    values = problem.profile.values(z)
    y = signals["y"]
    x = np.column_stack([y[:-1], signals["u"][:-1]])
    changes = np.diff(y) / np.std(np.diff(y))
    kernel = prototype.with_scales(1.0, values.lengths)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    points = scaled[pivots(kernel, scaled, 6, 1e-6).chosen]
    root = np.linalg.cholesky(kernel(points, points) + 1e-12 * np.eye(6))

    def features(rows):
        linear = np.column_stack([rows / values.lengths, np.ones(len(rows))])
        return np.hstack(
            [
                values.size * np.linalg.solve(root, kernel(points, rows)).T,
                values.slope * linear,
            ]
        )

    errors = []
    for n in (2, 3):
        for first, last in pairwise(np.linspace(0, len(x), n + 1).astype(int)):
            rest = np.r_[0:first, last : len(x)]
            w = naive_weights(features(scaled[rest]), changes[rest], values.noise**2)
            output = y[first]
            for k in range(first, last):
                at = (np.array([[output, x[k, 1]]]) - x.mean(axis=0)) / x.std(axis=0)
                output += np.std(np.diff(y)) * (features(at) @ w)[0]
                errors.append(output - y[k + 1])
    expected = np.sqrt(np.mean(np.square(errors))) / np.std(y[1:])
    assert problem.error(z) == pytest.approx(expected, rel=1e-5)
    assert problem.cost(z) == pytest.approx(np.log(expected) + 0.05 * z @ z, rel=1e-5)
    fits = (problem.final(values, 6), problem.fit(values))
    np.testing.assert_allclose(*(ridge.weights() for _, ridge in fits), rtol=1e-6)


def test_lags_of_a_signal_share_a_scale_and_saturated_samples_are_bounds():
    narx = Narx({"y": 2}, {"u": [1, 2, 3]})
    signals = system(40, limit=1.0)
    problem = profile_problem(narx, signals, limits=(-9.0, 1.0))
    # at lag 1, from sample 3 on
    y = signals["y"][2:-1]
    u = signals["u"][2:-1]
    np.testing.assert_allclose(problem.scaling.offset, [y.mean()] * 2 + [u.mean()] * 3)
    np.testing.assert_allclose(problem.scaling.scale, [y.std()] * 2 + [u.std()] * 3)
    np.testing.assert_array_equal(problem.high == np.inf, signals["y"][3:] == 1.0)
    np.testing.assert_array_equal(
        problem.low, np.diff(signals["y"])[2:] / np.std(np.diff(signals["y"])[2:])
    )


def test_an_integrator_is_a_function_of_differences_of_its_outputs():
    """``v' = v + tanh(u) - 0.5 v, y' = y + v``: the candidate does not know where it is, and
    simulates other places.
    """
    u = np.random.default_rng(0).standard_normal(400)
    y = np.zeros(400)
    v = 0.0
    for k in range(1, 400):
        y[k], v = y[k - 1] + v, 0.5 * v + np.tanh(u[k - 1])
    narx = Narx({"y": 3}, {"u": 2})
    search = DifferenceSearch(PROFILE.kernels, 60, 1, (2,), 30)
    signals = {"y": y, "u": u}
    found = search.fit([segment_of(narx, signals)], narx, 30, 0, FREE)
    x = narx.regressors(signals).regressor[50:60]
    moved = x + np.where([name == "y" for name, _ in narx.features], 1e3, 0.0)
    np.testing.assert_allclose(
        found.candidate.predict(moved), found.candidate.predict(x), atol=1e-8
    )
    assert list(found.report["length_scales"]) == [
        "y[k-1]",
        "y[k-2]",
        "u[k-1]",
        "u[k-2]",
    ]
    low = y[3:].min()
    high = y[3:].max()
    assert found.candidate.integrates
    assert not candidate_of(narx).integrates
    assert limits_of(found.candidate, [segment_of(narx, signals)]) == pytest.approx(
        (2.5 * low - 1.5 * high, 2.5 * high - 1.5 * low)
    )
    assert not find_runaway(found.candidate, [segment_of(narx, signals)])
    far = segment_of(narx, {"y": y + 1e3, "u": u})
    path = replace(found.candidate, bounds=(0.0, 2e3)).simulate(far)
    assert np.sqrt(np.mean((path - far.values) ** 2)) < 0.05 * np.std(y)
    with pytest.raises(Refusal, match="no integrator"):
        search.fit([segment_of(LAGS["change"], system(200))], LAGS["change"], 10, 0, FREE)
    with pytest.raises(Refusal, match="at least two lags"):
        search.fit([segment_of(SIMPLE, signals)], SIMPLE, 10, 0, FREE)
