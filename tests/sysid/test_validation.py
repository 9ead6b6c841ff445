"""Measures of predictions against their textbook formulas, and residual tests against loops and
alternatives.
"""

import json
from functools import partial
from math import inf, isnan, log, nan, pi, sqrt

import numpy as np
import pytest
from nonlinear_benchmarks import error_metrics
from scipy.signal import lfilter
from scipy.stats import binom, chi2, f, norm, rankdata
from sklearn.metrics import mean_squared_error, r2_score

from sysid import (
    calibration,
    fit_percent,
    residual_tests,
    standardised_mean_squared_error,
    store,
    validate,
)
from sysid.simulation.residuals import FALSE_ALARM_PROBABILITY, autocorrelate, standardise
from sysid.simulation.validation import Z_95

RNG = np.random.default_rng(0)
TARGET = RNG.normal(2.0, 3.0, 500)
MEAN = RNG.normal(2.0, 3.0, 500)
VARIANCE = RNG.uniform(0.1, 20.0, 500)
NOISE = 0.7
SPREAD = np.sqrt(VARIANCE + NOISE)
TRIVIAL = (1.5, 7.0)


def test_measures_are_the_formulas_of_the_field():
    found = validate(TARGET, MEAN, VARIANCE, NOISE, trivial=TRIVIAL, window=5)
    low, high = norm(MEAN, SPREAD).interval(np.array([[0.5], [0.9], [0.95]]))
    covered = np.mean((low <= TARGET) & (high >= TARGET), axis=1)
    nlpd = -norm.logpdf(TARGET, MEAN, SPREAD).mean()
    expected = {
        "rmse": sqrt(mean_squared_error(TARGET, MEAN)),
        "nrmse": float(error_metrics.NRMSE(TARGET, MEAN)),
        "fit_percent": float(error_metrics.fit_index(TARGET, MEAN)),
        "r2": r2_score(TARGET, MEAN),
        "smse": 1.0 - r2_score(TARGET, MEAN),
        "msll": nlpd + norm.logpdf(TARGET, 1.5, sqrt(7.0)).mean(),
        "nlpd": nlpd,
        **dict(zip(("coverage_50", "coverage_90", "coverage_95"), covered, strict=True)),
        "n": 500,
        "window": 5,
    }
    assert list(found.to_dict()) == list(expected)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found._asdict()
    assert found._asdict() == pytest.approx(expected, rel=1e-12)
    assert pytest.approx(norm.ppf(0.975), rel=1e-15) == Z_95
    curve = calibration(TARGET, MEAN, VARIANCE, NOISE, levels=[0.5, 0.9, 0.95])
    np.testing.assert_array_equal([curve.nominal, curve.observed], [[0.5, 0.9, 0.95], covered])
    one, other = (
        standardised_mean_squared_error(a * TARGET - b, a * MEAN - b) for a, b in ((1, 0), (1e3, 7))
    )
    assert one == pytest.approx(other, rel=1e-9)


def test_fit_percent_of_every_output():
    y = np.random.default_rng(0).normal(loc=[3.0, -1.0], size=(50, 2))
    y_hat = y + np.random.default_rng(1).normal(size=(50, 2)) * [0.1, 5.0]
    expected = 100 * (
        1 - np.linalg.norm(y - y_hat, axis=0) / np.linalg.norm(y - y.mean(axis=0), axis=0)
    )
    np.testing.assert_allclose(fit_percent(y, y_hat), expected, rtol=1e-12)
    assert fit_percent(y[:, 0], y_hat[:, 0]) == pytest.approx(expected[0], rel=1e-12)


