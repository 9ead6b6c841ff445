"""Least squares of a linear mean."""

import numpy as np
import pytest

from sysid.gp.mean import linear_fit


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_least_squares_are_those_of_the_normal_equations(intercept, ridge):
    """The penalty counts in standard deviations, whatever the units; without an intercept in root
    mean squares.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) * [1.0, 1e4, 0.1] + [0.0, 1e5, -3.0]
    t = 2.0 + x @ [1.0, -2e-4, 5.0] + 0.1 * rng.normal(size=40)
    scale = x.std(axis=0) if intercept else np.sqrt((x**2).mean(axis=0))
    columns = np.column_stack([x / scale, np.ones(40)])[:, : 3 + intercept]
    penalty = np.diag([40 * ridge] * 3 + [0.0] * intercept)
    solution = np.linalg.solve(columns.T @ columns + penalty, columns.T @ t)
    fit = linear_fit(x, t, ridge=ridge, intercept=intercept)
    np.testing.assert_allclose(fit.coefficients, solution[:3] / scale, rtol=1e-7)
    assert fit.intercept == pytest.approx(solution[3] if intercept else 0.0, rel=1e-7)
    scaled = (x - x.mean(axis=0) * intercept) / scale
    assert (fit.rank, fit.condition) == (3, pytest.approx(np.linalg.cond(scaled)))
    x[:, 1] = 7.0
    flat = linear_fit(x, t)
    assert (flat.coefficients[1], flat.rank, flat.condition) == (0.0, 2, np.inf)
