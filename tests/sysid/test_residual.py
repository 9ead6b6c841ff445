"""Residual tests against naive versions, references and alternatives that they must find."""

import json

import numpy as np
import pytest
from scipy.stats import chi2, f, norm, rankdata

from sysid.netcdf import from_file, to_bytes
from sysid.residual import LEVEL, most_lags, residual_tests
from sysid.residual.correlation import normal_scores, own_past, standardised

LENGTHS = (30, 55, 41)
NAMES = [
    "autocorrelation",
    "squared_autocorrelation",
    "input",
    "residual_input",
    "squared_input",
    "squared_input_squared",
]


def records(seed=0, lengths=LENGTHS):
    """Residuals with a mean, in the unit of a millionth, and an input that wanders."""
    rng = np.random.default_rng(seed)
    e = [1e-6 * (3.0 + rng.normal(size=n)) for n in lengths]
    return e, [5.0 + np.cumsum(rng.normal(size=n)) for n in lengths]


def find(report, name, output="output 0", input=None):
    """The first such test; of any input if none is named."""
    return next(
        test
        for test in report.tests
        if (test.name, test.output) == (name, output) and (input is None or test.input in (input, ""))
    )


def centred(parts):
    values = np.concatenate(parts)
    return [(part - values.mean()) / values.std() for part in parts]


def scored(parts):
    """Normal scores of all records together, standardised."""
    values = np.concatenate(parts)
    scores = norm.ppf(rankdata(values) / (len(values) + 1))
    return centred(np.split(scores, np.cumsum([len(part) for part in parts])[:-1]))


def naive_correlation(a, z, k):
    """Mean over all samples of a[t-k] z[t], within records."""
    total = sum(x[t - k] * y[t] for x, y in zip(a, z, strict=True) for t in range(k, len(y)))
    return total / sum(len(y) for y in z)


def signals(e, u):
    """What every test correlates: past and present."""
    e, u = centred(e), centred(u)
    e2, u2 = scored([part**2 for part in e]), centred([part**2 for part in u])
    product = centred([a * b for a, b in zip(e, u, strict=True)])
    pairs = [(e, e), (e2, e2), (u, e), (product, e), (u2, e), (u2, e2)]
    return dict(zip(NAMES, pairs, strict=True))


def test_correlations_are_those_of_plain_loops_within_records():
    e, u = records()
    report = residual_tests(e, u, n_lags=6, input_names=["u"])
    assert [test.name for test in report.tests] == NAMES
    for name, (past, present) in signals(e, u).items():
        test = find(report, name, input="u")
        expected = [naive_correlation(past, present, k) for k in test.lags]
        np.testing.assert_allclose(test.values, expected, atol=1e-12, err_msg=name)
        assert test.n_outside == sum(abs(r) > b for r, b in zip(test.values, test.band, strict=True))
    assert find(report, "autocorrelation").lags.tolist() == [1, 2, 3, 4, 5, 6]
    assert find(report, "input").lags.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_bands_are_196_over_root_n_times_the_share_of_a_lag():
    e, u = records()
    report, n = residual_tests(e, u, n_lags=6), sum(LENGTHS)
    for k in range(1, 7):
        pairs = sum(length - k for length in LENGTHS)
        for name in ("autocorrelation", "squared_autocorrelation"):
            band = find(report, name).band[k - 1]
            assert band == pytest.approx(1.959964 / np.sqrt(n) * np.sqrt(pairs / n), rel=1e-6)
    for name, shift in (("input", 0), ("squared_input", 0), ("squared_input_squared", 0), ("residual_input", 1)):
        past, _ = signals(e, u)[name]
        for k in range(shift, 7):
            there = np.concatenate([part[: len(part) - k] for part in past])
            share = (there @ there - there.sum() ** 2 / n) / n
            assert find(report, name).band[k - shift] == pytest.approx(1.959964 * np.sqrt(share / n), rel=1e-6)


