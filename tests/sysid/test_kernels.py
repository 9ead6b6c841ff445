"""Every kernel: values against scikit-learn, positive definiteness, gradients, units, descriptions,
wrong values, and rows that a user writes.
"""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from naive import FAMILY, LENGTHS, LINEAR, SE, covariance, finite_differences
from sysid import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Model,
    Narx,
    OnlineGP,
    Product,
    Scaling,
    SquaredExponential,
    Sum,
    ZeroMean,
    build,
    describe,
)
from sysid.gp import formula
from sysid.gp.kernels import Stationary

STATIONARY_KINDS = [SquaredExponential, Matern32, Matern52]

each_kernel = pytest.mark.parametrize("kernel", FAMILY.values(), ids=FAMILY)
each_stationary = pytest.mark.parametrize("kind", STATIONARY_KINDS)


def points(n, seed=0):
    """Return n random points with three features."""
    return np.random.default_rng(seed).normal(scale=1.5, size=(n, 3))


# --- values ---------------------------------------------------------------------------------------


@each_kernel
def test_values_are_those_of_scikit_learn(kernel):
    x = points(7)
    z = points(9, seed=1)
    np.testing.assert_allclose(kernel(x, z), covariance(kernel, x, z), rtol=1e-12, atol=1e-14)


def test_a_squared_exponential_is_the_rbf_of_scikit_learn():
    x = points(7)
    z = points(9, seed=1)
    reference = ConstantKernel(1.3) * RBF(LENGTHS)
    np.testing.assert_allclose(SE(x, z), reference(x, z), rtol=1e-12)


@each_kernel
def test_no_points_give_a_matrix_without_rows(kernel):
    assert kernel(points(0), points(9)).shape == (0, 9)


@each_kernel
def test_the_memory_layout_of_the_points_does_not_matter(kernel):
    x = points(7)
    wide = np.zeros((7, 6))
    wide[:, ::2] = x
    with_gaps = wide[:, ::2]
    by_column = np.asfortranarray(x)
    assert kernel(by_column, with_gaps).tobytes() == kernel(x, x).tobytes()


@each_kernel
def test_matrix_is_symmetric_and_positive_semidefinite_with_the_stated_diagonal(kernel):
    """Three of the points are there twice, so that the matrix is singular."""
    x = np.vstack([points(12, seed=2), points(3, seed=2)])
    k = kernel(x, x)
    np.testing.assert_allclose(k, k.T, rtol=1e-14)
    smallest_eigenvalue = np.linalg.eigvalsh(k).min()
    assert smallest_eigenvalue >= -1e-13 * np.trace(k)
    diagonal_of_base_class = Kernel.diagonal(kernel, x)
    np.testing.assert_allclose(kernel.diagonal(x), np.diag(k), rtol=1e-14)
    np.testing.assert_allclose(diagonal_of_base_class, np.diag(k), rtol=1e-14)


@each_stationary
def test_points_far_apart_are_independent_and_nothing_overflows(kind):
    kernel = kind(1.0, [1e-3])
    x = np.array([[-9e69]])
    z = np.array([[9e69]])
    assert kernel(x, z) == 0.0
    gradient = kernel.input_gradient(np.vstack([x, z]), z)
    np.testing.assert_array_equal(gradient, 0.0)


@each_kernel
def test_points_with_another_number_of_features_are_refused(kernel):
    two_features = points(2)[:, :2]
    with pytest.raises(ValueError, match="3"):
        kernel(two_features, points(2))
    with pytest.raises(ValueError, match="3"):
        kernel.input_gradient(two_features, points(2))


# --- hyper-parameters and gradients ---------------------------------------------------------------


