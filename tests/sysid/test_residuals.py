"""Tests of residuals: their numbers against plain loops, and what they find and do not find."""

import json
from functools import partial
from math import nan

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom, chi2, f, norm, rankdata

from sysid import residual_tests, store
from sysid.simulation.residuals import FALSE_ALARM_PROBABILITY, autocorrelate, standardise

TEST_NAMES = [
    "autocorrelation",
    "squared_autocorrelation",
    "input",
    "residual_input",
    "squared_input",
    "squared_input_squared",
]

# --- their numbers --------------------------------------------------------------------------------

RECORD_LENGTHS = (30, 55, 41)
N_SAMPLES = sum(RECORD_LENGTHS)


def three_records(seed=0):
    """Return residuals with a mean, in millionths, and an input that wanders."""
    rng = np.random.default_rng(seed)
    residuals = [1e-6 * (3.0 + rng.normal(size=n)) for n in RECORD_LENGTHS]
    inputs = [5.0 + np.cumsum(rng.normal(size=n)) for n in RECORD_LENGTHS]
    return residuals, inputs


def find_test(report, name, output="output 0", input=None):
    """Return the first test of this name and output, and of this input if one is named."""
    for test in report.tests:
        has_input = input is None or not test.input or test.input == input
        if test.name == name and test.output == output and has_input:
            return test
    raise LookupError(name)


def standardised(parts):
    """Return records without the mean and with the standard deviation 1 of all of them."""
    values = np.concatenate(parts)
    return [(part - values.mean()) / values.std() for part in parts]


def normal_scores(parts):
    """Return the standardised normal scores of all records together."""
    values = np.concatenate(parts)
    scores = norm.ppf(rankdata(values) / (len(values) + 1))
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return standardised(np.split(scores, ends))


def correlated_signals(residuals, inputs):
    """Return the past and the present signal that each test correlates."""
    e = standardised(residuals)
    u = standardised(inputs)
    e_squared = normal_scores([part**2 for part in e])
    u_squared = standardised([part**2 for part in u])
    product = standardised([e_part * u_part for e_part, u_part in zip(e, u, strict=True)])
    return {
        "autocorrelation": (e, e),
        "squared_autocorrelation": (e_squared, e_squared),
        "input": (u, e),
        "residual_input": (product, e),
        "squared_input": (u_squared, e),
        "squared_input_squared": (u_squared, e_squared),
    }


@pytest.fixture(scope="module")
def report_of_six_lags():
    """Return the report about the three records with six lags."""
    residuals, inputs = three_records()
    return residual_tests(residuals, inputs, n_lags=6, input_names=["u"])


def test_every_test_is_in_the_report(report_of_six_lags):
    assert [test.name for test in report_of_six_lags.tests] == TEST_NAMES


@pytest.mark.parametrize("name", TEST_NAMES)
def test_correlations_and_bands_are_those_of_plain_loops_within_records(name, report_of_six_lags):
    """The band is 1.96 over root n, times the root of the fraction of the pairs or of the squares
    that exist at this lag.
    """
    past, present = correlated_signals(*three_records())[name]
    test = find_test(report_of_six_lags, name, input="u")
    has_lag_zero = name in ("input", "squared_input", "squared_input_squared")
    assert test.lags.tolist() == list(range(0 if has_lag_zero else 1, 7))
    for k, value, band in zip(test.lags, test.values, test.band, strict=True):
        products = []
        for x, y in zip(past, present, strict=True):
            products.extend(x[t - k] * y[t] for t in range(k, len(y)))
        assert value == pytest.approx(sum(products) / N_SAMPLES, abs=1e-12)
        if "autocorrelation" in name:
            fraction = len(products) / N_SAMPLES
        else:
            used = np.concatenate([part[: len(part) - k] for part in past])
            fraction = (used @ used - used.sum() ** 2 / N_SAMPLES) / N_SAMPLES
        assert band == pytest.approx(1.959964 * np.sqrt(fraction / N_SAMPLES), rel=1e-6)
    assert test.n_outside == sum(np.abs(test.values) > test.band)