def test_band_of_a_long_record():
    e = np.random.default_rng(0).normal(size=40_000)
    np.testing.assert_allclose(residual_tests(e, n_lags=3).tests[0].band, 1.96 / 200, rtol=1e-4)


def test_ljung_box_statistic_by_hand():
    e = np.array([1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.0, 0.0])  # sums of products: 28 at lag 0, -22 at 1, 16 at 2
    test = residual_tests(e, n_lags=2).tests[0]
    np.testing.assert_allclose(test.values, [-22 / 28, 16 / 28], rtol=1e-12)
    assert test.statistic == pytest.approx(8 * 10 * ((22 / 28) ** 2 / 7 + (16 / 28) ** 2 / 6), rel=1e-12)


def test_ljung_box_of_a_long_record_is_chi_squared():
    e = np.random.default_rng(3).normal(size=100_000)
    test = residual_tests(e, n_lags=10).tests[0]
    assert test.freedom[0] == pytest.approx(10, rel=5e-4)
    assert test.p_value == pytest.approx(chi2.sf(test.statistic, 10), rel=1e-3)
    fitted = residual_tests(e, n_lags=10, n_parameters=4)
    assert fitted.tests[0].p_value == pytest.approx(chi2.sf(test.statistic, 6), rel=1e-2)
    assert fitted.tests[1].freedom[0] == pytest.approx(10, rel=5e-4)  # squares lose nothing


@pytest.mark.parametrize(("lengths", "n_lags"), [((14,), 3), ((6, 9), 3), ((40,), 9)])
def test_variance_of_the_portmanteau_statistic(lengths, n_lags):
    """Against 100 000 series, of known mean as the formula supposes."""
    n = sum(lengths)
    e = np.random.default_rng(1).normal(size=(n, 100_000))
    place = np.concatenate([np.arange(length) for length in lengths])
    Q = 0.0
    for k in range(1, n_lags + 1):
        now = np.flatnonzero(place >= k)
        Q = Q + n * (n + 2) * (np.sum(e[now - k] * e[now], axis=0) / np.sum(e**2, axis=0)) ** 2 / len(now)
    z, _ = standardised(e[:, :1])
    (freedom,) = own_past(z, place, np.arange(1, n_lags + 1), 0).freedom
    assert Q.mean() == pytest.approx(n_lags, rel=0.01)
    assert Q.var() == pytest.approx(2 * n_lags**2 / freedom, rel=0.025)


def test_lags_of_a_short_record_count_less():
    test = residual_tests(noise(200)[0]).tests[0]
    assert test.freedom[0] == pytest.approx(25 / (1 + 2 * 24 / 200), rel=0.1)
    scaled = test.statistic * test.freedom[0] / 25
    assert test.p_value == pytest.approx(chi2.sf(scaled, test.freedom[0]), rel=1e-9)


def test_input_tests_are_f_tests_of_a_regression_on_the_lags():
    e, u = records(2)
    report, n, n_lags = residual_tests(e, u, n_lags=5), sum(LENGTHS) - 3 * 5, 5
    for name in ("input", "squared_input", "squared_input_squared"):
        past, present = signals(e, u)[name]
        rows = [[p[t - k] for k in range(n_lags + 1)] for p in past for t in range(n_lags, len(p))]
        X, z = np.column_stack([np.ones(n), rows]), np.concatenate([part[n_lags:] for part in present])
        z = z - z.mean()
        rest = z - X @ np.linalg.lstsq(X, z)[0]
        explained, freedom = z @ z - rest @ rest, (n_lags + 1, n - n_lags - 2)
        F = (explained / freedom[0]) / (rest @ rest / freedom[1])
        test = find(report, name)
        assert test.freedom == freedom
        assert test.statistic == pytest.approx(F, rel=1e-9)
        assert test.p_value == pytest.approx(f.sf(F, *freedom), rel=1e-9)


