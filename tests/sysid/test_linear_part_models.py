"""Models with a linear part: predictions, gradients, simulations and draws of them."""

from dataclasses import replace

import numpy as np
import pytest

from coupled_models import signals
from linear_part_models import (
    KERNEL,
    joint_model_with_linear_parts,
    model_with_linear_part,
    naive_coefficients,
    naive_posterior,
    typical_regressors,
)
from naive import finite_differences
from sysid import (
    AffineMap,
    ErrorThreshold,
    JointModel,
    LagWindow,
    LinearMean,
    Matern32,
    MeanOnly,
    Model,
    MomentMatching,
    MonteCarlo,
    Narx,
    OnlineGP,
    Pathwise,
    SequentialConditioning,
    Taylor,
    WithLinearPart,
    ZeroMean,
    free_run,
)
from sysid.simulation.dynamics import Dynamics, exogenous_rows

# --- one step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["a", "b"])
def test_predictions_are_those_of_the_dense_posterior(target):
    model = model_with_linear_part(target)
    x = typical_regressors(model, 20)
    mean, covariance = naive_posterior(model, x)
    predicted = model.predict(x)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.variance, np.diag(covariance), atol=1e-9)


def mixed_features():
    """Return a map of the eleven features of the models that combines those of the process."""
    matrix = np.diag(np.linspace(0.5, 2.0, 11))
    matrix[:3, :3] += 0.3 * np.random.default_rng(0).normal(size=(3, 3))
    return AffineMap.of_matrix(np.linspace(0.0, 1.0, 11), matrix)


CASES = {
    "fixed points": {},
    "points that were replaced": {"n_updates": 60},
    "combined features": {"scaling": mixed_features()},
    "Matern 3/2": {"kernel": WithLinearPart(Matern32(0.3, [2.0, 1.5, 1.8]), KERNEL.linear)},
}


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_the_mean(case):
    joint = joint_model_with_linear_parts(**CASES[case])
    x = typical_regressors(joint.models[0], 3)
    gradient = Dynamics(joint).gradient(x)
    for i, model in enumerate(joint.models):
        for row, at in zip(gradient[:, i], x, strict=True):
            expected = finite_differences(lambda x, m=model: m.predict(x[None]).mean[0], at, 1e-3)
            np.testing.assert_allclose(row, expected, rtol=1e-6, atol=1e-8)


# --- coefficients ---------------------------------------------------------------------------------

SCALINGS = {"scales": None, "combined features": mixed_features()}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_coefficients_are_those_of_the_dense_posterior(scaling):
    model = model_with_linear_part(scaling=SCALINGS[scaling])
    mean, covariance = naive_coefficients(model)
    gp = model.gp
    np.testing.assert_allclose(gp.coefficients, mean, atol=1e-9)
    np.testing.assert_allclose(gp.coefficient_covariance, covariance, atol=1e-9)
    # the scale of each feature of the linear part, one by one
    per_unit = np.diag(model.scaling.linear_part())[-gp.n_linear :]
    coefficients = model.linear_coefficients
    np.testing.assert_allclose(coefficients.mean, mean * per_unit, atol=1e-9)
    expected = [
        [c * a * b for c, b in zip(row, per_unit, strict=True)]
        for row, a in zip(covariance, per_unit, strict=True)
    ]
    np.testing.assert_allclose(coefficients.covariance, expected, atol=1e-9)


def test_far_from_all_points_the_coefficients_alone_are_left():
    """Also after updates, which change the scale of all variances and replace points."""
    model = model_with_linear_part(n_updates=60)
    gp = model.gp
    x = typical_regressors(model, 10)
    x[:, : gp.n_features - gp.n_linear] += 1e3 * model.scaling.scale[:3]
    phi = model.scaling.transform(x)[:, -gp.n_linear :]
    predicted = model.predict(x)
    np.testing.assert_allclose(model.predict_linear_part(x), predicted.mean, rtol=1e-12)
    np.testing.assert_allclose(predicted.mean - model.mean(x), phi @ gp.coefficients, rtol=1e-9)
    of_coefficients = np.einsum("ni,ij,nj->n", phi, gp.coefficient_covariance, phi)
    variance = predicted.variance - gp.kernel.kernel.variance
    np.testing.assert_allclose(of_coefficients, variance, rtol=1e-9)


