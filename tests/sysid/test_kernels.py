"""Every kernel: values against scikit-learn, positive definiteness, gradients, units, files, bad
input.
"""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from naive import FAMILY, LENGTHS, LINEAR, SE, covariance, finite_differences
from sysid.gp import formula
from sysid.gp.affine_map import Scaling
from sysid.gp.kernels import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Stationary,
    Sum,
)
from sysid.gp.mean import ZeroMean
from sysid.gp.online import OnlineGP
from sysid.model.description import build, describe
from sysid.model.model import Model
from sysid.narx.lags import Narx

each_kernel = pytest.mark.parametrize("kernel", FAMILY.values(), ids=FAMILY)
each_stationary = pytest.mark.parametrize("kind", [SquaredExponential, Matern32, Matern52])


def points(n, seed=0):
    return np.random.default_rng(seed).normal(scale=1.5, size=(n, 3))


@each_kernel
def test_values_are_those_of_scikit_learn_in_any_layout(kernel):
    x = points(7)
    z = points(9, seed=1)
    np.testing.assert_allclose(kernel(x, z), covariance(kernel, x, z), rtol=1e-12, atol=1e-14)
    if kernel is SE:
        np.testing.assert_allclose(
            kernel(x, z), (ConstantKernel(1.3) * RBF(LENGTHS))(x, z), rtol=1e-12
        )
    assert kernel(x[:0], z).shape == (0, 9)
    wide = np.zeros((7, 6))
    wide[:, ::2] = x
    assert kernel(np.asfortranarray(x), wide[:, ::2]).tobytes() == kernel(x, x).tobytes()


@each_kernel
def test_matrix_is_symmetric_and_positive_semidefinite_with_the_stated_diagonal(kernel):
    x = np.vstack([points(12, seed=2), points(3, seed=2)])
    k = kernel(x, x)
    np.testing.assert_allclose(k, k.T, rtol=1e-14)
    assert np.linalg.eigvalsh(k).min() >= -1e-13 * np.trace(k)
    for diagonal in (kernel.diagonal(x), Kernel.diagonal(kernel, x)):
        np.testing.assert_allclose(diagonal, np.diag(k), rtol=1e-14)


@each_stationary
def test_points_far_apart_are_independent_and_nothing_overflows(kind):
    kernel = kind(1.0, [1e-3])
    x = np.array([[-9e99]])
    z = np.array([[9e99]])
    assert kernel(x, z) == 0.0
    np.testing.assert_array_equal(kernel.input_gradient(np.vstack([x, z]), z), 0.0)


@each_kernel
def test_log_hyperparameters_round_trip_in_the_order_of_their_names(kernel):
    logs = kernel.log_hyperparameters() + 0.1 * np.arange(len(kernel.hyperparameter_names))
    other = kernel.with_log_hyperparameters(logs)
    assert type(other) is type(kernel)
    np.testing.assert_allclose(other.log_hyperparameters(), logs, atol=1e-14)
    again = kernel.with_log_hyperparameters(kernel.log_hyperparameters())
    np.testing.assert_allclose(again(points(3), points(4)), kernel(points(3), points(4)))


