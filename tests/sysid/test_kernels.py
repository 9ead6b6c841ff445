"""Kernels: values, symmetry, positive definiteness, gradient, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaiveGP

from sysid import SquaredExponential

thorough = settings(deadline=None, derandomize=True, max_examples=50)
cases = {"seed": st.integers(0, 2**32 - 1), "n": st.integers(1, 12), "p": st.integers(1, 5)}


def random_kernel(seed, n, p):
    rng = np.random.default_rng(seed)
    kernel = SquaredExponential(10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-2, 2, size=p))
    return kernel, rng.normal(size=(n, p)) * np.array(kernel.length_scales) * 10 ** rng.uniform(-1, 0.5)


@given(**cases)
@thorough
def test_value_is_the_formula_of_section_2(seed, n, p):
    kernel, x = random_kernel(seed, n, p)
    z = x[::-1] + 0.1 * np.array(kernel.length_scales)
    expected = NaiveGP(kernel.variance, kernel.length_scales, 1.0, x, np.zeros(n)).kernel(x, z[: n // 2 + 1])
    np.testing.assert_allclose(kernel(x, z[: n // 2 + 1]), expected, rtol=1e-13, atol=1e-300)


@given(**cases)
@thorough
def test_matrix_is_symmetric_with_the_variance_on_its_diagonal_and_positive_semidefinite(seed, n, p):
    kernel, x = random_kernel(seed, n, p)
    k = kernel(x, x)
    np.testing.assert_array_equal(k, k.T)
    np.testing.assert_array_equal(np.diag(k), kernel.variance)
    assert np.linalg.eigvalsh(k).min() >= -1e-13 * n * kernel.variance


@given(**cases)
@thorough
def test_matrix_is_stationary_and_scales_with_its_length_scales(seed, n, p):
    kernel, x = random_kernel(seed, n, p)
    scaled = SquaredExponential(kernel.variance, 4.0 * np.array(kernel.length_scales))
    np.testing.assert_array_equal(scaled(4.0 * x, 4.0 * x), kernel(x, x))
    np.testing.assert_allclose(kernel(x + 1.0, x + 1.0), kernel(x, x), rtol=1e-6, atol=1e-9 * kernel.variance)


def test_one_length_scale_per_feature():
    kernel = SquaredExponential(2.0, [1.0, 10.0])
    near, far = kernel(np.zeros((1, 2)), np.array([[0.0, 1.0], [1.0, 0.0]]))[0]
    assert near == pytest.approx(2.0 * np.exp(-0.005), rel=1e-15)
    assert far == pytest.approx(2.0 * np.exp(-0.5), rel=1e-15)


def test_points_far_apart_are_independent_and_nothing_overflows():
    assert SquaredExponential(1.0, [1e-3])(np.array([[-9e99]]), np.array([[9e99]])) == 0.0


def test_any_layout_gives_the_same_bits():
    x = np.random.default_rng(0).normal(size=(6, 3))
    kernel = SquaredExponential(1.0, [1.0, 2.0, 3.0])
    wide = np.zeros((6, 6))
    wide[:, ::2] = x
    assert kernel(np.asfortranarray(x), wide[:, ::2]).tobytes() == kernel(x, x).tobytes()
    assert kernel(x[:0], x).shape == (0, 6)


@given(**cases)
@thorough
def test_log_hyperparameters_round_trip(seed, n, p):
    kernel, _ = random_kernel(seed, n, p)
    logs = kernel.log_hyperparameters()
    np.testing.assert_allclose(logs, np.log([kernel.variance, *kernel.length_scales]), rtol=1e-15)
    again = kernel.with_log_hyperparameters(logs)
    assert type(again) is type(kernel)
    np.testing.assert_allclose(again.parameters(), kernel.parameters(), rtol=1e-13)
    assert kernel.n_features == p


@given(**cases)
@thorough
def test_contracted_gradient_is_that_of_finite_differences(seed, n, p):
    kernel, x = random_kernel(seed, n, p)
    weights = np.random.default_rng(seed).normal(size=(n, n))
    weights = weights + weights.T
    logs, h = kernel.log_hyperparameters(), 1e-5
    numerical = []
    for step in h * np.eye(p + 1):
        up, down = (kernel.with_log_hyperparameters(logs + sign * step)(x, x) for sign in (1, -1))
        numerical.append(np.sum(weights * (up - down)) / (2 * h))
    gradient = kernel.contract_gradient(weights, x, kernel(x, x))
    np.testing.assert_allclose(gradient, numerical, rtol=0, atol=1e-7 * kernel.variance * n**2)


@pytest.mark.parametrize("variance", [0.0, -1.0, np.nan, np.inf])
def test_variance_is_checked(variance):
    with pytest.raises(ValueError, match="SquaredExponential: variance must be positive and finite, got") as error:
        SquaredExponential(variance, [1.0])
    assert str(error.value).endswith(str(variance))


@pytest.mark.parametrize("scales", [[], [0.0], [1.0, -1.0], [np.nan, 1.0], [np.inf]])
def test_length_scales_are_checked(scales):
    with pytest.raises(ValueError, match="SquaredExponential: length_scales must be positive and finite, got") as error:
        SquaredExponential(1.0, scales)
    assert all(str(scale) in str(error.value) for scale in scales)


def test_kernel_is_a_value():
    assert SquaredExponential(1, np.array([1, 2])) == SquaredExponential(1.0, [1.0, 2.0])
    assert len({SquaredExponential(1, [1]), SquaredExponential(1.0, (1.0,))}) == 1
