"""What becomes of the uncertainty of a model that is fed its own predictions, against brute force and known cases."""

from dataclasses import replace

import numpy as np
import pytest
from identified import ONE, identified, mixed, naive_draws, naive_posterior, one_model, signals, unstable

from sysid import OnlineGP, SquaredExponential
from sysid.dynamics import Dynamics, exogenous_rows
from sysid.free_run import free_run
from sysid.joint import JointModel
from sysid.kernels import Kernel, Linear, Matern32, Matern52, Product, Sum
from sysid.mean import ConstantMean, LinearMean, MeanFunction, ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.projection import Projection
from sysid.propagation import (
    MeanOnly,
    MomentMatching,
    MonteCarlo,
    Pathwise,
    SequentialConditioning,
    Taylor,
)
from sysid.propagation.paths import Paths, of_draws
from sysid.propagation.prior_draw import Draws, can_draw, draw
from sysid.scaling import Scaling

SE = SquaredExponential(0.3, [2.0, 1.5, 3.0])
EVERY = [MeanOnly(), MonteCarlo(8), Pathwise(8, 20), SequentialConditioning(8), Taylor(), MomentMatching()]


def name_of(propagation):
    return type(propagation).__name__


DATA = signals(40, 3)


def inputs(n):
    return DATA["u"][:n, None]


def started(n_outputs=2, w=4):
    return np.stack([DATA["a"], DATA["b"]][:n_outputs], axis=1)[:w]


@pytest.mark.parametrize("make", [identified, lambda: identified("change"), lambda: mixed(identified())])
@pytest.mark.parametrize("propagation", EVERY, ids=name_of)
def test_first_step_is_the_prediction_of_the_models(propagation, make):
    joint = make()
    run = free_run(joint, inputs(5), started(), propagation=propagation)
    x = np.array([DATA[name][4 - lag] for name, lag in joint.models[0].narx.features])[None]
    for i, model in enumerate(joint.models):
        mean, variance = naive_posterior(model, x)
        before = started()[-1, i] if model.narx.predict.value == "change" else 0.0
        np.testing.assert_allclose(run.mean[0, i], mean[0] + before, rtol=1e-9)
        np.testing.assert_allclose(run.variance[0, i], variance[0], rtol=1e-7)


def test_the_gradient_is_the_slope_of_the_mean():
    kernels = (Matern52(0.3, [1.0] * 5), Sum([Linear(0.1, [0.1] * 5), Matern32(0.2, [2.0] * 5)]))
    for joint in (identified(), mixed(identified()), *(identified(kernel=kernel) for kernel in kernels)):
        dynamics = Dynamics(joint)
        x = np.random.default_rng(0).normal(size=(3, 5)) * 0.3
        found = dynamics.gradient(x)
        for d in range(5):
            step = np.zeros(5)
            step[d] = 1e-5
            slope = (dynamics.targets(x + step).mean - dynamics.targets(x - step).mean) / 2e-5
            np.testing.assert_allclose(found[:, :, d], slope, rtol=1e-5, atol=1e-7)


def gaussian(q, seed, size=1.0):
    root = np.random.default_rng(seed).normal(size=(q, q)) * 0.4 * size
    return root @ root.T


