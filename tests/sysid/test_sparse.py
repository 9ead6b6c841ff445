"""Sparse GPs: dense formulas, finite differences, the exact GP; training; memory; wrong values."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import NaiveGP, covariance, finite_differences
from sysid import (
    Approximation,
    InducingPoints,
    Linear,
    Matern52,
    MaximumAPosteriori,
    MaximumLikelihood,
    Product,
    SparseGP,
    SquaredExponential,
    Sum,
    fit_sparse,
    log_marginal_likelihood,
)
from sysid.gp import sparse

TRAINING = MaximumLikelihood(n_initial=30, restarts=2)
SMOOTH = SquaredExponential(1.0, [1.0, 1.0])
LINEAR = Linear(0.5, [1.5, 0.5])

each_approximation = pytest.mark.parametrize("approximation", list(Approximation))
a_dozen_examples = settings(deadline=None, derandomize=True, max_examples=12)
random_cases = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(1, 30),
    "m": st.integers(1, 8),
    "p": st.integers(1, 3),
    "log_noise": st.floats(-3, 1),
    "jitter": st.sampled_from([1e-5, 1e-3]),
}


def random_case(seed, n, m, p, log_noise):
    """Return a kernel, a noise variance, m inducing points (m, p), n inputs and n targets."""
    rng = np.random.default_rng(seed)
    kernel = SquaredExponential(10 ** rng.uniform(-2, 2), rng.uniform(0.5, 3.0, size=p))
    x = rng.uniform(-2, 2, size=(n, p))
    points = rng.uniform(-2, 2, size=(m, p))
    noise = rng.normal(size=n) * np.sqrt(10**log_noise)
    y = np.sqrt(kernel.variance) * (np.sin(x.sum(axis=1)) + noise)
    return kernel, kernel.variance * 10**log_noise, points, x, y


def separated_case():
    """Return a kernel, a noise variance, inputs and targets whose covariance needs no jitter."""
    rng = np.random.default_rng(5)
    x = np.linspace(-6, 6, 25)[:, None] + rng.uniform(-0.05, 0.05, size=(25, 1))
    y = np.sin(x[:, 0]) + 0.2 * rng.normal(size=25)
    return SquaredExponential(1.7, [0.6]), 0.03, x, y


def dense(prior, x, y, new):
    """Return objective, mean and latent variance by n x n inverses, as the papers print them."""
    kernel = prior.kernel
    z = prior.points
    s2 = prior.noise_variance
    kuu = covariance(kernel, z, z)
    kuu += prior.jitter * np.mean(np.diag(kuu)) * np.eye(len(z))
    kuf = covariance(kernel, z, x)
    kus = covariance(kernel, z, new)
    q = kuf.T @ np.linalg.solve(kuu, kuf)
    cross = kus.T @ np.linalg.solve(kuu, kuf)
    unexplained = np.diag(covariance(kernel, x, x)) - np.diag(q)
    if prior.approximation is Approximation.fitc:
        ky = q + np.diag(unexplained + s2)
        penalty = 0.0
    else:
        ky = q + s2 * np.eye(len(x))
        penalty = unexplained.sum() / (2 * s2)
    _, log_determinant = np.linalg.slogdet(ky)
    misfit = y @ np.linalg.solve(ky, y)
    log_density = -0.5 * (misfit + log_determinant + len(y) * np.log(2 * np.pi))
    mean = cross @ np.linalg.solve(ky, y)
    prior_variance = np.diag(covariance(kernel, new, new))
    variance = prior_variance - np.diag(cross @ np.linalg.solve(ky, cross.T))
    return log_density - penalty, mean, variance


# --- objective and posterior ----------------------------------------------------------------------


@each_approximation
@given(**random_cases)
@a_dozen_examples
def test_objective_and_posterior_are_those_of_the_dense_formulas(
    approximation, seed, n, m, p, log_noise, jitter
):
    kernel, noise_variance, points, x, y = random_case(seed, n, m, p, log_noise)
    prior = InducingPoints(kernel, noise_variance, points, approximation, jitter, block_size=7)
    new = np.random.default_rng(seed + 1).uniform(-3, 3, size=(15, p))
    expected_objective, expected_mean, expected_variance = dense(prior, x, y, new)
    model = SparseGP.condition(prior, x, y)
    objective, _, _ = prior.log_likelihood(x, y)
    assert objective == model.posterior.log_likelihood
    assert objective == pytest.approx(expected_objective, rel=1e-7, abs=1e-6)

    mean, variance = model.predict(new)
    mean_tolerance = 1e-6 * np.abs(y).max()
    variance_tolerance = 1e-7 * kernel.variance
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-6, atol=mean_tolerance)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-6, atol=variance_tolerance)


@each_approximation
@given(**random_cases)
@a_dozen_examples
def test_gradient_is_that_of_finite_differences(approximation, seed, n, m, p, log_noise, jitter):
    """With respect to the hyper-parameters, the noise variance and the inducing points."""
    kernel, noise_variance, points, x, y = random_case(seed, n, m, p, log_noise)
    prior = InducingPoints(kernel, noise_variance, points, approximation, jitter, block_size=7)

    def objective(values):
        logs = values[: p + 1]
        log_noise_variance = values[p + 1]
        moved = values[p + 2 :].reshape(m, p)
        changed = replace(
            prior,
            kernel=kernel.with_log_hyperparameters(logs),
            noise_variance=np.exp(log_noise_variance),
            points=moved,
            block_size=512,
        )
        return changed.posterior(x, y).log_likelihood

    logs = kernel.log_hyperparameters()
    start = np.concatenate([logs, [np.log(noise_variance)], points.ravel()])
    numerical = finite_differences(objective, start, 1e-4)
    _, gradient, point_gradient = prior.log_likelihood(x, y)
    whole_gradient = np.append(gradient, point_gradient.ravel())
    tolerance = 1e-6 * max(1.0, np.abs(numerical).max())
    np.testing.assert_allclose(whole_gradient, numerical, rtol=1e-4, atol=tolerance)


@each_approximation
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(Matern52(2.0, [1.0, 2.0]), id="matern_52"),
        pytest.param(Sum([LINEAR, SMOOTH]), id="sum"),
        pytest.param(Product([LINEAR, SMOOTH]), id="product"),
    ],
)
def test_objective_and_gradient_of_every_kernel(approximation, kernel):
    _, _, points, x, y = random_case(3, 40, 6, 2, -1.0)
    prior = InducingPoints(kernel, 0.2, points, approximation, jitter=1e-3, block_size=16)

    def objective(values):
        changed = replace(
            prior,
            kernel=kernel.with_log_hyperparameters(values[:-1]),
            noise_variance=np.exp(values[-1]),
        )
        return changed.posterior(x, y).log_likelihood

    start = np.append(kernel.log_hyperparameters(), np.log(0.2))
    numerical = finite_differences(objective, start, 1e-4)
    expected, _, _ = dense(prior, x, y, x)
    value, gradient, point_gradient = prior.log_likelihood(x, y)
    tolerance = 1e-6 * np.abs(numerical).max()
    assert value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=tolerance)
    has_point_gradient = point_gradient is not None
    assert has_point_gradient == isinstance(kernel, Matern52)


@each_approximation
def test_inducing_points_at_the_data_give_the_exact_gp(approximation):
    kernel, noise_variance, x, y = separated_case()
    prior = InducingPoints(kernel, noise_variance, x, approximation, jitter=0.0)
    exact = log_marginal_likelihood(kernel, noise_variance, x, y)
    value, gradient, point_gradient = prior.log_likelihood(x, y)
    assert value == pytest.approx(exact.value, rel=1e-10)
    np.testing.assert_allclose(gradient, exact.gradient, rtol=1e-7)

    new = np.linspace(-8, 8, 50)[:, None]
    expected = NaiveGP(kernel, noise_variance, x, y).predict(new)
    predicted = SparseGP.condition(prior, x, y).predict(new)
    np.testing.assert_allclose(predicted, expected, rtol=1e-8, atol=1e-9)
    if approximation is Approximation.vfe:  # the bound is tight: no point wants to move
        np.testing.assert_allclose(point_gradient, 0.0, atol=1e-8)


@each_approximation
@pytest.mark.parametrize(
    ("block_size", "offset"),
    [(1, 0.0), (7, 0.0), (512, 2.0**20)],
    ids=["blocks_of_one", "blocks_of_seven", "offset"],
)
def test_block_size_and_an_offset_of_the_features_do_not_matter(approximation, block_size, offset):
    """The features are rounded so that the offset is added without a rounding error."""
    kernel, noise_variance, points, x, y = random_case(7, 30, 6, 2, -1.0)
    x = np.round(x * 2.0**20) / 2.0**20
    points = np.round(points * 2.0**20) / 2.0**20
    prior = InducingPoints(kernel, noise_variance, points, approximation, block_size=512)
    expected = prior.log_likelihood(x, y)
    expected_prediction = SparseGP.condition(prior, x, y).predict(x)

    prior = replace(prior, points=points + offset, block_size=block_size)
    likelihood = prior.log_likelihood(x + offset, y)
    prediction = SparseGP.condition(prior, x + offset, y).predict(x + offset)
    assert likelihood.value == pytest.approx(expected.value, rel=1e-11)
    np.testing.assert_allclose(likelihood.gradient, expected.gradient, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        likelihood.point_gradient, expected.point_gradient, rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(prediction, expected_prediction, rtol=1e-8, atol=1e-10)


def test_variances_that_rounding_makes_negative_are_reported():
    _, _, x, y = separated_case()
    prior = InducingPoints(SquaredExponential(1.7, [0.4]), 1e-18, x, jitter=0.0)
    with pytest.warns(RuntimeWarning, match=r"\d+ of 25 variances"):
        _, variance = SparseGP.condition(prior, x, y).predict(x)
    assert variance.min() == 0.0
    assert variance.max() < 1e-12


@each_approximation
def test_covariances_that_are_kept_for_the_second_pass_change_no_bit(approximation, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    y = rng.normal(size=90)
    kernel = SquaredExponential(1.0, [1.0, 2.0])
    prior = InducingPoints(kernel, 0.1, x[:7], approximation, block_size=20)
    n_covariances = 90 * 7
    monkeypatch.setattr(sparse, "MAX_KEPT_COVARIANCES", n_covariances)
    with_kept = prior.log_likelihood(x, y)
    monkeypatch.setattr(sparse, "MAX_KEPT_COVARIANCES", n_covariances - 1)
    computed_again = prior.log_likelihood(x, y)
    assert with_kept.value == computed_again.value
    np.testing.assert_array_equal(with_kept.gradient, computed_again.gradient)
    np.testing.assert_array_equal(with_kept.point_gradient, computed_again.point_gradient)


def test_memory_does_not_grow_with_samples_times_inducing_points():
    n = 41_000
    m = 50
    assert n * m > sparse.MAX_KEPT_COVARIANCES
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1))
    y = rng.normal(size=n)
    points = rng.normal(size=(m, 1))
    prior = InducingPoints(SquaredExponential(1.0, [1.0]), 0.1, points, block_size=m)
    prior.log_likelihood(x[:m], y[:m])  # compiles what would count as memory
    tracemalloc.start()
    prior.log_likelihood(x, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    bytes_of_all_covariances = n * m * 8
    assert peak < 0.25 * bytes_of_all_covariances


# --- training -------------------------------------------------------------------------------------


def noisy_sine(n=80):
    """Return n random inputs (n, 1) and the noisy values of a sine."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, size=(n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=n)