@each_kernel
def test_gradients_are_those_of_finite_differences(kernel):
    """Contracted over the hyper-parameters, along the inputs, and of the logarithm of the
    variance.
    """
    x = points(5, seed=3)
    z = points(6, seed=6)
    logs = kernel.log_hyperparameters()
    every = np.random.default_rng(4).normal(size=(5, 6))
    for given, others in ((every, (z,)), (every[:, 1:], ())):
        second = (*others, x)[0]

        def contracted(values, weights=given, second=second):
            return np.sum(weights * kernel.with_log_hyperparameters(values)(x, second))

        gradient = kernel.contract_gradient(given, x, kernel(x, second), *others)
        numerical = finite_differences(contracted, logs, 1e-3)
        np.testing.assert_allclose(
            gradient, numerical, rtol=1e-8, atol=1e-8 * np.trace(kernel(x, x))
        )
    weights = np.random.default_rng(5).normal(size=40)
    many = points(40, seed=7)
    numerical = finite_differences(
        lambda v: weights @ kernel.with_log_hyperparameters(v).diagonal(many),
        logs,
        1e-3,
    )
    for gradient in (
        kernel.diagonal_gradient(weights, many),
        Kernel.diagonal_gradient(kernel, weights, many),
    ):
        np.testing.assert_allclose(
            gradient, numerical, rtol=1e-8, atol=1e-8 * np.abs(numerical).max()
        )

    numerical = np.moveaxis(finite_differences(lambda d: kernel(x + d, z), np.zeros(3), 1e-3), 0, 2)
    gradient = kernel.input_gradient(x, z)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-8 * np.abs(numerical).max())
    if isinstance(kernel, Stationary):
        pulled = kernel.point_gradient(every, x, kernel(x, z), z)
        np.testing.assert_allclose(pulled, np.einsum("ij,ijd->id", every, gradient), rtol=1e-10)

    one = np.ones((1, 3))
    for value, gradient in (
        kernel.log_variance(logs),
        Kernel.log_variance(kernel, logs),
    ):
        assert value == pytest.approx(np.log(covariance(kernel, one, one)[0, 0]), abs=1e-13)
        numerical = finite_differences(lambda v: kernel.log_variance(v)[0], logs, 1e-3)
        np.testing.assert_allclose(gradient, numerical, rtol=0, atol=1e-8)


@each_kernel
def test_stretched_kernel_gives_the_same_covariance_in_other_units(kernel):
    x = points(4)
    z = points(5, seed=1)
    factors = np.array([10.0, 0.3, 7.0])
    np.testing.assert_allclose(
        kernel.stretched(factors)(factors * x, factors * z), kernel(x, z), rtol=1e-12
    )


@each_kernel
def test_kernel_is_a_value_and_its_description_keeps_every_bit(kernel):
    again = build(describe(kernel), Kernel)
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert again(points(3), points(4)).tobytes() == kernel(points(3), points(4)).tobytes()
    assert again != kernel.stretched(2.0 * np.ones(3))


def test_a_model_of_nested_kernels_states_them_in_the_units_of_the_data():
    gp = OnlineGP(FAMILY["nested"], noise_variance=0.05, budget=8)
    scaling = Scaling(np.array([1.0, 0.0, 5.0]), np.array([2.0, 0.5, 10.0]))
    model = Model(Narx(outputs={"y": 2}, inputs={"u": 1}), scaling, ZeroMean(), gp)
    product, matern = model.hyperparameters["kernel"]["parts"]
    for part in (matern, product["parts"][0]):
        assert part["length_scales"] == pytest.approx(
            {"y[k-1]": 1.4, "y[k-2]": 0.95, "u[k-1]": 11.0}
        )
    linear = product["parts"][1]["parts"][0]
    assert linear["offset_variance"] == 0.4
    assert linear["weight_variances"] == pytest.approx(
        {"y[k-1]": 0.15, "y[k-2]": 0.2, "u[k-1]": 0.012}
    )


@each_kernel
def test_points_of_other_features_are_refused(kernel):
    for call in (kernel, kernel.input_gradient):
        with pytest.raises(ValueError, match="3"):
            call(points(2)[:, :2], points(2))


STATIONARY = (SquaredExponential, Matern32, Matern52)
FEW = (
    [SE],
    SE,
    [Linear()],
    [SE, SquaredExponential(1.0, [1.0])],
    [SE, Linear()],
    [LINEAR, 3],
)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        *(
            (kind, "variance", [(bad, [1.0]) for bad in (0.0, -1.0, np.nan, np.inf)])
            for kind in STATIONARY
        ),
        *(
            (
                kind,
                "length_scales",
                [(1.0, bad) for bad in ([], [0.0], [1.0, -1.0], [np.inf])],
            )
            for kind in STATIONARY
        ),
        (Linear, "offset_variance", [(np.nan, [1.0])]),
        (Linear, "weight_variances", [(1.0, [1.0, np.inf])]),
        *((kind, "parts", [(bad,) for bad in FEW]) for kind in (Sum, Product)),
    ],
)
def test_values_are_checked(kind, name, values):
    for arguments in values:
        with pytest.raises((TypeError, ValueError), match=f"{kind.__name__}: {name}"):
            kind(*arguments)


