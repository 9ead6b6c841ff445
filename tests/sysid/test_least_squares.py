"""Least squares against numpy's own, and what it does where they are not unique."""

import numpy as np
import pytest

from sysid.least_squares import linear_fit


def problem(n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) * [1.0, 10.0, 0.1] + [0.0, 100.0, -3.0]
    return x, 2.0 + x @ [1.0, -0.2, 5.0] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("intercept", [True, False])
def test_it_is_the_least_squares_solution(intercept):
    x, t = problem()
    design = np.column_stack([x, np.ones(len(x))]) if intercept else x
    expected = np.linalg.lstsq(design, t, rcond=None)[0]
    fit = linear_fit(x, t, intercept=intercept)
    np.testing.assert_allclose(fit.coefficients, expected[:3], rtol=1e-9)
    assert fit.intercept == pytest.approx(expected[3] if intercept else 0.0, rel=1e-9)
    assert fit.rank == 3


def test_the_penalty_is_that_of_the_docstring():
    x, t = problem()
    scale, ridge = x.std(axis=0), 0.3
    centred = x - x.mean(axis=0)
    normal = centred.T @ centred / len(x) + ridge * np.diag(scale**2)
    expected = np.linalg.solve(normal, centred.T @ (t - t.mean()) / len(x))
    fit = linear_fit(x, t, ridge=ridge)
    np.testing.assert_allclose(fit.coefficients, expected, rtol=1e-9)
    assert fit.intercept == pytest.approx(t.mean() - expected @ x.mean(axis=0))


def test_a_feature_that_does_not_vary_gets_no_weight():
    x, t = problem()
    x[:, 1] = 7.0
    fit = linear_fit(x, t)
    assert fit.coefficients[1] == 0.0
    assert (fit.rank, fit.condition) == (2, np.inf)


@pytest.mark.parametrize("ridge", [-0.1, np.inf, np.nan])
def test_a_penalty_that_makes_no_sense_is_refused(ridge):
    with pytest.raises(ValueError, match="expected a finite number >= 0"):
        linear_fit(*problem(), ridge=ridge)