def brute_force(joint, x, covariance, n, seed=0):
    """Moments of the targets and their covariance with the lagged outputs, from samples of the regressor."""
    dynamics, rng = Dynamics(joint), np.random.default_rng(seed)
    total = []
    for _ in range(max(1, n // 50_000)):
        rows = np.tile(x, (min(n, 50_000), 1))
        rows[:, dynamics.feedback] += rng.multivariate_normal(np.zeros(len(covariance)), covariance, len(rows))
        parts = [naive_posterior(model, rows) for model in joint.models]
        mean = np.stack([part[0] for part in parts], axis=1)
        total.append((rows[:, dynamics.feedback], mean, np.stack([part[1] for part in parts], axis=1)))
    rows, mean, latent = (np.concatenate(part) for part in zip(*total, strict=True))
    own = np.cov(mean.T).reshape(mean.shape[1], -1) + np.diag(latent.mean(axis=0))
    cross = (rows - rows.mean(axis=0)).T @ mean / len(rows)
    return mean.mean(axis=0), own, cross


@pytest.mark.parametrize(
    ("mean", "n", "tolerance"),
    [(LinearMean(), 100_000, 0.012), pytest.param(ConstantMean(), 2_000_000, 0.005, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("size", [2.0, 5.0])
@pytest.mark.parametrize("change", [lambda joint: joint, mixed], ids=["scaled", "mixed"])
def test_moment_matching_is_exact_for_a_gaussian_regressor(mean, n, tolerance, change, size):
    joint = change(identified(mean=mean))
    dynamics = Dynamics(joint)
    x, covariance = np.array([0.2, -0.3, 2.1, 0.4, -0.5]), gaussian(3, 1, size)
    found = MomentMatching().one_step(dynamics)(x[None], covariance[None])
    expected_mean, expected_own, expected_cross = brute_force(joint, x, covariance, n)
    scale = np.sqrt(np.diag(expected_own))
    np.testing.assert_allclose(found.mean[0], expected_mean, atol=tolerance * scale.max())
    np.testing.assert_allclose(found.covariance[0], expected_own, atol=tolerance * scale.max() ** 2)
    assert abs(expected_own[0, 1]) > 5 * tolerance * scale.max() ** 2  # the outputs are correlated
    cross = covariance @ found.slope[0]
    np.testing.assert_allclose(cross, expected_cross, atol=tolerance * np.sqrt(covariance.max()) * scale.max())


def test_moment_matching_of_a_certain_regressor_is_the_prediction():
    joint = identified()
    dynamics = Dynamics(joint)
    x = np.array([[0.2, -0.3, 2.1, 0.4, -0.5]])
    found = MomentMatching().one_step(dynamics)(x, np.zeros((1, 3, 3)))
    targets = dynamics.targets(x)
    np.testing.assert_allclose(found.mean, targets.mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance[0], np.diag(targets.variance[0]), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.slope[0].T, dynamics.gradient(x)[0][:, dynamics.feedback], rtol=1e-10)


@pytest.mark.parametrize("size", [1e-3, 1e-4])
def test_what_a_small_covariance_adds_is_linear_in_it(size):
    """No digits cancel, though the weights are large; between outputs it is what Taylor adds."""
    dynamics = Dynamics(identified(noise_variance=1e-6))
    x, covariance = np.array([[0.2, -0.3, 2.1, 0.4, -0.5]]), gaussian(3, 1, size)[None]
    certain = np.diag(dynamics.targets(x).variance[0])
    rule = MomentMatching().one_step(dynamics)
    once, twice = (rule(x, factor * covariance).covariance[0] - certain for factor in (1.0, 2.0))
    np.testing.assert_allclose(twice, 2.0 * once, rtol=2e-3)
    expanded = Taylor().one_step(dynamics)(x, covariance).covariance[0]
    np.testing.assert_allclose(once[0, 1], expanded[0, 1], rtol=2e-3)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("predict", ["value", "change"])
def test_two_steps_of_moment_matching_are_exact(predict, noise):
    """What a certain regressor gives is Gaussian, so the moments of the second step are exact too."""
    joint = identified(predict)
    drawn = naive_draws(joint, started(), inputs(6)[:, 0], 20_000, seed=2, feed_noise=noise)
    run = free_run(joint, inputs(6), started(), propagation=MomentMatching(noise))
    np.testing.assert_allclose(run.mean, drawn.mean(axis=0), atol=0.004)
    np.testing.assert_allclose(run.variance, drawn.var(axis=0), rtol=0.04)


def test_combinations_of_features_are_fed_back():
    """Matrices that only scale give what the scaling gives; others follow brute force."""
    joint = identified("change")
    scaled = JointModel(
        tuple(replace(m, scaling=Projection(m.scaling.offset, np.diag(1.0 / m.scaling.scale))) for m in joint.models)
    )
    for rule in EVERY:
        one, other = (free_run(each, inputs(9), started(), propagation=rule) for each in (joint, scaled))
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-8)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6)
    joint = mixed(joint)
    drawn = naive_draws(joint, started(), inputs(7)[:, 0], 4000, seed=2)
    exact = free_run(joint, inputs(7), started(), propagation=SequentialConditioning(600, coverage=None))
    for rule in (MomentMatching(), Pathwise(1500, 10, coverage=None)):
        run = free_run(joint, inputs(7), started(), propagation=rule)
        variance = exact.variance if isinstance(rule, Pathwise) else drawn.var(axis=0)
        np.testing.assert_allclose(np.log(run.variance / variance), 0.0, atol=0.35)
        np.testing.assert_allclose(run.mean, drawn.mean(axis=0), atol=0.2 * drawn.std(axis=0).max())


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("predict", ["value", "change"])
def test_independent_draws_equal_naive_ones(predict, noise):
    joint = identified(predict, noise_variance=1e-2)
    drawn = naive_draws(joint, started(), inputs(9)[:, 0], 3_000, seed=2, feed_noise=noise)
    run = free_run(joint, inputs(9), started(), propagation=MonteCarlo(300, process_noise=noise, coverage=None), seed=4)
    spread = drawn.std(axis=0)
    np.testing.assert_allclose(run.mean, drawn.mean(axis=0), atol=0.25 * spread.max())
    np.testing.assert_allclose(run.variance, drawn.var(axis=0), rtol=0.35)
    np.testing.assert_allclose(np.log(run.variance / drawn.var(axis=0)).mean(), 0.0, atol=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [False, True])
def test_many_independent_draws_equal_naive_ones(noise):
    joint = identified("change", noise_variance=1e-2)
    drawn = naive_draws(joint, started(), inputs(14)[:, 0], 40_000, seed=2, feed_noise=noise)
    run = free_run(
        joint, inputs(14), started(), propagation=MonteCarlo(20_000, process_noise=noise, coverage=None), seed=4
    )
    np.testing.assert_allclose(run.mean, drawn.mean(axis=0), atol=0.03 * drawn.std(axis=0).max())
    np.testing.assert_allclose(run.variance, drawn.var(axis=0), rtol=0.06)


@pytest.mark.parametrize("rule", [Taylor, MomentMatching])
def test_gaussian_states_follow_brute_force_where_it_is_nearly_linear(rule):
    """Many lags, two outputs, a change as target: every correlation counts."""
    joint = identified("change", kernel=SquaredExponential(0.01, [6.0, 5.0, 6.0, 5.0, 7.0]), noise_variance=1e-4)
    drawn = naive_draws(joint, started(), inputs(16)[:, 0], 4_000, seed=2, feed_noise=True)
    run = free_run(joint, inputs(16), started(), propagation=rule(process_noise=True))
    np.testing.assert_allclose(run.mean, drawn.mean(axis=0), atol=0.1 * drawn.std(axis=0).max())
    np.testing.assert_allclose(run.variance, drawn.var(axis=0), rtol=0.12)


def integrator(noise_variance=1e-4):
    """``y[k] = y[k-1] + f(u[k])``, f known at two inputs only."""
    narx = Narx(outputs={"y": 1}, inputs={"u": [0]})
    gp = OnlineGP(SquaredExponential(1.0, [1e6, 1.0]), noise_variance=noise_variance, budget=5)
    gp.fit([[0.0, 0.0], [0.0, 1.0]], [0.1, -0.2])
    return Model(narx, Scaling(np.zeros(2), np.array([1.0, 2.0])), ZeroMean(), gp)


@pytest.mark.parametrize(
    "propagation", [Pathwise(300, 50, coverage=None), SequentialConditioning(300, coverage=None)], ids=name_of
)
def test_one_function_per_trajectory_adds_up_where_independent_draws_average_out(propagation):
    """At a constant input each step adds the same unknown: variance n^2 s2 after n steps, not n s2."""
    model = integrator()
    u, y = np.full((13, 1), 3.2), np.zeros((3, 1))
    one = model.predict([[0.0, 3.2]])
    steps = np.arange(1, 11)[:, None]
    independent = free_run(model, u, y, propagation=MonteCarlo(300, coverage=None))
    np.testing.assert_allclose(independent.variance, steps * one.variance, rtol=0.3)
    consistent = free_run(model, u, y, propagation=propagation)
    np.testing.assert_allclose(consistent.variance, steps**2 * one.variance, rtol=0.3)
    np.testing.assert_allclose(consistent.mean, steps * one.mean, atol=0.25 * 10 * np.sqrt(one.variance[0]))
    assert (consistent.variance[1:] > 1.2 * independent.variance[1:]).all()


@pytest.mark.parametrize(("rule", "power"), [(MonteCarlo, 1), (Pathwise, 2), (SequentialConditioning, 2)])
def test_process_noise_is_drawn_anew_at_every_step_and_not_counted_in_its_own(rule, power):
    model = integrator(noise_variance=4.0)
    u, y = np.full((13, 1), 3.2), np.zeros((3, 1))
    one, steps = model.predict([[0.0, 3.2]]).variance, np.arange(1, 11)[:, None]
    fed = free_run(model, u, y, propagation=rule(300, process_noise=True))
    np.testing.assert_allclose(fed.variance, steps**power * one + (steps - 1) * 4.0, rtol=0.3)


def test_gaussian_states_and_the_mean_in_the_same_case():
    model = integrator()
    u, y = np.full((13, 1), 3.2), np.zeros((3, 1))
    one, steps = model.predict([[0.0, 3.2]]), np.arange(1, 11)[:, None]
    for rule in (Taylor(), MomentMatching()):
        run = free_run(model, u, y, propagation=rule)
        np.testing.assert_allclose(run.variance, steps * one.variance, rtol=1e-6)
        fed = free_run(model, u, y, propagation=type(rule)(process_noise=True))
        np.testing.assert_allclose(fed.variance, steps * one.variance + (steps - 1) * 1e-4, rtol=1e-6)
    alone = free_run(model, u, y, propagation=MeanOnly())
    np.testing.assert_allclose(alone.variance, one.variance * np.ones((10, 1)), rtol=1e-6)
    np.testing.assert_allclose(alone.mean, steps * one.mean, rtol=1e-9)


KERNELS = [
    SE,
    Matern32(0.3, [2.0, 1.5, 3.0]),
    Matern52(0.3, [2.0, 1.5, 3.0]),
    Linear(0.2, [0.3, 0.1, 0.2]),
    Sum([Linear(0.1, [0.1, 0.1, 0.1]), SE]),
    Product([Linear(0.5, [0.3, 0.1, 0.2]), SE]),
    Product([SE, Matern32(1.0, [2.0, 2.0, 2.0])]),
    Product([Sum([Linear(0.5, [0.3, 0.1, 0.2]), SE]), Product([SE, Matern52(2.0, [1.0, 2.0, 1.0])])]),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_functions_of_the_prior_have_its_covariance(kernel):
    """Even with few features, as every function has its own frequencies."""
    points = np.random.default_rng(0).normal(size=(4, 3))
    functions = draw(kernel, Draws(6000, 5, np.random.default_rng(1)))
    values = functions(np.repeat(points[:, None], 6000, axis=1))
    expected = kernel(points, points)
    assert can_draw(kernel)
    np.testing.assert_allclose(values.mean(axis=1), 0.0, atol=0.05 * np.sqrt(expected.max()))
    np.testing.assert_allclose(values @ values.T / 6000, expected, atol=0.09 * expected.max())


TAME = [SE, KERNELS[2], Sum([Linear(0.01, [0.01, 0.01, 0.01]), SE])]  # their trajectories have no heavy tails


@pytest.mark.parametrize("kernel", TAME, ids=lambda kernel: type(kernel).__name__)
def test_drawn_functions_agree_with_conditioning_step_by_step(kernel):
    model = one_model(Narx(**ONE), 8, kernel, noise_variance=1e-2)
    u, y = inputs(9), started(1)
    pathwise = free_run(model, u, y, propagation=Pathwise(1500, 10, coverage=None), seed=1)
    exact = free_run(model, u, y, propagation=SequentialConditioning(500, coverage=None), seed=2)
    np.testing.assert_allclose(pathwise.mean, exact.mean, atol=0.25 * np.sqrt(exact.variance.max()))
    np.testing.assert_allclose(np.log(pathwise.variance / exact.variance)[1:], 0.0, atol=0.35)


@pytest.mark.slow
def test_many_drawn_functions_agree_with_conditioning_step_by_step():
    joint = identified("change", noise_variance=1e-2)
    u, y = inputs(24), started()
    pathwise = free_run(joint, u, y, propagation=Pathwise(4000, 100, coverage=None), seed=1)
    exact = free_run(joint, u, y, propagation=SequentialConditioning(2000, coverage=None), seed=2)
    np.testing.assert_allclose(pathwise.mean, exact.mean, atol=0.1 * np.sqrt(exact.variance.max()))
    np.testing.assert_allclose(np.log(pathwise.variance / exact.variance), 0.0, atol=0.2)


def test_drawn_functions_of_a_static_model_have_the_moments_of_its_posterior():
    """Nothing is fed back: every sample after the first has the moments of the prediction, by sampling alone."""
    narx = Narx(outputs={"a": []}, inputs={"u": [0, 1, 2]}, predict="value")
    model = one_model(narx, 8, SE, noise_variance=1e-2)
    u = inputs(12)
    run = free_run(model, u, np.empty((0, 1)), propagation=Pathwise(3000, 20, coverage=None))
    rows = np.stack([u[np.maximum(np.arange(12) - lag, 0), 0] for lag in (0, 1, 2)], axis=1)
    expected = model.predict(rows)
    np.testing.assert_allclose(run.mean[:, 0], expected.mean, atol=0.1 * np.sqrt(expected.variance.max()))
    np.testing.assert_allclose(run.variance[:, 0], expected.variance, rtol=0.15)


class Rough(Kernel):
    """A user's own kernel: squared exponential behind another name."""

    row = SquaredExponential.row
    n_features = 3
    hyperparameter_names = ()

    def parameters(self):
        return SE.parameters()

    def log_hyperparameters(self):
        return SE.log_hyperparameters()

    def with_log_hyperparameters(self, values):
        return self

    def stretched(self, factors):
        return self

    def contract_gradient(self, weights, points, covariance):
        return SE.contract_gradient(weights, points, covariance)

    def input_gradient(self, inputs, points):
        return SE.input_gradient(inputs, points)


class Straight(MeanFunction):
    """A user's own mean function, linear as it happens, of which nobody knows that."""

    def __call__(self, regressors):
        return 0.1 + regressors @ np.array([0.5, 0.1, 0.4])


def test_what_a_method_cannot_do_is_an_error_and_the_others_do_it():
    own = one_model(Narx(**ONE), 8, Rough())
    known = one_model(Narx(**ONE), 8, SE)
    u, y = inputs(8), started(1)
    with pytest.raises(ValueError, match="MomentMatching: expected the kernel SquaredExponential, got Rough"):
        free_run(own, u, y, propagation=MomentMatching())
    with pytest.raises(ValueError, match="spectral density of Rough is not known; SequentialConditioning"):
        free_run(own, u, y, propagation=Pathwise(4))
    assert not can_draw(Rough())
    for rule in (MeanOnly(), MonteCarlo(5), SequentialConditioning(5), Taylor()):
        found, expected = (free_run(model, u, y, propagation=rule) for model in (own, known))
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9)
    with pytest.raises(ValueError, match="expected a zero, constant or linear mean, got Straight"):
        free_run(one_model(Narx(**ONE), 8, SE, Straight()), u, y, propagation=MomentMatching())


@pytest.mark.parametrize("rule", EVERY[:-1], ids=name_of)
def test_a_mean_function_of_the_user_is_fed_back_like_a_known_one(rule):
    u, y = inputs(9), started(1)
    own, known = (one_model(Narx(**ONE), 8, SE, mean) for mean in (Straight(), LinearMean((0.5, 0.1, 0.4), 0.1)))
    known = Model(known.narx, known.scaling, LinearMean((0.5, 0.1, 0.4), 0.1), own.gp)
    for found, expected in zip(
        free_run(own, u, y, propagation=rule), free_run(known, u, y, propagation=rule), strict=True
    ):
        np.testing.assert_allclose(
            np.asarray(found, dtype=float), np.asarray(expected, dtype=float), rtol=1e-6, atol=1e-9
        )


@pytest.mark.parametrize("rule", [MonteCarlo(6), Pathwise(6, 10), SequentialConditioning(6)], ids=name_of)
def test_draws_follow_the_seed(rule):
    model = one_model(Narx(**ONE), 8, SE)
    one, again, other = (free_run(model, inputs(8), started(1), propagation=rule, seed=s).mean for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one[1:], other[1:])


@pytest.mark.parametrize("rule", EVERY, ids=name_of)
def test_starts_do_not_know_of_each_other(rule):
    """Several starts at once give what each gives alone."""
    joint = identified("change")
    dynamics, rng = Dynamics(joint), np.random.default_rng(0)
    past = started()[None, -2:] + 0.1 * rng.normal(size=(3, 2, 2))
    exogenous = np.zeros((3, 4, 5))
    exogenous[:, :, 3:] = rng.normal(size=(3, 4, 2))
    together = rule.propagate(dynamics, past, exogenous, np.random.default_rng(1))
    assert together.mean.shape == together.variance.shape == (3, 4, 2)
    deterministic = isinstance(rule, MeanOnly | Taylor | MomentMatching | Pathwise)
    for b in range(3 if deterministic else 0):
        alone = rule.propagate(dynamics, past[[b]], exogenous[[b]], np.random.default_rng(1))
        np.testing.assert_allclose(together.mean[[b]], alone.mean, rtol=1e-10)
        np.testing.assert_allclose(together.variance[[b]], alone.variance, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("rule", EVERY, ids=name_of)
def test_a_run_that_leaves_its_bounds_stops_there(rule):
    """y[k] = 1.3 y[k-1]: no exception, no warning; the value it left with, then nothing."""
    model = unstable(1.3)
    run = free_run(model, np.zeros((40, 1)), np.ones((1, 1)), propagation=rule)
    expected = 1.3 ** np.arange(1, 40)
    leaves = int(np.argmax(expected > 1001.0))  # the points go from 0 to 1
    assert run.left == leaves
    np.testing.assert_allclose(run.mean[:leaves, 0], expected[:leaves], rtol=0.02)
    np.testing.assert_allclose(run.value, expected[leaves], rtol=0.02)
    assert np.isnan(run.mean[leaves:]).all()
    assert np.isnan(run.variance[leaves:]).all()
    assert np.isfinite(run.variance[:leaves]).all()


@pytest.mark.parametrize("rule", [Taylor(), MomentMatching()], ids=name_of)
def test_a_spread_beyond_the_bounds_has_diverged_though_the_mean_has_not(rule):
    run = free_run(unstable(3.0), np.zeros((40, 1)), np.zeros((1, 1)), propagation=rule)
    assert run.left is not None
    assert 0.01 < np.sqrt(run.variance[run.left - 1, 0]) < 2001.0  # of bounds from -1000 to 1001
    np.testing.assert_allclose(run.value, 0.0, atol=1e-6)


def test_counts_are_checked():
    for wrong in (1, 2.0, True):
        for kind in (MonteCarlo, Pathwise, SequentialConditioning):
            with pytest.raises(ValueError, match=f"{kind.__name__}: n_samples must be an integer of at least 2"):
                kind(wrong)
    with pytest.raises(ValueError, match="use fewer trajectories, a shorter horizon, or Pathwise"):
        free_run(one_model(Narx(**ONE), 8, SE), np.zeros((9000, 1)), started(1), propagation=SequentialConditioning())


def test_rounding_does_not_make_a_long_run_of_two_outputs_diverge():
    """The antisymmetric part that rounding leaves in the covariance of the outputs would grow at every step."""
    joint = identified("change")
    u = np.tile(inputs(40), (12, 1))
    run = free_run(joint, u, started(), propagation=Taylor())
    dynamics, path = Dynamics(joint), free_run(joint, u, started())
    past = np.concatenate([started(), path.mean])
    state, spread = np.zeros((4, 4)), []
    for k in range(4, len(u)):
        last = past[k - 2 : k].reshape(1, 2, 2)
        x = dynamics.regressors(last, exogenous_rows(dynamics.narx, u, np.array([k])))
        slope = np.zeros((2, 4))
        slope[:, dynamics.state_index] = dynamics.gradient(x)[0][:, dynamics.feedback]
        slope[:, 2:] += np.eye(2)  # the targets are changes
        move = np.vstack([np.eye(4)[2:], slope])
        state = move @ state @ move.T
        state[2:, 2:] += np.diag(dynamics.targets(x).variance[0])
        state = (state + state.T) / 2
        spread.append(np.diag(state)[2:])
    np.testing.assert_allclose(run.mean, path.mean, rtol=1e-9)
    np.testing.assert_allclose(run.variance, spread, rtol=1e-6)


def test_few_draws_that_run_away_do_not_set_the_band():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 2000, 1))
    centre, variance = of_draws(values, 0.95)
    assert variance[0, 0] == pytest.approx(1.0, rel=0.1)
    values[0, :40] = [[1e6]] * 20 + [[np.nan]] * 20
    again, robust = of_draws(values, 0.95)
    assert again[0, 0] == pytest.approx(centre[0, 0], abs=0.1)
    assert robust[0, 0] == pytest.approx(1.5, rel=0.2)
    assert of_draws(values[:, :20], None)[1][0, 0] == 0.0
    values[0, :200] = np.nan
    assert of_draws(values, 0.95)[1][0, 0] == np.inf


@pytest.mark.parametrize("coverage", [0.95, None])
def test_a_start_is_over_when_more_paths_have_left_than_the_band_leaves_out(coverage):
    model = unstable(1.0, (0.0, 1.0))
    paths = Paths(Dynamics(model), np.zeros((2, 1, 1)), np.zeros((2, 3, model.narx.n_features)), 40, coverage)
    values = np.zeros((2, 40, 1))
    values[0, :2] = 1e9
    paths.push(0, values)
    paths.note(0, *paths.of_draws(values))
    over = np.isnan(paths.moments().variance[:, 0, 0])
    assert over.tolist() == [coverage is None, False]
    values[0, :3] = 1e9
    paths.push(1, values)
    paths.note(1, *paths.of_draws(values))
    assert np.isnan(paths.moments().variance[:, 1, 0]).tolist() == [True, False]


@pytest.mark.parametrize("rule", [Pathwise, MonteCarlo, SequentialConditioning])
@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.5])
def test_a_coverage_that_is_no_probability_is_refused(rule, coverage):
    with pytest.raises(ValueError, match="coverage must be None or a number above 0 and below 1"):
        rule(coverage=coverage)
