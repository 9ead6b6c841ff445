"""Scores of predictive distributions against naive formulas."""

import json
from math import inf, isnan, log, nan, pi, sqrt

import numpy as np
import pytest
from nonlinear_benchmarks import error_metrics
from scipy.stats import kstest, norm
from sklearn.metrics import mean_squared_error, r2_score

from sysid.validation import (
    Z_95,
    Moments,
    Scores,
    calibration,
    moments,
    probability_transform,
    scores,
    standardised_mean_squared_error,
    validate,
)

RNG = np.random.default_rng(0)
TARGET, MEAN = RNG.normal(2.0, 3.0, 500), RNG.normal(2.0, 3.0, 500)
VARIANCE, NOISE = RNG.uniform(0.1, 20.0, 500), 0.7
TRIVIAL = Moments(1.5, 7.0)
KEYS = [
    "rmse",
    "nrmse",
    "fit_percent",
    "r2",
    "smse",
    "msll",
    "nlpd",
    "coverage_50",
    "coverage_90",
    "coverage_95",
    "n",
    "window",
]


@pytest.fixture
def found():
    return scores(TARGET, MEAN, VARIANCE, NOISE)


@pytest.fixture
def full():
    return validate(TARGET, MEAN, VARIANCE, NOISE, trivial=TRIVIAL, window=5)


def test_smse_is_one_minus_the_coefficient_of_determination(found, full):
    assert found.smse == full.smse == pytest.approx(1.0 - r2_score(TARGET, MEAN), rel=1e-12)
    assert full.r2 == pytest.approx(r2_score(TARGET, MEAN), rel=1e-12)


def test_rmse(found, full):
    assert found.rmse == full.rmse == pytest.approx(np.sqrt(mean_squared_error(TARGET, MEAN)), rel=1e-12)


def test_nlpd_is_that_of_a_measurement(found, full):
    expected = -norm.logpdf(TARGET, MEAN, np.sqrt(VARIANCE + NOISE)).mean()
    assert found.nlpd == full.nlpd == pytest.approx(expected, rel=1e-12)


def test_coverage_counts_the_central_interval(found, full):
    def expected(level):
        low, high = norm(MEAN, np.sqrt(VARIANCE + NOISE)).interval(level)
        return np.mean((low <= TARGET) & (high >= TARGET))

    assert found.coverage_95 == full.coverage_95 == expected(0.95)
    assert (full.coverage_50, full.coverage_90) == (expected(0.5), expected(0.9))


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


@pytest.mark.parametrize("value", [1.0, 0.1])  # the mean of seven times 0.1 is not 0.1
def test_constant_target_has_no_smse(value):
    target = np.full(7, value)
    assert np.isnan(standardised_mean_squared_error(target, np.zeros(7)))
    assert np.isfinite(scores(target, np.zeros(7), np.ones(7), 0.1).nlpd)


def test_nrmse_and_fit_are_those_of_the_field(full):
    naive = np.linalg.norm(TARGET - MEAN) / np.linalg.norm(TARGET - TARGET.mean())
    assert full.nrmse == pytest.approx(naive, rel=1e-12)
    assert full.nrmse == pytest.approx(float(error_metrics.NRMSE(TARGET, MEAN)), rel=1e-12)
    assert full.fit_percent == pytest.approx(float(error_metrics.fit_index(TARGET, MEAN)), rel=1e-12)


def test_msll_compares_with_the_moments_of_the_estimation_targets(full):
    losses = [
        -norm.logpdf(y, m, sqrt(v + NOISE)) + norm.logpdf(y, TRIVIAL.mean, sqrt(TRIVIAL.variance))
        for y, m, v in zip(TARGET, MEAN, VARIANCE, strict=True)
    ]
    assert full.msll == pytest.approx(np.mean(losses), rel=1e-12)
    trivial = validate(TARGET, np.full(500, 1.5), np.full(500, 6.3), 0.7, trivial=TRIVIAL)
    assert trivial.msll == pytest.approx(0.0, abs=1e-12)


def test_moments():
    assert moments([1.0, 2.0, 6.0]) == (3.0, pytest.approx(14.0 / 3.0))
    with pytest.raises(ValueError, match="leave `trivial` out"):
        moments([])


def test_result_for_json(full):
    content = full.to_dict()
    assert list(content) == KEYS
    assert json.loads(json.dumps(content, allow_nan=False)) == full._asdict()
    assert (full.n, full.window) == (500, 5)


def test_model_without_uncertainty():
    found = validate(TARGET, MEAN, trivial=TRIVIAL)
    assert found.rmse == validate(TARGET, MEAN, VARIANCE).rmse
    missing = {"msll", "nlpd", "coverage_50", "coverage_90", "coverage_95"}
    assert {name for name, value in found._asdict().items() if isnan(value)} == missing
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {name for name, value in content.items() if value is None} == missing


@pytest.mark.parametrize("trivial", [None, Moments(1.0, 0.0), Moments(nan, nan)])
def test_msll_needs_estimation_targets_that_vary(trivial):
    found = validate(TARGET, MEAN, VARIANCE, NOISE, trivial=trivial)
    assert isnan(found.msll)
    assert np.isfinite(found.nlpd)


