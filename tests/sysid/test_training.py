"""Training: recovery, reproducibility, optimality against scikit-learn, invariance, odd data, settings."""

import warnings

import numpy as np
import pytest
from naive import COMPILED
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from sysid import OnlineGP, SquaredExponential
from sysid.training import Fixed, MarginalLikelihoodProblem, MaximumLikelihood

PLAIN = {"length_scale_prior_std": np.inf, "noise_prior_std": np.inf}
N = 150 if COMPILED else 40


def gp_sample(n, length_scales, noise_variance, seed, variance=1.0):
    """Inputs and targets drawn from the prior itself."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, len(length_scales)))
    k = SquaredExponential(variance, length_scales)(x, x)
    y = np.linalg.cholesky(k + noise_variance * np.eye(n)) @ rng.normal(size=n)
    return x, y


@pytest.mark.parametrize("noise_variance", [0.1, 1e-3])
def test_length_scales_and_noise_of_a_gp_sample_are_recovered(noise_variance):
    scales = np.array([0.5, 1.5])
    x, y = gp_sample(N, scales, noise_variance, seed=1)
    result = MaximumLikelihood(**PLAIN).train(x, y, seed=0)
    ratio = np.array(result.kernel.length_scales) / scales
    tolerance = 1.5 if COMPILED else 2.5
    assert np.all((1 / tolerance < ratio) & (ratio < tolerance))
    assert 1 / 2.5 < result.noise_variance / noise_variance < 2.5
    assert 0.1 < result.kernel.variance < 10
    assert result.warnings == ()


def test_an_irrelevant_feature_gets_a_long_length_scale():
    x, y = gp_sample(N, [0.6], 1e-2, seed=2)
    x = np.column_stack([x, np.random.default_rng(3).normal(size=N)])
    relevant, irrelevant = MaximumLikelihood(**PLAIN).train(x, y, seed=0).kernel.length_scales
    assert 0.3 < relevant < 1.2
    assert irrelevant > 5


def test_trained_model_beats_its_neighbours_and_the_truth():
    x, y = gp_sample(N, [0.5, 1.5], 1e-2, seed=4)
    result = MaximumLikelihood(**PLAIN).train(x, y, seed=0)

    def value(kernel, noise_variance):
        gp = MarginalLikelihoodProblem.of(MaximumLikelihood(**PLAIN), x, y)
        at = np.append(kernel.log_hyperparameters(), np.log(noise_variance / kernel.variance))
        return -gp.cost(at)[0]

    assert value(result.kernel, result.noise_variance) == pytest.approx(result.log_likelihood, rel=1e-9)
    assert result.log_likelihood >= value(SquaredExponential(1.0, [0.5, 1.5]), 1e-2)
    logs = result.kernel.log_hyperparameters()
    for step in 0.1 * np.vstack([np.eye(3), -np.eye(3)]):
        neighbour = result.kernel.with_log_hyperparameters(logs + step)
        assert value(neighbour, result.noise_variance) < result.log_likelihood


def test_same_seed_same_bits_and_other_seed_other_starts():
    x, y = gp_sample(40, [0.5, 1.5], 1e-2, seed=5)
    training = MaximumLikelihood()
    first, second = training.train(x, y, seed=7), training.train(x.copy(), y.copy(), seed=7)
    assert first == second
    assert first.kernel.parameters().tobytes() == second.kernel.parameters().tobytes()
    problem = MarginalLikelihoodProblem.of(training, x, y)
    starts = [np.array(problem.starts(5, np.random.default_rng(seed))) for seed in (7, 8)]
    np.testing.assert_array_equal(starts[0][:2], starts[1][:2])
    assert not np.any(starts[0][2:] == starts[1][2:])
    assert np.all((problem.bounds[:, 0] <= starts[0]) & (starts[0] <= problem.bounds[:, 1]))


def test_the_data_are_left_alone():
    x, y = gp_sample(20, [0.5], 1e-2, seed=6)
    before = x.tobytes(), y.tobytes()
    MaximumLikelihood(restarts=1).train(x, y, seed=0)
    assert (x.tobytes(), y.tobytes()) == before


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("log_noise", [-4, -1])
def test_likelihood_is_at_least_that_of_scikit_learn_within_a_nat(seed, log_noise):
    x, y = gp_sample(60 if COMPILED else 30, [0.5, 2.0, 5.0], 10.0**log_noise, seed=10 + seed)
    result = MaximumLikelihood(**PLAIN).train(x, y, seed=0)
    spread, power = x.std(axis=0), np.mean(y**2)
    scale_bounds = np.outer(spread, MaximumLikelihood.length_scale_bounds)
    variance_bounds = power * np.array(MaximumLikelihood.variance_bounds)
    kernel = ConstantKernel(power, variance_bounds) * RBF(spread, scale_bounds)
    kernel += WhiteKernel(0.1 * power, (MaximumLikelihood.noise_bounds[0] * variance_bounds[1], 10 * power))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parameters close to a bound
        theirs = GaussianProcessRegressor(kernel, alpha=0.0, n_restarts_optimizer=4, random_state=0).fit(x, y)
    assert result.log_likelihood >= theirs.log_marginal_likelihood_value_ - 1.0


@pytest.mark.parametrize("settings", [{}, PLAIN])
def test_cost_has_the_gradient_of_finite_differences(settings):
    x, y = gp_sample(25, [0.5, 2.0], 1e-2, seed=20)
    problem = MarginalLikelihoodProblem.of(MaximumLikelihood(**settings), x, y)
    at, h = np.array([0.3, -0.4, 0.9, -3.0]), 1e-5
    numerical = [(problem.cost(at + d)[0] - problem.cost(at - d)[0]) / (2 * h) for d in h * np.eye(4)]
    np.testing.assert_allclose(problem.cost(at)[1], numerical, rtol=1e-6, atol=1e-6)


def test_priors_hold_what_the_data_do_not_decide():
    x, y = gp_sample(12, [1.0], 1e-2, seed=21)
    x = np.column_stack([x, np.random.default_rng(22).normal(size=12)])
    plain = MaximumLikelihood(**PLAIN).train(x, y, seed=0)
    held = MaximumLikelihood(length_scale_prior_median=3.0, length_scale_prior_std=0.01).train(x, y, seed=0)
    median = 3.0 * MarginalLikelihoodProblem.of(MaximumLikelihood(), x, y).typical
    np.testing.assert_allclose(held.kernel.length_scales, median, rtol=0.1)
    assert np.abs(np.log(plain.kernel.length_scales / median)).max() > 1.0
    assert held.log_likelihood <= plain.log_likelihood + 1e-6
    tight = MaximumLikelihood(noise_prior_median=0.5, noise_prior_std=1e-3).train(x, y, seed=0)
    assert tight.noise_variance == pytest.approx(0.5 * np.mean(y**2), rel=1e-2)


@pytest.mark.parametrize("settings", [{}, PLAIN])
@pytest.mark.parametrize("factor", [1e-4, 3.0, 1e5])
def test_target_times_c_gives_variances_times_c_squared(settings, factor):
    x, y = gp_sample(50, [0.5, 1.5], 1e-2, seed=23)
    result = MaximumLikelihood(**settings).train(x, y, seed=0)
    scaled = MaximumLikelihood(**settings).train(x, factor * y, seed=0)
    assert scaled.kernel.variance == pytest.approx(factor**2 * result.kernel.variance, rel=2e-2)
    assert scaled.noise_variance == pytest.approx(factor**2 * result.noise_variance, rel=2e-2)
    np.testing.assert_allclose(scaled.kernel.length_scales, result.kernel.length_scales, rtol=2e-2)
    assert scaled.log_likelihood == pytest.approx(result.log_likelihood - 50 * np.log(factor), abs=1e-2)


def test_feature_times_c_gives_length_scale_times_c():
    x, y = gp_sample(50, [0.5, 1.5], 1e-2, seed=24)
    result = MaximumLikelihood().train(x, y, seed=0)
    scaled = MaximumLikelihood().train(x * [1e3, 1.0], y, seed=0)
    np.testing.assert_allclose(scaled.kernel.length_scales, result.kernel.length_scales * np.array([1e3, 1]), rtol=2e-2)
    assert scaled.noise_variance == pytest.approx(result.noise_variance, rel=2e-2)


def usable(result, x, y):
    """Hyper-parameters from which an online GP can start."""
    gp = OnlineGP(result.kernel, noise_variance=result.noise_variance, budget=max(2, len(y))).fit(x, y)
    mean, variance = gp.predict(x)
    assert np.isfinite([*mean, *variance, result.log_likelihood]).all()
    assert (variance >= 0).all()
    return gp


@pytest.mark.parametrize("settings", [{}, PLAIN])
def test_constant_feature_survives(settings):
    x, y = gp_sample(40, [0.6], 1e-2, seed=25)
    x = np.column_stack([x, np.full(40, 3.0)])
    result = MaximumLikelihood(**settings).train(x, y, seed=0)
    usable(result, x, y)
    without = MaximumLikelihood(**settings).train(x[:, :1], y, seed=0)
    assert result.log_likelihood == pytest.approx(without.log_likelihood, abs=1.0)
    assert result.kernel.length_scales[1] > 0.05


def test_constant_feature_with_rounding_in_its_standard_deviation():
    x, y = gp_sample(100, [0.6], 1e-2, seed=25)
    x = np.column_stack([x, np.full(100, 0.1)])
    assert 0 < x[:, 1].std() < 1e-15
    assert MaximumLikelihood(restarts=1).train(x, y, seed=0).kernel.length_scales[1] > 1e-6


@pytest.mark.parametrize("settings", [{}, PLAIN])
def test_duplicate_rows_survive(settings):
    x, y = gp_sample(15, [0.6], 1e-2, seed=26)
    result = MaximumLikelihood(**settings).train(np.repeat(x, 3, axis=0), np.repeat(y, 3), seed=0)
    usable(result, np.repeat(x, 3, axis=0), np.repeat(y, 3))


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_constant_target_survives(value):
    x, _ = gp_sample(20, [0.6, 0.6], 1e-2, seed=27)
    y = np.full(20, value)
    usable(MaximumLikelihood().train(x, y, seed=0), x, y)


def test_two_points_suffice():
    usable(
        MaximumLikelihood(n_initial=2).train(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), seed=0),
        [[0.0]],
        [1.0],
    )


def test_noise_stays_within_what_the_online_gp_can_hold_and_a_bound_is_reported():
    x = np.linspace(-1, 1, 25)[:, None]
    noise_free = MaximumLikelihood(**PLAIN).train(x, np.sin(3 * x[:, 0]), seed=0)
    assert noise_free.noise_variance >= 1e-8 * noise_free.kernel.variance * (1 - 1e-9)
    assert noise_free.warnings == ("noise variance at its lower bound",)
    usable(noise_free, x, np.sin(3 * x[:, 0]))
    y = np.random.default_rng(0).normal(size=25)
    noisy = MaximumLikelihood(**PLAIN, noise_bounds=(1e-8, 1e-3), variance_bounds=(0.1, 0.2)).train(x, y, seed=0)
    assert set(noisy.warnings) == {"signal variance at its upper bound", "noise variance at its upper bound"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_initial": "abc"}, "n_initial must be a whole number of at least 2, got 'abc'"),
        ({"max_iterations": 0}, "max_iterations must be a whole number of at least 1, got 0"),
        ({"noise_prior_std": ".inf"}, "noise_prior_std must be a positive number .*got '.inf'"),
        ({"noise_bounds": (1e-12, 1e-10)}, "noise_bounds must be 0 < low < high with low >= 1e-08"),
        ({"noise_bounds": 3}, "noise_bounds must be two numbers, got 3"),
        ({"n_initial": 1}, "n_initial must be a whole number of at least 2, got 1"),
        ({"restarts": 0}, "restarts must be a whole number of at least 1, got 0"),
        (
            {"length_scale_bounds": (1.0, 1.0)},
            r"length_scale_bounds must be 0 < low < high with low >= 0, got \(1.0, 1.0\)",
        ),
        ({"variance_bounds": (0.0, 1.0)}, "variance_bounds must be 0 < low < high"),
        ({"noise_bounds": (2.0, 1.0)}, "noise_bounds must be 0 < low < high"),
        ({"noise_bounds": (np.nan, 1.0)}, "noise_bounds must be 0 < low < high"),
        ({"length_scale_prior_median": 0.0}, "length_scale_prior_median must be a positive number .*got 0.0"),
        ({"length_scale_prior_std": np.nan}, "length_scale_prior_std must be a positive number .*got nan"),
        ({"noise_prior_median": -1.0}, "noise_prior_median must be a positive number .*got -1.0"),
        ({"noise_prior_std": 0.0}, "noise_prior_std must be a positive number .*got 0.0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=f"MaximumLikelihood: {message}"):
        MaximumLikelihood(**settings)


def test_fixed_returns_what_it_was_given():
    x, y = np.zeros((0, 3)), np.zeros(0)
    result = Fixed(variance=2, length_scales=[1, 2, 3], noise_variance=0.5).train(x, y, seed=0)
    assert result.kernel == SquaredExponential(2.0, [1.0, 2.0, 3.0])
    assert result.noise_variance == 0.5
    assert np.isnan(result.log_likelihood)
    assert result.warnings == ()
    assert Fixed(2, 4.0, 0.5).train(x, y, seed=0).kernel.length_scales == (4.0, 4.0, 4.0)
    assert not Fixed(2, 4.0, 0.5).standardise
    assert MaximumLikelihood().standardise


def test_fixed_checks_its_values():
    with pytest.raises(ValueError, match=r"Fixed: length_scales must have one number.* 3 .*got 2"):
        Fixed(1.0, [1.0, 2.0], 0.1).train(np.zeros((0, 3)), np.zeros(0), seed=0)
    with pytest.raises(ValueError, match="Fixed: n_initial must be at least 0, got -1"):
        Fixed(1.0, 1.0, 0.1, n_initial=-1)