def test_measures_that_do_not_exist_are_nan():
    spread = {"nlpd", "coverage_50", "coverage_90", "coverage_95"}
    relative = {"nrmse", "fit_percent", "r2", "smse"}
    assert missing_of(validate(TARGET, MEAN, trivial=TRIVIAL)) == {"msll", *spread}
    for trivial in (None, (1.0, 0.0), (nan, nan)):
        assert missing_of(validate(TARGET, MEAN, VARIANCE, NOISE, trivial=trivial)) == {"msll"}
    assert missing_of(validate([], [], [], 0.1, trivial=TRIVIAL)) == {
        "rmse",
        "msll",
        *spread,
        *relative,
    }
    assert np.isnan(calibration([], [], [], levels=[0.5]).observed).all()
    one = validate([3.0], [1.0], [3.0], 1.0, trivial=TRIVIAL)
    assert missing_of(one) == relative
    assert (one.rmse, one.nlpd) == (2.0, pytest.approx(0.5 * log(2 * pi * 4.0) + 0.5))
    assert (one.coverage_50, one.coverage_90, one.coverage_95, one.n) == (
        0.0,
        1.0,
        1.0,
        1,
    )
    for constant in (1.0, 0.1):  # the mean of seven times 0.1 is not 0.1
        assert (
            missing_of(
                validate(np.full(7, constant), np.zeros(7), np.ones(7), 0.1, trivial=TRIVIAL)
            )
            == relative
        )


def test_without_variance_a_hit_is_certain_and_one_miss_outweighs_all():
    zero = np.zeros(3)
    hit = validate([1.0, 2.0, 4.0], [1.0, 2.0, 4.0], zero, trivial=TRIVIAL)
    assert (hit.nlpd, hit.msll, hit.coverage_50) == (-inf, -inf, 1.0)
    missed = validate([1.0, 2.0, 4.0], [1.0, 2.0, 4.5], zero, trivial=TRIVIAL)
    assert (missed.nlpd, missed.msll, missed.coverage_95) == (inf, inf, 2 / 3)
    assert missed.to_dict()["nlpd"] is None


@pytest.mark.parametrize("value", [nan, inf, -inf, 1e200])
def test_a_divergence_is_infinitely_wrong_and_no_sample_is_left_out(value):
    mean = MEAN.copy()
    mean[100:] = value
    found = validate(
        TARGET, mean, np.where(np.isfinite(mean), VARIANCE, nan), NOISE, trivial=TRIVIAL
    )
    assert (found.rmse, found.nrmse, found.smse, found.nlpd, found.msll) == (inf,) * 5
    assert (found.r2, found.fit_percent, found.n) == (-inf, -inf, 500)
    start = validate(TARGET[:100], MEAN[:100], VARIANCE[:100], NOISE)
    assert found.coverage_95 == pytest.approx(start.coverage_95 / 5)
    json.dumps(found.to_dict(), allow_nan=False)
    endless = validate([1.0, 2.0], [1.0, inf], [1.0, inf])
    assert (endless.rmse, endless.nlpd, endless.coverage_95) == (inf, inf, 0.5)


def missing_of(found):
    """Measures that do not exist."""
    return {name for name, value in found._asdict().items() if isnan(value)}


# residual tests: their numbers

LENGTHS = (30, 55, 41)
NAMES = ["autocorrelation", "squared_autocorrelation"]
NAMES += ["input", "residual_input", "squared_input", "squared_input_squared"]


def records(seed=0):
    """Residuals with a mean, in the unit of a millionth, and an input that wanders."""
    rng = np.random.default_rng(seed)
    e = [1e-6 * (3.0 + rng.normal(size=n)) for n in LENGTHS]
    return e, [5.0 + np.cumsum(rng.normal(size=n)) for n in LENGTHS]


def find(report, name, output="output 0", input=""):
    """The first such test; of any input if none is named."""
    found = [test for test in report.tests if (test.name, test.output) == (name, output)]
    return next(test for test in found if input in ("", test.input) or not test.input)


def centred(parts):
    values = np.concatenate(parts)
    return [(part - values.mean()) / values.std() for part in parts]


