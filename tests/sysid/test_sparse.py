"""Sparse GPs: against dense formulas, finite differences, GPflow and the exact GP; training; memory; errors."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import COMPILED, NaiveGP

from sysid import SquaredExponential
from sysid.gp import log_marginal_likelihood
from sysid.inducing import Approximation, InducingPoints
from sysid.sparse import SparseGP, _k_means, _lloyd, _SparseProblem, fit_sparse
from sysid.training import MarginalLikelihoodProblem, MaximumAPosteriori, MaximumLikelihood

REFERENCE = json.loads((Path(__file__).parent / "sparse_reference" / "values.json").read_text(encoding="utf-8"))
BOTH = pytest.mark.parametrize("approximation", list(Approximation))
START = MaximumLikelihood(n_initial=30, restarts=2)

thorough = settings(deadline=None, derandomize=True, max_examples=30)
cases = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(1, 30),
    "m": st.integers(1, 8),
    "p": st.integers(1, 3),
    "log_noise": st.floats(-3, 1),
    "jitter": st.sampled_from([1e-8, 1e-6, 1e-3]),
}


def random_case(seed, n, m, p, log_noise):
    rng = np.random.default_rng(seed)
    kernel = SquaredExponential(10 ** rng.uniform(-2, 2), rng.uniform(0.5, 3.0, size=p))
    x, points = rng.uniform(-2, 2, size=(n, p)), rng.uniform(-2, 2, size=(m, p))
    y = np.sqrt(kernel.variance) * (np.sin(x.sum(axis=1)) + rng.normal(size=n) * np.sqrt(10**log_noise))
    return kernel, kernel.variance * 10**log_noise, points, x, y


def squared_exponential(kernel, a, b):
    difference = (a[:, None] - b[None]) / np.asarray(kernel.length_scales)
    return kernel.variance * np.exp(-0.5 * (difference**2).sum(axis=2))


def dense(prior, x, y, new):
    """Objective, mean and latent variance with n x n inverses, as the papers print them."""
    kernel, z, s2 = prior.kernel, prior.points, prior.noise_variance
    kuu = squared_exponential(kernel, z, z) + prior.jitter * kernel.variance * np.eye(len(z))
    kuf, kus = squared_exponential(kernel, z, x), squared_exponential(kernel, z, new)
    q, cross = kuf.T @ np.linalg.solve(kuu, kuf), kus.T @ np.linalg.solve(kuu, kuf)
    unexplained = kernel.variance - np.diag(q)
    if prior.approximation is Approximation.fitc:
        covariance, penalty = q + np.diag(unexplained + s2), 0.0
    else:
        covariance, penalty = q + s2 * np.eye(len(x)), unexplained.sum() / (2 * s2)
    quadratic = y @ np.linalg.solve(covariance, y)
    log_density = -0.5 * (quadratic + np.linalg.slogdet(covariance)[1] + len(y) * np.log(2 * np.pi))
    variance = kernel.variance - np.diag(cross @ np.linalg.solve(covariance, cross.T))
    return log_density - penalty, cross @ np.linalg.solve(covariance, y), variance


# --- objective and posterior ----------------------------------------------------------------------


@BOTH
@given(**cases)
@thorough
def test_objective_and_posterior_are_those_of_the_dense_formulas(approximation, seed, n, m, p, log_noise, jitter):
    kernel, noise_variance, points, x, y = random_case(seed, n, m, p, log_noise)
    prior = InducingPoints(kernel, noise_variance, points, approximation, max(jitter, 1e-6), block_size=7)
    new = np.random.default_rng(seed + 1).uniform(-3, 3, size=(15, p))
    objective, mean, variance = dense(prior, x, y, new)
    model = SparseGP.condition(prior, x, y)
    assert model.posterior.log_likelihood == pytest.approx(objective, rel=1e-7, abs=1e-6)
    assert prior.log_likelihood(x, y).value == model.posterior.log_likelihood
    np.testing.assert_allclose(model.predict(new)[0], mean, rtol=1e-6, atol=1e-6 * np.abs(y).max())
    np.testing.assert_allclose(model.predict(new)[1], variance, rtol=1e-6, atol=1e-7 * kernel.variance)


@BOTH
@given(**cases)
@thorough
def test_gradients_are_those_of_finite_differences(approximation, seed, n, m, p, log_noise, jitter):
    kernel, noise_variance, points, x, y = random_case(seed, n, m, p, log_noise)
    at = np.concatenate([kernel.log_hyperparameters(), [np.log(noise_variance)], points.ravel()])

    def prior(values):
        new = kernel.with_log_hyperparameters(values[: p + 1])
        z = values[p + 2 :].reshape(m, p)
        return InducingPoints(new, np.exp(values[p + 1]), z, approximation, max(jitter, 1e-5), block_size=11)

    h = 1e-4
    numerical = [  # fourth order
        np.dot([8, -8, -1, 1], [prior(at + s * d).posterior(x, y).log_likelihood for s in (1, -1, 2, -2)]) / (12 * h)
        for d in h * np.eye(at.size)
    ]
    _, gradient, moved = prior(at).log_likelihood(x, y)
    found = np.append(gradient, moved.ravel())
    np.testing.assert_allclose(found, numerical, rtol=1e-4, atol=1e-6 * max(1.0, np.abs(numerical).max()))


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: f"{case['approximation']}-{case['variance']}")
def test_values_are_those_of_gpflow(case):
    x, y, points, new = (np.array(REFERENCE[name]) for name in ("inputs", "targets", "points", "new"))
    kernel = SquaredExponential(case["variance"], case["length_scales"])
    approximation = Approximation[case["approximation"]]
    prior = InducingPoints(kernel, case["noise_variance"], points, approximation, case["jitter"])
    value, gradient, moved = prior.log_likelihood(x, y)
    assert value == pytest.approx(case["objective"], rel=1e-10)
    np.testing.assert_allclose(moved, case["point_gradient"], rtol=1e-7, atol=1e-7)
    first = 0 if case["jitter"] == 0 else 1  # their jitter does not follow the variance
    np.testing.assert_allclose(gradient[first:], case["gradient"][first:], rtol=1e-8, atol=1e-8)
    mean, variance = SparseGP.condition(prior, x, y).predict(new)
    np.testing.assert_allclose(mean, case["mean"], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(variance, case["latent_variance"], rtol=1e-9, atol=1e-11)


def separated_case(n=25):
    """Samples on a grid with jitter of their own, far enough apart for no jitter on the covariance."""
    rng = np.random.default_rng(5)
    x = np.linspace(-6, 6, n)[:, None] + rng.uniform(-0.05, 0.05, size=(n, 1))
    return SquaredExponential(1.7, [0.6]), 0.03, x, np.sin(x[:, 0]) + 0.2 * rng.normal(size=n)


@BOTH
def test_inducing_points_at_the_data_give_the_exact_gp(approximation):
    kernel, noise_variance, x, y = separated_case()
    prior = InducingPoints(kernel, noise_variance, x, approximation, jitter=0.0)
    exact = log_marginal_likelihood(kernel, noise_variance, x, y)
    value, gradient, moved = prior.log_likelihood(x, y)
    assert value == pytest.approx(exact.value, rel=1e-10)
    np.testing.assert_allclose(gradient, exact.gradient, rtol=1e-7)
    new = np.linspace(-8, 8, 50)[:, None]
    mean, variance = SparseGP.condition(prior, x, y).predict(new)
    theirs = NaiveGP(kernel.variance, kernel.length_scales, noise_variance, x, y).predict(new)
    np.testing.assert_allclose(mean, theirs[0], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(variance, theirs[1], rtol=1e-8, atol=1e-9)
    if approximation is Approximation.vfe:  # the bound is tight: no point wants to move
        np.testing.assert_allclose(moved, 0.0, atol=1e-8)


@given(**cases)
@thorough
def test_vfe_is_a_lower_bound_that_more_points_never_lower(seed, n, m, p, log_noise, jitter):
    kernel, noise_variance, points, x, y = random_case(seed, n, m, p, log_noise)
    exact = log_marginal_likelihood(kernel, noise_variance, x, y).value
    bounds = [
        InducingPoints(kernel, noise_variance, points[:k], jitter=jitter).posterior(x, y).log_likelihood
        for k in range(1, m + 1)
    ]
    slack = 1e-6 * max(1.0, abs(exact), *np.abs(bounds))
    assert bounds[-1] <= exact + slack
    assert np.all(np.diff(bounds) >= -slack)


@pytest.mark.parametrize("distance", [0.0, 30.0, 1000.0])
def test_covariances_of_a_block_are_those_of_the_kernel_and_whitened(distance):
    kernel, noise_variance, points, x, _ = random_case(11, 30, 6, 3, -1.0)
    points[-1] += distance * np.asarray(kernel.length_scales)
    x[:4] = points[-1] + 0.5 * x[:4]
    prior = InducingPoints(kernel, noise_variance, points, jitter=1e-3, block_size=8)
    kuu = squared_exponential(kernel, points, points) + 1e-3 * kernel.variance * np.eye(6)
    inverse = np.linalg.inv(np.linalg.cholesky(kuu))
    expected = squared_exponential(kernel, points, x)
    blocks = list(prior.blocks(prior.posterior(x, np.zeros(30)).whitening, x))
    rounding = 1e-14 * (1.0 + distance**2)
    found = np.hstack([block.cross for block in blocks])
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=1e-14 * kernel.variance)
    whitened = np.hstack([block.whitened for block in blocks])
    np.testing.assert_allclose(whitened, inverse @ found, rtol=1e-9, atol=1e-9 * np.abs(whitened).max())
    assert [block.rows.start for block in blocks] == [0, 8, 16, 24]


@BOTH
def test_block_size_does_not_matter(approximation):
    kernel, noise_variance, points, x, y = random_case(7, 30, 6, 2, -1.0)
    priors = [InducingPoints(kernel, noise_variance, points, approximation, block_size=b) for b in (1, 7, 30, 512)]
    first, *others = (prior.log_likelihood(x, y) for prior in priors)
    predictions = [SparseGP.condition(prior, x, y).predict(x) for prior in priors]
    for other, prediction in zip(others, predictions[1:], strict=True):
        assert other.value == pytest.approx(first.value, rel=1e-11)
        np.testing.assert_allclose(other.gradient, first.gradient, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(other.point_gradient, first.point_gradient, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(prediction, predictions[0], rtol=1e-8, atol=1e-10)


@BOTH
def test_an_offset_of_the_features_does_not_matter(approximation):
    kernel, noise_variance, points, x, y = random_case(8, 30, 6, 2, -1.0)
    x, points = np.round(x * 2.0**20) / 2.0**20, np.round(points * 2.0**20) / 2.0**20  # the offset is added exactly
    first, moved = (
        InducingPoints(kernel, noise_variance, points + offset, approximation).log_likelihood(x + offset, y)
        for offset in (0.0, 2.0**20)
    )
    assert moved.value == pytest.approx(first.value, rel=1e-12)
    np.testing.assert_allclose(moved.gradient, first.gradient, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(moved.point_gradient, first.point_gradient, rtol=1e-6, atol=1e-7)


def test_variances_below_zero_by_rounding_are_reported():
    _, _, x, y = separated_case()
    prior = InducingPoints(SquaredExponential(1.7, [0.4]), 1e-18, x, jitter=0.0)
    with pytest.warns(RuntimeWarning, match=r"\d+ of 25 variances were below 0 by rounding and are set to 0"):
        _, variance = SparseGP.condition(prior, x, y).predict(x)
    assert variance.min() == 0.0
    assert variance.max() < 1e-12


def test_memory_does_not_grow_with_samples_times_inducing_points():
    n, m = (40_000, 50) if COMPILED else (4000, 20)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 1)), rng.normal(size=n)
    prior = InducingPoints(SquaredExponential(1.0, [1.0]), 0.1, rng.normal(size=(m, 1)), block_size=m)
    prior.log_likelihood(x[:m], y[:m])  # compiled by now
    tracemalloc.start()
    prior.log_likelihood(x, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.25 * n * m * 8


# --- training -------------------------------------------------------------------------------------


def wave(n=80, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=(n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=n)


def test_trained_bound_comes_close_to_the_likelihood_of_the_exact_gp():
    x, y = wave()
    exact = MaximumLikelihood(n_initial=80, restarts=2).train(x, y, seed=0)
    fit = fit_sparse(x, y, n_inducing=12, training=START)
    assert fit.converged
    assert fit.warnings == ()
    assert exact.log_likelihood - 0.1 < fit.objective <= exact.log_likelihood + 1e-6
    np.testing.assert_allclose(fit.model.prior.kernel.length_scales, exact.kernel.length_scales, rtol=0.02)
    assert fit.model.noise_variance == pytest.approx(exact.noise_variance, rel=0.02)
    assert fit.model.prior.approximation is Approximation.vfe
    assert fit.n_iterations > 1
    assert 0 < fit.seconds < 60


@BOTH
def test_training_ends_where_the_gradient_vanishes_and_moves_the_points(approximation):
    x, y = wave(60)
    fit = fit_sparse(x, y, approximation=approximation, n_inducing=4, training=START, max_iterations=500)
    value, gradient, moved = fit.model.prior.log_likelihood(x, y)
    assert fit.converged
    assert fit.objective == value == fit.model.posterior.log_likelihood
    assert np.abs(np.append(gradient, moved)).max() < 0.05
    short = fit_sparse(x, y, approximation=approximation, n_inducing=4, training=START, max_iterations=1)
    assert fit.objective > short.objective + 1.0
    assert np.abs(fit.model.prior.points - short.model.prior.points).max() > 0.05
    grid = np.linspace(-2.5, 2.5, 50)[:, None]
    mean, variance = fit_sparse(x, y, approximation=approximation, n_inducing=10, training=START).model.predict(grid)
    error = np.sin(2 * grid[:, 0]) - mean
    assert np.abs(error).max() < 0.2
    assert np.mean(np.abs(error) < 3 * np.sqrt(variance)) > 0.9


def test_training_is_repeatable_and_its_seed_counts():
    x, y = wave()
    first, again, other = (
        fit_sparse(x, y, n_inducing=6, training=START, max_iterations=3, seed=seed) for seed in (0, 0, 1)
    )
    assert first.objective == again.objective
    np.testing.assert_array_equal(first.model.prior.points, again.model.prior.points)
    assert np.abs(first.model.prior.points - other.model.prior.points).max() > 1e-3


def test_units_scale_out():
    x, y = wave()
    fit = fit_sparse(x, y, n_inducing=8, training=START)
    scaled = fit_sparse(x * 2.0**20, y / 2.0**10, n_inducing=8, training=START)
    np.testing.assert_allclose(scaled.model.prior.points / 2.0**20, fit.model.prior.points, rtol=1e-3, atol=1e-3)
    assert scaled.objective == pytest.approx(fit.objective + len(y) * np.log(2.0**10), abs=0.01)
    assert scaled.model.noise_variance * 2.0**20 == pytest.approx(fit.model.noise_variance, rel=1e-2)


def test_priors_of_the_training_hold():
    x, y = wave()
    training = MaximumAPosteriori(n_initial=30, restarts=1, noise_prior_median=0.5, noise_prior_std=1e-3)
    fit = fit_sparse(x, y, n_inducing=6, training=training)
    subset = np.random.default_rng(0).permutation(len(x))[:30]
    assert fit.model.noise_variance == pytest.approx(0.5 * np.mean(y[subset] ** 2), rel=0.02)


def test_bounds_of_the_training_hold_and_are_reported_as_is_an_early_end():
    x, y = wave()
    training = MaximumLikelihood(n_initial=30, restarts=1, variance_bounds=(0.1, 0.2))
    fit = fit_sparse(x, y, n_inducing=6, training=training, max_iterations=3)
    assert not fit.converged
    assert fit.n_iterations <= 3
    subset = np.random.default_rng(0).permutation(len(x))[:30]
    assert fit.model.prior.kernel.variance <= 0.2 * np.mean(y[subset] ** 2) * (1 + 1e-9)
    assert fit.warnings[0] == "signal variance at its upper bound"
    assert "without convergence" in fit.warnings[-1]


def test_training_stops_where_ten_iterations_gain_too_little():
    x, y = wave()
    settings = {"n_inducing": 6, "training": START}
    last, tolerance = fit_sparse(x, y, **settings), 0.05
    fit = fit_sparse(x, y, **settings, tolerance=tolerance)
    steps = fit.n_iterations
    assert 10 < steps < last.n_iterations
    assert fit.converged
    assert fit.warnings == ()
    at = {
        k: fit_sparse(x, y, **settings, max_iterations=k).objective for k in (steps - 11, steps - 10, steps - 1, steps)
    }
    assert at[steps] == fit.objective
    assert at[steps] - at[steps - 10] < tolerance * len(x) <= at[steps - 1] - at[steps - 11]


def test_constant_features_and_duplicates_survive():
    x, y = wave(40)
    x = np.column_stack([x, np.full(40, 3.0)])
    fit = fit_sparse(np.repeat(x, 2, axis=0), np.repeat(y, 2), n_inducing=40, training=START, max_iterations=5)
    mean, variance = fit.model.predict(x)
    assert np.isfinite([*mean, *variance, fit.objective]).all()


def test_as_many_clusters_as_points_are_the_points():
    x = np.random.default_rng(2).normal(size=(12, 2))
    centres = _k_means(np.repeat(x, 3, axis=0), 12, np.random.default_rng(3))
    np.testing.assert_allclose(np.sort(centres, axis=0), np.sort(x, axis=0), rtol=1e-14)


def test_clusters_that_are_far_apart_are_found():
    rng = np.random.default_rng(4)
    truth = 10.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    labels = rng.integers(4, size=200)
    x = truth[labels] + rng.normal(size=(200, 2))
    centres = _k_means(x, 4, rng)
    means = np.array([x[labels == k].mean(axis=0) for k in range(4)])
    distance = np.linalg.norm(means[:, None] - centres[None], axis=2)
    np.testing.assert_allclose(distance.min(axis=1), 0.0, atol=1e-12)


def test_a_centre_without_samples_stays():
    x = np.array([[0.0], [0.2], [1.0], [1.4]])
    np.testing.assert_allclose(_lloyd(x, np.array([[0.0], [50.0], [1.5]])), [[0.1], [50.0], [1.2]], rtol=1e-14)


def test_start_is_the_training_on_a_random_subset():
    class Recorded(MaximumLikelihood):
        def train(self, inputs, targets, seed):
            seen.append((len(inputs), len(targets), seed))
            return super().train(inputs, targets, seed)

    seen = []
    x, y = wave()
    fit_sparse(x, y, n_inducing=3, training=Recorded(n_initial=20, restarts=1), max_iterations=1, seed=9)
    fit_sparse(x, y, n_inducing=3, training=Recorded(n_initial=500, restarts=1), max_iterations=1)
    assert seen == [(20, 20, 9), (80, 80, 0)]


def test_a_covariance_that_cannot_be_factorised_is_a_high_cost_and_in_the_end_an_error():
    x, y = wave(40)
    problem = _SparseProblem(MarginalLikelihoodProblem.of(START, x, y), x, y, np.ones(1), Approximation.vfe, jitter=0.0)
    value, gradient = problem.cost(np.zeros(5))  # two points in one place
    assert value == 1e25
    np.testing.assert_array_equal(gradient, np.zeros(5))
    with pytest.raises(np.linalg.LinAlgError, match=r"40 inducing points with jitter 0 is not .*: raise jitter"):
        fit_sparse(x, y, n_inducing=40, training=START, jitter=0.0)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_variance": 0.0}, "noise_variance must be positive and finite, got 0.0"),
        ({"noise_variance": np.nan}, "noise_variance must be positive"),
        ({"jitter": -1e-8}, "jitter must be from 0 to below 1, got -1e-08"),
        ({"jitter": np.nan}, "jitter must be from 0"),
        ({"block_size": 0}, "block_size must be a whole number above 0, got 0"),
        ({"block_size": True}, "block_size must be a whole number above 0, got True"),
        ({"points": np.empty((0, 2))}, "points must have at least 1 row"),
        ({"points": np.ones((3, 1))}, r"points: expected shape \(n, 2\)"),
        ({"points": np.full((3, 2), np.nan)}, "points: 6 of 6 values are not finite"),
    ],
)
def test_settings_are_checked(change, message):
    good = {"kernel": SquaredExponential(1.0, [1.0, 1.0]), "noise_variance": 0.1, "points": np.eye(2)}
    with pytest.raises(ValueError, match=f"InducingPoints: {message}"):
        InducingPoints(**good | change)


def test_another_kernel_is_refused():
    class Rough(SquaredExponential):
        pass

    with pytest.raises(TypeError, match="kernel must be a SquaredExponential, whose gradient is used, got Rough"):
        InducingPoints(Rough(1.0, [1.0]), 0.1, np.eye(1))


def test_points_cannot_be_changed_from_outside():
    points = np.eye(2)
    prior = InducingPoints(SquaredExponential(1.0, [1.0, 1.0]), 0.1, points)
    points[:] = 7.0
    np.testing.assert_array_equal(prior.points, np.eye(2))
    assert not prior.points.flags.writeable


def test_data_are_checked():
    prior = InducingPoints(SquaredExponential(1.0, [1.0, 1.0]), 0.1, np.eye(2))
    for method in (prior.posterior, prior.log_likelihood):
        with pytest.raises(ValueError, match="inputs must have at least 1 sample, got 0"):
            method(np.empty((0, 2)), [])
        with pytest.raises(ValueError, match=r"inputs: expected shape \(n, 2\)"):
            method(np.ones((4, 3)), np.ones(4))
        with pytest.raises(ValueError, match=r"targets: expected shape \(4,\), got \(5,\)"):
            method(np.ones((4, 2)), np.ones(5))
        with pytest.raises(ValueError, match="targets: 1 of 2 values are not finite"):
            method(np.ones((2, 2)), [1.0, np.inf])
    model = SparseGP.condition(prior, np.ones((4, 2)), np.ones(4))
    with pytest.raises(ValueError, match=r"inputs: expected shape \(n, 2\), .*x\[None, :\]"):
        model.predict(np.ones(2))
    assert model.predict(np.empty((0, 2)))[0].shape == (0,)


def test_a_singular_covariance_without_jitter_is_refused():
    prior = InducingPoints(SquaredExponential(1.0, [1.0]), 0.1, np.zeros((2, 1)), jitter=0.0)
    with pytest.raises(np.linalg.LinAlgError, match="2 inducing points with jitter 0 is not positive definite: raise"):
        prior.posterior(np.ones((3, 1)), np.ones(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_inducing": 0}, "fit_sparse: n_inducing must be a whole number of at least 1, got 0"),
        ({"n_inducing": 2.5}, "fit_sparse: n_inducing must be a whole number of at least 1, got 2.5"),
        ({"n_inducing": 11}, "fit_sparse: n_inducing must be at most 10, the distinct inputs, got 11"),
        ({"tolerance": -1e-4}, "fit_sparse: tolerance must be at least 0 and finite, got -0.0001"),
        ({"tolerance": np.nan}, "fit_sparse: tolerance must be at least 0 and finite, got nan"),
        ({"tolerance": np.inf}, "fit_sparse: tolerance must be at least 0 and finite, got inf"),
        ({"max_iterations": 0}, "fit_sparse: max_iterations must be a whole number of at least 1, got 0"),
        ({"inputs": np.ones((1, 1)), "targets": [1.0]}, "fit_sparse: inputs must have at least 2 samples, got 1"),
        ({"inputs": np.ones(20)}, r"inputs: expected shape"),
        ({"targets": np.ones(19)}, r"targets: expected shape \(20,\), got \(19,\)"),
        ({"inputs": np.full((20, 1), np.nan)}, "inputs: 20 of 20 values are not finite"),
        ({"jitter": 2.0}, "jitter must be from 0 to below 1, got 2.0"),
    ],
)
def test_training_checks_its_arguments(change, message):
    good = {"inputs": np.repeat(np.arange(10.0), 2)[:, None], "targets": np.ones(20), "n_inducing": 3}
    with pytest.raises(ValueError, match=message):
        fit_sparse(**good | {"training": START} | change)