@each_kernel
def test_log_hyperparameters_round_trip_in_the_order_of_their_names(kernel):
    n_hyperparameters = len(kernel.hyperparameter_names)
    logs = kernel.log_hyperparameters() + 0.1 * np.arange(n_hyperparameters)
    changed = kernel.with_log_hyperparameters(logs)
    assert type(changed) is type(kernel)
    np.testing.assert_allclose(changed.log_hyperparameters(), logs, atol=1e-14)

    again = kernel.with_log_hyperparameters(kernel.log_hyperparameters())
    x = points(3)
    z = points(4)
    np.testing.assert_allclose(again(x, z), kernel(x, z))


@each_kernel
@pytest.mark.parametrize("has_others", [True, False], ids=["two_sets", "one_set"])
def test_contracted_gradient_is_that_of_finite_differences(kernel, has_others):
    """With respect to the hyper-parameters, for the covariance of two sets of points or of one."""
    x = points(5, seed=3)
    others = [points(6, seed=6)] if has_others else []
    second = points(6, seed=6) if has_others else x
    weights = np.random.default_rng(4).normal(size=(5, len(second)))

    def contracted(logs):
        return np.sum(weights * kernel.with_log_hyperparameters(logs)(x, second))

    gradient = kernel.contract_gradient(weights, x, kernel(x, second), *others)
    numerical = finite_differences(contracted, kernel.log_hyperparameters(), 1e-3)
    tolerance = 1e-8 * np.trace(kernel(x, x))
    np.testing.assert_allclose(gradient, numerical, rtol=1e-8, atol=tolerance)


@each_kernel
def test_gradient_of_the_diagonal_is_that_of_finite_differences(kernel):
    weights = np.random.default_rng(5).normal(size=40)
    x = points(40, seed=7)

    def contracted(logs):
        return weights @ kernel.with_log_hyperparameters(logs).diagonal(x)

    numerical = finite_differences(contracted, kernel.log_hyperparameters(), 1e-3)
    tolerance = 1e-8 * np.abs(numerical).max()
    gradient = kernel.diagonal_gradient(weights, x)
    gradient_of_base_class = Kernel.diagonal_gradient(kernel, weights, x)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-8, atol=tolerance)
    np.testing.assert_allclose(gradient_of_base_class, numerical, rtol=1e-8, atol=tolerance)


@each_kernel
def test_gradient_along_the_inputs_is_that_of_finite_differences(kernel):
    x = points(5, seed=3)
    z = points(6, seed=6)
    by_feature = finite_differences(lambda step: kernel(x + step, z), np.zeros(3), 1e-3)
    numerical = np.moveaxis(by_feature, 0, 2)
    tolerance = 1e-8 * np.abs(numerical).max()
    gradient = kernel.input_gradient(x, z)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-6, atol=tolerance)


@each_stationary
def test_gradient_of_the_points_is_the_weighted_sum_of_the_gradient_along_the_inputs(kind):
    kernel = kind(1.3, LENGTHS)
    x = points(5, seed=3)
    z = points(6, seed=6)
    weights = np.random.default_rng(4).normal(size=(5, 6))
    expected = np.einsum("ij,ijd->id", weights, kernel.input_gradient(x, z))
    gradient = kernel.point_gradient(weights, x, kernel(x, z), z)
    np.testing.assert_allclose(gradient, expected, rtol=1e-10)


@each_kernel
def test_log_variance_and_its_gradient_are_those_of_the_covariance(kernel):
    logs = kernel.log_hyperparameters()
    one = np.ones((1, 3))
    log_variance = np.log(covariance(kernel, one, one)[0, 0])
    numerical = finite_differences(lambda v: kernel.log_variance(v)[0], logs, 1e-3)

    value, gradient = kernel.log_variance(logs)
    assert value == pytest.approx(log_variance, abs=1e-13)
    np.testing.assert_allclose(gradient, numerical, rtol=0, atol=1e-8)

    value, gradient = Kernel.log_variance(kernel, logs)
    assert value == pytest.approx(log_variance, abs=1e-13)
    np.testing.assert_allclose(gradient, numerical, rtol=0, atol=1e-8)


