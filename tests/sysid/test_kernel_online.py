"""Online GPs of every kernel: against a naive GP, factors far from the origin, near-duplicates, stored models."""

import numpy as np
import pytest
from kernel_family import FAMILY, LINEAR, SE, scratch_log_likelihood, scratch_predict
from naive import COMPILED

from sysid import OnlineGP
from sysid.acceptance import ExceedsMinimum
from sysid.criteria import MeanRelevance
from sysid.gp import log_marginal_likelihood
from sysid.kernels import Linear, Matern52, Sum
from sysid.mean import ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.scaling import Scaling

each_kernel = pytest.mark.parametrize("kernel", FAMILY.values(), ids=FAMILY)
NOISE = 0.05
N = 60 if COMPILED else 16


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, x[:, 0] - 0.5 * x[:, 2] + np.sin(2 * x[:, 1]) + np.sqrt(NOISE) * rng.normal(size=n)


def learned(kernel, n=N, budget=8):
    gp = OnlineGP(
        kernel,
        noise_variance=NOISE,
        budget=budget,
        acceptance=ExceedsMinimum(MeanRelevance()),
        reduction=MeanRelevance(),
    )
    return gp, gp.update_many(*stream(n))


@each_kernel
def test_predictions_after_a_stream_are_those_of_a_naive_gp(kernel):
    gp, reports = learned(kernel)
    assert (reports.removed >= 0).sum() > 2
    x = stream(10, seed=1)[0]
    for ours, naive in zip(gp.predict(x), scratch_predict(kernel, NOISE, gp.inputs, gp.targets, x), strict=True):
        np.testing.assert_allclose(ours, naive, rtol=1e-9, atol=1e-10)
    found = gp.leave_one_out()
    for i in range(gp.n_points):
        others = np.delete(np.arange(gp.n_points), i)
        data = gp.inputs[others], gp.targets[others]
        (mean,), (latent,) = scratch_predict(kernel, NOISE, *data, gp.inputs[[i]])
        assert found.residual[i] == pytest.approx(gp.targets[i] - mean, rel=1e-8, abs=1e-10)
        assert found.variance[i] == pytest.approx(latent + NOISE, rel=1e-8)


@each_kernel
def test_one_by_one_gives_the_bits_of_many(kernel):
    many, reports = learned(kernel, n=20)
    one = many.with_hyperparameters(kernel, NOISE)
    one.fit(np.zeros((0, 3)), np.zeros(0))
    for i, (x, y) in enumerate(zip(*stream(20), strict=True)):
        assert one.update(x, y).mean == reports.mean[i]
    for name, array in one.state().items():
        assert array.tobytes() == many.state()[name].tobytes(), name


@each_kernel
def test_log_likelihood_is_that_of_a_naive_gp_with_the_gradient_of_finite_differences(kernel):
    (x, y), h = stream(9, seed=2), 1e-5
    value, gradient = log_marginal_likelihood(kernel, NOISE, x, y)
    assert value == pytest.approx(scratch_log_likelihood(kernel, NOISE, x, y), rel=1e-10)
    logs = kernel.log_hyperparameters()

    def at(step):
        return log_marginal_likelihood(kernel.with_log_hyperparameters(logs + step), NOISE, x, y).value

    numerical = [(at(step) - at(-step)) / (2 * h) for step in h * np.eye(len(logs))]
    np.testing.assert_allclose(gradient[:-1], numerical, rtol=1e-6, atol=1e-7)


@each_kernel
def test_stored_model_predicts_and_learns_the_same_bits(kernel, tmp_path):
    gp, _ = learned(kernel)
    narx = Narx(outputs={"y": 2}, inputs={"u": 1})
    model = Model(narx, Scaling(np.array([1.0, 0.0, 5.0]), np.array([2.0, 0.5, 10.0])), ZeroMean(), gp)
    model.save(tmp_path / "model.nc")
    again = Model.load(tmp_path / "model.nc")
    assert again.gp.kernel == kernel
    x, y = stream(12, seed=3)
    for ours, theirs in zip(model.predict(x), again.predict(x), strict=True):
        assert ours.tobytes() == theirs.tobytes()
    np.testing.assert_equal(vars(model.update_many(x, y)), vars(again.update_many(x, y)))