def test_trained_bound_comes_close_to_the_likelihood_of_the_exact_gp():
    x, y = noisy_sine()
    exact = MaximumLikelihood(n_initial=80, restarts=2).train(x, y, seed=0)
    fit = fit_sparse(x, y, n_inducing=12, training=TRAINING)
    prior = fit.model.prior
    assert fit.converged
    assert fit.warnings == ()
    assert fit.objective > exact.log_likelihood - 0.1
    assert fit.objective <= exact.log_likelihood + 1e-6
    np.testing.assert_allclose(prior.kernel.length_scales, exact.kernel.length_scales, rtol=0.02)
    assert fit.model.noise_variance == pytest.approx(exact.noise_variance, rel=0.02)
    assert prior.approximation is Approximation.vfe


@each_approximation
def test_training_ends_where_the_gradient_vanishes_and_moves_the_points(approximation):
    x, y = noisy_sine(60)
    options = {"n_inducing": 4, "approximation": approximation, "training": TRAINING}
    fit = fit_sparse(x, y, max_iterations=500, **options)
    one_step = fit_sparse(x, y, max_iterations=1, **options)
    objective, gradient, point_gradient = fit.model.prior.log_likelihood(x, y)
    assert fit.converged
    assert fit.objective == objective
    assert fit.objective == fit.model.posterior.log_likelihood
    assert np.abs(gradient).max() < 0.05
    assert np.abs(point_gradient).max() < 0.05
    assert fit.objective > one_step.objective + 1.0
    assert np.abs(fit.model.prior.points - one_step.model.prior.points).max() > 0.05