def scored(parts):
    """Normal scores of all records together, standardised."""
    values = np.concatenate(parts)
    normal = norm.ppf(rankdata(values) / (len(values) + 1))
    return centred(np.split(normal, np.cumsum([len(part) for part in parts])[:-1]))


def correlated(e, u):
    """What every test correlates: past and present."""
    e = centred(e)
    u = centred(u)
    e2 = scored([part**2 for part in e])
    u2 = centred([part**2 for part in u])
    product = centred([a * b for a, b in zip(e, u, strict=True)])
    pairs = [(e, e), (e2, e2), (u, e), (product, e), (u2, e), (u2, e2)]
    return dict(zip(NAMES, pairs, strict=True))


def test_correlations_and_bands_are_those_of_plain_loops_within_records():
    """The band is 1.96 over root n, times the root of the share of the pairs or squares that exist
    at this lag.
    """
    e, u = records()
    report = residual_tests(e, u, n_lags=6, input_names=["u"])
    n = sum(LENGTHS)
    assert [test.name for test in report.tests] == NAMES
    for name, (past, present) in correlated(e, u).items():
        test = find(report, name, input="u")
        assert test.lags.tolist() == list(
            range(0 if "input" in name and name != "residual_input" else 1, 7)
        )
        for k, value, band in zip(test.lags, test.values, test.band, strict=True):
            products = [
                x[t - k] * y[t]
                for x, y in zip(past, present, strict=True)
                for t in range(k, len(y))
            ]
            assert value == pytest.approx(sum(products) / n, abs=1e-12)
            there = np.concatenate([part[: len(part) - k] for part in past])
            squares = (there @ there - there.sum() ** 2 / n) / n
            share = len(products) / n if "autocorrelation" in name else squares
            assert band == pytest.approx(1.959964 * np.sqrt(share / n), rel=1e-6)
        assert test.n_outside == sum(np.abs(test.values) > test.band)


@pytest.mark.parametrize(("lengths", "n_lags"), [((14,), 3), ((6, 9), 3), ((40,), 9)])
def test_variance_of_the_portmanteau_statistic(lengths, n_lags):
    """Against 100 000 series, of known mean as the formula supposes."""
    n = sum(lengths)
    e = np.random.default_rng(1).normal(size=(n, 100_000))
    place = np.concatenate([np.arange(length) for length in lengths])
    Q = 0.0
    for k in range(1, n_lags + 1):
        now = np.flatnonzero(place >= k)
        Q = Q + n * (n + 2) * (
            np.sum(e[now - k] * e[now], axis=0) / np.sum(e**2, axis=0)
        ) ** 2 / len(now)
    z, _ = standardise(e[:, :1])
    found = autocorrelate(z, place, np.arange(1, n_lags + 1), 0)
    (freedom,) = found.freedom
    assert Q.mean() == pytest.approx(n_lags, rel=0.01)
    assert Q.var() == pytest.approx(2 * n_lags**2 / freedom, rel=0.025)
    assert found.p_value == pytest.approx(
        chi2.sf(found.statistic * freedom / n_lags, freedom), rel=1e-9
    )


def test_input_tests_are_f_tests_of_a_regression_on_the_lags():
    e, u = records(2)
    report = residual_tests(e, u, n_lags=5)
    n = sum(LENGTHS) - 3 * 5
    n_lags = 5
    for name in ("input", "squared_input", "squared_input_squared"):
        past, present = correlated(e, u)[name]
        rows = [[p[t - k] for k in range(n_lags + 1)] for p in past for t in range(n_lags, len(p))]
        X = np.column_stack([np.ones(n), rows])
        z = np.concatenate([part[n_lags:] for part in present])
        z = z - z.mean()
        rest = z - X @ np.linalg.lstsq(X, z)[0]
        explained = z @ z - rest @ rest
        freedom = (n_lags + 1, n - n_lags - 2)
        F = (explained / freedom[0]) / (rest @ rest / freedom[1])
        test = find(report, name)
        assert (test.freedom, test.statistic) == (freedom, pytest.approx(F, rel=1e-9))
        assert test.p_value == pytest.approx(f.sf(F, *freedom), rel=1e-9)
    test = find(report, "residual_input")
    expected = np.sum((test.values / test.band) ** 2) * norm.ppf(0.975) ** 2
    assert (test.statistic, test.p_value) == (
        pytest.approx(expected),
        pytest.approx(chi2.sf(expected, 5)),
    )


