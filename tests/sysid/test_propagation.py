"""The uncertainty of a model that is fed its own predictions.

The references are brute force and cases with a known result.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from coupled_models import (
    ONE_OUTPUT_LAGS,
    joint_model,
    naive_draws,
    naive_posterior,
    signals,
    single_model,
    unstable,
    with_projections,
)
from sysid import (
    AboutPath,
    ConstantMean,
    JointModel,
    Linear,
    LinearMean,
    Matern32,
    Matern52,
    MeanFunction,
    MeanOnly,
    Model,
    MomentMatching,
    MonteCarlo,
    Narx,
    OnlineGP,
    Origin,
    Pathwise,
    Scaling,
    SequentialConditioning,
    SquaredExponential,
    Sum,
    Taylor,
    ZeroMean,
    forecast,
    free_run,
    make_record,
)
from sysid.gp.kernels import Stationary
from sysid.simulation.dynamics import MAX_ROWS_GATHERED, Dynamics, exogenous_rows
from sysid.simulation.propagation.propagation import Paths, summarise_draws

KERNEL = SquaredExponential(0.3, [2.0, 1.5, 3.0])
GAUSSIAN_RULES = [Taylor(), MomentMatching()]
ALL_RULES = [
    MeanOnly(),
    MonteCarlo(8),
    Pathwise(8, 20),
    SequentialConditioning(8),
    *GAUSSIAN_RULES,
]
N_DATA = 40  # samples of the signals
DATA = signals(N_DATA, 3)
FIRST_OUTPUTS = np.stack([DATA["a"], DATA["b"]], axis=1)[:4]
REGRESSOR = np.array([[0.2, -0.3, 2.1, 0.4, -0.5]])


def name_of_rule(value):
    """Return the name of a rule as its id, and None for numbers, which pytest names itself."""
    return None if isinstance(value, int | float) else type(value).__name__


def each_of(rules):
    """Return the mark that runs a test with each of these rules."""
    return pytest.mark.parametrize("rule", rules, ids=name_of_rule)


def repeated_input(n):
    """Return n samples of the input (n, 1), which starts again after `N_DATA` samples."""
    return DATA["u"][np.arange(n) % N_DATA, None]


def simulate(model, n, rule=None, **options):
    """Return the free run of a record of n samples whose first four outputs are given."""
    n_outputs = len(JointModel.of(model).models)
    first_outputs = FIRST_OUTPUTS[:, :n_outputs]
    return free_run(model, repeated_input(n), first_outputs, propagation=rule, **options)


@pytest.mark.parametrize(
    "make_model",
    [
        pytest.param(joint_model, id="value"),
        pytest.param(lambda: joint_model("change"), id="change"),
        pytest.param(lambda: with_projections(joint_model()), id="projections"),
    ],
)
@each_of(ALL_RULES)
def test_the_first_step_is_the_prediction_of_the_models(rule, make_model):
    joint = make_model()
    run = simulate(joint, 5, rule)
    features = joint.models[0].narx.features
    x = np.array([[DATA[name][4 - lag] for name, lag in features]])
    for i, model in enumerate(joint.models):
        mean, variance = naive_posterior(model, x)
        if model.narx.predict.value == "change":
            mean = mean + FIRST_OUTPUTS[-1, i]
        np.testing.assert_allclose(run.mean[0, i], mean[0], rtol=1e-9)
        np.testing.assert_allclose(run.variance[0, i], variance[0], rtol=1e-7)


MATERN_KERNEL = Matern52(0.3, [1.0] * 5)
SUM_KERNEL = Sum([Linear(0.1, [0.1] * 5), Matern32(0.2, [2.0] * 5)])


@pytest.mark.parametrize(
    "make_model",
    [
        pytest.param(joint_model, id="squared exponential"),
        pytest.param(lambda: with_projections(joint_model()), id="projections"),
        pytest.param(lambda: joint_model(kernel=MATERN_KERNEL), id="Matern"),
        pytest.param(lambda: joint_model(kernel=SUM_KERNEL), id="sum"),
    ],
)
def test_the_gradient_is_the_slope_of_the_mean(make_model):
    dynamics = Dynamics(make_model())
    x = np.random.default_rng(0).normal(size=(3, 5)) * 0.3
    gradient = dynamics.gradient(x)
    step_size = 1e-5
    for feature, step in enumerate(step_size * np.eye(5)):
        difference = dynamics.targets(x + step).mean - dynamics.targets(x - step).mean
        slope = difference / (2 * step_size)
        np.testing.assert_allclose(gradient[:, :, feature], slope, rtol=1e-5, atol=1e-7)


# --- Gaussian states ------------------------------------------------------------------------------


def random_covariance(size):
    """Return a covariance (3, 3) of the lagged outputs, proportional to the square of `size`."""
    root = np.random.default_rng(1).normal(size=(3, 3)) * 0.4 * size
    return root @ root.T


MAX_BLOCK_ROWS = 50_000  # regressors that are predicted at once


def moments_by_brute_force(joint, covariance, n):
    """Return moments of the targets and their covariance with the lagged outputs.

    They are those of about n random regressors: mean (m,), covariance (m, m), covariance with the
    lagged outputs (3, m).
    """
    feedback = Dynamics(joint).feedback
    rng = np.random.default_rng(0)
    n_rows = min(n, MAX_BLOCK_ROWS)
    n_blocks = math.ceil(n / MAX_BLOCK_ROWS)
    lagged_blocks = []
    mean_blocks = []
    variance_blocks = []
    for _ in range(n_blocks):
        regressors = np.tile(REGRESSOR, (n_rows, 1))
        regressors[:, feedback] += rng.multivariate_normal(np.zeros(3), covariance, n_rows)
        posteriors = [naive_posterior(model, regressors) for model in joint.models]
        lagged_blocks.append(regressors[:, feedback])
        mean_blocks.append(np.stack([mean for mean, _ in posteriors], axis=1))
        variance_blocks.append(np.stack([variance for _, variance in posteriors], axis=1))
    lagged = np.concatenate(lagged_blocks)
    mean = np.concatenate(mean_blocks)
    variance = np.concatenate(variance_blocks)
    target_covariance = np.cov(mean.T) + np.diag(variance.mean(axis=0))
    cross_covariance = (lagged - lagged.mean(axis=0)).T @ mean / len(lagged)
    return mean.mean(axis=0), target_covariance, cross_covariance


@pytest.mark.parametrize(
    ("mean", "n", "tolerance"),
    [
        pytest.param(LinearMean(), 100_000, 0.012, id="linear"),
        pytest.param(ConstantMean(), 2_000_000, 0.005, id="constant", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("transform", "size"),
    [
        pytest.param(lambda joint: joint, 2.0, id="scaled"),
        pytest.param(with_projections, 5.0, id="projections"),
    ],
)
def test_moment_matching_is_exact_for_a_gaussian_regressor(mean, n, tolerance, transform, size):
    joint = transform(joint_model(mean=mean))
    covariance = random_covariance(size)
    step = MomentMatching().one_step(Dynamics(joint))
    moments = step(REGRESSOR, covariance[None])
    cross_covariance = covariance @ moments.slope[0]

    expected = moments_by_brute_force(joint, covariance, n)
    expected_mean, expected_covariance, expected_cross = expected
    scale = np.sqrt(np.diag(expected_covariance)).max()
    lagged_scale = np.sqrt(covariance.max())
    mean_tolerance = tolerance * scale
    covariance_tolerance = tolerance * scale**2
    cross_tolerance = tolerance * lagged_scale * scale
    np.testing.assert_allclose(moments.mean[0], expected_mean, atol=mean_tolerance)
    np.testing.assert_allclose(
        moments.covariance[0], expected_covariance, atol=covariance_tolerance
    )
    np.testing.assert_allclose(cross_covariance, expected_cross, atol=cross_tolerance)
    outputs_are_correlated = abs(expected_covariance[0, 1]) > 5 * covariance_tolerance
    assert outputs_are_correlated


@pytest.fixture(scope="module")
def nearly_noise_free():
    """Dynamics of a model with little noise, whose weights are large."""
    return Dynamics(joint_model(noise_variance=1e-6))


def test_moment_matching_of_a_certain_regressor_is_the_prediction(nearly_noise_free):
    targets = nearly_noise_free.targets(REGRESSOR)
    gradient = nearly_noise_free.gradient(REGRESSOR)[0][:, nearly_noise_free.feedback]
    step = MomentMatching().one_step(nearly_noise_free)
    moments = step(REGRESSOR, np.zeros((1, 3, 3)))
    covariance = np.diag(targets.variance[0])
    np.testing.assert_allclose(moments.mean, targets.mean, rtol=1e-10)
    np.testing.assert_allclose(moments.covariance[0], covariance, rtol=1e-7, atol=1e-14)
    np.testing.assert_allclose(moments.slope[0].T, gradient, rtol=1e-8)


@pytest.mark.parametrize("size", [1e-3, 1e-4])
def test_moment_matching_is_linear_in_a_small_covariance(nearly_noise_free, size):
    """No digits cancel, although the weights are large.

    The covariance between the outputs is that of the Taylor expansion.
    """
    step = MomentMatching().one_step(nearly_noise_free)
    covariance = random_covariance(size)[None]
    latent = np.diag(nearly_noise_free.targets(REGRESSOR).variance[0])
    added = step(REGRESSOR, covariance).covariance[0] - latent
    added_by_twice = step(REGRESSOR, 2.0 * covariance).covariance[0] - latent
    np.testing.assert_allclose(added_by_twice, 2.0 * added, rtol=2e-3)
    taylor_step = Taylor().one_step(nearly_noise_free)
    expanded = taylor_step(REGRESSOR, covariance).covariance[0]
    np.testing.assert_allclose(added[0, 1], expanded[0, 1], rtol=2e-3)


def moments_of_naive_draws(joint, n, n_draws, feed_noise):
    """Return mean and variance of independent draws, each (n - 4, 2)."""
    u = DATA["u"][:n]
    draws = naive_draws(joint, FIRST_OUTPUTS, u, n_draws, seed=2, feed_noise=feed_noise)
    return draws.mean(axis=0), draws.var(axis=0)


@each_of([Taylor(process_noise=True), MomentMatching(process_noise=True)])
def test_gaussian_states_agree_with_draws_where_the_model_is_nearly_linear(rule):
    """The model has many lags, two outputs and changes as targets: every correlation matters."""
    kernel = SquaredExponential(0.01, [6.0, 5.0, 6.0, 5.0, 7.0])
    joint = joint_model("change", kernel=kernel, noise_variance=1e-4)
    mean, variance = moments_of_naive_draws(joint, 16, n_draws=4_000, feed_noise=True)
    spread = np.sqrt(variance.max())
    run = simulate(joint, 16, rule)
    np.testing.assert_allclose(run.mean, mean, atol=0.1 * spread)
    np.testing.assert_allclose(run.variance, variance, rtol=0.12)


def linearised_variances(joint, outputs):
    """Return the variances (n - 4, 2) of the outputs from the fifth sample on.

    The model is linearised about the outputs (n, 2), whose changes are its targets. The state
    consists of the two outputs at the last two samples, the older sample first.
    """
    dynamics = Dynamics(joint)
    u = repeated_input(len(outputs))
    covariance = np.zeros((4, 4))
    variances = []
    for k in range(4, len(outputs)):
        last = outputs[k - 2 : k].reshape(1, 2, 2)
        exogenous = exogenous_rows(dynamics.narx, u, np.array([k]))
        x = dynamics.regressors(last, exogenous)
        slope = np.zeros((2, 4))
        slope[:, dynamics.state_index] = dynamics.gradient(x)[0][:, dynamics.feedback]
        slope[:, 2:] += np.eye(2)  # the targets are changes
        shift = np.eye(4)[2:]  # the last sample becomes the one before
        transition = np.vstack([shift, slope])
        covariance = transition @ covariance @ transition.T
        covariance[2:, 2:] += np.diag(dynamics.targets(x).variance[0])
        covariance = (covariance + covariance.T) / 2
        variances.append(np.diag(covariance)[2:])
    return np.array(variances)


def test_rounding_does_not_make_a_long_run_of_two_outputs_diverge():
    """Rounding makes the covariance of the outputs asymmetric, which must not grow step by step."""
    n = 480
    joint = joint_model("change")
    run = simulate(joint, n, Taylor())
    path = simulate(joint, n)
    outputs = np.concatenate([FIRST_OUTPUTS, path.mean])
    variances = linearised_variances(joint, outputs)
    np.testing.assert_allclose(run.mean, path.mean, rtol=1e-9)
    np.testing.assert_allclose(run.variance, variances, rtol=1e-6)


# --- draws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "n_naive", "n_draws", "rtol"),
    [
        pytest.param(9, 3_000, 300, 0.35, id="few draws"),
        pytest.param(14, 40_000, 20_000, 0.06, id="many draws", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("feed_noise", [False, True], ids=["latent", "noise fed back"])
@pytest.mark.parametrize("predict", ["value", "change"])
def test_independent_draws_equal_naive_ones(predict, feed_noise, n, n_naive, n_draws, rtol):
    joint = joint_model(predict, noise_variance=1e-2)
    mean, variance = moments_of_naive_draws(joint, n, n_naive, feed_noise)
    rule = MonteCarlo(n_draws, process_noise=feed_noise, coverage=None)
    run = simulate(joint, n, rule, seed=4)
    spread = np.sqrt(variance.max())
    log_ratio = np.log(run.variance / variance)
    np.testing.assert_allclose(run.mean, mean, atol=0.7 * rtol * spread)
    np.testing.assert_allclose(run.variance, variance, rtol=rtol)
    np.testing.assert_allclose(log_ratio.mean(), 0.0, atol=rtol / 3)


def model_without_heavy_tails(kernel):
    """Return a model whose trajectories have no heavy tails."""
    return single_model(Narx(**ONE_OUTPUT_LAGS), 8, kernel, noise_variance=1e-2)


@dataclass(frozen=True)
class Comparison:
    """Sizes of a comparison of drawn functions with sequential conditioning."""

    n_samples: int
    n_trajectories: int  # of sequential conditioning
    n_functions: int = 1500
    n_features: int = 10
    tolerance: float = 0.35  # of the logarithm of the ratio of the variances


LINEAR_AND_SQUARED_EXPONENTIAL = Sum([Linear(0.01, [0.01] * 3), KERNEL])


@pytest.mark.parametrize(
    ("make_model", "comparison"),
    [
        pytest.param(
            lambda: model_without_heavy_tails(KERNEL),
            Comparison(n_samples=9, n_trajectories=500),
            id="squared exponential",
        ),
        pytest.param(
            lambda: model_without_heavy_tails(LINEAR_AND_SQUARED_EXPONENTIAL),
            Comparison(n_samples=9, n_trajectories=500),
            id="sum",
        ),
        pytest.param(
            lambda: with_projections(joint_model("change")),
            Comparison(n_samples=7, n_trajectories=600),
            id="projections",
        ),
        pytest.param(
            lambda: joint_model("change", noise_variance=1e-2),
            Comparison(
                n_samples=24,
                n_trajectories=2000,
                n_functions=4000,
                n_features=100,
                tolerance=0.2,
            ),
            id="long run",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_drawn_functions_agree_with_sequential_conditioning(make_model, comparison):
    model = make_model()
    functions = Pathwise(comparison.n_functions, comparison.n_features, coverage=None)
    conditioning = SequentialConditioning(comparison.n_trajectories, coverage=None)
    pathwise = simulate(model, comparison.n_samples, functions, seed=1)
    exact = simulate(model, comparison.n_samples, conditioning, seed=2)
    spread = np.sqrt(exact.variance.max())
    log_ratio = np.log(pathwise.variance / exact.variance)
    np.testing.assert_allclose(pathwise.mean, exact.mean, atol=0.25 * spread)
    np.testing.assert_allclose(log_ratio, 0.0, atol=comparison.tolerance)


@pytest.mark.parametrize(
    ("n", "n_functions"), [(40, 10), (184, 3)], ids=["36 steps", "180 steps, the minimum"]
)
def test_a_long_record_is_simulated_with_fewer_functions(n, n_functions, monkeypatch):
    """All functions together may take 4 times 90 steps: 10 functions of 36 steps, 2 of 180.

    At least 3 functions are drawn.
    """
    monkeypatch.setattr("sysid.simulation.propagation.propagation.MAX_DRAWN_STEPS", 90)
    monkeypatch.setattr("sysid.simulation.forecast.MIN_FREE_RUN_DRAWS", 3)
    model = joint_model("change")
    limited = simulate(model, n, Pathwise(50, 20), seed=1)
    expected = simulate(model, n, Pathwise(n_functions, 20), seed=1)
    np.testing.assert_array_equal(limited.variance, expected.variance)


def test_another_seed_gives_nearly_the_same_standard_deviations():
    """They vary by a few percent: 1000 functions are enough, 200 were not."""
    model = single_model(Narx(**ONE_OUTPUT_LAGS), 8, KERNEL)
    rule = AboutPath(Pathwise())
    variances = [simulate(model, 30, rule, seed=seed).variance[5:] for seed in range(12)]
    log_spread = 0.5 * np.log(variances)
    assert np.std(log_spread, axis=0).mean() < 0.06


def test_the_bands_are_robust_against_a_few_draws_that_run_away():
    """One percent of the draws is far away and one percent is lost; 5 percent may be outside.

    With ten percent lost the variance is infinite.
    """
    values = np.random.default_rng(0).normal(size=(1, 2000, 1))
    centre, _ = summarise_draws(values, 0.95)
    values[0, :20] = 1e6
    values[0, 20:40] = np.nan
    robust_centre, robust_variance = summarise_draws(values, 0.95)
    assert robust_centre[0, 0] == pytest.approx(centre[0, 0], abs=0.1)
    assert robust_variance[0, 0] == pytest.approx(1.5, rel=0.2)
    values[0, :200] = np.nan
    _, variance = summarise_draws(values, 0.95)
    assert variance[0, 0] == np.inf


def run_of_paths(outputs, output_range=(0.0, 1.0), coverage=0.95):
    """Return the moments of paths with these outputs (T, P); the points go from 0 to 1."""
    model = unstable(gain=1.0, output_range=output_range)
    n_steps, n_paths = outputs.shape
    dynamics = Dynamics(model)
    exogenous = np.zeros((1, n_steps, dynamics.n_features))
    paths = Paths(dynamics, np.zeros((1, dynamics.n_lags, 1)), exogenous, n_paths, coverage)
    paths.take_steps(0, outputs[:, None, :, None], np.zeros((n_steps, 1, n_paths, 1)))
    paths.leave_out_runaways(outputs[:, None, :, None])
    return paths.moments


@pytest.mark.parametrize("n_away", [0, 1, 20, 40, 60])
def test_paths_that_run_away_are_left_out_unless_they_are_the_majority(n_away):
    outputs = 0.5 + 0.1 * np.random.default_rng(0).normal(size=(30, 100))
    outputs[20:, :n_away] += 10.0
    moments = run_of_paths(outputs)
    counted = outputs if n_away > 50 else outputs[:, n_away:]
    centre, variance = summarise_draws(counted[:, :, None], 0.95)
    np.testing.assert_array_equal(moments.mean[0], centre)
    np.testing.assert_array_equal(moments.variance[0], variance)


@pytest.mark.parametrize("offset", [-0.7, 0.7])
def test_paths_inside_or_near_the_others_are_kept(offset):
    """Some are within three quarters of a range of the data, or as near to the median."""
    near = 0.5 + 0.1 * np.random.default_rng(0).normal(size=(30, 100))
    near[20:, :20] += offset
    beyond = near + 3.0 * np.sign(offset)  # the plant leaves the range, and all paths with it
    for outputs in (near, beyond):
        moments = run_of_paths(outputs)
        centre, variance = summarise_draws(outputs[:, :, None], 0.95)
        np.testing.assert_array_equal(moments.mean[0], centre)
        np.testing.assert_array_equal(moments.variance[0], variance)


@pytest.mark.parametrize(
    ("output_range", "are_left_out"),
    [
        pytest.param((0.0, 1.0), True, id="the record shows the range"),
        pytest.param((0.0, 0.1), True, id="the points of a stream go beyond the first record"),
        pytest.param((-8.0, 4.0), False, id="the record goes there"),
        pytest.param(None, False, id="only the points are known"),
    ],
)
def test_what_runs_away_depends_on_what_the_model_has_learned(output_range, are_left_out):
    outputs = 0.5 + 0.1 * np.random.default_rng(0).normal(size=(30, 100))
    outputs[20:, :20] = 1.9
    outputs[20:, 20:40] = 1.6  # not as far beyond the points
    counted = outputs[:, 20:] if are_left_out else outputs
    _, variance = summarise_draws(counted[:, :, None], 0.95)
    np.testing.assert_array_equal(run_of_paths(outputs, output_range).variance[0], variance)


def test_bands_of_a_stable_plant_stay_finite_though_some_functions_are_unstable():
    """``y[k] = a y[k-1]`` with a = 0.95 +- 0.035 by few samples: every twelfth function grows."""
    gp = OnlineGP(Linear(1e-12, [1.0]), noise_variance=0.0025, budget=5)
    gp.fit([[1.0], [-1.0]], [0.95, -0.95])
    narx = Narx({"y": 1}, {}, predict="value")
    origin = Origin(output_range=(-1.0, 1.0))
    model = Model(narx, Scaling.identity(1), ZeroMean(), gp, origin)
    n_steps = 400
    no_inputs = np.zeros((1 + n_steps, 0))
    run = free_run(model, no_inputs, [[1.0]], propagation=AboutPath(Pathwise()))
    assert np.sqrt(run.variance).max() < 1.0
    every_function = Pathwise(coverage=None)
    run = free_run(model, no_inputs, [[1.0]], propagation=AboutPath(every_function))
    assert not np.sqrt(run.variance).max() < 100.0


# --- a case with a known result: y[k] = y[k-1] + f(u[k]) at a constant input ----------------------

MANY_DRAWS = {"coverage": None, "n_samples": 300}


def run_known_case(rule, noise_variance):
    """Return the free run of 10 steps, and the prediction of a single step."""
    kernel = SquaredExponential(1.0, [1e6, 1.0])
    gp = OnlineGP(kernel, noise_variance=noise_variance, budget=5)
    gp.fit([[0.0, 0.0], [0.0, 1.0]], [0.1, -0.2])
    scaling = Scaling(np.zeros(2), np.array([1.0, 2.0]))
    model = Model(Narx({"y": 1}, {"u": [0]}), scaling, ZeroMean(), gp)
    constant_input = np.full((13, 1), 3.2)
    first_outputs = np.zeros((3, 1))
    run = free_run(model, constant_input, first_outputs, propagation=rule)
    return run, model.predict([[0.0, 3.2]])


def assert_known_moments(run, mean, variance, rtol):
    """Assert the moments of a run within `rtol` of the variance and of the largest spread."""
    spread = np.sqrt(run.variance.max())
    np.testing.assert_allclose(run.variance, variance, rtol=rtol)
    np.testing.assert_allclose(run.mean, mean, atol=rtol * spread)


STEP_NUMBERS = np.arange(1, 11)[:, None]


@pytest.mark.parametrize(
    ("rule", "exponent", "rtol"),
    [
        (MeanOnly(), 0, 1e-6),
        (Taylor(), 1, 1e-6),
        (MomentMatching(), 1, 1e-6),
        (MonteCarlo(**MANY_DRAWS), 1, 0.3),
        (Pathwise(**MANY_DRAWS), 2, 0.3),
        (SequentialConditioning(**MANY_DRAWS), 2, 0.3),
    ],
    ids=name_of_rule,
)
def test_the_variance_grows_with_the_number_of_steps_as_the_rule_assumes(rule, exponent, rtol):
    """Each step adds the same unknown value, of variance s2.

    After n steps the variance is n^2 s2 if a trajectory follows one function, n s2 if the steps are
    independent, and s2 if only the mean is fed back.
    """
    run, single_step = run_known_case(rule, noise_variance=1e-4)
    mean = STEP_NUMBERS * single_step.mean
    variance = STEP_NUMBERS**exponent * single_step.variance
    assert_known_moments(run, mean, variance, rtol)


@pytest.mark.parametrize(
    ("rule", "exponent", "rtol"),
    [
        (Taylor(process_noise=True), 1, 1e-6),
        (MomentMatching(process_noise=True), 1, 1e-6),
        (MonteCarlo(**MANY_DRAWS, process_noise=True), 1, 0.3),
        (Pathwise(**MANY_DRAWS, process_noise=True), 2, 0.3),
        (SequentialConditioning(**MANY_DRAWS, process_noise=True), 2, 0.3),
    ],
    ids=name_of_rule,
)
def test_noise_that_is_fed_back_adds_its_variance_at_every_later_step(rule, exponent, rtol):
    noise_variance = 4.0
    run, single_step = run_known_case(rule, noise_variance)
    mean = STEP_NUMBERS * single_step.mean
    latent_variance = STEP_NUMBERS**exponent * single_step.variance
    variance = latent_variance + noise_variance * (STEP_NUMBERS - 1)
    assert_known_moments(run, mean, variance, rtol)


# --- any kernel, mean function and number of starts -----------------------------------------------


@dataclass(frozen=True)
class UserKernel(Stationary):
    """A user's kernel: squared exponential, but the package does not know that."""

    row = SquaredExponential.row
    slope = SquaredExponential.slope