def test_the_start_is_the_training_on_a_random_subset_of_the_seed():
    calls = []

    class NotedTraining(MaximumLikelihood):
        def train(self, inputs, targets, seed):
            calls.append((len(inputs), len(targets), seed))
            return super().train(inputs, targets, seed)

    x, y = noisy_sine()

    def fit_from_subset(n_initial, seed):
        training = NotedTraining(n_initial=n_initial, restarts=1)
        options = {"n_inducing": 6, "max_iterations": 3}
        return fit_sparse(x, y, training=training, seed=seed, **options)

    first = fit_from_subset(20, seed=9)
    again = fit_from_subset(20, seed=9)
    all_samples = fit_from_subset(500, seed=1)
    points = first.model.prior.points
    assert calls == [(20, 20, 9), (20, 20, 9), (80, 80, 1)]
    assert first.objective == again.objective
    np.testing.assert_array_equal(points, again.model.prior.points)
    assert np.abs(points - all_samples.model.prior.points).max() > 1e-3


def test_units_scale_out():
    """With a constant feature and every sample twice."""
    sine_x, sine_y = noisy_sine(40)
    with_constant = np.column_stack([sine_x, np.full(40, 3.0)])
    x = np.repeat(with_constant, 2, axis=0)
    y = np.repeat(sine_y, 2)
    x_factor = 2.0**20
    y_factor = 2.0**-10
    fit = fit_sparse(x, y, n_inducing=8, training=TRAINING)
    scaled = fit_sparse(x * x_factor, y * y_factor, n_inducing=8, training=TRAINING)
    points = scaled.model.prior.points / x_factor
    objective = fit.objective - len(y) * np.log(y_factor)
    noise_variance = scaled.model.noise_variance / y_factor**2
    np.testing.assert_allclose(points, fit.model.prior.points, rtol=1e-3, atol=1e-3)
    assert scaled.objective == pytest.approx(objective, abs=0.01)
    assert noise_variance == pytest.approx(fit.model.noise_variance, rel=1e-2)