def test_neither_records_nor_signals_nor_units_mix():
    e, u = records(5)
    report = residual_tests(e, u, n_lags=6)
    turned = residual_tests(e[::-1], u[::-1], n_lags=6)
    scaled = residual_tests(
        [1e9 * part - 7e4 for part in e], [1e-200 * (part + 3) for part in u], n_lags=6
    )
    for other in (turned, scaled):
        for a, b in zip(report.tests, other.tests, strict=True):
            assert a.p_value == pytest.approx(b.p_value, rel=1e-5)
    joined = residual_tests(np.concatenate(e), np.concatenate(u), n_lags=6)
    assert np.abs(joined.tests[0].values - report.tests[0].values).max() > 1e-3
    e, u = np.random.default_rng(6).normal(size=(2, 200, 2))
    both = residual_tests(e, u, n_lags=7, output_names=["y", "w"], input_names=["a", "b"])
    assert [t.output for t in both.tests] == ["y"] * 10 + ["w"] * 10
    for i, output in enumerate("yw"):
        for j, driven in enumerate("ab"):
            for test in residual_tests(e[:, i], u[:, j], n_lags=7).tests:
                same = find(both, test.name, output, driven)
                np.testing.assert_allclose(same.values, test.values, atol=1e-12)
                assert same.p_value == pytest.approx(test.p_value, rel=1e-9)


# residual tests: what they find


def noise(n=600, seed=8):
    return np.random.default_rng(seed).normal(size=(2, n))


def fed_back(e, step):
    """Every sample changed by the one before."""
    for k in range(1, len(e)):
        e[k] = step(e[k], e[k - 1])
    return e


def delayed(u, k=1):
    return np.concatenate([np.zeros(k), u[:-k]])


LINEAR = {"autocorrelation", "squared_autocorrelation", "input", "residual_input"}


@pytest.mark.parametrize(
    ("n", "change", "found", "quiet"),
    [
        (600, lambda e, u: e, set(), set(NAMES)),
        (
            600,
            lambda e, u: fed_back(e, lambda now, past: now + 0.4 * past),
            {"autocorrelation"},
            set(),
        ),
        (600, lambda e, u: e + 0.3 * delayed(u, 3), {"input"}, set(NAMES) - {"input"}),
        (600, lambda e, u: e + 0.25 * delayed(u) ** 2, {"squared_input"}, LINEAR),
        (
            1500,
            lambda e, u: e + 0.3 * delayed(e * u),
            {"residual_input"},
            {"autocorrelation", "input"},
        ),
        (
            600,
            lambda e, u: e * (0.5 + delayed(u) ** 2),
            {"squared_input_squared"},
            {"autocorrelation"},
        ),
        (
            1000,
            lambda e, u: fed_back(e, lambda a, b: a * np.hypot(0.6, 0.8 * b)),
            {"squared_autocorrelation"},
            set(),
        ),
    ],
    ids=[
        "white",
        "coloured",
        "missing lag",
        "missing square",
        "bilinear",
        "noise of input",
        "noise of noise",
    ],
)
def test_every_alternative_is_found_by_its_test(n, change, found, quiet):
    e, u = noise(n)
    report = residual_tests(change(e, u), u)
    alarms = {
        test.name
        for test in report.tests
        if test.p_value < FALSE_ALARM_PROBABILITY / len(report.tests)
    }
    assert found <= alarms
    assert not alarms & quiet
    if found == {"input"}:
        assert find(report, "input").to_dict()["largest_lag"] == 3
        assert "most at lag 3" in " ".join(report.verdict())
    assert report.p_value("output 0") == min(1.0, 6 * min(test.p_value for test in report.tests))


