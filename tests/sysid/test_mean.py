"""Mean functions: least squares of a linear mean, values, gradients and fits, wrong means."""

from dataclasses import dataclass

import numpy as np
import pytest

from small_models import Cooling, samples
from sysid import (
    AutomaticMean,
    ConstantMean,
    Identification,
    LinearMean,
    MaximumLikelihood,
    MeanFunction,
    Narx,
    Settings,
    ZeroMean,
)
from sysid.gp.mean import linear_fit

# --- least squares --------------------------------------------------------------------------------


def samples_in_odd_units():
    """Return regressors of very different magnitudes (40, 3) and targets that are almost linear."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) * [1.0, 1e4, 0.1] + [0.0, 1e5, -3.0]
    y = 2.0 + x @ [1.0, -2e-4, 5.0] + 0.1 * rng.normal(size=40)
    return x, y


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_least_squares_are_those_of_the_normal_equations(ridge):
    """The penalty holds for coefficients in standard deviations, whatever the units."""
    x, y = samples_in_odd_units()
    scale = x.std(axis=0)
    columns = np.column_stack([x / scale, np.ones(40)])
    penalty = np.diag([40 * ridge, 40 * ridge, 40 * ridge, 0.0])
    *slopes, intercept = np.linalg.solve(columns.T @ columns + penalty, columns.T @ y)
    fit = linear_fit(x, y, ridge=ridge, intercept=True)
    np.testing.assert_allclose(fit.coefficients, slopes / scale, rtol=1e-7)
    assert fit.intercept == pytest.approx(intercept, rel=1e-7)
    assert fit.rank == 3
    assert fit.condition == pytest.approx(np.linalg.cond((x - x.mean(axis=0)) / scale))


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_without_an_intercept_the_penalty_counts_in_root_mean_squares(ridge):
    x, y = samples_in_odd_units()
    scale = np.sqrt((x**2).mean(axis=0))
    columns = x / scale
    penalty = 40 * ridge * np.eye(3)
    slopes = np.linalg.solve(columns.T @ columns + penalty, columns.T @ y)
    fit = linear_fit(x, y, ridge=ridge, intercept=False)
    np.testing.assert_allclose(fit.coefficients, slopes / scale, rtol=1e-7)
    assert fit.intercept == pytest.approx(0.0, rel=1e-7)
    assert fit.rank == 3
    assert fit.condition == pytest.approx(np.linalg.cond(columns))


def test_a_constant_feature_has_no_coefficient_and_lowers_the_rank():
    x, y = samples_in_odd_units()
    x[:, 1] = 7.0
    fit = linear_fit(x, y)
    assert fit.coefficients[1] == 0.0
    assert fit.rank == 2
    assert fit.condition == np.inf


# --- values, gradients and fits -------------------------------------------------------------------


@dataclass(frozen=True)
class Square(MeanFunction):
    """A mean of one feature whose values are about 1e6; a slice of features gives no mean."""

    feature: object = 0

    def __call__(self, regressors):
        return 1e-6 * regressors[:, self.feature] ** 2


def zero(a, b):
    return 0.0 * a


def no_slopes(a, b):
    return (0.0 * a, 0.0 * a)


@pytest.mark.parametrize(
    ("mean", "value", "slopes"),
    [
        pytest.param(ZeroMean(), zero, no_slopes, id="zero"),
        pytest.param(ConstantMean(1.5), lambda a, b: 1.5 + 0.0 * a, no_slopes, id="constant"),
        pytest.param(
            LinearMean([0.5, -2.0], 3.0),
            lambda a, b: 3 + 0.5 * a - 2 * b,
            lambda a, b: (0.5 + 0 * a, -2 + 0 * a),
            id="linear",
        ),
        pytest.param(
            LinearMean(intercept=0.7), lambda a, b: 0.7 + 0.0 * a, no_slopes, id="intercept_only"
        ),
        pytest.param(
            Cooling(0.3),
            lambda a, b: 0.3 * np.tanh(b - a),
            lambda a, b: np.array([[-0.3], [0.3]]) / np.cosh(b - a) ** 2,
            id="own_formula",
        ),
        pytest.param(
            Square(), lambda a, b: 1e-6 * a**2, lambda a, b: (2e-6 * a, 0.0 * a), id="large_values"
        ),
    ],
)
def test_values_and_gradient_of_a_mean(mean, value, slopes):
    magnitude = 1e6 if isinstance(mean, Square) else 1.0
    x = magnitude * np.random.default_rng(1).normal(size=(5, 2))
    a, b = x.T
    np.testing.assert_allclose(mean(x), value(a, b), rtol=1e-14)
    np.testing.assert_allclose(mean.gradient(x).T, slopes(a, b), rtol=1e-7, atol=1e-7)


@pytest.fixture
def linear_samples():
    """Seven regressors with two features, and a noisy linear target."""
    x = np.random.default_rng(0).normal(size=(7, 2)) * [3.0, 200.0]
    noise = np.random.default_rng(2).normal(size=7)
    y = 4.0 + x @ [0.5, -0.01] + noise
    return x, y


@pytest.mark.parametrize(
    "mean",
    [
        pytest.param(ZeroMean(), id="zero"),
        pytest.param(Cooling(0.3), id="own_formula"),
        pytest.param(LinearMean([9.0, 9.0], 9.0), id="given_coefficients"),
    ],
)
def test_a_mean_without_free_parameters_stays_as_it_is(mean, linear_samples):
    assert mean.fitted(*linear_samples) == mean


def test_a_constant_mean_is_fitted_to_the_mean_of_the_targets(linear_samples):
    x, y = linear_samples
    assert ConstantMean(9.0).fitted(x, y) == ConstantMean(float(y.mean()))


def test_a_linear_mean_is_fitted_by_least_squares(linear_samples):
    x, y = linear_samples
    columns = np.column_stack([x, np.ones(7)])
    expected = np.linalg.lstsq(columns, y, rcond=None)[0]
    free = LinearMean().fitted(x, y)
    np.testing.assert_allclose([*free.coefficients, free.intercept], expected, rtol=1e-10)

    shrunk = LinearMean(ridge=50.0).fitted(x, y)
    assert shrunk.ridge == 50.0
    assert np.all(np.abs(shrunk.coefficients) < np.abs(free.coefficients))


def untrained_identification(mean):
    """Return an identification that trains a model on its first twelve samples."""
    training = MaximumLikelihood(n_initial=12, restarts=1, max_iterations=5)
    settings = Settings(training=training, mean=mean, budget=8)
    return Identification(Narx({"y": 1}, {"u": 2}), settings)


@pytest.mark.parametrize("mean", [ZeroMean(), ConstantMean(), LinearMean(), Cooling()], ids=repr)
def test_a_mean_is_fitted_to_the_first_samples_and_kept(mean):
    """Samples that come one by one or all at once give the same bits."""
    x, y = samples(36)
    one_by_one = untrained_identification(mean)
    all_at_once = untrained_identification(mean)
    reports = [one_by_one.observe(point, target) for point, target in zip(x, y, strict=True)]
    predicted = [np.nan if report is None else report.mean for report in reports]
    record = all_at_once.observe_many(x, y)
    np.testing.assert_array_equal(predicted, record["mean"])
    assert one_by_one.model.mean == mean.fitted(x[:12], y[:12])
    assert all_at_once.model.mean == mean.fitted(x[:12], y[:12])
    np.testing.assert_array_equal(one_by_one.model.predict(x), all_at_once.model.predict(x))


# --- wrong means ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: ConstantMean(np.nan), "value must be finite", id="constant"),
        pytest.param(lambda: LinearMean(intercept=np.nan), "finite", id="intercept"),
        pytest.param(lambda: LinearMean(ridge=-1.0), "ridge must be", id="ridge"),
        pytest.param(lambda: Cooling().check(1), "uses more", id="too_few_features"),
        pytest.param(lambda: Square(slice(1)).check(3), r"\(2, 1\)", id="shape_of_the_values"),
    ],
)
def test_wrong_means_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


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