@pytest.mark.parametrize(
    ("lengths", "n_lags"),
    [((14,), 3), ((6, 9), 3), ((40,), 9)],
    ids=["short record", "two records", "long record"],
)
def test_variance_of_the_portmanteau_statistic(lengths, n_lags):
    """The reference are 100 000 series, whose mean is known, as the formula supposes."""
    n = sum(lengths)
    e = np.random.default_rng(1).normal(size=(n, 100_000))
    sample = np.concatenate([np.arange(length) for length in lengths])
    Q = 0.0
    for k in range(1, n_lags + 1):
        later = np.flatnonzero(sample >= k)
        correlation = np.sum(e[later - k] * e[later], axis=0) / np.sum(e**2, axis=0)
        Q = Q + n * (n + 2) * correlation**2 / len(later)
    z, _ = standardise(e[:, :1])
    result = autocorrelate(z, sample, np.arange(1, n_lags + 1), 0)
    (freedom,) = result.freedom
    assert Q.mean() == pytest.approx(n_lags, rel=0.01)
    assert Q.var() == pytest.approx(2 * n_lags**2 / freedom, rel=0.025)
    expected = chi2.sf(result.statistic * freedom / n_lags, freedom)
    assert result.p_value == pytest.approx(expected, rel=1e-9)


@pytest.fixture(scope="module")
def report_of_five_lags():
    """Return the report about three other records with five lags."""
    return residual_tests(*three_records(2), n_lags=5)


@pytest.mark.parametrize("name", ["input", "squared_input", "squared_input_squared"])
def test_input_tests_are_f_tests_of_a_regression_on_the_lags(name, report_of_five_lags):
    n_lags = 5
    n = N_SAMPLES - 3 * n_lags
    past, present = correlated_signals(*three_records(2))[name]
    rows = []
    for part in past:
        for t in range(n_lags, len(part)):
            rows.append([part[t - k] for k in range(n_lags + 1)])
    X = np.column_stack([np.ones(n), rows])
    z = np.concatenate([part[n_lags:] for part in present])
    z = z - z.mean()
    coefficients = np.linalg.lstsq(X, z)[0]
    rest = z - X @ coefficients
    explained = z @ z - rest @ rest
    freedom = (n_lags + 1, n - n_lags - 2)
    F = (explained / freedom[0]) / (rest @ rest / freedom[1])
    test = find_test(report_of_five_lags, name)
    assert test.freedom == freedom
    assert test.statistic == pytest.approx(F, rel=1e-9)
    assert test.p_value == pytest.approx(f.sf(F, *freedom), rel=1e-9)


def test_the_test_of_residuals_and_input_is_a_chi_square_test(report_of_five_lags):
    test = find_test(report_of_five_lags, "residual_input")
    scores = test.values / test.band * norm.ppf(0.975)
    statistic = np.sum(scores**2)
    assert test.statistic == pytest.approx(statistic)
    assert test.p_value == pytest.approx(chi2.sf(statistic, 5))


def assert_same_p_values(report, other):
    """The tests of both reports have the same p-values up to rounding."""
    for test, expected in zip(report.tests, other.tests, strict=True):
        assert test.p_value == pytest.approx(expected.p_value, rel=1e-5)


def test_the_order_of_the_records_does_not_count():
    residuals, inputs = three_records(5)
    report = residual_tests(residuals, inputs, n_lags=6)
    reversed_report = residual_tests(residuals[::-1], inputs[::-1], n_lags=6)
    assert_same_p_values(reversed_report, report)


def test_units_do_not_count():
    residuals, inputs = three_records(5)
    report = residual_tests(residuals, inputs, n_lags=6)
    scaled_residuals = [1e9 * part - 7e4 for part in residuals]
    scaled_inputs = [1e-200 * (part + 3) for part in inputs]
    scaled_report = residual_tests(scaled_residuals, scaled_inputs, n_lags=6)
    assert_same_p_values(scaled_report, report)


def test_records_do_not_mix():
    residuals, inputs = three_records(5)
    report = residual_tests(residuals, inputs, n_lags=6)
    joined = residual_tests(np.concatenate(residuals), np.concatenate(inputs), n_lags=6)
    difference = np.abs(joined.tests[0].values - report.tests[0].values)
    assert difference.max() > 1e-3