def test_sum_of_squares_of_the_products():
    test = find(residual_tests(*records(4), n_lags=5), "residual_input")
    expected = np.sum((test.values / test.band) ** 2) * norm.ppf(0.975) ** 2
    assert test.statistic == pytest.approx(expected, rel=1e-9)
    assert test.p_value == pytest.approx(chi2.sf(expected, 5), rel=1e-9)


def test_nothing_reaches_from_one_record_into_the_next():
    e, u = records(5)
    report = residual_tests(e, u, n_lags=8)
    turned = residual_tests(e[::-1], u[::-1], n_lags=8)
    for one, other in zip(report.tests, turned.tests, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-12)
        assert one.p_value == pytest.approx(other.p_value, rel=1e-8)
    joined = residual_tests(np.concatenate(e), np.concatenate(u), n_lags=8)
    assert np.abs(joined.tests[0].values - report.tests[0].values).max() > 1e-3
    assert (report.n, report.n_records, joined.n_records) == (126, 3, 1)


def test_every_output_and_input_apart():
    rng = np.random.default_rng(6)
    e, u = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    both = residual_tests(e, u, n_lags=7, output_names=["y", "w"], input_names=["a", "b"])
    assert [t.output for t in both.tests] == ["y"] * 10 + ["w"] * 10
    for i, output in enumerate("yw"):
        for j, driven in enumerate("ab"):
            single = residual_tests(e[:, i], u[:, j], n_lags=7)
            for test in single.tests:
                same = find(both, test.name, output, driven)
                np.testing.assert_allclose(same.values, test.values, atol=1e-12)
                assert same.p_value == pytest.approx(test.p_value, rel=1e-9)


def test_unit_and_mean_do_not_matter():
    e, u = records(7)
    one = residual_tests(e, u, n_lags=6)
    other = residual_tests([1e9 * part - 7e4 for part in e], [1e-200 * (part + 3) for part in u], n_lags=6)
    for a, b in zip(one.tests, other.tests, strict=True):
        assert a.p_value == pytest.approx(b.p_value, rel=1e-5)


def test_equal_values_share_their_mean_rank():
    x = np.random.default_rng(1).integers(0, 6, (40, 2)).astype(float)
    np.testing.assert_allclose(normal_scores(x), norm.ppf(rankdata(x, axis=0) / 41), rtol=1e-12)


def noise(n=600, seed=8):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.normal(size=n)


def alarms(e, u, **settings):
    report = residual_tests(e, u, **settings)
    return {test.name for test in report.tests if test.p_value < LEVEL / len(report.tests)}


def test_white_residuals_raise_no_alarm():
    assert alarms(*noise()) == set()


def test_coloured_residuals_are_found_by_the_autocorrelation():
    e, u = noise()
    for k in range(1, len(e)):
        e[k] += 0.4 * e[k - 1]
    assert "autocorrelation" in alarms(e, u)
    assert find(residual_tests(e, u), "autocorrelation").to_dict()["largest_lag"] == 1


def test_a_missing_lag_of_the_input_is_found_by_the_input():
    e, u = noise()
    e[3:] += 0.3 * u[:-3]
    assert alarms(e, u) == {"input"}
    test = find(residual_tests(e, u), "input")
    assert test.to_dict()["largest_lag"] == 3
    assert test.to_dict()["largest"] == pytest.approx(0.3 / np.sqrt(1.09), abs=0.08)


def test_a_missing_square_is_found_only_by_the_square():
    e, u = noise()
    e[1:] += 0.25 * u[:-1] ** 2
    assert alarms(e, u) & {"autocorrelation", "squared_autocorrelation", "input", "residual_input"} == set()
    assert "squared_input" in alarms(e, u)


def test_a_missing_bilinear_term_is_found_by_the_product():
    e, u = noise(1500)
    e[1:] += 0.3 * e[:-1] * u[:-1]
    assert alarms(e, u) & {"autocorrelation", "input", "squared_input"} == set()
    assert "residual_input" in alarms(e, u)