def test_hyperparameters_of_a_model_are_in_the_units_of_the_data():
    kernel = FAMILY["nested"]
    gp = OnlineGP(kernel, noise_variance=NOISE, budget=5)
    model = Model(
        Narx(outputs={"y": 2}, inputs={"u": 1}), Scaling(np.zeros(3), np.array([2.0, 0.5, 10.0])), ZeroMean(), gp
    )
    product, matern = model.hyperparameters["kernel"]["parts"]
    assert matern["length_scales"] == pytest.approx({"y[k-1]": 1.4, "y[k-2]": 0.95, "u[k-1]": 11.0})
    assert product["parts"][0]["length_scales"] == pytest.approx({"y[k-1]": 1.4, "y[k-2]": 0.95, "u[k-1]": 11.0})
    linear = product["parts"][1]["parts"][0]
    assert linear["offset_variance"] == 0.4
    assert linear["weight_variances"] == pytest.approx({"y[k-1]": 0.15, "y[k-2]": 0.2, "u[k-1]": 0.012})


# prior variances that depend on the point


def test_noise_is_compared_with_the_prior_variance_at_features_of_one():
    kernel = Linear(1e-9, [50.0, 50.0])
    OnlineGP(kernel, noise_variance=1.01e-6, budget=3)
    with pytest.raises(ValueError, match=r"noise_variance must be at least 1e-08 of the kernel's variance \(1e-06\)"):
        OnlineGP(kernel, noise_variance=0.9e-6, budget=3)


def far_points(n, scale):
    rng = np.random.default_rng(4)
    x = rng.uniform(-scale, scale, size=(n, 3))
    return x, x @ np.array([0.3, -0.2, 0.1]) + 0.1 * rng.normal(size=n)


def test_rounding_far_from_the_origin_is_no_drift():
    """Factors of points whose prior variance is a million times larger are judged by that variance."""
    near, far = (OnlineGP(Sum([LINEAR, SE]), noise_variance=1e-2, budget=6) for _ in range(2))
    for gp, scale in ((near, 1.0), (far, 1e4)):
        gp.update_many(*far_points(120, scale))
        assert gp.repairs["refactorisations"] == 0
    assert far.drift() > near._rules.tolerance / 100
    far.fit(*far_points(6, 1e4))
    assert far._rules.tolerance > 1e5 * near._rules.tolerance
    again = OnlineGP(Sum([LINEAR, SE]), noise_variance=1e-2, budget=6)
    arrays = far.state()
    again.restore(arrays, arrays.pop("counts"))
    assert again._rules.tolerance == far._rules.tolerance
    assert far.with_hyperparameters(far.kernel, 1e-2)._rules.tolerance == far._rules.tolerance


@pytest.mark.parametrize(
    "kernel", [Linear(1e-12, [1.0, 1.0]), Sum([Linear(0.1, [1.0, 1.0]), Matern52(1e-12, [1.0, 1.0])])]
)
def test_points_on_a_line_through_the_origin_are_no_duplicates(kernel):
    """Their linear functions are proportional, but they are not equal; equal points are."""
    inputs, targets = np.array([[1.0, 2.0], [10.0, 20.0], [-1.0, -2.0]]), np.zeros(3)
    one_by_one = OnlineGP(kernel, noise_variance=0.1, budget=6)
    one_by_one.update_many(inputs, targets)
    at_once = OnlineGP(kernel, noise_variance=0.1, budget=6).fit(inputs, targets)
    assert one_by_one.repairs["near_duplicates"] == at_once.repairs["near_duplicates"] == 0
    one_by_one.update(inputs[1], 1.0)
    assert one_by_one.repairs["near_duplicates"] == 1
    assert at_once.fit(inputs[[0, 1, 2, 1]], np.zeros(4)).repairs["near_duplicates"] == 1


def test_linear_kernel_is_bayesian_linear_regression():
    """Mean and variance of the coefficients' posterior (Rasmussen and Williams, equation 2.8), never a kernel."""
    x, y = stream(40, seed=5)
    features = np.column_stack([np.ones(40), x])
    prior = np.array([0.4, 0.6, 0.05, 1.2])
    covariance = np.linalg.inv(features.T @ features / NOISE + np.diag(1 / prior))
    weights = covariance @ features.T @ y / NOISE
    gp = OnlineGP(LINEAR, noise_variance=NOISE, budget=40).fit(x, y)
    new = np.column_stack([np.ones(5), 10 * stream(5, seed=6)[0]])
    mean, variance = gp.predict(new[:, 1:])
    np.testing.assert_allclose(mean, new @ weights, rtol=1e-8)
    np.testing.assert_allclose(variance, np.einsum("id,de,ie->i", new, covariance, new), rtol=1e-7)