def test_changes_of_single_lags_show_the_coefficients_in_units_of_the_data():
    model = model_with_linear_part()
    x = typical_regressors(model, 1)
    at = model.predict_linear_part(x) - model.mean(x)
    first = model.narx.n_features - model.gp.n_linear
    for i, coefficient in enumerate(model.linear_coefficients.mean):
        moved = x + 2.0 * (np.arange(model.narx.n_features) == first + i)
        change = model.predict_linear_part(moved) - model.mean(moved) - at
        assert change[0] == pytest.approx(2.0 * coefficient, rel=1e-9)


def test_the_blocks_of_the_coefficients_are_the_lags_of_their_signals():
    model = model_with_linear_part()
    assert [*model.linear_blocks] == [*model.linear_signals]
    for name, block in model.linear_blocks.items():
        assert {signal for signal, _ in model.linear_features[block]} == {name}
    n_covered = sum(len(model.linear_features[block]) for block in model.linear_blocks.values())
    assert n_covered == model.gp.n_linear


def test_a_model_without_a_linear_part_has_no_coefficients():
    gp = OnlineGP(KERNEL.kernel, noise_variance=1e-3, budget=5)
    narx = Narx({"y": 3}, target="y", predict="value")
    model = Model(narx, AffineMap.identity(3), LinearMean([1.0, 2.0, 3.0], 4.0), gp)
    assert model.linear_blocks == {}
    assert model.linear_coefficients.mean.shape == (0,)
    assert model.linear_coefficients.covariance.shape == (0, 0)
    np.testing.assert_allclose(model.predict_linear_part([[1.0, 1.0, 1.0]]), [10.0])


# --- free run -------------------------------------------------------------------------------------


def follow(joint, data, n_measured):
    """Return the outputs (n, m) of a free run, one sample at a time, with `predict`."""
    narx = joint.models[0].narx
    window = LagWindow(narx)
    n = len(data["u"])
    outputs = np.stack([data[name] for name in narx.output_names], axis=1)
    for k in range(n):
        u = [data["u"][k]]
        if k >= n_measured:
            x = window.regressor(u)
            means = [model.predict(x[None]).mean[0] for model in joint.models]
            outputs[k] = means
            if narx.predict.value == "change":
                outputs[k] += outputs[k - 1]
        window.push(outputs[k], u)
    return outputs[n_measured:]


@pytest.mark.parametrize("predict", ["value", "change"])
@pytest.mark.parametrize("case", CASES)
def test_a_free_run_feeds_the_predictions_back(case, predict):
    joint = joint_model_with_linear_parts(predict=predict, **CASES[case])
    data = signals(40, seed=5)
    expected = follow(joint, data, 6)
    y_init = np.stack([data["a"], data["b"]], axis=1)[:6]
    run = free_run(joint, data["u"][:, None], y_init)
    np.testing.assert_allclose(run.mean, expected, rtol=1e-8, atol=1e-9)


# --- draws ----------------------------------------------------------------------------------------


def test_the_exact_form_has_the_same_posterior():
    model = model_with_linear_part(n_updates=60)
    assert_form_is_exact(model.gp, model.scaling.transform(typical_regressors(model, 30)))


def test_the_exact_form_of_a_linear_part_alone_has_the_same_posterior():
    gp = gp_without_points()
    z = np.random.default_rng(0).normal(size=(30, gp.n_features))
    gp.update_many(z, z @ np.linspace(-1.0, 1.0, gp.n_features))
    assert gp.n_points == 0
    assert_form_is_exact(gp, z + 0.1)