def test_noise_that_depends_on_the_input_is_found_by_both_squares():
    e, u = noise()
    e[1:] *= 0.5 + u[:-1] ** 2
    assert "squared_input_squared" in alarms(e, u)
    assert "autocorrelation" not in alarms(e, u)


def test_noise_that_depends_on_its_own_past_is_found_by_its_squares():
    e, u = noise(1000)
    for k in range(1, len(e)):
        e[k] *= np.sqrt(0.4 + 0.6 * e[k - 1] ** 2)
    assert "squared_autocorrelation" in alarms(e, u)


def test_a_controller_that_sees_the_sample_asks_for_the_inputs_before():
    e, u = noise()
    u = u - 0.8 * e
    assert "input" in alarms(e, u)
    assert alarms(e, u, input_start=1) == set()
    assert find(residual_tests(e, u, input_start=1), "input").lags[0] == 1


def test_lags_at_which_an_input_says_nothing_have_no_degrees_of_freedom():
    n = 400
    u = (np.arange(n) >= n - 3) * 2.0
    test = find(residual_tests(noise(n)[0], u), "input")
    assert test.freedom == (3, n - 25 - 4)
    assert 0.001 < test.p_value < 1


def test_residuals_that_are_the_input_give_finite_numbers():
    u = noise(200)[1]
    report = residual_tests(u, u)
    assert find(report, "input").p_value == 0.0
    json.dumps(report.to_dict(), allow_nan=False)


def test_an_input_that_moves_too_late_explains_nothing():
    u = np.zeros(200)
    u[-1] = 1.0
    test = find(residual_tests(noise(200)[0], u, input_start=1), "input")
    assert test.statistic < 1e-20
    assert (test.p_value, test.n_outside) == (1.0, 0)


def test_what_cannot_be_tested_is_said():
    e, u = noise(100)
    binary = np.sign(u) * 2.0 + 1.0
    u = np.column_stack([np.full(100, 0.1), np.where(np.arange(100) % 2, 3.0, -1.0), u])
    report = residual_tests(np.column_stack([e, np.full(100, 0.3), binary]), u, n_lags=5, input_names=["a", "b", "c"])
    assert report.skipped[0] == "residuals of output 1 are constant: nothing to test"
    assert "a is constant: not tested" in report.skipped
    assert "the square of b about its mean is constant: not tested" in report.skipped
    assert report.outputs == ("output 0", "output 2")
    assert len([t for t in report.tests if t.output == "output 0"]) == 2 + 2 + 4
    assert all(np.isfinite(test.p_value) for test in report.tests)
    assert set(report.skipped) < set(report.verdict())


def test_residuals_of_one_size_have_no_squares_to_test():
    e = np.where(np.arange(100) % 4 < 2, 1.0, -1.0)
    report = residual_tests(e, noise(100)[1], n_lags=5)
    assert report.skipped == ("squared residuals of output 0 are constant: not tested",)
    assert [t.name for t in report.tests] == ["autocorrelation", "input", "residual_input", "squared_input"]


def test_a_perfect_model_leaves_nothing_to_test():
    report = residual_tests(np.zeros(100), noise(100)[1], n_lags=5)
    assert (report.tests, report.verdict()) == ((), ("residuals of output 0 are constant: nothing to test",))
    assert report.to_dataset().sizes["test"] == 0
    with pytest.raises(ValueError, match="was not tested"):
        report.p_value("output 0")


def test_verdict_in_words():
    e, u = noise()
    assert residual_tests(e, u).verdict() == ("output 0: none of 6 residual tests finds structure at 5%",)
    e[1:] += 0.5 * e[:-1]
    e[3:] += 0.5 * u[:-3]
    found = residual_tests(e, u, output_names=["level"], input_names=["pump"]).verdict()
    assert found[0].startswith("level: 3 of 6 residual tests find structure (p = ")
    assert any("input of pump (level)" in line and "most at lag 3" in line for line in found)
    assert found[-1] == "level: the bands of the input tests are too narrow for residuals that are not white"


