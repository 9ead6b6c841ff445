"""Minimal realisation: against systems built with a known hidden part, in units of all magnitudes."""

import numpy as np
import pytest

from sysid.linear import StateSpace, discretise
from sysid.realisation import minimal, transfer_function


def impulse_response(model, n):
    """h[i] = C A^(i-1) B, by running the system."""
    rows = []
    for j in range(model.B.shape[1]):
        x, row = model.B[:, j], []
        for _ in range(n):
            row.append(float(model.C[0] @ x))
            x = model.A @ x
        rows.append(row)
    return np.array(rows)


def difference_equation(a, b, n):
    """Impulse response of y[k] = -a_1 y[k-1] - ... + b_1 u[k-1] + ..., one number at a time."""
    y = np.zeros(n)
    for k in range(n):
        y[k] = sum(-a[i] * y[k - 1 - i] for i in range(min(len(a), k))) + (b[k] if k < len(b) else 0.0)
    return y


def partly_hidden(seed):
    """Random system of n states: `seen` of them minimal, `moved` moved by the inputs; in random units."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    moved = int(rng.integers(1, n + 1))
    seen = int(rng.integers(1, moved + 1))
    A = rng.normal(size=(n, n)) - 1.5 * np.eye(n)
    B, C = rng.normal(size=(n, int(rng.integers(1, 3)))), rng.normal(size=(1, n))
    A[moved:, :moved], B[moved:] = 0, 0
    A[:seen, seen:moved], C[:, seen:moved] = 0, 0
    T = 10.0 ** rng.uniform(-4, 4, size=(n, 1)) * np.linalg.qr(rng.normal(size=(n, n)))[0]
    T_inverse = np.linalg.inv(T)
    return StateSpace(T @ A @ T_inverse, T @ B, C @ T_inverse), n, moved, seen


@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_that_of_the_visible_part(seed):
    continuous, n, moved, seen = partly_hidden(seed)
    model = discretise(continuous, 0.2)
    found = minimal(model)
    assert found.order == seen
    assert found.not_moved.shape == (n - moved, n)
    assert found.dropped < 1e-9 < 1e-6 < found.kept
    expected = impulse_response(model, 12)
    np.testing.assert_allclose(impulse_response(found.model, 12), expected, rtol=1e-6, atol=1e-9 * abs(expected).max())


@pytest.mark.parametrize("seed", range(10))
def test_what_is_not_moved_and_not_shown_is_so(seed):
    model = discretise(partly_hidden(seed)[0], 0.2)
    found = minimal(model)
    rng = np.random.default_rng(seed)
    x = np.zeros(len(model.A))
    for _ in range(20):
        x = model.A @ x + model.B @ rng.normal(size=model.B.shape[1])
    for row in found.not_moved:
        assert abs(row @ x) < 1e-6 * np.abs(row * x).max()
    for direction in found.not_shown:
        moved = direction
        for _ in range(20):
            assert abs(model.C[0] @ moved) < 1e-6 * np.abs(model.C[0]) @ np.abs(direction)
            moved = model.A @ moved


def test_one_of_two_equal_modes_is_hidden():
    """Two tanks filled alike, their sum measured: only their sum is needed; what is lost is named with a one."""
    model = StateSpace(0.5 * np.eye(2), np.array([[1.0], [1000.0]]), np.array([[1.0, 0.001]]))
    found = minimal(model)
    assert found.order == 1
    row = found.not_moved[0]
    assert 1.0 in row
    np.testing.assert_allclose(row / row[1], [-1000.0, 1.0], rtol=1e-12)
    assert 1.0 in found.not_shown[0]
    np.testing.assert_allclose(found.not_shown[0] @ model.C[0], 0, atol=1e-12)


def test_sampling_at_half_the_period_hides_the_velocity():
    model = StateSpace(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [1.0]]), np.array([[1.0, 0.0]]))
    assert minimal(discretise(model, 1.0)).order == 2
    assert minimal(discretise(model, np.pi)).order == 1


def test_without_inputs_the_observable_part_counts():
    chain = StateSpace(np.array([[0.9, 0.1], [0.0, 0.8]]), np.empty((2, 0)), np.array([[1.0, 0.0]]))
    assert minimal(chain).order == 2
    assert minimal(chain._replace(C=np.array([[0.0, 1.0]]))).order == 1


def test_the_tolerance_decides():
    model = StateSpace(np.diag([0.5, 0.2]), np.array([[1.0], [1.0]]), np.array([[1.0, 1.0]]))
    coupled = model._replace(A=np.diag([0.5, 0.5 - 1e-5]))
    assert minimal(coupled).order == 2
    assert minimal(coupled, tolerance=1e-3).order == 1


def test_rounding_in_what_is_hidden_does_not_count():
    """Only the second mode is moved, only the first is shown, both to 1e-12."""
    model = StateSpace(np.diag([0.5, 0.2]), np.array([[1e-12], [1.0]]), np.array([[1.0, 1e-12]]))
    assert minimal(model).order == 0
    assert minimal(model._replace(C=np.array([[1.0, 1e-3]]))).order == 1


def test_an_input_without_effect_leaves_nothing():
    model = StateSpace(np.diag([0.5, 0.2]), np.zeros((2, 1)), np.ones((1, 2)))
    found = minimal(model)
    assert found.order == 0
    np.testing.assert_array_equal(found.not_moved[np.argsort(-found.not_moved[:, 0])], np.eye(2))
    assert [part.shape for part in transfer_function(found.model)] == [(0,), (1, 0)]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_transfer_function_gives_the_impulse_response(n):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n)) / n
    model = StateSpace(A, rng.normal(size=(n, 2)), rng.normal(size=(1, n)))
    a, b = transfer_function(model)
    assert a.shape == (n,)
    assert b.shape == (2, n)
    for coefficients, response in zip(b, impulse_response(model, 15), strict=True):
        np.testing.assert_allclose(difference_equation(a, coefficients, 15), response, atol=1e-12)


def test_wrong_arguments_are_named():
    model = StateSpace(np.eye(2), np.ones((2, 1)), np.eye(2))
    with pytest.raises(ValueError, match="expected one output, got 2; take one row of C"):
        minimal(model)
    with pytest.raises(ValueError, match="expected a number between 0 and 1"):
        minimal(model._replace(C=np.ones((1, 2))), tolerance=0.0)
