"""Every kernel: values against scikit-learn, positive definiteness, gradients, units, names, bad input."""

import numpy as np
import pytest
from kernel_family import FAMILY, LENGTHS, LINEAR, M32, M52, SE, reference

from sysid import formula
from sysid.description import build, describe
from sysid.kernels import Kernel, Linear, Matern32, Matern52, Product, SquaredExponential, Sum
from sysid.kernels.row import HALF, HEAD

each_kernel = pytest.mark.parametrize("kernel", FAMILY.values(), ids=FAMILY)
each_matern = pytest.mark.parametrize("kind", [Matern32, Matern52])


def points(n, seed=0):
    return np.random.default_rng(seed).normal(scale=1.5, size=(n, 3))


@each_kernel
def test_values_are_those_of_scikit_learn(kernel):
    x, z = points(7), points(9, seed=1)
    np.testing.assert_allclose(kernel(x, z), reference(kernel, x, z), rtol=1e-12, atol=1e-14)
    assert kernel(x[:0], z).shape == (0, 9)


@pytest.mark.parametrize("r", [0.0, 1e-9, 0.3, 4.0])
def test_matern_kernels_by_their_general_formula(r):
    """Equation 4.14 of Rasmussen and Williams, with the Bessel function."""
    from scipy.special import gamma, kv

    for kernel, nu in ((Matern32(2.0, [0.5]), 1.5), (Matern52(2.0, [0.5]), 2.5)):
        a = np.sqrt(2 * nu) * r / 0.5
        general = 2.0 * 2 ** (1 - nu) / gamma(nu) * a**nu * kv(nu, a) if r > 1e-6 else 2.0
        assert kernel([[1.0]], [[1.0 + r]])[0, 0] == pytest.approx(general, rel=1e-9)


@each_kernel
def test_matrix_is_symmetric_and_positive_semidefinite_with_the_diagonal_it_says(kernel):
    x = np.vstack([points(12, seed=2), points(3, seed=2)])
    k = kernel(x, x)
    np.testing.assert_allclose(k, k.T, rtol=1e-14)
    assert np.linalg.eigvalsh(k).min() >= -1e-13 * np.trace(k)
    np.testing.assert_allclose(kernel.diagonal(x), np.diag(k), rtol=1e-14)
    np.testing.assert_allclose(Kernel.diagonal(kernel, x), np.diag(k), rtol=1e-14)


@each_matern
def test_matern_points_far_apart_are_independent_and_nothing_overflows(kind):
    kernel, x, z = kind(1.0, [1e-3]), np.array([[-9e99]]), np.array([[9e99]])
    assert kernel(x, z) == 0.0
    np.testing.assert_array_equal(kernel.input_gradient(x, z), 0.0)


@each_kernel
def test_any_layout_gives_the_same_bits(kernel):
    x = points(6)
    wide = np.zeros((6, 6))
    wide[:, ::2] = x
    assert kernel(np.asfortranarray(x), wide[:, ::2]).tobytes() == kernel(x, x).tobytes()


@each_kernel
def test_log_hyperparameters_round_trip_in_the_order_of_their_names(kernel):
    logs = kernel.log_hyperparameters()
    assert len(logs) == len(kernel.hyperparameter_names)
    other = kernel.with_log_hyperparameters(logs + 0.1 * np.arange(len(logs)))
    assert type(other) is type(kernel)
    np.testing.assert_allclose(other.log_hyperparameters(), logs + 0.1 * np.arange(len(logs)), atol=1e-14)
    np.testing.assert_allclose(
        kernel.with_log_hyperparameters(logs)(points(3), points(4)), kernel(points(3), points(4))
    )


def test_names_say_the_part():
    assert FAMILY["nested"].hyperparameter_names[:5] == (
        "part 1: part 1: signal variance",
        "part 1: part 1: length scale 1",
        "part 1: part 1: length scale 2",
        "part 1: part 1: length scale 3",
        "part 1: part 2: part 1: offset variance",
    )
    assert FAMILY["sum"].hyperparameter_names[1] == "part 1: weight variance 1"


@each_kernel
def test_contracted_gradient_is_that_of_finite_differences(kernel):
    x, h = points(5, seed=3), 1e-5
    weights = np.random.default_rng(4).normal(size=(5, 5))
    weights = weights + weights.T
    logs = kernel.log_hyperparameters()
    numerical = []
    for step in h * np.eye(len(logs)):
        up, down = (kernel.with_log_hyperparameters(logs + sign * step)(x, x) for sign in (1, -1))
        numerical.append(np.sum(weights * (up - down)) / (2 * h))
    gradient = kernel.contract_gradient(weights, x, kernel(x, x))
    np.testing.assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-7 * np.trace(kernel(x, x)))


@each_kernel
def test_input_gradient_is_that_of_finite_differences(kernel):
    x, z, h = points(4, seed=5), points(6, seed=6), 1e-5
    numerical = np.stack([(kernel(x + d, z) - kernel(x - d, z)) / (2 * h) for d in h * np.eye(3)], axis=2)
    gradient = kernel.input_gradient(x, z)
    assert gradient.shape == (4, 6, 3)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-8 * np.abs(numerical).max())
    np.testing.assert_array_equal(kernel.gradient(x[1], z), gradient[1])