def test_a_single_weak_alarm_is_called_weak():
    for seed in range(200):
        report = residual_tests(*noise(seed=seed))
        if any(test.alarm for test in report.tests) and report.p_value("output 0") >= LEVEL:
            assert "weakly: chance does so" in report.verdict()[0]
            return
    pytest.fail("no weak alarm among 200 series")


def test_all_tests_together_are_judged_by_the_smallest_p_value():
    report = residual_tests(*noise())
    assert report.p_value("output 0") == min(1.0, 6 * min(test.p_value for test in report.tests))


def test_report_for_json_and_for_the_store(tmp_path):
    report = residual_tests(*records(), n_lags=6, output_names=["y"], input_names=["u"])
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert [entry["name"] for entry in content["tests"]] == NAMES
    assert (content["n"], content["n_records"], content["n_lags"], content["level"]) == (126, 3, 6, 0.05)
    assert content["p_value"]["y"] == report.p_value("y")
    assert content["tests"][0]["input"] is None
    data = report.to_dataset()
    path = tmp_path / "residual.nc"
    path.write_bytes(to_bytes(data))
    loaded = from_file(path, check=lambda _: None)
    for name in data.variables:
        np.testing.assert_array_equal(loaded[name].values, data[name].values)
    assert np.isnan(data["correlation"].values[0, 0])
    np.testing.assert_array_equal(data["correlation"].values[0, 1:], report.tests[0].values)
    np.testing.assert_array_equal(data["band"].values[2], report.tests[2].band)
    assert all({"long_name", "units"} <= set(data[name].attrs) for name in data.data_vars)


def test_without_inputs_two_tests_remain():
    assert [test.name for test in residual_tests(noise()[0]).tests] == NAMES[:2]


def test_largest_number_of_lags():
    e = noise(100)[0]
    assert most_lags([100]) == 25
    residual_tests(e, n_lags=25)
    with pytest.raises(ValueError, match=r"got 100 samples, the shortest record 100; .* one is 25\)"):
        residual_tests(e, n_lags=26)
    with pytest.raises(ValueError, match=r"the shortest record 9; .* one is 8\)"):
        residual_tests([e, e[:9]], n_lags=9)
    residual_tests([e, e[:9]], n_lags=8)
    assert most_lags([0, 100]) == 0


@pytest.mark.parametrize(
    ("residuals", "inputs", "settings", "message"),
    [
        (np.ones(50), np.ones(49), {}, r"records of \[50\] samples, inputs of \[49\]"),
        ([np.ones(50)], [np.ones(50), np.ones(50)], {}, r"\[50\] samples, inputs of \[50, 50\]"),
        ([], None, {}, "no record of residuals"),
        (np.array([1.0, np.nan] * 50), None, {}, "residuals of record 0: 50 of 100 values are not finite"),
        (np.ones((4, 3, 2)), None, {}, r"or a list of such arrays, one per record, got shapes \[\(4, 3, 2\)\]"),
        ([1.0, 2.0, 3.0], None, {}, "or a list of such arrays"),
        ([np.ones((50, 2)), np.ones((50, 1))], None, {}, r"record 1: expected shape \(n, 2\)"),
        (np.ones(200), None, {"n_lags": 0}, "at least 1 lag"),
        (np.ones(200), None, {"n_lags": 5, "n_parameters": 5}, "from 0 to 4 parameters"),
        (np.ones(200), None, {"input_start": 2}, "expected 0 or 1"),
        (np.ones(200), None, {"output_names": "y"}, "expected 1 different names"),
        (np.ones((200, 2)), None, {"output_names": ["y", "y"]}, "expected 2 different names"),
        (np.ones(200), np.ones(200), {"input_names": []}, "expected 1 different names"),
    ],
)
def test_bad_arguments_are_refused(residuals, inputs, settings, message):
    with pytest.raises(ValueError, match=message):
        residual_tests(residuals, inputs, **settings)