def power_of_subset(y):
    """Return the mean square of the thirty targets of which the hyper-parameters are trained."""
    subset = np.random.default_rng(0).permutation(len(y))[:30]
    return np.mean(y[subset] ** 2)


def test_a_prior_of_the_training_holds():
    x, y = noisy_sine()
    training = MaximumAPosteriori(
        n_initial=30, restarts=1, noise_prior_median=0.5, noise_prior_std=1e-3
    )
    fit = fit_sparse(x, y, n_inducing=6, training=training)
    assert fit.model.noise_variance == pytest.approx(0.5 * power_of_subset(y), rel=0.02)


def test_a_bound_of_the_training_holds_and_is_reported_as_is_an_early_end():
    x, y = noisy_sine()
    training = MaximumLikelihood(n_initial=30, restarts=1, variance_bounds=(0.1, 0.2))
    fit = fit_sparse(x, y, n_inducing=6, training=training, max_iterations=3)
    assert not fit.converged
    assert fit.n_iterations <= 3
    assert fit.model.prior.kernel.variance <= 0.2 * power_of_subset(y) * (1 + 1e-9)
    assert fit.warnings[0] == "signal variance at its upper bound"
    assert "without convergence" in fit.warnings[-1]


def test_training_stops_where_ten_iterations_gain_too_little():
    x, y = noisy_sine()
    options = {"n_inducing": 6, "training": TRAINING}
    tolerance = 0.05
    fit = fit_sparse(x, y, tolerance=tolerance, **options)
    n_steps = fit.n_iterations
    n_steps_to_the_end = fit_sparse(x, y, **options).n_iterations
    assert 10 < n_steps < n_steps_to_the_end
    assert fit.converged
    assert fit.warnings == ()

    def objective_after(n_iterations):
        return fit_sparse(x, y, max_iterations=n_iterations, **options).objective

    last_objective = objective_after(n_steps)
    last_gain = last_objective - objective_after(n_steps - 10)
    gain_one_step_earlier = objective_after(n_steps - 1) - objective_after(n_steps - 11)
    assert last_objective == fit.objective
    assert last_gain < tolerance * len(x)
    assert gain_one_step_earlier >= tolerance * len(x)


# --- wrong values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("noise_variance", 0.0, id="noise_variance_of_zero"),
        pytest.param("noise_variance", np.nan, id="noise_variance_of_nan"),
        pytest.param("jitter", -1e-8, id="negative_jitter"),
        pytest.param("jitter", np.nan, id="jitter_of_nan"),
        pytest.param("jitter", 1.0, id="large_jitter"),
        pytest.param("block_size", 0, id="block_size_of_zero"),
        pytest.param("block_size", True, id="block_size_of_true"),
        pytest.param("points", np.empty((0, 2)), id="no_points"),
        pytest.param("points", np.ones((3, 1)), id="points_with_one_feature"),
        pytest.param("points", np.full((3, 2), np.nan), id="points_of_nan"),
        pytest.param("kernel", SquaredExponential(), id="prototype"),
        pytest.param("kernel", "matern", id="kernel_as_text"),
    ],
)
def test_wrong_settings_are_refused(name, value):
    settings = {"kernel": SMOOTH, "noise_variance": 0.1, "points": np.eye(2)}
    settings[name] = value
    with pytest.raises((TypeError, ValueError), match=f"InducingPoints: {name}"):
        InducingPoints(**settings)


