"""Large errors of records count less for the hyper-parameters where this predicts better."""

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import approx_fprime

from sysid import (
    Adaptive,
    FreeRun,
    Linear,
    MaximumAPosteriori,
    MaximumLikelihood,
    Narx,
    Settings,
    SquaredExponential,
)
from sysid.gp.marginal_likelihood import leave_one_out, log_marginal_likelihood
from sysid.gp.training import student_noise_factors
from sysid.noise_choice import choose_noise
from sysid.progress import on_progress

NARX = Narx({"y": 1}, {"u": 1})
SETTINGS = Settings(budget=30, linear_part="none")


def record(kind, *, n=400, seed=0):
    """Return a record of y[k] = 0.5 y[k-1] + sin(3 u[k-1]) + e[k] and the function of its rows."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1, 1, n)
    noise = 0.03 * rng.normal(size=n)
    if kind == "errors":
        noise += np.where(rng.random(n) < 0.02, 2.0 * rng.choice([-1, 1], n), 0.0)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.5 * y[k - 1] + np.sin(3 * u[k - 1]) + noise[k]
    data = {"y": ("time", y), "u": ("time", u)}
    return xr.Dataset(data, {"time": np.arange(float(n))})


def test_the_noise_factors_enter_the_likelihood_and_its_gradient():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(12, 2))
    y = rng.normal(size=12)
    factors = rng.uniform(0.5, 9.0, 12)
    kernel = SquaredExponential(1.3, [0.8, 1.1])

    def value(logs):
        changed = kernel.with_log_hyperparameters(logs[:-1])
        return log_marginal_likelihood(changed, np.exp(logs[-1]), x, y, 0, factors).value

    logs = np.append(kernel.log_hyperparameters(), np.log(0.2))
    covariance = kernel(x, x) + 0.2 * np.diag(factors)
    expected = -0.5 * (
        y @ np.linalg.solve(covariance, y)
        + np.linalg.slogdet(covariance)[1]
        + 12 * np.log(2 * np.pi)
    )
    assert value(logs) == pytest.approx(expected)
    found = log_marginal_likelihood(kernel, 0.2, x, y, 0, factors)
    np.testing.assert_allclose(found.gradient, approx_fprime(logs, value), rtol=1e-4)
    left_out = leave_one_out(kernel, 0.2, x, y, factors)
    inverse = np.linalg.inv(covariance)
    np.testing.assert_allclose(left_out.variance, 1 / np.diag(inverse))
    np.testing.assert_allclose(left_out.residual, inverse @ y / np.diag(inverse))


def test_the_factors_of_student_noise_find_its_scale():
    rng = np.random.default_rng(2)
    residual = 0.3 * rng.standard_t(4, 20_000)
    factors = student_noise_factors(residual, np.zeros(20_000), 1.0)
    assert np.mean(residual**2 / factors) == pytest.approx(0.09, rel=0.05)
    assert factors.min() >= 0.8
    largest = np.abs(residual).argmax()
    assert factors[largest] > 10.0


def noise_of(kind, *, of=MaximumAPosteriori, linear=0, **training):
    """Return the noise variance from a record, with so many lags in a linear part."""
    narx = Narx({"y": 1}, {"u": 1}, linear={"y": linear, "u": linear} if linear else {})
    settings = Settings(budget=30, linear_part="none", training=of(**training))
    settings = settings.for_linear_lags(narx)
    rows = narx.dataset(record(kind, n=200))
    start = settings.know(narx, rows["regressor"].values, rows["target"].values)
    return start.hyperparameters.noise_variance


@pytest.mark.parametrize("of", [MaximumAPosteriori, Adaptive], ids=lambda of: of.__name__)
@pytest.mark.parametrize("linear", [0, 10], ids=["no linear part", "linear part"])
def test_large_errors_no_longer_decide_about_the_noise(of, linear):
    options = {"of": of, "linear": linear}
    assert noise_of("errors", **options) > 20 * 0.03**2
    assert noise_of("errors", record_robust=True, **options) < 2 * 0.03**2
    robust = noise_of("none", record_robust=True, **options)
    assert robust == pytest.approx(noise_of("none", **options), rel=0.4)


def residuals_of(monkeypatch, gaussian, robust):
    """Let the models have these held-out errors."""

    def held_out_residuals(narx, records, settings, *, starts=None):
        return robust if settings.training.record_robust else gaussian

    monkeypatch.setattr("sysid.noise_choice.held_out_residuals", held_out_residuals)


@pytest.mark.parametrize(
    ("n_large", "gain", "is_tried", "is_robust"),
    [
        pytest.param(0, 0.5, False, False, id="no large errors"),
        pytest.param(1, 0.5, False, False, id="one of a thousand"),
        pytest.param(20, 0.9, True, True, id="better"),
        pytest.param(20, 0.999, True, False, id="hardly better"),
        pytest.param(20, 1.5, True, False, id="worse"),
    ],
)
def test_large_errors_count_less_where_this_lowers_the_error_of_the_others(
    monkeypatch, n_large, gain, is_tried, is_robust
):
    """The large errors themselves, 100 and 1000, do not decide."""
    errors = np.clip(np.random.default_rng(3).normal(size=1000), -3.5, 3.5)
    large = np.arange(1000) < n_large
    residuals_of(monkeypatch, np.where(large, 100.0, errors), np.where(large, 1e3, gain * errors))
    choice = choose_noise([], NARX, SETTINGS)
    assert (choice is not None) == is_tried
    if is_tried:
        assert choice.is_robust == is_robust
        assert choice.settings.training.record_robust == is_robust
        assert choice.n_large == n_large
        assert ("samples count in full" in str(choice)) != is_robust


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(Settings(training=MaximumLikelihood(kernel=Linear())), id="linear"),
        pytest.param(Settings(training=FreeRun()), id="for the free run"),
        pytest.param(Settings(training=MaximumAPosteriori(record_robust=True)), id="set"),
    ],
)
def test_nothing_is_chosen_where_there_is_no_choice(settings):
    assert choose_noise([], NARX, settings) is None


def test_both_computations_are_steps(monkeypatch):
    """Each takes half of the time."""
    shown = []
    errors = np.append(np.random.default_rng(3).normal(size=100), 50.0)

    def held_out_residuals(narx, records, settings, *, starts=None):
        shown.append("computes")
        return errors

    monkeypatch.setattr("sysid.noise_choice.held_out_residuals", held_out_residuals)
    with on_progress(shown.append):
        choose_noise([], NARX, SETTINGS)
    assert shown[0] == "step 1 of 2"
    assert shown[2].startswith("step 2 of 2, about")
    assert [shown[1], *shown[3:]] == ["computes", "computes"]


def test_no_more_than_the_time_is_used(monkeypatch):
    residuals_of(monkeypatch, None, None)
    assert choose_noise([], NARX, SETTINGS) is None


def test_what_is_neither_true_nor_false_is_refused():
    with pytest.raises(TypeError, match="record_robust must be true or false, got 'yes'"):
        MaximumAPosteriori(record_robust="yes")