class UserMean(MeanFunction):
    """A user's mean function: linear, but the package does not know that."""

    def __call__(self, regressors):
        return 0.1 + regressors @ np.array([0.5, 0.1, 0.4])


def assert_same_run(model, known, rule):
    """Assert that both models give the same free run of 9 samples."""
    run = simulate(model, 9, rule)
    expected = simulate(known, 9, rule)
    np.testing.assert_allclose(run.mean, expected.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(run.variance, expected.variance, rtol=1e-6, atol=1e-9)


def model_with_user_kernel():
    """Return a model with the user's kernel."""
    return single_model(Narx(**ONE_OUTPUT_LAGS), 8, UserKernel(0.3, [2.0, 1.5, 3.0]))


def model_with_user_mean():
    """Return a model with the user's mean function."""
    return single_model(Narx(**ONE_OUTPUT_LAGS), 8, KERNEL, UserMean())


@each_of([MeanOnly(), MonteCarlo(5), SequentialConditioning(5), Taylor()])
def test_a_users_kernel_gives_the_run_of_the_same_known_kernel(rule):
    known = single_model(Narx(**ONE_OUTPUT_LAGS), 8, KERNEL)
    assert_same_run(model_with_user_kernel(), known, rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            MomentMatching(),
            "MomentMatching: expected the kernel SquaredExponential, got UserKernel",
        ),
        (
            Pathwise(4),
            "spectral density of UserKernel is not known; SequentialConditioning",
        ),
    ],
    ids=["MomentMatching", "Pathwise"],
)
def test_rules_that_cannot_use_a_users_kernel_name_it(rule, message):
    with pytest.raises(ValueError, match=message):
        simulate(model_with_user_kernel(), 8, rule)