def gp_without_points():
    """Return an online GP that learns its linear part, but stores nothing."""
    return OnlineGP(
        KERNEL,
        noise_variance=1e-3,
        budget=5,
        learning="every_sample",
        insertion=ErrorThreshold(1e9),
    )


def assert_form_is_exact(gp, z):
    """Assert that the exact form predicts the same at coordinates z (n, q)."""
    form = gp.exact_form()
    k = gp.kernel(form["inputs"][form["order"]], z)
    white = form["factor"] @ k
    mean, variance = gp.predict(z)
    np.testing.assert_allclose(form["weights"] @ k, mean, atol=1e-9)
    np.testing.assert_allclose(form["whitened"] @ white, mean, atol=1e-9)
    variance_of_form = gp.kernel.diagonal(z) - (white**2).sum(axis=0)
    np.testing.assert_allclose(variance_of_form, variance, atol=1e-9)


@pytest.mark.parametrize("case", ["fixed points", "points that were replaced", "Matern 3/2"])
def test_functions_drawn_from_the_posterior_have_its_moments(case):
    """The moments of all functions at once: the coefficients belong to the values at the points."""
    n_functions = 20_000
    joint = joint_model_with_linear_parts(**CASES[case])
    x = typical_regressors(joint.models[0], 5)
    rule = Pathwise(n_samples=n_functions, n_features=20)
    functions = rule.functions(Dynamics(joint), np.random.default_rng(0))
    drawn = functions(np.repeat(x, n_functions, axis=0)).reshape(len(x), n_functions, 2)
    for i, model in enumerate(joint.models):
        predicted = model.predict(x)
        std = np.sqrt(predicted.variance)
        deviation = (drawn[:, :, i].mean(axis=1) - predicted.mean) / std
        np.testing.assert_allclose(deviation, 0.0, atol=5 / np.sqrt(n_functions))
        np.testing.assert_allclose(drawn[:, :, i].std(axis=1) / std, 1.0, atol=0.03)
        if case == "fixed points":
            _, covariance = naive_posterior(model, x)
            scale = np.outer(std, std)
            np.testing.assert_allclose(
                np.cov(drawn[:, :, i]) / scale, covariance / scale, atol=0.05
            )


def test_paths_of_whole_functions_spread_as_values_drawn_one_by_one():
    """Both rules draw from the same joint distribution of all values along a trajectory."""
    joint = joint_model_with_linear_parts(n_points=8)
    past, exogenous = start_of_free_run(joint, 12)
    dynamics = Dynamics(joint)
    rules = [Pathwise(n_samples=4000, n_features=50), SequentialConditioning(n_samples=4000)]
    moments = [
        rule.propagate(dynamics, past, exogenous, np.random.default_rng(seed))
        for seed, rule in enumerate(rules)
    ]
    std = np.sqrt(moments[0].variance)
    np.testing.assert_allclose(np.sqrt(moments[1].variance) / std, 1.0, atol=0.1)
    np.testing.assert_allclose((moments[1].mean - moments[0].mean) / std, 0.0, atol=0.15)


def start_of_free_run(joint, n_steps):
    """Return the past outputs (1, L, m) and the exogenous features (1, n_steps, p)."""
    narx = joint.models[0].narx
    data = signals(narx.max_lag + n_steps, seed=8)
    past = np.stack([data[name] for name in narx.output_names], axis=1)[None, : narx.max_lag]
    samples = np.arange(narx.max_lag, narx.max_lag + n_steps)
    return past, exogenous_rows(narx, data["u"][:, None], samples)[None]