def test_signals_do_not_mix():
    residuals, inputs = np.random.default_rng(6).normal(size=(2, 200, 2))
    together = residual_tests(
        residuals, inputs, n_lags=7, output_names=["y", "w"], input_names=["a", "b"]
    )
    assert [test.output for test in together.tests] == ["y"] * 10 + ["w"] * 10
    for i, output in enumerate("yw"):
        for j, input in enumerate("ab"):
            alone = residual_tests(residuals[:, i], inputs[:, j], n_lags=7)
            for expected in alone.tests:
                test = find_test(together, expected.name, output, input)
                np.testing.assert_allclose(test.values, expected.values, atol=1e-12)
                assert test.p_value == pytest.approx(expected.p_value, rel=1e-9)


# --- what they find -------------------------------------------------------------------------------


def white_noise(n=600, seed=8):
    """Return white residuals and a white input."""
    return np.random.default_rng(seed).normal(size=(2, n))


def delayed(u, k=1):
    """Return the signal k samples later."""
    return np.concatenate([np.zeros(k), u[:-k]])


def coloured_residuals(e, u):
    """Return residuals of a first-order system."""
    for k in range(1, len(e)):
        e[k] = e[k] + 0.4 * e[k - 1]
    return e


def residuals_of_varying_size(e, u):
    """Return residuals whose standard deviation depends on the residual before."""
    for k in range(1, len(e)):
        e[k] = e[k] * np.hypot(0.6, 0.8 * e[k - 1])
    return e


@pytest.mark.parametrize(
    ("n", "change", "expected", "quiet"),
    [
        pytest.param(600, lambda e, u: e, set(), set(TEST_NAMES), id="white"),
        pytest.param(600, coloured_residuals, {"autocorrelation"}, set(), id="coloured"),
        pytest.param(
            600,
            lambda e, u: e + 0.3 * delayed(u, 3),
            {"input"},
            set(TEST_NAMES) - {"input"},
            id="missing lag",
        ),
        pytest.param(
            600,
            lambda e, u: e + 0.25 * delayed(u) ** 2,
            {"squared_input"},
            {"autocorrelation", "squared_autocorrelation", "input", "residual_input"},
            id="missing square",
        ),
        pytest.param(
            1500,
            lambda e, u: e + 0.3 * delayed(e * u),
            {"residual_input"},
            {"autocorrelation", "input"},
            id="bilinear",
        ),
        pytest.param(
            600,
            lambda e, u: e * (0.5 + delayed(u) ** 2),
            {"squared_input_squared"},
            {"autocorrelation"},
            id="noise of input",
        ),
        pytest.param(
            1000,
            residuals_of_varying_size,
            {"squared_autocorrelation"},
            set(),
            id="noise of noise",
        ),
    ],
)
def test_every_alternative_is_found_by_its_test(n, change, expected, quiet):
    e, u = white_noise(n)
    report = residual_tests(change(e, u), u)
    threshold = FALSE_ALARM_PROBABILITY / len(report.tests)
    alarms = {test.name for test in report.tests if test.p_value < threshold}
    assert expected <= alarms
    assert not alarms & quiet
    smallest = min(test.p_value for test in report.tests)
    assert report.p_value("output 0") == min(1.0, 6 * smallest)


def test_the_lag_that_is_missing_most_is_named():
    e, u = white_noise()
    report = residual_tests(e + 0.3 * delayed(u, 3), u)
    assert find_test(report, "input").to_dict()["largest_lag"] == 3
    assert repr(report).splitlines()[1:] == list(report.verdict())
    assert "most at lag 3" in " ".join(report.verdict())


# --- what cannot be tested ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report_with_constants():
    """Return the report about signals of which some are constant or have only two values."""
    e, u = white_noise(100)
    constant = np.full(100, 0.3)
    two_values = np.sign(u) * 2.0 + 1.0
    alternating = np.where(np.arange(100) % 2, 3.0, -1.0)
    return residual_tests(
        np.column_stack([e, constant, two_values]),
        np.column_stack([np.full(100, 0.1), alternating, u]),
        n_lags=5,
        input_names=["a", "b", "c"],
    )


def test_signals_that_cannot_be_tested_are_named(report_with_constants):
    report = report_with_constants
    assert report.skipped[0] == "residuals of output 1 are constant: nothing to test"
    assert "a is constant: not tested" in report.skipped
    assert "the square of b about its mean is constant: not tested" in report.skipped
    assert report.outputs == ("output 0", "output 2")
    of_first_output = [test for test in report.tests if test.output == "output 0"]
    assert len(of_first_output) == 2 + 2 + 4
    assert set(report.skipped) < set(report.verdict())


