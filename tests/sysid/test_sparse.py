"""Sparse GPs: against dense formulas, finite differences and the exact GP; training; memory;
errors.
"""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import NaiveGP, covariance, finite_differences
from sysid.gp import sparse
from sysid.gp.kernels import Linear, Matern52, Product, SquaredExponential, Sum
from sysid.gp.marginal_likelihood import log_marginal_likelihood
from sysid.gp.sparse import Approximation, InducingPoints, SparseGP, fit_sparse
from sysid.gp.training import MaximumAPosteriori, MaximumLikelihood

START = MaximumLikelihood(n_initial=30, restarts=2)
PLANE = SquaredExponential(1.0, [1.0, 1.0])
LINE = Linear(0.5, [1.5, 0.5])

both = pytest.mark.parametrize("approximation", list(Approximation))
thorough = settings(deadline=None, derandomize=True, max_examples=12)
cases = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(1, 30),
    "m": st.integers(1, 8),
    "p": st.integers(1, 3),
    "log_noise": st.floats(-3, 1),
    "jitter": st.sampled_from([1e-5, 1e-3]),
}


def random_case(seed, n, m, p, log_noise):
    rng = np.random.default_rng(seed)
    kernel = SquaredExponential(10 ** rng.uniform(-2, 2), rng.uniform(0.5, 3.0, size=p))
    x = rng.uniform(-2, 2, size=(n, p))
    points = rng.uniform(-2, 2, size=(m, p))
    y = np.sqrt(kernel.variance) * (
        np.sin(x.sum(axis=1)) + rng.normal(size=n) * np.sqrt(10**log_noise)
    )
    return kernel, kernel.variance * 10**log_noise, points, x, y


def separated_case(n=25):
    """Samples far enough apart for no jitter on the covariance."""
    rng = np.random.default_rng(5)
    x = np.linspace(-6, 6, n)[:, None] + rng.uniform(-0.05, 0.05, size=(n, 1))
    return (
        SquaredExponential(1.7, [0.6]),
        0.03,
        x,
        np.sin(x[:, 0]) + 0.2 * rng.normal(size=n),
    )


def dense(prior, x, y, new):
    """Objective, mean and latent variance with n x n inverses, as the papers print them."""
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
    log_density = -0.5 * (
        y @ np.linalg.solve(ky, y) + np.linalg.slogdet(ky)[1] + len(y) * np.log(2 * np.pi)
    )
    variance = np.diag(covariance(kernel, new, new)) - np.diag(cross @ np.linalg.solve(ky, cross.T))
    return log_density - penalty, cross @ np.linalg.solve(ky, y), variance


# --- objective and posterior ------------------------------------------------------------------------


@both
@given(**cases)
@thorough
def test_objective_posterior_and_gradient_are_those_of_the_dense_formulas(
    approximation, seed, n, m, p, log_noise, jitter
):
    kernel, noise_variance, points, x, y = random_case(seed, n, m, p, log_noise)
    prior = InducingPoints(kernel, noise_variance, points, approximation, jitter, block_size=7)
    new = np.random.default_rng(seed + 1).uniform(-3, 3, size=(15, p))
    objective, mean, variance = dense(prior, x, y, new)
    model = SparseGP.condition(prior, x, y)
    value, gradient, moved = prior.log_likelihood(x, y)
    assert value == model.posterior.log_likelihood == pytest.approx(objective, rel=1e-7, abs=1e-6)
    np.testing.assert_allclose(model.predict(new)[0], mean, rtol=1e-6, atol=1e-6 * np.abs(y).max())
    np.testing.assert_allclose(
        model.predict(new)[1], variance, rtol=1e-6, atol=1e-7 * kernel.variance
    )

    def at(values):
        changed = kernel.with_log_hyperparameters(values[: p + 1])
        z = values[p + 2 :].reshape(m, p)
        return (
            InducingPoints(changed, np.exp(values[p + 1]), z, approximation, jitter)
            .posterior(x, y)
            .log_likelihood
        )

    start = np.concatenate([kernel.log_hyperparameters(), [np.log(noise_variance)], points.ravel()])
    numerical = finite_differences(at, start, 1e-4)
    found = np.append(gradient, moved.ravel())
    np.testing.assert_allclose(
        found, numerical, rtol=1e-4, atol=1e-6 * max(1.0, np.abs(numerical).max())
    )