# --- prototypes -------------------------------------------------------------------------------------


def test_a_prototype_serves_any_number_of_features_and_is_no_kernel_before_it_is_filled():
    prototype = Sum([Linear(), Product([Matern52(), SquaredExponential()])])
    assert prototype.is_prototype
    assert Matern52() == Matern52(1.0, 1.0)
    for n in (1, 3):
        filled = prototype.with_scales(2.0, np.full(n, 0.5))
        assert not filled.is_prototype
        assert filled == Sum(
            [
                Linear(1.0, [4.0] * n),
                Product([Matern52(1.0, [0.5] * n), SquaredExponential(1.0, [0.5] * n)]),
            ]
        )
    for use in (
        lambda: prototype.n_features,
        lambda: Matern52()(points(2), points(2)),
        lambda: OnlineGP(Linear(), noise_variance=0.1, budget=5),
    ):
        with pytest.raises(ValueError, match="must be one number per feature"):
            use()


# --- compositions and rows of one's own -------------------------------------------------------------


def exponential_row(points, stride, n, p, x, parameters, out):
    for j in range(n):
        distance = 0.0
        for d in range(p):
            distance += abs(points[d * stride + j] - x[d]) / parameters[1 + d]
        out[j] = parameters[0] * np.exp(-distance)


def rational_row(points, stride, n, p, x, parameters, out):
    for j in range(n):
        squared = 0.0
        for d in range(p):
            squared += ((points[d * stride + j] - x[d]) / parameters[1 + d]) ** 2
        out[j] = parameters[0] / (1.0 + squared)


class Exponential(Stationary):
    row = staticmethod(exponential_row)
    slope = None


class Rational(Stationary):
    row = staticmethod(rational_row)
    slope = None


def test_compositions_of_shipped_rows_share_one_compiled_row():
    families = [FAMILY[name] for name in ("sum", "product", "nested", "product_of_products")]
    assert all(one.address == other.address for one, other in pairwise(families))
    assert all(
        np.abs(kernel.parameters()).max() < 100 for kernel in families
    )  # codes and numbers, no address


def test_rows_of_ones_own_stand_alone_and_in_a_sum():
    own = Exponential(1.2, LENGTHS)
    x = points(6)
    z = points(8, seed=1)
    np.testing.assert_allclose(
        own(x, z),
        1.2 * np.exp(-np.abs(x[:, None] - z) @ (1 / np.array(LENGTHS))),
        rtol=1e-12,
    )
    np.testing.assert_allclose(Sum([own, SE])(x, z), own(x, z) + SE(x, z), rtol=1e-14)


@pytest.mark.slow
def test_rows_of_ones_own_within_compositions():
    own = Exponential(1.2, LENGTHS)
    other = Rational(0.7, LENGTHS[::-1])
    x = points(6)
    z = points(8, seed=1)
    a, b, c, d = (kernel(x, z) for kernel in (own, other, SE, LINEAR))
    nested = Sum([Product([own, LINEAR]), other, SE, Product([SE, Sum([other, own])])])
    np.testing.assert_allclose(nested(x, z), a * d + b + c + c * (b + a), rtol=1e-14)
    compiled = len(formula._compiled)
    np.testing.assert_allclose(Product([own, Sum([other, own])])(x, z), a * (b + a), rtol=1e-14)
    assert len(formula._compiled) == compiled  # one row for all that are made of both
    gp = OnlineGP(nested, noise_variance=0.1, budget=5)
    gp.update_many(x, x[:, 0])
    assert gp.n_points == 5
