"""Measures of predictions, against their textbook formulas."""

import json
from math import inf, isnan, log, nan, pi, sqrt

import numpy as np
import pytest
from nonlinear_benchmarks import error_metrics
from scipy.stats import norm
from sklearn.metrics import mean_squared_error, r2_score

from sysid import calibration, fit_percent, standardised_mean_squared_error, validate
from sysid.simulation.validation import Z_95, continuous_ranked_probability_score

RNG = np.random.default_rng(0)
TARGET = RNG.normal(2.0, 3.0, 500)
MEAN = RNG.normal(2.0, 3.0, 500)
VARIANCE = RNG.uniform(0.1, 20.0, 500)
NOISE = 0.7
STANDARD_DEVIATION = np.sqrt(VARIANCE + NOISE)
TRIVIAL = (1.5, 7.0)  # mean and variance of a prediction that knows nothing
LEVELS = [0.5, 0.9, 0.95]

MEASURES_OF_SPREAD = {"nlpd", "coverage_50", "coverage_90", "coverage_95"}
RELATIVE_MEASURES = {"nrmse", "fit_percent", "r2", "smse"}


@pytest.fixture(scope="module")
def coverages():
    """Return the fractions of the targets within the central intervals of 50, 90 and 95 %."""
    fractions = []
    for level in LEVELS:
        low, high = norm(MEAN, STANDARD_DEVIATION).interval(level)
        fractions.append(np.mean((low <= TARGET) & (high >= TARGET)))
    return fractions


def test_measures_are_the_formulas_of_the_field(coverages):
    measures = validate(TARGET, MEAN, VARIANCE, NOISE, trivial=TRIVIAL, window=5)
    nlpd = -norm.logpdf(TARGET, MEAN, STANDARD_DEVIATION).mean()
    expected = {
        "rmse": sqrt(mean_squared_error(TARGET, MEAN)),
        "nrmse": float(error_metrics.NRMSE(TARGET, MEAN)),
        "fit_percent": float(error_metrics.fit_index(TARGET, MEAN)),
        "r2": r2_score(TARGET, MEAN),
        "smse": 1.0 - r2_score(TARGET, MEAN),
        "msll": nlpd + norm.logpdf(TARGET, 1.5, sqrt(7.0)).mean(),
        "nlpd": nlpd,
        "coverage_50": coverages[0],
        "coverage_90": coverages[1],
        "coverage_95": coverages[2],
        "n": 500,
        "window": 5,
    }
    assert measures._asdict() == pytest.approx(expected, rel=1e-12)
    assert list(measures.to_dict()) == list(expected)
    assert json.loads(json.dumps(measures.to_dict(), allow_nan=False)) == measures._asdict()


def test_the_quantile_is_that_of_the_normal_distribution():
    assert pytest.approx(norm.ppf(0.975), rel=1e-15) == Z_95


def test_calibration_is_the_fraction_of_targets_in_the_intervals(coverages):
    curve = calibration(TARGET, MEAN, VARIANCE, NOISE, levels=LEVELS)
    np.testing.assert_array_equal(curve.nominal, LEVELS)
    np.testing.assert_array_equal(curve.observed, coverages)


def test_the_standardised_error_has_no_unit():
    expected = standardised_mean_squared_error(TARGET, MEAN)
    in_other_units = standardised_mean_squared_error(1e3 * TARGET - 7, 1e3 * MEAN - 7)
    assert in_other_units == pytest.approx(expected, rel=1e-9)


def test_fit_percent_of_every_output():
    y = np.random.default_rng(0).normal(loc=[3.0, -1.0], size=(50, 2))
    y_hat = y + np.random.default_rng(1).normal(size=(50, 2)) * [0.1, 5.0]
    error = np.linalg.norm(y - y_hat, axis=0)
    spread = np.linalg.norm(y - y.mean(axis=0), axis=0)
    expected = 100 * (1 - error / spread)
    np.testing.assert_allclose(fit_percent(y, y_hat), expected, rtol=1e-12)
    assert fit_percent(y[:, 0], y_hat[:, 0]) == pytest.approx(expected[0], rel=1e-12)


# --- measures that do not exist or are infinite ---------------------------------------------------


def missing_measures(measures):
    """Return the names of the measures that are nan."""
    return {name for name, value in measures._asdict().items() if isnan(value)}


def test_without_variance_there_are_no_measures_of_spread():
    measures = validate(TARGET, MEAN, trivial=TRIVIAL)
    assert missing_measures(measures) == {"msll", *MEASURES_OF_SPREAD}


@pytest.mark.parametrize("trivial", [None, (1.0, 0.0), (nan, nan)])
def test_without_a_trivial_prediction_there_is_no_comparison_with_it(trivial):
    measures = validate(TARGET, MEAN, VARIANCE, NOISE, trivial=trivial)
    assert missing_measures(measures) == {"msll"}


def test_without_samples_there_are_no_measures():
    measures = validate([], [], [], 0.1, trivial=TRIVIAL)
    expected = {"rmse", "msll", *MEASURES_OF_SPREAD, *RELATIVE_MEASURES}
    assert missing_measures(measures) == expected
    assert np.isnan(calibration([], [], [], levels=[0.5]).observed).all()