def test_what_cannot_be_tested_is_said_and_the_rest_is_stored(tmp_path):
    e, u = noise(100)
    binary = np.sign(u) * 2.0 + 1.0
    u = np.column_stack([np.full(100, 0.1), np.where(np.arange(100) % 2, 3.0, -1.0), u])
    report = residual_tests(
        np.column_stack([e, np.full(100, 0.3), binary]),
        u,
        n_lags=5,
        input_names=["a", "b", "c"],
    )
    assert report.skipped[0] == "residuals of output 1 are constant: nothing to test"
    assert "a is constant: not tested" in report.skipped
    assert "the square of b about its mean is constant: not tested" in report.skipped
    assert report.outputs == ("output 0", "output 2")
    assert len([t for t in report.tests if t.output == "output 0"]) == 2 + 2 + 4
    assert set(report.skipped) < set(report.verdict())
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert [entry["name"] for entry in content["tests"]] == [test.name for test in report.tests]
    data = report.to_dataset()
    loaded = store.read(store.write(data, tmp_path / "residual.nc", kind="result"), kind="result")
    for name in data.variables:
        np.testing.assert_array_equal(loaded[name].values, data[name].values)
    np.testing.assert_array_equal(data["correlation"].values[0], [nan, *report.tests[0].values])
    np.testing.assert_array_equal(data["band"].values[0], [nan, *report.tests[0].band])
    perfect = residual_tests(np.zeros(100), e, n_lags=5)
    assert (perfect.tests, perfect.to_dataset().sizes["test"]) == ((), 0)
    late = find(
        residual_tests(e, (np.arange(100) == 99) * 1.0, n_lags=5, input_start=1),
        "input",
    )
    assert (late.lags[0], late.p_value, late.n_outside) == (
        1,
        pytest.approx(1.0),
        0,
    )  # an input that is at rest where lags exist
    some = find(residual_tests(e, (np.arange(100) >= 97) * 2.0, n_lags=5), "input")
    assert some.freedom == (
        3,
        100 - 5 - 4,
    )  # lags at which an input says nothing have no degrees of freedom


