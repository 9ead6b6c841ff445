"""Metrics of a function and of a linear model."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import EACH_KIND_OF_LAGS, linear_candidate, naive_free_run, segment_of
from sysid import LinearMean, Narx
from sysid.simulation_error.metric import gradient_metric, state_metric, whitening

# --- the metric of the gradient -------------------------------------------------------------------


@pytest.fixture(scope="module")
def regressors_and_gradient():
    """Return correlated regressors (300, 3) and the gradients (300, 3) of a function at them."""
    generator = np.random.default_rng(4)
    x = generator.standard_normal((300, 3)) @ generator.standard_normal((3, 3))
    gradient = generator.standard_normal((300, 3))
    return x, gradient


def test_metric_is_the_scaled_outer_product_of_gradients(regressors_and_gradient):
    x, gradient = regressors_and_gradient
    outer_product = gradient.T @ gradient / 300
    covariance = np.cov(x.T)
    mu = np.linalg.eigvals(covariance @ outer_product).real.max()
    matrix, spectrum = gradient_metric(x, gradient, spread=1.5)
    expected = outer_product / (1.5**2 * mu)
    np.testing.assert_allclose(matrix.T @ matrix, expected, rtol=1e-9, atol=1e-12)
    assert spectrum[0] == 1.0
    assert (np.diff(spectrum) < 0).all()


def test_power_zero_whitens_the_regressors(regressors_and_gradient):
    x, gradient = regressors_and_gradient
    matrix, _ = gradient_metric(x, gradient, spread=1.5, power=0.0)
    expected = np.linalg.inv(np.cov(x.T)) / 1.5**2
    np.testing.assert_allclose(matrix.T @ matrix, expected, rtol=1e-8)


def test_constant_function_has_no_metric(regressors_and_gradient):
    x, _ = regressors_and_gradient
    assert gradient_metric(x, np.zeros((300, 3)), spread=1.5) is None


def test_free_run_at_rest_has_no_metric(regressors_and_gradient):
    _, gradient = regressors_and_gradient
    assert gradient_metric(np.ones((300, 3)), gradient, spread=1.5) is None


def test_collinear_regressors_are_whitened_in_fewer_dimensions(regressors_and_gradient):
    x, _ = regressors_and_gradient
    collinear = x[:, :2] @ np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 2.0]])
    matrix, _ = whitening(collinear)
    assert matrix.shape == (2, 3)
    whitened = collinear @ matrix.T
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(2), atol=1e-9)


# --- the state of a linear model ------------------------------------------------------------------


def future_responses(linear, n_ahead):
    """Return the responses (n_ahead, p) of the next outputs to 1 in each feature.

    Everything else and every later input are zero.
    """
    narx = linear.narx
    homogeneous = replace(linear, mean=LinearMean(linear.mean.coefficients))
    n_samples = 2 * narx.max_lag + n_ahead
    responses = []
    for changed_name, changed_lag in narx.features:
        signals = {name: np.zeros(n_samples) for name in narx.signals}
        signals[changed_name][narx.max_lag - changed_lag] = 1.0
        first = narx.max_lag
        responses.append(naive_free_run(homogeneous, signals, first, first + n_ahead))
    return np.array(responses).T


@EACH_KIND_OF_LAGS
def test_state_of_a_linear_model_is_what_its_future_depends_on(narx):
    """Regressors with the same future outputs have the same coordinates, others do not."""
    generator = np.random.default_rng(5)
    p = narx.n_features
    linear = linear_candidate(narx, generator.uniform(-0.3, 0.3, p), 0.4)
    x = generator.standard_normal((200, p)) @ generator.standard_normal((p, p))
    limited = replace(linear, limits=(-0.1, 0.1), bounds=(-0.1, 0.1))
    state = state_metric(limited, x)

    covariance = np.cov(x.T)
    if len(state) == p:
        np.testing.assert_allclose(state.T @ state, np.linalg.inv(covariance), rtol=1e-6)
    future = future_responses(linear, 30)
    largest_response = np.linalg.norm(future @ np.linalg.cholesky(covariance), 2)
    _, _, directions = np.linalg.svd(state)
    left_out = directions[len(state) :]
    response_to_left_out = np.linalg.norm(future @ left_out.T)
    assert response_to_left_out <= 0.1 * largest_response * np.linalg.norm(left_out)


def test_state_has_as_many_coordinates_as_the_plant_however_many_the_lags():
    """The plant is ``y[k] = 1.5 y[k-1] - 0.7 y[k-2] + u[k-1]``, of second order."""
    u, noise = np.random.default_rng(2).standard_normal((2, 2000))
    y = np.zeros(2000)
    for k in range(2, 2000):
        y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1]
    narx = Narx({"y": 5}, {"u": 12}, predict="value")
    coefficients = np.zeros(17)
    coefficients[[0, 1, 5]] = 1.5, -0.7, 1.0
    segment = segment_of(narx, {"y": y + 0.1 * noise, "u": u})

    state = state_metric(linear_candidate(narx, coefficients.tolist()), segment.regressors)

    assert state.shape == (2, 17)
    largest = np.abs(state).max()
    np.testing.assert_allclose(state[:, coefficients == 0.0], 0.0, atol=1e-6 * largest)
    coordinates = segment.regressors @ state.T
    np.testing.assert_allclose(np.cov(coordinates.T), np.eye(2), atol=1e-6)
