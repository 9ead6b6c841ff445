"""Metrics of a function and of a linear model."""

from dataclasses import replace

import numpy as np

from free_runs import EACH_KIND_OF_LAGS, linear_candidate, naive_free_run, segment_of
from sysid import LinearMean, Narx
from sysid.simulation_error.metric import gradient_metric, state_metric, whitening


def test_the_metric_is_the_scaled_outer_product_of_gradients():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 3))
    gradient = rng.standard_normal((300, 3))
    outer = gradient.T @ gradient / 300
    covariance = np.cov(x.T)
    mu = np.linalg.eigvals(covariance @ outer).real.max()
    matrix, spectrum = gradient_metric(x, gradient, spread=1.5)
    np.testing.assert_allclose(matrix.T @ matrix, outer / (1.5**2 * mu), rtol=1e-9, atol=1e-12)
    assert spectrum[0] == 1.0
    assert (np.diff(spectrum) < 0).all()
    white, _ = gradient_metric(x, gradient, spread=1.5, power=0.0)
    np.testing.assert_allclose(white.T @ white, np.linalg.inv(covariance) / 1.5**2, rtol=1e-8)
    assert gradient_metric(x, np.zeros((300, 3)), spread=1.5) is None
    assert (
        gradient_metric(np.ones((300, 3)), gradient, spread=1.5) is None
    )  # a free run that is at rest
    collinear = x[:, :2] @ np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 2.0]])
    v, _ = whitening(collinear)
    assert v.shape == (2, 3)
    np.testing.assert_allclose(np.cov((collinear @ v.T).T), np.eye(2), atol=1e-9)


@EACH_KIND_OF_LAGS
def test_the_state_of_a_linear_model_is_what_its_future_depends_on(narx):
    """Regressors that differ by what no future output feels have the same coordinates; the others
    do not.
    """
    rng = np.random.default_rng(5)
    linear = linear_candidate(narx, rng.uniform(-0.3, 0.3, narx.n_features), 0.4)
    x = rng.standard_normal((200, narx.n_features)) @ rng.standard_normal(
        (narx.n_features, narx.n_features)
    )
    state = state_metric(replace(linear, limits=(-0.1, 0.1), bounds=(-0.1, 0.1)), x)
    future = []
    ahead = 30
    for changed in np.eye(
        narx.n_features
    ):  # of a lagged value, with everything else and every later input at zero
        signals = {name: np.zeros(2 * narx.max_lag + ahead) for name in narx.signals}
        for (name, lag), value in zip(narx.features, changed, strict=True):
            signals[name][narx.max_lag - lag] += value
        change = replace(linear, mean=LinearMean(linear.mean.coefficients))
        future.append(naive_free_run(change, signals, narx.max_lag, narx.max_lag + ahead))
    future = np.array(future).T
    if len(state) == narx.n_features:
        np.testing.assert_allclose(state.T @ state, np.linalg.inv(np.cov(x.T)), rtol=1e-6)
    scale = np.linalg.norm(future @ np.linalg.cholesky(np.cov(x.T)), 2)
    _, _, directions = np.linalg.svd(state)
    unfelt = directions[len(state) :]
    assert np.linalg.norm(future @ unfelt.T) <= 0.1 * scale * np.linalg.norm(unfelt)


def test_the_state_has_as_many_coordinates_as_the_plant_however_many_the_lags():
    u, noise = np.random.default_rng(2).standard_normal((2, 2000))
    y = np.zeros(2000)
    for k in range(2, 2000):
        y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1]
    narx = Narx({"y": 5}, {"u": 12}, predict="value")
    coefficients = [1.5, -0.7, 0.0, 0.0, 0.0, 1.0, *np.zeros(11)]
    segment = segment_of(narx, {"y": y + 0.1 * noise, "u": u})
    state = state_metric(linear_candidate(narx, coefficients), segment.regressors)
    assert state.shape == (2, 17)
    used = np.isin(np.arange(17), [0, 1, 5])
    np.testing.assert_allclose(state[:, ~used], 0.0, atol=1e-6 * np.abs(state).max())
    np.testing.assert_allclose(np.cov((segment.regressors @ state.T).T), np.eye(2), atol=1e-6)