@pytest.mark.parametrize("kernel", [SE, M32, M52])
def test_slope_at_a_point_itself_is_zero(kernel):
    np.testing.assert_array_equal(kernel.gradient(points(1)[0], points(1)), 0.0)


@each_kernel
def test_log_variance_is_that_at_features_of_one_with_its_gradient(kernel):
    logs, one, h = kernel.log_hyperparameters() + 0.2, np.ones((1, 3)), 1e-6
    value, gradient = kernel.log_variance(logs)
    assert value == pytest.approx(np.log(reference(kernel.with_log_hyperparameters(logs), one, one)[0, 0]), abs=1e-13)
    steps = h * np.eye(len(logs))
    numerical = [(kernel.log_variance(logs + d)[0] - kernel.log_variance(logs - d)[0]) / (2 * h) for d in steps]
    np.testing.assert_allclose(gradient, numerical, rtol=0, atol=1e-8)
    general = Kernel.log_variance(kernel, logs)  # of kernels that state no shorter form
    assert value == pytest.approx(general[0], abs=1e-13)
    np.testing.assert_allclose(gradient, general[1], atol=1e-13)


@each_kernel
def test_stretched_kernel_gives_the_same_covariance_in_other_units(kernel):
    x, z, factors = points(4), points(5, seed=1), np.array([10.0, 0.3, 7.0])
    np.testing.assert_allclose(kernel.stretched(factors)(factors * x, factors * z), kernel(x, z), rtol=1e-12)


@each_kernel
def test_description_round_trip_keeps_every_bit(kernel):
    again = build(describe(kernel), Kernel)
    assert again == kernel
    assert again(points(3), points(4)).tobytes() == kernel(points(3), points(4)).tobytes()
    assert hash(again) == hash(kernel)


def test_name_of_older_files_is_understood():
    text = '{"class": "sysid.kernels.SquaredExponential", "variance": 1.3, "length_scales": [0.7, 1.9, 1.1]}'
    assert build(text, Kernel) == SE


def test_told_for_people():
    told = FAMILY["nested"].told(["a", "b", "c"])
    inner = told["parts"][0]["parts"]
    assert told["class"] == "Sum"
    assert inner[0] == {
        "class": "SquaredExponential",
        "variance": 1.3,
        "length_scales": dict(zip("abc", LENGTHS, strict=True)),
    }
    assert inner[1]["parts"][0] == {
        "class": "Linear",
        "offset_variance": 0.4,
        "weight_variances": {"a": 0.6, "b": 0.05, "c": 1.2},
    }


def test_rows_of_compositions_are_compiled_once():
    """They know no part: another composition calls the same code."""
    first, second = Sum([SE, LINEAR]), Sum([M32, Product([SE, LINEAR])])
    assert first.address == second.address
    product = Product([SE, LINEAR])
    product(points(2), points(2))
    before = formula._compiled.cache_info().misses
    Sum([product, product])(points(2), points(2))
    assert formula._compiled.cache_info().misses == before


def test_addresses_fit_into_parameters():
    """Two floats hold each exactly, whatever its 64 bits are."""
    for number in (0, 1, 2**31, 2**48 + 12345, 2**63 + 4097):
        high, low = map(float, divmod(number, HALF))
        assert int(high) * HALF + int(low) == number
    high, low = FAMILY["sum"].parameters()[HEAD : HEAD + 2]
    assert int(high) * HALF + int(low) == formula.number_of(LINEAR.address)


@each_kernel
def test_points_of_other_features_are_refused(kernel):
    for call in (kernel, kernel.input_gradient):
        with pytest.raises(ValueError, match="3"):
            call(points(2)[:, :2], points(2))
    with pytest.raises(ValueError, match="3"):
        kernel.gradient(np.zeros(2), points(2))


@each_matern
def test_matern_values_are_checked(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}: variance must be positive and finite, got -1.0"):
        kind(-1.0, [1.0])
    with pytest.raises(ValueError, match=rf"{kind.__name__}: length_scales must be positive and finite, got \(0.0,\)"):
        kind(1.0, [0.0])


def test_linear_values_are_checked():
    with pytest.raises(ValueError, match="Linear: offset_variance must be positive and finite, got nan"):
        Linear(np.nan, [1.0])
    with pytest.raises(ValueError, match=r"Linear: weight_variances must be positive and finite, got \(1.0, inf\)"):
        Linear(1.0, [1.0, np.inf])


@pytest.mark.parametrize("kind", [Sum, Product])
def test_parts_are_checked(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}: parts must be at least two, got 1"):
        kind([SE])
    with pytest.raises(
        ValueError, match=rf"{kind.__name__}: parts must have the same number of features, got \[3, 1\]"
    ):
        kind([SE, SquaredExponential(1.0, [1.0])])
    with pytest.raises(TypeError, match=f"{kind.__name__}: parts must be instances of Kernel, got 3"):
        kind([SE, 3])
    with pytest.raises(ValueError, match="at least two, got 1"):
        kind(SE)
