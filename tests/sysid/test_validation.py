"""Scores of predictive distributions against naive formulas."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import mean_squared_error, r2_score

from sysid.validation import Z_95, Scores, scores, standardised_mean_squared_error

RNG = np.random.default_rng(0)
TARGET, MEAN = RNG.normal(2.0, 3.0, 500), RNG.normal(2.0, 3.0, 500)
VARIANCE, NOISE = RNG.uniform(0.1, 20.0, 500), 0.7


@pytest.fixture
def found():
    return scores(TARGET, MEAN, VARIANCE, NOISE)


def test_smse_is_one_minus_the_coefficient_of_determination(found):
    assert found.smse == pytest.approx(1.0 - r2_score(TARGET, MEAN), rel=1e-12)


def test_rmse(found):
    assert found.rmse == pytest.approx(np.sqrt(mean_squared_error(TARGET, MEAN)), rel=1e-12)


def test_nlpd_is_that_of_a_measurement(found):
    expected = -norm.logpdf(TARGET, MEAN, np.sqrt(VARIANCE + NOISE)).mean()
    assert found.nlpd == pytest.approx(expected, rel=1e-12)


def test_coverage_counts_the_central_interval(found):
    low, high = norm(MEAN, np.sqrt(VARIANCE + NOISE)).interval(0.95)
    assert found.coverage_95 == np.mean((low <= TARGET) & (high >= TARGET))


def test_mean_variance_is_latent(found):
    assert found.mean_variance == pytest.approx(VARIANCE.mean(), rel=1e-12)
    assert found.n == 500


def test_quantile():
    assert pytest.approx(norm.ppf(0.975), rel=1e-15) == Z_95


def test_perfectly_calibrated_predictions_cover_95_percent():
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(size=40_000), rng.uniform(0.5, 2.0, 40_000)
    target = rng.normal(mean, np.sqrt(variance + NOISE))
    found = scores(target, mean, variance, NOISE)
    assert found.coverage_95 == pytest.approx(0.95, abs=0.005)
    entropy = 0.5 * np.log(2 * np.pi * np.e * (variance + NOISE)).mean()
    assert found.nlpd == pytest.approx(entropy, abs=0.02)


def test_perfect_and_constant_predictions():
    assert scores(TARGET, TARGET, VARIANCE, NOISE).smse == 0.0
    assert standardised_mean_squared_error(TARGET, np.full(500, TARGET.mean())) == pytest.approx(1.0)


def test_smse_ignores_shift_and_unit():
    one = standardised_mean_squared_error(TARGET, MEAN)
    other = standardised_mean_squared_error(1e3 * TARGET - 7, 1e3 * MEAN - 7)
    assert one == pytest.approx(other, rel=1e-9)


def test_nothing_to_score_is_nan_and_zero_samples():
    empty = np.zeros(0)
    found = scores(empty, empty, empty, 0.1)
    assert found.n == 0
    assert all(np.isnan(value) for value in found[1:])
    assert len(found) == len(Scores._fields)


def test_constant_target_has_no_smse():
    assert np.isnan(standardised_mean_squared_error(np.ones(5), np.zeros(5)))
    assert np.isfinite(scores(np.ones(5), np.zeros(5), np.ones(5), 0.1).nlpd)