def test_inducing_points_cannot_be_changed_from_outside():
    points = np.eye(2)
    prior = InducingPoints(SMOOTH, 0.1, points)
    points[:] = 7.0
    np.testing.assert_array_equal(prior.points, np.eye(2))
    assert not prior.points.flags.writeable


@pytest.mark.parametrize("method", ["posterior", "log_likelihood"])
@pytest.mark.parametrize(
    ("x", "y", "word"),
    [
        pytest.param(np.empty((0, 2)), [], "inputs", id="no_samples"),
        pytest.param(np.ones((4, 3)), np.ones(4), "inputs", id="three_features"),
        pytest.param(np.ones((4, 2)), np.ones(5), "targets", id="too_many_targets"),
        pytest.param(np.ones((2, 2)), [1.0, np.inf], "targets", id="target_of_infinity"),
    ],
)
def test_wrong_samples_are_refused(method, x, y, word):
    prior = InducingPoints(SMOOTH, 0.1, np.eye(2))
    with pytest.raises(ValueError, match=word):
        getattr(prior, method)(x, y)


def test_a_prediction_needs_a_matrix_that_may_be_empty():
    prior = InducingPoints(SMOOTH, 0.1, np.eye(2))
    model = SparseGP.condition(prior, np.ones((4, 2)), np.ones(4))
    mean, _ = model.predict(np.empty((0, 2)))
    assert mean.shape == (0,)
    with pytest.raises(ValueError, match="inputs"):
        model.predict(np.ones(2))


def test_inducing_points_at_one_place_need_a_jitter():
    prior = InducingPoints(SquaredExponential(1.0, [1.0]), 0.1, np.zeros((2, 1)), jitter=0.0)
    with pytest.raises(np.linalg.LinAlgError, match="2 inducing points with jitter 0"):
        prior.posterior(np.ones((3, 1)), np.ones(3))


@pytest.mark.parametrize(
    ("argument", "value", "name"),
    [
        pytest.param("n_inducing", 0, "n_inducing", id="no_inducing_points"),
        pytest.param("n_inducing", 2.5, "n_inducing", id="half_an_inducing_point"),
        pytest.param("n_inducing", 11, "n_inducing", id="more_than_distinct_samples"),
        pytest.param("tolerance", -1e-4, "tolerance", id="negative_tolerance"),
        pytest.param("tolerance", np.nan, "tolerance", id="tolerance_of_nan"),
        pytest.param("tolerance", np.inf, "tolerance", id="tolerance_of_infinity"),
        pytest.param("max_iterations", 0, "max_iterations", id="no_iterations"),
        pytest.param("inputs", np.ones(20), "inputs", id="inputs_as_vector"),
        pytest.param("inputs", np.full((20, 1), np.nan), "inputs", id="inputs_of_nan"),
        pytest.param("targets", np.ones(19), "targets", id="too_few_targets"),
        pytest.param("jitter", 2.0, "jitter", id="large_jitter"),
        pytest.param(
            "training",
            MaximumLikelihood(kernel=Linear()),
            r"training\.kernel",
            id="kernel_without_point_gradient",
        ),
    ],
)
def test_training_refuses_wrong_arguments(argument, value, name):
    arguments = {
        "inputs": np.repeat(np.arange(10.0), 2)[:, None],
        "targets": np.ones(20),
        "n_inducing": 3,
        "training": TRAINING,
    }
    arguments[argument] = value
    with pytest.raises((TypeError, ValueError), match=name):
        fit_sparse(**arguments)


@each_approximation
@pytest.mark.parametrize("unit", [2.0**-220, 2.0**220], ids=["tiny", "huge"])
def test_the_likelihood_does_not_depend_on_the_unit_of_the_target(approximation, unit):
    """Its fourth power is near the ends of the range of a float."""
    kernel, noise_variance, points, x, y = random_case(3, 20, 5, 2, -1)
    expected = InducingPoints(kernel, noise_variance, points, approximation).log_likelihood(x, y)
    scaled_kernel = replace(kernel, variance=kernel.variance * unit**2)
    prior = InducingPoints(scaled_kernel, noise_variance * unit**2, points, approximation)
    found = prior.log_likelihood(x, y * unit)
    assert found.value == pytest.approx(expected.value - len(y) * np.log(unit), rel=1e-12)
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-9)
