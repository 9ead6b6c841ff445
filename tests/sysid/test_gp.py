"""Exact GP: marginal likelihood and posterior against scikit-learn, finite differences and inverses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaiveGP
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from sysid import OnlineGP, SquaredExponential
from sysid.gp import log_marginal_likelihood

thorough = settings(deadline=None, derandomize=True, max_examples=30)
cases = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(1, 30),
    "p": st.integers(1, 4),
    "log_noise": st.floats(-4, 1),
}


def random_case(seed, n, p, log_noise):
    rng = np.random.default_rng(seed)
    kernel = SquaredExponential(10 ** rng.uniform(-2, 2), rng.uniform(0.3, 3.0, size=p))
    x = rng.uniform(-2, 2, size=(n, p))
    y = np.sqrt(kernel.variance) * (np.sin(x.sum(axis=1)) + rng.normal(size=n) * np.sqrt(10**log_noise))
    return kernel, kernel.variance * 10**log_noise, x, y


def scikit_learn(kernel, noise_variance, x, y):
    theirs = ConstantKernel(kernel.variance) * RBF(kernel.length_scales)
    return GaussianProcessRegressor(theirs, alpha=noise_variance, optimizer=None).fit(x, y)


@given(**cases)
@thorough
def test_likelihood_is_that_of_scikit_learn_and_of_an_explicit_inverse(seed, n, p, log_noise):
    kernel, noise_variance, x, y = random_case(seed, n, p, log_noise)
    value = log_marginal_likelihood(kernel, noise_variance, x, y).value
    theirs = scikit_learn(kernel, noise_variance, x, y).log_marginal_likelihood()
    naive = NaiveGP(kernel.variance, kernel.length_scales, noise_variance, x, y).log_likelihood()
    assert value == pytest.approx(theirs, rel=1e-9, abs=1e-8)
    assert value == pytest.approx(naive, rel=1e-8, abs=1e-7)


@given(**cases)
@thorough
def test_gradient_is_that_of_finite_differences(seed, n, p, log_noise):
    kernel, noise_variance, x, y = random_case(seed, n, p, log_noise)
    logs = np.append(kernel.log_hyperparameters(), np.log(noise_variance))

    def value(theta):
        return log_marginal_likelihood(kernel.with_log_hyperparameters(theta[:-1]), np.exp(theta[-1]), x, y).value

    h = 1e-4
    directions = h * np.eye(p + 2)
    numerical = [  # fourth order
        (8 * (value(logs + d) - value(logs - d)) - value(logs + 2 * d) + value(logs - 2 * d)) / (12 * h)
        for d in directions
    ]
    gradient = log_marginal_likelihood(kernel, noise_variance, x, y).gradient
    assert gradient.shape == (p + 2,)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-6 * max(1.0, np.abs(numerical).max()))


def test_gradient_is_that_of_scikit_learn():
    kernel, noise_variance, x, y = random_case(3, 40, 3, -2)
    model = scikit_learn(kernel, noise_variance, x, y)
    _, theirs = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    gradient = log_marginal_likelihood(kernel, noise_variance, x, y).gradient
    np.testing.assert_allclose(gradient[:-1], theirs, rtol=1e-9)


def test_likelihood_refuses_a_singular_covariance():
    with pytest.raises(np.linalg.LinAlgError, match="covariance of 3 points is not positive definite"):
        log_marginal_likelihood(SquaredExponential(1.0, [1.0]), -0.5, np.zeros((3, 1)), np.zeros(3))


@given(**cases)
@thorough
def test_posterior_is_that_of_scikit_learn(seed, n, p, log_noise):
    kernel, noise_variance, x, y = random_case(seed, n, p, log_noise)
    points = np.random.default_rng(seed + 1).uniform(-3, 3, size=(15, p))
    model = scikit_learn(kernel, noise_variance, x, y)
    their_mean, their_covariance = model.predict(points, return_cov=True)
    mean, variance = OnlineGP(kernel, noise_variance=noise_variance, budget=max(2, n)).fit(x, y).predict(points)
    scale = 1e-9 * np.abs(y).max()
    np.testing.assert_allclose(mean, their_mean, rtol=1e-8, atol=scale)
    np.testing.assert_allclose(variance, np.diag(their_covariance), rtol=1e-8, atol=1e-9 * kernel.variance)


def test_data_set_and_stream_give_the_posterior_of_scikit_learn():
    kernel, noise_variance, x, y = random_case(4, 25, 2, -3)
    points = np.random.default_rng(5).uniform(-3, 3, size=(15, 2))
    gp = OnlineGP(kernel, noise_variance=noise_variance, budget=40)
    reports = gp.update_many(x, y)
    np.testing.assert_allclose(
        gp.predict(points)[0], scikit_learn(kernel, noise_variance, x, y).predict(points), atol=1e-8
    )
    for t in (1, 10, 24):  # the report is the prediction by what came before
        model = scikit_learn(kernel, noise_variance, x[:t], y[:t])
        mean, std = model.predict(x[[t]], return_std=True)
        assert reports[t].mean == pytest.approx(mean[0], rel=1e-8, abs=1e-9)
        assert reports[t].variance == pytest.approx(std[0] ** 2, rel=1e-8, abs=1e-9 * kernel.variance)


def test_variance_is_latent_and_noise_is_not_in_it():
    gp = OnlineGP(SquaredExponential(2.0, [1.0]), noise_variance=2.0, budget=3).fit([[0.0]], [4.0])
    mean, variance = gp.predict([[0.0], [50.0]])
    np.testing.assert_allclose(mean, [2.0, 0.0], rtol=1e-15)
    np.testing.assert_allclose(variance, [1.0, 2.0], rtol=1e-15)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_of_the_target_scale_out(factor):
    kernel, noise_variance, x, y = random_case(6, 20, 2, -2)
    points = x + 0.1
    mean, variance = OnlineGP(kernel, noise_variance=noise_variance, budget=10).fit(x, y).predict(points)
    other = SquaredExponential(kernel.variance * factor**2, kernel.length_scales)
    scaled = OnlineGP(other, noise_variance=noise_variance * factor**2, budget=10).fit(x, y * factor)
    np.testing.assert_allclose(scaled.predict(points)[0], mean * factor, rtol=1e-8, atol=1e-9 * factor)
    np.testing.assert_allclose(scaled.predict(points)[1], variance * factor**2, rtol=1e-8)