def test_reports_are_stored(report_with_constants, tmp_path):
    report = report_with_constants
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert [entry["name"] for entry in content["tests"]] == [test.name for test in report.tests]
    data = report.to_dataset()
    path = store.write(data, tmp_path / "residual.nc", kind="result")
    loaded = store.read(path, kind="result")
    for name in data.variables:
        np.testing.assert_array_equal(loaded[name].values, data[name].values)
    first = report.tests[0]
    np.testing.assert_array_equal(data["correlation"].values[0], [nan, *first.values])
    np.testing.assert_array_equal(data["band"].values[0], [nan, *first.band])


def test_perfect_predictions_have_no_tests():
    e, _ = white_noise(100)
    report = residual_tests(np.zeros(100), e, n_lags=5)
    assert report.tests == ()
    assert report.to_dataset().sizes["test"] == 0


def test_an_input_at_rest_where_lags_exist_raises_no_alarm():
    e, _ = white_noise(100)
    impulse_at_the_end = 1.0 * (np.arange(100) == 99)
    report = residual_tests(e, impulse_at_the_end, n_lags=5, input_start=1)
    test = find_test(report, "input")
    assert test.lags[0] == 1
    assert test.p_value == pytest.approx(1.0)
    assert test.n_outside == 0


def test_lags_at_which_an_input_is_at_rest_have_no_degrees_of_freedom():
    e, _ = white_noise(100)
    step_at_the_end = 2.0 * (np.arange(100) >= 97)
    test = find_test(residual_tests(e, step_at_the_end, n_lags=5), "input")
    assert test.freedom == (3, 100 - 5 - 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: residual_tests(np.ones(50), np.ones(49)),
            r"records of \[50\] samples, inputs of \[49\]",
            id="two lengths",
        ),
        pytest.param(lambda: residual_tests([]), "no record of residuals", id="no record"),
        pytest.param(
            lambda: residual_tests(np.array([1.0, nan] * 50)),
            "residuals of record 0: 50 of 100 values are not finite",
            id="residuals are nan",
        ),
        pytest.param(
            lambda: residual_tests(np.ones((4, 3, 2))),
            r"shapes \[\(4, 3, 2\)\]",
            id="three dimensions",
        ),
        pytest.param(
            lambda: residual_tests(np.ones(200), n_lags=0),
            "at least 1 lag",
            id="no lag",
        ),
        pytest.param(
            lambda: residual_tests(np.ones(200), n_lags=5, n_parameters=5),
            "from 0 to 4 parameters",
            id="as many parameters as lags",
        ),
        pytest.param(
            lambda: residual_tests([np.ones(100), np.ones(9)], n_lags=9),
            r"one is 8\)",
            id="short record",
        ),
        pytest.param(
            lambda: residual_tests(np.ones(200), input_start=2),
            "expected 0 or 1",
            id="first lag of the input",
        ),
        pytest.param(
            lambda: residual_tests(np.ones((200, 2)), output_names=["y", "y"]),
            "expected 2 different names",
            id="a name twice",
        ),
        pytest.param(
            lambda: residual_tests(np.zeros(200)).p_value("output 0"),
            "was not tested",
            id="output not tested",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- false alarms, counted over 2000 series -------------------------------------------------------

N_SERIES = 2000
N_INPUTS = 40  # as many reports, with 50 series each
DISTRIBUTIONS = {
    "gaussian": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.uniform(-1.0, 1.0, shape),
    "laplace": lambda rng, shape: rng.laplace(size=shape),
    "student": lambda rng, shape: rng.standard_t(5, shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}


def first_order_noise(rng, n, pole):
    """Return n samples of noise of a first-order system in its steady state."""
    return lfilter([1.0], [1.0, -pole], rng.normal(size=n + 200))[200:]


def multisine(rng, n):
    """Return n samples of cosines with random phases."""
    t = np.arange(n)
    return sum(np.cos(2 * np.pi * k * t / n + rng.uniform(0, 2 * np.pi)) for k in range(1, n // 8))


INPUT_SIGNALS = {
    "white": partial(first_order_noise, pole=0.0),
    "coloured": partial(first_order_noise, pole=0.9),
    "multisine": multisine,
}


def alarm_limits(confidence):
    """Return the range of the fraction of alarms, if each series alarms with probability 5 %."""
    low, high = binom(N_SERIES, FALSE_ALARM_PROBABILITY).interval(confidence)
    return low / N_SERIES, high / N_SERIES


def count_alarms(distribution, input_signal, lengths, n_lags):
    """Return the fractions of alarms of every test, of every test and lag, and of the verdicts.

    One output is one series: 2000 independent series, 50 under each of 40 inputs.
    """
    rng = np.random.default_rng(0)
    of_tests = dict.fromkeys(TEST_NAMES, 0.0)
    of_lags = dict.fromkeys(TEST_NAMES, 0.0)
    of_verdicts = 0.0
    n_outputs = N_SERIES // N_INPUTS
    for _ in range(N_INPUTS):
        residuals = [DISTRIBUTIONS[distribution](rng, (n, n_outputs)) for n in lengths]
        inputs = [INPUT_SIGNALS[input_signal](rng, n) for n in lengths]
        report = residual_tests(residuals, inputs, n_lags=n_lags)
        for test in report.tests:
            is_outside = np.abs(test.values) > test.band
            of_tests[test.name] += test.alarm / N_SERIES
            of_lags[test.name] = of_lags[test.name] + is_outside / N_SERIES
        for output in report.outputs:
            of_verdicts += (report.p_value(output) < FALSE_ALARM_PROBABILITY) / N_SERIES
    return of_tests, of_lags, of_verdicts


def assert_alarms_in_5_percent(distribution, input_signal, lengths, n_lags, margin=0.0):
    """Every test, every lag and the verdict raise an alarm in 5 % of the series, up to `margin`."""
    of_tests, of_lags, of_verdicts = count_alarms(distribution, input_signal, lengths, n_lags)
    low, high = alarm_limits(0.999)
    lowest_of_lags, highest_of_lags = alarm_limits(0.9999)  # there are 150 lags
    for name in TEST_NAMES:
        mean_scatters_more = name in ("input", "squared_input", "squared_input_squared")
        tolerance = 0.009 if mean_scatters_more else 0.004 + margin
        expected = pytest.approx(FALSE_ALARM_PROBABILITY, abs=tolerance)
        assert low - margin <= of_tests[name] <= high + margin, name
        assert lowest_of_lags - margin <= of_lags[name].min(), name
        assert of_lags[name].max() <= highest_of_lags + margin, name
        assert of_lags[name].mean() == expected, name
    # the smallest of six p-values: far tails are less exact
    assert 0.03 <= of_verdicts <= high + 0.015


def test_limits_of_the_fraction_of_alarms():
    assert alarm_limits(0.999) == pytest.approx((0.034, 0.0665), abs=0.001)


def test_white_noise_alarms_in_5_percent():
    assert_alarms_in_5_percent("gaussian", "coloured", (200,), 25)


LENGTHS = {
    "10 lags": ((200,), 10),
    "25 lags": ((200,), 25),
    "long record": ((1000,), 25),
    "six records": ((52, 52, 52, 52, 52, 52), 25),
}


def every_pair():
    """Return combinations in which any two of distribution, input and lengths occur together."""
    inputs = list(INPUT_SIGNALS)
    combinations = []
    for number, distribution in enumerate(DISTRIBUTIONS):
        for shift, lengths in enumerate(LENGTHS):
            combinations.append((distribution, inputs[(number + shift) % len(inputs)], lengths))
    return combinations


@pytest.mark.slow
@pytest.mark.parametrize(("distribution", "input_signal", "lengths"), every_pair())
def test_white_noise_of_any_distribution_alarms_in_5_percent(distribution, input_signal, lengths):
    """Tails and colours cost at most one more per cent."""
    assert_alarms_in_5_percent(distribution, input_signal, *LENGTHS[lengths], margin=0.01)


def test_any_two_of_distribution_input_and_lengths_occur_together():
    n_values = (len(DISTRIBUTIONS), len(INPUT_SIGNALS), len(LENGTHS))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        pairs = {(combination[first], combination[second]) for combination in every_pair()}
        assert len(pairs) == n_values[first] * n_values[second]