PAIR = [1.0, 2.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: validate([1.0, nan], PAIR, PAIR),
            "target: 1 of 2 values are not finite",
        ),
        (lambda: validate(PAIR, [1.0], PAIR), r"mean: expected shape \(2,\)"),
        (
            lambda: validate(PAIR, PAIR, [1.0, -1e-9]),
            "1 of 2 values are negative or nan",
        ),
        (lambda: validate(PAIR, PAIR, PAIR, noise_variance=-1.0), "noise_variance"),
        (lambda: validate(PAIR, PAIR, window=-1), "window=-1"),
        (
            lambda: calibration(PAIR, PAIR, PAIR, levels=[1.0]),
            "strictly between 0 and 1",
        ),
        (lambda: fit_percent(PAIR, [PAIR]), "two arrays"),
        (
            lambda: residual_tests(np.ones(50), np.ones(49)),
            r"records of \[50\] samples, inputs of \[49\]",
        ),
        (lambda: residual_tests([]), "no record of residuals"),
        (
            lambda: residual_tests(np.array([1.0, nan] * 50)),
            "residuals of record 0: 50 of 100 values are not finite",
        ),
        (lambda: residual_tests(np.ones((4, 3, 2))), r"shapes \[\(4, 3, 2\)\]"),
        (lambda: residual_tests(np.ones(200), n_lags=0), "at least 1 lag"),
        (
            lambda: residual_tests(np.ones(200), n_lags=5, n_parameters=5),
            "from 0 to 4 parameters",
        ),
        (lambda: residual_tests([np.ones(100), np.ones(9)], n_lags=9), r"one is 8\)"),
        (lambda: residual_tests(np.ones(200), input_start=2), "expected 0 or 1"),
        (
            lambda: residual_tests(np.ones((200, 2)), output_names=["y", "y"]),
            "expected 2 different names",
        ),
        (lambda: residual_tests(np.zeros(200)).p_value("output 0"), "was not tested"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# residual tests: false alarms, counted over 2000 series

N_SERIES = 2000
N_INPUTS = 40
DRAWS = {
    "gaussian": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.uniform(-1.0, 1.0, shape),
    "laplace": lambda rng, shape: rng.laplace(size=shape),
    "student": lambda rng, shape: rng.standard_t(5, shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}


def coloured(rng, n, pole):
    return lfilter([1.0], [1.0, -pole], rng.normal(size=n + 200))[200:]


def multisine(rng, n):
    t = np.arange(n)
    return sum(np.cos(2 * np.pi * k * t / n + rng.uniform(0, 2 * np.pi)) for k in range(1, n // 8))


INPUTS = {
    "white": partial(coloured, pole=0.0),
    "coloured": partial(coloured, pole=0.9),
    "multisine": multisine,
}


def limits(confidence):
    """Smallest and largest fraction of alarms that 5 % give with this probability."""
    low, high = binom(N_SERIES, FALSE_ALARM_PROBABILITY).interval(confidence)
    return low / N_SERIES, high / N_SERIES


def check_alarms(draw, drive, lengths, n_lags, margin=0.0):
    """Alarms of every test, of every lag, and of the verdict over all tests: each in 5 % of the
    series.

    One output is one series: 2000 independent series, 50 under each of 40 inputs.
    """
    rng = np.random.default_rng(0)
    whole = dict.fromkeys(NAMES, 0.0)
    lags = dict.fromkeys(NAMES, 0.0)
    verdicts = 0.0
    for _ in range(N_INPUTS):
        e = [DRAWS[draw](rng, (n, N_SERIES // N_INPUTS)) for n in lengths]
        report = residual_tests(e, [INPUTS[drive](rng, n) for n in lengths], n_lags=n_lags)
        for test in report.tests:
            whole[test.name] += test.alarm / N_SERIES
            lags[test.name] = lags[test.name] + (np.abs(test.values) > test.band) / N_SERIES
        verdicts += (
            sum(report.p_value(output) < FALSE_ALARM_PROBABILITY for output in report.outputs)
            / N_SERIES
        )
    (low, high), (lowest, highest) = limits(0.999), limits(0.9999)  # of 150 lags
    for name, rates in lags.items():
        assert low - margin <= whole[name] <= high + margin, name
        assert lowest - margin <= rates.min(), name
        assert rates.max() <= highest + margin, name
        wide = name in (
            "input",
            "squared_input",
            "squared_input_squared",
        )  # their mean scatters more
        assert rates.mean() == pytest.approx(
            FALSE_ALARM_PROBABILITY, abs=0.009 if wide else 0.004 + margin
        ), name
    assert 0.03 <= verdicts <= high + 0.015  # the smallest of six: far tails are less exact


def test_white_noise_alarms_in_5_percent():
    assert limits(0.999) == pytest.approx((0.034, 0.0665), abs=0.001)
    check_alarms("gaussian", "coloured", (200,), 25)


@pytest.mark.slow
@pytest.mark.parametrize("drive", INPUTS)
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    ("lengths", "n_lags"), [((200,), 10), ((200,), 25), ((1000,), 25), ((52,) * 6, 25)]
)
def test_white_noise_of_any_distribution_alarms_in_5_percent(draw, drive, lengths, n_lags):
    """Tails and colours cost at most one more per cent."""
    check_alarms(draw, drive, lengths, n_lags, margin=0.01)