def test_one_sample_has_no_relative_measures():
    measures = validate([3.0], [1.0], [3.0], 1.0, trivial=TRIVIAL)
    assert missing_measures(measures) == RELATIVE_MEASURES
    assert measures.rmse == 2.0
    assert measures.nlpd == pytest.approx(0.5 * log(2 * pi * 4.0) + 0.5)
    assert measures.coverage_50 == 0.0
    assert measures.coverage_90 == 1.0
    assert measures.coverage_95 == 1.0
    assert measures.n == 1


@pytest.mark.parametrize("constant", [1.0, 0.1], ids=["1", "0.1, the mean of which is not 0.1"])
def test_a_constant_target_has_no_relative_measures(constant):
    target = np.full(7, constant)
    measures = validate(target, np.zeros(7), np.ones(7), 0.1, trivial=TRIVIAL)
    assert missing_measures(measures) == RELATIVE_MEASURES


def test_without_variance_a_hit_is_certain_and_one_miss_outweighs_all():
    zero = np.zeros(3)
    hits = validate([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], zero, trivial=TRIVIAL)
    assert hits.nlpd == -inf
    assert hits.msll == -inf
    assert hits.coverage_50 == 1.0
    one_miss = validate([1.0, 2.0, 4.0], [1.0, 2.0, 4.5], zero, trivial=TRIVIAL)
    assert one_miss.nlpd == inf
    assert one_miss.msll == inf
    assert one_miss.coverage_95 == 2 / 3
    assert one_miss.to_dict()["nlpd"] is None


@pytest.mark.parametrize("value", [nan, inf, -inf, 1e200])
def test_a_divergence_is_infinitely_wrong_and_no_sample_is_left_out(value):
    mean = MEAN.copy()
    mean[100:] = value
    variance = np.where(np.isfinite(mean), VARIANCE, nan)
    measures = validate(TARGET, mean, variance, NOISE, trivial=TRIVIAL)
    for name in ("rmse", "nrmse", "smse", "nlpd", "msll"):
        assert getattr(measures, name) == inf, name
    assert measures.r2 == -inf
    assert measures.fit_percent == -inf
    assert measures.n == 500
    before = validate(TARGET[:100], MEAN[:100], VARIANCE[:100], NOISE)
    assert measures.coverage_95 == pytest.approx(before.coverage_95 / 5)
    json.dumps(measures.to_dict(), allow_nan=False)


def test_an_infinite_variance_covers_nothing():
    measures = validate([1.0, 2.0], [1.0, inf], [1.0, inf])
    assert measures.rmse == inf
    assert measures.nlpd == inf
    assert measures.coverage_95 == 0.5


# --- refusals -------------------------------------------------------------------------------------

PAIR = [1.0, 2.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: validate([1.0, nan], PAIR, PAIR),
            "target: 1 of 2 values are not finite",
            id="target is nan",
        ),
        pytest.param(
            lambda: validate(PAIR, [1.0], PAIR),
            r"mean: expected shape \(2,\)",
            id="short mean",
        ),
        pytest.param(
            lambda: validate(PAIR, PAIR, [1.0, -1e-9]),
            "1 of 2 values are negative or nan",
            id="negative variance",
        ),
        pytest.param(
            lambda: validate(PAIR, PAIR, PAIR, noise_variance=-1.0),
            "noise_variance",
            id="negative noise",
        ),
        pytest.param(
            lambda: validate(PAIR, PAIR, window=-1),
            "window=-1",
            id="negative window",
        ),
        pytest.param(
            lambda: calibration(PAIR, PAIR, PAIR, levels=[1.0]),
            "strictly between 0 and 1",
            id="level 1",
        ),
        pytest.param(lambda: fit_percent(PAIR, [PAIR]), "two arrays", id="two shapes"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- continuous ranked probability score ----------------------------------------------------------


def integrated_score(target, mean, std):
    """Return the integral of the squared difference of both distribution functions."""
    x = np.linspace(min(target, mean - 12 * std), max(target, mean + 12 * std), 200_001)
    return np.trapezoid((norm(mean, std).cdf(x) - (x >= target)) ** 2, x)


def test_the_score_of_a_gaussian_is_the_integral_of_its_definition():
    expected = [
        integrated_score(*case)
        for case in zip(TARGET[:20], MEAN[:20], STANDARD_DEVIATION[:20], strict=True)
    ]
    score = continuous_ranked_probability_score(TARGET[:20], MEAN[:20], VARIANCE[:20], NOISE)
    assert score == pytest.approx(np.mean(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("target", "mean", "variance", "expected"),
    [
        ([], [], [], nan),
        ([1.0, 2.0], [1.0, 4.0], [0.0, 0.0], 1.0),
        ([1.0, 2.0], [1.0, nan], [1.0, nan], inf),
        ([1.0], [1.0], [inf], inf),
        ([1e9], [0.0], [1e-12], 1e9),
    ],
    ids=["none", "certain", "diverged", "unbounded", "far"],
)
def test_the_score_of_special_predictions(target, mean, variance, expected):
    score = continuous_ranked_probability_score(target, mean, variance)
    assert score == pytest.approx(expected, nan_ok=True)
