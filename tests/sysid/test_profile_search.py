"""The search for hyper-parameters by the error of simulations, against naive versions."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import rosen

from free_runs import (
    KINDS_OF_LAGS,
    NO_LIMITS,
    QUICK_SEARCH,
    SIMPLE_LAGS,
    constant_record,
    first_order_record,
    random_candidate,
    samples_of,
    segment_of,
)
from sysid import DifferenceSearch, Matern52, Narx, ProfileSearch, SquaredExponential
from sysid.simulation.segments import segments_of
from sysid.simulation_error.candidate import Refusal, find_runaway, limits_of, pivots
from sysid.simulation_error.profile_search import (
    Profile,
    ProfileProblem,
    Ridge,
    SimplexSearch,
    search_together,
)

# --- the regression -------------------------------------------------------------------------------


def naive_weights(phi, t, noise_variance):
    """Return the weights by least squares, with the prior as further rows."""
    n_weights = phi.shape[1]
    rows = np.vstack([phi / np.sqrt(noise_variance), np.eye(n_weights)])
    targets = np.append(t / np.sqrt(noise_variance), np.zeros(n_weights))
    weights, *_ = np.linalg.lstsq(rows, targets, rcond=None)
    return weights


def naive_saturated_weights(phi, t, is_above, is_below, noise_variance):
    """Return the weights if some targets are bounds.

    Where the prediction lies beyond a bound, it replaces the target; this is repeated eight times.
    """
    targets = t
    for _ in range(8):
        weights = naive_weights(phi, targets, noise_variance)
        prediction = phi @ weights
        targets = t.copy()
        targets[is_above] = np.maximum(t, prediction)[is_above]
        targets[is_below] = np.minimum(t, prediction)[is_below]
    return weights


N_RIDGE_ROWS = 30
RIDGE_NOISE_VARIANCE = 0.3


def random_regression():
    """Return features (30, 4) and targets (30,)."""
    generator = np.random.default_rng(0)
    phi = generator.standard_normal((N_RIDGE_ROWS, 4))
    t = generator.standard_normal(N_RIDGE_ROWS)
    return phi, t


def ridge_of(phi, t, is_above, is_below):
    """Return the regression with targets that are bounds in some rows."""
    low = np.where(is_below, -np.inf, t)
    high = np.where(is_above, np.inf, t)
    cuts = np.array([0, 7, 10, 22, N_RIDGE_ROWS])
    return Ridge(lambda rows: phi[rows], low, high, cuts, RIDGE_NOISE_VARIANCE)


ROWS_ABOVE = np.isin(np.arange(N_RIDGE_ROWS), [3, 10])
ROWS_BELOW = np.arange(N_RIDGE_ROWS) == 20
NO_ROWS = np.zeros(N_RIDGE_ROWS, dtype=bool)

with_and_without_saturation = pytest.mark.parametrize(
    ("is_above", "is_below"),
    [(NO_ROWS, NO_ROWS), (ROWS_ABOVE, ROWS_BELOW)],
    ids=["exact targets", "saturated targets"],
)


@with_and_without_saturation
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 7), (7, 22), (10, 30)])
def test_weights_without_a_block_are_those_of_the_other_rows(first, last, is_above, is_below):
    phi, t = random_regression()
    ridge = ridge_of(phi, t, is_above, is_below)
    rest = np.r_[0:first, last:N_RIDGE_ROWS]
    expected = naive_saturated_weights(
        phi[rest], t[rest], is_above[rest], is_below[rest], RIDGE_NOISE_VARIANCE
    )
    np.testing.assert_allclose(ridge.weights(first, last), expected, rtol=1e-8)


@with_and_without_saturation
def test_mean_variance_is_that_of_the_posterior(is_above, is_below):
    phi, t = random_regression()
    ridge = ridge_of(phi, t, is_above, is_below)
    covariance = np.linalg.inv(phi.T @ phi / RIDGE_NOISE_VARIANCE + np.eye(4))
    variances = [row @ covariance @ row for row in phi]
    assert ridge.mean_variance() == pytest.approx(np.mean(variances))


def test_saturated_targets_change_the_weights():
    phi, t = random_regression()
    saturated = ridge_of(phi, t, ROWS_ABOVE, ROWS_BELOW).weights()
    exact = naive_weights(phi, t, RIDGE_NOISE_VARIANCE)
    assert not np.allclose(saturated, exact, rtol=1e-3)


# --- the simplex and the profile ------------------------------------------------------------------


def test_search_finds_a_minimum_and_keeps_to_its_evaluations():
    trials = []

    def cost(x):
        trials.append(x.copy())
        return rosen(x)

    starts = [np.array([-1.2, 1.0]), np.array([3.0, 3.0])]
    search = SimplexSearch(cost, starts, size=0.5, bound=4.0, evaluations=300)
    (minimum,) = search_together([search], max_behind=0.0)
    assert len(trials) == minimum.n_evaluations
    assert minimum.n_evaluations <= 300
    assert minimum.value == rosen(minimum.x)
    assert minimum.value == min(rosen(trial) for trial in trials)
    assert minimum.value < 1e-2
    assert np.max(np.abs(trials)) <= 4.0
    assert len(minimum.starts) == 2


def shifted_rosen(shift):
    """Return a search of the Rosenbrock function plus a shift, in three stages."""
    starts = [np.array([-1.2, 1.0]), np.array([3.0, 3.0])]
    return SimplexSearch(lambda x: rosen(x) + shift, starts, size=0.5, bound=4.0, evaluations=300)


def test_search_that_is_far_behind_ends():
    """The searches differ by a shift alone, so that the order of their costs never changes."""
    alone = [search_together([shifted_rosen(shift)], max_behind=1.0)[0] for shift in (0.0, 0.9)]
    ahead, near, behind = search_together(
        [shifted_rosen(0.0), shifted_rosen(0.9), shifted_rosen(1.1)], max_behind=1.0
    )
    assert ahead.value == alone[0].value
    assert near.value == alone[1].value
    assert ahead.n_evaluations == near.n_evaluations == alone[0].n_evaluations > 100
    assert behind.n_evaluations <= 100
    assert len(behind.starts) == 1


def test_length_scales_follow_a_profile_over_the_lag():
    """The variables are, for each signal, the scale at its first lag and the growth per lag."""
    narx = Narx({"y": [1, 3], "x": [2]}, {"u": [0, 1, 4], "v": [5]}, target="y")
    profile = Profile(narx)
    assert len(profile.priors) == 2 + 1 + 2 + 1 + 3
    z = np.linspace(-1.0, 1.0, 9)
    theta = [
        prior.median + prior.std * value for prior, value in zip(profile.priors, z, strict=True)
    ]
    first_y, growth_y, first_x, first_u, growth_u, first_v, size, noise, slope = theta
    expected_lengths = [
        first_y,
        first_y + 2 * growth_y,
        first_x,
        first_u,
        first_u + growth_u,
        first_u + 4 * growth_u,
        first_v,
    ]
    values = profile.values(z)
    np.testing.assert_allclose(np.log(values.lengths), expected_lengths, atol=1e-12)
    np.testing.assert_allclose(
        np.log([values.size, values.noise, values.slope]), [size, noise, slope]
    )
    far_outside = profile.values(100 * z)
    at_the_bound = profile.values(4.0 * np.sign(z))
    np.testing.assert_array_equal(far_outside.lengths, at_the_bound.lengths)


# --- the objective --------------------------------------------------------------------------------


def profile_problem(narx, signals, limits=NO_LIMITS, kernel=None, **settings):
    """Return the problem of one record, with few points and no regularisation."""
    defaults = {
        "blocks": (2,),
        "points": 6,
        "rows": 1000,
        "simulated": 1000,
        "regularisation": 0.0,
    }
    search = ProfileSearch(**(defaults | settings))
    if kernel is None:
        kernel = SquaredExponential()
    segments = segments_of(samples_of(narx, signals))
    return ProfileProblem(narx, segments, limits, kernel, search, 100)


@pytest.mark.parametrize(
    ("predict", "prototype"),
    [("change", Matern52()), ("value", SquaredExponential())],
    ids=["change", "value"],
)
def test_objective_is_the_error_of_blocks_that_were_left_out(predict, prototype):
    """By least squares on the rows outside of each block and a loop over its samples."""
    narx = replace(SIMPLE_LAGS, predict=predict)
    signals = first_order_record()
    problem = profile_problem(narx, signals, kernel=prototype, blocks=(2, 3), regularisation=0.1)
    z = np.array([0.1, -0.2, 0.3, -0.4, 0.2])
    values = problem.profile.values(z)

    y = signals["y"]
    u = signals["u"]
    x = np.column_stack([y[:-1], u[:-1]])
    unit = np.std(np.diff(y))
    changes = np.diff(y) / unit
    mean = x.mean(axis=0)
    std = x.std(axis=0)
    scaled = (x - mean) / std
    kernel = prototype.with_scales(1.0, values.lengths)
    points = scaled[pivots(kernel, scaled, 6, 1e-6).chosen]
    root = np.linalg.cholesky(kernel(points, points) + 1e-12 * np.eye(6))

    def features(rows):
        of_kernel = np.linalg.solve(root, kernel(points, rows)).T
        of_trend = np.column_stack([rows / values.lengths, np.ones(len(rows))])
        return np.hstack([values.size * of_kernel, values.slope * of_trend])

    errors = []
    for n_blocks in (2, 3):
        cuts = np.linspace(0, len(x), n_blocks + 1).astype(int)
        for first, last in pairwise(cuts):
            rest = np.r_[0:first, last : len(x)]
            weights = naive_weights(features(scaled[rest]), changes[rest], values.noise**2)
            output = y[first]
            for k in range(first, last):
                regressor = (np.array([[output, u[k]]]) - mean) / std
                output += unit * (features(regressor) @ weights)[0]
                errors.append(output - y[k + 1])
    expected = np.sqrt(np.mean(np.square(errors))) / np.std(y[1:])
    assert problem.error(z) == pytest.approx(expected, rel=1e-5)
    assert problem.cost(z) == pytest.approx(np.log(expected) + 0.05 * z @ z, rel=1e-5)

    _, ridge_of_final = problem.final(values, 6)
    _, ridge_of_search = problem.fit(values)
    np.testing.assert_allclose(ridge_of_final.weights(), ridge_of_search.weights(), rtol=1e-6)


def test_lags_of_a_signal_share_a_scale_and_saturated_samples_are_bounds():
    narx = Narx({"y": 2}, {"u": [1, 2, 3]})
    signals = first_order_record(40, limit=1.0)
    problem = profile_problem(narx, signals, limits=(-9.0, 1.0))
    # signals at lag 1, from sample 3 on
    y = signals["y"][2:-1]
    u = signals["u"][2:-1]
    np.testing.assert_allclose(problem.scaling.offset, [y.mean()] * 2 + [u.mean()] * 3)
    np.testing.assert_allclose(problem.scaling.scale, [y.std()] * 2 + [u.std()] * 3)
    is_saturated = signals["y"][3:] == 1.0
    np.testing.assert_array_equal(problem.high == np.inf, is_saturated)
    changes = np.diff(signals["y"])[2:]
    np.testing.assert_array_equal(problem.low, changes / np.std(changes))


# --- integrators ----------------------------------------------------------------------------------


def difference_search():
    """Return a search that uses differences of the lagged outputs."""
    return DifferenceSearch(QUICK_SEARCH.kernels, evaluations=60, starts=1, blocks=(2,), points=30)


@pytest.fixture(scope="module")
def integrator_record():
    """Return a record of ``v' = v + tanh(u) - 0.5 v, y' = y + v``."""
    u = np.random.default_rng(0).standard_normal(400)
    y = np.zeros(400)
    v = 0.0
    for k in range(1, 400):
        y[k] = y[k - 1] + v
        v = 0.5 * v + np.tanh(u[k - 1])
    return {"y": y, "u": u}


INTEGRATOR_LAGS = Narx({"y": 3}, {"u": 2})


@pytest.fixture(scope="module")
def integrator_fit(integrator_record):
    """Fit the record of the integrator by differences of its lagged outputs."""
    segment = segment_of(INTEGRATOR_LAGS, integrator_record)
    return difference_search().fit([segment], INTEGRATOR_LAGS, 30, 0, NO_LIMITS)


def test_model_of_an_integrator_does_not_depend_on_the_level_of_the_output(
    integrator_record, integrator_fit
):
    candidate = integrator_fit.candidate
    x = INTEGRATOR_LAGS.regressors(integrator_record).regressor[50:60]
    is_output = [name == "y" for name, _ in INTEGRATOR_LAGS.features]
    shifted = x + np.where(is_output, 1e3, 0.0)
    np.testing.assert_allclose(candidate.predict(shifted), candidate.predict(x), atol=1e-8)
    assert candidate.integrates
    assert not random_candidate(INTEGRATOR_LAGS).integrates
    length_scales = integrator_fit.report["length_scales"]
    assert list(length_scales) == ["y[k-1]", "y[k-2]", "u[k-1]", "u[k-2]"]


def test_range_of_an_integrator_is_wider_by_that_of_the_samples(integrator_record, integrator_fit):
    segment = segment_of(INTEGRATOR_LAGS, integrator_record)
    low = segment.values.min()
    high = segment.values.max()
    expected = (2.5 * low - 1.5 * high, 2.5 * high - 1.5 * low)
    assert limits_of(integrator_fit.candidate, [segment]) == pytest.approx(expected)
    assert not find_runaway(integrator_fit.candidate, [segment])


def test_model_of_an_integrator_simulates_other_levels(integrator_record, integrator_fit):
    y = integrator_record["y"]
    far = segment_of(INTEGRATOR_LAGS, {"y": y + 1e3, "u": integrator_record["u"]})
    candidate = replace(integrator_fit.candidate, bounds=(0.0, 2e3))
    error = candidate.simulate(far) - far.values
    assert np.sqrt(np.mean(error**2)) < 0.05 * np.std(y)


def test_plant_that_does_not_integrate_is_refused():
    narx = KINDS_OF_LAGS["change"]
    segment = segment_of(narx, first_order_record(200))
    with pytest.raises(Refusal, match="no integrator"):
        difference_search().fit([segment], narx, 10, 0, NO_LIMITS)


def test_differences_of_a_single_lag_are_refused(integrator_record):
    segment = segment_of(SIMPLE_LAGS, integrator_record)
    with pytest.raises(Refusal, match="at least two lags"):
        difference_search().fit([segment], SIMPLE_LAGS, 10, 0, NO_LIMITS)


# --- other refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": []}, "stationary kernels"),
        ({"blocks": [1, 2]}, "blocks"),
        ({"regularisation": -1.0}, "regularisation"),
    ],
    ids=["kernels", "blocks", "regularisation"],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ProfileSearch(**settings)


def test_output_that_does_not_vary_is_refused():
    segment = segment_of(SIMPLE_LAGS, constant_record())
    with pytest.raises(ValueError, match="'y' does not vary"):
        QUICK_SEARCH.fit([segment], SIMPLE_LAGS, 10, 0, NO_LIMITS)