@both
@pytest.mark.parametrize(
    "kernel",
    [Matern52(2.0, [1.0, 2.0]), Sum([LINE, PLANE]), Product([LINE, PLANE])],
    ids=repr,
)
def test_objective_and_gradient_of_every_kernel(approximation, kernel):
    _, _, points, x, y = random_case(3, 40, 6, 2, -1.0)
    prior = InducingPoints(kernel, 0.2, points, approximation, jitter=1e-3, block_size=16)
    value, gradient, moved = prior.log_likelihood(x, y)
    assert value == pytest.approx(dense(prior, x, y, x)[0], rel=1e-9)

    def at(values):
        changed = kernel.with_log_hyperparameters(values[:-1])
        return (
            replace(prior, kernel=changed, noise_variance=np.exp(values[-1]))
            .posterior(x, y)
            .log_likelihood
        )

    numerical = finite_differences(at, np.append(kernel.log_hyperparameters(), np.log(0.2)), 1e-4)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-6 * np.abs(numerical).max())
    assert (moved is None) == isinstance(kernel, Sum | Product)


@both
def test_inducing_points_at_the_data_give_the_exact_gp(approximation):
    kernel, noise_variance, x, y = separated_case()
    prior = InducingPoints(kernel, noise_variance, x, approximation, jitter=0.0)
    exact = log_marginal_likelihood(kernel, noise_variance, x, y)
    value, gradient, moved = prior.log_likelihood(x, y)
    assert value == pytest.approx(exact.value, rel=1e-10)
    np.testing.assert_allclose(gradient, exact.gradient, rtol=1e-7)
    new = np.linspace(-8, 8, 50)[:, None]
    expected = NaiveGP(kernel, noise_variance, x, y).predict(new)
    np.testing.assert_allclose(
        SparseGP.condition(prior, x, y).predict(new), expected, rtol=1e-8, atol=1e-9
    )
    if approximation is Approximation.vfe:  # the bound is tight: no point wants to move
        np.testing.assert_allclose(moved, 0.0, atol=1e-8)