# --- units and descriptions -----------------------------------------------------------------------


@each_kernel
def test_stretched_kernel_gives_the_same_covariance_in_other_units(kernel):
    x = points(4)
    z = points(5, seed=1)
    factors = np.array([10.0, 0.3, 7.0])
    stretched = kernel.stretched(factors)
    np.testing.assert_allclose(stretched(factors * x, factors * z), kernel(x, z), rtol=1e-12)


@each_kernel
def test_kernel_is_a_value_and_its_description_keeps_every_bit(kernel):
    x = points(3)
    z = points(4)
    again = build(describe(kernel), Kernel)
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert again(x, z).tobytes() == kernel(x, z).tobytes()
    assert again != kernel.stretched(2.0 * np.ones(3))


def test_a_model_of_nested_kernels_states_them_in_the_units_of_the_data():
    gp = OnlineGP(FAMILY["nested"], noise_variance=0.05, budget=8)
    scaling = Scaling(np.array([1.0, 0.0, 5.0]), np.array([2.0, 0.5, 10.0]))
    model = Model(Narx(outputs={"y": 2}, inputs={"u": 1}), scaling, ZeroMean(), gp)
    product, matern = model.hyperparameters["kernel"]["parts"]
    smooth, inner_sum = product["parts"]
    linear = inner_sum["parts"][0]
    length_scales = {"y[k-1]": 1.4, "y[k-2]": 0.95, "u[k-1]": 11.0}
    weight_variances = {"y[k-1]": 0.15, "y[k-2]": 0.2, "u[k-1]": 0.012}
    assert matern["length_scales"] == pytest.approx(length_scales)
    assert smooth["length_scales"] == pytest.approx(length_scales)
    assert linear["offset_variance"] == 0.4
    assert linear["weight_variances"] == pytest.approx(weight_variances)


# --- wrong values ---------------------------------------------------------------------------------

WRONG_PARTS = {
    "one_part": [SE],
    "no_list": SE,
    "one_prototype": [Linear()],
    "other_number_of_features": [SE, SquaredExponential(1.0, [1.0])],
    "kernel_and_prototype": [SE, Linear()],
    "a_number": [LINEAR, 3],
}


def wrong_arguments():
    """Yield a case for every argument that a kernel must refuse."""
    for kind in STATIONARY_KINDS:
        for variance in (0.0, -1.0, np.nan, np.inf):
            case = f"{kind.__name__}-variance-{variance}"
            yield pytest.param(kind, "variance", (variance, [1.0]), id=case)
        for length_scales in ([], [0.0], [1.0, -1.0], [np.inf]):
            case = f"{kind.__name__}-length_scales-{length_scales}"
            yield pytest.param(kind, "length_scales", (1.0, length_scales), id=case)
    yield pytest.param(Linear, "offset_variance", (np.nan, [1.0]), id="Linear-offset_variance")
    yield pytest.param(
        Linear, "weight_variances", (1.0, [1.0, np.inf]), id="Linear-weight_variances"
    )
    for kind in (Sum, Product):
        for name, parts in WRONG_PARTS.items():
            yield pytest.param(kind, "parts", (parts,), id=f"{kind.__name__}-{name}")


@pytest.mark.parametrize(("kind", "name", "arguments"), list(wrong_arguments()))
def test_wrong_values_are_refused(kind, name, arguments):
    with pytest.raises((TypeError, ValueError), match=f"{kind.__name__}: {name}"):
        kind(*arguments)


# --- prototypes -----------------------------------------------------------------------------------

PROTOTYPE = Sum([Linear(), Product([Matern52(), SquaredExponential()])])