@each_of([rule for rule in ALL_RULES if not isinstance(rule, MomentMatching)])
def test_a_users_mean_function_gives_the_run_of_the_same_known_mean(rule):
    model = model_with_user_mean()
    known = replace(model, mean=LinearMean((0.5, 0.1, 0.4), 0.1))
    assert_same_run(model, known, rule)


def test_moment_matching_refuses_a_users_mean_function():
    message = "expected a zero, constant or linear mean, got UserMean"
    with pytest.raises(ValueError, match=message):
        simulate(model_with_user_mean(), 8, MomentMatching())


@each_of([MeanOnly(), *GAUSSIAN_RULES, Pathwise(8, 20)])
def test_several_starts_at_once_give_what_each_gives_alone(rule):
    dynamics = Dynamics(joint_model("change"))
    rng = np.random.default_rng(0)
    past = FIRST_OUTPUTS[None, -2:] + 0.1 * rng.normal(size=(3, 2, 2))
    exogenous = np.zeros((3, 4, 5))
    exogenous[:, :, 3:] = rng.normal(size=(3, 4, 2))
    together = rule.propagate(dynamics, past, exogenous, np.random.default_rng(1))
    for start in range(3):
        rows = [start]
        generator = np.random.default_rng(1)
        alone = rule.propagate(dynamics, past[rows], exogenous[rows], generator)
        np.testing.assert_allclose(together.mean[rows], alone.mean, rtol=1e-10)
        np.testing.assert_allclose(together.variance[rows], alone.variance, rtol=1e-8, atol=1e-14)