def test_no_target_and_a_single_one():
    nothing = validate([], [], [], 0.1, trivial=TRIVIAL, window=3)
    assert (nothing.n, nothing.window) == (0, 3)
    assert all(isnan(value) for value in nothing[:10])
    assert nothing.to_dict() == dict.fromkeys(KEYS, None) | {"n": 0, "window": 3}
    one = validate([3.0], [1.0], [3.0], 1.0, trivial=TRIVIAL)
    assert one.rmse == 2.0
    assert one.nlpd == pytest.approx(0.5 * log(2 * pi * 4.0) + 0.5)
    assert (one.coverage_50, one.coverage_90, one.coverage_95, one.n) == (0.0, 1.0, 1.0, 1)
    assert all(isnan(value) for value in (one.nrmse, one.fit_percent, one.r2, one.smse))


def test_without_variance_a_hit_is_certain_and_one_miss_outweighs_all():
    zero = np.zeros(3)
    hit = validate([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], zero, trivial=TRIVIAL)
    assert (hit.nlpd, hit.msll, hit.coverage_50, hit.fit_percent) == (-inf, -inf, 1.0, 100.0)
    missed = validate([1.0, 2.0, 4.0], [1.0, 2.0, 4.5], zero, trivial=TRIVIAL)
    assert (missed.nlpd, missed.msll, missed.coverage_95) == (inf, inf, 2 / 3)
    assert missed.to_dict()["nlpd"] is None
    np.testing.assert_array_equal(probability_transform([1, 2, 4], [1, 3, 3.5], zero), [0.5, 0.0, 1.0])


@pytest.mark.parametrize("value", [nan, inf, -inf, 1e200])
def test_a_divergence_is_infinitely_wrong_and_no_sample_is_left_out(value):
    mean = MEAN.copy()
    mean[100:] = value
    found = validate(TARGET, mean, np.where(np.isfinite(mean), VARIANCE, nan), NOISE, trivial=TRIVIAL)
    assert (found.rmse, found.nrmse, found.smse, found.nlpd, found.msll) == (inf,) * 5
    assert (found.r2, found.fit_percent, found.n) == (-inf, -inf, 500)
    start = validate(TARGET[:100], MEAN[:100], VARIANCE[:100], NOISE)
    assert found.coverage_95 == pytest.approx(start.coverage_95 / 5)
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_divergence_without_uncertainty_or_with_an_infinite_one():
    assert validate([1.0, 2.0], [1.0, nan]).rmse == inf
    found = validate([1.0, 2.0], [1.0, inf], [1.0, inf])
    assert (found.rmse, found.nlpd, found.coverage_95) == (inf, inf, 0.5)


def test_calibration_counts_and_agrees_with_the_coverage(full):
    curve = calibration(TARGET, MEAN, VARIANCE, NOISE, levels=[0.3, 0.5, 0.95])
    pit = norm.cdf(TARGET, MEAN, np.sqrt(VARIANCE + NOISE))
    expected = [np.mean(np.abs(2 * pit - 1) <= level) for level in (0.3, 0.5, 0.95)]
    np.testing.assert_array_equal(curve.observed, expected)
    assert (curve.observed[1], curve.observed[2]) == (full.coverage_50, full.coverage_95)
    np.testing.assert_array_equal(curve.nominal, [0.3, 0.5, 0.95])
    np.testing.assert_allclose(probability_transform(TARGET, MEAN, VARIANCE, NOISE), pit, rtol=1e-12)


def test_calibrated_predictions_have_a_straight_curve_and_uniform_transform():
    rng = np.random.default_rng(2)
    mean, variance = rng.normal(size=20_000), rng.uniform(0.5, 2.0, 20_000)
    target = rng.normal(mean, np.sqrt(variance + NOISE))
    curve = calibration(target, mean, variance, NOISE)
    np.testing.assert_allclose(curve.observed, curve.nominal, atol=0.012)
    assert (calibration(target, mean, variance).observed < curve.nominal - 0.005).all()  # the noise forgotten
    assert kstest(probability_transform(target, mean, variance, NOISE), "uniform").pvalue > 0.001


def test_calibration_of_nothing_is_nan():
    assert np.isnan(calibration([], [], [], levels=[0.5]).observed).all()


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (([1.0, nan], [1.0, 2.0], [1.0, 1.0]), {}, "target: 1 of 2 values are not finite"),
        (([1.0, 2.0], [1.0], [1.0, 1.0]), {}, r"mean: expected shape \(2,\), one value per target, got \(1,\)"),
        (([1.0, 2.0], [1.0, 2.0], [1.0]), {}, r"variance: expected shape \(2,\)"),
        (
            ([1.0, 2.0], [1.0, 2.0], [1.0, -1e-9]),
            {},
            "1 of 2 values are negative or nan, the first is -1e-09 at index 1",
        ),
        (([1.0, 2.0], [1.0, 2.0], [nan, 1.0]), {}, "or None for a model without uncertainty"),
        (([1.0, 2.0], [1.0, 2.0], [1.0, 1.0]), {"noise_variance": -1.0}, "noise_variance: expected a finite number"),
        (([1.0, 2.0], [1.0, 2.0], [1.0, 1.0]), {"noise_variance": nan}, "noise_variance: expected a finite number"),
        (([1.0, 2.0], [1.0, 2.0]), {"window": -1}, "window=-1"),
    ],
)
def test_bad_predictions_are_refused(arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        validate(*arguments, **settings)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_are_probabilities(level):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        calibration(TARGET, MEAN, VARIANCE, levels=[level])