@pytest.mark.parametrize("n_features", [1, 3])
def test_a_prototype_is_filled_for_any_number_of_features(n_features):
    filled = PROTOTYPE.with_scales(2.0, np.full(n_features, 0.5))
    weight_variances = [4.0] * n_features
    length_scales = [0.5] * n_features
    matern = Matern52(1.0, length_scales)
    smooth = SquaredExponential(1.0, length_scales)
    assert PROTOTYPE.is_prototype
    assert not filled.is_prototype
    assert filled == Sum([Linear(1.0, weight_variances), Product([matern, smooth])])


def test_the_defaults_of_a_kernel_are_a_prototype():
    assert Matern52() == Matern52(1.0, 1.0)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda: PROTOTYPE.n_features, id="number_of_features"),
        pytest.param(lambda: Matern52()(points(2), points(2)), id="covariance"),
        pytest.param(lambda: OnlineGP(Linear(), noise_variance=0.1, budget=5), id="online_gp"),
    ],
)
def test_a_prototype_is_no_kernel_before_it_is_filled(use):
    with pytest.raises(ValueError, match="must be one number per feature"):
        use()


# --- compositions, and rows that a user writes ----------------------------------------------------


def exponential_row(points, stride, n, p, x, parameters, out):
    """Fill a row of the covariance of an Ornstein-Uhlenbeck process."""
    for j in range(n):
        distance = 0.0
        for d in range(p):
            distance += abs(points[d * stride + j] - x[d]) / parameters[1 + d]
        out[j] = parameters[0] * np.exp(-distance)


def rational_row(points, stride, n, p, x, parameters, out):
    """Fill a row of a rational quadratic covariance with exponent 1."""
    for j in range(n):
        squared = 0.0
        for d in range(p):
            squared += ((points[d * stride + j] - x[d]) / parameters[1 + d]) ** 2
        out[j] = parameters[0] / (1.0 + squared)


class Exponential(Stationary):
    """A user's kernel."""

    row = staticmethod(exponential_row)
    slope = None


class Rational(Stationary):
    """Another kernel of a user."""

    row = staticmethod(rational_row)
    slope = None


def test_compositions_of_shipped_rows_share_one_compiled_row():
    names = ("sum", "product", "nested", "product_of_products")
    kernels = [FAMILY[name] for name in names]
    for first, second in pairwise(kernels):
        assert first.address == second.address
    for kernel in kernels:  # the parameters are codes and numbers, no addresses
        assert np.abs(kernel.parameters()).max() < 100


def test_a_row_of_a_user_is_compiled_alone_and_in_a_sum():
    kernel = Exponential(1.2, LENGTHS)
    x = points(6)
    z = points(8, seed=1)
    distances = np.abs(x[:, None] - z) @ (1 / np.array(LENGTHS))
    np.testing.assert_allclose(kernel(x, z), 1.2 * np.exp(-distances), rtol=1e-12)
    np.testing.assert_allclose(Sum([kernel, SE])(x, z), kernel(x, z) + SE(x, z), rtol=1e-14)


@pytest.mark.slow
def test_rows_of_a_user_are_compiled_within_compositions():
    exponential = Exponential(1.2, LENGTHS)
    rational = Rational(0.7, LENGTHS[::-1])
    nested = Sum(
        [
            Product([exponential, LINEAR]),
            rational,
            SE,
            Product([SE, Sum([rational, exponential])]),
        ]
    )
    x = points(6)
    z = points(8, seed=1)
    a = exponential(x, z)
    b = rational(x, z)
    c = SE(x, z)
    d = LINEAR(x, z)
    np.testing.assert_allclose(nested(x, z), a * d + b + c + c * (b + a), rtol=1e-14)

    n_compiled = len(formula._compiled)
    product = Product([exponential, Sum([rational, exponential])])
    np.testing.assert_allclose(product(x, z), a * (b + a), rtol=1e-14)
    assert len(formula._compiled) == n_compiled  # one row serves all compositions of the two

    gp = OnlineGP(nested, noise_variance=0.1, budget=5)
    gp.update_many(x, x[:, 0])
    assert gp.n_points == 5
