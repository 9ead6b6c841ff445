"""Mean functions: least squares of a linear mean, and when a record gets one."""

import numpy as np
import pytest

from sysid import AutomaticMean, ConstantMean, LinearMean
from sysid.gp.mean import linear_fit


@pytest.mark.parametrize("has_intercept", [True, False], ids=["intercept", "no intercept"])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_least_squares_are_those_of_the_normal_equations(has_intercept, ridge):
    """The penalty does not depend on the units of the features.

    It counts in their standard deviations, or in their root mean squares without an intercept.
    """
    n = 40
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)) * [1.0, 1e4, 0.1] + [0.0, 1e5, -3.0]
    t = 2.0 + x @ [1.0, -2e-4, 5.0] + 0.1 * rng.normal(size=n)
    if has_intercept:
        scale = x.std(axis=0)
        scaled = (x - x.mean(axis=0)) / scale
        columns = np.column_stack([x / scale, np.ones(n)])
        penalty = np.diag([n * ridge, n * ridge, n * ridge, 0.0])
    else:
        scale = np.sqrt((x**2).mean(axis=0))
        scaled = x / scale
        columns = scaled
        penalty = n * ridge * np.eye(3)
    solution = np.linalg.solve(columns.T @ columns + penalty, columns.T @ t)
    expected_intercept = solution[3] if has_intercept else 0.0
    fit = linear_fit(x, t, ridge=ridge, intercept=has_intercept)
    np.testing.assert_allclose(fit.coefficients, solution[:3] / scale, rtol=1e-7)
    assert fit.intercept == pytest.approx(expected_intercept, rel=1e-7)
    assert fit.rank == 3
    assert fit.condition == pytest.approx(np.linalg.cond(scaled))


def test_a_constant_feature_gets_no_weight():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    x[:, 1] = 7.0
    fit = linear_fit(x, x @ [1.0, -2.0, 5.0])
    assert fit.coefficients[1] == 0.0
    assert fit.rank == 2
    assert fit.condition == np.inf


def samples_with_unexplained_fraction(fraction, n, n_features):
    """Return features and targets of which a linear model leaves a fraction of the variance."""
    random = np.random.default_rng(0).normal(size=(n, n_features + 1))
    orthonormal, _ = np.linalg.qr(np.column_stack([np.ones(n), random]))
    features = orthonormal[:, 1:-1]
    explained = features[:, 0]
    unexplained = orthonormal[:, -1]
    return features, np.sqrt(1.0 - fraction) * explained + np.sqrt(fraction) * unexplained


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(0.45, LinearMean), (0.55, ConstantMean), (0.9, ConstantMean)],
)
def test_a_record_gets_a_linear_mean_if_it_would_predict_new_samples_better(fraction, expected):
    """Here the error on new samples is (12 + 4) / (12 - 4) = 2 times that on the record.

    All three linear fits have smaller errors on the record than the constant.
    """
    x, t = samples_with_unexplained_fraction(fraction, n=12, n_features=4)
    residual = t - LinearMean().fitted(x, t)(x)
    assert np.mean(residual**2) == pytest.approx(fraction * np.var(t))
    mean = AutomaticMean().fitted_to_record(x, t)
    assert type(mean) is expected