@pytest.fixture(scope="module")
def static_model():
    """Model without lagged outputs, with calibrated bands."""
    narx = Narx({"a": []}, {"u": [0, 1]}, predict="value")
    kernel = SquaredExponential(0.3, [2.0, 1.5])
    return replace(single_model(narx, 8, kernel), bands=((1, 1.7),))


def forecast_static(model, horizon, propagation):
    """Return the forecast of one record by a model without lagged outputs."""
    record = make_record({"a": DATA["a"], "u": DATA["u"]}, name="r", sampling_time=1.0)
    result = forecast(model, record, horizon=horizon, window=5, propagation=propagation)
    (predicted,) = result.records
    return predicted


@pytest.mark.parametrize("horizon", [5, None], ids=["5 steps", "free run"])
@pytest.mark.parametrize("about_path", [False, True], ids=["of the rule", "about the path"])
@pytest.mark.parametrize("rule", [MeanOnly(), Pathwise(8, 20), Taylor()], ids=repr)
def test_without_feedback_every_horizon_is_one_step(static_model, rule, about_path, horizon):
    propagation = AboutPath(rule) if about_path else rule
    one_step = forecast_static(static_model, 1, propagation)
    predicted = forecast_static(static_model, horizon, propagation)
    assert predicted.n_draws is None
    for name in ("sample", "mean", "variance", "regressors"):
        values = getattr(predicted, name)
        expected = getattr(one_step, name)
        np.testing.assert_allclose(values, expected, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("rule", [MeanOnly(), Pathwise(8, 20), Taylor()], ids=repr)
def test_without_feedback_bands_about_the_path_are_those_of_one_step(static_model, rule):
    one_step = forecast_static(static_model, 1, AboutPath(rule))
    mean, variance = naive_posterior(static_model, one_step.regressors)
    noise = static_model.gp.noise_variance
    band_factor = 1.7
    calibrated = np.maximum(band_factor**2 * (variance + noise) - noise, 0.0)
    np.testing.assert_allclose(one_step.mean[:, 0], mean, rtol=1e-7)
    np.testing.assert_allclose(one_step.variance[:, 0], calibrated, rtol=1e-6)


# --- divergence -----------------------------------------------------------------------------------

# Bounds of a run of `unstable`, whose points go from 0 to 1: a thousand times that range around it.
LOWER_BOUND = -1000.0
UPPER_BOUND = 1001.0


@each_of(ALL_RULES)
def test_a_run_that_leaves_its_bounds_stops_there(rule):
    """For y[k] = 1.3 y[k-1] there is no exception and no warning.

    The run reports its first value beyond the bounds.
    """
    run = free_run(unstable(1.3), np.zeros((40, 1)), np.ones((1, 1)), propagation=rule)
    expected = 1.3 ** np.arange(1, 40)
    first_outside = int(np.argmax(expected > UPPER_BOUND))
    assert run.left == first_outside
    np.testing.assert_allclose(run.mean[:first_outside, 0], expected[:first_outside], rtol=0.02)
    np.testing.assert_allclose(run.value, expected[first_outside], rtol=0.02)
    assert np.isnan(run.mean[first_outside:]).all()
    assert np.isnan(run.variance[first_outside:]).all()
    assert np.isfinite(run.variance[:first_outside]).all()


@each_of(GAUSSIAN_RULES)
def test_a_run_diverges_if_its_spread_exceeds_the_bounds_and_its_mean_does_not(rule):
    run = free_run(unstable(3.0), np.zeros((40, 1)), np.zeros((1, 1)), propagation=rule)
    assert run.left is not None
    last_spread = np.sqrt(run.variance[run.left - 1, 0])
    assert 0.01 < last_spread < UPPER_BOUND - LOWER_BOUND
    np.testing.assert_allclose(run.value, 0.0, atol=1e-6)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_rule", [Pathwise, MonteCarlo, SequentialConditioning])
@pytest.mark.parametrize(
    ("name", "value"),
    [("n_samples", 1), ("n_samples", 2.0), ("coverage", 0.0), ("coverage", 1.0)],
)
def test_unusable_counts_and_coverages_are_refused(make_rule, name, value):
    with pytest.raises(ValueError, match=f"{make_rule.__name__}: {name} must be"):
        make_rule(**{name: value})


def test_a_run_too_long_for_sequential_conditioning_is_refused():
    model = model_without_heavy_tails(KERNEL)
    message = "use fewer trajectories, a shorter horizon, or Pathwise"
    with pytest.raises(ValueError, match=message):
        simulate(model, 9000, SequentialConditioning())


@pytest.mark.parametrize("n_rows", [1, 7, MAX_ROWS_GATHERED, MAX_ROWS_GATHERED + 1])
def test_exogenous_rows_are_the_lagged_inputs(n_rows):
    narx = Narx({"y": 2}, {"u": [0, 3], "v": 1}).with_linear({"y": 1, "u": 2, "v": 4})
    inputs = np.random.default_rng(0).normal(size=(2, n_rows + 1, 2))
    samples = 1 + np.arange(n_rows)
    found = exogenous_rows(narx, inputs, samples)
    expected = np.zeros((2, n_rows, narx.n_features))
    for path in range(2):
        for i, k in enumerate(samples):
            for j, (name, lag) in enumerate(narx.features):
                if name != "y":
                    expected[path, i, j] = inputs[path, max(k - lag, 0), "uv".index(name)]
    np.testing.assert_array_equal(found, expected)