@pytest.mark.parametrize(
    "rule",
    [Taylor(), MomentMatching(), MonteCarlo(), SequentialConditioning(), Pathwise()],
)
def test_the_moments_of_the_first_sample_are_those_of_one_step(rule):
    joint = joint_model_with_linear_parts(n_updates=60)
    past, exogenous = start_of_free_run(joint, 1)
    dynamics = Dynamics(joint)
    moments = rule.propagate(dynamics, past, exogenous, np.random.default_rng(0))
    x = dynamics.regressors(past, exogenous[:, 0])
    expected = [model.predict(x) for model in joint.models]
    mean = np.concatenate([prediction.mean for prediction in expected])
    variance = np.concatenate([prediction.variance for prediction in expected])
    np.testing.assert_allclose(moments.mean[0, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(moments.variance[0, 0], variance, rtol=1e-6)


@pytest.mark.parametrize(
    "rule",
    [MeanOnly(), Taylor(), MomentMatching(), MonteCarlo(), SequentialConditioning(), Pathwise()],
)
def test_models_that_have_stored_nothing_are_simulated(rule):
    """Their mean is that of the linear part alone."""
    joint = joint_model_with_linear_parts()
    models = []
    for model in joint.models:
        gp = gp_without_points()
        narx = model.narx
        rows = narx.regressors(signals(120))
        gp.update_many(model.scaling.transform(rows.regressor), rows.target)
        models.append(replace(model, gp=gp, mean=ZeroMean()))
    stored_nothing = JointModel(tuple(models))
    past, exogenous = start_of_free_run(joint, 4)
    dynamics = Dynamics(stored_nothing)
    moments = rule.propagate(dynamics, past, exogenous, np.random.default_rng(0))
    mean = MeanOnly().propagate(dynamics, past, exogenous, np.random.default_rng(0)).mean
    assert np.isfinite(moments.variance).all()
    assert (np.abs(moments.mean - mean) < 5 * np.sqrt(moments.variance)).all()


# --- Gaussian regressors --------------------------------------------------------------------------


def gaussian_nodes(n_dimensions, n_nodes=30):
    """Return nodes (n, d) and weights (n,) of Gauss-Hermite quadrature for a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    grid = np.meshgrid(*[nodes] * n_dimensions, indexing="ij")
    products = np.meshgrid(*[weights] * n_dimensions, indexing="ij")
    total = np.prod([product.ravel() for product in products], axis=0)
    return np.stack([axis.ravel() for axis in grid], axis=1), total / total.sum()


@pytest.mark.parametrize("spread", [0.0, 1e-4, 0.3])
@pytest.mark.parametrize("case", ["fixed points", "points that were replaced", "combined features"])
def test_moments_at_a_gaussian_regressor_are_those_of_quadrature(case, spread):
    """The lagged outputs vary along two directions, so that quadrature is exact."""
    joint = joint_model_with_linear_parts(**CASES[case])
    dynamics = Dynamics(joint)
    x = typical_regressors(joint.models[0], 3)[2]
    q = len(dynamics.feedback)
    root = spread * np.random.default_rng(1).normal(size=(q, 2))
    nodes, weights = gaussian_nodes(2)
    deviations = nodes @ root.T
    regressors = np.tile(x, (len(nodes), 1))
    regressors[:, dynamics.feedback] += deviations
    predicted = [model.predict(regressors) for model in joint.models]
    means = np.stack([prediction.mean for prediction in predicted], axis=1)
    latent = [weights @ prediction.variance for prediction in predicted]
    expected_mean = weights @ means
    centred = means - expected_mean
    expected_covariance = (centred * weights[:, None]).T @ centred + np.diag(latent)
    expected_cross = (deviations * weights[:, None]).T @ centred

    targets = MomentMatching().one_step(dynamics)(x[None], (root @ root.T)[None])

    np.testing.assert_allclose(targets.mean[0], expected_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(targets.covariance[0], expected_covariance, rtol=1e-6, atol=1e-10)
    cross = root @ root.T @ targets.slope[0]
    np.testing.assert_allclose(cross, expected_cross, rtol=1e-6, atol=1e-10)


def test_moment_matching_refuses_other_kernels_beside_a_linear_part():
    joint = joint_model_with_linear_parts(**CASES["Matern 3/2"])
    with pytest.raises(ValueError, match="expected the kernel SquaredExponential, got Matern32"):
        MomentMatching().one_step(Dynamics(joint))