@both
def test_block_size_and_an_offset_of_the_features_do_not_matter(approximation):
    kernel, noise_variance, points, x, y = random_case(7, 30, 6, 2, -1.0)
    x, points = (
        np.round(values * 2.0**20) / 2.0**20 for values in (x, points)
    )  # offsets are added exactly
    first, *others = (
        (
            prior.log_likelihood(x + offset, y),
            SparseGP.condition(prior, x + offset, y).predict(x + offset),
        )
        for size, offset in ((512, 0.0), (1, 0.0), (7, 0.0), (512, 2.0**20))
        for prior in [
            InducingPoints(kernel, noise_variance, points + offset, approximation, block_size=size)
        ]
    )
    for likelihood, prediction in others:
        assert likelihood.value == pytest.approx(first[0].value, rel=1e-11)
        np.testing.assert_allclose(likelihood.gradient, first[0].gradient, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(
            likelihood.point_gradient, first[0].point_gradient, rtol=1e-6, atol=1e-7
        )
        np.testing.assert_allclose(prediction, first[1], rtol=1e-8, atol=1e-10)


def test_variances_below_zero_by_rounding_are_reported():
    _, _, x, y = separated_case()
    prior = InducingPoints(SquaredExponential(1.7, [0.4]), 1e-18, x, jitter=0.0)
    with pytest.warns(RuntimeWarning, match=r"\d+ of 25 variances"):
        _, variance = SparseGP.condition(prior, x, y).predict(x)
    assert variance.min() == 0.0
    assert variance.max() < 1e-12


@pytest.mark.parametrize("approximation", Approximation)
def test_what_is_kept_between_two_passes_changes_no_bit(approximation, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    y = rng.normal(size=90)
    found = []
    prior = InducingPoints(
        SquaredExponential(1.0, [1.0, 2.0]), 0.1, x[:7], approximation, block_size=20
    )
    for most in (90 * 7, 90 * 7 - 1):
        monkeypatch.setattr(sparse, "MAX_KEPT_COVARIANCES", most)
        found.append(prior.log_likelihood(x, y))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_memory_does_not_grow_with_samples_times_inducing_points():
    n = 50_000
    m = 50
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1))
    y = rng.normal(size=n)
    prior = InducingPoints(
        SquaredExponential(1.0, [1.0]), 0.1, rng.normal(size=(m, 1)), block_size=m
    )
    prior.log_likelihood(x[:m], y[:m])  # compiled by now
    tracemalloc.start()
    prior.log_likelihood(x, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.25 * n * m * 8


# --- training ---------------------------------------------------------------------------------------


def wave(n=80, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=(n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=n)


def test_trained_bound_comes_close_to_the_likelihood_of_the_exact_gp():
    x, y = wave()
    exact = MaximumLikelihood(n_initial=80, restarts=2).train(x, y, seed=0)
    fit = fit_sparse(x, y, n_inducing=12, training=START)
    assert (fit.converged, fit.warnings) == (True, ())
    assert exact.log_likelihood - 0.1 < fit.objective <= exact.log_likelihood + 1e-6
    np.testing.assert_allclose(
        fit.model.prior.kernel.length_scales, exact.kernel.length_scales, rtol=0.02
    )
    assert fit.model.noise_variance == pytest.approx(exact.noise_variance, rel=0.02)
    assert fit.model.prior.approximation is Approximation.vfe


@both
def test_training_ends_where_the_gradient_vanishes_and_moves_the_points(approximation):
    x, y = wave(60)
    options = {"n_inducing": 4, "approximation": approximation, "training": START}
    fit, short = (fit_sparse(x, y, max_iterations=n, **options) for n in (500, 1))
    value, gradient, moved = fit.model.prior.log_likelihood(x, y)
    assert fit.converged
    assert fit.objective == value == fit.model.posterior.log_likelihood
    assert np.abs(np.append(gradient, moved)).max() < 0.05
    assert fit.objective > short.objective + 1.0
    assert np.abs(fit.model.prior.points - short.model.prior.points).max() > 0.05


def test_the_start_is_the_training_on_a_random_subset_of_the_seed():
    class Recorded(MaximumLikelihood):
        def train(self, inputs, targets, seed):
            seen.append((len(inputs), len(targets), seed))
            return super().train(inputs, targets, seed)

    seen, (x, y) = [], wave()
    first, again, other = (
        fit_sparse(
            x,
            y,
            n_inducing=6,
            training=Recorded(n_initial=n, restarts=1),
            max_iterations=3,
            seed=seed,
        )
        for n, seed in ((20, 9), (20, 9), (500, 1))
    )
    assert seen == [(20, 20, 9), (20, 20, 9), (80, 80, 1)]
    assert first.objective == again.objective
    np.testing.assert_array_equal(first.model.prior.points, again.model.prior.points)
    assert np.abs(first.model.prior.points - other.model.prior.points).max() > 1e-3


def test_units_scale_out():
    x, y = wave(40)
    x, y = (
        np.repeat(np.column_stack([x, np.full(40, 3.0)]), 2, axis=0),
        np.repeat(y, 2),
    )  # constant and duplicates
    fit = fit_sparse(x, y, n_inducing=8, training=START)
    scaled = fit_sparse(x * 2.0**20, y / 2.0**10, n_inducing=8, training=START)
    np.testing.assert_allclose(
        scaled.model.prior.points / 2.0**20,
        fit.model.prior.points,
        rtol=1e-3,
        atol=1e-3,
    )
    assert scaled.objective == pytest.approx(fit.objective + len(y) * np.log(2.0**10), abs=0.01)
    assert scaled.model.noise_variance * 2.0**20 == pytest.approx(
        fit.model.noise_variance, rel=1e-2
    )


def test_priors_and_bounds_of_the_training_hold_and_are_reported_as_is_an_early_end():
    x, y = wave()
    power = np.mean(y[np.random.default_rng(0).permutation(len(x))[:30]] ** 2)  # of the subset
    training = MaximumAPosteriori(
        n_initial=30, restarts=1, noise_prior_median=0.5, noise_prior_std=1e-3
    )
    fit = fit_sparse(x, y, n_inducing=6, training=training)
    assert fit.model.noise_variance == pytest.approx(0.5 * power, rel=0.02)
    training = MaximumLikelihood(n_initial=30, restarts=1, variance_bounds=(0.1, 0.2))
    fit = fit_sparse(x, y, n_inducing=6, training=training, max_iterations=3)
    assert not fit.converged
    assert fit.n_iterations <= 3
    assert fit.model.prior.kernel.variance <= 0.2 * power * (1 + 1e-9)
    assert fit.warnings[0] == "signal variance at its upper bound"
    assert "without convergence" in fit.warnings[-1]


def test_training_stops_where_ten_iterations_gain_too_little():
    x, y = wave()
    settings = {"n_inducing": 6, "training": START}
    last = fit_sparse(x, y, **settings)
    tolerance = 0.05
    fit = fit_sparse(x, y, **settings, tolerance=tolerance)
    steps = fit.n_iterations
    assert 10 < steps < last.n_iterations
    assert (fit.converged, fit.warnings) == (True, ())
    ends = steps - 11, steps - 10, steps - 1, steps
    first, second, third, fourth = (
        fit_sparse(x, y, **settings, max_iterations=k).objective for k in ends
    )
    assert fourth == fit.objective
    assert fourth - second < tolerance * len(x) <= third - first


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("noise_variance", [0.0, np.nan]),
        ("jitter", [-1e-8, np.nan, 1.0]),
        ("block_size", [0, True]),
        ("points", [np.empty((0, 2)), np.ones((3, 1)), np.full((3, 2), np.nan)]),
        ("kernel", [SquaredExponential(), "matern"]),
    ],
)
def test_settings_are_checked(name, values):
    for value in values:
        with pytest.raises((TypeError, ValueError), match=f"InducingPoints: {name}"):
            InducingPoints(
                **{"kernel": PLANE, "noise_variance": 0.1, "points": np.eye(2)} | {name: value}
            )


def test_points_cannot_be_changed_from_outside_and_data_are_checked():
    points = np.eye(2)
    prior = InducingPoints(PLANE, 0.1, points)
    points[:] = 7.0
    np.testing.assert_array_equal(prior.points, np.eye(2))
    assert not prior.points.flags.writeable
    for x, y, word in (
        (np.empty((0, 2)), [], "inputs"),
        (np.ones((4, 3)), np.ones(4), "inputs"),
        (np.ones((4, 2)), np.ones(5), "targets"),
        (np.ones((2, 2)), [1.0, np.inf], "targets"),
    ):
        for method in (prior.posterior, prior.log_likelihood):
            with pytest.raises(ValueError, match=word):
                method(x, y)
    model = SparseGP.condition(prior, np.ones((4, 2)), np.ones(4))
    with pytest.raises(ValueError, match="inputs"):
        model.predict(np.ones(2))
    assert model.predict(np.empty((0, 2)))[0].shape == (0,)
    prior = InducingPoints(SquaredExponential(1.0, [1.0]), 0.1, np.zeros((2, 1)), jitter=0.0)
    with pytest.raises(np.linalg.LinAlgError, match="2 inducing points with jitter 0"):
        prior.posterior(np.ones((3, 1)), np.ones(3))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n_inducing", [0, 2.5, 11]),
        ("tolerance", [-1e-4, np.nan, np.inf]),
        ("max_iterations", [0]),
        ("inputs", [np.ones(20), np.full((20, 1), np.nan)]),
        ("targets", [np.ones(19)]),
        ("jitter", [2.0]),
        (r"training\.kernel", [MaximumLikelihood(kernel=Linear())]),
    ],
)
def test_training_checks_its_arguments(name, values):
    good = {
        "inputs": np.repeat(np.arange(10.0), 2)[:, None],
        "targets": np.ones(20),
        "n_inducing": 3,
    }
    for value in values:
        with pytest.raises((TypeError, ValueError), match=name):
            fit_sparse(**good | {"training": START} | {name.partition("\\")[0]: value})
